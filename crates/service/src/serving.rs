//! Which services of a server are ready: for health calls, and for what sets it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::method::served;
use crate::settings::ServiceSettings;

/// Whether a service serves (`HealthCheckResponse.ServingStatus`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Serving {
    /// Ready.
    Yes = 1,
    /// Known, but not ready.
    No = 2,
    /// There is no such service; only [`Registry`]'s answer to a watching call.
    Unknown = 3,
}

/// The status of each service of a server, and of the server as a whole under the empty name.
/// Shared by all loops.
#[derive(Debug)]
pub struct Registry {
    services: Box<[(&'static str, AtomicBool)]>,
    version: AtomicU64,
    stopping: AtomicBool,
}

impl Registry {
    /// A registry of the server and of `services`, all with the same status.
    pub fn new(services: impl IntoIterator<Item = &'static str>, serving: bool) -> Registry {
        let services = std::iter::once("").chain(services);
        Registry {
            services: services
                .map(|name| (name, AtomicBool::new(serving)))
                .collect(),
            version: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
        }
    }

    /// Makes a registry of the services that are served with these settings, all ready.
    pub fn of_served(settings: &ServiceSettings) -> Registry {
        Registry::new(served(settings.interop), true)
    }

    /// The status of `service`; `""` is the server as a whole.
    pub fn serving(&self, service: &[u8]) -> Serving {
        match self.position(service) {
            Some(position) => self.serving_at(position),
            None => Serving::Unknown,
        }
    }

    /// Sets the status of `service`; false if there is no such service. The caller wakes the loops
    /// afterwards. Once the server stops, nothing serves any more whatever is set.
    pub fn set(&self, service: &str, serving: bool) -> bool {
        let Some(position) = self.position(service.as_bytes()) else {
            return false;
        };
        self.services[position].1.store(serving, Ordering::Release);
        self.version.fetch_add(1, Ordering::Release);
        true
    }

    /// Sets the status of the server as a whole and of all its services. The caller wakes the loops
    /// afterwards.
    pub fn set_all(&self, serving: bool) {
        for (_, status) in &self.services {
            status.store(serving, Ordering::Release);
        }
        self.version.fetch_add(1, Ordering::Release);
    }

    /// The server stops: from now on nothing serves. The caller wakes the loops afterwards.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Whether [`Registry::stop`] was called.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Returns every service with its status; `""` is the server as a whole.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, Serving)> + '_ {
        let names = self.services.iter().enumerate();
        names.map(|(position, (name, _))| (*name, self.serving_at(position)))
    }

    /// Grows with every change.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn position(&self, service: &[u8]) -> Option<usize> {
        // A handful of names: faster than a table, and no memory.
        self.services
            .iter()
            .position(|(name, _)| name.as_bytes() == service)
    }

    pub(crate) fn serving_at(&self, position: usize) -> Serving {
        if self.services[position].1.load(Ordering::Acquire) && !self.is_stopping() {
            Serving::Yes
        } else {
            Serving::No
        }
    }
}

/// All services but the test service, serving.
impl Default for Registry {
    fn default() -> Registry {
        Registry::new(served(false), true)
    }
}
