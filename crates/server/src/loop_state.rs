//! Calls and their steps: from the events of a connection to what a call asks for, and back.

use std::borrow::Cow;
use std::sync::Arc;

use net::{Closed, ConnectionId, Io};
use service::{
    Actions, Call, CallHead, Code, LoopFigures, Method, RefusedFor, Shared, State, Status,
};
use store::durable::Mailbox;
use store::{Committer, DatabaseId, Outcomes};
use wire::{Cause, Connection, Event, Pause, StreamKey};

use crate::SharedWaker;
use crate::account::Held;
use crate::actions::wire_status;
use crate::admission::{self, Admission};
use crate::batch::TickBatch;
use crate::blobs::LoopBlobs;
use crate::calls::{CallId, Calls, Running};
use crate::clock::Clock;
use crate::connection::{ConnectionState, Protocol};
use crate::deferred_drop::DeferredDrop;
use crate::disk_write_queue::DiskWriteQueue;
use crate::drain::Drain;
use crate::durations::EndedCalls;
use crate::limits;
use crate::plain::Answer;
use crate::readers::LoopReaders;
use crate::settings::{Detail, FailedCall, Settings};
use crate::tasks::LoopTasks;
use crate::ticking::deadline_exceeded;
use crate::timers::{Timer, Timers};
use crate::turns::TurnQueue;
use crate::unpacking::{self, UnpackQueue};

/// What a loop is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoopRole {
    /// Many connections at once.
    Connections,
    /// One connection at a time, and one request of it after the other.
    OneConnection,
    /// Refusing connections, beside loops of one: it does what else has to be done now and then.
    Door,
}

/// All of a worker but its connections.
pub(crate) struct LoopState {
    pub settings: Arc<Settings>,
    pub shared: Arc<Shared>,
    pub calls: Calls,
    pub batch: TickBatch,
    pub timers: Timers,
    pub clock: Clock,
    pub outcomes: Outcomes,
    pub(crate) committer: Committer,
    pub(crate) deferred_drop: DeferredDrop,
    pub(crate) readers: LoopReaders,
    /// The way to the committer for writes to databases on disk.
    pub(crate) disk_writes: DiskWriteQueue,
    /// When it was last said that a database on disk could not be read.
    pub(crate) damage_told_ns: Option<u64>,
    pub(crate) admission: Admission,
    /// To and from the committer of the durable databases.
    pub(crate) mailbox: Option<Mailbox>,
    pub(crate) tasks: LoopTasks,
    pub(crate) blobs: LoopBlobs,
    pub(crate) role: LoopRole,
    /// Open connections of this loop.
    pub(crate) connections: usize,
    /// Calls with a deadline that began in this tick: only those that outlive it get an alarm.
    pub(crate) fresh: Vec<CallId>,
    /// Connections that have something to say although nothing came in.
    pub(crate) revisit: Vec<ConnectionId>,
    /// Connections of which nothing is taken until less waits for the committer, each once.
    pub(crate) held_back: Vec<ConnectionId>,
    /// Connections that wait for memory for their next large message.
    pub(crate) turn_queue: TurnQueue,
    /// Connections that have a compressed message under way.
    pub(crate) unpack_queue: UnpackQueue,
    /// One of them has gone on in this tick.
    pub(crate) has_unpacked: bool,
    /// Tags of commits whose callers have left in this tick.
    pub(crate) abandoned: Vec<u64>,
    pub(crate) drain: Option<Drain>,
    pub(crate) health_version: u64,
    pub(crate) figures: LoopFigures,
    /// How long calls took; `None`: nobody wants to know.
    pub(crate) ended_calls: Option<EndedCalls>,
    /// Asks this loop for a tick, from any thread.
    pub(crate) waker: SharedWaker,
    /// Memory for answers that calls have taken whose connection is not charged yet, in bytes.
    pub(crate) claimed_bytes: usize,
    /// A call has to try again to take some.
    pub(crate) claim_failed: bool,
    /// The call that was just shown its database waits until it may send a large answer.
    pub(crate) read_waits: bool,
    /// The call that was just brought a message wants it once more, when large answers may be
    /// produced.
    pub(crate) puts_back: bool,
    /// The call that was just brought the first part of a message wants it as a whole.
    pub(crate) wants_whole: bool,
}

/// What works for a loop beside it.
pub(crate) struct Helpers {
    pub deferred_drop: DeferredDrop,
    pub readers: LoopReaders,
    /// To the committer of the durable databases, if there are any.
    pub mailbox: Option<Mailbox>,
    pub tasks: LoopTasks,
    pub blobs: LoopBlobs,
    pub waker: SharedWaker,
}

impl LoopState {
    pub fn new(
        settings: Arc<Settings>,
        shared: Arc<Shared>,
        clock: Clock,
        admission: Admission,
        helpers: Helpers,
        role: LoopRole,
    ) -> LoopState {
        let Helpers {
            deferred_drop,
            readers,
            mailbox,
            tasks,
            blobs,
            waker,
        } = helpers;
        LoopState {
            batch: TickBatch::new(shared.store.write_batch(), shared.store.write_batch()),
            disk_writes: DiskWriteQueue::default(),
            damage_told_ns: None,
            committer: shared.store.committer(),
            health_version: shared.health.version(),
            figures: match role {
                LoopRole::OneConnection => shared.figures.add_thread(),
                LoopRole::Connections | LoopRole::Door => shared.figures.add_loop(),
            },
            ended_calls: settings.time_calls.then(EndedCalls::default),
            settings,
            shared,
            calls: Calls::default(),
            timers: Timers::default(),
            clock,
            outcomes: Outcomes::new(),
            deferred_drop,
            readers,
            admission,
            mailbox,
            role,
            tasks,
            blobs,
            connections: 0,
            fresh: Vec::new(),
            revisit: Vec::new(),
            held_back: Vec::new(),
            turn_queue: TurnQueue::default(),
            unpack_queue: UnpackQueue::default(),
            has_unpacked: false,
            abandoned: Vec::new(),
            drain: None,
            waker,
            claimed_bytes: 0,
            claim_failed: false,
            read_waits: false,
            puts_back: false,
            wants_whole: false,
        }
    }

    // --- connections

    pub fn connection_opened(&mut self, channel: &mut ConnectionState, now_ns: u64) {
        self.connections += 1;
        if self.settings.log.detail() >= Detail::Connections {
            self.settings.log.connection_opened(&channel.address);
        }
        let life_ms = if channel.refused.is_some() {
            limits::REFUSED_CONNECTION_LIFE_MS
        } else {
            limits::FIRST_BYTES_MS
        };
        self.arm(channel, now_ns + life_ms * 1_000_000);
    }

    pub fn start_http2(&mut self, channel: &mut ConnectionState, io: &mut Io, now_ns: u64) {
        let mut connection = Box::new(Connection::new(&self.settings.http2, now_ns));
        connection.start(&mut io.output);
        if channel.refused.is_some() || self.drain.is_some() {
            connection.drain(&mut io.output, now_ns);
        }
        channel.protocol = Protocol::Http2(connection);
    }

    /// Closes a connection that does not speak HTTP/2. Said once for each, as a rule to find a
    /// client that was pointed at the wrong port.
    pub fn refuse(&mut self, channel: &mut ConnectionState, io: &mut Io, what: &'static str) {
        self.settings.log.refused_greeting(what, &channel.address);
        channel.protocol = Protocol::Over;
        let unread = io.input.len();
        io.input.consume(unread);
        io.close_when_written();
    }

    /// The connection is gone, and so are the calls that ran on it.
    pub fn connection_closed(&mut self, mut channel: ConnectionState, why: Closed) {
        self.log_error(&mut channel);
        if self.settings.log.detail() >= Detail::Connections {
            self.log_end(&channel, why);
        }
        self.connections -= 1;
        self.leave_turns(&mut channel);
        self.leave_unpacking(&mut channel);
        let Protocol::Http2(connection) = &mut channel.protocol else {
            return;
        };
        connection.peer_closed();
        let mut nowhere = Vec::new();
        while let Some(event) = self.last_event(&mut channel, &mut nowhere) {
            if let Event::Cancelled { stream, cause } = event {
                self.cancelled(&mut channel, stream, cause);
            }
        }
        debug_assert_eq!(
            channel.running, 0,
            "every call of a connection ends with it"
        );
    }

    fn last_event(&self, channel: &mut ConnectionState, nowhere: &mut Vec<u8>) -> Option<Event> {
        channel
            .http2()?
            .poll_event(&[], &mut 0, nowhere, self.clock.tick_ns())
    }

    /// Takes events from a connection until its input is used up or its turn is over.
    pub fn walk(&mut self, channel: &mut ConnectionState, io: &mut Io, now_ns: u64) {
        if !matches!(channel.protocol, Protocol::Http2(_)) {
            let unread = io.input.len();
            io.input.consume(unread);
            return;
        }
        channel.refresh_pause();
        if let Protocol::Http2(connection) = &mut channel.protocol {
            connection.set_gather_bound(self.admission.gather_bound());
        }
        self.allow_turns(channel);
        self.allow_unpacking(channel);
        let mut consumed = 0;
        let mut turns = limits::EVENTS_PER_TURN;
        let long_work_before = self.batch.long_work();
        while !self.holds_back(channel, now_ns)
            && let Some(event) = self.next_event(channel, io, &mut consumed, now_ns)
        {
            turns = turns.saturating_sub(1 + extra_cost(channel));
            self.event(channel, io, event);
            self.note_growth(channel, io);
            if turns == 0 || io.output_is_full() {
                io.set_unfinished(true);
                break;
            }
            // What is long is not begun before the rest is looked at: the caller may have taken it
            // back.
            let begins_long_work = self.batch.long_work() > long_work_before;
            let is_next = ends_a_request(event) && !begins_long_work;
            if self.role == LoopRole::OneConnection && is_next {
                // If the connection has events, it is visited again for them.
                io.set_unfinished(consumed < io.input.len());
                break;
            }
        }
        io.input.consume(consumed);
        self.note_unpacking(channel);
        self.after_walk(channel, io, now_ns);
    }

    /// Whether nothing more is taken from a peer until the committer has taken some of what waits
    /// for it. It is visited again then, and not before: there is nothing to do for it.
    #[inline]
    fn holds_back(&mut self, channel: &mut ConnectionState, now_ns: u64) -> bool {
        channel.is_held_back = self.writes_are_many();
        if channel.is_held_back {
            if !std::mem::replace(&mut channel.is_in_held_back, true) {
                self.held_back.push(channel.id);
            }
            // If all of them were given up, the committer has nobody to wake.
            self.arm(channel, now_ns + limits::HELD_BACK_RETRY_MS * 1_000_000);
        }
        channel.is_held_back
    }

    /// Returns the connections that are to be visited since less waits for the committer.
    pub(crate) fn take_held_back(&mut self) -> Vec<ConnectionId> {
        match self.held_back.is_empty() || self.writes_are_many() {
            true => Vec::new(),
            false => std::mem::take(&mut self.held_back),
        }
    }

    /// Whether so much waits for the committer that nothing more is taken from any peer: a bound
    /// beside the account, which counts only for calls that live.
    #[inline]
    fn writes_are_many(&self) -> bool {
        let mailbox_bytes = (self.mailbox.as_ref()).map_or(0, |mailbox| mailbox.waiting_bytes());
        self.batch.write_bytes() + self.disk_writes.bytes() + mailbox_bytes
            > self.admission.waiting_write_bytes
    }

    /// Charges at once what calls have produced if it is more than a little, so that those that
    /// follow see it.
    #[inline]
    pub(crate) fn note_growth(&mut self, channel: &mut ConnectionState, io: &Io) {
        let Protocol::Http2(connection) = &mut channel.protocol else {
            return;
        };
        if connection.unsent_bytes() > channel.holding.unsent_bytes() + limits::SMALL_HOLDING_BYTES
        {
            self.charge(channel, io);
        }
    }

    fn next_event(
        &mut self,
        channel: &mut ConnectionState,
        io: &mut Io,
        consumed: &mut usize,
        now_ns: u64,
    ) -> Option<Event> {
        let Protocol::Http2(connection) = &mut channel.protocol else {
            return None;
        };
        connection.poll_event(io.input.bytes(), consumed, &mut io.output, now_ns)
    }

    /// What every visit to a connection ends with: waiting output, the end if it has come,
    /// counting, the next alarm.
    pub(crate) fn after_walk(&mut self, channel: &mut ConnectionState, io: &mut Io, now_ns: u64) {
        let Protocol::Http2(connection) = &mut channel.protocol else {
            return;
        };
        if connection.wants_transmit() {
            connection.transmit(&mut io.output, now_ns);
        }
        let is_all_taken = !io.is_unfinished() && !channel.is_held_back;
        if connection.close_reason().is_some() || (io.end_of_input() && is_all_taken) {
            io.close_when_written();
        }
        self.guard_account(channel, io, now_ns);
        self.after_step(channel, io);
        self.resume_reads(channel);
        self.settle_turns(channel, io, now_ns);
        // Behind it, as it may have found memory for a message.
        self.settle_unpacking(channel);
        if let Some(at_ns) = channel
            .http2()
            .and_then(|connection| connection.next_deadline_ns())
        {
            self.arm(channel, at_ns);
        }
        self.log_error(channel);
    }

    /// Charges what a connection holds now, and holds back what is produced for its peer
    /// accordingly. Who found no memory for a large message waits until it tries again.
    fn charge(&self, channel: &mut ConnectionState, io: &Io) -> Pause {
        let Protocol::Http2(connection) = &mut channel.protocol else {
            return Pause::No;
        };
        let now_ns = self.clock.tick_ns();
        channel.holding.change(held(connection, io), now_ns);
        let pause = channel.holding.pause();
        connection.set_pause(match pause {
            Pause::No if self.claim_failed => Pause::Large,
            pause => pause,
        });
        pause
    }

    /// Lets nothing be produced for a peer, and keeps its windows shut, while the account lets it
    /// hold no more; ends it to relieve the account.
    fn guard_account(&mut self, channel: &mut ConnectionState, io: &mut Io, now_ns: u64) {
        let pause = self.charge(channel, io);
        let Protocol::Http2(connection) = &mut channel.protocol else {
            return;
        };
        connection.set_windows_shut(pause != Pause::No, &mut io.output);
        if pause != Pause::No {
            channel.holding.relieve(now_ns);
            if channel.holding.evict_if_condemned() {
                connection.abort(
                    "it held most of what all peers may hold, and did not read",
                    &mut io.output,
                );
                return io.close_now();
            }
            // What is held may shrink elsewhere, while this peer can do nothing but wait.
            self.arm(channel, now_ns + limits::WINDOWS_SHUT_MS * 1_000_000);
        }
    }

    /// Has a read of a call wait until its connection has send capacity; for a large answer, if it
    /// was shown one.
    #[cold]
    pub(crate) fn defer_read(
        &mut self,
        channel: &mut ConnectionState,
        read: (DatabaseId, CallId),
        kept: &[u8],
    ) {
        channel.defers_large |= std::mem::take(&mut self.read_waits);
        channel
            .deferred_reads
            .push_back((read.0, read.1, kept.into()));
    }

    /// Takes up reads that have waited for send capacity.
    fn resume_reads(&mut self, channel: &mut ConnectionState) {
        if channel.deferred_reads.is_empty() {
            return;
        }
        let is_large = channel.defers_large;
        let has_capacity = (channel.http2()).is_some_and(|connection| match is_large {
            true => connection.has_large_capacity(),
            false => connection.has_capacity(),
        });
        if !has_capacity {
            return;
        }
        channel.defers_large = false;
        let count = channel.deferred_reads.len().min(limits::READS_RESUMED);
        for (database, call, kept) in channel.deferred_reads.drain(..count) {
            if self.calls.get(call).is_some() {
                self.batch.add_read(database, channel.id, call, &kept);
            }
        }
        if !channel.deferred_reads.is_empty() {
            self.revisit.push(channel.id);
        }
    }

    /// What every step of a call ends with, also outside of a walk: counting what is buffered now,
    /// and another visit if the step has moved something on that another call waits for.
    #[inline]
    pub(crate) fn after_step(&mut self, channel: &mut ConnectionState, io: &Io) {
        let pause = self.charge(channel, io);
        let Protocol::Http2(connection) = &mut channel.protocol else {
            return;
        };
        // What was taken is charged now.
        let claimed_bytes = std::mem::take(&mut self.claimed_bytes);
        if claimed_bytes > 0 {
            self.admission.account.end_claim(claimed_bytes);
        }
        // What the step has set free may be what a read waits for, and its peer need not say
        // anything more.
        let reads_may_go_on = !channel.deferred_reads.is_empty()
            && match channel.defers_large {
                true => connection.has_large_capacity(),
                false => connection.has_capacity(),
            };
        if connection.has_events() || reads_may_go_on {
            self.revisit.push(channel.id);
        }
        let now_ns = self.clock.tick_ns();
        if std::mem::take(&mut self.claim_failed) {
            self.arm(channel, now_ns + limits::CLAIM_RETRY_MS * 1_000_000);
        }
        if pause != Pause::No {
            self.arm(channel, now_ns + limits::WINDOWS_SHUT_MS * 1_000_000);
        }
    }

    /// Sets the connection's alarm, unless one rings before.
    pub(crate) fn arm(&mut self, channel: &mut ConnectionState, at_ns: u64) {
        if at_ns < channel.armed_ns {
            channel.armed_ns = at_ns;
            self.timers.set(at_ns, Timer::connection(channel.id));
        }
    }

    pub fn connection_alarm(&mut self, channel: &mut ConnectionState, io: &mut Io, now_ns: u64) {
        channel.armed_ns = u64::MAX;
        match &mut channel.protocol {
            Protocol::Undecided => self.refuse(channel, io, "no first bytes in time"),
            Protocol::Over => {}
            Protocol::Http2(_) if channel.refused.is_some() => io.close_when_written(),
            Protocol::Http2(_) => {
                // A turn that lapses lets the next one begin: by what is left now.
                self.allow_turns(channel);
                if let Some(connection) = channel.http2()
                    && connection
                        .next_deadline_ns()
                        .is_some_and(|at_ns| at_ns <= now_ns)
                {
                    connection.deadline_passed(&mut io.output, now_ns);
                }
                self.walk(channel, io, now_ns);
            }
        }
    }

    // --- events

    fn event(&mut self, channel: &mut ConnectionState, io: &mut Io, event: Event) {
        match event {
            Event::Request { stream, end } => self.request(channel, io, stream, end),
            Event::Message { stream, last } => self.message(channel, io, stream, last),
            Event::Part { stream, left, last } => self.part(channel, io, stream, left, last),
            Event::HalfClosed { stream } => self.half_closed(channel, io, stream),
            Event::Writable { stream } => {
                self.step_of(channel, io, stream, |call, shared, step| {
                    call.writable(shared, step)
                })
            }
            Event::Cancelled { stream, cause } => self.cancelled(channel, stream, cause),
            Event::Body { stream, last } => self.body(channel, io, stream, last),
            Event::Response { .. } | Event::Finished { .. } => {
                debug_assert!(false, "events of the client role")
            }
        }
    }

    fn request(
        &mut self,
        channel: &mut ConnectionState,
        io: &mut Io,
        stream: StreamKey,
        end: bool,
    ) {
        let Protocol::Http2(connection) = &mut channel.protocol else {
            return;
        };
        let head = connection.head();
        if !head.is_grpc() {
            return self.plain_request(channel, io, stream, end);
        }
        let Some(method) = route(connection) else {
            self.figures.refused(RefusedFor::UnknownMethod);
            let status = no_such_method(connection.head().path());
            self.settings.log_failure(&FailedCall {
                method: None,
                path: &lossy(connection.head().path()),
                code: status.code,
                message: "there is no such method",
                peer: &channel.address,
            });
            return connection.finish(stream, &mut io.output, &wire_status(status));
        };
        if let Err(reason) = self.admit(channel) {
            self.figures.refused(reason);
            let status = admission::status(reason);
            self.log_refusal(channel, method, &status);
            let connection = channel.http2().expect("matched above");
            return admission::refuse(connection, stream, &mut io.output, status);
        }
        self.begin(channel, io, stream, method, end);
    }

    fn plain_request(
        &mut self,
        channel: &mut ConnectionState,
        io: &mut Io,
        stream: StreamKey,
        end: bool,
    ) {
        let Protocol::Http2(connection) = &mut channel.protocol else {
            return;
        };
        let head = connection.head();
        let is_waiting = (head.get(b"expect"))
            .is_some_and(|value| !end && value.eq_ignore_ascii_case(b"100-continue"));
        match service::http::route(head.method(), head.path()) {
            Some(method) => self.plain_call(channel, io, stream, method, end),
            None => {
                let answer = Answer::to(connection);
                connection.set_token(stream, answer.token());
                if end {
                    self.answer_plain(channel, io, stream);
                }
            }
        }
        if let (Protocol::Http2(connection), true) = (&mut channel.protocol, is_waiting) {
            connection.send_continue(stream, &mut io.output);
        }
    }

    /// A plain request that is a call.
    fn plain_call(
        &mut self,
        channel: &mut ConnectionState,
        io: &mut Io,
        stream: StreamKey,
        method: Method,
        end: bool,
    ) {
        if let Err(reason) = self.admit(channel) {
            self.figures.refused(reason);
            let status = admission::status(reason);
            self.log_refusal(channel, method, &status);
            if let Protocol::Http2(connection) = &mut channel.protocol {
                crate::plain::fail(connection, &mut io.output, stream, &status, false);
            }
            return;
        }
        self.begin(channel, io, stream, method, end);
    }

    fn admit(&self, channel: &ConnectionState) -> Result<(), RefusedFor> {
        if self.drain.is_some() {
            return Err(RefusedFor::Stopping);
        }
        if let Some(reason) = channel.refused {
            return Err(reason);
        }
        debug_assert!(
            channel.running < self.settings.http2.max_streams as usize,
            "the protocol refuses streams beyond its limit, running ones included"
        );
        (self.admission).admit(self.calls.len(), channel.running, &channel.holding)
    }

    fn begin(
        &mut self,
        channel: &mut ConnectionState,
        io: &mut Io,
        stream: StreamKey,
        method: Method,
        end: bool,
    ) {
        let Protocol::Http2(connection) = &mut channel.protocol else {
            return;
        };
        let timeout_ns = connection.head().timeout_ns();
        let deadline_ns = timeout_ns.map_or(u64::MAX, |ns| self.clock.tick_ns().saturating_add(ns));
        let id = self.calls.insert(Running {
            connection: channel.id,
            stream,
            method,
            has_plain_head: false,
            call: Call::Over,
            deadline_ns,
            begin_ns: self.clock.tick_ns(),
            wake_at_ns: u64::MAX,
            commits: 0,
            reads_from: None,
            subscribed: false,
            task: None,
        });
        connection.set_token(stream, token(id));
        channel.running += 1;
        self.figures.started(method);
        if timeout_ns == Some(0) {
            // Before anything is done for it: what is done within this tick would be answered.
            let status = deadline_exceeded();
            return self.step(channel, &mut io.output, id, |_, _, step| {
                step.finish(status)
            });
        }
        if deadline_ns != u64::MAX {
            self.fresh.push(id);
        }
        let metadata = crate::metadata::Snapshot::of(connection, method);
        let peer = channel.peer;
        self.step(channel, &mut io.output, id, |call, shared, step| {
            let head = CallHead {
                deadline_ns,
                peer,
                metadata: &metadata,
            };
            *call = Call::started(method, &head, shared, step);
        });
        if end {
            self.step(channel, &mut io.output, id, |call, shared, step| {
                call.half_closed(shared, step)
            });
        }
    }

    fn message(
        &mut self,
        channel: &mut ConnectionState,
        io: &mut Io,
        stream: StreamKey,
        last: bool,
    ) {
        let Some(id) = self.call_of(channel, stream) else {
            return;
        };
        let Protocol::Http2(connection) = &mut channel.protocol else {
            return;
        };
        let message = connection.take_message();
        let bytes = message.bytes(io.input.bytes());
        let shared_bytes = message.shared();
        self.step_with(
            channel,
            &mut io.output,
            id,
            shared_bytes,
            |call, shared, step| call.message(bytes, last, shared, step),
        );
        let Protocol::Http2(connection) = &mut channel.protocol else {
            return;
        };
        if std::mem::take(&mut self.puts_back) {
            let (input, output) = (io.input.bytes(), &mut io.output);
            return connection.put_back(stream, message, input, last, output);
        }
        connection.give_back(message);
        if !last {
            connection.release(stream, &mut io.output);
        }
    }

    /// Some of a message of a call that takes parts.
    fn part(
        &mut self,
        channel: &mut ConnectionState,
        io: &mut Io,
        stream: StreamKey,
        left: u32,
        last: bool,
    ) {
        let (Some(id), Protocol::Http2(connection)) =
            (self.call_of(channel, stream), &mut channel.protocol)
        else {
            return;
        };
        let part = connection.take_message();
        let bytes = part.bytes(io.input.bytes());
        self.step(channel, &mut io.output, id, |call, shared, step| {
            call.part(bytes, left as usize, last, shared, step)
        });
        let wants_whole = std::mem::take(&mut self.wants_whole);
        let Protocol::Http2(connection) = &mut channel.protocol else {
            return;
        };
        if wants_whole {
            let (input, output) = (io.input.bytes(), &mut io.output);
            return connection.gather_message(stream, part, input, output);
        }
        connection.give_back(part);
        if !last {
            connection.release(stream, &mut io.output);
        }
    }

    fn half_closed(&mut self, channel: &mut ConnectionState, io: &mut Io, stream: StreamKey) {
        self.answer_plain(channel, io, stream);
        self.step_of(channel, io, stream, |call, shared, step| {
            call.half_closed(shared, step)
        });
    }

    /// The body of a plain request that is no call is thrown away.
    fn body(&mut self, channel: &mut ConnectionState, io: &mut Io, stream: StreamKey, last: bool) {
        if self.call_of(channel, stream).is_some() {
            return self.message(channel, io, stream, last);
        }
        let Protocol::Http2(connection) = &mut channel.protocol else {
            return;
        };
        connection.release(stream, &mut io.output);
        if last {
            self.answer_plain(channel, io, stream);
        }
    }

    /// Answers a plain request that is complete.
    fn answer_plain(&mut self, channel: &mut ConnectionState, io: &mut Io, stream: StreamKey) {
        let Protocol::Http2(connection) = &mut channel.protocol else {
            return;
        };
        if let Some(answer) = Answer::from_token(connection.token(stream)) {
            answer.send(connection, &mut io.output, stream, &self.settings.about);
        }
    }

    fn cancelled(&mut self, channel: &mut ConnectionState, stream: StreamKey, cause: Cause) {
        let id = self.call_of(channel, stream);
        if let Some(id) = id
            && let Some(mut running) = self.calls.remove(id)
        {
            channel.running -= 1;
            if running.commits > 0 {
                self.abandoned.push(id.tag());
            }
            // What the caller has seen, if it has seen anything.
            let told = (cause.told()).and_then(|code| Code::from_number(code as u64));
            let code = told.unwrap_or(Code::Cancelled);
            self.ended(&running, code, &channel.address);
            running.call.cancelled(&self.shared);
        }
        if let Protocol::Http2(connection) = &mut channel.protocol {
            connection.forget(stream);
        }
    }
}

/// Whether a caller has said all: what its call does now is done, and answered, before anything
/// else is looked at.
fn ends_a_request(event: Event) -> bool {
    match event {
        Event::Request { end, .. } => end,
        Event::Message { last, .. } | Event::Part { last, .. } => last,
        Event::HalfClosed { .. } => true,
        _ => false,
    }
}

/// What an event costs more than others, in events.
#[inline]
fn extra_cost(channel: &mut ConnectionState) -> usize {
    match channel.http2() {
        Some(connection) if connection.message_was_compressed() => {
            unpacking::cost_in_events(connection)
        }
        _ => 0,
    }
}

fn route(connection: &mut Connection) -> Option<Method> {
    if let Some(number) = connection.head_route() {
        return Some(Method::ALL[number as usize]);
    }
    let method = service::route(connection.head().path())?;
    connection.set_head_route(method as u32);
    Some(method)
}

/// What a connection holds, with the output that the driver has yet to write.
#[inline]
pub(crate) fn held(connection: &Connection, io: &Io) -> Held {
    let output_bytes = large_output_bytes(io);
    let calls_bytes = calls_bytes(connection.running());
    let all_bytes = connection.held_bytes() + output_bytes + calls_bytes;
    Held {
        charged_bytes: connection.buffered_bytes() + output_bytes + calls_bytes,
        all_bytes,
        unsent_bytes: connection.unsent_bytes() + output_bytes,
        sent_bytes: connection.sent_bytes(),
        // Of nobody who holds little is it asked.
        waits_for_memory: all_bytes >= limits::SMALL_HOLDING_BYTES
            && connection.has_put_back()
            && connection.queued_bytes() + output_bytes < limits::SMALL_HOLDING_BYTES,
    }
}

/// What so many open streams and their calls take, beside what they have sent and will be sent.
#[inline]
fn calls_bytes(streams: usize) -> usize {
    streams.saturating_sub(limits::CALLS_IN_ANY_CASE) * limits::CALL_BYTES
}

/// The output that waits for the socket, if it is more than what is usually written at once. The
/// driver calls `Handler::writable` when it has become less, so that it is not counted for longer.
#[inline]
pub(crate) fn large_output_bytes(io: &Io) -> usize {
    let bytes = io.output.len();
    if bytes > net::limits::OUTPUT_LOW_WATER_BYTES {
        bytes
    } else {
        0
    }
}

#[cold]
fn no_such_method(path: &[u8]) -> Status {
    Status::unimplemented(format!("there is no method {} here", lossy(path)))
}

/// Returns as much of a path as goes into a message.
fn lossy(path: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(&path[..path.len().min(limits::PATH_IN_MESSAGE_BYTES)])
}

/// The token by which a stream names its call; 0 is a stream without one.
pub(crate) fn token(id: CallId) -> u32 {
    id.index + 1
}
