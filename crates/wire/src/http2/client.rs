//! What only a client does: opens streams, and hears how calls end.

use super::connection::{Connection, Draining, Phase};
use super::error::{ConnectionError, ErrorCode};
use super::event::Event;
use super::frame::{self, FrameHeader, HEADER_BYTES, flag, kind};
use super::headers::HeadInfo;
use super::outbound::End;
use super::send::is_bare;
use super::streams::{Encoding, Kind, LateStatus, StreamKey};
use crate::grpc::{self, Code, Metadata, Status, TimeoutValue, status};
use crate::hpack::{Encoder, Indexing, KnownName};
use crate::limits;

/// The head of a request.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'a> {
    /// `POST` for gRPC.
    pub method: &'a str,
    /// `http` or `https`.
    pub scheme: &'a str,
    /// For whom the server is to answer, usually `host:port`.
    pub authority: &'a str,
    /// For gRPC `/package.Service/Method`.
    pub path: &'a str,
    /// Whether it is a gRPC call; if not, the answer's body comes in Body events.
    pub is_grpc: bool,
    /// The value of `user-agent`; empty: none.
    pub user_agent: &'a str,
    /// The time that the server has.
    pub timeout_ns: Option<u64>,
    /// Whether messages may be sent compressed; see [`Connection::set_compress`].
    pub gzip: bool,
    /// What goes with the request.
    pub metadata: Option<&'a Metadata>,
}

impl<'a> RequestHead<'a> {
    /// A gRPC call.
    pub fn call(authority: &'a str, path: &'a str) -> RequestHead<'a> {
        RequestHead {
            method: "POST",
            scheme: "http",
            authority,
            path,
            is_grpc: true,
            user_agent: "",
            timeout_ns: None,
            gzip: false,
            metadata: None,
        }
    }

    /// A plain GET.
    pub fn get(authority: &'a str, path: &'a str) -> RequestHead<'a> {
        RequestHead {
            method: "GET",
            is_grpc: false,
            ..RequestHead::call(authority, path)
        }
    }

    /// More than its fields have by the count of SETTINGS_MAX_HEADER_LIST_SIZE.
    fn list_bytes(&self) -> usize {
        let usual = 14 * 48
            + self.scheme.len()
            + self.authority.len()
            + self.path.len()
            + self.user_agent.len();
        let metadata = self.metadata.into_iter().flat_map(Metadata::iter);
        usual
            + metadata
                .map(|(name, value)| name.len() + value.len() * 4 / 3 + 36)
                .sum::<usize>()
    }
}

/// Why a stream cannot be opened. Nothing has been sent, so that another connection may be tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenError {
    /// As many streams are open as the server allows; to be tried again when one has ended.
    TooManyStreams,
    /// The server or we have said GOAWAY, or the connection is closed.
    GoingAway,
    /// All stream identifiers have been used.
    IdsExhausted,
    /// The head has more bytes than fit into one frame, or than the server accepts.
    HeadTooLarge,
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            OpenError::TooManyStreams => "as many streams are open as the server allows",
            OpenError::GoingAway => "the connection is going away",
            OpenError::IdsExhausted => "the connection has used all stream identifiers",
            OpenError::HeadTooLarge => "the metadata are larger than the server accepts",
        })
    }
}

impl std::error::Error for OpenError {}

type Handled = Result<Option<Event>, ConnectionError>;

impl Connection {
    /// Begins a request. The stream ends with `forget` after Finished or Cancelled, or with
    /// `reset`.
    ///
    /// # Errors
    /// If no stream can be opened.
    pub fn open(
        &mut self,
        out: &mut Vec<u8>,
        head: &RequestHead<'_>,
    ) -> Result<StreamKey, OpenError> {
        debug_assert!(self.is_client(), "a server opens no streams");
        self.may_open(head)?;
        let id = self.next_id;
        self.next_id += 2;
        self.write_request(id, head, out);
        let kind = if head.is_grpc {
            Kind::Grpc
        } else {
            Kind::Plain
        };
        let slot = self
            .streams
            .insert(id, kind, self.peer.initial_window, self.our_initial_window);
        let stream = &mut self.streams[slot];
        stream.head_sent = true;
        stream.head_names_gzip = head.gzip;
        stream.peer_takes_gzip = head.gzip;
        stream.is_head_request = head.method == "HEAD";
        Ok(StreamKey { slot, id })
    }

    fn may_open(&self, head: &RequestHead<'_>) -> Result<(), OpenError> {
        if self.phase == Phase::Closed
            || self.peer_goaway.is_some()
            || self.draining != Draining::No
        {
            return Err(OpenError::GoingAway);
        }
        if self.next_id > frame::MAX_31_BIT {
            return Err(OpenError::IdsExhausted);
        }
        if self.streams.len() >= self.peer.max_streams.min(self.config.max_streams) as usize {
            return Err(OpenError::TooManyStreams);
        }
        if head.list_bytes()
            > limits::MAX_SENT_BLOCK_BYTES.min(self.peer.max_header_list_bytes as usize)
        {
            return Err(OpenError::HeadTooLarge);
        }
        Ok(())
    }

    /// Whether the peer's SETTINGS have come: only then is it known how many streams it allows.
    pub fn has_peer_settings(&self) -> bool {
        self.phase == Phase::Open
    }

    /// How many further streams may be opened now, as far as both sides' limits go.
    pub fn streams_left(&self) -> usize {
        let allowed = self.peer.max_streams.min(self.config.max_streams) as usize;
        allowed.saturating_sub(self.streams.len())
    }

    /// The HEADERS of a request.
    fn write_request(&mut self, id: u32, head: &RequestHead<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        frame::write_header(out, 0, kind::HEADERS, flag::END_HEADERS, id);
        let changes = self.encoder.changes();
        match self.request_memo.find(head, changes) {
            // A size update has changed the table, so that nothing is found before it has been
            // sent.
            Some(block) if !self.encoder.has_size_update() => out.extend_from_slice(block),
            _ => {
                let block_start = out.len();
                let is_plain = !self.encoder.has_size_update();
                self.write_usual_fields(head, out);
                if is_plain && self.encoder.changes() == changes {
                    let block = &out[block_start..];
                    self.request_memo.remember(head, changes, block);
                }
            }
        }
        let encoder = &mut self.encoder;
        if let Some(timeout_ns) = head.timeout_ns {
            encoder.field(
                b"grpc-timeout",
                TimeoutValue::new(timeout_ns).as_bytes(),
                Indexing::Without,
                out,
            );
        }
        for (name, value) in head.metadata.into_iter().flat_map(Metadata::iter) {
            write_metadata(encoder, name, value, out);
        }
        let length = (out.len() - start - HEADER_BYTES) as u32;
        debug_assert!(
            length as usize <= limits::MAX_FRAME_BYTES,
            "measured before"
        );
        let header = FrameHeader {
            length,
            kind: kind::HEADERS,
            flags: flag::END_HEADERS,
            stream: id,
        };
        out[start..start + HEADER_BYTES].copy_from_slice(&header.to_bytes());
    }

    /// What most requests of a connection repeat, which enters the table.
    fn write_usual_fields(&mut self, head: &RequestHead<'_>, out: &mut Vec<u8>) {
        let encoder = &mut self.encoder;
        encoder.begin_block(out);
        let mut add = |name: &str, value: &str, indexing| {
            encoder.field(name.as_bytes(), value.as_bytes(), indexing, out);
        };
        add(":method", head.method, Indexing::Without);
        add(":scheme", head.scheme, Indexing::Without);
        add(":path", head.path, Indexing::Incremental);
        add(":authority", head.authority, Indexing::Incremental);
        if head.is_grpc {
            add("te", "trailers", Indexing::Incremental);
            add("content-type", "application/grpc", Indexing::Incremental);
            if head.gzip {
                add(
                    "grpc-encoding",
                    grpc::Encoding::Gzip.name(),
                    Indexing::Incremental,
                );
            }
            add(
                "grpc-accept-encoding",
                grpc::Encoding::ACCEPTED,
                Indexing::Incremental,
            );
        }
        if !head.user_agent.is_empty() {
            add("user-agent", head.user_agent, Indexing::Incremental);
        }
    }

    /// Sends the last message of a request, and ends our side with it.
    pub fn send_last_message(
        &mut self,
        stream: StreamKey,
        out: &mut Vec<u8>,
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = out.len();
        self.send_message(stream, out, encode);
        let Some(found) = self.streams.get(stream) else {
            return;
        };
        // If the message went out just now as the only frame, it can carry the end.
        let is_out = found.outbound.bytes() == 0;
        if let (true, Some(bytes)) = (is_out, out[start..].first_chunk::<HEADER_BYTES>()) {
            let header = FrameHeader::parse(bytes);
            let is_only_frame = header.stream == stream.id
                && header.kind == kind::DATA
                && out.len() - start == HEADER_BYTES + header.length as usize;
            if is_only_frame {
                out[start + 4] = flag::END_STREAM;
                self.streams[stream.slot].send_closed = true;
                return;
            }
        }
        self.close_send(stream, out);
    }

    /// Ends our side of a request.
    pub fn close_send(&mut self, stream: StreamKey, out: &mut Vec<u8>) {
        let Some(found) = self.streams.get(stream) else {
            return;
        };
        if found.send_closed || found.outbound.end != End::Open {
            return;
        }
        if found.outbound.bytes() > 0 {
            self.streams[stream.slot].outbound.end = End::Bare;
        } else {
            frame::write_header(out, 0, kind::DATA, flag::END_STREAM, stream.id);
            self.streams[stream.slot].send_closed = true;
        }
    }

    /// A header block on a stream that we opened. RFC 9113 section 8.1.
    pub(super) fn on_response_block(
        &mut self,
        slot: u32,
        end: bool,
        block: &[u8],
        out: &mut Vec<u8>,
    ) -> Handled {
        let stream = StreamKey {
            slot,
            id: self.streams[slot].id,
        };
        if self.streams[slot].head_received {
            return self.on_trailers(stream, end, block, out);
        }
        if self.read_head(block)?.is_err() {
            return self.violation(slot, ErrorCode::ProtocolError, out);
        }
        let info = *self.head().info;
        if info.status < 200 {
            // An interim response, of which there may be several before the final one.
            return if end {
                self.violation(slot, ErrorCode::ProtocolError, out)
            } else {
                Ok(None)
            };
        }
        self.streams[slot].head_received = true;
        // A head that is all of the answer: if the request has been sent too, there is nothing left
        // to reset.
        self.streams[slot].receive_closed |= end;
        if self.streams[slot].kind == Kind::Grpc {
            if let Some(status) = self.not_grpc(&info) {
                return self.finish_call(stream, status, out);
            }
            if end {
                let status = self.read_status();
                return self.finish_call(stream, status, out);
            }
        } else if end {
            return self.finish_call(stream, Status::OK, out);
        }
        let found = &mut self.streams[slot];
        found.encoding = info.encoding;
        found.content_left = if found.is_head_request {
            None
        } else {
            info.content_length
        };
        Ok(Some(Event::Response { stream, end }))
    }

    /// What a response means that cannot be read as gRPC.
    fn not_grpc(&self, info: &HeadInfo) -> Option<Status> {
        if info.status != 200 {
            return Some(Status::new(
                Code::from_http(info.status),
                format!("the answer is HTTP status {}", info.status),
            ));
        }
        if info.kind != Kind::Grpc {
            return Some(Status::new(
                Code::Unknown,
                "the answer is not gRPC: its content-type is another",
            ));
        }
        if info.encoding == Encoding::Unknown {
            return Some(Status::new(
                Code::Internal,
                "the answer has a grpc-encoding that was not offered",
            ));
        }
        None
    }

    fn on_trailers(
        &mut self,
        stream: StreamKey,
        end: bool,
        block: &[u8],
        out: &mut Vec<u8>,
    ) -> Handled {
        let changes = self.decoder.changes();
        let is_known = self.config.short_ways && end && self.ok_trailers.are(block, changes);
        let late_status = if is_known {
            LateStatus::Ok
        } else {
            if self.read_trailers(block)?.is_err() || !end {
                return self.violation(stream.slot, ErrorCode::ProtocolError, out);
            }
            let status = self.read_status();
            if is_bare(&status) {
                if self.decoder.changes() == changes {
                    self.ok_trailers.learn(block, changes);
                }
                LateStatus::Ok
            } else {
                LateStatus::Other(Box::new(status))
            }
        };
        let found = &mut self.streams[stream.slot];
        found.receive_closed = true;
        if found.kind == Kind::Grpc {
            found.late_status = late_status;
        }
        self.end_of_stream(stream.slot, out)
    }

    /// The response is complete; if there were trailers, they are kept with the stream.
    pub(super) fn on_end_of_response(&mut self, stream: StreamKey, out: &mut Vec<u8>) -> Handled {
        let found = &mut self.streams[stream.slot];
        let status = match (std::mem::take(&mut found.late_status), found.kind) {
            (LateStatus::Other(status), _) => *status,
            (LateStatus::Ok, _) | (LateStatus::NotCome, Kind::Plain) => Status::OK,
            (LateStatus::NotCome, Kind::Grpc) => {
                Status::new(Code::Internal, "the answer ended without a status")
            }
        };
        self.finish_call(stream, status, out)
    }

    /// The call is over. A server that ended it before we had sent all is told that nothing
    /// follows.
    pub(super) fn finish_call(
        &mut self,
        stream: StreamKey,
        status: Status,
        out: &mut Vec<u8>,
    ) -> Handled {
        self.status = status;
        self.reset_stream(stream.slot, ErrorCode::Cancel, out);
        Ok(Some(Event::Finished { stream }))
    }

    /// Reads the status from the last fields. gRPC over HTTP/2, "Trailers".
    fn read_status(&self) -> Status {
        let (mut code, mut message, mut metadata) = (None, String::new(), Metadata::new());
        for field in self.head().fields.fields() {
            match field.known {
                KnownName::GrpcStatus => code = Some(Code::parse(field.value)),
                KnownName::GrpcMessage => message = status::decode_message(field.value),
                KnownName::Other | KnownName::GrpcStatusDetailsBin => {
                    // What is no metadata cannot be handed on, and is no reason to lose the status.
                    let _ = metadata.push_received(field.name, field.value);
                }
                _ => {}
            }
        }
        let status = match code {
            Some(Code::Ok) if message.is_empty() => Status::OK,
            Some(code) => Status::new(code, message),
            None => Status::new(Code::Unknown, "the answer has no grpc-status"),
        };
        status.with_metadata(metadata)
    }
}

fn write_metadata(encoder: &mut Encoder, name: &str, value: &[u8], out: &mut Vec<u8>) {
    // Short secrets must not be guessed by what a table does to the length of a block (RFC 7541
    // section 7.1.3).
    let indexing = if name == "authorization" {
        Indexing::Never
    } else {
        Indexing::Without
    };
    if grpc::metadata::is_binary_key(name.as_bytes()) {
        let mut text = Vec::with_capacity(value.len() * 4 / 3 + 4);
        grpc::metadata::encode_binary(value, &mut text);
        encoder.field(name.as_bytes(), &text, indexing, out);
    } else {
        encoder.field(name.as_bytes(), value, indexing, out);
    }
}
