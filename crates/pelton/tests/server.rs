//! Starting, describing and stopping a server through the real binary.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use support::{Folder, Server, TIMEOUT, caught_signals, pelton, run};

#[test]
fn it_says_what_listens_where() {
    let server = Server::with(&["--listen", "127.0.0.1:0", "--memory-limit", "64MiB"]);
    let greeting = server.greeting.join("\n");
    assert!(
        greeting.starts_with(&format!("pelton {}\n", env!("CARGO_PKG_VERSION"))),
        "{greeting}"
    );
    let address = &server.addresses[0];
    let line = format!(
        "listening on {address} (plain: gRPC, HTTP/2, baidu_std, SRPC): reachable from this \
         machine only"
    );
    assert!(greeting.contains(&line), "{greeting}");
    assert!(
        greeting.contains("volatile: everything is lost when the server stops"),
        "{greeting}"
    );
    assert!(
        !address.ends_with(":0"),
        "the port that the system chose: {address}"
    );
    assert_eq!(server.run(["put", "k", "v"]).code, 0);
    let (code, printed) = server.stop("TERM");
    assert_eq!((code, printed.as_str()), (0, ""));
}

#[test]
fn several_addresses_share_the_data() {
    let path = std::env::temp_dir().join(format!("pelton-test-{}.sock", std::process::id()));
    let unix = format!("unix:{}", path.display());
    let server = Server::with(&["--listen", "127.0.0.1:0", "--listen", &unix]);
    assert_eq!(server.addresses.len(), 2);
    assert!(
        server
            .greeting
            .iter()
            .any(|line| line.contains(&unix) && line.contains("this user's programs"))
    );
    assert_eq!(server.run(["put", "k", "v"]).code, 0);
    let mut get = pelton();
    let get = run(get.args(["get", "k", "--address", &unix]));
    assert_eq!((get.code, get.text()), (0, "v"));
    let (code, _) = server.stop("INT");
    assert_eq!(code, 0);
    assert!(!path.exists(), "the socket is removed");
}

#[test]
fn a_port_in_use_is_named_with_the_flag() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("it is bound").to_string();
    let folder = std::env::temp_dir().join(format!("pelton-unmade-{}", std::process::id()));
    let mut serve = pelton();
    serve.args(["serve", "--listen", &address, "--data"]);
    let answer = run(serve.arg(&folder));
    assert!(!folder.exists(), "nothing is left behind");
    assert_eq!(answer.code, 3);
    assert!(
        answer.stderr.contains(&address) && answer.stderr.contains("--listen"),
        "{}",
        answer.stderr
    );
    assert_eq!(answer.text(), "", "nothing is announced that is not there");
}

/// A server that hangs while it announces itself, since nobody reads what it prints, stops well
/// too.
#[test]
fn a_signal_while_the_server_is_announced_stops_it_as_later() {
    /// What a pipe holds unless told otherwise (pipe(7)).
    const PIPE_BYTES: usize = 65_536;
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe can be had");
    writer
        .write_all(&vec![b'-'; PIPE_BYTES])
        .expect("that is its size");
    let mut process = pelton()
        .args(["serve", "--threads", "1", "--durability", "volatile"])
        .args(["--listen", "127.0.0.1:0"])
        .stdout(writer)
        .spawn()
        .expect("the binary runs");
    let id = process.id();
    let begin = Instant::now();
    while !(catches_sigterm(id) && has_started(id)) {
        if begin.elapsed() > Duration::from_secs(20) {
            process.kill().expect("the child is ours");
            panic!("it announces itself without handling signals");
        }
        thread::sleep(Duration::from_millis(1));
    }
    let killed = Command::new("kill")
        .args(["-s", "TERM", &id.to_string()])
        .status();
    assert!(killed.expect("kill is there").success());
    let mut printed = Vec::new();
    reader.read_to_end(&mut printed).expect("it is readable");
    let printed = String::from_utf8_lossy(&printed[PIPE_BYTES..]).into_owned();
    let status = process.wait().expect("it ends");
    assert!(printed.contains("listening on"), "{printed}");
    assert_eq!(status.code(), Some(0));
}

fn catches_sigterm(process_id: u32) -> bool {
    const SIGTERM: u32 = 15;
    caught_signals(process_id) & (1 << (SIGTERM - 1)) != 0
}

/// Whether a server has a thread of its own, and none any more that ends it if a signal comes while
/// it starts.
fn has_started(process_id: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process_id}/task"));
    let threads = threads.expect("the process is there").flatten();
    let names: Vec<_> = threads
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok())
        .collect();
    let is_there = |start: &str| names.iter().any(|name| name.starts_with(start));
    is_there("pelton-drop") && !is_there("pelton-signals")
}

#[test]
fn status_and_echo() {
    let server = Server::start();
    let status = server.run(["status"]);
    assert_eq!(status.code, 0);
    let expected = format!(
        "{} is SERVING\nserver: pelton {}",
        server.addresses[0],
        env!("CARGO_PKG_VERSION")
    );
    assert!(status.text().starts_with(&expected), "{}", status.text());
    let json = server.run(["status", "--output", "json"]).json();
    assert_eq!(json["status"], "SERVING");
    assert_eq!(json["log"], serde_json::Value::Null);
    let history = json["history_id"].as_str().expect("it has a name");
    assert_eq!(history.len(), 16, "{history}");
    assert!(status.text().contains(&format!("history: {history}")));
    assert!(
        json["round_trip_us"]
            .as_f64()
            .is_some_and(|time| time > 0.0),
        "{json}"
    );

    assert_eq!(
        server.run(["echo", "there and back"]).text(),
        "there and back"
    );
    let many = server
        .run(["echo", "--count", "20", "--output", "json"])
        .json();
    assert_eq!(
        (many["calls"].as_u64(), many["payload"].as_str()),
        (Some(20), Some("hello"))
    );
}

/// Health needs no right, and the rest is left out.
#[test]
fn the_status_of_a_server_is_told_without_a_token() {
    let server = Server::with(&["--listen", "127.0.0.1:0+anonymous=none"]);
    let status = server.run(["status"]);
    assert_eq!(status.code, 0, "{status:?}");
    let serving = format!("{} is SERVING\nserver: ", server.addresses[0]);
    assert!(status.text().starts_with(&serving), "{status:?}");
    assert!(status.text().contains("--token-file"), "{status:?}");
    let json = server.run(["status", "--output", "json"]).json();
    assert_eq!(json["status"], "SERVING", "{json}");
    assert!(json["round_trip_us"].is_null(), "{json}");
    assert!(json.get("history_id").is_none(), "{json}");
}

#[test]
fn a_server_for_the_network_says_what_to_add_to_its_command() {
    for (flags, parts) in [
        (
            &["--listen", "0.0.0.0:0"][..],
            &[
                "\n    --init-admin\n",
                "\n    --listen 0.0.0.0:0+anonymous=",
            ][..],
        ),
        (
            &["--original-ports=0.0.0.0", "--listen", "127.0.0.1:0"],
            &["\n    --original-ports=0.0.0.0+anonymous=service:gupload,service:ydb-ping\n"],
        ),
    ] {
        let mut command = pelton();
        command
            .args(["serve", "--durability", "volatile"])
            .args(flags);
        let refused = support::run_with_timeout(&mut command);
        assert_eq!(refused.code, 3, "{refused:?}");
        for part in parts {
            assert!(refused.stderr.contains(part), "{part}: {refused:?}");
        }
    }
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full");
    let answer = run(pelton().arg("--help").stdout(full.expect("Linux has it")));
    assert_eq!(answer.code, 3, "{answer:?}");
    assert!(answer.stderr.contains("standard output"), "{answer:?}");
}

/// Nothing tells a closed output from /dev/null, as the standard library opens that in its place.
#[test]
fn no_token_is_made_for_an_output_that_is_closed() {
    let server = Server::start();
    for output in [">&-", "> /dev/null"] {
        for command in ["create x --rights read", "rotate x"] {
            let mut shell = support::pelton_at("sh".as_ref());
            let words = format!("exec \"$0\" token {command} {output}");
            shell.args(["-c", &words, env!("CARGO_BIN_EXE_pelton")]);
            let answer = run(shell.env("PELTON_ADDRESS", &server.addresses[0]));
            assert_eq!(answer.code, 3, "{answer:?}");
            assert!(answer.stderr.contains("no token was made"), "{answer:?}");
        }
    }
    let list = server.run(["token", "list", "--output", "json"]);
    assert_eq!(list.text(), "", "{list:?}");

    let folder = Folder::new("token-file");
    let file = folder.0.join("there");
    fs::write(&file, "mine").expect("the folder is there");
    let words = ["token", "create", "x", "--rights", "read", "--to"];
    let there = run(server.command(words).arg(&file));
    assert_eq!(there.code, 3, "{there:?}");
    assert!(there.stderr.contains("choose another name"), "{there:?}");
}

/// The command begins before the server does.
#[test]
fn a_server_is_waited_for() {
    let folder = support::Folder::new("wait");
    let socket = format!("unix:{}", folder.0.join("socket").display());
    let mut wait = pelton();
    wait.args(["status", "--wait", "1m", "--address", &socket]);
    let waiting = wait
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    thread::sleep(Duration::from_millis(300));
    let server = Server::with(&["--listen", &socket]);
    let ready = waiting.wait_with_output().expect("it ends");
    let text = format!("{socket} is SERVING\n");
    assert_eq!(
        (ready.status.code(), ready.stdout),
        (Some(0), text.into_bytes())
    );
    let json = server.run(["status", "--wait", "0s", "--output", "json"]);
    assert_eq!((json.code, &json.json()["status"]), (0, &"SERVING".into()));

    let begin = Instant::now();
    let nobody = ["status", "--wait", "300ms", "--address", "127.0.0.1:1"];
    let nobody = run(pelton().args(nobody));
    assert_eq!((nobody.code, nobody.text()), (3, ""));
    assert!(begin.elapsed() >= Duration::from_millis(300));
    assert!(nobody.stderr.contains("nobody listens there"), "{nobody:?}");
    assert!(nobody.stderr.contains("waited for 0.3 s"), "{nobody:?}");
}

/// With hardly any descriptors a start is refused; a server that says it listens goes on.
#[test]
fn a_server_with_too_few_descriptors_is_refused_before_it_listens() {
    let (mut refused, mut served) = (0, 0);
    for most in (14..24).chain(40..60) {
        let words = format!("ulimit -n {most}; exec \"$@\"");
        let mut command = support::pelton_at(Path::new("/bin/sh"));
        command
            .args(["-c", &words, "sh", env!("CARGO_BIN_EXE_pelton"), "serve"])
            .args(["--listen", "127.0.0.1:0", "--durability", "volatile"])
            .args(["--threads", "4"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut process = command.spawn().expect("there is a shell");
        let lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        let listens =
            |line: std::io::Result<String>| line.is_ok_and(|line| line.contains("listening on"));
        if lines.into_iter().any(listens) {
            thread::sleep(Duration::from_millis(200));
            let ended = process.try_wait().expect("the child is ours");
            assert_eq!(ended, None, "{most}");
            process.kill().expect("the child is ours");
            served += 1;
        } else {
            refused += 1;
        }
        let code = process.wait().expect("the child is ours").code();
        assert!(matches!(code, None | Some(3)), "{most}: {code:?}");
        if served > 3 {
            break;
        }
    }
    assert!(refused > 0 && served > 0, "{refused} {served}");
}

#[test]
fn nobody_listens() {
    for command in [
        &["get", "k"][..],
        &["status"],
        &["put", "k", "v"],
        &["scan"],
        &["echo"],
    ] {
        let answer = run(pelton().args(command).args(["--address", "127.0.0.1:1"]));
        assert_eq!(answer.code, 3, "{command:?}");
        assert!(answer.stderr.contains("127.0.0.1:1"), "{}", answer.stderr);
        assert!(
            answer.stderr.contains("`pelton serve`"),
            "what to do: {}",
            answer.stderr
        );
        assert_eq!(answer.stderr.lines().count(), 1, "{}", answer.stderr);
    }
}

/// Where there is no server, nothing was sent and nothing is waited for, however many attempts
/// there may be.
#[test]
fn a_transfer_without_a_server_ends_at_once() {
    let transfer = |words: &[&str]| {
        let more = ["--attempts", "1000000", "--address", "127.0.0.1:1"];
        let answer = run(pelton().args(words).args(more));
        assert_eq!(answer.code, 3);
        assert!(answer.stderr.contains("`pelton serve`"), "{answer:?}");
        answer.stderr
    };
    let file = env!("CARGO_MANIFEST_PATH");
    let one = transfer(&["upload", file, "--name", "x"]);
    assert!(!one.contains("goes on from there"), "{one}");
    let other = concat!(env!("CARGO_MANIFEST_DIR"), "/src/main.rs");
    let two = transfer(&["upload", file, other, "--parallel", "1"]);
    assert!(two.contains(&format!("not begun: {other}")), "{two}");
    let pipe = transfer(&["upload", "-", "--name", "x"]);
    assert!(pipe.contains("nothing was stored"), "{pipe}");
    let folder = Folder::new("transfer-to-nobody");
    let to = folder.0.to_str().expect("text");
    let fetched = transfer(&["download", "a", "b", "--to", to, "--parallel", "1"]);
    assert!(
        fetched.contains("a: ") && fetched.contains("not begun: b"),
        "{fetched}"
    );
}

/// A server that accepts and never answers.
#[test]
fn the_timeout_counts() {
    let mute = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = mute.local_addr().expect("it is bound").to_string();
    let answer = run(pelton().args(["get", "k", "--timeout", "100ms", "--address", &address]));
    assert_eq!(answer.code, 3);
    let expected = "no answer within 100ms; --timeout says how long to wait";
    assert!(answer.stderr.contains(expected), "{answer:?}");
    let never = run(pelton().args(["get", "k", "--timeout", "0s", "--address", &address]));
    assert_eq!(never.code, 2, "{never:?}");
}

#[test]
fn strangers_are_told_what_this_port_is() {
    let server = Server::start();
    let mut stranger = TcpStream::connect(&server.addresses[0]).expect("it listens");
    stranger
        .set_read_timeout(Some(TIMEOUT))
        .expect("a time limit is possible");
    stranger
        .write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        .expect("it reads");
    let mut answer = String::new();
    stranger
        .read_to_string(&mut answer)
        .expect("it answers and closes");
    assert!(
        answer.starts_with("HTTP/1.1 ") && answer.to_lowercase().contains("grpc"),
        "{answer}"
    );
    assert_eq!(server.run(["status"]).code, 0, "the server goes on");
}

#[test]
fn signals_stop_it() {
    for signal in ["TERM", "INT", "QUIT"] {
        let server = Server::start();
        // An open connection that says nothing does not keep it.
        let _idle = TcpStream::connect(&server.addresses[0]).expect("it listens");
        std::thread::sleep(Duration::from_millis(50));
        let (code, _) = server.stop(signal);
        assert_eq!(code, 0, "SIG{signal}");
    }
}

#[test]
fn proto_files_are_written_and_kept() {
    let folder = std::env::temp_dir().join(format!("pelton-proto-{}", std::process::id()));
    let proto = |more: &[&str]| run(pelton().arg("proto").arg(&folder).args(more));
    let first = proto(&[]);
    assert_eq!(first.code, 0, "{first:?}");
    assert!(first.text().contains("pelton/v1/kv.proto"));
    let kv = folder.join("pelton/v1/kv.proto");
    let content = fs::read_to_string(&kv).expect("it was written");
    assert!(content.contains("service KeyValue"));
    assert_eq!(proto(&[]).code, 0, "the same content is no hindrance");

    fs::write(&kv, "mine").expect("the file is writable");
    fs::remove_file(folder.join("pelton/v1/echo.proto")).expect("it was written");
    let refused = proto(&[]);
    assert_eq!(refused.code, 3);
    assert!(
        refused.stderr.contains("kv.proto") && refused.stderr.contains("--force"),
        "{}",
        refused.stderr
    );
    assert_eq!(fs::read_to_string(&kv).expect("still there"), "mine");
    assert!(
        !folder.join("pelton/v1/echo.proto").exists(),
        "all or nothing"
    );
    assert_eq!(proto(&["--force"]).code, 0);
    assert_eq!(fs::read_to_string(&kv).expect("still there"), content);
    fs::remove_dir_all(&folder).expect("it was made here");
}
