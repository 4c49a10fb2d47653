//! Addresses whose names are looked up by the driver, and again when connections fail.

use super::PoolEngine;
use super::connection::PoolStage;
use super::event::PoolConnectionKey;

/// The next attempt to connect to an address of which nothing is known yet.
const NEVER_NS: u64 = u64::MAX;

impl PoolEngine {
    /// Connects to an endpoint only once it is found ([`PoolEngine::endpoint_found`]). Calls wait
    /// for that as they wait for a connection.
    pub fn hold_endpoint(&mut self, endpoint: usize) {
        if let Some(state) = self.endpoints.get_mut(endpoint) {
            state.next_dial_ns = NEVER_NS;
        }
    }

    /// An endpoint was found. `has_moved`: it is elsewhere than before, so that what was learned by
    /// attempts to connect says nothing of it.
    pub fn endpoint_found(&mut self, endpoint: usize, has_moved: bool, now_ns: u64) {
        let Some(state) = self.endpoints.get_mut(endpoint) else {
            return;
        };
        if has_moved || state.next_dial_ns == NEVER_NS {
            state.next_dial_ns = now_ns;
            state.failures = 0;
            state.last_failure = None;
            self.needs_balance = true;
        }
    }

    /// An endpoint was not found, and `reason` says why: if it never was, calls that do not wait
    /// for it fail. One that was found before is still connected to where it was.
    pub fn endpoint_unknown(&mut self, endpoint: usize, reason: String) {
        if let Some(state) = self.endpoints.get_mut(endpoint)
            && state.next_dial_ns == NEVER_NS
        {
            state.last_failure = Some(reason);
            self.needs_balance = true;
        }
    }

    /// Lets no more calls begin on a connection: its endpoint is elsewhere by now.
    pub fn drain(&mut self, connection: PoolConnectionKey) {
        let Some(found) = self.connection(connection) else {
            return;
        };
        match found.stage {
            PoolStage::Dialing => {
                let reason = "its name stands for other addresses by now";
                self.lost.push((connection, reason.into()));
            }
            _ => self.drain_connection(connection.slot),
        }
    }

    /// Returns whether a connection could not be made, or was lost, since this was last asked.
    pub fn take_failures(&mut self) -> bool {
        std::mem::take(&mut self.has_failures)
    }
}
