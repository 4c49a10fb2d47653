//! Which status a call gets at a stop: UNAVAILABLE invites to repeat it, so that it is only for calls
//! of which nothing is under way.

use std::sync::Arc;

use drive::Handler;
use service::Method;
use service::keyvalue::messages::{PipeAnswers, PipeRequest, Request};
use store::disk::SimulatedDisk;
use store::durable::{Opened, Rounds};
use store::log::{LogConfig, LogId};
use store::suite::StandingClock;
use store::{Condition, DatabaseConfig, Durability, Expiry, Mode, Operation, Store, StoreConfig};
use wire::grpc::Code;
use wire::{Event, RequestHead, StreamKey};

use super::path;
use crate::pair::Pair;
use crate::readers::Readers;

const PUT: Operation<'_> = Operation::Put {
    key: b"key",
    value: b"value",
    condition: Condition::None,
    expiry: Expiry::None,
    want_previous: false,
};

/// A worker over a durable store whose committer runs when the test says so.
struct Bench {
    pair: Pair,
    rounds: Rounds,
    clock: StandingClock,
    /// Calls that have ended: with which code, and whether they may be repeated.
    ended: Vec<(StreamKey, Code, bool)>,
}

impl Bench {
    fn new() -> Bench {
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
        let opened = Store::open(config, Arc::new(SimulatedDisk::new(1)), &log);
        let Opened {
            store, committer, ..
        } = opened.expect("an empty disk is well");
        let rounds = Rounds::new(committer);
        let mailbox = rounds.register(Box::new(|| {}));
        let readers = Readers::Inline(store.clone());
        Bench {
            pair: Pair::over(store, readers, mailbox, Arc::new(|| {})),
            rounds,
            clock: StandingClock { now_ms: 1_000_000 },
            ended: Vec::new(),
        }
    }

    fn open_pipe(&mut self) -> StreamKey {
        let path = path(Method::Pipe);
        let head = RequestHead::call("test", &path);
        let opened = self.pair.client.open(&mut self.pair.sent, &head);
        opened.expect("a stream is free")
    }

    fn send(&mut self, pipe: StreamKey) {
        let mut message = Vec::new();
        PipeRequest::encode(&mut message, "", PipeAnswers::All, Mode::Atomic, 0, &[PUT]);
        let encode = |out: &mut Vec<u8>| out.extend_from_slice(&message);
        (self.pair.client).send_message(pipe, &mut self.pair.sent, encode);
    }

    /// Turns of the worker; the committer gets none.
    fn turn(&mut self) {
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

    fn commit(&mut self) {
        self.turn();
        while self.rounds.round(&mut self.clock) {}
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
    let mut message = Vec::new();
    let request = Request {
        database: "",
        operation: PUT,
    };
    request.encode(&mut message);
    let put = bench.pair.call(&path(Method::Put), &message);
    bench.turn();
    assert_eq!(bench.ended, [], "all go on");
    bench.pair.stop();
    for _ in 0..2 {
        bench.pair.now_ns += drive::limits::DRAIN_MS * 1_000_000;
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
    // What was submitted ends, and the worker with it; the outcomes are for nobody.
    bench.commit();
    assert!(bench.ended.is_empty());
    bench.pair.close();
    bench.turn();
    assert!(bench.pair.worker.is_drained());
}
