//! What happens to the calls of a connection.

use wire::StreamKey;
use wire::grpc::{Code, Status};

use super::PoolEngine;
use super::calls::CallStage;
use super::connection::PoolStage;
use super::endings::AttemptEnd;
use super::event::{PoolCallKey, PoolEvent};
use crate::core::{CallEventKind, describe};
use crate::error::{CallError, NotBegun};
use crate::limits;

impl PoolEngine {
    /// Reports all that has happened on a connection. `end`: why it has ended, if the socket says
    /// so.
    pub(super) fn report_events(
        &mut self,
        slot: u32,
        end: Option<&str>,
        now_ns: u64,
        on: &mut impl FnMut(PoolEvent<'_>),
    ) {
        loop {
            let connection = &mut self.connections[slot as usize];
            let Some(core) = connection.core.as_mut() else {
                return;
            };
            let Some(event) = core.poll(now_ns) else {
                break;
            };
            if connection.health_stream == Some(event.call) {
                self.note_health(slot, event.kind, now_ns);
                continue;
            }
            let (token, stream) = (event.token, event.call);
            match event.kind {
                CallEventKind::Message => self.report_message(slot, token, stream, on),
                CallEventKind::Head { .. } => self.report_head(slot, token, stream, on),
                CallEventKind::Writable => {
                    if let Some((call, state)) = self.calls.running(token, slot, stream) {
                        state.wants_writable = false;
                        let tag = state.tag;
                        on(PoolEvent::Writable { call, tag });
                    }
                }
                ended => {
                    if let Some((call, _)) = self.calls.running(token, slot, stream) {
                        self.end_attempt(call, slot, ended, end, now_ns, on);
                    }
                }
            }
        }
        self.settle(slot, end.is_some(), now_ns);
    }

    fn report_message(
        &mut self,
        slot: u32,
        token: u32,
        stream: StreamKey,
        on: &mut impl FnMut(PoolEvent<'_>),
    ) {
        let Some(core) = self.connections[slot as usize].core.as_mut() else {
            return;
        };
        let Some((call, state)) = self.calls.running(token, slot, stream) else {
            return core.release(stream);
        };
        state.messages += 1;
        state.is_committed = true;
        on(PoolEvent::Message {
            call,
            tag: state.tag,
            bytes: core.message(),
            compressed: core.message_was_compressed(),
        });
        if !state.traits.holds_messages {
            core.release(stream);
        }
    }

    fn report_head(
        &mut self,
        slot: u32,
        token: u32,
        stream: StreamKey,
        on: &mut impl FnMut(PoolEvent<'_>),
    ) {
        let Some((call, state)) = self.calls.running(token, slot, stream) else {
            return;
        };
        // The head commits a call, whoever wants to see it (gRFC A6).
        state.is_committed = true;
        if state.traits.wants_head
            && let Some(core) = &self.connections[slot as usize].core
        {
            on(PoolEvent::Head {
                call,
                tag: state.tag,
                metadata: &core.initial_metadata(),
            });
        }
    }

    /// The attempt of a call has ended: the call ends, or is made again.
    fn end_attempt(
        &mut self,
        call: PoolCallKey,
        slot: u32,
        kind: CallEventKind,
        end: Option<&str>,
        now_ns: u64,
        on: &mut impl FnMut(PoolEvent<'_>),
    ) {
        let is_leaving = self.connections[slot as usize]
            .core
            .as_ref()
            .is_none_or(|core| !core.takes_calls());
        let Some(state) = self.calls.get_mut(call) else {
            return;
        };
        let is_late = state.deadline_ns <= now_ns;
        let Some(ended) = attempt_end(kind, (is_leaving, is_late), end) else {
            return;
        };
        // It has no stream from here on.
        state.stage = CallStage::Waiting;
        let is_refused = matches!(
            ended,
            AttemptEnd::Failed(CallError::NotBegun(NotBegun::Refused))
        );
        let connection = &mut self.connections[slot as usize];
        let ended = match connection.note_end(is_refused, now_ns) {
            Some(pause_ns) if state.refusals < connection.free_refusals() => {
                // The server's limit was reached, and the end of another call makes room.
                state.attempts = state.attempts.saturating_sub(1);
                state.refusals += 1;
                self.pause_connection(slot, pause_ns, now_ns);
                AttemptEnd::Unprocessed
            }
            // Of a server that refuses for ever, not for ever.
            Some(_) | None if is_refused && self.has_other_address(slot) => {
                let pause_ns = limits::PAUSE_AFTER_REFUSAL.as_nanos() as u64;
                self.pause_connection(slot, pause_ns, now_ns);
                ended
            }
            Some(_) | None => ended,
        };
        self.release_connection(slot);
        match ended {
            AttemptEnd::Succeeded(status) => {
                self.budget.succeeded();
                self.note_success(slot);
                self.finish(call, Ok(&status), on);
            }
            AttemptEnd::Unprocessed => {
                let error = CallError::NotBegun(NotBegun::Refused);
                self.retry_or_end(call, error, true, now_ns, on);
            }
            AttemptEnd::Failed(error) => self.retry_or_end(call, error, false, now_ns, on),
        }
    }

    /// No call begins on a connection for so long.
    fn pause_connection(&mut self, slot: u32, pause_ns: u64, now_ns: u64) {
        if pause_ns > 0 {
            self.connections[slot as usize].is_paused = true;
            self.paused_until_ns = self.paused_until_ns.min(now_ns + pause_ns);
        }
    }

    /// Returns whether calls can begin on a connection to another address. An address that refuses
    /// is the least loaded one, since it is done with each call at once.
    fn has_other_address(&self, slot: u32) -> bool {
        let endpoint = self.connections[slot as usize].endpoint;
        let mut connections = self.connections.iter().zip(&self.loads);
        connections.any(|(other, &load)| other.endpoint != endpoint && load != u32::MAX)
    }

    /// A server has done something: its connections are worth being made anew at once.
    fn note_success(&mut self, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        if !std::mem::replace(&mut connection.has_succeeded, true) {
            self.endpoints[connection.endpoint].failures = 0;
        }
    }

    /// Ends a call that is neither in the queue nor on a stream, and reports it.
    pub(super) fn finish(
        &mut self,
        call: PoolCallKey,
        result: Result<&Status, CallError>,
        on: &mut impl FnMut(PoolEvent<'_>),
    ) {
        let Some(state) = self.calls.get(call) else {
            return;
        };
        let (tag, messages) = (state.tag, state.messages);
        match &result {
            Ok(_) => self.counters.succeeded += 1,
            Err(_) => self.counters.failed += 1,
        }
        self.calls.remove(call);
        on(PoolEvent::Ended {
            call,
            tag,
            result,
            messages,
        });
    }

    /// Looks at what the events of a connection mean for the connection.
    fn settle(&mut self, slot: u32, has_ended: bool, now_ns: u64) {
        let connection = &mut self.connections[slot as usize];
        let Some(core) = connection.core.as_mut() else {
            return;
        };
        let has_output = !core.output().is_empty() || core.wants_transmit();
        let close_reason = core.close_reason().map(describe);
        let (is_ready, takes_calls) = (core.is_ready(), core.takes_calls());
        if has_output {
            self.touch(slot);
        }
        if has_ended {
            return;
        }
        if let Some(reason) = close_reason {
            let key = self.connections[slot as usize].key(slot);
            self.lost.push((key, reason));
            return;
        }
        let stage = self.connections[slot as usize].stage;
        if stage == PoolStage::Greeting && is_ready {
            self.open_connection(slot, now_ns);
        }
        if matches!(stage, PoolStage::Greeting | PoolStage::Open) && !takes_calls {
            self.drain_connection(slot);
        }
        self.refresh(slot);
    }
}

/// Returns how an attempt ended; `None`: it has not. `is_leaving`: its connection takes no more
/// calls; `is_late`: the deadline of the call has passed; `end`: why the connection has ended, if
/// the socket says so.
fn attempt_end(
    kind: CallEventKind,
    (is_leaving, is_late): (bool, bool),
    end: Option<&str>,
) -> Option<AttemptEnd> {
    let error = match kind {
        CallEventKind::Ended(status) if status.is_ok() => {
            return Some(AttemptEnd::Succeeded(status));
        }
        // A server that keeps the deadline may reset the call at it, and that may be seen before it
        // passes here.
        CallEventKind::Ended(status) if status.code() == Code::Cancelled && is_late => {
            CallError::DeadlineExceeded
        }
        CallEventKind::Ended(status) => CallError::Status(status),
        CallEventKind::NotBegun if is_leaving => return Some(AttemptEnd::Unprocessed),
        CallEventKind::NotBegun => CallError::NotBegun(NotBegun::Refused),
        CallEventKind::Lost { reason } => CallError::ConnectionLost {
            reason: end.map_or(reason, str::to_owned),
        },
        CallEventKind::AnswerTooLarge => CallError::AnswerTooLarge,
        CallEventKind::BadAnswer { reason } => CallError::BadAnswer {
            reason: reason.into(),
        },
        CallEventKind::Head { .. } | CallEventKind::Message | CallEventKind::Writable => {
            return None;
        }
    };
    Some(AttemptEnd::Failed(error))
}
