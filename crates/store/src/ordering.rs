//! What the store offers to those who read keys in their order.

use crate::database_id::DatabaseId;
use crate::index::Index;
use crate::limits;
use crate::store::Store;

impl Store {
    /// Puts more keys of a database in memory in order, a few at a time for as long as `may_go_on`
    /// says. Returns whether all are, or there is no such database in memory (any more).
    pub fn order_keys(&self, id: DatabaseId, may_go_on: &mut dyn FnMut() -> bool) -> bool {
        let Some(database) = self.find(id) else {
            return true;
        };
        let mut state = database.state.write();
        let Index::Memory(index) = &mut state.index else {
            return true;
        };
        while !index.order_some(limits::KEYS_ORDERED_AT_ONCE) {
            if !may_go_on() {
                return false;
            }
        }
        true
    }
}
