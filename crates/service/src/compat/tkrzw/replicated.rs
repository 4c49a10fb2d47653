//! What records of the log mean to those who follow this server: updates of databases by index.

use api::tkrzw::ReplicatedOperation;
use store::log::{Record, RecordKind};
use store::{DatabaseId, Store};

use crate::settings::tkrzw::{TkrzwSettings, database_of};

/// Which databases of the log are those that followers know by an index.
#[derive(Debug)]
pub(super) struct ReplicatedDatabases {
    /// By index; `None`: there is none at this place of the log.
    ids: Vec<Option<DatabaseId>>,
}

/// An update as followers get it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Update<'a> {
    pub(super) index: i32,
    pub(super) operation: ReplicatedOperation,
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
}

impl ReplicatedDatabases {
    /// Those that there are now.
    pub(super) fn now(settings: &TkrzwSettings, store: &Store) -> ReplicatedDatabases {
        let databases = settings.databases.iter();
        ReplicatedDatabases {
            ids: databases
                .map(|database| database_of(&database.name, store))
                .collect(),
        }
    }

    /// Returns what a record means; `None`: nothing to followers. One of a name that was dropped
    /// and made again is followed through both.
    pub(super) fn update<'a>(
        &mut self,
        record: &Record<'a>,
        settings: &TkrzwSettings,
    ) -> Option<Update<'a>> {
        use ReplicatedOperation as O;
        let operation = match record.kind {
            RecordKind::Set => O::Set,
            RecordKind::Delete | RecordKind::Expire => O::Remove,
            RecordKind::Clear => O::Clear,
            RecordKind::DatabaseCreated => {
                *self.named(record.key, settings)?.1 = Some(record.database);
                return None;
            }
            RecordKind::DatabaseDropped => {
                let (index, id) = self.named(record.key, settings)?;
                *id = None;
                return Some(Update::clear(index));
            }
            RecordKind::Mark | RecordKind::DatabaseConverted => return None,
        };
        let is_it = |id: &Option<DatabaseId>| *id == Some(record.database);
        let index = i32::try_from(self.ids.iter().position(is_it)?).ok()?;
        Some(match operation {
            O::Clear => Update::clear(index),
            operation => Update {
                index,
                operation,
                key: record.key,
                value: record.value,
            },
        })
    }

    /// Returns the index of the database with a name, and where its id is.
    fn named(
        &mut self,
        name: &[u8],
        settings: &TkrzwSettings,
    ) -> Option<(i32, &mut Option<DatabaseId>)> {
        let mut databases = settings.databases.iter();
        let place = databases.position(|database| database.name.as_bytes() == name)?;
        Some((i32::try_from(place).ok()?, self.ids.get_mut(place)?))
    }
}

impl Update<'_> {
    /// All records of a database are removed.
    fn clear(index: i32) -> Update<'static> {
        Update {
            index,
            operation: ReplicatedOperation::Clear,
            key: &[],
            value: &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tkrzw::TkrzwDatabase;

    /// A follower that did not hear of the drop would keep what was in the database before.
    #[test]
    fn a_database_that_was_made_again_is_cleared_and_followed() {
        let settings = TkrzwSettings {
            databases: ["", "a"]
                .map(|name| TkrzwDatabase {
                    name: name.into(),
                    ..TkrzwDatabase::default()
                })
                .into(),
            ..TkrzwSettings::default()
        };
        let mut databases = ReplicatedDatabases {
            ids: vec![Some(DatabaseId::DEFAULT), Some(DatabaseId::REPLICAS)],
        };
        let mut updates = |kind, database, key: &'static [u8]| {
            let record = Record::of_key(kind, 1, database, 0, key);
            let update = databases.update(&record, &settings);
            update.map(|update| (update.index, update.operation, update.key))
        };
        use RecordKind as K;
        use ReplicatedOperation as O;
        // Any that are not the same.
        for id in [DatabaseId::BLOBS, DatabaseId::IDENTITIES] {
            assert_eq!(updates(K::DatabaseCreated, id, b"a"), None);
            let key = &b"k"[..];
            assert_eq!(updates(K::Set, id, b"k"), Some((1, O::Set, key)));
            assert_eq!(updates(K::Delete, id, b"k"), Some((1, O::Remove, key)));
            assert_eq!(updates(K::Expire, id, b"k"), Some((1, O::Remove, key)));
            assert_eq!(updates(K::Clear, id, b""), Some((1, O::Clear, &b""[..])));
            let dropped = updates(K::DatabaseDropped, id, b"a");
            assert_eq!(dropped, Some((1, O::Clear, &b""[..])));
            assert_eq!(updates(K::Set, id, b"k"), None, "it is another one");
        }
        let other = DatabaseId::REPLICAS;
        assert_eq!(updates(K::DatabaseCreated, other, b"other"), None);
        assert_eq!(updates(K::Set, other, b"k"), None);
        assert_eq!(updates(K::DatabaseDropped, other, b"other"), None);
        assert_eq!(updates(K::Mark, other, b""), None);
        let of_default = Some((0, O::Set, &b"k"[..]));
        assert_eq!(updates(K::Set, DatabaseId::DEFAULT, b"k"), of_default);
    }
}
