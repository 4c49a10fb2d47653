//! What one write does, and what it answers.

use std::ops::ControlFlow;

use store::{
    Condition, CountSlice, DatabaseId, Decision, Direction, KeyState, Mode, Operation,
    OperationStatus, Range, ScanEnd,
};

use super::{Case, create};
use crate::suite::{Bench, Make, append, delete, get, increment, put, put_if};

pub(super) const CASES: &[Case] = &[
    ("a new store is empty", a_new_store_is_empty),
    (
        "a write is visible with its version",
        a_write_is_visible_with_its_version,
    ),
    (
        "sequences are shared by all databases",
        sequences_are_shared_by_all_databases,
    ),
    ("every condition is judged", every_condition_is_judged),
    (
        "previous values are given if wanted",
        previous_values_are_given_if_wanted,
    ),
    (
        "append builds on what is there",
        append_builds_on_what_is_there,
    ),
    (
        "increment counts in eight bytes",
        increment_counts_in_eight_bytes,
    ),
    (
        "a wrapping increment always counts",
        a_wrapping_increment_always_counts,
    ),
];

fn a_new_store_is_empty(make: Make<'_>) {
    let bench = Bench::new(make);
    assert_eq!(bench.get(b""), None);
    let view = bench.view(DatabaseId::DEFAULT);
    assert!(view.sequence() == 0 || bench.engine.is_on_disk());
    assert_eq!(
        view.count(&Range::ALL, 1, 1),
        CountSlice {
            count: 0,
            passed: None
        }
    );
    assert_eq!(
        view.scan(&Range::ALL, Direction::Forward, 1, 1, &mut |_| {
            ControlFlow::Break(())
        }),
        ScanEnd::Complete
    );
    assert_eq!(bench.store.database(""), Some(DatabaseId::DEFAULT));
    assert_eq!(bench.store.memory_bytes(), 0);
}

fn a_write_is_visible_with_its_version(make: Make<'_>) {
    let mut bench = Bench::new(make);
    let first = bench.put(b"key", b"one");
    let second = bench.put(b"key", b"two");
    assert!(0 < first && first < second);
    let outcome = bench.commit(Mode::Atomic, &[get(b"key"), delete(b"key"), get(b"key")]);
    let [read, removed, missed] = &outcome.operations().collect::<Vec<_>>()[..] else {
        panic!("three outcomes")
    };
    assert_eq!(
        read.before,
        KeyState {
            version: second,
            expires_ms: 0,
            value_bytes: 3
        }
    );
    assert_eq!(read.after, read.before);
    assert_eq!(read.value.expect("a hit").bytes(), b"two");
    assert!(removed.existed() && removed.after == KeyState::default() && removed.value.is_none());
    assert!(!missed.existed() && missed.value.is_none() && missed.status == OperationStatus::Done);
    assert_eq!(bench.get(b"key"), None);
}

fn sequences_are_shared_by_all_databases(make: Make<'_>) {
    let mut bench = Bench::new(make);
    let other = create(&mut bench, "other");
    for database in [other, DatabaseId::DEFAULT, other, other] {
        bench.add(database, Mode::Atomic, &[put(b"key", b"value")]);
    }
    // Also a commit that changes nothing has a sequence.
    bench.add(
        other,
        Mode::Atomic,
        &[put_if(b"key", b"value", Condition::Absent)],
    );
    bench.run();
    let sequences: Vec<u64> = bench
        .outcomes
        .iter()
        .map(|outcome| outcome.sequence)
        .collect();
    assert!(
        sequences.is_sorted_by(|one, two| one < two),
        "{sequences:?}"
    );
    let visible = |database| bench.view(database).sequence();
    assert_eq!(
        (visible(DatabaseId::DEFAULT), visible(other)),
        (sequences[1], sequences[4])
    );
}

fn every_condition_is_judged(make: Make<'_>) {
    let mut bench = Bench::new(make);
    let version = bench.put(b"here", b"value");
    let judge = |bench: &mut Bench, key: &[u8], condition| {
        let outcome = bench.commit(Mode::Independent, &[Operation::Compare { key, condition }]);
        outcome.first().expect("one outcome").status == OperationStatus::Done
    };
    let cases: [(Condition<'_>, bool, bool); 10] = [
        (Condition::None, true, true),
        (Condition::Absent, false, true),
        (Condition::Present, true, false),
        (Condition::VersionIs(0), false, true),
        (Condition::VersionIs(version), true, false),
        (Condition::VersionIs(version + 1), false, false),
        (Condition::ValueIs(b"value"), true, false),
        (Condition::ValueIs(b"valuf"), false, false),
        (Condition::ValueIs(b"valu"), false, false),
        (Condition::ValueIs(b""), false, false),
    ];
    for (condition, if_here, if_missing) in cases {
        assert_eq!(
            judge(&mut bench, b"here", condition),
            if_here,
            "{condition:?}"
        );
        assert_eq!(
            judge(&mut bench, b"missing", condition),
            if_missing,
            "{condition:?}"
        );
    }
    // The condition is about the value before the write.
    let outcome = bench.commit(
        Mode::Independent,
        &[put_if(b"here", b"new", Condition::ValueIs(b"new"))],
    );
    assert_eq!(
        outcome.first().expect("one outcome").status,
        OperationStatus::ConditionFailed
    );
    assert_eq!(bench.get(b"here").as_deref(), Some(&b"value"[..]));
}

fn previous_values_are_given_if_wanted(make: Make<'_>) {
    let mut bench = Bench::new(make);
    bench.put(b"key", b"old");
    let replace = |want_previous, condition| {
        let expiry = store::Expiry::None;
        Operation::Put {
            key: b"key",
            value: b"new",
            condition,
            expiry,
            want_previous,
        }
    };
    let remove = Operation::Delete {
        key: b"key",
        condition: Condition::None,
        want_previous: true,
    };
    let operations = [
        replace(true, Condition::Absent),
        replace(true, Condition::None),
        replace(false, Condition::None),
        remove,
        remove,
    ];
    let outcome = bench.commit(Mode::Independent, &operations);
    let values: Vec<Option<&[u8]>> = outcome
        .operations()
        .map(|one| one.value.map(|value| value.bytes()))
        .collect();
    assert_eq!(
        values,
        [Some(&b"old"[..]), Some(b"old"), None, Some(b"new"), None]
    );
}

fn append_builds_on_what_is_there(make: Make<'_>) {
    let mut bench = Bench::new(make);
    let mut expected = Vec::new();
    let piece = vec![b'p'; 5000];
    // Through the length from which on values are shared, with several pieces to a commit.
    for round in 0..5 {
        let pieces = vec![append(b"key", &piece); round];
        let outcome = bench.commit(Mode::Atomic, &pieces);
        assert_eq!(outcome.decision, Decision::Applied);
        let sequence = outcome.sequence;
        for one in outcome.operations() {
            expected.extend(&piece);
            assert_eq!(
                (one.after.version, one.after.value_bytes),
                (sequence, expected.len() as u64)
            );
        }
        if round > 0 {
            assert_eq!(bench.get(b"key").as_ref(), Some(&expected));
        }
    }
    bench.commit(Mode::Atomic, &[append(b"empty", b"")]);
    assert_eq!(bench.get(b"empty"), Some(Vec::new()));
}

fn a_wrapping_increment_always_counts(make: Make<'_>) {
    let mut bench = Bench::new(make);
    let count = |bench: &mut Bench, delta: i64, initial: i64| {
        let key = b"n";
        let outcome = bench.commit(
            Mode::Independent,
            &[Operation::WrappingIncrement {
                key,
                delta,
                initial,
            }],
        );
        let one = outcome.first().expect("one outcome");
        assert_eq!(one.status, OperationStatus::Done);
        one.counter
    };
    assert_eq!(count(&mut bench, 5, 100), 105);
    assert_eq!(count(&mut bench, -106, 100), -1);
    for (value, number) in [
        (&b""[..], 0),
        (b"\xff\xff", 65_535),
        (b"\xff\xff\xff\xff\xff\xff\xff\xfe and more", -2),
    ] {
        bench.put(b"n", value);
        assert_eq!(count(&mut bench, 3, 7), number + 3);
        assert_eq!(bench.get(b"n"), Some((number + 3).to_be_bytes().to_vec()));
    }
    bench.put(b"n", &i64::MAX.to_be_bytes());
    assert_eq!(count(&mut bench, 2, 0), i64::MIN + 1);
}

fn increment_counts_in_eight_bytes(make: Make<'_>) {
    let mut bench = Bench::new(make);
    let mut count = |delta, initial| {
        let condition = Condition::None;
        let outcome = bench.commit(
            Mode::Independent,
            &[Operation::Increment {
                key: b"n",
                delta,
                initial,
                condition,
            }],
        );
        let one = outcome.first().expect("one outcome");
        (one.status, one.counter)
    };
    assert_eq!(count(5, 100), (OperationStatus::Done, 105));
    assert_eq!(count(-106, 100), (OperationStatus::Done, -1));
    assert_eq!(count(i64::MIN, 0), (OperationStatus::Overflow, -1));
    assert_eq!(count(0, 0), (OperationStatus::Done, -1));
    assert_eq!(bench.get(b"n"), Some(vec![0xff; 8]));
    bench.put(b"n", b"\0\0\0\0\0\0\x01\x02");
    assert_eq!(
        bench
            .commit(Mode::Atomic, &[increment(b"n", 0)])
            .first()
            .expect("one")
            .counter,
        258
    );
    for wrong in [&b""[..], b"seven..", b"nine....."] {
        let version = bench.put(b"n", wrong);
        let one = bench
            .commit(Mode::Independent, &[increment(b"n", 1)])
            .first()
            .map(|one| (one.status, one.after.version));
        assert_eq!(one, Some((OperationStatus::WrongLength, version)));
    }
    // The sum with the initial value can overflow too; then there is still no such key.
    let overflowing = Operation::Increment {
        key: b"new",
        delta: 1,
        initial: i64::MAX,
        condition: Condition::None,
    };
    let outcome = bench.commit(Mode::Independent, &[overflowing]);
    assert_eq!(
        outcome.first().expect("one").status,
        OperationStatus::Overflow
    );
    assert_eq!(bench.get(b"new"), None);
}
