//! Places in the history of a server.

/// A commit of this server, by the history that its sequence belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HistoryPoint {
    history_id: [u8; 8],
    sequence: u64,
}

impl HistoryPoint {
    /// Names a commit; the history 0 is one that is not known.
    pub(crate) fn new(history_id: u64, sequence: u64) -> HistoryPoint {
        HistoryPoint {
            history_id: api::history_id_bytes(history_id),
            sequence,
        }
    }

    /// Returns the name of the history, as responses carry it: nothing if it is not known.
    pub(crate) fn history_id(&self) -> &[u8] {
        match api::history_id(&self.history_id) {
            0 => &[],
            _ => &self.history_id,
        }
    }

    /// Returns the sequence of the commit.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }
}
