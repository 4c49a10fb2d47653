//! Items that wait, in turns: one owner after the other, and of each what came first. So an owner
//! with a thousand of them delays its own, and what another one has by one. Owners of one token
//! have a turn together, and take turns in it: so a token with a thousand owners delays its own,
//! too.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use service::identities::IdentityKey;

use crate::limits;

/// Items of owners: those of each owner in order, the owners in turn.
#[derive(Debug)]
pub(crate) struct FairQueue<K, T> {
    /// Of each owner that has something. None is empty.
    waiting: HashMap<K, WaitingItems<T>>,
    /// Whose turn is next, the first in front.
    order: VecDeque<TurnOf<K>>,
    /// The owners of each token that has some, in the order of their turns. None is empty.
    of_identities: HashMap<IdentityKey, VecDeque<K>>,
    /// Owners in both, also those that are forgotten.
    turns: usize,
    /// How many items wait in all.
    len: usize,
    /// Kept for owners to come, so that one that has a single item again and again allocates
    /// nothing for it.
    spare: Vec<VecDeque<T>>,
}

/// What waits for an owner.
#[derive(Debug)]
struct WaitingItems<T> {
    /// Whose token it has, if that is counted.
    identity: Option<IdentityKey>,
    items: VecDeque<T>,
}

/// Who has a turn.
#[derive(Clone, Copy, Debug)]
enum TurnOf<K> {
    Owner(K),
    /// The next one of its owners.
    Identity(IdentityKey),
}

impl<K, T> Default for FairQueue<K, T> {
    fn default() -> FairQueue<K, T> {
        FairQueue {
            waiting: HashMap::new(),
            order: VecDeque::new(),
            of_identities: HashMap::new(),
            turns: 0,
            len: 0,
            spare: Vec::new(),
        }
    }
}

impl<K: Copy + Eq + Hash, T> FairQueue<K, T> {
    /// Adds an item behind those that its owner has waiting already.
    #[cfg(test)]
    pub fn push(&mut self, owner: K, item: T) {
        self.push_of(owner, None, item);
    }

    /// The same of an owner with this token, if it is counted. The owner keeps the one that it had
    /// with what waits.
    pub fn push_of(&mut self, owner: K, identity: Option<IdentityKey>, item: T) {
        self.len += 1;
        match self.waiting.entry(owner) {
            Entry::Occupied(entry) => entry.into_mut().items.push_back(item),
            Entry::Vacant(entry) => {
                let mut items = self.spare.pop().unwrap_or_default();
                items.push_back(item);
                entry.insert(WaitingItems { identity, items });
                self.add_turn(owner, identity);
            }
        }
    }

    fn add_turn(&mut self, owner: K, identity: Option<IdentityKey>) {
        self.turns += 1;
        let Some(identity) = identity else {
            return self.order.push_back(TurnOf::Owner(owner));
        };
        match self.of_identities.entry(identity) {
            Entry::Occupied(entry) => entry.into_mut().push_back(owner),
            Entry::Vacant(entry) => {
                entry.insert(VecDeque::from([owner]));
                self.order.push_back(TurnOf::Identity(identity));
            }
        }
    }

    /// Takes out whose turn is next. The next turn of its token is behind all others.
    fn take_turn(&mut self) -> Option<K> {
        loop {
            let identity = match self.order.pop_front()? {
                TurnOf::Owner(owner) => {
                    self.turns -= 1;
                    return Some(owner);
                }
                TurnOf::Identity(identity) => identity,
            };
            let Entry::Occupied(mut entry) = self.of_identities.entry(identity) else {
                continue;
            };
            let owner = entry.get_mut().pop_front();
            match entry.get().is_empty() {
                true => drop(entry.remove()),
                false => self.order.push_back(TurnOf::Identity(identity)),
            }
            if owner.is_some() {
                self.turns -= 1;
                return owner;
            }
        }
    }

    /// Takes out what is next. Its owner has its next turn behind all others.
    pub fn pop(&mut self) -> Option<T> {
        let (owner, mut entry) = loop {
            let owner = self.take_turn()?;
            if let Entry::Occupied(entry) = self.waiting.entry(owner) {
                break (owner, entry);
            }
        };
        let item = entry.get_mut().items.pop_front()?;
        self.len -= 1;
        if entry.get().items.is_empty() {
            let emptied = entry.remove().items;
            let is_kept = self.spare.len() < limits::SPARE_TURN_QUEUES
                && emptied.capacity() <= limits::SPARE_TURN_ITEMS;
            if is_kept {
                self.spare.push(emptied);
            }
        } else {
            let identity = entry.get().identity;
            self.add_turn(owner, identity);
        }
        Some(item)
    }

    /// Returns how many items wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no item waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns how many items of an owner wait.
    pub fn of(&self, owner: K) -> usize {
        (self.waiting.get(&owner)).map_or(0, |waiting| waiting.items.len())
    }

    /// Takes out what waits for an owner that never comes back.
    pub fn forget(&mut self, owner: K) -> VecDeque<T> {
        let removed = self.waiting.remove(&owner);
        let items = removed.map_or_else(VecDeque::new, |waiting| waiting.items);
        self.len -= items.len();
        // Its turn is passed over. Those of many that left are taken out together, so that each
        // costs the same.
        if self.turns > 2 * self.waiting.len() + limits::TURNS_PASSED_OVER {
            self.drop_turns_of_forgotten();
        }
        items
    }

    fn drop_turns_of_forgotten(&mut self) {
        let (waiting, of_identities) = (&self.waiting, &mut self.of_identities);
        of_identities.retain(|_, owners| {
            owners.retain(|owner| waiting.contains_key(owner));
            !owners.is_empty()
        });
        self.order.retain(|turn| match turn {
            TurnOf::Owner(owner) => waiting.contains_key(owner),
            TurnOf::Identity(identity) => of_identities.contains_key(identity),
        });
        self.turns = waiting.len();
    }

    /// Returns how many owners have something waiting, and how many turns are kept, also of those
    /// that are forgotten.
    #[cfg(test)]
    pub fn kept(&self) -> (usize, usize) {
        (self.waiting.len(), self.turns)
    }
}

#[cfg(test)]
mod tests {
    use service::identities::{Identities, TokenKey};
    use service::rights::Rights;

    use super::*;

    #[test]
    fn owners_take_turns_and_items_of_one_keep_their_order() {
        let mut turns = FairQueue::default();
        for round in 0..2 {
            for item in 0..5 {
                turns.push(1, item);
            }
            turns.push(2, 20);
            turns.push(3, 30);
            assert_eq!((turns.len(), turns.of(1)), (7, 5), "round {round}");
            assert_eq!(turns.pop(), Some(0));
            // It comes again, behind those of its owner.
            turns.push(1, 0);
            assert_eq!(turns.pop(), Some(20));
            // Its owner has nothing else: its next turn is behind the third.
            turns.push(2, 20);
            let rest = std::iter::from_fn(|| turns.pop()).collect::<Vec<_>>();
            assert_eq!(rest, [30, 1, 20, 2, 3, 4, 0], "round {round}");
            assert!(turns.is_empty() && turns.kept() == (0, 0));
            assert_eq!(turns.pop(), None);
        }
    }

    /// However many owners one has.
    #[test]
    fn owners_of_one_token_have_a_turn_together() {
        let table = Identities::new(TokenKey::new(&[1; 32]), vec![Rights::default(); 2]).table();
        let identity = |number| Some(table.of_listener(number));
        let mut turns = FairQueue::default();
        for round in 0..2 {
            for owner in 0..100 {
                for item in 0..2 {
                    turns.push_of(owner, identity(0), (owner, item));
                }
            }
            for item in 0..3 {
                turns.push_of(200, identity(1), (200, item));
                turns.push(300, (300, item));
            }
            let first: Vec<_> = (0..9).filter_map(|_| turns.pop()).collect();
            let expected = [0, 1, 2].map(|n| [(n, 0), (200, n), (300, n)]).concat();
            assert_eq!(first, expected, "round {round}");
            // Within it they take turns as well.
            let rest: Vec<_> = std::iter::from_fn(|| turns.pop()).collect();
            let of_first = (3..100).map(|owner| (owner, 0));
            assert!(
                rest.iter()
                    .copied()
                    .eq(of_first.chain((0..100).map(|owner| (owner, 1))))
            );
            assert!(turns.is_empty() && turns.kept() == (0, 0));
            assert!(turns.of_identities.is_empty() && turns.order.is_empty());
        }
    }

    #[test]
    fn owners_of_a_token_that_leave_leave_nothing() {
        let table = Identities::new(TokenKey::new(&[1; 32]), vec![Rights::default(); 2]).table();
        let mut turns = FairQueue::default();
        for _ in 0..3 {
            for owner in 0..500_usize {
                turns.push_of(owner, Some(table.of_listener(owner % 2)), owner);
            }
            for owner in 0..499 {
                assert_eq!(turns.forget(owner).len(), 1);
            }
            assert!(turns.kept().1 <= 2 + limits::TURNS_PASSED_OVER);
            assert_eq!(
                (turns.len(), turns.pop(), turns.pop()),
                (1, Some(499), None)
            );
            assert!(turns.of_identities.is_empty() && turns.order.is_empty());
            assert_eq!(turns.kept(), (0, 0));
        }
    }

    #[test]
    fn what_is_kept_for_later_is_bounded() {
        let mut turns = FairQueue::default();
        for _ in 0..2 {
            for owner in 0..2 * limits::SPARE_TURN_QUEUES as u32 {
                turns.push(owner, owner);
            }
            for item in 0..8 * limits::SPARE_TURN_ITEMS as u32 {
                turns.push(0, item);
            }
            while turns.pop().is_some() {}
            assert_eq!(turns.len(), 0);
            assert!(turns.spare.len() <= limits::SPARE_TURN_QUEUES);
            let largest = turns.spare.iter().map(VecDeque::capacity).max();
            assert!(largest.is_some_and(|items| items <= limits::SPARE_TURN_ITEMS));
        }
    }
}
