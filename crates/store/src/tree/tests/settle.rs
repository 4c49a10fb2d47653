//! A change of the set of tables that fails behind its publication.

use std::fs;

use testkit::{read_folder, write_folder};

use super::*;

/// What a flush leaves that fails when `current` was renamed: in `folder` it names a list, v9, with
/// a table that the engine does not have. A folder of the name of its next list lets the flush
/// itself fail.
fn publish_another_list(folder: &Path, log: &[Logged]) {
    let twin = TempFolder::new("settle-twin");
    write_folder(&twin.0, &read_folder(folder));
    let mut writer = open(&twin.0);
    replay(&mut writer, log);
    assert!(writer.seal(u64::MAX));
    assert!(writer.index().flush().expect("there is room"));
    drop(writer);
    let (tree, twin) = (folder.join("3-5"), twin.0.join("3-5"));
    let mut current = fs::read(twin.join("current")).expect("it was written");
    let number = current.first_chunk().expect("it begins with the number");
    let next = format!("v{}", u64::from_le_bytes(*number));
    fs::copy(twin.join(&next), tree.join("v9")).expect("there is room");
    current[..8].copy_from_slice(&9_u64.to_le_bytes());
    fs::write(tree.join("current"), current).expect("there is room");
    fs::create_dir(tree.join(next)).expect("the engine has not written it");
}

fn allow_next_list(folder: &Path) {
    for name in ["v2", "v3", "v4"] {
        let _ = fs::remove_dir(folder.join("3-5").join(name));
    }
}

fn tables(folder: &Path) -> usize {
    let tables = fs::read_dir(folder.join("3-5/tables"));
    tables.expect("each tree has it").count()
}

/// The tree goes on, and a start at any time finds it whole. Once with a folder that can be settled
/// at once, and once with one that cannot.
#[test]
fn a_flush_that_fails_when_it_is_published_costs_nothing() {
    let mut random = Random::new(7);
    for can_settle in [true, false] {
        let folder = TempFolder::new("settle");
        let trees = Trees::open(&folder.0, small()).expect("the folder is new");
        let mut writer = trees.create(GENERATION).expect("there is room");
        let mut log: Vec<Logged> = Vec::new();
        for _ in 0..2 {
            for _ in 0..20 {
                let last = (log.last()).map_or(GENERATION.sequence, |commit| commit.sequence);
                let commit = random_commit(&mut random, last);
                apply(&mut writer, &commit);
                log.push(commit);
            }
            if !writer.index().wants_flush() && tables(&folder.0) == 0 {
                assert!(writer.seal(u64::MAX));
                assert!(writer.index().flush().expect("there is room"));
            }
        }
        publish_another_list(&folder.0, &log);
        let obstacle = folder.0.join("3-5/.tmp-current");
        if !can_settle {
            fs::create_dir(&obstacle).expect("there is room");
        }
        assert!(writer.seal(u64::MAX));
        let before = tables(&folder.0);
        for _ in 0..2 {
            writer.index().flush().expect_err("there is a folder");
        }
        assert_eq!(tables(&folder.0) == before, can_settle, "only then");
        if !can_settle {
            writer.index().compact().expect_err("it is not settled");
            fs::remove_dir(&obstacle).expect("it is there");
            writer
                .index()
                .flush()
                .expect_err("it is settled, and fails");
        }
        let copy = TempFolder::new("settle-copy");
        allow_next_list(&folder.0);
        write_folder(&copy.0, &read_folder(&folder.0));
        assert!(writer.index().flush().expect("nothing hinders it"));
        assert_eq!(all_of(&writer.index().view()), content(&log));
        drop((writer, trees));
        for start in [&copy.0, &folder.0] {
            let mut writer = open(start);
            replay(&mut writer, &log);
            assert_eq!(all_of(&writer.index().view()), content(&log));
        }
    }
}
