//! Rounds of the durable committer: from the mailboxes through a group and back to the mailboxes.

use std::fmt;
use std::sync::Arc;

use super::committer::{DurableCommitter, Event, Progress};
use super::mailbox::{Hub, Mailbox, Slot, Waker};
use super::pending::Rule;
use crate::committer::Clock;
use crate::garbage::Garbage;
use crate::log::{RetiredSegment, WriteError};

/// The durable committer with the mailboxes of the loops, a round at a time: what its thread runs, and a simulation
/// without a thread.
pub struct Rounds {
    committer: DurableCommitter,
    hub: Arc<Hub>,
    /// By the number of the loop.
    slots: Vec<Arc<Slot>>,
    /// Loops to wake, by their number.
    answered: Vec<usize>,
    _ending: Ending,
}

/// What a round does when the log needs its next segment: it brings it, or says that there is none.
pub(super) type BringSegment<'a> = &'a mut dyn FnMut(&mut DurableCommitter, &mut dyn Clock);

impl Rounds {
    /// Rounds of a committer.
    pub fn new(committer: DurableCommitter) -> Rounds {
        let hub = Hub::new(committer.store());
        // Not the hub itself, which holds the store.
        let weak = Arc::downgrade(&hub);
        let ask = move || {
            if let Some(hub) = weak.upgrade() {
                hub.signal.wake();
            }
        };
        committer.store().reserve().on_due(Box::new(ask));
        Rounds {
            committer,
            _ending: Ending(hub.clone()),
            hub,
            slots: Vec::new(),
            answered: Vec::new(),
        }
    }

    pub(super) fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    pub(super) fn committer(&mut self) -> &mut DurableCommitter {
        &mut self.committer
    }

    /// A mailbox for a loop. `waker` is called within [`round`](Rounds::round) when there are outcomes in it, at most
    /// twice in one.
    pub fn register(&self, waker: Waker) -> Mailbox {
        self.hub.register(waker)
    }

    /// Carries one group from the mailboxes to the log and its outcomes back. Answers whether there was anything to do;
    /// if so, there may be more.
    pub fn round(&mut self, clock: &mut dyn Clock) -> bool {
        self.committer.prepare_segment();
        let retired = self.take_retired();
        self.committer.retire_segments(retired);
        self.round_with(clock, &mut |committer, _| committer.prepare_segment())
    }

    pub(super) fn round_with(&mut self, clock: &mut dyn Clock, bring: BringSegment<'_>) -> bool {
        if self.hub.signal.take_work() {
            self.collect();
        }
        let committer = &mut self.committer;
        let sync_asked = self.hub.sync_asked();
        if sync_asked.is_some() {
            committer.ask_for_sync();
        }
        let worked = self.group(clock, bring);
        if let Some(number) = sync_asked {
            self.hub.finish_syncs(number, self.committer.has_failed());
        }
        worked
    }

    fn group(&mut self, clock: &mut dyn Clock, bring: BringSegment<'_>) -> bool {
        let committer = &mut self.committer;
        let is_idle = !committer.has_gathered() && !committer.wants_mark();
        if is_idle && !committer.wants_sync(clock) {
            return false;
        }
        let slots = &self.slots;
        committer.decide(clock, &mut |from, batch| slots[from].give_back(batch));
        while committer.write(clock) == Progress::NeedsSegment {
            bring(committer, clock);
        }
        self.publish(Rule::Written, clock);
        if self.committer.wants_sync(clock) {
            self.committer.sync();
        }
        self.publish(Rule::Synced, clock);
        true
    }

    /// Takes what the loops have submitted.
    fn collect(&mut self) {
        self.hub.list(&mut self.slots);
        for (from, slot) in self.slots.iter().enumerate() {
            let committer = &mut self.committer;
            slot.collect(&mut |batch| committer.gather(from, batch));
        }
    }

    fn publish(&mut self, rule: Rule, clock: &mut dyn Clock) {
        let Rounds {
            committer,
            slots,
            answered,
            ..
        } = self;
        committer.publish(rule, clock, &mut |from, outcomes| {
            slots[from].deliver(outcomes);
            answered.push(from);
        });
        for from in answered.drain(..) {
            slots[from].wake();
        }
    }

    /// Segments that somebody has declared unnecessary.
    pub(super) fn take_retired(&mut self) -> Vec<RetiredSegment> {
        match self.hub.take_retire_sequence() {
            0 => Vec::new(),
            sequence => self.committer.retire_through(sequence),
        }
    }

    /// Lets segments go that hold nothing beyond a sequence, up to which every index has everything on its own device.
    pub fn retire_through(&self, sequence: u64) {
        self.hub.retire_through(sequence);
    }

    /// Whether a write or sync of the log has failed, so that writes are refused until a restart.
    pub fn has_failed(&self) -> bool {
        self.committer.has_failed()
    }

    /// When a round is due although nobody asks for one; `u64::MAX`: none is.
    pub fn due_ns(&self) -> u64 {
        self.committer.sync_due_ns()
    }

    /// What has happened that whoever runs the server should know.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.committer.take_events()
    }

    /// What was cleared: drop it on a thread that may pause.
    pub fn take_garbage(&mut self) -> Garbage {
        self.committer.take_garbage()
    }

    /// Ends a clean stop: what is in the mailboxes, a sync, the closing group. No loop may commit any more.
    pub fn close(self, clock: &mut dyn Clock) -> Result<(), WriteError> {
        self.close_with(clock, &mut |committer, _| committer.prepare_segment())
    }

    pub(super) fn close_with(
        mut self,
        clock: &mut dyn Clock,
        bring: BringSegment<'_>,
    ) -> Result<(), WriteError> {
        while self.round_with(clock, bring) {}
        if self.committer.needs_segment_to_close() {
            bring(&mut self.committer, clock);
        }
        self.committer.close(clock)
    }
}

/// Lets those go on who wait for a sync when there will be none any more.
struct Ending(Arc<Hub>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end_syncs();
    }
}

impl fmt::Debug for Rounds {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Rounds")
            .field("committer", &self.committer)
            .finish_non_exhaustive()
    }
}
