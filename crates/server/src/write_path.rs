//! The way of the writes of a loop: volatile ones to a committer that the loop runs itself, durable
//! ones to the committer's thread, those to databases on disk by way of readers; or to an engine
//! elsewhere.

use net::ConnectionId;
use store::durable::Mailbox;
use store::{Outcomes, Store, VolatileCommitter, WriteBatch};

use crate::batch::TickBatch;
use crate::clock::LoopClock;
use crate::deferred_drop::DeferredDrop;
use crate::disk_writes::DiskWrites;
use crate::readers::{LoopReaders, ReadAheadId};
use crate::remote_requests::RemoteRequests;

/// Where the writes of one loop go.
pub(crate) struct WritePath {
    committer: VolatileCommitter,
    deferred_drop: DeferredDrop,
    /// To and from the committer of the durable databases, if there are any.
    mailbox: Option<Mailbox>,
    /// The way to it for writes to databases on disk.
    disk_writes: DiskWrites,
    /// To the engine that has the databases of the server, if that is elsewhere. Then there is no
    /// mailbox.
    remote: Option<Box<RemoteRequests>>,
    /// Kept between ticks, so that nothing is allocated anew.
    outcomes: Outcomes,
}

impl WritePath {
    pub fn new(
        store: &Store,
        deferred_drop: DeferredDrop,
        (mailbox, remote): (Option<Mailbox>, Option<Box<RemoteRequests>>),
    ) -> WritePath {
        WritePath {
            committer: store.committer(),
            deferred_drop,
            mailbox,
            disk_writes: DiskWrites::default(),
            remote,
            outcomes: Outcomes::new(),
        }
    }

    /// Returns how many bytes wait for the committer, those of the tick's batch aside. What an
    /// engine elsewhere has is bounded there: it is refused, and nobody is held back.
    #[inline]
    pub fn waiting_bytes(&self) -> usize {
        let mailbox_bytes = (self.mailbox.as_ref()).map_or(0, |mailbox| mailbox.waiting_bytes());
        self.disk_writes.bytes() + mailbox_bytes
    }

    /// Returns how many bytes of all loops wait for the committer of the durable databases.
    #[inline]
    pub fn waiting_bytes_of_all(&self) -> usize {
        (self.mailbox.as_ref()).map_or(0, |mailbox| mailbox.all_waiting_bytes())
    }

    /// Returns the list for outcomes, which [`WritePath::give_outcomes`] takes back.
    pub fn take_outcomes(&mut self) -> Outcomes {
        std::mem::take(&mut self.outcomes)
    }

    /// Keeps the list for the next tick.
    pub fn give_outcomes(&mut self, mut outcomes: Outcomes) {
        outcomes.clear();
        self.outcomes = outcomes;
    }

    /// Carries out the volatile commits of this tick, whose outcomes are in `outcomes` then, and
    /// hands the durable ones over: to the committer's thread, or first to a reader.
    pub fn commit_or_submit(
        &mut self,
        batch: &mut TickBatch,
        clock: &mut LoopClock,
        readers: &LoopReaders,
        outcomes: &mut Outcomes,
    ) {
        let garbage = self.committer.run(&mut batch.writes, clock, outcomes);
        self.deferred_drop.take(garbage);
        if let Some(mailbox) = &self.mailbox {
            mailbox.submit(&mut batch.writes);
            (self.disk_writes).send(&mut batch.disk_writes, readers, mailbox);
        } else if let Some(remote) = &mut self.remote {
            // Of the catalogue, and of keys.
            remote.submit(&mut batch.writes);
            remote.submit(&mut batch.disk_writes);
        }
    }

    /// Tells the committer of commits whose callers have left, by their connections and tags.
    pub fn abandon(&mut self, left: &mut Vec<(ConnectionId, u64)>) {
        match &self.mailbox {
            _ if left.is_empty() => {}
            Some(mailbox) => self.disk_writes.abandon(left, mailbox),
            None => {
                for (_, tag) in left.drain(..) {
                    if let Some(remote) = &mut self.remote {
                        remote.abandon(tag);
                    }
                }
            }
        }
    }

    /// A reader gives commits back, with what they must know: so many of them can be decided.
    pub fn read_ahead_is_done(&mut self, id: ReadAheadId, batch: Box<WriteBatch>, commits: usize) {
        if let Some(mailbox) = &self.mailbox {
            self.disk_writes.arrived(id, batch, commits, mailbox);
        }
    }

    /// Has commits read again for which there was no room, when it is time to.
    pub fn read_ahead_again(&mut self, now_ns: u64, readers: &LoopReaders) {
        if let Some(mailbox) = &self.mailbox
            && self.disk_writes.is_stuck()
        {
            self.disk_writes.try_again(now_ns, readers, mailbox);
        }
    }

    /// Returns when that is, or something is to be done for an engine elsewhere.
    pub fn retry_ns(&self) -> Option<u64> {
        match &self.remote {
            None => self.disk_writes.retry_ns(),
            Some(remote) => remote.next_tick_ns(),
        }
    }

    /// Returns the requests to the engine that has the databases of the server, if that is
    /// elsewhere.
    #[inline]
    pub fn remote(&mut self) -> Option<&mut RemoteRequests> {
        self.remote.as_deref_mut()
    }

    /// Submits removals of what has expired, which nobody waits for.
    pub fn submit_removals(&self, mut batch: Box<WriteBatch>) {
        if let Some(mailbox) = &self.mailbox {
            mailbox.submit(&mut batch);
        }
    }

    /// Exchanges the list for outcomes of the durable databases, if some have come.
    pub fn take_mail(&self, outcomes: &mut Outcomes) -> bool {
        let taken = |mailbox: &Mailbox| mailbox.take(outcomes);
        self.mailbox.as_ref().is_some_and(taken)
    }

    /// Returns whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.disk_writes.is_empty()
            && self.mailbox.as_ref().is_none_or(Mailbox::is_idle)
            && self.remote.as_ref().is_none_or(|remote| remote.is_idle())
    }

    /// Frees what is kept for the next tick.
    pub fn rest(&mut self) {
        self.outcomes = Outcomes::new();
        if let Some(mailbox) = &self.mailbox {
            mailbox.rest();
        }
    }
}
