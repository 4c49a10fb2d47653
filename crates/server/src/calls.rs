//! The running calls of one loop, and their steps.

mod long_requests;

use bytes::Bytes;
use net::ConnectionId;
use service::identities::{Identity, IdentityKey, IdentityTable, NEVER_MS, Unauthenticated};
use service::method::CallKind;
use service::{Call, Code, LoopFigures, Method, PlanReads, Shared, Status};
use store::DatabaseId;
use store::tree::ReadPlan;
use wire::{Cause, StreamKey};

use crate::actions::{CallResources, CallStep, Effects, StepContext};
use crate::audit::{self, AuditedCall, EndedCall};
use crate::audit_record::AuditCaller;
use crate::call_id::CallId;
use crate::connection::Http2State;
use crate::durations::EndedCalls;
use crate::peer_identity::Proved;
use crate::settings::Detail;
use crate::stream::StreamHandle;
use crate::timers::{Timer, Timers};

/// One running call: where it came from, and its state machine.
struct Running {
    connection: ConnectionId,
    stream: StreamKey,
    method: Method,
    /// Whose call it is; [`IdentityKey::NOBODY`] of one whose refusal is delayed, which is not
    /// counted among calls that began.
    proved: Proved,
    call: Call,
    resources: CallResources,
    /// `u64::MAX`: the caller set no deadline.
    deadline_ns: u64,
    /// The time of the tick in which it began.
    begin_ns: u64,
    /// When it asked to be woken; an alarm with another time is an earlier wish, taken back.
    wake_at_ns: u64,
    /// Commits of it that are with the committer; one that was begun and given up counts too.
    commits: u32,
    /// The database on disk that its short read is fetched from.
    reads_from: Option<DatabaseId>,
    /// Wants to be woken when the topic it subscribed to changes.
    subscribed: bool,
    /// Its caller was revoked, or has expired: it ends with the outcome of its commit.
    is_orphan: bool,
}

impl Running {
    fn is_refused(&self) -> bool {
        self.proved.key == IdentityKey::NOBODY
    }
}

struct CallSlot {
    generation: u32,
    running: Option<Running>,
}

/// A slab of running calls. Slots are reused, so the steady state allocates nothing.
#[derive(Default)]
struct Slab {
    slots: Vec<CallSlot>,
    free: Vec<u32>,
}

impl Slab {
    fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn insert(&mut self, running: Running) -> CallId {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            debug_assert!(slot.running.is_none(), "a free slot holds no call");
            slot.running = Some(running);
            return CallId {
                index,
                generation: slot.generation,
            };
        }
        let index =
            u32::try_from(self.slots.len()).expect("running calls are bounded far below 2^32");
        self.slots.push(CallSlot {
            generation: 0,
            running: Some(running),
        });
        CallId {
            index,
            generation: 0,
        }
    }

    fn get(&self, id: CallId) -> Option<&Running> {
        let slot = self.slots.get(id.index as usize)?;
        slot.running
            .as_ref()
            .filter(|_| slot.generation == id.generation)
    }

    fn get_mut(&mut self, id: CallId) -> Option<&mut Running> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation == id.generation {
            slot.running.as_mut()
        } else {
            None
        }
    }

    /// The id of the call that is in a slot now. The stream that carries `index` as its token is
    /// alive, so is its call.
    fn current(&self, index: u32) -> Option<CallId> {
        let slot = self.slots.get(index as usize)?;
        slot.running.as_ref()?;
        Some(CallId {
            index,
            generation: slot.generation,
        })
    }

    fn remove(&mut self, id: CallId) -> Option<Running> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        let running = slot.running.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index);
        Some(running)
    }

    fn ids(&self) -> impl Iterator<Item = CallId> + '_ {
        (0..self.slots.len() as u32).filter_map(|index| self.current(index))
    }
}

/// The running calls of one loop.
pub(crate) struct CallTable {
    calls: Slab,
    /// Calls among them that wait for their refusal.
    refused: usize,
    /// How many of them each identity has, by its slot.
    of_identities: Vec<usize>,
    /// Calls with a deadline that began in this tick: only those that outlive it get an alarm.
    fresh: Vec<CallId>,
    /// Connections and tags of commits whose callers have left in this tick.
    abandoned: Vec<(ConnectionId, u64)>,
    /// No proof of a running call ends before, nor of one whose answer waits.
    proofs_end_ms: u64,
    /// Connections on which answers of calls wait that have ended.
    unsent: usize,
    figures: LoopFigures,
    /// How long calls took; `None`: nobody wants to know.
    ended_calls: Option<EndedCalls>,
}

impl CallTable {
    /// Makes an empty table, which counts in `figures`, and how long calls take if that is wanted.
    pub fn new(figures: LoopFigures, time_calls: bool) -> CallTable {
        CallTable {
            calls: Slab::default(),
            refused: 0,
            of_identities: Vec::new(),
            fresh: Vec::new(),
            abandoned: Vec::new(),
            proofs_end_ms: NEVER_MS,
            unsent: 0,
            figures,
            ended_calls: time_calls.then(EndedCalls::default),
        }
    }

    /// Returns what is counted of the loop.
    pub fn figures(&self) -> &LoopFigures {
        &self.figures
    }

    /// Returns how many calls run.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Has the end of a call that administrates noted in the audit trail.
    #[cold]
    pub fn set_audited(&mut self, id: CallId, identity: Option<&Identity>) {
        if let (Some(running), Some(identity)) = (self.calls.get_mut(id), identity) {
            running.resources.audited = Some(Box::new(AuditedCall::of(identity)));
        }
    }

    /// Returns whether a call runs still.
    pub fn is_running(&self, id: CallId) -> bool {
        self.calls.get(id).is_some()
    }

    /// Returns how many of them wait for their refusal.
    pub fn waiting_refusals(&self) -> usize {
        self.refused
    }

    /// Returns how many calls of an identity run.
    #[inline]
    pub fn of_identity(&self, identity: IdentityKey) -> usize {
        self.of_identities
            .get(identity.slot())
            .map_or(0, |calls| *calls)
    }

    /// Returns how many calls each identity has that has some, by its slot.
    #[cfg(test)]
    pub fn of_identities(&self) -> Vec<usize> {
        let counts = self.of_identities.iter().copied();
        counts.filter(|calls| *calls > 0).collect()
    }

    #[inline]
    fn begin_of_identity(&mut self, identity: IdentityKey) {
        let slot = identity.slot();
        if slot >= self.of_identities.len() {
            // There are as many slots as tokens and listeners.
            self.of_identities.resize(slot + 1, 0);
        }
        self.of_identities[slot] += 1;
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

    /// Returns whether answers of calls wait that have ended, and whose callers may be revoked.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        self.unsent > 0
    }

    /// Keeps in view what waits on the stream of a call that has ended. What a listener gives no
    /// change takes away; what comes behind the end of its caller is cut off at once.
    #[cold]
    fn note_unsent(
        &mut self,
        context: &StepContext,
        http2: &mut Http2State,
        output: &mut Vec<u8>,
        running: &Running,
    ) {
        let (identities, now_ms) = (&context.identities, context.clock.store_ms());
        let identity = identities.get(running.proved.key);
        if running.is_refused() || identity.is_some_and(Identity::is_anonymous) {
            return;
        }
        if !running.proved.is_good(identities, now_ms) {
            let status = Unauthenticated::Ended.status();
            return http2.connection.cut_off(running.stream, output, &status);
        }
        self.unsent += usize::from(http2.unsent_answers.is_empty());
        let answer = (running.stream, running.proved);
        http2.unsent_answers.push(&http2.connection, answer);
        self.proofs_end_ms = self.proofs_end_ms.min(running.proved.until_ms);
    }

    /// Cuts off the answers on a connection whose callers are not in the table any more, or prove
    /// nothing any more.
    pub fn cut_off_unsent(
        &mut self,
        context: &StepContext,
        http2: &mut Http2State,
        output: &mut Vec<u8>,
    ) {
        let (identities, now_ms) = (&context.identities, context.clock.store_ms());
        let (answers, connection) = (&mut http2.unsent_answers, &mut http2.connection);
        let orphans = answers.take_orphans(connection, identities, now_ms);
        for stream in orphans {
            connection.cut_off(stream, output, &Unauthenticated::Ended.status());
        }
        match answers.proofs_end_ms() {
            Some(end_ms) => self.proofs_end_ms = self.proofs_end_ms.min(end_ms),
            None => self.unsent -= 1,
        }
    }

    /// Forgets the answers of a connection if nothing waits on it any more.
    #[inline]
    pub fn settle_unsent(&mut self, http2: &mut Http2State) {
        if http2.connection.queued_bytes() == 0 {
            self.forget_unsent(http2);
        }
    }

    /// Forgets the answers of a connection.
    #[inline]
    pub fn forget_unsent(&mut self, http2: &mut Http2State) {
        if !http2.unsent_answers.is_empty() {
            http2.unsent_answers.clear();
            self.unsent -= 1;
        }
    }

    /// Returns when the proof of a running call may end next, in milliseconds since 1970.
    #[inline]
    pub fn proofs_end_ms(&self) -> u64 {
        self.proofs_end_ms
    }

    /// Has a call end with the outcome of the commit that it has under way, as its caller is known
    /// no more. Returns false if it has none, and is to be ended now.
    pub fn end_with_commit(&mut self, id: CallId) -> bool {
        self.calls.get_mut(id).is_some_and(|running| {
            running.is_orphan = true;
            running.commits > 0 && running.method.kind() != Some(CallKind::Bidirectional)
        })
    }

    /// Returns whether the caller of a call is known no more.
    #[inline]
    pub fn is_orphan(&self, id: CallId) -> bool {
        self.calls.get(id).is_some_and(|running| running.is_orphan)
    }

    /// Returns the running call of a stream.
    #[inline]
    pub fn of_stream(&self, http2: &Http2State, stream: StreamKey) -> Option<CallId> {
        self.calls
            .current(http2.connection.token(stream).checked_sub(1)?)
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
        http2: &mut Http2State,
        stream: StreamKey,
        (method, proved): (Method, Proved),
        deadline_ns: u64,
        now_ns: u64,
    ) -> CallId {
        let id = self.calls.insert(Running {
            connection: http2.link.id,
            stream,
            method,
            proved,
            call: Call::Over,
            resources: CallResources::default(),
            deadline_ns,
            begin_ns: now_ns,
            wake_at_ns: u64::MAX,
            commits: 0,
            reads_from: None,
            subscribed: false,
            is_orphan: false,
        });
        self.proofs_end_ms = self.proofs_end_ms.min(proved.until_ms);
        // The token by which the stream names its call; 0 is a stream without one.
        http2.connection.set_token(stream, id.index + 1);
        http2.begin_call();
        match proved.key {
            IdentityKey::NOBODY => self.refused += 1,
            _ => {
                self.begin_of_identity(proved.key);
                self.figures.started(method);
            }
        }
        id
    }

    /// Gives a call that outlives this tick an alarm for its deadline.
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
        http2: &mut Http2State,
        output: &mut Vec<u8>,
        (id, message): (CallId, Option<&Bytes>),
        step: impl FnOnce(&mut Call, &Shared, &mut CallStep<'_>),
    ) -> Effects {
        let Some(running) = self.calls.get_mut(id) else {
            return Effects::default();
        };
        let mut actions = CallStep {
            id,
            method: running.method,
            identity: running.proved.key,
            link: &http2.link,
            stream: StreamHandle::new(&mut http2.connection, running.stream, output),
            message,
            context: &mut *context,
            resources: &mut running.resources,
            effects: Effects::default(),
        };
        step(&mut running.call, shared, &mut actions);
        let mut effects = actions.effects;
        if let Some((commits, bytes)) = effects.written_from {
            effects.commits = (context.batch.commits() - commits) as u32;
            // What waits for the committer is held for the call until that answers; nothing does if
            // it gave up.
            let held_bytes = context.batch.write_bytes() - bytes;
            http2.connection.reserve_more(running.stream, held_bytes);
        }
        if let Some(code) = effects.over {
            self.over(context, (http2, output), id, code);
        } else if effects != Effects::default() {
            running.subscribed |= effects.subscribed;
            running.commits += effects.commits;
            if let Some(at_ns) = effects.wake_at_ns {
                running.wake_at_ns = at_ns;
            }
        }
        effects
    }

    /// The call answered: it is no more.
    fn over(
        &mut self,
        context: &StepContext,
        (http2, output): (&mut Http2State, &mut Vec<u8>),
        id: CallId,
        code: Code,
    ) {
        if let Some(running) = self.calls.remove(id) {
            if running.commits > 0 && code == Code::DeadlineExceeded {
                self.abandoned.push((running.connection, id.tag()));
            }
            self.ended(context, http2, &running, code);
            http2.end_call();
            http2.connection.set_token(running.stream, 0);
            if http2.connection.has_unsent(running.stream) {
                self.note_unsent(context, http2, output, &running);
            }
        }
    }

    /// Ends the call of a stream that is gone.
    pub fn cancel(
        &mut self,
        context: &StepContext,
        http2: &mut Http2State,
        stream: StreamKey,
        cause: Cause,
    ) {
        if let Some(id) = self.of_stream(http2, stream)
            && let Some(running) = self.calls.remove(id)
        {
            http2.end_call();
            if running.commits > 0 {
                self.abandoned.push((running.connection, id.tag()));
            }
            // What the caller has seen, if it has seen anything.
            let code = cause.told().unwrap_or(Code::Cancelled);
            self.ended(context, http2, &running, code);
        }
        http2.connection.forget(stream);
    }

    /// Counts a call that has ended.
    #[inline]
    fn ended(
        &mut self,
        context: &StepContext,
        http2: &mut Http2State,
        running: &Running,
        code: Code,
    ) {
        if running.is_refused() {
            self.refused -= 1;
            return;
        }
        self.of_identities[running.proved.key.slot()] -= 1;
        let (settings, clock) = (&context.settings, &context.clock);
        self.figures.ended(running.method, code);
        if let Some(calls) = &mut self.ended_calls {
            calls.add(running.method, running.begin_ns, clock, &self.figures);
        }
        if settings.log.detail() >= Detail::Calls {
            let took_ns = clock.read_ns().saturating_sub(running.begin_ns);
            (settings.log).call_ended(running.method, code, took_ns, &http2.link.address);
        }
        if running.resources.audited.is_some() || audit::is_denial(code) {
            audit_ended(context, http2, running, code);
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

    /// Returns whether it is not this server's turn to do something for a call.
    pub fn only_waits(&self, http2: &Http2State, id: CallId) -> bool {
        (self.calls.get(id)).is_some_and(|running| {
            running.subscribed
                || running.is_refused()
                || http2.connection.waits_for_peer(running.stream)
        })
    }

    /// Adds what a call will look at in its database, to be fetched before it is shown it.
    pub fn plan_read(&self, id: CallId, kept: &[u8], plan: &mut ReadPlan) {
        if let Some(running) = self.calls.get(id) {
            plan.begin(id.tag(), kept);
            running.call.plan_reads(kept, plan);
        }
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

    /// Returns whether a call still wants to be woken now: it may have asked for a later time
    /// since. Takes the wish.
    pub fn take_wish(&mut self, id: CallId, now_ns: u64) -> bool {
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

    /// Ends a tick: gives calls that outlived the one in which they began an alarm for their
    /// deadline, and counts how long those took that have ended.
    pub fn end_tick(&mut self, context: &StepContext, timers: &mut Timers) {
        if let Some(calls) = &mut self.ended_calls {
            calls.count(&context.clock, &self.figures);
        }
        for id in self.fresh.drain(..) {
            if let Some(running) = self.calls.get(id) {
                timers.set(running.deadline_ns, Timer::Deadline(id));
            }
        }
    }
}

/// Notes the end of a call that administrates, or that was denied, in the audit trail.
#[cold]
fn audit_ended(context: &StepContext, http2: &mut Http2State, running: &Running, code: Code) {
    let audited = running.resources.audited.as_deref();
    let denial = running.resources.denial.as_deref();
    let identity = context.identities.get(running.proved.key);
    let ended = EndedCall {
        method: running.method,
        code,
        may_have_changed: matches!(code, Code::Ok | Code::Unknown) || running.commits > 0,
        key: identity.map(|_| running.proved.key),
        caller: audited.map_or_else(|| AuditCaller::of(identity), AuditedCall::caller),
        subject: audited.map_or("", AuditedCall::subject),
        detail: denial.or(audited.map(AuditedCall::detail)).unwrap_or(""),
    };
    let Http2State { link, denials, .. } = http2;
    let now_ns = context.clock.tick_ns();
    let (log, peer) = (&*context.settings.log, (&link.address, link.caller.address));
    (context.audit).note(log, peer, denials, &ended, now_ns);
}

/// The status of a call whose deadline has passed.
pub(crate) fn deadline_exceeded() -> Status {
    Status::new(
        Code::DeadlineExceeded,
        "the deadline of the call has passed",
    )
}
