//! Where loops and the durable committer exchange batches and outcomes.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};

use super::committer::DurableCommitter;
use super::committer_jobs::{CommitterJobs, JobTurn};
use super::event::StorageEvent;
use super::hold::Holds;
use super::signal::Signal;
use super::snapshot_queue::SnapshotQueue;
use crate::batch::WriteBatch;
use crate::clock::Clock;
use crate::limits;
use crate::outcome::Outcomes;
use crate::store::Store;

/// Called by the committer's thread when a mailbox has outcomes for its loop.
pub type CommitWaker = Box<dyn Fn() + Send + Sync>;

/// All mailboxes, and how to wake the one that empties them.
pub(super) struct Hub {
    store: Store,
    numbers: Mutex<MailboxNumbers>,
    /// Mailboxes with batches that nobody has collected, each once.
    submitted: Mutex<Vec<Arc<CommitterMailbox>>>,
    /// What batches of all mailboxes hold that were submitted and are not decided, in bytes.
    waiting_bytes: Arc<AtomicUsize>,
    signal: Arc<Signal>,
    syncs: Mutex<Syncs>,
    sync_done: Condvar,
    /// Which segments may be retired.
    holds: Arc<Holds>,
    /// Where snapshots are asked for.
    snapshot_queue: SnapshotQueue,
    /// What the committer's thread does for others.
    jobs: CommitterJobs,
    /// What has happened to trees.
    tree_news: Mutex<Vec<StorageEvent>>,
    has_tree_news: AtomicBool,
}

/// The numbers of mailboxes.
#[derive(Debug, Default)]
struct MailboxNumbers {
    /// How many were given out.
    count: usize,
    /// Those of mailboxes that are gone.
    free: Vec<usize>,
}

/// Syncs that somebody has asked for.
#[derive(Default)]
struct Syncs {
    asked: u64,
    done: u64,
    has_failed: bool,
    /// The log was durable up to here after the last one.
    durable_sequence: u64,
    /// Nobody is there any more to do it.
    is_over: bool,
}

impl Hub {
    pub(super) fn new(store: &Store) -> Arc<Hub> {
        let signal = Arc::<Signal>::default();
        Arc::new(Hub {
            store: store.clone(),
            numbers: Mutex::default(),
            submitted: Mutex::default(),
            waiting_bytes: Arc::default(),
            holds: Holds::new(&signal),
            signal,
            syncs: Mutex::default(),
            sync_done: Condvar::new(),
            snapshot_queue: SnapshotQueue::default(),
            jobs: CommitterJobs::default(),
            tree_news: Mutex::default(),
            has_tree_news: AtomicBool::new(false),
        })
    }

    pub(super) fn register(self: &Arc<Hub>, waker: CommitWaker) -> Mailbox {
        let mut numbers = self.numbers.lock();
        let number = numbers.free.pop().unwrap_or(numbers.count);
        numbers.count = numbers.count.max(number + 1);
        drop(numbers);
        let slot = Arc::new(CommitterMailbox {
            number,
            waker,
            waiting_bytes: AtomicUsize::new(0),
            all_waiting_bytes: Arc::clone(&self.waiting_bytes),
            mail: Mutex::new(Mail::default()),
        });
        Mailbox {
            hub: self.clone(),
            slot,
        }
    }

    /// Waits for a sync that begins after this call. Returns up to where the log is durable then;
    /// `None`: it failed.
    pub(super) fn sync(&self) -> Option<u64> {
        let mut syncs = self.syncs.lock();
        syncs.asked += 1;
        let number = syncs.asked;
        self.signal.wake();
        while syncs.done < number && !syncs.is_over {
            self.sync_done.wait(&mut syncs);
        }
        let is_done = syncs.done >= number && !syncs.has_failed;
        is_done.then_some(syncs.durable_sequence)
    }

    /// The number of the last sync that was asked for and is not done.
    pub(super) fn sync_asked(&self) -> Option<u64> {
        let syncs = self.syncs.lock();
        (syncs.asked > syncs.done).then_some(syncs.asked)
    }

    /// Syncs up to this one are done, and the log is durable up to a sequence; `None`: they failed.
    pub(super) fn finish_syncs(&self, number: u64, durable_sequence: Option<u64>) {
        let mut syncs = self.syncs.lock();
        syncs.done = number;
        syncs.has_failed |= durable_sequence.is_none();
        syncs.durable_sequence = durable_sequence.unwrap_or(syncs.durable_sequence);
        self.sync_done.notify_all();
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// There will be no more syncs, snapshots and jobs.
    pub(super) fn end(&self) {
        self.syncs.lock().is_over = true;
        self.sync_done.notify_all();
        self.snapshot_queue.end();
        self.jobs.end();
    }

    /// The wake-up of the one that empties the mailboxes.
    pub(super) fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }

    /// Which segments may be retired.
    pub(super) fn holds(&self) -> &Arc<Holds> {
        &self.holds
    }

    /// Where snapshots are asked for.
    pub(super) fn snapshot_queue(&self) -> &SnapshotQueue {
        &self.snapshot_queue
    }

    /// Has something done on the committer's thread between two groups, and waits for it. `None`:
    /// the committer has stopped.
    pub(super) fn between_groups<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut DurableCommitter, &mut dyn Clock) -> R + Send + 'static,
    ) -> Option<R> {
        self.jobs.send(&self.signal, JobTurn::BetweenGroups, work)
    }

    /// Has something done on the committer's thread between two groups or while one waits for
    /// followers, and waits for it. `None`: the committer has stopped.
    pub(super) fn while_awaiting<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut DurableCommitter, &mut dyn Clock) -> R + Send + 'static,
    ) -> Option<R> {
        self.jobs.send(&self.signal, JobTurn::WhileAwaiting, work)
    }

    /// Does what others wait for. Call it between two groups, or while one waits for followers.
    pub(super) fn run_jobs(&self, committer: &mut DurableCommitter, clock: &mut dyn Clock) {
        self.jobs.run(committer, clock);
    }

    /// Tells the committer what has happened on another thread; `None`: something was flushed or
    /// compacted.
    pub(super) fn tell(&self, event: Option<StorageEvent>) {
        self.tree_news.lock().extend(event);
        self.has_tree_news.store(true, Ordering::Release);
        self.signal.wake();
    }

    /// What has happened to trees since this was asked last; `None`: nothing.
    pub(super) fn take_tree_news(&self) -> Option<Vec<StorageEvent>> {
        let has_news = self.has_tree_news.load(Ordering::Relaxed)
            && self.has_tree_news.swap(false, Ordering::Acquire);
        has_news.then(|| std::mem::take(&mut *self.tree_news.lock()))
    }

    /// Exchanges an empty list for the mailboxes that have got batches since this was asked last.
    pub(super) fn take_submitted(&self, empty: &mut Vec<Arc<CommitterMailbox>>) {
        std::mem::swap(&mut *self.submitted.lock(), empty);
    }
}

/// The mailbox of one loop, on the committer's side.
pub(super) struct CommitterMailbox {
    /// Small; that of a mailbox that is gone is used again.
    pub(super) number: usize,
    waker: CommitWaker,
    /// What batches hold that were submitted and are not decided.
    waiting_bytes: AtomicUsize,
    /// What those of all mailboxes hold.
    all_waiting_bytes: Arc<AtomicUsize>,
    mail: Mutex<Mail>,
}

#[derive(Default)]
struct Mail {
    submitted: VecDeque<WriteBatch>,
    /// Tags of commits whose callers have left.
    abandoned: Vec<u64>,
    delivered: VecDeque<Outcomes>,
    /// Commits whose outcomes the loop has not taken.
    under_way: usize,
    /// Empty ones, so that nothing is allocated anew.
    spare_batches: Vec<WriteBatch>,
    spare_outcomes: Vec<Outcomes>,
}

impl Mail {
    /// Whether the mailbox is in the list of those that the committer should look at.
    fn is_listed(&self) -> bool {
        !self.submitted.is_empty() || !self.abandoned.is_empty()
    }
}

impl CommitterMailbox {
    /// Takes what the loop has submitted, oldest first.
    /// Returns the tags of commits, among these and earlier ones, whose callers have left.
    pub(super) fn collect(&self, take: &mut dyn FnMut(WriteBatch)) -> Vec<u64> {
        let mut mail = self.mail.lock();
        while let Some(batch) = mail.submitted.pop_front() {
            take(batch);
        }
        std::mem::take(&mut mail.abandoned)
    }

    /// Gives a batch back that is decided.
    pub(super) fn give_back(&self, mut batch: WriteBatch) {
        let bytes = batch.submitted_bytes();
        batch.clear();
        self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.all_waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        let mut mail = self.mail.lock();
        if mail.spare_batches.len() < limits::SPARE_BATCHES {
            mail.spare_batches.push(batch);
        }
    }

    /// Leaves outcomes for the loop, in exchange for an empty list.
    pub(super) fn deliver(&self, outcomes: &mut Outcomes) {
        let mut mail = self.mail.lock();
        let empty = mail.spare_outcomes.pop().unwrap_or_default();
        mail.delivered.push_back(std::mem::replace(outcomes, empty));
    }

    pub(super) fn wake(&self) {
        (self.waker)();
    }
}

/// Through which a loop hands its commits to the durable committer, and gets their outcomes.
pub struct Mailbox {
    hub: Arc<Hub>,
    slot: Arc<CommitterMailbox>,
}

impl Mailbox {
    /// Hands over all commits of a batch, which is empty afterwards. Volatile ones must have been
    /// [carried out](crate::VolatileCommitter::run) before.
    pub fn submit(&self, batch: &mut WriteBatch) {
        if batch.is_empty() {
            return;
        }
        debug_assert_eq!(
            batch.len(),
            batch.logged_len(),
            "volatile commits are carried out by the loop"
        );
        let bytes = batch.note_submitted();
        self.slot.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.hub.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut mail = self.slot.mail.lock();
        mail.under_way += batch.len();
        let is_first = !mail.is_listed();
        match mail.submitted.back_mut() {
            Some(last) if last.bytes() + batch.bytes() <= limits::JOINED_BATCH_BYTES => {
                last.append(batch);
            }
            _ => {
                let empty = mail.spare_batches.pop();
                let empty = empty.unwrap_or_else(|| self.hub.store.write_batch());
                mail.submitted.push_back(std::mem::replace(batch, empty));
            }
        }
        drop(mail);
        self.announce(is_first);
    }

    /// Says that the callers of some commits that were submitted have left, by their tags: what is
    /// not decided yet of them is refused ([`Refusal::Abandoned`](crate::Refusal::Abandoned)).
    pub fn abandon(&self, tags: &mut Vec<u64>) {
        if tags.is_empty() {
            return;
        }
        let mut mail = self.slot.mail.lock();
        if mail.under_way == 0 {
            return tags.clear();
        }
        let is_first = !mail.is_listed();
        mail.abandoned.append(tags);
        drop(mail);
        self.announce(is_first);
    }

    /// Has the committer look at what was left for it.
    fn announce(&self, is_first: bool) {
        if is_first {
            // Only who finds it in the list empties it, so that it is there once.
            self.hub.submitted.lock().push(Arc::clone(&self.slot));
        }
        self.hub.signal.wake();
    }

    /// Returns whether the loop has taken the outcomes of all commits that it has submitted.
    pub fn is_idle(&self) -> bool {
        self.slot.mail.lock().under_way == 0
    }

    /// Returns the bytes that batches hold about which the committer has yet to decide.
    #[inline]
    pub fn waiting_bytes(&self) -> usize {
        self.slot.waiting_bytes.load(Ordering::Relaxed)
    }

    /// Returns the same of all mailboxes together.
    #[inline]
    pub fn all_waiting_bytes(&self) -> usize {
        self.hub.waiting_bytes.load(Ordering::Relaxed)
    }

    /// Frees what is kept for the next time.
    pub fn rest(&self) {
        let mut mail = self.slot.mail.lock();
        (mail.spare_batches, mail.spare_outcomes) = (Vec::new(), Vec::new());
    }

    /// Exchanges the list for the next one of outcomes that have come, if there is one. The commits
    /// of one connection ([`Source`](crate::Source)) on one database have their outcomes in the
    /// order in which they were submitted, but for those that were abandoned.
    pub fn take(&self, outcomes: &mut Outcomes) -> bool {
        let mut mail = self.slot.mail.lock();
        let Some(delivered) = mail.delivered.pop_front() else {
            return false;
        };
        debug_assert!(delivered.len() <= mail.under_way, "one outcome for each");
        mail.under_way = mail.under_way.saturating_sub(delivered.len());
        let mut old = std::mem::replace(outcomes, delivered);
        if mail.spare_outcomes.len() < limits::SPARE_BATCHES {
            old.clear();
            mail.spare_outcomes.push(old);
        }
        true
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        // With outcomes on their way to it the number is not used again: they are for nobody else.
        if self.is_idle() {
            self.hub.numbers.lock().free.push(self.slot.number);
        }
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Mailbox").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreConfig;

    fn hub() -> Arc<Hub> {
        Hub::new(&Store::in_memory(StoreConfig::new(1)).expect("the limits make sense"))
    }

    #[test]
    fn numbers_of_mailboxes_that_are_gone_are_used_again() {
        let hub = hub();
        let register = || hub.register(Box::new(|| ()));
        for _ in 0..3 {
            let mailboxes: Vec<Mailbox> = (0..10).map(|_| register()).collect();
            let mut numbers: Vec<usize> = mailboxes.iter().map(|one| one.slot.number).collect();
            numbers.sort();
            assert_eq!(numbers, (0..10).collect::<Vec<_>>());
        }
    }

    /// Two things that come before the committer looks are both there, and gone when it has looked.
    #[test]
    fn two_requests_in_one_round_are_both_kept() {
        let hub = hub();
        for _ in 0..2 {
            for sequences in [[9, 4], [4, 9]] {
                for sequence in sequences {
                    hub.holds().retire_through(sequence);
                }
                assert_eq!(hub.holds().take_retire_sequence(0), 9);
                assert_eq!(hub.holds().take_retire_sequence(0), 0);
            }
            hub.tell(Some(StorageEvent::TreeWorks("one".into())));
            hub.tell(None);
            hub.tell(Some(StorageEvent::TreeWorks("two".into())));
            let news = hub.take_tree_news().expect("there are some");
            let expected = ["one", "two"].map(|name| StorageEvent::TreeWorks(name.into()));
            assert_eq!(news, expected);
            assert!(hub.take_tree_news().is_none());
        }
    }

    /// It may have begun before something that the later caller has seen was written.
    #[test]
    fn a_sync_that_is_asked_for_during_another_is_another() {
        let hub = hub();
        for round in 0..2 {
            hub.syncs.lock().asked += 1;
            let first = hub.sync_asked().expect("one was asked for");
            hub.syncs.lock().asked += 1;
            hub.finish_syncs(first, Some(10 + round));
            assert_eq!(hub.sync_asked(), Some(first + 1));
            hub.finish_syncs(first + 1, Some(20 + round));
            assert_eq!(hub.sync_asked(), None);
        }
    }

    #[test]
    fn all_who_wait_for_a_sync_hear_that_it_is_done() {
        let hub = hub();
        for round in 1..=2 {
            let (told, heard) = std::sync::mpsc::channel();
            for _ in 0..3 {
                let (hub, told) = (hub.clone(), told.clone());
                let waiter = move || told.send(hub.sync());
                std::thread::Builder::new().spawn(waiter).expect("a thread");
            }
            while hub.syncs.lock().asked < 3 * round {
                std::thread::yield_now();
            }
            hub.finish_syncs(3 * round, Some(round));
            for waiter in 0..3 {
                let durable = heard.recv_timeout(std::time::Duration::from_secs(30));
                assert_eq!(durable, Ok(Some(round)), "waiter {waiter}");
            }
        }
    }

    #[test]
    fn a_number_with_outcomes_on_their_way_is_not_used_again() {
        let hub = hub();
        let mailbox = hub.register(Box::new(|| ()));
        mailbox.slot.mail.lock().under_way = 2;
        assert!(!mailbox.is_idle());
        drop(mailbox);
        assert_eq!(hub.register(Box::new(|| ())).slot.number, 1);
        assert_eq!(hub.register(Box::new(|| ())).slot.number, 1);
    }
}
