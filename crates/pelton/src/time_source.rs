//! The clocks of this machine.

use std::time::SystemTime;

use rustix::time::{ClockId, clock_gettime};
use server::TimeSource;

/// The clocks of this machine. The drivers read the same monotonic clock.
pub struct SystemTimeSource;

impl TimeSource for SystemTimeSource {
    fn monotonic_ns(&self) -> u64 {
        let now = clock_gettime(ClockId::Monotonic);
        now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
    }

    fn wall_ms(&self) -> u64 {
        let since_1970 = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
    }

    fn wall_us(&self) -> u64 {
        let since_1970 = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX)
    }
}

impl store::Clock for SystemTimeSource {
    fn now_ns(&mut self) -> u64 {
        self.monotonic_ns()
    }

    fn now_ms(&mut self) -> u64 {
        self.wall_ms()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_the_server_is_that_of_the_drivers() {
        let before = SystemTimeSource.monotonic_ns();
        assert!(SystemTimeSource.monotonic_ns() >= before && before > 0);
        assert!(
            SystemTimeSource.wall_ms() > 1_700_000_000_000,
            "milliseconds since 1970"
        );
    }
}
