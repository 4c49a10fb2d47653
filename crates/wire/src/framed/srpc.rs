//! SRPC: a header of 16 bytes, [`RpcMeta`], the message. A connection carries one call at a time,
//! so that nothing says which request a response belongs to.

/// Bytes of a frame's header: `SRPC`, the lengths of metadata and message, both unsigned in network
/// byte order, and four bytes that are 0.
pub const HEADER_BYTES: usize = 16;

/// `data_type`: a protobuf message in its binary form.
pub const DATA_PROTOBUF: i32 = 0;

protobuf::message! {
    /// The metadata of a frame.
    pub struct RpcMeta<'a> = "srpc.RPCMeta" {
        /// Only of requests.
        1 request: message RpcRequestMeta<'a>,
        /// Only of responses.
        2 response: message RpcResponseMeta,
        /// The version of the protocol.
        3 srpc_version: optional uint32,
        /// 0 none, 1 snappy, 2 gzip, 3 zlib, 4 lz4.
        4 compress_type: optional int32,
        /// Bytes of the message before it was compressed.
        5 origin_size: optional int32,
        /// Bytes of the message as it travels, if it is compressed.
        6 compressed_size: optional int32,
        /// [`DATA_PROTOBUF`], or 1 Thrift, 2 JSON.
        7 data_type: optional int32,
        /// What goes with the call.
        8 trans_info: repeated message TransInfo<'a>,
    }

    /// What only requests have.
    pub struct RpcRequestMeta<'a> = "srpc.RPCRequestMeta" {
        /// The name of the service.
        1 service_name: string,
        /// The name of the method.
        2 method_name: string,
        /// For the logs of whoever is called.
        3 log_id: optional int64,
    }

    /// What only responses have.
    pub struct RpcResponseMeta = "srpc.RPCResponseMeta" {
        /// One of [`super::codes::srpc`].
        1 status_code: optional int32,
        /// A further number of whoever answered.
        2 error: optional int32,
    }

    /// An entry of `trans_info`.
    pub struct TransInfo<'a> = "srpc.RPCMetaKeyValue" {
        /// The key.
        1 key: string,
        /// The value, if it is a number.
        2 int_value: optional int32,
        /// The value, if it is text.
        3 str_value: optional string,
        /// The value, if it is bytes.
        4 bytes_value: optional bytes,
    }
}

/// Appends the metadata of a response, which are constant but for a byte and so not written by the
/// description. An unreadable request gets one without `data_type`.
pub fn write_response_meta(status_code: u8, has_data_type: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(&[0x12, 2, 8, status_code]);
    if has_data_type {
        out.extend_from_slice(&[0x38, DATA_PROTOBUF as u8]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_bytes_of_a_response_are_what_the_description_makes() {
        for status_code in [1, 2, 100, 103] {
            for data_type in [None, Some(DATA_PROTOBUF)] {
                let meta = RpcMeta {
                    response: Some(RpcResponseMeta {
                        status_code: Some(i32::from(status_code)),
                        error: None,
                    }),
                    data_type,
                    ..RpcMeta::default()
                };
                let (mut out, mut expected) = (Vec::new(), Vec::new());
                meta.encode(&mut expected);
                write_response_meta(status_code, data_type.is_some(), &mut out);
                assert_eq!(out, expected);
            }
        }
    }

    #[test]
    fn a_request_of_an_srpc_client_is_read() {
        let meta = RpcMeta::decode(b"\x0a\x0f\x0a\x07Example\x12\x04Echo\x38\x00");
        let meta = meta.expect("a message");
        let request = meta.request.expect("a request");
        assert_eq!(
            (request.service_name, request.method_name),
            ("Example", "Echo")
        );
        assert_eq!(meta.data_type, Some(0));
    }
}
