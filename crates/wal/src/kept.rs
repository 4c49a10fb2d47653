//! Segments that no start needs any more, and that are kept for those who read the log.
//!
//! A start does not read them: what is damaged in them is no reason to refuse it.

use std::collections::VecDeque;

use super::group::{GroupHeader, Position};
use super::reader::SegmentReader;
use super::scan::{LogReadFailure, reader};
use super::segment::{FoundSegment, segment_name};
use super::writer::FullSegment;
use crate::disk::Disk;

/// The segments before those that a start needs.
#[derive(Debug, Default)]
pub(super) struct KeptSegments {
    /// Those that can be read on into the others, oldest first.
    pub(super) full: VecDeque<FullSegment>,
    /// The first sequence that the oldest of these covers; 0: there are none.
    pub(super) first_sequence: u64,
    /// Those that cannot, oldest first: they, or what is between, are damaged or gone.
    pub(super) given_up: Vec<FoundSegment>,
}

impl KeptSegments {
    /// Splits the segments of a log where what comes after a sequence begins. Whatever is not
    /// certain is needed.
    pub(super) fn split(
        disk: &dyn Disk,
        mut found: Vec<FoundSegment>,
        base_sequence: u64,
    ) -> Result<(KeptSegments, Vec<FoundSegment>), LogReadFailure> {
        let mut kept = KeptSegments::default();
        if base_sequence == 0 {
            return Ok((kept, found)); // there is no snapshot: all of it is needed
        }
        let heads = found.iter().map(|segment| head(disk, segment));
        let heads: Vec<Option<GroupHeader>> = heads.collect::<Result<_, _>>()?;
        let Some(first) = first_needed(disk, &found, &heads, base_sequence)? else {
            return Ok((kept, found));
        };
        let needed = found.split_off(first);
        let mut next = heads[first].map(|head| (head, needed[0].ordinal));
        while let Some((next_head, next_ordinal)) = next.take()
            && let Some(segment) = found.last()
            && let Some(Some(head)) = heads.get(found.len() - 1)
            && segment.ordinal + 1 == next_ordinal
            && head.number < next_head.number
            && head.first_sequence <= next_head.first_sequence
        {
            kept.full.push_front(FullSegment {
                ordinal: segment.ordinal,
                bytes: segment.bytes,
                last: Position {
                    group: next_head.number - 1,
                    sequence: next_head.first_sequence - 1,
                },
                wall_ms: next_head.wall_ms,
            });
            kept.first_sequence = head.first_sequence;
            next = Some((*head, segment.ordinal));
            found.pop();
        }
        kept.given_up = found;
        Ok((kept, needed))
    }
}

/// The header of the first group of a segment, if it has the form of one; its checksum is not
/// looked at.
fn head(disk: &dyn Disk, segment: &FoundSegment) -> Result<Option<GroupHeader>, LogReadFailure> {
    let read = || {
        let file = disk.open(&segment_name(segment.ordinal))?;
        SegmentReader::for_header(file)?.header(0)
    };
    let header =
        read().map_err(|source| LogReadFailure::device(disk, segment.ordinal, 0, source))?;
    Ok(header.ok())
}

/// The last segment in which what comes after a sequence may begin; `None`: the oldest one, or it
/// is not certain. A file that was used before, and has not been written to anew, begins with a
/// group that is older than those of the files before it.
fn first_needed(
    disk: &dyn Disk,
    found: &[FoundSegment],
    heads: &[Option<GroupHeader>],
    base_sequence: u64,
) -> Result<Option<usize>, LogReadFailure> {
    for place in (1..found.len()).rev() {
        let Some(head) = heads[place].filter(|head| head.first_sequence <= base_sequence + 1)
        else {
            continue;
        };
        let before = heads[..place].iter().flatten();
        let newest_before = before.map(|head| head.number).max();
        if newest_before.is_some_and(|newest| newest < head.number)
            && begins_well(disk, &found[place], head)?
        {
            return Ok(Some(place));
        }
    }
    Ok(None)
}

/// Whether the first group of a segment is whole.
fn begins_well(
    disk: &dyn Disk,
    segment: &FoundSegment,
    head: GroupHeader,
) -> Result<bool, LogReadFailure> {
    let read = || Ok(reader(disk, segment.ordinal)?.group(0, head)?.is_some());
    read().map_err(|source| LogReadFailure::device(disk, segment.ordinal, 0, source))
}
