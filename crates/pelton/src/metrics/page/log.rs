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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_of_the_log_is_under_its_own_name() {
        let figures = LogStatistics {
            groups: 1,
            records: 2,
            group_bytes: 3,
            syncs: 4,
            segments: 5,
            segment_bytes: 6,
            written_sequence: 7,
            durable_sequence: 8,
            snapshots_made: 9,
            snapshots_failed: 10,
            snapshot_sequence: 11,
            snapshot_bytes: 12,
            is_not_ready: true,
            ..LogStatistics::default()
        };
        let mut page = MetricsPage::default();
        write(&mut page, &figures);
        write_syncs_and_snapshots(&mut page, &figures);
        let text = page.finish();
        let is_sample = |line: &&str| !line.starts_with('#') && !line.contains("_seconds");
        let found: Vec<_> = text.lines().filter(is_sample).collect();
        let expected = [
            "pelton_log_groups_total 1",
            "pelton_log_records_total 2",
            "pelton_log_bytes_total 3",
            "pelton_log_syncs_total 4",
            "pelton_log_segments 5",
            "pelton_log_segment_bytes 6",
            "pelton_log_written_sequence 7",
            "pelton_log_durable_sequence 8",
            "pelton_log_full 0",
            "pelton_log_not_ready 1",
            "pelton_log_failed 0",
            "pelton_snapshots_total 9",
            "pelton_snapshot_failures_total 10",
            "pelton_snapshot_sequence 11",
            "pelton_snapshot_bytes 12",
        ];
        assert_eq!(found, expected);
    }
}
