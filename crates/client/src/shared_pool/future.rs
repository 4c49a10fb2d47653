//! A call that a future waits for.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use wire::grpc::Metadata;

use super::call::SharedCall;
use super::submission::Submission;
use super::sync::lock;
use super::turn::TurnWaiter;
use super::{SharedPool, unreachable_result};
use crate::channel::CallInfo;
use crate::error::CallError;

/// A unary call that runs: resolves to its answer. Dropping it cancels the call.
#[must_use = "a call whose future is dropped is cancelled"]
pub struct UnaryFuture {
    pool: SharedPool,
    /// Until the result was taken.
    call: Option<Arc<SharedCall>>,
    info: CallInfo,
}

impl UnaryFuture {
    pub(super) fn new(pool: SharedPool, call: Arc<SharedCall>) -> UnaryFuture {
        UnaryFuture {
            pool,
            call: Some(call),
            info: CallInfo::default(),
        }
    }

    /// Returns the metadata of the answer, once there is a result, if the call has
    /// [`wants_head`](crate::PoolCall::wants_head).
    pub fn info(&self) -> &CallInfo {
        &self.info
    }

    /// Returns the initial metadata of the answer, or `None` as long as they may come. They are
    /// empty when it is certain that there are none, and without
    /// [`wants_head`](crate::PoolCall::wants_head).
    pub fn initial_metadata(&self) -> Option<Metadata> {
        let Some(call) = &self.call else {
            return Some(self.info.initial_metadata.clone());
        };
        let state = lock(&call.state);
        let is_certain = state.has_head || state.result.is_some() || !state.start.wants_head();
        is_certain.then(|| state.info.initial_metadata.clone())
    }

    /// Wakes a task when the initial metadata have come, or it is certain that they do not; at once
    /// if so. Replaces an earlier task.
    pub fn notify_head(&self, waker: Waker) {
        if let Some(call) = &self.call {
            let mut state = lock(&call.state);
            if !state.has_head && state.result.is_none() {
                state.head_waker = Some(waker);
                return;
            }
        }
        waker.wake();
    }

    fn count_end(&self) {
        let shared = &self.pool.handle.shared;
        shared.futures.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Future for UnaryFuture {
    type Output = Result<Vec<u8>, CallError>;

    /// After it has returned a result, returns an error.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(call) = self.call.as_ref() else {
            return Poll::Ready(unreachable_result().map(|()| Vec::new()));
        };
        let mut state = lock(&call.state);
        let Some(result) = state.take_result() else {
            match &mut state.waiter {
                Some(TurnWaiter::Task(waker)) => waker.clone_from(context.waker()),
                other => *other = Some(TurnWaiter::Task(context.waker().clone())),
            }
            return Poll::Pending;
        };
        let answer = std::mem::take(&mut state.answer);
        let info = std::mem::take(&mut state.info);
        drop(state);
        self.info = info;
        self.count_end();
        if let Some(call) = self.call.take() {
            self.pool.handle.shared.keep(call);
        }
        Poll::Ready(result.map(|()| answer))
    }
}

impl Drop for UnaryFuture {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            // What has ended meanwhile has no name in the engine any more.
            let shared = &self.pool.handle.shared;
            shared.submit(Submission::Cancel(call), None);
            self.count_end();
        }
    }
}

impl std::fmt::Debug for UnaryFuture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UnaryFuture").finish_non_exhaustive()
    }
}
