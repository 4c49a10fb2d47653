//! The durable committer as a value: each step is a call.
//!
//! It joins parts, each of which can be tested alone: the [`GroupBuilder`], the log with its
//! [segments](LogSegments), the [publisher](Publisher), the trees, and what says when to
//! [sync](SyncPlan), when to make a [snapshot](SnapshotPlan) and how a
//! [conversion](Conversions) goes on.

mod awaited;
mod following;
mod shown;
mod supply;

use std::sync::Arc;

use wal::disk::{Disk, FolderLock};
use wal::limits::SEQUENCE_RESERVE;
use wal::{LogEnd, LogWriter, PrepareError, SegmentStock, WriteError};

use self::awaited::AwaitedGroup;
pub(super) use self::awaited::AwaitedProgress;
use super::conversion::{Conversions, Leftover};
use super::event::StorageEvent;
use super::folder::FolderFile;
use super::followed::{FollowError, Followed};
use super::group_builder::GroupBuilder;
use super::pending::PublishAfter;
use super::places::Places;
use super::publish::Publisher;
use super::replay_trees::ReplayedTrees;
use super::retained::RetainedTrees;
use super::segments::{LogSegments, Written};
use super::snapshot_plan::SnapshotPlan;
use super::sync_plan::SyncPlan;
use super::trees::TreeWriters;
use crate::batch::WriteBatch;
use crate::clock::Clock;
use crate::database_id::DatabaseId;
use crate::garbage::Garbage;
use crate::index::Index;
use crate::keep_log::KeepLog;
use crate::limits;
use crate::outcome::{Outcomes, Refusal};
use crate::snapshot::{SnapshotError, SnapshotHeader, SnapshotReport};
use crate::store::Store;
use crate::tree::{TreeIndex, Trees};

/// Commits the write batches of loops to databases with a log. A value without thread and clock;
/// its I/O is that of the log.
///
/// The steps of a group, in this order: decide, write, publish what needs no sync, sync if that is
/// wanted, publish the rest. [`CommitLoop`](super::CommitLoop) takes them.
#[derive(Debug)]
pub struct DurableCommitter {
    store: Store,
    groups: GroupBuilder,
    segments: LogSegments,
    publisher: Publisher,
    syncs: SyncPlan,
    snapshots: SnapshotPlan,
    conversions: Conversions,
    followed: Followed,
    trees: TreeWriters,
    /// Trees of which a snapshot has nothing yet, though what was in them is in memory now.
    retained: RetainedTrees,
    /// How long to wait before the next group, so that the device keeps up with the trees.
    delay_ns: u64,
    /// Somebody has asked for a mark in the log.
    mark_asked: bool,
    /// The group that waits for followers.
    awaited: Option<AwaitedGroup>,
    /// Where the log ended before the group that is under way, if it may have to wait.
    end_before_group: Option<LogEnd>,
    /// What the start has found waits for followers, or has.
    has_awaited_start: bool,
    failed: bool,
    events: Vec<StorageEvent>,
    folder: ClaimedFolder,
}

/// The data folder, which is this committer's until it is dropped.
#[derive(Debug)]
struct ClaimedFolder {
    /// Of the folder above them, which is unlocked behind this.
    _removals: Removals,
    /// Says what the log must have.
    file: Arc<FolderFile>,
    _lock: FolderLock,
}

/// What a committer is made of.
pub(super) struct CommitterParts {
    pub(super) log: LogWriter,
    pub(super) stock: SegmentStock,
    pub(super) lock: FolderLock,
    pub(super) snapshots: SnapshotPlan,
    pub(super) trees: ReplayedTrees,
    pub(super) folder_file: Arc<FolderFile>,
    pub(super) folder_was_damaged: bool,
    pub(super) keep_log: KeepLog,
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

/// How far the writing of a group has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum GroupProgress {
    /// It is done, or refused.
    Done,
    /// The log needs its next segment. Bring it ([`take_segment`](DurableCommitter::take_segment))
    /// or say that there is none ([`no_segment`](DurableCommitter::no_segment)), and call again.
    NeedsSegment,
}

impl DurableCommitter {
    pub(super) fn new(store: &Store, parts: CommitterParts) -> DurableCommitter {
        let mut trees = TreeWriters::new(store);
        for (id, writer) in parts.trees.writers {
            trees.insert(id, writer);
        }
        let mut snapshots = parts.snapshots;
        for retained in &parts.trees.retained {
            snapshots.want(retained.sequence);
        }
        let events = match parts.folder_was_damaged {
            true => vec![StorageEvent::FolderRemade],
            false => Vec::new(),
        };
        let committer = DurableCommitter {
            store: store.clone(),
            groups: GroupBuilder::new(store),
            segments: LogSegments::new(parts.log, parts.stock, parts.keep_log),
            publisher: Publisher::new(store),
            syncs: SyncPlan::new(),
            snapshots,
            conversions: Conversions::default(),
            followed: Followed::default(),
            trees,
            retained: RetainedTrees::new(parts.trees.retained),
            delay_ns: 0,
            mark_asked: false,
            awaited: None,
            end_before_group: None,
            has_awaited_start: false,
            failed: false,
            events,
            folder: ClaimedFolder {
                _removals: Removals(store.trees().cloned()),
                file: parts.folder_file,
                _lock: parts.lock,
            },
        };
        committer.raise_reserve();
        committer.show_statistics();
        committer
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    // --- a group

    /// Takes over a batch of a loop. Loops are numbered from 0.
    pub(super) fn gather(&mut self, from: usize, batch: WriteBatch) {
        self.groups.gather(from, batch);
    }

    /// Completes groups with so many operations, at least 1: tests want many groups.
    pub(super) fn set_group_operations(&mut self, operations: usize) {
        self.groups.set_most_operations(operations);
    }

    /// Refuses the commits of a loop that are not decided, and whose callers have left, by their
    /// tags.
    pub(super) fn abandon(&mut self, from: usize, tags: Vec<u64>) {
        self.groups.abandon(from, tags);
    }

    /// Whether there is something to be decided.
    pub(super) fn has_gathered(&self) -> bool {
        if self.is_awaiting() {
            return !self.holds_up_gathered() && self.groups.has_gathered();
        }
        self.groups.has_gathered() || self.conversions.is_pending() || self.followed.is_pending()
    }

    /// Drops commits that are not decided: nobody waits for them any more.
    pub(super) fn drop_gathered(&mut self) {
        self.groups.drop_gathered();
    }

    /// Decides commits, in the order gathered, until the group is complete or nothing is left.
    /// Batches that are done go to `done`.
    pub(super) fn decide_group(
        &mut self,
        clock: &mut dyn Clock,
        done: &mut dyn FnMut(usize, WriteBatch),
    ) {
        let now_ms = self.store.clock_ms(clock.now_ms());
        let refusal = self.refusal();
        self.note_end_before_group();
        self.groups.begin(clock.now_ns(), self.conversions.frozen());
        self.decide_conversion();
        self.groups.build(now_ms, refusal, &self.trees, done);
        self.decide_followed();
        if self.wants_mark() {
            self.mark_asked = false;
            let written_sequence = self.log().written().sequence;
            self.groups.add_mark(self.last_sequence(), written_sequence);
        }
    }

    /// Why no commit at all can be decided.
    fn refusal(&self) -> Option<Refusal> {
        if self.failed {
            return Some(Refusal::LogFailed);
        }
        if self.log().follows() {
            return Some(Refusal::Replica);
        }
        if self.store.higher_epoch() > 0 {
            return Some(Refusal::Superseded);
        }
        let is_spent = self.store.last_sequence() >= self.log().sequence_limit();
        (self.segments.shortage()).filter(|_| is_spent && self.segments.has_no_room_for_mark())
    }

    /// The last sequence given out.
    fn last_sequence(&self) -> u64 {
        self.store.last_sequence().min(self.log().sequence_limit())
    }

    /// Whether the bound on sequences should be raised.
    pub(super) fn wants_mark(&self) -> bool {
        let is_possible =
            !self.failed && !self.log().follows() && !self.segments.has_no_room_for_mark();
        let is_due = self.store.last_sequence() >= self.store.reserve().due();
        is_possible && (is_due || self.mark_asked)
    }

    /// Writes the records of the group.
    pub(super) fn write(&mut self, clock: &mut dyn Clock) -> GroupProgress {
        let progress = self.write_records(clock);
        self.show_statistics();
        progress
    }

    fn write_records(&mut self, clock: &mut dyn Clock) -> GroupProgress {
        let now_ms = self.store.clock_ms(clock.now_ms());
        self.groups.set_written_ms(now_ms);
        match self.segments.write(self.groups.records(), now_ms) {
            Written::Done => self.expect_sync(clock),
            Written::NeedsSegment => return GroupProgress::NeedsSegment,
            Written::NoRoom(refusal) => self.refuse_group(refusal, refusal, &PublishAfter::ALL),
            Written::Failed(why) => {
                self.fail(why);
                self.refuse_group(
                    Refusal::OutcomeUnknown,
                    Refusal::LogFailed,
                    &PublishAfter::ALL,
                );
            }
        }
        GroupProgress::Done
    }

    /// Notes when the group must be synced although nobody waits for it.
    fn expect_sync(&mut self, clock: &mut dyn Clock) {
        if self.log().written() == self.log().durable() {
            return;
        }
        let followed_ms = (self.store.has_followers()).then_some(limits::FOLLOWED_SYNC_MS);
        let interval_ms = self.groups.interval_ms().into_iter().chain(followed_ms);
        if let Some(interval_ms) = interval_ms.min() {
            self.syncs.expect_within(interval_ms, clock.now_ns());
        }
    }

    /// Makes the commits of the group that follow a rule visible, and hands out their outcomes, by
    /// loop. `deliver` may exchange the list for an empty one.
    pub(super) fn publish(
        &mut self,
        rule: PublishAfter,
        clock: &mut dyn Clock,
        deliver: &mut dyn FnMut(usize, &mut Outcomes),
    ) {
        debug_assert!(
            rule == PublishAfter::Written || !self.groups.needs_sync(),
            "a group is synced before it is published"
        );
        let group = self.groups.group();
        (self.publisher).publish(group, rule, &mut self.trees, clock);
        if rule == PublishAfter::Synced {
            self.publish_conversion();
            self.publish_followed();
            if self.groups.touched().any(|id| id == DatabaseId::REPLICAS) {
                self.store.load_replica_set();
            }
            self.look_after_trees();
            self.groups.end(clock.now_ns());
        }
        self.groups.deliver(rule, deliver);
    }

    /// Seals memtables that are full, and says how long to wait for the device. A group has ended.
    fn look_after_trees(&mut self) {
        self.delay_ns = 0;
        if self.trees.is_empty() {
            return;
        }
        let durable_sequence = self.log().durable().sequence;
        if self.trees.maintain(durable_sequence) {
            self.syncs.ask();
        }
        self.delay_ns = self.trees.delay_ns(self.groups.touched());
    }

    /// Something has been flushed or compacted, or has failed.
    pub(super) fn trees_have_changed(&mut self, events: Vec<StorageEvent>) {
        self.events.extend(events);
        self.trees.rebook();
    }

    /// How long to wait before the next group, in nanoseconds, so that the device keeps up with
    /// databases on disk; at most [`DELAY_NS`](crate::tree::limits::DELAY_NS).
    pub(super) fn delay_ns(&self) -> u64 {
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
        let (groups, conversions) = (&mut self.groups, &mut self.conversions);
        let left = conversions.decide(&self.store, self.failed, &mut |record| {
            groups.add_conversion(record);
        });
        self.put_away(left);
    }

    fn publish_conversion(&mut self) {
        let left = self.conversions.publish(&self.store, &mut self.trees);
        self.put_away(left);
    }

    /// Lets go what is left of a conversion, or keeps it as long as it is of use.
    fn put_away(&mut self, left: Option<Leftover>) {
        let garbage = self.publisher.garbage();
        match left {
            None => {}
            // A start before the next snapshot needs it.
            Some(Leftover::Older {
                index: Index::Tree(tree),
                sequence,
            }) => {
                self.retained.keep(sequence, tree);
                // Until then it takes room on the device.
                self.snapshots.want(sequence);
            }
            Some(Leftover::Older { index, .. } | Leftover::Unused(index)) => match index {
                Index::Memory(content) => garbage.add(content),
                Index::Tree(tree) => garbage.add_tree(tree),
                Index::Remote(_) => {}
            },
            Some(Leftover::Unknown(tree)) => garbage.add_closed(tree),
        }
    }

    /// The trees of the databases on disk.
    pub(super) fn trees(&mut self) -> &mut TreeWriters {
        &mut self.trees
    }

    // --- syncs

    /// Whether something waits for a sync: a commit of the group, the bound on sequences, or an
    /// interval that is over.
    pub(super) fn wants_sync(&self, clock: &mut dyn Clock) -> bool {
        let due_ns = self.syncs.due_ns();
        let is_due = due_ns != u64::MAX && clock.now_ns() >= due_ns;
        !self.failed && (self.groups.needs_sync() || is_due || self.syncs.is_asked())
    }

    /// Has the last sequence given out logged, and synced, with the next group.
    pub(super) fn ask_for_mark(&mut self) {
        self.mark_asked = true;
    }

    /// Asks for a sync of all that is written, be it needed or not.
    pub(super) fn ask_for_sync(&mut self) {
        self.syncs.ask();
    }

    /// When a sync is due although nobody waits for it; `u64::MAX`: none is.
    pub(super) fn sync_due_ns(&self) -> u64 {
        match self.failed {
            true => u64::MAX,
            false => self.syncs.due_ns(),
        }
    }

    /// Syncs the log for writes that wait for it, and counts how long they did. Returns that time,
    /// in nanoseconds.
    pub(super) fn sync_for_writes(&mut self, clock: &mut dyn Clock) -> u64 {
        let is_awaited = self.groups.needs_sync();
        let begin_ns = clock.now_ns();
        self.sync_log();
        let took_ns = clock.now_ns().saturating_sub(begin_ns);
        if is_awaited {
            self.groups.waited_for_sync(took_ns);
        }
        self.syncs.add_duration(took_ns);
        self.show_statistics();
        took_ns
    }

    /// Syncs the log.
    pub(crate) fn sync(&mut self) {
        self.sync_log();
        self.show_statistics();
    }

    fn sync_log(&mut self) {
        self.syncs.begin();
        match self.segments.sync() {
            Ok(()) => {
                self.groups.was_synced();
                self.raise_reserve();
            }
            Err(why) => {
                self.fail(why);
                self.refuse_group(
                    Refusal::OutcomeUnknown,
                    Refusal::LogFailed,
                    &[PublishAfter::Synced],
                );
            }
        }
    }

    fn raise_reserve(&self) {
        if self.log().follows() {
            // Nobody gives out a sequence here.
            return self.store.reserve().set(0, 0);
        }
        let limit = self.log().sequence_limit();
        self.store
            .reserve()
            .set(limit - SEQUENCE_RESERVE / 2, limit);
    }

    fn fail(&mut self, why: String) {
        self.failed = true;
        self.store.reserve().fail();
        self.events.push(StorageEvent::Failed(why));
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
    fn refuse_group(&mut self, applied: Refusal, other: Refusal, rules: &[PublishAfter]) {
        let left = self.conversions.refuse(applied);
        self.put_away(left);
        self.followed.fail(FollowError::Refused(applied));
        self.awaited = None;
        self.groups.refuse(applied, other, rules);
    }

    /// Whether a write or sync of the log has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed
    }

    /// What has happened since this was asked last.
    pub fn take_events(&mut self) -> Vec<StorageEvent> {
        std::mem::take(&mut self.events)
    }

    /// What was cleared: drop it on a thread that may pause.
    pub(super) fn take_garbage(&mut self) -> Garbage {
        std::mem::take(self.publisher.garbage())
    }

    /// Takes back what could not be freed yet.
    pub(super) fn keep_garbage(&mut self, garbage: Garbage) {
        self.publisher.garbage().append(garbage);
    }

    // --- snapshots

    /// What a snapshot is of that begins now: everything up to the last sequence in the log is
    /// visible, and the catalogue is as that left it. `None`: the log has failed.
    ///
    /// Call it between two groups, or while one waits for followers: of that it has nothing.
    pub(super) fn snapshot_base(&mut self, clock: &mut dyn Clock) -> Option<SnapshotHeader> {
        let header = self.base_header(clock)?;
        // What is in memory since before the last one keeps the log from being shortened.
        let durable_sequence = self.log().durable().sequence;
        self.trees
            .seal_older_than(self.snapshots.sequence(), durable_sequence);
        self.snapshots.begin(self.log().work());
        Some(header)
    }

    /// The same for a copy that goes elsewhere: those in the data folder take no notice of it.
    pub(crate) fn base_header(&self, clock: &mut dyn Clock) -> Option<SnapshotHeader> {
        assert!(
            self.is_awaiting() || self.groups.group().is_empty(),
            "a snapshot begins between two groups, or while one waits"
        );
        let sequence = self.visible_sequence();
        // Before the lists: what was flushed is in them.
        let replay_sequence = self.trees.flushed_through(sequence);
        (!self.failed).then(|| SnapshotHeader {
            history_id: self.log().history_id(),
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
    pub(super) fn wants_snapshot(&self, clock: &mut dyn Clock) -> bool {
        !self.failed && self.snapshots.is_due(self.log().work(), clock)
    }

    /// Whether a snapshot at a clean stop is worth it.
    pub(super) fn wants_last_snapshot(&self) -> bool {
        !self.failed && (self.snapshots).is_cheap(self.log().work(), &self.store)
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
                // It has what was in trees that databases came into memory from.
                for tree in self.retained.release_through(report.sequence) {
                    self.publisher.garbage().add_tree(tree);
                }
                self.snapshots.installed(&report);
                self.events.push(StorageEvent::SnapshotMade(report));
            }
            Err(error) => {
                self.snapshots.failed(clock);
                if !matches!(error, SnapshotError::Stopping) {
                    self.snapshots.count_failure();
                    self.events
                        .push(StorageEvent::SnapshotFailed(error.to_string()));
                }
            }
        }
        self.show_statistics();
    }

    /// What must stay in its place while this runs.
    pub(super) fn places(&self) -> Places {
        Places::new(self.folder.file.clone(), self.store.clone())
    }

    /// The log.
    pub(crate) fn log(&self) -> &LogWriter {
        self.segments.log()
    }

    /// Whether the smallest group, a mark or the closing one, needs the next segment.
    pub(super) fn needs_segment_to_close(&self) -> bool {
        self.segments.needs_segment_for_mark()
    }

    /// Ends a clean stop: syncs, and writes the closing group. Nothing must be gathered, and no
    /// loop may commit any more.
    pub(super) fn close(self, clock: &mut dyn Clock) -> Result<(), WriteError> {
        debug_assert!(!self.groups.has_gathered());
        let now_ms = self.store.clock_ms(clock.now_ms());
        let written_sequence = self.log().written().sequence;
        let last_sequence = match self.log().follows() {
            true => written_sequence,
            false => self.last_sequence().max(written_sequence),
        };
        self.segments.close(last_sequence, now_ms)?;
        self.folder.file.note_durable(last_sequence);
        Ok(())
    }
}
