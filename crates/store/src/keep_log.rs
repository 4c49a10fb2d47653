//! How much of the log is kept.

/// How much of the log is kept that no start needs any more, for those who watch: the newest of it,
/// as long as both hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepLog {
    /// At most so many bytes.
    pub bytes: u64,
    /// Only what was written within so many milliseconds; `None`: however old it is.
    pub age_ms: Option<u64>,
}

impl KeepLog {
    /// Nothing.
    pub const NONE: KeepLog = KeepLog {
        bytes: 0,
        age_ms: None,
    };
}
