//! Every bound of this crate: its name, its default, and what it stops.

use std::time::Duration;

/// Threads of one run: far above any machine, below what a slip of the finger costs.
pub const MAX_THREADS: usize = 1_024;

/// Connections of one run: what a process may open, with room for the rest.
pub const MAX_CONNECTIONS: usize = 60_000;

/// Calls in flight on one connection.
pub const MAX_IN_FLIGHT: usize = 65_536;

/// Calls a second that an open loop may be asked for. More than any machine has ever done; keeps
/// the schedule's numbers exact.
pub const MAX_RATE: u64 = 100_000_000;

/// Steps of the rate of an open loop: more than one looks at, and few enough to be kept beside each
/// other.
pub const MAX_RATE_STEPS: usize = 16;

/// Parts of a ramp of the rate that are measured by themselves.
pub const RAMP_PARTS: usize = 8;

/// Operations of one Batch: what the API takes in one atomic step.
pub const MAX_BATCH: usize = 10_000;

/// Bytes of one message of gRPC, whose length is a number of 32 bits: what has more of them cannot
/// be sent.
pub const MAX_GRPC_MESSAGE_BYTES: usize = u32::MAX as usize;

/// Characters of a reason that an answer has, which are shown: a server may write any number.
pub const SHOWN_REASON_CHARS: usize = 200;

/// Kinds of calls that a workload has at most: a number to count for each.
pub const MAX_KINDS: usize = 8;

/// Keys that the key-value example's client knows at most; with so many it deletes where it would
/// create. Their number wanders, as creations and deletions are equally frequent, so a run of a day
/// stays far below.
pub const MAX_KNOWN_KEYS: usize = 1 << 20;

/// Keys of a workload. Numbers of keys need no table, so only the server's memory bounds them in
/// earnest.
pub const MAX_KEYS: u64 = 1 << 40;

/// Entries of the longest Scan of a mix, as in workload E of YCSB.
pub const SCAN_ENTRIES: u64 = 100;

/// How many means the largest of exponentially distributed sizes has: one in 22 000 is cut.
pub const EXPONENTIAL_MAX_MEANS: usize = 10;

/// Bytes of a file of histograms: a line for each second of a day, and more.
pub const MAX_HISTOGRAM_FILE_BYTES: usize = 256 << 20;

/// Bytes of one histogram in it: more than one of five digits has that counts up to 2⁶³.
pub const MAX_HISTOGRAM_BYTES: usize = 64 << 20;

/// Different tags of histograms, each of which is added up by itself.
pub const MAX_HISTOGRAM_TAGS: usize = 64;

/// Random bytes of which values are pieces, beside the largest value.
pub const VALUE_POOL_BYTES: usize = 64 << 10;

/// Size of a value or a request from which on it is not copied for each call: all share the same
/// bytes. Below it a piece of its own costs more than the copy.
pub const SHARED_FROM_BYTES: usize = 64 << 10;

/// Bytes of requests that are put together in one turn, after which what came is read before more
/// calls begin: acknowledgements that a server waits for do not wait until hundreds of megabytes
/// are encoded.
pub const REQUEST_BYTES_PER_TURN: usize = 4 << 20;

/// Messages that one streaming call sends in one turn: other calls, and what came, have their turn
/// in between, however small the messages are.
pub const MESSAGES_PER_TURN: usize = 256;

/// Messages of one streaming call: more than a call of a day can send.
pub const MAX_MESSAGES: u64 = 1 << 40;

/// Bytes of a file of `pelton load gupload`, which is held in memory: seven times that of the
/// published measurement.
pub const MAX_UPLOAD_BYTES: usize = 1 << 30;

/// Bytes of a chunk of it: what a server of gupload takes.
pub const MAX_UPLOAD_CHUNK_BYTES: usize = 4 << 20;

/// Uploads of one `pelton load gupload`, of which each has a time that is kept.
pub const MAX_UPLOADS: usize = 100_000;

/// Calls of an open loop that wait for a free place. Beyond it calls are never sent, which makes
/// the result void: stops a server that does not keep up from filling the generator's memory.
pub const MAX_BACKLOG: usize = 4 << 20;

/// Calls of the schedule that are taken up in one turn. What is due beyond it waits for the next
/// turn, so that answers are read in between however far behind the generator is.
pub const DUE_PER_TURN: usize = 10_000;

/// Calls a second of one thread from which on an open loop takes up together what comes due within
/// [`TOGETHER`]. Below it each call begins at its own moment; above, a turn for each would be more
/// than a CPU can do.
pub const TOGETHER_FROM_RATE: f64 = 250_000.0;

/// How long calls may wait for others that come due, so that a system call is shared by all of
/// them. It counts as schedule lag and is part of each latency; a quarter of [`LAG_ALLOWED`].
pub const TOGETHER: Duration = Duration::from_micros(50);

/// Calls of an open loop that have come due by the same turn and go on one connection before the
/// next one has its turn: they share a system call here and two at the server. Where calls are so
/// sparse that each turn has one, they go round one by one.
pub const CALLS_TOGETHER: usize = 32;

/// Connections of one thread that are being made at the same time before a run: few enough that a
/// server that refuses some says why, and that a request to stop is seen in between; enough that a
/// far server costs few round trips.
pub const DIALS_AT_ONCE: usize = 64;

/// Pause before a connection that was lost is made again: a server that is gone must not be
/// hammered.
pub const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// How long a run of a number of calls goes on while no connection stands and none can be made: a
/// server that restarts is back before, and one that is gone for good does not keep the run
/// forever.
pub const SERVER_GONE: Duration = Duration::from_secs(10);

/// How long a run of a number of calls goes on while calls are under way and none ends, on
/// connections that stand: a server that was stopped or hangs does not keep the run forever. Longer
/// than a server stands still that goes on; a longer `--deadline` of the calls lengthens it.
pub const SERVER_STALLED: Duration = Duration::from_secs(60);

/// How long calls that were begun in time may take to end after the last one has begun. What is
/// still open then counts as unfinished.
pub const DRAIN: Duration = Duration::from_secs(5);

/// The longest latency that is told from longer ones.
pub const LATENCY_MAX: Duration = Duration::from_secs(3_600);

/// Intervals of a run whose figures are kept, for a chart over time: as many points as it can
/// tell apart. A longer run has longer ones.
pub const MAX_LOAD_INTERVALS: usize = 60;

/// The longest turn without a look at the clock of the run and at requests to stop.
pub const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// Share of its CPU time, in percent, above which a thread of the generator never waited for the
/// server: the generator is the limit, and the result void.
pub const BUSY_PERCENT: u64 = 95;

/// Share of its CPU time, in percent, below which the busiest thread of the generator had time
/// left: what was late has another reason, and more threads would not help.
pub const IDLE_PERCENT: u64 = 50;

/// The shortest time of which it is said how busy a thread was: a few turns decide over a shorter
/// one, and what comes before the end of the first is not looked at.
pub const BUSY_MEASURED_LEAST: Duration = Duration::from_millis(100);

/// Schedule lag (99th percentile) below which the generator is on time. Above, the lag must also be
/// more than [`LAG_SHARE_PERCENT`] of the latency to make the result void.
pub const LAG_ALLOWED: Duration = Duration::from_micros(200);

/// See [`LAG_ALLOWED`].
pub const LAG_SHARE_PERCENT: u64 = 10;

/// How far apart, in percent, the calls in flight that were counted may be from the rate times the
/// mean latency, until the result says so.
pub const LITTLES_LAW_PERCENT: f64 = 5.0;

/// How often an open loop looks at the clock on a thread of its own: often enough for a 99th
/// percentile of a second, and less than one percent of a CPU.
pub const STALL_LOOK: Duration = Duration::from_millis(1);

/// How many times as late as the thread that only looks at the clock a generator may be until it is
/// its own fault: it has work to do when it wakes.
pub const STALL_FACTOR: u64 = 2;

/// Share of the rate asked for, in percent, below which an open loop has not sent what it was to
/// send.
pub const RATE_SHARE_PERCENT: u64 = 99;

/// How often an open loop looks whether the calls that end keep up with those that come due: how
/// exactly a result can say since when they do not.
pub const LOOK_BEHIND: Duration = Duration::from_millis(10);

/// Bytes of a message for an echo service: what a brpc server takes, with room for the rest of its
/// frame.
pub const MAX_ECHO_BYTES: usize = 63 << 20;

/// Services that are named of a server that has not the one that was asked for.
pub const SHOWN_SERVICES_MAX: usize = 20;

/// Files of descriptors that a server's reflection may bring.
pub const MAX_DESCRIPTOR_FILES: usize = 2_000;

/// Bytes of descriptors, from a server or a file.
pub const MAX_DESCRIPTOR_BYTES: usize = 64 << 20;

/// A request's bytes, from the command line or a file: what servers take at most by default is far
/// below.
pub const MAX_REQUEST_BYTES: usize = 64 << 20;

/// Bytes of a file of many requests: all of them are kept in memory during a run.
pub const MAX_REQUEST_FILE_BYTES: usize = 256 << 20;

/// Requests of such a file: short ones take more memory than their text.
pub const MAX_REQUESTS: usize = 1 << 20;

/// Placeholders in one request: each is a step of every call.
pub const MAX_PLACEHOLDERS: usize = 1_000;

/// Answers that an experiment of a diagnosis keeps, to learn what compressing them costs.
pub const KEPT_ANSWERS: usize = 16;

/// Bytes of them all together: a second of compressing at most.
pub const KEPT_ANSWERS_BYTES: usize = 4 << 20;
