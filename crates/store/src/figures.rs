//! Figures of the databases of a store.

use crate::database_id::DatabaseId;
use crate::index::Index;
use crate::store::Store;
use crate::view::{IndexView, Statistics};

impl Store {
    /// Figures of a database of either kind, without a look at the device. `None`: there is no such
    /// database (any more).
    pub fn statistics(&self, id: DatabaseId) -> Option<Statistics> {
        match self.index_view(id) {
            IndexView::Memory(view) => Some(view.statistics()),
            IndexView::Disk(tree) => Some(Statistics {
                entries: tree.entries(),
                content_bytes: 0,
                expiring: 0,
                memory_bytes: tree.memtable_bytes(),
                disk_bytes: tree.disk_bytes(),
                sequence: tree.sequence(),
            }),
            IndexView::Remote(_) => self.remote_statistics(id),
            IndexView::Gone => None,
        }
    }

    /// Figures of a database on an engine elsewhere, as that has last said.
    fn remote_statistics(&self, id: DatabaseId) -> Option<Statistics> {
        let database = self.find(id)?;
        let state = database.state.read();
        let Index::Remote(index) = &state.index else {
            return None;
        };
        Some(Statistics {
            entries: index.entries.unwrap_or(0),
            content_bytes: 0,
            expiring: 0,
            memory_bytes: 0,
            disk_bytes: index.disk_bytes.unwrap_or(0),
            sequence: 0,
        })
    }
}
