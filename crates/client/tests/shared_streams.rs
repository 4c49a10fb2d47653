//! Streams of a shared pool over real sockets: both directions, backpressure, and what ends them.

mod common;
#[path = "common/pooled.rs"]
mod pooled;
#[path = "common/raw.rs"]
mod raw;
#[path = "common/sharing.rs"]
mod sharing;

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use client::{CallError, Code, NotBegun, PoolCall, PoolStream, SendError, SharedPool, limits};
use pooled::of;
use raw::{FIRST_WINDOW, Script, serve_raw};
use sharing::{assert_nothing_left, call, pool};
use testkit::frames::message;
use wire::http2::frame::kind;

const SECOND: Duration = Duration::from_secs(1);

fn is_status(result: &Result<Option<Vec<u8>>, CallError>, code: Code) -> bool {
    matches!(result, Err(CallError::Status(status)) if status.code() == code)
}

/// Waits until this is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + 20 * SECOND;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn messages_of_a_server_come_in_order_and_then_the_end() {
    let (pool, server) = pool(1);
    for _ in 0..2 {
        let mut stream = pool.server_stream(&call("/t.T/Stream"), &[0; 200]);
        let stream = stream.as_mut().expect("it is small");
        for number in 0..200_u8 {
            let message = stream.receive().expect("it goes on").expect("a message");
            assert_eq!(message, [number; 1000]);
        }
        for _ in 0..2 {
            assert_eq!(stream.receive().expect("it ends with OK"), None);
        }
        assert!(
            stream
                .receiver()
                .status()
                .is_some_and(|status| status.is_ok())
        );
        assert_eq!(stream.send(b"more"), Err(SendError::Ended));
    }
    assert_nothing_left(&pool);
    drop(pool);
    server.join().expect("it ends with the connection");
}

#[test]
fn a_call_that_streams_to_the_server_has_exactly_one_message_as_its_answer() {
    let (pool, server) = pool(1);
    for _ in 0..2 {
        for messages in 0..3 {
            let open = || {
                let mut stream = pool.stream(&call("/t.T/Chat"));
                for _ in 0..messages {
                    stream.send(b"x").expect("it goes on");
                }
                stream
            };
            let answers = [
                open().into_answer(),
                pollster::block_on(open().into_answer_future()),
            ];
            for answer in answers {
                match messages {
                    1 => assert_eq!(answer.expect("one message"), b"x"),
                    _ => assert!(matches!(answer, Err(CallError::BadAnswer { .. }))),
                }
            }
        }
    }
    assert_nothing_left(&pool);
    drop(pool);
    server.join().expect("it ends with the connection");
}

#[test]
fn one_thread_sends_while_another_receives() {
    let (pool, server) = pool(1);
    for _ in 0..2 {
        let (mut sender, mut receiver) = pool.stream(&call("/t.T/Chat")).split();
        let sending = thread::spawn(move || {
            for number in 0..3_000_u32 {
                sender.send(&number.to_be_bytes().repeat(250))?;
            }
            sender.finish();
            Ok::<(), SendError>(())
        });
        let mut message = Vec::new();
        for number in 0..3_000_u32 {
            assert!(receiver.receive_into(&mut message).expect("it goes on"));
            assert_eq!(message, number.to_be_bytes().repeat(250));
        }
        assert_eq!(receiver.receive().expect("it ends with OK"), None);
        sending.join().expect("no panic").expect("all were sent");
    }
    assert_nothing_left(&pool);
    drop(pool);
    server.join().expect("it ends with the connection");
}

/// Sends until there has been no room for a while, and returns the bytes sent, prefixes included.
fn fill(stream: &mut PoolStream) -> usize {
    let mut bytes = 0;
    let mut last = Instant::now();
    while last.elapsed() < SECOND / 5 {
        match stream.try_send(&[7; 1_000]) {
            Ok(()) => {
                bytes += message(&[7; 1_000]).len();
                last = Instant::now();
            }
            Err(error) => {
                assert_eq!(error, SendError::NotWritable, "{:?}", stream.receive());
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
    bytes
}

static OPENED: AtomicUsize = AtomicUsize::new(0);

/// A server that takes nothing beyond the first window until it is told to.
const SHUT: Script = |raw| {
    raw.settings(&[]);
    let mut bytes = 0;
    let mut stream = 0;
    let mut is_over = false;
    while bytes < FIRST_WINDOW {
        let frame = raw.wait_for("DATA", |frame| frame.kind == kind::DATA);
        (bytes, stream) = (bytes + frame.payload.len(), frame.stream);
    }
    let turn = OPENED.load(Ordering::SeqCst) | 1;
    until("the test says so", || OPENED.load(Ordering::SeqCst) >= turn);
    while !is_over {
        raw.open_window(stream, 50_000);
        raw.open_window(0, 50_000);
        let frame = raw.wait_for("DATA", |frame| frame.kind == kind::DATA);
        (bytes, is_over) = (bytes + frame.payload.len(), frame.ends_stream());
    }
    raw.answer(stream, &bytes.to_be_bytes());
};

#[test]
fn a_sender_waits_while_its_server_takes_nothing() {
    let (address, server) = serve_raw(vec![SHUT, SHUT]);
    let pool = SharedPool::new(&[address], of(1), 7).expect("the address is known");
    for round in 0..2 {
        // The server hangs up after its answer.
        until("it is connected", || {
            pool.statistics().counters.opened == round + 1
        });
        let mut stream = pool.stream(&call("/t.T/Count"));
        let mut bytes = fill(&mut stream);
        let bound = FIRST_WINDOW + (256 << 10) + limits::SHARED_STREAM_SEND_BYTES + 4_000;
        assert!(bytes <= bound, "{bytes} bytes are more than {bound}");
        assert!(
            bytes > FIRST_WINDOW + limits::SHARED_STREAM_SEND_BYTES,
            "{bytes}"
        );
        let mut context = Context::from_waker(Waker::noop());
        {
            let mut future = pin!(stream.send_future(&[7; 1_000]));
            assert_eq!(future.as_mut().poll(&mut context), Poll::Pending);
        }
        let opening = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            OPENED.store(2 * round as usize + 1, Ordering::SeqCst);
        });
        for number in 0..500 {
            let sent = match number % 2 {
                0 => stream.send(&[7; 1_000]),
                _ => pollster::block_on(stream.send_future(&[7; 1_000])),
            };
            sent.expect("it goes on");
            bytes += 1_005;
        }
        opening.join().expect("no panic");
        let answer = stream.into_answer().expect("it is answered");
        OPENED.store(2 * round as usize + 2, Ordering::SeqCst);
        assert_eq!(answer, bytes.to_be_bytes());
        assert_nothing_left(&pool);
    }
    drop(pool);
    server.join().expect("it ends with the connections");
}

#[test]
fn a_server_waits_while_its_caller_receives_nothing() {
    let (pool, server) = pool(1);
    for round in 0..2 {
        let before = pool.statistics().traffic.bytes_in;
        let mut stream = pool.server_stream(&call("/t.T/Stream"), &[0; 5_000]);
        let stream = stream.as_mut().expect("it is small");
        let mut came = 0;
        // Other calls are not held up, and drive the pool.
        for _ in 0..200 {
            pool.unary(&call("/t.T/Echo"), b"x")
                .expect("it is answered");
            came = pool.statistics().traffic.bytes_in - before;
        }
        assert!(came > 60_000, "{came}");
        assert!(came < 100_000, "{came}");
        for number in 0..5_000_u32 {
            let message = match (number + round) % 2 {
                0 => stream.receive(),
                _ => pollster::block_on(stream.receive_future()),
            };
            let message = message.expect("it goes on").expect("a message");
            assert_eq!(message, [number as u8; 1000]);
        }
        assert_eq!(stream.receive().expect("it ends with OK"), None);
    }
    assert_nothing_left(&pool);
    drop(pool);
    server.join().expect("it ends with the connection");
}

#[test]
fn what_a_caller_is_slow_to_take_is_bounded_by_a_window() {
    let (pool, server) = pool(1);
    for _ in 0..2 {
        let before = pool.statistics().traffic.bytes_in;
        let mut stream = pool.server_stream(&call("/t.T/Stream"), &vec![0; 60_000]);
        let stream = stream.as_mut().expect("it is small");
        let mut most = 0;
        for taken in 0..60_000_u64 {
            stream.receive().expect("it goes on").expect("a message");
            if taken % 500 == 0 {
                pool.unary(&call("/t.T/Echo"), b"x")
                    .expect("it is answered");
                let came = pool.statistics().traffic.bytes_in - before;
                most = most.max(came.saturating_sub(taken * 1_000));
            }
        }
        let bound = limits::SHARED_STREAM_RECEIVE_BYTES as u64 + (8 << 20) + 500_000;
        assert!(most < bound, "{most} bytes are more than {bound}");
        assert_eq!(stream.receive().expect("it ends with OK"), None);
    }
    assert_nothing_left(&pool);
    drop(pool);
    server.join().expect("it ends with the connection");
}

#[test]
fn a_stream_that_is_dropped_is_cancelled() {
    let (pool, server) = pool(1);
    for round in 1..3 {
        let stream = pool.stream(&call("/t.T/Silent"));
        let (mut sender, receiver) = pool.stream(&call("/t.T/Silent")).split();
        let (unfinished, mut other) = pool.stream(&call("/t.T/Silent")).split();
        let mut polled = pool.stream(&call("/t.T/Silent"));
        let mut context = Context::from_waker(Waker::noop());
        assert!(
            pin!(polled.receive_future())
                .poll(&mut context)
                .is_pending()
        );
        let waiting = thread::spawn(move || other.receive());
        sender.send(b"x").expect("it goes on");
        drop((stream, receiver, polled));
        assert_eq!(sender.send(b"x"), Err(SendError::Ended));
        drop(unfinished);
        assert!(is_status(
            &waiting.join().expect("no panic"),
            Code::Cancelled
        ));
        let mut asked = pool.stream(&call("/t.T/Silent"));
        asked.cancel();
        for _ in 0..2 {
            assert!(is_status(&asked.receive(), Code::Cancelled));
        }
        assert_nothing_left(&pool);
        assert_eq!(pool.statistics().counters.cancelled, 5 * round);
    }
    drop(pool);
    server.join().expect("it ends with the connection");
}

/// The thread that waits in the kernel is woken when another one ends what it waits for.
#[test]
fn a_receiver_in_the_kernel_hears_at_once_that_its_sender_is_gone() {
    let (pool, server) = pool(1);
    for _ in 0..3 {
        let (sender, mut receiver) = pool.stream(&call("/t.T/Silent")).split();
        let waiting = thread::spawn(move || {
            let received = receiver.receive();
            (received, Instant::now())
        });
        thread::sleep(Duration::from_millis(100));
        let dropped = Instant::now();
        drop(sender);
        let (received, reported) = waiting.join().expect("no panic");
        assert!(is_status(&received, Code::Cancelled));
        let took = reported.saturating_duration_since(dropped);
        assert!(took < Duration::from_millis(300), "{took:?}");
    }
    assert_nothing_left(&pool);
    drop(pool);
    server.join().expect("it ends with the connection");
}

#[test]
fn a_stream_that_has_ended_is_not_cancelled_by_its_drop() {
    let (pool, server) = pool(1);
    for _ in 0..2 {
        let mut stream = pool.stream(&call("/t.T/Echo"));
        stream.send(b"x").expect("it goes on");
        assert_eq!(
            stream.receive().expect("it goes on").as_deref(),
            Some(&b"x"[..])
        );
        assert_eq!(stream.receive().expect("it ends with OK"), None);
    }
    assert_nothing_left(&pool);
    let counters = pool.statistics().counters;
    assert_eq!((counters.succeeded, counters.cancelled), (2, 0));
    drop(pool);
    server.join().expect("it ends with the connection");
}

#[test]
fn a_server_that_ends_early_ends_the_sending_too() {
    let (pool, server) = pool(1);
    for _ in 0..2 {
        let (mut sender, mut receiver) = pool.stream(&call("/t.T/Fail")).split();
        let sending = thread::spawn(move || {
            loop {
                if let Err(error) = sender.send(&[0; 1_000]) {
                    return error;
                }
            }
        });
        for _ in 0..2 {
            assert!(is_status(&receiver.receive(), Code::ResourceExhausted));
        }
        assert_eq!(sending.join().expect("no panic"), SendError::Ended);
        assert_eq!(receiver.status(), None);
    }
    assert_nothing_left(&pool);
    drop(pool);
    server.join().expect("it ends with the connection");
}

#[test]
fn a_deadline_ends_a_stream_for_threads_and_futures() {
    let (pool, server) = pool(1);
    let short = PoolCall {
        timeout_ns: Some(20_000_000),
        ..call("/t.T/Silent")
    };
    for _ in 0..2 {
        let ended = pool.stream(&short).receive();
        assert!(
            matches!(ended, Err(CallError::DeadlineExceeded)),
            "{ended:?}"
        );
        let mut stream = pool.stream(&short);
        let ended = pollster::block_on(stream.receive_future());
        assert!(
            matches!(ended, Err(CallError::DeadlineExceeded)),
            "{ended:?}"
        );
        assert_eq!(stream.send(b"x"), Err(SendError::Ended));
    }
    assert_nothing_left(&pool);
    drop(pool);
    server.join().expect("it ends with the connection");
}

#[test]
fn a_connection_that_is_lost_ends_its_streams_after_what_came() {
    let script: Script = |raw| {
        let stream = raw.begin();
        raw.headers(stream);
        raw.message(stream, b"first", None, 16_384);
    };
    let (address, server) = serve_raw(vec![script; 2]);
    let pool = SharedPool::new(&[address], of(1), 7).expect("the address is known");
    for round in 0..2 {
        // The connection was of no use to any call: the next one waits for a pause.
        let patient = PoolCall {
            waits_for_ready: true,
            ..call("/t.T/Any")
        };
        let mut stream = pool.server_stream(&patient, b"x");
        let stream = stream.as_mut().expect("it is small");
        let mut receive = || match round {
            0 => stream.receive(),
            _ => pollster::block_on(stream.receive_future()),
        };
        assert_eq!(receive().expect("it came").as_deref(), Some(&b"first"[..]));
        for _ in 0..2 {
            let lost = receive();
            assert!(
                matches!(lost, Err(CallError::ConnectionLost { .. })),
                "{lost:?}"
            );
        }
    }
    assert_nothing_left(&pool);
    drop(pool);
    server.join().expect("it ends with the connections");
}

#[test]
fn closing_the_pool_ends_its_streams() {
    let (pool, server) = pool(1);
    let mut stream = pool.stream(&call("/t.T/Silent"));
    stream.send(b"x").expect("it goes on");
    until("it runs", || pool.statistics().in_flight == 1);
    let waiting = thread::spawn(move || (stream.receive(), stream.send(b"y")));
    for _ in 0..2 {
        pool.close(Duration::ZERO);
        let refused = pool.stream(&call("/t.T/Chat")).receive();
        let is_refused = matches!(refused, Err(CallError::NotBegun(NotBegun::PoolClosed)));
        assert!(is_refused, "{refused:?}");
    }
    let (received, sent) = waiting.join().expect("no panic");
    assert!(
        matches!(received, Err(CallError::PoolClosed)),
        "{received:?}"
    );
    assert_eq!(sent, Err(SendError::Ended));
    server.join().expect("it ends with the connection");
    assert_nothing_left(&pool);
}

#[test]
fn a_message_over_the_limit_is_refused_before_anything_is_sent() {
    let (address, server) = common::serve_all(common::by_path, 1);
    let mut options = of(1);
    options.pool.max_request_bytes = 100;
    let pool = SharedPool::new(&[address], options, 7).expect("the address is known");
    let refused = SendError::TooLarge {
        bytes: 101,
        limit_bytes: 100,
    };
    for _ in 0..2 {
        let large = [0; 101];
        let begun = pool.server_stream(&call("/t.T/Stream"), &large);
        assert_eq!(begun.err(), Some(refused));
        let mut stream = pool.stream(&call("/t.T/Chat"));
        assert_eq!(stream.send(&large), Err(refused));
        assert_eq!(stream.try_send(&large), Err(refused));
        assert_eq!(pollster::block_on(stream.send_future(&large)), Err(refused));
        stream.send(&large[..100]).expect("it is at the limit");
        assert_eq!(stream.into_answer().expect("it is answered"), [0; 100]);
    }
    assert_nothing_left(&pool);
    drop(pool);
    server.join().expect("it ends with the connection");
}

/// A server that opens its windows late, and once.
const LATE: Script = |raw| {
    raw.settings(&[]);
    let (mut bytes, mut stream) = (0, 0);
    while bytes < FIRST_WINDOW {
        let frame = raw.wait_for("DATA", |frame| frame.kind == kind::DATA);
        (bytes, stream) = (bytes + frame.payload.len(), frame.stream);
    }
    thread::sleep(SECOND / 5);
    let opened = Instant::now();
    raw.open_window(stream, 1_000_000);
    raw.open_window(0, 1_000_000);
    raw.request();
    let took = opened.elapsed();
    raw.answer(stream, &(took.as_millis() as u64).to_be_bytes());
};

#[test]
fn what_waits_for_a_window_goes_on_while_its_caller_does_something_else() {
    let (address, server) = serve_raw(vec![LATE; 2]);
    let pool = SharedPool::new(&[address], of(1), 7).expect("the address is known");
    for round in 0..2 {
        until("it is connected", || {
            pool.statistics().counters.opened == round + 1
        });
        let mut stream = pool.stream(&call("/t.T/Any"));
        for _ in 0..150 {
            stream.send(&[7; 1_000]).expect("it fits");
        }
        stream.finish();
        // Nobody waits in the kernel, and nobody looks.
        thread::sleep(2 * SECOND);
        let took = stream.into_answer().expect("it is answered");
        let took_ms = u64::from_be_bytes(took.try_into().expect("a number"));
        assert!(took_ms < 400, "{took_ms} ms");
    }
    assert_nothing_left(&pool);
    drop(pool);
    server.join().expect("it ends with the connections");
}

/// What a thread hands over and then does not wait for goes out nevertheless: also where the
/// connection is not there yet.
#[test]
fn what_nobody_waits_for_is_sent() {
    let (pool, server) = pool(1);
    for number in 1..3 {
        let mut stream = pool.server_stream(&call("/t.T/Stream"), &[0; 3]);
        let stream = stream.as_mut().expect("it is small");
        // Other calls would drive the pool: only look.
        until("it runs", || pool.statistics().counters.begun == number);
        until("it has gone out", || pool.statistics().traffic.writes > 0);
        let begun = Instant::now();
        for _ in 0..3 {
            stream.receive().expect("it goes on").expect("a message");
        }
        assert!(begun.elapsed() < SECOND);
        assert_eq!(stream.receive().expect("it ends with OK"), None);
    }
    assert_nothing_left(&pool);
    drop(pool);
    server.join().expect("it ends with the connection");
}
