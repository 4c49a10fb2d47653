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
//! Invariants: a stream stands in `waiting` exactly while its state is `Waiting`, in `active` while
//! it is `Active`; `active_bytes` is what the active messages lack, `reserved_bytes` what those
//! lack that ever had a turn. If nothing is reserved and the layer above allows it, the first that
//! waits gets its turn: there is always a message that may end.

use std::collections::VecDeque;

use super::connection::Connection;
use super::frame;
use super::streams::StreamKey;
use super::timers::NS_PER_MS;
use crate::limits;

/// How far the turn of a message has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum TurnState {
    /// It needs none: its window lets all of it through, or there is no message.
    #[default]
    None,
    /// Others come first. Its window stays shut.
    Waiting,
    /// Its window is opened for all that it lacks.
    Active,
    /// It stood still in its turn. It may use what it was allowed, and gets another turn when it
    /// does.
    Lapsed,
}

/// The turn of the message that a stream is sending.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    state: TurnState,
    /// What the message lacks, since its turn has begun; else 0.
    reserved: u32,
    /// Bytes that came since `since_ns`.
    brought: u32,
    /// Active: since when its progress is measured.
    since_ns: u64,
}

impl Turn {
    /// Whether the message waits for its turn.
    #[inline]
    pub(crate) fn is_waiting(self) -> bool {
        self.state == TurnState::Waiting
    }

    /// Whether it is the message's turn: its bytes are accounted for.
    pub(crate) fn is_active(self) -> bool {
        self.state == TurnState::Active
    }

    /// Whether the message had a turn.
    pub(crate) fn was_granted(self) -> bool {
        self.reserved > 0
    }

    /// Notes that bytes of the stream have come.
    #[inline]
    pub(crate) fn brought(&mut self, bytes: u32) {
        self.brought = self.brought.saturating_add(bytes);
    }

    fn lapses_at_ns(self) -> u64 {
        self.since_ns + limits::TURN_LAPSE_MS * NS_PER_MS
    }
}

/// The turns of a connection.
#[derive(Debug)]
pub(crate) struct Turns {
    waiting: VecDeque<StreamKey>,
    active: Vec<StreamKey>,
    active_bytes: usize,
    reserved_bytes: usize,
    /// What messages that get their turn may lack together, by the layer above.
    allowance: usize,
    /// When it is looked for active messages that stand still.
    lapse_due_ns: Option<u64>,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns {
            waiting: VecDeque::new(),
            active: Vec::new(),
            active_bytes: 0,
            reserved_bytes: 0,
            allowance: usize::MAX,
            lapse_due_ns: None,
        }
    }
}

impl Turns {
    /// What the messages whose turn it is still lack.
    #[inline]
    pub(crate) fn active_bytes(&self) -> usize {
        self.active_bytes
    }

    /// When [`Connection::lapse_turns`] is to be called.
    #[inline]
    pub(crate) fn lapse_due_ns(&self) -> Option<u64> {
        self.lapse_due_ns
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        (self.waiting.capacity() + self.active.capacity()) * size_of::<StreamKey>()
    }

    #[cfg(test)]
    pub(crate) fn reserve(&mut self, keys: usize) {
        self.waiting.reserve(keys);
        self.active.reserve(keys + 1);
    }

    pub(crate) fn trim(&mut self) {
        self.waiting.shrink_to_fit();
        self.active.shrink_to_fit();
    }
}

impl Connection {
    /// Bounds what messages that get their turn from now on may lack together, in bytes: what the
    /// layer above can still account for. Unbounded at first. Turns are given by the next
    /// [`Connection::poll_event`] that returns `None`.
    #[inline]
    pub fn set_turn_allowance(&mut self, bytes: usize) {
        self.turns.allowance = bytes;
    }

    /// Whether messages wait for their turn, or for memory to be decompressed, and none has it
    /// since the layer above allows too little.
    #[inline]
    pub fn waits_for_turn(&self) -> bool {
        let first = self.turns.waiting.front();
        !self.has_turn()
            && (self.unpacks.awaits_memory()
                || first.is_some_and(|&key| self.fits(key, usize::MAX)))
    }

    /// Returns what the message lacks that gets the next turn, in bytes; 0 if none waits.
    pub fn next_turn_bytes(&self) -> usize {
        if self.unpacks.awaits_memory() {
            return self.unpacks.next_bytes();
        }
        let stream = (self.turns.waiting.front()).map(|key| &self.streams[key.slot]);
        stream
            .and_then(|stream| stream.inbound.deframer.missing())
            .unwrap_or(0)
    }

    /// Whether it is the turn of a message, or one is decompressed in steps.
    #[inline]
    pub fn has_turn(&self) -> bool {
        !self.turns.active.is_empty() || self.unpacks.is_granted()
    }

    /// Gives the first message that waits its turn, whatever the layer above allows, if none has it
    /// and the connection's own bound lets it.
    pub fn force_turn(&mut self, out: &mut Vec<u8>) {
        if !self.waits_for_turn() {
            return;
        }
        if self.unpacks.awaits_memory() {
            return self.unpacks.grant();
        }
        self.drop_idle_waiters();
        if self.waits_for_turn()
            && let Some(key) = self.turns.waiting.pop_front()
        {
            self.begin_turn(key, out);
        }
    }

    /// The bytes of an unfinished message that have just come are out of the window. Gives them
    /// back if the message needs no turn or has it, and else lets it wait for its turn.
    pub(super) fn go_on_with_message(&mut self, slot: u32, taken: u32, out: &mut Vec<u8>) {
        let stream = &mut self.streams[slot];
        let inbound = &stream.inbound;
        // What comes in parts is not kept.
        let is_gathered = !inbound.takes_parts || inbound.deframer.gathered_len() > 0;
        let Some(missing) = inbound.deframer.missing().filter(|_| is_gathered) else {
            return self.give_window_back(slot, taken, out);
        };
        let missing = u32::try_from(missing).unwrap_or(u32::MAX);
        stream.turn.brought(taken);
        let came = stream.turn.reserved.saturating_sub(missing);
        if came > 0 {
            stream.turn.reserved = missing;
            self.turns.reserved_bytes -= came as usize;
            if stream.turn.state == TurnState::Active {
                self.turns.active_bytes -= came as usize;
            }
        }
        if stream.turn.state == TurnState::Active {
            stream.receive_window.give(taken);
            return self.open_window(slot, out);
        }
        if missing <= stream.receive_window.available() && !stream.turn.is_waiting() {
            return self.give_window_back(slot, taken, out);
        }
        stream.receive_window.give(taken);
        let had_turn = stream.turn.state == TurnState::Lapsed;
        if !stream.turn.is_waiting() {
            stream.turn.state = TurnState::Waiting;
            let key = StreamKey {
                slot,
                id: stream.id,
            };
            // What was begun ends first.
            if had_turn {
                self.turns.waiting.push_front(key);
            } else {
                self.turns.waiting.push_back(key);
            }
        }
    }

    /// Opens the window of a stream whose turn it is for what its message lacks, or for a good part
    /// of it.
    fn open_window(&mut self, slot: u32, out: &mut Vec<u8>) {
        let stream = &mut self.streams[slot];
        if stream.receive_closed || stream.is_dead() {
            return;
        }
        let increment = if self.config.stream_window.is_some() {
            stream.receive_window.announce()
        } else {
            let step = limits::MAX_STREAM_WINDOW_BYTES
                .min(stream.window_limit.max(limits::STREAM_WINDOW_BYTES));
            let wanted = stream.turn.reserved.min(step);
            let available = stream.receive_window.available();
            if available >= wanted || available > step / 2 {
                return;
            }
            stream.receive_window.open_to(wanted)
        };
        if let Some(increment) = increment {
            frame::write_window_update(out, stream.id, increment);
        }
    }

    /// Lets the next compressed message be unpacked, if there is memory for what it becomes.
    #[cold]
    fn grant_unpacking(&mut self) {
        let bytes = self.unpacks.next_bytes();
        if !self.windows_shut && bytes <= self.turns.allowance {
            self.turns.allowance -= bytes;
            self.unpacks.grant();
        }
    }

    /// Gives the messages that wait their turns, as far as the way and the memory are free.
    #[inline]
    pub(super) fn grant_turns(&mut self, out: &mut Vec<u8>) {
        if self.unpacks.awaits_memory() {
            self.grant_unpacking();
        }
        if !self.turns.waiting.is_empty() {
            self.grant_some_turns(out);
        }
    }

    fn grant_some_turns(&mut self, out: &mut Vec<u8>) {
        // The list becomes shorter each time.
        loop {
            self.drop_idle_waiters();
            let Some(&key) = self.turns.waiting.front() else {
                return;
            };
            let is_full = self.turns.active_bytes >= self.receive_window.size() as usize;
            if is_full || self.windows_shut || !self.fits(key, self.turns.allowance) {
                return;
            }
            self.turns.waiting.pop_front();
            let missing = self.begin_turn(key, out);
            self.turns.allowance = self.turns.allowance.saturating_sub(missing);
        }
    }

    /// Whether there is memory for what the message of a stream lacks: here, and where the layer
    /// above accounts for it.
    fn fits(&self, key: StreamKey, allowance: usize) -> bool {
        let stream = &self.streams[key.slot];
        let missing = stream.inbound.deframer.missing().unwrap_or(0);
        let more = missing.saturating_sub(stream.turn.reserved as usize);
        let others = self.turns.reserved_bytes - stream.turn.reserved as usize;
        let bound = self.config.max_gathered_bytes / limits::TURNS_SHARE;
        let fits_here =
            others == 0 || self.gathered_bytes + self.turns.reserved_bytes + more <= bound;
        fits_here && missing <= allowance
    }

    /// Takes streams from the front of the list that need no turn any more.
    fn drop_idle_waiters(&mut self) {
        while let Some(&key) = self.turns.waiting.front() {
            let stream = &mut self.streams[key.slot];
            debug_assert!(stream.id == key.id && stream.turn.is_waiting());
            let is_idle = stream.receive_closed
                || stream.work_done
                || stream.inbound.deframer.missing().is_none();
            if !is_idle {
                return;
            }
            self.turns.waiting.pop_front();
            stream.turn.state = if stream.turn.was_granted() {
                TurnState::Lapsed
            } else {
                TurnState::None
            };
        }
    }

    /// Begins the turn of a stream that has been taken from the list; returns what its message
    /// lacks.
    fn begin_turn(&mut self, key: StreamKey, out: &mut Vec<u8>) -> usize {
        let stream = &mut self.streams[key.slot];
        let missing = stream.inbound.deframer.missing().unwrap_or(0);
        stream.inbound.deframer.reserve_message();
        let before = stream.turn.reserved as usize;
        stream.turn = Turn {
            state: TurnState::Active,
            reserved: u32::try_from(missing).unwrap_or(u32::MAX),
            brought: 0,
            since_ns: self.now_ns,
        };
        let lapses_ns = stream.turn.lapses_at_ns();
        let reserved = stream.turn.reserved as usize;
        let turns = &mut self.turns;
        turns.reserved_bytes = turns.reserved_bytes - before + reserved;
        turns.active_bytes += reserved;
        turns.active.push(key);
        turns.lapse_due_ns.get_or_insert(lapses_ns);
        self.measure_bandwidth(out);
        self.open_window(key.slot, out);
        reserved
    }

    /// The message of a stream is whole, or comes no more.
    #[inline]
    pub(super) fn end_turn(&mut self, slot: u32) {
        if self.streams[slot].turn.state != TurnState::None {
            self.leave_turns(slot);
        }
        self.streams[slot].turn = Turn::default();
    }

    fn leave_turns(&mut self, slot: u32) {
        let (turn, id) = (self.streams[slot].turn, self.streams[slot].id);
        let turns = &mut self.turns;
        turns.reserved_bytes -= turn.reserved as usize;
        match turn.state {
            TurnState::Waiting => turns.waiting.retain(|key| key.id != id),
            TurnState::Active => {
                turns.active_bytes -= turn.reserved as usize;
                turns.active.retain(|key| key.id != id);
                if turns.active.is_empty() {
                    turns.lapse_due_ns = None;
                }
            }
            TurnState::None | TurnState::Lapsed => {}
        }
    }

    /// Forgets all turns at once, as the connection is over: taking each stream out of the lists
    /// would be work for the square of their number.
    pub(super) fn forget_turns(&mut self) {
        self.turns = Turns::default();
        for (_, stream) in self.streams.iter_mut() {
            stream.turn = Turn::default();
        }
    }

    /// Ends the turns of messages that stand still, so that others get theirs.
    #[cold]
    pub(super) fn lapse_turns(&mut self, out: &mut Vec<u8>) {
        let now_ns = self.now_ns;
        let (streams, turns) = (&mut self.streams, &mut self.turns);
        let mut due_ns = None;
        turns.active.retain(|key| {
            let turn = &mut streams[key.slot].turn;
            if now_ns >= turn.lapses_at_ns() {
                if turn.brought < limits::TURN_PROGRESS_BYTES {
                    turn.state = TurnState::Lapsed;
                    turns.active_bytes -= turn.reserved as usize;
                    return false;
                }
                (turn.since_ns, turn.brought) = (now_ns, 0);
            }
            let lapses_ns = turn.lapses_at_ns();
            due_ns = Some(due_ns.map_or(lapses_ns, |due_ns: u64| due_ns.min(lapses_ns)));
            true
        });
        turns.lapse_due_ns = due_ns;
        self.grant_turns(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_hold_the_memory_that_they_report() {
        for (waiting, active) in [(0, 0), (100, 0), (0, 100), (1_000, 30), (30, 1_000)] {
            let key = |slot| StreamKey { slot, id: slot };
            let mut turns = Turns::default();
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
}
