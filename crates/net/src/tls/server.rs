//! The side that listens.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::crypto::ring::Ticketer;
use rustls::server::{NoServerSessionStorage, UnbufferedServerConnection};

use super::certificate::{self, Validity};
use super::client_trust::ClientAuthorities;
use super::error::TlsConfigError;
use super::provider::provider;
use super::session::Session;
use super::trusted_leaf::{ClientVerifier, TrustedCertificates};
use super::{TlsFailure, TlsPipe, pem};

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
    clients: ClientAuthorities,
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
        let (current, verifier) = make(options)?;
        Ok(ServerTls {
            current: Arc::new(RwLock::new(current)),
            clients: ClientAuthorities::new(verifier),
        })
    }

    /// Takes another certificate, key and authorities for new connections; those that are open go
    /// on. Sessions from before are not resumed, so that whoever the new authorities would refuse
    /// is refused. Returns whether an authority was taken away: then the [`ClientTrust`] of open
    /// connections is to be checked.
    ///
    /// [`ClientTrust`]: super::ClientTrust
    ///
    /// # Errors
    /// As [`ServerTls::new`]; what was in use stays in use then.
    pub fn replace(&self, options: &ServerTlsOptions<'_>) -> Result<bool, TlsConfigError> {
        let (current, verifier) = make(options)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = current;
        // Behind it: see `accept`.
        Ok(self.clients.replace(verifier))
    }

    /// Returns the authorities by which clients are checked.
    pub fn clients(&self) -> &ClientAuthorities {
        &self.clients
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

    /// TLS of a connection that was accepted, for whoever owns its socket.
    ///
    /// # Errors
    /// If there is no randomness, or no memory for it.
    pub fn accept_pipe(&self) -> Result<TlsPipe, TlsFailure> {
        TlsPipe::new(self.accept()?)
    }

    /// A session for a connection that was accepted.
    pub(crate) fn accept(&self) -> Result<Session, TlsFailure> {
        // Before the authorities: one that is taken away in between is looked for once more.
        let version = self.clients.version();
        let accepted_by = (self.clients.clone(), version);
        UnbufferedServerConnection::new(self.current().config)
            .map(|connection| Session::server(connection, accepted_by))
            .map_err(|error| TlsFailure::of(&error, false))
    }

    fn current(&self) -> Current {
        // Nothing under this lock can panic half-way.
        let current = self.current.read();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Returns what is new, and what checks clients by it.
fn make(
    options: &ServerTlsOptions<'_>,
) -> Result<(Current, Option<Arc<ClientVerifier>>), TlsConfigError> {
    let chain = pem::certificates(options.certificate)?;
    let validity = Validity::of(&chain[0])?;
    validity.check(options.now_s)?;
    let names_hosts = certificate::names_hosts(&chain[0]);
    let key = pem::key(options.key)?;
    let provider = provider();
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsConfigError::of(&error))?;
    let clients = match options.client_authorities {
        None => None,
        Some(text) => {
            let trusted = TrustedCertificates::of_clients(text)?;
            let is_mandatory = !options.client_certificate_optional;
            let verifier = ClientVerifier::new(trusted, is_mandatory, provider)?;
            Some(Arc::new(verifier))
        }
    };
    let builder = match &clients {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier) as _),
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
    let current = Current {
        config: Arc::new(config),
        validity,
        names_hosts,
    };
    Ok((current, clients))
}
