//! Which connections an agent keeps when there are too many.
//!
//! A connection is *proven* once a call has come on it that its caller may make: with the token, if
//! the agent has one. Before that it is a newcomer: it has [`AGENT_PROOF_TIME`], and gives way to
//! others, so that whoever has no token keeps nobody out.

use std::collections::HashMap;

use net::{AddressKey, ConnectionId, Peer, PeerAddress};

use super::limits::{AGENT_CONNECTIONS, AGENT_NEWCOMERS, AGENT_PROOF_TIME};

/// What decides whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionStanding {
    /// Where its peer is; `None`: it has no address.
    source: Option<AddressKey>,
    opened_ns: u64,
    is_proven: bool,
    /// When it last had a call.
    used_ns: u64,
    is_in_use: bool,
}

impl ConnectionStanding {
    /// Returns that of a connection that opens.
    pub(super) fn new(peer: &Peer, now_ns: u64) -> ConnectionStanding {
        ConnectionStanding {
            source: match peer.address {
                PeerAddress::Tcp(address) => Some(AddressKey::of(address.ip())),
                PeerAddress::Unix | PeerAddress::Simulated(_) => None,
            },
            opened_ns: now_ns,
            is_proven: false,
            used_ns: now_ns,
            is_in_use: false,
        }
    }

    /// Its caller has shown that they may watch.
    pub(super) fn prove(&mut self) {
        self.is_proven = true;
    }

    /// Notes whether it has calls now.
    pub(super) fn note_calls(&mut self, has_calls: bool, now_ns: u64) {
        if has_calls || self.is_in_use {
            self.used_ns = now_ns;
        }
        self.is_in_use = has_calls;
    }

    /// When it is closed, unless it is proven by then.
    pub(super) fn proof_due_ns(&self) -> Option<u64> {
        let due_ns = self
            .opened_ns
            .saturating_add(AGENT_PROOF_TIME.as_nanos() as u64);
        (!self.is_proven).then_some(due_ns)
    }
}

/// Returns a connection that is to be closed, and not `newcomer`: if there are too many of its
/// kind, or if `is_full` says that the system has no room for more.
pub(super) fn crowded_out<'a>(
    all: impl Iterator<Item = (ConnectionId, &'a ConnectionStanding)> + Clone,
    newcomer: Option<ConnectionId>,
    is_full: bool,
) -> Option<ConnectionId> {
    let newcomers = all.clone().filter(|(_, standing)| !standing.is_proven);
    let proven = all.filter(|(_, standing)| standing.is_proven);
    let newcomers_full = newcomers.clone().count() > AGENT_NEWCOMERS;
    let proven_full = proven.clone().count() > AGENT_CONNECTIONS;
    let others = |(id, _): &(ConnectionId, &ConnectionStanding)| Some(*id) != newcomer;
    let oldest = || oldest_of_most(newcomers.clone().filter(others));
    let longest_idle = || {
        let idle = (proven.clone()).filter(|one| others(one) && !one.1.is_in_use);
        let longest = idle.min_by_key(|(id, standing)| (standing.used_ns, *id));
        longest.map(|(id, _)| id)
    };
    if newcomers_full {
        return oldest();
    }
    if proven_full {
        return longest_idle();
    }
    is_full.then(|| oldest().or_else(longest_idle)).flatten()
}

/// Returns the oldest of the source with most of these.
fn oldest_of_most<'a>(
    all: impl Iterator<Item = (ConnectionId, &'a ConnectionStanding)> + Clone,
) -> Option<ConnectionId> {
    let mut counts: HashMap<Option<AddressKey>, usize> = HashMap::new();
    for (_, standing) in all.clone() {
        *counts.entry(standing.source).or_default() += 1;
    }
    let most = counts.values().copied().max()?;
    let of_most = all.filter(|(_, standing)| counts.get(&standing.source) == Some(&most));
    let oldest = of_most.min_by_key(|(id, standing)| (standing.opened_ns, *id));
    oldest.map(|(id, _)| id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: u32 = 1_000_000;

    fn id(slot: u32) -> ConnectionId {
        ConnectionId {
            slot,
            generation: 0,
        }
    }

    fn standing(source: &str, opened_ns: u64) -> ConnectionStanding {
        ConnectionStanding {
            source: Some(AddressKey::of(source.parse().expect("an address"))),
            opened_ns,
            is_proven: false,
            used_ns: opened_ns,
            is_in_use: false,
        }
    }

    fn choose(all: &[(u32, ConnectionStanding)], is_full: bool) -> Option<u32> {
        let newcomer = all.last().expect("there is one").0;
        let all = all.iter().map(|(slot, standing)| (id(*slot), standing));
        crowded_out(all, Some(id(newcomer)), is_full).map(|id| id.slot)
    }

    #[test]
    fn the_oldest_newcomer_of_the_address_with_most_gives_way() {
        let most = AGENT_NEWCOMERS as u32;
        let mut all = vec![(OWNER, standing("192.0.2.9", 0))];
        all.extend((1..most).map(|slot| (slot, standing("192.0.2.1", u64::from(slot)))));
        assert_eq!(choose(&all, false), None, "there is room");
        all.push((most, standing("192.0.2.1", 1_000)));
        assert_eq!(choose(&all, false), Some(1), "not that of another address");
        assert_eq!(choose(&all[..2], true), Some(OWNER), "each has one");
        let mut alone = all.split_off(all.len() - 1);
        assert_eq!(choose(&alone, true), None, "it does not give way to itself");
        alone[0].1.prove();
        assert_eq!(choose(&alone, true), None);
    }

    #[test]
    fn of_too_many_proven_ones_the_longest_without_a_call_gives_way() {
        let of = |slot: u32| {
            let mut one = standing("192.0.2.1", u64::from(slot));
            one.prove();
            (slot, one)
        };
        let mut all: Vec<_> = (0..AGENT_CONNECTIONS as u32).map(of).collect();
        assert_eq!(choose(&all, false), None);
        all.push(of(100));
        all[0].1.note_calls(true, 200);
        all[1].1.note_calls(true, 200);
        all[1].1.note_calls(false, 300);
        assert_eq!(choose(&all, false), Some(2), "one has a call, one had");
        let mut few = vec![all[0]];
        few.push((7, standing("192.0.2.2", 9)));
        few.push((8, standing("192.0.2.3", 10)));
        assert_eq!(choose(&few, true), Some(7), "newcomers first");
        few.remove(1);
        assert_eq!(choose(&few, true), None, "what is in use stays");
    }

    #[test]
    fn a_proof_is_due_once() {
        let mut one = standing("192.0.2.1", 5);
        let due_ns = 5 + AGENT_PROOF_TIME.as_nanos() as u64;
        assert_eq!(one.proof_due_ns(), Some(due_ns));
        one.prove();
        assert_eq!(one.proof_due_ns(), None);
    }
}
