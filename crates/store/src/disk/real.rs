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
    /// Nothing in it may be changed.
    read_only: bool,
}

impl RealDisk {
    /// Opens a folder that exists.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<RealDisk> {
        let path = path.into();
        let folder = File::open(&path)?;
        if !folder.metadata()?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(RealDisk {
            path,
            folder,
            read_only: false,
        })
    }

    /// Opens a folder that exists, to read what is in it and no more: it may be on a medium that cannot be written, or belong
    /// to somebody else. Its lock keeps servers off, not others that read.
    pub fn open_read_only(path: impl Into<PathBuf>) -> io::Result<RealDisk> {
        let disk = RealDisk::open(path)?;
        Ok(RealDisk {
            read_only: true,
            ..disk
        })
    }

    fn check_writable(&self) -> io::Result<()> {
        match self.read_only {
            true => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
            false => Ok(()),
        }
    }

    /// Without the file of the lock no server uses the folder: it makes one before anything else.
    fn lock_for_reading(&self) -> io::Result<Option<FolderLock>> {
        let file = match File::open(self.path.join(LOCK_NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.folder.try_clone()?,
            other => other?,
        };
        flocked(file, FlockOperation::NonBlockingLockShared)
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

/// Locks a file; `None`: somebody else has it.
fn flocked(file: File, how: FlockOperation) -> io::Result<Option<FolderLock>> {
    match flock(&file, how) {
        Ok(()) => Ok(Some(FolderLock::new(file))),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
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
        self.check_writable()?;
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
            .write(!self.read_only)
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
        self.check_writable()?;
        fs::remove_file(self.path.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.check_writable()?;
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn sync_folder(&self) -> io::Result<()> {
        self.folder.sync_all()
    }

    fn link_from(&self, from: &Path, name: &str) -> io::Result<()> {
        self.check_writable()?;
        let to = self.path.join(name);
        if fs::hard_link(from, &to).is_ok() {
            return Ok(());
        }
        // Another file system, or one without links.
        fs::copy(from, &to)?;
        File::open(&to)?.sync_all()
    }

    fn lock(&self) -> io::Result<Option<FolderLock>> {
        if self.read_only {
            return self.lock_for_reading();
        }
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.path.join(LOCK_NAME))?;
        flocked(file, FlockOperation::NonBlockingLockExclusive)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let room = fstatvfs(&self.folder)?;
        Ok(room.f_bavail.saturating_mul(room.f_frsize))
    }

    fn subfolder(&self, name: &str) -> io::Result<Arc<dyn Disk>> {
        let path = self.path.join(name);
        Ok(Arc::new(match self.read_only {
            true => RealDisk::open_read_only(path)?,
            false => RealDisk::open_or_create(path)?,
        }))
    }

    fn has_subfolder(&self, name: &str) -> io::Result<bool> {
        match fs::metadata(self.path.join(name)) {
            Ok(metadata) => Ok(metadata.is_dir()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn remove_subfolder(&self, name: &str) -> io::Result<()> {
        self.check_writable()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(disk: &RealDisk) -> Vec<(String, Vec<u8>)> {
        let names = disk.list().expect("it can be listed");
        let read = |name: String| {
            let bytes = fs::read(disk.path().join(&name)).expect("it can be read");
            (name, bytes)
        };
        names.into_iter().map(read).collect()
    }

    #[test]
    fn a_folder_opened_for_reading_stays_as_it_is() {
        let path = std::env::temp_dir().join(format!("store-read-only-{}", std::process::id()));
        let writer = RealDisk::open_or_create(&path).expect("a writable folder");
        let file = writer.create("file").expect("it is new");
        file.write_all_at(b"content", 0).expect("there is room");
        let before = bytes_of(&writer);

        for has_lock_file in [false, true] {
            let reader = RealDisk::open_read_only(&path).expect("it is there");
            let lock = reader.lock().expect("locks work");
            let other = RealDisk::open_read_only(&path).expect("it is there");
            assert!(other.lock().expect("locks work").is_some(), "it only reads");
            let file = reader.open("file").expect("it is there");
            let mut content = [0; 7];
            assert_eq!(file.read_at(&mut content, 0).expect("readable"), 7);
            assert!(file.write_at(b"other", 0).is_err() && file.set_len(0).is_err());
            let refused = |done: io::Result<()>| {
                let error = done.expect_err("nothing is changed");
                assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem);
            };
            refused(reader.create("new").map(drop));
            refused(reader.remove("file"));
            refused(reader.rename("file", "name"));
            refused(reader.link_from(&path.join("file"), "link"));
            refused(reader.remove_subfolder("folder"));
            assert!(reader.subfolder("none").is_err());
            if has_lock_file {
                assert!(
                    writer.lock().expect("locks work").is_none(),
                    "it is being read"
                );
                drop(lock);
                let server = writer.lock().expect("locks work");
                assert!(server.is_some());
                assert!(
                    reader.lock().expect("locks work").is_none(),
                    "a server has it"
                );
            } else {
                assert_eq!(bytes_of(&writer), before, "no file of a lock");
                drop(lock);
                drop(writer.lock().expect("locks work"));
            }
        }
        fs::remove_dir_all(&path).expect("it is there");
    }
}
