//! Who is woken, and what waiting costs.

mod common;
#[path = "common/pooled.rs"]
mod pooled;
#[path = "common/raw.rs"]
mod raw;
#[path = "common/sharing.rs"]
mod sharing;

use std::future::Future;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use client::{CallError, NotBegun, PoolCall, SendError, SharedPool};
use common::{by_path, listen, serve_on};
use pooled::of;
use raw::{FIRST_WINDOW, Script, serve_raw};
use sharing::{call, pool};
use wire::http2::frame::kind;

/// Runs what may hang on a thread of its own.
fn in_time<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, waiting) = mpsc::channel();
    thread::spawn(move || done.send(work()));
    let result = waiting.recv_timeout(Duration::from_secs(20));
    result.unwrap_or_else(|_| panic!("{what}"))
}

fn short(path: &str) -> PoolCall<'_> {
    PoolCall {
        timeout_ns: Some(300_000_000),
        ..call(path)
    }
}

/// As with a task that moves from one executor to another.
#[test]
fn a_future_wakes_who_has_polled_it_last() {
    let (pool, server) = pool(1);
    for _ in 0..2 {
        let mut unary = pool.unary_future(&short("/t.T/Silent"), b"x");
        let mut first = Context::from_waker(Waker::noop());
        assert!(matches!(
            Pin::new(&mut unary).poll(&mut first),
            Poll::Pending
        ));
        let ended = in_time("the first waker was woken", || pollster::block_on(unary));
        assert!(ended.is_err());
        let mut stream = pool.stream(&short("/t.T/Silent"));
        assert!(stream.receiver().poll_receive(&mut first).is_pending());
        let ended = in_time("the first waker was woken", move || {
            pollster::block_on(stream.receive_future())
        });
        assert!(ended.is_err());
    }
    drop(pool);
    server.join().expect("it ends with the connection");
}

/// How long this thread has run on a processor.
/// Runs something when a task is woken, as an executor does that polls at once.
struct AtWake<F: Fn() + Send + Sync>(F);

impl<F: Fn() + Send + Sync> Wake for AtWake<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn at_wake(work: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(AtWake(work)))
}

#[test]
fn a_waker_that_panics_stops_no_other_call() {
    let (pool, server) = pool(1);
    for _ in 0..2 {
        let woken = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&woken);
        let waker = at_wake(move || {
            counted.fetch_add(1, Ordering::SeqCst);
            panic!("as a task that is woken after its executor has ended");
        });
        let mut context = Context::from_waker(&waker);
        let mut unary = pool.unary_future(&call("/t.T/Echo"), b"x");
        // It may have ended before it is polled.
        let is_woken = Pin::new(&mut unary).poll(&mut context).is_pending();
        let other = pool.unary_future(&call("/t.T/Echo"), b"other");
        let answer = in_time("the pool goes on", || pollster::block_on(other));
        assert_eq!(answer.expect("it is served"), b"other");
        let waits = Instant::now() + Duration::from_secs(20);
        while is_woken && woken.load(Ordering::SeqCst) == 0 {
            assert!(Instant::now() < waits, "it is not woken");
            thread::sleep(Duration::from_millis(1));
        }
        let late = pool.unary_future(&short("/t.T/Silent"), b"x");
        let ended = in_time("deadlines are kept", || pollster::block_on(late));
        assert!(matches!(ended, Err(CallError::DeadlineExceeded)));
    }
    drop(pool);
    server.join().expect("it ends with the connection");
}

/// It runs on the thread that works for all, so that nobody would work for it.
#[test]
fn a_waker_cannot_wait_for_a_call() {
    let (pool, server) = pool(1);
    let (told, says) = mpsc::channel();
    for _ in 0..2 {
        let (own, told) = (pool.clone(), told.clone());
        let waker = at_wake(move || {
            let unary = own.unary(&call("/t.T/Echo"), b"x").map(drop);
            let mut stream = own.stream(&PoolCall {
                wants_head: true,
                ..call("/t.T/Silent")
            });
            let metadata = stream.receiver().receive_initial_metadata().map(drop);
            let received = stream.receive().map(drop);
            let full = (0..).find_map(|_| stream.send(&[0; 1 << 16]).err());
            let _ = told.send(([unary, metadata, received], full));
        });
        let mut context = Context::from_waker(&waker);
        let mut future = pool.unary_future(&short("/t.T/Silent"), b"x");
        assert!(Pin::new(&mut future).poll(&mut context).is_pending());
        let (refused, full) = says
            .recv_timeout(Duration::from_secs(20))
            .expect("the waker does not wait");
        for refused in refused {
            let is_refused = matches!(refused, Err(CallError::NotBegun(NotBegun::InWaker)));
            assert!(is_refused, "{refused:?}");
        }
        assert_eq!(full, Some(SendError::NotWritable));
        // Whoever is no waker waits.
        let answer = pool.unary(&call("/t.T/Echo"), b"after");
        assert_eq!(answer.expect("it is served"), b"after");
    }
    drop(pool);
    server.join().expect("it ends with the connection");
}

fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    let first = text.split_whitespace().next().expect("a number");
    Duration::from_nanos(first.parse().expect("a number"))
}

#[test]
fn a_thread_that_waits_again_for_the_same_stream_sleeps() {
    let (pool, server) = pool(1);
    let mut stream = pool.stream(&PoolCall {
        timeout_ns: Some(1_000_000_000),
        ..call("/t.T/Chat")
    });
    for _ in 0..2 {
        stream.send(b"x").expect("it goes on");
        assert_eq!(stream.receive().expect("it goes on"), Some(b"x".to_vec()));
    }
    let before = processor_time();
    stream.receive().expect_err("its time is over");
    let took = processor_time() - before;
    assert!(took < Duration::from_millis(200), "{took:?}");
    drop(stream);
    drop(pool);
    server.join().expect("it ends with the connection");
}

const LATE: Script = |raw| {
    raw.settings(&[]);
    for _ in 0..4 {
        let stream = raw.request();
        thread::sleep(Duration::from_millis(250));
        raw.answer(stream, b"late");
        raw.flush();
    }
};

/// The pool's thread may have gone to sleep for a second before anything is waited for.
#[test]
fn a_future_of_a_stream_that_others_have_begun_is_driven_at_once() {
    let (address, server) = serve_raw(vec![LATE]);
    let pool = SharedPool::new(&[address], of(1), 7).expect("the address is known");
    for _ in 0..4 {
        let begun = Instant::now();
        let mut stream = pool.server_stream(&call("/t.T/Late"), b"x").expect("small");
        thread::sleep(Duration::from_millis(100));
        let message = pollster::block_on(stream.receive_future());
        assert_eq!(message.expect("it comes"), Some(b"late".to_vec()));
        let took = begun.elapsed();
        assert!(took < Duration::from_millis(450), "{took:?}");
        pollster::block_on(stream.receive_future()).expect("the end");
    }
    drop(pool);
    server.join().expect("it ends with the connection");
}

/// Takes no more than the first window for a while, the first time for long, and answers how long
/// it took from then on until more came, in microseconds.
const SHUT: Script = |raw| {
    raw.settings(&[]);
    for round in 0..6 {
        let (mut bytes, mut stream) = (0, 0);
        while bytes < FIRST_WINDOW {
            let frame = raw.wait_for("DATA", |frame| frame.kind == kind::DATA);
            (bytes, stream) = (bytes + frame.payload.len(), frame.stream);
        }
        thread::sleep(Duration::from_millis(if round == 0 { 600 } else { 20 }));
        raw.open_window(stream, 50_000);
        raw.open_window(0, MESSAGE_BYTES as u32 + 5);
        raw.flush();
        let begun = Instant::now();
        let frame = raw.wait_for("DATA", |frame| frame.kind == kind::DATA);
        let took_us = begun.elapsed().as_micros() as u64;
        if !frame.ends_stream() {
            raw.request();
        }
        raw.answer(stream, &took_us.to_be_bytes());
        raw.flush();
    }
};

/// The first window, and a little more.
const MESSAGE_BYTES: usize = 70_000;

#[test]
fn a_stream_for_which_nobody_waits_is_looked_after_soon_also_the_second_time() {
    let (address, server) = serve_raw(vec![SHUT]);
    let pool = SharedPool::new(&[address], of(1), 7).expect("the address is known");
    let mut least_us = u64::MAX;
    for round in 0..6 {
        let mut stream = pool.stream(&call("/t.T/Late"));
        stream.send(&[7; MESSAGE_BYTES]).expect("there is room");
        stream.finish();
        thread::sleep(Duration::from_millis(if round == 0 { 900 } else { 300 }));
        let answer = stream.into_answer().expect("it is answered");
        let took_us = u64::from_be_bytes(answer.try_into().expect("a number"));
        if round > 0 {
            least_us = least_us.min(took_us);
        }
    }
    assert!(least_us < 50_000, "{least_us} us");
    drop(pool);
    server.join().expect("it ends with the connection");
}

/// While no address can be reached each call is refused at once, so that no caller waits in the
/// kernel. The pauses are of the caller: a slow machine makes no fewer calls between two steps.
#[test]
fn a_server_that_is_back_is_found_though_no_call_waits() {
    for _ in 0..2 {
        let (address, listener) = listen();
        let port = listener.local_addr().expect("it is bound").port();
        drop(listener);
        let pool = SharedPool::new(&[address], of(1), 7).expect("the address is known");
        let mut refusals = 0;
        let first = pool.unary(&call("/t.T/Echo"), b"x").map(drop);
        let is_refused = matches!(
            first,
            Err(CallError::NotBegun(NotBegun::Unreachable { .. }))
        );
        assert!(is_refused, "{first:?}");
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("it is free again");
        let server = serve_on(listener, by_path, 1);
        while pool.unary(&call("/t.T/Echo"), b"x").is_err() {
            refusals += 1;
            assert!(refusals < 80, "of a pause of 100 ms and two steps");
            thread::sleep(Duration::from_millis(10));
        }
        drop(pool);
        server.join().expect("it ends with the connection");
    }
}

/// The server ends each connection after one call, and nobody waits in the kernel when it does.
#[test]
fn a_call_after_a_pause_is_not_sent_on_a_connection_that_has_ended() {
    let once: Script = |raw| {
        let stream = raw.begin();
        raw.answer(stream, b"x");
    };
    let (address, server) = serve_raw(vec![once; 6]);
    let pool = SharedPool::new(&[address], of(1), 7).expect("the address is known");
    for number in 0..6 {
        let call = call("/t.T/Echo");
        let answer = match number % 3 {
            0 => pool.unary(&call, b""),
            1 => pollster::block_on(pool.unary_future(&call, b"")),
            _ => (pool.server_stream(&call, b"").expect("it can be sent")).into_answer(),
        };
        assert_eq!(answer.expect("it is answered"), b"x", "call {number}");
        // Less than after which an idle pool looks by itself, more than what a look is put off.
        thread::sleep(Duration::from_millis(20));
    }
    drop(pool);
    server.join().expect("it ends with the connections");
}
