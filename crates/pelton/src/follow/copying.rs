//! A copy: everything that the leader has, as it is at one commit.

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::replication::{CopyRequest, CopyResponse};
use api::rpc::replication::Copy;
use server::TimeSource;
use service::following::Following;
use store::backup::{self, RestoreConfig};
use store::blob;
use store::durable::{TREES_FOLDER, TreePlace};
use store::tree::TreeConfig;
use store::{FolderSecret, StoreConfig};
use wal::disk::{Advised, Disk, DiskFile, RealDisk};
use wal::{LogConfig, LogId};

use super::leader::{Leader, LeaderError, begin, read_until};
use super::mark::TakenCopy;
use crate::limits::{
    COPY_NAME_BYTES_MAX, COPY_ROOM_TIMES, COPY_SILENCE_MS, COPY_SYNC_BYTES, START_PROGRESS_MS,
};
use crate::randomness::random;
use crate::settings::Settings;
use crate::size::Size;
use crate::time_source::SystemTimeSource;

/// The folder in the data folder that holds the files of a copy until they are checked.
pub const COPY_FOLDER: &str = "replica-copy";

/// The folder in the data folder that becomes the new one: what the copy has, checked and loaded.
pub const NEW_FOLDER: &str = "replica-new";

/// The epoch of a history that a replica has confirmed, or has in its log.
#[derive(Clone, Copy, Debug)]
pub struct ConfirmedEpoch {
    /// The history.
    pub history_id: u64,
    /// The epoch.
    pub epoch: u64,
}

/// A file of a copy that is being written.
struct OpenFile {
    file: Arc<dyn DiskFile>,
    name: String,
    bytes: u64,
    written_bytes: u64,
    unsynced_bytes: u64,
}

/// Takes a copy of the leader into its folder in the data folder, which has nothing of it where
/// this fails. When this returns, all of it is on the device. A replica that serves already says
/// how it follows: no copy is taken of who follows it, nor of a leader of an older epoch than it
/// has confirmed.
pub fn take_copy(
    leader: &Leader,
    folder: &Path,
    following: Option<(&Following, ConfirmedEpoch)>,
) -> Result<TakenCopy, LeaderError> {
    let place = folder.join(COPY_FOLDER);
    remove_folder(&place)?;
    let taken = RealDisk::open_or_create(&place)
        .map_err(LeaderError::from)
        .and_then(|disk| Taking::new(Arc::new(disk), (folder, following)).run(leader));
    if taken.is_err() {
        // It would take room until the next attempt, which removes it in any case.
        let _ = remove_folder(&place);
    }
    taken
}

/// Removes a folder with all that is in it; that there is none is as good.
pub fn remove_folder(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

struct Taking<'a> {
    disk: Arc<dyn Disk>,
    /// The data folder.
    folder: &'a Path,
    following: Option<&'a Following>,
    confirmed: Option<ConfirmedEpoch>,
    /// For so many bytes of the copy there was room.
    checked_bytes: u64,
    open: Option<OpenFile>,
    taken: Option<TakenCopy>,
    bytes: u64,
    told: Instant,
}

impl<'a> Taking<'a> {
    fn new(
        disk: Arc<dyn Disk>,
        (folder, following): (&'a Path, Option<(&'a Following, ConfirmedEpoch)>),
    ) -> Taking<'a> {
        let (following, confirmed) = following.unzip();
        Taking {
            disk,
            folder,
            following,
            confirmed,
            checked_bytes: 0,
            open: None,
            taken: None,
            bytes: 0,
            told: Instant::now(),
        }
    }

    fn run(mut self, leader: &Leader) -> Result<TakenCopy, LeaderError> {
        let mut channel = leader.connect()?;
        // Not before, as a leader that is not there is tried again and again.
        tracing::info!("taking a copy of {}", leader.address());
        let mut call = begin::<Copy>(&mut channel, &CopyRequest {})?;
        let silence = Duration::from_millis(COPY_SILENCE_MS);
        let following = self.following;
        let is_interrupted = || following.is_some_and(|following| following.orders().is_waiting());
        let complete = read_until(&mut call, (silence, &is_interrupted), &mut |response| {
            Ok(self.take(response)?.then_some(()))
        })?;
        complete.and(self.taken).ok_or_else(nothing)
    }

    /// Takes a message; returns whether that was the last one.
    fn take(&mut self, response: &CopyResponse<'_>) -> Result<bool, LeaderError> {
        if response.data.is_empty()
            && !response.complete
            && let Some(following) = self.following
            && following.note_upstream(response.replica_ids.iter().map_while(Result::ok))
        {
            return Err(LeaderError::Circle);
        }
        if !response.history_id.is_empty() {
            self.check_epoch(response)?;
            let secret = <[u8; FolderSecret::BYTES]>::try_from(response.secret);
            self.taken = Some(TakenCopy {
                history_id: api::history_id(response.history_id),
                secret: secret.map_or(FolderSecret::NONE, FolderSecret::new),
            });
        }
        self.check_room(response.total_bytes, COPY_ROOM_TIMES)?;
        if !response.file.is_empty() {
            self.close_file()?;
            self.check_room(response.size_bytes, 1)?;
            self.open = Some(self.create(response.file, response.size_bytes)?);
        }
        if !response.data.is_empty() {
            let file = self.open.as_mut().ok_or_else(nothing)?;
            file.add(response.data).map_err(|error| local(&error))?;
            self.bytes += response.data.len() as u64;
        }
        self.tell(response);
        if response.complete {
            self.close_file()?;
            self.disk.sync_folder()?;
        }
        Ok(response.complete)
    }

    fn check_epoch(&self, response: &CopyResponse<'_>) -> Result<(), LeaderError> {
        let history_id = api::history_id(response.history_id);
        let confirmed = self.confirmed.filter(|one| one.history_id == history_id);
        match confirmed {
            Some(confirmed) if response.epoch < confirmed.epoch => Err(LeaderError::OlderEpoch {
                epoch: response.epoch,
                confirmed: confirmed.epoch,
                address: String::new(),
            }),
            _ => Ok(()),
        }
    }

    /// Checks that so many bytes more, some times, have room on the disk, if they are more than was
    /// looked for before.
    fn check_room(&mut self, bytes: u64, times: u64) -> Result<(), LeaderError> {
        let needed_bytes = bytes.saturating_mul(times);
        if needed_bytes <= self.checked_bytes {
            return Ok(());
        }
        let free_bytes = self.disk.free_bytes()?;
        if free_bytes >= needed_bytes {
            self.checked_bytes = needed_bytes;
            return Ok(());
        }
        Err(LeaderError::Local(format!(
            "the disk of {} has no room for it: {} are needed beside what is there, and {} are \
             free; free some",
            self.folder.display(),
            Size::rounded(needed_bytes),
            Size::rounded(free_bytes)
        )))
    }

    fn tell(&mut self, response: &CopyResponse<'_>) {
        if self.told.elapsed() < Duration::from_millis(START_PROGRESS_MS) {
            return;
        }
        self.told = Instant::now();
        match self.bytes {
            0 => tracing::info!(
                "the leader makes a copy: {} are written",
                Size::rounded(response.written_bytes)
            ),
            bytes => tracing::info!("{} of the copy are here", Size::rounded(bytes)),
        }
    }

    fn create(&self, name: &str, bytes: u64) -> Result<OpenFile, LeaderError> {
        let (disk, plain) = match name.split_once('/') {
            Some((blob::FOLDER, plain)) => (self.disk.subfolder(blob::FOLDER)?, plain),
            _ => (Arc::clone(&self.disk), name),
        };
        if !is_plain(plain) {
            let why = "the leader has sent a file whose name leads elsewhere";
            return Err(LeaderError::Nonsense(why.into()));
        }
        Ok(OpenFile {
            file: disk.create(plain)?,
            name: name.to_owned(),
            bytes,
            written_bytes: 0,
            unsynced_bytes: 0,
        })
    }

    fn close_file(&mut self) -> Result<(), LeaderError> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        if open.written_bytes != open.bytes {
            return Err(LeaderError::Nonsense(format!(
                "{} of the copy has {} bytes, and {} have come",
                open.name, open.bytes, open.written_bytes
            )));
        }
        Ok(open.file.sync()?)
    }
}

impl OpenFile {
    fn add(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.file.write_all_at(bytes, self.written_bytes)?;
        self.written_bytes += bytes.len() as u64;
        self.unsynced_bytes += bytes.len() as u64;
        if self.unsynced_bytes >= COPY_SYNC_BYTES {
            self.unsynced_bytes = 0;
            self.file.sync()?;
        }
        Ok(())
    }
}

/// Why a file cannot be written, with what to do where that is known.
fn local(error: &io::Error) -> LeaderError {
    LeaderError::Local(Advised(error).to_string())
}

fn nothing() -> LeaderError {
    LeaderError::Nonsense("the leader has sent a copy that is not complete".into())
}

/// Whether a name is that of a file, and leads nowhere else.
fn is_plain(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=COPY_NAME_BYTES_MAX).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(is_plain)
}

/// Makes a data folder of the copy in its folder, beside what is in the data folder, as a restore
/// does, but with identities, and in the history of the leader. When this returns, it is on the
/// device.
pub fn load_copy(taken: &TakenCopy, folder: &Path, settings: &Settings) -> Result<(), LeaderError> {
    tracing::info!("the copy is here; it is checked and loaded");
    let (place, folder) = (folder.join(COPY_FOLDER), folder.join(NEW_FOLDER));
    remove_folder(&folder)?;
    let source = RealDisk::open_read_only(place)?;
    let target: Arc<dyn Disk> = Arc::new(RealDisk::open_or_create(&folder)?);
    let log_id = LogId {
        history: taken.history_id,
        secret: random(),
    };
    let mut store = StoreConfig::new(random());
    store.default_database.durability = store::Durability::Synced;
    store.secret = taken.secret;
    let config = RestoreConfig {
        store,
        log: LogConfig {
            segment_bytes: settings.log_segment.0,
            follows: true,
            ..LogConfig::new(log_id, SystemTimeSource.wall_ms())
        },
        trees: Some(TreePlace {
            folder: folder.join(TREES_FOLDER),
            config: TreeConfig::default(),
        }),
    };
    let watch = &mut |_, _| ControlFlow::Continue(());
    let restored = backup::restore(&source, &target, &config, &mut SystemTimeSource, watch);
    let restored = restored.map_err(|error| LeaderError::Local(error.to_string()))?;
    tracing::info!(
        "the copy has {} entries in {} databases, as of sequence {}",
        restored.entries,
        restored.databases,
        restored.manifest.cut.sequence
    );
    if restored.manifest.volatile_databases > 0 {
        tracing::warn!(
            "{} volatile databases of the leader are not replicated: they stay empty here",
            restored.manifest.volatile_databases
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leads_elsewhere_is_none() {
        for (name, is_good) in [
            ("00000000000000000001.log", true),
            ("MANIFEST", true),
            ("", false),
            ("..", false),
            (".hidden", false),
            ("a/b", false),
            ("a\0b", false),
        ] {
            assert_eq!(is_plain(name), is_good, "{name:?}");
        }
        assert!(!is_plain(&"a".repeat(COPY_NAME_BYTES_MAX + 1)));
    }

    #[test]
    fn a_copy_for_which_the_disk_has_no_room_is_not_begun() {
        let name = format!("pelton-copying-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let disk = Arc::new(RealDisk::open_or_create(&folder).expect("a writable folder"));
        let mut taking = Taking::new(disk, (&folder, None));
        let told = |bytes| CopyResponse {
            written_bytes: 1,
            total_bytes: bytes,
            ..CopyResponse::default()
        };
        for _ in 0..2 {
            assert!(matches!(taking.take(&told(1)), Ok(false)));
            for bytes in [1 << 61, u64::MAX] {
                let refused = taking.take(&told(bytes));
                let Err(LeaderError::Local(words)) = refused else {
                    panic!("there is no such disk: {refused:?}");
                };
                assert!(words.contains("has no room for it"), "{words}");
                assert!(words.contains(&folder.display().to_string()), "{words}");
            }
        }
        fs::remove_dir_all(&folder).expect("it is there");
    }

    #[test]
    fn no_copy_is_taken_of_a_server_that_follows_this_one_or_leads_in_an_older_epoch() {
        let name = format!("pelton-copying-circle-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let disk = Arc::new(RealDisk::open_or_create(&folder).expect("a writable folder"));
        let following = Following::new("leader:1978", [1; 16], 0);
        let confirmed = ConfirmedEpoch {
            history_id: 7,
            epoch: 3,
        };
        let mut taking = Taking::new(disk, (&folder, Some((&following, confirmed))));
        let (other, own) = ([2; 16], [1; 16]);
        for (ids, is_circle) in [(&[&other[..]][..], false), (&[&other[..], &own[..]], true)] {
            let mut bytes = Vec::new();
            CopyResponse {
                replica_ids: ids.into(),
                ..CopyResponse::default()
            }
            .encode(&mut bytes);
            let response = CopyResponse::decode(&bytes).expect("it was encoded");
            let taken = taking.take(&response);
            assert_eq!(matches!(taken, Err(LeaderError::Circle)), is_circle);
        }
        for (history, epoch, is_older) in [(7, 2, true), (7, 3, false), (8, 1, false)] {
            let response = CopyResponse {
                history_id: &api::history_id_bytes(history),
                epoch,
                ..CopyResponse::default()
            };
            let taken = taking.take(&response);
            assert_eq!(
                matches!(taken, Err(LeaderError::OlderEpoch { .. })),
                is_older
            );
        }
        fs::remove_dir_all(&folder).expect("it is there");
    }
}
