//! What is read for commits on disk before they are decided: bounded for all of them together, and
//! given back.

use store::{
    Condition, DatabaseConfig, DatabaseId, Decision, Durability, Expiry, Kind, Mode, Outcomes,
    Refusal, StoreConfig, WriteBatch,
};
use testkit::suite::{StandingClock, append, put, put_expiring, put_if};

use crate::tree_bench::OnDisk;

const VALUE_BYTES: usize = 3_000_000;
/// A sixteenth of the memory limit.
const ROOM_BYTES: usize = 8 << 20;

struct Client {
    made: OnDisk,
    clock: StandingClock,
}

impl Client {
    fn new() -> Client {
        let mut clock = StandingClock { now_ms: 1000 };
        let mut config = StoreConfig::new(1);
        config.memory_bytes = 16 * ROOM_BYTES as u64;
        config.default_database.durability = Durability::Synced;
        let mut made = OnDisk::make(config, &mut clock);
        made.keeps = false;
        Client { made, clock }
    }

    fn submit(&mut self, batch: &mut WriteBatch) {
        self.made.mailbox.submit(batch);
    }

    /// The tags of what was applied.
    fn applied(&mut self) -> Vec<u64> {
        let decided = self.decided();
        assert!(
            decided
                .iter()
                .all(|(_, decision)| *decision == Decision::Applied),
            "{decided:?}"
        );
        decided.into_iter().map(|(tag, _)| tag).collect()
    }

    /// What became of commits, with their tags; all is in tables then.
    fn decided(&mut self) -> Vec<(u64, Decision)> {
        let (mut outcomes, mut decided) = (Outcomes::new(), Vec::new());
        while self.made.commit_loop.round(&mut self.clock) {}
        self.flush();
        while self.made.mailbox.take(&mut outcomes) {
            let found = outcomes.iter();
            decided.extend(found.map(|outcome| (outcome.tag, outcome.decision)));
        }
        decided
    }

    fn flush(&mut self) {
        self.made.commit_loop.flush_trees().expect("there is room");
    }

    /// Stores a value, in a commit of its own.
    fn put(&mut self, database: DatabaseId, key: &[u8], value: &[u8]) {
        let mut batch = self.made.store.write_batch();
        let mut commit = batch.begin(0, database, Mode::Atomic);
        commit.push(&put(key, value)).expect("fits");
        commit.submit();
        self.submit(&mut batch);
        assert_eq!(self.applied(), [0]);
    }

    /// Makes a second database on disk.
    fn other_database(&mut self) -> DatabaseId {
        let store = self.made.store.clone();
        let config = DatabaseConfig {
            durability: Durability::Synced,
            ..DatabaseConfig::default()
        };
        let mut batch = store.write_batch();
        batch.create_database(100, "other", &config.of_kind(Kind::Disk));
        self.submit(&mut batch);
        assert_eq!(self.applied(), [100]);
        store.database("other").expect("it was made")
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("large{number}").into_bytes()
}

/// Adds commits that append a byte to keys, each to some of them.
fn appends(batch: &mut WriteBatch, keys_of: &[&[u64]]) {
    for (tag, keys) in keys_of.iter().enumerate() {
        let mut commit = batch.begin(tag as u64, DatabaseId::DEFAULT, Mode::Atomic);
        for &number in *keys {
            commit.push(&append(&key(number), b"x")).expect("fits");
        }
        commit.submit();
    }
}

#[test]
fn commits_that_must_know_much_are_read_in_parts() {
    let mut client = Client::new();
    let store = client.made.store.clone();
    for number in 0..8 {
        client.put(DatabaseId::DEFAULT, &key(number), &vec![7; VALUE_BYTES]);
    }
    for round in 0..2 {
        let mut batch = store.write_batch();
        // Two fit, and the third goes beyond the room; then one that fits, one that needs four, and
        // one that knows what that one has read.
        appends(
            &mut batch,
            &[&[0], &[1], &[2], &[3], &[4, 5, 6, 7], &[7], &[0]],
        );
        let mut parts = Vec::new();
        while !batch.is_empty() {
            let read = batch.read_ahead();
            assert!(read.failure.is_none(), "the tables are whole");
            let mut rest = batch.next_batch();
            batch.split_off(read.commits, &mut rest);
            assert_eq!(batch.len(), read.commits);
            assert!(store.read_before_bytes() <= ROOM_BYTES + 4 * (VALUE_BYTES + 100));
            // Others find no room meanwhile, and what they hold is none.
            let mut other = store.write_batch();
            appends(&mut other, &[&[5]]);
            let held_bytes = store.read_before_bytes();
            if held_bytes > ROOM_BYTES {
                assert_eq!(other.read_ahead().commits, 0);
                assert_eq!(store.read_before_bytes(), held_bytes);
            }
            drop(other);
            parts.push(read.commits);
            client.submit(&mut batch);
            client.applied();
            assert_eq!(
                store.read_before_bytes(),
                0,
                "it comes back with the decision"
            );
            batch = rest;
        }
        assert_eq!(parts, [3, 3, 1], "round {round}");
    }
}

/// Batches that each need more than the room: one goes beyond it, the others wait and read nothing
/// in vain; each has its turn, though its commits are on several databases.
#[test]
fn batches_that_need_more_than_the_room_have_their_turns() {
    let mut client = Client::new();
    let store = client.made.store.clone();
    let other = client.other_database();
    for number in 0..4 {
        for database in [DatabaseId::DEFAULT, other] {
            client.put(database, &key(number), &vec![7; VALUE_BYTES]);
        }
    }
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let mut batch = store.write_batch();
        for database in [other, DatabaseId::DEFAULT] {
            let mut commit = batch.begin(0, database, Mode::Atomic);
            for number in 0..4 {
                commit.push(&append(&key(number), b"x")).expect("fits");
            }
            commit.submit();
        }
        waiting.push(batch);
    }
    let mut rounds = 0;
    while !waiting.is_empty() {
        rounds += 1;
        let mut read: Vec<_> = waiting
            .iter_mut()
            .map(|batch| batch.read_ahead().commits)
            .collect();
        assert_eq!(
            read.iter().sum::<usize>(),
            1,
            "one commit of one batch in round {rounds}"
        );
        let at = read.iter().position(|&commits| commits == 1).expect("one");
        let mut batch = waiting.remove(at);
        read.remove(at);
        // Another attempt, while that one waits to be decided.
        let held_bytes = store.read_before_bytes();
        assert!(
            waiting
                .iter_mut()
                .all(|batch| batch.read_ahead().commits == 0)
        );
        assert_eq!(store.read_before_bytes(), held_bytes);
        let mut rest = batch.next_batch();
        batch.split_off(1, &mut rest);
        client.submit(&mut batch);
        client.applied();
        if !rest.is_empty() {
            waiting.push(rest);
        }
        assert_eq!(store.read_before_bytes(), 0);
    }
    assert_eq!(rounds, 6);
}

/// A commit that must know more than one may is refused, wherever in it the excess is; one value is
/// always read.
#[test]
fn a_commit_that_must_know_too_much_is_refused() {
    let mut client = Client::new();
    let most = store::limits::READ_BEFORE_BYTES / VALUE_BYTES;
    for number in 0..=most as u64 {
        client.put(DatabaseId::DEFAULT, &key(number), &vec![7; VALUE_BYTES]);
    }
    for _ in 0..2 {
        for (keys, fits) in [(1, true), (most, true), (most + 1, false), (1, true)] {
            let mut batch = client.made.store.write_batch();
            let mut commit = batch.begin(5, DatabaseId::DEFAULT, Mode::Atomic);
            for number in 0..keys as u64 {
                let name = key(number);
                let operation = put_if(&name, b"", Condition::Present);
                commit.push(&operation).expect("fits");
            }
            // The last one is not met: nothing is written.
            let operation = put_if(b"nothing", b"", Condition::Present);
            commit.push(&operation).expect("fits");
            commit.submit();
            assert_eq!(batch.read_ahead().commits, 1);
            client.submit(&mut batch);
            let (tag, decision) = client.decided().remove(0);
            assert_eq!(tag, 5);
            let is_refused = match decision {
                Decision::Refused(Refusal::ReadsTooMuch { limit_bytes }) => {
                    limit_bytes == store::limits::READ_BEFORE_BYTES
                }
                _ => false,
            };
            assert_eq!(is_refused, !fits, "{keys} keys: {decision:?}");
            assert_eq!(client.made.store.read_before_bytes(), 0);
        }
    }
}

/// Two batches whose reads are old when they are decided together: what was written since then is
/// still in memory for both, though it was brought into tables.
#[test]
fn what_joined_batches_have_read_is_followed_by_what_came_later() {
    let mut client = Client::new();
    let store = client.made.store.clone();
    let databases = [client.other_database(), DatabaseId::DEFAULT];
    for round in 0..2 {
        let mut waiting = Vec::new();
        for (tag, database) in (0..).zip(databases) {
            client.put(database, b"k", b"old");
            let mut batch = store.write_batch();
            let mut commit = batch.begin(tag, database, Mode::Atomic);
            let operation = put_if(b"k", b"wrong", Condition::ValueIs(b"old"));
            commit.push(&operation).expect("fits");
            commit.submit();
            waiting.push(batch);
        }
        for batch in &mut waiting {
            assert_eq!(batch.read_ahead().commits, 1);
        }
        for database in databases {
            client.put(database, b"k", b"new");
        }
        for batch in &mut waiting {
            client.submit(batch);
        }
        client.flush();
        for (_, decision) in client.decided() {
            assert!(
                matches!(decision, Decision::Failed { index: 0, .. }),
                "round {round}: {decision:?}"
            );
        }
    }
}

/// Each has its keys at places of its own in the batch that they become.
#[test]
fn joined_batches_find_what_each_of_them_has_read() {
    let mut client = Client::new();
    let store = client.made.store.clone();
    for number in 0..8 {
        client.put(DatabaseId::DEFAULT, &key(number), b"old");
    }
    for _ in 0..2 {
        // What is in memory need not be read.
        client.made.commit_loop.seal_trees();
        client.flush();
        for keys in [&[0, 1][..], &[2], &[3, 4, 5], &[6, 7]] {
            let mut batch = store.write_batch();
            appends(&mut batch, &[keys]);
            assert_eq!(batch.read_ahead().commits, 1);
            client.submit(&mut batch);
        }
        assert!(store.read_before_bytes() > 0);
        assert_eq!(client.applied(), [0; 4]);
        assert_eq!(store.read_before_bytes(), 0);
    }
}

/// Large entries that have expired are removed as fast as there is room to read them, and none is
/// passed over, however large: a commit reads no more than it may know.
#[test]
fn large_entries_that_have_expired_are_removed_in_one_walk() {
    let mut client = Client::new();
    for (expiring_bytes, keys, keys_of_a_commit) in [
        (10, 2 * store::limits::SWEEP_KEYS as u64 + 10, 64),
        (300_000, 138, 13),
        (2_000_000, 34, 2),
        (3_900_000, 5, 1),
    ] {
        for round in 0..2 {
            client.put_expiring(keys, expiring_bytes);
            let mut slices = Vec::new();
            for _ in 0..40 {
                let mut batch = client.made.store.write_batch();
                let swept = client.made.store.sweep_trees(&mut batch);
                swept.expect("the tables are whole");
                slices.push(batch.len());
                client.submit(&mut batch);
                client.applied();
                assert_eq!(client.made.store.read_before_bytes(), 0);
            }
            let commits: usize = slices.iter().sum();
            let expected = keys.div_ceil(keys_of_a_commit) as usize;
            assert_eq!(
                commits, expected,
                "{expiring_bytes}, round {round}: {slices:?}"
            );
            // Several walks later nothing more is found.
            assert!(slices.ends_with(&[0; 10]), "{slices:?}");
        }
    }
}

impl Client {
    /// Stores so many entries of a size that have expired then.
    fn put_expiring(&mut self, keys: u64, bytes: usize) {
        for number in 0..keys {
            let mut batch = self.made.store.write_batch();
            let mut commit = batch.begin(number, DatabaseId::DEFAULT, Mode::Atomic);
            let (name, value) = (format!("expiring{number:03}"), vec![7; bytes]);
            let operation = put_expiring(name.as_bytes(), &value, Expiry::AfterMs(10));
            commit.push(&operation).expect("fits");
            commit.submit();
            self.submit(&mut batch);
            assert_eq!(self.applied(), [number]);
        }
        self.clock.now_ms += 10;
        self.made.store.clock_ms(self.clock.now_ms);
    }
}
