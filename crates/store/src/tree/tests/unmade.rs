//! Trees that begin without a folder.

use super::*;
use crate::tree::Fate;

/// A tree is read and written before it is made, meanwhile and afterwards, by old views and new
/// ones.
#[test]
fn a_tree_equals_the_model_whenever_it_is_made() {
    for seed in 0..40 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let folder = TempFolder::new("unmade");
        let trees = Trees::open(&folder.0, small()).expect("the folder is new");
        let mut writer = trees.begin(GENERATION, None);
        let made_at = random.below(30);
        let mut log: Vec<Logged> = Vec::new();
        let mut views = Vec::new();
        for step in 0..40 {
            let last = log
                .last()
                .map_or(GENERATION.sequence, |commit| commit.sequence);
            let commit = random_commit(&mut random, last);
            apply(&mut writer, &commit);
            log.push(commit);
            if step < made_at {
                assert!(!writer.index().is_made());
                assert!(!writer.seal(u64::MAX), "there is nowhere to flush it to");
                assert_eq!(writer.unflushed_from(), Some(GENERATION.sequence));
                assert!(!folder.0.join("3-5").exists());
            }
            if random.once_in(4) {
                views.push((writer.index().view(), content(&log)));
            }
            if step == made_at {
                assert!(writer.index().flush().expect("there is room"));
                assert!(folder.0.join("3-5").exists());
            }
            if step > made_at && random.once_in(5) {
                writer.seal(u64::MAX);
                writer.index().flush().expect("there is room");
                writer.index().compact().expect("there is room");
            }
            let key = random_key(&mut random);
            check_in_memory(&writer, &key, &content(&log));
            check_view(&writer.index().view(), &content(&log), &mut random);
        }
        for (view, content) in &views {
            check_view(view, content, &mut random);
        }
        // As after a crash: what was not flushed comes out of the log.
        drop((views, writer));
        let mut writer = open(&folder.0);
        replay(&mut writer, &log);
        assert_eq!(all_of(&writer.index().view()), content(&log));
    }
}

/// All kinds of reads.
fn check_view(view: &TreeView, content: &Content, random: &mut Random) {
    assert_eq!(all_of(view), *content);
    let (from, to) = (random_key(random), random_key(random));
    let range = Range::new(&from, Some(&to));
    let within: Vec<_> = (content.keys())
        .filter(|key| **key >= from && **key < to)
        .cloned()
        .collect();
    let mut backward = Vec::new();
    let end = view.scan(&range, Direction::Backward, 0, u32::MAX, &mut |entry| {
        backward.push(entry.key.to_vec());
        ControlFlow::Continue(())
    });
    assert_eq!(end.expect("the tree is whole"), ScanEnd::Complete);
    backward.reverse();
    assert_eq!(backward, within);
    let found = view.find(&from).expect("the tree is whole");
    let value = found.map(|entry| entry.value.to_vec());
    assert_eq!(value, content.get(&from).map(|(value, ..)| value.clone()));
}

/// What is in the way of the folder is told each time, and does not hold up what is in memory.
#[test]
fn a_tree_is_made_when_that_is_possible() {
    let folder = TempFolder::new("in-the-way");
    let trees = Trees::open(&folder.0, small()).expect("the folder is new");
    for round in 0..2 {
        let generation = Generation {
            sequence: GENERATION.sequence + round,
            ..GENERATION
        };
        let in_the_way = folder.0.join(format!("{generation}.new"));
        std::fs::write(&in_the_way, "").expect("there is room");
        let mut writer = trees.begin(generation, None);
        for _ in 0..2 {
            let error = writer.index().flush().expect_err("it is in the way");
            assert!(
                error.to_string().contains(&generation.to_string()),
                "{error}"
            );
            assert_eq!(writer.index().trouble(), super::super::Trouble::Failed);
        }
        let mut random = Random::new(round);
        let commit = random_commit(&mut random, 100);
        apply(&mut writer, &commit);
        std::fs::remove_file(&in_the_way).expect("it is there");
        assert!(writer.index().flush().expect("nothing is in the way"));
        assert_eq!(writer.index().trouble(), super::super::Trouble::None);
        assert_eq!(all_of(&writer.index().view()), content(&[commit]));
    }
}

/// One that is dropped before it is made leaves nothing, and is not made any more.
#[test]
fn a_tree_that_is_discarded_is_not_made() {
    let folder = TempFolder::new("discarded");
    let trees = Trees::open(&folder.0, small()).expect("the folder is new");
    for _ in 0..2 {
        let writer = trees.begin(GENERATION, None);
        let index = writer.index().clone();
        index.discard();
        assert!(!index.flush().expect("there is nothing to do"));
        drop((writer, index));
        let left = std::fs::read_dir(&folder.0).expect("it is there").count();
        assert_eq!(left, 0);
    }
}

/// At the end of the store folders are left to the next start.
#[test]
fn a_folder_that_is_discarded_at_the_end_goes_at_the_next_start() {
    let folder = TempFolder::new("closing");
    for _ in 0..2 {
        let trees = Trees::open(&folder.0, small()).expect("it is a folder of trees");
        let writer = trees.create(GENERATION).expect("there is room");
        writer.index().discard();
        trees.close();
        drop(writer);
        assert_eq!(trees.generations().expect("it is read"), [GENERATION]);
        let trees = Trees::open(&folder.0, small()).expect("it is a folder of trees");
        trees
            .clear_away(&|_| Fate::Ended, 0)
            .expect("nothing is in the way");
        assert_eq!(trees.generations().expect("it is read"), []);
    }
}

/// What is loaded into a tree that nobody reads is on the device, and in memory no more.
#[test]
fn what_is_loaded_does_not_stay_in_memory() {
    let folder = TempFolder::new("loaded");
    let trees = Trees::open(&folder.0, small()).expect("the folder is new");
    let mut writer = trees.prepare(GENERATION).expect("there is room");
    let mut memtables = Vec::new();
    for round in 0..20u32 {
        for number in 0..20 {
            let key = (round * 20 + number).to_be_bytes();
            writer.load(&Entry {
                key: &key,
                value: Value::Inline(&[7; 100]),
                version: 3,
                expires_ms: 0,
            });
        }
        let active = writer.index().shared.memtables.read().active.clone();
        memtables.push(std::sync::Arc::downgrade(&active));
        drop(active);
        assert!(writer.seal(u64::MAX));
        while writer.index().flush_unread().expect("there is room") {}
        let kept = memtables
            .iter()
            .filter(|one| one.strong_count() > 0)
            .count();
        assert!(kept <= 1, "round {round}: {kept} memtables are kept");
    }
    drop(writer);
    let writer = trees.name(GENERATION).expect("there is room");
    assert_eq!(all_of(&writer.index().view()).len(), 400);
}
