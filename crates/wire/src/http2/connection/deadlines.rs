//! What a connection does by time alone.

use super::Connection;
use crate::grpc::{Code, Status};
use crate::http2::error::{CancelCause, ConnectionError};
use crate::http2::frame;

impl Connection {
    /// When [`Connection::deadline_passed`] is to be called, if nothing happens before.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        if self.life.is_closed() {
            return None;
        }
        [
            self.timers.next_deadline_ns(&self.config),
            self.late.linger_due_ns(),
            self.turns.lapse_due_ns(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Does what is due by now. Calling it early does nothing.
    pub fn deadline_passed(&mut self, out: &mut Vec<u8>, now_ns: u64) {
        self.now_ns = now_ns;
        if self.life.is_closed() {
            return;
        }
        if let Err(error) = self.check_deadlines(out, now_ns) {
            self.fail(error, out);
        }
    }

    fn check_deadlines(&mut self, out: &mut Vec<u8>, now_ns: u64) -> Result<(), ConnectionError> {
        self.timers.check(&self.config, now_ns)?;
        let unfinished_bytes = self.unfinished.bytes();
        if (self.timers).take_unfinished_due(&self.config, unfinished_bytes, now_ns) {
            self.end_unfinished(out)?;
        }
        let lapse_due_ns = self.turns.lapse_due_ns();
        if lapse_due_ns.is_some_and(|due_ns| now_ns >= due_ns) {
            self.lapse_turns(out);
        }
        self.end_lingering(out);
        if self.timers.is_drain_due(now_ns) {
            self.finish_draining(out);
        }
        if let Some(opaque) = self.timers.keepalive(&self.config, now_ns)? {
            frame::write_ping(out, 0, opaque);
            self.trim();
        }
        Ok(())
    }

    /// Messages have begun and do not go on: ends their calls. A stream that we hold ourselves, or
    /// whose window we keep shut until its turn, is not in arrears.
    #[cold]
    fn end_unfinished(&mut self, out: &mut Vec<u8>) -> Result<(), ConnectionError> {
        let late: Vec<_> = self
            .streams
            .iter_mut()
            .filter(|(_, stream)| {
                let waits_for_us = stream.is_held_above()
                    || (stream.turn.is_waiting() && stream.receive_window.available() == 0);
                stream.inbound.is_mid_message() && !waits_for_us && !stream.is_dead()
            })
            .map(|(slot, _)| slot)
            .collect();
        for slot in late {
            let message = "the rest of a message did not arrive in time";
            let status = Status::new(Code::ResourceExhausted, message);
            self.end_call(slot, &status, CancelCause::TooMuchUnfinished, out)?;
        }
        Ok(())
    }

    /// Gives memory back that a connection which has fallen silent does not need.
    fn trim(&mut self) {
        self.streams.trim();
        self.pool.trim();
        self.heads.trim();
        self.message.trim();
        self.events.shrink_to_fit();
        self.queue.trim();
        self.resumed.shrink_to_fit();
        self.turns.trim();
        // Not `late`: a stream may have been reset a moment ago, and its frames are still to come.
    }
}
