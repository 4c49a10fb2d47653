//! Which loop gets a new connection.

use std::sync::{Arc, Mutex};

use rustix::fd::OwnedFd;

use crate::counters::CounterCells;
use crate::handler::{Peer, Waker};
use crate::wake::Alarm;

/// What other threads need of a loop.
#[derive(Debug)]
pub(crate) struct LoopShared {
    pub(crate) alarm: Alarm,
    pub(crate) counters: Arc<CounterCells>,
    inbox: Mutex<Inbox>,
}

#[derive(Debug, Default)]
struct Inbox {
    arrivals: Vec<(OwnedFd, Peer)>,
    stops: u8,
}

impl LoopShared {
    pub(crate) fn new(alarm: Alarm) -> LoopShared {
        LoopShared {
            alarm,
            counters: Arc::default(),
            inbox: Mutex::default(),
        }
    }

    /// Leaves a socket for the loop.
    pub(crate) fn hand_over(&self, socket: OwnedFd, peer: Peer) {
        self.lock().arrivals.push((socket, peer));
        self.alarm.wake();
    }

    /// Asks the loop to drain; asked again, to end at once.
    pub(crate) fn ask_to_stop(&self) {
        let mut inbox = self.lock();
        inbox.stops = inbox.stops.saturating_add(1);
        drop(inbox);
        self.alarm.wake();
    }

    /// The loop takes what was left for it, and learns how often it was asked to stop in all.
    pub(crate) fn collect(&self, arrivals: &mut Vec<(OwnedFd, Peer)>) -> u8 {
        let mut inbox = self.lock();
        arrivals.append(&mut inbox.arrivals);
        inbox.stops
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inbox> {
        // Nothing under this lock can panic half-way.
        self.inbox
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Waker for LoopShared {
    fn wake(&self) {
        self.alarm.wake();
    }
}

/// Where accepted connections go.
pub(crate) trait Placement: Send {
    /// Connections that are open, or will be when their thread looks.
    fn open(&self) -> u64;

    /// Whether one more would have nowhere to go, although there may be more connections in all.
    fn is_full(&self) -> bool;

    /// Finds the place of one more connection; gives it back if that is the accepting loop.
    fn place(&mut self, socket: OwnedFd, peer: Peer, now_ns: u64) -> Option<(OwnedFd, Peer)>;
}

/// Spreads connections over loops: each to the one that has the fewest.
pub(crate) struct Spread {
    loops: Vec<Arc<LoopShared>>,
    /// Connections handed to each loop so far.
    assigned: Vec<u64>,
}

impl Spread {
    pub(crate) fn new(loops: Vec<Arc<LoopShared>>) -> Spread {
        let assigned = vec![0; loops.len()];
        Spread { loops, assigned }
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

impl Placement for Spread {
    fn open(&self) -> u64 {
        (0..self.loops.len()).map(|index| self.open_in(index)).sum()
    }

    fn is_full(&self) -> bool {
        false
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
