//! Which status a call gets at a stop: UNAVAILABLE invites to repeat it, so that it is only for
//! calls of which nothing is under way.

use std::sync::Arc;

use api::keyvalue::PipeAnswers;
use net::Handler;
use service::Method;
use store::durable::{CommitLoop, Opened};
use store::{Condition, DatabaseConfig, Durability, Expiry, Mode, Operation, Store, StoreConfig};
use testkit::keyvalue::{OperationRequest, encode_pipe};
use testkit::suite::StandingClock;
use wal::{LogConfig, LogId};
use wire::grpc::Code;
use wire::{Event, RequestHead, StreamKey};

use super::path;
use crate::limits;
use crate::pair::Pair;
use crate::readers::Readers;

const PUT: Operation<'_> = Operation::Put {
    key: b"key",
    value: b"value",
    condition: Condition::None,
    expiry: Expiry::None,
    want_previous: false,
};

/// An event loop over a durable store whose committer runs when the test says so.
pub(super) struct Bench {
    pub pair: Pair,
    commit_loop: CommitLoop,
    clock: StandingClock,
    /// Calls that have ended: with which code, and whether they may be repeated.
    pub ended: Vec<(StreamKey, Code, bool)>,
}

impl Bench {
    pub fn new() -> Bench {
        let config = StoreConfig {
            default_database: DatabaseConfig {
                durability: Durability::Synced,
                ..DatabaseConfig::default()
            },
            ..StoreConfig::new(1)
        };
        let id = LogId {
            history: 7,
            secret: 8,
        };
        let log = LogConfig {
            segment_bytes: 1 << 20,
            ..LogConfig::new(id, 1)
        };
        let opened = Store::open(config, Arc::new(testkit::simulated_disk(1)), &log);
        let Opened {
            store, committer, ..
        } = opened.expect("an empty disk is well");
        let commit_loop = CommitLoop::new(committer);
        let mailbox = commit_loop.register(Box::new(|| {}));
        let readers = Readers::Inline(store.clone());
        Bench {
            pair: Pair::over(store, readers, mailbox, Arc::new(|| {})),
            commit_loop,
            clock: StandingClock { now_ms: 1_000_000 },
            ended: Vec::new(),
        }
    }

    /// A Put whose caller waits as long for its answer.
    fn put(&mut self, timeout_ns: Option<u64>) -> StreamKey {
        let path = path(Method::Put);
        let head = RequestHead {
            timeout_ns,
            ..RequestHead::call("test", &path)
        };
        let mut message = Vec::new();
        let request = OperationRequest {
            database: "",
            operation: PUT,
        };
        request.encode(&mut message);
        let Pair { client, sent, .. } = &mut self.pair;
        let put = client.open(sent, &head).expect("a stream is free");
        let encode = |out: &mut Vec<u8>| out.extend_from_slice(&message);
        client.send_last_message(put, sent, encode);
        put
    }

    /// Whether the only key is there.
    fn is_stored(&self) -> bool {
        let store = &self.pair.handler.shared().store;
        let view = store.view(store::DatabaseId::DEFAULT);
        view.expect("it is in memory").statistics().entries == 1
    }

    fn open_pipe(&mut self) -> StreamKey {
        let path = path(Method::Pipe);
        let head = RequestHead::call("test", &path);
        let opened = self.pair.client.open(&mut self.pair.sent, &head);
        opened.expect("a stream is free")
    }

    fn send(&mut self, pipe: StreamKey) {
        let mut message = Vec::new();
        encode_pipe(&mut message, "", PipeAnswers::All, Mode::Atomic, 0, &[PUT]);
        let encode = |out: &mut Vec<u8>| out.extend_from_slice(&message);
        (self.pair.client).send_message(pipe, &mut self.pair.sent, encode);
    }

    /// Turns of the loop; the committer gets none.
    pub fn turn(&mut self) {
        for _ in 0..10 {
            for event in self.pair.turn() {
                if let Event::Finished { stream } = event {
                    let status = self.pair.client.status();
                    let metadata = status.metadata();
                    let pushback = metadata.and_then(|all| all.get("grpc-retry-pushback-ms"));
                    self.ended.push((stream, status.code(), pushback.is_some()));
                    self.pair.client.forget(stream);
                }
            }
        }
    }

    pub fn commit(&mut self) {
        self.turn();
        while self.commit_loop.round(&mut self.clock) {}
        self.turn();
    }
}

#[test]
fn only_a_call_with_a_commit_under_way_ends_with_an_unknown_outcome() {
    let mut bench = Bench::new();
    let [idle, answered, under_way] = [(); 3].map(|()| bench.open_pipe());
    for _ in 0..3 {
        bench.send(answered);
        bench.send(under_way);
        bench.commit();
    }
    // More than one at a time, of which each counts.
    for _ in 0..2 {
        bench.send(answered);
    }
    bench.commit();
    bench.send(under_way);
    let put = bench.put(None);
    bench.turn();
    assert_eq!(bench.ended, [], "all go on");
    bench.pair.stop();
    for _ in 0..2 {
        bench.pair.now_ns += net::limits::DRAIN_MS * 1_000_000;
        bench.turn();
    }
    let mut ended = std::mem::take(&mut bench.ended);
    ended.sort_by_key(|(stream, ..)| stream.id);
    let again = |stream| (stream, Code::Unavailable, true);
    let unknown = |stream| (stream, Code::Unknown, false);
    assert_eq!(
        ended,
        [
            again(idle),
            again(answered),
            unknown(under_way),
            unknown(put)
        ]
    );
    // What was submitted ends, and the loop with it; the outcomes are for nobody.
    bench.commit();
    assert!(bench.ended.is_empty());
    bench.pair.close();
    bench.turn();
    assert!(bench.pair.handler.is_drained());
}

/// What was submitted is done although the server stops: its caller knows that it may be.
#[test]
fn a_stop_takes_no_commit_back() {
    let mut bench = Bench::new();
    let put = bench.put(None);
    bench.turn();
    bench.pair.stop();
    bench.pair.now_ns += net::limits::DRAIN_MS * 1_000_000;
    bench.turn();
    assert_eq!(bench.ended, [(put, Code::Unknown, false)]);
    assert!(!bench.is_stored());
    bench.commit();
    assert!(bench.is_stored());
}

/// Nobody waits for the answer: what the committer has not begun is not done. It is told at once,
/// and of commits only.
#[test]
fn a_commit_is_taken_back_when_its_caller_is_gone() {
    let mut bench = Bench::new();
    for is_reset in [true, false, true, false] {
        let put = bench.put(Some(5_000_000_000));
        // EchoRequest with a delay of 20 s, and the same deadline.
        let echo_path = path(Method::EchoUnary);
        let head = RequestHead {
            timeout_ns: Some(7_000_000_000),
            ..RequestHead::call("test", &echo_path)
        };
        let Pair { client, sent, .. } = &mut bench.pair;
        let echo = client.open(sent, &head).expect("a stream is free");
        let delay = |out: &mut Vec<u8>| out.extend_from_slice(&[0x18, 0xa0, 0x9c, 0x01]);
        client.send_last_message(echo, sent, delay);
        bench.turn();
        assert!(bench.ended.is_empty());
        for (call, code, is_told) in [
            (put, Code::DeadlineExceeded, true),
            (echo, Code::DeadlineExceeded, false),
        ] {
            if is_reset {
                let Pair { client, sent, .. } = &mut bench.pair;
                client.reset(call, sent, wire::ErrorCode::Cancel);
                client.forget(call);
                let sent = std::mem::take(sent);
                bench.pair.receive(&sent);
            } else {
                bench.pair.now_ns += if is_told {
                    5_000_000_000
                } else {
                    2_000_000_000
                };
                let events = bench.pair.turn();
                assert!(events.contains(&Event::Finished { stream: call }));
                assert_eq!(bench.pair.client.status().code(), code);
                bench.pair.client.forget(call);
            }
            let wants_tick = bench.pair.handler.next_deadline_ns() == Some(0);
            assert_eq!(wants_tick, is_told, "{is_reset}");
            bench.turn();
        }
        bench.commit();
        assert!(!bench.is_stored());
        assert_eq!(bench.pair.handler.running(), 0);
    }
    let put = bench.put(Some(5_000_000_000));
    bench.commit();
    assert_eq!(bench.ended, [(put, Code::Ok, false)]);
    assert!(bench.is_stored());
}

/// The last loop may go only when nobody can bring it anything any more.
#[test]
fn a_loop_is_idle_when_nothing_is_under_way() {
    let mut bench = Bench::new();
    for _ in 0..2 {
        assert!(!bench.pair.handler.is_idle(), "a connection is open");
        bench.put(None);
        bench.turn();
        bench.pair.close();
        bench.turn();
        assert!(!bench.pair.handler.is_idle(), "an outcome is to come");
        bench.commit();
        assert!(bench.pair.handler.is_idle());
        bench.pair.client = wire::Connection::new(&wire::Config::client(), 0);
        bench.pair.sent.clear();
        bench.pair.accept(false);
        bench.pair.greet();
        // It has not come to the tick that submits it.
        bench.put(None);
        let sent = std::mem::take(&mut bench.pair.sent);
        bench.pair.receive(&sent);
        bench.pair.close();
        assert!(!bench.pair.handler.is_idle(), "a write waits for the tick");
        bench.commit();
        assert!(bench.pair.handler.is_idle());
        bench.pair.client = wire::Connection::new(&wire::Config::client(), 0);
        bench.pair.accept(false);
        bench.pair.greet();
    }
}

/// Its answers wait, and calls wait behind them: none is waited for beyond the time that a peer
/// has, and nobody is invited to repeat what has been done.
#[test]
fn a_stop_does_not_wait_for_a_peer_that_takes_nothing() {
    const READS: usize = 3;
    let put = |value: &[u8], want_previous| {
        let (mut message, database) = (Vec::new(), "");
        let operation = Operation::Put {
            key: b"key",
            value,
            condition: Condition::None,
            expiry: Expiry::None,
            want_previous,
        };
        OperationRequest {
            database,
            operation,
        }
        .encode(&mut message);
        message
    };
    let mut pair = Pair::open();
    let stored = pair.call(&path(Method::Put), &put(&[7; 500_000], false));
    let is_stored = |events: Vec<Event>| events.contains(&Event::Finished { stream: stored });
    assert!((0..50).any(|_| is_stored(pair.turn())));
    pair.client.forget(stored);
    pair.turn();
    // From now on it says nothing but this. EchoRequest: answer_bytes 500 000.
    let read = pair.call(&path(Method::EchoUnary), &[0x10, 0xa0, 0xc2, 0x1e]);
    let written = pair.call(&path(Method::Put), &put(b"", true));
    pair.serve();
    assert_eq!(pair.handler.running(), 0, "both are answered");
    let behind = [(); READS].map(|()| pair.call(&path(Method::Get), b""));
    let sent = std::mem::take(&mut pair.sent);
    pair.receive(&sent);
    let _others = pair.fill_account();
    pair.serve();
    assert_eq!(pair.handler.running(), READS, "they wait for memory");
    pair.stop();
    pair.now_ns += limits::DRAIN_IDLE_MS * 1_000_000;
    pair.tick_without_input();
    assert!(pair.handler.is_drained());
    let mut codes = Vec::new();
    for _ in 0..50 {
        for event in pair.take() {
            if let Event::Finished { stream } = event {
                codes.push((stream, pair.client.status().code()));
                pair.client.forget(stream);
            }
        }
    }
    codes.sort_by_key(|(stream, _)| stream.id);
    let mut expected = vec![(read, Code::Unavailable), (written, Code::Unknown)];
    expected.extend(behind.map(|stream| (stream, Code::Unavailable)));
    assert_eq!(codes, expected);
}
