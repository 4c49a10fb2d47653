//! What a load remembers of its calls: keys that it has inserted, and Gets that a Put follows.

use std::collections::VecDeque;

use super::tickets::CallTickets;

/// Why a call is remembered until it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remembered {
    /// The insertion of this number.
    Insert(u64),
    /// Of the key with this number, which is written next.
    ReadModifyWrite(u64),
}

/// The calls of one thread that something follows from.
#[derive(Debug, Default)]
pub(super) struct FollowUp {
    /// By ticket less 1: 0 is that of the calls of which nothing is remembered.
    tickets: CallTickets<Remembered>,
    /// Keys that are to be written.
    writes: VecDeque<u64>,
    /// Insertions that have ended, all before them too.
    settled: u64,
    /// Whether those behind have ended.
    unsettled: VecDeque<bool>,
}

impl FollowUp {
    /// How many insertions have ended, all before them too: of so many keys it is known that they
    /// are there.
    pub(super) fn settled(&self) -> u64 {
        self.settled
    }

    /// The next key that is to be written after it was read.
    pub(super) fn next_write(&mut self) -> Option<u64> {
        self.writes.pop_front()
    }

    /// Begins an insertion: returns its number, from 0 on, and the ticket of its call.
    pub(super) fn insert(&mut self) -> (u64, u32) {
        let number = self.settled + self.unsettled.len() as u64;
        self.unsettled.push_back(false);
        (number, self.remember(Remembered::Insert(number)))
    }

    /// A Get begins that is followed by a Put. Returns the ticket of its call.
    pub(super) fn read(&mut self, key: u64) -> u32 {
        self.remember(Remembered::ReadModifyWrite(key))
    }

    /// A call has ended; of ticket 0 nothing is remembered.
    pub(super) fn ended(&mut self, ticket: u32, is_good: bool) {
        let remembered = (ticket.checked_sub(1)).and_then(|ticket| self.tickets.free(ticket));
        let Some(remembered) = remembered else {
            return;
        };
        match remembered {
            // One that failed counts too: a later Get of it is a miss, and shows it.
            Remembered::Insert(number) => self.settle(number),
            Remembered::ReadModifyWrite(key) if is_good => self.writes.push_back(key),
            Remembered::ReadModifyWrite(_) => {}
        }
    }

    fn settle(&mut self, number: u64) {
        let behind = number.checked_sub(self.settled);
        let ended = behind.and_then(|behind| self.unsettled.get_mut(behind as usize));
        if let Some(ended) = ended {
            *ended = true;
        }
        while self.unsettled.front() == Some(&true) {
            self.unsettled.pop_front();
            self.settled += 1;
        }
    }

    fn remember(&mut self, remembered: Remembered) -> u32 {
        self.tickets.take(remembered) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn insertions_settle_in_their_order() {
        let mut follow_up = FollowUp::default();
        for round in 0..3 {
            let begun: Vec<(u64, u32)> = (0..3).map(|_| follow_up.insert()).collect();
            assert!(begun.iter().all(|&(_, ticket)| (1..=3).contains(&ticket)));
            let numbers: Vec<u64> = begun.iter().map(|(number, _)| *number).collect();
            assert_eq!(numbers, [round * 3, round * 3 + 1, round * 3 + 2]);
            follow_up.ended(begun[1].1, true);
            assert_eq!(follow_up.settled(), round * 3);
            follow_up.ended(begun[0].1, false);
            assert_eq!(follow_up.settled(), round * 3 + 2);
            follow_up.ended(begun[2].1, true);
            assert_eq!(follow_up.settled(), round * 3 + 3);
        }
    }

    #[test]
    fn what_was_read_is_written_once() {
        let mut follow_up = FollowUp::default();
        for _ in 0..2 {
            let (one, two) = (follow_up.read(7), follow_up.read(8));
            assert_eq!(follow_up.next_write(), None);
            follow_up.ended(two, true);
            follow_up.ended(one, false);
            follow_up.ended(0, true);
            assert_eq!(follow_up.next_write(), Some(8));
            assert_eq!(follow_up.next_write(), None);
        }
        assert_eq!(follow_up.settled(), 0);
    }
}
