//! The server as a service: its log, its service manager, a reload; and what is made of the command
//! line's own table.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use client::{CallOptions, Channel, ChannelOptions};
use support::{Folder, TIMEOUT, pelton, run};

/// A server whose log is read here. Ended with the value.
struct Logged {
    process: Child,
    log: BufReader<std::process::ChildStderr>,
    address: String,
}

impl Logged {
    fn start(command: &mut Command) -> Logged {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("the binary runs");
        let stdout = BufReader::new(process.stdout.take().expect("piped"));
        let log = BufReader::new(process.stderr.take().expect("piped"));
        let mut lines = stdout.lines().map(|line| line.expect("text"));
        let address = lines.by_ref().find_map(|line| {
            Some(
                line.strip_prefix("listening on ")?
                    .split(' ')
                    .next()?
                    .to_owned(),
            )
        });
        let address = address.expect("it listens");
        Logged {
            process,
            log,
            address,
        }
    }

    /// The next line that has these words. Ends with the test's own timeout, should it never come.
    fn line_with(&mut self, words: &str) -> String {
        loop {
            let line = self.line();
            if line.contains(words) {
                return line;
            }
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let count = self.log.read_line(&mut line).expect("text");
        assert!(count > 0, "the log has ended");
        line
    }

    fn signal(&self, name: &str) {
        let id = self.process.id().to_string();
        let kill = Command::new("kill").args(["-s", name, &id]).status();
        assert!(kill.expect("kill is there").success());
    }

    /// One call with one message; `None`: it succeeded, else the error in words.
    fn call(&self, path: &str, message: &[u8]) -> Option<String> {
        let address = self.address.parse().expect("an address");
        let mut channel =
            Channel::connect(&address, &ChannelOptions::default()).expect("it listens");
        let answer = channel.unary(path, message, &CallOptions::default());
        answer.err().map(|error| error.to_string())
    }

    /// Makes it refuse a connection.
    fn knock(&self) {
        let mut socket = TcpStream::connect(&self.address).expect("it listens");
        socket.set_read_timeout(Some(TIMEOUT)).expect("a time");
        socket.write_all(b"\0\x01\x02\x03").expect("it reads");
        let _ = socket.read_to_end(&mut Vec::new());
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn serve(flags: &[&str]) -> Command {
    let mut command = pelton();
    command.args(["serve", "--threads", "1", "--listen", "127.0.0.1:0"]);
    command.args(["--durability", "volatile"]).args(flags);
    command
}

#[test]
fn the_log_can_be_json() {
    let mut server = Logged::start(&mut serve(&["--log-format", "json"]));
    server.knock();
    server.signal("TERM");
    let refused: serde_json::Value =
        serde_json::from_str(&server.line_with("refused a connection")).expect("an object");
    assert_eq!(refused["level"], "WARN");
    let message = refused["message"].as_str().expect("a text");
    assert!(message.contains("no protocol of this port"), "{message}");
    assert!(
        refused["timestamp"]
            .as_str()
            .is_some_and(|time| time.starts_with("20"))
    );
    let mut rest = String::new();
    server.log.read_to_string(&mut rest).expect("text");
    for line in rest.lines() {
        let object: serde_json::Value = serde_json::from_str(line).expect(line);
        assert!(object["message"].is_string(), "{line}");
    }
    assert!(rest.contains("signal received"), "{rest}");
}

/// What others can cause at will is said a few times, and then that it is not said any more.
#[test]
fn lines_that_repeat_are_left_out() {
    let mut server = Logged::start(&mut serve(&[]));
    for _ in 0..40 {
        server.knock();
    }
    server.signal("TERM");
    let mut log = String::new();
    server.log.read_to_string(&mut log).expect("text");
    let count = |words: &str| log.lines().filter(|line| line.contains(words)).count();
    assert_eq!(count("refused a connection"), 10, "{log}");
    assert_eq!(count("more such lines are left out"), 1, "{log}");
    assert_eq!(count("signal received"), 1, "{log}");
}

#[test]
fn a_hangup_reads_the_level_anew() {
    let folder = Folder::new("hangup");
    let path = folder.0.join("pelton.toml");
    fs::write(&path, "log-level = 'error'").expect("written");
    let config = path.to_str().expect("text");
    let mut server = Logged::start(&mut serve(&["--config", config]));
    server.knock();
    fs::write(&path, "log-level = 'info'").expect("written");
    server.signal("HUP");
    let first = server.line();
    assert!(
        first.contains("SIGHUP: log-level is info"),
        "nothing before: {first}"
    );
    let changed = "log-level = 'info'\nmax-value = '1MiB'\nmax-streams = 7";
    for _ in 0..2 {
        fs::write(&path, changed).expect("written");
        server.signal("HUP");
        let line = server.line_with("need a restart");
        assert!(
            line.contains("max-streams (is ") && line.contains(", would be 7)"),
            "{line}"
        );
        assert!(
            line.contains("max-value (is ") && line.contains("would be \"1MiB"),
            "{line}"
        );
        assert!(
            !line.contains("log-level") && !line.contains("threads"),
            "{line}"
        );
    }
    server.knock();
    server.line_with("refused a connection");
    fs::write(&path, "log-level = 'loud'").expect("written");
    server.signal("HUP");
    let wrong = server.line_with("SIGHUP");
    assert!(
        wrong.contains("nothing was changed") && wrong.contains("loud"),
        "{wrong}"
    );
    server.knock();
    server.line_with("refused a connection");
}

/// Both drivers: connections with the reason of their end, calls that are refused with their
/// status, and each call.
#[test]
fn debug_and_trace_show_connections_and_calls() {
    for driver in ["event-loop", "blocking"] {
        let flags = ["--log-level", "trace", "--driver", driver, "--interop"];
        let mut server = Logged::start(&mut serve(&flags));
        for _ in 0..2 {
            let failed = server.call("/pelton.v1.KeyValue/Get", b"\x0a\x03xyz");
            assert!(failed.expect("there is no such database").contains("xyz"));
            let empty = "/grpc.testing.TestService/EmptyCall";
            assert_eq!(server.call(empty, b""), None);
            assert!(server.call("/a.B/C", b"").is_some());
        }
        let mut log = String::new();
        while !log.contains("calls ended,") {
            log.push_str(&server.line());
        }
        server.signal("TERM");
        server.log.read_to_string(&mut log).expect("text");
        let count = |level: &str, words: &[&str]| {
            let has = |line: &&str| words.iter().all(|word| line.contains(word));
            log.lines()
                .filter(|line| line.contains(level))
                .filter(has)
                .count()
        };
        let from = "from 127.0.0.1:";
        assert_eq!(
            count("DEBUG", &["setting durability = \"volatile\""]),
            1,
            "{log}"
        );
        assert_eq!(count("DEBUG", &["opened a connection", from]), 6, "{log}");
        let closed = [
            "closed a connection",
            from,
            "the peer closed the connection",
        ];
        assert_eq!(count("DEBUG", &closed), 6, "{log}");
        let refused = [
            "refused pelton.v1.KeyValue/Get",
            from,
            "with NOT_FOUND",
            "xyz",
        ];
        assert_eq!(count("DEBUG", &refused), 2, "{log}");
        let unknown = ["refused a.B/C", from, "with UNIMPLEMENTED"];
        assert_eq!(count("DEBUG", &unknown), 2, "{log}");
        let failed = ["pelton.v1.KeyValue/Get", from, "ended with NOT_FOUND after"];
        assert_eq!(count("TRACE", &failed), 2, "{log}");
        let done = ["TestService/EmptyCall", from, "ended with OK after"];
        assert_eq!(count("TRACE", &done), 2, "{log}");
    }
}

/// Clients of gupload print a message of their own: without this line nobody learns why.
#[test]
fn a_refused_upload_of_gupload_is_logged() {
    let mut server = Logged::start(&mut serve(&[]));
    for _ in 0..2 {
        let refused = server.call("/messaging.GuploadService/Upload", b"\x0a\x01x");
        assert!(refused.is_some());
        let line = server.line_with("refused messaging.GuploadService/Upload");
        assert!(
            line.contains("WARN") && line.contains("--discard-uploads"),
            "{line}"
        );
    }
    // Other failures are the callers' own business at this level.
    assert!(
        server
            .call("/pelton.v1.KeyValue/Get", b"\x0a\x03xyz")
            .is_some()
    );
    server.signal("TERM");
    let mut rest = String::new();
    server.log.read_to_string(&mut rest).expect("text");
    assert!(!rest.contains("KeyValue"), "{rest}");
}

#[test]
fn a_peer_that_speaks_something_else_is_named() {
    let mut server = Logged::start(&mut serve(&[]));
    for (said, answer, words) in [
        (
            "*1\r\n$4\r\nPING\r\n",
            "-ERR this is pelton",
            "a command of a Redis client",
        ),
        (
            "GET / HTTP/1.1\r\n\r\n",
            "HTTP/1.1 505",
            "an HTTP/1.x request",
        ),
    ] {
        let mut socket = TcpStream::connect(&server.address).expect("it listens");
        socket.set_read_timeout(Some(TIMEOUT)).expect("a time");
        socket.write_all(said.as_bytes()).expect("it reads");
        let mut answered = String::new();
        socket.read_to_string(&mut answered).expect("text");
        assert!(answered.starts_with(answer), "{answered}");
        let line = server.line_with("refused a connection from 127.0.0.1:");
        assert!(
            line.contains(words) && line.contains("speaks gRPC, HTTP/2, baidu_std and SRPC"),
            "{line}"
        );
    }
}

#[test]
fn full_memory_is_logged_once_and_once_when_it_is_free_again() {
    let folder = Folder::new("full-memory");
    let file = folder.0.join("value");
    fs::write(&file, vec![7; 1_000_000]).expect("there is room");
    let mut server = Logged::start(&mut serve(&["--memory-limit", "8MiB"]));
    let address = server.address.clone();
    let put = |key: usize| {
        let mut command = pelton();
        command.args(["put", "--address", &address, &key.to_string(), "--file"]);
        run(command.arg(&file)).code == 0
    };
    for _ in 0..2 {
        let stored = (0..20).take_while(|key| put(*key)).count();
        assert!((3..10).contains(&stored), "{stored}");
        let full = server.line_with("memory for data");
        assert!(
            full.contains("is full") && full.contains("of 8 MiB"),
            "{full}"
        );
        assert!(!put(20));
        for key in ["0", "1"] {
            let deleted = run(pelton().args(["delete", "--address", &address, key]));
            assert_eq!(deleted.code, 0);
        }
        let free = server.line_with("memory for data");
        assert!(free.contains("free again"), "once: {free}");
    }
}

#[test]
fn unknown_variables_are_named_and_standard_output_stays_as_it_is() {
    let mut command = serve(&[]);
    command
        .env("PELTON_TREADS", "3")
        .env("PELTON_PORT", "tcp://10.0.0.1:1978");
    let mut server = Logged::start(&mut command);
    let line = server.line_with("are no settings");
    assert!(
        line.contains("WARN") && line.contains("PELTON_TREADS;"),
        "{line}"
    );
    assert!(!line.contains("PELTON_PORT"), "{line}");
    // What a shell does whenever it starts does not warn.
    let other = run(pelton()
        .env("PELTON_TREADS", "3")
        .args(["completions", "bash"]));
    assert!(other.stderr.is_empty() && !other.text().contains("TREADS"));
    // Who calls a server is told of what is nearly right, and of nothing else.
    let mut status = pelton();
    let variables = [
        ("PELTON_ADRESS", "127.0.0.1:1"),
        ("PELTON_ENVIRONMENT", "x"),
    ];
    let address = server.address.clone();
    let answer = run(status
        .envs(variables)
        .args(["status", "--address", &address]));
    assert_eq!(answer.code, 0, "{answer:?}");
    let said = &answer.stderr;
    assert!(
        said.contains("PELTON_ADRESS (is PELTON_ADDRESS meant?)"),
        "{said}"
    );
    assert!(!said.contains("PELTON_ENVIRONMENT"), "{said}");
    assert!(!answer.text().contains("ADRESS"), "{answer:?}");
}

#[test]
fn limits_are_shown_in_units_that_fit() {
    let flags = ["--memory-limit", "20MiB", "--listen", "127.0.0.1:0"];
    let server = support::Server::with(&flags);
    let stored = server.greeting.iter().find(|line| line.contains("at most"));
    assert!(
        stored.expect("it says so").ends_with("at most 20 MiB"),
        "{stored:?}"
    );
    let refused = run(pelton().args(["serve", "--threads", "0"]));
    assert!(refused.stderr.contains("write 1 to 1024"), "{refused:?}");
}

#[test]
fn a_second_signal_is_explained() {
    let mut server = Logged::start(&mut serve(&[
        "--drain-timeout",
        "1h",
        "--log-level",
        "debug",
    ]));
    let (address, opened) = (server.address.clone(), "opened a connection");
    let call = std::thread::spawn(move || {
        let address = address.parse().expect("an address");
        let mut channel =
            Channel::connect(&address, &ChannelOptions::default()).expect("it listens");
        // EchoRequest: a delay of 60 000 ms.
        let request = b"\x18\xe0\xd4\x03";
        channel.unary("/pelton.v1.Echo/Unary", request, &CallOptions::default())
    });
    server.line_with(opened);
    server.line_with(", 1 calls run");
    server.signal("TERM");
    server.line_with("signal received");
    std::thread::sleep(Duration::from_millis(2 * net::limits::SAME_SIGNAL_MS));
    server.signal("TERM");
    server.line_with("a second time: closing all connections");
    server.line_with("stopped at once, as a second signal asked");
    call.join()
        .expect("it does not panic")
        .expect_err("it was cut");
}

/// The folder holds what a kill left.
#[test]
fn recovery_after_a_kill_is_information() {
    let folder = Folder::new("recovery");
    let data = folder.data();
    for clean in [false, true] {
        let mut command = pelton();
        command.args([
            "serve",
            "--threads",
            "1",
            "--listen",
            "127.0.0.1:0",
            "--data",
        ]);
        command.arg(&data);
        let mut server = Logged::start(&mut command);
        if !clean {
            server.line_with("the data folder is new");
            let put = run(pelton().args(["put", "--address", &server.address, "key", "value"]));
            assert_eq!(put.code, 0);
            continue; // dropped: killed
        }
        let line = server.line_with("the last stop was not clean");
        assert!(line.contains("INFO"), "{line}");
        server.signal("TERM");
        let mut log = String::new();
        server.log.read_to_string(&mut log).expect("text");
        assert!(!log.contains("ERROR") && !log.contains("WARN"), "{log}");
    }
}

#[test]
fn a_flag_is_stronger_than_a_reload() {
    let folder = Folder::new("hangup-flag");
    let path = folder.0.join("pelton.toml");
    fs::write(&path, "log-level = 'error'").expect("written");
    let config = path.to_str().expect("text");
    let mut server = Logged::start(&mut serve(&["--config", config, "--log-level", "debug"]));
    server.signal("HUP");
    server.line_with("SIGHUP: log-level is debug");
}

#[test]
fn a_closed_terminal_stops_a_server_without_a_file_cleanly() {
    let folder = Folder::new("closed-terminal");
    let data = folder.data();
    let data = data.to_str().expect("text");
    let command = || {
        let mut command = pelton();
        let flags = ["serve", "--listen", "127.0.0.1:0", "--data"];
        command.args(flags).arg(data);
        command
    };
    let mut server = Logged::start(&mut command());
    server.signal("HUP");
    server.line_with("SIGHUP, and no --config");
    let status = server.process.wait().expect("the child is ours");
    assert_eq!(status.code(), Some(0), "as after SIGTERM");

    // nohup
    let mut shell = Command::new("sh");
    let binary = command().get_program().to_owned();
    shell.args([
        "-c",
        "trap '' HUP; exec \"$0\" serve --listen 127.0.0.1:0 --data \"$1\"",
    ]);
    shell.arg(binary).arg(data).stdin(Stdio::null());
    let mut server = Logged::start(&mut shell);
    server.signal("HUP");
    std::thread::sleep(Duration::from_millis(200));
    let running = server.process.try_wait().expect("the child is ours");
    assert!(running.is_none(), "an ignored signal stays ignored");
    server.signal("TERM");
    let status = server.process.wait().expect("the child is ours");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_cpu_that_cannot_be_used_stops_the_start() {
    let answer = run(&mut serve(&["--pin", "0,4000"]));
    assert_eq!(answer.code, 2, "{answer:?}");
    let expected = "pin names CPU 4000, which is not possible: this process may use ";
    assert!(answer.stderr.contains(expected), "{answer:?}");
}

/// What the service manager has heard next.
fn heard(manager: &UnixDatagram) -> String {
    let mut bytes = [0; 1_000];
    let count = manager.recv(&mut bytes).expect("something came in time");
    String::from_utf8_lossy(&bytes[..count]).into_owned()
}

#[test]
fn the_service_manager_is_told() {
    let name = format!("pelton-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("valid");
    let manager = UnixDatagram::bind_addr(&address).expect("the name is free");
    manager.set_read_timeout(Some(TIMEOUT)).expect("a time");
    for driver in ["event-loop", "blocking"] {
        let folder = Folder::new(&format!("notify-{driver}"));
        let path = folder.0.join("pelton.toml");
        fs::write(&path, format!("driver = '{driver}'")).expect("written");
        let mut command = serve(&["--config", path.to_str().expect("text")]);
        command.env("NOTIFY_SOCKET", format!("@{name}"));
        command.env("WATCHDOG_USEC", "200000");
        let server = Logged::start(&mut command);
        let ready = format!("READY=1\nSTATUS=serving on {}\n", server.address);
        assert_eq!(heard(&manager), ready);
        for _ in 0..3 {
            assert_eq!(heard(&manager), "WATCHDOG=1\n", "although nobody calls");
        }
        server.signal("HUP");
        let next = || loop {
            let said = heard(&manager);
            if said != "WATCHDOG=1\n" {
                return said;
            }
        };
        assert!(next().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        assert_eq!(next(), ready);
        server.signal("TERM");
        assert!(next().starts_with("STOPPING=1\nSTATUS=stopping"));
        drop(server);
        // What is left of this one must not be taken for the next.
        manager.set_nonblocking(true).expect("it can be");
        while manager.recv(&mut [0; 1_000]).is_ok() {}
        manager.set_nonblocking(false).expect("it can be");
    }
}

#[test]
fn a_service_manager_that_is_not_there_is_named() {
    let mut command = serve(&[]);
    command.env("NOTIFY_SOCKET", "/nowhere/at/all");
    let answer = run(&mut command);
    assert_eq!(answer.code, 3);
    assert!(answer.stderr.contains("NOTIFY_SOCKET"), "{answer:?}");
}

#[test]
fn completions_and_man_pages_are_written() {
    let completions = run(pelton().args(["completions", "zsh"]));
    assert_eq!(completions.code, 0);
    assert!(completions.text().starts_with("#compdef pelton"));
    assert_eq!(run(pelton().args(["completions", "teeth"])).code, 2);
    let folder = Folder::new("man");
    let target = folder.0.join("man1");
    let man = run(pelton().arg("man").arg(&target));
    assert_eq!((man.code, man.text()), (0, ""), "{man:?}");
    let page = fs::read_to_string(target.join("pelton-database-create.1")).expect("it is there");
    assert!(page.contains("pelton\\-database\\-create"), "{page}");
    let file = target.join("pelton.1");
    let wrong = run(pelton().arg("man").arg(&file));
    assert_eq!(wrong.code, 3);
    assert!(wrong.stderr.contains("cannot write"), "{wrong:?}");
}

#[test]
fn the_packaged_settings_are_valid() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/pelton.toml");
    let answer = run(pelton().args(["config", "check", "--config", path]));
    assert_eq!(answer.code, 0, "{answer:?}");
    let printed = run(pelton().args(["config", "print", "--config", path]));
    assert!(
        printed
            .text()
            .contains("metrics-listen = \"127.0.0.1:9178\""),
        "{printed:?}"
    );
}

/// The settings of the service are in its file: a variable of the unit would beat a line of it,
/// unseen by `config print`.
#[test]
fn the_packaged_unit_takes_its_settings_from_the_file_alone() {
    let read = |name: &str| {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        fs::read_to_string(format!("{root}/{name}")).expect("it is there")
    };
    let unit = read("packaging/pelton.service");
    assert!(!unit.contains("PELTON_"), "{unit}");
    assert!(unit.contains("--config /etc/pelton.toml\n"), "{unit}");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/pelton.toml");
    let printed = run(pelton().args(["config", "print", "--config", path]));
    for (name, folder) in [("data", "data"), ("backup-root", "backups")] {
        let line = format!("{name} = \"/var/lib/pelton/{folder}\"");
        let found = printed.text().lines().any(|one| one.starts_with(&line));
        assert!(found, "{line} is missing in {printed:?}");
    }
    let cron = read("docs/operations.md");
    assert!(cron.contains("rsync -a /var/lib/pelton/backups/"), "{cron}");
}
