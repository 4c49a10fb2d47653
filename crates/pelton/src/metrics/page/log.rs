//! The log, its syncs and the snapshots.

use store::durable::LogStatistics;

use crate::metrics::exposition::FamilyKind::{Counter, Gauge, Histogram};
use crate::metrics::exposition::MetricsPage;

/// Writes what the log holds and has written.
pub(super) fn write(page: &mut MetricsPage, figures: &LogStatistics) {
    let counters = [
        (
            "pelton_log_groups_total",
            "Groups of records written to the log.",
            figures.groups,
        ),
        (
            "pelton_log_records_total",
            "Records in them.",
            figures.records,
        ),
        (
            "pelton_log_bytes_total",
            "Bytes of these groups, with what fills up their blocks.",
            figures.group_bytes,
        ),
        (
            "pelton_log_syncs_total",
            "Syncs of the log, with those that no write waited for.",
            figures.syncs,
        ),
    ];
    for (name, help, value) in counters {
        page.single(name, Counter, help, value);
    }
    let gauges = [
        (
            "pelton_log_segments",
            "Files of the log that hold groups.",
            figures.segments,
        ),
        (
            "pelton_log_segment_bytes",
            "Bytes of these files on the device.",
            figures.segment_bytes,
        ),
        (
            "pelton_log_written_sequence",
            "The last sequence written to the log.",
            figures.written_sequence,
        ),
        (
            "pelton_log_durable_sequence",
            "The last sequence known to be on the device.",
            figures.durable_sequence,
        ),
        (
            "pelton_log_full",
            "1 while there is no room for the log: writes that grow are refused.",
            figures.is_full.into(),
        ),
        (
            "pelton_log_not_ready",
            "1 while the log cannot grow for another reason: writes that grow are refused.",
            figures.is_not_ready.into(),
        ),
        (
            "pelton_log_failed",
            "1 after a write or sync has failed: writes are refused until a restart.",
            figures.has_failed.into(),
        ),
    ];
    for (name, help, value) in gauges {
        page.single(name, Gauge, help, value);
    }
}

/// Writes how long syncs took, and what snapshots there are.
pub(super) fn write_syncs_and_snapshots(page: &mut MetricsPage, figures: &LogStatistics) {
    page.family(
        "pelton_log_sync_duration_seconds",
        Histogram,
        "How long the syncs took that writes waited for.",
    );
    page.histogram(&[], &figures.sync_durations);
    page.single(
        "pelton_snapshots_total",
        Counter,
        "Snapshots made.",
        figures.snapshots_made,
    );
    page.single(
        "pelton_snapshot_failures_total",
        Counter,
        "Attempts to make a snapshot that failed.",
        figures.snapshots_failed,
    );
    page.single(
        "pelton_snapshot_sequence",
        Gauge,
        "The newest snapshot has everything up to this sequence; 0: there is none.",
        figures.snapshot_sequence,
    );
    page.single(
        "pelton_snapshot_bytes",
        Gauge,
        "Bytes of the newest snapshot.",
        figures.snapshot_bytes,
    );
}
