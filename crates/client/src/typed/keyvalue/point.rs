//! Points in the history of a server.

/// A point in the history of a server: everything up to the commit `sequence` has been seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResumePoint {
    /// Names the history: 8 bytes to compare as a whole. In a request, empty: the present history
    /// of the server, whichever that is.
    pub history_id: Vec<u8>,
    /// The commit.
    pub sequence: u64,
}
