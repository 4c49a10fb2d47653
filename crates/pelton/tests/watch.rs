//! `pelton watch`: what is changed is printed, once, whatever becomes of the connection.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{Folder, Server, TIMEOUT, pelton, run_with_timeout};

const BEGUN: &str = "watching from ";
const RESUMED: &str = "the server is there again, and nothing was missed";
const INSTEAD: &str = "watch without --from, then read what is there with `pelton scan`";

/// How much longer than the one before a connection through the proxy lasts.
const PROXY_STEP: Duration = Duration::from_millis(30);

/// A running `pelton watch`, and the lines that it prints.
struct Watcher {
    process: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(from).lines() {
            if sender.send(line.expect("it is text")).is_err() {
                return;
            }
        }
    });
    receiver
}

impl Watcher {
    fn spawn(command: &mut Command) -> Watcher {
        let mut process = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        Watcher {
            stdout: lines(process.stdout.take().expect("piped")),
            stderr: lines(process.stderr.take().expect("piped")),
            process,
        }
    }

    /// One that watches already; it prints text.
    fn begun(server: &Server, flags: &[&str]) -> Watcher {
        let watcher = Watcher::spawn(server.command(["watch"]).args(flags));
        watcher.said(BEGUN);
        watcher
    }

    /// One that watches already, and the point from which on; it prints JSON.
    fn begun_json(server: &Server, flags: &[&str]) -> (Watcher, String) {
        let json = ["watch", "--output", "json"];
        let watcher = Watcher::spawn(server.command(json).args(flags));
        let first = watcher.object();
        assert_eq!(first["changes"], Value::Array(Vec::new()), "{first}");
        let point = first["resume"].as_str().expect("a text").to_owned();
        (watcher, point)
    }

    fn line(&self) -> String {
        self.stdout.recv_timeout(TIMEOUT).expect("a line comes")
    }

    fn object(&self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}"))
    }

    /// The next commit, behind objects that have only a point.
    fn commit(&self) -> Value {
        loop {
            let object = self.object();
            if object.get("sequence").is_some() {
                return object;
            }
        }
    }

    /// The sequence of the next commit.
    fn sequence(&self) -> u64 {
        self.commit()["sequence"].as_u64().expect("a number")
    }

    /// Waits for a line on standard error.
    fn said(&self, words: &str) -> String {
        loop {
            let line = self.stderr.recv_timeout(TIMEOUT).expect("it is said");
            if line.contains(words) {
                return line;
            }
        }
    }

    fn ended(&mut self) -> i32 {
        let until = Instant::now() + TIMEOUT;
        while Instant::now() < until {
            if let Some(status) = self.process.try_wait().expect("the child is ours") {
                return status.code().expect("ended by itself, not by a signal");
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("the watcher did not end within {TIMEOUT:?}");
    }

    /// Sends Ctrl-C. Returns the point from which to go on, as it is said.
    fn interrupt(mut self) -> String {
        let id = self.process.id().to_string();
        let killed = Command::new("kill").args(["-s", "INT", &id]).status();
        assert!(killed.expect("kill is there").success());
        assert_eq!(self.ended(), 130);
        let said = self.said("interrupted after ");
        let (_, behind) = said.split_once("--from ").expect("it says where");
        behind.split('`').next().expect("the point").to_owned()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The keys of a commit, with what became of them.
fn changes(commit: &Value) -> Vec<(String, String)> {
    let text = |change: &Value, name: &str| change[name].as_str().unwrap_or("").to_owned();
    let changes = commit["changes"].as_array().expect("a list").iter();
    changes
        .map(|change| (text(change, "kind"), text(change, "key")))
        .collect()
}

/// Writes a key, and returns its version.
fn put(address: &str, key: &str, value: &str) -> Option<u64> {
    let mut command = pelton();
    command.args(["put", key, value, "--output", "json", "--address", address]);
    let output = command.output().expect("the binary runs");
    let answer: Value = serde_json::from_slice(&output.stdout).ok()?;
    answer["version"].as_u64()
}

#[test]
fn changes_are_printed_as_lines_until_the_user_ends_it() {
    let server = Server::start();
    let mut from: Option<String> = None;
    for turn in 0..2 {
        let watcher = match &from {
            None => Watcher::begun(&server, &[]),
            Some(from) => Watcher::begun(&server, &["--from", from]),
        };
        let address = &server.addresses[0];
        let first = put(address, "key", "some\tvalue").expect("stored");
        assert_eq!(watcher.line(), format!("{first}\tset\tkey\tsome\\tvalue"));
        let empty = put(address, "empty", "").expect("stored");
        assert_eq!(watcher.line(), format!("{empty}\tset\tempty\t"));
        assert_eq!(server.run(["delete", "key"]).code, 0);
        let line = watcher.line();
        assert!(line.ends_with("\tdelete\tkey"), "{line}");
        let batch = server.run_with_input(
            &["batch"],
            b"{\"operation\":\"put\",\"key\":\"a\",\"value\":\"1\"}\n\
              {\"operation\":\"put\",\"key\":\"b\",\"value\":\"2\"}\n",
        );
        assert_eq!(batch.code, 0, "{}", batch.stderr);
        let (a, b) = (watcher.line(), watcher.line());
        let (sequence, rest) = a.split_once('\t').expect("columns");
        assert_eq!(rest, "set\ta\t1");
        assert_eq!(b, format!("{sequence}\tset\tb\t2"), "of one commit");
        let short = server.run(["put", "short", "v", "--ttl", "50ms"]);
        assert_eq!(short.code, 0);
        assert!(watcher.line().ends_with("\tset\tshort\tv"));
        assert!(watcher.line().ends_with("\texpire\tshort"));
        let point = watcher.interrupt();
        // What is written meanwhile comes first in the next run.
        let missed = put(address, "missed", &turn.to_string()).expect("stored");
        let mut again = server.command(["watch", "--limit", "1", "--from", &point]);
        let again = run_with_timeout(&mut again);
        assert_eq!(again.code, 0, "{}", again.stderr);
        assert_eq!(again.text(), format!("{missed}\tset\tmissed\t{turn}\n"));
        let (history, _) = point.split_once(':').expect("a history and a sequence");
        from = Some(format!("{history}:{missed}"));
    }
}

#[test]
fn what_is_not_wanted_is_left_out() {
    let server = Server::start();
    let address = server.addresses[0].clone();
    let prefix = Watcher::begun(&server, &["--prefix", "b", "--keys-only"]);
    let range = Watcher::begun(&server, &["--start", "b", "--end", "c", "--previous"]);
    let limited = Watcher::begun(&server, &["--limit", "2", "--key-encoding", "hex"]);
    for turn in 0..2 {
        for key in ["a", "b", "c"] {
            put(&address, key, &turn.to_string()).expect("stored");
        }
    }
    let line = |watcher: &Watcher| {
        let line = watcher.line();
        line.split_once('\t').expect("columns").1.to_owned()
    };
    for _ in 0..2 {
        assert_eq!(line(&prefix), "set\tb");
    }
    assert_eq!(line(&range), "set\tb\t0");
    let changed = line(&range);
    assert!(
        changed.starts_with("set\tb\t1\tbefore: version "),
        "{changed}"
    );
    assert!(changed.ends_with(", 0"), "{changed}");
    assert_eq!(line(&limited), "set\t61\t0");
    assert_eq!(line(&limited), "set\t62\t0");
    let mut limited = limited;
    assert_eq!(limited.ended(), 0);
    let nowhere = server.run(["watch", "--database", "nowhere"]);
    assert_eq!(nowhere.code, 3);
    assert!(nowhere.stderr.contains("NOT_FOUND"), "{}", nowhere.stderr);
    let nobody = run_with_timeout(pelton().args(["watch", "--address", "127.0.0.1:1"]));
    assert_eq!(nobody.code, 3, "{}", nobody.stderr);
}

#[test]
fn json_has_an_object_for_each_commit_with_the_point_behind_it() {
    let server = Server::start();
    let (watcher, begun) = Watcher::begun_json(&server, &["--previous"]);
    let address = &server.addresses[0];
    let first = put(address, "k", "1").expect("stored");
    let commit = watcher.commit();
    assert_eq!(commit["sequence"], first);
    assert!(commit["at_ms"].as_u64() > Some(1_700_000_000_000));
    let change = &commit["changes"][0];
    assert_eq!(
        (&change["kind"], &change["key"]),
        (&"set".into(), &"k".into())
    );
    assert_eq!(
        (&change["value"], &change["version"]),
        (&"1".into(), &first.into())
    );
    assert!(change.get("previous").is_none(), "{change}");
    let resume = commit["resume"].as_str().expect("a text").to_owned();
    assert!(resume.ends_with(&format!(":{first}")), "{resume}");
    put(address, "k", "2").expect("stored");
    let second = watcher.commit();
    assert_eq!(second["changes"][0]["previous"]["value"], "1");
    assert_eq!(server.run(["delete", "k"]).code, 0);
    let third = watcher.commit();
    assert_eq!(changes(&third), [("delete".into(), "k".into())]);
    assert_eq!(third["changes"][0]["previous"]["value"], "2");
    assert!(third["changes"][0].get("version").is_none(), "{third}");
    // From each of the points all that came behind it comes again.
    for (point, expected) in [(&begun, &commit), (&resume, &second)] {
        let json = ["watch", "--output", "json", "--previous", "--limit", "1"];
        let again = run_with_timeout(server.command(json).args(["--from", point]));
        let again: Vec<Value> = (again.text().lines())
            .map(|line| serde_json::from_str(line).expect("it is JSON"))
            .filter(|object: &Value| object.get("sequence").is_some())
            .collect();
        assert_eq!(again, std::slice::from_ref(expected));
    }
}

#[test]
fn a_reader_that_goes_ends_it_quietly() {
    let server = Server::start();
    for _ in 0..2 {
        let mut process = (server.command(["watch"]))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        drop(process.stdout.take());
        let stderr = lines(process.stderr.take().expect("piped"));
        let (_, receiver) = channel();
        let mut watcher = Watcher {
            process,
            stdout: receiver,
            stderr,
        };
        assert_eq!(watcher.ended(), 0);
        let said: Vec<String> = watcher.stderr.iter().collect();
        assert!(said.iter().all(|line| line.contains(BEGUN)), "{said:?}");
    }
    // As in `pelton watch | grep -m 1`: the line is there as soon as it is known.
    let watcher = Watcher::begun(&server, &[]);
    put(&server.addresses[0], "k", "v").expect("stored");
    assert!(watcher.line().ends_with("\tset\tk\tv"));
}

/// Starts a durable server again where the one before has listened.
fn start_at(folder: &Folder, address: &str) -> Server {
    let mut command = pelton();
    command
        .args(["serve", "--threads", "1", "--listen", address, "--data"])
        .arg(folder.data());
    Server::spawn(&mut command)
}

#[test]
fn it_goes_on_over_a_restart_with_what_came_meanwhile_and_ends_where_that_is_gone() {
    let folder = Folder::new("watch-restart");
    for is_killed in [false, true] {
        let server = Server::durable(&folder.data(), &[]);
        let address = server.addresses[0].clone();
        let (mut watcher, _) = Watcher::begun_json(&server, &[]);
        let expected: Vec<u64> = (0..20)
            .map(|number| put(&address, "k", &number.to_string()).expect("stored"))
            .collect();
        let found = expected.iter().map(|_| watcher.sequence());
        assert_eq!(found.collect::<Vec<u64>>(), expected);
        match is_killed {
            true => server.kill(),
            false => assert_eq!(server.stop("TERM").0, 0),
        }
        watcher.said("trying again");
        // Where the watcher does not see it.
        let elsewhere = Server::durable(&folder.data(), &[]);
        let unseen = put(&elsewhere.addresses[0], "k", "unseen").expect("stored");
        assert_eq!(elsewhere.stop("TERM").0, 0);
        let again = start_at(&folder, &address);
        assert_eq!(watcher.sequence(), unseen, "nothing is printed twice");
        let seen = put(&address, "k", "seen").expect("stored");
        assert_eq!(watcher.sequence(), seen);
        assert_eq!(again.stop("TERM").0, 0);
        watcher.said("trying again");
        let other = Folder::new("watch-restart-other");
        let _server = start_at(&other, &address);
        let said = watcher.said("OUT_OF_RANGE");
        let error: Value = serde_json::from_str(&said).expect("it is JSON");
        let has = |name: &str, words| error[name].as_str().expect("a text").contains(words);
        assert!(has("error", "belongs to another history"), "{said}");
        assert!(has("hint", INSTEAD), "{said}");
        assert_eq!(watcher.ended(), 3);
    }
}

#[test]
fn changes_that_are_gone_are_said_with_what_to_do() {
    let folder = Folder::new("watch-lost");
    let server = Server::durable(&folder.data(), &[]);
    let address = server.addresses[0].clone();
    let watcher = Watcher::begun(&server, &[]);
    put(&address, "k", "1").expect("stored");
    watcher.line();
    let point = watcher.interrupt();
    server.kill();
    let server = start_at(&folder, &address);
    put(&address, "k", "2").expect("stored");
    assert_eq!(server.run(["database", "create", "later"]).code, 0);
    let (history, sequence) = point.split_once(':').expect("a history and a sequence");
    let of_another = format!("0123456789abcdef:{sequence}");
    let ahead = format!("{history}:{}", u64::MAX);
    // Before it was made, there was no such database.
    for (from, database, words) in [
        (&point[..], "later", "are not all there any more"),
        (sequence, "later", "are not all there any more"),
        (&of_another, "", "belongs to another history"),
        (&ahead, "", "ahead of the last commit"),
    ] {
        let mut watch = server.command(["watch", "--from", from]);
        if !database.is_empty() {
            watch.args(["--database", database]);
        }
        let lost = run_with_timeout(&mut watch);
        assert_eq!(lost.code, 3, "{}", lost.stderr);
        assert!(lost.stdout.is_empty());
        assert!(lost.stderr.contains("OUT_OF_RANGE"), "{}", lost.stderr);
        assert!(lost.stderr.contains(words), "{}", lost.stderr);
        assert!(lost.stderr.contains(INSTEAD), "{}", lost.stderr);
    }
    let wrong = server.run(["watch", "--from", "1:2"]);
    assert_eq!(wrong.code, 2);
    assert!(
        wrong.stderr.contains("write HISTORY:SEQUENCE"),
        "{}",
        wrong.stderr
    );
}

/// A proxy in front of a server, each of whose connections ends after some time, in the middle of
/// what comes through it. Later ones last longer, so that also on a slow machine each watcher gets
/// further. Returns its address.
fn breaking_proxy(server: String, stop: Arc<AtomicBool>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    thread::spawn(move || {
        for (number, client) in (1..).zip(listener.incoming()) {
            let client = client.expect("the client connects");
            let upstream = TcpStream::connect(&server).expect("the server listens");
            let copy = |socket: &TcpStream| socket.try_clone().expect("the system has sockets");
            let (mut from_client, mut to_server) = (copy(&client), copy(&upstream));
            thread::spawn(move || std::io::copy(&mut from_client, &mut to_server));
            let (mut from_server, mut to_client) = (copy(&upstream), copy(&client));
            let stop = Arc::clone(&stop);
            let pass = move || {
                let until = Instant::now() + Duration::from_millis(100) + number * PROXY_STEP;
                let mut buffer = [0; 97];
                while let Ok(count @ 1..) = from_server.read(&mut buffer) {
                    let is_end = Instant::now() >= until && !stop.load(Ordering::Relaxed);
                    let count = if is_end { count / 2 } else { count };
                    if to_client.write_all(&buffer[..count]).is_err() || is_end {
                        break;
                    }
                }
                for socket in [&client, &upstream] {
                    let _ = socket.shutdown(Shutdown::Both);
                }
            };
            thread::spawn(pass);
        }
    });
    address
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_broken_connection_loses_and_repeats_nothing_while_others_write() {
    let server = Server::start();
    let direct = server.addresses[0].clone();
    let stop = Arc::new(AtomicBool::new(false));
    let proxy = breaking_proxy(direct.clone(), Arc::clone(&stop));
    let json = ["watch", "--output", "json", "--address", &proxy];
    let watcher = Watcher::spawn(server.command(json).args(["--keys-only"]));
    watcher.object();
    let written = AtomicU64::new(0);
    let (mut expected, mut found) = (Vec::new(), Vec::new());
    thread::scope(|scope| {
        let writers = (0..2).map(|writer| {
            let (stop, written, direct) = (&stop, &written, &direct);
            scope.spawn(move || {
                let mut versions = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let key = format!("key/{writer}/{}", versions.len() % 5);
                    versions.push(put(direct, &key, "v").expect("stored"));
                    written.fetch_add(1, Ordering::Relaxed);
                }
                versions
            })
        });
        let writers: Vec<_> = writers.collect();
        // Set also if this panics: the writers would go on, and the scope wait for them.
        let stopping = SetOnDrop(&stop);
        let mut breaks = 0;
        while breaks < 5 || written.load(Ordering::Relaxed) < 30 {
            watcher.said("trying again");
            watcher.said(RESUMED);
            breaks += 1;
        }
        drop(stopping);
        for writer in writers {
            expected.extend(writer.join().expect("it writes"));
        }
    });
    expected.sort_unstable();
    while found.len() < expected.len() {
        found.push(watcher.sequence());
    }
    assert_eq!(found, expected);
}
