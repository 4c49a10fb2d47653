//! The blocking driver over the kernel's sockets: a thread for each connection.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{
    Directory, Habits, LONG_DRAIN_MS, Server, blocking, eventually, fall_asleep, keep_deadlines,
};
use net::limits::{GIVE_BACK_BYTES, OUTPUT_HIGH_WATER_BYTES, SPARE_THREADS};
use net::{Closed, LoopConfig, LoopCounters, RunError};

fn expect_served(stream: &mut TcpStream) {
    stream.write_all(b"x").expect("open");
    stream.read_exact(&mut [0]).expect("echo");
}

/// Waits until so many threads, each of which has answered one request, have given up waiting in
/// `recv`.
fn fall_quiet(server: &Server, threads: usize) {
    eventually("the threads wait where they can be woken", || {
        // A thread has a buffer as long as it waits in `recv`, and counts that wait as a read
        // before.
        let is_quiet = |thread: &&LoopCounters| thread.reads >= 2 && thread.input_buffers_lent == 0;
        server.counters.read().iter().filter(is_quiet).count() == threads
    });
}

fn wake_all(server: &Server) {
    for waker in &*server.habits.wakers.lock().expect("no panic") {
        waker.wake();
    }
}

#[test]
fn bytes_come_back_over_tcp_and_unix_sockets_and_after_a_half_close() {
    let directory = Directory::new("blocking-echo");
    let mut config = blocking(2);
    config.listen.push(directory.socket().into());
    let server = Server::start(config);
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n * 7) as u8).collect();
    let (tcp, unix) = (server.connect(), server.connect_unix(1));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (&tcp).write_all(&bytes).expect("the server reads");
            tcp.shutdown(Shutdown::Write).expect("open");
        });
        scope.spawn(|| {
            (&unix).write_all(&bytes).expect("the server reads");
            unix.shutdown(Shutdown::Write).expect("open");
        });
        for mut stream in [&tcp as &dyn ReadShared, &unix].map(|stream| stream.reader()) {
            let mut back = Vec::new();
            stream.read_to_end(&mut back).expect("the server answers");
            assert!(back == bytes, "{} bytes came back", back.len());
        }
    });
    assert_eq!(
        *server.habits.closed.lock().expect("no panic"),
        [Closed::ByHandler; 2]
    );
    assert!(server.stop().expect("runs").drained);
}

trait ReadShared {
    fn reader(&self) -> Box<dyn Read + '_>;
}

impl ReadShared for TcpStream {
    fn reader(&self) -> Box<dyn Read + '_> {
        Box::new(self)
    }
}

impl ReadShared for std::os::unix::net::UnixStream {
    fn reader(&self) -> Box<dyn Read + '_> {
        Box::new(self)
    }
}

/// As long as each word comes soon after the answer before. One that the machine holds up for
/// longer costs a wait more.
#[test]
fn a_request_costs_one_receive_and_one_send() {
    let server = Server::start(blocking(1));
    let mut stream = server.connect();
    expect_served(&mut stream);
    let counters = || *server.counters.read().last().expect("a thread");
    let before = counters();
    (0..1_000).for_each(|_| expect_served(&mut stream));
    eventually("the last send is counted", || {
        counters().writes - before.writes == 1_000
    });
    let after = counters();
    let (reads, waits) = (after.reads - before.reads, after.waits - before.waits);
    // A read counts when it begins to wait.
    assert!((999..=1_010).contains(&reads), "{reads} reads");
    assert!(waits <= 10, "{waits} waits");
}

/// Counters that return to zero when nobody is connected.
fn held(server: &Server) -> u64 {
    server.sum(|thread| {
        let lent = thread.input_buffers_lent + thread.output_buffers_lent;
        thread.connections + lent + thread.opened.abs_diff(thread.closed)
    })
}

#[test]
fn all_connections_are_served_however_few_may_compute() {
    let server = Server::start(blocking(2));
    for _ in 0..2 {
        let mut streams: Vec<TcpStream> = (0..200).map(|_| server.connect()).collect();
        streams.iter_mut().for_each(expect_served);
        streams.iter_mut().rev().for_each(expect_served);
        assert_eq!(server.sum(|thread| thread.threads), 201);
        assert_eq!(server.sum(|thread| thread.opened - thread.closed), 200);
        drop(streams);
        eventually("all are gone", || held(&server) == 0);
    }
    let most = server.counters.read().len();
    assert!(most <= 201, "{most} slots: threads are used again");
    assert!(server.stop().expect("runs").drained);
}

#[test]
fn no_more_threads_compute_than_there_are_permits() {
    let habits = Habits::default();
    habits.turn_bytes.store(1, Ordering::Relaxed);
    let server = Server::start_with(blocking(2), habits);
    let mut streams: Vec<TcpStream> = (0..5).map(|_| server.connect()).collect();
    for round in 1..=2 {
        let gate = server.habits.gate.lock().expect("no panic");
        for stream in &mut streams {
            stream.write_all(b"x").expect("open");
        }
        let at_gate = || server.habits.at_gate.load(Ordering::Relaxed) - 5 * (round - 1);
        eventually("two compute", || at_gate() == 2);
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(at_gate(), 2, "the others wait");
        drop(gate);
        for stream in &mut streams {
            stream.read_exact(&mut [0]).expect("echo");
        }
        assert_eq!(at_gate(), 5);
        eventually("those that waited are counted", || {
            server.sum(|thread| thread.permit_waits) >= 3 * round
        });
    }
}

#[test]
fn threads_end_when_they_are_idle_and_begin_again() {
    let config = LoopConfig {
        idle_thread_ms: 20,
        ..blocking(4)
    };
    let server = Server::start(config);
    let threads = || server.sum(|thread| thread.threads);
    for _ in 0..4 {
        let mut streams: Vec<TcpStream> = (0..40).map(|_| server.connect()).collect();
        streams.iter_mut().for_each(expect_served);
        assert_eq!(threads(), 41, "and the door");
        let last = streams.pop();
        drop(streams);
        eventually("threads have ended", || {
            threads() == 1 + 1 + SPARE_THREADS as u64
        });
        expect_served(&mut last.expect("there are some"));
        eventually("all is given back", || held(&server) == 0);
        // Those whose end was not heard of yet when the next ones began have a slot beside them.
        let slots = server.counters.read().len();
        assert!(slots <= 1 + 40 + 40, "{slots} slots: they are used again");
    }
    assert_eq!(server.sum(|thread| thread.opened), 160);
    assert!(server.stop().expect("runs").drained);
}

/// Another thread may still bring something for its handler.
#[test]
fn a_thread_whose_handler_is_not_idle_stays() {
    let habits = Habits::default();
    habits.busy.store(true, Ordering::Relaxed);
    let config = LoopConfig {
        idle_thread_ms: 20,
        ..blocking(4)
    };
    let server = Server::start_with(config, habits);
    let mut streams: Vec<TcpStream> = (0..20).map(|_| server.connect()).collect();
    streams.iter_mut().for_each(expect_served);
    drop(streams);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(server.sum(|thread| thread.threads), 21);
    server.habits.busy.store(false, Ordering::Relaxed);
    eventually("threads have ended", || {
        server.sum(|thread| thread.threads) == 1 + SPARE_THREADS as u64
    });
    assert!(server.stop().expect("runs").drained);
}

/// As if the system allowed no more threads.
#[test]
fn a_connection_without_a_thread_is_refused_in_the_protocol() {
    let server = Server::start(LoopConfig {
        thread_stack_bytes: 1 << 46,
        ..blocking(2)
    });
    for _ in 0..3 {
        let mut back = String::new();
        let mut refused = server.connect();
        refused.read_to_string(&mut back).expect("refused politely");
        assert_eq!(back, "full");
    }
    eventually("all are gone", || held(&server) == 0);
    assert_eq!(server.sum(|thread| thread.refused), 3);
    assert_eq!(server.sum(|thread| thread.threads), 1, "the door");
    assert_eq!(server.counters.read().len(), 2, "a slot is tried again");
    let said: Vec<String> = server.notices.try_iter().collect();
    assert_eq!(said.len(), 1, "said once: {said:?}");
    assert!(
        said[0].starts_with("refused a connection: no thread can be started for it, beside 0 for"),
        "{said:?}"
    );
    assert!(server.stop().expect("runs").drained);
}

#[test]
fn a_connection_too_many_is_refused_in_the_protocol() {
    let server = Server::start(LoopConfig {
        max_connections: 3,
        ..blocking(1)
    });
    for round in 1..=2 {
        let mut streams: Vec<TcpStream> = (0..3).map(|_| server.connect()).collect();
        streams.iter_mut().for_each(expect_served);
        let mut back = String::new();
        let mut refused = server.connect();
        refused.read_to_string(&mut back).expect("refused politely");
        assert_eq!(back, "full");
        assert_eq!(server.sum(|loop_| loop_.refused), round);
        streams.iter_mut().for_each(expect_served);
        drop(streams);
        eventually("all are gone", || held(&server) == 0);
    }
}

#[test]
fn connections_of_an_address_are_bounded() {
    let server = Server::start(LoopConfig {
        max_connections_per_address: 5,
        limit_loopback: true,
        ..blocking(2)
    });
    for round in 1..=2 {
        let mut streams: Vec<TcpStream> = (0..5).map(|_| server.connect()).collect();
        streams.iter_mut().for_each(expect_served);
        let mut back = String::new();
        let mut refused = server.connect();
        refused.read_to_string(&mut back).expect("refused politely");
        assert_eq!(back, "full");
        assert_eq!(server.sum(|loop_| loop_.refused_by_address), round);
        drop(streams);
        eventually("all are gone", || held(&server) == 0);
    }
}

#[test]
fn a_peer_that_does_not_read_holds_its_own_thread_only() {
    let server = Server::start(LoopConfig {
        tcp_send_buffer: Some(64 * 1024),
        tcp_receive_buffer: Some(64 * 1024),
        write_stall_ms: 300,
        ..blocking(2)
    });
    let mut deaf = server.connect();
    deaf.set_write_timeout(Some(Duration::from_millis(100)))
        .expect("valid");
    while deaf.write(&[0; 65_536]).is_ok() {}
    let held = server.sum(|loop_| loop_.bytes_in) - server.sum(|loop_| loop_.bytes_out);
    let bound = OUTPUT_HIGH_WATER_BYTES + net::limits::INPUT_MAX_BYTES;
    assert!(held <= bound as u64, "{held} bytes are held for the peer");
    let mut other = server.connect();
    (0..100).for_each(|_| expect_served(&mut other));
    eventually("the deaf peer is closed", || {
        server.sum(|loop_| loop_.stalled) == 1
    });
    expect_served(&mut other);
    assert_eq!(
        *server.habits.closed.lock().expect("no panic"),
        [Closed::Stalled]
    );
}

/// With its input by turns of 100 bytes, each answered before the next.
#[test]
fn input_sent_ahead_is_served_by_turns() {
    let habits = Habits::default();
    habits.turn_bytes.store(100, Ordering::Relaxed);
    let server = Server::start_with(blocking(1), habits);
    let mut stream = server.connect();
    stream.write_all(&[b'L'; 5_000]).expect("open");
    stream.read_exact(&mut [0; 5_000]).expect("echo");
    eventually("every turn had a send of its own", || {
        server.sum(|loop_| loop_.writes) >= 50
    });
}

#[test]
fn idle_threads_sleep_and_are_woken() {
    let server = Server::start(blocking(3));
    let mut streams: Vec<TcpStream> = (0..3).map(|_| server.connect()).collect();
    streams.iter_mut().for_each(expect_served);
    // One of them rests.
    let mut stream = streams.swap_remove(1);
    streams.pop();
    fall_quiet(&server, 3);
    fall_asleep(&server);
    // Once woken, a thread sleeps again. The door and three threads.
    let before = server.sum(|thread| thread.ticks);
    wake_all(&server);
    eventually("each has woken", || {
        server.sum(|thread| thread.ticks) >= before + 4
    });
    fall_asleep(&server);
    *server.habits.announcement.lock().expect("no panic") = Some(b"!".to_vec());
    for _ in 0..3 {
        wake_all(&server);
        stream.read_exact(&mut [0]).expect("announced");
    }
    *server.habits.announcement.lock().expect("no panic") = None;
    expect_served(&mut stream);
}

/// What a thread keeps for the next time is freed when it falls asleep.
#[test]
fn a_quiet_thread_keeps_no_buffers() {
    let server = Server::start(blocking(2));
    let mut stream = server.connect();
    for busy in [false, true, false, true] {
        server.habits.busy.store(busy, Ordering::Relaxed);
        expect_served(&mut stream);
        eventually("nothing is kept", || {
            let counters = *server.counters.read().last().expect("a thread");
            counters.buffers_pooled + counters.input_buffers_lent == 0
        });
    }
    server.habits.busy.store(false, Ordering::Relaxed);
}

/// Memory is given back to the allocator when a thread rests that has moved much, and once more
/// with what was under way then, each time; not for small calls.
#[test]
fn a_thread_that_rests_gives_memory_back_if_it_has_moved_much() {
    static GIVEN_BACK: AtomicU64 = AtomicU64::new(0);
    let server = Server::start(LoopConfig {
        give_back: || {
            GIVEN_BACK.fetch_add(1, Ordering::Relaxed);
        },
        ..blocking(1)
    });
    let mut stream = server.connect();
    // With the byte before, and the echoes of both, these are two bytes less than are needed.
    let most = vec![1; GIVE_BACK_BYTES as usize / 2 - 2];
    for round in 0..3 {
        expect_served(&mut stream);
        stream.write_all(&most).expect("the server reads");
        stream.read_exact(&mut most.clone()).expect("echo");
        fall_asleep(&server);
        assert_eq!(GIVEN_BACK.load(Ordering::Relaxed), 2 * round);
        for given_back in [2 * round + 1, 2 * round + 2] {
            expect_served(&mut stream);
            eventually("memory is given back", || {
                GIVEN_BACK.load(Ordering::Relaxed) >= given_back
            });
            assert_eq!(GIVEN_BACK.load(Ordering::Relaxed), given_back);
        }
    }
}

/// It may not wait in `recv`, where nobody but its peer can wake it.
#[test]
fn a_thread_whose_handler_awaits_a_wake_waits_in_poll() {
    let server = Server::start(blocking(1));
    let mut stream = server.connect();
    expect_served(&mut stream);
    server.habits.busy.store(true, Ordering::Relaxed);
    // This may still have been waited for in `recv`.
    expect_served(&mut stream);
    let waits = || server.counters.read().last().expect("a thread").waits;
    let before = waits();
    (0..50).for_each(|_| expect_served(&mut stream));
    assert!(waits() - before >= 49, "{} waits", waits() - before);
    server.habits.busy.store(false, Ordering::Relaxed);
}

/// A handler that awaits a wake-up gets it at once, one that does not within the time that `recv`
/// may wait.
#[test]
fn a_wake_reaches_a_thread_wherever_it_waits() {
    let server = Server::start(blocking(1));
    let mut stream = server.connect();
    for busy in [true, false] {
        server.habits.busy.store(busy, Ordering::Relaxed);
        for _ in 0..5 {
            expect_served(&mut stream);
            *server.habits.announcement.lock().expect("no panic") = Some(b"!".to_vec());
            wake_all(&server);
            stream.read_exact(&mut [0]).expect("announced");
            *server.habits.announcement.lock().expect("no panic") = None;
            stream.set_nonblocking(true).expect("open");
            while stream.read(&mut [0; 64]).is_ok() {}
            stream.set_nonblocking(false).expect("open");
        }
    }
}

#[test]
fn deadlines_are_kept() {
    let server = Server::start(blocking(1));
    let mut stream = server.connect();
    for period_ns in [300_000, 3_000_000, 150_000_000] {
        server.habits.lateness_ns.lock().expect("no panic").clear();
        server.habits.period_ns.store(period_ns, Ordering::Relaxed);
        expect_served(&mut stream);
        keep_deadlines(&server, 6);
    }
}

#[test]
fn a_stop_waits_for_running_work_and_flushes() {
    let server = Server::start_with(blocking(3), Habits::default());
    let mut streams: Vec<_> = (0..3).map(|_| server.connect()).collect();
    streams.iter_mut().for_each(expect_served);
    server.habits.busy.store(true, Ordering::Relaxed);
    server.stop.stop();
    eventually("all are told", || {
        server.habits.stops.load(Ordering::Relaxed) == 4
    });
    for stream in &mut streams {
        expect_served(stream);
    }
    assert!(
        TcpStream::connect(server.addresses[0].to_string()).is_err(),
        "nobody new while draining"
    );
    *server.habits.announcement.lock().expect("no panic") = Some(b"last".to_vec());
    server.habits.busy.store(false, Ordering::Relaxed);
    wake_all(&server);
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
        [Closed::Stopped; 3]
    );
}

#[test]
fn a_stop_reaches_threads_that_rest_wait_in_recv_and_wait_in_poll() {
    let begin = Instant::now();
    for quiet in [false, true] {
        let server = Server::start(LoopConfig {
            drain_ms: LONG_DRAIN_MS,
            ..blocking(4)
        });
        let mut streams = [server.connect(), server.connect()];
        streams.iter_mut().for_each(expect_served);
        if quiet {
            fall_quiet(&server, 2);
        }
        server.stop.stop();
        for stream in &mut streams {
            assert_eq!(stream.read(&mut [0]).expect("a clean end"), 0);
        }
        drop(streams);
        assert!(server.wait_for_end().expect("runs").drained);
    }
    assert!(begin.elapsed() < Duration::from_millis(LONG_DRAIN_MS / 2));
}

#[test]
fn a_stop_reaches_hundreds_of_threads() {
    let begin = Instant::now();
    let server = Server::start(LoopConfig {
        drain_ms: LONG_DRAIN_MS,
        idle_thread_ms: 20,
        ..blocking(2)
    });
    let mut streams: Vec<TcpStream> = (0..300).map(|_| server.connect()).collect();
    streams.iter_mut().for_each(expect_served);
    // Some threads end by themselves meanwhile.
    streams.truncate(200);
    server.stop.stop();
    for stream in &mut streams {
        assert_eq!(stream.read(&mut [0]).expect("a clean end"), 0);
    }
    drop(streams);
    assert!(server.wait_for_end().expect("runs").drained);
    assert!(begin.elapsed() < Duration::from_millis(LONG_DRAIN_MS / 2));
}

#[test]
fn a_stop_ends_at_its_deadline_and_says_so() {
    let habits = Habits::default();
    habits.busy.store(true, Ordering::Relaxed);
    let config = LoopConfig {
        drain_ms: 100,
        ..blocking(1)
    };
    let server = Server::start_with(config, habits);
    let mut stream = server.connect();
    expect_served(&mut stream);
    server.stop.stop();
    stream.read_to_end(&mut Vec::new()).expect("a clean end");
    let notices: Vec<String> = server.notices.iter().take(3).collect();
    assert_eq!(notices[0], "stop asked for: draining");
    let cut = "loop 1 did not drain in time: cutting 1 connections".to_owned();
    assert!(notices.contains(&cut), "{notices:?}");
    assert!(!server.wait_for_end().expect("runs").drained);
}

#[test]
fn a_second_stop_does_not_wait() {
    let habits = Habits::default();
    habits.busy.store(true, Ordering::Relaxed);
    let config = LoopConfig {
        drain_ms: LONG_DRAIN_MS,
        ..blocking(1)
    };
    let server = Server::start_with(config, habits);
    let mut stream = server.connect();
    expect_served(&mut stream);
    let begin = Instant::now();
    server.stop.stop();
    server.stop.stop();
    assert!(!server.wait_for_end().expect("runs").drained);
    assert!(begin.elapsed() < Duration::from_millis(LONG_DRAIN_MS / 2));
}

#[test]
fn a_panic_in_one_thread_stops_all() {
    let server = Server::start(blocking(2));
    let mut stream = server.connect();
    expect_served(&mut stream);
    server.connect().write_all(b"panic").expect("open");
    let ended = server.wait_for_end();
    assert!(matches!(ended, Err(RunError::Panicked { .. })), "{ended:?}");
}
