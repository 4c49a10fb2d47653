//! Reading whole groups of the log, as far as it is on the device, for servers that follow this
//! one.

use std::sync::Arc;

use bytes::Bytes;
use wal::{GroupError, GroupReader, LogCursor, LogExtent, LogGroup, RECORD_BYTES, RawRecord};

use super::log_reading::{LogReadError, LogTail};
use super::{ChangeNews, NewsSource, WatchError};
use crate::limits;
use crate::log::FollowedGroup;

/// Somebody who follows the log: counted as long as it lives.
#[derive(Debug)]
pub struct LogFollower {
    tail: Arc<LogTail>,
}

/// Why the log cannot be followed from a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FollowRefusal {
    /// What came after it is not kept any more.
    #[error(
        "what came after sequence {asked} is not kept any more: a new copy is needed (--keep-log \
         says how much is kept)"
    )]
    Lost {
        /// What was asked for.
        asked: u64,
    },
    /// There is nothing yet at that place.
    #[error(
        "sequence {asked} is not in the log of this server, which is on the device up to \
         {present}: a new copy is needed"
    )]
    Ahead {
        /// What was asked for.
        asked: u64,
        /// What is there.
        present: u64,
    },
}

impl LogFollower {
    pub(crate) fn new(tail: &Arc<LogTail>) -> LogFollower {
        tail.count_follower(true);
        LogFollower {
            tail: Arc::clone(tail),
        }
    }

    /// Shows whether more of the log is on the device.
    pub fn news(&self) -> ChangeNews {
        ChangeNews(NewsSource::Log(Arc::clone(&self.tail)))
    }

    /// Returns up to which sequence the log is on the device.
    pub fn durable_sequence(&self) -> u64 {
        self.tail.durable_sequence()
    }

    /// Begins to read what was written at `wall_ms` or later. Whether that is all there is found
    /// out by the first [`GroupReading::run`], as it reads the device.
    pub fn read_since(&self, wall_ms: u64) -> GroupReading {
        GroupReading {
            tail: Arc::clone(&self.tail),
            position: 0,
            since_ms: Some(wall_ms),
            cursor: None,
        }
    }

    /// Begins to read behind a sequence.
    ///
    /// # Errors
    /// If what comes there is not in the log.
    pub fn read_behind(&self, sequence: u64) -> Result<GroupReading, FollowRefusal> {
        let extent = self.tail.durable().map(|(_, extent)| extent);
        let present = self.durable_sequence();
        if sequence > present {
            let asked = sequence;
            return Err(FollowRefusal::Ahead { asked, present });
        }
        match extent.is_some_and(|extent| extent.reaches_back_to(sequence)) {
            true => Ok(GroupReading {
                tail: Arc::clone(&self.tail),
                position: sequence,
                since_ms: None,
                cursor: None,
            }),
            false => Err(FollowRefusal::Lost { asked: sequence }),
        }
    }
}

impl Drop for LogFollower {
    fn drop(&mut self) {
        self.tail.count_follower(false);
    }
}

/// Takes groups from the log, a piece at a time, on a thread that may wait for the device. It holds
/// no file between two pieces: if what is next was retired meanwhile, it is lost.
#[derive(Debug)]
pub struct GroupReading {
    tail: Arc<LogTail>,
    /// Everything up to this sequence was taken.
    position: u64,
    /// What was written before that is passed over.
    since_ms: Option<u64>,
    /// Where the log is read on.
    cursor: Option<LogCursor>,
}

impl GroupReading {
    /// Up to which sequence everything was read.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Reads the next piece: groups of about so many `bytes`, or one that has more; none if there
    /// is none within [`LOG_SCAN_BYTES`](limits::LOG_SCAN_BYTES) of the log. What is read takes at
    /// most `claimed_bytes` of memory.
    ///
    /// # Errors
    /// What the next group needs, if that is more, or why nothing can be read.
    pub fn run(
        &mut self,
        bytes: usize,
        claimed_bytes: usize,
    ) -> Result<Vec<FollowedGroup>, LogReadError> {
        let (disk, extent) = self.tail.durable().ok_or_else(|| self.lost())?;
        let groups = match (self.cursor, self.since_ms) {
            (Some(cursor), _) => GroupReader::resume(disk, cursor, &extent).map(Some),
            (None, None) => GroupReader::open_behind(disk, self.position, &extent).map(Some),
            (None, Some(since_ms)) => GroupReader::open_since(disk, since_ms, &extent),
        };
        let groups = groups.map_err(|error| self.failed_to_open(&error, &extent))?;
        let mut groups = groups.ok_or_else(|| self.lost())?;
        let mut read = Vec::new();
        let (mut read_bytes, mut scanned_bytes) = (0_usize, 0_usize);
        while read_bytes < bytes && scanned_bytes < limits::LOG_SCAN_BYTES {
            let next_bytes = groups.next_bytes();
            let next_bytes = next_bytes.map_err(|error| self.failed(&error, &extent))?;
            let Some(next_bytes) = next_bytes else { break };
            let next_bytes = usize::try_from(next_bytes).unwrap_or(usize::MAX);
            // The group in the buffer of the reader, and a copy of it.
            let needed_bytes = read_bytes.saturating_add(next_bytes.saturating_mul(2));
            if needed_bytes > claimed_bytes {
                match read.is_empty() {
                    true => return Err(LogReadError::Needs(needed_bytes)),
                    false => break,
                }
            }
            let group = groups.next();
            let group = group.map_err(|error| self.failed(&error, &extent))?;
            let Some(group) = group else { break };
            scanned_bytes += group.bytes.len();
            if (self.since_ms).is_some_and(|since_ms| group.group.header.wall_ms < since_ms) {
                self.position = self.position.max(group.group.header.last_sequence);
            } else if let Some(taken) = self.take(&group.group)? {
                read_bytes += taken.body.len() + wal::HEADER_BYTES;
                self.position = taken.last_sequence;
                read.push(taken);
            }
            self.cursor = groups.cursor();
        }
        Ok(read)
    }

    /// Takes what of a group comes behind the position; `None`: nothing.
    fn take(&self, group: &LogGroup<'_>) -> Result<Option<FollowedGroup>, LogReadError> {
        let header = &group.header;
        if header.last_sequence <= self.position {
            return Ok(None);
        }
        let mut followed = FollowedGroup {
            first_sequence: header.first_sequence,
            last_sequence: header.last_sequence,
            wall_ms: header.wall_ms,
            records: header.records,
            body: Bytes::new(),
        };
        let mut skipped_bytes = 0;
        if header.first_sequence <= self.position {
            // The log that it was read from before has other groups, which end with the same
            // commits.
            let mut is_there = false;
            for record in group.records() {
                let unreadable =
                    |error: wal::RecordError| WatchError::Unreadable(error.to_string());
                let record = record.map_err(unreadable)?;
                if record.sequence > self.position {
                    break;
                }
                is_there |= record.sequence == self.position;
                skipped_bytes += encoded_bytes(&record);
                followed.records = followed.records.saturating_sub(1);
            }
            if !is_there {
                return Err(self.lost().into());
            }
            followed.first_sequence = self.position.saturating_add(1);
        }
        let body = group.body().get(skipped_bytes..).unwrap_or_default();
        followed.body = Bytes::copy_from_slice(body);
        Ok(Some(followed))
    }

    fn lost(&self) -> WatchError {
        WatchError::Lost {
            asked: self.position,
            present: self.tail.durable_sequence(),
        }
    }

    /// Where the first group with a time is looked for, a segment that is looked at may be retired
    /// meanwhile, of which nothing is wanted.
    fn failed_to_open(&self, error: &GroupError, extent: &LogExtent) -> LogReadError {
        let is_search = self.cursor.is_none() && self.since_ms.is_some();
        match is_search && self.tail.first_sequence() != extent.first_sequence() {
            true => LogReadError::Busy,
            false => self.failed(error, extent),
        }
    }

    /// What is not there any more, as it was retired, is lost; all else is worth a word.
    fn failed(&self, error: &GroupError, extent: &LogExtent) -> LogReadError {
        let is_there =
            extent.reaches_back_to(self.position) && self.tail.reaches_back_to(self.position);
        LogReadError::Failed(match is_there {
            true => WatchError::Unreadable(error.to_string()),
            false => self.lost(),
        })
    }
}

fn encoded_bytes(record: &RawRecord<'_>) -> usize {
    RECORD_BYTES + record.key.len() + record.value.len()
}
