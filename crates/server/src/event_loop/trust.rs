//! The walk that finds connections whose certificate is not trusted any more.

use service::identities::IdentityTable;

/// Where a loop is in its walk, which goes on in later ticks.
#[derive(Default)]
pub(super) struct TrustWalk {
    /// The slot to look at next; `None`: all were looked at.
    next: Option<usize>,
    /// For how many of the table's [`IdentityTable::certificate_checks`] it was begun.
    checks_seen: u64,
}

impl TrustWalk {
    /// Has all slots from this one on looked at, beside those that are still to be.
    pub fn begin_at(&mut self, slot: usize) {
        self.next = Some(self.next.map_or(slot, |next| next.min(slot)));
    }

    /// Has all slots looked at if certificates are to be checked anew since it was last called.
    /// Other changes of identities make no certificate worse.
    pub fn begin_for(&mut self, table: &IdentityTable) {
        let checks = table.certificate_checks();
        if std::mem::replace(&mut self.checks_seen, checks) != checks {
            self.begin_at(0);
        }
    }

    /// Returns whether slots are still to be looked at.
    pub fn is_under_way(&self) -> bool {
        self.next.is_some()
    }

    /// Returns the slot to look at next: the walk is over unless it is begun again.
    pub fn take_next(&mut self) -> Option<usize> {
        self.next.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A walk that is under way at a later slot has not looked at what is begun at an earlier one,
    /// and one that is at an earlier slot gets to the later one by itself.
    #[test]
    fn a_walk_goes_on_at_the_earliest_slot_that_is_to_be_looked_at() {
        for (first, second) in [(3, 5), (5, 3), (4, 4), (0, 9), (9, 0)] {
            let mut walk = TrustWalk::default();
            assert!(!walk.is_under_way());
            for _ in 0..2 {
                walk.begin_at(first);
                walk.begin_at(second);
                assert!(walk.is_under_way());
                assert_eq!(walk.take_next(), Some(first.min(second)));
                assert!(!walk.is_under_way());
                assert_eq!(walk.take_next(), None);
            }
        }
    }
}
