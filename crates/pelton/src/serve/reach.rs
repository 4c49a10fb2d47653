//! Who can reach an address.

use std::fmt;
use std::net::{IpAddr, ToSocketAddrs};

use net::Address;

/// Who can reach an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    User,
    Group,
    Machine,
    Network,
}

impl Reach {
    /// Returns who can reach an address; a UNIX socket is reached by its permissions.
    pub(super) fn of(address: &Address, unix_mode: u32) -> Reach {
        let is_loopback = |host: &str| match host.parse::<IpAddr>() {
            Ok(ip) => ip.is_loopback(),
            // A name can stand for several addresses; all of them have to be this machine's own.
            Err(_) => (host, 0)
                .to_socket_addrs()
                .is_ok_and(|mut addresses| addresses.all(|address| address.ip().is_loopback())),
        };
        match address {
            Address::Tcp { host, .. } if is_loopback(host) => Reach::Machine,
            Address::Tcp { .. } => Reach::Network,
            Address::Unix(_) if unix_mode & 0o006 != 0 => Reach::Machine,
            Address::Unix(_) if unix_mode & 0o060 != 0 => Reach::Group,
            Address::Unix(_) => Reach::User,
        }
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reach::User => "reachable by this user's programs on this machine",
            Reach::Group => "reachable by programs of this user and group on this machine",
            Reach::Machine => "reachable from this machine only",
            Reach::Network => "reachable by everyone on the network",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(address: &str, unix_mode: u32) -> Reach {
        Reach::of(&address.parse().expect(address), unix_mode)
    }

    #[test]
    fn who_can_reach_what() {
        for (address, expected) in [
            ("127.0.0.1:1", Reach::Machine),
            ("127.9.9.9:1", Reach::Machine),
            ("[::1]:1", Reach::Machine),
            ("0.0.0.0:1", Reach::Network),
            ("[::]:1", Reach::Network),
            ("192.0.2.1:1", Reach::Network),
            ("unix:/x", Reach::User),
        ] {
            assert_eq!(reach(address, 0o600), expected, "{address}");
        }
        assert_eq!(reach("unix:/x", 0o660), Reach::Group);
        assert_eq!(reach("unix:/x", 0o666), Reach::Machine);
    }
}
