//! Responses: whose they are, and what they say.

use std::ops::Range;

use super::calls;
use super::{FramedCallEnd, FramedClientConnection, LastResponse, ReceiveStep};
use crate::framed::baidu_std;
use crate::framed::unpack::{FramedCompression, FramedUnpacking};
use crate::framed::{BadHeader, FramedHeader, FramedProtocol, FramedStatus, checksum, srpc};
use crate::http2::StreamKey;
use crate::limits;

/// What of a frame is still to come.
#[derive(Debug)]
pub(super) enum IncomingResponse {
    /// A header.
    Between,
    /// The body of a response that is wanted.
    Body(ResponseBody),
    /// A body that nobody wants.
    Discarded { left_bytes: usize },
}

/// A body that comes.
#[derive(Debug)]
pub(super) struct ResponseBody {
    call: StreamKey,
    /// Of message and attachment.
    bytes: usize,
    attachment_bytes: usize,
    compression: Option<FramedCompression>,
    /// The checksum, as it travels, and of how many bytes it is.
    checksum: Option<([u8; 4], usize)>,
}

/// What the metadata of a response say.
struct ResponseHead {
    call: StreamKey,
    /// What is to become of the call when its body is there, or at once.
    body: Result<ResponseBody, FramedCallEnd>,
}

impl FramedClientConnection {
    /// Takes what comes next of the input.
    pub(super) fn receive(&mut self, input: &[u8], consumed: &mut usize) -> ReceiveStep {
        match &mut self.incoming {
            IncomingResponse::Between => self.next_frame(input, consumed),
            IncomingResponse::Body(_) => self.take_body(input, consumed),
            IncomingResponse::Discarded { left_bytes } => {
                let part = (*left_bytes).min(input.len() - *consumed);
                *consumed += part;
                *left_bytes -= part;
                if *left_bytes > 0 {
                    return ReceiveStep::Wait;
                }
                self.incoming = IncomingResponse::Between;
                ReceiveStep::Again
            }
        }
    }

    fn next_frame(&mut self, input: &[u8], consumed: &mut usize) -> ReceiveStep {
        let rest = &input[*consumed..];
        if rest.is_empty() {
            return ReceiveStep::Wait;
        }
        let header = match self.header(rest) {
            Ok(Some(header)) => header,
            Ok(None) => return ReceiveStep::Wait,
            Err(why) => return self.fail(why),
        };
        let head_bytes = self.protocol.header_bytes() + header.meta_bytes;
        let Some(meta) = rest.get(self.protocol.header_bytes()..head_bytes) else {
            return ReceiveStep::Wait;
        };
        let head = match self.protocol {
            FramedProtocol::BaiduStd => self.baidu_std_head(meta, header),
            FramedProtocol::Srpc => self.srpc_head(meta, header),
        };
        let ResponseHead { call, body } = match head {
            Ok(head) => head,
            Err(why) => return self.fail(why),
        };
        *consumed += head_bytes;
        let is_wanted = self.calls.get(call).is_some_and(|call| !call.is_abandoned);
        let end = match body {
            Ok(body) if is_wanted => {
                self.incoming = IncomingResponse::Body(body);
                return ReceiveStep::Again;
            }
            Ok(_) => FramedCallEnd::Response,
            Err(end) => end,
        };
        self.incoming = IncomingResponse::Discarded {
            left_bytes: header.body_bytes,
        };
        self.end(call, end)
            .map_or(ReceiveStep::Again, ReceiveStep::Event)
    }

    /// Returns the header of the next frame, if it is there.
    fn header(&self, rest: &[u8]) -> Result<Option<FramedHeader>, &'static str> {
        const NO_MAGIC: &str = "a frame does not begin with the magic bytes of its protocol";
        let magic = self.protocol.magic();
        let begun = rest.len().min(magic.len());
        if rest[..begun] != magic[..begun] {
            return Err(NO_MAGIC);
        }
        let Some(bytes) = rest.get(..self.protocol.header_bytes()) else {
            return Ok(None);
        };
        let header = self
            .protocol
            .read_header(bytes)
            .map_err(|error| match error {
                BadHeader::Magic => NO_MAGIC,
                BadHeader::MetaSize => "the metadata of a frame are longer than the frame",
            })?;
        if header.meta_bytes > limits::FRAMED_META_BYTES {
            return Err("the metadata of a frame are larger than the limit");
        }
        if header.body_bytes > limits::FRAMED_BODY_BYTES.max(self.max_message_bytes) {
            return Err("a frame is larger than the limit");
        }
        Ok(Some(header))
    }

    /// Reads the metadata of a response of baidu_std.
    fn baidu_std_head(
        &self,
        meta: &[u8],
        header: FramedHeader,
    ) -> Result<ResponseHead, &'static str> {
        let Ok(meta) = baidu_std::RpcMeta::decode(meta) else {
            return Err(NO_MESSAGE);
        };
        if meta.request.is_some() && meta.response.is_none() {
            return Err("the server sent a request");
        }
        let call = meta.correlation_id.and_then(calls::key_of);
        let call = call.filter(|call| self.calls.get(*call).is_some());
        let Some(call) = call else {
            return Err("a response has the correlation id of no call that waits for one");
        };
        let response = meta.response.unwrap_or_default();
        let number = response.error_code.unwrap_or(0);
        let body = if number == 0 {
            let body = check_baidu_std(&meta, call, header.body_bytes);
            self.check_size(body)
        } else {
            Err(FramedCallEnd::Error {
                status: FramedStatus::baidu_std(number),
                text: response.error_text.unwrap_or_default().to_owned(),
            })
        };
        Ok(ResponseHead { call, body })
    }

    /// The same of SRPC.
    fn srpc_head(&self, meta: &[u8], header: FramedHeader) -> Result<ResponseHead, &'static str> {
        let Ok(meta) = srpc::RpcMeta::decode(meta) else {
            return Err(NO_MESSAGE);
        };
        let Some(call) = self.calls.only() else {
            return Err("a response came that nobody waits for");
        };
        let Some(response) = meta.response else {
            return Err("the server sent no response");
        };
        let status = FramedStatus::srpc(response.status_code.unwrap_or(0));
        let body = if status.is_ok() {
            self.check_size(check_srpc(&meta, call, header.body_bytes))
        } else {
            Err(FramedCallEnd::Error {
                status,
                text: String::new(),
            })
        };
        Ok(ResponseHead { call, body })
    }

    fn check_size(
        &self,
        body: Result<ResponseBody, &'static str>,
    ) -> Result<ResponseBody, FramedCallEnd> {
        let body = body.map_err(FramedCallEnd::BadResponse)?;
        if body.bytes - body.attachment_bytes > self.max_message_bytes {
            return Err(FramedCallEnd::BadResponse(TOO_LARGE));
        }
        Ok(body)
    }

    /// Takes a body that lies whole in the input.
    fn take_body(&mut self, input: &[u8], consumed: &mut usize) -> ReceiveStep {
        let IncomingResponse::Body(body) = &self.incoming else {
            return ReceiveStep::Again;
        };
        let (call, bytes) = (body.call, body.bytes);
        let is_wanted = self.calls.get(call).is_some_and(|call| !call.is_abandoned);
        if !is_wanted {
            self.calls.remove(call);
            self.incoming = IncomingResponse::Discarded { left_bytes: bytes };
            return ReceiveStep::Again;
        }
        let start = *consumed;
        if input.len() - start < bytes {
            return ReceiveStep::Wait;
        }
        *consumed = start + bytes;
        let incoming = std::mem::replace(&mut self.incoming, IncomingResponse::Between);
        let IncomingResponse::Body(body) = incoming else {
            return ReceiveStep::Again;
        };
        let end = match self.take_response(&body, input, start..start + bytes) {
            Ok(response) => {
                self.response = response;
                FramedCallEnd::Response
            }
            Err(why) => FramedCallEnd::BadResponse(why),
        };
        self.end(call, end)
            .map_or(ReceiveStep::Again, ReceiveStep::Event)
    }

    /// Returns where message and attachment of a body lie, once they are checked and decompressed.
    fn take_response(
        &self,
        body: &ResponseBody,
        input: &[u8],
        range: Range<usize>,
    ) -> Result<LastResponse, &'static str> {
        let bytes = &input[range.clone()];
        if let Some((value, summed_bytes)) = body.checksum
            && checksum::masked(crc32c::crc32c(&bytes[..summed_bytes])) != value
        {
            return Err("the response is not what its checksum says");
        }
        let message_bytes = body.bytes - body.attachment_bytes;
        let end = range.start + message_bytes;
        let attachment = end..range.end;
        let Some(compression) = body.compression else {
            return Ok(LastResponse {
                message: Some(range.start..end),
                attachment,
                ..LastResponse::default()
            });
        };
        let packed = &bytes[..message_bytes];
        let mut unpacking = FramedUnpacking::new(compression, packed).map_err(|_| DAMAGED)?;
        if unpacking.announced_bytes() > self.max_message_bytes {
            return Err(TOO_LARGE);
        }
        let unpacked = unpacking.all(packed, usize::MAX).ok().flatten();
        let (buffer, _) = unpacked.ok_or(DAMAGED)?;
        Ok(LastResponse {
            message: None,
            buffer,
            attachment,
            was_compressed: true,
        })
    }
}

const NO_MESSAGE: &str = "the metadata of a frame are no protobuf message";
pub(super) const TOO_LARGE: &str = "the response is larger than this client accepts";
const DAMAGED: &str = "the response cannot be decompressed by its compress_type";
const UNKNOWN_COMPRESSION: &str = "the response is compressed in a way that was not asked for";

fn check_compression(
    compress_type: Option<i32>,
) -> Result<Option<FramedCompression>, &'static str> {
    FramedCompression::of(compress_type).map_err(|_| UNKNOWN_COMPRESSION)
}

/// Returns what the metadata of a response without an error say of its body.
fn check_baidu_std(
    meta: &baidu_std::RpcMeta<'_>,
    call: StreamKey,
    bytes: usize,
) -> Result<ResponseBody, &'static str> {
    let content_type = meta.content_type.unwrap_or(baidu_std::CONTENT_PROTOBUF);
    if content_type != baidu_std::CONTENT_PROTOBUF {
        return Err("the response is no protobuf message by its content_type");
    }
    let attachment_bytes = usize::try_from(meta.attachment_size.unwrap_or(0));
    let attachment_bytes = attachment_bytes.ok().filter(|size| *size <= bytes);
    let attachment_bytes = attachment_bytes.ok_or("the attachment is larger than the response")?;
    let covers_all = meta.checksum_with_attachment.unwrap_or(false);
    let summed_bytes = bytes - if covers_all { 0 } else { attachment_bytes };
    // A server may repeat the value of the request with type 0: it is the checksum of nothing.
    let checksum = match (meta.checksum_type.unwrap_or(0), meta.checksum_value) {
        (0, _) => None,
        (baidu_std::CHECKSUM_CRC32C, Some(value)) => {
            let value = value.try_into();
            Some((value.map_err(|_| BAD_CHECKSUM)?, summed_bytes))
        }
        _ => return Err(BAD_CHECKSUM),
    };
    Ok(ResponseBody {
        call,
        bytes,
        attachment_bytes,
        compression: check_compression(meta.compress_type)?,
        checksum,
    })
}

const BAD_CHECKSUM: &str = "the checksum of the response is of an unknown kind";

/// The same for SRPC.
fn check_srpc(
    meta: &srpc::RpcMeta<'_>,
    call: StreamKey,
    bytes: usize,
) -> Result<ResponseBody, &'static str> {
    if meta.data_type.unwrap_or(srpc::DATA_PROTOBUF) > srpc::DATA_PROTOBUF {
        return Err("the response is no protobuf message by its data_type");
    }
    Ok(ResponseBody {
        call,
        bytes,
        attachment_bytes: 0,
        compression: check_compression(meta.compress_type)?,
        checksum: None,
    })
}
