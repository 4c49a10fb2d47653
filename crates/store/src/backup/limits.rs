//! Every bound of backups, with its default and its reason.

/// Bytes copied in one step. Small enough that a caller who goes away is noticed at once, large
/// enough that system calls cost nothing beside the device.
pub const COPY_BYTES: usize = 1024 * 1024;

/// Bytes of a copied file after which it is synced while it is written. More would make the syncs
/// of the server's log wait for it.
pub const SYNC_BYTES: u64 = 8 * 1024 * 1024;

/// Bytes of a file of log in a backup after which the next one is begun: that of a segment. A
/// single group may be larger.
pub const LOG_FILE_BYTES: u64 = wal::limits::SEGMENT_BYTES;

/// Bytes of a manifest that are read: more than [`FILES`] lines have. A bound on what a file that
/// is none costs.
pub const MANIFEST_BYTES: usize = 8 * 1024 * 1024;

/// Files that a backup may consist of: at 64 MiB each, more log than any disk has room for.
pub const FILES: usize = 100_000;

/// Bytes of the text that names the server in a manifest.
pub const SERVER_BYTES: usize = 200;
