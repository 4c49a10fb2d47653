//! Databases on an engine behind a network: what the store promises whatever the engine does, by a
//! double of one.

use std::sync::Arc;
use std::time::Duration;

use store::remote::{
    Lack, RemoteBackend, RemoteDone, RemoteError, RemoteOrder, RemotePromise, RemoteShape, limits,
};
use store::tree::ReadFailure;
use store::{
    Condition, CreateError, DatabaseId, Decision, DropError, Expiry, Mode, Operation, Outcomes,
    ReadView, Refusal, TransactList, WatchError,
};
use testkit::suite::{
    RemoteBench, RemoteTarget, append, delete, get, increment, put, remote_config, run_remote,
};
use testkit::{RemoteDouble, RemoteFaults};

fn target(double: &Arc<RemoteDouble>) -> RemoteTarget {
    let (backend, driven, clock) = (Arc::clone(double), Arc::clone(double), Arc::clone(double));
    RemoteTarget {
        backend,
        drive: Box::new(move || {
            driven.step();
        }),
        set_now_ms: Some(Box::new(move |now_ms| clock.set_now_ms(now_ms))),
    }
}

fn shape(promise: RemotePromise) -> RemoteShape {
    RemoteShape::new(promise, RemoteOrder::Hash)
}

fn bench(seed: u64) -> (Arc<RemoteDouble>, RemoteBench) {
    let config = remote_config(shape(RemotePromise::Linearizable));
    let double = RemoteDouble::new(seed, config);
    let bench = RemoteBench::new(target(&double));
    (double, bench)
}

const DEFAULT: DatabaseId = DatabaseId::DEFAULT;

fn one(operation: Operation<'_>) -> [(TransactList, Operation<'_>); 1] {
    [(TransactList::Compares, operation)]
}

fn all<'a>(operations: &[Operation<'a>]) -> Vec<(TransactList, Operation<'a>)> {
    let in_list = |&operation| (TransactList::Compares, operation);
    operations.iter().map(in_list).collect()
}

fn refusal(outcomes: &Outcomes) -> Option<Refusal> {
    match outcomes.get(0).decision {
        Decision::Refused(refusal) => Some(refusal),
        _ => None,
    }
}

fn value(double: &RemoteDouble, key: &[u8]) -> Option<Vec<u8>> {
    let mut entries = double.entries(DEFAULT).into_iter();
    let found = entries.find(|(other, _)| other == key);
    found.map(|(_, entry)| entry.value.to_vec())
}

fn number(double: &RemoteDouble, key: &[u8]) -> i64 {
    let value = value(double, key).unwrap_or_else(|| vec![0; 8]);
    i64::from_be_bytes(value.try_into().expect("it is a counter"))
}

#[test]
fn both_promises_agree_with_the_model_in_both_orders() {
    let make = |seed, config| target(&RemoteDouble::new(seed, config));
    run_remote(&make, 1..12);
}

/// Commits of different calls overtake each other between their reads and their writes.
#[test]
fn commits_that_meet_are_decided_anew() {
    for seed in 1..10 {
        let (double, mut bench) = bench(seed);
        for tag in 0..30 {
            bench.add(tag, DEFAULT, Mode::Atomic, &one(increment(b"key", 1)));
        }
        let outcomes = bench.run();
        let applied = outcomes.iter().filter(|all| refusal(all).is_none()).count() as i64;
        let contended = Refusal::Remote(RemoteError::Contended);
        assert!(
            outcomes
                .iter()
                .filter_map(refusal)
                .all(|why| why == contended)
        );
        assert!(double.counts().lost_races > 0 && applied > 0);
        assert_eq!(number(&double, b"key"), applied);
        let mut counters: Vec<_> = (outcomes.iter().filter(|all| refusal(all).is_none()))
            .map(|all| all.get(0).first().expect("it has one").counter)
            .collect();
        counters.sort_unstable();
        assert_eq!(
            counters,
            (1..=applied).collect::<Vec<_>>(),
            "each sum is given once"
        );
    }
}

#[test]
fn a_write_that_was_sent_and_not_answered_is_of_unknown_outcome() {
    for seed in 1..10 {
        let (double, mut bench) = bench(seed);
        let faults = RemoteFaults {
            unknown: 3,
            timed_out: 9,
            busy: 9,
            dropped: 9,
            ..RemoteFaults::default()
        };
        double.set_faults(faults);
        let (mut applied, mut unknown) = (0, 0);
        for tag in 0..60 {
            bench.add(tag, DEFAULT, Mode::Atomic, &one(increment(b"key", 1)));
            for outcomes in bench.run() {
                match refusal(&outcomes) {
                    None => applied += 1,
                    Some(Refusal::Remote(RemoteError::OutcomeUnknown)) => unknown += 1,
                    Some(Refusal::Remote(_)) => {}
                    Some(other) => panic!("{other:?}"),
                }
            }
        }
        let counts = double.counts();
        assert_eq!(unknown, counts.unknown_applied + counts.unknown_lost);
        assert!(counts.unknown_applied > 0 && counts.unknown_lost > 0 && counts.other_faults > 0);
        assert_eq!(
            number(&double, b"key") as u64,
            applied + counts.unknown_applied
        );
    }
}

/// A write of a quorum database whose outcome is unknown can still come. What was deleted since
/// does not come back with it, though the Delete has found nothing.
#[test]
fn a_late_write_does_not_undo_a_delete_of_a_quorum_database() {
    let double = RemoteDouble::new(1, remote_config(shape(RemotePromise::Quorum)));
    let mut bench = RemoteBench::new(target(&double));
    for mode in [Mode::Atomic, Mode::Independent] {
        late(&double, 1);
        let outcomes = bench.commit(DEFAULT, mode, &one(put(b"key", b"late")));
        let unknown = Refusal::Remote(RemoteError::OutcomeUnknown);
        assert_eq!(refusal(&outcomes), Some(unknown));
        late(&double, 0);
        let gone = all(&[delete(b"key"), delete(b"other")]);
        assert_eq!(
            refusal(&bench.commit(DEFAULT, Mode::Independent, &gone)),
            None
        );
        assert_eq!(double.deliver_late(), 1);
        assert_eq!(value(&double, b"key"), None);
        let again = bench.commit(DEFAULT, mode, &all(&[delete(b"key"), put(b"key", b"new")]));
        assert_eq!(refusal(&again), None);
        assert_eq!(value(&double, b"key").as_deref(), Some(&b"new"[..]));
    }
}

/// A conditional write that comes late takes effect only on what it was decided from.
#[test]
fn a_late_write_does_not_undo_what_came_before_it_in_a_linearizable_database() {
    let (double, mut bench) = bench(1);
    late(&double, 1);
    bench.commit(DEFAULT, Mode::Atomic, &one(increment(b"key", 1)));
    late(&double, 0);
    bench.commit(DEFAULT, Mode::Atomic, &one(increment(b"key", 1)));
    assert_eq!(double.deliver_late(), 0);
    assert_eq!(number(&double, b"key"), 1);
}

fn late(double: &RemoteDouble, once_in: u64) {
    double.set_faults(RemoteFaults {
        late: once_in,
        ..RemoteFaults::default()
    });
}

#[test]
fn commits_of_one_call_take_effect_in_their_order() {
    for seed in 1..10 {
        let (double, mut bench) = bench(seed);
        for letter in b"abcdefgh".chunks(1) {
            bench.add(1, DEFAULT, Mode::Atomic, &one(append(b"one", letter)));
            bench.add(
                2,
                DEFAULT,
                Mode::Independent,
                &all(&[append(b"two", letter), get(b"one")]),
            );
        }
        // What is refused has its place in the line too.
        bench.add(1, DEFAULT, Mode::Atomic, &one(Operation::Clear));
        bench.add(1, DEFAULT, Mode::Atomic, &one(put(b"last", b"")));
        let outcomes = bench.run();
        assert_eq!(value(&double, b"one").as_deref(), Some(&b"abcdefgh"[..]));
        assert_eq!(value(&double, b"two").as_deref(), Some(&b"abcdefgh"[..]));
        let of_first = outcomes.iter().filter(|all| all.get(0).tag == 1);
        let refusals: Vec<_> = of_first.map(refusal).collect();
        assert_eq!(refusals[8..], [Some(Refusal::Lacks(Lack::Clear)), None]);
        assert!(refusals[..8].iter().all(Option::is_none));
    }
}

#[test]
fn parts_of_an_independent_commit_run_side_by_side_and_come_back_in_order() {
    let config = remote_config(shape(RemotePromise::Linearizable));
    let double = RemoteDouble::answering_at_once(1, config);
    let mut bench = RemoteBench::new(target(&double));
    let keys: Vec<_> = (0..9_000_u32).map(|number| number.to_be_bytes()).collect();
    for _ in 0..2 {
        let operations: Vec<_> = keys.iter().map(|key| put(key, key)).collect();
        let outcomes = bench.commit(DEFAULT, Mode::Independent, &all(&operations));
        assert_eq!(outcomes.get(0).decision, Decision::Applied);
        let reads: Vec<_> = keys.iter().map(|key| get(key)).collect();
        let outcomes = bench.commit(DEFAULT, Mode::Independent, &all(&reads));
        let found = outcomes.get(0).operations();
        let values = found.map(|outcome| outcome.value.map(|value| value.to_vec()));
        assert!(values.eq(keys.iter().map(|key| Some(key.to_vec()))));
    }
}

#[test]
fn an_independent_commit_of_which_a_part_is_unknown_is_unknown() {
    let (double, mut bench) = bench(1);
    let operations = [
        put(b"a", b""),
        put(b"b", b""),
        put(b"c", b""),
        put(b"d", b""),
    ];
    let (mut unknown, mut nothing) = (0, 0);
    for seed in 0..60 {
        let faults = RemoteFaults {
            busy: 1 + seed % 3,
            ..RemoteFaults::default()
        };
        double.set_faults(RemoteFaults::default());
        let gone = operations.map(|operation| match operation {
            Operation::Put { key, .. } => delete(key),
            other => other,
        });
        assert_eq!(
            refusal(&bench.commit(DEFAULT, Mode::Independent, &all(&gone))),
            None
        );
        double.set_faults(faults);
        let outcomes = bench.commit(DEFAULT, Mode::Independent, &all(&operations));
        let written = double.entries(DEFAULT).len();
        match refusal(&outcomes) {
            None => assert_eq!(written, 4),
            Some(Refusal::Remote(RemoteError::OutcomeUnknown)) => {
                unknown += 1;
                assert!((1..4).contains(&written));
            }
            Some(Refusal::Remote(RemoteError::Busy { .. })) => {
                nothing += 1;
                assert_eq!(written, 0);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(unknown > 0 && nothing > 0, "{unknown} {nothing}");
}

/// Keys of a commit that has more parts than may be under way.
fn many_keys() -> Vec<[u8; 4]> {
    (0..1_000_u32).map(u32::to_be_bytes).collect()
}

#[test]
fn values_of_an_independent_commit_are_dropped_once_there_are_too_many() {
    let (double, mut bench) = bench(1);
    let (keys, large) = (many_keys(), [7; 40_000]);
    let keys = &keys[..300];
    for key in keys {
        double.put_by_another(DEFAULT, key, &large);
    }
    let mut operations: Vec<_> = keys.iter().map(|key| get(key)).collect();
    operations.push(put(b"last", b""));
    let outcomes = bench.commit(DEFAULT, Mode::Independent, &all(&operations));
    let refused = refusal(&outcomes);
    assert!(
        matches!(refused, Some(Refusal::AnswerTooLarge { .. })),
        "{refused:?}"
    );
    assert_eq!(value(&double, b"last"), None, "it was not even begun");
}

#[test]
fn all_parts_of_a_commit_have_one_deadline() {
    let config = remote_config(shape(RemotePromise::Linearizable));
    let double = RemoteDouble::new(1, config);
    let timeout = Duration::from_millis(20);
    let mut bench = RemoteBench::with_timeout(target(&double), timeout);
    let keys = many_keys();
    let operations: Vec<_> = keys.iter().map(|key| put(key, b"")).collect();
    bench.add(1, DEFAULT, Mode::Independent, &all(&operations));
    bench.requests.submit(&mut bench.batch);
    std::thread::sleep(2 * timeout);
    let outcomes = bench.run();
    let unknown = Refusal::Remote(RemoteError::OutcomeUnknown);
    assert_eq!(refusal(&outcomes[0]), Some(unknown));
    assert_eq!(double.entries(DEFAULT).len(), limits::PARTS_AT_ONCE);
}

#[test]
fn parts_of_a_call_that_has_ended_are_not_begun() {
    let (double, mut bench) = bench(1);
    let keys = many_keys();
    let operations: Vec<_> = keys.iter().map(|key| put(key, b"")).collect();
    bench.add(1, DEFAULT, Mode::Independent, &all(&operations));
    bench.requests.submit(&mut bench.batch);
    bench.requests.abandon(1);
    assert_eq!(bench.run().len(), 1);
    assert_eq!(double.entries(DEFAULT).len(), limits::PARTS_AT_ONCE);
}

#[test]
fn after_a_refused_part_no_other_is_begun() {
    let (double, mut bench) = bench(1);
    double.set_faults(RemoteFaults {
        busy: 1,
        ..RemoteFaults::default()
    });
    let keys = many_keys();
    let operations: Vec<_> = keys.iter().map(|key| put(key, b"")).collect();
    let outcomes = bench.commit(DEFAULT, Mode::Independent, &all(&operations));
    let busy = RemoteError::Busy { retry_ms: 10 };
    assert_eq!(refusal(&outcomes), Some(Refusal::Remote(busy)));
    let begun = usize::try_from(double.counts().other_faults);
    assert_eq!(begun, Ok(limits::PARTS_AT_ONCE));
}

/// While nothing answers, what is under way is bounded, and all of it ends when the engine is
/// given up.
#[test]
fn what_is_under_way_is_bounded_and_ends_with_the_backend() {
    let (double, mut bench) = bench(1);
    double.set_faults(RemoteFaults {
        is_frozen: true,
        ..RemoteFaults::default()
    });
    let large = vec![7; 30_000];
    let commits = limits::MOST_ROOM_BYTES / large.len() + 1;
    for tag in 0..commits as u64 {
        bench.add(tag, DEFAULT, Mode::Atomic, &one(put(b"key", &large)));
        bench.requests.submit(&mut bench.batch);
    }
    let room = bench.remote.room();
    let (held_bytes, requests) = (room.held_bytes(), room.requests());
    assert!(held_bytes <= limits::MOST_ROOM_BYTES && requests <= limits::REQUESTS);
    let busy = bench.answers.take();
    assert_eq!(busy.len() + requests, commits);
    for done in &busy {
        let RemoteDone::Commit(outcomes) = done else {
            panic!("nothing was read");
        };
        let expected = RemoteError::Busy {
            retry_ms: limits::RETRY_MS,
        };
        assert_eq!(refusal(outcomes), Some(Refusal::Remote(expected)));
        bench.requests.arrived(outcomes);
    }
    assert!(!bench.requests.is_idle());
    double.stop();
    for done in bench.answers.take() {
        if let RemoteDone::Commit(outcomes) = done {
            let timed_out = Refusal::Remote(RemoteError::TimedOut);
            assert_eq!(refusal(&outcomes), Some(timed_out), "nothing was sent");
            bench.requests.arrived(&outcomes);
        }
    }
    assert!(bench.requests.is_idle());
    assert_eq!((room_of(&bench), bench.requests.bytes()), ((0, 0), 0));
}

fn room_of(bench: &RemoteBench) -> (usize, usize) {
    let room = bench.remote.room();
    (room.held_bytes(), room.requests())
}

#[test]
fn reads_that_come_to_nothing_say_why_and_give_their_room_back() {
    let (double, mut bench) = bench(1);
    let faults = RemoteFaults::default();
    for (faults, expected) in [
        (
            RemoteFaults {
                has_no_quorum: true,
                ..faults
            },
            RemoteError::NoQuorum,
        ),
        (
            RemoteFaults {
                timed_out: 1,
                ..faults
            },
            RemoteError::TimedOut,
        ),
        (
            RemoteFaults {
                dropped: 1,
                ..faults
            },
            RemoteError::TimedOut,
        ),
        (
            RemoteFaults { busy: 1, ..faults },
            RemoteError::Busy { retry_ms: 10 },
        ),
    ] {
        double.set_faults(faults);
        let fetched = bench.read(DEFAULT, |plan| plan.key(b"key"));
        let call = fetched.fetched().calls().next().expect("one was asked for");
        assert_eq!(call.tag(), 7);
        match ReadView::fetched(&call) {
            Err(ReadFailure::Remote(why)) => assert_eq!(why, expected),
            other => panic!("{:?}", other.err()),
        };
        drop(fetched);
        assert_eq!(room_of(&bench), (0, 0));
    }
}

#[test]
fn what_other_servers_make_and_drop_is_taken_over() {
    let (double, mut bench) = bench(1);
    let config = remote_config(shape(RemotePromise::Quorum));
    for round in 0..2 {
        let made = double.create_by_another("theirs", config);
        assert_eq!(bench.store().database("theirs"), None);
        bench.remote.refresh();
        assert_eq!(bench.store().database("theirs"), Some(made));
        assert_eq!(bench.store().config(made), Some(config));
        let exists = Refusal::NotCreated(CreateError::Exists);
        assert_eq!(bench.create("theirs", &config), Err(exists));
        double.put_by_another(made, b"key", b"value");
        bench.remote.refresh();
        assert_eq!(
            bench
                .store()
                .statistics(made)
                .map(|figures| figures.entries),
            Some(1)
        );
        bench.batch.drop_empty_database(1, made);
        let outcomes = bench.run();
        let not_empty = refusal(&outcomes[0]);
        let is_not_empty = matches!(
            not_empty,
            Some(Refusal::NotDropped(DropError::NotEmpty { .. }))
        );
        assert!(is_not_empty, "{not_empty:?}");
        bench.batch.drop_database(1, made);
        assert_eq!(refusal(&bench.run()[0]), None, "{round}");
        assert_eq!(bench.store().database("theirs"), None);
        let unknown = bench.commit(made, Mode::Atomic, &one(put(b"key", b"value")));
        assert_eq!(refusal(&unknown), Some(Refusal::UnknownDatabase));
    }
}

#[test]
fn a_database_of_which_all_entries_have_expired_is_empty() {
    let (double, mut bench) = bench(1);
    let made = bench.create(
        "expired",
        &remote_config(shape(RemotePromise::Linearizable)),
    );
    let made = made.expect("the name is free");
    let expiring = Operation::Put {
        key: b"key",
        value: b"",
        condition: Condition::None,
        expiry: Expiry::AtMs(2_000),
        want_previous: false,
    };
    assert_eq!(
        refusal(&bench.commit(made, Mode::Atomic, &one(expiring))),
        None
    );
    double.set_now_ms(1_999);
    bench.batch.drop_empty_database(1, made);
    assert!(matches!(
        refusal(&bench.run()[0]),
        Some(Refusal::NotDropped(_))
    ));
    double.set_now_ms(2_000);
    bench.batch.drop_empty_database(1, made);
    assert_eq!(refusal(&bench.run()[0]), None);
}

#[test]
fn a_store_elsewhere_has_no_databases_of_other_kinds_and_is_not_watched() {
    let (_, mut bench) = bench(1);
    let here = store::DatabaseConfig::default();
    let refused = bench.create("here", &here);
    assert_eq!(refused, Err(Refusal::NotCreated(CreateError::OnlyRemote)));
    let too_many = RemoteShape {
        buckets: u16::MAX,
        ..shape(RemotePromise::Quorum)
    };
    // It is not even encoded as one.
    let refused = bench.create("many", &remote_config(too_many));
    assert!(
        matches!(refused, Err(Refusal::NotCreated(_))),
        "{refused:?}"
    );
    let watched = bench.store().watch(DEFAULT, None, false);
    assert_eq!(watched.err(), Some(WatchError::Elsewhere));
    let default = bench.store().config(DEFAULT).expect("it always exists");
    assert!(default.kind.remote().is_some());
    assert!(bench.store().view(DEFAULT).is_none());
    let only_here = store::Store::in_memory(store::StoreConfig {
        default_database: default,
        ..store::StoreConfig::new(1)
    });
    assert_eq!(only_here.err(), Some(CreateError::RemoteNotSupported));
}

#[test]
fn commits_of_calls_that_have_ended_are_not_begun() {
    let (double, mut bench) = bench(1);
    for letter in [b"a", b"b", b"c"] {
        bench.add(1, DEFAULT, Mode::Atomic, &one(append(b"key", letter)));
        bench.add(2, DEFAULT, Mode::Atomic, &one(append(b"other", letter)));
    }
    bench.requests.submit(&mut bench.batch);
    bench.requests.abandon(1);
    let outcomes = bench.run();
    assert_eq!(outcomes.len(), 4, "one was handed over");
    assert_eq!(value(&double, b"key").as_deref(), Some(&b"a"[..]));
    assert_eq!(value(&double, b"other").as_deref(), Some(&b"abc"[..]));
}
