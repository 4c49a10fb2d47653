//! Which processes the server has, looked for as often as that may cost.

use wire::grpc::Status;

use super::cpu_share::{CpuClock, CpuShare};
use super::limits::AGENT_LOOK_PERCENT;

/// The last search for the server's processes, for all calls that begin.
#[derive(Debug)]
pub(super) struct SubjectSearch {
    share: CpuShare,
    /// What it came to; `None`: there was none.
    last: Option<Result<Vec<u32>, Status>>,
}

impl SubjectSearch {
    pub(super) fn new() -> SubjectSearch {
        SubjectSearch {
            share: CpuShare::new(AGENT_LOOK_PERCENT),
            last: None,
        }
    }

    /// Returns the server's processes: by `search`, unless that was done so shortly ago that it
    /// would take more than its share.
    ///
    /// # Errors
    /// What the search came to.
    pub(super) fn processes(
        &mut self,
        clock: &CpuClock,
        now_ns: u64,
        search: impl FnOnce() -> Result<Vec<u32>, Status>,
    ) -> Result<Vec<u32>, Status> {
        let last = self
            .last
            .take()
            .filter(|_| now_ns < self.share.next_ns())
            .unwrap_or_else(|| self.share.spend(clock, (now_ns, 1), search));
        self.last.insert(last).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::cpu_share::tests::counted_clock;
    use super::*;

    #[test]
    fn a_dear_search_is_made_rarely_and_its_result_is_kept() {
        let (used_ns, clock) = counted_clock();
        let searches = Cell::new(0);
        let mut search = SubjectSearch::new();
        let mut ask = |now_ns: u64, cost_ns: u64, found: &Result<Vec<u32>, Status>| {
            search.processes(&clock, now_ns, || {
                searches.set(searches.get() + 1);
                used_ns.set(used_ns.get() + cost_ns);
                found.clone()
            })
        };
        let none = Err(Status::invalid_argument("nobody"));
        for (now_ns, found, expected, searched) in [
            (0, Ok(vec![7]), Ok(vec![7]), 1),
            (4_999, Ok(vec![8]), Ok(vec![7]), 1),
            (5_000, none.clone(), none.clone(), 2),
            (9_999, Ok(vec![8]), none, 2),
            (10_000, Ok(vec![8]), Ok(vec![8]), 3),
        ] {
            assert_eq!(ask(now_ns, 100, &found), expected, "{now_ns}");
            assert_eq!(searches.get(), searched, "{now_ns}");
        }
        // What costs nothing is done each time.
        for now_ns in [20_000, 20_000] {
            assert_eq!(ask(now_ns, 0, &Ok(vec![9])), Ok(vec![9]));
        }
        assert_eq!(searches.get(), 5);
    }
}
