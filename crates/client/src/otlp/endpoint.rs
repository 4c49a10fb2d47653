//! Where spans are exported to.

use std::fmt;
use std::str::FromStr;

use net::{Address, AddressError};

/// The port of OTLP over gRPC unless another one is named.
const DEFAULT_PORT: u16 = 4317;

/// Where a collector listens, as a URL: `http://HOST:PORT`, or `https://HOST:PORT` with TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpEndpoint {
    address: Address,
    has_tls: bool,
}

/// Why a text names no collector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// It is no URL of a kind that is known.
    #[error(
        "`{0}` does not begin with http:// or https://: write http://HOST:{DEFAULT_PORT}, or \
         https://HOST:{DEFAULT_PORT} for a collector with TLS"
    )]
    OtherScheme(String),
    /// There is something behind host and port.
    #[error(
        "`{0}` has something behind host and port, and OTLP over gRPC has no path: write \
         http://HOST:{DEFAULT_PORT}"
    )]
    HasPath(String),
    /// There is a user in front of the host: what stands there may be a password, and is not shown.
    #[error(
        "the URL has something with @ in front of its host, which gRPC does not send: leave it \
         out, and write what the collector knows you by into a header"
    )]
    HasUser,
    /// Host and port are none.
    #[error("`{0}` names no host and port: {1}")]
    BadAddress(String, AddressError),
}

impl OtlpEndpoint {
    /// Returns where it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Returns whether it speaks TLS.
    pub fn has_tls(&self) -> bool {
        self.has_tls
    }
}

impl FromStr for OtlpEndpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<OtlpEndpoint, EndpointError> {
        let (has_tls, rest) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            (None, None) => return Err(EndpointError::OtherScheme(text.into())),
        };
        if rest.contains('@') {
            return Err(EndpointError::HasUser);
        }
        let host = rest.strip_suffix('/').unwrap_or(rest);
        if host.contains(['/', '?', '#']) {
            return Err(EndpointError::HasPath(text.into()));
        }
        let address = match host.parse() {
            Err(AddressError::NoPort(_)) => format!("{host}:{DEFAULT_PORT}").parse(),
            parsed => parsed,
        };
        match address {
            Ok(address @ Address::Tcp { .. }) => Ok(OtlpEndpoint { address, has_tls }),
            Ok(Address::Unix(_)) => Err(EndpointError::HasPath(text.into())),
            Err(error) => Err(EndpointError::BadAddress(text.into(), error)),
        }
    }
}

impl fmt::Display for OtlpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.has_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        let endpoint: Result<OtlpEndpoint, EndpointError> = text.parse();
        let endpoint = endpoint.map_err(|error| error.to_string())?;
        assert_eq!(endpoint.has_tls(), text.starts_with("https"));
        Ok(endpoint.to_string())
    }

    #[test]
    fn a_url_names_host_and_port() {
        for (text, expected) in [
            ("http://localhost:4317", "http://localhost:4317"),
            ("http://127.0.0.1:1/", "http://127.0.0.1:1"),
            ("https://otel.example", "https://otel.example:4317"),
            ("http://[::1]:4317", "http://[::1]:4317"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn what_is_no_such_url_is_refused_with_what_to_write() {
        for text in [
            "",
            "localhost:4317",
            "grpc://localhost:4317",
            "http://",
            "http://host:x",
            "http://host:4318/v1/traces",
            "http://unix:/tmp/x",
        ] {
            let message = read(text).expect_err(text);
            assert!(message.contains(text), "{message}");
        }
    }

    #[test]
    fn a_password_in_a_url_is_not_shown() {
        let message = read("https://me:s3cret@host:4317").expect_err("it has a user");
        assert!(message.contains("write what the collector knows you by into a header"));
        assert!(!message.contains("s3cret"), "{message}");
    }
}
