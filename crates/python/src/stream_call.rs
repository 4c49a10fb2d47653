//! A call that streams in one or both directions.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake};

use client::{
    CallError, Code, Metadata, PoolStream, PoolStreamControl, PoolStreamReceiver, PoolStreamSender,
    SendError, Status,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::channel::ChannelCore;
use crate::metadata::to_python;
use crate::outcome::CallOutcome;
use crate::presence::{
    OfProcess, Signals, detached, detached_if_large, is_main_thread, outside_of_children,
};
use crate::ready_queue::ReadyQueue;
use crate::sync::lock;
use crate::waiting::Event;

/// A streaming call that has begun. Dropping it cancels it.
#[pyclass(frozen, module = "pelton_grpc._native")]
pub(crate) struct StreamCall {
    state: StreamCallState,
    compresses: bool,
    ended: Arc<Event>,
    /// Its initial metadata have come, or will not come.
    headed: Arc<Event>,
    /// Which of the two was asked for.
    is_watched: Mutex<WatchedEvents>,
}

#[derive(Default)]
struct WatchedEvents {
    end: bool,
    head: bool,
}

enum StreamCallState {
    /// The channel, which looks after the names of its servers as long as there are calls.
    Running(#[allow(dead_code)] Arc<ChannelCore>, OfProcess<StreamSides>),
    /// It was refused before it began.
    Refused(CallOutcome),
}

/// Each side is locked while a thread waits in it, without the lock of the interpreter.
struct StreamSides {
    sender: Mutex<PoolStreamSender>,
    receiver: Mutex<PoolStreamReceiver>,
    control: PoolStreamControl,
}

/// What a thread has received.
enum ReceivedNext {
    Message(Vec<u8>),
    End(Result<Status, CallError>),
}

impl StreamCall {
    pub(crate) fn begun(
        core: Arc<ChannelCore>,
        stream: PoolStream,
        compresses: bool,
    ) -> StreamCall {
        let control = stream.control();
        let (sender, receiver) = stream.split();
        let sides = StreamSides {
            sender: Mutex::new(sender),
            receiver: Mutex::new(receiver),
            control,
        };
        StreamCall {
            state: StreamCallState::Running(core, OfProcess::new(sides)),
            compresses,
            ended: Arc::default(),
            headed: Arc::default(),
            is_watched: Mutex::default(),
        }
    }

    pub(crate) fn ended(outcome: CallOutcome) -> StreamCall {
        let happened: Arc<Event> = Arc::default();
        Arc::clone(&happened).wake();
        StreamCall {
            state: StreamCallState::Refused(outcome),
            compresses: false,
            ended: Arc::clone(&happened),
            headed: happened,
            is_watched: Mutex::default(),
        }
    }

    /// Returns what runs, or how the call has ended if nothing does.
    fn sides(&self) -> Result<&StreamSides, CallOutcome> {
        match &self.state {
            StreamCallState::Refused(outcome) => Err(outcome.clone()),
            StreamCallState::Running(_, sides) => sides.get().ok_or_else(CallOutcome::of_parent),
        }
    }

    fn outcome(&self) -> Option<CallOutcome> {
        match self.sides() {
            Err(outcome) => Some(outcome),
            Ok(sides) => Some(outcome_of(sides, sides.control.end()?)),
        }
    }

    /// Returns the initial metadata, if they have come, or will not come.
    fn head(&self) -> Option<Metadata> {
        match self.sides() {
            Err(_) => Some(Metadata::new()),
            Ok(sides) => Some(sides.control.initial_metadata()?.unwrap_or_default()),
        }
    }

    /// Lets the event happen when the call ends.
    fn watch(&self) {
        let was_watched = std::mem::replace(&mut lock(&self.is_watched).end, true);
        if let (false, Ok(sides)) = (was_watched, self.sides()) {
            sides.control.notify_end(self.ended.waker());
        }
    }

    /// Lets the event happen when the initial metadata come.
    fn watch_head(&self) {
        let was_watched = std::mem::replace(&mut lock(&self.is_watched).head, true);
        if let (false, Ok(sides)) = (was_watched, self.sides()) {
            sides.control.notify_head(self.headed.waker());
        }
    }
}

fn outcome_of(sides: &StreamSides, end: Result<Status, CallError>) -> CallOutcome {
    let initial = match sides.control.initial_metadata() {
        Some(Ok(initial)) => initial,
        _ => Metadata::new(),
    };
    match end {
        Ok(status) => CallOutcome::of_status(&status, initial),
        Err(error) => CallOutcome::failed(&error, initial),
    }
}

/// `None`: this is the child of a fork by now.
fn receive(sides: &StreamSides, signals: Option<&mut Signals>) -> Option<ReceivedNext> {
    let mut receiver = lock(&sides.receiver);
    let mut message = Vec::new();
    let received = match signals {
        None => receiver.receive_into(&mut message),
        Some(signals) => outside_of_children(|| {
            let look = &mut || signals.look_in_pool();
            receiver.receive_unless(&mut message, Some(look))
        })?,
    };
    Some(match received {
        Ok(true) => ReceivedNext::Message(message),
        Ok(false) => ReceivedNext::End(Ok(receiver.status().unwrap_or(Status::OK))),
        Err(error) => ReceivedNext::End(Err(error)),
    })
}

#[pymethods]
impl StreamCall {
    /// Waits for the next message, and returns it, or how the call has ended.
    fn receive<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let outcome = match self.sides() {
            Err(outcome) => outcome,
            Ok(sides) => {
                let mut signals = is_main_thread(py).then(Signals::new);
                let received = detached(py, || receive(sides, signals.as_mut()));
                signals.map_or(Ok(()), Signals::check)?;
                match received {
                    None => CallOutcome::of_exit(),
                    Some(None) => CallOutcome::of_parent(),
                    Some(Some(ReceivedNext::Message(message))) => {
                        return Ok(PyBytes::new(py, &message).into_any());
                    }
                    Some(Some(ReceivedNext::End(end))) => outcome_of(sides, end),
                }
            }
        };
        Ok(Bound::new(py, outcome)?.into_any())
    }

    /// Sends a message, and waits while the server takes nothing. Returns why it is not sent, if it
    /// is not: an empty text if the call has ended.
    fn send(&self, py: Python<'_>, message: &[u8]) -> Option<String> {
        let Ok(sides) = self.sides() else {
            return Some(String::new());
        };
        match detached(py, || lock(&sides.sender).send(message)) {
            Some(Ok(())) => None,
            Some(Err(error @ SendError::TooLarge { .. })) => Some(error.to_string()),
            Some(Err(_)) | None => Some(String::new()),
        }
    }

    /// Sends no more.
    fn finish(&self, py: Python<'_>) {
        if let Ok(sides) = self.sides() {
            detached(py, || lock(&sides.sender).finish());
        }
    }

    /// Gives the call up. Returns whether it was running.
    fn cancel(&self) -> bool {
        match self.sides() {
            Ok(sides) if sides.control.end().is_none() => {
                sides.control.cancel();
                true
            }
            _ => false,
        }
    }

    /// Waits until the call has ended, whether or not its messages were received, and returns how;
    /// `None` after `timeout_s`.
    #[pyo3(signature = (timeout_s=None))]
    fn end(&self, py: Python<'_>, timeout_s: Option<f64>) -> PyResult<Option<CallOutcome>> {
        if let Some(outcome) = self.outcome() {
            return Ok(Some(outcome));
        }
        if timeout_s.is_some_and(|timeout_s| timeout_s <= 0.0) {
            return Ok(None);
        }
        self.watch();
        let has_ended = self.ended.wait(py, timeout_s)?;
        Ok(match self.outcome() {
            Some(outcome) => Some(outcome),
            None if has_ended || timeout_s.is_none() => Some(CallOutcome::of_exit()),
            None => None,
        })
    }

    /// Returns the next message, or how the call has ended; `None` if there is nothing: the queue
    /// is told when there is.
    fn poll_receive<'py>(
        &self,
        py: Python<'py>,
        queue: &ReadyQueue,
        name: u64,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let outcome = match self.sides() {
            Err(outcome) => outcome,
            Ok(sides) => {
                let waker = queue.state().waker(name);
                let mut receiver = lock(&sides.receiver);
                match receiver.poll_receive(&mut Context::from_waker(&waker)) {
                    Poll::Pending => return Ok(None),
                    Poll::Ready(Ok(Some(message))) => {
                        return Ok(Some(PyBytes::new(py, &message).into_any()));
                    }
                    Poll::Ready(Ok(None)) => {
                        let status = receiver.status().unwrap_or(Status::OK);
                        outcome_of(sides, Ok(status))
                    }
                    Poll::Ready(Err(error)) => outcome_of(sides, Err(error)),
                }
            }
        };
        Ok(Some(Bound::new(py, outcome)?.into_any()))
    }

    /// Returns the initial metadata, if they have come, as [`StreamCall::poll_receive`] does.
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

    /// Sends a message, and returns whether it was sent; `None` if there is no room: the queue is
    /// told when there is. `False`: the call has ended.
    ///
    /// # Errors
    /// `ValueError` if the message is too large.
    fn poll_send(
        &self,
        py: Python<'_>,
        message: &[u8],
        queue: &ReadyQueue,
        name: u64,
    ) -> PyResult<Option<bool>> {
        let Ok(sides) = self.sides() else {
            return Ok(Some(false));
        };
        let waker = queue.state().waker(name);
        let sent = detached_if_large(py, message.len(), self.compresses, || {
            let mut sender = lock(&sides.sender);
            sender.poll_send(&mut Context::from_waker(&waker), message)
        });
        match sent {
            Some(Poll::Pending) => Ok(None),
            Some(Poll::Ready(Ok(()))) => Ok(Some(true)),
            Some(Poll::Ready(Err(error @ SendError::TooLarge { .. }))) => {
                Err(PyValueError::new_err(error.to_string()))
            }
            Some(Poll::Ready(Err(_))) | None => Ok(Some(false)),
        }
    }

    /// Waits for the initial metadata, and returns them; nothing if the call fails without any.
    fn initial_metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(initial) = self.head() {
            return to_python(py, &initial);
        }
        self.watch_head();
        self.headed.wait(py, None)?;
        to_python(py, &self.head().unwrap_or_default())
    }

    /// Tells a queue when the call has ended; at once if it has.
    fn notify(&self, queue: &ReadyQueue, name: u64) {
        self.ended.notify(queue, name);
        self.watch();
    }
}

impl CallOutcome {
    /// Of a call whose only request is not taken.
    pub(crate) fn of_send_error(error: SendError) -> CallOutcome {
        CallOutcome::local(Code::ResourceExhausted, &error.to_string())
    }
}
