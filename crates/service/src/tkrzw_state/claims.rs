//! The keys that calls are removing as the first of their database.
//!
//! A call of PopFirst takes the first key that no other is about to remove. So any number of them
//! come through at once, each with a record of its own, where all would otherwise try for the same
//! one.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use store::DatabaseId;

/// The keys that are claimed, by database: at most one for each call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims(Arc<Mutex<ClaimTable>>);

type ClaimTable = HashMap<DatabaseId, HashSet<Arc<[u8]>>>;

/// A key that is claimed until this is dropped.
#[derive(Debug)]
pub(crate) struct KeyClaim {
    claims: Claims,
    database: DatabaseId,
    key: Arc<[u8]>,
}

impl Claims {
    /// Claims a key; `None`: another call has it.
    pub(crate) fn claim(&self, database: DatabaseId, key: &[u8]) -> Option<KeyClaim> {
        let mut table = self.lock();
        let keys = table.entry(database).or_default();
        if keys.contains(key) {
            return None;
        }
        let key: Arc<[u8]> = key.into();
        keys.insert(Arc::clone(&key));
        Some(KeyClaim {
            claims: self.clone(),
            database,
            key,
        })
    }

    fn lock(&self) -> MutexGuard<'_, ClaimTable> {
        // Nothing under this lock can panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many keys are claimed.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().values().map(HashSet::len).sum()
    }
}

impl KeyClaim {
    /// Returns the key.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }
}

impl Drop for KeyClaim {
    fn drop(&mut self) {
        let mut table = self.claims.lock();
        if let Some(keys) = table.get_mut(&self.database) {
            keys.remove(&self.key);
            if keys.is_empty() {
                table.remove(&self.database);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_claimed_once_at_a_time_and_nothing_is_left_behind() {
        let claims = Claims::default();
        let (one, other) = (DatabaseId::DEFAULT, DatabaseId::BLOBS);
        for _ in 0..2 {
            let first = claims.claim(one, b"k").expect("nobody has it");
            assert!(claims.claim(one, b"k").is_none());
            let others = [
                claims.claim(one, b"").expect("nobody has it"),
                claims.claim(other, b"k").expect("nobody has it"),
            ];
            assert_eq!((first.key(), claims.len()), (&b"k"[..], 3));
            drop(first);
            assert!(claims.claim(one, b"k").is_some());
            drop(others);
            assert!(claims.lock().is_empty(), "databases come and go");
        }
    }
}
