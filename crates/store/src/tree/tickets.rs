//! Tickets: whoever has read a tree for a commit holds one until the commit is decided. What came
//! later stays in memory meanwhile, be it on the device or not, so that the one who decides learns
//! of it without reading the device.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::generation::Generation;

/// The tickets of one database, of all its generations.
#[derive(Debug, Default)]
pub(super) struct Tickets {
    /// How many there are of each sequence.
    held: Mutex<HeldTickets>,
}

type HeldTickets = BTreeMap<u64, usize>;

impl Tickets {
    /// Keeps everybody from taking and giving back tickets for a moment.
    pub(super) fn lock(&self) -> Locked<'_> {
        Locked(self.held.lock())
    }
}

/// The tickets, held still.
pub(super) struct Locked<'a>(MutexGuard<'a, HeldTickets>);

impl Locked<'_> {
    /// The sequence of the oldest ticket; `None`: there is none.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.0.keys().next().copied()
    }

    pub(super) fn add(
        &mut self,
        tickets: &Arc<Tickets>,
        sequence: u64,
        generation: Generation,
    ) -> Ticket {
        *self.0.entry(sequence).or_default() += 1;
        Ticket {
            tickets: tickets.clone(),
            sequence,
            generation,
        }
    }
}

/// Says that somebody has read a tree as it was at a sequence, and that a commit rests on it which
/// is not decided yet. Goes when it is dropped.
pub struct Ticket {
    tickets: Arc<Tickets>,
    sequence: u64,
    generation: Generation,
}

impl Ticket {
    /// The last commit that the reader has seen.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The tree that was read.
    pub fn generation(&self) -> Generation {
        self.generation
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut held = self.tickets.held.lock();
        if let Some(count) = held.get_mut(&self.sequence) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.sequence);
            }
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Ticket")
            .field("sequence", &self.sequence)
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}
