//! The times that nodes of a simulated network keep.

use crate::limits::{DRAIN_MS, WRITE_STALL_MS};

/// What a simulation can choose of the times of its nodes. The defaults are those of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// What a tick takes in virtual time; at least 1, so that time goes on whatever handlers do.
    pub tick_ns: u64,
    /// How long waiting output may make no progress: `LoopConfig::write_stall_ms`.
    pub write_stall_ms: u64,
    /// How long a stop waits for the drain: `LoopConfig::drain_ms`.
    pub drain_ms: u64,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            tick_ns: 1_000,
            write_stall_ms: WRITE_STALL_MS,
            drain_ms: DRAIN_MS,
        }
    }
}
