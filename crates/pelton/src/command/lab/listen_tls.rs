//! TLS of the commands of the lab that listen.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use net::tls::{ConfigPart, ServerTls, ServerTlsOptions};

use crate::exit::Failure;

/// TLS with the certificate and the key of --listen-tls-cert and --listen-tls-key; `None`: plain.
pub(super) fn listen_tls(
    certificate: Option<&PathBuf>,
    key: Option<&PathBuf>,
) -> Result<Option<ServerTls>, Failure> {
    let (Some(certificate), Some(key)) = (certificate, key) else {
        return Ok(None);
    };
    let read = |flag: &str, path: &Path| {
        fs::read(path).map_err(|error| {
            Failure::Failed(format!("{flag}: cannot read {}: {error}", path.display()))
        })
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let options = ServerTlsOptions {
        certificate: &read("--listen-tls-cert", certificate)?,
        key: &read("--listen-tls-key", key)?,
        client_authorities: None,
        client_certificate_optional: true,
        applications: &[client::APPLICATION],
        now_s: now.map_or(0, |since| since.as_secs()),
    };
    let tls = ServerTls::new(&options).map_err(|error| {
        let (flag, path) = match error.part() {
            ConfigPart::Key => ("--listen-tls-key", key),
            _ => ("--listen-tls-cert", certificate),
        };
        Failure::Failed(format!("{flag} {}: {error}", path.display()))
    })?;
    Ok(Some(tls))
}
