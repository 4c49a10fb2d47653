//! The durable committer on a thread of its own, with another one for work on files that takes
//! long.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use wal::{
    PrepareError, ReadySegment, RetiredSegment, SegmentDemand, SegmentStock, WantedSegment,
    WriteError,
};

use super::commit_loop::CommitLoop;
use super::committer::DurableCommitter;
use super::committer_access::CommitterAccess;
use super::event::StorageEvent;
use super::mailbox::{CommitWaker, Hub, Mailbox};
use super::places::Places;
use super::reclaim::Reclaim;
use super::snapshot_thread::SnapshotThread;
use crate::background::Background;
use crate::clock::Clock;
use crate::database_id::DatabaseId;
use crate::limits;
use crate::snapshot::{SnapshotError, SnapshotReport};
use crate::store::Store;
use crate::tree::{Keeper, KeeperEvent};

/// Told of what happens, on the committer's thread: it should be quick.
pub type Reporter = Box<dyn FnMut(StorageEvent) + Send>;

/// The durable committer, running. Dropped without a [stop](Durable::stop), its threads end as if
/// the process had died.
pub struct Durable {
    hub: Arc<Hub>,
    stop: Arc<Stop>,
    thread: Mutex<Option<JoinHandle<Result<(), WriteError>>>>,
}

impl Durable {
    /// Starts the threads.
    pub fn start(
        mut committer: DurableCommitter,
        clock: impl Clock + Clone + Send + 'static,
        reporter: Reporter,
    ) -> io::Result<Durable> {
        let stock = committer.take_stock();
        let stock = stock.expect("nobody has taken it before the committer had a thread");
        let store = committer.store().clone();
        let disk = committer.snapshots().disk().clone();
        let places = committer.places();
        let mut commit_loop = CommitLoop::new(committer);
        let hub = commit_loop.hub().clone();
        if store.trees().is_some() {
            let keeper = Keeper::start(tree_reporter(&hub))?;
            commit_loop.committer().trees().set_keeper(keeper);
        }
        let stop = Arc::new(Stop::default());
        let runner = Runner {
            reclaim: Reclaim::start(&store, &hub)?,
            snapshots: SnapshotThread::start(store, disk, hub.clone(), clock.clone())?,
            segment_thread: SegmentThread::start(stock, places, hub.clone())?,
            commit_loop,
            clock,
            reporter,
            stop: stop.clone(),
        };
        let thread = thread::Builder::new()
            .name("pelton-committer".into())
            .spawn(move || runner.run())?;
        Ok(Durable {
            hub,
            stop,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// The store.
    pub(crate) fn store(&self) -> &Store {
        self.hub.store()
    }

    /// The committer's thread as a background job sees it.
    pub(crate) fn access(&self) -> impl CommitterAccess {
        &*self.hub
    }

    /// A mailbox for a loop. `waker` is called on the committer's thread when there are outcomes in
    /// it: once for each group, or twice if some of them waited for the sync and some did not.
    pub fn register(&self, waker: CommitWaker) -> Mailbox {
        self.hub.register(waker)
    }

    /// Waits until everything that any view has shown is durable, also that of databases whose
    /// writes are not synced. `false`: the log has failed, or the committer has stopped.
    pub fn sync(&self) -> bool {
        self.hub.sync().is_some()
    }

    /// Makes a snapshot of what is there now, and waits until it is on the device. Meanwhile
    /// everything goes on.
    pub fn snapshot(&self) -> Result<SnapshotReport, SnapshotError> {
        self.hub.snapshot_queue().request()
    }

    /// Makes no more snapshots, and gives up the one that is being made: call it before whoever
    /// waits for one is waited for. A clean [stop](Durable::stop) makes one of its own where that
    /// is cheap.
    pub fn end_snapshots(&self) {
        self.hub.snapshot_queue().end();
    }

    /// Lets segments of the log go that hold nothing beyond a sequence, up to which every index has
    /// everything on its own device.
    pub fn retire_through(&self, sequence: u64) {
        self.hub.holds().retire_through(sequence);
    }

    /// Carries out what is in the mailboxes, syncs, writes the closing group, and ends the threads.
    /// Call it when no loop commits any more. A second call does nothing.
    pub fn stop(&self) -> Result<(), WriteError> {
        self.stop.asked.store(true, Ordering::Release);
        self.hub.signal().wake();
        match self.thread.lock().take() {
            None => Ok(()),
            Some(thread) => match thread.join() {
                Ok(closed) => closed,
                Err(panic) => std::panic::resume_unwind(panic),
            },
        }
    }
}

impl Drop for Durable {
    fn drop(&mut self) {
        self.stop.at_once.store(true, Ordering::Release);
        self.stop.asked.store(true, Ordering::Release);
        self.hub.signal().wake();
    }
}

/// Tells the committer's thread what happens to trees.
fn tree_reporter(hub: &Arc<Hub>) -> crate::tree::TreeReporter {
    // The hub belongs to those who use it, not to the threads of the keeper.
    let hub = Arc::downgrade(hub);
    Arc::new(move |event| {
        let Some(hub) = hub.upgrade() else {
            return;
        };
        hub.tell(match event {
            KeeperEvent::Worked => None,
            KeeperEvent::NoPriority(error) => Some(StorageEvent::NoPriority(error.to_string())),
            KeeperEvent::Failed(generation, error) => Some(StorageEvent::TreeFailed(format!(
                "{}: {error}",
                name_of(&hub, generation.database)
            ))),
            KeeperEvent::Works(generation) => {
                Some(StorageEvent::TreeWorks(name_of(&hub, generation.database)))
            }
        });
    })
}

/// What those who run the server call a database.
fn name_of(hub: &Hub, id: DatabaseId) -> String {
    match hub.store().find(id) {
        Some(database) if id == DatabaseId::DEFAULT || database.name.is_empty() => {
            "the default database".into()
        }
        Some(database) => format!("the database `{}`", database.name),
        None => "a database that was dropped".into(),
    }
}

/// How the thread is told to end.
#[derive(Default)]
struct Stop {
    asked: AtomicBool,
    /// Without a clean end.
    at_once: AtomicBool,
}

impl fmt::Debug for Durable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Durable").finish_non_exhaustive()
    }
}

/// What the committer's thread has.
struct Runner<C> {
    /// Ends before all the others, since it uses them.
    snapshots: SnapshotThread,
    commit_loop: CommitLoop,
    segment_thread: SegmentThread,
    reclaim: Reclaim,
    clock: C,
    reporter: Reporter,
    stop: Arc<Stop>,
}

impl<C: Clock> Runner<C> {
    fn run(mut self) -> Result<(), WriteError> {
        let hub = self.commit_loop.hub().clone();
        hub.signal().set_thread(thread::current());
        loop {
            // A round takes the wake-up of whatever came before it. So the rest is looked at behind
            // it, and what comes later keeps the thread from sleeping.
            let worked = self.round();
            self.segment_thread
                .poll(self.commit_loop.committer(), &mut self.clock);
            // At once: nothing else may come for hours.
            self.report();
            if self.stop.asked.load(Ordering::Acquire) {
                break;
            }
            if worked {
                self.wait_for_trees();
                continue;
            }
            // At once, without spinning first: docs/benchmarks.md, "Decisions that were measured".
            let due_ns = (self.commit_loop.due_ns())
                .min(self.segment_thread.retry_ns)
                .min(self.commit_loop.snapshot_retry_ns());
            let longest = (due_ns != u64::MAX)
                .then(|| Duration::from_nanos(due_ns.saturating_sub(self.clock.now_ns())));
            hub.signal().sleep(longest);
        }
        let is_clean = !self.stop.at_once.load(Ordering::Acquire);
        let end_ns = self.clock.now_ns() + limits::STOP_DECIDES_MS * 1_000_000;
        while is_clean && self.round() {
            if self.clock.now_ns() >= end_ns && !self.commit_loop.committer().is_converting() {
                self.commit_loop.committer().drop_gathered();
                break;
            }
        }
        let Runner {
            snapshots,
            mut commit_loop,
            segment_thread,
            reclaim,
            mut clock,
            mut reporter,
            ..
        } = self;
        // One after the other, and before the folder is unlocked.
        drop(snapshots);
        let stock = segment_thread.finish(commit_loop.committer(), &mut clock);
        if !is_clean {
            return Ok(());
        }
        // What could not be handed over goes with the committer, and so before the folder is
        // unlocked.
        reclaim.finish();
        commit_loop.committer().give_stock(stock);
        commit_loop.serve_snapshots(&mut clock);
        commit_loop.close_with(&mut clock, &mut |event| reporter(event))
    }

    /// Lets the device catch up with databases on disk, for a moment.
    fn wait_for_trees(&mut self) {
        let delay_ns = self.commit_loop.committer().delay_ns();
        if delay_ns > 0 {
            thread::sleep(Duration::from_nanos(delay_ns));
        }
    }

    fn report(&mut self) {
        for event in self.commit_loop.take_events() {
            (self.reporter)(event);
        }
    }

    fn round(&mut self) -> bool {
        let segment_thread = &mut self.segment_thread;
        let worked = self
            .commit_loop
            .round_with(&mut self.clock, &mut |committer, clock| {
                segment_thread.bring(committer, clock)
            });
        self.commit_loop.serve_snapshots(&mut self.clock);
        self.commit_loop.run_jobs(&mut self.clock);
        self.report();
        let garbage = self.commit_loop.take_garbage();
        if !garbage.is_empty() {
            let no_room_for = self.reclaim.take(garbage);
            self.commit_loop.keep_garbage(no_room_for);
        }
        let retired = self.commit_loop.take_retired(&mut self.clock);
        if !retired.is_empty() {
            self.segment_thread.send(SegmentJob::Retire(retired));
        }
        // A job may have brought something.
        worked || self.commit_loop.committer().has_gathered()
    }
}

/// How often it is seen to that the data folder, and what is in use of it, is still in its place.
const PLACE_LOOKS: Duration = Duration::from_millis(limits::SEGMENT_RETRY_MS);

/// Work that takes long.
enum SegmentJob {
    Prepare(WantedSegment),
    Retire(Vec<RetiredSegment>),
}

/// What has come of it.
enum Done {
    Prepared(Result<ReadySegment, PrepareError>),
    NotRetired(PrepareError),
    /// The data folder, or something in it that is in use, is gone from its place.
    PlaceLost(PrepareError),
}

/// The thread that makes segments ready, seen from the committer's.
struct SegmentThread {
    jobs: Sender<SegmentJob>,
    thread: JoinHandle<SegmentStock>,
    done: Receiver<Done>,
    /// Says to the thread that the committer waits for a segment.
    demand: SegmentDemand,
    /// A segment was asked for and has not come.
    is_asked: bool,
    /// When to ask again after a failure; `u64::MAX`: there was none.
    retry_ns: u64,
    /// Why nothing may be written any more, which the committer does not know yet.
    given_up: Option<PrepareError>,
}

impl SegmentThread {
    /// Starts the thread. It ends when this is dropped.
    fn start(mut stock: SegmentStock, places: Places, hub: Arc<Hub>) -> io::Result<SegmentThread> {
        let (jobs, jobs_to_do) = channel();
        let (done, all_done) = channel();
        let demand = stock.demand();
        let thread = thread::Builder::new()
            .name("pelton-segments".into())
            .spawn(move || {
                if let Err(error) = Background::Flush.enter() {
                    hub.tell(Some(StorageEvent::NoPriority(error.to_string())));
                }
                let mut is_in_place = true;
                loop {
                    let job = jobs_to_do.recv_timeout(PLACE_LOOKS);
                    if is_in_place
                        && let Err(error) = stock.check_place().and_then(|()| places.check())
                    {
                        is_in_place = false;
                        let _ = done.send(Done::PlaceLost(error));
                        hub.signal().wake();
                    }
                    let job = match job {
                        Ok(job) => job,
                        Err(RecvTimeoutError::Timeout) => continue,
                        Err(RecvTimeoutError::Disconnected) => break,
                    };
                    match job {
                        SegmentJob::Prepare(wanted) => {
                            // Nobody listens any more only when everything ends.
                            let _ = done.send(Done::Prepared(stock.prepare(wanted)));
                            hub.signal().wake();
                        }
                        SegmentJob::Retire(retired) => {
                            if let Err(error) = stock.retire(retired) {
                                let _ = done.send(Done::NotRetired(error));
                                hub.signal().wake();
                            }
                        }
                    }
                }
                stock
            })?;
        Ok(SegmentThread {
            jobs,
            thread,
            done: all_done,
            demand,
            is_asked: false,
            retry_ns: u64::MAX,
            given_up: None,
        })
    }

    /// Ends the thread when it has done its jobs, and takes the stock back.
    fn finish(mut self, committer: &mut DurableCommitter, clock: &mut dyn Clock) -> SegmentStock {
        if self.is_asked {
            self.bring(committer, clock);
        }
        drop(self.jobs);
        let stock = match self.thread.join() {
            Ok(stock) => stock,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        // The last look was behind the last job: a stop is not clean if what was written is out of
        // reach.
        for done in self.done.try_iter() {
            if let Done::PlaceLost(error) = done {
                self.given_up = Some(error);
            }
        }
        if let Some(error) = self.given_up {
            committer.give_up(&error);
        }
        stock
    }

    fn send(&self, job: SegmentJob) {
        self.jobs
            .send(job)
            .expect("the thread ends after this does");
    }

    /// Asks for the next segment, and takes one that has come.
    fn poll(&mut self, committer: &mut DurableCommitter, clock: &mut dyn Clock) {
        while let Ok(done) = self.done.try_recv() {
            self.pass_on(done, committer, clock);
        }
        if let Some(error) = self.given_up.take() {
            committer.give_up(&error);
        }
        if !self.is_asked && (self.retry_ns == u64::MAX || clock.now_ns() >= self.retry_ns) {
            self.ask(committer);
        }
    }

    fn ask(&mut self, committer: &DurableCommitter) {
        self.retry_ns = u64::MAX;
        if let Some(wanted) = committer.wanted_segment() {
            self.send(SegmentJob::Prepare(wanted));
            self.is_asked = true;
        }
    }

    /// Waits for the next segment.
    fn bring(&mut self, committer: &mut DurableCommitter, clock: &mut dyn Clock) {
        if !self.is_asked {
            self.ask(committer);
        }
        self.demand.set_waiting(true);
        while self.is_asked {
            let done = self.done.recv().expect("the thread ends after this does");
            self.pass_on(done, committer, clock);
        }
        self.demand.set_waiting(false);
    }

    fn pass_on(&mut self, done: Done, committer: &mut DurableCommitter, clock: &mut dyn Clock) {
        let prepared = match done {
            Done::Prepared(prepared) => prepared,
            Done::NotRetired(error) => {
                committer.not_retired(&error);
                return self.give_up_if_final(error);
            }
            // Not in the midst of a group.
            Done::PlaceLost(error) => {
                self.given_up = Some(error);
                return;
            }
        };
        self.is_asked = false;
        match prepared {
            Ok(segment) => committer.take_segment(segment),
            Err(error) => {
                self.retry_ns = clock.now_ns() + limits::SEGMENT_RETRY_MS * 1_000_000;
                committer.no_segment(&error);
                self.give_up_if_final(error);
            }
        }
    }

    /// What is never tried again is no passing shortage: callers and operators are told that a
    /// restart is needed.
    fn give_up_if_final(&mut self, error: PrepareError) {
        if error.is_final() {
            self.given_up.get_or_insert(error);
        }
    }
}
