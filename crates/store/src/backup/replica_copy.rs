//! Copies for servers that follow this one: backups with identities, that go when they were read.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use wal::disk::{Disk, RealDisk};

use super::error::BackupError;
use super::manifest::MANIFEST_NAME;
use super::root::BackupRoot;
use super::run::BackupWatch;
use crate::blob;
use crate::clock::Clock;
use crate::durable::{Durable, LogHold};
use crate::replica_reading::{FileReading, ReplicaReading};

/// The folder of such copies, in the data folder.
pub const COPIES_FOLDER: &str = "replica-copies";

/// Tells the copies of a run apart.
static NEXT_COPY: AtomicU64 = AtomicU64::new(1);

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaCopyError {
    /// It could not be written.
    #[error("{0}")]
    Backup(BackupError),
    /// Its folder cannot be made or read.
    #[error("the folder {folder} cannot be used: {source}")]
    Folder {
        /// The folder.
        folder: String,
        /// What the operating system said.
        source: io::Error,
    },
}

/// A file of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedFile {
    /// Its name in the copy, with `blobs/` before it for the content of a blob.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

/// A copy of everything in a folder of its own, which is removed with this.
#[derive(Debug)]
pub struct ReplicaCopy {
    _folder: CopyFolder,
    disk: Arc<dyn Disk>,
    files: Vec<CopiedFile>,
    sequence: u64,
    /// Keeps the log behind it, for the one who will follow.
    hold: Arc<LogHold>,
}

/// A folder that is removed when this is dropped.
#[derive(Debug)]
struct CopyFolder(PathBuf);

impl Drop for CopyFolder {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.0);
        let remove = move || {
            // What is left is removed at the next start.
            let _ = std::fs::remove_dir_all(path);
        };
        // It may be large, and whoever drops this may have others to serve.
        let thread = thread::Builder::new().name("pelton-uncopy".into());
        let _ = thread.spawn(remove);
    }
}

/// Each copy is one of its own.
impl PartialEq for ReplicaCopy {
    fn eq(&self, other: &ReplicaCopy) -> bool {
        std::ptr::eq(self, other)
    }
}

impl ReplicaCopy {
    /// Its files, in the order in which they are to be read.
    pub fn files(&self) -> &[CopiedFile] {
        &self.files
    }

    /// It has every commit up to this one, and none behind it.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Begins to read a file.
    pub fn read(&self, file: &CopiedFile) -> ReplicaReading {
        let name = match file.name.split_once('/') {
            Some((_, name)) => name,
            None => &file.name,
        };
        let disk = match file.name.contains('/') {
            true => self.disk.subfolder(blob::FOLDER),
            false => Ok(Arc::clone(&self.disk)),
        };
        // Without its folder the file is not found either.
        let disk = disk.unwrap_or_else(|_| Arc::clone(&self.disk));
        ReplicaReading::File(FileReading::new(disk, name.to_owned()))
    }
}

impl Drop for ReplicaCopy {
    fn drop(&mut self) {
        LogHold::linger(&self.hold);
    }
}

/// Removes copies that an earlier run has left.
///
/// # Errors
/// If some cannot be removed: they take room, and do no other harm.
pub fn remove_left_copies(data: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(data.join(COPIES_FOLDER)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Durable {
    /// Makes a copy of everything for a server that will follow this one, in a folder in the data
    /// folder `data`. Takes as long as it takes, on the thread that calls; if it fails, what it
    /// made is removed.
    ///
    /// # Errors
    /// Why there is none.
    pub fn copy_for_replica(
        &self,
        data: &Path,
        server: &str,
        clock: &mut dyn Clock,
        watch: BackupWatch<'_>,
    ) -> Result<ReplicaCopy, ReplicaCopyError> {
        let root = data.join(COPIES_FOLDER);
        let failed = |source| ReplicaCopyError::Folder {
            folder: root.display().to_string(),
            source,
        };
        let root = BackupRoot::open(&root).map_err(failed)?;
        let name = NEXT_COPY.fetch_add(1, Ordering::Relaxed).to_string();
        let disk: Arc<RealDisk> = Arc::new(root.create(&name).map_err(failed)?);
        let folder = CopyFolder(root.path_of(&name));
        let made = self.make_copy(Arc::clone(&disk) as _, server, clock, watch);
        let (report, hold) = made.map_err(ReplicaCopyError::Backup)?;
        let disk: Arc<dyn Disk> = disk;
        let files = files(&disk).map_err(failed)?;
        Ok(ReplicaCopy {
            _folder: folder,
            disk,
            files,
            sequence: report.sequence,
            hold,
        })
    }
}

/// The files of a copy: what says that it is complete comes last.
fn files(disk: &Arc<dyn Disk>) -> io::Result<Vec<CopiedFile>> {
    let mut files = Vec::new();
    for name in disk.list()? {
        let bytes = disk.open(&name)?.len()?;
        files.push(CopiedFile { name, bytes });
    }
    if disk.has_subfolder(blob::FOLDER)? {
        let contents = disk.subfolder(blob::FOLDER)?;
        for name in contents.list()? {
            let bytes = contents.open(&name)?.len()?;
            let name = format!("{}/{name}", blob::FOLDER);
            files.push(CopiedFile { name, bytes });
        }
    }
    files.sort_by_key(|file| file.name == MANIFEST_NAME);
    Ok(files)
}
