//! Calls with many messages.

use std::marker::PhantomData;
use std::time::{Duration, Instant};

use api::rpc::Rpc;
use protobuf::{DecodeError, Message};
use wire::grpc::Metadata;

use super::call::{append, encoded, path_of};
use super::reply::Reply;
use crate::channel::{CallOptions, Channel, ServerStreaming, StreamStep, Streaming};
use crate::error::{CallError, bad_answer};
use crate::limits;
use crate::shared_pool::PoolStream;

/// Calls with many messages of a method.
impl Channel {
    /// Calls a method that responds with any number of messages.
    ///
    /// # Errors
    /// If the call cannot begin.
    pub fn call_server_streaming<M: Rpc>(
        &mut self,
        request: &M::Request<'_>,
        options: &CallOptions<'_>,
    ) -> Result<Replies<M, ServerStreaming<'_>>, CallError> {
        let encode = |out: &mut Vec<u8>| append(request, out);
        let stream = self.server_streaming_with(&path_of::<M>(), encode, options)?;
        Ok(Replies::new(stream))
    }

    /// Calls a method to which any number of messages go.
    ///
    /// # Errors
    /// If the call cannot begin.
    pub fn call_streaming<M: Rpc>(
        &mut self,
        options: &CallOptions<'_>,
    ) -> Result<Exchange<'_, M>, CallError> {
        let stream = self.streaming(&path_of::<M>(), options)?;
        Ok(Exchange {
            stream,
            method: PhantomData,
        })
    }
}

/// Something that makes calls with one request and any number of responses.
pub trait OpenStream {
    /// Where the responses come from: a [`ReplySource`], or an [`AwaitedStream`].
    type Source<'s>
    where
        Self: 's;

    /// Begins a call.
    ///
    /// # Errors
    /// If it cannot begin.
    fn open_stream<M: Rpc>(
        &mut self,
        request: &M::Request<'_>,
        options: &CallOptions<'_>,
    ) -> Result<Replies<M, Self::Source<'_>>, CallError>;
}

impl OpenStream for Channel {
    type Source<'s> = ServerStreaming<'s>;

    fn open_stream<M: Rpc>(
        &mut self,
        request: &M::Request<'_>,
        options: &CallOptions<'_>,
    ) -> Result<Replies<M, ServerStreaming<'_>>, CallError> {
        self.call_server_streaming(request, options)
    }
}

/// Where responses come from, to a thread that waits for them.
pub trait ReplySource {
    /// Returns the next message; `None` when the call has ended with status OK.
    ///
    /// # Errors
    /// If it has ended in any other way.
    fn next_message(&mut self) -> Result<Option<Vec<u8>>, CallError>;

    /// Waits for the initial metadata. Empty if there are none; over a pool also if the call does
    /// not want them ([`wants_head`](CallOptions::wants_head)).
    ///
    /// # Errors
    /// If the call has failed before.
    fn initial_metadata(&mut self) -> Result<Metadata, CallError>;
}

impl ReplySource for ServerStreaming<'_> {
    fn next_message(&mut self) -> Result<Option<Vec<u8>>, CallError> {
        ServerStreaming::next_message(self)
    }

    fn initial_metadata(&mut self) -> Result<Metadata, CallError> {
        ServerStreaming::initial_metadata(self)
    }
}

impl ReplySource for PoolStream {
    fn next_message(&mut self) -> Result<Option<Vec<u8>>, CallError> {
        self.receive()
    }

    fn initial_metadata(&mut self) -> Result<Metadata, CallError> {
        self.receiver().receive_initial_metadata()
    }
}

/// Where responses come from, to a future that waits for them.
#[derive(Debug)]
pub struct AwaitedStream(PoolStream);

impl AwaitedStream {
    pub(super) fn new(stream: PoolStream) -> AwaitedStream {
        AwaitedStream(stream)
    }

    /// Resolves to the next message; `None` when the call has ended with status OK.
    ///
    /// # Errors
    /// If it has ended in any other way.
    pub async fn next_message(&mut self) -> Result<Option<Vec<u8>>, CallError> {
        self.0.receive_future().await
    }

    /// Resolves to the initial metadata, as [`ReplySource::initial_metadata`] returns them.
    ///
    /// # Errors
    /// If the call has failed before.
    pub async fn initial_metadata(&mut self) -> Result<Metadata, CallError> {
        self.0.receiver().receive_initial_metadata_future().await
    }
}

/// The responses of a call, in order. Dropped early: the call is cancelled.
#[derive(Debug)]
pub struct Replies<M, S> {
    pub(super) source: S,
    method: PhantomData<fn() -> M>,
}

impl<M: Rpc, S> Replies<M, S> {
    pub(super) fn new(source: S) -> Replies<M, S> {
        Replies {
            source,
            method: PhantomData,
        }
    }
}

impl<M: Rpc> Replies<M, ServerStreaming<'_>> {
    /// Gives the call up at another time from now on. The server still knows the first deadline.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.source.set_deadline(deadline);
    }
}

impl<M: Rpc, S: ReplySource> Replies<M, S> {
    /// Returns the next response; `None` when the call has ended with status OK.
    ///
    /// # Errors
    /// If it has ended in any other way, or the response is malformed.
    pub fn next_reply(&mut self) -> Result<Option<Reply<M>>, CallError> {
        self.source.next_message()?.map(Reply::decode).transpose()
    }

    /// Waits for the initial metadata, as [`ReplySource::initial_metadata`] returns them.
    ///
    /// # Errors
    /// If the call has failed before; [`Replies::next_reply`] returns the same.
    pub fn initial_metadata(&mut self) -> Result<Metadata, CallError> {
        self.source.initial_metadata()
    }
}

impl<M: Rpc> Replies<M, AwaitedStream> {
    /// Resolves to the next response; `None` when the call has ended with status OK. Dropped
    /// before: nothing is lost.
    ///
    /// # Errors
    /// If it has ended in any other way, or the response is malformed.
    pub async fn next_reply(&mut self) -> Result<Option<Reply<M>>, CallError> {
        let message = self.source.next_message().await?;
        message.map(Reply::decode).transpose()
    }

    /// Resolves to the initial metadata, as [`ReplySource::initial_metadata`] returns them.
    ///
    /// # Errors
    /// If the call has failed before; [`Replies::next_reply`] returns the same.
    pub async fn initial_metadata(&mut self) -> Result<Metadata, CallError> {
        self.source.initial_metadata().await
    }
}

impl<M: Rpc, S: ReplySource> Iterator for Replies<M, S> {
    type Item = Result<Reply<M>, CallError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_reply().transpose()
    }
}

/// A call that is under way, with messages both ways. Whoever sends must also look
/// ([`Exchange::poll`]): a server whose responses nobody takes stops taking requests. Dropped
/// early: the call is cancelled.
#[derive(Debug)]
pub struct Exchange<'c, M> {
    stream: Streaming<'c>,
    method: PhantomData<fn() -> M>,
}

impl<M: Rpc> Exchange<'_, M> {
    /// Returns whether little enough waits to be sent for a further request.
    pub fn can_send(&self) -> bool {
        self.stream.can_send()
    }

    /// Sends a request: what does not fit now goes out while the call is looked at.
    pub fn send(&mut self, request: &M::Request<'_>) {
        self.stream.send(&encoded(request));
    }

    /// The same for one of many: it goes out with others, at the latest when the call is looked at.
    pub fn send_with_others(&mut self, request: &M::Request<'_>) {
        self.stream.send_with_others(|out| request.encode(out));
    }

    /// Sets whether the requests from here on are compressed; only in a call that began with
    /// [`compress`](CallOptions::compress).
    pub fn set_compress(&mut self, compress: bool) {
        self.stream.set_compress(compress);
    }

    /// Sends what waits, and returns the initial metadata if they come within `wait`, or have come.
    ///
    /// # Errors
    /// If the call has failed before; [`Exchange::poll`] returns the same.
    pub fn poll_initial_metadata(&mut self, wait: Duration) -> Result<Option<Metadata>, CallError> {
        self.stream.poll_initial_metadata(wait)
    }

    /// Ends the client's side: no request follows.
    pub fn close_send(&mut self) {
        self.stream.close_send();
    }

    /// Sends what waits, and takes the next response if there is one within `wait`.
    ///
    /// # Errors
    /// If the call has ended in any other way than with status OK, its deadline has passed, or the
    /// response is malformed.
    pub fn poll(&mut self, wait: Duration) -> Result<StreamStep<Reply<M>>, CallError> {
        Ok(match self.stream.poll(wait)? {
            StreamStep::Message(bytes) => StreamStep::Message(Reply::decode(bytes)?),
            StreamStep::Nothing => StreamStep::Nothing,
            StreamStep::Ended => StreamStep::Ended,
        })
    }

    /// The same; `take` looks at the response where it lies, or at why it cannot be decoded. The
    /// elements of its lists have not been looked into.
    ///
    /// # Errors
    /// If the call has ended in any other way than with status OK, or its deadline has passed.
    pub fn poll_with<T>(
        &mut self,
        wait: Duration,
        take: impl FnOnce(Result<M::Response<'_>, DecodeError>) -> T,
    ) -> Result<StreamStep<T>, CallError> {
        (self.stream).poll_with(wait, |bytes| take(M::Response::decode(bytes)))
    }

    /// Waits for the next response; `None` when the call has ended with status OK.
    ///
    /// # Errors
    /// As [`Exchange::poll`].
    pub fn next_reply(&mut self) -> Result<Option<Reply<M>>, CallError> {
        loop {
            match self.poll(limits::LONGEST_WAIT)? {
                StreamStep::Message(reply) => return Ok(Some(reply)),
                StreamStep::Ended => return Ok(None),
                StreamStep::Nothing => {}
            }
        }
    }

    /// Sends what waits until a further request may be sent. Returns the response, if one comes
    /// before.
    ///
    /// # Errors
    /// As [`Exchange::poll`]; and if the server ends the call before it has all requests.
    pub(super) fn wait_until_writable(&mut self) -> Result<Option<Reply<M>>, CallError> {
        while !self.can_send() {
            match self.poll(limits::LONGEST_WAIT)? {
                StreamStep::Message(reply) => return Ok(Some(reply)),
                StreamStep::Nothing => {}
                StreamStep::Ended => {
                    let reason = "the server ended the call before it had all of it";
                    return Err(bad_answer(reason));
                }
            }
        }
        Ok(None)
    }
}
