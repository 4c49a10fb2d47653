//! What unit tests of other modules look at in a loop.

use std::sync::Arc;

use net::Io;
use service::Shared;
use wire::StreamKey;

use super::LoopHandler;
use crate::account::Account;
use crate::connection::RpcState;
use crate::large_message_queue::LargeMessageQueue;
use crate::unpack_queue::UnpackQueue;

impl LoopHandler {
    pub fn timers(&self) -> usize {
        self.state.timers.len()
    }

    pub fn windows_are_shut(&mut self) -> bool {
        let states = self.slots.iter_mut().flatten();
        let mut peers = states.filter_map(|state| state.rpc());
        peers.any(|rpc| rpc.connection.windows_are_shut())
    }

    /// News of tasks whose calls are gone, taken off.
    pub fn tell_nobody(&mut self) -> usize {
        let news = self.state.context.tasks.take_news(0);
        let calls = &self.state.calls;
        news.iter()
            .filter(|(call, _)| !calls.is_running(*call))
            .count()
    }

    pub fn shared(&self) -> &Shared {
        &self.state.shared
    }

    pub fn account(&self) -> &Arc<Account> {
        &self.state.context.admission.account
    }

    pub fn large_message_queue(&self) -> &LargeMessageQueue {
        &self.state.large_message_queue
    }

    pub fn unpack_queue(&self) -> &UnpackQueue {
        &self.state.unpack_queue
    }

    /// How many calls each identity has that has some, by its slot.
    pub fn calls_of_identities(&self) -> Vec<usize> {
        self.state.calls.of_identities()
    }

    /// How many calls run.
    pub fn running(&self) -> usize {
        self.state.calls.len()
    }

    /// The stream of the first of them.
    pub fn first_stream(&self) -> StreamKey {
        let calls = &self.state.calls;
        let id = calls.ids().next().expect("a call runs");
        calls.stream(id).expect("it runs")
    }

    /// The only connection.
    pub fn rpc(&mut self) -> &mut RpcState {
        let state = self.slots[0].as_mut().expect("it is open");
        state.rpc().expect("it carries calls")
    }

    /// What a step of it is followed by that may have produced something.
    pub fn note_growth(&mut self, io: &Io) {
        let state = self.slots[0].as_mut().expect("it is open");
        let rpc = state.rpc().expect("it carries calls");
        self.state.note_growth(rpc, io);
    }

    /// Whether the batch of the tick asks for another one.
    pub fn has_work(&self) -> bool {
        (self.state.context.batch).has_work(self.state.may_take_requests())
    }

    /// How many requests of many operations wait, and the bytes of those that are under way.
    pub fn long_requests(&self) -> (usize, usize) {
        let waiting = self.state.context.batch.long_requests.len();
        (waiting, self.state.calls.long_requests().under_way_bytes())
    }

    /// Bytes in the batch of the tick, and behind it.
    pub fn write_bytes(&self) -> (usize, usize) {
        let in_batch = self.state.context.batch.write_bytes();
        (in_batch, self.state.writes.waiting_bytes())
    }

    /// Bounds them.
    pub fn bound_write_bytes(&mut self, bytes: usize) {
        self.state.context.admission.waiting_write_bytes = bytes;
    }

    /// Whether nothing is taken of some connection, as they are too many.
    pub fn has_held_back(&self) -> bool {
        !self.state.held_back.is_empty()
    }

    pub fn readers_are_idle(&self) -> bool {
        self.state.readers.is_idle()
    }

    /// Whether uploads wait for their descriptions to be decided.
    pub fn has_sealed(&self) -> bool {
        self.state.context.blobs.has_sealed()
    }
}
