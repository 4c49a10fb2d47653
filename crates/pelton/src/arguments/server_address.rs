//! The address of a server to connect to, and what is right where it is wrong.

use net::{Address, AddressError};

/// Reads an address of a server to connect to.
///
/// # Errors
/// If it is none, with what to write: a client needs one machine, not all interfaces.
pub fn server_address(text: &str) -> Result<Address, String> {
    text.parse().map_err(|error| match &error {
        AddressError::NoHost(port) => format!(
            "`{port}` has no host; write 127.0.0.1{port} for a server on this machine, or \
             HOST{port}"
        ),
        AddressError::NoPort(host) if is_host(host) => format!("{error}, such as {host}:1978"),
        _ => error.to_string(),
    })
}

/// Whether a text without a port can be a host, and not a port or a path.
fn is_host(text: &str) -> bool {
    !text.is_empty() && !text.contains('/') && !text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_not_told_to_connect_to_all_interfaces() {
        for (text, expected) in [
            (":1978", "write 127.0.0.1:1978 for a server on this machine"),
            ("localhost", "or unix:/path, such as localhost:1978"),
            (
                "1978",
                "`1978` is a port without a host; write 127.0.0.1:1978",
            ),
            ("/tmp/x", "write unix:/tmp/x"),
            ("", "nothing is no address"),
        ] {
            let message = server_address(text).expect_err(text);
            assert!(message.contains(expected), "{text}: {message}");
            assert!(!message.contains("0.0.0.0"), "{text}: {message}");
        }
        assert!(server_address("localhost:1978").is_ok());
    }
}
