//! The data folder: whose it is, which version wrote it, and what its log must have.
//!
//! The file `pelton-data` is a text: [`HEADING`], `format` and the version, and `log` and a sequence, if there was ever a
//! log in the folder: it was durable through that sequence. It is written anew at each start and clean stop, so that a
//! folder whose log is gone, or ends too early, is not taken for a new one.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::disk::{Disk, FolderLock, RealDisk, is_full};

/// The version of the folder's layout that this code writes.
pub const FOLDER_VERSION: u32 = 2;

/// The first version, whose file says nothing of the log, and whose groups nothing of the size of their segment. It is
/// read, and becomes one of this version when a server has started.
const FOLDER_VERSION_1: u32 = 1;

/// The file that says whose folder it is.
const FORMAT_NAME: &str = "pelton-data";
const HEADING: &str = "This folder belongs to pelton. Change nothing in it.";
const NEW_NAME: &str = "pelton-data.new";

/// What else may lie in a folder that is about to become one of ours.
const LOCK_NAME: &str = "lock";

/// Bytes of the format file that are read: far more than it has.
const FORMAT_BYTES_MAX: usize = 4096;

/// What a data folder says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FolderState {
    /// The log was durable through this sequence; 0: there never was one.
    pub(crate) durable_sequence: u64,
}

/// Opens a data folder, and makes it if there is none.
pub fn open_folder(path: &Path) -> Result<Arc<dyn Disk>, FolderError> {
    let failed = |source| FolderError::Io {
        folder: path.display().to_string(),
        source,
    };
    let disk = RealDisk::open_or_create(path).map_err(failed)?;
    // A folder that has only folders in it is not ours either, and the file layer does not see them.
    let is_ours = path.join(FORMAT_NAME).exists();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if !is_ours && entry.file_type().map_err(failed)?.is_dir() {
            return Err(FolderError::Foreign {
                folder: path.display().to_string(),
                file: entry.file_name().to_string_lossy().into_owned(),
            });
        }
    }
    Ok(Arc::new(disk))
}

/// Locks a data folder and checks its version; an empty one becomes a data folder.
pub(super) fn claim(disk: &dyn Disk) -> Result<(FolderLock, FolderState), FolderError> {
    let folder = || disk.describe("");
    let failed = |source| FolderError::Io {
        folder: folder(),
        source,
    };
    // Before the lock, which makes a file: what is not ours is left as it is.
    check(disk)?;
    let lock = lock(disk)?;
    // Another server may have made it ours since, or written more to its log.
    let state = match check(disk)? {
        Some(state) => state,
        None => {
            let state = FolderState {
                durable_sequence: 0,
            };
            mark(disk, state).map_err(failed)?;
            state
        }
    };
    Ok((lock, state))
}

/// The sequence through which the log in a data folder was durable, as the folder's own file says; 0: it has none. `None`:
/// it is not a data folder, but empty.
pub fn durable_sequence(disk: &dyn Disk) -> Result<Option<u64>, FolderError> {
    let state = check(disk)?;
    Ok(state.map(|state| state.durable_sequence))
}

/// Locks a folder that becomes a data folder when it is [marked](mark).
pub(super) fn lock(disk: &dyn Disk) -> Result<FolderLock, FolderError> {
    let folder = || disk.describe("");
    let lock = disk.lock().map_err(|source| FolderError::Io {
        folder: disk.describe(LOCK_NAME),
        source,
    })?;
    lock.ok_or_else(|| FolderError::Locked { folder: folder() })
}

/// What the folder says of itself; `None`: it is empty. A folder of somebody else is an error.
fn check(disk: &dyn Disk) -> Result<Option<FolderState>, FolderError> {
    let folder = || disk.describe("");
    let failed = |source| FolderError::Io {
        folder: folder(),
        source,
    };
    let names = disk.list().map_err(failed)?;
    if !names.iter().any(|name| name == FORMAT_NAME) {
        let is_foreign = |name: &&String| ![LOCK_NAME, NEW_NAME].contains(&name.as_str());
        return match names.iter().find(is_foreign) {
            None => Ok(None),
            Some(file) => Err(FolderError::Foreign {
                folder: folder(),
                file: file.clone(),
            }),
        };
    }
    read(disk).map(Some)
}

/// What the format file says.
fn read(disk: &dyn Disk) -> Result<FolderState, FolderError> {
    let folder = || disk.describe("");
    let failed = |source| FolderError::Io {
        folder: folder(),
        source,
    };
    let file = disk.open(FORMAT_NAME).map_err(failed)?;
    let mut bytes = vec![0; FORMAT_BYTES_MAX];
    let count = file.read_up_to(&mut bytes, 0).map_err(failed)?;
    match state_in(&bytes[..count]) {
        Some(Ok(state)) => Ok(state),
        Some(Err(version)) => Err(FolderError::Version {
            folder: folder(),
            version,
        }),
        None => Err(FolderError::Foreign {
            folder: folder(),
            file: FORMAT_NAME.into(),
        }),
    }
}

/// What a format file says, or which other version wrote it; `None`: it makes no sense.
fn state_in(bytes: &[u8]) -> Option<Result<FolderState, u32>> {
    let mut lines = std::str::from_utf8(bytes).ok()?.lines();
    if lines.next()? != HEADING {
        return None;
    }
    let version = lines.next()?.strip_prefix("format ")?.parse().ok()?;
    let durable_sequence = match version {
        // Nobody knows how far its log came. But the version that made it made its log in the same moment.
        FOLDER_VERSION_1 => 1,
        FOLDER_VERSION => match lines.next() {
            None => 0,
            Some(line) => line.strip_prefix("log ")?.parse().ok()?,
        },
        version => return Some(Err(version)),
    };
    Some(Ok(FolderState { durable_sequence }))
}

/// Makes a folder ours, or says anew what its log must have, whole or not at all.
pub(crate) fn mark(disk: &dyn Disk, state: FolderState) -> io::Result<()> {
    if disk.list()?.iter().any(|name| name == NEW_NAME) {
        disk.remove(NEW_NAME)?;
    }
    let file = disk.create(NEW_NAME)?;
    let mut text = format!("{HEADING}\nformat {FOLDER_VERSION}\n");
    if state.durable_sequence > 0 {
        text.push_str(&format!("log {}\n", state.durable_sequence));
    }
    file.write_all_at(text.as_bytes(), 0)?;
    file.sync()?;
    disk.rename(NEW_NAME, FORMAT_NAME)?;
    disk.sync_folder()
}

/// Notes in a data folder that its log is durable through a sequence, so that this much of it is missed if it is gone. A
/// folder that is not marked as ours stays so.
///
/// Where the disk is full, the folder goes on with what it knows: that is less, and true.
pub(super) fn note_durable(disk: &dyn Disk, durable_sequence: u64) -> Result<(), FolderError> {
    let failed = |source| FolderError::Io {
        folder: disk.describe(""),
        source,
    };
    let names = disk.list().map_err(failed)?;
    let is_ours = names.iter().any(|name| name == FORMAT_NAME);
    if !is_ours || read(disk)?.durable_sequence >= durable_sequence {
        return Ok(());
    }
    match mark(disk, FolderState { durable_sequence }) {
        Err(source) if !is_full(&source) => Err(failed(source)),
        _ => Ok(()),
    }
}

/// Why a data folder cannot be used. Nothing was changed in it.
#[derive(Debug)]
pub enum FolderError {
    /// Another server uses it.
    Locked {
        /// The folder.
        folder: String,
    },
    /// There is something in it, and it is not a data folder.
    Foreign {
        /// The folder.
        folder: String,
        /// Something in it.
        file: String,
    },
    /// Another version of the program made it.
    Version {
        /// The folder.
        folder: String,
        /// Its version.
        version: u32,
    },
    /// The operating system refused.
    Io {
        /// The folder.
        folder: String,
        /// What it said.
        source: io::Error,
    },
}

impl fmt::Display for FolderError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FolderError::Locked { folder } => write!(
                formatter,
                "{folder}: another server uses this data folder; stop it, or choose another folder"
            ),
            FolderError::Foreign { folder, file } => write!(
                formatter,
                "{folder}: this is not a data folder, and not empty (there is {file}); choose another folder"
            ),
            FolderError::Version { folder, version } => write!(
                formatter,
                "{folder}: the data folder has format {version}, and this version of pelton reads formats up to \
                 {FOLDER_VERSION}; use the version that made it"
            ),
            FolderError::Io { folder, source } => {
                write!(
                    formatter,
                    "{folder}: the data folder cannot be used: {source}"
                )
            }
        }
    }
}

impl std::error::Error for FolderError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            FolderError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_file_is_read_in_both_versions_and_no_other() {
        let state = |text: &str| state_in(text.as_bytes());
        let durable = |durable_sequence| Some(Ok(FolderState { durable_sequence }));
        assert_eq!(state(&format!("{HEADING}\nformat 1\n")), durable(1));
        assert_eq!(state(&format!("{HEADING}\nformat 2\n")), durable(0));
        assert_eq!(
            state(&format!("{HEADING}\nformat 2\nlog 77\n")),
            durable(77)
        );
        assert_eq!(state(&format!("{HEADING}\nformat 3\n")), Some(Err(3)));
        assert_eq!(state(&format!("{HEADING}\nformat 2\nlog x\n")), None);
        assert_eq!(state(&format!("{HEADING}\n")), None);
        assert_eq!(state("format 2\n"), None);
    }
}
