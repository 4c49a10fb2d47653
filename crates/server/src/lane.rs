//! Writes to databases on disk, on their way to the committer.
//!
//! Some must know what is on the device before they can be decided: a reader reads that first. Whatever comes behind them
//! from the same loop waits for them, so that the writes of a call arrive in their order.

use std::collections::VecDeque;

use store::WriteBatch;
use store::durable::Mailbox;

use crate::readers::LoopReaders;

/// The batches of one loop that are not with the committer yet, in order.
#[derive(Default)]
pub(crate) struct Lane {
    /// `None`: a reader has it.
    waiting: VecDeque<Option<Box<WriteBatch>>>,
    /// The number of the first one.
    first: u64,
    /// Of keys and values in all of them.
    bytes: usize,
    /// Commits whose callers have left: the number of the first batch that was not there yet, and the tag.
    abandoned: VecDeque<(u64, u64)>,
}

impl Lane {
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
        if !batch.wants_reads() {
            if self.waiting.is_empty() {
                mailbox.submit(batch);
            } else {
                let batch = Box::new(std::mem::replace(batch, empty()));
                self.bytes += batch.bytes();
                self.waiting.push_back(Some(batch));
            }
            return;
        }
        let number = self.first + self.waiting.len() as u64;
        let batch = Box::new(std::mem::replace(batch, empty()));
        self.bytes += batch.bytes();
        self.waiting.push_back(readers.read_ahead(number, batch));
        self.go_on(mailbox);
    }

    /// Returns the bytes of keys and values in batches that are not with the committer yet.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether all batches are with the committer.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A reader gives a batch back.
    pub fn arrived(&mut self, number: u64, batch: Box<WriteBatch>, mailbox: &Mailbox) {
        let place = (number - self.first) as usize;
        debug_assert!(
            self.waiting[place].is_none(),
            "a batch comes back once, and none before it has gone"
        );
        self.waiting[place] = Some(batch);
        self.go_on(mailbox);
    }

    /// Tells the committer that the callers of some commits have left, by their tags, once it has these commits.
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
        while let Some(Some(ready)) = self.waiting.front_mut() {
            self.bytes -= ready.bytes();
            mailbox.submit(ready);
            self.waiting.pop_front();
            self.first += 1;
        }
        self.pass_on_abandoned(mailbox);
    }
}
