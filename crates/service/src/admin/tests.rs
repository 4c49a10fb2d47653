//! Admin over a real store.

use store::{Condition, Expiry, Mode, Operation, Outcomes};

use super::*;
use crate::compat::gupload_tests::bench::{Bench, config};
use crate::fake::{Fake, Sent, shared};
use api::admin::*;
use protobuf::writer;

const SERVED: [Method; 4] = [
    Method::AdminCreateDatabase,
    Method::AdminListDatabases,
    Method::AdminDropDatabase,
    Method::AdminStatistics,
];

struct Now;

impl store::Clock for Now {
    fn now_ns(&mut self) -> u64 {
        0
    }

    fn now_ms(&mut self) -> u64 {
        1_000
    }
}

/// Puts `count` keys of 4 bytes with values of 6.
fn fill(shared: &Shared, name: &str, count: u32) {
    let store = &shared.store;
    let id = store.database(name).expect("there is such a database");
    let mut batch = store.write_batch();
    let mut commit = batch.begin(0, id, Mode::Atomic);
    for number in 0..count {
        let put = Operation::Put {
            key: &number.to_be_bytes(),
            value: b"value!",
            condition: Condition::None,
            expiry: Expiry::None,
            want_previous: false,
        };
        commit.push(&put).expect("it fits");
    }
    commit.submit();
    drop(
        store
            .committer()
            .run(&mut batch, &mut Now, &mut Outcomes::new()),
    );
}

fn call(method: Method, request: &[u8], shared: &Shared) -> Result<Vec<u8>, Status> {
    let mut fake = Fake::new(method, shared);
    fake.message(request, true, shared);
    fake.commit(shared);
    match fake.take_sent().as_mut_slice() {
        [Sent::Response(answer)] => Ok(std::mem::take(answer)),
        [Sent::Status(status)] => Err(status.clone()),
        other => panic!("one answer or one status, not {other:?}"),
    }
}

fn refused(method: Method, request: &[u8], shared: &Shared, code: Code, parts: &[&str]) {
    let status = call(method, request, shared).expect_err("it is refused");
    assert_eq!(status.code(), code, "{}", status.message());
    for part in parts {
        assert!(
            status.message().contains(part),
            "{part:?} is missing in {:?}",
            status.message()
        );
    }
}

fn volatile(name: &str) -> DatabaseDescription<'_> {
    DatabaseDescription {
        name,
        kind: DatabaseKind::Memory.number(),
        durability: DurabilityMode::Volatile.number(),
        ..DatabaseDescription::default()
    }
}

fn dropped(answer: &[u8]) -> Result<bool, protobuf::DecodeError> {
    DropDatabaseResponse::decode(answer).map(|answer| answer.dropped)
}

fn create(database: &DatabaseDescription<'_>) -> Vec<u8> {
    let mut request = Vec::new();
    CreateDatabaseRequest {
        database: Some(*database),
    }
    .encode(&mut request);
    request
}

fn created(database: &DatabaseDescription<'_>, shared: &Shared) -> bool {
    let answer = call(Method::AdminCreateDatabase, &create(database), shared);
    let answer = answer.expect("it can be created");
    let response = CreateDatabaseResponse::decode(&answer).expect("it is a message");
    assert_eq!(response.database.map(|one| one.name), Some(database.name));
    response.created
}

fn drop_request(name: &str, confirm_name: &str) -> Vec<u8> {
    let mut request = Vec::new();
    DropDatabaseRequest { name, confirm_name }.encode(&mut request);
    request
}

#[test]
fn databases_are_listed_to_those_who_may_read_them() {
    let shared = shared();
    for name in ["one", "two", "three"] {
        assert!(created(&volatile(name), &shared));
    }
    for (rights, expected) in [
        (&["admin"][..], &["", "one", "three", "two"][..]),
        (&["read"], &["", "one", "three", "two"]),
        (&["read:one", "write:two", "admin:four"], &["one", "two"]),
        (&["read:default", "read:three/blobs/"], &[""]),
    ] {
        let mut fake = Fake::of(Some(rights), Method::AdminListDatabases, &shared);
        fake.message(&[], true, &shared);
        let sent = fake.take_sent();
        let [Sent::Response(answer)] = &sent[..] else {
            panic!("no answer: {sent:?}");
        };
        let response = ListDatabasesResponse::decode(answer).expect("it is a message");
        let name = |one: Result<DatabaseStatistics<'_>, _>| {
            let database = one.expect("it is a message").database;
            database.expect("it is described").name.to_owned()
        };
        let names: Vec<String> = response.databases.iter().map(name).collect();
        assert_eq!(names, expected, "{rights:?}");
    }
}

#[test]
fn databases_are_created_once() {
    let shared = shared();
    let wanted = DatabaseDescription {
        quota_bytes: 1_000_000,
        max_value_bytes: 1_000,
        ..volatile("cache-1")
    };
    let answer = call(Method::AdminCreateDatabase, &create(&wanted), &shared);
    let answer = answer.expect("it can be created");
    let response = CreateDatabaseResponse::decode(&answer).expect("it is a message");
    assert!(response.created);
    assert_eq!(response.database, Some(wanted));
    let id = shared.store.database("cache-1").expect("it was created");
    let limits = shared.store.limits(id).expect("it is there");
    assert_eq!(
        (limits.memory_bytes, limits.value_bytes),
        (1_000_000, 1_000)
    );

    // Another one of this name changes nothing.
    let answer = call(
        Method::AdminCreateDatabase,
        &create(&volatile("cache-1")),
        &shared,
    );
    let answer = answer.expect("that is no error");
    let response = CreateDatabaseResponse::decode(&answer).expect("it is a message");
    assert!(!response.created);
    assert_eq!(response.database, Some(wanted));
    assert!(!created(&volatile(""), &shared), "the default one is there");

    let answer = call(
        Method::AdminCreateDatabase,
        &create(&volatile("plain")),
        &shared,
    );
    let answer = answer.expect("it can be created");
    let response = CreateDatabaseResponse::decode(&answer).expect("it is a message");
    let database = response.database.expect("it is described");
    assert_eq!(database.quota_bytes, 0);
    assert_eq!(database.max_value_bytes, 4_000_000);
}

/// Also where nothing is logged, so that there is one way only.
#[test]
fn databases_are_made_and_dropped_by_commits() {
    let shared = shared();
    let mut fake = Fake::new(Method::AdminCreateDatabase, &shared);
    fake.message(&create(&volatile("a")), true, &shared);
    assert_eq!(fake.take_sent(), [], "it waits for its commit");
    assert_eq!(shared.store.database("a"), None);
    // Meanwhile somebody else is quicker.
    assert!(created(&volatile("a"), &shared));
    fake.commit(&shared);
    let sent = fake.take_sent();
    let [Sent::Response(answer)] = &sent[..] else {
        panic!("one answer, not {sent:?}");
    };
    let response = CreateDatabaseResponse::decode(answer).expect("it is a message");
    assert!(!response.created);

    let mut fake = Fake::new(Method::AdminDropDatabase, &shared);
    fake.message(&drop_request("a", ""), true, &shared);
    assert_eq!(fake.take_sent(), [], "it waits for its commit");
    let answer = call(Method::AdminDropDatabase, &drop_request("a", ""), &shared);
    assert_eq!(dropped(&answer.expect("it is empty")), Ok(true));
    fake.commit(&shared);
    let sent = fake.take_sent();
    let [Sent::Response(answer)] = &sent[..] else {
        panic!("one answer, not {sent:?}");
    };
    assert_eq!(dropped(answer), Ok(false));
}

#[test]
fn what_cannot_be_created_says_why() {
    let shared = shared();
    let expect = |database: DatabaseDescription<'_>, code, parts: &[&str]| {
        let method = Method::AdminCreateDatabase;
        refused(method, &create(&database), &shared, code, parts);
        assert_eq!(shared.store.databases().len(), 1);
    };
    refused(
        Method::AdminCreateDatabase,
        &create(&volatile("default")),
        &shared,
        Code::InvalidArgument,
        &["database.name", "the empty name"],
    );
    for name in [".hidden", "a/b", "ä", &"x".repeat(201)] {
        expect(
            volatile(name),
            Code::InvalidArgument,
            &["database.name", "200"],
        );
    }
    let with = |durability, interval_ms| DatabaseDescription {
        durability,
        interval_ms,
        ..volatile("a")
    };
    for (durability, interval_ms) in [
        (DurabilityMode::Interval.number(), 0),
        (DurabilityMode::Interval.number(), 60_001),
        (DurabilityMode::Volatile.number(), 1),
    ] {
        expect(
            with(durability, interval_ms),
            Code::InvalidArgument,
            &["database.interval_ms"],
        );
    }
    // What the store cannot do it says in its own words.
    for (durability, interval_ms, word) in [
        (DurabilityMode::Synced.number(), 0, "synced"),
        (
            DurabilityMode::Interval.number(),
            60_000,
            "interval=60000ms",
        ),
        (DurabilityMode::Written.number(), 0, "written"),
    ] {
        expect(
            with(durability, interval_ms),
            Code::Unimplemented,
            &["database.durability", word],
        );
    }
    for (kind, durability, word) in [(4, 1, "database.kind"), (1, 5, "database.durability")] {
        let unknown = DatabaseDescription {
            kind,
            durability,
            ..volatile("a")
        };
        let words = [word, "that this version knows"];
        expect(unknown, Code::InvalidArgument, &words);
    }
    let on_disk = DatabaseDescription {
        kind: DatabaseKind::Disk.number(),
        ..volatile("a")
    };
    expect(on_disk, Code::InvalidArgument, &["cannot be volatile"]);
    let on_disk = DatabaseDescription {
        durability: DurabilityMode::Synced.number(),
        ..on_disk
    };
    expect(on_disk, Code::Unimplemented, &["database.kind"]);
    let large = DatabaseDescription {
        max_value_bytes: 4_000_001,
        ..volatile("a")
    };
    expect(
        large,
        Code::InvalidArgument,
        &["4000001", "at most 4000000"],
    );
    for (field, name) in [(2, "database.kind"), (3, "database.durability")] {
        let mut request = Vec::new();
        writer::message(&mut request, 1, |out| writer::uint64(out, field, 9));
        let method = Method::AdminCreateDatabase;
        refused(method, &request, &shared, Code::InvalidArgument, &[name]);
    }
}

#[test]
fn there_are_not_too_many() {
    let shared = shared();
    for number in 1..store::limits::DATABASES {
        assert!(created(&volatile(&format!("d{number}")), &shared));
    }
    let method = Method::AdminCreateDatabase;
    let request = create(&volatile("one-more"));
    refused(
        method,
        &request,
        &shared,
        Code::ResourceExhausted,
        &["1000", "drop one"],
    );
    let answer = call(Method::AdminListDatabases, b"", &shared).expect("they are listed");
    let answer = ListDatabasesResponse::decode(&answer).expect("it is a message");
    assert_eq!(answer.databases.iter().flatten().count(), 1_000);
}

#[test]
fn databases_are_dropped_with_their_content_by_who_means_it() {
    let shared = shared();
    let method = Method::AdminDropDatabase;
    let dropped = |request: &[u8]| {
        let mut fake = Fake::new(method, &shared);
        fake.message(request, true, &shared);
        fake.commit(&shared);
        let entries = fake.actions.dropped_entries;
        match &fake.take_sent()[..] {
            [Sent::Response(answer)] => (dropped(answer), entries),
            other => panic!("one answer, not {other:?}"),
        }
    };
    assert!(created(&volatile("empty"), &shared));
    assert!(created(&volatile("full"), &shared));
    fill(&shared, "full", 10);
    assert_eq!(dropped(&drop_request("empty", "")), (Ok(true), 0));
    assert_eq!(dropped(&drop_request("empty", "")), (Ok(false), 0));
    for confirm_name in ["", "empty"] {
        let request = drop_request("full", confirm_name);
        refused(
            method,
            &request,
            &shared,
            Code::InvalidArgument,
            &["confirm_name", "\"full\"", "10 entries"],
        );
    }
    assert!(shared.store.database("full").is_some());
    assert_eq!(dropped(&drop_request("full", "full")), (Ok(true), 10));
    assert_eq!(shared.store.database("full"), None);
    assert_eq!(shared.store.memory_bytes(), 0);
    refused(
        method,
        &drop_request("", ""),
        &shared,
        Code::FailedPrecondition,
        &["default database"],
    );
    // What others write before the drop is decided is not dropped unconfirmed.
    assert!(created(&volatile("late"), &shared));
    let mut fake = Fake::new(method, &shared);
    fake.message(&drop_request("late", ""), true, &shared);
    fill(&shared, "late", 3);
    fake.commit(&shared);
    let status = fake.take_status().expect("it is refused");
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(
        status
            .message()
            .contains("\"late\": the database holds 3 entries"),
        "{}",
        status.message()
    );
    assert!(shared.store.database("late").is_some());
    // A wrong confirmation is a slip, also where none would be needed.
    assert!(created(&volatile("empty"), &shared));
    let request = drop_request("empty", "emtpy");
    refused(
        method,
        &request,
        &shared,
        Code::InvalidArgument,
        &["confirm_name"],
    );
}

#[test]
fn databases_are_listed_in_the_order_of_their_names() {
    let shared = shared();
    for name in ["b", "c", "a"] {
        assert!(created(&volatile(name), &shared));
    }
    fill(&shared, "b", 7);
    let answer = call(Method::AdminListDatabases, b"", &shared).expect("they are listed");
    let answer = ListDatabasesResponse::decode(&answer).expect("it is a message");
    let listed: Result<Vec<_>, _> = answer.databases.iter().collect();
    let listed = listed.expect("they are messages");
    let names = listed.iter().map(|one| one.database.map(|one| one.name));
    assert!(names.eq(["", "a", "b", "c"].map(Some)));
    let b = listed[2];
    assert_eq!((b.entries, b.content_bytes), (7, 70));
    // Three commits have made the databases.
    assert!(b.memory_bytes > 70 && b.sequence == 4);
    assert_eq!(listed[0].sequence, 0);
}

#[test]
fn statistics_add_up() {
    let shared = shared();
    fill(&shared, "", 3);
    let figures = shared.figures.add_loop();
    figures.set(2, 5);
    figures.ended(Method::Get, Code::Ok);
    figures.ended(Method::Get, Code::Ok);
    let answer = call(Method::AdminStatistics, b"", &shared).expect("they are told");
    let response = StatisticsResponse::decode(&answer).expect("it is a message");
    assert_eq!(response.server, "pelton 0.0.0");
    assert_eq!((response.open_connections, response.running_calls), (2, 5));
    let calls = MethodStatistics {
        method: "pelton.v1.KeyValue/Get",
        code: 0,
        calls: 2,
    };
    let methods: Vec<_> = response.methods.iter().collect();
    assert_eq!(methods, [Ok(calls)]);
    assert_eq!(response.databases.len(), 1);
    let database = response.databases.iter().next();
    assert_eq!(
        database.expect("there is one").map(|one| one.entries),
        Ok(3)
    );
    assert_eq!(response.memory_bytes, shared.store.memory_bytes());
    assert_eq!(response.memory_limit_bytes, u64::MAX);
    assert_eq!(response.log, None, "nothing is logged here");
}

fn statistics_of(bench: &mut Bench) -> Vec<u8> {
    match bench.call(Method::AdminStatistics, b"").as_slice() {
        [Sent::Response(answer)] => answer.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn statistics_of_a_data_folder_tell_of_its_log_and_its_blobs() {
    let mut bench = Bench::new();
    let answer = statistics_of(&mut bench);
    let response = StatisticsResponse::decode(&answer).expect("it is a message");
    assert_eq!(response.blob_quota_bytes, 0, "as the disk has room");

    let mut config = config();
    config.blobs.quota_bytes = 1_000_000;
    let mut bench = Bench::with(config);
    bench.put("a", b"content");
    let mut upload = Fake::new(Method::HttpGupload, &bench.shared);
    bench.work(&mut upload);
    let answer = statistics_of(&mut bench);
    let response = StatisticsResponse::decode(&answer).expect("it is a message");
    assert_eq!(response.blob_quota_bytes, 1_000_000);
    let database = response.databases.iter().next().expect("there is one");
    let database = database.expect("it is a message");
    assert_eq!((database.blobs, database.blob_bytes), (1, 7));
    assert_eq!(database.unfinished_uploads, 1);
    let expected = bench.shared.store.log_statistics().expect("it has one");
    let log = response.log.expect("it is told of");
    assert_eq!(
        (log.segments, log.segment_bytes),
        (expected.segments, expected.segment_bytes)
    );
    assert_eq!(
        (log.written_sequence, log.durable_sequence),
        (expected.written_sequence, expected.durable_sequence)
    );
    assert_eq!(
        (log.groups, log.records, log.syncs),
        (expected.groups, expected.records, expected.syncs)
    );
    assert!(log.records > 0 && !log.full && !log.failed);
}

/// What a caller cannot take yet is made when it can, and by no other call.
#[test]
fn lists_wait_until_they_may_be_sent() {
    let shared = shared();
    for method in [Method::AdminListDatabases, Method::AdminStatistics] {
        let mut fake = Fake::new(method, &shared);
        fake.actions.can_send = false;
        fake.message(b"", true, &shared);
        for _ in 0..2 {
            fake.writable(&shared);
            assert_eq!(fake.take_sent(), []);
        }
        fake.actions.can_send = true;
        fake.writable(&shared);
        assert!(matches!(fake.take_sent()[..], [Sent::Response(_)]));
    }
    let mut fake = Fake::new(Method::AdminCreateDatabase, &shared);
    fake.message(&create(&volatile("a")), true, &shared);
    fake.writable(&shared);
    fake.woken(&shared);
    assert_eq!(fake.take_sent(), []);
}

#[test]
fn durable_databases_are_described_as_they_were_asked_for() {
    let mut bench = Bench::new();
    for (name, durability, interval_ms) in [
        ("synced", DurabilityMode::Synced.number(), 0),
        ("often", DurabilityMode::Interval.number(), 1),
        ("seldom", DurabilityMode::Interval.number(), 60_000),
        ("written", DurabilityMode::Written.number(), 0),
        ("volatile", DurabilityMode::Volatile.number(), 0),
    ] {
        let wanted = DatabaseDescription {
            name,
            kind: DatabaseKind::Memory.number(),
            durability,
            interval_ms,
            max_value_bytes: 1_000,
            ..DatabaseDescription::default()
        };
        for created in [true, false] {
            let sent = bench.call(Method::AdminCreateDatabase, &create(&wanted));
            let [Sent::Response(answer)] = &sent[..] else {
                panic!("not created: {sent:?}");
            };
            let response = CreateDatabaseResponse::decode(answer).expect("it is a message");
            let described = response.database;
            assert_eq!((response.created, described), (created, Some(wanted)));
        }
    }
}

#[test]
fn one_request_is_what_a_call_takes() {
    let shared = shared();
    for method in SERVED {
        let mut fake = Fake::new(method, &shared);
        fake.half_closed(&shared);
        let status = fake.take_status().expect("it is over");
        assert_eq!(status.code(), Code::Unimplemented);
    }
}

/// Damaged requests: a status, or an answer, and no panic.
#[test]
fn whatever_is_sent_is_answered_once() {
    let shared = shared();
    let mut random = testkit::Random::new(1);
    let mut below = |bound: usize| random.below(bound);
    let mut answered = 0;
    for _ in 0..20_000 {
        let name = ["", "a", "b"][below(3)];
        let mut request = match below(2) {
            0 => create(&volatile(name)),
            _ => drop_request(name, name),
        };
        for _ in 0..below(3) {
            let at = below(request.len() + 1);
            match below(3) {
                0 => request.truncate(at),
                1 => request.insert(at, below(256) as u8),
                _ => request.extend_from_within(at..),
            }
        }
        match call(SERVED[below(4)], &request, &shared) {
            Ok(_) => answered += 1,
            Err(status) => {
                assert!(
                    matches!(
                        status.code(),
                        Code::InvalidArgument | Code::Unimplemented | Code::FailedPrecondition
                    ),
                    "{status:?}"
                );
                assert!((10..500).contains(&status.message().len()));
            }
        }
    }
    assert!(answered > 2_000, "{answered}");
    shared.store.databases().iter().for_each(|info| {
        let view = shared.store.view(info.id).expect("nobody drops it");
        assert_eq!(view.statistics().entries, 0);
    });
}
