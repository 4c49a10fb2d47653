//! How a call ends: the gRPC status, as `wire` sends it.

pub use wire::grpc::{Code, Status};

use crate::limits::QUOTED_CHARACTERS;
use crate::redact::shortened_without_tokens;

/// Returns as much of a text of a request as stands in a message, without tokens.
pub(crate) fn shortened(text: &str) -> String {
    shortened_without_tokens(text, QUOTED_CHARACTERS).0
}

/// Returns the same, which ends with `…` if there is more.
pub(crate) fn shortened_with_dots(text: &str) -> String {
    let (mut short, is_cut) = shortened_without_tokens(text, QUOTED_CHARACTERS);
    short.extend(is_cut.then_some('…'));
    short
}

/// Returns the same in quotes, with escapes for what is no character to be seen.
pub(crate) fn quoted(text: &str) -> String {
    format!("{:?}", shortened(text))
}

/// Returns the status of a method that takes one request (`path` names it) and got none.
///
/// gRPC's table of status codes gives UNIMPLEMENTED to a wrong number of messages
/// (<https://github.com/grpc/grpc/blob/master/doc/statuscodes.md>).
#[cold]
pub fn no_request(path: &str) -> Status {
    Status::unimplemented(format!("{path} takes one request message, and none came"))
}

/// Returns the status of a method that takes one request (`path` names it) and got another one.
#[cold]
pub fn second_request(path: &str) -> Status {
    Status::unimplemented(format!(
        "{path} takes one request message, and a second one came"
    ))
}
