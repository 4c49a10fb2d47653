//! Backup, restore and snapshot through the real binary.

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::{Answer, Server, TIMEOUT, pelton, run};

/// A place for folders, removed with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("pelton-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("the folder is made");
        Folder(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn serve(&self, flags: &[&str]) -> Server {
        let root = self.at("backups");
        let root = root.to_str().expect("it is text");
        let flags = [&["--backup-root", root], flags].concat();
        Server::durable(&self.at("data"), &flags)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn restore(backup: &Path, data: &Path) -> Answer {
    run(pelton().arg("restore").arg(backup).arg("--data").arg(data))
}

fn check(backup: &Path) -> Answer {
    run(pelton().args(["restore", "--verify-only"]).arg(backup))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("it is there");
    entries
        .map(|entry| entry.expect("it lists").path())
        .collect()
}

#[test]
fn a_backup_comes_back_in_a_new_folder_with_a_new_history() {
    let folder = Folder::new("backup");
    let server = folder.serve(&[]);
    assert_eq!(server.run(["put", "k", "v"]).code, 0);
    assert_eq!(server.run(["database", "create", "more"]).code, 0);
    assert_eq!(server.run(["put", "--database", "more", "x", "y"]).code, 0);
    let created = server.run(["database", "create", "cache", "--durability", "volatile"]);
    assert_eq!(created.code, 0, "{created:?}");
    assert_eq!(
        server
            .run(["put", "--database", "cache", "gone", "soon"])
            .code,
        0
    );

    let made = server.run(["backup", "one", "--output", "json"]);
    assert_eq!(made.code, 0, "{made:?}");
    let made = made.json();
    assert_eq!(made["databases"], 2);
    assert_eq!(made["volatile_databases"], 1);
    let backup = folder.at("backups").join("one");
    assert!(
        made["path"]
            .as_str()
            .expect("a path")
            .ends_with("backups/one")
    );

    // What comes afterwards is not in it, and a second one of the name is refused.
    assert_eq!(server.run(["put", "k", "later"]).code, 0);
    let again = server.run(["backup", "one"]);
    assert_eq!(again.code, 3);
    assert!(again.stderr.contains("ALREADY_EXISTS"), "{}", again.stderr);
    let text = server.run(["backup", "two"]);
    assert!(
        text.text().contains("1 volatile database"),
        "{}",
        text.text()
    );

    assert_eq!(check(&backup).code, 0);
    let restored = restore(&backup, &folder.at("new"));
    assert_eq!(restored.code, 0, "{restored:?}");
    assert!(
        restored
            .text()
            .contains(&format!("sequence {}", made["sequence"]))
            && restored.text().contains("2 entries, 3 databases"),
        "{}",
        restored.text()
    );
    let history = |server: &Server| {
        let status = server.run(["status", "--output", "json"]);
        status.json()["history_id"].clone()
    };
    let old_history = history(&server);
    let new = Server::durable(&folder.at("new"), &[]);
    assert_eq!(new.run(["get", "k"]).text(), "v");
    assert_eq!(new.run(["scan", "--database", "more"]).text(), "x\ty\n");
    assert_eq!(new.run(["count", "--database", "cache"]).text(), "0\n");
    assert_ne!(history(&new), old_history);
    assert_eq!(new.run(["put", "k", "new"]).code, 0);
    assert_eq!(new.stop("TERM").0, 0);
    assert_eq!(server.run(["get", "k"]).text(), "later");
    assert_eq!(server.stop("TERM").0, 0);
}

#[test]
fn what_cannot_be_backed_up_says_why() {
    let folder = Folder::new("no-backup");
    let server = Server::durable(&folder.at("data"), &[]);
    let refused = server.run(["backup", "one"]);
    assert_eq!(refused.code, 3);
    assert!(
        refused.stderr.contains("FAILED_PRECONDITION") && refused.stderr.contains("--backup-root"),
        "{}",
        refused.stderr
    );
    assert_eq!(server.stop("TERM").0, 0);

    let server = Server::start();
    for command in [&["backup", "one"][..], &["snapshot"]] {
        let refused = run(&mut server.command(command));
        assert_eq!(refused.code, 3);
        assert!(
            refused.stderr.contains("keeps nothing"),
            "{}",
            refused.stderr
        );
    }
    assert_eq!(server.stop("TERM").0, 0);

    let server = folder.serve(&[]);
    for name in ["..", "a/b", "../up", ".hidden", ""] {
        let refused = server.run(["backup", name]);
        assert_eq!(refused.code, 2, "{name:?}");
        let expected = "a backup's name has 1 to ";
        assert!(refused.stderr.contains(expected), "{refused:?}");
    }
    assert_eq!(files(&folder.at("backups")), [""; 0].map(PathBuf::from));
    assert_eq!(server.stop("TERM").0, 0);

    fs::write(folder.at("file"), "").expect("it is written");
    let mut command = pelton();
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]);
    command.arg(folder.at("other")).arg("--backup-root");
    let refused = run(command.arg(folder.at("file")));
    assert_eq!(refused.code, 3);
    assert!(
        refused.stderr.contains("--backup-root"),
        "{}",
        refused.stderr
    );
}

/// A path that leads into the data folder by a link is that folder all the same.
#[test]
fn backups_have_no_place_in_the_data_folder_by_a_link_either() {
    let folder = Folder::new("backup-link");
    let server = folder.serve(&[]);
    assert_eq!(server.stop("TERM").0, 0);
    let data = folder.at("data");
    symlink(&data, folder.at("link")).expect("it is made");
    let before = files(&data).len();
    for root in ["link", "link/trees", "link/new"] {
        for _ in 0..2 {
            let mut command = pelton();
            command.args(["serve", "--listen", "127.0.0.1:0", "--data"]);
            command.arg(&data).arg("--backup-root").arg(folder.at(root));
            let refused = run(&mut command);
            assert_eq!(refused.code, 3, "{root}: {refused:?}");
            let said = &refused.stderr;
            assert!(
                said.contains("leads to") && said.contains("another folder"),
                "{said}"
            );
            assert_eq!(files(&data).len(), before, "{root}: nothing is made");
        }
    }
    // One that leads elsewhere is as good as its target.
    fs::create_dir(folder.at("target")).expect("it is made");
    fs::remove_file(folder.at("link")).expect("it is there");
    symlink(folder.at("target"), folder.at("link")).expect("it is made");
    let link = folder.at("link");
    let flags = ["--backup-root", link.to_str().expect("it is text")];
    let server = Server::durable(&data, &flags);
    assert_eq!(server.run(["backup", "b"]).code, 0);
    assert_eq!(server.stop("TERM").0, 0);
    assert_eq!(check(&folder.at("target").join("b")).code, 0);
}

#[test]
fn damaged_backups_are_refused_and_leave_nothing() {
    let folder = Folder::new("damaged-backup");
    let server = folder.serve(&[]);
    assert_eq!(server.run(["put", "k", "v"]).code, 0);
    assert_eq!(server.run(["backup", "one"]).code, 0);
    assert_eq!(server.stop("TERM").0, 0);
    let backup = folder.at("backups").join("one");
    for file in files(&backup) {
        let content = fs::read(&file).expect("it is there");
        let mut changed = content.clone();
        changed[content.len() / 2] ^= 4;
        for damage in [Some(changed), Some(content[1..].to_vec()), None] {
            match damage {
                Some(bytes) => fs::write(&file, bytes).expect("it is written"),
                None => fs::remove_file(&file).expect("it is there"),
            }
            let checked = check(&backup);
            assert_eq!(checked.code, 3, "{}: {checked:?}", file.display());
            let restored = restore(&backup, &folder.at("new"));
            assert_eq!(restored.code, 3, "{}: {restored:?}", file.display());
            assert!(!folder.at("new").exists());
            fs::write(&file, &content).expect("it is written");
        }
    }
    fs::create_dir_all(folder.at("full").join("something")).expect("it is made");
    let refused = restore(&backup, &folder.at("full"));
    assert!(refused.stderr.contains("not empty"), "{}", refused.stderr);
    assert!(
        restore(&folder.at("nowhere"), &folder.at("new"))
            .stderr
            .contains("nowhere")
    );
    assert_eq!(restore(&backup, &folder.at("new")).code, 0);
}

/// Writers go on while backups are made; each key has a number that only grows, and its version
/// says when.
#[test]
fn backups_made_under_load_show_everything_up_to_their_sequence_and_nothing_else() {
    let folder = Folder::new("backup-load");
    let server = folder.serve(&["--log-segment", "1MiB"]);
    let is_over = AtomicBool::new(false);
    let put = |first: usize| {
        let lines = (0..200).map(|number| {
            let key = (first + number * 7) % 900;
            format!("{{\"operation\":\"increment\",\"key\":\"key-{key}\",\"delta\":1}}\n")
        });
        lines.collect::<String>()
    };
    let (mut backups, mut highest) = (Vec::new(), 0);
    thread::scope(|scope| {
        for writer in 0..3 {
            let (server, is_over) = (&server, &is_over);
            scope.spawn(move || {
                let mut first = writer * 100;
                while !is_over.load(Ordering::Relaxed) {
                    let input = put(first);
                    let answer = server.run_with_input(
                        &["batch", "--mode", "independent", "--failures-only"],
                        input.as_bytes(),
                    );
                    assert_eq!(answer.code, 0, "{answer:?}");
                    first += 1;
                }
            });
        }
        for number in 0..6 {
            let before = highest_version(&server);
            let made = server.run(["backup", &format!("b{number}"), "--output", "json"]);
            assert_eq!(made.code, 0, "{made:?}");
            let sequence = made.json()["sequence"].as_u64().expect("a number");
            assert!(sequence >= before, "all that was answered before is in it");
            backups.push(sequence);
            highest = highest_version(&server);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(
        backups.is_sorted() && backups[0] < backups[5],
        "{backups:?}"
    );
    assert!(highest > backups[0]);
    assert_eq!(server.stop("TERM").0, 0);
    for (number, sequence) in backups.iter().enumerate() {
        let (backup, data) = (
            folder.at("backups").join(format!("b{number}")),
            folder.at("new"),
        );
        assert_eq!(restore(&backup, &data).code, 0);
        let new = Server::durable(&data, &[]);
        assert!(highest_version(&new) <= *sequence);
        assert_eq!(new.stop("TERM").0, 0);
        fs::remove_dir_all(&data).expect("it is there");
    }
}

/// The highest version of any entry.
fn highest_version(server: &Server) -> u64 {
    let scanned = server.run(["scan", "--output", "json"]);
    assert_eq!(scanned.code, 0, "{scanned:?}");
    let version = |line: &str| {
        let entry: serde_json::Value = serde_json::from_str(line).expect("it is JSON");
        entry["version"].as_u64().expect("a number")
    };
    scanned.text().lines().map(version).max().unwrap_or(0)
}

#[test]
fn a_backup_that_is_interrupted_leaves_nothing_and_the_next_one_works() {
    let folder = Folder::new("backup-interrupt");
    let server = folder.serve(&[]);
    let lines: String = (0..200_000)
        .map(|number| {
            format!(
                "{{\"operation\":\"put\",\"key\":\"key-{number}\",\"value\":\"{number:0>200}\"}}\n"
            )
        })
        .collect();
    let filled = server.run_with_input(
        &["batch", "--mode", "independent", "--failures-only"],
        lines.as_bytes(),
    );
    assert_eq!(filled.code, 0, "{filled:?}");
    let backup = folder.at("backups").join("one");
    let mut command = server.command(["backup", "one"]);
    let process = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut process = process.expect("the binary runs");
    wait_until(|| backup.exists());
    // Another one waits for its turn, which comes when the first one is given up.
    let mut command = server.command(["snapshot"]);
    let second = command.stdout(Stdio::null()).spawn();
    let mut second = second.expect("the binary runs");
    interrupt(process.id());
    assert_eq!(process.wait().expect("it ends").code(), Some(130));
    wait_until(|| !backup.exists());
    assert_eq!(second.wait().expect("it ends").code(), Some(0));
    assert_eq!(server.run(["backup", "one"]).code, 0);
    assert_eq!(check(&backup).code, 0);

    // A stop in its midst.
    let mut command = server.command(["backup", "two"]);
    let process = command
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    wait_until(|| folder.at("backups").join("two").exists());
    assert_eq!(server.stop("TERM").0, 0);
    let ended = process.wait_with_output().expect("it ends");
    let (said, two) = (
        String::from_utf8_lossy(&ended.stderr),
        folder.at("backups").join("two"),
    );
    match ended.status.code() {
        Some(0) => assert_eq!(check(&two).code, 0),
        _ => assert!(said.contains("UNAVAILABLE") && !two.exists(), "{said}"),
    }
}

fn interrupt(id: u32) {
    let mut kill = std::process::Command::new("kill");
    let killed = kill.args(["-s", "INT", &id.to_string()]).status();
    assert!(killed.expect("kill is there").success());
}

fn wait_until(is_so: impl Fn() -> bool) {
    let until = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < until, "it never came to that");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_snapshot_on_request_is_what_the_next_start_begins_with() {
    let folder = Folder::new("snapshot");
    let server = folder.serve(&[]);
    for key in ["a", "b", "c"] {
        assert_eq!(server.run(["put", key, "v"]).code, 0);
    }
    let made = server.run(["snapshot", "--output", "json"]).json();
    assert_eq!(made["entries"], 3);
    assert_eq!(server.run(["put", "d", "v"]).code, 0);
    let name = format!(
        "{:020}.snapshot",
        made["sequence"].as_u64().expect("a number")
    );
    let bytes = fs::metadata(folder.at("data").join(name))
        .expect("it is there")
        .len();
    assert_eq!(made["bytes"], bytes);
    server.kill();
    let server = folder.serve(&[]);
    assert_eq!(server.run(["count"]).text(), "4\n");
    assert!(server.run(["snapshot"]).text().contains("4 entries"));
    assert_eq!(server.stop("TERM").0, 0);
}
