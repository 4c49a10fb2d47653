//! The blocking driver, through the real binary.

mod support;

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Instant;

use client::{CallOptions, Channel, ChannelOptions, ServerStreaming};
use support::{Server, TIMEOUT, pelton};

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
        let until = Instant::now() + TIMEOUT;
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

/// One of the figures of `pelton status`.
fn statistic(server: &Server, key: &str) -> u64 {
    let told = server.run(["status", "--output", "json"]);
    let told: serde_json::Value = serde_json::from_str(told.text()).expect("it is JSON");
    told[key]
        .as_u64()
        .unwrap_or_else(|| panic!("no {key} in {told}"))
}

/// A call that never ends.
fn watch_health(channel: &mut Channel) -> ServerStreaming<'_> {
    let options = CallOptions::default();
    let mut health = channel
        .server_streaming("/grpc.health.v1.Health/Watch", b"", &options)
        .expect("begun");
    assert!(health.next_message().expect("all is well").is_some());
    health
}

/// Gets the key `k`, of which the answer holds the value.
fn get_k(channel: &mut Channel) -> Vec<u8> {
    let answer = channel.unary(
        "/pelton.v1.KeyValue/Get",
        b"\x12\x01k",
        &CallOptions::default(),
    );
    answer.expect("answered")
}

fn wait_until(is_so: impl Fn() -> bool) {
    let until = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < until, "it never is so");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// A stream that waits holds a thread, and none of the permits to compute.
#[test]
fn calls_are_served_beside_any_number_of_idle_streams() {
    let folder = Folder::new("driver-streams");
    let server = folder.server("2");
    folder.wait_for_log("one thread per connection: 2 calls compute at once");
    assert_eq!(server.run(["put", "k", "v"]).code, 0);
    for _ in 0..2 {
        let mut channels: Vec<Channel> = (0..100).map(|_| connect(&server)).collect();
        let streams: Vec<_> = channels.iter_mut().map(watch_health).collect();
        let mut others: Vec<Channel> = (0..100).map(|_| connect(&server)).collect();
        for other in &mut others {
            assert!(get_k(other).windows(3).any(|field| field == b"\x12\x01v"));
        }
        for other in others.iter_mut().rev() {
            assert!(get_k(other).windows(3).any(|field| field == b"\x12\x01v"));
        }
        assert_eq!(server.run(["put", "k", "v"]).code, 0);
        // With that of who asks, whose call may not be shown yet.
        assert_eq!(statistic(&server, "open_connections"), 201);
        assert!((100..=101).contains(&statistic(&server, "running_calls")));
        drop(streams);
        drop((channels, others));
        wait_until(|| statistic(&server, "open_connections") == 1);
        assert!(statistic(&server, "running_calls") <= 1);
    }
    assert_eq!(server.stop("TERM").0, 0);
}
