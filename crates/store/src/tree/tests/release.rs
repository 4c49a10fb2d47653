//! A memtable that was flushed is freed as soon as nobody can read in it.

use super::{GENERATION, TempFolder, small};
use crate::tree::{TreeWriter, Trees};
use crate::value::{Entry, Value};

fn put(writer: &mut TreeWriter, sequence: u64) {
    let (key, value) = (sequence.to_be_bytes(), [7; 1000]);
    writer.put(&Entry {
        key: &key,
        value: Value::Inline(&value),
        version: sequence,
        expires_ms: 0,
    });
    writer.end_commit(sequence);
}

/// The engine keeps the version before a flush for views of the last commit, and with it the
/// memtable that was flushed.
#[test]
fn a_flushed_memtable_is_free_when_a_commit_was_made_and_no_older_view_is_left() {
    let folder = TempFolder::new("release");
    let trees = Trees::open(&folder.0, small()).expect("there is room");
    let mut writer = trees.create(GENERATION).expect("there is room");
    let index = writer.index().clone();
    let mut sequence = GENERATION.sequence;
    for round in 0..3 {
        for _ in 0..4 {
            sequence += 1;
            put(&mut writer, sequence);
        }
        let full_bytes = index.held_bytes();
        assert!(full_bytes > 4_000);
        assert!(writer.seal(sequence));
        assert!(!index.wants_release());
        let view = (round == 1).then(|| index.view());
        assert!(index.flush().expect("there is room"));
        assert_eq!(
            index.held_bytes(),
            full_bytes,
            "the last commit is read in it"
        );
        assert!(!index.wants_release(), "no commit was made since");
        assert_eq!(index.memtable_bytes(), 0, "it is in a table");
        assert!(!index.flush().expect("there is nothing to do"));
        sequence += 1;
        put(&mut writer, sequence);
        if let Some(view) = view {
            assert!(!index.wants_release(), "a view reads in it");
            assert!(!index.flush().expect("there is nothing to do"));
            assert!(index.held_bytes() > full_bytes);
            let key = (sequence - 1).to_be_bytes();
            assert!(view.find(&key).expect("it is well").is_some());
        }
        assert!(index.wants_release());
        assert!(index.flush().expect("it is in a table"), "it is freed");
        assert!(!index.wants_release());
        assert_eq!(index.held_bytes(), writer.active_bytes());
        assert!(writer.active_bytes() < 2_000);
        for number in GENERATION.sequence + 1..=sequence {
            let found = index.view().find_owned(&number.to_be_bytes());
            assert!(found.expect("it is well").is_some());
        }
    }
}
