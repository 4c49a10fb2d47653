//! What keeps writes from a database while it is converted.

use std::sync::{Arc, Weak};

use crate::database_id::DatabaseId;

/// Keeps writes from a database until it is dropped.
#[derive(Debug, Default)]
pub(in crate::durable) struct Freeze(Arc<()>);

/// A database to which nothing is written for as long as somebody holds the other end.
#[derive(Debug)]
pub(super) struct Frozen {
    id: DatabaseId,
    holder: Weak<()>,
}

impl Freeze {
    /// Returns the end of the one who writes.
    pub(super) fn of(&self, id: DatabaseId) -> Frozen {
        Frozen {
            id,
            holder: Arc::downgrade(&self.0),
        }
    }
}

impl Frozen {
    /// Returns the database, while nothing is written to it.
    pub(super) fn id(&self) -> Option<DatabaseId> {
        (self.holder.strong_count() > 0).then_some(self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_frozen_until_the_freeze_is_dropped() {
        for _ in 0..2 {
            let freeze = Freeze::default();
            let frozen = freeze.of(DatabaseId::DEFAULT);
            assert_eq!(frozen.id(), Some(DatabaseId::DEFAULT));
            drop(freeze);
            assert_eq!(frozen.id(), None);
        }
    }
}
