//! Every bound of this crate, with its reason. Those of requests, and of the shapes of databases,
//! are in `store::remote::limits`.

use std::time::Duration;

/// Threads that run the driver. They only move bytes between sockets and queues; more of them take
/// cores from the event loops.
pub const THREADS: usize = 2;

/// Requests of the driver that one node may have in flight. A node that does not answer holds so
/// many and no more, while the others go on; Cassandra itself carries out 32 to 128 at a time.
pub const NODE_PERMITS: usize = 512;

/// Nodes whose permits are counted. Nodes that have left the cluster are forgotten when there are
/// more.
pub const NODES: usize = 1024;

/// Requests of callers that are under way or wait for a permit, over all nodes. Those beyond it are
/// refused at once: they would only wait until their deadline.
pub const REQUESTS: usize = 8 * 1024;

/// How long one attempt at one node may take before another node is asked, where that is safe: a
/// node that is frozen must not take the whole time of a request.
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a request may wait for a permit of a node. A queue that is longer than this means that
/// the nodes are overloaded, and the caller is told to come again later.
pub const PERMIT_TIMEOUT: Duration = Duration::from_millis(500);

/// When a caller should try again that was refused because a node or this gateway has too much to
/// do, in milliseconds.
pub const RETRY_MS: u32 = 200;

/// Attempts of one request at nodes, where repeating it is safe.
pub const ATTEMPTS: usize = 3;

/// Rounds of reading, deciding and writing of one commit. Each round is lost to another commit that
/// took effect; past so many, the keys are written by so many others that waiting does not help.
pub const COMMIT_ROUNDS: u32 = 32;

/// Longest pause between two rounds of a commit. Gateways that lose against each other wait for a
/// random part of it.
pub const ROUND_PAUSE: Duration = Duration::from_millis(50);

/// Queues of commits. Commits of one partition wait for each other here, as their Paxos rounds
/// would only disturb each other at the nodes. Two partitions that share a queue by chance wait
/// without need, which is seldom with so many.
pub const PARTITION_QUEUES: usize = 4096;

/// Commits that wait for one partition, beside the one that has its turn. With some milliseconds
/// for each they wait about as long as a caller may; the next one is refused at once.
pub const PARTITION_WAITING: usize = 128;

/// Buckets that one Scan or Count reads at the same time.
pub const BUCKETS_AT_ONCE: usize = 16;

/// Most rows that are read of a bucket at once, without values.
pub const BUCKET_ROWS: usize = 512;

/// Rows that are read of a bucket before it is known how long its keys are: 1 MiB with the longest.
pub const FIRST_ROWS: usize = 16;

/// Bytes of rows without values that are read of a bucket at once, by the mean of those before.
pub const BUCKET_BYTES: usize = 1024 * 1024;

/// What a row without its value takes beside its key.
pub const ROW_BYTES: usize = 64;

/// Keys that one statement looks up: ScyllaDB refuses more in one `IN`.
pub const LOOKUP_KEYS: usize = 100;

/// Buckets of which an estimate of the number of entries is made.
pub const SAMPLED_BUCKETS: u16 = 16;

/// A value of this many bytes and more that is alone in the answer which brought it is kept as a
/// part of that, instead of being copied.
pub const SHARED_VALUE_BYTES: usize = 64 * 1024;

/// Databases of a keyspace. The catalogue is one partition, and read whole. As many as a store may
/// have.
pub const DATABASES: usize = 1000;

/// Rounds of reading and writing of one change of the catalogue.
pub const CHANGE_ROUNDS: u32 = 8;

/// How often the catalogue is read again, so that a gateway learns of databases that others make
/// and drop.
pub const CATALOGUE_INTERVAL: Duration = Duration::from_secs(5);

/// How old the copy of the catalogue may become before requests are refused: databases that are in
/// it may have been dropped, and what is written to one of those is lost.
pub const CATALOGUE_STALE: Duration = Duration::from_secs(180);

/// How long it may take to count the entries of a database that was to be dropped only if it had
/// none.
pub const NOT_EMPTY_TIMEOUT: Duration = Duration::from_secs(2);

/// How often it is tried to remove the rows of a database that was dropped.
pub const REMOVAL_ROUNDS: u32 = 3;

/// Pause before it is tried again.
pub const REMOVAL_PAUSE: Duration = Duration::from_secs(2);

/// How long it may take to remove the rows of one bucket of a database that was dropped.
pub const BUCKET_REMOVAL_TIMEOUT: Duration = Duration::from_secs(10);

/// How often health reads a row at QUORUM.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// How long such a read may take, at as many nodes as it takes.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Nodes that are asked one after the other for such a read, each for its part of the time: one
/// that is frozen does not show whether there is a quorum.
pub const PROBE_NODES: u32 = 3;

/// Reads of health that must fail one after the other before the gateway is not serving: one lost
/// packet is no outage.
pub const FAILED_PROBES: u32 = 2;

/// Partitions that the reads of health take turns with. They lie at different nodes.
pub const PROBE_PARTITIONS: u32 = 16;

/// How long the first connection may take before a start fails.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a start may take to look at the schema and read the catalogue.
pub const START_TIMEOUT: Duration = Duration::from_secs(10);

/// How long each statement that makes the schema may take, with the agreement of all nodes.
pub const SCHEMA_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a stop waits for what is under way. Requests have deadlines that are no later.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection may be silent before the driver asks the node whether it is there.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// How long the node may take for that answer before the connection counts as broken: a node that
/// is frozen or cut off is noticed after so long, and others are asked.
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// How far a version from elsewhere may be ahead of this machine's clock before the clock of
/// versions does not follow it. One machine whose clock is years ahead must not take all the others
/// there.
pub const CLOCK_AHEAD: Duration = Duration::from_secs(60);

/// How much longer than its expiry the engine keeps a row, in seconds. The engine's clocks may be
/// ahead of that of the gateway; what counts for readers is the expiry in the row.
pub const EXPIRY_MARGIN_S: u64 = 60;

/// The last second since 1970 that Cassandra can give as an expiry in the storage format of version
/// 4, which version 5 writes by default, less a day: the clock of a node may be ahead of that of
/// the gateway. A row that expires later is not removed by the engine, and counts as absent all the
/// same.
pub const EXPIRY_MAX_S: u64 = i32::MAX as u64 - 2 - 24 * 60 * 60;

/// Bytes of a message of the driver or of a node that are kept for people.
pub const MESSAGE_BYTES: usize = 512;

/// Messages for the log of one kind of failure in a minute.
pub const MESSAGES_PER_MINUTE: u32 = 10;
