//! Why calls fail.

use std::fmt;

use client::{Code, FramedStatus};

/// Why a call counts as failed, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailureKind {
    /// The server ended it with this status.
    Status(u8),
    /// The server ended it with this error of baidu_std or SRPC.
    FramedError(FramedStatus),
    /// The time given to it has passed, and the server had not answered.
    DeadlineExceeded,
    /// The server did not begin with it.
    NotBegun,
    /// The connection ended before.
    ConnectionLost,
    /// No connection could be made for it.
    NotConnected,
    /// What came back is no answer to it.
    BadAnswer,
    /// The server ended it with success before all its messages were sent.
    EndedEarly,
    /// It took no effect: a condition or a number stood in its way.
    NoEffect,
    /// It brought another value than was written.
    WrongValue,
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FailureKind::Status(number) => Code::from_u8(*number).name(),
            FailureKind::FramedError(status) => return status.fmt(f),
            FailureKind::DeadlineExceeded => "deadline passed here",
            FailureKind::NotBegun => "refused by the server",
            FailureKind::ConnectionLost => "connection lost",
            FailureKind::NotConnected => "no connection",
            FailureKind::BadAnswer => "no answer to the request",
            FailureKind::EndedEarly => "ended before all its messages were sent",
            FailureKind::NoEffect => "without effect",
            FailureKind::WrongValue => "another value than was written",
        })
    }
}
