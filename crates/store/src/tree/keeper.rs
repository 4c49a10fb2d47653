//! The threads that flush and compact the trees: one for each of the two, so that a long compaction
//! keeps no flush waiting.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::error::TreeError;
use super::generation::Generation;
use super::index::TreeIndex;
use super::limits;
use crate::background::{Background, PriorityError};

/// What whoever runs the server should know.
#[derive(Debug)]
pub enum KeeperEvent {
    /// A thread has the priority of those that answer calls.
    NoPriority(PriorityError),
    /// A flush or compaction has failed and will be tried again. Nothing is lost; but the log grows
    /// until a flush works.
    Failed(Generation, TreeError),
    /// The tree that had failed works again.
    Works(Generation),
    /// Something was flushed or compacted: the log may be shortened, and memory is free.
    Worked,
}

/// Told of what happens, on one of the threads.
pub type TreeReporter = Arc<dyn Fn(KeeperEvent) + Send + Sync>;

/// Flushes and compacts trees, on two threads of its own. Dropped, it ends them: the tree that is
/// being flushed is flushed, and none after it, since the log has what memtables hold; a compaction
/// is broken off.
pub struct Keeper {
    shared: Arc<KeeperState>,
    threads: Vec<JoinHandle<()>>,
}

struct KeeperState {
    work: Mutex<KeeperWork>,
    changed: Condvar,
    reporter: TreeReporter,
}

#[derive(Default)]
struct KeeperWork {
    trees: Vec<TreeIndex>,
    /// Rises when there may be something to do.
    calls: u64,
    is_stopped: bool,
}

/// What a thread does with a tree. Whether there was something to do.
type KeeperTask = fn(&TreeIndex) -> Result<bool, TreeError>;

impl Keeper {
    /// Starts the threads.
    pub fn start(reporter: TreeReporter) -> io::Result<Keeper> {
        let mut keeper = Keeper {
            shared: Arc::new(KeeperState {
                work: Mutex::default(),
                changed: Condvar::new(),
                reporter,
            }),
            threads: Vec::new(),
        };
        let flush: KeeperTask = TreeIndex::flush;
        for (name, background, task) in [
            ("pelton-flush", Background::Flush, flush),
            ("pelton-compact", Background::Bulk, compact),
        ] {
            let shared = keeper.shared.clone();
            let thread = thread::Builder::new().name(name.into());
            let thread = thread.spawn(move || {
                if let Err(error) = background.enter() {
                    (shared.reporter)(KeeperEvent::NoPriority(error));
                }
                shared.run(task);
            })?;
            keeper.threads.push(thread);
        }
        Ok(keeper)
    }

    /// Looks after a tree from now on.
    pub fn add(&self, index: &TreeIndex) {
        self.shared.work.lock().trees.push(index.clone());
        self.call();
    }

    /// Looks after a tree no more. A task that goes on with it ends by itself.
    pub fn remove(&self, generation: Generation) {
        let mut work = self.shared.work.lock();
        work.trees.retain(|tree| tree.generation() != generation);
    }

    /// A memtable was sealed: there is something to do.
    pub fn call(&self) {
        self.shared.work.lock().calls += 1;
        self.shared.changed.notify_all();
    }
}

/// Whichever thread has time first tells the engine what was sealed: before the next memtable is
/// full.
fn compact(tree: &TreeIndex) -> Result<bool, TreeError> {
    tree.hand_over();
    tree.compact()
}

impl KeeperState {
    fn run(&self, task: KeeperTask) {
        let mut seen = 0;
        let mut failed: Vec<Generation> = Vec::new();
        loop {
            let trees = {
                let mut work = self.work.lock();
                while work.calls == seen && failed.is_empty() && !work.is_stopped {
                    self.changed.wait(&mut work);
                }
                if work.is_stopped {
                    return;
                }
                seen = work.calls;
                work.trees.clone()
            };
            failed.retain(|generation| trees.iter().any(|tree| tree.generation() == *generation));
            let worked = trees
                .iter()
                // A stop waits for one tree at most, however many there are.
                .take_while(|_| !self.work.lock().is_stopped)
                .filter(|tree| self.try_task(task, tree, &mut failed))
                .count();
            // The handles must not keep a discarded tree alive while this thread sleeps.
            drop(trees);
            if worked > 0 {
                (self.reporter)(KeeperEvent::Worked);
                // What one task leaves is work for the other, and there may be more of the same.
                self.work.lock().calls += 1;
                self.changed.notify_all();
            } else if !failed.is_empty() {
                self.rest();
            }
        }
    }

    /// Does a task; returns whether there was something to do.
    fn try_task(&self, task: KeeperTask, tree: &TreeIndex, failed: &mut Vec<Generation>) -> bool {
        let generation = tree.generation();
        let had_failed = failed.contains(&generation);
        match task(tree) {
            Ok(worked) => {
                if had_failed {
                    failed.retain(|other| *other != generation);
                    (self.reporter)(KeeperEvent::Works(generation));
                }
                worked
            }
            Err(error) => {
                if !had_failed {
                    failed.push(generation);
                    (self.reporter)(KeeperEvent::Failed(generation, error));
                }
                false
            }
        }
    }

    /// Waits before what has failed is tried again.
    fn rest(&self) {
        let mut work = self.work.lock();
        if !work.is_stopped {
            let pause = Duration::from_millis(limits::RETRY_MS);
            self.changed.wait_for(&mut work, pause);
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        {
            let mut work = self.shared.work.lock();
            work.is_stopped = true;
            work.trees.iter().for_each(TreeIndex::stop_compaction);
        }
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            if let Err(panic) = thread.join()
                && !thread::panicking()
            {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Keeper")
            .field("trees", &self.shared.work.lock().trees)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::tree::Trees;
    use crate::tree::tests::{GENERATION, TempFolder, small};

    static BEGUN: AtomicUsize = AtomicUsize::new(0);

    fn slow(_: &TreeIndex) -> Result<bool, TreeError> {
        BEGUN.fetch_add(1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(50));
        Ok(true)
    }

    /// What a thousand trees have not flushed is in the log: a stop does not wait for all of them.
    #[test]
    fn a_stop_waits_for_one_tree_at_most() {
        let folder = TempFolder::new("keeper");
        let trees = Trees::open(&folder.0, small()).expect("the folder is new");
        let writer = trees.create(GENERATION).expect("there is room");
        let shared = Arc::new(KeeperState {
            work: Mutex::new(KeeperWork {
                trees: vec![writer.index().clone(); 100],
                calls: 1,
                is_stopped: false,
            }),
            changed: Condvar::new(),
            reporter: Arc::new(|_| {}),
        });
        let keeper = Keeper {
            shared: Arc::clone(&shared),
            threads: vec![thread::spawn(move || shared.run(slow))],
        };
        while BEGUN.load(Ordering::SeqCst) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        drop(keeper);
        let begun = BEGUN.load(Ordering::SeqCst);
        assert!(begun < 100, "{begun}");
    }

    #[test]
    fn a_tree_that_is_removed_is_looked_after_no_more() {
        let folder = TempFolder::new("keeper-remove");
        let trees = Trees::open(&folder.0, small()).expect("the folder is new");
        let writer = trees.create(GENERATION).expect("there is room");
        let keeper = Keeper::start(Arc::new(|_| {})).expect("there are threads");
        let count = || keeper.shared.work.lock().trees.len();
        for _ in 0..2 {
            keeper.add(writer.index());
            keeper.remove(Generation {
                sequence: GENERATION.sequence + 1,
                ..GENERATION
            });
            assert_eq!(count(), 1, "another one");
            keeper.remove(GENERATION);
            assert_eq!(count(), 0);
        }
    }
}
