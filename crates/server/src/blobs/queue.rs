//! The queue of jobs for blobs: sources take turns, and reads wait while too much of what was read
//! before is still there.
//!
//! A read counts from its beginning until its piece has been handed on to the connection, or nobody
//! wants it any more: it is claimed of the account just before it begins, and not while it waits. A
//! source has a bound, and all together have one. A source with nothing under way may always have
//! one read: a small one where the common bound is reached, or the account is full. So a download
//! is served, however many others are not read.
//!
//! What a call asked for that is gone is dropped before it begins, and nothing of it stays: callers
//! who come and go by the thousand would else leave more behind them than the disk can do.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use store::blob::CallJob;

use crate::account::Account;
use crate::limits;

/// A source of jobs: a connection, or the store itself.
pub(crate) type JobSource = u64;

/// A job of nobody in particular.
pub(crate) const STORE: JobSource = u64::MAX;

/// What comes out of the queue.
pub(crate) enum NextBlobWork {
    Job(Box<dyn CallJob>),
    /// A read, and how many bytes it may bring; they are to be [released](Queue::release).
    Read {
        source: JobSource,
        bytes: usize,
        read: Box<dyn CallJob>,
    },
}

/// Jobs by their sources.
pub(crate) struct Queue {
    /// Of which reads take memory.
    account: Arc<Account>,
    jobs: HashMap<JobSource, VecDeque<Box<dyn CallJob>>>,
    reads: HashMap<JobSource, BlobReads>,
    /// Whose turn it is. Each source stands in it once for its jobs and once for its reads, if it
    /// has any that may begin.
    turns: VecDeque<Turn>,
    /// Sources whose reads wait for room.
    blocked: VecDeque<JobSource>,
    read_bytes: usize,
    /// Jobs and reads that wait.
    waiting: usize,
    /// With so many of them, it is time to look which are still wanted.
    prune_at: usize,
    /// Nothing waits for room any more.
    has_no_bounds: bool,
}

#[derive(Clone, Copy)]
enum Turn {
    Job(JobSource),
    Read(JobSource),
}

#[derive(Default)]
struct BlobReads {
    waiting: VecDeque<(usize, Box<dyn CallJob>)>,
    /// Bytes that are being read, or were and have not been handed on.
    bytes: usize,
    /// It stands among the turns, or among the blocked.
    is_queued: bool,
}

impl Queue {
    pub fn new(account: Arc<Account>) -> Queue {
        Queue {
            account,
            jobs: HashMap::new(),
            reads: HashMap::new(),
            turns: VecDeque::new(),
            blocked: VecDeque::new(),
            read_bytes: 0,
            waiting: 0,
            prune_at: limits::BLOB_JOBS_PRUNED,
            has_no_bounds: false,
        }
    }

    pub fn push(&mut self, source: JobSource, job: Box<dyn CallJob>) {
        self.count_one();
        let jobs = self.jobs.entry(source).or_default();
        jobs.push_back(job);
        if jobs.len() == 1 {
            self.turns.push_back(Turn::Job(source));
        }
    }

    pub fn push_read(&mut self, source: JobSource, bytes: usize, read: Box<dyn CallJob>) {
        self.count_one();
        let reads = self.reads.entry(source).or_default();
        reads.waiting.push_back((bytes, read));
        if !std::mem::replace(&mut reads.is_queued, true) {
            self.turns.push_back(Turn::Read(source));
        }
    }

    /// Counts one more, after those that nobody wants any more have been dropped, if there may be
    /// many of them. That is done so seldom that it costs each of them little.
    fn count_one(&mut self) {
        if self.waiting >= self.prune_at {
            self.prune();
            self.prune_at = limits::BLOB_JOBS_PRUNED.max(2 * self.waiting);
        }
        self.waiting += 1;
    }

    /// Drops what nobody wants any more. Sources that have no read left are passed over in their
    /// turns.
    fn prune(&mut self) {
        for jobs in self.jobs.values_mut() {
            jobs.retain(|job| !job.is_forsaken());
        }
        self.jobs.retain(|_, jobs| !jobs.is_empty());
        let jobs = &self.jobs;
        self.turns.retain(|turn| match turn {
            Turn::Job(source) => jobs.contains_key(source),
            Turn::Read(_) => true,
        });
        for reads in self.reads.values_mut() {
            reads.waiting.retain(|(_, read)| !read.is_forsaken());
        }
        let jobs = self.jobs.values().map(VecDeque::len).sum::<usize>();
        let reads = self.reads.values().map(|reads| reads.waiting.len());
        self.waiting = jobs + reads.sum::<usize>();
    }

    /// Takes the next job that may begin.
    pub fn pop(&mut self) -> Option<NextBlobWork> {
        while let Some(turn) = self.turns.pop_front() {
            let next = match turn {
                Turn::Job(source) => self.pop_job(source),
                Turn::Read(source) => self.pop_read(source),
            };
            if next.is_some() {
                return next;
            }
        }
        None
    }

    /// Returns how many sources have something that may begin, at most.
    pub fn len(&self) -> usize {
        self.turns.len()
    }

    fn pop_job(&mut self, source: JobSource) -> Option<NextBlobWork> {
        let jobs = self.jobs.get_mut(&source)?;
        let before = jobs.len();
        let job = next_wanted(jobs, |job| job.is_forsaken());
        self.waiting -= before - jobs.len();
        match jobs.is_empty() {
            true => drop(self.jobs.remove(&source)),
            false => self.turns.push_back(Turn::Job(source)),
        }
        job.map(NextBlobWork::Job)
    }

    fn pop_read(&mut self, source: JobSource) -> Option<NextBlobWork> {
        let reads = self.reads.get_mut(&source)?;
        let before = reads.waiting.len();
        let next = next_wanted(&mut reads.waiting, |(_, read)| read.is_forsaken());
        self.waiting -= before - reads.waiting.len();
        let Some((wanted, read)) = next else {
            reads.is_queued = false;
            if reads.bytes == 0 {
                self.reads.remove(&source);
            }
            return None;
        };
        let is_full = self.read_bytes + wanted > limits::BLOB_READ_BYTES
            || (reads.bytes > 0 && reads.bytes + wanted > limits::BLOB_SOURCE_READ_BYTES);
        let bytes = if self.has_no_bounds {
            self.account.claim_little(wanted);
            wanted
        } else if !is_full && self.account.claim(wanted).is_some() {
            wanted
        } else if reads.bytes == 0 {
            let little = wanted.min(limits::BLOB_SMALL_READ_BYTES);
            self.account.claim_little(little);
            little
        } else {
            // Something of it is under way: when that is out of the way, it is looked at again.
            reads.waiting.push_front((wanted, read));
            self.waiting += 1;
            self.blocked.push_back(source);
            return None;
        };
        reads.bytes += bytes;
        self.read_bytes += bytes;
        reads.is_queued = !reads.waiting.is_empty();
        if reads.is_queued {
            self.turns.push_back(Turn::Read(source));
        }
        Some(NextBlobWork::Read {
            source,
            bytes,
            read,
        })
    }

    /// What a read has brought is out of the way.
    pub fn release(&mut self, source: JobSource, bytes: usize) {
        self.read_bytes -= bytes;
        self.account.end_claim(bytes);
        if let Some(reads) = self.reads.get_mut(&source) {
            reads.bytes -= bytes;
            if reads.bytes == 0 && !reads.is_queued {
                self.reads.remove(&source);
            }
        }
        // Each finds out for itself, in its turn. There are no more of them than connections with
        // reads under way.
        self.turns.extend(self.blocked.drain(..).map(Turn::Read));
    }

    /// Lets all reads begin, whatever is under way: what was read before may never be taken.
    pub fn lift_bounds(&mut self) {
        self.has_no_bounds = true;
        self.turns.extend(self.blocked.drain(..).map(Turn::Read));
    }

    #[cfg(test)]
    fn holds_nothing(&self) -> bool {
        let is_idle = self.turns.is_empty() && self.blocked.is_empty();
        let has_none = self.jobs.is_empty() && self.reads.is_empty();
        is_idle && has_none && self.waiting == 0 && self.read_bytes == 0
    }
}

/// Takes the first that somebody wants, and drops those before it.
fn next_wanted<T>(waiting: &mut VecDeque<T>, is_forsaken: impl Fn(&T) -> bool) -> Option<T> {
    while let Some(next) = waiting.pop_front() {
        if !is_forsaken(&next) {
            return Some(next);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use store::blob::{BlobInterest, BlobPermit};

    use super::*;

    const LARGE: usize = 4 << 20;

    /// A queue whose account has room for all.
    fn queue() -> Queue {
        Queue::new(Account::new(1 << 30))
    }

    /// A job of a caller who is there until the test lets go of `caller`.
    struct Wanted {
        caller: BlobInterest,
        run: Option<Box<dyn FnOnce() + Send>>,
    }

    impl CallJob for Wanted {
        fn is_forsaken(&self) -> bool {
            self.caller.is_lost()
        }

        fn run(self: Box<Wanted>, _grant: Option<(usize, BlobPermit)>) {
            if let Some(run) = self.run {
                run();
            }
        }
    }

    fn of(caller: BlobInterest) -> Box<dyn CallJob> {
        Box::new(Wanted { caller, run: None })
    }

    thread_local! {
        /// A caller who stays.
        static STAYS: BlobInterest = BlobInterest::default();
    }

    fn read() -> Box<dyn CallJob> {
        of(STAYS.with(BlobInterest::clone))
    }

    fn job(run: impl FnOnce() + Send + 'static) -> Box<dyn CallJob> {
        Box::new(Wanted {
            caller: STAYS.with(BlobInterest::clone),
            run: Some(Box::new(run)),
        })
    }

    /// The reads that may begin now, in their order.
    fn begin_reads(queue: &mut Queue) -> Vec<(JobSource, usize)> {
        let mut begun = Vec::new();
        while let Some(next) = queue.pop() {
            match next {
                NextBlobWork::Read { source, bytes, .. } => begun.push((source, bytes)),
                NextBlobWork::Job(_) => panic!("there are none"),
            }
        }
        begun
    }

    #[test]
    fn sources_take_turns() {
        let mut queue = queue();
        let order = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        for _ in 0..2 {
            for (source, count) in [(1, 100), (2, 2), (STORE, 1)] {
                for number in 0..count {
                    let order = std::sync::Arc::clone(&order);
                    let push = move || order.lock().expect("no panic").push((source, number));
                    queue.push(source, job(push));
                }
            }
            assert_eq!(queue.len(), 3, "one of each source may begin");
            while let Some(NextBlobWork::Job(job)) = queue.pop() {
                job.run(None);
            }
            assert_eq!(queue.len(), 0);
            let done = std::mem::take(&mut *order.lock().expect("no panic"));
            let first = [(1, 0), (2, 0), (STORE, 0), (1, 1), (2, 1), (1, 2), (1, 3)];
            assert_eq!(done[..7], first);
            assert_eq!(done.len(), 103);
            assert!(queue.holds_nothing());
        }
    }

    #[test]
    fn what_nobody_waits_for_any_more_is_dropped_in_its_turn() {
        let mut queue = queue();
        let callers: Vec<_> = (0..9).map(|_| BlobInterest::default()).collect();
        for _ in 0..2 {
            for caller in &callers {
                queue.push(1, of(caller.clone()));
                queue.push_read(2, LARGE, of(caller.clone()));
            }
            // Nobody keeps the other end of these.
            for _ in 0..9 {
                queue.push(1, of(BlobInterest::default()));
                queue.push(3, of(BlobInterest::default()));
                queue.push_read(2, LARGE, of(BlobInterest::default()));
                queue.push_read(4, LARGE, of(BlobInterest::default()));
            }
            let (mut jobs, mut reads) = (0, 0);
            while let Some(next) = queue.pop() {
                match next {
                    NextBlobWork::Job(_) => jobs += 1,
                    NextBlobWork::Read { source, bytes, .. } => {
                        reads += 1;
                        queue.release(source, bytes);
                    }
                }
            }
            assert_eq!((jobs, reads), (callers.len(), callers.len()));
            assert!(queue.holds_nothing());
        }
    }

    /// Callers come and go while the disk does nothing at all.
    #[test]
    fn what_callers_leave_behind_has_a_bound_while_nothing_is_done() {
        let mut queue = queue();
        let caller = BlobInterest::default();
        let kept = 2 * limits::BLOB_JOBS_PRUNED;
        for _ in 0..2 {
            for number in 0..20 * limits::BLOB_JOBS_PRUNED {
                let source = number as u64 % 5;
                queue.push(source, of(BlobInterest::default()));
                queue.push_read(source, 1, of(BlobInterest::default()));
                if number < kept {
                    queue.push(source, of(caller.clone()));
                }
                let bound = 2 * (kept + 2) + limits::BLOB_JOBS_PRUNED;
                let held = queue.jobs.values().map(VecDeque::len).sum::<usize>()
                    + (queue.reads.values().map(|reads| reads.waiting.len())).sum::<usize>();
                assert!(held <= bound, "{held} wait after {number}");
                assert_eq!(held, queue.waiting);
                assert!(
                    queue.turns.len() <= 10,
                    "a source has one turn of each kind"
                );
            }
            let mut jobs = 0;
            while let Some(NextBlobWork::Job(_)) = queue.pop() {
                jobs += 1;
            }
            assert_eq!(jobs, kept);
            assert!(queue.holds_nothing());
        }
    }

    #[test]
    fn reads_of_one_source_are_bounded_and_go_on_when_it_gives_back() {
        let mut queue = queue();
        for _ in 0..2 {
            for _ in 0..500 {
                queue.push_read(1, LARGE, read());
            }
            let at_once = limits::BLOB_SOURCE_READ_BYTES / LARGE;
            assert_eq!(begin_reads(&mut queue), vec![(1, LARGE); at_once]);
            queue.push_read(2, LARGE, read());
            assert_eq!(begin_reads(&mut queue), [(2, LARGE)]);
            for _ in at_once..500 {
                queue.release(1, LARGE);
                assert_eq!(begin_reads(&mut queue), [(1, LARGE)]);
            }
            for _ in 0..at_once {
                queue.release(1, LARGE);
            }
            queue.release(2, LARGE);
            assert!(queue.holds_nothing());
        }
    }

    /// What was read lies in the inbox of a loop that has ended.
    #[test]
    fn reads_that_wait_for_room_begin_when_bounds_are_lifted() {
        let mut queue = queue();
        for _ in 0..500 {
            queue.push_read(1, LARGE, read());
        }
        let at_once = begin_reads(&mut queue).len();
        queue.lift_bounds();
        assert_eq!(begin_reads(&mut queue).len(), 500 - at_once);
    }

    #[test]
    fn a_source_with_nothing_under_way_has_a_small_read_where_all_is_used_up() {
        let mut queue = queue();
        let hogs = limits::BLOB_READ_BYTES / limits::BLOB_SOURCE_READ_BYTES;
        let at_once = limits::BLOB_SOURCE_READ_BYTES / LARGE;
        for _ in 0..2 {
            for source in 0..hogs as u64 {
                for _ in 0..at_once + 1 {
                    queue.push_read(source, LARGE, read());
                }
            }
            assert_eq!(begin_reads(&mut queue).len(), hogs * at_once);
            queue.push_read(1_000, LARGE, read());
            queue.push_read(1_000, LARGE, read());
            let small = (1_000, limits::BLOB_SMALL_READ_BYTES);
            assert_eq!(begin_reads(&mut queue), [small]);
            queue.release(small.0, small.1);
            assert_eq!(begin_reads(&mut queue), [small]);
            queue.release(small.0, small.1);
            assert_eq!(begin_reads(&mut queue), []);
            // One of the others gives back, and goes on.
            queue.release(0, LARGE);
            assert_eq!(begin_reads(&mut queue), [(0, LARGE)]);
            for source in 0..hogs as u64 {
                for _ in 0..at_once {
                    queue.release(source, LARGE);
                    begin_reads(&mut queue);
                }
            }
            for source in 1..hogs as u64 {
                queue.release(source, LARGE);
            }
            assert!(queue.holds_nothing());
        }
    }

    /// One read is always allowed, also one that is larger than what a source may have under way.
    #[test]
    fn a_read_above_the_bound_of_its_source_begins_alone_and_whole() {
        const ABOVE: usize = limits::BLOB_SOURCE_READ_BYTES + 1;
        let mut queue = queue();
        for _ in 0..2 {
            queue.push_read(1, ABOVE, read());
            queue.push_read(1, 1, read());
            queue.push_read(1, ABOVE, read());
            assert_eq!(queue.len(), 1, "one of its source may begin");
            assert_eq!(begin_reads(&mut queue), [(1, ABOVE)]);
            queue.release(1, ABOVE);
            assert_eq!(begin_reads(&mut queue), [(1, 1)]);
            queue.release(1, 1);
            assert_eq!(begin_reads(&mut queue), [(1, ABOVE)]);
            queue.release(1, ABOVE);
            assert!(queue.holds_nothing());
        }
    }

    /// However much the account has left, a source that has nothing under way gets on.
    #[test]
    fn reads_are_claimed_as_they_begin_and_a_full_account_leaves_small_ones() {
        let account = Account::new(2 * LARGE);
        let mut queue = Queue::new(Arc::clone(&account));
        let little = limits::BLOB_SMALL_READ_BYTES;
        for _ in 0..2 {
            for source in 0..100 {
                queue.push_read(source, LARGE, read());
                queue.push_read(source, LARGE, read());
            }
            assert!(
                account.claim(2 * LARGE).is_some(),
                "what waits claims nothing"
            );
            account.end_claim(2 * LARGE);
            let begun = begin_reads(&mut queue);
            let mut expected: Vec<_> = (0..100).map(|source| (source, little)).collect();
            (expected[0].1, expected[1].1) = (LARGE, LARGE);
            assert_eq!(begun, expected);
            assert!(account.claim(1).is_none());
            // One who gives back goes on, and nobody else.
            queue.release(50, little);
            assert_eq!(begin_reads(&mut queue), [(50, little)]);
            queue.release(0, LARGE);
            assert_eq!(begin_reads(&mut queue), [(0, little)]);
            queue.release(0, little);
            queue.release(1, LARGE);
            assert_eq!(begin_reads(&mut queue), [(1, little)]);
            let mut under_way: Vec<_> = (1..100).map(|source| (source, little)).collect();
            while let Some((source, bytes)) = under_way.pop() {
                queue.release(source, bytes);
                under_way.extend(begin_reads(&mut queue));
            }
            assert!(queue.holds_nothing());
            assert_eq!(account.claim(2 * LARGE), Some(2 * LARGE));
            account.end_claim(2 * LARGE);
        }
    }
}
