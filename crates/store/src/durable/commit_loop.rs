//! The commit loop: each round takes batches from the mailboxes through a group, and outcomes back
//! to the mailboxes.

use std::fmt;
use std::sync::Arc;

use wal::{RetiredSegment, WriteError};

use super::committer::{AwaitedProgress, DurableCommitter, GroupProgress};
use super::event::StorageEvent;
use super::hold::Holds;
use super::mailbox::{CommitWaker, CommitterMailbox, Hub, Mailbox};
use super::pending::PublishAfter;
use super::snapshot_job::{SnapshotJob, SnapshotStep};
use crate::clock::Clock;
use crate::garbage::Garbage;
use crate::limits;
use crate::outcome::Outcomes;
use crate::snapshot::{self, SnapshotError};
use crate::tree::TreeError;

/// The durable committer with the mailboxes of the loops, a round at a time: what its thread runs,
/// and a simulation without a thread.
pub struct CommitLoop {
    committer: DurableCommitter,
    hub: Arc<Hub>,
    /// Those that have ever submitted something, by number.
    slots: Vec<Option<Arc<CommitterMailbox>>>,
    /// Those that are collected.
    submitted: Vec<Arc<CommitterMailbox>>,
    /// Loops to wake, by their number.
    answered: Vec<usize>,
    /// How long the syncs took that the last group has waited for.
    sync_ns: u64,
    /// Somebody has asked for a snapshot.
    snapshot_asked: bool,
    snapshot: Option<SnapshotJob>,
    slice_rows: u32,
    /// When it is looked next whether kept segments have become too old.
    look_ns: u64,
    /// Through which it is changed which replicas count, once it was.
    set_changes: Option<SetChanges>,
    _ending: SyncWaitersGuard,
}

/// Changes of the set of replicas on their way through the committer.
struct SetChanges {
    mailbox: Mailbox,
    /// One of which no outcome is known.
    is_under_way: bool,
}

/// What a round does when the log needs its next segment: it brings it, or says that there is none.
pub(super) type BringSegment<'a> = &'a mut dyn FnMut(&mut DurableCommitter, &mut dyn Clock);

impl CommitLoop {
    /// Returns the loop of a committer.
    pub fn new(committer: DurableCommitter) -> CommitLoop {
        let hub = Hub::new(committer.store());
        // Not the hub itself, which holds the store.
        let signal = hub.signal().clone();
        let ask = move || signal.wake();
        committer.store().reserve().on_due(Box::new(ask));
        let signal = hub.signal().clone();
        let acknowledged = move || signal.wake();
        (committer.store().acknowledgements()).on_change(Box::new(acknowledged));
        // A previous run may have ended before it came to that.
        hub.holds()
            .retire_through(committer.snapshots().replay_sequence());
        CommitLoop {
            committer,
            _ending: SyncWaitersGuard(hub.clone()),
            hub,
            slots: Vec::new(),
            submitted: Vec::new(),
            answered: Vec::new(),
            sync_ns: 0,
            snapshot_asked: false,
            snapshot: None,
            slice_rows: snapshot::limits::SLICE_ROWS,
            look_ns: u64::MAX,
            set_changes: None,
        }
    }

    pub(super) fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// Which segments of the log may be retired.
    pub(crate) fn holds(&self) -> &Arc<Holds> {
        self.hub.holds()
    }

    pub(crate) fn committer(&mut self) -> &mut DurableCommitter {
        &mut self.committer
    }

    /// A mailbox for a loop. `waker` is called within [`round`](CommitLoop::round) when there are
    /// outcomes in it, at most twice in one.
    pub fn register(&self, waker: CommitWaker) -> Mailbox {
        self.hub.register(waker)
    }

    /// Carries one group from the mailboxes to the log and its outcomes back. Returns whether there
    /// was anything to do; if so, there may be more.
    pub fn round(&mut self, clock: &mut dyn Clock) -> bool {
        self.committer.prepare_segment();
        let retired = self.take_retired(clock);
        if !retired.is_empty() {
            self.committer.retire_segments(retired);
        }
        self.round_with(clock, &mut |committer, _| committer.prepare_segment())
    }

    /// Whether a round has something to do, beside what is [due](CommitLoop::due_ns) at a time.
    pub fn has_work(&self) -> bool {
        self.hub.signal().has_work() || self.committer.has_gathered() || self.committer.wants_mark()
    }

    pub(super) fn round_with(&mut self, clock: &mut dyn Clock, bring: BringSegment<'_>) -> bool {
        self.submit_set_change();
        if self.hub.signal().take_work() {
            self.collect();
        }
        let committer = &mut self.committer;
        let sync_asked = self.hub.sync_asked();
        if sync_asked.is_some() {
            committer.ask_for_sync();
        }
        if let Some(events) = self.hub.take_tree_news() {
            self.committer.trees_have_changed(events);
        }
        let worked = self.group(clock, bring);
        if let Some(number) = sync_asked {
            let log = self.committer.log();
            let durable_sequence = log.durable().sequence;
            let has_failed = self.committer.has_failed();
            (self.hub).finish_syncs(number, (!has_failed).then_some(durable_sequence));
        }
        worked
    }

    /// Has the set of replicas changed, one change at a time: by a commit, which those that count
    /// already must hold. A group that waits comes first.
    fn submit_set_change(&mut self) {
        let store = self.committer.store().clone();
        if !store.acknowledgements().has_change() || self.committer.is_awaiting() {
            return;
        }
        let hub = &self.hub;
        let changes = self.set_changes.get_or_insert_with(|| SetChanges {
            mailbox: hub.register(Box::new(|| {})),
            is_under_way: false,
        });
        // What has become of it shows in the set.
        while changes.mailbox.take(&mut Outcomes::new()) {
            changes.is_under_way = false;
        }
        if changes.is_under_way {
            return;
        }
        let Some(change) = store.acknowledgements().take_change() else {
            return;
        };
        let mut batch = store.write_batch();
        if store.change_replica_set(&mut batch, &[change]).is_err() {
            return;
        }
        changes.is_under_way = true;
        changes.mailbox.submit(&mut batch);
    }

    fn group(&mut self, clock: &mut dyn Clock, bring: BringSegment<'_>) -> bool {
        if self.committer.is_awaiting() || self.committer.is_to_await_start() {
            return self.await_replicas(clock, bring);
        }
        let committer = &mut self.committer;
        let is_idle = !committer.has_gathered() && !committer.wants_mark();
        if is_idle && !committer.wants_sync(clock) {
            return false;
        }
        let slots = &self.slots;
        committer.decide_group(clock, &mut |from, batch| {
            if let Some(slot) = &slots[from] {
                slot.give_back(batch);
            }
        });
        while committer.write(clock) == GroupProgress::NeedsSegment {
            bring(committer, clock);
        }
        self.publish(PublishAfter::Written, clock, 0);
        self.sync_ns = match self.committer.wants_sync(clock) {
            true => self.committer.sync_for_writes(clock),
            false => 0,
        };
        if self.committer.await_replicas(clock) {
            self.await_replicas(clock, bring);
            return true;
        }
        self.publish(PublishAfter::Synced, clock, self.sync_ns);
        true
    }

    /// Goes on with a group that waits for followers. Returns whether there was anything to do.
    fn await_replicas(&mut self, clock: &mut dyn Clock, bring: BringSegment<'_>) -> bool {
        let committer = &mut self.committer;
        if !committer.await_replicas(clock) {
            return false;
        }
        if committer.wants_mark() {
            while committer.mark_while_awaiting(clock) == GroupProgress::NeedsSegment {
                bring(committer, clock);
            }
        }
        if committer.wants_sync(clock) {
            self.sync_ns += committer.sync_for_writes(clock);
        }
        match committer.look_for_replicas(clock) {
            AwaitedProgress::Over => {
                self.publish(PublishAfter::Synced, clock, self.sync_ns);
                if self
                    .committer
                    .store()
                    .acknowledgements()
                    .has_late_identities()
                {
                    // One of the loops takes them over.
                    self.slots.iter().flatten().for_each(|slot| slot.wake());
                }
                true
            }
            AwaitedProgress::Late => self.refuse_late(),
            AwaitedProgress::Waiting => false,
        }
    }

    /// Tells those that they wait in vain whose commits wait for followers, or behind such.
    fn refuse_late(&mut self) -> bool {
        let CommitLoop {
            committer,
            slots,
            answered,
            ..
        } = self;
        let has_some = committer.refuse_gathered(
            &mut |from, batch| {
                if let Some(slot) = &slots[from] {
                    slot.give_back(batch);
                }
            },
            &mut |from, outcomes| {
                if let Some(slot) = &slots[from] {
                    slot.deliver(outcomes);
                    answered.push(from);
                }
            },
        );
        self.wake_answered();
        has_some
    }

    fn wake_answered(&mut self) {
        let slots = &self.slots;
        for slot in (self.answered.drain(..)).filter_map(|from| slots[from].as_ref()) {
            slot.wake();
        }
    }

    /// Takes what the loops have submitted.
    fn collect(&mut self) {
        self.hub.take_submitted(&mut self.submitted);
        for slot in self.submitted.drain(..) {
            let (from, committer) = (slot.number, &mut self.committer);
            let abandoned = slot.collect(&mut |batch| committer.gather(from, batch));
            committer.abandon(from, abandoned);
            if from >= self.slots.len() {
                self.slots.resize(from + 1, None);
            }
            // Nothing is under way for another one that had the number before.
            self.slots[from] = Some(slot);
        }
    }

    /// Publishes what a rule lets go, behind a sync that took so long.
    fn publish(&mut self, rule: PublishAfter, clock: &mut dyn Clock, sync_ns: u64) {
        let CommitLoop {
            committer,
            slots,
            answered,
            ..
        } = self;
        committer.publish(rule, clock, &mut |from, outcomes| {
            if let Some(slot) = &slots[from] {
                outcomes.set_sync_ns(sync_ns);
                slot.deliver(outcomes);
                answered.push(from);
            }
        });
        self.wake_answered();
    }

    /// Segments that somebody has declared unnecessary, and that are not kept (any more).
    pub(super) fn take_retired(&mut self, clock: &mut dyn Clock) -> Vec<RetiredSegment> {
        if self.committer.is_full() {
            self.hub.holds().break_all();
        }
        self.hub.holds().end_lingering(clock.now_ns());
        let log_bytes = self.committer.log().segment_bytes();
        let sequence = self.hub.holds().take_retire_sequence(log_bytes);
        let has_more = self.committer.segments().has_more_unneeded();
        if sequence == 0 && !has_more && clock.now_ns() < self.look_ns {
            return Vec::new();
        }
        let now_ms = self.committer.store().clock_ms(clock.now_ms());
        let retired = self.committer.retire_through(sequence, now_ms);
        self.look_ns = match self.committer.segments().keeps_for_a_time() {
            true => clock.now_ns() + limits::KEPT_LOG_LOOK_MS * 1_000_000,
            false => u64::MAX,
        };
        retired
    }

    /// Lets segments go that hold nothing beyond a sequence, up to which every index has everything
    /// on its own device.
    pub fn retire_through(&self, sequence: u64) {
        self.hub.holds().retire_through(sequence);
    }

    /// Whether a write or sync of the log has failed, so that writes are refused until a restart.
    pub fn has_failed(&self) -> bool {
        self.committer.has_failed()
    }

    /// The last sequence in the log.
    pub fn log_sequence(&self) -> u64 {
        self.committer.log().written().sequence
    }

    /// When a round is due although nobody asks for one; `u64::MAX`: none is.
    pub fn due_ns(&self) -> u64 {
        (self.committer.sync_due_ns())
            .min(self.committer.awaited_due_ns())
            .min(self.look_ns)
    }

    /// What has happened that whoever runs the server should know.
    pub fn take_events(&mut self) -> Vec<StorageEvent> {
        self.committer.take_events()
    }

    /// Writes what is sealed of databases on disk to the device, and merges what is due, for a
    /// committer without threads.
    pub fn flush_trees(&mut self) -> Result<(), TreeError> {
        self.committer.trees().flush()
    }

    /// Seals what is in the memtables of all databases on disk, as far as the log is durable: what
    /// a keeper flushes then.
    pub fn seal_trees(&mut self) {
        let durable_sequence = self.committer.log().durable().sequence;
        (self.committer.trees()).seal_older_than(u64::MAX, durable_sequence);
    }

    /// What was cleared: drop it on a thread that may pause.
    pub fn take_garbage(&mut self) -> Garbage {
        self.committer.take_garbage()
    }

    /// Takes back what could not be freed yet.
    pub(super) fn keep_garbage(&mut self, garbage: Garbage) {
        self.committer.keep_garbage(garbage);
    }

    // --- snapshots

    /// Asks for a snapshot. It is made by [`step_snapshot`](CommitLoop::step_snapshot), and told of
    /// by an [`StorageEvent`].
    pub fn ask_for_snapshot(&mut self) {
        self.snapshot_asked = true;
    }

    /// Puts fewer entries into a page of the snapshots to come: tests want many pages.
    pub fn set_slice_rows(&mut self, rows: u32) {
        self.slice_rows = rows;
    }

    /// Completes the groups to come with so many operations, at least 1: tests want many groups.
    pub fn set_group_operations(&mut self, operations: usize) {
        self.committer.set_group_operations(operations);
    }

    /// Does a little of a snapshot that somebody has asked for, or that is due; returns whether
    /// there was anything to do. Call it between rounds, in turns with them.
    pub fn step_snapshot(&mut self, clock: &mut dyn Clock) -> bool {
        let Some(job) = self.snapshot.take() else {
            return self.begin_snapshot(clock);
        };
        let committer = &mut self.committer;
        let stepped = job.step(clock, || {
            committer.sync();
            match committer.has_failed() {
                true => Err(SnapshotError::LogFailed),
                false => Ok(committer.log().durable().sequence),
            }
        });
        match stepped {
            Ok(SnapshotStep::Worked(job) | SnapshotStep::Synced(job)) => self.snapshot = Some(job),
            Ok(SnapshotStep::Complete(report)) => committer.snapshot_ended(Ok(report), clock),
            Err(error) => committer.snapshot_ended(Err(error), clock),
        }
        true
    }

    fn begin_snapshot(&mut self, clock: &mut dyn Clock) -> bool {
        if !self.committer.wants_snapshot(clock) && !self.snapshot_asked {
            return false;
        }
        self.snapshot_asked = false;
        let committer = &mut self.committer;
        let base = committer.snapshot_base(clock);
        let disk = committer.snapshots().disk();
        match SnapshotJob::begin(committer.store(), base, disk, self.hub.holds()) {
            Ok(mut job) => {
                job.set_slice_rows(self.slice_rows);
                self.snapshot = Some(job);
            }
            Err(error) => committer.snapshot_ended(Err(error), clock),
        }
        true
    }

    /// What the committer's thread does for the one that makes snapshots.
    pub(super) fn serve_snapshots(&mut self, clock: &mut dyn Clock) {
        self.hub.snapshot_queue().serve(&mut self.committer, clock);
    }

    /// What the committer's thread does for other threads that wait for it.
    pub(super) fn run_jobs(&mut self, clock: &mut dyn Clock) {
        self.hub.run_jobs(&mut self.committer, clock);
    }

    /// When a snapshot is tried again after one that has failed; `u64::MAX`: none has.
    pub(super) fn snapshot_retry_ns(&self) -> u64 {
        let written = self.committer.log().work();
        self.committer.snapshots().retry_ns(written)
    }

    /// Makes a snapshot at a clean stop, if that is cheap, and lets segments go.
    fn last_snapshot(&mut self, clock: &mut dyn Clock) {
        if let Some(job) = self.snapshot.take() {
            job.discard();
        } else if self.committer.wants_last_snapshot() {
            self.snapshot_asked = true;
            while self.step_snapshot(clock) {}
        }
        let retired = self.take_retired(clock);
        self.committer.retire_segments(retired);
    }

    /// Ends a clean stop: what is in the mailboxes, a snapshot if it is cheap, a sync, the closing
    /// group. No loop may commit any more.
    pub fn close(mut self, clock: &mut dyn Clock) -> Result<(), WriteError> {
        while self.round(clock) {}
        self.close_with(clock, &mut |_| {})
    }

    /// The same when nothing is in the mailboxes. `tell` is shown what happens.
    pub(super) fn close_with(
        mut self,
        clock: &mut dyn Clock,
        tell: &mut dyn FnMut(StorageEvent),
    ) -> Result<(), WriteError> {
        if self.committer.is_awaiting() {
            // What it waits for does not come any more.
            self.committer.drop_gathered();
        }
        self.last_snapshot(clock);
        self.take_events().into_iter().for_each(tell);
        if self.committer.needs_segment_to_close() {
            self.committer.prepare_segment();
        }
        self.committer.close(clock)
    }
}

/// Lets those go on who wait for a sync when there will be none any more.
struct SyncWaitersGuard(Arc<Hub>);

impl Drop for SyncWaitersGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl fmt::Debug for CommitLoop {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("CommitLoop")
            .field("committer", &self.committer)
            .finish_non_exhaustive()
    }
}
