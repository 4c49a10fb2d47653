//! Every bound of this crate: its name, its default, and what it stops.

use std::time::Duration;

/// How long connecting may take by default. Longer than the first retransmissions of a lost SYN,
/// shorter than a person likes to wait.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// One message that is received, by default: what a server can be set to store at most, and room
/// beside it. A client that was asked to read something wants to read it; the memory is only taken
/// when the message is really there.
pub const MAX_MESSAGE_BYTES: usize = (1 << 30) + (1 << 20);

/// Bytes taken from the socket in one read: several frames of the largest size.
pub const READ_BYTES: usize = 64 << 10;

/// The receive window of each call of a channel, and of its connection, from the beginning: some 3
/// GB a second through a round trip of 5 ms, as a window is given back by halves. It costs no
/// memory, since what is not looked at stays in the socket, whose buffers are the bound; only
/// messages that are taken are gathered.
pub const WINDOW_BYTES: u32 = 16 << 20;

/// Bytes of small messages of a call that are gathered before they are written to the socket.
pub const GATHERED_BYTES: usize = 64 << 10;

/// How long a write may wait for room before the answers are read that the server may want to be
/// rid of first.
pub const WRITE_TIMEOUT: Duration = Duration::from_millis(20);

/// The most that is waited for in one go when nothing else sets an end, so that a deadline that is
/// far away still fits into what sockets take.
pub const LONGEST_WAIT: Duration = Duration::from_secs(3_600);

/// Content of a blob in a chunk of a typed upload: a size at which a message's own cost does not
/// count, and which fits into any server's limit.
pub const UPLOAD_CHUNK_BYTES: usize = 256 << 10;

/// The body of a plain HTTP answer that is kept. Stops a server that never ends.
pub const HTTP_BODY_BYTES: usize = 1 << 20;

// --- Local ---------------------------------------------------------------------------------------

/// Connections of one `Local`, by default. What most systems let a process open, and a slip of
/// the finger does not reach.
pub const LOCAL_CHANNELS: usize = 65_536;

/// Calls in flight on one connection of a `Local`, by default: far more than servers allow.
/// Keeps the table of calls bounded where a server names no limit.
pub const LOCAL_CALLS_PER_CHANNEL: usize = 65_536;

/// Bytes that a `Local` takes from a socket in one read: the answers of some thousand small
/// calls.
pub const LOCAL_READ_BYTES: usize = 256 << 10;

/// How often a `Local` looks whether a connection attempt or a deadline of the protocol has
/// passed, which are seconds long: looking at each connection in each turn would cost more than the
/// calls.
pub const LOCAL_TIMER_GRAIN: Duration = Duration::from_millis(100);

/// Bytes of requests of baidu_std or SRPC that wait for a socket of a `Local`, beyond which no
/// further call begins on its connection: what a brpc client lets wait
/// (`socket_max_unwritten_bytes`). There are no windows that would hold them back.
pub const LOCAL_FRAMED_UNSENT_BYTES: usize = 64 << 20;

/// Bytes that are sealed with TLS ahead of a socket.
pub const SEAL_BYTES: usize = 256 << 10;

/// Unsent bytes that a buffer of a `Local` keeps when it is empty again; a larger one is freed.
pub const LOCAL_KEPT_OUTPUT_BYTES: usize = 512 << 10;

// --- The pool ------------------------------------------------------------------------------------

/// Connections of a pool to one address, by default, where their number is automatic. With 100
/// streams each, the least that servers allow by custom, some thousands of calls.
pub const POOL_CONNECTIONS: usize = 64;

/// Calls of a pool in flight at once, by default: more wait in the pool, where they can be seen,
/// instead of in the server.
pub const POOL_CALLS: usize = 65_536;

/// Calls in flight on one connection of a pool, by default, if its server allows as many.
pub const POOL_CALLS_PER_CONNECTION: usize = 65_536;

/// Calls that wait in a pool, by default; further ones are refused at once. Stops a caller that is
/// faster than its server from filling the memory.
pub const POOL_WAITING_CALLS: usize = 65_536;

/// The largest message that a pool sends, by default: what [`MAX_MESSAGE_BYTES`] receives.
pub const POOL_REQUEST_BYTES: usize = MAX_MESSAGE_BYTES;

/// How long a connection beyond the smallest number may be of no use, by default: longer than the
/// pauses of a program that works in bursts.
pub const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Attempts for one call, the first included, by default: that of gRFC A6.
pub const POOL_ATTEMPTS: u32 = 5;

/// Refusals of a call beside others that count as no attempt: at its limit, a server refuses each
/// call about every second time when its limit is 1, and more seldom when it is larger. Beyond it
/// they are attempts that have failed, so that a server that refuses for ever is not asked for
/// ever, on one connection after the other.
pub const POOL_FREE_REFUSALS: u32 = 24;

/// The same while no call has ended otherwise on the connection, so that nothing says that the
/// server takes any.
pub const POOL_FIRST_FREE_REFUSALS: u32 = 3;

/// Tokens of a full retry budget, by default: a failure takes one, a success gives back a tenth,
/// and below half nothing is retried (gRFC A6, "Throttling Retry Attempts"). Stops retries from
/// doubling the load of a server that is failing.
pub const POOL_RETRY_TOKENS: u32 = 100;

/// Bytes of a request that are kept until its call is answered, so that it can be made again; a
/// call that sends a further message is not. The message that passes this is kept whole, as is that
/// of a unary call. Messages handed over as shared bytes are kept without a copy, and do not count.
pub const POOL_KEPT_BYTES: usize = 256 << 10;

/// Messages of a request that are kept in the same time.
pub const POOL_KEPT_MESSAGES: usize = 64;

/// Bytes that an empty buffer for a request keeps for the next call of its slot: a small request.
/// There is such a buffer for each call that has ever been in the pool at once.
pub const POOL_KEPT_CAPACITY_BYTES: usize = 512;

/// The first pause between two attempts to connect, and before a call is made again. Each further
/// pause is 1.6 times as long, and each is varied by a fifth, so that clients of a server that came
/// back do not all come at once.
pub const POOL_FIRST_BACKOFF: Duration = Duration::from_millis(100);

/// The longest pause between two attempts to connect, and the longest that a server may ask for
/// before a call is made again: a call that would wait longer ends.
pub const POOL_LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// How long a connection has to stand before its end is no reason for a pause: stops a server that
/// accepts and hangs up from being called without end.
pub const POOL_PROVEN_LIFE: Duration = Duration::from_secs(1);

/// How often a pool looks at what is due in seconds, such as PINGs and idle connections.
pub const POOL_TIMER_GRAIN: Duration = Duration::from_millis(100);

/// How long the driver's busy time is summed up before a pool decides whether a connection
/// saturates a core.
pub const POOL_BUSY_WINDOW: Duration = Duration::from_secs(1);

/// The busy part of a core, in percent, from which another connection is opened.
pub const POOL_BUSY_PERCENT: u64 = 90;

/// Connections to one address that may drain at once before no new one is opened, if fewer may be
/// open: stops a server that sends GOAWAY and never ends its calls from costing a socket each time.
/// Of connections that are taken out of use for their silence, half as many.
pub const POOL_DRAINING: usize = 16;

/// How long an answer of a health check may take before the address counts as not serving.
pub const POOL_HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// Messages of an address's health checks in [`POOL_HEALTH_WINDOW`]. Beyond it the check has
/// failed: each one is work for all calls of the pool, and an address that changes its mind ten
/// times a second serves nobody.
pub const POOL_HEALTH_MESSAGES: u32 = 100;

/// See [`POOL_HEALTH_MESSAGES`].
pub const POOL_HEALTH_WINDOW: Duration = Duration::from_secs(10);

/// How long after its end a server may still count a call, so that the only call of a connection
/// that is refused is made again, and is not a failure: what servers need to clean up, on a machine
/// that is busy. Stops a server that refuses everything from being called for ever.
pub const ENDED_CALL_COUNTS: Duration = Duration::from_millis(100);

/// How long such a call waits: a few times what servers need to clean up.
pub const PAUSE_AFTER_REFUSAL: Duration = Duration::from_millis(1);

/// How long a connection may be silent while a call on it runs into its deadline before no further
/// calls begin on it. Stops a connection whose other end is gone from swallowing calls until a PING
/// finds that out. How long a new connection may take before others are made for the calls that it
/// was made for: stops an address that accepts and says nothing from keeping others from growing.
pub const POOL_SILENCE: Duration = Duration::from_secs(1);

/// Calls that were submitted to a shared pool and not taken yet, and how many are taken before
/// what they have to send is written. Who finds it full works for all until there is room.
pub const SHARED_SUBMISSIONS: usize = 4096;

/// Calls that have ended whose memory a shared pool keeps for the next ones.
pub const SHARED_KEPT_CALLS: usize = 1024;

/// The buffers of a call that are kept for the next one are not larger.
pub const SHARED_KEPT_CAPACITY_BYTES: usize = 16 << 10;

/// The longest time that the thread of a shared pool waits in the kernel for futures before it
/// looks whether there are any.
pub const SHARED_LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Calls of futures that a shared pool writes at once as they begin: with so many in flight,
/// further ones are left for a moment, so that one write takes what tasks begin together.
pub const SHARED_WRITTEN_AT_ONCE: usize = 8;

/// How long a call of a future is left at most before it is written.
pub const SHARED_LONGEST_LEFT: Duration = Duration::from_micros(50);

/// Messages that a stream of a shared pool has taken from its caller and no connection has taken:
/// so many bytes, and one message. A sender that is faster than its server waits.
pub const SHARED_STREAM_SEND_BYTES: usize = 64 << 10;

/// Messages of a stream of a shared pool that may wait for their caller while the server is allowed
/// to send on. A server can send one window more, and a message. Stops a server that is faster than
/// its caller from filling the memory.
pub const SHARED_STREAM_RECEIVE_BYTES: usize = 64 << 10;

/// Bytes of a stream of a shared pool that are consumed before the server is told: less than half
/// of the smallest window, so that it need not wait for that.
pub const SHARED_STREAM_RELEASE_BYTES: usize = 16 << 10;

/// How often a caller that waits for a shared pool, and may be interrupted, looks whether it is: a
/// person who presses a key notices no pause, and ten looks a second cost nothing.
pub const SHARED_INTERRUPT_PERIOD: Duration = Duration::from_millis(100);

/// How long a shared pool may go without a look at its connections until a call that begins looks
/// first: what one call after the other costs is not changed, and in less time no server is
/// replaced.
pub const SHARED_UNLOOKED: Duration = Duration::from_millis(1);

/// When the thread of a shared pool looks after a stream that has something to send and for which
/// no thread waits. While it lasts, each time twice as long after the time before, up to
/// [`SHARED_LONGEST_UNATTENDED`].
pub const SHARED_FIRST_UNATTENDED: Duration = Duration::from_millis(10);

/// See [`SHARED_FIRST_UNATTENDED`]: a server that takes nothing costs ten looks a second.
pub const SHARED_LONGEST_UNATTENDED: Duration = Duration::from_millis(100);
