//! A writer, readers, and the threads that flush and compact, all at once.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use parking_lot::Mutex;

use super::*;
use crate::tree::{Keeper, KeeperEvent};

const KEYS: u64 = 16;

fn commit(writer: &mut TreeWriter, sequence: u64) {
    for key in 0..KEYS {
        let key = key.to_be_bytes();
        // Each commit removes one key and writes all others.
        if u64::from_be_bytes(key) == sequence % KEYS {
            writer.remove(sequence, &key);
        } else {
            writer.put(&Entry {
                key: &key,
                value: Value::Inline(&[sequence as u8; 50]),
                version: sequence,
                expires_ms: 0,
            });
        }
    }
    writer.end_commit(sequence);
}

/// A view shows one commit as a whole, however long it is held.
fn check_view(view: &TreeView) {
    let sequence = view.sequence();
    for key in 0..KEYS {
        let key_bytes = key.to_be_bytes();
        let found = view.find(&key_bytes).expect("the tree is whole");
        let expected = (key != sequence % KEYS).then_some(sequence);
        assert_eq!(
            found.map(|entry| entry.version),
            expected,
            "key {key} at {sequence}"
        );
    }
    let versions: Vec<u64> = all_of(view).into_values().map(|entry| entry.1).collect();
    assert_eq!(versions, vec![sequence; KEYS as usize - 1]);
}

#[test]
fn views_show_whole_commits_while_everything_moves() {
    let folder = TempFolder::new("threads");
    let trees = Trees::open(&folder.0, small()).expect("the folder is new");
    let mut writer = trees.create(GENERATION).expect("there is room");
    let failed = Arc::new(Mutex::new(Vec::new()));
    let told = failed.clone();
    let keeper = Keeper::start(Arc::new(move |event: KeeperEvent| told.lock().push(event)));
    let keeper = keeper.expect("there is room for two threads");
    keeper.add(writer.index());
    commit(&mut writer, 10);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            let index = writer.index().clone();
            let done = &done;
            scope.spawn(move || {
                while !done.load(Ordering::Acquire) {
                    let view = index.view();
                    check_view(&view);
                    let later = index.view();
                    assert!(later.sequence() >= view.sequence());
                    check_view(&view);
                }
            });
        }
        for sequence in 11..6000 {
            commit(&mut writer, sequence);
            if writer.wants_seal() && writer.seal(sequence) {
                keeper.call();
            }
        }
        done.store(true, Ordering::Release);
    });
    drop(keeper);
    assert!(failed.lock().is_empty(), "{:?}", failed.lock());
    while writer.index().flush().expect("there is room") {}
    assert!(writer.index().statistics().tables > 0);
    check_view(&writer.index().view());
    // Old versions of the set of tables go when nobody reads them any more.
    assert!(lsm_tree::AbstractTree::version_free_list_len(&writer.index().shared.tree) < 10);
}
