//! A channel: where it leads, and the pool of connections that it makes when it is first used.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use client::{CallError, EndpointStatistics, NotBegun, PoolStage, SharedPool};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::limits;
use crate::outcome::CallOutcome;
use crate::presence::{OfProcess, detached};
use crate::settings::ChannelSettings;
use crate::sync::lock;

/// What a channel and its calls share.
pub(crate) struct ChannelCore {
    settings: ChannelSettings,
    /// Locked only with the lock of the interpreter, so that no fork finds it locked.
    pool: Mutex<Option<OfProcess<MadePool>>>,
    is_closed: AtomicBool,
}

/// A pool, and when it was looked whether its addresses are still of use.
struct MadePool {
    pool: SharedPool,
    looked: Instant,
}

impl ChannelCore {
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Returns the pool of this process, which the first call makes: that waits for the resolver.
    ///
    /// # Errors
    /// `ValueError` if the channel was closed. The inner error is the outcome of a call that cannot
    /// begin.
    pub(crate) fn pool(&self, py: Python<'_>) -> PyResult<Result<SharedPool, CallOutcome>> {
        if self.is_closed() {
            return Err(PyValueError::new_err(
                "Cannot invoke RPC on closed channel!",
            ));
        }
        if let Some(pool) = self.made_pool(py) {
            return Ok(Ok(pool));
        }
        let made = detached(py, || {
            let addresses = self.settings.addresses.as_ref().map_err(String::clone)?;
            let options = self.settings.options.clone();
            SharedPool::new(addresses, options, random_seed()).map_err(|error| error.to_string())
        });
        let made = match made {
            Some(Ok(made)) => made,
            Some(Err(reason)) => return Ok(Err(unreachable(reason))),
            None => return Ok(Err(CallOutcome::of_exit())),
        };
        let mut pool = lock(&self.pool);
        if let Some(other) = pool.as_ref().and_then(OfProcess::get) {
            // Another thread was faster.
            return Ok(Ok(other.pool.clone()));
        }
        *pool = Some(OfProcess::new(MadePool {
            pool: made.clone(),
            looked: Instant::now(),
        }));
        Ok(Ok(made))
    }

    /// Returns the pool, if there is one whose addresses are of use as far as anybody knows. Calls
    /// that wait in one that is none any more go on in it.
    fn made_pool(&self, py: Python<'_>) -> Option<SharedPool> {
        let pool = {
            let mut made = lock(&self.pool);
            let made = made.as_mut().and_then(OfProcess::get_mut)?;
            let is_due = self.settings.has_names && made.looked.elapsed() >= limits::LOOKUP_PERIOD;
            if !is_due {
                return Some(made.pool.clone());
            }
            made.looked = Instant::now();
            made.pool.clone()
        };
        let state = detached(py, || state_of(&pool));
        if state == Some(TRANSIENT_FAILURE) {
            lock(&self.pool).take();
            return None;
        }
        Some(pool)
    }
}

/// Another one for each pool: `RandomState` is seeded by the system.
fn random_seed() -> u64 {
    RandomState::new().hash_one(0)
}

fn unreachable(reason: String) -> CallOutcome {
    let error = CallError::NotBegun(NotBegun::Unreachable { reason });
    CallOutcome::failed(&error, false, client::Metadata::new())
}

/// A channel of bytes.
#[pyclass(frozen, module = "pelton_grpc._native")]
pub(crate) struct NativeChannel {
    pub(crate) core: Arc<ChannelCore>,
}

#[pymethods]
impl NativeChannel {
    #[new]
    fn new(settings: &ChannelSettings) -> NativeChannel {
        NativeChannel {
            core: Arc::new(ChannelCore {
                settings: settings.clone(),
                pool: Mutex::new(None),
                is_closed: AtomicBool::new(false),
            }),
        }
    }

    /// Ends all calls, and takes no new ones.
    fn close(&self, py: Python<'_>) {
        self.core.is_closed.store(true, Ordering::SeqCst);
        let pool = lock(&self.core.pool).take();
        py.detach(|| {
            if let Some(made) = pool.as_ref().and_then(OfProcess::get) {
                made.pool.close(Duration::ZERO);
            }
            drop(pool);
        });
    }

    /// Returns the state of the channel as gRPC numbers it. A channel that was not used is idle;
    /// `connects`: it is used from now on.
    fn connectivity(&self, py: Python<'_>, connects: bool) -> u8 {
        if self.core.is_closed() {
            return SHUTDOWN;
        }
        let is_made = lock(&self.core.pool)
            .as_ref()
            .is_some_and(|pool| pool.get().is_some());
        if !is_made && !connects {
            return IDLE;
        }
        match self.core.pool(py) {
            Ok(Ok(pool)) => detached(py, move || state_of(&pool)).unwrap_or(SHUTDOWN),
            Ok(Err(_)) => TRANSIENT_FAILURE,
            // It was closed meanwhile.
            Err(_) => SHUTDOWN,
        }
    }
}

/// The states of a channel (gRPC documentation, "gRPC Connectivity Semantics and API").
const IDLE: u8 = 0;
const CONNECTING: u8 = 1;
const READY: u8 = 2;
const TRANSIENT_FAILURE: u8 = 3;
const SHUTDOWN: u8 = 4;

fn state_of(pool: &SharedPool) -> u8 {
    let statistics = pool.statistics();
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
