//! What can go wrong.

use std::io;

use net::Address;
use net::tls::TlsFailure;
use wire::grpc::Status;

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
#[derive(Debug, thiserror::Error)]
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
    /// What came back is not an answer to this call: no gRPC, a message too many or too few, or one
    /// too large.
    #[error("the answer makes no sense: {reason}")]
    BadAnswer {
        /// What is wrong.
        reason: String,
    },
    /// The request cannot be sent: its path or metadata have a form that HTTP/2 does not allow, or
    /// are too large.
    #[error("the request cannot be sent: {reason}")]
    BadRequest {
        /// What is wrong.
        reason: String,
    },
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
}
