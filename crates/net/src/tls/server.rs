//! The side that listens.

use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

use rustls::ServerConfig;
use rustls::crypto::ring::Ticketer;
use rustls::server::{NoServerSessionStorage, UnbufferedServerConnection};
use rustls::sign::{CertifiedKey, SingleCertAndKey};

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

/// TLS of listeners. A handle: clones share what [`ServerTls::replace_certificate`] and
/// [`ServerTls::replace_authorities`] change.
#[derive(Clone, Debug)]
pub struct ServerTls {
    current: Arc<RwLock<CurrentCertificate>>,
    clients: ClientAuthorities,
    applications: Vec<Vec<u8>>,
    client_certificate_optional: bool,
}

#[derive(Clone, Debug)]
struct CurrentCertificate {
    config: Arc<ServerConfig>,
    certificate: OwnCertificate,
    /// `None`: clients show no certificate.
    verifier: Option<Arc<ClientVerifier>>,
}

/// What a server shows.
#[derive(Clone, Debug)]
struct OwnCertificate {
    certified: Arc<CertifiedKey>,
    validity: Validity,
    names_hosts: bool,
}

impl ServerTls {
    /// Checks everything and makes it ready.
    ///
    /// # Errors
    /// If something cannot be read, does not fit together, or is not valid now.
    pub fn new(options: &ServerTlsOptions<'_>) -> Result<ServerTls, TlsConfigError> {
        let certificate = OwnCertificate::new(options.certificate, options.key, options.now_s)?;
        let is_mandatory = !options.client_certificate_optional;
        let verifier = options.client_authorities;
        let verifier = verifier.map(|text| verifier_of(text, is_mandatory));
        let verifier = verifier.transpose()?;
        let names = options.applications.iter();
        let applications: Vec<Vec<u8>> = names.map(|name| name.to_vec()).collect();
        let current = CurrentCertificate {
            config: config(&certificate, verifier.as_ref(), &applications)?,
            certificate,
            verifier: verifier.clone(),
        };
        Ok(ServerTls {
            current: Arc::new(RwLock::new(current)),
            clients: ClientAuthorities::new(verifier),
            applications,
            client_certificate_optional: options.client_certificate_optional,
        })
    }

    /// Takes another certificate with its key, in PEM, for new connections; those that are open go
    /// on. Sessions from before are not resumed. `now_s`: seconds since 1970.
    ///
    /// # Errors
    /// If something cannot be read, does not fit together, or is not valid now. What was in use
    /// stays in use then.
    pub fn replace_certificate(
        &self,
        certificate: &[u8],
        key: &[u8],
        now_s: u64,
    ) -> Result<(), TlsConfigError> {
        let certificate = OwnCertificate::new(certificate, key, now_s)?;
        let mut current = self.lock_current();
        current.config = config(&certificate, current.verifier.as_ref(), &self.applications)?;
        current.certificate = certificate;
        Ok(())
    }

    /// Takes other authorities of clients, in PEM, for new connections, whatever became of the
    /// certificate: who is trusted no more must not stay since that is broken. Sessions from before
    /// are not resumed, so that whoever the new authorities would refuse is refused. Returns
    /// whether an authority was taken away: then the [`ClientTrust`] of open connections is to be
    /// checked.
    ///
    /// [`ClientTrust`]: super::ClientTrust
    ///
    /// # Errors
    /// If there is none, or one that cannot be read. What was in use stays in use then.
    pub fn replace_authorities(&self, authorities: &[u8]) -> Result<bool, TlsConfigError> {
        let verifier = verifier_of(authorities, !self.client_certificate_optional)?;
        let mut current = self.lock_current();
        current.config = config(&current.certificate, Some(&verifier), &self.applications)?;
        current.verifier = Some(Arc::clone(&verifier));
        drop(current);
        // Behind it: see `accept`.
        Ok(self.clients.replace(Some(verifier)))
    }

    /// Returns the authorities by which clients are checked.
    pub fn clients(&self) -> &ClientAuthorities {
        &self.clients
    }

    /// How long the certificate in use is valid.
    pub fn validity(&self) -> Validity {
        self.current().certificate.validity
    }

    /// Whether the certificate in use says for which hosts it holds. No client believes one that
    /// does not.
    pub fn names_hosts(&self) -> bool {
        self.current().certificate.names_hosts
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

    fn current(&self) -> CurrentCertificate {
        // Whole values take each other's place: sound whoever panicked.
        let current = self.current.read();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lock_current(&self) -> RwLockWriteGuard<'_, CurrentCertificate> {
        self.current.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OwnCertificate {
    fn new(certificate: &[u8], key: &[u8], now_s: u64) -> Result<OwnCertificate, TlsConfigError> {
        let chain = pem::certificates(certificate)?;
        let validity = Validity::of(&chain[0])?;
        validity.check(now_s)?;
        let names_hosts = certificate::names_hosts(&chain[0]);
        let certified = CertifiedKey::from_der(chain, pem::key(key)?, &provider());
        Ok(OwnCertificate {
            certified: Arc::new(certified.map_err(|error| TlsConfigError::of(&error))?),
            validity,
            names_hosts,
        })
    }
}

/// Returns what checks clients by these authorities.
fn verifier_of(text: &[u8], is_mandatory: bool) -> Result<Arc<ClientVerifier>, TlsConfigError> {
    let trusted = TrustedCertificates::of_clients(text)?;
    ClientVerifier::new(trusted, is_mandatory, provider()).map(Arc::new)
}

fn config(
    certificate: &OwnCertificate,
    verifier: Option<&Arc<ClientVerifier>>,
    applications: &[Vec<u8>],
) -> Result<Arc<ServerConfig>, TlsConfigError> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsConfigError::of(&error))?;
    let builder = match verifier {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier) as _),
    };
    let certified = Arc::clone(&certificate.certified);
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.alpn_protocols = applications.to_vec();
    // Tickets hold the session at the client: nothing to bound here.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = Ticketer::new().map_err(|_| TlsConfigError::NoRandomness)?;
    Ok(Arc::new(config))
}
