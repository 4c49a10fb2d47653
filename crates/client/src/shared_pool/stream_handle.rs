//! A streaming call of a shared pool, from the side of its caller.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use wire::grpc::{Metadata, Status};

use super::SharedPool;
use super::interruption::Interruption;
use super::stream::{Received, Sent, SharedStream, StreamSide, StreamState, cancelled};
use super::submission::Submission;
use super::sync::lock;
use super::turn::check_may_wait;
use crate::error::{CallError, only_message};
use crate::pool::{PoolCall, SendError};

/// A call that streams in one or both directions. Any thread can wait for it, and any executor can
/// poll it.
///
/// Backpressure works both ways: sending waits while the server takes nothing, and the server waits
/// while nothing is received. Dropping it before the server has ended the call cancels the call.
///
/// ```no_run
/// use client::{LocalPoolOptions, PoolCall, SharedPool};
///
/// let pool = SharedPool::new(&["127.0.0.1:1978".parse()?], LocalPoolOptions::default(), 1)?;
/// let call = PoolCall {
///     path: "/grpc.testing.TestService/FullDuplexCall",
///     ..PoolCall::default()
/// };
/// let mut stream = pool.stream(&call);
/// stream.send(b"")?;
/// stream.finish();
/// while let Some(message) = stream.receive()? {
///     println!("{} bytes", message.len());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a stream that is dropped is cancelled"]
#[derive(Debug)]
pub struct PoolStream {
    sender: PoolStreamSender,
    pub(super) receiver: PoolStreamReceiver,
}

/// The caller's side of a [`PoolStream`]. Dropping it before [`PoolStreamSender::finish`] cancels
/// the call, so that half a request is not taken for a whole one.
#[derive(Debug)]
pub struct PoolStreamSender {
    handle: Arc<SharedStreamHandle>,
}

/// The server's side of a [`PoolStream`]. Dropping it before the server has ended the call cancels
/// the call.
#[derive(Debug)]
pub struct PoolStreamReceiver {
    pub(super) handle: Arc<SharedStreamHandle>,
    was_compressed: bool,
}

/// What both sides have in common.
pub(super) struct SharedStreamHandle {
    pool: SharedPool,
    pub(super) stream: Arc<SharedStream>,
}

impl SharedPool {
    /// Begins a call to which messages go by [`PoolStream::send`]. If it is refused at once,
    /// [`PoolStream::receive`] returns why. The server may send a bounded amount ahead of what is
    /// received, whatever [`PoolCall::holds_messages`] says.
    pub fn stream(&self, call: &PoolCall<'_>) -> PoolStream {
        self.begin_stream(call, |_| {})
    }

    /// Begins a call with a single request, to which the server may send any number of messages.
    ///
    /// # Errors
    /// If the request is larger than the limit.
    pub fn server_stream(
        &self,
        call: &PoolCall<'_>,
        request: &[u8],
    ) -> Result<PoolStream, SendError> {
        self.check_size(request)?;
        Ok(self.begin_stream(call, |state| {
            // There is room: it is the first.
            let _ = state.send(request);
            state.finish();
        }))
    }

    fn begin_stream(
        &self,
        call: &PoolCall<'_>,
        prepare: impl FnOnce(&mut StreamState),
    ) -> PoolStream {
        self.catch_up();
        let stream = Arc::new(SharedStream::new(call, net::monotonic_ns()));
        prepare(&mut lock(&stream.state));
        let submission = Submission::BeginStream(Arc::clone(&stream));
        self.handle.shared.submit(submission, None);
        self.note_unattended();
        let handle = Arc::new(SharedStreamHandle {
            pool: self.clone(),
            stream,
        });
        PoolStream {
            sender: PoolStreamSender {
                handle: Arc::clone(&handle),
            },
            receiver: PoolStreamReceiver {
                handle,
                was_compressed: false,
            },
        }
    }

    fn check_size(&self, message: &[u8]) -> Result<(), SendError> {
        let (bytes, limit_bytes) = (message.len(), self.handle.shared.max_request_bytes);
        match bytes <= limit_bytes {
            true => Ok(()),
            false => Err(SendError::TooLarge { bytes, limit_bytes }),
        }
    }
}

impl PoolStream {
    /// Returns both sides, for two threads or tasks.
    pub fn split(self) -> (PoolStreamSender, PoolStreamReceiver) {
        (self.sender, self.receiver)
    }

    /// As [`PoolStreamSender::send`].
    ///
    /// # Errors
    /// As [`PoolStreamSender::send`].
    pub fn send(&mut self, message: &[u8]) -> Result<(), SendError> {
        self.sender.send(message)
    }

    /// As [`PoolStreamSender::try_send`].
    ///
    /// # Errors
    /// As [`PoolStreamSender::try_send`].
    pub fn try_send(&mut self, message: &[u8]) -> Result<(), SendError> {
        self.sender.try_send(message)
    }

    /// As [`PoolStreamSender::send_future`].
    pub fn send_future(&mut self, message: &[u8]) -> impl Future<Output = Result<(), SendError>> {
        self.sender.send_future(message)
    }

    /// As [`PoolStreamSender::set_compress`].
    pub fn set_compress(&mut self, compress: bool) {
        self.sender.set_compress(compress);
    }

    /// As [`PoolStreamSender::finish`].
    pub fn finish(&mut self) {
        self.sender.finish();
    }

    /// As [`PoolStreamReceiver::receive`].
    ///
    /// # Errors
    /// As [`PoolStreamReceiver::receive`].
    pub fn receive(&mut self) -> Result<Option<Vec<u8>>, CallError> {
        self.receiver.receive()
    }

    /// As [`PoolStreamReceiver::receive_future`].
    pub fn receive_future(&mut self) -> impl Future<Output = Result<Option<Vec<u8>>, CallError>> {
        self.receiver.receive_future()
    }

    /// Sends no more, and returns the only message of the answer: the end of a call that streams to
    /// the server only.
    ///
    /// # Errors
    /// If the call ends with another status than OK, or without one, or has not one message.
    pub fn into_answer(mut self) -> Result<Vec<u8>, CallError> {
        self.finish();
        only_message(self.receive()?, self.receive()?)
    }

    /// The same for an executor.
    pub async fn into_answer_future(mut self) -> Result<Vec<u8>, CallError> {
        self.finish();
        let first = self.receive_future().await?;
        only_message(first, self.receive_future().await?)
    }

    /// As [`PoolStreamReceiver::cancel`].
    pub fn cancel(&mut self) {
        self.receiver.cancel();
    }

    /// The server's side.
    pub fn receiver(&mut self) -> &mut PoolStreamReceiver {
        &mut self.receiver
    }
}

impl PoolStreamSender {
    /// Sends a message. Waits while as many bytes as may wait on the stream do.
    ///
    /// # Errors
    /// If the message is larger than the limit, the call has ended, which
    /// [`PoolStreamReceiver::receive`] returns the reason of, or this side has.
    pub fn send(&mut self, message: &[u8]) -> Result<(), SendError> {
        self.handle.pool.check_size(message)?;
        let SharedStreamHandle { pool, stream } = &*self.handle;
        loop {
            {
                let mut state = lock(&stream.state);
                match state.send(message) {
                    Err(SendError::NotWritable) => stream.sending.begin_waiting(),
                    sent => {
                        drop(state);
                        return self.handle.submit(sent?);
                    }
                }
            }
            check_may_wait().map_err(|_| SendError::NotWritable)?;
            pool.wait(&stream.sending);
        }
    }

    /// Sends a message if there is room at once.
    ///
    /// # Errors
    /// As [`PoolStreamSender::send`]; [`SendError::NotWritable`] if there is no room.
    pub fn try_send(&mut self, message: &[u8]) -> Result<(), SendError> {
        self.handle.pool.check_size(message)?;
        let sent = lock(&self.handle.stream.state).send(message)?;
        self.handle.submit(sent)
    }

    /// Sends a message: the future of [`PoolStreamSender::send`]. The message is sent, whole, when
    /// it is ready, and not at all if it is dropped before.
    pub fn send_future(&mut self, message: &[u8]) -> impl Future<Output = Result<(), SendError>> {
        std::future::poll_fn(|context| self.poll_send(context, message))
    }

    /// Sends a message, or notes whom to wake when there is room.
    pub fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        message: &[u8],
    ) -> Poll<Result<(), SendError>> {
        self.handle.pool.check_size(message)?;
        self.handle.attend();
        let stream = &self.handle.stream;
        let mut state = lock(&stream.state);
        match state.send(message) {
            Err(SendError::NotWritable) => {
                stream.sending.set_waker(context.waker());
                Poll::Pending
            }
            sent => {
                drop(state);
                Poll::Ready(self.handle.submit(sent?))
            }
        }
    }

    /// Sets whether the messages from here on are compressed with gzip; only in a call that began
    /// with [`compress`](PoolCall::compress).
    pub fn set_compress(&mut self, compress: bool) {
        lock(&self.handle.stream.state).compresses = compress;
    }

    /// Sends no more. What was sent before goes out; the server's messages go on.
    pub fn finish(&mut self) {
        let finished = lock(&self.handle.stream.state).finish();
        // Never an error.
        let _ = self.handle.submit(finished);
    }
}

impl PoolStreamReceiver {
    /// Returns the next message, or `None` when the server has ended the call with OK. Waits for
    /// it.
    ///
    /// # Errors
    /// If the call ends with another status than OK, or without one: after the messages that came
    /// before, and from then on each time.
    pub fn receive(&mut self) -> Result<Option<Vec<u8>>, CallError> {
        let mut message = Vec::new();
        Ok(self.receive_into(&mut message)?.then_some(message))
    }

    /// The same, with the message in `message` instead of what was there, and `false` at the end.
    ///
    /// # Errors
    /// As [`PoolStreamReceiver::receive`].
    pub fn receive_into(&mut self, message: &mut Vec<u8>) -> Result<bool, CallError> {
        self.receive_unless(message, None)
    }

    /// The same for a caller that may be interrupted: as [`SharedPool::unary_with_info`].
    ///
    /// # Errors
    /// As [`PoolStreamReceiver::receive`].
    pub fn receive_unless(
        &mut self,
        message: &mut Vec<u8>,
        mut is_interrupted: Option<&mut dyn FnMut() -> bool>,
    ) -> Result<bool, CallError> {
        loop {
            if let Some(is_message) = self.try_receive(message, |side| side.begin_waiting())? {
                return Ok(is_message);
            }
            check_may_wait()?;
            let handle = &self.handle;
            handle.wait(&handle.stream.receiving, reborrowed(&mut is_interrupted));
        }
    }

    /// The future of [`PoolStreamReceiver::receive`]. No message is lost if it is dropped.
    pub fn receive_future(&mut self) -> impl Future<Output = Result<Option<Vec<u8>>, CallError>> {
        std::future::poll_fn(|context| self.poll_receive(context))
    }

    /// Returns the next message, or notes whom to wake when there is one.
    pub fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Vec<u8>>, CallError>> {
        self.handle.attend();
        let mut message = Vec::new();
        match self.try_receive(&mut message, |side| side.set_waker(context.waker()))? {
            Some(is_message) => Poll::Ready(Ok(is_message.then_some(message))),
            None => Poll::Pending,
        }
    }

    /// Returns whether there was a message, or `None` if it is to be waited for, after `wait`.
    fn try_receive(
        &mut self,
        message: &mut Vec<u8>,
        wait: impl FnOnce(&StreamSide),
    ) -> Result<Option<bool>, CallError> {
        let SharedStreamHandle { pool, stream } = &*self.handle;
        let mut state = lock(&stream.state);
        match state.receive(message)? {
            Received::Message {
                compressed,
                releases,
            } => {
                drop(state);
                self.was_compressed = compressed;
                if releases {
                    let submission = Submission::Release(Arc::clone(stream));
                    pool.handle.shared.submit(submission, None);
                    pool.note_unattended();
                }
                Ok(Some(true))
            }
            Received::End => Ok(Some(false)),
            Received::Nothing => {
                wait(&stream.receiving);
                Ok(None)
            }
        }
    }

    /// Returns whether the last message came compressed.
    pub fn message_was_compressed(&self) -> bool {
        self.was_compressed
    }

    /// Returns the initial metadata of the answer, if the call has
    /// [`wants_head`](PoolCall::wants_head) and they have come. They have when there is a message.
    pub fn initial_metadata(&self) -> Option<Metadata> {
        lock(&self.handle.stream.state).head.clone()
    }

    /// Waits for the initial metadata of the answer, which may come long before its first message.
    /// Empty without [`wants_head`](PoolCall::wants_head), and if the server sends only a status.
    ///
    /// # Errors
    /// If the call has failed before; [`PoolStreamReceiver::receive`] returns the same.
    pub fn receive_initial_metadata(&mut self) -> Result<Metadata, CallError> {
        self.receive_initial_metadata_unless(None)
    }

    /// The same for a caller that may be interrupted: as [`SharedPool::unary_with_info`].
    ///
    /// # Errors
    /// As [`PoolStreamReceiver::receive_initial_metadata`].
    pub fn receive_initial_metadata_unless(
        &mut self,
        mut is_interrupted: Option<&mut dyn FnMut() -> bool>,
    ) -> Result<Metadata, CallError> {
        let stream = &self.handle.stream;
        loop {
            {
                let state = lock(&stream.state);
                if let Some(result) = state.initial_metadata() {
                    return result;
                }
                stream.receiving.begin_waiting();
            }
            check_may_wait()?;
            let is_interrupted = reborrowed(&mut is_interrupted);
            self.handle.wait(&stream.receiving, is_interrupted);
        }
    }

    /// The future of [`PoolStreamReceiver::receive_initial_metadata`].
    pub fn receive_initial_metadata_future(
        &mut self,
    ) -> impl Future<Output = Result<Metadata, CallError>> {
        std::future::poll_fn(|context| {
            self.handle.attend();
            let stream = &self.handle.stream;
            let state = lock(&stream.state);
            match state.initial_metadata() {
                Some(result) => Poll::Ready(result),
                None => {
                    stream.receiving.set_waker(context.waker());
                    Poll::Pending
                }
            }
        })
    }

    /// Returns the status OK with its trailing metadata, if the server has ended the call so.
    pub fn status(&self) -> Option<Status> {
        let state = lock(&self.handle.stream.state);
        state.end.as_ref()?.as_ref().ok().cloned()
    }

    /// Gives the call up: the server is told. What came before can still be received; then the call
    /// has ended with CANCELLED.
    pub fn cancel(&mut self) {
        self.handle.cancel();
    }
}

/// Lends what was lent, for one turn of a loop.
fn reborrowed<'a>(
    lent: &'a mut Option<&mut dyn FnMut() -> bool>,
) -> Option<&'a mut dyn FnMut() -> bool> {
    match lent {
        Some(lent) => Some(&mut **lent),
        None => None,
    }
}

impl SharedStreamHandle {
    fn submit(&self, sent: Sent) -> Result<(), SendError> {
        if let Sent::Submit = sent {
            let submission = Submission::Send(Arc::clone(&self.stream));
            self.pool.handle.shared.submit(submission, None);
            self.pool.note_unattended();
        }
        Ok(())
    }

    /// Waits until what this side waits for has happened. Whoever is interrupted gives the call up.
    fn wait(&self, side: &Arc<StreamSide>, is_interrupted: Option<&mut dyn FnMut() -> bool>) {
        match is_interrupted {
            None => self.pool.wait(side),
            Some(is_interrupted) => {
                let give_up = || self.cancel();
                let mut interruption = Interruption::new(is_interrupted, &give_up);
                self.pool.wait_unless(side, &mut interruption);
            }
        }
    }

    /// A future waits: from now on the pool's thread drives the stream.
    pub(super) fn attend(&self) {
        let had_futures = std::mem::replace(&mut lock(&self.stream.state).has_futures, true);
        if !had_futures {
            let shared = &self.pool.handle.shared;
            shared.futures.fetch_add(1, Ordering::SeqCst);
            self.pool.wake_reactor();
        }
    }

    pub(super) fn cancel(&self) {
        let mut state = lock(&self.stream.state);
        if state.end.is_none() {
            state.end = Some(Err(cancelled()));
            drop(state);
            let submission = Submission::CancelStream(Arc::clone(&self.stream));
            self.pool.handle.shared.submit(submission, None);
            self.pool.note_unattended();
        }
    }
}

impl Drop for PoolStreamSender {
    fn drop(&mut self) {
        let is_finished = lock(&self.handle.stream.state).is_finished;
        if !is_finished {
            self.handle.cancel();
        }
    }
}

impl Drop for PoolStreamReceiver {
    fn drop(&mut self) {
        self.handle.cancel();
    }
}

impl Drop for SharedStreamHandle {
    fn drop(&mut self) {
        if lock(&self.stream.state).has_futures {
            let shared = &self.pool.handle.shared;
            shared.futures.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl std::fmt::Debug for SharedStreamHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamHandle").finish_non_exhaustive()
    }
}
