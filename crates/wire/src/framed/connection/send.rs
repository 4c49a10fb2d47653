//! Responses: one frame each, written at once if nothing waits, and else kept until the output has
//! room.

use std::borrow::Cow;

use super::FramedServerConnection;
use super::response_queue::Replaced;
use super::streams::ResponseStart;
use crate::framed::{FramedHeader, FramedProtocol, baidu_std, codes, srpc};
use crate::grpc::Status;
use crate::http2::outbound::Outbound;
use crate::http2::{ErrorCode, SentPart, SharedBytes, StreamKey};
use crate::limits;

/// Why a request is refused, for the peer.
#[derive(Debug)]
pub(super) struct RequestRefusal {
    code: i32,
    srpc_status: u8,
    text: Cow<'static, str>,
    /// The metadata of an SRPC response have the field `data_type`.
    pub(super) has_data_type: bool,
}

impl RequestRefusal {
    pub(super) fn new(code: i32, text: impl Into<Cow<'static, str>>) -> RequestRefusal {
        RequestRefusal::of_srpc(code, codes::srpc_status(code), text)
    }

    /// With a status of its own for SRPC.
    pub(super) fn of_srpc(
        code: i32,
        srpc_status: u8,
        text: impl Into<Cow<'static, str>>,
    ) -> RequestRefusal {
        RequestRefusal {
            code,
            srpc_status,
            text: text.into(),
            has_data_type: true,
        }
    }

    /// Appends the frame.
    fn write(&self, reply: ResponseStart, out: &mut Vec<u8>) {
        write_frame(reply, 0, out, |out| match reply {
            ResponseStart::BaiduStd(correlation) => {
                let text = format!("[E{}]{}", self.code, self.text);
                baidu_std::write_error_meta(correlation, self.code, &text, out);
            }
            ResponseStart::Srpc => {
                srpc::write_response_meta(self.srpc_status, self.has_data_type, out)
            }
        });
    }
}

/// Appends a frame that has metadata, and so many bytes of body that follow later.
#[inline]
fn write_frame(
    reply: ResponseStart,
    later_bytes: usize,
    out: &mut Vec<u8>,
    meta: impl FnOnce(&mut Vec<u8>),
) {
    write_message_frame(reply, later_bytes, out, meta, |_| {});
}

/// Appends a frame of metadata and a message, which goes on with so many bytes that follow later.
#[inline]
fn write_message_frame(
    reply: ResponseStart,
    later_bytes: usize,
    out: &mut Vec<u8>,
    meta: impl FnOnce(&mut Vec<u8>),
    encode: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    let protocol = match reply {
        ResponseStart::BaiduStd(_) => FramedProtocol::BaiduStd,
        ResponseStart::Srpc => FramedProtocol::Srpc,
    };
    let header_bytes = protocol.header_bytes();
    out.extend_from_slice(&[0; srpc::HEADER_BYTES][..header_bytes]);
    meta(out);
    let body_start = out.len();
    encode(out);
    let meta_bytes = body_start - start - header_bytes;
    let body_bytes = out.len() - body_start + later_bytes;
    let header = FramedHeader {
        meta_bytes,
        body_bytes,
    };
    // Messages that are sent are bounded by the layer above, far below 4 GiB.
    protocol.fill_header(header, &mut out[start..start + header_bytes]);
}

/// Appends the metadata of a response without an error.
#[inline]
fn write_ok_meta(reply: ResponseStart, attachment_bytes: usize, out: &mut Vec<u8>) {
    match reply {
        ResponseStart::BaiduStd(correlation) => {
            baidu_std::write_ok_meta(correlation, attachment_bytes, out);
        }
        ResponseStart::Srpc => srpc::write_response_meta(codes::srpc::OK, true, out),
    }
}

impl FramedServerConnection {
    /// Answers a call with a message. The last call for this stream.
    #[inline]
    pub fn respond(
        &mut self,
        stream: StreamKey,
        out: &mut Vec<u8>,
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        if let Some(found) = self.streams.running_mut(stream)
            && found.attachment.is_empty()
            && found.response.is_none()
            && self.queue.is_empty()
            && out.len() < self.config.output_bound_bytes
        {
            let (reply, start) = (found.reply, out.len());
            write_message_frame(reply, 0, out, |out| write_ok_meta(reply, 0, out), encode);
            if out.len() > self.config.output_bound_bytes {
                self.keep_back(stream, start, out);
            }
            self.streams.end_work(stream);
            return self.close_if_drained();
        }
        self.send_message(stream, encode);
        self.finish(stream, out, &Status::OK);
    }

    /// A response that was written, from `start` on, is larger than the output may become: it waits
    /// in the queue, and goes out in parts.
    #[cold]
    fn keep_back(&mut self, stream: StreamKey, start: usize, out: &mut Vec<u8>) {
        let before = out[..start].to_vec();
        let whole = std::mem::replace(out, before);
        let mut frame = Outbound::default();
        frame.own(whole, start);
        self.enqueue(Some(stream), (frame, 0), out);
    }

    /// Makes the response of a call, which [`FramedServerConnection::finish`] sends.
    pub fn send_message(&mut self, stream: StreamKey, encode: impl FnOnce(&mut Vec<u8>)) {
        self.make_response(stream, 0, encode, |_, _| 0);
    }

    /// The same of `head` and then `body`, which is not copied before it goes out.
    pub fn send_shared(
        &mut self,
        stream: StreamKey,
        head: impl FnOnce(&mut Vec<u8>),
        body: SharedBytes,
    ) {
        let body_bytes = body.len();
        self.make_response(stream, body_bytes, head, |pool, frame| {
            frame.share(pool, body)
        });
    }

    /// The same of several parts. Shared ones are not copied before they go out.
    pub fn send_parts<'a>(
        &mut self,
        stream: StreamKey,
        parts: impl Iterator<Item = SentPart<'a>> + Clone,
    ) {
        let bytes = parts.clone().map(|part| part.bytes().len()).sum();
        self.make_response(
            stream,
            bytes,
            |_| {},
            |pool, frame| {
                let mut shared_bytes = 0;
                for part in parts {
                    match part {
                        SentPart::Own(part) => {
                            frame.write(pool, |bytes| bytes.extend_from_slice(part));
                        }
                        SentPart::Shared(body, charge) => {
                            shared_bytes += frame.share(pool, body.clone().into());
                            frame.charge_last(|| charge(body));
                        }
                    }
                }
                shared_bytes
            },
        );
    }

    /// `rest` appends what follows behind `encode`, so many bytes, and returns how many of them are
    /// shared.
    fn make_response(
        &mut self,
        stream: StreamKey,
        rest_bytes: usize,
        encode: impl FnOnce(&mut Vec<u8>),
        rest: impl FnOnce(&mut crate::http2::pool::BufferPool, &mut Outbound) -> usize,
    ) {
        let pool = &mut self.pool;
        let Some(found) = self.streams.running_mut(stream) else {
            return;
        };
        debug_assert!(found.response.is_none(), "a call has one response");
        let (reply, attachment) = (found.reply, std::mem::take(&mut found.attachment));
        let mut frame = Outbound::default();
        frame.write(pool, |out| {
            let meta = |out: &mut Vec<u8>| write_ok_meta(reply, attachment.len(), out);
            write_message_frame(reply, rest_bytes + attachment.len(), out, meta, encode);
        });
        let shared_bytes = rest(pool, &mut frame);
        if !attachment.is_empty() {
            frame.write(pool, |out| out.extend_from_slice(&attachment));
        }
        found.response = Some((frame, shared_bytes));
        self.streams.attachment_bytes -= attachment.len();
    }

    /// Ends a call with a status: sends the response that was made, or the error. The last call for
    /// this stream.
    pub fn finish(&mut self, stream: StreamKey, out: &mut Vec<u8>, status: &Status) {
        let is_stopping = self.is_draining();
        let Some(found) = self.streams.running_mut(stream) else {
            self.streams.end_work(stream);
            return self.close_if_drained();
        };
        let (reply, response) = (found.reply, found.response.take());
        match (status.code(), response) {
            (crate::grpc::Code::Ok, Some(response)) => {
                self.enqueue(Some(stream), response, out);
            }
            (crate::grpc::Code::Ok, None) => {
                let frame = |out: &mut Vec<u8>| {
                    write_frame(reply, 0, out, |out| write_ok_meta(reply, 0, out));
                };
                self.send_small(Some(stream), out, frame);
            }
            (code, _) => {
                let code = codes::error_code(code, is_stopping);
                let refusal = RequestRefusal::new(code, status.message().to_owned());
                self.send_small(Some(stream), out, |out| refusal.write(reply, out));
            }
        }
        self.streams.end_work(stream);
        self.close_if_drained();
    }

    /// Ends a call of a method that does not exist. `has_service`: its service does.
    #[cold]
    pub fn finish_unknown(&mut self, stream: StreamKey, out: &mut Vec<u8>, has_service: bool) {
        let path = self.head().path();
        let shown = String::from_utf8_lossy(&path[..path.len().min(limits::MAX_SHOWN_PATH_BYTES)]);
        let path = shown.replace(char::is_control, "\u{fffd}");
        let Some(found) = self.streams.running_mut(stream) else {
            self.streams.end_work(stream);
            return self.close_if_drained();
        };
        let reply = found.reply;
        let text = format!("Fail to find method={}", path.trim_start_matches('/'));
        let status = match has_service {
            true => codes::srpc::METHOD_NOT_FOUND,
            false => codes::srpc::SERVICE_NOT_FOUND,
        };
        let refusal = RequestRefusal::of_srpc(codes::ENOMETHOD, status, text);
        self.send_refusal(Some(stream), reply, &refusal, out);
        self.streams.end_work(stream);
        self.close_if_drained();
    }

    /// Has the attachment of the request go with the response.
    pub fn echo_attachment(&mut self, stream: StreamKey) {
        if let Some(found) = self.streams.running_mut(stream) {
            found.echoes_attachment = true;
        }
    }

    /// Keeps the attachment of a request if it is wanted.
    #[inline]
    pub(super) fn keep_attachment(&mut self, stream: StreamKey, attachment: &[u8]) {
        if !attachment.is_empty()
            && let Some(found) = self.streams.running_mut(stream)
            && found.echoes_attachment
        {
            found.attachment = attachment.to_vec();
            self.streams.attachment_bytes += attachment.len();
        }
    }

    pub(super) fn send_refusal(
        &mut self,
        stream: Option<StreamKey>,
        reply: ResponseStart,
        refusal: &RequestRefusal,
        out: &mut Vec<u8>,
    ) {
        self.send_small(stream, out, |out| refusal.write(reply, out));
    }

    /// Sends a small frame, at once if nothing waits.
    fn send_small(
        &mut self,
        stream: Option<StreamKey>,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        if self.queue.is_empty() && out.len() < self.config.output_bound_bytes {
            return write(out);
        }
        let mut frame = Outbound::default();
        frame.write(&mut self.pool, write);
        self.enqueue(stream, (frame, 0), out);
    }

    /// Adds a response to those that wait, with the number of its bytes that are shared.
    fn enqueue(
        &mut self,
        stream: Option<StreamKey>,
        (frame, shared_bytes): (Outbound, usize),
        out: &mut Vec<u8>,
    ) {
        if let Some(found) = stream.and_then(|stream| self.streams.get_mut(stream)) {
            found.is_unsent = true;
        }
        self.queue.push(stream, frame, shared_bytes);
        self.pump(out);
    }

    /// Returns whether [`FramedServerConnection::transmit`] could send something, if the output has
    /// room.
    #[inline]
    pub fn wants_transmit(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Moves what waits to `out`, while its bound allows.
    pub fn transmit(&mut self, out: &mut Vec<u8>, now_ns: u64) {
        self.now_ns = now_ns;
        self.pump(out);
        self.close_if_drained();
    }

    fn pump(&mut self, out: &mut Vec<u8>) {
        let (bound_bytes, streams) = (self.config.output_bound_bytes, &mut self.streams);
        let is_out = |stream| streams.end_unsent(stream);
        (self.queue).pump(bound_bytes, out, &mut self.pool, is_out);
    }

    /// Returns the bytes that have gone out and take memory all the same, as what follows them in
    /// their response has not.
    #[inline]
    pub fn out_bytes(&self) -> usize {
        self.queue.out_bytes()
    }

    /// The connection is over: nothing of what waits goes out.
    pub(super) fn drop_queue(&mut self) {
        for stream in self.queue.drop_all() {
            self.streams.end_unsent(stream);
        }
    }

    /// Drops the response of a call that was made and not sent.
    pub fn drop_unsent(&mut self, stream: StreamKey) {
        if let Some(found) = self.streams.running_mut(stream) {
            found.response = None;
        }
    }

    /// Sends `status` instead of the response of a call that has ended, if it waits whole. If some
    /// of it has gone out, the connection ends: nothing else cuts it off.
    #[cold]
    pub fn cut_off(&mut self, stream: StreamKey, status: &Status) {
        let is_stopping = self.is_draining();
        let Some(found) = self.streams.get(stream) else {
            return;
        };
        let code = codes::error_code(status.code(), is_stopping);
        let refusal = RequestRefusal::new(code, status.message().to_owned());
        let write = |out: &mut Vec<u8>| refusal.write(found.reply, out);
        if self.queue.replace(stream, &mut self.pool, write) == Replaced::HasBegun {
            const WHY: &str = "a response was cut off";
            self.fail(ErrorCode::Cancel, WHY);
        }
    }

    /// Ends a call with an error of its own.
    pub fn reset(&mut self, stream: StreamKey, out: &mut Vec<u8>) {
        let status = Status::new(crate::grpc::Code::Internal, "the call was ended");
        self.finish(stream, out, &status);
    }
}
