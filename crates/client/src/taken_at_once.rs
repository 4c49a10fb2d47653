//! Servers that refuse calls beside others.

use crate::limits;

/// How many calls a server takes at once on a connection, as its refusals tell.
///
/// Servers of gRPC's C core count a call for a while after its end, and refuse the next one
/// (REFUSED_STREAM, RFC 9113 section 8.7) although fewer are open than they have announced. Whoever
/// begins it again at once is refused again. So it waits for the end of another one, and what is
/// taken at once grows slowly from there.
#[derive(Debug, Default)]
pub struct TakenAtOnce {
    /// `None`: nothing was refused.
    calls: Option<usize>,
    /// Calls that have ended since this was set.
    ended: usize,
    /// When the last call ended.
    ended_ns: Option<u64>,
}

impl TakenAtOnce {
    /// A call was refused while `beside` others were open. Returns how long to wait before it is
    /// made again, beside the end of another one; `None`: there is nothing to wait for, and the
    /// server would refuse it for ever.
    pub fn refused(&mut self, beside: usize, now_ns: u64) -> Option<u64> {
        self.calls = Some(beside.max(1));
        self.ended = 0;
        if beside > 0 {
            return Some(0);
        }
        let since_ns = now_ns.saturating_sub(self.ended_ns?);
        let is_counted = since_ns < limits::ENDED_CALL_COUNTS.as_nanos() as u64;
        is_counted.then_some(limits::PAUSE_AFTER_REFUSAL.as_nanos() as u64)
    }

    /// A call has ended that was not refused. When as many have as are taken at once, one more is
    /// tried.
    pub fn ended(&mut self, now_ns: u64) {
        self.ended_ns = Some(now_ns);
        let Some(calls) = self.calls else {
            return;
        };
        self.ended += 1;
        if self.ended >= calls {
            self.calls = Some(calls.saturating_add(1));
            self.ended = 0;
        }
    }

    /// Returns whether a call has ended that was not refused.
    pub fn has_ended(&self) -> bool {
        self.ended_ns.is_some()
    }

    /// Returns how many more are taken beside `open` ones.
    pub fn room(&self, open: usize) -> usize {
        self.calls
            .map_or(usize::MAX, |calls| calls.saturating_sub(open))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn nothing_is_held_back_before_a_refusal() {
        let mut taken = TakenAtOnce::default();
        taken.ended(0);
        assert_eq!(taken.room(1_000), usize::MAX);
    }

    #[test]
    fn one_more_is_tried_for_as_many_as_have_ended() {
        let mut taken = TakenAtOnce::default();
        taken.ended(0);
        for _ in 0..2 {
            assert_eq!(taken.refused(3, 0), Some(0));
            assert_eq!((taken.room(0), taken.room(3), taken.room(4)), (3, 0, 0));
            taken.ended(0);
            taken.ended(0);
            assert_eq!((taken.room(2), taken.room(3)), (1, 0));
            taken.ended(0);
            assert_eq!((taken.room(3), taken.room(4)), (1, 0));
            for _ in 0..4 {
                assert_eq!(taken.room(4), 0);
                taken.ended(0);
            }
            assert_eq!(taken.room(4), 1);
        }
    }

    #[test]
    fn a_call_that_is_refused_alone_waits_only_for_one_that_has_ended() {
        let mut taken = TakenAtOnce::default();
        assert_eq!(taken.refused(0, 0), None);
        for ended_ns in [0, 500 * MS] {
            taken.ended(ended_ns);
            assert_eq!(taken.refused(0, ended_ns + 99 * MS), Some(MS));
            assert_eq!(taken.room(0), 1, "a call that is alone may always begin");
            assert_eq!(taken.refused(0, ended_ns + 100 * MS), None);
        }
    }

    /// Nothing has ever ended: that is no limit.
    #[test]
    fn a_call_that_is_refused_from_the_first_on_waits_for_nothing() {
        let mut taken = TakenAtOnce::default();
        assert_eq!(taken.refused(1, 0), Some(0), "the other one may end");
        assert_eq!(taken.refused(0, 0), None);
    }
}
