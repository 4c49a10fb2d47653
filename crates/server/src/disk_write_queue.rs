//! The writes of one connection to databases on disk, on their way to the committer, in order: some
//! wait until a reader has read what they must know.

use std::collections::VecDeque;

use net::ConnectionId;
use store::WriteBatch;
use store::durable::Mailbox;

use crate::readers::{LoopReaders, ReadAheadId};

/// The batches of one connection that are not with the committer yet, in order.
#[derive(Default)]
pub(crate) struct DiskWriteQueue {
    waiting: VecDeque<BatchState>,
    /// The number of the first one.
    first: u64,
    /// Of keys and values in all of them.
    bytes: usize,
    /// Commits whose callers have left: the number of the first batch that was not there yet, and
    /// the tag.
    abandoned: VecDeque<(u64, u64)>,
}

/// How far a batch has come.
enum BatchState {
    AtReader,
    /// Here, to be read when there is room for what its commits must know.
    Unread(Box<WriteBatch>),
    /// Here, until those before it have gone.
    Ready(Box<WriteBatch>),
}

/// Where the batches of a connection go.
#[derive(Clone, Copy)]
pub(crate) struct Targets<'a> {
    pub connection: ConnectionId,
    pub readers: &'a LoopReaders,
    pub mailbox: &'a Mailbox,
}

impl DiskWriteQueue {
    /// Sends off all commits of a batch.
    pub fn send(&mut self, batch: WriteBatch, targets: Targets<'_>) {
        let batch = Box::new(batch);
        self.bytes += batch.held_bytes();
        let number = self.first + self.waiting.len() as u64;
        if !batch.wants_reads() {
            self.waiting.push_back(BatchState::Ready(batch));
            self.go_on(targets.mailbox);
        } else if self.is_stuck() {
            // What would be read now would be in the way of the first one.
            self.waiting.push_back(BatchState::Unread(batch));
        } else {
            self.waiting.push_back(BatchState::AtReader);
            self.read(number, batch, targets);
        }
    }

    /// Returns how many batches have gone to the committer as a whole, ever.
    pub fn gone(&self) -> u64 {
        self.first
    }

    /// Has a batch read whose state is [`BatchState::AtReader`].
    fn read(&mut self, number: u64, batch: Box<WriteBatch>, targets: Targets<'_>) {
        let id = ReadAheadId {
            connection: targets.connection,
            number,
        };
        if let Some((batch, read)) = targets.readers.read_ahead(id, batch) {
            self.arrived(number, batch, read, targets.mailbox);
        }
    }

    /// Returns the bytes that batches hold which are not with the committer yet.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether all batches are with the committer.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A reader gives a batch back, having read for so many of its commits.
    pub fn arrived(
        &mut self,
        number: u64,
        mut batch: Box<WriteBatch>,
        read: usize,
        mailbox: &Mailbox,
    ) {
        let at = (number - self.first) as usize;
        debug_assert!(
            matches!(self.waiting[at], BatchState::AtReader),
            "a batch comes back once, and none before it has gone"
        );
        self.mark_abandoned(&mut batch);
        self.waiting[at] = if read >= batch.len() {
            BatchState::Ready(batch)
        } else if at == 0 && read > 0 {
            let mut rest = Box::new(batch.next_batch());
            batch.split_off(read, &mut rest);
            self.bytes -= batch.held_bytes();
            mailbox.submit(&mut batch);
            BatchState::Unread(rest)
        } else {
            // What it holds would be missed by those before it.
            batch.forget_reads();
            BatchState::Unread(batch)
        };
        self.go_on(mailbox);
    }

    /// Whether the first batch waits for room.
    pub fn is_stuck(&self) -> bool {
        matches!(self.waiting.front(), Some(BatchState::Unread(_)))
    }

    /// Has the first batch read again, which waits for room. Returns its number if a reader has it
    /// now.
    pub fn try_again(&mut self, targets: Targets<'_>) -> Option<u64> {
        let (number, first) = (self.first, self.waiting.front_mut()?);
        match std::mem::replace(first, BatchState::AtReader) {
            BatchState::Unread(batch) => self.read(number, batch, targets),
            other => *first = other,
        }
        let is_at_reader = matches!(self.waiting.front(), Some(BatchState::AtReader));
        (is_at_reader && self.first == number).then_some(number)
    }

    /// Notes that the caller of some commits has left, by their tag: nothing is read for those that
    /// are here, and they are refused when they get to the committer.
    pub fn abandon(&mut self, tag: u64) {
        for state in &mut self.waiting {
            if let BatchState::Unread(batch) | BatchState::Ready(batch) = state {
                batch.abandon(0, &[tag]);
            }
        }
        let end = self.first + self.waiting.len() as u64;
        self.abandoned.push_back((end, tag));
    }

    /// Marks what was abandoned in a batch while a reader had it.
    fn mark_abandoned(&self, batch: &mut WriteBatch) {
        if !self.abandoned.is_empty() {
            let mut tags: Vec<_> = self.abandoned.iter().map(|&(_, tag)| tag).collect();
            tags.sort_unstable();
            batch.abandon(0, &tags);
        }
    }

    fn go_on(&mut self, mailbox: &Mailbox) {
        while let Some(BatchState::Ready(ready)) = self.waiting.front_mut() {
            self.bytes -= ready.held_bytes();
            mailbox.submit(ready);
            self.waiting.pop_front();
            self.first += 1;
        }
        if self.is_stuck() {
            self.give_back_reads();
        }
        let are_gone = (self.abandoned).partition_point(|&(end, _)| end <= self.first);
        self.abandoned.drain(..are_gone);
    }

    /// The batches behind the first one make room for it: otherwise it could wait for what they
    /// hold, and they for it.
    fn give_back_reads(&mut self) {
        for state in self.waiting.iter_mut().skip(1) {
            match std::mem::replace(state, BatchState::AtReader) {
                BatchState::Ready(mut batch) if batch.wants_reads() => {
                    batch.forget_reads();
                    *state = BatchState::Unread(batch);
                }
                other => *state = other,
            }
        }
    }
}
