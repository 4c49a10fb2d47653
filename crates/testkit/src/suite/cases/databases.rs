//! Bounds of databases, and databases beside each other.

use store::{
    CreateError, DatabaseId, Decision, DropError, Mode, Operation, Range, Refusal, StoreConfig,
};

use super::{Case, create};
use crate::suite::{Bench, Make, append, delete, get, put};

pub(super) const CASES: &[Case] = &[
    (
        "a full database takes what does not grow it",
        a_full_database_takes_what_does_not_grow_it,
    ),
    (
        "a full store refuses growth anywhere",
        a_full_store_refuses_growth_anywhere,
    ),
    (
        "a store whose process takes too much refuses growth",
        a_store_whose_process_takes_too_much_refuses_growth,
    ),
    ("clear removes all", clear_removes_all),
    ("databases are apart", databases_are_apart),
    ("databases come and go", databases_come_and_go),
];

fn a_full_database_takes_what_does_not_grow_it(make: Make<'_>) {
    let mut config = StoreConfig::new(1);
    config.default_database.limits.memory_bytes = 10_000;
    let mut bench = Bench::with(make, config);
    let mut number = 0u32;
    let refusal = loop {
        let key = number.to_be_bytes();
        let outcome = bench.commit(Mode::Independent, &[put(&key, &[0; 100])]);
        if let Decision::Refused(refusal) = outcome.decision {
            assert_eq!(outcome.operations().len(), 0, "nothing was done");
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
    // What is there can be read, overwritten in its size, made smaller, and deleted, which makes
    // room.
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
    // Those that are refused leave nothing to those beside them.
    for _ in 0..2 {
        for bytes in [10, 5_000, 11, 6_000, 12] {
            let value = vec![1; bytes];
            let operations = [get(&first), put(&first, &value)];
            bench.add(DatabaseId::DEFAULT, Mode::Independent, &operations);
        }
        bench.run();
        let outcomes = bench.outcomes.iter();
        let counts: Vec<_> = outcomes.map(|one| one.operations().len()).collect();
        assert_eq!(counts, [2, 0, 2, 0, 2]);
        let read = |at: usize| {
            let first = bench.outcomes.get(at).first().expect("it is applied");
            first.value.expect("it was there").bytes().len()
        };
        assert_eq!((read(2), read(4)), (10, 11));
        assert!(applied(&mut bench, &[put(&first, &[1; 10])]));
    }
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

/// What shrinks the data, or leaves its size, goes on, and so do databases on disk; twice.
fn a_store_whose_process_takes_too_much_refuses_growth(make: Make<'_>) {
    let mut bench = Bench::new(make);
    bench.put(b"key", &[0; 500]);
    for process_bytes in [77_000, 78_000] {
        bench.store.note_process_bytes(Some(process_bytes));
        let refused = |outcome: Decision| match outcome {
            Decision::Refused(Refusal::ProcessFull {
                process_bytes: told,
                ..
            }) => told == process_bytes,
            _ => false,
        };
        let before = bench.store.memory_refusals();
        bench.add(DatabaseId::DEFAULT, Mode::Atomic, &[put(b"other", b"v")]);
        bench.run();
        let decision = bench.outcomes.get(0).decision;
        let is_on_disk = bench.store.tree(DatabaseId::DEFAULT).is_some();
        assert_eq!(refused(decision), !is_on_disk, "{decision:?}");
        assert_eq!(
            bench.store.memory_refusals(),
            before + u64::from(!is_on_disk)
        );
        for operation in [put(b"key", &[1; 500]), put(b"key", &[1; 500])] {
            bench.add(DatabaseId::DEFAULT, Mode::Atomic, &[operation]);
            bench.run();
            assert_eq!(bench.outcomes.get(0).decision, Decision::Applied);
        }
        bench.store.note_process_bytes(None);
        bench.put(b"other", b"v");
        bench.commit(Mode::Atomic, &[delete(b"other")]);
    }
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
    let view = bench.view(DatabaseId::DEFAULT);
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
    let not_empty = Err(DropError::NotEmpty {
        entries: 1,
        blobs: 0,
        blob_bytes: 0,
    });
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
    assert!(bench.store.config(first).is_none());
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
