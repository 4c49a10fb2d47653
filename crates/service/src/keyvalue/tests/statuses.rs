//! The status table of `kv.proto`, row by row, as far as it is the service's to keep.

use store::{Condition, Expiry, Operation};

use super::*;
use protobuf::writer;
use testkit::keyvalue::*;

const SERVED: [Method; 9] = [
    Method::Get,
    Method::Put,
    Method::Delete,
    Method::Append,
    Method::Increment,
    Method::Batch,
    Method::Transact,
    Method::Scan,
    Method::Count,
];

fn refused(method: Method, request: &[u8], code: Code, parts: &[&str]) {
    let ended = Bench::new().call(method, request);
    let words = ended.refusal(code);
    for part in parts {
        assert!(
            words.contains(part),
            "{method:?}: {part:?} is missing in {words:?}"
        );
    }
}

fn in_database(database: &str, operation: Operation<'_>) -> Vec<u8> {
    let mut request = Vec::new();
    OperationRequest {
        database,
        operation,
    }
    .encode(&mut request);
    request
}

#[test]
fn unknown_databases_are_not_found() {
    let mut request = Vec::new();
    writer::bytes(&mut request, 1, b"nowhere");
    let mut long = Vec::new();
    writer::bytes(&mut long, 1, "ä".repeat(100_000).as_bytes());
    for method in SERVED {
        refused(
            method,
            &request,
            Code::NotFound,
            &["database", "\"nowhere\""],
        );
        let ended = Bench::new().call(method, &long);
        assert!(
            ended.refusal(Code::NotFound).len() < 300,
            "a status is short"
        );
    }
}

#[test]
fn broken_messages_are_invalid_and_name_the_field() {
    for method in SERVED {
        refused(
            method,
            &[0x0a, 0x01, 0xff],
            Code::InvalidArgument,
            &[method.path(), "field database", "UTF-8"],
        );
        refused(
            method,
            &[0x0a, 0x05, b'x'],
            Code::InvalidArgument,
            &["field database", "in the middle"],
        );
        refused(
            method,
            &[0x07, 0x00],
            Code::InvalidArgument,
            &["no protobuf message"],
        );
        refused(
            method,
            &[0x0d, 0, 0, 0, 0],
            Code::InvalidArgument,
            &["field database", "wire type"],
        );
    }
    refused(
        Method::Get,
        &[0x10, 0x01],
        Code::InvalidArgument,
        &["field key"],
    );
    refused(
        Method::Increment,
        &[0x1a, 0x00],
        Code::InvalidArgument,
        &["field delta"],
    );
    refused(
        Method::Put,
        &[0x18, 0x00],
        Code::InvalidArgument,
        &["field value"],
    );
    refused(
        Method::Put,
        &[0x3a, 0x00],
        Code::InvalidArgument,
        &["field return_previous"],
    );
    refused(
        Method::Scan,
        &[0x20, 0x03],
        Code::InvalidArgument,
        &["field direction"],
    );
    refused(
        Method::Count,
        &[0x20, 0x03],
        Code::InvalidArgument,
        &["field precision"],
    );
    refused(
        Method::Scan,
        &[0x12, 0x02, 0x08, 0x01],
        Code::InvalidArgument,
        &["field range"],
    );
}

#[test]
fn values_that_make_no_sense_are_invalid() {
    refused(
        Method::Put,
        &[0x40, 0x00],
        Code::InvalidArgument,
        &["time_to_live_ms", "is 0"],
    );
    let expiry = Expiry::AfterMs(3_153_600_000_001);
    let condition = Condition::None;
    let put = Operation::Put {
        key: b"",
        value: b"",
        condition,
        expiry,
        want_previous: false,
    };
    refused(
        Method::Put,
        &in_database("", put),
        Code::InvalidArgument,
        &["time_to_live_ms", "3153600000000"],
    );
    refused(
        Method::Put,
        &[0x48, 0x00],
        Code::InvalidArgument,
        &["keep_time_to_live", "false"],
    );
    refused(
        Method::Delete,
        &[0x20, 0x00],
        Code::InvalidArgument,
        &["if_version", "is 0"],
    );
    refused(
        Method::Delete,
        &[0x28, 0x00],
        Code::InvalidArgument,
        &["if_exists", "false"],
    );
}

#[test]
fn fields_that_are_not_served_yet_are_refused() {
    for method in SERVED {
        for (number, name) in [
            (12, "snapshot"),
            (13, "durability"),
            (14, "lease"),
            (15, "request_id"),
        ] {
            let mut request = Vec::new();
            writer::uint64_always(&mut request, number, 1);
            refused(
                method,
                &request,
                Code::Unimplemented,
                &[method.path(), name],
            );
        }
        // Fields that no version has planned are let go, as protobuf wants it.
        let mut request = Vec::new();
        writer::uint64_always(&mut request, 1_000, 1);
        assert_eq!(Bench::new().call(method, &request).status, Status::OK);
    }
}

#[test]
fn sizes_name_the_limit_and_both_numbers() {
    let key = vec![b'k'; 65_536];
    let parts = ["key", "65536", "65535"];
    let none = Condition::None;
    let get = Operation::Get { key: &key };
    let put = Operation::Put {
        key: &key,
        value: b"",
        condition: none,
        expiry: Expiry::None,
        want_previous: false,
    };
    let delete = Operation::Delete {
        key: &key,
        condition: none,
        want_previous: false,
    };
    let append = Operation::Append {
        key: &key,
        value: b"",
        condition: none,
    };
    let increment = Operation::Increment {
        key: &key,
        delta: 1,
        initial: 0,
        condition: none,
    };
    refused(
        Method::Get,
        &in_database("", get),
        Code::ResourceExhausted,
        &parts,
    );
    refused(
        Method::Put,
        &in_database("", put),
        Code::ResourceExhausted,
        &parts,
    );
    refused(
        Method::Delete,
        &in_database("", delete),
        Code::ResourceExhausted,
        &parts,
    );
    refused(
        Method::Append,
        &in_database("", append),
        Code::ResourceExhausted,
        &parts,
    );
    refused(
        Method::Increment,
        &in_database("", increment),
        Code::ResourceExhausted,
        &parts,
    );
    let mut batch = Vec::new();
    encode_batch(&mut batch, "", Mode::Atomic, 0, &[get]);
    refused(Method::Batch, &batch, Code::ResourceExhausted, &parts);

    let value = vec![b'v'; 4_000_001];
    let put = Operation::Put {
        key: b"",
        value: &value,
        condition: none,
        expiry: Expiry::None,
        want_previous: false,
    };
    refused(
        Method::Put,
        &in_database("", put),
        Code::ResourceExhausted,
        &["value", "4000001", "4000000"],
    );
}

#[test]
fn a_value_cannot_be_grown_beyond_its_limit() {
    let mut bench = Bench::new();
    let append = Operation::Append {
        key: b"k",
        value: &[b'x'; 60],
        condition: Condition::None,
    };
    let request = in_database("small", append);
    bench.call(Method::Append, &request).answer();
    let ended = bench.call(Method::Append, &request);
    let words = ended.refusal(Code::ResourceExhausted);
    assert!(words.contains("120") && words.contains("100"), "{words}");
}

#[test]
fn a_full_database_takes_no_more_and_says_so() {
    let mut bench = Bench::new();
    let limits = DatabaseLimits {
        memory_bytes: 3_000,
        ..DatabaseLimits::default()
    };
    let config = DatabaseConfig {
        limits,
        ..DatabaseConfig::default()
    };
    change(&bench.shared.store, |batch| {
        batch.create_database(0, "full", &config)
    });
    let value = [b'v'; 2_000];
    let put = |key| Operation::Put {
        key,
        value: &value,
        condition: Condition::None,
        expiry: Expiry::None,
        want_previous: false,
    };
    bench
        .call(Method::Put, &in_database("full", put(b"a")))
        .answer();
    let ended = bench.call(Method::Put, &in_database("full", put(b"b")));
    assert!(ended.refusal(Code::ResourceExhausted).contains("3000"));
    bench
        .call(
            Method::Get,
            &in_database("full", Operation::Get { key: b"a" }),
        )
        .answer();
    let delete = Operation::Delete {
        key: b"a",
        condition: Condition::None,
        want_previous: false,
    };
    bench
        .call(Method::Delete, &in_database("full", delete))
        .answer();
    bench
        .call(Method::Put, &in_database("full", put(b"b")))
        .answer();
}

#[test]
fn a_database_that_is_dropped_meanwhile_is_not_found() {
    let mut bench = Bench::new();
    let small = bench
        .shared
        .store
        .database("small")
        .expect("it was created");
    let put = Operation::Put {
        key: b"k",
        value: b"",
        condition: Condition::None,
        expiry: Expiry::None,
        want_previous: false,
    };
    let store = bench.shared.store.clone();
    let ended = bench.steps(Method::Put, |call, shared, room| {
        call.message(&in_database("small", put), true, shared, room);
        change(&store, |batch| batch.drop_database(0, small));
    });
    assert!(ended.refusal(Code::NotFound).contains("dropped"));
}

#[test]
fn one_request_is_what_a_call_takes() {
    for method in SERVED {
        let ended = Bench::new().steps(method, |call, shared, room| call.half_closed(shared, room));
        assert!(ended.refusal(Code::Unimplemented).contains("none came"));
    }
    let ended = Bench::new().steps(Method::Get, |call, shared, room| {
        call.message(b"", false, shared, room);
        call.message(b"", true, shared, room);
        room.read = None;
    });
    assert!(
        ended
            .refusal(Code::Unimplemented)
            .contains("second one came")
    );
}
