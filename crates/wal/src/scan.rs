//! Reading the log: which groups count, where it ends, and whether something is missing.

use std::io;

use super::damage::{Cut, Damage, TornGroup, Witness};
use super::group::{
    ALIGN_BYTES, FORMAT_VERSION, GroupHeader, HEADER_BYTES, LogGroup, LogId, NUMBER_BOUND, NoGroup,
    Position,
};
use super::limits;
use super::place::{Chain, LogPlace};
use super::reader::{SegmentReader, next_place};
use super::record::RecordError;
use super::segment::{FoundSegment, segment_name, segment_ordinal};
use crate::disk::Disk;

/// What was found in a log.
#[derive(Debug)]
pub(super) struct LogScan {
    /// All segments that a start needs, in order.
    pub(super) segments: Vec<FoundSegment>,
    /// Where each of the first segments ends: those that have groups that count.
    pub(super) ends: Vec<SegmentEnd>,
    /// Behind the last group that counts; `None`: there is none.
    pub(super) chain: Option<Chain>,
    /// The first sequence that a group covers.
    pub(super) first_sequence: u64,
    /// The highest group that another one knows to be durable.
    pub(super) durable_group: u64,
    /// The first group that counts begins a history: what was before it was given up.
    pub(super) begins_history: bool,
    /// The public halves of all ids that the log has had.
    pub(super) histories: Vec<u64>,
    /// The last group that counts is a closing one.
    pub(super) closed: bool,
    pub(super) groups: u64,
    pub(super) records: u64,
    pub(super) damage: Option<Damage>,
    /// The group behind the last one that counts, which is not whole, if there is one.
    pub(super) torn: Option<TornGroup>,
}

/// What counts in a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentEnd {
    pub(super) ordinal: u64,
    pub(super) used_bytes: u64,
    pub(super) groups: u64,
    pub(super) first_sequence: u64,
    pub(super) last: Position,
    /// The wall clock in the last of them.
    pub(super) wall_ms: u64,
    /// What the last of them says that the segment was made with; 0: nothing.
    pub(super) made_bytes: u64,
}

/// Which files a log lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogFiles {
    /// Those that it was written to.
    Own,
    /// Those of a backup: groups were copied into them, one behind the other.
    Copied,
}

/// What is done with each group that counts; an error refuses the log.
pub type VisitGroup<'a> = &'a mut dyn FnMut(LogPlace, &LogGroup<'_>) -> Result<(), RecordError>;

/// Reads the log in these segments. Changes nothing.
pub(super) fn scan(
    disk: &dyn Disk,
    segments: Vec<FoundSegment>,
    files: LogFiles,
    visit: VisitGroup<'_>,
) -> Result<LogScan, LogReadFailure> {
    let mut scan = LogScan {
        segments,
        ends: Vec::new(),
        chain: None,
        first_sequence: 0,
        durable_group: 0,
        begins_history: false,
        histories: Vec::new(),
        closed: false,
        groups: 0,
        records: 0,
        damage: None,
        torn: None,
    };
    for index in 0..scan.segments.len() {
        if !scan.read_segment(disk, index, visit)? {
            break;
        }
    }
    scan.damage = scan.find_damage(disk, files)?;
    scan.torn = scan.find_torn(disk)?;
    Ok(scan)
}

/// Finds the segments of a log, in order.
pub(super) fn segments(disk: &dyn Disk) -> Result<Vec<FoundSegment>, LogReadFailure> {
    let list = || -> io::Result<Vec<FoundSegment>> {
        let names = disk.list()?;
        let ordinals = names.iter().filter_map(|name| segment_ordinal(name));
        let mut ordinals: Vec<u64> = ordinals.take(limits::SEGMENTS).collect();
        ordinals.sort_unstable();
        check_no_folder(disk, &ordinals)?;
        let find = |ordinal| -> io::Result<FoundSegment> {
            let bytes = disk.open(&segment_name(ordinal))?.len()?;
            Ok(FoundSegment { ordinal, bytes })
        };
        ordinals.into_iter().map(find).collect()
    };
    let found = list().map_err(|source| LogReadFailure::Folder {
        folder: disk.describe(""),
        source,
    })?;
    match found.last().filter(|last| last.ordinal >= NUMBER_BOUND) {
        Some(last) => Err(LogReadFailure::Ordinal {
            file: disk.describe(&segment_name(last.ordinal)),
        }),
        None => Ok(found),
    }
}

/// A folder with the name of a segment is not listed: an error where one stands at a place at which
/// a segment seems to be missing.
fn check_no_folder(disk: &dyn Disk, ordinals: &[u64]) -> io::Result<()> {
    let first = ordinals.first().map_or(1, |first| first.saturating_sub(1));
    let behind = ordinals.iter().map(|ordinal| ordinal.saturating_add(1));
    let is_missing = |ordinal: &u64| ordinals.binary_search(ordinal).is_err();
    for missing in std::iter::once(first).chain(behind).filter(is_missing) {
        let name = segment_name(missing);
        // Whatever else is there is told when it is opened.
        if let Ok(true) = disk.has_subfolder(&name) {
            let words = format!(
                "{name} is a folder, and should be a file of the log: move it away, and put the \
                 file back"
            );
            return Err(io::Error::new(io::ErrorKind::IsADirectory, words));
        }
    }
    Ok(())
}

pub(super) fn reader(disk: &dyn Disk, ordinal: u64) -> io::Result<SegmentReader> {
    SegmentReader::new(disk.open(&segment_name(ordinal))?)
}

impl LogScan {
    /// Reads the groups of a segment that count; whether there are any.
    fn read_segment(
        &mut self,
        disk: &dyn Disk,
        index: usize,
        visit: VisitGroup<'_>,
    ) -> Result<bool, LogReadFailure> {
        let ordinal = self.segments[index].ordinal;
        let error = |offset, source| LogReadFailure::device(disk, ordinal, offset, source);
        let mut reader = reader(disk, ordinal).map_err(|source| error(0, source))?;
        let mut offset = 0;
        let mut end: Option<SegmentEnd> = None;
        loop {
            let place = LogPlace {
                segment: ordinal,
                offset,
            };
            let header = match reader
                .header(offset)
                .map_err(|source| error(offset, source))?
            {
                Ok(header) if self.is_next(&header) => header,
                Err(NoGroup::Version(version, log_id)) if self.is_of(log_id) => {
                    return Err(LogReadFailure::too_new(disk, place, version));
                }
                _ => break,
            };
            let group = reader.group(offset, header);
            let Some(group) = group.map_err(|source| error(offset, source))? else {
                break;
            };
            visit(place, &group).map_err(|reason| LogReadFailure::record(disk, place, reason))?;
            self.accept(&group);
            let group_bytes = header.group_bytes().expect("the reader has read so many");
            offset += group_bytes;
            let end = end.get_or_insert(SegmentEnd {
                ordinal,
                used_bytes: 0,
                groups: 0,
                first_sequence: header.first_sequence,
                last: Position::default(),
                wall_ms: 0,
                made_bytes: 0,
            });
            end.used_bytes = offset;
            end.made_bytes = header.segment_bytes;
            end.groups += 1;
            end.last = header.position();
            end.wall_ms = header.wall_ms;
            reader.shrink();
        }
        self.ends.extend(end);
        Ok(end.is_some())
    }

    fn is_next(&self, header: &GroupHeader) -> bool {
        // What the first one repeats of the one before cannot be known any more.
        self.chain.is_none_or(|chain| chain.is_followed_by(header))
    }

    fn is_of(&self, log_id: LogId) -> bool {
        self.chain.is_none_or(|chain| chain.log_id == log_id)
    }

    fn accept(&mut self, group: &LogGroup<'_>) {
        let header = &group.header;
        if self.chain.is_none() {
            self.first_sequence = header.first_sequence;
            self.begins_history = header.new_history;
        }
        if self.histories.last() != Some(&header.log_id.history) {
            self.histories.push(header.log_id.history);
        }
        self.chain = Some(Chain::behind(header, group.checksum));
        self.durable_group = self.durable_group.max(header.durable.group);
        self.closed = header.closing;
        self.groups += 1;
        self.records += u64::from(header.records);
    }

    /// Searches everything behind the last group that counts for one that knows the next to have
    /// been durable.
    fn find_damage(
        &self,
        disk: &dyn Disk,
        files: LogFiles,
    ) -> Result<Option<Damage>, LogReadFailure> {
        let Some(end) = self.end() else {
            return Ok(None);
        };
        let mut damage = Damage {
            place: end,
            last_good: self
                .chain
                .map_or(Position::default(), |chain| chain.position),
            witness: None,
            missing_segment: self.missing_segment(),
            newest_gone: 0,
            lost_sequence: 0,
            known_sequence: 0,
            cut: None,
        };
        let behind = |segment: &&FoundSegment| segment.ordinal >= end.segment;
        for segment in self.segments.iter().filter(behind) {
            let is_end = segment.ordinal == end.segment;
            let from = if is_end { end.offset } else { 0 };
            self.search(disk, segment.ordinal, from, &mut damage)
                .map_err(|source| LogReadFailure::device(disk, segment.ordinal, from, source))?;
        }
        if files == LogFiles::Own {
            damage.cut = self.find_cut(disk)?;
        }
        let never_was = self.chain.is_none() && self.is_in_the_making(disk)?;
        let is_whole =
            damage.witness.is_none() && damage.missing_segment == 0 && damage.cut.is_none();
        if is_whole && (self.chain.is_some() || never_was) {
            return Ok(None);
        }
        damage.place = self.missing_place(disk, end, damage.witness);
        Ok(Some(damage))
    }

    /// Searches the next group where it should begin: behind the last one that counts, or in the
    /// next file. What has lost its header is not found, since files are used again: anything may
    /// stand there.
    fn find_torn(&self, disk: &dyn Disk) -> Result<Option<TornGroup>, LogReadFailure> {
        let Some(end) = self.end().filter(|_| self.chain.is_some()) else {
            return Ok(None);
        };
        let behind = self.segments.iter().find(|one| one.ordinal > end.segment);
        let next = behind.map(|segment| LogPlace {
            segment: segment.ordinal,
            offset: 0,
        });
        for place in [Some(end), next].into_iter().flatten() {
            let LogPlace { segment, offset } = place;
            let error = |source| LogReadFailure::device(disk, segment, offset, source);
            let mut reader = reader(disk, segment).map_err(error)?;
            let header = GroupHeader::decode(reader.bytes(offset, HEADER_BYTES).map_err(error)?);
            let header = header.ok().filter(|header| self.is_next(header));
            let torn = header.and_then(|header| {
                Some(TornGroup {
                    place,
                    bytes: header.group_bytes()?,
                    records: header.records,
                })
            });
            if torn.is_some() {
                return Ok(torn);
            }
        }
        Ok(None)
    }

    /// The first file that was cut where the log ends, or behind it. Before the end nothing is
    /// missing.
    fn find_cut(&self, disk: &dyn Disk) -> Result<Option<Cut>, LogReadFailure> {
        let last = self.ends.len().saturating_sub(1);
        for (index, segment) in self.segments.iter().enumerate().skip(last) {
            let (offset, said_bytes) = match self.ends.get(index) {
                Some(end) => (end.used_bytes, end.made_bytes),
                None => (0, limits::SEGMENT_BYTES_MIN),
            };
            let begun_bytes = self.begun_bytes(disk, segment.ordinal, offset);
            let begun_bytes = begun_bytes
                .map_err(|source| LogReadFailure::device(disk, segment.ordinal, offset, source))?;
            let made_bytes = said_bytes.max(begun_bytes);
            if segment.bytes < made_bytes {
                return Ok(Some(Cut {
                    segment: segment.ordinal,
                    made_bytes,
                    bytes: segment.bytes,
                }));
            }
        }
        Ok(None)
    }

    /// How large the segment was made in which the next group begins at a place and ends behind the
    /// end of the file, according to its header; 0: there is none. It is not known to be right: so
    /// it must fit what it says itself.
    fn begun_bytes(&self, disk: &dyn Disk, ordinal: u64, offset: u64) -> io::Result<u64> {
        let mut reader = reader(disk, ordinal)?;
        let file_bytes = reader.file_bytes();
        let header = GroupHeader::decode(reader.bytes(offset, HEADER_BYTES)?);
        let header = header.ok().filter(|header| self.is_next(header));
        let made_bytes = header.and_then(|header| {
            let end = offset.checked_add(header.group_bytes()?)?;
            let is_cut = file_bytes < end && end <= header.segment_bytes;
            is_cut.then_some(header.segment_bytes)
        });
        Ok(made_bytes.unwrap_or(0))
    }

    /// Notes as damage that the log ends before a sequence that was durable in it.
    pub(super) fn expect_through(&mut self, sequence: u64) {
        if self.last_good().sequence >= sequence {
            return;
        }
        let damage = self.note_damage();
        damage.known_sequence = sequence;
        damage.lost_sequence = damage.lost_sequence.max(sequence);
    }

    /// Notes as damage that the newest files are missing, up to this one.
    pub(super) fn expect_segment(&mut self, newest_segment: u64) {
        let damage = self.note_damage();
        damage.newest_gone = newest_segment;
        // How many there were nobody knows.
        let lost_sequence = damage.last_good.sequence + limits::LOST_SEQUENCES;
        damage.lost_sequence = damage.lost_sequence.max(lost_sequence);
    }

    fn last_good(&self) -> Position {
        (self.chain).map_or(Position::default(), |chain| chain.position)
    }

    /// The damage that was found, or a new one at the end.
    fn note_damage(&mut self) -> &mut Damage {
        let first_segment = LogPlace {
            segment: 1,
            offset: 0,
        };
        let place = self.end().unwrap_or(first_segment);
        let last_good = self.last_good();
        self.damage.get_or_insert(Damage {
            place,
            last_good,
            witness: None,
            missing_segment: 0,
            newest_gone: 0,
            lost_sequence: 0,
            known_sequence: 0,
            cut: None,
        })
    }

    /// Behind the last group that counts; `None`: there are no files.
    fn end(&self) -> Option<LogPlace> {
        let (segment, offset) = match self.ends.last() {
            Some(end) => (end.ordinal, end.used_bytes),
            None => (self.segments.first()?.ordinal, 0),
        };
        Some(LogPlace { segment, offset })
    }

    /// The first segment that is not there although a later one is, since they come and go in
    /// order; 0: none.
    fn missing_segment(&self) -> u64 {
        let mut pairs = self.segments.windows(2);
        let gap = pairs.find(|pair| pair[1].ordinal > pair[0].ordinal + 1);
        gap.map_or(0, |pair| pair[0].ordinal + 1)
    }

    /// Whether this looks like a log that was being made when the power went: the first segment
    /// alone, with nothing in it but perhaps a part of its opening group. A later one alone is what
    /// is left of a log.
    fn is_in_the_making(&self, disk: &dyn Disk) -> Result<bool, LogReadFailure> {
        let [segment @ FoundSegment { ordinal: 1, .. }] = self.segments[..] else {
            return Ok(false);
        };
        let is_zero = || reader(disk, segment.ordinal)?.is_zero_from(ALIGN_BYTES as u64);
        is_zero().map_err(|source| LogReadFailure::device(disk, segment.ordinal, 0, source))
    }

    /// Where the missing group seems to have been: at `end`, or at the beginning of the next
    /// segment. Only a message rests on it.
    fn missing_place(&self, disk: &dyn Disk, end: LogPlace, witness: Option<Witness>) -> LogPlace {
        let next = LogPlace {
            segment: end.segment + 1,
            offset: 0,
        };
        let Some((chain, witness)) = self.chain.zip(witness) else {
            return end;
        };
        let missing = chain.position.group + 1;
        let here = number_at(disk, end) == Some(missing);
        // The next segment begins with the one after it.
        let before_next = number_at(disk, next) == Some(missing + 1);
        let mut segments = self.segments.iter();
        let has_next = segments.any(|segment| segment.ordinal == next.segment);
        if here || before_next || !has_next || witness.place.segment == end.segment {
            end
        } else {
            next
        }
    }

    fn search(
        &self,
        disk: &dyn Disk,
        ordinal: u64,
        from: u64,
        damage: &mut Damage,
    ) -> io::Result<()> {
        let mut reader = reader(disk, ordinal)?;
        let mut offset = from;
        while offset < reader.file_bytes() {
            let place = LogPlace {
                segment: ordinal,
                offset,
            };
            offset = next_place(offset);
            let Ok(header) = reader.header(place.offset)? else {
                continue;
            };
            if !self.knows_of_loss(&header) {
                continue;
            }
            let group = reader.group(place.offset, header)?;
            if group.is_some() {
                damage.witness.get_or_insert(Witness {
                    place,
                    group: header.number,
                    durable_group: header.durable.group,
                });
                damage.lost_sequence = damage.lost_sequence.max(header.last_sequence);
                // What lies within a group is values, not groups.
                offset = place.offset + header.group_bytes().expect("the reader has read so many");
            }
            reader.shrink();
        }
        Ok(())
    }

    /// Whether a group, if its checksum is right, says that the one after the last that counts was
    /// durable.
    fn knows_of_loss(&self, header: &GroupHeader) -> bool {
        self.chain.is_none_or(|chain| {
            header.log_id == chain.log_id && header.durable.group > chain.position.group
        })
    }
}

/// The number in what looks like the header of a group.
fn number_at(disk: &dyn Disk, place: LogPlace) -> Option<u64> {
    let mut reader = reader(disk, place.segment).ok()?;
    let header = reader.header(place.offset).ok()?.ok()?;
    Some(header.number)
}

/// Why the log could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LogReadFailure {
    /// The folder's files cannot be listed or opened.
    #[error("{folder}: the files of the log cannot be opened: {source}")]
    Folder {
        /// The folder.
        folder: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// A file has a name that no file of a log gets to. What would come behind it has none.
    #[error(
        "{file}: this is no file of a log, though it has the name of one: no log has so many; \
         move it away"
    )]
    Ordinal {
        /// The file.
        file: String,
    },
    /// A file cannot be read.
    #[error("{file} cannot be read from byte {offset} on: {source}")]
    Device {
        /// The file.
        file: String,
        /// The place from which on it was read.
        offset: u64,
        /// What the operating system said.
        source: io::Error,
    },
    /// It was written by another version.
    #[error(
        "{file} was written by another version, or is damaged: format {version} at byte {offset}; \
         this version reads formats up to {FORMAT_VERSION}"
    )]
    TooNew {
        /// The file.
        file: String,
        /// The place of the group.
        offset: u64,
        /// The version of the format.
        version: u16,
    },
    /// There is a record that this version does not understand.
    #[error("{file} holds {reason}, in the group at byte {offset}; use the version that wrote it")]
    Record {
        /// The file.
        file: String,
        /// The place of its group.
        offset: u64,
        /// What is wrong with it.
        #[source]
        reason: RecordError,
    },
}

impl LogReadFailure {
    pub(super) fn device(disk: &dyn Disk, ordinal: u64, offset: u64, source: io::Error) -> Self {
        LogReadFailure::Device {
            file: disk.describe(&segment_name(ordinal)),
            offset,
            source,
        }
    }

    fn too_new(disk: &dyn Disk, place: LogPlace, version: u16) -> Self {
        LogReadFailure::TooNew {
            file: disk.describe(&segment_name(place.segment)),
            offset: place.offset,
            version,
        }
    }

    fn record(disk: &dyn Disk, place: LogPlace, reason: RecordError) -> Self {
        LogReadFailure::Record {
            file: disk.describe(&segment_name(place.segment)),
            offset: place.offset,
            reason,
        }
    }
}
