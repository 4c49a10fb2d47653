//! One case for each promise, small enough to be read as its specification. Those about time are in `cases_time`.

use std::ops::{Bound, ControlFlow};

use super::{Bench, Make, append, delete, get, increment, put, put_if};
use crate::limits::{ANSWER_BYTES_PER_OPERATION, SHARED_VALUE_BYTES};
use crate::{
    Condition, CountSlice, CreateError, DatabaseId, Decision, Direction, DropError, KeyState,
    Limit, List, Mode, Operation, OperationStatus, PushError, Range, Refusal, ScanEnd, StoreConfig,
    Value,
};

/// A name and a case.
pub(super) type Case = (&'static str, fn(Make<'_>));

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
        "an atomic commit is all or nothing",
        an_atomic_commit_is_all_or_nothing,
    ),
    (
        "an independent commit does what it can",
        an_independent_commit_does_what_it_can,
    ),
    ("a commit sees its own writes", a_commit_sees_its_own_writes),
    (
        "a transaction takes one of its lists",
        a_transaction_takes_one_of_its_lists,
    ),
    ("large values are shared", large_values_are_shared),
    (
        "push refuses what is too large",
        push_refuses_what_is_too_large,
    ),
    (
        "push refuses what is misplaced",
        push_refuses_what_is_misplaced,
    ),
    (
        "a dropped commit leaves no trace",
        a_dropped_commit_leaves_no_trace,
    ),
    (
        "answers are limited before anything is done",
        answers_are_limited_before_anything_is_done,
    ),
    ("rewriting is limited", rewriting_is_limited),
    (
        "a full database takes what does not grow it",
        a_full_database_takes_what_does_not_grow_it,
    ),
    (
        "a full store refuses growth anywhere",
        a_full_store_refuses_growth_anywhere,
    ),
    ("clear removes all", clear_removes_all),
    ("databases are apart", databases_are_apart),
    ("databases come and go", databases_come_and_go),
    (
        "scans go both ways and resume",
        scans_go_both_ways_and_resume,
    ),
    ("counts are exact and resume", counts_are_exact_and_resume),
];

fn a_new_store_is_empty(make: Make<'_>) {
    let bench = Bench::new(make);
    assert_eq!(bench.get(b""), None);
    let view = bench
        .store
        .view(DatabaseId::DEFAULT)
        .expect("it always exists");
    assert_eq!(view.sequence(), 0);
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
    let visible = |database| bench.store.view(database).expect("it exists").sequence();
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
        let expiry = crate::Expiry::None;
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

fn an_atomic_commit_is_all_or_nothing(make: Make<'_>) {
    let mut bench = Bench::new(make);
    bench.put(b"text", b"text");
    let version = bench.put(b"old", b"old");
    let operations = [
        put(b"new", b"1"),
        delete(b"old"),
        append(b"text", b"!"),
        increment(b"text", 1),
        put(b"late", b"1"),
    ];
    let outcome = bench.commit(Mode::Atomic, &operations);
    assert_eq!(
        outcome.decision,
        Decision::Failed {
            index: 3,
            status: OperationStatus::WrongLength
        }
    );
    assert_eq!(
        outcome.operations().len(),
        1,
        "only the operation that failed"
    );
    assert_eq!(
        outcome.first().expect("one").status,
        OperationStatus::WrongLength
    );
    assert_eq!(bench.get(b"new"), None);
    assert_eq!(bench.get(b"late"), None);
    assert_eq!(bench.get(b"text").as_deref(), Some(&b"text"[..]));
    let outcome = bench.commit(Mode::Atomic, &[get(b"old")]);
    assert_eq!(outcome.first().expect("one").before.version, version);
}

fn an_independent_commit_does_what_it_can(make: Make<'_>) {
    let mut bench = Bench::new(make);
    let operations = [
        put(b"a", b"1"),
        put_if(b"a", b"2", Condition::Absent),
        put_if(b"a", b"3", Condition::Present),
        delete(b"none"),
    ];
    let outcome = bench.commit(Mode::Independent, &operations);
    assert_eq!(outcome.decision, Decision::Applied);
    let statuses: Vec<_> = outcome.operations().map(|one| one.status).collect();
    use OperationStatus::{ConditionFailed, Done};
    assert_eq!(statuses, [Done, ConditionFailed, Done, Done]);
    assert_eq!(bench.get(b"a").as_deref(), Some(&b"3"[..]));
}

fn a_commit_sees_its_own_writes(make: Make<'_>) {
    let mut bench = Bench::new(make);
    bench.put(b"key", b"before");
    let many: Vec<Vec<u8>> = (0..100u8).map(|number| vec![number]).collect();
    // First few keys, then more than are searched by walking.
    for count in [3, 100] {
        let mut operations = vec![get(b"key"), delete(b"key"), get(b"key"), put(b"key", b"1")];
        operations.extend(many[..count].iter().map(|key| put(key, key)));
        operations.extend([append(b"key", b"2"), append(b"key", b"3"), get(b"key")]);
        operations.extend(many[..count].iter().map(|key| get(key)));
        operations.push(put(b"key", b"before"));
        let outcome = bench.commit(Mode::Atomic, &operations);
        let sequence = outcome.sequence;
        let seen: Vec<_> = outcome.operations().collect();
        let value = |place: usize| seen[place].value.map(|value| value.bytes());
        assert_eq!((value(0), value(2)), (Some(&b"before"[..]), None));
        assert_eq!(value(4 + count + 2), Some(&b"123"[..]));
        for (place, key) in many[..count].iter().enumerate() {
            let place = 4 + count + 3 + place;
            assert_eq!(value(place), Some(&key[..]));
            assert_eq!(seen[place].before.version, sequence);
        }
    }
}

fn a_transaction_takes_one_of_its_lists(make: Make<'_>) {
    let mut bench = Bench::new(make);
    let version = bench.put(b"key", b"value");
    let mut transact = |compares: &[Condition<'_>], fail: bool| {
        let mut commit = bench.batch.begin(0, DatabaseId::DEFAULT, Mode::Transact);
        for &condition in compares {
            commit
                .push(&Operation::Compare {
                    key: b"key",
                    condition,
                })
                .expect("fits");
        }
        commit.list(List::Then);
        commit.push(&put(b"then", b"1")).expect("fits");
        commit.list(List::Otherwise);
        commit.push(&put(b"otherwise", b"1")).expect("fits");
        if fail {
            commit
                .push(&put_if(b"otherwise", b"2", Condition::Absent))
                .expect("fits");
        }
        commit.submit();
        bench.run();
        let outcome = bench.outcomes.get(0);
        let seen = (
            outcome.decision,
            outcome.unmet_compare,
            outcome.operations().len(),
        );
        let keys = (
            bench.get(b"then").is_some(),
            bench.get(b"otherwise").is_some(),
        );
        bench.commit(Mode::Atomic, &[delete(b"then"), delete(b"otherwise")]);
        (seen, keys)
    };
    let (holds, fails) = (Condition::VersionIs(version), Condition::Absent);
    assert_eq!(
        transact(&[], false),
        ((Decision::Applied, None, 1), (true, false))
    );
    assert_eq!(
        transact(&[holds, Condition::Present], false),
        ((Decision::Applied, None, 1), (true, false))
    );
    assert_eq!(
        transact(&[holds, fails, fails], false),
        ((Decision::Applied, Some(1), 1), (false, true))
    );
    let failed = Decision::Failed {
        index: 1,
        status: OperationStatus::ConditionFailed,
    };
    assert_eq!(
        transact(&[fails], true),
        ((failed, Some(0), 1), (false, false))
    );
}

fn large_values_are_shared(make: Make<'_>) {
    let mut bench = Bench::new(make);
    let large = vec![7; SHARED_VALUE_BYTES];
    bench.put(b"large", &large);
    bench.put(b"small", &large[1..]);
    let outcome = bench.commit(
        Mode::Atomic,
        &[get(b"large"), delete(b"large"), get(b"small")],
    );
    let values: Vec<_> = outcome.operations().map(|one| one.value).collect();
    // The outcome holds on to the value, though it has been deleted.
    assert!(matches!(values[0], Some(Value::Shared(bytes)) if **bytes == large));
    assert!(matches!(values[2], Some(Value::Inline(bytes)) if *bytes == large[1..]));
}

fn push_refuses_what_is_too_large(make: Make<'_>) {
    let mut config = StoreConfig::new(1);
    let limits = &mut config.default_database.limits;
    (
        limits.key_bytes,
        limits.value_bytes,
        limits.commit_operations,
        limits.commit_bytes,
    ) = (4, 10, 3, 25);
    let mut bench = Bench::with(make, config);
    let mut try_all = |operations: &[Operation<'_>]| {
        let mut commit = bench.batch.begin(0, DatabaseId::DEFAULT, Mode::Atomic);
        operations
            .iter()
            .try_for_each(|operation| commit.push(operation))
    };
    let too_large = |what, amount, limit| {
        Err(PushError::TooLarge {
            what,
            amount,
            limit,
        })
    };
    assert_eq!(try_all(&[put(b"1234", b"1234567890")]), Ok(()));
    assert_eq!(try_all(&[get(b"12345")]), too_large(Limit::KeyBytes, 5, 4));
    assert_eq!(
        try_all(&[put(b"k", b"12345678901")]),
        too_large(Limit::ValueBytes, 11, 10)
    );
    let expected = Condition::ValueIs(b"12345678901");
    assert_eq!(
        try_all(&[put_if(b"k", b"", expected)]),
        too_large(Limit::ValueBytes, 11, 10)
    );
    assert_eq!(try_all(&[get(b""); 3]), Ok(()));
    assert_eq!(
        try_all(&[get(b""); 4]),
        too_large(Limit::CommitOperations, 4, 3)
    );
    assert_eq!(
        try_all(&[put(b"123", b"1234567890"), put(b"12", b"1234567890")]),
        Ok(())
    );
    assert_eq!(
        try_all(&[put(b"123", b"1234567890"); 2]),
        too_large(Limit::CommitBytes, 26, 25)
    );
}

fn push_refuses_what_is_misplaced(make: Make<'_>) {
    let mut bench = Bench::new(make);
    let mut commit = bench.batch.begin(0, DatabaseId::DEFAULT, Mode::Transact);
    assert_eq!(commit.push(&get(b"key")), Err(PushError::OnlyCompares));
    drop(commit);
    let mut commit = bench.batch.begin(0, DatabaseId::DEFAULT, Mode::Atomic);
    assert_eq!(commit.push(&Operation::Clear), Ok(()));
    assert_eq!(commit.push(&get(b"key")), Err(PushError::ClearStandsAlone));
    drop(commit);
    let mut commit = bench.batch.begin(0, DatabaseId::DEFAULT, Mode::Atomic);
    assert_eq!(commit.push(&get(b"key")), Ok(()));
    assert_eq!(
        commit.push(&Operation::Clear),
        Err(PushError::ClearStandsAlone)
    );
}

fn a_dropped_commit_leaves_no_trace(make: Make<'_>) {
    let mut bench = Bench::new(make);
    bench.add(DatabaseId::DEFAULT, Mode::Atomic, &[put(b"one", b"1")]);
    let bytes = bench.batch.bytes();
    let mut commit = bench.batch.begin(0, DatabaseId::DEFAULT, Mode::Atomic);
    commit.push(&put(b"dropped", b"1")).expect("fits");
    drop(commit);
    assert_eq!((bench.batch.len(), bench.batch.bytes()), (1, bytes));
    bench.add(DatabaseId::DEFAULT, Mode::Atomic, &[put(b"two", b"2")]);
    bench.run();
    assert_eq!(bench.outcomes.len(), 2);
    assert_eq!(bench.get(b"one").as_deref(), Some(&b"1"[..]));
    assert_eq!(bench.get(b"two").as_deref(), Some(&b"2"[..]));
    assert_eq!(bench.get(b"dropped"), None);
}

fn answers_are_limited_before_anything_is_done(make: Make<'_>) {
    let mut bench = Bench::new(make);
    bench.put(b"key", &[1; 100]);
    for mode in [Mode::Atomic, Mode::Independent] {
        let exact = 2 * ANSWER_BYTES_PER_OPERATION + 100;
        for (limit_bytes, fits) in [(exact - 1, false), (exact, true)] {
            let mut commit = bench.batch.begin(0, DatabaseId::DEFAULT, mode);
            commit.push(&put(b"side", b"effect")).expect("fits");
            commit.push(&get(b"key")).expect("fits");
            commit.limit_answer(limit_bytes);
            commit.submit();
            bench.run();
            let refused = Decision::Refused(Refusal::AnswerTooLarge { limit_bytes });
            assert_eq!(
                bench.outcomes.get(0).decision,
                if fits { Decision::Applied } else { refused }
            );
            assert_eq!(
                bench.outcomes.get(0).operations().len(),
                if fits { 2 } else { 0 }
            );
            assert_eq!(bench.get(b"side").is_some(), fits);
        }
        bench.commit(Mode::Atomic, &[delete(b"side")]);
    }
}

fn rewriting_is_limited(make: Make<'_>) {
    let mut config = StoreConfig::new(1);
    config.default_database.limits.rewritten_bytes = 250;
    let mut bench = Bench::with(make, config);
    for key in [b"a", b"b", b"c"] {
        bench.put(key, &[1; 100]);
    }
    // A value that the commit has copied once can grow on; a new one costs nothing.
    let twice = [
        append(b"a", b"1"),
        append(b"b", b"1"),
        append(b"a", b"2"),
        append(b"b", b"2"),
        append(b"new", b"1"),
    ];
    assert_eq!(
        bench.commit(Mode::Independent, &twice).decision,
        Decision::Applied
    );
    assert_eq!(bench.get(b"b").map(|value| value.len()), Some(102));
    let thrice = [append(b"a", b"1"), append(b"b", b"1"), append(b"c", b"1")];
    let refused = Decision::Refused(Refusal::RewritesTooMuch { limit_bytes: 250 });
    assert_eq!(bench.commit(Mode::Independent, &thrice).decision, refused);
    assert_eq!(
        bench.get(b"b").map(|value| value.len()),
        Some(102),
        "nothing was done"
    );
}

fn a_full_database_takes_what_does_not_grow_it(make: Make<'_>) {
    let mut config = StoreConfig::new(1);
    config.default_database.limits.memory_bytes = 10_000;
    let mut bench = Bench::with(make, config);
    let mut number = 0u32;
    let refusal = loop {
        let decision = bench
            .commit(Mode::Independent, &[put(&number.to_be_bytes(), &[0; 100])])
            .decision;
        if let Decision::Refused(refusal) = decision {
            break refusal;
        }
        number += 1;
    };
    assert!(
        (20..90).contains(&number),
        "{number} entries of 104 bytes fill 10 000"
    );
    let Refusal::DatabaseFull {
        limit_bytes: 10_000,
        used_bytes,
        added_bytes,
    } = refusal
    else {
        panic!("{refusal:?}");
    };
    assert!(used_bytes <= 10_000 && used_bytes + added_bytes > 10_000 && added_bytes > 104);
    // What is there can be read, overwritten in its size, made smaller, and deleted, which makes room.
    let first = 0u32.to_be_bytes();
    let second = 1u32.to_be_bytes();
    assert_eq!(bench.get(&first), Some(vec![0; 100]));
    let applied = |bench: &mut Bench, operations: &[Operation<'_>]| {
        bench.commit(Mode::Independent, operations).decision == Decision::Applied
    };
    assert!(applied(&mut bench, &[put(&first, &[1; 100])]));
    assert!(!applied(&mut bench, &[put(&first, &[1; 1000])]));
    assert!(applied(&mut bench, &[put(&first, &[1; 10])]));
    // A commit counts as a whole: this one makes room for what it adds.
    assert!(applied(
        &mut bench,
        &[put(b"a new key", &[1; 100]), delete(&second)]
    ));
    assert!(applied(&mut bench, &[delete(&first)]));
    assert!(applied(&mut bench, &[put(&first, &[1; 10])]));
}

fn a_full_store_refuses_growth_anywhere(make: Make<'_>) {
    let mut config = StoreConfig::new(1);
    config.memory_bytes = 10_000;
    let mut bench = Bench::with(make, config);
    let other = create(&mut bench, "other");
    bench.put(b"key", &[0; 9000]);
    bench.add(other, Mode::Atomic, &[put(b"key", &[0; 2000])]);
    bench.run();
    let decision = bench.outcomes.get(0).decision;
    assert!(
        matches!(
            decision,
            Decision::Refused(Refusal::StoreFull {
                limit_bytes: 10_000,
                ..
            })
        ),
        "{decision:?}"
    );
    bench.commit(Mode::Atomic, &[delete(b"key")]);
    bench.add(other, Mode::Atomic, &[put(b"key", &[0; 2000])]);
    bench.run();
    assert_eq!(bench.outcomes.get(0).decision, Decision::Applied);
    bench.drop_database(other).expect("it exists");
    assert_eq!(bench.store.memory_bytes(), 0);
}

fn clear_removes_all(make: Make<'_>) {
    let mut bench = Bench::new(make);
    for number in 0..100u8 {
        bench.put(&[number], &[number; 100]);
    }
    let outcome = bench.commit(Mode::Atomic, &[Operation::Clear]);
    assert_eq!(outcome.first().expect("one").counter, 100);
    assert_eq!(bench.get(&[5]), None);
    assert_eq!(bench.store.memory_bytes(), 0);
    let view = bench.store.view(DatabaseId::DEFAULT).expect("it exists");
    assert_eq!(view.count(&Range::ALL, 1, 1000).count, 0);
    drop(view);
    bench.put(&[5], b"again");
    assert_eq!(bench.get(&[5]).as_deref(), Some(&b"again"[..]));
}

fn databases_are_apart(make: Make<'_>) {
    let mut bench = Bench::new(make);
    let other = create(&mut bench, "other");
    assert_eq!(bench.store.database("other"), Some(other));
    bench.add(
        DatabaseId::DEFAULT,
        Mode::Atomic,
        &[put(b"key", b"default")],
    );
    bench.add(other, Mode::Atomic, &[put(b"key", b"other")]);
    bench.add(DatabaseId::DEFAULT, Mode::Atomic, &[append(b"key", b"!")]);
    bench.run();
    assert_eq!(bench.get(b"key").as_deref(), Some(&b"default!"[..]));
    assert_eq!(
        bench.get_from(other, b"key").as_deref(),
        Some(&b"other"[..])
    );
    bench.commit(Mode::Atomic, &[Operation::Clear]);
    assert_eq!(
        bench.get_from(other, b"key").as_deref(),
        Some(&b"other"[..])
    );
}

fn databases_come_and_go(make: Make<'_>) {
    let mut bench = Bench::new(make);
    let config = bench.engine.database_config();
    let first = create(&mut bench, "name");
    assert_eq!(
        bench.create_database("name", config),
        Err(CreateError::Exists)
    );
    for bad in ["", ".hidden", "a/b", "a b", "\u{e4}", &"x".repeat(201)] {
        assert_eq!(
            bench.create_database(bad, config),
            Err(CreateError::BadName),
            "{bad:?}"
        );
    }
    bench.add(first, Mode::Atomic, &[put(b"key", b"value")]);
    bench.run();
    assert_eq!(
        bench.drop_database(DatabaseId::DEFAULT).err(),
        Some(DropError::IsDefault)
    );
    let not_empty = Err(DropError::NotEmpty { entries: 1 });
    assert_eq!(bench.drop_empty_database(first), not_empty);
    let empty = create(&mut bench, "empty");
    assert_eq!(bench.drop_empty_database(empty), Ok(()));
    let unknown = Err(DropError::Unknown);
    assert_eq!(bench.drop_empty_database(empty), unknown);
    let is_default = Err(DropError::IsDefault);
    assert_eq!(bench.drop_empty_database(DatabaseId::DEFAULT), is_default);
    bench.add(first, Mode::Atomic, &[put(b"late", b"value")]);
    bench.drop_database(first).expect("it exists");
    assert_eq!(bench.drop_database(first).err(), Some(DropError::Unknown));
    bench.run();
    assert_eq!(
        bench.outcomes.get(0).decision,
        Decision::Refused(Refusal::UnknownDatabase)
    );
    assert!(bench.store.view(first).is_none());
    let second = create(&mut bench, "name");
    assert_ne!(first, second);
    assert_eq!(bench.get_from(second, b"key"), None);
    let names: Vec<_> = bench
        .store
        .databases()
        .into_iter()
        .map(|info| info.name)
        .collect();
    assert_eq!(names, ["", "name"]);
}

fn scans_go_both_ways_and_resume(make: Make<'_>) {
    let mut bench = Bench::new(make);
    for key in [&b""[..], b"a", b"a\0", b"b", b"ba", b"c", b"\xff"] {
        bench.put(key, key);
    }
    let view = bench.store.view(DatabaseId::DEFAULT).expect("it exists");
    let scan = |range: Range<'_>, direction| {
        let mut keys = Vec::new();
        let end = view.scan(&range, direction, 1, u32::MAX, &mut |entry| {
            assert_eq!(entry.key, entry.value.bytes());
            keys.push(entry.key);
            ControlFlow::Continue(())
        });
        assert_eq!(end, ScanEnd::Complete);
        keys
    };
    use Direction::{Backward, Forward};
    let all: Vec<&[u8]> = vec![b"", b"a", b"a\0", b"b", b"ba", b"c", b"\xff"];
    assert_eq!(scan(Range::ALL, Forward), all);
    assert_eq!(
        scan(Range::ALL, Backward),
        all.iter().rev().copied().collect::<Vec<_>>()
    );
    assert_eq!(
        scan(Range::new(b"a", Some(b"b")), Forward),
        [&b"a"[..], b"a\0"]
    );
    assert_eq!(
        scan(Range::new(b"a", Some(b"b")), Backward),
        [&b"a\0"[..], b"a"]
    );
    assert_eq!(
        scan(Range::prefix(b"b", &mut Vec::new()), Forward),
        [&b"b"[..], b"ba"]
    );
    assert_eq!(
        scan(Range::prefix(b"\xff", &mut Vec::new()), Backward),
        [b"\xff"]
    );
    assert_eq!(scan(Range::new(b"b", Some(b"a")), Forward), [b""; 0]);
    let beyond = Range::new(b"", Some(b"c")).beyond(b"a\0", Forward);
    assert_eq!(scan(beyond, Forward), [&b"b"[..], b"ba"]);
    let before = Range::new(b"a", Some(b"c")).beyond(b"b", Backward);
    assert_eq!(scan(before, Backward), [&b"a\0"[..], b"a"]);
    let from_hole = Range {
        start: Bound::Excluded(b"aa"),
        end: Bound::Included(b"ba"),
    };
    assert_eq!(scan(from_hole, Forward), [&b"b"[..], b"ba"]);

    let mut visited = 0;
    let stop_at_two = &mut |_: &crate::Entry<'_>| {
        visited += 1;
        if visited == 2 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    assert_eq!(
        view.scan(&Range::ALL, Forward, 1, 100, stop_at_two),
        ScanEnd::Stopped
    );
    let go_on = &mut |_: &crate::Entry<'_>| ControlFlow::Continue(());
    assert_eq!(
        view.scan(&Range::ALL, Forward, 1, 2, go_on),
        ScanEnd::BudgetSpent(b"a")
    );
    assert_eq!(
        view.scan(&Range::ALL, Backward, 1, 0, go_on),
        ScanEnd::BudgetSpent(b"\xff")
    );
    assert_eq!(
        view.scan(&Range::ALL, Forward, 1, 7, go_on),
        ScanEnd::Complete
    );
}

fn counts_are_exact_and_resume(make: Make<'_>) {
    let mut bench = Bench::new(make);
    for number in 0..100u8 {
        bench.put(&[number], b"");
    }
    let view = bench.store.view(DatabaseId::DEFAULT).expect("it exists");
    assert_eq!(
        view.count(&Range::ALL, 1, 1),
        CountSlice {
            count: 100,
            passed: None
        }
    );
    let range = Range::new(&[10], Some(&[50]));
    assert_eq!(
        view.count(&range, 1, 40),
        CountSlice {
            count: 40,
            passed: None
        }
    );
    assert_eq!(
        view.count(&range, 1, 15),
        CountSlice {
            count: 15,
            passed: Some(&[24])
        }
    );
    let rest = range.beyond(&[24], Direction::Forward);
    assert_eq!(
        view.count(&rest, 1, 40),
        CountSlice {
            count: 25,
            passed: None
        }
    );
    assert_eq!(view.statistics().entries, 100);
}

fn create(bench: &mut Bench, name: &str) -> DatabaseId {
    let config = bench.engine.database_config();
    bench
        .create_database(name, config)
        .expect("there is none of this name")
}
