//! What the file systems of the data folder and of the folder for backups have left, and how old
//! the newest backup is: read from the system when somebody asks.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use rustix::fs::statvfs;

use super::exposition::FamilyKind::Gauge;
use super::exposition::MetricsPage;
use crate::limits::{METRICS_BACKUPS, METRICS_FOLDERS_MS};

/// The file that is written last into a backup.
const MANIFEST: &str = "MANIFEST";

/// The label of the data folder, which is the name of its flag.
const DATA: &str = "data";

/// The same of the folder for backups.
const BACKUP_ROOT: &str = "backup-root";

/// The folders whose file systems are shown.
#[derive(Clone, Debug, Default)]
pub struct WatchedFolders {
    pub data: Option<PathBuf>,
    pub backup_root: Option<PathBuf>,
}

/// Room of the file system of one folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FolderRoom {
    folder: &'static str,
    /// For others than root, as the server should be one.
    free_bytes: u64,
    total_bytes: u64,
}

/// Takes one figure of a room.
type RoomFigure = fn(&FolderRoom) -> u64;

/// What was read at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FoldersReading {
    rooms: Vec<FolderRoom>,
    /// When the newest backup was complete, in seconds since 1970, 0 without one; `None`: there is
    /// no folder for backups, or it cannot be read.
    newest_backup_s: Option<u64>,
}

impl WatchedFolders {
    fn read(&self) -> FoldersReading {
        let folders = [(DATA, &self.data), (BACKUP_ROOT, &self.backup_root)];
        let rooms = folders
            .into_iter()
            .filter_map(|(folder, path)| room(folder, path.as_deref()?));
        FoldersReading {
            rooms: rooms.collect(),
            newest_backup_s: self.backup_root.as_deref().and_then(newest_backup_s),
        }
    }
}

fn room(folder: &'static str, path: &Path) -> Option<FolderRoom> {
    let found = statvfs(path).ok()?;
    Some(FolderRoom {
        folder,
        free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
        total_bytes: found.f_blocks.saturating_mul(found.f_frsize),
    })
}

fn newest_backup_s(root: &Path) -> Option<u64> {
    let entries = fs::read_dir(root).ok()?.take(METRICS_BACKUPS);
    let complete = entries.filter_map(|entry| {
        let modified = fs::metadata(entry.ok()?.path().join(MANIFEST)).ok()?;
        let since = modified.modified().ok()?;
        Some(since.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs())
    });
    Some(complete.max().unwrap_or(0))
}

/// Reads the folders on a thread of its own: a device that hangs, or a network that is gone, must
/// hold up neither the page nor the stop of the server.
#[derive(Debug, Default)]
pub struct FoldersReader {
    folders: Arc<WatchedFolders>,
    /// Of a reading that has not come back yet.
    pending: Mutex<Option<Receiver<FoldersReading>>>,
}

impl FoldersReader {
    pub fn new(folders: WatchedFolders) -> FoldersReader {
        FoldersReader {
            folders: Arc::new(folders),
            pending: Mutex::default(),
        }
    }

    /// Returns what is read now; nothing if that takes too long, or no thread can be had.
    pub(super) fn read(&self) -> FoldersReading {
        let folders = Arc::clone(&self.folders);
        self.read_by(move || folders.read())
    }

    fn read_by(&self, read: impl FnOnce() -> FoldersReading + Send + 'static) -> FoldersReading {
        // Nothing that is done under this lock can panic half-way.
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let is_under_way = |receiver: &Receiver<_>| {
            // What has come back meanwhile is old.
            matches!(receiver.try_recv(), Err(mpsc::TryRecvError::Empty))
        };
        if pending.as_ref().is_some_and(is_under_way) {
            return FoldersReading::default();
        }
        let (sender, receiver) = mpsc::channel();
        let thread = thread::Builder::new().name("pelton-folders".into());
        let begun = thread.spawn(move || {
            // Whoever does not wait any more does not need it.
            let _ = sender.send(read());
        });
        *pending = None;
        if begun.is_err() {
            return FoldersReading::default();
        }
        match receiver.recv_timeout(Duration::from_millis(METRICS_FOLDERS_MS)) {
            Ok(reading) => reading,
            Err(RecvTimeoutError::Disconnected) => FoldersReading::default(),
            Err(RecvTimeoutError::Timeout) => {
                *pending = Some(receiver);
                FoldersReading::default()
            }
        }
    }
}

/// Writes what could be read; what could not is left out.
pub(super) fn write(page: &mut MetricsPage, reading: &FoldersReading) {
    let families: [(_, _, RoomFigure); 2] = [
        (
            "pelton_folder_free_bytes",
            "What the file system of a folder has left, by its flag: data or backup-root.",
            |room| room.free_bytes,
        ),
        (
            "pelton_folder_total_bytes",
            "The size of the file system of a folder.",
            |room| room.total_bytes,
        ),
    ];
    for (name, help, of) in families {
        if reading.rooms.is_empty() {
            break;
        }
        page.family(name, Gauge, help);
        for room in &reading.rooms {
            page.sample(&[("folder", room.folder)], of(room));
        }
    }
    if let Some(seconds) = reading.newest_backup_s {
        page.single(
            "pelton_newest_backup_seconds",
            Gauge,
            "When the newest backup in the folder of --backup-root was complete, in seconds since \
             1970; 0: there is none.",
            seconds,
        );
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let name = format!("pelton-folders-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("folder is made");
        folder
    }

    #[test]
    fn rooms_of_the_folders_that_are_there_are_read() {
        let (data, missing) = (folder("data"), folder("data").join("missing"));
        let reader = FoldersReader::new(WatchedFolders {
            data: Some(data),
            backup_root: Some(missing),
        });
        for _ in 0..2 {
            let reading = reader.read();
            let [room] = reading.rooms[..] else {
                panic!("{reading:?}");
            };
            assert_eq!(room.folder, "data");
            assert!(room.total_bytes > 0 && room.free_bytes <= room.total_bytes);
            assert_eq!(reading.newest_backup_s, None);
        }
        let nothing = FoldersReader::new(WatchedFolders::default()).read();
        assert_eq!(nothing, FoldersReading::default());
    }

    #[test]
    fn the_newest_complete_backup_counts() {
        let root = folder("backups");
        assert_eq!(newest_backup_s(&root), Some(0));
        for (name, seconds) in [("b", 2_000), ("a", 3_000), ("c", 1_000)] {
            fs::create_dir_all(root.join(name)).expect("folder is made");
            let manifest = fs::File::create(root.join(name).join(MANIFEST)).expect("it is made");
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            manifest.set_modified(at).expect("its time is set");
        }
        fs::create_dir_all(root.join("unfinished")).expect("folder is made");
        fs::write(root.join("a file"), "").expect("it is written");
        assert_eq!(newest_backup_s(&root), Some(3_000));
        fs::remove_dir_all(&root).expect("it is there");
        assert_eq!(newest_backup_s(&root), None);
    }

    #[test]
    fn a_device_that_hangs_is_left_out_and_asked_by_one_thread_alone() {
        let reader = FoldersReader::default();
        let reading = || FoldersReading {
            newest_backup_s: Some(7),
            ..FoldersReading::default()
        };
        for _ in 0..2 {
            let (wake, woken) = channel::<()>();
            let hangs = move || {
                // Until the test has ended it.
                let _ = woken.recv();
                FoldersReading::default()
            };
            assert_eq!(reader.read_by(hangs), FoldersReading::default());
            let asked = reader.read_by(|| panic!("another thread was begun"));
            assert_eq!(asked, FoldersReading::default());
            drop(wake);
            while reader.read_by(reading) != reading() {
                thread::yield_now();
            }
        }
    }

    #[test]
    fn what_cannot_be_read_has_no_family() {
        let mut page = MetricsPage::default();
        write(&mut page, &FoldersReading::default());
        assert_eq!(page.finish(), "");
        let mut page = MetricsPage::default();
        let rooms = vec![FolderRoom {
            folder: DATA,
            free_bytes: 3,
            total_bytes: 4,
        }];
        let reading = FoldersReading {
            rooms,
            newest_backup_s: Some(0),
        };
        write(&mut page, &reading);
        let text = page.finish();
        for line in [
            "pelton_folder_free_bytes{folder=\"data\"} 3\n",
            "pelton_folder_total_bytes{folder=\"data\"} 4\n",
            "pelton_newest_backup_seconds 0\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }
}
