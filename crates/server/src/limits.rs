//! Every bound of this crate: name, default, and what it stops.

/// Events (request heads, messages) that one connection may bring in one tick before the others get
/// their turn: a small request is two events and about 0.3 µs, so this is some 150 µs, below the
/// 200 µs that no step may exceed.
pub const EVENTS_PER_TURN: usize = 1_024;

/// Input bytes that take as long as one of [`EVENTS_PER_TURN`], of the
/// [`net::limits::TICK_INPUT_BYTES`] of a tick, which is so bounded at 4 096 events, some 600 µs.
/// Stops messages of five bytes from having fifty thousand of them in a tick. As many bytes of
/// responses that are made within the turn count as an event as well: a question of a few bytes for
/// all services takes the time of ten messages.
pub const EVENT_COST_BYTES: usize = 64;

/// What the refusal of a method that there is not counts as, in [`EVENTS_PER_TURN`]: it takes some
/// 2 µs, as names are looked for and repeated, where a call that is served takes 0.25. Stops
/// connections that ask for nothing else from taking the time of the others.
pub const UNKNOWN_METHOD_EVENTS: usize = 8;

/// Bytes that a connection's messages become when they are decompressed which count as one of
/// [`EVENTS_PER_TURN`]: both take some 0.15 µs.
pub const UNPACKED_BYTES_PER_EVENT: usize = 128;

/// How long a connection may take to say by its first bytes which protocol it speaks, in
/// milliseconds. Stops connections that are opened and left.
pub const FIRST_BYTES_MS: u64 = 10_000;

/// Reads whose entries are brought into the processor's caches before the first of them is served:
/// enough to overlap the waits for memory, few enough to still be there when their turn comes.
pub const READS_WARMED_TOGETHER: usize = 128;

/// Time that one loop takes in one tick to tell those who watch what has changed, in microseconds.
/// Those who are left are told in the next tick, so that short requests are served in between.
pub const WATCHERS_PER_TICK_US: u64 = 100;

/// Time that the long work of one loop (slices of reads, steps of calls, large requests) may take
/// in one tick, in microseconds, before the last of it begins, which takes as long at most; and
/// once more that of what readers bring. What is left over goes on in the next tick, so that short
/// requests are served in between.
pub const LONG_READS_PER_TICK_US: u64 = 100;

/// From how many bytes on the request of a Batch or Transact waits for its turn among the long work
/// of its loop: some hundred operations, which take a tenth of a millisecond to be taken up. Stops
/// large requests from taking a loop's time one behind the other, also for callers who have left.
pub const LONG_REQUEST_BYTES: usize = 16 << 10;

/// From how many bytes of large requests ([`LONG_REQUEST_BYTES`]) on whose commits are under way
/// the calls of a server take up no further ones. The committer takes commits in the order in which
/// they come: stops a small write from waiting for a large request of each connection, milliseconds
/// each, and these from being in memory there all at once, at several times their size. What goes
/// to databases on disk is not counted, as it waits for readers.
pub const LONG_REQUESTS_UNDER_WAY_BYTES: usize = 128 << 10;

/// Slices of long reads in one tick if fewer calls want one: where they are short, a scan alone
/// would else have a tick for each page. A bound beside the time, as in a simulation that stands
/// still.
pub const LONG_READ_SLICES: usize = 4;

/// The largest request that is received for values of up to `value_bytes`: 16 MiB, or one largest
/// key and value and 64 KiB where that is more, so that whatever can be stored can be sent.
pub fn request_bytes(value_bytes: usize) -> usize {
    (16 << 20).max(value_bytes + store::limits::KEY_BYTES + (64 << 10))
}

/// Bytes that are kept for a read which are counted as held by its connection: less is within what
/// every call is reckoned with ([`CALL_BYTES`]).
pub const KEPT_BYTES: usize = 512;

/// Reads of one connection that have waited for its send capacity and are taken up in one tick:
/// each may find that those before it have used it up.
pub const READS_RESUMED: usize = 64;

/// Running calls of one loop, nearly: when there are as many, a connection may have
/// [`CALLS_IN_ANY_CASE`]. A call above it gets UNAVAILABLE with a pushback and costs nothing else.
/// Stops streams that are opened over many connections and never ended.
pub const RUNNING_CALLS_PER_LOOP: usize = 262_144;

/// The part of the calls that a loop could still run which one connection may have: a sixteenth.
/// Those that take what they can get come to an equal share, and leave something (Choudhury and
/// Hahne, "Dynamic Queue Length Thresholds", 1998). A connection may have all streams of the
/// protocol as long as three quarters are left.
pub const LEFT_CALLS_SHARE: usize = 16;

/// The part of the calls that a loop could still run which one token may have, with however many
/// connections: a half, so that one that takes what it can get comes to a third of
/// [`RUNNING_CALLS_PER_LOOP`]. Callers without a token count together for each listener, unless
/// they come from this machine.
pub const LEFT_CALLS_IDENTITY_SHARE: usize = 2;

/// Calls that a token may run in a loop however many there are.
pub const IDENTITY_CALLS_IN_ANY_CASE: usize = 1_024;

/// Calls that a connection may run however many there are, and that are not charged: what ordinary
/// clients have at once.
pub const CALLS_IN_ANY_CASE: usize = 64;

/// What an open stream and its call take beyond [`CALLS_IN_ANY_CASE`] of a connection, in bytes:
/// measured with Pipes that do nothing, 0.9 KiB.
pub const CALL_BYTES: usize = 1 << 10;

/// How long a connection that is over the limit may live to read its refusal, in milliseconds.
pub const REFUSED_CONNECTION_LIFE_MS: u64 = 1_000;

/// What `grpc-retry-pushback-ms` says when a call is shed, in milliseconds.
pub const RETRY_PUSHBACK_MS: u64 = 100;

/// After the stop signal, how long a call that waits for its peer may still go on before it is
/// ended with UNAVAILABLE, and then how long a peer may take nothing of what waits for it, in
/// milliseconds. Calls that the server itself has still to answer go on until `--drain-timeout`.
pub const DRAIN_IDLE_MS: u64 = 500;

/// How long before the end of `--drain-timeout` the calls that still run are ended with
/// UNAVAILABLE, in milliseconds: the time their statuses have to get out before connections are
/// cut.
pub const LAST_CALL_MS: u64 = 250;

/// What unfinished requests and unsent answers of all connections together may take, as a share of
/// the memory limit, which bounds the data, and on top of it: above it connections that hold more
/// than [`SMALL_HOLDING_BYTES`] wait. With the default limit of 70 % of what the process may use, a
/// quarter comes to 87.5 % in all.
///
/// Not counted, as they are there with every connection: [`CALLS_IN_ANY_CASE`], and input that is
/// not consumed, at most [`net::limits::INPUT_MAX_BYTES`] (64 KiB) of one connection, and output
/// below [`net::limits::OUTPUT_LOW_WATER_BYTES`] (64 KiB). So the worst case is 128 KiB times the
/// connections (`--max-connections` bounds them), if all of them send frames in part and read
/// nothing; an idle one has neither.
pub const BUFFERED_BYTES_SHARE: u64 = 4;

/// The part of the memory of [`BUFFERED_BYTES_SHARE`] that large messages leave to small calls, a
/// quarter: it is accounted for before they come, and the rest of their senders waits.
pub const SMALL_CALLS_SHARE: usize = 4;

/// The part of the memory of [`BUFFERED_BYTES_SHARE`], a 16th, up to which a large message finds
/// memory that larger ones do not: half of what [`SMALL_CALLS_SHARE`] leaves. Stops senders of the
/// largest messages, who stand still when it is their turn, from keeping all others waiting.
pub const SHORT_MESSAGE_SHARE: usize = 16;

/// The part of the memory of [`BUFFERED_BYTES_SHARE`] that the answer to one batch may take, a
/// half: an eighth of the memory limit. It lies there until its caller has read it, and no other
/// large call goes on above the whole. [`service::limits::ANSWER_BYTES`] where that is more, and
/// never more than [`service::limits::ANSWER_BYTES_MAX`].
pub const ANSWER_SHARE: u64 = 2;

/// The part of the memory of [`BUFFERED_BYTES_SHARE`] that writes may take which wait for the
/// committer, a quarter: beyond it nothing more is read from the peers of any loop that has more
/// than [`WAITING_WRITES_IN_ANY_CASE_BYTES`] of them, until the committer has taken some. Stops
/// those that send writes and go, for whom the account counts nothing any more.
pub const WAITING_WRITES_SHARE: usize = 4;

/// What a loop may have waiting for the committer in any case, in bytes: a new and small caller is
/// served while others have used up all that there may be, also where each connection is a loop.
pub const WAITING_WRITES_IN_ANY_CASE_BYTES: usize = 16 << 10;

/// The part of what may wait for the committer, a half, beyond which nothing more is read from
/// those whose token holds as much: others go on until the whole is used up.
pub const WAITING_WRITES_IDENTITY_SHARE: usize = 2;

/// How long a connection that carries baidu_std or SRPC must have been idle, in milliseconds, to be
/// ended when a newcomer finds no place: longer than the pauses of a busy client. These protocols
/// have no PING, so that one whose peer has gone without a word would keep its place for ever.
pub const FRAMED_IDLE_MS: u64 = 5_000;

/// How often at most such a one is ended, in milliseconds: the place of one is free by then, also
/// where its thread has to wake up. Stops a newcomer that comes again at once from having all of
/// them ended.
pub const MAKE_ROOM_MS: u64 = 100;

/// How far the looks of all connections that wait are apart, in milliseconds: for memory, or for
/// the committer. Where more wait than have theirs within the time that each would take, each looks
/// less often. Stops thousands of connections that wait from taking a processor with it, above all
/// with a thread each.
pub const LOOK_SPACING_MS: u64 = 1;

/// How often a connection looks whether less waits for the committer where nobody has said so, in
/// milliseconds.
pub const HELD_BACK_RETRY_MS: u64 = 100;

/// How often a connection looks for memory for its next large message while there is none, in
/// milliseconds. Other loops may give memory back, and tell nobody.
pub const TURN_RETRY_MS: u64 = 10;

/// How soon a call tries again for which there was no memory for its answer since others were
/// making theirs, in milliseconds: as long as making some large answers takes.
pub const CLAIM_RETRY_MS: u64 = 5;

/// What a connection may hold when the account of [`BUFFERED_BYTES_SHARE`] is full: more, and it
/// waits. With what it produces at a time it is why a full account can be exceeded by this for each
/// connection.
pub const SMALL_HOLDING_BYTES: usize = 64 << 10;

/// The reserve for small callers beyond a full account, as a share of it. When that is used up too,
/// new calls get UNAVAILABLE but from those who hold next to nothing.
pub const RESERVE_SHARE: usize = 8;

/// What a connection may send, while not even small callers can be let in, that its calls have not
/// seen: a few windows of small calls. A call that sends beyond it ends with UNAVAILABLE; an upload
/// is bounded by its own window instead.
pub const OVERFULL_GATHERED_BYTES: usize = 256 << 10;

/// How long a connection must not have moved, in milliseconds, until it may be ended to relieve a
/// full account. Long against any pause of an honest peer that reads; short for those who wait for
/// it.
pub const STALLED_MS: u64 = 2_000;

/// As [`STALLED_MS`], for a connection that waits for memory with a whole request, or with one
/// whose sender has shown that it goes on, and has taken nearly all that it was sent: it is the
/// server that does not go on. It ends all the same, since a
/// peer might hold much beside that request.
pub const WAITING_STALLED_MS: u64 = 10_000;

/// How far beyond the reserve of a full account ([`RESERVE_SHARE`]) large messages may still come,
/// one after the other, in bytes: as much as one may have by default. Beyond it they wait until
/// what is held has become less, compressed ones as soon as the reserve is used up. Stops messages
/// whose responses nobody takes from following each other.
pub const OVERDRAWN_BYTES: usize = 16 << 20;

/// How long a message waits for memory until connections that do not move are ended for it although
/// the account is not full, in milliseconds: those that hold most and move least. Less than
/// [`STALLED_MS`], so that whoever came before those that wait is ended before them.
pub const STARVED_MS: u64 = 1_000;

/// How often at most a full account is relieved of a connection, in milliseconds: what one held is
/// given back first.
pub const RELIEVE_MS: u64 = 100;

/// From how many bytes on a connection that holds less than [`SMALL_HOLDING_BYTES`] may be ended,
/// too, where such connections together hold [`SMALL_HOLDERS_SHARE`] of a full account: thousands
/// of half messages kept alive by a byte now and then.
pub const RELIEVED_FROM_BYTES: usize = 16 << 10;

/// The part of the account, a half, that such connections must hold together: else others are why
/// it is full.
pub const SMALL_HOLDERS_SHARE: usize = 2;

/// Bytes of connections that are ended at a time: one small one would give back next to nothing.
pub const RELIEVED_AT_ONCE_BYTES: usize = 1 << 20;

/// Addresses of peers, and tokens, that are remembered with what they hold before those without a
/// connection are forgotten; twice as many as have one, where that is more.
pub const KEPT_PARTIES: usize = 1_024;

/// How long commits that found no room for what they must know wait until it is read again, in
/// milliseconds: as long as a group of the log takes that gives some back.
pub const READ_AHEAD_RETRY_MS: u64 = 2;

/// Timers of one loop that expire in one tick: ending a call costs some 0.2 µs. Stops ten thousands
/// of calls with the same deadline from holding up a loop.
pub const TIMERS_PER_TICK: usize = 1_024;

/// Certificates of clients that a loop checks again in one tick after an authority was taken away:
/// each takes some 0.1 ms for its signatures, 1 ms at most whatever a client has put into its chain
/// (`INTERMEDIATES_MAX`), and others wait meanwhile.
pub const CERTIFICATE_CHECKS_PER_TICK: usize = 2;

/// Dead timers that may wait in the timer heap beyond the living ones before the heap is swept.
pub const DEAD_TIMERS: usize = 4_096;

/// Garbage values (the content of cleared and dropped databases) that may wait for the
/// deferred_drop thread.
pub const GARBAGE_QUEUE: usize = 64;

/// Characters of an unknown path that a status message repeats.
pub const PATH_IN_MESSAGE_CHARACTERS: usize = 256;

/// How often a long task says at most how far it has come, in milliseconds: what a person sees as
/// moving, and next to nothing for a loop.
pub const TASK_PROGRESS_MS: u64 = 100;

/// Backups, snapshots and conversions that may wait while another one runs, one of each token (or
/// address): nobody keeps others from theirs by always asking for the next one.
pub const WAITING_TASKS: usize = 16;

/// How long such a one waits for its turn at most, in milliseconds, before it ends with
/// UNAVAILABLE: longer than what is small takes, and not as long as a large backup.
pub const TASK_WAIT_MS: u64 = 60_000;

/// While the memory for buffers is used up and the windows of all connections are shut: how often
/// each looks whether they may open again, in milliseconds.
pub const WINDOWS_SHUT_MS: u64 = 100;

/// Calls that have ended in one tick and differ in method or begin, kept until its end to be
/// counted with one reading of the clock; more need another one. 24 KiB.
pub const ENDED_CALLS_KEPT: usize = 1_024;

/// Threads that wait for the device for the reads of databases on disk. Begun when they are needed:
/// as many reads as this are under way on the device at once, which is what makes a fast one fast;
/// more would mostly wait for a CPU.
pub const READERS: usize = 16;

/// Queues that are kept, where connections take turns, for connections to come: those of as many
/// as have something at a time in the usual case.
pub const SPARE_TURN_QUEUES: usize = 16;

/// Items for which such a queue has room at most, so that one that was long does not stay.
pub const SPARE_TURN_ITEMS: usize = 32;

/// Readers that long reads (pages of scans, counts, sweeps) may have at once, a half: the others
/// are there for short ones.
pub const LONG_READERS: usize = READERS / 2;

/// Short jobs that readers begin, while long ones wait, until one of these is begun.
pub const SHORT_JOBS_IN_ROW: usize = 8;

/// Jobs that may wait for a reader, some 0.5 KiB each. Calls beyond it get UNAVAILABLE with a
/// pushback: the device is then so far behind that they would wait in vain.
pub const READ_JOBS: usize = 65_536;

/// The part of the jobs that could still wait which one connection may have, as with
/// [`LEFT_CALLS_SHARE`].
pub const LEFT_READ_JOBS_SHARE: usize = 16;

/// Turns of connections that have left which may stand among those of others, besides as many as
/// there are of these: they are passed over.
pub const TURNS_PASSED_OVER: usize = 64;

/// Jobs that a connection may have while there is room at all, however many others have.
pub const READ_JOBS_IN_ANY_CASE: usize = 16;

/// A connection with so many reads in one tick has jobs of its own for them. Fewer share one with
/// those of others.
pub const READS_OF_OWN_JOB: usize = 8;

/// Reads of one tick that go to one reader together: enough to share its wake-up and its way back,
/// few enough that several readers get something to do when many are asked for.
pub const READS_PER_JOB: usize = 32;

/// Bytes that readers have read and loops have not taken up yet, or are about to read, above
/// which readers wait: sixteen times what one run of a job usually reads at most. Half of the
/// account of [`BUFFERED_BYTES_SHARE`] where that is less. Beside it, one run at a time may read
/// what its call needs, if that is more than usual.
pub const READ_RESULT_BYTES: usize = 64 << 20;

/// How often a loop says in the log that a database on disk could not be read, in milliseconds:
/// thousands of calls may find the same damage.
pub const DAMAGE_TOLD_MS: u64 = 10_000;

/// With the blocking driver: how often its door looks whether a sweep has become due, in
/// milliseconds. Expired entries are not shown in any case; until then they only take memory.
pub const SWEEP_LOOK_MS: u64 = 1_000;

/// How long a thread that reads or writes for others waits for something to do before it ends, in
/// milliseconds: long against the pauses of a busy server, and short for the memory that it keeps
/// to use again.
pub const IDLE_THREAD_MS: u64 = 5_000;

/// Threads that read and write blobs: enough to keep a disk busy while some of them wait for a
/// sync, few enough that their memory and their share of the processors stay small.
pub const BLOB_THREADS: usize = 4;

/// Jobs for blobs that wait, from which on those of calls that are gone are looked for and dropped;
/// after that, from twice as many as were left. A job takes some hundred bytes.
pub const BLOB_JOBS_PRUNED: usize = 1_024;

/// Bytes of blobs that are being read, or were and wait for their connection, of all connections
/// together: enough for sixteen of the largest pieces at a time, far more than the threads read.
/// Beyond it a connection has one small read.
pub const BLOB_READ_BYTES: usize = 64 << 20;

/// The same of one connection: four of the largest pieces. One read is always allowed.
pub const BLOB_SOURCE_READ_BYTES: usize = 16 << 20;

/// What a connection reads at a time of blobs while [`BLOB_READ_BYTES`] or the account of
/// [`BUFFERED_BYTES_SHARE`] is used up: a block, as much as it may hold then in any case
/// ([`SMALL_HOLDING_BYTES`]).
pub const BLOB_SMALL_READ_BYTES: usize = 64 << 10;

/// Calls with a wrong token that a connection has refused at once, before refusals are delayed: far
/// more than an honest client sends with a token that was revoked, until somebody looks.
pub const WRONG_TOKENS_AT_ONCE: u64 = 16;

/// The same of all connections from one address. Beyond it each connection from there has one
/// refused in each [`WRONG_TOKEN_INTERVAL_MS`] from the first on: a proxy with some such clients is
/// within it. Stops connections that are opened for a few wrong tokens each.
pub const WRONG_TOKENS_AT_ONCE_PER_ADDRESS: u64 = 256;

/// In this time one more call with a wrong token is refused, of a connection that has sent more
/// than [`WRONG_TOKENS_AT_ONCE`], and one more of an address is refused at once, in milliseconds.
/// Nobody guesses 256 random bits, however fast: it keeps those who try from costing more than
/// others do, and their lines from filling the log.
pub const WRONG_TOKEN_INTERVAL_MS: u64 = 100;

/// Calls with a wrong token that wait on one connection, each for its own turn to be refused. Each
/// is a stream and a call of the connection. One more waits as long as the last of them, or, if the
/// connection has also calls that were let in, as that of a proxy has, is refused at once. The
/// connection is not ended for it: others may share it that have not called yet.
pub const WAITING_REFUSALS: u64 = 64;

/// So much of the streams of a connection may be in use, in percent, for a call with a wrong token
/// to wait for its refusal there: beyond it all are refused at once. So those who send wrong tokens
/// do not use up the streams of others on the connection.
pub const WAITING_REFUSALS_STREAMS_PERCENT: usize = 75;

/// Calls with a wrong token that wait for their refusal on all connections of one loop, some 1 KiB
/// each: beyond it all are refused at once. So
/// those who send wrong tokens do not use up the calls of a loop ([`RUNNING_CALLS_PER_LOOP`]).
pub const WAITING_REFUSALS_PER_LOOP: usize = 4_096;

/// Lines about denials that a connection has in the audit trail at once; those that follow have one
/// in each [`DENIAL_LINE_CONNECTION_MS`], which says how many had none. So what one connection does
/// hides neither others nor itself.
pub const DENIAL_LINES_PER_CONNECTION: u64 = 8;

/// In this time a connection has one more line about denials, in milliseconds.
pub const DENIAL_LINE_CONNECTION_MS: u64 = 10_000;

/// The same of a caller: the holder of a token, or all whose token is not good from one address,
/// with however many connections.
pub const DENIAL_LINES_PER_CALLER: u64 = 64;

/// In this time a caller has one more line about denials, in milliseconds.
pub const DENIAL_LINE_CALLER_MS: u64 = 1_000;

/// The same of all callers: some 200 KB at once, and then 200 MB a day at most.
pub const DENIAL_LINES: u64 = 1_000;

/// In this time there is one more line about denials, in milliseconds.
pub const DENIAL_LINE_MS: u64 = 100;

/// Lines about changes of databases, of one caller at once, and as many about lists and about calls
/// that are refused: more than any script does in a row. Whoever may administrate one database
/// could fill the log with calls that are refused for what they ask. Changes of tokens and roles
/// always have a line.
pub const ACTION_LINES_PER_CALLER: u64 = 1_000;

/// In this time such a caller has one more line, in milliseconds.
pub const ACTION_LINE_CALLER_MS: u64 = 100;

/// The same of all callers.
pub const ACTION_LINES: u64 = 10_000;

/// In this time there is one more line about calls that administrate, in milliseconds.
pub const ACTION_LINE_MS: u64 = 20;

/// Callers whose lines in the audit trail are counted, each in some 60 bytes. What more have is
/// counted together.
pub const AUDIT_OWNERS: usize = 4_096;

/// Characters that a line of the audit trail has of a request: the longest name of a database, and
/// as many of the rights of a token as anybody reads.
pub const AUDIT_TEXT_CHARACTERS: usize = 512;

/// Addresses whose wrong tokens are counted, each in some 50 bytes. What more send count together,
/// and so have their refusals delayed sooner; good tokens are never delayed.
pub const WRONG_TOKEN_ADDRESSES: usize = 4_096;

/// Lines that the slow-call log may have at once: a device that hangs makes every call slow, and
/// the first of them say so.
pub const SLOW_CALLS_BURST: u64 = 20;

/// And one more each time so many milliseconds are over, ten a second: what is slow by the
/// thousand must not be made slower by the log. Those left out are counted in the next line.
pub const SLOW_CALL_INTERVAL_MS: u64 = 100;

/// Spans at once of calls that are refused before they begin. Who may not call can send what is
/// refused as fast as it likes, and must not take the place that spans of others wait in; further
/// ones are counted by metrics alone. Of each loop.
pub const REFUSED_SPANS_BURST: u64 = 20;

/// And one more each time so many milliseconds are over.
pub const REFUSED_SPAN_INTERVAL_MS: u64 = 100;

/// What the arena for keys of the reads of a tick keeps allocated between ticks, in bytes: a burst
/// of large keys does not stay.
pub const ARENA_KEPT_BYTES: usize = 256 * 1024;

/// Bytes of a key that come into the slow-call log, if they are wanted there at all.
pub const SLOW_CALL_KEY_BYTES: usize = 32;

/// Characters of the name of a database that come into the slow-call log: callers may write there
/// what they like.
pub const SLOW_CALL_NAME_CHARACTERS: usize = 64;

/// How often a loop looks which databases an engine has that keeps those of the server, and whether
/// it serves, in milliseconds: what other servers make is found within this time, and a look costs
/// a lock.
pub const REMOTE_LOOK_MS: u64 = 500;
