//! Jobs that wait for a reader, and who gets the next one: the connections in turn, so that one
//! with thousands of jobs holds up its own, and those of one token together in one turn. Long reads
//! (pages of scans, counts) have a part of the readers and come behind short ones, so that a Get
//! waits for no scan but those that are under way.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use net::ConnectionId;
use service::ReaderFigures;
use service::identities::IdentityKey;

use crate::fair_queue::FairQueue;
use crate::limits;

/// For whom a job is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Asker {
    /// A connection of the loop with this number.
    Connection(usize, ConnectionId),
    /// What a loop does by itself, and writes of connections that have left.
    Loop(usize),
}

/// For whom a job is done, and whose token that has, if it is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadOwner {
    pub asker: Asker,
    pub identity: Option<IdentityKey>,
}

impl From<Asker> for ReadOwner {
    fn from(asker: Asker) -> ReadOwner {
        ReadOwner {
            asker,
            identity: None,
        }
    }
}

/// How long a job may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobLength {
    /// A few keys.
    Short,
    /// A slice of something that goes on.
    Long,
}

/// Jobs that wait for a reader.
pub(super) struct ReadQueue<J> {
    short: FairQueue<Asker, J>,
    long: FairQueue<Asker, J>,
    /// Long ones that readers are at.
    long_running: usize,
    /// Short ones that were begun since a long one was.
    short_in_row: usize,
    figures: Arc<ReaderFigures>,
}

impl<J> ReadQueue<J> {
    pub fn new(figures: Arc<ReaderFigures>) -> ReadQueue<J> {
        ReadQueue {
            short: FairQueue::default(),
            long: FairQueue::default(),
            long_running: 0,
            short_in_row: 0,
            figures,
        }
    }

    /// Takes a job, unless too many wait: in all, or of this asker where not much is left. Then it
    /// is given back.
    pub fn push(
        &mut self,
        asking: impl Into<ReadOwner>,
        length: JobLength,
        job: J,
    ) -> Result<(), J> {
        let asking = asking.into();
        let asker = asking.asker;
        let left = limits::READ_JOBS.saturating_sub(self.len());
        let most = (left / limits::LEFT_READ_JOBS_SHARE).max(limits::READ_JOBS_IN_ANY_CASE);
        if left == 0 || self.short.of(asker) + self.long.of(asker) >= most {
            self.figures.refused_jobs.fetch_add(1, Ordering::Relaxed);
            return Err(job);
        }
        self.add(asking, length, job);
        Ok(())
    }

    /// Takes back a job that was begun and has turned out to be a long one, however many wait.
    pub fn put_back(&mut self, asking: ReadOwner, job: J) {
        self.add(asking, JobLength::Long, job);
    }

    fn add(&mut self, asking: ReadOwner, length: JobLength, job: J) {
        let ReadOwner { asker, identity } = asking;
        match length {
            JobLength::Short => self.short.push_of(asker, identity, job),
            JobLength::Long => self.long.push_of(asker, identity, job),
        }
    }

    /// Takes out what waits for an asker that has left. What is for another one as well, as `heir`
    /// says, waits in its name from now on; the rest, which nobody wants any more, is returned.
    pub fn forget(&mut self, asker: Asker, heir: &dyn Fn(&J) -> Option<Asker>) -> Vec<J> {
        let short = self.short.forget(asker).into_iter();
        let short = short.map(|job| (JobLength::Short, job));
        let long = self.long.forget(asker).into_iter();
        let long = long.map(|job| (JobLength::Long, job));
        let mut unwanted = Vec::new();
        for (length, job) in short.chain(long) {
            match heir(&job) {
                Some(heir) => self.add(heir.into(), length, job),
                None => unwanted.push(job),
            }
        }
        unwanted
    }

    /// Returns the next job. If it is a long one, [`ReadQueue::end_long`] is to follow.
    pub fn pop(&mut self) -> Option<(J, JobLength)> {
        let may_begin_long = !self.long.is_empty() && self.long_running < limits::LONG_READERS;
        let is_long_due = self.short.is_empty() || self.short_in_row >= limits::SHORT_JOBS_IN_ROW;
        let popped = if may_begin_long && is_long_due {
            self.long_running += 1;
            self.short_in_row = 0;
            (self.long.pop()?, JobLength::Long)
        } else {
            self.short_in_row += 1;
            (self.short.pop()?, JobLength::Short)
        };
        self.figures.jobs.fetch_add(1, Ordering::Relaxed);
        Some(popped)
    }

    /// A reader has done with a long job.
    pub fn end_long(&mut self) {
        self.long_running -= 1;
    }

    pub fn len(&self) -> usize {
        self.short.len() + self.long.len()
    }

    /// Jobs that could be begun if there were readers.
    pub fn ready(&self) -> usize {
        let long_free = limits::LONG_READERS.saturating_sub(self.long_running);
        self.short.len() + self.long.len().min(long_free)
    }

    /// Forgets what waits.
    pub fn clear(&mut self) {
        (self.short, self.long) = (FairQueue::default(), FairQueue::default());
    }

    pub fn show(&self, threads: usize) {
        (self.figures.threads).store(threads as u64, Ordering::Relaxed);
        let waiting = self.len() as u64;
        self.figures.waiting_jobs.store(waiting, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    fn queue() -> ReadQueue<(u32, usize)> {
        ReadQueue::new(Arc::default())
    }

    fn connection(slot: u32) -> Asker {
        let id = ConnectionId {
            slot,
            generation: 0,
        };
        Asker::Connection(1, id)
    }

    fn order(queue: &mut ReadQueue<(u32, usize)>) -> Vec<(u32, usize)> {
        std::iter::from_fn(|| queue.pop())
            .map(|(job, _)| job)
            .collect()
    }

    #[test]
    fn connections_have_their_turns_and_each_its_order() {
        let mut queue = queue();
        for _ in 0..2 {
            for number in 0..3 {
                assert!(
                    queue
                        .push(connection(7), JobLength::Short, (7, number))
                        .is_ok()
                );
            }
            assert!(queue.push(connection(8), JobLength::Short, (8, 0)).is_ok());
            assert!(queue.push(Asker::Loop(1), JobLength::Short, (9, 0)).is_ok());
            assert_eq!(queue.len(), 5);
            let shown = |queue: &ReadQueue<(u32, usize)>, threads| {
                queue.show(threads);
                let figures = &queue.figures;
                let of = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
                (of(&figures.threads), of(&figures.waiting_jobs))
            };
            assert_eq!(shown(&queue, 3), (3, 5));
            let expected = [(7, 0), (8, 0), (9, 0), (7, 1), (7, 2)];
            assert_eq!(order(&mut queue), expected);
            assert_eq!(shown(&queue, 0), (0, 0));
            assert_eq!(queue.figures.jobs.swap(0, Ordering::Relaxed), 5);
            assert_eq!((queue.len(), queue.ready()), (0, 0));
            assert!(queue.short.kept() == (0, 0));
        }
    }

    #[test]
    fn long_jobs_have_a_part_of_the_readers_and_are_not_forgotten() {
        let mut queue = queue();
        for _ in 0..2 {
            for number in 0..100 {
                assert!(
                    queue
                        .push(connection(1), JobLength::Long, (1, number))
                        .is_ok()
                );
                assert!(
                    queue
                        .push(connection(2), JobLength::Short, (2, number))
                        .is_ok()
                );
            }
            assert_eq!(queue.ready(), 100 + limits::LONG_READERS);
            let first = queue.pop().map(|(_, length)| length);
            assert_eq!(first, Some(JobLength::Short), "a Get waits for no scan");
            let (mut long, mut before) = (0, 1);
            while long < limits::LONG_READERS {
                match queue.pop().expect("both wait").1 {
                    JobLength::Short => before += 1,
                    JobLength::Long => {
                        assert_eq!(before, limits::SHORT_JOBS_IN_ROW);
                        (long, before) = (long + 1, 0);
                    }
                }
            }
            let mut short = 0;
            while let Some((_, length)) = queue.pop() {
                assert_eq!(
                    length,
                    JobLength::Short,
                    "all readers for long ones are busy"
                );
                short += 1;
            }
            assert!(short > 0 && queue.ready() == 0 && queue.len() == 100 - long);
            for _ in 0..long {
                queue.end_long();
            }
            assert_eq!(queue.ready(), limits::LONG_READERS);
            while queue.pop().is_some() {
                queue.end_long();
            }
            assert_eq!((queue.len(), queue.long_running), (0, 0));
            queue.short_in_row = 0;
        }
    }

    #[test]
    fn what_waits_for_one_that_has_left_is_forgotten() {
        let mut queue = queue();
        for round in 0..3 {
            for slot in 0..500 {
                for length in [JobLength::Short, JobLength::Long] {
                    for number in 0..2 {
                        assert!(queue.push(connection(slot), length, (slot, number)).is_ok());
                    }
                }
            }
            let nobody = |_: &(u32, usize)| None;
            assert!(queue.forget(connection(501), &nobody).is_empty());
            for slot in (0..500).filter(|slot| slot % 100 != round) {
                assert_eq!(queue.forget(connection(slot), &nobody).len(), 4);
                assert!(queue.forget(connection(slot), &nobody).is_empty());
            }
            let stay = 500 / 100;
            assert_eq!(queue.len(), stay * 4);
            let turns = queue.short.kept().1.max(queue.long.kept().1);
            assert!(turns <= 2 * stay + limits::TURNS_PASSED_OVER, "{turns}");
            let mut done = Vec::new();
            while let Some((job, length)) = queue.pop() {
                if length == JobLength::Long {
                    queue.end_long();
                }
                done.push(job.0);
            }
            assert_eq!(done.len(), stay * 4);
            assert!(done.iter().all(|slot| slot % 100 == round));
            assert_eq!((queue.len(), queue.ready()), (0, 0));
        }
    }

    #[test]
    fn what_waits_for_others_too_waits_in_their_name() {
        let mut queue = queue();
        for _ in 0..2 {
            for number in 0..4 {
                let length = if number % 2 == 0 {
                    JobLength::Short
                } else {
                    JobLength::Long
                };
                assert!(queue.push(connection(1), length, (1, number)).is_ok());
            }
            let heir = |job: &(u32, usize)| (job.1 >= 2).then(|| connection(2));
            let unwanted = queue.forget(connection(1), &heir);
            assert_eq!(unwanted, [(1, 0), (1, 1)]);
            assert_eq!(
                (queue.short.of(connection(2)), queue.long.of(connection(2))),
                (1, 1)
            );
            assert_eq!(
                (queue.pop(), queue.pop()),
                (
                    Some(((1, 2), JobLength::Short)),
                    Some(((1, 3), JobLength::Long))
                )
            );
            queue.end_long();
            assert_eq!(queue.len(), 0);
        }
    }

    #[test]
    fn one_who_asks_for_much_leaves_room_for_others() {
        let mut queue = queue();
        let fill = |queue: &mut ReadQueue<(u32, usize)>, slot| {
            let mut taken = 0;
            while queue
                .push(connection(slot), JobLength::Long, (slot, taken))
                .is_ok()
            {
                taken += 1;
            }
            taken
        };
        for _ in 0..2 {
            let first = fill(&mut queue, 0);
            assert!(first > 3_800, "{first}: about the streams of a connection");
            let mut last = first;
            for slot in 1..50 {
                let taken = fill(&mut queue, slot);
                assert!(taken <= last && taken > limits::READ_JOBS_IN_ANY_CASE);
                last = taken;
            }
            for slot in 50..10_000 {
                let taken = fill(&mut queue, slot);
                assert!(taken <= last);
                last = taken;
            }
            assert_eq!((last, queue.len()), (0, limits::READ_JOBS), "all is taken");
            assert_eq!(
                queue.figures.refused_jobs.swap(0, Ordering::Relaxed),
                10_000
            );
            queue.clear();
            assert_eq!((queue.len(), queue.ready()), (0, 0));
        }
    }
}
