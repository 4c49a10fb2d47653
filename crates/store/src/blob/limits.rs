//! Every bound of blobs, with its default and its reason.

/// Longest name of a blob, in bytes.
pub const NAME_BYTES: usize = 1024;

/// Longest id of an upload, in bytes: room for a UUID in any form.
pub const UPLOAD_ID_BYTES: usize = 64;

/// Longest content type, in bytes: longer ones are not in use.
pub const CONTENT_TYPE_BYTES: usize = 255;

/// Bytes of one chunk of an upload or download: what the default client of every language can send
/// and receive, and what the largest request has room for.
pub const CHUNK_BYTES: usize = 4 << 20;

/// Bytes of content under one checksum in the file. Less costs more checksums, more makes short
/// reads long.
pub const BLOCK_BYTES: usize = 64 * 1024;

/// Blocks whose checksums stand together in one page of the file.
pub const GROUP_BLOCKS: usize = 1024;

/// Bytes of an upload after which what came is made durable, while more comes. Larger syncs would
/// make those of the log wait for them.
pub const SYNC_BYTES: u64 = 8 << 20;

/// What of an upload may be written and not durable, in times of [`SYNC_BYTES`]; beyond it the
/// upload waits for the device.
pub const UNSYNCED_SYNCS: u64 = 4;

/// How long an upload that nobody continues is kept by default, in milliseconds: a day, so that
/// whoever was cut off in the evening can go on in the morning.
pub const ABANDONED_MS: u64 = 24 * 60 * 60 * 1000;

/// How often abandoned uploads, and blobs of databases that were dropped, are looked for, in
/// milliseconds.
pub const COLLECT_MS: u64 = 60_000;

/// Uploads of all databases that may be unfinished at a time. Each keeps a file; one that nobody is
/// connected to has a few hundred bytes of memory. Beyond it the oldest idle one of the address
/// with most makes room for the next one; an open one is idle after [`STALLED_UPLOAD_MS`], or
/// [`STALLED_FOR_NEWCOMER_MS`].
pub const UPLOADS: usize = 10_000;

/// Uploads of one database that may be unfinished at a time, with the same rule: more than clients
/// have at work, and what `pelton blob uploads` lists in one answer.
pub const UPLOADS_PER_DATABASE: usize = 1_000;

/// The share of the places that others leave ([`UPLOADS_PER_DATABASE`], and [`OPEN_UPLOADS`] of all
/// databases) that one address may have open at a time: a half. So there is always something left
/// for the next, and an address whose calls bring a byte now and then, and are never idle, leaves
/// places to others.
pub const UPLOADS_PEER_SHARE: usize = 2;

/// After how long an open upload that brings less than [`UPLOAD_PACE_BYTES`] may make room for
/// others, in milliseconds, if its address has most of them: longer than any network stands still
/// that comes back.
pub const STALLED_UPLOAD_MS: u64 = 60_000;

/// The same where the place is for an address that has none: it should not wait for those that have
/// many, and 6 KiB a second is slow for an upload that keeps others out.
pub const STALLED_FOR_NEWCOMER_MS: u64 = 10_000;

/// What an open upload must bring in that time so that it counts as going on, in bytes: a KiB a
/// second. A byte now and then is no reason to keep a place that others need.
pub const UPLOAD_PACE_BYTES: u64 = 64 << 10;

/// Bytes of one database that uploads without a call may keep, beside the largest of them: some
/// large files that are to be gone on with. Beyond it the oldest one of the address with most goes.
pub const IDLE_UPLOAD_BYTES: u64 = 64 << 30;

/// Uploads that may be open at a time, each with a file descriptor; less where the process may open
/// fewer files.
pub const OPEN_UPLOADS: usize = 1_024;

/// Contents of blobs that may be open for reading at a time, with the same rule. Downloads of one
/// blob share one, and one from which nobody reads at this moment is closed for another: it bounds
/// descriptors, not downloads.
pub const OPEN_CONTENTS: usize = 1_024;

/// How often room is looked for, where others take what was made free.
pub const ROOM_ATTEMPTS: usize = 4;

/// What blobs leave free of a disk, for the log, in segments (`--log-segment`): some, so that
/// writing goes on, and a snapshot can make room.
pub const FREE_SEGMENTS: u64 = 4;

/// Descriptions that are removed in one commit when their database was dropped.
pub const SWEEP_BLOBS: usize = 64;

/// Bytes of content written at a time. For longer writes Linux takes larger pages, which cost more
/// where memory is in pieces or a virtual machine has to get it from its host first: 4 MiB at once
/// took twice the time of the system.
pub const WRITE_BYTES: usize = 256 * 1024;

/// Bytes read at a time where a whole content is checked.
pub const CHECK_BYTES: usize = 1 << 20;

/// Pieces of contents whose memory is used again, of all downloads together: what some that run at
/// full speed have under way. With [`READ_BUFFER_BYTES`] it is at most 20 MiB.
pub const READ_BUFFERS: usize = 64;

/// The largest piece whose memory is used again: what is read at a time by default, with a block
/// because it may begin within one.
pub const READ_BUFFER_BYTES: usize = 256 * 1024 + BLOCK_BYTES;

/// Complete contents without a description that a start sets aside without being told to, beside
/// those of which the log tells why: what a crash in the midst of a backup may leave, which keeps
/// what is deleted meanwhile.
pub const ORPHANS: u64 = 1000;

/// A content that was completed so shortly before the end of the log, in milliseconds, may have
/// been about to get its description.
pub const DESCRIBING_MS: u64 = 60 * 60 * 1000;

/// Names of blobs without content that are told at a start.
pub const MISSING_TOLD: usize = 10;

/// Contents that are damaged or missing of which a server's log tells, once for each: more are told
/// to those who read them.
pub const CONTENTS_TOLD: usize = 1_000;
