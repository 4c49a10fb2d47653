//! TLS as the command line asks for it, and what to do when it fails.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use client::tls::{
    CertificateFault, ClientTls, ClientTlsOptions, ConfigPart, TlsConfigError, TlsFailure,
    TlsFailureKind, Trust,
};
use client::{Address, CallError, ConnectError, NotBegun};

use super::CONNECT_HINT;
use crate::arguments::TlsArguments;
use crate::exit::{CallFailure, Failure};

/// The file with the certificate that this process shows to servers, for what is said when one
/// refuses it.
static SHOWN_CERTIFICATE: OnceLock<PathBuf> = OnceLock::new();

/// TLS for connections; `None`: they are plain.
pub fn client_tls(arguments: &TlsArguments) -> Result<Option<ClientTls>, Failure> {
    if !arguments.is_wanted() {
        return Ok(None);
    }
    if let Some(path) = &arguments.tls_cert {
        SHOWN_CERTIFICATE.get_or_init(|| path.clone());
    }
    let authorities = read("--tls-ca", arguments.tls_ca.as_deref())?;
    let certificate = read("--tls-cert", arguments.tls_cert.as_deref())?;
    let key = read("--tls-key", arguments.tls_key.as_deref())?;
    let options = ClientTlsOptions {
        trust: match &authorities {
            _ if arguments.tls_insecure => Trust::Anybody,
            Some(text) => Trust::Authorities(text),
            None => Trust::System,
        },
        identity: certificate.as_deref().zip(key.as_deref()),
        server_name: arguments.tls_server_name.as_deref(),
        applications: &[client::APPLICATION],
    };
    let tls = ClientTls::new(&options).map_err(|error| config_failure(arguments, &error))?;
    Ok(Some(tls))
}

fn read(flag: &str, path: Option<&Path>) -> Result<Option<Vec<u8>>, Failure> {
    let read = path.map(|path| {
        let unread = |error| format!("{flag}: cannot read {}: {error}", path.display());
        fs::read(path).map_err(|error| Failure::Failed(unread(error)))
    });
    read.transpose()
}

fn config_failure(arguments: &TlsArguments, error: &TlsConfigError) -> Failure {
    let (flag, path) = match error.part() {
        ConfigPart::Certificate => ("--tls-cert", &arguments.tls_cert),
        ConfigPart::Key => ("--tls-key", &arguments.tls_key),
        ConfigPart::Authorities => ("--tls-ca", &arguments.tls_ca),
        ConfigPart::Other => ("--tls-server-name", &None),
    };
    match path {
        Some(path) => Failure::Failed(format!("{flag} {}: {error}", path.display())),
        None => Failure::Failed(format!("{error}; see {flag}")),
    }
}

/// Says why there is no connection, and which flag helps.
pub fn connect_failure(address: &Address, error: &ConnectError) -> Failure {
    connect_failure_of(address, error, CONNECT_HINT)
}

/// The same for a server that another flag than --address names: `flag_hint` says which.
pub fn connect_failure_of(address: &Address, error: &ConnectError, flag_hint: &str) -> Failure {
    let hint = match error {
        ConnectError::Tls { failure, .. } => match failure.kind {
            TlsFailureKind::NotTls | TlsFailureKind::Ended => plain_hint(),
            TlsFailureKind::RefusedByPeer => alert_hint(&failure.to_string(), shown_certificate()),
            _ => tls_hint(failure).into(),
        },
        ConnectError::TokenWithoutTls { .. } => {
            "--tls or --tls-ca speaks TLS; --token-without-tls sends the token all the same".into()
        }
        ConnectError::Failed {
            address: Address::Unix(_),
            error,
        } if error.kind() == ErrorKind::PermissionDenied => {
            "this user may not open the socket, or a folder on its path: by default only the user \
             of the server may, --unix-mode 660 of `pelton serve` lets its group in"
                .into()
        }
        _ => flag_hint.into(),
    };
    let what = match error {
        ConnectError::NobodyListens {
            address: Address::Unix(path),
        } if !path.exists() => format!("cannot connect to {address}: there is no such socket"),
        error => error.to_string(),
    };
    let failure = CallFailure {
        what,
        address: address.to_string(),
        status: None,
        hint,
        names_nothing: false,
        is_miss: false,
    };
    failure.into()
}

/// The variables that ask for TLS.
const TLS_VARIABLES: [&str; 5] = [
    "PELTON_TLS",
    "PELTON_TLS_CA",
    "PELTON_TLS_CLIENT_CERT",
    "PELTON_TLS_CLIENT_KEY",
    "PELTON_TLS_SERVER_NAME",
];

/// How to have a plain connection: nobody who has set a variable long ago has a flag to leave out.
fn plain_hint() -> String {
    let has_flag = std::env::args_os().any(|word| word.to_string_lossy().starts_with("--tls"));
    let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let set: Vec<&str> = TLS_VARIABLES.into_iter().filter(is_set).collect();
    match set.is_empty() || has_flag {
        true => "without --tls the connection is plain".into(),
        false => format!(
            "{} asks for TLS: `{}= pelton …` connects plain",
            set.join(" and "),
            set.join("= ")
        ),
    }
}

fn tls_hint(failure: &TlsFailure) -> &'static str {
    match failure.kind {
        TlsFailureKind::Certificate => certificate_hint(failure.fault),
        _ => "the log of the server may say more",
    }
}

fn certificate_hint(fault: Option<CertificateFault>) -> &'static str {
    match fault {
        Some(CertificateFault::UnknownIssuer) => {
            "--tls-ca names the certificate of the authority that signed the server's, or the \
             server's own"
        }
        Some(CertificateFault::IsAuthority) => {
            "if it is the right one, --tls-ca with this very certificate trusts it"
        }
        Some(CertificateFault::WrongName) => {
            "--tls-server-name says which name the certificate must have, if it is not that of \
             --address"
        }
        Some(CertificateFault::NoName) => {
            "the server needs a certificate that names its host: make it with -addext \
             subjectAltName=DNS:HOST (or IP:ADDRESS) of openssl req"
        }
        Some(CertificateFault::OutOfDate) => {
            "the server needs a new certificate, unless a clock is wrong (date -u)"
        }
        Some(CertificateFault::OldVersion) => {
            "the server needs a certificate of version 3 with its name as subjectAltName"
        }
        None => "the server needs another certificate",
    }
}

/// What to do about a server that speaks TLS where nothing asked for it.
pub const TLS_HINT: &str = "--tls speaks TLS, --tls-ca names the authority to believe";

/// What to do about a call that failed, if TLS has to do with it.
pub fn call_hint(error: &CallError) -> String {
    let (CallError::ConnectionLost { reason } | CallError::NotBegun(NotBegun::Closing { reason })) =
        error
    else {
        return String::new();
    };
    if reason == client::SERVER_SPEAKS_TLS {
        TLS_HINT.into()
    } else if reason.contains(ALERT) {
        alert_hint(reason, shown_certificate())
    } else {
        String::new()
    }
}

/// The message of a call that failed, without the advice to try again where the same handshake
/// would fail again.
pub fn without_vain_advice(message: &str) -> String {
    match message.contains(ALERT) {
        true => message.replace("; try again", ""),
        false => message.to_owned(),
    }
}

/// What stands in the reason of a connection that the server has given up during the handshake.
const ALERT: &str = "gave up with the alert";

fn shown_certificate() -> Option<&'static Path> {
    SHOWN_CERTIFICATE.get().map(PathBuf::as_path)
}

/// What to do about an alert of the server (RFC 8446 section 6.2), which is about the certificate
/// in the file that is shown.
fn alert_hint(reason: &str, shown: Option<&Path>) -> String {
    let alert = reason.split_once(ALERT).map_or("", |(_, rest)| rest.trim());
    let alert = alert.split(|one: char| !one.is_alphanumeric()).next();
    let Some(file) = shown.map(Path::display) else {
        return "--tls-cert and --tls-key show a certificate to a server that asks for one".into();
    };
    match alert.unwrap_or_default() {
        "UnknownCA" => format!(
            "the server does not trust the certificate in {file} (--tls-cert): it was signed by \
             none of the authorities of its --client-ca"
        ),
        "CertificateExpired" => format!(
            "the certificate in {file} (--tls-cert) has run out: get a new one, unless a clock is \
             wrong (date -u)"
        ),
        "CertificateRevoked" => format!("the certificate in {file} (--tls-cert) was revoked"),
        _ => format!(
            "the server refuses the certificate in {file} (--tls-cert); its log may say more"
        ),
    }
}

#[cfg(test)]
#[test]
fn an_alert_names_the_certificate_that_was_refused() {
    let file = Some(Path::new("worker.pem"));
    for (alert, shown, expected) in [
        (
            "UnknownCA",
            file,
            "does not trust the certificate in worker.pem",
        ),
        (
            "CertificateExpired",
            file,
            "the certificate in worker.pem (--tls-cert) has run out",
        ),
        (
            "BadCertificate",
            file,
            "refuses the certificate in worker.pem",
        ),
        (
            "CertificateRequired",
            None,
            "--tls-cert and --tls-key show a certificate",
        ),
    ] {
        for reason in [
            format!("the server gave up with the alert {alert}"),
            format!("(the peer gave up with the alert {alert}); try again"),
        ] {
            let hint = alert_hint(&reason, shown);
            assert!(hint.contains(expected), "{hint}");
            assert!(!without_vain_advice(&reason).contains("try again"));
        }
    }
    let other = "as many calls as the server allows are open; try again";
    assert_eq!(without_vain_advice(other), other);
}

#[cfg(test)]
#[test]
fn a_socket_that_may_not_be_opened_names_the_mode() {
    let text = |address: &str, kind: ErrorKind| {
        let address: Address = address.parse().expect(address);
        let error = ConnectError::Failed {
            address: address.clone(),
            error: kind.into(),
        };
        connect_failure(&address, &error).to_string()
    };
    let denied = ErrorKind::PermissionDenied;
    assert!(text("unix:/a.sock", denied).contains("--unix-mode 660"));
    // Elsewhere it is a firewall.
    assert!(!text("127.0.0.1:1", denied).contains("--unix-mode"));
    assert!(!text("unix:/a.sock", ErrorKind::OutOfMemory).contains("--unix-mode"));
}
