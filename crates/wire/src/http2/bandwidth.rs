//! Measures how much is in flight towards us, so that windows can be as large as that and no
//! larger.
//!
//! A PING is sent when a stream has used half of its window, and what arrives until its answer is
//! counted. A sender that the window holds up sends the rest of it in that time, less a frame or
//! two, and waits. So if a fifth of the window has come, it may be in the way, and is doubled; if
//! two fifths have, it is doubled twice, and so on. It stops growing at five to ten times what is
//! in flight.

use crate::limits;

const PING: [u8; 8] = *b"windows?";

/// What a window has to be, as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct Bandwidth {
    /// 0 before it has grown.
    window: u32,
    /// Bytes since the PING, while it is unanswered.
    counted: Option<u32>,
}

impl Bandwidth {
    /// Begins a measurement, unless one is under way or can change nothing: what the PING says.
    pub(crate) fn begin(&mut self) -> Option<[u8; 8]> {
        if self.counted.is_some() || self.window >= limits::MAX_STREAM_WINDOW_BYTES {
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
        let Some(counted) = self.counted.take() else {
            return;
        };
        let mut window = self.stream_window();
        while window < limits::MAX_STREAM_WINDOW_BYTES
            && u64::from(counted) * 5 >= u64::from(window)
        {
            window = (window * 2).min(limits::MAX_STREAM_WINDOW_BYTES);
            self.window = window;
        }
    }

    /// How large the window of a stream that receives much should be.
    pub(crate) fn stream_window(&self) -> u32 {
        self.window.max(limits::STREAM_WINDOW_BYTES)
    }

    /// How large the window of the connection should be, so that two such streams go on at full
    /// speed.
    pub(crate) fn connection_window(&self) -> u32 {
        (self.window * 2).clamp(
            limits::CONNECTION_WINDOW_BYTES,
            limits::MAX_CONNECTION_WINDOW_BYTES,
        )
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
        measure(&mut bandwidth, 15_000);
        assert_eq!(bandwidth.stream_window(), 2 * limits::STREAM_WINDOW_BYTES);
        measure(&mut bandwidth, 25_000);
        assert_eq!(bandwidth.stream_window(), 2 * limits::STREAM_WINDOW_BYTES);
        // Half of it came: at most ten times as much.
        measure(&mut bandwidth, 65_535);
        assert_eq!(bandwidth.stream_window(), 8 * limits::STREAM_WINDOW_BYTES);
        assert_eq!(
            bandwidth.connection_window(),
            limits::CONNECTION_WINDOW_BYTES
        );
        // A fifth to the byte, and a byte less.
        measure(&mut bandwidth, 8 * limits::STREAM_WINDOW_BYTES / 5 - 1);
        assert_eq!(bandwidth.stream_window(), 8 * limits::STREAM_WINDOW_BYTES);
        measure(&mut bandwidth, 8 * limits::STREAM_WINDOW_BYTES / 5);
        assert_eq!(bandwidth.stream_window(), 16 * limits::STREAM_WINDOW_BYTES);
        assert_eq!(
            bandwidth.connection_window(),
            32 * limits::STREAM_WINDOW_BYTES
        );
        measure(&mut bandwidth, u32::MAX);
        assert_eq!(bandwidth.stream_window(), limits::MAX_STREAM_WINDOW_BYTES);
        assert_eq!(
            bandwidth.connection_window(),
            limits::MAX_CONNECTION_WINDOW_BYTES
        );
        assert_eq!(bandwidth.begin(), None);
    }

    #[test]
    fn the_answer_to_another_ping_changes_nothing() {
        let mut bandwidth = Bandwidth::default();
        let ping = bandwidth.begin().expect("none is under way");
        bandwidth.received(20_000);
        bandwidth.acknowledged(*b"someping");
        assert_eq!(bandwidth.stream_window(), limits::STREAM_WINDOW_BYTES);
        bandwidth.acknowledged(ping);
        assert_eq!(bandwidth.stream_window(), 2 * limits::STREAM_WINDOW_BYTES);
    }
}
