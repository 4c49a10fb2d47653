//! How long something took, again and again: counts by length, which can be added up and shown
//! while they grow.

/// Lengths that are told apart: each bound is twice the one before, from a microsecond to 33
/// seconds.
pub const BOUNDS: usize = 26;

/// The first bound, in nanoseconds.
const FIRST_BOUND_NS: u64 = 1_000;

/// How often something took how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// How often it took at most [`bound_ns`] of that place and more than of the place before;
    /// last, how often it took longer than any bound.
    pub counts: [u64; BOUNDS + 1],
    /// All of it together, in nanoseconds.
    pub sum_ns: u64,
}

/// The longest duration that is counted at a place, in nanoseconds; `None`: there is no longest.
pub fn bound_ns(place: usize) -> Option<u64> {
    (place < BOUNDS).then(|| FIRST_BOUND_NS << place)
}

/// Where a duration is counted.
#[inline]
pub fn place(duration_ns: u64) -> usize {
    let whole = duration_ns.saturating_sub(1) / FIRST_BOUND_NS;
    ((u64::BITS - whole.leading_zeros()) as usize).min(BOUNDS)
}

impl Durations {
    /// Counts one.
    pub fn add(&mut self, duration_ns: u64) {
        self.counts[place(duration_ns)] += 1;
        self.sum_ns = self.sum_ns.wrapping_add(duration_ns);
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_duration_stands_below_its_bound_and_above_the_one_before() {
        let mut all = vec![0, 1, 999, 1_000, 1_001, u64::MAX];
        for shift in 0..63 {
            let near = 1_000u64.saturating_mul(1 << shift);
            all.extend([near - 1, near, near.saturating_add(1)]);
        }
        for duration_ns in all {
            let place = place(duration_ns);
            assert!(bound_ns(place).is_none_or(|bound| duration_ns <= bound));
            let before = place.checked_sub(1).and_then(bound_ns);
            assert!(
                before.is_none_or(|bound| duration_ns > bound),
                "{duration_ns}"
            );
        }
        assert_eq!(bound_ns(BOUNDS - 1), Some(33_554_432_000));
        assert_eq!(place(u64::MAX), BOUNDS);
    }

    #[test]
    fn what_was_added_is_there() {
        let mut durations = Durations::default();
        for duration_ns in [500, 1_000, 1_001, 60_000_000_000] {
            durations.add(duration_ns);
        }
        assert_eq!((durations.counts[0], durations.counts[1]), (2, 1));
        assert_eq!((durations.counts[BOUNDS], durations.count()), (1, 4));
        assert_eq!(durations.sum_ns, 60_000_002_501);
    }
}
