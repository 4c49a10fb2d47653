//! Looking at a log without changing it.

use super::damage::Damage;
use super::known::{KnownLog, Misfit};
use super::scan::{LogFiles, LogReadFailure, LogScan, SegmentEnd, VisitGroup, scan, segments};
use super::segment::{FoundSegment, segment_name};
use crate::disk::Disk;

/// What a log holds.
#[derive(Clone, Debug)]
pub struct LogReport {
    /// Its segments, oldest first; the last ones may hold nothing that counts.
    pub segments: Vec<SegmentReport>,
    /// The public half of the log's id; `None`: there are no groups.
    pub history_id: Option<u64>,
    /// Groups that count.
    pub groups: u64,
    /// Records in them.
    pub records: u64,
    /// The first sequence that they cover.
    pub first_sequence: u64,
    /// The last sequence that they cover.
    pub last_sequence: u64,
    /// The latest wall clock in it, in milliseconds since 1970.
    pub wall_ms: u64,
    /// How it ends.
    pub ending: LogEnding,
    /// Why it does not go with what is known of it from elsewhere.
    pub misfit: Option<Misfit>,
}

/// What a segment holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentReport {
    /// The name of its file.
    pub file: String,
    /// Bytes of its file.
    pub bytes: u64,
    /// Bytes of the groups that count.
    pub used_bytes: u64,
    /// Groups that count.
    pub groups: u64,
    /// The first and last sequence that they cover.
    pub sequences: Option<(u64, u64)>,
}

/// How a log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEnding {
    /// There are no groups, and there never were any.
    Empty,
    /// With a clean stop.
    Closed,
    /// In use, or without a clean stop. What may have been written behind the end was never
    /// durable.
    Open,
    /// Something that was durable is missing.
    Damaged(Damage),
}

/// Reads a whole log, checks every checksum and the form of every record, and shows each group that
/// counts to `visit`. Changes nothing.
///
/// For a log that nobody writes: what is written while it is read may look like damage. Hold the
/// lock of the folder.
pub fn verify(disk: &dyn Disk, visit: VisitGroup<'_>) -> Result<LogReport, LogReadFailure> {
    let scan = read(disk, LogFiles::Own, visit)?;
    Ok(LogReport::of(&scan))
}

/// The same for the log in a backup, whose files have the size of what is in them.
pub fn verify_copy(disk: &dyn Disk, visit: VisitGroup<'_>) -> Result<LogReport, LogReadFailure> {
    let scan = read(disk, LogFiles::Copied, visit)?;
    Ok(LogReport::of(&scan))
}

/// The same, and checks that the log goes with a snapshot, or that nothing is missing before it if
/// there is none.
pub fn verify_known(
    disk: &dyn Disk,
    known: &KnownLog,
    visit: VisitGroup<'_>,
) -> Result<LogReport, LogReadFailure> {
    let scan = read(disk, LogFiles::Own, visit)?;
    Ok(LogReport {
        misfit: known.misfit(&scan),
        ..LogReport::of(&scan)
    })
}

fn read(
    disk: &dyn Disk,
    files: LogFiles,
    visit: VisitGroup<'_>,
) -> Result<LogScan, LogReadFailure> {
    let segments = segments(disk)?;
    scan(disk, segments, files, &mut |place, group| {
        for record in group.records() {
            record?;
        }
        visit(place, group)
    })
}

impl LogReport {
    fn of(scan: &LogScan) -> LogReport {
        let segment = |(index, segment): (usize, &FoundSegment)| {
            let end: Option<&SegmentEnd> = scan.ends.get(index);
            SegmentReport {
                file: segment_name(segment.ordinal),
                bytes: segment.bytes,
                used_bytes: end.map_or(0, |end| end.used_bytes),
                groups: end.map_or(0, |end| end.groups),
                sequences: end.map(|end| (end.first_sequence, end.last.sequence)),
            }
        };
        let ending = match (scan.damage, scan.chain) {
            (Some(damage), _) => LogEnding::Damaged(damage),
            (None, None) => LogEnding::Empty,
            (None, Some(_)) if scan.closed => LogEnding::Closed,
            (None, Some(_)) => LogEnding::Open,
        };
        LogReport {
            segments: scan.segments.iter().enumerate().map(segment).collect(),
            history_id: scan.chain.map(|chain| chain.log_id.history),
            groups: scan.groups,
            records: scan.records,
            first_sequence: scan.first_sequence,
            last_sequence: scan.chain.map_or(0, |chain| chain.position.sequence),
            wall_ms: scan.chain.map_or(0, |chain| chain.wall_ms),
            ending,
            misfit: None,
        }
    }
}
