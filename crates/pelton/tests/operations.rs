//! The server as a service: its log, its service manager, a reload; and what is made of the command line's own table.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Child, Command, Stdio};

use support::{Folder, PATIENCE, pelton, run};

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

    /// The next line that has these words. Ends with the test's own patience, should it never come.
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

    /// Makes it refuse a connection.
    fn knock(&self) {
        let mut socket = TcpStream::connect(&self.address).expect("it listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time");
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
    manager.set_read_timeout(Some(PATIENCE)).expect("a time");
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
