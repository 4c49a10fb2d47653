//! The committer: decides, applies and publishes commits.
//!
//! # The order of things
//!
//! For each commit: *decide* it against the pending state, which gives outcomes and effects;
//! *apply* the effects to the index; *publish* by raising the database's sequence. Readers see the
//! index under the database's lock, so they see whole commits only. In a volatile database pending
//! and visible state are the same, and all of this happens at once under the write lock.
//!
//! A durable database puts two steps between: see [`durable`](crate::durable). This is why a commit
//! is always decided as a whole before anything is applied, and why effects name each key once.
//!
//! How readers come first is said in the module `apply`.

use crate::apply::{Applier, Slice};
use crate::batch::WriteBatch;
use crate::catalogue::{Database, State};
use crate::clock::Clock;
use crate::database::DatabaseLimits;
use crate::decide::{Context, decide};
use crate::effects::Effects;
use crate::garbage::Garbage;
use crate::limits;
use crate::memory_use::MemoryUse;
use crate::outcome::{Decision, KeyState, OperationStatus, Outcomes, Refusal};
use crate::record::{CommitRecord, Whole};
use crate::store::Store;

/// Carries out write batches. A value without a thread: volatile databases are served by the loop
/// that has the writes, each loop with a committer of its own.
#[derive(Debug)]
pub struct Committer {
    store: Store,
    effects: Effects,
    applier: Applier,
}

impl Store {
    /// A committer for one thread.
    pub fn committer(&self) -> Committer {
        Committer::new(self)
    }
}

impl Committer {
    pub(crate) fn new(store: &Store) -> Committer {
        Committer {
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
        let mut run = Run {
            batch,
            now_ms,
            clock,
            outcomes,
        };
        let mut commits = run.batch.commits();
        while let Some(first) = commits.first() {
            if first.is_of_catalogue() {
                self.change_catalogue(first, &mut run);
                commits = &commits[1..];
                continue;
            }
            let alike = commits
                .iter()
                .take_while(|commit| commit.database == first.database && !commit.is_of_catalogue())
                .count();
            let (these, rest) = commits.split_at(alike);
            match self.store.find(first.database) {
                Some(database) => self.run_database(&database, these, &mut run),
                None => refuse_unknown(these, run.outcomes),
            }
            self.applier.free_old_values();
            commits = rest;
        }
        batch.clear_unlogged();
        std::mem::take(self.applier.garbage())
    }

    /// How many slices have ended so far because their time was up, and the lock was offered to
    /// others.
    pub fn slices(&self) -> u64 {
        self.applier.slices()
    }

    fn run_database(&mut self, database: &Database, commits: &[CommitRecord], run: &mut Run<'_>) {
        let mut state = database.state.write();
        let mut slice = Slice::begin(run.clock);
        let mut warm_until = 0;
        for (index, commit) in commits.iter().enumerate() {
            // Asked anew after each slice: the lock was open.
            if state.dropped {
                return refuse_unknown(&commits[index..], run.outcomes);
            }
            let operations = commit.operations();
            if operations.end > warm_until {
                warm_until = operations
                    .end
                    .max(operations.start + limits::WARM_OPERATIONS);
                let index = state.index.memory();
                index.warm(run.batch.hashes(operations.start..warm_until));
            }
            self.commit(&database.config.limits, &mut state, commit, run);
            let bytes = commit.bytes + self.effects.rewritten_bytes();
            let work = commit.operations().len() + bytes / limits::SLICE_WORK_BYTES;
            (self.applier).end_slice(&mut slice, work, &mut state, run.clock);
        }
    }

    fn commit(
        &mut self,
        limits: &DatabaseLimits,
        state: &mut State,
        commit: &CommitRecord,
        run: &mut Run<'_>,
    ) {
        let mark = run.outcomes.mark();
        let Some(sequence) = self.store.next_sequence() else {
            let refusal = self.store.reserve().refusal();
            return run.outcomes.refuse(commit, refusal);
        };
        let mut growth_bytes = 0;
        let verdict = if commit.whole == Some(Whole::Clear) {
            growth_bytes = -(state.memory_bytes as i64);
            self.clear(state, run);
            Decision::Applied.into()
        } else {
            let context = Context {
                sequence,
                now_ms: run.now_ms,
                limits: *limits,
            };
            let (effects, outcomes) = (&mut self.effects, &mut *run.outcomes);
            let verdict = decide(
                state.index.memory(),
                run.batch,
                commit,
                context,
                effects,
                outcomes,
            );
            match self.check_memory(limits, state) {
                Ok(()) => {
                    self.apply(state, run.batch, sequence);
                    growth_bytes = self.effects.growth_bytes();
                    verdict
                }
                Err(refusal) => {
                    run.outcomes.truncate(&mark, false);
                    Decision::Refused(refusal).into()
                }
            }
        };
        self.applier.end_commit(state, growth_bytes, sequence);
        run.outcomes.finish(&mark, commit, sequence, verdict);
    }

    fn check_memory(&self, limits: &DatabaseLimits, state: &State) -> Result<(), Refusal> {
        let growth_bytes = self.effects.growth_bytes();
        let used = MemoryUse {
            database_bytes: state.memory_bytes,
            store_bytes: self.store.memory_bytes(),
        };
        used.check_growth(growth_bytes, limits, &self.store)
    }

    /// Creates or drops a database, and answers.
    fn change_catalogue(&mut self, commit: &CommitRecord, run: &mut Run<'_>) {
        let mut commit = *commit;
        // The sequence first: a change that has none must not take place.
        let changed = match self.store.next_sequence() {
            Some(sequence) => self.carry_out_change(&mut commit, run).map(|()| sequence),
            None => Err(self.store.reserve().refusal()),
        };
        let (sequence, decision) = match changed {
            Ok(sequence) => (sequence, Decision::Applied),
            Err(refusal) => (0, Decision::Refused(refusal)),
        };
        let mark = run.outcomes.mark();
        run.outcomes
            .finish(&mark, &commit, sequence, decision.into());
    }

    /// Creates or drops a database. Gives the commit the id of a new one.
    fn carry_out_change(
        &mut self,
        commit: &mut CommitRecord,
        run: &mut Run<'_>,
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
        let created = (run.batch.database_to_create(commit))
            .and_then(|(name, config)| self.store.create_unlogged(name, config));
        commit.database = created.map_err(Refusal::NotCreated)?;
        Ok(())
    }

    fn apply(&mut self, state: &mut State, batch: &WriteBatch, sequence: u64) {
        let index = state.index.memory_mut();
        for effect in self.effects.iter() {
            let entry = effect.entry(batch, sequence);
            (self.applier).change(index, effect.hash(), effect.key(batch), entry.as_ref());
        }
    }

    fn clear(&mut self, state: &mut State, run: &mut Run<'_>) {
        let index = state.index.memory_mut();
        let removed = index.len() as i64;
        self.applier.clear(index);
        let untouched = KeyState::default();
        (run.outcomes).push(OperationStatus::Done, untouched, untouched, removed, None);
    }
}

/// What one run works with.
struct Run<'a> {
    batch: &'a WriteBatch,
    now_ms: u64,
    clock: &'a mut dyn Clock,
    outcomes: &'a mut Outcomes,
}

fn refuse_unknown(commits: &[CommitRecord], outcomes: &mut Outcomes) {
    for commit in commits {
        outcomes.refuse(commit, Refusal::UnknownDatabase);
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
