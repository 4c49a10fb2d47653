//! Requests as they come: what is no message of its type has one status everywhere.

use protobuf::{DecodeError, Message};

use crate::method::Method;
use crate::status::Status;

/// Decodes a request of a method.
///
/// # Errors
/// INVALID_ARGUMENT if the bytes are none.
#[inline]
pub(super) fn decode<'a, M: Message<'a>>(method: Method, bytes: &'a [u8]) -> Result<M, Status> {
    M::decode(bytes).map_err(|error| not_a_request(method, error))
}

/// The status of bytes that are no request.
#[cold]
pub(super) fn not_a_request(method: Method, error: DecodeError) -> Status {
    Status::invalid_argument(format!("{}: {error}", method.path()))
}
