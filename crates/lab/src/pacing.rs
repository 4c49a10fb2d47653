//! When calls are to begin.

use std::time::Duration;

use crate::limits;
use crate::random::Random;
use crate::rate_profile::{ProfileMoments, RateProfile};

/// How an open loop's calls follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// At equal distances.
    Fixed,
    /// As from many callers who know nothing of each other: exponentially distributed distances.
    Poisson,
}

/// What makes calls begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// The end of the last one: each place sends its next call when its last one was answered.
    Closed,
    /// The clock: so many calls a second, whether the server keeps up or not.
    Open {
        /// Calls a second of all threads together.
        rate: f64,
        /// How they follow each other.
        arrivals: Arrivals,
    },
    /// The clock, with a rate that changes over the measured time.
    Varying {
        /// Calls a second of all threads together.
        profile: RateProfile,
        /// How they follow each other.
        arrivals: Arrivals,
    },
}

impl Pace {
    /// Calls a second on average over the measured time; `None`: it is no open loop.
    pub fn mean_rate(&self) -> Option<f64> {
        match self {
            Pace::Closed => None,
            Pace::Open { rate, .. } => Some(*rate),
            Pace::Varying { profile, .. } => Some(profile.mean()),
        }
    }

    /// The most calls a second; `None`: it is no open loop.
    pub fn peak_rate(&self) -> Option<f64> {
        match self {
            Pace::Closed => None,
            Pace::Open { rate, .. } => Some(*rate),
            Pace::Varying { profile, .. } => Some(profile.peak()),
        }
    }
}

/// How one moment of a schedule follows from the one before.
#[derive(Clone, Debug)]
enum Spacing {
    Fixed,
    Poisson,
    Varying(Box<VaryingSpacing>),
}

/// A thread's share of the calls of a rate that changes.
#[derive(Clone, Debug)]
struct VaryingSpacing {
    moments: ProfileMoments,
    arrivals: Arrivals,
    threads: f64,
    /// Calls of all threads until the next one of this thread.
    calls: f64,
}

impl VaryingSpacing {
    /// The call after the last one. Calls are counted one by one, so that no error adds up; those
    /// of a Poisson process lie at random distances within the count.
    fn advance(&mut self, random: &mut Random) -> u64 {
        self.calls += match self.arrivals {
            Arrivals::Fixed => self.threads,
            Arrivals::Poisson => random.exponential(self.threads),
        };
        self.moments.at(self.calls)
    }
}

/// The moments at which one thread's calls are to begin.
#[derive(Clone, Debug)]
pub struct Schedule {
    origin_ns: u64,
    /// With a rate that changes the shortest.
    interval_ns: f64,
    spacing: Spacing,
    /// The next moment, as nanoseconds after the origin. What rounding takes from one moment the
    /// next one has back.
    next_ns: f64,
    /// How many moments have passed: fixed moments are multiples, so that no error adds up.
    passed: u64,
    random: Random,
}

impl Schedule {
    /// `rate` is in calls a second. The first of `threads` threads begins at the origin, the others
    /// follow evenly.
    pub fn new(
        rate: f64,
        arrivals: Arrivals,
        origin_ns: u64,
        (thread, threads): (usize, usize),
        mut random: Random,
    ) -> Schedule {
        let interval_ns = 1e9 * threads as f64 / rate;
        let next_ns = match arrivals {
            Arrivals::Fixed => interval_ns * thread as f64 / threads as f64,
            Arrivals::Poisson => random.exponential(interval_ns),
        };
        let origin_ns = origin_ns
            + if arrivals == Arrivals::Fixed {
                next_ns as u64
            } else {
                0
            };
        Schedule {
            origin_ns,
            interval_ns,
            spacing: match arrivals {
                Arrivals::Fixed => Spacing::Fixed,
                Arrivals::Poisson => Spacing::Poisson,
            },
            next_ns: if arrivals == Arrivals::Fixed {
                0.0
            } else {
                next_ns
            },
            passed: 0,
            random,
        }
    }

    /// The same with a rate that changes. `window`: from when on until when it does.
    pub fn varying(
        profile: &RateProfile,
        arrivals: Arrivals,
        (begin_ns, window): (u64, (u64, u64)),
        (thread, threads): (usize, usize),
        mut random: Random,
    ) -> Schedule {
        let mut varying = VaryingSpacing {
            moments: ProfileMoments::new(profile, begin_ns, window),
            arrivals,
            threads: threads as f64,
            calls: match arrivals {
                Arrivals::Fixed => thread as f64,
                Arrivals::Poisson => random.exponential(threads as f64),
            },
        };
        Schedule {
            origin_ns: varying.moments.at(varying.calls),
            interval_ns: 1e9 * threads as f64 / profile.peak(),
            spacing: Spacing::Varying(Box::new(varying)),
            next_ns: 0.0,
            passed: 0,
            random,
        }
    }

    /// How long calls wait for others, so that they begin together.
    #[inline]
    pub fn together_ns(&self) -> u64 {
        let is_dense = self.interval_ns * limits::TOGETHER_FROM_RATE <= 1e9;
        if is_dense {
            limits::TOGETHER.as_nanos() as u64
        } else {
            0
        }
    }

    /// When the next call is to begin.
    #[inline]
    pub fn next_ns(&self) -> u64 {
        // Beyond the end of a rate that changes the origin is the last moment that there is.
        self.origin_ns.saturating_add(self.next_ns as u64)
    }

    /// Goes on to the one after it.
    #[inline]
    pub fn advance(&mut self) {
        self.passed += 1;
        self.next_ns = match &mut self.spacing {
            Spacing::Fixed => self.passed as f64 * self.interval_ns,
            Spacing::Poisson => self.next_ns + self.random.exponential(self.interval_ns),
            Spacing::Varying(varying) => {
                self.origin_ns = varying.advance(&mut self.random);
                0.0
            }
        };
    }
}

/// How long it is to `at_ns`; `None` if it has come. From one reading of the clock: by a second one
/// it might have passed.
pub fn time_left(at_ns: u64, now_ns: u64) -> Option<Duration> {
    let left_ns = at_ns.checked_sub(now_ns)?;
    (left_ns > 0).then(|| Duration::from_nanos(left_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_come_is_not_waited_for() {
        assert_eq!(time_left(1_000, 400), Some(Duration::from_nanos(600)));
        assert_eq!(time_left(1_000, 1_000), None);
        assert_eq!(time_left(1_000, 1_001), None);
    }

    fn moments(schedule: &mut Schedule, count: usize) -> Vec<u64> {
        (0..count)
            .map(|_| {
                let at_ns = schedule.next_ns();
                schedule.advance();
                at_ns
            })
            .collect()
    }

    #[test]
    fn fixed_moments_are_exact_for_ever() {
        let mut schedule = Schedule::new(3e6, Arrivals::Fixed, 1_000, (0, 1), Random::new(1));
        let all = moments(&mut schedule, 3_000_001);
        assert_eq!(all[0], 1_000);
        assert_eq!(all[3], 2_000);
        assert_eq!(all[3_000_000], 1_000_001_000);
    }

    /// 100 calls in the first second and 300 in the next one, by three threads.
    #[test]
    fn threads_share_a_rate_that_changes() {
        use crate::rate_profile::RateSteps;
        const SECOND: u64 = 1_000_000_000;
        let steps = RateSteps::new(&[100.0, 300.0]).expect("there are two");
        let profile = RateProfile::Steps(steps);
        for (arrivals, spread) in [(Arrivals::Fixed, 0), (Arrivals::Poisson, 70)] {
            let mut counts = [0_u64; 2];
            for thread in 0..3 {
                let window = (7, (7, 2 * SECOND + 7));
                let random = Random::new(thread as u64);
                let threads = (thread, 3);
                let mut schedule = Schedule::varying(&profile, arrivals, window, threads, random);
                assert_eq!(schedule.together_ns(), 0);
                while schedule.next_ns() < 2 * SECOND + 7 {
                    counts[((schedule.next_ns() - 7) / SECOND) as usize] += 1;
                    schedule.advance();
                }
            }
            for (count, expected) in counts.into_iter().zip([100_u64, 300]) {
                assert!(
                    count.abs_diff(expected) <= spread,
                    "{arrivals:?}: {counts:?}"
                );
            }
        }
    }

    #[test]
    fn threads_take_turns() {
        let of = |thread| {
            let random = Random::new(1);
            let mut schedule = Schedule::new(1e6, Arrivals::Fixed, 0, (thread, 4), random);
            moments(&mut schedule, 3)
        };
        assert_eq!(of(0), [0, 4_000, 8_000]);
        assert_eq!(of(1), [1_000, 5_000, 9_000]);
        assert_eq!(of(3), [3_000, 7_000, 11_000]);
    }

    /// Distances of a Poisson process: their mean and their spread are the same, they do not depend
    /// on each other, and a share of 1/e is longer than the mean.
    #[test]
    fn poisson_distances_are_exponential() {
        let random = Random::new(9);
        let mut schedule = Schedule::new(10_000.0, Arrivals::Poisson, 0, (0, 1), random);
        let all = moments(&mut schedule, 200_001);
        let gaps: Vec<f64> = all
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as f64)
            .collect();
        let count = gaps.len() as f64;
        let mean = gaps.iter().sum::<f64>() / count;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / count;
        let longer = gaps.iter().filter(|&&gap| gap > mean).count() as f64 / count;
        let together: f64 = gaps
            .windows(2)
            .map(|pair| (pair[0] - mean) * (pair[1] - mean))
            .sum::<f64>()
            / count
            / variance;
        assert!((mean / 100_000.0 - 1.0).abs() < 0.02, "mean {mean}");
        assert!(
            (variance.sqrt() / mean - 1.0).abs() < 0.03,
            "variance {variance}"
        );
        assert!((longer - (-1_f64).exp()).abs() < 0.01, "{longer} longer");
        assert!(together.abs() < 0.02, "correlation {together}");
    }
}
