//! When calls end by time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Stale entries that are borne beside as many again as there are calls.
const STALE_ENTRIES: usize = 64;

/// Deadlines of calls, the earliest first. Entries of calls that have ended stay until they are
/// passed over, or are many: a call that ends before its deadline, as most do, costs no search.
/// Where all calls have the same time, each deadline is behind those before it, and costs no more
/// than an entry at the end.
#[derive(Debug)]
pub(crate) struct Deadlines<K> {
    entries: BinaryHeap<Reverse<(u64, K)>>,
}

impl<K> Default for Deadlines<K>
where
    K: Ord,
{
    fn default() -> Deadlines<K> {
        Deadlines {
            entries: BinaryHeap::new(),
        }
    }
}

impl<K: Copy + Ord> Deadlines<K> {
    /// Adds the deadline of a call. `calls` is how many there are, and `is_current` whether a call
    /// has not ended.
    pub(crate) fn push(
        &mut self,
        at_ns: u64,
        call: K,
        calls: usize,
        is_current: impl Fn(K) -> bool,
    ) {
        if self.entries.len() > 2 * calls + STALE_ENTRIES {
            self.entries
                .retain(|&Reverse((_, entry))| is_current(entry));
        }
        self.entries.push(Reverse((at_ns, call)));
    }

    /// When [`Deadlines::pop`] may return a call; `None`: never.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.entries.peek().map(|Reverse((at_ns, _))| *at_ns)
    }

    /// Removes the next call whose deadline has passed by now, and the entries before it.
    pub(crate) fn pop(&mut self, now_ns: u64, is_current: impl Fn(K) -> bool) -> Option<K> {
        while let Some(&Reverse((at_ns, call))) = self.entries.peek() {
            let is_current = is_current(call);
            if is_current && at_ns > now_ns {
                return None;
            }
            self.entries.pop();
            if is_current {
                return Some(call);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_passed_in_order_without_those_of_calls_that_have_ended() {
        let mut deadlines = Deadlines::default();
        for (at_ns, call) in [(30, 3), (10, 1), (50, 5), (20, 2), (40, 4)] {
            deadlines.push(at_ns, call, 5, |_| true);
        }
        let is_odd = |call: u32| call % 2 == 1;
        assert_eq!(deadlines.pop(9, is_odd), None);
        assert_eq!(deadlines.next_ns(), Some(10));
        assert_eq!(deadlines.pop(30, is_odd), Some(1));
        assert_eq!(deadlines.pop(30, is_odd), Some(3));
        assert_eq!(deadlines.pop(30, is_odd), None);
        assert_eq!(deadlines.next_ns(), Some(50), "4 wakes nobody");
        assert_eq!(deadlines.pop(50, is_odd), Some(5));
        assert_eq!(
            (deadlines.pop(50, is_odd), deadlines.next_ns()),
            (None, None)
        );
    }

    #[test]
    fn entries_of_calls_that_have_ended_stay_few() {
        let mut deadlines = Deadlines::default();
        for call in 0..10_000_u64 {
            // Two calls at a time, and one that lasts.
            let is_current = |entry| entry == 0 || entry + 2 > call;
            deadlines.push(1_000_000 + call, call, 3, is_current);
            assert!(deadlines.entries.len() <= 2 * 3 + STALE_ENTRIES + 1);
        }
        assert_eq!(deadlines.pop(u64::MAX, |entry| entry == 0), Some(0));
    }
}
