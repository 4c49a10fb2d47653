//! Typed calls: messages of `pelton.v1` in the place of bytes.
//!
//! A service is a value over a channel ([`KeyValue`]). Its methods return a [`Call`], which takes
//! conditions and options, and is made by [`Call::send`]. What was not found, or a condition that
//! was not met, is an outcome; an error means that there is none.
//!
//! ```no_run
//! use client::typed::KeyValue;
//! use client::{Channel, ChannelOptions};
//!
//! let mut channel = Channel::connect(&"127.0.0.1:1978".parse()?, &ChannelOptions::default())?;
//! let mut kv = KeyValue::new(&mut channel);
//! let put = kv.put(b"k", b"v").if_absent().send()?;
//! println!("applied: {}, version {}", put.applied, put.version);
//! if let Some(stored) = kv.get(b"k").send()? {
//!     println!("{} bytes", stored.value.len());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What a call is does not depend on what makes it, which is a [`MakeCall`].

mod keyvalue;

pub use keyvalue::{
    AppendOutcome, CountOutcome, DeleteOutcome, IncrementOutcome, KeyValue, PutOutcome, StoredValue,
};

use std::time::{Duration, Instant};

use api::rpc::{Repetition, Rpc};
use protobuf::Message;

use crate::channel::{CallOptions, Channel};
use crate::error::CallError;

/// A method whose response becomes a value of its own.
pub trait TypedMethod: Rpc {
    /// What a call ends with if it ends well.
    type Outcome;

    /// Returns what a response says.
    fn outcome(response: Self::Response<'_>) -> Self::Outcome;
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
        let mut message = Vec::with_capacity(request.encoded_len());
        request.encode(&mut message);
        let path = format!("/{}", M::METHOD.path);
        outcome_of::<M>(&self.unary(&path, &message, options)?)
    }
}

/// Returns what the bytes of a response say.
fn outcome_of<M: TypedMethod>(bytes: &[u8]) -> Result<M::Outcome, CallError> {
    let response = M::Response::decode(bytes).and_then(|response| {
        response.validate()?;
        Ok(response)
    });
    match response {
        Ok(response) => Ok(M::outcome(response)),
        Err(error) => Err(CallError::BadAnswer {
            reason: format!(
                "it is no {}: {error}",
                <M::Response<'_> as Message<'_>>::NAME
            ),
        }),
    }
}

/// A call that was not made yet.
#[must_use = "a call is made by `send`"]
#[derive(Debug)]
pub struct Call<'a, M: TypedMethod, C> {
    over: &'a mut C,
    request: M::Request<'a>,
    options: CallOptions<'a>,
}

impl<'a, M: TypedMethod, C> Call<'a, M, C> {
    fn new(over: &'a mut C, request: M::Request<'a>) -> Call<'a, M, C> {
        Call {
            over,
            request,
            options: CallOptions::default(),
        }
    }

    /// Gives the call so long from now on. Without this it may take for ever.
    pub fn timeout(self, timeout: Duration) -> Call<'a, M, C> {
        let deadline = Instant::now().checked_add(timeout);
        let options = CallOptions {
            deadline,
            ..self.options
        };
        self.options(options)
    }

    /// Gives the call these options, in the place of all that were given before.
    pub fn options(mut self, options: CallOptions<'a>) -> Call<'a, M, C> {
        self.options = options;
        self
    }

    /// Returns what happens if the same call is made again after one whose outcome is not known.
    pub fn repetition(&self) -> Repetition {
        M::repetition(&self.request)
    }
}

impl<M: TypedMethod, C: MakeCall> Call<'_, M, C> {
    /// Makes the call. Over a [`Channel`] the outcome is returned, or a [`CallError`] if there is
    /// none.
    pub fn send(self) -> C::Begun<M> {
        self.over.make_call::<M>(&self.request, &self.options)
    }
}
