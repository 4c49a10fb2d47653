//! The cases about time to live.

use store::limits::{SWEEP_DELAY_MS, SWEEP_KEYS};
use store::{
    Condition, DatabaseConfig, DatabaseId, DatabaseLimits, Direction, Expiry, Mode, Operation,
    OperationStatus, Range, SWEEP_TAG,
};

use super::Case;
use crate::suite::{Bench, Make, append, delete, get, increment, put, put_expiring};
use std::ops::ControlFlow;

pub(super) const CASES: &[Case] = &[
    (
        "an entry expires at its millisecond",
        an_entry_expires_at_its_millisecond,
    ),
    (
        "an expired entry is absent everywhere",
        an_expired_entry_is_absent_everywhere,
    ),
    (
        "put clears the expiry or keeps it",
        put_clears_the_expiry_or_keeps_it,
    ),
    (
        "append and increment keep the expiry",
        append_and_increment_keep_the_expiry,
    ),
    (
        "an expired entry passes nothing on",
        an_expired_entry_passes_nothing_on,
    ),
    ("the clock never goes back", the_clock_never_goes_back),
    (
        "counts with expired entries resume",
        counts_with_expired_entries_resume,
    ),
    (
        "expire removes only what has expired",
        expire_removes_only_what_has_expired,
    ),
    (
        "a sweep removes what has expired",
        a_sweep_removes_what_has_expired,
    ),
    ("a sweep takes turns and ends", a_sweep_takes_turns_and_ends),
    (
        "a sweep asks once for what is on its way",
        a_sweep_asks_once_for_what_is_on_its_way,
    ),
    (
        "a sweep spares what was written meanwhile",
        a_sweep_spares_what_was_written_meanwhile,
    ),
];

fn an_entry_expires_at_its_millisecond(make: Make<'_>) {
    let mut bench = Bench::new(make);
    let outcome = bench.commit(
        Mode::Atomic,
        &[put_expiring(b"key", b"value", Expiry::AfterMs(100))],
    );
    assert_eq!(outcome.first().expect("one").after.expires_ms, 1100);
    bench.clock.now_ms = 1099;
    assert!(bench.get(b"key").is_some());
    assert!(
        bench
            .commit(Mode::Atomic, &[get(b"key")])
            .first()
            .expect("one")
            .existed()
    );
    bench.clock.now_ms = 1100;
    assert!(bench.get(b"key").is_none());
    assert!(
        !bench
            .commit(Mode::Atomic, &[get(b"key")])
            .first()
            .expect("one")
            .existed()
    );
}

fn an_expired_entry_is_absent_everywhere(make: Make<'_>) {
    let mut bench = Bench::new(make);
    bench.commit(
        Mode::Atomic,
        &[
            put_expiring(b"b", b"value", Expiry::AfterMs(10)),
            put(b"a", b""),
            put(b"c", b""),
        ],
    );
    bench.clock.now_ms = 1010;
    let compare = |condition| Operation::Compare {
        key: b"b",
        condition,
    };
    let operations = [
        compare(Condition::Absent),
        compare(Condition::VersionIs(0)),
        delete(b"b"),
        compare(Condition::Present),
    ];
    let outcome = bench.commit(Mode::Independent, &operations);
    let statuses: Vec<_> = outcome.operations().map(|one| one.status).collect();
    use OperationStatus::{ConditionFailed, Done};
    assert_eq!(statuses, [Done, Done, Done, ConditionFailed]);
    assert!(outcome.operations().all(|one| !one.existed()));

    let view = bench.view(DatabaseId::DEFAULT);
    for (direction, expected) in [
        (Direction::Forward, [b"a", b"c"]),
        (Direction::Backward, [b"c", b"a"]),
    ] {
        let mut keys = Vec::new();
        view.scan(&Range::ALL, direction, 1010, 100, &mut |entry| {
            keys.push(entry.key);
            ControlFlow::Continue(())
        });
        assert_eq!(keys, expected);
    }
    assert_eq!(view.count(&Range::ALL, 1010, 100).count, 2);
    assert_eq!(view.count(&Range::ALL, 1009, 100).count, 3);
    assert_eq!(view.expired(1010), [b"b"]);
    assert_eq!(view.expired(1009).len(), 0);
}

fn put_clears_the_expiry_or_keeps_it(make: Make<'_>) {
    let mut bench = Bench::new(make);
    let operations = [
        put_expiring(b"key", b"1", Expiry::AfterMs(10)),
        put_expiring(b"key", b"2", Expiry::Keep),
        put_expiring(b"key", b"3", Expiry::AfterMs(20)),
        put_expiring(b"key", b"4", Expiry::None),
        put_expiring(b"key", b"5", Expiry::Keep),
        put_expiring(b"new", b"6", Expiry::Keep),
        put_expiring(b"key", b"7", Expiry::AtMs(1030)),
        put_expiring(b"key", b"8", Expiry::AtMs(0)),
    ];
    let expected = [1010, 1010, 1020, 0, 0, 0, 1030, 0];
    // In one commit, and in one for each.
    let outcome = bench.commit(Mode::Atomic, &operations);
    assert_eq!(
        outcome
            .operations()
            .map(|one| one.after.expires_ms)
            .collect::<Vec<_>>(),
        expected
    );
    bench.commit(Mode::Atomic, &[delete(b"new")]);
    for (operation, expires_ms) in operations.iter().zip(expected) {
        let outcome = bench.commit(Mode::Atomic, std::slice::from_ref(operation));
        assert_eq!(outcome.first().expect("one").after.expires_ms, expires_ms);
    }
}

fn append_and_increment_keep_the_expiry(make: Make<'_>) {
    let mut bench = Bench::new(make);
    bench.commit(
        Mode::Atomic,
        &[
            put_expiring(b"text", b"1", Expiry::AfterMs(10)),
            put_expiring(b"number", &[0; 8], Expiry::AfterMs(10)),
        ],
    );
    let outcome = bench.commit(
        Mode::Atomic,
        &[
            append(b"text", b"2"),
            increment(b"number", 1),
            append(b"text", b"3"),
        ],
    );
    let sequence = outcome.sequence;
    for one in outcome.operations() {
        assert_eq!((one.after.expires_ms, one.after.version), (1010, sequence));
    }
    bench.clock.now_ms = 1010;
    assert_eq!((bench.get(b"text"), bench.get(b"number")), (None, None));
}

fn an_expired_entry_passes_nothing_on(make: Make<'_>) {
    let mut bench = Bench::new(make);
    for key in [b"append", b"number", b"put..."] {
        bench.commit(
            Mode::Atomic,
            &[put_expiring(key, &[1; 8], Expiry::AfterMs(10))],
        );
    }
    bench.clock.now_ms = 1010;
    let operations = [
        append(b"append", b"new"),
        increment(b"number", 5),
        put_expiring(b"put...", b"new", Expiry::Keep),
    ];
    let outcome = bench.commit(Mode::Atomic, &operations);
    assert!(
        outcome
            .operations()
            .all(|one| !one.existed() && one.after.expires_ms == 0)
    );
    assert_eq!(bench.get(b"append").as_deref(), Some(&b"new"[..]));
    assert_eq!(bench.get(b"number"), Some(5u64.to_be_bytes().to_vec()));
    let view = bench.view(DatabaseId::DEFAULT);
    assert!((view.memory()).is_none_or(|view| view.statistics().expiring == 0));
}

fn the_clock_never_goes_back(make: Make<'_>) {
    let mut bench = Bench::new(make);
    bench.commit(
        Mode::Atomic,
        &[put_expiring(b"key", b"", Expiry::AfterMs(100))],
    );
    assert_eq!(bench.store.clock_ms(1100), 1100);
    assert_eq!(bench.store.clock_ms(1050), 1100);
    bench.clock.now_ms = 1050;
    assert!(bench.get(b"key").is_none());
    let outcome = bench.commit(
        Mode::Atomic,
        &[get(b"key"), put_expiring(b"key", b"", Expiry::AfterMs(1))],
    );
    assert!(!outcome.first().expect("two").existed());
    assert_eq!(
        outcome.operations().nth(1).expect("two").after.expires_ms,
        1101
    );
}

fn counts_with_expired_entries_resume(make: Make<'_>) {
    let mut bench = Bench::new(make);
    for number in 0..100u8 {
        let expiry = if number % 3 == 0 {
            Expiry::AfterMs(10)
        } else {
            Expiry::None
        };
        bench.commit(Mode::Atomic, &[put_expiring(&[number], b"", expiry)]);
    }
    bench.clock.now_ms = 1010;
    let view = bench.view(DatabaseId::DEFAULT);
    let (mut count, mut slices, mut range) = (0, 0, Range::ALL);
    loop {
        let slice = view.count(&range, 1010, 100);
        (count, slices) = (count + slice.count, slices + 1);
        match slice.passed {
            Some(passed) => range = range.beyond(passed, Direction::Forward),
            None => break,
        }
    }
    assert_eq!(count, 66);
    assert!(
        slices > 5,
        "each row that must be looked up counts for several"
    );
}

fn expire_removes_only_what_has_expired(make: Make<'_>) {
    let mut bench = Bench::new(make);
    let expiring = |key| put_expiring(key, b"value", Expiry::AfterMs(10));
    bench.commit(
        Mode::Atomic,
        &[expiring(b"old"), expiring(b"renewed"), put(b"stays", b"")],
    );
    bench.clock.now_ms = 1009;
    let expire = |key| Operation::Expire { key };
    let outcome = bench.commit(Mode::Atomic, &[expire(b"old")]);
    assert_eq!(outcome.first().expect("one").counter, 0);
    assert!(bench.get(b"old").is_some());

    bench.clock.now_ms = 1010;
    let operations = [
        put(b"renewed", b"new"),
        expire(b"old"),
        expire(b"old"),
        expire(b"renewed"),
        expire(b"stays"),
        expire(b"never"),
    ];
    let outcome = bench.commit(Mode::Atomic, &operations);
    let counters: Vec<_> = outcome.operations().map(|one| one.counter).collect();
    assert_eq!(counters, [0, 1, 0, 0, 0, 0]);
    assert!(
        outcome
            .operations()
            .all(|one| !one.existed() || one.after.version != 0)
    );
    assert_eq!(bench.get(b"renewed").as_deref(), Some(&b"new"[..]));
    assert!(bench.get(b"stays").is_some());
    let view = bench.view(DatabaseId::DEFAULT);
    assert_eq!(view.entries(), 2);
}

/// Sweeps as a server does; returns how many entries were removed.
fn sweep(bench: &mut Bench) -> usize {
    let now_ms = bench.store.clock_ms(bench.clock.now_ms);
    let swept = bench.store.sweep(now_ms, &mut bench.batch);
    bench.run();
    swept
}

fn a_sweep_removes_what_has_expired(make: Make<'_>) {
    let mut bench = Bench::new(make);
    // The first one looks at what a store begins with.
    assert_eq!(sweep(&mut bench), 0);
    assert_eq!(bench.store.sweep_due_ms(), u64::MAX);
    for (key, ms) in [(b"a", 10), (b"b", 20), (b"c", 500)] {
        bench.commit(Mode::Atomic, &[put_expiring(key, b"", Expiry::AfterMs(ms))]);
    }
    bench.put(b"d", b"");
    let due_ms = 1010 + SWEEP_DELAY_MS;
    assert_eq!(bench.store.sweep_due_ms(), due_ms);
    bench.clock.now_ms = due_ms - 1;
    assert_eq!(sweep(&mut bench), 0);
    bench.clock.now_ms = due_ms;
    assert_eq!(sweep(&mut bench), 2);
    // It is looked after once whether they are gone.
    bench.clock.now_ms = bench.store.sweep_due_ms();
    assert_eq!(bench.clock.now_ms, due_ms + SWEEP_DELAY_MS);
    assert_eq!(sweep(&mut bench), 0);
    assert_eq!(bench.store.sweep_due_ms(), 1500 + SWEEP_DELAY_MS);
    let memory_bytes = bench.store.memory_bytes();
    bench.clock.now_ms = 1500 + SWEEP_DELAY_MS;
    assert_eq!(sweep(&mut bench), 1);
    assert!(bench.store.memory_bytes() < memory_bytes);
    bench.clock.now_ms += SWEEP_DELAY_MS;
    assert_eq!(sweep(&mut bench), 0);
    assert_eq!(bench.store.sweep_due_ms(), u64::MAX);
    let view = bench.view(DatabaseId::DEFAULT);
    assert_eq!(view.entries(), 1);
    assert!((view.memory()).is_none_or(|view| view.statistics().expiring == 0));
}

fn a_sweep_takes_turns_and_ends(make: Make<'_>) {
    let mut bench = Bench::new(make);
    let limits = DatabaseLimits {
        commit_operations: 10,
        ..DatabaseLimits::default()
    };
    let config = DatabaseConfig {
        limits,
        ..bench.engine.database_config()
    };
    let other = bench.create_database("other", config).expect("it is new");
    for number in 0..2 * SWEEP_KEYS as u32 + 10 {
        for database in [DatabaseId::DEFAULT, other] {
            let key = number.to_be_bytes();
            bench.add(
                database,
                Mode::Atomic,
                &[put_expiring(&key, b"", Expiry::AfterMs(10))],
            );
            bench.run();
        }
    }
    bench.clock.now_ms = 1010 + SWEEP_DELAY_MS;
    let entries = |bench: &Bench, database| {
        let view = bench.view(database);
        view.entries() as usize
    };
    assert_eq!(sweep(&mut bench), SWEEP_KEYS);
    bench.clock.now_ms += 1;
    assert_eq!(sweep(&mut bench), SWEEP_KEYS, "it is soon due again");
    assert_eq!(entries(&bench, DatabaseId::DEFAULT), SWEEP_KEYS + 10);
    assert_eq!(entries(&bench, other), SWEEP_KEYS + 10);
    let mut sweeps = Vec::new();
    while bench.store.sweep_due_ms() != u64::MAX {
        bench.clock.now_ms = bench.clock.now_ms.max(bench.store.sweep_due_ms());
        sweeps.push(sweep(&mut bench));
    }
    assert_eq!(sweeps, [SWEEP_KEYS, SWEEP_KEYS, 20, 0]);
    assert_eq!(bench.store.sweep_due_ms(), u64::MAX);
    assert_eq!(bench.store.memory_bytes(), 0);
}

fn a_sweep_asks_once_for_what_is_on_its_way(make: Make<'_>) {
    let mut bench = Bench::new(make);
    for number in 0..SWEEP_KEYS as u32 + 10 {
        let key = number.to_be_bytes();
        let operation = put_expiring(&key, b"", Expiry::AfterMs(10));
        bench.commit(Mode::Atomic, &[operation]);
    }
    // As if the first commits were still on their way to the device while the next sweep looks.
    let mut asked = Vec::new();
    for ms in 0..3 {
        let now_ms = bench.store.clock_ms(1010 + SWEEP_DELAY_MS + ms);
        asked.push(bench.store.sweep(now_ms, &mut bench.batch));
    }
    assert_eq!(asked, [SWEEP_KEYS, 10, 0]);
    // And if they never arrive, it is asked again.
    bench.batch.clear();
    let mut swept = 0;
    while bench.store.sweep_due_ms() != u64::MAX {
        bench.clock.now_ms = bench.clock.now_ms.max(bench.store.sweep_due_ms());
        swept += sweep(&mut bench);
    }
    assert_eq!(swept, SWEEP_KEYS + 10);
    let view = bench.view(DatabaseId::DEFAULT);
    assert_eq!(view.entries(), 0);
}

fn a_sweep_spares_what_was_written_meanwhile(make: Make<'_>) {
    let mut bench = Bench::new(make);
    bench.commit(
        Mode::Atomic,
        &[
            put_expiring(b"a", b"", Expiry::AfterMs(10)),
            put_expiring(b"b", b"", Expiry::AfterMs(10)),
        ],
    );
    bench.clock.now_ms = 1010 + SWEEP_DELAY_MS;
    // Another loop writes between the look and the removal.
    bench.add(DatabaseId::DEFAULT, Mode::Atomic, &[put(b"a", b"new")]);
    let now_ms = bench.store.clock_ms(bench.clock.now_ms);
    assert_eq!(bench.store.sweep(now_ms, &mut bench.batch), 2);
    bench.run();
    assert_eq!(bench.outcomes.get(1).tag, SWEEP_TAG);
    assert_eq!(bench.get(b"a").as_deref(), Some(&b"new"[..]));
    let view = bench.view(DatabaseId::DEFAULT);
    assert_eq!(view.entries(), 1);
}
