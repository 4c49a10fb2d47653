//! Every bound of this crate: its name, its default, and what it stops.
//!
//! Unless said otherwise a bound counts against one connection. Those that a
//! [`crate::http2::Config`] can change are its defaults.

// --- Header blocks -------------------------------------------------------------------------------

/// Fields of one header block; each crumb of a cookie counts. Stops thousands of one-byte
/// references to tiny table entries (CVE-2026-49975, CVE-2026-47774).
pub const MAX_FIELDS: usize = 64;

/// The same of what comes to a client: it has chosen its server, and servers of gRPC send as many
/// metadata as fit into the bytes of a list. Their places are kept in a byte.
pub const MAX_RESPONSE_FIELDS: usize = 240;

/// Bytes of one decoded header list: names, values and 32 for each field, as RFC 9113 section 6.5.2
/// counts them; what we advertise as SETTINGS_MAX_HEADER_LIST_SIZE. Stops the HPACK bomb
/// (CVE-2016-6581). Above it the connection ends: a decoder that skips the rest no longer agrees
/// with its peer (CVE-2023-33953).
pub const MAX_FIELD_LIST_BYTES: usize = 16_384;

/// Dynamic table size updates at the beginning of one block. RFC 7541 section 4.2 needs no more
/// than two; more only keep the decoder resizing.
pub const MAX_TABLE_SIZE_UPDATES: usize = 2;

/// The decoder's dynamic table, advertised as SETTINGS_HEADER_TABLE_SIZE (the protocol's own
/// default).
pub const MAX_DECODER_TABLE_BYTES: usize = 4_096;

/// The dynamic table of a decoder that looks on from outside, where two others have agreed on its
/// size: what the largest of the usual clients announces.
pub const MAX_WATCHED_TABLE_BYTES: usize = 65_536;

/// The encoder's dynamic table, whatever the peer would allow. Stops a peer from growing our memory
/// by SETTINGS.
pub const MAX_ENCODER_TABLE_BYTES: usize = 4_096;

/// CONTINUATION frames after one HEADERS frame (CONTINUATION flood, CVE-2024-27316 family). Our
/// largest list fits into one frame, so that honest peers send none.
pub const MAX_CONTINUATION_FRAMES: u32 = 8;

/// Compressed bytes of one header block over all of its frames: twice the largest list.
pub const MAX_COMPRESSED_BLOCK_BYTES: usize = 32_768;

/// How long the rest of a plain request is thrown away after its answer, in milliseconds, until the
/// peer is told with RST_STREAM to send no more. Told at once, some clients, curl among them, take
/// that for a failure and never show the answer. Those that read it stop by themselves, and others
/// are stopped by the stream's window, which stays as it is.
pub const LINGER_MS: u64 = 1_000;

/// Streams of a connection that may be waited for in this way. Others are reset at once.
pub const LINGERING_STREAMS: usize = 16;

/// How long a header block may take from its HEADERS frame to END_HEADERS, in milliseconds. Nothing
/// else may be sent on the connection meanwhile, so that a longer one is only there to hold it.
pub const HEADER_BLOCK_TIMEOUT_MS: u64 = 10_000;

/// The largest header block that we send. Below every peer's SETTINGS_MAX_FRAME_SIZE, so that we
/// never need a CONTINUATION frame. Metadata beyond it is left out of a response and refused in a
/// request.
pub const MAX_SENT_BLOCK_BYTES: usize = 12_288;

/// The smallest SETTINGS_MAX_HEADER_LIST_SIZE of a peer with which it can be answered at all
/// (CVE-2026-50560): the constant head has 102 bytes by that count and the trailers 44; less than
/// this leaves no room for an error. Requests of such a peer are refused before any work is done.
pub const MIN_PEER_HEADER_LIST_BYTES: u32 = 192;

/// Blocks that the header memo remembers. The usual client repeats one or two.
pub const MEMO_ENTRIES: usize = 4;

/// Compressed bytes of a block that the memo remembers; a block that repeats is mostly indexed and
/// short.
pub const MEMO_BLOCK_BYTES: usize = 512;

/// Bytes of memory of the fields of such a block. A few references to a large table entry are
/// short, and stand for 16 KiB.
pub const MEMO_FIELDS_BYTES: usize = 8 << 10;

/// Misses in a row after which the memo learns only one block in [`MEMO_SAMPLING`], so that a peer
/// whose blocks are all different does not pay for remembering them.
pub const MEMO_MISSES: u32 = 8;

/// See [`MEMO_MISSES`].
pub const MEMO_SAMPLING: u32 = 32;

// --- Frames and settings -------------------------------------------------------------------------

/// The payload of a frame that we accept: the protocol's default (RFC 9113 section 4.2). The
/// driver's input buffer must hold it whole.
pub const MAX_FRAME_BYTES: usize = 16_384;

/// The payload of a DATA frame that we send, even if the peer would take more: other streams wait
/// that long.
pub const MAX_SENT_DATA_BYTES: usize = 16_384;

/// Entries of one SETTINGS frame. Eight or so are defined; more only cost.
pub const MAX_SETTINGS_ENTRIES: usize = 32;

/// How long the peer may take to acknowledge our SETTINGS, in milliseconds (RFC 9113 section
/// 6.5.3). A server counts it from the arrival of the preface.
pub const SETTINGS_ACK_TIMEOUT_MS: u64 = 10_000;

/// How long a client may take to send its preface, in milliseconds. Stops connections that are
/// opened and say nothing.
pub const PREFACE_TIMEOUT_MS: u64 = 10_000;

/// Acknowledgements of PING and SETTINGS that wait while the output is full (CVE-2019-9512,
/// CVE-2019-9515). A peer that asks and does not read gets no further.
pub const MAX_PENDING_ACKS: usize = 64;

// --- Streams -------------------------------------------------------------------------------------

/// Streams at once, advertised as SETTINGS_MAX_CONCURRENT_STREAMS, and work that still runs for a
/// stream which was reset (CVE-2023-44487, CVE-2026-47244).
pub const MAX_STREAMS: u32 = 4_096;

/// Heads of requests that a client keeps as bytes: the methods that most connections call. Others
/// are only slower.
pub const REQUEST_MEMOS: usize = 4;

/// Bytes that one such head may take; longer ones are not kept. Stops long paths from filling the
/// memory.
pub const MAX_REQUEST_MEMO_BYTES: usize = 1_024;

/// Streams that a server ended before the client did, and whose late frames are dropped in silence.
/// All streams that can be open at once fit.
pub const MAX_REMEMBERED_RESETS: usize = MAX_STREAMS as usize;

/// DATA frames of such a stream that are dropped free of charge, however small: messages that were
/// on their way when the call was refused. Others pay for them as for small DATA frames.
pub const MAX_LATE_FRAMES: u16 = 1_024;

// --- Flow control --------------------------------------------------------------------------------

/// The receive window of a stream when it begins: the protocol's default.
pub const STREAM_WINDOW_BYTES: u32 = 65_535;

/// The receive window of a stream as soon as it is known to bring much, if it may be as large: two
/// round trips less until it is in nobody's way.
pub const BULK_WINDOW_BYTES: u32 = 256 << 10;

/// What a stream's receive window may grow to with the measured bandwidth-delay product.
pub const MAX_STREAM_WINDOW_BYTES: u32 = 8 << 20;

/// How long the message of a stream whose turn it is may bring less than [`TURN_PROGRESS_BYTES`]
/// before the turn lapses, in milliseconds: the next message then comes beside it. Stops a sender
/// that stands still from holding up those that share its connection, as behind a proxy.
pub const TURN_LAPSE_MS: u64 = 100;

/// See [`TURN_LAPSE_MS`]: one full frame.
pub const TURN_PROGRESS_BYTES: u32 = 16 << 10;

/// What a message may bring while there is no memory for its turn, so that its sender shows that it
/// goes on, in bytes: one full frame. One message of a connection at a time, for [`TURN_LAPSE_MS`]:
/// it is within what a connection may always hold. Stops thousands of messages that stand still
/// from having a turn each before those that go on.
pub const PROBE_BYTES: u32 = 16 << 10;

/// What messages whose turn has come may take of [`MAX_GATHERED_BYTES`]: this part, a half. The
/// rest is for what other streams may send before their turn, a window each. One message always has
/// its turn.
pub const TURNS_SHARE: usize = 2;

/// The receive window of the connection when it begins. It is given back on receipt, so that one
/// stream which is not consumed holds up no other.
pub const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;

/// What the connection's receive window may grow to.
pub const MAX_CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

// --- Messages and memory -------------------------------------------------------------------------

/// One gRPC message that we receive, before and after decompression. Looked at before a byte is
/// allocated.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// Bytes of unfinished messages, and of messages of held streams, over all streams. Beyond it the
/// call that sends more ends with RESOURCE_EXHAUSTED. Stops thousands of streams that each send all
/// of a large message but its last byte.
pub const MAX_GATHERED_BYTES: usize = 64 << 20;

/// Bytes of a body, or of a message that comes in parts, that were kept back while their stream was
/// held and are handed on at a time.
pub const BACKLOG_PIECE_BYTES: usize = 64 << 10;

/// Bytes that wait to be sent or are set aside for it, over all streams, above which nothing more
/// is produced for the peer: first messages of calls are kept back, and streaming calls wait. Stops
/// slow readers (CVE-2019-9517 class). Shared bodies count in full although they are not copied.
/// One message may go beyond the bound.
pub const MAX_UNSENT_BYTES: usize = 64 << 20;

/// Bytes that may wait on one stream before `can_send` says no.
pub const STREAM_UNSENT_BYTES: usize = 256 << 10;

/// What the calls of a connection may hold ready, or keep until they go on, before others of its
/// calls begin to, while memory is short: about what a connection may hold then in any case.
pub const READY_BYTES: usize = 64 << 10;

/// Refusals of requests of baidu_std or SRPC that wait while the output is full. They take none of
/// the streams, and a peer that sends what is refused and does not read gets no further.
pub const MAX_PENDING_REFUSALS: usize = 64;

/// What a response of baidu_std or SRPC takes while it waits, beside its bytes: its place in the
/// queue, and a buffer of its own. Most are smaller than that.
pub const QUEUED_RESPONSE_BYTES: usize = 512;

/// Bytes that the connection appends to the output before it keeps the rest back. The driver hands
/// them to the kernel in one go.
pub const OUTPUT_BOUND_BYTES: usize = 256 << 10;

/// Buffers that a connection keeps for the next message that needs one.
pub const POOLED_BUFFERS: usize = 8;

/// Bytes of all these buffers together. Nobody counts them while they wait, so that ten thousand
/// connections must be able to have as much. A server's connection with streams whose windows are
/// limited, which bring much, keeps as much as two such windows, and counts it.
pub const POOLED_BYTES: usize = 64 << 10;

/// The same for a client, which has few connections: two messages of a size that is usual for large
/// ones.
pub const CLIENT_POOLED_BYTES: usize = 9 << 20;

/// A gathered message of so many bytes can be kept by whoever reads it: below that, copying what is
/// wanted of it costs less.
pub const SHARED_MESSAGE_BYTES: usize = 16 << 10;

/// If its buffer is larger than the message by no more than one such part of it, since all of the
/// buffer is kept.
pub const SHARED_MESSAGE_SPARE_PART: usize = 64;

/// Places for streams that are kept, about 250 bytes each, when there is no stream. Stops
/// connections that once had as many streams as they may and keep the memory for them ever after.
pub const KEPT_STREAM_PLACES: usize = 256;

// --- baidu_std and SRPC --------------------------------------------------------------------------

/// Bytes of the metadata of a frame of baidu_std or SRPC: names, user fields and what proves who
/// calls, as in a header list of HTTP/2. They lie whole in the input before they are read. A frame
/// with more ends the connection.
pub const FRAMED_META_BYTES: usize = 15_360;

/// Bytes of message and attachment of a frame, as of a brpc server (`max_body_size`), or
/// [`MAX_MESSAGE_BYTES`] if that is more. A frame that announces more ends the connection; what is
/// larger than a message may be is thrown away as it comes, and its call fails.
pub const FRAMED_BODY_BYTES: usize = 64 << 20;

/// Bytes of message and attachment of a request that a client sends: the largest value that a
/// server can be set to store, and room for the fields beside it. The 32 bits of a frame's length
/// have room for it. A call with more does not begin.
pub const FRAMED_REQUEST_BYTES: usize = (1 << 30) + (1 << 20);

/// Bytes of the metadata of a request that are remembered, so that the next ones that are the same
/// but for their correlation ids need not be decoded: twice what clients send by custom.
pub const FRAMED_KNOWN_META_BYTES: usize = 256;

/// How long a draining server goes on refusing calls on a connection of baidu_std or SRPC before it
/// ends, in milliseconds: the protocols cannot tell a client to send no more, so that calls that
/// are on their way come to a clear error.
pub const FRAMED_DRAIN_MS: u64 = 200;

/// What a large message of baidu_std or SRPC may bring in one turn, in bytes: what is accounted for
/// before it comes. 2 MiB, above what finds memory by itself in a small account. Stops connections
/// that announce much, send a little and stand still from having all of the account one after the
/// other.
pub const FRAMED_TURN_BYTES: usize = 2 << 20;

// --- Time ----------------------------------------------------------------------------------------

/// How long waiting data may make no progress, see [`PROGRESS_SHARE`], before the connection ends,
/// in milliseconds: the peer neither reads nor opens a window. Unfinished messages have the same
/// time, before their calls end. Streams on which nothing is owed may wait forever.
pub const NO_PROGRESS_TIMEOUT_MS: u64 = 60_000;

/// What counts as progress: this part of what waits, a 64th. Stops a peer that takes, or sends, a
/// byte a minute and keeps all that may wait; a slow one has an hour for it.
pub const PROGRESS_SHARE: usize = 64;

/// How long the peer may be silent before we send a PING, in milliseconds.
pub const KEEPALIVE_MS: u64 = 60_000;

/// How long that PING may stay unanswered, in milliseconds.
pub const KEEPALIVE_TIMEOUT_MS: u64 = 20_000;

/// How long a draining server waits for the answer to its PING before it names the last stream, in
/// milliseconds.
pub const DRAIN_PING_TIMEOUT_MS: u64 = 1_000;

// --- Budgets (see `http2::guard`) ----------------------------------------------------------------

/// Resets at once, sent or received (rapid reset, CVE-2023-44487; MadeYouReset, CVE-2025-8671).
pub const RESET_BURST: u32 = 1_000;

/// Resets in the long run, each second.
pub const RESETS_PER_SECOND: u32 = 33;

/// Odd but legal acts at once: PRIORITY frames (CVE-2019-9513), unknown frames, late frames.
pub const GLITCH_BURST: u32 = 10_000;

/// Odd but legal acts in the long run, each second.
pub const GLITCHES_PER_SECOND: u32 = 330;

/// Interim heads (status 1xx), and RST_STREAM frames on closed streams, that a server may send for
/// each call of a client, on the average. One beyond it is an odd act: without end, they keep a
/// client at work and bring nothing.
pub const FRAMES_BESIDE_CALL: u32 = 4;

/// PING and SETTINGS frames, and WINDOW_UPDATE frames, that a peer may send out of the blue. What
/// it earns by traffic comes on top.
pub const CONTROL_BURST: u32 = 1_000;

/// Control frames earned each second.
pub const CONTROLS_PER_SECOND: u32 = 500;

/// Control frames earned by each stream that begins, and by each message received.
pub const CONTROLS_PER_STREAM: u32 = 4;

/// Control frames earned by each DATA frame that we send.
pub const CONTROLS_PER_DATA_SENT: u32 = 20;

/// WINDOW_UPDATE frames that a peer may send for each DATA frame that we have sent, however many
/// that were: one for its stream and one for the connection, and as many again for one that gives
/// back by pieces. Many small messages that leave at once are answered by thousands of them.
pub const WINDOW_UPDATES_PER_DATA_SENT: u32 = 4;

/// Windows that a change of SETTINGS_INITIAL_WINDOW_SIZE moves for the price of one spurious frame.
/// All streams are walked for it, thousands for fifteen bytes; honest peers change it a few times.
pub const WINDOWS_PER_GLITCH: usize = 16;

/// How many times its size a message may become when it is decompressed, free of charge.
pub const USUAL_INFLATE_RATIO: usize = 32;

/// A compressed message that becomes at most this is decompressed when it is found: some 60 to 130
/// µs, and memory that a connection may always have.
pub const UNPACKED_AT_ONCE_BYTES: usize = 64 << 10;

/// A larger one is decompressed in steps of this size, some 100 to 250 µs each, when there is
/// memory for all of it. Stops a few bytes from holding up a loop for what a largest message takes,
/// and many of them from taking all memory at once.
pub const UNPACK_STEP_BYTES: usize = 128 << 10;

/// What a block of a compressed message counts as, in bytes that are made: each may bring codes of
/// its own, whose tables take 1 to 3 µs. Stops messages that consist of empty blocks, 12 bytes
/// each, and become nothing, from holding up a loop; what honest programs compress has a block for
/// some ten thousand bytes.
pub const DEFLATE_BLOCK_WORK_BYTES: usize = 2 << 10;

/// How long the name and the comment in the header of a compressed message may be, in bytes. Nobody
/// reads them, and they are passed over in one go.
pub const GZIP_TEXT_BYTES: usize = 4 << 10;

/// What messages may become beyond [`USUAL_INFLATE_RATIO`], at once, in bytes. Stops small messages
/// that each become the largest that is allowed: a thousand times the work of receiving them.
pub const INFLATE_BURST_BYTES: u32 = 64 << 20;

/// The same in the long run, each second.
pub const INFLATE_BYTES_PER_SECOND: u32 = 32 << 20;

/// What small DATA frames may waste that end neither a message nor a stream, and bring nothing of a
/// plain body: each shorter than [`SMALL_DATA_BYTES`] costs what it lacks, each longer one earns
/// what it has beyond, each stream, each message, each part of one that comes in parts, and each
/// piece of a plain body earns one small frame. Stops floods of empty frames (CVE-2019-9518) and
/// messages cut into single bytes, but not streams of small messages, nor bodies that are written
/// in small pieces.
pub const SMALL_DATA_BUDGET: u32 = 25_600;

/// See [`SMALL_DATA_BUDGET`].
pub const SMALL_DATA_BYTES: u32 = 256;

/// What the budget for small DATA frames regains each second.
pub const SMALL_DATA_PER_SECOND: u32 = 25_600;

/// The budget for small DATA frames of a client, which has chosen its server: one that cuts its
/// messages into small pieces is slow, and no reason to end the connection.
pub const CLIENT_SMALL_DATA_BUDGET: u32 = 16 << 20;

/// What that budget regains each second: 65 536 empty frames.
pub const CLIENT_SMALL_DATA_PER_SECOND: u32 = 16 << 20;

/// Bytes of the text of a GOAWAY that are kept, to tell the caller why a server ended the
/// connection.
pub const GOAWAY_TEXT_BYTES_MAX: usize = 128;

// --- gRPC ----------------------------------------------------------------------------------------

/// The longest value of `grpc-timeout` that is told from none, in nanoseconds: a year. Added to any
/// time of ours it does not overflow, which the 99999999 hours of the protocol would.
pub const MAX_TIMEOUT_NS: u64 = 365 * 24 * 3600 * 1_000_000_000;

/// Bytes of an encoded `grpc-message`. A longer text is cut: every peer's
/// SETTINGS_MAX_HEADER_LIST_SIZE that lets a response through at all should let its error through.
pub const MAX_STATUS_MESSAGE_BYTES: usize = 1_024;

/// Bytes of the path of a method that there is not which are repeated to who called it. Stops small
/// requests from having responses as large as the largest of names.
pub const MAX_SHOWN_PATH_BYTES: usize = 256;

/// Bytes of what a peer sent that are repeated to it in an error text.
pub const MAX_SHOWN_BYTES: usize = 64;

/// Bytes of `tracestate` that are passed on with a trace: as many as W3C Trace Context asks for at
/// least. A longer list is dropped, since callers choose what stands in it, and spans hold it.
pub const TRACE_STATE_BYTES: usize = 512;

/// Members of it: more are not allowed by W3C Trace Context.
pub const TRACE_STATE_MEMBERS: usize = 32;
