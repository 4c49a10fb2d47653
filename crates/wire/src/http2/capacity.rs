//! Send capacity: what the calls of a connection may produce for a peer that has yet to read it.
//!
//! A call produces only while the connection has capacity. Without it nothing fails: the first
//! message of a call is kept back, so that the call has nothing to do yet, and a call that streams
//! waits for a [`Event::Writable`](super::Event::Writable). When the peer has read on, those that
//! wait get their turn in the order in which they came.

use std::collections::VecDeque;

use super::config::Config;
use super::stream::Stream;
use super::stream_key::StreamKey;
use super::streams::Streams;
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

/// What a call asks for capacity for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendNeed {
    /// A message.
    Message,
    /// A message, beside which it holds something ready from then on.
    ReadyMessage,
    /// A large message.
    LargeMessage,
}

/// What is held for the peer, and which streams wait until that is less.
#[derive(Debug)]
pub(crate) struct Capacity {
    max_unsent_bytes: usize,
    /// What a queue may hold before the keys of streams that have ended are removed.
    max_waiting: usize,
    /// Body bytes that wait on all streams.
    unsent_bytes: usize,
    /// Bytes of bodies that have waited and gone out, ever.
    sent_bytes: u64,
    /// Bytes of `unsent_bytes` that are shared with others.
    shared_bytes: usize,
    /// Bytes that have gone out and take memory until what follows them has.
    out_bytes: usize,
    /// Bytes set aside for what calls are about to send.
    reserved_bytes: usize,
    /// Bytes that calls hold ready for the peer.
    ready_bytes: usize,
    /// Bytes that calls keep of their requests.
    kept_bytes: usize,
    /// Bytes of metadata for answers of streams that have not ended.
    extra_bytes: usize,
    /// What the layer above holds back for now.
    pause: Pause,
    /// Streams whose first message was kept back.
    deferred: VecDeque<StreamKey>,
    /// Streams of which a message was put back.
    put_back: VecDeque<StreamKey>,
    /// Streams that are owed a Writable event as soon as there is capacity.
    waiting: VecDeque<StreamKey>,
    /// Those that are owed one as soon as calls may begin to hold something ready.
    waiting_begin: VecDeque<StreamKey>,
    /// Those that are owed one as soon as a large message may be sent.
    waiting_large: VecDeque<StreamKey>,
}

impl Capacity {
    /// Returns the capacity of a connection for which nothing is held.
    pub(crate) fn new(config: &Config) -> Capacity {
        Capacity {
            max_unsent_bytes: config.max_unsent_bytes,
            max_waiting: 2 * config.max_streams as usize,
            unsent_bytes: 0,
            sent_bytes: 0,
            shared_bytes: 0,
            out_bytes: 0,
            reserved_bytes: 0,
            ready_bytes: 0,
            kept_bytes: 0,
            extra_bytes: 0,
            pause: Pause::No,
            deferred: VecDeque::new(),
            put_back: VecDeque::new(),
            waiting: VecDeque::new(),
            waiting_begin: VecDeque::new(),
            waiting_large: VecDeque::new(),
        }
    }

    /// Holds back what is produced.
    pub(crate) fn set_pause(&mut self, pause: Pause) {
        self.pause = pause;
    }

    /// Returns whether calls may produce something.
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.pause != Pause::All && self.claimed_bytes() < self.max_unsent_bytes
    }

    /// Returns whether also large messages may be produced.
    #[inline]
    pub(crate) fn is_free_for_large(&self) -> bool {
        self.pause == Pause::No && self.is_free()
    }

    /// Returns whether calls that hold nothing ready may begin to.
    fn is_free_to_begin(&self) -> bool {
        let is_little = self.ready_bytes < limits::READY_BYTES;
        self.is_free() && (self.pause == Pause::No || is_little)
    }

    /// Returns the body bytes that wait on all streams.
    #[inline]
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }

    /// Returns the bytes that have gone out and take memory until what follows them has.
    pub(crate) fn out_bytes(&self) -> usize {
        self.out_bytes
    }

    /// Returns the bytes that wait to be sent, or are set aside for it.
    #[inline]
    pub(crate) fn claimed_bytes(&self) -> usize {
        self.unsent_bytes + self.reserved_bytes
    }

    /// Returns the bytes of bodies that have waited and gone out, ever.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// Returns the bytes of memory that the connection holds for its peer or has set aside for it,
    /// without what is shared with others.
    pub(crate) fn charged_bytes(&self) -> usize {
        self.unsent_bytes - self.shared_bytes
            + self.out_bytes
            + self.reserved_bytes
            + self.ready_bytes
            + self.kept_bytes
            + self.extra_bytes
    }

    /// Returns the same with what is shared, and without what is only set aside.
    pub(crate) fn held_bytes(&self) -> usize {
        self.unsent_bytes + self.out_bytes + self.ready_bytes + self.kept_bytes + self.extra_bytes
    }

    /// Counts bytes that wait from now on.
    #[inline]
    pub(crate) fn add_unsent(&mut self, bytes: usize) {
        self.unsent_bytes += bytes;
    }

    /// Counts how many of the bytes that wait are shared.
    #[inline]
    pub(crate) fn add_shared(&mut self, bytes: usize) {
        self.shared_bytes += bytes;
    }

    /// Counts bytes that have gone out, and how many of them were shared.
    #[inline]
    pub(crate) fn count_sent(&mut self, bytes: usize, shared_bytes: usize) {
        self.unsent_bytes -= bytes;
        self.shared_bytes -= shared_bytes;
        self.sent_bytes += bytes as u64;
    }

    /// Counts how many bytes of what waits on a stream have gone out and take memory all the same,
    /// instead of how many did before.
    #[inline]
    pub(crate) fn count_out(&mut self, before: usize, after: usize) {
        self.out_bytes = self.out_bytes - before + after;
    }

    /// Takes out of the count what is not sent any more, and how much of it was shared.
    pub(crate) fn count_dropped(&mut self, bytes: usize, shared_bytes: usize) {
        self.unsent_bytes -= bytes;
        self.shared_bytes -= shared_bytes;
    }

    /// Counts metadata for the response of a stream.
    pub(crate) fn add_extra(&mut self, bytes: usize) {
        self.extra_bytes += bytes;
    }

    /// Takes metadata out of the count.
    pub(crate) fn remove_extra(&mut self, bytes: usize) {
        self.extra_bytes -= bytes;
    }

    /// Sets aside bytes for what the call of a stream will send next, instead of what was set aside
    /// for it.
    pub(crate) fn reserve(&mut self, stream: &mut Stream, bytes: usize) {
        let before = stream.claims.set_reserved(bytes);
        self.reserved_bytes = self.reserved_bytes - before + bytes;
    }

    /// Sets aside more bytes.
    #[inline]
    pub(crate) fn reserve_more(&mut self, stream: &mut Stream, bytes: usize) {
        stream.claims.add_reserved(bytes);
        self.reserved_bytes += bytes;
    }

    /// Counts what the call of a stream holds ready, instead of what it held ready before.
    pub(crate) fn hold_ready(&mut self, stream: &mut Stream, bytes: usize) {
        let before = stream.claims.set_ready(bytes);
        self.ready_bytes = self.ready_bytes - before + bytes;
    }

    /// Counts what the call of a stream keeps of its request, instead of what it kept before.
    pub(crate) fn hold_request(&mut self, stream: &mut Stream, bytes: usize) {
        let before = stream.claims.set_kept(bytes);
        self.kept_bytes = self.kept_bytes - before + bytes;
    }

    /// The call of a stream has sent, or is over: gives back all that is set aside and held for it.
    #[inline]
    pub(crate) fn release(&mut self, stream: &mut Stream) {
        let released = stream.claims.release();
        self.reserved_bytes -= released.reserved_bytes;
        self.ready_bytes -= released.ready_bytes;
        self.kept_bytes -= released.kept_bytes;
    }

    /// Returns whether the call of a stream, on which it may write, may send what it asks for. If
    /// not, it waits for it.
    pub(crate) fn admit(&mut self, need: SendNeed, key: StreamKey, streams: &mut Streams) -> bool {
        let is_free = match need {
            SendNeed::Message => self.is_free(),
            SendNeed::ReadyMessage => self.is_free_to_begin(),
            SendNeed::LargeMessage => self.is_free_for_large(),
        };
        if is_free {
            return true;
        }
        if streams[key.slot].claims.await_capacity() {
            let queue = match need {
                _ if !self.is_free() => &mut self.waiting,
                SendNeed::Message => &mut self.waiting,
                SendNeed::ReadyMessage => &mut self.waiting_begin,
                SendNeed::LargeMessage => &mut self.waiting_large,
            };
            streams.enqueue(queue, key, self.max_waiting);
        }
        false
    }

    /// Returns whether first messages of streams are to be kept back: there is no capacity for what
    /// they would make their calls produce, or others were kept back before.
    #[inline]
    pub(crate) fn defers(&self) -> bool {
        !self.is_free() || !self.deferred.is_empty()
    }

    /// Notes that the first message of a stream was kept back.
    #[cold]
    pub(crate) fn defer(&mut self, key: StreamKey, streams: &mut Streams) {
        if streams[key.slot].claims.defer() {
            streams.enqueue(&mut self.deferred, key, self.max_waiting);
        }
    }

    /// Notes that a message of a stream was put back, until large messages may be produced.
    #[cold]
    pub(crate) fn put_back(&mut self, key: StreamKey, streams: &mut Streams) {
        if streams[key.slot].claims.put_back() {
            streams.enqueue(&mut self.put_back, key, self.max_waiting);
        }
    }

    /// Returns whether a message of a stream that has not ended was put back.
    pub(crate) fn has_put_back(&self, streams: &Streams) -> bool {
        self.put_back.iter().any(|&key| streams.is_alive(key))
    }

    /// Takes out the stream whose first message has waited longest, if there is capacity.
    pub(crate) fn next_deferred(&mut self, streams: &mut Streams) -> Option<StreamKey> {
        while self.is_free() {
            let key = self.deferred.pop_front()?;
            if streams.is_alive(key) {
                streams[key.slot].claims.stop_deferring();
                return Some(key);
            }
        }
        None
    }

    /// Takes out the stream whose message was put back first, if large ones may be produced.
    pub(crate) fn next_put_back(&mut self, streams: &mut Streams) -> Option<StreamKey> {
        while self.is_free_for_large() {
            let key = self.put_back.pop_front()?;
            if streams.is_alive(key) {
                streams[key.slot].claims.take_put_back();
                return Some(key);
            }
        }
        None
    }

    /// Takes out the stream whose call has waited longest for capacity, if there is some.
    pub(crate) fn next_writable(&mut self, streams: &mut Streams) -> Option<StreamKey> {
        while self.is_free() {
            let mut key = self.waiting.pop_front();
            if key.is_none() && self.is_free_to_begin() {
                key = self.waiting_begin.pop_front();
            }
            if key.is_none() && self.is_free_for_large() {
                key = self.waiting_large.pop_front();
            }
            let key = key?;
            if streams.is_alive(key) && !streams[key.slot].is_work_done() {
                streams[key.slot].claims.stop_awaiting_capacity();
                return Some(key);
            }
        }
        None
    }

    /// Returns whether somebody who waits may go on.
    #[inline]
    pub(crate) fn has_next(&self) -> bool {
        let is_awaited = !self.deferred.is_empty() || !self.waiting.is_empty();
        let is_large_awaited = !self.put_back.is_empty() || !self.waiting_large.is_empty();
        (is_awaited && self.is_free())
            || (!self.waiting_begin.is_empty() && self.is_free_to_begin())
            || (is_large_awaited && self.is_free_for_large())
    }

    /// The connection is over: whoever waits is told so by other events.
    pub(crate) fn forget_waiting(&mut self) {
        self.deferred.clear();
        self.put_back.clear();
        self.waiting.clear();
        self.waiting_begin.clear();
        self.waiting_large.clear();
    }

    /// Returns the bytes of memory that the queues hold.
    pub(crate) fn memory_bytes(&self) -> usize {
        let queues = [
            &self.deferred,
            &self.put_back,
            &self.waiting,
            &self.waiting_begin,
            &self.waiting_large,
        ];
        queues.iter().map(|queue| queue.capacity()).sum::<usize>() * size_of::<StreamKey>()
    }

    #[cfg(test)]
    pub(crate) fn reserve_queues(&mut self, keys: usize) {
        self.deferred.reserve(keys);
        self.put_back.reserve(keys + 1);
        self.waiting.reserve(keys + 2);
        self.waiting_begin.reserve(keys + 3);
        self.waiting_large.reserve(keys + 4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::headers::BodyKind;
    use crate::http2::stream::Dead;

    fn capacity(max_unsent_bytes: usize) -> (Capacity, Streams, Vec<StreamKey>) {
        let config = Config {
            max_unsent_bytes,
            ..Config::server()
        };
        let mut streams = Streams::default();
        let ids = [1, 3, 5, 7].into_iter();
        let keys = ids.map(|id| StreamKey {
            slot: streams.insert(id, BodyKind::Grpc, 10, 10),
            id,
        });
        let keys = keys.collect();
        (Capacity::new(&config), streams, keys)
    }

    #[test]
    fn whoever_waits_goes_on_in_order_when_enough_has_been_sent() {
        let (mut capacity, mut streams, keys) = capacity(100);
        streams[keys[1].slot].end_work();
        for round in 1..=2 {
            assert!(capacity.admit(SendNeed::Message, keys[0], &mut streams));
            capacity.add_unsent(100);
            for key in [keys[0], keys[0], keys[1], keys[2]] {
                assert!(!capacity.admit(SendNeed::Message, key, &mut streams));
            }
            assert!(!capacity.has_next());
            capacity.count_sent(1, 0);
            assert!(capacity.has_next());
            assert_eq!(capacity.next_writable(&mut streams), Some(keys[0]));
            assert_eq!(capacity.next_writable(&mut streams), Some(keys[2]));
            assert_eq!(capacity.next_writable(&mut streams), None);
            capacity.count_sent(99, 0);
            let expected = (0, 100 * round);
            assert_eq!((capacity.held_bytes(), capacity.sent_bytes()), expected);
        }
    }

    #[test]
    fn a_pause_holds_back_large_messages_or_everything() {
        let (mut capacity, mut streams, keys) = capacity(100);
        capacity.set_pause(Pause::Large);
        capacity.hold_ready(&mut streams[keys[3].slot], limits::READY_BYTES);
        let needs = [
            SendNeed::Message,
            SendNeed::ReadyMessage,
            SendNeed::LargeMessage,
        ];
        for (need, &key) in needs.into_iter().zip(&keys) {
            let is_small = need == SendNeed::Message;
            assert_eq!(capacity.admit(need, key, &mut streams), is_small);
        }
        capacity.set_pause(Pause::All);
        assert!(!capacity.admit(SendNeed::Message, keys[0], &mut streams));
        assert_eq!(capacity.next_writable(&mut streams), None);
        capacity.set_pause(Pause::Large);
        assert_eq!(capacity.next_writable(&mut streams), Some(keys[0]));
        assert_eq!(capacity.next_writable(&mut streams), None);
        capacity.release(&mut streams[keys[3].slot]);
        assert_eq!(capacity.next_writable(&mut streams), Some(keys[1]));
        assert_eq!(capacity.next_writable(&mut streams), None);
        capacity.set_pause(Pause::No);
        assert_eq!(capacity.next_writable(&mut streams), Some(keys[2]));
    }

    #[test]
    fn first_messages_and_those_put_back_go_on_unless_their_streams_have_ended() {
        let (mut capacity, mut streams, keys) = capacity(100);
        capacity.add_unsent(100);
        assert!(capacity.defers());
        capacity.defer(keys[0], &mut streams);
        capacity.defer(keys[1], &mut streams);
        capacity.put_back(keys[2], &mut streams);
        assert!(capacity.has_put_back(&streams));
        streams.kill(keys[0].slot, Dead::ByPeer);
        capacity.count_sent(100, 0);
        assert!(capacity.defers(), "others come first");
        assert_eq!(capacity.next_deferred(&mut streams), Some(keys[1]));
        assert_eq!(capacity.next_deferred(&mut streams), None);
        assert!(!capacity.defers());
        assert_eq!(capacity.next_put_back(&mut streams), Some(keys[2]));
        assert!(!capacity.has_put_back(&streams) && !capacity.has_next());
    }

    #[test]
    fn what_is_set_aside_and_held_comes_back_to_zero() {
        let (mut capacity, mut streams, keys) = capacity(1_000);
        let stream = &mut streams[keys[0].slot];
        for _ in 0..2 {
            capacity.reserve(stream, 100);
            capacity.reserve(stream, 50);
            capacity.reserve_more(stream, 5);
            capacity.hold_ready(stream, 400);
            capacity.hold_request(stream, 3_000);
            capacity.add_unsent(20_000);
            capacity.add_shared(15_000);
            assert_eq!(capacity.claimed_bytes(), 20_055);
            assert_eq!(capacity.charged_bytes(), 8_455);
            assert_eq!(capacity.held_bytes(), 23_400);
            capacity.release(stream);
            capacity.count_sent(8_000, 6_000);
            capacity.count_out(0, 2_000);
            assert_eq!(
                (capacity.charged_bytes(), capacity.held_bytes()),
                (5_000, 14_000)
            );
            capacity.count_out(2_000, 0);
            capacity.count_dropped(12_000, 9_000);
            assert_eq!((capacity.charged_bytes(), capacity.held_bytes()), (0, 0));
        }
    }
}
