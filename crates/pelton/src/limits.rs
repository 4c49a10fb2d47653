//! Every bound of this crate: name, default, and what it stops.

/// Connections of scrapers at once, each with a thread of its own, so that slow ones hold up
/// nobody. One more closes the oldest: whoever takes longest is least likely to be honest.
pub const METRICS_CONNECTIONS: usize = 64;

/// The part of the descriptors of the process that connections of scrapers may have, two each:
/// where there are few, the server needs them itself.
pub const METRICS_DESCRIPTORS_SHARE: u64 = 16;

/// Bytes of pages that scrapers have not read yet, with a thousand databases some four pages, from
/// which on the oldest of those that have one are closed before one more is made: scrapers that do
/// not read would have one each.
pub const METRICS_UNREAD_BYTES: usize = 16 << 20;

/// Bytes that the request of a scrape may have; a longer one is refused. Real ones have some
/// hundred.
pub const METRICS_REQUEST_BYTES: usize = 8_192;

/// How long a scrape may take from its connection to the last byte of its answer, in milliseconds.
/// Stops connections that are opened and left.
pub const METRICS_CONNECTION_MS: u64 = 5_000;

/// Pause after a connection of a scrape could not be accepted, for want of file descriptors or
/// memory, in milliseconds.
pub const METRICS_ACCEPT_BACKOFF_MS: u64 = 100;

/// How long a page of metrics waits for what the system says of the folders of the data and of
/// backups, in milliseconds: a device or a network that hangs must not take the whole page along.
pub const METRICS_FOLDERS_MS: u64 = 500;

/// Entries of the folder for backups that are looked at for the newest one, at each scrape. Stops
/// one into which something else has put a great many; who makes a backup an hour has as many after
/// a year.
pub const METRICS_BACKUPS: usize = 10_000;

/// Bytes of a file with headers of exports: somewhat more than the headers may have, for comments.
pub const OTLP_HEADER_FILE_BYTES: u64 = 16 << 10;

/// Lines that one place in the program may log in [`LOG_PERIOD_MS`] at level info or above; more
/// are left out, and counted. Stops what others can cause at will (scanners, broken clients) from
/// filling the disk and hiding the rest.
pub const LOG_LINES_PER_PERIOD: u64 = 10;

/// The period for [`LOG_LINES_PER_PERIOD`], in milliseconds.
pub const LOG_PERIOD_MS: u64 = 60_000;

/// Lines that one place in the program may log in [`LOG_DETAIL_PERIOD_MS`] at level debug or trace;
/// more are left out, and counted. A server that answers a hundred thousand calls a second must not
/// spend its time on writing about them.
pub const LOG_DETAIL_LINES_PER_PERIOD: u64 = 1_000;

/// The period for [`LOG_DETAIL_LINES_PER_PERIOD`], in milliseconds.
pub const LOG_DETAIL_PERIOD_MS: u64 = 1_000;

/// How often it is looked whether memory is full, and what was done at level debug, in
/// milliseconds.
pub const ACTIVITY_PERIOD_MS: u64 = 1_000;

/// What the process may take beside the memory limit for data before writes that grow are refused:
/// at least so many bytes. Its program, threads, and buffers of a small server are within that.
pub const PROCESS_BYTES_BESIDE_DATA: u64 = 64 << 20;

/// The same as a part of the memory limit, where that is more: a quarter, for buffers of
/// connections, and for what entries take beyond their estimate.
pub const PROCESS_SHARE_BESIDE_DATA: u64 = 4;

/// The same for each open connection, in bytes.
pub const PROCESS_BYTES_PER_CONNECTION: u64 = 128 << 10;

/// The same where each connection has a thread (`--driver blocking`), which keeps pages of every
/// block size that it has used. With less, many busy connections are taken for memory in pieces.
pub const PROCESS_BYTES_PER_CONNECTION_THREAD: u64 = 1 << 20;

/// The same where there are databases on disk, beside their cache, as a part of the bytes of their
/// tables: indexes and filters are in memory too, some bytes for each entry.
pub const PROCESS_SHARE_OF_DISK_BYTES: u64 = 8;

/// How often it is looked what the process takes while that is more than half of what it may, in
/// milliseconds: some 50 MB may come in between. Else every [`ACTIVITY_PERIOD_MS`].
pub const PROCESS_LOOK_MS: u64 = 100;

/// Full memory is free again when less than so many percent of it are used, so that the log does
/// not say one and the other in turn.
pub const MEMORY_FREE_AGAIN_PERCENT: u64 = 95;

/// For so many looks after the last refusal memory counts as full.
pub const MEMORY_FULL_LOOKS: u32 = 3;

/// A limit on the address space (`ulimit -v`) or on data (`ulimit -d`) must leave so many bytes
/// beyond the program itself: with less, a server that announces memory for data ends when it has
/// taken a part of that, since stacks of threads, databases on disk, requests of large values and
/// what the allocator sets aside need the rest. With 330 MiB values of 1 MiB ended it.
pub const RESOURCE_LIMIT_LEAST_BYTES: u64 = 512 * 1024 * 1024;

/// Of what such a limit leaves beyond the program itself so many percent count as memory: the rest
/// is for the stacks of threads, mapped files, and what the allocator sets aside and does not use.
pub const RESOURCE_LIMIT_PERCENT: u64 = 50;

/// Below this memory limit the server does without pages of 2 MiB, in bytes. They make a large
/// store faster to read. But each thread has a few that are used in part, and what is freed goes
/// back to the system in whole ones: with a limit of 128 MiB the process had 490 MiB under attack
/// instead of 350.
pub const HUGE_PAGES_FROM_BYTES: u64 = 1 << 30;

/// Below this memory limit the allocator gives back at once what is freed, in bytes. Memory that is
/// used again costs page faults then: a Put or Get of 1 MiB some 2.1 ms of CPU instead of 1.0, one
/// of 64 KiB or less nothing that can be measured. But what was freed a second ago would count for
/// much of a small limit: with one of 128 MiB the process had 207 MiB under attack instead of 100
/// to 186.
pub const GIVE_BACK_AT_ONCE_BELOW_BYTES: u64 = 512 << 20;

/// How often a start that takes long says how far it has come, in milliseconds.
pub const START_PROGRESS_MS: u64 = 2_000;

/// How often the files of the certificate are looked at, in milliseconds. Renewals take effect
/// within this time, and what is read costs next to nothing.
pub const CERTIFICATE_POLL_MS: u64 = 10_000;

/// How long before a certificate runs out the log says so, in seconds: 14 days, time enough to
/// renew it by hand.
pub const CERTIFICATE_WARNING_S: u64 = 14 * 86_400;

/// Days for which a certificate of `--tls-self-signed` is valid. Made for a first try; a later
/// start makes a new one when it is about to run out.
pub const SELF_SIGNED_DAYS: u64 = 365;

/// How often at least the service manager is given a sign of life, if it wants one: so many times
/// in the span that it allows.
pub const SIGNS_OF_LIFE_PER_SPAN: u32 = 4;

/// A memtable of a database on disk takes at most one in so many parts of the memory limit: it is
/// counted there, some wait to be flushed, and other databases need room too.
pub const MEMTABLES_IN_MEMORY_LIMIT: u64 = 16;

/// Keys that one request of `pelton delete --prefix` removes: few enough that other callers do not
/// wait for it.
pub const DELETE_GROUP_KEYS: u64 = 1_000;

/// Bytes of keys beyond which such a request takes no more: a tenth of what a server takes in one.
pub const DELETE_GROUP_BYTES: usize = 1 << 20;

/// Names that are tried for a file in which an export is written until it is complete: those of
/// exports that run or were killed are left alone. More is a folder that needs to be tidied up.
pub const EXPORT_PARTIAL_NAMES: u32 = 100;

/// How much of a download a kill may cost: after so many bytes it notes how far it has come. Small
/// beside what a file system writes anyway, and a second's worth of a slow line.
pub const DOWNLOAD_STATE_EVERY_BYTES: u64 = 1 << 20;

/// Bytes of such a note that are read: twice what the longest names and numbers take. More is none
/// of ours.
pub const DOWNLOAD_STATE_BYTES: u64 = 16_384;

/// Bytes of a download after which what came is made durable while more comes.
pub const DOWNLOAD_SYNC_BYTES: u64 = 16 << 20;

/// Bytes of a download written at a time, for the reason of [`store::blob::limits::WRITE_BYTES`],
/// and so that they are summed up while they are in the caches.
pub const DOWNLOAD_WRITE_BYTES: usize = 256 * 1024;

/// Entries are moved together when the process takes so much more than it is known to need, as a
/// part of what it may take beside its data (see [`PROCESS_BYTES_BESIDE_DATA`]): a half, before
/// writes are refused, and beyond what buffers and the program have at most times.
pub const DEFRAGMENT_FROM_PART: u64 = 2;

/// Pause between two slices of moving, in milliseconds: readers and writers have the lock for at
/// least nine tenths of the time.
pub const DEFRAGMENT_PAUSE_MS: u64 = 1;

/// How long it is waited after a pass before it is looked what it has brought, in milliseconds: the
/// allocator keeps what is free for a second.
pub const DEFRAGMENT_JUDGE_MS: u64 = 1_200;

/// A pass that has brought less than such a part of what the process takes too much has not helped.
pub const DEFRAGMENT_GAIN_PART: u64 = 8;

/// After a pass that has not helped there is none for at least so many milliseconds: what the
/// process takes is something else then.
pub const DEFRAGMENT_REST_MS: u64 = 30_000;

/// The same as a multiple of the time that the pass took, where that is more: moving takes at most
/// a hundredth of one CPU while it does not help.
pub const DEFRAGMENT_REST_TIMES: u64 = 10;

/// A rest ends early when the process takes so much more than after the pass, as a part of what it
/// may take beside its data.
pub const DEFRAGMENT_GROWTH_PART: u64 = 8;

/// How long a server that starts waits for whoever reads its standard output, 5 s: who is not there
/// by then does not keep it from serving.
pub const STDOUT_WAIT_MS: u64 = 5_000;

/// Bytes of the log that are kept for those who watch although no start needs them: one file more
/// of the usual size, so that a watcher that was cut off, or a restart, finds some seconds of
/// writing also where the log has just been shortened.
pub const KEEP_LOG_BYTES: u64 = 64 * 1024 * 1024;

/// Bytes of the log that `pelton tkrzw-server` keeps for those who follow it, if nothing else is
/// said: as much as the original puts into one file of its update log. A follower that is away for
/// longer needs a new copy.
pub const TKRZW_KEEP_LOG_BYTES: u64 = 1 << 30;

/// Longest `--repl_wait`, in seconds: a master that says nothing for longer may be gone.
pub const TKRZW_REPL_WAIT_S_MAX: f64 = 60.0 * 60.0;

/// Updates of a master that are carried out together: some milliseconds.
pub const MASTER_BATCH_UPDATES: usize = 1_000;

/// The same in bytes of keys and values: what is held in memory of it. One update may be larger.
pub const MASTER_BATCH_BYTES: usize = 4 << 20;

/// Bytes that an update of a master may have beside its value: the longest key, and some numbers.
pub const MASTER_MESSAGE_BYTES_BESIDE: usize = 128 << 10;

/// How often the timestamp of a master is kept, with a sync of the log: what has come behind it is
/// asked for again after a crash.
pub const MASTER_SAVE_MS: u64 = 1_000;

/// The first wait before a leader is tried again, and the longest one.
pub const FOLLOW_FIRST_WAIT_MS: u64 = 100;

/// A leader that restarts is back within seconds: a replica should not be far behind that, and many
/// of them should not keep it busy.
pub const FOLLOW_LONGEST_WAIT_MS: u64 = 5_000;

/// How long a write waits for --replicas-acked by default: longer than a replica needs that is
/// started anew, and as long as most callers wait.
pub const REPLICAS_ACKED_TIMEOUT_MS: u64 = 10_000;

/// The shortest that may be set: within less, a replica that is well is taken for one that is gone.
pub const REPLICAS_ACKED_TIMEOUT_MIN_MS: u64 = 10;

/// The longest that may be set: writes behind the one that waits are held in memory for as long.
pub const REPLICAS_ACKED_TIMEOUT_MAX_MS: u64 = 600_000;

/// The shortest time that a storage engine may have for a request (`--store-timeout`), in
/// milliseconds: with less, each pause of one of its nodes would make writes unknown.
pub const STORE_TIMEOUT_MIN_MS: u64 = 100;

/// The longest such time: requests that are not answered are held in memory for as long.
pub const STORE_TIMEOUT_MAX_MS: u64 = 300_000;

/// Bytes of a file with the password of a storage engine.
pub const STORE_PASSWORD_FILE_BYTES: u64 = 4_096;

#[cfg(feature = "cassandra-tls")]
/// Bytes of a file with the authorities of the nodes of a storage engine: more than those of a
/// whole system have.
pub const STORE_CA_FILE_BYTES: u64 = 4 << 20;

/// How long connecting to a leader may take.
pub const FOLLOW_CONNECT_MS: u64 = 5_000;

/// How long a leader may say nothing that tells where it stands every second: then another
/// connection is looked for.
pub const FOLLOW_SILENCE_MS: u64 = 10_000;

/// How long a replica waits for its leader before it looks whether an operator wants something of
/// it: nobody should wait for long whose leader is lost.
pub const FOLLOW_LOOK_MS: u64 = 100;

/// By how much an epoch that a replica confirms may be above its own: candidates raise it by one
/// each time. Beyond the highest number there is none, and no replica could be promoted any more.
pub const EPOCH_STEP_MAX: u64 = 1 << 20;

/// The largest message that is taken from a leader: some times what it sends at once.
pub const FOLLOW_MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Bytes of groups that have come, and go into the log of a replica together, with one sync: what a
/// group of its own may have. A single group may be larger.
pub const FOLLOW_BATCH_BYTES: usize = 4 << 20;

/// The largest group that is taken from a leader: more than a group with the largest value can
/// have.
pub const FOLLOWED_GROUP_BYTES_MAX: u64 = 3 << 29;

/// How long a leader may say nothing while it makes a copy: others may come before it, for a
/// minute.
pub const COPY_SILENCE_MS: u64 = 120_000;

/// Bytes of a file of a copy that are written before they are synced: the device is kept busy, and
/// others need not wait for long.
pub const COPY_SYNC_BYTES: u64 = 8 << 20;

/// How many times the bytes of a copy a replica must have free on its disk before it takes one: its
/// files, and the data folder that is made of them, beside what is there.
pub const COPY_ROOM_TIMES: u64 = 2;

/// The longest wait before a new copy is taken once more, and before groups of the leader are once
/// more brought to a disk, or into memory, that had no place for them. Each attempt costs more than
/// a connection does, and most need somebody to change something first.
pub const FOLLOW_BLOCKED_WAIT_MS: u64 = 60_000;

/// The longest wait behind a copy that could not be used: it is at least half as long. For each
/// attempt the server stands still while it checks and loads a copy.
pub const FOLLOW_UNUSABLE_WAIT_MS: u64 = 600_000;

/// Longest name of a file in a copy.
pub const COPY_NAME_BYTES_MAX: usize = 200;

/// Largest file with profiles, in bytes: thousands of them.
pub const PROFILES_FILE_BYTES: u64 = 1 << 20;

/// Databases of one `pelton tkrzw-server`: as many as tkrzw_server takes.
pub const TKRZW_DATABASES: usize = 200;

/// Longest `--shutdown_wait` of it, one day: more is a mistake of units.
pub const TKRZW_SHUTDOWN_S_MAX: f64 = 24.0 * 60.0 * 60.0;

/// Requests of an iterator that are sent ahead of their responses while records are read from a
/// tkrzw_server: enough to fill the way there and back, few enough that it holds little for them.
pub const TKRZW_STEPS_AHEAD: usize = 256;

/// How often an import notes in its file how far it has come, in milliseconds: what was written
/// since is written again.
pub const IMPORT_NOTE_MS: u64 = 1_000;

/// Bytes of such a file that are read: more than the longest key takes.
pub const IMPORT_NOTE_BYTES: u64 = 1 << 20;

/// Writes with a sync each by which `pelton self-check` measures a device: enough for a median.
pub const CHECK_SYNCS: usize = 64;

/// Bytes of each of these writes: a small group of the log.
pub const CHECK_WRITE_BYTES: usize = 4_096;

/// How long it measures, in milliseconds: a slow device is known after fewer writes.
pub const CHECK_SYNCS_MS: u64 = 2_000;

/// How long it waits for a device that does not come back from a write or a sync, in milliseconds.
pub const CHECK_DEVICE_WAIT_MS: u64 = 10_000;

/// Bytes that it reads of a file of the system: the longest of them has some thousand. Stops a file
/// that is none of the system's, as in a container that somebody else has furnished.
pub const CHECK_FILE_BYTES: u64 = 65_536;

/// Readings of the clock that it compares with each other.
pub const CHECK_CLOCK_READINGS: usize = 1_000;

/// From this median of a sync on it says so, in microseconds: each write with one in flight waits
/// as long. Disks that turn have 8 ms and more, flash memory with or without a battery 20 µs to
/// some ms.
pub const CHECK_SLOW_SYNC_US: u64 = 5_000;

/// From this longest sync on it says so, in microseconds: for as long nothing was written.
pub const CHECK_LONGEST_SYNC_US: u64 = 500_000;

/// With less free room than this it says so, in bytes: the log and a few snapshots of a small
/// server take some hundred megabytes.
pub const CHECK_ROOM_BYTES: u64 = 1 << 30;

/// With less memory than this it says so, in bytes: a server starts in it, but has little room for
/// data.
pub const CHECK_MEMORY_BYTES: u64 = 256 << 20;

/// With fewer hundredths of a CPU than this it says so: beside each other an event loop, the
/// committer and the device need about one.
pub const CHECK_CPU_PERCENT: u64 = 100;

/// The oldest kernel that it takes without a word: 5.4, the oldest that distributions which are
/// still kept up came with.
pub const CHECK_KERNEL: (u32, u32) = (5, 4);

/// Bytes of each output of a program that a scenario starts which are read: a thousand times what
/// they print. A client that prints without end is then stopped by its pipe, and ended in time.
pub const SCENARIO_OUTPUT_BYTES: u64 = 16 << 20;

/// Characters of a line on standard error of such a program that are kept, for the report.
pub const SCENARIO_LINE_CHARACTERS: usize = 500;

/// How often a replica looks whether it is further behind than --max-lag says, in milliseconds: the
/// leader says where it stands as often.
pub const LAG_LOOK_MS: u64 = 1_000;

/// The smallest --memory-limit: below it not even the tables of an empty server would fit.
pub const MEMORY_LIMIT_MIN_BYTES: u64 = 1 << 20;

/// The largest --memory-limit, far more than machines have: a number beyond it is a slip of the
/// hand.
pub const MEMORY_LIMIT_MAX_BYTES: u64 = 1 << 50;

/// The largest window of HTTP/2 (RFC 9113 section 6.9.1: 2^31-1 octets).
pub const WINDOW_MAX_BYTES: u64 = 2_147_483_647;

/// The smallest window that can be chosen: HTTP/2's own initial one. A smaller one would only slow
/// clients down.
pub const WINDOW_MIN_BYTES: u64 = 65_535;

/// The smallest --log-segment: each change to the next file costs a sync or two.
pub const LOG_SEGMENT_MIN_BYTES: u64 = 64 * 1024;

/// The largest --log-segment: it is filled with zeros at the first start, before anything is
/// answered.
pub const LOG_SEGMENT_MAX_BYTES: u64 = 1 << 30;

/// The smallest --disk-cache: a few dozen blocks.
pub const DISK_CACHE_MIN_BYTES: u64 = 1024 * 1024;

/// The largest --disk-cache, more than machines have.
pub const DISK_CACHE_MAX_BYTES: u64 = 1 << 40;

/// The smallest buffer of a socket that can be chosen: Linux makes none that is much smaller.
pub const TCP_BUFFER_MIN_BYTES: u64 = 1 << 12;

/// The largest buffer of a socket that can be chosen: Linux counts it in 31 bits, and doubles it.
pub const TCP_BUFFER_MAX_BYTES: u64 = 1 << 30;

/// The most of --max-streams, --max-connections and --max-connections-per-address: a process has no
/// more descriptors by the limit of Linux (`fs.nr_open`).
pub const COUNT_SETTING_MAX: u64 = 1 << 20;

/// The smallest --max-lag: the leader says where it stands every second, and less would turn health
/// back and forth.
pub const MAX_LAG_MIN_MS: u64 = 1_000;

/// The largest --max-lag, a day: who reads what is older does not ask for health.
pub const MAX_LAG_MAX_MS: u64 = 24 * 3_600 * 1_000;
