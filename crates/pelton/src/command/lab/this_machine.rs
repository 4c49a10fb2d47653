//! Which addresses are of this machine alone.

use std::net::ToSocketAddrs;

use net::Address;

/// Whether an address is one of this machine, so that nobody else is disturbed, or listens.
pub(super) fn is_on_this_machine(address: &Address) -> bool {
    match address {
        Address::Unix(_) => true,
        Address::Tcp { host, port } => {
            let addresses = (host.as_str(), *port).to_socket_addrs();
            let addresses: Vec<_> = addresses.into_iter().flatten().collect();
            !addresses.is_empty() && addresses.iter().all(|address| address.ip().is_loopback())
        }
    }
}
