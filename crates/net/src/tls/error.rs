//! Why certificates and keys cannot be used.

use std::fmt;

/// Why certificates and keys cannot be used. Whoever read the files adds their names: see
/// [`TlsConfigError::part`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsConfigError {
    /// There is no certificate in what should hold one.
    NoCertificate,
    /// The certificate cannot be read.
    BadCertificate(String),
    /// There is no private key, or one of a kind that cannot be used.
    BadKey(String),
    /// The certificate is of a version of X.509 before 3, which has no room for the names of hosts.
    OldCertificate,
    /// The private key is not that of the certificate.
    KeyMismatch,
    /// The certificate has run out, so many seconds ago.
    Expired(u64),
    /// The certificate is not valid yet, for so many seconds.
    NotYetValid(u64),
    /// There is no certificate of an authority, or one that cannot be read.
    BadAuthorities(String),
    /// The name that the server's certificate should have is no name.
    BadName(String),
    /// The system gives no random numbers.
    NoRandomness,
}

/// What an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigPart {
    /// The own certificate.
    Certificate,
    /// Its private key.
    Key,
    /// The certificates of trusted authorities.
    Authorities,
    /// None of these.
    Other,
}

impl TlsConfigError {
    /// What the error is about.
    pub fn part(&self) -> ConfigPart {
        match self {
            TlsConfigError::NoCertificate
            | TlsConfigError::BadCertificate(_)
            | TlsConfigError::OldCertificate
            | TlsConfigError::Expired(_)
            | TlsConfigError::NotYetValid(_) => ConfigPart::Certificate,
            TlsConfigError::BadKey(_) | TlsConfigError::KeyMismatch => ConfigPart::Key,
            TlsConfigError::BadAuthorities(_) => ConfigPart::Authorities,
            TlsConfigError::BadName(_) | TlsConfigError::NoRandomness => ConfigPart::Other,
        }
    }

    /// Returns what the library's refusal of a certificate and its key means.
    pub(super) fn of(error: &rustls::Error) -> TlsConfigError {
        match error {
            rustls::Error::InconsistentKeys(_) => TlsConfigError::KeyMismatch,
            rustls::Error::InvalidCertificate(_) => {
                TlsConfigError::BadCertificate(error.to_string())
            }
            error => TlsConfigError::BadKey(error.to_string()),
        }
    }
}

impl fmt::Display for TlsConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = |seconds: &u64| match seconds / 86_400 {
            0 => format!("{seconds} seconds"),
            days => format!("{days} days"),
        };
        match self {
            TlsConfigError::NoCertificate => f.write_str("there is no PEM certificate in it"),
            TlsConfigError::BadCertificate(why) => write!(f, "the certificate is damaged: {why}"),
            TlsConfigError::OldCertificate => f.write_str(
                "the certificate is of X.509 version 1 or 2, which cannot name hosts \
                 (subjectAltName), so that current clients refuse it; make one of version 3, such \
                 as by `openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out \
                 certificate.pem -days 365 -subj /CN=HOST -addext subjectAltName=DNS:HOST`, or \
                 sign with `openssl x509 -req -copy_extensions copy`",
            ),
            TlsConfigError::BadKey(why) => write!(f, "the private key cannot be used: {why}"),
            TlsConfigError::KeyMismatch => {
                f.write_str("the private key does not belong to the certificate")
            }
            TlsConfigError::Expired(ago) => {
                write!(f, "the certificate ran out {} ago", span(ago))
            }
            TlsConfigError::NotYetValid(until) => {
                write!(
                    f,
                    "the certificate is not valid for another {}",
                    span(until)
                )
            }
            TlsConfigError::BadAuthorities(why) => {
                write!(f, "there is no usable certificate of an authority: {why}")
            }
            TlsConfigError::BadName(name) => {
                write!(f, "`{name}` is neither a host name nor an IP address")
            }
            TlsConfigError::NoRandomness => f.write_str("the system gives no random numbers"),
        }
    }
}

impl std::error::Error for TlsConfigError {}
