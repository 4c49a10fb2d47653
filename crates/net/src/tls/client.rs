//! The side that connects.

use std::sync::Arc;

use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, UnbufferedClientConnection};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, RootCertStore};

use super::error::TlsConfigError;
use super::provider::provider;
use super::session::Session;
use super::signatures::check_signatures;
use super::trusted_leaf::{ServerVerifier, TrustedCertificates};
use super::{TlsFailure, TlsFailureKind, TlsPipe, pem};
use crate::Address;
use crate::limits::CLIENT_SESSIONS;

/// Whom a client believes.
#[derive(Clone, Copy, Debug)]
pub enum Trust<'a> {
    /// The authorities that this system trusts.
    System,
    /// Those with these certificates in PEM, and servers that show one of these certificates
    /// themselves; no others.
    Authorities(&'a [u8]),
    /// Everybody: the connection is secret, and whoever answers may be anybody. For tests.
    Anybody,
}

/// How a client connects.
#[derive(Clone, Copy, Debug)]
pub struct ClientTlsOptions<'a> {
    /// Whom it believes.
    pub trust: Trust<'a>,
    /// Its own certificate and private key in PEM, for a server that asks for one.
    pub identity: Option<(&'a [u8], &'a [u8])>,
    /// The name that the server's certificate must have; `None`: that of the address.
    pub server_name: Option<&'a str>,
    /// Application protocols by their names in ALPN, the preferred one first.
    pub applications: &'a [&'a [u8]],
}

/// TLS of connections that this side opens. A handle: clones share remembered sessions.
#[derive(Clone, Debug)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    server_name: Option<ServerName<'static>>,
}

impl ClientTls {
    /// Checks everything and makes it ready. Reads the authorities of the system if it is to trust
    /// them.
    ///
    /// # Errors
    /// If something cannot be read or does not fit together.
    pub fn new(options: &ClientTlsOptions<'_>) -> Result<ClientTls, TlsConfigError> {
        let provider = provider();
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsConfigError::of(&error))?;
        let builder = match options.trust {
            Trust::System | Trust::Authorities(_) => {
                let trusted = match options.trust {
                    Trust::Authorities(text) => TrustedCertificates::of_pem(text)?,
                    _ => TrustedCertificates::of_roots(system_authorities()?),
                };
                let verifier = ServerVerifier::new(trusted, Arc::clone(&provider))?;
                // All that it leaves to us is which leaves are trusted themselves, and how much of
                // a chain is looked at.
                builder
                    .dangerous()
                    .with_custom_certificate_verifier(Arc::new(verifier))
            }
            Trust::Anybody => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Anybody {
                    algorithms: provider.signature_verification_algorithms,
                })),
        };
        let mut config = match options.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => builder
                .with_client_auth_cert(pem::certificates(certificate)?, pem::key(key)?)
                .map_err(|error| TlsConfigError::of(&error))?,
        };
        config.alpn_protocols = options
            .applications
            .iter()
            .map(|name| name.to_vec())
            .collect();
        config.resumption = Resumption::in_memory_sessions(CLIENT_SESSIONS);
        Ok(ClientTls {
            config: Arc::new(config),
            server_name: options.server_name.map(name).transpose()?,
        })
    }

    /// A session for a connection to this address; its first word waits in the output.
    ///
    /// # Errors
    /// If the address has no name that a certificate could have.
    pub fn connect(&self, address: &Address) -> Result<TlsPipe, TlsFailure> {
        TlsPipe::new(self.session(address)?)
    }

    pub(crate) fn session(&self, address: &Address) -> Result<Session, TlsFailure> {
        let failed = |reason: String| TlsFailure {
            reason,
            ..TlsFailure::new(TlsFailureKind::Broken)
        };
        let server_name = match (&self.server_name, address) {
            (Some(name), _) => name.clone(),
            (None, Address::Tcp { host, .. }) => {
                name(host).map_err(|error| failed(error.to_string()))?
            }
            (None, Address::Unix(_)) => name("localhost").expect("it is a name"),
        };
        UnbufferedClientConnection::new(Arc::clone(&self.config), server_name)
            .map(Session::client)
            .map_err(|error| failed(error.to_string()))
    }
}

fn name(text: &str) -> Result<ServerName<'static>, TlsConfigError> {
    ServerName::try_from(text.to_owned()).map_err(|_| TlsConfigError::BadName(text.into()))
}

fn system_authorities() -> Result<RootCertStore, TlsConfigError> {
    let found = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    // Systems come with some certificates that cannot be used; nobody misses them.
    store.add_parsable_certificates(found.certs);
    if store.is_empty() {
        let why = match found.errors.first() {
            None => "this system has none".into(),
            Some(error) => format!("this system has none that can be read ({error})"),
        };
        return Err(TlsConfigError::BadAuthorities(why));
    }
    Ok(store)
}

/// Believes every certificate, and still checks that the peer has its key.
#[derive(Debug)]
struct Anybody {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    check_signatures!();
}
