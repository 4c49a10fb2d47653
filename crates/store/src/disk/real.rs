//! The file layer on the file system.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock, fstatvfs};

use super::{Disk, DiskFile, FolderLock};

/// The file whose lock says that a server uses the folder.
const LOCK_NAME: &str = "lock";

/// A folder of the file system.
#[derive(Debug)]
pub struct RealDisk {
    path: PathBuf,
    /// Open for as long as this lives, to sync it and to ask for free space.
    folder: File,
}

impl RealDisk {
    /// Opens a folder that exists.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<RealDisk> {
        let path = path.into();
        let folder = File::open(&path)?;
        if !folder.metadata()?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(RealDisk { path, folder })
    }

    /// Opens a folder, and makes it first where there is none; its parent must exist.
    pub fn open_or_create(path: impl Into<PathBuf>) -> io::Result<RealDisk> {
        let path = path.into();
        match fs::create_dir(&path) {
            Ok(()) => sync_parent(&path)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        RealDisk::open(path)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// A folder is durable when the folder above it is.
fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(parent)?.sync_all()
}

impl Disk for RealDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(self.path.join(name))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = File::options()
            .read(true)
            .write(true)
            .open(self.path.join(name))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            // A name that is not UTF-8 is none of ours.
            if let Ok(name) = entry.file_name().into_string()
                && entry.file_type()?.is_file()
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn sync_folder(&self) -> io::Result<()> {
        self.folder.sync_all()
    }

    fn link_from(&self, from: &Path, name: &str) -> io::Result<()> {
        let to = self.path.join(name);
        if fs::hard_link(from, &to).is_ok() {
            return Ok(());
        }
        // Another file system, or one without links.
        fs::copy(from, &to)?;
        File::open(&to)?.sync_all()
    }

    fn lock(&self) -> io::Result<Option<FolderLock>> {
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.path.join(LOCK_NAME))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(FolderLock::new(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let room = fstatvfs(&self.folder)?;
        Ok(room.f_bavail.saturating_mul(room.f_frsize))
    }

    fn subfolder(&self, name: &str) -> io::Result<Arc<dyn Disk>> {
        Ok(Arc::new(RealDisk::open_or_create(self.path.join(name))?))
    }

    fn remove_subfolder(&self, name: &str) -> io::Result<()> {
        match fs::remove_dir(self.path.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn describe(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }
}

#[derive(Debug)]
struct RealFile(File);

impl DiskFile for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}
