//! Wake-ups of one loop: call deadlines, waits that services asked for, and the timers of
//! connections.

use crate::call_id::CallId;
use net::ConnectionId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Who is to be looked at when a time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    Deadline(CallId),
    Wake(CallId),
    Connection { slot: u32, generation: u32 },
}

impl Timer {
    pub fn connection(id: ConnectionId) -> Timer {
        Timer::Connection {
            slot: id.slot,
            generation: id.generation,
        }
    }
}

/// A heap of timers. A timer is never searched for: one whose owner is gone, or waits for another
/// time now, is dropped when its time comes.
#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(u64, Timer)>>,
}

impl Timers {
    pub fn set(&mut self, at_ns: u64, timer: Timer) {
        self.heap.push(Reverse((at_ns, timer)));
    }

    pub fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at_ns, _))| *at_ns)
    }

    /// The next timer that is due, with the time that it was set to.
    pub fn pop_due(&mut self, now_ns: u64) -> Option<(u64, Timer)> {
        if self.next_ns()? > now_ns {
            return None;
        }
        self.heap.pop().map(|Reverse(due)| due)
    }

    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Drops the timers that nobody waits for any more. Called when the heap has grown well beyond
    /// the number of owners, so that calls and connections which end long before a far deadline do
    /// not pile up.
    pub fn retain(&mut self, mut is_awaited: impl FnMut(u64, Timer) -> bool) {
        self.heap
            .retain(|&Reverse((at_ns, timer))| is_awaited(at_ns, timer));
    }
}
