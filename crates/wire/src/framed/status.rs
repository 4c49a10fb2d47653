//! What a server says of a call that failed: an error code of baidu_std, or a status of SRPC.

use std::fmt;

use super::{FramedProtocol, codes};

/// An error code of baidu_std or a status of SRPC, as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FramedStatus {
    protocol: FramedProtocol,
    number: i32,
}

/// What such a number means, in whichever of the two protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StatusMeaning {
    /// Success.
    Ok,
    /// The service does not exist.
    UnknownService,
    /// The method does not exist, or cannot be called over the protocol, which has no streams.
    UnknownMethod,
    /// The request cannot be read, or is wrong.
    BadRequest,
    /// The response cannot be made, or read.
    BadResponse,
    /// It was not proved who calls.
    Unauthenticated,
    /// The caller may not do this.
    PermissionDenied,
    /// What was to be created exists.
    AlreadyExists,
    /// The call was given up.
    Cancelled,
    /// The time of the caller has passed.
    TimedOut,
    /// The server has as much to do as it may have.
    Overloaded,
    /// The server stops.
    Stopping,
    /// A connection failed, behind the server or to it.
    ConnectionFailed,
    /// The server failed, or could not do what was asked for.
    Internal,
    /// The number is none of those that are known.
    Unknown,
}

/// A number, its name, and what it means.
type StatusRow = (i32, &'static str, StatusMeaning);

/// Error codes of baidu_std, by brpc's errno.proto, and what brpc makes of three statuses of gRPC.
const BAIDU_STD: &[StatusRow] = &[
    (0, "OK", StatusMeaning::Ok),
    (codes::EPERM, "EPERM", StatusMeaning::PermissionDenied),
    (codes::EEXIST, "EEXIST", StatusMeaning::AlreadyExists),
    (codes::ECANCELED, "ECANCELED", StatusMeaning::Cancelled),
    (
        codes::ENOSERVICE,
        "ENOSERVICE",
        StatusMeaning::UnknownService,
    ),
    (codes::ENOMETHOD, "ENOMETHOD", StatusMeaning::UnknownMethod),
    (codes::EREQUEST, "EREQUEST", StatusMeaning::BadRequest),
    (codes::ERPCAUTH, "ERPCAUTH", StatusMeaning::Unauthenticated),
    (1005, "ETOOMANYFAILS", StatusMeaning::Internal),
    (1006, "EPCHANFINISH", StatusMeaning::Cancelled),
    (1007, "EBACKUPREQUEST", StatusMeaning::Unknown),
    (codes::ERPCTIMEDOUT, "ERPCTIMEDOUT", StatusMeaning::TimedOut),
    (1009, "EFAILEDSOCKET", StatusMeaning::ConnectionFailed),
    (1010, "EHTTP", StatusMeaning::Internal),
    (1011, "EOVERCROWDED", StatusMeaning::Overloaded),
    (1012, "ERTMPPUBLISHABLE", StatusMeaning::Unknown),
    (1013, "ERTMPCREATESTREAM", StatusMeaning::Unknown),
    (1014, "EEOF", StatusMeaning::ConnectionFailed),
    (1015, "EUNUSED", StatusMeaning::Unknown),
    (1016, "ESSL", StatusMeaning::ConnectionFailed),
    (1017, "EH2RUNOUTSTREAMS", StatusMeaning::Overloaded),
    (1018, "EREJECT", StatusMeaning::Overloaded),
    (1019, "EPROGREADTIMEOUT", StatusMeaning::TimedOut),
    (codes::EINTERNAL, "EINTERNAL", StatusMeaning::Internal),
    (codes::ERESPONSE, "ERESPONSE", StatusMeaning::BadResponse),
    (codes::ELOGOFF, "ELOGOFF", StatusMeaning::Stopping),
    (codes::ELIMIT, "ELIMIT", StatusMeaning::Overloaded),
    (2005, "ECLOSE", StatusMeaning::ConnectionFailed),
    (2006, "EITP", StatusMeaning::Unknown),
    (2007, "ESHUTDOWNWRITE", StatusMeaning::ConnectionFailed),
    (3001, "ERDMA", StatusMeaning::ConnectionFailed),
    (3002, "ERDMAMEM", StatusMeaning::ConnectionFailed),
];

/// Statuses of SRPC.
const SRPC: &[StatusRow] = &[
    (0, "UNDEFINED", StatusMeaning::Unknown),
    (1, "OK", StatusMeaning::Ok),
    (2, "SERVICE_NOT_FOUND", StatusMeaning::UnknownService),
    (3, "METHOD_NOT_FOUND", StatusMeaning::UnknownMethod),
    (4, "META_ERROR", StatusMeaning::BadRequest),
    (5, "REQ_COMPRESS_SIZE_INVALID", StatusMeaning::BadRequest),
    (6, "REQ_DECOMPRESS_SIZE_INVALID", StatusMeaning::BadRequest),
    (7, "REQ_COMPRESS_NOT_SUPPORTED", StatusMeaning::BadRequest),
    (8, "REQ_DECOMPRESS_NOT_SUPPORTED", StatusMeaning::BadRequest),
    (9, "REQ_COMPRESS_ERROR", StatusMeaning::BadRequest),
    (10, "REQ_DECOMPRESS_ERROR", StatusMeaning::BadRequest),
    (11, "REQ_SERIALIZE_ERROR", StatusMeaning::BadRequest),
    (12, "REQ_DESERIALIZE_ERROR", StatusMeaning::BadRequest),
    (13, "RESP_COMPRESS_SIZE_INVALID", StatusMeaning::BadResponse),
    (
        14,
        "RESP_DECOMPRESS_SIZE_INVALID",
        StatusMeaning::BadResponse,
    ),
    (
        15,
        "RESP_COMPRESS_NOT_SUPPORTED",
        StatusMeaning::BadResponse,
    ),
    (
        16,
        "RESP_DECOMPRESS_NOT_SUPPORTED",
        StatusMeaning::BadResponse,
    ),
    (17, "RESP_COMPRESS_ERROR", StatusMeaning::BadResponse),
    (18, "RESP_DECOMPRESS_ERROR", StatusMeaning::BadResponse),
    (19, "RESP_SERIALIZE_ERROR", StatusMeaning::BadResponse),
    (20, "RESP_DESERIALIZE_ERROR", StatusMeaning::BadResponse),
    (21, "IDL_SERIALIZE_NOT_SUPPORTED", StatusMeaning::BadRequest),
    (
        22,
        "IDL_DESERIALIZE_NOT_SUPPORTED",
        StatusMeaning::BadRequest,
    ),
    (23, "MODULE_FILTER_FAILED", StatusMeaning::PermissionDenied),
    (30, "URI_INVALID", StatusMeaning::BadRequest),
    (31, "UPSTREAM_FAILED", StatusMeaning::ConnectionFailed),
    (100, "SYSTEM_ERROR", StatusMeaning::Internal),
    (101, "SSL_ERROR", StatusMeaning::ConnectionFailed),
    (102, "DNS_ERROR", StatusMeaning::ConnectionFailed),
    (103, "PROCESS_TERMINATED", StatusMeaning::Stopping),
];

impl FramedStatus {
    /// Returns an error code of baidu_std.
    pub const fn baidu_std(number: i32) -> FramedStatus {
        FramedStatus {
            protocol: FramedProtocol::BaiduStd,
            number,
        }
    }

    /// Returns a status of SRPC.
    pub const fn srpc(number: i32) -> FramedStatus {
        FramedStatus {
            protocol: FramedProtocol::Srpc,
            number,
        }
    }

    /// Returns the number as it travels.
    pub fn number(self) -> i32 {
        self.number
    }

    /// Returns whether it is that of success.
    pub fn is_ok(self) -> bool {
        self.meaning() == StatusMeaning::Ok
    }

    /// Returns what the protocol calls it; `None`: it has no such number.
    pub fn name(self) -> Option<&'static str> {
        self.row().map(|row| row.1)
    }

    /// Returns what it means.
    pub fn meaning(self) -> StatusMeaning {
        self.row().map_or(StatusMeaning::Unknown, |row| row.2)
    }

    fn row(self) -> Option<&'static StatusRow> {
        let table = match self.protocol {
            FramedProtocol::BaiduStd => BAIDU_STD,
            FramedProtocol::Srpc => SRPC,
        };
        table.iter().find(|row| row.0 == self.number)
    }
}

/// Name and number, as in `ENOMETHOD (1002)`.
impl fmt::Display for FramedStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name(), self.protocol) {
            (Some(name), _) => write!(f, "{name} ({})", self.number),
            (None, FramedProtocol::BaiduStd) => write!(f, "error {}", self.number),
            (None, FramedProtocol::Srpc) => write!(f, "status {}", self.number),
        }
    }
}

impl fmt::Display for StatusMeaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StatusMeaning::Ok => "success",
            StatusMeaning::UnknownService => "the service does not exist",
            StatusMeaning::UnknownMethod => "the method does not exist over this protocol",
            StatusMeaning::BadRequest => "the request cannot be read, or is wrong",
            StatusMeaning::BadResponse => "the response cannot be made, or read",
            StatusMeaning::Unauthenticated => "it was not proved who calls",
            StatusMeaning::PermissionDenied => "the caller may not do this",
            StatusMeaning::AlreadyExists => "what was to be created exists",
            StatusMeaning::Cancelled => "the call was given up",
            StatusMeaning::TimedOut => "the time of the caller has passed",
            StatusMeaning::Overloaded => "the server has as much to do as it may have",
            StatusMeaning::Stopping => "the server stops",
            StatusMeaning::ConnectionFailed => "a connection failed",
            StatusMeaning::Internal => "the server failed, or could not do what was asked for",
            StatusMeaning::Unknown => "the number has no meaning that is known",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_one_name_and_shows_it() {
        for (table, make) in [
            (
                BAIDU_STD,
                FramedStatus::baidu_std as fn(i32) -> FramedStatus,
            ),
            (SRPC, FramedStatus::srpc),
        ] {
            assert!(table.windows(2).all(|rows| rows[0].0 < rows[1].0));
            for (number, name, meaning) in table {
                let status = make(*number);
                assert_eq!((status.name(), status.meaning()), (Some(*name), *meaning));
                assert_eq!(status.to_string(), format!("{name} ({number})"));
            }
        }
        let oks = [FramedStatus::baidu_std(0), FramedStatus::srpc(1)];
        assert!(oks.iter().all(|status| status.is_ok()));
        assert!(!FramedStatus::baidu_std(1).is_ok() && !FramedStatus::srpc(0).is_ok());
        assert_eq!(FramedStatus::baidu_std(4_711).to_string(), "error 4711");
        assert_eq!(FramedStatus::srpc(-1).to_string(), "status -1");
    }

    /// What a server of ours sends means the same to a client of ours.
    #[test]
    fn statuses_of_a_server_come_to_a_client_with_their_meaning() {
        use crate::grpc::Code;
        for &code in Code::ALL {
            let number = codes::error_code(code, true);
            let of_baidu_std = FramedStatus::baidu_std(number).meaning();
            assert_ne!(of_baidu_std, StatusMeaning::Unknown, "{code}");
            let of_srpc = FramedStatus::srpc(codes::srpc_status(number).into()).meaning();
            let is_internal = of_srpc == StatusMeaning::Internal;
            assert!(is_internal || of_srpc == of_baidu_std, "{code}");
        }
    }
}
