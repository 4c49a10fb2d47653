//! Walks end where they have passed over, or read, as much as one step may.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use testkit::{read_folder, write_folder};

use super::{GENERATION, Logged, TempFolder, apply, flush_all};
use crate::range::{Direction, Range, ScanEnd};
use crate::tree::{TreeConfig, TreeView, TreeWriter, Trees, limits};

fn key(number: u64) -> Vec<u8> {
    format!("key/{number:08}").into_bytes()
}

/// A tree whose memtables hold all that these tests write.
fn tree(folder: &TempFolder) -> TreeWriter {
    let trees = Trees::open(&folder.0, TreeConfig::default()).expect("the folder is new");
    trees.create(GENERATION).expect("there is room")
}

fn commit(writer: &mut TreeWriter, changes: impl Iterator<Item = (Vec<u8>, Option<Vec<u8>>)>) {
    let changes = changes.map(|(key, value)| (key, value.map(|value| (value, 0))));
    let sequence = (writer.index().sequence() + 1).max(GENERATION.sequence + 1);
    let changes: BTreeMap<_, _> = changes.collect();
    apply(writer, &Logged { sequence, changes });
}

/// How many steps a walk over everything takes, and how many entries it visits.
fn steps(view: &TreeView, direction: Direction) -> (u64, u64) {
    let (mut steps, mut rows) = (0, 0);
    let mut passed: Option<Vec<u8>> = None;
    loop {
        let rest = match &passed {
            None => Range::ALL,
            Some(passed) => Range::ALL.beyond(passed, direction),
        };
        steps += 1;
        let ended = view.walk(&rest, direction, u32::MAX, &mut |_, _| {
            rows += 1;
            Ok(ControlFlow::Continue(()))
        });
        match ended.expect("the tree is whole") {
            Some(key) => passed = Some(key.to_vec()),
            None => return (steps, rows),
        }
    }
}

const BOTH: [Direction; 2] = [Direction::Forward, Direction::Backward];
const PASSED_OVER: u64 = limits::WALK_PASSED_OVER as u64;

#[test]
fn a_walk_over_removed_entries_ends_in_steps() {
    let folder = TempFolder::new("removed");
    let mut writer = tree(&folder);
    let count = 3 * PASSED_OVER;
    for round in 1..3 {
        commit(
            &mut writer,
            (0..count).map(|number| (key(number), Some(vec![1]))),
        );
        flush_all(&mut writer);
        for direction in BOTH {
            let (steps, rows) = steps(&writer.index().view(), direction);
            assert_eq!(rows, count);
            assert_eq!(
                steps > 1,
                round > 1,
                "what was removed before is passed over"
            );
        }
        commit(&mut writer, (0..count).map(|number| (key(number), None)));
        // In memory, and then in tables: the entries, and what removes them.
        for _ in 0..2 {
            for direction in BOTH {
                let (steps, rows) = steps(&writer.index().view(), direction);
                assert_eq!(rows, 0);
                assert!(
                    steps > 5 * round && steps < 13 * round,
                    "{steps} {direction:?}"
                );
            }
            if writer.active_bytes() > 0 {
                flush_all(&mut writer);
            }
        }
    }
}

#[test]
fn a_tree_is_empty_only_if_nothing_is_behind_its_removed_entries() {
    let folder = TempFolder::new("empty");
    let mut writer = tree(&folder);
    let is_empty = |writer: &TreeWriter| {
        let view = writer.index().view();
        view.is_empty().expect("the tree is whole")
    };
    let count = 3 * PASSED_OVER;
    for _ in 0..2 {
        let entries = (0..=count).map(|number| (key(number), Some(vec![])));
        commit(&mut writer, entries);
        assert!(!is_empty(&writer));
        commit(&mut writer, (0..count).map(|number| (key(number), None)));
        assert!(!is_empty(&writer), "the last one is there");
        commit(&mut writer, [(key(count), None)].into_iter());
        assert!(is_empty(&writer));
        flush_all(&mut writer);
        assert!(is_empty(&writer));
    }
}

#[test]
fn a_walk_ends_among_the_versions_of_one_key() {
    let folder = TempFolder::new("versions");
    let mut writer = tree(&folder);
    for _ in 0..2 {
        for number in 0..2 * PASSED_OVER {
            commit(
                &mut writer,
                [(key(7), Some(number.to_be_bytes().to_vec()))].into_iter(),
            );
        }
        commit(
            &mut writer,
            [(key(6), Some(vec![])), (key(8), Some(vec![]))].into_iter(),
        );
        for direction in BOTH {
            let (steps, rows) = steps(&writer.index().view(), direction);
            // Backward, a step ends in front of the key, and the next one among its versions.
            let expected = 2 + u64::from(direction == Direction::Backward);
            assert_eq!((steps, rows), (expected, 3), "{direction:?}");
        }
    }
}

#[test]
fn a_walk_ends_where_it_has_read_enough() {
    let folder = TempFolder::new("read");
    let mut writer = tree(&folder);
    let value_bytes = limits::WALK_BYTES / 4 + 1;
    for _ in 0..2 {
        for number in 0..12 {
            let value = vec![number as u8; value_bytes];
            commit(&mut writer, [(key(number), Some(value))].into_iter());
        }
        for direction in BOTH {
            let (steps, rows) = steps(&writer.index().view(), direction);
            assert_eq!(rows, 12);
            assert!((3..8).contains(&steps), "{steps} {direction:?}");
        }
        flush_all(&mut writer);
    }
}

#[test]
fn a_walk_goes_on_without_the_block_that_it_has_passed() {
    for _ in 0..2 {
        let folder = TempFolder::new("passed");
        let mut writer = tree(&folder);
        let value = |number: u8| (key(number.into()), Some(vec![number; 100_000]));
        commit(&mut writer, (0..4).map(value));
        flush_all(&mut writer);
        damage(&folder, &[1; 100]);
        let view = writer.index().view();
        let walk_beyond = |passed: u64| {
            let (passed, mut rows) = (key(passed), 0);
            let rest = Range::ALL.beyond(&passed, Direction::Forward);
            let ended = view.walk(&rest, Direction::Forward, u32::MAX, &mut |_, _| {
                rows += 1;
                Ok(ControlFlow::Continue(()))
            });
            ended.map(|_| rows)
        };
        assert_eq!(walk_beyond(1).expect("what is behind is whole"), 2);
        walk_beyond(0).expect_err("the next one is damaged");
    }
}

/// A table whose first entry comes later is not read either.
#[test]
fn a_walk_reads_no_block_behind_its_last_entry() {
    let value = |number: u8| {
        let value = vec![number; limits::WALK_BYTES / 2 + 1];
        (key(number.into()), Some(value))
    };
    for is_of_another_run in [false, true] {
        let folder = TempFolder::new("behind");
        let mut writer = tree(&folder);
        commit(&mut writer, (0..2).map(value));
        if is_of_another_run {
            // Their tables overlap.
            commit(&mut writer, [(key(9), Some(vec![]))].into_iter());
            flush_all(&mut writer);
        }
        commit(&mut writer, (2..4).map(value));
        flush_all(&mut writer);
        damage(&folder, &[2; 100]);
        let view = writer.index().view();
        for _ in 0..2 {
            let ended = view.count(&Range::ALL, 0, u32::MAX);
            let ended = ended.expect("what is before is whole");
            assert_eq!((ended.count, ended.passed), (2, Some(&key(1)[..])));
            let stopped = view.scan(&Range::ALL, Direction::Forward, 0, 1, &mut |_| {
                ControlFlow::Break(())
            });
            assert_eq!(stopped.expect("the first is whole"), ScanEnd::Stopped);
            let passed = key(1);
            let rest = Range::ALL.beyond(&passed, Direction::Forward);
            view.count(&rest, 0, 1)
                .expect_err("the next one is damaged");
        }
    }
}

/// Changes a byte of some that stand in a table.
fn damage(folder: &TempFolder, bytes: &[u8]) {
    let mut files = read_folder(&folder.0);
    let places = files.values_mut().filter_map(|file| {
        let place = file.windows(bytes.len()).position(|part| part == bytes)?;
        Some(&mut file[place])
    });
    let changed = places.map(|byte| *byte ^= 1).count();
    assert_eq!(changed, 1);
    write_folder(&folder.0, &files);
}
