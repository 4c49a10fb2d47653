//! Where the store takes the time from.

/// The time for committers and background jobs.
pub trait Clock {
    /// Monotonic nanoseconds of any origin. Read about every ten microseconds.
    fn now_ns(&mut self) -> u64;
    /// Milliseconds since 1970. Read once per run.
    fn now_ms(&mut self) -> u64;
}
