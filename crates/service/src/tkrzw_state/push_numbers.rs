//! The keys that calls of PushLast are trying, so that those that push at the same time do not try
//! for the same ones: of a hundred, one would come through each time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use store::DatabaseId;

/// The numbers that are next, by the database and the number from which on one is looked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct PushNumbers(Arc<Mutex<NumberTable>>);

type NumberTable = HashMap<(DatabaseId, u64), NextNumber>;

#[derive(Debug)]
struct NextNumber {
    /// `None`: there is none behind the last one.
    next: Option<u64>,
    /// Calls that take numbers from here.
    calls: usize,
}

/// A call that pushes.
#[derive(Debug)]
pub(crate) struct PushTicket {
    numbers: PushNumbers,
    from: (DatabaseId, u64),
}

impl PushNumbers {
    /// Begins a push whose key is the first free number from `number` on.
    pub(crate) fn enter(&self, database: DatabaseId, number: u64) -> PushTicket {
        let from = (database, number);
        let mut table = self.lock();
        let first = table.entry(from).or_insert(NextNumber {
            next: Some(number),
            calls: 0,
        });
        first.calls += 1;
        PushTicket {
            numbers: self.clone(),
            from,
        }
    }

    fn lock(&self) -> MutexGuard<'_, NumberTable> {
        // Nothing under this lock can panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns from how many numbers something is pushed.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }
}

impl PushTicket {
    /// Takes the next number, not below `least`, which no other call has taken; `None`: there is
    /// none.
    pub(crate) fn take(&self, least: u64) -> Option<u64> {
        let mut table = self.numbers.lock();
        let entry = table.get_mut(&self.from)?;
        let number = entry.next?.max(least);
        entry.next = number.checked_add(1);
        Some(number)
    }
}

impl Drop for PushTicket {
    fn drop(&mut self) {
        let mut table = self.numbers.lock();
        if let Entry::Occupied(mut entry) = table.entry(self.from) {
            entry.get_mut().calls -= 1;
            if entry.get().calls == 0 {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushes_at_the_same_time_take_different_numbers_and_leave_nothing() {
        let numbers = PushNumbers::default();
        let database = DatabaseId::DEFAULT;
        for _ in 0..2 {
            let tickets: Vec<_> = (0..3).map(|_| numbers.enter(database, 7)).collect();
            let other = numbers.enter(database, 8);
            let taken: Vec<_> = tickets.iter().map(|ticket| ticket.take(0)).collect();
            assert_eq!(taken, [Some(7), Some(8), Some(9)]);
            assert_eq!(other.take(0), Some(8));
            // A gap was found behind others.
            assert_eq!(
                (tickets[0].take(50), tickets[1].take(0)),
                (Some(50), Some(51))
            );
            assert_eq!(tickets[0].take(u64::MAX), Some(u64::MAX));
            assert_eq!((tickets[1].take(0), numbers.len()), (None, 2));
            drop((tickets, other));
            assert_eq!(numbers.len(), 0);
        }
    }
}
