//! Which loop gets a new connection.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use rustix::fd::OwnedFd;

use crate::counters::{CounterCells, LoopCounters};
use crate::handler::{Peer, Waker};
use crate::limits::{HANDSHAKES_ASKED, HANDSHAKES_DUE, HANDSHAKES_PER_LOOP};
use crate::wake::EventfdWaker;

/// What other threads need of a loop.
#[derive(Debug)]
pub(crate) struct LoopShared {
    waker: EventfdWaker,
    counters: Arc<CounterCells>,
    inbox: Mutex<LoopInbox>,
}

#[derive(Debug, Default)]
struct LoopInbox {
    arrivals: Vec<(OwnedFd, Peer)>,
    stops: u8,
}

impl LoopShared {
    /// Of a loop that was asked to stop so often before it began.
    pub(crate) fn new(waker: EventfdWaker, stops: u8) -> LoopShared {
        LoopShared {
            waker,
            counters: Arc::default(),
            inbox: Mutex::new(LoopInbox {
                arrivals: Vec::new(),
                stops,
            }),
        }
    }

    /// What wakes the loop.
    pub(crate) fn waker(&self) -> &EventfdWaker {
        &self.waker
    }

    /// What the loop counts.
    pub(crate) fn counters(&self) -> &Arc<CounterCells> {
        &self.counters
    }

    /// Leaves a socket for the loop.
    pub(crate) fn hand_over(&self, socket: OwnedFd, peer: Peer) {
        self.lock().arrivals.push((socket, peer));
        self.waker.wake();
    }

    /// Asks the loop to drain; asked again, to end at once.
    pub(crate) fn ask_to_stop(&self) {
        let mut inbox = self.lock();
        inbox.stops = inbox.stops.saturating_add(1);
        drop(inbox);
        self.waker.wake();
    }

    /// The loop takes what was left for it, and learns how often it was asked to stop in all.
    pub(crate) fn collect(&self, arrivals: &mut Vec<(OwnedFd, Peer)>) -> u8 {
        let mut inbox = self.lock();
        arrivals.append(&mut inbox.arrivals);
        inbox.stops
    }

    fn lock(&self) -> MutexGuard<'_, LoopInbox> {
        // Nothing under this lock can panic half-way.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All loops of a server by their numbers, shared by all who look at them. With the blocking driver
/// it grows, up to the most threads that there ever were.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoopList(Arc<RwLock<Vec<Arc<LoopShared>>>>);

impl LoopList {
    /// Loops that are there from the beginning.
    pub(crate) fn new(count: usize) -> io::Result<LoopList> {
        let list = LoopList::default();
        (0..count).try_for_each(|_| list.add(0).map(drop))?;
        Ok(list)
    }

    /// Adds a loop that was asked to stop so often, and returns its number.
    pub(crate) fn add(&self, stops: u8) -> io::Result<usize> {
        let added = Arc::new(LoopShared::new(EventfdWaker::new()?, stops));
        // Whole entries are added: sound whoever panicked.
        let mut list = self.0.write().unwrap_or_else(PoisonError::into_inner);
        list.push(added);
        Ok(list.len() - 1)
    }

    /// Returns a loop by its number, which must be one that was added.
    pub(crate) fn get(&self, index: usize) -> Arc<LoopShared> {
        self.with(|list| list[index].clone())
    }

    pub(crate) fn all(&self) -> Vec<Arc<LoopShared>> {
        self.with(<[_]>::to_vec)
    }

    pub(crate) fn read_counters(&self) -> Vec<LoopCounters> {
        self.with(|list| list.iter().map(|one| one.counters.read()).collect())
    }

    /// Returns how many connections were closed by all.
    pub(crate) fn closed(&self) -> u64 {
        self.with(|list| list.iter().map(|one| one.counters.closed.get()).sum())
    }

    /// Asks all to drain; asked again, to end at once.
    pub(crate) fn ask_to_stop(&self) {
        self.with(|list| list.iter().for_each(|one| one.ask_to_stop()));
    }

    fn with<R>(&self, look: impl FnOnce(&[Arc<LoopShared>]) -> R) -> R {
        look(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Reads what the loops count, from any thread.
#[derive(Clone, Debug)]
pub struct CountersReader(LoopList);

impl CountersReader {
    pub(crate) fn new(list: LoopList) -> CountersReader {
        CountersReader(list)
    }

    /// One snapshot for each loop, in order.
    pub fn read(&self) -> Vec<LoopCounters> {
        self.0.read_counters()
    }
}

impl Waker for LoopShared {
    fn wake(&self) {
        self.waker.wake();
    }
}

/// Where accepted connections go.
pub(crate) trait Placement: Send {
    /// Returns how many connections are open, or will be when their thread looks. If that is below
    /// the limit, it may be fewer.
    fn open(&mut self, limit: u64) -> u64;

    /// Returns whether a loop had no time for all of its connections in its last tick.
    fn is_behind(&self) -> bool;

    /// Returns whether so many TLS handshakes wait for their turn that no more should come.
    fn is_behind_with_handshakes(&self) -> bool;

    /// Returns how many TLS handshakes may be unfinished at once.
    fn max_handshakes(&self) -> usize;

    /// Finds the place of one more connection; gives it back if that is the accepting loop.
    fn place(&mut self, socket: OwnedFd, peer: Peer, now_ns: u64) -> Option<(OwnedFd, Peer)>;
}

/// Spreads connections over loops: each to the one that has the fewest.
pub(crate) struct ConnectionSpread {
    loops: Vec<Arc<LoopShared>>,
    /// Connections handed to each loop so far.
    assigned: Vec<u64>,
}

impl ConnectionSpread {
    pub(crate) fn new(loops: Vec<Arc<LoopShared>>) -> ConnectionSpread {
        let assigned = vec![0; loops.len()];
        ConnectionSpread { loops, assigned }
    }

    /// Chooses the loop for one more connection, and counts it.
    fn assign(&mut self) -> usize {
        let fewest = (0..self.loops.len()).min_by_key(|&index| self.open_in(index));
        let index = fewest.expect("there is at least one loop");
        self.assigned[index] += 1;
        index
    }

    fn open_in(&self, index: usize) -> u64 {
        self.assigned[index] - self.loops[index].counters.closed.get()
    }
}

impl Placement for ConnectionSpread {
    fn open(&mut self, _: u64) -> u64 {
        (0..self.loops.len()).map(|index| self.open_in(index)).sum()
    }

    fn is_behind(&self) -> bool {
        (self.loops.iter()).any(|one| one.counters.turns_left.get() > 0)
    }

    fn is_behind_with_handshakes(&self) -> bool {
        let due = |one: &Arc<LoopShared>| one.counters.handshakes_due.get();
        let due: u64 = self.loops.iter().map(due).sum();
        due >= (HANDSHAKES_DUE * self.loops.len()) as u64
    }

    fn max_handshakes(&self) -> usize {
        (HANDSHAKES_PER_LOOP + HANDSHAKES_ASKED) * self.loops.len()
    }

    fn place(&mut self, socket: OwnedFd, peer: Peer, _: u64) -> Option<(OwnedFd, Peer)> {
        match self.assign() {
            0 => Some((socket, peer)), // the first loop accepts
            index => {
                self.loops[index].hand_over(socket, peer);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What waits and what is unfinished may grow with the loops.
    #[test]
    fn loops_are_behind_by_what_all_of_them_have_to_do() {
        for count in [1, 3] {
            let list = LoopList::new(count).expect("descriptors are left");
            let spread = ConnectionSpread::new(list.all());
            assert_eq!(
                spread.max_handshakes(),
                count * (HANDSHAKES_PER_LOOP + HANDSHAKES_ASKED)
            );
            let last = list.get(count - 1);
            for _ in 0..2 {
                assert!(!spread.is_behind() && !spread.is_behind_with_handshakes());
                // All of it may be that of one loop.
                for (due, is_behind) in [
                    (count * HANDSHAKES_DUE - 1, false),
                    (count * HANDSHAKES_DUE, true),
                ] {
                    last.counters.handshakes_due.set(due as u64);
                    assert_eq!(spread.is_behind_with_handshakes(), is_behind, "{due}");
                }
                last.counters.handshakes_due.set(0);
                last.counters.turns_left.set(1);
                assert!(spread.is_behind());
                last.counters.turns_left.set(0);
            }
        }
    }
}
