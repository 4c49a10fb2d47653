//! One call of a shared pool, between its caller and who works for it.

use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::thread::Thread;

use wire::grpc::Metadata;

use super::protocol::{CallPhase, Sitter};
use super::sync::lock;
use crate::error::CallError;
use crate::pool::{PoolCall, PoolCallKey};

/// Who is to be woken when a call has ended.
#[derive(Debug)]
pub(super) enum Waiter {
    Thread(Thread),
    Task(Waker),
}

impl Waiter {
    pub(super) fn wake(self) {
        match self {
            Waiter::Thread(thread) => thread.unpark(),
            Waiter::Task(waker) => waker.wake(),
        }
    }
}

/// What a call begins with, how it ended, and who waits for it. Used again by later calls.
#[derive(Debug)]
pub(super) struct SharedCall {
    pub(super) phase: CallPhase,
    pub(super) state: Mutex<SharedCallState>,
}

#[derive(Debug, Default)]
pub(super) struct SharedCallState {
    path: String,
    metadata: Option<Metadata>,
    /// The rest of what it begins with; the borrowed parts are those above.
    start: PoolCall<'static>,
    pub(super) begun_ns: u64,
    pub(super) request: Vec<u8>,
    pub(super) answer: Vec<u8>,
    pub(super) messages: u64,
    pub(super) result: Option<Result<(), CallError>>,
    pub(super) waiter: Option<Waiter>,
    /// While it is in the engine: its tag and its name.
    pub(super) key: Option<(u32, PoolCallKey)>,
}

impl SharedCall {
    pub(super) fn new() -> SharedCall {
        SharedCall {
            phase: CallPhase::new(),
            state: Mutex::new(SharedCallState::default()),
        }
    }

    /// Makes it a new call.
    pub(super) fn prepare(&self, call: &PoolCall<'_>, request: &[u8], now_ns: u64) {
        self.phase.reset();
        let mut state = lock(&self.state);
        state.path.clear();
        state.path.push_str(call.path);
        state.metadata = call.metadata.cloned();
        state.start = PoolCall {
            path: "",
            metadata: None,
            ..*call
        };
        state.begun_ns = now_ns;
        state.request.clear();
        state.request.extend_from_slice(request);
        state.answer.clear();
        (state.messages, state.key, state.result) = (0, None, None);
        state.waiter = None;
    }
}

impl SharedCallState {
    /// What the engine begins with. The time that it took to get there counts.
    pub(super) fn start(&self, now_ns: u64) -> PoolCall<'_> {
        let passed_ns = now_ns.saturating_sub(self.begun_ns);
        PoolCall {
            path: &self.path,
            metadata: self.metadata.as_ref(),
            timeout_ns: self
                .start
                .timeout_ns
                .map(|timeout_ns| timeout_ns.saturating_sub(passed_ns)),
            ..self.start
        }
    }

    /// Takes how it ended: a unary call has one message.
    pub(super) fn take_result(&mut self) -> Option<Result<(), CallError>> {
        let wrong = |reason: &str| {
            Err(CallError::BadAnswer {
                reason: reason.into(),
            })
        };
        Some(match (self.result.take()?, self.messages) {
            (Ok(()), 0) => wrong("it has no message"),
            (Ok(()), 1) => Ok(()),
            (Ok(()), _) => wrong("it has more than one message"),
            (error, _) => error,
        })
    }
}

impl Sitter for SharedCall {
    fn phase(&self) -> &CallPhase {
        &self.phase
    }

    fn unpark(&self) {
        if let Some(Waiter::Thread(thread)) = &lock(&self.state).waiter {
            thread.unpark();
        }
    }
}

/// What callers submit.
#[derive(Debug)]
pub(super) enum Submission {
    Begin(Arc<SharedCall>),
    Cancel(Arc<SharedCall>),
    Close { grace_ns: u64 },
}
