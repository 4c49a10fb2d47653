//! Loops over the kernel's sockets: bytes, fairness, memory, spreading.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::{Directory, Habits, Server, eventually, fall_asleep, keep_deadlines, one_loop};
use net::limits::{INPUT_MAX_BYTES, OUTPUT_HIGH_WATER_BYTES, REFUSALS_PER_ADDRESS};
use net::{Closed, LoopConfig, RunError};

/// Sends from another thread while reading here, ends its side, expects all of it back.
fn expect_echo(stream: impl Read + Write + Send, sender: impl Write + Send, end: impl Fn() + Sync) {
    let bytes: Vec<u8> = (0..3_000_000_u32)
        .map(|n| (n * 7 + n / 251) as u8)
        .collect();
    let (mut stream, mut sender) = (stream, sender);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sender.write_all(&bytes).expect("the server reads");
            end();
        });
        let mut back = Vec::new();
        stream.read_to_end(&mut back).expect("the server answers");
        assert!(
            back == bytes,
            "{} of {} bytes came back",
            back.len(),
            bytes.len()
        );
    });
}

#[test]
fn bytes_come_back_over_tcp_and_unix_sockets_and_after_a_half_close() {
    let directory = Directory::new("echo");
    let mut config = one_loop();
    config.listen.push("[::1]:0".parse().expect("valid"));
    config.listen.push(directory.socket().into());
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        config.listen.remove(1); // a machine without IPv6
    }
    let server = Server::start(config);
    let tcp = server.connect();
    expect_echo(&tcp, &tcp, || tcp.shutdown(Shutdown::Write).expect("open"));
    let unix = server.connect_unix(server.addresses.len() - 1);
    expect_echo(&unix, &unix, || {
        unix.shutdown(Shutdown::Write).expect("open")
    });
    assert_eq!(server.sum(|loop_| loop_.bytes_in), 6_000_000);
    assert_eq!(server.sum(|loop_| loop_.bytes_out), 6_000_000);
    assert_eq!(
        *server.habits.closed.lock().expect("no panic"),
        [Closed::ByHandler; 2]
    );
    assert!(server.stop().expect("runs").drained);
}

#[test]
fn connections_are_spread_evenly_and_idle_ones_hold_no_buffers() {
    let server = Server::start(LoopConfig {
        threads: 4,
        ..one_loop()
    });
    let mut streams: Vec<TcpStream> = (0..200).map(|_| server.connect()).collect();
    let mut back = [0; 5];
    for stream in &mut streams {
        stream.write_all(b"hello").expect("open");
        stream.read_exact(&mut back).expect("echo");
    }
    for loop_ in server.counters.read() {
        assert_eq!(loop_.opened, 50);
    }
    eventually("nobody holds a buffer", || {
        server.sum(|loop_| loop_.input_buffers_lent + loop_.output_buffers_lent) == 0
    });
    eventually("each loop keeps some", || {
        let counters = server.counters.read();
        counters.iter().all(|loop_| loop_.buffers_pooled > 0)
    });
    assert!(
        server.sum(|loop_| loop_.buffers_pooled) < 40,
        "one after the other share buffers"
    );

    // Loop by loop, every second connection of the first half goes; newcomers fill the gaps.
    let mut kept = streams.split_off(100);
    kept.extend(streams.into_iter().step_by(2));
    eventually("half of the first half is gone", || {
        server.sum(|loop_| loop_.closed) == 50
    });
    kept.extend((0..50).map(|_| server.connect()));
    eventually("all are open", || {
        server.sum(|loop_| loop_.connections) == 200
    });
    for loop_ in server.counters.read() {
        assert_eq!(loop_.connections, 50);
    }
    assert!(server.stop().expect("runs").drained);
}

#[test]
fn who_does_not_read_is_not_read_from() {
    let server = Server::start(LoopConfig {
        tcp_send_buffer: Some(64 * 1024),
        tcp_receive_buffer: Some(64 * 1024),
        ..one_loop()
    });
    let mut stream = server.connect();
    stream.set_nonblocking(true).expect("open");
    let (mut sent, chunk) = (0, vec![b'x'; 64 * 1024]);
    let mut quiet_since = Instant::now();
    // A loop that has not had its turn for so long is not choked yet.
    while quiet_since.elapsed() < Duration::from_millis(300)
        || server.sum(|loop_| loop_.chokes) == 0
    {
        assert!(
            quiet_since.elapsed() < Duration::from_secs(20),
            "never choked"
        );
        match stream.write(&chunk) {
            Ok(count) => (sent, quiet_since) = (sent + count, Instant::now()),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    let [loop_] = server.counters.read()[..] else {
        panic!("one loop")
    };
    assert_eq!((loop_.chokes, loop_.connections), (1, 1));
    let held = loop_.bytes_in - loop_.bytes_out;
    let bound = OUTPUT_HIGH_WATER_BYTES + INPUT_MAX_BYTES;
    assert!(
        (1..=bound as u64).contains(&held),
        "{held} bytes are held for the peer"
    );

    // Choked is not forgotten: all comes back when the peer reads.
    stream.set_nonblocking(false).expect("open");
    stream.shutdown(Shutdown::Write).expect("open");
    let mut back = Vec::new();
    stream.read_to_end(&mut back).expect("echo");
    assert_eq!(back.len(), sent);
    let [loop_] = server.counters.read()[..] else {
        panic!("one loop")
    };
    assert_eq!(
        (loop_.bytes_in, loop_.bytes_out),
        (sent as u64, sent as u64)
    );
}

#[test]
fn a_large_input_is_served_by_turns_with_others_in_between() {
    let habits = Habits::default();
    habits.turn_bytes.store(100, Ordering::Relaxed);
    let server = Server::start_with(one_loop(), habits);
    let (mut large, mut small) = (server.connect(), server.connect());
    let gate = server.habits.gate.lock().expect("no panic");
    large
        .write_all(&[b'L'; 16_000])
        .expect("fits the kernel's buffers");
    eventually("the first turn has begun", || {
        server.sum(|loop_| loop_.reads) == 1
    });
    small.write_all(b"s").expect("open");
    drop(gate);
    small.read_exact(&mut [0]).expect("echo");
    large.read_exact(&mut [0; 16_000]).expect("echo");
    let turns = server.habits.turns.lock().expect("no panic");
    assert_eq!(turns.len(), 161, "at most 100 bytes a turn");
    let turn = turns
        .iter()
        .position(|&first| first == b's')
        .expect("served");
    assert!(
        (1..=3).contains(&turn),
        "after the turn that ran, not after all: {turn}"
    );
}

#[test]
fn the_last_words_reach_a_peer_that_still_talks() {
    let habits = Habits::default();
    *habits.last_answer.lock().expect("no panic") = Some(b"the end".to_vec());
    let server = Server::start_with(one_loop(), habits);
    for _ in 0..20 {
        let mut stream = server.connect();
        stream
            .write_all(&vec![b'?'; 2_000_000])
            .expect("lingering: still read");
        let mut back = Vec::new();
        stream
            .read_to_end(&mut back)
            .expect("no reset before the end");
        assert_eq!(back, b"the end");
    }
    eventually("all sockets are closed", || {
        server.sum(|loop_| loop_.connections) == 0
    });
    assert_eq!(
        *server.habits.closed.lock().expect("no panic"),
        [Closed::ByHandler; 20]
    );

    // A peer that never closes is waited for only so long.
    let mut silent = server.connect();
    silent.write_all(b"?").expect("open");
    silent.read_exact(&mut [0; 7]).expect("the answer");
    eventually("lingering ends", || server.sum(|loop_| loop_.closed) == 21);
}

#[test]
fn above_the_limit_peers_are_refused_in_their_protocol() {
    let server = Server::start(LoopConfig {
        max_connections: 2,
        ..one_loop()
    });
    let first = server.connect();
    let mut second = server.connect();
    second.write_all(b"x").expect("open");
    second.read_exact(&mut [0]).expect("echo");
    let is_refused = || {
        let mut back = String::new();
        let mut stream = server.connect();
        stream.read_to_string(&mut back).expect("refused politely");
        assert_eq!(back, "full");
    };
    (0..3).for_each(|_| is_refused());
    assert_eq!(server.sum(|loop_| loop_.refused), 3);
    let said = "2 connections are open, the most allowed: refusing more";
    assert_eq!(
        server.notices.try_iter().collect::<Vec<_>>(),
        [said],
        "said once"
    );
    drop(first);
    eventually("there is room again", || {
        server.sum(|loop_| loop_.connections) == 1
    });
    let mut third = server.connect();
    third.write_all(b"x").expect("open");
    third.read_exact(&mut [0]).expect("echo");
    // At the limit once more, it is said once more.
    (0..3).for_each(|_| is_refused());
    assert_eq!(server.notices.try_iter().collect::<Vec<_>>(), [said]);
}

#[test]
fn above_the_limit_of_their_address_peers_are_refused_in_their_protocol() {
    let server = Server::start(LoopConfig {
        max_connections_per_address: 2,
        limit_loopback: true,
        ..one_loop()
    });
    for round in 1..=2 {
        let mut kept: Vec<TcpStream> = (0..2).map(|_| server.connect()).collect();
        for stream in &mut kept {
            stream.write_all(b"x").expect("open");
            stream.read_exact(&mut [0]).expect("echo");
        }
        let mut back = String::new();
        server
            .connect()
            .read_to_string(&mut back)
            .expect("refused politely");
        assert_eq!(back, "full");
        assert_eq!(server.sum(|loop_| loop_.refused_by_address), round);
        assert_eq!(server.sum(|loop_| loop_.refused), 0);
        drop(kept);
        eventually("there is room again", || {
            server.sum(|loop_| loop_.connections) == 0
        });
    }
    let said: Vec<_> = server.notices.try_iter().collect();
    assert_eq!(said.len(), 1, "said once: {said:?}");
    assert!(said[0].contains("2 are open from that address"), "{said:?}");
}

#[test]
fn far_above_the_limit_of_their_address_peers_are_cut_off() {
    let server = Server::start(LoopConfig {
        max_connections_per_address: 1,
        limit_loopback: true,
        ..one_loop()
    });
    let mut first = server.connect();
    first.write_all(b"x").expect("open");
    first.read_exact(&mut [0]).expect("echo");
    // Refused ones that do not go: they are waited for.
    let many = REFUSALS_PER_ADDRESS + 10;
    let _refused: Vec<TcpStream> = (0..many).map(|_| server.connect()).collect();
    eventually("all have been refused or closed", || {
        server.sum(|loop_| loop_.refused_by_address) == many as u64
    });
    first.write_all(b"y").expect("open");
    first.read_exact(&mut [0]).expect("the first is served");
}

#[test]
fn another_thread_wakes_an_idle_loop() {
    let server = Server::start(LoopConfig {
        threads: 2,
        ..one_loop()
    });
    let mut streams: Vec<TcpStream> = (0..4).map(|_| server.connect()).collect();
    eventually("all are open", || {
        server.sum(|loop_| loop_.connections) == 4
    });
    fall_asleep(&server);
    *server.habits.announcement.lock().expect("no panic") = Some(b"!".to_vec());
    for waker in &*server.habits.wakers.lock().expect("no panic") {
        waker.wake();
    }
    for stream in &mut streams {
        stream
            .read_exact(&mut [0])
            .expect("announced without being asked");
    }
}

#[test]
fn wakes_are_never_lost_and_mostly_free() {
    let server = Server::start(one_loop());
    eventually("the loop runs", || {
        !server.habits.wakers.lock().expect("no panic").is_empty()
    });
    let waker = server.habits.wakers.lock().expect("no panic")[0].clone();
    for round in 0..200 {
        let before = server.sum(|loop_| loop_.ticks);
        waker.wake();
        eventually("a tick follows", || {
            server.sum(|loop_| loop_.ticks) > before
        });
        if round % 2 == 0 {
            std::thread::sleep(Duration::from_micros(200)); // let it fall asleep
        }
    }
    assert!(
        server.sum(|loop_| loop_.ticks) < 500,
        "one tick for each wake, about"
    );
}

#[test]
fn deadlines_are_kept() {
    let server = Server::start(one_loop());
    eventually("the loop runs", || {
        !server.habits.wakers.lock().expect("no panic").is_empty()
    });
    for period_ns in [300_000, 3_000_000] {
        server.habits.period_ns.store(period_ns, Ordering::Relaxed);
        server
            .habits
            .wakers
            .lock()
            .expect("no panic")
            .iter()
            .for_each(|waker| waker.wake());
        keep_deadlines(&server, 10);
    }
    // Waiting, not spinning: two ticks for each deadline would do.
    let kept = || server.habits.lateness_ns.lock().expect("no panic").len() as u64;
    let (before, kept_before) = (server.sum(|loop_| loop_.ticks), kept());
    eventually("twenty deadlines", || kept() >= kept_before + 20);
    let ticks = server.sum(|loop_| loop_.ticks) - before;
    assert!(ticks <= 3 * (kept() - kept_before), "{ticks}");
}

#[test]
fn a_steady_state_allocates_no_buffers() {
    let server = Server::start(one_loop());
    let mut streams: Vec<TcpStream> = (0..8).map(|_| server.connect()).collect();
    let round = |streams: &mut Vec<TcpStream>| {
        for stream in &mut *streams {
            stream.write_all(&[7; 2_000]).expect("open");
        }
        for stream in streams {
            stream.read_exact(&mut [0; 2_000]).expect("echo");
        }
    };
    // Eight at a time at most, however they fall together: then all there can be are there.
    (0..200).for_each(|_| round(&mut streams));
    let before = server.sum(|loop_| loop_.buffers_allocated);
    (0..200).for_each(|_| round(&mut streams));
    let after = server.sum(|loop_| loop_.buffers_allocated);
    assert!(after <= before.max(10), "{before} then {after}");
}

#[test]
fn a_panic_in_one_loop_stops_all() {
    let server = Server::start(LoopConfig {
        threads: 3,
        ..one_loop()
    });
    server.connect().write_all(b"panic").expect("open");
    match server.wait_for_end() {
        Err(RunError::Panicked { .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_cpu_that_is_not_there_is_said_and_the_loop_runs() {
    let server = Server::start(LoopConfig {
        pin: vec![1_000_000],
        ..one_loop()
    });
    let notice = server
        .notices
        .recv_timeout(Duration::from_secs(10))
        .expect("a notice");
    assert!(
        notice.starts_with("cannot pin a loop to CPU 1000000"),
        "{notice}"
    );
    let mut stream = server.connect();
    stream.write_all(b"x").expect("open");
    stream.read_exact(&mut [0]).expect("echo");
}
