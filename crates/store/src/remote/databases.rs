//! The databases on an engine elsewhere, in the catalogue of a store.

use crate::catalogue::Database;
use crate::database::{CreateError, DatabaseConfig};
use crate::database_id::DatabaseId;
use crate::index::Index;
use crate::remote_kind::RemoteIndex;
use crate::store::{Store, StoreConfig};

impl Store {
    /// A store whose databases are on an engine elsewhere; it knows none but the default one yet.
    pub(super) fn remote(
        mut config: StoreConfig,
        index: RemoteIndex,
        default_database: DatabaseConfig,
    ) -> Result<Store, CreateError> {
        default_database.check_remote()?;
        config.default_database = DatabaseConfig::default();
        let mut store = Store::new(config, false, None)?;
        store.set_remote();
        store.put_remote(DatabaseId::DEFAULT, "", default_database, index);
        Ok(store)
    }

    /// Has a database as the engine says that it is.
    pub(super) fn put_remote(
        &self,
        id: DatabaseId,
        name: &str,
        config: DatabaseConfig,
        index: RemoteIndex,
    ) {
        if let Some(known) = self.find(id)
            && known.config == config
            && *known.name == *name
        {
            let is_same = matches!(&known.state.read().index, Index::Remote(one) if *one == index);
            if !is_same {
                known.state.write().index = Index::Remote(index);
            }
            return;
        }
        let database = Database::new(name, config, Index::Remote(index));
        self.catalogue().write().put(id, database);
    }

    /// Fails if no database can be made of this name.
    pub(super) fn check_name(&self, name: &str) -> Result<(), CreateError> {
        let catalogue = self.catalogue().read();
        catalogue.check_insert(name).map(|_| ())
    }

    /// Forgets the databases that the engine has no more.
    pub(super) fn keep_remote(&self, is_there: impl Fn(DatabaseId) -> bool) {
        for info in self.databases() {
            if info.id == DatabaseId::DEFAULT || is_there(info.id) {
                continue;
            }
            if let Some(database) = self.find(info.id) {
                database.state.write().dropped = true;
            }
            // Whether or not somebody else has just removed it.
            let _ = self.catalogue().write().remove(info.id);
        }
    }
}
