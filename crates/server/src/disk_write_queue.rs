//! Writes to databases on disk, on their way to the committer.
//!
//! Some must know what is on the device before they can be decided: a reader reads that first.
//! Whatever comes behind them from the same loop waits for them, so that the writes of a call
//! arrive in their order.

use std::collections::VecDeque;

use store::WriteBatch;
use store::durable::Mailbox;

use crate::limits;
use crate::readers::LoopReaders;

/// The batches of one loop that are not with the committer yet, in order.
#[derive(Default)]
pub(crate) struct DiskWriteQueue {
    waiting: VecDeque<Place>,
    /// The number of the first one.
    first: u64,
    /// Of keys and values in all of them.
    bytes: usize,
    /// When the first one, for which there was no room, is read again; `None`: it was not found to
    /// be so yet, or is not.
    retry_ns: Option<u64>,
    /// Commits whose callers have left: the number of the first batch that was not there yet, and
    /// the tag.
    abandoned: VecDeque<(u64, u64)>,
}

/// Where a batch is.
enum Place {
    AtReader,
    /// Here, to be read when there is room for what its commits must know.
    Unread(Box<WriteBatch>),
    /// Here, until those before it have gone.
    Ready(Box<WriteBatch>),
}

impl DiskWriteQueue {
    /// Sends off all commits of a batch, which is empty afterwards.
    pub fn send(
        &mut self,
        batch: &mut WriteBatch,
        empty: impl FnOnce() -> WriteBatch,
        readers: &LoopReaders,
        mailbox: &Mailbox,
    ) {
        if batch.is_empty() {
            return;
        }
        if !batch.wants_reads() && self.waiting.is_empty() {
            return mailbox.submit(batch);
        }
        let batch = Box::new(std::mem::replace(batch, empty()));
        self.bytes += batch.bytes();
        if batch.wants_reads() {
            let number = self.first + self.waiting.len() as u64;
            self.waiting.push_back(Place::AtReader);
            self.read(number, batch, readers, mailbox);
        } else {
            self.waiting.push_back(Place::Ready(batch));
        }
    }

    /// Has a batch read for which there is a place.
    fn read(
        &mut self,
        number: u64,
        batch: Box<WriteBatch>,
        readers: &LoopReaders,
        mailbox: &Mailbox,
    ) {
        if let Some((batch, read)) = readers.read_ahead(number, batch) {
            self.arrived(number, batch, read, mailbox);
        }
    }

    /// Returns the bytes of keys and values in batches that are not with the committer yet.
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
            matches!(self.waiting[at], Place::AtReader),
            "a batch comes back once, and none before it has gone"
        );
        self.waiting[at] = if read >= batch.len() {
            Place::Ready(batch)
        } else if at == 0 && read > 0 {
            let mut rest = Box::new(batch.next_batch());
            batch.split_off(read, &mut rest);
            self.bytes -= batch.bytes();
            mailbox.submit(&mut batch);
            Place::Unread(rest)
        } else {
            // What it holds would be missed by those before it.
            batch.forget_reads();
            Place::Unread(batch)
        };
        self.go_on(mailbox);
    }

    /// Whether the first batch waits for room.
    pub fn is_stuck(&self) -> bool {
        matches!(self.waiting.front(), Some(Place::Unread(_)))
    }

    /// When to [try again](DiskWriteQueue::try_again).
    pub fn retry_ns(&self) -> Option<u64> {
        self.is_stuck().then(|| self.retry_ns.unwrap_or(0))
    }

    /// Has the first batch read again, when it has waited for room long enough.
    pub fn try_again(&mut self, now_ns: u64, readers: &LoopReaders, mailbox: &Mailbox) {
        let soon_ns = now_ns + limits::READ_AHEAD_RETRY_MS * 1_000_000;
        if *self.retry_ns.get_or_insert(soon_ns) > now_ns {
            return;
        }
        self.retry_ns = None;
        let Some(first) = self.waiting.front_mut() else {
            return;
        };
        if let Place::Unread(batch) = std::mem::replace(first, Place::AtReader) {
            self.read(self.first, batch, readers, mailbox);
        }
    }

    /// Tells the committer that the callers of some commits have left, by their tags, once it has
    /// these commits.
    pub fn abandon(&mut self, tags: &mut Vec<u64>, mailbox: &Mailbox) {
        let end = self.first + self.waiting.len() as u64;
        self.abandoned.extend(tags.drain(..).map(|tag| (end, tag)));
        self.pass_on_abandoned(mailbox);
    }

    fn pass_on_abandoned(&mut self, mailbox: &Mailbox) {
        let are_there = (self.abandoned).partition_point(|&(end, _)| end <= self.first);
        let mut tags = self
            .abandoned
            .drain(..are_there)
            .map(|(_, tag)| tag)
            .collect();
        mailbox.abandon(&mut tags);
    }

    fn go_on(&mut self, mailbox: &Mailbox) {
        while let Some(Place::Ready(ready)) = self.waiting.front_mut() {
            self.bytes -= ready.bytes();
            mailbox.submit(ready);
            self.waiting.pop_front();
            self.first += 1;
        }
        if self.is_stuck() {
            self.give_back_reads();
        }
        self.pass_on_abandoned(mailbox);
    }

    /// The batches behind the first one make room for it: otherwise it could wait for what they
    /// hold, and they for it.
    fn give_back_reads(&mut self) {
        for place in self.waiting.iter_mut().skip(1) {
            match std::mem::replace(place, Place::AtReader) {
                Place::Ready(mut batch) if batch.wants_reads() => {
                    batch.forget_reads();
                    *place = Place::Unread(batch);
                }
                other => *place = other,
            }
        }
    }
}
