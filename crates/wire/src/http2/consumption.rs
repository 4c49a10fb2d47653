//! What the layer above has consumed, and what it does not want yet: windows are given back, or
//! stay shut.

use super::connection::{Connection, DataFrame, MessageAt, Phase, TakenMessage};
use super::error::ConnectionError;
use super::event::Event;
use super::frame;
use super::pool::Pool;
use super::streams::{Kind, StreamKey};
use crate::grpc::Step;
use crate::limits;

type Handled = Result<Option<Event>, ConnectionError>;

impl Connection {
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
        if self.unpacked.capacity() > limits::POOLED_BYTES {
            self.pool.give(std::mem::take(&mut self.unpacked));
        }
        self.give_window_back(stream.slot, bytes, out);
    }

    /// The layer above cannot do yet what the last Message of the stream asks for: the message, as
    /// [`Connection::take_message`] gave it, comes once more, as soon as large messages may be
    /// produced ([`Connection::has_large_capacity`]). What follows it on the stream waits behind
    /// it. `last` is that of its event. Instead of [`Connection::give_back`] and
    /// [`Connection::release`].
    #[cold]
    pub fn put_back(
        &mut self,
        stream: StreamKey,
        message: TakenMessage,
        input: &[u8],
        last: bool,
        out: &mut Vec<u8>,
    ) {
        let is_wanted = (self.streams.get(stream))
            .is_some_and(|found| !found.is_dead() && !found.work_done && !self.is_client());
        if !is_wanted {
            return self.give_back(message);
        }
        let inbound = &mut self.streams[stream.slot].inbound;
        let added = inbound.put_back(message.bytes(input));
        inbound.end_waits |= last;
        self.give_back(message);
        self.gather(added);
        // Not again at once, if it came out of the backlog.
        self.resumed.retain(|key| *key != stream);
        self.await_large_capacity(stream);
        if let Err(error) = self.check_gathered(stream.slot, out) {
            self.fail(error, out);
        }
    }

    /// From now on messages of the stream come in parts ([`Event::Part`]), unless they lie whole in
    /// what has arrived or are compressed: for streams that bring large ones which need not be seen
    /// at once.
    pub fn take_parts(&mut self, stream: StreamKey) {
        if self.streams.contains(stream) {
            self.streams[stream.slot].inbound.takes_parts = true;
        }
    }

    /// The layer above needs a message as a whole of which the last event brought the first part,
    /// `part`, as [`Connection::take_message`] gave it: it is gathered, and comes as a
    /// [`Event::Message`]. Instead of [`Connection::give_back`] and [`Connection::release`].
    pub fn gather_message(
        &mut self,
        stream: StreamKey,
        part: TakenMessage,
        input: &[u8],
        out: &mut Vec<u8>,
    ) {
        let is_wanted =
            (self.streams.get(stream)).is_some_and(|found| !found.is_dead() && !found.work_done);
        if !is_wanted {
            return self.give_back(part);
        }
        let found = &mut self.streams[stream.slot];
        found.inbound.deframer.gather_whole(part.bytes(input));
        let taken = std::mem::take(&mut found.unreleased) as usize;
        self.give_back(part);
        if let Err(error) = self.keep_unfinished(stream.slot, taken, false, out) {
            self.fail(error, out);
        }
    }

    /// Keeps the messages of a stream back and its window shut, or lets them come again. After the
    /// latter `poll_event` is to be called, if only with an empty input.
    pub fn hold(&mut self, stream: StreamKey, hold: bool) {
        let Some(found) = self.streams.get(stream) else {
            return;
        };
        let has_something = !found.inbound.backlog.is_empty() || found.inbound.end_waits;
        if found.held
            && !hold
            && has_something
            && !found.is_put_back
            && !self.resumed.contains(&stream)
        {
            self.resumed.push_back(stream);
        }
        self.streams[stream.slot].held = hold;
    }

    /// Bounds what the receive window of a stream may grow to: for streams that bring much, and are
    /// held while what they brought is written elsewhere, since a held stream keeps a whole window.
    /// Some of it is open at once. A window that is larger by now shrinks to it with what comes.
    /// Windows that are fixed stay as they are.
    pub fn limit_window(&mut self, stream: StreamKey, bytes: u32, out: &mut Vec<u8>) {
        let Some(found) = self.streams.get(stream) else {
            return;
        };
        let is_over = found.receive_closed || found.is_dead();
        let stream = &mut self.streams[stream.slot];
        if !stream.is_bulk() {
            self.bulk_streams += 1;
        }
        stream.window_limit = bytes.min(u32::MAX - 1);
        if !self.windows_shut {
            // One for messages, and one for what comes while the stream is held.
            self.pool.bound(2 * bytes as usize);
        }
        if self.config.stream_window.is_none() {
            let window = &mut stream.receive_window;
            window.shrink_to(bytes.max(limits::STREAM_WINDOW_BYTES));
            window.grow_to(bytes.min(limits::BULK_WINDOW_BYTES));
            if !is_over
                && !self.windows_shut
                && let Some(increment) = window.announce()
            {
                frame::write_window_update(out, stream.id, increment);
            }
        }
    }

    /// Keeps the windows of all streams shut, whatever is consumed: more is buffered, on all
    /// connections together, than may be. Or gives back what was consumed meanwhile. Messages whose
    /// turn it is go on, as their bytes are accounted for; therefore the connection's window stays
    /// open, and each stream is bounded by its own.
    pub fn set_windows_shut(&mut self, shut: bool, out: &mut Vec<u8>) {
        if self.windows_shut == shut || self.phase == Phase::Closed {
            return;
        }
        self.windows_shut = shut;
        if shut {
            self.pool.bound_as_usual();
            return;
        }
        for (_, stream) in self.streams.iter_mut() {
            if !stream.receive_closed
                && !stream.is_dead()
                && !stream.turn.is_waiting()
                && let Some(increment) = stream.receive_window.announce()
            {
                frame::write_window_update(out, stream.id, increment);
            }
        }
    }

    /// Whether [`Connection::set_windows_shut`] has shut them.
    pub fn windows_are_shut(&self) -> bool {
        self.windows_shut
    }

    /// Gives bytes back to a stream's window, and lets the window grow if the stream receives much.
    #[inline]
    pub(super) fn give_window_back(&mut self, slot: u32, bytes: u32, out: &mut Vec<u8>) {
        let stream = &mut self.streams[slot];
        if stream.receive_closed || stream.is_dead() {
            return;
        }
        stream.receive_window.give(bytes);
        if self.windows_shut {
            return;
        }
        let Some(increment) = stream.receive_window.announce() else {
            return;
        };
        frame::write_window_update(out, stream.id, increment);
        self.grow_windows(slot, out);
    }

    /// Begins to measure what is in flight, and lets the connection's window grow with it, unless
    /// windows are fixed.
    pub(super) fn measure_bandwidth(&mut self, out: &mut Vec<u8>) {
        if self.config.stream_window.is_some() && self.config.connection_window.is_some() {
            return;
        }
        if let Some(opaque) = self.bandwidth.begin() {
            frame::write_ping(out, 0, opaque);
        }
        if self.config.connection_window.is_none() {
            self.receive_window
                .grow_to(self.bandwidth.connection_window());
        }
    }

    /// A stream has used half of its window: it receives much. Measures what is in flight, and lets
    /// the windows that are not fixed grow with it.
    fn grow_windows(&mut self, slot: u32, out: &mut Vec<u8>) {
        self.measure_bandwidth(out);
        if self.config.stream_window.is_none() {
            let limit = self.streams[slot].window_limit;
            let stream = &mut self.streams[slot];
            stream
                .receive_window
                .grow_to(self.bandwidth.stream_window().min(limit));
            if let Some(increment) = stream.receive_window.announce() {
                frame::write_window_update(out, stream.id, increment);
            }
        }
    }

    /// Keeps the payload of a held stream. Its window bounds it, as nothing is given back.
    pub(super) fn keep_back(
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
        let inbound = &mut stream.inbound;
        inbound.drop_taken();
        make_room(
            &mut inbound.backlog,
            payload.len(),
            stream.window_limit,
            &mut self.pool,
        );
        inbound.backlog.extend_from_slice(payload);
        inbound.end_waits = frame.end;
        inbound.counted += payload.len();
        stream.turn.brought(payload.len() as u32);
        self.gather(payload.len());
        self.check_gathered(frame.stream.slot, out)
    }

    /// Takes the next message from the backlog of a stream that was resumed.
    pub(super) fn continue_backlog(&mut self, out: &mut Vec<u8>) -> Handled {
        let Some(&key) = self.resumed.front() else {
            return Ok(None);
        };
        let is_over = self
            .streams
            .get(key)
            .is_none_or(|stream| stream.is_dead() || stream.is_held() || stream.work_done);
        if is_over {
            self.resumed.pop_front();
            return Ok(None);
        }
        let stream = &mut self.streams[key.slot];
        let inbound = &mut stream.inbound;
        let start = inbound.backlog_at;
        if stream.kind == Kind::Plain {
            return self.body_of_backlog(key, out);
        }
        let mut at = start;
        let step = inbound.find_in_backlog(&mut at, self.config.max_message_bytes);
        inbound.backlog_at = at;
        match step {
            Ok(Step::Message { whole, compressed }) => {
                let again_bytes = std::mem::take(&mut inbound.again_bytes);
                stream.unreleased += (at - start).saturating_sub(again_bytes) as u32;
                let last = inbound.end_waits && at == inbound.backlog.len();
                inbound.end_waits &= !last;
                self.message_at = MessageAt::Gathered(key.slot);
                if let Some(range) = whole {
                    unpack(&inbound.backlog[range], &mut self.unpacked, &mut self.pool);
                    self.message_at = MessageAt::Unpacked;
                }
                self.deliver(key, compressed, last, &[], out)
            }
            Ok(Step::Part { range, left }) => {
                stream.unreleased += (at - start) as u32;
                let last = left == 0 && inbound.end_waits && at == inbound.backlog.len();
                inbound.end_waits &= !last;
                self.unpacked.clear();
                self.unpacked.extend_from_slice(&inbound.backlog[range]);
                self.message_at = MessageAt::Unpacked;
                Ok(Some(self.part(key, left, last)))
            }
            Ok(Step::NeedMore) => self.end_backlog(key, at - start, out),
            Err(error) => self.on_bad_message(key.slot, error, out),
        }
    }

    /// The same for a body that is not gRPC, in pieces: a whole window would be a long step for
    /// those above.
    fn body_of_backlog(&mut self, key: StreamKey, out: &mut Vec<u8>) -> Handled {
        let stream = &mut self.streams[key.slot];
        let inbound = &mut stream.inbound;
        let (start, behind) = (inbound.backlog_at, inbound.backlog.len());
        if start == behind {
            return self.end_backlog(key, 0, out);
        }
        let end = behind.min(start + limits::BACKLOG_PIECE_BYTES);
        inbound.backlog_at = end;
        stream.unreleased += (end - start) as u32;
        // A piece is small: the buffers of the pool are for what is not.
        self.unpacked.clear();
        self.unpacked
            .extend_from_slice(&inbound.backlog[start..end]);
        self.message_at = MessageAt::Unpacked;
        let last = end == behind && std::mem::take(&mut inbound.end_waits);
        self.uncount(key.slot);
        let last = self.take_end(key, last);
        Ok(Some(Event::Body { stream: key, last }))
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
        let unfinished = inbound.deframer.gathered_len().min(inbound.counted);
        let done = inbound.counted - unfinished;
        inbound.counted = unfinished;
        self.ungather(done);
        if end {
            return self.end_of_stream(key.slot, out);
        }
        self.go_on_with_message(key.slot, taken as u32, out);
        Ok(None)
    }
}

/// Sees to it that a backlog has room for so much more. It may grow to a window: where that is
/// limited, since the stream brings much, it gets as much at once. Else it would be copied again
/// and again while it grows, each time to fresh pages.
fn make_room(backlog: &mut Vec<u8>, bytes: usize, window_limit: u32, pool: &mut Pool) {
    if backlog.capacity() == 0 {
        *backlog = pool.take();
    }
    let needed = backlog.len() + bytes;
    if needed > backlog.capacity() && window_limit < u32::MAX {
        let wanted = needed.max(window_limit as usize);
        backlog.reserve_exact(wanted - backlog.len());
    }
}

fn unpack(message: &[u8], unpacked: &mut Vec<u8>, pool: &mut Pool) {
    if unpacked.capacity() == 0 {
        *unpacked = pool.take();
    }
    unpacked.clear();
    unpacked.extend_from_slice(message);
}
