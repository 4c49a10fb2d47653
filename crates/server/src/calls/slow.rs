//! What the table of calls notes for the slow-call log.

use super::CallTable;
use crate::actions::StepContext;
use crate::call_id::CallId;
use crate::connection::RpcState;
use crate::slow_call_record::SlowCallLog;
use crate::slow_calls::{SlowCallEnd, SlowCallSink, SlowCalls, WaitCause};

impl CallTable {
    /// Notes that the request of a call is taken up, if somebody wants to know.
    #[inline]
    pub fn note_request(
        &mut self,
        context: &StepContext,
        rpc: &RpcState,
        id: CallId,
        message: &[u8],
    ) {
        if let Some(slow) = &mut self.slow
            && let Some(running) = self.calls.get(id)
        {
            let request = (running.method, message);
            slow.request(id.index, request, rpc.received_ns, context.clock.read_ns());
        }
    }

    /// Notes that a call waits for a read of a database on disk.
    #[inline]
    pub fn note_reading(&mut self, context: &StepContext, id: CallId) {
        if let Some(slow) = &mut self.slow {
            slow.waits(id.index, WaitCause::Read, context.clock.read_ns());
        }
    }

    /// Notes that the commit of a call has its outcome.
    #[inline]
    pub fn note_synced(&mut self, id: CallId, sync_ns: u64) {
        if let Some(slow) = &mut self.slow
            && self.calls.get(id).is_some()
        {
            slow.synced(id.index, sync_ns);
        }
    }

    /// Notes what a call waits for when a step of it has ended.
    #[cold]
    pub(super) fn note_wait(&mut self, context: &StepContext, rpc: &RpcState, id: CallId) {
        let awaits_taking = self.awaits_taking(rpc, id);
        let (Some(slow), Some(running)) = (&mut self.slow, self.calls.get(id)) else {
            return;
        };
        if running.subscribed {
            slow.set_endless(id.index);
        }
        let cause = match running.commits > 0 {
            true => WaitCause::Commit,
            false if awaits_taking => WaitCause::Send,
            false => WaitCause::Other,
        };
        slow.waits(id.index, cause, context.clock.read_ns());
    }

    /// Logs slow calls whose answers were taken since, or, if the connection is gone, all of it.
    #[cold]
    pub fn settle_slow(&mut self, context: &StepContext, rpc: &mut RpcState, is_gone: bool) {
        let settings = &context.settings;
        if let Some(all) = &settings.slow_calls {
            let connection = (!is_gone).then_some(&rpc.connection);
            rpc.unsent_slow.settle(
                sink(context, all),
                (&rpc.link.address, connection),
                context.clock.read_ns(),
            );
        }
    }
}

/// Notes that a call has ended.
#[cold]
pub(super) fn slow_end(
    slow: &mut SlowCalls,
    context: &StepContext,
    rpc: &mut RpcState,
    id: CallId,
    end: SlowCallEnd,
) {
    let settings = &context.settings;
    if let Some(all) = &settings.slow_calls {
        let RpcState {
            link, unsent_slow, ..
        } = rpc;
        slow.ended(
            id.index,
            end,
            sink(context, all),
            (&link.address, unsent_slow),
            context.clock.read_ns(),
        );
    }
}

fn sink<'a>(context: &'a StepContext, all: &'a SlowCallLog) -> SlowCallSink<'a> {
    SlowCallSink {
        all,
        log: &*context.settings.log,
        identities: &context.identities,
    }
}
