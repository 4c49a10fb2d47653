//! Error codes of baidu_std and statuses of SRPC, and what they are as codes of gRPC.

use crate::grpc::Code;

/// The service does not exist.
pub const ENOSERVICE: i32 = 1001;
/// The method does not exist.
pub const ENOMETHOD: i32 = 1002;
/// The request cannot be read, or is wrong.
pub const EREQUEST: i32 = 1003;
/// It was not proved who calls.
pub const ERPCAUTH: i32 = 1004;
/// The time of the caller has passed.
pub const ERPCTIMEDOUT: i32 = 1008;
/// The server failed, or could not do what was asked for.
pub const EINTERNAL: i32 = 2001;
/// The response cannot be made, or read.
pub const ERESPONSE: i32 = 2002;
/// The server stops.
pub const ELOGOFF: i32 = 2003;
/// The server has as much to do as it may have.
pub const ELIMIT: i32 = 2004;
/// The caller may not do this; a number of Linux, as brpc has it for a status of gRPC.
pub const EPERM: i32 = 1;
/// What was to be created exists; the same.
pub const EEXIST: i32 = 17;
/// The call was given up; the same.
pub const ECANCELED: i32 = 125;

/// Statuses of SRPC.
pub mod srpc {
    /// Success.
    pub const OK: u8 = 1;
    /// The service does not exist.
    pub const SERVICE_NOT_FOUND: u8 = 2;
    /// The method does not exist.
    pub const METHOD_NOT_FOUND: u8 = 3;
    /// The metadata cannot be read.
    pub const META_ERROR: u8 = 4;
    /// The message is compressed in a way that is not known.
    pub const REQUEST_DECOMPRESS_NOT_SUPPORTED: u8 = 8;
    /// The message cannot be decompressed.
    pub const REQUEST_DECOMPRESS_ERROR: u8 = 10;
    /// The message cannot be read, or is wrong.
    pub const REQUEST_DESERIALIZE_ERROR: u8 = 12;
    /// The response cannot be made.
    pub const RESPONSE_DESERIALIZE_ERROR: u8 = 20;
    /// The message is in a form that is not known.
    pub const IDL_DESERIALIZE_NOT_SUPPORTED: u8 = 22;
    /// The server failed, or could not do what was asked for.
    pub const SYSTEM_ERROR: u8 = 100;
    /// The server stops.
    pub const PROCESS_TERMINATED: u8 = 103;
}

/// Returns the error code of baidu_std of a call that ended with this code. `is_stopping`: the
/// server is.
pub fn error_code(code: Code, is_stopping: bool) -> i32 {
    match code {
        Code::Ok => 0,
        Code::Unimplemented => ENOMETHOD,
        Code::InvalidArgument => EREQUEST,
        Code::Unauthenticated => ERPCAUTH,
        Code::PermissionDenied => EPERM,
        Code::DeadlineExceeded => ERPCTIMEDOUT,
        Code::Unavailable if is_stopping => ELOGOFF,
        Code::Unavailable | Code::ResourceExhausted => ELIMIT,
        Code::AlreadyExists => EEXIST,
        Code::Cancelled => ECANCELED,
        Code::NotFound
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::Internal
        | Code::DataLoss
        | Code::Unknown => EINTERNAL,
    }
}

/// Returns the status of SRPC that stands for an error code of baidu_std.
pub fn srpc_status(error_code: i32) -> u8 {
    match error_code {
        0 => srpc::OK,
        ENOSERVICE => srpc::SERVICE_NOT_FOUND,
        ENOMETHOD => srpc::METHOD_NOT_FOUND,
        EREQUEST => srpc::REQUEST_DESERIALIZE_ERROR,
        ERESPONSE => srpc::RESPONSE_DESERIALIZE_ERROR,
        ELOGOFF => srpc::PROCESS_TERMINATED,
        _ => srpc::SYSTEM_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_of_srpc_are_those_of_its_table() {
        let table = [
            (1001, 2),
            (1002, 3),
            (1003, 12),
            (2002, 20),
            (2003, 103),
            (2001, 100),
            (2004, 100),
            (0, 1),
        ];
        for (error_code, status) in table {
            assert_eq!(srpc_status(error_code), status);
        }
    }
}
