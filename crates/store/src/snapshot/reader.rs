//! Reads a snapshot, with every check there is.

use std::io;

use wal::KnownLog;
use wal::disk::{Disk, FileWindow};

use super::error::SnapshotReadError;
use super::files::{file_name, list};
use super::header::{SnapshotHeader, SnapshotTotals};
use super::limits;
use super::page::{self, HEAD_BYTES, NoPrelude, PRELUDE_BYTES, PageHead, PageKind, decode_entry};
use crate::database::Durability;
use crate::database_id::DatabaseId;
use crate::value::Entry;

/// Is shown what a snapshot holds. What it makes of it counts only when the whole was read without
/// an error.
pub trait Visitor {
    /// The first call. An error says what makes no sense to the visitor.
    fn header(&mut self, header: &SnapshotHeader) -> Result<(), &'static str>;

    /// One call for each entry, database by database, in the order of keys.
    fn entry(&mut self, database: DatabaseId, entry: &Entry<'_>) -> Result<(), &'static str>;
}

/// What a snapshot holds.
#[derive(Clone, Debug)]
pub struct Summary {
    /// What it is of.
    pub header: SnapshotHeader,
    /// How much it is.
    pub totals: SnapshotTotals,
    /// Bytes of the file.
    pub file_bytes: u64,
}

impl Summary {
    /// What it says of the log that goes with it.
    pub fn known(&self) -> KnownLog {
        KnownLog {
            history_id: Some(self.header.history_id),
            base_sequence: self.header.replay_sequence,
            durable_sequence: self.totals.last_sequence,
            newest_segment: 0,
        }
    }
}

/// Reads all snapshots in a folder wholly, oldest first, and gives what they hold. Changes nothing.
pub fn verify(disk: &dyn Disk) -> Result<Vec<Summary>, SnapshotReadError> {
    let sequences = list(disk).map_err(|source| SnapshotReadError::folder(disk, source))?;
    let check = |sequence| read(disk, sequence, &mut Unseen);
    sequences.into_iter().map(check).collect()
}

/// Looks at nothing.
struct Unseen;

impl Visitor for Unseen {
    fn header(&mut self, _: &SnapshotHeader) -> Result<(), &'static str> {
        Ok(())
    }

    fn entry(&mut self, _: DatabaseId, _: &Entry<'_>) -> Result<(), &'static str> {
        Ok(())
    }
}

/// Reads the snapshot of a base sequence.
pub fn read(
    disk: &dyn Disk,
    sequence: u64,
    visitor: &mut dyn Visitor,
) -> Result<Summary, SnapshotReadError> {
    let name = file_name(sequence);
    let file = || disk.describe(&name);
    let opened = disk
        .open(&name)
        .and_then(|opened| FileWindow::new(opened, limits::READ_BYTES));
    let window = opened.map_err(|source| SnapshotReadError::Device {
        file: file(),
        offset: 0,
        source,
    })?;
    let mut reader = SnapshotReader {
        window,
        offset: 0,
        previous_checksum: 0,
        next_number: 0,
    };
    match reader.read(sequence, visitor) {
        Ok(summary) => Ok(summary),
        Err(Problem::Damaged(what)) => Err(SnapshotReadError::Damaged {
            file: file(),
            offset: reader.offset,
            what,
        }),
        Err(Problem::Device(source)) => Err(SnapshotReadError::Device {
            file: file(),
            offset: reader.offset,
            source,
        }),
        Err(Problem::TooNew(version)) => Err(SnapshotReadError::TooNew {
            file: file(),
            version,
        }),
    }
}

enum Problem {
    Damaged(&'static str),
    Device(io::Error),
    TooNew(u16),
}

impl From<io::Error> for Problem {
    fn from(source: io::Error) -> Problem {
        Problem::Device(source)
    }
}

impl From<&'static str> for Problem {
    fn from(what: &'static str) -> Problem {
        Problem::Damaged(what)
    }
}

struct SnapshotReader {
    window: FileWindow,
    /// The beginning of the page that is read.
    offset: u64,
    previous_checksum: u32,
    next_number: u64,
}

/// What the entries have come to so far.
#[derive(Default)]
struct EntryWalk {
    entries: u64,
    content_bytes: u64,
    highest_version: u64,
    /// The database and key of the last entry.
    last: Option<(DatabaseId, Vec<u8>)>,
}

const CUT: &str = "the file ends before its closing page";

impl SnapshotReader {
    fn read(&mut self, sequence: u64, visitor: &mut dyn Visitor) -> Result<Summary, Problem> {
        let version = self.prelude()?;
        let header = self.header(version, sequence)?;
        visitor.header(&header)?;
        let mut walk = EntryWalk::default();
        loop {
            let head = self.head()?;
            match head.kind {
                PageKind::Entries => {
                    let body = self.body(&head)?;
                    walk.page(&header, &head, body, visitor)?;
                    self.pass(&head);
                }
                PageKind::Closing => {
                    let totals = self.closing(&head, &header, &walk)?;
                    return Ok(Summary {
                        header,
                        totals,
                        file_bytes: self.window.file_bytes(),
                    });
                }
                PageKind::First | PageKind::Catalogue => {
                    return Err("a page stands in the wrong place".into());
                }
            }
        }
    }

    /// Returns the version of the format.
    fn prelude(&mut self) -> Result<u16, Problem> {
        let bytes = self.window.bytes(0, PRELUDE_BYTES)?;
        let version = match page::check_prelude(bytes) {
            Ok(version) => version,
            Err(NoPrelude::Version(version)) => return Err(Problem::TooNew(version)),
            Err(NoPrelude::Other) => return Err("it does not begin like a snapshot".into()),
        };
        self.previous_checksum = crc32c::crc32c(bytes);
        self.offset = PRELUDE_BYTES as u64;
        Ok(version)
    }

    fn header(&mut self, version: u16, sequence: u64) -> Result<SnapshotHeader, Problem> {
        let head = self.head()?;
        if head.kind != PageKind::First {
            return Err("the first page is missing".into());
        }
        let (mut header, databases) = SnapshotHeader::decode_first(self.body(&head)?)
            .ok_or("the first page makes no sense")?;
        if header.sequence != sequence {
            return Err("it is the snapshot of another sequence than its name says".into());
        }
        self.pass(&head);
        let head = self.head()?;
        if head.kind != PageKind::Catalogue {
            return Err("the catalogue is missing".into());
        }
        header
            .decode_catalogue(version, self.body(&head)?, databases)
            .ok_or("the catalogue makes no sense")?;
        self.pass(&head);
        Ok(header)
    }

    fn closing(
        &mut self,
        head: &PageHead,
        header: &SnapshotHeader,
        walk: &EntryWalk,
    ) -> Result<SnapshotTotals, Problem> {
        let (sequence, totals) =
            SnapshotTotals::decode(self.body(head)?).ok_or("the closing page makes no sense")?;
        let is_right = sequence == header.sequence
            && totals.entries == walk.entries
            && totals.content_bytes == walk.content_bytes
            && totals.last_sequence >= walk.highest_version.max(sequence);
        if !is_right {
            return Err("the closing page does not fit the others".into());
        }
        self.pass(head);
        if self.offset != self.window.file_bytes() {
            return Err("there is something behind the closing page".into());
        }
        Ok(totals)
    }

    /// The head of the next page. Its place and chain are right.
    fn head(&mut self) -> Result<PageHead, Problem> {
        let (offset, previous_checksum) = (self.offset, self.previous_checksum);
        let bytes = self.window.bytes(offset, HEAD_BYTES)?;
        let bytes = bytes.try_into().map_err(|_| CUT)?;
        let (head, checksum) = PageHead::decode(bytes)?;
        if head.number != self.next_number || head.previous_checksum != previous_checksum {
            return Err("a page is missing, or stands in the wrong place".into());
        }
        let rest = (self.window.file_bytes() - offset).saturating_sub(HEAD_BYTES as u64);
        if u64::from(head.body_bytes) > rest {
            return Err(CUT.into());
        }
        if head.body_bytes as usize > limits::BODY_BYTES_MAX {
            return Err("a page is too large".into());
        }
        self.previous_checksum = checksum;
        self.next_number += 1;
        Ok(head)
    }

    /// The body of the page whose head was read.
    fn body(&mut self, head: &PageHead) -> Result<&[u8], Problem> {
        let start = self.offset + HEAD_BYTES as u64;
        let count = head.body_bytes as usize;
        let bytes = self.window.bytes(start, count)?;
        if bytes.len() < count {
            return Err(CUT.into());
        }
        if crc32c::crc32c(bytes) != head.body_checksum {
            return Err("the checksum of a page is wrong".into());
        }
        Ok(bytes)
    }

    /// Goes on behind a page.
    fn pass(&mut self, head: &PageHead) {
        self.offset += HEAD_BYTES as u64 + u64::from(head.body_bytes);
        self.window.shrink(4);
    }
}

impl EntryWalk {
    fn page(
        &mut self,
        header: &SnapshotHeader,
        head: &PageHead,
        mut body: &[u8],
        visitor: &mut dyn Visitor,
    ) -> Result<(), Problem> {
        let id = DatabaseId(head.database);
        let place = header.databases.binary_search_by_key(&id, |one| one.id);
        let database = place.map_err(|_| "entries of a database that is not in the catalogue")?;
        if header.databases[database].config.durability == Durability::Volatile {
            return Err("entries of a volatile database".into());
        }
        let mut last_key: Option<&[u8]> = None;
        for _ in 0..head.entries {
            let entry = decode_entry(&mut body).ok_or("an entry is cut short")?;
            let follows = match (last_key, &self.last) {
                (Some(last), _) => last < entry.key,
                (None, Some((last_id, last))) => (*last_id, &last[..]) < (id, entry.key),
                (None, None) => true,
            };
            if !follows {
                return Err("entries stand in the wrong order".into());
            }
            if entry.version == 0 {
                return Err("an entry has no version".into());
            }
            visitor.entry(id, &entry)?;
            self.entries += 1;
            self.content_bytes += (entry.key.len() + entry.value.len()) as u64;
            self.highest_version = self.highest_version.max(entry.version);
            last_key = Some(entry.key);
        }
        if !body.is_empty() {
            return Err("a page has more in it than entries".into());
        }
        if let Some(key) = last_key {
            let last = self.last.get_or_insert((id, Vec::new()));
            last.0 = id;
            last.1.clear();
            last.1.extend_from_slice(key);
        }
        Ok(())
    }
}
