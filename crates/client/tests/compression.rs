//! gzip over a pool: message by message, as it was when a call is made again, and within the bound
//! of what is received.

mod common;
#[path = "common/pooled.rs"]
mod pooled;
#[path = "common/sharing.rs"]
mod sharing;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::keyvalue::PutResponse;
use client::typed::{Futures, KeyValue};
use client::{CallError, Code, Metadata, PoolCall, SharedPool, Status};
use common::serve_all;
use pooled::of;
use sharing::{assert_nothing_left, call};
use wire::{Connection, StreamKey};

const LIMIT_BYTES: usize = 100_000;

fn in_gzip(path: &str) -> PoolCall<'_> {
    PoolCall {
        compress: true,
        ..call(path)
    }
}

/// Whether each message of the typed calls came compressed.
static PUTS: Mutex<Vec<bool>> = Mutex::new(Vec::new());
/// The same for each attempt of `/t.T/PushBack`.
static ATTEMPTS: Mutex<Vec<bool>> = Mutex::new(Vec::new());
static PUSHED_BACK: AtomicUsize = AtomicUsize::new(0);

fn answer(
    connection: &mut Connection,
    stream: StreamKey,
    out: &mut Vec<u8>,
    path: &str,
    message: &[u8],
) {
    let compressed = connection.message_was_compressed();
    match path {
        // Whether the message came compressed, and its length.
        "/t.T/Flag" => {
            let flag = [u8::from(compressed), message.len() as u8];
            connection.send_message(stream, out, |out| out.extend_from_slice(&flag));
        }
        // So many zeros, in gzip.
        "/t.T/Zeros" => {
            let count = u32::from_be_bytes(message.try_into().expect("four bytes"));
            connection.set_compress(stream, true);
            connection.respond(stream, out, |out| out.resize(out.len() + count as usize, 0));
        }
        // Refuses the first attempt behind its second message.
        "/t.T/PushBack" => {
            let mut attempts = ATTEMPTS.lock().expect("no panic");
            attempts.push(compressed);
            if attempts.len() == 2 {
                PUSHED_BACK.fetch_add(1, Ordering::SeqCst);
                let mut metadata = Metadata::new();
                metadata
                    .push_received(b"grpc-retry-pushback-ms", b"0")
                    .expect("it is metadata");
                let status = Status::new(Code::Unavailable, "later").with_metadata(metadata);
                connection.finish(stream, out, &status);
            } else if attempts.len() == 4 {
                connection.respond(stream, out, |out| out.push(7));
            }
        }
        _ => {
            PUTS.lock().expect("no panic").push(compressed);
            connection.respond(stream, out, |out| PutResponse::default().encode(out));
        }
    }
}

fn pool() -> (SharedPool, std::thread::JoinHandle<()>) {
    let (address, server) = serve_all(answer, 1);
    let mut options = of(1);
    options.pool.max_message_bytes = LIMIT_BYTES;
    let pool = SharedPool::new(&[address], options, 7).expect("the address is known");
    (pool, server)
}

fn end(pool: SharedPool, server: std::thread::JoinHandle<()>) {
    assert_nothing_left(&pool);
    drop(pool);
    server.join().expect("it ends with the connection");
}

#[test]
fn each_message_of_a_stream_is_compressed_or_not() {
    let (pool, server) = pool();
    for names_gzip in [true, false, true] {
        let mut stream = match names_gzip {
            true => pool.stream(&in_gzip("/t.T/Flag")),
            false => pool.stream(&call("/t.T/Flag")),
        };
        // What was sent before is not changed.
        for (number, compress) in [None, Some(false), Some(true), Some(false)]
            .iter()
            .enumerate()
        {
            if let Some(compress) = *compress {
                stream.set_compress(compress);
            }
            stream.send(&vec![b'x'; number]).expect("it goes on");
        }
        let flags = [true, false, true, false].map(|flag| flag && names_gzip);
        for (number, flag) in flags.into_iter().enumerate() {
            let expected = vec![u8::from(flag), number as u8];
            assert_eq!(stream.receive().expect("it goes on"), Some(expected));
        }
        stream.finish();
        assert_eq!(stream.receive().expect("it ends with OK"), None);
    }
    end(pool, server);
}

#[test]
fn a_unary_call_is_compressed_if_it_is_asked_for() {
    let (mut pool, server) = pool();
    for (number, (gzip, is_future)) in [(true, false), (false, false), (true, true), (false, true)]
        .into_iter()
        .enumerate()
    {
        let mut futures = Futures::new(&pool);
        let put = match is_future {
            false => {
                let mut kv = KeyValue::new(&mut pool);
                let put = kv.put(b"k", b"v");
                if gzip { put.gzip().send() } else { put.send() }
            }
            true => {
                let mut kv = KeyValue::new(&mut futures);
                let put = kv.put(b"k", b"v");
                let put = if gzip { put.gzip() } else { put };
                pollster::block_on(put.send())
            }
        };
        put.expect("it is put");
        let puts = PUTS.lock().expect("no panic");
        assert_eq!((puts.len(), puts[number]), (number + 1, gzip));
    }
    end(pool, server);
}

#[test]
fn a_call_that_is_made_again_sends_each_message_as_before() {
    let (pool, server) = pool();
    let mut stream = pool.stream(&in_gzip("/t.T/PushBack"));
    stream.send(b"in gzip").expect("it goes on");
    stream.set_compress(false);
    stream.send(b"as it is").expect("it goes on");
    assert_eq!(stream.into_answer().expect("the second attempt"), [7]);
    assert_eq!(PUSHED_BACK.load(Ordering::SeqCst), 1);
    let attempts = ATTEMPTS.lock().expect("no panic").clone();
    assert_eq!(attempts, [true, false, true, false]);
    end(pool, server);
}

/// A few bytes that become many take time of all other calls: each such answer fails its call, and
/// no other.
#[test]
fn answers_that_become_far_too_large_fail_their_calls_alone() {
    let (address, server) = serve_all(answer, 1);
    let pool = SharedPool::new(&[address], of(1), 7).expect("the address is known");
    let zeros = |count: u32| pool.unary(&in_gzip("/t.T/Zeros"), &count.to_be_bytes());
    for _ in 0..2 {
        let error = zeros(100 << 20).map(drop).expect_err("it is too dense");
        let CallError::BadAnswer { reason } = error else {
            panic!("{error:?}");
        };
        assert!(reason.contains("too many times what was sent"), "{reason}");
        let answer = zeros(1 << 20).expect("it is served");
        assert_eq!(answer.len(), 1 << 20);
    }
    end(pool, server);
}

#[test]
fn a_compressed_answer_beyond_the_limit_fails_its_call_alone() {
    let (pool, server) = pool();
    for _ in 0..2 {
        for (bytes, fits) in [
            (LIMIT_BYTES, true),
            (LIMIT_BYTES + 1, false),
            (1 << 24, false),
        ] {
            let request = (bytes as u32).to_be_bytes();
            match pool.unary(&call("/t.T/Zeros"), &request) {
                Ok(answer) => assert!(fits && answer.len() == bytes, "{bytes}"),
                Err(CallError::AnswerTooLarge) => assert!(!fits, "{bytes}"),
                Err(other) => panic!("{bytes}: {other}"),
            }
            let stream = pool.server_stream(&call("/t.T/Zeros"), &request);
            let mut stream = stream.expect("it is small");
            match stream.receive() {
                Ok(answer) => {
                    assert_eq!(answer.map(|answer| answer.len()), Some(bytes));
                    assert!(fits && stream.receiver().message_was_compressed());
                }
                Err(CallError::AnswerTooLarge) => assert!(!fits, "{bytes}"),
                Err(other) => panic!("{bytes}: {other}"),
            }
        }
    }
    end(pool, server);
}
