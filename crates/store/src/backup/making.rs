//! The making of a backup, a step at a time.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use wal::disk::Disk;
use wal::{GroupReader, LogEnd, segment_name};

use super::blobs::{BackupContents, ContentError, Described, Needed};
use super::copy::{GrowingFile, ReadFile};
use super::error::BackupError;
use super::file_entry::FileEntry;
use super::limits;
use super::manifest::{self, Manifest};
use super::trees::{CopyError, CopyStep, Copying};
use crate::blob::{self, BlobHold, CheckError};
use crate::clock::Clock;
use crate::database::{DatabaseConfig, Durability};
use crate::database_id::DatabaseId;
use crate::durable::LogHold;
use crate::log::{Record, RecordKind, records};
use crate::snapshot;
use crate::store::Store;
use crate::tree::TreeIndex;

/// From what a backup begins: taken between two groups of the log.
#[derive(Debug)]
pub(super) struct BackupBase {
    /// What the snapshot is of.
    pub(super) header: snapshot::SnapshotHeader,
    /// Keeps the log behind it.
    pub(super) hold: LogHold,
    /// The data folder.
    pub(super) source: Arc<dyn Disk>,
    /// The trees of databases on disk.
    pub(super) trees: Vec<TreeIndex>,
}

/// Hidden indexes of which backups have nothing: a server that is made of one has nobody's rights,
/// and a history of its own.
const NOT_IN_BACKUPS: [DatabaseId; 2] = [DatabaseId::IDENTITIES, DatabaseId::REPLICAS];

/// What a copy is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyPurpose {
    /// To be kept: it has nobody's rights.
    Backup,
    /// For a server that follows this one: it has everything.
    Replica,
}

/// A backup in the making: see docs/internals/commit-and-log.md. Each [`step`](BackupMaking::step)
/// does a little and returns.
#[derive(Debug)]
pub(super) struct BackupMaking {
    base: BaseParts,
    target: Arc<dyn Disk>,
    server: String,
    phase: BackupPhase,
    /// Whether each database is volatile, as of what was copied.
    databases: BTreeMap<DatabaseId, bool>,
    /// Files that are complete: the snapshot and the log.
    files: Vec<FileEntry>,
    /// Those of trees.
    tree_files: Vec<FileEntry>,
    /// The names of all files that were begun.
    begun: Vec<String>,
    end: Option<LogEnd>,
    wall_ms: u64,
    log_file_bytes: u64,
    progress: BackupProgress,
    /// Keeps the contents of blobs.
    blobs: Option<BlobHold>,
    /// The blobs that there are at the cut, once the log was copied.
    described: Described,
    needed: Vec<Needed>,
}

#[derive(Debug)]
struct BaseParts {
    source: Arc<dyn Disk>,
    hold: Arc<LogHold>,
    history_id: u64,
    sequence: u64,
    replay_sequence: u64,
}

#[derive(Debug)]
enum BackupPhase {
    /// The files of trees are linked and read. What comes into the trees later stands in the log.
    Trees(Copying, Box<snapshot::SnapshotMaking>),
    /// The snapshot is written.
    Snapshot(Box<snapshot::SnapshotMaking>),
    /// It is read again, for its checksum.
    Reading(ReadFile),
    /// The log is to be opened.
    OpenLog,
    /// Groups are copied into a file.
    Log(Box<GroupReader>, Option<GrowingFile>),
    /// Contents of blobs are copied.
    Blobs(Box<BackupContents>),
    /// All files are on the device but for their names.
    SyncFolder,
    Manifest,
    Done,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupProgress {
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
pub(super) enum MakingStep {
    /// There is more to do.
    More,
    /// Nothing is done before the log is synced, with a sync that begins now or later: then say so
    /// with [`log_synced`](BackupMaking::log_synced).
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
    /// Blobs that are in it.
    pub blobs: u64,
}

impl BackupMaking {
    /// Begins one in an empty folder. `server` is the name and version for the manifest.
    pub fn new(
        store: &Store,
        base: BackupBase,
        target: Arc<dyn Disk>,
        (server, purpose): (&str, CopyPurpose),
    ) -> Result<BackupMaking, BackupError> {
        let BackupBase {
            mut header,
            hold,
            source,
            trees,
        } = base;
        // Whoever has a backup has nobody's rights, and whoever restores an old one gives back none
        // that were taken away since. What the log has of it is removed by the restore.
        if purpose == CopyPurpose::Backup {
            (header.databases).retain(|database| !NOT_IN_BACKUPS.contains(&database.id));
        }
        let is_volatile = |config: &DatabaseConfig| config.durability == Durability::Volatile;
        let databases = header.databases.iter();
        let databases = databases.filter(|database| !database.id.is_hidden());
        let databases = databases.map(|database| (database.id, is_volatile(&database.config)));
        let databases: BTreeMap<_, _> = databases.collect();
        let parts = BaseParts {
            source,
            hold: Arc::new(hold),
            history_id: header.history_id,
            sequence: header.sequence,
            replay_sequence: header.replay_sequence,
        };
        let disk_bytes = trees.iter().map(TreeIndex::disk_bytes).sum::<u64>();
        let progress = BackupProgress {
            total_bytes: content_bytes(store, &databases) + disk_bytes,
            ..BackupProgress::default()
        };
        let blobs = store.blobs().map(|blobs| blobs.hold());
        // Behind the hold. What changes from the base on is in the log that will be copied.
        let described = Described::in_store(store);
        let name = snapshot::file_name(parts.sequence);
        let wall_ms = header.wall_ms;
        let snapshot = snapshot::SnapshotMaking::new(store, header, target.clone());
        Ok(BackupMaking {
            base: parts,
            phase: BackupPhase::Trees(
                Copying::new(trees),
                Box::new(snapshot.map_err(BackupError::Snapshot)?),
            ),
            target,
            server: one_line(server),
            databases,
            files: Vec::new(),
            tree_files: Vec::new(),
            begun: vec![name],
            end: None,
            wall_ms,
            log_file_bytes: limits::LOG_FILE_BYTES,
            progress,
            blobs,
            described,
            needed: Vec::new(),
        })
    }

    /// Puts fewer entries into a page of the snapshot: tests want many pages.
    pub fn set_slice_rows(&mut self, rows: u32) {
        if let BackupPhase::Trees(_, snapshot) | BackupPhase::Snapshot(snapshot) = &mut self.phase {
            snapshot.set_slice_rows(rows);
        }
    }

    /// Begins a new file of log after fewer bytes than [`limits::LOG_FILE_BYTES`]: tests want many
    /// files.
    pub fn set_log_file_bytes(&mut self, bytes: u64) {
        self.log_file_bytes = bytes.min(limits::LOG_FILE_BYTES);
    }

    /// How far it has come.
    pub fn progress(&self) -> BackupProgress {
        self.progress
    }

    /// Does a little. After an error the only thing left to do is to
    /// [`discard`](BackupMaking::discard) it.
    pub fn step(&mut self, clock: &mut dyn Clock) -> Result<MakingStep, BackupError> {
        if self.base.hold.is_broken() {
            return Err(BackupError::LogGone);
        }
        match &mut self.phase {
            BackupPhase::Trees(..) => self.copy_trees()?,
            BackupPhase::Snapshot(_) => return self.write_snapshot(clock),
            BackupPhase::Reading(_) => self.read_snapshot()?,
            BackupPhase::OpenLog => self.open_log()?,
            BackupPhase::Log(..) => self.copy_groups()?,
            BackupPhase::Blobs(_) => self.copy_blobs()?,
            BackupPhase::SyncFolder => {
                self.sync_folder()?;
                self.phase = BackupPhase::Manifest;
            }
            BackupPhase::Manifest => return self.complete().map(MakingStep::Complete),
            BackupPhase::Done => unreachable!("a complete backup takes no more steps"),
        }
        Ok(MakingStep::More)
    }

    /// The log is durable up to its end, by a sync that began after [`MakingStep::SyncLog`] was
    /// returned. There it is cut.
    pub fn log_synced(&mut self, end: LogEnd) {
        let BackupPhase::Snapshot(snapshot) = &mut self.phase else {
            unreachable!("it was asked for");
        };
        snapshot.log_synced(end.position.sequence);
        self.end = Some(end);
        self.progress.sequence = end.position.sequence;
    }

    /// Returns what keeps the log behind it.
    pub fn hold(&self) -> Arc<LogHold> {
        Arc::clone(&self.base.hold)
    }

    /// Removes all that it made. What cannot be removed is no backup: it has no manifest.
    pub fn discard(mut self) {
        let phase = std::mem::replace(&mut self.phase, BackupPhase::Done);
        match phase {
            BackupPhase::Trees(_, snapshot) | BackupPhase::Snapshot(snapshot) => snapshot.discard(),
            BackupPhase::Blobs(contents) => contents.discard(),
            _ if !self.needed.is_empty() => self.discard_blobs(),
            _ => {}
        }
        let _ = self.target.remove_subfolder(blob::FOLDER);
        // First of all: without it, what is left is none.
        for name in [manifest::MANIFEST_NAME, manifest::MANIFEST_NEW_NAME] {
            let _ = self.target.remove(name);
        }
        for name in self.begun.iter().rev() {
            let _ = self.target.remove(name);
        }
        let _ = self.target.sync_folder();
    }

    /// Removes contents that were all copied.
    fn discard_blobs(&self) {
        if let Ok(folder) = self.target.subfolder(blob::FOLDER) {
            for needed in &self.needed {
                let _ = folder.remove(&blob::file_name(needed.number));
            }
        }
    }

    /// Links the files of a tree, or reads a piece of one for its checksum.
    fn copy_trees(&mut self) -> Result<(), BackupError> {
        let BackupPhase::Trees(mut copying, snapshot) =
            std::mem::replace(&mut self.phase, BackupPhase::Done)
        else {
            unreachable!("the phase was looked at");
        };
        let stepped = copying.step(&*self.target);
        self.progress.written_bytes = copying.bytes;
        // It is put back before anything else, so that it can be discarded.
        self.phase = match &stepped {
            Ok(CopyStep::Done) => BackupPhase::Snapshot(snapshot),
            _ => BackupPhase::Trees(copying, snapshot),
        };
        match stepped {
            Ok(CopyStep::More | CopyStep::Done) => {}
            Ok(CopyStep::Begun(names)) => self.begun.extend(names),
            Ok(CopyStep::File(entry)) => self.tree_files.push(entry),
            Err(CopyError::Tree(error)) => return Err(BackupError::Tree(error)),
            Err(CopyError::Device { name, source }) => {
                let error = self.device(&name, source);
                // It may be there in part.
                self.begun.push(name);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Bytes of the files of trees.
    fn tree_bytes(&self) -> u64 {
        self.tree_files.iter().map(|file| file.bytes).sum()
    }

    fn write_snapshot(&mut self, clock: &mut dyn Clock) -> Result<MakingStep, BackupError> {
        let BackupPhase::Snapshot(snapshot) = &mut self.phase else {
            unreachable!("the phase was looked at");
        };
        let step = snapshot.step(clock).map_err(BackupError::Snapshot)?;
        let tree_bytes = self.tree_files.iter().map(|file| file.bytes).sum::<u64>();
        self.progress.written_bytes = tree_bytes + snapshot.file_bytes();
        self.progress.total_bytes = self.progress.total_bytes.max(self.progress.written_bytes);
        match step {
            snapshot::SnapshotMakingStep::More => Ok(MakingStep::More),
            snapshot::SnapshotMakingStep::SyncLog => Ok(MakingStep::SyncLog),
            snapshot::SnapshotMakingStep::Installed(report) => {
                let name = snapshot::file_name(report.sequence);
                let file = ReadFile::open(&*self.target, &name);
                self.phase = BackupPhase::Reading(file.map_err(|error| self.device(&name, error))?);
                self.progress.written_bytes = self.tree_bytes() + report.file_bytes;
                self.progress.total_bytes = self.progress.written_bytes;
                Ok(MakingStep::More)
            }
        }
    }

    fn read_snapshot(&mut self) -> Result<(), BackupError> {
        let BackupPhase::Reading(file) = &mut self.phase else {
            unreachable!("the phase was looked at");
        };
        match file.next().map(<[u8]>::is_empty) {
            Ok(false) => {}
            Ok(true) => {
                let entry = file.entry().clone();
                self.files.push(entry);
                self.phase = BackupPhase::OpenLog;
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
        let groups = GroupReader::open(source, self.base.replay_sequence, end);
        let groups = groups.map_err(|error| self.log_error(error))?;
        self.progress.total_bytes = self.progress.written_bytes + groups.rest_bytes();
        self.phase = BackupPhase::Log(Box::new(groups), None);
        Ok(())
    }

    /// Copies some groups.
    fn copy_groups(&mut self) -> Result<(), BackupError> {
        let BackupPhase::Log(mut groups, mut file) =
            std::mem::replace(&mut self.phase, BackupPhase::Done)
        else {
            unreachable!("the phase was looked at");
        };
        let until_bytes = self.progress.written_bytes + limits::COPY_BYTES as u64;
        while self.progress.written_bytes < until_bytes {
            let group = groups.next().map_err(|error| self.log_error(error))?;
            let Some(group) = group else {
                self.finish_log_file(file)?;
                self.progress.total_bytes = self.progress.written_bytes;
                return self.begin_blobs();
            };
            for record in records(&group.group) {
                let record = record.map_err(|_| BackupError::LogFailed)?;
                self.note(&record);
            }
            self.wall_ms = group.group.header.wall_ms;
            file = Some(self.add_group(file, group.bytes)?);
            self.progress.written_bytes += group.bytes.len() as u64;
        }
        self.phase = BackupPhase::Log(groups, file);
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

    /// Now it is known which there are at the cut.
    fn begin_blobs(&mut self) -> Result<(), BackupError> {
        self.needed = self.described.needed().ok_or(BackupError::LogFailed)?;
        self.phase = match &self.blobs {
            Some(blobs) if !self.needed.is_empty() => {
                let target = self.target.subfolder(blob::FOLDER);
                let target = target.map_err(|error| self.device(blob::FOLDER, error))?;
                let source = Arc::clone(blobs.disk());
                let contents = BackupContents::new(source, Some(target), self.needed.clone());
                BackupPhase::Blobs(Box::new(contents))
            }
            _ => BackupPhase::SyncFolder,
        };
        self.progress.total_bytes += self.blob_bytes();
        Ok(())
    }

    fn blob_bytes(&self) -> u64 {
        self.needed.iter().map(|needed| needed.size_bytes).sum()
    }

    fn copy_blobs(&mut self) -> Result<(), BackupError> {
        let BackupPhase::Blobs(contents) = &mut self.phase else {
            unreachable!("the phase was looked at");
        };
        let before_bytes = contents.done_bytes();
        let is_done = (contents.step()).map_err(|error| blob_error(error, &self.described))?;
        self.progress.written_bytes += contents.done_bytes() - before_bytes;
        if is_done {
            self.phase = BackupPhase::SyncFolder;
        }
        Ok(())
    }

    /// Notes what a record says of the catalogue and of blobs.
    fn note(&mut self, record: &Record<'_>) {
        if record.sequence > self.base.sequence {
            self.described.note_record(record);
        }
        match record.kind {
            _ if record.sequence <= self.base.sequence => {}
            RecordKind::DatabaseCreated => {
                let config = DatabaseConfig::decode_logged(record.value);
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
        self.tree_files
            .sort_by(|one, next| one.name.cmp(&next.name));
        self.files.append(&mut self.tree_files);
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
        self.check_files(&manifest)?;
        let written = manifest::write(&*self.target, &manifest);
        // Who looks for it must find it: somebody may have renamed it meanwhile.
        let written = written.and_then(|()| self.target.check_place());
        written.map_err(|error| self.device(manifest::MANIFEST_NAME, error))?;
        self.phase = BackupPhase::Done;
        Ok(BackupReport {
            sequence: manifest.cut.sequence,
            bytes: manifest.bytes() + self.blob_bytes(),
            databases: manifest.databases,
            volatile_databases,
            blobs: self.needed.len() as u64,
        })
    }

    /// Whether all that was written is where it was written: others may use the folder's files.
    fn check_files(&self, manifest: &Manifest) -> Result<(), BackupError> {
        let place = self.target.check_place();
        place.map_err(|error| self.device("", error))?;
        let names = self.target.list();
        let names = names.map_err(|error| self.device("", error))?;
        let is_gone = |name: &String| names.binary_search(name).is_err();
        let mut written = manifest.files.iter().map(|file| &file.name);
        match written.find(|name| is_gone(name)) {
            Some(name) => Err(self.device(name, io::ErrorKind::NotFound.into())),
            None => Ok(()),
        }
    }

    /// A hold that was broken is the better message.
    fn log_error(&self, error: wal::GroupError) -> BackupError {
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

/// A blob without its content fails the backup: a restore would not show that it was ever there.
fn blob_error(error: ContentError, described: &Described) -> BackupError {
    let name = error.number.and_then(|number| described.name_of(number));
    match error.what {
        CheckError::Damaged => BackupError::BlobDamaged {
            file: error.file,
            name: name.unwrap_or_default(),
        },
        CheckError::Device(source)
            if source.kind() == io::ErrorKind::NotFound && error.number.is_some() =>
        {
            BackupError::BlobMissing {
                file: error.file,
                name: name.unwrap_or_default(),
            }
        }
        CheckError::Device(source) => BackupError::Device {
            file: error.file,
            source,
        },
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
