//! What the table of calls notes for the slow-call log, and for spans.

use service::Code;

use super::CallTable;
use crate::actions::StepContext;
use crate::call_id::CallId;
use crate::connection::RpcState;
use crate::slow_calls::{SlowCallEnd, SlowCallSink, SlowCalls, WaitCause};
use crate::spans::SpanMethod;

/// Returns what tracks a call, if somebody wants to know of it.
#[inline]
pub(super) fn tracker(slow: &mut Option<Box<SlowCalls>>, id: CallId) -> Option<&mut SlowCalls> {
    let slow = slow.as_deref_mut()?;
    slow.is_tracked(id.index).then_some(slow)
}

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
        if let Some(slow) = tracker(&mut self.slow, id)
            && let Some(running) = self.calls.get(id)
        {
            let request = (running.method, message);
            slow.request(id.index, request, rpc.received_ns, context.clock.read_ns());
        }
    }

    /// Notes that a call waits for a read of a database on disk.
    #[inline]
    pub fn note_reading(&mut self, context: &StepContext, id: CallId) {
        if let Some(slow) = tracker(&mut self.slow, id) {
            slow.waits(id.index, WaitCause::Read, context.clock.read_ns());
        }
    }

    /// Notes that the commit of a call has its outcome.
    #[inline]
    pub fn note_synced(&mut self, id: CallId, sync_ns: u64) {
        if let Some(slow) = tracker(&mut self.slow, id)
            && self.calls.get(id).is_some()
        {
            slow.synced(id.index, sync_ns);
        }
    }

    /// Notes what a call waits for when a step of it has ended.
    #[cold]
    pub(super) fn note_wait(&mut self, context: &StepContext, rpc: &RpcState, id: CallId) {
        if tracker(&mut self.slow, id).is_none() {
            return;
        }
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

    /// Hands over the span of a call that is refused before it begins, if it is traced. Its head is
    /// the last one of its connection.
    #[cold]
    pub fn note_refused(
        &mut self,
        context: &StepContext,
        rpc: &RpcState,
        refused: (SpanMethod<'_>, Code),
    ) {
        if let Some(slow) = &mut self.slow {
            let head = (&rpc.connection, rpc.received_ns);
            let now_ns = context.clock.read_ns();
            slow.refused(refused, head, sink(context), &rpc.link.address, now_ns);
        }
    }

    /// Logs slow calls, and hands over spans of those, whose answers were taken since, or, if the
    /// connection is gone, of all of it.
    #[cold]
    pub fn settle_slow(&mut self, context: &StepContext, rpc: &mut RpcState, is_gone: bool) {
        if rpc.unsent_slow.is_empty() {
            return;
        }
        let connection = (!is_gone).then_some(&rpc.connection);
        rpc.unsent_slow.settle(
            sink(context),
            (&rpc.link.address, connection),
            context.clock.read_ns(),
        );
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
    let RpcState {
        link, unsent_slow, ..
    } = rpc;
    slow.ended(
        id.index,
        end,
        sink(context),
        (&link.address, unsent_slow),
        context.clock.read_ns(),
    );
}

fn sink(context: &StepContext) -> SlowCallSink<'_> {
    let settings = &context.settings;
    SlowCallSink {
        all: settings.slow_calls.as_ref(),
        spans: settings.spans.as_ref().map(|spans| spans.sink()),
        log: &*settings.log,
        identities: &context.identities,
        clock: &context.clock,
    }
}
