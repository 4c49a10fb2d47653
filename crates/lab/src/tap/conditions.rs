//! Conditions that the tap makes: a longer way, a thinner one, fewer packets, fewer streams.

use super::limits::{PACKET_BYTES, SHAPED_PIECE_BYTES};

/// What the tap does to what it forwards. By default nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// Added to each round trip, half of it in each direction.
    pub delay_ns: u64,
    /// Bytes a second that all connections share, in each direction.
    pub bandwidth: Option<u64>,
    /// Packets a second that all connections share, in each direction. What is read at once counts
    /// as one packet, or as many as its bytes fill: a model of a network card or a virtual machine
    /// whose packets are counted.
    pub packets_per_second: Option<u64>,
    /// The most calls that a server is shown to allow at a time on one connection of HTTP/2.
    pub stream_limit: Option<u32>,
}

impl Conditions {
    /// Whether bytes can be forwarded as soon as they come.
    pub(super) fn are_none(&self) -> bool {
        self.delay_ns == 0 && self.bandwidth.is_none() && self.packets_per_second.is_none()
    }
}

/// One direction of the way that all connections share.
#[derive(Debug)]
pub(super) struct SharedLink {
    delay_ns: u64,
    bandwidth: Option<u64>,
    packets_per_second: Option<u64>,
    /// When the last byte, and the last packet, will have gone.
    bytes_gone_ns: u64,
    packets_gone_ns: u64,
}

impl SharedLink {
    pub(super) fn new(conditions: &Conditions) -> SharedLink {
        SharedLink {
            delay_ns: conditions.delay_ns / 2,
            bandwidth: conditions.bandwidth,
            packets_per_second: conditions.packets_per_second,
            bytes_gone_ns: 0,
            packets_gone_ns: 0,
        }
    }

    /// Whether bytes or packets have a rate.
    pub(super) fn has_rate(&self) -> bool {
        self.bandwidth.is_some() || self.packets_per_second.is_some()
    }

    /// How many bytes go in one piece: few where they have a rate, so that they arrive bit by bit.
    pub(super) fn piece_bytes(&self) -> usize {
        match self.has_rate() {
            false => usize::MAX,
            true => SHAPED_PIECE_BYTES,
        }
    }

    /// Sends so many bytes on their way, behind all that went before; returns when they arrive.
    pub(super) fn arrival_ns(&mut self, bytes: usize, now_ns: u64) -> u64 {
        let mut gone_ns = now_ns;
        if let Some(rate) = self.bandwidth {
            let from_ns = self.bytes_gone_ns.max(now_ns);
            self.bytes_gone_ns = from_ns.saturating_add(time_ns(bytes as u64, rate));
            gone_ns = gone_ns.max(self.bytes_gone_ns);
        }
        if let Some(rate) = self.packets_per_second {
            let packets = bytes.div_ceil(PACKET_BYTES) as u64;
            let from_ns = self.packets_gone_ns.max(now_ns);
            self.packets_gone_ns = from_ns.saturating_add(time_ns(packets, rate));
            gone_ns = gone_ns.max(self.packets_gone_ns);
        }
        gone_ns.saturating_add(self.delay_ns)
    }
}

/// How long so many things take at so many a second.
fn time_ns(number: u64, rate: u64) -> u64 {
    let ns = u128::from(number) * 1_000_000_000 / u128::from(rate.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_conditions_bytes_arrive_at_once() {
        let conditions = Conditions::default();
        assert!(conditions.are_none());
        let mut link = SharedLink::new(&conditions);
        assert_eq!(link.piece_bytes(), usize::MAX);
        assert_eq!(link.arrival_ns(1 << 30, 7), 7);
    }

    #[test]
    fn a_delay_is_half_in_each_direction_and_holds_nobody_up() {
        let mut link = SharedLink::new(&Conditions {
            delay_ns: 5_000,
            ..Conditions::default()
        });
        assert_eq!(link.arrival_ns(100, 10), 2_510);
        assert_eq!(link.arrival_ns(100, 11), 2_511);
    }

    #[test]
    fn a_bandwidth_is_shared_and_what_was_not_used_is_gone() {
        let mut link = SharedLink::new(&Conditions {
            bandwidth: Some(1_000_000),
            ..Conditions::default()
        });
        assert_eq!(link.arrival_ns(1_000, 0), 1_000_000);
        assert_eq!(link.arrival_ns(1_000, 0), 2_000_000);
        assert_eq!(link.arrival_ns(1, 9_000_000), 9_001_000);
    }

    #[test]
    fn packets_are_counted_by_what_is_sent_at_once() {
        let mut link = SharedLink::new(&Conditions {
            packets_per_second: Some(1_000),
            bandwidth: Some(u64::MAX),
            ..Conditions::default()
        });
        assert_eq!(link.arrival_ns(1, 0), 1_000_000);
        assert_eq!(link.arrival_ns(1, 0), 2_000_000);
        assert_eq!(link.arrival_ns(PACKET_BYTES + 1, 0), 4_000_000);
    }
}
