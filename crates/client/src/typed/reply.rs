//! Responses that own their bytes.

use std::fmt;
use std::marker::PhantomData;

use api::rpc::Rpc;
use protobuf::Message;

use crate::error::{CallError, bad_answer};

/// A response of a method: its bytes, in which the message is looked at where it lies.
pub struct Reply<M> {
    bytes: Vec<u8>,
    method: PhantomData<fn() -> M>,
}

impl<M: Rpc> Reply<M> {
    /// Checks that the bytes are a response of the method, with all elements of its lists.
    pub(super) fn decode(bytes: Vec<u8>) -> Result<Reply<M>, CallError> {
        M::Response::decode(&bytes)
            .and_then(|response| response.validate())
            .map_err(|error| malformed::<M>(&error))?;
        Ok(Reply {
            bytes,
            method: PhantomData,
        })
    }

    /// Returns the message. Elements of its lists decode without an error.
    pub fn message(&self) -> M::Response<'_> {
        // The bytes were decoded when they came.
        M::Response::decode(&self.bytes).unwrap_or_default()
    }

    /// Returns the bytes of the message.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

fn malformed<M: Rpc>(error: &protobuf::DecodeError) -> CallError {
    let name = <M::Response<'_> as Message<'_>>::NAME;
    bad_answer(format!("it is no {name}: {error}"))
}

/// Shows how long the message is; what it says may be a secret.
impl<M: Rpc> fmt::Debug for Reply<M> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = <M::Response<'_> as Message<'_>>::NAME;
        write!(formatter, "Reply({name}, {} bytes)", self.bytes.len())
    }
}
