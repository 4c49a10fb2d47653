//! An ordered set whose nodes can be moved: to be allocated anew, one after the other.

use std::borrow::Borrow;
use std::collections::{BTreeSet, btree_set};
use std::iter::Chain;
use std::ops::Bound;

use crate::limits::DEFRAGMENT_KEYS;

/// One of so many moved keys is inserted behind the others: a tree that grows at its end has nodes
/// that are half full, and this fills them to about 19 in 22.
const MOVED_LATER: usize = 3;

/// A set of two trees: all of `low` is below all of `high`, which is empty unless somebody is at
/// moving.
#[derive(Debug)]
pub(super) struct OrderedSet<T> {
    low: BTreeSet<T>,
    high: BTreeSet<T>,
}

impl<T: Ord> OrderedSet<T> {
    pub(super) fn new() -> OrderedSet<T> {
        OrderedSet {
            low: BTreeSet::new(),
            high: BTreeSet::new(),
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.low.len() + self.high.len()
    }

    #[inline]
    pub(super) fn first(&self) -> Option<&T> {
        self.low.first().or_else(|| self.high.first())
    }

    #[inline]
    pub(super) fn insert(&mut self, item: T) {
        match self.high.first() {
            Some(first) if *first <= item => self.high.insert(item),
            _ => self.low.insert(item),
        };
    }

    #[inline]
    pub(super) fn remove<K: Ord + ?Sized>(&mut self, item: &K)
    where
        T: Borrow<K>,
    {
        if !self.low.remove(item) {
            self.high.remove(item);
        }
    }

    /// Adds all of another set, and leaves that empty.
    pub(super) fn append(&mut self, other: &mut BTreeSet<T>) {
        if self.high.is_empty() {
            self.low.append(other);
        } else {
            (std::mem::take(other).into_iter()).for_each(|item| self.insert(item));
        }
    }

    /// Returns the items between two bounds, in order.
    ///
    /// # Panics
    ///
    /// If the bounds are out of order, as those of a [`BTreeSet`].
    #[inline]
    pub(super) fn range<'a, K: Ord + ?Sized + 'a>(
        &'a self,
        bounds: (Bound<&K>, Bound<&K>),
    ) -> Chain<btree_set::Range<'a, T>, btree_set::Range<'a, T>>
    where
        T: Borrow<K>,
    {
        self.low.range(bounds).chain(self.high.range(bounds))
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.low.iter().chain(&self.high)
    }

    #[cfg(any(test, feature = "hooks"))]
    pub(super) fn contains(&self, item: &T) -> bool {
        self.low.contains(item) || self.high.contains(item)
    }

    /// Begins to move all items, or goes on where a move was given up.
    pub(super) fn begin_move(&mut self) {
        if self.high.is_empty() {
            std::mem::swap(&mut self.low, &mut self.high);
        }
    }

    /// Moves the next items, made anew by `renew`; returns how many. None: all are moved.
    pub(super) fn move_some(&mut self, renew: impl Fn(&T) -> T) -> usize {
        let mut later = Vec::with_capacity(DEFRAGMENT_KEYS / MOVED_LATER + 1);
        let mut count = 0;
        while count < DEFRAGMENT_KEYS
            && let Some(item) = self.high.pop_first()
        {
            count += 1;
            match count % MOVED_LATER {
                0 => later.push(renew(&item)),
                _ => drop(self.low.insert(renew(&item))),
            }
        }
        self.low.extend(later);
        count
    }
}

impl<T> IntoIterator for OrderedSet<T> {
    type Item = T;
    type IntoIter = Chain<btree_set::IntoIter<T>, btree_set::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.low.into_iter().chain(self.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wherever the move stands, the set is what one tree would be.
    #[test]
    fn a_set_that_is_being_moved_is_what_it_was() {
        let mut set = OrderedSet::new();
        let mut model = BTreeSet::new();
        let mut number = 1_u64;
        for round in 0..3 {
            for _ in 0..20 * DEFRAGMENT_KEYS {
                number = number
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(round);
                set.insert(number >> 48);
                model.insert(number >> 48);
            }
            set.begin_move();
            let mut moved = 0;
            loop {
                let some = set.move_some(|item| *item);
                moved += some;
                for item in [number >> 48, number >> 40 & 0xffff, (number >> 20) & 0xffff] {
                    assert_eq!(set.contains(&item), model.contains(&item));
                    set.remove(&item);
                    model.remove(&item);
                    number = number
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    set.insert(number >> 48);
                    model.insert(number >> 48);
                }
                assert_eq!((set.len(), set.first()), (model.len(), model.first()));
                assert!(set.iter().eq(&model));
                let bounds = (
                    Bound::Excluded(&9_000),
                    Bound::Included(&(number >> 48 | 0x4000)),
                );
                assert!(set.range(bounds).eq(model.range(bounds)));
                assert!(set.range(bounds).rev().eq(model.range(bounds).rev()));
                if some == 0 {
                    break;
                }
            }
            assert!(set.high.is_empty(), "all is in one tree again");
            assert!(
                moved >= 20 * DEFRAGMENT_KEYS / 2,
                "{moved} of round {round}"
            );
        }
        assert!(set.into_iter().eq(model));
    }

    #[test]
    fn a_move_that_was_given_up_goes_on() {
        let mut set = OrderedSet::new();
        let all = || 0..10 * DEFRAGMENT_KEYS;
        all().for_each(|item| set.insert(item));
        set.begin_move();
        assert_eq!(set.move_some(|item| *item), DEFRAGMENT_KEYS);
        let mut other = BTreeSet::from_iter([3, 7 * DEFRAGMENT_KEYS, 20 * DEFRAGMENT_KEYS]);
        set.append(&mut other);
        set.begin_move();
        while set.move_some(|item| *item) > 0 {}
        assert!(set.iter().copied().eq(all().chain([20 * DEFRAGMENT_KEYS])));
        assert!(set.high.is_empty());
    }
}
