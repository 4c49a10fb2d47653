//! Every bound of this crate: its name, its default, and what it stops.

/// Longest time to live, in milliseconds: 100 years. More is surely a mistake of units, and could
/// overflow.
pub const TIME_TO_LIVE_MS_MAX: u64 = 100 * 365 * 24 * 60 * 60 * 1000;

/// Bytes of entries in one page of a scan, unless its first entry alone is larger. Far below what a
/// default client accepts, and copied in about 100 µs from memory that is in no cache.
pub const SCAN_PAGE_BYTES: usize = 256 << 10;

/// Entries walked for one page of a scan: among a million entries each costs some 600 ns to 1 µs,
/// as none is in the cache, and a page should take at most 100 µs.
pub const SCAN_PAGE_ROWS: u32 = 100;

/// Bytes of keys that a scan or count keeps between two steps from which on they are counted as
/// held by its connection. Less is within what every call is reckoned with.
pub const HELD_KEY_BYTES: usize = 512;

/// Rows walked in one slice of a count, at some 36 ns each: 100 µs.
pub const COUNT_SLICE_ROWS: u32 = 2_500;

/// Rows of a database on disk that are counted although an estimate would do: an estimate is poor
/// where there are few, and this many are walked in some milliseconds, by a thread that may take
/// its time.
pub const EXACT_COUNT_ROWS: u32 = 20_000;

/// `max_answer_bytes` of a batch that names none: what the default client of every language
/// accepts.
pub const ANSWER_BYTES: u64 = 4 << 20;

/// Largest `max_answer_bytes` that a batch may name: the answer is put together in memory in one
/// step. A server with less than 512 MiB of memory allows less, an eighth of it, or
/// [`ANSWER_BYTES`] where that is more.
pub const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Bytes of the answer to a batch that belong to no single result: its own fields, and what a
/// result with a previous entry takes beyond [`store::limits::ANSWER_BYTES_PER_OPERATION`] in the
/// worst case of one operation.
pub const ANSWER_FRAME_BYTES: u64 = 48;

/// Characters of a caller's own words (such as the name of a database that does not exist) repeated
/// in a status message: a status travels in headers, whose size is bounded.
pub const QUOTED_CHARACTERS: usize = 64;

/// Calls of one server that wait for something that may never come (`Health/Watch`), or for a time
/// (`Echo` with a delay). They cost no work but keep memory, and no idle timer ends them. Beyond:
/// RESOURCE_EXHAUSTED, but for those of [`WAITING_CALLS_IN_ANY_CASE`].
pub const WAITING_CALLS_MAX: usize = 10_000;

/// The part of the places for waiting calls that are left ([`WAITING_CALLS_MAX`]) which one
/// connection may have: a quarter. One alone gets to 2 000. Those that take what they can get leave
/// something.
pub const WAITING_CALLS_CONNECTION_SHARE: u64 = 4;

/// The same of all connections from one address: a half.
pub const WAITING_CALLS_ADDRESS_SHARE: u64 = 2;

/// The same of all calls of one token, wherever they come from: a half.
pub const WAITING_CALLS_IDENTITY_SHARE: u64 = 2;

/// Waiting calls that a connection may have however many there are: ordinary clients watch the
/// health of one or two services. Less than the calls that a connection may run in any case, so it
/// adds nothing to what connections may take.
pub const WAITING_CALLS_IN_ANY_CASE: u64 = 4;

/// How long a watcher hears nothing at most, in milliseconds: then it is told up to where all is
/// seen. Short enough that a client notices a server that is gone, and long enough that ten
/// thousand watchers of a database at rest cost nothing.
pub const WATCH_HEARTBEAT_MS: u64 = 10_000;

/// Servers that follow one server. Each reads the whole log from the device, and gets it over the
/// network: more of them follow one that follows.
pub const FOLLOWERS_MAX: usize = 16;

/// Replicas behind each other of which a server knows that what it has comes through them: more
/// than anybody puts in a row, since each adds to how far the last one is behind.
pub const REPLICA_CHAIN_MAX: usize = 32;

/// How long a server that follows hears nothing at most, in milliseconds. Short, since its lag is
/// measured by it, and one that does not hear for some of these looks for another connection.
pub const FOLLOW_HEARTBEAT_MS: u64 = 1_000;

/// Bytes of the log or of a file that go to a server that follows in one message: what a connection
/// may always send, whatever others hold.
pub const REPLICATION_PART_BYTES: usize = 48 << 10;

/// Longest key that bounds the range of a watcher, and longest prefix: both are kept as long as it
/// watches, so that ten thousand of them keep 20 MB.
pub const WATCH_KEY_BYTES: usize = 1_024;

/// Changes of a database that a watcher looks at in one step, those outside of its range included:
/// some 100 µs.
pub const WATCH_STEP_CHANGES: usize = 1_024;

/// What a response to a watcher has at most beyond its first commit, in bytes: commits that come
/// together go out together.
pub const WATCH_MESSAGE_BYTES: usize = 64 << 10;

/// Bytes of commits that are read from the log at a time for a watcher for which memory has no
/// more, as far as its peer takes so many. What the peer then does not take is read again.
pub const WATCH_LOG_BYTES: usize = 256 << 10;

/// How long a watcher waits, in milliseconds, before its log is tried again where too many others
/// read from the device.
pub const WATCH_LOG_RETRY_MS: u64 = 100;

/// Smallest `max_answer_bytes` of a watcher: a longest key fits into it, as it is and beside what
/// comes with it.
pub const WATCH_MESSAGE_BYTES_MIN: usize = 128 << 10;

/// Longest name of a service that health is asked for. Longer than any real one, and short enough
/// for a status message.
pub const HEALTH_SERVICE_NAME_BYTES_MAX: usize = 256;

/// Largest `answer_bytes` of the echo service: what a client takes by default, 4 MiB, with room for
/// the message around.
pub const ECHO_ANSWER_BYTES_MAX: u32 = 4_000_000;

/// Longest `delay_ms` of the echo service: long enough for any measurement, short enough that calls
/// do not pile up.
pub const ECHO_DELAY_MS_MAX: u32 = 60_000;

/// How much later the slow method of SRPC's benchmark answers, in milliseconds.
pub const SRPC_SLOW_MS: u64 = 15;

/// Largest payload that the echo service keeps during a delay: with [`WAITING_CALLS_MAX`] calls,
/// 160 MB in all.
pub const ECHO_DELAYED_PAYLOAD_BYTES_MAX: usize = 16 * 1024;

/// Bytes of requests to the key-value example that wait for their simulated work (`--simulate`), in
/// all, however much memory there is: what 4 000 of its usual requests have. Beyond:
/// RESOURCE_EXHAUSTED. Calls are counted by [`WAITING_CALLS_MAX`].
pub const SIMULATED_BYTES: u64 = 256 << 20;

/// The part of the memory limit that they may have where that is less than [`SIMULATED_BYTES`], an
/// eighth: half of what all peers may make a server hold, to which they are charged.
pub const SIMULATED_BYTES_SHARE: u64 = 8;

/// The part of these bytes that are left which one connection may have: a quarter.
pub const SIMULATED_CONNECTION_SHARE: u64 = 4;

/// The same of all connections from one address, and of all calls of one token: a half.
pub const SIMULATED_ADDRESS_SHARE: u64 = 2;

/// Bytes of these that a connection may have however many there are: a request of the usual size,
/// as much as a connection may hold where memory is used up.
pub const SIMULATED_BYTES_IN_ANY_CASE: u64 = 64 << 10;

/// With `--simulate …,serial`, how far ahead turns are given out, in milliseconds: 10 minutes. More
/// than any caller waits for, and it bounds what callers leave behind who go before their turn.
/// Beyond: RESOURCE_EXHAUSTED.
pub const SIMULATED_ROW_MS: u64 = 600_000;

/// The part of this time that is left which one connection may have: a sixteenth. One alone gets to
/// 35 s, more than clients have under way, and keeps others waiting no longer.
pub const SIMULATED_ROW_CONNECTION_SHARE: u64 = 16;

/// The same of all connections from one address, and of all calls of one token: an eighth, 66 s.
pub const SIMULATED_ROW_ADDRESS_SHARE: u64 = 8;

/// Longest delay of `--simulate`, in milliseconds: one minute, as of [`ECHO_DELAY_MS_MAX`].
pub const SIMULATED_DELAY_MS_MAX: u64 = 60_000;

/// Longest question of reflection. It holds one name, and comes back in the answer.
pub const REFLECTION_REQUEST_BYTES_MAX: usize = 4096;

/// Largest payload that the test service sends in one message, for the reason of
/// [`ECHO_ANSWER_BYTES_MAX`].
pub const INTEROP_PAYLOAD_BYTES_MAX: u32 = 4_000_000;

/// Messages that a call of the test service still owes to its caller, in all; each costs 12 bytes
/// to remember.
pub const INTEROP_RESPONSES_MAX: usize = 10_000;

/// Largest load report that the test service gives back: it travels in trailers, of which clients
/// take 8 KiB.
pub const INTEROP_LOAD_REPORT_BYTES_MAX: usize = 3_000;

/// Longest pause before a message of the test service, one minute.
pub const INTEROP_INTERVAL_US_MAX: u32 = 60_000_000;

/// What a failure in words may take in the answer to a batch: its words are shorter.
pub const FAILURE_BYTES: u64 = 128;

/// Bytes of the answer to a Transact that belong to no single result: those of a batch's, and its
/// own fields.
pub const TRANSACT_FRAME_BYTES: u64 = ANSWER_FRAME_BYTES + 16;

/// Bytes of the answer to a batch of a Pipe that belong to no single result: those of a batch's,
/// and its own fields.
pub const PIPE_FRAME_BYTES: u64 = ANSWER_FRAME_BYTES + 32;

/// Bytes that the index of a failed operation takes at most in an answer of a Pipe.
pub const PIPE_INDEX_BYTES: u64 = 5;

/// Batches of one Pipe that may be with the committer or wait for their answer; beyond it the
/// caller is held. Enough to keep a group commit of some milliseconds full of batches of a hundred
/// operations.
pub const PIPE_BATCHES: usize = 256;

/// Bytes of requests of one Pipe under way beyond which the caller is held: what is written in a
/// few milliseconds.
pub const PIPE_REQUEST_BYTES: usize = 4 << 20;

/// Bytes that the answers to the batches of a Pipe under way may come to, each by what it could
/// become at most; beyond it the caller is held. They may have to wait in memory for a caller who
/// does not read. One batch always goes.
pub const PIPE_ANSWER_BYTES: u64 = 32 << 20;

/// With `FAILURES_ONLY`: batches after which an answer says up to where all is done.
pub const PIPE_ACKNOWLEDGE_BATCHES: u64 = 64;

/// With `FAILURES_ONLY`: the longest time, in milliseconds, for which a batch may be done without
/// an answer that says so.
pub const PIPE_ACKNOWLEDGE_MS: u64 = 100;

/// Longest time between two syncs of a database of durability INTERVAL: what a power loss may take
/// should fit in the memory of the person who chose it.
pub const DURABILITY_INTERVAL_MS_MAX: u64 = 60_000;

/// Longest name of a backup, in bytes: it is the name of a folder, and people type it.
pub const BACKUP_NAME_BYTES: usize = 128;

/// Bytes of chunks of one upload that wait while others are written; beyond it the caller is held.
/// Twice as much is in memory for an upload, and one chunk. Enough that handing work to a thread
/// costs little beside it.
pub const UPLOAD_GATHERED_BYTES: usize = 256 * 1024;

/// What a message with a chunk may have behind the data of the chunk, in bytes, so that the data
/// are stored as they come: a checksum, and fields that are not known. A message with more is
/// gathered.
pub const CHUNK_TAIL_BYTES: usize = 1024;

/// The same as a share of the window, where many uploads make that small.
pub const UPLOAD_GATHERED_SHARE: usize = 4;

/// What the receive windows of all uploads may grow to together, each to its share: they wait in
/// memory while the disk is slower than the network. As windows shrink only with what comes, a
/// hundred uploads that begin one after the other have up to five times as much.
pub const UPLOAD_WINDOWS_BYTES: usize = 8 << 20;

/// The share that each upload has, however many there are: some 20 MB a second through a round trip
/// of 5 ms.
pub const UPLOAD_WINDOW_BYTES: u32 = 256 * 1024;

/// The largest share, of one upload alone: a GB and more each second through a round trip of 5 ms.
pub const UPLOAD_WINDOW_BYTES_MAX: u32 = 8 << 20;

/// Bytes of data in one message of a download whose caller does not say: large enough that messages
/// cost little beside their bytes, small enough for the limits of all clients.
pub const DOWNLOAD_CHUNK_BYTES: usize = 256 * 1024;

/// Bytes that a download reads at a time once it goes on, at least.
pub const DOWNLOAD_READ_BYTES: usize = 256 * 1024;

/// Bytes that a download reads at first: one block. All that a peer costs that asks for downloads
/// and does not read them.
pub const DOWNLOAD_FIRST_BYTES: usize = 64 * 1024;

/// How much more a download reads each time, up to its chunk or [`DOWNLOAD_READ_BYTES`]: few
/// lengths, so that the memory of a piece fits the next one.
pub const DOWNLOAD_GROWTH: usize = 4;

/// Bytes that a download reads and sends beyond what the windows of its peer let out, while the
/// peer takes what it is sent: so that there is something to send when a window opens.
pub const DOWNLOAD_AHEAD_BYTES: usize = 64 * 1024;

/// Room in the windows of a peer into which the messages of a download are made to fit: what is
/// left of one keeps a whole piece in memory.
pub const DOWNLOAD_LEAST_ROOM_BYTES: usize = 16 * 1024;

/// Bytes of data in a message of a download that goes into less room than
/// [`DOWNLOAD_LEAST_ROOM_BYTES`]: little enough to be copied.
pub const DOWNLOAD_LITTLE_BYTES: usize = 2_000;

/// Bytes of the message of a download beside its data: the longest name, content type and
/// checksums.
pub const DOWNLOAD_HEAD_BYTES: usize = 2 * 1024;

/// Sets of figures that the threads of the blocking driver share, each of some 20 KiB: a few, so
/// that processors seldom write the same one, and not one for each of thousands of threads, which
/// would have to be added up whenever somebody asks.
pub const SHARED_FIGURES: usize = 8;

/// Bytes that an answer may copy before memory for all that it may copy is taken at once, so that
/// threads that make answers at the same time do not take more than there is.
pub const LARGE_ANSWER_BYTES: usize = 64 << 10;

/// Bytes of one right in text: `write`, a colon, a name of a database, a slash, and a name of a
/// blob, each as long as it may be.
pub const RIGHT_BYTES_MAX: usize = 2048;

/// Identities of a server: tokens and bindings, also those that have expired, until somebody
/// revokes them. Each takes a few hundred bytes, and each change makes a table of them anew. More
/// than there are teams and programs that share one server.
pub const IDENTITIES_MAX: usize = 1000;

/// Rights of one identity. They are looked at one by one.
pub const GRANTS_MAX: usize = 64;

/// Longest name of an identity, in bytes: people type it, and it stands in lines of the log.
pub const IDENTITY_NAME_BYTES_MAX: usize = 64;

/// Bytes of all rights of one token in text, together, with what it is bound to. The list of all
/// tokens is one message: so it has at most 4 MiB, which clients take if nobody has told them
/// otherwise.
pub const TOKEN_RIGHTS_BYTES_MAX: usize = 3 << 10;

/// Longest time until a token expires, 10 years: a longer one is a mistake, or means never.
pub const TOKEN_EXPIRY_MS_MAX: u64 = 10 * 366 * 24 * 60 * 60 * 1000;

/// Longest time for which the token before a rotation stays good, 30 days: who needs longer needs
/// two tokens, with names of their own.
pub const TOKEN_KEEP_MS_MAX: u64 = 30 * 24 * 60 * 60 * 1000;

/// How long a token with which its holder has rotated it stays good if no time was named, 1 hour:
/// whoever does not get the response, or cannot write it down, can call again.
pub const TOKEN_KEEP_OWN_MS: u64 = 60 * 60 * 1000;

/// Tokens of the first administrator that were revoked or rotated away and are remembered, the
/// latest of them: no start makes one of them anew, whatever it is given. More than somebody
/// rotates in years, and 3 KiB.
pub const REVOKED_TOKENS_MAX: usize = 100;

/// Roles of a server. Each is looked for by its name in a short list, when the table of identities
/// is made anew.
pub const ROLES_MAX: usize = 100;

/// Bytes of the rights of all identities in text, with those of their roles wherever they are used:
/// what all of them may have without roles, and as much again. A table of identities keeps them in
/// memory, twice while it is made anew. Beyond: RESOURCE_EXHAUSTED.
pub const IDENTITIES_BYTES_MAX: usize = 12 << 20;

/// Times that a change of a token is tried where others change tokens at the same moment. Each time
/// one of them has come through, so that only a crowd is told to try again.
pub const TOKEN_CHANGE_TRIES: u32 = 64;

/// Longest value of the header `authorization` that is looked at, and that a connection keeps: a
/// token has 57 bytes with its scheme.
pub const AUTHORIZATION_BYTES_MAX: usize = 128;

/// Bytes of a name to which an identity is bound: an ID of SPIFFE has at most 2048.
pub const BINDING_BYTES_MAX: usize = 2048;

/// Longest time for which a call of Tkrzw-RPC sleeps that waits for a record: then it looks again,
/// as the original does, whether or not it was told of one.
pub const TKRZW_RETRY_MS: u64 = 5_000;

/// Longest time for which such a call waits, in seconds: 10 years. A number of the caller, which
/// could be any.
pub const TKRZW_WAIT_S_MAX: f64 = 10.0 * 366.0 * 24.0 * 60.0 * 60.0;

/// How soon a PopFirst of Tkrzw-RPC looks again where others are about to remove all that there is:
/// when a commit is on its way to a device, it takes some milliseconds.
pub const TKRZW_CLAIM_RETRY_MS: u64 = 1;

/// Times that a request of Tkrzw-RPC is tried which reads before it writes, where others change the
/// same record in between. Each time one of them has come through. Beyond: ABORTED.
pub const TKRZW_TRIES: u32 = 256;

/// Keys that a PushLast tries one after the other before it looks for the first gap: pushes of one
/// moment are that many at most, and each try is a commit.
pub const TKRZW_KEYS_TRIED: u32 = 8;

/// How soon a Synchronize of Tkrzw-RPC looks again whether the log is on the device: a sync takes
/// some milliseconds.
pub const TKRZW_SYNC_LOOK_MS: u64 = 5;

/// Messages of one stream of Tkrzw-RPC that may be with the committer; beyond it the caller is
/// held. As many as batches of a Pipe.
pub const TKRZW_STREAM_REQUESTS: usize = 256;

/// Bytes of these messages beyond which the caller is held: what is written in a few milliseconds.
pub const TKRZW_STREAM_BYTES: usize = 4 << 20;

/// Bytes that the values in their responses may come to, each by what it could have at most; beyond
/// it the caller is held. One message always goes.
pub const TKRZW_STREAM_ANSWER_BYTES: usize = 32 << 20;

/// Longest pattern of a Search of Tkrzw-RPC. Longer ones would be compared with every key of a
/// database for a very long time; as a key has at most 65 535 bytes, none is found anyway.
pub const TKRZW_PATTERN_BYTES: usize = 64 << 10;

/// Patterns in a list of them, each of which is looked for in every key.
pub const TKRZW_PATTERNS: usize = 256;

/// Bytes of an expression when it is compiled, in less than a millisecond, and half of each cache
/// while it is looked for: some 2 000 states. Stops expressions that repeat repetitions.
pub const TKRZW_REGEX_BYTES: usize = 64 << 10;

/// What a Search by expression is charged with beside what it finds, in bytes: the expression, read
/// in either direction, and the caches of its states.
pub const TKRZW_REGEX_MEMORY_BYTES: usize = 12 * TKRZW_REGEX_BYTES;

/// Bytes of keys that a step of a Search looks at, once for each pattern, or comparisons of
/// characters for a distance: some 50 to 100 µs.
pub const TKRZW_SEARCH_STEP_BYTES: usize = 64 << 10;

/// What an answer to a Search of Tkrzw-RPC may have at most, in bytes, which is set aside before
/// anything is looked for: what the original's clients can receive. Who wants less says so with
/// `capacity`.
pub const TKRZW_SEARCH_ANSWER_BYTES: usize = 4 << 20;

/// Searches of Tkrzw-RPC that compute at a time in the whole server: a search may compute for
/// minutes, and each takes as much time as any other call. So however many there are, a call waits
/// for a step of so many at most. The others wait for their turns.
pub const TKRZW_SEARCHES_AT_ONCE: usize = 4;

/// Steps ([`TKRZW_SEARCH_STEP_BYTES`]) that make a turn of a search where others wait: some
/// milliseconds, beside which it costs nothing to wake the next one.
pub const TKRZW_SEARCH_TURN_STEPS: u32 = 32;

/// Operations of a SetMulti, AppendMulti or RemoveMulti of Tkrzw-RPC that are one commit; those of
/// larger requests become several. New keys of this number take about a millisecond, for which
/// readers of the database wait.
pub const TKRZW_SLICE_OPERATIONS: usize = 1_000;

/// The same in bytes of keys and values: a fraction of a millisecond to copy. One record always
/// goes.
pub const TKRZW_SLICE_BYTES: usize = 1 << 20;

/// Such commits of large requests that are under way at a time in the whole server: what comes
/// behind them waits for a few milliseconds at most.
pub const TKRZW_SLICES_UNDER_WAY: usize = 4;

/// How soon a large request looks again whether it may go on with its next commit: as long as one
/// takes.
pub const TKRZW_SLICE_RETRY_MS: u64 = 1;

/// Records of a large request that are sorted in one step: some 100 µs.
pub const TKRZW_RUN_RECORDS: usize = 1_000;

/// Keys of a GetMulti of Tkrzw-RPC that are looked up in one step; larger requests are served in
/// slices of so many, each of a view of its own: some 100 µs.
pub const TKRZW_READ_SLICE_KEYS: usize = 500;

/// Bytes that such a step copies, beyond which it ends: some 50 µs.
pub const TKRZW_READ_SLICE_BYTES: usize = 256 << 10;

/// How long a Stream or an Iterate of Tkrzw-RPC may be left without a message before it is ended
/// with UNAVAILABLE; up to twice as long, as no clock is read for each message. Clients of the
/// original keep an iterator open as long as the object lives that stands for it, also while a
/// program works on what it has found: so it is long. It stops streams of programs that hang, which
/// would take memory and a stream of the connection for ever.
pub const TKRZW_IDLE_MS: u64 = 60 * 60 * 1_000;

/// Updates that a Replicate of Tkrzw-RPC sends in one step, whether the caller gets them or not:
/// some 50 µs.
pub const TKRZW_REPLICATE_STEP_UPDATES: usize = 256;

/// Least time between two responses of a Replicate which say that nothing has come, in
/// milliseconds. A caller that does not want to wait would get them as fast as the connection
/// carries them.
pub const TKRZW_REPLICATE_WAIT_MS_MIN: u64 = 100;

/// Longest address that a ChangeMaster of Tkrzw-RPC may name, in bytes: a name of a host has 253,
/// the path of a socket 107. It is kept, and shown by Inspect.
pub const TKRZW_MASTER_BYTES_MAX: usize = 512;

/// How often a call looks whether a replica has done what an operator wants of it, in milliseconds.
/// The thread that follows does it between two groups; few such calls are ever made.
pub const ORDER_LOOK_MS: u64 = 20;

/// Bytes of the address at which clients reach a replica that is promoted: a host name has at most
/// 253, and the old leader repeats it in each status.
pub const REPLICA_ADDRESS_BYTES_MAX: usize = 300;
