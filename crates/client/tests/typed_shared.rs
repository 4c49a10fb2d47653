//! Typed calls over the shared pool, from threads and as futures.

mod common;
#[path = "common/pooled.rs"]
mod pooled;

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use api::keyvalue::{GetRequest, GetResponse, PutResponse, ScanPage};
use api::rpc::keyvalue::{Get, Scan};
use client::typed::{Futures, KeyValue, Pages, ReplySource};
use client::{CallError, CallOptions, Code, NotBegun, SharedPool, Status};
use common::{serve, serve_all};
use pooled::of;
use wire::{Connection, StreamKey};

const SOON: Duration = Duration::from_secs(20);

/// Responds to a Get with its key as the value.
fn mirror(
    connection: &mut Connection,
    stream: StreamKey,
    out: &mut Vec<u8>,
    path: &str,
    message: &[u8],
) {
    assert_eq!(path, "/pelton.v1.KeyValue/Get");
    let get = GetRequest::decode(message).expect("the request is valid");
    if get.key == b"broken" {
        return connection.respond(stream, out, |out| out.push(0xff));
    }
    let response = GetResponse {
        found: get.key != b"missing",
        value: get.key,
        ..GetResponse::default()
    };
    connection.respond(stream, out, |out| response.encode(out));
}

static CALLS: AtomicU32 = AtomicU32::new(0);

/// Ends each first call with UNAVAILABLE, without a word whether it was done.
fn every_other(
    connection: &mut Connection,
    stream: StreamKey,
    out: &mut Vec<u8>,
    path: &str,
    _message: &[u8],
) {
    if CALLS.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) {
        let status = Status::new(Code::Unavailable, "no");
        return connection.finish(stream, out, &status);
    }
    match path {
        "/pelton.v1.KeyValue/Get" => {
            connection.respond(stream, out, |out| GetResponse::default().encode(out));
        }
        _ => connection.respond(stream, out, |out| PutResponse::default().encode(out)),
    }
}

#[test]
fn threads_call_over_clones_of_a_pool() {
    let (address, _server) = serve_all(mirror, 1);
    let pool = SharedPool::new(&[address], of(1), 7).expect("the address is known");
    let read = |number: u32| {
        let mut pool = pool.clone();
        move || {
            let key = number.to_be_bytes();
            for _ in 0..100 {
                let found = KeyValue::new(&mut pool).get(&key).timeout(SOON).send();
                let found = found.expect("answered").expect("there is one");
                assert_eq!(found.value, key);
            }
        }
    };
    let threads: Vec<_> = (0..4).map(|number| thread::spawn(read(number))).collect();
    for thread in threads {
        thread.join().expect("each thread gets its own answers");
    }
}

/// Ends a scan well, but for its last page.
fn cut_short(
    connection: &mut Connection,
    stream: StreamKey,
    out: &mut Vec<u8>,
    path: &str,
    _message: &[u8],
) {
    assert_eq!(path, "/pelton.v1.KeyValue/Scan");
    connection.send_message(stream, out, |out| ScanPage::default().encode(out));
    connection.finish(stream, out, &Status::OK);
}

fn assert_cut_short(mut pages: Pages<Scan, impl ReplySource>) {
    let page = pages.next_page().expect("it came");
    assert!(page.expect("it is a page").entries.is_empty());
    let Err(CallError::BadAnswer { reason }) = pages.next_page() else {
        panic!("the last page is missing");
    };
    assert!(reason.contains("last page"), "{reason}");
    assert!(pages.next().is_none(), "it ends behind the error");
}

#[test]
fn pages_without_a_last_one_end_with_an_error_once() {
    let (mut channel, _server) = serve(cut_short);
    let mut kv = KeyValue::new(&mut channel);
    let pages = kv.scan().timeout(SOON).send();
    assert_cut_short(pages.expect("begun"));
    let (address, _server) = serve_all(cut_short, 1);
    let mut pool = SharedPool::new(&[address], of(1), 7).expect("the address is known");
    let mut kv = KeyValue::new(&mut pool);
    let pages = kv.scan().timeout(SOON).send();
    assert_cut_short(pages.expect("begun"));
}

#[test]
fn futures_resolve_to_outcomes() {
    let (address, _server) = serve_all(mirror, 1);
    let pool = SharedPool::new(&[address], of(1), 7).expect("the address is known");
    let mut futures = Futures::new(&pool);
    let mut kv = KeyValue::new(&mut futures);
    let found = kv.get(b"k").timeout(SOON).send();
    let missing = kv.get(b"missing").timeout(SOON).send();
    let broken = kv.get(b"broken").timeout(SOON).send();
    let found = pollster::block_on(found).expect("answered");
    assert_eq!(found.map(|stored| stored.value), Some(b"k".to_vec()));
    assert_eq!(pollster::block_on(missing).expect("answered"), None);
    let Err(CallError::BadAnswer { reason }) = pollster::block_on(broken) else {
        panic!("a broken response is no outcome");
    };
    assert!(reason.contains("pelton.v1.GetResponse"), "{reason}");
}

/// A method that has no function of its own.
#[test]
fn a_method_is_called_with_its_messages() {
    let (address, _server) = serve_all(mirror, 1);
    let pool = SharedPool::new(&[address], of(1), 7).expect("the address is known");
    let request = |key| GetRequest {
        key,
        ..GetRequest::default()
    };
    let options = CallOptions {
        deadline: Some(Instant::now() + SOON),
        ..CallOptions::default()
    };
    let reply = pool.call::<Get>(&request(b"k"), &options);
    assert_eq!(reply.expect("answered").message().value, b"k");
    let reply = pool.call_future::<Get>(&request(b"f"), &options);
    let reply = pollster::block_on(reply).expect("answered");
    assert_eq!(reply.message().value, b"f");
    for error in [
        pool.call::<Get>(&request(b"broken"), &options).map(drop),
        pollster::block_on(pool.call_future::<Get>(&request(b"broken"), &options)).map(drop),
    ] {
        assert!(
            matches!(error, Err(CallError::BadAnswer { .. })),
            "{error:?}"
        );
    }
    let past = CallOptions {
        deadline: Some(Instant::now()),
        ..CallOptions::default()
    };
    let late = pool.call::<Get>(&request(b"k"), &past).map(drop);
    let Err(CallError::NotBegun(NotBegun::DeadlinePassed)) = late else {
        panic!("{late:?}");
    };
}

#[test]
fn a_pool_makes_a_read_again_where_it_does_not_make_a_write_again() {
    let (address, _server) = serve_all(every_other, 1);
    let mut pool = SharedPool::new(&[address], of(1), 7).expect("the address is known");
    let mut kv = KeyValue::new(&mut pool);
    let found = kv.get(b"k").timeout(SOON).send();
    assert_eq!(found.expect("it was made again"), None);
    let put = kv.put(b"k", b"v").timeout(SOON).send();
    let error = put.expect_err("it is not made again");
    assert!(error.may_have_happened() && !error.is_safe_to_repeat());
    assert_eq!(CALLS.load(Ordering::SeqCst), 3);
}

#[test]
fn a_deadline_in_the_past_ends_a_call_before_it_is_sent() {
    let (address, _server) = serve_all(mirror, 1);
    let mut pool = SharedPool::new(&[address], of(1), 7).expect("the address is known");
    let options = CallOptions {
        deadline: Some(Instant::now()),
        ..CallOptions::default()
    };
    let found = KeyValue::new(&mut pool).get(b"k").options(options).send();
    let error = found.expect_err("it is too late");
    let CallError::NotBegun(NotBegun::DeadlinePassed) = error else {
        panic!("{error}");
    };
}

static WRITES: AtomicU32 = AtomicU32::new(0);

/// Ends each call with UNAVAILABLE, without a word whether it was done.
fn unavailable(
    connection: &mut Connection,
    stream: StreamKey,
    out: &mut Vec<u8>,
    _path: &str,
    _message: &[u8],
) {
    WRITES.fetch_add(1, Ordering::SeqCst);
    connection.finish(stream, out, &Status::new(Code::Unavailable, "no"));
}

/// The response of the second one would say that nothing was done.
#[test]
fn a_write_that_takes_effect_at_most_once_is_not_made_again_either() {
    let (address, _server) = serve_all(unavailable, 1);
    let mut pool = SharedPool::new(&[address], of(1), 7).expect("the address is known");
    let mut kv = KeyValue::new(&mut pool);
    for round in 1..3 {
        let put = kv.put(b"k", b"v").if_version(7).timeout(SOON);
        put.send().expect_err("it is not made again");
        assert_eq!(WRITES.load(Ordering::SeqCst), round);
    }
}
