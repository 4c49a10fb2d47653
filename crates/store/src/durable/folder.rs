//! The data folder: whose it is, and which version wrote it.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::disk::{Disk, FolderLock, RealDisk};

/// The version of the folder's layout that this code writes, and the only one it reads.
pub const FOLDER_VERSION: u32 = 1;

/// The file that says whose folder it is. Its first line is [`HEADING`], its second `format` and the version.
const FORMAT_NAME: &str = "pelton-data";
const HEADING: &str = "This folder belongs to pelton. Change nothing in it.";
const NEW_NAME: &str = "pelton-data.new";

/// What else may lie in a folder that is about to become one of ours.
const LOCK_NAME: &str = "lock";

/// Bytes of the format file that are read: far more than it has.
const FORMAT_BYTES_MAX: usize = 4096;

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
pub(super) fn claim(disk: &dyn Disk) -> Result<FolderLock, FolderError> {
    let folder = || disk.describe("");
    let failed = |source| FolderError::Io {
        folder: folder(),
        source,
    };
    // Before the lock, which makes a file: what is not ours is left as it is.
    let is_ours = check(disk)?;
    let lock = lock(disk)?;
    // Another server may have made it ours since.
    if !is_ours && !check(disk)? {
        mark(disk).map_err(failed)?;
    }
    Ok(lock)
}

/// Locks a folder that becomes a data folder when it is [marked](mark).
pub(super) fn lock(disk: &dyn Disk) -> Result<FolderLock, FolderError> {
    let folder = || disk.describe("");
    let lock = disk.lock().map_err(|source| FolderError::Io {
        folder: folder(),
        source,
    })?;
    lock.ok_or_else(|| FolderError::Locked { folder: folder() })
}

/// Whether the folder is ours. If not, it is empty, or this is an error.
fn check(disk: &dyn Disk) -> Result<bool, FolderError> {
    let folder = || disk.describe("");
    let failed = |source| FolderError::Io {
        folder: folder(),
        source,
    };
    let names = disk.list().map_err(failed)?;
    if !names.iter().any(|name| name == FORMAT_NAME) {
        let is_foreign = |name: &&String| ![LOCK_NAME, NEW_NAME].contains(&name.as_str());
        return match names.iter().find(is_foreign) {
            None => Ok(false),
            Some(file) => Err(FolderError::Foreign {
                folder: folder(),
                file: file.clone(),
            }),
        };
    }
    let file = disk.open(FORMAT_NAME).map_err(failed)?;
    let mut bytes = vec![0; FORMAT_BYTES_MAX];
    let count = file.read_up_to(&mut bytes, 0).map_err(failed)?;
    match version_in(&bytes[..count]) {
        Some(FOLDER_VERSION) => Ok(true),
        Some(version) => Err(FolderError::Version {
            folder: folder(),
            version,
        }),
        None => Err(FolderError::Foreign {
            folder: folder(),
            file: FORMAT_NAME.into(),
        }),
    }
}

fn version_in(bytes: &[u8]) -> Option<u32> {
    let mut lines = std::str::from_utf8(bytes).ok()?.lines();
    if lines.next()? != HEADING {
        return None;
    }
    lines.next()?.strip_prefix("format ")?.parse().ok()
}

/// Makes a folder ours, whole or not at all.
pub(crate) fn mark(disk: &dyn Disk) -> io::Result<()> {
    if disk.list()?.iter().any(|name| name == NEW_NAME) {
        disk.remove(NEW_NAME)?;
    }
    let file = disk.create(NEW_NAME)?;
    let text = format!("{HEADING}\nformat {FOLDER_VERSION}\n");
    file.write_all_at(text.as_bytes(), 0)?;
    file.sync()?;
    disk.rename(NEW_NAME, FORMAT_NAME)?;
    disk.sync_folder()
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
                "{folder}: the data folder has format {version}, and this version of pelton reads format \
                 {FOLDER_VERSION} only; use the version that made it"
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
