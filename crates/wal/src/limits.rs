//! Every bound of the log, with its default and its reason.

/// Bytes of a segment. Large enough that making the next one ready is rare, small enough that
/// removing what is no longer needed frees space soon.
pub const SEGMENT_BYTES: u64 = 64 * 1024 * 1024;

/// Bytes of the first segment of a new log, where segments are not smaller anyway: the first start
/// waits until it is full of zeros, for a few milliseconds, and the next one is made ready while
/// the server answers.
pub const FIRST_SEGMENT_BYTES: u64 = 1024 * 1024;

/// Bytes of zeros that are written to a new segment before they are synced. The device writes them
/// in a few milliseconds, which is what a sync of the log has to wait longer; smaller pieces would
/// cost a sync of the file's size each.
pub const FILL_SYNC_BYTES: u64 = 4 * 1024 * 1024;

/// Bytes of the smallest segment that can be asked for: an opening group and one with a record must
/// fit.
pub const SEGMENT_BYTES_MIN: u64 = 8 * 1024;

/// Segments that are kept to be used again, also where few are needed: one is needed at a time.
/// They cost their room on the disk.
pub const SPARE_SEGMENTS: usize = 2;

/// Segments that are kept to be used again where as many were needed since some were last freed: a
/// snapshot frees many at once, and if writing goes on as before, as many new ones would have to be
/// filled with zeros, which takes as long as writing them. Used ones also have their pages in
/// memory still: to write into those takes a tenth of the time that new pages take. The disk had
/// the room for them a moment ago; 4 GiB bound what it never gets back.
pub const SPARE_SEGMENTS_MAX: usize = 64;

/// More than [`SPARE_SEGMENTS`] are kept only while the disk has so many times their room free
/// beside them.
pub const SPARE_ROOM_TIMES: u64 = 2;

/// From this many bytes on a group should be written before more is added: larger ones gain
/// nothing, and everybody in it waits for all of it. A single commit may be larger.
pub const GROUP_BYTES: usize = 4 * 1024 * 1024;

/// From this many bytes on a value is written to the log from where it lies, with a write of its
/// own, instead of being copied into its group. A shorter one costs less to copy than to write by
/// itself.
pub const LARGE_VALUE_BYTES: usize = 64 * 1024;

/// Bytes of capacity that a group buffer keeps for its next use. One huge commit must not hold its
/// memory for ever.
pub const KEPT_BYTES: usize = 2 * GROUP_BYTES;

/// How far the sequence counter may run past the last sequence that is durable in the log. Each
/// start skips as many: at one start a second, 64 bits last for half a million years.
pub const SEQUENCE_RESERVE: u64 = 1 << 20;

/// Bytes read at a time when a log is read.
pub const READ_BYTES: usize = 1024 * 1024;

/// Segments in one log. More than any disk has room for; a bound on what a folder full of other
/// files makes a start do.
pub const SEGMENTS: usize = 1_000_000;

/// Sequences that are passed over where the newest files of a log are gone, and given up: more than
/// can have been in them and in what was not logged meanwhile.
pub const LOST_SEQUENCES: u64 = 1 << 32;

/// Segments that are kept for those who read the log may take so much of the disk that so many
/// times as much is free beside them: the next snapshot and the log until it is made come first.
pub const KEPT_ROOM_TIMES: u64 = 2;

/// Bytes of the system's table of locks that are looked through for who has that of a folder: some
/// ten thousand locks.
pub const LOCKS_BYTES_MAX: u64 = 1 << 20;
