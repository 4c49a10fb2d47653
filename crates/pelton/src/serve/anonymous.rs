//! What callers without a token may do, by the address to which they come.

use std::path::Path;

use net::Address;
use server::TimeSource;
use service::Shared;
use service::identities::UsableBindings;
use service::rights::{Grant, Rights, Scope};
use store::Store;

use super::reach::Reach;
use crate::arguments::ClientAuth;
use crate::exit::Failure;
use crate::listen::{Anonymous, ListenAddress};
use crate::settings::Settings;
use crate::time_source::SystemTimeSource;

/// Returns what callers without a token may do, by listener. If nothing was said: everything on
/// this machine, nothing from elsewhere.
pub(super) fn anonymous(settings: &Settings) -> Vec<Rights> {
    let rights = |listen: &ListenAddress| match listen.anonymous() {
        Some(anonymous) => anonymous.rights(),
        None if is_of_network(listen, settings) => Rights::default(),
        None => Rights::everything(),
    };
    settings.addresses().iter().map(rights).collect()
}

fn is_of_network(listen: &ListenAddress, settings: &Settings) -> bool {
    Reach::of(&listen.address, settings.unix_mode.0) == Reach::Network
}

/// Returns which bindings callers can prove at the addresses where the server listens.
pub(super) fn usable_bindings(settings: &Settings) -> UsableBindings {
    let has_certificate = settings.certificate().is_some();
    let addresses = settings.addresses();
    UsableBindings {
        certificates: settings.client_ca.is_some()
            && addresses.iter().any(|one| one.has_tls(has_certificate)),
        users: (addresses.iter()).any(|one| matches!(one.address, Address::Unix(_))),
    }
}

/// Returns whether anybody can prove who it is: tokens that have expired let nobody in, and so do
/// bindings that nobody can show here.
pub(super) fn has_usable_identity(settings: &Settings, shared: &Shared) -> bool {
    let now_ms = shared.store.clock_ms(SystemTimeSource.wall_ms());
    (shared.identities).has_usable(usable_bindings(settings), now_ms)
}

/// Refuses what [`check`] will refuse, where there can be no token yet, without a data folder, and
/// none is to be made.
pub(super) fn check_before_start(settings: &Settings, makes_token: bool) -> Result<(), Failure> {
    match makes_token || settings.folder().is_some_and(Path::exists) {
        true => Ok(()),
        false => check(settings, false),
    }
}

/// Refuses to listen where everybody may come, nobody can prove who it is, and nothing was said of
/// those who cannot.
pub(super) fn check(settings: &Settings, has_identity: bool) -> Result<(), Failure> {
    let addresses = settings.addresses();
    let is_open = |one: &&ListenAddress| one.anonymous().is_none() && is_of_network(one, settings);
    let Some(address) = addresses.iter().find(is_open).filter(|_| !has_identity) else {
        return Ok(());
    };
    Err(Failure::Failed(format!(
        "{address} can be reached from the network, and there is no token that is good: nobody \
         could call it. {}",
        advice(settings, address)
    )))
}

/// What to add to the command: its other flags stay as they are.
fn advice(settings: &Settings, address: &ListenAddress) -> String {
    let original = settings.original_ports.as_ref();
    match original.filter(|original| original.addresses().any(|one| one == *address)) {
        Some(original) => format!(
            "Its original clients can send no token. Say behind the host which of the two services \
             everybody may use, and leave out what is not needed:\n    \
             --original-ports={original}+anonymous=service:gupload,service:ydb-ping\n\
             or leave nothing but the machine itself:\n    \
             --original-ports"
        ),
        None => format!(
            "Either have an administrator's token made, by one more flag:\n    \
             --init-admin\n\
             or say what callers without a token may do there, and no more than they need (none, \
             read:DATABASE, write:DATABASE, service:kvstore; see pelton serve --help):\n    \
             --listen {address}+anonymous=read:default"
        ),
    }
}

/// Returns what the line of a listener says of callers without a token.
pub(super) fn words(listen: &ListenAddress, reach: Reach) -> String {
    match (listen.anonymous(), reach) {
        (Some(anonymous), _) => format!("; without a token: {anonymous}"),
        (None, Reach::Network) => "; without a token: none".to_owned(),
        (None, _) => "; without a token: everything".to_owned(),
    }
}

/// Puts into the log which rights of callers without a token are of databases that are not there.
pub(super) fn warn_of_databases(settings: &Settings, store: &Store) {
    for listen in settings.addresses() {
        let grants = listen.anonymous().map_or(&[][..], Anonymous::grants);
        for name in grants.iter().filter_map(Grant::database) {
            if !name.is_empty() && store.database(name).is_none() {
                tracing::warn!(
                    "callers without a token have a right in the database `{name}` at {listen}, \
                     and there is none of this name: `pelton database create {name}` makes it"
                );
            }
        }
    }
}

/// Puts into the log what the network may do through a listener without a token, and that tokens
/// could be seen on their way.
pub(super) fn warn_of_listener(settings: &Settings, address: &Address, listen: &ListenAddress) {
    if Reach::of(address, settings.unix_mode.0) != Reach::Network {
        return;
    }
    let has_tls = listen.has_tls(settings.certificate().is_some());
    // Who must show a certificate of an authority that the operator has named is not everybody.
    let is_required = settings.client_auth == ClientAuth::Required;
    let is_guarded = settings.client_ca.is_some() && is_required && has_tls;
    let grants = listen.anonymous().map_or(&[][..], Anonymous::grants);
    for grant in grants.iter().filter(|_| !is_guarded) {
        match grant {
            Grant::DropIn(service) => tracing::warn!(
                "whoever can reach {address} can do without a token all that the drop-in service \
                 {} does: its original clients can send none",
                service.name()
            ),
            Grant::In(right, Scope::Server) => tracing::warn!(
                "whoever can reach {address} has the right to {} everything there, without a token",
                right.name()
            ),
            Grant::In(..) | Grant::Role(_) => tracing::warn!(
                "whoever can reach {address} has the right `{grant}` there, without a token"
            ),
        }
    }
    if !has_tls {
        tracing::warn!(
            "what is sent to {address} goes in plain text, tokens too: a certificate gives it TLS \
             (--tls-cert, or --auth of tkrzw-server)"
        );
    }
}
