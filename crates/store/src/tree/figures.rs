//! What is told of a tree.

/// Why what is in memory cannot be brought to the device. It is tried again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It can.
    None,
    /// There is no room on the device.
    NoRoom,
    /// The folder could not be made, or a file not written.
    Failed,
}

impl Trouble {
    pub(super) fn of(number: u8) -> Trouble {
        let all = [Trouble::None, Trouble::NoRoom, Trouble::Failed];
        let found = all.into_iter().find(|trouble| *trouble as u8 == number);
        found.unwrap_or(Trouble::None)
    }
}

/// Figures of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeStatistics {
    /// Entries, by estimate: overwritten ones that are not yet compacted away count, deleted ones
    /// too.
    pub entries: u64,
    /// Bytes of tables on the device.
    pub disk_bytes: u64,
    /// Bytes of memtables, with those that are kept although they are on the device too.
    pub memtable_bytes: u64,
    /// Memtables that wait to be flushed.
    pub sealed_memtables: usize,
    /// Tables on the device.
    pub tables: usize,
    /// Runs of tables in the first level: that many may be looked into for one read.
    pub first_level_runs: usize,
}
