//! What calls may send: by capacity, and by the room that the peer's windows leave.

use super::Connection;
use crate::http2::capacity::{Pause, SendNeed};
use crate::http2::event::Event;
use crate::http2::outbound::BodyCharge;
use crate::http2::room::SendSpace;
use crate::http2::stream_key::StreamKey;

impl Connection {
    /// Returns whether calls may produce something for the peer: less than
    /// [`max_unsent_bytes`](crate::Config::max_unsent_bytes) wait or are set aside, and the layer
    /// above has not paused it.
    #[inline]
    pub fn has_capacity(&self) -> bool {
        self.capacity.is_free()
    }

    /// Returns whether also large messages may be produced for the peer.
    #[inline]
    pub fn has_large_capacity(&self) -> bool {
        self.capacity.is_free_for_large()
    }

    /// Holds back what is produced for this peer, since more is held for all peers than may be; or
    /// lets it go on. Afterwards `poll_event` may have events.
    pub fn set_pause(&mut self, pause: Pause) {
        self.capacity.set_pause(pause);
    }

    /// Bounds what calls may send that is not handed up yet, below
    /// [`max_gathered_bytes`](crate::Config::max_gathered_bytes), until this is called again: while
    /// there is no memory for more, a call that sends beyond it ends with UNAVAILABLE, unless it is
    /// the turn of its message, or its window is bounded ([`Connection::limit_window`]).
    pub fn set_gather_bound(&mut self, bytes: usize) {
        self.unfinished.set_bound(bytes);
    }

    /// Returns whether a stream's call may send another message. If not, a Writable event follows
    /// as soon as it may, unless the stream ends before.
    pub fn can_send(&mut self, stream: StreamKey) -> bool {
        self.admits(SendNeed::Message, stream)
    }

    /// Returns whether a stream's call may send another message, and a large one. If not, a
    /// Writable event follows as soon as it may, unless the stream ends before.
    pub fn can_send_large(&mut self, stream: StreamKey) -> bool {
        self.admits(SendNeed::LargeMessage, stream)
    }

    /// Returns whether a stream's call that holds nothing [ready](Self::hold_ready) may send a
    /// message and hold something from then on: while the layer above holds something back, calls
    /// of a connection that hold more than [`READY_BYTES`](crate::limits::READY_BYTES) together are
    /// to come to their ends first. If not, a Writable event follows as soon as it may, unless the
    /// stream ends before.
    pub fn can_begin(&mut self, stream: StreamKey) -> bool {
        self.admits(SendNeed::ReadyMessage, stream)
    }

    fn admits(&mut self, need: SendNeed, stream: StreamKey) -> bool {
        self.is_writable(stream) && self.capacity.admit(need, stream, &mut self.streams)
    }

    /// Returns the bytes that have gone out and take memory all the same, as what follows them in
    /// their message has not.
    pub fn out_bytes(&self) -> usize {
        self.capacity.out_bytes()
    }

    /// Returns the bytes that wait to be sent, or are set aside for it; shared bodies count in
    /// full.
    pub fn unsent_bytes(&self) -> usize {
        self.capacity.claimed_bytes()
    }

    /// Returns the bytes that wait for the peer to take them, without what is only set aside.
    #[inline]
    pub fn queued_bytes(&self) -> usize {
        self.capacity.unsent_bytes()
    }

    /// Returns whether something waits on a stream for the peer to take it.
    #[inline]
    pub fn has_unsent(&self, stream: StreamKey) -> bool {
        let found = self.streams.get(stream);
        found.is_some_and(|found| found.outbound.bytes() > 0)
    }

    /// Returns whether a message was [put back](Connection::put_back), and waits until large
    /// messages may be produced. Passes over those of streams that have ended, which stay in the
    /// queue until it is gone on with.
    pub fn has_put_back(&self) -> bool {
        self.capacity.has_put_back(&self.streams)
    }

    /// Returns how many bytes have waited to be sent and have gone out, since the connection began.
    pub fn sent_bytes(&self) -> u64 {
        self.capacity.sent_bytes()
    }

    /// Returns whether less than a stream's share waits to be sent on it. If not, a Writable event
    /// follows.
    pub fn is_writable(&self, stream: StreamKey) -> bool {
        let share_bytes = self.config.stream_unsent_bytes;
        (self.streams.get(stream)).is_some_and(|found| found.is_writable(share_bytes))
    }

    /// Returns whether the call of a stream waits for more of its request: the peer has not ended
    /// its side.
    pub fn awaits_request(&self, stream: StreamKey) -> bool {
        (self.streams.get(stream)).is_some_and(|found| !found.is_receive_closed())
    }

    /// Returns whether the call of a stream waits until the peer takes some of what is sent to it,
    /// on this stream or on others.
    pub fn awaits_taking(&self, stream: StreamKey) -> bool {
        let is_waiting = (self.streams.get(stream)).is_some_and(|found| {
            let claims = &found.claims;
            claims.is_waiting() || claims.is_put_back()
        });
        is_waiting || !self.is_writable(stream)
    }

    /// Sets aside bytes for what the call of a stream will send next, instead of what was set aside
    /// for it before. They are given back when it sends, and when it ends.
    pub fn reserve_send(&mut self, stream: StreamKey, bytes: usize) {
        if self.streams.is_alive(stream) {
            self.capacity.reserve(&mut self.streams[stream.slot], bytes);
        }
    }

    /// Sets aside more bytes for the call of a stream, beside what is set aside for it: what it
    /// holds elsewhere until it sends. They are given back as those of
    /// [`Connection::reserve_send`].
    #[inline]
    pub fn reserve_more(&mut self, stream: StreamKey, bytes: usize) {
        if self.streams.is_alive(stream) {
            let found = &mut self.streams[stream.slot];
            self.capacity.reserve_more(found, bytes);
        }
    }

    /// Counts what a stream's call holds ready for the peer, instead of what it held before, as
    /// held by the connection, until the call sends or ends. Unlike what is
    /// [reserved](Self::reserve_send), it keeps nobody from sending.
    pub fn hold_ready(&mut self, stream: StreamKey, bytes: usize) {
        if self.streams.is_alive(stream) {
            let found = &mut self.streams[stream.slot];
            self.capacity.hold_ready(found, bytes);
        }
    }

    /// Counts what a stream's call keeps of its request, instead of what it kept before, as held by
    /// the connection, until the call sends or ends. Unlike what is [held ready](Self::hold_ready),
    /// it is no reason for another call not to begin.
    pub fn hold_request(&mut self, stream: StreamKey, bytes: usize) {
        if self.streams.is_alive(stream) {
            let found = &mut self.streams[stream.slot];
            self.capacity.hold_request(found, bytes);
        }
    }

    /// Gives back all that is set aside, held and promised for the call of a stream.
    #[inline]
    pub(super) fn release_reserved(&mut self, slot: u32) {
        let stream = &mut self.streams[slot];
        self.capacity.release(stream);
        self.room.release(stream);
    }

    /// Charges the shared body that was sent last on a stream, if some of it still waits: `charge`
    /// is kept until the last byte has been sent, or never will be.
    pub fn charge_shared(
        &mut self,
        stream: StreamKey,
        charge: impl FnOnce() -> Box<dyn BodyCharge>,
    ) {
        if self.streams.contains(stream) {
            self.streams[stream.slot].outbound.charge_last(charge);
        }
    }

    /// Returns how many bytes the peer's windows would let out at once on a stream, behind what
    /// waits on it already and beside what is promised to other streams; while there is no
    /// [capacity](Self::has_capacity), none until all has gone out that the windows let out. If
    /// none, a Writable event follows when there are some, unless the stream ends before.
    pub fn send_room(&mut self, stream: StreamKey) -> usize {
        let space = self.send_space();
        match self.is_writable(stream) {
            true => self.room.find(stream, &mut self.streams, space),
            false => 0,
        }
    }

    /// Returns how many bytes the peer's windows would let out on a stream, behind what waits on
    /// it.
    pub fn window_room(&self, stream: StreamKey) -> usize {
        self.streams.get(stream).map_or(0, |found| {
            let window = found.send_window.available();
            let room = window.saturating_sub(found.outbound.bytes());
            room.min(self.queue.window_bytes())
        })
    }

    /// Promises a stream's call so much of the connection's window for what it will send next,
    /// instead of what was promised to it before. It is given back when the call sends, and when it
    /// ends.
    pub fn promise_room(&mut self, stream: StreamKey, bytes: usize) {
        if self.streams.is_alive(stream) {
            self.room.promise(&mut self.streams[stream.slot], bytes);
        }
    }

    /// Returns whether the peer has taken some of what waited on a stream, or opened its window,
    /// since this was last asked.
    pub fn take_progress(&mut self, stream: StreamKey) -> bool {
        let contains = self.streams.contains(stream);
        contains && self.streams[stream.slot].take_progress()
    }

    #[inline]
    fn send_space(&self) -> SendSpace {
        SendSpace {
            window_bytes: self.queue.window_bytes(),
            has_capacity: self.capacity.is_free(),
            has_ready: self.queue.has_ready(),
        }
    }

    /// The peer has opened the window of a stream.
    pub(super) fn report_room(&mut self, slot: u32) {
        let stream = self.streams.key(slot);
        let found = &mut self.streams[slot];
        if !found.is_work_done() && found.claims.stop_awaiting_room() {
            self.events.push_back(Event::Writable { stream });
        }
    }

    /// Returns whether the first message of a stream is to be kept back: there is no capacity for
    /// what it would make its call produce, or others were kept back before it.
    #[inline]
    pub(super) fn defers_first_message(&self, slot: u32) -> bool {
        self.capacity.defers()
            && !self.streams[slot].claims.has_delivered()
            && !self.life.is_client()
    }

    /// Whether somebody who waits for capacity or room may go on.
    #[inline]
    pub(super) fn has_capacity_event(&self) -> bool {
        self.capacity.has_next() || self.room.has_next(self.send_space())
    }

    /// Lets the stream go on whose first message, or else a message that was put back, has waited
    /// longest, if it may: its backlog is next. Returns whether there was one.
    #[inline]
    pub(super) fn resume_one(&mut self) -> bool {
        if let Some(key) = self.capacity.next_deferred(&mut self.streams) {
            self.resume(key);
            return true;
        }
        while let Some(key) = self.capacity.next_put_back(&mut self.streams) {
            // Held, it leaves the queue of those that are resumed at once, and goes on when that is
            // taken back.
            if self.resume(key) {
                return true;
            }
        }
        false
    }

    /// Returns the event of the call that has waited longest for capacity, or else for room, if
    /// there is some.
    pub(super) fn next_writable(&mut self) -> Option<Event> {
        let stream = self.capacity.next_writable(&mut self.streams);
        let stream = stream.or_else(|| {
            let space = self.send_space();
            self.room.next(&mut self.streams, space)
        })?;
        Some(Event::Writable { stream })
    }
}
