//! Writing: each group with one write, each sync when it is asked for.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::extent::{LogExtent, SegmentStart};
use super::group::{GroupBuffer, GroupHeader, LogId, Position};
use super::limits;
use super::place::{Chain, LogEnd, LogPlace};
use super::segment::{
    FirstNeeded, ReadySegment, RetiredSegment, Segment, SpareDescriptor, WantedSegment,
    segment_name,
};
use crate::disk::{Advised, Disk};

/// A segment that is full.
#[derive(Debug)]
pub(super) struct FullSegment {
    pub(super) ordinal: u64,
    pub(super) bytes: u64,
    /// Where the log is behind it.
    pub(super) last: Position,
    /// The wall clock in its last group.
    pub(super) wall_ms: u64,
}

impl FullSegment {
    fn retired(&self) -> RetiredSegment {
        RetiredSegment {
            ordinal: self.ordinal,
            bytes: self.bytes,
        }
    }
}

/// Which of the segments that no index needs any more are kept all the same, for those who read the
/// log: the newest ones, as long as both hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentRetention {
    /// At most so many bytes of them.
    pub bytes: u64,
    /// Only those with a group that was written after this time, in milliseconds since 1970.
    pub behind_ms: u64,
    /// What the disk has free: they take at most a part of it
    /// ([`KEPT_ROOM_TIMES`](limits::KEPT_ROOM_TIMES)), so that they are in nobody's way.
    pub free_bytes: u64,
}

impl SegmentRetention {
    /// None of them.
    pub const NONE: SegmentRetention = SegmentRetention {
        bytes: 0,
        behind_ms: 0,
        free_bytes: 0,
    };

    /// What may be kept of segments that take so many bytes.
    fn bound_bytes(&self, unneeded_bytes: u64) -> u64 {
        let room_bytes = self.free_bytes.saturating_add(unneeded_bytes);
        self.bytes.min(room_bytes / (limits::KEPT_ROOM_TIMES + 1))
    }
}

/// What is special about a group.
#[derive(Clone, Copy, Debug, Default)]
struct Special {
    closing: bool,
    new_history: bool,
    /// It covers sequences up to this, whether or not there are records of them.
    last_sequence: u64,
}

/// The log, open for writing. Each call does its own I/O and returns when it is done.
#[derive(Debug)]
pub struct LogWriter {
    disk: Arc<dyn Disk>,
    /// Segments that are full and still there, oldest first.
    full: VecDeque<FullSegment>,
    current: Segment,
    /// Where these and the current one begin.
    starts: Arc<Vec<SegmentStart>>,
    /// How much of the current segment is taken.
    used_bytes: u64,
    next: Option<Segment>,
    chain: Chain,
    durable: Position,
    /// A write or sync of a segment in use failed. What is on the device is not known.
    poisoned: bool,
    /// It repeats another log, which gives out the sequences.
    follows: bool,
    work: LogWork,
    /// Where the file of a segment goes that is full.
    descriptor: SpareDescriptor,
    first_needed: FirstNeeded,
}

/// What a writer has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogWork {
    /// Groups that were written.
    pub groups: u64,
    /// Records in them.
    pub records: u64,
    /// Syncs that succeeded.
    pub syncs: u64,
    /// Bytes of the groups.
    pub bytes: u64,
    /// Bytes among these of values of [`limits::LARGE_VALUE_BYTES`] and more.
    pub large_bytes: u64,
}

/// Where writing goes on.
pub(super) struct Tail {
    /// The first sequence that the oldest segment covers.
    pub(super) first_sequence: u64,
    pub(super) full: VecDeque<FullSegment>,
    pub(super) current: Segment,
    pub(super) used_bytes: u64,
    pub(super) next: Option<Segment>,
    pub(super) chain: Chain,
}

impl LogWriter {
    /// Goes on behind `tail`, all of which is durable.
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        tail: Tail,
        (descriptor, first_needed): (SpareDescriptor, FirstNeeded),
    ) -> LogWriter {
        let starts = starts(tail.first_sequence, &tail.full, &tail.current);
        LogWriter {
            descriptor,
            first_needed,
            disk,
            starts: Arc::new(starts),
            full: tail.full,
            current: tail.current,
            used_bytes: tail.used_bytes,
            next: tail.next,
            durable: tail.chain.position,
            chain: tail.chain,
            poisoned: false,
            follows: false,
            work: LogWork::default(),
        }
    }

    /// Writes the group and empties the buffer; an empty one is passed over. It is durable after
    /// the next [`sync`](LogWriter::sync). After [`WriteError::NoRoom`] the buffer is as it was,
    /// and may be tried again.
    ///
    /// # Panics
    /// If its sequences are not beyond those in the log, or above the
    /// [limit](LogWriter::sequence_limit).
    pub fn write_group(
        &mut self,
        group: &mut GroupBuffer,
        now_ms: u64,
    ) -> Result<Position, WriteError> {
        let written = self.write_kept(group, now_ms)?;
        group.clear();
        Ok(written)
    }

    /// The same, for a group whose bytes are needed afterwards: it must be cleared before it is
    /// filled again.
    ///
    /// # Panics
    /// As [`LogWriter::write_group`].
    pub fn write_kept(
        &mut self,
        group: &mut GroupBuffer,
        now_ms: u64,
    ) -> Result<Position, WriteError> {
        if group.is_empty() {
            return Ok(self.written());
        }
        assert!(
            self.follows || group.last_sequence() <= self.sequence_limit(),
            "a sequence was given out beyond the limit"
        );
        self.write(group, Special::default(), now_ms)
    }

    /// Makes durable all that was written.
    pub fn sync(&mut self) -> Result<Position, SyncError> {
        if self.poisoned {
            return Err(SyncError::Poisoned);
        }
        if self.durable == self.written() {
            return Ok(self.durable);
        }
        if let Err(source) = self.current.file.sync() {
            self.poisoned = true;
            let file = self.describe(&self.current);
            return Err(SyncError::Failed { file, source });
        }
        self.durable = self.written();
        self.work.syncs += 1;
        Ok(self.durable)
    }

    /// Where the log is behind the last group written.
    pub fn written(&self) -> Position {
        self.chain.position
    }

    /// Where the log is behind the last group known durable.
    pub fn durable(&self) -> Position {
        self.durable
    }

    /// Where the log ends, if all of it is durable: right after a [`sync`](LogWriter::sync).
    pub fn synced_end(&self) -> Option<LogEnd> {
        let is_durable = self.durable == self.written() && !self.poisoned;
        is_durable.then_some(self.end())
    }

    fn end(&self) -> LogEnd {
        LogEnd {
            position: self.written(),
            place: LogPlace {
                segment: self.current.ordinal,
                offset: self.used_bytes,
            },
        }
    }

    /// Returns from where to where the log can be read now, durable or not.
    pub fn extent(&self) -> LogExtent {
        LogExtent {
            starts: Arc::clone(&self.starts),
            end: self.end(),
        }
    }

    /// The highest sequence that may be given out now. Before a higher one is, something must
    /// become durable: a [mark](super::RawRecord::mark), if there is nothing else.
    pub fn sequence_limit(&self) -> u64 {
        self.durable.sequence + limits::SEQUENCE_RESERVE
    }

    /// The public half of the log's id.
    pub fn history_id(&self) -> u64 {
        self.chain.log_id.history
    }

    /// Whether a write or a sync has failed, so that all writes are refused until a restart.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }

    /// Bytes of all segments that hold groups.
    pub fn segment_bytes(&self) -> u64 {
        let full: u64 = self.full.iter().map(|segment| segment.bytes).sum();
        full + self.current.bytes
    }

    /// How many segments hold groups.
    pub fn segments(&self) -> u64 {
        self.full.len() as u64 + 1
    }

    /// What was done since the log was opened.
    pub fn work(&self) -> LogWork {
        self.work
    }

    /// Writes the closing group of a clean stop and makes everything durable. `last_sequence` is
    /// the last one that was ever given out: the next start goes on right behind it. Where there is
    /// [no room](WriteError::NoRoom) for it, the stop is like any other one.
    pub fn close(mut self, last_sequence: u64, now_ms: u64) -> Result<(), WriteError> {
        let special = Special {
            closing: true,
            last_sequence,
            ..Special::default()
        };
        // First, so that the closing group says that all before it is durable: then damage to it is
        // seen.
        self.sync()?;
        self.write(&mut GroupBuffer::new(), special, now_ms)?;
        self.sync()?;
        Ok(())
    }

    /// The segment that must be ready before the current one is full, if it is not.
    pub fn wanted_segment(&self) -> Option<WantedSegment> {
        (self.next.is_none() && !self.poisoned).then_some(WantedSegment {
            ordinal: self.current.ordinal + 1,
            durable_sequence: self.durable.sequence,
        })
    }

    /// The number of the newest segment that is there.
    pub fn newest_segment(&self) -> u64 {
        let newest = self.next.as_ref().unwrap_or(&self.current);
        newest.ordinal
    }

    /// Takes the segment that was wanted.
    ///
    /// # Panics
    /// If it is another one.
    pub fn take_segment(&mut self, segment: ReadySegment) {
        assert!(
            self.next.is_none() && segment.0.ordinal == self.current.ordinal + 1,
            "a segment is taken that was not wanted"
        );
        self.next = Some(segment.0);
    }

    /// Gives away the segments that hold nothing beyond `sequence`, up to which every index has
    /// everything, on its own device, but for the newest of them that are to be kept. The current
    /// one stays, and so does the one before it until a group in a later one is durable: the oldest
    /// file must begin with a durable group.
    pub fn retire_through(&mut self, sequence: u64, kept: SegmentRetention) -> Vec<RetiredSegment> {
        let is_needed = |full: &FullSegment| {
            full.last.sequence > sequence || full.last.group >= self.durable.group
        };
        let not_needed = self.full.iter().take_while(|full| !is_needed(full)).count();
        let first_needed = self.full.get(not_needed);
        (self.first_needed).set(first_needed.map_or(self.current.ordinal, |full| full.ordinal));
        let unneeded = self.full.range(..not_needed);
        let bound_bytes = kept.bound_bytes(unneeded.clone().map(|full| full.bytes).sum());
        let mut kept_bytes = 0;
        let staying = unneeded.rev().take_while(|full| {
            kept_bytes += full.bytes;
            kept_bytes <= bound_bytes && full.wall_ms > kept.behind_ms
        });
        let retired = not_needed - staying.count();
        if retired > 0 {
            Arc::make_mut(&mut self.starts).drain(..retired);
        }
        let retired = self.full.drain(..retired);
        retired.map(|full| full.retired()).collect()
    }

    /// Has it repeat another log.
    pub(super) fn set_follows(&mut self, follows: bool) {
        self.follows = follows;
    }

    /// Whether it repeats another log, which gives out the sequences.
    pub fn follows(&self) -> bool {
        self.follows
    }

    /// Writes and syncs the first group of a start, with a mark at a sequence that was never given
    /// out; `None`: it covers none. What was written to its place before had another content, or
    /// another time.
    pub(super) fn write_opening(
        &mut self,
        mark: Option<u64>,
        new_history: Option<LogId>,
        now_ms: u64,
    ) -> Result<(), WriteError> {
        let special = Special {
            new_history: new_history.is_some(),
            ..Special::default()
        };
        self.chain.log_id = new_history.unwrap_or(self.chain.log_id);
        let mut group = GroupBuffer::new();
        if let Some(sequence) = mark {
            group.push(&super::RawRecord::mark(sequence));
        }
        self.write(&mut group, special, now_ms)?;
        self.sync()?;
        Ok(())
    }

    /// Whether a group of so many bytes needs the next segment.
    pub fn is_short_of(&self, group_bytes: u64) -> bool {
        self.used_bytes + group_bytes > self.current.bytes
    }

    fn write(
        &mut self,
        group: &mut GroupBuffer,
        special: Special,
        now_ms: u64,
    ) -> Result<Position, WriteError> {
        if self.poisoned {
            return Err(WriteError::Poisoned);
        }
        assert!(
            group.is_empty() || group.first_sequence() > self.chain.position.sequence,
            "a group begins behind the last sequence in the log"
        );
        if self.is_short_of(group.group_bytes()) {
            self.change_segment(group.group_bytes())?;
        }
        let (header, checksum) = group.seal(self.header(group, special, now_ms));
        let begin = self.used_bytes;
        for piece in group.pieces() {
            if let Err(source) = self.current.file.write_all_at(piece, self.used_bytes) {
                self.poisoned = true;
                let file = self.describe(&self.current);
                return Err(WriteError::Failed { file, source });
            }
            self.used_bytes += piece.len() as u64;
        }
        self.work.bytes += self.used_bytes - begin;
        self.work.large_bytes += group.large_bytes() as u64;
        self.chain = Chain::behind(&header, checksum);
        self.work.groups += 1;
        self.work.records += u64::from(header.records);
        Ok(self.written())
    }

    fn header(&self, group: &GroupBuffer, special: Special, now_ms: u64) -> GroupHeader {
        let chain = &self.chain;
        GroupHeader {
            log_id: chain.log_id,
            number: chain.position.group + 1,
            first_sequence: chain.position.sequence + 1,
            last_sequence: chain
                .position
                .sequence
                .max(group.last_sequence())
                .max(special.last_sequence),
            durable: self.durable,
            wall_ms: chain.wall_ms.max(now_ms),
            previous_checksum: chain.checksum,
            closing: special.closing,
            new_history: special.new_history,
            // The buffer fills these in.
            body_bytes: 0,
            records: 0,
            segment_bytes: self.current.bytes,
        }
    }

    /// Goes on in the next segment, which has room for a group of so many bytes afterwards.
    fn change_segment(&mut self, group_bytes: u64) -> Result<(), WriteError> {
        let Some(next) = &mut self.next else {
            return Err(WriteError::NoRoom {
                group_bytes,
                source: None,
            });
        };
        if next.bytes < group_bytes
            && let Err(source) = grow(next, group_bytes)
        {
            return Err(WriteError::NoRoom {
                group_bytes,
                source: Some(source),
            });
        }
        // Before anything is in a later segment, all of this one is durable.
        self.sync()?;
        let next = self.next.take().expect("it was there a moment ago");
        let full = std::mem::replace(&mut self.current, next);
        self.used_bytes = 0;
        self.full.push_back(FullSegment {
            ordinal: full.ordinal,
            bytes: full.bytes,
            last: self.written(),
            wall_ms: self.chain.wall_ms,
        });
        let begun = SegmentStart {
            ordinal: self.current.ordinal,
            first_sequence: self.written().sequence + 1,
        };
        Arc::make_mut(&mut self.starts).push(begun);
        self.descriptor.keep(full.file);
        Ok(())
    }

    fn describe(&self, segment: &Segment) -> String {
        self.disk.describe(&segment_name(segment.ordinal))
    }
}

/// Where segments begin, each right behind the one before it.
fn starts(
    first_sequence: u64,
    full: &VecDeque<FullSegment>,
    current: &Segment,
) -> Vec<SegmentStart> {
    let ordinals = full.iter().map(|full| full.ordinal);
    let behind = full.iter().map(|full| full.last.sequence + 1);
    let first_sequences = std::iter::once(first_sequence).chain(behind);
    let ordinals = ordinals.chain([current.ordinal]);
    (ordinals.zip(first_sequences))
        .map(|(ordinal, first_sequence)| SegmentStart {
            ordinal,
            first_sequence,
        })
        .collect()
}

/// Makes a segment as large as one group needs it, or leaves it as it was. Everybody waits
/// meanwhile, so the room is reserved instead of filled.
pub(super) fn grow(segment: &mut Segment, bytes: u64) -> io::Result<()> {
    let grown = (segment.file)
        .allocate(segment.bytes, bytes)
        .and_then(|()| segment.file.sync());
    match grown {
        Ok(()) => {
            segment.bytes = bytes;
            Ok(())
        }
        Err(error) => {
            // Gives the room back. If that fails too, the file is larger than it need be.
            let _ = segment.file.set_len(segment.bytes);
            Err(error)
        }
    }
}

/// Why a group was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// It does not fit the current segment, and there is no next one, or it cannot be made large
    /// enough. Nothing has happened.
    #[error("no room in the log for {group_bytes} bytes: {}", why_no_room(.source))]
    NoRoom {
        /// Bytes of the group.
        group_bytes: u64,
        /// Why the next segment could not be made large enough.
        source: Option<io::Error>,
    },
    /// The device, or the operating system, refused. Nothing more can be written until a restart.
    #[error(
        "{file}: writing the log failed: {source}; writes are refused until the server is restarted"
    )]
    Failed {
        /// The file.
        file: String,
        /// What it said.
        source: io::Error,
    },
    /// An earlier write or sync failed.
    #[error("{POISONED}")]
    Poisoned,
}

/// Why what was written is not known to be durable. Nothing more can be written until a restart.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The device, or the operating system, refused.
    #[error(
        "{file}: syncing the log failed: {source}; writes are refused until the server is restarted"
    )]
    Failed {
        /// The file.
        file: String,
        /// What it said.
        source: io::Error,
    },
    /// An earlier write or sync failed.
    #[error("{POISONED}")]
    Poisoned,
}

impl WriteError {
    /// Says what has happened, without what follows for a log that was open already.
    pub(super) fn at_start(&self) -> String {
        match self {
            WriteError::Failed { file, source } => {
                format!("{file}: writing or syncing the log failed: {source}")
            }
            other => other.to_string(),
        }
    }
}

fn why_no_room(source: &Option<io::Error>) -> String {
    match source {
        None => "its next file is not ready".to_owned(),
        Some(source) => format!("its next file cannot grow: {}", Advised(source)),
    }
}

impl From<SyncError> for WriteError {
    fn from(error: SyncError) -> WriteError {
        match error {
            SyncError::Failed { file, source } => WriteError::Failed { file, source },
            SyncError::Poisoned => WriteError::Poisoned,
        }
    }
}

const POISONED: &str = "a write or sync of the log failed earlier, and what is on the device is \
     not known: writes are refused until the server is restarted";
