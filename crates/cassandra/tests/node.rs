//! The backend on a node of Cassandra. A program without the harness of tests, as all cases share
//! one node, which ends with it: `cargo test -p pelton-cassandra --test node [PART OF A NAME]`.

mod support;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cassandra::{Cassandra, CassandraConfig, InitError, InitOptions, init};
use store::remote::{
    RemoteBackend, RemoteError, RemoteHealth, RemoteOrder, RemotePromise, RemoteShape,
};
use store::tree::PageRequest;
use store::{
    Condition, DatabaseConfig, DatabaseId, Decision, Direction, DropError, Durability, Expiry,
    Kind, Mode, Operation, Range, ReadView, Refusal, ScanEnd, TransactList,
};
use support::{CassandraNode, fresh_keyspace, start_node, wall_clock_us};
use testkit::suite::{RemoteBench, RemoteTarget, run_remote};

type Case = (&'static str, fn(&CassandraNode));

const CASES: [Case; 11] = [
    ("schema", schema),
    ("large_and_empty", large_and_empty),
    ("every_key_once", every_key_once),
    ("batches_of_one_bucket", batches_of_one_bucket),
    ("databases_of_two_gateways", databases_of_two_gateways),
    ("expired_rows_before_an_entry", expired_rows_before_an_entry),
    ("many_keys_of_one_bucket", many_keys_of_one_bucket),
    ("counters_of_two_gateways", counters_of_two_gateways),
    ("last_write_wins", last_write_wins),
    ("suite", suite),
    // Last, as the node is frozen.
    ("a_frozen_node", a_frozen_node),
];

fn main() {
    let parts: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let is_wanted = |name: &str| parts.is_empty() || parts.iter().any(|part| name.contains(part));
    let wanted: Vec<Case> = CASES
        .into_iter()
        .filter(|(name, _)| is_wanted(name))
        .collect();
    if !wanted.is_empty() {
        let Some(node) = start_node() else { return };
        for (name, case) in wanted {
            timed(name, || case(&node));
        }
    }
    #[cfg(feature = "tls")]
    if is_wanted("password_and_tls") {
        timed("password_and_tls", password_and_tls);
    }
}

fn timed(name: &str, case: impl FnOnce()) {
    let begin = Instant::now();
    println!("case {name}");
    case();
    println!("case {name}: {:?}", begin.elapsed());
}

fn config_of(promise: RemotePromise, order: RemoteOrder, buckets: u16) -> DatabaseConfig {
    let shape = RemoteShape {
        promise,
        order,
        buckets,
    };
    let config = DatabaseConfig {
        durability: Durability::Synced,
        ..DatabaseConfig::default()
    };
    config.of_kind(Kind::Remote(shape))
}

/// Makes a client of a gateway.
fn bench_of(gateway: Cassandra) -> RemoteBench {
    RemoteBench::new(RemoteTarget {
        backend: Arc::new(gateway),
        drive: Box::new(|| std::thread::sleep(Duration::from_micros(200))),
        set_now_ms: None,
    })
}

/// Makes a keyspace and a client of it.
fn bench(
    node: &CassandraNode,
    name: &str,
    config: DatabaseConfig,
) -> (RemoteBench, CassandraConfig) {
    let gateway = node.config(&fresh_keyspace(name));
    (bench_of(node.open(&gateway, config)), gateway)
}

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> (TransactList, Operation<'a>) {
    let put = Operation::Put {
        key,
        value,
        condition: Condition::None,
        expiry: Expiry::None,
        want_previous: false,
    };
    (TransactList::Compares, put)
}

fn get(key: &[u8]) -> (TransactList, Operation<'_>) {
    (TransactList::Compares, Operation::Get { key })
}

fn increment(key: &[u8]) -> (TransactList, Operation<'_>) {
    let increment = Operation::Increment {
        key,
        delta: 1,
        initial: 0,
        condition: Condition::None,
    };
    (TransactList::Compares, increment)
}

/// Carries out one operation, which must take effect; returns the value of a Get.
fn one(bench: &mut RemoteBench, operation: (TransactList, Operation<'_>)) -> Option<Vec<u8>> {
    let outcomes = bench.commit(DatabaseId::DEFAULT, Mode::Atomic, &[operation]);
    let outcome = outcomes.get(0);
    assert_eq!(outcome.decision, Decision::Applied);
    let first = outcome.first().expect("there is one operation");
    first.value.map(|value| value.to_vec())
}

/// Only `init` makes tables, a start names what is missing, and twice changes nothing.
fn schema(node: &CassandraNode) {
    let gateway = node.config(&fresh_keyspace("schema"));
    let missing = Cassandra::start(&gateway).expect_err("there is no such keyspace");
    assert!(missing.to_string().contains("store init"), "{missing}");
    let options = InitOptions {
        replicas: 1,
        default_config: config_of(RemotePromise::Linearizable, RemoteOrder::Hash, 8),
    };
    let report = init(&gateway, options).expect("it is made");
    assert!(report.has_made_database);
    let report = init(&gateway, options).expect("it is there");
    assert!(!report.has_made_database);
    let opened = Cassandra::start(&gateway).expect("it is ready");
    assert_eq!(opened.catalogue().databases.len(), 1);
    assert_eq!(opened.health(), RemoteHealth::Serving);

    let runtime = tokio::runtime::Runtime::new().expect("the machine has threads");
    runtime.block_on(async {
        let session = scylla::client::session_builder::SessionBuilder::new();
        let session = session
            .known_node(&node.address)
            .build()
            .await
            .expect("the node answers");
        let alter = format!("ALTER TABLE {}.quorum DROP head", gateway.keyspace);
        session
            .query_unpaged(alter, &[])
            .await
            .expect("the column is dropped");
    });
    let wrong = Cassandra::start(&gateway).expect_err("a column is missing");
    assert!(matches!(wrong, InitError::Schema { .. }));
    assert!(
        wrong
            .to_string()
            .contains("table `quorum` has no column `head`"),
        "{wrong}"
    );
}

/// What may be stored can be read: the largest value, the longest key, nothing at all.
fn large_and_empty(node: &CassandraNode) {
    for promise in [RemotePromise::Linearizable, RemotePromise::Quorum] {
        let config = config_of(promise, RemoteOrder::Hash, 4);
        let (mut bench, _) = bench(node, "large", config);
        let (long, large) = (vec![b'k'; config.limits.key_bytes], vec![b'v'; 4_000_000]);
        for (key, value) in [
            (&b""[..], &b""[..]),
            (b"key", &large),
            (&long, b"x"),
            (b"e", b""),
        ] {
            one(&mut bench, put(key, value));
            let found = one(&mut bench, get(key)).expect("it was put");
            assert!(found == value, "{promise}, {} bytes", value.len());
        }
        let keys = scan_keys(&mut bench);
        assert_eq!(keys.len(), 4);
        let delete = Operation::Delete {
            key: b"",
            condition: Condition::None,
            want_previous: false,
        };
        one(&mut bench, (TransactList::Compares, delete));
        assert_eq!(one(&mut bench, get(b"")), None);
        assert_eq!(scan_keys(&mut bench).len(), 3);
    }
}

/// Returns the keys of the default database in the order in which pages bring them.
fn scan_keys(bench: &mut RemoteBench) -> Vec<Vec<u8>> {
    let page = PageRequest {
        direction: Direction::Forward,
        keys_only: false,
        rows: 100,
        entries: 100,
        bytes: 1 << 20,
    };
    let mut keys: Vec<Vec<u8>> = Vec::new();
    let mut passed: Option<Vec<u8>> = None;
    loop {
        let fetched = bench.read(DatabaseId::DEFAULT, |plan| {
            plan.page_behind(&Range::ALL, passed.as_deref(), page);
        });
        let call = fetched.fetched().calls().next().expect("one was asked for");
        let view = ReadView::fetched(&call).expect("it was read");
        let now_ms = wall_clock_us() / 1000;
        let end = view.scan(&Range::ALL, Direction::Forward, now_ms, 100, &mut |entry| {
            keys.push(entry.key.to_vec());
            ControlFlow::Continue(())
        });
        match end.expect("it was planned") {
            ScanEnd::Complete => return keys,
            ScanEnd::BudgetSpent(key) => passed = Some(key.to_vec()),
            ScanEnd::Stopped => panic!("the visitor goes on"),
        }
    }
}

/// A scan brings each key once, in either order of a database.
fn every_key_once(node: &CassandraNode) {
    for (promise, order) in [
        (RemotePromise::Linearizable, RemoteOrder::Hash),
        (RemotePromise::Linearizable, RemoteOrder::Merged),
        (RemotePromise::Quorum, RemoteOrder::Hash),
        (RemotePromise::Quorum, RemoteOrder::Merged),
    ] {
        let (mut bench, _) = bench(node, "scan", config_of(promise, order, 16));
        assert_eq!(scan_keys(&mut bench), Vec::<Vec<u8>>::new());
        let keys: Vec<String> = (0..1000).map(|number| format!("key-{number:04}")).collect();
        for part in keys.chunks(250) {
            let operations: Vec<_> = part
                .iter()
                .map(|key| put(key.as_bytes(), b"value"))
                .collect();
            bench.add(1, DatabaseId::DEFAULT, Mode::Independent, &operations);
            for outcomes in bench.run() {
                assert_eq!(outcomes.get(0).decision, Decision::Applied);
            }
        }
        let mut found = scan_keys(&mut bench);
        if order == RemoteOrder::Hash {
            found.sort();
        }
        let keys: Vec<Vec<u8>> = keys.into_iter().map(String::into_bytes).collect();
        assert!(found == keys, "{promise}, {order}: {} keys", found.len());
    }
}

/// Several keys of one bucket change together or not at all, also beside keys that are only read.
fn batches_of_one_bucket(node: &CassandraNode) {
    let config = config_of(RemotePromise::Linearizable, RemoteOrder::Hash, 1);
    let (mut bench, _) = bench(node, "batches", config);
    let keys: Vec<String> = (0..100).map(|number| format!("key-{number}")).collect();
    let operations: Vec<_> = keys.iter().map(|key| put(key.as_bytes(), b"1")).collect();
    let outcomes = bench.commit(DatabaseId::DEFAULT, Mode::Atomic, &operations);
    assert_eq!(outcomes.get(0).decision, Decision::Applied);

    let compare = |key, condition| {
        (
            TransactList::Compares,
            Operation::Compare { key, condition },
        )
    };
    let then = |key| (TransactList::Then, put(key, b"2").1);
    let holds = [
        compare(b"key-1", Condition::ValueIs(b"1")),
        compare(b"none", Condition::Absent),
        then(b"key-2"),
        then(b"new"),
    ];
    let outcomes = bench.commit(DatabaseId::DEFAULT, Mode::Transact, &holds);
    assert_eq!(outcomes.get(0).unmet_compare, None);
    assert_eq!(one(&mut bench, get(b"key-2")).as_deref(), Some(&b"2"[..]));
    assert_eq!(one(&mut bench, get(b"new")).as_deref(), Some(&b"2"[..]));
    assert_eq!(one(&mut bench, get(b"key-1")).as_deref(), Some(&b"1"[..]));
    assert_eq!(one(&mut bench, get(b"none")), None);
    let fails = [compare(b"new", Condition::Absent), then(b"key-3")];
    let outcomes = bench.commit(DatabaseId::DEFAULT, Mode::Transact, &fails);
    assert_eq!(outcomes.get(0).unmet_compare, Some(0));
    assert_eq!(one(&mut bench, get(b"key-3")).as_deref(), Some(&b"1"[..]));
}

/// What one gateway makes and drops, another one sees; numbers are not used again.
fn databases_of_two_gateways(node: &CassandraNode) {
    let config = config_of(RemotePromise::Quorum, RemoteOrder::Hash, 4);
    let (mut first, gateway) = bench(node, "catalogue", config);
    let second = Cassandra::start(&gateway).expect("it is ready");
    let made = first.create("shop", &config).expect("the name is free");
    assert!(first.create("shop", &config).is_err());
    let sees = |count: usize| {
        let begin = Instant::now();
        while second.catalogue().databases.len() != count {
            assert!(begin.elapsed() < Duration::from_secs(20), "it was not seen");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    sees(2);
    first.batch.drop_database(1, made);
    assert_eq!(first.run()[0].get(0).decision, Decision::Applied);
    sees(1);
    let again = first
        .create("shop", &config)
        .expect("the name is free again");
    assert_ne!(again, made);
}

/// A database is empty only if nothing is there behind rows that have expired and stay for a while.
fn expired_rows_before_an_entry(node: &CassandraNode) {
    let ahead_us = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&ahead_us);
    let now_us = Arc::new(move || wall_clock_us() + clock.load(Ordering::Relaxed));
    let gateway = node.config_with(&fresh_keyspace("expired"), now_us);
    let config = config_of(RemotePromise::Linearizable, RemoteOrder::Hash, 1);
    let mut bench = bench_of(node.open(&gateway, config));
    let made = bench.create("other", &config).expect("the name is free");
    let keys: Vec<String> = (0..600).map(|number| format!("key-{number}")).collect();
    for part in keys.chunks(100) {
        let puts: Vec<_> = part.iter().map(|key| expiring(key.as_bytes())).collect();
        let outcomes = bench.commit(made, Mode::Atomic, &puts);
        assert_eq!(outcomes.get(0).decision, Decision::Applied);
    }
    bench.commit(made, Mode::Atomic, &[put(b"last", b"lives")]);
    ahead_us.store(40_000_000, Ordering::Relaxed);
    bench.batch.drop_empty_database(1, made);
    let refused = bench.run()[0].get(0).decision;
    let not_empty = DropError::NotEmpty {
        entries: 1,
        blobs: 0,
        blob_bytes: 0,
    };
    let expected = Decision::Refused(Refusal::NotDropped(not_empty));
    assert_eq!(refused, expected);
    let delete = Operation::Delete {
        key: b"last",
        condition: Condition::None,
        want_previous: false,
    };
    bench.commit(made, Mode::Atomic, &[(TransactList::Compares, delete)]);
    bench.batch.drop_empty_database(1, made);
    assert_eq!(bench.run()[0].get(0).decision, Decision::Applied);
}

fn expiring(key: &[u8]) -> (TransactList, Operation<'_>) {
    let put = Operation::Put {
        key,
        value: b"value",
        condition: Condition::None,
        expiry: Expiry::AfterMs(30_000),
        want_previous: false,
    };
    (TransactList::Compares, put)
}

/// More keys than one statement may name are read and written as one.
fn many_keys_of_one_bucket(node: &CassandraNode) {
    let config = config_of(RemotePromise::Linearizable, RemoteOrder::Hash, 1);
    let (mut bench, _) = bench(node, "many", config);
    let keys: Vec<String> = (0..250).map(|number| format!("key-{number}")).collect();
    for expected in 1..=2_i64 {
        let counts: Vec<_> = keys.iter().map(|key| increment(key.as_bytes())).collect();
        let outcomes = bench.commit(DatabaseId::DEFAULT, Mode::Atomic, &counts);
        assert_eq!(outcomes.get(0).decision, Decision::Applied);
        let gets: Vec<_> = keys.iter().map(|key| get(key.as_bytes())).collect();
        let outcomes = bench.commit(DatabaseId::DEFAULT, Mode::Atomic, &gets);
        let found: Vec<_> = outcomes
            .get(0)
            .operations()
            .map(|one| one.value.map(|value| value.to_vec()))
            .collect();
        let value = Some(expected.to_be_bytes().to_vec());
        assert!(found.len() == keys.len() && found.iter().all(|one| *one == value));
    }
}

/// Increments of two gateways on one key: each counts once.
fn counters_of_two_gateways(node: &CassandraNode) {
    const ROUNDS: u64 = 30;
    let config = config_of(RemotePromise::Linearizable, RemoteOrder::Hash, 4);
    let (mut first, gateway) = bench(node, "counters", config);
    let other = gateway.clone();
    let second = std::thread::spawn(move || {
        let config = CassandraConfig { seed: 77, ..other };
        count_up(
            &mut bench_of(Cassandra::start(&config).expect("it is ready")),
            ROUNDS,
        )
    });
    let (done, unknown) = count_up(&mut first, ROUNDS);
    let (also_done, also_unknown) = second.join().expect("the other gateway counts");
    let value = one(&mut first, get(b"counter")).expect("it was counted");
    let value = u64::from_be_bytes(value.try_into().expect("a counter has 8 bytes"));
    let (least, most) = (done + also_done, done + also_done + unknown + also_unknown);
    println!("{value} of {least} known and {} unknown", most - least);
    assert!((least..=most).contains(&value));
}

/// Returns how many increments took effect, and of how many it is not known.
fn count_up(bench: &mut RemoteBench, rounds: u64) -> (u64, u64) {
    let (mut done, mut unknown) = (0, 0);
    for _ in 0..rounds {
        for tag in 0..4 {
            bench.add(
                tag,
                DatabaseId::DEFAULT,
                Mode::Atomic,
                &[increment(b"counter")],
            );
        }
        for outcomes in bench.run() {
            match outcomes.get(0).decision {
                Decision::Applied => done += 1,
                Decision::Refused(Refusal::Remote(RemoteError::OutcomeUnknown)) => unknown += 1,
                Decision::Refused(Refusal::Remote(error)) => println!("not done: {error}"),
                other => panic!("{other:?}"),
            }
        }
    }
    (done, unknown)
}

/// Of two writes of a quorum database the later clock wins, whoever comes last.
fn last_write_wins(node: &CassandraNode) {
    let config = config_of(RemotePromise::Quorum, RemoteOrder::Hash, 4);
    let (mut now, gateway) = bench(node, "clocks", config);
    let behind = CassandraConfig {
        now_us: Arc::new(|| wall_clock_us() - 60_000_000),
        ..gateway
    };
    let mut behind = bench_of(Cassandra::start(&behind).expect("it is ready"));
    one(&mut now, put(b"key", b"of the later clock"));
    one(&mut behind, put(b"key", b"of the clock behind"));
    assert_eq!(
        one(&mut now, get(b"key")).as_deref(),
        Some(&b"of the later clock"[..])
    );
}

/// The suite of every engine behind a network, against the model.
fn suite(node: &CassandraNode) {
    let rounds = std::env::var("PELTON_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok());
    let make = |_seed: u64, config: DatabaseConfig| {
        let now_ms = Arc::new(AtomicU64::new(1_000));
        let clock = Arc::clone(&now_ms);
        let now_us = Arc::new(move || clock.load(Ordering::Relaxed) * 1000);
        let gateway = node.config_with(&fresh_keyspace("suite"), now_us);
        RemoteTarget {
            backend: Arc::new(node.open(&gateway, config)),
            drive: Box::new(|| std::thread::sleep(Duration::from_micros(200))),
            set_now_ms: Some(Box::new(move |ms| now_ms.store(ms, Ordering::Relaxed))),
        }
    };
    run_remote(&make, 0..rounds.unwrap_or(2));
}

/// While a node is frozen requests end in time, writes as unknown, and health says so; afterwards
/// all goes on by itself.
fn a_frozen_node(node: &CassandraNode) {
    let config = config_of(RemotePromise::Linearizable, RemoteOrder::Hash, 4);
    let gateway = node.config(&fresh_keyspace("frozen"));
    let backend = Arc::new(node.open(&gateway, config));
    let mut bench = RemoteBench::new(RemoteTarget {
        backend: Arc::clone(&backend) as Arc<dyn RemoteBackend>,
        drive: Box::new(|| std::thread::sleep(Duration::from_micros(200))),
        set_now_ms: None,
    });
    one(&mut bench, put(b"key", b"before"));
    node.signal("-STOP");
    let begin = Instant::now();
    for tag in 0..2000 {
        bench.add(
            tag,
            DatabaseId::DEFAULT,
            Mode::Atomic,
            &[put(b"key", b"meanwhile")],
        );
    }
    let outcomes = bench.run();
    let took = begin.elapsed();
    node.signal("-CONT");
    assert!(took < Duration::from_secs(15), "{took:?}");
    let of = |error: RemoteError| {
        let refused = Decision::Refused(Refusal::Remote(error));
        outcomes
            .iter()
            .filter(|one| one.get(0).decision == refused)
            .count()
    };
    let unknown = of(RemoteError::OutcomeUnknown);
    println!(
        "{unknown} unknown, {} in time, of {}",
        of(RemoteError::TimedOut),
        outcomes.len()
    );
    assert!(unknown > 0);
    assert!(
        outcomes
            .iter()
            .all(|one| one.get(0).decision != Decision::Applied)
    );
    assert_eq!(backend.under_way(), 0);
    let begin = Instant::now();
    while backend.health() != RemoteHealth::Serving {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "it does not serve again"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    one(&mut bench, put(b"key", b"after"));
    assert_eq!(one(&mut bench, get(b"key")).as_deref(), Some(&b"after"[..]));
    backend.stop();
}

/// A node that asks for a password and for TLS: with both it works, without either it is refused.
#[cfg(feature = "tls")]
fn password_and_tls() {
    let Some(node) = support::start_secure_node() else {
        return;
    };
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(node.certificate().into())
        .expect("it is a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut gateway = node.config(&fresh_keyspace("secure"));
    let config = config_of(RemotePromise::Linearizable, RemoteOrder::Hash, 4);
    let options = InitOptions {
        replicas: 1,
        default_config: config,
    };
    assert!(init(&gateway, options).is_err(), "the node wants TLS");
    gateway.tls = Some(Arc::new(tls));
    let refused = init(&gateway, options).expect_err("the node wants a password");
    println!("without a password: {refused}");
    gateway.credentials = Some(("cassandra".to_owned(), "wrong".to_owned()));
    assert!(init(&gateway, options).is_err(), "the password is wrong");
    gateway.credentials = Some(("cassandra".to_owned(), "cassandra".to_owned()));
    let mut bench = bench_of(node.open(&gateway, config));
    one(&mut bench, put(b"key", b"value"));
    assert_eq!(one(&mut bench, get(b"key")).as_deref(), Some(&b"value"[..]));
}
