//! Calls on databases that are on an engine elsewhere, by a double of one.

use std::sync::Arc;

use api::admin::{
    BackupRequest, CreateDatabaseRequest, CreateDatabaseResponse, DatabaseDescription,
    DatabaseKind, DropDatabaseRequest, DropRoleRequest, RemotePromise as PromiseNumber,
    RevokeTokenRequest,
};
use api::health::{HealthCheckRequest, HealthCheckResponse};
use api::keyvalue::{
    CountRequest, CountResponse, GetRequest, GetResponse, IncrementRequest, IncrementResponse,
    KeyRange, Keys, PipeAnswers, PipeResponse, PutRequest, PutResponse, ScanPage, ScanRequest,
    WatchRequest,
};
use service::Method;
use store::remote::{RemoteOrder, RemotePromise, RemoteShape};
use store::{DatabaseId, Mode, Operation};
use testkit::keyvalue::{encode_batch, encode_pipe, encode_transact};
use testkit::suite::{append, delete, get, put, put_if, remote_config};
use testkit::{RemoteDouble, RemoteFaults};
use wire::Event;
use wire::grpc::Code;

use super::path;
use crate::limits;
use crate::pair::Pair;

struct RemoteServer {
    pair: Pair,
    double: Arc<RemoteDouble>,
}

/// How a call ended.
struct Ended {
    code: Code,
    words: String,
    messages: Vec<Vec<u8>>,
}

impl RemoteServer {
    fn new(shape: RemoteShape) -> RemoteServer {
        let double = RemoteDouble::new(1, remote_config(shape));
        let pair = Pair::elsewhere(Arc::clone(&double) as _);
        RemoteServer { pair, double }
    }

    /// A call with one message; the engine does what it is asked for meanwhile.
    fn call(&mut self, method: Method, encode: impl FnOnce(&mut Vec<u8>)) -> Ended {
        let mut message = Vec::new();
        encode(&mut message);
        self.pair.messages.clear();
        let call = self.pair.call(&path(method), &message);
        for _ in 0..200 {
            let ended = self.pair.turn().contains(&Event::Finished { stream: call });
            if ended {
                let status = self.pair.client.status();
                let (code, words) = (status.code(), status.message().to_owned());
                self.pair.client.forget(call);
                let messages = self.pair.messages.drain(..).map(|(_, message)| message);
                return Ended {
                    code,
                    words,
                    messages: messages.collect(),
                };
            }
            self.double.run();
        }
        panic!("{method:?} does not end");
    }

    fn ok(&mut self, method: Method, encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut ended = self.call(method, encode);
        assert_eq!(ended.code, Code::Ok, "{}", ended.words);
        ended.messages.remove(0)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Ended {
        let request = PutRequest {
            key,
            value,
            ..PutRequest::default()
        };
        self.call(Method::Put, |out| request.encode(out))
    }

    fn get(&mut self, key: &[u8]) -> Ended {
        let request = GetRequest {
            key,
            ..GetRequest::default()
        };
        self.call(Method::Get, |out| request.encode(out))
    }

    fn batch(&mut self, mode: Mode, operations: &[Operation<'_>]) -> Ended {
        self.call(Method::Batch, |out| {
            encode_batch(out, "", mode, 0, operations)
        })
    }

    fn health(&mut self) -> i32 {
        let request = HealthCheckRequest { service: "" };
        let answer = self.ok(Method::HealthCheck, |out| request.encode(out));
        HealthCheckResponse::decode(&answer)
            .expect("it is one")
            .status
    }
}

fn linearizable(order: RemoteOrder) -> RemoteShape {
    RemoteShape::new(RemotePromise::Linearizable, order)
}

#[test]
fn keys_are_written_and_read_as_on_one_machine() {
    let mut server = RemoteServer::new(linearizable(RemoteOrder::Hash));
    for round in 0..2 {
        let answer = server.put(b"key", b"value").messages.remove(0);
        let stored = PutResponse::decode(&answer).expect("it is one");
        assert!(stored.applied && stored.version > 0);
        let answer = server.get(b"key").messages.remove(0);
        let found = GetResponse::decode(&answer).expect("it is one");
        assert!(found.found);
        assert_eq!(
            (found.value, found.version),
            (&b"value"[..], stored.version)
        );
        let answer = server.get(b"none").messages.remove(0);
        assert!(!GetResponse::decode(&answer).expect("it is one").found);
        let request = IncrementRequest {
            key: b"counter",
            delta: 5,
            ..IncrementRequest::default()
        };
        let answer = server.ok(Method::Increment, |out| request.encode(out));
        let sum = IncrementResponse::decode(&answer).expect("it is one");
        assert_eq!(sum.value, 5 * (round + 1));
        let gone = [delete(b"key"), get(b"key")];
        assert_eq!(server.batch(Mode::Independent, &gone).code, Code::Ok);
        assert_eq!(server.double.entries(DatabaseId::DEFAULT).len(), 1);
    }
}

#[test]
fn a_commit_on_one_bucket_takes_effect_as_a_whole_and_on_several_is_refused() {
    let mut server = RemoteServer::new(linearizable(RemoteOrder::Hash));
    let shape = linearizable(RemoteOrder::Hash);
    let keys: Vec<_> = (0..5_000_u32).map(|number| number.to_be_bytes()).collect();
    let alike = |key: &&[u8; 4]| shape.bucket_of(*key) == shape.bucket_of(&keys[0]);
    let same: Vec<_> = keys.iter().filter(alike).take(2).collect();
    let [one, two] = same[..] else {
        panic!("a bucket has some of so many");
    };
    let puts = [put(one, b"1"), put(two, b"2")];
    assert_eq!(server.batch(Mode::Atomic, &puts).code, Code::Ok);
    assert_eq!(server.double.entries(DatabaseId::DEFAULT).len(), 2);
    let unmet = [put(one, b"3"), put_if(two, b"", store::Condition::Absent)];
    assert_eq!(server.batch(Mode::Atomic, &unmet).code, Code::Ok);
    let mut values = server.double.entries(DatabaseId::DEFAULT).into_iter();
    assert!(values.all(|(_, entry)| entry.value != b"3"[..]));
    let other = keys
        .iter()
        .find(|key| !alike(key))
        .expect("there are many buckets");
    let several = [put(one, b"4"), put(two, b"4"), put(other, b"4")];
    let refused = server.batch(Mode::Atomic, &several);
    assert_eq!(refused.code, Code::FailedPrecondition);
    assert!(
        refused.words.contains("operations 0 and 2"),
        "{}",
        refused.words
    );
    let refused = server.call(Method::Transact, |out| {
        let comparisons = [(&one[..], store::Condition::Present)];
        encode_transact(out, "", 0, &comparisons, &[put(other, b"4")], &[]);
    });
    assert_eq!(refused.code, Code::FailedPrecondition, "{}", refused.words);
    assert_eq!(server.batch(Mode::Independent, &several).code, Code::Ok);
    assert_eq!(server.double.entries(DatabaseId::DEFAULT).len(), 3);
}

#[test]
fn a_scan_returns_each_key_once_in_the_order_of_the_database() {
    for order in [RemoteOrder::Hash, RemoteOrder::Merged] {
        let mut server = RemoteServer::new(linearizable(order));
        let keys: Vec<_> = (0..300_u32).map(|number| number.to_be_bytes()).collect();
        let value = vec![7; 12_000];
        for keys in keys.chunks(50) {
            let puts: Vec<_> = keys.iter().map(|key| put(key, &value)).collect();
            assert_eq!(server.batch(Mode::Independent, &puts).code, Code::Ok);
        }
        let mut expected: Vec<_> = keys[10..].iter().map(|key| key.to_vec()).collect();
        if order == RemoteOrder::Hash {
            let shape = linearizable(order);
            expected.sort_by_key(|key| (shape.bucket_of(key), key.clone()));
        }
        let in_range = Some(Keys::Range(KeyRange {
            start: &keys[10],
            end: &[],
        }));
        // At once, and in two scans.
        for (limit, start_after) in [(0, None), (100, None), (0, Some(&expected[99]))] {
            let request = ScanRequest {
                keys: in_range,
                limit,
                start_after: start_after.map(|key| &key[..]),
                ..ScanRequest::default()
            };
            let ended = server.call(Method::Scan, |out| request.encode(out));
            assert_eq!(ended.code, Code::Ok, "{}", ended.words);
            let mut found = Vec::new();
            for page in &ended.messages {
                let page = ScanPage::decode(page).expect("it is one");
                let entries = page.entries.iter().map(|entry| entry.expect("it is whole"));
                found.extend(entries.map(|entry| entry.key.to_vec()));
            }
            match (limit, start_after) {
                (0, None) => assert_eq!(found, expected),
                (0, Some(_)) => assert_eq!(found, expected[100..]),
                _ => assert_eq!(found, expected[..100]),
            }
            assert!(
                limit != 0 || ended.messages.len() > 1,
                "there are several pages"
            );
        }
        let request = CountRequest {
            keys: in_range,
            ..CountRequest::default()
        };
        let answer = server.ok(Method::Count, |out| request.encode(out));
        let counted = CountResponse::decode(&answer).expect("it is one");
        assert_eq!((counted.count, counted.exact), (290, true));
    }
}

#[test]
fn batches_of_a_pipe_take_effect_in_their_order() {
    let mut server = RemoteServer::new(linearizable(RemoteOrder::Hash));
    let batch = |letter: &[u8]| {
        let mut message = Vec::new();
        let operations = [append(b"key", letter), get(b"key")];
        let answers = PipeAnswers::All;
        encode_pipe(&mut message, "", answers, Mode::Independent, 0, &operations);
        message
    };
    let stream = (server.pair).call_with((&path(Method::Pipe), None), &batch(b"a"), false);
    for letter in [b"b", b"c", b"d"] {
        let message = batch(letter);
        (server.pair.client).send_message(stream, &mut server.pair.sent, |out| {
            out.extend_from_slice(&message);
        });
    }
    server.pair.messages.clear();
    for _ in 0..100 {
        server.pair.turn();
        server.double.step();
    }
    let done = server.pair.messages.iter().map(|(_, message)| {
        let response = PipeResponse::decode(message).expect("it is one");
        response.batch_number
    });
    let done: Vec<_> = done.collect();
    assert_eq!(done.len(), 4);
    assert!(done.is_sorted(), "{done:?}");
    let entries = server.double.entries(DatabaseId::DEFAULT);
    assert_eq!(entries[0].1.value, b"abcd"[..]);
}

#[test]
fn what_a_quorum_does_not_promise_names_the_other_promise() {
    let shape = RemoteShape::new(RemotePromise::Quorum, RemoteOrder::Hash);
    let mut server = RemoteServer::new(shape);
    assert_eq!(server.put(b"key", b"value").code, Code::Ok);
    for operation in [
        append(b"key", b"more"),
        testkit::suite::increment(b"key", 1),
        put_if(b"key", b"", store::Condition::Absent),
    ] {
        let refused = server.batch(Mode::Independent, &[put(b"other", b""), operation]);
        assert_eq!(refused.code, Code::FailedPrecondition);
        assert!(refused.words.contains("operation 1 "), "{}", refused.words);
        assert!(refused.words.contains("linearizable"), "{}", refused.words);
    }
    let entries = server.double.entries(DatabaseId::DEFAULT);
    assert_eq!(entries.len(), 1, "nothing was done");
}

#[test]
fn what_no_engine_can_do_is_not_implemented_and_says_what_to_use() {
    let mut server = RemoteServer::new(linearizable(RemoteOrder::Hash));
    let watch = server.call(Method::Watch, |out| WatchRequest::default().encode(out));
    let backup = server.call(Method::AdminBackup, |out| {
        BackupRequest { name: "backup" }.encode(out);
    });
    let snapshot = server.call(Method::AdminSnapshot, |_| ());
    let blobs = server.call(Method::BlobList, |_| ());
    for (ended, word) in [
        (watch, "scan"),
        (backup, "pelton export"),
        (snapshot, "snapshots"),
        (blobs, "data folder"),
    ] {
        assert_eq!(ended.code, Code::Unimplemented, "{}", ended.words);
        assert!(ended.words.contains(word), "{}", ended.words);
    }
}

/// A token that is made here would be gone with the end of this server, and unknown to others.
#[test]
fn tokens_and_roles_are_listed_and_not_changed() {
    let mut server = RemoteServer::new(linearizable(RemoteOrder::Hash));
    let revoke = server.call(Method::AdminRevokeToken, |out| {
        RevokeTokenRequest {
            name: "admin",
            confirm_name: "admin",
        }
        .encode(out);
    });
    let drop = server.call(Method::AdminDropRole, |out| {
        DropRoleRequest { name: "reader" }.encode(out);
    });
    for ended in [revoke, drop] {
        assert_eq!(ended.code, Code::Unimplemented, "{}", ended.words);
        assert!(
            ended.words.contains("--admin-token-file"),
            "{}",
            ended.words
        );
    }
    server.ok(Method::AdminListTokens, |_| ());
    server.ok(Method::AdminListRoles, |_| ());
}

#[test]
fn databases_are_made_and_dropped_in_the_engine() {
    let mut server = RemoteServer::new(linearizable(RemoteOrder::Hash));
    for _ in 0..2 {
        let database = DatabaseDescription {
            name: "other",
            promise: PromiseNumber::Quorum.number(),
            buckets: 3,
            ..DatabaseDescription::default()
        };
        for is_new in [true, false] {
            let answer = server.ok(Method::AdminCreateDatabase, |out| {
                let database = Some(database);
                CreateDatabaseRequest { database }.encode(out);
            });
            let answer = CreateDatabaseResponse::decode(&answer).expect("it is one");
            assert_eq!(answer.created, is_new);
            let made = answer.database.expect("it says what it is");
            assert_eq!(
                (made.kind, made.buckets),
                (DatabaseKind::Remote.number(), 3)
            );
            assert_eq!(made.promise, PromiseNumber::Quorum.number());
        }
        let in_other = PutRequest {
            database: "other",
            key: b"key",
            ..PutRequest::default()
        };
        server.ok(Method::Put, |out| in_other.encode(out));
        let mut request = DropDatabaseRequest {
            name: "other",
            confirm_name: "",
        };
        let refused = server.call(Method::AdminDropDatabase, |out| request.encode(out));
        assert_eq!(refused.code, Code::InvalidArgument, "{}", refused.words);
        request.confirm_name = "other";
        server.ok(Method::AdminDropDatabase, |out| request.encode(out));
        let gone = server.call(Method::Put, |out| in_other.encode(out));
        assert_eq!(gone.code, Code::NotFound);
    }
    let here = DatabaseDescription {
        name: "here",
        kind: DatabaseKind::Memory.number(),
        ..DatabaseDescription::default()
    };
    let refused = server.call(Method::AdminCreateDatabase, |out| {
        let database = Some(here);
        CreateDatabaseRequest { database }.encode(out);
    });
    assert_eq!(refused.code, Code::FailedPrecondition, "{}", refused.words);
}

#[test]
fn a_write_whose_outcome_is_not_known_is_unknown_and_never_a_failure() {
    let mut server = RemoteServer::new(linearizable(RemoteOrder::Hash));
    server.double.set_faults(RemoteFaults {
        unknown: 1,
        ..RemoteFaults::default()
    });
    let ended = server.put(b"key", b"value");
    assert_eq!(ended.code, Code::Unknown);
    assert!(
        ended.words.starts_with("outcome unknown"),
        "{}",
        ended.words
    );
    server.double.set_faults(RemoteFaults {
        timed_out: 1,
        ..RemoteFaults::default()
    });
    for ended in [server.put(b"key", b"value"), server.get(b"key")] {
        assert_eq!(ended.code, Code::Unavailable);
        assert!(ended.words.contains("nothing was done"), "{}", ended.words);
    }
}

#[test]
fn health_follows_the_engine() {
    let mut server = RemoteServer::new(linearizable(RemoteOrder::Hash));
    let (serving, not_serving) = (1, 2);
    for _ in 0..2 {
        assert_eq!(server.health(), serving);
        server.double.set_faults(RemoteFaults {
            has_no_quorum: true,
            ..RemoteFaults::default()
        });
        assert_eq!(server.get(b"key").code, Code::Unavailable);
        server.pair.now_ns += limits::REMOTE_LOOK_MS * 1_000_000;
        server.pair.turn();
        assert_eq!(server.health(), not_serving);
        server.double.set_faults(RemoteFaults::default());
        server.pair.now_ns += limits::REMOTE_LOOK_MS * 1_000_000;
        server.pair.turn();
        assert_eq!(server.get(b"key").code, Code::Ok);
    }
    let said = server.pair.said.lock().expect("one thread");
    let about_it = said.iter().filter(|line| line.contains("storage engine"));
    assert_eq!(about_it.count(), 4, "{said:?}");
}

/// What another server makes is found within the time of a look.
#[test]
fn databases_of_other_servers_are_found() {
    let mut server = RemoteServer::new(linearizable(RemoteOrder::Hash));
    let config = remote_config(linearizable(RemoteOrder::Merged));
    server.double.create_by_another("theirs", config);
    let request = GetRequest {
        database: "theirs",
        key: b"key",
        ..GetRequest::default()
    };
    server.pair.now_ns += limits::REMOTE_LOOK_MS * 1_000_000;
    server.pair.turn();
    server.ok(Method::Get, |out| request.encode(out));
}
