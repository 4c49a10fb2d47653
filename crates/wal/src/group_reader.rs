//! Reading the groups of a log that is in use, byte by byte as they are, up to where it ended at
//! some moment.

use std::io;
use std::sync::Arc;

use super::extent::LogExtent;
use super::group::{GroupHeader, LogGroup, Position};
use super::place::{Chain, LogEnd, LogPlace};
use super::reader::SegmentReader;
use super::segment::segment_name;
use crate::disk::Disk;

/// Reads groups one after the other, and checks each as a start would. If the segments that hold
/// them are retired meanwhile, that is an error: what is written to their files then does not fit.
#[derive(Debug)]
pub struct GroupReader {
    disk: Arc<dyn Disk>,
    reader: SegmentReader,
    place: LogPlace,
    end: LogEnd,
    chain: Option<Chain>,
}

/// Where a reader stands: behind a group.
#[derive(Clone, Copy, Debug)]
pub struct LogCursor {
    place: LogPlace,
    chain: Chain,
}

/// A group as it is on the device.
#[derive(Clone, Copy, Debug)]
pub struct RawGroup<'a> {
    /// What is in it.
    pub group: LogGroup<'a>,
    /// All of it.
    pub bytes: &'a [u8],
}

impl GroupReader {
    /// Reads from the group on that covers what comes after `sequence`, or from the last one if
    /// there is nothing after it.
    pub fn open(
        disk: Arc<dyn Disk>,
        sequence: u64,
        end: LogEnd,
    ) -> Result<GroupReader, GroupError> {
        let mut segment = end.place.segment;
        loop {
            let place = LogPlace { segment, offset: 0 };
            let mut groups = GroupReader::begin(Arc::clone(&disk), place, None, end)?;
            let first = groups.header_here()?;
            let (first, _) = first.ok_or_else(|| GroupError::damaged(&*disk, place))?;
            if first.first_sequence <= sequence + 1 || first.number == 1 {
                groups.skip_through(sequence)?;
                return Ok(groups);
            }
            segment = segment
                .checked_sub(1)
                .ok_or(GroupError::TooShort { sequence })?;
        }
    }

    /// Reads what a log has beyond a sequence, up to its end as it is now: from the beginning on of
    /// the segment in which that begins.
    pub fn open_behind(
        disk: Arc<dyn Disk>,
        sequence: u64,
        extent: &LogExtent,
    ) -> Result<GroupReader, GroupError> {
        let segment = extent.segment_behind(sequence);
        let segment = segment.ok_or(GroupError::TooShort { sequence })?;
        let place = LogPlace { segment, offset: 0 };
        GroupReader::begin(disk, place, None, extent.end())
    }

    /// Reads a log from a segment on behind whose beginning everything is that was written at
    /// `wall_ms` or later, up to its end as it is now: groups from before that come first. `None`:
    /// some of what was written then is not there any more.
    ///
    /// # Errors
    /// If a segment cannot be read.
    pub fn open_since(
        disk: Arc<dyn Disk>,
        wall_ms: u64,
        extent: &LogExtent,
    ) -> Result<Option<GroupReader>, GroupError> {
        // The clock of a log never goes back: what is before a group is not younger.
        let (mut older, mut younger) = (0, extent.starts.len());
        while older < younger {
            let middle = usize::midpoint(older, younger);
            let Some(start) = extent.starts.get(middle) else {
                break;
            };
            match GroupReader::first_wall_ms(&disk, start.ordinal, extent)? < wall_ms {
                true => older = middle + 1,
                false => younger = middle,
            }
        }
        let place = match older.checked_sub(1) {
            Some(place) => place,
            None if extent.is_from_the_beginning() => 0,
            None => return Ok(None),
        };
        let Some(start) = extent.starts.get(place) else {
            return Ok(None);
        };
        let place = LogPlace {
            segment: start.ordinal,
            offset: 0,
        };
        GroupReader::begin(disk, place, None, extent.end()).map(Some)
    }

    /// Returns when the first group of a segment was written.
    fn first_wall_ms(
        disk: &Arc<dyn Disk>,
        segment: u64,
        extent: &LogExtent,
    ) -> Result<u64, GroupError> {
        let place = LogPlace { segment, offset: 0 };
        let mut groups = GroupReader::begin(Arc::clone(disk), place, None, extent.end())?;
        let first = groups.header_here()?;
        let (header, _) = first.ok_or_else(|| GroupError::damaged(&**disk, place))?;
        Ok(header.wall_ms)
    }

    /// Goes on where a reader of the same log stood, up to the end of the log as it is now.
    pub fn resume(
        disk: Arc<dyn Disk>,
        cursor: LogCursor,
        extent: &LogExtent,
    ) -> Result<GroupReader, GroupError> {
        GroupReader::begin(disk, cursor.place, Some(cursor.chain), extent.end())
    }

    fn begin(
        disk: Arc<dyn Disk>,
        place: LogPlace,
        chain: Option<Chain>,
        end: LogEnd,
    ) -> Result<GroupReader, GroupError> {
        let failed = |source| GroupError::device(&*disk, place, source);
        let file = disk.open(&segment_name(place.segment)).map_err(failed)?;
        let reader = SegmentReader::new(file).map_err(failed)?;
        Ok(GroupReader {
            disk,
            reader,
            place,
            end,
            chain,
        })
    }

    /// Returns up to where it has read or passed over groups; `None`: there was none.
    pub fn position(&self) -> Option<Position> {
        self.chain.map(|chain| chain.position)
    }

    /// Returns where it stands: behind the group that was last read or passed over; `None`: there
    /// was none.
    pub fn cursor(&self) -> Option<LogCursor> {
        let place = self.place;
        self.chain.map(|chain| LogCursor { place, chain })
    }

    /// Passes over the groups that end at or before a sequence, but for the last one of all.
    fn skip_through(&mut self, sequence: u64) -> Result<(), GroupError> {
        loop {
            let (header, _) = self.peek()?;
            if header.last_sequence > sequence || header.number == self.end.position.group {
                return Ok(());
            }
            self.next()?;
        }
    }

    /// Bytes that are still to come, at most: the ends of segments may be empty.
    pub fn rest_bytes(&self) -> u64 {
        let between = self.place.segment + 1..self.end.place.segment;
        let bytes_of = |segment| self.disk.open(&segment_name(segment))?.len();
        let between: u64 = between
            .map(|segment| bytes_of(segment).unwrap_or_default())
            .sum();
        if self.place.segment == self.end.place.segment {
            return self.end.place.offset.saturating_sub(self.place.offset);
        }
        let here = self.reader.file_bytes().saturating_sub(self.place.offset);
        here + between + self.end.place.offset
    }

    /// Where the log ends.
    pub fn end(&self) -> LogEnd {
        self.end
    }

    /// Whether the last group was read.
    fn is_at_end(&self) -> Result<bool, GroupError> {
        let chain = self.chain.as_ref();
        match chain.filter(|chain| chain.position.group == self.end.position.group) {
            None => Ok(false),
            Some(chain) if chain.position == self.end.position && self.place == self.end.place => {
                Ok(true)
            }
            Some(_) => Err(GroupError::damaged(&*self.disk, self.place)),
        }
    }

    /// Returns how many bytes the next group has; `None` behind the last one.
    pub fn next_bytes(&mut self) -> Result<Option<u64>, GroupError> {
        if self.is_at_end()? {
            return Ok(None);
        }
        self.peek().map(|(_, bytes)| Some(bytes))
    }

    /// The next group; `None` behind the last one.
    #[allow(clippy::should_implement_trait, reason = "what it gives is lent")]
    pub fn next(&mut self) -> Result<Option<RawGroup<'_>>, GroupError> {
        if self.is_at_end()? {
            return Ok(None);
        }
        let (header, group_bytes) = self.peek()?;
        let place = self.place;
        let failed = |source| GroupError::device(&*self.disk, place, source);
        let bytes = self.reader.bytes(place.offset, group_bytes as usize);
        let bytes = bytes.map_err(failed)?;
        let group = Some(bytes).filter(|bytes| bytes.len() as u64 == group_bytes);
        let group = group.and_then(|bytes| LogGroup::check(header, bytes));
        let group = group.ok_or_else(|| GroupError::damaged(&*self.disk, place))?;
        self.chain = Some(Chain::behind(&header, group.checksum));
        self.place.offset += group_bytes;
        Ok(Some(RawGroup { group, bytes }))
    }

    /// The header of the next group, and the bytes of all of it; goes on to the next segment for
    /// it.
    fn peek(&mut self) -> Result<(GroupHeader, u64), GroupError> {
        if let Some(found) = self.header_here()? {
            return Ok(found);
        }
        let next = LogPlace {
            segment: self.place.segment + 1,
            offset: 0,
        };
        if next.segment > self.end.place.segment {
            return Err(GroupError::damaged(&*self.disk, self.place));
        }
        let failed = |source| GroupError::device(&*self.disk, next, source);
        let file = self.disk.open(&segment_name(next.segment));
        self.reader = file.and_then(SegmentReader::new).map_err(failed)?;
        self.place = next;
        let found = self.header_here()?;
        found.ok_or_else(|| GroupError::damaged(&*self.disk, next))
    }

    fn header_here(&mut self) -> Result<Option<(GroupHeader, u64)>, GroupError> {
        self.reader.shrink();
        let header = self.reader.header(self.place.offset);
        let header =
            header.map_err(|source| GroupError::device(&*self.disk, self.place, source))?;
        let follows = |header: &GroupHeader| {
            let chain = self.chain.as_ref();
            chain.is_none_or(|chain| chain.is_followed_by(header))
        };
        let found = header.ok().filter(follows);
        Ok(found.map(|header| {
            let bytes = header.group_bytes().expect("the reader has found room");
            (header, bytes)
        }))
    }
}

/// Why the groups of a log could not be read.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// A file cannot be read.
    #[error("{file} cannot be read from byte {offset} on: {source}")]
    Device {
        /// The file.
        file: String,
        /// The place of the group.
        offset: u64,
        /// What the operating system said.
        source: io::Error,
    },
    /// Something that was durable is missing, or has changed.
    #[error("{file} is damaged: the group at byte {offset} is missing or has changed")]
    Damaged {
        /// The file.
        file: String,
        /// The place of the group.
        offset: u64,
    },
    /// The log does not reach back so far.
    #[error("the log does not reach back to sequence {sequence}")]
    TooShort {
        /// What comes after it is wanted.
        sequence: u64,
    },
}

impl GroupError {
    /// Whether the log is not what was written, and not only out of reach for now.
    pub fn is_of_damage(&self) -> bool {
        match self {
            GroupError::Device { source, .. } => source.kind() == io::ErrorKind::NotFound,
            GroupError::Damaged { .. } | GroupError::TooShort { .. } => true,
        }
    }

    fn device(disk: &dyn Disk, place: LogPlace, source: io::Error) -> GroupError {
        GroupError::Device {
            file: disk.describe(&segment_name(place.segment)),
            offset: place.offset,
            source,
        }
    }

    fn damaged(disk: &dyn Disk, place: LogPlace) -> GroupError {
        GroupError::Damaged {
            file: disk.describe(&segment_name(place.segment)),
            offset: place.offset,
        }
    }
}
