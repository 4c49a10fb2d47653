//! The steps of a call, and what follows from them.

use bytes::Bytes;
use net::Io;
use service::identities::Unauthenticated;
use service::services::{database_gone, not_read, not_read_elsewhere};
use service::{CallSteps, ResponseMemory, Responses, ServiceCall, Shared, Status};
use store::tree::{FetchedCall, ReadFailure};
use store::{
    CommitOutcome, LogReadError, LogReading, NextCommits, ReadView, ReplicaPiece, ReplicaReading,
};
use wire::StreamKey;

use super::LoopState;
use crate::actions::{CallActions, StepAgain};
use crate::call_id::CallId;
use crate::calls::deadline_exceeded;
use crate::connection::RpcState;
use crate::tasks::TaskProgressNews;
use crate::timers::Timer;

impl LoopState {
    /// Takes one step of the call of a stream, if there is one.
    pub(super) fn step_of(
        &mut self,
        rpc: &mut RpcState,
        io: &mut Io,
        stream: StreamKey,
        step: impl FnOnce(&mut ServiceCall, &Shared, &mut CallActions<'_>),
    ) {
        if let Some(id) = self.calls.of_stream(rpc, stream) {
            self.step(rpc, &mut io.output, id, step);
        }
    }

    /// Takes one step of a call and does what it asked for.
    #[inline]
    pub(super) fn step(
        &mut self,
        rpc: &mut RpcState,
        output: &mut Vec<u8>,
        id: CallId,
        step: impl FnOnce(&mut ServiceCall, &Shared, &mut CallActions<'_>),
    ) -> StepAgain {
        self.step_with(rpc, output, (id, None), step)
    }

    /// The same for a step that a message brings, of which the call may keep large parts if they
    /// are shared.
    #[inline]
    pub(super) fn step_with(
        &mut self,
        rpc: &mut RpcState,
        output: &mut Vec<u8>,
        (id, message): (CallId, Option<&Bytes>),
        step: impl FnOnce(&mut ServiceCall, &Shared, &mut CallActions<'_>),
    ) -> StepAgain {
        let (context, shared) = (&mut self.context, &self.shared);
        let effects = (self.calls).step(context, shared, rpc, output, (id, message), step);
        rpc.add_claim(effects.claimed_bytes, effects.claim_failed);
        if effects.over.is_some() {
            if self.drain.is_some() {
                // It may have been the last one, so that the connection can be closed.
                self.revisit.push(rpc.link.id);
            }
            return effects.again;
        }
        if let Some(at_ns) = effects.wake_at_ns {
            self.timers.set(at_ns, Timer::Wake(id));
        }
        if effects.resumed {
            self.revisit.push(rpc.link.id);
        }
        effects.again
    }

    /// Shows a call its database; `None`: that was dropped meanwhile.
    #[inline]
    pub(super) fn read(
        &mut self,
        rpc: &mut RpcState,
        io: &mut Io,
        id: CallId,
        read_view: Option<&ReadView<'_>>,
        kept: &[u8],
    ) -> StepAgain {
        self.step(
            rpc,
            &mut io.output,
            id,
            |call, shared, step| match read_view {
                Some(read_view) => call.read(read_view, kept, shared, step),
                None => step.finish(database_gone()),
            },
        )
    }

    /// Shows a call what was fetched for it.
    pub(super) fn deliver_fetched(
        &mut self,
        rpc: &mut RpcState,
        io: &mut Io,
        id: CallId,
        fetched: &FetchedCall<'_>,
    ) {
        let reads_from = self.calls.reads_from(id);
        if let Some(database) = reads_from
            && !rpc.connection.has_capacity()
        {
            // Read again when the peer has taken what waits for it: what was fetched is not kept
            // for so long.
            let read = (database, id);
            return rpc.deferred_reads.push(read, fetched.kept(), false);
        }
        match ReadView::fetched(fetched) {
            Ok(read_view) => {
                let again = self.read(rpc, io, id, Some(&read_view), fetched.kept());
                if let (StepAgain::ReadWhenLarge, Some(database)) = (again, reads_from) {
                    let read = (database, id);
                    rpc.deferred_reads.push(read, fetched.kept(), true);
                }
            }
            Err(ReadFailure::Tree(why)) => {
                self.tell_damage(why);
                self.end(rpc, io, id, not_read(why));
            }
            Err(ReadFailure::Remote(why)) => self.end(rpc, io, id, not_read_elsewhere(why)),
        }
    }

    /// Brings a call the outcome of its commit.
    pub(super) fn committed(
        &mut self,
        rpc: &mut RpcState,
        io: &mut Io,
        id: CallId,
        outcome: &CommitOutcome<'_>,
    ) {
        self.calls.note_synced(id, outcome.sync_ns());
        self.calls.commit_is_over(id);
        self.step(rpc, &mut io.output, id, |call, shared, step| {
            call.committed(outcome, shared, step)
        });
        // It goes on, as one that decides anew: nobody is there any more for whom it could.
        if let Some(why) = self.calls.orphaned(id) {
            self.end_unauthenticated(rpc, io, id, why);
        }
    }

    /// Tells a call about its task.
    pub(super) fn task_news(
        &mut self,
        rpc: &mut RpcState,
        io: &mut Io,
        id: CallId,
        news: &TaskProgressNews,
    ) {
        self.step(rpc, &mut io.output, id, |call, shared, step| {
            news.with(|news| call.task(news, shared, step))
        });
    }

    /// Tells a call what was done for its blob.
    pub(super) fn blob_news(
        &mut self,
        rpc: &mut RpcState,
        io: &mut Io,
        id: CallId,
        news: store::blob::BlobNews,
    ) {
        self.step(rpc, &mut io.output, id, |call, shared, step| {
            call.blob(news, shared, step)
        });
    }

    /// Brings a call what was read for it from the log.
    pub(super) fn log_read(
        &mut self,
        rpc: &mut RpcState,
        io: &mut Io,
        id: CallId,
        reading: LogReading,
        commits: Result<NextCommits, LogReadError>,
    ) {
        self.step(rpc, &mut io.output, id, |call, shared, step| {
            call.log_read(reading, commits, shared, step)
        });
    }

    /// Brings a call what was read for its server, which follows this one.
    pub(super) fn replica_read(
        &mut self,
        rpc: &mut RpcState,
        io: &mut Io,
        id: CallId,
        reading: ReplicaReading,
        piece: Result<ReplicaPiece, LogReadError>,
    ) {
        self.step(rpc, &mut io.output, id, |call, shared, step| {
            // It was for this.
            step.reserve(0);
            call.replica_read(reading, piece, shared, step)
        });
    }

    /// The time has come at which a call asked to be woken.
    pub(super) fn wake(&mut self, rpc: &mut RpcState, io: &mut Io, id: CallId) {
        self.step(rpc, &mut io.output, id, |call, shared, step| {
            call.woken(shared, step)
        });
    }

    /// The deadline of a call has passed.
    pub(super) fn deadline_passed(&mut self, rpc: &mut RpcState, io: &mut Io, id: CallId) {
        self.end(rpc, io, id, deadline_exceeded());
    }

    /// The caller was revoked, or has expired.
    pub(super) fn end_orphan(&mut self, rpc: &mut RpcState, io: &mut Io, id: CallId) {
        let key = self.calls.identity(id);
        let why = key.map_or(Unauthenticated::Ended, |key| {
            self.context.identities.why_ended(key)
        });
        self.end_unauthenticated(rpc, io, id, why);
    }

    /// Nobody knows any more whose a call is. What is with the committer is done in any case, and a
    /// call that ends with it is told what became of it. What waits for the peer's windows is
    /// dropped: it is for nobody any more, and the status would wait behind it.
    pub(super) fn end_unauthenticated(
        &mut self,
        rpc: &mut RpcState,
        io: &mut Io,
        id: CallId,
        why: Unauthenticated,
    ) {
        if !self.calls.end_with_commit(id, why) {
            if let Some(stream) = self.calls.stream(id) {
                rpc.connection.drop_unsent(stream);
            }
            self.end(rpc, io, id, why.status());
        }
    }

    /// Ends a call from outside of it.
    pub(super) fn end(&mut self, rpc: &mut RpcState, io: &mut Io, id: CallId, status: Status) {
        self.step(rpc, &mut io.output, id, |_, _, step| step.finish(status));
    }
}
