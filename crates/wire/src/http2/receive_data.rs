//! Bodies: DATA frames, and the gRPC messages in them. RFC 9113 section 6.1; gRPC over HTTP/2, "Length-Prefixed-Message".

use super::connection::{Connection, DataFrame, MessageAt};
use super::error::{Cause, ConnectionError, ErrorCode};
use super::event::Event;
use super::frame::{self, FrameHeader, flag};
use super::guard::Charge;
use super::pool::Pool;
use super::streams::{Dead, Encoding, Kind, Stream, StreamKey};
use crate::grpc::{Code, MessageError, PREFIX_BYTES, Status, Step};
use crate::limits;

type Handled = Result<Option<Event>, ConnectionError>;

impl Connection {
    /// DATA. `start` is where the payload begins; `consumed` already stands behind the frame and is set back if there
    /// is something to take from it.
    #[inline]
    pub(super) fn on_data(
        &mut self,
        header: FrameHeader,
        input: &[u8],
        start: usize,
        consumed: &mut usize,
        out: &mut Vec<u8>,
    ) -> Handled {
        if header.stream == 0 {
            return Err(ConnectionError::protocol("DATA on stream 0"));
        }
        let length = header.length as usize;
        let (data_start, padding) = if header.has(flag::PADDED) {
            let padding = input[start..start + length].first();
            let padding = usize::from(
                *padding.ok_or(ConnectionError::frame_size("DATA without its pad length"))?,
            );
            if padding >= length {
                return Err(ConnectionError::protocol("DATA with too much padding"));
            }
            (start + 1, padding)
        } else {
            (start, 0)
        };
        self.take_connection_window(header.length, out)?;
        let Some(slot) = self.data_stream(header, out)? else {
            return Ok(None);
        };
        let remaining = start + length - padding - data_start;
        let end = header.has(flag::END_STREAM);
        let stream = &mut self.streams[slot];
        if !stream.receive_window.take(header.length) {
            return Err(ConnectionError::flow_control(
                "DATA beyond the window of its stream",
            ));
        }
        // Padding is out of the way at once.
        stream.receive_window.give((length - remaining) as u32);
        stream.receive_closed = end;
        if let Some(left) = &mut stream.content_left {
            let is_wrong = remaining as u64 > *left || (end && remaining as u64 != *left);
            *left = left.saturating_sub(remaining as u64);
            if is_wrong {
                // RFC 9113 section 8.1.1.
                return self.violation(slot, ErrorCode::ProtocolError, out);
            }
        }
        *consumed = data_start;
        let stream = StreamKey {
            slot,
            id: header.stream,
        };
        let frame = DataFrame {
            stream,
            remaining,
            padding,
            end,
            length: header.length,
            was_useful: end,
        };
        self.take_data(frame, input, consumed, out)
    }

    /// The connection's window is given back on receipt: what waits is bounded by the windows of its stream.
    #[inline]
    fn take_connection_window(
        &mut self,
        length: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), ConnectionError> {
        if !self.receive_window.take(length) {
            return Err(ConnectionError::flow_control(
                "DATA beyond the window of the connection",
            ));
        }
        self.bandwidth.received(length);
        self.receive_window.give(length);
        if let Some(increment) = self.receive_window.announce() {
            frame::write_window_update(out, 0, increment);
        }
        Ok(())
    }

    /// The stream of a DATA frame, if it is one that may get DATA. RFC 9113 section 5.1.
    #[inline]
    fn data_stream(
        &mut self,
        header: FrameHeader,
        out: &mut Vec<u8>,
    ) -> Result<Option<u32>, ConnectionError> {
        let found = self.streams.find(header.stream);
        if let Some(slot) = found {
            let stream = &self.streams[slot];
            if stream.dead == Dead::No {
                if stream.receive_closed {
                    return Err(ConnectionError::stream_closed(
                        "DATA on a stream that the peer has ended",
                    ));
                }
                if self.is_client() && !stream.head_received {
                    return Err(ConnectionError::protocol(
                        "DATA before the head of the response",
                    ));
                }
                return Ok(Some(slot));
            }
        }
        if self.was_reset(header.stream) {
            self.charge(Charge::Glitch)?;
        } else if found.is_none() && self.is_idle(header.stream) {
            return Err(ConnectionError::protocol(
                "DATA on a stream that was never opened",
            ));
        } else {
            frame::write_rst_stream(out, header.stream, ErrorCode::StreamClosed);
            self.charge(Charge::Reset)?;
        }
        Ok(None)
    }

    /// Goes on with the DATA frame that lies in the input at `consumed`.
    pub(super) fn continue_data(
        &mut self,
        input: &[u8],
        consumed: &mut usize,
        out: &mut Vec<u8>,
    ) -> Handled {
        match self.data.take() {
            Some(frame) => self.take_data(frame, input, consumed, out),
            None => Ok(None),
        }
    }

    /// Takes the next message from a DATA frame whose payload lies in the input at `consumed`.
    #[inline]
    fn take_data(
        &mut self,
        mut frame: DataFrame,
        input: &[u8],
        consumed: &mut usize,
        out: &mut Vec<u8>,
    ) -> Handled {
        let slot = frame.stream.slot;
        let end = *consumed + frame.remaining;
        let is_wanted = self
            .streams
            .get(frame.stream)
            .is_some_and(|stream| !stream.is_dead() && !stream.work_done);
        if !is_wanted {
            self.end_frame(frame, end, consumed)?;
            return Ok(None);
        }
        let stream = &mut self.streams[slot];
        if stream.held || !stream.inbound.backlog.is_empty() {
            return self.keep_back(frame, &input[*consumed..end], consumed, out);
        }
        if stream.kind == Kind::Plain {
            return self.on_body(frame, end, consumed, out);
        }
        lend_buffer(stream, &mut self.pool, &input[*consumed..end]);
        let mut at = *consumed;
        let step =
            stream
                .inbound
                .deframer
                .push(&input[..end], &mut at, self.config.max_message_bytes);
        let taken = at - *consumed;
        match step {
            Ok(Step::Message { whole, compressed }) => {
                stream.unreleased += taken as u32;
                frame.remaining -= taken;
                frame.was_useful = true;
                *consumed = at;
                let last = frame.end && frame.remaining == 0;
                if frame.remaining == 0 {
                    self.end_frame(frame, at, consumed)?
                } else {
                    self.data = Some(frame)
                }
                self.message_at = whole.map_or(MessageAt::Gathered(slot), MessageAt::Input);
                self.deliver(frame.stream, compressed, last, input, out)
            }
            Ok(Step::NeedMore) => {
                self.end_frame(frame, end, consumed)?;
                self.keep_unfinished(slot, taken, frame.end, out)
            }
            Err(error) => {
                self.end_frame(frame, end, consumed)?;
                self.on_bad_message(slot, error, out)
            }
        }
    }

    /// The frame that was taken to its end.
    #[inline]
    fn end_frame(
        &mut self,
        frame: DataFrame,
        end: usize,
        consumed: &mut usize,
    ) -> Result<(), ConnectionError> {
        *consumed = end + frame.padding;
        if frame.was_useful {
            self.guard.did_something();
            return Ok(());
        }
        self.charge(Charge::Fragment(frame.length))
    }

    /// A piece of a body that is not gRPC.
    fn on_body(
        &mut self,
        mut frame: DataFrame,
        end: usize,
        consumed: &mut usize,
        out: &mut Vec<u8>,
    ) -> Handled {
        let (start, slot) = (*consumed, frame.stream.slot);
        let is_empty = frame.remaining == 0;
        frame.was_useful |= frame.remaining >= limits::SMALL_DATA_BYTES as usize;
        self.streams[slot].unreleased += frame.remaining as u32;
        self.end_frame(frame, end, consumed)?;
        if is_empty {
            return if frame.end {
                self.end_of_stream(slot, out)
            } else {
                Ok(None)
            };
        }
        self.message_at = MessageAt::Input(start..end);
        let last = self.take_end(frame.stream, frame.end);
        Ok(Some(Event::Body {
            stream: frame.stream,
            last,
        }))
    }

    /// Keeps the payload of a held stream. Its window bounds it, as nothing is given back.
    fn keep_back(
        &mut self,
        frame: DataFrame,
        payload: &[u8],
        consumed: &mut usize,
        out: &mut Vec<u8>,
    ) -> Handled {
        let end = *consumed + payload.len();
        self.end_frame(frame, end, consumed)?;
        let inbound = &mut self.streams[frame.stream.slot].inbound;
        inbound.backlog.extend_from_slice(payload);
        inbound.end_waits = frame.end;
        inbound.counted += payload.len();
        self.gathered_bytes += payload.len();
        self.check_gathered(frame.stream.slot, out)
    }

    /// The payload ended inside a message, or between two.
    fn keep_unfinished(
        &mut self,
        slot: u32,
        taken: usize,
        end: bool,
        out: &mut Vec<u8>,
    ) -> Handled {
        if end {
            return self.end_of_stream(slot, out);
        }
        let inbound = &mut self.streams[slot].inbound;
        if inbound.deframer.is_mid_message() {
            inbound.counted += taken;
            self.gathered_bytes += taken;
        }
        // A message may be larger than the window: what has been gathered of it is given back at once. Its size has
        // been checked, and all unfinished messages together have a bound.
        self.give_window_back(slot, taken as u32, out);
        self.check_gathered(slot, out)
    }

    fn check_gathered(&mut self, slot: u32, out: &mut Vec<u8>) -> Handled {
        if self.gathered_bytes <= self.config.max_gathered_bytes {
            return Ok(None);
        }
        let max = self.config.max_gathered_bytes;
        let message = format!(
            "the unfinished messages on this connection have more than {max} bytes, which is the limit"
        );
        self.end_call(
            slot,
            &Status::new(Code::ResourceExhausted, message),
            Cause::TooMuchUnfinished,
            out,
        )
    }

    /// Reports a message, decompressed if it has to be.
    #[inline]
    fn deliver(
        &mut self,
        stream: StreamKey,
        compressed: bool,
        last: bool,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Handled {
        self.uncount(stream.slot);
        self.was_compressed = compressed;
        if compressed && let Err((status, cause)) = self.inflate(stream.slot, input) {
            return self.end_call(stream.slot, &status, cause, out);
        }
        let last = self.take_end(stream, last);
        Ok(Some(Event::Message { stream, last }))
    }

    /// A client hears of the end by Finished, which follows; a server by the last message.
    #[inline]
    fn take_end(&mut self, stream: StreamKey, last: bool) -> bool {
        if last && self.is_client() {
            self.streams[stream.slot].inbound.end_waits = true;
            if !self.resumed.contains(&stream) {
                self.resumed.push_back(stream);
            }
            return false;
        }
        last
    }

    /// The message is complete: what was gathered of it is no longer unfinished.
    #[inline]
    fn uncount(&mut self, slot: u32) {
        let inbound = &mut self.streams[slot].inbound;
        let still = inbound.backlog.len() - inbound.backlog_at;
        self.gathered_bytes -= inbound.counted - still;
        inbound.counted = still;
    }

    /// Decompresses the message that has just been found. gRPC documentation, "Compression".
    fn inflate(&mut self, slot: u32, input: &[u8]) -> Result<(), (Status, Cause)> {
        if self.streams[slot].encoding != Encoding::Gzip {
            let message = "a message is compressed and no grpc-encoding was named";
            return Err((Status::new(Code::Internal, message), Cause::BadMessage));
        }
        let (mut inflated, mut inflater) = (self.pool.take(), std::mem::take(&mut self.inflater));
        let result = inflater.gunzip(
            self.message(input),
            self.config.max_message_bytes,
            &mut inflated,
        );
        self.inflater = inflater;
        self.pool
            .give(std::mem::replace(&mut self.unpacked, inflated));
        self.message_at = MessageAt::Unpacked;
        result.map_err(|error| {
            let status = error.status();
            let is_limit = status.code() == Code::ResourceExhausted;
            (
                status,
                if is_limit {
                    Cause::MessageTooLarge
                } else {
                    Cause::BadMessage
                },
            )
        })
    }

    fn on_bad_message(&mut self, slot: u32, error: MessageError, out: &mut Vec<u8>) -> Handled {
        let cause = match error {
            MessageError::TooLarge { .. } => Cause::MessageTooLarge,
            MessageError::BadFlag(_) | MessageError::Truncated => Cause::BadMessage,
        };
        self.end_call(slot, &error.status(), cause, out)
    }

    /// The peer has ended its side without a message in the same frame.
    pub(super) fn end_of_stream(&mut self, slot: u32, out: &mut Vec<u8>) -> Handled {
        let stream = &mut self.streams[slot];
        stream.receive_closed = true;
        let key = StreamKey {
            slot,
            id: stream.id,
        };
        if stream.held || !stream.inbound.backlog.is_empty() {
            stream.inbound.end_waits = true;
            return Ok(None);
        }
        if stream.work_done {
            return Ok(None);
        }
        if stream.inbound.deframer.is_mid_message() && stream.late_status.is_none() {
            return self.on_bad_message(slot, MessageError::Truncated, out);
        }
        if self.is_client() {
            return self.on_end_of_response(key, out);
        }
        Ok(Some(Event::HalfClosed { stream: key }))
    }

    /// Takes the next message from the backlog of a stream that was resumed.
    pub(super) fn continue_backlog(&mut self, out: &mut Vec<u8>) -> Handled {
        let Some(&key) = self.resumed.front() else {
            return Ok(None);
        };
        let is_over = self
            .streams
            .get(key)
            .is_none_or(|stream| stream.is_dead() || stream.held || stream.work_done);
        if is_over {
            self.resumed.pop_front();
            return Ok(None);
        }
        let stream = &mut self.streams[key.slot];
        let inbound = &mut stream.inbound;
        let start = inbound.backlog_at;
        if stream.kind == Kind::Plain && start < inbound.backlog.len() {
            let end = inbound.backlog.len();
            inbound.backlog_at = end;
            stream.unreleased += (end - start) as u32;
            unpack(&inbound.backlog[start..end], &mut self.unpacked);
            self.message_at = MessageAt::Unpacked;
            let last = std::mem::take(&mut inbound.end_waits);
            self.uncount(key.slot);
            let last = self.take_end(key, last);
            return Ok(Some(Event::Body { stream: key, last }));
        }
        let mut at = start;
        let step = if stream.kind == Kind::Plain {
            Ok(Step::NeedMore)
        } else {
            inbound
                .deframer
                .push(&inbound.backlog, &mut at, self.config.max_message_bytes)
        };
        inbound.backlog_at = at;
        match step {
            Ok(Step::Message { whole, compressed }) => {
                stream.unreleased += (at - start) as u32;
                let last = inbound.end_waits && at == inbound.backlog.len();
                inbound.end_waits &= !last;
                self.message_at = MessageAt::Gathered(key.slot);
                if let Some(range) = whole {
                    unpack(&inbound.backlog[range], &mut self.unpacked);
                    self.message_at = MessageAt::Unpacked;
                }
                self.deliver(key, compressed, last, &[], out)
            }
            Ok(Step::NeedMore) => self.end_backlog(key, at - start, out),
            Err(error) => self.on_bad_message(key.slot, error, out),
        }
    }

    /// The backlog has been taken to its end.
    fn end_backlog(&mut self, key: StreamKey, taken: usize, out: &mut Vec<u8>) -> Handled {
        self.resumed.pop_front();
        let inbound = &mut self.streams[key.slot].inbound;
        inbound.backlog_at = 0;
        let mut backlog = std::mem::take(&mut inbound.backlog);
        backlog.clear();
        self.pool.give(backlog);
        let inbound = &mut self.streams[key.slot].inbound;
        let end = std::mem::take(&mut inbound.end_waits);
        let unfinished = if inbound.deframer.is_mid_message() {
            taken
        } else {
            0
        };
        self.gathered_bytes -= inbound.counted - unfinished;
        inbound.counted = unfinished;
        if end {
            return self.end_of_stream(key.slot, out);
        }
        self.give_window_back(key.slot, taken as u32, out);
        Ok(None)
    }

    /// The last Message or Body of the stream was consumed: gives its stream window back.
    #[inline]
    pub fn release(&mut self, stream: StreamKey, out: &mut Vec<u8>) {
        if !self.streams.contains(stream) {
            return;
        }
        let found = &mut self.streams[stream.slot];
        let bytes = std::mem::take(&mut found.unreleased);
        let inbound = &mut found.inbound;
        if inbound.deframer.buffer_bytes() > 0 && !inbound.deframer.is_mid_message() {
            self.pool.give(inbound.deframer.take_buffer());
        }
        if self.unpacked.capacity() > limits::POOLED_BUFFER_BYTES {
            self.unpacked = Vec::new();
        }
        self.give_window_back(stream.slot, bytes, out);
    }

    /// Keeps the messages of a stream back and its window shut, or lets them come again. After the latter `poll_event`
    /// is to be called, if only with an empty input.
    pub fn hold(&mut self, stream: StreamKey, hold: bool) {
        let Some(found) = self.streams.get(stream) else {
            return;
        };
        let has_something = !found.inbound.backlog.is_empty() || found.inbound.end_waits;
        if found.held && !hold && has_something && !self.resumed.contains(&stream) {
            self.resumed.push_back(stream);
        }
        self.streams[stream.slot].held = hold;
    }

    /// Gives bytes back to a stream's window, and lets the window grow if the stream receives much.
    #[inline]
    fn give_window_back(&mut self, slot: u32, bytes: u32, out: &mut Vec<u8>) {
        let stream = &mut self.streams[slot];
        if stream.receive_closed || stream.is_dead() {
            return;
        }
        stream.receive_window.give(bytes);
        let Some(increment) = stream.receive_window.announce() else {
            return;
        };
        frame::write_window_update(out, stream.id, increment);
        self.grow_windows(slot, out);
    }

    /// A stream has used half of its window: it receives much. Measures what is in flight, and lets the windows that
    /// are not fixed grow with it.
    fn grow_windows(&mut self, slot: u32, out: &mut Vec<u8>) {
        if self.config.stream_window.is_some() && self.config.connection_window.is_some() {
            return;
        }
        if let Some(opaque) = self.bandwidth.begin() {
            frame::write_ping(out, 0, opaque);
        }
        if self.config.stream_window.is_none() {
            let stream = &mut self.streams[slot];
            stream
                .receive_window
                .grow_to(self.bandwidth.stream_window());
            if let Some(increment) = stream.receive_window.announce() {
                frame::write_window_update(out, stream.id, increment);
            }
        }
        if self.config.connection_window.is_none() {
            self.receive_window
                .grow_to(self.bandwidth.connection_window());
        }
    }
}

/// Gives the stream a buffer with memory if the payload will have to be gathered.
#[inline]
fn lend_buffer(stream: &mut Stream, pool: &mut Pool, payload: &[u8]) {
    let is_whole = payload.len() >= PREFIX_BYTES
        && payload.len() - PREFIX_BYTES >= frame::read_u32(&payload[1..]) as usize;
    if !is_whole && !pool.is_empty() && stream.inbound.deframer.buffer_bytes() == 0 {
        stream.inbound.deframer.give_buffer(pool.take());
    }
}

fn unpack(message: &[u8], unpacked: &mut Vec<u8>) {
    unpacked.clear();
    unpacked.extend_from_slice(message);
}
