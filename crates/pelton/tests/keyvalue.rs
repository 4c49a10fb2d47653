//! The commands that read and write, through the real binary against a real server.

mod support;

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::process::Stdio;

use serde_json::json;
use support::{Server, run};

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
}
