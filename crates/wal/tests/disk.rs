//! The simulated disk is as bad as it says, and no worse: what rests on it tests something.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::Arc;

use wal::disk::{Disk, Fault};
use wal::{LogConfig, LogId};

const BLOCK: usize = 512;

#[test]
fn only_what_was_synced_is_sure() {
    let mut seen = BTreeSet::new();
    for seed in 0..300 {
        let disk = testkit::simulated_disk(seed);
        let file = disk.create("file").expect("an empty disk");
        file.write_all_at(&[1; 3 * BLOCK], 0)
            .expect("there is room");
        file.sync().expect("the disk is whole");
        disk.sync_folder().expect("the disk is whole");
        for content in [2, 3] {
            file.write_all_at(&[content; 2 * BLOCK], BLOCK as u64)
                .expect("there is room");
        }
        disk.lose_power();
        let contents = disk.contents("file");
        assert_eq!(contents[..BLOCK], [1; BLOCK]);
        let blocks = [&contents[BLOCK..2 * BLOCK], &contents[2 * BLOCK..]];
        for block in blocks {
            assert_eq!(
                block, [block[0]; BLOCK],
                "a block is written whole or not at all"
            );
        }
        seen.insert((blocks[0][0], blocks[1][0]));
        assert!(file.len().is_err(), "the file of a dead process");
    }
    assert_eq!(seen.len(), 9, "{seen:?}");
}

#[test]
fn a_sync_that_fails_makes_a_later_one_lie() {
    let mut kept = BTreeSet::new();
    for seed in 0..100 {
        let disk = testkit::simulated_disk(seed);
        let file = disk.create("file").expect("an empty disk");
        file.write_all_at(&[1; BLOCK], 0).expect("there is room");
        file.sync().expect("the disk is whole");
        disk.sync_folder().expect("the disk is whole");
        file.write_all_at(&[2; BLOCK], 0).expect("there is room");
        disk.plan(disk.step_count(), Fault::Error);
        file.sync().expect_err("planned");
        file.sync().expect("the second one succeeds");
        assert_eq!(disk.contents("file")[0], 2);
        disk.evict();
        kept.insert(disk.contents("file")[0]);
        // Written again, it is believed dirty again.
        let file = disk.open("file").expect("it is there");
        file.write_all_at(&[3; BLOCK], 0).expect("there is room");
        file.sync().expect("the disk is whole");
        disk.lose_power();
        assert_eq!(disk.contents("file")[0], 3);
    }
    assert_eq!(kept, BTreeSet::from([1, 2]));
}

#[test]
fn names_are_sure_when_the_folder_is_synced() {
    let mut seen = BTreeSet::new();
    for seed in 0..300 {
        let disk = testkit::simulated_disk(seed);
        for name in ["old", "other"] {
            disk.create(name).expect("an empty disk");
        }
        disk.sync_folder().expect("the disk is whole");
        disk.rename("old", "new").expect("it is there");
        disk.remove("other").expect("it is there");
        disk.lose_power();
        seen.insert(disk.list().expect("the power is back").join(" "));
    }
    let expected = ["new", "new other", "old", "old other"];
    assert_eq!(seen, expected.map(String::from).into());
}

/// A name that is used again: the renamed file comes up under its new name or not at all, also
/// where the end of the older one is lost.
#[test]
fn a_rename_that_is_kept_is_that_of_its_file() {
    let mut seen = BTreeSet::new();
    for seed in 0..300 {
        let disk = testkit::simulated_disk(seed);
        disk.create("made").expect("an empty disk");
        disk.sync_folder().expect("the disk is whole");
        for content in [1, 2] {
            disk.remove("made").expect("it is there");
            let file = disk.create("made").expect("there is none");
            file.write_all_at(&[content; BLOCK], 0)
                .expect("there is room");
            file.sync().expect("the disk is whole");
        }
        disk.rename("made", "named").expect("it is there");
        disk.lose_power();
        let names = disk.list().expect("the power is back");
        if names.iter().any(|name| name == "named") {
            assert_eq!(disk.contents("named"), [2; BLOCK], "seed {seed}: {names:?}");
        }
        seen.insert(names.join(" "));
    }
    let expected = ["", "made", "made named", "named"];
    assert_eq!(seen, expected.map(String::from).into());
}

#[test]
fn room_is_what_was_written_not_what_is_long() {
    let disk = testkit::simulated_disk(1);
    disk.set_capacity_bytes(4 * BLOCK as u64);
    let file = disk.create("file").expect("an empty disk");
    file.set_len(100 * BLOCK as u64)
        .expect("a hole takes no room");
    file.write_all_at(&[1; 4 * BLOCK], 0)
        .expect("there is room");
    assert_eq!(disk.free_bytes().expect("it can be asked"), 0);
    let error = file
        .write_all_at(&[1], 50 * BLOCK as u64)
        .expect_err("full");
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    file.write_all_at(&[2; BLOCK], BLOCK as u64)
        .expect("it has its room");
    disk.remove("file").expect("it is there");
    assert_eq!(
        disk.free_bytes().expect("it can be asked"),
        4 * BLOCK as u64
    );
}

#[test]
fn after_the_power_is_gone_nothing_works() {
    let disk = testkit::simulated_disk(1);
    let file = disk.create("file").expect("an empty disk");
    disk.plan(disk.step_count(), Fault::PowerLoss);
    file.write_all_at(&[1], 0).expect_err("planned");
    file.sync().expect_err("no power");
    disk.list().expect_err("no power");
    disk.create("other").map(|_| ()).expect_err("no power");
    disk.lose_power();
    disk.list().expect("the power is back");
}

/// The start of a new log waits for the first file only, which is small; later ones have their full
/// size.
#[test]
fn the_first_segment_of_a_log_is_small() {
    use wal::limits::{FILL_SYNC_BYTES, FIRST_SEGMENT_BYTES};
    let id = LogId {
        history: 1,
        secret: 2,
    };
    let segment_bytes = 2 * FILL_SYNC_BYTES + FIRST_SEGMENT_BYTES;
    for (segment_bytes, first_bytes) in [
        (segment_bytes, FIRST_SEGMENT_BYTES),
        (FIRST_SEGMENT_BYTES / 2, FIRST_SEGMENT_BYTES / 2),
    ] {
        let disk = testkit::simulated_disk(1);
        let config = LogConfig {
            segment_bytes,
            ..LogConfig::new(id, 1)
        };
        let mut opened =
            wal::open(Arc::new(disk.clone()), &config, &mut |_| Ok(())).expect("it is empty");
        let wanted = opened.log.wanted_segment().expect("there is no next one");
        opened.stock.prepare(wanted).expect("there is room");
        let lengths = [1, 2].map(|ordinal| disk.contents(&wal::segment_name(ordinal)).len() as u64);
        assert_eq!(lengths, [first_bytes, segment_bytes]);
    }
}

/// A start that takes long says how far it is by these.
#[test]
fn what_is_read_of_a_log_is_counted() {
    static PROGRESS: wal::ReadProgress = wal::ReadProgress::new();
    let id = LogId {
        history: 1,
        secret: 2,
    };
    let config = LogConfig {
        progress: Some(&PROGRESS),
        ..LogConfig::new(id, 1)
    };
    let disk = testkit::simulated_disk(1);
    let mut before_bytes = 0;
    for start in 0..3 {
        let mut records = 0;
        let earlier_records = PROGRESS.records();
        let opened = wal::open(Arc::new(disk.clone()), &config, &mut |_| {
            records += 1;
            Ok(())
        });
        opened.expect("it is whole");
        // Each start leaves a group that the next one reads.
        assert_eq!(PROGRESS.bytes() > before_bytes, start > 0, "start {start}");
        assert_eq!(PROGRESS.records() - earlier_records, records);
        before_bytes = PROGRESS.bytes();
    }
}
