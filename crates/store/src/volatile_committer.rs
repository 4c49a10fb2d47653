//! The committer of volatile databases: what the [engine](crate::engine) decides is applied at
//! once, under the write lock.
//!
//! Readers see the index under the same lock, so they see whole commits only. How they come first
//! is said in the module `apply`.

use parking_lot::RwLockWriteGuard;

use crate::apply::{Applier, KeyChange, Slice};
use crate::batch::WriteBatch;
use crate::catalogue::{Database, State};
use crate::clock::Clock;
use crate::decide::{Context, decide_operations};
use crate::effects::Effects;
use crate::engine::{self, CommitPlace, CommitTarget, CommitTurn};
use crate::feed::Recording;
use crate::garbage::Garbage;
use crate::limits;
use crate::memory_use::MemoryUse;
use crate::outcome::{CommitVerdict, Decision, Outcomes, Refusal};
use crate::record::{CommitRecord, Whole};
use crate::store::Store;

/// Carries out write batches. A value without a thread: volatile databases are served by the loop
/// that has the writes, each loop with a committer of its own.
#[derive(Debug)]
pub struct VolatileCommitter {
    store: Store,
    effects: Effects,
    applier: Applier,
}

impl Store {
    /// A committer for one thread.
    pub fn committer(&self) -> VolatileCommitter {
        VolatileCommitter::new(self)
    }
}

impl VolatileCommitter {
    pub(crate) fn new(store: &Store) -> VolatileCommitter {
        VolatileCommitter {
            store: store.clone(),
            effects: Effects::default(),
            applier: Applier::new(store),
        }
    }

    /// Decides all commits of the batch in order, applies them and publishes them. `outcomes` then
    /// holds one outcome for each, in the same order, and the batch is empty. What the batch
    /// cleared comes back to be freed where that disturbs nobody.
    ///
    /// In a store with a log, only commits of volatile databases are carried out, and the others
    /// stay in the batch.
    ///
    /// The calling thread must hold no [`View`](crate::View).
    pub fn run(
        &mut self,
        batch: &mut WriteBatch,
        clock: &mut dyn Clock,
        outcomes: &mut Outcomes,
    ) -> Garbage {
        outcomes.clear();
        let now_ms = self.store.clock_ms(clock.now_ms());
        for run in batch.commits().chunk_by(CommitRecord::is_alike) {
            let first = &run[0];
            if first.is_of_catalogue() {
                self.change_catalogue(batch, first, outcomes);
                continue;
            }
            if let Some(database) = self.store.find(first.database) {
                let mut applied = Applied {
                    state: database.state.write(),
                    slice: Slice::begin(clock),
                    growth_bytes: 0,
                    recording: Recording::default(),
                    database: &database,
                    committer: self,
                    clock,
                    outcomes,
                };
                engine::carry_out(&mut applied, batch, run, now_ms);
            } else {
                for commit in run {
                    outcomes.refuse(commit, Refusal::UnknownDatabase);
                }
            }
            self.applier.free_old_values();
        }
        batch.clear_unlogged();
        self.store.announce_changes();
        std::mem::take(self.applier.garbage())
    }

    /// How many slices have ended so far because their time was up, and the lock was offered to
    /// others.
    pub fn slices(&self) -> u64 {
        self.applier.slices()
    }

    /// Creates or drops a database, and adds the outcome.
    fn change_catalogue(
        &mut self,
        batch: &WriteBatch,
        commit: &CommitRecord,
        outcomes: &mut Outcomes,
    ) {
        let mut commit = *commit;
        // The sequence first: a change that has none must not take place.
        let changed = match self.store.next_sequence() {
            Some(sequence) => {
                (self.carry_out_change(batch, &mut commit, sequence)).map(|()| sequence)
            }
            None => Err(self.store.reserve().refusal()),
        };
        match changed {
            Ok(sequence) => {
                let mark = outcomes.mark();
                outcomes.finish(&mark, &commit, sequence, Decision::Applied.into());
            }
            Err(refusal) => outcomes.refuse(&commit, refusal),
        }
    }

    /// Creates or drops a database. Gives the commit the id of a new one.
    fn carry_out_change(
        &mut self,
        batch: &WriteBatch,
        commit: &mut CommitRecord,
        sequence: u64,
    ) -> Result<(), Refusal> {
        if let Some(whole) = commit.whole.filter(|whole| whole.is_drop()) {
            let dropped = match whole {
                Whole::DropEmpty => self.store.remove_empty_database(commit.database),
                _ => self.store.remove_database(commit.database),
            };
            let content = dropped.map_err(Refusal::NotDropped)?;
            self.applier.garbage().append(content);
            return Ok(());
        }
        let created = (batch.database_to_create(commit))
            .and_then(|(name, config)| self.store.create_unlogged(name, config, sequence));
        commit.database = created.map_err(Refusal::NotCreated)?;
        Ok(())
    }
}

/// A database to which commits are applied when they are decided, under its lock.
struct Applied<'a> {
    committer: &'a mut VolatileCommitter,
    database: &'a Database,
    state: RwLockWriteGuard<'a, State>,
    slice: Slice,
    /// By how much the commit has changed the memory in use.
    growth_bytes: i64,
    /// The commit for those who watch.
    recording: Recording<'a>,
    clock: &'a mut dyn Clock,
    outcomes: &'a mut Outcomes,
}

impl Applied<'_> {
    /// Notes which entries of a cache the commit has used, and drops those that were not used for
    /// longest, if there are too many now.
    #[cold]
    fn keep_bounds(&mut self, place: &CommitPlace<'_>) {
        let VolatileCommitter {
            effects, applier, ..
        } = &mut *self.committer;
        let state = &mut *self.state;
        let (Some(cache), index) = (&mut state.cache, state.index.memory_mut()) else {
            return;
        };
        for hash in place.batch.hashes(place.commit.operations()) {
            cache.touch(hash);
        }
        for effect in effects.iter() {
            let is_there = effect.entry(place.batch, place.sequence).is_some();
            cache.change(effect.hash(), is_there);
        }
        let most = limits::CACHE_DROPPED + 2 * place.commit.operations().len();
        for _ in 0..most {
            let memory_bytes = state.memory_bytes.wrapping_add_signed(self.growth_bytes);
            let Some(dropped) = cache.next_to_drop(index, memory_bytes) else {
                break;
            };
            let change = KeyChange {
                hash: dropped.hash,
                key: &dropped.key,
                entry: None,
                is_expiry: true,
            };
            applier.change(index, &change, &mut self.recording);
            self.growth_bytes -= dropped.bytes as i64;
        }
    }
}

impl CommitTarget for Applied<'_> {
    #[inline]
    fn begin(&mut self, commit: &CommitRecord) -> CommitTurn {
        let store = &self.committer.store;
        // Asked anew for each commit: between slices the lock was open.
        let refusal = if self.state.dropped {
            Refusal::UnknownDatabase
        } else if let Some(sequence) = store.next_sequence() {
            let feed = self.database.open_feed();
            self.recording = Recording::begin(feed, sequence, || store.clock_ms(0));
            return CommitTurn::Decide(sequence);
        } else {
            store.reserve().refusal()
        };
        self.outcomes.refuse(commit, refusal);
        CommitTurn::Skip
    }

    #[inline]
    fn warm(&self, hashes: impl Iterator<Item = u64>) {
        self.state.index.memory().warm(hashes);
    }

    #[inline]
    fn outcomes(&mut self, _: &CommitRecord) -> &mut Outcomes {
        self.outcomes
    }

    #[inline]
    fn decide_commit(&mut self, place: &CommitPlace<'_>) -> Result<CommitVerdict, Refusal> {
        let limits = &self.database.config.limits;
        let context = Context {
            sequence: place.sequence,
            now_ms: place.now_ms,
            limits: *limits,
        };
        let VolatileCommitter {
            store,
            effects,
            applier,
        } = &mut *self.committer;
        let (batch, outcomes) = (place.batch, &mut *self.outcomes);
        let index = self.state.index.memory();
        let verdict = decide_operations(index, batch, place.commit, context, effects, outcomes);
        let growth_bytes = effects.growth_bytes();
        let used = MemoryUse {
            database_bytes: self.state.memory_bytes,
            store_bytes: store.memory_bytes(),
        };
        used.check_growth(growth_bytes, limits, store)?;
        used.check_process(growth_bytes, store)?;
        let state = &mut *self.state;
        let index = state.index.memory_mut();
        for effect in effects.iter() {
            let entry = effect.entry(batch, place.sequence);
            let change = KeyChange {
                hash: effect.hash(),
                key: effect.key(batch),
                entry: entry.as_ref(),
                is_expiry: effect.is_expiry(),
            };
            applier.change(index, &change, &mut self.recording);
        }
        self.growth_bytes = growth_bytes;
        if state.cache.is_some() {
            self.keep_bounds(place);
        }
        Ok(verdict)
    }

    fn clear(&mut self, _: &CommitPlace<'_>) -> i64 {
        self.growth_bytes = -(self.state.memory_bytes as i64);
        let index = self.state.index.memory_mut();
        let removed = index.len() as i64;
        (self.committer.applier).clear(index, &mut self.recording);
        if let Some(cache) = &mut self.state.cache {
            cache.clear();
        }
        removed
    }

    #[inline]
    fn end(&mut self, place: &CommitPlace<'_>) {
        let growth_bytes = std::mem::take(&mut self.growth_bytes);
        let VolatileCommitter {
            effects, applier, ..
        } = &mut *self.committer;
        applier.end_commit(&mut self.state, growth_bytes, place.sequence);
        std::mem::take(&mut self.recording).end();
        let bytes = place.commit.bytes + effects.rewritten_bytes();
        let work = place.commit.operations().len() + bytes / limits::SLICE_WORK_BYTES;
        applier.end_slice(&mut self.slice, work, &mut self.state, self.clock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::StandingClock;
    use crate::database::DatabaseConfig;
    use crate::database_id::DatabaseId;
    use crate::store::StoreConfig;

    /// A sequence of 0 would name no commit at all.
    #[test]
    fn the_catalogue_is_left_as_it_is_without_a_sequence_for_the_change() {
        let store = Store::in_memory(StoreConfig::new(1)).expect("the configuration is valid");
        let (mut batch, mut outcomes) = (store.write_batch(), Outcomes::new());
        let config = DatabaseConfig::default();
        batch.create_database(0, "old", &config);
        let _ = store
            .committer()
            .run(&mut batch, &mut StandingClock, &mut outcomes);
        let (old, sequence) = (outcomes.get(0).database, outcomes.get(0).sequence);
        assert_eq!(sequence, 1);

        store.reserve().set(sequence, sequence);
        batch.create_database(0, "new", &config);
        batch.drop_database(0, old);
        let _ = store
            .committer()
            .run(&mut batch, &mut StandingClock, &mut outcomes);
        for outcome in outcomes.iter() {
            let refused = Decision::Refused(Refusal::LogBehind);
            assert_eq!((outcome.decision, outcome.sequence), (refused, 0));
        }
        let ids: Vec<_> = store.databases().iter().map(|info| info.id).collect();
        assert_eq!(ids, [DatabaseId::DEFAULT, old]);
    }
}
