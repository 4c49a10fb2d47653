//! What a call may ask of the server, carried out on its stream and in the tick's batch.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use net::ConnectionId;
use service::identities::{Identity, IdentityKey, IdentityTable, Proof};
use service::request_subject::RequestSubject;
use service::rights::DEFAULT_DATABASE;
use service::{
    Administration, BlobAccess, CallClock, CallerId, Code, DatabaseAccess, MessageParts, Method,
    Permissions, PlainResponse, RequestFlow, ResponseHeaders, ResponseMemory, Responses, SendRoom,
    Status, Task, TaskRefusal, Topic, Wakeups,
};
use store::blob::{Sealed, Work};
use store::{
    ChangeNews, Commit, Condition, DatabaseConfig, DatabaseId, LogReading, Mode, ReplicaReading,
    Source,
};
use wire::{Pause, SharedBytes};

use crate::account::LongClaim;
use crate::admission::Admission;
use crate::audit;
use crate::audit::{AuditTrail, AuditedCall};
use crate::batch::{LongWork, TickBatch};
use crate::blobs::LoopBlobs;
use crate::call_id::{CallId, joined};
use crate::clock::LoopClock;
use crate::connection::Link;
use crate::limits;
use crate::plain;
use crate::settings::{FailedCall, LoopSettings};
use crate::stream::StreamHandle;
use crate::tasks::{LoopTasks, TaskCaller, TaskHandle};
use crate::waiting_request::WaitingRequest;
use crate::watchers::{LogRead, ReplicaRead, Watchers};
use crate::wrong_tokens::WrongTokens;

/// What the steps of the calls of a loop work with.
pub(crate) struct StepContext {
    pub settings: Arc<LoopSettings>,
    pub clock: LoopClock,
    /// Who may call, as this loop knows it.
    pub identities: Arc<IdentityTable>,
    pub batch: TickBatch,
    pub admission: Admission,
    pub tasks: LoopTasks,
    pub blobs: LoopBlobs,
    /// Those of all peers of the server.
    pub wrong_tokens: Arc<WrongTokens>,
    pub watchers: Watchers,
    pub audit: Arc<AuditTrail>,
}

/// What is kept for a call beside its state machine, and goes with it.
#[derive(Default)]
pub(crate) struct CallResources {
    /// Of a plain request: its answer has begun.
    has_plain_head: bool,
    /// What few calls have: each of the others moves and drops no more than this.
    rare: Option<Box<RareResources>>,
}

/// What few calls have.
#[derive(Default)]
pub(crate) struct RareResources {
    /// What is done for it beside the loop.
    task: Option<TaskHandle>,
    /// Of a call that administrates.
    pub audited: Option<AuditedCall>,
    /// What the caller was told who may not do what the call asks for.
    pub denial: Option<Box<str>>,
    /// The database that the denied request names.
    pub denied_database: Option<Box<str>>,
    /// Its request, if that waits for its turn among long work.
    pub request: Option<WaitingRequest>,
    /// What that was, if what it asks for is with the committer, in bytes.
    pub under_way_bytes: usize,
}

impl CallResources {
    /// Returns what few calls have, if this one has some of it.
    #[inline]
    pub fn rare(&self) -> Option<&RareResources> {
        self.rare.as_deref()
    }

    /// Returns the same, to be changed.
    #[inline]
    pub fn rare_mut(&mut self) -> Option<&mut RareResources> {
        self.rare.as_deref_mut()
    }

    /// Returns the same; from now on the call has some of it.
    #[cold]
    pub fn make_rare(&mut self) -> &mut RareResources {
        self.rare.get_or_insert_default()
    }
}

/// What a step asks to be given once more, or otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum StepAgain {
    /// Nothing.
    #[default]
    No,
    /// To be shown its database again, when it may send a large answer.
    ReadWhenLarge,
    /// The message of this step, when large answers may be produced.
    Message,
    /// The message whose first part it was brought, as a whole.
    WholeMessage,
}

/// What became of a call in one step; the caller of the step acts on it afterwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StepEffects {
    /// The call answered, or ended with a status: it is over.
    pub over: Option<Code>,
    /// It takes messages again: what waited comes out of the connection as events.
    pub resumed: bool,
    /// Commits that it submitted.
    pub commits: u32,
    /// Commits and bytes of the tick's batch before it wrote, if it did.
    pub written_from: Option<(usize, usize)>,
    /// It asked to be woken at this time.
    pub wake_at_ns: Option<u64>,
    /// It asked to be woken when something changes.
    pub subscribed: bool,
    /// Memory for answers that it has taken for this step, in bytes.
    pub claimed_bytes: usize,
    /// Others had taken the memory that it asked for.
    pub claim_failed: bool,
    /// What it asks for once more.
    pub again: StepAgain,
}

/// What a call may request in one step: the traits of `service::actions`, over its stream and the
/// batch of the tick.
pub(crate) struct CallActions<'a> {
    pub id: CallId,
    pub method: Method,
    pub identity: IdentityKey,
    pub link: &'a Link,
    pub stream: StreamHandle<'a>,
    /// What the step was brought, if it lies by itself.
    pub message: Option<&'a Bytes>,
    pub context: &'a mut StepContext,
    pub resources: &'a mut CallResources,
    pub effects: StepEffects,
}

impl CallActions<'_> {
    /// Takes memory for what is about to be produced. False: not now, as if the account were full.
    fn claim(&mut self, bytes: usize) -> bool {
        let claimed_bytes = self.context.admission.account.claim(bytes);
        self.effects.claimed_bytes += claimed_bytes.unwrap_or(0);
        if claimed_bytes.is_none() {
            self.effects.claim_failed = true;
            self.stream.pause_large_messages();
        }
        claimed_bytes.is_some()
    }

    /// Takes memory for about so many bytes that are read for the call: with a full account a
    /// little for a connection that holds little, and else none. What is under way counts as set
    /// aside, so that a connection has no more of it than it may have unsent.
    fn memory_for_reading(&mut self, bytes: usize) -> Option<LongClaim> {
        let account = &self.context.admission.account;
        let claimed = account.claim_long(bytes).or_else(|| {
            let little_bytes = bytes.min(limits::SMALL_HOLDING_BYTES);
            let has_little =
                self.link.holding.pause() == Pause::No && self.stream.has_large_capacity();
            has_little.then(|| account.claim_little_long(little_bytes))
        });
        self.stream
            .reserve_send(claimed.as_ref().map_or(0, LongClaim::bytes));
        claimed
    }

    fn add_long_work(&mut self, work: LongWork) {
        let (connection, counted) = (self.link.id, self.link.holding.counted_key());
        let long_work = &mut self.context.batch.long_work;
        long_work.push_of(connection, counted, (work, self.id));
    }

    /// Returns whose call it is, if what all calls of that take is counted.
    fn counted(&self) -> Option<IdentityKey> {
        let counted = self.link.counted(self.identity, self.identity());
        counted.map(|caller| caller.key)
    }

    /// Returns whose place the call takes among tasks that wait.
    fn task_caller(&self) -> TaskCaller {
        match self.link.counted(self.identity, self.identity()) {
            Some(caller) if caller.has_token => TaskCaller::Token(caller.key),
            Some(_) => TaskCaller::Address(self.link.caller.address),
            None => TaskCaller::Connection(self.link.caller.connection),
        }
    }

    /// The call is about to put a write into the batch.
    fn note_write(&mut self) {
        let ConnectionId { slot, generation } = self.link.id;
        let batch = &mut self.context.batch;
        batch.set_source(Source {
            address: self.link.caller.address,
            connection: joined(generation, slot),
        });
        let from = || (batch.commits(), batch.write_bytes());
        self.effects.written_from.get_or_insert_with(from);
    }

    /// Charges a body that was just sent, if some of it still waits.
    fn charge(&mut self, body: &Bytes) {
        let account = &self.context.admission.account;
        self.stream.charge_shared(|| account.charge_shared(body));
    }
}

impl Permissions for CallActions<'_> {
    #[inline]
    fn identity(&self) -> Option<&Identity> {
        self.context.identities.get(self.identity)
    }

    fn proof(&self) -> Option<&Proof> {
        self.context.identities.proof(self.identity)
    }
}

impl DatabaseAccess for CallActions<'_> {
    #[inline]
    fn read(&mut self, database: DatabaseId, key: &[u8], hash: u64) {
        if key.len() >= limits::KEPT_BYTES {
            // Twice: what waits for a disk has a copy.
            self.hold_request(2 * key.len());
        }
        let read = (database, self.id, hash);
        self.context.batch.add_read(self.link.id, read, key);
    }

    fn read_long(&mut self, database: DatabaseId) {
        self.add_long_work(LongWork::Read(database));
    }

    fn read_when_large(&mut self) {
        self.effects.again = StepAgain::ReadWhenLarge;
    }

    fn write(&mut self, database: DatabaseId, mode: Mode) -> Commit<'_> {
        self.note_write();
        let writes = self.context.batch.writes_to(database);
        let commit = writes.begin(self.id.tag(), database, mode);
        commit.keeping(self.message)
    }
}

impl Administration for CallActions<'_> {
    fn set_audited(&mut self, subject: &str, detail: &str) {
        let rare = self.resources.rare_mut();
        if let Some(audited) = rare.and_then(|rare| rare.audited.as_mut()) {
            audited.set(subject, detail);
        }
    }

    fn create_database(&mut self, name: &str, config: &DatabaseConfig) {
        self.note_write();
        let tag = self.id.tag();
        self.context.batch.writes.create_database(tag, name, config);
    }

    fn drop_database(&mut self, database: DatabaseId) {
        self.note_write();
        self.context
            .batch
            .writes
            .drop_database(self.id.tag(), database);
    }

    fn drop_empty_database(&mut self, database: DatabaseId) {
        self.note_write();
        let writes = self.context.batch.writes_to(database);
        writes.drop_empty_database(self.id.tag(), database);
    }

    fn start_task(&mut self, task: Task) -> Result<(), TaskRefusal> {
        let caller = self.task_caller();
        let task = self.context.tasks.start(task, caller, self.id)?;
        let before = self.resources.make_rare().task.replace(task);
        debug_assert!(before.is_none(), "a call has one task");
        Ok(())
    }
}

impl BlobAccess for CallActions<'_> {
    fn blob(&mut self, work: Work) {
        let from = self.link.caller.address;
        (self.context.blobs).submit(work, self.id, self.link.id, from);
    }

    fn describe_blob(&mut self, name: &str, mut sealed: Box<Sealed>, condition: Condition<'_>) {
        self.note_write();
        let tag = self.id.tag();
        let writes = &mut self.context.batch.writes;
        let mut commit = writes.begin(tag, DatabaseId::BLOBS, Mode::Independent);
        let pushed = sealed.with_operation(name, condition, |operation| commit.push(operation));
        debug_assert_eq!(pushed, Ok(()), "a checked name and a short description fit");
        commit.submit();
        self.context.blobs.keep_sealed(tag, sealed);
    }
}

impl Responses for CallActions<'_> {
    fn echo_attachment(&mut self) {
        self.stream.echo_attachment();
    }

    fn message(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        self.stream.send_message(encode);
    }

    fn message_shared(
        &mut self,
        head: impl FnOnce(&mut Vec<u8>),
        body: &Bytes,
        range: Range<usize>,
    ) {
        let part = SharedBytes::part(body.clone(), range);
        self.stream.send_shared(head, part);
        self.charge(body);
    }

    #[inline]
    fn respond(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        debug_assert!(self.effects.over.is_none(), "a call answers once");
        self.stream.respond(encode);
        self.effects.over = Some(Code::Ok);
    }

    fn respond_shared(&mut self, head: impl FnOnce(&mut Vec<u8>), body: &Bytes) {
        self.message_shared(head, body, 0..body.len());
        self.finish(Status::OK);
    }

    fn respond_parts(&mut self, parts: MessageParts) {
        let account = &self.context.admission.account;
        let charge = |value: &Bytes| account.charge_shared(value);
        let parts = parts.parts().map(|part| match part {
            service::MessagePart::Own(bytes) => wire::SentPart::Own(bytes),
            service::MessagePart::Shared(value) => wire::SentPart::Shared(value, &charge),
        });
        self.stream.send_parts(parts);
        self.finish(Status::OK);
    }

    fn finish(&mut self, status: Status) {
        debug_assert!(self.effects.over.is_none(), "a call ends once");
        self.effects.over = Some(status.code());
        // A refusal that was delayed is in the log.
        if status.code() != Code::Ok && self.identity != IdentityKey::NOBODY {
            self.note_failure(&status);
        }
        if self.method.is_plain() {
            return plain::fail(&mut self.stream, &status, self.resources.has_plain_head);
        }
        self.stream.finish(status);
    }
}

impl ResponseHeaders for CallActions<'_> {
    fn add_initial_metadata(&mut self, name: &[u8], value: &[u8]) {
        self.stream.add_header(name, value);
    }

    fn add_trailing_metadata(&mut self, name: &[u8], value: &[u8]) {
        self.stream.add_trailer(name, value);
    }

    fn compress(&mut self, wanted: bool) {
        self.stream.set_compress(wanted);
    }
}

impl PlainResponse for CallActions<'_> {
    fn plain(&mut self, status: u16, headers: &[(&str, &str)], body: &[u8], code: Code) {
        debug_assert!(self.effects.over.is_none(), "a call answers once");
        self.effects.over = Some(code);
        if code != Code::Ok {
            self.log_failure(code, &String::from_utf8_lossy(body));
        }
        self.stream.send_plain(status, headers, body);
    }

    fn plain_head(&mut self, status: u16, headers: &[(&str, &str)]) {
        self.resources.has_plain_head = true;
        self.stream.send_plain_headers(status, headers);
    }

    fn plain_body(&mut self, body: &Bytes, range: Range<usize>) {
        let part = SharedBytes::part(body.clone(), range);
        self.stream.send_body(part);
        self.charge(body);
    }

    fn plain_end(&mut self, code: Code) {
        debug_assert!(self.effects.over.is_none(), "a call ends once");
        self.effects.over = Some(code);
        self.stream.end_body();
    }
}

impl SendRoom for CallActions<'_> {
    fn can_send(&mut self) -> bool {
        self.stream.can_send()
    }

    fn can_begin(&mut self) -> bool {
        self.stream.can_begin()
    }

    fn send_room(&mut self) -> usize {
        self.stream.send_room()
    }

    fn window_room(&self) -> usize {
        self.stream.window_room()
    }

    fn promise_room(&mut self, bytes: usize) {
        self.stream.promise_room(bytes);
    }

    fn take_progress(&mut self) -> bool {
        self.stream.take_progress()
    }
}

impl ResponseMemory for CallActions<'_> {
    fn room_for_answer(&mut self, bytes: usize) -> bool {
        if bytes <= service::limits::LARGE_ANSWER_BYTES {
            return true;
        }
        let is_there = self.stream.has_large_capacity() && self.claim(bytes);
        if is_there {
            self.stream.reserve_send(bytes);
        } else {
            self.effects.again = StepAgain::Message;
        }
        is_there
    }

    fn can_send_large(&mut self, bytes: usize) -> bool {
        if !self.stream.can_send_large() {
            return false;
        }
        let is_claimed = self.claim(bytes);
        if !is_claimed {
            // It is told when it may.
            self.stream.can_send_large();
        }
        is_claimed
    }

    fn message_bytes(&self) -> usize {
        match self.stream.has_large_capacity() {
            true => usize::MAX,
            false => limits::SMALL_HOLDING_BYTES,
        }
    }

    fn reserve(&mut self, bytes: usize) {
        self.stream.reserve_send(bytes);
    }

    fn hold_ready(&mut self, bytes: usize) {
        self.stream.hold_ready(bytes);
    }

    fn hold_request(&mut self, bytes: usize) {
        self.stream.hold_request(bytes);
    }
}

impl RequestFlow for CallActions<'_> {
    fn hold(&mut self) {
        self.stream.hold();
    }

    fn resume(&mut self) {
        self.stream.resume();
        self.effects.resumed = true;
    }

    fn limit_window(&mut self, bytes: u32) {
        self.stream.limit_window(bytes);
    }

    fn take_parts(&mut self) {
        self.stream.take_parts();
    }

    fn want_whole(&mut self) {
        self.effects.again = StepAgain::WholeMessage;
    }

    fn message_was_compressed(&self) -> bool {
        self.stream.message_was_compressed()
    }
}

impl Wakeups for CallActions<'_> {
    fn wake_at_ns(&mut self, at_ns: u64) {
        self.effects.wake_at_ns = Some(at_ns);
    }

    fn subscribe(&mut self, topic: Topic) {
        let Topic::Health = topic;
        self.effects.subscribed = true;
    }

    fn watch(&mut self, news: ChangeNews) {
        self.context.watchers.add(self.id, news);
        self.effects.subscribed = true;
    }

    fn read_log(&mut self, reading: LogReading, bytes: usize) {
        let read = LogRead {
            call: self.id,
            reading,
            bytes,
        };
        self.context.watchers.read_log(read);
    }

    fn read_replica(&mut self, reading: ReplicaReading, bytes: usize) {
        let read = ReplicaRead {
            call: self.id,
            reading,
            memory: self.memory_for_reading(bytes),
        };
        self.context.watchers.read_replica(read);
    }

    fn step_later(&mut self) {
        self.add_long_work(LongWork::Step);
    }

    fn caller(&self) -> CallerId {
        CallerId {
            identity: self.counted(),
            ..self.link.caller
        }
    }
}

impl CallClock for CallActions<'_> {
    fn now_ns(&self) -> u64 {
        self.context.clock.read_ns()
    }

    fn now_ms(&self) -> u64 {
        self.context.clock.store_ms()
    }

    fn wall_us(&self) -> u64 {
        self.context.clock.wall_us()
    }
}

impl CallActions<'_> {
    /// Notes for the audit trail what a request is about that was denied in this step.
    #[inline]
    pub fn note_denied(&mut self, request: &[u8]) {
        if self.effects.over.is_some_and(audit::is_denial) {
            self.note_denied_database(request);
        }
    }

    #[cold]
    fn note_denied_database(&mut self, request: &[u8]) {
        let named = RequestSubject::of(self.method, request).database;
        let shown = named.map(|name| match name {
            "" => DEFAULT_DATABASE.into(),
            name => audit::shortened(name),
        });
        self.resources.make_rare().denied_database = shown;
    }

    #[cold]
    fn note_failure(&mut self, status: &Status) {
        if audit::is_denial(status.code()) {
            self.resources.make_rare().denial = Some(status.message().into());
        }
        self.log_failure(status.code(), status.message());
    }

    #[cold]
    fn log_failure(&self, code: Code, message: &str) {
        self.context.settings.log_failure(&FailedCall {
            method: Some(self.method),
            path: self.method.label(),
            code,
            message,
            peer: &self.link.address,
        });
    }
}
