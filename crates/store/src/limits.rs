//! Every bound of this crate, with its default and its reason.

/// Longest key, in bytes. A key's length is stored in 16 bits.
pub const KEY_BYTES: usize = 65_535;

/// Longest value by default, in bytes: the default client of every language refuses answers above 4
/// MiB, and what can be stored must be readable.
pub const VALUE_BYTES: usize = 4_000_000;

/// Longest value that a database can be configured for, in bytes: a message length must fit in 32
/// bits with room to spare.
pub const VALUE_BYTES_MAX: usize = 1 << 30;

/// Values of this many bytes and more are reference-counted, so that a reader need not copy them.
pub const SHARED_VALUE_BYTES: usize = 16 * 1024;

/// A large value is kept in the message that brought it, instead of being copied, if what lies
/// beside it there is at most one such part of the value: it is held, and not accounted, for as
/// long as the value.
pub const KEPT_BESIDE_VALUE_PART: usize = 64;

/// Operations in one commit by default. A commit is applied whole under the database's lock: this
/// many new keys hold it for about ten milliseconds. It cannot be published in slices: a reader
/// between two of them would see half a commit. Whoever needs readers never to wait that long makes
/// smaller commits.
pub const COMMIT_OPERATIONS: usize = 10_000;

/// Bytes of keys and values in one commit by default; one largest key and value always fit
/// (see [`commit_bytes`]). Copying this much holds the lock for a few milliseconds.
pub const COMMIT_BYTES: usize = 16 * 1024 * 1024;

/// Room beside one largest key and value in a commit of values beyond [`COMMIT_BYTES`].
pub const COMMIT_BYTES_BESIDE_LARGEST: usize = 64 * 1024;

/// Bytes of *existing* values that one commit may copy to append to them, by default. Without it, a
/// small commit could rewrite thousands of large values under the lock, which takes some
/// milliseconds for this many and cannot be cut. One largest value always fits. The value of a key
/// is built once, however many Appends a commit has for it, so with the bytes that the commit
/// brings ([`COMMIT_BYTES`]) this bounds what it produces: 32 MiB.
pub const REWRITTEN_BYTES: usize = 16 * 1024 * 1024;

/// Bytes that the Appends of one group of the log may copy, beyond which no further Append goes
/// into it, nor what comes behind one on its connection: all others in the group wait until these
/// are on the device. Those that are refused or fail bring nothing into the log, and so would never
/// fill a group.
pub const GROUP_REWRITTEN_BYTES: usize = 1024 * 1024;

/// Bytes copied by the Appends of a group from which on the next one copies nothing if it has other
/// commits: what came while the large group was written is on the device soon after it.
pub const RESTING_REWRITTEN_BYTES: usize = 256 * 1024;

/// Addresses that have their turn in one group of the log while their Appends want more copied than
/// [`GROUP_REWRITTEN_BYTES`]; fewer where as many do not fit.
pub const REWRITING_TURNS: usize = 64;

/// Bytes of values that the answer to one commit may carry, unless the commit says otherwise: what
/// the default client of every language accepts. One largest value always fits.
pub const ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// What one operation's outcome counts for beside its value, when the answer's bytes are limited.
pub const ANSWER_BYTES_PER_OPERATION: usize = 48;

/// Longest time for which a writer keeps the readers of its database out, in nanoseconds, between
/// two commits.
pub const SLICE_NS: u64 = 100_000;

/// Work between two looks at the clock within a slice: one unit per operation and one per
/// [`SLICE_WORK_BYTES`]. Small against a slice, large against the price of reading a clock.
pub const SLICE_WORK: usize = 16;

/// See [`SLICE_WORK`].
pub const SLICE_WORK_BYTES: usize = 1024;

/// Entries that one sweep removes: about 100 µs of work. What is left goes on in the next tick, in
/// a durable database a millisecond later.
pub const SWEEP_KEYS: usize = 64;

/// How long after its expiry an entry may wait to be swept, in milliseconds, so that those which
/// expire at about the same time are swept together and an idle server is not woken for each.
pub const SWEEP_DELAY_MS: u64 = 100;

/// Operations whose entries are brought into the processor's caches before the first of them is
/// decided, so that their waiting for memory overlaps. More than a few dozen bring nothing and push
/// each other out.
pub const WARM_OPERATIONS: usize = 64;

/// Bytes of each of these entries that are brought there: 64 of them are as much as the nearest
/// caches hold. What is larger is read in one row, which processors see coming.
pub const WARMED_BYTES: usize = 1024;

/// What an operation costs a loop, the committer and its caller, about, in nanoseconds: where all
/// that are under way cost more than a sync takes, groups of the log are halved, so that one half
/// is worked for while the other is synced.
pub const WORK_NS_PER_OPERATION: u64 = 500;

/// Databases that may exist at a time. Each costs about 10 KiB while it is empty.
pub const DATABASES: usize = 1_000;

/// Longest name of a database, in bytes: it must fit a file name with a suffix.
pub const DATABASE_NAME_BYTES: usize = 200;

/// Bytes of capacity that a write batch or an outcome list keeps for its next use. One huge batch
/// must not hold its memory for ever.
pub const KEPT_BYTES: usize = 1024 * 1024;

/// A count that must look at the expiry of each entry pays this many rows of its budget for one
/// row, since such a row costs a look-up in the hash table.
pub const COUNT_ROWS_PER_LOOKUP: u32 = 16;

/// The bound on a commit's bytes for values of at most `value_bytes`.
pub const fn commit_bytes(value_bytes: usize) -> usize {
    let largest = KEY_BYTES + value_bytes + COMMIT_BYTES_BESIDE_LARGEST;
    if largest > COMMIT_BYTES {
        largest
    } else {
        COMMIT_BYTES
    }
}

/// Keys for which the overlay of a database keeps room from group to group. To empty a large table
/// takes time.
pub const KEPT_OVERLAY: usize = 64 * 1024;

/// Effects for which a commit leaves room to the next one that is decided. To empty a large table
/// takes time, be it used or not.
pub const KEPT_EFFECTS: usize = 4096;

/// Write batches of a loop that wait for the durable committer are joined into one up to this many
/// bytes, which takes some microseconds; larger ones wait as they are.
pub const JOINED_BATCH_BYTES: usize = 64 * 1024;

/// Empty batches and outcome lists that are kept for each loop.
pub const SPARE_BATCHES: usize = 4;

/// For how long a stop still decides commits that wait, in milliseconds. Their callers are gone by
/// then, or were cut. What is left is dropped undecided, as at a kill: a megabyte of small Appends
/// to a large value would keep a stop for minutes.
pub const STOP_DECIDES_MS: u64 = 2_000;

/// How long to wait before the next piece of the log is tried again after a failure, in
/// milliseconds: often enough that writing soon goes on when room was made, rare enough to cost
/// nothing.
pub const SEGMENT_RETRY_MS: u64 = 1_000;

/// How long what a start has set aside is kept, in milliseconds: a week, so that whoever finds on
/// Monday that it was needed can still put it back.
pub const SET_ASIDE_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// How long to wait before what was set aside long enough and could not be removed is tried again,
/// in milliseconds.
pub const SET_ASIDE_RETRY_MS: u64 = 60 * 60 * 1000;

/// Backups that may keep the log from being shortened at a time. Each costs the log that is written
/// while it is made.
pub const LOG_HOLDS: usize = 4;

/// Bytes that a conversion to disk gathers before it writes them to a table: whoever converts is
/// often short of memory, and what is gathered takes about twice as much. Tables of neighbouring
/// keys are one run, however many they are.
pub const CONVERTED_BYTES: u64 = 8 * 1024 * 1024;

/// Keys of an ordered index that defragmentation moves in one step: some ten microseconds.
pub const DEFRAGMENT_KEYS: usize = 48;

/// Slots of the largest hash table that defragmentation moves, with its slots that are empty: some
/// 20 µs. Larger ones have pages of their own, or nearly.
pub const DEFRAGMENT_TABLE_SLOTS: usize = 2048;

/// The largest value that defragmentation moves, in bytes: 50 µs to copy, and the allocator gives
/// larger ones pages of their own.
pub const DEFRAGMENT_VALUE_BYTES: usize = 512 * 1024;

/// Contents of dropped, cleared and converted databases that wait for the thread that frees them.
/// What there is no room for stays with the committer until there is: it does not wait, and frees
/// nothing itself.
pub const RECLAIM_QUEUE: usize = 64;

/// How long a clean stop goes on with removing folders of dropped and converted databases, in
/// milliseconds. What is left then goes at the next start; whoever stops the server does not wait
/// for much.
pub const RECLAIM_STOP_MS: u64 = 5_000;

/// Entries that this thread frees before it looks up again: about a millisecond.
pub const RECLAIM_SLICE: usize = 10_000;

/// How long the thread that frees rests before it has the allocator look through what is free, in
/// milliseconds: that gives memory back to the system when it was not used for a second, and only
/// when somebody asks for some.
pub const GIVE_BACK_MS: u64 = 1_100;

/// Bytes that it asks for then: pieces of this size come from where whole pages are.
pub const GIVE_BACK_BYTES: usize = 1024 * 1024;

/// Bytes of log up to which a backup keeps it from being shortened; beyond it the backup is given
/// up. More is written during the backup of the largest memory only by a server that does nothing
/// else.
pub const HELD_LOG_BYTES: u64 = 64 << 30;

/// Bytes of existing entries that one commit on a database on disk may need to know: they are read
/// before it is decided, and wait with it in memory. Four times what a commit writes by default.
pub const READ_BEFORE_BYTES: usize = 64 * 1024 * 1024;

/// What all commits together may know of existing entries while they wait to be decided, as a share
/// of the memory limit; what finds no room waits before it is read. One commit at a time may go
/// beyond it, by what it needs: small calls wait for milliseconds, and thousands of calls about
/// large values do not take more than one.
pub const READ_BEFORE_SHARE: u64 = 16;

/// The least of it, in bytes: one value of the default size, twice.
pub const READ_BEFORE_LEAST_BYTES: usize = 8 * 1024 * 1024;

/// What small reads (below [`LARGE_BLOCK_BYTES`](crate::tree::limits::LARGE_BLOCK_BYTES)) may take
/// beyond it, as a share of it, an eighth: they go on where large values have taken all the rest.
pub const READ_BEFORE_RESERVE_SHARE: usize = 8;

/// The most of it, in bytes: more would not make a group of the log larger.
pub const READ_BEFORE_ALL_BYTES: usize = 64 * 1024 * 1024;

/// How much lower the priority of the threads that flush memtables and make segments of the log
/// ready is than that of the threads that answer calls, as a nice value. Their share of a CPU is a
/// third: writers wait for these in the end, so less would only hold them back later and longer,
/// and the same share lets them take the CPU for milliseconds while calls wait.
pub const FLUSH_NICE: i32 = 5;

/// The same, of threads that do what nobody waits for: merging tables, snapshots, backups,
/// conversions, freeing what was dropped. Their share is a tenth. Not the least there is: such a
/// thread may hold a lock for a moment that a call waits for, and must get on with it on a CPU that
/// is busy.
pub const BULK_NICE: i32 = 10;

/// The lowest priority that there is (setpriority(2)).
pub const NICE_MAX: i32 = 19;

/// File descriptors that connections and blobs leave to the log, to listeners, standard streams and
/// databases on disk: a quarter of the process's limit (RLIMIT_NOFILE), and not more than this.
pub const DESCRIPTORS_RESERVED: usize = 1_024;

/// The same where few are allowed: what a server of some threads has open with its log, a snapshot
/// and a backup under way.
pub const DESCRIPTORS_RESERVED_MIN: usize = 32;

/// The fewest file descriptors with which a server starts, beside those of its threads and
/// listeners: what it has open when idle with a data folder (21), a snapshot and a backup under
/// way, and some connections, with an upload and a download. With fewer it would start and serve
/// nobody.
pub const DESCRIPTORS_LEAST: usize = 36;

/// File descriptors of each thread of a server: what it waits with, and by what it is woken.
pub const DESCRIPTORS_PER_THREAD: usize = 2;

/// The part of that reserve for tables of databases on disk that are kept open: a quarter. A table
/// beyond it is opened for each read.
pub const DESCRIPTORS_TABLES_SHARE: usize = 4;

/// What the change feeds of all databases may hold together, as a share of the memory limit: an
/// eighth. Each that holds something has an equal part of it. What a watcher has not taken when it
/// is dropped for newer commits is lost to it.
pub const FEED_SHARE: u64 = 8;

/// The most of it, in bytes: some seconds of small writes at full speed.
pub const FEED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How long a change feed stays open that nobody watches any more, in milliseconds: a watcher that
/// was cut off has this time to come back. After that commits cost what they do where nobody
/// watches.
pub const FEED_KEPT_MS: u64 = 60_000;

/// Commits of a change feed that was closed which are freed at a time: some 50 µs, where each has
/// one small change.
pub const FEED_FREED_AT_ONCE: usize = 512;

/// How often all change feeds are looked at, in milliseconds: whether somebody still watches, and
/// whether they hold more than they may since others hold something too.
pub const FEED_TRIM_MS: u64 = 1_000;

/// Bytes of the log that are looked through at a time for somebody who watches, beside its last
/// group: some milliseconds of a reader thread.
pub const LOG_SCAN_BYTES: usize = 4 * 1024 * 1024;

/// What a group of the log takes of memory at most while it is read for somebody who watches, in
/// its own bytes: itself, and its commits, which have a record of more than twice its size for each
/// short change.
pub const LOG_MEMORY_TIMES: usize = 4;

/// How often it is looked, in milliseconds, whether files of the log that are kept for a time are
/// older than that.
pub const KEPT_LOG_LOOK_MS: u64 = 10_000;

/// Keys of a database without an order that are put in order before it is looked at the clock: some
/// 50 µs. Those of one of its tables are gathered at once, which takes as long for ten million
/// entries as a table of theirs to grow.
pub const KEYS_ORDERED_AT_ONCE: usize = 64;

/// Places in the log that are remembered for those who watch, the newest ones: 100 kB.
pub const LOG_MARKS: usize = 1_024;

/// How far they are apart at least, in bytes, where one reading goes on: a millisecond's reading.
pub const LOG_MARK_BYTES: usize = 1024 * 1024;

/// Entries of a cache that are looked at for the one that was not used for longest: some 20 µs. All
/// that were read since they were placed are moved meanwhile, and there may be millions.
pub const CACHE_LOOKS: usize = 64;

/// Entries that a commit drops from a cache, beside two for each of its operations: about 100 µs. A
/// large value may need the room of more; the next commits go on.
pub const CACHE_DROPPED: usize = 128;

/// How soon the log is synced although no commit waits for it, while others follow this server:
/// they get what is on the device, and would fall behind without bound where nothing is synced.
pub const FOLLOWED_SYNC_MS: u64 = 100;

/// Bytes of the log that are read at a time for a server that follows this one, if no single group
/// has more: one step of a reader. Memory for it is claimed before it is read.
pub const FOLLOWED_READ_BYTES: usize = 256 * 1024;

/// How long the log behind a copy is kept for the server that took it: until it has checked and
/// loaded the copy, and asks for what comes next.
pub const COPY_HOLD_MS: u64 = 10 * 60 * 1000;

/// Copies behind which the log is kept so: half of [`LOG_HOLDS`], so that backups have theirs.
pub const COPY_HOLDS: usize = LOG_HOLDS / 2;

/// Replicas that count for [`ReplicasAcked`](crate::ReplicasAcked): far more than may follow at
/// once. Each that ever followed stays among them, until the requirement is given up, so replicas
/// that are made anew again and again would fill the index. A further one does not count.
pub const REPLICA_SET_MAX: usize = 64;

/// Epochs of which a server knows where they ended: a replica that was away for more promotions
/// takes a new copy.
pub const EPOCHS_KEPT_MAX: usize = 100;
