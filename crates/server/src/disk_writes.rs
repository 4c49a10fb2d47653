//! The writes of a loop to databases on disk, on their way to the committer.
//!
//! Some must know what is on the device before they can be decided: a reader reads that first. What
//! comes behind them from the same connection waits for them, so that the writes of a call arrive
//! in their order. What other connections write does not.

use std::collections::{BTreeMap, HashMap, VecDeque};

use net::ConnectionId;
use store::WriteBatch;
use store::durable::Mailbox;

use crate::call_id::halves;
use crate::disk_write_queue::{DiskWriteQueue, Targets};
use crate::limits;
use crate::readers::{LoopReaders, ReadAheadId};

/// The writes of one loop to databases on disk that are not with the committer yet.
#[derive(Default)]
pub(crate) struct DiskWrites {
    /// Those of connections that have some.
    queues: HashMap<ConnectionId, DiskWriteQueue>,
    /// Of keys and values in all of them.
    bytes: usize,
    /// The connections whose first batch waits for room, in the order of their turns.
    stuck: VecDeque<ConnectionId>,
    /// The batch of the one that has its turn: a reader has it again.
    turn: Option<ReadAheadId>,
    /// When the next one has its turn; `None`: none was found to wait yet, or does.
    retry_ns: Option<u64>,
}

impl DiskWrites {
    /// Sends off all commits of a batch, which is empty afterwards.
    pub fn send(&mut self, batch: &mut WriteBatch, readers: &LoopReaders, mailbox: &Mailbox) {
        if batch.is_empty() {
            return;
        }
        if !batch.wants_reads() && self.queues.is_empty() {
            return mailbox.submit(batch);
        }
        let next = batch.next_batch();
        let batch = std::mem::replace(batch, next);
        for (connection, part) in self.divide(batch, mailbox) {
            let targets = Targets {
                connection,
                readers,
                mailbox,
            };
            self.with_queue(connection, |queue| queue.send(part, targets));
        }
    }

    /// Divides a batch among its connections. What need not wait goes to the mailbox.
    fn divide(&self, batch: WriteBatch, mailbox: &Mailbox) -> BTreeMap<ConnectionId, WriteBatch> {
        let mut waiting = BTreeMap::new();
        if let Some(connection) = connection_of(&batch)
            && (batch.wants_reads() || self.queues.contains_key(&connection))
        {
            waiting.insert(connection, batch);
            return waiting;
        }
        let mut at_once = batch.next_batch();
        for run in batch.runs() {
            let connection = connection_id(run.connection);
            let is_behind = |waiting: &BTreeMap<_, _>| {
                waiting.contains_key(&connection) || self.queues.contains_key(&connection)
            };
            let part = match run.wants_reads || is_behind(&waiting) {
                true => (waiting.entry(connection)).or_insert_with(|| batch.next_batch()),
                false => &mut at_once,
            };
            part.append_some(&batch, run.commits);
        }
        mailbox.submit(&mut at_once);
        waiting
    }

    /// Returns the bytes of keys and values in batches that are not with the committer yet.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether all batches are with the committer.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// A reader gives a batch back, having read for so many of its commits.
    pub fn arrived(
        &mut self,
        id: ReadAheadId,
        batch: Box<WriteBatch>,
        read: usize,
        mailbox: &Mailbox,
    ) {
        let has_gone = self.with_queue(id.connection, |queue| {
            let gone = queue.gone();
            queue.arrived(id.number, batch, read, mailbox);
            queue.gone() > gone
        });
        if self.turn == Some(id) {
            self.end_turn(id.connection, has_gone);
        }
    }

    /// Whether some connection waits for room.
    pub fn is_stuck(&self) -> bool {
        !self.stuck.is_empty()
    }

    /// When to [try again](DiskWrites::try_again).
    pub fn retry_ns(&self) -> Option<u64> {
        let has_next = self.is_stuck() && self.turn.is_none();
        has_next.then(|| self.retry_ns.unwrap_or(0))
    }

    /// Has the first batch of the next connection read again, when there was no room for long
    /// enough.
    pub fn try_again(&mut self, now_ns: u64, readers: &LoopReaders, mailbox: &Mailbox) {
        if self.turn.is_some() || !self.is_stuck() {
            return;
        }
        let soon_ns = now_ns + limits::READ_AHEAD_RETRY_MS * 1_000_000;
        if *self.retry_ns.get_or_insert(soon_ns) > now_ns {
            return;
        }
        self.retry_ns = None;
        let Some(connection) = self.stuck.pop_front() else {
            return;
        };
        let targets = Targets {
            connection,
            readers,
            mailbox,
        };
        let (number, has_gone) = self.with_queue(connection, |queue| {
            let gone = queue.gone();
            (queue.try_again(targets), queue.gone() > gone)
        });
        self.turn = number.map(|number| ReadAheadId { connection, number });
        if self.turn.is_none() {
            if self.waits_for_room(connection) {
                self.stuck.push_back(connection);
            }
            self.end_turn(connection, has_gone);
        }
    }

    fn waits_for_room(&self, connection: ConnectionId) -> bool {
        (self.queues.get(&connection)).is_some_and(DiskWriteQueue::is_stuck)
    }

    /// The next connection has its turn: later if there was too little room for the batch of this
    /// one.
    fn end_turn(&mut self, connection: ConnectionId, has_gone: bool) {
        self.turn = None;
        let goes_on = has_gone || !self.waits_for_room(connection);
        self.retry_ns = (self.is_stuck() && goes_on).then_some(0);
    }

    /// Tells the committer that the callers of some commits have left, by their connections and
    /// tags.
    pub fn abandon(&mut self, left: &mut Vec<(ConnectionId, u64)>, mailbox: &Mailbox) {
        let mut tags = Vec::with_capacity(left.len());
        for (connection, tag) in left.drain(..) {
            if let Some(queue) = self.queues.get_mut(&connection) {
                queue.abandon(tag);
            }
            // Some may be there already.
            tags.push(tag);
        }
        mailbox.abandon(&mut tags);
    }

    /// Changes the queue of a connection, and follows what has become of it.
    fn with_queue<R>(
        &mut self,
        connection: ConnectionId,
        act: impl FnOnce(&mut DiskWriteQueue) -> R,
    ) -> R {
        let queue = self.queues.entry(connection).or_default();
        let (bytes_before, was_stuck) = (queue.bytes(), queue.is_stuck());
        let done = act(queue);
        self.bytes = self.bytes + queue.bytes() - bytes_before;
        if queue.is_stuck() && !was_stuck {
            self.stuck.push_back(connection);
        }
        if queue.is_empty() {
            self.queues.remove(&connection);
        }
        done
    }
}

/// The connection of a batch, if there is only one.
fn connection_of(batch: &WriteBatch) -> Option<ConnectionId> {
    let mut connections = batch.runs().map(|run| run.connection);
    let first = connections.next()?;
    connections
        .all(|other| other == first)
        .then(|| connection_id(first))
}

/// The connection that a [`Source`](store::Source) names.
fn connection_id(source: u64) -> ConnectionId {
    let (generation, slot) = halves(source);
    ConnectionId { slot, generation }
}
