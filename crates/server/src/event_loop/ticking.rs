//! What a loop does once in every tick, beside the calls that came in.

use std::fmt::Display;

use service::identities::NEVER_MS;
use service::serving::Serving;
use store::remote::RemoteHealth;
use store::tree::TreeError;
use store::{Outcomes, ReadAhead, WriteBatch};

use super::{LoopRole, LoopState};
use crate::call_id::CallId;
use crate::readers::ReadAheadId;
use crate::{limits, load_identities};

impl LoopState {
    /// Sets the time of the tick, and takes over the identities of that time.
    #[inline]
    pub(super) fn set_time(&mut self, now_ns: u64) {
        self.context.clock.set_ns(now_ns);
        let identities = &self.context.identities;
        let now_ms = self.context.clock.store_ms();
        let has_expired = identities.next_expiry_ms() <= now_ms;
        if has_expired || self.shared.identities.version() != identities.version() {
            self.take_over_identities();
        }
        self.has_other_identities |= self.calls.proofs_end_ms() <= now_ms;
    }

    #[cold]
    fn take_over_identities(&mut self) {
        let identities = &self.shared.identities;
        identities.expire(self.context.clock.store_ms());
        self.context.identities = identities.table();
        self.has_other_identities = true;
    }

    /// Returns whether other callers may be known than when this was asked last.
    #[inline]
    pub(super) fn take_other_identities(&mut self) -> bool {
        std::mem::take(&mut self.has_other_identities)
    }

    /// Returns the calls whose callers are not known any more.
    pub(super) fn orphans(&mut self) -> Vec<CallId> {
        (self.calls).orphans(&self.context.identities, self.context.clock.store_ms())
    }

    /// When the identity of a running call may expire next: calls that begin later are looked at
    /// as they begin.
    fn expiry_ns(&self) -> Option<u64> {
        let at_ms = (self.context.identities.next_expiry_ms()).min(self.calls.proofs_end_ms());
        if at_ms == NEVER_MS || !self.awaits_end_of_identity() {
            return None;
        }
        let clock = &self.context.clock;
        let wait_ns = at_ms
            .saturating_sub(clock.store_ms())
            .checked_mul(1_000_000)?;
        clock.tick_ns().checked_add(wait_ns)
    }

    /// Returns whether something ends when a caller is revoked: calls that run, and answers that
    /// wait for their peers.
    pub(super) fn awaits_end_of_identity(&self) -> bool {
        self.calls.len() > 0 || self.calls.has_unsent()
    }

    /// Carries out the volatile commits of this tick, whose outcomes are in `outcomes` then, and
    /// hands the durable ones over; those that were taken back in it are dropped. Returns whether
    /// there were some.
    pub(super) fn commit_or_submit(&mut self, outcomes: &mut Outcomes) -> bool {
        let context = &mut self.context;
        if self.calls.has_abandoned() && context.batch.has_writes() {
            context.batch.remove_abandoned(&self.calls.abandoned_tags());
        }
        if !context.batch.has_writes() {
            return false;
        }
        let (batch, clock) = (&mut context.batch, &mut context.clock);
        (self.writes).commit_or_submit(batch, clock, &self.readers, outcomes);
        true
    }

    /// Takes over identities that were changed, before whoever has changed one is told so.
    #[cold]
    pub(super) fn load_identities(&mut self) {
        let now_ms = self.context.clock.store_ms();
        let (shared, log) = (&self.shared, &*self.context.settings.log);
        load_identities(&shared.identities, &shared.store, now_ms, log);
    }

    /// Takes over identities that were changed by a commit of whose outcome its caller was not
    /// told.
    #[inline]
    pub(super) fn load_late_identities(&mut self) {
        if self.shared.store.take_late_identities() {
            self.load_identities();
        }
    }

    /// Tells the committer whose callers have left, behind their commits.
    pub(super) fn pass_on_abandoned(&mut self) {
        self.writes.abandon(self.calls.abandoned());
    }

    /// A reader gives commits back, with what they must know.
    pub(super) fn read_ahead_is_done(
        &mut self,
        id: ReadAheadId,
        batch: Box<WriteBatch>,
        read: ReadAhead,
    ) {
        if let Some(why) = &read.failure {
            self.tell_damage(why);
        }
        (self.writes).read_ahead_is_done(id, batch, read.commits);
    }

    /// Has commits read again for which there was no room, when it is time to.
    pub(super) fn read_ahead_again(&mut self) {
        let now_ns = self.context.clock.tick_ns();
        self.writes.read_ahead_again(now_ns, &self.readers);
    }

    /// Says that a database on disk could not be read, but not for every read.
    pub(super) fn tell_damage(&mut self, why: &TreeError) {
        self.tell_unread("a database on disk", why);
    }

    /// Says now and then what could not be read.
    pub(super) fn tell_unread(&mut self, what: &str, why: &dyn Display) {
        let now_ns = self.context.clock.tick_ns();
        let interval_ns = limits::DAMAGE_TOLD_MS * 1_000_000;
        let is_due = |told_ns| now_ns.saturating_sub(told_ns) >= interval_ns;
        if self.damage_told_ns.is_none_or(is_due) {
            self.damage_told_ns = Some(now_ns);
            let words = format!("{what} could not be read: {why}");
            self.context.settings.log.storage(&words);
        }
    }

    /// Has entries removed whose time has come, if somebody must: their removals go with the writes
    /// of this tick. Nobody waits for the outcomes; their tag belongs to no call.
    pub(super) fn sweep(&mut self) {
        if self.role == LoopRole::OneConnection {
            return; // the door does it, so that it wakes one thread and not thousands
        }
        let (store, context) = (&self.shared.store, &mut self.context);
        let (now_ms, writes) = (context.clock.store_ms(), &mut context.batch.writes);
        store.sweep(now_ms, writes);
        context.blobs.collect(store, now_ms, writes);
        if store.begin_tree_sweep(now_ms) {
            self.readers.sweep(store);
        }
    }

    /// Takes over how the engine is that has the databases of the server, if it is time to.
    #[cold]
    pub(super) fn look_at_engine(&mut self) {
        let now_ns = self.context.clock.tick_ns();
        let Some(health) = self.writes.remote().and_then(|remote| remote.look(now_ns)) else {
            return;
        };
        let (registry, log) = (&self.shared.health, &self.context.settings.log);
        let was_serving = registry.serving(b"") == Serving::Yes;
        let is_serving = health == RemoteHealth::Serving;
        if was_serving == is_serving || registry.is_stopping() {
            return;
        }
        // Each loop looks, and so finds it in one of its next ticks.
        registry.set_all(is_serving);
        match health {
            RemoteHealth::Serving => log.storage_recovered("the storage engine serves again"),
            RemoteHealth::NoQuorum(why) => log.storage(&format!(
                "the storage engine does not serve, and is tried again: too few of its nodes \
                 answer: {why}"
            )),
            RemoteHealth::WrongSchema(why) => log.storage(&format!(
                "the storage engine does not serve, and is tried again: its schema is another \
                 one: {why}"
            )),
        }
    }

    /// A reader has walked on through the databases on disk.
    pub(super) fn swept(&mut self, batch: Box<WriteBatch>, failure: Option<TreeError>) {
        if let Some(why) = &failure {
            self.tell_damage(why);
        }
        self.writes.submit_removals(batch);
    }

    /// When the next sweep is due, on the clock of the ticks. Whoever makes it due earlier does not
    /// tell the door, which therefore looks now and then.
    fn sweep_due_ns(&self) -> Option<u64> {
        let look_ns = match self.role {
            LoopRole::OneConnection => return None,
            LoopRole::Connections => None,
            LoopRole::Door => {
                Some(self.context.clock.tick_ns() + limits::SWEEP_LOOK_MS * 1_000_000)
            }
        };
        let due_ns = self.next_sweep_ns();
        [look_ns, due_ns].into_iter().flatten().min()
    }

    fn next_sweep_ns(&self) -> Option<u64> {
        let (store, clock) = (&self.shared.store, &self.context.clock);
        let due_ms = store.sweep_due_ms().min(store.tree_sweep_due_ms());
        let due_ms = due_ms.min(self.context.blobs.collect_due_ms());
        let wait_ms = due_ms.saturating_sub(clock.store_ms());
        let wait_ns = wait_ms.checked_mul(1_000_000)?;
        clock.tick_ns().checked_add(wait_ns)
    }

    /// The calls that wait for a change of health, if there was one since this was asked last.
    pub(super) fn subscribers_to_wake(&mut self) -> Vec<CallId> {
        let version = self.shared.health.version();
        if version == self.health_version {
            return Vec::new();
        }
        self.health_version = version;
        self.calls.subscribers().collect()
    }

    /// The next call that watches a database which has changed.
    pub(super) fn watcher_to_wake(&mut self) -> Option<CallId> {
        let (calls, watchers) = (&self.calls, &mut self.context.watchers);
        watchers.next(|id| calls.is_running(id))
    }

    /// Has the connections visited that go on in the next turn of the loop, and ends the tick for
    /// the calls.
    pub(super) fn end_tick(&mut self) {
        let visited = self
            .large_message_queue
            .to_visit(&self.context.admission.account);
        self.revisit.extend(visited);
        self.revisit.extend(self.unpack_queue.end_tick());
        self.show_figures();
        self.calls.end_tick(&self.context, &mut self.timers);
    }

    /// Whether nothing is under way, and nobody has something to bring.
    pub(super) fn is_idle(&self) -> bool {
        let context = &self.context;
        self.connections == 0
            && self.calls.len() == 0
            && !context.batch.has_work(true)
            && self.writes.is_idle()
            && self.readers.is_idle()
            && context.blobs.is_idle()
            && context.tasks.is_idle()
    }

    /// Frees what is kept for the next tick.
    pub(super) fn rest(&mut self) {
        let store = &self.shared.store;
        self.context.batch.rest(|| store.write_batch());
        self.writes.rest();
    }

    /// Shows how many connections and calls there are.
    pub(super) fn show_figures(&self) {
        (self.calls.figures()).set(self.connections, self.calls.len());
    }

    /// Returns when the loop is to tick next although nothing comes in.
    pub(super) fn next_deadline_ns(&self) -> Option<u64> {
        let has_work = (self.context.batch).has_work(self.may_take_requests());
        let is_due = has_work || self.context.watchers.has_waiting();
        if self.calls.has_abandoned() || is_due || self.readers.has_results() {
            return Some(0);
        }
        let next = [
            self.timers.next_ns(),
            self.drain_deadline_ns(),
            self.sweep_due_ns(),
            self.expiry_ns(),
            self.writes.retry_ns(),
            self.context.tasks.next_deadline_ns(),
        ];
        next.into_iter().flatten().min()
    }
}
