//! Get, Put, Delete, Append, Increment.

use store::{Condition, Expiry, Operation};

use super::*;
use api::keyvalue::*;
use testkit::keyvalue::*;

impl Bench {
    fn operation(&mut self, method: Method, operation: Operation<'_>) -> Ended {
        let mut request = Vec::new();
        OperationRequest {
            database: "",
            operation,
        }
        .encode(&mut request);
        self.call(method, &request)
    }

    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) -> u64 {
        let ended = self.operation(Method::Put, put(key, value));
        let response = PutResponse::decode(ended.answer()).expect("it is a message");
        assert!(response.applied);
        response.version
    }

    fn get(&mut self, key: &[u8]) -> Option<(Vec<u8>, u64, u64)> {
        let ended = self.operation(Method::Get, Operation::Get { key });
        let response = GetResponse::decode(ended.answer()).expect("it is a message");
        let GetResponse {
            found,
            value,
            version,
            expires_at_ms,
        } = response;
        found.then(|| (value.to_vec(), version, expires_at_ms))
    }
}

pub(super) fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Operation<'a> {
    Operation::Put {
        key,
        value,
        condition: Condition::None,
        expiry: Expiry::None,
        want_previous: false,
    }
}

fn put_if<'a>(condition: Condition<'a>) -> Operation<'a> {
    Operation::Put {
        key: b"key",
        value: b"new",
        condition,
        expiry: Expiry::None,
        want_previous: true,
    }
}

#[test]
pub(super) fn what_was_put_is_found() {
    let mut bench = Bench::new();
    assert_eq!(bench.get(b"key"), None);
    let first = bench.put(b"key", b"value");
    assert_eq!(bench.get(b"key"), Some((b"value".to_vec(), first, 0)));
    let second = bench.put(b"key", b"");
    assert!(second > first);
    assert_eq!(bench.get(b"key"), Some((vec![], second, 0)));
    let third = bench.put(b"", b"empty key");
    assert_eq!(bench.get(b""), Some((b"empty key".to_vec(), third, 0)));
}

#[test]
pub(super) fn large_values_come_back_whole() {
    let mut bench = Bench::new();
    for bytes in [
        store::limits::SHARED_VALUE_BYTES - 1,
        store::limits::SHARED_VALUE_BYTES,
        4_000_000,
    ] {
        let value = vec![b'x'; bytes];
        let version = bench.put(b"large", &value);
        assert_eq!(bench.get(b"large"), Some((value, version, 0)), "{bytes}");
    }
}

#[test]
fn a_write_takes_memory_for_the_value_that_it_brings_back() {
    let put = |want_previous| Operation::Put {
        key: b"key",
        value: b"new",
        condition: Condition::None,
        expiry: Expiry::None,
        want_previous,
    };
    for (operation, values_bytes) in [(put(false), 0), (put(true), SMALL_VALUE_BYTES)] {
        let (mut request, database) = (Vec::new(), "small");
        OperationRequest {
            database,
            operation,
        }
        .encode(&mut request);
        takes_memory_for_values(Method::Put, &request, values_bytes);
    }
}

/// A value that is larger than a message should be comes when there is memory for it.
#[test]
fn a_large_value_waits_for_memory_and_is_not_copied() {
    let mut bench = Bench::new();
    let shared_from = store::limits::SHARED_VALUE_BYTES;
    for (bytes, shared_bytes) in [(shared_from - 1, 0), (shared_from, shared_from)] {
        bench.put(b"k", &vec![b'x'; bytes]);
        for (message_bytes, reads_again) in [(usize::MAX, 0), (bytes, 0), (bytes - 1, 1)] {
            bench.memory.message_bytes = message_bytes;
            let ended = bench.operation(Method::Get, Operation::Get { key: b"k" });
            assert!(ended.answer().len() > bytes);
            assert_eq!(
                (ended.reads_again, ended.shared_bytes),
                (reads_again, shared_bytes)
            );
        }
        bench.memory = PLENTY;
    }
}

#[test]
fn a_put_happens_only_on_its_condition() {
    let mut bench = Bench::new();
    let version = bench.put(b"key", b"old");
    let unmet = [
        Condition::Absent,
        Condition::VersionIs(0),
        Condition::VersionIs(version + 1),
        Condition::ValueIs(b"ol"),
    ];
    for condition in unmet {
        let ended = bench.operation(Method::Put, put_if(condition));
        let response = PutResponse::decode(ended.answer()).expect("it is a message");
        assert_eq!(
            (response.applied, response.version),
            (false, version),
            "{condition:?}"
        );
        assert_eq!(response.previous.expect("there was one").value, b"old");
    }
    for condition in [
        Condition::Present,
        Condition::VersionIs(version),
        Condition::ValueIs(b"old"),
    ] {
        let mut bench = Bench::new();
        assert_eq!(bench.put(b"key", b"old"), version);
        let ended = bench.operation(Method::Put, put_if(condition));
        let response = PutResponse::decode(ended.answer()).expect("it is a message");
        assert!(
            response.applied && response.version > version,
            "{condition:?}"
        );
        let previous = response.previous.expect("there was one");
        assert_eq!(
            (previous.value, previous.version, previous.key),
            (&b"old"[..], version, &b""[..])
        );
        assert_eq!(
            bench.get(b"key"),
            Some((b"new".to_vec(), response.version, 0))
        );
    }
    for condition in [Condition::Absent, Condition::VersionIs(0)] {
        let ended = Bench::new().operation(Method::Put, put_if(condition));
        let response = PutResponse::decode(ended.answer()).expect("it is a message");
        assert!(
            response.applied && response.previous.is_none(),
            "{condition:?}"
        );
    }
}

#[test]
fn a_previous_value_is_sent_only_if_wanted() {
    let mut bench = Bench::new();
    bench.put(b"key", b"");
    let ended = bench.operation(Method::Put, put(b"key", b"new"));
    assert_eq!(
        PutResponse::decode(ended.answer())
            .expect("it is a message")
            .previous,
        None
    );
    let delete = Operation::Delete {
        key: b"key",
        condition: Condition::None,
        want_previous: true,
    };
    let ended = bench.operation(Method::Delete, delete);
    let previous = DeleteResponse::decode(ended.answer())
        .expect("it is a message")
        .previous;
    assert_eq!(previous.expect("there was one").value, b"new");
}

/// The previous entry and the new one differ in all of value, version and expiry, in both
/// directions.
#[test]
fn a_previous_entry_comes_with_its_own_version_and_expiry() {
    let now_ms = Bench::new().now_ms;
    let put = |value, expiry| Operation::Put {
        key: b"key",
        value,
        condition: Condition::None,
        expiry,
        want_previous: true,
    };
    let mut bench = Bench::new();
    let mut before: Option<(&[u8], u64, u64)> = None;
    for (value, expiry, expires_ms) in [
        (&b"none"[..], Expiry::None, 0),
        (b"soon", Expiry::AfterMs(5_000), now_ms + 5_000),
        (b"later", Expiry::AfterMs(70_000), now_ms + 70_000),
        (b"kept", Expiry::Keep, now_ms + 70_000),
        (b"none again", Expiry::None, 0),
        (b"last", Expiry::AfterMs(9_000), now_ms + 9_000),
    ] {
        let ended = bench.operation(Method::Put, put(value, expiry));
        let response = PutResponse::decode(ended.answer()).expect("it is a message");
        let previous = response
            .previous
            .map(|one| (one.value, one.version, one.expires_at_ms));
        assert_eq!(previous, before);
        before = Some((value, response.version, expires_ms));
        assert_eq!(
            bench.get(b"key"),
            Some((value.to_vec(), response.version, expires_ms))
        );
    }
    let unmet = Operation::Put {
        key: b"key",
        value: b"not put",
        condition: Condition::Absent,
        expiry: Expiry::AfterMs(1),
        want_previous: true,
    };
    let ended = bench.operation(Method::Put, unmet);
    let response = PutResponse::decode(ended.answer()).expect("it is a message");
    let previous = response
        .previous
        .map(|one| (one.value, one.version, one.expires_at_ms));
    assert_eq!(previous, before, "nothing has changed");
    let delete = Operation::Delete {
        key: b"key",
        condition: Condition::None,
        want_previous: true,
    };
    let ended = bench.operation(Method::Delete, delete);
    let response = DeleteResponse::decode(ended.answer()).expect("it is a message");
    let previous = response
        .previous
        .map(|one| (one.value, one.version, one.expires_at_ms));
    assert_eq!(previous, before);
}

#[test]
fn delete_says_what_it_found() {
    let mut bench = Bench::new();
    let delete = |condition| Operation::Delete {
        key: b"key",
        condition,
        want_previous: false,
    };
    let run = |bench: &mut Bench, condition| {
        let ended = bench.operation(Method::Delete, delete(condition));
        let response = DeleteResponse::decode(ended.answer()).expect("it is a message");
        (response.deleted, response.version, response.sequence)
    };
    assert_eq!(run(&mut bench, Condition::None), (false, 0, 0));
    assert_eq!(run(&mut bench, Condition::Present), (false, 0, 0));
    let version = bench.put(b"key", b"value");
    assert_eq!(
        run(&mut bench, Condition::VersionIs(version + 1)),
        (false, version, 0)
    );
    let (deleted, found, sequence) = run(&mut bench, Condition::VersionIs(version));
    assert!(deleted && found == version && sequence > version);
    assert_eq!(bench.get(b"key"), None);
}

#[test]
fn append_says_how_long_the_value_is() {
    let mut bench = Bench::new();
    for (length, condition) in [
        (3, Condition::Absent),
        (6, Condition::Present),
        (9, Condition::None),
    ] {
        let append = Operation::Append {
            key: b"key",
            value: b"abc",
            condition,
        };
        let ended = bench.operation(Method::Append, append);
        let response = AppendResponse::decode(ended.answer()).expect("it is a message");
        assert!(response.applied);
        assert_eq!(response.length, length);
        assert_eq!(bench.get(b"key").expect("it is there").1, response.version);
    }
    let append = Operation::Append {
        key: b"key",
        value: b"abc",
        condition: Condition::Absent,
    };
    let ended = bench.operation(Method::Append, append);
    let response = AppendResponse::decode(ended.answer()).expect("it is a message");
    assert_eq!((response.applied, response.length), (false, 9));
    assert_eq!(bench.get(b"key").expect("it is there").0, b"abcabcabc");
}

#[test]
fn increment_counts_and_refuses() {
    let mut bench = Bench::new();
    let run = |bench: &mut Bench, delta, initial, condition| {
        let increment = Operation::Increment {
            key: b"count",
            delta,
            initial,
            condition,
        };
        let ended = bench.operation(Method::Increment, increment);
        let response = IncrementResponse::decode(ended.answer()).expect("it is a message");
        let refusal = IncrementRefusal::from_number(response.refusal).expect("it is known");
        let is_refused = refusal != IncrementRefusal::Unspecified;
        assert_eq!(response.applied, !is_refused);
        (response.value, is_refused.then_some(refusal))
    };
    assert_eq!(run(&mut bench, -3, 10, Condition::None), (7, None));
    assert_eq!(run(&mut bench, -9, 10, Condition::Present), (-2, None));
    assert_eq!(
        bench.get(b"count").expect("it is there").0,
        (-2_i64).to_be_bytes()
    );
    let refusal = run(&mut bench, i64::MIN, 0, Condition::None);
    assert_eq!(refusal, (-2, Some(IncrementRefusal::Overflow)));
    let refusal = run(&mut bench, 1, 0, Condition::Absent);
    assert_eq!(refusal, (0, Some(IncrementRefusal::Condition)));
    bench.put(b"count", b"seven b");
    let refusal = run(&mut bench, 1, 0, Condition::None);
    assert_eq!(refusal, (0, Some(IncrementRefusal::NotANumber)));
}

#[test]
pub(super) fn a_time_to_live_ends() {
    let mut bench = Bench::new();
    let with = |expiry| Operation::Put {
        key: b"key",
        value: b"value",
        condition: Condition::None,
        expiry,
        want_previous: false,
    };
    bench
        .operation(Method::Put, with(Expiry::AfterMs(50)))
        .answer();
    let expires_at_ms = bench.now_ms + 50;
    assert_eq!(bench.get(b"key").expect("it is there").2, expires_at_ms);
    bench.operation(Method::Put, with(Expiry::Keep)).answer();
    assert_eq!(bench.get(b"key").expect("it is there").2, expires_at_ms);
    bench.now_ms += 49;
    assert!(bench.get(b"key").is_some());
    bench.now_ms += 1;
    assert_eq!(bench.get(b"key"), None);
    bench
        .operation(Method::Put, with(Expiry::AfterMs(50)))
        .answer();
    bench.operation(Method::Put, with(Expiry::None)).answer();
    assert_eq!(bench.get(b"key").expect("it is there").2, 0);
}
