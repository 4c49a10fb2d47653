//! `pelton load`, through the real binary: against a real server, and against servers that
//! misbehave.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{Answer, Server, TIMEOUT, Temporary, pelton, run};

/// A short load of the default database, if the flags name no other one; its result as JSON.
fn load(server: &Server, flags: &[&str]) -> (Answer, Value) {
    let mut words = vec![
        "load",
        "--output",
        "json",
        "--warm-up",
        "0s",
        "--keys",
        "1000",
    ];
    if !flags.contains(&"--database") {
        words.push("--database=");
    }
    words.extend(flags);
    let answer = run(&mut server.command(words));
    let json = if answer.stdout.is_empty() {
        Value::Null
    } else {
        answer.json()
    };
    (answer, json)
}

/// The same, and every call succeeds. The machine may be too busy for a result that is not void, or
/// for a rate.
fn good(server: &Server, flags: &[&str]) -> Value {
    let (answer, json) = load(server, flags);
    assert!(
        answer.code == 0 || json["void"] == true || json["rate_reached"] == false,
        "{flags:?}: {answer:?}"
    );
    assert_eq!(json["failures"], 0, "{flags:?}: {json}");
    assert_eq!(json["unfinished"], 0, "{flags:?}: {json}");
    json
}

#[test]
fn a_closed_loop_makes_its_calls_and_counts_them() {
    let server = Server::start();
    let process = server.process_id().to_string();
    let flags = [
        "--fill",
        "--calls",
        "5000",
        "--connections",
        "3",
        "--server-pid",
        &process,
    ];
    let json = good(&server, &flags);
    assert_eq!(
        (&json["calls"], &json["misses"]),
        (&5_000.into(), &0.into()),
        "all keys were stored"
    );
    assert!(json["p50_us"].as_f64() > Some(0.0), "{json}");
    assert!(json["p50_us"].as_f64() <= json["max_us"].as_f64(), "{json}");
    assert!(json["server_us"].as_f64() > Some(0.0), "{json}");
    assert!(json["own_us"].as_f64() > Some(0.0), "{json}");
    assert!(json["calls_per_system_call"].as_f64() > Some(0.0), "{json}");
    assert_eq!(server.run(["count"]).text(), "1000\n");

    let text = run(&mut server.command([
        "load",
        "--calls",
        "100",
        "--warm-up",
        "0s",
        "--keys",
        "2000",
        "--database=",
    ]));
    assert!(
        text.text().contains("calls: 100 succeeded, 0 failed"),
        "{text:?}"
    );
    assert!(text.text().contains("misses"), "{text:?}");
    assert!(text.text().contains("p99.99"), "{text:?}");
    let csv = run(&mut server.command([
        "load",
        "--calls",
        "100",
        "--warm-up",
        "0s",
        "--output",
        "csv",
    ]));
    let lines: Vec<&str> = csv.text().lines().collect();
    assert_eq!(lines.len(), 2, "{csv:?}");
    assert!(lines[0].contains("p999_us"), "{csv:?}");
}

/// Flags of loads that differ in what is sent, how, and when.
const SHAPES: [&[&str]; 13] = [
    &["--mix", "get=20,put=20,delete=20,append=20,incr=20"],
    &[
        "--distribution",
        "zipf:1.1",
        "--value-size",
        "exp:200",
        "--mix",
        "put=100",
    ],
    &[
        "--distribution",
        "sequential",
        "--key-size",
        "5",
        "--mix",
        "put=50,get=50",
    ],
    &["--mode", "exclusive", "--connections", "5"],
    &["--mode", "short", "--connections", "3"],
    &["--batch", "7", "--mix", "put=70,get=30"],
    &["--pipe", "--mix", "incr=100"],
    &[
        "--pipe",
        "--batch",
        "5",
        "--mix",
        "put=100",
        "--in-flight",
        "3",
    ],
    &["--threads", "2", "--connections", "3", "--in-flight", "2"],
    &[
        "--deadline",
        "20s",
        "--metadata",
        "x-a=b",
        "--metadata",
        "x-trace=random",
    ],
    &["--rate", "2000", "--connections", "2"],
    &[
        "--rate",
        "2000",
        "--arrivals",
        "fixed",
        "--mode",
        "exclusive",
        "--connections",
        "4",
    ],
    &["--rate", "500", "--mode", "short", "--connections", "20"],
];

#[test]
fn every_shape_of_load_works() {
    let server = Server::start();
    for flags in SHAPES {
        let json = good(&server, &[flags, &["--calls", "400"]].concat());
        assert_eq!(json["calls"], 400, "{flags:?}: {json}");
        assert_eq!(json["loop"] == "open", flags.contains(&"--rate"), "{json}");
        assert_eq!(
            json["uncorrected_p50_us"].is_number(),
            flags.contains(&"--rate")
        );
    }
    // Keys of their own, so that no counter is overwritten.
    let count: u64 = server
        .run(["count"])
        .text()
        .trim()
        .parse()
        .expect("a number");
    assert!(count > 1_000, "{count}");
}

/// Names of the databases of a server.
fn databases(server: &Server) -> Vec<String> {
    let list = server.run(["database", "list", "--output", "json"]);
    let lines = list.text().lines();
    let names = lines.map(|line| {
        let database: Value = serde_json::from_str(line).expect("JSON");
        database["name"].as_str().expect("a name").to_owned()
    });
    names.collect()
}

#[test]
fn a_load_leaves_nothing_behind_in_databases_that_were_not_named() {
    let server = Server::start();
    assert_eq!(server.run(["put", "mine", "v"]).code, 0);
    assert_eq!(
        server
            .run(["database", "create", "named", "--durability", "volatile"])
            .code,
        0
    );
    for mix in ["get=100", "put=50,delete=50", "put=50,delete=50"] {
        let words = ["load", "--mix", mix, "--keys", "100", "--calls", "300"];
        let answer = run(&mut server.command(words));
        assert!(
            answer.code == 0 || answer.text().starts_with("VOID"),
            "{answer:?}"
        );
        assert!(
            answer.text().contains("300 succeeded, 0 failed"),
            "{answer:?}"
        );
        // Every key was stored before.
        assert!(
            mix != "get=100" || !answer.text().contains("misses"),
            "{answer:?}"
        );
        assert_eq!(databases(&server), ["", "named"]);
    }
    assert_eq!(server.run(["scan"]).text(), "mine\tv\n");
    let named = [
        "load", "--mix", "put=100", "--keys", "100", "--calls", "300",
    ];
    let named = named.into_iter().chain(["--database", "named"]);
    assert_ne!(run(&mut server.command(named)).code, 3);
    assert_ne!(server.run(["count", "--database", "named"]).text(), "0\n");
    assert_eq!(server.run(["count"]).text(), "1\n");
}

/// Whatever ends a load: the server's refusal of its calls, or Ctrl-C.
#[test]
fn a_load_that_fails_or_is_interrupted_removes_its_database() {
    let server = Server::with(&["--listen", "127.0.0.1:0", "--max-value", "100"]);
    for _ in 0..2 {
        let words = ["load", "--fill", "--value-size", "200", "--keys", "10"];
        let refused = run(&mut server.command(words));
        assert_eq!(refused.code, 3, "{refused:?}");
        assert!(
            refused.stderr.contains("cannot store the keys"),
            "{refused:?}"
        );
        assert_eq!(databases(&server), [""]);

        let words = [
            "load",
            "--keys",
            "10",
            "--duration",
            "1h",
            "--in-flight",
            "1",
        ];
        let mut load = server.command(words);
        let load = load.stdout(Stdio::piped()).stderr(Stdio::piped());
        let load = load.spawn().expect("the binary runs");
        let until = Instant::now() + TIMEOUT;
        while databases(&server).len() < 2 {
            assert!(Instant::now() < until, "no database is made");
            thread::sleep(Duration::from_millis(10));
        }
        let id = load.id().to_string();
        let killed = Command::new("kill").args(["-s", "INT", &id]).status();
        assert!(killed.expect("kill is there").success());
        load.wait_with_output().expect("it ends");
        assert_eq!(databases(&server), [""]);
    }
}

/// Waits until a database that a load has made has entries.
fn await_entries(server: &Server) {
    let until = Instant::now() + TIMEOUT;
    let has_entries = || {
        let found = databases(server).into_iter().find(|name| !name.is_empty());
        found.is_some_and(|name| {
            let count = server.run(["count", "--database", &name]);
            count.code == 0 && count.text() != "0\n"
        })
    };
    while !has_entries() {
        assert!(Instant::now() < until, "no key is stored");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_load_that_is_stopped_in_the_warm_up_says_so() {
    let server = Server::start();
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let words = [
            "load",
            "--mix",
            "put=100",
            "--keys",
            "10",
            "--warm-up",
            "1h",
        ];
        let mut load = server.command(words);
        let load = load.stdout(Stdio::piped()).stderr(Stdio::piped());
        let load = load.spawn().expect("the binary runs");
        await_entries(&server);
        let id = load.id().to_string();
        let killed = Command::new("kill").args(["-s", signal, &id]).status();
        assert!(killed.expect("kill is there").success());
        let ended = load.wait_with_output().expect("it ends");
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(code), "{stderr}");
        assert!(
            stderr.contains("interrupted") && stderr.contains("--warm-up"),
            "{stderr}"
        );
        assert_eq!(databases(&server), [""]);
    }
}

/// Also by two signals at once, as `timeout` sends them: to its child and to the group of both.
#[test]
fn a_load_that_is_stopped_while_it_stores_the_keys_removes_its_database() {
    let server = Server::start();
    for signals in [["TERM", "INT"], ["INT", "TERM"]] {
        let words = ["load", "--keys", "1000000000", "--value-size", "1"];
        let mut load = server.command(words);
        load.args(["--connections", "1"]);
        let load = load.stdout(Stdio::piped()).stderr(Stdio::piped());
        let load = load.spawn().expect("the binary runs");
        await_entries(&server);
        let both = "kill -s $1 $0; kill -s $2 $0";
        let id = load.id().to_string();
        let killed = Command::new("sh")
            .args(["-c", both, &id])
            .args(signals)
            .status();
        assert!(killed.expect("a shell is there").success());
        let ended = load.wait_with_output().expect("it ends");
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(143), "{stderr}");
        for words in ["interrupted before every key was stored", "is removed"] {
            assert!(stderr.contains(words), "{stderr}");
        }
        assert_eq!(databases(&server), [""]);
    }
}

#[test]
fn more_connections_than_the_server_takes_are_told() {
    let server = Server::with(&["--listen", "127.0.0.1:0", "--max-connections", "4"]);
    for (count, threads) in [("12", "1"), ("2000", "1"), ("2000", "2")] {
        let flags = [
            "--connections",
            count,
            "--threads",
            threads,
            "--calls",
            "12",
        ];
        let (answer, _) = load(&server, &flags);
        assert_eq!(answer.code, 3, "{answer:?}");
        let failure: Value = serde_json::from_str(&answer.stderr).expect("JSON");
        let hint = failure["hint"].as_str().expect("a hint");
        assert!(hint.contains(&format!("{count} ")), "{failure}");
        assert!(hint.contains("were asked for"), "{failure}");
        assert!(hint.contains("--max-connections"), "{failure}");
    }
}

/// A server that takes connections and says nothing on them: neither a signal nor the time given is
/// waited out in vain.
#[test]
fn a_load_that_still_connects_can_be_stopped_and_has_its_time() {
    let request = Temporary::new("connects", b"x");
    let silent = || {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has one").to_string();
        (listener, address)
    };
    let words = |address: &str, timeout: &str| {
        let mut load = pelton();
        load.args(["load", "--address", address, "--connections", "500"])
            .args(["--method", "a.B/C", "--data-file", request.name()])
            .args(["--threads", "2", "--timeout", timeout]);
        load
    };
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let (listener, address) = silent();
        let mut load = words(&address, "1h");
        let load = load.stdout(Stdio::piped()).stderr(Stdio::piped());
        let load = load.spawn().expect("the binary runs");
        // It hears signals before it connects.
        let connected = listener.accept().expect("it connects");
        let id = load.id().to_string();
        let killed = Command::new("kill").args(["-s", signal, &id]).status();
        assert!(killed.expect("kill is there").success());
        let ended = load.wait_with_output().expect("it ends");
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(code), "{stderr}");
        assert!(
            stderr.contains("interrupted while it connected"),
            "{stderr}"
        );
        drop(connected);
    }
    let (_listener, address) = silent();
    let late = run(&mut words(&address, "300ms"));
    assert_eq!(late.code, 3, "{late:?}");
    assert!(late.stderr.contains("no answer in time"), "{late:?}");
    assert!(late.stderr.contains("--max-connections"), "{late:?}");
}

#[test]
fn keys_that_do_not_fit_into_the_memory_are_refused_before_they_are_stored() {
    let server = Server::with(&["--listen", "127.0.0.1:0", "--memory-limit", "1GiB"]);
    let words = ["load", "--value-size", "1MiB", "--keys", "1000000"];
    let refused = run(&mut server.command(words));
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("--memory-limit"), "{refused:?}");
    assert!(refused.stderr.contains("1.0 GiB"), "{refused:?}");
    assert_eq!(databases(&server), [""]);
}

/// A server whose calls of the warm-up never end has not done its work, whatever it does
/// afterwards.
#[test]
fn calls_of_the_warm_up_that_never_end_are_told() {
    let request = Temporary::new("warm-up", b"x");
    let (address, server) = silent_server();
    let words = ["--method", "a.B/C", "--data-file", request.name()];
    let stuck = run(pelton()
        .args(["load", "--address", &address, "--connections", "1"])
        .args([
            "--warm-up",
            "100ms",
            "--duration",
            "100ms",
            "--in-flight",
            "3",
        ])
        .args(words));
    server.join().expect("it ends with the connection");
    assert_eq!(stuck.code, 3, "{stuck:?}");
    let told = "unfinished: 0, and 3 that began in the warm-up";
    assert!(stuck.text().contains(told), "{stuck:?}");
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let server = Server::start();
    let json = good(
        &server,
        &["--rate", "1000", "--arrivals", "fixed", "--duration", "1s"],
    );
    assert_eq!(
        (&json["due"], &json["succeeded"]),
        (&1_000.into(), &1_000.into()),
        "{json}"
    );
}

/// One call at a time cannot be half a million a second: the result says so, first of all and by
/// its code.
#[test]
fn an_open_loop_that_falls_behind_says_so() {
    let server = Server::start();
    let flags = "load --database= --keys 10 --connections 1 --in-flight 1 --warm-up 0s --duration \
                 500ms --rate 500000";
    let flags = || flags.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let text = run(&mut server.command(flags()));
    assert_eq!(text.code, 1, "{text:?}");
    let said = "BEHIND: --rate asks for 500000 calls/s, ";
    assert!(text.text().contains(said), "{text:?}");
    let mut with_json = flags();
    with_json.extend(["--output".into(), "json".into()]);
    let json = run(&mut server.command(with_json)).json();
    assert_eq!(json["rate_reached"], false, "{json}");
    assert!(json["behind_since_s"].as_f64() < Some(0.4), "{json}");
}

/// A token that nobody knows, to see whether it is sent.
fn some_token() -> String {
    format!("pelton_{}", "A".repeat(43))
}

#[test]
fn the_token_of_the_environment_goes_to_no_method_of_another_server() {
    // A token that it does not know is refused by this server, so that a sent one shows.
    let server = Server::start();
    let token = Temporary::new("token", some_token().as_bytes());
    let words = [
        "load",
        "--method",
        "pelton.v1.Echo/Unary",
        "--data",
        "{}",
        "--calls",
        "10",
        "--warm-up",
        "0s",
    ];
    for (variable, value) in [
        ("PELTON_TOKEN", some_token()),
        ("PELTON_TOKEN_FILE", token.name().to_owned()),
    ] {
        let answer = run(server.command(words).env(variable, &value));
        assert!(
            answer.text().contains("10 succeeded, 0 failed"),
            "{answer:?}"
        );
        assert!(answer.stderr.contains("is not sent"), "{answer:?}");
    }
    let own = ["--metadata", "authorization=Bearer mine"];
    let named = ["--token-file", token.name()];
    let sent = run(&mut server.command(words.into_iter().chain(named)));
    assert_eq!(sent.code, 3, "{sent:?}");
    assert!(!sent.stderr.contains("is not sent"), "{sent:?}");
    let both = run(&mut server.command(words.into_iter().chain(named).chain(own)));
    assert_eq!(both.code, 2, "{both:?}");
    assert!(both.stderr.contains("would both be sent"), "{both:?}");
    let own = run(server
        .command(words.into_iter().chain(own))
        .env("PELTON_TOKEN", some_token()));
    assert_ne!(own.code, 2, "{own:?}");
}

#[test]
fn a_load_goes_to_a_database_only_where_that_is_named_on_the_command_line() {
    let server = Server::start();
    let created = server.run(["database", "create", "real", "--durability", "volatile"]);
    assert_eq!(created.code, 0, "{created:?}");
    let words = ["load", "--mix", "put=100", "--keys", "10", "--calls", "20"];
    let answer = run(server.command(words).env("PELTON_DATABASE", "real"));
    assert!(answer.text().contains("put=100, 10 keys on "), "{answer:?}");
    assert_eq!(server.run(["count", "--database", "real"]).text(), "0\n");
    for (name, shown) in [
        ("real", "10 keys in the database `real` on "),
        ("", "10 keys in the default database on "),
    ] {
        let answer = run(&mut server.command(words.into_iter().chain(["--database", name])));
        assert!(answer.text().contains(shown), "{answer:?}");
    }
}

#[test]
fn any_unary_method_is_called_by_reflection_or_descriptors() {
    let server = Server::start();
    let method = ["--method", "pelton.v1.Echo/Unary", "--calls", "50"];
    let by_reflection = good(
        &server,
        &[&method[..], &["--data", r#"{"payload": "aGVsbG8="}"#]].concat(),
    );
    assert_eq!(by_reflection["what"], "pelton.v1.Echo/Unary");
    // Twice the bytes there and back.
    let set = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../service/src/descriptor_set.bin"
    );
    let long = format!(r#"{{"payload": "{}"}}"#, "aGVsbG8h".repeat(100));
    let by_file = good(
        &server,
        &[&method[..], &["--descriptor-set", set, "--data", &long]].concat(),
    );
    let bytes = |json: &Value| json["bytes_in_per_call"].as_f64().expect("measured");
    assert!(
        bytes(&by_file) > bytes(&by_reflection) + 500.0,
        "{by_file} {by_reflection}"
    );
    let file = Temporary::new("raw", b"\x0a\x05hello");
    good(
        &server,
        &[&method[..], &["--data-file", file.name()]].concat(),
    );
    let request = Temporary::new("json", "\u{feff}{\"payload\": \"aGVsbG8=\"}\n".as_bytes());
    let at = format!("@{}", request.name());
    let by_name = good(&server, &[&method[..], &["--data", &at]].concat());
    assert_eq!(
        by_name["bytes_in_per_call"],
        by_reflection["bytes_in_per_call"]
    );
    let json = br#"{"payload": "aGVsbG8="}"#;
    let from_input = [
        "load", method[0], method[1], "--calls", "50", "--data", "@-",
    ];
    let from_input = server.run_with_input(&from_input, json);
    assert!(
        from_input.text().contains("50 succeeded, 0 failed"),
        "{from_input:?}"
    );
}

#[test]
fn wrong_usage_is_explained() {
    let server = Server::start();
    for (flags, part) in [
        (&["--mix", "get=50"][..], "add up to 50"),
        (&["--mix", "read=100"], "no operation `read`"),
        (
            &["--mix", "scan=100", "--batch", "2"],
            "`scan` goes in a call of its own",
        ),
        (&["--distribution", "normal"], "zipf:1.2"),
        (&["--value-size", "exp:1GiB"], "at most 1GiB"),
        (&["--key-size", "2"], "take larger keys"),
        (&["--batch", "0"], "from 1 to 10000"),
        (&["--keys", "0"], "'--keys <NUMBER>'"),
        (&["--rate", "0"], "calls per second"),
        (&["--arrivals", "fixed"], "--rate"),
        (&["--threads", "9"], "more than --connections 8"),
        (&["--mode", "short", "--in-flight", "2"], "--connections"),
        (&["--mode", "short", "--pipe"], "--pipe"),
        (&["--metadata", "X=1"], "lower-case"),
        (&["--metadata", "x"], "name=value"),
        (&["--calls", "1", "--duration", "1s"], "cannot be used with"),
        (&["--duration", "0s"], "measures nothing"),
        (&["--deadline", "0s"], "leaves no time"),
        (
            &["--method", "no.Such/Method", "--data", "{}"],
            "pelton.v1.Blob, pelton.v1.Echo",
        ),
        (
            &["--pin", "4000"],
            "--pin names CPU 4000, which is not possible",
        ),
        (&["--method", "pelton.v1.Echo/Unary"], "--data"),
        (
            &[
                "--method",
                "pelton.v1.Echo/Unary",
                "--data",
                "{\"payload\": \"hello!\"}",
            ],
            "written as base64 in JSON",
        ),
        (
            &["--method", "pelton.v1.Echo/Unary", "--data", "@"],
            "--data @FILE",
        ),
        (
            &["--method", "Unary", "--data", "{}"],
            "package.Service/Method",
        ),
        (
            &["--method", "pelton.v1.Echo/Ping", "--data", "{}"],
            "the service has Unary",
        ),
        (
            &["--method", "pelton.v1.Echo/Unary", "--data", "{\"x\": 1}"],
            "no pelton.v1.Echo",
        ),
    ] {
        let (answer, _) = load(&server, flags);
        assert_eq!(answer.code, 2, "{flags:?}: {answer:?}");
        assert!(answer.stderr.contains(part), "{flags:?}: {}", answer.stderr);
    }
}

#[test]
fn what_cannot_be_done_is_told() {
    let server = Server::start();
    for (flags, part) in [
        (&["--server-pid", "4000000000"][..], "process 4000000000"),
        (
            &["--method", "a.B/C", "--data-file", "/nowhere/at/all"],
            "/nowhere/at/all",
        ),
    ] {
        let (answer, _) = load(&server, flags);
        assert_eq!(answer.code, 3, "{flags:?}: {answer:?}");
        assert!(answer.stderr.contains(part), "{flags:?}: {}", answer.stderr);
    }
}

#[test]
fn a_server_that_is_not_there_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    drop(listener);
    let answer = run(pelton().args(["load", "--address", &address]));
    assert_eq!((answer.code, answer.text()), (3, ""));
    assert!(answer.stderr.contains("nobody listens there"), "{answer:?}");
    assert!(answer.stderr.contains(&address), "{answer:?}");
}

#[test]
fn errors_of_the_server_are_counted_by_status() {
    let server = Server::start();
    let file = Temporary::new("nothing", b"");
    let (answer, json) = load(
        &server,
        &[
            "--method",
            "a.B/C",
            "--data-file",
            file.name(),
            "--calls",
            "30",
        ],
    );
    assert_eq!(answer.code, 3, "{answer:?}");
    assert!(answer.stderr.contains("no call to"), "{answer:?}");
    assert_eq!(
        (&json["failures"], &json["failures_by_kind"]),
        (&30.into(), &"UNIMPLEMENTED: 30".into())
    );
    assert!(
        json["first_failure"]
            .as_str()
            .expect("text")
            .contains("UNIMPLEMENTED"),
        "{json}"
    );
    assert!(
        json["p50_us"].is_null(),
        "failed calls have no latency: {json}"
    );

    // A database that is not there is told before anything is sent, with or without what would be
    // stored.
    for more in [["--calls", "30"], ["--keys", "30"]] {
        for fill in [&[][..], &["--fill"], &["--pipe"]] {
            let arguments = [&["load", "--database", "nowhere"], &more[..], fill].concat();
            let answer = run(&mut server.command(&arguments));
            assert_eq!(answer.code, 3, "{answer:?}");
            assert!(answer.stderr.contains("NOT_FOUND"), "{answer:?}");
            assert!(answer.stderr.contains("pelton database list"), "{answer:?}");
            assert!(answer.stdout.is_empty(), "{answer:?}");
        }
    }

    // Some succeed and some do not: the result is shown, and the exit code says that not all is
    // well.
    assert_eq!(server.run(["put", "x", "y"]).code, 0);
    let small = Server::with(&["--listen", "127.0.0.1:0", "--max-value", "100"]);
    let (answer, json) = load(
        &small,
        &[
            "--mix",
            "put=100",
            "--value-size",
            "exp:80",
            "--calls",
            "500",
        ],
    );
    assert_eq!(answer.code, 1, "{answer:?}");
    let failures = json["failures"].as_u64().expect("a number");
    assert!((50..400).contains(&failures), "{json}");
    assert_eq!(
        json["failures_by_kind"],
        format!("RESOURCE_EXHAUSTED: {failures}")
    );
    assert_eq!(json["succeeded"], 500 - failures);
}

/// A server that greets, reads, and never answers.
fn silent_server() -> (String, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    let server = thread::spawn(move || {
        let (mut peer, _): (TcpStream, _) = listener.accept().expect("it connects");
        peer.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0])
            .expect("connected");
        let mut buffer = [0; 4096];
        while peer.read(&mut buffer).is_ok_and(|count| count > 0) {}
    });
    (address, server)
}

#[test]
fn a_server_that_stalls_is_measured_all_the_same() {
    let request = Temporary::new("stall", b"x");
    let load = |address: &str, flags: &[&str]| {
        let mut command = pelton();
        command
            .args([
                "load",
                "--address",
                address,
                "--connections",
                "1",
                "--warm-up",
                "0s",
                "--output",
                "json",
            ])
            .args(["--method", "a.B/C", "--data-file", request.name()])
            .args(flags);
        run(&mut command)
    };
    let (address, server) = silent_server();
    let late = load(
        &address,
        &["--deadline", "50ms", "--calls", "4", "--in-flight", "2"],
    );
    server.join().expect("it ends with the connection");
    assert_eq!(late.code, 3, "{late:?}");
    assert_eq!(
        late.json()["failures_by_kind"],
        "deadline passed here: 4",
        "{late:?}"
    );

    // Without a deadline what never ends is given up, and not forgotten.
    let (address, server) = silent_server();
    let stuck = load(
        &address,
        &[
            "--duration",
            "200ms",
            "--rate",
            "100",
            "--arrivals",
            "fixed",
            "--in-flight",
            "5",
        ],
    );
    server.join().expect("it ends with the connection");
    assert_eq!(stuck.code, 3, "{stuck:?}");
    let json = stuck.json();
    assert_eq!(
        (&json["due"], &json["unfinished"]),
        (&20.into(), &20.into()),
        "{json}"
    );
    assert!(
        json["oldest_unfinished_us"].as_u64() >= Some(5_000_000),
        "{json}"
    );
}

/// The server is killed in the midst; then the user has had enough, and still gets the result.
#[test]
fn a_server_that_dies_in_the_midst_is_told() {
    let server = Server::start();
    let mut process = server
        .command([
            "load",
            "--mix",
            "put=100",
            "--calls",
            "1000000000",
            "--database=",
            "--warm-up",
            "0s",
            "--output",
            "json",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let until = Instant::now() + TIMEOUT;
    while server.run(["count"]).text() == "0\n" {
        assert!(Instant::now() < until, "nothing arrives");
        thread::sleep(Duration::from_millis(10));
    }
    server.kill();
    let id = process.id().to_string();
    let killed = Command::new("kill").args(["-s", "INT", &id]).status();
    assert!(killed.expect("kill is there").success());
    let mut printed = String::new();
    BufReader::new(process.stdout.take().expect("piped"))
        .read_line(&mut printed)
        .expect("it prints its result");
    let code = process.wait().expect("it ends").code();
    let json: Value =
        serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"));
    assert_eq!(code, Some(130), "{json}");
    assert_eq!(json["stopped_early"], true);
    let kinds = json["failures_by_kind"].as_str().expect("text");
    assert!(kinds.starts_with("connection lost: "), "{json}");
    assert!(json["succeeded"].as_u64() > Some(0), "{json}");
}

/// The server is gone for good: the run ends by itself, says so, and how far it came.
#[test]
fn a_run_of_calls_ends_by_itself_when_its_server_is_gone() {
    let server = Server::start();
    let flags = ["load", "--mix=put=100", "--calls=1000000000", "--database="];
    let process = server
        .command(flags.into_iter().chain(["--warm-up=0s", "--threads=2"]))
        .args(["--connections=2"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let until = Instant::now() + TIMEOUT;
    while server.run(["count"]).text() == "0\n" {
        assert!(Instant::now() < until, "nothing arrives");
        thread::sleep(Duration::from_millis(10));
    }
    server.kill();
    let output = process.wait_with_output().expect("it ends");
    let text = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.starts_with("VOID: the server is gone"), "{text}");
    assert!(text.contains("of 1000000000 calls"), "{text}");
}

#[test]
fn a_key_size_that_is_none_is_explained() {
    let key = run(pelton().args(["load", "--key-size", "1GB"]));
    assert_eq!(key.code, 2, "{key:?}");
    assert!(key.stderr.contains("a key has 1 to 65535 bytes"), "{key:?}");
}
