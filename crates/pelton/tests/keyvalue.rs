//! The commands that read and write, through the real binary against a real server.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::process::{Command, Stdio};

use serde_json::json;
use support::{Server, pelton, run};

#[test]
fn put_get_delete() {
    let server = Server::start();
    let put = server.run(["put", "k", "hello"]);
    assert_eq!((put.code, put.text()), (0, "stored, version 1\n"));
    let get = server.run(["get", "k"]);
    assert_eq!(
        (get.code, get.text()),
        (0, "hello"),
        "no line end is added where there is no terminal"
    );
    let delete = server.run(["delete", "k"]);
    assert_eq!(
        (delete.code, delete.text()),
        (0, "deleted, it had version 1\n")
    );

    let get = server.run(["get", "k"]);
    assert_eq!((get.code, get.text()), (1, ""));
    assert!(get.stderr.contains("`k` is not there"), "{}", get.stderr);
    let delete = server.run(["delete", "k"]);
    assert_eq!((delete.code, delete.text()), (1, ""));
    assert!(
        delete.stderr.contains("`k` is not there"),
        "{}",
        delete.stderr
    );
}

#[test]
fn values_come_from_argument_file_and_standard_input() {
    let server = Server::start();
    let binary: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let file = std::env::temp_dir().join(format!("pelton-value-{}", server.process_id()));
    fs::write(&file, &binary).expect("the file is written");
    let path = file.to_str().expect("the folder's name is text");
    assert_eq!(server.run(["put", "file", "--file", path]).code, 0);
    fs::remove_file(&file).expect("it was there");
    assert_eq!(server.run_with_input(&["put", "pipe"], &binary).code, 0);
    assert_eq!(
        server.run_with_input(&["put", "dash", "-"], &binary).code,
        0
    );
    assert_eq!(
        server
            .run_with_input(&["put", "dashed-file", "--file", "-"], &binary)
            .code,
        0
    );
    for key in ["file", "pipe", "dash", "dashed-file"] {
        assert!(
            server.run(["get", key]).stdout == binary,
            "{key} comes back byte by byte"
        );
    }
    assert_eq!(server.run(["put", "negative", "-5"]).code, 0);
    assert_eq!(server.run(["get", "negative"]).text(), "-5");
    assert_eq!(server.run(["put", "empty", ""]).code, 0);
    let empty = server.run(["get", "empty"]);
    assert_eq!(
        (empty.code, empty.text()),
        (0, ""),
        "an empty value is no miss"
    );

    let missing = server.run(["put", "k", "--file", "/nowhere/at/all"]);
    assert_eq!(missing.code, 3);
    assert!(
        missing.stderr.contains("/nowhere/at/all"),
        "{}",
        missing.stderr
    );
}

#[test]
fn the_largest_value_can_be_written_and_read() {
    let server = Server::start();
    let largest = vec![b'x'; 4_000_000];
    assert_eq!(server.run_with_input(&["put", "k"], &largest).code, 0);
    assert!(server.run(["get", "k"]).stdout == largest);
    let too_large = server.run_with_input(&["put", "k"], &vec![b'x'; 4_000_001]);
    assert_eq!(too_large.code, 3);
    assert!(
        too_large.stderr.contains("RESOURCE_EXHAUSTED"),
        "{}",
        too_large.stderr
    );
    assert!(
        too_large.stderr.contains("4000000"),
        "the limit is named: {}",
        too_large.stderr
    );
}

#[test]
fn conditions() {
    let server = Server::start();
    let code = |arguments: &[&str]| run(&mut server.command(arguments)).code;
    assert_eq!(code(&["put", "k", "a", "--if-present"]), 1);
    assert_eq!(code(&["put", "k", "a", "--if-version", "7"]), 1);
    assert_eq!(code(&["put", "k", "a", "--if-absent"]), 0);
    let unmet = server.run(["put", "k", "b", "--if-absent"]);
    assert_eq!((unmet.code, unmet.text()), (1, ""));
    assert!(unmet.stderr.contains("nothing written"), "{}", unmet.stderr);
    assert_eq!(code(&["put", "k", "b", "--if-present"]), 0);
    let version = server.run(["get", "k", "--output", "json"]).json()["version"].to_string();
    assert_eq!(code(&["delete", "k", "--if-version", "1000000"]), 1);
    assert_eq!(code(&["put", "k", "c", "--if-version", &version]), 0);
    assert_eq!(
        code(&["delete", "k", "--if-version", &version]),
        1,
        "the version has changed"
    );
    assert_eq!(
        code(&["put", "k2", "c", "--if-version", "0"]),
        0,
        "0: absent"
    );
    assert_eq!(server.run(["get", "k"]).text(), "c");
}

#[test]
fn json_answers() {
    let server = Server::start();
    let put = server.run(["put", "k", "grün", "--output", "json"]);
    assert_eq!(put.json(), json!({"applied": true, "version": 1}));
    let unmet = server.run(["put", "k", "x", "--if-absent", "--output", "json"]);
    assert_eq!(
        (unmet.code, unmet.json()),
        (1, json!({"applied": false, "version": 1}))
    );
    assert_eq!(unmet.stderr, "", "the answer says it");
    let get = server.run(["get", "k", "--output", "json"]).json();
    assert_eq!(
        get,
        json!({"found": true, "value": "grün", "value_encoding": "text", "version": 1})
    );
    let miss = server.run(["get", "nothing", "--output", "json"]);
    assert_eq!((miss.code, miss.json()), (1, json!({"found": false})));

    assert_eq!(
        server
            .run_with_input(&["put", "binary"], &[0xff, 0x00])
            .code,
        0
    );
    let get = server.run(["get", "binary", "--output", "json"]).json();
    assert_eq!(
        (get["value"].as_str(), get["value_encoding"].as_str()),
        (Some("/wA="), Some("base64"))
    );
    let delete = server.run(["delete", "k", "--output", "json"]).json();
    assert_eq!(delete, json!({"deleted": true, "version": 1}));
    let count = server.run(["count", "--output", "json"]).json();
    assert_eq!(count["count"], 1);
}

#[test]
fn keys_of_any_bytes() {
    let server = Server::start();
    let raw = std::ffi::OsString::from_vec(vec![0xfe, 0x01]);
    let mut put = server.command(["put"]);
    put.arg(raw).arg("value");
    assert_eq!(run(&mut put).code, 0);
    assert_eq!(
        server.run(["get", "fe01", "--key-encoding", "hex"]).text(),
        "value"
    );
    assert_eq!(
        server
            .run(["get", "/gE=", "--key-encoding", "base64"])
            .text(),
        "value"
    );
    assert_eq!(server.run(["scan"]).text(), "\\xfe\\x01\tvalue\n");
    assert_eq!(
        server.run(["scan", "--key-encoding", "hex"]).text(),
        "fe01\tvalue\n"
    );
    let object = server.run(["scan", "--output", "json"]).json();
    assert_eq!(
        (object["key"].as_str(), object["key_encoding"].as_str()),
        (Some("/gE="), Some("base64"))
    );
    let empty = server.run(["put", "", "the empty key"]);
    assert_eq!(empty.code, 0);
    assert_eq!(server.run(["get", ""]).text(), "the empty key");
    let wrong = server.run(["get", "xyz", "--key-encoding", "hex"]);
    assert_eq!(wrong.code, 2);
}

#[test]
fn scans_and_counts() {
    let server = Server::start();
    for key in ["b", "a/2", "a/1", "c"] {
        assert_eq!(server.run(["put", key, &key.to_uppercase()]).code, 0);
    }
    let scan = |flags: &[&str]| {
        let mut command = server.command(["scan"]);
        let answer = run(command.args(flags));
        assert_eq!(answer.code, 0, "{answer:?}");
        answer.text().to_owned()
    };
    assert_eq!(scan(&[]), "a/1\tA/1\na/2\tA/2\nb\tB\nc\tC\n");
    assert_eq!(scan(&["--keys-only"]), "a/1\na/2\nb\nc\n");
    assert_eq!(scan(&["--prefix", "a/", "--keys-only"]), "a/1\na/2\n");
    assert_eq!(
        scan(&["--start", "a/2", "--end", "c", "--keys-only"]),
        "a/2\nb\n"
    );
    assert_eq!(
        scan(&["--reverse", "--limit", "2", "--keys-only"]),
        "c\nb\n"
    );
    assert_eq!(scan(&["--prefix", "nothing"]), "", "no entry is no miss");
    // Page after page, by the last key of the one before.
    let page = |last: &str, more: &[&str]| {
        scan(
            &[
                &["--keys-only", "--limit", "2", "--start-after", last],
                more,
            ]
            .concat(),
        )
    };
    assert_eq!(page("a/1", &[]), "a/2\nb\n");
    assert_eq!(page("b", &[]), "c\n");
    assert_eq!(page("a/1", &["--prefix", "a/"]), "a/2\n");
    assert_eq!(page("b", &["--reverse"]), "a/2\na/1\n");
    let listed = server.run(["ls", "--start-after", "a/2"]);
    assert_eq!(listed.text(), "b\nc\n");
    let lines = scan(&["--limit", "1", "--output", "json"]);
    let object: serde_json::Value = serde_json::from_str(&lines).expect("one line of JSON");
    assert_eq!(
        (&object["key"], &object["value"], object["version"].as_u64()),
        (&json!("a/1"), &json!("A/1"), Some(3))
    );

    assert_eq!(server.run(["count"]).text(), "4\n", "the bare number");
    assert_eq!(server.run(["count", "--prefix", "a/"]).text(), "2\n");
    assert_eq!(server.run(["count", "--start", "b"]).text(), "2\n");
    let wrong = server.run(["count", "--start", "b", "--end", "a"]);
    assert_eq!(wrong.code, 2);
    assert!(
        wrong.stderr.contains("--end is below --start"),
        "{}",
        wrong.stderr
    );
}

#[test]
fn appending_and_counting() {
    let server = Server::start();
    let append = server.run(["append", "log", "one "]);
    assert_eq!(
        (append.code, append.text()),
        (0, "appended, 4 bytes now, version 1\n")
    );
    let two = server.run_with_input(&["append", "log"], b"two\xff");
    assert_eq!(two.code, 0);
    assert_eq!(server.run(["get", "log"]).stdout, b"one two\xff");
    let unmet = server.run(["append", "none", "x", "--if-present"]);
    assert_eq!((unmet.code, unmet.text()), (1, ""));
    assert!(unmet.stderr.contains("nothing appended"), "{unmet:?}");
    let json = server
        .run(["append", "log", "!", "--output", "json"])
        .json();
    assert_eq!(
        (&json["applied"], &json["length"]),
        (&json!(true), &json!(9))
    );

    assert_eq!(
        server.run(["incr", "n"]).text(),
        "1\n",
        "the bare new number"
    );
    assert_eq!(server.run(["incr", "n", "41"]).text(), "42\n");
    assert_eq!(server.run(["incr", "n", "-50"]).text(), "-8\n");
    assert_eq!(
        server.run(["incr", "m", "1", "--initial", "-5"]).text(),
        "-4\n"
    );
    let unmet = server.run(["incr", "n", "--if-absent"]);
    assert_eq!((unmet.code, unmet.text()), (1, ""));
    let wrong = server.run(["incr", "log"]);
    assert_eq!(wrong.code, 1);
    assert!(
        wrong.stderr.contains("`log` has a value that is no number"),
        "{wrong:?}"
    );
    let max = i64::MAX.to_string();
    assert_eq!(server.run(["incr", "big", &max]).code, 0);
    let overflow = server.run(["incr", "big", "--output", "json"]);
    assert_eq!(overflow.code, 1);
    assert_eq!(
        (
            &overflow.json()["refusal"],
            overflow.json()["value"].as_i64()
        ),
        (&json!("overflow"), Some(i64::MAX))
    );
}

#[test]
fn values_as_conditions_and_previous_entries() {
    let server = Server::start();
    assert_eq!(server.run(["put", "k", "old\n"]).code, 0);
    let unmet = server.run(["put", "k", "x", "--if-value", "old"]);
    assert_eq!(unmet.code, 1, "another value");
    let put = server.run(["put", "k", "new", "--if-value", "old\n", "--previous"]);
    assert!(
        put.text().starts_with("stored, version ")
            && put.text().ends_with("\nbefore: version 1, old\\n\n"),
        "{put:?}"
    );
    let put = server.run(["put", "k2", "v", "--previous", "--output", "json"]);
    assert_eq!(put.json()["previous"], json!(null), "asked for, and none");
    let unmet = server.run(["delete", "k", "--if-value", "old"]);
    assert_eq!(unmet.code, 1);
    let delete = server.run([
        "delete",
        "k",
        "--if-value",
        "new",
        "--previous",
        "--output",
        "json",
    ]);
    let delete = delete.json();
    assert_eq!(delete["deleted"], true);
    assert_eq!(
        (&delete["previous"]["value"], &delete["previous"]["version"]),
        (&json!("new"), &delete["version"])
    );
}

#[test]
fn time_to_live() {
    let server = Server::start();
    let expiry = || server.run(["get", "k", "--output", "json"]).json()["expires_at_ms"].as_u64();
    let now_ms = std::time::UNIX_EPOCH
        .elapsed()
        .expect("after 1970")
        .as_millis() as u64;
    assert_eq!(server.run(["put", "k", "v", "--ttl", "5m"]).code, 0);
    let first = expiry().expect("it expires");
    assert!(
        (300_000..360_000).contains(&(first - now_ms)),
        "{first} {now_ms}"
    );
    assert_eq!(server.run(["put", "k", "w", "--keep-ttl"]).code, 0);
    assert_eq!(expiry(), Some(first), "kept");
    assert_eq!(server.run(["put", "k", "v"]).code, 0);
    assert_eq!(expiry(), None, "a Put without --keep-ttl clears it");
    assert_eq!(server.run(["put", "k", "v", "--ttl", "1ms"]).code, 0);
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(server.run(["get", "k"]).code, 1, "it has expired");
}

/// Many pages, and every entry once; then whoever reads goes away in the middle.
#[test]
fn a_long_scan_and_a_broken_pipe() {
    let server = Server::start();
    let value = vec![b'v'; 300_000];
    for number in 0..12 {
        assert_eq!(
            server
                .run_with_input(&["put", &format!("k{number:02}")], &value)
                .code,
            0
        );
    }
    let scan = server.run(["scan"]);
    assert_eq!(scan.code, 0);
    let keys: Vec<&str> = scan.text().lines().map(|line| &line[..3]).collect();
    let expected: Vec<String> = (0..12).map(|number| format!("k{number:02}")).collect();
    assert_eq!(keys, expected);

    let mut process = server.command(["scan"]);
    let mut process = process
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    drop(process.stdout.take());
    let output = process.wait_with_output().expect("it ends");
    assert_eq!(
        (output.status.code(), &output.stderr[..]),
        (Some(0), &b""[..]),
        "a broken pipe ends it quietly"
    );
}

/// Keys with everything that a line, a shell or a terminal could mistake.
const ODD_KEYS: [&[u8]; 12] = [
    b"plain",
    b"a\nb",
    b"back\\slash",
    b"\\n",
    b"tab\there",
    b"\r\n",
    b" blanks at both ends ",
    b"\xff\xfe",
    b"\x1b[31m",
    "\u{202e}gr\u{fc}n".as_bytes(),
    b"-dash",
    b"'\"$(false)`*",
];

#[test]
fn any_key_that_scan_prints_is_read_back_by_a_shell() {
    let server = Server::start();
    for (number, key) in ODD_KEYS.iter().enumerate() {
        let key = std::ffi::OsString::from_vec(key.to_vec());
        let mut put = server.command(["put", "--"]);
        assert_eq!(run(put.arg(key).arg(format!("value {number}"))).code, 0);
    }
    let binary = env!("CARGO_BIN_EXE_pelton");
    for list in ["scan --keys-only", "ls", "ls --key-encoding escape"] {
        let line = format!(
            "'{binary}' {list} | while read -r k; do '{binary}' get --key-encoding escape -- \
             \"$k\"; echo; done"
        );
        let shell = Command::new("sh")
            .args(["-c", &line])
            .env("PELTON_ADDRESS", &server.addresses[0])
            .output()
            .expect("there is a shell");
        let text = String::from_utf8(shell.stdout).expect("text");
        let found: BTreeSet<String> = text.lines().map(str::to_owned).collect();
        let expected = (0..ODD_KEYS.len()).map(|number| format!("value {number}"));
        assert_eq!(found, expected.collect(), "{list}: {:?}", shell.stderr);
    }
    // In prefixes too; and what is no escape is refused.
    let count = ["count", "--key-encoding", "escape", "--prefix", "back\\\\s"];
    assert_eq!(server.run(count).text(), "1\n");
    let wrong = server.run(["get", "--key-encoding", "escape", "back\\slash"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(wrong.stderr.contains("--key-encoding"), "{wrong:?}");
}

#[test]
fn numbers_are_read_as_numbers() {
    let server = Server::start();
    for (delta, number) in [("41", "41\n"), ("-100", "-59\n")] {
        assert_eq!(server.run(["incr", "n", delta]).text(), number);
        assert_eq!(server.run(["get", "n", "--number"]).text(), number);
    }
    let json = server.run(["get", "n", "--number", "--output", "json"]);
    assert_eq!(json.json()["value"], -59);
    assert_eq!(server.run(["put", "text", "hello"]).code, 0);
    let text = server.run(["get", "text", "--number"]);
    assert_eq!((text.code, text.text()), (1, ""));
    assert!(text.stderr.contains("5 bytes"), "{text:?}");
    assert_eq!(server.run(["get", "nothing", "--number"]).code, 1);
}

#[test]
fn numbers_are_written_as_numbers() {
    let server = Server::start();
    for number in ["5", "-7", "9223372036854775807", "-9223372036854775808"] {
        assert_eq!(server.run(["put", "n", number, "--number"]).code, 0);
        let read = server.run(["get", "n", "--number"]);
        assert_eq!(read.text(), format!("{number}\n"));
    }
    // As it comes from a pipe; and it can be counted on.
    let piped = server.run_with_input(&["put", "n", "--number"], b" 41\n");
    assert_eq!(piped.code, 0, "{piped:?}");
    assert_eq!(server.run(["incr", "n"]).text(), "42\n");
    for (expected, code) in [("41", 1), ("42", 0), ("42", 1)] {
        let flags = ["put", "n", "50", "--number", "--if-value", expected];
        assert_eq!(server.run(flags).code, code, "{expected}");
    }
    assert_eq!(server.run(["get", "n", "--number"]).text(), "50\n");
    for wrong in ["", "1.5", "9223372036854775808", "five"] {
        for refused in [
            server.run(["put", "n", wrong, "--number"]),
            server.run(["put", "n", "1", "--number", "--if-value", wrong]),
        ] {
            assert_eq!(refused.code, 2, "{refused:?}");
            assert!(refused.stderr.contains("whole number"), "{refused:?}");
        }
    }
    assert_eq!(server.run(["get", "n", "--number"]).text(), "50\n");
}

#[test]
fn other_names_of_commands_work() {
    let server = Server::start();
    assert_eq!(server.run(["set", "k", "v"]).text(), "stored, version 1\n");
    assert_eq!(server.run(["ls"]).text(), "k\n");
    assert_eq!(server.run(["ls", "--prefix", "x"]).text(), "");
    assert_eq!(server.run(["del", "k"]).code, 0);
    let help = server.run(["help", "put"]);
    assert_eq!(help.code, 0, "{help:?}");
    assert!(help.text().contains("--if-absent"), "{help:?}");
    assert!(server.run(["help"]).text().contains("set"));
}

#[test]
fn a_range_is_deleted_and_counted() {
    let server = Server::start();
    // More than two groups, with keys so large that some groups are ended by their bytes.
    let mut lines = String::new();
    for number in 0..2_500 {
        let key = format!(
            "row/{number:05}{}",
            "x".repeat(if number < 60 { 30_000 } else { 0 })
        );
        lines.push_str(&format!(
            "{{\"operation\":\"put\",\"key\":\"{key}\",\"value\":\"\"}}\n"
        ));
    }
    let mode = ["batch", "--mode", "independent", "--failures-only"];
    assert_eq!(server.run_with_input(&mode, lines.as_bytes()).code, 0);
    for key in ["ro", "rox", "row0"] {
        assert_eq!(server.run(["put", key, "v"]).code, 0);
    }
    let some = server.run(["delete", "--prefix", "row/", "--limit", "1100"]);
    assert_eq!((some.code, some.text()), (0, "1100 keys deleted\n"));
    assert_eq!(server.run(["count", "--prefix", "row/"]).text(), "1400\n");
    let rest = server.run(["delete", "--prefix", "row/", "--output", "json"]);
    assert_eq!((rest.code, &rest.json()["deleted"]), (0, &json!(1_400)));
    let again = server.run(["delete", "--prefix", "row/"]);
    assert_eq!((again.code, again.text()), (0, "0 keys deleted\n"));
    assert_eq!(server.run(["ls"]).text(), "ro\nrow0\nrox\n");
    // A variable that was never set removes nothing.
    let empty = server.run(["delete", "--prefix", ""]);
    assert_eq!(empty.code, 2);
    assert!(empty.stderr.contains("--all"), "{empty:?}");
    assert_eq!(server.run(["delete"]).code, 2);
    assert_eq!(server.run(["count"]).text(), "3\n");
    let elsewhere = server.run(["delete", "--all", "--database", "nowhere"]);
    assert_eq!(elsewhere.code, 3);
    assert!(
        elsewhere.stderr.contains("0 keys deleted before"),
        "{elsewhere:?}"
    );
    assert_eq!(server.run(["delete", "--all"]).text(), "3 keys deleted\n");
}

/// The table of docs/cli.md: what is missing, and the code that it gives.
#[test]
fn blobs_of_a_prefix_are_deleted_and_counted() {
    let folder = support::Folder::new("blob-prefix");
    let server = Server::durable(&folder.data(), &[]);
    let file = folder.0.join("file");
    std::fs::write(&file, b"content").expect("the folder is ours");
    let file = file.to_str().expect("it is text");
    for name in ["a/1", "a/2", "b"] {
        assert_eq!(server.run(["upload", file, "--name", name]).code, 0);
    }
    let refused = server.run(["blob", "delete", "--prefix", ""]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("--all"), "{refused:?}");
    let some = server.run(["blob", "delete", "--prefix", "a/"]);
    assert_eq!(some.text(), "2 blobs deleted\n");
    let none = server.run(["blob", "delete", "--prefix", "a/"]);
    assert_eq!((none.text(), none.code), ("0 blobs deleted\n", 0));
    let all = server.run(["blob", "delete", "--all", "--output", "json"]);
    assert_eq!(all.json()["deleted"], 1);
    assert_eq!(server.run(["blob", "list"]).text(), "");
}

#[test]
fn a_folder_is_uploaded_with_all_that_is_below_it() {
    let folder = support::Folder::new("upload-folder");
    let server = Server::durable(&folder.data(), &[]);
    let photos = folder.0.join("photos");
    std::fs::create_dir_all(photos.join("2026/may")).expect("the folder is ours");
    for name in ["a.jpg", "2026/b.jpg", "2026/may/c.jpg"] {
        std::fs::write(photos.join(name), name).expect("the folder is ours");
    }
    std::os::unix::fs::symlink(&photos, photos.join("back")).expect("the folder is ours");
    let photos = photos.to_str().expect("it is text");
    let refused = server.run(["upload", photos]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.stderr.contains("--recursive"), "{refused:?}");
    let stored = server.run(["upload", "--recursive", photos, "--prefix", "p/"]);
    assert_eq!(stored.code, 0, "{stored:?}");
    assert!(
        stored.stderr.contains("is a link to a folder"),
        "{stored:?}"
    );
    let listed = server.run(["blob", "list"]);
    let names: Vec<&str> = (listed.text().lines())
        .filter_map(|line| line.rsplit('\t').next())
        .collect();
    assert_eq!(names, ["p/2026/b.jpg", "p/2026/may/c.jpg", "p/a.jpg"]);
    let empty = folder.0.join("empty");
    std::fs::create_dir(&empty).expect("the folder is ours");
    let empty = empty.to_str().expect("it is text");
    let nothing = server.run(["upload", "--recursive", empty]);
    assert_eq!(nothing.code, 3, "{nothing:?}");
    assert!(nothing.stderr.contains("no file"), "{nothing:?}");
}

#[test]
fn all_blobs_below_a_name_are_downloaded_as_a_folder() {
    let folder = support::Folder::new("download-folder");
    let server = Server::durable(&folder.data(), &[]);
    let file = folder.0.join("file");
    for name in ["p/a.jpg", "p/2026/b.jpg", "p/2026/may/c.jpg", "pq"] {
        std::fs::write(&file, name).expect("the folder is ours");
        let path = file.to_str().expect("it is text");
        assert_eq!(server.run(["upload", path, "--name", name]).code, 0);
    }
    let copy = folder.0.join("copy");
    let to = copy.to_str().expect("it is text");
    let read = |below: &str| std::fs::read_to_string(copy.join(below)).expect("it is there");
    // With and without a slash at the end, and again into a folder that is there.
    let fetched = server.run(["download", "--recursive", "p", "--to", to]);
    assert_eq!(fetched.code, 0, "{fetched:?}");
    assert_eq!(read("2026/may/c.jpg"), "p/2026/may/c.jpg");
    assert_eq!(read("a.jpg"), "p/a.jpg");
    assert!(!copy.join("pq").exists() && !copy.join("q").exists());
    let refused = server.run(["download", "--recursive", "p/", "--to", to]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.stderr.contains("--force"), "{refused:?}");
    std::fs::write(copy.join("a.jpg"), "changed").expect("the folder is ours");
    let forced = server.run(["download", "--recursive", "p/", "--to", to, "--force"]);
    assert_eq!(forced.code, 0, "{forced:?}");
    assert_eq!(read("a.jpg"), "p/a.jpg");
    // Into the folder in which it runs.
    let here = run(server
        .command(["download", "--recursive", ""])
        .current_dir(&copy));
    assert_eq!(here.code, 0, "{here:?}");
    assert_eq!(
        (read("p/a.jpg"), read("pq")),
        ("p/a.jpg".into(), "pq".into())
    );
}

#[test]
fn missing_things_have_one_exit_code_each() {
    let folder = support::Folder::new("missing");
    let server = Server::durable(&folder.data(), &[]);
    assert_eq!(server.run(["put", "text", "no number"]).code, 0);
    let code = |words: &[&str]| {
        let answer = run(server.command(words).current_dir(&folder.0));
        assert_ne!(answer.stderr, "", "{words:?}: {answer:?}");
        // What a command says does not depend on how: the same code with JSON, and one object where
        // there is an error.
        let json = run(server
            .command(words)
            .args(["--output", "json"])
            .current_dir(&folder.0));
        assert_eq!(json.code, answer.code, "{words:?}: {json:?}");
        if !json.stderr.is_empty() {
            let error: serde_json::Value = serde_json::from_str(&json.stderr).expect("one object");
            assert_eq!(error["exit_code"], answer.code, "{words:?}: {error}");
            assert!(error["error"].is_string(), "{words:?}: {error}");
        } else {
            assert_ne!(json.stdout, b"", "{words:?}: it says nothing at all");
        }
        answer.code
    };
    for words in [
        &["get", "k"][..],
        &["delete", "k"],
        &["put", "k", "v", "--if-present"],
        &["append", "k", "v", "--if-present"],
        &["get", "text", "--number"],
        &["incr", "text"],
        &["download", "nothing"],
        &["download", "--recursive", "nothing"],
        &["blob", "stat", "nothing"],
        &["blob", "delete", "nothing"],
        &["database", "drop", "nowhere"],
        &["database", "convert", "nowhere", "--kind", "disk"],
    ] {
        assert_eq!(code(words), 1, "{words:?}");
    }
    for words in [
        &["get", "k", "--database", "nowhere"][..],
        &["put", "k", "v", "--database", "nowhere"],
        &["delete", "k", "--database", "nowhere"],
        &["incr", "k", "--database", "nowhere"],
        &["scan", "--database", "nowhere"],
        &["ls", "--database", "nowhere"],
        &["count", "--database", "nowhere"],
        &["export", "--database", "nowhere"],
        &["download", "nothing", "--database", "nowhere"],
        &["blob", "stat", "nothing", "--database", "nowhere"],
        &["blob", "delete", "nothing", "--database", "nowhere"],
        &["blob", "list", "--database", "nowhere"],
        &["upload", "no-file"],
        &["put", "k", "--file", "no-file"],
        &["batch", "no-file"],
        &["transact", "no-file"],
        &["import", "no-file"],
        &["get", "k", "--address", "127.0.0.1:1"],
        &["status", "--address", "127.0.0.1:1"],
    ] {
        assert_eq!(code(words), 3, "{words:?}");
    }
    for words in [
        &["get"][..],
        &["get", "k", "--wrong"],
        &["get", "--key-encoding", "hex", "x"],
    ] {
        assert_eq!(code(words), 2, "{words:?}");
    }
}

/// A refusal says what would do.
#[test]
fn misses_name_what_to_do() {
    let server = Server::start();
    server.run(["put", "text", "5"]);
    for (words, what) in [
        (&["incr", "text"][..], "`pelton put KEY --number N`"),
        (&["database", "drop", "default"], "`pelton delete --all`"),
    ] {
        let answer = run(&mut server.command(words));
        assert_eq!(answer.code, 1, "{answer:?}");
        assert!(answer.stderr.contains(what), "{answer:?}");
    }
    let other = server.run(["database", "drop", "other"]);
    assert!(
        other.stderr.ends_with("there is no database `other`\n"),
        "{other:?}"
    );
    for words in [["database", "ls"], ["blob", "ls"]] {
        assert_ne!(server.run(words).code, 2, "{words:?}");
    }
}

/// What cannot be told on standard error does not change how a command ends.
#[test]
fn exit_codes_hold_when_standard_error_cannot_be_written() {
    let server = Server::start();
    let gone = ["get", "k", "--address", "127.0.0.1:1"];
    for (words, code) in [(&["get", "k"][..], 1), (&gone, 3), (&["get"], 2)] {
        for format in ["text", "json"] {
            let full = fs::OpenOptions::new().write(true).open("/dev/full");
            let mut command = server.command(words);
            command.args(["--output", format]);
            command.stderr(full.expect("Linux has it"));
            let status = command.stdout(Stdio::null()).status().expect("it runs");
            assert_eq!(status.code(), Some(code), "{words:?} {format}: {status}");
        }
    }
}

#[test]
fn errors_are_objects_with_output_json() {
    let server = Server::start();
    let error = |words: &[&str]| -> serde_json::Value {
        let answer = run(server.command(words).args(["--output", "json"]));
        assert_eq!(answer.text(), "", "{answer:?}");
        serde_json::from_str(&answer.stderr).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
    };
    let unknown = error(&["get", "k", "--database", "nowhere"]);
    assert_eq!(unknown["status"], "NOT_FOUND", "{unknown}");
    assert_eq!(unknown["address"], server.addresses[0], "{unknown}");
    assert_eq!(unknown["exit_code"], 3, "{unknown}");
    let text = unknown["error"].as_str().expect("text");
    assert!(
        text.contains("nowhere") && !text.contains("field "),
        "{unknown}"
    );
    let unreached = error(&["get", "k", "--address", "127.0.0.1:1"]);
    assert_eq!(unreached["address"], "127.0.0.1:1", "{unreached}");
    assert!(
        unreached["hint"]
            .as_str()
            .expect("a hint")
            .contains("pelton serve")
    );
    assert_eq!(unreached["status"], json!(null), "{unreached}");
    let usage = error(&["get", "k", "--timeout", "1"]);
    assert_eq!(usage["exit_code"], 2, "{usage}");
    assert!(
        usage["error"].as_str().expect("text").contains("1s"),
        "{usage}"
    );
}

#[test]
fn values_that_are_too_large_name_the_flag() {
    let server = Server::with(&["--listen", "127.0.0.1:0", "--max-value", "100"]);
    let value = vec![b'v'; 101];
    for words in [&["put", "k"][..], &["append", "k"]] {
        let refused = server.run_with_input(words, &value);
        assert_eq!(refused.code, 3, "{refused:?}");
        assert!(refused.stderr.contains("--max-value"), "{refused:?}");
    }
    assert_eq!(server.run_with_input(&["put", "k"], &value[1..]).code, 0);
    let grown = server.run(["append", "k", "v"]);
    assert!(grown.stderr.contains("--max-value"), "{grown:?}");
    // Above what a request may have at all.
    let huge = server.run_with_input(&["put", "k"], &vec![b'v'; 17 << 20]);
    assert_eq!(huge.code, 3);
    assert!(huge.stderr.contains("--max-value"), "{}", huge.stderr);
    assert!(huge.stderr.contains("pelton upload"), "{}", huge.stderr);
}

#[test]
fn a_volatile_database_is_not_converted_and_the_way_is_told() {
    let folder = support::Folder::new("convert-volatile");
    let server = Server::durable(&folder.data(), &[]);
    let create = ["database", "create", "fast", "--durability", "volatile"];
    assert_eq!(server.run(create).code, 0);
    let refused = server.run(["database", "convert", "fast", "--kind", "disk"]);
    assert_eq!(refused.code, 3);
    assert!(refused.stderr.contains("`fast` is volatile"), "{refused:?}");
    assert!(refused.stderr.contains("pelton export"), "{refused:?}");
}

#[test]
fn an_unknown_database_is_named() {
    let server = Server::start();
    let answer = server.run(["get", "k", "--database", "elsewhere"]);
    assert_eq!(answer.code, 3);
    assert!(
        answer.stderr.contains("NOT_FOUND") && answer.stderr.contains("elsewhere"),
        "{}",
        answer.stderr
    );
    assert!(answer.stderr.contains("pelton database list"), "{answer:?}");
    let default = server.run(["database", "drop", ""]);
    assert_eq!(default.code, 3, "{default:?}");
    assert!(
        default.stderr.contains("cannot be dropped") && default.stderr.contains("delete --all"),
        "{default:?}"
    );
}

/// Its name is empty, and nobody can make another one that looks like it.
#[test]
fn the_default_database_is_not_called_default() {
    let server = Server::start();
    for _ in 0..2 {
        let create = ["database", "create", "default", "--durability", "volatile"];
        let refused = server.run(create);
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.stderr.contains("has the empty name"), "{refused:?}");
        for name in ["default", "(default)"] {
            let unknown = server.run(["get", "k", "--database", name]);
            assert_eq!(unknown.code, 3, "{unknown:?}");
            assert!(
                unknown.stderr.contains("leave --database out"),
                "{unknown:?}"
            );
        }
        let there = server.run(["database", "create", ""]);
        assert_eq!(there.code, 1, "{there:?}");
        let told = "the default database, whose name is empty, is there already";
        assert!(there.stderr.contains(told), "{there:?}");
    }
    assert_eq!(server.run(["get", "k", "--database", ""]).code, 1);
}

#[test]
fn a_message_names_the_method_once() {
    let server = Server::with(&["--listen", "127.0.0.1:0", "--max-value", "10"]);
    let refused = server.run(["put", "k", "more than ten bytes"]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert_eq!(
        refused.stderr.matches("KeyValue/Put").count(),
        1,
        "{refused:?}"
    );
    assert!(refused.stderr.contains("--max-value"), "{refused:?}");
}

/// As where a variable is not set in a job of cron or systemd: nothing is not taken for a value.
/// A file that is too long for every server is not even read: this one has no blocks.
#[test]
fn a_file_that_no_server_takes_is_refused_at_once() {
    let folder = support::Folder::new("huge-value");
    let path = folder.0.join("huge");
    let file = fs::File::create(&path).expect("it is made");
    file.set_len(1 << 40).expect("the file system has holes");
    let words = ["put", "k", "--address", "127.0.0.1:1", "--file"];
    let refused = support::run_with_timeout(pelton().args(words).arg(&path));
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(
        refused.stderr.contains("more than 1073741824 bytes"),
        "{refused:?}"
    );
    assert!(refused.stderr.contains("pelton upload"), "{refused:?}");
}

#[test]
fn a_value_is_not_read_from_the_null_device_or_a_closed_input() {
    let server = Server::start();
    assert_eq!(server.run(["put", "k", "kept"]).code, 0);
    for word in ["put", "append"] {
        let null = server.run([word, "k"]);
        let closed = run(Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" <&-"])
            .arg(env!("CARGO_BIN_EXE_pelton"))
            .args([word, "k", "--address", &server.addresses[0]]));
        for refused in [null, closed] {
            assert_eq!(refused.code, 2, "{refused:?}");
            assert!(refused.stderr.contains("there is no value"), "{refused:?}");
        }
        assert_eq!(server.run(["get", "k"]).text(), "kept");
    }
}

/// A command before the pipe that fails writes nothing: that is no empty value, no empty list and
/// no empty blob.
#[test]
fn standard_input_without_a_byte_is_refused() {
    let server = Server::start();
    assert_eq!(server.run(["put", "k", "kept"]).code, 0);
    let empty = std::env::temp_dir().join(format!("pelton-empty-{}", server.process_id()));
    fs::write(&empty, b"").expect("the file is written");
    let path = empty.to_str().expect("the folder's name is text");
    let commands: [&[&str]; 10] = [
        &["put", "k"],
        &["put", "k", "-"],
        &["put", "k", "--file", "-"],
        &["append", "k"],
        &["upload", "-", "--name", "k"],
        &["batch"],
        &["batch", "--mode", "independent"],
        &["transact"],
        &["import"],
        &["import", path],
    ];
    for command in commands {
        let refused = server.run_with_input(command, b"");
        assert_eq!(
            (refused.code, refused.text()),
            (2, ""),
            "{command:?} {refused:?}"
        );
        assert!(
            refused
                .stderr
                .contains("is empty: did the command or file that it comes from fail?"),
            "{refused:?}"
        );
        assert_eq!(server.run(["get", "k"]).text(), "kept");
    }
    // What is meant to be empty is said to be.
    for command in [&["put", "k", ""][..], &["put", "k", "--file", path]] {
        assert_eq!(server.run(["put", "k", "kept"]).code, 0);
        let put = server.run_with_input(command, b"");
        assert_eq!(
            (put.code, server.run(["get", "k"]).text()),
            (0, ""),
            "{put:?}"
        );
    }
    assert_eq!(server.run_with_input(&["transact"], b"{}").code, 0);
    fs::remove_file(&empty).expect("it was there");
}

/// What the user has to write otherwise is wrong usage, also where the server is the one to notice.
#[test]
fn a_name_that_cannot_be_used_is_wrong_usage() {
    let folder = support::Folder::new("bad-names");
    let root = folder.0.join("backups");
    let root = root.to_str().expect("text");
    let server = Server::durable(&folder.data(), &["--backup-root", root]);
    let file = folder.0.join("file");
    fs::write(&file, "content").expect("written");
    let file = file.to_str().expect("text");
    for arguments in [
        &["upload", file, "--name", "../x"][..],
        &["backup", "../x"],
        &["database", "create", "bad name"],
    ] {
        let answer = run(&mut server.command(arguments));
        assert_eq!(answer.code, 2, "{answer:?}");
        assert!(answer.stderr.starts_with("pelton: the name "), "{answer:?}");
        assert!(!answer.stderr.contains("field"), "{answer:?}");
    }
}

#[test]
fn misses_of_all_commands_look_the_same() {
    let folder = support::Folder::new("misses");
    let server = Server::durable(&folder.data(), &[]);
    for (arguments, expected) in [
        (
            &["download", "nope"][..],
            "pelton: there is no blob `nope`\n",
        ),
        (
            &["database", "convert", "nope", "--kind", "disk"],
            "pelton: nothing converted: there is no database `nope`\n",
        ),
        (
            &["database", "drop", "nope"],
            "pelton: nothing dropped: there is no database `nope`\n",
        ),
    ] {
        let answer = run(&mut server.command(arguments));
        assert_eq!((answer.code, answer.stderr.as_str()), (1, expected));
    }
    let import = server.run_with_input(
        &["import", "--database", "copy"],
        b"{\"key\":\"a\",\"value\":\"b\"}\n",
    );
    assert_eq!(import.code, 3);
    assert!(
        import
            .stderr
            .contains("`pelton database create NAME` makes one"),
        "{import:?}"
    );
}

#[test]
fn a_variable_chooses_how_answers_and_errors_are_printed() {
    let server = Server::start();
    assert_eq!(server.run(["put", "k", "v"]).code, 0);
    let json = |arguments: &[&str]| run(server.command(arguments).env("PELTON_OUTPUT", "json"));
    assert_eq!(json(&["get", "k"]).json()["value"], "v");
    let wrong = json(&["get"]);
    assert_eq!(wrong.code, 2);
    let fields: serde_json::Value = serde_json::from_str(&wrong.stderr).expect("an object");
    assert!(
        fields["hint"]
            .as_str()
            .is_some_and(|hint| hint.starts_with("write `pelton get "))
    );
    assert_eq!(json(&["get", "k", "--output", "text"]).text(), "v");
}

#[test]
fn a_socket_that_is_not_there_is_told_apart_from_one_that_nobody_answers() {
    let answer = run(support::pelton().args(["get", "k", "--address", "unix:/nowhere.sock"]));
    assert_eq!(answer.code, 3);
    let expected = "cannot connect to unix:/nowhere.sock: there is no such socket";
    assert!(answer.stderr.contains(expected), "{answer:?}");
}

#[test]
fn one_of_something_is_told_in_the_singular() {
    let server = Server::start();
    assert_eq!(
        server.run(["append", "k", "x"]).text(),
        "appended, 1 byte now, version 1\n"
    );
    assert_eq!(
        server.run(["append", "k", "y"]).text(),
        "appended, 2 bytes now, version 2\n"
    );
}

/// An upload of a folder stores what is in it, and nothing that a link or a pipe leads to.
#[test]
fn what_is_no_file_of_a_folder_is_left_out_of_its_upload() {
    let folder = support::Folder::new("upload-folder");
    let server = Server::durable(&folder.data(), &[]);
    let tree = folder.0.join("tree");
    fs::create_dir_all(tree.join("sub")).expect("made");
    fs::write(folder.0.join("outside"), "secret").expect("written");
    fs::write(tree.join("sub/a"), "a").expect("written");
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, tree.join(name));
    for (to, name) in [
        ("sub/a", "inside"),
        ("../outside", "out"),
        ("nothing", "broken"),
        ("sub", "dir"),
    ] {
        link(to, name).expect("linked");
    }
    let made = Command::new("mkfifo").arg(tree.join("pipe")).status();
    assert!(made.expect("mkfifo is there").success());
    let tree = tree.to_str().expect("text");

    let upload = server.run(["upload", "--recursive", tree]);
    assert_eq!(upload.code, 0, "{upload:?}");
    for left_out in [
        "out is a link out of the folder, and was left out",
        "broken is a link to nothing, and was left out",
        "dir is a link to a folder, and was left out",
        "pipe is a named pipe, and was left out",
    ] {
        assert!(upload.stderr.contains(left_out), "{left_out}: {upload:?}");
    }
    let names: Vec<String> = server
        .run(["blob", "list"])
        .text()
        .lines()
        .map(|line| line.rsplit('\t').next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(names, ["inside", "sub/a"]);

    let alone = server.run(["upload", &format!("{tree}/pipe")]);
    assert_eq!(alone.code, 3);
    assert!(
        alone
            .stderr
            .contains("is a named pipe, not a file; `pelton upload -"),
        "{alone:?}"
    );

    let download = server.run(["download", "--recursive", "tree", "--to", tree]);
    assert_eq!(download.code, 1, "{download:?}");
    assert!(
        download
            .stderr
            .contains("there are `inside`, `sub/a`: an upload of a folder leaves"),
        "{download:?}"
    );
    let download = server.run(["download", "--recursive", "inside", "--to", tree]);
    assert!(
        download
            .stderr
            .contains("there is a blob `inside`: leave --recursive out"),
        "{download:?}"
    );
}
