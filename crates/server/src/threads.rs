//! Threads for jobs that wait for a device: begun when there is something for them to do, and ended
//! when there has been nothing for a while, so that the memory which they have kept for more goes
//! back.

#[cfg(test)]
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::settings::Log;

/// Jobs that wait for a thread.
pub(crate) trait JobQueue: Send + Sized + 'static {
    /// One of them.
    type Job;

    /// Takes the next one that may begin.
    fn pop(&mut self) -> Option<Self::Job>;

    /// Returns how many may begin now, at most.
    fn len(&self) -> usize;

    /// Notes how many threads there are, for figures.
    fn show(&self, _threads: usize) {}

    /// Does one, on a thread of the pool.
    fn run(pool: &Arc<JobThreads<Self>>, job: Self::Job);
}

/// Begins a thread of this name; where the system gives none, the log says for what, and `None` is
/// returned.
pub(crate) fn begin(
    name: &str,
    what: &str,
    log: &dyn Log,
    work: impl FnOnce() + Send + 'static,
) -> Option<JoinHandle<()>> {
    #[cfg(test)]
    if NO_THREADS.get() {
        log.no_thread(what, &io::ErrorKind::WouldBlock.into());
        return None;
    }
    let begun = thread::Builder::new().name(name.into()).spawn(work);
    begun.inspect_err(|error| log.no_thread(what, error)).ok()
}

#[cfg(test)]
thread_local! {
    /// Whoever this is set for gets no threads.
    pub(crate) static NO_THREADS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// A pool of threads.
pub(crate) struct JobThreads<Q> {
    name: &'static str,
    /// What they do, in words.
    what: &'static str,
    log: Arc<dyn Log>,
    max_threads: usize,
    /// How long a thread waits for a job before it ends.
    idle: Duration,
    state: Mutex<JobThreadsState<Q>>,
    /// There is a job, or nothing more will come.
    has_job: Condvar,
}

/// What the threads of a pool share.
pub(crate) struct JobThreadsState<Q> {
    pub queue: Q,
    threads: Vec<JoinHandle<()>>,
    /// Threads that have begun and not ended: those of `threads`, and during a stop those that it
    /// waits for.
    running: usize,
    /// Threads that wait for a job.
    idle: usize,
    is_stopping: bool,
}

/// A queue that is locked.
type QueueGuard<'a, Q> = MutexGuard<'a, JobThreadsState<Q>>;

impl<Q: JobQueue> JobThreadsState<Q> {
    /// Notes how much there is, for figures.
    pub fn show(&self) {
        self.queue.show(self.running);
    }

    /// Returns how many threads to wake for so many jobs: not more than wait. To wake nobody is a
    /// system call, too, and a crowd of calls that were reset makes many jobs.
    pub fn to_wake(&self, jobs: usize) -> usize {
        jobs.min(self.idle)
    }

    /// Whether no thread begins any more.
    pub fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    #[cfg(test)]
    pub fn threads(&self) -> usize {
        self.running
    }

    #[cfg(test)]
    pub fn idle(&self) -> usize {
        self.idle
    }
}

impl<Q: JobQueue> JobThreads<Q> {
    /// A pool without threads.
    pub fn new(
        (name, what): (&'static str, &'static str),
        max_threads: usize,
        idle: Duration,
        queue: Q,
        log: Arc<dyn Log>,
    ) -> Arc<JobThreads<Q>> {
        Arc::new(JobThreads {
            name,
            what,
            log,
            max_threads,
            idle,
            state: Mutex::new(JobThreadsState {
                queue,
                threads: Vec::new(),
                running: 0,
                idle: 0,
                is_stopping: false,
            }),
            has_job: Condvar::new(),
        })
    }

    /// Locks the queue.
    pub fn lock(&self) -> QueueGuard<'_, Q> {
        // Whole values are put in and taken out: sound whoever panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the threads that so many jobs need, beside those that wait for some, as far as there
    /// may be threads. To be followed by [`JobThreads::notify`] when the jobs are in the queue.
    /// Returns whether there is a thread to do them.
    pub fn begin_threads(self: &Arc<Self>, state: &mut JobThreadsState<Q>, jobs: usize) -> bool {
        let mut idle = state.idle;
        // A thread that waits may be on its way to a job that is in the queue: each job has one of
        // its own.
        while jobs > idle && state.running < self.max_threads && !state.is_stopping {
            let pool = Arc::clone(self);
            let begun = begin(self.name, self.what, &*self.log, move || pool.work());
            // Without it those that are there do the work, or whoever asks next may have more luck.
            let Some(thread) = begun else { break };
            state.threads.push(thread);
            state.running += 1;
            idle += 1;
        }
        state.running > 0
    }

    /// Wakes so many threads, as [`JobThreadsState::to_wake`] has said.
    pub fn notify(&self, jobs: usize) {
        match jobs {
            0 => {}
            1 => self.has_job.notify_one(),
            _ => self.has_job.notify_all(),
        }
    }

    /// Changes the queue and has what may begin then done: by threads, or, if there is none and
    /// none can be had, here.
    pub fn submit(self: &Arc<Self>, change: impl FnOnce(&mut Q)) {
        let mut state = self.lock();
        change(&mut state.queue);
        let jobs = state.queue.len();
        let has_threads = jobs == 0 || self.begin_threads(&mut state, jobs);
        if has_threads {
            let to_wake = state.to_wake(jobs);
            drop(state);
            return self.notify(to_wake);
        }
        // Better to hold up whoever asks than to leave it undone.
        while let Some(job) = state.queue.pop() {
            drop(state);
            Q::run(self, job);
            state = self.lock();
        }
    }

    fn work(self: &Arc<Self>) {
        let mut state = self.lock();
        loop {
            let (behind, job) = self.next_job(state);
            state = behind;
            let Some(job) = job else { break };
            drop(state);
            Q::run(self, job);
            state = self.lock();
        }
        state.running -= 1;
        let own = thread::current().id();
        state.threads.retain(|thread| thread.thread().id() != own);
        state.show();
    }

    /// Waits for a job; `None`: the thread is to end.
    fn next_job<'a>(&self, mut state: QueueGuard<'a, Q>) -> (QueueGuard<'a, Q>, Option<Q::Job>) {
        let mut is_over = false;
        loop {
            // What came as its time was over is not left behind.
            let job = state.queue.pop();
            if job.is_some() || is_over || state.is_stopping {
                state.show();
                return (state, job);
            }
            state.idle += 1;
            let waited = self.has_job.wait_timeout(state, self.idle);
            let (behind, result) = waited.unwrap_or_else(PoisonError::into_inner);
            state = behind;
            state.idle -= 1;
            is_over = result.timed_out();
        }
    }

    /// Begins no thread any more and waits until those that there are have done what is left of the
    /// queue after `change`. What is submitted afterwards is done where it is.
    pub fn stop(&self, change: impl FnOnce(&mut Q)) {
        let threads = {
            let mut state = self.lock();
            state.is_stopping = true;
            change(&mut state.queue);
            std::mem::take(&mut state.threads)
        };
        self.has_job.notify_all();
        for thread in threads {
            // In a build that unwinds, one that panicked has reported it.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Barrier;
    use std::sync::mpsc;

    use super::*;

    type Job = Box<dyn FnOnce() + Send>;

    #[derive(Default)]
    struct Jobs(VecDeque<Job>);

    impl JobQueue for Jobs {
        type Job = Job;

        fn pop(&mut self) -> Option<Job> {
            self.0.pop_front()
        }

        fn len(&self) -> usize {
            self.0.len()
        }

        fn run(_: &Arc<JobThreads<Jobs>>, job: Job) {
            job();
        }
    }

    const FOREVER: Duration = Duration::from_secs(3_600);

    fn pool(max_threads: usize, idle: Duration) -> Arc<JobThreads<Jobs>> {
        let log = Arc::new(crate::settings::SilentLog);
        JobThreads::new(("test", "a test"), max_threads, idle, Jobs::default(), log)
    }

    fn wait_for(pool: &JobThreads<Jobs>, is_so: impl Fn(&JobThreadsState<Jobs>) -> bool) {
        while !is_so(&pool.lock()) {
            thread::yield_now();
        }
    }

    /// Jobs that need each other come while a thread waits: it is enough for one of them.
    #[test]
    fn each_job_has_a_thread_of_its_own_as_long_as_there_may_be_more() {
        let pool = pool(3, FOREVER);
        for _ in 0..2 {
            let (done, ended) = mpsc::channel();
            let meeting = Arc::new(Barrier::new(3));
            pool.submit(|jobs| {
                for _ in 0..3 {
                    let (meeting, done) = (Arc::clone(&meeting), done.clone());
                    jobs.0.push_back(Box::new(move || {
                        meeting.wait();
                        done.send(()).expect("somebody waits");
                    }));
                }
            });
            for _ in 0..3 {
                ended.recv().expect("all meet");
            }
            wait_for(&pool, |state| state.idle() == 3);
        }
        pool.stop(|_| ());
        assert_eq!(pool.lock().threads(), 0);
    }

    #[test]
    fn a_thread_that_waits_for_a_job_is_not_counted_for_two() {
        let pool = pool(2, FOREVER);
        pool.submit(|jobs| jobs.0.push_back(Box::new(|| ())));
        wait_for(&pool, |state| state.idle() == 1);
        let meeting = Arc::new(Barrier::new(2));
        // The thread is on its way to the first job when the second comes.
        let mut state = pool.lock();
        for number in 1..=2 {
            let meeting = Arc::clone(&meeting);
            assert!(pool.begin_threads(&mut state, number));
            let job = move || {
                meeting.wait();
            };
            state.queue.0.push_back(Box::new(job));
            pool.notify(1);
        }
        assert_eq!(state.threads(), 2);
        drop(state);
        pool.stop(|_| ());
    }

    #[test]
    fn no_more_threads_are_woken_than_wait() {
        let pool = pool(1, FOREVER);
        assert_eq!(pool.lock().to_wake(3), 0);
        for _ in 0..2 {
            pool.submit(|jobs| jobs.0.push_back(Box::new(|| ())));
            wait_for(&pool, |state| state.idle() == 1);
            let to_wake = |jobs| pool.lock().to_wake(jobs);
            assert_eq!([to_wake(0), to_wake(3)], [0, 1]);
            let (begin, begun) = mpsc::channel::<()>();
            pool.submit(|jobs| {
                jobs.0
                    .push_back(Box::new(move || assert!(begun.recv().is_err())))
            });
            wait_for(&pool, |state| state.idle() == 0);
            assert_eq!(pool.lock().to_wake(3), 0, "it works");
            drop(begin);
        }
        pool.stop(|_| ());
    }

    #[test]
    fn threads_with_nothing_to_do_end_and_others_begin() {
        let pool = pool(4, Duration::ZERO);
        for _ in 0..3 {
            let (done, ended) = mpsc::channel();
            pool.submit(|jobs| {
                jobs.0
                    .push_back(Box::new(move || done.send(()).expect("somebody waits")))
            });
            ended.recv().expect("it is done");
            wait_for(&pool, |state| state.threads() == 0);
            assert!(pool.lock().threads.is_empty());
        }
        pool.stop(|_| ());
    }

    #[test]
    fn a_stop_does_what_is_left_and_later_jobs_begin_no_thread() {
        let pool = pool(1, FOREVER);
        let (done, ended) = mpsc::channel();
        let (begin, begun) = mpsc::channel::<()>();
        pool.submit(|jobs| {
            let first = done.clone();
            jobs.0.push_back(Box::new(move || {
                begun.recv().expect("the test goes on");
                first.send(1).expect("somebody waits");
            }));
            let second = done.clone();
            jobs.0
                .push_back(Box::new(move || second.send(2).expect("somebody waits")));
        });
        let own = thread::current().id();
        let late = Arc::clone(&pool);
        pool.stop(move |jobs| {
            jobs.0.push_back(Box::new(move || {
                // The pool has a thread still, which does this.
                let third = done.clone();
                late.submit(|jobs| {
                    jobs.0
                        .push_back(Box::new(move || third.send(3).expect("somebody waits")))
                });
                drop(done);
            }));
            begin.send(()).expect("it waits");
        });
        assert_eq!(ended.iter().collect::<Vec<_>>(), [1, 2, 3]);
        for _ in 0..2 {
            let (done, ended) = mpsc::channel();
            let job = move || done.send(thread::current().id()).expect("somebody waits");
            pool.submit(|jobs| jobs.0.push_back(Box::new(job)));
            assert_eq!(ended.try_recv(), Ok(own));
            assert_eq!(pool.lock().threads(), 0);
        }
    }
}
