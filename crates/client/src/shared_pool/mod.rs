//! A pool for any number of threads and futures.
//!
//! Callers submit their calls without waiting for each other. Who finds the pool free works for
//! all: takes what was submitted, and writes it together. Who finds it taken goes on; the other
//! looks again after it has released the pool ([`protocol`]).
//!
//! One thread waits in the kernel for all, without holding the pool, so that others write
//! meanwhile. It is a caller that waits for its own call, if there is one, as the hand-over to
//! another thread would cost more than the call; the pool's own thread does it for futures, and
//! does what is due by time when nobody waits.

mod addresses;
mod call;
mod call_table;
mod deferral;
mod driver;
mod future;
mod interruption;
mod message_queue;
mod protocol;
mod reactor;
mod stream;
mod stream_control;
mod stream_handle;
mod submission;
mod sync;
mod turn;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Thread};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use net::{Address, OutgoingPoller, OutgoingWaker};

use crate::channel::CallInfo;
use crate::error::{CallError, ConnectError};
use crate::limits;
use crate::local_pool::{LocalPool, LocalPoolOptions, no_epoll};
use crate::pool::{PoolCall, PoolStatistics};
use call::SharedCall;
use deferral::Deferral;
use driver::PoolDriver;
use interruption::Interruption;
use protocol::{CallFollower, CallPhase, Combiner, Leadership};
use submission::Submission;
use sync::lock;
use turn::{DriverTurn, TurnWaiter, check_may_wait};

pub use future::UnaryFuture;
pub use stream_control::PoolStreamControl;
pub use stream_handle::{PoolStream, PoolStreamReceiver, PoolStreamSender};

/// Connections to one or more addresses, for any number of threads and futures. A clone is the same
/// pool, and so is what a future or a stream of it holds; when the last of all these is dropped,
/// the pool closes at once.
///
/// ```no_run
/// use client::{LocalPoolOptions, PoolCall, SharedPool};
///
/// let pool = SharedPool::new(&["127.0.0.1:1978".parse()?], LocalPoolOptions::default(), 1)?;
/// let check = PoolCall {
///     path: "/grpc.health.v1.Health/Check",
///     timeout_ns: Some(5_000_000_000),
///     ..PoolCall::default()
/// };
/// // This thread waits:
/// let answer = pool.unary(&check, b"")?;
/// // Any executor waits:
/// let answer = pool.unary_future(&check, b"");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SharedPool {
    handle: Arc<PoolHandle>,
}

/// All clones have it; the pool's own thread does not.
struct PoolHandle {
    shared: Arc<SharedState>,
    reactor: Thread,
}

struct SharedState {
    combiner: Combiner<PoolDriver, Submission>,
    leadership: Leadership<dyn CallFollower + Send + Sync>,
    deferral: Deferral,
    /// Only for the leader.
    poller: Mutex<OutgoingPoller>,
    /// When a leader has looked at the connections last.
    looked_ns: AtomicU64,
    waker: OutgoingWaker,
    /// Calls of futures that have not ended, and streams that futures have waited for.
    futures: AtomicUsize,
    /// Something was submitted for which nobody may wait: the pool's thread looks after it.
    is_unattended: AtomicBool,
    max_request_bytes: usize,
    kept: ArrayQueue<Arc<SharedCall>>,
    is_closing: AtomicBool,
}

thread_local! {
    /// Who is to be woken by this thread; kept, so that nothing is allocated anew.
    static WOKEN: Cell<Vec<TurnWaiter>> = const { Cell::new(Vec::new()) };
}

impl SharedPool {
    /// Looks up where the servers are, and starts the pool's thread. Waits for the resolver;
    /// connects to nothing yet. `seed` is for the jitter of pauses: another one for each client.
    ///
    /// # Errors
    /// If a host is not known, the token must not be sent to one of the addresses, or the system
    /// gives no epoll set or no thread.
    pub fn new(
        addresses: &[Address],
        options: LocalPoolOptions,
        seed: u64,
    ) -> Result<SharedPool, ConnectError> {
        let max_request_bytes = options.pool.max_request_bytes;
        let pool = LocalPool::new(addresses, options, seed, net::monotonic_ns())?;
        SharedPool::of(pool, max_request_bytes)
    }

    fn of(pool: LocalPool, max_request_bytes: usize) -> Result<SharedPool, ConnectError> {
        let poller = pool.poller().map_err(no_epoll)?;
        let waker = poller.waker();
        let driver = PoolDriver::new(pool, waker.clone());
        let shared = Arc::new(SharedState {
            combiner: Combiner::new(driver, limits::SHARED_SUBMISSIONS),
            leadership: Leadership::new(),
            deferral: Deferral::new(),
            poller: Mutex::new(poller),
            looked_ns: AtomicU64::new(net::monotonic_ns()),
            waker,
            futures: AtomicUsize::new(0),
            is_unattended: AtomicBool::new(false),
            max_request_bytes,
            kept: ArrayQueue::new(limits::SHARED_KEPT_CALLS),
            is_closing: AtomicBool::new(false),
        });
        let reactor = reactor::start(Arc::clone(&shared));
        let reactor = reactor.map_err(|error| ConnectError::NoResource {
            what: "its thread cannot be started",
            error,
            limited_by: net::THREAD_LIMITS,
        })?;
        let handle = Arc::new(PoolHandle { shared, reactor });
        Ok(SharedPool { handle })
    }

    /// Calls a unary method, and waits for its answer.
    ///
    /// # Errors
    /// If the call ends with another status than OK, or without one.
    pub fn unary(&self, call: &PoolCall<'_>, request: &[u8]) -> Result<Vec<u8>, CallError> {
        let mut answer = Vec::new();
        self.unary_into(call, request, &mut answer)?;
        Ok(answer)
    }

    /// The same, with the answer in `answer` instead of what was there. A caller that uses the same
    /// buffer again needs no allocation.
    ///
    /// # Errors
    /// As [`SharedPool::unary`].
    pub fn unary_into(
        &self,
        call: &PoolCall<'_>,
        request: &[u8],
        answer: &mut Vec<u8>,
    ) -> Result<(), CallError> {
        check_may_wait()?;
        let own = self.run(call, request, None);
        let result = {
            let mut state = lock(&own.state);
            std::mem::swap(&mut state.answer, answer);
            state.take_result()
        };
        self.handle.shared.keep(own);
        result.unwrap_or_else(unreachable_result)
    }

    /// The same, with the metadata of the answer in `info`, if the call has
    /// [`wants_head`](PoolCall::wants_head), also where it ends with another status than OK, whose
    /// trailing metadata are its own. While the thread waits, it asks `is_interrupted`, if it is
    /// given, every [`SHARED_INTERRUPT_PERIOD`](limits::SHARED_INTERRUPT_PERIOD); once that has
    /// returned `true`, the call ends with CANCELLED. It may make calls itself.
    ///
    /// # Errors
    /// As [`SharedPool::unary`].
    pub fn unary_with_info(
        &self,
        call: &PoolCall<'_>,
        request: &[u8],
        info: &mut CallInfo,
        is_interrupted: Option<&mut dyn FnMut() -> bool>,
    ) -> Result<Vec<u8>, CallError> {
        check_may_wait()?;
        let own = self.run(call, request, is_interrupted);
        let (result, answer) = {
            let mut state = lock(&own.state);
            *info = std::mem::take(&mut state.info);
            (state.take_result(), std::mem::take(&mut state.answer))
        };
        self.handle.shared.keep(own);
        result.unwrap_or_else(unreachable_result).map(|()| answer)
    }

    /// Makes a unary call, and waits for its end.
    fn run(
        &self,
        call: &PoolCall<'_>,
        request: &[u8],
        is_interrupted: Option<&mut dyn FnMut() -> bool>,
    ) -> Arc<SharedCall> {
        self.catch_up();
        let shared = &self.handle.shared;
        let own = shared.prepare(call, request);
        lock(&own.state).waiter = Some(TurnWaiter::Thread(thread::current()));
        shared.submit(Submission::Begin(Arc::clone(&own)), Some(&own.phase));
        match (own.phase.is_done(), is_interrupted) {
            // It was refused at once, as where no address can be reached: nobody waits in the
            // kernel for the connection that later calls need.
            (true, _) => self.note_unattended(),
            (false, None) => self.wait(&own),
            (false, Some(is_interrupted)) => {
                let give_up = || shared.submit(Submission::Abort(Arc::clone(&own)), None);
                self.wait_unless(&own, &mut Interruption::new(is_interrupted, &give_up));
            }
        }
        own
    }

    /// Calls a unary method. The call has begun when this returns; dropping the future cancels it.
    /// Any executor can poll it.
    ///
    /// With several calls of futures in flight, further ones are written together, after
    /// [`SHARED_LONGEST_LEFT`](crate::limits::SHARED_LONGEST_LEFT) at most.
    pub fn unary_future(&self, call: &PoolCall<'_>, request: &[u8]) -> UnaryFuture {
        self.catch_up();
        let shared = &self.handle.shared;
        let own = shared.prepare(call, request);
        let others = shared.futures.fetch_add(1, Ordering::SeqCst);
        let begin = Submission::Begin(Arc::clone(&own));
        match others < limits::SHARED_WRITTEN_AT_ONCE {
            true => shared.submit(begin, None),
            false => shared.leave(begin),
        }
        self.wake_reactor();
        UnaryFuture::new(self.clone(), own)
    }

    /// Returns what is in flight, what waits and why, and what was counted.
    pub fn statistics(&self) -> PoolStatistics {
        let shared = &self.handle.shared;
        // What was left counts.
        with_turn(None, |turn| {
            let turn = RefCell::new(turn);
            shared.combiner.with(
                |driver, queue| {
                    driver.turn(queue, &mut turn.borrow_mut());
                    driver.statistics()
                },
                |driver, queue| driver.turn(queue, &mut turn.borrow_mut()),
            )
        })
    }

    /// Takes no new calls from now on, in any clone. Those that run may go on for `grace`.
    pub fn close(&self, grace: Duration) {
        self.handle.close(grace);
    }

    /// Waits until the phase is done, in the kernel for all if nobody else does.
    fn wait<S: CallFollower + Send + Sync + 'static>(&self, own: &Arc<S>) {
        let shared = &self.handle.shared;
        while !own.phase().is_done() {
            let follower: Arc<dyn CallFollower + Send + Sync> = Arc::<S>::clone(own);
            let park = || {
                thread::park();
                true
            };
            if shared.leadership.acquire_or_park(&follower, park) {
                shared.drive(own.phase(), u64::MAX);
                self.release_leadership();
            }
        }
    }

    /// The same for a caller that may be interrupted, and gives up what it waits for then. It looks
    /// only while it does not lead and is not about to: what it looks at may use the pool.
    fn wait_unless<S: CallFollower + Send + Sync + 'static>(
        &self,
        own: &Arc<S>,
        interruption: &mut Interruption<'_>,
    ) {
        let shared = &self.handle.shared;
        while !own.phase().is_done() {
            let until_ns = interruption.begin_period(net::monotonic_ns());
            let follower: Arc<dyn CallFollower + Send + Sync> = Arc::<S>::clone(own);
            let park = || {
                let left_ns = until_ns.saturating_sub(net::monotonic_ns());
                thread::park_timeout(Duration::from_nanos(left_ns));
                left_ns > 0
            };
            if shared.leadership.acquire_or_park(&follower, park) {
                shared.drive(own.phase(), until_ns);
                own.phase().end_polling();
                self.release_leadership();
            }
            interruption.look(net::monotonic_ns());
        }
    }

    /// Before a call begins: takes what has come since somebody has last waited in the kernel, as a
    /// server may have left meanwhile, and the call would be sent on a connection that has ended.
    fn catch_up(&self) {
        let shared = &self.handle.shared;
        let looked_ns = shared.looked_ns.load(Ordering::Relaxed);
        let passed_ns = net::monotonic_ns().saturating_sub(looked_ns);
        if passed_ns < limits::SHARED_UNLOOKED.as_nanos() as u64 {
            return;
        }
        if shared.leadership.try_acquire() {
            shared.poll(&mut lock(&shared.poller), None, 0);
            self.release_leadership();
        }
    }

    /// After a future was counted: lets the pool's thread wait in the kernel, unless another one
    /// does.
    fn wake_reactor(&self) {
        if self.handle.shared.leadership.try_acquire() {
            self.release_leadership();
        }
    }

    /// After something was submitted for which nobody may wait.
    fn note_unattended(&self) {
        let is_unattended = &self.handle.shared.is_unattended;
        if !is_unattended.load(Ordering::SeqCst) && !is_unattended.swap(true, Ordering::SeqCst) {
            self.handle.reactor.unpark();
        }
    }

    /// Passes the leadership on to a thread that needs it.
    fn release_leadership(&self) {
        let shared = &self.handle.shared;
        if !shared.leadership.release() && shared.needs_reactor() {
            self.handle.reactor.unpark();
        }
    }
}

impl PoolHandle {
    fn close(&self, grace: Duration) {
        let grace_ns = u64::try_from(grace.as_nanos()).unwrap_or(u64::MAX);
        self.shared.submit(Submission::Close { grace_ns }, None);
        self.shared.is_closing.store(true, Ordering::SeqCst);
        self.reactor.unpark();
        self.shared.waker.wake();
    }
}

impl Drop for PoolHandle {
    fn drop(&mut self) {
        self.close(Duration::ZERO);
    }
}

impl SharedState {
    fn prepare(&self, call: &PoolCall<'_>, request: &[u8]) -> Arc<SharedCall> {
        let own = self.kept.pop();
        let own = own.unwrap_or_else(|| Arc::new(SharedCall::new()));
        own.prepare(call, request, net::monotonic_ns());
        own
    }

    /// Keeps a call whose result was taken for the next one.
    fn keep(&self, call: Arc<SharedCall>) {
        let mut state = lock(&call.state);
        state.request.clear();
        state.answer.clear();
        state.request.shrink_to(limits::SHARED_KEPT_CAPACITY_BYTES);
        state.answer.shrink_to(limits::SHARED_KEPT_CAPACITY_BYTES);
        drop(state);
        // One too many is freed.
        let _ = self.kept.push(call);
    }

    fn submit(&self, submission: Submission, own: Option<&CallPhase>) {
        with_turn(own, |turn| {
            self.combiner
                .submit(submission, |driver, queue| driver.turn(queue, turn));
        });
    }

    /// Leaves a submission for the leader, or works for all if there is no room for it.
    fn leave(&self, submission: Submission) {
        match self.combiner.leave(submission) {
            Err(submission) => self.submit(submission, None),
            Ok(()) if self.deferral.leave() => self.waker.wake(),
            Ok(()) => {}
        }
    }

    /// Locks the driver, runs `first`, and takes what was submitted meanwhile.
    fn with_driver<R>(
        &self,
        own: Option<&CallPhase>,
        first: impl FnOnce(&mut PoolDriver) -> R,
    ) -> R {
        with_turn(own, |turn| {
            self.combiner.with(
                |driver, _| first(driver),
                |driver, queue| driver.turn(queue, turn),
            )
        })
    }

    /// As the leader: waits in the kernel for all until the call has ended, or until `until_ns`;
    /// `u64::MAX`: for ever.
    fn drive(&self, own: &CallPhase, until_ns: u64) {
        if own.begin_polling() {
            return;
        }
        let mut poller = lock(&self.poller);
        while !own.is_done() {
            let left_ns = match until_ns {
                u64::MAX => u64::MAX,
                until_ns => until_ns.saturating_sub(net::monotonic_ns()),
            };
            if left_ns == 0 {
                return;
            }
            self.poll(&mut poller, Some(own), left_ns);
        }
    }

    /// As the leader: waits in the kernel once, not longer than `longest_ns`, and does what follows
    /// from it.
    fn poll(&self, poller: &mut OutgoingPoller, own: Option<&CallPhase>, longest_ns: u64) {
        let wait_ns = self.with_driver(own, PoolDriver::begin_waiting);
        if own.is_some_and(CallPhase::is_done) {
            return;
        }
        let mut wait_ns = wait_ns.unwrap_or(u64::MAX).min(longest_ns);
        if !self.deferral.begin_waiting() {
            wait_ns = wait_ns.min(limits::SHARED_LONGEST_LEFT.as_nanos() as u64);
        }
        let waited = poller.wait((wait_ns != u64::MAX).then_some(wait_ns));
        debug_assert!(waited.is_ok(), "the epoll set is valid: {waited:?}");
        self.deferral.end_waiting();
        self.looked_ns.store(net::monotonic_ns(), Ordering::Relaxed);
        with_turn(own, |turn| {
            let turn = RefCell::new(turn);
            self.combiner.with(
                |driver, queue| {
                    let turn = &mut **turn.borrow_mut();
                    driver.take_events(poller, turn);
                    driver.turn(queue, turn);
                },
                |driver, queue| driver.turn(queue, &mut turn.borrow_mut()),
            );
        });
    }

    fn needs_reactor(&self) -> bool {
        self.futures.load(Ordering::SeqCst) > 0 || self.is_closing.load(Ordering::SeqCst)
    }
}

/// Combines, and wakes others once the combiner is unlocked.
fn with_turn<R>(own: Option<&CallPhase>, work: impl FnOnce(&mut DriverTurn<'_>) -> R) -> R {
    let mut turn = DriverTurn {
        own,
        // A pool that a thread local owns is closed when this one may be gone already.
        woken: WOKEN.try_with(Cell::take).unwrap_or_default(),
    };
    let result = work(&mut turn);
    for waiter in turn.woken.drain(..) {
        waiter.wake();
    }
    let _ = WOKEN.try_with(|woken| woken.set(turn.woken));
    result
}

/// A call is done only with a result.
fn unreachable_result() -> Result<(), CallError> {
    Err(CallError::ConnectionLost {
        reason: "a fault of the pool: a call has ended without a result".into(),
    })
}

impl fmt::Debug for SharedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedPool")
            .field("futures", &self.handle.shared.futures)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_is_kept_has_small_buffers() {
        let address = "127.0.0.1:1".parse().expect("an address");
        let pool = SharedPool::new(&[address], LocalPoolOptions::default(), 1).expect("sound");
        let shared = &pool.handle.shared;
        for _ in 0..2 {
            let call = shared.prepare(&PoolCall::default(), &[0; 1 << 20]);
            lock(&call.state).answer = vec![0; 1 << 20];
            shared.keep(call);
            let kept = shared.kept.pop().expect("it was kept");
            let state = lock(&kept.state);
            let most = 2 * limits::SHARED_KEPT_CAPACITY_BYTES;
            assert!(state.request.capacity() <= most && state.answer.capacity() <= most);
        }
    }
}
