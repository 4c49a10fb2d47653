//! Decides the commits of a group, one after the other, against what is pending.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;

use wal::{GroupBuffer, RawRecord};

use super::pending::{
    PendingCommit, PendingDatabase, PendingGroup, PendingTree, PendingView, Rule, What,
};
use super::shares::Shares;
use super::trees::TreeWriters;
use super::visible::{Visible, VisibleIndex};
use crate::batch::WriteBatch;
use crate::blob::split_key;
use crate::database_id::DatabaseId;
use crate::decide::{Context, decide};
use crate::effects::Effects;
use crate::limits;
use crate::log::{ORIGIN, Record, RecordKind, push_entry};
use crate::memory_use::MemoryUse;
use crate::outcome::{Decision, KeyState, OperationStatus, Outcomes, Refusal, Verdict};
use crate::record::{Action, CommitRecord, Whole};
use crate::store::Store;
use crate::tree::Arena;

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
    /// Commits of the batch that are passed over.
    held: Vec<CommitRecord>,
    work: GroupWork,
}

/// All of a decider but the databases.
#[derive(Debug)]
pub(super) struct GroupWork {
    pub(super) store: Store,
    pub(super) effects: Effects,
    pub(super) group: PendingGroup,
    pub(super) records: GroupBuffer,
    /// By how much the group changes the memory in use, of all databases.
    growth_bytes: i64,
    pub(super) needs_sync: bool,
    /// Operations of the group so far.
    operations: usize,
    /// Who may have existing values copied in it.
    shares: Shares,
    /// The group has ended.
    is_over: bool,
    /// The group is complete with so many.
    most_operations: usize,
    /// Nothing more goes into the group.
    pub(super) is_complete: bool,
    /// Why commits that grow a database are refused.
    pub(super) refusal: Option<Refusal>,
    /// A database that nothing is written to, since it is being converted.
    frozen: Option<DatabaseId>,
}

/// A commit where it is decided.
struct CommitPlace<'a> {
    batch: &'a WriteBatch,
    commit: &'a CommitRecord,
    now_ms: u64,
    sequence: u64,
}

impl Decider {
    pub(super) fn new(store: &Store) -> Decider {
        Decider {
            databases: BTreeMap::new(),
            touched: Vec::new(),
            held: Vec::new(),
            work: GroupWork {
                store: store.clone(),
                effects: Effects::default(),
                group: PendingGroup::default(),
                records: GroupBuffer::new(),
                growth_bytes: 0,
                needs_sync: false,
                operations: 0,
                shares: Shares::default(),
                is_over: true,
                most_operations: usize::MAX,
                is_complete: false,
                refusal: None,
                frozen: None,
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

    /// Begins a group that is complete with so many operations. Nothing is written to the database
    /// that is frozen.
    pub(super) fn begin(&mut self, most_operations: usize, frozen: Option<DatabaseId>) {
        debug_assert!(most_operations > 0, "or no group would ever have a commit");
        self.work.most_operations = most_operations;
        self.work.frozen = frozen;
        self.work.is_over = false;
    }

    /// Whether the group that is decided is empty, as Appends to large values were passed over for
    /// the sake of others of which there are none. They may be decided now.
    pub(super) fn rests_for_nobody(&mut self) -> bool {
        self.work.operations == 0 && self.work.group.is_empty() && self.work.shares.end_rest()
    }

    /// Operations of the group.
    pub(super) fn operations(&self) -> usize {
        self.work.operations
    }

    /// Commits that grow a database are refused from now on; `None`: no more.
    pub(super) fn refuse_growth(&mut self, refusal: Option<Refusal>) {
        self.work.refusal = refusal;
    }

    /// The same, by their ids.
    pub(super) fn touched_ids(&self) -> impl Iterator<Item = DatabaseId> {
        self.touched.iter().copied()
    }

    /// Adds the record of a conversion, which completes the group.
    pub(super) fn add_conversion(&mut self, record: &Record<'_>) {
        self.work.records.push(&record.raw());
        self.work.group.push(PendingCommit {
            database: record.database,
            sequence: record.sequence,
            rule: Rule::Synced,
            what: What::Convert,
            growth_bytes: 0,
        });
        self.work.needs_sync = true;
        self.work.is_complete = true;
    }

    /// The databases in which the group has done something.
    pub(super) fn touched(&self) -> impl Iterator<Item = &PendingDatabase> {
        self.touched.iter().filter_map(|id| self.databases.get(id))
    }

    /// Decides commits of a batch of a loop from `next` on, which it moves; those that have no turn
    /// in the group are passed over, and must be [put back](Decider::put_back). Returns whether
    /// these were all; otherwise the group is complete.
    pub(super) fn decide(
        &mut self,
        from: usize,
        batch: &WriteBatch,
        next: &mut usize,
        now_ms: u64,
        trees: &TreeWriters,
        answers: &mut Answers,
    ) -> bool {
        while let Some(first) = batch.logged().get(*next) {
            if self.work.is_complete() {
                return false;
            }
            if self.work.passes_over(from, first) {
                self.held.push(*first);
                *next += 1;
                continue;
            }
            if first.is_of_catalogue() {
                let pending = self.databases.get(&first.database);
                let growth_entries = pending.map_or(0, |pending| pending.growth_entries);
                let work = &mut self.work;
                if !work.change_catalogue(batch, first, growth_entries, trees, answers) {
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
            *next += self.decide_run(from, batch, &rest[..alike], now_ms, trees, answers);
        }
        true
    }

    /// Puts those that were passed over back into their batch.
    pub(super) fn put_back(&mut self, batch: &mut WriteBatch, next: &mut usize) {
        if !self.held.is_empty() {
            batch.keep_logged(&mut self.held, *next);
            *next = 0;
        }
    }

    /// Decides commits of one database; returns how many.
    fn decide_run(
        &mut self,
        from: usize,
        batch: &WriteBatch,
        commits: &[CommitRecord],
        now_ms: u64,
        trees: &TreeWriters,
        answers: &mut Answers,
    ) -> usize {
        let id = commits[0].database;
        if let Some(refusal) = self.cannot_touch(id) {
            for commit in commits {
                answers.written.refuse(commit, refusal);
            }
            return commits.len();
        }
        let work = &mut self.work;
        let pending = self.databases.get_mut(&id).expect("it was just touched");
        let database = pending.database.clone();
        // Nobody else writes here, so readers are all that the lock has to do with.
        let state = database.state.read();
        let visible = Visible::new(&state, trees.get(id));
        let mut warm_until = 0;
        for (index, commit) in commits.iter().enumerate() {
            if work.is_complete() {
                return index;
            }
            if commit.is_abandoned {
                answers.written.refuse(commit, Refusal::Abandoned);
                continue;
            }
            if work.passes_over(from, commit) {
                self.held.push(*commit);
                continue;
            }
            let operations = commit.operations();
            if operations.end > warm_until {
                warm_until = (operations.end).max(operations.start + limits::WARM_OPERATIONS);
                visible.warm(batch.hashes(operations.start..warm_until));
            }
            let Some(sequence) = work.next_sequence() else {
                return index;
            };
            let place = CommitPlace {
                batch,
                commit,
                now_ms,
                sequence,
            };
            work.commit(pending, &visible, &place, answers);
        }
        commits.len()
    }

    /// Notes that the group does something in a database, or says why it cannot.
    fn cannot_touch(&mut self, id: DatabaseId) -> Option<Refusal> {
        if self.work.is_frozen(id) {
            return Some(Refusal::Converting);
        }
        (!self.touch(id)).then_some(Refusal::UnknownDatabase)
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

    /// Has the group synced, with a record that raises the last sequence in the log to `sequence`,
    /// if nothing else in it is as high.
    pub(super) fn add_mark(&mut self, sequence: u64, written_sequence: u64) {
        if sequence > written_sequence.max(self.work.records.last_sequence()) {
            self.work.records.push(&RawRecord::mark(sequence));
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
            if matches!(commit.what, What::Drop | What::Convert) {
                self.databases.remove(&commit.database);
            }
        }
        self.work.group.clear();
        self.work.records.clear();
        self.work.growth_bytes = 0;
        self.work.needs_sync = false;
        self.work.operations = 0;
        // A group that was refused is reset twice, and ends once.
        if !std::mem::replace(&mut self.work.is_over, true) {
            self.work.shares.end_group();
        }
        self.work.is_complete = false;
    }
}

impl GroupWork {
    /// Whether nothing is written to a database at the moment.
    pub(super) fn is_frozen(&self, id: DatabaseId) -> bool {
        self.frozen == Some(id)
    }

    fn is_complete(&self) -> bool {
        // Values that were copied have a bound of their own: they leave others their room.
        let copied_bytes = self.shares.copied_bytes();
        self.is_complete
            || self.operations >= self.most_operations
            || self.records.is_full_beside(copied_bytes)
    }

    /// Whether a commit of a loop waits for a later group, with all of its connection that come
    /// behind it.
    #[inline]
    fn passes_over(&mut self, from: usize, commit: &CommitRecord) -> bool {
        !commit.is_abandoned && (self.shares).holds(from, commit.source, commit.rewrites)
    }

    /// The next sequence; `None` completes the group, since the log must be synced before there is
    /// one.
    pub(super) fn next_sequence(&mut self) -> Option<u64> {
        let sequence = self.store.next_sequence();
        self.is_complete |= sequence.is_none();
        sequence
    }

    fn commit(
        &mut self,
        pending: &mut PendingDatabase,
        visible: &Visible<'_>,
        place: &CommitPlace<'_>,
        answers: &mut Answers,
    ) {
        let mut rule = Rule::of(pending.database.config.durability);
        let is_clear = place.commit.whole == Some(Whole::Clear);
        if is_clear && visible.tree().is_some() {
            // A folder is made for what comes after it: the log must have it before.
            rule = Rule::Synced;
        }
        let outcomes = answers.of(rule);
        let mark = outcomes.mark();
        let (verdict, what, growth_bytes) = if is_clear {
            self.clear(pending, visible, place, outcomes)
        } else {
            self.decide(pending, visible, place, outcomes)
        };
        pending.growth_bytes += growth_bytes;
        self.growth_bytes += growth_bytes;
        self.operations += place.commit.operations().len();
        self.group.push(PendingCommit {
            database: place.commit.database,
            sequence: place.sequence,
            rule,
            what,
            growth_bytes,
        });
        outcomes.finish(&mark, place.commit, place.sequence, verdict);
    }

    fn decide(
        &mut self,
        pending: &mut PendingDatabase,
        visible: &Visible<'_>,
        place: &CommitPlace<'_>,
        outcomes: &mut Outcomes,
    ) -> (Verdict, What, i64) {
        if place.commit.database == DatabaseId::BLOBS && self.describes_dropped(place) {
            let verdict = Decision::Refused(Refusal::UnknownDatabase).into();
            return (verdict, What::Keys(0..0), 0);
        }
        let mark = outcomes.mark();
        let decided = self.decide_keys(pending, visible, place, outcomes);
        let source = place.commit.source;
        (self.shares).charge(source, self.effects.rewritten_bytes());
        let checked =
            decided.and_then(|verdict| self.check_growth(pending, visible).map(|()| verdict));
        let verdict = match checked {
            Ok(verdict) => verdict,
            Err(refusal) => {
                outcomes.truncate(&mark, false);
                let verdict = Decision::Refused(refusal).into();
                return (verdict, What::Keys(0..0), 0);
            }
        };
        pending.growth_entries += self.effects.growth_entries();
        let sequence = place.sequence;
        let places = (self.group).add(&self.effects, place.batch, sequence, &mut pending.overlay);
        self.log(place.commit.database, sequence, places.clone());
        self.needs_sync |=
            !places.is_empty() && Rule::of(pending.database.config.durability) == Rule::Synced;
        (verdict, What::Keys(places), self.effects.growth_bytes())
    }

    /// Decides a commit that changes keys, against what is pending. `Err`: what it has to know is
    /// not known.
    /// Whether a blob is to be described whose database was dropped while it was uploaded: nobody
    /// would find it.
    fn describes_dropped(&self, place: &CommitPlace<'_>) -> bool {
        place.commit.operations().any(|index| {
            let operation = place.batch.operation(index);
            let is_put = matches!(operation.action, Action::Put(_));
            let key = split_key(place.batch.key(operation)).filter(|_| is_put);
            key.is_some_and(|(database, _)| self.store.find(database).is_none())
        })
    }

    fn decide_keys(
        &mut self,
        pending: &PendingDatabase,
        visible: &Visible<'_>,
        place: &CommitPlace<'_>,
        outcomes: &mut Outcomes,
    ) -> Result<Verdict, Refusal> {
        let context = Context {
            sequence: place.sequence,
            now_ms: place.now_ms,
            limits: pending.database.config.limits,
        };
        let (batch, commit, effects) = (place.batch, place.commit, &mut self.effects);
        let (overlay, group) = (&pending.overlay, &self.group);
        match visible.index() {
            VisibleIndex::Memory(index) => {
                let view = PendingView {
                    overlay,
                    is_cleared: pending.is_cleared,
                    group,
                    index,
                };
                Ok(decide(&view, batch, commit, context, effects, outcomes))
            }
            VisibleIndex::Tree(tree) => {
                let view = PendingTree {
                    overlay,
                    group,
                    tree,
                    batch,
                    found: Arena::new(),
                    problem: Cell::new(None),
                };
                let verdict = decide(&view, batch, commit, context, effects, outcomes);
                view.problem.get().map_or(Ok(verdict), Err)
            }
        }
    }

    fn check_growth(
        &self,
        pending: &PendingDatabase,
        visible: &Visible<'_>,
    ) -> Result<(), Refusal> {
        let growth_bytes = self.effects.growth_bytes();
        if let Some(refusal) = visible.full_refusal()
            && self.effects.iter().next().is_some()
        {
            return Err(refusal);
        }
        let refusal = self.refusal.or(visible.refusal());
        if growth_bytes > 0
            && let Some(refusal) = refusal
        {
            return Err(refusal);
        }
        let used = MemoryUse {
            database_bytes: visible
                .used_bytes()
                .wrapping_add_signed(pending.growth_bytes),
            store_bytes: (self.store.memory_bytes()).saturating_add_signed(self.growth_bytes),
        };
        used.check_growth(growth_bytes, &pending.database.config.limits, &self.store)
    }

    /// Adds the records of a commit.
    fn log(&mut self, database: DatabaseId, sequence: u64, places: Range<usize>) {
        for (effect, place) in self.effects.iter().zip(places) {
            match self.group.entry(place) {
                Some(entry) => push_entry(&mut self.records, database, ORIGIN, &entry),
                None => {
                    let kind = if effect.is_expiry() {
                        RecordKind::Expire
                    } else {
                        RecordKind::Delete
                    };
                    let key = self.group.key(place);
                    let record = Record::of_key(kind, sequence, database, ORIGIN, key);
                    self.records.push(&record.raw());
                }
            }
        }
    }

    fn clear(
        &mut self,
        pending: &mut PendingDatabase,
        visible: &Visible<'_>,
        place: &CommitPlace<'_>,
        outcomes: &mut Outcomes,
    ) -> (Verdict, What, i64) {
        let (database, sequence) = (place.commit.database, place.sequence);
        let removed = visible.entries() as i64 + pending.growth_entries;
        let untouched = KeyState::default();
        outcomes.push(OperationStatus::Done, untouched, untouched, removed, None);
        let record = Record::of_key(RecordKind::Clear, sequence, database, ORIGIN, &[]);
        self.records.push(&record.raw());
        self.needs_sync |= Rule::of(pending.database.config.durability) == Rule::Synced;
        if visible.tree().is_some() {
            // What comes behind it finds the new tree.
            self.needs_sync = true;
            self.is_complete = true;
        }
        let used_bytes = visible
            .used_bytes()
            .wrapping_add_signed(pending.growth_bytes);
        pending.growth_entries -= removed;
        pending.clear();
        (Decision::Applied.into(), What::Clear, -(used_bytes as i64))
    }
}
