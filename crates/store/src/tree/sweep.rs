//! The sweep of databases on disk: it walks them, a slice at a time, and has removed what has
//! expired.
//!
//! A tree has no list of what expires when. Nobody sees what has expired, so that the sweep has
//! time: it is for the room that entries take, and so that their removal stands among the changes
//! of the database. It walks only databases in which something can expire.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::error::TreeError;
use super::index::TreeIndex;
use super::limits;
use crate::batch::WriteBatch;
use crate::catalogue::DatabaseId;
use crate::operation::{Mode, Operation};
use crate::range::{Direction, Range};
use crate::store::Store;
use crate::sweep::SWEEP_TAG;

/// When to walk on, and where.
#[derive(Debug)]
pub(crate) struct TreeSweep {
    due_ms: AtomicU64,
    /// Held by the one who walks.
    place: Mutex<Place>,
}

/// How far the walk has come.
#[derive(Debug)]
struct Place {
    database: DatabaseId,
    /// The key that it has passed there; `None`: it has not begun with the database.
    passed: Option<Box<[u8]>>,
}

impl TreeSweep {
    /// Due at once, if there can be databases on disk: what was opened may have anything in it.
    pub(crate) fn new(has_trees: bool) -> TreeSweep {
        TreeSweep {
            due_ms: AtomicU64::new(if has_trees { 0 } else { u64::MAX }),
            place: Mutex::new(Place {
                database: DatabaseId::DEFAULT,
                passed: None,
            }),
        }
    }
}

impl Store {
    /// From when on [`Store::sweep_trees`] has something to do, by [`Store::clock_ms`]; `u64::MAX`:
    /// never, or somebody is at it.
    #[inline]
    pub fn tree_sweep_due_ms(&self) -> u64 {
        self.tree_sweep().due_ms.load(Ordering::Relaxed)
    }

    /// Whether it is time to sweep databases on disk. Who gets a yes does it, or takes it back with
    /// [`Store::put_off_tree_sweep`].
    pub fn begin_tree_sweep(&self, now_ms: u64) -> bool {
        let due_ms = self.tree_sweep_due_ms();
        let (taken, order) = (u64::MAX, Ordering::Relaxed);
        now_ms >= due_ms
            && (self.tree_sweep().due_ms)
                .compare_exchange(due_ms, taken, order, order)
                .is_ok()
    }

    /// Lets the next sweep of databases on disk begin after a pause.
    pub fn put_off_tree_sweep(&self) {
        let due_ms = self.clock_ms(0) + limits::SWEEP_PAUSE_MS;
        self.tree_sweep().due_ms.store(due_ms, Ordering::Relaxed);
    }

    /// Walks a slice of the databases on disk, and puts commits into `batch`, which is empty, that
    /// remove what has expired there, with what they must know: on a thread that may wait for the
    /// device. Sets when it is due again. What finds no room ([`ReadAhead`](crate::ReadAhead))
    /// comes with the next slice.
    ///
    /// # Errors
    /// If a tree could not be read. The walk goes on: with the next database if it was the walk
    /// that failed.
    pub fn sweep_trees(&self, batch: &mut WriteBatch) -> Result<(), TreeError> {
        let mut place = self.tree_sweep().place.lock();
        let walked = self.sweep_slice(&mut place, batch);
        let is_round = matches!(walked, Ok(true));
        let pause_ms = if is_round {
            limits::SWEEP_ROUND_MS
        } else {
            limits::SWEEP_PAUSE_MS
        };
        let due_ms = self.clock_ms(0) + pause_ms;
        self.tree_sweep().due_ms.store(due_ms, Ordering::Relaxed);
        walked.map(drop)
    }

    /// Returns whether the walk is through with the last database.
    fn sweep_slice(&self, place: &mut Place, batch: &mut WriteBatch) -> Result<bool, TreeError> {
        let ids = self.database_ids_from(place.database);
        let first = place.database;
        // Around the end stand those that come before.
        for &id in ids.iter().take_while(|&&id| id >= first) {
            if id != place.database {
                (place.database, place.passed) = (id, None);
            }
            let Some(tree) = self.tree(id) else { continue };
            if place.passed.is_none() && !tree.begin_expiry_walk() {
                continue;
            }
            let walked = self.sweep_tree(id, &tree, place.passed.as_deref(), batch);
            let read = batch.read_ahead();
            if let Some(last) = self.leave_out_unread(batch, read.commits) {
                // The next slice begins behind what is removed now.
                place.passed = last.or(place.passed.take());
                return read.failure.map_or(Ok(false), Err);
            }
            place.passed = walked.as_ref().ok().cloned().flatten();
            if walked.is_err() {
                // Nobody knows what is behind the place that could not be read.
                tree.shared.note_expiry();
            }
            if place.passed.is_none() {
                place.database = id.next();
            }
            return walked.and(read.failure.map_or(Ok(false), Err));
        }
        (place.database, place.passed) = (DatabaseId::DEFAULT, None);
        Ok(true)
    }

    /// Takes the commits from the given one on out of a batch, for which there was no room to read
    /// what they must know. Returns the last key that stays in it, if there is one; `None`: there
    /// was room for all.
    fn leave_out_unread(&self, batch: &mut WriteBatch, read: usize) -> Option<Option<Box<[u8]>>> {
        if read == batch.len() {
            return None;
        }
        batch.split_off(read, &mut self.write_batch());
        Some(batch.last_key().map(Into::into))
    }

    /// Walks a slice of one database. Returns the key that it has passed; `None`: that was the end.
    fn sweep_tree(
        &self,
        id: DatabaseId,
        tree: &TreeIndex,
        passed: Option<&[u8]>,
        batch: &mut WriteBatch,
    ) -> Result<Option<Box<[u8]>>, TreeError> {
        let range = passed.map_or(Range::ALL, |key| Range::ALL.beyond(key, Direction::Forward));
        let view = tree.view();
        let now_ms = self.clock_ms(0);
        let mut expired = Vec::new();
        let passed = view.expired(&range, now_ms, limits::SWEEP_ROWS, &mut |key, bytes| {
            expired.push((key.to_vec(), bytes));
        })?;
        let most = self.limits(id).unwrap_or_default().commit_operations.max(1);
        let mut rest = &expired[..];
        while !rest.is_empty() {
            let (keys, others) =
                rest.split_at(commit_of(rest, most.min(crate::limits::SWEEP_KEYS)));
            let mut commit = batch.begin(SWEEP_TAG, id, Mode::Independent);
            let pushed = keys
                .iter()
                .all(|(key, _)| commit.push(&Operation::Expire { key }).is_ok());
            debug_assert!(pushed, "keys that were stored fit into a commit");
            commit.submit();
            rest = others;
        }
        Ok(passed.map(Into::into))
    }
}

/// How many of some entries, with their bytes, one commit removes: at least one, and as many as may
/// be read for it.
fn commit_of(entries: &[(Vec<u8>, usize)], most: usize) -> usize {
    let mut bytes = 0;
    let fits = |(_, more): &&(Vec<u8>, usize)| {
        bytes += more;
        bytes <= limits::SWEEP_COMMIT_BYTES
    };
    entries.iter().take(most).take_while(fits).count().max(1)
}
