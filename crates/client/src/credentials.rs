//! What proves to a server who calls.

use std::fmt;
use std::hint::black_box;
use std::net::IpAddr;
use std::sync::Arc;

use net::Address;
use wire::grpc::metadata::AUTHORIZATION;
use wire::grpc::{Metadata, MetadataError};

use crate::error::ConnectError;

/// The name of the host that is always this machine (RFC 6761 section 6.3).
const THIS_MACHINE: &str = "localhost";

/// A token that goes with each call. Clones are the same token, whose memory is overwritten with
/// the last of them. Buffers through which it is sent are not.
#[derive(Clone)]
pub struct Credentials {
    token: Arc<TokenMetadata>,
    /// It may be sent where others can read it.
    plain: bool,
}

struct TokenMetadata(Metadata);

impl Credentials {
    /// Credentials with a token, as the server has shown it.
    ///
    /// # Errors
    /// If this cannot be sent in a header: it is no token.
    pub fn token(token: &str) -> Result<Credentials, MetadataError> {
        let mut metadata = Metadata::new();
        metadata.push_ascii(AUTHORIZATION, format!("Bearer {token}"))?;
        Ok(Credentials {
            token: Arc::new(TokenMetadata(metadata)),
            plain: false,
        })
    }

    /// The same, also for connections to other machines without TLS, where whoever is in between
    /// can read the token and use it.
    pub fn also_without_tls(self) -> Credentials {
        Credentials {
            plain: true,
            ..self
        }
    }

    /// Refuses a connection on which the token could be read by others.
    ///
    /// # Errors
    /// If there is no TLS, and the server is on another machine. Names of hosts other than
    /// `localhost` count as other machines, whatever they lead to.
    pub fn check(&self, address: &Address, has_tls: bool) -> Result<(), ConnectError> {
        match has_tls || self.plain || is_this_machine(address) {
            true => Ok(()),
            false => Err(ConnectError::TokenWithoutTls {
                address: address.clone(),
            }),
        }
    }

    /// Adds the token to what goes with a call.
    pub fn push_to(&self, metadata: &mut Metadata) {
        for (_, value) in self.metadata().iter() {
            let pushed = metadata.push_ascii(AUTHORIZATION, String::from_utf8_lossy(value));
            debug_assert_eq!(pushed, Ok(()), "it could be pushed before");
        }
    }

    pub(crate) fn metadata(&self) -> &Metadata {
        &self.token.0
    }
}

/// Overwrites the token.
impl Drop for TokenMetadata {
    fn drop(&mut self) {
        let longest = self.0.iter().map(|(_, value)| value.len()).max();
        let nothing = vec![b'0'; longest.unwrap_or(0)];
        let overwritten = self.0.set_text(0, &nothing);
        debug_assert_eq!(overwritten, Ok(()), "there is one entry, of text");
        // Though nobody reads it any more.
        black_box(&self.0);
    }
}

/// Shows nothing of it.
impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Credentials(…)")
    }
}

fn is_this_machine(address: &Address) -> bool {
    match address {
        Address::Tcp { host, .. } => {
            let ip = host.parse::<IpAddr>();
            host.eq_ignore_ascii_case(THIS_MACHINE) || ip.is_ok_and(|ip| ip.is_loopback())
        }
        Address::Unix(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "pelton_0123456789";

    #[test]
    fn a_token_goes_in_a_header_and_is_not_shown() {
        let credentials = Credentials::token(TOKEN).expect("it can be sent");
        let shown = format!("{credentials:?} {:?}", credentials.metadata());
        assert!(!shown.contains("0123"), "{shown}");
        let mut metadata = Metadata::new();
        metadata.push_ascii("x-other", "1").expect("it can be sent");
        credentials.push_to(&mut metadata);
        let expected = format!("Bearer {TOKEN}");
        assert_eq!(metadata.get("authorization"), Some(expected.as_bytes()));
        assert!(!format!("{metadata:?}").contains("0123"));
        for token in ["a\nb", "a\0", "ä"] {
            assert!(Credentials::token(token).is_err(), "{token:?}");
        }
    }

    #[test]
    fn without_tls_a_token_stays_on_this_machine() {
        let credentials = Credentials::token(TOKEN).expect("it can be sent");
        for (address, is_here) in [
            ("127.0.0.1:1", true),
            ("127.9.9.9:1", true),
            ("[::1]:1", true),
            ("localhost:1", true),
            ("LOCALHOST:1", true),
            ("unix:/x", true),
            ("10.0.0.1:1", false),
            ("0.0.0.0:1", false),
            ("[2001:db8::1]:1", false),
            ("localhost.example:1", false),
            ("example:1", false),
        ] {
            let parsed: Address = address.parse().expect(address);
            assert_eq!(
                credentials.check(&parsed, false).is_ok(),
                is_here,
                "{address}"
            );
            assert!(credentials.check(&parsed, true).is_ok(), "{address}");
            let anywhere = credentials.clone().also_without_tls();
            assert!(anywhere.check(&parsed, false).is_ok(), "{address}");
        }
    }
}
