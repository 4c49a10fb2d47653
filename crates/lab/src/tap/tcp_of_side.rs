//! What the kernel says of one side of a connection.

use net::TcpDiagnosis;
use rustix::fd::OwnedFd;
use rustix::net::{getpeername, getsockname};

/// What the kernel says of one side of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpOfSide {
    /// Segments that the tap sent.
    pub segments_out: u64,
    /// Segments that the tap received.
    pub segments_in: u64,
    /// Segments that it sent again.
    pub retransmits: u64,
    /// From a segment to its acknowledgement, smoothed; in microseconds.
    pub round_trip_us: u64,
}

impl TcpOfSide {
    /// Asks for a socket's; `None` of one that is no TCP, or has ended.
    pub(super) fn of(socket: &OwnedFd, diagnosis: &mut TcpDiagnosis) -> Option<TcpOfSide> {
        let local = getsockname(socket).ok()?.try_into().ok()?;
        let peer = getpeername(socket).ok()??.try_into().ok()?;
        let info = diagnosis.info(local, peer)?;
        Some(TcpOfSide {
            segments_out: info.figures.segments_out,
            segments_in: info.figures.segments_in,
            retransmits: info.figures.retransmits,
            round_trip_us: info.round_trip_us,
        })
    }
}
