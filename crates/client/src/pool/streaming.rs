//! Messages of calls that stream, and what their callers do to calls.

use bytes::Bytes;

use super::PoolEngine;
use super::begin::send_kept;
use super::calls::CallStage;
use super::event::{PoolCallKey, SendError};

impl PoolEngine {
    /// Sends a message of a call begun with [`PoolEngine::begin_streaming`]. `last`: none follows.
    ///
    /// # Errors
    /// If the message is not taken.
    pub fn send(
        &mut self,
        call: PoolCallKey,
        last: bool,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), SendError> {
        self.send_shared(call, last, |out| {
            encode(out);
            None
        })
    }

    /// The same for a message of which others hold a part, as in [`PoolEngine::begin_shared`].
    ///
    /// # Errors
    /// As [`PoolEngine::send`].
    pub fn send_shared(
        &mut self,
        call: PoolCallKey,
        last: bool,
        encode: impl FnOnce(&mut Vec<u8>) -> Option<Bytes>,
    ) -> Result<(), SendError> {
        let is_open = self
            .calls
            .get(call)
            .is_some_and(|state| !state.is_send_ended);
        if !is_open {
            return Err(SendError::Ended);
        }
        if !self.can_send(call) {
            return Err(SendError::NotWritable);
        }
        let limit_bytes = self.options.max_request_bytes;
        let Some(state) = self.calls.get_mut(call) else {
            return Err(SendError::Ended);
        };
        let is_waiting = !matches!(state.stage, CallStage::Running { .. });
        if !is_waiting && (state.is_committed || !state.kept.has_room()) {
            state.has_outgrown = true;
        }
        if state.has_outgrown {
            state.kept.restart();
        }
        let message = state.kept.push(state.compresses, encode);
        let bytes = message.len();
        if bytes > limit_bytes {
            state.kept.pop();
            return Err(SendError::TooLarge { bytes, limit_bytes });
        }
        state.is_send_ended = last;
        if let CallStage::Running { connection, stream } = state.stage
            && let Some(core) = self.connections[connection as usize].core.as_mut()
        {
            send_kept(core, stream, message, last);
            self.touch(connection);
        }
        Ok(())
    }

    /// Sets whether the messages of a call from here on are compressed with gzip; only in a call
    /// that began with [`compress`](super::PoolCall::compress).
    pub fn set_compress(&mut self, call: PoolCallKey, compress: bool) {
        if let Some(state) = self.calls.get_mut(call) {
            state.compresses = compress && state.traits.compress;
        }
    }

    /// Ends the caller's side of a call without a further message.
    pub fn close_send(&mut self, call: PoolCallKey) {
        let Some(state) = self
            .calls
            .get_mut(call)
            .filter(|state| !state.is_send_ended)
        else {
            return;
        };
        state.is_send_ended = true;
        if let CallStage::Running { connection, stream } = state.stage
            && let Some(core) = self.connections[connection as usize].core.as_mut()
        {
            core.close_send(stream);
            self.touch(connection);
        }
    }

    /// Returns whether a call takes a further message. If not, and it has not ended,
    /// [`PoolEvent::Writable`](super::PoolEvent::Writable) follows.
    pub fn can_send(&mut self, call: PoolCallKey) -> bool {
        let Some(state) = self.calls.get_mut(call) else {
            return false;
        };
        match state.stage {
            CallStage::Running { connection, stream } => {
                let core = self.connections[connection as usize].core.as_ref();
                let can_send = core.is_some_and(|core| core.can_send(stream));
                // The stream reports it, unless the call is made again on another one.
                state.wants_writable |= !can_send;
                can_send
            }
            _ => {
                let has_room = state.kept.has_room();
                state.wants_writable |= !has_room;
                has_room
            }
        }
    }

    /// The messages of a call with [`holds_messages`](super::PoolCall::holds_messages) that have
    /// been reported were consumed: the server may send as much again.
    pub fn release(&mut self, call: PoolCallKey) {
        if let Some(CallStage::Running { connection, stream }) =
            self.calls.get(call).map(|state| state.stage)
            && let Some(core) = self.connections[connection as usize].core.as_mut()
        {
            core.release(stream);
            self.touch(connection);
        }
    }

    /// Gives a call up: the server is told, and nothing more is reported of it.
    pub fn cancel(&mut self, call: PoolCallKey, now_ns: u64) {
        if self.calls.get(call).is_none() {
            return;
        }
        self.waiting.count_time(now_ns);
        self.stop_call(call);
        self.calls.remove(call);
        self.waiting.compact(&self.calls);
        // What it had goes to a call that waits, by a poll that a driver has to see a reason for.
        self.needs_balance |= self.waiting.queued() > 0;
        self.counters.cancelled += 1;
    }

    /// Takes a call from where it runs or waits.
    pub(super) fn stop_call(&mut self, call: PoolCallKey) {
        let Some(stage) = self.calls.get(call).map(|state| state.stage) else {
            return;
        };
        self.waiting.forget(stage);
        if let CallStage::Running { connection, stream } = stage {
            if let Some(core) = self.connections[connection as usize].core.as_mut() {
                core.cancel(stream);
            }
            self.touch(connection);
            self.release_connection(connection);
        }
    }

    /// A call of a connection is over.
    pub(super) fn release_connection(&mut self, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        debug_assert!(connection.in_flight > 0, "a call has begun on it");
        connection.in_flight -= 1;
        self.in_flight -= 1;
        if connection.in_flight == 0 {
            self.retire_if_over(slot);
        }
        self.refresh(slot);
    }
}
