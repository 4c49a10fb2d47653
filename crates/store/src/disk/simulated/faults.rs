//! What can go wrong on the simulated disk.

/// What kind of step was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// [`DiskFile::write_at`].
    Write,
    /// [`DiskFile::set_len`].
    SetLen,
    /// [`DiskFile::sync`].
    Sync,
    /// [`Disk::create`], [`Disk::rename`] or [`Disk::remove`].
    Folder,
    /// [`Disk::sync_folder`].
    SyncFolder,
}

/// What goes wrong in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An error. A write may have been done in part; of what a sync should have made durable, any part is, and the
    /// rest counts as clean, so that a later sync passes over it.
    Error,
    /// A write writes less than it was given, and says so.
    Short,
    /// A write finds no room. So may a sync, where room is looked for late; it leaves what an error leaves.
    Full,
    /// The power goes in the midst of the step; it and all that follow fail until
    /// [`lose_power`](SimulatedDisk::lose_power).
    PowerLoss,
}

/// How often each fault happened: a test can assert that it tested something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskFaultCounts {
    /// Losses of power.
    pub power_losses: u64,
    /// Deaths of the process alone.
    pub kills: u64,
    /// Files of which a loss of power took all that was written and not synced.
    pub lost_writes: u64,
    /// Files of which a loss of power took some blocks that were written and not synced, and left others, or left an
    /// older content than the last.
    pub torn_writes: u64,
    /// Writes that failed, perhaps done in part.
    pub failed_writes: u64,
    /// Writes that took a part, and said so.
    pub short_writes: u64,
    /// Writes that found no room.
    pub full_writes: u64,
    /// Syncs that failed.
    pub failed_syncs: u64,
    /// Changes of names that failed, and syncs of folders.
    pub failed_changes: u64,
}

impl DiskFaultCounts {
    /// Adds those of another disk.
    pub fn add(&mut self, other: &DiskFaultCounts) {
        self.power_losses += other.power_losses;
        self.kills += other.kills;
        self.lost_writes += other.lost_writes;
        self.torn_writes += other.torn_writes;
        self.failed_writes += other.failed_writes;
        self.short_writes += other.short_writes;
        self.full_writes += other.full_writes;
        self.failed_syncs += other.failed_syncs;
        self.failed_changes += other.failed_changes;
    }
}
