//! Where an upload comes from, as far as that is known.

use std::net::{IpAddr, Ipv6Addr};

/// The peer of an upload, by which uploads are bounded: those of one peer make room for each other
/// first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UploadPeer {
    /// Not known, as of uploads that an earlier run of the server received: all these count as one
    /// peer.
    #[default]
    Unknown,
    /// A process of this machine, over a UNIX socket.
    Local,
    /// An address. Of IPv6 it is the network of 64 bits, since a single machine has all addresses
    /// of one.
    Address(IpAddr),
}

impl UploadPeer {
    /// Returns the peer with an address.
    pub fn with_address(address: IpAddr) -> UploadPeer {
        UploadPeer::Address(match address.to_canonical() {
            IpAddr::V6(address) if !address.is_loopback() => {
                let network = u128::from(address) & !u128::from(u64::MAX);
                IpAddr::V6(Ipv6Addr::from(network))
            }
            address => address,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_machine_are_one_peer() {
        let peer = |text: &str| UploadPeer::with_address(text.parse().expect("an address"));
        assert_eq!(peer("2001:db8::1"), peer("2001:db8::ffff:2"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
        assert_eq!(peer("::ffff:192.0.2.1"), peer("192.0.2.1"));
        assert_ne!(peer("192.0.2.1"), peer("192.0.2.2"));
        assert_ne!(peer("::1"), peer("::"));
    }
}
