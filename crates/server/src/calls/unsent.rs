//! Answers of calls that have ended, and that wait for their peers.

use service::Code;
use service::method::Access;

use super::{CallTable, RunningCall};
use crate::actions::StepContext;
use crate::admission;
use crate::connection::RpcState;
use crate::unsent_answers::UnsentAnswer;

impl CallTable {
    /// Returns whether answers of calls wait that have ended, and whose callers may be revoked.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        self.unsent > 0
    }

    /// Keeps in view what waits on the stream of a call that has ended. What comes behind the end
    /// of its caller is cut off at once.
    #[cold]
    pub(super) fn note_unsent(
        &mut self,
        context: &StepContext,
        rpc: &mut RpcState,
        output: &mut Vec<u8>,
        (running, code): (&RunningCall, Code),
    ) {
        if running.is_refused() {
            return;
        }
        let (identities, now_ms) = (&context.identities, context.clock.store_ms());
        if !running.proved.is_good(identities, now_ms) {
            let status = identities.why_ended(running.proved.key).status();
            return rpc.connection.cut_off(running.stream, output, &status);
        }
        self.unsent += usize::from(rpc.unsent_answers.is_empty());
        let answer = UnsentAnswer {
            stream: running.stream,
            proved: running.proved,
            may_have_changed: may_have_changed(running, code),
        };
        rpc.unsent_answers.push(&rpc.connection, answer);
        self.proofs_end_ms = self.proofs_end_ms.min(running.proved.until_ms);
    }

    /// Cuts off the answers on a connection whose callers are not in the table any more, or prove
    /// nothing any more.
    pub fn cut_off_unsent(
        &mut self,
        context: &StepContext,
        rpc: &mut RpcState,
        output: &mut Vec<u8>,
    ) {
        let (identities, now_ms) = (&context.identities, context.clock.store_ms());
        let (answers, connection) = (&mut rpc.unsent_answers, &mut rpc.connection);
        let orphans = answers.take_orphans(connection, identities, now_ms);
        for answer in orphans {
            let why = identities.why_ended(answer.proved.key);
            connection.cut_off(answer.stream, output, &why.status());
        }
        match answers.proofs_end_ms() {
            Some(end_ms) => self.proofs_end_ms = self.proofs_end_ms.min(end_ms),
            None => self.unsent -= 1,
        }
    }

    /// Cuts off all answers on a connection whose peer takes nothing while the server stops.
    pub fn cut_off_stalled(&mut self, rpc: &mut RpcState, output: &mut Vec<u8>) {
        for answer in rpc.unsent_answers.all(&rpc.connection) {
            let status = match answer.may_have_changed {
                true => admission::stopped_in_commit(),
                false => admission::stopping(),
            };
            (rpc.connection).cut_off(answer.stream, output, &status);
        }
        self.forget_unsent(rpc);
    }

    /// Forgets the answers of a connection if nothing waits on it any more.
    #[inline]
    pub fn settle_unsent(&mut self, rpc: &mut RpcState) {
        if rpc.connection.queued_bytes() == 0 {
            self.forget_unsent(rpc);
        }
    }

    /// Forgets the answers of a connection.
    #[inline]
    pub fn forget_unsent(&mut self, rpc: &mut RpcState) {
        if !rpc.unsent_answers.is_empty() {
            rpc.unsent_answers.clear();
            self.unsent -= 1;
        }
    }
}

/// Returns whether a call that has ended may have changed something.
fn may_have_changed(running: &RunningCall, code: Code) -> bool {
    let changes = match running.method.entry().access {
        Access::Open | Access::AnyRight | Access::Read => false,
        Access::ReadOrWrite | Access::Write | Access::Administer => true,
    };
    changes && (matches!(code, Code::Ok | Code::Unknown) || running.commits > 0)
}
