//! A pool of connections as a value: no socket, no thread, no clock.
//!
//! A driver owns the sockets. It does what [`PoolEngine::next_action`] asks for, reports what
//! became of it ([`PoolEngine::connected`], [`PoolEngine::received`],
//! [`PoolEngine::disconnected`]), writes the output of each connection that
//! [`PoolEngine::next_output`] names once, and polls ([`PoolEngine::poll`]), which is the only
//! place where something is reported of calls. Time comes in as an argument, and a seed for the
//! jitter of pauses.
//!
//! A call waits while there are as many in flight as may be, or no connection has room for it; the
//! calls that wait have one queue. Each call that began ends exactly once.

mod addresses;
mod backoff;
mod balance;
mod begin;
mod calls;
mod choose;
mod connection;
mod endings;
mod endpoint;
mod event;
mod events;
mod health;
mod kept;
mod options;
mod prometheus;
mod sockets;
mod statistics;
mod streaming;
mod traffic;
mod waiting;

use std::fmt;

use wire::grpc::Metadata;

use crate::credentials::Credentials;
use backoff::{Jitter, RetryBudget};
use calls::PoolCalls;
use connection::PoolConnection;
use endpoint::EndpointState;
use waiting::PoolWaitingCalls;

pub use connection::PoolStage;
pub use endpoint::EndpointHealth;
pub use event::{
    PoolAction, PoolCall, PoolCallKey, PoolConnectionKey, PoolEndpoint, PoolEvent, SendError,
};
pub use options::{Balancing, HealthCheck, PoolMode, PoolOptions, PoolSize, RetryOptions};
pub use statistics::{ConnectionStatistics, EndpointStatistics, PoolCounters, PoolStatistics};
pub use traffic::ConnectionTraffic;
pub use waiting::WaitTimes;

/// A pool of connections to one or more addresses.
pub struct PoolEngine {
    options: PoolOptions,
    endpoints: Vec<EndpointState>,
    connections: Vec<PoolConnection>,
    free: Vec<u32>,
    /// By slot: how loaded a connection is; `u32::MAX`: it takes no call now.
    loads: Vec<u32>,
    /// Where the search for a connection begins, so that equals take turns.
    turn: usize,
    /// The endpoint whose turn it is.
    endpoint_turn: usize,
    calls: PoolCalls,
    waiting: PoolWaitingCalls,
    in_flight: usize,
    /// Connections with output, each once.
    dirty: Vec<u32>,
    /// Connections that are to be written in this turn.
    flushing: Vec<u32>,
    is_flushing: bool,
    /// Connections with events that have not been reported, each once.
    eventful: Vec<u32>,
    /// Connections that have ended, each with its reason.
    lost: Vec<(PoolConnectionKey, String)>,
    actions: std::collections::VecDeque<PoolAction>,
    /// Calls that are being ended; kept, so that nothing is allocated anew.
    ending: Vec<PoolCallKey>,
    jitter: Jitter,
    budget: RetryBudget,
    counters: PoolCounters,
    /// The number of connections may have to change.
    needs_balance: bool,
    /// The next look at what is due by time.
    next_timers_ns: u64,
    /// Nothing is in flight and nothing has begun for a while: only what is due is looked at.
    is_idle: bool,
    /// A call has begun since timers were last looked at.
    has_begun: bool,
    /// Connections that are to be closed, since they have no calls and get no more.
    retired: Vec<PoolConnectionKey>,
    /// What went through connections that are gone.
    past_traffic: ConnectionTraffic,
    /// The work for a connection saturates a core.
    has_saturated: bool,
    /// The busiest window since connections were last counted too many, in percent of a core.
    peak_busy_percent: u64,
    /// When the current window of busy times began.
    busy_since_ns: u64,
    /// The most calls in flight since connections were last counted too many.
    peak_in_flight: usize,
    peak_since_ns: u64,
    /// Until when connections that refused the only call on them take none; `u64::MAX`: there are
    /// none.
    paused_until_ns: u64,
    /// A connection could not be made, or was lost.
    has_failures: bool,
    /// Set when it was closed: calls end by then.
    close_ns: Option<u64>,
}

impl PoolEngine {
    /// A pool without a connection yet: the first actions ask for them. `seed` is for the jitter of
    /// pauses. `now_ns` counts from any origin, and never goes back.
    pub fn new(
        endpoints: Vec<PoolEndpoint>,
        mut options: PoolOptions,
        seed: u64,
        now_ns: u64,
    ) -> PoolEngine {
        // With 0 each call would wait for ever.
        options.max_in_flight = options.max_in_flight.max(1);
        options.max_calls_per_connection = options.max_calls_per_connection.max(1);
        let has_check = options.health.is_some();
        let endpoints = endpoints.into_iter();
        PoolEngine {
            endpoints: endpoints
                .map(|endpoint| EndpointState::new(endpoint, has_check))
                .collect(),
            budget: RetryBudget::new(options.retry.budget_tokens),
            options,
            connections: Vec::new(),
            free: Vec::new(),
            loads: Vec::new(),
            turn: 0,
            endpoint_turn: 0,
            calls: PoolCalls::default(),
            waiting: PoolWaitingCalls::new(now_ns),
            in_flight: 0,
            dirty: Vec::new(),
            flushing: Vec::new(),
            is_flushing: false,
            eventful: Vec::new(),
            lost: Vec::new(),
            actions: std::collections::VecDeque::new(),
            ending: Vec::new(),
            jitter: Jitter::new(seed),
            counters: PoolCounters::default(),
            needs_balance: true,
            next_timers_ns: now_ns,
            is_idle: false,
            has_begun: false,
            retired: Vec::new(),
            past_traffic: ConnectionTraffic::default(),
            has_saturated: false,
            peak_busy_percent: 0,
            busy_since_ns: now_ns,
            peak_in_flight: 0,
            peak_since_ns: now_ns,
            paused_until_ns: u64::MAX,
            has_failures: false,
            close_ns: None,
        }
    }

    /// Does what is due by now, and reports what happened to calls.
    pub fn poll(&mut self, now_ns: u64, on: &mut impl FnMut(PoolEvent<'_>)) {
        if now_ns >= self.next_timers_ns {
            self.pass_timers(now_ns);
        }
        while let Some(slot) = self.eventful.pop() {
            self.connections[slot as usize].is_eventful = false;
            self.report_events(slot, None, now_ns, on);
        }
        self.end_lost(now_ns, on);
        self.end_expired(now_ns, on);
        self.waiting.release_delayed(&mut self.calls, now_ns);
        if self.close_ns.is_some() {
            self.continue_closing(now_ns, on);
        }
        self.close_retired(now_ns);
        self.end_pauses(now_ns);
        self.dispatch(now_ns, on);
        if self.needs_balance {
            self.balance(now_ns);
            self.end_unreachable(now_ns, on);
        }
        self.note_waiting(now_ns);
    }

    /// Returns whether [`PoolEngine::poll`] has something to report before anything else happens.
    pub fn has_events(&self) -> bool {
        !self.eventful.is_empty()
            || !self.lost.is_empty()
            || self.needs_balance
            || !self.retired.is_empty()
    }

    /// Returns whether a driver has something to do before it waits.
    pub fn is_busy(&self) -> bool {
        self.has_events() || self.has_output() || !self.actions.is_empty()
    }

    /// Returns whether there were no calls for a while, so that nothing is looked at but what is
    /// due. The next call ends that.
    pub fn is_idle(&self) -> bool {
        self.is_idle
    }

    /// When [`PoolEngine::poll`] has something to do by time alone.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        let at_ns = self
            .next_timers_ns
            .min(self.close_ns.unwrap_or(u64::MAX))
            .min(self.calls.next_deadline_ns())
            .min(self.waiting.next_delayed_ns())
            .min(self.paused_until_ns);
        (!self.is_closed()).then_some(at_ns)
    }

    /// Takes no new calls from now on. Those that wait end at the next poll with
    /// [`NotBegun::PoolClosed`](crate::NotBegun::PoolClosed), those that run may go on for
    /// `grace_ns`.
    pub fn close(&mut self, grace_ns: u64, now_ns: u64) {
        let by_ns = now_ns.saturating_add(grace_ns);
        self.close_ns = Some(self.close_ns.map_or(by_ns, |earlier| earlier.min(by_ns)));
        self.next_timers_ns = now_ns;
        self.needs_balance = true;
    }

    /// Returns whether it was closed, and all calls and connections have come to their ends.
    pub fn is_closed(&self) -> bool {
        self.close_ns.is_some()
            && self.calls.len() == 0
            && self.connections.len() == self.free.len()
    }

    fn connection(&mut self, key: PoolConnectionKey) -> Option<&mut PoolConnection> {
        let found = self.connections.get_mut(key.slot as usize)?;
        found.is(key).then_some(found)
    }

    /// Puts a connection down for writing.
    fn touch(&mut self, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        if !connection.is_dirty {
            connection.is_dirty = true;
            self.dirty.push(slot);
        }
    }

    /// Puts a connection down for its events to be reported.
    fn mark_eventful(&mut self, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        if !connection.is_eventful {
            connection.is_eventful = true;
            self.eventful.push(slot);
        }
    }

    /// How the connections of this pool speak HTTP/2.
    fn config(&self) -> wire::Config {
        wire::Config {
            max_message_bytes: self.options.max_message_bytes,
            max_gathered_bytes: usize::MAX,
            max_unsent_bytes: usize::MAX,
            max_streams: u32::try_from(self.options.max_calls_per_connection)
                .unwrap_or(u32::MAX)
                // One for the health check.
                .saturating_add(1),
            ..wire::Config::client()
        }
    }
}

/// The metadata that goes with a call: its own and that of the credentials.
fn merged(own: Option<&Metadata>, credentials: Option<&Credentials>) -> Option<Metadata> {
    let mut metadata = own?.clone();
    if let Some(credentials) = credentials {
        credentials.push_to(&mut metadata);
    }
    Some(metadata)
}

impl fmt::Debug for PoolEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolEngine")
            .field("endpoints", &self.endpoints.len())
            .field("connections", &(self.connections.len() - self.free.len()))
            .field("in_flight", &self.in_flight)
            .field("waiting", &self.waiting.len())
            .finish_non_exhaustive()
    }
}
