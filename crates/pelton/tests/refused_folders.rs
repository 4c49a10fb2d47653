//! Data folders that a server refuses: one line says why, the exit code is not 0, and nothing in
//! them is changed.

mod support;

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use support::{Folder, Server, TIMEOUT, pelton, pelton_at, run, run_with_timeout};

/// Whoever has no rights: the user `nobody`, where these tests are run by root.
const NOBODY: u32 = 65_534;

const FLAGS: [&str; 4] = ["--log-segment", "64KiB", "--keep-log", "0"];

/// The paths of all files below a folder. A server that works there may remove them again at any
/// time, so nothing is opened.
fn paths(folder: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).expect("it is there") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            paths.extend(self::paths(&path));
        } else {
            paths.push(path);
        }
    }
    paths
}

/// All files below a folder where nobody works, with all that is in them.
fn content(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let read = |path: PathBuf| {
        let bytes = fs::read(&path).expect("readable");
        (path, bytes)
    };
    paths(folder).into_iter().map(read).collect()
}

/// A start on a folder is refused with these words, and changes nothing in the folder around it.
fn refused(folder: &Folder, command: &mut Command, data: &Path, words: &[&str]) {
    let before = content(&folder.0);
    let answer = run_with_timeout(
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .args(FLAGS),
    );
    assert_eq!(answer.code, 3, "{answer:?}");
    assert_eq!(answer.text(), "", "nothing is announced");
    assert_eq!(
        answer.stderr.trim_end().lines().count(),
        1,
        "{}",
        answer.stderr
    );
    for word in words {
        assert!(
            answer.stderr.contains(word),
            "{word} is missing in {}",
            answer.stderr
        );
    }
    assert!(
        content(&folder.0) == before,
        "something was changed: {}",
        answer.stderr
    );
}

/// A data folder with segments of the log and a snapshot, closed.
fn filled(name: &str) -> Folder {
    let folder = Folder::new(name);
    let server = Server::durable(&folder.data(), &FLAGS);
    fill(&server, 10);
    wait_for(&folder.data(), ".snapshot");
    fill(&server, 5);
    assert_eq!(server.stop("TERM").0, 0);
    folder
}

fn fill(server: &Server, count: usize) {
    let value = vec![b'v'; 30_000];
    for number in 0..count {
        let key = format!("key{number}");
        assert_eq!(server.run_with_input(&["put", &key], &value).code, 0);
    }
}

/// Waits for a file whose name ends like this; the newest by name.
fn wait_for(folder: &Path, end: &str) -> PathBuf {
    let until = Instant::now() + TIMEOUT;
    while Instant::now() < until {
        if let Some(path) = files(folder, end).pop() {
            return path;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("there is no {end} in {}", folder.display());
}

fn files(folder: &Path, end: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("it is there");
    let paths = entries.map(|entry| entry.expect("readable").path());
    let mut paths: Vec<PathBuf> = paths
        .filter(|path| path.to_string_lossy().ends_with(end))
        .collect();
    paths.sort();
    paths
}

fn change_byte(path: &Path, offset: usize) {
    let mut bytes = fs::read(path).expect("readable");
    bytes[offset] ^= 1;
    fs::write(path, bytes).expect("writable");
}

#[test]
fn what_is_no_folder() {
    let folder = Folder::new("no-folder");
    let file = folder.0.join("file");
    fs::write(&file, "text").expect("writable");
    refused(
        &folder,
        &mut pelton(),
        &file,
        &["file: ", "ot a directory", "--data"],
    );
    refused(
        &folder,
        &mut pelton(),
        &file.join("below"),
        &["ot a directory", "--data"],
    );
    refused(
        &folder,
        &mut pelton(),
        &folder.0.join("a/b"),
        &[
            "the folder in which it is to be made is not there",
            "--data",
        ],
    );
    refused(
        &folder,
        &mut pelton(),
        &folder.0,
        &["this is not a data folder", "file", "--data"],
    );
}

#[test]
fn a_folder_of_a_newer_version() {
    let folder = filled("newer");
    let format = folder.data().join("pelton-data");
    let text = fs::read_to_string(&format).expect("readable");
    // Its checksum is another one, too.
    let newer = text
        .replace("format 6", "format 7")
        .replace("end ", "end 0");
    fs::write(&format, newer).expect("writable");
    refused(
        &folder,
        &mut pelton(),
        &folder.data(),
        &["format 7", "reads formats up to 6"],
    );
}

#[test]
fn a_folder_whose_own_file_is_damaged_or_gone() {
    let folder = filled("unmarked");
    let format = folder.data().join("pelton-data");
    fs::write(&format, "").expect("writable");
    let words = ["pelton-data: this file", "is damaged", "--accept-loss"];
    refused(&folder, &mut pelton(), &folder.data(), &words);
    fs::remove_file(&format).expect("it is there");
    let words = ["`pelton-data` is missing", "restore a backup"];
    refused(&folder, &mut pelton(), &folder.data(), &words);
}

#[test]
fn a_process_that_may_not_make_a_file_of_the_log() {
    let folder = filled("file-size");
    let mut limited = pelton_at(Path::new("sh"));
    limited.args(["-c", "ulimit -f 32; exec \"$0\" \"$@\""]);
    limited.arg(pelton().get_program());
    let words = ["ulimit -f", "LimitFSIZE=", "--log-segment"];
    refused(&folder, &mut limited, &folder.data(), &words);
}

/// A file of the log that is there may be larger than those that the settings ask for.
#[test]
fn a_process_that_may_not_write_on_in_a_file_of_the_log() {
    let folder = Folder::new("old-file-size");
    let server = Server::durable(&folder.data(), &["--log-segment", "1MiB"]);
    fill(&server, 1);
    assert_eq!(server.stop("TERM").0, 0);
    let mut limited = pelton_at(Path::new("sh"));
    limited.args(["-c", "ulimit -f 512; exec \"$0\" \"$@\""]);
    limited.arg(pelton().get_program());
    let words = [".log: this file of the log has 1048576 bytes", "ulimit -f"];
    refused(&folder, &mut limited, &folder.data(), &words);
}

/// What is needed is named before anything is made: with fewer a server would start and serve
/// nobody.
#[test]
fn a_process_that_may_open_too_few_files() {
    let folder = Folder::new("few-descriptors");
    let limited = |limit: usize| {
        let mut limited = pelton_at(Path::new("sh"));
        let script = format!("ulimit -n {limit}; exec \"$0\" \"$@\"");
        limited.args(["-c", &script]);
        limited.arg(pelton().get_program());
        limited
    };
    for few in [24, 32] {
        let words = ["file descriptors", "ulimit -n", "LimitNOFILE="];
        refused(&folder, &mut limited(few), &folder.data(), &words);
    }
}

#[test]
fn a_process_whose_address_space_is_too_small() {
    let folder = filled("address-space");
    let mut limited = pelton_at(Path::new("sh"));
    limited.args(["-c", "ulimit -v 130000; exec \"$0\" \"$@\""]);
    limited.arg(pelton().get_program());
    let words = ["limit on the address space", "ulimit -v", "LimitAS="];
    refused(&folder, &mut limited, &folder.data(), &words);
}

#[test]
fn a_process_whose_limit_on_data_is_too_small() {
    let folder = filled("data-limit");
    let mut limited = pelton_at(Path::new("sh"));
    limited.args(["-c", "ulimit -d 300000; exec \"$0\" \"$@\""]);
    limited.arg(pelton().get_program());
    let words = ["limit on the data", "ulimit -d", "LimitDATA="];
    refused(&folder, &mut limited, &folder.data(), &words);
}

#[test]
fn a_folder_that_is_in_use() {
    let (folder, _) = without_snapshot("in-use");
    let server = Server::durable(&folder.data(), &FLAGS);
    assert_eq!(server.run(["put", "k", "v"]).code, 0);
    settle(&folder.data());
    let words = ["another server uses this data folder", "--data"];
    refused(&folder, &mut pelton(), &folder.data(), &words);
    assert_eq!(server.run(["get", "k"]).text(), "v");
    assert_eq!(server.stop("TERM").0, 0);
}

/// Waits until a server has the next file of the log, and nothing half-made.
fn settle(folder: &Path) {
    let until = Instant::now() + TIMEOUT;
    while files(folder, ".log").len() < 3 || !files(folder, ".new").is_empty() {
        assert!(
            Instant::now() < until,
            "the next file of the log is not made"
        );
        thread::sleep(Duration::from_millis(5));
    }
}

/// A data folder with two files of the log, closed. That is too little for a snapshot, which would
/// do without the first.
fn without_snapshot(name: &str) -> (Folder, PathBuf) {
    let folder = Folder::new(name);
    let server = Server::durable(&folder.data(), &FLAGS);
    fill(&server, 4);
    assert_eq!(server.stop("TERM").0, 0);
    assert!(files(&folder.data(), ".snapshot").is_empty());
    let first = files(&folder.data(), ".log").remove(0);
    (folder, first)
}

#[test]
fn a_damaged_log() {
    let (folder, first) = without_snapshot("damaged-log");
    change_byte(&first, 1_000);
    let words = ["the log is damaged", ".log", "--accept-loss"];
    refused(&folder, &mut pelton(), &folder.data(), &words);
    change_byte(&first, 1_000);
    let server = Server::durable(&folder.data(), &FLAGS);
    assert_eq!(server.run(["count"]).text().trim(), "4");
}

/// The limit on the size of a file is told as what it is: by itself it ends a program with a signal
/// and no word.
#[test]
fn a_limit_on_the_size_of_files() {
    let folder = Folder::new("file-size");
    for _ in 0..2 {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "ulimit -f 8; exec \"$@\"", "sh"])
            .arg(env!("CARGO_BIN_EXE_pelton"))
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(folder.data())
            .args(FLAGS);
        let answer = run_with_timeout(&mut shell);
        assert_eq!(answer.code, 3, "{answer:?}");
        let is_named = answer.stderr.contains("ulimit -f");
        assert!(is_named, "{}", answer.stderr);
    }
}

/// All files of the log are gone: it is no new folder, and the blobs in it are kept.
#[test]
fn a_folder_without_its_log() {
    let (folder, _) = without_snapshot("log-gone");
    let source = folder.0.join("source");
    fs::write(&source, "content").expect("writable");
    let server = Server::durable(&folder.data(), &FLAGS);
    let uploaded = server.run(["upload", &source.to_string_lossy()]);
    assert_eq!(uploaded.code, 0, "{uploaded:?}");
    assert_eq!(server.stop("TERM").0, 0);
    for path in files(&folder.data(), ".log") {
        fs::remove_file(path).expect("it is there");
    }
    let words = ["no group of it is left", "*.log", "--accept-loss"];
    for _ in 0..2 {
        refused(&folder, &mut pelton(), &folder.data(), &words);
    }
    let verified = run_with_timeout(pelton().args(["log", "verify"]).arg(folder.data()));
    assert_eq!(verified.code, 3, "{verified:?}");
    assert!(verified.stderr.contains("is known to have been durable"));

    let flags = [&FLAGS[..], &["--accept-loss"]].concat();
    let server = Server::durable(&folder.data(), &flags);
    assert_eq!(server.run(["count"]).text().trim(), "0");
    assert_eq!(server.stop("TERM").0, 0);
    let moved = files(&folder.data().join("set-aside"), ".blob");
    assert_eq!(moved.len(), 1, "{moved:?}");
    let bytes = fs::read(&moved[0]).expect("readable");
    assert!(bytes.windows(7).any(|window| window == b"content"));
    let server = Server::durable(&folder.data(), &FLAGS);
    assert_eq!(server.run(["put", "key", "value"]).code, 0);
}

/// The last file of the log was cut, behind a clean stop and behind none.
#[test]
fn a_log_that_was_cut() {
    for is_clean in [true, false] {
        let folder = Folder::new(if is_clean { "cut-clean" } else { "cut-killed" });
        let server = Server::durable(&folder.data(), &["--log-segment", "1MiB"]);
        for number in 0..100 {
            assert_eq!(server.run(["put", &format!("key{number}"), "v"]).code, 0);
        }
        match is_clean {
            true => assert_eq!(server.stop("TERM").0, 0),
            false => server.kill(),
        }
        let first = files(&folder.data(), ".log").remove(0);
        let whole = fs::read(&first).expect("readable");
        fs::write(&first, &whole[..20_000]).expect("writable");
        let words = [
            "was cut: it has 20000 bytes of at least 1048576",
            "--accept-loss",
        ];
        refused(&folder, &mut pelton(), &folder.data(), &words);
        fs::write(&first, &whole).expect("writable");
        let server = Server::durable(&folder.data(), &FLAGS);
        assert_eq!(server.run(["count"]).text().trim(), "100");
    }
}

#[test]
fn a_log_with_a_hole() {
    let (folder, first) = without_snapshot("hole");
    fs::remove_file(&first).expect("it was there");
    refused(
        &folder,
        &mut pelton(),
        &folder.data(),
        &["a file is missing"],
    );
}

#[test]
fn a_damaged_snapshot() {
    let folder = filled("damaged-snapshot");
    let snapshot = wait_for(&folder.data(), ".snapshot");
    change_byte(&snapshot, 5_000);
    refused(
        &folder,
        &mut pelton(),
        &folder.data(),
        &["the snapshot", ".snapshot is damaged at byte"],
    );
    change_byte(&snapshot, 5_000);
    let server = Server::durable(&folder.data(), &FLAGS);
    assert_eq!(server.run(["count"]).text().trim(), "10");
}

#[test]
fn a_folder_without_rights() {
    let folder = filled("rights");
    let is_root = fs::metadata(&folder.0).expect("it is there").uid() == 0;
    // A copy: nobody need have the rights to reach the binary where it was built.
    let binary = folder.0.join("pelton");
    fs::copy(env!("CARGO_BIN_EXE_pelton"), &binary).expect("it is copied");
    let nobody = || {
        let mut command = pelton_at(&binary);
        if is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    };
    let mode =
        |mode| fs::set_permissions(folder.data(), Permissions::from_mode(mode)).expect("ours");
    // It can be read and not written; it cannot even be read; it cannot be made.
    mode(0o555);
    for path in paths(&folder.data()) {
        fs::set_permissions(&path, Permissions::from_mode(0o444)).expect("ours");
    }
    refused_nobody(&folder, &mut nobody(), &folder.data());
    if is_root {
        mode(0o700);
        refused_nobody(&folder, &mut nobody(), &folder.data());
        refused_nobody(&folder, &mut nobody(), &folder.0.join("new"));
    }
    // Its files can be written, and nothing can be made in it: they are left as they are.
    for path in paths(&folder.data()) {
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("ours");
        if is_root {
            chown(path, Some(NOBODY), Some(NOBODY)).expect("root may");
        }
    }
    if is_root {
        chown(folder.data(), Some(NOBODY), Some(NOBODY)).expect("root may");
    }
    mode(0o500);
    for _ in 0..2 {
        refused_nobody(&folder, &mut nobody(), &folder.data());
    }
    mode(0o755);
}

/// What a start sets aside would have no place.
#[test]
fn a_file_has_the_name_of_the_folder_for_what_is_set_aside() {
    let folder = filled("set-aside-file");
    let file = folder.data().join("set-aside");
    fs::write(&file, "text").expect("writable");
    for _ in 0..2 {
        let words = ["set-aside", "not a folder", "move it elsewhere"];
        refused(&folder, &mut pelton(), &folder.data(), &words);
    }
    fs::remove_file(&file).expect("it is there");
    let server = Server::durable(&folder.data(), &FLAGS);
    assert_eq!(server.stop("TERM").0, 0);
}

fn refused_nobody(folder: &Folder, command: &mut Command, data: &Path) {
    refused(
        folder,
        command,
        data,
        &["Permission denied", &data.display().to_string(), "--data"],
    );
}

/// A server would change a backup, so that nothing could be restored from it any more: not even
/// where somebody did what a folder without its own file asks for.
#[test]
fn a_backup() {
    let folder = filled("backup");
    let format = folder.data().join("pelton-data");
    fs::remove_file(&format).expect("it is there");
    fs::write(folder.data().join("MANIFEST"), "any").expect("writable");
    let words = ["this is a backup", "`pelton restore", "--verify-only"];
    refused(&folder, &mut pelton(), &folder.data(), &words);
    fs::write(&format, "").expect("writable");
    refused(&folder, &mut pelton(), &folder.data(), &words);
    let before = content(&folder.0);
    let accepting = [
        "serve",
        "--accept-loss",
        "--listen",
        "127.0.0.1:0",
        "--data",
    ];
    let answer = run_with_timeout(pelton().args(accepting).arg(folder.data()));
    assert_eq!(answer.code, 3, "{answer:?}");
    assert!(answer.stderr.contains(words[0]), "{answer:?}");
    assert!(content(&folder.0) == before, "something was changed");
    let answer = run_with_timeout(pelton().args(["log", "verify"]).arg(folder.data()));
    assert_eq!(answer.code, 3, "{answer:?}");
    assert!(answer.stderr.contains("`pelton restore"), "{answer:?}");
}

/// A folder where a file of the log should be is told as that.
#[test]
fn a_folder_in_the_place_of_a_file_of_the_log() {
    let (folder, first) = without_snapshot("log-is-folder");
    let all = files(&folder.data(), ".log");
    for path in [&first, &all[all.len() - 1]] {
        let aside = folder.0.join("aside");
        fs::rename(path, &aside).expect("it is there");
        fs::create_dir(path).expect("nothing is there");
        let name = path.file_name().expect("it has one").to_string_lossy();
        let words = [&*name, "is a folder, and should be a file of the log"];
        refused(&folder, &mut pelton(), &folder.data(), &words);
        fs::remove_dir(path).expect("it is empty");
        fs::rename(&aside, path).expect("nothing is there");
    }
    let server = Server::durable(&folder.data(), &FLAGS);
    assert_eq!(server.run(["count"]).text().trim(), "4");
}

/// Tables of databases on disk below a folder, those of the first database first.
fn tables(folder: &Path) -> Vec<PathBuf> {
    let is_table = |path: &PathBuf| {
        path.parent()
            .is_some_and(|parent| parent.ends_with("tables"))
    };
    let mut tables: Vec<_> = paths(folder).into_iter().filter(is_table).collect();
    tables.sort();
    tables
}

/// Makes two databases on disk, each with the key `old` in a table and `new` in the log alone.
fn make_databases_on_disk(folder: &Folder) {
    let server = Server::durable(&folder.data(), &FLAGS);
    for name in ["hurt", "whole"] {
        let created = server.run(["database", "create", name, "--kind", "disk"]);
        assert_eq!(created.code, 0, "{created:?}");
        assert_eq!(server.run(["put", "old", "v", "--database", name]).code, 0);
    }
    // The second one brings to the device what was there before the first.
    let until = Instant::now() + TIMEOUT;
    let first = folder.data().join("00000000000000000001.log");
    while tables(&folder.data()).len() < 2 || first.exists() {
        assert!(Instant::now() < until, "nothing comes to the device");
        fill(&server, 5);
        assert_eq!(server.run(["put", "more", "v"]).code, 0);
        assert_eq!(server.run(["snapshot"]).code, 0);
    }
    for name in ["hurt", "whole"] {
        assert_eq!(server.run(["put", "new", "v", "--database", name]).code, 0);
    }
    assert_eq!(server.stop("TERM").0, 0);
}

/// Backups that were made after the loss are restored with what was left.
fn restore_without_what_was_lost(folder: &Folder, root: &Path) {
    for name in ["a", "c"] {
        let data = folder.0.join("restored").join(name);
        fs::create_dir_all(folder.0.join("restored")).expect("there is room");
        let backup = root.join(name);
        let restored = run(pelton().arg("restore").arg(backup).arg("--data").arg(&data));
        assert_eq!(restored.code, 0, "{restored:?}");
        let server = Server::durable(&data, &FLAGS);
        for (database, key, code) in [("whole", "old", 0), ("hurt", "new", 0), ("hurt", "old", 1)] {
            let got = server.run(["get", key, "--database", database]);
            assert_eq!(got.code, code, "{database}: {key}");
        }
        assert_eq!(server.stop("TERM").0, 0);
    }
}

/// One damaged file of one database on disk: the start is refused by its name, `log verify` names
/// it too, and when the loss is accepted that database alone begins anew.
#[test]
fn a_damaged_database_on_disk() {
    let folder = Folder::new("damaged-tree");
    make_databases_on_disk(&folder);
    let verify = || run(pelton().args(["log", "verify"]).arg(folder.data()));
    let verified = verify();
    assert_eq!(verified.code, 0, "{verified:?}");
    for name in ["hurt", "whole"] {
        let line = format!("the database `{name}`, on disk: 1 table, ");
        assert!(verified.text().contains(&line), "{}", verified.text());
    }

    let table = tables(&folder.data()).remove(0);
    let bytes = fs::read(&table).expect("readable");
    fs::write(&table, &bytes[..bytes.len() / 2]).expect("writable");
    let name = table.file_name().expect("it has one").to_string_lossy();
    let file = format!("tables/{name}");
    let words = [
        "the database `hurt`",
        &file,
        "restore a backup",
        "--accept-loss",
    ];
    refused(&folder, &mut pelton(), &folder.data(), &words);
    let before = content(&folder.data());
    let verified = verify();
    assert_eq!(verified.code, 3, "{verified:?}");
    for word in words {
        assert!(verified.stderr.contains(word), "{}", verified.stderr);
    }
    assert!(content(&folder.data()) == before, "nothing is written");

    let root = folder.0.join("backups");
    let root = root.to_str().expect("it is text");
    let usual = [&FLAGS[..], &["--backup-root", root]].concat();
    let accepting = [&usual[..], &["--accept-loss"]].concat();
    for (name, flags) in [("a", &accepting), ("b", &usual), ("c", &accepting)] {
        let server = Server::durable(&folder.data(), flags);
        let has =
            |database: &str, key: &str| server.run(["get", key, "--database", database]).code == 0;
        assert!(has("whole", "old") && has("whole", "new"));
        assert!(has("hurt", "new") && !has("hurt", "old"));
        assert_eq!(server.run(["get", "more"]).code, 0);
        let made = server.run(["backup", name]);
        assert_eq!(made.code, 0, "{made:?}");
        assert_eq!(server.stop("TERM").0, 0);
        let aside = fs::read_dir(folder.data().join("set-aside")).expect("it is there");
        let aside: Vec<_> = aside.map(|entry| entry.expect("readable").path()).collect();
        assert_eq!(aside.len(), 1, "{aside:?}");
        assert_eq!(
            fs::read(aside[0].join(&file)).expect("it is kept"),
            bytes[..bytes.len() / 2]
        );
    }
    let verified = verify();
    assert_eq!(verified.code, 0, "{verified:?}");
    restore_without_what_was_lost(&folder, Path::new(root));
}
