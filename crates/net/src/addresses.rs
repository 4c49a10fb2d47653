//! How many connections each peer address has.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limits::REFUSALS_PER_ADDRESS;
use crate::peer_address::{AddressKey, PeerAddress};

/// The connections that are open, by address. Addresses without one are not kept, so that there are
/// no more entries than connections.
type OpenConnections = Mutex<HashMap<AddressKey, usize>>;

/// Counts the connections of each peer address, and says when there is one too many.
#[derive(Debug)]
pub(crate) struct Addresses {
    open: Arc<OpenConnections>,
    /// 0: no bound.
    limit: usize,
    /// Whether peers on this machine are bounded, too.
    counts_loopback: bool,
}

/// What a new connection finds.
#[derive(Debug)]
pub(crate) enum Admitted {
    /// It may stay, and is counted if it has an address that counts.
    Yes(Option<AddressPlace>),
    /// There are too many from its address: it is to be refused in its protocol.
    Refuse(AddressPlace),
    /// There are far too many: it is to be closed at once.
    Drop,
}

impl Addresses {
    pub(crate) fn new(limit: usize, counts_loopback: bool) -> Addresses {
        Addresses {
            open: Arc::default(),
            limit,
            counts_loopback,
        }
    }

    /// Whether peers at this address are bounded together, if there is a bound.
    pub(crate) fn bounds(&self, peer: &PeerAddress) -> bool {
        matches!(peer, PeerAddress::Tcp(_)) && (self.counts_loopback || !peer.is_local())
    }

    fn counted(&self, peer: &PeerAddress) -> Option<AddressKey> {
        match peer {
            PeerAddress::Tcp(address) if self.limit > 0 && self.bounds(peer) => {
                Some(AddressKey::of(address.ip()))
            }
            _ => None,
        }
    }

    /// Whether one more connection from `peer` would be one too many.
    pub(crate) fn is_full(&self, peer: &PeerAddress) -> bool {
        self.counted(peer).is_some_and(|key| {
            let open = lock(&self.open);
            open.get(&key).is_some_and(|&count| count >= self.limit)
        })
    }

    /// Counts one more connection from `peer`.
    pub(crate) fn admit(&self, peer: &PeerAddress) -> Admitted {
        let Some(key) = self.counted(peer) else {
            return Admitted::Yes(None);
        };
        let mut open = lock(&self.open);
        let count = open.entry(key).or_default();
        if *count >= self.limit.saturating_add(REFUSALS_PER_ADDRESS) {
            return Admitted::Drop;
        }
        *count += 1;
        let is_over = *count > self.limit;
        drop(open);
        let place = AddressPlace(Arc::new(CountedConnection {
            open: Arc::clone(&self.open),
            key,
            is_over,
            is_counted: AtomicBool::new(true),
        }));
        match is_over {
            true => Admitted::Refuse(place),
            false => Admitted::Yes(Some(place)),
        }
    }
}

/// A connection in the count of its address. It leaves with the last copy.
#[derive(Clone, Debug)]
pub struct AddressPlace(Arc<CountedConnection>);

#[derive(Debug)]
struct CountedConnection {
    open: Arc<OpenConnections>,
    key: AddressKey,
    is_over: bool,
    is_counted: AtomicBool,
}

impl AddressPlace {
    /// Leaves the count before the last copy goes: the connection is about to end.
    pub(crate) fn release(&self) {
        self.0.leave();
    }

    /// Whether there are too many connections from its address.
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_over
    }
}

impl PartialEq for AddressPlace {
    fn eq(&self, other: &AddressPlace) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for AddressPlace {}

impl CountedConnection {
    /// Once, whoever asks for it.
    fn leave(&self) {
        if !self.is_counted.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut open = lock(&self.open);
        if let Some(count) = open.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.key);
            }
        }
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.leave();
    }
}

fn lock(open: &OpenConnections) -> MutexGuard<'_, HashMap<AddressKey, usize>> {
    // Nothing under this lock can panic half-way.
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> PeerAddress {
        PeerAddress::Tcp(text.parse().expect("an address"))
    }

    /// The place of one more connection, and whether it is one too many.
    fn admit(addresses: &Addresses, from: &str) -> Option<(Option<AddressPlace>, bool)> {
        match addresses.admit(&peer(from)) {
            Admitted::Yes(place) => Some((place, false)),
            Admitted::Refuse(place) => Some((Some(place), true)),
            Admitted::Drop => None,
        }
    }

    #[test]
    fn an_address_has_its_limit_then_refusals_then_nothing() {
        let addresses = Addresses::new(3, false);
        for _ in 0..2 {
            let mut places = Vec::new();
            for at in 0..3 + REFUSALS_PER_ADDRESS {
                let from = format!("192.0.2.1:{}", 1_000 + at);
                let (place, refused) = admit(&addresses, &from).expect("not dropped");
                assert_eq!(refused, at >= 3, "{at}");
                assert_eq!(place.as_ref().map(AddressPlace::is_over), Some(refused));
                places.push(place);
            }
            assert!(admit(&addresses, "192.0.2.1:9").is_none());
            // The same address, written as IPv6.
            assert!(admit(&addresses, "[::ffff:192.0.2.1]:9").is_none());
            let (other, refused) = admit(&addresses, "192.0.2.2:9").expect("another address");
            assert!(other.is_some() && !refused);
            drop(other);
            // A copy keeps the place.
            let copy = places.pop().flatten();
            let again = copy.clone();
            assert!(copy.is_some() && copy == again, "one place");
            assert_ne!(copy, places[0], "two of one address");
            drop(copy);
            assert!(admit(&addresses, "192.0.2.1:9").is_none());
            drop(again);
            assert!(admit(&addresses, "192.0.2.1:9").is_some());
            drop(places);
            assert!(lock(&addresses.open).is_empty(), "nothing is kept");
        }
    }

    #[test]
    fn a_network_of_64_bits_is_one_address() {
        let addresses = Addresses::new(1, false);
        let first = admit(&addresses, "[2001:db8:1:2::1]:9").expect("the first");
        let second = admit(&addresses, "[2001:db8:1:2:ffff::1]:9").expect("refused, not dropped");
        let third = admit(&addresses, "[2001:db8:1:3::1]:9").expect("another network");
        assert_eq!((first.1, second.1, third.1), (false, true, false));
    }

    #[test]
    fn peers_on_this_machine_are_bounded_only_if_asked_for() {
        for (counts_loopback, limit, expected) in
            [(false, 1, false), (true, 1, true), (true, 0, false)]
        {
            let addresses = Addresses::new(limit, counts_loopback);
            for from in ["127.0.0.1:9", "[::1]:9"] {
                let first = admit(&addresses, from).expect("the first");
                let second = admit(&addresses, from).expect("the second");
                assert_eq!((first.1, second.1), (false, expected), "{from}");
            }
            let unix = addresses.admit(&PeerAddress::Unix);
            assert!(matches!(unix, Admitted::Yes(None)));
        }
    }
}
