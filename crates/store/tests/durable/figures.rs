//! What is counted is what was done, and adds up: once, and after the next start again.

use store::durable::{LogStatistics, StorageEvent};
use store::{DatabaseId, Decision, Durability, Outcomes};
use testkit::suite::{delete, get, put};
use wal::HEADER_BYTES;
use wal::disk::{SimulatedDisk, Step};

use crate::failures::Client;

/// What is in the files of the log.
#[derive(Debug, Default, PartialEq, Eq)]
struct Files {
    groups: u64,
    records: u64,
    bytes: u64,
    last_sequence: u64,
    /// Those that have groups.
    segments: u64,
    segment_bytes: u64,
}

fn files(disk: &SimulatedDisk) -> Files {
    let mut bytes = 0;
    let report = wal::verify(disk, &mut |_, group| {
        let group_bytes = group.header.group_bytes().expect("it was written");
        assert!(group_bytes >= HEADER_BYTES as u64);
        bytes += group_bytes;
        Ok(())
    });
    let report = report.expect("it can be read");
    let used = report.segments.iter().filter(|one| one.groups > 0);
    Files {
        groups: report.groups,
        records: report.records,
        bytes,
        last_sequence: report.last_sequence,
        segments: used.clone().count() as u64,
        segment_bytes: used.map(|one| one.bytes).sum(),
    }
}

fn figures(client: &Client) -> LogStatistics {
    client.durable.store.log_statistics().expect("there is one")
}

#[test]
fn figures_of_the_log_are_those_of_its_files() {
    let disk = testkit::simulated_disk(1);
    let mut databases = Vec::new();
    let mut nowhere = DatabaseId::DEFAULT;
    let mut before = Files::default();
    for run in 0..3u8 {
        let mut client = Client::open(&disk, Durability::Synced);
        if databases.is_empty() {
            databases = vec![
                DatabaseId::DEFAULT,
                client.create("written", Durability::Written),
                client.create("interval", Durability::Interval { ms: 10 }),
            ];
            nowhere = client.create("dropped", Durability::Synced);
            let mut batch = client.durable.store.write_batch();
            batch.drop_database(0, nowhere);
            client.durable.mailbox.submit(&mut batch);
            while client.durable.commit_loop.round(&mut client.clock) {}
            let mut outcomes = Outcomes::new();
            assert!(client.durable.mailbox.take(&mut outcomes));
        }
        for number in 0..40u8 {
            let database = databases[usize::from(number) % 3];
            let key = [run, number];
            let decisions = client.run(&[
                (database, &[put(&key, &[1; 2000]), put(&key, &[2; 1900])]),
                (nowhere, &[put(&key, b"")]),
                (DatabaseId::DEFAULT, &[get(&key)]),
                (databases[1], &[delete(&key)]),
            ]);
            assert_eq!(decisions[0], Decision::Applied);
            let after = files(&disk);
            let figures = figures(&client);
            let expected = Files {
                groups: before.groups + figures.groups,
                records: before.records + figures.records,
                bytes: before.bytes + figures.group_bytes,
                last_sequence: figures.written_sequence,
                segments: figures.segments,
                segment_bytes: figures.segment_bytes,
            };
            assert_eq!(after, expected, "run {run}, number {number}");
            assert!(figures.durable_sequence <= figures.written_sequence);
        }
        assert!(figures(&client).segments > u64::from(run));
        drop(client);
        disk.kill();
        before = files(&disk);
    }
}

/// Where nothing else is synced, each sync of the disk is one that is counted, and each that
/// somebody waited for has taken its time.
#[test]
fn each_sync_is_counted_once() {
    let disk = testkit::simulated_disk(2);
    for _ in 0..2 {
        let mut client = Client::open(&disk, Durability::Synced);
        let written = client.create("written", Durability::Written);
        // The next segment is ready now.
        client.one(&[put(b"first", b"")]);
        let (begin, first_step) = (figures(&client), disk.step_count());
        let syncs = || {
            let steps = disk.steps();
            let syncs = steps[first_step..].iter();
            syncs.filter(|&&step| step == Step::Sync).count() as u64
        };
        for number in 0..10u8 {
            client.one(&[put(&[number], b"value")]);
            client.run(&[(written, &[put(&[number], b"value")])]);
            client.one(&[get(&[number])]);
        }
        let end = figures(&client);
        assert_eq!(end.syncs - begin.syncs, syncs());
        assert_eq!(syncs(), 10, "what is only written waits for none");
        assert_eq!(
            end.sync_durations.count() - begin.sync_durations.count(),
            10
        );
        // One that somebody asks for, and one for which there is nothing to do.
        for expected in [11, 11] {
            client.durable.commit_loop.ask_for_snapshot();
            client.durable.commit_loop.take_events();
            let asked = client.durable.commit_loop.round(&mut client.clock);
            assert!(!asked, "nothing was submitted");
            assert!(syncs() <= expected);
        }
        let database = client.durable.store.database("written").expect("made");
        let mut batch = client.durable.store.write_batch();
        batch.drop_database(0, database);
        client.durable.mailbox.submit(&mut batch);
        while client.durable.commit_loop.round(&mut client.clock) {}
        disk.kill();
    }
}

#[test]
fn snapshots_that_were_made_and_that_failed_add_up() {
    let disk = testkit::simulated_disk(3);
    let mut client = Client::open(&disk, Durability::Synced);
    let (mut made, mut failed) = (0, 0);
    for number in 0..6u8 {
        client.one(&[put(&[number], &[number; 1000])]);
        let fails = number % 2 == 1;
        if fails {
            disk.plan_next(Step::Create, 0, wal::disk::Fault::Error);
        }
        client.durable.commit_loop.ask_for_snapshot();
        while client.durable.commit_loop.step_snapshot(&mut client.clock) {}
        let events = client.durable.commit_loop.take_events();
        for event in &events {
            made += u64::from(matches!(event, StorageEvent::SnapshotMade(_)));
            failed += u64::from(matches!(event, StorageEvent::SnapshotFailed(_)));
        }
        let figures = figures(&client);
        assert_eq!(
            (figures.snapshots_made, figures.snapshots_failed),
            (made, failed)
        );
        let has_newest = figures.snapshot_sequence == figures.written_sequence;
        assert_eq!(has_newest, !fails, "{figures:?}");
    }
    assert_eq!((made, failed), (3, 3));
}

/// What a database is charged for goes back to nothing, whatever way it went, and each time.
#[test]
fn memory_that_was_charged_returns_to_zero() {
    let disk = testkit::simulated_disk(4);
    let mut client = Client::open(&disk, Durability::Synced);
    let empty = client.durable.store.memory_bytes();
    let other = client.create("other", Durability::Synced);
    let fill = |client: &mut Client, database| {
        for number in 0..20u8 {
            // Two writes of one key in a commit, and two in a group.
            client.run(&[
                (
                    database,
                    &[put(&[number], &[1; 300]), put(&[number], &[2; 700])],
                ),
                (database, &[put(&[number], &[3; 100])]),
            ]);
        }
        assert!(client.durable.store.memory_bytes() > empty + 20 * 100);
    };
    for _ in 0..2 {
        fill(&mut client, other);
        for number in 0..20u8 {
            client.run(&[(other, &[delete(&[number]), delete(&[number])])]);
        }
        assert_eq!(client.durable.store.memory_bytes(), empty, "deleted");

        fill(&mut client, other);
        client.run(&[(other, &[store::Operation::Clear])]);
        assert_eq!(client.durable.store.memory_bytes(), empty, "cleared");

        // Refused commits leave nothing.
        fill(&mut client, other);
        let before = client.durable.store.memory_bytes();
        disk.plan_next(Step::Write, 0, wal::disk::Fault::Short);
        let wrong = store::Operation::Compare {
            key: b"missing",
            condition: store::Condition::Present,
        };
        let decisions = client.run(&[(other, &[put(b"new", &[1; 900]), wrong])]);
        assert_ne!(decisions, [Decision::Applied]);
        assert_eq!(client.durable.store.memory_bytes(), before, "refused");
        client.run(&[(other, &[store::Operation::Clear])]);
    }
    disk.lose_power();
    let client = Client::open(&disk, Durability::Synced);
    assert_eq!(client.durable.store.memory_bytes(), empty, "replayed");
}
