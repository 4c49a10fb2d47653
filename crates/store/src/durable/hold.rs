//! Holds: what keeps segments of the log from being retired while somebody copies them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::signal::Signal;
use crate::limits;

/// Up to where segments of a log are not needed any more, and who still needs some.
#[derive(Debug)]
pub(crate) struct Holds {
    /// Segments that hold nothing beyond this are not needed any more.
    retire_sequence: AtomicU64,
    held: Mutex<Held>,
    /// Holds that nobody has any more, and until when they last; `None`: nobody has looked yet.
    lingering: Mutex<Vec<(Option<u64>, Arc<LogHold>)>>,
    has_lingering: AtomicBool,
    /// Wakes the one that retires segments.
    signal: Arc<Signal>,
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
    holds: Arc<Holds>,
    number: u64,
    is_broken: Arc<AtomicBool>,
}

impl Holds {
    /// Nothing is held, and nothing can go.
    pub(super) fn new(signal: &Arc<Signal>) -> Arc<Holds> {
        Arc::new(Holds {
            retire_sequence: AtomicU64::new(0),
            held: Mutex::default(),
            lingering: Mutex::default(),
            has_lingering: AtomicBool::new(false),
            signal: Arc::clone(signal),
        })
    }

    /// Asks for segments to be retired that hold nothing beyond a sequence.
    pub(super) fn retire_through(&self, sequence: u64) {
        self.retire_sequence.fetch_max(sequence, Ordering::Relaxed);
        self.signal.wake();
    }

    /// Up to which sequence segments should be retired of a log of so many bytes; 0: nobody has
    /// asked since this was asked last, or somebody holds them.
    pub(super) fn take_retire_sequence(&self, log_bytes: u64) -> u64 {
        match self.retire_sequence.swap(0, Ordering::Relaxed) {
            0 => 0,
            asked => self.bound(asked, log_bytes),
        }
    }

    /// Up to which sequence segments may be retired, of those that are asked for. Holds are broken
    /// where the log has become too large for them.
    fn bound(&self, asked_sequence: u64, log_bytes: u64) -> u64 {
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

    /// Lets holds go that nobody has any more, when their time is over.
    pub(super) fn end_lingering(&self, now_ns: u64) {
        if !self.has_lingering.load(Ordering::Relaxed) {
            return;
        }
        let mut lingering = self.lingering.lock();
        let until_ns = now_ns.saturating_add(limits::COPY_HOLD_MS * 1_000_000);
        let mut over = Vec::new();
        for (until, hold) in std::mem::take(&mut *lingering) {
            let until = until.unwrap_or(until_ns);
            match until <= now_ns || hold.is_broken() {
                true => over.push(hold),
                false => lingering.push((Some(until), hold)),
            }
        }
        (self.has_lingering).store(!lingering.is_empty(), Ordering::Relaxed);
        drop(lingering);
        drop(over);
    }

    /// Whether somebody holds the log.
    pub(super) fn is_held(&self) -> bool {
        !self.held.lock().list.is_empty()
    }

    /// Gives up all holds, since there is no room for more log.
    pub(super) fn break_all(&self) {
        let waiting_sequence = self.held.lock().break_all();
        if waiting_sequence > 0 {
            self.retire_through(waiting_sequence);
        }
    }

    /// Keeps what comes after a sequence. `None`: there are too many holds.
    ///
    /// Call it on the committer's thread, and with a sequence up to which no index needs the log:
    /// whatever was asked to be retired before is not behind it.
    pub(crate) fn hold(self: &Arc<Holds>, sequence: u64) -> Option<LogHold> {
        let mut held = self.held.lock();
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
            holds: Arc::clone(self),
            number,
            is_broken,
        })
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
    /// Lets it last for some more time: somebody has a copy, and will ask for what comes behind it.
    /// Of those that last so, the oldest goes where there are too many.
    pub(crate) fn linger(this: &Arc<LogHold>) {
        let holds = &this.holds;
        let mut lingering = holds.lingering.lock();
        let is_one_too_many = lingering.len() >= limits::COPY_HOLDS;
        let oldest = is_one_too_many.then(|| lingering.remove(0));
        lingering.push((None, Arc::clone(this)));
        drop(lingering);
        drop(oldest);
        holds.has_lingering.store(true, Ordering::Relaxed);
        holds.signal.wake();
    }

    /// Whether it was given up: what it kept may be gone.
    pub fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }
}

impl Drop for LogHold {
    fn drop(&mut self) {
        let waiting_sequence = {
            let mut held = self.holds.held.lock();
            held.list.retain(|hold| hold.number != self.number);
            // If another hold stands in its way, it comes to wait again.
            std::mem::take(&mut held.waiting_sequence)
        };
        if waiting_sequence > 0 {
            self.holds.retire_through(waiting_sequence);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_that_somebody_holds_stay_until_the_hold_is_dropped() {
        let holds = Holds::new(&Arc::default());
        for _ in 0..2 {
            let (one, two) = (holds.hold(5), holds.hold(3));
            holds.retire_through(9);
            assert_eq!(holds.take_retire_sequence(0), 3);
            drop(two);
            assert_eq!(holds.take_retire_sequence(0), 5);
            drop(one);
            assert_eq!(holds.take_retire_sequence(0), 9);
            assert_eq!(holds.take_retire_sequence(0), 0);
            assert!(!holds.is_held());
        }
    }

    #[test]
    fn holds_are_broken_where_the_log_is_too_large_or_has_no_room() {
        let holds = Holds::new(&Arc::default());
        let one = holds.hold(5).expect("there is a place");
        holds.retire_through(9);
        assert_eq!(holds.take_retire_sequence(limits::HELD_LOG_BYTES + 1), 9);
        assert!(one.is_broken() && !holds.is_held());
        let two = holds.hold(5).expect("there is a place");
        holds.retire_through(9);
        assert_eq!(holds.take_retire_sequence(limits::HELD_LOG_BYTES), 5);
        holds.break_all();
        assert!(two.is_broken());
        assert_eq!(holds.take_retire_sequence(0), 9);
    }

    #[test]
    fn there_are_only_so_many_holds() {
        let holds = Holds::new(&Arc::default());
        for _ in 0..2 {
            let all: Vec<_> = (0..limits::LOG_HOLDS).map(|_| holds.hold(1)).collect();
            assert!(all.iter().all(Option::is_some));
            assert!(holds.hold(1).is_none());
        }
    }
}
