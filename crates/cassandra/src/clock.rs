//! The clock that gives out versions: a hybrid logical clock (Kulkarni and others, "Logical
//! Physical Clocks", 2014), whose logical part is in the microseconds.
//!
//! A version is the microseconds since 1970 in its upper 54 bits and the gateway in the lower 10.
//! It is unique: a gateway gives out no microsecond twice, and two gateways have different lower
//! bits, which are drawn at random for each run. It grows with each write of one gateway; between
//! gateways only where the version before was read, which a write without a condition does not do.
//! And a key that was deleted and made again does not repeat one, though nothing is left of the
//! earlier version: time has passed, or the gateway is another.
//!
//! The ten bits are random, not given out: of 38 gateways two have the same ones as likely as not.
//! Such two can repeat a version only if both write the same key with the same microsecond of their
//! own clocks, and neither has read what the other wrote.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits;

/// Bits of a version that name the gateway.
const GATEWAY_BITS: u32 = 10;

/// Numbers that tell versions apart which are too far ahead to be followed, less one. With them a
/// version goes ahead by 65 ms at most.
const FAR_NUMBERS: u64 = 0xffff;

/// Gives out versions. Shared by all threads of a gateway.
#[derive(Debug)]
pub struct VersionClock {
    gateway: u64,
    last_us: AtomicU64,
    /// Counts versions of keys that are too far ahead to be followed.
    far: AtomicU64,
}

impl VersionClock {
    /// Creates a clock for a gateway of which only the lower 10 bits count. They should be random.
    pub fn new(gateway: u64) -> VersionClock {
        VersionClock {
            gateway: gateway & ((1 << GATEWAY_BITS) - 1),
            last_us: AtomicU64::new(0),
            far: AtomicU64::new(gateway >> GATEWAY_BITS),
        }
    }

    /// Returns a new version. `now_us`: microseconds since 1970.
    pub fn next(&self, now_us: u64) -> u64 {
        self.version(self.advance(now_us))
    }

    /// Returns a new version that is larger than `previous`, which was read of the same key.
    pub fn next_after(&self, now_us: u64, previous: u64) -> u64 {
        let needed_us = microseconds(previous).saturating_add(1);
        if is_too_far_ahead(needed_us, now_us) {
            // Not recorded, so it is told apart by a number from those that are given out for the
            // same version before: a write that was refused must not be taken for a later one.
            let number = self.far.fetch_add(1, Ordering::Relaxed) & FAR_NUMBERS;
            return self.version(needed_us.saturating_add(number));
        }
        self.version(self.advance(now_us.max(needed_us)))
    }

    fn version(&self, us: u64) -> u64 {
        (us << GATEWAY_BITS) | self.gateway
    }

    /// Takes the next microsecond that was not given out yet, from `at_least_us` on.
    fn advance(&self, at_least_us: u64) -> u64 {
        let next = |last: u64| last.saturating_add(1).max(at_least_us);
        let mut last = self.last_us.load(Ordering::Relaxed);
        loop {
            let exchanged = self.last_us.compare_exchange_weak(
                last,
                next(last),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match exchanged {
                Ok(_) => return next(last),
                Err(current) => last = current,
            }
        }
    }
}

/// Returns the microseconds since 1970 of a version: the timestamp of the write at the engine.
pub fn microseconds(version: u64) -> u64 {
    version >> GATEWAY_BITS
}

fn is_too_far_ahead(us: u64, now_us: u64) -> bool {
    let ahead_us = u64::try_from(limits::CLOCK_AHEAD.as_micros()).unwrap_or(u64::MAX);
    us > now_us.saturating_add(ahead_us)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use testkit::Random;

    use super::*;

    const NOW_US: u64 = 1_800_000_000_000_000;

    #[test]
    fn versions_grow_though_time_stands_or_goes_back() {
        let clock = VersionClock::new(3);
        let mut random = Random::new(1);
        let mut last = 0;
        for _ in 0..10_000 {
            let version = clock.next(NOW_US - random.below(1_000_000_u64));
            assert!(version > last);
            last = version;
        }
    }

    #[test]
    fn a_version_is_larger_than_the_one_of_the_key_before() {
        let mut random = Random::new(2);
        let clock = VersionClock::new(1);
        for _ in 0..10_000 {
            let previous = random.number() >> random.below(20_u64);
            let version = clock.next_after(NOW_US, previous >> 1);
            assert!(version > previous >> 1, "{previous}");
        }
    }

    #[test]
    fn versions_of_several_gateways_and_threads_are_never_the_same() {
        let clocks = [VersionClock::new(1), VersionClock::new(2)];
        let mut seen = HashSet::new();
        for _ in 0..10_000 {
            for clock in &clocks {
                assert!(seen.insert(clock.next(NOW_US)));
            }
        }
        let shared = VersionClock::new(3);
        let versions: Vec<Vec<u64>> = std::thread::scope(|scope| {
            let count = || (0..10_000).map(|_| shared.next(NOW_US)).collect();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert!(versions.into_iter().flatten().all(|one| seen.insert(one)));
    }

    #[test]
    fn a_version_years_ahead_does_not_take_the_clock_there() {
        let clock = VersionClock::new(1);
        let far = (NOW_US * 2) << GATEWAY_BITS;
        assert!(clock.next_after(NOW_US, far) > far);
        assert!(clock.next(NOW_US) < far);
    }

    #[test]
    fn versions_that_follow_one_far_ahead_are_never_the_same() {
        let clock = VersionClock::new(1);
        let far = (NOW_US * 2) << GATEWAY_BITS;
        let mut seen = HashSet::new();
        for _ in 0..1000 {
            let version = clock.next_after(NOW_US, far);
            assert!(version > far && seen.insert(version));
        }
    }

    #[test]
    fn the_clock_follows_a_version_that_is_a_little_ahead() {
        let clock = VersionClock::new(1);
        let near = (NOW_US + 1_000_000) << GATEWAY_BITS;
        assert!(clock.next_after(NOW_US, near) > near);
        assert!(clock.next(NOW_US) > near);
    }

    #[test]
    fn a_version_fits_in_a_signed_number_for_two_centuries() {
        let year_2250_us = 8_836_000_000_000_000;
        assert!(i64::try_from(VersionClock::new(u64::MAX).next(year_2250_us)).is_ok());
        assert_eq!(microseconds(VersionClock::new(7).next(NOW_US)), NOW_US);
    }

    #[test]
    fn the_largest_version_does_not_overflow() {
        let clock = VersionClock::new(1);
        clock.next_after(NOW_US, u64::MAX);
    }
}
