//! Files and trees that nothing names are not removed at once: they go to a folder of their own
//! within the data folder, and are removed from there after [`limits::SET_ASIDE_MS`]. Whoever finds
//! that they were needed can move them back until then.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wal::disk::Disk;

use crate::limits;

/// The folder, in the data folder.
pub const SET_ASIDE_FOLDER: &str = "set-aside";

/// Digits of the time in the names: milliseconds since 1970, up to the year 5138.
const TIME_DIGITS: usize = 14;

/// In front of the name of what was damaged: it has no time in front, so nothing removes it.
const KEPT: &str = "damaged-";

/// The files of a data folder that were set aside. Their names are the time at which that was done,
/// a dash, and the name that they had.
pub(crate) struct SetAside {
    /// The data folder.
    disk: Arc<dyn Disk>,
    /// The same, where trees were set aside: they are folders.
    folders: Option<PathBuf>,
    /// When the next file is due to be removed, in milliseconds since 1970; `u64::MAX`: there is
    /// none.
    due_ms: AtomicU64,
    clocks: ClocksAtStart,
}

/// What the clocks showed at the start, in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClocksAtStart {
    /// That of the machine.
    machine_ms: u64,
    /// That by which is asked later how long something has been set aside: never behind the data,
    /// whatever the machine's shows.
    pub(crate) data_ms: u64,
}

impl ClocksAtStart {
    /// `data_ms` is not behind `machine_ms`.
    pub(crate) fn new(machine_ms: u64, data_ms: u64) -> ClocksAtStart {
        ClocksAtStart {
            machine_ms,
            data_ms,
        }
    }

    /// Returns when something was set aside by the time of the data. What is named by an earlier
    /// time than the machine's was named by that: the time of the data may be years ahead of it,
    /// where a clock was, or that of a leader is, and nothing must go before it has been here for
    /// long enough.
    fn by_data_ms(self, named_ms: u64) -> u64 {
        match named_ms <= self.machine_ms {
            true => named_ms.saturating_add(self.data_ms.saturating_sub(self.machine_ms)),
            false => named_ms,
        }
    }
}

impl SetAside {
    /// What was set aside in a data folder. Nothing is read before the first
    /// [`expire`](SetAside::expire).
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        trees: Option<&Path>,
        clocks: ClocksAtStart,
    ) -> SetAside {
        SetAside {
            disk,
            folders: trees.and_then(folder_beside),
            due_ms: AtomicU64::new(0),
            clocks,
        }
    }

    /// Moves files of a folder within the data folder here; returns how many. One that cannot be
    /// moved stays.
    pub(crate) fn take(&self, folder: &str, names: &[String], now_ms: u64) -> io::Result<u64> {
        if names.is_empty() {
            return Ok(0);
        }
        let here = self.disk.subfolder(SET_ASIDE_FOLDER)?;
        let mut moved = 0;
        for name in names {
            let from = format!("{folder}/{name}");
            let to = format!("{SET_ASIDE_FOLDER}/{}", dated(now_ms, name));
            moved += u64::from(self.disk.rename(&from, &to).is_ok());
        }
        // First where they are now: at no moment a loss of power takes them from both.
        here.sync_folder()?;
        self.disk.subfolder(folder)?.sync_folder()?;
        self.due_ms.fetch_min(
            now_ms.saturating_add(limits::SET_ASIDE_MS),
            Ordering::Relaxed,
        );
        Ok(moved)
    }

    /// When [`expire`](SetAside::expire) has something to do, in milliseconds since 1970;
    /// `u64::MAX`: there is nothing.
    pub(crate) fn due_ms(&self) -> u64 {
        self.due_ms.load(Ordering::Relaxed)
    }

    /// Removes what has been here long enough; returns how many files that were.
    pub(crate) fn expire(&self, now_ms: u64) -> io::Result<u64> {
        if now_ms < self.due_ms() {
            return Ok(0);
        }
        let mut expiry = ExpirySweep {
            now_ms,
            due_ms: u64::MAX,
            removed: 0,
            clocks: self.clocks,
        };
        if self.disk.has_subfolder(SET_ASIDE_FOLDER)? {
            let here = self.disk.subfolder(SET_ASIDE_FOLDER)?;
            for name in here.list()? {
                expiry.visit(&name, &|| here.remove(&name));
            }
        }
        for folder in self.folders()? {
            if let Some(name) = folder.file_name().and_then(|name| name.to_str()) {
                expiry.visit(name, &|| fs::remove_dir_all(&folder));
            }
        }
        self.due_ms.store(expiry.due_ms, Ordering::Relaxed);
        Ok(expiry.removed)
    }

    /// The folders that are here.
    fn folders(&self) -> io::Result<Vec<PathBuf>> {
        let entries = match self.folders.as_ref().map(fs::read_dir) {
            None => return Ok(Vec::new()),
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Some(entries) => entries?,
        };
        let mut folders = Vec::new();
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
        }
        Ok(folders)
    }
}

/// A look through what was set aside.
struct ExpirySweep {
    now_ms: u64,
    /// When the next one is due.
    due_ms: u64,
    removed: u64,
    clocks: ClocksAtStart,
}

impl ExpirySweep {
    /// Removes what has been here long enough.
    fn visit(&mut self, name: &str, remove: &dyn Fn() -> io::Result<()>) {
        // What has no time in its name was brought by somebody else.
        let Some(since_ms) = time_of(name) else {
            return;
        };
        let since_ms = self.clocks.by_data_ms(since_ms);
        let until_ms = since_ms.saturating_add(limits::SET_ASIDE_MS);
        if until_ms > self.now_ms {
            self.due_ms = self.due_ms.min(until_ms);
        } else if remove().is_ok() {
            self.removed += 1;
        } else {
            let retry_ms = self.now_ms.saturating_add(limits::SET_ASIDE_RETRY_MS);
            self.due_ms = self.due_ms.min(retry_ms);
        }
    }
}

/// Moves trees out of their folder; returns how many. One that cannot be moved stays.
pub(crate) fn take_folders(trees: &Path, names: &[String], now_ms: u64) -> io::Result<u64> {
    if names.is_empty() {
        return Ok(0);
    }
    let Some(here) = make_folder_beside(trees)? else {
        return Ok(0);
    };
    let mut moved = 0;
    for name in names {
        let to = here.join(dated(now_ms, name));
        moved += u64::from(fs::rename(trees.join(name), to).is_ok());
    }
    // First where they are now: at no moment a loss of power takes them from both.
    File::open(here)?.sync_all()?;
    File::open(trees)?.sync_all()?;
    Ok(moved)
}

/// Moves a tree that somebody needed out of its folder, and says where it is now. It is not removed
/// after a time: it may be all that is left of a database. An error means that it is where it was,
/// or that it is not certain where it is after a loss of power; `None`: trees of this folder cannot
/// be set aside.
pub(crate) fn keep_folder(trees: &Path, name: &str, now_ms: u64) -> io::Result<Option<PathBuf>> {
    let Some(here) = make_folder_beside(trees)? else {
        return Ok(None);
    };
    let mut at_ms = now_ms;
    let to = loop {
        let to = here.join(format!("{KEPT}{}", dated(at_ms, name)));
        // Nothing that is here already is replaced.
        match fs::symlink_metadata(&to) {
            Ok(_) => at_ms += 1,
            Err(error) if error.kind() == io::ErrorKind::NotFound => break to,
            Err(error) => return Err(error),
        }
    };
    fs::rename(trees.join(name), &to)?;
    // First where it is now: at no moment a loss of power takes it from both.
    File::open(here)?.sync_all()?;
    File::open(trees)?.sync_all()?;
    Ok(Some(to))
}

/// Makes the folder where trees of this folder are set aside, on the device, if it is not there.
fn make_folder_beside(trees: &Path) -> io::Result<Option<PathBuf>> {
    let Some(here) = folder_beside(trees) else {
        return Ok(None);
    };
    if !here.try_exists()? {
        fs::create_dir(&here)?;
        let data = trees.parent().filter(|data| !data.as_os_str().is_empty());
        File::open(data.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(Some(here))
}

/// Where trees of this folder are set aside.
fn folder_beside(trees: &Path) -> Option<PathBuf> {
    Some(trees.parent()?.join(SET_ASIDE_FOLDER))
}

fn dated(now_ms: u64, name: &str) -> String {
    format!("{now_ms:0TIME_DIGITS$}-{name}")
}

fn time_of(name: &str) -> Option<u64> {
    let (time, _) = name.split_once('-')?;
    let is_time = time.len() == TIME_DIGITS && time.bytes().all(|byte| byte.is_ascii_digit());
    is_time.then(|| time.parse().ok())?
}

impl fmt::Debug for SetAside {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SetAside")
            .field("due_ms", &self.due_ms)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wal::disk::SimulatedDisk;

    const BEGIN_MS: u64 = 1_700_000_000_000;

    const RIGHT: ClocksAtStart = ClocksAtStart {
        machine_ms: BEGIN_MS,
        data_ms: BEGIN_MS,
    };

    fn names(disk: &SimulatedDisk) -> Vec<String> {
        let folder = disk.folder(SET_ASIDE_FOLDER);
        folder.list().expect("it can be listed")
    }

    #[test]
    fn what_was_set_aside_goes_when_its_time_is_over_and_nothing_else_does() {
        let disk = testkit::simulated_disk(1);
        let source = disk.folder("blobs");
        let aside = SetAside::new(Arc::new(disk.clone()), None, RIGHT);
        let mut now_ms = BEGIN_MS;
        assert_eq!(aside.take("blobs", &[], now_ms).expect("nothing to do"), 0);
        // Twice: the second file has the name that the first one had.
        for _ in 0..2 {
            source.create("a.blob").expect("it is new");
            let moved = aside.take("blobs", &["a.blob".into()], now_ms);
            assert_eq!(moved.expect("the disk is whole"), 1);
            assert_eq!(source.list().expect("it can be listed"), [""; 0]);
            now_ms += 10;
        }
        let strange = disk.folder(SET_ASIDE_FOLDER);
        strange.create("1-a.blob").expect("it is new");
        disk.lose_power();
        assert_eq!(names(&disk).len(), 2, "what was moved is durable");
        strange.create("1-a.blob").expect("it is new");

        // A new run knows nothing of when it is due.
        let aside = SetAside::new(Arc::new(disk.clone()), None, RIGHT);
        for (after_ms, removed, due_ms) in [
            (0, 0, BEGIN_MS + limits::SET_ASIDE_MS),
            (
                limits::SET_ASIDE_MS,
                1,
                BEGIN_MS + 10 + limits::SET_ASIDE_MS,
            ),
            (limits::SET_ASIDE_MS + 10, 1, u64::MAX),
        ] {
            assert_eq!(
                aside.expire(BEGIN_MS + after_ms).expect("whole"),
                removed,
                "after {after_ms} ms"
            );
            assert_eq!(aside.due_ms(), due_ms);
        }
        assert_eq!(names(&disk), ["1-a.blob"]);
    }

    #[test]
    fn what_was_set_aside_stays_as_long_where_the_time_of_the_data_is_years_ahead() {
        let ahead_ms = 10 * 365 * 24 * 3_600_000;
        let clocks = ClocksAtStart::new(BEGIN_MS, BEGIN_MS + ahead_ms);
        let disk = testkit::simulated_disk(3);
        let here = disk.folder(SET_ASIDE_FOLDER);
        // By the clock of the machine, a moment before the start; and by the time of the data.
        for at_ms in [BEGIN_MS - 10, BEGIN_MS + ahead_ms] {
            here.create(&dated(at_ms, "a")).expect("it is new");
        }
        let aside = SetAside::new(Arc::new(disk.clone()), None, clocks);
        let after = |ms: u64| BEGIN_MS + ahead_ms + ms;
        let is_over_ms = limits::SET_ASIDE_MS;
        for (ms, removed) in [
            (0, 0),
            (is_over_ms - 11, 0),
            (is_over_ms - 10, 1),
            (is_over_ms, 1),
        ] {
            assert_eq!(aside.expire(after(ms)).expect("whole"), removed, "{ms}");
        }
        assert_eq!(names(&disk), [""; 0]);
    }

    #[test]
    fn a_file_that_cannot_be_moved_stays_and_one_that_cannot_be_removed_is_tried_again() {
        let disk = testkit::simulated_disk(2);
        let source = disk.folder("blobs");
        for name in ["a", "b"] {
            source.create(name).expect("it is new");
        }
        let aside = SetAside::new(Arc::new(disk.clone()), None, RIGHT);
        disk.plan_next(wal::disk::Step::Rename, 0, wal::disk::Fault::Error);
        let names_of_all = ["a".to_owned(), "b".to_owned()];
        let moved = aside.take("blobs", &names_of_all, BEGIN_MS);
        assert_eq!(moved.expect("the folders can be synced"), 1);
        assert_eq!(source.list().expect("it can be listed"), ["a"]);

        let now_ms = BEGIN_MS + limits::SET_ASIDE_MS;
        disk.plan_next(wal::disk::Step::Remove, 0, wal::disk::Fault::Error);
        assert_eq!(aside.expire(now_ms).expect("it can be listed"), 0);
        let retry_ms = now_ms + limits::SET_ASIDE_RETRY_MS;
        assert_eq!(aside.due_ms(), retry_ms);
        assert_eq!(aside.expire(retry_ms).expect("it can be listed"), 1);
        assert_eq!(names(&disk), [""; 0]);
    }
}
