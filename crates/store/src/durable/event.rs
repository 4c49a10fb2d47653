//! What the durable committer and its threads report.

use crate::snapshot::SnapshotReport;

/// Something that whoever runs the server should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageEvent {
    /// A write or sync of the log has failed: writes are refused from now on.
    Failed(String),
    /// There is no room for more of the log: writes that need some are refused, until there is.
    Full(String),
    /// No more of the log can be made ready, for another reason: writes that need room are refused
    /// until that is over.
    NotReady(String),
    /// There is room again, or what hindered is over.
    RoomAgain,
    /// Segments that nobody needs could not be removed: the folder grows until that is tried again,
    /// with the next ones.
    NotRetired(String),
    /// There is a new snapshot.
    SnapshotMade(SnapshotReport),
    /// A snapshot could not be made: nothing is lost, but the log grows until one can.
    SnapshotFailed(String),
    /// A folder of a database on disk could not be made, or a flush or compaction of one has
    /// failed. Nothing is lost; what failed is tried again.
    TreeFailed(String),
    /// The database on disk that had failed works again.
    TreeWorks(String),
    /// A thread whose work can wait has the priority of those that answer calls.
    NoPriority(String),
    /// The folder's own file was damaged, which was accepted: it was made anew, and an end of the
    /// log that is missing was not noticed.
    FolderRemade,
}
