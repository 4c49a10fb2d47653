//! Several operations in one commit, and what is refused before anything is done.

use store::limits::{ANSWER_BYTES_PER_OPERATION, SHARED_VALUE_BYTES};
use store::{
    Condition, DatabaseId, Decision, Limit, Mode, Operation, OperationStatus, PushError, Refusal,
    StoreConfig, TransactList, Value,
};

use super::Case;
use crate::suite::{Bench, Make, append, delete, get, increment, put, put_if};

pub(super) const CASES: &[Case] = &[
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
];

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
        commit.list(TransactList::Then);
        commit.push(&put(b"then", b"1")).expect("fits");
        commit.list(TransactList::Otherwise);
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
