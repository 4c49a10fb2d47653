//! How often and how long each cell is measured, and in which order.

use std::time::Duration;

use super::limits;
use crate::random::Random;

/// How often and how long each cell is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepTimes {
    /// Runs of each cell.
    pub runs: usize,
    /// Load before measuring, in each run.
    pub warm_up: Duration,
    /// What is measured in each run.
    pub measured: Duration,
}

/// What the user says of the times; the rest follows.
#[derive(Clone, Copy, Debug, Default)]
pub struct TimesWanted {
    /// Cells of the sweep.
    pub cells: usize,
    /// Runs of each.
    pub runs: Option<usize>,
    /// Load before measuring.
    pub warm_up: Option<Duration>,
    /// What is measured.
    pub measured: Option<Duration>,
    /// How long all of it may take; `None`: as long as it takes.
    pub budget: Option<Duration>,
}

impl SweepTimes {
    /// Chooses what is not said. A budget first buys three runs of each cell that are long enough
    /// to say something, then longer ones, then more of them, up to [`limits::BUDGET_RUNS`]. If it
    /// is too small even for one, the sweep takes longer than it: [`SweepTimes::total`].
    pub fn choose(wanted: &TimesWanted) -> SweepTimes {
        let Some(budget) = wanted.budget else {
            return SweepTimes {
                runs: wanted.runs.unwrap_or(limits::FULL_RUNS),
                warm_up: wanted.warm_up.unwrap_or(limits::WARM_UP[1]),
                measured: wanted.measured.unwrap_or(limits::MEASURED_MOST),
            };
        };
        // What is left of a run's share of the budget for warm-up and measuring.
        let slot = |runs: usize| {
            let share = budget.as_secs_f64() / (wanted.cells.max(1) * runs.max(1)) as f64;
            Duration::from_secs_f64(share).saturating_sub(limits::RUN_OVERHEAD)
        };
        let warm_up = |runs: usize| {
            let [least, most] = limits::WARM_UP;
            let usual = (slot(runs) / 5).clamp(least, most);
            wanted.warm_up.unwrap_or(usual)
        };
        let fits = |runs: usize| slot(runs).saturating_sub(warm_up(runs));
        let good = wanted.measured.unwrap_or(limits::MEASURED_GOOD);
        let least = wanted.measured.unwrap_or(limits::MEASURED_LEAST);
        let runs = wanted.runs.unwrap_or_else(|| {
            let mut many = (limits::DEFAULT_RUNS + 1..=limits::BUDGET_RUNS).rev();
            let many = many.find(|&runs| fits(runs) >= good);
            let mut few = (2..=limits::DEFAULT_RUNS).rev();
            many.or_else(|| few.find(|&runs| fits(runs) >= least))
                .unwrap_or(1)
        });
        let usual = fits(runs).clamp(limits::MEASURED_LEAST, limits::MEASURED_MOST);
        SweepTimes {
            runs,
            warm_up: whole_ms(warm_up(runs)),
            measured: whole_ms(wanted.measured.unwrap_or(usual)),
        }
    }

    /// How long so many runs take, about.
    pub fn total(&self, runs: usize) -> Duration {
        let times = [self.measured, limits::RUN_OVERHEAD];
        let each = times
            .into_iter()
            .fold(self.warm_up, Duration::saturating_add);
        // Times that somebody has written into a file may be longer than any clock counts.
        let total = Duration::try_from_secs_f64(each.as_secs_f64() * runs as f64);
        total.unwrap_or(Duration::MAX)
    }
}

/// So that what is saved is what was done.
fn whole_ms(time: Duration) -> Duration {
    Duration::from_millis(time.as_millis() as u64)
}

/// The order of all runs: cell and run. Each cell has had its first run before any has its second,
/// so that an early end leaves all of them; within a round the order is random, so that what
/// changes on the machine meanwhile does not look like an effect of the parameter.
pub fn order(cells: usize, runs: usize, seed: u64) -> Vec<(usize, usize)> {
    let mut random = Random::new(seed);
    let mut order = Vec::with_capacity(cells * runs);
    for run in 0..runs {
        let mut round: Vec<usize> = (0..cells).collect();
        // Fisher and Yates.
        for at in (1..cells).rev() {
            let other = random.below(at as u64 + 1) as usize;
            round.swap(at, other);
        }
        order.extend(round.into_iter().map(|cell| (cell, run)));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(cells: usize, budget_s: u64) -> TimesWanted {
        TimesWanted {
            cells,
            budget: Some(Duration::from_secs(budget_s)),
            ..TimesWanted::default()
        }
    }

    #[test]
    fn a_budget_is_kept_and_buys_runs_and_time() {
        for (cells, budget_s, runs) in [
            (8, 60, 3),
            (8, 180, 7),
            (8, 600, 10),
            (40, 60, 1),
            (20, 60, 3),
            (30, 60, 2),
        ] {
            let times = SweepTimes::choose(&wanted(cells, budget_s));
            assert_eq!(times.runs, runs, "{cells} cells in {budget_s} s: {times:?}");
            let total = times.total(cells * times.runs);
            assert!(total <= Duration::from_secs(budget_s), "{times:?}");
            assert!(times.measured >= limits::MEASURED_LEAST, "{times:?}");
        }
    }

    #[test]
    fn a_budget_that_is_too_small_measures_the_least() {
        let times = SweepTimes::choose(&wanted(1_000, 1));
        assert_eq!((times.runs, times.measured), (1, limits::MEASURED_LEAST));
        assert!(times.total(1_000) > Duration::from_secs(1));
    }

    #[test]
    fn times_that_no_clock_counts_have_a_sum() {
        let times = SweepTimes {
            runs: 1,
            warm_up: Duration::MAX,
            measured: Duration::from_millis(u64::MAX),
        };
        assert_eq!(times.total(3), Duration::MAX);
        assert_eq!(times.total(0), Duration::ZERO);
    }

    #[test]
    fn what_is_said_is_done() {
        let second = Duration::from_secs(1);
        let said = TimesWanted {
            runs: Some(2),
            warm_up: Some(Duration::ZERO),
            measured: Some(second),
            ..wanted(8, 60)
        };
        let expected = SweepTimes {
            runs: 2,
            warm_up: Duration::ZERO,
            measured: second,
        };
        assert_eq!(SweepTimes::choose(&said), expected);
        // A given length, and as many runs as fit.
        let length = TimesWanted {
            measured: Some(second),
            ..wanted(4, 60)
        };
        let times = SweepTimes::choose(&length);
        assert_eq!((times.runs, times.measured), (9, second));
    }

    #[test]
    fn without_a_budget_runs_are_long() {
        let times = SweepTimes::choose(&TimesWanted::default());
        assert_eq!(times.runs, limits::FULL_RUNS);
        assert_eq!(times.measured, limits::MEASURED_MOST);
    }

    #[test]
    fn each_round_has_every_cell_in_an_order_of_its_own() {
        let order = order(20, 3, 7);
        assert_eq!(order.len(), 60);
        let rounds: Vec<Vec<usize>> = order
            .chunks(20)
            .map(|round| round.iter().map(|(cell, _)| *cell).collect())
            .collect();
        for (number, round) in rounds.iter().enumerate() {
            let mut sorted = round.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..20).collect::<Vec<_>>());
            assert!(
                order[number * 20..][..20]
                    .iter()
                    .all(|(_, run)| *run == number)
            );
        }
        assert_ne!(rounds[0], rounds[1]);
        assert_eq!(super::order(20, 3, 7), order, "the seed repeats it");
        assert_ne!(super::order(20, 3, 8), order);
    }
}
