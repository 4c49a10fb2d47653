//! What calls make the server hold is charged to their connection as it comes to be, to the byte,
//! and given back.

use std::sync::Arc;
use std::sync::Mutex;

use api::keyvalue::{KeyRange, Keys, ScanRequest};
use bytes::Bytes;
use protobuf::writer;
use service::Method;
use store::blob::{BlobRunner, CallJob, RunnerJob};
use store::{Condition, Expiry, Operation};
use testkit::keyvalue::OperationRequest;
use wire::{ErrorCode, Event, RequestHead, SharedBytes, StreamKey};

use super::path;
use super::stop::Bench;
use crate::account::{Account, HeldBytes};
use crate::event_loop::held;
use crate::limits;
use crate::pair::Pair;

fn charged(pair: &Pair) -> usize {
    pair.handler.account().charged_bytes()
}

fn put(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    let request = OperationRequest {
        database: "",
        operation: Operation::Put {
            key,
            value,
            condition: Condition::None,
            expiry: Expiry::None,
            want_previous: false,
        },
    };
    request.encode(&mut message);
    message
}

/// The stream of the only call, as the server names it.
fn only_stream(pair: &Pair) -> StreamKey {
    assert_eq!(pair.handler.running(), 1);
    pair.handler.first_stream()
}

#[test]
fn a_connection_holds_what_is_set_aside_what_waits_for_the_socket_and_its_calls() {
    const CALLS: usize = limits::CALLS_IN_ANY_CASE + 6;
    const OUTPUT: usize = 100_000;
    let mut pair = Pair::open();
    let path = path(Method::EchoStream);
    for _ in 0..CALLS {
        let head = RequestHead::call("test", &path);
        let opened = pair.client.open(&mut pair.sent, &head);
        opened.expect("a stream is free");
    }
    pair.turn();
    assert_eq!(pair.handler.running(), CALLS);
    let stream = pair.handler.first_stream();
    let connection = &mut pair.handler.rpc().connection;
    connection.reserve_more(stream, 1_000);
    connection.hold_request(stream, 20);
    for output in [0, OUTPUT] {
        let mut io = net::Io::new();
        io.output.resize(output, 0);
        let of_calls = 6 * limits::CALL_BYTES;
        let expected = HeldBytes {
            charged_bytes: 1_020 + output + of_calls,
            all_bytes: 20 + output + of_calls,
            expected_bytes: 0,
            unsent_bytes: 1_000 + output,
            sent_bytes: connection.sent_bytes(),
            waits_for_memory: false,
        };
        assert_eq!(held(connection, &io), expected);
    }
}

/// A whole request that there was no memory for: its peer is not at fault, unless it does not take
/// what it was sent.
#[test]
fn a_connection_waits_for_memory_with_a_request_that_was_put_back() {
    let mut pair = Pair::open();
    let message = [7; 100_000];
    let _others = pair.fill_account();
    let path = path(Method::EchoUnary);
    // EchoRequest: a payload, and answer_bytes 1 000 000.
    let mut request = Vec::new();
    writer::bytes(&mut request, 1, &message);
    request.extend_from_slice(&[0x10, 0xc0, 0x84, 0x3d]);
    pair.call(&path, &request);
    for _ in 0..10 {
        pair.now_ns += limits::WINDOWS_SHUT_MS * 1_000_000;
        pair.turn();
    }
    let connection = &mut pair.handler.rpc().connection;
    assert!(connection.has_put_back());
    for (output, waits) in [(0, true), (60_000, true), (70_000, false)] {
        let mut io = net::Io::new();
        io.output.resize(output, 0);
        assert_eq!(held(connection, &io).waits_for_memory, waits, "{output}");
    }
}

#[test]
fn what_is_produced_is_charged_at_once_when_it_is_more_than_a_little() {
    let mut pair = Pair::open();
    let path = path(Method::EchoStream);
    let head = RequestHead::call("test", &path);
    let opened = pair.client.open(&mut pair.sent, &head);
    opened.expect("a stream is free");
    pair.turn();
    let (stream, at_rest) = (only_stream(&pair), charged(&pair));
    let mut known = 0;
    for round in 1..=3 {
        for (bytes, is_charged) in [(limits::SMALL_HOLDING_BYTES, false), (1, true)] {
            let connection = &mut pair.handler.rpc().connection;
            connection.reserve_more(stream, bytes);
            pair.handler.note_growth(&pair.io);
            if is_charged {
                known = round * (limits::SMALL_HOLDING_BYTES + 1);
            }
            assert_eq!(charged(&pair) - at_rest, known, "{round}");
        }
    }
    pair.close();
    assert_eq!(charged(&pair), 0);
}

#[test]
fn writes_are_charged_until_the_committer_has_answered() {
    let mut bench = Bench::new();
    let at_rest = charged(&bench.pair);
    for round in 0..2 {
        // Two in one tick: each is charged for its own.
        for bytes in [10_000, 50_000] {
            let message = put(b"key", &vec![7; bytes]);
            bench.pair.call(&path(Method::Put), &message);
        }
        bench.turn();
        let keys_and_values = 10_003 + 50_003;
        let records = charged(&bench.pair) - at_rest - keys_and_values;
        assert!((2 * 100..2 * 400).contains(&records), "{round}: {records}");
        bench.commit();
        assert_eq!(bench.ended.drain(..).count(), 2);
        assert_eq!(charged(&bench.pair), at_rest, "{round}");
    }
}

/// Little is within what every call is reckoned with.
#[test]
fn long_keys_are_charged_twice_until_they_are_looked_up() {
    let mut pair = Pair::open();
    let at_rest = charged(&pair);
    for _ in 0..2 {
        for (key, bytes) in [
            (limits::KEPT_BYTES - 1, 0),
            (limits::KEPT_BYTES, 2 * limits::KEPT_BYTES),
            (10_000, 20_000),
        ] {
            let mut message = Vec::new();
            let request = OperationRequest {
                database: "",
                operation: Operation::Get {
                    key: &vec![b'k'; key],
                },
            };
            request.encode(&mut message);
            let call = pair.call(&path(Method::Get), &message);
            let sent = std::mem::take(&mut pair.sent);
            pair.receive(&sent);
            assert_eq!(charged(&pair) - at_rest, bytes, "{key}");
            assert!(pair.turn().contains(&Event::Finished { stream: call }));
            pair.client.forget(call);
            assert_eq!(charged(&pair), at_rest, "{key}");
        }
    }
}

#[test]
fn what_an_answer_that_is_sent_later_will_take_is_charged_at_once() {
    const PAYLOAD: usize = 4_000;
    let mut pair = Pair::open();
    let at_rest = charged(&pair);
    for _ in 0..2 {
        // EchoRequest: a payload, and a delay of 10 ms.
        let mut message = Vec::new();
        writer::bytes(&mut message, 1, &[7; PAYLOAD]);
        message.extend_from_slice(&[0x18, 10]);
        let call = pair.call(&path(Method::EchoUnary), &message);
        pair.turn();
        assert_eq!(charged(&pair) - at_rest, PAYLOAD);
        pair.now_ns += 10_000_000;
        let events = [pair.turn(), pair.turn()].concat();
        assert!(events.contains(&Event::Finished { stream: call }));
        pair.client.forget(call);
        pair.turn();
        assert_eq!(charged(&pair), at_rest);
    }
}

#[test]
fn only_large_answers_wait_while_there_is_no_memory() {
    const LARGE: usize = service::limits::LARGE_ANSWER_BYTES;
    let mut pair = Pair::open();
    for _ in 0..2 {
        let others = pair.fill_account();
        for (bytes, waits) in [(LARGE, false), (LARGE + 1, true)] {
            let mut message = Vec::new();
            writer::uint64(&mut message, 2, bytes as u64);
            let call = pair.call(&path(Method::EchoUnary), &message);
            let mut events = Vec::new();
            for _ in 0..5 {
                events.extend(pair.turn());
            }
            let end = Event::Finished { stream: call };
            assert_eq!(!events.contains(&end), waits, "{bytes}");
            if !waits {
                pair.client.forget(call);
            }
        }
        drop(others);
        pair.now_ns += limits::WINDOWS_SHUT_MS * 1_000_000;
        let mut events = Vec::new();
        for _ in 0..5 {
            events.extend(pair.turn());
        }
        let Some(Event::Finished { stream }) = events.pop() else {
            panic!("there is memory again");
        };
        pair.client.forget(stream);
    }
}

#[test]
fn large_answers_of_one_connection_wait_for_nobody_while_there_is_memory() {
    let mut pair = Pair::open();
    for _ in 0..3 {
        let mut message = Vec::new();
        writer::uint64(&mut message, 2, 100_000);
        pair.call(&path(Method::EchoUnary), &message);
    }
    pair.serve();
    assert_eq!(pair.handler.running(), 0, "all are answered");
}

/// Its peer does not read, and others use up the memory: what it asks for is read when there is
/// some again.
#[test]
fn reads_of_a_connection_that_may_hold_no_more_wait() {
    const READS: usize = limits::READS_RESUMED + 6;
    let mut pair = Pair::open();
    for _ in 0..2 {
        let mut message = Vec::new();
        writer::uint64(&mut message, 2, 500_000);
        pair.call(&path(Method::EchoUnary), &message);
        pair.serve();
        assert_eq!(pair.handler.running(), 0, "it is answered");
        // They have asked for their reads as it comes to that.
        for _ in 0..READS {
            pair.call(&path(Method::Get), &[]);
        }
        let sent = std::mem::take(&mut pair.sent);
        pair.receive(&sent);
        let others = pair.fill_account();
        let states = |pair: &mut Pair| {
            let deferred = pair.handler.rpc().deferred_reads.len();
            (deferred, pair.handler.running())
        };
        for _ in 0..3 {
            pair.serve();
            assert_eq!(states(&mut pair), (READS, READS));
        }
        drop(others);
        pair.serve();
        let left = READS - limits::READS_RESUMED;
        assert_eq!(states(&mut pair), (left, left));
        assert!(pair.io.is_unfinished(), "the others are to follow");
        pair.serve();
        assert_eq!(states(&mut pair), (0, 0));
        pair.close();
        pair.client = wire::Connection::new(&wire::Config::client(), 0);
        (pair.io, pair.sent) = (net::Io::new(), Vec::new());
        pair.accept(false);
        pair.greet();
    }
}

/// The value is looked up again when it may be sent, so that nothing is held for a caller that
/// waits.
#[test]
fn a_large_value_is_read_when_there_is_memory_for_it() {
    const VALUE: usize = 100_000;
    let mut pair = Pair::open();
    let stored = pair.call(&path(Method::Put), &put(b"key", &[7; VALUE]));
    while !pair.turn().contains(&Event::Finished { stream: stored }) {}
    pair.client.forget(stored);
    for _ in 0..2 {
        pair.turn();
        let at_rest = charged(&pair);
        let mut message = Vec::new();
        let request = OperationRequest {
            database: "",
            operation: Operation::Get { key: b"key" },
        };
        request.encode(&mut message);
        let calls = [(); 2].map(|()| pair.call(&path(Method::Get), &message));
        let others = pair.fill_account();
        let of_others = charged(&pair) - at_rest;
        for _ in 0..3 {
            pair.now_ns += limits::WINDOWS_SHUT_MS * 1_000_000;
            assert_eq!(pair.turn(), []);
            assert!(charged(&pair) - of_others - at_rest < 1_000);
            // Looked up again before that, they would be so in every tick.
            assert!(!pair.handler.has_work());
        }
        drop(others);
        pair.messages.clear();
        pair.now_ns += limits::WINDOWS_SHUT_MS * 1_000_000;
        let mut events = Vec::new();
        for _ in 0..5 {
            events.extend(pair.turn());
        }
        for call in calls {
            assert!(events.contains(&Event::Finished { stream: call }));
            pair.client.forget(call);
        }
        assert!(pair.messages.iter().all(|(_, value)| value.len() > VALUE));
    }
}

/// Another thread makes a large answer, which is not charged yet.
#[test]
fn a_large_answer_waits_while_others_have_claimed_the_memory() {
    let mut pair = Pair::open();
    let account = Arc::clone(pair.handler.account());
    for _ in 0..2 {
        account.claim_little(account.limit_bytes());
        let mut message = Vec::new();
        let bytes = service::limits::LARGE_ANSWER_BYTES as u64 + 1;
        writer::uint64(&mut message, 2, bytes);
        let call = pair.call(&path(Method::EchoUnary), &message);
        for is_free in [false, true] {
            if is_free {
                account.end_claim(account.limit_bytes());
            }
            let mut events = Vec::new();
            for _ in 0..5 {
                pair.now_ns += limits::CLAIM_RETRY_MS * 1_000_000;
                events.extend(pair.turn());
            }
            let end = Event::Finished { stream: call };
            assert_eq!(events.contains(&end), is_free);
        }
        pair.client.forget(call);
        // What it has claimed has ended with it.
        let whole = account.limit_bytes();
        account.claim_little(1);
        assert_eq!(account.claim(whole - 1), Some(whole - 1));
        account.end_claim(whole);
    }
}

/// A claim that comes alone may go beyond the limit: what it is for is charged when it is there,
/// and lets nothing more be produced.
#[test]
fn a_claim_ends_although_what_it_was_for_uses_up_the_memory() {
    const ANSWER: usize = 1_000_000;
    let mut pair = Pair::open();
    let account = Arc::clone(pair.handler.account());
    let wake: crate::SharedWaker = Arc::new(|| {});
    for _ in 0..3 {
        let mut others = account.open(&net::PeerAddress::Simulated(9), &wake);
        let bytes = account.limit_bytes() - account.charged_bytes() - ANSWER / 2;
        let held = HeldBytes {
            charged_bytes: bytes,
            all_bytes: bytes,
            ..HeldBytes::default()
        };
        others.change(held, pair.now_ns);
        let mut message = Vec::new();
        writer::uint64(&mut message, 2, ANSWER as u64);
        let call = pair.call(&path(Method::EchoUnary), &message);
        pair.serve();
        assert!(account.is_full());
        let pause = pair.handler.rpc().link.holding.pause();
        assert_eq!((pause, account.claimed_bytes()), (wire::Pause::All, 0));
        drop(others);
        pair.now_ns += limits::WINDOWS_SHUT_MS * 1_000_000;
        while !pair.turn().contains(&Event::Finished { stream: call }) {}
        assert_eq!(pair.client.status().code(), wire::grpc::Code::Ok);
        pair.client.forget(call);
        assert_eq!(account.claimed_bytes(), 0);
    }
    pair.close();
    assert_eq!(account.charged_bytes(), 0);
}

/// The peer takes nothing: a scan waits between two pages, with the end of its range.
#[test]
fn keys_that_a_scan_keeps_between_two_pages_are_charged() {
    const KEY: usize = 50_000;
    let mut pair = Pair::open();
    for number in 0..60_u32 {
        let stored = put(&number.to_be_bytes(), &[7; 100_000]);
        let stored = pair.call(&path(Method::Put), &stored);
        while !pair.turn().contains(&Event::Finished { stream: stored }) {}
        pair.client.forget(stored);
    }
    let at_rest = charged(&pair);
    for _ in 0..2 {
        let range = KeyRange {
            start: b"",
            end: &[0xff; KEY],
        };
        let scan = ScanRequest {
            keys: Some(Keys::Range(range)),
            ..ScanRequest::default()
        };
        let mut message = Vec::new();
        scan.encode(&mut message);
        let call = pair.call(&path(Method::Scan), &message);
        pair.turn();
        for _ in 0..20 {
            pair.turn_of_loop();
        }
        let connection = &pair.handler.rpc().connection;
        let (all, unsent) = (connection.buffered_bytes(), connection.unsent_bytes());
        // Some of a page has gone out.
        let pages = unsent + connection.out_bytes();
        assert!(unsent > 0, "pages wait for the peer");
        // The end twice, as what waits for a disk has a copy, and what little the scan has passed.
        assert!((2 * KEY..2 * KEY + 100).contains(&(all - pages)), "{all}");
        assert!(charged(&pair) >= at_rest + all);
        let Pair { client, sent, .. } = &mut pair;
        client.reset(call, sent, ErrorCode::Cancel);
        client.forget(call);
        pair.turn();
        pair.turn();
        assert_eq!(charged(&pair), at_rest);
    }
}

/// What is free may be claimed to the last byte, and one claim may go beyond it as long as nothing
/// is charged beyond it.
#[test]
fn memory_is_claimed_to_the_limit_and_beyond_it_by_one_alone() {
    let account = Account::new(1_000);
    let wake: crate::SharedWaker = Arc::new(|| {});
    let mut holding = account.open(&net::PeerAddress::Unix, &wake);
    for _ in 0..2 {
        for (charged_bytes, claims) in [
            (0, &[(1_000, true), (1, false)][..]),
            (0, &[(1_001, true), (1, false)]),
            (900, &[(50, true), (50, true), (1, false)]),
            (900, &[(50, true), (51, false)]),
            (1_000, &[(1, true), (1, false)]),
            (1_001, &[(1, false)]),
        ] {
            let held = HeldBytes {
                charged_bytes,
                all_bytes: charged_bytes,
                ..HeldBytes::default()
            };
            holding.change(held, 0);
            for &(bytes, is_claimed) in claims {
                let claimed = is_claimed.then_some(bytes);
                assert_eq!(account.claim(bytes), claimed, "{charged_bytes} {bytes}");
            }
            for &(bytes, is_claimed) in claims {
                account.end_claim(if is_claimed { bytes } else { 0 });
            }
        }
    }
}

/// Reads of blobs that wait until the test lets them begin; other jobs are done at once.
#[derive(Clone, Default)]
pub(super) struct Waiting(Arc<Mutex<Vec<Box<dyn CallJob>>>>);

impl BlobRunner for Waiting {
    fn run(&self, job: RunnerJob) {
        job();
    }

    fn run_read(&self, _source: u64, _bytes: usize, read: Box<dyn CallJob>) {
        self.0.lock().expect("one thread").push(read);
    }
}

impl Waiting {
    /// Does all reads that wait, and returns how many there were.
    fn read(&self) -> usize {
        let reads = std::mem::take(&mut *self.0.lock().expect("one thread"));
        let count = reads.len();
        reads.into_iter().for_each(|read| read.run(None));
        count
    }
}

/// The client sends the head of a plain request for the blob `a`.
fn plain(pair: &mut Pair, method: &'static str) -> StreamKey {
    let mut metadata = wire::grpc::Metadata::new();
    let pushed = metadata.push_ascii("content-type", "test/content");
    pushed.expect("it is text");
    let head = RequestHead {
        method,
        metadata: Some(&metadata),
        ..RequestHead::get("test", "/blob/a")
    };
    let opened = pair.client.open(&mut pair.sent, &head);
    opened.expect("a stream is free")
}

/// Stores the blob `a`, whose reads wait in `reads`.
pub(super) fn store_blob(bench: &mut Bench, reads: &Waiting, content: &Bytes) {
    let blobs = bench.pair.handler.shared().store.blobs();
    let runner = Arc::new(reads.clone());
    blobs.expect("there is a folder").set_runner(runner);
    let upload = plain(&mut bench.pair, "PUT");
    bench.turn();
    // It is to bring much: more may be under way than of a call.
    let usual = wire::limits::STREAM_WINDOW_BYTES as usize;
    assert!(bench.pair.client.window_room(upload) > usual);
    let Pair { client, sent, .. } = &mut bench.pair;
    let whole = SharedBytes::part(content.clone(), 0..content.len());
    client.send_body(upload, sent, whole);
    client.close_send(upload, sent);
    for _ in 0..5 {
        bench.commit();
    }
    assert_eq!(bench.ended.len(), 1);
    assert_eq!(bench.pair.client.head().http_status(), 201);
    // Its description was decided, and nothing is kept for that any more.
    assert!(!bench.pair.handler.has_sealed());
}

/// Closes the connection and opens another one, with such a window for all that comes.
pub(super) fn reopen(bench: &mut Bench, connection_window: u32) {
    bench.pair.close();
    bench.turn();
    assert!(net::Handler::is_idle(&bench.pair.handler));
    let config = wire::Config {
        connection_window: Some(connection_window),
        ..wire::Config::client()
    };
    bench.pair.client = wire::Connection::new(&config, 0);
    bench.pair.io = net::Io::new();
    bench.pair.sent.clear();
    bench.pair.accept(false);
    bench.pair.greet();
}

/// A peer that takes what it is sent: its next piece is read while its windows are shut. Nothing is
/// for one that has taken nothing.
#[test]
fn a_download_reads_ahead_for_a_peer_that_takes_what_it_is_sent() {
    const BLOB: usize = 300_000;
    let mut bench = Bench::new();
    let reads = Waiting::default();
    let content = (0..BLOB).map(|at| at as u8).collect();
    store_blob(&mut bench, &reads, &content);
    for _ in 0..2 {
        reopen(&mut bench, 65_535);
        bench.ended.clear();
        bench.pair.messages.clear();
        bench.pair.get("/blob/a");
        for expected in [1, 2] {
            let mut begun = 0;
            for _ in 0..10 {
                bench.pair.serve();
                begun += reads.read();
            }
            assert_eq!(begun, expected, "reads for what the windows let out");
            bench.pair.take();
        }
        for _ in 0..20 {
            bench.turn();
            reads.read();
        }
        assert_eq!(bench.ended.len(), 1);
        let pieces = bench.pair.messages.iter();
        let body: Vec<u8> = pieces.flat_map(|(_, piece)| piece).copied().collect();
        assert!(body[..] == content[..], "{} bytes", body.len());
    }
}

/// Of two downloads on a connection, one reads what the window of the connection lets out. Were it
/// not promised, both would read for the same room, and one of them in vain.
#[test]
fn what_a_download_reads_is_promised_of_the_window_that_it_shares() {
    const BLOB: usize = 100_000;
    let mut bench = Bench::new();
    let (reads, content) = (Waiting::default(), (0..BLOB).map(|at| at as u8).collect());
    store_blob(&mut bench, &reads, &content);
    reopen(&mut bench, 65_535);
    for _ in 0..2 {
        bench.ended.clear();
        bench.pair.messages.clear();
        let downloads = [(); 2].map(|()| plain(&mut bench.pair, "GET"));
        for download in downloads {
            let Pair { client, sent, .. } = &mut bench.pair;
            client.close_send(download, sent);
        }
        bench.turn();
        assert_eq!(reads.read(), 1, "the other waits for its room");
        let mut rounds = 0;
        while bench.ended.len() < 2 {
            bench.turn();
            reads.read();
            rounds += 1;
            assert!(rounds < 20, "both go on");
        }
        let head = bench.pair.client.head();
        assert_eq!(head.get(b"content-type"), Some(&b"test/content"[..]));
        for download in downloads {
            let of_it = |(stream, _): &&(StreamKey, Vec<u8>)| *stream == download;
            let pieces = bench.pair.messages.iter().filter(of_it);
            let body: Vec<u8> = pieces.flat_map(|(_, piece)| piece).copied().collect();
            assert!(body[..] == content[..], "{} bytes", body.len());
        }
    }
}

/// Others of its address hold so much that it waits, though the account is not full, and they do
/// not move.
#[test]
fn a_large_answer_that_waits_for_memory_has_those_ended_who_stand_still() {
    let mut pair = Pair::open();
    let value = vec![7; 200_000];
    let stored = pair.call(&path(Method::Put), &put(b"key", &value));
    let mut events = Vec::new();
    for _ in 0..30 {
        events.extend(pair.turn());
    }
    assert!(events.contains(&Event::Finished { stream: stored }));
    pair.client.forget(stored);
    let account = std::sync::Arc::clone(pair.handler.account());
    let wake: crate::SharedWaker = std::sync::Arc::new(|| {});
    for _ in 0..2 {
        let mut others = account.open(&net::PeerAddress::Simulated(1), &wake);
        let bytes = account.limit_bytes() / 2 + 1;
        let held = crate::account::HeldBytes::unsent(bytes);
        others.change(held, pair.now_ns);
        // GetRequest.key
        let get = pair.call(&path(Method::Get), b"\x12\x03key");
        let is_end = |events: &[Event]| events.contains(&Event::Finished { stream: get });
        let waited_ms = limits::STARVED_MS.max(limits::STALLED_MS);
        for _ in 0..waited_ms / 100 - 1 {
            pair.now_ns += 100_000_000;
            assert!(!is_end(&pair.turn()) && !others.is_condemned());
        }
        for _ in 0..3 {
            pair.now_ns += 100_000_000;
            assert!(!is_end(&pair.turn()));
        }
        assert!(others.is_condemned());
        drop(others);
        let mut events = Vec::new();
        for _ in 0..30 {
            pair.now_ns += 10_000_000;
            events.extend(pair.turn());
        }
        assert!(is_end(&events));
        pair.client.forget(get);
    }
}
