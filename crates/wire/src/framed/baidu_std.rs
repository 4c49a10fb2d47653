//! baidu_std: a header of 12 bytes, [`RpcMeta`], the message, and an attachment that is not
//! compressed.

use protobuf::{FieldValue, Reader, writer};

/// Bytes of a frame's header: `PRPC`, the length of all that follows, the length of the metadata,
/// both unsigned in network byte order.
pub const HEADER_BYTES: usize = 12;

/// `checksum_type`: CRC32C of the message as it travels; see [`super::checksum`].
pub const CHECKSUM_CRC32C: i32 = 1;

/// `content_type`: a protobuf message in its binary form.
pub const CONTENT_PROTOBUF: i32 = 0;

/// Values of `compress_type`.
pub mod compress {
    /// Not compressed.
    pub const NONE: i32 = 0;
    /// The raw format of snappy.
    pub const SNAPPY: i32 = 1;
    /// gzip (RFC 1952).
    pub const GZIP: i32 = 2;
}

protobuf::message! {
    /// The metadata of a frame.
    pub struct RpcMeta<'a> = "brpc.policy.RpcMeta" {
        /// Only of requests.
        1 request: message RpcRequestMeta<'a>,
        /// Only of responses.
        2 response: message RpcResponseMeta<'a>,
        /// One of [`compress`].
        3 compress_type: optional int32,
        /// Chosen by the client, and the same in the response.
        4 correlation_id: optional int64,
        /// Bytes at the end of the frame that are not part of the message.
        5 attachment_size: optional int32,
        /// A message in pieces, which nobody supports.
        6 chunk_info: optional bytes,
        /// Proves who calls; sent with the first request of a connection.
        7 authentication_data: optional bytes,
        /// Begins a streaming call.
        8 stream_settings: optional bytes,
        /// What goes with the call.
        9 user_fields: repeated message UserField<'a>,
        /// [`CONTENT_PROTOBUF`], or a form of JSON or text.
        10 content_type: optional int32,
        /// 0 or [`CHECKSUM_CRC32C`].
        11 checksum_type: optional int32,
        /// The checksum.
        12 checksum_value: optional bytes,
        /// The checksum is that of message and attachment.
        13 checksum_with_attachment: optional bool,
    }

    /// What only requests have.
    pub struct RpcRequestMeta<'a> = "brpc.policy.RpcRequestMeta" {
        /// With the package or without it.
        1 service_name: string,
        /// The name of the method.
        2 method_name: string,
        /// For the logs of whoever is called.
        3 log_id: optional int64,
        /// For tracing.
        4 trace_id: optional int64,
        /// For tracing.
        5 span_id: optional int64,
        /// For tracing.
        6 parent_span_id: optional int64,
        /// For the logs of whoever is called.
        7 request_id: optional string,
        /// How long the caller waits, in milliseconds.
        8 timeout_ms: optional int32,
    }

    /// What only responses have.
    pub struct RpcResponseMeta<'a> = "brpc.policy.RpcResponseMeta" {
        /// 0, or one of [`super::codes`].
        1 error_code: optional int32,
        /// What happened.
        2 error_text: optional string,
    }

    /// An entry of `user_fields`.
    pub struct UserField<'a> = "brpc.policy.RpcMeta.UserFieldsEntry" {
        /// The key.
        1 key: string,
        /// The value.
        2 value: string,
    }
}

/// Returns how often a request has `authentication_data` that are not empty. Of a field that is
/// there twice, a decoder takes the last one.
pub(super) fn count_proofs(meta: &[u8]) -> usize {
    let mut reader = Reader::new(meta);
    let mut count = 0;
    while let Ok(Some((number, value))) = reader.next_field() {
        let is_proof = number == RpcMeta::NUMBERS.authentication_data;
        count += usize::from(is_proof && value != FieldValue::Bytes(&[]));
    }
    count
}

/// What a response repeats of its request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Correlation {
    /// 0 if the request had none.
    pub id: i64,
    /// The checksum of the request, which servers send back with type 0.
    pub checksum: Option<[u8; 4]>,
}

/// Appends the metadata of a response without an error. Not by the description, since each call has
/// them: they are constant but for the id and the lengths.
#[inline]
pub fn write_ok_meta(correlation: Correlation, attachment_bytes: usize, out: &mut Vec<u8>) {
    // response { error_code: 0 }, compress_type: 0, and the tag of correlation_id.
    out.extend_from_slice(b"\x12\x02\x08\x00\x18\x00\x20");
    write_rest(correlation, attachment_bytes, out);
}

/// Appends the metadata of a response with an error.
pub fn write_error_meta(correlation: Correlation, code: i32, text: &str, out: &mut Vec<u8>) {
    let response = RpcResponseMeta {
        error_code: Some(code),
        error_text: Some(text),
    };
    let meta = RpcMeta {
        response: Some(response),
        ..RpcMeta::default()
    };
    meta.encode(out);
    out.extend_from_slice(b"\x18\x00\x20");
    write_rest(correlation, 0, out);
}

/// Appends the correlation id, whose tag is there, and what follows it. content_type,
/// checksum_type and checksum_value are always there, as those of a brpc server are.
#[inline]
fn write_rest(correlation: Correlation, attachment_bytes: usize, out: &mut Vec<u8>) {
    writer::varint(out, correlation.id.cast_unsigned());
    if attachment_bytes > 0 {
        let number = RpcMeta::NUMBERS.attachment_size;
        writer::uint64_always(out, number, attachment_bytes as u64);
    }
    match &correlation.checksum {
        None => out.extend_from_slice(b"\x50\x00\x58\x00\x62\x00"),
        Some(value) => {
            out.extend_from_slice(b"\x50\x00\x58\x00\x62\x04");
            out.extend_from_slice(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same_by_the_description(correlation: Correlation, attachment: Option<i32>) -> Vec<u8> {
        let meta = RpcMeta {
            response: Some(RpcResponseMeta {
                error_code: Some(0),
                error_text: None,
            }),
            compress_type: Some(0),
            correlation_id: Some(correlation.id),
            attachment_size: attachment,
            content_type: Some(0),
            checksum_type: Some(0),
            checksum_value: Some(correlation.checksum.as_ref().map_or(&[], |value| value)),
            ..RpcMeta::default()
        };
        let mut out = Vec::new();
        meta.encode(&mut out);
        out
    }

    #[test]
    fn constant_bytes_of_a_response_are_what_the_description_makes() {
        for id in [0, 7, 1 << 40, -1, i64::MIN] {
            for checksum in [None, Some([1, 2, 3, 4])] {
                for attachment in [None, Some(3), Some(1 << 20)] {
                    let correlation = Correlation { id, checksum };
                    let mut out = Vec::new();
                    write_ok_meta(correlation, attachment.unwrap_or(0) as usize, &mut out);
                    assert_eq!(out, same_by_the_description(correlation, attachment));
                }
            }
        }
    }

    #[test]
    fn metadata_of_an_error_have_code_and_text() {
        let mut out = Vec::new();
        let correlation = Correlation {
            id: 9,
            checksum: None,
        };
        write_error_meta(correlation, 1002, "no such method", &mut out);
        let meta = RpcMeta::decode(&out).expect("a message");
        let response = meta.response.expect("a response");
        assert_eq!(response.error_code, Some(1002));
        assert_eq!(response.error_text, Some("no such method"));
        assert_eq!(meta.correlation_id, Some(9));
    }

    #[test]
    fn a_request_of_a_brpc_client_is_read() {
        let meta = b"\x0a\x1d\x0a\x13example.EchoService\x12\x04Echo\x18\x00\
            \x18\x00\x20\x80\x80\x80\x80\x10\x50\x00\x58\x00\x62\x00";
        let meta = RpcMeta::decode(meta).expect("a message");
        let request = meta.request.expect("a request");
        let names = (request.service_name, request.method_name);
        assert_eq!(names, ("example.EchoService", "Echo"));
        assert_eq!((request.log_id, meta.compress_type), (Some(0), Some(0)));
        assert_eq!(meta.correlation_id, Some(0x1_0000_0000));
        let mut again = Vec::new();
        meta.encode(&mut again);
        assert_eq!(RpcMeta::decode(&again), Ok(meta));
    }
}
