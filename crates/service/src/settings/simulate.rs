//! Delays of `pelton serve --simulate`: how long the key-value example of the gRPC project pretends
//! to work.
//!
//! A delay is a timer of the call, so no thread is held. With [`Delays::serial`] calls have their
//! delays one after the other: each is told when its own ends, as soon as it comes, and that is
//! after all that came before it. So nothing needs to wake the next one, loops share one number,
//! and a late timer makes nobody after it later. A call that goes before its turn leaves its time
//! unused, as in a server in which a thread sleeps for it.
//!
//! The bytes of requests that wait, and the time that is given out ahead, are shared out among
//! callers, so that one that takes all that it can get leaves something to the others.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limits::{
    SIMULATED_ADDRESS_SHARE, SIMULATED_BYTES, SIMULATED_BYTES_IN_ANY_CASE, SIMULATED_BYTES_SHARE,
    SIMULATED_CONNECTION_SHARE, SIMULATED_ROW_ADDRESS_SHARE, SIMULATED_ROW_CONNECTION_SHARE,
    SIMULATED_ROW_MS,
};
use crate::shares::{Bounds, CallerId, CallerShares, Exceeded};
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
    row: Mutex<DelayRow>,
    held: Arc<Mutex<CallerShares>>,
    bytes: Bounds,
}

/// Serial: the delays that are given out, one after the other.
#[derive(Debug, Default)]
struct DelayRow {
    /// When the last one ends.
    free_at_ns: u64,
    /// Whose they are, and when each ends: a caller that has gone before its turn still has its
    /// time.
    booked: VecDeque<Booked>,
    taken: CallerShares,
}

#[derive(Debug)]
struct Booked {
    end_ns: u64,
    caller: CallerId,
    delay_ns: u64,
}

/// What of the row one caller may have, in nanoseconds.
const ROW: Bounds = Bounds {
    max: SIMULATED_ROW_MS * 1_000_000,
    connection_share: SIMULATED_ROW_CONNECTION_SHARE,
    address_share: SIMULATED_ROW_ADDRESS_SHARE,
    identity_share: SIMULATED_ROW_ADDRESS_SHARE,
    in_any_case: 0,
};

/// One operation's turn. What it takes up is free again when it is dropped.
#[derive(Debug)]
pub struct SimulatedTurn {
    /// From then on it may be carried out, on the clock of
    /// [`CallClock::now_ns`](crate::CallClock::now_ns).
    pub due_ns: u64,
    /// What was asked for.
    pub request: HeldRequest,
    _place: WaitingPlace,
}

/// The bytes of a request that waits.
#[derive(Debug)]
pub struct HeldRequest {
    bytes: Box<[u8]>,
    caller: CallerId,
    held: Arc<Mutex<CallerShares>>,
}

impl Simulator {
    /// Delays operations so, in a server with this memory limit.
    pub fn new(delays: Delays, memory_limit_bytes: u64) -> Simulator {
        Simulator {
            delays,
            row: Mutex::default(),
            held: Arc::default(),
            bytes: Bounds {
                max: SIMULATED_BYTES.min(memory_limit_bytes / SIMULATED_BYTES_SHARE),
                connection_share: SIMULATED_CONNECTION_SHARE,
                address_share: SIMULATED_ADDRESS_SHARE,
                identity_share: SIMULATED_ADDRESS_SHARE,
                in_any_case: SIMULATED_BYTES_IN_ANY_CASE,
            },
        }
    }

    /// Gives a request that has just come its turn, and keeps its bytes until then.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if too many calls, too many bytes or too much time wait already, in all
    /// or of this caller.
    pub fn enter(
        &self,
        request: &[u8],
        is_read: bool,
        waiting: &WaitingCalls,
        caller: CallerId,
        now_ns: u64,
    ) -> Result<SimulatedTurn, Status> {
        let delay_ms = match is_read {
            true => self.delays.read_ms,
            false => self.delays.write_ms,
        };
        Ok(SimulatedTurn {
            _place: waiting.enter(caller)?,
            request: self.keep(request, caller)?,
            due_ns: self.book(delay_ms * 1_000_000, caller, now_ns)?,
        })
    }

    fn keep(&self, bytes: &[u8], caller: CallerId) -> Result<HeldRequest, Status> {
        let taken = lock(&self.held).take(caller, bytes.len() as u64, &self.bytes);
        taken.map_err(|exceeded| too_many_bytes(bytes.len(), exceeded, self.bytes.max))?;
        Ok(HeldRequest {
            bytes: bytes.into(),
            caller,
            held: Arc::clone(&self.held),
        })
    }

    /// When a delay that is asked for now has ended.
    fn book(&self, delay_ns: u64, caller: CallerId, now_ns: u64) -> Result<u64, Status> {
        match self.delays.serial {
            true => lock(&self.row).book(delay_ns, caller, now_ns),
            false => Ok(now_ns + delay_ns),
        }
    }
}

impl DelayRow {
    fn book(&mut self, delay_ns: u64, caller: CallerId, now_ns: u64) -> Result<u64, Status> {
        while let Some(first) = self.booked.front()
            && first.end_ns <= now_ns
        {
            self.taken.give_back(first.caller, first.delay_ns);
            self.booked.pop_front();
        }
        let taken = self.taken.take(caller, delay_ns, &ROW);
        taken.map_err(row_too_long)?;
        let end_ns = self.free_at_ns.max(now_ns) + delay_ns;
        self.free_at_ns = end_ns;
        if delay_ns > 0 {
            self.booked.push_back(Booked {
                end_ns,
                caller,
                delay_ns,
            });
        }
        Ok(end_ns)
    }
}

impl HeldRequest {
    /// What was asked for.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for HeldRequest {
    fn drop(&mut self) {
        lock(&self.held).give_back(self.caller, self.bytes.len() as u64);
    }
}

#[cold]
fn row_too_long(Exceeded { whose, has, all }: Exceeded) -> Status {
    Status::resource_exhausted(format!(
        "--simulate: the operations of this {whose} that wait for their turn take {} s \
         already, its share of what is left of {} s (SIMULATED_ROW_MS), of which {} s are \
         taken; try again later",
        has / 1_000_000_000,
        SIMULATED_ROW_MS / 1_000,
        all / 1_000_000_000,
    ))
}

#[cold]
fn too_many_bytes(bytes: usize, Exceeded { whose, has, all }: Exceeded, max: u64) -> Status {
    Status::resource_exhausted(format!(
        "--simulate: requests of this {whose} with {has} bytes wait already, and this one has \
         {bytes}; that is more than its share of what is left of {max} bytes \
         (SIMULATED_BYTES), of which {all} are taken; try again later"
    ))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing under these locks can panic half-way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Code;

    const MS: u64 = 1_000_000;

    fn simulator(serial: bool) -> Simulator {
        let delays = Delays {
            read_ms: 10,
            write_ms: 50,
            serial,
        };
        Simulator::new(delays, 1 << 40)
    }

    fn caller(connection: u64) -> CallerId {
        CallerId {
            connection,
            ..CallerId::default()
        }
    }

    #[test]
    fn operations_are_delayed_by_their_kind() {
        let (simulator, waiting) = (simulator(false), WaitingCalls::default());
        let due_ns = |is_read, now_ns| {
            let turn = simulator.enter(b"abc", is_read, &waiting, caller(1), now_ns);
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
            let turn = simulator.enter(b"", is_read, &waiting, caller(1), now_ns);
            turn.expect("there is room").due_ns
        };
        assert_eq!(due_ns(true, 100 * MS), 110 * MS);
        assert_eq!(due_ns(false, 101 * MS), 160 * MS);
        assert_eq!(due_ns(true, 159 * MS), 170 * MS);
        assert_eq!(due_ns(true, 500 * MS), 510 * MS, "after a rest");
    }

    #[test]
    fn bytes_that_wait_are_shared_out_and_given_back() {
        // Of 64 MiB an eighth, of which a connection has a quarter and an address a half.
        let mut simulator = simulator(false);
        simulator.bytes = Simulator::new(simulator.delays, 64 << 20).bytes;
        let waiting = WaitingCalls::default();
        let enter = |from, bytes| simulator.enter(&vec![0; bytes], true, &waiting, caller(from), 0);
        let turn = enter(1, 2 << 20).expect("it fits exactly");
        assert_eq!(turn.request.bytes().len(), 2 << 20);
        let refused = enter(1, 1).expect_err("no byte more");
        assert_eq!(refused.code(), Code::ResourceExhausted);
        for said in ["8388608 bytes (SIMULATED_BYTES)", "2097152", "connection"] {
            assert!(refused.message().contains(said), "{}", refused.message());
        }
        assert_eq!(waiting.count(), 1, "what was refused waits no more");
        let other = enter(2, 1 << 20).expect("another one has its own share");
        let _third = enter(3, 64 << 10).expect("a little in any case");
        drop((turn, other));
        assert!(enter(1, 1 << 20).is_ok());
    }

    #[test]
    fn a_large_server_has_no_more_bytes_waiting_than_the_ceiling() {
        assert_eq!(simulator(false).bytes.max, SIMULATED_BYTES);
    }

    /// One caller that goes on and on leaves most of the row to others, also if its calls go before
    /// their turn.
    #[test]
    fn the_row_is_shared_out() {
        let (simulator, waiting) = (simulator(true), WaitingCalls::default());
        let enter = |from, now_ns| simulator.enter(b"", false, &waiting, caller(from), now_ns);
        let fill = |from| {
            let mut count = 0;
            // Each goes away at once, and yet its time is taken.
            while enter(from, 0).is_ok() {
                count += 1;
            }
            count
        };
        let most = SIMULATED_ROW_MS / 50 / (SIMULATED_ROW_CONNECTION_SHARE + 1);
        assert_eq!(fill(1), most);
        let refused = enter(1, 0).expect_err("it has its share");
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert!(refused.message().contains("600 s"), "{}", refused.message());
        assert_eq!(waiting.count(), 0);
        let turn = enter(2, 0).expect("another one has its turn behind it");
        assert_eq!(turn.due_ns, (most + 1) * 50 * MS);
        let all: u64 = (3..100).map(fill).sum();
        assert!(all * 50 < SIMULATED_ROW_MS / 6, "an address has an eighth");
        let later_ns = SIMULATED_ROW_MS * MS;
        assert_eq!(
            enter(1, later_ns).map(|turn| turn.due_ns),
            Ok(later_ns + 50 * MS)
        );
        assert_eq!(lock(&simulator.row).booked.len(), 1);
    }
}
