//! How often something may happen: so many times at once, and then once in each interval. This is
//! the generic cell rate algorithm (ITU-T I.371), which keeps one number for each owner.

use std::collections::HashMap;
use std::hash::Hash;

/// What an owner may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// So many times at once.
    pub burst: u64,
    /// And once more in each of these.
    pub interval_ms: u64,
}

impl Rate {
    fn interval_ns(self) -> u64 {
        self.interval_ms * 1_000_000
    }

    fn burst_ns(self) -> u64 {
        self.burst * self.interval_ns()
    }
}

/// What an owner has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnerPace {
    /// When all that it has done would be done at one in each interval.
    due_ns: u64,
}

impl OwnerPace {
    /// Notes one more. Returns how far it is ahead of the interval, in nanoseconds: within
    /// [`Rate::burst`] intervals it may happen now, and beyond these so much later.
    pub fn push(&mut self, rate: Rate, now_ns: u64) -> u64 {
        self.due_ns = self.due_ns.max(now_ns).saturating_add(rate.interval_ns());
        self.due_ns - now_ns
    }

    /// Returns whether one more may happen now.
    pub fn may(&self, rate: Rate, now_ns: u64) -> bool {
        let ahead_ns = self.due_ns.saturating_sub(now_ns);
        ahead_ns.saturating_add(rate.interval_ns()) <= rate.burst_ns()
    }

    /// Returns whether nothing is left of what was done: it is as if there had been nothing.
    fn is_over(&self, now_ns: u64) -> bool {
        self.due_ns <= now_ns
    }
}

/// The paces of many owners. Those of whom nothing is left are forgotten; beyond the bound, owners
/// to come share one entry.
#[derive(Debug)]
pub(crate) struct PaceTable<K> {
    entries: HashMap<K, PaceEntry>,
    others: PaceEntry,
    max_entries: usize,
    /// When it was last looked for those of whom nothing is left.
    swept_ns: u64,
}

/// What is kept of an owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PaceEntry {
    pub pace: OwnerPace,
    /// What it could not do, and nobody has said yet.
    pub missed: u64,
}

impl<K: Eq + Hash> PaceTable<K> {
    /// Makes an empty table of so many owners.
    pub fn new(max_entries: usize) -> PaceTable<K> {
        PaceTable {
            entries: HashMap::new(),
            others: PaceEntry::default(),
            max_entries,
            swept_ns: 0,
        }
    }

    /// Returns what is kept of an owner.
    pub fn entry(&mut self, owner: K, rate: Rate, now_ns: u64) -> &mut PaceEntry {
        if self.entries.len() >= self.max_entries && !self.entries.contains_key(&owner) {
            self.sweep(rate, now_ns);
            if self.entries.len() >= self.max_entries {
                return &mut self.others;
            }
        }
        self.entries.entry(owner).or_default()
    }

    /// Forgets those of whom nothing is left, at most once in an interval: so a crowd of owners
    /// does not have the table walked for each of them. What they have missed goes to the others.
    fn sweep(&mut self, rate: Rate, now_ns: u64) {
        if now_ns.saturating_sub(self.swept_ns) < rate.interval_ns() {
            return;
        }
        self.swept_ns = now_ns;
        let others = &mut self.others.missed;
        self.entries.retain(|_, entry| {
            let is_over = entry.pace.is_over(now_ns);
            *others += if is_over { entry.missed } else { 0 };
            !is_over
        });
    }

    /// Takes out what owners have missed that are forgotten.
    pub fn take_missed_by_others(&mut self) -> u64 {
        std::mem::take(&mut self.others.missed)
    }

    /// Returns how many owners have an entry.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate {
        burst: 3,
        interval_ms: 10,
    };
    const MS: u64 = 1_000_000;

    #[test]
    fn so_many_happen_at_once_and_then_one_in_each_interval() {
        let mut pace = OwnerPace::default();
        for round in 0..2 {
            let now_ns = round * 1_000 * MS;
            for ahead in 1..=3 {
                assert!(pace.may(RATE, now_ns));
                assert_eq!(pace.push(RATE, now_ns), ahead * 10 * MS);
            }
            assert!(!pace.may(RATE, now_ns) && !pace.may(RATE, now_ns + 10 * MS - 1));
            assert_eq!(pace.push(RATE, now_ns), 40 * MS, "noted all the same");
            assert!(!pace.may(RATE, now_ns + 20 * MS - 1));
            assert!(pace.may(RATE, now_ns + 20 * MS));
            assert!(!pace.is_over(now_ns + 40 * MS - 1) && pace.is_over(now_ns + 40 * MS));
        }
        assert_eq!(pace.push(RATE, u64::MAX), 0, "time ends");
    }

    #[test]
    fn a_crowd_of_owners_shares_one_entry_and_takes_no_more_memory() {
        let mut table: PaceTable<u32> = PaceTable::new(4);
        for round in 1..=2 {
            let now_ns = round * 1_000 * MS;
            for owner in 0..100 {
                let entry = table.entry(owner, RATE, now_ns);
                // Three of the others may, together.
                assert_eq!(entry.pace.may(RATE, now_ns), owner < 7, "{owner}");
                entry.pace.push(RATE, now_ns);
            }
            assert_eq!(table.len(), 4);
            // Those that are known go on.
            assert!(table.entry(1, RATE, now_ns).pace.may(RATE, now_ns));
        }
    }

    #[test]
    fn what_owners_have_missed_is_not_lost_when_they_are_forgotten() {
        let mut table: PaceTable<u32> = PaceTable::new(2);
        for round in 1..=2 {
            let now_ns = round * 1_000 * MS;
            for (owner, missed) in [(1, 7), (2, 0)] {
                let entry = table.entry(owner, RATE, now_ns);
                entry.pace.push(RATE, now_ns);
                entry.missed += missed;
            }
            let later_ns = now_ns + 9 * MS;
            table.entry(3, RATE, later_ns).missed += 1;
            assert_eq!((table.len(), table.take_missed_by_others()), (2, 1));
            let later_ns = now_ns + 20 * MS;
            let other = table.entry(4, RATE, later_ns);
            assert_eq!(*other, PaceEntry::default());
            other.pace.push(RATE, later_ns);
            assert_eq!((table.len(), table.take_missed_by_others()), (1, 7));
            table.entry(5, RATE, later_ns).pace.push(RATE, later_ns);
        }
    }
}
