//! How far the reading of a log has come, for whoever waits for it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts what a start has read of its log. Written by one thread, read by any.
#[derive(Debug, Default)]
pub struct ReadProgress {
    bytes: AtomicU64,
    records: AtomicU64,
}

impl ReadProgress {
    /// Nothing has been read.
    pub const fn new() -> ReadProgress {
        ReadProgress {
            bytes: AtomicU64::new(0),
            records: AtomicU64::new(0),
        }
    }

    /// Returns the bytes of the groups that were read and applied so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns how many records were in them.
    pub fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    pub(super) fn add_group(&self, bytes: u64, records: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.records.fetch_add(records, Ordering::Relaxed);
    }
}
