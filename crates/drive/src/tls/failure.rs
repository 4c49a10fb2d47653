//! Why a TLS connection failed.

use std::fmt;

use rustls::{CertificateError, Error};

/// What kind of failure it was. There are few, so that they can be counted one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// The first bytes are not TLS: a plain client came to a port with TLS, or somebody who tries ports.
    NotTls,
    /// The peer has no certificate, or one that this side does not accept.
    Certificate,
    /// The two sides have no version, cipher or application protocol in common.
    Incompatible,
    /// The peer gave up and said why, most often since it does not trust the certificate of this side.
    RefusedByPeer,
    /// The peer broke the rules of TLS, or bytes were changed on their way.
    Broken,
    /// The peer went before the handshake was done.
    Ended,
    /// The handshake was not done in [`HANDSHAKE_MS`](crate::limits::HANDSHAKE_MS).
    TimedOut,
    /// The handshake had more than [`HANDSHAKE_BYTES`](crate::limits::HANDSHAKE_BYTES).
    TooLarge,
    /// More than [`HANDSHAKES_PER_LOOP`](crate::limits::HANDSHAKES_PER_LOOP) were under way, and this was the oldest.
    CrowdedOut,
}

/// A failure of a TLS connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFailure {
    /// Of which kind.
    pub kind: FailureKind,
    /// In words.
    pub reason: String,
    /// The peer's certificate is in order but for its signer, whom nobody here trusts.
    pub unknown_issuer: bool,
}

impl TlsFailure {
    pub(crate) fn new(kind: FailureKind) -> TlsFailure {
        let reason = match kind {
            FailureKind::Ended => "the peer went before the handshake was done",
            FailureKind::TimedOut => "the handshake was not done in time",
            FailureKind::TooLarge => "the handshake is larger than any honest one",
            FailureKind::CrowdedOut => "too many handshakes are under way, and this was the oldest",
            FailureKind::NotTls => "what came is not TLS",
            FailureKind::Certificate
            | FailureKind::Incompatible
            | FailureKind::RefusedByPeer
            | FailureKind::Broken => "the session cannot go on",
        };
        TlsFailure {
            kind,
            reason: reason.into(),
            unknown_issuer: false,
        }
    }

    /// `is_first`: nothing has been understood before.
    pub(crate) fn of(error: &Error, is_first: bool) -> TlsFailure {
        let (kind, reason) = match error {
            Error::InvalidMessage(_) if is_first => (
                FailureKind::NotTls,
                "what came is not TLS: a plain client on a port with TLS?".into(),
            ),
            Error::NoCertificatesPresented => (
                FailureKind::Certificate,
                "the client has no certificate, and needs one".into(),
            ),
            Error::InvalidCertificate(_) => (FailureKind::Certificate, error.to_string()),
            Error::PeerIncompatible(_) | Error::NoApplicationProtocol => {
                (FailureKind::Incompatible, error.to_string())
            }
            Error::AlertReceived(alert) => (
                FailureKind::RefusedByPeer,
                format!("the peer gave up with the alert {alert:?}"),
            ),
            error => (FailureKind::Broken, error.to_string()),
        };
        // An authority of the same name with another key shows as a wrong signature.
        let unknown_issuer = matches!(
            error,
            Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature
            )
        );
        TlsFailure {
            kind,
            reason,
            unknown_issuer,
        }
    }
}

impl fmt::Display for TlsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for TlsFailure {}
