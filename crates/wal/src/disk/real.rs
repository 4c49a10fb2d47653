//! The file layer on the file system.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, CWD, Dir, FallocateFlags, FileType, FlockOperation, Mode, OFlags, fallocate, flock,
    fstatvfs, linkat, mkdirat, openat, renameat, statat, unlinkat,
};
use rustix::io::{Errno, retry_on_intr};

use super::{Disk, DiskFile, FolderLock};
use crate::limits::LOCKS_BYTES_MAX;

/// The file whose lock says that a server uses the folder.
const LOCK_NAME: &str = "lock";

/// A folder of the file system: the folder that was opened, wherever it is moved, and never another
/// one that came to its path since.
#[derive(Debug)]
pub struct RealDisk {
    /// For messages, and to see whether the folder is still there.
    path: PathBuf,
    /// Open for as long as this lives: all names are relative to it.
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

    /// Opens a folder that exists, to read what is in it and no more: it may be on a medium that
    /// cannot be written, or belong to somebody else. Its lock keeps servers off, not others that
    /// read.
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

    fn open_file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(FILE_MODE);
        let opened = retry_on_intr(|| openat(&self.folder, name, flags, mode))?;
        Ok(File::from(opened))
    }

    fn open_subfolder(&self, name: &str) -> io::Result<File> {
        self.open_file(name, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Without the file of the lock no server uses the folder: it makes one before anything else.
    fn lock_for_reading(&self, folder: File) -> io::Result<Option<FolderLock>> {
        let file = match self.open_file(LOCK_NAME, OFlags::RDONLY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            other => Some(other?),
        };
        flocked(folder, file, FlockOperation::NonBlockingLockShared)
    }

    /// Opens a folder, and makes it first where there is none; its parent must exist.
    pub fn open_or_create(path: impl Into<PathBuf>) -> io::Result<RealDisk> {
        let path = path.into();
        match fs::create_dir(&path) {
            Ok(()) => sync_parent(&path)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // The system's words would be taken for the folder itself, which need not be there.
                let words =
                    "the folder in which it is to be made is not there; make that one first";
                return Err(io::Error::new(io::ErrorKind::NotFound, words));
            }
            Err(error) => return Err(error),
        }
        RealDisk::open(path)
    }

    /// Whether nothing is in it, no folders either. The standard library ends the process where a
    /// folder cannot be closed.
    pub fn is_empty(&self) -> io::Result<bool> {
        for entry in Dir::read_from(&self.folder)? {
            let entry = entry?;
            if ![c".", c".."].contains(&entry.file_name()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The rights of files and folders that are made, before those are taken away that the user takes
/// from all.
const FILE_MODE: u32 = 0o666;
const FOLDER_MODE: u32 = 0o777;

/// Locks a folder, and the file in it that older versions lock alone; `None`: somebody else has one
/// of them. The folder cannot be deleted from under the lock as the file can.
fn flocked(
    folder: File,
    file: Option<File>,
    how: FlockOperation,
) -> io::Result<Option<FolderLock>> {
    // Where folders cannot be locked, as over NFS, the file must do.
    if let Err(Errno::WOULDBLOCK) = flock(&folder, how) {
        return Ok(None);
    }
    let Some(file) = file else {
        return Ok(Some(FolderLock::new(folder)));
    };
    match flock(&file, how) {
        Ok(()) => Ok(Some(FolderLock::new((file, folder)))),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the process that holds a lock of flock(2) on a file, by the table of proc_locks(5). The
/// lock of a process that this one cannot see has none, or one below 1.
fn lock_holder_in(table: &str, file: &fs::Metadata) -> Option<u32> {
    let device = file.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let place = format!("{major:02x}:{minor:02x}:{}", file.ino());
    table.lines().find_map(|line| {
        // `1: FLOCK  ADVISORY  WRITE 4242 08:02:1234 0 EOF`; one that waits has `->` in front.
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words[..] {
            [_, "FLOCK", _, _, process, at, ..] if at == place => {
                process.parse().ok().filter(|&process| process > 0)
            }
            _ => None,
        }
    })
}

/// Whether an open folder is still at its path; an error if it is surely not.
pub fn check_place(folder: &File, path: &Path) -> io::Result<()> {
    let ours = match folder.metadata() {
        Ok(ours) => ours,
        // On a network, of a folder that somebody has removed.
        Err(error) if error.raw_os_error() == Some(Errno::STALE.raw_os_error()) => {
            return Err(error);
        }
        // It says nothing of the folder: the next look may.
        Err(_) => return Ok(()),
    };
    let is_there = match fs::metadata(path) {
        Ok(found) => (found.dev(), found.ino()) == (ours.dev(), ours.ino()),
        Err(error) => {
            ![io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind())
        }
    };
    if is_there && ours.nlink() > 0 {
        return Ok(());
    }
    let words = "the folder is no longer there: it was removed, moved, or replaced by another \
                 one, while the server used it";
    Err(io::Error::new(io::ErrorKind::NotFound, words))
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
        let file = self.open_file(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let flags = match self.read_only {
            true => OFlags::RDONLY,
            false => OFlags::RDWR,
        };
        Ok(Arc::new(RealFile(self.open_file(name, flags)?)))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.folder)? {
            let entry = entry?;
            // A name that is not UTF-8 is none of ours.
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    let found = statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
                    FileType::from_raw_mode(found.st_mode)
                }
                known => known,
            };
            if kind == FileType::RegularFile {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.check_writable()?;
        Ok(unlinkat(&self.folder, name, AtFlags::empty())?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.check_writable()?;
        Ok(renameat(&self.folder, from, &self.folder, to)?)
    }

    fn sync_folder(&self) -> io::Result<()> {
        self.folder.sync_all()
    }

    fn check_place(&self) -> io::Result<()> {
        check_place(&self.folder, &self.path)
    }

    fn link_from(&self, from: &Path, name: &str) -> io::Result<()> {
        self.check_writable()?;
        if linkat(CWD, from, &self.folder, name, AtFlags::empty()).is_ok() {
            return Ok(());
        }
        // Another file system, or one without links.
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        let mut to = self.open_file(name, flags)?;
        io::copy(&mut File::open(from)?, &mut to)?;
        to.sync_all()
    }

    fn lock(&self) -> io::Result<Option<FolderLock>> {
        // Opened anew: each lock is one of its own.
        let folder = self.open_subfolder(".")?;
        if self.read_only {
            return self.lock_for_reading(folder);
        }
        // A pipe would else wait for somebody who reads it.
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK;
        let file = self.open_file(LOCK_NAME, flags)?;
        flocked(folder, Some(file), FlockOperation::NonBlockingLockExclusive)
    }

    fn lock_holder(&self) -> Option<u32> {
        let locked = [
            self.open_subfolder("."),
            self.open_file(LOCK_NAME, OFlags::RDONLY),
        ];
        let mut text = String::new();
        let table = File::open("/proc/locks").ok()?;
        table.take(LOCKS_BYTES_MAX).read_to_string(&mut text).ok()?;
        let of = |file: File| lock_holder_in(&text, &file.metadata().ok()?);
        locked.into_iter().flatten().find_map(of)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let room = fstatvfs(&self.folder)?;
        Ok(room.f_bavail.saturating_mul(room.f_frsize))
    }

    fn subfolder(&self, name: &str) -> io::Result<Arc<dyn Disk>> {
        if !self.read_only {
            match mkdirat(&self.folder, name, Mode::from_raw_mode(FOLDER_MODE)) {
                Ok(()) => self.folder.sync_all()?,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Arc::new(RealDisk {
            path: self.path.join(name),
            folder: self.open_subfolder(name)?,
            read_only: self.read_only,
        }))
    }

    fn has_subfolder(&self, name: &str) -> io::Result<bool> {
        match statat(&self.folder, name, AtFlags::empty()) {
            Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Directory => Ok(true),
            Ok(_) => Err(Errno::NOTDIR.into()),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn remove_subfolder(&self, name: &str) -> io::Result<()> {
        self.check_writable()?;
        match unlinkat(&self.folder, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
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

    fn allocate(&self, from: u64, to: u64) -> io::Result<()> {
        let flags = FallocateFlags::empty();
        match retry_on_intr(|| fallocate(&self.0, flags, from, to - from)) {
            Ok(()) => Ok(()),
            // Not on every file system, nor in every sandbox.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => self.write_zeros(from, to),
            Err(error) => Err(error.into()),
        }
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
    fn the_holder_of_a_lock_is_found_in_the_table_of_the_system() {
        let path = std::env::temp_dir().join(format!("wal-holder-{}", std::process::id()));
        let disk = RealDisk::open_or_create(&path).expect("a writable folder");
        assert_eq!(disk.lock_holder(), None);
        let lock = disk.lock().expect("it can be locked").expect("it is free");
        let text = fs::read_to_string("/proc/locks").unwrap_or_default();
        if text.contains("FLOCK") {
            assert_eq!(disk.lock_holder(), Some(std::process::id()));
        }
        drop(lock);
        let file = fs::metadata(&path).expect("it is there");
        let (device, inode) = (file.dev(), file.ino());
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let line = |kind: &str, process: &str, inode: u64| {
            format!("1: {kind}  ADVISORY  WRITE {process} {major:02x}:{minor:02x}:{inode} 0 EOF\n")
        };
        for (table, expected) in [
            (line("FLOCK", "42", inode), Some(42)),
            (
                line("FLOCK", "7", inode + 1) + &line("FLOCK", "42", inode),
                Some(42),
            ),
            (line("POSIX", "42", inode), None),
            (line("-> FLOCK", "42", inode), None),
            // One that this process cannot see, or that nobody has any more.
            (line("FLOCK", "0", inode), None),
            (line("FLOCK", "-1", inode), None),
            ("1: FLOCK".into(), None),
        ] {
            assert_eq!(lock_holder_in(&table, &file), expected, "{table}");
        }
        fs::remove_dir_all(&path).expect("it is there");
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

    /// As the log needs it of a segment that is waited for.
    #[test]
    fn allocated_bytes_have_their_room_and_read_as_zeros() {
        let path = std::env::temp_dir().join(format!("store-allocated-{}", std::process::id()));
        let disk = RealDisk::open_or_create(&path).expect("a writable folder");
        let file = disk.create("file").expect("it is new");
        file.write_all_at(b"content", 0).expect("there is room");
        for bytes in [100_000, 3_000_000] {
            let from = file.len().expect("it can be asked");
            file.allocate(from, bytes).expect("there is room");
            let metadata = fs::metadata(path.join("file")).expect("it is there");
            assert_eq!(metadata.len(), bytes);
            assert!(metadata.blocks() * 512 >= bytes, "a hole");
        }
        let content = fs::read(path.join("file")).expect("it can be read");
        let (first, rest) = content.split_at(7);
        assert_eq!(first, b"content");
        assert!(rest.iter().all(|&byte| byte == 0));
        fs::remove_dir_all(&path).expect("it is there");
    }
}
