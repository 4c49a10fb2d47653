//! Connections that nothing keeps open but their peers, and that these cannot be asked about: of
//! protocols without a PING. One of them is ended when a newcomer finds no place.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use net::PeerAddress;

use super::parties::Party;
use super::{Account, Holding, Wake, lock};
use crate::limits;

const NS_PER_MS: u64 = 1_000_000;

/// The time since when a connection is idle that is not.
const BUSY: u64 = u64::MAX;

/// Those of the server, by the numbers of their connections.
#[derive(Debug, Default)]
pub(super) struct IdleConnections {
    all: Mutex<HashMap<u64, Arc<IdleConnection>>>,
    /// When one was ended last, in nanoseconds: for want of places, and for want of those of one
    /// address, which must not take the turns of all others.
    ended_ns: [AtomicU64; 2],
}

/// One of them, as those see it who need its place.
#[derive(Debug)]
pub(super) struct IdleConnection {
    party: Party,
    /// In nanoseconds.
    since_ns: AtomicU64,
    is_condemned: AtomicBool,
    /// Of the connection's loop.
    wake: Wake,
}

impl IdleConnections {
    pub fn insert(&self, number: u64, party: Party, wake: Wake) -> IdlePlace {
        let own = Arc::new(IdleConnection {
            party,
            since_ns: AtomicU64::new(BUSY),
            is_condemned: AtomicBool::new(false),
            wake,
        });
        lock(&self.all).insert(number, Arc::clone(&own));
        IdlePlace { own, calls: 0 }
    }

    pub fn remove(&self, number: u64) {
        lock(&self.all).remove(&number);
    }

    /// Condemns the one that has been idle for longest, of the peer that has most of them: of `of`
    /// if that is who needs a place. `note` is called before its loop is woken.
    pub fn end_one(&self, of: Option<Party>, now_ns: u64, note: impl FnOnce()) {
        let (order, ended) = (Ordering::Relaxed, &self.ended_ns[usize::from(of.is_some())]);
        let ended_ns = ended.load(order);
        let due_ns = ended_ns + limits::MAKE_ROOM_MS * NS_PER_MS;
        if ended_ns != 0 && now_ns < due_ns {
            return;
        }
        let is_mine = ended.compare_exchange(ended_ns, now_ns.max(1), order, order);
        if is_mine.is_err() {
            return;
        }
        let all = lock(&self.all);
        let is_of = |one: &&Arc<IdleConnection>| of.is_none_or(|of| one.party == of);
        let idle = || (all.values().filter(is_of)).filter(|one| one.is_idle(now_ns));
        let mut counts: HashMap<Party, usize> = HashMap::new();
        for one in idle() {
            *counts.entry(one.party).or_default() += 1;
        }
        let rank = |one: &&Arc<IdleConnection>| {
            let since_ns = one.since_ns.load(order);
            (
                counts.get(&one.party).copied(),
                now_ns.saturating_sub(since_ns),
            )
        };
        let found = idle().max_by_key(rank).cloned();
        drop(all);
        if let Some(one) = found {
            one.is_condemned.store(true, order);
            note();
            (one.wake.0)();
        }
    }
}

impl IdleConnection {
    fn is_idle(&self, now_ns: u64) -> bool {
        let since_ns = self.since_ns.load(Ordering::Relaxed);
        since_ns != BUSY
            && now_ns.saturating_sub(since_ns) >= limits::FRAMED_IDLE_MS * NS_PER_MS
            && !self.is_condemned.load(Ordering::Relaxed)
    }
}

/// The place of a connection among them.
#[derive(Debug)]
pub(super) struct IdlePlace {
    own: Arc<IdleConnection>,
    /// Calls that had begun on it when it was found idle last.
    calls: u32,
}

impl IdlePlace {
    /// Notes whether the connection is idle, and then how many calls have begun on it, ever.
    /// Returns whether it is to be ended.
    pub fn note(&mut self, idle_after_calls: Option<u32>, now_ns: u64) -> bool {
        let (order, own) = (Ordering::Relaxed, &self.own);
        let Some(calls) = idle_after_calls else {
            own.since_ns.store(BUSY, order);
            own.is_condemned.store(false, order);
            return false;
        };
        if calls != self.calls || own.since_ns.load(order) == BUSY {
            self.calls = calls;
            own.since_ns.store(now_ns, order);
            own.is_condemned.store(false, order);
        }
        own.is_condemned.load(order)
    }

    /// Returns whether it is to be ended unless it is found to be in use.
    pub fn is_condemned(&self) -> bool {
        self.own.is_condemned.load(Ordering::Relaxed)
    }
}

impl Account {
    /// A connection found no place: one ends that is idle, if there is such a one whose peer cannot
    /// be asked whether it is there. `of`: the address that has too many.
    #[cold]
    pub fn make_room(&self, of: Option<&PeerAddress>, now_ns: u64) {
        self.idle.end_one(of.map(Party::of), now_ns, || {
            self.verdicts.fetch_add(1, Ordering::Release);
        });
    }
}

impl Holding {
    /// Lets the connection be ended for others while it is idle.
    pub fn allow_making_room(&mut self, peer: &PeerAddress) {
        let (all, wake) = (&self.account.idle, self.wake.clone());
        self.idle = Some(all.insert(self.number, Party::of(peer), wake));
    }

    /// Notes whether the connection is idle, and then how many calls have begun on it, ever.
    /// Returns whether it is to be ended, for another one.
    pub fn note_idle(&mut self, after_calls: Option<u32>, now_ns: u64) -> bool {
        (self.idle.as_mut()).is_some_and(|place| place.note(after_calls, now_ns))
    }

    /// Returns whether the connection is to be ended for another one, or was.
    pub fn makes_room(&self) -> bool {
        self.idle.as_ref().is_some_and(IdlePlace::is_condemned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE_NS: u64 = limits::FRAMED_IDLE_MS * NS_PER_MS;
    const ROOM_NS: u64 = limits::MAKE_ROOM_MS * NS_PER_MS;

    fn open(all: &IdleConnections, number: u64, node: u32) -> IdlePlace {
        all.insert(number, Party::Simulated(node), Wake(Arc::new(|| {})))
    }

    fn condemned(places: &[IdlePlace]) -> Vec<usize> {
        let places = places.iter().enumerate();
        let condemned = places.filter(|(_, place)| place.is_condemned());
        condemned.map(|(at, _)| at).collect()
    }

    #[test]
    fn the_longest_idle_connection_of_the_peer_with_most_makes_room() {
        let all = IdleConnections::default();
        let nodes = [1, 2, 2, 2, 3];
        let mut places: Vec<_> = (0..)
            .zip(nodes)
            .map(|(at, node)| open(&all, at, node))
            .collect();
        for (at, place) in (0..).zip(&mut places) {
            assert!(!place.note(Some(1), 1 + at));
        }
        let mut noted = 0;
        all.end_one(None, IDLE_NS, || noted += 1);
        assert_eq!(
            (condemned(&places), noted),
            (vec![], 0),
            "not for long enough"
        );
        let mut now_ns = 2 * IDLE_NS;
        all.end_one(None, now_ns, || noted += 1);
        assert_eq!((condemned(&places), noted), (vec![1], 1));
        all.end_one(None, now_ns + ROOM_NS - 1, || noted += 1);
        assert_eq!(condemned(&places), [1], "one after the other");
        now_ns += ROOM_NS;
        all.end_one(None, now_ns, || noted += 1);
        assert_eq!((condemned(&places), noted), (vec![1, 2], 2));
        // It is for somebody of a certain peer.
        now_ns += ROOM_NS;
        all.end_one(Some(Party::Simulated(3)), now_ns, || noted += 1);
        assert_eq!((condemned(&places), noted), (vec![1, 2, 4], 3));
        assert!(places[1].note(Some(1), now_ns), "it ends");
        now_ns += ROOM_NS;
        all.end_one(Some(Party::Simulated(3)), now_ns, || noted += 1);
        assert_eq!(noted, 3, "it has no other");
    }

    #[test]
    fn a_connection_in_use_stays() {
        let all = IdleConnections::default();
        let mut place = open(&all, 7, 1);
        let mut now_ns = 1;
        for round in 0..3 {
            // A call runs, or one has begun and ended since.
            for (calls, idle) in [(round * 2 + 1, false), (round * 2 + 2, true)] {
                assert!(!place.note(idle.then_some(calls), now_ns));
                all.end_one(None, now_ns + IDLE_NS - 1, || panic!("it is in use"));
                now_ns += ROOM_NS;
            }
            now_ns += IDLE_NS;
            all.end_one(None, now_ns, || ());
            assert!(place.is_condemned());
            // It was faster.
            assert!(!place.note(Some(round * 2 + 3), now_ns));
            assert!(!place.is_condemned());
        }
        all.remove(7);
        all.end_one(None, now_ns + 2 * IDLE_NS, || panic!("it is gone"));
    }
}
