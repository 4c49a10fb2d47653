//! One call of a shared pool, between its caller and who works for it.

use std::sync::Mutex;
use std::task::Waker;

use wire::grpc::{Metadata, Status};

use super::protocol::{CallFollower, CallPhase};
use super::sync::lock;
use super::turn::TurnWaiter;
use crate::channel::CallInfo;
use crate::error::{CallError, only_message};
use crate::pool::{PoolCall, PoolCallKey};

/// What a call begins with, how it ended, and who waits for it. Used again by later calls.
#[derive(Debug)]
pub(super) struct SharedCall {
    pub(super) phase: CallPhase,
    pub(super) state: Mutex<SharedCallState>,
}

/// What a call begins with, owned.
#[derive(Debug, Default)]
pub(super) struct SharedCallStart {
    path: String,
    metadata: Option<Metadata>,
    /// The rest; the borrowed parts are those above.
    rest: PoolCall<'static>,
    begun_ns: u64,
}

impl SharedCallStart {
    pub(super) fn set(&mut self, call: &PoolCall<'_>, now_ns: u64) {
        self.path.clear();
        self.path.push_str(call.path);
        self.metadata = call.metadata.cloned();
        self.rest = PoolCall {
            path: "",
            metadata: None,
            ..*call
        };
        self.begun_ns = now_ns;
    }

    pub(super) fn wants_head(&self) -> bool {
        self.rest.wants_head
    }

    /// What the engine begins with. The time that it took to get there counts.
    pub(super) fn call(&self, now_ns: u64) -> PoolCall<'_> {
        let passed_ns = now_ns.saturating_sub(self.begun_ns);
        PoolCall {
            path: &self.path,
            metadata: self.metadata.as_ref(),
            timeout_ns: self
                .rest
                .timeout_ns
                .map(|timeout_ns| timeout_ns.saturating_sub(passed_ns)),
            ..self.rest
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct SharedCallState {
    pub(super) start: SharedCallStart,
    pub(super) request: Vec<u8>,
    pub(super) answer: Vec<u8>,
    pub(super) messages: u64,
    /// Of a call that wants the head of its answer: its metadata.
    pub(super) info: CallInfo,
    /// They have come.
    pub(super) has_head: bool,
    /// Who waits for them.
    pub(super) head_waker: Option<Waker>,
    pub(super) result: Option<Result<(), CallError>>,
    pub(super) waiter: Option<TurnWaiter>,
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
        state.start.set(call, now_ns);
        state.request.clear();
        state.request.extend_from_slice(request);
        state.answer.clear();
        (state.messages, state.key, state.result) = (0, None, None);
        (state.waiter, state.info) = (None, CallInfo::default());
        (state.has_head, state.head_waker) = (false, None);
    }
}

impl SharedCallState {
    /// The answer has begun. Returns who waited for that.
    pub(super) fn receive_head(&mut self, metadata: &Metadata) -> Option<Waker> {
        self.info.initial_metadata = metadata.clone();
        self.has_head = true;
        self.head_waker.take()
    }

    /// The server has ended the call with OK.
    pub(super) fn receive_trailers(&mut self, status: &Status) {
        if let (true, Some(metadata)) = (self.start.wants_head(), status.metadata()) {
            self.info.trailing_metadata = metadata.clone();
        }
    }

    /// Takes how it ended: a unary call has one message.
    pub(super) fn take_result(&mut self) -> Option<Result<(), CallError>> {
        let has = |count| (self.messages >= count).then_some(());
        let (first, second) = (has(1), has(2));
        let result = self.result.take()?;
        Some(result.and_then(|()| only_message(first, second)))
    }
}

impl CallFollower for SharedCall {
    fn phase(&self) -> &CallPhase {
        &self.phase
    }

    fn unpark(&self) {
        if let Some(TurnWaiter::Thread(thread)) = &lock(&self.state).waiter {
            thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_before_the_engine_sees_a_call_counts_for_its_deadline() {
        let mut start = SharedCallStart::default();
        for (timeout_ns, passed_ns, left_ns) in [
            (None, 70, None),
            (Some(100), 0, Some(100)),
            (Some(100), 70, Some(30)),
            (Some(100), 100, Some(0)),
            (Some(100), 1_000, Some(0)),
        ] {
            let call = PoolCall {
                path: "/a.B/C",
                timeout_ns,
                is_repeatable: true,
                ..PoolCall::default()
            };
            start.set(&call, 5_000);
            let begun = start.call(5_000 + passed_ns);
            assert_eq!(begun.timeout_ns, left_ns, "{timeout_ns:?} {passed_ns}");
            assert_eq!((begun.path, begun.is_repeatable), ("/a.B/C", true));
        }
        start.set(&PoolCall::default(), 5_000);
        assert_eq!(start.call(9_000).timeout_ns, None);
    }

    /// It is used again, and metadata prove who calls.
    #[test]
    fn a_call_begins_with_nothing_of_the_one_before() {
        let own = SharedCall::new();
        let mut metadata = Metadata::new();
        let pushed = metadata.push_received(b"authorization", b"Bearer one");
        pushed.expect("it is metadata");
        let first = PoolCall {
            path: "/a.B/C",
            metadata: Some(&metadata),
            timeout_ns: Some(7),
            is_repeatable: true,
            ..PoolCall::default()
        };
        for _ in 0..2 {
            own.prepare(&first, b"a request", 0);
            own.phase.finish();
            assert!(lock(&own.state).start.call(0).metadata.is_some());
            let next = PoolCall {
                path: "/a.B/D",
                ..PoolCall::default()
            };
            own.prepare(&next, b"", 0);
            assert!(!own.phase.is_done());
            let state = lock(&own.state);
            let begun = state.start.call(0);
            assert!(begun.metadata.is_none() && begun.timeout_ns.is_none());
            assert_eq!((begun.path, begun.is_repeatable), ("/a.B/D", false));
            assert!(state.request.is_empty() && state.answer.is_empty());
        }
    }
}
