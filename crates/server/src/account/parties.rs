//! What those hold together who are one to the account: the connections from one address, and
//! those of one token.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use net::{AddressKey, PeerAddress};
use service::identities::IdentityKey;

use crate::limits;

/// Whose connections hold something together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Party {
    Tcp(AddressKey),
    Unix,
    Simulated(u32),
    /// The holders of a token, or those who call through a listener without one.
    Identity(IdentityKey),
}

/// Somebody whose connections are counted together, wherever they come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CountedCaller {
    pub key: IdentityKey,
    /// Otherwise all who call through a listener without a token.
    pub has_token: bool,
}

impl Party {
    /// Returns who is where a connection comes from.
    pub fn of(peer: &PeerAddress) -> Party {
        match peer {
            PeerAddress::Unix => Party::Unix,
            PeerAddress::Simulated(node) => Party::Simulated(*node),
            PeerAddress::Tcp(socket) => Party::Tcp(AddressKey::of(socket.ip())),
        }
    }
}

/// What each party holds, as long as it has a connection.
#[derive(Debug, Default)]
pub(super) struct Parties {
    held: HashMap<Party, Weak<PartyHolding>>,
    /// With more entries, those without a connection are swept. Twice as many as the last sweep has
    /// left, so that a connection costs the same however many parties there are.
    swept_above: usize,
}

impl Parties {
    /// Returns what a party holds.
    pub fn open(&mut self, party: Party) -> Arc<PartyHolding> {
        let entry = self.held.entry(party).or_default();
        let holding = entry.upgrade().unwrap_or_default();
        *entry = Arc::downgrade(&holding);
        if self.held.len() > self.swept_above.max(limits::KEPT_PARTIES) {
            self.held.retain(|_, entry| entry.strong_count() > 0);
            self.swept_above = 2 * self.held.len();
        }
        holding
    }

    /// Returns with how many parties they are swept next.
    #[cfg(test)]
    pub fn swept_above(&self) -> usize {
        self.swept_above
    }

    /// Returns how many parties are remembered.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.held.len()
    }
}

/// What all connections of one party hold.
#[derive(Debug, Default)]
pub(super) struct PartyHolding {
    held_bytes: AtomicUsize,
}

impl PartyHolding {
    /// Returns what that is, in bytes.
    pub fn bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Changes what one connection holds of it.
    pub fn replace(&self, before: usize, after: usize) {
        super::replace(&self.held_bytes, before, after);
    }
}
