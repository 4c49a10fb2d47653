//! Trees against a model: a list of commits, and what they leave.

mod block_sizes;
mod crash;
mod known;
mod merge;
mod property;
mod release;
mod settle;
mod threads;
mod unmade;
mod walk;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use testkit::Random;

use super::{Generation, InMemory, TreeConfig, TreeView, TreeWriter, Trees};
use crate::database_id::DatabaseId;
use crate::range::{Direction, Range, ScanEnd};
use crate::value::{Entry, Value};
use std::ops::ControlFlow;

/// A folder that goes with the value.
pub(super) struct TempFolder(pub(super) PathBuf);

impl TempFolder {
    pub(super) fn new(name: &str) -> TempFolder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("pelton-tree-{name}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("there is room");
        TempFolder(path)
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(super) const GENERATION: Generation = Generation {
    database: DatabaseId(3),
    sequence: 5,
};

/// Small, so that much happens.
pub(super) fn small() -> TreeConfig {
    TreeConfig {
        memtable_bytes: 4096,
        table_bytes: 8192,
        cache_bytes: 64 * 1024,
        open_files: 16,
        ..TreeConfig::default()
    }
}

/// A commit, as the log has it.
#[derive(Clone, Debug)]
pub(super) struct Logged {
    pub(super) sequence: u64,
    /// Key, and value with expiry; `None`: it is removed.
    pub(super) changes: BTreeMap<Vec<u8>, Option<(Vec<u8>, u64)>>,
}

/// Value, version, expiry, by key.
pub(super) type Content = BTreeMap<Vec<u8>, (Vec<u8>, u64, u64)>;

/// What a log leaves.
pub(super) fn content(log: &[Logged]) -> Content {
    let mut content = Content::new();
    for commit in log {
        for (key, change) in &commit.changes {
            match change {
                Some((value, expires_ms)) => {
                    content.insert(key.clone(), (value.clone(), commit.sequence, *expires_ms));
                }
                None => drop(content.remove(key)),
            }
        }
    }
    content
}

pub(super) fn apply(writer: &mut TreeWriter, commit: &Logged) {
    for (key, change) in &commit.changes {
        match change {
            Some((value, expires_ms)) => writer.put(&Entry {
                key,
                value: Value::Inline(value),
                version: commit.sequence,
                expires_ms: *expires_ms,
            }),
            None => writer.remove(commit.sequence, key),
        }
    }
    writer.end_commit(commit.sequence);
}

/// Brings everything to the device.
pub(super) fn flush_all(writer: &mut TreeWriter) {
    assert!(writer.seal(u64::MAX) && writer.index().flush().expect("there is room"));
}

/// Gives a tree that was opened what it lacks.
pub(super) fn replay(writer: &mut TreeWriter, log: &[Logged]) {
    let persisted = writer.index().persisted_sequence();
    for commit in log.iter().filter(|commit| commit.sequence > persisted) {
        apply(writer, commit);
    }
}

pub(super) fn open(folder: &Path) -> TreeWriter {
    let trees = Trees::open(folder, small()).expect("it is a folder of trees");
    let opened = trees.open_generation(GENERATION);
    opened.expect("the tree is whole")
}

/// Everything in a view, in order.
pub(super) fn all_of(view: &TreeView) -> Content {
    let mut found = Content::new();
    let mut rest = Range::ALL;
    loop {
        let end = view.scan(&rest, Direction::Forward, 0, u32::MAX, &mut |entry| {
            let rest = (entry.value.to_vec(), entry.version, entry.expires_ms);
            assert!(found.insert(entry.key.to_vec(), rest).is_none());
            ControlFlow::Continue(())
        });
        match end.expect("the tree is whole") {
            ScanEnd::BudgetSpent(passed) => rest = rest.beyond(passed, Direction::Forward),
            end => {
                assert_eq!(end, ScanEnd::Complete);
                return found;
            }
        }
    }
}

pub(super) fn random_key(random: &mut Random) -> Vec<u8> {
    match random.below(12) {
        0 => vec![0; random.below(4)],
        1 => vec![random.below(4) as u8; 1 + random.below(3)],
        _ => format!("key-{:03}", random.below(150)).into_bytes(),
    }
}

/// A commit behind the last one.
pub(super) fn random_commit(random: &mut Random, last: u64) -> Logged {
    let mut changes = BTreeMap::new();
    for _ in 0..random.below(15) {
        let change = (!random.once_in(3)).then(|| {
            let len = if random.once_in(40) {
                20_000
            } else {
                random.below(60)
            };
            let value = vec![random.number() as u8; len];
            (value, random.pick(&[0, 0, 500, 1500]))
        });
        changes.insert(random_key(random), change);
    }
    Logged {
        sequence: last + 1 + random.below(3) as u64,
        changes,
    }
}

/// What memtables say agrees with what there is.
pub(super) fn check_in_memory(writer: &TreeWriter, key: &[u8], content: &Content) {
    match writer.find_in_memory(key) {
        InMemory::Unknown => {}
        InMemory::Removed => assert_eq!(content.get(key), None),
        InMemory::Entry(value) => {
            let entry = value.entry(key);
            let rest = (entry.value.to_vec(), entry.version, entry.expires_ms);
            assert_eq!(content.get(key), Some(&rest));
        }
    }
}
