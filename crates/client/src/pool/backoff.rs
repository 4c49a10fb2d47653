//! Pauses that grow, and randomness for them.

use crate::limits;

/// A generator of jitter from a seed: SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom
/// number generators", 2014).
#[derive(Debug)]
pub(super) struct Jitter(u64);

impl Jitter {
    pub(super) fn new(seed: u64) -> Jitter {
        Jitter(seed)
    }

    /// Varies a time by up to a fifth in both directions.
    pub(super) fn vary(&mut self, time_ns: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let spread_ns = time_ns / 5;
        time_ns - spread_ns + (mixed >> 16) % (2 * spread_ns + 1)
    }
}

/// Returns the pause after so many failures in a row (at least one), before it is varied.
pub(super) fn pause_ns(failures: u32) -> u64 {
    let longest_ns = limits::POOL_LONGEST_BACKOFF.as_nanos() as u64;
    let mut pause_ns = limits::POOL_FIRST_BACKOFF.as_nanos() as u64;
    for _ in 1..failures {
        if pause_ns >= longest_ns {
            break;
        }
        pause_ns = pause_ns * 8 / 5;
    }
    pause_ns.min(longest_ns)
}

/// How many failures may still be retried (gRFC A6, "Throttling Retry Attempts"). Counts tenths of
/// a token.
#[derive(Debug)]
pub(super) struct RetryBudget {
    tenths: u64,
    max_tenths: u64,
}

impl RetryBudget {
    pub(super) fn new(tokens: u32) -> RetryBudget {
        let max_tenths = u64::from(tokens) * 10;
        RetryBudget {
            tenths: max_tenths,
            max_tenths,
        }
    }

    pub(super) fn succeeded(&mut self) {
        self.tenths = (self.tenths + 1).min(self.max_tenths);
    }

    /// Takes a token for a failure, and returns whether it may be retried.
    pub(super) fn failed(&mut self) -> bool {
        self.tenths = self.tenths.saturating_sub(10);
        self.tenths > self.max_tenths / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest() {
        let ms = |failures| pause_ns(failures) / 1_000_000;
        assert_eq!([ms(1), ms(2), ms(3)], [100, 160, 256]);
        assert_eq!([ms(13), ms(14), ms(u32::MAX)], [28_147, 30_000, 30_000]);
    }

    #[test]
    fn jitter_stays_within_a_fifth_and_reaches_it() {
        let mut jitter = Jitter::new(7);
        let varied: Vec<u64> = (0..1000).map(|_| jitter.vary(1000)).collect();
        assert!(varied.iter().all(|time| (800..=1200).contains(time)));
        assert!(varied.iter().any(|&time| time < 820) && varied.iter().any(|&time| time > 1180));
        assert_eq!(jitter.vary(0), 0);
    }

    #[test]
    fn a_budget_stops_retries_below_half_until_calls_succeed() {
        let mut budget = RetryBudget::new(10);
        for _ in 0..2 {
            let retried = (0..20).take_while(|_| budget.failed()).count();
            assert_eq!(retried, 4);
            for _ in 0..10 {
                assert!(!budget.failed());
            }
            for _ in 0..1000 {
                budget.succeeded();
            }
        }
    }

    #[test]
    fn a_success_gives_back_a_tenth_of_a_token() {
        for (successes, is_retried) in [(60, false), (61, true)] {
            let mut budget = RetryBudget::new(10);
            while budget.tenths > 0 {
                budget.failed();
            }
            for _ in 0..successes {
                budget.succeeded();
            }
            // More than half has to be left behind the failure.
            assert_eq!(budget.failed(), is_retried, "{successes}");
        }
    }
}
