//! A writer, readers, and the threads that flush and compact, all at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;

use parking_lot::Mutex;

use super::*;
use crate::read_view::ReadView;
use crate::store::{Store, StoreConfig};
use crate::tree::{Fetch, Fetched, Keeper, KeeperEvent, ReadPlan, TreeIndex};

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
    let keeper = Keeper::start(Arc::new(move |event: KeeperEvent| {
        if !matches!(event, KeeperEvent::Worked) {
            told.lock().push(event);
        }
    }));
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
    assert!(
        lsm_tree::AbstractTree::version_free_list_len(
            writer.index().shared.engine.get().expect("it is made")
        ) < 10
    );
}

/// Looks at all keys but the one that the newest commits may lack, once without a reader and once
/// with one. Answers the sequences of what it saw.
fn look(index: &TreeIndex, store: &Store) -> [Option<u64>; 2] {
    let mut plan = ReadPlan::default();
    for key in 0..KEYS {
        plan.begin(key, &key.to_be_bytes());
        plan.key(&key.to_be_bytes());
    }
    let before = index.sequence();
    let cached = Fetched::from_cache(index, &mut plan, store);
    let rest = (!plan.is_empty()).then(|| {
        let fetched = Fetch::new(index.clone(), &mut plan).run(store, usize::MAX);
        fetched.expect("it may need all")
    });
    [cached, rest].map(|fetched| {
        let fetched = fetched?;
        for call in fetched.calls() {
            let shown = ReadView::fetched(&call).expect("the tree is whole");
            let found = shown.get(call.kept(), 0, 0).expect("it was planned");
            let (version, sequence) = (found.map(|entry| entry.version), shown.sequence());
            assert!(sequence >= before, "older than what was there before");
            let expected = (call.tag() != sequence % KEYS).then_some(sequence);
            assert_eq!(version, expected, "key {} at {sequence}", call.tag());
        }
        Some(fetched.calls().count() as u64)
    })
}

/// What is served without a reader is of one commit, and never older than what was visible before.
#[test]
fn nothing_old_is_served_at_once() {
    let folder = TempFolder::new("at-once");
    let trees = Trees::open(&folder.0, small()).expect("the folder is new");
    let mut writer = trees.create(GENERATION).expect("there is room");
    let store = Store::in_memory(StoreConfig::new(1)).expect("the limits make sense");
    commit(&mut writer, 10);
    let done = AtomicBool::new(false);
    let (looks, served) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let readers: [_; 3] = std::array::from_fn(|_| {
            let index = writer.index().clone();
            let (done, looks, served, store) = (&done, &looks, &served, &store);
            scope.spawn(move || {
                while !done.load(Ordering::Acquire) {
                    let [cached, _] = look(&index, store);
                    served.fetch_add(cached.unwrap_or(0), Ordering::Relaxed);
                    looks.fetch_add(1, Ordering::Release);
                }
            })
        });
        for sequence in 11..3000 {
            commit(&mut writer, sequence);
            // Some commits follow each other at once, some come when all have been read.
            let until = looks.load(Ordering::Acquire) + sequence % 8;
            // One that has ended has seen something wrong, and says so at the end.
            while looks.load(Ordering::Acquire) < until
                && !readers.iter().any(|one| one.is_finished())
            {
                thread::yield_now();
            }
        }
        done.store(true, Ordering::Release);
    });
    assert!(served.load(Ordering::Relaxed) > 1000, "{served:?}");
}
