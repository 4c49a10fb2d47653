//! TLS to the nodes.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// How connections to nodes are protected.
pub type NodeTls = Arc<ClientConfig>;

/// Why there is no TLS to the nodes.
#[derive(Debug, thiserror::Error)]
pub enum NodeTlsError {
    /// No certificate is named.
    #[error("there is no certificate in it; certificates are expected, in PEM")]
    NoCertificate,
    /// What is there is none.
    #[error("what is in it is no certificate in PEM: {0}")]
    NotPem(rustls::pki_types::pem::Error),
    /// A certificate cannot be used.
    #[error("{0}")]
    Unusable(#[from] rustls::Error),
}

/// Returns the TLS that believes nodes whose certificates are one of these (PEM), or signed by one
/// of these, and name the IP address of the node.
///
/// # Errors
///
/// If these are no certificates.
pub fn tls_of(authorities: &[u8]) -> Result<NodeTls, NodeTlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authorities) {
        roots.add(certificate.map_err(NodeTlsError::NotPem)?)?;
    }
    if roots.is_empty() {
        return Err(NodeTlsError::NoCertificate);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(Arc::new(
        config.with_root_certificates(roots).with_no_client_auth(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_certificate_is_refused() {
        for (text, expected) in [
            (&b""[..], "there is no certificate in it"),
            (b"text", "there is no certificate in it"),
            (
                b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
                "PEM",
            ),
        ] {
            let error = tls_of(text).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
