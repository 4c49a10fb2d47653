//! Appends to large values beside the writes of others: who waits for whom, and what comes of
//! commits whose callers have left.

use store::blob::UploadPeer;
use store::{
    DatabaseId, Decision, Durability, Mode, Operation, Outcomes, Refusal, Source, WriteBatch,
};
use testkit::suite::{append, put};

use crate::failures::Client;

/// What a group copies once before it takes no more: `GROUP_REWRITTEN_BYTES` is 1 MiB.
const LARGE_BYTES: usize = 3_000_000;

fn source(address: u8, connection: u64) -> Source {
    Source {
        address: UploadPeer::with_address([127, 0, 0, address].into()),
        connection,
    }
}

fn commit(batch: &mut WriteBatch, tag: u64, from: Source, operation: &Operation<'_>) {
    batch.set_source(from);
    let mut commit = batch.begin(tag, DatabaseId::DEFAULT, Mode::Independent);
    commit.push(operation).expect("it fits");
    commit.submit();
}

/// Carries out one group; returns the tags of what was done in it, and of what was refused since
/// its caller had left.
fn group(client: &mut Client) -> (Vec<u64>, Vec<u64>) {
    let (mut done, mut abandoned) = (Vec::new(), Vec::new());
    client.durable.commit_loop.round(&mut client.clock);
    let mut outcomes = Outcomes::new();
    while client.durable.mailbox.take(&mut outcomes) {
        for outcome in outcomes.iter() {
            match outcome.decision {
                Decision::Applied => done.push(outcome.tag),
                Decision::Refused(Refusal::Abandoned) => abandoned.push(outcome.tag),
                other => panic!("{other:?}"),
            }
        }
    }
    (done, abandoned)
}

fn log_bytes(client: &Client) -> u64 {
    let statistics = client.durable.store.log_statistics();
    statistics.expect("there is a log").group_bytes
}

fn len(client: &Client, key: &[u8]) -> usize {
    let store = &client.durable.store;
    let view = store.view(DatabaseId::DEFAULT).expect("it exists");
    let entry = view.get(key, store.hasher().hash(key), client.clock.now_ms);
    entry.map_or(0, |entry| entry.value.len())
}

/// A hundred Appends to a large value wait. A Put of another address and one of another connection
/// of the same address are in the next group, also where they come later, and the Appends go on in
/// their order: in every second group, as the others have one without them.
#[test]
fn puts_wait_for_one_group_however_many_appends_wait() {
    for durability in [Durability::Synced, Durability::Interval { ms: 50 }] {
        let disk = testkit::simulated_disk(5);
        let mut client = Client::open(&disk, durability);
        for _ in 0..2 {
            client.one(&[put(b"large", &vec![1; LARGE_BYTES])]);
            let mut batch = client.durable.store.write_batch();
            for tag in 0..100 {
                commit(&mut batch, tag, source(1, 1), &append(b"large", b"1"));
            }
            // Behind Appends of its own connection.
            commit(&mut batch, 100, source(1, 1), &put(b"own", b"1"));
            commit(&mut batch, 101, source(1, 2), &put(b"same", b"1"));
            commit(&mut batch, 102, source(2, 3), &put(b"other", b"1"));
            client.durable.mailbox.submit(&mut batch);
            let before = log_bytes(&client);
            assert_eq!(group(&mut client).0, [0, 101, 102]);
            let written_bytes = log_bytes(&client) - before;
            assert!(written_bytes < 2 * LARGE_BYTES as u64, "{written_bytes}");
            for round in 1..199 {
                let (same, other) = (1_000 + round, 2_000 + round);
                commit(&mut batch, same, source(1, 2), &put(b"same", b"2"));
                commit(&mut batch, other, source(2, 3), &put(b"other", b"2"));
                client.durable.mailbox.submit(&mut batch);
                let (mut done, _) = group(&mut client);
                done.retain(|tag| *tag < 100 || *tag >= 1_000);
                let expected = match round % 2 {
                    0 => vec![round / 2, same, other],
                    _ => vec![same, other],
                };
                assert_eq!(done, expected);
            }
            group(&mut client);
            assert_eq!(len(&client, b"own"), 1, "nothing is left behind");
            assert_eq!(len(&client, b"large"), LARGE_BYTES + 100);
            assert_eq!(client.durable.mailbox.waiting_bytes(), 0);
            assert!(client.durable.mailbox.is_idle());
        }
    }
}

/// Addresses that want more copied than a group takes are served in turn, whoever came first and
/// with however many connections.
#[test]
fn addresses_take_turns_with_what_a_group_copies() {
    let disk = testkit::simulated_disk(5);
    let mut client = Client::open(&disk, Durability::Synced);
    for key in [b"a", b"b", b"c"] {
        client.one(&[put(key, &vec![1; 3_900_000])]);
    }
    for _ in 0..2 {
        let mut batch = client.durable.store.write_batch();
        for tag in 0..30 {
            // Every one over a connection of its own.
            commit(&mut batch, tag, source(1, tag), &append(b"a", b"1"));
        }
        commit(&mut batch, 100, source(2, 101), &append(b"b", b"1"));
        commit(&mut batch, 101, source(3, 102), &append(b"c", b"1"));
        client.durable.mailbox.submit(&mut batch);
        let mut served = Vec::new();
        for _ in 0..60 {
            served.extend(group(&mut client).0);
        }
        let place = |tag| served.iter().position(|one| *one == tag);
        assert!(place(100).is_some_and(|place| place < 8), "{served:?}");
        assert!(place(101).is_some_and(|place| place < 8), "{served:?}");
        served.retain(|tag| *tag < 100);
        assert_eq!(served, (0..30).collect::<Vec<_>>(), "all, in their order");
        assert!(client.durable.mailbox.is_idle());
    }
}

/// What is not decided when its caller leaves is not done; the rest was. Nobody else's commit is
/// touched.
#[test]
fn commits_whose_callers_have_left_are_dropped() {
    let disk = testkit::simulated_disk(5);
    let mut client = Client::open(&disk, Durability::Synced);
    for _ in 0..2 {
        client.one(&[put(b"large", &vec![1; LARGE_BYTES])]);
        let mut batch = client.durable.store.write_batch();
        for tag in 0..1_000 {
            commit(&mut batch, tag, source(1, 1), &append(b"large", b"1"));
        }
        commit(&mut batch, 5_000, source(1, 2), &append(b"large", b"1"));
        client.durable.mailbox.submit(&mut batch);
        assert_eq!(group(&mut client).0, [0]);
        let before = log_bytes(&client);
        // In no order; some of them are done, one was never there.
        client
            .durable
            .mailbox
            .abandon(&mut (0..1_000).rev().chain([7_777]).collect());
        let (done, abandoned) = group(&mut client);
        assert_eq!(done, [5_000]);
        assert_eq!(abandoned, (1..1_000).collect::<Vec<_>>());
        let written_bytes = log_bytes(&client) - before;
        assert!(written_bytes < 2 * LARGE_BYTES as u64, "{written_bytes}");
        assert_eq!(len(&client, b"large"), LARGE_BYTES + 2);
        assert!(client.durable.mailbox.is_idle());
        assert_eq!(client.durable.mailbox.waiting_bytes(), 0);
        // A tag that comes again later is another commit.
        commit(&mut batch, 7_777, source(1, 1), &put(b"later", b"1"));
        client.durable.mailbox.submit(&mut batch);
        assert_eq!(group(&mut client).0, [7_777]);
    }
}
