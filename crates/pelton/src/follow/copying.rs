//! The first copy: everything that the leader has, as it is at one commit.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::replication::{CopyRequest, CopyResponse};
use api::rpc::replication::Copy;
use server::TimeSource;
use store::backup::{self, RestoreConfig};
use store::blob;
use store::durable::{TREES_FOLDER, TreePlace};
use store::tree::TreeConfig;
use store::{FolderSecret, StoreConfig};
use wal::disk::{Disk, DiskFile, RealDisk};
use wal::{LogConfig, LogId};

use super::leader::{Leader, LeaderError, begin, read_until};
use crate::limits::{COPY_NAME_BYTES_MAX, COPY_SILENCE_MS, COPY_SYNC_BYTES, START_PROGRESS_MS};
use crate::randomness::random;
use crate::settings::Settings;
use crate::size::Size;
use crate::time_source::SystemTimeSource;

/// The folder in the data folder that holds the files of a copy until they are checked.
pub const COPY_FOLDER: &str = "replica-copy";

/// A copy that was taken.
struct TakenCopy {
    history_id: u64,
    secret: FolderSecret,
}

/// A file of a copy that is being written.
struct OpenFile {
    file: Arc<dyn DiskFile>,
    name: String,
    bytes: u64,
    written_bytes: u64,
    unsynced_bytes: u64,
}

/// Takes a copy of the leader, checks it, and makes the data folder of it.
pub fn copy(leader: &Leader, folder: &Path, settings: &Settings) -> Result<(), LeaderError> {
    let place = folder.join(COPY_FOLDER);
    remove_folder(&place)?;
    let taken = {
        let disk = RealDisk::open_or_create(&place)?;
        Taking::new(Arc::new(disk)).run(leader)?
    };
    tracing::info!("the copy is here; it is checked and loaded");
    restore(&taken, &place, folder, settings)?;
    Ok(remove_folder(&place)?)
}

/// Removes a folder with all that is in it; that there is none is as good.
pub fn remove_folder(path: &Path) -> std::io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

struct Taking {
    disk: Arc<dyn Disk>,
    open: Option<OpenFile>,
    taken: Option<TakenCopy>,
    bytes: u64,
    told: Instant,
}

impl Taking {
    fn new(disk: Arc<dyn Disk>) -> Taking {
        Taking {
            disk,
            open: None,
            taken: None,
            bytes: 0,
            told: Instant::now(),
        }
    }

    fn run(mut self, leader: &Leader) -> Result<TakenCopy, LeaderError> {
        let mut channel = leader.connect()?;
        let mut call = begin::<Copy>(&mut channel, &CopyRequest {})?;
        let silence = Duration::from_millis(COPY_SILENCE_MS);
        let complete = read_until(&mut call, silence, &mut |response| {
            Ok(self.take(response)?.then_some(()))
        })?;
        complete.and(self.taken).ok_or_else(nothing)
    }

    /// Takes a message; returns whether that was the last one.
    fn take(&mut self, response: &CopyResponse<'_>) -> Result<bool, LeaderError> {
        if !response.history_id.is_empty() {
            let secret = <[u8; FolderSecret::BYTES]>::try_from(response.secret);
            self.taken = Some(TakenCopy {
                history_id: api::history_id(response.history_id),
                secret: secret.map_or(FolderSecret::NONE, FolderSecret::new),
            });
        }
        if !response.file.is_empty() {
            self.close_file()?;
            self.open = Some(self.create(response.file, response.size_bytes)?);
        }
        if !response.data.is_empty() {
            let file = self.open.as_mut().ok_or_else(nothing)?;
            file.add(response.data)?;
            self.bytes += response.data.len() as u64;
        }
        self.tell(response);
        if response.complete {
            self.close_file()?;
            self.disk.sync_folder()?;
        }
        Ok(response.complete)
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

/// Makes the data folder of a copy, as a restore does, but with its identities and in its history.
fn restore(
    taken: &TakenCopy,
    place: &Path,
    folder: &Path,
    settings: &Settings,
) -> Result<(), LeaderError> {
    let source = RealDisk::open_read_only(place)?;
    let target: Arc<dyn Disk> = Arc::new(RealDisk::open(folder)?);
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
}
