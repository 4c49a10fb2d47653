//! What a pool has done, and what waits in it.

use super::PoolEngine;
use super::connection::PoolStage;
use super::endpoint::EndpointHealth;
use super::traffic::ConnectionTraffic;
use super::waiting::{WaitCause, WaitTimes};

/// What a pool did since it was made. `begun` is `succeeded`, `failed`, `cancelled`, and the calls
/// that are in flight or wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounters {
    /// Calls begun.
    pub begun: u64,
    /// Calls that ended with status OK.
    pub succeeded: u64,
    /// Calls that ended in another way.
    pub failed: u64,
    /// Calls given up by their callers.
    pub cancelled: u64,
    /// Calls that were refused at once, which count nowhere else.
    pub refused: u64,
    /// Attempts beyond the first of a call.
    pub retries: u64,
    /// Connections begun.
    pub dials: u64,
    /// Connections on which calls could begin.
    pub opened: u64,
    /// Connections that could not be made.
    pub failed_dials: u64,
}

/// One connection at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionStatistics {
    /// Its slot, which it keeps as long as it exists.
    pub slot: u32,
    /// The number of its endpoint.
    pub endpoint: usize,
    /// How far it has come.
    pub stage: PoolStage,
    /// Calls in flight on it.
    pub in_flight: usize,
    /// How many further calls it takes now.
    pub room: usize,
    /// Calls that have begun on it.
    pub begun: u64,
    /// Its socket takes nothing now.
    pub waits_for_socket: bool,
    /// Something waits for the server's flow-control windows now.
    pub waits_for_window: bool,
    /// What went through it.
    pub traffic: ConnectionTraffic,
}

/// One address at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointStatistics {
    /// Its name.
    pub name: String,
    /// What its health check says.
    pub health: EndpointHealth,
    /// Connections to it that take calls, or will.
    pub connections: usize,
    /// Connections to it that have been open.
    pub opened: u64,
    /// Attempts to connect that failed, and connections that ended before they were of use, since a
    /// call last succeeded on a new connection or one that had stood for a second ended.
    pub failures: u32,
    /// Why the last attempt to connect failed, if the last one did.
    pub last_failure: Option<String>,
}

/// A pool at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolStatistics {
    /// Calls in flight.
    pub in_flight: usize,
    /// Calls that wait because as many are in flight as may be.
    pub waiting_for_permit: usize,
    /// Calls that wait for a connection to be open, to an address that serves.
    pub waiting_for_connection: usize,
    /// Calls that wait since the connections have as many as their servers, or the mode, allow.
    pub waiting_for_stream: usize,
    /// Calls that wait for the time of their next attempt.
    pub waiting_for_pause: usize,
    /// How long calls have waited.
    pub wait_times: WaitTimes,
    /// What was done so far.
    pub counters: PoolCounters,
    /// What went through all connections, those that are gone included.
    pub traffic: ConnectionTraffic,
    /// The addresses.
    pub endpoints: Vec<EndpointStatistics>,
    /// The connections.
    pub connections: Vec<ConnectionStatistics>,
}

impl PoolEngine {
    /// Returns what the pool has done, and what waits in it now.
    pub fn statistics(&mut self, now_ns: u64) -> PoolStatistics {
        self.waiting.count_time(now_ns);
        let queued = |cause| match self.waiting.cause() == cause {
            true => self.waiting.queued(),
            false => 0,
        };
        let connections: Vec<_> = (0..)
            .zip(&self.connections)
            .filter(|(_, connection)| connection.stage != PoolStage::Vacant)
            .map(|(slot, connection)| ConnectionStatistics {
                slot,
                endpoint: connection.endpoint,
                stage: connection.stage,
                in_flight: connection.in_flight,
                room: connection.room(self.max_calls(connection.begun)),
                begun: connection.begun,
                waits_for_socket: connection.is_blocked,
                waits_for_window: connection.is_shut,
                traffic: connection.traffic.until(now_ns),
            })
            .collect();
        let mut traffic = self.past_traffic;
        for connection in &connections {
            traffic.add(&connection.traffic);
        }
        PoolStatistics {
            in_flight: self.in_flight,
            waiting_for_permit: queued(WaitCause::Permit),
            waiting_for_connection: queued(WaitCause::Connection),
            waiting_for_stream: queued(WaitCause::Stream),
            waiting_for_pause: self.waiting.delayed(),
            wait_times: self.waiting.times(),
            counters: self.counters,
            traffic,
            endpoints: self.endpoint_statistics(),
            connections,
        }
    }

    fn endpoint_statistics(&self) -> Vec<EndpointStatistics> {
        let endpoints = self.endpoints.iter();
        endpoints
            .map(|state| EndpointStatistics {
                name: state.endpoint.name.clone(),
                health: state.health,
                connections: state.connections,
                opened: state.opened,
                failures: state.failures,
                last_failure: state.last_failure.clone(),
            })
            .collect()
    }
}
