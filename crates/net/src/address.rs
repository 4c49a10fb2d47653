//! Where to listen.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A TCP port or a UNIX socket, as written on a command line: `127.0.0.1:1978`, `[::1]:1978`,
/// `localhost:1978`, `unix:/run/pelton.sock`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A host name or address, and a port (0: the system chooses one).
    Tcp {
        /// Without the brackets of an IPv6 address.
        host: String,
        /// The port.
        port: u16,
    },
    /// The path of a UNIX socket.
    Unix(PathBuf),
}

/// Why a text is not an address. Each says what the right form is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// There is no `:port`.
    #[error("{}", without_port(.0))]
    NoPort(String),
    /// The part after the last colon is not a number from 0 to 65535.
    #[error("{}", with_bad_port(.0))]
    BadPort(String),
    /// A URL: its scheme is not a part of an address.
    #[error("{}", url(.0))]
    Url(String),
    /// An IPv6 address without brackets, or a bracket without its partner.
    #[error("`{0}` looks like IPv6; write it as [address]:port")]
    BadBrackets(String),
    /// Nothing stands before the port.
    #[error(
        "`{0}` has no host; write 127.0.0.1{0} for this machine only, or 0.0.0.0{0} for all \
         interfaces"
    )]
    NoHost(String),
    /// `unix:` without a path, or with one too long for a socket address.
    #[error(
        "`{0}` is no socket path; write unix:/path with at most {UNIX_PATH_MAX_BYTES} bytes of path"
    )]
    BadPath(String),
}

fn without_port(text: &str) -> String {
    if text.is_empty() {
        "nothing is no address; write host:port, [ipv6]:port or unix:/path".to_owned()
    } else if text.bytes().all(|byte| byte.is_ascii_digit()) {
        format!("`{text}` is a port without a host; write 127.0.0.1:{text}")
    } else if text.contains('/') {
        format!("`{text}` is a path; write unix:{text}")
    } else {
        format!("`{text}` has no port; write host:port, [ipv6]:port or unix:/path")
    }
}

fn with_bad_port(text: &str) -> String {
    match text.contains('/') {
        true => format!("`{text}` has a path, and an address has none; write host:port"),
        false => format!("the port of `{text}` is not a number from 0 to 65535"),
    }
}

fn url(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    // Names of gRPC, such as dns:///host:port, have an empty authority.
    let rest = rest.trim_start_matches('/');
    let rest = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let port = if rest.contains(':') { "" } else { ":PORT" };
    let tls = if scheme == "https" { ", and --tls" } else { "" };
    format!("`{text}` is a URL, and an address has no scheme and no path; write {rest}{port}{tls}")
}

/// What the kernel's `sockaddr_un` holds, less the closing zero.
const UNIX_PATH_MAX_BYTES: usize = 107;

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() || path.len() > UNIX_PATH_MAX_BYTES || path.contains('\0') {
                return Err(AddressError::BadPath(text.into()));
            }
            return Ok(Address::Unix(path.into()));
        }
        if text.contains("://") {
            return Err(AddressError::Url(text.into()));
        }
        let (host, port) = text
            .rsplit_once(':')
            .ok_or(AddressError::NoPort(text.into()))?;
        let host = match host.strip_prefix('[') {
            Some(inner) => inner
                .strip_suffix(']')
                .ok_or(AddressError::BadBrackets(text.into()))?,
            None if host.contains([':', ']']) => {
                return Err(AddressError::BadBrackets(text.into()));
            }
            None => host,
        };
        if host.is_empty() {
            return Err(AddressError::NoHost(text.into()));
        }
        // `u16::from_str` also takes a leading plus.
        if !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(AddressError::BadPort(text.into()));
        }
        let port = port
            .parse()
            .map_err(|_| AddressError::BadPort(text.into()))?;
        Ok(Address::Tcp {
            host: host.into(),
            port,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written_back() {
        for text in [
            "127.0.0.1:1978",
            "[::1]:0",
            "localhost:65535",
            "unix:/run/a b.sock",
        ] {
            assert_eq!(text.parse::<Address>().expect("valid").to_string(), text);
        }
        assert_eq!(
            "[::1]:7".parse(),
            Ok(Address::Tcp {
                host: "::1".into(),
                port: 7
            }),
            "the brackets are no part of the host"
        );
    }

    #[test]
    fn wrong_addresses_say_what_is_wrong() {
        let cause = |text: &str| text.parse::<Address>().expect_err(text);
        assert!(matches!(cause("localhost"), AddressError::NoPort(_)));
        for (text, tip) in [
            ("1978", "write 127.0.0.1:1978"),
            ("/tmp/x.sock", "write unix:/tmp/x.sock"),
            ("", "nothing is no address"),
        ] {
            assert!(cause(text).to_string().contains(tip), "{text}");
        }
        for (url, written) in [
            ("http://127.0.0.1:1978", "write 127.0.0.1:1978"),
            ("https://[::1]:1978/path", "write [::1]:1978, and --tls"),
            ("grpc://host", "write host:PORT"),
            ("dns:///host:1978", "write host:1978"),
        ] {
            assert!(cause(url).to_string().ends_with(written), "{}", cause(url));
        }
        assert!(matches!(cause("localhost:"), AddressError::BadPort(_)));
        assert!(matches!(cause("h:65536"), AddressError::BadPort(_)));
        assert!(matches!(cause("h:+1"), AddressError::BadPort(_)));
        assert!(matches!(cause("::1:80"), AddressError::BadBrackets(_)));
        assert!(matches!(cause("[::1:80"), AddressError::BadBrackets(_)));
        assert!(matches!(cause(":80"), AddressError::NoHost(_)));
        assert!(matches!(cause("unix:"), AddressError::BadPath(_)));
        let long = format!("unix:/{}", "x".repeat(107));
        assert!(matches!(cause(&long), AddressError::BadPath(_)));
        assert!(matches!(cause("unix:/a\0b"), AddressError::BadPath(_)));
        let longest = format!("unix:/{}", "x".repeat(106));
        let expected = Address::Unix(longest["unix:".len()..].into());
        assert_eq!(longest.parse(), Ok(expected));
    }
}
