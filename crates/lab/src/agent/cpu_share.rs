//! Bounds which part of a CPU an agent takes from the server that it watches.

use std::rc::Rc;

/// Returns the CPU time that this thread has used, in nanoseconds. A test has another one.
pub(super) type CpuClock = Rc<dyn Fn() -> u64>;

/// When something that costs CPU may be done again, so that it takes no more than its share.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuShare {
    percent: u64,
    next_ns: u64,
}

impl CpuShare {
    /// Something that may take so many percent of one CPU, and that may be done at once.
    pub(super) fn new(percent: u32) -> CpuShare {
        CpuShare {
            percent: u64::from(percent.max(1)),
            next_ns: 0,
        }
    }

    /// When it may be done again.
    pub(super) fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Does it, and counts what it takes. `sharers`: so many do the same, and have the share
    /// together.
    pub(super) fn spend<T>(
        &mut self,
        clock: &CpuClock,
        (now_ns, sharers): (u64, usize),
        work: impl FnOnce() -> T,
    ) -> T {
        let before_ns = clock();
        let result = work();
        let used_ns = clock().saturating_sub(before_ns);
        let whole_ns = used_ns.saturating_mul(100) / self.percent;
        let period_ns = whole_ns.saturating_mul(sharers.max(1) as u64);
        self.next_ns = now_ns.saturating_add(period_ns);
        result
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::Cell;

    use super::*;

    /// A clock that stands until a test moves it, and what moves it.
    pub(in super::super) fn counted_clock() -> (Rc<Cell<u64>>, CpuClock) {
        let used_ns = Rc::new(Cell::new(0));
        let of_clock = Rc::clone(&used_ns);
        (used_ns, Rc::new(move || of_clock.get()))
    }

    #[test]
    fn what_takes_long_is_done_rarely() {
        let (used_ns, clock) = counted_clock();
        let mut share = CpuShare::new(2);
        assert_eq!(share.next_ns(), 0, "at once");
        let work = |cost_ns: u64| {
            let used_ns = used_ns.clone();
            move || used_ns.set(used_ns.get() + cost_ns)
        };
        share.spend(&clock, (1_000, 1), work(10));
        assert_eq!(share.next_ns(), 1_500, "2 % of the time");
        share.spend(&clock, (2_000, 4), work(10));
        assert_eq!(share.next_ns(), 4_000, "four share it");
        share.spend(&clock, (5_000, 1), work(u64::MAX / 2));
        assert!(share.next_ns() > u64::MAX / 10, "{}", share.next_ns());
    }
}
