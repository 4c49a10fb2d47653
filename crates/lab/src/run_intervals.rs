//! How a run went while it was measured, in intervals of its time.

use crate::latency_counts::LatencyCounts;
use crate::limits;

/// One interval of the measured time. Latencies are known to 1.6 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadInterval {
    /// When it begins, in nanoseconds of the measured time.
    pub from_ns: u64,
    /// When it ends.
    pub until_ns: u64,
    /// Calls that ended in it.
    pub ended: u64,
    /// Of them, those that failed.
    pub failed: u64,
    /// The median of the latencies of calls that succeeded in it; `None`: there were none.
    pub p50_ns: Option<u64>,
    /// Their 99th percentile.
    pub p99_ns: Option<u64>,
    /// The longest.
    pub most_ns: Option<u64>,
}

/// What has been counted until one moment of the measured time.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunLook {
    pub(crate) at_ns: u64,
    pub(crate) ended: u64,
    pub(crate) failed: u64,
    pub(crate) latencies: LatencyCounts,
}

/// What has come between two moments.
#[derive(Debug)]
struct Interval {
    from_ns: u64,
    until_ns: u64,
    ended: u64,
    failed: u64,
    latencies: LatencyCounts,
    /// How many looks it is made of.
    looks: usize,
}

/// Intervals of a run, however long that is: when there are too many, each two become one.
#[derive(Debug)]
pub(crate) struct RunIntervals {
    intervals: Vec<Interval>,
    last: RunLook,
    /// Looks of one interval.
    looks: usize,
}

impl Default for RunIntervals {
    fn default() -> RunIntervals {
        RunIntervals {
            intervals: Vec::new(),
            last: RunLook::default(),
            looks: 1,
        }
    }
}

impl Interval {
    fn between(before: &RunLook, now: &RunLook) -> Interval {
        Interval {
            from_ns: before.at_ns,
            until_ns: now.at_ns,
            ended: now.ended.saturating_sub(before.ended),
            failed: now.failed.saturating_sub(before.failed),
            latencies: now.latencies.since(&before.latencies),
            looks: 1,
        }
    }

    /// Takes in the interval that follows.
    fn append(&mut self, next: &Interval) {
        self.until_ns = next.until_ns;
        self.ended += next.ended;
        self.failed += next.failed;
        self.latencies.add(&next.latencies);
        self.looks += next.looks;
    }

    fn figures(&self) -> LoadInterval {
        LoadInterval {
            from_ns: self.from_ns,
            until_ns: self.until_ns,
            ended: self.ended,
            failed: self.failed,
            p50_ns: self.latencies.quantile_ns(0.5),
            p99_ns: self.latencies.quantile_ns(0.99),
            most_ns: self.latencies.quantile_ns(1.0),
        }
    }
}

impl RunIntervals {
    /// Adds what was counted since the last look.
    pub(crate) fn add(&mut self, look: RunLook) {
        let next = Interval::between(&self.last, &look);
        self.last = look;
        match self.intervals.last_mut() {
            Some(last) if last.looks < self.looks => last.append(&next),
            _ => self.intervals.push(next),
        }
        if self.intervals.len() > limits::MAX_LOAD_INTERVALS {
            self.join_pairs();
        }
    }

    fn join_pairs(&mut self) {
        self.looks = self.looks.saturating_mul(2);
        let mut joined: Vec<Interval> = Vec::with_capacity(limits::MAX_LOAD_INTERVALS);
        for (number, interval) in self.intervals.drain(..).enumerate() {
            match joined.last_mut() {
                Some(last) if number % 2 == 1 => last.append(&interval),
                _ => joined.push(interval),
            }
        }
        self.intervals = joined;
    }

    /// The last look.
    pub(crate) fn last(&self) -> &RunLook {
        &self.last
    }

    /// The figures of all intervals of a run of which so long was measured. `rest`: what was
    /// counted behind the last look, which is part of the last interval.
    pub(crate) fn finish(mut self, rest: &RunLook, measured_ns: u64) -> Vec<LoadInterval> {
        let rest = Interval::between(&self.last, rest);
        match self.intervals.last_mut() {
            Some(last) => last.append(&rest),
            None => self.intervals.push(rest),
        }
        // A look may see a little later what ended before the end.
        while let Some(late) = self.intervals.pop_if(|last| last.from_ns >= measured_ns) {
            match self.intervals.last_mut() {
                Some(last) => last.append(&late),
                None => return Vec::new(),
            }
        }
        let figures = self.intervals.iter().map(Interval::figures);
        let clipped = figures.map(|interval| LoadInterval {
            until_ns: interval.until_ns.min(measured_ns),
            ..interval
        });
        clipped.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency_counts::SharedLatencies;

    fn look(number: u64) -> RunLook {
        RunLook {
            at_ns: number * 100,
            ended: number * 3,
            failed: number,
            latencies: LatencyCounts::default(),
        }
    }

    #[test]
    fn each_interval_has_what_came_in_it() {
        let mut intervals = RunIntervals::default();
        let shared = SharedLatencies::default();
        for second in 1..=3_u64 {
            for _ in 0..100 {
                shared.record(second * 1_000);
            }
            let mut latencies = LatencyCounts::default();
            latencies.add_shared(&shared);
            intervals.add(RunLook {
                at_ns: second * 1_000_000_000,
                ended: second * 100 + second,
                failed: second,
                latencies,
            });
        }
        let last = intervals.last().clone();
        let figures = intervals.finish(&last, last.at_ns);
        assert_eq!(figures.len(), 3);
        for (number, interval) in (1..).zip(&figures) {
            assert_eq!((interval.ended, interval.failed), (101, 1));
            assert_eq!(interval.from_ns, (number - 1) * 1_000_000_000);
            assert_eq!(interval.until_ns, number * 1_000_000_000);
            let p50_ns = interval.p50_ns.expect("calls succeeded") as f64;
            assert!((p50_ns / (number * 1_000) as f64 - 1.0).abs() < 0.017);
            assert_eq!(interval.p50_ns, interval.most_ns);
        }
    }

    #[test]
    fn a_long_run_has_longer_intervals_and_no_more_of_them() {
        let mut intervals = RunIntervals::default();
        let looks = limits::MAX_LOAD_INTERVALS as u64 * 37 + 5;
        for number in 1..=looks {
            intervals.add(look(number));
        }
        let figures = intervals.finish(&look(looks), looks * 100);
        let most = limits::MAX_LOAD_INTERVALS;
        assert!(
            figures.len() <= most && figures.len() > most / 2,
            "{}",
            figures.len()
        );
        let ended: u64 = figures.iter().map(|interval| interval.ended).sum();
        assert_eq!(ended, looks * 3);
        for pair in figures.windows(2) {
            assert_eq!(pair[0].until_ns, pair[1].from_ns, "no gap");
        }
        let (first, last) = (figures[0], figures[figures.len() - 1]);
        assert_eq!((first.from_ns, last.until_ns), (0, looks * 100));
        assert_eq!(first.until_ns, 6_400, "64 looks each");
        assert_eq!(first.p50_ns, None);
    }

    /// A look may come behind the last call, and the last call behind the last look.
    #[test]
    fn the_last_interval_ends_with_what_was_measured() {
        let mut intervals = RunIntervals::default();
        for number in 1..=3 {
            intervals.add(look(number));
        }
        let figures = intervals.finish(&look(4), 250);
        let ends: Vec<u64> = figures.iter().map(|interval| interval.until_ns).collect();
        assert_eq!(ends, [100, 200, 250]);
        assert_eq!(figures[2].ended, 6);
        let mut late = RunIntervals::default();
        for number in 1..=3 {
            late.add(look(number));
        }
        let figures = late.finish(&look(3), 200);
        let counted: Vec<(u64, u64)> = (figures.iter())
            .map(|interval| (interval.until_ns, interval.ended))
            .collect();
        assert_eq!(counted, [(100, 3), (200, 6)]);
        let short = RunIntervals::default().finish(&look(5), 7);
        assert_eq!((short.len(), short[0].ended, short[0].until_ns), (1, 15, 7));
        assert!(
            RunIntervals::default()
                .finish(&RunLook::default(), 0)
                .is_empty()
        );
    }
}
