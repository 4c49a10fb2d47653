//! `pelton batch`, `pelton transact` and `pelton database` through the real binary.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use support::{Answer, Server};

fn lines(answer: &Answer) -> Vec<Value> {
    answer
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect()
}

#[test]
fn an_atomic_batch_does_all_or_nothing() {
    let server = Server::start();
    let input = br#"
    {"operation":"put","key":"a","value":"1"}
    {"operation":"put","key":"/w==","key_encoding":"base64","value":"00ff","value_encoding":"hex"}

    {"operation":"append","key":"a","value":"2"}
    {"operation":"increment","key":"n","delta":5,"initial":10}
    {"operation":"get","key":"a"}
    {"operation":"get","key":"none"}
    {"operation":"delete","key":"none"}
    {"operation":"delete","key":"n","return_previous":true}"#;
    let batch = server.run_with_input(&["batch"], input);
    assert_eq!(batch.code, 0, "{batch:?}");
    assert_eq!(
        batch.text(),
        "line 2: stored, version 1\n\
         line 3: stored, version 1\n\
         line 5: appended, 2 bytes now, version 1\n\
         line 6: 15, version 1\n\
         line 7: found, version 1, 12\n\
         line 8: not there\n\
         line 9: not deleted: the key is not there\n\
         line 10: deleted, it had version 1; before: version 1, \
         \\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x0f\n"
    );
    assert_eq!(
        server.run(["get", "ff", "--key-encoding", "hex"]).stdout,
        [0x00, 0xff]
    );

    let unmet = b"{\"operation\":\"put\",\"key\":\"x\",\"value\":\"y\"}\n\
        {\"operation\":\"put\",\"key\":\"a\",\"value\":\"y\",\"if_exists\":false}";
    let batch = server.run_with_input(&["batch"], unmet);
    assert_eq!((batch.code, batch.text()), (1, ""));
    assert!(
        batch
            .stderr
            .contains("nothing was done: line 2: not stored"),
        "{batch:?}"
    );
    assert_eq!(
        server.run(["get", "x"]).code,
        1,
        "the first one was not done either"
    );
    let batch = server.run_with_input(&["batch", "--output", "json"], unmet);
    assert_eq!(
        (batch.code, batch.json()),
        (
            1,
            json!({"applied": false, "line": 2, "operation": "put", "version": 1})
        )
    );
    assert_eq!(
        server.run_with_input(&["batch"], b"\n").code,
        0,
        "nothing to do"
    );
}

#[test]
fn wrong_lines_are_named() {
    let server = Server::start();
    let good = r#"{"operation":"put","key":"k","value":"v"}"#;
    for (bad, expected) in [
        (
            r#"{"operation":"put","key":"k""#,
            "line 3: the object does not end on this line, at column",
        ),
        (
            r#"{"operation":"put","key":"k"}"#,
            "line 3: `value` is missing",
        ),
        (
            r#"{"operation":"set","key":"k"}"#,
            "line 3: `set` is not one of `get`, `put`",
        ),
        (
            r#"{"operation":"get","key":"k","ttl":3}"#,
            "line 3: there is no field `ttl`; write `time_to_live_ms`",
        ),
        (
            r#"{"operation":"get","key":5}"#,
            "line 3: a string belongs here, not integer `5`, at column",
        ),
        (
            r#"{"operation":"get","key":"!","key_encoding":"base64"}"#,
            "line 3: `key` is not base64",
        ),
    ] {
        let input = format!("{good}\n\n{bad}\n{good}\n");
        let atomic = server.run_with_input(&["batch"], input.as_bytes());
        assert_eq!(atomic.code, 2, "{bad}");
        assert!(
            atomic.stderr.contains("standard input, ") && atomic.stderr.contains(expected),
            "{bad}: {}",
            atomic.stderr
        );
        assert_eq!(server.run(["get", "k"]).code, 1, "nothing was done");
        let independent =
            server.run_with_input(&["batch", "--mode", "independent"], input.as_bytes());
        assert_eq!(independent.code, 2, "{bad}");
        assert!(
            independent.stderr.contains(expected)
                && independent
                    .stderr
                    .contains("1 operation was answered before, and none behind was done"),
            "{}",
            independent.stderr
        );
        assert!(independent.text().starts_with("line 1: stored"));
        assert_eq!(server.run(["delete", "k"]).code, 0, "what stood before was");
    }
    let missing = server.run(["batch", "/nowhere/at/all"]);
    assert_eq!(missing.code, 3);
    assert!(missing.stderr.contains("/nowhere/at/all"));
}

#[test]
fn an_atomic_batch_that_is_too_long_says_what_else_to_do() {
    let server = Server::start();
    let input = "{\"operation\":\"increment\",\"key\":\"n\"}\n".repeat(10_001);
    let batch = server.run_with_input(&["batch"], input.as_bytes());
    assert_eq!(batch.code, 3);
    assert!(
        batch.stderr.contains("line 10001") && batch.stderr.contains("--mode independent"),
        "{batch:?}"
    );
    assert_eq!(server.run(["count"]).text(), "0\n");
}

/// More than the groups that may be under way: it goes through because answers are taken meanwhile.
#[test]
fn independent_operations_in_any_number() {
    const COUNT: usize = 60_000;
    let server = Server::start();
    let mut input = "{\"operation\":\"increment\",\"key\":\"n\"}\n".repeat(COUNT);
    input.push_str("{\"operation\":\"put\",\"key\":\"n\",\"value\":\"\",\"if_exists\":false}\n");
    input.push_str("{\"operation\":\"append\",\"key\":\"n\",\"value\":\"x\"}\n");
    input.push_str("{\"operation\":\"increment\",\"key\":\"n\"}\n");
    input.push_str("{\"operation\":\"delete\",\"key\":\"none\"}\n");
    let file = std::env::temp_dir().join(format!("pelton-batch-{}", server.process_id()));
    std::fs::write(&file, input).expect("the file is written");
    let path = file.to_str().expect("the folder's name is text");
    let all = server.run(["batch", path, "--mode", "independent", "--output", "json"]);
    assert_eq!(all.code, 1, "{}", all.stderr);
    let results = lines(&all);
    assert_eq!(results.len(), COUNT + 4);
    for (number, result) in (1..).zip(&results[..COUNT]) {
        assert_eq!(
            (&result["line"], &result["value"]),
            (&json!(number), &json!(number))
        );
    }
    assert_eq!(results[COUNT]["applied"], false);
    assert_eq!(results[COUNT + 2]["refusal"], "not_a_number");
    assert_eq!(results[COUNT + 3]["deleted"], false);

    assert_eq!(server.run(["delete", "n"]).code, 0);
    let failures = server.run([
        "batch",
        path,
        "--mode",
        "independent",
        "--failures-only",
        "--output",
        "json",
    ]);
    std::fs::remove_file(&file).expect("it was there");
    assert_eq!(failures.code, 1, "{}", failures.stderr);
    let failed: Vec<Value> = lines(&failures)
        .iter()
        .map(|result| result["line"].clone())
        .collect();
    assert_eq!(failed, [json!(COUNT + 1), json!(COUNT + 3)]);
}

/// Each line is answered while the input stays open.
#[test]
fn a_slow_input_is_answered_as_it_comes() {
    let server = Server::start();
    let mut process = server
        .command(["batch", "--mode", "independent"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut input = process.stdin.take().expect("piped");
    let mut output = BufReader::new(process.stdout.take().expect("piped"));
    for number in 1..=3 {
        input
            .write_all(b"{\"operation\":\"increment\",\"key\":\"n\"}\n")
            .expect("it is read");
        let mut line = String::new();
        output.read_line(&mut line).expect("it is answered");
        assert_eq!(line, format!("line {number}: {number}, version {number}\n"));
    }
    let id = process.id().to_string();
    let killed = Command::new("kill").args(["-s", "INT", &id]).status();
    assert!(killed.expect("kill is there").success());
    let ended = process.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(130), "{stderr}");
    assert!(
        stderr.contains("interrupted") && stderr.contains("3 operations were answered"),
        "{stderr}"
    );
    drop(input);
}

#[test]
fn a_refused_group_is_named_by_its_lines() {
    let server = Server::with(&["--listen", "127.0.0.1:0", "--max-value", "1000"]);
    let large = "x".repeat(1001);
    let input = format!(
        "\n{{\"operation\":\"put\",\"key\":\"k\",\"value\":\"v\"}}\n\
         {{\"operation\":\"put\",\"key\":\"l\",\"value\":\"{large}\"}}\n"
    );
    let batch = server.run_with_input(&["batch", "--mode", "independent"], input.as_bytes());
    assert_eq!((batch.code, batch.text()), (3, ""));
    assert!(
        batch.stderr.contains("lines 2 to 3") && batch.stderr.contains("RESOURCE_EXHAUSTED"),
        "{}",
        batch.stderr
    );
}

#[test]
fn transact_chooses_a_list() {
    let server = Server::start();
    assert_eq!(server.run(["put", "a", "1"]).code, 0);
    let request = br#"{
        "comparisons": [
            {"key": "a", "value": "1"},
            {"key": "YjA=", "key_encoding": "base64", "exists": false}
        ],
        "when_met": [
            {"operation": "put", "key": "b0", "value": "2"},
            {"operation": "get", "key": "a"}
        ],
        "when_unmet": [{"operation": "get", "key": "b0"}]
    }"#;
    let met = server.run_with_input(&["transact"], request);
    assert_eq!(
        (met.code, met.text()),
        (
            0,
            "met\noperation 1: stored, version 2\noperation 2: found, version 1, 1\n"
        )
    );
    let unmet = server.run_with_input(&["transact", "--output", "json"], request);
    assert_eq!(unmet.code, 1);
    assert_eq!(
        lines(&unmet),
        [
            json!({"met": false, "unmet_comparison": 2}),
            json!({
                "operation": "get", "found": true, "value": "2", "value_encoding": "text",
                "version": 2, "number": 1
            }),
        ]
    );
    let failing = br#"{"when_met": [{"operation": "delete", "key": "a"},
        {"operation": "put", "key": "b0", "value": "3", "if_version": 1}]}"#;
    let failing = server.run_with_input(&["transact"], failing);
    assert_eq!((failing.code, failing.text()), (1, "met\n"));
    assert!(
        failing
            .stderr
            .contains("nothing was done: operation 2: not stored"),
        "{failing:?}"
    );
    assert_eq!(server.run(["get", "a"]).text(), "1");
}

#[test]
fn wrong_transacts_are_explained() {
    let server = Server::start();
    for (input, expected) in [
        (
            "{\n\"when\": []}",
            "there is no field `when`; the fields are",
        ),
        ("{\n\"then\": []}", "write `when_met`, at line 2, column"),
        (
            "{\"comparisons\": [{\"key\": \"k\"}]}",
            "comparison 1: there must be one of",
        ),
        (
            "{\"when_met\": [{\"operation\": \"put\", \"key\": \"k\"}]}",
            "when_met, operation 1: `value` is missing",
        ),
        ("{", "the JSON ends too early, at line 1, column 1"),
    ] {
        let answer = server.run_with_input(&["transact"], input.as_bytes());
        assert_eq!(answer.code, 2, "{input}");
        assert!(
            answer.stderr.contains("standard input: ") && answer.stderr.contains(expected),
            "{}",
            answer.stderr
        );
    }
}

#[test]
fn databases_are_created_listed_and_dropped() {
    let server = Server::start();
    let create = |more: &[&str]| {
        let mut command = server.command(["database", "create", "orders"]);
        support::run(
            command
                .args(["--durability", "volatile", "--quota", "1MiB"])
                .args(more),
        )
    };
    let created = create(&[]);
    assert_eq!(created.code, 0, "{created:?}");
    assert!(
        created
            .text()
            .starts_with("created: memory, volatile, at most 1048576 bytes"),
        "{created:?}"
    );
    let again = create(&["--output", "json"]);
    assert_eq!((again.code, &again.json()["created"]), (1, &json!(false)));
    let put = server.run(["put", "k", "v", "--database", "orders"]);
    assert_eq!(put.code, 0);
    assert_eq!(server.run(["get", "k"]).code, 1, "another database");
    let list = server.run(["database", "list"]);
    let rows: Vec<Vec<&str>> = (list.text().lines())
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows[0][..4],
        ["NAME", "KIND", "DURABILITY", "ENTRIES"],
        "{list:?}"
    );
    assert_eq!(
        rows[1][..4],
        ["(default)", "memory", "volatile", "0"],
        "{list:?}"
    );
    assert_eq!(
        rows[2][..4],
        ["orders", "memory", "volatile", "1"],
        "{list:?}"
    );
    assert!(
        list.text().contains("1.0 MiB"),
        "the quota, for people: {list:?}"
    );
    let ends = list.text().lines().map(str::len);
    assert_eq!(
        ends.clone().min(),
        ends.max(),
        "the last column ends in one place"
    );
    let json = lines(&server.run(["database", "list", "--output", "json"]));
    assert_eq!(
        (&json[1]["name"], &json[1]["entries"]),
        (&json!("orders"), &json!(1))
    );

    let kept = server.run(["database", "drop", "orders"]);
    assert_eq!(kept.code, 3);
    let told = "the database `orders` holds 1 entry, and was not dropped; --with-content";
    assert!(kept.stderr.contains(told), "{}", kept.stderr);
    let dropped = server.run(["database", "drop", "orders", "--with-content"]);
    assert_eq!((dropped.code, dropped.text()), (0, "dropped\n"));
    assert_eq!(server.run(["database", "drop", "orders"]).code, 1);
    let wrong = server.run(["database", "create", ".hidden", "--durability", "volatile"]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.stderr.contains("a database's name has"), "{wrong:?}");
}
