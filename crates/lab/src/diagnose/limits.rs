//! What a diagnosis does at most to a service that people use, and what it reads beside it.

use std::time::Duration;

/// Calls a second, if the user asks for no others: far below what stops a service, far above what
/// most of them get.
pub const DIAGNOSE_RATE: u64 = 10_000;

/// Calls in flight on all connections together, if the user asks for no others: as many as a busy
/// client has.
pub const DIAGNOSE_IN_FLIGHT: usize = 256;

/// How long all experiments may take together, if the user asks for nothing else.
pub const DIAGNOSE_TIME: Duration = Duration::from_secs(120);

/// The longest time that can be asked for: what takes longer is a load test.
pub const DIAGNOSE_TIME_MAX: Duration = Duration::from_secs(3_600);

/// Share of calls, in percent, that may fail until the load ends: the service has enough of it.
pub const STOP_ERRORS_PERCENT: u64 = 1;

/// Calls that have to fail for that: one of a few is an accident.
pub const STOP_ERRORS_LEAST: u64 = 3;

/// How many times as long as with one call in flight the 99th percentile may be until no more load
/// is added.
pub const STOP_LATENCY_FACTOR: u64 = 10;

/// Below it a 99th percentile stops nothing: it is what a scheduler does, and no harm to anybody.
pub const STOP_LATENCY_LEAST: Duration = Duration::from_millis(20);

/// How long an experiment is measured.
pub const EXPERIMENT: Duration = Duration::from_millis(800);

/// Load before it is measured.
pub const EXPERIMENT_WARM_UP: Duration = Duration::from_millis(100);

/// Calls one after the other that an experiment has room for: one of a slow service takes longer.
pub const EXPERIMENT_CALLS: u32 = 12;

/// The longest experiment.
pub const EXPERIMENT_MAX: Duration = Duration::from_secs(5);

/// Calls of the first experiment, from which the pace of the others is known.
pub const FIRST_CALLS: u64 = 20;

/// How long the first calls may take together.
pub const FIRST_CALLS_TIME: Duration = Duration::from_secs(5);

/// How long each call may take: one that hangs must not hold up the diagnosis.
pub const DIAGNOSE_DEADLINE: Duration = Duration::from_secs(10);

/// Connections over which the same calls are spread, to see whether one connection is the limit.
pub const SPREAD_CONNECTIONS: usize = 8;

/// How many times as many bytes as a request has are added to it, to see whether the way is full.
pub const PADDING_FACTOR: f64 = 2.0;

/// The least and the most bytes that are added: what a request has beside its message changes by
/// less, and what servers take is far more.
pub const PADDING_LEAST_BYTES: usize = 64;

/// See [`PADDING_LEAST_BYTES`].
pub const PADDING_MOST_BYTES: usize = 256 << 10;

/// How long a client runs behind the tap for one experiment, if it does not end by itself.
pub const CLIENT_RUN: Duration = Duration::from_secs(6);

/// How long the next run of a client waits for the calls that the last one has left to the server:
/// two such pauses, and the runs, fit into the time that a diagnosis has by default.
pub const LEFT_CALLS_TIME_MOST: Duration = Duration::from_secs(40);

/// Less than this is not waited for: the next client takes as long to begin.
pub const LEFT_CALLS_TIME_LEAST: Duration = Duration::from_millis(100);

/// Pause between two looks at what the threads of a process do: a share of time is known to one
/// percent after a second.
pub const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Threads of a process whose system calls are looked at: more would cost more than they show.
pub const LOOKED_AT_THREADS: usize = 64;

/// Threads whose CPU time is counted, of all processes together.
pub const COUNTED_THREADS: usize = 4_096;

/// Processes that are looked through for a listening socket or a group.
pub const SEARCHED_PROCESSES: usize = 32_768;

/// Bytes of compressed messages of each direction that are decompressed, and compressed again, to
/// learn what that costs: a second at most.
pub const DECOMPRESSED_SAMPLES_BYTES: usize = 4 << 20;
