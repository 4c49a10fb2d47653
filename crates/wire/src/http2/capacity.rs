//! Send capacity: what the calls of a connection may produce for a peer that has yet to read it.
//!
//! A call produces only while the connection has capacity. Without it nothing fails: the first
//! message of a call is kept back, so that the call has nothing to do yet, and a call that streams
//! waits for a [`Event::Writable`]. When the peer has read on, those that wait get their turn in
//! the order in which they came.

use std::collections::VecDeque;

use super::connection::Connection;
use super::event::Event;
use super::outbound::Charge;
use super::streams::{StreamKey, Streams};
use crate::limits;

/// What is held back of what calls would produce for a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pause {
    /// Nothing.
    #[default]
    No,
    /// Large messages.
    Large,
    /// Everything.
    All,
}

/// What is held for the peer, and who waits until that is less.
#[derive(Debug, Default)]
pub(super) struct Capacity {
    /// Bytes of `unsent_bytes` that are shared with others.
    pub(super) shared_bytes: usize,
    /// Bytes set aside for what calls are about to send.
    pub(super) reserved_bytes: usize,
    /// Bytes of the connection's send window that calls are about to use.
    pub(super) promised_bytes: usize,
    /// Bytes that calls hold ready for the peer.
    pub(super) ready_bytes: usize,
    /// Bytes that calls keep of their requests.
    pub(super) kept_bytes: usize,
    /// Bytes of metadata for answers of streams that have not ended.
    pub(super) extra_bytes: usize,
    /// What the layer above holds back for now.
    pause: Pause,
    /// Streams whose first message was kept back.
    deferred: VecDeque<StreamKey>,
    /// Streams of which a message was put back.
    pub(super) put_back: VecDeque<StreamKey>,
    /// Streams that are owed a Writable event as soon as there is capacity.
    waiting: VecDeque<StreamKey>,
    /// Those that are owed one as soon as calls may begin to hold something ready.
    waiting_begin: VecDeque<StreamKey>,
    /// Those that are owed one as soon as a large message may be sent.
    waiting_large: VecDeque<StreamKey>,
    /// Those that are owed one as soon as the connection's send window lets something out.
    pub(super) waiting_room: VecDeque<StreamKey>,
}

impl Capacity {
    /// The connection is over: whoever waits is told so by other events.
    pub(super) fn forget_waiting(&mut self) {
        self.deferred.clear();
        self.put_back.clear();
        self.waiting.clear();
        self.waiting_begin.clear();
        self.waiting_large.clear();
        self.waiting_room.clear();
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let queues = [
            &self.deferred,
            &self.put_back,
            &self.waiting,
            &self.waiting_begin,
            &self.waiting_large,
            &self.waiting_room,
        ];
        queues.iter().map(|queue| queue.capacity()).sum::<usize>() * size_of::<StreamKey>()
    }

    #[cfg(test)]
    pub(super) fn reserve(&mut self, keys: usize) {
        self.deferred.reserve(keys);
        self.put_back.reserve(keys + 1);
        self.waiting.reserve(keys + 2);
        self.waiting_begin.reserve(keys + 3);
        self.waiting_large.reserve(keys + 4);
        self.waiting_room.reserve(keys + 5);
    }
}

impl Connection {
    /// Returns whether calls may produce something for the peer: less than
    /// [`max_unsent_bytes`](super::Config::max_unsent_bytes) wait or are set aside, and the layer
    /// above has not paused it.
    #[inline]
    pub fn has_capacity(&self) -> bool {
        self.capacity.pause != Pause::All
            && self.unsent_bytes + self.capacity.reserved_bytes < self.config.max_unsent_bytes
    }

    /// Returns whether also large messages may be produced for the peer.
    #[inline]
    pub fn has_large_capacity(&self) -> bool {
        self.capacity.pause == Pause::No && self.has_capacity()
    }

    /// Holds back what is produced for this peer, since more is held for all peers than may be; or
    /// lets it go on. Afterwards `poll_event` may have events.
    pub fn set_pause(&mut self, pause: Pause) {
        self.capacity.pause = pause;
    }

    /// Bounds what calls may send that is not handed up yet, below
    /// [`max_gathered_bytes`](super::Config), until this is called again: while there is no memory
    /// for more, a call that sends beyond it ends with UNAVAILABLE, unless it is the turn of its
    /// message, or its window is bounded ([`Connection::limit_window`]).
    pub fn set_gather_bound(&mut self, bytes: usize) {
        self.gather_bound = bytes;
    }

    /// Returns whether a stream's call may send another message, and a large one. If not, a
    /// Writable event follows as soon as it may, unless the stream ends before.
    pub fn can_send_large(&mut self, stream: StreamKey) -> bool {
        if self.has_large_capacity() || !self.can_send(stream) {
            return self.can_send(stream);
        }
        if !self.streams[stream.slot].awaits_capacity {
            self.streams[stream.slot].awaits_capacity = true;
            let most = self.most_waiting();
            enter(
                &mut self.capacity.waiting_large,
                stream,
                most,
                &self.streams,
            );
        }
        false
    }

    /// Returns whether a stream's call that holds nothing [ready](Self::hold_ready) may send a
    /// message and hold something from then on: while the layer above holds something back, calls
    /// of a connection that hold more than [`limits::READY_BYTES`] together are to come to their
    /// ends first. If not, a Writable event follows as soon as it may, unless the stream ends
    /// before.
    pub fn can_begin(&mut self, stream: StreamKey) -> bool {
        if self.may_begin() || !self.can_send(stream) {
            return self.can_send(stream);
        }
        if !self.streams[stream.slot].awaits_capacity {
            self.streams[stream.slot].awaits_capacity = true;
            let most = self.most_waiting();
            enter(
                &mut self.capacity.waiting_begin,
                stream,
                most,
                &self.streams,
            );
        }
        false
    }

    fn may_begin(&self) -> bool {
        let is_little = self.capacity.ready_bytes < limits::READY_BYTES;
        self.has_capacity() && (self.capacity.pause == Pause::No || is_little)
    }

    /// Returns whether a stream's call may send another message. If not, a Writable event follows
    /// as soon as it may, unless the stream ends before.
    pub fn can_send(&mut self, stream: StreamKey) -> bool {
        if !self.is_writable(stream) {
            return false;
        }
        if self.has_capacity() {
            return true;
        }
        if !self.streams[stream.slot].awaits_capacity {
            self.streams[stream.slot].awaits_capacity = true;
            let most = self.most_waiting();
            enter(&mut self.capacity.waiting, stream, most, &self.streams);
        }
        false
    }

    /// Returns the bytes that the connection holds for its peer, or waits for from it: as
    /// [`buffered_bytes`](Self::buffered_bytes), but with shared bodies in full, and without what
    /// is only set aside.
    pub fn held_bytes(&self) -> usize {
        self.buffered_bytes() + self.capacity.shared_bytes - self.capacity.reserved_bytes
    }

    /// Returns the bytes that wait to be sent, or are set aside for it; shared bodies count in
    /// full.
    pub fn unsent_bytes(&self) -> usize {
        self.unsent_bytes + self.capacity.reserved_bytes
    }

    /// Returns the bytes that wait for the peer to take them, without what is only set aside.
    #[inline]
    pub fn queued_bytes(&self) -> usize {
        self.unsent_bytes
    }

    /// Returns whether a message was [put back](Connection::put_back), and waits until large
    /// messages may be produced. Passes over those of streams that have ended, which stay in the
    /// queue until it is gone on with.
    pub fn has_put_back(&self) -> bool {
        let mut waiting = self.capacity.put_back.iter();
        waiting.any(|&key| self.is_alive(key))
    }

    /// Returns how many bytes have waited to be sent and have gone out, since the connection began.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// Returns whether less than a stream's share waits to be sent on it. If not, a Writable event
    /// follows.
    pub fn is_writable(&self, stream: StreamKey) -> bool {
        self.streams.get(stream).is_some_and(|found| {
            !found.is_dead()
                && !found.owes_writable
                && found.outbound.bytes() < self.config.stream_unsent_bytes
        })
    }

    /// Sets aside bytes for what the call of a stream will send next, instead of what was set aside
    /// for it before. They are given back when it sends, and when it ends.
    pub fn reserve_send(&mut self, stream: StreamKey, bytes: usize) {
        if !self.is_alive(stream) {
            return;
        }
        let found = &mut self.streams[stream.slot];
        let before = std::mem::replace(&mut found.reserved_bytes, bytes);
        self.capacity.reserved_bytes = self.capacity.reserved_bytes - before + bytes;
    }

    /// Sets aside more bytes for the call of a stream, beside what is set aside for it: what it
    /// holds elsewhere until it sends. They are given back as those of
    /// [`Connection::reserve_send`].
    #[inline]
    pub fn reserve_more(&mut self, stream: StreamKey, bytes: usize) {
        if self.is_alive(stream) {
            self.streams[stream.slot].reserved_bytes += bytes;
            self.capacity.reserved_bytes += bytes;
        }
    }

    #[inline]
    pub(super) fn release_reserved(&mut self, slot: u32) {
        let reserved = std::mem::take(&mut self.streams[slot].reserved_bytes);
        self.capacity.reserved_bytes -= reserved;
        let promised = std::mem::take(&mut self.streams[slot].promised_bytes);
        self.capacity.promised_bytes -= promised;
        let ready = std::mem::take(&mut self.streams[slot].ready_bytes);
        self.capacity.ready_bytes -= ready;
        let kept = std::mem::take(&mut self.streams[slot].kept_bytes);
        self.capacity.kept_bytes -= kept;
    }

    /// Charges the shared body that was sent last on a stream, if some of it still waits: `charge`
    /// is kept until the last byte has been sent, or never will be.
    pub fn charge_shared(&mut self, stream: StreamKey, charge: impl FnOnce() -> Box<dyn Charge>) {
        if self.streams.contains(stream) {
            self.streams[stream.slot].outbound.charge_last(charge);
        }
    }

    /// Returns whether the first message of a stream is to be kept back: there is no capacity for
    /// what it would make its call produce, or others were kept back before it.
    #[inline]
    pub(super) fn defers_first_message(&self, slot: u32) -> bool {
        let may_go_on = self.has_capacity() && self.capacity.deferred.is_empty();
        !may_go_on && !self.streams[slot].has_delivered && !self.is_client()
    }

    /// Notes that the first message of a stream was kept back.
    #[cold]
    pub(super) fn defer(&mut self, stream: StreamKey) {
        if !self.streams[stream.slot].is_deferred {
            self.streams[stream.slot].is_deferred = true;
            let most = self.most_waiting();
            enter(&mut self.capacity.deferred, stream, most, &self.streams);
        }
    }

    /// Notes that a message of a stream was put back.
    #[cold]
    pub(super) fn await_large_capacity(&mut self, stream: StreamKey) {
        if !self.streams[stream.slot].is_put_back {
            self.streams[stream.slot].is_put_back = true;
            let most = self.most_waiting();
            enter(&mut self.capacity.put_back, stream, most, &self.streams);
        }
    }

    /// Lets the stream go on whose message was put back first, if large messages may be produced:
    /// its backlog is next.
    pub(super) fn resume_put_back(&mut self) -> bool {
        while self.has_large_capacity() {
            let Some(key) = self.capacity.put_back.pop_front() else {
                return false;
            };
            if !self.is_alive(key) {
                continue;
            }
            self.streams[key.slot].is_put_back = false;
            // Held, it leaves that queue at once, and goes on when that is taken back.
            if !self.resumed.contains(&key) {
                self.resumed.push_back(key);
                return true;
            }
        }
        false
    }

    /// Whether a stream is there and nobody has ended it.
    #[inline]
    pub(super) fn is_alive(&self, stream: StreamKey) -> bool {
        self.streams
            .get(stream)
            .is_some_and(|found| !found.is_dead())
    }

    /// Returns how many keys a queue may hold before those of streams that have ended are removed.
    pub(super) fn most_waiting(&self) -> usize {
        2 * self.config.max_streams as usize
    }

    /// Whether somebody who waits for capacity may go on.
    #[inline]
    pub(super) fn has_capacity_event(&self) -> bool {
        let is_awaited = !self.capacity.deferred.is_empty() || !self.capacity.waiting.is_empty();
        let is_large_awaited =
            !self.capacity.put_back.is_empty() || !self.capacity.waiting_large.is_empty();
        (is_awaited && self.has_capacity())
            || (!self.capacity.waiting_begin.is_empty() && self.may_begin())
            || (is_large_awaited && self.has_large_capacity())
            || (!self.capacity.waiting_room.is_empty() && self.has_free_room())
    }

    /// Lets the stream go on whose first message has waited longest, if there is capacity: its
    /// backlog is next.
    pub(super) fn resume_deferred(&mut self) -> bool {
        while self.has_capacity() {
            let Some(key) = self.capacity.deferred.pop_front() else {
                return false;
            };
            if self.is_alive(key) {
                self.streams[key.slot].is_deferred = false;
                self.streams[key.slot].has_delivered = true;
                if !self.resumed.contains(&key) {
                    self.resumed.push_back(key);
                }
                return true;
            }
        }
        false
    }

    /// Returns the event of the call that has waited longest for capacity, if there is some.
    pub(super) fn next_writable(&mut self) -> Option<Event> {
        while self.has_capacity() {
            let mut stream = self.capacity.waiting.pop_front();
            if stream.is_none() && self.may_begin() {
                stream = self.capacity.waiting_begin.pop_front();
            }
            if stream.is_none() && self.has_large_capacity() {
                stream = self.capacity.waiting_large.pop_front();
            }
            let Some(stream) = stream else { break };
            let is_alive = (self.streams.get(stream))
                .is_some_and(|found| !found.is_dead() && !found.work_done);
            if is_alive {
                self.streams[stream.slot].awaits_capacity = false;
                return Some(Event::Writable { stream });
            }
        }
        self.next_with_room()
    }
}

/// Puts a stream at the end of a queue, and removes those that have ended if it is longer than it
/// can be without them.
pub(super) fn enter(
    queue: &mut VecDeque<StreamKey>,
    stream: StreamKey,
    most: usize,
    streams: &Streams,
) {
    queue.push_back(stream);
    if queue.len() > most {
        queue.retain(|key| streams.get(*key).is_some_and(|found| !found.is_dead()));
    }
}
