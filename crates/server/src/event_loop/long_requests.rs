//! Requests with many operations: they are taken up in turns with other long work, and while not
//! too much of them is under way. So connections with many of them leave time to others, also of
//! the committer, and a call that is taken back right behind its request costs little.

use bytes::Bytes;
use net::Io;
use service::CallSteps;
use wire::{StreamKey, TakenMessage};

use super::LoopState;
use crate::actions::StepAgain;
use crate::call_id::CallId;
use crate::connection::RpcState;
use crate::waiting_request::WaitingRequest;

impl LoopState {
    /// Has a call take up the request that has come in its turn. What follows on its stream waits
    /// behind it.
    pub(super) fn defer_request(
        &mut self,
        rpc: &mut RpcState,
        io: &mut Io,
        (id, stream): (CallId, StreamKey),
        message: TakenMessage,
        last: bool,
    ) {
        let input = io.input.bytes();
        let shared = message.shared().cloned();
        let bytes = shared.unwrap_or_else(|| Bytes::copy_from_slice(message.bytes(input)));
        rpc.connection.give_back(message);
        let mut handle = rpc.stream(stream, &mut io.output);
        handle.hold_request(bytes.len());
        handle.hold();
        self.calls.keep_request(id, WaitingRequest { bytes, last });
        let (connection, counted) = (rpc.link.id, rpc.link.holding.counted_key());
        let long_requests = &mut self.context.batch.long_requests;
        long_requests.push_of(connection, counted, id);
    }

    /// Returns whether the request of a call may be taken up, if one waits. Where others have as
    /// much under way as there may be, the loop is woken when its turn comes.
    #[inline]
    pub(super) fn may_take_requests(&self) -> bool {
        let long_requests = self.calls.long_requests();
        if self.context.batch.long_requests.is_empty() {
            long_requests.leave();
            return false;
        }
        long_requests.may_take()
    }

    /// The turn of a call has come whose request was deferred.
    pub(super) fn take_up_request(&mut self, rpc: &mut RpcState, io: &mut Io, id: CallId) {
        let (Some(stream), Some(request)) = (self.calls.stream(id), self.calls.take_request(id))
        else {
            return;
        };
        let WaitingRequest { bytes, last } = request;
        rpc.stream(stream, &mut io.output).hold_request(0);
        self.calls.note_request(&self.context, rpc, id, &bytes);
        let commits_before = self.context.batch.writes.len();
        let by_itself = (bytes.len() >= wire::limits::SHARED_MESSAGE_BYTES).then_some(&bytes);
        let again = self.step_with(
            rpc,
            &mut io.output,
            (id, by_itself),
            |call, shared, step| {
                call.message(&bytes, last, shared, step);
                step.note_denied(&bytes);
            },
        );
        if self.context.batch.writes.len() > commits_before {
            self.calls.count_under_way(id, bytes.len());
        }
        self.calls.long_requests().leave();
        let mut handle = rpc.stream(stream, &mut io.output);
        handle.resume();
        if again == StepAgain::Message {
            let (message, output) = (TakenMessage::Shared(bytes), &mut io.output);
            return (rpc.connection).put_back(stream, message, &[], last, output);
        }
        if !last {
            handle.release();
        }
    }
}
