//! The blocking driver, through the real binary.

mod support;

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Instant;

use client::{CallOptions, Channel, ChannelOptions};
use support::{PATIENCE, Server, pelton};

/// A place for a data folder and a log, removed with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("pelton-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("the folder is made");
        Folder(path)
    }

    /// A server with so many threads, each for one connection.
    fn server(&self, threads: &str) -> Server {
        let log = File::create(self.0.join("log")).expect("the folder is ours");
        let mut command = pelton();
        command
            .args(["serve", "--driver", "blocking", "--threads", threads])
            .args(["--listen", "127.0.0.1:0", "--data"])
            .arg(self.0.join("data"))
            .stderr(log);
        Server::spawn(&mut command)
    }

    fn wait_for_log(&self, text: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            let log = fs::read_to_string(self.0.join("log")).expect("the server writes it");
            if log.contains(text) {
                return;
            }
            assert!(Instant::now() < until, "`{text}` is not in the log:\n{log}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn connect(server: &Server) -> Channel {
    let address = server.addresses[0].parse().expect("the server says so");
    Channel::connect(&address, &ChannelOptions::default()).expect("it listens")
}

fn expect_served(channel: &mut Channel) {
    let answer = channel.http_get("/", &CallOptions::default());
    assert_eq!(answer.expect("answered").status, 200);
}

#[test]
fn what_was_answered_is_there_after_a_stop() {
    let folder = Folder::new("driver-durable");
    let server = folder.server("4");
    for number in 0..20 {
        let key = format!("k{number:02}");
        assert_eq!(server.run(["put", &key, "v"]).code, 0);
    }
    assert_eq!(server.stop("TERM").0, 0);
    let server = folder.server("1");
    let keys = server.run(["scan"]);
    assert_eq!(keys.text().lines().count(), 20, "{keys:?}");
    assert_eq!(server.stop("INT").0, 0);
}

#[test]
fn a_connection_too_many_waits_and_the_log_says_so() {
    let folder = Folder::new("driver-waiting");
    let server = folder.server("2");
    folder.wait_for_log("one thread per connection: 2 are served at once");
    let (mut first, mut second) = (connect(&server), connect(&server));
    // A call that never ends, and others beside it on the same connection and on another one.
    let mut health = second
        .server_streaming("/grpc.health.v1.Health/Watch", b"", &CallOptions::default())
        .expect("begun");
    assert!(health.next_message().expect("all is well").is_some());
    expect_served(&mut first);
    let waiting = server
        .command(["put", "late", "v"])
        .stdout(Stdio::null())
        .spawn();
    let mut waiting = waiting.expect("the binary runs");
    folder.wait_for_log("all 2 threads have a connection: 1 more wait until one closes");
    expect_served(&mut first);
    drop(health);
    expect_served(&mut second);
    drop(first);
    assert!(waiting.wait().expect("it ends").success());
    assert_eq!(server.run(["get", "late"]).text(), "v");
    expect_served(&mut second);
    assert_eq!(server.stop("TERM").0, 0);
}
