//! What the store offers to those who watch its databases.

use std::sync::Arc;

use crate::database::Durability;
use crate::database_id::DatabaseId;
use crate::feed::{ChangeSignal, ChangeWaker, DatabaseLog, WatchError, Watched, Watcher};
use crate::index::Index;
use crate::store::Store;

impl Store {
    /// Watches a database: from behind the commit `resume` on, or from behind what readers see now.
    /// With `with_previous` changes also tell what was there before, as far as that is known and
    /// from now on.
    ///
    /// The calling thread must hold no [`View`](crate::View).
    ///
    /// # Errors
    /// Why it cannot be watched from there.
    pub fn watch(
        &self,
        id: DatabaseId,
        resume: Option<u64>,
        with_previous: bool,
    ) -> Result<Watcher, WatchError> {
        // Looked for again if it was converted in between: then another one has its id.
        for _ in 0..2 {
            let database = self.find(id).ok_or(WatchError::Gone)?;
            let state = database.state.write();
            if state.dropped {
                continue;
            }
            let present = match &state.index {
                Index::Memory(_) => state.sequence,
                Index::Tree(tree) => tree.sequence(),
                Index::Remote(_) => return Err(WatchError::Elsewhere),
            };
            let is_logged = database.config.durability != Durability::Volatile;
            let log = self.log_tail().filter(|_| is_logged);
            let log = log.map(|tail| DatabaseLog {
                tail: Arc::clone(tail),
                database: id,
            });
            let feed = database.feed(self.feeds());
            return feed.enter(resume, present, with_previous, log);
        }
        Err(WatchError::Gone)
    }

    /// Returns what is kept for those who watch.
    pub fn watched(&self) -> Watched {
        self.feeds().watched()
    }

    /// Makes a signal that reaches those who wait with [`Store::wake_at_changes`].
    pub fn signal(&self) -> ChangeSignal {
        ChangeSignal::new(self.feeds())
    }

    /// Wakes whoever waits for changes of databases that are watched, if there were some.
    #[inline]
    pub(crate) fn announce_changes(&self) {
        self.feeds().announce();
    }

    /// Changes whenever a database that is watched has changed.
    pub fn changes_version(&self) -> u64 {
        self.feeds().version()
    }

    /// Has `wake` called whenever [`Store::changes_version`] has changed, until what is returned is
    /// dropped. It must not block.
    pub fn wake_at_changes(&self, wake: Arc<dyn Fn() + Send + Sync>) -> ChangeWaker {
        self.feeds().add_waker(wake)
    }
}
