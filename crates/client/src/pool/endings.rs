//! How calls of a pool end, or are made again.

use wire::grpc::{Code, Status};

use super::PoolEngine;
use super::backoff::pause_ns;
use super::calls::CallStage;
use super::connection::{PoolConnection, PoolStage};
use super::event::{PoolCallKey, PoolEvent};
use super::waiting::WaitCause;
use crate::error::{CallError, NotBegun, WaitedFor, has_pushback, pushback_ms};
use crate::limits;

/// How an attempt ended.
pub(super) enum AttemptEnd {
    Succeeded(Status),
    /// The server is leaving, or has enough, and has not looked at it: nobody is to blame.
    Unprocessed,
    Failed(CallError),
}

impl PoolEngine {
    /// Makes a call again whose attempt has failed, if that is right; ends it otherwise.
    pub(super) fn retry_or_end(
        &mut self,
        call: PoolCallKey,
        error: CallError,
        is_free: bool,
        now_ns: u64,
        on: &mut impl FnMut(PoolEvent<'_>),
    ) {
        let Some(pause_ns) = self.retry_pause_ns(call, &error, is_free, now_ns) else {
            return self.end_failed(call, error, on);
        };
        let Some(state) = self.calls.get_mut(call) else {
            return;
        };
        state.is_uncertain |= error.may_have_happened();
        self.counters.retries += 1;
        self.waiting.count_time(now_ns);
        if pause_ns == 0 {
            self.waiting.push_front(call);
        } else {
            state.stage = CallStage::Delayed;
            let at_ns = now_ns.saturating_add(pause_ns);
            self.waiting.push_delayed(call, at_ns);
        }
    }

    /// Connections that took no call for a moment take them again.
    pub(super) fn end_pauses(&mut self, now_ns: u64) {
        if now_ns < self.paused_until_ns {
            return;
        }
        self.paused_until_ns = u64::MAX;
        for slot in 0..self.connections.len() {
            if std::mem::take(&mut self.connections[slot].is_paused) {
                self.refresh(slot as u32);
            }
        }
    }

    /// Ends a call whose last attempt failed, or cannot be made.
    pub(super) fn end_failed(
        &mut self,
        call: PoolCallKey,
        error: CallError,
        on: &mut impl FnMut(PoolEvent<'_>),
    ) {
        let is_uncertain = self.calls.get(call).is_some_and(|state| state.is_uncertain);
        self.finish(call, Err(of_all_attempts(error, is_uncertain)), on);
    }

    /// Returns how long to wait before a call is made again; `None`: it is not.
    fn retry_pause_ns(
        &mut self,
        call: PoolCallKey,
        error: &CallError,
        is_free: bool,
        now_ns: u64,
    ) -> Option<u64> {
        let state = self.calls.get(call)?;
        let is_kept = !state.is_committed && !state.has_outgrown;
        let (is_repeatable, attempts) = (state.traits.is_repeatable, state.attempts);
        let deadline_ns = state.deadline_ns;
        let asked_ms = match error {
            CallError::NotBegun(NotBegun::Refused) => None,
            CallError::Status(status) => match (pushback_ms(status), has_pushback(status)) {
                (Some(ms), _) => Some(ms),
                // The server asks not to try again.
                (None, true) => return None,
                (None, false) if status.code() == Code::Unavailable && is_repeatable => None,
                _ => return None,
            },
            CallError::ConnectionLost { .. } if is_repeatable => None,
            _ => return None,
        };
        // A failure that another attempt could follow is charged, whether it follows or not, but
        // for the first refusal of a call (gRFC A6, "Transparent Retries").
        let is_transparent =
            attempts <= 1 && matches!(error, CallError::NotBegun(NotBegun::Refused));
        let has_tokens = is_free || is_transparent || self.budget.failed();
        let may_wait = self.waiting.len() < self.options.max_waiting;
        let has_attempts = attempts < self.options.retry.max_attempts;
        if !(has_tokens && may_wait && has_attempts && is_kept) || self.close_ns.is_some() {
            return None;
        }
        let is_first_proof = attempts <= 1 && !error.may_have_happened();
        let pause_ns = match asked_ms {
            Some(ms) => ms.saturating_mul(1_000_000),
            None if is_first_proof => 0,
            None => {
                let pauses = self.calls.get_mut(call).map_or(1, |state| {
                    state.pauses = state.pauses.saturating_add(1);
                    state.pauses
                });
                self.jitter.vary(pause_ns(pauses))
            }
        };
        // Whoever waits in vain is better told now.
        let is_in_time = now_ns.saturating_add(pause_ns) < deadline_ns;
        let is_short = asked_ms.is_none() || pause_ns <= longest_pause_ns();
        (is_in_time && is_short).then_some(pause_ns)
    }

    /// Ends the calls whose deadline has passed.
    pub(super) fn end_expired(&mut self, now_ns: u64, on: &mut impl FnMut(PoolEvent<'_>)) {
        if self.calls.next_deadline_ns() > now_ns {
            return;
        }
        self.waiting.count_time(now_ns);
        while let Some(call) = self.calls.next_expired(now_ns) {
            let error = self.deadline_error(call);
            self.suspect_silence(call, now_ns);
            self.stop_call(call);
            self.finish(call, Err(error), on);
        }
    }

    /// Takes a connection out of use that was silent for all the time of a call, if that was long:
    /// what is at its other end may be gone. Its other calls go on; if nothing is there, the
    /// protocol's PING finds that out later. If something is there, they may last for ever: so many
    /// at most are taken out of use that those which servers end can still be replaced.
    fn suspect_silence(&mut self, call: PoolCallKey, now_ns: u64) {
        let Some(state) = self.calls.get(call) else {
            return;
        };
        let CallStage::Running { connection, .. } = state.stage else {
            return;
        };
        let opened_ns = state.opened_ns;
        let is_long = now_ns.saturating_sub(opened_ns) >= limits::POOL_SILENCE.as_nanos() as u64;
        let suspected = &self.connections[connection as usize];
        let is_silent = is_long && suspected.received_ns < opened_ns;
        let draining = self.endpoints[suspected.endpoint].draining;
        if is_silent && draining < self.max_draining() / 2 {
            self.drain_connection(connection);
        }
    }

    /// The error of a call whose deadline has passed.
    fn deadline_error(&self, call: PoolCallKey) -> CallError {
        let is_unsent = self.calls.get(call).is_some_and(|state| {
            !state.is_uncertain && !matches!(state.stage, CallStage::Running { .. })
        });
        match is_unsent {
            true => {
                let waited_for = self.waited_for();
                CallError::NotBegun(NotBegun::WaitedTooLong { waited_for })
            }
            false => CallError::DeadlineExceeded,
        }
    }

    /// Returns what calls wait for that have not been sent. No pause goes beyond a deadline.
    fn waited_for(&self) -> WaitedFor {
        let is_greeting = |connection: &PoolConnection| connection.stage == PoolStage::Greeting;
        match self.wait_cause() {
            WaitCause::Permit => WaitedFor::Permit,
            WaitCause::Stream => WaitedFor::Stream,
            WaitCause::Connection if self.connections.iter().any(is_greeting) => {
                WaitedFor::Settings
            }
            WaitCause::Connection => WaitedFor::Connection,
        }
    }

    /// Ends the calls that wait for a connection in vain.
    pub(super) fn end_unreachable(&mut self, now_ns: u64, on: &mut impl FnMut(PoolEvent<'_>)) {
        if self.waiting.queued() == 0 {
            return;
        }
        let Some(reason) = self.unreachable(now_ns) else {
            return;
        };
        let mut ended = std::mem::take(&mut self.ending);
        let waiting = self.waiting.iter_queued(&self.calls);
        ended.extend(waiting.filter(|&key| {
            self.calls
                .get(key)
                .is_some_and(|call| !call.traits.waits_for_ready)
        }));
        for call in ended.drain(..) {
            self.waiting.forget(CallStage::Waiting);
            let reason = reason.clone();
            let is_uncertain = self.calls.get(call).is_some_and(|call| call.is_uncertain);
            let error = match is_uncertain {
                true => CallError::ConnectionLost { reason },
                false => CallError::NotBegun(NotBegun::Unreachable { reason }),
            };
            self.finish(call, Err(error), on);
        }
        self.ending = ended;
    }

    /// Ends what waits in a pool that was closed, and what runs when its time is over.
    pub(super) fn continue_closing(&mut self, now_ns: u64, on: &mut impl FnMut(PoolEvent<'_>)) {
        let is_over = self.close_ns.is_some_and(|by_ns| by_ns <= now_ns);
        let mut ended = std::mem::take(&mut self.ending);
        if self.waiting.len() > 0 || is_over {
            ended.extend(self.calls.keys());
        }
        self.waiting.count_time(now_ns);
        for call in ended.drain(..) {
            let Some(state) = self.calls.get(call) else {
                continue;
            };
            let is_running = matches!(state.stage, CallStage::Running { .. });
            let error = match is_running || state.is_uncertain {
                true if is_running && !is_over => continue,
                true => CallError::PoolClosed,
                false => CallError::NotBegun(NotBegun::PoolClosed),
            };
            self.stop_call(call);
            self.finish(call, Err(error), on);
        }
        self.ending = ended;
        self.needs_balance = true;
    }
}

/// Returns the error of a call whose last attempt failed with this one. That the server refused
/// the last attempt says nothing of an earlier one that it may have begun with.
fn of_all_attempts(last: CallError, is_uncertain: bool) -> CallError {
    match is_uncertain && !last.may_have_happened() {
        true => CallError::ConnectionLost {
            reason: format!("an earlier attempt got no answer, and the last one failed: {last}"),
        },
        false => last,
    }
}

/// The longest pause that a server may ask for.
fn longest_pause_ns() -> u64 {
    limits::POOL_LONGEST_BACKOFF.as_nanos() as u64
}
