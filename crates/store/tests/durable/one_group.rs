//! Several writes of the same keys in one commit, and in one group: each sees those before it, the
//! last one stays, and a restart brings back what was answered.

use store::{
    Condition, DatabaseConfig, DatabaseId, Decision, Durability, Expiry, Mode, Operation,
    OperationStatus, Outcomes, WriteBatch,
};
use testkit::suite::{StandingClock, append, delete, put};

use crate::failures::Client;

fn put_if<'a>(key: &'a [u8], value: &'a [u8], condition: Condition<'a>) -> Operation<'a> {
    Operation::Put {
        key,
        value,
        condition,
        expiry: Expiry::None,
        want_previous: true,
    }
}

fn value(client: &Client, key: &[u8]) -> Option<(Vec<u8>, u64)> {
    let store = &client.durable.store;
    let view = store.view(DatabaseId::DEFAULT).expect("it exists");
    let entry = view.get(key, store.hasher().hash(key), client.clock.now_ms)?;
    Some((entry.value.bytes().to_vec(), entry.version))
}

/// One operation of a commit, and what is to come of it.
struct Expected<'a> {
    operation: Operation<'a>,
    status: OperationStatus,
    previous: Option<&'a [u8]>,
}

fn done<'a>(operation: Operation<'a>, previous: Option<&'a [u8]>) -> Expected<'a> {
    Expected {
        operation,
        status: OperationStatus::Done,
        previous,
    }
}

/// Carries out commits as one group, or each as a group of its own; checks every outcome.
fn run(client: &mut Client, commits: &[Vec<Expected<'_>>], is_one_group: bool) {
    let store = client.durable.store.clone();
    let groups_before = store.log_statistics().expect("there is one").groups;
    let mut batch = store.write_batch();
    let mut answered = 0;
    for (tag, commit) in commits.iter().enumerate() {
        let mut pushed = batch.begin(tag as u64, DatabaseId::DEFAULT, Mode::Independent);
        for expected in commit {
            pushed.push(&expected.operation).expect("within the limits");
        }
        pushed.submit();
        let is_last = tag + 1 == commits.len();
        if is_one_group && !is_last {
            continue;
        }
        client.durable.mailbox.submit(&mut batch);
        while client.durable.commit_loop.round(&mut client.clock) {}
        let mut outcomes = Outcomes::new();
        let mut last_sequence = 0;
        while client.durable.mailbox.take(&mut outcomes) {
            for outcome in outcomes.iter() {
                let expected = &commits[outcome.tag as usize];
                assert_eq!(outcome.decision, Decision::Applied);
                assert!(outcome.sequence > last_sequence, "each commit has its own");
                last_sequence = outcome.sequence;
                for (one, expected) in outcome.operations().zip(expected) {
                    assert_eq!(one.status, expected.status, "{:?}", expected.operation);
                    let previous = one.value.as_ref().map(|value| value.bytes().to_vec());
                    let wanted = expected.previous.map(<[u8]>::to_vec);
                    assert_eq!(previous, wanted, "{:?}", expected.operation);
                }
                answered += 1;
            }
            outcomes.clear();
        }
    }
    assert_eq!(answered, commits.len());
    let groups = store.log_statistics().expect("there is one").groups - groups_before;
    assert_eq!(
        groups,
        if is_one_group {
            1
        } else {
            commits.len() as u64
        }
    );
}

/// What the key has in the end must be the same whether all came in one group or not, and after a
/// loss of power.
#[test]
fn writes_of_one_key_in_one_group_follow_each_other() {
    let mut ends = Vec::new();
    for is_one_group in [true, false] {
        let disk = testkit::simulated_disk(1);
        let mut client = Client::open(&disk, Durability::Synced);
        // Once on an empty database, once on what the first time has left.
        for _ in 0..2 {
            let is_there = value(&client, b"key").is_some();
            let first = is_there.then_some(&b"last"[..]);
            run(
                &mut client,
                &[
                    vec![
                        done(put_if(b"key", b"one", Condition::None), first),
                        done(put_if(b"key", b"two", Condition::Present), Some(b"one")),
                    ],
                    vec![
                        done(
                            put_if(b"key", b"three", Condition::ValueIs(b"two")),
                            Some(b"two"),
                        ),
                        done(
                            Operation::Delete {
                                key: b"key",
                                condition: Condition::Present,
                                want_previous: true,
                            },
                            Some(b"three"),
                        ),
                    ],
                    vec![
                        done(put_if(b"key", b"four", Condition::Absent), None),
                        done(
                            Operation::Append {
                                key: b"key",
                                value: b"+",
                                condition: Condition::ValueIs(b"four"),
                            },
                            None,
                        ),
                    ],
                    vec![done(
                        put_if(b"key", b"last", Condition::ValueIs(b"four+")),
                        Some(b"four+"),
                    )],
                ],
                is_one_group,
            );
        }
        let (end, version) = value(&client, b"key").expect("it was put");
        assert_eq!(end, b"last");
        disk.lose_power();
        let client = Client::open(&disk, Durability::Synced);
        assert_eq!(value(&client, b"key"), Some((end.clone(), version)));
        ends.push(end);
    }
    assert_eq!(ends[0], ends[1]);
}

/// An overwrite of the same size, and of another one, with a time to live that comes and goes, in
/// one group.
/// What was there before the group, what came in it, and what came behind another clear of it; and
/// a database that was cleared is empty for those that come behind it.
#[test]
fn clears_in_one_group_count_what_each_of_them_removes() {
    for durability in [Durability::Synced, Durability::Written] {
        let mut client = Client::open(&testkit::simulated_disk(1), durability);
        let store = client.durable.store.clone();
        for _ in 0..2 {
            let mut batch = store.write_batch();
            let config = DatabaseConfig {
                durability,
                ..DatabaseConfig::default()
            };
            batch.create_database(0, "other", &config);
            run_one_group(&mut client, &mut batch);
            let other = store.database("other").expect("it was made");
            for (id, key) in [
                (DatabaseId::DEFAULT, b"a"),
                (DatabaseId::DEFAULT, b"b"),
                (other, b"a"),
            ] {
                add(&mut batch, id, &put(key, b"1"));
            }
            run_one_group(&mut client, &mut batch);
            let clear = Operation::Clear;
            for operation in [
                put(b"c", b"1"),
                clear,
                clear,
                put(b"a", b"1"),
                put(b"d", b"1"),
                delete(b"d"),
                clear,
                put(b"e", b"1"),
                put(b"f", b"1"),
            ] {
                add(&mut batch, DatabaseId::DEFAULT, &operation);
            }
            add(&mut batch, other, &clear);
            batch.drop_empty_database(0, other);
            let counters = run_one_group(&mut client, &mut batch);
            assert_eq!(counters, [0, 3, 0, 0, 0, 0, 1, 0, 0, 1, 0]);
            assert_eq!(store.database("other"), None);
            add(&mut batch, DatabaseId::DEFAULT, &clear);
            assert_eq!(run_one_group(&mut client, &mut batch), [2]);
        }
    }
}

fn add(batch: &mut WriteBatch, database: DatabaseId, operation: &Operation<'_>) {
    let mut commit = batch.begin(0, database, Mode::Independent);
    commit.push(operation).expect("within the limits");
    commit.submit();
}

/// Carries out a batch as one group, in which all is applied; returns the counter of each commit, 0
/// for those without operations.
fn run_one_group(client: &mut Client, batch: &mut WriteBatch) -> Vec<i64> {
    let store = client.durable.store.clone();
    let groups = || store.log_statistics().expect("there is one").groups;
    let groups_before = groups();
    client.durable.mailbox.submit(batch);
    while client.durable.commit_loop.round(&mut client.clock) {}
    assert_eq!(groups() - groups_before, 1);
    let (mut outcomes, mut counters) = (Outcomes::new(), Vec::new());
    while client.durable.mailbox.take(&mut outcomes) {
        for outcome in outcomes.iter() {
            assert_eq!(outcome.decision, Decision::Applied);
            counters.push(outcome.first().map_or(0, |one| one.counter));
        }
    }
    counters
}

#[test]
fn expiries_in_one_group_follow_each_other() {
    let disk = testkit::simulated_disk(2);
    let mut client = Client::open(&disk, Durability::Synced);
    let with = |expiry| Operation::Put {
        key: b"key",
        value: b"value",
        condition: Condition::None,
        expiry,
        want_previous: false,
    };
    for _ in 0..2 {
        let decisions = client.run(&[
            (DatabaseId::DEFAULT, &[with(Expiry::AfterMs(10))]),
            (DatabaseId::DEFAULT, &[with(Expiry::None)]),
            (
                DatabaseId::DEFAULT,
                &[with(Expiry::AfterMs(20)), with(Expiry::Keep)],
            ),
        ]);
        assert_eq!(decisions, [Decision::Applied; 3]);
        assert!(value(&client, b"key").is_some());
        client.clock = StandingClock {
            now_ms: client.clock.now_ms + 19,
        };
        assert!(value(&client, b"key").is_some());
        client.clock.now_ms += 1;
        assert_eq!(value(&client, b"key"), None, "the last expiry counts");
        disk.kill();
        let now_ms = client.clock.now_ms;
        client = Client::open(&disk, Durability::Synced);
        client.clock.now_ms = now_ms;
        assert_eq!(value(&client, b"key"), None);
    }
}

/// Each rule publishes what is its own, and what one group has decided is never published a second
/// time by the next.
#[test]
fn databases_of_all_durabilities_in_one_group_get_each_answer_once() {
    let disk = testkit::simulated_disk(3);
    let mut client = Client::open(&disk, Durability::Synced);
    let written = client.create("written", Durability::Written);
    let interval = client.create("interval", Durability::Interval { ms: 10 });
    for number in 0..3u8 {
        let value = [number; 3];
        let decisions = client.run(&[
            (written, &[put(b"a", b"x"), put(b"a", &value)]),
            (DatabaseId::DEFAULT, &[put(b"a", &value)]),
            (
                interval,
                &[put(b"a", b"x"), delete(b"a"), put(b"a", &value)],
            ),
            (written, &[delete(b"b"), put(b"b", &value)]),
            (DatabaseId::DEFAULT, &[delete(b"a")]),
        ]);
        assert_eq!(decisions, [Decision::Applied; 5]);
        for (database, key, is_there) in [
            (written, b"a", true),
            (written, b"b", true),
            (interval, b"a", true),
            (DatabaseId::DEFAULT, b"a", false),
        ] {
            assert_eq!(client.has(database, key), is_there, "{database} {number}");
        }
    }
    let versions = |client: &Client| {
        [written, interval].map(|id| {
            let store = &client.durable.store;
            let view = store.view(id).expect("it exists");
            let entry = view.get(b"a", store.hasher().hash(b"a"), 1000);
            entry.map(|entry| (entry.version, entry.value.bytes().to_vec()))
        })
    };
    let before = versions(&client);
    disk.kill();
    let client = Client::open(&disk, Durability::Synced);
    assert_eq!(versions(&client), before);
}

/// The interval begins anew with the first write after a sync, each time.
#[test]
fn an_interval_is_due_again_after_each_sync() {
    let disk = testkit::simulated_disk(4);
    let mut client = Client::open(&disk, Durability::Interval { ms: 50 });
    for number in 0..3u8 {
        assert_eq!(
            client.durable.commit_loop.due_ns(),
            u64::MAX,
            "nothing is written"
        );
        client.one(&[put(&[number], b"first")]);
        let begin_ms = client.clock.now_ms;
        assert_eq!(
            client.durable.commit_loop.due_ns(),
            (begin_ms + 50) * 1_000_000
        );
        // A second write meanwhile does not put it off.
        client.clock.now_ms += 30;
        client.one(&[put(&[number], b"second")]);
        assert_eq!(
            client.durable.commit_loop.due_ns(),
            (begin_ms + 50) * 1_000_000
        );
        client.clock.now_ms += 20;
        while client.durable.commit_loop.round(&mut client.clock) {}
        let figures = client.durable.store.log_statistics().expect("there is one");
        assert_eq!(figures.durable_sequence, figures.written_sequence);
    }
    disk.lose_power();
    let client = Client::open(&disk, Durability::Interval { ms: 50 });
    for number in 0..3u8 {
        assert!(client.has(DatabaseId::DEFAULT, &[number]));
    }
}

/// Commits that copy much and come to nothing fill no group of the log: others do not wait for all
/// of them.
#[test]
fn a_group_ends_when_its_appends_have_copied_enough() {
    let disk = testkit::simulated_disk(5);
    let mut client = Client::open(&disk, Durability::Synced);
    let large = vec![1; 1_000_000];
    let absent = put_if(b"a", b"never", Condition::Absent);
    for _ in 0..2 {
        client.one(&[put(b"a", &large)]);
        let mut batch = client.durable.store.write_batch();
        for tag in 0..20 {
            let mut commit = batch.begin(tag, DatabaseId::DEFAULT, Mode::Atomic);
            commit.push(&append(b"a", b"1")).expect("it fits");
            commit.push(&absent).expect("it fits");
            commit.submit();
        }
        let mut last = batch.begin(20, DatabaseId::DEFAULT, Mode::Atomic);
        last.push(&put(b"b", b"last")).expect("it fits");
        last.submit();
        client.durable.mailbox.submit(&mut batch);
        let mut groups = Vec::new();
        while client.durable.commit_loop.round(&mut client.clock) {
            let mut outcomes = Outcomes::new();
            let mut answered = 0;
            while client.durable.mailbox.take(&mut outcomes) {
                for outcome in outcomes.iter() {
                    let is_last = outcome.tag == 20;
                    let failed = matches!(outcome.decision, Decision::Failed { index: 1, .. });
                    assert_eq!(failed, !is_last, "{:?}", outcome.decision);
                }
                answered += outcomes.len();
            }
            groups.push(answered);
        }
        // Two of them copy more than `GROUP_REWRITTEN_BYTES`. What is behind the last of them
        // copies nothing.
        assert_eq!(
            groups,
            [2, 2, 2, 2, 2, 2, 2, 2, 2, 3],
            "what copies nothing waits for no other group"
        );
        assert_eq!(
            value(&client, b"a").map(|(value, _)| value.len()),
            Some(1_000_000)
        );
    }
}
