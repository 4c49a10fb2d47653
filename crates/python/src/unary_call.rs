//! A unary call that runs while its caller goes on.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use client::{CallError, Code, Metadata, UnaryFuture};
use pyo3::prelude::*;

use crate::channel::ChannelCore;
use crate::metadata::to_python;
use crate::outcome::CallOutcome;
use crate::presence::OfProcess;
use crate::ready_queue::ReadyQueue;
use crate::sync::lock;
use crate::waiting::Event;

/// A unary call that has begun. Dropping it cancels it.
#[pyclass(frozen, module = "pelton_grpc._native")]
pub(crate) struct UnaryCall {
    /// Locked only with the lock of the interpreter.
    state: Mutex<UnaryState>,
    ended: Arc<Event>,
    /// Its initial metadata have come, or will not come.
    headed: Arc<Event>,
}

enum UnaryState {
    /// The channel, which looks after the names of its servers as long as there are calls.
    Running(#[allow(dead_code)] Arc<ChannelCore>, OfProcess<UnaryFuture>),
    Ended(Arc<CallOutcome>),
}

impl UnaryCall {
    pub(crate) fn begun(core: Arc<ChannelCore>, mut future: UnaryFuture) -> UnaryCall {
        let ended: Arc<Event> = Arc::default();
        let waker = ended.waker();
        let polled = Pin::new(&mut future).poll(&mut Context::from_waker(&waker));
        if let Poll::Ready(result) = polled {
            return UnaryCall::ended(outcome_of(&future, result));
        }
        UnaryCall {
            state: Mutex::new(UnaryState::Running(core, OfProcess::new(future))),
            ended,
            headed: Arc::default(),
        }
    }

    pub(crate) fn ended(outcome: CallOutcome) -> UnaryCall {
        let happened: Arc<Event> = Arc::default();
        Arc::clone(&happened).wake();
        UnaryCall {
            state: Mutex::new(UnaryState::Ended(Arc::new(outcome))),
            ended: Arc::clone(&happened),
            headed: happened,
        }
    }

    /// Returns how it has ended, if it has.
    fn outcome(&self) -> Option<Arc<CallOutcome>> {
        let mut state = lock(&self.state);
        let outcome = match &mut *state {
            UnaryState::Ended(outcome) => return Some(Arc::clone(outcome)),
            UnaryState::Running(_, future) => match future.get_mut() {
                None => CallOutcome::of_parent(),
                Some(_) if !self.ended.has_happened() => return None,
                Some(future) => {
                    let mut context = Context::from_waker(Waker::noop());
                    match Pin::new(&mut *future).poll(&mut context) {
                        Poll::Ready(result) => outcome_of(future, result),
                        Poll::Pending => return None,
                    }
                }
            },
        };
        let outcome = Arc::new(outcome);
        *state = UnaryState::Ended(Arc::clone(&outcome));
        Some(outcome)
    }

    /// Returns its initial metadata, if they have come, or will not come.
    fn head(&self) -> Option<Metadata> {
        match &*lock(&self.state) {
            UnaryState::Ended(outcome) => Some(outcome.initial().clone()),
            UnaryState::Running(_, future) => match future.get() {
                None => Some(Metadata::new()),
                Some(future) => future.initial_metadata(),
            },
        }
    }

    /// Lets the event happen when they come.
    fn watch_head(&self) {
        let state = lock(&self.state);
        if let UnaryState::Running(_, future) = &*state
            && let Some(future) = future.get()
        {
            future.notify_head(self.headed.waker());
        }
    }
}

fn outcome_of(future: &UnaryFuture, result: Result<Vec<u8>, CallError>) -> CallOutcome {
    let info = future.info().clone();
    match result {
        Ok(response) => {
            CallOutcome::succeeded(response, info.initial_metadata, info.trailing_metadata)
        }
        Err(error) => CallOutcome::failed(&error, info.initial_metadata),
    }
}

#[pymethods]
impl UnaryCall {
    /// Waits for its end, and returns how it has ended; `None` after `timeout_s`.
    #[pyo3(signature = (timeout_s=None))]
    fn result(&self, py: Python<'_>, timeout_s: Option<f64>) -> PyResult<Option<CallOutcome>> {
        if let Some(outcome) = self.outcome() {
            return Ok(Some((*outcome).clone()));
        }
        if timeout_s.is_some_and(|timeout_s| timeout_s <= 0.0) {
            return Ok(None);
        }
        let has_ended = self.ended.wait(py, timeout_s)?;
        Ok(match self.outcome() {
            Some(outcome) => Some((*outcome).clone()),
            None if has_ended || timeout_s.is_none() => Some(CallOutcome::of_exit()),
            None => None,
        })
    }

    fn is_done(&self) -> bool {
        self.outcome().is_some()
    }

    /// Gives it up. Returns whether it was running.
    fn cancel(&self) -> bool {
        if self.outcome().is_some() {
            return false;
        }
        let cancelled = CallOutcome::local(Code::Cancelled, "Locally cancelled by application!");
        let cancelled = cancelled.with_initial(self.head().unwrap_or_default());
        *lock(&self.state) = UnaryState::Ended(Arc::new(cancelled));
        Arc::clone(&self.ended).wake();
        Arc::clone(&self.headed).wake();
        true
    }

    /// Waits for the initial metadata, and returns them; nothing if the call ends without any.
    fn initial_metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(initial) = self.head() {
            return to_python(py, &initial);
        }
        self.watch_head();
        self.headed.wait(py, None)?;
        to_python(py, &self.head().unwrap_or_default())
    }

    /// Returns the initial metadata, if they have come, or will not come; `None`: the queue is told
    /// when that is so.
    fn poll_initial_metadata<'py>(
        &self,
        py: Python<'py>,
        queue: &ReadyQueue,
        name: u64,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        if let Some(initial) = self.head() {
            return to_python(py, &initial).map(Some);
        }
        self.headed.notify(queue, name);
        self.watch_head();
        Ok(None)
    }

    /// Tells a queue when it has ended; at once if it has.
    fn notify(&self, queue: &ReadyQueue, name: u64) {
        self.ended.notify(queue, name);
    }
}
