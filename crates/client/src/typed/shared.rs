//! Calls over a [`SharedPool`]: from threads that wait, and as futures.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use api::rpc::{Repetition, Rpc};

use super::call::{MakeCall, TypedMethod, encoded, path_of};
use super::reply::Reply;
use super::stream::{AwaitedStream, OpenStream, Replies};
use crate::channel::CallOptions;
use crate::error::CallError;
use crate::pool::{PoolCall, SendError};
use crate::shared_pool::{PoolStream, SharedPool, UnaryFuture};

/// Waits until the call has ended. A call that is harmless to repeat is made again after a lost
/// connection too.
impl MakeCall for SharedPool {
    type Begun<M: TypedMethod> = Result<M::Outcome, CallError>;

    fn make_call<M: TypedMethod>(
        &mut self,
        request: &M::Request<'_>,
        options: &CallOptions<'_>,
    ) -> Result<M::Outcome, CallError> {
        self.call::<M>(request, options).map(M::outcome)
    }
}

/// Calls with the messages of a method, as they are on the wire.
impl SharedPool {
    /// Calls a unary method, waits for its response, and returns it. A call that is harmless to
    /// repeat is made again after a lost connection too.
    ///
    /// # Errors
    /// If the call ends with another status than OK, or without one, or its response is malformed.
    pub fn call<M: Rpc>(
        &self,
        request: &M::Request<'_>,
        options: &CallOptions<'_>,
    ) -> Result<Reply<M>, CallError> {
        let path = path_of::<M>();
        let response = self.unary(&pool_call::<M>(&path, request, options), &encoded(request))?;
        Reply::decode(response)
    }

    /// The same as a future of the response, which has begun when it returns. Dropping it cancels
    /// the call.
    pub fn call_future<M: Rpc>(
        &self,
        request: &M::Request<'_>,
        options: &CallOptions<'_>,
    ) -> impl Future<Output = Result<Reply<M>, CallError>> + use<M> {
        let path = path_of::<M>();
        let call = pool_call::<M>(&path, request, options);
        let response = self.unary_future(&call, &encoded(request));
        async move { Reply::decode(response.await?) }
    }
}

/// Makes calls over a [`SharedPool`] as futures, which any executor can poll.
///
/// ```no_run
/// use client::typed::{Futures, KeyValue};
/// use client::{LocalPoolOptions, SharedPool};
///
/// # async fn read() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = SharedPool::new(&["127.0.0.1:1978".parse()?], LocalPoolOptions::default(), 1)?;
/// let mut futures = Futures::new(&pool);
/// let mut kv = KeyValue::new(&mut futures);
/// let (one, two) = (kv.get(b"one").send(), kv.get(b"two").send());
/// println!("{:?} {:?}", one.await?, two.await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Futures {
    pool: SharedPool,
}

impl Futures {
    /// Returns what makes calls over this pool.
    pub fn new(pool: &SharedPool) -> Futures {
        Futures { pool: pool.clone() }
    }

    pub(super) fn pool(&mut self) -> &mut SharedPool {
        &mut self.pool
    }
}

/// The call has begun when it returns. A call that is harmless to repeat is made again after a lost
/// connection too.
impl MakeCall for Futures {
    type Begun<M: TypedMethod> = CallFuture<M>;

    fn make_call<M: TypedMethod>(
        &mut self,
        request: &M::Request<'_>,
        options: &CallOptions<'_>,
    ) -> CallFuture<M> {
        let path = path_of::<M>();
        let call = pool_call::<M>(&path, request, options);
        CallFuture {
            response: self.pool.unary_future(&call, &encoded(request)),
            method: PhantomData,
        }
    }
}

/// A call that runs: resolves to its outcome. Dropping it cancels the call.
#[must_use = "a call whose future is dropped is cancelled"]
pub struct CallFuture<M> {
    response: UnaryFuture,
    method: PhantomData<fn() -> M>,
}

impl<M: TypedMethod> Future for CallFuture<M> {
    type Output = Result<M::Outcome, CallError>;

    /// After it has returned a result, returns an error.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let response = Pin::new(&mut self.response).poll(context);
        response.map(|response| Reply::decode(response?).map(M::outcome))
    }
}

impl<M> fmt::Debug for CallFuture<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallFuture").finish_non_exhaustive()
    }
}

impl OpenStream for SharedPool {
    type Source<'s> = PoolStream;

    fn open_stream<M: Rpc>(
        &mut self,
        request: &M::Request<'_>,
        options: &CallOptions<'_>,
    ) -> Result<Replies<M, PoolStream>, CallError> {
        let path = path_of::<M>();
        let call = pool_call::<M>(&path, request, options);
        let stream = self.server_stream(&call, &encoded(request));
        stream.map(Replies::new).map_err(|error| not_sent(&error))
    }
}

/// The call has begun when it returns.
impl OpenStream for Futures {
    type Source<'s> = AwaitedStream;

    fn open_stream<M: Rpc>(
        &mut self,
        request: &M::Request<'_>,
        options: &CallOptions<'_>,
    ) -> Result<Replies<M, AwaitedStream>, CallError> {
        let Replies { source, .. } = self.pool.open_stream::<M>(request, options)?;
        Ok(Replies::new(AwaitedStream::new(source)))
    }
}

pub(super) fn not_sent(error: &SendError) -> CallError {
    match *error {
        SendError::TooLarge { bytes, limit_bytes } => {
            CallError::RequestTooLarge { bytes, limit_bytes }
        }
        SendError::NotWritable | SendError::Ended => CallError::BadRequest {
            reason: error.to_string(),
        },
    }
}

pub(super) fn pool_call<'a, M: Rpc>(
    path: &'a str,
    request: &M::Request<'_>,
    options: &CallOptions<'a>,
) -> PoolCall<'a> {
    let left = options
        .deadline
        .map(|deadline| deadline.saturating_duration_since(Instant::now()));
    PoolCall {
        path,
        metadata: options.metadata,
        timeout_ns: left.map(|left| u64::try_from(left.as_nanos()).unwrap_or(u64::MAX)),
        is_repeatable: M::repetition(request) == Repetition::Harmless,
        compress: options.compress,
        wants_head: options.wants_head,
        ..PoolCall::default()
    }
}
