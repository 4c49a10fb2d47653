//! What the statistics say of the log and of blobs.

use api::admin::LogStatistics as LogMessage;
use store::Store;
use store::durable::LogStatistics;

/// Returns what blobs of a database may take, in bytes; 0: as the disk has room.
pub(super) fn blob_quota_bytes(store: &Store) -> u64 {
    let quota = store.blobs().map(|blobs| blobs.statistics().quota_bytes);
    quota.filter(|&bytes| bytes < u64::MAX).unwrap_or(0)
}

/// Returns what the statistics say of the log.
pub(super) fn log_message(log: LogStatistics) -> LogMessage {
    LogMessage {
        segment_bytes: log.segment_bytes,
        segments: log.segments,
        written_sequence: log.written_sequence,
        durable_sequence: log.durable_sequence,
        groups: log.groups,
        records: log.records,
        syncs: log.syncs,
        full: log.is_full,
        failed: log.has_failed,
    }
}
