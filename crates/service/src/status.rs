//! How a call ends: a gRPC status.

use std::borrow::Cow;

/// The gRPC status codes (<https://grpc.io/docs/guides/status-codes/>).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(
    missing_docs,
    reason = "the names are the documentation; where they are used says why"
)]
pub enum Code {
    Ok = 0,
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

impl Code {
    /// All codes, in the order of their numbers.
    pub const ALL: [Code; 17] = [
        Code::Ok,
        Code::Cancelled,
        Code::Unknown,
        Code::InvalidArgument,
        Code::DeadlineExceeded,
        Code::NotFound,
        Code::AlreadyExists,
        Code::PermissionDenied,
        Code::ResourceExhausted,
        Code::FailedPrecondition,
        Code::Aborted,
        Code::OutOfRange,
        Code::Unimplemented,
        Code::Internal,
        Code::Unavailable,
        Code::DataLoss,
        Code::Unauthenticated,
    ];

    /// The code of this number on the wire; `None` if there is none.
    pub fn from_number(number: u64) -> Option<Code> {
        Code::ALL.get(usize::try_from(number).ok()?).copied()
    }
}

/// The end of a call: a code, and words for a human.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// What programs look at.
    pub code: Code,
    /// What people read: what happened, to what, and what to do.
    pub message: Cow<'static, str>,
}

impl Status {
    /// The status of a call that went well.
    pub const OK: Status = Status {
        code: Code::Ok,
        message: Cow::Borrowed(""),
    };

    /// A status with a message.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Status {
        Status {
            code,
            message: message.into(),
        }
    }

    /// A field of the request is wrong; the message names it.
    pub fn invalid_argument(message: impl Into<Cow<'static, str>>) -> Status {
        Status::new(Code::InvalidArgument, message)
    }

    /// Something is too large; the message names the limit, what was given and what is allowed.
    pub fn resource_exhausted(message: impl Into<Cow<'static, str>>) -> Status {
        Status::new(Code::ResourceExhausted, message)
    }

    /// What was named does not exist.
    pub fn not_found(message: impl Into<Cow<'static, str>>) -> Status {
        Status::new(Code::NotFound, message)
    }

    /// The server cannot do this (yet).
    pub fn unimplemented(message: impl Into<Cow<'static, str>>) -> Status {
        Status::new(Code::Unimplemented, message)
    }

    /// The caller broke the rules of the kind of call it made.
    pub fn internal(message: impl Into<Cow<'static, str>>) -> Status {
        Status::new(Code::Internal, message)
    }

    /// A method that takes one request (`path` names it) got none.
    ///
    /// gRPC's table of status codes gives UNIMPLEMENTED to a wrong number of messages
    /// (<https://github.com/grpc/grpc/blob/master/doc/statuscodes.md>).
    #[cold]
    pub fn no_request(path: &str) -> Status {
        Status::unimplemented(format!("{path} takes one request message, and none came"))
    }

    /// A method that takes one request (`path` names it) got another one.
    #[cold]
    pub fn second_request(path: &str) -> Status {
        Status::unimplemented(format!(
            "{path} takes one request message, and a second one came"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_their_numbers() {
        for (number, &code) in Code::ALL.iter().enumerate() {
            assert_eq!(code as usize, number);
            assert_eq!(Code::from_number(number as u64), Some(code));
        }
        assert_eq!(Code::from_number(17), None);
        assert_eq!(Code::from_number(u64::MAX), None);
    }
}
