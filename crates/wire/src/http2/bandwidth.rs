//! Measures how much is in flight towards us, so that windows can be as large as that and no larger.
//!
//! A PING is sent when a stream has used half of its window, and what arrives until its answer is counted: about what
//! the peer can have on its way at once. If that is near to the estimate, the windows are in the way, and the estimate
//! is doubled.

use crate::limits;

const PING: [u8; 8] = *b"windows?";

/// The bandwidth-delay product, as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct Bandwidth {
    /// 0 before the first measurement.
    estimate: u32,
    /// Bytes since the PING, while it is unanswered.
    counted: Option<u32>,
}

impl Bandwidth {
    /// Begins a measurement, unless one is under way or can change nothing: what the PING says.
    pub(crate) fn begin(&mut self) -> Option<[u8; 8]> {
        if self.counted.is_some() || self.estimate >= limits::MAX_STREAM_WINDOW_BYTES {
            return None;
        }
        self.counted = Some(0);
        Some(PING)
    }

    #[inline]
    pub(crate) fn received(&mut self, bytes: u32) {
        if let Some(counted) = &mut self.counted {
            *counted = counted.saturating_add(bytes);
        }
    }

    /// A PING was answered.
    pub(crate) fn acknowledged(&mut self, opaque: [u8; 8]) {
        if opaque != PING {
            return;
        }
        let Some(counted) = self.counted.take() else { return };
        if u64::from(counted) * 3 >= u64::from(self.stream_window()) * 2 {
            self.estimate = counted.saturating_mul(2).clamp(self.estimate, limits::MAX_STREAM_WINDOW_BYTES);
        }
    }

    /// How large the window of a stream that receives much should be.
    pub(crate) fn stream_window(&self) -> u32 {
        self.estimate.max(limits::STREAM_WINDOW_BYTES)
    }

    /// How large the window of the connection should be, so that two such streams go on at full speed.
    pub(crate) fn connection_window(&self) -> u32 {
        (self.estimate * 2).clamp(limits::CONNECTION_WINDOW_BYTES, limits::MAX_CONNECTION_WINDOW_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(bandwidth: &mut Bandwidth, bytes: u32) {
        let ping = bandwidth.begin().expect("none is under way");
        assert_eq!(bandwidth.begin(), None);
        bandwidth.received(bytes);
        bandwidth.acknowledged(ping);
    }

    #[test]
    fn windows_grow_while_they_are_in_the_way() {
        let mut bandwidth = Bandwidth::default();
        measure(&mut bandwidth, 10_000);
        assert_eq!(bandwidth.stream_window(), limits::STREAM_WINDOW_BYTES);
        measure(&mut bandwidth, 60_000);
        assert_eq!(bandwidth.stream_window(), 120_000);
        measure(&mut bandwidth, 70_000);
        assert_eq!(bandwidth.stream_window(), 120_000);
        measure(&mut bandwidth, u32::MAX);
        assert_eq!(bandwidth.stream_window(), limits::MAX_STREAM_WINDOW_BYTES);
        assert_eq!(bandwidth.connection_window(), limits::MAX_CONNECTION_WINDOW_BYTES);
        assert_eq!(bandwidth.begin(), None);
    }

    #[test]
    fn the_answer_to_another_ping_changes_nothing() {
        let mut bandwidth = Bandwidth::default();
        let ping = bandwidth.begin().expect("none is under way");
        bandwidth.received(1 << 20);
        bandwidth.acknowledged(*b"someping");
        assert_eq!(bandwidth.stream_window(), limits::STREAM_WINDOW_BYTES);
        bandwidth.acknowledged(ping);
        assert_eq!(bandwidth.stream_window(), 2 << 20);
    }
}
