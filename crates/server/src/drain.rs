//! The end of a loop's work, as times: peers are told, what runs ends with a status.

use crate::limits;

/// A loop that drains.
pub(crate) struct Drain {
    /// Calls that wait for their peer then are ended.
    idle_until_ns: u64,
    idle_time_is_over: bool,
    /// When calls and connections are looked at next.
    look_ns: u64,
    /// All calls that still run then are ended.
    last_call_ns: u64,
}

impl Drain {
    /// Begins a drain that has `drain_ms` milliseconds from now on.
    pub fn new(drain_ms: u64, now_ns: u64) -> Drain {
        let idle_ms = limits::DRAIN_IDLE_MS.min(drain_ms / 2);
        let last_call_ms = drain_ms - limits::LAST_CALL_MS.min(drain_ms / 4);
        let idle_until_ns = now_ns + idle_ms * 1_000_000;
        Drain {
            idle_until_ns,
            idle_time_is_over: false,
            look_ns: idle_until_ns,
            last_call_ns: now_ns.saturating_add(last_call_ms.saturating_mul(1_000_000)),
        }
    }

    /// Returns whether peers have had the time that a drain gives them.
    pub fn idle_time_is_over(&self) -> bool {
        self.idle_time_is_over
    }

    /// Returns whether all calls that still run are to be ended.
    pub fn is_past_last_call(&self, now_ns: u64) -> bool {
        now_ns >= self.last_call_ns
    }

    /// Returns whether calls and connections are to be looked at: when the idle time ends, as often
    /// as peers may have stopped to take what is sent to them since, and always from the last call
    /// on.
    pub fn is_due(&mut self, now_ns: u64) -> bool {
        self.idle_time_is_over |= now_ns >= self.idle_until_ns;
        let is_due = now_ns >= self.look_ns;
        if is_due {
            self.look_ns = now_ns + TAKE_NS;
        }
        is_due || self.is_past_last_call(now_ns)
    }

    /// Notes when a peer took something last: if it takes nothing more, it is looked at as soon as
    /// its time is over.
    pub fn note_taken(&mut self, taken_ns: u64) {
        self.look_ns = self.look_ns.min(taken_ns + TAKE_NS);
    }

    /// Returns whether a peer has taken nothing for so long that it is not waited for.
    pub fn is_stalled(&self, taken_ns: u64, now_ns: u64) -> bool {
        self.idle_time_is_over && now_ns >= taken_ns.saturating_add(TAKE_NS)
    }

    /// Returns when something is to be done. The idle time ends also for peers without calls.
    pub fn deadline_ns(&self, has_calls: bool) -> u64 {
        match has_calls && self.idle_time_is_over {
            true => self.look_ns.min(self.last_call_ns),
            false => self.look_ns,
        }
    }
}

/// How long a peer may take nothing of what is sent to it, once the idle time is over.
const TAKE_NS: u64 = limits::DRAIN_IDLE_MS * 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_drain_looks_when_the_idle_time_ends_then_now_and_then_and_always_from_the_last_call_on() {
        let (idle_ns, take_ns) = (limits::DRAIN_IDLE_MS * MS, TAKE_NS);
        let last_ns = (60_000 - limits::LAST_CALL_MS) * MS;
        let mut drain = Drain::new(60_000, 0);
        for (now_ns, is_due, is_over, deadline_ns) in [
            (idle_ns - 1, false, false, idle_ns),
            (idle_ns, true, true, idle_ns + take_ns),
            (idle_ns + 1, false, true, idle_ns + take_ns),
            (idle_ns + take_ns + 5, true, true, idle_ns + 2 * take_ns + 5),
            (last_ns - 1, true, true, last_ns),
            (last_ns, true, true, last_ns),
            (last_ns + 1, true, true, last_ns),
        ] {
            assert_eq!(drain.is_due(now_ns), is_due, "{now_ns}");
            assert_eq!(drain.idle_time_is_over(), is_over, "{now_ns}");
            assert_eq!(drain.deadline_ns(true), deadline_ns, "{now_ns}");
            assert_eq!(drain.is_past_last_call(now_ns), now_ns >= last_ns);
        }
        let look_ns = last_ns - 1 + take_ns;
        assert_eq!(drain.deadline_ns(false), look_ns, "there is no last call");
    }

    #[test]
    fn a_peer_is_stalled_when_it_has_taken_nothing_for_its_time_and_is_looked_at_then() {
        let idle_ns = limits::DRAIN_IDLE_MS * MS;
        let mut drain = Drain::new(60_000, 0);
        assert!(!drain.is_stalled(0, idle_ns), "the idle time is not over");
        assert!(drain.is_due(idle_ns));
        for taken_ns in [idle_ns - 1, idle_ns - 9] {
            let end_ns = taken_ns + TAKE_NS;
            assert!(!drain.is_stalled(taken_ns, end_ns - 1));
            assert!(drain.is_stalled(taken_ns, end_ns));
            drain.note_taken(taken_ns);
            assert_eq!(drain.deadline_ns(true), end_ns);
        }
        drain.note_taken(idle_ns);
        assert_eq!(drain.deadline_ns(true), idle_ns - 9 + TAKE_NS, "the first");
    }

    #[test]
    fn a_short_drain_has_a_share_for_each_part() {
        let drain = Drain::new(400, 0);
        assert_eq!(drain.deadline_ns(true), 200 * MS);
        assert!(!drain.is_past_last_call(300 * MS - 1) && drain.is_past_last_call(300 * MS));
    }
}
