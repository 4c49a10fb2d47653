//! Frames: which request begins, and which is refused before the layer above hears of it.

use super::body::{IncomingRequest, RequestBody, is_progress};
use super::head::RequestNames;
use super::send::RequestRefusal;
use super::streams::ResponseStart;
use super::{FramedServerConnection, HoldReason, InputStep, NS_PER_MS};
use crate::framed::baidu_std::{self, Correlation};
use crate::framed::unpack::{FramedCompression, UnknownCompression};
use crate::framed::{FramedHeader, FramedProtocol, codes, srpc};
use crate::http2::{ErrorCode, Event};
use crate::limits;

/// What is known of a request before it begins.
struct NewRequest<'a> {
    reply: ResponseStart,
    is_alone: bool,
    names: RequestNames<'a>,
    body: RequestBody,
}

impl FramedServerConnection {
    /// Takes what comes next of the input.
    #[inline]
    pub(super) fn receive(
        &mut self,
        input: &[u8],
        consumed: &mut usize,
        out: &mut Vec<u8>,
    ) -> InputStep {
        match &mut self.incoming {
            IncomingRequest::Between => self.next_frame(input, consumed, out),
            IncomingRequest::Body(_) => self.continue_body(input, consumed, out),
            IncomingRequest::Packed(_) => self.continue_unpacking(out),
            IncomingRequest::Discarded { .. } => self.continue_discarding(input, consumed),
        }
    }

    fn next_frame(&mut self, input: &[u8], consumed: &mut usize, out: &mut Vec<u8>) -> InputStep {
        let rest = &input[*consumed..];
        self.held = HoldReason::No;
        if rest.is_empty() {
            self.rest_due_ns = None;
            return InputStep::Wait;
        }
        if self.protocol == FramedProtocol::Srpc && self.streams.working() > 0 {
            return self.fail_pipelined();
        }
        let header = match self.header(rest) {
            Ok(Some(header)) => header,
            Ok(None) => return self.wait_for_head(),
            Err(why) => {
                self.fail(ErrorCode::ProtocolError, why);
                return InputStep::Again;
            }
        };
        let head_bytes = self.protocol.header_bytes() + header.meta_bytes;
        if rest.len() < head_bytes {
            return self.wait_for_head();
        }
        if !self.may_begin() {
            return self.hold(HoldReason::UntilCapacity);
        }
        if self.protocol == FramedProtocol::Srpc && rest.len() > head_bytes + header.body_bytes {
            return self.fail_pipelined();
        }
        let meta = &rest[self.protocol.header_bytes()..head_bytes];
        match self.protocol {
            FramedProtocol::BaiduStd => {
                self.baidu_std_request(meta, header, (consumed, head_bytes), out)
            }
            FramedProtocol::Srpc => {
                *consumed += head_bytes;
                self.srpc_request(meta, header, out)
            }
        }
    }

    /// Returns the header of the next frame, if it is there.
    fn header(&self, rest: &[u8]) -> Result<Option<FramedHeader>, &'static str> {
        let magic = self.protocol.magic();
        let begun = rest.len().min(magic.len());
        if rest[..begun] != magic[..begun] {
            return Err("a frame does not begin with the magic bytes of its protocol");
        }
        let Some(bytes) = rest.get(..self.protocol.header_bytes()) else {
            return Ok(None);
        };
        let Ok(header) = self.protocol.read_header(bytes) else {
            return Err("the metadata of a frame are longer than the frame");
        };
        if header.meta_bytes > limits::FRAMED_META_BYTES {
            return Err("the metadata of a frame are larger than the limit");
        }
        let max_bytes = limits::FRAMED_BODY_BYTES.max(self.config.max_message_bytes);
        if header.body_bytes > max_bytes {
            return Err("a frame is larger than the limit");
        }
        Ok(Some(header))
    }

    /// Some of a header or of metadata has come.
    fn wait_for_head(&mut self) -> InputStep {
        if self.rest_due_ns.is_none() {
            self.expect_rest(limits::HEADER_BLOCK_TIMEOUT_MS);
        }
        InputStep::Wait
    }

    pub(super) fn expect_rest(&mut self, timeout_ms: u64) {
        self.rest_due_ns = Some(self.now_ns + timeout_ms * NS_PER_MS);
    }

    /// Leaves a request in the input. Its sender is not in arrears.
    fn hold(&mut self, held: HoldReason) -> InputStep {
        self.rest_due_ns = None;
        self.held = held;
        InputStep::Wait
    }

    #[cold]
    fn fail_pipelined(&mut self) -> InputStep {
        const WHY: &str = "a request came before the response to the one before";
        self.fail(ErrorCode::ProtocolError, WHY);
        InputStep::Again
    }

    fn baidu_std_request(
        &mut self,
        meta: &[u8],
        header: FramedHeader,
        (consumed, head_bytes): (&mut usize, usize),
        out: &mut Vec<u8>,
    ) -> InputStep {
        if let Some(id) = self.known_meta.correlation_id(meta)
            && let Ok(body) = self.check_size(RequestBody::new(header.body_bytes))
        {
            *consumed += head_bytes;
            let correlation = Correlation { id, checksum: None };
            return self.begin_call(ResponseStart::BaiduStd(correlation), false, body);
        }
        self.known_meta.forget();
        let bytes = meta;
        let Ok(meta) = baidu_std::RpcMeta::decode(bytes) else {
            const WHY: &str = "the metadata of a frame are no protobuf message";
            self.fail(ErrorCode::ProtocolError, WHY);
            return InputStep::Again;
        };
        let is_alone = meta.correlation_id.is_none();
        if is_alone && self.streams.working() > 0 {
            return self.hold(HoldReason::UntilAlone);
        }
        *consumed += head_bytes;
        // Before anything is refused: it stands for the requests that follow, whatever becomes of
        // this one.
        if let Some(proof) = meta.authentication_data {
            self.take_proof(proof, baidu_std::count_proofs(bytes));
        }
        let checksum = meta.checksum_value.and_then(|value| value.try_into().ok());
        let correlation = Correlation {
            id: meta.correlation_id.unwrap_or(0),
            checksum,
        };
        let reply = ResponseStart::BaiduStd(correlation);
        let body = check_baidu_std(&meta, header.body_bytes);
        let body = body.and_then(|body| self.check_size(body));
        let (body, request) = match (body, meta.request) {
            (Ok(body), Some(request)) => (body, request),
            (Err(refusal), Some(_)) => return self.refuse(reply, header, &refusal, out),
            (_, None) => {
                let refusal = RequestRefusal::new(codes::ENOSERVICE, "Fail to find service=");
                return self.refuse(reply, header, &refusal, out);
            }
        };
        let names = RequestNames {
            service: request.service_name,
            method: request.method_name,
            timeout_ns: timeout_ns(request.timeout_ms),
        };
        let is_plain = body.is_plain()
            && checksum.is_none()
            && meta.authentication_data.is_none()
            && meta.user_fields.iter().next().is_none();
        let entries = meta.user_fields.iter().flatten();
        let entries = entries.map(|entry| (entry.key.as_bytes(), entry.value.as_bytes()));
        let request = NewRequest {
            reply,
            is_alone,
            names,
            body,
        };
        let step = self.begin(request, entries, header, out);
        if is_plain && matches!(step, InputStep::Event(_)) {
            self.known_meta.remember(bytes);
        }
        step
    }

    /// Takes the last proof of a request that has so many.
    fn take_proof(&mut self, last: &[u8], count: usize) {
        match count {
            0 => {}
            1 if !last.is_empty() => self.head.set_authorization(last),
            _ => self.head.set_several_authorizations(),
        }
    }

    fn srpc_request(&mut self, meta: &[u8], header: FramedHeader, out: &mut Vec<u8>) -> InputStep {
        let reply = ResponseStart::Srpc;
        let (meta, request) = match srpc::RpcMeta::decode(meta) {
            Ok(meta) => match meta.request {
                Some(request) => (meta, request),
                None => return self.refuse_meta(header, out),
            },
            Err(_) => return self.refuse_meta(header, out),
        };
        let body = check_srpc(&meta, header.body_bytes);
        let body = match body.and_then(|body| self.check_size(body)) {
            Ok(body) => body,
            Err(refusal) => return self.refuse(reply, header, &refusal, out),
        };
        let names = RequestNames {
            service: request.service_name,
            method: request.method_name,
            timeout_ns: None,
        };
        let entries = meta.trans_info.iter().flatten();
        let entries = entries.filter_map(|entry| {
            let value = entry.str_value.map(str::as_bytes).or(entry.bytes_value)?;
            Some((entry.key.as_bytes(), value))
        });
        let request = NewRequest {
            reply,
            is_alone: true,
            names,
            body,
        };
        self.begin(request, entries, header, out)
    }

    /// Answers metadata that cannot be read.
    #[cold]
    fn refuse_meta(&mut self, header: FramedHeader, out: &mut Vec<u8>) -> InputStep {
        let mut refusal = RequestRefusal::of_srpc(codes::EREQUEST, codes::srpc::META_ERROR, "");
        refusal.has_data_type = false;
        self.refuse(ResponseStart::Srpc, header, &refusal, out)
    }

    fn begin<'e>(
        &mut self,
        request: NewRequest<'_>,
        entries: impl Iterator<Item = (&'e [u8], &'e [u8])>,
        header: FramedHeader,
        out: &mut Vec<u8>,
    ) -> InputStep {
        let NewRequest {
            reply,
            is_alone,
            names,
            body,
        } = request;
        if self.head.set(&names, entries).is_err() {
            let refusal = RequestRefusal::new(
                codes::EREQUEST,
                "the metadata have more fields or bytes than those of a call may have",
            );
            return self.refuse(reply, header, &refusal, out);
        }
        self.begin_call(reply, is_alone, body)
    }

    /// Begins a call whose head is the last one.
    #[inline]
    fn begin_call(
        &mut self,
        reply: ResponseStart,
        is_alone: bool,
        mut body: RequestBody,
    ) -> InputStep {
        self.guard.did_something();
        self.rest_due_ns = None;
        let stream = self.streams.insert(reply);
        if is_alone {
            self.alone = Some(stream);
        }
        body.stream = stream;
        self.incoming = IncomingRequest::Body(body);
        InputStep::Event(Event::Request { stream, end: false })
    }

    /// Answers a request of which the layer above does not hear. Its body is thrown away.
    #[cold]
    fn refuse(
        &mut self,
        reply: ResponseStart,
        header: FramedHeader,
        refusal: &RequestRefusal,
        out: &mut Vec<u8>,
    ) -> InputStep {
        self.send_refusal(None, reply, refusal, out);
        self.discard(header.body_bytes);
        // What waited of the last response may have gone out before it.
        self.close_if_drained();
        InputStep::Event(Event::Refused)
    }

    /// Throws away what is left of a frame.
    pub(super) fn discard(&mut self, left_bytes: usize) {
        self.rest_due_ns = None;
        self.incoming = IncomingRequest::Discarded {
            left_bytes,
            progress_left_bytes: left_bytes,
        };
    }

    #[cold]
    fn continue_discarding(&mut self, input: &[u8], consumed: &mut usize) -> InputStep {
        let IncomingRequest::Discarded {
            left_bytes,
            progress_left_bytes,
        } = &mut self.incoming
        else {
            return InputStep::Again;
        };
        let part = (*left_bytes).min(input.len() - *consumed);
        *consumed += part;
        *left_bytes -= part;
        if *left_bytes == 0 {
            self.end_frame();
            return InputStep::Again;
        }
        let progress = *progress_left_bytes - *left_bytes;
        if is_progress(progress, *left_bytes) || self.rest_due_ns.is_none() {
            *progress_left_bytes = *left_bytes;
            self.expect_rest(limits::NO_PROGRESS_TIMEOUT_MS);
        }
        InputStep::Wait
    }

    /// A frame has come to its end.
    pub(super) fn end_frame(&mut self) {
        self.rest_due_ns = None;
        self.incoming = IncomingRequest::Between;
    }

    /// Returns whether a further call may begin.
    pub(super) fn may_begin(&self) -> bool {
        let runs = |stream| (self.streams.get(stream)).is_some_and(|found| !found.is_work_done);
        self.has_capacity()
            && self.streams.len() < self.config.max_streams as usize
            && self.queue.refusals() < limits::MAX_PENDING_REFUSALS
            && !self.alone.is_some_and(runs)
    }

    /// Returns the body if the message may be as large.
    fn check_size(&self, body: RequestBody) -> Result<RequestBody, RequestRefusal> {
        let max_bytes = self.config.max_message_bytes;
        if body.bytes <= max_bytes {
            return Ok(body);
        }
        let hint = self.config.too_large_hint;
        let separator = if hint.is_empty() { "" } else { "; " };
        Err(RequestRefusal::new(
            codes::ELIMIT,
            format!(
                "the message has {} bytes, and {max_bytes} is the limit{separator}{hint}",
                body.bytes
            ),
        ))
    }
}

fn timeout_ns(timeout_ms: Option<i32>) -> Option<u64> {
    let timeout_ms = timeout_ms.filter(|timeout_ms| *timeout_ms > 0)?;
    Some(u64::from(timeout_ms.unsigned_abs()) * NS_PER_MS)
}

/// Returns what the metadata of a request say of its body.
fn check_baidu_std(
    meta: &baidu_std::RpcMeta<'_>,
    bytes: usize,
) -> Result<RequestBody, RequestRefusal> {
    let refuse = |text: String| Err(RequestRefusal::new(codes::EREQUEST, text));
    if meta.stream_settings.is_some() {
        return refuse("streaming calls are not supported: call the method over gRPC".into());
    }
    if meta.chunk_info.is_some() {
        return refuse("messages in chunks are not supported".into());
    }
    let content_type = meta.content_type.unwrap_or(baidu_std::CONTENT_PROTOBUF);
    if content_type != baidu_std::CONTENT_PROTOBUF {
        return refuse(format!(
            "content_type {content_type} is not supported, only 0, a protobuf message"
        ));
    }
    let attachment_bytes = meta.attachment_size.unwrap_or(0);
    let attachment_bytes = match usize::try_from(attachment_bytes) {
        Ok(attachment_bytes) if attachment_bytes <= bytes => attachment_bytes,
        _ => {
            return refuse(format!(
                "attachment_size={attachment_bytes} is larger than request_size={bytes}"
            ));
        }
    };
    let compression = match FramedCompression::of(meta.compress_type) {
        Ok(compression) => compression,
        Err(UnknownCompression(compress_type)) => {
            return refuse(format!(
                "compress_type {compress_type} is not supported, only 0, not compressed, 1, \
                 snappy, and 2, gzip"
            ));
        }
    };
    let checksum = match (meta.checksum_type.unwrap_or(0), meta.checksum_value) {
        (0, _) => None,
        (baidu_std::CHECKSUM_CRC32C, Some(value)) if value.len() == 4 => value.try_into().ok(),
        (baidu_std::CHECKSUM_CRC32C, _) => {
            return refuse("checksum_value of a CRC32C has 4 bytes".into());
        }
        (other, _) => {
            return refuse(format!(
                "checksum_type {other} is not supported, only 0, none, and 1, CRC32C"
            ));
        }
    };
    let covers_all = meta.checksum_with_attachment.unwrap_or(false);
    let summed_bytes = bytes - if covers_all { 0 } else { attachment_bytes };
    let mut body = RequestBody::new(bytes);
    body.attachment_bytes = attachment_bytes;
    body.compression = compression;
    body.checksum = checksum.map(|value| (value, summed_bytes));
    Ok(body)
}

/// The same for SRPC.
fn check_srpc(meta: &srpc::RpcMeta<'_>, bytes: usize) -> Result<RequestBody, RequestRefusal> {
    // -1 stands for whatever the server takes it for.
    let data_type = meta.data_type.unwrap_or(srpc::DATA_PROTOBUF);
    if data_type > srpc::DATA_PROTOBUF {
        let status = codes::srpc::IDL_DESERIALIZE_NOT_SUPPORTED;
        return Err(RequestRefusal::of_srpc(codes::EREQUEST, status, ""));
    }
    let Ok(compression) = FramedCompression::of(meta.compress_type) else {
        let status = codes::srpc::REQUEST_DECOMPRESS_NOT_SUPPORTED;
        return Err(RequestRefusal::of_srpc(codes::EREQUEST, status, ""));
    };
    let mut body = RequestBody::new(bytes);
    body.compression = compression;
    Ok(body)
}
