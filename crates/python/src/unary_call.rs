//! A unary call that runs while its caller goes on.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use client::{CallError, Code, UnaryFuture};
use pyo3::prelude::*;

use crate::channel::ChannelCore;
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
}

enum UnaryState {
    Running(Arc<ChannelCore>, OfProcess<UnaryFuture>),
    Ended(Arc<CallOutcome>),
}

impl UnaryCall {
    pub(crate) fn begun(core: Arc<ChannelCore>, mut future: UnaryFuture) -> UnaryCall {
        let ended: Arc<Event> = Arc::default();
        let waker = ended.waker();
        let polled = Pin::new(&mut future).poll(&mut Context::from_waker(&waker));
        if let Poll::Ready(result) = polled {
            return UnaryCall::ended(outcome_of(&core, &future, result));
        }
        UnaryCall {
            state: Mutex::new(UnaryState::Running(core, OfProcess::new(future))),
            ended,
        }
    }

    pub(crate) fn ended(outcome: CallOutcome) -> UnaryCall {
        let ended: Arc<Event> = Arc::default();
        Arc::clone(&ended).wake();
        UnaryCall {
            state: Mutex::new(UnaryState::Ended(Arc::new(outcome))),
            ended,
        }
    }

    /// Returns how it has ended, if it has.
    fn outcome(&self) -> Option<Arc<CallOutcome>> {
        let mut state = lock(&self.state);
        let outcome = match &mut *state {
            UnaryState::Ended(outcome) => return Some(Arc::clone(outcome)),
            UnaryState::Running(core, future) => match future.get_mut() {
                None => CallOutcome::of_parent(),
                Some(_) if !self.ended.has_happened() => return None,
                Some(future) => {
                    let mut context = Context::from_waker(Waker::noop());
                    match Pin::new(&mut *future).poll(&mut context) {
                        Poll::Ready(result) => outcome_of(core, future, result),
                        Poll::Pending => return None,
                    }
                }
            },
        };
        let outcome = Arc::new(outcome);
        *state = UnaryState::Ended(Arc::clone(&outcome));
        Some(outcome)
    }
}

fn outcome_of(
    core: &ChannelCore,
    future: &UnaryFuture,
    result: Result<Vec<u8>, CallError>,
) -> CallOutcome {
    let info = future.info().clone();
    match result {
        Ok(response) => {
            CallOutcome::succeeded(response, info.initial_metadata, info.trailing_metadata)
        }
        Err(error) => CallOutcome::failed(&error, core.is_closed(), info.initial_metadata),
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
        *lock(&self.state) = UnaryState::Ended(Arc::new(cancelled));
        Arc::clone(&self.ended).wake();
        true
    }

    /// Tells a queue when it has ended; at once if it has.
    fn notify(&self, queue: &ReadyQueue, name: u64) {
        self.ended.notify(queue, name);
    }
}
