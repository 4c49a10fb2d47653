//! `pelton load kvstore` and `pelton load ping`, through the real binary, against a real server.

mod support;

use std::net::TcpListener;

use serde_json::Value;
use support::{Answer, Server, Temporary, pelton, run};

fn server(flags: &[&str]) -> Server {
    Server::with(&[&["--listen", "127.0.0.1:0"], flags].concat())
}

/// The article's client for a moment, with small values, so that a busy machine has time for some
/// thousand calls.
fn kvstore(server: &Server, flags: &[&str]) -> (Answer, Value) {
    let words = [
        "load",
        "kvstore",
        "--output",
        "json",
        "--duration",
        "2s",
        "--value-mean",
        "1KiB",
    ];
    // Those that are there already stay, and nothing else.
    assert_eq!(server.run(["put", "mine", "kept"]).code, 0);
    let answer = run(&mut server.command(words.iter().chain(flags)));
    assert_eq!(server.run(["scan"]).text(), "mine\tkept\n", "{answer:?}");
    let json = match answer.stdout.is_empty() {
        true => Value::Null,
        false => answer.json(),
    };
    (answer, json)
}

fn number(json: &Value, name: &str) -> f64 {
    let found = json[name].as_f64();
    found.unwrap_or_else(|| panic!("{name} is no number in {json}"))
}

#[test]
fn owned_keys_bring_no_error_and_every_value_is_compared() {
    let server = Server::start();
    let (answer, json) = kvstore(&server, &["--keys", "owned", "--seed", "7"]);
    assert!(answer.code == 0 || json["void"] == true, "{answer:?}");
    assert_eq!(
        (&json["failures"], &json["unfinished"], &json["misses"]),
        (&0.into(), &0.into(), &0.into()),
        "{json}"
    );
    for kind in ["create", "retrieve", "update", "delete"] {
        assert!(number(&json, &format!("{kind}_calls")) > 10.0, "{json}");
    }
    assert_eq!(json["seed"], 7);
}

#[test]
fn the_first_error_ends_the_run_if_that_is_wanted() {
    // One value in twenty is too large.
    let server = server(&["--max-value", "3KiB"]);
    let (answer, json) = kvstore(&server, &["--stop-on-error"]);
    assert_eq!(answer.code, 1, "{answer:?}");
    assert_eq!(json["stopped_early"], true, "{json}");
    let failures = json["failures_by_kind"].as_str().expect("a text");
    assert!(failures.starts_with("RESOURCE_EXHAUSTED: "), "{json}");
    let without = kvstore(&server, &[]).1;
    assert_eq!(without["stopped_early"], false, "{without}");
    assert!(number(&without, "failures") > number(&json, "failures"));
}

#[test]
fn shared_keys_race_and_that_is_no_error() {
    let server = server(&["--simulate", "read=5ms,write=5ms"]);
    let (answer, json) = kvstore(&server, &["--simulate", "read=5ms,write=5ms"]);
    assert!(answer.code == 0 || json["void"] == true, "{answer:?}");
    assert_eq!(json["failures"], 0, "{json}");
    assert!(number(&json, "races_not_found") > 0.0, "{json}");
    let races = number(&json, "races_not_found") + number(&json, "races_already_exists");
    assert_eq!(number(&json, "misses"), races, "{json}");
}

#[test]
fn figures_stay_below_the_ceiling_and_the_first_client_leaves_creates_out() {
    let delays = ["--simulate", "read=10ms,write=50ms,serial"];
    let server = server(&delays);
    let (answer, json) = kvstore(&server, &[&delays[..], &["--blocking"]].concat());
    assert!(answer.code == 0 || json["void"] == true, "{answer:?}");
    let [create, retrieve, update, delete] = ["create", "retrieve", "update", "delete"]
        .map(|kind| number(&json, &format!("{kind}_calls")));
    let all = create + retrieve + update + delete;
    let elapsed_s = number(&json, "elapsed_s");
    let close = |name: &str, calls: f64| {
        let found = number(&json, name);
        assert!((found - calls / elapsed_s).abs() < 0.01, "{name}: {json}");
    };
    close("all_calls_per_s", all);
    close("article_calls_per_s", retrieve + update + delete);
    assert_eq!(number(&json, "ceiling_per_s"), 25.0);
    assert_eq!(number(&json, "ceiling_article_per_s"), 18.75);
    let ceiling = number(&json, "ceiling_as_came_per_s");
    // A call that began before the window's end may end in it: one more than the time has room for.
    assert!(all / elapsed_s <= ceiling + 1.0 / elapsed_s, "{json}");
    assert!(all > 1.0, "{json}");

    let words = [
        "load",
        "kvstore",
        "--duration",
        "1s",
        "--simulate",
        delays[1],
    ];
    let text = run(&mut server.command(words));
    let lines: Vec<&str> = text.text().lines().collect();
    let begin = lines.iter().position(|line| line.starts_with("Did "));
    let begin = begin.unwrap_or_else(|| panic!("{text:?}"));
    assert!(lines[begin].contains("RPCs/s"), "{text:?}");
    assert!(lines[begin + 1].starts_with("all operations: "), "{text:?}");
    assert!(
        lines[begin + 2].starts_with("at most: 1 at a time, 40.00 ms each: 25.00 RPCs/s"),
        "{text:?}"
    );
}

#[test]
fn a_ceiling_that_is_not_the_servers_is_told() {
    let words = ["load", "kvstore", "--duration", "1s", "--simulate"];
    let delays = "read=50ms,write=50ms,serial";
    let told = |server: &Server| {
        let text = run(&mut server.command(words.iter().copied().chain([delays])));
        text.text().contains("the server has other delays")
    };
    assert!(told(&server(&[])), "nothing is delayed there");
    assert!(!told(&server(&["--simulate", delays])));
}

fn ping(server: &Server, flags: &[&str]) -> Answer {
    let words = ["load", "ping", "--duration", "300ms", "--warm-up", "0s"];
    run(&mut server.command(words.iter().chain(flags)))
}

/// Unary or streaming, on one connection or one for each ping in flight.
const PING_MODES: [&[&str]; 4] = [
    &[],
    &["--streaming"],
    &["--connections", "per-worker"],
    &["--streaming", "--connections", "per-worker"],
];

#[test]
fn pings_are_swept_in_every_mode() {
    let server = Server::start();
    for mode in PING_MODES {
        let answer = ping(
            &server,
            &[mode, &["--in-flight", "2-4", "--output", "csv"]].concat(),
        );
        let is_void = answer.stderr.contains("VOID");
        assert!(answer.code == 0 || is_void, "{mode:?}: {answer:?}");
        let lines: Vec<&str> = answer.text().lines().collect();
        assert_eq!(lines[0], "inflight,throughput,p50,p90,p99,p99_9,p100");
        assert_eq!(lines.len(), 4, "{mode:?}: {answer:?}");
        for (line, in_flight) in lines[1..].iter().zip(2..) {
            let cells: Vec<f64> = line
                .split(',')
                .map(|cell| cell.parse().expect("a number"))
                .collect();
            assert_eq!(cells[0], f64::from(in_flight), "{mode:?}: {line}");
            assert!(cells[1] > 0.0, "{mode:?}: {line}");
            assert!(cells[2..].is_sorted(), "{mode:?}: {line}");
        }
    }
}

#[test]
fn the_table_of_pings_has_its_columns() {
    let server = Server::start();
    let answer = ping(&server, &["--in-flight", "1"]);
    let lines: Vec<&str> = answer.text().lines().collect();
    assert!(
        lines[0].starts_with("Inflight | Throughput (req/s) | P50 (us)"),
        "{answer:?}"
    );
    assert_eq!(lines.len(), 3, "{answer:?}");
    let json = ping(&server, &["--in-flight", "1", "--output", "json"]).json();
    assert_eq!(json["in_flight"], 1);
    let flags = ["--in-flight", "1", "--per-worker"];
    let workers = ping(&server, &flags);
    let lines: Vec<&str> = workers.text().lines().collect();
    assert_eq!(lines[0], "Worker ID | Throughput (req/s)", "{workers:?}");
    assert_eq!(lines.len(), 3, "{workers:?}");
    let json = ping(&server, &[&flags[..], &["--output", "json"]].concat()).json();
    assert_eq!(json["worker"], 0);
}

#[test]
fn figures_of_each_worker_add_up() {
    let server = Server::start();
    for mode in PING_MODES {
        let flags = ["--in-flight", "2-3", "--per-worker", "--output", "csv"];
        let answer = ping(&server, &[mode, &flags].concat());
        let lines: Vec<&str> = answer.text().lines().collect();
        assert_eq!(lines[0], "worker,throughput", "{mode:?}: {answer:?}");
        let mut sum = 0.0;
        for (line, worker) in lines[1..].iter().zip(0..) {
            let (number, throughput) = line.split_once(',').expect("two cells");
            assert_eq!(number, worker.to_string(), "{mode:?}: {answer:?}");
            let throughput: f64 = throughput.parse().expect("a number");
            assert!(throughput > 0.0, "{mode:?}: {answer:?}");
            sum += throughput;
        }
        assert_eq!(lines.len(), 1 + 3, "of the last run only: {answer:?}");
        // What was said of the last run as a whole.
        let last = answer.stderr.lines().last().expect("a line of each run");
        let whole = last
            .split(", ")
            .find_map(|part| part.strip_suffix(" req/s"));
        let whole: f64 = whole.expect(last).parse().expect("a number");
        assert!((sum - whole).abs() < 0.1, "{mode:?}: {sum} is not {whole}");
    }
}

#[test]
fn the_first_ping_that_fails_ends_the_sweep() {
    let server = server(&["--max-connections", "2"]);
    let flags = [
        "--in-flight",
        "1-5",
        "--connections",
        "per-worker",
        "--output",
        "csv",
    ];
    let answer = ping(&server, &flags);
    assert_ne!(answer.code, 0, "{answer:?}");
}

#[test]
fn wrong_usage_is_explained() {
    let server = Server::start();
    for (flags, part) in [
        (
            &["kvstore", "--blocking", "--in-flight", "3"][..],
            "cannot be used with",
        ),
        (
            &["kvstore", "--simulate", "read=1ms"],
            "read=10ms,write=50ms",
        ),
        (&["kvstore", "--value-mean", "1GiB"], "16MiB"),
        (&["kvstore", "--duration", "0s"], "measures nothing"),
        (&["ping", "--in-flight", "3-1"], "1-32"),
        (
            &["ping", "--streaming", "--deadline", "1s"],
            "cannot be used with",
        ),
        (&["--mix", "get=100", "ping"], "cannot be used with"),
    ] {
        let answer = run(&mut server.command(["load"].iter().chain(flags)));
        assert_eq!(answer.code, 2, "{flags:?}: {answer:?}");
        assert!(answer.stderr.contains(part), "{flags:?}: {answer:?}");
    }
}

#[test]
fn no_server_is_said() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = listener.local_addr().expect("bound").to_string();
    drop(listener);
    for service in ["kvstore", "ping"] {
        let answer = run(pelton().args(["load", service, "--address", &address]));
        assert_eq!(answer.code, 3, "{answer:?}");
        assert!(answer.stderr.contains("--address"), "{answer:?}");
    }
}

/// The services may be those of another system, who is not to have a token of Pelton: only one that
/// is named on the command line is sent.
#[test]
fn the_token_of_the_environment_goes_to_no_service_of_another_system() {
    // A token that it does not know is refused by this server, so that a sent one shows.
    let server = server(&[]);
    let token = format!("pelton_{}", "A".repeat(43));
    let file = Temporary::new("token", token.as_bytes());
    let kvstore = ["kvstore", "--value-mean=10"];
    for words in [&kvstore[..], &["ping", "--warm-up=0s", "--in-flight=1"]] {
        let words = ["load"].iter().chain(words).chain(&["--duration=300ms"]);
        let words: Vec<&str> = words.copied().collect();
        for (variable, value) in [
            ("PELTON_TOKEN", token.as_str()),
            ("PELTON_TOKEN_FILE", file.name()),
        ] {
            let answer = run(server.command(&words).env(variable, value));
            assert!(answer.code <= 1, "{answer:?}");
            assert!(!answer.stderr.contains("UNAUTHENTICATED"), "{answer:?}");
            assert!(answer.stderr.contains("is not sent"), "{answer:?}");
        }
        let named = run(server.command(&words).args(["--token-file", file.name()]));
        let shown = [named.stdout.clone(), named.stderr.clone().into_bytes()].concat();
        let shown = String::from_utf8_lossy(&shown);
        assert!(shown.contains("UNAUTHENTICATED"), "{named:?}");
        assert!(!named.stderr.contains("is not sent"), "{named:?}");
    }
}
