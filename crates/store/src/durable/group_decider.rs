//! Decides the commits of a group, one after the other, against what is pending.

use std::cell::Cell;
use std::collections::BTreeMap;

use wal::{GroupBuffer, RawRecord};

use super::pending::{
    PendingChange, PendingCommit, PendingDatabase, PendingGroup, PendingTree, PendingView,
    PublishAfter,
};
use super::shares::Shares;
use super::trees::TreeWriters;
use super::visible::{Visible, VisibleIndex};
use crate::batch::WriteBatch;
use crate::blob::split_key;
use crate::database::Kind;
use crate::database_id::DatabaseId;
use crate::decide::{Context, decide_operations};
use crate::effects::Effects;
use crate::engine::{self, CommitPlace, CommitTarget, CommitTurn};
use crate::log::{Record, RecordKind};
use crate::memory_use::MemoryUse;
use crate::outcome::{CommitVerdict, Outcomes, Refusal};
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
    pub(super) fn of(&mut self, rule: PublishAfter) -> &mut Outcomes {
        match rule {
            PublishAfter::Written => &mut self.written,
            PublishAfter::Synced => &mut self.synced,
        }
    }
}

/// A group in the making.
#[derive(Debug)]
pub(super) struct GroupDecider {
    databases: BTreeMap<DatabaseId, PendingDatabase>,
    /// Those in which the group has done something.
    touched: Vec<DatabaseId>,
    work: GroupWork,
}

/// All of a decider but the databases.
#[derive(Debug)]
pub(super) struct GroupWork {
    pub(super) store: Store,
    /// Commits of the batch that are passed over.
    held: Vec<CommitRecord>,
    pub(super) effects: Effects,
    pub(super) group: PendingGroup,
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

/// A database whose commits go into the group.
struct Grouped<'a> {
    work: &'a mut GroupWork,
    pending: &'a mut PendingDatabase,
    visible: Visible<'a>,
    answers: &'a mut Answers,
    /// The loop that the batch is of.
    from: usize,
    /// What the commit has done, and by how much that changes the memory in use.
    change: Option<(PendingChange, i64)>,
}

impl GroupDecider {
    pub(super) fn new(store: &Store) -> GroupDecider {
        GroupDecider {
            databases: BTreeMap::new(),
            touched: Vec::new(),
            work: GroupWork {
                store: store.clone(),
                held: Vec::new(),
                effects: Effects::default(),
                group: PendingGroup::default(),
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
        self.work.group.records_mut()
    }

    /// Notes when the group was written, by the clock of the store.
    pub(super) fn set_written_ms(&mut self, now_ms: u64) {
        self.work.group.set_written_ms(now_ms);
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

    /// Has the group synced, whoever waits for it.
    pub(super) fn needs_sync_now(&mut self) {
        self.work.needs_sync = true;
    }

    /// The store.
    pub(super) fn store(&self) -> &Store {
        &self.work.store
    }

    /// The group, to add commits that were decided elsewhere.
    pub(super) fn group_mut(&mut self) -> &mut PendingGroup {
        &mut self.work.group
    }

    /// Returns a database in which the group does something that was decided elsewhere.
    pub(super) fn followed_database(
        &mut self,
        id: DatabaseId,
    ) -> Result<&mut PendingDatabase, &'static str> {
        self.group_and_database(id).map(|(_, pending)| pending)
    }

    /// The same with the group.
    pub(super) fn group_and_database(
        &mut self,
        id: DatabaseId,
    ) -> Result<(&mut PendingGroup, &mut PendingDatabase), &'static str> {
        const UNKNOWN: &str = "it changes a database that is not there";
        self.touch(id).map_err(|_| UNKNOWN)?;
        let pending = self.databases.get_mut(&id).ok_or(UNKNOWN)?;
        Ok((&mut self.work.group, pending))
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
        self.work.group.records_mut().push(&record.raw());
        self.work.group.push(PendingCommit {
            database: record.database,
            sequence: record.sequence,
            rule: PublishAfter::Synced,
            what: PendingChange::Convert,
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
    /// in the group are passed over, and must be [put back](GroupDecider::put_back). Returns
    /// whether these were all; otherwise the group is complete.
    pub(super) fn decide_batch(
        &mut self,
        from: usize,
        batch: &WriteBatch,
        next: &mut usize,
        now_ms: u64,
        trees: &TreeWriters,
        answers: &mut Answers,
    ) -> bool {
        while let Some(run) = (batch.logged()[*next..].chunk_by(CommitRecord::is_alike)).next() {
            let first = &run[0];
            if self.work.is_complete() {
                return false;
            }
            if self.work.passes_over(from, first) {
                *next += 1;
            } else if first.is_of_catalogue() {
                let pending = self.databases.get(&first.database);
                let growth_entries = pending.map_or(0, |pending| pending.growth_entries);
                let work = &mut self.work;
                if !work.change_catalogue(batch, first, growth_entries, trees, answers) {
                    return false;
                }
                *next += 1;
            } else {
                *next += self.decide_run(from, batch, run, now_ms, trees, answers);
            }
        }
        true
    }

    /// Puts those that were passed over back into their batch.
    pub(super) fn put_back(&mut self, batch: &mut WriteBatch, next: &mut usize) {
        if !self.work.held.is_empty() {
            batch.keep_logged(&mut self.work.held, *next);
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
        if let Err(refusal) = self.touch(id) {
            for commit in commits {
                answers.written.refuse(commit, refusal);
            }
            return commits.len();
        }
        let pending = self.databases.get_mut(&id).expect("it was just touched");
        let database = pending.database.clone();
        // Nobody else writes here, so readers are all that the lock has to do with.
        let state = database.state.read();
        let mut grouped = Grouped {
            work: &mut self.work,
            pending,
            visible: Visible::new(&state, trees.get(id)),
            answers,
            from,
            change: None,
        };
        engine::carry_out(&mut grouped, batch, commits, now_ms)
    }

    /// Notes that the group does something in a database, or returns why it cannot.
    fn touch(&mut self, id: DatabaseId) -> Result<(), Refusal> {
        if self.work.is_frozen(id) {
            return Err(Refusal::Converting);
        }
        if self.touched.contains(&id) {
            return Ok(());
        }
        if !self.databases.contains_key(&id) {
            let database = (self.work.store.find(id)).ok_or(Refusal::UnknownDatabase)?;
            self.databases.insert(id, PendingDatabase::new(database));
        }
        self.touched.push(id);
        Ok(())
    }

    /// Has the group synced, with a record that raises the last sequence in the log to `sequence`,
    /// if nothing else in it is as high.
    pub(super) fn add_mark(&mut self, sequence: u64, written_sequence: u64) {
        if sequence > written_sequence.max(self.work.group.records().last_sequence()) {
            self.work
                .group
                .records_mut()
                .push(&RawRecord::mark(sequence));
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
            if matches!(commit.what, PendingChange::Drop | PendingChange::Convert) {
                self.databases.remove(&commit.database);
            }
        }
        self.work.group.clear();
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
            || self.group.records().is_full_beside(copied_bytes)
    }

    /// Holds a commit of a loop for a later group if it has no turn in this one, with all of its
    /// connection that come behind it. Returns whether that is so.
    #[inline]
    fn passes_over(&mut self, from: usize, commit: &CommitRecord) -> bool {
        let is_held =
            !commit.is_abandoned && (self.shares).holds(from, commit.source, commit.rewrites);
        if is_held {
            self.held.push(*commit);
        }
        is_held
    }

    /// The next sequence; `None` completes the group, since the log must be synced before there is
    /// one.
    pub(super) fn next_sequence(&mut self) -> Option<u64> {
        let sequence = self.store.next_sequence();
        self.is_complete |= sequence.is_none();
        sequence
    }

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
}

impl Grouped<'_> {
    fn rule(&self, commit: &CommitRecord) -> PublishAfter {
        if commit.whole == Some(Whole::Clear) && self.visible.tree().is_some() {
            // A folder is made for what comes after it: the log must have it before.
            return PublishAfter::Synced;
        }
        if self.work.store.acknowledgements().required() > 0 {
            // Followers get what is on the device.
            return PublishAfter::Synced;
        }
        PublishAfter::of(self.pending.database.config.durability)
    }

    /// Decides a commit that changes keys, against what is pending. `Err`: what it has to know is
    /// not known.
    fn decide_keys(&mut self, place: &CommitPlace<'_>) -> Result<CommitVerdict, Refusal> {
        let context = Context {
            sequence: place.sequence,
            now_ms: place.now_ms,
            limits: self.pending.database.config.limits,
        };
        let outcomes = self.answers.of(self.rule(place.commit));
        let (batch, commit, effects) = (place.batch, place.commit, &mut self.work.effects);
        let (overlay, group) = (&self.pending.overlay, &self.work.group);
        match self.visible.index() {
            VisibleIndex::Memory(index) => {
                let view = PendingView {
                    overlay,
                    is_cleared: self.pending.is_cleared,
                    group,
                    index,
                };
                Ok(decide_operations(
                    &view, batch, commit, context, effects, outcomes,
                ))
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
                let verdict = decide_operations(&view, batch, commit, context, effects, outcomes);
                view.problem.get().map_or(Ok(verdict), Err)
            }
        }
    }

    fn check_growth(&self) -> Result<(), Refusal> {
        let (work, visible) = (&*self.work, &self.visible);
        let growth_bytes = work.effects.growth_bytes();
        if let Some(refusal) = visible.full_refusal()
            && work.effects.iter().next().is_some()
        {
            return Err(refusal);
        }
        let refusal = work.refusal.or(visible.refusal());
        if growth_bytes > 0
            && let Some(refusal) = refusal
        {
            return Err(refusal);
        }
        let used = MemoryUse {
            database_bytes: self.used_bytes(),
            store_bytes: (work.store.memory_bytes()).saturating_add_signed(work.growth_bytes),
        };
        let config = &self.pending.database.config;
        used.check_growth(growth_bytes, &config.limits, &work.store)?;
        match config.kind {
            Kind::Memory => used.check_process(growth_bytes, &work.store),
            Kind::Disk | Kind::Remote(_) => Ok(()),
        }
    }

    /// Returns what the database takes, with what is pending.
    fn used_bytes(&self) -> u64 {
        (self.visible.used_bytes()).wrapping_add_signed(self.pending.growth_bytes)
    }
}

impl CommitTarget for Grouped<'_> {
    fn begin(&mut self, commit: &CommitRecord) -> CommitTurn {
        if self.work.is_complete() {
            CommitTurn::Stop
        } else if commit.is_abandoned {
            self.answers.written.refuse(commit, Refusal::Abandoned);
            CommitTurn::Skip
        } else if self.work.passes_over(self.from, commit) {
            CommitTurn::Skip
        } else {
            (self.work.next_sequence()).map_or(CommitTurn::Stop, CommitTurn::Decide)
        }
    }

    fn warm(&self, hashes: impl Iterator<Item = u64>) {
        self.visible.warm(hashes);
    }

    fn outcomes(&mut self, commit: &CommitRecord) -> &mut Outcomes {
        self.answers.of(self.rule(commit))
    }

    fn decide_commit(&mut self, place: &CommitPlace<'_>) -> Result<CommitVerdict, Refusal> {
        let commit = place.commit;
        if commit.database == DatabaseId::BLOBS && self.work.describes_dropped(place) {
            return Err(Refusal::UnknownDatabase);
        }
        let decided = self.decide_keys(place);
        let work = &mut *self.work;
        (work.shares).charge(commit.source, work.effects.rewritten_bytes());
        let verdict = decided?;
        self.check_growth()?;
        let is_synced = self.rule(commit) == PublishAfter::Synced;
        let (work, pending) = (&mut *self.work, &mut *self.pending);
        let (effects, overlay) = (&work.effects, &mut pending.overlay);
        pending.growth_entries += effects.growth_entries();
        let places = (work.group).add(effects, place, overlay);
        let growth_bytes = effects.growth_bytes();
        work.needs_sync |= is_synced && !places.is_empty();
        self.change = Some((PendingChange::Keys(places), growth_bytes));
        Ok(verdict)
    }

    fn clear(&mut self, place: &CommitPlace<'_>) -> i64 {
        let removed = self.visible.entries() as i64 + self.pending.growth_entries;
        let (commit, sequence) = (place.commit, place.sequence);
        let (database, origin) = (commit.database, commit.origin);
        let record = Record::of_key(RecordKind::Clear, sequence, database, origin, &[]);
        self.work.group.records_mut().push(&record.raw());
        self.work.needs_sync |= self.rule(place.commit) == PublishAfter::Synced;
        // What comes behind it finds the new tree.
        self.work.is_complete |= self.visible.tree().is_some();
        let growth_bytes = -(self.used_bytes() as i64);
        self.pending.growth_entries -= removed;
        self.pending.clear();
        self.change = Some((PendingChange::Clear, growth_bytes));
        removed
    }

    fn end(&mut self, place: &CommitPlace<'_>) {
        let (what, growth_bytes) = self.change.take().unwrap_or((PendingChange::Keys(0..0), 0));
        let rule = self.rule(place.commit);
        self.pending.growth_bytes += growth_bytes;
        let work = &mut *self.work;
        work.growth_bytes += growth_bytes;
        work.operations += place.commit.operations().len();
        work.group.push(PendingCommit {
            database: place.commit.database,
            sequence: place.sequence,
            rule,
            what,
            growth_bytes,
        });
    }
}
