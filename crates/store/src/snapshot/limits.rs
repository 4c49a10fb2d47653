//! Every bound of snapshots, with its default and its reason.

/// Entries of one page. A page is read under one read lock, with up to 2 µs an entry where nothing
/// is in the processor's caches and others use them: no step may be longer than 200 µs.
pub const SLICE_ROWS: u32 = 64;

/// Bytes of keys and values after which a page ends. Copying them takes a few dozen microseconds of
/// the 200.
pub const SLICE_BYTES: usize = 64 * 1024;

/// Bytes that are gathered before they are written. Small writes cost a system call each, large
/// ones memory.
pub const WRITE_BYTES: usize = 1024 * 1024;

/// Bytes after which the file is synced while it is written. More would make the syncs of the log
/// wait for it.
pub const SYNC_BYTES: u64 = 8 * 1024 * 1024;

/// The rest after some work, in hundredths of the time that the work took: with 100 it takes half
/// of a core at most.
pub const REST_SHARE: u64 = 100;

/// Work after which there is a rest, in nanoseconds. To sleep takes some 60 µs more than was asked
/// for.
pub const REST_AFTER_NS: u64 = 500_000;

/// The longest rest, in nanoseconds. Work that waited for the device was a rest for the processor.
pub const REST_NS_MAX: u64 = 2_000_000;

/// Segments of the log that must have been written since the last snapshot before another one is
/// made by itself. Less would free no segment.
pub const FLOOR_SEGMENTS: u64 = 2;

/// What a byte of a large value counts less than another, where bytes of log are compared with
/// [`FLOOR_SEGMENTS`]. The bound is for the time that a start takes to replay them, which is spent
/// on records: a large value costs no more than to copy it. With all bytes counted alike, large
/// values that are written over and over had a snapshot as long as the log written beside it.
pub const LARGE_BYTES_LESS: u64 = 16;

/// Large values count like others unless the disk has so many times the log free that is then kept.
pub const LARGE_LOG_ROOM_TIMES: u64 = 2;

/// Bytes of keys and values up to which a clean stop makes a snapshot, if the log since the last
/// one is larger. So much is written in some tenths of a second.
pub const STOP_BYTES: u64 = 64 * 1024 * 1024;

/// Bytes of log up to which a clean stop makes no snapshot: so little is replayed in some
/// milliseconds.
pub const STOP_LOG_BYTES: u64 = 1024 * 1024;

/// How long to wait before another attempt after one that failed, in milliseconds: long enough not
/// to fill a log with complaints, short enough that the log does not grow much meanwhile.
pub const RETRY_MS: u64 = 30_000;

/// Bytes of the body of a page. One entry of the largest key and value, behind a full slice of
/// smaller ones.
pub const BODY_BYTES_MAX: usize = (1 << 30) + (1 << 20);

/// Bytes read at a time when a snapshot is read.
pub const READ_BYTES: usize = 1024 * 1024;

/// Snapshots that are listed in one folder. There are two at most, unless old ones could not be
/// removed; a bound on what a folder full of other files makes a start do.
pub const SNAPSHOTS: usize = 10_000;
