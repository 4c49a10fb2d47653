//! The walk that finds connections whose certificate is not trusted any more.

/// Where a loop is in its walk, which goes on in later ticks.
#[derive(Default)]
pub(super) struct TrustWalk {
    /// The slot to look at next; `None`: all were looked at.
    next: Option<usize>,
}

impl TrustWalk {
    /// Has all slots from this one on looked at, beside those that are still to be.
    pub fn begin_at(&mut self, slot: usize) {
        self.next = Some(self.next.map_or(slot, |next| next.min(slot)));
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
