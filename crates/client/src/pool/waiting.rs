//! The calls of a pool that wait: for their turn, or for the time of their next attempt.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::calls::{CallStage, PoolCalls};
use super::event::PoolCallKey;

/// Why the calls of the queue wait: all for the same reason, that of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitCause {
    /// As many calls are in flight as may be.
    Permit,
    /// No connection is open to an address that serves.
    Connection,
    /// The connections have as many calls as their servers allow.
    Stream,
}

/// How long calls have waited in a pool, summed up over the calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitTimes {
    /// As many calls were in flight as may be.
    pub permit_ns: u64,
    /// No connection was open to an address that serves, as far as its health check says.
    pub connection_ns: u64,
    /// The connections had as many calls as their servers, or the mode, allow.
    pub stream_ns: u64,
    /// It was not yet time for their next attempt.
    pub pause_ns: u64,
}

/// Stale entries in the queue, of calls that have ended, that are borne beside as many again as
/// wait.
const STALE_ENTRIES: usize = 64;

#[derive(Debug)]
pub(super) struct PoolWaitingCalls {
    /// In the order of their turns; entries of calls that have ended are passed over.
    queue: VecDeque<PoolCallKey>,
    /// Calls in the queue.
    queued: usize,
    /// By the time of their next attempt; with entries of calls that have ended.
    delayed: BinaryHeap<Reverse<(u64, PoolCallKey)>>,
    delayed_count: usize,
    cause: WaitCause,
    /// Until when times have been added up.
    counted_until_ns: u64,
    times: WaitTimes,
}

impl PoolWaitingCalls {
    pub(super) fn new(now_ns: u64) -> PoolWaitingCalls {
        PoolWaitingCalls {
            queue: VecDeque::new(),
            queued: 0,
            delayed: BinaryHeap::new(),
            delayed_count: 0,
            cause: WaitCause::Connection,
            counted_until_ns: now_ns,
            times: WaitTimes::default(),
        }
    }

    /// Calls that wait in any way.
    pub(super) fn len(&self) -> usize {
        self.queued + self.delayed_count
    }

    /// Calls in the queue.
    pub(super) fn queued(&self) -> usize {
        self.queued
    }

    pub(super) fn delayed(&self) -> usize {
        self.delayed_count
    }

    pub(super) fn cause(&self) -> WaitCause {
        self.cause
    }

    pub(super) fn push_back(&mut self, key: PoolCallKey) {
        self.queue.push_back(key);
        self.queued += 1;
    }

    pub(super) fn push_front(&mut self, key: PoolCallKey) {
        self.queue.push_front(key);
        self.queued += 1;
    }

    pub(super) fn push_delayed(&mut self, key: PoolCallKey, at_ns: u64) {
        self.delayed.push(Reverse((at_ns, key)));
        self.delayed_count += 1;
    }

    /// Takes the call whose turn it is.
    pub(super) fn pop(&mut self, calls: &PoolCalls) -> Option<PoolCallKey> {
        while let Some(key) = self.queue.pop_front() {
            if is_in(calls, key, CallStage::Waiting) {
                self.queued -= 1;
                return Some(key);
            }
        }
        None
    }

    /// A call of this stage ends, or is to be ended: it waits no longer.
    pub(super) fn forget(&mut self, stage: CallStage) {
        match stage {
            CallStage::Waiting => self.queued -= 1,
            CallStage::Delayed => self.delayed_count -= 1,
            CallStage::Free | CallStage::Running { .. } => {}
        }
    }

    /// Removes the entries of calls that have ended, if they are many.
    pub(super) fn compact(&mut self, calls: &PoolCalls) {
        if self.queue.len() > 2 * self.queued + STALE_ENTRIES {
            self.queue
                .retain(|&key| is_in(calls, key, CallStage::Waiting));
        }
        if self.delayed.len() > 2 * self.delayed_count + STALE_ENTRIES {
            self.delayed
                .retain(|Reverse((_, key))| is_in(calls, *key, CallStage::Delayed));
        }
    }

    /// The calls in the queue, in order.
    pub(super) fn iter_queued<'a>(
        &'a self,
        calls: &'a PoolCalls,
    ) -> impl Iterator<Item = PoolCallKey> + 'a {
        let keys = self.queue.iter().copied();
        keys.filter(|&key| is_in(calls, key, CallStage::Waiting))
    }

    /// When the next attempt of a delayed call is due; `u64::MAX`: none.
    pub(super) fn next_delayed_ns(&self) -> u64 {
        self.delayed
            .peek()
            .map_or(u64::MAX, |Reverse((at_ns, _))| *at_ns)
    }

    /// Puts the delayed calls whose time has come at the head of the queue.
    pub(super) fn release_delayed(&mut self, calls: &mut PoolCalls, now_ns: u64) {
        if self.next_delayed_ns() <= now_ns {
            self.count_time(now_ns);
        }
        while self.next_delayed_ns() <= now_ns {
            let Some(Reverse((_, key))) = self.delayed.pop() else {
                return;
            };
            if is_in(calls, key, CallStage::Delayed)
                && let Some(call) = calls.get_mut(key)
            {
                call.stage = CallStage::Waiting;
                self.delayed_count -= 1;
                self.push_front(key);
            }
        }
    }

    /// Adds up how long calls have waited until now, before their number or their cause changes.
    pub(super) fn count_time(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.counted_until_ns);
        self.counted_until_ns = now_ns;
        let waited_ns = passed_ns.saturating_mul(self.queued as u64);
        let sum_ns = match self.cause {
            WaitCause::Permit => &mut self.times.permit_ns,
            WaitCause::Connection => &mut self.times.connection_ns,
            WaitCause::Stream => &mut self.times.stream_ns,
        };
        *sum_ns = sum_ns.saturating_add(waited_ns);
        let delayed_ns = passed_ns.saturating_mul(self.delayed_count as u64);
        self.times.pause_ns = self.times.pause_ns.saturating_add(delayed_ns);
    }

    pub(super) fn set_cause(&mut self, cause: WaitCause) {
        self.cause = cause;
    }

    pub(super) fn times(&self) -> WaitTimes {
        self.times
    }
}

fn is_in(calls: &PoolCalls, key: PoolCallKey, stage: CallStage) -> bool {
    calls.get(key).is_some_and(|call| call.stage == stage)
}
