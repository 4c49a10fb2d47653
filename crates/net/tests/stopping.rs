//! The end of loops: drained or not, by handle and by signal.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use common::{Directory, Habits, LONG_DRAIN_MS, Server, eventually, one_loop};
use net::limits::STOP_FLUSH_MS;
use net::{Closed, LoopConfig};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, setrlimit};

fn busy() -> Habits {
    let habits = Habits::default();
    habits.busy.store(true, Ordering::Relaxed);
    habits
}

#[test]
fn a_stop_waits_for_running_work_and_flushes() {
    let server = Server::start_with(
        LoopConfig {
            threads: 2,
            ..one_loop()
        },
        busy(),
    );
    let mut streams: Vec<_> = (0..6).map(|_| server.connect()).collect();
    eventually("all are open", || {
        server.sum(|loop_| loop_.connections) == 6
    });
    server.stop.stop();
    eventually("both are told", || {
        server.habits.stops.load(Ordering::Relaxed) == 2
    });
    for stream in &mut streams {
        stream.write_all(b"still").expect("open");
        stream
            .read_exact(&mut [0; 5])
            .expect("served while draining");
    }
    let address = server.addresses[0].to_string();
    assert!(
        TcpStream::connect(address).is_err(),
        "nobody new while draining"
    );
    *server.habits.announcement.lock().expect("no panic") = Some(b"last".to_vec());
    server.habits.busy.store(false, Ordering::Relaxed);
    server
        .habits
        .wakers
        .lock()
        .expect("no panic")
        .iter()
        .for_each(|waker| waker.wake());
    for stream in &mut streams {
        let mut back = String::new();
        stream.read_to_string(&mut back).expect("a clean end");
        assert!(back.starts_with("last"), "{back}");
    }
    drop(streams);
    let habits = server.habits.clone();
    assert!(server.wait_for_end().expect("runs").drained);
    assert_eq!(
        *habits.closed.lock().expect("no panic"),
        [Closed::Stopped; 6]
    );
}

#[test]
fn a_stop_ends_at_its_deadline_and_says_so() {
    let server = Server::start_with(
        LoopConfig {
            drain_ms: 100,
            ..one_loop()
        },
        busy(),
    );
    let mut stream = server.connect();
    eventually("it is open", || server.sum(|loop_| loop_.connections) == 1);
    let begin = Instant::now();
    server.stop.stop();
    let mut back = Vec::new();
    stream.read_to_end(&mut back).expect("a clean end");
    assert!(begin.elapsed() >= Duration::from_millis(100));
    let first_notices: Vec<String> = server.notices.iter().take(2).collect();
    assert_eq!(first_notices[0], "stop asked for: draining");
    assert_eq!(
        first_notices[1],
        "loop 0 did not drain in time: cutting 1 connections"
    );
    assert!(!server.wait_for_end().expect("runs").drained);
}

#[test]
fn a_second_stop_does_not_wait() {
    let config = LoopConfig {
        drain_ms: LONG_DRAIN_MS,
        ..one_loop()
    };
    let server = Server::start_with(config, busy());
    let _stream = server.connect();
    eventually("it is open", || server.sum(|loop_| loop_.connections) == 1);
    let begin = Instant::now();
    server.stop.stop();
    server.stop.stop();
    let habits = server.habits.clone();
    assert!(!server.wait_for_end().expect("runs").drained);
    assert!(begin.elapsed() < Duration::from_millis(LONG_DRAIN_MS / 2));
    assert_eq!(*habits.closed.lock().expect("no panic"), [Closed::Stopped]);
}

#[test]
fn a_peer_that_takes_nothing_does_not_hold_up_the_end() {
    let server = Server::start(LoopConfig {
        drain_ms: LONG_DRAIN_MS,
        ..one_loop()
    });
    let mut deaf = server.connect();
    deaf.set_write_timeout(Some(Duration::from_millis(200)))
        .expect("valid");
    while deaf.write(&[0; 65_536]).is_ok() {}
    let begin = Instant::now();
    assert!(server.stop().expect("runs").drained);
    // Less than a peer may take that goes on reading.
    assert!(begin.elapsed() < Duration::from_millis(STOP_FLUSH_MS - 200));
}

/// With one loop and at most 10 connections: those, 8 that are refused, two of the loop, and as
/// many as the rest of the process may need.
const NEEDED_DESCRIPTORS: u64 = 10 + 8 + 2 + 4_096;

/// Waits with a time limit, again and again. ThreadSanitizer puts off a signal's handler until its
/// thread does something that it sees; but the kernel restarts a wait without a limit after a
/// signal, so that the thread would never do anything, and the signal never be handled.
fn next_notice(notices: &Receiver<String>) -> Option<String> {
    loop {
        match notices.recv_timeout(Duration::from_secs(1)) {
            Ok(notice) => return Some(notice),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
}

/// Not a test by itself: the server process of the tests below, which start this very file again.
#[test]
fn child() {
    let Ok(kind) = std::env::var("DRIVE_TEST_CHILD") else {
        return;
    };
    let path = std::env::var("DRIVE_TEST_SOCKET").expect("set with the kind");
    let mut config = LoopConfig {
        handle_signals: true,
        threads: 2,
        ..one_loop()
    };
    config
        .listen
        .push(format!("unix:{path}").parse().expect("valid"));
    let allowed = match &kind[..] {
        "few descriptors" => Some((30, 30)),
        "just enough descriptors" => Some((100, NEEDED_DESCRIPTORS)),
        "one descriptor too few" => Some((100, NEEDED_DESCRIPTORS - 1)),
        _ => None,
    };
    if let Some((current, maximum)) = allowed {
        config.threads = 1;
        if maximum > 30 {
            config.max_connections = 10;
        }
        let few = Rlimit {
            current: Some(current),
            maximum: Some(maximum),
        };
        setrlimit(Resource::Nofile, few).expect("lower is allowed");
    }
    let habits = match &kind[..] {
        "busy" => busy(),
        _ => Habits::default(),
    };
    let is_early = kind == "terminated early";
    habits.terminate_early.store(is_early, Ordering::Relaxed);
    let server = Server::start_with(config, habits);
    println!("\nlistening on {}", server.addresses[0]);
    while let Some(notice) = next_notice(&server.notices) {
        println!("\nnotice: {notice}"); // until the loops have ended
    }
    println!(
        "\ndrained: {}",
        server.wait_for_end().expect("runs").drained
    );
}

struct Process {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    address: String,
    directory: Directory,
}

impl Process {
    fn start(name: &str, kind: &str) -> Process {
        let directory = Directory::new(name);
        let mut child = Command::new(std::env::current_exe().expect("a test binary"))
            .args(["--exact", "child", "--nocapture"])
            .env("DRIVE_TEST_CHILD", kind)
            .env("DRIVE_TEST_SOCKET", directory.0.join("socket"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let stdout = child.stdout.take().expect("piped");
        let lines = BufReader::new(stdout).lines();
        let mut process = Process {
            child,
            lines,
            address: String::new(),
            directory,
        };
        process.address = process.line("listening on ");
        process
    }

    /// The rest of the next line that begins so.
    fn line(&mut self, begin: &str) -> String {
        for line in &mut self.lines {
            if let Some(rest) = line.expect("text").strip_prefix(begin) {
                return rest.into();
            }
        }
        panic!("no line begins with {begin}");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("running");
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("listening");
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("valid");
        stream
    }

    fn expect_end(mut self, drained: &str) {
        assert_eq!(self.line("drained: "), drained);
        assert!(self.child.wait().expect("ends").success());
        assert!(
            !self.directory.0.join("socket").exists(),
            "the socket file is gone"
        );
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn expect_served(stream: &mut TcpStream) {
    stream.write_all(b"x").expect("open");
    stream.read_exact(&mut [0]).expect("echo");
}

#[test]
fn each_signal_drains_and_ends_well() {
    for signal in [Signal::TERM, Signal::INT, Signal::QUIT] {
        let mut process = Process::start("signal", "idle");
        assert!(process.directory.0.join("socket").exists());
        let mut stream = process.connect();
        expect_served(&mut stream);
        process.signal(signal);
        assert_eq!(process.line("notice: "), "signal received: draining");
        assert_eq!(stream.read(&mut [0]).expect("a clean end"), 0);
        drop(stream);
        process.expect_end("true");
    }
}

/// From the moment on in which somebody may be told that the loops serve.
#[test]
fn a_signal_before_the_loops_run_is_not_lost() {
    let mut process = Process::start("early-signal", "terminated early");
    assert_eq!(process.line("notice: "), "signal received: draining");
    process.expect_end("true");
}

/// Waits until a further signal is one of its own.
fn pass_same_signal() {
    thread::sleep(Duration::from_millis(2 * net::limits::SAME_SIGNAL_MS));
}

#[test]
fn a_second_signal_ends_at_once() {
    let mut process = Process::start("second-signal", "busy");
    let mut stream = process.connect();
    expect_served(&mut stream);
    process.signal(Signal::TERM);
    assert_eq!(process.line("notice: "), "signal received: draining");
    expect_served(&mut stream);
    pass_same_signal();
    process.signal(Signal::INT);
    let said = process.line("notice: ");
    assert!(said.starts_with("asked to stop a second time"), "{said}");
    process.expect_end("false");
}

/// As `timeout` does, which sends a signal to its child and to its group.
#[test]
fn signals_sent_together_are_one_request_to_stop() {
    let mut process = Process::start("same-signal", "busy");
    let mut stream = process.connect();
    expect_served(&mut stream);
    // Different ones: of two that are the same and not yet handled, the kernel keeps one.
    for signal in [Signal::TERM, Signal::INT, Signal::QUIT] {
        process.signal(signal);
    }
    assert_eq!(process.line("notice: "), "signal received: draining");
    pass_same_signal();
    expect_served(&mut stream);
    process.signal(Signal::TERM);
    let said = process.line("notice: ");
    assert!(said.starts_with("asked to stop a second time"), "{said}");
    process.expect_end("false");
}

#[test]
fn a_third_signal_ends_even_a_hanging_process() {
    let mut process = Process::start("third-signal", "idle");
    process.connect().write_all(b"hang").expect("open");
    process.line("hangs");
    process.signal(Signal::TERM);
    assert_eq!(process.line("notice: "), "signal received: draining");
    pass_same_signal();
    process.signal(Signal::TERM);
    let said = process.line("notice: ");
    assert!(said.starts_with("asked to stop a second time"), "{said}");
    process.signal(Signal::TERM);
    assert_eq!(process.child.wait().expect("ends").code(), Some(128 + 15));
}

/// The soft limit is raised as far as it may be; what is missing then is reported.
#[test]
fn descriptors_that_just_suffice_are_enough_and_one_fewer_is_reported() {
    let mut process = Process::start("enough-descriptors", "just enough descriptors");
    expect_served(&mut process.connect());
    process.signal(Signal::TERM);
    assert_eq!(process.line("notice: "), "signal received: draining");
    process.expect_end("true");
    let mut process = Process::start("one-too-few", "one descriptor too few");
    assert_eq!(
        process.line("notice: "),
        "only 4115 file descriptors are allowed, 4116 needed at the connection limit"
    );
    expect_served(&mut process.connect());
    process.signal(Signal::TERM);
    assert_eq!(process.line("notice: "), "signal received: draining");
    process.expect_end("true");
}

#[test]
fn without_descriptors_accepting_pauses_and_goes_on() {
    let mut process = Process::start("descriptors", "few descriptors");
    let said = process.line("notice: ");
    assert!(
        said.starts_with("only 30 file descriptors are allowed"),
        "{said}"
    );
    let mut streams: Vec<TcpStream> = (0..40).map(|_| process.connect()).collect();
    let said = process.line("notice: ");
    assert!(
        said.starts_with("cannot accept connections on 127.0.0.1:"),
        "{said}"
    );
    expect_served(&mut streams[0]);
    streams.drain(..30);
    let said = process.line("notice: ");
    assert!(
        said.starts_with("accepting connections on 127.0.0.1:"),
        "said once each: {said}"
    );
    streams.iter_mut().for_each(expect_served);
    drop(streams);
    process.signal(Signal::TERM);
    process.expect_end("true");
}
