//! What waits, in turns: one owner after the other, and of each what came first. So an owner with a
//! thousand of them delays its own, and what another one has by one.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use crate::limits;

/// Items of owners: those of each owner in order, the owners in turn.
#[derive(Debug)]
pub(crate) struct Turns<K, T> {
    /// Of each owner that has something. None is empty.
    waiting: HashMap<K, VecDeque<T>>,
    /// These owners, the one whose turn is next in front, and owners that are forgotten.
    order: VecDeque<K>,
    /// How many items wait in all.
    len: usize,
    /// Kept for owners to come, so that one that has a single item again and again allocates
    /// nothing for it.
    spare: Vec<VecDeque<T>>,
}

impl<K, T> Default for Turns<K, T> {
    fn default() -> Turns<K, T> {
        Turns {
            waiting: HashMap::new(),
            order: VecDeque::new(),
            len: 0,
            spare: Vec::new(),
        }
    }
}

impl<K: Copy + Eq + Hash, T> Turns<K, T> {
    /// Adds an item behind those that its owner has waiting already.
    pub fn push(&mut self, owner: K, item: T) {
        self.len += 1;
        match self.waiting.entry(owner) {
            Entry::Occupied(entry) => entry.into_mut().push_back(item),
            Entry::Vacant(entry) => {
                let mut items = self.spare.pop().unwrap_or_default();
                items.push_back(item);
                entry.insert(items);
                self.order.push_back(owner);
            }
        }
    }

    /// Takes out what is next. Its owner has its next turn behind all others.
    pub fn pop(&mut self) -> Option<T> {
        let (owner, mut entry) = loop {
            let owner = self.order.pop_front()?;
            if let Entry::Occupied(entry) = self.waiting.entry(owner) {
                break (owner, entry);
            }
        };
        let item = entry.get_mut().pop_front()?;
        self.len -= 1;
        if entry.get().is_empty() {
            let emptied = entry.remove();
            let is_kept = self.spare.len() < limits::SPARE_TURN_QUEUES
                && emptied.capacity() <= limits::SPARE_TURN_ITEMS;
            if is_kept {
                self.spare.push(emptied);
            }
        } else {
            self.order.push_back(owner);
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
        self.waiting.get(&owner).map_or(0, VecDeque::len)
    }

    /// Takes out what waits for an owner that never comes back.
    pub fn forget(&mut self, owner: K) -> VecDeque<T> {
        let items = self.waiting.remove(&owner).unwrap_or_default();
        self.len -= items.len();
        // Its turn is passed over. Those of many that left are taken out together, so that each
        // costs the same.
        if self.order.len() > 2 * self.waiting.len() + limits::TURNS_PASSED_OVER {
            self.order.retain(|other| self.waiting.contains_key(other));
        }
        items
    }

    /// Returns how many owners have something waiting, and how many turns are kept, also of those
    /// that are forgotten.
    #[cfg(test)]
    pub fn kept(&self) -> (usize, usize) {
        (self.waiting.len(), self.order.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_take_turns_and_items_of_one_keep_their_order() {
        let mut turns = Turns::default();
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

    #[test]
    fn what_is_kept_for_later_is_bounded() {
        let mut turns = Turns::default();
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
