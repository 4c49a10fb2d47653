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
    /// [`Disk::create`].
    Create,
    /// [`Disk::rename`].
    Rename,
    /// [`Disk::remove`].
    Remove,
    /// [`Disk::sync_folder`].
    SyncFolder,
    /// [`Disk::open`] or [`Disk::lock`]: an access.
    Open,
    /// [`DiskFile::read_at`]: an access.
    Read,
    /// [`Disk::list`]: an access.
    List,
}

impl Step {
    /// Whether it changes nothing on the disk. Accesses have numbers of their own.
    pub fn is_access(self) -> bool {
        matches!(self, Step::Open | Step::Read | Step::List)
    }

    /// Whether it needs a file descriptor that it did not have before.
    pub(super) fn needs_descriptor(self) -> bool {
        matches!(self, Step::Create | Step::Open | Step::List)
    }

    /// Whether it goes by a name, so that permissions count. What is open stays open without them.
    pub(super) fn needs_permission(self) -> bool {
        self.needs_descriptor() || matches!(self, Step::Rename | Step::Remove)
    }
}

/// What goes wrong in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An error. A write may have been done in part; of what a sync should have made durable, any
    /// part is, and the rest counts as clean, so that a later sync passes over it.
    Error,
    /// A write or a read does less than it was asked for, and says so.
    Short,
    /// A write finds no room. So may a sync, where room is looked for late; it leaves what an error
    /// leaves.
    Full,
    /// A step that needs a file descriptor gets none (EMFILE), and does nothing. Others go well.
    NoDescriptor,
    /// A step that goes by a name is not permitted (EACCES), and does nothing. Others go well.
    Denied,
    /// The power goes in the midst of the step; it and all that follow fail until
    /// [`lose_power`](SimulatedDisk::lose_power).
    PowerLoss,
}

macro_rules! counts {
    ($($(#[$about:meta])+ $name:ident,)*) => {
        /// How often each fault happened: a test can assert that it tested something.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct DiskFaultCounts {
            $($(#[$about])+ pub $name: u64,)*
        }

        impl DiskFaultCounts {
            /// Adds those of another disk.
            pub fn add(&mut self, other: &DiskFaultCounts) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counts! {
    /// Losses of power.
    power_losses,
    /// Deaths of the process alone.
    kills,
    /// Files of which a loss of power took all that was written and not synced.
    lost_writes,
    /// Files of which a loss of power took some blocks that were written and not synced, and left
    /// others, or left an older content than the last.
    torn_writes,
    /// Writes that failed, perhaps done in part.
    failed_writes,
    /// Writes that took a part, and said so.
    short_writes,
    /// Writes that found no room.
    full_writes,
    /// Changes of a file's length that failed.
    failed_set_lens,
    /// Syncs of files that failed.
    failed_syncs,
    /// Files that could not be made, but for want of descriptors.
    failed_creates,
    /// Files that could not be renamed.
    failed_renames,
    /// Files that could not be removed.
    failed_removes,
    /// Syncs of folders that failed.
    failed_folder_syncs,
    /// Files that could not be opened, but for want of descriptors.
    failed_opens,
    /// Reads that failed.
    failed_reads,
    /// Reads that returned a part of what there is.
    short_reads,
    /// Folders that could not be listed, but for want of descriptors.
    failed_lists,
    /// Files that were not made or opened, and folders that were not listed, for want of
    /// descriptors.
    no_descriptors,
    /// Files that were not made, opened, renamed or removed, and folders that were not listed, for
    /// want of permission.
    denied,
}

impl DiskFaultCounts {
    /// Changes of names that failed, with syncs of folders.
    pub fn failed_changes(&self) -> u64 {
        self.failed_creates + self.failed_renames + self.failed_removes + self.failed_folder_syncs
    }

    /// Notes a fault in a step.
    pub(super) fn note(&mut self, step: Step, fault: Fault) {
        let count = match (step, fault) {
            (_, Fault::PowerLoss) => return,
            (_, Fault::NoDescriptor) if step.needs_descriptor() => &mut self.no_descriptors,
            (_, Fault::NoDescriptor) => return,
            (_, Fault::Denied) if step.needs_permission() => &mut self.denied,
            (_, Fault::Denied) => return,
            (Step::Write, Fault::Error) => &mut self.failed_writes,
            (Step::Write, Fault::Short) => &mut self.short_writes,
            (Step::Write, Fault::Full) => &mut self.full_writes,
            (Step::Read, Fault::Short) => &mut self.short_reads,
            (_, Fault::Short) => return,
            (Step::SetLen, _) => &mut self.failed_set_lens,
            (Step::Sync, _) => &mut self.failed_syncs,
            (Step::Create, _) => &mut self.failed_creates,
            (Step::Rename, _) => &mut self.failed_renames,
            (Step::Remove, _) => &mut self.failed_removes,
            (Step::SyncFolder, _) => &mut self.failed_folder_syncs,
            (Step::Open, _) => &mut self.failed_opens,
            (Step::Read, _) => &mut self.failed_reads,
            (Step::List, _) => &mut self.failed_lists,
        };
        *count += 1;
    }
}
