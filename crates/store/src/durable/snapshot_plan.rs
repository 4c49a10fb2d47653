//! When snapshots are made.

use std::sync::Arc;

use wal::LogWork;
use wal::disk::Disk;

use crate::clock::Clock;
use crate::database::Durability;
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
    /// What was written to the log at the base of the newest snapshot.
    base: LogWork,
    /// The same of the one that is made.
    making: Option<LogWork>,
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
            base: LogWork::default(),
            making: None,
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
    pub(super) fn retry_ns(&self, written: LogWork) -> u64 {
        if self.retry_ns > 0 && self.making.is_none() && self.is_wanted(written) {
            self.retry_ns
        } else {
            u64::MAX
        }
    }

    fn log_bytes(&self, written: LogWork) -> u64 {
        self.replayed_bytes + written.bytes - self.base.bytes
    }

    /// Bytes of the log since the newest snapshot, where those of large values count less.
    fn replay_bytes(&self, written: LogWork) -> u64 {
        let large_bytes = written.large_bytes - self.base.large_bytes;
        self.log_bytes(written) - large_bytes + large_bytes / limits::LARGE_BYTES_LESS
    }

    /// Whether there is room on the disk for the log that large values may leave.
    fn has_room(&self) -> bool {
        let log_bytes = self.floor_bytes * limits::LARGE_BYTES_LESS;
        let free_bytes = self.disk.free_bytes().unwrap_or(0);
        free_bytes >= limits::LARGE_LOG_ROOM_TIMES * log_bytes
    }

    /// Wants one with everything up to this sequence: then what a database was converted from can
    /// go.
    pub(super) fn want(&mut self, sequence: u64) {
        self.wanted_sequence = self.wanted_sequence.max(sequence);
    }

    fn is_wanted(&self, written: LogWork) -> bool {
        if self.sequence < self.wanted_sequence {
            return true;
        }
        self.log_bytes(written) > self.file_bytes.max(self.floor_bytes)
            && (self.replay_bytes(written) > self.floor_bytes || !self.has_room())
    }

    /// Whether one is due.
    pub(super) fn is_due(&self, written: LogWork, clock: &mut dyn Clock) -> bool {
        self.making.is_none()
            && self.is_wanted(written)
            && (self.retry_ns == 0 || clock.now_ns() >= self.retry_ns)
    }

    /// Whether one is worth it at a clean stop: cheap, and cheaper to load than the log is to
    /// replay.
    pub(super) fn is_cheap(&self, written: LogWork, store: &Store) -> bool {
        let log_bytes = self.log_bytes(written);
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

    /// One is begun, at a moment when so much is written.
    pub(super) fn begin(&mut self, written: LogWork) {
        debug_assert!(self.making.is_none(), "one is made at a time");
        self.making = Some(written);
    }

    /// The one that was made is there.
    pub(super) fn installed(&mut self, report: &SnapshotReport) {
        if let Some(base) = self.making.take() {
            self.base = base;
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
        self.making = None;
        self.retry_ns = clock.now_ns() + limits::RETRY_MS * 1_000_000;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::StandingClock;

    const SEGMENT_BYTES: u64 = 1 << 20;
    const FLOOR_BYTES: u64 = limits::FLOOR_SEGMENTS * SEGMENT_BYTES;
    const LARGE_FLOOR_BYTES: u64 = limits::LARGE_BYTES_LESS * FLOOR_BYTES;

    fn plan(free_bytes: u64) -> SnapshotPlan {
        let disk = testkit::simulated_disk(1);
        disk.set_capacity_bytes(free_bytes);
        SnapshotPlan::new(Arc::new(disk), SEGMENT_BYTES, 0, None)
    }

    fn small(bytes: u64) -> LogWork {
        LogWork {
            bytes,
            ..LogWork::default()
        }
    }

    fn large(bytes: u64) -> LogWork {
        LogWork {
            large_bytes: bytes,
            ..small(bytes)
        }
    }

    fn install(plan: &mut SnapshotPlan, written: LogWork, file_bytes: u64) {
        plan.begin(written);
        assert!(!is_due(plan, small(u64::MAX / 2)), "one is made at a time");
        plan.installed(&SnapshotReport {
            file: String::new(),
            sequence: plan.sequence + 1,
            replay_sequence: plan.sequence + 1,
            last_sequence: plan.sequence + 1,
            entries: 0,
            content_bytes: 0,
            file_bytes,
            longest_page_ns: 0,
        });
    }

    fn is_due(plan: &SnapshotPlan, written: LogWork) -> bool {
        plan.is_due(written, &mut StandingClock)
    }

    #[test]
    fn small_values_have_one_made_beyond_the_floor_and_again_beyond_the_next() {
        let mut plan = plan(u64::MAX);
        for base_bytes in [0, FLOOR_BYTES + 1, 5 * FLOOR_BYTES] {
            if base_bytes > 0 {
                install(&mut plan, small(base_bytes), 10);
            }
            assert!(!is_due(&plan, small(base_bytes + FLOOR_BYTES)));
            assert!(is_due(&plan, small(base_bytes + FLOOR_BYTES + 1)));
        }
    }

    #[test]
    fn large_values_count_less_since_they_are_replayed_fast() {
        let mut plan = plan(u64::MAX);
        for base_bytes in [0, LARGE_FLOOR_BYTES, 3 * LARGE_FLOOR_BYTES] {
            if base_bytes > 0 {
                install(&mut plan, large(base_bytes), 10);
            }
            assert!(!is_due(&plan, large(base_bytes + LARGE_FLOOR_BYTES)));
            let beyond = base_bytes + LARGE_FLOOR_BYTES + limits::LARGE_BYTES_LESS;
            assert!(is_due(&plan, large(beyond)));
            // Half of them are small ones: those count in full.
            let mixed = LogWork {
                bytes: base_bytes + LARGE_FLOOR_BYTES,
                large_bytes: base_bytes + LARGE_FLOOR_BYTES / 2,
                ..LogWork::default()
            };
            assert!(is_due(&plan, mixed));
        }
    }

    #[test]
    fn large_values_count_like_others_while_the_disk_is_nearly_full() {
        let room_bytes = limits::LARGE_LOG_ROOM_TIMES * LARGE_FLOOR_BYTES;
        let written = large(FLOOR_BYTES + 1);
        assert!(!is_due(&plan(room_bytes), written));
        assert!(is_due(&plan(room_bytes - 1), written));
        assert!(!is_due(&plan(0), large(FLOOR_BYTES)));
    }

    #[test]
    fn the_log_is_longer_than_the_snapshot_whatever_is_in_it() {
        let mut plan = plan(0);
        install(&mut plan, small(0), 3 * LARGE_FLOOR_BYTES);
        for work in [small, large] {
            assert!(!is_due(&plan, work(3 * LARGE_FLOOR_BYTES)));
            assert!(is_due(&plan, work(3 * LARGE_FLOOR_BYTES + 1)));
        }
    }
}
