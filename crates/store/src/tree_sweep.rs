//! The sweep of databases on disk: it walks them, a slice at a time, and has removed what has
//! expired.
//!
//! A tree has no list of what expires when. Nobody sees what has expired, so that the sweep has
//! time: it is for the room that entries take, and so that their removal stands among the changes
//! of the database. It walks only databases in which something can expire.

use crate::batch::WriteBatch;
use crate::database_id::DatabaseId;
use crate::operation::{Mode, Operation};
use crate::range::{Direction, Range};
use crate::store::Store;
use crate::sweep::SWEEP_TAG;
use crate::sweep_schedule::TreeSweepProgress;
use crate::tree::limits;
use crate::tree::{TreeError, TreeIndex};

impl Store {
    /// From when on [`Store::sweep_trees`] has something to do, by [`Store::clock_ms`]; `u64::MAX`:
    /// never, or somebody is at it.
    #[inline]
    pub fn tree_sweep_due_ms(&self) -> u64 {
        if self.follows() {
            // The leader does it.
            return u64::MAX;
        }
        self.tree_sweep_schedule().due_ms()
    }

    /// Whether it is time to sweep databases on disk. Who gets a yes does it, or takes it back with
    /// [`Store::put_off_tree_sweep`].
    pub fn begin_tree_sweep(&self, now_ms: u64) -> bool {
        if self.removals_rest(now_ms) && now_ms >= self.tree_sweep_due_ms() {
            self.put_off_tree_sweep();
            return false;
        }
        !self.follows() && self.tree_sweep_schedule().try_begin(now_ms)
    }

    /// Lets the next sweep of databases on disk begin after a pause.
    pub fn put_off_tree_sweep(&self) {
        let due_ms = self.clock_ms(0) + limits::SWEEP_PAUSE_MS;
        self.tree_sweep_schedule().set_due_ms(due_ms);
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
        let mut progress = self.tree_sweep_schedule().lock();
        let walked = self.sweep_slice(&mut progress, batch);
        let is_round = matches!(walked, Ok(true));
        let pause_ms = if is_round {
            limits::SWEEP_ROUND_MS
        } else {
            limits::SWEEP_PAUSE_MS
        };
        let due_ms = self.clock_ms(0) + pause_ms;
        self.tree_sweep_schedule().set_due_ms(due_ms);
        walked.map(drop)
    }

    /// Returns whether the walk is through with the last database.
    fn sweep_slice(
        &self,
        progress: &mut TreeSweepProgress,
        batch: &mut WriteBatch,
    ) -> Result<bool, TreeError> {
        let first = progress.database();
        let ids = self.database_ids_from(first);
        // Around the end stand those that come before.
        for &id in ids.iter().take_while(|&&id| id >= first) {
            if id != progress.database() {
                progress.go_to(id);
            }
            let Some(tree) = self.tree(id) else { continue };
            if progress.passed().is_none() && !tree.begin_expiry_walk() {
                continue;
            }
            let walked = self.sweep_tree(id, &tree, progress.passed(), batch);
            let read = batch.read_ahead();
            if let Some(last) = self.leave_out_unread(batch, read.commits) {
                // The next slice begins behind what is removed now.
                if let Some(last) = last {
                    progress.pass(last);
                }
                return read.failure.map_or(Ok(false), Err);
            }
            if walked.is_err() {
                // Nobody knows what is behind the place that could not be read.
                tree.note_expiry();
            }
            match walked.as_ref().ok().cloned().flatten() {
                Some(key) => progress.pass(key),
                None => progress.go_to(id.next()),
            }
            return walked.and(read.failure.map_or(Ok(false), Err));
        }
        progress.go_to(DatabaseId::DEFAULT);
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
