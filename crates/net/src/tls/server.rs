//! The side that listens.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::crypto::ring::Ticketer;
use rustls::server::{NoServerSessionStorage, UnbufferedServerConnection};

use super::certificate::{self, Validity};
use super::error::TlsConfigError;
use super::provider::provider;
use super::session::Session;
use super::trusted_leaf::{ClientVerifier, TrustedCertificates};
use super::{TlsFailure, pem};

/// What a server shows and asks for.
#[derive(Clone, Copy, Debug)]
pub struct ServerTlsOptions<'a> {
    /// Its certificate in PEM, followed by those of the authorities between it and a root.
    pub certificate: &'a [u8],
    /// The private key of the certificate, in PEM.
    pub key: &'a [u8],
    /// Certificates, in PEM, of the authorities that sign those of clients, or of clients
    /// themselves: clients are asked for one (mutual TLS).
    pub client_authorities: Option<&'a [u8]>,
    /// Whether clients without a certificate are let in as well. One that is not trusted ends the
    /// handshake in any case.
    pub client_certificate_optional: bool,
    /// Application protocols by their names in ALPN, the preferred one first.
    pub applications: &'a [&'a [u8]],
    /// Seconds since 1970: a certificate that is not valid now is refused.
    pub now_s: u64,
}

/// TLS of listeners. A handle: clones share what [`ServerTls::replace`] changes.
#[derive(Clone, Debug)]
pub struct ServerTls {
    current: Arc<RwLock<Current>>,
}

#[derive(Clone, Debug)]
struct Current {
    config: Arc<ServerConfig>,
    validity: Validity,
    names_hosts: bool,
}

impl ServerTls {
    /// Checks everything and makes it ready.
    ///
    /// # Errors
    /// If something cannot be read, does not fit together, or is not valid now.
    pub fn new(options: &ServerTlsOptions<'_>) -> Result<ServerTls, TlsConfigError> {
        Ok(ServerTls {
            current: Arc::new(RwLock::new(make(options)?)),
        })
    }

    /// Takes another certificate, key and authorities for new connections; those that are open go
    /// on. Sessions from before are not resumed, so that whoever the new authorities would refuse
    /// is refused.
    ///
    /// # Errors
    /// As [`ServerTls::new`]; what was in use stays in use then.
    pub fn replace(&self, options: &ServerTlsOptions<'_>) -> Result<(), TlsConfigError> {
        let made = make(options)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = made;
        Ok(())
    }

    /// How long the certificate in use is valid.
    pub fn validity(&self) -> Validity {
        self.current().validity
    }

    /// Whether the certificate in use says for which hosts it holds. No client believes one that
    /// does not.
    pub fn names_hosts(&self) -> bool {
        self.current().names_hosts
    }

    /// A session for a connection that was accepted.
    pub(crate) fn accept(&self) -> Result<Session, TlsFailure> {
        UnbufferedServerConnection::new(self.current().config)
            .map(Session::server)
            .map_err(|error| TlsFailure::of(&error, false))
    }

    fn current(&self) -> Current {
        // Nothing under this lock can panic half-way.
        let current = self.current.read();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn make(options: &ServerTlsOptions<'_>) -> Result<Current, TlsConfigError> {
    let chain = pem::certificates(options.certificate)?;
    let validity = Validity::of(&chain[0])?;
    validity.check(options.now_s)?;
    let names_hosts = certificate::names_hosts(&chain[0]);
    let key = pem::key(options.key)?;
    let provider = provider();
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsConfigError::of(&error))?;
    let builder = match options.client_authorities {
        None => builder.with_no_client_auth(),
        Some(text) => {
            let trusted = TrustedCertificates::of_clients(text)?;
            let is_mandatory = !options.client_certificate_optional;
            let verifier = ClientVerifier::new(trusted, is_mandatory, provider)?;
            builder.with_client_cert_verifier(Arc::new(verifier))
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| TlsConfigError::of(&error))?;
    config.alpn_protocols = options
        .applications
        .iter()
        .map(|name| name.to_vec())
        .collect();
    // Tickets hold the session at the client: nothing to bound here.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = Ticketer::new().map_err(|_| TlsConfigError::NoRandomness)?;
    Ok(Current {
        config: Arc::new(config),
        validity,
        names_hosts,
    })
}
