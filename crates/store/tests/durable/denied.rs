//! Files that may not be opened, made, renamed or removed (EACCES): whoever runs the server is told
//! which and why, nothing is lost, and it is over when the permissions are back.

use store::durable::StorageEvent;
use store::{DatabaseId, Decision, Durability, Refusal};
use testkit::suite::put;
use wal::disk::{Disk, Fault, Step};

use crate::bench::Durable;
use crate::crash::state_of;
use crate::failures::Client;
use crate::snapshots::config;

const CAUSE: &str = "Permission denied";

fn fill(client: &mut Client, first: u8) {
    for number in first..first + 20 {
        let decision = client.one(&[put(&[number], &[number; 10_000])]);
        assert_eq!(decision, Decision::Applied);
    }
}

fn snapshot(client: &mut Client) -> Vec<StorageEvent> {
    client.durable.commit_loop.ask_for_snapshot();
    while client.durable.commit_loop.step_snapshot(&mut client.clock) {}
    client.durable.commit_loop.take_events()
}

#[test]
fn a_segment_that_may_not_be_made_refuses_what_grows_until_it_may() {
    for (step, file) in [(Step::Create, "segment.new"), (Step::Rename, ".log")] {
        let disk = testkit::simulated_disk(1);
        let mut client = Client::open(&disk, Durability::Synced);
        let mut number = 0_u64;
        for _ in 0..2 {
            for before in 0..100 {
                disk.plan_next(step, before, Fault::Denied);
            }
            let refused = loop {
                number += 1;
                match client.one(&[put(&number.to_be_bytes(), &[7; 10_000])]) {
                    Decision::Applied => {}
                    decision => break decision,
                }
            };
            assert_eq!(refused, Decision::Refused(Refusal::LogNotReady), "{step:?}");
            client.expect_not_ready(file, CAUSE);
            disk.forget_plans();
            assert_eq!(client.one(&[put(b"late", b"")]), Decision::Applied);
            let events = client.durable.commit_loop.take_events();
            assert!(
                matches!(&events[..], [StorageEvent::RoomAgain]),
                "{events:?}"
            );
        }
        assert!(disk.fault_counts().denied > 2);
        disk.lose_power();
        assert!(Client::open(&disk, Durability::Synced).has(DatabaseId::DEFAULT, b"late"));
    }
}

#[test]
fn a_snapshot_that_may_not_be_made_is_told_and_can_be_made_later() {
    for step in [Step::Create, Step::Rename] {
        let disk = testkit::simulated_disk(2);
        let mut client = Client::open(&disk, Durability::Synced);
        for round in 0..2 {
            fill(&mut client, round * 20);
            client.durable.commit_loop.take_events();
            disk.plan_next(step, 0, Fault::Denied);
            let events = snapshot(&mut client);
            let is_told = |why: &String| why.contains(CAUSE) && why.contains("snapshot");
            assert!(
                matches!(&events[..], [StorageEvent::SnapshotFailed(why)] if is_told(why)),
                "{step:?}: {events:?}"
            );
            client.clock.now_ms += 60_000;
            let events = snapshot(&mut client);
            assert!(
                matches!(&events[..], [StorageEvent::SnapshotMade(_)]),
                "{events:?}"
            );
            let names = disk.list().expect("it can be listed");
            let snapshots = names.iter().filter(|name| name.ends_with(".snapshot"));
            assert!(snapshots.count() <= 2, "{names:?}");
        }
    }
}

/// Segments that nobody needs stay, and go when they may.
#[test]
fn segments_that_may_not_be_removed_are_told() {
    let disk = testkit::simulated_disk(3);
    let mut client = Client::open(&disk, Durability::Synced);
    let first = wal::segment_name(1);
    fill(&mut client, 0);
    client.durable.commit_loop.take_events();
    for is_denied in [true, true, false] {
        fill(&mut client, 20);
        let made = snapshot(&mut client);
        assert!(
            matches!(&made[..], [StorageEvent::SnapshotMade(_)]),
            "{made:?}"
        );
        if is_denied {
            disk.plan_next(Step::Remove, 0, Fault::Denied);
            disk.plan_next(Step::Rename, 0, Fault::Denied);
        }
        while client.durable.commit_loop.round(&mut client.clock) {}
        let events = client.durable.commit_loop.take_events();
        let is_told = |why: &String| why.contains(CAUSE) && why.contains(&first);
        let is_right = match &events[..] {
            [StorageEvent::NotRetired(why)] => is_denied && is_told(why),
            [] => !is_denied,
            _ => false,
        };
        assert!(is_right, "{is_denied}: {events:?}");
        disk.forget_plans();
    }
    let names = disk.list().expect("it can be listed");
    assert!(!names.contains(&first), "{names:?}");
}

/// Each file that a start needs may be denied to it, and each change that it makes: it says which
/// and why, or does without it, and loses nothing.
#[test]
fn a_start_that_is_denied_a_file_says_which_and_loses_nothing() {
    for is_access in [true, false] {
        let (mut refused, mut passed, mut silent) = (0, 0, Vec::new());
        for at in 0.. {
            let disk = testkit::simulated_disk(4);
            let mut client = Client::open(&disk, Durability::Synced);
            fill(&mut client, 0);
            let made = snapshot(&mut client);
            assert!(
                matches!(&made[..], [StorageEvent::SnapshotMade(_)]),
                "{made:?}"
            );
            fill(&mut client, 10);
            let before = state_of(&client.durable.store);
            drop(client);
            disk.kill();
            let denied = disk.fault_counts().denied;
            let (begin, length) = match is_access {
                true => (disk.accesses().len(), 60),
                false => (disk.step_count(), 30),
            };
            match is_access {
                true => disk.plan_access(begin + at, Fault::Denied),
                false => disk.plan(begin + at, Fault::Denied),
            }
            let what = format!("access {is_access}, {at}");
            match Durable::open(config(), &disk) {
                Ok(durable) => {
                    passed += u32::from(disk.fault_counts().denied > denied);
                    assert!(state_of(&durable.store) == before, "{what}");
                }
                Err(error) => {
                    refused += 1;
                    let error = error.to_string();
                    let says_it = error.contains(CAUSE) && error.contains("simulated/");
                    if !says_it || error.contains("damaged") {
                        silent.push(format!("{what}: {error}"));
                    }
                }
            }
            disk.forget_plans();
            disk.kill();
            let durable = Durable::open(config(), &disk);
            let durable = durable.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(state_of(&durable.store) == before, "{what}");
            if at >= length {
                break;
            }
        }
        assert_eq!(silent, Vec::<String>::new());
        assert!(refused >= 2, "access {is_access}: {refused}, {passed}");
    }
}
