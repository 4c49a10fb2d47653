//! Reading on from the log where memory has no more.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use wal::disk::Disk;
use wal::{GroupError, GroupReader, LogCursor, LogExtent, LogGroup, RecordPlace};

use super::commit::{FeedCommit, Recorder};
use super::{NextCommits, WatchError};
use crate::database_id::DatabaseId;
use crate::limits;
use crate::log::{Record, RecordKind};

/// What of the log of a store can be read beside its writer.
#[derive(Debug, Default)]
pub(crate) struct LogTail {
    disk: OnceLock<Arc<dyn Disk>>,
    extent: Mutex<Option<LogExtent>>,
    /// What of it is known to be on the device.
    durable: Mutex<Option<LogExtent>>,
    /// How often more of it was on the device.
    durable_changes: AtomicU64,
    /// How many follow it.
    followers: AtomicUsize,
    marks: Mutex<LogMarks>,
}

/// Places that readings have come by, so that another one need not look for them from the beginning
/// of their segment on.
#[derive(Debug, Default)]
struct LogMarks {
    /// By the last commit before them.
    places: BTreeMap<u64, LogCursor>,
}

impl LogMarks {
    /// Returns the nearest place from which on all is found that comes behind a commit, in a log
    /// that begins with the sequence `first`.
    fn before(&self, position: u64, first: u64) -> Option<LogCursor> {
        if position < first {
            return None;
        }
        let (_, cursor) = self.places.range(first..=position).next_back()?;
        Some(*cursor)
    }

    fn add(&mut self, position: u64, cursor: LogCursor) {
        self.places.insert(position, cursor);
        if self.places.len() > limits::LOG_MARKS {
            self.places.pop_first();
        }
    }

    /// What is before a commit is gone, or was written anew.
    fn forget_before(&mut self, position: u64) {
        self.places = self.places.split_off(&position);
    }
}

impl LogTail {
    /// The folder of the log.
    pub(crate) fn set_disk(&self, disk: &Arc<dyn Disk>) {
        let set = self.disk.set(Arc::clone(disk));
        debug_assert!(set.is_ok(), "a store has one log");
    }

    /// Notes from where to where the log can be read now. Before segments go it is said that they
    /// are gone.
    pub(crate) fn set_extent(&self, extent: LogExtent) {
        *self.extent.lock() = Some(extent);
    }

    /// Notes that all of the log is on the device. Returns whether that is news for somebody.
    pub(crate) fn set_durable(&self, extent: LogExtent) -> bool {
        let end = extent.end();
        let before = self.durable.lock().replace(extent);
        let is_more = before.is_none_or(|before| before.end().position != end.position);
        if is_more {
            self.durable_changes.fetch_add(1, Ordering::Release);
        }
        is_more && self.has_followers()
    }

    /// Where the log can be read as far as it is on the device.
    pub(super) fn durable(&self) -> Option<(Arc<dyn Disk>, LogExtent)> {
        let extent = self.durable.lock().clone()?;
        Some((Arc::clone(self.disk.get()?), extent))
    }

    /// Returns up to which sequence it is on the device.
    pub(crate) fn durable_sequence(&self) -> u64 {
        let extent = self.durable.lock();
        (extent.as_ref()).map_or(0, |extent| extent.end().position.sequence)
    }

    /// Returns how often more of it was on the device.
    pub(super) fn durable_changes(&self) -> u64 {
        self.durable_changes.load(Ordering::Acquire)
    }

    /// Counts one more, or one less, who follows it.
    pub(super) fn count_follower(&self, begins: bool) {
        match begins {
            true => self.followers.fetch_add(1, Ordering::Relaxed),
            false => self.followers.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// Returns how many follow it.
    pub(crate) fn followers(&self) -> usize {
        self.followers.load(Ordering::Relaxed)
    }

    fn has_followers(&self) -> bool {
        self.followers() > 0
    }

    /// Whether there is everything that came after a sequence.
    pub(super) fn reaches_back_to(&self, sequence: u64) -> bool {
        let extent = self.extent.lock();
        extent
            .as_ref()
            .is_some_and(|extent| extent.reaches_back_to(sequence))
    }

    /// Returns the first sequence that it covers; `None`: none.
    pub(super) fn first_sequence(&self) -> Option<u64> {
        let extent = self.extent.lock();
        extent.as_ref().and_then(LogExtent::first_sequence)
    }

    fn get(&self) -> Option<(&Arc<dyn Disk>, LogExtent)> {
        let extent = self.extent.lock().clone()?;
        Some((self.disk.get()?, extent))
    }
}

/// Takes commits of a database from the log, a piece at a time, on a thread that may wait for the
/// device. It holds no file between two pieces: if what is next was retired meanwhile, it is lost.
#[derive(Debug)]
pub struct LogReading {
    tail: Arc<LogTail>,
    database: DatabaseId,
    /// Everything up to this commit was taken.
    position: u64,
    /// And so many changes of the next one, which comes in parts.
    taken_changes: usize,
    /// Where the last part of it that was read began and ended, if it was cut.
    parts: [Option<PartPlace>; 2],
    /// What comes behind this one is not for readers yet.
    through: u64,
    /// Where the log is read on: at the group with what is next, or before it.
    cursor: Option<LogCursor>,
    /// The same when what was read is taken, which goes up to that commit.
    read: Option<(u64, LogCursor)>,
    /// Somebody still wants it.
    wanted: Weak<()>,
}

/// Why a piece of the log was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogReadError {
    /// What is next takes more memory than was claimed.
    #[error("{0} bytes of memory are needed to read what is next in the log")]
    Needs(usize),
    /// Too many others read: it may be tried again.
    #[error("too many reads of the device wait")]
    Busy,
    /// It will not be read.
    #[error(transparent)]
    Failed(#[from] WatchError),
}

/// A place within a commit.
#[derive(Clone, Copy, Debug)]
struct PartPlace {
    sequence: u64,
    /// Changes before it.
    changes: usize,
    /// Where in the group of the commit that is.
    place: RecordPlace,
}

/// What was read of a group.
struct GroupPiece {
    /// Nothing of the group is left.
    is_whole: bool,
    /// Everything up to this commit is read.
    position: u64,
}

impl PartPlace {
    fn new(sequence: u64, changes: usize, place: RecordPlace) -> PartPlace {
        PartPlace {
            sequence,
            changes,
            place,
        }
    }
}

impl GroupPiece {
    /// Everything up to a commit was read, and there is more.
    fn until(position: u64) -> GroupPiece {
        GroupPiece {
            is_whole: false,
            position,
        }
    }
}

/// The commits that a piece of the log has, as far as they are wanted.
struct LogPiece {
    commits: Vec<Arc<FeedCommit>>,
    bytes: usize,
}

impl LogReading {
    /// Reads behind a commit of a database, for as long as `wanted` is there.
    pub(super) fn new(
        tail: &Arc<LogTail>,
        database: DatabaseId,
        position: u64,
        wanted: Weak<()>,
    ) -> LogReading {
        LogReading {
            tail: Arc::clone(tail),
            database,
            position,
            taken_changes: 0,
            parts: [None; 2],
            through: position,
            cursor: None,
            read: None,
            wanted,
        }
    }

    /// Everything up to the commit `position` was taken, and so many changes of the next one.
    /// Readers see all up to `through`.
    pub(super) fn aim(&mut self, (position, taken_changes): (u64, usize), through: u64) {
        self.position = position;
        self.taken_changes = taken_changes;
        self.through = through;
        if let Some((_, cursor)) = self.read.take_if(|(read, _)| *read <= position) {
            self.cursor = Some(cursor);
        }
    }

    /// Reads the next piece: commits that take about `bytes`, at least one if there is one within
    /// [`LOG_SCAN_BYTES`](limits::LOG_SCAN_BYTES) of the log. What is read takes at most
    /// `claimed_bytes` of memory, and what is returned may be read once more until it is taken. Of
    /// a commit of which some changes were taken, about so many `bytes` are read as well.
    ///
    /// # Errors
    /// What the next group needs, if that is more, or why nothing can be read.
    pub fn run(&mut self, bytes: usize, claimed_bytes: usize) -> Result<NextCommits, LogReadError> {
        let tail = Arc::clone(&self.tail);
        let (disk, extent) = tail.get().ok_or_else(|| self.lost())?;
        if self.cursor.is_none()
            && let Some(first) = extent.first_sequence()
        {
            self.cursor = tail.marks.lock().before(self.position, first);
        }
        let groups = match self.cursor {
            Some(cursor) => GroupReader::resume(Arc::clone(disk), cursor, &extent),
            None => GroupReader::open_behind(Arc::clone(disk), self.position, &extent),
        };
        let mut groups = groups.map_err(|error| self.failed(&error))?;
        let needed_bytes = self.needed_bytes(&mut groups)?;
        match needed_bytes > claimed_bytes {
            true => Err(LogReadError::Needs(needed_bytes)),
            false => Ok(self.read_groups(&mut groups, bytes, claimed_bytes)?),
        }
    }

    /// What it takes of memory to read the next group.
    fn needed_bytes(&self, groups: &mut GroupReader) -> Result<usize, WatchError> {
        let next_bytes = groups.next_bytes().map_err(|error| self.failed(&error))?;
        let next_bytes = usize::try_from(next_bytes.unwrap_or(0)).unwrap_or(usize::MAX);
        Ok(next_bytes.saturating_mul(limits::LOG_MEMORY_TIMES))
    }

    fn read_groups(
        &mut self,
        groups: &mut GroupReader,
        bytes: usize,
        claimed_bytes: usize,
    ) -> Result<NextCommits, WatchError> {
        let mut piece = LogPiece {
            commits: Vec::new(),
            bytes: 0,
        };
        let mut position = self.position;
        let (mut scanned_bytes, mut marked_bytes) = (0, 0);
        while position < self.through
            && piece.bytes < bytes
            && scanned_bytes < limits::LOG_SCAN_BYTES
            && self.wanted.strong_count() > 0
        {
            if piece.bytes.saturating_add(self.needed_bytes(groups)?) > claimed_bytes {
                break;
            }
            if scanned_bytes >= marked_bytes + limits::LOG_MARK_BYTES
                && let (Some(before), Some(cursor)) = (groups.position(), groups.cursor())
            {
                marked_bytes = scanned_bytes;
                self.tail.marks.lock().add(before.sequence, cursor);
            }
            let group = groups.next().map_err(|error| self.failed(&error))?;
            let Some(group) = group else {
                // Readers see nothing that is not in the log.
                position = self.through;
                break;
            };
            scanned_bytes += group.bytes.len();
            let taken = self.read_group(&group.group, position, bytes, &mut piece)?;
            position = taken.position;
            if !taken.is_whole {
                break;
            }
            self.read = groups.cursor().map(|cursor| (position, cursor));
        }
        Ok(NextCommits {
            commits: piece.commits,
            through: position,
        })
    }

    /// Returns the place next before what was taken of the commit behind a position, if one is
    /// known.
    fn part_behind(&self, position: u64) -> Option<PartPlace> {
        let is_of_next = |part: &&PartPlace| {
            position == self.position
                && part.sequence > position
                && part.changes <= self.taken_changes
        };
        let parts = self.parts.iter().flatten().filter(is_of_next);
        parts.max_by_key(|part| part.changes).copied()
    }

    /// Adds what a group has of the database behind `position` to a piece, until that has so many
    /// `bytes`.
    fn read_group(
        &mut self,
        group: &LogGroup<'_>,
        position: u64,
        bytes: usize,
        piece: &mut LogPiece,
    ) -> Result<GroupPiece, WatchError> {
        let header = &group.header;
        let part = self.part_behind(position);
        let part = part.filter(|part| part.sequence <= header.last_sequence);
        let from_part = part.and_then(|part| group.records_from(part.place));
        let mut has_changes = from_part.is_some();
        let mut passed = part.map_or(0, |part| part.changes);
        let mut records = from_part.unwrap_or_else(|| group.records());
        let mut before = position;
        let mut current: Option<Recorder> = None;
        loop {
            let place = records.place();
            let Some(record) = records.next() else { break };
            let record = record.and_then(Record::try_from);
            let record = record.map_err(|error| WatchError::Unreadable(error.to_string()))?;
            has_changes |= record.kind != RecordKind::Mark;
            if record.database != self.database || record.sequence <= position {
                continue;
            }
            let is_next = |recorder: &Recorder| recorder.sequence() != record.sequence;
            if let Some(recorder) = current.take_if(|recorder| is_next(recorder)) {
                before = recorder.sequence();
                piece.add(recorder.finish());
            }
            if record.sequence > self.through {
                return Ok(GroupPiece::until(self.through));
            }
            if current.is_none() && piece.bytes >= bytes {
                return Ok(GroupPiece::until(before));
            }
            if !is_change(record.kind).ok_or_else(|| self.lost())? {
                continue;
            }
            let is_next_commit = before == self.position;
            if is_next_commit && current.is_none() && passed < self.taken_changes {
                passed += 1;
                continue;
            }
            let (sequence, at) = (record.sequence, (record.sequence, header.wall_ms));
            let place_at = |changes| Some(PartPlace::new(sequence, changes, place));
            if let Some(recorder) = current.take_if(|recorder| is_long_part(recorder, bytes)) {
                let commit = recorder.cut();
                self.parts[1] = place_at(commit.passed_changes() + commit.len());
                piece.add(commit);
                return Ok(GroupPiece::until(before));
            }
            let recorder = current.get_or_insert_with(|| {
                let passed = if is_next_commit { passed } else { 0 };
                if passed > 0 {
                    self.parts[0] = place_at(passed);
                }
                Recorder::behind(passed, at)
            });
            record_change(recorder, &record);
        }
        if let Some(recorder) = current {
            piece.add(recorder.finish());
        }
        self.behind_group(group, position, has_changes)
    }

    /// Returns where a group leads of which all was read behind a position.
    fn behind_group(
        &self,
        group: &LogGroup<'_>,
        position: u64,
        has_changes: bool,
    ) -> Result<GroupPiece, WatchError> {
        let header = &group.header;
        let is_inside = header.first_sequence <= position && position < header.last_sequence;
        if is_inside && !has_changes {
            // These were passed over: what a caller saw there has been taken back by a crash.
            return Err(self.lost());
        }
        Ok(GroupPiece {
            is_whole: true,
            position: position.max(header.last_sequence).min(self.through),
        })
    }

    fn lost(&self) -> WatchError {
        WatchError::Lost {
            asked: self.position,
            present: self.through,
        }
    }

    /// What is not there any more, as it was retired, is lost; all else is worth a word.
    fn failed(&self, error: &GroupError) -> WatchError {
        self.tail
            .marks
            .lock()
            .forget_before(self.position.saturating_add(1));
        match self.tail.reaches_back_to(self.position) {
            true => WatchError::Unreadable(error.to_string()),
            false => self.lost(),
        }
    }
}

impl LogPiece {
    fn add(&mut self, commit: FeedCommit) {
        self.bytes += commit.held_bytes();
        self.commits.push(Arc::new(commit));
    }
}

/// Returns whether a record changes a database; `None`: what was before it was another one.
fn is_change(kind: RecordKind) -> Option<bool> {
    match kind {
        RecordKind::DatabaseCreated => None,
        RecordKind::DatabaseDropped | RecordKind::DatabaseConverted | RecordKind::Mark => {
            Some(false)
        }
        RecordKind::Set | RecordKind::Delete | RecordKind::Expire | RecordKind::Clear => Some(true),
    }
}

/// Returns whether what is read of the rest of a commit is enough for a piece. The first part of
/// one is read with all that follows, as its form depends on that.
fn is_long_part(recorder: &Recorder, bytes: usize) -> bool {
    let commit = recorder.commit();
    commit.passed_changes() > 0 && commit.held_bytes() >= bytes
}

fn record_change(recorder: &mut Recorder, record: &Record<'_>) {
    match record.kind {
        RecordKind::Clear => recorder.clear(),
        kind => {
            let entry = record.entry();
            let is_expiry = kind == RecordKind::Expire;
            recorder.change(record.key, entry.as_ref(), is_expiry, None);
        }
    }
}
