//! Send room: what the peer's windows would let out at once. A call that has to fetch what it sends
//! (a download, from a disk) asks for it before it fetches, so that nothing is held for a peer that
//! could not take it.
//!
//! What is being fetched is promised its part of the connection's window, so that a thousand calls
//! do not fetch for the room of one.
//!
//! A connection without send capacity, since its peer does not take what waits on some streams, has
//! room for those that it does take, one after the other: as soon as nothing waits but for windows.

use super::capacity::enter;
use super::connection::Connection;
use super::event::Event;
use super::streams::StreamKey;
use crate::limits;

impl Connection {
    /// Returns how many bytes the peer's windows would let out at once on a stream, behind what
    /// waits on it already and beside what is promised to other streams; while there is no
    /// [capacity](Self::has_capacity), none until all has gone out that the windows let out. If
    /// none, a Writable event follows when there are some, unless the stream ends before.
    pub fn send_room(&mut self, stream: StreamKey) -> usize {
        if !self.is_writable(stream) {
            return 0;
        }
        let is_blocked = self.is_room_blocked();
        let least = self.least_room();
        let found = &self.streams[stream.slot];
        let waiting = found.outbound.bytes();
        let stream_room = found.send_window.available().saturating_sub(waiting);
        let others = self.capacity.promised_bytes - found.promised_bytes;
        let shared = match is_blocked {
            true => 0,
            false => self.send_window.available().saturating_sub(others),
        };
        let room = stream_room.min(shared);
        if room < least {
            let found = &mut self.streams[stream.slot];
            found.awaits_room = true;
            // Otherwise the stream's own window has to be opened.
            if stream_room >= least && !found.in_room_queue {
                found.in_room_queue = true;
                let most = self.most_waiting();
                enter(&mut self.capacity.waiting_room, stream, most, &self.streams);
            }
            return 0;
        }
        room
    }

    /// Returns how many bytes the peer's windows would let out on a stream, behind what waits on
    /// it.
    pub fn window_room(&self, stream: StreamKey) -> usize {
        self.streams.get(stream).map_or(0, |found| {
            let window = found.send_window.available();
            let room = window.saturating_sub(found.outbound.bytes());
            room.min(self.send_window.available())
        })
    }

    /// Promises a stream's call so much of the connection's window for what it will send next,
    /// instead of what was promised to it before. It is given back when the call sends, and when it
    /// ends.
    pub fn promise_room(&mut self, stream: StreamKey, bytes: usize) {
        if self.is_alive(stream) {
            let found = &mut self.streams[stream.slot];
            let before = std::mem::replace(&mut found.promised_bytes, bytes);
            self.capacity.promised_bytes = self.capacity.promised_bytes - before + bytes;
        }
    }

    /// Counts what a stream's call holds ready for the peer, instead of what it held before, as
    /// held by the connection, until the call sends or ends. Unlike what is
    /// [reserved](Self::reserve_send), it keeps nobody from sending.
    pub fn hold_ready(&mut self, stream: StreamKey, bytes: usize) {
        if self.is_alive(stream) {
            let found = &mut self.streams[stream.slot];
            let before = std::mem::replace(&mut found.ready_bytes, bytes);
            self.capacity.ready_bytes = self.capacity.ready_bytes - before + bytes;
        }
    }

    /// Counts what a stream's call keeps of its request, instead of what it kept before, as held by
    /// the connection, until the call sends or ends. Unlike what is [held ready](Self::hold_ready),
    /// it is no reason for another call not to begin.
    pub fn hold_request(&mut self, stream: StreamKey, bytes: usize) {
        if self.is_alive(stream) {
            let found = &mut self.streams[stream.slot];
            let before = std::mem::replace(&mut found.kept_bytes, bytes);
            self.capacity.kept_bytes = self.capacity.kept_bytes - before + bytes;
        }
    }

    /// Returns whether the peer has taken some of what waited on a stream, or opened its window,
    /// since this was last asked.
    pub fn take_progress(&mut self, stream: StreamKey) -> bool {
        let contains = self.streams.contains(stream);
        contains && std::mem::take(&mut self.streams[stream.slot].has_progress)
    }

    /// Whether there is no capacity, and something waits that the windows let out.
    fn is_room_blocked(&self) -> bool {
        !self.has_capacity() && !self.ready.is_empty()
    }

    /// Returns the least room that is of use.
    fn least_room(&self) -> usize {
        match self.has_capacity() {
            true => 1,
            false => limits::LEAST_ROOM_BYTES,
        }
    }

    /// Whether somebody may go on who waits for the connection's send window.
    pub(super) fn has_free_room(&self) -> bool {
        let promised = self.capacity.promised_bytes;
        let free = self.send_window.available().saturating_sub(promised);
        free >= self.least_room() && !self.is_room_blocked()
    }

    /// The peer has opened the window of a stream.
    pub(super) fn report_room(&mut self, slot: u32) {
        let found = &mut self.streams[slot];
        if !found.work_done && std::mem::take(&mut found.awaits_room) {
            let stream = StreamKey { slot, id: found.id };
            self.events.push_back(Event::Writable { stream });
        }
    }

    /// Returns the event of the call that has waited longest for the connection's window, if some
    /// of it is free.
    pub(super) fn next_with_room(&mut self) -> Option<Event> {
        while self.has_free_room() {
            let stream = self.capacity.waiting_room.pop_front()?;
            let Some(found) = self.streams.get(stream) else {
                continue;
            };
            let waits = found.awaits_room && !found.is_dead() && !found.work_done;
            self.streams[stream.slot].in_room_queue = false;
            self.streams[stream.slot].awaits_room = false;
            if waits {
                return Some(Event::Writable { stream });
            }
        }
        None
    }
}
