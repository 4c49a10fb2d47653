//! Copies of a data folder for servers that follow its own, over real files.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use store::backup::{
    BackupError, COPIES_FOLDER, CopiedFile, MANIFEST_NAME, ReplicaCopy, ReplicaCopyError,
    remove_left_copies,
};
use store::durable::{Durable, Opened, open_folder};
use store::{Decision, LogReadError, ReplicaPiece, Store, WatchError};
use testkit::suite::RunningClock;

use crate::bench::log_config;
use crate::folder::TestFolder;
use crate::threads::{commit, config};

const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A data folder with a store that has threads.
struct Leader {
    folder: TestFolder,
    store: Store,
    durable: Durable,
}

impl Leader {
    fn open(name: &str) -> Leader {
        let folder = TestFolder::new(name);
        let disk = open_folder(&folder.0).expect("it is empty");
        let opened = Store::open(config(), disk, &log_config());
        let Opened {
            store, committer, ..
        } = opened.expect("it is empty");
        let reporter = Box::new(|_| ());
        let durable = Durable::start(committer, RunningClock::new(1000), reporter);
        Leader {
            folder,
            store,
            durable: durable.expect("threads can be started"),
        }
    }

    fn copy(&self, flow: ControlFlow<()>) -> Result<ReplicaCopy, ReplicaCopyError> {
        let mut clock = RunningClock::new(1000);
        let mut watch = |_| flow;
        let path = &self.folder.0;
        (self.durable).copy_for_replica(path, "leader", &mut clock, &mut watch)
    }

    fn sequence(&self) -> u64 {
        let log = self.store.log_statistics();
        log.expect("there is a log").written_sequence
    }
}

/// Reads a file in pieces of so many bytes, of which so many are claimed.
fn read(
    copy: &ReplicaCopy,
    file: &CopiedFile,
    (bytes, claimed_bytes): (usize, usize),
) -> Result<Vec<u8>, LogReadError> {
    let mut reading = copy.read(file);
    let mut all = Vec::new();
    loop {
        let piece = reading.run(bytes, claimed_bytes)?;
        let held_bytes = piece.held_bytes();
        let ReplicaPiece::File(piece) = piece else {
            panic!("it is a file");
        };
        assert_eq!(piece.len(), held_bytes);
        assert!(held_bytes <= bytes.min(claimed_bytes));
        all.extend_from_slice(&piece);
        if held_bytes < bytes.min(claimed_bytes) {
            return Ok(all);
        }
    }
}

fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut names: Vec<_> = entries.flatten().map(name).collect();
    names.sort();
    names
}

#[test]
fn a_copy_has_all_files_until_it_goes() {
    let leader = Leader::open("copied");
    let copies = leader.folder.0.join(COPIES_FOLDER);
    let mut last_sequence = 0;
    for _ in 0..2 {
        assert_eq!(commit(&leader.store, &leader.durable), Decision::Applied);
        let copy = leader
            .copy(ControlFlow::Continue(()))
            .expect("there is room");
        assert!(copy.sequence() > last_sequence && copy.sequence() <= leader.sequence());
        last_sequence = copy.sequence();
        let [folder] = &names(&copies)[..] else {
            panic!("one at a time");
        };
        let folder = copies.join(folder);
        let mut copied: Vec<_> = copy.files().iter().map(|file| &file.name).collect();
        let manifest = copied.last().expect("it has files").as_str();
        assert_eq!(manifest, MANIFEST_NAME, "it says that the copy is complete");
        copied.sort();
        assert!(copied.iter().copied().eq(&names(&folder)));
        for file in copy.files() {
            let bytes = fs::read(folder.join(&file.name)).expect("it is there");
            assert_eq!(file.bytes, bytes.len() as u64);
            for piece in [(1 << 20, 1 << 20), (7, 100), (1 << 20, 100)] {
                assert!(read(&copy, file, piece).expect("it is there") == bytes);
            }
        }
        assert_contents_are_read(&copy, &folder);
        let other = leader
            .copy(ControlFlow::Continue(()))
            .expect("there is room");
        assert_eq!(names(&copies).len(), 2);
        let same = &copy;
        assert!(&copy == same && copy != other);
        drop((copy, other));
        let until = Instant::now() + LONGEST_WAIT;
        while !names(&copies).is_empty() {
            assert!(Instant::now() < until, "they are removed");
            thread::sleep(Duration::from_millis(5));
        }
    }
    leader.durable.stop().expect("nothing fails");
}

/// Contents of blobs have a folder of their own.
fn assert_contents_are_read(copy: &ReplicaCopy, folder: &Path) {
    let of = |name: &str| CopiedFile {
        name: name.into(),
        bytes: 7,
    };
    let gone = LogReadError::Failed(WatchError::Gone);
    let file = of("blobs/content");
    assert_eq!(read(copy, &file, (9, 9)), Err(gone.clone()));
    let _ = fs::create_dir(folder.join("blobs"));
    fs::write(folder.join("blobs/content"), "content").expect("there is room");
    assert_eq!(read(copy, &file, (9, 9)), Ok(b"content".to_vec()));
    assert_eq!(read(copy, &of("content"), (9, 9)), Err(gone));
    fs::remove_file(folder.join("blobs/content")).expect("it is there");
}

#[test]
fn a_copy_that_is_given_up_leaves_nothing() {
    let leader = Leader::open("copy-given-up");
    let copies = leader.folder.0.join(COPIES_FOLDER);
    for _ in 0..2 {
        assert_eq!(commit(&leader.store, &leader.durable), Decision::Applied);
        let given_up = leader.copy(ControlFlow::Break(())).err();
        let Some(ReplicaCopyError::Backup(BackupError::Cancelled)) = given_up else {
            panic!("{given_up:?}");
        };
        let until = Instant::now() + LONGEST_WAIT;
        while !names(&copies).is_empty() {
            assert!(Instant::now() < until, "it is removed");
            thread::sleep(Duration::from_millis(5));
        }
    }
    // A file in its place.
    fs::remove_dir(&copies).expect("it is empty");
    fs::write(&copies, "text").expect("nothing is there");
    let refused = leader.copy(ControlFlow::Continue(())).err();
    let Some(ReplicaCopyError::Folder { folder, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(folder, copies.display().to_string());
    assert!(remove_left_copies(&leader.folder.0).is_err());
    leader.durable.stop().expect("nothing fails");
}

#[test]
fn copies_that_an_earlier_run_has_left_are_removed() {
    let folder = TestFolder::new("left-copies");
    let copies = folder.0.join(COPIES_FOLDER);
    for _ in 0..2 {
        fs::create_dir_all(copies.join("7")).expect("there is room");
        fs::write(copies.join("7/file"), "text").expect("there is room");
        remove_left_copies(&folder.0).expect("they can be removed");
        assert!(!copies.exists());
        remove_left_copies(&folder.0).expect("there is nothing to do");
    }
}
