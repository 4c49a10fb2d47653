//! Answers of calls that have ended, as long as the windows of their peer keep them from going out:
//! their caller may be revoked meanwhile.

use service::identities::IdentityTable;
use wire::{Connection, StreamKey};

use crate::peer_identity::Proved;

/// The answers of one connection that wait. There are at most as many as it has streams; what has
/// gone out is looked for when there is no room for another one.
#[derive(Default)]
pub(crate) struct UnsentAnswers {
    waiting: Vec<(StreamKey, Proved)>,
}

impl UnsentAnswers {
    /// Adds the answer that waits on a stream, and whose it is.
    pub fn push(&mut self, connection: &Connection, answer: (StreamKey, Proved)) {
        if self.waiting.len() == self.waiting.capacity() {
            self.forget_sent(connection);
        }
        self.waiting.push(answer);
    }

    /// Returns whether none waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Forgets all: nothing waits on the connection.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Takes out the streams of those whose callers are not in the table any more, or prove nothing
    /// any more.
    pub fn take_orphans(
        &mut self,
        connection: &Connection,
        identities: &IdentityTable,
        now_ms: u64,
    ) -> Vec<StreamKey> {
        self.forget_sent(connection);
        let is_orphan = |proved: &Proved| !proved.is_good(identities, now_ms);
        let orphans = (self.waiting).extract_if(.., |(_, proved)| is_orphan(proved));
        orphans.map(|(stream, _)| stream).collect()
    }

    /// Returns the streams of all.
    pub fn streams(&mut self, connection: &Connection) -> Vec<StreamKey> {
        self.forget_sent(connection);
        self.waiting.iter().map(|&(stream, _)| stream).collect()
    }

    /// Returns when the proof of one of them ends next, in milliseconds since 1970.
    pub fn proofs_end_ms(&self) -> Option<u64> {
        let ends = self.waiting.iter().map(|(_, proved)| proved.until_ms);
        ends.min()
    }

    fn forget_sent(&mut self, connection: &Connection) {
        (self.waiting).retain(|&(stream, _)| connection.has_unsent(stream));
    }
}
