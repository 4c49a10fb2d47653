//! What the thread with the token does for all.

use std::sync::Arc;

use net::{OutgoingPoller, OutgoingWaker};

use super::call::{SharedCall, Submission, Waiter};
use super::sync::{SubmissionQueue, lock};
use crate::error::CallError;
use crate::limits;
use crate::local_pool::LocalPool;
use crate::pool::{PoolEvent, PoolStatistics};

/// The pool, and the calls that are in it.
#[derive(Debug)]
pub(super) struct Driver {
    pool: LocalPool,
    calls: CallTable,
    /// Until when the thread in the kernel waits, at most.
    waits_until_ns: u64,
    waker: OutgoingWaker,
}

/// Calls by tag.
#[derive(Debug, Default)]
struct CallTable {
    calls: Vec<Option<Arc<SharedCall>>>,
    free: Vec<u32>,
}

impl CallTable {
    fn insert(&mut self, call: Arc<SharedCall>) -> u32 {
        match self.free.pop() {
            Some(tag) => {
                self.calls[tag as usize] = Some(call);
                tag
            }
            None => {
                self.calls.push(Some(call));
                (self.calls.len() - 1) as u32
            }
        }
    }

    fn get(&self, tag: u64) -> Option<&Arc<SharedCall>> {
        self.calls.get(tag as usize)?.as_ref()
    }

    fn remove(&mut self, tag: u64) -> Option<Arc<SharedCall>> {
        let call = self.calls.get_mut(tag as usize)?.take()?;
        self.free.push(tag as u32);
        Some(call)
    }
}

/// For whom a thread works, and who is to be woken when it has released the token.
pub(super) struct DriverTurn<'a> {
    pub(super) own: Option<&'a Arc<SharedCall>>,
    pub(super) woken: Vec<Waiter>,
}

impl Driver {
    pub(super) fn new(pool: LocalPool, waker: OutgoingWaker) -> Driver {
        Driver {
            pool,
            calls: CallTable::default(),
            waits_until_ns: 0,
            waker,
        }
    }

    /// Takes all that was submitted, writes it, and does what is due.
    pub(super) fn turn(&mut self, queue: &SubmissionQueue<Submission>, turn: &mut DriverTurn<'_>) {
        let now_ns = net::monotonic_ns();
        // Bounded, so that others who keep submitting do not keep this thread.
        for _ in 0..limits::SHARED_SUBMISSIONS {
            match queue.pop() {
                Some(Submission::Begin(call)) => self.begin(call, now_ns, turn),
                Some(Submission::Cancel(call)) => self.cancel(&call, now_ns),
                Some(Submission::Close { grace_ns }) => {
                    self.pool.engine().close(grace_ns, now_ns);
                }
                None => break,
            }
        }
        self.pool.flush(now_ns);
        if self.pool.engine().has_events() {
            self.receive(now_ns, turn);
            self.pool.flush(now_ns);
        }
        let due_ns = self.pool.engine().next_deadline_ns().unwrap_or(u64::MAX);
        if self.pool.engine().is_busy() || due_ns < self.waits_until_ns {
            self.waits_until_ns = 0;
            self.waker.wake();
        }
    }

    /// Takes what the poller has waited for.
    pub(super) fn take_events(&mut self, poller: &mut OutgoingPoller, turn: &mut DriverTurn<'_>) {
        self.waits_until_ns = 0;
        self.pool.take_events(poller);
        self.receive(net::monotonic_ns(), turn);
    }

    /// Returns how long the thread in the kernel may wait, which waits from now on.
    pub(super) fn begin_waiting(&mut self) -> Option<u64> {
        let now_ns = net::monotonic_ns();
        let engine = self.pool.engine();
        let until_ns = match engine.is_busy() {
            true => now_ns,
            false => engine.next_deadline_ns().unwrap_or(u64::MAX),
        };
        self.waits_until_ns = until_ns;
        (until_ns != u64::MAX).then(|| until_ns.saturating_sub(now_ns))
    }

    pub(super) fn next_deadline_ns(&mut self) -> Option<u64> {
        self.pool.engine().next_deadline_ns()
    }

    pub(super) fn is_closed(&mut self) -> bool {
        self.pool.engine().is_closed()
    }

    pub(super) fn statistics(&mut self) -> PoolStatistics {
        self.pool.engine().statistics(net::monotonic_ns())
    }

    fn begin(&mut self, call: Arc<SharedCall>, now_ns: u64, turn: &mut DriverTurn<'_>) {
        let tag = self.calls.insert(Arc::clone(&call));
        let mut state = lock(&call.state);
        let begun = self
            .pool
            .engine()
            .begin(u64::from(tag), &state.start(now_ns), now_ns, |out| {
                out.extend_from_slice(&state.request);
            });
        match begun {
            Ok(key) => state.key = Some((tag, key)),
            Err(error) => {
                drop(state);
                self.calls.remove(u64::from(tag));
                finish(&call, Err(error), &self.waker, turn);
            }
        }
    }

    fn cancel(&mut self, call: &Arc<SharedCall>, now_ns: u64) {
        let key = lock(&call.state).key.take();
        if let Some((tag, key)) = key {
            self.calls.remove(u64::from(tag));
            self.pool.engine().cancel(key, now_ns);
        }
    }

    fn receive(&mut self, now_ns: u64, turn: &mut DriverTurn<'_>) {
        let (calls, waker) = (&mut self.calls, &self.waker);
        self.pool.receive(now_ns, &mut |event| match event {
            PoolEvent::Message { tag, bytes, .. } => {
                if let Some(call) = calls.get(tag) {
                    let mut state = lock(&call.state);
                    state.messages += 1;
                    state.answer.clear();
                    state.answer.extend_from_slice(bytes);
                }
            }
            PoolEvent::Ended { tag, result, .. } => {
                if let Some(call) = calls.remove(tag) {
                    finish(&call, result.map(|_| ()), waker, turn);
                }
            }
            PoolEvent::Head { .. } | PoolEvent::Writable { .. } => {}
        });
    }
}

/// Stores how a call ended. Its caller may use it for another call from here on.
fn finish(
    call: &Arc<SharedCall>,
    result: Result<(), CallError>,
    waker: &OutgoingWaker,
    turn: &mut DriverTurn<'_>,
) {
    let mut state = lock(&call.state);
    state.key = None;
    state.result = Some(result);
    let waiter = state.waiter.take();
    // Under the lock: a future that takes the result makes it free for the next call.
    let is_polling = call.phase.finish();
    drop(state);
    if turn.own.is_some_and(|own| Arc::ptr_eq(own, call)) {
        return;
    }
    if is_polling {
        waker.wake();
    }
    turn.woken.extend(waiter);
}
