//! Groups: what one write and one sync cover.
//!
//! A group is a header of 128 bytes, all numbers little-endian, its records, and zeros up to a
//! multiple of 512:
//!
//! | at | bytes | |
//! |---|---|---|
//! | 0 | 8 | `PeltnLog` |
//! | 8 | 2 | version of the format |
//! | 10 | 2 | flags: 1 closing, 2 a new history begins |
//! | 12 | 4 | CRC32C over all of the group but these four bytes |
//! | 16 | 16 | log id: the public half, the secret half |
//! | 32 | 8 | group number |
//! | 40 | 8 | first sequence that it covers |
//! | 48 | 8 | last sequence that it covers |
//! | 56 | 8 | last sequence known durable when it was written |
//! | 64 | 8 | last group known durable when it was written |
//! | 72 | 8 | wall clock, in milliseconds since 1970, never less than before |
//! | 80 | 8 | bytes of its records |
//! | 88 | 4 | number of its records |
//! | 92 | 4 | checksum of the group before |
//! | 96 | 8 | bytes of the segment that it was written to (from version 2 on) |
//! | 104 | 24 | 0 |

use bytes::Bytes;

use super::bytes::{u16_at, u32_at, u64_at};
use super::limits;
use super::record::{RawRecord, RecordError};

/// Groups begin at multiples of this, so that one can be found behind a damaged one. What a device
/// writes whole.
pub const ALIGN_BYTES: usize = 512;

/// Bytes of a group beside its records and the zeros behind them.
pub const HEADER_BYTES: usize = 128;

/// The version of the format that this code writes.
pub const FORMAT_VERSION: u16 = 2;

/// The first version, without the size of the segment, which this code reads too.
const FORMAT_VERSION_1: u16 = 1;

const MAGIC: [u8; 8] = *b"PeltnLog";
const CHECKSUM_AT: usize = 12;
const FLAG_CLOSING: u16 = 1;
const FLAG_NEW_HISTORY: u16 = 2;

/// The bound of the numbers of commits, groups and segments. No log gets as far, at a thousand
/// million commits a second for a hundred years: sums with numbers below it do not overflow.
pub const NUMBER_BOUND: u64 = 1 << 62;

/// Which log a group belongs to. Drawn at random when a log is made, and when a part of it was
/// lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogId {
    /// Callers see it: a place in the history is this and a sequence.
    pub history: u64,
    /// Nobody sees it, so that nobody can put a group of this log into a value.
    pub secret: u64,
}

/// A place in the log: everything up to this group, which ends with this sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Number of the group; 0: before the first.
    pub group: u64,
    /// The last sequence that it covers.
    pub sequence: u64,
}

/// What stands at the head of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHeader {
    /// Which log it belongs to.
    pub log_id: LogId,
    /// Number of the group, from 1 on, without gaps.
    pub number: u64,
    /// The first sequence that it covers: right after the last one of the group before.
    pub first_sequence: u64,
    /// The last sequence that it covers; one less than the first if it covers none.
    pub last_sequence: u64,
    /// What was known to be durable when it was written.
    pub durable: Position,
    /// The wall clock when it was written, never less than in the group before.
    pub wall_ms: u64,
    /// Bytes of its records.
    pub body_bytes: u64,
    /// Number of its records.
    pub records: u32,
    /// Checksum of the group before; 0 before the first.
    pub previous_checksum: u32,
    /// A clean stop: nothing was done after it, and no sequence beyond it given out.
    pub closing: bool,
    /// What followed the group before was given up, and the log has another id from here on.
    pub new_history: bool,
    /// Bytes of the segment that it was written to: a file that has fewer has been cut. 0: not
    /// known. A copy of the group elsewhere, as in a backup, says it of the original.
    pub segment_bytes: u64,
}

impl GroupHeader {
    /// Bytes of the whole group on the device; `None`: more than there can be.
    pub fn group_bytes(&self) -> Option<u64> {
        self.body_bytes
            .checked_add(HEADER_BYTES as u64)?
            .checked_next_multiple_of(ALIGN_BYTES as u64)
    }

    /// Where the log is behind this group.
    pub fn position(&self) -> Position {
        Position {
            group: self.number,
            sequence: self.last_sequence,
        }
    }

    fn encode(&self, out: &mut [u8]) {
        let flags = [
            (self.closing, FLAG_CLOSING),
            (self.new_history, FLAG_NEW_HISTORY),
        ];
        let flags = flags.iter().filter(|(set, _)| *set);
        let flags = flags.fold(0, |sum, (_, flag)| sum | flag);
        out[..8].copy_from_slice(&MAGIC);
        out[8..10].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[10..12].copy_from_slice(&flags.to_le_bytes());
        let numbers = [
            self.log_id.history,
            self.log_id.secret,
            self.number,
            self.first_sequence,
            self.last_sequence,
            self.durable.sequence,
            self.durable.group,
            self.wall_ms,
            self.body_bytes,
        ];
        for (place, number) in numbers.iter().enumerate() {
            out[16 + 8 * place..][..8].copy_from_slice(&number.to_le_bytes());
        }
        out[88..92].copy_from_slice(&self.records.to_le_bytes());
        out[92..96].copy_from_slice(&self.previous_checksum.to_le_bytes());
        out[96..104].copy_from_slice(&self.segment_bytes.to_le_bytes());
        out[104..HEADER_BYTES].fill(0);
    }

    /// Reads a header, of which only the form is checked. The checksum of the group decides whether
    /// it is one.
    pub(super) fn decode(bytes: &[u8]) -> Result<GroupHeader, NoGroup> {
        if bytes.len() < HEADER_BYTES || bytes[..8] != MAGIC {
            return Err(NoGroup::Other);
        }
        let log_id = LogId {
            history: u64_at(bytes, 16),
            secret: u64_at(bytes, 24),
        };
        let (version, flags) = (u16_at(bytes, 8), u16_at(bytes, 10));
        let known_flags = FLAG_CLOSING | FLAG_NEW_HISTORY;
        if ![FORMAT_VERSION_1, FORMAT_VERSION].contains(&version) {
            return Err(NoGroup::Version(version, log_id));
        }
        let header = GroupHeader {
            log_id,
            number: u64_at(bytes, 32),
            first_sequence: u64_at(bytes, 40),
            last_sequence: u64_at(bytes, 48),
            durable: Position {
                sequence: u64_at(bytes, 56),
                group: u64_at(bytes, 64),
            },
            wall_ms: u64_at(bytes, 72),
            body_bytes: u64_at(bytes, 80),
            records: u32_at(bytes, 88),
            previous_checksum: u32_at(bytes, 92),
            closing: flags & FLAG_CLOSING != 0,
            new_history: flags & FLAG_NEW_HISTORY != 0,
            segment_bytes: match version {
                FORMAT_VERSION_1 => 0,
                _ => u64_at(bytes, 96),
            },
        };
        let plausible = flags & !known_flags == 0
            && header.durable.group < header.number
            && header.durable.sequence < header.first_sequence
            && header.first_sequence - 1 <= header.last_sequence
            && header.last_sequence < NUMBER_BOUND
            && header.number < NUMBER_BOUND;
        if plausible {
            Ok(header)
        } else {
            Err(NoGroup::Other)
        }
    }
}

/// Why some bytes are not the header of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoGroup {
    /// They are something else.
    Other,
    /// They look like one of another version, of this log.
    Version(u16, LogId),
}

/// A group whose checksum is right.
#[derive(Clone, Copy, Debug)]
pub struct LogGroup<'a> {
    /// What stands at its head.
    pub header: GroupHeader,
    /// Its checksum, which the next group repeats.
    pub checksum: u32,
    body: &'a [u8],
}

impl<'a> LogGroup<'a> {
    /// Checks the checksum of the group that `bytes` are.
    pub(super) fn check(header: GroupHeader, bytes: &'a [u8]) -> Option<LogGroup<'a>> {
        let checksum = checksum(bytes);
        let body_end = HEADER_BYTES + usize::try_from(header.body_bytes).ok()?;
        (checksum == u32_at(bytes, CHECKSUM_AT)).then(|| LogGroup {
            header,
            checksum,
            body: &bytes[HEADER_BYTES..body_end],
        })
    }

    /// Its records, each checked as it comes. After an error nothing more comes.
    pub fn records(&self) -> Records<'a> {
        let header = &self.header;
        Records::of(
            self.body,
            header.records,
            (header.first_sequence, header.last_sequence),
        )
    }

    /// Returns its records from a place on to which they were read before; `None`: the place is of
    /// another group.
    pub fn records_from(&self, place: RecordPlace) -> Option<Records<'a>> {
        let passed_bytes = self.body.len().checked_sub(place.rest_bytes)?;
        Some(Records {
            rest: self.body.get(passed_bytes..)?,
            left: place.left,
            least_sequence: place.least_sequence,
            ..self.records()
        })
    }

    /// Returns its records as they are in the log: [`Records::of`] reads them.
    pub fn body(&self) -> &'a [u8] {
        self.body
    }
}

/// The records of a group.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    left: u32,
    least_sequence: u64,
    last_sequence: u64,
}

/// Where among the records of a group a reader of them stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordPlace {
    rest_bytes: usize,
    left: u32,
    least_sequence: u64,
}

impl Records<'_> {
    /// Returns where the next record is: [`LogGroup::records_from`] goes on there.
    pub fn place(&self) -> RecordPlace {
        RecordPlace {
            rest_bytes: self.rest.len(),
            left: self.left,
            least_sequence: self.least_sequence,
        }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<RawRecord<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() && self.left == 0 {
            return None;
        }
        let result = self.decode();
        if result.is_err() {
            (self.rest, self.left) = (&[], 0);
        }
        Some(result)
    }
}

impl<'a> Records<'a> {
    /// Reads so many records of a group that covers the sequences from the first to the last.
    pub fn of(body: &'a [u8], records: u32, (first, last): (u64, u64)) -> Records<'a> {
        Records {
            rest: body,
            left: records,
            least_sequence: first,
            last_sequence: last,
        }
    }

    fn decode(&mut self) -> Result<RawRecord<'a>, RecordError> {
        if self.rest.is_empty() || self.left == 0 {
            return Err(RecordError::Count);
        }
        let record = RawRecord::decode(&mut self.rest)?;
        if !(self.least_sequence..=self.last_sequence).contains(&record.sequence) {
            return Err(RecordError::Sequence);
        }
        self.least_sequence = record.sequence;
        self.left -= 1;
        Ok(record)
    }
}

/// CRC32C over a whole group but the place of the checksum.
fn checksum(bytes: &[u8]) -> u32 {
    let before = crc32c::crc32c(&bytes[..CHECKSUM_AT]);
    crc32c::crc32c_append(before, &bytes[CHECKSUM_AT + 4..])
}

/// A value that is written from where it lies.
#[derive(Debug)]
struct LargeValue {
    /// How many of the buffer's own bytes come before it.
    at: usize,
    bytes: Bytes,
}

/// Records that wait to be written as one group. Kept from group to group, with its memory.
#[derive(Debug)]
pub struct GroupBuffer {
    /// Room for the header, then the records, but for large values.
    bytes: Vec<u8>,
    /// In the order of their records.
    large: Vec<LargeValue>,
    /// Of all large values.
    large_bytes: usize,
    records: u32,
    first_sequence: u64,
    last_sequence: u64,
}

impl Default for GroupBuffer {
    fn default() -> GroupBuffer {
        GroupBuffer::new()
    }
}

impl GroupBuffer {
    /// An empty one.
    pub fn new() -> GroupBuffer {
        GroupBuffer {
            bytes: vec![0; HEADER_BYTES],
            large: Vec::new(),
            large_bytes: 0,
            records: 0,
            first_sequence: 0,
            last_sequence: 0,
        }
    }

    /// Adds a record. All records of a commit go into the same buffer, one after another. Returns
    /// where its key stands in the [bytes](GroupBuffer::bytes); its value stands behind it.
    ///
    /// # Panics
    /// If its sequence is less than the one before.
    pub fn push(&mut self, record: &RawRecord<'_>) -> usize {
        self.count(record);
        record.encode(&mut self.bytes);
        self.bytes.len() - record.value.len() - record.key.len()
    }

    /// Adds a record whose value is `value`. A large one is not copied: it is written from where it
    /// lies. Returns where its key stands in the [bytes](GroupBuffer::bytes).
    ///
    /// # Panics
    /// As [`GroupBuffer::push`].
    pub fn push_shared(&mut self, record: &RawRecord<'_>, value: &Bytes) -> usize {
        let record = RawRecord { value, ..*record };
        if value.len() < limits::LARGE_VALUE_BYTES {
            return self.push(&record);
        }
        self.count(&record);
        record.encode_head(&mut self.bytes);
        self.large.push(LargeValue {
            at: self.bytes.len(),
            bytes: value.clone(),
        });
        self.large_bytes += value.len();
        self.bytes.len() - record.key.len()
    }

    /// The header and the records, but for large values.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn count(&mut self, record: &RawRecord<'_>) {
        assert!(
            record.sequence > 0 && record.sequence >= self.last_sequence,
            "sequences begin at 1 and never go back"
        );
        if self.records == 0 {
            self.first_sequence = record.sequence;
        }
        self.last_sequence = record.sequence;
        self.records = self.records.checked_add(1).expect("memory ends before");
    }

    /// Bytes of the values that are written from where they lie.
    pub(super) fn large_bytes(&self) -> usize {
        self.large_bytes
    }

    /// Bytes of the header and the records.
    fn len(&self) -> usize {
        self.bytes.len() + self.large_bytes
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Whether it should be written before another commit is added.
    pub fn is_full(&self) -> bool {
        self.is_full_beside(0)
    }

    /// The same, but for so many bytes of it that are bounded elsewhere.
    pub fn is_full_beside(&self, bytes: usize) -> bool {
        self.len().saturating_sub(bytes) >= limits::GROUP_BYTES
    }

    /// Number of records.
    pub fn records(&self) -> u32 {
        self.records
    }

    /// The sequence of the last record; 0 if there is none.
    pub fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    /// Bytes that the group will take on the device.
    pub fn group_bytes(&self) -> u64 {
        self.len().next_multiple_of(ALIGN_BYTES) as u64
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.bytes.truncate(HEADER_BYTES);
        self.bytes.shrink_to(limits::KEPT_BYTES);
        self.large = Vec::new();
        self.large_bytes = 0;
        (self.records, self.first_sequence, self.last_sequence) = (0, 0, 0);
    }

    /// The sequence of the first record; 0 if there is none.
    pub(super) fn first_sequence(&self) -> u64 {
        self.first_sequence
    }

    /// Fills in the header and the zeros at the end; `header` says what the buffer does not know.
    pub(super) fn seal(&mut self, header: GroupHeader) -> (GroupHeader, u32) {
        let header = GroupHeader {
            body_bytes: (self.len() - HEADER_BYTES) as u64,
            records: self.records,
            ..header
        };
        let padding = self.len().next_multiple_of(ALIGN_BYTES) - self.len();
        self.bytes.resize(self.bytes.len() + padding, 0);
        header.encode(&mut self.bytes);
        let mut pieces = self.pieces();
        let first = checksum(pieces.next().unwrap_or_default());
        let checksum = pieces.fold(first, crc32c::crc32c_append);
        self.bytes[CHECKSUM_AT..][..4].copy_from_slice(&checksum.to_le_bytes());
        (header, checksum)
    }

    /// All that was [sealed](GroupBuffer::seal), in order. The first piece has the header.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.large.iter().map(|value| value.at));
        let ends = self.large.iter().map(|value| value.at);
        let ends = ends.chain(std::iter::once(self.bytes.len()));
        let own = begins.zip(ends).map(|(begin, end)| &self.bytes[begin..end]);
        let large = self.large.iter().map(|value| &value.bytes[..]);
        let large = large.chain(std::iter::once(&[][..]));
        own.zip(large).flat_map(|(own, large)| [own, large])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> GroupHeader {
        GroupHeader {
            log_id: LogId {
                history: 1,
                secret: 2,
            },
            number: 7,
            first_sequence: 5,
            last_sequence: 5,
            durable: Position::default(),
            wall_ms: 3,
            body_bytes: 0,
            records: 0,
            previous_checksum: 4,
            closing: false,
            new_history: false,
            segment_bytes: 1 << 26,
        }
    }

    /// What is written from where it lies is what would have been copied.
    #[test]
    fn large_values_make_the_same_group_as_copied_ones() {
        let large = limits::LARGE_VALUE_BYTES;
        let sizes: [&[usize]; 6] = [
            &[large],
            &[10, large, 20],
            &[large, large + 1, large - 1, 0],
            &[3 * large, 5],
            &[large + 400, large + 500, large + 511],
            &[1],
        ];
        let (mut copied, mut kept) = (GroupBuffer::new(), GroupBuffer::new());
        for sizes in sizes.iter().chain(&sizes) {
            for (at, &bytes) in sizes.iter().enumerate() {
                let value = Bytes::from(vec![at as u8 + 1; bytes]);
                let record = RawRecord {
                    kind: 1,
                    database: 3,
                    key: &[9; 30],
                    value: &value,
                    ..RawRecord::mark(5)
                };
                copied.push(&record);
                let allocated = allocation_counter::measure(|| {
                    kept.push_shared(&record, &value);
                });
                assert!(bytes < large || allocated.bytes_max < 1_000);
                assert_eq!(kept.group_bytes(), copied.group_bytes());
                assert_eq!(kept.is_full(), copied.is_full());
            }
            let (whole, sum) = copied.seal(header());
            assert_eq!(kept.seal(header()), (whole, sum));
            let copied_bytes: Vec<u8> = copied.pieces().flatten().copied().collect();
            let kept_bytes: Vec<u8> = kept.pieces().flatten().copied().collect();
            assert!(kept_bytes == copied_bytes, "{sizes:?}");
            let decoded = GroupHeader::decode(&kept_bytes).expect("it is one");
            let group = LogGroup::check(decoded, &kept_bytes).expect("its checksum is right");
            assert_eq!(group.records().count(), sizes.len());
            copied.clear();
            kept.clear();
            assert!(kept.is_empty() && kept.group_bytes() == GroupBuffer::new().group_bytes());
        }
    }
}
