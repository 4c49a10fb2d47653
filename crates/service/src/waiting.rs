//! Counts the calls that wait for something that may never come, so that there is a bound on them,
//! and shares their places out among callers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limits::{
    WAITING_CALLS_ADDRESS_SHARE, WAITING_CALLS_CONNECTION_SHARE, WAITING_CALLS_IDENTITY_SHARE,
    WAITING_CALLS_IN_ANY_CASE, WAITING_CALLS_MAX,
};
use crate::shares::{Bounds, CallerId, CallerShares, Exceeded};
use crate::status::Status;

/// The places for waiting calls of one server, shared by all its loops.
#[derive(Debug)]
pub struct WaitingCalls {
    taken: Arc<Mutex<CallerShares>>,
    bounds: Bounds,
}

/// The place of one waiting call; free again when dropped.
#[derive(Debug)]
pub struct WaitingPlace {
    taken: Arc<Mutex<CallerShares>>,
    caller: CallerId,
}

impl WaitingCalls {
    /// At most `max` calls wait at a time, but for the few that each connection may have in any
    /// case.
    pub fn new(max: usize) -> WaitingCalls {
        WaitingCalls {
            taken: Arc::default(),
            bounds: Bounds {
                max: max as u64,
                connection_share: WAITING_CALLS_CONNECTION_SHARE,
                address_share: WAITING_CALLS_ADDRESS_SHARE,
                identity_share: WAITING_CALLS_IDENTITY_SHARE,
                in_any_case: WAITING_CALLS_IN_ANY_CASE,
            },
        }
    }

    /// A place for one more call of a caller, or the status that ends the call because there is
    /// none.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if its connection or its address has its share of what is left.
    pub fn enter(&self, caller: CallerId) -> Result<WaitingPlace, Status> {
        let taken = lock(&self.taken).take(caller, 1, &self.bounds);
        taken.map_err(|exceeded| refused(exceeded, self.bounds.max))?;
        Ok(WaitingPlace {
            taken: Arc::clone(&self.taken),
            caller,
        })
    }

    /// How many calls wait now.
    pub fn count(&self) -> usize {
        usize::try_from(lock(&self.taken).all()).unwrap_or(usize::MAX)
    }
}

impl Default for WaitingCalls {
    fn default() -> WaitingCalls {
        WaitingCalls::new(WAITING_CALLS_MAX)
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        lock(&self.taken).give_back(self.caller, 1);
    }
}

#[cold]
fn refused(Exceeded { whose, has, all }: Exceeded, max: u64) -> Status {
    Status::resource_exhausted(format!(
        "{has} calls of this {whose} wait already, its share of what is left of {max} waiting \
         calls (WAITING_CALLS_MAX), \
         of which {all} are taken; end some of them, or try again later"
    ))
}

fn lock(taken: &Mutex<CallerShares>) -> MutexGuard<'_, CallerShares> {
    // Nothing under this lock can panic half-way.
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Code;

    #[test]
    fn places_are_shared_out_and_given_back() {
        let waiting = WaitingCalls::new(100);
        let caller = CallerId::default();
        let mut places: Vec<_> = (0..20)
            .map(|_| waiting.enter(caller).expect("a quarter of what is left"))
            .collect();
        let status = waiting.enter(caller).expect_err("it has its share");
        assert_eq!(status.code(), Code::ResourceExhausted);
        for said in ["20 calls of this connection", "100", "WAITING_CALLS_MAX"] {
            assert!(status.message().contains(said), "{}", status.message());
        }
        assert_eq!(waiting.count(), 20);
        places.pop();
        assert_eq!(waiting.count(), 19);
        waiting.enter(caller).expect("one place was given back");
        let other = CallerId {
            connection: 1,
            ..caller
        };
        waiting.enter(other).expect("another one has places");
    }
}
