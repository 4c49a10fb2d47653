//! What can go wrong.

use std::fmt;
use std::io;

use net::Address;
use net::tls::TlsFailure;
use wire::grpc::Status;

/// Why there is no connection.
#[derive(Debug)]
pub enum ConnectError {
    /// Nobody listens there: nothing on the port, or no socket at the path.
    NobodyListens {
        /// The address asked for.
        address: Address,
    },
    /// The name of the host is not known.
    UnknownHost {
        /// The address asked for.
        address: Address,
        /// What the resolver says.
        error: io::Error,
    },
    /// Nothing came back in time.
    TimedOut {
        /// The address asked for.
        address: Address,
    },
    /// There is a connection, and no agreement on TLS.
    Tls {
        /// The address asked for.
        address: Address,
        /// Why.
        failure: TlsFailure,
    },
    /// Anything else that the system refuses.
    Failed {
        /// The address asked for.
        address: Address,
        /// What the system says.
        error: io::Error,
    },
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::NobodyListens { address } => {
                write!(f, "cannot connect to {address}: nobody listens there")
            }
            ConnectError::UnknownHost { address, error } => {
                write!(
                    f,
                    "cannot connect to {address}: the host is not known ({error})"
                )
            }
            ConnectError::TimedOut { address } => {
                write!(
                    f,
                    "cannot connect to {address}: no answer in time; is the address right, and nothing in between that \
                     drops connections?"
                )
            }
            ConnectError::Tls { address, failure } => {
                write!(f, "no TLS with {address}: {failure}")
            }
            ConnectError::Failed { address, error } => {
                write!(f, "cannot connect to {address}: {error}")
            }
        }
    }
}

impl std::error::Error for ConnectError {}

/// Why a call has no answer.
#[derive(Debug)]
pub enum CallError {
    /// The server ended the call with this status.
    Status(Status),
    /// The deadline passed. The server may have done what was asked.
    DeadlineExceeded,
    /// The server did not begin with the call: it is safe to try it again.
    NotBegun(NotBegun),
    /// The connection ended before the call did. The server may have done what was asked.
    ConnectionLost {
        /// What is known of the reason.
        reason: String,
    },
    /// What came back is not an answer to this call: no gRPC, a message too many or too few, or one
    /// too large.
    BadAnswer {
        /// What is wrong.
        reason: String,
    },
    /// The request cannot be sent: its path or metadata have a form that HTTP/2 does not allow, or
    /// are too large.
    BadRequest {
        /// What is wrong.
        reason: String,
    },
}

/// Why a call did not begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotBegun {
    /// The server refused it: it is stopping, or it has too many calls of this client.
    Refused,
    /// As many calls as the server allows are open on this connection.
    TooManyCalls,
    /// The connection takes no new calls: it is closing or closed.
    Closing {
        /// What is known of the reason.
        reason: String,
    },
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Status(status) => status.fmt(f),
            CallError::DeadlineExceeded => f.write_str("no answer before the deadline"),
            CallError::NotBegun(why) => why.fmt(f),
            CallError::ConnectionLost { reason } => {
                write!(f, "the connection ended before the answer ({reason})")
            }
            CallError::BadAnswer { reason } => write!(f, "the answer makes no sense: {reason}"),
            CallError::BadRequest { reason } => write!(f, "the request cannot be sent: {reason}"),
        }
    }
}

impl fmt::Display for NotBegun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotBegun::Refused => f.write_str("the server did not begin with it; try again"),
            NotBegun::TooManyCalls => {
                f.write_str("as many calls as the server allows are open; try again")
            }
            NotBegun::Closing { reason } => {
                write!(f, "the connection takes no new calls ({reason}); try again")
            }
        }
    }
}

impl std::error::Error for CallError {}
