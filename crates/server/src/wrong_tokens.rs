//! Slows those down who send wrong tokens: some refusals come at once, those that follow wait.
//!
//! A connection is slowed by its own wrong tokens alone, and by whether its address has sent many
//! lately. A good token works at once, wherever it comes from: whoever shares an address, or a
//! connection through a proxy, with somebody who guesses, is not locked out.

use std::sync::{Mutex, MutexGuard, PoisonError};

use store::blob::UploadPeer;

use crate::limits;
use crate::pace::{OwnerPace, PaceTable, Rate};

/// The wrong tokens of all peers of a server, by address.
#[derive(Debug)]
pub(crate) struct WrongTokens {
    addresses: Mutex<PaceTable<UploadPeer>>,
}

/// The wrong tokens of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConnectionWrongTokens {
    pace: OwnerPace,
}

/// When a call with a wrong token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusedWhen {
    /// At once.
    Now,
    /// At this time, in nanoseconds.
    At(u64),
    /// So many wait already that it is refused at once if others use the connection too, and else
    /// at this time.
    Crowded(u64),
}

const OF_CONNECTION: Rate = Rate {
    burst: limits::WRONG_TOKENS_AT_ONCE,
    interval_ms: limits::WRONG_TOKEN_INTERVAL_MS,
};

const OF_ADDRESS: Rate = Rate {
    burst: limits::WRONG_TOKENS_AT_ONCE_PER_ADDRESS,
    interval_ms: limits::WRONG_TOKEN_INTERVAL_MS,
};

impl Default for WrongTokens {
    fn default() -> WrongTokens {
        WrongTokens {
            addresses: Mutex::new(PaceTable::new(limits::WRONG_TOKEN_ADDRESSES)),
        }
    }
}

impl WrongTokens {
    /// Notes a wrong token of an address. Returns whether it has sent many lately.
    fn note(&self, address: UploadPeer, now_ns: u64) -> bool {
        let mut addresses = self.lock();
        let entry = addresses.entry(address, OF_ADDRESS, now_ns);
        let may = entry.pace.may(OF_ADDRESS, now_ns);
        if may {
            entry.pace.push(OF_ADDRESS, now_ns);
        }
        !may
    }

    fn lock(&self) -> MutexGuard<'_, PaceTable<UploadPeer>> {
        // Whole entries are put in and changed: sound whoever panicked.
        self.addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionWrongTokens {
    /// Notes a wrong token of the connection, which comes from `address`. Returns when the call is
    /// refused that has it.
    pub fn note(&mut self, all: &WrongTokens, address: UploadPeer, now_ns: u64) -> RefusedWhen {
        let most_ns = limits::WAITING_REFUSALS * limits::WRONG_TOKEN_INTERVAL_MS * 1_000_000;
        let mut pace = self.pace;
        let ahead_ns = pace.push(OF_CONNECTION, now_ns);
        let burst_ns = match all.note(address, now_ns) {
            true => 0,
            false => limits::WRONG_TOKENS_AT_ONCE * limits::WRONG_TOKEN_INTERVAL_MS * 1_000_000,
        };
        let wait_ns = ahead_ns.saturating_sub(burst_ns);
        if wait_ns > most_ns {
            return RefusedWhen::Crowded(now_ns.saturating_add(most_ns));
        }
        self.pace = pace;
        match wait_ns {
            0 => RefusedWhen::Now,
            wait_ns => RefusedWhen::At(now_ns.saturating_add(wait_ns)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL_NS: u64 = limits::WRONG_TOKEN_INTERVAL_MS * 1_000_000;
    const BURST: u64 = limits::WRONG_TOKENS_AT_ONCE;

    fn address(number: u32) -> UploadPeer {
        UploadPeer::with_address(std::net::Ipv4Addr::from(number).into())
    }

    #[test]
    fn some_are_refused_at_once_and_those_that_follow_wait() {
        let all = WrongTokens::default();
        let mut connection = ConnectionWrongTokens::default();
        for round in 0..2 {
            let now_ns = round * 1_000_000_000_000;
            let mut note = || connection.note(&all, address(1), now_ns);
            for _ in 0..BURST {
                assert_eq!(note(), RefusedWhen::Now);
            }
            for waiting in 1..=limits::WAITING_REFUSALS {
                let at_ns = now_ns + waiting * INTERVAL_NS;
                assert_eq!(note(), RefusedWhen::At(at_ns));
            }
            let last_ns = now_ns + limits::WAITING_REFUSALS * INTERVAL_NS;
            for _ in 0..2 {
                assert_eq!(note(), RefusedWhen::Crowded(last_ns));
            }
            let later_ns = now_ns + INTERVAL_NS;
            let last_ns = later_ns + limits::WAITING_REFUSALS * INTERVAL_NS;
            let after = connection.note(&all, address(1), later_ns);
            assert_eq!(after, RefusedWhen::At(last_ns), "one less waits");
        }
    }

    /// Connections that come one after the other are no way around it, and other addresses have
    /// what they had.
    #[test]
    fn connections_of_an_address_that_has_sent_many_are_slowed_from_the_first_on() {
        let all = WrongTokens::default();
        for round in 0..2 {
            let now_ns = round * 1_000_000_000_000;
            let note =
                |number| ConnectionWrongTokens::default().note(&all, address(number), now_ns);
            for _ in 0..limits::WRONG_TOKENS_AT_ONCE_PER_ADDRESS {
                assert_eq!(note(1), RefusedWhen::Now);
            }
            for _ in 0..2 {
                assert_eq!(note(1), RefusedWhen::At(now_ns + INTERVAL_NS));
            }
            assert_eq!(note(2), RefusedWhen::Now);
        }
    }

    /// What was refused late does not count: beyond its burst an address has one more at once in
    /// each interval, however many it sends meanwhile.
    #[test]
    fn an_address_beyond_its_burst_has_one_more_refused_at_once_in_each_interval() {
        let all = WrongTokens::default();
        for round in 0..2 {
            let begin_ns = round * 1_000_000_000_000;
            for _ in 0..limits::WRONG_TOKENS_AT_ONCE_PER_ADDRESS {
                assert!(!all.note(address(1), begin_ns));
            }
            for interval in 0..5 {
                let now_ns = begin_ns + interval * INTERVAL_NS;
                if interval > 0 {
                    assert!(!all.note(address(1), now_ns), "{interval}");
                }
                for part in 0..4 {
                    assert!(all.note(address(1), now_ns + part * INTERVAL_NS / 4));
                }
            }
        }
    }

    #[test]
    fn addresses_beyond_the_bound_take_no_memory() {
        let all = WrongTokens::default();
        for number in 0..3 * limits::WRONG_TOKEN_ADDRESSES as u32 {
            all.note(address(number), 0);
        }
        assert_eq!(all.lock().len(), limits::WRONG_TOKEN_ADDRESSES);
    }
}
