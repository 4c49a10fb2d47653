//! A local pool over real sockets: what it does for good servers, and what bad ones get. The
//! negative cases are those of `negative.rs`, each with a server frame by frame.

mod common;
#[path = "common/pooled.rs"]
mod pooled;
#[path = "common/raw.rs"]
mod raw;

use std::io::Write;
use std::time::Duration;

use allocation_counter::measure;
use client::{
    CallError, Code, ConnectError, Credentials, LocalPool, LocalPoolOptions, NotBegun, PoolCall,
    PoolEvent, PoolOptions, PoolSize,
};
use testkit::frames::message;
use wire::http2::frame::kind;

use common::{by_path, listen, serve_all};
use pooled::{PoolReported, Pooled, call, of};
use raw::{
    ErrorCode, INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS, RESETS_WITHOUT_A_STATUS, Raw, serve_raw,
};

const PATH: &str = "/t.T/M";

#[test]
fn calls_share_connections_and_each_has_its_answer() {
    let (address, server) = serve_all(by_path, 2);
    let mut pooled = Pooled::new(&address, of(2));
    pooled.until(|pooled| pooled.statistics().counters.opened == 2);
    for round in 0..2 {
        for tag in 0..100 {
            pooled.begin(tag, "/t.T/Echo", &[tag as u8; 30]);
        }
        for tag in 0..100 {
            pooled.ended(tag).expect("it is answered");
            assert_eq!(pooled.messages(tag), [[tag as u8; 30]], "round {round}");
        }
        pooled.reported.clear();
        let statistics = pooled.statistics();
        let begun: Vec<_> = statistics.connections.iter().map(|c| c.begun).collect();
        assert_eq!(begun, [50 * (round + 1), 50 * (round + 1)]);
        assert_eq!(statistics.in_flight, 0);
    }
    let sockets = pooled.pool.socket_counters();
    assert!(sockets.writes < 40, "calls share writes: {sockets:?}");
    pooled.close();
    server.join().expect("it ends with the connections");
}

#[test]
fn a_stream_goes_both_ways() {
    let (address, server) = serve_all(by_path, 1);
    let mut pooled = Pooled::new(&address, of(1));
    for _ in 0..2 {
        let engine = pooled.pool.engine();
        let chat = engine.begin_streaming(7, &call("/t.T/Chat"), Pooled::now_ns());
        let chat = chat.expect("there is room");
        for number in 0..5_u8 {
            let sent = pooled
                .pool
                .engine()
                .send(chat, number == 4, |out| out.push(number));
            sent.expect("it takes messages");
        }
        pooled.ended(7).expect("it is answered");
        assert_eq!(pooled.messages(7), [[0], [1], [2], [3], [4]]);
        pooled.reported.clear();
    }
    pooled.close();
    server.join().expect("it ends with the connections");
}

#[test]
fn calls_of_a_warm_pool_allocate_nothing() {
    let (address, server) = serve_all(by_path, 1);
    let mut pool =
        LocalPool::new(&[address], of(1), 7, Pooled::now_ns()).expect("the address is known");
    let mut calls = || {
        let start = PoolCall {
            timeout_ns: Some(60_000_000_000),
            ..call("/t.T/Echo")
        };
        for tag in 0..100 {
            let begun = pool.engine().begin(tag, &start, Pooled::now_ns(), |out| {
                out.extend_from_slice(&[7; 24]);
            });
            assert!(begun.is_ok());
        }
        let mut succeeded = 0;
        while succeeded < 100 {
            pool.flush(Pooled::now_ns());
            let waited = pool.wait(Some(20_000_000_000), Pooled::now_ns());
            assert!(waited.is_ok());
            pool.receive(Pooled::now_ns(), &mut |event| {
                if let PoolEvent::Ended {
                    result, messages, ..
                } = event
                {
                    assert!(result.is_ok() && messages == 1);
                    succeeded += 1;
                }
            });
        }
    };
    for _ in 0..20 {
        calls();
    }
    let allocated = measure(&mut calls);
    assert_eq!(allocated.count_total, 0, "in 100 calls");
    drop(pool);
    server.join().expect("it ends with the connection");
}

#[test]
fn a_token_is_not_sent_without_tls() {
    let mut options = of(1);
    options.pool.credentials = Some(Credentials::token("pelton_0").expect("it can be sent"));
    let address = "192.0.2.1:1978".parse().expect("an address");
    let refused = LocalPool::new(&[address], options, 7, 0);
    assert!(
        matches!(refused, Err(ConnectError::TokenWithoutTls { .. })),
        "{refused:?}"
    );
}

// --- Bad servers ---------------------------------------------------------------------------------

/// How a single call ends before servers with these scripts, one after the other, and how many
/// messages it had.
fn one_call(scripts: Vec<fn(&mut Raw)>) -> (Result<(), CallError>, usize) {
    let (address, server) = serve_raw(scripts);
    let mut pooled = Pooled::new(&address, of(1));
    pooled.begin(1, PATH, b"question");
    let ended = pooled.ended(1);
    let messages = pooled.messages(1).len();
    drop(pooled);
    server.join().expect("the server has seen what it expects");
    (ended, messages)
}

#[test]
fn goaway_lets_what_has_begun_end_and_the_rest_is_made_again_on_another_connection() {
    let (address, server) = serve_raw(vec![
        |raw| {
            raw.settings(&[]);
            let first = raw.request();
            let second = raw.request();
            assert!(second > first);
            raw.goaway(first, ErrorCode::NoError);
            raw.answer(first, b"last");
        },
        |raw| {
            let stream = raw.begin();
            raw.answer(stream, b"again");
        },
    ]);
    let mut pooled = Pooled::new(&address, of(1));
    pooled.begin(1, PATH, b"question");
    pooled.begin(2, PATH, b"question");
    pooled.ended(1).expect("it had begun");
    pooled.ended(2).expect("it was made again");
    assert_eq!(pooled.messages(1), [b"last"]);
    assert_eq!(pooled.messages(2), [b"again"]);
    drop(pooled);
    server.join().expect("the server has seen what it expects");
}

#[test]
fn goaway_with_an_error_is_a_lost_connection() {
    let (ended, _) = one_call(vec![|raw| {
        let stream = raw.begin();
        raw.goaway(stream, ErrorCode::EnhanceYourCalm);
    }]);
    let error = ended.expect_err("the server may have begun");
    assert!(matches!(error, CallError::ConnectionLost { .. }), "{error}");
    assert!(error.may_have_happened());
}

#[test]
fn a_reset_without_a_status_is_internal() {
    for (script, expected) in RESETS_WITHOUT_A_STATUS {
        let (ended, messages) = one_call(vec![script]);
        let Err(CallError::Status(status)) = ended else {
            panic!("{ended:?}");
        };
        assert_eq!((status.code(), messages), (Code::Internal, expected));
    }
}

#[test]
fn padding_and_pings_in_between_change_nothing() {
    let (ended, messages) = one_call(vec![|raw| {
        let stream = raw.begin();
        raw.ping([1; 8]);
        raw.headers(stream);
        raw.ping([2; 8]);
        raw.message(stream, &[5; 300], Some(200), 5);
        raw.ping([3; 8]);
        for _ in 0..3 {
            raw.wait_for("the answer to a PING", |frame| frame.kind == kind::PING);
        }
        raw.trailers(stream);
    }]);
    ended.expect("it is answered");
    assert_eq!(messages, 1);
}

#[test]
fn a_flood_of_pings_and_a_push_end_the_connection() {
    let flood = |raw: &mut Raw| {
        raw.begin();
        for _ in 0..100_000 {
            raw.ping([9; 8]);
        }
    };
    let push = |raw: &mut Raw| {
        let stream = raw.begin();
        raw.frame(kind::PUSH_PROMISE, 4, stream, &[0, 0, 0, 2, 0x82]);
        raw.wait_for("GOAWAY", |frame| frame.kind == kind::GOAWAY);
    };
    for script in [flood as fn(&mut Raw), push] {
        let (ended, _) = one_call(vec![script]);
        let error = ended.expect_err("the connection has ended");
        assert!(matches!(error, CallError::ConnectionLost { .. }), "{error}");
    }
}

#[test]
fn a_call_waits_for_the_stream_that_the_server_allows() {
    let (address, server) = serve_raw(vec![|raw| {
        raw.settings(&[(MAX_CONCURRENT_STREAMS, 1)]);
        for _ in 0..3 {
            let stream = raw.request();
            raw.flush();
            raw.answer(stream, b"one");
        }
    }]);
    let mut pooled = Pooled::new(&address, of(1));
    pooled.until(|pooled| pooled.statistics().counters.opened == 1);
    for tag in 0..3 {
        pooled.begin(tag, PATH, b"q");
    }
    assert_eq!(pooled.statistics().waiting_for_stream, 2);
    for tag in 0..3 {
        pooled.ended(tag).expect("its turn comes");
    }
    assert!(pooled.statistics().wait_times.stream_ns > 0);
    drop(pooled);
    server.join().expect("the server has seen what it expects");
}

#[test]
fn a_tiny_window_is_kept_and_delays_no_small_call() {
    let (address, server) = serve_raw(vec![|raw| {
        raw.settings(&[(INITIAL_WINDOW_SIZE, 10)]);
        let (mut taken, mut upload) = (0, 0);
        while taken < 1_005 {
            let frame = raw.next().expect("the client sends on");
            if frame.kind != kind::DATA {
                continue;
            }
            if upload == 0 {
                upload = frame.stream;
            }
            if frame.stream != upload {
                raw.answer(frame.stream, b"small");
            } else {
                assert!(frame.payload.len() <= 10, "more than the window");
                taken += frame.payload.len();
                raw.open_window(upload, 10);
                if frame.ends_stream() {
                    raw.answer(upload, b"done");
                }
            }
        }
    }]);
    let mut pooled = Pooled::new(&address, of(1));
    pooled.begin(1, PATH, &[1; 1_000]);
    pooled.begin(2, PATH, b"s");
    pooled.ended(2).expect("it needs no more than the window");
    pooled.ended(1).expect("it has gone out piece by piece");
    drop(pooled);
    server.join().expect("the server has seen what it expects");
}

#[test]
fn refused_streams_are_made_again_and_the_last_refusal_is_the_error() {
    let (ended, _) = one_call(vec![|raw| {
        raw.settings(&[]);
        let stream = raw.request();
        raw.reset(stream, ErrorCode::RefusedStream);
        let stream = raw.request();
        raw.answer(stream, b"now");
    }]);
    ended.expect("the second attempt");
    let (ended, _) = one_call(vec![|raw| {
        raw.settings(&[]);
        for _ in 0..5 {
            let stream = raw.request();
            raw.reset(stream, ErrorCode::RefusedStream);
        }
    }]);
    let error = ended.expect_err("it is refused each time");
    assert!(
        matches!(error, CallError::NotBegun(NotBegun::Refused)),
        "{error}"
    );
}

#[test]
fn a_server_that_dies_in_the_middle_is_a_lost_connection() {
    let (ended, _) = one_call(vec![|raw| {
        let stream = raw.begin();
        raw.headers(stream);
        raw.frame(kind::DATA, 0, stream, &message(&[7; 1_000])[..500]);
    }]);
    let error = ended.expect_err("the server is gone");
    assert!(
        error.to_string().contains("the server closed it"),
        "{error}"
    );
    assert!(error.may_have_happened() && !error.is_safe_to_repeat());
}

/// How the first call ends at a server that says this and nothing else.
fn greeted_with(greeting: &'static [u8]) -> String {
    let (address, listener) = listen();
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("the client connects");
        socket.write_all(greeting).expect("the client is there");
        socket
    });
    let options = LocalPoolOptions {
        pool: PoolOptions {
            connect_timeout: Duration::from_millis(200),
            size: PoolSize::Fixed(1),
            ..PoolOptions::default()
        },
        ..LocalPoolOptions::default()
    };
    let mut pooled = Pooled::new(&address, options);
    pooled.begin(1, PATH, b"question");
    let error = pooled.ended(1).expect_err("there is no HTTP/2");
    assert!(
        matches!(error, CallError::NotBegun(NotBegun::Unreachable { .. })),
        "{error}"
    );
    drop(server.join());
    error.to_string()
}

#[test]
fn a_server_that_speaks_something_else_is_named() {
    for (greeting, words) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "speaks HTTP/1.1"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "sent text"),
        (b"-ERR unknown command\r\n", "protocol of Redis"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "speaks TLS"),
        (b"", "did not begin with HTTP/2 in time"),
    ] {
        let error = greeted_with(greeting);
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_target_that_is_not_there_is_named_at_once() {
    let (address, listener) = listen();
    drop(listener);
    let mut pooled = Pooled::new(&address, of(1));
    pooled.begin(1, PATH, b"question");
    let error = pooled.ended(1).expect_err("nobody is there");
    assert!(
        matches!(error, CallError::NotBegun(NotBegun::Unreachable { .. })),
        "{error}"
    );
    let words = error.to_string();
    assert!(words.contains(&address.to_string()), "{words}");
    assert!(words.contains("nobody listens there"), "{words}");
    assert!(
        !pooled
            .reported
            .iter()
            .any(|reported| matches!(reported, PoolReported::Ended(..)))
    );
    pooled.close();
}
