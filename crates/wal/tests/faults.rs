//! Failing syncs, full disks, giant groups, clean stops, sequences, segments coming and going.

mod common;

use std::sync::Arc;

use common::{
    Client, Owned, Promise, SEGMENT_BYTES, SET, check_after_power_loss, config, names, open,
    open_with, set,
};
use wal::disk::{Disk, Fault, RealDisk, Step};
use wal::limits::{SEQUENCE_RESERVE, SPARE_SEGMENTS, SPARE_SEGMENTS_MAX};
use wal::{
    GroupBuffer, LogConfig, LogOpenError, OpenLog, PrepareError, RawRecord, SegmentRetention,
    SyncError, WriteError, segment_name,
};

#[test]
fn a_failed_write_or_sync_stops_all_writing_until_a_restart() {
    for failing in [Step::Write, Step::Sync] {
        let disk = testkit::simulated_disk(1);
        let mut promise = Promise::default();
        let mut client = Client::begin(&disk, &mut promise);
        client.put_synced(10);
        let next = disk.step_count();
        let step = if failing == Step::Write {
            next
        } else {
            next + 1
        };
        disk.plan(step, Fault::Error);
        let error = client
            .put(20)
            .and_then(|()| client.sync())
            .expect_err("planned");
        assert!(matches!(error, WriteError::Failed { .. }));
        assert!(error.to_string().contains("00000000000000000001.log"));
        assert!(client.log.is_poisoned());

        let before = disk.step_count();
        let durable = client.log.durable();
        assert!(matches!(client.put(30), Err(WriteError::Poisoned)));
        client.promise.groups.pop();
        assert!(matches!(client.log.sync(), Err(SyncError::Poisoned)));
        assert_eq!(client.log.wanted_segment(), None);
        assert_eq!(client.log.durable(), durable);
        let error = client
            .log
            .close(client.promise.given, 1)
            .expect_err("poisoned");
        assert!(matches!(error, WriteError::Poisoned));
        assert_eq!(disk.step_count(), before, "something was done to the disk");

        disk.lose_power();
        let mut client = Client::start(&disk, &mut promise, true).expect("the rest is whole");
        client.put(40).expect("it is a new life");
        client.sync().expect("it is a new life");
    }
}

#[test]
fn a_full_disk_is_met_when_the_next_segment_is_prepared() {
    let disk = testkit::simulated_disk(2);
    let mut promise = Promise::default();
    let mut client = Client::begin(&disk, &mut promise);
    disk.set_capacity_bytes(SEGMENT_BYTES + SEGMENT_BYTES / 2);
    let wanted = client.log.wanted_segment().expect("there is one only");
    let error = client.stock.prepare(wanted).expect_err("no room");
    assert!(matches!(error, PrepareError::Full { .. }), "{error}");
    assert_eq!(
        names(&disk, ".new"),
        [""; 0],
        "what was half-made takes no room"
    );

    // The current one has room until it is full; then nothing happens.
    let mut written = 0;
    let group_bytes = loop {
        match client.put(400) {
            Ok(()) => written += 1,
            Err(WriteError::NoRoom { group_bytes, .. }) => break group_bytes,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!((written, group_bytes), (SEGMENT_BYTES / 1024 - 1, 1024));
    assert!(!client.log.is_poisoned());
    client.sync().expect("the disk is whole");
    client.put(10).expect("a small one still fits");

    disk.set_capacity_bytes(u64::MAX);
    assert!(client.prepare());
    client.put(400).expect("there is room again");
    client.sync().expect("the disk is whole");
    check_after_power_loss(&disk, &mut promise);
}

#[test]
fn a_group_refused_for_want_of_room_can_be_tried_again() {
    let disk = testkit::simulated_disk(3);
    let (mut log, mut stock, recovered, _) = open(&disk);
    let mut group = GroupBuffer::new();
    let big = set(recovered.next_sequence, SEGMENT_BYTES as usize);
    group.push(&big.record());
    assert!(matches!(
        log.write_group(&mut group, 1),
        Err(WriteError::NoRoom { source: None, .. })
    ));
    let small = set(recovered.next_sequence + 1, 10);
    group.push(&small.record());
    let wanted = log.wanted_segment().expect("it has none");
    log.take_segment(stock.prepare(wanted).expect("there is room"));
    let position = log.write_group(&mut group, 1).expect("there is room");
    assert_eq!(position.sequence, small.sequence);
    assert!(group.is_empty());
    assert_eq!(log.sync().expect("the disk is whole"), position);
    disk.lose_power();
    assert_eq!(open(&disk).3, [big, small]);
}

#[test]
fn a_giant_group_gets_a_segment_of_its_size() {
    let disk = testkit::simulated_disk(4);
    let mut promise = Promise::default();
    let mut client = Client::begin(&disk, &mut promise);
    assert!(client.prepare());

    // Not enough room for it: refused, and the next segment is as it was.
    let giant = 5 * SEGMENT_BYTES as usize;
    disk.set_capacity_bytes(4 * SEGMENT_BYTES);
    let error = client.put(giant).expect_err("no room");
    assert!(
        matches!(
            &error,
            WriteError::NoRoom {
                source: Some(_),
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(disk.contents(&segment_name(2)).len() as u64, SEGMENT_BYTES);
    client.put(10).expect("a small one fits");

    disk.set_capacity_bytes(u64::MAX);
    client.put(giant).expect("there is room now");
    client.sync().expect("the disk is whole");
    let own_bytes = disk.contents(&segment_name(2)).len();
    assert!((giant..giant + 1024).contains(&own_bytes));
    assert!(client.prepare());
    for _ in 0..20 {
        client.put_synced(1000);
        assert!(client.prepare());
    }
    drop(client);
    disk.lose_power();
    let mut client = Client::start(&disk, &mut promise, true).expect("the log is whole");
    assert_eq!(client.promise.groups.len(), 22);

    // A file of another size is removed, not used again.
    client.retire(u64::MAX);
    assert!(disk.open(&segment_name(2)).is_err());
    assert_eq!(names(&disk, "2.spare"), [""; 0]);
    assert!(!names(&disk, ".spare").is_empty());
}

#[test]
fn a_clean_stop_leaves_no_gap_and_any_other_one_skips_the_reserve() {
    let disk = testkit::simulated_disk(5);
    let (mut log, _, recovered, _) = open(&disk);
    assert!(recovered.created);
    assert_eq!((recovered.last_sequence, recovered.next_sequence), (0, 2));
    let mut group = GroupBuffer::new();
    group.push(&set(5, 1).record());
    log.write_group(&mut group, 1).expect("there is room");
    // Others were given sequences up to 90, which are not in the log.
    log.close(90, 1).expect("there is room");
    disk.lose_power();

    let (_, _, recovered, _) = open(&disk);
    assert!(recovered.closed && !recovered.created);
    assert_eq!((recovered.last_sequence, recovered.next_sequence), (90, 92));
    // No stop at all, again and again, and nothing was ever logged but the openings.
    let mut last = recovered.next_sequence - 1;
    for _ in 0..3 {
        disk.lose_power();
        let (_, _, recovered, _) = open(&disk);
        assert!(!recovered.closed);
        assert_eq!(recovered.last_sequence, last);
        assert_eq!(recovered.next_sequence, last + SEQUENCE_RESERVE + 2);
        last = recovered.next_sequence - 1;
    }

    // What is known from elsewhere counts too.
    disk.lose_power();
    let far = LogConfig {
        least_sequence: 1 << 40,
        ..config(1)
    };
    let (_, _, recovered, _) = open_with(&disk, &far).expect("the log is whole");
    assert_eq!(recovered.next_sequence, (1 << 40) + 2);
}

/// A log that was not opened refuses no writes: there is no server that could be restarted.
#[test]
fn a_start_that_fails_says_what_failed_and_not_what_an_open_log_does_then() {
    let mut written = 0;
    for step in 0..40 {
        let disk = testkit::simulated_disk(9);
        disk.plan(step, Fault::Error);
        let Err(error) = open_with(&disk, &config(1)) else {
            continue;
        };
        let said = error.to_string();
        written += usize::from(matches!(error, LogOpenError::Write(_)));
        assert!(!said.contains("restarted"), "step {step}: {said}");
    }
    assert!(written > 0, "the opening group was written at some step");
}

#[test]
fn a_mark_that_is_durable_raises_the_limit() {
    let disk = testkit::simulated_disk(6);
    let (mut log, _, recovered, _) = open(&disk);
    let limit = log.sequence_limit();
    assert_eq!(limit, recovered.next_sequence - 1 + SEQUENCE_RESERVE);
    let mut group = GroupBuffer::new();
    group.push(&RawRecord::mark(limit));
    log.write_group(&mut group, 1).expect("there is room");
    assert_eq!(log.sequence_limit(), limit, "it is not durable yet");
    log.sync().expect("the disk is whole");
    assert_eq!(log.sequence_limit(), limit + SEQUENCE_RESERVE);
    // Everything up to the limit may have been given out.
    disk.lose_power();
    assert!(open(&disk).2.next_sequence > limit + SEQUENCE_RESERVE);
}

#[test]
#[should_panic = "beyond the limit"]
fn a_sequence_beyond_the_limit_is_never_logged() {
    let (mut log, ..) = open(&testkit::simulated_disk(7));
    let mut group = GroupBuffer::new();
    group.push(&set(log.sequence_limit() + 1, 1).record());
    let _ = log.write_group(&mut group, 1);
}

#[test]
#[should_panic = "never go back"]
fn sequences_in_a_group_never_go_back() {
    let mut group = GroupBuffer::new();
    group.push(&set(5, 1).record());
    group.push(&set(4, 1).record());
}

#[test]
#[should_panic = "behind the last sequence"]
fn sequences_in_the_log_never_go_back() {
    let (mut log, _, recovered, _) = open(&testkit::simulated_disk(8));
    let mut group = GroupBuffer::new();
    group.push(&set(recovered.next_sequence - 1, 1).record());
    let _ = log.write_group(&mut group, 1);
}

#[test]
fn segments_go_oldest_first_and_are_used_again() {
    let disk = testkit::simulated_disk(9);
    let mut promise = Promise::default();
    let mut client = Client::begin(&disk, &mut promise);
    assert!(client.prepare());
    for _ in 0..60 {
        client.put_synced(900);
        assert!(client.prepare());
    }
    let all = names(&disk, ".log").len();
    assert!(all > 8);
    assert_eq!(client.log.segment_bytes(), (all as u64 - 1) * SEGMENT_BYTES);

    // What an index lacks stays.
    client.retire(1);
    assert_eq!(names(&disk, ".log").len(), all);
    client.retire(20);
    let oldest = &names(&disk, ".log")[0];
    assert!(*oldest > segment_name(1) && *oldest < segment_name(5));
    client.retire(u64::MAX);
    assert_eq!(
        names(&disk, ".log").len(),
        2,
        "the current one and the next"
    );
    // The second time, after the first had less.
    let spares = names(&disk, ".spare").len();
    assert_eq!(spares, SPARE_SEGMENTS);
    assert_eq!(names(&disk, "").len(), 2 + spares);

    // From now on nothing is filled with zeros any more.
    let before = disk.step_count();
    for _ in 0..20 {
        client.put_synced(900);
        assert!(client.prepare());
        client.retire(u64::MAX);
    }
    let steps = disk.steps();
    let writes = steps[before..].iter().filter(|&&step| step == Step::Write);
    assert_eq!(writes.count(), 20);
    check_after_power_loss(&disk, &mut promise);
}

/// Else a full disk, or a change of the file's length, would be met in the midst of writing.
#[test]
fn a_segment_that_is_ready_has_its_room_on_the_device() {
    for seed in 0..30 {
        let disk = testkit::simulated_disk(seed);
        let mut promise = Promise::default();
        let mut client = Client::begin(&disk, &mut promise);
        assert!(client.prepare());
        drop(client);
        disk.lose_power();
        for segment in [1, 2] {
            let bytes = disk.contents(&segment_name(segment)).len();
            assert_eq!(bytes as u64, SEGMENT_BYTES, "seed {seed}");
        }
    }
}

/// The oldest file must begin with a durable group, or a start could take old content for the log.
#[test]
fn a_segment_stays_until_something_later_is_durable() {
    for seed in 0..50 {
        let disk = testkit::simulated_disk(seed);
        let mut promise = Promise::default();
        let mut client = Client::begin(&disk, &mut promise);
        // Go round until a used file is next, then begin it without a sync.
        for _ in 0..30 {
            assert!(client.prepare());
            client.put_synced(900);
            client.retire(u64::MAX);
        }
        let segments = names(&disk, ".log");
        while names(&disk, ".log") == segments {
            client.put(900).expect("there is room");
            client.retire(u64::MAX);
            assert!(client.prepare());
        }
        drop(client);
        check_after_power_loss(&disk, &mut promise);
    }
}

#[test]
fn one_that_cannot_go_keeps_the_later_ones() {
    let disk = testkit::simulated_disk(10);
    let mut promise = Promise::default();
    let mut client = Client::with_segments(&disk, &mut promise);
    let last = names(&disk, ".log");
    // The second of them is renamed, but that is not known to be durable.
    disk.plan(disk.step_count() + 3, Fault::Error);
    client.retire(u64::MAX);
    let retired = client.log.retire_through(u64::MAX, SegmentRetention::NONE);
    assert!(matches!(
        client.stock.retire(retired),
        Err(PrepareError::Stopped)
    ));
    assert!(!client.prepare() || client.log.wanted_segment().is_none());
    let left = names(&disk, ".log");
    assert_eq!(left[..], last[2..], "no hole");
    drop(client);
    check_after_power_loss(&disk, &mut promise);
}

/// A process dies before it is known whether the name of the next segment is durable; its successor
/// uses the file.
#[test]
fn names_of_a_previous_run_are_made_durable() {
    for seed in 0..30 {
        let disk = testkit::simulated_disk(seed);
        let mut promise = Promise::default();
        let mut client = Client::begin(&disk, &mut promise);
        // It is created, filled, synced, renamed, and then its folder synced.
        disk.plan(disk.step_count() + 4, Fault::Error);
        assert!(!client.prepare());
        drop(client);
        disk.kill();
        let mut client = Client::start(&disk, &mut promise, false).expect("the log is whole");
        for _ in 0..8 {
            client.put_synced(900);
        }
        assert_eq!(client.log.segment_bytes(), 2 * SEGMENT_BYTES);
        drop(client);
        check_after_power_loss(&disk, &mut promise);
    }
}

/// An error that leaves no doubt about what is on the device can be tried again.
#[test]
fn a_rename_that_fails_can_be_tried_again() {
    let disk = testkit::simulated_disk(15);
    let mut promise = Promise::default();
    let mut client = Client::with_segments(&disk, &mut promise);
    let last = names(&disk, ".log");
    // Of a file that goes.
    disk.plan(disk.step_count() + 2, Fault::Error);
    client.retire(u64::MAX);
    assert_eq!(names(&disk, ".log")[..], last[1..]);
    client.retire(u64::MAX);
    assert_eq!(names(&disk, ".log").len(), 2);
    // Of a spare that comes, and of a new file that comes.
    let room = |client: &mut Client<'_>| {
        while client.log.wanted_segment().is_none() {
            client.put(900).expect("there is room");
        }
    };
    for spares in [2, 1, 0] {
        room(&mut client);
        assert_eq!(names(&disk, ".spare").len(), spares);
        let rename = if spares > 0 { 0 } else { 3 };
        disk.plan(disk.step_count() + rename, Fault::Error);
        assert!(!client.prepare());
        assert_eq!(names(&disk, ".new"), [""; 0]);
        assert!(client.prepare());
    }
    client.sync().expect("the disk is whole");
    drop(client);
    check_after_power_loss(&disk, &mut promise);
}

#[test]
fn the_clock_of_the_log_never_goes_back() {
    let disk = testkit::simulated_disk(11);
    let mut wall = Vec::new();
    for now_ms in [100, 50, 200, 10] {
        let (mut log, _, recovered, _) = open_with(&disk, &config(now_ms)).expect("whole");
        wall.push(recovered.wall_ms);
        let mut group = GroupBuffer::new();
        group.push(&set(recovered.next_sequence, 1).record());
        log.write_group(&mut group, now_ms - 5)
            .expect("there is room");
        disk.kill();
    }
    assert_eq!(wall, [0, 100, 100, 200]);
}

#[test]
fn what_was_half_made_is_cleared_away() {
    let disk = testkit::simulated_disk(12);
    drop(open(&disk));
    for name in ["segment.new", "00000000000000000009.spare"] {
        let file = disk.create(name).expect("it is new");
        file.write_all_at(b"half", 0).expect("there is room");
    }
    disk.kill();
    drop(open(&disk));
    assert_eq!(names(&disk, "").len(), 1);
}

/// A spare may hold groups of an earlier log, and the beginning of the oldest segment counts.
#[test]
fn a_new_log_does_not_begin_in_a_used_file() {
    for step in 0.. {
        let disk = testkit::simulated_disk(13 + step as u64);
        let mut promise = Promise::default();
        let mut client = Client::with_segments(&disk, &mut promise);
        client.retire(u64::MAX);
        let spares = names(&disk, ".spare").len();
        assert!((SPARE_SEGMENTS..=SPARE_SEGMENTS_MAX).contains(&spares));
        for name in names(&disk, ".log") {
            disk.remove(&name).expect("it is there");
        }
        disk.sync_folder().expect("the disk is whole");
        disk.kill();
        // The power goes at some step of making the new log.
        disk.plan(disk.step_count() + step, Fault::PowerLoss);
        if open_with(&disk, &config(1)).is_ok() {
            assert!(step > 6, "it takes more steps than that");
            break;
        }
        disk.lose_power();
        let (_, _, recovered, records) = open(&disk);
        assert!(records.is_empty(), "{recovered:?}");
        assert!(recovered.last_sequence <= 1);
    }
}

#[test]
fn the_disk_is_full_at_a_start() {
    let disk = testkit::simulated_disk(14);
    disk.set_capacity_bytes(SEGMENT_BYTES / 2);
    let error = open_with(&disk, &config(1)).expect_err("no room");
    assert!(
        matches!(error, LogOpenError::Prepare(PrepareError::Full { .. })),
        "{error}"
    );
    assert_eq!(names(&disk, ""), [""; 0]);
}

#[test]
fn the_real_disk() {
    let folder = std::env::temp_dir().join(format!("pelton-log-test-{}", std::process::id()));
    let disk = Arc::new(RealDisk::open_or_create(&folder).expect("a folder can be made"));
    let lock = disk.lock().expect("a lock can be asked for");
    assert!(lock.is_some());
    let second = RealDisk::open(&folder).expect("it is there");
    assert!(second.lock().expect("a lock can be asked for").is_none());
    drop(lock);
    assert!(second.lock().expect("a lock can be asked for").is_some());
    assert!(disk.free_bytes().expect("it can be asked") > 0);

    let mut sequence = 0;
    for life in 0..3 {
        let mut records = Vec::new();
        let OpenLog {
            mut log,
            mut stock,
            recovered,
        } = wal::open(disk.clone(), &config(1), &mut |record| {
            if record.kind == SET {
                records.push(Owned::of(record));
            }
            Ok(())
        })
        .expect("the log is whole");
        assert_eq!(records.len(), 50 * life);
        assert!(
            records
                .iter()
                .all(|record| *record == set(record.sequence, 700))
        );
        sequence = recovered.next_sequence.max(sequence);
        let mut group = GroupBuffer::new();
        for _ in 0..50 {
            if let Some(wanted) = log.wanted_segment() {
                log.take_segment(stock.prepare(wanted).expect("there is room"));
            }
            group.push(&set(sequence, 700).record());
            log.write_group(&mut group, 1).expect("there is room");
            sequence += 1;
        }
        log.sync().expect("the disk is whole");
        if life == 1 {
            log.close(sequence, 1).expect("there is room");
        }
    }
    let names = disk.list().expect("it is there");
    assert!(names.contains(&"lock".into()) && names.contains(&segment_name(1)));
    assert_eq!(
        disk.open("none").expect_err("no such file").kind(),
        std::io::ErrorKind::NotFound
    );
    std::fs::remove_dir_all(&folder).expect("it is ours");
    assert!(RealDisk::open(&folder).is_err());
}
