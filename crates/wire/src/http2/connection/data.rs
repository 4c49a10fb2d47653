//! Bodies: DATA frames, and the gRPC messages in them. RFC 9113 section 6.1; gRPC over HTTP/2,
//! "Length-Prefixed-Message".

use std::ops::Range;

use super::{Connection, Handled};
use crate::grpc::{Code, DeframeStep, MessageError, Status};
use crate::http2::error::{CancelCause, ConnectionError, ErrorCode};
use crate::http2::event::Event;
use crate::http2::frame::{self, FrameHeader, flag};
use crate::http2::guard::GlitchCharge;
use crate::http2::stream::Stream;
use crate::http2::stream_key::StreamKey;

/// Says when to try again: gRPC proposal A6, "Pushback".
pub const PUSHBACK_TRAILER: &[u8] = b"grpc-retry-pushback-ms";

/// A DATA frame that lies in the input and has not been taken to its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct DataFrame {
    stream: StreamKey,
    /// Payload without padding that is still to be taken.
    remaining: usize,
    /// Padding behind it.
    padding: usize,
    end: bool,
    /// The frame's length, for the budget of small frames.
    length: u32,
    /// It brought a message to its end.
    was_useful: bool,
}

impl Connection {
    /// DATA. `start` is where the payload begins; `consumed` already stands behind the frame and is
    /// set back if there is something to take from it.
    #[inline]
    pub(super) fn on_data(
        &mut self,
        header: FrameHeader,
        input: &[u8],
        start: usize,
        consumed: &mut usize,
        out: &mut Vec<u8>,
    ) -> Handled {
        let length = header.length as usize;
        let (data_start, padding) = match padding_of(header, &input[start..start + length])? {
            Some(padding) => (start + 1, padding),
            None => (start, 0),
        };
        self.windows.receive(header.length, out)?;
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
        if end {
            stream.close_receive();
        }
        if !stream.takes_content(remaining as u64, end) {
            // RFC 9113 section 8.1.1.
            const WHY: &str = "a body is longer or shorter than its content-length";
            return self.violation(slot, ErrorCode::ProtocolError, WHY, out);
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
            if !stream.is_dead() {
                if stream.is_receive_closed() {
                    return Err(ConnectionError::stream_closed(
                        "DATA on a stream that the peer has ended",
                    ));
                }
                if self.life.is_client() && !stream.is_head_received() {
                    return Err(ConnectionError::protocol(
                        "DATA before the head of the response",
                    ));
                }
                return Ok(Some(slot));
            }
        }
        if self.was_reset(header.stream) {
            self.take_late_data(header)?;
        } else if found.is_none() && self.life.is_idle(header.stream) {
            return Err(ConnectionError::protocol(
                "DATA on a stream that was never opened",
            ));
        } else {
            frame::write_rst_stream(out, header.stream, ErrorCode::StreamClosed);
            self.charge(GlitchCharge::Reset)?;
        }
        Ok(None)
    }

    /// DATA of a stream that we ended first, as with every call that is refused: it was on its way.
    /// The end of the stream comes once and costs nothing, and neither do as many small messages as
    /// may have been under way, so that who keeps calling an overloaded server does not lose the
    /// connection.
    fn take_late_data(&mut self, header: FrameHeader) -> Result<(), ConnectionError> {
        if self.life.is_client() {
            // Who gives up many calls gets as many late answers. It chose its server, and could not
            // know.
            return Ok(());
        }
        if header.has(flag::END_STREAM) && self.late.end(header.stream) {
            return Ok(());
        }
        if self.late.count_frame(header.stream) {
            return Ok(());
        }
        self.charge(GlitchCharge::Fragment(header.length))
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
            .is_some_and(Stream::is_wanted);
        if !is_wanted {
            self.end_frame(frame, end, consumed)?;
            return Ok(None);
        }
        let stream = &mut self.streams[slot];
        if stream.is_held() || stream.inbound.has_backlog() {
            return self.keep_back(frame, &input[*consumed..end], consumed, out);
        }
        if self.defers_first_message(slot) {
            self.capacity.defer(frame.stream, &mut self.streams);
            return self.keep_back(frame, &input[*consumed..end], consumed, out);
        }
        let stream = &mut self.streams[slot];
        if !stream.is_grpc() {
            return self.on_body(frame, end, consumed, out);
        }
        let payload = &input[*consumed..end];
        stream.inbound.borrow_buffer(payload, &mut self.pool);
        let mut at = *consumed;
        let max_bytes = self.config.max_message_bytes;
        let step = (stream.inbound).find_message(&input[..end], &mut at, max_bytes);
        let taken = at - *consumed;
        match step {
            Ok(DeframeStep::Message { whole, compressed }) => {
                stream.add_unreleased(taken);
                frame.was_useful = true;
                frame.remaining -= taken;
                let is_taken = frame.remaining == 0;
                if is_taken {
                    self.end_frame(frame, at, consumed)?
                } else {
                    self.keep_frame(frame, at, consumed)
                }
                self.message.set(whole, slot);
                self.deliver(frame.stream, compressed, is_taken && frame.end, input, out)
            }
            Ok(DeframeStep::Part { range, left }) => {
                frame.remaining -= taken;
                self.on_part(frame, range, left, consumed, out)
            }
            Ok(DeframeStep::NeedMore) => {
                self.end_frame(frame, end, consumed)?;
                self.keep_unfinished(slot, taken, frame.end, out)
            }
            Err(error) => {
                self.end_frame(frame, end, consumed)?;
                self.on_bad_message(slot, error, out)
            }
        }
    }

    /// More may be in the frame: the next `poll_event` goes on with it.
    #[inline]
    fn keep_frame(&mut self, frame: DataFrame, at: usize, consumed: &mut usize) {
        *consumed = at;
        self.data = Some(frame);
    }

    /// The frame was taken to its end.
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
        self.charge(GlitchCharge::Fragment(frame.length))
    }

    /// Keeps the payload of a held stream. Its window bounds it, as nothing is given back.
    fn keep_back(
        &mut self,
        mut frame: DataFrame,
        payload: &[u8],
        consumed: &mut usize,
        out: &mut Vec<u8>,
    ) -> Handled {
        let end = *consumed + payload.len();
        // Whether it ends a message is not looked at yet. It costs the peer its window, which is no
        // flood.
        frame.was_useful |= !payload.is_empty();
        self.end_frame(frame, end, consumed)?;
        let stream = &mut self.streams[frame.stream.slot];
        let limit = stream.window_limit();
        (stream.inbound).keep_back(payload, frame.end, limit, &mut self.pool);
        stream.turn.count(payload.len() as u32);
        self.gather(payload.len());
        self.check_gathered(frame.stream.slot, out)
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
        // Content, however little: as useful as a small message.
        frame.was_useful |= !is_empty;
        self.streams[slot].add_unreleased(frame.remaining);
        self.end_frame(frame, end, consumed)?;
        if is_empty {
            return if frame.end {
                self.end_of_stream(slot, out)
            } else {
                Ok(None)
            };
        }
        self.message.set_input(start..end);
        self.streams[slot].claims.set_delivered();
        let last = self.take_end(frame.stream, frame.end);
        Ok(Some(Event::Body {
            stream: frame.stream,
            last,
        }))
    }

    /// A part of a message, of a stream that takes parts. `frame` has what follows it.
    fn on_part(
        &mut self,
        mut frame: DataFrame,
        range: Range<usize>,
        left: usize,
        consumed: &mut usize,
        out: &mut Vec<u8>,
    ) -> Handled {
        let slot = frame.stream.slot;
        // Content, as in a body that is not gRPC.
        frame.was_useful = true;
        self.streams[slot].add_unreleased(range.end - *consumed);
        let is_taken = frame.remaining == 0;
        if is_taken {
            self.end_frame(frame, range.end, consumed)?;
        } else {
            self.keep_frame(frame, range.end, consumed);
        }
        if is_taken && frame.end && left > 0 {
            return self.end_of_stream(slot, out);
        }
        self.message.set_input(range);
        let last = is_taken && frame.end;
        Ok(Some(self.part(frame.stream, left, last)))
    }

    /// Reports a part of a message.
    pub(super) fn part(&mut self, stream: StreamKey, left: usize, last: bool) -> Event {
        self.uncount(stream.slot);
        self.streams[stream.slot].claims.set_delivered();
        self.message.set_compressed(false);
        let last = self.take_end(stream, last);
        let left = u32::try_from(left).expect("a message has a length of four bytes");
        Event::Part { stream, left, last }
    }

    /// The payload ended inside a message, or between two.
    pub(super) fn keep_unfinished(
        &mut self,
        slot: u32,
        taken: usize,
        end: bool,
        out: &mut Vec<u8>,
    ) -> Handled {
        if end {
            return self.end_of_stream(slot, out);
        }
        let more = self.streams[slot].inbound.count_unfinished(taken);
        if more > 0 {
            self.gather(more);
        }
        self.go_on_with_message(slot, taken as u32, out);
        self.check_gathered(slot, out)
    }

    pub(super) fn check_gathered(&mut self, slot: u32, out: &mut Vec<u8>) -> Handled {
        // A message whose turn it is was counted before: it may end.
        let bytes = self.unfinished.bytes() + self.unpacks.packed_bytes();
        let max = self.config.max_gathered_bytes;
        let bound = max.min(self.unfinished.bound_bytes());
        if bytes <= bound || self.streams[slot].turn.is_expected() {
            return Ok(None);
        }
        if bytes <= max {
            // Its peer sends no more than the window that it was given.
            if self.streams[slot].is_bulk() {
                return Ok(None);
            }
            return self.end_without_memory(slot, out);
        }
        let message = format!(
            "the unfinished messages on this connection have more than {max} bytes, which is the \
             limit; send fewer at once"
        );
        self.end_call(
            slot,
            &Status::new(Code::ResourceExhausted, message),
            CancelCause::TooMuchUnfinished,
            out,
        )
    }

    /// The layer above has no memory for what a call sends: it may be tried again, as nothing was
    /// done for it.
    #[cold]
    fn end_without_memory(&mut self, slot: u32, out: &mut Vec<u8>) -> Handled {
        const WHY: &str = "the memory for requests and unsent answers is used up";
        let stream = self.streams.key(slot);
        if self.config.pushback_ms > 0 {
            let pushback_ms = self.config.pushback_ms.to_string();
            self.add_trailer(stream, PUSHBACK_TRAILER, pushback_ms.as_bytes());
        }
        self.end_call(
            slot,
            &Status::new(Code::Unavailable, WHY),
            CancelCause::NoMemory,
            out,
        )
    }

    /// Reports a message, decompressed if it has to be.
    #[inline]
    pub(super) fn deliver(
        &mut self,
        stream: StreamKey,
        compressed: bool,
        last: bool,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Handled {
        self.uncount(stream.slot);
        self.end_turn(stream.slot);
        self.streams[stream.slot].claims.set_delivered();
        self.message.set_compressed(compressed);
        if compressed {
            return self.deliver_compressed(stream, last, input, out);
        }
        let last = self.take_end(stream, last);
        Ok(Some(Event::Message { stream, last }))
    }

    /// A client hears of the end by Finished, which follows; a server by the last message.
    #[inline]
    pub(super) fn take_end(&mut self, stream: StreamKey, last: bool) -> bool {
        if last && self.life.is_client() {
            self.streams[stream.slot].inbound.note_end();
            self.resume(stream);
            return false;
        }
        last
    }

    /// The message is complete: what was gathered of it is no longer unfinished.
    #[inline]
    pub(super) fn uncount(&mut self, slot: u32) {
        let done = self.streams[slot].inbound.count_finished();
        if done > 0 {
            self.ungather(done);
        }
    }

    /// Counts bytes of an unfinished message, or of a backlog.
    pub(super) fn gather(&mut self, bytes: usize) {
        self.unfinished.add(bytes, &mut self.timers, self.now_ns);
    }

    /// Takes them out of the count.
    pub(super) fn ungather(&mut self, bytes: usize) {
        self.unfinished.remove(bytes, &mut self.timers, self.now_ns);
    }

    pub(super) fn on_bad_message(
        &mut self,
        slot: u32,
        error: MessageError,
        out: &mut Vec<u8>,
    ) -> Handled {
        let (status, cause) = match error {
            MessageError::TooLarge { .. } => (
                self.with_hint(&error.status()),
                CancelCause::MessageTooLarge,
            ),
            MessageError::BadFlag(_) | MessageError::Truncated => {
                (error.status(), CancelCause::BadMessage)
            }
        };
        self.end_call(slot, &status, cause, out)
    }

    /// Adds what is to be done about a message that is too large.
    #[cold]
    pub(super) fn with_hint(&self, status: &Status) -> Status {
        let (message, hint) = (status.message(), self.config.too_large_hint);
        let separator = if hint.is_empty() { "" } else { "; " };
        Status::new(status.code(), format!("{message}{separator}{hint}"))
    }

    /// The peer has ended its side without a message in the same frame.
    pub(super) fn end_of_stream(&mut self, slot: u32, out: &mut Vec<u8>) -> Handled {
        let key = self.streams.key(slot);
        let stream = &mut self.streams[slot];
        stream.close_receive();
        if stream.is_held() || stream.inbound.has_backlog() {
            stream.inbound.note_end();
            return Ok(None);
        }
        if stream.is_work_done() {
            return Ok(None);
        }
        // A server may break off with an error; a response that is cut off is no success.
        if stream.inbound.is_mid_message() && !stream.has_late_error() {
            return self.on_bad_message(slot, MessageError::Truncated, out);
        }
        if self.life.is_client() {
            return self.on_end_of_response(key, out);
        }
        Ok(Some(Event::HalfClosed { stream: key }))
    }
}

/// The padding of a DATA frame that has any. RFC 9113 section 6.1.
#[inline]
fn padding_of(header: FrameHeader, payload: &[u8]) -> Result<Option<usize>, ConnectionError> {
    if !header.has(flag::PADDED) {
        return Ok(None);
    }
    match payload.first() {
        None => Err(ConnectionError::frame_size("DATA without its pad length")),
        Some(&padding) if usize::from(padding) >= payload.len() => {
            Err(ConnectionError::protocol("DATA with too much padding"))
        }
        Some(&padding) => Ok(Some(usize::from(padding))),
    }
}
