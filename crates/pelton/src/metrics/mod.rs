//! Metrics for Prometheus: figures that the crates below count for themselves, added up when
//! somebody asks.

mod endpoint;
mod exposition;
mod folders;
mod page;
pub mod process;

use std::fmt;
use std::str::FromStr;

use net::Address;

pub use endpoint::{BoundEndpoint, Endpoint};
pub use folders::{FoldersReader, WatchedFolders};
pub use page::Sources;

/// Where metrics are served: a host and a port. A port alone is one of this machine's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsAddress {
    pub host: String,
    pub port: u16,
}

/// The host where only a port is given.
const OWN_HOST: &str = "127.0.0.1";

impl FromStr for MetricsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<MetricsAddress, String> {
        let port_alone = text.strip_prefix(':').unwrap_or(text);
        let whole =
            if !port_alone.is_empty() && port_alone.bytes().all(|byte| byte.is_ascii_digit()) {
                format!("{OWN_HOST}:{port_alone}")
            } else {
                text.to_owned()
            };
        match whole.parse() {
            Ok(Address::Tcp { host, port }) => Ok(MetricsAddress { host, port }),
            Ok(Address::Unix(_)) => Err(format!(
                "`{text}` is no TCP address, as Prometheus needs one; write a port or host:port \
                 such as 127.0.0.1:9178"
            )),
            Err(error) => Err(format!("{error}; or a port alone, such as 9178")),
        }
    }
}

impl fmt::Display for MetricsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Address::from(self).fmt(f)
    }
}

impl From<&MetricsAddress> for Address {
    fn from(address: &MetricsAddress) -> Address {
        Address::Tcp {
            host: address.host.clone(),
            port: address.port,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_of_this_machine() {
        let read = |text: &str| {
            let address: Result<MetricsAddress, _> = text.parse();
            address.map(|address| address.to_string())
        };
        for (text, expected) in [
            ("9178", "127.0.0.1:9178"),
            (":9178", "127.0.0.1:9178"),
            ("0.0.0.0:9178", "0.0.0.0:9178"),
            ("[::1]:0", "[::1]:0"),
            ("name.example:1", "name.example:1"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(expected));
        }
        for text in ["", ":", "unix:/x", "70000", "host", "host:x"] {
            assert!(read(text).expect_err(text).contains("9178"), "{text}");
        }
    }
}
