//! What is wrong where an export fails, as far as somebody can do something about it.

use net::tls::{TlsFailure, TlsFailureKind};
use wire::grpc::Code;

use crate::channel::{SERVER_CLOSED, SERVER_SPEAKS_HTTP1, SERVER_SPEAKS_TLS};
use crate::error::{CallError, ConnectError, NotBegun};

/// What is wrong where an export fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFault {
    /// Nobody listens at the endpoint.
    NobodyListens,
    /// The name of the host is not known.
    UnknownHost,
    /// Nothing came back in time.
    Silent,
    /// The certificate of the collector is not believed.
    Certificate,
    /// TLS was spoken to a port that does not speak it, or that ended the handshake at once.
    SpeaksPlain,
    /// The collector ended the handshake of TLS with an alert: it may want a certificate.
    RefusesTls,
    /// No TLS was spoken to a port that speaks it.
    SpeaksTls,
    /// The port speaks HTTP/1.1: that of OTLP over HTTP, for example.
    SpeaksHttp1,
    /// The connection was closed before there was an answer.
    Closed,
    /// The collector does not know who exports, or does not let them.
    Denied,
    /// The collector takes no traces: it has no such service.
    NoTraceService,
    /// Something else.
    Other,
}

impl ExportFault {
    /// Returns it of a connection that there is not.
    pub(super) fn of_connection(error: &ConnectError) -> ExportFault {
        match error {
            ConnectError::NobodyListens { .. } => ExportFault::NobodyListens,
            ConnectError::UnknownHost { .. } => ExportFault::UnknownHost,
            ConnectError::TimedOut { .. } => ExportFault::Silent,
            ConnectError::Tls { failure, .. } => ExportFault::of_tls(failure),
            ConnectError::OtherProtocol { reason, .. } => ExportFault::of_reason(reason),
            ConnectError::TokenWithoutTls { .. }
            | ConnectError::NoResource { .. }
            | ConnectError::Failed { .. } => ExportFault::Other,
        }
    }

    /// Returns it of a call that failed.
    pub(super) fn of_call(error: &CallError) -> ExportFault {
        match error {
            CallError::Status(status) => match status.code() {
                Code::Unauthenticated | Code::PermissionDenied => ExportFault::Denied,
                Code::Unimplemented => ExportFault::NoTraceService,
                _ => ExportFault::Other,
            },
            CallError::DeadlineExceeded => ExportFault::Silent,
            CallError::ConnectionLost { reason }
            | CallError::NotBegun(NotBegun::Closing { reason }) => ExportFault::of_reason(reason),
            CallError::NotBegun(_)
            | CallError::PoolClosed
            | CallError::BadAnswer { .. }
            | CallError::AnswerTooLarge
            | CallError::RequestTooLarge { .. }
            | CallError::MetadataTooLarge
            | CallError::BadRequest { .. } => ExportFault::Other,
        }
    }

    fn of_tls(failure: &TlsFailure) -> ExportFault {
        match failure.kind {
            TlsFailureKind::Certificate => ExportFault::Certificate,
            TlsFailureKind::NotTls | TlsFailureKind::Ended => ExportFault::SpeaksPlain,
            TlsFailureKind::RefusedByPeer => ExportFault::RefusesTls,
            TlsFailureKind::TimedOut => ExportFault::Silent,
            TlsFailureKind::Incompatible
            | TlsFailureKind::Broken
            | TlsFailureKind::TooLarge
            | TlsFailureKind::CrowdedOut => ExportFault::Other,
        }
    }

    fn of_reason(reason: &str) -> ExportFault {
        match reason {
            SERVER_SPEAKS_TLS => ExportFault::SpeaksTls,
            SERVER_SPEAKS_HTTP1 => ExportFault::SpeaksHttp1,
            SERVER_CLOSED => ExportFault::Closed,
            _ => ExportFault::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use wire::grpc::Status;

    use super::*;

    #[test]
    fn what_is_wrong_with_a_call_is_told_apart() {
        let status = |code| CallError::Status(Status::new(code, "no"));
        let lost = |reason: &str| CallError::ConnectionLost {
            reason: reason.into(),
        };
        for (error, expected) in [
            (status(Code::Unauthenticated), ExportFault::Denied),
            (status(Code::PermissionDenied), ExportFault::Denied),
            (status(Code::Unimplemented), ExportFault::NoTraceService),
            (status(Code::Unavailable), ExportFault::Other),
            (lost(SERVER_SPEAKS_TLS), ExportFault::SpeaksTls),
            (lost(SERVER_SPEAKS_HTTP1), ExportFault::SpeaksHttp1),
            (lost(SERVER_CLOSED), ExportFault::Closed),
            (lost("gone"), ExportFault::Other),
            (CallError::DeadlineExceeded, ExportFault::Silent),
        ] {
            assert_eq!(ExportFault::of_call(&error), expected, "{error}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_connection_is_told_apart() {
        let address: net::Address = "collector.example:4317".parse().expect("an address");
        let tls = |kind| ConnectError::Tls {
            address: address.clone(),
            failure: TlsFailure {
                kind,
                reason: "no".into(),
                fault: None,
            },
        };
        for (error, expected) in [
            (tls(TlsFailureKind::Certificate), ExportFault::Certificate),
            (tls(TlsFailureKind::NotTls), ExportFault::SpeaksPlain),
            (tls(TlsFailureKind::Ended), ExportFault::SpeaksPlain),
            (tls(TlsFailureKind::RefusedByPeer), ExportFault::RefusesTls),
            (tls(TlsFailureKind::Broken), ExportFault::Other),
            (
                ConnectError::UnknownHost {
                    address: address.clone(),
                    error: io::Error::other("no"),
                },
                ExportFault::UnknownHost,
            ),
            (
                ConnectError::TimedOut {
                    address: address.clone(),
                },
                ExportFault::Silent,
            ),
        ] {
            assert_eq!(ExportFault::of_connection(&error), expected, "{error}");
        }
    }
}
