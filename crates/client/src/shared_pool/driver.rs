//! What the combining thread does for all.

use std::sync::Arc;
use std::task::Waker;

use net::{OutgoingPoller, OutgoingWaker};

use super::call::SharedCall;
use super::call_table::{CallTableEntry, SharedCallTable};
use super::stream::{SharedStream, cancelled};
use super::submission::Submission;
use super::sync::{SubmissionQueue, lock};
use super::turn::{DriverTurn, TurnWaiter};
use crate::error::{CallError, MORE_MESSAGES, bad_answer};
use crate::limits;
use crate::local_pool::LocalPool;
use crate::pool::{PoolEvent, PoolStatistics};

/// The pool, and the calls that are in it.
#[derive(Debug)]
pub(super) struct PoolDriver {
    pool: LocalPool,
    calls: SharedCallTable,
    /// Until when the thread in the kernel waits, at most.
    waits_until_ns: u64,
    /// It waits as in an idle pool: whoever begins a call is to have its place.
    waits_idle: bool,
    waker: OutgoingWaker,
    /// Streams that take messages again; kept, so that nothing is allocated anew.
    writable: Vec<Arc<SharedStream>>,
    /// Unary calls to which a second message came; kept as well.
    surplus: Vec<Arc<SharedCall>>,
    /// Woken when a connection could not be made, or was lost.
    failure_waker: Option<Waker>,
}

impl PoolDriver {
    pub(super) fn new(pool: LocalPool, waker: OutgoingWaker) -> PoolDriver {
        PoolDriver {
            pool,
            calls: SharedCallTable::default(),
            waits_until_ns: 0,
            waits_idle: false,
            waker,
            writable: Vec::new(),
            surplus: Vec::new(),
            failure_waker: None,
        }
    }

    pub(super) fn set_failure_waker(&mut self, waker: Waker) {
        self.failure_waker = Some(waker);
    }

    /// Takes all that was submitted, writes it, and does what is due.
    pub(super) fn turn(&mut self, queue: &SubmissionQueue<Submission>, turn: &mut DriverTurn<'_>) {
        let now_ns = net::monotonic_ns();
        // Bounded, so that what was taken is written though others keep submitting.
        for _ in 0..limits::SHARED_SUBMISSIONS {
            match queue.pop() {
                Some(Submission::Begin(call)) => self.begin(call, now_ns, turn),
                Some(Submission::Cancel(call)) => self.cancel(&call, now_ns),
                Some(Submission::Abort(call)) => self.abort(&call, now_ns, turn),
                Some(Submission::BeginStream(stream)) => self.begin_stream(&stream, now_ns, turn),
                Some(Submission::Send(stream)) => self.pump(&stream, turn),
                Some(Submission::Release(stream)) => self.release(&stream),
                Some(Submission::CancelStream(stream)) => self.cancel_stream(&stream, now_ns, turn),
                Some(Submission::Endpoints(it)) => {
                    self.pool.set_endpoints(it.address, it.found, now_ns);
                }
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
        let ends_idleness = self.waits_idle && !self.pool.engine().is_idle();
        if self.pool.engine().is_busy() || due_ns < self.waits_until_ns || ends_idleness {
            (self.waits_until_ns, self.waits_idle) = (0, false);
            self.waker.wake();
        }
    }

    /// Takes what the poller has waited for.
    pub(super) fn take_events(&mut self, poller: &mut OutgoingPoller, turn: &mut DriverTurn<'_>) {
        (self.waits_until_ns, self.waits_idle) = (0, false);
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
        self.waits_idle = engine.is_idle();
        (until_ns != u64::MAX).then(|| until_ns.saturating_sub(now_ns))
    }

    pub(super) fn next_deadline_ns(&mut self) -> Option<u64> {
        self.pool.engine().next_deadline_ns()
    }

    /// Returns whether something is under way that no answer of a server may follow from.
    pub(super) fn has_unsent(&mut self) -> bool {
        self.pool.engine().has_unsent()
    }

    pub(super) fn is_idle(&mut self) -> bool {
        self.pool.engine().is_idle()
    }

    pub(super) fn is_closed(&mut self) -> bool {
        self.pool.engine().is_closed()
    }

    pub(super) fn statistics(&mut self) -> PoolStatistics {
        let statistics = self.pool.engine().statistics(net::monotonic_ns());
        debug_assert_eq!(
            self.calls.len(),
            statistics.in_flight
                + statistics.waiting_for_permit
                + statistics.waiting_for_connection
                + statistics.waiting_for_stream
                + statistics.waiting_for_pause,
            "each call of the engine has a tag, and no other"
        );
        statistics
    }

    fn begin(&mut self, call: Arc<SharedCall>, now_ns: u64, turn: &mut DriverTurn<'_>) {
        let tag = self.calls.insert(CallTableEntry::Unary(Arc::clone(&call)));
        let mut state = lock(&call.state);
        let begun =
            self.pool
                .engine()
                .begin(u64::from(tag), &state.start.call(now_ns), now_ns, |out| {
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

    /// Ends a call whose caller waits for that. It may have ended meanwhile.
    fn abort(&mut self, call: &Arc<SharedCall>, now_ns: u64, turn: &mut DriverTurn<'_>) {
        if lock(&call.state).key.is_some() {
            self.cancel(call, now_ns);
            finish(call, Err(cancelled()), &self.waker, turn);
        }
    }

    fn begin_stream(&mut self, stream: &Arc<SharedStream>, now_ns: u64, turn: &mut DriverTurn<'_>) {
        let tag = self
            .calls
            .insert(CallTableEntry::Stream(Arc::clone(stream)));
        let mut state = lock(&stream.state);
        let call = state.start.call(now_ns);
        let engine = self.pool.engine();
        match engine.begin_streaming(u64::from(tag), &call, now_ns) {
            Ok(key) => {
                state.key = Some((tag, key));
                drop(state);
                self.pump(stream, turn);
            }
            Err(error) => {
                drop(state);
                self.calls.remove(u64::from(tag));
                stream.end(Err(error), &self.waker, turn);
            }
        }
    }

    fn pump(&mut self, stream: &SharedStream, turn: &mut DriverTurn<'_>) {
        stream.pump(self.pool.engine(), &self.waker, turn);
    }

    fn release(&mut self, stream: &SharedStream) {
        let key = lock(&stream.state).key;
        if let Some((_, key)) = key {
            self.pool.engine().release(key);
        }
    }

    fn cancel_stream(&mut self, stream: &SharedStream, now_ns: u64, turn: &mut DriverTurn<'_>) {
        let key = lock(&stream.state).key;
        if let Some((tag, key)) = key {
            self.calls.remove(u64::from(tag));
            self.pool.engine().cancel(key, now_ns);
            stream.end(Err(cancelled()), &self.waker, turn);
        }
    }

    fn receive(&mut self, now_ns: u64, turn: &mut DriverTurn<'_>) {
        self.report(now_ns, turn);
        let mut writable = std::mem::take(&mut self.writable);
        for stream in writable.drain(..) {
            self.pump(&stream, turn);
        }
        self.writable = writable;
        let mut surplus = std::mem::take(&mut self.surplus);
        for call in surplus.drain(..) {
            self.end_surplus(&call, now_ns, turn);
        }
        self.surplus = surplus;
        if self.pool.take_failures() {
            let waker = self.failure_waker.clone();
            turn.woken.extend(waker.map(TurnWaiter::Task));
        }
    }

    /// A second message came to a unary call: it has no answer any more, and the server need not go
    /// on.
    fn end_surplus(&mut self, call: &Arc<SharedCall>, now_ns: u64, turn: &mut DriverTurn<'_>) {
        // It may have ended behind that message.
        if lock(&call.state).key.is_some() {
            self.cancel(call, now_ns);
            let error = bad_answer(MORE_MESSAGES);
            finish(call, Err(error), &self.waker, turn);
        }
    }

    fn report(&mut self, now_ns: u64, turn: &mut DriverTurn<'_>) {
        let (calls, waker) = (&mut self.calls, &self.waker);
        let (writable, surplus) = (&mut self.writable, &mut self.surplus);
        self.pool.receive(now_ns, &mut |event| match event {
            PoolEvent::Message {
                tag,
                bytes,
                compressed,
                ..
            } => match calls.get(tag) {
                Some(CallTableEntry::Unary(call)) => {
                    let mut state = lock(&call.state);
                    state.messages += 1;
                    if state.messages == 2 {
                        surplus.push(Arc::clone(call));
                    }
                    state.info.message_was_compressed = compressed;
                    state.answer.clear();
                    state.answer.extend_from_slice(bytes);
                }
                Some(CallTableEntry::Stream(stream)) => {
                    stream.receive(bytes, compressed, waker, turn)
                }
                None => {}
            },
            PoolEvent::Ended { tag, result, .. } => match calls.remove(tag) {
                Some(CallTableEntry::Unary(call)) => {
                    if let Ok(status) = result {
                        lock(&call.state).receive_trailers(status);
                    }
                    finish(&call, result.map(|_| ()), waker, turn);
                }
                Some(CallTableEntry::Stream(stream)) => stream.end(result.cloned(), waker, turn),
                None => {}
            },
            PoolEvent::Head { tag, metadata, .. } => match calls.get(tag) {
                Some(CallTableEntry::Unary(call)) => {
                    let waiter = lock(&call.state).receive_head(metadata);
                    turn.woken.extend(waiter.map(TurnWaiter::Task));
                }
                Some(CallTableEntry::Stream(stream)) => stream.receive_head(metadata, waker, turn),
                None => {}
            },
            PoolEvent::Writable { tag, .. } => {
                if let Some(CallTableEntry::Stream(stream)) = calls.get(tag) {
                    writable.push(Arc::clone(stream));
                }
            }
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
    let head_waker = state.head_waker.take();
    turn.woken.extend(head_waker.map(TurnWaiter::Task));
    // Under the lock: a future that takes the result makes it free for the next call.
    turn.complete(&call.phase, waiter, waker);
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::local_pool::LocalPoolOptions;
    use crate::pool::PoolCall;

    const SECOND: u64 = 1_000_000_000;

    fn submit(driver: &mut PoolDriver, timeout_ns: u64) {
        let queue = SubmissionQueue::new(1);
        let call = PoolCall {
            path: "/t.T/Silent",
            timeout_ns: Some(timeout_ns),
            ..PoolCall::default()
        };
        let own = Arc::new(SharedCall::new());
        own.prepare(&call, b"x", net::monotonic_ns());
        queue.push(Submission::Begin(own)).expect("there is room");
        let mut turn = DriverTurn {
            own: None,
            woken: Vec::new(),
        };
        driver.turn(&queue, &mut turn);
    }

    /// A server that says nothing, so that nothing but time ends the wait in the kernel.
    #[test]
    fn a_call_with_an_earlier_deadline_than_the_wait_in_the_kernel_ends_it() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let address = listener.local_addr().expect("it has one").to_string();
        let address = address.parse().expect("it is one");
        let options = LocalPoolOptions::default();
        let pool = LocalPool::new(&[address], options, 1, net::monotonic_ns()).expect("sound");
        let waker = pool.poller().expect("there is an epoll set").waker();
        let mut driver = PoolDriver::new(pool, waker);
        submit(&mut driver, 3_600 * SECOND);
        for _ in 0..2 {
            let is_kept = (0..1_000).any(|_| {
                driver.begin_waiting();
                let until_ns = driver.waits_until_ns;
                submit(&mut driver, 3_600 * SECOND);
                // Timers that are due soon end it as well.
                let is_long = until_ns > net::monotonic_ns() + SECOND / 2;
                let is_kept = is_long && driver.waits_until_ns == until_ns;
                thread::sleep(Duration::from_millis(if is_kept { 0 } else { 10 }));
                is_kept
            });
            assert!(is_kept, "a later deadline does not end it");
            submit(&mut driver, SECOND / 100);
            assert_eq!(driver.waits_until_ns, 0, "an earlier one ends it");
        }
    }
}
