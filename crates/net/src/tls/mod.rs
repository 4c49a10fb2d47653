//! TLS as a layer between a socket and its [`Io`](crate::Io): ciphertext in, plaintext out, and
//! back.
//!
//! [`ServerTls`] belongs to a listener, [`ClientTls`] to a side that connects. A connection of
//! either has a session, which moves bytes by calls and knows no socket.

mod certificate;
mod client;
mod client_trust;
mod error;
mod failure;
mod path;
mod peer_certificate;
mod pem;
mod pipe;
mod provider;
mod server;
mod session;
mod signatures;
mod trusted_leaf;

use std::sync::Arc;

pub use certificate::{Validity, fingerprint};
pub use client::{ClientTls, ClientTlsOptions, Trust};
pub use client_trust::{ClientAuthorities, ClientTrust};
pub use error::{ConfigPart, TlsConfigError};
pub use failure::{CertificateFault, TlsFailure, TlsFailureKind};
pub use peer_certificate::{PeerCertificate, SubjectName};
pub use pipe::TlsPipe;
pub use server::{ServerTls, ServerTlsOptions};
pub(crate) use session::{Session, sealed_bytes};

/// What the two sides of a connection have agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The application protocol by its name in ALPN (RFC 7301), such as `h2`; `None`: the peer
    /// named none.
    pub application: Option<Vec<u8>>,
    /// Whether an earlier session was resumed.
    pub resumed: bool,
    /// What the client has shown, on the side of the server; `None`: no certificate.
    pub certificate: Option<Arc<PeerCertificate>>,
}
