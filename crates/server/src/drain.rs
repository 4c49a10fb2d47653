//! The end of a loop's work, as times: peers are told, what runs ends with a status.

use crate::limits;

/// A loop that drains.
pub(crate) struct Drain {
    /// Calls that wait for their peer then are ended.
    idle_until_ns: u64,
    idle_time_is_over: bool,
    /// All calls that still run then are ended.
    last_call_ns: u64,
}

impl Drain {
    /// Begins a drain that has `drain_ms` milliseconds from now on.
    pub fn new(drain_ms: u64, now_ns: u64) -> Drain {
        let idle_ms = limits::DRAIN_IDLE_MS.min(drain_ms / 2);
        let last_call_ms = drain_ms - limits::LAST_CALL_MS.min(drain_ms / 4);
        Drain {
            idle_until_ns: now_ns + idle_ms * 1_000_000,
            idle_time_is_over: false,
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

    /// Returns whether calls are to be looked at: once when the idle time ends, and always from
    /// the last call on.
    pub fn is_due(&mut self, now_ns: u64) -> bool {
        let idle_time_ends = now_ns >= self.idle_until_ns && !self.idle_time_is_over;
        self.idle_time_is_over |= idle_time_ends;
        idle_time_ends || self.is_past_last_call(now_ns)
    }

    /// Returns when something is to be done. The idle time ends also for peers without calls.
    pub fn deadline_ns(&self, has_calls: bool, now_ns: u64) -> u64 {
        if !self.idle_time_is_over {
            return self.idle_until_ns;
        }
        if has_calls {
            return self.last_call_ns;
        }
        // Nothing else may tell that a peer has stopped to take its answer.
        now_ns + limits::DRAIN_IDLE_MS * 1_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn idle_calls_end_once_and_all_calls_from_the_last_call_on() {
        let idle_ns = limits::DRAIN_IDLE_MS * MS;
        let last_ns = (60_000 - limits::LAST_CALL_MS) * MS;
        let mut drain = Drain::new(60_000, 0);
        for (now_ns, is_due, is_over, deadline_ns) in [
            (idle_ns - 1, false, false, idle_ns),
            (idle_ns, true, true, last_ns),
            (idle_ns + 1, false, true, last_ns),
            (last_ns - 1, false, true, last_ns),
            (last_ns, true, true, last_ns),
            (last_ns + 1, true, true, last_ns),
        ] {
            assert_eq!(drain.is_due(now_ns), is_due, "{now_ns}");
            assert_eq!(drain.idle_time_is_over(), is_over, "{now_ns}");
            assert_eq!(drain.deadline_ns(true, now_ns), deadline_ns, "{now_ns}");
            assert_eq!(drain.is_past_last_call(now_ns), now_ns >= last_ns);
        }
        assert_eq!(drain.deadline_ns(false, 7), 7 + idle_ns, "looked at again");
    }

    #[test]
    fn a_short_drain_has_a_share_for_each_part() {
        let drain = Drain::new(400, 0);
        assert_eq!(drain.deadline_ns(true, 0), 200 * MS);
        assert!(!drain.is_past_last_call(300 * MS - 1) && drain.is_past_last_call(300 * MS));
    }
}
