//! The initial metadata of streams, over all that makes streams: when they come, and when there are
//! none.

mod common;
#[path = "common/pooled.rs"]
mod pooled;
#[path = "common/raw.rs"]
mod raw;
#[path = "common/sharing.rs"]
mod sharing;

use std::sync::{Condvar, Mutex};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use client::typed::{Blobs, Futures, KeyValue};
use client::{
    CallError, CallOptions, Channel, ChannelOptions, Code, Metadata, PoolCall, SharedPool,
    StreamStep,
};
use common::{by_path, serve};
use pooled::of;
use raw::{Raw, serve_raw};
use sharing::{assert_nothing_left, call, pool};

const SOON: Duration = Duration::from_secs(20);
const STREAM: &str = "/t.T/Stream";

fn options() -> CallOptions<'static> {
    CallOptions {
        wants_head: true,
        ..CallOptions::default()
    }
}

fn wanted(path: &str) -> PoolCall<'_> {
    PoolCall {
        wants_head: true,
        ..call(path)
    }
}

/// What the client and the server know of each other.
#[derive(Clone, Copy, PartialEq)]
enum Progress {
    Idle,
    /// The client has read the initial metadata.
    HeadRead,
    /// The server is about to send a message.
    MessageSent,
}

static PROGRESS: Mutex<Progress> = Mutex::new(Progress::Idle);
static CHANGED: Condvar = Condvar::new();

/// Sends the head of an answer, and the rest only when the client has read it.
fn head_first(raw: &mut Raw) {
    raw.settings(&[]);
    let request = raw.wait_for("a request", |frame| frame.stream != 0);
    let head = [
        (":status", "200"),
        ("content-type", "application/grpc"),
        ("x-key", "a value"),
    ];
    raw.block(request.stream, &head, false);
    raw.flush();
    let progress = PROGRESS.lock().expect("no panic");
    let waiting = |progress: &mut Progress| *progress != Progress::HeadRead;
    let (mut progress, _) =
        (CHANGED.wait_timeout_while(progress, SOON, waiting)).expect("no panic");
    *progress = Progress::MessageSent;
    drop(progress);
    // No field at all: a page, or a piece of a blob, that has nothing in it.
    raw.message(request.stream, b"", None, 100);
    raw.trailers(request.stream);
}

/// The client has read the initial metadata: the server has sent nothing else yet.
fn check(metadata: Result<Metadata, CallError>) {
    let metadata = metadata.expect("the server has sent them");
    assert_eq!(metadata.get("x-key"), Some(&b"a value"[..]));
    let mut progress = PROGRESS.lock().expect("no panic");
    assert!(*progress == Progress::Idle, "they came with the message");
    *progress = Progress::HeadRead;
    CHANGED.notify_all();
}

fn check_twice(mut read: impl FnMut() -> Result<Metadata, CallError>) {
    check(read());
    let again = read().expect("they have come");
    assert_eq!(again.get("x-key"), Some(&b"a value"[..]));
}

/// Returns what has come once a task is woken.
fn when<T>(notify: impl Fn(Waker), take: impl Fn() -> Option<T>) -> T {
    let mut has_waited = false;
    pollster::block_on(std::future::poll_fn(|context| {
        let taken = if has_waited { take() } else { None };
        has_waited = true;
        match taken {
            Some(taken) => Poll::Ready(taken),
            None => {
                notify(context.waker().clone());
                Poll::Pending
            }
        }
    }))
}

/// What reads a stream of `head_first`, one after the other.
const READERS: [fn(&mut Channel, &mut SharedPool); 11] = [
    |channel, _| {
        let mut stream = (channel.server_streaming(STREAM, b"", &options())).expect("it begins");
        check_twice(|| stream.initial_metadata());
        assert_eq!(stream.next_message().expect("it comes"), Some(Vec::new()));
        assert_eq!(stream.next_message().expect("it ends"), None);
        let known = stream.info().initial_metadata.get("x-key");
        assert_eq!(known, Some(&b"a value"[..]));
    },
    |channel, _| {
        let mut stream = channel.streaming(STREAM, &options()).expect("it begins");
        check_twice(|| {
            let metadata = stream.poll_initial_metadata(SOON)?;
            Ok(metadata.expect("they come in time"))
        });
        let step = stream.poll(SOON).expect("it goes on");
        assert!(matches!(step, StreamStep::Message(_)), "{step:?}");
    },
    |_, pool| {
        let mut stream = pool.stream(&wanted(STREAM));
        check_twice(|| stream.receiver().receive_initial_metadata());
        assert!(stream.receiver().initial_metadata().is_some());
        assert_eq!(stream.receive().expect("it comes"), Some(Vec::new()));
        assert_eq!(stream.receive().expect("it ends"), None);
    },
    |_, pool| {
        let mut stream = pool.stream(&wanted(STREAM));
        check_twice(|| pollster::block_on(stream.receiver().receive_initial_metadata_future()));
        let message = pollster::block_on(stream.receive_future());
        assert_eq!(message.expect("it comes"), Some(Vec::new()));
    },
    |_, pool| {
        let future = pool.unary_future(&wanted(STREAM), b"");
        check_twice(|| {
            Ok(when(
                |waker| future.notify_head(waker),
                || future.initial_metadata(),
            ))
        });
        assert_eq!(pollster::block_on(future).expect("it comes"), b"");
    },
    |_, pool| {
        let mut stream = pool.stream(&wanted(STREAM));
        let control = stream.control();
        check_twice(|| {
            when(
                |waker| control.notify_head(waker),
                || control.initial_metadata(),
            )
        });
        assert_eq!(stream.receive().expect("it comes"), Some(Vec::new()));
    },
    |channel, _| {
        let mut kv = KeyValue::new(channel);
        let mut pages = kv.scan().send().expect("it begins");
        check_twice(|| pages.initial_metadata());
        pages.next_page().expect("a page").expect("a page");
    },
    |_, pool| {
        let mut kv = KeyValue::new(pool);
        let mut pages = kv.scan().wants_head().send().expect("it begins");
        check_twice(|| pages.initial_metadata());
        pages.next_page().expect("a page").expect("a page");
    },
    |_, pool| {
        let mut futures = Futures::new(pool);
        let mut kv = KeyValue::new(&mut futures);
        let mut pages = kv.scan().wants_head().send().expect("it begins");
        check_twice(|| pollster::block_on(pages.initial_metadata()));
        (pollster::block_on(pages.next_page()).expect("a page")).expect("a page");
    },
    |_, pool| {
        let mut blobs = Blobs::new(pool);
        let download = blobs.download("b").wants_head().send();
        let mut download = download.expect("it begins");
        check_twice(|| download.initial_metadata());
    },
    |_, pool| {
        let mut futures = Futures::new(pool);
        let mut blobs = Blobs::new(&mut futures);
        let download = blobs.download("b").wants_head().send();
        let mut download = download.expect("it begins");
        check_twice(|| pollster::block_on(download.initial_metadata()));
    },
];

#[test]
fn initial_metadata_are_read_before_the_first_message_comes() {
    for (number, read) in READERS.into_iter().enumerate() {
        *PROGRESS.lock().expect("no panic") = Progress::Idle;
        // One for the channel, one for the pool; the one that is not used says nothing.
        let (for_channel, one) = serve_raw(vec![head_first]);
        let (for_pool, two) = serve_raw(vec![head_first]);
        let channel = Channel::connect(&for_channel, &ChannelOptions::default());
        let mut channel = channel.expect("it listens");
        let pool = SharedPool::new(&[for_pool], of(1), 7);
        let mut pool = pool.expect("the address is known");
        println!("reader {number}");
        read(&mut channel, &mut pool);
        // The server of the other one is waiting for its request.
        drop((one, two));
    }
}

#[test]
fn a_poll_for_initial_metadata_ends_in_time() {
    let (mut channel, server) = serve(by_path);
    let mut stream = channel.streaming("/t.T/Silent", &options()).expect("room");
    for wait in [Duration::ZERO, Duration::from_millis(1)] {
        let polled = stream.poll_initial_metadata(wait).expect("it goes on");
        assert!(polled.is_none());
    }
    drop(stream);
    drop(channel);
    server.join().expect("it ends with the connection");
}

fn is_failure<T>(result: &Result<T, CallError>) -> bool {
    matches!(result, Err(CallError::Status(status)) if status.code() == Code::ResourceExhausted)
}

#[test]
fn a_status_alone_has_no_initial_metadata_and_is_not_lost() {
    let (mut channel, server) = serve(by_path);
    for _ in 0..2 {
        let mut stream = (channel.server_streaming("/t.T/None", b"", &options())).expect("room");
        let metadata = stream.initial_metadata().expect("it ended with OK");
        assert_eq!(metadata.iter().count(), 0);
        assert_eq!(stream.next_message().expect("it ended with OK"), None);
        drop(stream);
        let mut stream = (channel.server_streaming("/t.T/Fail", b"", &options())).expect("room");
        assert!(is_failure(&stream.initial_metadata()));
        assert!(is_failure(&stream.initial_metadata()));
        assert!(is_failure(&stream.next_message()));
        drop(stream);
        let mut stream = channel.streaming("/t.T/Fail", &options()).expect("room");
        stream.send(b"x");
        assert!(is_failure(&stream.poll_initial_metadata(SOON)));
        assert!(is_failure(&stream.poll_initial_metadata(SOON)));
        assert!(is_failure(&stream.poll(SOON)));
    }
    drop(channel);
    server.join().expect("it ends with the connection");
}

#[test]
fn over_a_pool_a_status_alone_has_no_initial_metadata_either() {
    let (pool, server) = pool(1);
    for _ in 0..2 {
        for wants_head in [true, false] {
            let open = |path| {
                let call = PoolCall {
                    wants_head,
                    ..call(path)
                };
                pool.server_stream(&call, b"x").expect("it is small")
            };
            let mut stream = open("/t.T/None");
            let metadata = stream.receiver().receive_initial_metadata();
            assert_eq!(metadata.expect("it ended with OK").iter().count(), 0);
            assert_eq!(stream.receive().expect("it ended with OK"), None);
            let mut stream = open("/t.T/Fail");
            let metadata = stream.receiver().receive_initial_metadata();
            // Without them there is nothing to wait for.
            assert!(is_failure(&metadata) || !wants_head);
            let metadata = stream.receiver().receive_initial_metadata_future();
            let metadata = pollster::block_on(metadata);
            assert!(is_failure(&metadata) || !wants_head);
            assert!(is_failure(&stream.receive()));
        }
    }
    assert_nothing_left(&pool);
    drop(pool);
    server.join().expect("it ends with the connection");
}

/// Two calls, each with its own head, which comes late.
fn one_after_the_other(raw: &mut Raw) {
    raw.settings(&[]);
    for value in ["one", "two"] {
        let stream = raw.request();
        std::thread::sleep(Duration::from_millis(50));
        let head = [
            (":status", "200"),
            ("content-type", "application/grpc"),
            ("x-key", value),
        ];
        raw.block(stream, &head, false);
        raw.message(stream, b"x", None, 100);
        raw.trailers(stream);
        raw.flush();
    }
}

#[test]
fn each_call_of_a_channel_has_its_own() {
    let (address, server) = serve_raw(vec![one_after_the_other]);
    let mut channel = raw::connect(&address);
    for value in ["one", "two"] {
        let mut stream = (channel.server_streaming(STREAM, b"", &options())).expect("it begins");
        let metadata = stream.initial_metadata().expect("they come");
        assert_eq!(metadata.get("x-key"), Some(value.as_bytes()));
        assert!(stream.next_message().expect("it comes").is_some());
        assert_eq!(stream.next_message().expect("it ends"), None);
    }
    drop(channel);
    server.join().expect("it ends with the connection");
}

#[test]
fn who_waits_for_the_head_of_a_call_that_ends_without_one_is_woken() {
    let (pool, server) = pool(1);
    for _ in 0..2 {
        for path in ["/t.T/Reset", "/t.T/Fail"] {
            let future = pool.unary_future(&wanted(path), b"x");
            let head = when(
                |waker| future.notify_head(waker),
                || future.initial_metadata(),
            );
            assert!(head.is_empty());
            // At once from then on.
            let again = when(
                |waker| future.notify_head(waker),
                || future.initial_metadata(),
            );
            assert!(again.is_empty());
            assert!(pollster::block_on(future).is_err());
            let stream = pool.stream(&wanted(path));
            let control = stream.control();
            let mut stream = stream;
            stream.send(b"x").expect("it goes on");
            let head = when(
                |waker| control.notify_head(waker),
                || control.initial_metadata(),
            );
            assert!(head.is_err());
        }
        let stream = pool.stream(&wanted("/t.T/Silent"));
        let control = stream.control();
        let cancelled = control.clone();
        let waiting = thread::spawn(move || {
            when(
                |waker| control.notify_head(waker),
                || control.initial_metadata(),
            )
        });
        thread::sleep(Duration::from_millis(20));
        cancelled.cancel();
        assert!(waiting.join().expect("no panic").is_err());
        drop(stream);
    }
    assert_nothing_left(&pool);
    drop(pool);
    server.join().expect("it ends with the connection");
}
