//! The pool of a channel, and where its servers are.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use client::{Address, ConnectError, EndpointStatistics, PoolStage, SharedPool};

use crate::limits;
use crate::resolver::{LookupResult, Named, Resolver};
use crate::settings::ChannelSettings;
use crate::sync::lock;

/// The only pool of a channel in a process: calls that wait in it learn of new addresses.
pub(crate) struct ChannelPool {
    pub(crate) pool: SharedPool,
    addresses: Arc<[Address]>,
    resolver: Arc<Resolver>,
    /// For the resolver.
    own: Weak<ChannelPool>,
    lookups: Mutex<Lookups>,
}

/// When names were looked up.
#[derive(Default)]
struct Lookups {
    is_pending: bool,
    last: Option<Instant>,
    /// In a row.
    failures: u32,
}

impl ChannelPool {
    /// Waits for nothing: names are looked up by threads of the resolver.
    pub(crate) fn new(
        settings: &ChannelSettings,
        resolver: Arc<Resolver>,
    ) -> Result<Arc<ChannelPool>, String> {
        let addresses = settings.addresses.as_ref().map_err(String::clone)?;
        let options = settings.options.clone();
        let seed = random_seed();
        let pool = match settings.has_names {
            true => SharedPool::unresolved(addresses, options, seed),
            false => SharedPool::new(addresses, options, seed),
        };
        let pool = pool.map_err(|error| error.to_string())?;
        let made = Arc::new_cyclic(|own| ChannelPool {
            pool,
            addresses: Arc::from(addresses.as_slice()),
            resolver,
            own: Weak::clone(own),
            lookups: Mutex::default(),
        });
        if settings.has_names {
            let failures = FailureWaker(Arc::downgrade(&made));
            made.pool.notify_failures(Waker::from(Arc::new(failures)));
            made.look_up();
        }
        Ok(made)
    }

    /// Has the names looked up, at most once in a while.
    fn look_up(&self) {
        let now = Instant::now();
        let due = {
            let mut lookups = lock(&self.lookups);
            if std::mem::replace(&mut lookups.is_pending, true) {
                return;
            }
            let next = lookups.last.map(|last| last + limits::LOOKUP_PERIOD);
            next.map_or(now, |next| next.max(now))
        };
        if let Err(error) = self.resolver.submit(self.own.clone(), due) {
            for (number, address) in self.addresses.iter().enumerate() {
                let reason =
                    format!("{address} cannot be looked up: no thread can be had: {error}");
                self.pool.set_endpoints(number, Err(reason));
            }
        }
    }

    /// Returns the state of the channel as gRPC numbers it.
    pub(crate) fn state(&self) -> u8 {
        let statistics = self.pool.statistics();
        let mut connections = statistics.connections.iter();
        let has_failed = |endpoint: &EndpointStatistics| endpoint.last_failure.is_some();
        if connections.any(|connection| connection.stage == PoolStage::Open) {
            READY
        } else if statistics.endpoints.iter().all(has_failed) {
            TRANSIENT_FAILURE
        } else {
            CONNECTING
        }
    }
}

impl Named for ChannelPool {
    fn addresses(&self) -> Arc<[Address]> {
        Arc::clone(&self.addresses)
    }

    fn take(&self, found: Vec<LookupResult>) -> Option<Duration> {
        let has_failed = found.iter().any(Result::is_err);
        for (number, (address, found)) in self.addresses.iter().zip(found).enumerate() {
            let found = found.map_err(|error| {
                let address = address.clone();
                ConnectError::UnknownHost { address, error }.to_string()
            });
            self.pool.set_endpoints(number, found);
        }
        let mut lookups = lock(&self.lookups);
        lookups.last = Some(Instant::now());
        if !has_failed {
            (lookups.is_pending, lookups.failures) = (false, 0);
            return None;
        }
        lookups.failures = lookups.failures.saturating_add(1);
        Some(pause_after(lookups.failures))
    }
}

/// Returns after what pause a name that is not known is looked up again: twice as long each time.
fn pause_after(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(u32::BITS - 1);
    let pause = limits::LOOKUP_PAUSE.saturating_mul(1 << doublings);
    pause.min(limits::LOOKUP_PERIOD)
}

/// A connection has failed: the names may stand for other addresses by now.
struct FailureWaker(Weak<ChannelPool>);

impl Wake for FailureWaker {
    fn wake(self: Arc<Self>) {
        if let Some(pool) = self.0.upgrade() {
            pool.look_up();
        }
    }
}

/// Another one for each pool: `RandomState` is seeded by the system.
fn random_seed() -> u64 {
    RandomState::new().hash_one(0)
}

/// The states of a channel (gRPC documentation, "gRPC Connectivity Semantics and API").
pub(crate) const IDLE: u8 = 0;
const CONNECTING: u8 = 1;
const READY: u8 = 2;
pub(crate) const TRANSIENT_FAILURE: u8 = 3;
pub(crate) const SHUTDOWN: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_between_lookups_grow_to_the_longest() {
        let seconds = |failures| pause_after(failures).as_secs();
        assert_eq!([1, 2, 3, 4, 5].map(seconds), [1, 2, 4, 8, 10]);
        assert_eq!(seconds(u32::MAX), 10);
    }
}
