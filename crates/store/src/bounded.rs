//! Databases that keep no more than so much, and drop what was not used for longest.

use crate::cache::{CacheBounds, CacheUses};
use crate::database_id::DatabaseId;
use crate::store::Store;

impl Store {
    /// Has an empty volatile database keep no more than this. Returns whether it is one.
    pub fn bound_cache(&self, id: DatabaseId, bounds: CacheBounds) -> bool {
        let Some(database) = self.find(id).filter(|one| one.is_volatile()) else {
            return false;
        };
        let mut state = database.state.write();
        let is_empty = state.index.memory().len() == 0;
        if is_empty {
            state.cache = Some(Box::new(CacheUses::new(bounds)));
        }
        is_empty
    }

    /// Returns what a database keeps at most, if it drops what is beyond that.
    pub fn cache_bounds(&self, id: DatabaseId) -> Option<CacheBounds> {
        let database = self.find(id)?;
        let state = database.state.read();
        state.cache.as_ref().map(|cache| cache.bounds())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::StandingClock;
    use crate::operation::{Condition, Expiry, Mode, Operation};
    use crate::outcome::Outcomes;
    use crate::store::StoreConfig;

    const BOUNDS: CacheBounds = CacheBounds {
        entries: 10,
        memory_bytes: 1_000,
    };

    /// A database with bounds, and what its keys are by now.
    struct Cached {
        store: Store,
        committer: crate::VolatileCommitter,
    }

    impl Cached {
        fn new(bounds: CacheBounds) -> Cached {
            let store = Store::in_memory(StoreConfig::new(1)).expect("the limits make sense");
            assert!(store.bound_cache(DatabaseId::DEFAULT, bounds));
            assert_eq!(store.cache_bounds(DatabaseId::DEFAULT), Some(bounds));
            let committer = store.committer();
            Cached { store, committer }
        }

        fn commit(&mut self, operations: &[Operation<'_>]) {
            let mut batch = self.store.write_batch();
            let mut commit = batch.begin(0, DatabaseId::DEFAULT, Mode::Independent);
            for operation in operations {
                commit.push(operation).expect("it fits");
            }
            commit.submit();
            let mut outcomes = Outcomes::new();
            drop((self.committer).run(&mut batch, &mut StandingClock, &mut outcomes));
            let view = self.store.view(DatabaseId::DEFAULT).expect("it is there");
            let bytes = view.verify();
            assert_eq!(view.statistics().memory_bytes, bytes);
            assert_eq!(self.store.memory_bytes(), bytes);
            let state = self.store.find(DatabaseId::DEFAULT).expect("it is there");
            drop(view);
            let state = state.state.read();
            let cache = state.cache.as_ref().expect("it has bounds");
            assert_eq!(cache.len(), state.index.memory().len());
        }

        fn put(&mut self, key: &str, value: &[u8]) {
            self.commit(&[put(key.as_bytes(), value)]);
        }

        /// The keys that are there, of those that are letters.
        fn keys(&self) -> String {
            let view = self.store.view(DatabaseId::DEFAULT).expect("it is there");
            let is_there = |key: &char| {
                let key = key.to_string();
                let hash = self.store.hasher().hash(key.as_bytes());
                view.get(key.as_bytes(), hash, 0).is_some()
            };
            ('a'..='z').filter(is_there).collect()
        }

        fn touch(&self, key: &str) {
            let view = self.store.view(DatabaseId::DEFAULT).expect("it is there");
            view.touch(self.store.hasher().hash(key.as_bytes()));
        }
    }

    fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Operation<'a> {
        Operation::Put {
            key,
            value,
            condition: Condition::None,
            expiry: Expiry::None,
            want_previous: false,
        }
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let bounds = CacheBounds {
            entries: 3,
            memory_bytes: u64::MAX,
        };
        let mut cached = Cached::new(bounds);
        for _ in 0..2 {
            for key in ["a", "b", "c"] {
                cached.put(key, b"");
            }
            cached.touch("a");
            cached.put("d", b"");
            assert_eq!(cached.keys(), "acd");
            // Reads of a commit count, and so do writes.
            cached.commit(&[Operation::Get { key: b"c" }]);
            cached.put("a", b"again");
            cached.put("e", b"");
            assert_eq!(cached.keys(), "ace");
            cached.commit(&[
                put(b"x", b""),
                put(b"y", b""),
                put(b"z", b""),
                put(b"w", b""),
            ]);
            assert_eq!(cached.keys(), "wyz");
            cached.commit(&[Operation::Delete {
                key: b"y",
                condition: Condition::None,
                want_previous: false,
            }]);
            cached.put("u", b"");
            assert_eq!(cached.keys(), "uwz");
            cached.commit(&[Operation::Clear]);
            assert_eq!(cached.keys(), "");
        }
    }

    #[test]
    fn memory_is_bounded_and_one_entry_always_stays() {
        let bounds = CacheBounds {
            entries: u64::MAX,
            memory_bytes: 10_000,
        };
        let mut cached = Cached::new(bounds);
        for key in ["a", "b", "c", "d"] {
            cached.put(key, &[7; 3_000]);
        }
        assert_eq!(cached.keys(), "bcd");
        cached.put("e", &[7; 100_000]);
        assert_eq!(cached.keys(), "e");
        cached.put("f", b"");
        assert_eq!(cached.keys(), "f");
    }

    #[test]
    fn only_an_empty_volatile_database_has_bounds() {
        let store = Store::in_memory(StoreConfig::new(1)).expect("the limits make sense");
        assert!(!store.bound_cache(DatabaseId(77), BOUNDS));
        assert_eq!(store.cache_bounds(DatabaseId::DEFAULT), None);
        let mut cached = Cached::new(BOUNDS);
        cached.put("a", b"");
        assert!(!cached.store.bound_cache(DatabaseId::DEFAULT, BOUNDS));
    }
}
