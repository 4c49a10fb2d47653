//! What can go wrong.

use std::io;

use api::rpc::Repetition;
use net::Address;
use net::tls::TlsFailure;
use wire::grpc::{Code, Status};

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nobody listens there: nothing on the port, or no socket at the path.
    #[error("cannot connect to {address}: nobody listens there")]
    NobodyListens {
        /// The address asked for.
        address: Address,
    },
    /// The name of the host is not known.
    #[error("cannot connect to {address}: the host is not known ({error})")]
    UnknownHost {
        /// The address asked for.
        address: Address,
        /// What the resolver says.
        error: io::Error,
    },
    /// Nothing came back in time.
    #[error(
        "cannot connect to {address}: no answer in time; is the address right, and nothing in \
         between that drops connections?"
    )]
    TimedOut {
        /// The address asked for.
        address: Address,
    },
    /// There is a connection, and no agreement on TLS.
    #[error("no TLS with {address}: {failure}")]
    Tls {
        /// The address asked for.
        address: Address,
        /// Why.
        failure: TlsFailure,
    },
    /// The token would go to another machine without TLS.
    #[error(
        "the token is not sent to {address} without TLS: whoever is in between could read it, and \
         use it"
    )]
    TokenWithoutTls {
        /// The address asked for.
        address: Address,
    },
    /// Something listens there that speaks another protocol.
    #[error("cannot connect to {address}: {reason}")]
    OtherProtocol {
        /// The address asked for.
        address: Address,
        /// Which protocol, as far as the first bytes say.
        reason: &'static str,
    },
    /// The system does not give what a pool needs, whatever its address.
    #[error("cannot make a pool: {what}: {error}; what limits it: {limited_by}")]
    NoResource {
        /// What it does not give.
        what: &'static str,
        /// What the system says.
        error: io::Error,
        /// Where that may be changed.
        limited_by: &'static str,
    },
    /// Anything else that the system refuses.
    #[error("cannot connect to {address}: {error}")]
    Failed {
        /// The address asked for.
        address: Address,
        /// What the system says.
        error: io::Error,
    },
}

/// Why a call has no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// The server ended the call with this status.
    #[error("{0}")]
    Status(Status),
    /// The deadline passed. The server may have done what was asked.
    #[error("no answer before the deadline")]
    DeadlineExceeded,
    /// The server did not begin with the call: it is safe to try it again.
    #[error("{0}")]
    NotBegun(NotBegun),
    /// The connection ended before the call did. The server may have done what was asked.
    #[error("the connection ended before the answer ({reason})")]
    ConnectionLost {
        /// What is known of the reason.
        reason: String,
    },
    /// The pool was closed, and so the call was ended. The server may have done what was asked.
    #[error("the pool was closed before the answer")]
    PoolClosed,
    /// What came back is not an answer to this call: no gRPC, or a message too many or too few.
    #[error("the answer makes no sense: {reason}")]
    BadAnswer {
        /// What is wrong.
        reason: String,
    },
    /// A message of the answer is larger than the limit of this client.
    #[error("the answer makes no sense: a message is larger than this client accepts")]
    AnswerTooLarge,
    /// A message of the request is larger than the limit of this client, and was not sent.
    #[error(
        "the request cannot be sent: the message has {bytes} bytes, and at most {limit_bytes} are \
         sent"
    )]
    RequestTooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// The metadata of the request are larger than the server accepts.
    #[error("the request cannot be sent: the metadata are larger than the server accepts")]
    MetadataTooLarge,
    /// The request cannot be sent: its path or metadata have a form that HTTP/2 does not allow.
    #[error("the request cannot be sent: {reason}")]
    BadRequest {
        /// What is wrong.
        reason: String,
    },
}

impl CallError {
    /// Returns whether the server may have done what the call asked for, or some of it. If not,
    /// nothing was done: nothing was sent, or the server refused the call before it began to
    /// answer, with a proof of HTTP/2 (RFC 9113 sections 6.8 and 8.7), or with a status that is
    /// defined to be a refusal. UNAVAILABLE with `grpc-retry-pushback-ms` counts as one: a server
    /// asks by it for the same call again (gRFC A6). Pelton's servers send it for calls of which
    /// they have done nothing. For a call with several requests the status concerns the last of
    /// them only.
    pub fn may_have_happened(&self) -> bool {
        match self {
            CallError::Status(status) => !is_refusal(status),
            CallError::NotBegun(_)
            | CallError::RequestTooLarge { .. }
            | CallError::MetadataTooLarge
            | CallError::BadRequest { .. } => false,
            CallError::DeadlineExceeded
            | CallError::ConnectionLost { .. }
            | CallError::PoolClosed
            | CallError::AnswerTooLarge
            | CallError::BadAnswer { .. } => true,
        }
    }

    /// Returns whether the same call can be made again without doing anything twice, and with a
    /// prospect of another outcome, whatever it does. A call that is harmless to repeat, such as
    /// one that only reads, may be repeated after other errors too:
    /// [`CallError::allows_repetition`].
    pub fn is_safe_to_repeat(&self) -> bool {
        match self {
            CallError::Status(status) => pushback_ms(status).is_some(),
            CallError::NotBegun(reason) => {
                let is_final = matches!(
                    reason,
                    NotBegun::DeadlinePassed
                        | NotBegun::WaitedTooLong { .. }
                        | NotBegun::PoolClosed
                        | NotBegun::InWaker
                );
                !is_final
            }
            CallError::DeadlineExceeded
            | CallError::ConnectionLost { .. }
            | CallError::PoolClosed
            | CallError::BadAnswer { .. }
            | CallError::AnswerTooLarge
            | CallError::RequestTooLarge { .. }
            | CallError::MetadataTooLarge
            | CallError::BadRequest { .. } => false,
        }
    }
}

impl CallError {
    /// Returns whether a call of which a repetition does this can be made again without doing
    /// anything twice, and with a prospect of another outcome. A typed call knows its `repetition`.
    ///
    /// After one that takes effect [at most once](Repetition::AtMostOnce), a response that nothing
    /// was done may mean that the first call did it.
    pub fn allows_repetition(&self, repetition: Repetition) -> bool {
        let may_pass = match self {
            // If it allows to try again, that is safe in any case.
            CallError::Status(status) if has_pushback(status) && !status.follows_response() => {
                false
            }
            CallError::Status(status) => matches!(
                status.code(),
                Code::Unavailable | Code::Aborted | Code::DeadlineExceeded | Code::Cancelled
            ),
            CallError::DeadlineExceeded | CallError::ConnectionLost { .. } => true,
            CallError::NotBegun(_)
            | CallError::PoolClosed
            | CallError::BadAnswer { .. }
            | CallError::AnswerTooLarge
            | CallError::RequestTooLarge { .. }
            | CallError::MetadataTooLarge
            | CallError::BadRequest { .. } => false,
        };
        self.is_safe_to_repeat() || (may_pass && repetition != Repetition::MayRepeat)
    }
}

/// Returns the error of what came back and is no answer.
pub(crate) fn bad_answer(reason: impl Into<String>) -> CallError {
    CallError::BadAnswer {
        reason: reason.into(),
    }
}

/// What is wrong with an answer that is to have one message.
pub(crate) const MORE_MESSAGES: &str = "it has more than one message";

/// Returns the only message of a call that is to have one. `second`: what came behind the first.
pub(crate) fn only_message<T>(first: Option<T>, second: Option<T>) -> Result<T, CallError> {
    let message = first.ok_or_else(|| bad_answer("it has no message"))?;
    match second {
        None => Ok(message),
        Some(_) => Err(bad_answer(MORE_MESSAGES)),
    }
}

/// The trailer by which a server that did not begin with a call says when to try again (gRFC A6,
/// "Pushback").
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// Returns whether a server that ended a call with UNAVAILABLE said whether, and when, to try
/// again.
pub(crate) fn has_pushback(status: &Status) -> bool {
    let metadata = status.metadata();
    status.code() == Code::Unavailable
        && metadata.is_some_and(|metadata| metadata.get(PUSHBACK).is_some())
}

/// Returns after how many milliseconds the server wants the call again, if it has ended it with
/// UNAVAILABLE and said so, before it began to answer.
pub(crate) fn pushback_ms(status: &Status) -> Option<u64> {
    if status.code() != Code::Unavailable || status.follows_response() {
        return None;
    }
    let value = status.metadata()?.get(PUSHBACK)?;
    // A value that is negative, or no number, asks not to try again.
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Returns whether a status is defined to mean that nothing was done. One that comes after a part
/// of the response is not: the server has worked on the call (gRFC A6: the head commits).
fn is_refusal(status: &Status) -> bool {
    match status.code() {
        _ if status.follows_response() => false,
        Code::InvalidArgument
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Unauthenticated
        | Code::PermissionDenied => true,
        _ => pushback_ms(status).is_some(),
    }
}

/// Why a call did not begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotBegun {
    /// The server refused it: it is stopping, or it has too many calls of this client.
    #[error("the server did not begin with it; try again")]
    Refused,
    /// As many calls as the server allows are open on this connection.
    #[error("as many calls as the server allows are open; try again")]
    TooManyCalls,
    /// The connection takes no new calls: it is closing or closed.
    #[error("the connection takes no new calls ({reason}); try again")]
    Closing {
        /// What is known of the reason.
        reason: String,
    },
    /// No connection could be made to any address of the target.
    #[error("there is no connection to the target ({reason}); try again")]
    Unreachable {
        /// Why the last attempt failed.
        reason: String,
    },
    /// As many calls wait in the pool as may.
    #[error("{limit} calls wait for their turn already, which is the limit; try again later")]
    QueueFull {
        /// The limit.
        limit: usize,
    },
    /// The deadline had passed when the call was to begin.
    #[error("the deadline had passed when the call was to begin")]
    DeadlinePassed,
    /// The deadline passed while the call waited in the pool.
    #[error("the deadline passed before the call was sent: it waited for {waited_for}")]
    WaitedTooLong {
        /// What it waited for.
        waited_for: WaitedFor,
    },
    /// The pool was closed.
    #[error("the pool was closed")]
    PoolClosed,
    /// A waker waited for it.
    #[error(
        "a waker cannot wait for a call: a thread that works for all callers of a pool runs it; \
         have it only wake a thread or a task, which then calls"
    )]
    InWaker,
}

/// What a call of a pool waits for before it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitedFor {
    /// As many calls are in flight as may be.
    #[error("others to end, since as many calls were in flight as the pool's max_in_flight allows")]
    Permit,
    /// No connection stands.
    #[error("a connection")]
    Connection,
    /// A connection stands, and the server has not said what it allows.
    #[error("the server's SETTINGS; is it a gRPC server, and does it run?")]
    Settings,
    /// The connections have as many calls as the server, or the pool's mode, allows.
    #[error("a stream, since all connections had as many calls as the server or the pool allows")]
    Stream,
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::grpc::Metadata;

    fn with_trailer(code: Code, value: &str) -> CallError {
        let mut metadata = Metadata::new();
        let pushed = metadata.push_received(PUSHBACK.as_bytes(), value.as_bytes());
        pushed.expect("it can be received");
        CallError::Status(Status::new(code, "later").with_metadata(metadata))
    }

    fn status(code: Code) -> CallError {
        CallError::Status(Status::new(code, "a reason"))
    }

    fn facts(error: &CallError) -> (bool, bool) {
        (error.may_have_happened(), error.is_safe_to_repeat())
    }

    const UNCERTAIN: (bool, bool) = (true, false);
    const REFUSED: (bool, bool) = (false, false);
    const REPEATABLE: (bool, bool) = (false, true);

    #[test]
    fn a_status_is_a_refusal_only_where_its_definition_says_so() {
        for &code in Code::ALL {
            let is_refusal = matches!(
                code.name(),
                "INVALID_ARGUMENT"
                    | "FAILED_PRECONDITION"
                    | "OUT_OF_RANGE"
                    | "UNIMPLEMENTED"
                    | "UNAUTHENTICATED"
                    | "PERMISSION_DENIED"
            );
            let expected = if is_refusal { REFUSED } else { UNCERTAIN };
            assert_eq!(facts(&status(code)), expected, "{}", code.name());
        }
    }

    #[test]
    fn a_pushback_of_unavailable_proves_that_nothing_was_done() {
        assert_eq!(facts(&with_trailer(Code::Unavailable, "0")), REPEATABLE);
        assert_eq!(facts(&with_trailer(Code::Unavailable, "1500")), REPEATABLE);
        for value in ["-1", "soon"] {
            let error = with_trailer(Code::Unavailable, value);
            assert_eq!(facts(&error), UNCERTAIN, "{value}");
        }
        assert_eq!(facts(&with_trailer(Code::Internal, "0")), UNCERTAIN);
    }

    #[test]
    fn no_status_behind_a_part_of_the_response_is_a_refusal() {
        let after = |error| match error {
            CallError::Status(status) => CallError::Status(status.after_response()),
            error => error,
        };
        for &code in Code::ALL {
            assert_eq!(facts(&after(status(code))), UNCERTAIN, "{}", code.name());
        }
        let pushed_back = after(with_trailer(Code::Unavailable, "0"));
        assert_eq!(facts(&pushed_back), UNCERTAIN);
        assert!(pushed_back.allows_repetition(Repetition::Harmless));
        assert!(!pushed_back.allows_repetition(Repetition::MayRepeat));
    }

    #[test]
    fn what_repeats_without_harm_may_be_repeated_after_what_may_pass() {
        let lost = CallError::ConnectionLost {
            reason: "a reason".into(),
        };
        for error in [
            lost,
            CallError::DeadlineExceeded,
            status(Code::Unavailable),
            status(Code::Aborted),
        ] {
            assert!(error.allows_repetition(Repetition::Harmless), "{error}");
            assert!(error.allows_repetition(Repetition::AtMostOnce), "{error}");
            assert!(!error.allows_repetition(Repetition::MayRepeat), "{error}");
        }
        let proven = with_trailer(Code::Unavailable, "0");
        assert!(proven.allows_repetition(Repetition::MayRepeat));
        let refused = NotBegun::Refused;
        assert!(CallError::NotBegun(refused).allows_repetition(Repetition::MayRepeat));
        for error in [
            status(Code::NotFound),
            status(Code::InvalidArgument),
            with_trailer(Code::Unavailable, "-1"),
            CallError::NotBegun(NotBegun::PoolClosed),
            CallError::PoolClosed,
            CallError::AnswerTooLarge,
            CallError::MetadataTooLarge,
            CallError::BadAnswer {
                reason: "a reason".into(),
            },
        ] {
            assert!(!error.allows_repetition(Repetition::Harmless), "{error}");
        }
    }

    #[test]
    fn what_did_not_begin_did_not_happen() {
        let reason = || String::from("a reason");
        for (error, expected) in [
            (NotBegun::Refused, REPEATABLE),
            (NotBegun::TooManyCalls, REPEATABLE),
            (NotBegun::Closing { reason: reason() }, REPEATABLE),
            (NotBegun::Unreachable { reason: reason() }, REPEATABLE),
            (NotBegun::QueueFull { limit: 1 }, REPEATABLE),
            (NotBegun::DeadlinePassed, REFUSED),
            (
                NotBegun::WaitedTooLong {
                    waited_for: WaitedFor::Stream,
                },
                REFUSED,
            ),
            (NotBegun::PoolClosed, REFUSED),
            (NotBegun::InWaker, REFUSED),
        ] {
            let error = CallError::NotBegun(error);
            assert_eq!(facts(&error), expected, "{error}");
        }
        for (error, expected) in [
            (CallError::BadRequest { reason: reason() }, REFUSED),
            (
                CallError::RequestTooLarge {
                    bytes: 2,
                    limit_bytes: 1,
                },
                REFUSED,
            ),
            (CallError::MetadataTooLarge, REFUSED),
            (CallError::AnswerTooLarge, UNCERTAIN),
            (CallError::PoolClosed, UNCERTAIN),
            (CallError::BadAnswer { reason: reason() }, UNCERTAIN),
            (CallError::ConnectionLost { reason: reason() }, UNCERTAIN),
            (CallError::DeadlineExceeded, UNCERTAIN),
        ] {
            assert_eq!(facts(&error), expected, "{error}");
        }
    }
}
