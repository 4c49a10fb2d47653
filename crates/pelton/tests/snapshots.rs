//! Snapshots, through the real binary: the one of a clean stop, and what is said of a damaged one.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use support::{Folder, Server, pelton, run};

/// Six of them are a log that is worth a snapshot at a stop.
const VALUE_BYTES: usize = 400_000;

/// The snapshots in a data folder.
fn snapshots(data: &Path) -> Vec<PathBuf> {
    fs::read_dir(data)
        .expect("the folder is there")
        .map(|file| file.expect("it can be listed").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "snapshot")
        })
        .collect()
}

/// A server that has overwritten its few keys often enough for the log to be larger than they are,
/// stopped.
fn stop_after_overwrites(folder: &Folder) {
    let server = Server::durable(&folder.data(), &[]);
    let value = "x".repeat(VALUE_BYTES - 1);
    for round in 0..3 {
        for key in ["a", "b"] {
            let input = format!("{round}{value}");
            let put = server.run_with_input(&["put", key, "-"], input.as_bytes());
            assert_eq!(put.code, 0, "{put:?}");
        }
    }
    assert_eq!(server.stop("TERM").0, 0);
}

#[test]
fn a_clean_stop_leaves_a_snapshot_that_the_next_start_reads() {
    let folder = Folder::new("snapshot-at-stop");
    stop_after_overwrites(&folder);
    let [snapshot] = &snapshots(&folder.data())[..] else {
        panic!("one snapshot: {:?}", snapshots(&folder.data()));
    };
    let snapshot_bytes = snapshot.metadata().expect("it is there").len();
    assert!(
        snapshot_bytes > 2 * VALUE_BYTES as u64 && snapshot_bytes < 3 * VALUE_BYTES as u64,
        "both values, as they were last: {snapshot_bytes}"
    );

    let server = Server::durable(&folder.data(), &[]);
    assert_eq!(server.run(["count"]).text(), "2\n");
    assert!(server.run(["get", "a"]).text().starts_with("2x"));
    assert_eq!(server.run(["put", "a", "new"]).code, 0);
    server.kill();

    let server = Server::durable(&folder.data(), &[]);
    assert_eq!(server.run(["get", "a"]).text(), "new", "the log behind it");
    assert!(server.run(["get", "b"]).text().starts_with("2x"));
    assert_eq!(server.stop("TERM").0, 0);
}

#[test]
fn a_damaged_snapshot_is_refused_by_name_and_nothing_is_changed() {
    let folder = Folder::new("snapshot-damaged");
    stop_after_overwrites(&folder);
    let snapshot = snapshots(&folder.data()).remove(0);
    let whole = fs::read(&snapshot).expect("readable");
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    fs::write(&snapshot, &damaged).expect("writable");
    let files = || {
        let mut files: Vec<_> = fs::read_dir(folder.data())
            .expect("the folder is there")
            .map(|file| file.expect("it can be listed").path())
            .filter(|path| path.is_file())
            .map(|path| (fs::read(&path).expect("readable"), path))
            .collect();
        files.sort_by(|a, b| a.1.cmp(&b.1));
        files
    };
    let before = files();

    let name = snapshot.to_str().expect("the path is text");
    for flags in [&[][..], &["--accept-loss"]] {
        let mut command = pelton();
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(folder.data())
            .args(flags);
        let refused = run(&mut command);
        assert_eq!(refused.code, 3, "{refused:?}");
        assert!(refused.stderr.contains(name), "{}", refused.stderr);
        assert_eq!(refused.text(), "", "nothing is announced");
    }
    let verified = run(pelton().args(["log", "verify"]).arg(folder.data()));
    assert_eq!(verified.code, 3, "{verified:?}");
    assert!(verified.stderr.contains(name), "{}", verified.stderr);
    assert!(files() == before, "a refused start changes nothing");

    fs::write(&snapshot, &whole).expect("writable");
    let server = Server::durable(&folder.data(), &[]);
    assert!(server.run(["get", "a"]).text().starts_with("2x"));
    assert_eq!(server.stop("TERM").0, 0);
}
