//! The data folder: what is taken, and what is refused and left as it is.

use std::fs;
use std::path::{Path, PathBuf};

use store::durable::{FolderError, OpenError, StorageEvent, open_folder};
use store::{DatabaseId, Durability, Mode, Store, StoreConfig};
use testkit::suite::{StandingClock, put};
use wal::LogConfig;
use wal::disk::Disk;

use crate::bench::{Durable, log_config};

fn config(durability: Durability) -> StoreConfig {
    let mut config = StoreConfig::new(1);
    config.default_database.durability = durability;
    config
}

/// A folder of its own that goes when the test is over.
pub struct TestFolder(pub PathBuf);

impl TestFolder {
    pub fn new(name: &str) -> TestFolder {
        let path = std::env::temp_dir().join(format!("pelton-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("a temporary folder can be made");
        TestFolder(path)
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn open(path: &Path) -> Result<(), String> {
    let disk = open_folder(path).map_err(|error| error.to_string())?;
    let opened = Store::open(config(Durability::Synced), disk, &log_config());
    opened.map(drop).map_err(|error| error.to_string())
}

fn files(path: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(path)
        .expect("it can be listed")
        .map(|entry| {
            entry
                .expect("it can be read")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

#[test]
fn an_empty_or_missing_folder_becomes_a_data_folder() {
    let folder = TestFolder::new("new");
    open(&folder.0.join("data")).expect("it is made");
    open(&folder.0.join("data")).expect("it is one");
    let error = open(&folder.0.join("missing/data")).expect_err("its parent is missing");
    assert!(
        error.contains("missing/data") && error.contains("cannot be used"),
        "{error}"
    );
    assert_eq!(files(&folder.0), ["data"]);
}

#[test]
fn a_folder_of_something_else_is_left_alone() {
    let folder = TestFolder::new("foreign");
    fs::write(folder.0.join("letter.txt"), "dear").expect("it can be written");
    let error = open(&folder.0).expect_err("this is somebody's");
    assert!(error.contains("letter.txt"), "{error}");
    assert_eq!(files(&folder.0), ["letter.txt"]);
    fs::remove_file(folder.0.join("letter.txt")).expect("it is there");
    fs::create_dir(folder.0.join("letters")).expect("it can be made");
    let error = open(&folder.0).expect_err("this is somebody's");
    assert!(error.contains("letters"), "{error}");
    assert_eq!(files(&folder.0), ["letters"]);
}

#[test]
fn a_newer_or_strange_format_is_refused() {
    let folder = TestFolder::new("newer");
    open(&folder.0).expect("it is made");
    let path = folder.0.join("pelton-data");
    let text = fs::read_to_string(&path).expect("it is there");
    // Only the number: this is what the checksum is for.
    fs::write(&path, text.replace("format 6", "format 7")).expect("it can be written");
    let error = open(&folder.0).expect_err("it was changed");
    assert!(error.contains("pelton-data: this file"), "{error}");
    let newer = text
        .replace("format 6", "format 7")
        .replace("end ", "end 0");
    fs::write(&path, newer).expect("it can be written");
    let before = entries(&folder.0);
    let error = open(&folder.0).expect_err("nobody knows what this is");
    assert!(
        error.contains("format 7") && error.contains("formats up to 6"),
        "{error}"
    );
    assert_eq!(entries(&folder.0), before);
}

#[test]
fn data_folder_whose_own_file_is_gone_or_damaged_is_told_from_a_foreign_one() {
    let folder = TestFolder::new("unmarked");
    open(&folder.0).expect("it is made");
    let path = folder.0.join("pelton-data");
    let before = files(&folder.0);
    for text in ["something", ""] {
        for _ in 0..2 {
            fs::write(&path, text).expect("it can be written");
            let error = open(&folder.0).expect_err("nobody knows what its log must have");
            assert!(error.contains("pelton-data: this file"), "{error}");
            assert!(error.contains("serve --accept-loss"), "{error}");
            assert_eq!(files(&folder.0), before);
        }
        let disk = open_folder(&folder.0).expect("it is there");
        let accepting = LogConfig {
            accept_loss: true,
            ..log_config()
        };
        let opened = Store::open(config(Durability::Synced), disk, &accepting);
        let mut opened = opened.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(opened.committer.take_events(), [StorageEvent::FolderRemade]);
        drop(opened);
        open(&folder.0).expect("the file is made anew");
    }
    for _ in 0..2 {
        fs::remove_file(&path).expect("it is there");
        let error = open(&folder.0).expect_err("nobody knows what its log must have");
        assert!(
            error.contains("`pelton-data` is missing, or no file"),
            "{error}"
        );
        assert!(error.contains("00000000000000000001.log"), "{error}");
        assert!(!path.exists());
        fs::write(&path, "").expect("it can be written");
    }
}

#[test]
fn a_second_server_is_refused() {
    let disk = testkit::simulated_disk(1);
    let first = Durable::open(config(Durability::Synced), &disk).expect("it is empty");
    let steps = disk.step_count();
    let second = Durable::open(config(Durability::Synced), &disk).err();
    assert!(
        matches!(second, Some(OpenError::Folder(FolderError::Locked { .. }))),
        "{second:?}"
    );
    assert_eq!(disk.step_count(), steps);
    drop(first);
    Durable::open(config(Durability::Synced), &disk).expect("the lock is free again");
}

/// However often the power fails while a folder is made, the next start makes it, or finds it made.
#[test]
fn the_making_of_a_folder_may_be_interrupted() {
    let mut step = 0;
    loop {
        let disk = testkit::simulated_disk(step as u64);
        disk.plan(step, wal::disk::Fault::PowerLoss);
        let opened = Durable::open(config(Durability::Synced), &disk);
        if opened.is_ok() {
            break;
        }
        disk.lose_power();
        Durable::open(config(Durability::Synced), &disk)
            .unwrap_or_else(|error| panic!("after a power loss at step {step}: {error}"));
        step += 1;
    }
    assert!(step > 5);
}

/// A second power loss, at any step of the start that follows the first, may keep a renaming and
/// lose what came before it.
#[test]
fn the_second_making_of_a_folder_may_be_interrupted_too() {
    const STEPS: usize = 24;
    for seed in 0..6 * STEPS * STEPS {
        let (first, second) = (seed / 6 / STEPS, seed / 6 % STEPS);
        let disk = testkit::simulated_disk(seed as u64);
        for step in [first, second] {
            disk.plan(disk.step_count() + step, wal::disk::Fault::PowerLoss);
            drop(Durable::open(config(Durability::Synced), &disk));
            disk.lose_power();
        }
        // Steps that a start did not come to are met by the next one.
        for _ in 0..3 {
            drop(Durable::open(config(Durability::Synced), &disk));
            disk.lose_power();
        }
        Durable::open(config(Durability::Synced), &disk)
            .unwrap_or_else(|error| panic!("seed {seed}, steps {first} and {second}: {error}"));
    }
}

#[test]
fn a_default_database_with_content_cannot_become_volatile() {
    let disk = testkit::simulated_disk(1);
    let mut durable = Durable::open(config(Durability::Volatile), &disk).expect("it is empty");
    drop(durable);
    durable = Durable::open(config(Durability::Written), &disk).expect("it is empty");
    let mut batch = durable.store.write_batch();
    let mut commit = batch.begin(0, DatabaseId::DEFAULT, Mode::Atomic);
    commit.push(&put(b"key", b"value")).expect("fits");
    commit.submit();
    durable.mailbox.submit(&mut batch);
    assert!(durable.commit_loop.round(&mut StandingClock { now_ms: 1 }));
    drop(durable);
    let steps = disk.step_count();
    let error = Durable::open(config(Durability::Volatile), &disk).err();
    assert_eq!(disk.step_count(), steps, "nothing is changed");
    assert!(
        matches!(error, Some(OpenError::DefaultHasContent)),
        "{error:?}"
    );
    Durable::open(config(Durability::Synced), &disk).expect("another durability may do");
    let names = disk.list().expect("it can be listed");
    assert!(names.contains(&"pelton-data".to_string()), "{names:?}");
}

/// Names, types, and what is in files.
fn entries(path: &Path) -> Vec<(PathBuf, bool, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).expect("it can be listed") {
        let path = entry.expect("it can be read").path();
        let kind = fs::symlink_metadata(&path).expect("it is there");
        let bytes = match kind.is_file() {
            true => fs::read(&path).expect("it can be read"),
            false => Vec::new(),
        };
        found.push((path, kind.is_dir(), bytes));
    }
    found.sort();
    found
}

fn make_folder(path: &Path) {
    fs::create_dir(path).expect("nothing is there");
}

fn make_file(path: &Path) {
    fs::write(path, "text").expect("nothing is there");
}

fn make_pipe(path: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let mode = Mode::from_raw_mode(0o600);
    mknodat(CWD, path, FileType::Fifo, mode, 0).expect("nothing is there");
}

/// It is met when the log is open and was written to, unless somebody looks before.
#[test]
fn a_folder_in_the_place_of_a_new_format_file_is_refused_before_anything_is_written() {
    let folder = TestFolder::new("in-the-way");
    open(&folder.0).expect("it is made");
    let new = folder.0.join("pelton-data.new");
    fs::create_dir(&new).expect("nothing is there");
    fs::write(new.join("x"), "text").expect("there is room");
    let before = entries(&folder.0);
    for _ in 0..2 {
        let error = open(&folder.0).expect_err("it is in the way");
        assert!(
            error.contains("pelton-data.new: there is a folder"),
            "{error}"
        );
        assert!(entries(&folder.0) == before, "{error}");
    }
    fs::remove_dir_all(&new).expect("it is there");
    // What else has the name is replaced.
    for make in [make_pipe as fn(&Path), |path| {
        std::os::unix::fs::symlink("nowhere", path).expect("nothing is there");
    }] {
        make(&new);
        open(&folder.0).unwrap_or_else(|error| panic!("{error}"));
        assert!(!new.is_symlink() && !new.exists());
    }
}

/// What has the name of a snapshot, and is none, is not said to be missing.
#[test]
fn a_snapshot_that_is_no_file_is_named() {
    let folder = TestFolder::new("no-snapshot");
    open(&folder.0).expect("it is made");
    let snapshot = folder.0.join(store::snapshot::file_name(5));
    for make in [make_folder as fn(&Path), make_pipe] {
        make(&snapshot);
        let before = entries(&folder.0);
        let error = open(&folder.0).expect_err("it is none");
        let words = format!("{}: this is not a file", snapshot.display());
        assert!(error.contains(&words), "{error}");
        assert!(entries(&folder.0) == before);
        let removed = fs::remove_dir(&snapshot).or_else(|_| fs::remove_file(&snapshot));
        removed.expect("it is there");
    }
    open(&folder.0).expect("it is whole");
}

/// What has the name of something of ours and is of another type: a refusal that names it, and
/// nothing is changed.
#[test]
fn what_is_of_the_wrong_type_is_refused_by_name() {
    type Make = fn(&Path);
    let folder = TestFolder::new("types");
    open(&folder.0).expect("it is made");
    let is_log = |name: &String| name.ends_with(".log");
    let log = files(&folder.0).into_iter().find(is_log);
    let log = log.expect("there is one");
    let cases: [(&str, Make, &str); 8] = [
        ("lock", make_folder, "lock"),
        ("lock", make_pipe, "lock"),
        ("blobs", make_file, "blobs"),
        ("blobs", make_pipe, "blobs"),
        (
            "pelton-data",
            make_folder,
            "`pelton-data` is missing, or no file",
        ),
        (
            "pelton-data",
            make_pipe,
            "`pelton-data` is missing, or no file",
        ),
        (&log, make_folder, "log"),
        (&log, make_pipe, "log"),
    ];
    for (name, make, words) in cases {
        let (path, moved) = (folder.0.join(name), folder.0.with_extension("moved"));
        fs::rename(&path, &moved).expect("it is there");
        make(&path);
        let before = entries(&folder.0);
        for _ in 0..2 {
            let error = open(&folder.0).expect_err("this is not ours");
            assert!(error.contains(words), "{name}: {error}");
            assert_eq!(entries(&folder.0), before, "{name}: {error}");
        }
        fs::remove_dir(&path)
            .or_else(|_| fs::remove_file(&path))
            .expect("it is there");
        fs::rename(&moved, &path).expect("nothing is there");
        open(&folder.0).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    // What has no name of ours, or leads nowhere, is nobody's business.
    use std::os::unix::ffi::OsStrExt as _;
    let strange = std::ffi::OsStr::from_bytes(b"strange-\xff.log");
    fs::write(folder.0.join(strange), "text").expect("nothing is there");
    std::os::unix::fs::symlink("nowhere", folder.0.join("strange")).expect("nothing is there");
    open(&folder.0).expect("it is ours");
}
