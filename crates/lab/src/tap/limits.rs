//! What the tap keeps at most, and from where on it notices: it stands between peers that nobody
//! has chosen.

/// Connections at a time. Beyond, clients wait in the kernel until one ends.
pub const MAX_TAPPED_CONNECTIONS: usize = 1_024;

/// Connections that the kernel completes ahead of the tap.
pub const TAP_BACKLOG: i32 = 1_024;

/// Bytes that are read at once.
pub const TAP_READ_BYTES: usize = 64 << 10;

/// Bytes of one direction of a connection that wait in the tap, for a delay or for a peer that does
/// not read. Beyond, the tap reads no more, and the sender feels it as it would without the tap.
pub const TAP_QUEUE_BYTES: usize = 4 << 20;

/// The same of all connections together.
pub const TAP_QUEUES_BYTES: usize = 256 << 20;

/// How long the target may take to accept a connection.
pub const TAP_DIAL_MS: u64 = 10_000;

/// The longest turn without a look at the clock of the run and at requests to stop.
pub const TAP_TURN_MS: u64 = 100;

/// Payload of a frame that is looked at: SETTINGS, header blocks and their kind. Servers take 16
/// KiB if they are not told otherwise. DATA is not looked at, and may be as long as it likes.
pub const WATCHED_FRAME_BYTES: usize = 64 << 10;

/// A header block with its continuations.
pub const WATCHED_BLOCK_BYTES: usize = 256 << 10;

/// Calls of one connection that are followed at a time; further ones are forwarded and counted.
pub const WATCHED_CALLS: usize = 16_384;

/// Compressed messages of each direction that are kept, to learn what compressing costs: enough for
/// an average, and 2 MiB at most.
pub const COMPRESSED_SAMPLES: usize = 32;

/// Bytes of such a message; of larger ones none is kept.
pub const COMPRESSED_SAMPLE_BYTES: usize = 64 << 10;

/// Methods that are told apart; calls of further ones count together.
pub const WATCHED_METHODS: usize = 64;

/// Bytes of a method's name that are kept.
pub const METHOD_NAME_BYTES: usize = 256;

/// Calls that are kept for the timeline: the last ones.
pub const TIMELINE_CALLS: usize = 4_000;

/// Connections of which a report has a row each; the others share one.
pub const REPORTED_CONNECTIONS: usize = 64;

/// A stretch without progress on a connection from which on it is a gap, and ends a burst. Far
/// above what lies between two system calls of a sender that has something to send, below the 150
/// µs gaps that C-core clients were found to have.
pub const GAP_NS: u64 = 50_000;

/// Answers after which it is noted how many calls were open meanwhile, and how long they took.
pub const WINDOW_ANSWERS: u64 = 16;

/// The longest time that is told from longer ones.
pub const LONGEST_NS: u64 = 3_600_000_000_000;

/// Kinds of ends of calls that are told apart; a peer can make up codes.
pub const WATCHED_ENDS: usize = 32;

/// Bytes of a packet where packets are counted: what an Ethernet frame has room for with TCP's
/// usual options.
pub const PACKET_BYTES: usize = 1_448;

/// Bytes that arrive together where bytes or packets have a rate: ten packets.
pub const SHAPED_PIECE_BYTES: usize = 10 * PACKET_BYTES;
