//! A channel: where it leads, and the pool of connections that it makes when it is first used.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use client::{CallError, NotBegun, SharedPool};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::channel_pool::{ChannelPool, IDLE, SHUTDOWN, TRANSIENT_FAILURE};
use crate::limits;
use crate::outcome::CallOutcome;
use crate::presence::{OfProcess, detached, is_exiting};
use crate::resolver;
use crate::settings::ChannelSettings;
use crate::sync::lock;

/// What a channel and its calls share.
pub(crate) struct ChannelCore {
    settings: ChannelSettings,
    /// Locked only with the lock of the interpreter, so that no fork finds it locked.
    pool: Mutex<Option<OfProcess<Arc<ChannelPool>>>>,
    is_closed: AtomicBool,
}

impl ChannelCore {
    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Returns the pool of this process, which the first call makes. That waits for nothing.
    ///
    /// # Errors
    /// `ValueError` if the channel was closed. The inner error is the outcome of a call that cannot
    /// begin.
    pub(crate) fn pool(&self, py: Python<'_>) -> PyResult<Result<SharedPool, CallOutcome>> {
        let made = self.channel_pool(py)?;
        Ok(made.map(|made| made.pool.clone()))
    }

    fn channel_pool(&self, py: Python<'_>) -> PyResult<Result<Arc<ChannelPool>, CallOutcome>> {
        let mut pool = lock(&self.pool);
        if self.is_closed() {
            return Err(PyValueError::new_err(
                "Cannot invoke RPC on closed channel!",
            ));
        }
        if let Some(made) = pool.as_ref().and_then(OfProcess::get) {
            return Ok(Ok(Arc::clone(made)));
        }
        if is_exiting() {
            return Ok(Err(CallOutcome::of_exit()));
        }
        Ok(
            match ChannelPool::new(&self.settings, resolver::of_process(py)) {
                Ok(made) => {
                    *pool = Some(OfProcess::new(Arc::clone(&made)));
                    Ok(made)
                }
                Err(reason) => Err(unreachable(reason)),
            },
        )
    }

    /// Ends all calls, and takes no new ones.
    fn close(&self, py: Python<'_>) {
        let pool = {
            let mut pool = lock(&self.pool);
            self.is_closed.store(true, Ordering::SeqCst);
            pool.take()
        };
        py.detach(|| {
            if let Some(made) = pool.as_ref().and_then(OfProcess::get) {
                made.pool.close(Duration::ZERO);
            }
            drop(pool);
        });
    }
}

fn unreachable(reason: String) -> CallOutcome {
    let error = CallError::NotBegun(NotBegun::Unreachable { reason });
    CallOutcome::failed(&error, client::Metadata::new())
}

/// The channels of this process, whoever holds them. Locked only with the lock of the interpreter.
static CORES: Mutex<Vec<Weak<ChannelCore>>> = Mutex::new(Vec::new());

/// Notes a channel, and forgets those that are gone, now and then.
fn register(core: &Arc<ChannelCore>) {
    let mut cores = lock(&CORES);
    if cores.len() == cores.capacity() {
        cores.retain(|core| core.strong_count() > 0);
        // So many again before it is looked anew.
        let room = cores.len().max(limits::REGISTERED_CHANNELS);
        cores.reserve(room);
    }
    cores.push(Arc::downgrade(core));
}

/// Closes all channels, also those that only a call holds.
#[pyfunction]
pub(crate) fn close_all(py: Python<'_>) {
    let cores = std::mem::take(&mut *lock(&CORES));
    for core in cores.iter().filter_map(Weak::upgrade) {
        core.close(py);
    }
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
        let core = Arc::new(ChannelCore {
            settings: settings.clone(),
            pool: Mutex::new(None),
            is_closed: AtomicBool::new(false),
        });
        register(&core);
        NativeChannel { core }
    }

    /// Ends all calls, and takes no new ones.
    fn close(&self, py: Python<'_>) {
        self.core.close(py);
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
        match self.core.channel_pool(py) {
            Ok(Ok(made)) => detached(py, move || made.state()).unwrap_or(SHUTDOWN),
            Ok(Err(_)) => TRANSIENT_FAILURE,
            // It was closed meanwhile.
            Err(_) => SHUTDOWN,
        }
    }
}
