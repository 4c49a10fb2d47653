//! Where the servers of a shared pool are, if its callers look that up.

use std::task::Waker;

use net::{Address, OutgoingEndpoint};

use super::SharedPool;
use super::submission::{FoundEndpoints, Submission};
use crate::error::ConnectError;
use crate::local_pool::{LocalPool, LocalPoolOptions};

impl SharedPool {
    /// The same as [`SharedPool::new`] without the resolver: calls wait until
    /// [`SharedPool::set_endpoints`] says where the servers are, each as long as its deadline lets
    /// it.
    ///
    /// # Errors
    /// As [`SharedPool::new`], but for hosts that are not known.
    pub fn unresolved(
        addresses: &[Address],
        options: LocalPoolOptions,
        seed: u64,
    ) -> Result<SharedPool, ConnectError> {
        let max_request_bytes = options.pool.max_request_bytes;
        let pool = LocalPool::unresolved(addresses, options, seed, net::monotonic_ns())?;
        SharedPool::of(pool, max_request_bytes)
    }

    /// The name of an address, by its number, stands for these endpoints now; `Err`: it is not
    /// known, for this reason.
    ///
    /// Connections to endpoints that are not among them take no further calls, and those that run
    /// go on. With an error what was known before is kept; if nothing was, calls that do not
    /// [wait](crate::PoolCall::waits_for_ready) fail as where no address can be reached.
    pub fn set_endpoints(&self, address: usize, found: Result<Vec<OutgoingEndpoint>, String>) {
        let found = Box::new(FoundEndpoints { address, found });
        self.handle
            .shared
            .submit(Submission::Endpoints(found), None);
        self.note_unattended();
    }

    /// Wakes a task each time a connection could not be made, or was lost: the names of the
    /// addresses may stand for other endpoints by now. Replaces an earlier task.
    pub fn notify_failures(&self, waker: Waker) {
        let shared = &self.handle.shared;
        shared.with_driver(None, |driver| driver.set_failure_waker(waker));
    }
}
