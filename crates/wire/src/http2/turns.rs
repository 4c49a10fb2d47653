//! Large messages come one after the other, not all at a time.
//!
//! A message that lacks more than the window of its stream lets through waits for its turn, in the
//! order in which the messages were begun. In its turn the window is opened for all that it lacks
//! (in steps, for very large ones), and the memory for it is accounted for before it comes. The
//! next turn begins as soon as those that are under way lack less than the connection's window, so
//! that the way is always full, and as the memory allows. Were the windows of all streams given
//! back at once instead, all messages would creep on together, and each would hold memory until the
//! last.
//!
//! Where the layer above has no memory for the next message, that is probed first: its window is
//! opened for [`limits::PROBE_BYTES`], one message of a connection at a time. So messages that
//! stand still are told from those that go on, and each of them costs the others nothing.
//!
//! Invariants: a stream stands in `waiting` exactly while its turn waits, in `active` while it is
//! active or probed; `active_bytes` is what the active messages lack and the probed ones are to
//! bring, `reserved_bytes` what those lack that ever had a turn. If nothing is reserved and the
//! layer above allows it, the first that waits gets its turn: there is always a message that may
//! end.

use std::collections::VecDeque;

use super::stream::Stream;
use super::stream_key::StreamKey;
use super::streams::Streams;
use super::turn::MessageTurn;
use crate::limits;

/// What happens to the window of a stream, some of whose unfinished message has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WindowAfter {
    /// It is given back as usual, with the bytes that came.
    GivenBack,
    /// It is opened for the message, whose turn it is.
    Opened,
    /// It stays shut, until it is the message's turn.
    Shut,
}

/// The turns of a connection.
#[derive(Debug)]
pub(crate) struct ConnectionTurns {
    waiting: VecDeque<StreamKey>,
    active: Vec<StreamKey>,
    active_bytes: usize,
    reserved_bytes: usize,
    /// What messages that get their turn may lack together, by the layer above.
    allowance: usize,
    /// When it is looked for active messages that stand still.
    lapse_due_ns: Option<u64>,
    /// What the unfinished messages of the connection may have together for another to get its
    /// turn.
    bound_bytes: usize,
}

impl ConnectionTurns {
    /// Returns the turns of a connection whose unfinished messages may have so many bytes together
    /// for another to get its turn.
    pub(crate) fn new(bound_bytes: usize) -> ConnectionTurns {
        ConnectionTurns {
            waiting: VecDeque::new(),
            active: Vec::new(),
            active_bytes: 0,
            reserved_bytes: 0,
            allowance: usize::MAX,
            lapse_due_ns: None,
            bound_bytes,
        }
    }

    /// Bounds what messages that get their turn from now on may lack together.
    #[inline]
    pub(crate) fn set_allowance(&mut self, bytes: usize) {
        self.allowance = bytes;
    }

    /// Takes bytes from the allowance, if it has as many.
    pub(crate) fn take_allowance(&mut self, bytes: usize) -> bool {
        let is_enough = bytes <= self.allowance;
        if is_enough {
            self.allowance -= bytes;
        }
        is_enough
    }

    /// Returns what the messages whose turn it is still lack, in bytes.
    #[inline]
    pub(crate) fn active_bytes(&self) -> usize {
        self.active_bytes
    }

    /// Returns whether it is the turn of a message.
    #[inline]
    pub(crate) fn has_active(&self) -> bool {
        !self.active.is_empty()
    }

    /// Returns whether a message waits for its turn.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns when [`ConnectionTurns::lapse`] is to be called.
    #[inline]
    pub(crate) fn lapse_due_ns(&self) -> Option<u64> {
        self.lapse_due_ns
    }

    /// Returns what the first message that waits lacks, in bytes; 0 if none waits.
    pub(crate) fn next_bytes(&self, streams: &Streams) -> usize {
        let first = self.waiting.front();
        first.map_or(0, |key| missing_bytes(&streams[key.slot]))
    }

    /// Returns whether a message waits for which the connection has memory, beside the bytes of
    /// unfinished messages that it holds.
    #[inline]
    pub(crate) fn first_fits(&self, streams: &Streams, held_bytes: usize) -> bool {
        let first = self.waiting.front();
        first.is_some_and(|key| self.fits(&streams[key.slot], held_bytes))
    }

    /// Returns whether there is memory for what the message of a stream lacks.
    fn fits(&self, stream: &Stream, held_bytes: usize) -> bool {
        let reserved = stream.turn.reserved_bytes() as usize;
        let others = self.reserved_bytes - reserved;
        let more = missing_bytes(stream).saturating_sub(reserved);
        others == 0 || held_bytes + self.reserved_bytes + more <= self.bound_bytes
    }

    /// Returns whether the sender of the first message that waits has shown that it goes on.
    pub(crate) fn is_first_proven(&self, streams: &Streams) -> bool {
        let first = self.waiting.front();
        first.is_some_and(|key| streams[key.slot].turn.is_proven())
    }

    /// Some bytes of an unfinished message have come, which lacks `missing` now. Counts them, and
    /// lets the message wait if it needs a turn. Returns what happens to the window of the stream.
    pub(crate) fn count(
        &mut self,
        slot: u32,
        stream: &mut Stream,
        taken: u32,
        missing: usize,
    ) -> WindowAfter {
        let missing = u32::try_from(missing).unwrap_or(u32::MAX);
        stream.turn.count(taken);
        if stream.turn.is_probed() {
            return self.count_probed(slot, stream, taken, missing);
        }
        let came = stream.turn.settle(missing) as usize;
        self.reserved_bytes -= came;
        if stream.turn.is_active() {
            self.active_bytes -= came;
            return WindowAfter::Opened;
        }
        if missing <= stream.receive_window.available() && !stream.turn.is_waiting() {
            return WindowAfter::GivenBack;
        }
        if !stream.turn.is_waiting() {
            let (had_turn, id) = (stream.turn.reserved_bytes() > 0, stream.id());
            stream.turn.wait();
            // What was begun ends first.
            if had_turn {
                self.waiting.push_front(StreamKey { slot, id });
            } else {
                self.waiting.push_back(StreamKey { slot, id });
            }
        }
        WindowAfter::Shut
    }

    /// The same for a message that is probed: that is over when it has brought what it is to, or
    /// lacks no more than its window lets through.
    fn count_probed(
        &mut self,
        slot: u32,
        stream: &mut Stream,
        taken: u32,
        missing: u32,
    ) -> WindowAfter {
        let came = stream.turn.settle_probe(taken) as usize;
        self.reserved_bytes -= came;
        self.active_bytes -= came;
        if stream.turn.reserved_bytes() > 0 {
            // A window may be smaller than what the probe is to bring.
            return WindowAfter::Opened;
        }
        let id = stream.id();
        self.leave(stream.turn, id);
        if missing <= stream.receive_window.available() {
            stream.turn = MessageTurn::default();
            return WindowAfter::GivenBack;
        }
        stream.turn.wait_proven();
        self.waiting.push_front(StreamKey { slot, id });
        WindowAfter::Shut
    }

    /// Takes out the first message that waits, if there is memory for it, also where the layer
    /// above accounts for it, and if those whose turn it is lack less than `path_bytes`.
    pub(crate) fn take_next(
        &mut self,
        streams: &mut Streams,
        path_bytes: usize,
        held_bytes: usize,
    ) -> Option<StreamKey> {
        self.drop_idle(streams);
        let stream = &streams[self.waiting.front()?.slot];
        let is_next = self.active_bytes < path_bytes
            && missing_bytes(stream) <= self.allowance
            && self.fits(stream, held_bytes);
        if !is_next {
            return None;
        }
        let missing = missing_bytes(stream).min(u32::MAX as usize);
        self.allowance = self.allowance.saturating_sub(missing);
        self.waiting.pop_front()
    }

    /// Takes out the first message that waits, if the connection has memory for it, whatever the
    /// layer above allows.
    pub(crate) fn force_next(
        &mut self,
        streams: &mut Streams,
        held_bytes: usize,
    ) -> Option<StreamKey> {
        self.drop_idle(streams);
        match self.first_fits(streams, held_bytes) {
            true => self.waiting.pop_front(),
            false => None,
        }
    }

    /// Begins to probe the first message that waits, if the connection has memory for it and none
    /// is active or probed. Returns its stream.
    pub(crate) fn probe_next(
        &mut self,
        streams: &mut Streams,
        held_bytes: usize,
        now_ns: u64,
    ) -> Option<StreamKey> {
        if self.has_active() {
            return None;
        }
        let key = self.force_next(streams, held_bytes)?;
        let stream = &mut streams[key.slot];
        let bytes = missing_bytes(stream).min(limits::PROBE_BYTES as usize) as u32;
        self.reserve_turn(key, stream, bytes, |turn| turn.begin_probe(bytes, now_ns));
        Some(key)
    }

    /// Takes streams from the front of the list that need no turn any more.
    fn drop_idle(&mut self, streams: &mut Streams) {
        while let Some(&key) = self.waiting.front() {
            let stream = &mut streams[key.slot];
            debug_assert!(stream.id() == key.id && stream.turn.is_waiting());
            let is_idle = stream.is_receive_closed()
                || stream.is_work_done()
                || stream.inbound.missing().is_none();
            if !is_idle {
                return;
            }
            self.waiting.pop_front();
            stream.turn.stop_waiting();
        }
    }

    /// Begins the turn of a stream that has been taken out.
    pub(crate) fn begin(&mut self, key: StreamKey, stream: &mut Stream, now_ns: u64) {
        stream.inbound.reserve_message();
        let missing = u32::try_from(missing_bytes(stream)).unwrap_or(u32::MAX);
        self.reserve_turn(key, stream, missing, |turn| turn.begin(missing, now_ns));
    }

    fn reserve_turn(
        &mut self,
        key: StreamKey,
        stream: &mut Stream,
        bytes: u32,
        begin: impl FnOnce(&mut MessageTurn),
    ) {
        let before = stream.turn.reserved_bytes() as usize;
        begin(&mut stream.turn);
        self.reserved_bytes = self.reserved_bytes - before + bytes as usize;
        self.active_bytes += bytes as usize;
        self.active.push(key);
        self.lapse_due_ns.get_or_insert(stream.turn.lapses_at_ns());
    }

    /// The message of a stream is whole, or comes no more.
    #[inline]
    pub(crate) fn end(&mut self, stream: &mut Stream) {
        if !stream.turn.is_none() {
            self.leave(stream.turn, stream.id());
        }
        stream.turn = MessageTurn::default();
    }

    fn leave(&mut self, turn: MessageTurn, id: u32) {
        let reserved = turn.reserved_bytes() as usize;
        self.reserved_bytes -= reserved;
        if turn.is_waiting() {
            self.waiting.retain(|key| key.id != id);
        }
        if turn.is_expected() {
            self.active_bytes -= reserved;
            self.active.retain(|key| key.id != id);
            if self.active.is_empty() {
                self.lapse_due_ns = None;
            }
        }
    }

    /// Forgets all turns at once, as the connection is over: taking each stream out of the lists
    /// would be work for the square of their number.
    pub(crate) fn forget(&mut self, streams: &mut Streams) {
        *self = ConnectionTurns::new(self.bound_bytes);
        for (_, stream) in streams.iter_mut() {
            stream.turn = MessageTurn::default();
        }
    }

    /// Ends the turns of messages that stand still.
    #[cold]
    pub(crate) fn lapse(&mut self, streams: &mut Streams, now_ns: u64) {
        let (active_bytes, reserved_bytes) = (&mut self.active_bytes, &mut self.reserved_bytes);
        let mut due_ns: Option<u64> = None;
        self.active.retain(|key| {
            let turn = &mut streams[key.slot].turn;
            let is_probed = turn.is_probed();
            if turn.lapse(now_ns) {
                *active_bytes -= turn.reserved_bytes() as usize;
                if is_probed {
                    // What a probe lets through is as little as any window.
                    *reserved_bytes -= turn.settle(0) as usize;
                }
                return false;
            }
            let lapses_ns = turn.lapses_at_ns();
            due_ns = Some(due_ns.map_or(lapses_ns, |due_ns| due_ns.min(lapses_ns)));
            true
        });
        self.lapse_due_ns = due_ns;
    }

    /// Returns the bytes of memory that the lists hold.
    pub(crate) fn memory_bytes(&self) -> usize {
        (self.waiting.capacity() + self.active.capacity()) * size_of::<StreamKey>()
    }

    #[cfg(test)]
    pub(crate) fn reserve(&mut self, keys: usize) {
        self.waiting.reserve(keys);
        self.active.reserve(keys + 1);
    }

    /// Gives memory back that is not used.
    pub(crate) fn trim(&mut self) {
        self.waiting.shrink_to_fit();
        self.active.shrink_to_fit();
    }
}

/// Returns what the message lacks that a stream is sending, in bytes.
fn missing_bytes(stream: &Stream) -> usize {
    stream.inbound.missing().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::DeframeStep;
    use crate::http2::headers::BodyKind;

    #[test]
    fn the_lists_hold_the_memory_that_they_report() {
        for (waiting, active) in [(0, 0), (100, 0), (0, 100), (1_000, 30), (30, 1_000)] {
            let key = |slot| StreamKey { slot, id: slot };
            let mut turns = ConnectionTurns::new(0);
            let allocated = allocation_counter::measure(|| {
                turns.waiting.extend((0..waiting).map(key));
                turns.active.extend((0..active).map(key));
            });
            assert_eq!(turns.memory_bytes() as i64, allocated.bytes_current);
            turns.waiting.clear();
            turns.active.clear();
            turns.trim();
            assert_eq!(turns.memory_bytes(), 0);
        }
    }

    /// Streams of which each is sending a message of so many bytes, of which ten have come.
    fn streams(lengths: &[u32]) -> (Streams, Vec<StreamKey>) {
        let mut streams = Streams::default();
        let mut keys = Vec::new();
        for (at, length) in lengths.iter().enumerate() {
            let id = 2 * at as u32 + 1;
            let slot = streams.insert(id, BodyKind::Grpc, 100, 100);
            let frame = [&[0][..], &length.to_be_bytes(), &[7; 10]].concat();
            let inbound = &mut streams[slot].inbound;
            let step = inbound.find_message(&frame, &mut 0, usize::MAX);
            assert_eq!(step, Ok(DeframeStep::NeedMore));
            keys.push(StreamKey { slot, id });
        }
        (streams, keys)
    }

    #[test]
    fn messages_get_their_turns_in_the_order_in_which_they_were_begun() {
        let (mut streams, keys) = streams(&[1_010, 2_010, 60]);
        let mut turns = ConnectionTurns::new(10_000);
        for _ in 0..2 {
            for (key, expected) in
                keys.iter()
                    .zip([WindowAfter::Shut, WindowAfter::Shut, WindowAfter::GivenBack])
            {
                let stream = &mut streams[key.slot];
                let missing = stream.inbound.missing().expect("unfinished");
                assert_eq!(turns.count(key.slot, stream, 10, missing), expected);
            }
            assert_eq!(turns.next_bytes(&streams), 1_000);
            // The path is full as soon as the first has its turn.
            for (path_bytes, expected) in
                [(1, Some(keys[0])), (1_000, None), (1_001, Some(keys[1]))]
            {
                let next = turns.take_next(&mut streams, path_bytes, 0);
                assert_eq!(next, expected);
                if let Some(key) = next {
                    turns.begin(key, &mut streams[key.slot], 0);
                }
            }
            assert_eq!((turns.active_bytes(), turns.has_waiting()), (3_000, false));
            for key in &keys {
                turns.end(&mut streams[key.slot]);
            }
            assert_eq!((turns.active_bytes(), turns.lapse_due_ns()), (0, None));
        }
    }

    /// A message that is probed and stands still makes way for the next, and one that goes on is
    /// the first to get its turn.
    #[test]
    fn a_message_is_probed_once_for_a_little_and_comes_first_when_it_goes_on() {
        let probe = limits::PROBE_BYTES;
        let (mut streams, keys) = streams(&[100_010, 200_010]);
        let mut turns = ConnectionTurns::new(1_000_000);
        let mut now_ns = 0;
        for _ in 0..2 {
            for key in &keys {
                let stream = &mut streams[key.slot];
                let missing = missing_bytes(stream);
                turns.count(key.slot, stream, 10, missing);
            }
            assert!(!turns.is_first_proven(&streams));
            assert_eq!(turns.probe_next(&mut streams, 0, now_ns), Some(keys[0]));
            assert_eq!(
                turns.probe_next(&mut streams, 0, now_ns),
                None,
                "one at a time"
            );
            assert_eq!(turns.active_bytes(), probe as usize);
            now_ns += 1_000_000 * limits::TURN_LAPSE_MS;
            turns.lapse(&mut streams, now_ns);
            assert_eq!((turns.active_bytes(), turns.lapse_due_ns()), (0, None));
            assert_eq!(turns.probe_next(&mut streams, 0, now_ns), Some(keys[1]));
            let stream = &mut streams[keys[1].slot];
            // Its window may let through less than that at a time: then it is opened again.
            let steps = [
                (probe - 1, 1, WindowAfter::Opened),
                (1, 0, WindowAfter::Shut),
            ];
            for (came, left, expected) in steps {
                let after = turns.count(keys[1].slot, stream, came, 100_000);
                assert_eq!((after, turns.active_bytes()), (expected, left));
            }
            assert!(turns.is_first_proven(&streams) && !turns.has_active());
            // What has lapsed goes on, and stands behind.
            let stream = &mut streams[keys[0].slot];
            let after = turns.count(keys[0].slot, stream, 1, 100_000);
            assert_eq!(after, WindowAfter::Shut);
            assert_eq!(turns.take_next(&mut streams, 1_000, 0), Some(keys[1]));
            turns.begin(keys[1], &mut streams[keys[1].slot], now_ns);
            for key in &keys {
                turns.end(&mut streams[key.slot]);
            }
            assert_eq!((turns.active_bytes(), turns.reserved_bytes), (0, 0));
            assert!(!turns.has_waiting() && !turns.has_active());
        }
    }

    /// Adds a piece of each message, so that all of them wait.
    fn let_wait(turns: &mut ConnectionTurns, streams: &mut Streams, keys: &[StreamKey]) {
        for key in keys {
            let stream = &mut streams[key.slot];
            let missing = missing_bytes(stream);
            let after = turns.count(key.slot, stream, 10, missing);
            assert_eq!(after, WindowAfter::Shut);
        }
    }

    fn end_all(turns: &mut ConnectionTurns, streams: &mut Streams, keys: &[StreamKey]) {
        for key in keys {
            turns.end(&mut streams[key.slot]);
        }
        assert_eq!((turns.active_bytes(), turns.reserved_bytes), (0, 0));
        assert_eq!(turns.lapse_due_ns(), None);
        assert!(!turns.has_waiting() && !turns.has_active());
    }

    #[test]
    fn a_proven_message_comes_before_those_that_wait() {
        let (mut streams, keys) = streams(&[100_010, 200_010, 300_010]);
        let mut turns = ConnectionTurns::new(1_000_000);
        for _ in 0..2 {
            let_wait(&mut turns, &mut streams, &keys);
            assert_eq!(turns.probe_next(&mut streams, 0, 0), Some(keys[0]));
            let stream = &mut streams[keys[0].slot];
            let after = turns.count(keys[0].slot, stream, limits::PROBE_BYTES, 90_000);
            assert_eq!(after, WindowAfter::Shut);
            assert!(turns.is_first_proven(&streams));
            for key in &keys {
                assert_eq!(turns.force_next(&mut streams, 0), Some(*key));
                streams[key.slot].turn.stop_waiting();
            }
            end_all(&mut turns, &mut streams, &keys);
        }
    }

    /// It has memory reserved, which only its end gives back.
    #[test]
    fn a_message_that_stood_still_in_its_turn_comes_before_those_that_wait() {
        let (mut streams, keys) = streams(&[100_010, 200_010, 300_010]);
        let mut turns = ConnectionTurns::new(1_000_000);
        for _ in 0..2 {
            let_wait(&mut turns, &mut streams, &keys);
            assert_eq!(turns.force_next(&mut streams, 0), Some(keys[0]));
            turns.begin(keys[0], &mut streams[keys[0].slot], 0);
            let lapses_ns = turns.lapse_due_ns().expect("one is active");
            turns.lapse(&mut streams, lapses_ns);
            assert_eq!((turns.active_bytes(), turns.reserved_bytes), (0, 100_000));
            let stream = &mut streams[keys[0].slot];
            let after = turns.count(keys[0].slot, stream, 1, 99_999);
            assert_eq!(after, WindowAfter::Shut);
            for key in &keys {
                assert_eq!(turns.force_next(&mut streams, 0), Some(*key));
            }
            for key in &keys {
                streams[key.slot].turn.stop_waiting();
            }
            end_all(&mut turns, &mut streams, &keys);
        }
    }

    /// Turns that begin later, and probes that do, do not put off the look at those before.
    #[test]
    fn a_message_that_stands_still_lapses_in_its_time_while_others_begin() {
        let (mut streams, keys) = streams(&[1_010, 2_010, 3_010]);
        let mut turns = ConnectionTurns::new(10_000);
        let lapse_ns = 1_000_000 * limits::TURN_LAPSE_MS;
        for begun_ns in [5, 7 * lapse_ns] {
            let_wait(&mut turns, &mut streams, &keys);
            for (key, later_ns) in keys.iter().zip([0, 1, lapse_ns - 1]) {
                assert_eq!(turns.force_next(&mut streams, 0), Some(*key));
                turns.begin(*key, &mut streams[key.slot], begun_ns + later_ns);
                assert_eq!(turns.lapse_due_ns(), Some(begun_ns + lapse_ns));
            }
            for (later_ns, active_bytes, due_ns) in [
                (0, 5_000, Some(1)),
                (1, 3_000, Some(lapse_ns - 1)),
                (lapse_ns - 1, 0, None),
            ] {
                turns.lapse(&mut streams, begun_ns + lapse_ns + later_ns);
                assert_eq!(turns.active_bytes(), active_bytes);
                let expected = due_ns.map(|due_ns| begun_ns + lapse_ns + due_ns);
                assert_eq!(turns.lapse_due_ns(), expected);
            }
            end_all(&mut turns, &mut streams, &keys);
        }
    }

    #[test]
    fn a_message_waits_for_memory_here_and_above() {
        let (mut streams, keys) = streams(&[1_010, 2_010]);
        let mut turns = ConnectionTurns::new(1_500);
        for key in &keys {
            let stream = &mut streams[key.slot];
            let missing = missing_bytes(stream);
            turns.count(key.slot, stream, 10, missing);
        }
        turns.set_allowance(999);
        assert_eq!(turns.take_next(&mut streams, 5_000, 0), None);
        turns.set_allowance(1_000);
        assert_eq!(turns.take_next(&mut streams, 5_000, 0), Some(keys[0]));
        assert!(!turns.take_allowance(1), "it is used up");
        turns.begin(keys[0], &mut streams[keys[0].slot], 0);
        assert!(!turns.first_fits(&streams, 0), "1000 are reserved of 1500");
        assert_eq!(turns.force_next(&mut streams, 0), None);
        turns.end(&mut streams[keys[0].slot]);
        // The first may always come: there would be no end otherwise.
        assert_eq!(turns.force_next(&mut streams, 1_500), Some(keys[1]));
    }
}
