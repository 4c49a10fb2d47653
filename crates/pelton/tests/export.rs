//! `pelton export` and `pelton import` through the real binary.

mod support;

use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::json;
use support::{Server, run};

/// A folder of this test, removed with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("pelton-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("the folder is made");
        Folder(path)
    }

    fn file(&self, name: &str) -> String {
        let path = self.0.join(name);
        path.to_str().expect("the folder's name is text").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Entries of all kinds: empty and binary keys and values, large ones, many, and one that expires.
fn filled() -> Server {
    let server = Server::start();
    let mut lines = String::new();
    for number in 0..5_000 {
        lines.push_str(&format!(
            "{{\"operation\":\"put\",\"key\":\"many/{number:05}\",\"value\":\"value {number}\"}}\n"
        ));
    }
    for (key, value) in [
        ("", ""),
        ("00ff80", "0a"),
        ("0a", "00ff"),
        ("c3bc", "c3bc5c22"),
    ] {
        lines.push_str(&format!(
            "{{\"operation\":\"put\",\"key\":\"{key}\",\"key_encoding\":\"hex\",\
             \"value\":\"{value}\",\"value_encoding\":\"hex\"}}\n"
        ));
    }
    let filled = server.run_with_input(&["batch", "--mode", "independent"], lines.as_bytes());
    assert_eq!(filled.code, 0, "{}", filled.stderr);
    let binary: Vec<u8> = (0..=255).cycle().take(3_000_000).collect();
    assert_eq!(server.run_with_input(&["put", "large"], &binary).code, 0);
    assert_eq!(server.run(["put", "later", "v", "--ttl", "1h"]).code, 0);
    server
}

/// All entries, as far as an import keeps them.
fn content(server: &Server) -> Vec<serde_json::Value> {
    let scan = server.run(["scan", "--output", "json"]);
    assert_eq!(scan.code, 0);
    let mut entries = Vec::new();
    for line in scan.text().lines() {
        let mut entry: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let fields = entry.as_object_mut().expect("an object");
        fields.remove("version");
        // To within the time that the test takes.
        if let Some(at_ms) = fields.remove("expires_at_ms") {
            let minutes = at_ms.as_u64().expect("a number") / 600_000;
            fields.insert("expires".into(), (minutes > 0).into());
        }
        entries.push(entry);
    }
    entries
}

#[test]
fn what_was_exported_is_imported() {
    let (server, folder) = (filled(), Folder::new("round-trip"));
    let expected = content(&server);
    assert_eq!(expected.len(), 5_006);
    for format in ["jsonl", "binary"] {
        let file = folder.file(format);
        let export = server.run(["export", &file, "--format", format]);
        assert_eq!(export.code, 0, "{export:?}");
        assert_eq!(export.text(), format!("5006 entries written to {file}\n"));
        assert_eq!(export.stderr, "", "no progress where there is no terminal");
        let piped = server.run(["export", "--format", format]);
        assert!(
            piped.stdout == fs::read(&file).expect("it was written"),
            "the same to standard output"
        );

        let other = Server::start();
        assert_eq!(other.run(["put", "large", "something else"]).code, 0);
        let import = other.run(["import", &file]);
        assert_eq!(
            (import.code, import.text()),
            (0, &*format!("5006 entries written from {file}\n")),
            "{import:?}"
        );
        assert!(content(&other) == expected, "{format} by file");
        let other = Server::start();
        let import = other.run_with_input(&["import", "--output", "json"], &piped.stdout);
        assert_eq!(import.json(), json!({"entries": 5006, "expired": 0}));
        assert!(content(&other) == expected, "{format} by pipe");
    }
}

#[test]
fn of_a_database_that_does_not_exist_there_is_no_export() {
    let (server, folder) = (Server::start(), Folder::new("unknown"));
    let file = folder.file("export");
    for place in ["-", &file] {
        let export = server.run(["export", place, "--database", "none"]);
        assert_eq!((export.code, export.text()), (3, ""), "{place}");
        assert!(export.stderr.contains("NOT_FOUND"), "{}", export.stderr);
    }
    assert_eq!(fs::read_dir(&folder.0).expect("it is there").count(), 0);
}

#[test]
fn an_import_that_is_refused_says_how_far_it_came() {
    let (server, folder) = (Server::start(), Folder::new("refused"));
    let create = ["database", "create", "small", "--durability", "volatile"];
    let mut command = server.command(create);
    assert_eq!(run(command.args(["--quota", "700KB"])).code, 0);
    let file = folder.file("lines");
    let mut lines = String::new();
    for number in 0..10 {
        let value = "v".repeat(100_000);
        lines.push_str(&format!("{{\"key\":\"{number}\",\"value\":\"{value}\"}}\n"));
    }
    fs::write(&file, lines).expect("it can be written");
    let import = server.run(["import", &file, "--database", "small"]);
    assert_eq!(import.code, 3);
    let (text, count) = (&import.stderr, server.run(["count", "--database", "small"]));
    let count: u64 = count.text().trim().parse().expect("a number");
    assert!(count > 0 && count < 10, "{count}: {text}");
    assert!(text.contains("RESOURCE_EXHAUSTED"), "{text}");
    assert!(text.contains("of its quota of 700000"), "{text}");
    assert!(text.contains("all up to line"), "{text}");
    assert!(text.contains("import the file again"), "{text}");
}

#[test]
fn into_another_database_of_the_same_server() {
    let server = filled();
    let created = server.run(["database", "create", "copy", "--durability", "volatile"]);
    assert_eq!(created.code, 0, "{created:?}");
    let export = server.run(["export", "--format", "binary"]);
    let import = server.run_with_input(&["import", "--database", "copy"], &export.stdout);
    assert_eq!(import.code, 0, "{import:?}");
    let scan = |database| {
        let answer = server.run(["scan", "--database", database]);
        answer.stdout
    };
    assert!(scan("copy") == scan(""));
    let elsewhere = server.run_with_input(&["import", "--database", "none"], &export.stdout);
    assert_eq!(elsewhere.code, 3);
    assert!(elsewhere.stderr.contains("NOT_FOUND"), "{elsewhere:?}");
}

#[test]
fn the_output_of_scan_is_an_import_too() {
    let server = Server::start();
    let lines = b"{\"key\":\"a\",\"value\":\"1\",\"version\":7}\n\n\
        {\"key\":\"b\",\"value\":\"2\",\"expires_at_ms\":1}\n";
    let import = server.run_with_input(&["import"], lines);
    assert_eq!(
        (import.code, import.text()),
        (
            0,
            "1 entry written from standard input; 1 had expired and were left out\n"
        ),
        "{import:?}"
    );
    assert_eq!(server.run(["scan"]).text(), "a\t1\n");
}

#[test]
fn files_are_not_overwritten_and_never_half_written() {
    let (server, folder) = (Server::start(), Folder::new("files"));
    let file = folder.file("export");
    fs::write(&file, "mine").expect("the file is written");
    let refused = server.run(["export", &file]);
    assert_eq!(refused.code, 3);
    assert!(refused.stderr.contains("--force"), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(&file).expect("still there"), "mine");
    let failed = server.run(["export", &file, "--force", "--database", "none"]);
    assert_eq!(failed.code, 3);
    assert!(
        failed.stderr.contains("NOT_FOUND") && failed.stderr.contains("was not written"),
        "{}",
        failed.stderr
    );
    assert_eq!(fs::read_to_string(&file).expect("still there"), "mine");
    let written = server.run(["export", &file, "--force", "--output", "json"]);
    assert_eq!(written.json()["entries"], 0);
    let names: Vec<_> = fs::read_dir(&folder.0)
        .expect("it is there")
        .map(|entry| entry.expect("readable").file_name())
        .collect();
    assert_eq!(names, ["export"], "nothing partial is left");
    // What is there under the name of an unfinished export is not ours to write to.
    let partial = ["export.partial", "export.2.partial"].map(|name| folder.file(name));
    for partial in &partial {
        fs::write(partial, "mine").expect("the file is written");
    }
    for _ in 0..2 {
        assert_eq!(server.run(["export", &file, "--force"]).code, 0);
        let failed = server.run(["export", &file, "--force", "--database", "none"]);
        assert_eq!(failed.code, 3, "{failed:?}");
        for partial in &partial {
            assert_eq!(fs::read_to_string(partial).expect("still there"), "mine");
        }
        assert_eq!(fs::read_dir(&folder.0).expect("it is there").count(), 3);
    }
    assert_eq!(server.run(["import", &file]).code, 0);
    assert_eq!(server.run(["export", "/dev/null"]).code, 0, "a device");
    assert_eq!(
        server.run(["export", "/nowhere/at/all"]).code,
        3,
        "no such folder"
    );
}

#[test]
fn a_wrong_file_is_found_before_anything_is_written() {
    let (server, folder) = (filled(), Folder::new("wrong"));
    let text = server.run(["export"]).stdout;
    let binary = server.run(["export", "--format", "binary"]).stdout;
    let without_end = text.strip_suffix(b"{\"end\":true,\"entries\":5006}\n");
    let without_end = without_end.expect("the end is the last line");
    let mut flipped = binary.clone();
    flipped[binary.len() / 2] ^= 1;
    let bad_line = b"{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"b\"}\n";
    let unknown = b"{\"format\":\"pelton-export\",\"format_version\":2}\n";
    let empty = Server::start();
    for (content, code, expected) in [
        (without_end, 3, "breaks off"),
        (&binary[..binary.len() - 40], 3, "breaks off"),
        (&flipped, 3, "damaged"),
        (bad_line, 2, "line 2: `value` is missing"),
        (unknown, 2, "format version is 2"),
        (b"\x89PNG\r\n\x1a\n0000", 3, "no export"),
    ] {
        let file = folder.file("bad");
        fs::write(&file, content).expect("the file is written");
        let import = empty.run(["import", &file]);
        assert_eq!(import.code, code, "{import:?}");
        assert!(
            import.stderr.contains(expected) && import.stderr.contains("nothing was written"),
            "{expected}: {}",
            import.stderr
        );
        assert_eq!(empty.run(["count"]).text(), "0\n");
        // From a pipe it is found as it is read.
        let import = empty.run_with_input(&["import"], content);
        assert_eq!(import.code, code, "{import:?}");
        assert!(import.stderr.contains(expected), "{}", import.stderr);
        let dropped = server.run(["count"]);
        assert_eq!(dropped.text(), "5006\n");
        let mut clear = empty.command(["scan", "--keys-only", "--output", "json"]);
        let keys = run(&mut clear);
        let deletes: String = keys
            .text()
            .lines()
            .map(|line| {
                let mut key: serde_json::Value = serde_json::from_str(line).expect("JSON");
                key["operation"] = "delete".into();
                key.as_object_mut().expect("an object").remove("version");
                key.as_object_mut()
                    .expect("an object")
                    .remove("expires_at_ms");
                format!("{key}\n")
            })
            .collect();
        let deletes = deletes + "\n";
        let cleared = empty.run_with_input(&["batch", "--mode", "independent"], deletes.as_bytes());
        assert_eq!(cleared.code, 0, "{}", cleared.stderr);
    }
}

#[test]
fn what_the_server_refuses_ends_the_import() {
    let server = Server::with(&["--listen", "127.0.0.1:0", "--max-value", "1000"]);
    let large = "x".repeat(1001);
    let lines = format!("{{\"key\":\"k\",\"value\":\"{large}\"}}\n");
    let import = server.run_with_input(&["import"], lines.as_bytes());
    assert_eq!(import.code, 3);
    assert!(
        import
            .stderr
            .contains("lines 1 to 1 were refused: RESOURCE_EXHAUSTED")
            && import.stderr.contains("no entry is known to be written"),
        "{}",
        import.stderr
    );
}

#[test]
fn an_interrupted_import_says_how_far_it_came() {
    let server = Server::start();
    let mut process = server
        .command(["import"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut input = process.stdin.take().expect("piped");
    input
        .write_all(b"{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"b\",\"value\":\"2\"}\n")
        .expect("it is read");
    while server.run(["count"]).text() != "2\n" {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let id = process.id().to_string();
    let killed = Command::new("kill").args(["-s", "INT", &id]).status();
    assert!(killed.expect("kill is there").success());
    let mut stderr = String::new();
    let mut errors = process.stderr.take().expect("piped");
    errors.read_to_string(&mut stderr).expect("it is text");
    let status = process.wait().expect("it ends");
    assert_eq!(status.code(), Some(130), "{stderr}");
    assert!(
        stderr.contains("interrupted; 2 entries are written"),
        "{stderr}"
    );
    drop(input);
}
