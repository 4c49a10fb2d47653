//! Delays of `pelton serve --simulate`: how long the key-value example of the gRPC project pretends to work.
//!
//! A delay is an alarm of the call, so no thread is held. With [`Delays::serial`] calls have their delays one after the
//! other: each is told when its own ends, as soon as it comes, and that is after all that came before it. So nothing
//! needs to wake the next one, loops share one number, and a late alarm makes nobody after it later. A call that goes
//! before its turn leaves its time unused, as in a server in which a thread sleeps for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::limits::{SIMULATED_BYTES, SIMULATED_ROW_MS};
use crate::status::Status;
use crate::waiting::{WaitingCalls, WaitingPlace};

/// How long operations are delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delays {
    /// Of an operation that reads, in milliseconds.
    pub read_ms: u64,
    /// Of an operation that writes, in milliseconds.
    pub write_ms: u64,
    /// One operation at a time.
    pub serial: bool,
}

/// Gives operations their turns. Shared by all loops of a server.
#[derive(Debug)]
pub struct Simulator {
    delays: Delays,
    /// Serial: when the delay of the last one ends.
    free_at_ns: AtomicU64,
    /// Bytes of requests that wait.
    held_bytes: Arc<AtomicUsize>,
}

/// One operation's turn. What it takes up is free again when it is dropped.
#[derive(Debug)]
pub struct Turn {
    /// From then on it may be carried out, on the clock of [`Actions::now_ns`](crate::call::Actions::now_ns).
    pub due_ns: u64,
    /// What was asked for.
    pub request: Request,
    _place: WaitingPlace,
}

/// The bytes of a request that waits.
#[derive(Debug)]
pub struct Request {
    bytes: Box<[u8]>,
    held_bytes: Arc<AtomicUsize>,
}

impl Simulator {
    /// Delays operations so.
    pub fn new(delays: Delays) -> Simulator {
        Simulator {
            delays,
            free_at_ns: AtomicU64::new(0),
            held_bytes: Arc::default(),
        }
    }

    /// Gives a request that has just come its turn, and keeps its bytes until then.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if too many calls, too many bytes or too much time wait already.
    pub fn enter(
        &self,
        request: &[u8],
        is_read: bool,
        waiting: &WaitingCalls,
        now_ns: u64,
    ) -> Result<Turn, Status> {
        let delay_ms = match is_read {
            true => self.delays.read_ms,
            false => self.delays.write_ms,
        };
        Ok(Turn {
            _place: waiting.enter()?,
            request: Request::keep(request, &self.held_bytes)?,
            due_ns: self.book(delay_ms * 1_000_000, now_ns)?,
        })
    }

    /// When a delay that is asked for now has ended.
    fn book(&self, delay_ns: u64, now_ns: u64) -> Result<u64, Status> {
        if !self.delays.serial {
            return Ok(now_ns + delay_ns);
        }
        let latest_ns = now_ns + SIMULATED_ROW_MS * 1_000_000;
        let end_ns = |free_at_ns: u64| free_at_ns.max(now_ns) + delay_ns;
        // Relaxed, as below: the number guards nothing but itself.
        let booked =
            self.free_at_ns
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free_at_ns| {
                    Some(end_ns(free_at_ns)).filter(|&end_ns| end_ns <= latest_ns)
                });
        booked.map(end_ns).map_err(|_| row_too_long())
    }
}

impl Request {
    fn keep(bytes: &[u8], held_bytes: &Arc<AtomicUsize>) -> Result<Request, Status> {
        let held = held_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
            Some(held + bytes.len()).filter(|&held| held <= SIMULATED_BYTES)
        });
        match held {
            Ok(_) => Ok(Request {
                bytes: bytes.into(),
                held_bytes: Arc::clone(held_bytes),
            }),
            Err(held) => Err(too_many_bytes(bytes.len(), held)),
        }
    }

    /// What was asked for.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let before = self
            .held_bytes
            .fetch_sub(self.bytes.len(), Ordering::Relaxed);
        debug_assert!(before >= self.bytes.len(), "each byte is given back once");
    }
}

#[cold]
fn row_too_long() -> Status {
    Status::resource_exhausted(format!(
        "--simulate: the operations that wait for their turn take {} s already, the most that may wait; try again later",
        SIMULATED_ROW_MS / 1_000
    ))
}

#[cold]
fn too_many_bytes(bytes: usize, held: usize) -> Status {
    Status::resource_exhausted(format!(
        "--simulate: requests of {held} bytes wait already, and this one has {bytes}; at most {SIMULATED_BYTES} may wait"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Code;

    const MS: u64 = 1_000_000;

    fn simulator(serial: bool) -> Simulator {
        Simulator::new(Delays {
            read_ms: 10,
            write_ms: 50,
            serial,
        })
    }

    #[test]
    fn operations_are_delayed_by_their_kind() {
        let (simulator, waiting) = (simulator(false), WaitingCalls::default());
        let due_ns = |is_read, now_ns| {
            let turn = simulator.enter(b"abc", is_read, &waiting, now_ns);
            turn.expect("there is room").due_ns
        };
        assert_eq!(due_ns(true, 5 * MS), 15 * MS);
        assert_eq!(due_ns(false, 5 * MS), 55 * MS);
        assert_eq!(due_ns(true, 5 * MS), 15 * MS, "nobody waits for another");
    }

    #[test]
    fn serial_delays_follow_each_other() {
        let (simulator, waiting) = (simulator(true), WaitingCalls::default());
        let due_ns = |is_read, now_ns| {
            let turn = simulator.enter(b"", is_read, &waiting, now_ns);
            turn.expect("there is room").due_ns
        };
        assert_eq!(due_ns(true, 100 * MS), 110 * MS);
        assert_eq!(due_ns(false, 101 * MS), 160 * MS);
        assert_eq!(due_ns(true, 159 * MS), 170 * MS);
        assert_eq!(due_ns(true, 500 * MS), 510 * MS, "after a rest");
    }

    #[test]
    fn what_waits_is_limited_and_given_back() {
        let simulator = simulator(false);
        let waiting = WaitingCalls::new(2);
        let enter = |request: &[u8]| simulator.enter(request, true, &waiting, 0);
        let large = vec![0; SIMULATED_BYTES];
        let turn = enter(&large).expect("it fits exactly");
        assert_eq!(turn.request.bytes().len(), large.len());
        let refused = enter(b"x").expect_err("no byte more");
        assert_eq!(refused.code, Code::ResourceExhausted);
        assert!(refused.message.contains("268435456"), "{}", refused.message);
        assert_eq!(waiting.count(), 1, "what was refused waits no more");
        drop(turn);
        let _both = (enter(b"x"), enter(&large[1..]));
        assert!(enter(b"").is_err(), "two calls wait");
    }

    #[test]
    fn the_row_is_limited() {
        let (simulator, waiting) = (simulator(true), WaitingCalls::default());
        let most = SIMULATED_ROW_MS / 50;
        let enter = |now_ns| simulator.enter(b"", false, &waiting, now_ns);
        for _ in 0..most {
            // Each goes away at once, and yet its time is taken.
            drop(enter(0).expect("there is room"));
        }
        let refused = enter(0).expect_err("the row is full");
        assert_eq!(refused.code, Code::ResourceExhausted);
        assert!(refused.message.contains("600 s"), "{}", refused.message);
        assert_eq!(waiting.count(), 0);
        let next = enter(50 * MS).expect("the first one has had its turn");
        assert_eq!(next.due_ns, (SIMULATED_ROW_MS + 50) * MS);
    }
}
