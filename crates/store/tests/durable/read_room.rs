//! What is read for commits on disk before they are decided: bounded for all of them together, and given back.

use store::suite::{StandingClock, append, put};
use store::{
    DatabaseConfig, DatabaseId, Decision, Durability, Kind, Mode, Outcomes, StoreConfig, WriteBatch,
};

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
        let (mut outcomes, mut tags) = (Outcomes::new(), Vec::new());
        while self.made.rounds.round(&mut self.clock) {}
        self.made.rounds.flush_trees().expect("there is room");
        while self.made.mailbox.take(&mut outcomes) {
            for outcome in outcomes.iter() {
                assert!(
                    matches!(outcome.decision, Decision::Applied),
                    "{:?}",
                    outcome.decision
                );
                tags.push(outcome.tag);
            }
        }
        tags
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
        let mut batch = store.write_batch();
        let mut commit = batch.begin(number, DatabaseId::DEFAULT, Mode::Atomic);
        commit
            .push(&put(&key(number), &vec![7; VALUE_BYTES]))
            .expect("fits");
        commit.submit();
        client.submit(&mut batch);
        assert_eq!(client.applied(), [number]);
    }
    for round in 0..2 {
        let mut batch = store.write_batch();
        // Two fit, and the third goes beyond the room; then one that fits, one that needs four, and one that knows what
        // that one has read.
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

/// Batches that each need more than the room: one goes beyond it, the others wait and read nothing in vain; each has its
/// turn, though its commits are on several databases.
#[test]
fn batches_that_need_more_than_the_room_have_their_turns() {
    let mut client = Client::new();
    let store = client.made.store.clone();
    let mut batch = store.write_batch();
    let config = DatabaseConfig {
        durability: Durability::Synced,
        ..DatabaseConfig::default()
    };
    let config = config.of_kind(Kind::Disk);
    batch.create_database(100, "other", &config);
    client.submit(&mut batch);
    assert_eq!(client.applied(), [100]);
    let other = store.database("other").expect("it was made");
    for number in 0..4 {
        for database in [DatabaseId::DEFAULT, other] {
            let mut batch = store.write_batch();
            let mut commit = batch.begin(number, database, Mode::Atomic);
            commit
                .push(&put(&key(number), &vec![7; VALUE_BYTES]))
                .expect("fits");
            commit.submit();
            client.submit(&mut batch);
            assert_eq!(client.applied(), [number]);
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
