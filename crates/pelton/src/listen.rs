//! Where a server listens, and whether with TLS.

use std::fmt;
use std::str::FromStr;

use net::Address;

/// An address with what `tls:` or `plain:` in front of it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    pub address: Address,
    /// `None`: as the server does by default, with TLS if it has a certificate.
    tls: Option<bool>,
}

impl ListenAddress {
    /// Whether TLS is spoken there, by a server that has a certificate or has none. On UNIX sockets
    /// it never is: who may connect there is decided by the permissions of the file.
    pub fn has_tls(&self, has_certificate: bool) -> bool {
        let is_unix = matches!(self.address, Address::Unix(_));
        self.tls.unwrap_or(has_certificate && !is_unix)
    }

    /// Whether `tls:` stands in front.
    pub fn asks_for_tls(&self) -> bool {
        self.tls == Some(true)
    }
}

impl From<Address> for ListenAddress {
    fn from(address: Address) -> ListenAddress {
        ListenAddress { address, tls: None }
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<ListenAddress, String> {
        let (tls, rest) = match text.split_once(':') {
            Some(("tls", rest)) => (Some(true), rest),
            Some(("plain", rest)) => (Some(false), rest),
            _ => (None, text),
        };
        let rest = match tls {
            Some(_) => rest.strip_prefix("//").unwrap_or(rest),
            None => rest,
        };
        let address = rest
            .parse()
            .map_err(|error: net::AddressError| error.to_string())?;
        if tls == Some(true) && matches!(address, Address::Unix(_)) {
            return Err(format!(
                "`{text}`: there is no TLS on UNIX sockets, who may connect is up to --unix-mode; \
                 write {address}"
            ));
        }
        Ok(ListenAddress { address, tls })
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.tls {
            None => "",
            Some(true) => "tls:",
            Some(false) => "plain:",
        })?;
        self.address.fmt(f)
    }
}

/// The ports that clients of drop-in services know, and whether their original servers can speak
/// TLS there.
const ORIGINAL_PORTS: [(u16, Option<bool>); 2] = [
    // gupload's server speaks TLS if it was given a certificate.
    (1313, None),
    // The YDB project's ping server is plain.
    (2137, Some(false)),
];

/// The host on which a server listens on the original ports of its drop-in services too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginalPorts {
    host: String,
}

impl OriginalPorts {
    /// The addresses.
    pub fn addresses(&self) -> impl Iterator<Item = ListenAddress> + '_ {
        ORIGINAL_PORTS.iter().map(|&(port, tls)| ListenAddress {
            address: Address::Tcp {
                host: self.host.clone(),
                port,
            },
            tls,
        })
    }
}

impl FromStr for OriginalPorts {
    type Err = String;

    fn from_str(text: &str) -> Result<OriginalPorts, String> {
        match format!("{text}:1").parse() {
            Ok(Address::Tcp { host, port: 1 }) => Ok(OriginalPorts { host }),
            _ => Err(format!(
                "`{text}` is no host; write a name or an address, such as 127.0.0.1 or [::1], \
                 without a port"
            )),
        }
    }
}

impl fmt::Display for OriginalPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]", self.host),
            false => f.write_str(&self.host),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn original_ports_are_of_a_host() {
        for (text, expected) in [
            ("127.0.0.1", ["127.0.0.1:1313", "plain:127.0.0.1:2137"]),
            ("[::1]", ["[::1]:1313", "plain:[::1]:2137"]),
            (
                "example.com",
                ["example.com:1313", "plain:example.com:2137"],
            ),
        ] {
            let ports: OriginalPorts = text.parse().expect(text);
            assert_eq!(ports.to_string(), text);
            let addresses: Vec<String> = ports.addresses().map(|one| one.to_string()).collect();
            assert_eq!(addresses, expected);
        }
        for text in ["", "127.0.0.1:5", "unix:/x", "::1"] {
            let error = text.parse::<OriginalPorts>().expect_err(text);
            assert!(error.contains("without a port"), "{error}");
        }
    }

    #[test]
    fn what_stands_in_front_decides() {
        for (text, without, with) in [
            ("127.0.0.1:1978", false, true),
            ("tls:[::1]:1978", true, true),
            ("plain:localhost:1978", false, false),
            ("unix:/run/x", false, false),
            ("plain:unix:/run/x", false, false),
        ] {
            let listen: ListenAddress = text.parse().expect(text);
            assert_eq!(listen.to_string(), text);
            assert_eq!(
                (listen.has_tls(false), listen.has_tls(true)),
                (without, with),
                "{text}"
            );
        }
        assert_eq!("tls://h:1".parse::<ListenAddress>(), "tls:h:1".parse());
        assert_eq!(
            "tls:5".parse::<ListenAddress>().expect_err("no port"),
            "`5` is a port without a host; write 127.0.0.1:5"
        );
        let error = "tls:unix:/x"
            .parse::<ListenAddress>()
            .expect_err("no TLS there");
        assert!(error.contains("--unix-mode"), "{error}");
    }
}
