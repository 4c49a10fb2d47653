//! The durable committer as a value: each step is a call.

use std::collections::VecDeque;
use std::sync::Arc;

use wal::disk::{Disk, FolderLock, NoRoom};
use wal::limits::SEQUENCE_RESERVE;
use wal::{
    ALIGN_BYTES, LogWriter, PrepareError, ReadySegment, RetiredSegment, SegmentStock,
    WantedSegment, WriteError,
};

use super::conversion::{Conversions, Leftover};
use super::decider::{Answers, Decider};
use super::event::Event;
use super::folder::FolderFile;
use super::group_sizing::GroupSizing;
use super::pending::Rule;
use super::places::Places;
use super::publish::Publisher;
use super::replay_trees::{ReplayedTrees, Retained};
use super::snapshot_plan::SnapshotPlan;
use super::trees::TreeWriters;
use crate::batch::WriteBatch;
use crate::clock::Clock;
use crate::database::Durability;
use crate::durations::Durations;
use crate::garbage::Garbage;
use crate::index::Index;
use crate::log_statistics::LogStatistics;
use crate::outcome::{Decision, Outcomes, Refusal};
use crate::snapshot::{Header, SnapshotError, SnapshotReport};
use crate::store::Store;
use crate::tree::{TreeIndex, Trees};

/// Commits the write batches of loops to databases with a log. A value without thread and clock;
/// its I/O is that of the log.
///
/// The steps of a group, in this order: [`decide`](DurableCommitter::decide),
/// [`write`](DurableCommitter::write), [`publish`](DurableCommitter::publish) what needs no sync,
/// [`sync`](DurableCommitter::sync) if it is [wanted](DurableCommitter::wants_sync), publish the
/// rest.
#[derive(Debug)]
pub struct DurableCommitter {
    store: Store,
    log: LogWriter,
    /// Until somebody else [takes](DurableCommitter::take_stock) it.
    stock: Option<SegmentStock>,
    gathered: VecDeque<Gathered>,
    group_sizing: GroupSizing,
    /// No group has more operations than this, but for those of its last commit.
    group_operations: usize,
    decider: Decider,
    publisher: Publisher,
    /// By loop.
    answers: Vec<Answers>,
    /// The loops with commits in the group.
    answered: Vec<usize>,
    /// When what is written must be synced although nobody waits for it.
    sync_due_ns: u64,
    /// Somebody has asked for a sync.
    sync_asked: bool,
    /// Somebody has asked for a mark in the log.
    mark_asked: bool,
    failed: bool,
    /// No next segment could be made ready, and why commits that grow a database are refused.
    shortage: Option<Refusal>,
    events: Vec<Event>,
    snapshots: SnapshotPlan,
    sync_durations: Durations,
    trees: TreeWriters,
    /// Trees of which a snapshot has nothing yet, though what was in them is in memory now.
    retained: Vec<Retained>,
    conversions: Conversions,
    /// How long to wait before the next group, so that the device keeps up with the trees.
    delay_ns: u64,
    /// Of the folder above them, which is unlocked behind this.
    _removals: Removals,
    /// Says what the log must have.
    folder_file: Arc<FolderFile>,
    _lock: FolderLock,
}

/// What a committer is made of.
pub(super) struct Parts {
    pub(super) log: LogWriter,
    pub(super) stock: SegmentStock,
    pub(super) lock: FolderLock,
    pub(super) snapshots: SnapshotPlan,
    pub(super) trees: ReplayedTrees,
    pub(super) folder_file: Arc<FolderFile>,
    pub(super) folder_was_damaged: bool,
}

/// Ends the removal of folders of trees when it is dropped: the next start may begin then.
#[derive(Debug)]
struct Removals(Option<Trees>);

impl Drop for Removals {
    fn drop(&mut self) {
        if let Some(trees) = &self.0 {
            trees.close();
        }
    }
}

/// A batch of a loop.
#[derive(Debug)]
struct Gathered {
    from: usize,
    batch: WriteBatch,
    /// How many of its commits are decided.
    next: usize,
}

impl Gathered {
    /// Operations of the commits that are not decided.
    fn operations(&self) -> usize {
        match &self.batch.logged()[self.next..] {
            [] => 0,
            [first, .., last] => last.operations().end - first.operations().start,
            [only] => only.operations().len(),
        }
    }
}

/// How far the writing of a group has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// It is done, or refused.
    Done,
    /// The log needs its next segment. Bring it ([`take_segment`](DurableCommitter::take_segment))
    /// or say that there is none ([`no_segment`](DurableCommitter::no_segment)), and call again.
    NeedsSegment,
}

impl DurableCommitter {
    pub(super) fn new(store: &Store, parts: Parts) -> DurableCommitter {
        let mut trees = TreeWriters::new(store);
        for (id, writer) in parts.trees.writers {
            trees.insert(id, writer);
        }
        let mut snapshots = parts.snapshots;
        for retained in &parts.trees.retained {
            snapshots.want(retained.sequence);
        }
        let committer = DurableCommitter {
            trees,
            retained: parts.trees.retained,
            conversions: Conversions::default(),
            delay_ns: 0,
            store: store.clone(),
            group_sizing: GroupSizing::default(),
            group_operations: usize::MAX,
            decider: Decider::new(store),
            publisher: Publisher::new(store),
            log: parts.log,
            stock: Some(parts.stock),
            gathered: VecDeque::new(),
            answers: Vec::new(),
            answered: Vec::new(),
            sync_due_ns: u64::MAX,
            sync_asked: false,
            mark_asked: false,
            failed: false,
            shortage: None,
            events: match parts.folder_was_damaged {
                true => vec![Event::FolderRemade],
                false => Vec::new(),
            },
            snapshots,
            sync_durations: Durations::default(),
            _removals: Removals(store.trees().cloned()),
            folder_file: parts.folder_file,
            _lock: parts.lock,
        };
        committer.raise_reserve();
        committer.show_statistics();
        committer
    }

    /// Lets those who ask see how the log is now.
    fn show_statistics(&self) {
        let log = &self.log;
        let work = log.work();
        self.store.set_log_statistics(LogStatistics {
            segment_bytes: log.segment_bytes(),
            segments: log.segments(),
            written_sequence: log.written().sequence,
            durable_sequence: log.durable().sequence,
            groups: work.groups,
            records: work.records,
            group_bytes: work.bytes,
            syncs: work.syncs,
            sync_durations: self.sync_durations,
            snapshot_sequence: self.snapshots.sequence(),
            snapshot_bytes: self.snapshots.file_bytes(),
            snapshots_made: self.snapshots.made(),
            snapshots_failed: self.snapshots.failures(),
            is_full: self.is_full(),
            is_not_ready: self.shortage == Some(Refusal::LogNotReady),
            has_failed: self.failed,
        });
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Takes over a batch of a loop. Loops are numbered from 0.
    pub fn gather(&mut self, from: usize, batch: WriteBatch) {
        if from >= self.answers.len() {
            self.answers.resize_with(from + 1, Answers::default);
        }
        self.gathered.push_back(Gathered {
            from,
            batch,
            next: 0,
        });
    }

    /// Completes groups with so many operations, at least 1: tests want many groups.
    pub(super) fn set_group_operations(&mut self, operations: usize) {
        self.group_operations = operations;
    }

    /// Refuses the commits of a loop that are not decided, and whose callers have left, by their
    /// tags.
    pub(super) fn abandon(&mut self, from: usize, mut tags: Vec<u64>) {
        if tags.is_empty() {
            return;
        }
        tags.sort_unstable();
        for gathered in self.gathered.iter_mut().filter(|one| one.from == from) {
            gathered.batch.abandon(gathered.next, &tags);
        }
    }

    /// Whether there are commits that are not decided.
    pub fn has_gathered(&self) -> bool {
        !self.gathered.is_empty() || self.conversions.is_pending()
    }

    /// Drops commits that are not decided: nobody waits for them any more.
    pub(super) fn drop_gathered(&mut self) {
        self.gathered.clear();
    }

    /// Decides commits, in the order gathered, until the group is complete or nothing is left.
    /// Batches that are done go to `done`.
    pub fn decide(&mut self, clock: &mut dyn Clock, done: &mut dyn FnMut(usize, WriteBatch)) {
        debug_assert!(self.decider.group().is_empty());
        let now_ms = self.store.clock_ms(clock.now_ms());
        let refusal = self.refusal();
        let gathered = self.gathered.iter().map(Gathered::operations).sum();
        let most_operations = self.group_sizing.begin(gathered, clock.now_ns());
        let most_operations = most_operations.min(self.group_operations);
        self.decider
            .begin(most_operations, self.conversions.frozen());
        self.decide_conversion();
        self.decide_gathered(now_ms, refusal, done);
        if self.decider.rests_for_nobody() {
            self.decide_gathered(now_ms, refusal, done);
        }
        if self.wants_mark() {
            self.mark_asked = false;
            let sequence = self.last_sequence();
            let written_sequence = self.log.written().sequence;
            self.decider.add_mark(sequence, written_sequence);
        }
    }

    fn decide_gathered(
        &mut self,
        now_ms: u64,
        refusal: Option<Refusal>,
        done: &mut dyn FnMut(usize, WriteBatch),
    ) {
        // Those with commits that were passed over come back in front, in their order.
        let mut passed_over = Vec::new();
        while let Some(mut gathered) = self.gathered.pop_front() {
            let Gathered { from, batch, next } = &mut gathered;
            self.answered.push(*from);
            let answers = &mut self.answers[*from];
            let mut is_complete = false;
            if let Some(refusal) = refusal {
                refuse(batch, next, refusal, &mut answers.synced);
            } else {
                let trees = &self.trees;
                is_complete = !(self.decider).decide(*from, batch, next, now_ms, trees, answers);
            }
            self.decider.put_back(batch, next);
            if *next < batch.logged_len() {
                passed_over.push(gathered);
            } else {
                done(gathered.from, gathered.batch);
            }
            if is_complete {
                break;
            }
        }
        for gathered in passed_over.into_iter().rev() {
            self.gathered.push_front(gathered);
        }
    }

    /// Why no commit at all can be decided.
    fn refusal(&self) -> Option<Refusal> {
        if self.failed {
            return Some(Refusal::LogFailed);
        }
        let is_spent = self.store.last_sequence() >= self.log.sequence_limit();
        self.shortage
            .filter(|_| is_spent && self.has_no_room_for_mark())
    }

    /// Whether the bound on sequences cannot be raised before there is room on the disk.
    fn has_no_room_for_mark(&self) -> bool {
        self.shortage.is_some() && self.needs_segment_to_close()
    }

    /// The last sequence given out.
    fn last_sequence(&self) -> u64 {
        self.store.last_sequence().min(self.log.sequence_limit())
    }

    /// Whether the bound on sequences should be raised.
    pub fn wants_mark(&self) -> bool {
        let is_possible = !self.failed && !self.has_no_room_for_mark();
        let is_due = self.store.last_sequence() >= self.store.reserve().due();
        is_possible && (is_due || self.mark_asked)
    }

    /// Writes the records of the group.
    pub fn write(&mut self, clock: &mut dyn Clock) -> Progress {
        let progress = self.write_records(clock);
        self.show_statistics();
        progress
    }

    fn write_records(&mut self, clock: &mut dyn Clock) -> Progress {
        let now_ms = self.store.clock_ms(clock.now_ms());
        match self.log.write_group(self.decider.records(), now_ms) {
            Ok(_) => {
                self.expect_sync(clock);
                Progress::Done
            }
            Err(WriteError::NoRoom { source: None, .. }) if self.shortage.is_none() => {
                Progress::NeedsSegment
            }
            Err(WriteError::NoRoom { source, .. }) => {
                // With a source, the next segment is there and only this group too large for it:
                // smaller ones go on.
                let refusal = match &source {
                    Some(source) => match NoRoom::of(source) {
                        Some(NoRoom::Disk | NoRoom::Quota) => Refusal::LogFull,
                        Some(NoRoom::FileSize) | None => Refusal::LogNotReady,
                    },
                    None => self.shortage.unwrap_or(Refusal::LogNotReady),
                };
                self.refuse_group(refusal, refusal, &Rule::ALL);
                Progress::Done
            }
            Err(error) => {
                self.fail(error.to_string());
                self.refuse_group(Refusal::OutcomeUnknown, Refusal::LogFailed, &Rule::ALL);
                Progress::Done
            }
        }
    }

    /// Notes when the group must be synced although nobody waits for it.
    fn expect_sync(&mut self, clock: &mut dyn Clock) {
        if self.log.written() == self.log.durable() {
            return;
        }
        let intervals =
            self.decider
                .touched()
                .filter_map(|pending| match pending.database.config.durability {
                    Durability::Interval { ms } => Some(ms),
                    _ => None,
                });
        if let Some(ms) = intervals.min() {
            let due_ns = clock.now_ns().saturating_add(ms.saturating_mul(1_000_000));
            self.sync_due_ns = self.sync_due_ns.min(due_ns);
        }
    }

    /// Makes the commits of the group that follow a rule visible, and hands out their outcomes, by
    /// loop. `deliver` may exchange the list for an empty one.
    pub fn publish(
        &mut self,
        rule: Rule,
        clock: &mut dyn Clock,
        deliver: &mut dyn FnMut(usize, &mut Outcomes),
    ) {
        debug_assert!(
            rule == Rule::Written || !self.decider.needs_sync(),
            "a group is synced before it is published"
        );
        let group = self.decider.group();
        (self.publisher).publish(group, rule, &mut self.trees, clock);
        if rule == Rule::Synced {
            let operations = self.decider.operations();
            self.group_sizing.end(operations, clock.now_ns());
            self.publish_conversion();
            self.look_after_trees();
            self.decider.reset();
        }
        self.answered.sort_unstable();
        self.answered.dedup();
        for &from in &self.answered {
            let outcomes = self.answers[from].of(rule);
            if !outcomes.is_empty() {
                deliver(from, outcomes);
                outcomes.clear();
            }
        }
        if rule == Rule::Synced {
            self.answered.clear();
        }
    }

    /// Seals memtables that are full, and says how long to wait for the device. A group has ended.
    fn look_after_trees(&mut self) {
        self.delay_ns = 0;
        if self.trees.is_empty() {
            return;
        }
        let durable_sequence = self.log.durable().sequence;
        self.sync_asked |= self.trees.maintain(durable_sequence);
        self.delay_ns = self.trees.delay_ns(self.decider.touched_ids());
    }

    /// Something has been flushed or compacted, or has failed.
    pub(super) fn trees_have_changed(&mut self, events: Vec<Event>) {
        self.events.extend(events);
        self.trees.rebook();
    }

    /// How long to wait before the next group, in nanoseconds, so that the device keeps up with
    /// databases on disk; at most [`DELAY_NS`](crate::tree::limits::DELAY_NS).
    pub fn delay_ns(&self) -> u64 {
        self.delay_ns
    }

    /// The conversions.
    pub(super) fn conversions(&mut self) -> &mut Conversions {
        &mut self.conversions
    }

    /// Whether a database is being converted.
    pub(crate) fn is_converting(&self) -> bool {
        self.conversions.is_converting()
    }

    fn decide_conversion(&mut self) {
        let (decider, conversions) = (&mut self.decider, &mut self.conversions);
        let left = conversions.decide(&self.store, self.failed, &mut |record| {
            decider.add_conversion(record);
        });
        self.put_away(left);
    }

    fn publish_conversion(&mut self) {
        let left = self.conversions.publish(&self.store, &mut self.trees);
        self.put_away(left);
    }

    /// Lets go what is left of a conversion, or keeps it as long as it is of use.
    fn put_away(&mut self, left: Option<Leftover>) {
        let garbage = &mut self.publisher.garbage;
        match left {
            None => {}
            // A start before the next snapshot needs it.
            Some(Leftover::Older {
                index: Index::Tree(tree),
                sequence,
            }) => {
                self.retained.push(Retained { sequence, tree });
                // Until then it takes room on the device.
                self.snapshots.want(sequence);
            }
            Some(Leftover::Older { index, .. } | Leftover::Unused(index)) => match index {
                Index::Memory(content) => garbage.add(content),
                Index::Tree(tree) => garbage.add_tree(tree),
            },
            Some(Leftover::Unknown(tree)) => garbage.add_closed(tree),
        }
    }

    /// The trees of the databases on disk.
    pub(super) fn trees(&mut self) -> &mut TreeWriters {
        &mut self.trees
    }

    /// Whether something waits for a sync: a commit of the group, the bound on sequences, or an
    /// interval that is over.
    pub fn wants_sync(&self, clock: &mut dyn Clock) -> bool {
        let is_due = self.sync_due_ns != u64::MAX && clock.now_ns() >= self.sync_due_ns;
        !self.failed && (self.decider.needs_sync() || is_due || self.sync_asked)
    }

    /// Has the last sequence given out logged, and synced, with the next group.
    pub(super) fn ask_for_mark(&mut self) {
        self.mark_asked = true;
    }

    /// Asks for a sync of all that is written, be it needed or not.
    pub fn ask_for_sync(&mut self) {
        self.sync_asked = true;
    }

    /// When a sync is due although nobody waits for it; `u64::MAX`: none is.
    pub fn sync_due_ns(&self) -> u64 {
        if self.failed {
            u64::MAX
        } else {
            self.sync_due_ns
        }
    }

    /// Syncs the log for writes that wait for it, and counts how long they did.
    pub fn sync_for_writes(&mut self, clock: &mut dyn Clock) {
        let is_awaited = self.decider.needs_sync();
        let begin_ns = clock.now_ns();
        self.sync_log();
        let took_ns = clock.now_ns().saturating_sub(begin_ns);
        if is_awaited {
            self.group_sizing.synced(took_ns);
        }
        self.sync_durations.add(took_ns);
        self.show_statistics();
    }

    /// Syncs the log.
    pub fn sync(&mut self) {
        self.sync_log();
        self.show_statistics();
    }

    fn sync_log(&mut self) {
        self.sync_due_ns = u64::MAX;
        self.sync_asked = false;
        match self.log.sync() {
            Ok(_) => {
                self.decider.was_synced();
                self.raise_reserve();
            }
            Err(error) => {
                self.fail(error.to_string());
                self.refuse_group(Refusal::OutcomeUnknown, Refusal::LogFailed, &[Rule::Synced]);
            }
        }
    }

    fn raise_reserve(&self) {
        let limit = self.log.sequence_limit();
        self.store
            .reserve()
            .set(limit - SEQUENCE_RESERVE / 2, limit);
    }

    fn fail(&mut self, why: String) {
        self.failed = true;
        self.store.reserve().fail();
        self.events.push(Event::Failed(why));
    }

    /// Writes nothing more until a restart: the data folder is gone from its place, or it is not
    /// known which files of the log have their names on the device. Call it between two groups.
    pub(super) fn give_up(&mut self, error: &PrepareError) {
        // What was answered before its sync is there, for those who put the folder back.
        self.sync();
        if !self.failed {
            self.fail(error.to_string());
            self.show_statistics();
        }
    }

    /// Refuses what the group has decided under some rules.
    fn refuse_group(&mut self, applied: Refusal, other: Refusal, rules: &[Rule]) {
        for answers in &mut self.answers {
            for &rule in rules {
                answers.of(rule).refuse_all(applied, other);
            }
        }
        let left = self.conversions.refuse(applied);
        self.put_away(left);
        // What was published already is over too.
        self.decider.reset();
    }

    /// Whether a write or sync of the log has failed.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// What has happened since this was asked last.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// What was cleared: drop it on a thread that may pause.
    pub fn take_garbage(&mut self) -> Garbage {
        std::mem::take(&mut self.publisher.garbage)
    }

    /// Takes back what could not be freed yet.
    pub(super) fn keep_garbage(&mut self, garbage: Garbage) {
        self.publisher.garbage.append(garbage);
    }

    // --- segments

    /// The segment that the log will need next.
    pub fn wanted_segment(&self) -> Option<WantedSegment> {
        self.log.wanted_segment()
    }

    /// Brings the segment that was wanted.
    pub fn take_segment(&mut self, segment: ReadySegment) {
        self.log.take_segment(segment);
        if self.shortage.is_some() {
            self.set_shortage(None, Event::RoomAgain);
        }
    }

    /// Says that no segment could be made ready: commits that grow a database are refused until
    /// there is one.
    pub fn no_segment(&mut self, error: &PrepareError) {
        let why = error.to_string();
        let (refusal, event) = match error {
            PrepareError::Full { .. } => (Refusal::LogFull, Event::Full(why)),
            PrepareError::Device { .. }
            | PrepareError::Unsure { .. }
            | PrepareError::Removed { .. }
            | PrepareError::Stopped => (Refusal::LogNotReady, Event::NotReady(why)),
        };
        if self.shortage != Some(refusal) {
            self.set_shortage(Some(refusal), event);
        }
    }

    fn set_shortage(&mut self, shortage: Option<Refusal>, event: Event) {
        self.shortage = shortage;
        self.decider.refuse_growth(shortage);
        self.events.push(event);
        self.show_statistics();
    }

    /// Whether there is no room on the disk for more log.
    pub(super) fn is_full(&self) -> bool {
        self.shortage == Some(Refusal::LogFull)
    }

    /// Gives away what makes segments ready, to another thread.
    pub fn take_stock(&mut self) -> Option<SegmentStock> {
        self.stock.take()
    }

    /// Makes the next segment ready, if one is wanted and nobody has taken the stock.
    pub fn prepare_segment(&mut self) {
        if let Some(stock) = &mut self.stock
            && let Some(wanted) = self.log.wanted_segment()
        {
            match stock.prepare(wanted) {
                Ok(segment) => self.take_segment(segment),
                Err(error) => self.no_segment(&error),
            }
        }
    }

    /// Gives away the segments that nobody needs any more once every index has, on its own device,
    /// what the log holds up to a sequence: they are for [`SegmentStock::retire`].
    pub fn retire_through(&mut self, sequence: u64) -> Vec<RetiredSegment> {
        let retired = self.log.retire_through(sequence);
        self.show_statistics();
        retired
    }

    /// Takes such segments back, if nobody has taken the stock.
    pub(super) fn retire_segments(&mut self, retired: Vec<RetiredSegment>) {
        if let Some(stock) = &mut self.stock
            && let Err(error) = stock.retire(retired)
        {
            self.not_retired(&error);
        }
    }

    /// Says that segments could not be taken back.
    pub(super) fn not_retired(&mut self, error: &PrepareError) {
        self.events.push(Event::NotRetired(error.to_string()));
    }

    /// Takes back what makes segments ready, from a thread that has ended.
    pub(super) fn give_stock(&mut self, stock: SegmentStock) {
        self.stock = Some(stock);
    }

    // --- snapshots

    /// What a snapshot is of that begins now: everything up to the last sequence in the log is
    /// visible, and the catalogue is as that left it. `None`: the log has failed.
    ///
    /// Call it between two groups.
    pub fn snapshot_base(&mut self, clock: &mut dyn Clock) -> Option<Header> {
        let header = self.base_header(clock)?;
        // What is in memory since before the last one keeps the log from being shortened.
        let durable_sequence = self.log.durable().sequence;
        self.trees
            .seal_older_than(self.snapshots.sequence(), durable_sequence);
        self.snapshots.begin(self.log.work());
        Some(header)
    }

    /// The same for a copy that goes elsewhere: those in the data folder take no notice of it.
    pub(crate) fn base_header(&self, clock: &mut dyn Clock) -> Option<Header> {
        assert!(
            self.decider.group().is_empty(),
            "a snapshot begins between two groups"
        );
        let sequence = self.log.written().sequence;
        // Before the lists: what was flushed is in them.
        let replay_sequence = self.trees.flushed_through(sequence);
        (!self.failed).then(|| Header {
            history_id: self.log.history_id(),
            sequence,
            replay_sequence,
            wall_ms: self.store.clock_ms(clock.now_ms()),
            next_database: self.store.next_database_number(),
            databases: self.store.all_databases(),
            tree_lists: self.trees.lists(),
        })
    }

    /// The data folder.
    pub(crate) fn folder(&self) -> &Arc<dyn Disk> {
        self.snapshots.disk()
    }

    /// The trees of all databases on disk.
    pub(crate) fn tree_indexes(&self) -> Vec<TreeIndex> {
        self.trees.indexes().cloned().collect()
    }

    /// When a snapshot is made, and of which folder.
    pub(super) fn snapshots(&self) -> &SnapshotPlan {
        &self.snapshots
    }

    /// Whether it is time for a snapshot that nobody has asked for.
    pub fn wants_snapshot(&self, clock: &mut dyn Clock) -> bool {
        !self.failed && self.snapshots.is_due(self.log.work(), clock)
    }

    /// Whether a snapshot at a clean stop is worth it.
    pub(super) fn wants_last_snapshot(&self) -> bool {
        !self.failed && (self.snapshots).is_cheap(self.log.work(), &self.store)
    }

    /// A snapshot that began with [`snapshot_base`](DurableCommitter::snapshot_base) has come to
    /// this.
    pub(super) fn snapshot_ended(
        &mut self,
        result: Result<SnapshotReport, SnapshotError>,
        clock: &mut dyn Clock,
    ) {
        match result {
            Ok(report) => {
                self.let_retained_go(report.sequence);
                self.snapshots.installed(&report);
                self.events.push(Event::SnapshotMade(report));
            }
            Err(error) => {
                self.snapshots.failed(clock);
                if !matches!(error, SnapshotError::Stopping) {
                    self.snapshots.count_failure();
                    self.events.push(Event::SnapshotFailed(error.to_string()));
                }
            }
        }
        self.show_statistics();
    }

    /// A snapshot has what was in trees that databases came into memory from.
    fn let_retained_go(&mut self, sequence: u64) {
        let (gone, kept) = std::mem::take(&mut self.retained)
            .into_iter()
            .partition(|retained| retained.sequence <= sequence);
        self.retained = kept;
        for retained in gone {
            self.publisher.garbage.add_tree(retained.tree);
        }
    }

    /// What must stay in its place while this runs.
    pub(super) fn places(&self) -> Places {
        Places::new(self.folder_file.clone(), self.store.clone())
    }

    /// The log.
    pub fn log(&self) -> &LogWriter {
        &self.log
    }

    /// Whether the smallest group, a mark or the closing one, needs the next segment.
    pub(super) fn needs_segment_to_close(&self) -> bool {
        self.log.is_short_of(ALIGN_BYTES as u64) && self.log.wanted_segment().is_some()
    }

    /// Ends a clean stop: syncs, and writes the closing group. Nothing must be gathered, and no
    /// loop may commit any more.
    pub fn close(self, clock: &mut dyn Clock) -> Result<(), WriteError> {
        debug_assert!(self.gathered.is_empty());
        let now_ms = self.store.clock_ms(clock.now_ms());
        let last_sequence = self.last_sequence().max(self.log.written().sequence);
        self.log.close(last_sequence, now_ms)?;
        self.folder_file.note_durable(last_sequence);
        Ok(())
    }
}

/// Refuses what is left of a batch.
fn refuse(batch: &WriteBatch, next: &mut usize, refusal: Refusal, outcomes: &mut Outcomes) {
    for commit in &batch.logged()[*next..] {
        let verdict = Decision::Refused(refusal).into();
        outcomes.finish(&outcomes.mark(), commit, 0, verdict);
    }
    *next = batch.logged().len();
}
