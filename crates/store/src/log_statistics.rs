//! Figures of the log, for those who ask.

use crate::durations::Durations;

/// What the log takes and what was done with it. All but the counts since the start are as they are
/// now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStatistics {
    /// Bytes on the device of the segments that hold groups, whether full or not. Those made ready
    /// for later are not counted.
    pub segment_bytes: u64,
    /// How many segments these are.
    pub segments: u64,
    /// The last sequence written to the log.
    pub written_sequence: u64,
    /// The last sequence known to be on the device.
    pub durable_sequence: u64,
    /// Groups written since the start.
    pub groups: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of these groups, with what fills them up.
    pub group_bytes: u64,
    /// Syncs of a segment since the start.
    pub syncs: u64,
    /// How long those of them took for which writes had to wait.
    pub sync_durations: Durations,
    /// The newest snapshot has everything up to this sequence; 0: there is none.
    pub snapshot_sequence: u64,
    /// Bytes of the newest snapshot.
    pub snapshot_bytes: u64,
    /// Snapshots made since the start.
    pub snapshots_made: u64,
    /// Attempts to make one since the start that failed.
    pub snapshots_failed: u64,
    /// There is no room for more of the log: commits that grow a database are refused.
    pub is_full: bool,
    /// No more of the log can be made ready for another reason, such as an error of the device or a
    /// want of file descriptors: commits that grow a database are refused.
    pub is_not_ready: bool,
    /// A write or sync has failed: all commits to databases with a log are refused until a restart.
    pub has_failed: bool,
}
