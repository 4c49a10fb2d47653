//! Rates of an open loop that change over the measured time: ramps and steps.

use std::fmt;

use crate::limits;

/// How the rate of an open loop changes over the measured time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RateProfile {
    /// Evenly from one rate to another one, in calls a second.
    Ramp {
        /// At the beginning.
        from: f64,
        /// At the end.
        to: f64,
    },
    /// One rate after the other, each for an equal part of the time.
    Steps(RateSteps),
}

/// The rates of steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateSteps {
    count: usize,
    rates: [f64; limits::MAX_RATE_STEPS],
}

impl RateSteps {
    /// `None`: there are none, or too many.
    pub fn new(rates: &[f64]) -> Option<RateSteps> {
        let mut all = [0.0; limits::MAX_RATE_STEPS];
        let places = all.get_mut(..rates.len()).filter(|_| !rates.is_empty())?;
        places.copy_from_slice(rates);
        Some(RateSteps {
            count: rates.len(),
            rates: all,
        })
    }

    fn rates(&self) -> &[f64] {
        self.rates.get(..self.count).unwrap_or_default()
    }
}

impl RateProfile {
    /// The rates at both ends of each of equal parts of the time. A ramp has
    /// [`limits::RAMP_PARTS`].
    pub fn parts(&self) -> Vec<(f64, f64)> {
        match self {
            RateProfile::Ramp { from, to } => {
                let parts = limits::RAMP_PARTS as f64;
                let at = |part: usize| from + (to - from) * part as f64 / parts;
                let both = |part| (at(part), at(part + 1));
                (0..limits::RAMP_PARTS).map(both).collect()
            }
            RateProfile::Steps(steps) => steps.rates().iter().map(|&rate| (rate, rate)).collect(),
        }
    }

    /// The highest rate.
    pub fn peak(&self) -> f64 {
        let parts = self.parts();
        let rates = parts.iter().flat_map(|(from, to)| [*from, *to]);
        rates.fold(0.0, f64::max)
    }

    /// The mean over the whole time.
    pub fn mean(&self) -> f64 {
        let parts = self.parts();
        let sum: f64 = parts.iter().map(|(from, to)| (from + to) / 2.0).sum();
        sum / parts.len().max(1) as f64
    }
}

impl fmt::Display for RateProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RateProfile::Ramp { from, to } => write!(f, "{from}..{to}"),
            RateProfile::Steps(steps) => {
                let rates: Vec<String> = steps.rates().iter().map(f64::to_string).collect();
                f.write_str(&rates.join(","))
            }
        }
    }
}

/// A stretch of time in which the rate changes evenly, or not at all.
#[derive(Clone, Copy, Debug)]
struct RateStretch {
    from_ns: u64,
    length_s: f64,
    from_rate: f64,
    to_rate: f64,
}

impl RateStretch {
    fn calls(&self) -> f64 {
        (self.from_rate + self.to_rate) / 2.0 * self.length_s
    }

    /// The moment at which so many calls, fewer than all of it, have come due.
    fn at(&self, calls: f64) -> u64 {
        let growth = (self.to_rate - self.from_rate) / self.length_s.max(f64::MIN_POSITIVE);
        // The root of rate × t + growth × t² / 2 = calls, in a form that needs no growth.
        let root = (self.from_rate.powi(2) + 2.0 * growth * calls)
            .max(0.0)
            .sqrt();
        let seconds = match self.from_rate + root > 0.0 {
            true => 2.0 * calls / (self.from_rate + root),
            false => 0.0,
        };
        self.from_ns + (seconds.min(self.length_s) * 1e9) as u64
    }
}

/// The moments at which the calls of a rate that changes come due.
#[derive(Clone, Debug)]
pub(crate) struct ProfileMoments {
    stretches: Vec<RateStretch>,
    /// The stretch of the last moment.
    current: usize,
    /// Calls of all stretches before it.
    calls_before: f64,
}

impl ProfileMoments {
    /// From `begin_ns` on until the window the rate is the one with which the profile begins.
    pub(crate) fn new(profile: &RateProfile, begin_ns: u64, window: (u64, u64)) -> ProfileMoments {
        let (from_ns, until_ns) = window;
        let parts = profile.parts();
        let first = parts.first().map_or(0.0, |(from, _)| *from);
        let mut stretches = vec![RateStretch {
            from_ns: begin_ns,
            length_s: from_ns.saturating_sub(begin_ns) as f64 / 1e9,
            from_rate: first,
            to_rate: first,
        }];
        let length_ns = until_ns.saturating_sub(from_ns);
        let count = parts.len().max(1) as u128;
        let bound_ns =
            |part: usize| from_ns + (u128::from(length_ns) * part as u128 / count) as u64;
        for (part, (from_rate, to_rate)) in parts.into_iter().enumerate() {
            let from_ns = bound_ns(part);
            stretches.push(RateStretch {
                from_ns,
                length_s: (bound_ns(part + 1) - from_ns) as f64 / 1e9,
                from_rate,
                to_rate,
            });
        }
        ProfileMoments {
            stretches,
            current: 0,
            calls_before: 0.0,
        }
    }

    /// The moment at which call number `calls` comes due, which is not lower than the one before;
    /// `u64::MAX`: not before the end.
    pub(crate) fn at(&mut self, calls: f64) -> u64 {
        while let Some(stretch) = self.stretches.get(self.current) {
            let of_this = calls - self.calls_before;
            if of_this < stretch.calls() {
                return stretch.at(of_this);
            }
            self.calls_before += stretch.calls();
            self.current += 1;
        }
        u64::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn steps(rates: &[f64]) -> RateProfile {
        RateProfile::Steps(RateSteps::new(rates).expect("there are a few"))
    }

    /// How many calls come due in each second from 0 on.
    fn per_second(profile: &RateProfile, begin_ns: u64, window: (u64, u64)) -> Vec<u64> {
        let mut moments = ProfileMoments::new(profile, begin_ns, window);
        let mut counts = vec![0; (window.1 / SECOND) as usize];
        let mut before_ns = 0;
        for call in 0_u32.. {
            let at_ns = moments.at(f64::from(call));
            if at_ns == u64::MAX {
                return counts;
            }
            assert!(at_ns >= before_ns, "moments do not go back");
            before_ns = at_ns;
            counts[(at_ns / SECOND) as usize] += 1;
        }
        counts
    }

    #[test]
    fn steps_last_equally_long() {
        let profile = steps(&[100.0, 300.0, 50.0]);
        assert_eq!(per_second(&profile, 0, (0, 3 * SECOND)), [100, 300, 50]);
        // The warm-up has the first rate.
        let counts = per_second(&profile, 0, (2 * SECOND, 5 * SECOND));
        assert_eq!(counts, [100, 100, 100, 300, 50]);
    }

    /// From 0 to 1000 in 4 s: the integral from one second to the next.
    #[test]
    fn a_ramp_grows_evenly() {
        let profile = RateProfile::Ramp {
            from: 0.0,
            to: 1_000.0,
        };
        let counts = per_second(&profile, 0, (0, 4 * SECOND));
        for (count, expected) in counts.iter().zip([125_u64, 375, 625, 875]) {
            assert!(count.abs_diff(expected) <= 1, "{counts:?}");
        }
        let down = RateProfile::Ramp {
            from: 1_000.0,
            to: 0.0,
        };
        let counts = per_second(&down, 0, (0, 4 * SECOND));
        for (count, expected) in counts.iter().zip([875_u64, 625, 375, 125]) {
            assert!(count.abs_diff(expected) <= 1, "{counts:?}");
        }
    }

    #[test]
    fn moments_within_a_step_are_at_equal_distances() {
        let mut moments = ProfileMoments::new(&steps(&[4.0]), 0, (0, SECOND));
        let all: Vec<u64> = (0..5).map(|call| moments.at(f64::from(call))).collect();
        assert_eq!(all, [0, SECOND / 4, SECOND / 2, SECOND / 4 * 3, u64::MAX]);
    }

    #[test]
    fn mean_and_peak_follow_from_the_rates() {
        let profile = steps(&[100.0, 300.0, 200.0]);
        assert_eq!((profile.mean(), profile.peak()), (200.0, 300.0));
        assert_eq!(profile.to_string(), "100,300,200");
        let ramp = RateProfile::Ramp {
            from: 500.0,
            to: 100.0,
        };
        assert_eq!((ramp.mean().round(), ramp.peak()), (300.0, 500.0));
        assert_eq!(ramp.to_string(), "500..100");
        assert_eq!(ramp.parts().len(), limits::RAMP_PARTS);
    }

    #[test]
    fn the_number_of_steps_is_bounded() {
        assert!(RateSteps::new(&[]).is_none());
        assert!(RateSteps::new(&[1.0; limits::MAX_RATE_STEPS]).is_some());
        assert!(RateSteps::new(&[1.0; limits::MAX_RATE_STEPS + 1]).is_none());
    }
}
