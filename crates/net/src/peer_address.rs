//! Where a peer is, and which addresses are those of one peer.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Where a peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerAddress {
    /// A TCP peer.
    Tcp(SocketAddr),
    /// A process on this machine, through a UNIX socket. Such peers have no address.
    Unix,
    /// A node of a simulated network, by its index.
    Simulated(u32),
}

impl PeerAddress {
    /// Whether the peer is on this machine: loopback, a UNIX socket, a simulated node.
    pub fn is_local(&self) -> bool {
        match self {
            PeerAddress::Tcp(address) => address.ip().to_canonical().is_loopback(),
            PeerAddress::Unix | PeerAddress::Simulated(_) => true,
        }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerAddress::Tcp(address) => address.fmt(f),
            PeerAddress::Unix => f.write_str("unix"),
            PeerAddress::Simulated(node) => write!(f, "node {node}"),
        }
    }
}

/// What counts as one peer, wherever peers are bounded: an IPv4 address, or the network of 64 bits
/// that an IPv6 address belongs to, since one site has all addresses of it at its disposal (RFC
/// 4291 section 2.5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressKey(IpAddr);

impl AddressKey {
    /// Returns the peer that has an address. An IPv4 address that is written as one of IPv6 is the
    /// same peer, and so is ::1 by itself: there is no network around it.
    pub fn of(ip: IpAddr) -> AddressKey {
        AddressKey(match ip.to_canonical() {
            IpAddr::V6(ip) if !ip.is_loopback() => {
                let network = u128::from(ip) & !u128::from(u64::MAX);
                IpAddr::V6(Ipv6Addr::from(network))
            }
            ip => ip,
        })
    }

    /// Returns the address, of IPv6 the first one of the network.
    pub fn address(self) -> IpAddr {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_network_of_64_bits_are_one_peer() {
        let key = |text: &str| AddressKey::of(text.parse().expect("an address"));
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:2"));
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:ffff:ffff:ffff"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
        assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
        assert_ne!(key("::1"), key("::"));
        for (text, shown) in [
            ("2001:db8::1:0:0:7", "2001:db8::"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("::1", "::1"),
        ] {
            assert_eq!(key(text).address().to_string(), shown);
        }
    }

    #[test]
    fn peers_on_this_machine_are_local() {
        for (text, is_local) in [
            ("127.0.0.1:9", true),
            ("[::1]:9", true),
            ("[::ffff:127.0.0.2]:9", true),
            ("192.0.2.1:9", false),
            ("[2001:db8::1]:9", false),
        ] {
            let peer = PeerAddress::Tcp(text.parse().expect("an address"));
            assert_eq!(peer.is_local(), is_local, "{text}");
        }
        assert!(PeerAddress::Unix.is_local() && PeerAddress::Simulated(1).is_local());
    }
}
