//! Which searches compute: a few at a time, which take turns.
//!
//! A search of a distance computes for seconds. With a thread for each connection, and in a loop
//! beside other long work, every search that computes takes as much time as any other call. So they
//! are few, and who has many of them waits for their own: addresses have their turns one after the
//! other, and so have connections that have no address.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use store::ChangeSignal;
use store::blob::UploadPeer;

use crate::limits::{TKRZW_SEARCH_TURN_STEPS, TKRZW_SEARCHES_AT_ONCE};
use crate::shares::CallerId;

/// Who has a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum TurnOwner {
    Address(UploadPeer),
    Connection(u64),
}

/// The searches of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct SearchTurns(Arc<Mutex<SearchTable>>);

#[derive(Debug, Default)]
struct SearchTable {
    /// Searches whose turn it is.
    computing: Vec<u64>,
    /// Those that wait, of each owner that has some, in the order in which they came.
    waiting: HashMap<TurnOwner, VecDeque<WaitingSearch>>,
    /// These owners, in the order of their turns.
    order: VecDeque<TurnOwner>,
    next_number: u64,
}

#[derive(Debug)]
struct WaitingSearch {
    number: u64,
    signal: Arc<ChangeSignal>,
}

/// The place of a search among the others.
#[derive(Debug)]
pub(crate) struct SearchTicket {
    turns: SearchTurns,
    owner: TurnOwner,
    number: u64,
    signal: Arc<ChangeSignal>,
    /// Steps that are left of its turn.
    steps: u32,
}

impl TurnOwner {
    fn of(caller: CallerId) -> TurnOwner {
        match caller.address {
            UploadPeer::Address(address) if !address.is_loopback() => {
                TurnOwner::Address(caller.address)
            }
            UploadPeer::Address(_) | UploadPeer::Local | UploadPeer::Unknown => {
                TurnOwner::Connection(caller.connection)
            }
        }
    }
}

impl SearchTurns {
    /// Returns the place of a search, whose turn may have come already; else the signal is raised
    /// when it has.
    pub(crate) fn enter(&self, caller: CallerId, signal: ChangeSignal) -> SearchTicket {
        let mut table = self.lock();
        table.next_number += 1;
        let ticket = SearchTicket {
            turns: self.clone(),
            owner: TurnOwner::of(caller),
            number: table.next_number,
            signal: Arc::new(signal),
            steps: TKRZW_SEARCH_TURN_STEPS,
        };
        match table.computing.len() < TKRZW_SEARCHES_AT_ONCE {
            true => table.computing.push(ticket.number),
            false => table.push(&ticket),
        }
        drop(table);
        ticket
    }

    fn lock(&self) -> MutexGuard<'_, SearchTable> {
        // Nothing under this lock can panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many searches compute and how many wait.
    #[cfg(test)]
    pub(crate) fn len(&self) -> (usize, usize) {
        let table = self.lock();
        let waiting = table.waiting.values().map(VecDeque::len).sum();
        (table.computing.len(), waiting)
    }
}

impl SearchTable {
    fn push(&mut self, ticket: &SearchTicket) {
        let waiting = self.waiting.entry(ticket.owner).or_default();
        if waiting.is_empty() {
            self.order.push_back(ticket.owner);
        }
        waiting.push_back(WaitingSearch {
            number: ticket.number,
            signal: Arc::clone(&ticket.signal),
        });
    }

    /// Takes out the search whose turn is next, and gives it the turn.
    fn pass_on(&mut self) -> Option<Arc<ChangeSignal>> {
        let owner = self.order.pop_front()?;
        let waiting = self.waiting.get_mut(&owner)?;
        let next = waiting.pop_front()?;
        match waiting.is_empty() {
            true => drop(self.waiting.remove(&owner)),
            false => self.order.push_back(owner),
        }
        self.computing.push(next.number);
        Some(next.signal)
    }

    /// Takes out a search that computes or waits. Returns whether it had a turn.
    fn remove(&mut self, ticket: &SearchTicket) -> bool {
        if let Some(place) = self.computing.iter().position(|one| *one == ticket.number) {
            self.computing.swap_remove(place);
            return true;
        }
        if let Some(waiting) = self.waiting.get_mut(&ticket.owner) {
            waiting.retain(|one| one.number != ticket.number);
            if waiting.is_empty() {
                self.waiting.remove(&ticket.owner);
                self.order.retain(|owner| *owner != ticket.owner);
            }
        }
        false
    }
}

impl SearchTicket {
    /// Returns whether it is the turn of this search.
    pub(crate) fn has_turn(&self) -> bool {
        self.turns.lock().computing.contains(&self.number)
    }

    /// A step was taken. Returns whether the turn goes on; if not, others have theirs first.
    pub(crate) fn go_on(&mut self) -> bool {
        self.steps = self.steps.saturating_sub(1);
        if self.steps > 0 {
            return true;
        }
        self.steps = TKRZW_SEARCH_TURN_STEPS;
        let mut table = self.turns.lock();
        if table.order.is_empty() {
            return true;
        }
        table.remove(self);
        let next = table.pass_on();
        table.push(self);
        drop(table);
        if let Some(signal) = next {
            signal.raise();
        }
        false
    }
}

impl Drop for SearchTicket {
    fn drop(&mut self) {
        let mut table = self.turns.lock();
        let had_turn = table.remove(self);
        let next = had_turn.then(|| table.pass_on()).flatten();
        drop(table);
        if let Some(signal) = next {
            signal.raise();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use store::{Store, StoreConfig};

    use super::*;

    fn caller(address: u32, connection: u64) -> CallerId {
        CallerId {
            address: UploadPeer::with_address(Ipv4Addr::from(address).into()),
            connection,
            identity: None,
        }
    }

    /// An address of this machine.
    const LOOPBACK: u32 = 0x7f00_0001;

    /// However many searches an address has, another one waits for one turn of theirs.
    #[test]
    fn addresses_take_turns_and_so_do_connections_of_this_machine() {
        let store = Store::in_memory(StoreConfig::new(1)).expect("the limits make sense");
        let turns = SearchTurns::default();
        for others in [[caller(1, 1); 2], [caller(LOOPBACK, 1); 2]] {
            let newcomer = match others[0].address == caller(1, 1).address {
                true => caller(2, 2),
                false => caller(LOOPBACK, 2),
            };
            let enter = |caller| turns.enter(caller, store.signal());
            let mut computing: Vec<_> = (0..TKRZW_SEARCHES_AT_ONCE)
                .map(|_| enter(others[0]))
                .collect();
            let waiting: Vec<_> = (0..50).map(|_| enter(others[1])).collect();
            let new = enter(newcomer);
            assert!(computing.iter().all(SearchTicket::has_turn));
            assert!(!waiting[0].has_turn() && !new.has_turn());
            assert_eq!(turns.len(), (TKRZW_SEARCHES_AT_ONCE, 51));
            for _ in 1..TKRZW_SEARCH_TURN_STEPS {
                assert!(computing[0].go_on() && computing[1].go_on());
            }
            assert!(!computing[0].go_on() && !computing[0].has_turn() && waiting[0].has_turn());
            let before = new.signal.news().changes();
            assert!(!computing[1].go_on() && new.has_turn());
            assert_eq!(new.signal.news().changes(), before + 1);
            // One that ends passes its turn on; one that waits leaves nothing.
            let before = waiting[1].signal.news().changes();
            drop(new);
            assert!(waiting[1].has_turn() && !waiting[2].has_turn());
            assert_eq!(waiting[1].signal.news().changes(), before + 1);
            assert_eq!(turns.len(), (TKRZW_SEARCHES_AT_ONCE, 50));
            drop((computing, waiting));
            assert_eq!(turns.len(), (0, 0));
            let table = turns.lock();
            assert!(table.waiting.is_empty() && table.order.is_empty());
        }
    }

    #[test]
    fn a_search_goes_on_while_nobody_waits() {
        let store = Store::in_memory(StoreConfig::new(1)).expect("the limits make sense");
        let turns = SearchTurns::default();
        let mut one = turns.enter(caller(1, 1), store.signal());
        for _ in 0..5 * TKRZW_SEARCH_TURN_STEPS {
            assert!(one.go_on() && one.has_turn());
        }
    }
}
