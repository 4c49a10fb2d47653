//! What others see of the log of a committer.

use super::DurableCommitter;
use crate::log_statistics::LogStatistics;
use crate::outcome::Refusal;

impl DurableCommitter {
    /// Lets those who ask see how the log is now.
    pub(super) fn show_statistics(&self) {
        let log = self.log();
        if let Some(tail) = self.store.log_tail() {
            tail.set_extent(log.extent());
            if log.synced_end().is_some() && tail.set_durable(log.extent()) {
                self.store.note_durable();
            }
        }
        let work = log.work();
        self.store.set_log_statistics(LogStatistics {
            segment_bytes: log.segment_bytes(),
            segments: log.segments(),
            written_sequence: log.written().sequence,
            durable_sequence: log.durable().sequence,
            groups: work.groups,
            records: work.records,
            group_bytes: work.bytes,
            syncs: work.syncs,
            sync_durations: self.syncs.durations(),
            snapshot_sequence: self.snapshots.sequence(),
            snapshot_bytes: self.snapshots.file_bytes(),
            snapshots_made: self.snapshots.made(),
            snapshots_failed: self.snapshots.failures(),
            is_full: self.is_full(),
            is_not_ready: self.segments.shortage() == Some(Refusal::LogNotReady),
            has_failed: self.failed,
        });
    }
}
