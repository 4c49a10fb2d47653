//! Tokens that are hashed under another key than that of the data folder: the file with its secret
//! was lost, or is that of another folder. None of them is good.

use std::sync::Arc;

use store::{Condition, DatabaseId, Mode, ReadView, Store, WriteBatch};

use super::Identities;
use super::record::{CHANGES_KEY, IdentityRecord, StoredIdentities, put_entry};

impl Identities {
    /// Returns how many identities have tokens that are hashed under another key than this.
    pub fn of_other_key(&self, store: &Store) -> usize {
        let stored = self.stored(store);
        let is_other =
            !stored.key_check.is_empty() && *stored.key_check != self.key().check_value();
        match is_other {
            true => invalidated(&stored).count(),
            false => 0,
        }
    }

    /// Returns the commits after which all of these are known as not good, until they are rotated.
    /// They may be carried out in part, and then again.
    pub fn invalidate(&self, store: &Store) -> WriteBatch {
        let stored = self.stored(store);
        let mut batch = store.write_batch();
        for record in invalidated(&stored) {
            put(
                &mut batch,
                record.identity.name().as_bytes(),
                &record.encode(),
            );
        }
        // The last one: as long as it is not there, it is as if nothing was done.
        put(&mut batch, CHANGES_KEY, &self.key().check_value());
        batch
    }

    /// Returns what the store has of identities.
    pub(super) fn stored(&self, store: &Store) -> StoredIdentities {
        match store.view(DatabaseId::IDENTITIES) {
            Some(view) => self.read(&ReadView::memory(&view)).stored().clone(),
            None => StoredIdentities::default(),
        }
    }
}

fn invalidated(stored: &StoredIdentities) -> impl Iterator<Item = IdentityRecord> + '_ {
    stored.records.iter().filter_map(|record| {
        let identity = record.identity.invalidated()?;
        Some(IdentityRecord {
            identity: Arc::new(identity),
            ..*record
        })
    })
}

fn put(batch: &mut WriteBatch, key: &[u8], value: &[u8]) {
    let mut commit = batch.begin(0, DatabaseId::IDENTITIES, Mode::Atomic);
    let pushed = commit.push(&put_entry(key, value, Condition::None));
    debug_assert_eq!(pushed, Ok(()), "it was there before");
    commit.submit();
}
