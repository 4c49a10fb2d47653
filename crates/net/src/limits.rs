//! Every bound of this crate: its name, its default, and what it stops.

/// Connections of a server above which new ones are refused politely. Keeps memory and file
/// descriptors bounded whatever the world sends. Default of `LoopConfig::max_connections`.
pub const MAX_CONNECTIONS: usize = 10_000;

/// So many connections above `max_connections` are opened to be refused in their own protocol.
/// Beyond, sockets are closed at once: a flood of refused peers must not cost more than that.
pub const MAX_REFUSALS: usize = 256;

/// The same where fewer connections are allowed, as a share of them: an eighth, and at least
/// [`MIN_REFUSALS`].
pub const REFUSALS_SHARE: usize = 8;

/// Refusals that are always possible: some clients at a time hear why they are not served.
pub const MIN_REFUSALS: usize = 8;

/// Open connections from one address (an IPv4 address, or an IPv6 network of 64 bits) above which
/// new ones are refused politely. Stops one client from taking all connections; far above what
/// pools and proxies need. Peers on this machine are not bounded by default. Default of
/// `LoopConfig::max_connections_per_address`.
pub const MAX_CONNECTIONS_PER_ADDRESS: usize = 1_024;

/// What one address may have of the connections where descriptors allow fewer than were asked for,
/// in percent: some are left for everybody else.
pub const ADDRESS_SHARE_OF_FEW_PERCENT: usize = 75;

/// So many connections above `max_connections_per_address` are opened to be refused in their own
/// protocol. Beyond, those of that address are closed at once.
pub const REFUSALS_PER_ADDRESS: usize = 16;

/// The least time between two lines in the log about addresses with too many connections.
pub const ADDRESS_NOTICE_MS: u64 = 10_000;

/// Connections that the kernel completes ahead of `accept`. Covers a burst of clients that start
/// together; the kernel caps it at `net.core.somaxconn`.
pub const LISTEN_BACKLOG: i32 = 4096;

/// Accepted sockets per tick: a burst of new connections must not hold up the open ones.
pub const ACCEPTS_PER_TICK: usize = 64;

/// The same after a tick that had no time for all connections that had something to do: those that
/// wait already come first, and who connects without end waits in the kernel. Not zero, since open
/// connections may be busy for ever.
pub const ACCEPTS_PER_BUSY_TICK: usize = 2;

/// Pause after `accept` failed for want of file descriptors or memory: without it the loop would
/// spin, since the listener stays readable.
pub const ACCEPT_BACKOFF_MS: u64 = 100;

/// Events taken from the kernel per tick. Bounds the length of a tick; the rest comes with the
/// next.
pub const EVENTS_PER_TICK: usize = 256;

/// Input bytes that handlers consume per tick and loop, or report to have taken as long as, after
/// which the remaining connections wait for the next tick. Bounds the time between a request's
/// arrival and its answer when many large inputs arrive, or small ones that make much work.
pub const TICK_INPUT_BYTES: usize = 256 * 1024;

/// Unconsumed input of one connection, and the largest read. A handler must be able to go on with
/// this much before it. What is received of a large message is copied twice, some 50 µs for this
/// much; more than the caches next to the processor hold would only make others wait longer for
/// their turn.
pub const INPUT_MAX_BYTES: usize = 64 * 1024;

/// Sizes of the input buffers in a loop's pool. The smallest holds what a handler leaves over
/// (the start of a frame), the others are for reading: a connection moves up a size while its
/// reads come full, and down while they leave the buffer nearly empty.
pub const INPUT_BUFFER_BYTES: [usize; 3] = [4 * 1024, 16 * 1024, INPUT_MAX_BYTES];

/// Free input buffers of each size that a loop keeps: more are freed. Bounds what a past burst
/// leaves behind.
pub const POOL_INPUT_BUFFERS: usize = 32;

/// Free output buffers that a loop keeps.
pub const POOL_OUTPUT_BUFFERS: usize = 64;

/// A new output buffer's size.
pub const OUTPUT_BUFFER_BYTES: usize = 16 * 1024;

/// An output buffer that grew beyond this is freed instead of kept.
pub const POOL_OUTPUT_BUFFER_MAX_BYTES: usize = 512 * 1024;

/// Waiting output of one connection from which on nothing more is read from it: who does not take
/// answers may not ask (slow-read attack). The handler may still add what it owes. Connections that
/// this side opened are read all the same.
pub const OUTPUT_HIGH_WATER_BYTES: usize = 256 * 1024;

/// Waiting output at which reading goes on and `Handler::writable` is called. A quarter of the
/// high-water mark, so that the two do not alternate with every write.
pub const OUTPUT_LOW_WATER_BYTES: usize = 64 * 1024;

/// A peer that takes no byte of waiting output for so long is closed (window stall, slow read).
/// Default of `LoopConfig::write_stall_ms`.
pub const WRITE_STALL_MS: u64 = 30_000;

/// After the last output the socket stays open for reading so long, and what comes is thrown away:
/// closing with unread input makes the kernel reset the connection, and the peer may lose the last
/// output, which says why.
pub const LINGER_MS: u64 = 1_000;

/// The same while the loop stops: the process should end soon.
pub const STOP_LINGER_MS: u64 = 250;

/// Input thrown away while lingering, after which the connection is cut.
pub const LINGER_BYTES: usize = 4 * 1024 * 1024;

/// A signal so soon after the first one is the same request to stop: `timeout`, shells and
/// supervisors send a signal both to the process and to its group. Later ones mean that nothing is
/// to be waited for. Less than a person needs to want that.
pub const SAME_SIGNAL_MS: u64 = 250;

/// How long running calls may take to end after a stop was asked for. Default of
/// `LoopConfig::drain_ms`.
pub const DRAIN_MS: u64 = 10_000;

/// After draining, how long the peers may take to accept the rest of the output, within the time
/// for draining.
pub const STOP_FLUSH_MS: u64 = 2_000;

/// During that time, a peer that takes no byte of waiting output for so long is closed: one that
/// takes nothing must not hold a stop. The kernel reports room in a socket when a third of its
/// buffer is free, so that a peer that goes on reading shows it well within this.
pub const STOP_STALL_MS: u64 = 500;

/// The time for the rest of the output where draining took all of its time: what a stop takes
/// beyond that.
pub const STOP_FLUSH_LEAST_MS: u64 = 250;

/// Threads that one server may have: far above any machine, below what a slip of the finger costs.
pub const MAX_THREADS: usize = 1024;

/// Calls that compute at once with the blocking driver, unless `LoopConfig::threads` says
/// otherwise; other threads with something to do wait in the order of arrival, and threads that
/// wait for their peer, a device or a commit do not count. Far more than a machine has CPUs that a
/// server gets, so that none rests while a call waits for a lock or a page; few enough that those
/// which have begun end before all of thousands begin, each with its memory.
pub const BLOCKING_CALLS: usize = 64;

/// How long a thread of the blocking driver stays without a connection before it ends, in
/// milliseconds. Longer than the pauses between the connections of usual clients, since starting a
/// thread costs as much as some requests.
pub const IDLE_THREAD_MS: u64 = 10_000;

/// Threads of the blocking driver that stay when they are idle: for the clients that come one after
/// the other. They cost some 15 KiB of memory each.
pub const SPARE_THREADS: usize = 8;

/// Stack of each thread of the blocking driver that serves a connection. Address space: memory is
/// taken only for what was used, some 10 KiB. Default of `LoopConfig::thread_stack_bytes`.
pub const THREAD_STACK_BYTES: usize = 512 * 1024;

/// The least time between two lines in the log about connections that were refused since no thread
/// could be started.
pub const THREAD_NOTICE_MS: u64 = 10_000;

/// How long a thread of the blocking driver waits in `recv`, where only its peer can wake it,
/// before it waits where everybody can. Bounds how late it learns of a stop; a silent connection
/// costs one wake-up more.
pub const RECEIVE_WAIT_MS: u64 = 100;

/// Bytes that a thread of the blocking driver has received and sent since it last gave memory back,
/// from which on it does so when it rests, and once more at the next rest: with less there is
/// little to give, and who makes a small call each second should not pay for it.
pub const GIVE_BACK_BYTES: u64 = 64 * 1024;

/// Deadlines nearer than this are waited for with nanosecond precision, at the price of one more
/// system call; others to the millisecond.
pub const PRECISE_WAIT_NS: u64 = 2_000_000;

/// How long a TLS handshake may take from the connection on until it has brought what this side can
/// answer, and again from this side's last flight on. Stops connections that are opened and left
/// half-way; a client on a bad line needs a few round trips.
pub const HANDSHAKE_MS: u64 = 10_000;

/// Ciphertext that a client may send before its TLS handshake is done. Honest ones need a few
/// hundred bytes, or some thousand with a certificate of their own.
pub const HANDSHAKE_BYTES: usize = 32 * 1024;

/// Subject alternative names of a client's certificate that are looked at, each of them when a
/// connection begins and after each change of an identity. Those of a workload are one or two. One
/// with more is known by its fingerprint alone.
pub const CERTIFICATE_NAMES_MAX: usize = 64;

/// Certificates of authorities in the chain of a peer that are looked at: those that can be between
/// its own and a trusted one by their names, the nearest first. Real chains have one or two, seldom
/// three. Path building tries them in each order, and whoever opens a connection makes them up.
pub const INTERMEDIATES_MAX: usize = 4;

/// The same of those that have one name: an authority has a second certificate when two others have
/// signed it, or when it changes its key.
pub const INTERMEDIATES_PER_NAME_MAX: usize = 2;

// What is not handled yet must fit into the input, or who sends more would be waited for instead of
// refused.
const _: () = assert!(HANDSHAKE_BYTES < INPUT_MAX_BYTES);

/// TLS handshakes of one loop that have not come as far as this side's first flight. One more
/// closes, of the address with most, the peer that has been silent for longest: a flood of silent
/// peers then keeps out nobody who speaks within the time that so many need to come.
pub const HANDSHAKES_PER_LOOP: usize = 1_024;

/// TLS handshakes of one loop whose peers were sent this side's first flight, and have not ended
/// the handshake. A flight costs a signature, and what asks for it can have been recorded: whoever
/// does that never answers. While there are so many, the next flight waits until, of the address
/// with most, the one that has waited longest has had `HANDSHAKE_ANSWER_MS`; it is closed then.
pub const HANDSHAKES_ASKED: usize = 1_024;

/// How long a peer that was sent this side's first flight may at least take to answer, however many
/// others there are, in milliseconds: a round trip around the world, and a lost packet.
pub const HANDSHAKE_ANSWER_MS: u64 = 1_000;

/// TLS handshakes from one address (an IPv4 address, or an IPv6 network of 64 bits) that are not
/// finished, of all loops and threads. One more ends the oldest of them whose peer is waited for;
/// it is closed itself if none is. Half-open handshakes then take a part of `max_connections` and
/// `max_connections_per_address` only, and where one of these is reached, they give way as well:
/// they shut nobody out. Far above what clients behind one address begin at once. Peers on this
/// machine are bounded only with `LoopConfig::limit_loopback`.
pub const HANDSHAKES_PER_ADDRESS: usize = 256;

/// TLS handshakes of the blocking driver that are not finished, each with a thread. One more ends,
/// of the address with most, the oldest whose peer is waited for. Stops half-open handshakes from
/// taking most of the threads that there may be, and is above what so many threads compute in the
/// time of a round trip.
pub const HANDSHAKES_OF_THREADS: usize = 4_096;

/// TLS handshakes of each loop, on average, that wait for their turn, from which on nothing is
/// accepted at addresses with TLS: the others wait in the kernel, in the order in which they came.
/// So those that are served late are served, and none is closed for a delay that is not its own.
/// Twice `HANDSHAKES_PER_ADDRESS`, so that one address alone does not stop others from being
/// accepted.
pub const HANDSHAKES_DUE: usize = 512;

/// Pause after which it is looked again whether that many wait, in milliseconds. Less than they
/// take.
pub const HANDSHAKES_DUE_PAUSE_MS: u64 = 2;

/// Steps of TLS handshakes per tick, after the open connections of the tick: a signature takes up
/// to a millisecond (RSA), and whoever connects can ask for one with bytes that were recorded
/// before. Calls of open connections then wait for one step at most, and in a loop that is busy
/// with them a handshake waits for one tick at a time.
pub const HANDSHAKE_STEPS_PER_TICK: usize = 1;

/// Connections with a TLS handshake that are read per tick to find those steps: a peer that has
/// gone meanwhile needs none, but closing it takes time as well.
pub const HANDSHAKE_TURNS_PER_TICK: usize = 16;

/// Plaintext that is sealed ahead of the socket. The rest of the output waits as it is, where
/// handlers count it.
pub const SEAL_BYTES: usize = 248 * 1024;

/// User space memory that an idle connection with TLS takes in this crate and in rustls, beside
/// what the handler keeps; asserted in a test.
pub const IDLE_TLS_BYTES: usize = 8 * 1024;

/// Bytes that each of the two buffers of a TLS connection that this side opened keeps when it is
/// empty.
pub const PIPE_KEPT_BYTES: usize = 512 * 1024;

/// TLS sessions that a client remembers to resume.
pub const CLIENT_SESSIONS: usize = 32;

/// The longest wait of a loop or a thread in the kernel, in nanoseconds: an hour. Older kernels
/// count a wait in milliseconds of 31 bits.
pub const MAX_WAIT_NS: u64 = 3_600_000_000_000;
