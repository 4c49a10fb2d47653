//! What the server prints when it serves.

use std::net::SocketAddr;

use server::Server;
use store::DatabaseId;
use store::remote::RemoteStore;

use super::INFO;
use super::anonymous::words;
use super::reach::Reach;
use crate::certificate::ServerCertificate;
use crate::durability::DurabilityArgument;
use crate::output::{counted, print_patiently};
use crate::settings::Settings;
use crate::size::{MemoryLimit, Size};

/// Says on standard output what listens where, who can reach it, and what is stored how. Scripts
/// read the lines that begin with `listening on`. That nobody reads them is no reason to stop.
pub(super) fn announce(
    settings: &Settings,
    memory_limit_bytes: u64,
    server: &Server,
    metrics: Option<SocketAddr>,
    certificate: Option<&ServerCertificate>,
) {
    let mut text = format!("{} {}\n", INFO.name, INFO.version);
    for (address, listen) in server.addresses().iter().zip(&settings.addresses()) {
        let reach = Reach::of(address, settings.unix_mode.0);
        let secured = match listen.has_tls(certificate.is_some()) {
            true => "TLS",
            false => "plain",
        };
        let may = words(listen, reach);
        text.push_str(&format!(
            "listening on {address} ({secured}: gRPC, HTTP/2, baidu_std, SRPC): {reach}{may}\n"
        ));
    }
    if let Some(made) = certificate.and_then(|certificate| certificate.self_signed.as_ref()) {
        text.push_str(&format!(
            "certificate for a first try: clients trust it by {} (SHA-256 {}), such as pelton \
             status --tls-ca {}\n",
            made.authority.display(),
            made.fingerprint,
            made.authority.display()
        ));
    }
    if let Some(address) = metrics {
        text.push_str(&format!("metrics at http://{address}/metrics\n"));
    }
    let share = match settings.memory_limit {
        MemoryLimit::Percent(percent) => format!(" ({percent}% of what this process may use)"),
        MemoryLimit::Bytes(_) => String::new(),
    };
    text.push_str(&match server.remote() {
        Some(remote) => storage_engine(remote, settings),
        None => stored_here(settings, memory_limit_bytes, server, &share),
    });
    if settings.discard_uploads {
        text.push_str("uploads of gupload are thrown away (--discard-uploads)\n");
    }
    let _ = print_patiently(text.as_bytes());
}

/// What is stored where, if it is stored here.
fn stored_here(
    settings: &Settings,
    memory_limit_bytes: u64,
    server: &Server,
    share: &str,
) -> String {
    let default_database = server.shared().store.config(DatabaseId::DEFAULT);
    let (place, of_what) = match default_database.map(|config| config.kind) {
        Some(store::Kind::Disk) => ("on disk", " of memory"),
        _ => ("in memory", ""),
    };
    format!(
        "storing {place}, {}; at most {}{of_what}{share}\n",
        promise(settings),
        Size::rounded(memory_limit_bytes)
    )
}

/// The engine that has the databases, and what requests to it may hold here.
fn storage_engine(remote: &RemoteStore, settings: &Settings) -> String {
    let databases = remote.store().databases().len() as u64;
    let room_bytes = remote.room().limit_bytes() as u64;
    let engine = settings.engine.store.map(|store| store.to_string());
    format!(
        "storing on {} ({}), {}; nothing is kept here, and requests under way take at most {}\n",
        engine.as_deref().unwrap_or("a storage engine"),
        remote.backend().description(),
        counted(databases, "database", "databases"),
        Size::rounded(room_bytes)
    )
}

/// What the default database promises, and where its log is.
fn promise(settings: &Settings) -> String {
    let words = match settings.durability {
        DurabilityArgument::Synced => "a write is answered when it is on the device".into(),
        DurabilityArgument::Interval(span) => {
            format!("a power loss may take the writes of the last {span}")
        }
        DurabilityArgument::Written => {
            "writes survive the end of the server, not a power loss".into()
        }
        DurabilityArgument::Volatile => "everything is lost when the server stops".into(),
    };
    let durability = settings.durability;
    match settings.folder() {
        None => format!("{durability}: {words}"),
        Some(folder) if durability == DurabilityArgument::Volatile => format!(
            "{durability}: {words}, but what is in other databases (log in {})",
            folder.display()
        ),
        Some(folder) => format!("log in {}, {durability}: {words}", folder.display()),
    }
}
