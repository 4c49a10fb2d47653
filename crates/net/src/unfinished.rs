//! The TLS handshakes of a server that are not finished, whichever loop or thread has them: how
//! many there are, and which one ends so that another has room.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{Shutdown, shutdown};

use crate::addresses::AddressPlace;
use crate::peer_address::{AddressKey, PeerAddress};

/// Peers that have their bound together. `None`: those without an address.
type HandshakeSource = Option<AddressKey>;

/// The handshakes that are not finished. They leave when they end, so that there are no more
/// entries than connections.
#[derive(Debug, Default)]
pub(crate) struct UnfinishedHandshakes(Arc<Mutex<HandshakeTable>>);

#[derive(Debug, Default)]
struct HandshakeTable {
    /// By their peers, in the order in which they were accepted.
    sources: HashMap<HandshakeSource, BTreeMap<u64, UnfinishedSocket>>,
    count: usize,
    /// The number of the next one.
    next: u64,
}

#[derive(Debug)]
struct UnfinishedSocket {
    /// The socket of the connection, by a descriptor of its own: its loop or thread learns at once
    /// that the connection has ended, wherever it waits.
    socket: OwnedFd,
    place: Option<AddressPlace>,
    state: Arc<HandshakeState>,
}

#[derive(Debug, Default)]
struct HandshakeState {
    waits_for_peer: AtomicBool,
    is_crowded_out: AtomicBool,
}

impl UnfinishedHandshakes {
    /// Returns how many there are.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).count
    }

    /// Returns how many there are of the peers that are bounded together with this one.
    pub(crate) fn of(&self, address: &PeerAddress) -> usize {
        let table = lock(&self.0);
        table
            .sources
            .get(&source_of(address))
            .map_or(0, BTreeMap::len)
    }

    /// Adds that of a connection that was accepted.
    ///
    /// # Errors
    /// If there is no descriptor for it.
    pub(crate) fn begin(
        &self,
        socket: &OwnedFd,
        address: &PeerAddress,
        place: Option<AddressPlace>,
    ) -> Result<HandshakePlace, Errno> {
        let socket = fcntl_dupfd_cloexec(socket.as_fd(), 0)?;
        let (source, state) = (source_of(address), Arc::<HandshakeState>::default());
        let mut table = lock(&self.0);
        let number = table.next;
        table.next += 1;
        table.count += 1;
        let unfinished = UnfinishedSocket {
            socket,
            place,
            state: Arc::clone(&state),
        };
        let of_source = table.sources.entry(source).or_default();
        of_source.insert(number, unfinished);
        drop(table);
        Ok(HandshakePlace(Arc::new(CountedHandshake {
            table: Arc::clone(&self.0),
            source,
            number,
            state,
        })))
    }

    /// Ends the oldest of the peers that are bounded together with this one. Returns whether there
    /// was one whose peer is waited for: what waits for this side goes on.
    pub(crate) fn end_oldest_of(&self, address: &PeerAddress) -> bool {
        lock(&self.0).end_oldest(source_of(address))
    }

    /// The same of the peers that have most.
    pub(crate) fn end_oldest(&self) -> bool {
        let mut table = lock(&self.0);
        let largest = table.sources.iter().max_by_key(|(_, one)| one.len());
        let source = largest.map(|(&source, _)| source);
        source.is_some_and(|source| table.end_oldest(source))
    }
}

impl HandshakeTable {
    fn end_oldest(&mut self, source: HandshakeSource) -> bool {
        let Some(of_source) = self.sources.get(&source) else {
            return false;
        };
        let mut waited_for = of_source
            .iter()
            .filter(|(_, one)| one.state.waits_for_peer.load(Ordering::Relaxed));
        let Some((&number, _)) = waited_for.next() else {
            return false;
        };
        let Some(oldest) = self.remove(source, number) else {
            return false;
        };
        // Before its loop looks.
        oldest.state.is_crowded_out.store(true, Ordering::Release);
        // It fails only if the peer has gone already.
        let _ = shutdown(&oldest.socket, Shutdown::Both);
        if let Some(place) = &oldest.place {
            place.release();
        }
        true
    }

    fn remove(&mut self, source: HandshakeSource, number: u64) -> Option<UnfinishedSocket> {
        let of_source = self.sources.get_mut(&source)?;
        let removed = of_source.remove(&number)?;
        self.count -= 1;
        if of_source.is_empty() {
            self.sources.remove(&source);
        }
        Some(removed)
    }
}

/// The handshake of a connection among those that are not finished. It leaves with the last copy,
/// if it has not been finished before.
#[derive(Clone, Debug)]
pub struct HandshakePlace(Arc<CountedHandshake>);

#[derive(Debug)]
struct CountedHandshake {
    table: Arc<Mutex<HandshakeTable>>,
    source: HandshakeSource,
    number: u64,
    state: Arc<HandshakeState>,
}

impl HandshakePlace {
    /// Notes whether the peer is waited for, and not this side. In the beginning it is this side.
    pub(crate) fn set_waits_for_peer(&self, waits: bool) {
        (self.0.state.waits_for_peer).store(waits, Ordering::Relaxed);
    }

    /// Whether it was ended for another.
    pub(crate) fn is_crowded_out(&self) -> bool {
        self.0.state.is_crowded_out.load(Ordering::Acquire)
    }

    /// It is over, or its connection is: its descriptor is closed. To be called before that of the
    /// connection is, which epoll would go on with otherwise.
    pub(crate) fn finish(&self) {
        self.0.leave();
    }
}

impl PartialEq for HandshakePlace {
    fn eq(&self, other: &HandshakePlace) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for HandshakePlace {}

impl CountedHandshake {
    fn leave(&self) {
        lock(&self.table).remove(self.source, self.number);
    }
}

impl Drop for CountedHandshake {
    fn drop(&mut self) {
        self.leave();
    }
}

fn source_of(address: &PeerAddress) -> HandshakeSource {
    match address {
        PeerAddress::Tcp(address) => Some(AddressKey::of(address.ip())),
        PeerAddress::Unix | PeerAddress::Simulated(_) => None,
    }
}

fn lock(table: &Mutex<HandshakeTable>) -> MutexGuard<'_, HandshakeTable> {
    // Nothing under this lock can panic half-way.
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::addresses::{Addresses, Admitted};

    /// A connection whose handshake has begun, with both of its ends.
    struct Begun {
        place: HandshakePlace,
        near: Option<OwnedFd>,
        far: UnixStream,
    }

    impl Begun {
        /// Whether it was ended, so that its peer and its loop see it.
        fn is_ended(&mut self) -> bool {
            self.far.set_nonblocking(true).expect("it is open");
            let is_cut = self.far.read(&mut [0]).is_ok_and(|count| count == 0);
            assert_eq!(is_cut, self.place.is_crowded_out());
            is_cut
        }
    }

    fn begin(all: &UnfinishedHandshakes, from: &str, place: Option<AddressPlace>) -> Begun {
        let (near, far) = UnixStream::pair().expect("there are descriptors");
        let near = OwnedFd::from(near);
        let begun = all.begin(&near, &address(from), place);
        let place = begun.expect("there are descriptors");
        place.set_waits_for_peer(true);
        Begun {
            place,
            near: Some(near),
            far,
        }
    }

    fn address(text: &str) -> PeerAddress {
        PeerAddress::Tcp(text.parse().expect("an address"))
    }

    fn ended(all: &mut [Begun]) -> Vec<usize> {
        (0..all.len()).filter(|&at| all[at].is_ended()).collect()
    }

    #[test]
    fn the_oldest_of_an_address_that_is_waited_for_ends() {
        let all = UnfinishedHandshakes::default();
        let one = address("192.0.2.1:1");
        for _ in 0..2 {
            let from = ["192.0.2.1:1", "192.0.2.2:1", "192.0.2.1:2", "192.0.2.1:3"];
            let mut begun = from.map(|from| begin(&all, from, None));
            assert_eq!((all.len(), all.of(&one)), (4, 3));
            begun[0].place.set_waits_for_peer(false);
            assert!(all.end_oldest_of(&one));
            assert_eq!(ended(&mut begun), [2], "the first waits for this side");
            begun[0].place.set_waits_for_peer(true);
            assert!(all.end_oldest_of(&one));
            assert_eq!(ended(&mut begun), [0, 2]);
            begun[3].place.set_waits_for_peer(false);
            assert!(!all.end_oldest_of(&one));
            assert!(!all.end_oldest_of(&address("192.0.2.3:1")), "it has none");
            assert_eq!((all.len(), all.of(&one)), (2, 1));
            // One that was ended, one that is finished, and one that goes without a word.
            begun[0].place.finish();
            begun[1].place.finish();
            assert_eq!(all.len(), 1);
            drop(begun);
            assert_eq!((all.len(), all.of(&one)), (0, 0));
            assert!(lock(&all.0).sources.is_empty(), "nothing is kept");
        }
    }

    #[test]
    fn the_address_with_most_loses_one() {
        let all = UnfinishedHandshakes::default();
        assert!(!all.end_oldest());
        let from = ["192.0.2.2:1", "192.0.2.1:1", "[::ffff:192.0.2.1]:2"];
        for _ in 0..2 {
            let mut begun = from.map(|from| begin(&all, from, None));
            assert!(all.end_oldest());
            assert_eq!(ended(&mut begun), [1]);
        }
    }

    /// The place of one that was ended is free at once, and is given back once.
    #[test]
    fn who_is_ended_leaves_the_count_of_its_address_at_once() {
        let (all, addresses) = (UnfinishedHandshakes::default(), Addresses::new(2, false));
        let one = address("192.0.2.1:1");
        let admit = || match addresses.admit(&one) {
            Admitted::Yes(place) => place,
            found => panic!("{found:?}"),
        };
        for _ in 0..2 {
            // Its connection has a copy until its loop closes it, as here.
            let places = [(), ()].map(|()| admit());
            let begun = (places.clone()).map(|place| begin(&all, "192.0.2.1:1", place));
            assert!(addresses.is_full(&one));
            assert!(all.end_oldest_of(&one) && !addresses.is_full(&one));
            let other = admit();
            assert!(addresses.is_full(&one));
            drop((begun, places));
            assert!(!addresses.is_full(&one));
            drop((admit(), other));
        }
    }

    /// What a loop waits for by epoll goes with its descriptor only if there is no other one.
    #[test]
    fn a_finished_handshake_keeps_its_socket_no_longer() {
        let all = UnfinishedHandshakes::default();
        for _ in 0..2 {
            let mut begun = begin(&all, "192.0.2.1:1", None);
            begun.place.finish();
            drop(begun.near.take());
            assert_eq!(begun.far.read(&mut [0]).expect("closed"), 0);
            assert!(!begun.place.is_crowded_out());
        }
    }
}
