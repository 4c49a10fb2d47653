//! Decides the commits of a group, one after the other, against what is pending.

use std::collections::BTreeMap;
use std::ops::Range;

use super::pending::{PendingCommit, PendingDatabase, PendingGroup, PendingView, Rule, What};
use crate::batch::WriteBatch;
use crate::catalogue::{DatabaseId, State};
use crate::committer::Used;
use crate::decide::{Context, decide};
use crate::effects::Effects;
use crate::limits;
use crate::log::{GroupBuffer, Record, RecordKind};
use crate::outcome::{Decision, KeyState, OperationStatus, Outcomes, Refusal, Verdict};
use crate::record::{CommitRecord, Whole};
use crate::store::Store;

/// The number of this server in the records.
pub(super) const ORIGIN: u32 = 0;

/// The outcomes of one loop's commits in a group.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) written: Outcomes,
    pub(super) synced: Outcomes,
}

impl Answers {
    pub(super) fn of(&mut self, rule: Rule) -> &mut Outcomes {
        match rule {
            Rule::Written => &mut self.written,
            Rule::Synced => &mut self.synced,
        }
    }
}

/// A group in the making.
#[derive(Debug)]
pub(super) struct Decider {
    databases: BTreeMap<DatabaseId, PendingDatabase>,
    /// Those in which the group has done something.
    touched: Vec<DatabaseId>,
    work: Work,
}

/// All of a decider but the databases.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) store: Store,
    pub(super) effects: Effects,
    pub(super) group: PendingGroup,
    pub(super) records: GroupBuffer,
    /// By how much the group changes the memory in use, of all databases.
    growth_bytes: i64,
    pub(super) needs_sync: bool,
    /// Nothing more goes into the group.
    pub(super) is_complete: bool,
    /// Why commits that grow a database are refused.
    pub(super) refusal: Option<Refusal>,
}

/// A commit where it is decided.
struct Place<'a> {
    batch: &'a WriteBatch,
    commit: &'a CommitRecord,
    now_ms: u64,
}

impl Decider {
    pub(super) fn new(store: &Store) -> Decider {
        Decider {
            databases: BTreeMap::new(),
            touched: Vec::new(),
            work: Work {
                store: store.clone(),
                effects: Effects::default(),
                group: PendingGroup::default(),
                records: GroupBuffer::new(),
                growth_bytes: 0,
                needs_sync: false,
                is_complete: false,
                refusal: None,
            },
        }
    }

    /// The commits of the group.
    pub(super) fn group(&self) -> &PendingGroup {
        &self.work.group
    }

    /// The records of the group.
    pub(super) fn records(&mut self) -> &mut GroupBuffer {
        &mut self.work.records
    }

    /// Whether some of it must be synced before it is published.
    pub(super) fn needs_sync(&self) -> bool {
        self.work.needs_sync
    }

    /// It was synced.
    pub(super) fn was_synced(&mut self) {
        self.work.needs_sync = false;
    }

    /// Commits that grow a database are refused from now on; `None`: no more.
    pub(super) fn refuse_growth(&mut self, refusal: Option<Refusal>) {
        self.work.refusal = refusal;
    }

    /// The databases in which the group has done something.
    pub(super) fn touched(&self) -> impl Iterator<Item = &PendingDatabase> {
        self.touched.iter().filter_map(|id| self.databases.get(id))
    }

    /// Decides commits of a batch from `next` on, which it moves. Answers whether these were all; otherwise the group
    /// is complete.
    pub(super) fn decide(
        &mut self,
        batch: &WriteBatch,
        next: &mut usize,
        now_ms: u64,
        answers: &mut Answers,
    ) -> bool {
        while let Some(first) = batch.logged().get(*next) {
            if self.work.is_complete() {
                return false;
            }
            if first.is_of_catalogue() {
                let pending = self.databases.get(&first.database);
                let growth_entries = pending.map_or(0, |pending| pending.growth_entries);
                let work = &mut self.work;
                if !work.change_catalogue(batch, first, growth_entries, answers) {
                    return false;
                }
                *next += 1;
                continue;
            }
            let rest = &batch.logged()[*next..];
            let alike = rest
                .iter()
                .take_while(|commit| commit.database == first.database && !commit.is_of_catalogue())
                .count();
            *next += self.decide_run(batch, &rest[..alike], now_ms, answers);
        }
        true
    }

    /// Decides commits of one database; answers how many.
    fn decide_run(
        &mut self,
        batch: &WriteBatch,
        commits: &[CommitRecord],
        now_ms: u64,
        answers: &mut Answers,
    ) -> usize {
        let id = commits[0].database;
        if !self.touch(id) {
            for commit in commits {
                let mark = answers.written.mark();
                let verdict = Decision::Refused(Refusal::UnknownDatabase).into();
                answers.written.finish(&mark, commit, 0, verdict);
            }
            return commits.len();
        }
        let work = &mut self.work;
        let pending = self.databases.get_mut(&id).expect("it was just touched");
        let database = pending.database.clone();
        let rule = Rule::of(database.config.durability);
        // Nobody else writes here, so readers are all that the lock has to do with.
        let state = database.state.read();
        let mut warm_until = 0;
        for (index, commit) in commits.iter().enumerate() {
            if work.is_complete() {
                return index;
            }
            let operations = commit.operations();
            if operations.end > warm_until {
                warm_until = (operations.end).max(operations.start + limits::WARM_OPERATIONS);
                state.index.warm(batch.hashes(operations.start..warm_until));
            }
            let Some(sequence) = work.next_sequence() else {
                return index;
            };
            let place = Place {
                batch,
                commit,
                now_ms,
            };
            work.commit(pending, &state, &place, sequence, answers.of(rule));
        }
        commits.len()
    }

    /// Notes that the group does something in a database, if there is one.
    fn touch(&mut self, id: DatabaseId) -> bool {
        if self.touched.contains(&id) {
            return true;
        }
        if !self.databases.contains_key(&id) {
            let Some(database) = self.work.store.find(id) else {
                return false;
            };
            self.databases.insert(id, PendingDatabase::new(database));
        }
        self.touched.push(id);
        true
    }

    /// Has the group synced, with a record that raises the last sequence in the log to `sequence`, if nothing else in
    /// it is as high.
    pub(super) fn add_mark(&mut self, sequence: u64, written_sequence: u64) {
        if sequence > written_sequence.max(self.work.records.last_sequence()) {
            self.work.records.push(&Record::mark(sequence));
        }
        self.work.needs_sync = true;
    }

    /// The group is over: what it has left is visible, or never will be.
    pub(super) fn reset(&mut self) {
        for id in self.touched.drain(..) {
            if let Some(pending) = self.databases.get_mut(&id) {
                pending.reset();
            }
        }
        for commit in self.work.group.commits() {
            if matches!(commit.what, What::Drop) {
                self.databases.remove(&commit.database);
            }
        }
        self.work.group.clear();
        self.work.records.clear();
        self.work.growth_bytes = 0;
        self.work.needs_sync = false;
        self.work.is_complete = false;
    }
}

impl Work {
    fn is_complete(&self) -> bool {
        self.is_complete || self.records.is_full()
    }

    /// The next sequence; `None` completes the group, since the log must be synced before there is one.
    pub(super) fn next_sequence(&mut self) -> Option<u64> {
        let sequence = self.store.next_sequence();
        self.is_complete |= sequence.is_none();
        sequence
    }

    fn commit(
        &mut self,
        pending: &mut PendingDatabase,
        state: &State,
        place: &Place<'_>,
        sequence: u64,
        outcomes: &mut Outcomes,
    ) {
        let mark = outcomes.mark();
        let (verdict, what, growth_bytes) = if place.commit.whole == Some(Whole::Clear) {
            self.clear(pending, state, place, sequence, outcomes)
        } else {
            self.decide(pending, state, place, sequence, outcomes)
        };
        let config = &pending.database.config;
        let rule = Rule::of(config.durability);
        pending.growth_bytes += growth_bytes;
        self.growth_bytes += growth_bytes;
        self.group.push(PendingCommit {
            database: place.commit.database,
            sequence,
            rule,
            what,
            growth_bytes,
        });
        outcomes.finish(&mark, place.commit, sequence, verdict);
    }

    fn decide(
        &mut self,
        pending: &mut PendingDatabase,
        state: &State,
        place: &Place<'_>,
        sequence: u64,
        outcomes: &mut Outcomes,
    ) -> (Verdict, What, i64) {
        let limits = pending.database.config.limits;
        let context = Context {
            sequence,
            now_ms: place.now_ms,
            limits,
        };
        let view = PendingView {
            overlay: &pending.overlay,
            is_cleared: pending.is_cleared,
            group: &self.group,
            index: &state.index,
        };
        let mark = outcomes.mark();
        let effects = &mut self.effects;
        let verdict = decide(&view, place.batch, place.commit, context, effects, outcomes);
        if let Err(refusal) = self.check_growth(pending, state) {
            outcomes.truncate(&mark, false);
            let verdict = Decision::Refused(refusal).into();
            return (verdict, What::Keys(0..0), 0);
        }
        pending.growth_entries += self.effects.growth_entries();
        let places = (self.group).add(&self.effects, place.batch, sequence, &mut pending.overlay);
        self.log(place.commit.database, sequence, places.clone());
        self.needs_sync |=
            !places.is_empty() && Rule::of(pending.database.config.durability) == Rule::Synced;
        (verdict, What::Keys(places), self.effects.growth_bytes())
    }

    fn check_growth(&self, pending: &PendingDatabase, state: &State) -> Result<(), Refusal> {
        let growth_bytes = self.effects.growth_bytes();
        if growth_bytes > 0
            && let Some(refusal) = self.refusal
        {
            return Err(refusal);
        }
        let used = Used {
            database_bytes: state.memory_bytes.wrapping_add_signed(pending.growth_bytes),
            store_bytes: (self.store.memory_bytes()).saturating_add_signed(self.growth_bytes),
        };
        used.check_growth(growth_bytes, &pending.database.config.limits, &self.store)
    }

    /// Adds the records of a commit.
    fn log(&mut self, database: DatabaseId, sequence: u64, places: Range<usize>) {
        for (effect, place) in self.effects.iter().zip(places) {
            let record = match self.group.entry(place) {
                Some(entry) => Record::set(database, ORIGIN, &entry),
                None => {
                    let kind = if effect.is_expiry() {
                        RecordKind::Expire
                    } else {
                        RecordKind::Delete
                    };
                    Record::of_key(kind, sequence, database, ORIGIN, self.group.key(place))
                }
            };
            self.records.push(&record);
        }
    }

    fn clear(
        &mut self,
        pending: &mut PendingDatabase,
        state: &State,
        place: &Place<'_>,
        sequence: u64,
        outcomes: &mut Outcomes,
    ) -> (Verdict, What, i64) {
        let removed = state.index.len() as i64 + pending.growth_entries;
        let untouched = KeyState::default();
        outcomes.push(OperationStatus::Done, untouched, untouched, removed, None);
        let database = place.commit.database;
        let record = Record::of_key(RecordKind::Clear, sequence, database, ORIGIN, &[]);
        self.records.push(&record);
        self.needs_sync |= Rule::of(pending.database.config.durability) == Rule::Synced;
        let used_bytes = (state.memory_bytes).wrapping_add_signed(pending.growth_bytes);
        pending.growth_entries -= removed;
        pending.clear();
        (Decision::Applied.into(), What::Clear, -(used_bytes as i64))
    }
}
