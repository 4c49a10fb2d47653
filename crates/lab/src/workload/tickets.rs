//! Numbers by which the calls in flight of a workload are known.

use std::collections::HashSet;

/// What is remembered of each call in flight, by its ticket. As large as the most calls that were
/// in flight at a time.
#[derive(Debug)]
pub(super) struct CallTickets<T> {
    remembered: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for CallTickets<T> {
    fn default() -> CallTickets<T> {
        let (remembered, free) = (Vec::new(), Vec::new());
        CallTickets { remembered, free }
    }
}

impl<T: Copy> CallTickets<T> {
    /// Remembers something of a call that begins. Returns its ticket, from 0 on.
    pub(super) fn take(&mut self, remembered: T) -> u32 {
        if let Some(ticket) = self.free.pop() {
            self.remembered[ticket as usize] = remembered;
            return ticket;
        }
        self.remembered.push(remembered);
        self.remembered.len() as u32 - 1
    }

    /// Returns what is remembered; `None`: the ticket was never taken.
    pub(super) fn get(&self, ticket: u32) -> Option<T> {
        self.remembered.get(ticket as usize).copied()
    }

    /// Returns what is remembered of a call that has ended, and uses its ticket again.
    pub(super) fn free(&mut self, ticket: u32) -> Option<T> {
        let remembered = self.get(ticket)?;
        self.free.push(ticket);
        Some(remembered)
    }

    /// Returns what is remembered of all calls that have not ended.
    pub(super) fn in_flight(&self) -> impl Iterator<Item = T> {
        let free: HashSet<u32> = self.free.iter().copied().collect();
        let all = (0..).zip(&self.remembered);
        all.filter_map(move |(ticket, remembered)| (!free.contains(&ticket)).then_some(*remembered))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_used_again_when_its_call_has_ended() {
        let mut tickets = CallTickets::default();
        for _ in 0..2 {
            assert_eq!((tickets.take('a'), tickets.take('b')), (0, 1));
            assert_eq!(tickets.free(0), Some('a'));
            assert_eq!(tickets.in_flight().collect::<String>(), "b");
            assert_eq!(tickets.take('c'), 0);
            assert_eq!((tickets.get(0), tickets.get(2)), (Some('c'), None));
            assert_eq!(tickets.in_flight().collect::<String>(), "cb");
            assert_eq!((tickets.free(1), tickets.free(0)), (Some('b'), Some('c')));
            assert_eq!(tickets.free(2), None);
            assert_eq!(tickets.in_flight().count(), 0);
        }
    }
}
