//! How a pool is to be.

use std::time::Duration;

use crate::credentials::Credentials;
use crate::limits;

/// What a pool may use, and how it uses it. Each default stands with its reason in
/// [`limits`].
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// How calls share connections.
    pub mode: PoolMode,
    /// How many connections there are to each address.
    pub size: PoolSize,
    /// Which connection a call takes.
    pub balancing: Balancing,
    /// Calls in flight at once; further ones wait. 0 counts as 1. [`limits::POOL_CALLS`].
    pub max_in_flight: usize,
    /// Calls in flight on one connection, if its server allows as many. 0 counts as 1.
    /// [`limits::POOL_CALLS_PER_CONNECTION`].
    pub max_calls_per_connection: usize,
    /// Calls that wait; further ones are refused at once. [`limits::POOL_WAITING_CALLS`].
    pub max_waiting: usize,
    /// How long a call without a timeout of its own may take; `None`: for ever.
    pub default_timeout: Option<Duration>,
    /// The largest message that is sent, in bytes. [`limits::POOL_REQUEST_BYTES`].
    pub max_request_bytes: usize,
    /// The largest message that is received, in bytes. [`limits::MAX_MESSAGE_BYTES`].
    pub max_message_bytes: usize,
    /// How long connecting may take, the server's SETTINGS included. [`limits::CONNECT_TIMEOUT`].
    pub connect_timeout: Duration,
    /// How long a connection beyond the smallest number may be of no use before it is closed.
    /// [`limits::POOL_IDLE_TIMEOUT`].
    pub idle_timeout: Duration,
    /// How the pool finds out that an address does not serve; `None`: only by its connections.
    pub health: Option<HealthCheck>,
    /// Which calls are made again, and how often.
    pub retry: RetryOptions,
    /// What proves who calls. It goes with each call. Whether it may be sent to an address without
    /// TLS is for the driver to check ([`Credentials::check`]).
    pub credentials: Option<Credentials>,
}

impl Default for PoolOptions {
    fn default() -> PoolOptions {
        PoolOptions {
            mode: PoolMode::Multiplexed,
            size: PoolSize::Automatic {
                min: 1,
                max: limits::POOL_CONNECTIONS,
            },
            balancing: Balancing::LeastLoaded,
            max_in_flight: limits::POOL_CALLS,
            max_calls_per_connection: limits::POOL_CALLS_PER_CONNECTION,
            max_waiting: limits::POOL_WAITING_CALLS,
            default_timeout: None,
            max_request_bytes: limits::POOL_REQUEST_BYTES,
            max_message_bytes: limits::MAX_MESSAGE_BYTES,
            connect_timeout: limits::CONNECT_TIMEOUT,
            idle_timeout: limits::POOL_IDLE_TIMEOUT,
            health: None,
            retry: RetryOptions::default(),
            credentials: None,
        }
    }
}

/// How calls share connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolMode {
    /// Many calls on a connection at once.
    #[default]
    Multiplexed,
    /// One call at a time on a connection, which stays open for the next one.
    Exclusive,
    /// A connection for each call, which is closed after it.
    Short,
}

/// How many connections there are to each address of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolSize {
    /// Always so many, at least one.
    Fixed(usize),
    /// As many as are of use: another one when calls wait since those that exist take no more, or
    /// when the work for one of them saturates a core.
    Automatic {
        /// Kept also when there is nothing to do.
        min: usize,
        /// Never more than this.
        max: usize,
    },
}

impl PoolSize {
    pub(super) fn min(self) -> usize {
        match self {
            PoolSize::Fixed(count) => count.max(1),
            PoolSize::Automatic { min, max } => min.min(max),
        }
    }

    pub(super) fn max(self) -> usize {
        match self {
            PoolSize::Fixed(count) => count.max(1),
            PoolSize::Automatic { max, .. } => max.max(1),
        }
    }
}

/// Which connection a call takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balancing {
    /// That with the fewest calls in flight, whatever its address.
    #[default]
    LeastLoaded,
    /// The addresses take turns; of the connections to one, the least loaded.
    RoundRobin,
}

/// How the health of an address is checked, by `grpc.health.v1.Health`. A server that does not
/// know the service (UNIMPLEMENTED) counts as healthy. By default the server reports changes of
/// itself as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthCheck {
    /// The service to ask for; empty: the server as a whole.
    pub service: String,
    /// `None`: the server reports changes (`Watch`); else it is asked so often (`Check`).
    pub interval: Option<Duration>,
}

/// Which calls are made again. Without regard to this a call that has brought an answer, or the
/// head of one, is never made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryOptions {
    /// Attempts for one call, the first included. [`limits::POOL_ATTEMPTS`].
    pub max_attempts: u32,
    /// Failures in a row, or nearly so, that are retried, before retries are stopped until calls
    /// succeed again: half of this. [`limits::POOL_RETRY_TOKENS`].
    pub budget_tokens: u32,
}

impl Default for RetryOptions {
    fn default() -> RetryOptions {
        RetryOptions {
            max_attempts: limits::POOL_ATTEMPTS,
            budget_tokens: limits::POOL_RETRY_TOKENS,
        }
    }
}
