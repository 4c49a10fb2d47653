//! What goes wrong without a crash: a full disk, a failed sync, a log that is far behind.

use store::durable::StorageEvent;
use store::{
    DatabaseConfig, DatabaseId, Decision, DropError, Durability, Mode, Operation, Outcomes,
    Refusal, Store, StoreConfig,
};
use testkit::suite::{StandingClock, delete, get, put};
use wal::LogEnding;
use wal::disk::{Disk, Fault, SimulatedDisk, Step};
use wal::limits::SEQUENCE_RESERVE;

use crate::bench::{Durable, SEGMENT_BYTES, verify};

fn config(durability: Durability) -> StoreConfig {
    let mut config = StoreConfig::new(1);
    config.default_database.durability = durability;
    config
}

/// A store and who uses it, with a clock that stands.
pub struct Client {
    pub durable: Durable,
    pub clock: StandingClock,
}

impl Client {
    pub fn open(disk: &SimulatedDisk, durability: Durability) -> Client {
        let durable = Durable::open(config(durability), disk).expect("nothing was lost");
        Client {
            durable,
            clock: StandingClock { now_ms: 1000 },
        }
    }

    /// Carries out some commits together; returns what became of each.
    pub fn run(&mut self, commits: &[(DatabaseId, &[Operation<'_>])]) -> Vec<Decision> {
        let mut batch = self.durable.store.write_batch();
        for (tag, (database, operations)) in commits.iter().enumerate() {
            let mut commit = batch.begin(tag as u64, *database, Mode::Atomic);
            for operation in *operations {
                commit.push(operation).expect("within the limits");
            }
            commit.submit();
        }
        let mut decisions = vec![None; commits.len()];
        let mut outcomes = Outcomes::new();
        self.durable
            .submit(&mut batch, &mut self.clock, &mut outcomes);
        loop {
            for outcome in outcomes.iter() {
                let place = &mut decisions[outcome.tag as usize];
                assert_eq!(place.replace(outcome.decision), None, "answered twice");
            }
            outcomes.clear();
            if !self.durable.mailbox.take(&mut outcomes)
                && !self.durable.commit_loop.round(&mut self.clock)
            {
                break;
            }
        }
        verify(&self.durable.store);
        decisions
            .into_iter()
            .map(|one| one.expect("answered"))
            .collect()
    }

    pub fn one(&mut self, operations: &[Operation<'_>]) -> Decision {
        self.run(&[(DatabaseId::DEFAULT, operations)])[0]
    }

    pub fn create(&mut self, name: &str, durability: Durability) -> DatabaseId {
        let config = DatabaseConfig {
            durability,
            ..DatabaseConfig::default()
        };
        let mut batch = self.durable.store.write_batch();
        batch.create_database(0, name, &config);
        self.durable.mailbox.submit(&mut batch);
        while self.durable.commit_loop.round(&mut self.clock) {}
        let mut outcomes = Outcomes::new();
        assert!(self.durable.mailbox.take(&mut outcomes));
        assert_eq!(outcomes.get(0).decision, Decision::Applied);
        outcomes.get(0).database
    }

    pub fn has(&self, database: DatabaseId, key: &[u8]) -> bool {
        has(&self.durable.store, database, key)
    }

    /// Asserts that nothing was told since the last time but why the log is not ready, and that
    /// figures say the same.
    pub fn expect_not_ready(&mut self, file: &str, cause: &str) {
        let events = self.durable.commit_loop.take_events();
        let is_told = |why: &String| why.contains(file) && why.contains(cause);
        assert!(
            matches!(&events[..], [StorageEvent::NotReady(why)] if is_told(why)),
            "{events:?}"
        );
        let log = self.durable.store.log_statistics().expect("there is one");
        assert!(log.is_not_ready && !log.is_full && !log.has_failed);
    }
}

fn has(store: &Store, database: DatabaseId, key: &[u8]) -> bool {
    let view = store.view(database).expect("it exists");
    view.get(key, store.hasher().hash(key), 1000).is_some()
}

/// What comes between the look of somebody who wants to drop an empty database and the drop is not
/// dropped with it, also if it is in the same group and nobody sees it yet.
#[test]
fn a_drop_of_what_is_empty_sees_its_own_group() {
    let disk = testkit::simulated_disk(10);
    let mut client = Client::open(&disk, Durability::Synced);
    let database = client.create("database", Durability::Synced);
    let mut drop_behind = |database, operation| {
        let mut batch = client.durable.store.write_batch();
        let mut commit = batch.begin(0, database, Mode::Atomic);
        commit.push(&operation).expect("within the limits");
        commit.submit();
        batch.drop_empty_database(1, database);
        client.durable.mailbox.submit(&mut batch);
        while client.durable.commit_loop.round(&mut client.clock) {}
        let mut outcomes = Outcomes::new();
        assert!(client.durable.mailbox.take(&mut outcomes));
        assert_eq!(outcomes.get(0).decision, Decision::Applied);
        outcomes.get(1).decision
    };
    let full = Decision::Refused(Refusal::NotDropped(DropError::NotEmpty {
        entries: 1,
        blobs: 0,
        blob_bytes: 0,
    }));
    assert_eq!(drop_behind(database, put(b"key", b"value")), full);
    assert_eq!(drop_behind(database, put(b"key", b"other")), full);
    assert_eq!(drop_behind(database, delete(b"key")), Decision::Applied);
    assert!(client.durable.store.view(database).is_none());
}

/// Whoever runs the server hears of it, and what could not go goes with the next ones.
#[test]
fn segments_that_cannot_go_are_told() {
    let disk = testkit::simulated_disk(11);
    let mut client = Client::open(&disk, Durability::Synced);
    let first = wal::segment_name(1);
    let is_there = || disk.list().expect("it can be listed").contains(&first);
    for is_failing in [true, false] {
        for _ in 0..20 {
            client.one(&[put(b"key", &[7; 10_000])]);
        }
        client.durable.commit_loop.ask_for_snapshot();
        while client.durable.commit_loop.step_snapshot(&mut client.clock) {}
        client.durable.commit_loop.take_events();
        assert!(is_there());
        if is_failing {
            disk.plan_next(Step::Remove, 0, Fault::Error);
            disk.plan_next(Step::Rename, 0, Fault::Error);
        }
        while client.durable.commit_loop.round(&mut client.clock) {}
        let events = client.durable.commit_loop.take_events();
        let is_told =
            matches!(&events[..], [StorageEvent::NotRetired(why)] if why.contains(&first));
        assert_eq!(
            (is_told, is_there()),
            (is_failing, is_failing),
            "{events:?}"
        );
    }
}

const FULL: Decision = Decision::Refused(Refusal::LogFull);
const NOT_READY: Decision = Decision::Refused(Refusal::LogNotReady);
const FAILED: Decision = Decision::Refused(Refusal::LogFailed);
const UNKNOWN: Decision = Decision::Refused(Refusal::OutcomeUnknown);

#[test]
fn a_full_disk_refuses_what_grows_until_there_is_room() {
    let disk = testkit::simulated_disk(1);
    let mut client = Client::open(&disk, Durability::Synced);
    assert_eq!(client.one(&[put(b"first", b"value")]), Decision::Applied);
    // The current segment and the next one are there, and there is no room for a third.
    disk.set_capacity_bytes(2 * SEGMENT_BYTES + 4096);
    let value = vec![7; 10_000];
    let mut written = Vec::new();
    let mut refused = 0;
    for number in 0..20u8 {
        match client.one(&[put(&[number], &value)]) {
            Decision::Applied => written.push(number),
            decision => {
                assert_eq!(decision, FULL);
                refused += 1;
            }
        }
    }
    assert!(written.len() > 5 && refused > 3, "{written:?}");
    let events = client.durable.commit_loop.take_events();
    assert!(matches!(&events[..], [StorageEvent::Full(_)]), "{events:?}");
    let log = client.durable.store.log_statistics().expect("there is one");
    assert!(log.is_full && !log.has_failed, "{log:?}");
    assert_eq!((log.segments, log.segment_bytes), (2, 2 * SEGMENT_BYTES));

    // What does not grow goes on, and so do reads.
    let same_size = vec![8; 10_000];
    assert_eq!(client.one(&[delete(b"first")]), Decision::Applied);
    assert_eq!(client.one(&[get(b"first")]), Decision::Applied);
    assert!(!client.has(DatabaseId::DEFAULT, b"first"));
    // Until the log has no room at all: then a whole group is refused, and nothing of it happens.
    let mut decisions = Vec::new();
    for _ in 0..20 {
        decisions = client.run(&[
            (DatabaseId::DEFAULT, &[put(&written[..1], &same_size)]),
            (DatabaseId::DEFAULT, &[delete(&written[1..2])]),
        ]);
        if decisions != [Decision::Applied; 2] {
            break;
        }
        assert_eq!(client.one(&[put(&written[1..2], b"")]), FULL, "it grows");
    }
    assert_eq!(decisions, [FULL, FULL]);
    assert!(client.has(DatabaseId::DEFAULT, &written[..1]));

    disk.set_capacity_bytes(u64::MAX);
    assert_eq!(client.one(&[put(b"late", &value)]), Decision::Applied);
    let events = client.durable.commit_loop.take_events();
    assert!(
        matches!(&events[..], [StorageEvent::RoomAgain]),
        "{events:?}"
    );
    disk.lose_power();
    let client = Client::open(&disk, Durability::Synced);
    assert!(client.has(DatabaseId::DEFAULT, b"late"));
    assert!(!client.has(DatabaseId::DEFAULT, b"first"));
}

/// What hinders the log is told as it is, and again when it becomes something else.
#[test]
fn an_error_of_the_device_refuses_what_grows_and_is_no_full_disk() {
    let disk = testkit::simulated_disk(12);
    let mut client = Client::open(&disk, Durability::Synced);
    let value = vec![7; 10_000];
    let mut number = 0u64;
    let mut fill = |client: &mut Client| loop {
        number += 1;
        match client.one(&[put(&number.to_be_bytes(), &value)]) {
            Decision::Applied => {}
            decision => return decision,
        }
    };
    // Once, and a second time.
    for _ in 0..2 {
        // For the one that the first round makes, and the one that a group without room asks for.
        for before in 0..100 {
            disk.plan_next(Step::Create, before, Fault::Error);
        }
        assert_eq!(fill(&mut client), NOT_READY);
        client.expect_not_ready("segment.new", "os error 5");

        // Now the disk is full too.
        disk.forget_plans();
        disk.set_capacity_bytes(disk.used_bytes());
        assert_eq!(fill(&mut client), FULL);
        let events = client.durable.commit_loop.take_events();
        assert!(matches!(&events[..], [StorageEvent::Full(_)]), "{events:?}");
        let log = client.durable.store.log_statistics().expect("there is one");
        assert!(!log.is_not_ready && log.is_full && !log.has_failed);
        disk.set_capacity_bytes(u64::MAX);
        assert_eq!(client.one(&[put(b"late", b"")]), Decision::Applied);
        let events = client.durable.commit_loop.take_events();
        assert!(
            matches!(&events[..], [StorageEvent::RoomAgain]),
            "{events:?}"
        );
        let log = client.durable.store.log_statistics().expect("there is one");
        assert!(!log.is_not_ready && !log.is_full && !log.has_failed);
    }
    disk.lose_power();
    let client = Client::open(&disk, Durability::Synced);
    assert!(client.has(DatabaseId::DEFAULT, b"late"));
}

/// A segment that cannot be made larger for a group of its own, by an error and for want of room.
#[test]
fn a_group_that_is_too_large_says_what_hinders_it() {
    for (fault, expected) in [(Fault::Error, NOT_READY), (Fault::Full, FULL)] {
        let disk = testkit::simulated_disk(13);
        let mut client = Client::open(&disk, Durability::Synced);
        for number in 0..2u8 {
            assert_eq!(client.one(&[put(&[number], b"")]), Decision::Applied);
            let large = vec![7; 2 * SEGMENT_BYTES as usize];
            disk.plan_next(Step::Write, 0, fault);
            assert_eq!(client.one(&[put(b"large", &large)]), expected);
            let log = client.durable.store.log_statistics().expect("there is one");
            assert!(!log.is_not_ready && !log.is_full, "others go on");
        }
        assert_eq!(client.one(&[put(b"small", b"")]), Decision::Applied);
        assert_eq!(client.durable.commit_loop.take_events(), []);
    }
}

/// The next segment is ready, and cannot be made larger.
#[test]
fn a_group_that_finds_no_room_does_not_stop_smaller_ones() {
    let disk = testkit::simulated_disk(1);
    let mut client = Client::open(&disk, Durability::Synced);
    assert_eq!(client.one(&[put(b"first", b"value")]), Decision::Applied);
    disk.set_capacity_bytes(2 * SEGMENT_BYTES + 4096);
    let large = vec![7; 2 * SEGMENT_BYTES as usize];
    assert_eq!(client.one(&[put(b"large", &large)]), FULL);
    assert_eq!(client.one(&[put(b"small", b"value")]), Decision::Applied);
    disk.set_capacity_bytes(u64::MAX);
    assert_eq!(client.one(&[put(b"large", &large)]), Decision::Applied);
    disk.lose_power();
    let client = Client::open(&disk, Durability::Synced);
    assert!(client.has(DatabaseId::DEFAULT, b"large"));
    assert!(client.has(DatabaseId::DEFAULT, b"small"));
}

#[test]
fn a_failed_sync_makes_it_read_only() {
    let disk = testkit::simulated_disk(2);
    let mut client = Client::open(&disk, Durability::Synced);
    let volatile = client.create("volatile", Durability::Volatile);
    let written = client.create("written", Durability::Written);
    assert_eq!(client.one(&[put(b"before", b"")]), Decision::Applied);
    // The write of the next group, then its sync.
    disk.plan(disk.step_count() + 1, Fault::Error);
    let missing = Operation::Compare {
        key: b"during",
        condition: store::Condition::Absent,
    };
    let decisions = client.run(&[
        (DatabaseId::DEFAULT, &[put(b"during", b"")]),
        (written, &[put(b"during", b"")]),
        // Fails because of the first, which may be lost: nothing can be said.
        (DatabaseId::DEFAULT, &[missing, put(b"other", b"")]),
    ]);
    assert_eq!(disk.steps().last(), Some(&Step::Sync));
    assert_eq!(decisions, [UNKNOWN, Decision::Applied, FAILED]);
    let events = client.durable.commit_loop.take_events();
    assert!(
        matches!(&events[..], [StorageEvent::Failed(_)]),
        "{events:?}"
    );
    let log = client.durable.store.log_statistics().expect("there is one");
    assert!(log.has_failed && !log.is_full, "{log:?}");
    assert!(log.durable_sequence < log.written_sequence, "{log:?}");

    let after = client.run(&[
        (DatabaseId::DEFAULT, &[put(b"after", b"")]),
        (written, &[put(b"after", b"")]),
        (volatile, &[put(b"after", b"")]),
    ]);
    assert_eq!(after, [FAILED, FAILED, Decision::Applied]);
    assert!(client.has(DatabaseId::DEFAULT, b"before"));
    assert!(!client.has(DatabaseId::DEFAULT, b"during"));
    assert!(client.has(written, b"during"));
    assert!(client.has(volatile, b"after"));

    disk.evict();
    disk.kill();
    let mut client = Client::open(&disk, Durability::Synced);
    assert!(client.has(DatabaseId::DEFAULT, b"before"));
    assert!(!client.has(DatabaseId::DEFAULT, b"after"));
    assert!(
        !client.has(volatile, b"after"),
        "it is empty after each start"
    );
    assert_eq!(client.one(&[put(b"again", b"")]), Decision::Applied);
}

#[test]
fn a_failed_write_makes_it_read_only() {
    let disk = testkit::simulated_disk(3);
    let mut client = Client::open(&disk, Durability::Written);
    assert_eq!(client.one(&[put(b"before", b"")]), Decision::Applied);
    disk.plan(disk.step_count(), Fault::Error);
    let decisions = client.run(&[
        (DatabaseId::DEFAULT, &[put(b"during", b"")]),
        (DatabaseId::DEFAULT, &[get(b"during")]),
    ]);
    assert_eq!(decisions, [UNKNOWN, UNKNOWN]);
    assert_eq!(client.one(&[put(b"after", b"")]), FAILED);
    assert!(!client.has(DatabaseId::DEFAULT, b"during"));
    disk.kill();
    let mut client = Client::open(&disk, Durability::Written);
    assert!(client.has(DatabaseId::DEFAULT, b"before"));
    assert_eq!(client.one(&[put(b"again", b"")]), Decision::Applied);
}

#[test]
fn an_interval_is_kept() {
    let disk = testkit::simulated_disk(4);
    let mut client = Client::open(&disk, Durability::Interval { ms: 50 });
    // Makes the next segment ready.
    client.durable.commit_loop.round(&mut client.clock);
    let syncs = || {
        disk.steps()
            .iter()
            .filter(|&&step| step == Step::Sync)
            .count()
    };
    let before = syncs();
    assert_eq!(client.one(&[put(b"one", b"")]), Decision::Applied);
    client.clock.now_ms += 30;
    assert_eq!(client.one(&[put(b"two", b"")]), Decision::Applied);
    assert_eq!(syncs(), before);
    let waiting = client.durable.store.log_statistics().expect("there is one");
    // The first group is that of the start.
    assert_eq!((waiting.groups, waiting.records), (3, 3), "{waiting:?}");
    assert_eq!(waiting.written_sequence, waiting.durable_sequence + 2);
    assert_eq!(
        client.durable.commit_loop.due_ns(),
        1050 * 1_000_000,
        "since the first"
    );
    client.clock.now_ms += 20;
    assert!(client.durable.commit_loop.round(&mut client.clock));
    assert_eq!(syncs(), before + 1);
    let log = client.durable.store.log_statistics().expect("there is one");
    assert_eq!(log.syncs, waiting.syncs + 1);
    assert_eq!(log.written_sequence, log.durable_sequence);
    assert_eq!(client.durable.commit_loop.due_ns(), u64::MAX);
    // The second time as the first: what is not durable becomes more with each write, and nothing
    // with a sync.
    for round in 1..=2 {
        let now_ms = client.clock.now_ms;
        for number in 1..=3 {
            assert_eq!(client.one(&[put(b"one", b"again")]), Decision::Applied);
            client.clock.now_ms += 10;
            let log = client.durable.store.log_statistics().expect("there is one");
            assert_eq!(log.written_sequence, log.durable_sequence + number);
            assert_eq!(
                client.durable.commit_loop.due_ns(),
                (now_ms + 50) * 1_000_000
            );
        }
        client.clock.now_ms += 20;
        assert!(client.durable.commit_loop.round(&mut client.clock));
        assert_eq!(syncs(), before + 1 + round);
        let log = client.durable.store.log_statistics().expect("there is one");
        assert_eq!(log.written_sequence, log.durable_sequence);
        assert_eq!(client.durable.commit_loop.due_ns(), u64::MAX);
    }
    disk.lose_power();
    let client = Client::open(&disk, Durability::Interval { ms: 50 });
    assert!(client.has(DatabaseId::DEFAULT, b"one") && client.has(DatabaseId::DEFAULT, b"two"));
}

/// The last group may have filled its segment, and the closing one needs another.
#[test]
fn a_stop_brings_the_segment_that_it_needs() {
    let disk = testkit::simulated_disk(7);
    let mut client = Client::open(&disk, Durability::Synced);
    // A group that is larger than a segment gets one of its own size, and leaves no room in it.
    let large = vec![7; 2 * SEGMENT_BYTES as usize];
    let mut batch = client.durable.store.write_batch();
    let mut commit = batch.begin(0, DatabaseId::DEFAULT, Mode::Atomic);
    commit.push(&put(b"large", &large)).expect("fits");
    commit.submit();
    client.durable.mailbox.submit(&mut batch);
    // One round only: the next one would make a segment ready.
    assert!(client.durable.commit_loop.round(&mut client.clock));
    let Durable { commit_loop, .. } = client.durable;
    commit_loop
        .close(&mut client.clock)
        .expect("there is room on the disk");
    let recovered = wal::verify(&disk, &mut |_, _| Ok(())).expect("it can be read");
    assert_eq!(recovered.ending, LogEnding::Closed);
}

/// What grows is refused before there is no room at all: the rest is for what shrinks.
#[test]
fn the_last_segment_is_kept_for_what_does_not_grow() {
    let disk = testkit::simulated_disk(8);
    let mut client = Client::open(&disk, Durability::Synced);
    disk.set_capacity_bytes(SEGMENT_BYTES + 4096);
    assert_eq!(client.one(&[put(b"small", b"")]), FULL);
    assert_eq!(client.one(&[delete(b"small")]), Decision::Applied);
}

/// Not even a mark fits any more, and the last sequence that may be given out is spent: whoever
/// asks for a write is told so, and the committer rests until there is room.
#[test]
fn a_full_disk_with_a_spent_reserve_refuses_and_rests() {
    let disk = testkit::simulated_disk(9);
    let mut client = Client::open(&disk, Durability::Synced);
    let volatile = client.create("volatile", Durability::Volatile);
    let keys: Vec<_> = (0..2 * SEGMENT_BYTES / 512).map(u64::to_be_bytes).collect();
    let puts: Vec<_> = keys.iter().map(|key| put(key, b"")).collect();
    assert_eq!(client.one(&puts), Decision::Applied);
    disk.set_capacity_bytes(2 * SEGMENT_BYTES + 4096);
    let mut deletes = keys.iter().map(|key| client.one(&[delete(key)]));
    assert!(deletes.any(|decision| decision == FULL));

    let mut committer = client.durable.store.committer();
    let mut batch = client.durable.store.write_batch();
    let mut outcomes = Outcomes::new();
    for _ in 0..=SEQUENCE_RESERVE / 10_000 {
        for _ in 0..10_000 {
            batch.begin(0, volatile, Mode::Atomic).submit();
        }
        drop(committer.run(&mut batch, &mut client.clock, &mut outcomes));
    }
    let last = outcomes.iter().last().map(|outcome| outcome.decision);
    assert_eq!(last, Some(Decision::Refused(Refusal::LogBehind)));

    let mut commit = batch.begin(0, DatabaseId::DEFAULT, Mode::Atomic);
    commit.push(&put(b"new", b"")).expect("within the limits");
    commit.submit();
    client.durable.mailbox.submit(&mut batch);
    let busy = (0..10).take_while(|_| client.durable.commit_loop.round(&mut client.clock));
    assert!(busy.count() < 10, "it goes round and round");
    assert!(client.durable.mailbox.take(&mut outcomes));
    assert_eq!(outcomes.get(0).decision, FULL);

    disk.set_capacity_bytes(1 << 30);
    assert_eq!(client.one(&[put(b"new", b"")]), Decision::Applied);
    batch.begin(0, volatile, Mode::Atomic).submit();
    drop(committer.run(&mut batch, &mut client.clock, &mut outcomes));
    assert_eq!(outcomes.get(0).decision, Decision::Applied);
}

/// Commits that change nothing in the log use up sequences too. None may be given out twice.
#[test]
fn sequences_stay_within_the_reserve() {
    let disk = testkit::simulated_disk(5);
    let mut client = Client::open(&disk, Durability::Synced);
    let volatile = client.create("volatile", Durability::Volatile);
    let mut committer = client.durable.store.committer();
    let mut batch = client.durable.store.write_batch();
    let mut outcomes = Outcomes::new();
    let mut last = 0;
    let mut refused = 0;
    for round in 0..=SEQUENCE_RESERVE / 10_000 {
        for _ in 0..10_000 {
            batch.begin(0, volatile, Mode::Atomic).submit();
        }
        drop(committer.run(&mut batch, &mut client.clock, &mut outcomes));
        for outcome in outcomes.iter() {
            match outcome.decision {
                Decision::Applied => last = outcome.sequence,
                decision => {
                    assert_eq!(decision, Decision::Refused(Refusal::LogBehind));
                    refused += 1;
                }
            }
        }
        assert!(
            refused == 0 || round == SEQUENCE_RESERVE / 10_000,
            "too early"
        );
    }
    assert!(refused > 0, "nobody has raised the bound");

    // Whoever runs the commit loop is asked to, without any commit.
    assert!(client.durable.commit_loop.round(&mut client.clock));
    let decision = client.run(&[(volatile, &[put(b"key", b"")])]);
    assert_eq!(decision, [Decision::Applied]);
    disk.lose_power();
    let mut client = Client::open(&disk, Durability::Synced);
    let mut batch = client.durable.store.write_batch();
    batch.begin(0, volatile, Mode::Atomic).submit();
    drop(committer_of(&client).run(&mut batch, &mut client.clock, &mut outcomes));
    assert!(
        outcomes.get(0).sequence > last + 1,
        "a number was given out twice"
    );
}

/// So many commits at once that the log must be synced in the midst of deciding them.
#[test]
fn a_crowd_of_commits_waits_for_the_reserve() {
    let disk = testkit::simulated_disk(6);
    let mut client = Client::open(&disk, Durability::Written);
    let count = SEQUENCE_RESERVE + SEQUENCE_RESERVE / 4;
    let mut batch = client.durable.store.write_batch();
    for tag in 0..count {
        batch.begin(tag, DatabaseId::DEFAULT, Mode::Atomic).submit();
    }
    client.durable.mailbox.submit(&mut batch);
    let mut outcomes = Outcomes::new();
    let (mut answered, mut last) = (0, 0);
    while client.durable.commit_loop.round(&mut client.clock) {
        while client.durable.mailbox.take(&mut outcomes) {
            for outcome in outcomes.iter() {
                assert_eq!(
                    (outcome.tag, outcome.decision),
                    (answered, Decision::Applied)
                );
                assert!(outcome.sequence > last);
                (answered, last) = (answered + 1, outcome.sequence);
            }
        }
        let durable = wal::verify(&disk, &mut |_, _| Ok(())).expect("it can be read");
        assert!(last <= durable.last_sequence + SEQUENCE_RESERVE);
    }
    assert_eq!(answered, count);
}

fn committer_of(client: &Client) -> store::VolatileCommitter {
    client.durable.store.committer()
}
