//! The start: read the log, decide where it ends, make that durable, open it for writing.

use std::io;
use std::sync::Arc;

use super::damage::{Damage, TornGroup};
use super::group::{ALIGN_BYTES, LogGroup, LogId};
use super::kept::KeptSegments;
use super::known::{KnownLog, Misfit};
use super::limits;
use super::place::Chain;
use super::progress::ReadProgress;
use super::reader::SegmentReader;
use super::record::{RawRecord, RecordError};
use super::scan::{LogFiles, LogReadFailure, LogScan, scan, segments};
use super::segment::{
    FoundSegment, PrepareError, RetiredSegment, Segment, SegmentStock, segment_name,
};
use super::writer::{FullSegment, LogWriter, Tail, WriteError, grow};
use crate::disk::Disk;

/// How a log is opened.
#[derive(Clone, Copy, Debug)]
pub struct LogConfig {
    /// Bytes of a new segment; at least [`limits::SEGMENT_BYTES_MIN`]. Rounded up to whole blocks.
    pub segment_bytes: u64,
    /// Drawn at random by the caller, for a log that is made anew, or that loses something.
    pub new_log_id: LogId,
    /// If something that was durable is missing, give up what comes after it, and begin a new
    /// history.
    pub accept_loss: bool,
    /// No sequence up to this one is given out, whatever the log says: the newest that is known
    /// from elsewhere.
    pub least_sequence: u64,
    /// The wall clock, in milliseconds since 1970.
    pub now_ms: u64,
    /// Begin a new history although nothing is lost: the log is a copy of another one, which goes
    /// on by itself.
    pub begin_history: bool,
    /// The log repeats another one, with the same sequences: no start passes over some, and none
    /// is given out here.
    pub follows: bool,
    /// What is known of the log from elsewhere; `None`: nothing, it may begin and end anywhere.
    pub known: Option<KnownLog>,
    /// Bytes of the largest file that this process may write; `None`: any.
    pub largest_file_bytes: Option<u64>,
    /// Where it is counted what was read; `None`: nobody asks.
    pub progress: Option<&'static ReadProgress>,
}

impl LogConfig {
    /// The usual one.
    pub fn new(new_log_id: LogId, now_ms: u64) -> LogConfig {
        LogConfig {
            segment_bytes: limits::SEGMENT_BYTES,
            new_log_id,
            accept_loss: false,
            least_sequence: 0,
            now_ms,
            begin_history: false,
            follows: false,
            known: None,
            largest_file_bytes: None,
            progress: None,
        }
    }
}

/// A log that is open.
#[derive(Debug)]
pub struct OpenLog {
    /// Writes groups.
    pub log: LogWriter,
    /// Makes segments ready for it.
    pub stock: SegmentStock,
    /// What the log held.
    pub recovered: Recovered,
}

/// What a start found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The public half of the log's id: another one than before if something was lost.
    pub history_id: u64,
    /// There was no log; it was made.
    pub created: bool,
    /// The first sequence that the log covers. An index must have everything before it.
    pub first_sequence: u64,
    /// The last sequence that the log covers.
    pub last_sequence: u64,
    /// The sequence to give out next, higher than any that ever was.
    pub next_sequence: u64,
    /// How many groups counted.
    pub groups: u64,
    /// How many records were in them.
    pub records: u64,
    /// Bytes of the groups that reach beyond the [base](KnownLog::base_sequence) of the snapshot.
    pub bytes: u64,
    /// The latest wall clock in the log, in milliseconds since 1970.
    pub wall_ms: u64,
    /// The last stop was clean.
    pub closed: bool,
    /// What was given up.
    pub loss: Option<Damage>,
    /// What was cut at its end, since it is not whole.
    pub torn: Option<TornGroup>,
    /// Older files of it, which were kept for readers alone, are damaged or stand behind a gap, and
    /// are removed: so many.
    pub given_up: u64,
}

/// What is done with each record of a log; an error refuses the log.
pub type VisitRecord<'a> = &'a mut dyn FnMut(&RawRecord<'_>) -> Result<(), RecordError>;

/// Opens the log in a folder, or makes one. All its records go through `visit`, in order, before it
/// is known whether the log is whole: after an error, what was made of them must be thrown away.
/// When this returns a log, everything in it is durable.
///
/// Whoever calls it holds the lock of the folder. An error before anything is written leaves the
/// folder as it was.
pub fn open(
    disk: Arc<dyn Disk>,
    config: &LogConfig,
    visit: VisitRecord<'_>,
) -> Result<OpenLog, LogOpenError> {
    let (mut open, unused) = read(disk, config, visit)?.open()?;
    open.stock.retire(unused)?;
    Ok(open)
}

/// The first half of [`open`]: reads the log and changes nothing, so that whoever cannot use what
/// is in it leaves the folder as it was.
pub fn read<'a>(
    disk: Arc<dyn Disk>,
    config: &'a LogConfig,
    visit: VisitRecord<'_>,
) -> Result<ReadLog<'a>, LogOpenError> {
    assert!(
        config.segment_bytes >= limits::SEGMENT_BYTES_MIN,
        "a segment is too small for anything"
    );
    let base_sequence = config.known.map_or(0, |known| known.base_sequence);
    let mut bytes = 0;
    let files = match config.begin_history {
        true => LogFiles::Copied,
        false => LogFiles::Own,
    };
    // What a snapshot has is not read.
    let (kept, needed) = KeptSegments::split(&*disk, segments(&*disk)?, base_sequence)?;
    let mut scan = scan(&*disk, needed, files, &mut |_, group| {
        if group.header.last_sequence > base_sequence {
            bytes += group.header.group_bytes().unwrap_or(0);
        }
        visit_records(group, visit)?;
        if let Some(progress) = config.progress {
            let bytes = group.header.group_bytes().unwrap_or(0);
            progress.add_group(bytes, u64::from(group.header.records));
        }
        Ok(())
    })?;
    if let Some(known) = config.known {
        fits(&*disk, &mut scan, &known)?;
    }
    if let Some(damage) = scan.damage
        && !config.accept_loss
    {
        let folder = disk.describe("");
        let damage = Box::new(damage);
        return Err(LogOpenError::Damaged { folder, damage });
    }
    if let Some(largest_bytes) = config.largest_file_bytes {
        check_sizes(&*disk, &scan, largest_bytes)?;
    }
    Ok(ReadLog {
        disk,
        config,
        scan,
        kept,
        bytes,
    })
}

/// A log that was read, and can be opened for writing.
pub struct ReadLog<'a> {
    disk: Arc<dyn Disk>,
    config: &'a LogConfig,
    scan: LogScan,
    kept: KeptSegments,
    bytes: u64,
}

impl ReadLog<'_> {
    /// The last sequence in the log; 0: there is none.
    pub fn last_sequence(&self) -> u64 {
        self.scan.chain.map_or(0, |chain| chain.position.sequence)
    }

    /// The latest wall clock in the log, in milliseconds since 1970; 0: there is no group in it.
    pub fn wall_ms(&self) -> u64 {
        self.scan.chain.map_or(0, |chain| chain.wall_ms)
    }

    /// Makes durable what was read, and opens the log behind it. Returns the files at its end that
    /// it does not need, too: whoever remembers the newest one elsewhere remembers the newest that
    /// is needed before these are [retired](SegmentStock::retire), or else the start after a crash
    /// between the two misses them. They may as well stay: the log makes its own in their place,
    /// and the next start finds the rest.
    pub fn open(self) -> Result<(OpenLog, Vec<RetiredSegment>), LogOpenError> {
        let ReadLog {
            disk,
            config,
            scan,
            kept,
            bytes,
        } = self;
        let segment_bytes = config.segment_bytes.next_multiple_of(ALIGN_BYTES as u64);
        let stock = SegmentStock::open(disk.clone(), segment_bytes)
            .map_err(|source| folder_error(&*disk, source))?;
        let start = Start {
            disk,
            config,
            scan,
            bytes,
            stock,
            kept,
            given_up: Vec::new(),
        };
        match start.scan.chain {
            Some(chain) => start.go_on(chain),
            None => start.begin(),
        }
    }
}

/// Whether the log goes with a snapshot. If its end is missing, this is noted as damage, which may
/// be accepted.
fn fits(disk: &dyn Disk, scan: &mut LogScan, known: &KnownLog) -> Result<(), LogOpenError> {
    match known.misfit(scan) {
        None => Ok(()),
        Some(Misfit::End {
            durable_sequence, ..
        }) => {
            scan.expect_through(durable_sequence);
            if let Some(Misfit::NewestGone { newest_segment, .. }) = known.missing_files(scan) {
                scan.expect_segment(newest_segment);
            }
            Ok(())
        }
        Some(Misfit::NewestGone { newest_segment, .. }) => {
            scan.expect_segment(newest_segment);
            Ok(())
        }
        Some(misfit) => Err(LogOpenError::Misfit {
            folder: disk.describe(""),
            misfit,
        }),
    }
}

/// Whether the files that are written on with are no larger than this process may write. They may
/// be larger than a new one: they were made with another setting, or grew for a large group.
fn check_sizes(disk: &dyn Disk, scan: &LogScan, largest_bytes: u64) -> Result<(), LogOpenError> {
    let from = scan.ends.len().saturating_sub(1);
    let mut written = scan.segments.iter().skip(from);
    match written.find(|segment| segment.bytes > largest_bytes) {
        None => Ok(()),
        Some(segment) => Err(LogOpenError::FileSize {
            file: disk.describe(&segment_name(segment.ordinal)),
            bytes: segment.bytes,
            largest_bytes,
        }),
    }
}

fn visit_records(group: &LogGroup<'_>, visit: VisitRecord<'_>) -> Result<(), RecordError> {
    for record in group.records() {
        visit(&record?)?;
    }
    Ok(())
}

struct Start<'a> {
    disk: Arc<dyn Disk>,
    config: &'a LogConfig,
    scan: LogScan,
    /// Bytes of groups that count.
    bytes: u64,
    stock: SegmentStock,
    kept: KeptSegments,
    /// Files that were kept for readers, and are of no use to them.
    given_up: Vec<FoundSegment>,
}

impl Start<'_> {
    /// Makes a log where there is none, or where nothing of it is left.
    fn begin(mut self) -> Result<(OpenLog, Vec<RetiredSegment>), LogOpenError> {
        let found = std::mem::take(&mut self.scan.segments);
        let lost_sequence = self.scan.damage.map_or(0, |damage| damage.lost_sequence);
        let in_the_making = found.last().filter(|last| {
            // Its size is durable, and nothing in it counts.
            self.scan.damage.is_none() && last.bytes >= limits::SEGMENT_BYTES_MIN
        });
        let current = match in_the_making {
            Some(segment) => self.open_segment(segment)?,
            None => {
                let last_ordinal = found.last().map_or(0, |last| last.ordinal);
                self.stock.prepare_first(last_ordinal + 1)?.0
            }
        };
        // Newest first: as long as the oldest is there, what is left is damage too.
        let lost = found
            .iter()
            .filter(|segment| segment.ordinal != current.ordinal);
        self.stock.retire(lost.rev().map(retired))?;
        let base = match self.scan.damage {
            Some(_) => lost_sequence.max(self.config.least_sequence) + limits::SEQUENCE_RESERVE,
            None => self.config.least_sequence,
        };
        let tail = Tail {
            first_sequence: base + 1,
            full: Default::default(),
            current,
            used_bytes: 0,
            next: None,
            chain: Chain::start(self.config.new_log_id, base),
        };
        self.scan.first_sequence = base + 1;
        self.finish(tail, base, Vec::new())
    }

    /// Goes on behind the last group that counts.
    fn go_on(mut self, chain: Chain) -> Result<(OpenLog, Vec<RetiredSegment>), LogOpenError> {
        let end = *self
            .scan
            .ends
            .last()
            .expect("the last group lies in a segment");
        let mut rest = std::mem::take(&mut self.scan.segments);
        let mut later = rest.split_off(self.scan.ends.len());
        let current = rest.pop().expect("there are as many as have groups");
        let current = self.open_segment(&current)?;
        self.make_durable(&current, chain)?;
        let full = self.scan.ends.iter().zip(&rest);
        let full = full.map(|(end, segment)| FullSegment {
            ordinal: segment.ordinal,
            bytes: segment.bytes,
            last: end.last,
            wall_ms: end.wall_ms,
        });
        let has_next = later
            .first()
            .is_some_and(|segment| segment.ordinal == current.ordinal + 1);
        let next = has_next.then(|| later.remove(0));
        let next = next.map(|next| self.open_next(&next)).transpose()?;
        let mut kept = std::mem::take(&mut self.kept);
        let first_sequence = match kept.full.is_empty() {
            true => self.scan.first_sequence,
            false => kept.first_sequence,
        };
        kept.full.extend(full);
        self.given_up = kept.given_up;
        let tail = Tail {
            first_sequence,
            full: kept.full,
            current,
            used_bytes: end.used_bytes,
            next,
            chain,
        };
        let last_sequence = chain.position.sequence;
        let base = match self.scan.damage {
            Some(damage) => damage.lost_sequence.max(last_sequence) + limits::SEQUENCE_RESERVE,
            None if self.scan.closed || self.config.follows => last_sequence,
            None => last_sequence + limits::SEQUENCE_RESERVE,
        };
        let base = base.max(self.config.least_sequence);
        self.finish(tail, base, later)
    }

    /// Opens the log behind `tail`, with a first group whose sequence is above `base`; `later`
    /// segments hold nothing that counts.
    fn finish(
        mut self,
        tail: Tail,
        base: u64,
        later: Vec<FoundSegment>,
    ) -> Result<(OpenLog, Vec<RetiredSegment>), LogOpenError> {
        let scan = &self.scan;
        let chain = tail.chain;
        let created = scan.chain.is_none() && scan.damage.is_none();
        // A log that does not begin with the first sequence says that nothing is missing before it.
        let begins_late = scan.chain.is_none() && base > 0;
        let is_new = scan.damage.is_some() || begins_late || self.config.begin_history;
        let new_history = is_new.then_some(self.config.new_log_id);
        let in_use = tail.full.iter().map(|segment| segment.ordinal);
        let in_use = in_use.chain([tail.current.ordinal]);
        let in_use = in_use.chain(tail.next.iter().map(|next| next.ordinal));
        self.stock.note_in_use(in_use);
        let descriptor = self.stock.descriptor();
        // Until the first segment is full, which leaves one.
        let file = self.disk.open(&segment_name(tail.current.ordinal));
        descriptor.keep(file.map_err(|source| folder_error(&*self.disk, source))?);
        let first_needed = self.stock.first_needed();
        let mut log = LogWriter::new(self.disk, tail, (descriptor, first_needed));
        if log.is_short_of(ALIGN_BYTES as u64)
            && let Some(wanted) = log.wanted_segment()
        {
            log.take_segment(self.stock.prepare(wanted)?);
        }
        let follows = self.config.follows;
        let mark = (!follows).then_some(base + 1);
        log.set_follows(follows);
        log.write_opening(mark, new_history, self.config.now_ms)?;
        // They go after the opening group: until it is durable, what is in them may be what tells
        // of damage.
        let later = later.iter().rev();
        let unused = self.given_up.iter().chain(later).map(retired).collect();
        let recovered = Recovered {
            history_id: log.history_id(),
            created,
            first_sequence: scan.first_sequence,
            last_sequence: chain.position.sequence,
            next_sequence: mark.unwrap_or(base) + 1,
            groups: scan.groups,
            records: scan.records,
            bytes: self.bytes,
            wall_ms: chain.wall_ms,
            closed: scan.closed,
            loss: scan.damage,
            torn: scan.torn,
            given_up: self.given_up.len() as u64,
        };
        let open = OpenLog {
            log,
            stock: self.stock,
            recovered,
        };
        Ok((open, unused))
    }

    fn open_segment(&self, segment: &FoundSegment) -> Result<Segment, LogOpenError> {
        let opened = segment.open(&*self.disk);
        opened.map_err(|source| folder_error(&*self.disk, source))
    }

    /// Opens the segment behind the last one that has groups. One that was cut, which was accepted,
    /// is made whole.
    fn open_next(&self, segment: &FoundSegment) -> Result<Segment, LogOpenError> {
        let mut next = self.open_segment(segment)?;
        if next.bytes < limits::SEGMENT_BYTES_MIN {
            let grown = grow(&mut next, limits::SEGMENT_BYTES_MIN);
            grown.map_err(|source| folder_error(&*self.disk, source))?;
        }
        Ok(next)
    }

    /// Writes again, in place, the groups that no later one knows to be durable, and syncs. They
    /// may be in the cache of the operating system only, and believed clean after a sync that
    /// failed.
    ///
    /// All of them are in the last segment: the writer syncs a segment before it goes on in the
    /// next.
    fn make_durable(&self, segment: &Segment, chain: Chain) -> Result<(), LogOpenError> {
        let end = self.scan.ends.last().expect("there is a last group");
        let error = |source| LogOpenError::Repair {
            file: self.disk.describe(&segment_name(segment.ordinal)),
            source,
        };
        let mut reader = SegmentReader::new(segment.file.clone()).map_err(error)?;
        let mut again = RewrittenBytes {
            segment,
            bytes: Vec::new(),
            start: end.used_bytes,
        };
        let mut offset = 0;
        let mut checksum = None;
        while offset < end.used_bytes {
            let header = reader.header(offset).map_err(error)?;
            let header = header.map_err(|_| error(changed()))?;
            let group_bytes = header.group_bytes().ok_or_else(|| error(changed()))?;
            if header.number > self.scan.durable_group {
                let group = reader.group(offset, header).map_err(error)?;
                let group = group.ok_or_else(|| error(changed()))?;
                let follows = checksum.is_none_or(|before| header.previous_checksum == before);
                if !follows {
                    return Err(error(changed()));
                }
                checksum = Some(group.checksum);
                let bytes = reader.bytes(offset, group_bytes as usize).map_err(error)?;
                again.add(bytes, offset).map_err(error)?;
            }
            offset += group_bytes;
        }
        if checksum.is_some_and(|last| last != chain.checksum) {
            return Err(error(changed()));
        }
        again.write().map_err(error)?;
        segment.file.sync().map_err(error)
    }
}

/// Bytes that are written where they were read.
struct RewrittenBytes<'a> {
    segment: &'a Segment,
    bytes: Vec<u8>,
    start: u64,
}

impl RewrittenBytes<'_> {
    fn add(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.bytes.is_empty() {
            self.start = offset;
        }
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() >= limits::READ_BYTES {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        self.segment.file.write_all_at(&self.bytes, self.start)?;
        self.bytes.clear();
        Ok(())
    }
}

/// What was read a moment ago reads otherwise now.
fn changed() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "it changed while it was read; is another process using it?",
    )
}

fn retired(segment: &FoundSegment) -> RetiredSegment {
    RetiredSegment {
        ordinal: segment.ordinal,
        bytes: segment.bytes,
    }
}

/// Why a log was not opened.
#[derive(Debug, thiserror::Error)]
pub enum LogOpenError {
    /// The folder's files cannot be listed, opened or removed.
    #[error("{folder}: the files of the log cannot be used: {source}")]
    Folder {
        /// The folder.
        folder: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// It cannot be read.
    #[error("{0}")]
    Read(#[from] LogReadFailure),
    /// Something that was durable is missing. Nothing was changed.
    #[error("{folder}: {damage}")]
    Damaged {
        /// The folder.
        folder: String,
        /// What is missing, and where.
        damage: Box<Damage>,
    },
    /// It does not go with the newest snapshot, or its beginning is missing. Nothing was changed.
    #[error("{folder}: {misfit}")]
    Misfit {
        /// The folder.
        folder: String,
        /// What does not fit.
        misfit: Misfit,
    },
    /// A file that is to be written on with is larger than this process may write one. Nothing was
    /// changed.
    #[error(
        "{file}: this file of the log has {bytes} bytes, and this process may write none of more \
         than {largest_bytes} (`ulimit -f`, `LimitFSIZE=` of systemd): raise that limit; nothing \
         was changed"
    )]
    FileSize {
        /// The file.
        file: String,
        /// Its bytes.
        bytes: u64,
        /// The limit.
        largest_bytes: u64,
    },
    /// What was read could not be made durable again.
    #[error("{file}: the end of the log cannot be made durable again: {source}")]
    Repair {
        /// The file.
        file: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// No segment could be made ready.
    #[error("{0}")]
    Prepare(#[from] PrepareError),
    /// The opening group could not be written.
    #[error("{}", .0.at_start())]
    Write(#[from] WriteError),
}

fn folder_error(disk: &dyn Disk, source: io::Error) -> LogOpenError {
    let folder = disk.describe("");
    LogOpenError::Folder { folder, source }
}
