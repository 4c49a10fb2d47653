//! A group that is on the device, and waits until enough followers hold it there, too.
//!
//! While it waits nothing else is decided, so that what is pending is one group, as always.

use wal::{GroupBuffer, LogEnd};

use super::{DurableCommitter, GroupProgress};
use crate::batch::WriteBatch;
use crate::clock::Clock;
use crate::database_id::DatabaseId;
use crate::durable::pending::PublishAfter;
use crate::durable::segments::Written;
use crate::log::Record;
use crate::outcome::{Outcomes, Refusal};

/// The group that waits, or what the start has found.
#[derive(Clone, Copy, Debug)]
pub(super) struct AwaitedGroup {
    /// Followers must hold everything up to this sequence.
    through: u64,
    /// Where the log ends with what is visible: before the group.
    before: LogEnd,
    /// When those who wait for it are told that they wait in vain.
    deadline_ns: u64,
    /// They were.
    is_late: bool,
    is_start: bool,
}

/// What has become of the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::durable) enum AwaitedProgress {
    /// It is over: the group is to be published.
    Over,
    /// It goes on, and who waits for something is told that it does so in vain.
    Late,
    /// It goes on.
    Waiting,
}

impl DurableCommitter {
    /// Notes where the log ends before a group.
    pub(super) fn note_end_before_group(&mut self) {
        if self.requires_replicas() {
            self.end_before_group = Some(self.log().extent().end());
        }
    }

    /// Whether commits wait for followers.
    fn requires_replicas(&self) -> bool {
        !self.log().follows() && self.store.acknowledgements().required() > 0
    }

    /// Begins to wait for followers, if the group that was written and synced has to, or what the
    /// start has found. Returns whether something waits.
    ///
    /// A conversion does not: no reader sees a difference, and followers take a new copy for it,
    /// which none can have before it is over.
    pub(in crate::durable) fn await_replicas(&mut self, clock: &mut dyn Clock) -> bool {
        if self.awaited.is_some() {
            return true;
        }
        if self.failed || !self.requires_replicas() {
            return false;
        }
        let end = self.log().extent().end();
        let before = match self.end_before_group.take() {
            Some(before) => before,
            // Not in the midst of a group.
            None if self.has_awaited_start => return false,
            None => end,
        };
        let is_start = !self.has_awaited_start;
        let has_written = before.position.sequence != end.position.sequence;
        if !is_start && (!has_written || self.groups.group().converts()) {
            return false;
        }
        self.has_awaited_start = true;
        let now_ms = self.store.clock_ms(clock.now_ms());
        self.store.acknowledgements().set_awaited_since(now_ms);
        let timeout_ms = self.store.acknowledgements().timeout_ms();
        self.awaited = Some(AwaitedGroup {
            through: end.position.sequence,
            before: if is_start { end } else { before },
            deadline_ns: (clock.now_ns()).saturating_add(timeout_ms.saturating_mul(1_000_000)),
            is_late: false,
            is_start,
        });
        true
    }

    /// Whether the start has yet to wait.
    pub(in crate::durable) fn is_to_await_start(&self) -> bool {
        !self.has_awaited_start && !self.failed && self.requires_replicas()
    }

    /// Whether a group waits.
    pub(crate) fn is_awaiting(&self) -> bool {
        self.awaited.is_some()
    }

    /// Where the log ends with what is visible, while a group waits.
    pub(crate) fn visible_end(&self) -> Option<LogEnd> {
        self.awaited.map(|awaited| awaited.before)
    }

    /// The last sequence of which everything up to it is visible, between two groups or while one
    /// waits.
    pub(super) fn visible_sequence(&self) -> u64 {
        match self.visible_end() {
            Some(end) => end.position.sequence,
            None => self.log().written().sequence,
        }
    }

    /// When those who wait are told that they do so in vain; `u64::MAX`: never, or they were.
    pub(in crate::durable) fn awaited_due_ns(&self) -> u64 {
        let awaited = self.awaited.filter(|awaited| !awaited.is_late);
        awaited.map_or(u64::MAX, |awaited| awaited.deadline_ns)
    }

    /// Whether what is gathered waits behind the group that waits.
    pub(super) fn holds_up_gathered(&self) -> bool {
        self.awaited.is_some_and(|awaited| !awaited.is_late)
    }

    /// Looks what has become of the wait.
    pub(in crate::durable) fn look_for_replicas(
        &mut self,
        clock: &mut dyn Clock,
    ) -> AwaitedProgress {
        let Some(awaited) = &mut self.awaited else {
            return AwaitedProgress::Over;
        };
        let acknowledgements = self.store.acknowledgements();
        if self.failed {
            // What its callers wait for only a restart can show. Reads stay as they are.
            self.refuse_group(
                Refusal::OutcomeUnknown,
                Refusal::LogFailed,
                &PublishAfter::ALL,
            );
            return AwaitedProgress::Over;
        }
        if acknowledgements.sequence() >= awaited.through {
            if awaited.is_start {
                acknowledgements.start_is_over();
            }
            acknowledgements.set_late(false);
            acknowledgements.set_awaited_since(0);
            if awaited.is_late && self.groups.touched().any(|id| id == DatabaseId::IDENTITIES) {
                acknowledgements.note_late_identities();
            }
            self.awaited = None;
            return AwaitedProgress::Over;
        }
        if !awaited.is_late {
            if clock.now_ns() < awaited.deadline_ns {
                return AwaitedProgress::Waiting;
            }
            awaited.is_late = true;
            acknowledgements.set_late(true);
            (self.groups).refuse_decided(Refusal::NotAcknowledged, Refusal::ReplicasMissing);
        }
        AwaitedProgress::Late
    }

    /// Refuses what is gathered, since the group before it waits in vain. Returns whether there was
    /// something.
    pub(in crate::durable) fn refuse_gathered(
        &mut self,
        done: &mut dyn FnMut(usize, WriteBatch),
        deliver: &mut dyn FnMut(usize, &mut Outcomes),
    ) -> bool {
        (self.groups).refuse_gathered(Refusal::ReplicasMissing, done);
        self.groups.deliver(PublishAfter::Synced, deliver)
    }

    /// Writes a mark behind the group that waits, so that volatile databases go on: they need
    /// sequences, and nothing of this group.
    pub(in crate::durable) fn mark_while_awaiting(
        &mut self,
        clock: &mut dyn Clock,
    ) -> GroupProgress {
        self.mark_asked = false;
        let mut records = GroupBuffer::default();
        let sequence = self.last_sequence();
        if sequence <= self.log().written().sequence {
            self.syncs.ask();
            return GroupProgress::Done;
        }
        records.push(&Record::mark(sequence).raw());
        let now_ms = self.store.clock_ms(clock.now_ms());
        match self.segments.write(&mut records, now_ms) {
            Written::NeedsSegment => return GroupProgress::NeedsSegment,
            // It is tried again.
            Written::NoRoom(_) => {}
            Written::Done => self.syncs.ask(),
            Written::Failed(why) => self.fail(why),
        }
        self.show_statistics();
        GroupProgress::Done
    }
}
