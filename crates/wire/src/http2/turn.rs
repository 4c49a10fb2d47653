//! The turn of the message that one stream is sending.

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
    /// Its window is opened for a little, so that its sender shows that it goes on.
    Probed,
    /// It stood still in its turn. It may use what it was allowed, and gets another turn when it
    /// does.
    Lapsed,
}

/// The turn of the message that a stream is sending.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MessageTurn {
    state: TurnState,
    /// Waiting: its sender has shown that it goes on.
    is_proven: bool,
    /// What the message lacks, since its turn has begun; of a probe, what it is to bring; else 0.
    reserved: u32,
    /// Bytes that came since `since_ns`.
    brought: u32,
    /// Active: since when its progress is measured.
    since_ns: u64,
}

impl MessageTurn {
    /// Returns whether the message needs no turn.
    #[inline]
    pub(crate) fn is_none(self) -> bool {
        self.state == TurnState::None
    }

    /// Returns whether the message waits for its turn.
    #[inline]
    pub(crate) fn is_waiting(self) -> bool {
        self.state == TurnState::Waiting
    }

    /// Returns whether it is the message's turn: its bytes are accounted for.
    #[inline]
    pub(crate) fn is_active(self) -> bool {
        self.state == TurnState::Active
    }

    /// Returns whether the message is to show that its sender goes on.
    #[inline]
    pub(crate) fn is_probed(self) -> bool {
        self.state == TurnState::Probed
    }

    /// Returns whether the bytes that come next are accounted for: it is the message's turn, or it
    /// is probed.
    #[inline]
    pub(crate) fn is_expected(self) -> bool {
        self.is_active() || self.is_probed()
    }

    /// Returns whether the message waits, and its sender has shown that it goes on.
    pub(crate) fn is_proven(self) -> bool {
        self.is_waiting() && self.is_proven
    }

    /// Returns whether the message stood still in its turn.
    #[cfg(test)]
    pub(crate) fn has_lapsed(self) -> bool {
        self.state == TurnState::Lapsed
    }

    /// Returns the bytes that are accounted for and have not come.
    #[inline]
    pub(crate) fn reserved_bytes(self) -> u32 {
        self.reserved
    }

    /// Returns when the turn lapses, unless enough comes before.
    pub(crate) fn lapses_at_ns(self) -> u64 {
        self.since_ns + limits::TURN_LAPSE_MS * NS_PER_MS
    }

    /// Counts bytes of the stream that have come.
    #[inline]
    pub(crate) fn count(&mut self, bytes: u32) {
        self.brought = self.brought.saturating_add(bytes);
    }

    /// Takes out of what is accounted for what the message lacks no more; returns how much.
    pub(crate) fn settle(&mut self, missing: u32) -> u32 {
        let came = self.reserved.saturating_sub(missing);
        self.reserved -= came;
        came
    }

    /// Takes bytes that have come out of what a probe is to bring; returns how many.
    pub(crate) fn settle_probe(&mut self, bytes: u32) -> u32 {
        let came = self.reserved.min(bytes);
        self.reserved -= came;
        came
    }

    /// Lets the message wait for its turn.
    pub(crate) fn wait(&mut self) {
        (self.state, self.is_proven) = (TurnState::Waiting, false);
    }

    /// Lets the message, of which has come what was asked for, wait for its turn.
    pub(crate) fn wait_proven(&mut self) {
        (self.state, self.is_proven) = (TurnState::Waiting, true);
    }

    /// Lets the message wait no more, as it needs no turn now.
    pub(crate) fn stop_waiting(&mut self) {
        self.state = match self.reserved > 0 {
            true => TurnState::Lapsed,
            false => TurnState::None,
        };
    }

    /// Begins the turn of a message that lacks so many bytes.
    pub(crate) fn begin(&mut self, missing: u32, now_ns: u64) {
        *self = MessageTurn {
            state: TurnState::Active,
            is_proven: false,
            reserved: missing,
            brought: 0,
            since_ns: now_ns,
        };
    }

    /// Begins a probe, which is to bring so many bytes.
    pub(crate) fn begin_probe(&mut self, bytes: u32, now_ns: u64) {
        self.begin(bytes, now_ns);
        self.state = TurnState::Probed;
    }

    /// Ends the turn if too little has come in its time, and returns whether it did. Otherwise the
    /// time begins anew when it is over.
    pub(crate) fn lapse(&mut self, now_ns: u64) -> bool {
        if now_ns < self.lapses_at_ns() {
            return false;
        }
        if self.is_probed() || self.brought < limits::TURN_PROGRESS_BYTES {
            self.state = TurnState::Lapsed;
            return true;
        }
        (self.since_ns, self.brought) = (now_ns, 0);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_lapses_when_too_little_comes_in_its_time() {
        let lapse_ns = limits::TURN_LAPSE_MS * NS_PER_MS;
        let mut turn = MessageTurn::default();
        for begun_ns in [5, 1_000] {
            turn.begin(100_000, begun_ns);
            assert!(turn.is_active());
            turn.count(limits::TURN_PROGRESS_BYTES);
            assert!(!turn.lapse(begun_ns + lapse_ns - 1));
            assert!(!turn.lapse(begun_ns + lapse_ns), "enough has come");
            turn.count(limits::TURN_PROGRESS_BYTES - 1);
            assert!(!turn.lapse(begun_ns + 2 * lapse_ns - 1));
            assert!(turn.lapse(begun_ns + 2 * lapse_ns));
            assert!(turn.has_lapsed() && !turn.is_active());
        }
    }

    #[test]
    fn a_probe_is_over_when_it_has_brought_what_it_is_to_or_after_its_time() {
        let mut turn = MessageTurn::default();
        for begun_ns in [5, 1_000] {
            turn.wait();
            assert!(!turn.is_proven());
            turn.begin_probe(100, begun_ns);
            assert!(turn.is_probed() && turn.is_expected() && !turn.is_active());
            assert_eq!((turn.settle_probe(60), turn.reserved_bytes()), (60, 40));
            assert_eq!((turn.settle_probe(60), turn.reserved_bytes()), (40, 0));
            turn.wait_proven();
            assert!(turn.is_proven() && !turn.is_expected());
            turn.begin(1_000, begun_ns);
            assert!(turn.is_active() && !turn.is_probed());
            turn.wait();
            assert!(!turn.is_proven(), "each turn asks for another proof");
            turn.begin_probe(100, begun_ns);
            turn.count(99);
            assert!(!turn.lapse(turn.lapses_at_ns() - 1));
            assert!(turn.lapse(turn.lapses_at_ns()) && turn.has_lapsed());
        }
    }

    #[test]
    fn what_has_come_is_no_longer_reserved() {
        let mut turn = MessageTurn::default();
        assert_eq!(turn.settle(10), 0, "nothing was reserved");
        turn.begin(100, 0);
        assert_eq!((turn.settle(70), turn.reserved_bytes()), (30, 70));
        assert_eq!((turn.settle(90), turn.reserved_bytes()), (0, 70));
        turn.wait();
        turn.stop_waiting();
        assert!(turn.has_lapsed(), "it had a turn");
        assert_eq!(turn.settle(0), 70);
        turn.wait();
        turn.stop_waiting();
        assert!(turn.is_none(), "nothing is reserved for it");
    }
}
