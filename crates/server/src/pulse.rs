//! Whether all loops of a server still turn.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drive::{CountersReader, LoopStart, Waker};

/// Asks loops for a sign of life, from any thread. One that is caught in something gives none.
#[derive(Clone)]
pub struct Pulse {
    counters: CountersReader,
    /// Those that run.
    loops: Arc<Mutex<Vec<Beating>>>,
}

/// A loop that runs.
struct Beating {
    index: usize,
    waker: Arc<dyn Waker>,
}

/// The turns of each loop at a moment.
#[derive(Debug)]
pub struct Turns(Vec<(usize, u64)>);

impl Pulse {
    pub(crate) fn new(counters: CountersReader) -> Pulse {
        Pulse {
            counters,
            loops: Arc::default(),
        }
    }

    /// A loop begins. Threads for single connections are left out: they may wait for their peer, or rest.
    pub(crate) fn begin(&self, start: &LoopStart) {
        if !start.one_connection {
            self.lock().push(Beating {
                index: start.index,
                waker: start.waker.clone(),
            });
        }
    }

    /// The loops have ended.
    pub(crate) fn end(&self) {
        self.lock().clear();
    }

    /// Asks every loop that runs for a turn, and says how many each has had before.
    pub fn ask(&self) -> Turns {
        let loops = self.lock();
        let counters = self.counters.read();
        let turns = loops.iter().map(|one| {
            one.waker.wake();
            (one.index, counters[one.index].ticks)
        });
        Turns(turns.collect())
    }

    /// Whether each loop that was asked has had a turn since, or has ended.
    pub fn is_answered(&self, asked: &Turns) -> bool {
        if self.lock().is_empty() {
            return true;
        }
        let counters = self.counters.read();
        asked
            .0
            .iter()
            .all(|(index, turns)| counters[*index].ticks > *turns)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Beating>> {
        // Whole entries come and go: sound whoever panicked.
        self.loops.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
