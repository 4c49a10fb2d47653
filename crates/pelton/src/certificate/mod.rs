//! The certificate of `pelton serve`: where it comes from, and how it is renewed while the server
//! runs.

mod self_signed;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use net::tls::ServerTls;
use server::tls::{Certificates, Reloaded, ReloadedParts, TlsFiles};
use server::{Server, TimeSource};
use service::Shared;

use crate::arguments::ClientAuth;
use crate::exit::Failure;
use crate::limits::{CERTIFICATE_POLL_MS, CERTIFICATE_WARNING_S};
use crate::settings::{CertificateSource, Settings};
use crate::time_source::SystemTimeSource;

pub use self_signed::SelfSigned;

/// Seconds since 1970, by the wall clock.
pub fn now_s() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    since_1970.unwrap_or_default().as_secs()
}

/// The certificate that a server uses, for all who have to do with it.
#[derive(Clone)]
pub struct ServerCertificate {
    tls: ServerTls,
    watched: Arc<Mutex<WatchedCertificate>>,
    /// What to tell the user of a certificate that was made for a first try.
    pub self_signed: Option<SelfSigned>,
}

/// The certificate of a server that runs.
#[derive(Clone)]
pub struct ServedCertificate {
    certificate: ServerCertificate,
    /// Whose connections are looked at when an authority is trusted no more.
    shared: Arc<Shared>,
}

impl ServedCertificate {
    /// That of this server.
    pub fn new(certificate: &ServerCertificate, server: &Server) -> ServedCertificate {
        ServedCertificate {
            certificate: certificate.clone(),
            shared: Arc::clone(server.shared()),
        }
    }

    /// From now on changed files are taken by themselves. The thread ends with the process.
    pub fn watch(&self) -> std::io::Result<()> {
        let this = self.clone();
        this.certificate.warn();
        this.certificate.warn_of_names();
        let thread = thread::Builder::new().name("pelton-certificate".into());
        thread.spawn(move || {
            loop {
                thread::sleep(Duration::from_millis(CERTIFICATE_POLL_MS));
                this.look(false);
            }
        })?;
        Ok(())
    }

    /// Takes the files anew if they have changed, and says in the log what came of it. `asked`: by
    /// somebody who wants an answer.
    pub fn look(&self, asked: bool) {
        if self.certificate.look(asked) {
            tracing::info!(
                "an authority is not in --client-ca any more: connections whose certificate it \
                 has signed are ended"
            );
            let now_ms = SystemTimeSource.wall_ms();
            self.shared.identities.check_certificates(now_ms);
        }
    }
}

struct WatchedCertificate {
    certificates: Certificates,
    /// It was said that this certificate runs out or has run out, by the time when it does.
    said_of_s: Option<u64>,
}

impl ServerCertificate {
    /// As the settings say; `None`: the server has none, and speaks no TLS.
    pub fn load(settings: &Settings) -> Result<Option<ServerCertificate>, Failure> {
        let (files, self_signed) = match settings.certificate() {
            None => return Ok(None),
            Some(CertificateSource::Files { certificate, key }) => {
                (files(certificate, key, settings), None)
            }
            Some(CertificateSource::SelfSigned(folder)) => {
                let made = SelfSigned::in_folder(folder, settings.hosts(), now_s())?;
                (files(&made.certificate, &made.key, settings), Some(made))
            }
        };
        let certificates = load(files)?;
        Ok(Some(ServerCertificate {
            tls: certificates.tls().clone(),
            watched: Arc::new(Mutex::new(WatchedCertificate {
                certificates,
                said_of_s: None,
            })),
            self_signed,
        }))
    }

    /// Checks that the files of the settings can be read and go together. Makes none.
    pub fn check(settings: &Settings) -> Result<(), Failure> {
        match settings.certificate() {
            Some(CertificateSource::Files { certificate, key }) => {
                load(files(certificate, key, settings)).map(drop)
            }
            // They may not have been made yet.
            Some(CertificateSource::SelfSigned(_)) | None => Ok(()),
        }
    }

    /// For listeners, and for who wants to know when it runs out.
    pub fn tls(&self) -> &ServerTls {
        &self.tls
    }

    /// Looks whether the files have changed, and says in the log what came of it. `asked`: by
    /// somebody who wants an answer. Returns whether an authority of clients is not there any more.
    fn look(&self, asked: bool) -> bool {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let ReloadedParts {
            certificate,
            authorities,
        } = watched.certificates.look(now_s(), asked);
        match &certificate {
            Ok(Reloaded::Same) => {}
            Ok(_) => {
                tracing::info!(
                    "the certificate was read anew: it is valid for another {} days",
                    self.left_s() / 86_400
                );
                self.warn_of_names();
            }
            Err(error) => tracing::error!("the certificate in use stays: {error}"),
        }
        match &authorities {
            Ok(Reloaded::Same) => {}
            Ok(_) => tracing::info!("the authorities of clients (--client-ca) were read anew"),
            Err(error) => tracing::error!(
                "the authorities of clients in use stay, also those that were to be taken away: \
                 {error}"
            ),
        }
        drop(watched);
        self.warn();
        matches!(authorities, Ok(Reloaded::AuthorityGone))
    }

    /// Says once of each certificate that it is about to run out, and once that it has.
    fn warn(&self) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let not_after_s = self.tls.validity().not_after_s;
        let left_s = self.left_s();
        let said_of_s = match left_s {
            0 => not_after_s,
            1..CERTIFICATE_WARNING_S => not_after_s - 1,
            _ => return,
        };
        if watched.said_of_s.replace(said_of_s) == Some(said_of_s) {
            return;
        }
        match left_s {
            0 => tracing::error!("the certificate has run out: clients will refuse it"),
            _ => tracing::warn!("the certificate runs out in {} days", left_s / 86_400),
        }
    }

    /// Says that clients will refuse a certificate without names.
    fn warn_of_names(&self) {
        if !self.tls.names_hosts() {
            tracing::warn!(
                "the certificate of this server names no host: it has no subjectAltName, and \
                 clients look nowhere else (not at its CN), so that they will refuse it; make one \
                 with -addext \"subjectAltName=DNS:HOST,IP:ADDRESS\", as docs/tls.md shows"
            );
        }
    }

    fn left_s(&self) -> u64 {
        self.tls.validity().not_after_s.saturating_sub(now_s())
    }
}

fn load(files: TlsFiles) -> Result<Certificates, Failure> {
    Certificates::load(files, now_s()).map_err(|error| {
        Failure::Failed(format!(
            "no TLS: {error}; --tls-cert, --tls-key and --client-ca say which files"
        ))
    })
}

fn files(certificate: &Path, key: &Path, settings: &Settings) -> TlsFiles {
    TlsFiles {
        certificate: certificate.into(),
        key: key.into(),
        client_authorities: settings.client_ca.clone(),
        client_certificate_optional: settings.client_auth == ClientAuth::Optional,
    }
}
