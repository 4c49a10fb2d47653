//! Every bound of databases on an engine elsewhere, with its default and its reason.

/// Buckets of a database whose keys are in the order of their hashes, unless it is made with
/// another number: enough that the writes of a hot database, which contend bucket by bucket, seldom
/// meet.
pub const BUCKETS: u16 = 1_024;

/// Most buckets of such a database. A walk over all keys visits each of them.
pub const MOST_BUCKETS: u16 = 16_384;

/// Buckets of a database whose keys are in order, unless it is made with another number.
pub const MERGED_BUCKETS: u16 = 16;

/// Most buckets of such a database: a page of a scan reads from all of them.
pub const MOST_MERGED_BUCKETS: u16 = 64;

/// Longest key, in bytes: engines number the bytes of the key of a row with 16 bits, and have some
/// of their own there.
pub const KEY_BYTES: usize = 65_000;

/// Longest value, in bytes: what the default client of every language accepts, and engines take as
/// one cell.
pub const VALUE_BYTES: usize = 4_000_000;

/// Bytes of keys and values of one commit that takes effect as a whole: an engine takes it as one
/// batch.
pub const COMMIT_BYTES: usize = 8 * 1024 * 1024;

/// Requests under way, of all loops together. Beyond it a request is refused at once: what would
/// wait behind so many would not be answered in time.
pub const REQUESTS: usize = 16_384;

/// Part of the memory limit that requests under way may hold, with what was read for them.
pub const ROOM_SHARE: u64 = 8;

/// Bytes that requests under way may hold where the memory limit says nothing, or much.
pub const MOST_ROOM_BYTES: usize = 1024 * 1024 * 1024;

/// Bytes that they may hold where there is little memory: some of the largest requests fit.
pub const LEAST_ROOM_BYTES: usize = 32 * 1024 * 1024;

/// What each request counts for beside the bytes of its keys and values.
pub const REQUEST_BYTES: usize = 512;

/// What a read counts for, for each key that it looks up, before its value is known. What it brings
/// beyond that is charged when it has come.
pub const READ_BYTES: usize = 2_048;

/// Parts of one commit that are under way at a time: an independent commit has one for each of its
/// keys.
pub const PARTS_AT_ONCE: usize = 64;

/// How often the bytes of a commit are in memory while it is under way: as the part that is
/// decided, as the rows that are written, and as the message to a node.
pub const COMMIT_COPIES: usize = 3;

/// How long the engine has for a request before it counts as not answered, in milliseconds: for all
/// parts of a commit together. A call that ends before, by its deadline or otherwise, takes back
/// what was not begun for it.
pub const TIMEOUT_MS: u64 = 10_000;

/// When a caller should try again whose request was refused for want of room, in milliseconds.
pub const RETRY_MS: u32 = 100;
