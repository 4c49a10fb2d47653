//! What a manifest says of a file.

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// Its name, without a path.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// CRC32C of all of it.
    pub checksum: u32,
}
