//! Segments that come though descriptors, spares or earlier attempts are in the way, and why they
//! do not come.

mod common;

use std::sync::Arc;

use common::{
    Client, Promise, SEGMENT_BYTES, check_after_power_loss, config, names, open_with, set,
};
use wal::disk::{Disk, Fault, SimulatedDisk, Step};
use wal::limits::{FILL_SYNC_BYTES, SPARE_SEGMENTS, SPARE_SEGMENTS_MAX};
use wal::{GroupBuffer, LogConfig, PrepareError, SegmentRetention};

impl Client<'_> {
    /// Writes until the log wants its next segment.
    fn fill(&mut self) {
        while self.log.wanted_segment().is_none() {
            self.put_synced(900);
        }
    }

    fn try_prepare(&mut self) -> Result<(), PrepareError> {
        let wanted = self.log.wanted_segment().expect("one is wanted");
        let ready = self.stock.prepare(wanted)?;
        self.log.take_segment(ready);
        Ok(())
    }
}

/// With as many spares as there can be, if that is wanted.
fn start<'a>(disk: &SimulatedDisk, promise: &'a mut Promise, with_spares: bool) -> Client<'a> {
    let mut client = Client::with_segments(disk, promise);
    assert!(client.prepare());
    if with_spares {
        client.retire(u64::MAX);
        assert!(names(disk, ".spare").len() > SPARE_SEGMENTS);
    }
    client
}

/// Whatever others have open: what the log has, it keeps for itself.
#[test]
fn the_log_grows_while_no_descriptor_is_left_for_anybody() {
    for with_spares in [false, true] {
        let disk = testkit::simulated_disk(1);
        let mut promise = Promise::default();
        let mut client = start(&disk, &mut promise, with_spares);
        for _ in 0..30 {
            client.fill();
            // Others have taken whatever was let go of.
            disk.set_handle_limit(disk.open_handles());
            let prepared = client.try_prepare();
            prepared.unwrap_or_else(|error| panic!("with spares {with_spares}: {error}"));
            if with_spares {
                client.retire(u64::MAX);
            }
        }
        assert!(disk.fault_counts().no_descriptors >= 30);
        disk.set_handle_limit(usize::MAX);
        drop(client);
        check_after_power_loss(&disk, &mut promise);
    }
}

/// As many as were needed since the last time are kept, within bounds; the others go.
#[test]
fn spares_are_as_many_as_were_needed() {
    let disk = testkit::simulated_disk(7);
    let mut promise = Promise::default();
    let mut client = start(&disk, &mut promise, false);
    client.retire(u64::MAX);
    for used in [1, 5, 5, 3, 1, 20, 20, 4, 70, 1] {
        for _ in 0..used {
            client.fill();
            client.try_prepare().expect("there is room");
        }
        client.retire(u64::MAX);
        let expected = used.clamp(SPARE_SEGMENTS, SPARE_SEGMENTS_MAX);
        assert_eq!(names(&disk, ".spare").len(), expected, "{used} were used");
        assert_eq!(names(&disk, "").len(), 2 + expected);
    }
    drop(client);
    check_after_power_loss(&disk, &mut promise);
}

/// What is left of a full disk is for what is written, not for spares; the two that are always
/// needed stay.
#[test]
fn spares_leave_most_of_a_full_disk_to_others() {
    let disk = testkit::simulated_disk(7);
    let mut promise = Promise::default();
    let mut client = start(&disk, &mut promise, false);
    client.retire(u64::MAX);
    for (free_segments, kept) in [(100, 10), (12, 6), (2, SPARE_SEGMENTS), (100, 10)] {
        disk.set_capacity_bytes(u64::MAX);
        for _ in 0..10 {
            client.fill();
            client.try_prepare().expect("there is room");
        }
        disk.set_capacity_bytes(disk.used_bytes() + free_segments * SEGMENT_BYTES);
        client.retire(u64::MAX);
        assert_eq!(names(&disk, ".spare").len(), kept, "{free_segments} free");
    }
    drop(client);
    check_after_power_loss(&disk, &mut promise);
}

/// Nothing was renamed that nobody has open: so nothing is lost, and it is only a matter of time.
#[test]
fn a_want_of_descriptors_is_over_when_there_are_some() {
    for with_spares in [false, true] {
        let disk = testkit::simulated_disk(2);
        let mut promise = Promise::default();
        let mut client = start(&disk, &mut promise, with_spares);
        for _ in 0..2 {
            client.fill();
            let before = names(&disk, "");
            // Not even in the place of the one that is kept.
            disk.set_handle_limit(0);
            for _ in 0..2 {
                let error = client.try_prepare().expect_err("there is none");
                assert!(matches!(error, PrepareError::Device { .. }), "{error}");
                assert!(error.to_string().contains("Too many open files"), "{error}");
            }
            disk.set_handle_limit(usize::MAX);
            assert_eq!(names(&disk, ""), before);
            client.try_prepare().expect("there are some again");
        }
        assert!(!client.log.is_poisoned());
        drop(client);
        check_after_power_loss(&disk, &mut promise);
    }
}

#[test]
fn a_spare_that_is_gone_or_was_cut_is_replaced() {
    type Spoil = fn(&SimulatedDisk, &str);
    let spoils: [Spoil; 3] = [
        |disk, name| disk.remove(name).expect("it is there"),
        |disk, name| {
            let file = disk.open(name).expect("it is there");
            file.set_len(SEGMENT_BYTES / 2).expect("it can be cut");
        },
        |disk, _| disk.plan_next(Step::Open, 0, Fault::Error),
    ];
    for spoil in spoils {
        let disk = testkit::simulated_disk(3);
        let mut promise = Promise::default();
        let mut client = start(&disk, &mut promise, true);
        // Of all of them, one after the other.
        for left in (0..names(&disk, ".spare").len()).rev() {
            client.fill();
            let spares = names(&disk, ".spare");
            for name in &spares[left..] {
                spoil(&disk, name);
            }
            client.try_prepare().expect("there is another way");
        }
        client.fill();
        client.try_prepare().expect("there is room");
        drop(client);
        check_after_power_loss(&disk, &mut promise);
    }
}

#[test]
fn what_a_failed_attempt_could_not_remove_does_not_hinder_the_next() {
    let disk = testkit::simulated_disk(4);
    let mut promise = Promise::default();
    let mut client = start(&disk, &mut promise, false);
    for _ in 0..2 {
        client.fill();
        disk.plan_next(Step::Write, 0, Fault::Error);
        disk.plan_next(Step::Remove, 0, Fault::Error);
        client.try_prepare().expect_err("planned");
        assert_eq!(names(&disk, ".new").len(), 1);
        client.try_prepare().expect("it is made anew");
        assert_eq!(names(&disk, ".new"), [""; 0]);
    }
    drop(client);
    check_after_power_loss(&disk, &mut promise);
}

#[test]
fn a_segment_that_somebody_has_removed_does_not_keep_the_later_ones() {
    let disk = testkit::simulated_disk(5);
    let mut promise = Promise::default();
    let mut client = start(&disk, &mut promise, false);
    for _ in 0..2 {
        for _ in 0..40 {
            client.put_synced(900);
            assert!(client.prepare());
        }
        let oldest = &names(&disk, ".log")[0];
        disk.remove(oldest).expect("it is there");
        client.promise.retired_sequence = u64::MAX;
        let retired = client.log.retire_through(u64::MAX, SegmentRetention::NONE);
        client.stock.retire(retired).expect("the disk is whole");
        assert_eq!(
            names(&disk, ".log").len(),
            2,
            "the current one and the next"
        );
        assert!(names(&disk, ".spare").len() <= SPARE_SEGMENTS_MAX);
    }
    client.fill();
    client.try_prepare().expect("there are spares");
    drop(client);
    check_after_power_loss(&disk, &mut promise);
}

/// The cause is the one that the system gave.
#[test]
fn an_error_of_the_device_is_no_full_disk() {
    for step in [Step::Create, Step::Write, Step::Sync, Step::Rename] {
        for fault in [Fault::Error, Fault::Full] {
            let disk = testkit::simulated_disk(6);
            let mut promise = Promise::default();
            let mut client = start(&disk, &mut promise, false);
            client.fill();
            disk.plan_next(step, 0, fault);
            let error = client.try_prepare().expect_err("planned");
            let is_full = matches!(error, PrepareError::Full { .. });
            assert_eq!(is_full, fault == Fault::Full, "{step:?}: {error}");
            assert_eq!(error.to_string().contains("no space or no inodes"), is_full);
            client.try_prepare().expect("it was one error");
            drop(client);
            check_after_power_loss(&disk, &mut promise);
        }
    }
}

/// Until it is known which names are durable, no other file may come into the row.
#[test]
fn a_name_that_may_not_be_durable_stops_preparation_until_a_restart() {
    let disk = testkit::simulated_disk(7);
    let mut promise = Promise::default();
    let mut client = start(&disk, &mut promise, false);
    client.fill();
    disk.plan_next(Step::SyncFolder, 0, Fault::Error);
    let error = client.try_prepare().expect_err("planned");
    assert!(matches!(error, PrepareError::Unsure { .. }), "{error}");
    for _ in 0..2 {
        let error = client.try_prepare().expect_err("only a restart helps");
        assert!(matches!(error, PrepareError::Stopped), "{error}");
    }
    drop(client);
    check_after_power_loss(&disk, &mut promise);
}

/// Each access of a start fails once: it is refused, or all is there; and then it starts.
#[test]
fn a_start_that_cannot_read_loses_nothing() {
    for fault in [
        Fault::Error,
        Fault::Short,
        Fault::NoDescriptor,
        Fault::Denied,
    ] {
        for access in 0.. {
            let disk = testkit::simulated_disk(8);
            let mut promise = Promise::default();
            drop(start(&disk, &mut promise, true));
            disk.lose_power();
            let first = disk.accesses().len();
            disk.plan_access(first + access, fault);
            let started = Client::start(&disk, &mut promise, true).map(drop);
            let was_met = disk.accesses().len() > first + access;
            if fault == Fault::Short {
                started.expect("a short read is none that failed");
            } else if started.is_ok() {
                // Of a segment that is not there yet, say.
                let step = disk.accesses()[first + access.min(disk.accesses().len() - first - 1)];
                let spares_reads = [Fault::NoDescriptor, Fault::Denied].contains(&fault);
                assert!(!was_met || spares_reads && step == Step::Read);
            }
            disk.lose_power();
            disk.forget_plans();
            Client::start(&disk, &mut promise, true).unwrap_or_else(|error| panic!("{error}"));
            if !was_met {
                assert!(access > 10, "{access}");
                break;
            }
        }
    }
}

/// Zeros that are written while somebody waits for them are bytes that the device takes twice.
#[test]
fn a_segment_that_is_waited_for_is_allocated_at_once() {
    let disk = testkit::simulated_disk(1);
    let config = LogConfig {
        segment_bytes: 3 * FILL_SYNC_BYTES,
        ..config(1)
    };
    let mut opened =
        wal::open(Arc::new(disk.clone()), &config, &mut |_| Ok(())).expect("it is empty");
    let demand = opened.stock.demand();
    for (is_waiting, syncs) in [(false, 3), (true, 1), (false, 3), (true, 1)] {
        demand.set_waiting(is_waiting);
        let wanted = opened.log.wanted_segment().expect("there is no next one");
        let before = disk.step_count();
        let segment = opened.stock.prepare(wanted).expect("there is room");
        let done = disk.steps().split_off(before);
        let done = done.iter().filter(|step| **step == Step::Sync).count();
        assert_eq!(done, syncs, "somebody waits: {is_waiting}");
        opened.log.take_segment(segment);
        // More than half of a segment, so that it goes into the next one and another one is wanted.
        let mut group = GroupBuffer::new();
        let value_bytes = 2 * FILL_SYNC_BYTES as usize;
        let sequence = opened.log.written().sequence + 1;
        group.push(&set(sequence, value_bytes).record());
        opened
            .log
            .write_group(&mut group, 1)
            .expect("there is room");
        opened.log.sync().expect("the disk is whole");
    }
}

/// A file that is written on with may be larger than new ones are: where the process may not write
/// so large a file, the start is refused before anything is changed.
#[test]
fn a_file_that_is_larger_than_the_process_may_write_one_refuses_the_start() {
    let disk = testkit::simulated_disk(6);
    let mut opened =
        wal::open(Arc::new(disk.clone()), &config(1), &mut |_| Ok(())).expect("it is empty");
    let mut group = GroupBuffer::new();
    group.push(&set(opened.log.written().sequence + 1, 10).record());
    opened
        .log
        .write_group(&mut group, 1)
        .expect("there is room");
    opened.log.sync().expect("the disk is whole");
    drop(opened);
    disk.kill();
    let limited = |bytes| LogConfig {
        largest_file_bytes: Some(bytes),
        ..config(2)
    };
    for _ in 0..2 {
        let steps = disk.step_count();
        let refused = open_with(&disk, &limited(SEGMENT_BYTES - 1)).expect_err("it is too large");
        let expected = (SEGMENT_BYTES, SEGMENT_BYTES - 1);
        assert!(
            matches!(refused, wal::LogOpenError::FileSize { bytes, largest_bytes, .. }
                if (bytes, largest_bytes) == expected),
            "{refused:?}"
        );
        assert_eq!(disk.step_count(), steps, "nothing was changed");
    }
    open_with(&disk, &limited(SEGMENT_BYTES)).expect("it may be written");
}

/// A file that only ends as a spare does is somebody else's: it stays, start after start.
#[test]
fn a_file_that_is_called_like_a_spare_and_is_none_stays() {
    let disk = testkit::simulated_disk(5);
    let strange = ["7.spare", "my-tables.spare", "-0000000000000000007.spare"];
    for name in strange {
        disk.create(name).expect("it is new");
    }
    disk.sync_folder().expect("the disk is whole");
    let mut promise = Promise::default();
    for _ in 0..2 {
        let mut client = start(&disk, &mut promise, true);
        client.fill();
        client.try_prepare().expect("there is room");
        drop(client);
        let there = names(&disk, ".spare");
        for name in strange {
            assert!(there.iter().any(|other| other == name), "{name}: {there:?}");
        }
        check_after_power_loss(&disk, &mut promise);
    }
}
