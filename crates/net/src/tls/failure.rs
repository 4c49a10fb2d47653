//! Why a TLS connection failed.

use rustls::{CertificateError, Error};

/// What kind of failure it was. There are few, so that they can be counted one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TlsFailureKind {
    /// The first bytes are not TLS: a plain client came to a port with TLS, or somebody who tries
    /// ports.
    NotTls,
    /// The peer has no certificate, or one that this side does not accept.
    Certificate,
    /// The two sides have no version, cipher or application protocol in common.
    Incompatible,
    /// The peer gave up and said why, most often since it does not trust the certificate of this
    /// side.
    RefusedByPeer,
    /// The peer broke the rules of TLS, or bytes were changed on their way.
    Broken,
    /// The peer went before the handshake was done.
    Ended,
    /// The handshake was not done in [`HANDSHAKE_MS`](crate::limits::HANDSHAKE_MS).
    TimedOut,
    /// The handshake had more than [`HANDSHAKE_BYTES`](crate::limits::HANDSHAKE_BYTES).
    TooLarge,
    /// Too many were under way, and this peer had been waited for longest
    /// ([`HANDSHAKES_PER_LOOP`](crate::limits::HANDSHAKES_PER_LOOP) and those below it).
    CrowdedOut,
}

/// What is wrong with a peer's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateFault {
    /// Nobody who is trusted has signed it.
    UnknownIssuer,
    /// It is for other names.
    WrongName,
    /// It is for no name at all: it has no subjectAltName.
    NoName,
    /// It has expired, or is not valid yet; or a clock is wrong.
    OutOfDate,
    /// It is that of an authority, and none that is trusted itself.
    IsAuthority,
    /// It is of a version of X.509 before 3.
    OldVersion,
}

impl CertificateFault {
    fn of(error: &CertificateError) -> Option<CertificateFault> {
        match error {
            // An authority of the same name with another key shows as a wrong signature.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                Some(CertificateFault::UnknownIssuer)
            }
            CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => {
                Some(CertificateFault::NoName)
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Some(CertificateFault::WrongName)
            }
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => Some(CertificateFault::OutOfDate),
            // webpki's own errors come by their names only.
            CertificateError::Other(other) => match other.0.to_string().as_str() {
                "CaUsedAsEndEntity" => Some(CertificateFault::IsAuthority),
                "UnsupportedCertVersion" => Some(CertificateFault::OldVersion),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns better words than those of the library, where it has none.
    fn words(self) -> Option<&'static str> {
        match self {
            CertificateFault::IsAuthority => Some(
                "the peer's certificate is self-signed or an authority's, \
                 and nobody here was told to trust it",
            ),
            CertificateFault::OldVersion => {
                Some("the peer's certificate is of X.509 version 1 or 2, not 3")
            }
            CertificateFault::UnknownIssuer => Some(
                "the peer's certificate was signed by nobody who is trusted here (unknown issuer)",
            ),
            _ => None,
        }
    }
}

/// The names of a certificate, which the library writes as `DnsName("localhost")` and
/// `IpAddress(127.0.0.1)`.
fn names(presented: &[String]) -> String {
    let plain = |name: &String| {
        let inner = name
            .split_once('(')
            .and_then(|(_, rest)| rest.strip_suffix(')'));
        inner.unwrap_or(name).trim_matches('"').to_owned()
    };
    presented.iter().map(plain).collect::<Vec<_>>().join(", ")
}

/// A failure of a TLS connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct TlsFailure {
    /// Of which kind.
    pub kind: TlsFailureKind,
    /// In words.
    pub reason: String,
    /// What is wrong with the peer's certificate, as far as it is known.
    pub fault: Option<CertificateFault>,
}

impl TlsFailure {
    pub(crate) fn new(kind: TlsFailureKind) -> TlsFailure {
        let reason = match kind {
            TlsFailureKind::Ended => "the peer went before the handshake was done",
            TlsFailureKind::TimedOut => "the handshake was not done in time",
            TlsFailureKind::TooLarge => "the handshake is larger than any honest one",
            TlsFailureKind::CrowdedOut => {
                "too many handshakes are under way, and this was the oldest"
            }
            TlsFailureKind::NotTls => "what came is not TLS",
            TlsFailureKind::Certificate
            | TlsFailureKind::Incompatible
            | TlsFailureKind::RefusedByPeer
            | TlsFailureKind::Broken => "the session cannot go on",
        };
        TlsFailure {
            kind,
            reason: reason.into(),
            fault: None,
        }
    }

    /// `is_first`: nothing has been understood before.
    pub(crate) fn of(error: &Error, is_first: bool) -> TlsFailure {
        let (kind, reason) = match error {
            Error::InvalidMessage(_) if is_first => (
                TlsFailureKind::NotTls,
                "what came is not TLS: a plain client on a port with TLS?".into(),
            ),
            Error::NoCertificatesPresented => (
                TlsFailureKind::Certificate,
                "the client has no certificate, and needs one".into(),
            ),
            Error::InvalidCertificate(certificate) => {
                let fault = CertificateFault::of(certificate);
                let words = fault.and_then(CertificateFault::words);
                let reason = match (words, certificate) {
                    (Some(words), _) => words.to_owned(),
                    (
                        None,
                        CertificateError::NotValidForNameContext {
                            expected,
                            presented,
                        },
                    ) if !presented.is_empty() => format!(
                        "the peer's certificate is not for {}, it is for {}",
                        expected.to_str(),
                        names(presented)
                    ),
                    (None, _) => error.to_string(),
                };
                (TlsFailureKind::Certificate, reason)
            }
            Error::PeerIncompatible(_) | Error::NoApplicationProtocol => {
                (TlsFailureKind::Incompatible, error.to_string())
            }
            Error::AlertReceived(alert) => (
                TlsFailureKind::RefusedByPeer,
                format!("the peer gave up with the alert {alert:?}"),
            ),
            error => (TlsFailureKind::Broken, error.to_string()),
        };
        let fault = match error {
            Error::InvalidCertificate(error) => CertificateFault::of(error),
            _ => None,
        };
        TlsFailure {
            kind,
            reason,
            fault,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use rustls::pki_types::{ServerName, UnixTime};
    use rustls::{AlertDescription, InvalidMessage, OtherError, PeerIncompatible};

    use super::*;

    #[test]
    fn the_names_of_a_certificate_are_plain() {
        let presented = ["DnsName(\"localhost\")", "IpAddress(127.0.0.1)", "other"];
        let shown = names(&presented.map(str::to_owned));
        assert_eq!(shown, "localhost, 127.0.0.1, other");
    }

    #[test]
    fn what_is_wrong_with_a_certificate_is_told_apart() {
        let time = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let not_for = |presented: &[&str]| CertificateError::NotValidForNameContext {
            expected: ServerName::try_from("localhost").expect("a name"),
            presented: presented.iter().map(|&name| name.to_owned()).collect(),
        };
        // webpki's own errors.
        let other =
            |name| CertificateError::Other(OtherError(Arc::new(std::io::Error::other(name))));
        let expired = CertificateError::ExpiredContext {
            time: time(9),
            not_after: time(8),
        };
        let early = CertificateError::NotValidYetContext {
            time: time(8),
            not_before: time(9),
        };
        use CertificateFault::*;
        for (error, fault, words) in [
            (
                CertificateError::UnknownIssuer,
                Some(UnknownIssuer),
                "(unknown issuer)",
            ),
            (
                CertificateError::BadSignature,
                Some(UnknownIssuer),
                "(unknown issuer)",
            ),
            (CertificateError::NotValidForName, Some(WrongName), ""),
            (
                not_for(&["DnsName(\"a.test\")"]),
                Some(WrongName),
                "the peer's certificate is not for localhost, it is for a.test",
            ),
            (not_for(&[]), Some(NoName), ""),
            (CertificateError::Expired, Some(OutOfDate), ""),
            (expired, Some(OutOfDate), ""),
            (CertificateError::NotValidYet, Some(OutOfDate), ""),
            (early, Some(OutOfDate), ""),
            (
                other("CaUsedAsEndEntity"),
                Some(IsAuthority),
                "self-signed or an authority's",
            ),
            (
                other("UnsupportedCertVersion"),
                Some(OldVersion),
                "version 1 or 2, not 3",
            ),
            (other("something else"), None, "something else"),
            (CertificateError::Revoked, None, ""),
        ] {
            let failure = TlsFailure::of(&Error::InvalidCertificate(error.clone()), true);
            assert_eq!(
                (failure.kind, failure.fault),
                (TlsFailureKind::Certificate, fault)
            );
            assert!(failure.reason.contains(words), "{}", failure.reason);
            assert!(!failure.reason.is_empty());
        }
    }

    #[test]
    fn other_failures_have_their_kinds() {
        let invalid = Error::InvalidMessage(InvalidMessage::InvalidContentType);
        let incompatible = PeerIncompatible::NoCipherSuitesInCommon;
        for (error, is_first, kind, words) in [
            (
                invalid.clone(),
                true,
                TlsFailureKind::NotTls,
                "a plain client on a port with TLS?",
            ),
            (invalid, false, TlsFailureKind::Broken, ""),
            (
                Error::NoCertificatesPresented,
                false,
                TlsFailureKind::Certificate,
                "the client has no certificate",
            ),
            (incompatible.into(), true, TlsFailureKind::Incompatible, ""),
            (
                Error::NoApplicationProtocol,
                true,
                TlsFailureKind::Incompatible,
                "",
            ),
            (
                Error::AlertReceived(AlertDescription::UnknownCA),
                false,
                TlsFailureKind::RefusedByPeer,
                "the alert UnknownCA",
            ),
            (Error::DecryptError, true, TlsFailureKind::Broken, ""),
        ] {
            let failure = TlsFailure::of(&error, is_first);
            assert_eq!((failure.kind, failure.fault), (kind, None), "{error}");
            assert!(failure.reason.contains(words), "{}", failure.reason);
            assert_eq!(failure.to_string(), failure.reason);
        }
        assert!(
            TlsFailure::new(TlsFailureKind::TimedOut)
                .reason
                .contains("in time")
        );
        assert!(
            TlsFailure::new(TlsFailureKind::Broken)
                .reason
                .contains("cannot go on")
        );
    }
}
