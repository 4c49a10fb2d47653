//! How long to wait before another attempt at what a broken connection has ended.

use std::thread;
use std::time::Duration;

use crate::interrupt::Interrupt;

/// The first wait before another attempt; each further one in a row waits twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// How often somebody who waits looks whether it was interrupted.
const LOOK: Duration = Duration::from_millis(100);

/// Waits before the next attempt, after `in_row` of them that have brought nothing further. Ends
/// early when a signal comes.
pub(super) fn wait(in_row: u32, interrupt: &Interrupt) {
    let mut left = wait_after(in_row);
    while !left.is_zero() && !interrupt.is_set() {
        let part = left.min(LOOK);
        thread::sleep(part);
        left -= part;
    }
}

fn wait_after(in_row: u32) -> Duration {
    LONGEST_WAIT.min(FIRST_WAIT * 2_u32.saturating_pow(in_row.clamp(1, 10) - 1))
}

#[cfg(test)]
#[test]
fn each_wait_is_twice_as_long_up_to_a_bound() {
    let waits: Vec<u128> = (1..=8)
        .map(|in_row| wait_after(in_row).as_millis())
        .collect();
    assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
    assert_eq!(wait_after(u32::MAX), LONGEST_WAIT);
}
