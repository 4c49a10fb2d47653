//! What lies between this machine and the server: nothing, a loopback, or a network card.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::files::SystemFiles;

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetPlace {
    /// Behind a UNIX socket.
    Unix,
    /// At this address.
    Ip(IpAddr),
    /// Its name could not be resolved.
    Unknown,
}

/// The way to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkWay {
    /// A UNIX socket of this machine.
    UnixSocket,
    /// An address of this machine: bytes go through the kernel alone.
    Loopback,
    /// A network card.
    Card {
        /// The name of the interface.
        interface: String,
        /// Its driver, if it has one.
        driver: Option<String>,
        /// Its speed in megabits a second, if it says.
        megabits: Option<u64>,
        /// The largest packet in bytes.
        mtu: Option<u64>,
    },
    /// The kernel does not say.
    Unknown,
}

impl NetworkWay {
    /// Finds the way by the kernel's tables.
    pub fn find(files: &dyn SystemFiles, place: &TargetPlace) -> NetworkWay {
        let address = match place {
            TargetPlace::Unix => return NetworkWay::UnixSocket,
            TargetPlace::Unknown => return NetworkWay::Unknown,
            TargetPlace::Ip(address) => address.to_canonical(),
        };
        let (is_own, interface) = match address {
            IpAddr::V4(address) => (is_own_v4(files, address), interface_v4(files, address)),
            IpAddr::V6(address) => (is_own_v6(files, address), interface_v6(files, address)),
        };
        match interface {
            _ if address.is_loopback() || is_own => NetworkWay::Loopback,
            Some(interface) if interface == "lo" => NetworkWay::Loopback,
            Some(interface) => NetworkWay::card(files, interface),
            None => NetworkWay::Unknown,
        }
    }

    fn card(files: &dyn SystemFiles, interface: String) -> NetworkWay {
        let path = |name: &str| format!("/sys/class/net/{interface}/{name}");
        // A card that is down, or none of metal, says -1 or nothing.
        let number = |name: &str| files.read(&path(name))?.trim().parse::<u64>().ok();
        NetworkWay::Card {
            driver: files.link(&path("device/driver")),
            megabits: number("speed"),
            mtu: number("mtu"),
            interface,
        }
    }

    /// The way in words.
    pub fn text(&self) -> String {
        match self {
            NetworkWay::UnixSocket => "a UNIX socket of this machine".into(),
            NetworkWay::Loopback => "loopback: server and generator share this machine".into(),
            NetworkWay::Unknown => "not known".into(),
            NetworkWay::Card {
                interface,
                driver,
                megabits,
                mtu,
            } => {
                let driver = driver.as_deref().unwrap_or("none named");
                let speed = megabits.map_or_else(String::new, |speed| format!(", {speed} Mbit/s"));
                let mtu = mtu.map_or_else(String::new, |mtu| format!(", MTU {mtu}"));
                format!("network card {interface} (driver {driver}{speed}{mtu})")
            }
        }
    }
}

/// Whether an address is one of this machine's: `/proc/net/fib_trie` has a line with the address,
/// and below it one that says so.
fn is_own_v4(files: &dyn SystemFiles, address: Ipv4Addr) -> bool {
    let Some(text) = files.read("/proc/net/fib_trie") else {
        return false;
    };
    let name = address.to_string();
    let lines: Vec<&str> = text.lines().collect();
    lines.windows(2).any(|pair| match pair {
        [one, next] => {
            one.split_whitespace().next_back() == Some(name.as_str())
                && next.contains("/32 host LOCAL")
        }
        _ => false,
    })
}

fn is_own_v6(files: &dyn SystemFiles, address: Ipv6Addr) -> bool {
    let text = files.read("/proc/net/if_inet6").unwrap_or_default();
    let digits = |line: &str| line.split_whitespace().next().map(str::to_owned);
    let own = format!("{:032x}", u128::from(address));
    text.lines()
        .any(|line| digits(line).as_deref() == Some(own.as_str()))
}

/// The interface of the longest route to an address in `/proc/net/route`: name, destination,
/// gateway, flags, three counters, mask; addresses are hexadecimal in the order of this machine.
fn interface_v4(files: &dyn SystemFiles, address: Ipv4Addr) -> Option<String> {
    let address = u32::from_ne_bytes(address.octets());
    let text = files.read("/proc/net/route")?;
    let route = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let hex = |at: usize| u32::from_str_radix(fields.get(at)?, 16).ok();
        let (destination, mask) = (hex(1)?, hex(7)?);
        (address & mask == destination)
            .then(|| Some((mask.count_ones(), (*fields.first()?).to_owned())))?
    };
    let routes = text.lines().skip(1).filter_map(route);
    routes.max_by_key(|(bits, _)| *bits).map(|(_, name)| name)
}

/// The same of `/proc/net/ipv6_route`: destination, bits of its prefix, and the name last. Routes
/// that refuse are those of `lo` with no bits.
fn interface_v6(files: &dyn SystemFiles, address: Ipv6Addr) -> Option<String> {
    let address = u128::from(address);
    let text = files.read("/proc/net/ipv6_route")?;
    let route = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let destination = u128::from_str_radix(fields.first()?, 16).ok()?;
        let bits = u32::from_str_radix(fields.get(1)?, 16).ok()?;
        let mask = u128::MAX
            .checked_shl(128_u32.checked_sub(bits)?)
            .unwrap_or(0);
        let name = *fields.last()?;
        let is_usable = address & mask == destination && !(name == "lo" && bits == 0);
        is_usable.then(|| (bits, name.to_owned()))
    };
    let routes = text.lines().filter_map(route);
    routes.max_by_key(|(bits, _)| *bits).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::super::files::RecordedFiles;
    use super::*;

    const ROUTE: &str = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
tun0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0
";
    const TRIE: &str = "\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
           |-- 192.168.1.7
              /32 host LOCAL
           |-- 192.168.1.255
              /32 link BROADCAST
";
    const ROUTE_6: &str = "\
20010db8000000000000000000000000 40 0 00 0 00000100 00000001 00000000 00000001 eth1
00000000000000000000000000000000 00 0 00 0 00000400 00000001 00000000 00000003 eth0
00000000000000000000000000000000 00 0 00 0 ffffffff 00000001 00000000 00200200 lo
";

    fn recorded() -> RecordedFiles {
        RecordedFiles::new([
            ("/proc/net/route", ROUTE),
            ("/proc/net/fib_trie", TRIE),
            ("/proc/net/ipv6_route", ROUTE_6),
            (
                "/proc/net/if_inet6",
                "20010db8000000000000000000000007 02 40 00 80 eth1\n",
            ),
            ("/sys/class/net/eth0/device/driver", "virtio_net"),
            ("/sys/class/net/eth0/speed", "-1\n"),
            ("/sys/class/net/eth0/mtu", "1500\n"),
            ("/sys/class/net/eth1/speed", "25000\n"),
        ])
    }

    fn way(address: &str) -> NetworkWay {
        let address = address.parse().expect("an address");
        NetworkWay::find(&recorded(), &TargetPlace::Ip(address))
    }

    #[test]
    fn addresses_of_this_machine_are_loopback() {
        for address in [
            "127.0.0.1",
            "127.8.8.8",
            "::1",
            "192.168.1.7",
            "2001:db8::7",
        ] {
            assert_eq!(way(address), NetworkWay::Loopback, "{address}");
        }
        assert_eq!(way("::ffff:127.0.0.1"), NetworkWay::Loopback);
    }

    #[test]
    fn the_longest_route_names_the_card() {
        let interface = |address: &str| match way(address) {
            NetworkWay::Card { interface, .. } => interface,
            other => panic!("{address}: {other:?}"),
        };
        for (address, expected) in [
            ("192.168.1.8", "eth0"),
            ("192.168.1.255", "eth0"),
            ("10.1.2.3", "tun0"),
            ("8.8.8.8", "eth0"),
            ("2001:db8::8", "eth1"),
            ("2001:db9::8", "eth0"),
        ] {
            assert_eq!(interface(address), expected, "{address}");
        }
    }

    #[test]
    fn a_card_is_described_by_what_the_kernel_says() {
        assert_eq!(
            way("8.8.8.8").text(),
            "network card eth0 (driver virtio_net, MTU 1500)"
        );
        assert_eq!(
            way("2001:db8::8").text(),
            "network card eth1 (driver none named, 25000 Mbit/s)"
        );
    }

    #[test]
    fn what_the_kernel_does_not_say_is_not_known() {
        let nothing = RecordedFiles::default();
        let far = TargetPlace::Ip("8.8.8.8".parse().expect("an address"));
        assert_eq!(NetworkWay::find(&nothing, &far), NetworkWay::Unknown);
        let unknown = NetworkWay::find(&nothing, &TargetPlace::Unknown);
        assert_eq!(unknown, NetworkWay::Unknown);
        let unix = NetworkWay::find(&nothing, &TargetPlace::Unix);
        assert_eq!(unix, NetworkWay::UnixSocket);
    }
}
