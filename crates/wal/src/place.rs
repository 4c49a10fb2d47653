//! Places in the log, and what must hold there.

use std::fmt;

use super::group::{GroupHeader, LogId, Position};
use super::segment::segment_name;

/// Where something stands in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPlace {
    /// The segment; [`segment_name`] is its file.
    pub segment: u64,
    /// Bytes from the beginning of the file.
    pub offset: u64,
}

impl fmt::Display for LogPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = segment_name(self.segment);
        write!(formatter, "{name} at byte {}", self.offset)
    }
}

/// Where a log ends at some moment. What is behind its last sync may go with a loss of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// The last group, and the last sequence that it covers.
    pub position: Position,
    /// The first byte behind it.
    pub place: LogPlace,
}

/// The end of a log: what the next group must repeat.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    pub(super) log_id: LogId,
    pub(super) position: Position,
    pub(super) checksum: u32,
    pub(super) wall_ms: u64,
}

impl Chain {
    /// Of a log without groups, whose first one will cover what comes after `sequence`.
    pub(super) fn start(log_id: LogId, sequence: u64) -> Chain {
        Chain {
            log_id,
            position: Position { group: 0, sequence },
            checksum: 0,
            wall_ms: 0,
        }
    }

    /// Whether a group with this header is the next one.
    pub(super) fn is_followed_by(&self, header: &GroupHeader) -> bool {
        header.number == self.position.group + 1
            && header.previous_checksum == self.checksum
            && header.first_sequence == self.position.sequence + 1
            && (header.log_id == self.log_id || header.new_history)
    }

    /// The chain behind a group.
    pub(super) fn behind(header: &GroupHeader, checksum: u32) -> Chain {
        Chain {
            log_id: header.log_id,
            position: header.position(),
            checksum,
            wall_ms: header.wall_ms,
        }
    }
}
