//! How much of requests of many operations a server has under way. The committer takes commits in
//! the order in which they come, and each such request becomes several times its size there: so all
//! loops together take up only so much at a time, and those that want more take turns. A loop for
//! one connection each would else take up one of every connection.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::SharedWaker;
use crate::limits;

/// The requests that all loops have under way, and the loops that wait for a turn.
#[derive(Default)]
pub(crate) struct LongRequests {
    state: Mutex<SharedTurns>,
}

#[derive(Default)]
struct SharedTurns {
    under_way_bytes: usize,
    /// The first one is next. Only the loop itself takes its place back.
    waiting: VecDeque<WaitingLoop>,
    /// Loops that there were, ever.
    loops: u64,
}

/// A loop that waits for its turn.
struct WaitingLoop {
    number: u64,
    wake: SharedWaker,
}

impl LongRequests {
    fn lock(&self) -> MutexGuard<'_, SharedTurns> {
        // Whole entries come and go: sound whoever panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedTurns {
    fn has_room(&self) -> bool {
        self.under_way_bytes < limits::LONG_REQUESTS_UNDER_WAY_BYTES
    }

    fn is_first(&self, number: u64) -> bool {
        self.waiting.front().is_none_or(|one| one.number == number)
    }

    /// Returns how to wake the loop whose turn it is, if that is another one.
    fn next(&self, number: u64) -> Option<SharedWaker> {
        let first = self.waiting.front().filter(|_| self.has_room())?;
        (first.number != number).then(|| Arc::clone(&first.wake))
    }
}

/// The requests of one loop.
pub(crate) struct LoopLongRequests {
    all: Arc<LongRequests>,
    number: u64,
    wake: SharedWaker,
    under_way_bytes: usize,
    /// It has a place among the waiting.
    is_waiting: Cell<bool>,
}

impl LoopLongRequests {
    /// Those of another loop, which `wake` wakes.
    pub fn new(all: Arc<LongRequests>, wake: SharedWaker) -> LoopLongRequests {
        let number = {
            let mut state = all.lock();
            state.loops += 1;
            state.loops
        };
        LoopLongRequests {
            all,
            number,
            wake,
            under_way_bytes: 0,
            is_waiting: Cell::new(false),
        }
    }

    /// Returns whether the loop may take one up: not too much is under way, and no other loop is
    /// before it. Else it is woken when its turn comes, until it [leaves](Self::leave).
    pub fn may_take(&self) -> bool {
        let mut state = self.all.lock();
        if state.has_room() && state.is_first(self.number) {
            return true;
        }
        if !self.is_waiting.replace(true) {
            let wake = Arc::clone(&self.wake);
            let number = self.number;
            state.waiting.push_back(WaitingLoop { number, wake });
        }
        false
    }

    /// The loop has nothing to take up, or has done so: it comes behind the others that wait.
    pub fn leave(&self) {
        if !self.is_waiting.replace(false) {
            return;
        }
        let mut state = self.all.lock();
        match state.is_first(self.number) {
            true => drop(state.waiting.pop_front()),
            false => state.waiting.retain(|one| one.number != self.number),
        }
        self.wake_next(state);
    }

    /// One of so many bytes is under way.
    pub fn add(&mut self, bytes: usize) {
        self.under_way_bytes += bytes;
        self.all.lock().under_way_bytes += bytes;
    }

    /// It is not any more.
    pub fn end(&mut self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.under_way_bytes -= bytes;
        let mut state = self.all.lock();
        state.under_way_bytes -= bytes;
        self.wake_next(state);
    }

    /// Returns the bytes of those of this loop.
    #[cfg(test)]
    pub fn under_way_bytes(&self) -> usize {
        self.under_way_bytes
    }

    fn wake_next(&self, state: MutexGuard<'_, SharedTurns>) {
        let next = state.next(self.number);
        drop(state);
        if let Some(wake) = next {
            wake();
        }
    }
}

impl Drop for LoopLongRequests {
    fn drop(&mut self) {
        self.leave();
        self.end(self.under_way_bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const ALL_BYTES: usize = limits::LONG_REQUESTS_UNDER_WAY_BYTES;

    /// A loop, and how often it was woken.
    fn a_loop(all: &Arc<LongRequests>) -> (LoopLongRequests, Arc<AtomicUsize>) {
        let woken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&woken);
        let wake: SharedWaker = Arc::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        (LoopLongRequests::new(Arc::clone(all), wake), woken)
    }

    fn take(one: &mut LoopLongRequests, bytes: usize) {
        assert!(one.may_take());
        one.add(bytes);
        one.leave();
    }

    fn count(woken: &AtomicUsize) -> usize {
        woken.swap(0, Ordering::Relaxed)
    }

    #[test]
    fn loops_that_wait_take_turns() {
        let all = Arc::default();
        let (mut busy, _) = a_loop(&all);
        let (mut first, first_woken) = a_loop(&all);
        let (mut second, second_woken) = a_loop(&all);
        for round in 0..3 {
            take(&mut busy, ALL_BYTES);
            assert!(!busy.may_take() && !first.may_take() && !second.may_take());
            assert!(!second.may_take(), "it has one place");
            busy.end(ALL_BYTES);
            // It was there before the others.
            take(&mut busy, ALL_BYTES);
            assert!(!busy.may_take());
            assert_eq!(count(&first_woken), 0, "round {round}: there is no room");
            busy.end(ALL_BYTES);
            assert_eq!((count(&first_woken), count(&second_woken)), (1, 0));
            assert!(!busy.may_take() && !second.may_take());
            take(&mut first, ALL_BYTES - 1);
            assert_eq!(count(&second_woken), 1, "there is room for another one");
            assert!(!first.may_take());
            take(&mut second, ALL_BYTES);
            first.end(ALL_BYTES - 1);
            assert!(!busy.may_take(), "the second has all");
            second.end(ALL_BYTES);
            take(&mut busy, 1);
            busy.end(1);
            take(&mut first, 1);
            first.end(1);
            let state = all.lock();
            assert!(state.waiting.is_empty() && state.under_way_bytes == 0);
            drop(state);
            count(&first_woken);
            count(&second_woken);
        }
    }

    #[test]
    fn a_loop_that_ends_leaves_its_place_and_what_it_had_under_way() {
        let all = Arc::default();
        let (mut stays, woken) = a_loop(&all);
        for _ in 0..2 {
            let (mut holds, _) = a_loop(&all);
            let (waits, _) = a_loop(&all);
            take(&mut holds, ALL_BYTES);
            assert!(!waits.may_take() && !stays.may_take());
            drop(holds);
            assert_eq!(count(&woken), 0, "another one is first");
            drop(waits);
            assert_eq!(count(&woken), 1);
            take(&mut stays, 7);
            stays.end(7);
            let state = all.lock();
            assert!(state.waiting.is_empty() && state.under_way_bytes == 0);
        }
    }

    #[test]
    fn a_loop_with_nothing_more_to_take_up_lets_the_next_one() {
        let all = Arc::default();
        let (mut holds, _) = a_loop(&all);
        let (first, first_woken) = a_loop(&all);
        let (second, second_woken) = a_loop(&all);
        let (third, third_woken) = a_loop(&all);
        for _ in 0..2 {
            take(&mut holds, ALL_BYTES);
            assert!(!first.may_take() && !second.may_take() && !third.may_take());
            // From the middle, for whoever has been given up.
            second.leave();
            holds.end(ALL_BYTES);
            assert_eq!(count(&first_woken), 1);
            first.leave();
            assert_eq!((count(&second_woken), count(&third_woken)), (0, 1));
            third.leave();
            assert!(all.lock().waiting.is_empty());
        }
    }
}
