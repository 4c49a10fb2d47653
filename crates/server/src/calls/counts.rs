//! How many calls of a loop run, and what is counted of those that have ended.

use service::identities::IdentityKey;
use service::{Code, LoopFigures, Method, RefusedFor};

use super::RunningCall;
use crate::actions::StepContext;
use crate::audit::{self, AuditedCall, EndedCall};
use crate::audit_record::AuditCaller;
use crate::clock::LoopClock;
use crate::connection::RpcState;
use crate::durations::EndedCalls;
use crate::long_requests::LoopLongRequests;
use crate::settings::Detail;

/// How many calls of a loop run, and what is counted of those that have ended.
pub(super) struct CallCounts {
    /// Calls that wait for their refusal.
    pub(super) refused: usize,
    /// Requests of many operations that calls have taken up which run.
    pub(super) long_requests: LoopLongRequests,
    /// How many calls each identity has, by its slot.
    of_identities: Vec<usize>,
    pub(super) figures: LoopFigures,
    /// How long calls took; `None`: nobody wants to know.
    ended_calls: Option<EndedCalls>,
}

impl CallCounts {
    pub(super) fn new(
        figures: LoopFigures,
        time_calls: bool,
        long_requests: LoopLongRequests,
    ) -> CallCounts {
        CallCounts {
            refused: 0,
            long_requests,
            of_identities: Vec::new(),
            figures,
            ended_calls: time_calls.then(EndedCalls::default),
        }
    }

    /// Returns how many calls of an identity run.
    #[inline]
    pub(super) fn of_identity(&self, identity: IdentityKey) -> usize {
        let calls = self.of_identities.get(identity.slot());
        calls.map_or(0, |calls| *calls)
    }

    /// Returns how many calls each identity has that has some, by its slot.
    #[cfg(test)]
    pub(super) fn of_identities(&self) -> Vec<usize> {
        let counts = self.of_identities.iter().copied();
        counts.filter(|calls| *calls > 0).collect()
    }

    /// Counts a call that begins.
    #[inline]
    pub(super) fn begin(&mut self, method: Method, identity: IdentityKey) {
        if identity == IdentityKey::NOBODY {
            self.refused += 1;
            return;
        }
        let slot = identity.slot();
        if slot >= self.of_identities.len() {
            // There are as many slots as tokens and listeners.
            self.of_identities.resize(slot + 1, 0);
        }
        self.of_identities[slot] += 1;
        self.figures.started(method);
    }

    /// Counts a call that has ended.
    #[inline]
    pub(super) fn end(
        &mut self,
        context: &StepContext,
        rpc: &mut RpcState,
        running: &RunningCall,
        code: Code,
    ) {
        if running.is_refused() {
            self.refused -= 1;
            return;
        }
        self.of_identities[running.proved.key.slot()] -= 1;
        let (settings, clock) = (&context.settings, &context.clock);
        self.figures.ended(running.method, code);
        if code == Code::PermissionDenied {
            // What depends on the request is denied after the call has begun.
            self.figures.refused(RefusedFor::PermissionDenied);
        }
        if let Some(calls) = &mut self.ended_calls {
            calls.add(running.method, running.begin_ns, clock, &self.figures);
        }
        if settings.log.detail() >= Detail::Calls {
            let took_ns = clock.read_ns().saturating_sub(running.begin_ns);
            (settings.log).call_ended(running.method, code, took_ns, &rpc.link.address);
        }
        let rare = running.resources.rare();
        if let Some(rare) = rare {
            self.long_requests.end(rare.under_way_bytes);
        }
        if rare.is_some_and(|rare| rare.audited.is_some()) || audit::is_denial(code) {
            audit_ended(context, rpc, running, code);
        }
    }

    /// Counts how long those calls took that have ended in this tick.
    pub(super) fn end_tick(&mut self, clock: &LoopClock) {
        if let Some(calls) = &mut self.ended_calls {
            calls.count(clock, &self.figures);
        }
    }
}

/// Notes the end of a call that administrates, or that was denied, in the audit trail.
#[cold]
fn audit_ended(context: &StepContext, rpc: &mut RpcState, running: &RunningCall, code: Code) {
    let rare = running.resources.rare();
    let audited = rare.and_then(|rare| rare.audited.as_ref());
    let denial = rare.and_then(|rare| rare.denial.as_deref());
    // One whose token was revoked meanwhile is named all the same.
    let identity = context.identities.get_former(running.proved.key);
    let ended = EndedCall {
        method: running.method,
        code,
        may_have_changed: matches!(code, Code::Ok | Code::Unknown) || running.commits > 0,
        key: identity.map(|_| running.proved.key),
        caller: audited.map_or_else(|| AuditCaller::of(identity), AuditedCall::caller),
        subject: audited
            .map(AuditedCall::subject)
            .or(rare.and_then(|rare| rare.denied_database.as_deref()))
            .unwrap_or(""),
        detail: denial.or(audited.map(AuditedCall::detail)).unwrap_or(""),
    };
    let RpcState { link, denials, .. } = rpc;
    let now_ns = context.clock.tick_ns();
    let (log, peer) = (&*context.settings.log, (&link.address, link.caller.address));
    (context.audit).note(log, peer, denials, &ended, now_ns);
}
