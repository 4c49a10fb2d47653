//! What is called, and how answers count; whole runs of it against servers of a few lines.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use api::keyvalue::{
    AppendRequest, BatchRequest, BatchResponse, IncrementRequest, OperationKind, PipeRequest,
    PipeResponse, PutRequest,
};
use client::Code;
use common::{Asked, Reply, Server, plan};
use lab::{
    Distribution, KeyUse, KvstoreLeft, KvstoreLoad, KvstoreReport, KvstoreWorkload, Length, Mix,
    PeltonLoad, PeltonShape, PeltonWorkload, Ping, PingTable, Report, SameRequest, ValueSizes,
    Verdict, Workload, limits, run,
};
use protobuf::{Reader, writer};
use service::settings::simulate::Delays;

fn load(mix: &str, shape: PeltonShape) -> PeltonLoad {
    PeltonLoad {
        mix: mix.parse().expect(mix),
        shape,
        database: "db".into(),
        keys: 50,
        key_bytes: 16,
        distribution: Distribution::Sequential,
        values: ValueSizes::Fixed(20),
    }
}

fn key_of(kind: OperationKind, request: &[u8]) -> &[u8] {
    let key = match kind {
        OperationKind::Put => PutRequest::decode(request).map(|request| request.key),
        OperationKind::Append => AppendRequest::decode(request).map(|request| request.key),
        OperationKind::Increment => IncrementRequest::decode(request).map(|request| request.key),
        _ => panic!("{kind:?} is not one that is tested"),
    };
    key.expect("it is well formed")
}

/// The answer of a Pipe to its first batch.
fn piped(applied: bool) -> Vec<u8> {
    let mut out = Vec::new();
    PipeResponse {
        done: 1,
        batch_number: 1,
        batch: Some(BatchResponse {
            applied,
            ..BatchResponse::default()
        }),
        ..PipeResponse::default()
    }
    .encode(&mut out);
    out
}

fn encoded(workload: &mut impl Workload) -> Vec<u8> {
    let mut out = Vec::new();
    workload.encode(&mut out);
    out
}

// --- pelton.v1.KeyValue

#[test]
fn sizes_have_a_mean_and_a_maximum() {
    let (fixed, exponential) = (ValueSizes::Fixed(70), ValueSizes::Exponential(70));
    assert_eq!((fixed.mean_bytes(), fixed.max_bytes()), (70, 70));
    let most = 70 * limits::EXPONENTIAL_MAX_MEANS;
    assert_eq!(
        (exponential.mean_bytes(), exponential.max_bytes()),
        (70, most)
    );
}

#[test]
fn only_some_mixes_read() {
    for (mix, has_reads) in [
        ("get=1,put=99", true),
        ("put=100", false),
        ("delete=100", false),
        ("insert=90,scan=10", true),
    ] {
        assert_eq!(
            mix.parse::<Mix>().expect(mix).has_reads(),
            has_reads,
            "{mix}"
        );
    }
}

/// The largest numbers that are good, and the first that are not.
#[test]
fn bounds_of_a_load_are_exact() {
    let good = load("get=100", PeltonShape::Single);
    let problem = |keys: u64, key_bytes: usize, shape: PeltonShape| {
        let load = PeltonLoad {
            keys,
            key_bytes,
            shape,
            ..good.clone()
        };
        load.problem().unwrap_or_default()
    };
    let single = PeltonShape::Single;
    assert_eq!(problem(1, 16, single), "");
    assert!(problem(0, 16, single).contains("1 to"));
    assert_eq!(problem(limits::MAX_KEYS, 16, single), "");
    assert!(problem(limits::MAX_KEYS + 1, 16, single).contains("1 to"));
    // 256 keys of two digits: half of them for counters.
    assert_eq!(problem(128, 2, single), "");
    assert!(problem(129, 2, single).contains("129 keys and as many counters"));
    for shape in [PeltonShape::Batch, PeltonShape::Pipe] {
        assert!(problem(1, 16, shape(0)).contains("at least one"));
        assert_eq!(problem(1, 16, shape(1)), "");
        assert_eq!(problem(1, 16, shape(limits::MAX_BATCH)), "");
        let most = problem(1, 16, shape(limits::MAX_BATCH + 1));
        assert!(
            most.contains("at most 10000 operations, not 10001"),
            "{most}"
        );
    }
}

#[test]
fn methods_stand_in_the_order_of_the_kinds() {
    let path = |name: &str| format!("/pelton.v1.KeyValue/{name}");
    let paths = |shape| PeltonWorkload::new(&load("get=100", shape), 1, 0, 1).paths();
    let each = [
        "Get",
        "Put",
        "Delete",
        "Append",
        "Increment",
        "Batch",
        "Scan",
    ]
    .map(path);
    assert_eq!(paths(PeltonShape::Single), each);
    assert_eq!(paths(PeltonShape::Batch(2)), each);
    assert_eq!(paths(PeltonShape::Pipe(2)), [path("Pipe")]);
    for (shape, kind, records) in [
        (PeltonShape::Single, 0, 1),
        (PeltonShape::Batch(3), 5, 3),
        (PeltonShape::Pipe(4), 0, 4),
    ] {
        let mut workload = PeltonWorkload::new(&load("get=100", shape), 1, 0, 1);
        assert_eq!(
            (workload.choose(), workload.records_per_call()),
            (kind, records)
        );
        assert_eq!(workload.is_pipe(), matches!(shape, PeltonShape::Pipe(_)));
        assert!(!workload.has_pipe_for_each());
    }
}

/// All keys in turn; counters are others, since a value that is no number cannot be added to.
#[test]
fn counters_stand_beside_the_other_keys() {
    let keys = |mix: &str, operation| -> BTreeSet<Vec<u8>> {
        let mut workload = PeltonWorkload::new(&load(mix, PeltonShape::Single), 1, 0, 1);
        let keys = (0..50).map(|_| {
            workload.choose();
            let bytes = encoded(&mut workload);
            key_of(operation, &bytes).to_vec()
        });
        keys.collect()
    };
    let values = keys("put=100", OperationKind::Put);
    let counters = keys("incr=100", OperationKind::Increment);
    assert_eq!((values.len(), counters.len()), (50, 50));
    assert_eq!(values.intersection(&counters).count(), 0);
    assert_eq!(values, keys("append=100", OperationKind::Append));
}

#[test]
fn messages_of_a_pipe_are_batches() {
    let mut workload = PeltonWorkload::new(&load("put=100", PeltonShape::Pipe(7)), 1, 0, 1);
    let message = encoded(&mut workload);
    let request = PipeRequest::decode(&message).expect("it is well formed");
    assert_eq!((request.database, request.operations.len()), ("db", 7));
    let mut workload = PeltonWorkload::new(&load("put=100", PeltonShape::Batch(7)), 1, 0, 1);
    let message = encoded(&mut workload);
    let request = BatchRequest::decode(&message).expect("it is well formed");
    assert_eq!((request.database, request.operations.len()), ("db", 7));
}

#[test]
fn answers_of_each_kind_are_judged() {
    // The first field of each returns whether it found, did or changed something.
    let (yes, no, garbage) = (&b"\x08\x01"[..], &b""[..], &b"\xff\xff"[..]);
    let single = PeltonWorkload::new(&load("get=100", PeltonShape::Single), 1, 0, 1);
    for kind in 0..6 {
        let without = if kind == 0 || kind == 2 {
            Verdict::Miss
        } else {
            Verdict::NoEffect
        };
        assert_eq!(single.judge(kind, 0, yes), Verdict::Good, "{kind}");
        assert_eq!(single.judge(kind, 0, no), without, "{kind}");
        assert_eq!(
            single.judge(kind, 0, garbage),
            Verdict::Unreadable,
            "{kind}"
        );
    }
    let pipe = PeltonWorkload::new(&load("get=100", PeltonShape::Pipe(1)), 1, 0, 1);
    assert_eq!(pipe.judge(0, 0, &piped(true)), Verdict::Good);
    assert_eq!(pipe.judge(0, 0, &piped(false)), Verdict::NoEffect);
    assert_eq!(
        pipe.judge(0, 0, no),
        Verdict::NoEffect,
        "there is no batch in it"
    );
    assert_eq!(pipe.judge(0, 0, garbage), Verdict::Unreadable);
}

/// Each third batch has no effect.
#[test]
fn batches_of_a_pipe_are_counted_by_their_answers() {
    let server = Server::new(|asked| Reply::Message(piped(asked.number % 3 != 2)));
    let mut plan = plan(&server, Length::Calls(30));
    plan.worker.in_flight = 4;
    let load = load("put=100", PeltonShape::Pipe(5));
    let make = |thread| PeltonWorkload::new(&load, 1, thread, 1);
    let outcome = run(&plan, make, &mut |_| true).expect("the server is there");
    assert_eq!(outcome.counters.begun, 1, "one call for all of them");
    assert_eq!((outcome.tally.succeeded, outcome.tally.ended), (20, 30));
    assert_eq!(outcome.tally.failed, [(lab::FailureKind::NoEffect, 10)]);
    let report = Report::new("Pipe".into(), &plan, outcome, 5);
    let fields = report.fields();
    let per_s = |name: &str| fields[name].as_f64().expect(name);
    // Two thirds of the batches have put their records.
    let records_per_call = per_s("records_per_s") / per_s("calls_per_s");
    assert!((records_per_call - 5.0 * 2.0 / 3.0).abs() < 1e-3);
}

/// What keeps no account of its calls needs no names for them.
#[test]
fn calls_without_an_account_have_no_tickets() {
    let request = SameRequest::new("/t.T/Echo".into(), Vec::new());
    let pelton = PeltonWorkload::new(&load("get=100", PeltonShape::Single), 1, 0, 1);
    let ping = Ping { streaming: true };
    assert_eq!([request.ticket(), pelton.ticket(), ping.ticket()], [0; 3]);
    assert_eq!(
        (request.records_per_call(), ping.records_per_call()),
        (1, 1)
    );
    assert!(!request.is_pipe() && !request.has_pipe_for_each());
}

// --- io.grpc.KeyValueService

/// A server of that service, and how many calls of each kind it has answered.
#[derive(Default)]
struct Kvstore {
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
    calls: [u64; 4],
    not_found: u64,
    already_exists: u64,
}

impl Kvstore {
    fn answer(&mut self, asked: &Asked<'_>) -> Reply {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        Reader::new(asked.message)
            .for_each(|field, given| {
                *(if field == 1 { &mut key } else { &mut value }) = given.bytes()?.to_vec();
                Ok(())
            })
            .expect("it is well formed");
        let method = asked.path.strip_prefix("/io.grpc.KeyValueService/");
        let names = ["Create", "Retrieve", "Update", "Delete"];
        let kind = names.iter().position(|name| Some(*name) == method);
        let kind = kind.expect("there is such a method");
        self.calls[kind] += 1;
        let found = self.entries.get(&key);
        match (kind, found) {
            (0, Some(_)) => {
                self.already_exists += 1;
                return Reply::Status(Code::AlreadyExists, "it is there");
            }
            (1, Some(value)) => {
                let mut out = Vec::new();
                writer::bytes(&mut out, 1, value);
                return Reply::Answer(out);
            }
            (1 | 2, None) => {
                self.not_found += 1;
                return Reply::Status(Code::NotFound, "it is not there");
            }
            (3, _) => drop(self.entries.remove(&key)),
            _ => drop(self.entries.insert(key, value)),
        }
        Reply::Answer(Vec::new())
    }
}

const LOAD: KvstoreLoad = KvstoreLoad {
    keys: KeyUse::Shared,
    key_mean_bytes: 16,
    value_mean_bytes: 100,
};

const DELAYS: Delays = Delays {
    read_ms: 10,
    write_ms: 50,
    serial: false,
};

/// What the report says of calls and races is what the server counted, and its keys are known
/// afterwards.
#[test]
fn a_run_of_the_kvstore_is_what_the_server_saw() {
    let kvstore = Arc::new(Mutex::new(Kvstore::default()));
    let server = {
        let kvstore = Arc::clone(&kvstore);
        Server::new(move |asked| kvstore.lock().expect("nobody panics").answer(asked))
    };
    let mut plan = plan(&server, Length::Calls(2_000));
    plan.worker.in_flight = 20;
    let left = KvstoreLeft::default();
    let make = |_| KvstoreWorkload::new(LOAD, 7).leaving(&left);
    let outcome = run(&plan, make, &mut |_| true).expect("the server is there");
    assert_eq!(
        (outcome.tally.succeeded, outcome.tally.failures()),
        (2_000, 0)
    );
    let report = Report::new("kvstore".into(), &plan, outcome, 1);
    let report = KvstoreReport::new(report, LOAD.keys, 20, true, DELAYS);
    let fields = report.fields();
    {
        let seen = kvstore.lock().expect("nobody panics");
        assert!(
            seen.calls.iter().all(|&calls| calls > 300),
            "{:?}",
            seen.calls
        );
        assert!(
            seen.not_found > 0,
            "twenty at a time race for the same keys"
        );
        let names = [
            "create_calls",
            "retrieve_calls",
            "update_calls",
            "delete_calls",
        ];
        for (name, calls) in names.iter().zip(seen.calls) {
            assert_eq!(fields[*name], calls, "{name}");
        }
        assert_eq!(fields["races_not_found"], seen.not_found);
        assert_eq!(fields["races_already_exists"], seen.already_exists);
        assert_eq!(fields["misses"], seen.not_found + seen.already_exists);
    }
    let text = report.text();
    assert!(
        text.contains("at most: 20 at a time, 40.00 ms each: 500.00 RPCs/s"),
        "{text}"
    );

    // What is left is deleted, key by key.
    let (deletes, count) = left.take(LOAD, 7);
    let there = kvstore.lock().expect("nobody panics").entries.len();
    assert!(there > 0 && count >= there as u64, "{count} of {there}");
    plan.length = Length::Calls(count);
    let outcome = run(&plan, |_| deletes.again(), &mut |_| true).expect("the server is there");
    assert_eq!(outcome.tally.succeeded, count);
    assert!(kvstore.lock().expect("nobody panics").entries.is_empty());
}

/// A server that loses what it was given is found out where keys are owned.
#[test]
fn a_server_with_other_values_fails_the_calls() {
    let kvstore = Mutex::new(Kvstore::default());
    let server = Server::new(move |asked| {
        let mut kvstore = kvstore.lock().expect("nobody panics");
        match kvstore.answer(asked) {
            Reply::Answer(mut value) if value.len() > 1 => {
                *value.last_mut().expect("it is not empty") ^= 1;
                Reply::Answer(value)
            }
            other => other,
        }
    });
    let mut plan = plan(&server, Length::Calls(200));
    plan.worker.in_flight = 5;
    let load = KvstoreLoad {
        keys: KeyUse::Owned,
        ..LOAD
    };
    let make = |_| KvstoreWorkload::new(load, 7);
    let outcome = run(&plan, make, &mut |_| true).expect("the server is there");
    let [(lab::FailureKind::WrongValue, wrong)] = outcome.tally.failed[..] else {
        panic!("{:?}", outcome.tally.failed);
    };
    assert!(
        wrong > 10 && wrong == outcome.tally.ended_by_kind[1],
        "{wrong}"
    );
}

// --- Ydb.Debug.V1.DebugService

/// Streams: each ping in flight has its own. The table has what the run counted.
#[test]
fn pings_are_counted_for_each_worker() {
    let server = Server::new(|asked| {
        let mut out = Vec::new();
        writer::uint64(&mut out, 1, 7);
        match asked.path {
            "/Ydb.Debug.V1.DebugService/PingStream" => Reply::Message(out),
            "/Ydb.Debug.V1.DebugService/PingPlainGrpc" => Reply::Answer(out),
            _ => Reply::Status(Code::Unimplemented, "no such method"),
        }
    });
    let mut table = PingTable::default();
    for streaming in [true, false] {
        let mut plan = plan(&server, Length::Calls(90));
        plan.connections = 2;
        plan.worker.in_flight = 3;
        let ping = Ping { streaming };
        let outcome = run(&plan, |_| ping, &mut |_| true).expect("the server is there");
        assert_eq!((outcome.tally.succeeded, outcome.tally.ended), (90, 90));
        assert_eq!(outcome.counters.begun, if streaming { 6 } else { 90 });
        table.add(6, &outcome);
        let elapsed_s = outcome.elapsed_ns as f64 / 1e9;
        let near = |value: f64, calls: f64| {
            assert!((value * elapsed_s / calls - 1.0).abs() < 1e-6, "{value}");
        };
        let row = table.rows().last().expect("it was added");
        near(row["calls_per_s"].as_f64().expect("a number"), 90.0);
        let workers: Vec<f64> = table
            .workers()
            .map(|worker| worker["calls_per_s"].as_f64().expect("a number"))
            .collect();
        assert_eq!(workers.len(), 6);
        near(workers.iter().sum(), 90.0);
    }
    assert_eq!(table.rows().count(), 2);
}
