//! Why a request to an engine elsewhere came to nothing.

/// Why a request to an engine elsewhere came to nothing. Nothing was done, but for
/// [`OutcomeUnknown`](RemoteError::OutcomeUnknown).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// So much is under way already that it was refused before anything was done.
    #[error(
        "so many requests to the storage engine are under way that this one was refused; nothing \
         was done; try again in {retry_ms} ms"
    )]
    Busy {
        /// When the caller should try again, in milliseconds.
        retry_ms: u32,
    },
    /// Too few nodes of the engine have answered, or they have failed at it.
    #[error(
        "too few nodes of the storage engine could answer; nothing was done; the server's log says \
         why; try again"
    )]
    NoQuorum,
    /// A read was not answered in time, or a write was not even sent.
    #[error("the storage engine did not answer in time; nothing was done; try again")]
    TimedOut,
    /// Others changed the same bucket again and again meanwhile.
    #[error(
        "other writes to the same part of the database came first each time; nothing was done; \
         try again, or make the database with more buckets"
    )]
    Contended,
    /// A write was sent, and it is not known what became of it.
    #[error(
        "outcome unknown: the storage engine has not said in time whether the write took effect"
    )]
    OutcomeUnknown,
    /// There is no such database there (any more).
    #[error("there is no such database")]
    UnknownDatabase,
    /// The engine refused it for a reason that stays: its schema is another one, or it lacks a
    /// right. The server's log has its words.
    #[error("the storage engine refuses the request; nothing was done; see the server's log")]
    Refused,
    /// What was read there cannot be an entry.
    #[error("the entry in the storage engine is damaged; see the server's log")]
    Damaged,
}

impl RemoteError {
    /// The labels of all kinds, for counters.
    pub const LABELS: [&str; 8] = [
        "busy",
        "no_quorum",
        "timed_out",
        "contended",
        "outcome_unknown",
        "unknown_database",
        "refused",
        "damaged",
    ];

    /// Returns the place of its label in [`LABELS`](RemoteError::LABELS).
    pub fn index(self) -> usize {
        match self {
            RemoteError::Busy { .. } => 0,
            RemoteError::NoQuorum => 1,
            RemoteError::TimedOut => 2,
            RemoteError::Contended => 3,
            RemoteError::OutcomeUnknown => 4,
            RemoteError::UnknownDatabase => 5,
            RemoteError::Refused => 6,
            RemoteError::Damaged => 7,
        }
    }

    /// Whether nothing was done.
    pub fn is_of_nothing_done(self) -> bool {
        self != RemoteError::OutcomeUnknown
    }
}
