//! What a loop does once in every tick, beside the calls that came in.

use net::Io;
use service::{Code, Status};
use store::durable::Mailbox;
use store::tree::TreeError;
use store::{Outcomes, ReadAhead, WriteBatch};

use crate::calls::CallId;
use crate::connection::ConnectionState;
use crate::limits;
use crate::loop_state::{LoopRole, LoopState};
use crate::timers::Timer;

impl LoopState {
    /// Runs the committer over the writes of this tick.
    pub(crate) fn commit(&mut self, outcomes: &mut Outcomes) {
        let garbage = self
            .committer
            .run(&mut self.batch.writes, &mut self.clock, outcomes);
        self.deferred_drop.take(garbage);
        if let Some(mailbox) = &self.mailbox {
            mailbox.submit(&mut self.batch.writes);
            let (store, batch) = (&self.shared.store, &mut self.batch.disk_writes);
            self.disk_writes
                .send(batch, || store.write_batch(), &self.readers, mailbox);
        }
    }

    /// Tells the committer whose callers have left, behind their commits.
    pub(crate) fn pass_on_abandoned(&mut self) {
        match &self.mailbox {
            _ if self.abandoned.is_empty() => {}
            Some(mailbox) => self.disk_writes.abandon(&mut self.abandoned, mailbox),
            None => self.abandoned.clear(),
        }
    }

    /// A reader gives commits back, with what they must know.
    pub(crate) fn read_ahead_is_done(
        &mut self,
        number: u64,
        batch: Box<WriteBatch>,
        read: ReadAhead,
    ) {
        if let Some(why) = &read.failure {
            self.tell_damage(why);
        }
        if let Some(mailbox) = &self.mailbox {
            self.disk_writes
                .arrived(number, batch, read.commits, mailbox);
        }
    }

    /// Has commits read again for which there was no room, when it is time to.
    pub(crate) fn read_ahead_again(&mut self) {
        if let Some(mailbox) = &self.mailbox
            && self.disk_writes.is_stuck()
        {
            let now_ns = self.clock.tick_ns();
            self.disk_writes.try_again(now_ns, &self.readers, mailbox);
        }
    }

    /// Says that a database on disk could not be read, but not for every read.
    pub(crate) fn tell_damage(&mut self, why: &TreeError) {
        let now_ns = self.clock.tick_ns();
        let interval_ns = limits::DAMAGE_TOLD_MS * 1_000_000;
        let is_due = |told_ns| now_ns.saturating_sub(told_ns) >= interval_ns;
        if self.damage_told_ns.is_none_or(is_due) {
            self.damage_told_ns = Some(now_ns);
            let words = format!("a database on disk could not be read: {why}");
            self.settings.log.storage(&words);
        }
    }

    /// Has entries removed whose time has come, if somebody must: their removals go with the writes
    /// of this tick. Nobody waits for the outcomes; their tag belongs to no call.
    pub(crate) fn sweep(&mut self) {
        if self.role == LoopRole::OneConnection {
            return; // the door does it, so that it wakes one thread and not thousands
        }
        let store = &self.shared.store;
        let (now_ms, writes) = (self.clock.store_ms(), &mut self.batch.writes);
        store.sweep(now_ms, writes);
        if let Some(blobs) = &self.blobs.blobs {
            blobs.collect(store, now_ms, writes);
        }
        if store.begin_tree_sweep(now_ms) {
            self.readers.sweep(store);
        }
    }

    /// A reader has walked on through the databases on disk.
    pub(crate) fn swept(&mut self, mut batch: Box<WriteBatch>, failure: Option<TreeError>) {
        if let Some(why) = &failure {
            self.tell_damage(why);
        }
        if let Some(mailbox) = &self.mailbox {
            mailbox.submit(&mut batch);
        }
    }

    /// When the next sweep is due, on the clock of the ticks. Whoever makes it due earlier does not
    /// tell the door, which therefore looks now and then.
    fn sweep_due_ns(&self) -> Option<u64> {
        let look_ns = match self.role {
            LoopRole::OneConnection => return None,
            LoopRole::Connections => None,
            LoopRole::Door => Some(self.clock.tick_ns() + limits::SWEEP_LOOK_MS * 1_000_000),
        };
        let due_ns = self.next_sweep_ns();
        [look_ns, due_ns].into_iter().flatten().min()
    }

    fn next_sweep_ns(&self) -> Option<u64> {
        let store = &self.shared.store;
        let blobs = self.blobs.blobs.as_ref();
        let collect_due_ms = blobs.map_or(u64::MAX, |blobs| blobs.collect_due_ms());
        let due_ms = store.sweep_due_ms().min(store.tree_sweep_due_ms());
        let due_ms = due_ms.min(collect_due_ms);
        let wait_ms = due_ms.saturating_sub(self.clock.store_ms());
        let wait_ns = wait_ms.checked_mul(1_000_000)?;
        self.clock.tick_ns().checked_add(wait_ns)
    }

    /// Exchanges the list for outcomes of the durable databases, if some have come.
    pub(crate) fn take_mail(&self, outcomes: &mut Outcomes) -> bool {
        let taken = |mailbox: &Mailbox| mailbox.take(outcomes);
        self.mailbox.as_ref().is_some_and(taken)
    }

    /// The calls that wait for a change of health, if there was one since this was asked last.
    pub(crate) fn subscribers_to_wake(&mut self) -> Vec<CallId> {
        let version = self.shared.health.version();
        if version == self.health_version {
            return Vec::new();
        }
        self.health_version = version;
        self.calls.subscribers().collect()
    }

    pub(crate) fn deadline_passed(
        &mut self,
        channel: &mut ConnectionState,
        io: &mut Io,
        id: CallId,
    ) {
        self.end(channel, io, id, deadline_exceeded());
    }

    /// Whether a call still wants to be woken now: it may have asked for a later time since. Takes
    /// the wish.
    pub(crate) fn take_wish(&mut self, id: CallId, now_ns: u64) -> bool {
        let Some(running) = self.calls.get_mut(id) else {
            return false;
        };
        let stands = running.wake_at_ns <= now_ns;
        if stands {
            running.wake_at_ns = u64::MAX;
        }
        stands
    }

    /// Gives calls that outlived the tick in which they began an alarm for their deadline.
    pub(crate) fn end_tick(&mut self) {
        self.show_figures();
        if let Some(calls) = &mut self.ended_calls {
            calls.count(&self.clock, &self.figures);
        }
        for id in self.fresh.drain(..) {
            if let Some(running) = self.calls.get_mut(id) {
                self.timers.set(running.deadline_ns, Timer::Deadline(id));
            }
        }
    }

    /// Whether nothing is under way, and nobody has something to bring.
    pub(crate) fn is_idle(&self) -> bool {
        self.connections == 0
            && self.calls.len() == 0
            && !self.batch.has_work()
            && self.disk_writes.is_empty()
            && self.readers.is_idle()
            && self.blobs.is_idle()
            && self.tasks.inbox.is_over()
            && self.mailbox.as_ref().is_none_or(Mailbox::is_idle)
    }

    /// Frees what is kept for the next tick.
    pub(crate) fn rest(&mut self) {
        let store = &self.shared.store;
        self.batch.rest(|| store.write_batch());
        self.outcomes = Outcomes::new();
        if let Some(mailbox) = &self.mailbox {
            mailbox.rest();
        }
    }

    /// Shows how many connections and calls there are.
    pub(crate) fn show_figures(&self) {
        self.figures.set(self.connections, self.calls.len());
    }

    pub(crate) fn next_deadline_ns(&self) -> Option<u64> {
        let has_abandoned = !self.abandoned.is_empty();
        if has_abandoned || self.batch.has_work() || self.readers.has_brought() {
            return Some(0);
        }
        let next = [
            self.timers.next_ns(),
            self.drain_deadline_ns(),
            self.sweep_due_ns(),
            self.disk_writes.retry_ns(),
        ];
        next.into_iter().flatten().min()
    }
}

/// The status of a call whose deadline has passed.
pub(crate) fn deadline_exceeded() -> Status {
    Status::new(
        Code::DeadlineExceeded,
        "the deadline of the call has passed",
    )
}
