//! Holds: what keeps segments of the log from being retired while somebody copies them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::mailbox::Hub;
use crate::limits;

/// All holds on a log.
#[derive(Debug, Default)]
pub(super) struct Holds {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    last_number: u64,
    list: Vec<Hold>,
    /// Up to which sequence segments would have been retired.
    waiting_sequence: u64,
}

#[derive(Debug)]
struct Hold {
    number: u64,
    sequence: u64,
    is_broken: Arc<AtomicBool>,
}

/// Keeps the log behind a sequence until it is dropped, or until there is no room for so much log:
/// the server comes before its backup.
pub struct LogHold {
    hub: Arc<Hub>,
    number: u64,
    is_broken: Arc<AtomicBool>,
}

impl Holds {
    /// Up to which sequence segments may be retired, of those that are asked for. Holds are broken
    /// where the log has become too large for them.
    pub(super) fn bound(&self, asked_sequence: u64, log_bytes: u64) -> u64 {
        let mut held = self.held.lock();
        let least = held.list.iter().map(|hold| hold.sequence).min();
        let Some(least) = least.filter(|&least| least < asked_sequence) else {
            return asked_sequence;
        };
        if log_bytes > limits::HELD_LOG_BYTES {
            held.break_all();
            return asked_sequence;
        }
        held.waiting_sequence = held.waiting_sequence.max(asked_sequence);
        least
    }

    /// Whether somebody holds the log.
    pub(super) fn is_held(&self) -> bool {
        !self.held.lock().list.is_empty()
    }

    /// Gives up all holds, since there is no room for more log. Returns up to which sequence
    /// segments should be retired.
    pub(super) fn break_all(&self) -> u64 {
        self.held.lock().break_all()
    }
}

impl Held {
    fn break_all(&mut self) -> u64 {
        for hold in self.list.drain(..) {
            hold.is_broken.store(true, Ordering::Release);
        }
        std::mem::take(&mut self.waiting_sequence)
    }
}

impl LogHold {
    /// Keeps what comes after a sequence. `None`: there are too many holds.
    ///
    /// Call it on the committer's thread, and with a sequence up to which no index needs the log:
    /// whatever was asked to be retired before is not behind it.
    pub(super) fn new(hub: &Arc<Hub>, sequence: u64) -> Option<LogHold> {
        let mut held = hub.holds.held.lock();
        if held.list.len() >= limits::LOG_HOLDS {
            return None;
        }
        held.last_number += 1;
        let number = held.last_number;
        let is_broken = Arc::new(AtomicBool::new(false));
        held.list.push(Hold {
            number,
            sequence,
            is_broken: is_broken.clone(),
        });
        drop(held);
        Some(LogHold {
            hub: hub.clone(),
            number,
            is_broken,
        })
    }

    /// Whether it was given up: what it kept may be gone.
    pub fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }
}

impl Drop for LogHold {
    fn drop(&mut self) {
        let waiting_sequence = {
            let mut held = self.hub.holds.held.lock();
            held.list.retain(|hold| hold.number != self.number);
            // If another hold stands in its way, it comes to wait again.
            std::mem::take(&mut held.waiting_sequence)
        };
        if waiting_sequence > 0 {
            self.hub.retire_through(waiting_sequence);
        }
    }
}

impl fmt::Debug for LogHold {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LogHold")
            .field("number", &self.number)
            .field("is_broken", &self.is_broken())
            .finish_non_exhaustive()
    }
}
