//! The making of a snapshot, a step at a time.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use wal::disk::Disk;

use super::error::SnapshotError;
use super::file_writer::{FileWriter, PageBody};
use super::files::{file_name, new_name};
use super::header::{SnapshotHeader, SnapshotTotals};
use super::limits;
use super::page::{PageKind, encode_entry_head};
use crate::clock::Clock;
use crate::database::{Durability, Kind};
use crate::database_id::DatabaseId;
use crate::range::{Direction, Range};
use crate::store::Store;
use crate::value::Value;

/// A snapshot in the making: see docs/internals/commit-and-log.md. Each
/// [`step`](SnapshotMaking::step) does a little and returns.
///
/// Dropped before it is installed, it leaves its half file; [`discard`](SnapshotMaking::discard)
/// removes that.
#[derive(Debug)]
pub struct SnapshotMaking {
    store: Store,
    disk: Arc<dyn Disk>,
    header: SnapshotHeader,
    writer: FileWriter,
    phase: Phase,
    body: PageBody,
    totals: SnapshotTotals,
    slice_rows: u32,
    longest_page_ns: u64,
}

/// What is to be done next.
#[derive(Debug)]
enum Phase {
    /// The entries of a database, by its place in the catalogue, behind a key.
    Entries {
        place: usize,
        behind: Option<Box<[u8]>>,
    },
    /// The log is to be synced by whoever calls.
    SyncLog,
    Close,
    Install,
    Done,
}

/// What a step has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum SnapshotMakingStep {
    /// There is more to do.
    More,
    /// Nothing is done before the log is synced, with a sync that begins now or later: then say so
    /// with [`log_synced`](SnapshotMaking::log_synced).
    SyncLog,
    /// It is on the device under its name.
    Installed(SnapshotReport),
}

/// What a snapshot came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotReport {
    /// Its file, as a user would name it.
    pub file: String,
    /// Its base: everything up to this sequence is in it.
    pub sequence: u64,
    /// The log is of no use up to this sequence, at or before the base.
    pub replay_sequence: u64,
    /// The log was durable up to this sequence when it was installed.
    pub last_sequence: u64,
    /// Entries of all databases.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub content_bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// The longest time for which a page has held the read lock of its database, in nanoseconds.
    pub longest_page_ns: u64,
}

impl SnapshotMaking {
    /// Begins one in the folder `disk`, which may be another one than that of the log. `base` says
    /// what it is of.
    pub fn new(
        store: &Store,
        base: SnapshotHeader,
        disk: Arc<dyn Disk>,
    ) -> Result<SnapshotMaking, SnapshotError> {
        let name = new_name(base.sequence);
        let error = |source| SnapshotError::new(disk.describe(&name), source);
        // What an attempt with the same base has left.
        if disk.list().map_err(error)?.contains(&name) {
            disk.remove(&name).map_err(error)?;
        }
        let file = disk.create(&name).map_err(error)?;
        let mut making = SnapshotMaking {
            store: store.clone(),
            disk,
            writer: FileWriter::new(file, base.format_version()),
            header: base,
            phase: Phase::Entries {
                place: 0,
                behind: None,
            },
            body: PageBody::default(),
            totals: SnapshotTotals::default(),
            slice_rows: limits::SLICE_ROWS,
            longest_page_ns: 0,
        };
        match making.write_header() {
            Ok(()) => Ok(making),
            Err(source) => {
                let error = making.error(source);
                making.discard();
                Err(error)
            }
        }
    }

    fn write_header(&mut self) -> io::Result<()> {
        self.header.encode_first(&mut self.body.bytes);
        self.writer.page(PageKind::First, &self.body)?;
        self.body.clear();
        self.header.encode_catalogue(&mut self.body.bytes);
        self.writer.page(PageKind::Catalogue, &self.body)
    }

    /// Puts fewer entries than [`limits::SLICE_ROWS`] into a page, at least one: tests want many
    /// pages.
    pub fn set_slice_rows(&mut self, rows: u32) {
        self.slice_rows = rows.clamp(1, limits::SLICE_ROWS);
    }

    /// Bytes of its file so far.
    pub fn file_bytes(&self) -> u64 {
        self.writer.bytes()
    }

    /// Its base: everything up to this sequence is in it.
    pub fn sequence(&self) -> u64 {
        self.header.sequence
    }

    /// Does a little. After an error the only thing left to do is to
    /// [`discard`](SnapshotMaking::discard) it.
    pub fn step(&mut self, clock: &mut dyn Clock) -> Result<SnapshotMakingStep, SnapshotError> {
        let done = match &mut self.phase {
            Phase::Entries { place, behind } => {
                let (place, behind) = (*place, behind.take());
                self.entries(place, behind, clock)
            }
            Phase::SyncLog => return Ok(SnapshotMakingStep::SyncLog),
            Phase::Close => self.close(),
            Phase::Install => self.install(),
            Phase::Done => unreachable!("an installed snapshot takes no more steps"),
        };
        done.map_err(|source| self.error(source))
    }

    /// The log is durable up to this sequence, by a sync that began after
    /// [`SnapshotMakingStep::SyncLog`] was returned.
    pub fn log_synced(&mut self, durable_sequence: u64) {
        debug_assert!(matches!(self.phase, Phase::SyncLog), "it was asked for");
        debug_assert!(durable_sequence >= self.header.sequence);
        self.totals.last_sequence = durable_sequence;
        self.phase = Phase::Close;
    }

    /// Removes the half file. If that fails, the next start does it.
    pub fn discard(self) {
        if !matches!(self.phase, Phase::Done) {
            let _ = self.disk.remove(&new_name(self.header.sequence));
        }
    }

    /// Writes one page of entries.
    fn entries(
        &mut self,
        place: usize,
        behind: Option<Box<[u8]>>,
        clock: &mut dyn Clock,
    ) -> io::Result<SnapshotMakingStep> {
        let Some(database) = self.header.databases.get(place) else {
            self.phase = Phase::SyncLog;
            return Ok(SnapshotMakingStep::More);
        };
        let (id, config) = (database.id, database.config);
        self.body.clear();
        let last = match (config.kind, config.durability) {
            // Nothing is written for it: not the page before once more either. What is on disk
            // stays there.
            (Kind::Disk, _) | (_, Durability::Volatile) => None,
            _ => self.read_page(id, behind.as_deref(), clock),
        };
        self.phase = match last {
            Some(last) => Phase::Entries {
                place,
                behind: Some(last),
            },
            None => Phase::Entries {
                place: place + 1,
                behind: None,
            },
        };
        if self.body.entries > 0 {
            self.totals.entries += u64::from(self.body.entries);
            self.writer.page(PageKind::Entries, &self.body)?;
        }
        Ok(SnapshotMakingStep::More)
    }

    /// Reads the entries of a page; returns the last key, if there may be more behind it.
    fn read_page(
        &mut self,
        id: DatabaseId,
        behind: Option<&[u8]>,
        clock: &mut dyn Clock,
    ) -> Option<Box<[u8]>> {
        let SnapshotMaking {
            body,
            totals,
            slice_rows,
            ..
        } = self;
        body.database = id.0;
        let range = match behind {
            Some(key) => Range::ALL.beyond(key, Direction::Forward),
            None => Range::ALL,
        };
        let begin_ns;
        let mut last = None;
        {
            // A database that was dropped meanwhile: its record in the log says so.
            let view = self.store.view(id)?;
            begin_ns = clock.now_ns();
            // At time 0 nothing has expired: what waits to be swept goes with the rest, and so does
            // its removal.
            let _ = view.scan(&range, Direction::Forward, 0, u32::MAX, &mut |entry| {
                encode_entry_head(entry, &mut body.bytes);
                body.entries += 1;
                totals.content_bytes += (entry.key.len() + entry.value.len()) as u64;
                match entry.value {
                    Value::Inline(bytes) => body.bytes.extend_from_slice(bytes),
                    Value::Shared(bytes) => body.large = Some(bytes.clone()),
                }
                let is_full = body.large.is_some()
                    || body.entries >= *slice_rows
                    || body.bytes.len() >= limits::SLICE_BYTES;
                if is_full {
                    last = Some(entry.key.into());
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            });
        }
        let took_ns = clock.now_ns().saturating_sub(begin_ns);
        self.longest_page_ns = self.longest_page_ns.max(took_ns);
        last
    }

    fn close(&mut self) -> io::Result<SnapshotMakingStep> {
        self.body.clear();
        self.totals
            .encode(self.header.sequence, &mut self.body.bytes);
        self.writer.page(PageKind::Closing, &self.body)?;
        self.writer.sync()?;
        self.phase = Phase::Install;
        Ok(SnapshotMakingStep::More)
    }

    fn install(&mut self) -> io::Result<SnapshotMakingStep> {
        let sequence = self.header.sequence;
        let name = file_name(sequence);
        self.disk.rename(&new_name(sequence), &name)?;
        self.phase = Phase::Done;
        self.disk.sync_folder()?;
        Ok(SnapshotMakingStep::Installed(SnapshotReport {
            replay_sequence: self.header.replay_sequence,
            file: self.disk.describe(&name),
            sequence,
            last_sequence: self.totals.last_sequence,
            entries: self.totals.entries,
            content_bytes: self.totals.content_bytes,
            file_bytes: self.writer.bytes(),
            longest_page_ns: self.longest_page_ns,
        }))
    }

    fn error(&self, source: io::Error) -> SnapshotError {
        let name = file_name(self.header.sequence);
        SnapshotError::new(self.disk.describe(&name), source)
    }
}
