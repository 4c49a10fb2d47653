//! Streams of batches.

use std::time::Duration;

use api::keyvalue::{Operation, PipeAnswers, PipeRequest};
use api::rpc::keyvalue::Pipe as PipeMethod;
use wire::grpc::Status;

use super::batch::{BatchOutcome, status_of};
use crate::channel::{Channel, StreamStep};
use crate::error::CallError;
use crate::typed::{Call, Exchange, Reply};

impl<O> Call<'_, PipeMethod, O> {
    /// Leaves out what went well, and what it read: an outcome comes for batches in which something
    /// failed, and now and then one that says up to where all is done.
    pub fn failures_only(mut self) -> Self {
        self.request.answers = PipeAnswers::FailuresOnly.number();
        self
    }
}

impl<'a> Call<'a, PipeMethod, &'a mut Channel> {
    /// Opens the stream. Its time is that of all its batches.
    ///
    /// # Errors
    /// If the call cannot begin.
    pub fn send(self) -> Result<Pipe<'a>, CallError> {
        let (channel, request, options) = self.into_parts();
        Ok(Pipe {
            exchange: channel.call_streaming::<PipeMethod>(&options)?,
            request,
        })
    }
}

/// A stream of batches: they take effect in the order in which they are sent, each sees those
/// before it, and their outcomes come in the same order. Whoever sends must also look
/// ([`Pipe::poll`]). Dropped early: the call is cancelled, and the last batches may not take
/// effect.
#[derive(Debug)]
pub struct Pipe<'c> {
    exchange: Exchange<'c, PipeMethod>,
    request: PipeRequest<'c>,
}

impl Pipe<'_> {
    /// Returns whether little enough waits to be sent for a further batch. More may be sent, and
    /// takes memory here.
    pub fn can_send(&self) -> bool {
        self.exchange.can_send()
    }

    /// Sends a batch; it goes out with others, at the latest when the stream is looked at. A batch
    /// without operations is none: it asks for an outcome when all before it is done.
    pub fn send(&mut self, operations: &[Operation<'_>]) {
        let request = PipeRequest {
            operations: operations.into(),
            ..self.request
        };
        self.exchange.send_with_others(&request);
    }

    /// Ends the sending: no batch follows.
    pub fn close_send(&mut self) {
        self.exchange.close_send();
    }

    /// Sends what waits, and takes the next outcome if there is one within `wait`.
    ///
    /// # Errors
    /// If the stream has ended in any other way than with all batches done, or its time is over.
    pub fn poll(&mut self, wait: Duration) -> Result<StreamStep<PipeOutcome>, CallError> {
        Ok(match self.exchange.poll(wait)? {
            StreamStep::Message(reply) => StreamStep::Message(PipeOutcome::of(&reply)),
            StreamStep::Nothing => StreamStep::Nothing,
            StreamStep::Ended => StreamStep::Ended,
        })
    }

    /// Waits for the next outcome; `None`: all batches are done and the stream has ended. To be
    /// called behind [`Pipe::close_send`], or where an outcome is due.
    ///
    /// # Errors
    /// As [`Pipe::poll`].
    pub fn next_outcome(&mut self) -> Result<Option<PipeOutcome>, CallError> {
        let reply = self.exchange.next_reply()?;
        Ok(reply.as_ref().map(PipeOutcome::of))
    }
}

/// What a Pipe reports.
#[derive(Clone, Debug)]
pub struct PipeOutcome {
    /// So many batches are done, in the order in which they were sent.
    pub done: u64,
    /// If it is about one batch: its number, counted from 1.
    pub batch_number: Option<u64>,
    /// What became of it.
    pub batch: Option<BatchOutcome>,
    /// With failures only: the index of the operation of each of the batch's results.
    pub result_indexes: Vec<u32>,
    /// The batch was refused as a whole, with nothing applied; those behind it go on.
    pub refused: Option<Status>,
}

impl PipeOutcome {
    pub(super) fn of(reply: &Reply<PipeMethod>) -> PipeOutcome {
        let pipe = reply.message();
        PipeOutcome {
            done: pipe.done,
            batch_number: (pipe.batch_number != 0).then_some(pipe.batch_number),
            batch: pipe.batch.as_ref().map(BatchOutcome::of),
            // They were decoded when the response came.
            result_indexes: pipe.result_indexes.iter().flatten().collect(),
            refused: pipe.failure.as_ref().map(status_of),
        }
    }
}
