//! A server that keeps its data, and `pelton log`, through the real binary.

mod support;

use std::fs;
use std::path::Path;

use support::{Answer, Folder, Server, pelton, run};

fn log(command: &str, folder: &Path, flags: &[&str]) -> Answer {
    run(pelton().args(["log", command]).arg(folder).args(flags))
}

#[test]
fn what_was_answered_is_there_after_a_kill_and_after_a_stop() {
    let folder = Folder::new("durable");
    let server = Server::durable(&folder.data(), &[]);
    let greeting = server.greeting.join("\n");
    assert!(
        greeting.contains(&format!(
            "log in {}, synced: a write is answered when it is on the device",
            folder.data().display()
        )),
        "{greeting}"
    );
    assert_eq!(server.run(["put", "k", "v"]).code, 0);
    server.kill();

    let server = Server::durable(&folder.data(), &["--durability", "interval=50ms"]);
    assert!(
        server.greeting.join("\n").contains("the last 50ms"),
        "{:?}",
        server.greeting
    );
    assert_eq!(server.run(["get", "k"]).text(), "v");
    assert_eq!(server.run(["put", "k2", "x"]).code, 0);
    assert_eq!(server.stop("TERM").0, 0);

    let server = Server::durable(&folder.data(), &["--durability", "written"]);
    assert_eq!(server.run(["scan"]).text(), "k\tv\nk2\tx\n");
    assert_eq!(server.stop("TERM").0, 0);
}

#[test]
fn status_tells_of_the_log_and_its_history() {
    let folder = Folder::new("figures");
    let status = |server: &Server| server.run(["status", "--output", "json"]).json();
    let server = Server::durable(&folder.data(), &[]);
    let before = status(&server);
    for key in ["a", "b", "c"] {
        assert_eq!(server.run(["put", key, "v"]).code, 0);
    }
    let after = status(&server);
    let grown = |name: &str| {
        let figure = |json: &serde_json::Value| json["log"][name].as_u64();
        figure(&after).expect(name) - figure(&before).expect(name)
    };
    assert_eq!((grown("groups"), grown("records")), (3, 3));
    assert!(grown("syncs") >= 3 && grown("durable_sequence") >= 3);
    assert_eq!(after["log"]["segments"], 1);
    assert!(
        after["log"]["segment_bytes"].as_u64() >= Some(1 << 20),
        "{after}"
    );
    assert_eq!(after["log"]["full"], false);
    let text = server.run(["status"]);
    assert!(
        text.text()
            .contains(" MiB in 1 segment; durable up to sequence"),
        "{text:?}"
    );
    assert_eq!(server.stop("TERM").0, 0);

    let inspected = log("verify", &folder.data(), &["--output", "json"]).json();
    assert_eq!(inspected["history_id"], after["history_id"]);
    let server = Server::durable(&folder.data(), &[]);
    assert_eq!(
        status(&server)["history_id"],
        after["history_id"],
        "it goes on"
    );
}

#[test]
fn volatile_alone_needs_no_folder() {
    let folder = Folder::new("volatile");
    let mut command = pelton();
    command
        .args(["serve", "--listen", "127.0.0.1:0"])
        .env("PELTON_DURABILITY", "volatile")
        .current_dir(&folder.0);
    let server = Server::spawn(&mut command);
    assert_eq!(server.run(["put", "k", "v"]).code, 0);
    assert_eq!(server.stop("TERM").0, 0);
    assert!(
        fs::read_dir(&folder.0)
            .expect("it is there")
            .next()
            .is_none(),
        "nothing is written"
    );
    let mut command = pelton();
    command
        .args(["serve", "--listen", "127.0.0.1:0"])
        .current_dir(&folder.0);
    let server = Server::spawn(&mut command);
    assert_eq!(server.run(["put", "k", "v"]).code, 0);
    assert_eq!(server.stop("TERM").0, 0);
    assert!(folder.0.join("pelton-data").is_dir(), "the default folder");
}

#[test]
fn folders_that_cannot_be_used_are_explained() {
    let folder = Folder::new("unusable");
    let refused = |path: &Path, expected: &str| {
        let mut command = pelton();
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(path);
        let answer = run(&mut command);
        assert_eq!(answer.code, 3, "{answer:?}");
        assert!(
            answer.stderr.contains(expected) && answer.stderr.contains("--data"),
            "{}",
            answer.stderr
        );
        assert_eq!(answer.text(), "", "nothing is announced");
    };
    let server = Server::durable(&folder.data(), &[]);
    refused(&folder.data(), "another server uses this data folder");
    let busy = log("verify", &folder.data(), &[]);
    assert_eq!(busy.code, 3);
    assert!(busy.stderr.contains("stop it first"), "{}", busy.stderr);
    drop(server);

    let foreign = folder.0.join("foreign");
    fs::create_dir(&foreign).expect("it is made");
    fs::write(foreign.join("letter.txt"), "dear").expect("it is written");
    refused(&foreign, "letter.txt");
    let answer = log("verify", &foreign, &[]);
    assert_eq!(answer.code, 3);
    assert!(answer.stderr.contains("is no data folder"), "{answer:?}");
    assert_eq!(
        fs::read_dir(&foreign).expect("it is there").count(),
        1,
        "nothing is changed"
    );
    refused(Path::new("/nowhere/at/all"), "/nowhere/at/all");
    assert_eq!(log("inspect", Path::new("/nowhere/at/all"), &[]).code, 3);
}

#[test]
fn a_log_is_inspected_and_verified() {
    let folder = Folder::new("log");
    let server = Server::durable(&folder.data(), &[]);
    assert_eq!(server.run(["put", "key\n", "value"]).code, 0);
    assert_eq!(server.run(["delete", "key\n"]).code, 0);
    assert_eq!(server.stop("TERM").0, 0);

    let verified = log("verify", &folder.data(), &[]);
    assert_eq!(verified.code, 0, "{verified:?}");
    assert!(
        verified.text().contains("it ends with a clean stop"),
        "{verified:?}"
    );
    // Nothing is written: root may write what is read-only, so this looks whether anything changed.
    fs::remove_file(folder.data().join("lock")).expect("the server has left it");
    let read_only = |mode| {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(folder.data(), permissions).expect("it is ours");
    };
    read_only(0o500);
    for _ in 0..2 {
        assert_eq!(log("verify", &folder.data(), &[]).code, 0);
        assert!(!folder.data().join("lock").exists());
    }
    read_only(0o700);
    let json = log("verify", &folder.data(), &["--output", "json"]).json();
    assert_eq!(json["ending"], "closed");
    let inspected = log("inspect", &folder.data(), &["--records"]);
    assert_eq!(inspected.code, 0);
    assert!(
        inspected.text().contains("database 0: set key\\n = value")
            && inspected.text().contains("database 0: delete key\\n"),
        "{}",
        inspected.text()
    );
    let lines = log(
        "inspect",
        &folder.data(),
        &["--records", "--output", "json"],
    );
    let records = lines
        .text()
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect(line))
        .filter(|line| line["record"] == "set" && line["value"] == "value");
    assert_eq!(records.count(), 1);
}

/// A byte changes in the middle of the log: found by `log verify`, refused by the server, accepted
/// only when told.
#[test]
fn damage_is_found_and_accepted_only_when_told() {
    let folder = Folder::new("damage");
    let server = Server::durable(&folder.data(), &[]);
    for key in ["a", "b", "c"] {
        assert_eq!(server.run(["put", key, "v"]).code, 0);
    }
    assert_eq!(server.stop("TERM").0, 0);
    let groups = log("inspect", &folder.data(), &["--output", "json"]);
    let middle = groups
        .text()
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect(line))
        .find(|line| line["first_sequence"] == 3)
        .expect("the group of the second Put, after the mark and the first");
    let offset = middle["offset"].as_u64().expect("a number") as usize;
    let segment = folder.data().join("00000000000000000001.log");
    let mut bytes = fs::read(&segment).expect("readable");
    bytes[offset + 100] ^= 1;
    fs::write(&segment, bytes).expect("writable");

    let verified = log("verify", &folder.data(), &[]);
    assert_eq!(verified.code, 3, "{verified:?}");
    assert!(
        verified.stderr.contains("the log is damaged") && verified.stderr.contains("--accept-loss"),
        "{}",
        verified.stderr
    );
    let mut command = pelton();
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(folder.data());
    let refused = run(&mut command);
    assert_eq!(refused.code, 3);
    assert!(
        refused.stderr.contains("the log is damaged") && refused.stderr.contains("--accept-loss"),
        "{}",
        refused.stderr
    );
    let server = Server::durable(&folder.data(), &["--accept-loss"]);
    assert_eq!(server.run(["scan", "--keys-only"]).text(), "a\n");
    assert_eq!(server.stop("TERM").0, 0);
    assert_eq!(log("verify", &folder.data(), &[]).code, 0);
}

/// Databases that were created and dropped are there and gone after a kill, with what is in them.
#[test]
fn databases_outlive_a_kill() {
    let folder = Folder::new("databases");
    let server = Server::durable(&folder.data(), &[]);
    for (name, durability) in [
        ("a", "synced"),
        ("b", "interval=1m"),
        ("c", "written"),
        ("d", "volatile"),
    ] {
        let created = server.run(["database", "create", name, "--durability", durability]);
        assert_eq!(created.code, 0, "{created:?}");
        assert_eq!(server.run(["put", "k", name, "--database", name]).code, 0);
    }
    server.kill();

    let server = Server::durable(&folder.data(), &[]);
    for name in ["a", "b", "c"] {
        assert_eq!(server.run(["get", "k", "--database", name]).text(), name);
    }
    assert_eq!(
        server.run(["get", "k", "--database", "d"]).code,
        1,
        "volatile: there, and empty"
    );
    let listed = server.run(["database", "list"]);
    let is_b = |line: &&str| line.starts_with("b ") && line.contains("memory  interval=1m");
    assert!(listed.text().lines().any(|line| is_b(&line)), "{listed:?}");
    for name in ["a", "d"] {
        assert_eq!(
            server
                .run(["database", "drop", name, "--with-content"])
                .code,
            0
        );
    }
    assert_eq!(server.run(["database", "create", "a"]).code, 0);
    server.kill();

    let server = Server::durable(&folder.data(), &[]);
    let again = server.run(["get", "k", "--database", "a"]);
    assert_eq!(
        again.code, 1,
        "a new database has nothing of the old one: {again:?}"
    );
    assert_eq!(server.run(["get", "k", "--database", "b"]).text(), "b");
    assert_eq!(
        server.run(["get", "k", "--database", "d"]).code,
        3,
        "it was dropped"
    );
    assert_eq!(server.stop("TERM").0, 0);
}

#[test]
fn a_stop_after_the_log_has_failed_is_no_clean_one() {
    let folder = Folder::new("moved");
    let server = Server::durable(&folder.data(), &[]);
    assert_eq!(server.run(["put", "k", "v"]).code, 0);
    let elsewhere = folder.data().with_extension("elsewhere");
    std::fs::rename(folder.data(), &elsewhere).expect("it is on one file system");
    // The server looks once a second.
    let refused = loop {
        let answer = server.run(["put", "k", "v"]);
        if answer.code != 0 {
            break answer;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    assert!(refused.stderr.contains("restart"), "{}", refused.stderr);
    assert_eq!(server.run(["get", "k"]).code, 0, "reads go on");
    assert_eq!(server.stop("TERM").0, 3);
}

/// The folder holds the secret under which tokens are hashed.
#[test]
fn only_its_own_user_can_read_what_a_server_makes() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("own-files");
    let modes = |path: &std::path::Path| {
        let metadata = std::fs::metadata(path).expect("it is there");
        metadata.permissions().mode() & 0o077
    };
    for _ in 0..2 {
        let mut command = support::pelton_at(std::path::Path::new("sh"));
        command.args(["-c", "umask 0; exec \"$0\" \"$@\""]);
        command.arg(support::pelton().get_program());
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]);
        let server = Server::spawn(command.arg(folder.data()));
        assert_eq!(server.run(["put", "k", "v"]).code, 0);
        drop(server);
        assert_eq!(modes(&folder.data()), 0);
        for entry in std::fs::read_dir(folder.data()).expect("it is there") {
            let path = entry.expect("it lists").path();
            assert_eq!(modes(&path), 0, "{}", path.display());
        }
    }
}
