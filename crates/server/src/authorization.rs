//! Who calls, by the header `authorization`: looked up once for each value that a connection sends.

use std::fmt;

use service::identities::{IdentityKey, IdentityTable, Unauthenticated, is_same_secret};
use service::limits::AUTHORIZATION_BYTES_MAX;

use crate::peer_identity::{PeerIdentity, Proved};
use crate::rpc_connection::RpcConnection;

/// Where the head of a call leads: which method, and which value of the header `authorization` it
/// has. The connection remembers it with the bytes of the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadRoute(u64);

/// Bits of the number of a method.
const METHOD_BITS: u32 = 8;

/// The serial of those that have no such header.
const WITHOUT: u64 = 0;

impl HeadRoute {
    fn new(method: u8, serial: u64) -> HeadRoute {
        HeadRoute(serial << METHOD_BITS | u64::from(method))
    }

    /// Returns the number of the method.
    pub fn method(self) -> u8 {
        self.0 as u8
    }

    fn serial(self) -> u64 {
        self.0 >> METHOD_BITS
    }
}

/// The last value of the header `authorization` that a connection has sent, and whose it is.
pub(crate) struct LastAuthorization {
    /// Grows with each value that takes the place of another one, so that it names this one for as
    /// long as the connection lives.
    serial: u64,
    /// Empty if it was too long.
    value: Vec<u8>,
    /// Of the table in which it was looked up.
    version: u64,
    found: Result<IdentityKey, Unauthenticated>,
}

impl Default for LastAuthorization {
    fn default() -> LastAuthorization {
        LastAuthorization {
            serial: WITHOUT,
            value: Vec::new(),
            version: 0,
            found: Err(Unauthenticated::NoToken),
        }
    }
}

impl LastAuthorization {
    /// Returns whose call it is whose head came last. `peer`: whose it is without the header.
    #[inline]
    pub fn identify(
        &mut self,
        connection: &mut RpcConnection,
        method: u8,
        peer: &mut PeerIdentity,
        (table, now_ms): (&IdentityTable, u64),
    ) -> Result<Proved, Unauthenticated> {
        if let Some(route) = connection.head_route() {
            let serial = HeadRoute(route).serial();
            let is_last = || serial == self.serial && table.version() == self.version;
            if serial == WITHOUT || is_last() {
                return self.of_serial(serial, peer, (table, now_ms));
            }
        }
        let serial = self.look_up_head(connection, table, now_ms);
        connection.set_head_route(HeadRoute::new(method, serial).0);
        self.of_serial(serial, peer, (table, now_ms))
    }

    /// The same for a request of which nothing is remembered.
    pub fn identify_plain(
        &mut self,
        connection: &RpcConnection,
        peer: &mut PeerIdentity,
        (table, now_ms): (&IdentityTable, u64),
    ) -> Result<Proved, Unauthenticated> {
        let serial = self.look_up_head(connection, table, now_ms);
        self.of_serial(serial, peer, (table, now_ms))
    }

    /// Looks up whose the head is that came last. Returns the serial of its value.
    #[inline]
    fn look_up_head(
        &mut self,
        connection: &RpcConnection,
        table: &IdentityTable,
        now_ms: u64,
    ) -> u64 {
        let Some(value) = connection.head().authorization() else {
            return WITHOUT;
        };
        self.look_up(value, table, now_ms);
        self.serial
    }

    /// Whose the last value is, or a head without one.
    #[inline]
    fn of_serial(
        &self,
        serial: u64,
        peer: &mut PeerIdentity,
        at: (&IdentityTable, u64),
    ) -> Result<Proved, Unauthenticated> {
        match serial {
            WITHOUT => peer.find(at),
            _ => self.found.map(Proved::by_table),
        }
    }

    /// Looks up whose value it is, unless it is the same as the last one.
    fn look_up(&mut self, value: &[u8], table: &IdentityTable, now_ms: u64) {
        let is_known = self.serial != WITHOUT
            && self.version == table.version()
            && is_same_secret(&self.value, value);
        if is_known {
            return;
        }
        self.found = table.resolve(value, now_ms);
        self.version = table.version();
        self.serial += 1;
        self.value.clear();
        if value.len() <= AUTHORIZATION_BYTES_MAX {
            self.value.extend_from_slice(value);
        }
    }
}

/// Returns the route of the head that came last, if its bytes are remembered.
#[inline]
pub(crate) fn remembered(connection: &RpcConnection) -> Option<HeadRoute> {
    connection.head_route().map(HeadRoute)
}

/// Shows nothing of the value.
impl fmt::Debug for LastAuthorization {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "LastAuthorization({:?})", self.found)
    }
}

#[cfg(test)]
mod tests {
    use service::identities::{Identities, Identity, IssuedToken, NEVER_MS, Token, TokenKey};
    use service::rights::Rights;

    use super::*;

    /// What a value is that is too long: nobody's, whatever came before it, and it leaves nothing
    /// behind for what comes after it.
    #[test]
    fn a_value_that_is_too_long_has_no_identity_of_the_value_before() {
        let identities = Identities::new(TokenKey::new(&[1; 32]), vec![Rights::default()]);
        let token = Token::new([7; 32]);
        let issued = IssuedToken {
            hash: identities.key().hash(&token),
            expires_ms: NEVER_MS,
        };
        let identity = Identity::new("ci", Rights::everything(), NEVER_MS, vec![issued]);
        (identities.replace(vec![identity.expect("sound")], 0)).expect("one");
        let table = identities.table();
        let good = format!("Bearer {}", *token.text());
        let spaces = " ".repeat(AUTHORIZATION_BYTES_MAX);
        let too_long = good.replacen(' ', &spaces, 1);
        let mut last = LastAuthorization::default();
        for _ in 0..2 {
            last.look_up(good.as_bytes(), &table, 0);
            let (serial, found) = (last.serial, last.found);
            assert!(found.is_ok());
            for value in [too_long.as_bytes(), b"", too_long.as_bytes()] {
                let before = last.serial;
                last.look_up(value, &table, 0);
                assert_eq!(last.found, Err(Unauthenticated::NoToken));
                assert!(last.serial > serial && last.serial >= before);
                assert!(last.value.is_empty());
            }
            last.look_up(good.as_bytes(), &table, 0);
            assert_eq!(last.found, found);
        }
    }

    #[test]
    fn a_route_keeps_its_method_and_its_serial_apart() {
        for method in [0, 7, 255] {
            for serial in [0, 1, 255, 256, u64::MAX >> METHOD_BITS] {
                let route = HeadRoute::new(method, serial);
                assert_eq!((route.method(), route.serial()), (method, serial));
            }
        }
    }
}
