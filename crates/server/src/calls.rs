//! The running calls of one loop, and their steps.

mod counts;
mod long_requests;
mod slab;
mod slow;
mod unsent;

use bytes::Bytes;
use net::ConnectionId;
use service::identities::{Identity, IdentityKey, IdentityTable, NEVER_MS, Unauthenticated};
use service::method::CallKind;
use service::{Code, LoopFigures, Method, PlanReads, ServiceCall, Shared, Status};
use store::DatabaseId;
use store::tree::ReadPlan;
use wire::{CancelCause, StreamKey};

use crate::actions::{CallActions, CallResources, StepContext, StepEffects};
use crate::audit::AuditedCall;
use crate::call_id::CallId;
use crate::connection::RpcState;
use crate::long_requests::LoopLongRequests;
use crate::peer_identity::Proved;
use crate::settings::LoopSettings;
use crate::slow_calls::{SlowCallEnd, SlowCalls};
use crate::stream::StreamHandle;
use crate::timers::{Timer, Timers};
use counts::CallCounts;
use slab::CallSlab;
use slow::{slow_end, tracker};

/// One running call: where it came from, and its state machine.
struct RunningCall {
    connection: ConnectionId,
    stream: StreamKey,
    method: Method,
    /// Whose call it is; [`IdentityKey::NOBODY`] of one whose refusal is delayed, which is not
    /// counted among calls that began.
    proved: Proved,
    call: ServiceCall,
    resources: CallResources,
    /// `u64::MAX`: the caller set no deadline.
    deadline_ns: u64,
    /// The time of the tick in which it began.
    begin_ns: u64,
    /// When it asked to be woken; a timer with another time is an earlier request, taken back.
    wake_at_ns: u64,
    /// Commits of it that are with the committer; one that was begun and given up counts too.
    commits: u32,
    /// The database on disk that its short read is fetched from.
    reads_from: Option<DatabaseId>,
    /// It has read from an engine elsewhere, and may have a read under way there.
    reads_elsewhere: bool,
    /// Wants to be woken when the topic it subscribed to changes.
    subscribed: bool,
    /// Its caller was revoked, or has expired: it ends with the outcome of its commit.
    orphaned: Option<Unauthenticated>,
}

impl RunningCall {
    fn is_refused(&self) -> bool {
        self.proved.key == IdentityKey::NOBODY
    }
}

/// The running calls of one loop.
pub(crate) struct CallTable {
    calls: CallSlab,
    counts: CallCounts,
    /// Calls with a deadline that began in this tick: only those that outlive it get a timer.
    fresh: Vec<CallId>,
    /// Connections and tags of commits, and of reads elsewhere, whose callers have left in this
    /// tick.
    abandoned: Vec<(ConnectionId, u64)>,
    /// No proof of a running call ends before, nor of one whose answer waits.
    proofs_end_ms: u64,
    /// Connections on which answers of calls wait that have ended.
    unsent: usize,
    /// What calls wait for; `None`: nobody wants to know.
    slow: Option<Box<SlowCalls>>,
}

impl CallTable {
    /// Makes an empty table, which counts in `figures`, and looks at how long calls take if that is
    /// wanted.
    pub fn new(
        figures: LoopFigures,
        settings: &LoopSettings,
        long_requests: LoopLongRequests,
    ) -> CallTable {
        CallTable {
            calls: CallSlab::default(),
            counts: CallCounts::new(figures, settings.time_calls, long_requests),
            fresh: Vec::new(),
            abandoned: Vec::new(),
            proofs_end_ms: NEVER_MS,
            unsent: 0,
            slow: SlowCalls::of(settings),
        }
    }

    /// Returns what is counted of the loop.
    pub fn figures(&self) -> &LoopFigures {
        &self.counts.figures
    }

    /// Returns how many calls run.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Has the end of a call that administrates noted in the audit trail.
    #[cold]
    pub fn set_audited(&mut self, id: CallId, identity: Option<&Identity>) {
        if let (Some(running), Some(identity)) = (self.calls.get_mut(id), identity) {
            running.resources.make_rare().audited = Some(AuditedCall::of(identity));
        }
    }

    /// Returns whether a call runs still.
    pub fn is_running(&self, id: CallId) -> bool {
        self.calls.get(id).is_some()
    }

    /// Returns how many of them wait for their refusal.
    pub fn waiting_refusals(&self) -> usize {
        self.counts.refused
    }

    /// Returns how many calls of an identity run.
    #[inline]
    pub fn of_identity(&self, identity: IdentityKey) -> usize {
        self.counts.of_identity(identity)
    }

    /// Returns how many calls each identity has that has some, by its slot.
    #[cfg(test)]
    pub fn of_identities(&self) -> Vec<usize> {
        self.counts.of_identities()
    }

    /// Returns every running call, for the rare walks of draining and topic changes.
    pub fn ids(&self) -> impl Iterator<Item = CallId> + '_ {
        self.calls.ids()
    }

    /// Returns the running calls that wait for a topic.
    pub fn subscribers(&self) -> impl Iterator<Item = CallId> + '_ {
        let is_subscribed =
            |id: &CallId| (self.calls.get(*id)).is_some_and(|running| running.subscribed);
        self.ids().filter(is_subscribed)
    }

    /// Returns the running calls whose callers are not in the table any more, or prove nothing any
    /// more, to be ended.
    pub fn orphans(&mut self, identities: &IdentityTable, now_ms: u64) -> Vec<CallId> {
        let mut proofs_end_ms = NEVER_MS;
        let mut orphans = Vec::new();
        for id in self.calls.ids() {
            let Some(running) = self.calls.get(id).filter(|running| !running.is_refused()) else {
                continue;
            };
            if running.proved.is_good(identities, now_ms) {
                proofs_end_ms = proofs_end_ms.min(running.proved.until_ms);
            } else {
                orphans.push(id);
            }
        }
        self.proofs_end_ms = proofs_end_ms;
        orphans
    }

    /// Returns when the proof of a running call may end next, in milliseconds since 1970.
    #[inline]
    pub fn proofs_end_ms(&self) -> u64 {
        self.proofs_end_ms
    }

    /// Has a call end with the outcome of the commit that it has under way, as its caller is known
    /// no more. Returns false if it has none, and is to be ended now.
    pub fn end_with_commit(&mut self, id: CallId, why: Unauthenticated) -> bool {
        self.calls.get_mut(id).is_some_and(|running| {
            running.orphaned = Some(why);
            running.commits > 0 && running.method.kind() != Some(CallKind::Bidirectional)
        })
    }

    /// Returns why the caller of a call is known no more, if so.
    #[inline]
    pub fn orphaned(&self, id: CallId) -> Option<Unauthenticated> {
        self.calls.get(id)?.orphaned
    }

    /// Returns by what the caller of a call was found.
    pub fn identity(&self, id: CallId) -> Option<IdentityKey> {
        self.calls.get(id).map(|running| running.proved.key)
    }

    /// Returns the running call of a stream.
    #[inline]
    pub fn of_stream(&self, rpc: &RpcState, stream: StreamKey) -> Option<CallId> {
        self.calls
            .current(rpc.connection.token(stream).checked_sub(1)?)
    }

    /// Returns the connection of a call.
    #[inline]
    pub fn connection(&self, id: CallId) -> Option<ConnectionId> {
        self.calls.get(id).map(|running| running.connection)
    }

    /// Returns the stream of a call.
    pub fn stream(&self, id: CallId) -> Option<StreamKey> {
        self.calls.get(id).map(|running| running.stream)
    }

    /// Begins a call of a stream, or, of [`IdentityKey::NOBODY`], the wait for its refusal. Its
    /// state machine is made in its first step.
    pub fn begin(
        &mut self,
        rpc: &mut RpcState,
        stream: StreamKey,
        (method, proved): (Method, Proved),
        deadline_ns: u64,
        now_ns: u64,
    ) -> CallId {
        let id = self.calls.insert(RunningCall {
            connection: rpc.link.id,
            stream,
            method,
            proved,
            call: ServiceCall::Over,
            resources: CallResources::default(),
            deadline_ns,
            begin_ns: now_ns,
            wake_at_ns: u64::MAX,
            commits: 0,
            reads_from: None,
            reads_elsewhere: false,
            subscribed: false,
            orphaned: None,
        });
        self.proofs_end_ms = self.proofs_end_ms.min(proved.until_ms);
        // The token by which the stream names its call; 0 is a stream without one.
        rpc.connection.set_token(stream, id.index + 1);
        rpc.begin_call();
        self.counts.begin(method, proved.key);
        if let Some(slow) = &mut self.slow {
            slow.begin(
                (id.index, method),
                (&rpc.connection, rpc.received_ns),
                now_ns,
            );
        }
        id
    }

    /// Gives a call that outlives this tick a timer for its deadline.
    pub fn note_deadline(&mut self, id: CallId) {
        self.fresh.push(id);
    }

    /// Takes one step of a call and does what it asked for at once; what follows from it for the
    /// table is done, the rest is returned. `message` is what the step brings, if that lies by
    /// itself, so that the call may keep large parts of it without copying.
    #[inline]
    pub fn step(
        &mut self,
        context: &mut StepContext,
        shared: &Shared,
        rpc: &mut RpcState,
        output: &mut Vec<u8>,
        (id, message): (CallId, Option<&Bytes>),
        step: impl FnOnce(&mut ServiceCall, &Shared, &mut CallActions<'_>),
    ) -> StepEffects {
        let Some(running) = self.calls.get_mut(id) else {
            return StepEffects::default();
        };
        if let Some(slow) = tracker(&mut self.slow, id) {
            slow.step_begins(id.index, context.clock.read_ns());
        }
        let mut actions = CallActions {
            id,
            method: running.method,
            identity: running.proved.key,
            link: &rpc.link,
            stream: StreamHandle::new(&mut rpc.connection, running.stream, output),
            message,
            context: &mut *context,
            resources: &mut running.resources,
            effects: StepEffects::default(),
        };
        step(&mut running.call, shared, &mut actions);
        let mut effects = actions.effects;
        if let Some((commits, bytes)) = effects.written_from {
            effects.commits = (context.batch.commits() - commits) as u32;
            // What waits for the committer is held for the call until that answers; nothing does if
            // it gave up.
            let held_bytes = context.batch.write_bytes() - bytes;
            rpc.connection.reserve_more(running.stream, held_bytes);
        }
        if let Some(code) = effects.over {
            self.over(context, (rpc, output), id, code);
        } else {
            if effects != StepEffects::default() {
                running.subscribed |= effects.subscribed;
                running.commits += effects.commits;
                if let Some(at_ns) = effects.wake_at_ns {
                    running.wake_at_ns = at_ns;
                }
            }
            if self.slow.is_some() {
                self.note_wait(context, rpc, id);
            }
        }
        effects
    }

    /// The call answered: it is no more.
    fn over(
        &mut self,
        context: &StepContext,
        (rpc, output): (&mut RpcState, &mut Vec<u8>),
        id: CallId,
        code: Code,
    ) {
        // It stays where it is until then: to move it would cost more than all else here.
        let Some(running) = self.calls.get(id) else {
            return;
        };
        let is_under_way = running.commits > 0 || running.reads_elsewhere;
        if is_under_way && code == Code::DeadlineExceeded {
            self.abandoned.push((running.connection, id.tag()));
        }
        self.counts.end(context, rpc, running, code);
        rpc.end_call();
        let is_unsent = rpc.connection.end_call(running.stream);
        if let Some(slow) = tracker(&mut self.slow, id)
            && !running.is_refused()
        {
            let unsent = is_unsent.then_some(running.stream);
            slow_end(
                slow,
                context,
                rpc,
                id,
                SlowCallEnd::of((running.method, running.proved.key), code, unsent),
            );
        }
        if is_unsent && let Some(running) = self.calls.remove(id) {
            return self.note_unsent(context, rpc, output, (&running, code));
        }
        self.calls.free(id);
    }

    /// Ends the call of a stream that is gone.
    pub fn cancel(
        &mut self,
        context: &StepContext,
        rpc: &mut RpcState,
        stream: StreamKey,
        cause: CancelCause,
    ) {
        if let Some(id) = self.of_stream(rpc, stream)
            && let Some(running) = self.calls.get(id)
        {
            rpc.end_call();
            if running.commits > 0 || running.reads_elsewhere {
                self.abandoned.push((running.connection, id.tag()));
            }
            // What the caller has seen, if it has seen anything.
            let code = cause.told().unwrap_or(Code::Cancelled);
            self.counts.end(context, rpc, running, code);
            if let Some(slow) = tracker(&mut self.slow, id)
                && !running.is_refused()
            {
                slow_end(
                    slow,
                    context,
                    rpc,
                    id,
                    SlowCallEnd::of((running.method, running.proved.key), code, None),
                );
            }
            self.calls.free(id);
        }
        rpc.connection.forget(stream);
    }

    /// A call reads from an engine elsewhere, which is told if it ends before.
    pub fn note_reading_elsewhere(&mut self, id: CallId) {
        if let Some(running) = self.calls.get_mut(id) {
            running.reads_elsewhere = true;
        }
    }

    /// A commit of a call has its outcome.
    pub fn commit_is_over(&mut self, id: CallId) {
        if let Some(running) = self.calls.get_mut(id) {
            running.commits = running.commits.saturating_sub(1);
        }
    }

    /// Returns whether a commit of a call is under way.
    pub fn has_commits(&self, id: CallId) -> bool {
        (self.calls.get(id)).is_some_and(|running| running.commits > 0)
    }

    /// Returns whether a call waits for an event, for its refusal, or for more of its request.
    pub fn is_idle(&self, rpc: &RpcState, id: CallId) -> bool {
        (self.calls.get(id)).is_some_and(|running| {
            let awaits_request = || rpc.connection.awaits_request(running.stream);
            running.subscribed || running.is_refused() || awaits_request()
        })
    }

    /// Returns whether a call waits until the peer takes some of what is sent to it, or to others
    /// on its connection.
    pub fn awaits_taking(&self, rpc: &RpcState, id: CallId) -> bool {
        (self.calls.get(id)).is_some_and(|running| {
            rpc.connection.awaits_taking(running.stream) || rpc.deferred_reads.contains(id)
        })
    }

    /// Adds what a call will look at in its database, to be fetched before it is shown it.
    pub fn plan_read(&self, id: CallId, kept: &[u8], plan: &mut ReadPlan) {
        if let Some(running) = self.calls.get(id) {
            plan.begin(id.tag(), kept);
            running.call.plan_reads(kept, plan);
        }
    }

    /// Whether a call reads keys in their order.
    pub fn reads_in_order(&self, id: CallId) -> bool {
        let running = self.calls.get(id);
        running.is_some_and(|running| running.call.reads_in_order())
    }

    /// Notes that the short read of a call is fetched from a database on disk.
    pub fn set_reads_from(&mut self, id: CallId, database: DatabaseId) {
        if let Some(running) = self.calls.get_mut(id) {
            running.reads_from = Some(database);
        }
    }

    /// Returns the database on disk from which the short read of a call is fetched.
    pub fn reads_from(&self, id: CallId) -> Option<DatabaseId> {
        self.calls.get(id)?.reads_from
    }

    /// Returns when a call asked to be woken; `u64::MAX` if it did not.
    pub fn wake_at_ns(&self, id: CallId) -> Option<u64> {
        self.calls.get(id).map(|running| running.wake_at_ns)
    }

    /// Returns whether a call is due to be woken now, and clears its time: it may have asked for a
    /// later one since its timer was set.
    pub fn take_due_wake(&mut self, id: CallId, now_ns: u64) -> bool {
        let Some(running) = self.calls.get_mut(id) else {
            return false;
        };
        let stands = running.wake_at_ns <= now_ns;
        if stands {
            running.wake_at_ns = u64::MAX;
        }
        stands
    }

    /// Returns the connections and tags of commits whose callers have left in this tick, to be
    /// taken out.
    pub fn abandoned(&mut self) -> &mut Vec<(ConnectionId, u64)> {
        &mut self.abandoned
    }

    /// Returns whether such tags are to be passed on.
    pub fn has_abandoned(&self) -> bool {
        !self.abandoned.is_empty()
    }

    /// Ends a tick: gives calls that outlived the one in which they began a timer for their
    /// deadline, and counts how long those took that have ended.
    pub fn end_tick(&mut self, context: &StepContext, timers: &mut Timers) {
        self.counts.end_tick(&context.clock);
        for id in self.fresh.drain(..) {
            if let Some(running) = self.calls.get(id) {
                timers.set(running.deadline_ns, Timer::Deadline(id));
            }
        }
    }
}

/// The status of a call whose deadline has passed.
pub(crate) fn deadline_exceeded() -> Status {
    Status::new(
        Code::DeadlineExceeded,
        "the deadline of the call has passed",
    )
}
