//! Streams of batches over a shared pool: a side for who sends, and one for who takes the outcomes.

use std::future::Future;

use api::keyvalue::{Operation, PipeRequest};
use api::rpc::keyvalue::Pipe as PipeMethod;

use super::pipe::PipeOutcome;
use crate::error::CallError;
use crate::pool::SendError;
use crate::shared_pool::{PoolStreamReceiver, PoolStreamSender, SharedPool};
use crate::typed::call::{encoded, path_of};
use crate::typed::shared::pool_call;
use crate::typed::{Call, Futures, Reply};

impl<'a> Call<'a, PipeMethod, &'a mut SharedPool> {
    /// Opens the stream, and returns its two sides, for two threads. Its time is that of all its
    /// batches. Why it cannot begin, the receiver returns.
    pub fn send(self) -> (PipeSender<'a>, PipeReceiver) {
        let (pool, request, options) = self.into_parts();
        let path = path_of::<PipeMethod>();
        let stream = pool.stream(&pool_call::<PipeMethod>(&path, &request, &options));
        let (sender, receiver) = stream.split();
        (PipeSender { sender, request }, PipeReceiver { receiver })
    }
}

impl<'a> Call<'a, PipeMethod, &'a mut Futures> {
    /// Opens the stream, and returns its two sides, for two tasks. Its time is that of all its
    /// batches. Why it cannot begin, the receiver returns.
    pub fn send(self) -> (PipeSender<'a>, PipeReceiver) {
        let (futures, request, options) = self.into_parts();
        let call = Call::<PipeMethod, _>::new(futures.pool(), request);
        call.options(options).send()
    }
}

/// The side of a [`Pipe`](super::Pipe) that sends. Dropped before [`PipeSender::finish`]: the call
/// is cancelled, and the last batches may not take effect.
#[derive(Debug)]
pub struct PipeSender<'a> {
    sender: PoolStreamSender,
    request: PipeRequest<'a>,
}

impl PipeSender<'_> {
    /// Sends a batch. Waits while as many bytes as may wait on the stream do: until the outcomes
    /// are taken, the server stops reading. A batch without operations is none: it asks for an
    /// outcome when all before it is done.
    ///
    /// # Errors
    /// If the batch is larger than the limit, or the call has ended, which the receiver returns the
    /// reason of.
    pub fn send(&mut self, operations: &[Operation<'_>]) -> Result<(), SendError> {
        let batch = self.batch(operations);
        self.sender.send(&batch)
    }

    /// Sends a batch: the future of [`PipeSender::send`]. It is sent, whole, when it is ready, and
    /// not at all if it is dropped before.
    pub fn send_future(
        &mut self,
        operations: &[Operation<'_>],
    ) -> impl Future<Output = Result<(), SendError>> {
        let batch = self.batch(operations);
        async move { self.sender.send_future(&batch).await }
    }

    /// Ends the sending: no batch follows.
    pub fn finish(&mut self) {
        self.sender.finish();
    }

    fn batch(&self, operations: &[Operation<'_>]) -> Vec<u8> {
        encoded(&PipeRequest {
            operations: operations.into(),
            ..self.request
        })
    }
}

/// The side of a [`Pipe`](super::Pipe) that takes outcomes. Dropped before the server has ended the
/// call: the call is cancelled, and the last batches may not take effect.
#[derive(Debug)]
pub struct PipeReceiver {
    receiver: PoolStreamReceiver,
}

impl PipeReceiver {
    /// Waits for the next outcome; `None`: all batches are done and the stream has ended.
    ///
    /// # Errors
    /// If the stream has ended in any other way, or the response is malformed.
    pub fn next_outcome(&mut self) -> Result<Option<PipeOutcome>, CallError> {
        outcome_of(self.receiver.receive()?)
    }

    /// The future of [`PipeReceiver::next_outcome`]. Nothing is lost if it is dropped.
    pub async fn next_outcome_future(&mut self) -> Result<Option<PipeOutcome>, CallError> {
        outcome_of(self.receiver.receive_future().await?)
    }
}

fn outcome_of(response: Option<Vec<u8>>) -> Result<Option<PipeOutcome>, CallError> {
    let reply = response.map(Reply::decode).transpose()?;
    Ok(reply.as_ref().map(PipeOutcome::of))
}
