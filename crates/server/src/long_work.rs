//! Work of calls that may take long, in turns: one connection after the other, and of each the call
//! that asked first. So a connection with a thousand scans delays its own, and a scan of another
//! connection by one slice.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use net::ConnectionId;
use store::DatabaseId;

use crate::call_id::CallId;
use crate::limits;

/// What a call has done in the time that a tick has for long work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LongWork {
    /// It is shown this database.
    Read(DatabaseId),
    /// It is woken.
    Step,
}

/// What waits of one connection, in the order asked.
type WaitingWork = VecDeque<(LongWork, CallId)>;

/// What waits for such time. A call has at most one place in it, so its length is bounded by the
/// calls that may run.
#[derive(Default)]
pub(crate) struct LongWorkQueue {
    /// Of each connection that has something. None is empty.
    waiting: HashMap<ConnectionId, WaitingWork>,
    /// These connections, the one whose turn is next in front.
    turns: VecDeque<ConnectionId>,
    /// How many wait in all.
    len: usize,
    /// Kept for connections to come, so that a lonely scan allocates nothing for each of its
    /// slices.
    spare: Vec<WaitingWork>,
}

impl LongWorkQueue {
    /// Adds what a call wants done, behind what its connection has waiting already.
    pub fn push(&mut self, connection: ConnectionId, work: LongWork, call: CallId) {
        self.len += 1;
        match self.waiting.entry(connection) {
            Entry::Occupied(entry) => entry.into_mut().push_back((work, call)),
            Entry::Vacant(entry) => {
                let mut waiting = self.spare.pop().unwrap_or_default();
                waiting.push_back((work, call));
                entry.insert(waiting);
                self.turns.push_back(connection);
            }
        }
    }

    /// Takes out what is next. Its connection has its next turn behind all others.
    pub fn pop(&mut self) -> Option<(LongWork, CallId)> {
        let connection = self.turns.pop_front()?;
        let Entry::Occupied(mut entry) = self.waiting.entry(connection) else {
            debug_assert!(false, "who has a turn has something waiting");
            return None;
        };
        let next = entry.get_mut().pop_front();
        if entry.get().is_empty() {
            let emptied = entry.remove();
            let is_kept = self.spare.len() < limits::SPARE_LONG_WORK_QUEUES
                && emptied.capacity() <= limits::SPARE_LONG_WORK_CALLS;
            if is_kept {
                self.spare.push(emptied);
            }
        } else {
            self.turns.push_back(connection);
        }
        self.len -= usize::from(next.is_some());
        next
    }

    /// Returns how many calls wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no call waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(slot: u32) -> ConnectionId {
        ConnectionId {
            slot,
            generation: 0,
        }
    }

    fn call(index: u32) -> CallId {
        CallId {
            index,
            generation: 0,
        }
    }

    fn pop(queue: &mut LongWorkQueue) -> Option<u32> {
        queue.pop().map(|(_, call)| call.index)
    }

    #[test]
    fn connections_take_turns_and_calls_of_one_keep_their_order() {
        let mut queue = LongWorkQueue::default();
        for round in 0..2 {
            for index in 0..5 {
                queue.push(connection(1), LongWork::Step, call(index));
            }
            queue.push(connection(2), LongWork::Step, call(20));
            queue.push(connection(3), LongWork::Step, call(30));
            assert_eq!(queue.len(), 7, "round {round}");
            assert_eq!(pop(&mut queue), Some(0));
            // It goes on, behind those of its connection.
            queue.push(connection(1), LongWork::Step, call(0));
            assert_eq!(pop(&mut queue), Some(20));
            // Its connection has nothing else: its next turn is behind the third.
            queue.push(connection(2), LongWork::Step, call(20));
            let rest = std::iter::from_fn(|| pop(&mut queue)).collect::<Vec<_>>();
            assert_eq!(rest, [30, 1, 20, 2, 3, 4, 0], "round {round}");
            assert!(queue.is_empty() && queue.waiting.is_empty() && queue.turns.is_empty());
            assert_eq!(queue.pop(), None);
        }
    }

    #[test]
    fn what_is_kept_for_later_is_bounded() {
        let mut queue = LongWorkQueue::default();
        for _ in 0..2 {
            for slot in 0..2 * limits::SPARE_LONG_WORK_QUEUES as u32 {
                queue.push(connection(slot), LongWork::Step, call(slot));
            }
            for index in 0..8 * limits::SPARE_LONG_WORK_CALLS as u32 {
                queue.push(connection(0), LongWork::Step, call(index));
            }
            while queue.pop().is_some() {}
            assert_eq!(queue.len(), 0);
            assert!(queue.spare.len() <= limits::SPARE_LONG_WORK_QUEUES);
            let largest = queue.spare.iter().map(WaitingWork::capacity).max();
            assert!(largest.is_some_and(|calls| calls <= limits::SPARE_LONG_WORK_CALLS));
        }
    }
}
