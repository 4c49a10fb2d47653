//! The bytes of unfinished messages and of backlogs on all streams of a connection.

use super::timers::ConnectionTimers;

/// How many bytes are unfinished, and how many may be for now.
#[derive(Debug)]
pub(crate) struct UnfinishedBytes {
    bytes: usize,
    bound_bytes: usize,
    /// The peer has to make progress. A client chose its server, which may think for as long as it
    /// likes.
    is_timed: bool,
}

impl UnfinishedBytes {
    /// Returns an empty count. If it is timed, the timers are notified of what comes.
    pub(crate) fn new(is_timed: bool) -> UnfinishedBytes {
        UnfinishedBytes {
            bytes: 0,
            bound_bytes: usize::MAX,
            is_timed,
        }
    }

    /// Returns the bytes that are unfinished.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bounds them by what the layer above allows for now.
    pub(crate) fn set_bound(&mut self, bytes: usize) {
        self.bound_bytes = bytes;
    }

    /// Returns what the layer above allows for now.
    #[inline]
    pub(crate) fn bound_bytes(&self) -> usize {
        self.bound_bytes
    }

    /// Counts bytes that have come.
    pub(crate) fn add(&mut self, bytes: usize, timers: &mut ConnectionTimers, now_ns: u64) {
        self.bytes += bytes;
        if self.is_timed {
            timers.gathered(self.bytes, bytes, now_ns);
        }
    }

    /// Takes bytes out of the count.
    pub(crate) fn remove(&mut self, bytes: usize, timers: &mut ConnectionTimers, now_ns: u64) {
        self.bytes -= bytes;
        if self.bytes == 0 {
            timers.gathered(0, 0, now_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::config::Config;

    #[test]
    fn a_server_expects_progress_while_something_is_unfinished() {
        let config = Config::server();
        for (is_timed, expected) in [(true, true), (false, false)] {
            let mut timers = ConnectionTimers::new(&config, 0);
            let mut unfinished = UnfinishedBytes::new(is_timed);
            for now_ns in [1, 2] {
                unfinished.add(10, &mut timers, now_ns);
                unfinished.add(5, &mut timers, now_ns);
                let is_due =
                    |timers: &ConnectionTimers| timers.gathering_deadline_ns(&config).is_some();
                assert_eq!((unfinished.bytes(), is_due(&timers)), (15, expected));
                unfinished.remove(10, &mut timers, now_ns);
                assert_eq!((unfinished.bytes(), is_due(&timers)), (5, expected));
                unfinished.remove(5, &mut timers, now_ns);
                assert_eq!((unfinished.bytes(), is_due(&timers)), (0, false));
            }
        }
    }
}
