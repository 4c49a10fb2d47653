//! The data folder: whose it is, which version wrote it, and what its log must have.
//!
//! The file `pelton-data` is a text: [`HEADING`], `format` and the version, `folder` and the
//! folder's identity, `secret` and its [secret](FolderSecret), and, if there was ever a log in it,
//! `log` and a sequence, through which it was durable, and `segment` and the number of its newest
//! file. The last line is `end` and a checksum of all lines before it. It is written anew at each
//! start and clean stop, and for each new file of the log, so that a folder whose log is gone, or
//! ends too early, is not taken for a new one.

use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use wal::disk::{Disk, FolderLock, RealDisk, is_full, write_whole};
use wal::{KnownLog, LogId, SegmentListener, is_log_file, is_segment};

use crate::SET_ASIDE_FOLDER;
use crate::secret::FolderSecret;
use crate::snapshot;

/// The file that makes a folder a backup, which no server takes.
pub(crate) const BACKUP_MANIFEST_NAME: &str = "MANIFEST";

/// The version of the folder's layout that this code writes.
pub const FOLDER_VERSION: u32 = 6;

/// The first version, whose file says nothing of the log, and whose groups nothing of the size of
/// their segment. It is read, and becomes one of this version when a server has started.
const FOLDER_VERSION_1: u32 = 1;

/// The second version, which says neither the identity of the folder nor the newest file of its
/// log, and whose trees have not noted their tables. It is read, and becomes one of this version
/// when a server has started.
const FOLDER_VERSION_2: u32 = 2;

/// The third version, whose file has no checksum. It is read, and becomes one of this version when
/// a server has started.
const FOLDER_VERSION_3: u32 = 3;

/// The fourth version, which knows no identities, and whose file has no secret. It is read, and
/// becomes one of this version when a server has started.
const FOLDER_VERSION_4: u32 = 4;

/// The fifth version, in which there is no index of epochs and replicas. It is read, and becomes
/// one of this version when a server has started.
const FOLDER_VERSION_5: u32 = 5;

/// The file that says whose folder it is.
const FORMAT_NAME: &str = "pelton-data";
const HEADING: &str = "This folder belongs to pelton. Change nothing in it.";
const NEW_NAME: &str = "pelton-data.new";

/// The file by which a data folder is locked, which may lie in one that is about to become ours.
pub const LOCK_NAME: &str = "lock";

/// Bytes of the format file that are read: far more than it has.
const FORMAT_BYTES_MAX: usize = 4096;

/// The file that says that a data folder is that of a replica. The layer above writes it.
pub const REPLICA_MARK_NAME: &str = "pelton-replica";

/// The file with the [`ReplicaId`](crate::ReplicaId) of a replica. The layer above writes it.
pub const REPLICA_ID_NAME: &str = "pelton-replica-id";

/// Whether a file of this name is one that a start makes in a data folder.
pub(crate) fn is_own_file(name: &str) -> bool {
    [FORMAT_NAME, NEW_NAME, LOCK_NAME].contains(&name) || is_log_file(name)
}

/// What a data folder says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FolderState {
    /// Tells this folder from others; 0: it has no identity yet.
    pub(crate) owner: u64,
    /// The log was durable through this sequence; 0: there never was one.
    pub(crate) durable_sequence: u64,
    /// The number of the newest file of the log that had its name on the device; 0: not known.
    pub(crate) newest_segment: u64,
    /// What only this folder knows.
    pub(crate) secret: FolderSecret,
}

impl FolderState {
    /// Adds what the folder says of its log to what is known from elsewhere.
    pub(super) fn add_to(&self, known: KnownLog) -> KnownLog {
        KnownLog {
            durable_sequence: known.durable_sequence.max(self.durable_sequence),
            newest_segment: known.newest_segment.max(self.newest_segment),
            ..known
        }
    }
}

/// The identity of a folder that has none, from numbers that were drawn at random.
pub(crate) fn new_owner(drawn: LogId) -> u64 {
    let mut bytes = drawn.history.to_le_bytes().to_vec();
    bytes.extend(drawn.secret.to_le_bytes());
    xxhash_rust::xxh3::xxh3_64(&bytes).max(1)
}

/// Opens a data folder, and makes it if there is none.
pub fn open_folder(path: &Path) -> Result<Arc<dyn Disk>, FolderError> {
    let disk = RealDisk::open_or_create(path).map_err(|source| io_failure(path, source))?;
    check_entries(path, &disk)?;
    Ok(Arc::new(disk))
}

/// Returns whether a folder that is there is a data folder, and not empty, as a start would find
/// it. Nothing in it is changed.
///
/// # Errors
/// If a start would refuse it.
pub fn inspect_folder(path: &Path) -> Result<bool, FolderError> {
    let disk = RealDisk::open_read_only(path).map_err(|source| io_failure(path, source))?;
    check_entries(path, &disk)?;
    Ok(check(&disk)?.is_some())
}

fn io_failure(path: &Path, source: io::Error) -> FolderError {
    FolderError::Io {
        folder: path.display().to_string(),
        source,
    }
}

/// Refuses a folder that may not be changed, or has what none of ours has.
fn check_entries(path: &Path, disk: &dyn Disk) -> Result<(), FolderError> {
    let failed = |source| io_failure(path, source);
    // Before anything in it is written to, which its files alone may allow.
    let access = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    let may_change = accessat(CWD, path, access, AtFlags::EACCESS);
    may_change.map_err(|error| failed(error.into()))?;
    // A folder that has only folders in it is not ours either, and the file layer does not see
    // them.
    let has_files = !disk.list().map_err(failed)?.is_empty();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name() == SET_ASIDE_FOLDER && !entry.file_type().map_err(failed)?.is_dir() {
            let file = disk.describe(SET_ASIDE_FOLDER);
            return Err(FolderError::NotAFolder { file });
        }
        // The file layer does not see it either: else it would be said to be missing.
        let name = entry.file_name();
        let is_of_ours = has_files && name.to_str().is_some_and(snapshot::is_snapshot);
        if is_of_ours && !entry.file_type().map_err(failed)?.is_file() {
            let file = disk.describe(&name.to_string_lossy());
            return Err(FolderError::NotAFile { file });
        }
        if !has_files && entry.file_type().map_err(failed)?.is_dir() {
            return Err(FolderError::Foreign {
                folder: path.display().to_string(),
                file: entry.file_name().to_string_lossy().into_owned(),
            });
        }
    }
    Ok(())
}

/// A data folder that is ours.
#[derive(Debug)]
pub(super) struct Claimed {
    pub(super) lock: FolderLock,
    pub(super) file: FolderFile,
    /// Its own file was damaged, which was accepted: nothing is known of its log.
    pub(super) was_damaged: bool,
}

/// Locks a data folder and checks its version; an empty one becomes a data folder. With
/// `accept_loss` one whose own file is damaged is taken too.
pub(super) fn claim(
    disk: &Arc<dyn Disk>,
    drawn: LogId,
    secret: FolderSecret,
    accept_loss: bool,
) -> Result<Claimed, FolderError> {
    let check = || match check(&**disk) {
        Err(FolderError::Damaged { .. }) if accept_loss => Ok((Some(FolderState::default()), true)),
        state => state.map(|state| (state, false)),
    };
    // Before the lock, which makes a file: what is not ours is left as it is.
    check()?;
    let lock = lock(&**disk)?;
    // Another server may have made it ours since, or written more to its log.
    let (state, was_damaged) = check()?;
    let state = match state {
        Some(state) => state,
        None => {
            let state = FolderState {
                owner: new_owner(drawn),
                secret,
                ..FolderState::default()
            };
            mark(&**disk, state).map_err(|source| FolderError::Io {
                folder: disk.describe(FORMAT_NAME),
                source,
            })?;
            state
        }
    };
    let file = FolderFile {
        disk: disk.clone(),
        state: Mutex::new(state),
        is_marked: true,
    };
    Ok(Claimed {
        lock,
        file,
        was_damaged,
    })
}

/// Locks a folder that becomes a data folder when it is [marked](mark).
pub(super) fn claim_unmarked(disk: &Arc<dyn Disk>) -> Result<Claimed, FolderError> {
    let lock = lock(&**disk)?;
    let file = FolderFile {
        disk: disk.clone(),
        state: Mutex::default(),
        is_marked: false,
    };
    Ok(Claimed {
        lock,
        file,
        was_damaged: false,
    })
}

/// Adds what a data folder's own file says of its log to what is known of that from elsewhere.
pub fn known(disk: &dyn Disk, known: KnownLog) -> Result<KnownLog, FolderError> {
    let state = check(disk)?.unwrap_or_default();
    Ok(state.add_to(known))
}

/// The identity of a data folder; 0: it has none.
pub fn owner(disk: &dyn Disk) -> Result<u64, FolderError> {
    Ok(check(disk)?.unwrap_or_default().owner)
}

/// Locks a folder that becomes a data folder when it is [marked](mark).
pub(super) fn lock(disk: &dyn Disk) -> Result<FolderLock, FolderError> {
    let folder = || disk.describe("");
    let lock = disk.lock().map_err(|source| FolderError::Io {
        folder: disk.describe(LOCK_NAME),
        source,
    })?;
    lock.ok_or_else(|| FolderError::Locked {
        folder: folder(),
        holder: disk.lock_holder(),
    })
}

/// What the folder says of itself; `None`: it is empty. A folder of somebody else is an error.
fn check(disk: &dyn Disk) -> Result<Option<FolderState>, FolderError> {
    let folder = || disk.describe("");
    let failed = |source| FolderError::Io {
        folder: folder(),
        source,
    };
    let names = disk.list().map_err(failed)?;
    if names.iter().any(|name| name == BACKUP_MANIFEST_NAME) {
        return Err(FolderError::Backup { folder: folder() });
    }
    // Before anything is written: else the start would fail when the log is open, and changed.
    if matches!(disk.has_subfolder(NEW_NAME), Ok(true)) {
        let file = disk.describe(NEW_NAME);
        return Err(FolderError::InTheWay { file });
    }
    if !names.iter().any(|name| name == FORMAT_NAME) {
        let is_of_ours = |name: &&String| is_segment(name) || snapshot::is_snapshot(name);
        if let Some(file) = names.iter().find(is_of_ours) {
            return Err(FolderError::Unmarked {
                folder: folder(),
                file: file.clone(),
            });
        }
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
        None => Err(FolderError::Damaged {
            file: disk.describe(FORMAT_NAME),
        }),
    }
}

/// What a format file says, or which other version wrote it; `None`: it makes no sense.
fn state_in(bytes: &[u8]) -> Option<Result<FolderState, u32>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut lines = text.lines();
    if lines.next()? != HEADING {
        return None;
    }
    let version = lines.next()?.strip_prefix("format ")?.parse().ok()?;
    // Formats without a checksum too: what is counted on from it must not overflow.
    let number_in = |text: &str| {
        text.parse()
            .ok()
            .filter(|&number| number < wal::NUMBER_BOUND)
    };
    let mut state = FolderState::default();
    match version {
        // Nobody knows how far its log came. But the version that made it made its log in the same
        // moment.
        FOLDER_VERSION_1 => state.durable_sequence = 1,
        FOLDER_VERSION_2 | FOLDER_VERSION_3 | FOLDER_VERSION_4 | FOLDER_VERSION_5
        | FOLDER_VERSION => {
            for line in lines {
                match line.split_once(' ')? {
                    ("folder", owner) => state.owner = u64::from_str_radix(owner, 16).ok()?,
                    ("secret", secret) => state.secret = FolderSecret::from_hex(secret)?,
                    ("log", sequence) => state.durable_sequence = number_in(sequence)?,
                    ("segment", number) => state.newest_segment = number_in(number)?,
                    ("end", _) => {}
                    _ => return None,
                }
            }
        }
        version => {
            // Only its number may have changed: then another version would be blamed, and of no
            // help.
            let start = |version| format!("{HEADING}\n{}", format_line(version));
            let rest = text.strip_prefix(&start(version))?;
            let ours = start(FOLDER_VERSION) + rest;
            let is_ours = matches!(state_in(ours.as_bytes()), Some(Ok(_)));
            return (!is_ours).then_some(Err(version));
        }
    }
    // Not a byte more, less or other than was written; also where there is no checksum.
    (encode(version, state) == text).then_some(Ok(state))
}

fn format_line(version: u32) -> String {
    format!("format {version}\n")
}

/// What the format file of a version says.
fn encode(version: u32, state: FolderState) -> String {
    let mut text = format!("{HEADING}\n{}", format_line(version));
    let has_log = version > FOLDER_VERSION_1 && state.durable_sequence > 0;
    if version > FOLDER_VERSION_2 {
        text.push_str(&format!("folder {:016x}\n", state.owner));
    }
    if version > FOLDER_VERSION_4 {
        text.push_str(&format!("secret {}\n", state.secret.hex()));
    }
    if has_log {
        text.push_str(&format!("log {}\n", state.durable_sequence));
    }
    if has_log && version > FOLDER_VERSION_2 {
        text.push_str(&format!("segment {}\n", state.newest_segment));
    }
    if version > FOLDER_VERSION_3 {
        let sum = xxhash_rust::xxh3::xxh3_128(text.as_bytes());
        text.push_str(&format!("end {sum:032x}\n"));
    }
    text
}

/// Makes a folder ours, or says anew what its log must have, whole or not at all.
pub(crate) fn mark(disk: &dyn Disk, state: FolderState) -> io::Result<()> {
    if disk.list()?.iter().any(|name| name == NEW_NAME) {
        disk.remove(NEW_NAME)?;
        // What an attempt before has left, perhaps in part, is gone for certain: else the renaming
        // below could outlive a power loss that its removal does not.
        disk.sync_folder()?;
    }
    let text = encode(FOLDER_VERSION, state);
    write_whole(disk, NEW_NAME, FORMAT_NAME, text.as_bytes())
}

/// The folder's own file, and what it says. One that is not marked as ours stays so.
#[derive(Debug)]
pub(super) struct FolderFile {
    disk: Arc<dyn Disk>,
    state: Mutex<FolderState>,
    is_marked: bool,
}

impl FolderFile {
    /// What the file says.
    pub(super) fn state(&self) -> FolderState {
        *self.state.lock()
    }

    /// Notes what a start has found, or made: that the log is durable through a sequence, and which
    /// is its newest file. So much of it is missed from now on if it is gone. A folder without an
    /// identity or a secret has those that are given from then on.
    ///
    /// Where the disk is full, the folder goes on with what it knows, which is less, or names files
    /// that the log does not need any more and that have to stay: then `false` is returned.
    pub(super) fn note_start(
        &self,
        owner: u64,
        secret: FolderSecret,
        durable_sequence: u64,
        newest_segment: u64,
    ) -> Result<bool, FolderError> {
        let noted = self.change(|state| {
            if state.owner == 0 {
                state.owner = owner;
            }
            if state.secret.is_none() {
                state.secret = secret;
            }
            state.durable_sequence = state.durable_sequence.max(durable_sequence);
            // Not the higher one: files that are missing may have been given up.
            state.newest_segment = newest_segment;
        });
        match noted {
            Err(source) if is_full(&source) => Ok(false),
            noted => noted.map(|()| true).map_err(|source| FolderError::Io {
                folder: self.disk.describe(FORMAT_NAME),
                source,
            }),
        }
    }

    /// Notes that the log is durable through a sequence. If that fails, the folder knows of less.
    pub(super) fn note_durable(&self, durable_sequence: u64) {
        let _ = self.change(|state| {
            state.durable_sequence = state.durable_sequence.max(durable_sequence);
        });
    }

    /// The file, if it is surely no longer there. Whoever writes it anew is waited for.
    pub(super) fn missing(&self) -> Option<String> {
        let _nobody_changes = self.state.lock();
        let gone = [
            io::ErrorKind::NotFound,
            io::ErrorKind::NotADirectory,
            io::ErrorKind::IsADirectory,
        ];
        let opened = self.disk.open(FORMAT_NAME).map(drop);
        let is_gone = opened.is_err_and(|error| gone.contains(&error.kind()));
        (is_gone && self.is_marked).then(|| self.disk.describe(FORMAT_NAME))
    }

    fn change(&self, change: impl FnOnce(&mut FolderState)) -> io::Result<()> {
        let mut state = self.state.lock();
        let mut changed = *state;
        change(&mut changed);
        if !self.is_marked || changed == *state {
            return Ok(());
        }
        mark(&*self.disk, changed)?;
        *state = changed;
        Ok(())
    }
}

/// If it cannot be noted, the folder knows of less until the next file of the log.
impl SegmentListener for FolderFile {
    fn segment_ready(&self, segment: u64, durable_sequence: u64) {
        let _ = self.change(|state| {
            state.newest_segment = state.newest_segment.max(segment);
            state.durable_sequence = state.durable_sequence.max(durable_sequence);
        });
    }
}

/// Why a data folder cannot be used. Nothing was changed in it.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Another server uses it.
    #[error(
        "{folder}: another server uses this data folder{}; stop it, or choose another folder",
        holder.map_or_else(String::new, |process| format!(" (process {process})"))
    )]
    Locked {
        /// The folder.
        folder: String,
        /// Its process, if that is known.
        holder: Option<u32>,
    },
    /// There is something in it, and it is not a data folder.
    #[error(
        "{folder}: this is not a data folder, and not empty (there is {file}); choose another \
         folder"
    )]
    Foreign {
        /// The folder.
        folder: String,
        /// Something in it.
        file: String,
    },
    /// It is a backup.
    #[error(
        "{folder}: this is a backup, which a server would change; `pelton restore {folder} --data \
         NEW_FOLDER` makes a data folder of it, `pelton restore {folder} --verify-only` checks it"
    )]
    Backup {
        /// The folder.
        folder: String,
    },
    /// Its own file is missing, though files of a log or a snapshot are there.
    #[error(
        "{folder}: the file `{FORMAT_NAME}` is missing, or no file, though there is data of pelton \
         in the folder ({file}): put it back, or restore a backup. If a restore has been \
         interrupted here, restore anew into an empty folder. If there is neither copy nor backup, \
         make an empty file `{FORMAT_NAME}` and start once with --accept-loss"
    )]
    Unmarked {
        /// The folder.
        folder: String,
        /// One of these.
        file: String,
    },
    /// Its own file makes no sense.
    #[error(
        "{file}: this file, which says what belongs to the data folder, is damaged: put it back, \
         or restore a backup. `serve --accept-loss` makes it anew from what is there, and gives \
         no entries up for that: the identity of the folder comes from its databases on disk, and \
         the rest from its log; an end of the log that is missing is then not noticed. But all \
         tokens become invalid, since the secret under which they are hashed is in this file \
         alone: `--init-admin-file FILE` beside it makes an administrator's token anew, with which \
         the others are rotated"
    )]
    Damaged {
        /// The file.
        file: String,
    },
    /// What has the name of a file of the log, or of a snapshot, is a folder, a link or something
    /// else.
    #[error(
        "{file}: this is not a file, though it has the name of a snapshot: put the file back, or \
         restore a backup"
    )]
    NotAFile {
        /// The file.
        file: String,
    },
    /// A file or a link has the name of a folder that is made when it is needed.
    #[error(
        "{file}: this is not a folder, and the server may need one of this name; move it \
         elsewhere, or remove it"
    )]
    NotAFolder {
        /// The file.
        file: String,
    },
    /// A folder has the name of a file that is made at each start.
    #[error(
        "{file}: there is a folder where the server makes a file of its own; move it elsewhere, or \
         remove it"
    )]
    InTheWay {
        /// The file.
        file: String,
    },
    /// Another version of the program made it.
    #[error(
        "{folder}: the data folder has format {version}, and this version of pelton reads formats \
         up to {FOLDER_VERSION}; use the version that made it"
    )]
    Version {
        /// The folder.
        folder: String,
        /// Its version.
        version: u32,
    },
    /// The operating system refused.
    #[error("{folder}: the data folder cannot be used: {source}")]
    Io {
        /// The folder.
        folder: String,
        /// What it said.
        source: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_inspected_as_a_start_would_find_it_and_not_changed() {
        let name = format!("pelton-inspected-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("folder is made");
        let names = || {
            let entries = std::fs::read_dir(&folder).expect("it is there");
            let names = entries.map(|entry| entry.expect("it can be read").file_name());
            names.collect::<Vec<_>>()
        };
        assert!(matches!(inspect_folder(&folder), Ok(false)));
        assert!(names().is_empty());
        for is_folder in [true, false] {
            let foreign = folder.join("foreign");
            match is_folder {
                true => std::fs::create_dir(&foreign).expect("folder is made"),
                false => std::fs::write(&foreign, "x").expect("file is written"),
            }
            let found = inspect_folder(&folder);
            assert!(
                matches!(&found, Err(FolderError::Foreign { file, .. }) if file == "foreign"),
                "{found:?}"
            );
            assert_eq!(names(), ["foreign"]);
            match is_folder {
                true => std::fs::remove_dir(&foreign).expect("it is there"),
                false => std::fs::remove_file(&foreign).expect("it is there"),
            }
        }
        let disk = RealDisk::open(&folder).expect("it is there");
        mark(&disk, FolderState::default()).expect("it can be written");
        for _ in 0..2 {
            assert!(matches!(inspect_folder(&folder), Ok(true)));
            assert_eq!(names(), [FORMAT_NAME]);
        }
        std::fs::remove_dir_all(&folder).expect("it is there");
        assert!(matches!(
            inspect_folder(&folder),
            Err(FolderError::Io { .. })
        ));
    }

    #[test]
    fn the_format_file_is_read_in_all_versions_and_no_other() {
        let state = |text: &str| state_in(format!("{HEADING}\n{text}").as_bytes());
        let of = |owner, durable_sequence, newest_segment| {
            Some(Ok(FolderState {
                owner,
                durable_sequence,
                newest_segment,
                secret: FolderSecret::NONE,
            }))
        };
        assert_eq!(state("format 1\n"), of(0, 1, 0));
        assert_eq!(state("format 2\n"), of(0, 0, 0));
        assert_eq!(state("format 2\nlog 77\n"), of(0, 77, 0));
        let owner = "folder 000000000000001f\n";
        assert_eq!(state(&format!("format 3\n{owner}")), of(31, 0, 0));
        let rest = format!("{owner}log 77\nsegment 4\n");
        assert_eq!(state(&format!("format 3\n{rest}")), of(31, 77, 4));
        assert_eq!(state("format 7\n"), Some(Err(7)));
        assert_eq!(state("format +7\n"), None);
        assert_eq!(state(&format!("format 7\n{rest}end 0\n")), Some(Err(7)));
        for damaged in [
            "format 1\nlog 77\n",
            "format 2\nlog x\n",
            "format 2\nlog 077\n",
            "format 2\nlog 77",
            "format 2\nlog 18446744073709551615\n",
            "format 3\n",
            "format 3\nlog 77\n",
            "format 3\nfolder 000000000000001f\nlog 77\n",
            "format 3\nfolder 1f\n",
            "format 4\nfolder 000000000000001f\nlog 77\nsegment 4\n",
            "format 5\nfolder 000000000000001f\nlog 77\nsegment 4\n",
            "format 6\nfolder 000000000000001f\nlog 77\nsegment 4\n",
            "",
        ] {
            assert_eq!(state(damaged), None, "{damaged:?}");
        }
        assert_eq!(state_in(b"format 2\n"), None);
        assert_eq!(state_in(b""), None);
    }

    /// Whatever has changed in it, the file is damaged, and nothing in it is believed.
    #[test]
    fn a_format_file_with_any_change_is_damaged() {
        for durable_sequence in [0, 77] {
            let state = FolderState {
                owner: 31,
                durable_sequence,
                newest_segment: durable_sequence / 19,
                secret: FolderSecret::new([durable_sequence as u8; 32]),
            };
            let whole = encode(FOLDER_VERSION, state).into_bytes();
            assert_eq!(state_in(&whole), Some(Ok(state)));
            for at in 0..whole.len() {
                assert_eq!(state_in(&whole[..at]), None, "cut at {at}");
                for bit in 0..8 {
                    let mut changed = whole.clone();
                    changed[at] ^= 1 << bit;
                    assert_eq!(state_in(&changed), None, "bit {bit} at {at}");
                }
            }
            assert_eq!(state_in(&[&whole[..], b"\n"].concat()), None);
        }
    }
}
