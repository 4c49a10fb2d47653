//! What the layer above has consumed, and what it does not want yet: windows are given back, or
//! stay shut.

use super::{Connection, Handled};
use crate::grpc::DeframeStep;
use crate::http2::event::Event;
use crate::http2::inbound::{BacklogEnd, BacklogStep};
use crate::http2::last_message::TakenMessage;
use crate::http2::stream::Stream;
use crate::http2::stream_key::StreamKey;

impl Connection {
    /// The last Message or Body of the stream was consumed: gives its stream window back.
    #[inline]
    pub fn release(&mut self, stream: StreamKey, out: &mut Vec<u8>) {
        if !self.streams.contains(stream) {
            return;
        }
        let found = &mut self.streams[stream.slot];
        let bytes = found.take_unreleased();
        found.inbound.return_buffer(&mut self.pool);
        self.message.release(&mut self.pool);
        self.windows.give_back(found, bytes, out);
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
            .is_some_and(|found| found.is_wanted() && !self.life.is_client());
        if !is_wanted {
            return self.give_back(message);
        }
        let inbound = &mut self.streams[stream.slot].inbound;
        let added = inbound.put_back(message.bytes(input), last);
        self.give_back(message);
        self.gather(added);
        // Not again at once, if it came out of the backlog.
        self.resumed.retain(|key| *key != stream);
        self.capacity.put_back(stream, &mut self.streams);
        if let Err(error) = self.check_gathered(stream.slot, out) {
            self.fail(error, out);
        }
    }

    /// From now on messages of the stream come in parts ([`Event::Part`]), unless they lie whole in
    /// what has arrived or are compressed: for streams that bring large ones which need not be seen
    /// at once.
    pub fn take_parts(&mut self, stream: StreamKey) {
        if self.streams.contains(stream) {
            self.streams[stream.slot].inbound.take_parts();
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
        let is_wanted = self.streams.get(stream).is_some_and(Stream::is_wanted);
        if !is_wanted {
            return self.give_back(part);
        }
        let found = &mut self.streams[stream.slot];
        found.inbound.gather_whole(part.bytes(input));
        let taken = found.take_unreleased() as usize;
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
        let is_put_back = found.claims.is_put_back();
        if found.is_held_above() && !hold && found.inbound.is_waiting() && !is_put_back {
            self.resume(stream);
        }
        self.streams[stream.slot].set_held_above(hold);
    }

    /// Bounds what the receive window of a stream may grow to: for streams that bring much, and are
    /// held while what they brought is written elsewhere, since a held stream keeps a whole window.
    /// Some of it is open at once. A window that is larger by now shrinks to it with what comes.
    /// Windows that are fixed stay as they are.
    pub fn limit_window(&mut self, stream: StreamKey, bytes: u32, out: &mut Vec<u8>) {
        if !self.streams.contains(stream) {
            return;
        }
        self.streams.limit_window(stream.slot, bytes);
        if !self.windows.are_shut() {
            // One for messages, and one for what comes while the stream is held.
            self.pool.bound(2 * bytes as usize);
        }
        (self.windows).limit(&mut self.streams[stream.slot], bytes, out);
    }

    /// Keeps the windows of all streams shut, whatever is consumed: more is buffered, on all
    /// connections together, than may be. Or gives back what was consumed meanwhile. Messages whose
    /// turn it is go on, as their bytes are accounted for; therefore the connection's window stays
    /// open, and each stream is bounded by its own.
    pub fn set_windows_shut(&mut self, shut: bool, out: &mut Vec<u8>) {
        if self.windows.are_shut() == shut || self.life.is_closed() {
            return;
        }
        if shut {
            self.windows.shut();
            self.pool.bound_as_usual();
        } else {
            self.windows.reopen(&mut self.streams, out);
        }
    }

    /// Whether [`Connection::set_windows_shut`] has shut them.
    pub fn windows_are_shut(&self) -> bool {
        self.windows.are_shut()
    }

    /// Takes the next message from the backlog of a stream that was resumed.
    pub(super) fn continue_backlog(&mut self, out: &mut Vec<u8>) -> Handled {
        let Some(&key) = self.resumed.front() else {
            return Ok(None);
        };
        let is_over = self
            .streams
            .get(key)
            .is_none_or(|stream| stream.is_held() || !stream.is_wanted());
        if is_over {
            self.resumed.pop_front();
            return Ok(None);
        }
        let stream = &mut self.streams[key.slot];
        if !stream.is_grpc() {
            return self.body_of_backlog(key, out);
        }
        let found = match stream.inbound.take_next(self.config.max_message_bytes) {
            Ok(found) => found,
            Err(error) => return self.on_bad_message(key.slot, error, out),
        };
        let BacklogStep { step, taken, last } = found;
        match step {
            DeframeStep::Message { whole, compressed } => {
                stream.add_unreleased(taken);
                match whole {
                    None => self.message.set(None, key.slot),
                    Some(range) => {
                        let message = &stream.inbound.backlog()[range];
                        self.message.copy_message(message, &mut self.pool);
                    }
                }
                self.deliver(key, compressed, last, &[], out)
            }
            DeframeStep::Part { range, left } => {
                stream.add_unreleased(taken);
                self.message.copy_piece(&stream.inbound.backlog()[range]);
                Ok(Some(self.part(key, left, last)))
            }
            DeframeStep::NeedMore => self.end_backlog(key, taken, out),
        }
    }

    /// The same for a body that is not gRPC, in pieces: a whole window would be a long step for
    /// those above.
    fn body_of_backlog(&mut self, key: StreamKey, out: &mut Vec<u8>) -> Handled {
        let stream = &mut self.streams[key.slot];
        let Some((range, last)) = stream.inbound.take_piece() else {
            return self.end_backlog(key, 0, out);
        };
        stream.add_unreleased(range.len());
        self.message.copy_piece(&stream.inbound.backlog()[range]);
        self.uncount(key.slot);
        let last = self.take_end(key, last);
        Ok(Some(Event::Body { stream: key, last }))
    }

    /// The backlog has been taken to its end.
    fn end_backlog(&mut self, key: StreamKey, taken: usize, out: &mut Vec<u8>) -> Handled {
        self.resumed.pop_front();
        let inbound = &mut self.streams[key.slot].inbound;
        let BacklogEnd { done, end } = inbound.end_backlog(&mut self.pool);
        self.ungather(done);
        if end {
            return self.end_of_stream(key.slot, out);
        }
        self.go_on_with_message(key.slot, taken as u32, out);
        Ok(None)
    }
}
