//! Where the store takes the time from.

/// The time for committers and background jobs.
pub trait Clock {
    /// Monotonic nanoseconds of any origin. Read about every ten microseconds.
    fn now_ns(&mut self) -> u64;
    /// Milliseconds since 1970. Read once per run.
    fn now_ms(&mut self) -> u64;
}

/// A clock that shows the same time for ever.
#[cfg(test)]
pub(crate) struct StandingClock;

#[cfg(test)]
impl Clock for StandingClock {
    fn now_ns(&mut self) -> u64 {
        1
    }

    fn now_ms(&mut self) -> u64 {
        1
    }
}
