//! The file layer: one folder with named files, as small as the log needs it.
//!
//! What is written is on the device only after [`DiskFile::sync`]; that a file was made, renamed or
//! removed, only after [`Disk::sync_folder`]. Until then a power loss may take any part of it back,
//! in any order.
//!
//! Two implementations: [`RealDisk`], and, for tests, `SimulatedDisk` (feature `simulated`), which
//! takes them at their word.

mod real;
#[cfg(any(test, feature = "simulated"))]
mod simulated;
mod window;

use std::fmt::{self, Debug};
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;

/// Bytes that are written at a time when a file is filled with zeros.
const ZEROS_BYTES: u64 = 1024 * 1024;

pub use real::{RealDisk, check_place};
#[cfg(any(test, feature = "simulated"))]
pub use simulated::{DiskFaultCounts, Fault, SimulatedDisk, Step};
pub use window::FileWindow;

/// Whether an operation has failed for want of room: on the disk, in the user's quota of it, or
/// below the limit on the size of a file.
pub fn is_full(error: &io::Error) -> bool {
    NoRoom::of(error).is_some()
}

/// What has no room, and so what is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// The disk has no space left, or no inodes: the operating system says the same of both.
    #[error("no space or no inodes are left on the disk (`df` and `df -i` say which); free some")]
    Disk,
    /// The user's quota of it is used up.
    #[error("what this user may have of the disk is used up; free some space, or raise the quota")]
    Quota,
    /// The file would be larger than this process may make one.
    #[error(
        "the file would be larger than this process may make one; raise that limit (`ulimit -f`, \
         `LimitFSIZE=` of systemd) and restart"
    )]
    FileSize,
}

impl NoRoom {
    /// What an operation had no room in; `None`: it has failed for another reason.
    pub fn of(error: &io::Error) -> Option<NoRoom> {
        match error.kind() {
            io::ErrorKind::StorageFull => Some(NoRoom::Disk),
            io::ErrorKind::QuotaExceeded => Some(NoRoom::Quota),
            io::ErrorKind::FileTooLarge => Some(NoRoom::FileSize),
            _ => None,
        }
    }
}

/// An error of the operating system with what to do, where that is known.
#[derive(Debug)]
pub struct Advised<'a>(pub &'a io::Error);

impl fmt::Display for Advised<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NoRoom::of(self.0) {
            Some(why) => fmt::Display::fmt(&why, formatter),
            None => fmt::Display::fmt(self.0, formatter),
        }
    }
}

/// Whether an operation has failed for want of file descriptors, in this process or in the system.
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    let numbers = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
    error
        .raw_os_error()
        .is_some_and(|number| numbers.contains(&number))
}

/// A folder with files. Names are plain file names.
///
/// A full disk is reported as [`io::ErrorKind::StorageFull`].
pub trait Disk: Debug + Send + Sync {
    /// Makes an empty file; an error if there is one of this name.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// The names of all files, sorted.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Renames a file, over another one if there is one of the new name. Either name may be one in
    /// a folder within, with a slash; both folders are to be synced then, that of the new name
    /// first.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Makes durable which files there are, and what they are called.
    fn sync_folder(&self) -> io::Result<()>;

    /// Gives the file at a path of the file system a name here too; where that cannot be, it is
    /// copied. It must not change any more.
    fn link_from(&self, _from: &Path, _name: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// An error if the folder is no longer where it was opened: what is written to it then is lost,
    /// or nobody finds it.
    fn check_place(&self) -> io::Result<()> {
        Ok(())
    }

    /// Takes the lock of the folder, for as long as the guard lives. `None`: somebody else has it.
    fn lock(&self) -> io::Result<Option<FolderLock>>;

    /// Returns the process that has the lock, if the system shows it.
    fn lock_holder(&self) -> Option<u32> {
        None
    }

    /// How many bytes can still be written, as far as known.
    fn free_bytes(&self) -> io::Result<u64>;

    /// A folder in this one, which is made if there is none. [`Disk::list`] does not show it.
    fn subfolder(&self, name: &str) -> io::Result<Arc<dyn Disk>>;

    /// Whether there is such a folder in this one.
    fn has_subfolder(&self, name: &str) -> io::Result<bool>;

    /// Removes an empty folder in this one; that there is none is no error.
    fn remove_subfolder(&self, name: &str) -> io::Result<()>;

    /// A file as a user would name it, for messages.
    fn describe(&self, name: &str) -> String;
}

/// Reads a small file, up to so many bytes of it; `None`: there is none.
pub fn read_at_most(disk: &dyn Disk, name: &str, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
    let file = match disk.open(name) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = vec![0; bytes_max];
    let count = file.read_up_to(&mut bytes, 0)?;
    bytes.truncate(count);
    Ok(Some(bytes))
}

/// Writes a small file whole or not at all: as `new_name`, which is the caller's alone, and under
/// its name once it is on the device. What it replaces, if anything, is there until then. When this
/// returns, the name is durable too.
pub fn write_whole(disk: &dyn Disk, new_name: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    let file = match disk.create(new_name) {
        // What an earlier attempt has left, or a link or a pipe, which is not listed.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            disk.remove(new_name)?;
            disk.create(new_name)?
        }
        created => created?,
    };
    file.write_all_at(bytes, 0)?;
    file.sync()?;
    disk.rename(new_name, name)?;
    disk.sync_folder()
}

/// An open file.
pub trait DiskFile: Debug + Send + Sync {
    /// Its length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Whether it has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts it, or fills it up with zeros.
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// Reads at most as much as fits; 0 at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes a first part of the bytes, of the length that is returned. Grows the file where
    /// needed.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Reserves the room of a range behind the end of the file, which grows to `to` and reads as
    /// zeros there. Where the file system cannot do that, zeros are written.
    fn allocate(&self, from: u64, to: u64) -> io::Result<()> {
        self.write_zeros(from, to)
    }

    /// Writes zeros from one place to another: real ones, which need neither room nor metadata when
    /// they are overwritten.
    fn write_zeros(&self, from: u64, to: u64) -> io::Result<()> {
        let zeros = vec![0; ZEROS_BYTES.min(to - from) as usize];
        let mut offset = from;
        while offset < to {
            let count = zeros.len().min((to - offset) as usize);
            self.write_all_at(&zeros[..count], offset)?;
            offset += count as u64;
        }
        Ok(())
    }

    /// Makes durable what was written. After an error nothing is known about it, and a later sync
    /// that succeeds says nothing about what was written before the error.
    fn sync(&self) -> io::Result<()>;

    /// Reads until the buffer is full or the file ends; returns how much there was.
    fn read_up_to(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Writes everything, or returns an error; then any part of it may be written.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match self.write_at(&bytes[done..], offset + done as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The lock of a folder; dropped, it is released. The operating system releases that of a process
/// that dies.
#[derive(Debug)]
pub struct FolderLock {
    /// Whatever holds the lock for as long as it lives.
    _holder: Box<dyn LockHolder>,
}

trait LockHolder: Debug + Send + Sync {}
impl<T: Debug + Send + Sync> LockHolder for T {}

impl FolderLock {
    fn new(holder: impl Debug + Send + Sync + 'static) -> FolderLock {
        FolderLock {
            _holder: Box::new(holder),
        }
    }
}
