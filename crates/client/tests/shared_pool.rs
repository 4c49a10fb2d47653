//! A shared pool over real sockets: threads, futures, and what ends calls.

mod common;
#[path = "common/pooled.rs"]
mod pooled;
#[path = "common/sharing.rs"]
mod sharing;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use client::{CallError, Code, NotBegun, PoolCall, SharedPool, UnaryFuture};
use sharing::{assert_nothing_left, call, pool};

#[test]
fn a_thread_drives_its_own_calls() {
    let (pool, server) = pool(1);
    for number in 0..100_u8 {
        let answer = pool.unary(&call("/t.T/Echo"), &[number; 30]);
        assert_eq!(answer.expect("it is answered"), [number; 30]);
    }
    assert_nothing_left(&pool);
    drop(pool);
    server.join().expect("it ends with the connection");
}

#[test]
fn many_threads_and_futures_each_have_their_own_answers() {
    let (pool, server) = pool(2);
    let run = |thread: u32| {
        for number in 0..300_u32 {
            let identity = [thread.to_be_bytes(), number.to_be_bytes()].concat();
            let answer = match thread % 2 {
                0 => pool.unary(&call("/t.T/Echo"), &identity),
                _ => pollster::block_on(pool.unary_future(&call("/t.T/Echo"), &identity)),
            };
            assert_eq!(answer.expect("it is answered"), identity);
        }
    };
    thread::scope(|scope| {
        for thread in 0..8 {
            let run = &run;
            scope.spawn(move || run(thread));
        }
    });
    assert_nothing_left(&pool);
    assert_eq!(pool.statistics().counters.succeeded, 2400);
    drop(pool);
    server.join().expect("it ends with the connections");
}

#[test]
fn what_futures_begin_together_is_written_together() {
    let (pool, server) = pool(1);
    pool.unary(&call("/t.T/Echo"), b"x")
        .expect("it is answered");
    for _ in 0..2 {
        let before = pool.statistics().traffic.writes;
        let echoes: Vec<UnaryFuture> = (0..1000_u32)
            .map(|number| pool.unary_future(&call("/t.T/Echo"), &number.to_be_bytes()))
            .collect();
        for (number, echo) in (0..1000_u32).zip(echoes) {
            let answer = pollster::block_on(echo);
            assert_eq!(answer.expect("it is answered"), number.to_be_bytes());
        }
        let writes = pool.statistics().traffic.writes - before;
        assert!(writes < 300, "{writes} writes for 1000 calls");
    }
    assert_nothing_left(&pool);
    drop(pool);
    server.join().expect("it ends with the connection");
}

/// Begins more calls than are written at once, and asks for nothing but whether they have ended.
fn assert_calls_go_without_being_polled(pool: &SharedPool) {
    let mut echoes: Vec<UnaryFuture> = (0..30)
        .map(|number| pool.unary_future(&call("/t.T/Echo"), &[number]))
        .collect();
    let mut context = Context::from_waker(Waker::noop());
    let give_up = Instant::now() + Duration::from_secs(20);
    while !echoes.is_empty() {
        assert!(Instant::now() < give_up, "{} have not ended", echoes.len());
        thread::sleep(Duration::from_millis(5));
        echoes.retain_mut(|echo| match pin!(echo).poll(&mut context) {
            Poll::Pending => true,
            Poll::Ready(answer) => {
                answer.expect("it is answered");
                false
            }
        });
    }
}

#[test]
fn what_was_left_is_written_though_the_leader_waits_for_long() {
    let (pool, server) = pool(1);
    let silent = PoolCall {
        timeout_ns: Some(1_000_000_000),
        ..call("/t.T/Silent")
    };
    for _ in 0..2 {
        // The pool's own thread leads, then one that waits for a call of its own.
        assert_calls_go_without_being_polled(&pool);
        thread::scope(|scope| {
            scope.spawn(|| pool.unary(&silent, b"x").expect_err("nothing is answered"));
            thread::sleep(Duration::from_millis(100));
            assert_calls_go_without_being_polled(&pool);
        });
    }
    assert_nothing_left(&pool);
    drop(pool);
    server.join().expect("it ends with the connection");
}

#[test]
fn futures_that_are_dropped_cancel_their_calls() {
    let (pool, server) = pool(1);
    for _ in 0..2 {
        let silent: Vec<UnaryFuture> = (0..20)
            .map(|_| pool.unary_future(&call("/t.T/Silent"), b"x"))
            .collect();
        let mut one = pin!(pool.unary_future(&call("/t.T/Silent"), b"x"));
        let mut context = Context::from_waker(Waker::noop());
        assert!(matches!(one.as_mut().poll(&mut context), Poll::Pending));
        drop(silent);
        let answer = pollster::block_on(pool.unary_future(&call("/t.T/Echo"), b"y"));
        assert_eq!(answer.expect("others go on"), b"y");
    }
    assert_nothing_left(&pool);
    assert_eq!(pool.statistics().counters.cancelled, 42);
    drop(pool);
    server.join().expect("it ends with the connection");
}

#[test]
fn a_deadline_ends_calls_of_threads_and_futures() {
    let (pool, server) = pool(1);
    // Connected, so that each call begins: one whose time is over before has another error.
    pool.unary(&call("/t.T/Echo"), b"x")
        .expect("it is answered");
    let short = PoolCall {
        timeout_ns: Some(500_000_000),
        ..call("/t.T/Silent")
    };
    for _ in 0..2 {
        let ended = pool.unary(&short, b"x");
        assert!(
            matches!(ended, Err(CallError::DeadlineExceeded)),
            "{ended:?}"
        );
        let ended = pollster::block_on(pool.unary_future(&short, b"x"));
        assert!(
            matches!(ended, Err(CallError::DeadlineExceeded)),
            "{ended:?}"
        );
    }
    let past = PoolCall {
        timeout_ns: Some(0),
        ..short
    };
    let refused = pool.unary(&past, b"x");
    let is_refused = matches!(refused, Err(CallError::NotBegun(NotBegun::DeadlinePassed)));
    assert!(is_refused, "{refused:?}");
    assert_nothing_left(&pool);
    drop(pool);
    server.join().expect("it ends with the connection");
}

#[test]
fn a_status_and_a_missing_message_are_errors() {
    let (pool, server) = pool(1);
    let failed = pool.unary(&call("/t.T/Fail"), b"x");
    let is_it = |error: &CallError| match error {
        CallError::Status(status) => status.code() == Code::ResourceExhausted,
        _ => false,
    };
    assert!(failed.as_ref().is_err_and(is_it), "{failed:?}");
    // The last one goes on for ever.
    for path in ["/t.T/None", "/t.T/Stream", "/t.T/Twice"] {
        let wrong = pool.unary(&call(path), b"xx");
        assert!(
            matches!(wrong, Err(CallError::BadAnswer { .. })),
            "{wrong:?}"
        );
        let wrong = pollster::block_on(pool.unary_future(&call(path), b"xx"));
        assert!(
            matches!(wrong, Err(CallError::BadAnswer { .. })),
            "{wrong:?}"
        );
        assert_nothing_left(&pool);
    }
    drop(pool);
    server.join().expect("it ends with the connection");
}

#[test]
fn closing_ends_what_runs_and_refuses_what_follows() {
    let (pool, server) = pool(1);
    pool.unary(&call("/t.T/Echo"), b"x")
        .expect("it is answered");
    let future = pool.unary_future(&call("/t.T/Silent"), b"x");
    let other = pool.clone();
    let waiting = thread::spawn(move || other.unary(&call("/t.T/Silent"), b"x"));
    while pool.statistics().in_flight < 2 {
        thread::yield_now();
    }
    for _ in 0..2 {
        pool.close(Duration::ZERO);
    }
    assert!(waiting.join().expect("no panic").is_err());
    assert!(pollster::block_on(future).is_err());
    let refused = pool.unary(&call("/t.T/Echo"), b"x");
    let is_refused = matches!(refused, Err(CallError::NotBegun(NotBegun::PoolClosed)));
    assert!(is_refused, "{refused:?}");
    server.join().expect("it ends with the connection");
    assert_nothing_left(&pool);
}
