//! Sweeping: the removal of entries whose time has come.
//!
//! Nobody sees such an entry any more, so nobody waits for it to be swept: it is done for the
//! memory that it takes, and so that the removal stands among the changes of the database. What is
//! to be removed is found in a view and removed by commits like any other, which look again: a key
//! that was written meanwhile stays.

use crate::batch::WriteBatch;
use crate::database::Durability;
use crate::database_id::DatabaseId;
use crate::limits;
use crate::memory::PassedExpiry;
use crate::operation::{Mode, Operation};
use crate::store::Store;
use crate::sweep_schedule::SweepRounds;
use crate::view::View;

/// The tag of the commits that sweep. Nobody waits for their outcomes.
pub const SWEEP_TAG: u64 = u64::MAX;

impl Store {
    /// From when on [`Store::sweep`] has something to do, by [`Store::clock_ms`]; `u64::MAX` if no
    /// entry has an expiry.
    #[inline]
    pub fn sweep_due_ms(&self) -> u64 {
        if self.follows() {
            // The leader does it.
            return u64::MAX;
        }
        self.sweep_schedule().due_ms()
    }

    /// If it is time, puts commits into `batch` that remove entries which have expired: at most
    /// [`SWEEP_KEYS`](limits::SWEEP_KEYS), and if that is not all, it is soon due again. Returns
    /// how many.
    ///
    /// One thread at a time sweeps; for the others there is nothing to do. The calling thread must
    /// hold no [`View`]. Should the commits come to nothing, the entries are found again some time
    /// later.
    pub fn sweep(&self, now_ms: u64, batch: &mut WriteBatch) -> usize {
        self.feeds().tend(now_ms);
        if now_ms < self.sweep_due_ms() {
            return 0;
        }
        let schedule = self.sweep_schedule();
        let Some(mut rounds) = schedule.try_begin() else {
            return 0;
        };
        let mut sweep = DatabaseSweep {
            store: self,
            now_ms,
            batch,
            keys_left: limits::SWEEP_KEYS,
            due_ms: u64::MAX,
        };
        for id in self.database_ids_from(rounds.turn()) {
            if !sweep.database(id, &mut rounds) {
                // The others come first the next time.
                rounds.set_turn(id.next());
                break;
            }
        }
        schedule.begin_by(sweep.due_ms);
        limits::SWEEP_KEYS - sweep.keys_left
    }
}

/// One sweep.
struct DatabaseSweep<'a> {
    store: &'a Store,
    now_ms: u64,
    batch: &'a mut WriteBatch,
    keys_left: usize,
    /// When the next one is due.
    due_ms: u64,
}

impl DatabaseSweep<'_> {
    /// Sweeps one database; returns whether that was all of it.
    fn database(&mut self, id: DatabaseId, rounds: &mut SweepRounds) -> bool {
        let (Some(database), Some(view)) = (self.store.find(id), self.store.view(id)) else {
            rounds.take_passed(id);
            return true;
        };
        let has_log = database.config.durability != Durability::Volatile;
        if has_log && self.store.removals_rest(self.now_ms) {
            self.due_ms = (self.due_ms).min(self.now_ms + limits::SWEEP_DELAY_MS);
            return true;
        }
        let after = rounds.take_passed(id);
        let keys_before = self.keys_left;
        let last = self.push(id, &view, after.as_ref());
        let behind = last.as_ref().or(after.as_ref());
        if view.expired_after(self.now_ms, behind).next().is_some() {
            // A durable database takes its time: more of this would only wait there.
            self.due_ms = self.due_ms.min(self.now_ms + u64::from(has_log));
            if let Some(behind) = last.or(after) {
                rounds.set_passed(id, behind);
            }
            return false;
        }
        let is_clean = keys_before == self.keys_left && after.is_none();
        let next_ms = match view.next_expiry_ms(self.now_ms) {
            // What is on its way is looked at again, in case it does not arrive.
            _ if !is_clean => self.now_ms,
            Some(expires_ms) => expires_ms,
            None => return true,
        };
        let due_ms = next_ms.saturating_add(limits::SWEEP_DELAY_MS);
        self.due_ms = self.due_ms.min(due_ms);
        true
    }

    /// Puts removals into the batch; returns the last entry of these.
    fn push(
        &mut self,
        id: DatabaseId,
        view: &View<'_>,
        after: Option<&PassedExpiry>,
    ) -> Option<PassedExpiry> {
        let limits = self.store.limits(id).unwrap_or_default();
        let mut expired = view.expired_after(self.now_ms, after).peekable();
        let mut last = None;
        while self.keys_left > 0 && expired.peek().is_some() {
            let mut commit = self.batch.begin(SWEEP_TAG, id, Mode::Independent);
            let mut pushed = 0;
            while pushed < self.keys_left.min(limits.commit_operations)
                && let Some(&(expires_ms, key)) = expired.peek()
                && commit.push(&Operation::Expire { key }).is_ok()
            {
                expired.next();
                pushed += 1;
                last = Some((expires_ms, key));
            }
            if pushed == 0 {
                debug_assert!(false, "a key that was stored fits into a commit");
                break;
            }
            commit.submit();
            self.keys_left -= pushed;
        }
        last.map(|(expires_ms, key)| (expires_ms, key.into()))
    }
}
