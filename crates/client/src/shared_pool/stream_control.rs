//! What can be asked of a stream beside its two sides, from anywhere.

use std::sync::Arc;
use std::task::Waker;

use wire::grpc::{Metadata, Status};

use super::stream_handle::{PoolStream, SharedStreamHandle};
use super::sync::lock;
use crate::error::CallError;

/// Cancels a stream, and knows how it ended, whatever its sides wait for. It keeps neither of them
/// open.
#[derive(Clone, Debug)]
pub struct PoolStreamControl {
    handle: Arc<SharedStreamHandle>,
}

impl PoolStream {
    /// Returns what cancels the call, and knows how it ended, whatever the two sides do.
    pub fn control(&self) -> PoolStreamControl {
        let handle = Arc::clone(&self.receiver.handle);
        PoolStreamControl { handle }
    }
}

impl PoolStreamControl {
    /// Gives the call up: the server is told, and both sides learn of it. What came before can
    /// still be received.
    pub fn cancel(&self) {
        self.handle.cancel();
    }

    /// Returns how the call has ended, if it has. Messages that came before may not have been
    /// received yet.
    pub fn end(&self) -> Option<Result<Status, CallError>> {
        lock(&self.handle.stream.state).end.clone()
    }

    /// Returns the initial metadata of the answer, or `None` as long as they may come: as
    /// [`PoolStreamReceiver::receive_initial_metadata`](super::PoolStreamReceiver).
    pub fn initial_metadata(&self) -> Option<Result<Metadata, CallError>> {
        lock(&self.handle.stream.state).initial_metadata()
    }

    /// Wakes a task when the initial metadata have come, or it is certain that they do not; at once
    /// if so. From then on the pool's thread drives the stream. Replaces an earlier task.
    pub fn notify_head(&self, waker: Waker) {
        self.handle.attend();
        let mut state = lock(&self.handle.stream.state);
        match state.initial_metadata().is_some() {
            true => {
                drop(state);
                waker.wake();
            }
            false => state.head_waker = Some(waker),
        }
    }

    /// Wakes a task when the call has ended, whether or not its messages are received; at once if
    /// it has. From then on the pool's thread drives the stream. Replaces an earlier task.
    pub fn notify_end(&self, waker: Waker) {
        self.handle.attend();
        let mut state = lock(&self.handle.stream.state);
        match state.end.is_some() {
            true => {
                drop(state);
                waker.wake();
            }
            false => state.end_waker = Some(waker),
        }
    }
}
