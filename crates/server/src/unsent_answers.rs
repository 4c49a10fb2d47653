//! Answers of calls that have ended, as long as the windows of their peer keep them from going out:
//! their caller may be revoked meanwhile, and a drain does not wait for who takes nothing.

use service::identities::IdentityTable;
use wire::StreamKey;

use crate::peer_identity::Proved;
use crate::rpc_connection::RpcConnection;

/// An answer that waits.
#[derive(Clone, Copy)]
pub(crate) struct UnsentAnswer {
    /// The stream of its call.
    pub stream: StreamKey,
    /// Whose it is.
    pub proved: Proved,
    /// Its call may have changed something: whoever does not learn of it must not be invited to
    /// repeat the call.
    pub may_have_changed: bool,
}

/// The answers of one connection that wait. There are at most as many as it has streams; what has
/// gone out is looked for when there is no room for another one.
#[derive(Default)]
pub(crate) struct UnsentAnswers {
    waiting: Vec<UnsentAnswer>,
}

impl UnsentAnswers {
    /// Adds an answer that waits.
    pub fn push(&mut self, connection: &RpcConnection, answer: UnsentAnswer) {
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

    /// Takes out those whose callers are not in the table any more, or prove nothing
    /// any more.
    pub fn take_orphans(
        &mut self,
        connection: &RpcConnection,
        identities: &IdentityTable,
        now_ms: u64,
    ) -> Vec<UnsentAnswer> {
        self.forget_sent(connection);
        let is_orphan = |answer: &mut UnsentAnswer| !answer.proved.is_good(identities, now_ms);
        self.waiting.extract_if(.., is_orphan).collect()
    }

    /// Returns all.
    pub fn all(&mut self, connection: &RpcConnection) -> Vec<UnsentAnswer> {
        self.forget_sent(connection);
        self.waiting.clone()
    }

    /// Returns when the proof of one of them ends next, in milliseconds since 1970.
    pub fn proofs_end_ms(&self) -> Option<u64> {
        let ends = self.waiting.iter().map(|answer| answer.proved.until_ms);
        ends.min()
    }

    fn forget_sent(&mut self, connection: &RpcConnection) {
        (self.waiting).retain(|answer| connection.has_unsent(answer.stream));
    }
}
