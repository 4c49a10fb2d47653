//! How long to wait before the next attempt at what has failed.

use std::time::Duration;

use crate::limits::{
    FOLLOW_BLOCKED_WAIT_MS, FOLLOW_FIRST_WAIT_MS, FOLLOW_LONGEST_WAIT_MS, FOLLOW_UNUSABLE_WAIT_MS,
};

/// The waits between attempts: each twice as long as the one before, up to a bound, and shortened
/// by chance, so that many replicas of one leader do not come back together.
#[derive(Debug)]
pub struct Backoff {
    longest_ms: u64,
    in_row: u32,
}

impl Backoff {
    /// For a leader that cannot be reached, or does not go on.
    pub fn of_leader() -> Backoff {
        Backoff {
            longest_ms: FOLLOW_LONGEST_WAIT_MS,
            in_row: 0,
        }
    }

    /// For what this server itself has no place for, and for new copies.
    pub fn of_blocked() -> Backoff {
        Backoff {
            longest_ms: FOLLOW_BLOCKED_WAIT_MS,
            in_row: 0,
        }
    }

    /// Behind a copy that could not be used, as the next one may be: the longest wait at once.
    pub fn of_unusable() -> Backoff {
        Backoff {
            longest_ms: FOLLOW_UNUSABLE_WAIT_MS,
            in_row: u32::MAX,
        }
    }

    /// Something has worked: the next wait is short again.
    pub fn reset(&mut self) {
        self.in_row = 0;
    }

    /// Returns the next wait. `random` is drawn anew for each.
    pub fn next(&mut self, random: u64) -> Duration {
        let doubled = FOLLOW_FIRST_WAIT_MS.saturating_mul(1 << self.in_row.min(20));
        self.in_row = self.in_row.saturating_add(1);
        let most_ms = doubled.min(self.longest_ms);
        let half_ms = most_ms / 2;
        Duration::from_millis(half_ms + random % (most_ms - half_ms + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_bound_and_lie_in_the_upper_half_of_it() {
        for mut backoff in [Backoff::of_leader(), Backoff::of_blocked()] {
            for _ in 0..2 {
                let mut most_ms = FOLLOW_FIRST_WAIT_MS;
                for round in 0_u64..40 {
                    let waits_ms = backoff.next(round.wrapping_mul(0x9e37_79b9)).as_millis();
                    let waits_ms = u64::try_from(waits_ms).expect("short");
                    assert!((most_ms / 2..=most_ms).contains(&waits_ms), "{waits_ms}");
                    most_ms = (2 * most_ms).min(backoff.longest_ms);
                }
                backoff.reset();
            }
        }
        let mut backoff = Backoff::of_unusable();
        let half = Duration::from_millis(FOLLOW_UNUSABLE_WAIT_MS / 2);
        for random in [0, 7, u64::MAX] {
            assert!((half..=2 * half).contains(&backoff.next(random)));
        }
    }
}
