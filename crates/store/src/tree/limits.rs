//! Every bound of trees, with its default and its reason.

/// Bytes of a memtable at which it is sealed, by default. The larger, the less often the same entry
/// is written anew by compaction, and the longer a start replays.
pub const MEMTABLE_BYTES: u64 = 64 * 1024 * 1024;

/// Bytes that the memtables of all trees together may have that commits go into; beyond it the
/// largest is sealed, full or not: many databases on disk would else take [`MEMTABLE_BYTES`] each.
pub const ACTIVE_BYTES: u64 = 4 * MEMTABLE_BYTES;

/// And this part of the memory limit, a quarter, at most: many memtables that are far from full
/// would else fill the memory, and no commit that would seal one could be accepted any more.
pub const ACTIVE_SHARE: u64 = 4;

/// With less than this part of the memory limit free, the largest memtable that commits go into is
/// sealed, full or not: it is what can be given back.
pub const TIGHT_SHARE: u64 = 16;

/// If it has more than this part of the memory limit: where other things fill the memory, each few
/// writes would else become a table.
pub const SEALED_WHEN_TIGHT_SHARE: u64 = 64;

/// Sealed memtables of a tree at which its writers are slowed as much as they ever are. Each holds
/// [`MEMTABLE_BYTES`], and the log behind it cannot be shortened.
pub const SEALED_MEMTABLES: usize = 3;

/// Sealed memtables of a tree at which commits that grow it should be refused: the device is then
/// so far behind that slowing does not help, and memory has a bound.
pub const SEALED_MEMTABLES_MAX: usize = 8;

/// Memtables whose bytes the one of a tree may have that has no folder yet, before commits that
/// grow it are refused: it cannot be sealed before there is a folder. Far more than is written
/// while one is made.
pub const UNMADE_MEMTABLES: usize = 2;

/// Runs of tables in the first level from which on writers are slowed: each is looked into by every
/// read.
pub const FIRST_LEVEL_RUNS: usize = 12;

/// Runs of tables in the first level at which writers are slowed as much as they ever are.
pub const FIRST_LEVEL_RUNS_MAX: usize = 24;

/// Longest time for which a group of commits is held back for the device, in nanoseconds.
pub const DELAY_NS: u64 = 20_000_000;

/// Bytes of blocks that are kept in memory for the reads of all trees together, by default.
pub const CACHE_BYTES: u64 = 64 * 1024 * 1024;

/// The share of the memory for blocks that is for rows instead: entries that were read lately,
/// which a loop finds by itself. A hot entry takes a hundred bytes there, and thousands as a block.
pub const ROWS_SHARE: u64 = 4;

/// Bytes of a row, key and value, above which it is read from its block: large ones would drive
/// many small ones out.
pub const ROW_BYTES: usize = 1_024;

/// Bytes for which there is one set of four places among the rows: rows of a usual size then fill
/// both memory and places.
pub const ROW_SET_BYTES: usize = 1_024;

/// About what an allocator takes for a row beside its bytes.
pub const ROW_OVERHEAD_BYTES: usize = 32;

/// Files of tables that all trees together keep open, by default. Others are opened when they are
/// read.
pub const OPEN_FILES: usize = 256;

/// Bytes of a table at which compaction begins the next one.
pub const TABLE_BYTES: u64 = 64 * 1024 * 1024;

/// Longest key of a tree. One less than elsewhere: a key of zeros alone is stored with a zero more,
/// and the engine's keys have 65 535 bytes.
pub const KEY_BYTES: usize = crate::limits::KEY_BYTES - 1;

/// Times that flushes and compactions may change the set of tables between two commits. The numbers
/// between those of two commits are these changes'; compaction waits for the next commit when they
/// are used up, and some are left for flushes.
pub const CHANGES_PER_COMMIT: u64 = 900;

/// How long to wait before a flush or compaction is tried again after a failure, in milliseconds.
/// Each attempt on a full disk writes until there is no room, and removes what it wrote.
pub const RETRY_MS: u64 = 1_000;

/// Rows of a database on disk that the sweep walks in one step: some milliseconds of a reader.
pub const SWEEP_ROWS: u32 = 4_096;

/// Bytes of expired entries that one commit of the sweep removes, unless a single one has more:
/// they are read before it is decided, and a commit that must know more than
/// [`READ_BEFORE_BYTES`](crate::limits::READ_BEFORE_BYTES) is refused whole. As many have room in
/// any case, beside others.
pub const SWEEP_COMMIT_BYTES: usize = 4 * 1024 * 1024;

/// How long the sweep of databases on disk rests after each step, in milliseconds, so that it takes
/// a few hundredths of a core, and leaves the device to others.
pub const SWEEP_PAUSE_MS: u64 = 50;

/// How long it rests after it has been through with all of them, in milliseconds.
pub const SWEEP_ROUND_MS: u64 = 60_000;

/// Bytes of keys and values that one run of a fetch brings, unless one call alone plan more: what
/// waits for a loop has a bound, and answers that are ready need not wait for many large ones
/// behind them.
pub const FETCHED_BYTES: usize = 4 << 20;

/// Bytes of a table that are read at once where a start reads it as a whole, to compare its
/// checksum.
pub const CHECK_BYTES: usize = 1 << 20;

/// Values below this are copied when they are kept until a commit is decided, in bytes: they are
/// parts of blocks of a few KiB, which would be kept with them. The block of a larger one is mostly
/// that value.
pub const DETACHED_BYTES: usize = 16 << 10;

/// Entries that one step of a walk passes over: removed and overwritten ones, and those that its
/// view does not see. Some milliseconds of a reader; the next step goes on behind them. Stops scans
/// and counts of what was deleted from holding up readers and processors.
pub const WALK_PASSED_OVER: u32 = 8_192;

/// Bytes of keys and values that one step of a walk reads: as much as one fetch brings
/// ([`FETCHED_BYTES`]). The last entry may have more. Stops counts of large values, and
/// scans for their keys, from reading gigabytes in one step.
pub const WALK_BYTES: usize = FETCHED_BYTES;

/// Bytes of a block of a table from which on a read of it is charged before it begins. Sixteen
/// readers hold at most 1 MiB of smaller ones, and databases of small values need no look into the
/// index beforehand.
pub const LARGE_BLOCK_BYTES: usize = 64 << 10;

/// Tables beyond twice those of a tree whose largest block is remembered, some 50 bytes each,
/// before those that are gone are forgotten.
pub const KNOWN_BLOCK_SIZES: usize = 64;
