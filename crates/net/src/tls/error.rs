//! Why certificates and keys cannot be used.

/// Why certificates and keys cannot be used. Whoever read the files adds their names: see
/// [`TlsConfigError::part`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsConfigError {
    /// There is no certificate in what should hold one.
    #[error("there is no PEM certificate in it")]
    NoCertificate,
    /// The certificate cannot be read.
    #[error("the certificate is damaged: {0}")]
    BadCertificate(String),
    /// There is no private key, or one of a kind that cannot be used.
    #[error("the private key cannot be used: {0}")]
    BadKey(String),
    /// The certificate is of a version of X.509 before 3, which has no room for the names of hosts.
    #[error(
        "the certificate is of X.509 version 1 or 2, which cannot name hosts (subjectAltName), so \
         that current clients refuse it; make one of version 3, such as by `openssl req -x509 \
         -newkey rsa:2048 -nodes -keyout key.pem -out certificate.pem -days 365 -subj /CN=HOST \
         -addext subjectAltName=DNS:HOST`, or sign with `openssl x509 -req -copy_extensions copy`"
    )]
    OldCertificate,
    /// The private key is not that of the certificate.
    #[error("the private key does not belong to the certificate")]
    KeyMismatch,
    /// The certificate has run out, so many seconds ago.
    #[error("the certificate ran out {} ago", span(.0))]
    Expired(u64),
    /// The certificate is not valid yet, for so many seconds.
    #[error("the certificate is not valid for another {}", span(.0))]
    NotYetValid(u64),
    /// There is no certificate of an authority, or one that cannot be read.
    #[error("there is no usable certificate of an authority: {0}")]
    BadAuthorities(String),
    /// The name that the server's certificate should have is no name.
    #[error("`{0}` is neither a host name nor an IP address")]
    BadName(String),
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
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

/// Returns a time in the unit in which it is best read.
fn span(seconds: &u64) -> String {
    match seconds / 86_400 {
        0 => format!("{seconds} seconds"),
        days => format!("{days} days"),
    }
}
