//! When snapshots are made.

use std::sync::Arc;

use wal::disk::Disk;

use crate::catalogue::Durability;
use crate::committer::Clock;
use crate::snapshot::{SnapshotReport, Summary, limits};
use crate::store::Store;

/// What decides when the next snapshot is made.
#[derive(Debug)]
pub(super) struct SnapshotPlan {
    disk: Arc<dyn Disk>,
    /// Bytes of log since the newest snapshot from which on another one is due, be that as small as
    /// it may.
    floor_bytes: u64,
    /// Bytes of log beyond the newest snapshot that were there at the start.
    replayed_bytes: u64,
    /// Bytes written to the log at the base of the newest snapshot.
    base_bytes: u64,
    /// The same of the one that is made.
    making_bytes: Option<u64>,
    /// The base of the newest snapshot; 0: there is none.
    sequence: u64,
    /// Up to which the log is of no use any more.
    replay_sequence: u64,
    /// Bytes of the newest snapshot.
    file_bytes: u64,
    /// One behind this sequence is wanted, however little the log has grown.
    wanted_sequence: u64,
    /// After a failure: not before this time.
    retry_ns: u64,
    /// Since the start.
    made: u64,
    failures: u64,
}

impl SnapshotPlan {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        segment_bytes: u64,
        replayed_bytes: u64,
        newest: Option<&Summary>,
    ) -> SnapshotPlan {
        SnapshotPlan {
            disk,
            floor_bytes: limits::FLOOR_SEGMENTS * segment_bytes,
            replayed_bytes,
            base_bytes: 0,
            making_bytes: None,
            sequence: newest.map_or(0, |newest| newest.header.sequence),
            replay_sequence: newest.map_or(0, |newest| newest.header.replay_sequence),
            file_bytes: newest.map_or(0, |newest| newest.file_bytes),
            wanted_sequence: 0,
            retry_ns: 0,
            made: 0,
            failures: 0,
        }
    }

    /// The folder.
    pub(super) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// The base of the newest snapshot; 0: there is none.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Up to which the log is of no use any more, with the newest snapshot and what the trees had
    /// when it was begun.
    pub(super) fn replay_sequence(&self) -> u64 {
        self.replay_sequence
    }

    /// Bytes of the newest snapshot.
    pub(super) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// How many were made since the start.
    pub(super) fn made(&self) -> u64 {
        self.made
    }

    /// How many attempts have failed since the start.
    pub(super) fn failures(&self) -> u64 {
        self.failures
    }

    /// When an attempt is due after one that has failed; `u64::MAX`: none is.
    pub(super) fn retry_ns(&self, written_bytes: u64) -> u64 {
        if self.retry_ns > 0 && self.making_bytes.is_none() && self.is_wanted(written_bytes) {
            self.retry_ns
        } else {
            u64::MAX
        }
    }

    fn log_bytes(&self, written_bytes: u64) -> u64 {
        self.replayed_bytes + written_bytes - self.base_bytes
    }

    /// Wants one with everything up to this sequence: then what a database was converted from can
    /// go.
    pub(super) fn want(&mut self, sequence: u64) {
        self.wanted_sequence = self.wanted_sequence.max(sequence);
    }

    fn is_wanted(&self, written_bytes: u64) -> bool {
        self.sequence < self.wanted_sequence
            || self.log_bytes(written_bytes) > self.file_bytes.max(self.floor_bytes)
    }

    /// Whether one is due.
    pub(super) fn is_due(&self, written_bytes: u64, clock: &mut dyn Clock) -> bool {
        self.making_bytes.is_none()
            && self.is_wanted(written_bytes)
            && (self.retry_ns == 0 || clock.now_ns() >= self.retry_ns)
    }

    /// Whether one is worth it at a clean stop: cheap, and cheaper to load than the log is to
    /// replay.
    pub(super) fn is_cheap(&self, written_bytes: u64, store: &Store) -> bool {
        let log_bytes = self.log_bytes(written_bytes);
        if log_bytes <= limits::STOP_LOG_BYTES {
            return false;
        }
        let is_logged = |durability| durability != Durability::Volatile;
        let databases = store.databases().into_iter();
        let content_bytes = databases
            .filter(|database| is_logged(database.config.durability))
            .filter_map(|database| store.view(database.id))
            .map(|view| view.statistics().content_bytes)
            .sum::<u64>();
        content_bytes <= limits::STOP_BYTES.min(log_bytes)
    }

    /// One is begun, at a moment when so many bytes are written.
    pub(super) fn begin(&mut self, written_bytes: u64) {
        debug_assert!(self.making_bytes.is_none(), "one is made at a time");
        self.making_bytes = Some(written_bytes);
    }

    /// The one that was made is there.
    pub(super) fn installed(&mut self, report: &SnapshotReport) {
        if let Some(base_bytes) = self.making_bytes.take() {
            self.base_bytes = base_bytes;
            self.replayed_bytes = 0;
        }
        self.sequence = report.sequence;
        self.replay_sequence = report.replay_sequence;
        self.file_bytes = report.file_bytes;
        self.made += 1;
        self.retry_ns = 0;
    }

    /// An attempt has failed.
    pub(super) fn count_failure(&mut self) {
        self.failures += 1;
    }

    /// It came to nothing.
    pub(super) fn failed(&mut self, clock: &mut dyn Clock) {
        self.making_bytes = None;
        self.retry_ns = clock.now_ns() + limits::RETRY_MS * 1_000_000;
    }
}
