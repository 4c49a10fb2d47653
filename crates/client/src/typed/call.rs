//! Unary calls: what is asked, over what it is asked, and what came of it.

use std::time::{Duration, Instant};

use api::rpc::{Repetition, Rpc};
use protobuf::Message;

use super::reply::Reply;
use crate::channel::{CallOptions, Channel};
use crate::error::CallError;

/// A method whose response becomes a value of its own.
pub trait TypedMethod: Rpc + Sized {
    /// What a call ends with if it ends well.
    type Outcome;

    /// Returns what a response says.
    fn outcome(reply: Reply<Self>) -> Self::Outcome;
}

/// Something that makes unary calls.
pub trait MakeCall {
    /// What a call that was begun is: its result, or a future of it.
    type Begun<M: TypedMethod>;

    /// Calls a unary method.
    fn make_call<M: TypedMethod>(
        &mut self,
        request: &M::Request<'_>,
        options: &CallOptions<'_>,
    ) -> Self::Begun<M>;
}

/// Blocks until the call has ended.
impl MakeCall for Channel {
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
impl Channel {
    /// Calls a unary method and returns its response.
    ///
    /// # Errors
    /// If the call ends with another status than OK, or without one, or its response is malformed.
    pub fn call<M: Rpc>(
        &mut self,
        request: &M::Request<'_>,
        options: &CallOptions<'_>,
    ) -> Result<Reply<M>, CallError> {
        let encode = |out: &mut Vec<u8>| append(request, out);
        let response = self.unary_with(&path_of::<M>(), encode, options)?;
        Reply::decode(response)
    }
}

/// Returns the path of a method as it is sent.
pub(super) fn path_of<M: Rpc>() -> String {
    format!("/{}", M::METHOD.path)
}

/// Returns the bytes of a message.
pub(super) fn encoded<'a>(message: &impl Message<'a>) -> Vec<u8> {
    let mut bytes = Vec::new();
    append(message, &mut bytes);
    bytes
}

/// Appends the bytes of a message.
pub(super) fn append<'a>(message: &impl Message<'a>, out: &mut Vec<u8>) {
    out.reserve(message.encoded_len());
    message.encode(out);
}

/// A call that was not made yet: over `O`, or, where that is [`Unsent`], an operation of a list.
#[must_use = "a call is made by `send`"]
#[derive(Debug)]
pub struct Call<'a, M: Rpc, O> {
    pub(super) over: O,
    pub(super) request: M::Request<'a>,
    options: CallOptions<'a>,
}

/// In the place of what a call goes over: it is an operation of a Batch, a Transact or a Pipe.
#[derive(Clone, Copy, Debug)]
pub struct Unsent;

impl<'a, M: Rpc, O> Call<'a, M, O> {
    pub(super) fn new(over: O, request: M::Request<'a>) -> Call<'a, M, O> {
        Call {
            over,
            request,
            options: CallOptions::default(),
        }
    }

    /// Gives the call so long from now on. Without this it may take for ever.
    pub fn timeout(self, timeout: Duration) -> Self {
        let deadline = Instant::now().checked_add(timeout);
        let options = CallOptions {
            deadline,
            ..self.options
        };
        self.options(options)
    }

    /// Compresses the request with gzip, or each request of a stream. The server has to know it.
    pub fn gzip(self) -> Self {
        let options = CallOptions {
            compress: true,
            ..self.options
        };
        self.options(options)
    }

    /// Asks for the initial metadata of a stream, as
    /// [`wants_head`](CallOptions::wants_head) says.
    pub fn wants_head(self) -> Self {
        let options = CallOptions {
            wants_head: true,
            ..self.options
        };
        self.options(options)
    }

    /// Gives the call these options, in the place of all that were given before.
    pub fn options(mut self, options: CallOptions<'a>) -> Self {
        self.options = options;
        self
    }

    /// Returns what happens if the same call is made again after one whose outcome is not known.
    pub fn repetition(&self) -> Repetition {
        M::repetition(&self.request)
    }

    /// Makes it a call over something else.
    pub(super) fn over<P>(self, over: P) -> Call<'a, M, P> {
        Call {
            over,
            request: self.request,
            options: self.options,
        }
    }

    /// Takes the call apart: what it goes over, its request and its options.
    pub(super) fn into_parts(self) -> (O, M::Request<'a>, CallOptions<'a>) {
        (self.over, self.request, self.options)
    }
}

impl<M: TypedMethod, C: MakeCall> Call<'_, M, &mut C> {
    /// Makes the call. Over a [`Channel`] the outcome is returned, or a [`CallError`] if there is
    /// none.
    pub fn send(self) -> C::Begun<M> {
        self.over.make_call::<M>(&self.request, &self.options)
    }
}

/// Returns a time in milliseconds, as requests have them.
pub(super) fn rounded_up_ms(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::typed::operation;

    #[test]
    fn an_option_leaves_the_others_as_they_are() {
        let minute = Duration::from_secs(60);
        for call in [
            operation::get(b"k").gzip().wants_head().timeout(minute),
            operation::get(b"k").timeout(minute).gzip().wants_head(),
            operation::get(b"k").wants_head().timeout(minute).gzip(),
        ] {
            let (_, _, options) = call.into_parts();
            assert!(options.compress && options.wants_head, "{options:?}");
            assert!(options.deadline.is_some(), "{options:?}");
        }
    }
}
