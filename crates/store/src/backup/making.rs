//! The making of a backup, a step at a time.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::copy::{GrowingFile, ReadFile};
use super::error::BackupError;
use super::limits;
use super::manifest::{self, FileEntry, Manifest};
use crate::catalogue::{DatabaseConfig, DatabaseId, Durability};
use crate::committer::Clock;
use crate::disk::Disk;
use crate::durable::LogHold;
use crate::log::{GroupReader, LogEnd, Record, RecordKind, segment_name};
use crate::snapshot;
use crate::store::Store;

/// From what a backup begins: taken between two groups of the log.
#[derive(Debug)]
pub struct Base {
    /// What the snapshot is of.
    pub(crate) header: snapshot::Header,
    /// Keeps the log behind it.
    pub(crate) hold: LogHold,
    /// The data folder.
    pub(crate) source: Arc<dyn Disk>,
}

/// A backup in the making: see ARCHITECTURE.md, section 8. Each [`step`](Making::step) does a little and returns.
#[derive(Debug)]
pub struct Making {
    base: BaseParts,
    target: Arc<dyn Disk>,
    server: String,
    phase: Phase,
    /// Whether each database is volatile, as of what was copied.
    databases: BTreeMap<DatabaseId, bool>,
    /// Files that are complete.
    files: Vec<FileEntry>,
    /// The names of all files that were begun.
    begun: Vec<String>,
    end: Option<LogEnd>,
    wall_ms: u64,
    log_file_bytes: u64,
    progress: Progress,
}

#[derive(Debug)]
struct BaseParts {
    source: Arc<dyn Disk>,
    hold: LogHold,
    history_id: u64,
    sequence: u64,
}

#[derive(Debug)]
enum Phase {
    /// The snapshot is written.
    Snapshot(Box<snapshot::Making>),
    /// It is read again, for its checksum.
    Reading(ReadFile),
    /// The log is to be opened.
    OpenLog,
    /// Groups are copied into a file.
    Log(Box<GroupReader>, Option<GrowingFile>),
    /// All files are on the device but for their names.
    SyncFolder,
    Manifest,
    Done,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes that there will be, as far as it can be told.
    pub total_bytes: u64,
    /// The commit that the backup shows; 0 until it is known.
    pub sequence: u64,
}

/// What a step has come to.
#[derive(Debug)]
#[must_use]
pub enum Step {
    /// There is more to do.
    More,
    /// Nothing is done before the log is synced, with a sync that begins now or later: then say so with
    /// [`log_synced`](Making::log_synced).
    SyncLog,
    /// It is complete and on the device.
    Complete(BackupReport),
}

/// What a backup came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupReport {
    /// It has every commit up to this one, and none behind it.
    pub sequence: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Databases that are in it with their content.
    pub databases: u64,
    /// Databases of which only the description is in it.
    pub volatile_databases: u64,
}

impl Making {
    /// Begins one in an empty folder. `server` is the name and version for the manifest.
    pub fn new(
        store: &Store,
        base: Base,
        target: Arc<dyn Disk>,
        server: &str,
    ) -> Result<Making, BackupError> {
        let Base {
            header,
            hold,
            source,
        } = base;
        let is_volatile = |config: &DatabaseConfig| config.durability == Durability::Volatile;
        let databases = header.databases.iter();
        let databases = databases.map(|database| (database.id, is_volatile(&database.config)));
        let databases: BTreeMap<_, _> = databases.collect();
        let parts = BaseParts {
            source,
            hold,
            history_id: header.history_id,
            sequence: header.sequence,
        };
        let progress = Progress {
            total_bytes: content_bytes(store, &databases),
            ..Progress::default()
        };
        let name = snapshot::file_name(parts.sequence);
        let wall_ms = header.wall_ms;
        let snapshot = snapshot::Making::new(store, header, target.clone());
        Ok(Making {
            base: parts,
            phase: Phase::Snapshot(Box::new(snapshot.map_err(BackupError::Snapshot)?)),
            target,
            server: one_line(server),
            databases,
            files: Vec::new(),
            begun: vec![name],
            end: None,
            wall_ms,
            log_file_bytes: limits::LOG_FILE_BYTES,
            progress,
        })
    }

    /// Puts fewer entries into a page of the snapshot: tests want many pages.
    pub fn set_slice_rows(&mut self, rows: u32) {
        if let Phase::Snapshot(snapshot) = &mut self.phase {
            snapshot.set_slice_rows(rows);
        }
    }

    /// Begins a new file of log after fewer bytes than [`limits::LOG_FILE_BYTES`]: tests want many files.
    pub fn set_log_file_bytes(&mut self, bytes: u64) {
        self.log_file_bytes = bytes.min(limits::LOG_FILE_BYTES);
    }

    /// How far it has come.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Does a little. After an error the only thing left to do is to [`discard`](Making::discard) it.
    pub fn step(&mut self, clock: &mut dyn Clock) -> Result<Step, BackupError> {
        if self.base.hold.is_broken() {
            return Err(BackupError::LogGone);
        }
        match &mut self.phase {
            Phase::Snapshot(_) => return self.write_snapshot(clock),
            Phase::Reading(_) => self.read_snapshot()?,
            Phase::OpenLog => self.open_log()?,
            Phase::Log(..) => self.copy_groups()?,
            Phase::SyncFolder => {
                self.sync_folder()?;
                self.phase = Phase::Manifest;
            }
            Phase::Manifest => return self.complete().map(Step::Complete),
            Phase::Done => unreachable!("a complete backup takes no more steps"),
        }
        Ok(Step::More)
    }

    /// The log is durable up to its end, by a sync that began after [`Step::SyncLog`] was returned. There it is cut.
    pub fn log_synced(&mut self, end: LogEnd) {
        let Phase::Snapshot(snapshot) = &mut self.phase else {
            unreachable!("it was asked for");
        };
        snapshot.log_synced(end.position.sequence);
        self.end = Some(end);
        self.progress.sequence = end.position.sequence;
    }

    /// Removes all that it made. What cannot be removed is no backup: it has no manifest.
    pub fn discard(self) {
        if let Phase::Snapshot(snapshot) = self.phase {
            snapshot.discard();
        }
        // First of all: without it, what is left is none.
        for name in [manifest::MANIFEST_NAME, manifest::MANIFEST_NEW_NAME] {
            let _ = self.target.remove(name);
        }
        for name in self.begun.iter().rev() {
            let _ = self.target.remove(name);
        }
        let _ = self.target.sync_folder();
    }

    fn write_snapshot(&mut self, clock: &mut dyn Clock) -> Result<Step, BackupError> {
        let Phase::Snapshot(snapshot) = &mut self.phase else {
            unreachable!("the phase was looked at");
        };
        let step = snapshot.step(clock).map_err(BackupError::Snapshot)?;
        self.progress.written_bytes = snapshot.file_bytes();
        self.progress.total_bytes = self.progress.total_bytes.max(self.progress.written_bytes);
        match step {
            snapshot::Step::More => Ok(Step::More),
            snapshot::Step::SyncLog => Ok(Step::SyncLog),
            snapshot::Step::Installed(report) => {
                let name = snapshot::file_name(report.sequence);
                let file = ReadFile::open(&*self.target, &name);
                self.phase = Phase::Reading(file.map_err(|error| self.device(&name, error))?);
                self.progress.written_bytes = report.file_bytes;
                self.progress.total_bytes = report.file_bytes;
                Ok(Step::More)
            }
        }
    }

    fn read_snapshot(&mut self) -> Result<(), BackupError> {
        let Phase::Reading(file) = &mut self.phase else {
            unreachable!("the phase was looked at");
        };
        match file.next().map(<[u8]>::is_empty) {
            Ok(false) => {}
            Ok(true) => {
                let entry = file.entry().clone();
                self.files.push(entry);
                self.phase = Phase::OpenLog;
            }
            Err(error) => {
                let name = file.entry().name.clone();
                return Err(self.device(&name, error));
            }
        }
        Ok(())
    }

    fn open_log(&mut self) -> Result<(), BackupError> {
        let end = self.end.expect("the snapshot was not installed before");
        let source = self.base.source.clone();
        let groups = GroupReader::open(source, self.base.sequence, end);
        let groups = groups.map_err(|error| self.log_error(error))?;
        self.progress.total_bytes = self.progress.written_bytes + groups.rest_bytes();
        self.phase = Phase::Log(Box::new(groups), None);
        Ok(())
    }

    /// Copies some groups.
    fn copy_groups(&mut self) -> Result<(), BackupError> {
        let Phase::Log(mut groups, mut file) = std::mem::replace(&mut self.phase, Phase::Done)
        else {
            unreachable!("the phase was looked at");
        };
        let until_bytes = self.progress.written_bytes + limits::COPY_BYTES as u64;
        while self.progress.written_bytes < until_bytes {
            let group = groups.next().map_err(|error| self.log_error(error))?;
            let Some(group) = group else {
                self.finish_log_file(file)?;
                self.progress.total_bytes = self.progress.written_bytes;
                self.phase = Phase::SyncFolder;
                return Ok(());
            };
            for record in group.group.records() {
                let record = record.map_err(|_| BackupError::LogFailed)?;
                self.note(&record);
            }
            self.wall_ms = group.group.header.wall_ms;
            file = Some(self.add_group(file, group.bytes)?);
            self.progress.written_bytes += group.bytes.len() as u64;
        }
        self.phase = Phase::Log(groups, file);
        Ok(())
    }

    fn add_group(
        &mut self,
        file: Option<GrowingFile>,
        bytes: &[u8],
    ) -> Result<GrowingFile, BackupError> {
        let most_bytes = self.log_file_bytes;
        let has_room = |file: &GrowingFile| file.bytes() + bytes.len() as u64 <= most_bytes;
        let mut file = match file {
            Some(file) if has_room(&file) => file,
            other => {
                self.finish_log_file(other)?;
                let name = segment_name(self.files.len() as u64);
                self.begun.push(name.clone());
                let made = GrowingFile::create(&*self.target, &name);
                made.map_err(|error| self.device(&name, error))?
            }
        };
        let added = file.add(bytes);
        added.map_err(|error| self.device(self.begun.last().expect("it was begun"), error))?;
        Ok(file)
    }

    fn finish_log_file(&mut self, file: Option<GrowingFile>) -> Result<(), BackupError> {
        if let Some(file) = file {
            let entry = file.finish();
            let name = self.begun.last().expect("it was begun");
            let entry = entry.map_err(|error| self.device(name, error))?;
            self.files.push(entry);
        }
        Ok(())
    }

    /// Notes what a record says of the catalogue.
    fn note(&mut self, record: &Record<'_>) {
        match record.kind {
            _ if record.sequence <= self.base.sequence => {}
            RecordKind::DatabaseCreated => {
                let config = DatabaseConfig::decode(record.value);
                let durability = config.map(|config| config.durability);
                let is_volatile = durability == Some(Durability::Volatile);
                self.databases.insert(record.database, is_volatile);
            }
            RecordKind::DatabaseDropped => {
                self.databases.remove(&record.database);
            }
            _ => {}
        }
    }

    fn sync_folder(&self) -> Result<(), BackupError> {
        let synced = self.target.sync_folder();
        synced.map_err(|error| self.device("", error))
    }

    fn complete(&mut self) -> Result<BackupReport, BackupError> {
        let volatile = self.databases.values().filter(|&&volatile| volatile);
        let volatile_databases = volatile.count() as u64;
        let manifest = Manifest {
            server: self.server.clone(),
            history_id: self.base.history_id,
            cut: self.end.expect("it was cut").position,
            wall_ms: self.wall_ms,
            databases: self.databases.len() as u64 - volatile_databases,
            volatile_databases,
            files: std::mem::take(&mut self.files),
        };
        let written = manifest::write(&*self.target, &manifest);
        written.map_err(|error| self.device(manifest::MANIFEST_NAME, error))?;
        self.phase = Phase::Done;
        Ok(BackupReport {
            sequence: manifest.cut.sequence,
            bytes: manifest.bytes(),
            databases: manifest.databases,
            volatile_databases,
        })
    }

    /// A hold that was broken is the better message.
    fn log_error(&self, error: crate::log::GroupError) -> BackupError {
        match self.base.hold.is_broken() {
            true => BackupError::LogGone,
            false => BackupError::Log(error),
        }
    }

    fn device(&self, name: &str, source: io::Error) -> BackupError {
        BackupError::Device {
            file: self.target.describe(name),
            source,
        }
    }
}

/// What is in the databases that are copied.
fn content_bytes(store: &Store, databases: &BTreeMap<DatabaseId, bool>) -> u64 {
    let copied = databases.iter().filter(|&(_, &is_volatile)| !is_volatile);
    let views = copied.filter_map(|(&id, _)| store.view(id));
    views
        .map(|view| {
            let statistics = view.statistics();
            statistics.content_bytes + statistics.entries * snapshot::ENTRY_BYTES as u64
        })
        .sum()
}

/// The manifest is made of lines.
fn one_line(text: &str) -> String {
    let mut line: String = text.chars().filter(|one| !one.is_control()).collect();
    while line.len() > limits::SERVER_BYTES {
        line.pop();
    }
    line
}
