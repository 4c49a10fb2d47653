//! What a call may ask of the server, carried out on the connection and in the tick's batch.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use net::{ConnectionId, PeerAddress};
use service::{Actions, Caller, Code, MessageParts, Method, Status, Task, TaskRefusal, Topic};
use store::blob::{Sealed, Work};
use store::{Commit, Condition, DatabaseConfig, DatabaseId, Mode, Source};
use wire::{Connection, Pause, SharedBytes, StreamKey};

use crate::account::Account;
use crate::admission;
use crate::batch::{LongWork, TickBatch};
use crate::blobs::LoopBlobs;
use crate::calls::{CallId, joined};
use crate::clock::Clock;
use crate::limits;
use crate::plain;
use crate::settings::{FailedCall, Settings};
use crate::tasks::{LoopTasks, TaskHandle};

/// What became of a call in one step; the caller of the step acts on it afterwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effects {
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
    /// It is to be shown its database again, when it may send a large answer.
    pub read_waits: bool,
    /// It asked to be woken when the health of a service changes.
    pub subscribed: bool,
    /// Memory for answers that it has taken for this step, in bytes.
    pub claimed_bytes: usize,
    /// Others had taken the memory that it asked for.
    pub claim_failed: bool,
    /// The message of this step is to come once more, when large answers may be produced.
    pub puts_back: bool,
    /// The message whose first part this step was brought is to come as a whole.
    pub wants_whole: bool,
}

/// One step of one call.
pub(crate) struct Step<'a> {
    pub id: CallId,
    pub channel: ConnectionId,
    pub caller: &'a Caller,
    pub stream: StreamKey,
    /// What the step was brought, if it lies by itself.
    pub message: Option<&'a Bytes>,
    pub connection: &'a mut Connection,
    pub account: &'a Arc<Account>,
    pub output: &'a mut Vec<u8>,
    pub batch: &'a mut TickBatch,
    pub clock: &'a Clock,
    pub tasks: &'a LoopTasks,
    pub blobs: &'a mut LoopBlobs,
    /// The task of the call.
    pub task: &'a mut Option<TaskHandle>,
    pub is_plain: bool,
    pub has_plain_head: &'a mut bool,
    pub method: Method,
    /// Where the caller is.
    pub peer: &'a PeerAddress,
    pub settings: &'a Settings,
    pub effects: Effects,
}

impl Step<'_> {
    /// Takes memory for what is about to be produced. False: not now, as if the account were full.
    fn claim(&mut self, bytes: usize) -> bool {
        let claimed_bytes = self.account.claim(bytes);
        self.effects.claimed_bytes += claimed_bytes.unwrap_or(0);
        if claimed_bytes.is_none() {
            self.effects.claim_failed = true;
            self.connection.set_pause(Pause::Large);
        }
        claimed_bytes.is_some()
    }

    /// The call is about to put a write into the batch.
    fn note_write(&mut self) {
        let ConnectionId { slot, generation } = self.channel;
        self.batch.set_source(Source {
            address: self.caller.address,
            connection: joined(generation, slot),
        });
        let batch = &*self.batch;
        let from = || (batch.commits(), batch.write_bytes());
        self.effects.written_from.get_or_insert_with(from);
    }

    /// Charges a body that was just sent, if some of it still waits.
    fn charge(&mut self, body: &Bytes) {
        let account = self.account;
        self.connection
            .charge_shared(self.stream, || account.charge_shared(body));
    }
}

impl Actions for Step<'_> {
    #[inline]
    fn read(&mut self, database: DatabaseId, keep: &[u8]) {
        if keep.len() >= limits::KEPT_BYTES {
            // Twice: what waits for a disk has a copy.
            self.connection.hold_request(self.stream, 2 * keep.len());
        }
        self.batch.add_read(database, self.channel, self.id, keep);
    }

    fn read_long(&mut self, database: DatabaseId) {
        self.batch.add_long_work(LongWork::Read(database), self.id);
    }

    fn step_later(&mut self) {
        self.batch.add_long_work(LongWork::Step, self.id);
    }

    fn write(&mut self, database: DatabaseId, mode: Mode) -> Commit<'_> {
        self.note_write();
        let writes = self.batch.writes_to(database);
        let commit = writes.begin(self.id.tag(), database, mode);
        commit.keeping(self.message)
    }

    fn create_database(&mut self, name: &str, config: &DatabaseConfig) {
        self.note_write();
        let tag = self.id.tag();
        self.batch.writes.create_database(tag, name, config);
    }

    fn drop_database(&mut self, database: DatabaseId) {
        self.note_write();
        self.batch.writes.drop_database(self.id.tag(), database);
    }

    fn drop_empty_database(&mut self, database: DatabaseId) {
        self.note_write();
        let writes = self.batch.writes_to(database);
        writes.drop_empty_database(self.id.tag(), database);
    }

    fn blob(&mut self, work: Work) {
        (self.blobs).submit(work, self.id, self.channel, self.caller.address);
    }

    fn describe_blob(&mut self, name: &str, mut sealed: Box<Sealed>, condition: Condition<'_>) {
        self.note_write();
        let tag = self.id.tag();
        let mut commit = (self.batch.writes).begin(tag, DatabaseId::BLOBS, Mode::Independent);
        let pushed = sealed.with_operation(name, condition, |operation| commit.push(operation));
        debug_assert_eq!(pushed, Ok(()), "a checked name and a short description fit");
        commit.submit();
        self.blobs.sealed.insert(tag, sealed);
    }

    fn start_task(&mut self, task: Task) -> Result<(), TaskRefusal> {
        debug_assert!(self.task.is_none(), "a call has one task");
        *self.task = Some(self.tasks.start(task, self.id)?);
        Ok(())
    }

    #[inline]
    fn respond(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        debug_assert!(self.effects.over.is_none(), "a call answers once");
        self.connection.respond(self.stream, self.output, encode);
        self.effects.over = Some(Code::Ok);
    }

    fn respond_shared(&mut self, head: impl FnOnce(&mut Vec<u8>), body: &Bytes) {
        self.message_shared(head, body, 0..body.len());
        self.finish(Status::OK);
    }

    fn respond_parts(&mut self, parts: MessageParts) {
        let account = self.account;
        let charge = |value: &Bytes| account.charge_shared(value);
        let parts = parts.parts().map(|part| match part {
            service::MessagePart::Own(bytes) => wire::MessagePart::Own(bytes),
            service::MessagePart::Shared(value) => wire::MessagePart::Shared(value, &charge),
        });
        self.connection.send_parts(self.stream, self.output, parts);
        self.finish(Status::OK);
    }

    fn reserve(&mut self, bytes: usize) {
        self.connection.reserve_send(self.stream, bytes);
    }

    fn message(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        self.connection
            .send_message(self.stream, self.output, encode);
    }

    fn message_shared(
        &mut self,
        head: impl FnOnce(&mut Vec<u8>),
        body: &Bytes,
        range: Range<usize>,
    ) {
        let part = SharedBytes::part(body.clone(), range);
        self.connection
            .send_shared(self.stream, self.output, head, part);
        self.charge(body);
    }

    fn plain(&mut self, status: u16, headers: &[(&str, &str)], body: &[u8], code: Code) {
        debug_assert!(self.effects.over.is_none(), "a call answers once");
        self.effects.over = Some(code);
        if code != Code::Ok {
            self.log_failure(code, &String::from_utf8_lossy(body));
        }
        (self.connection).send_plain(self.stream, self.output, status, headers, body);
    }

    fn plain_head(&mut self, status: u16, headers: &[(&str, &str)]) {
        *self.has_plain_head = true;
        (self.connection).send_plain_headers(self.stream, self.output, status, headers, false);
    }

    fn plain_body(&mut self, body: &Bytes, range: Range<usize>) {
        let part = SharedBytes::part(body.clone(), range);
        self.connection.send_body(self.stream, self.output, part);
        self.charge(body);
    }

    fn plain_end(&mut self, code: Code) {
        debug_assert!(self.effects.over.is_none(), "a call ends once");
        self.effects.over = Some(code);
        self.connection.end_body(self.stream, self.output, &[]);
    }

    fn finish(&mut self, status: Status) {
        debug_assert!(self.effects.over.is_none(), "a call ends once");
        self.effects.over = Some(status.code);
        if status.code != Code::Ok {
            self.log_failure(status.code, &status.message);
        }
        if self.is_plain {
            let (stream, begun) = (self.stream, *self.has_plain_head);
            return plain::fail(self.connection, self.output, stream, &status, begun);
        }
        if status.code == Code::Unavailable {
            admission::add_pushback(self.connection, self.stream);
        }
        self.connection
            .finish(self.stream, self.output, &wire_status(status));
    }

    fn can_send(&mut self) -> bool {
        self.connection.can_send(self.stream)
    }

    fn can_begin(&mut self) -> bool {
        self.connection.can_begin(self.stream)
    }

    fn send_room(&mut self) -> usize {
        self.connection.send_room(self.stream)
    }

    fn window_room(&self) -> usize {
        self.connection.window_room(self.stream)
    }

    fn promise_room(&mut self, bytes: usize) {
        self.connection.promise_room(self.stream, bytes);
    }

    fn hold_ready(&mut self, bytes: usize) {
        self.connection.hold_ready(self.stream, bytes);
    }

    fn hold_request(&mut self, bytes: usize) {
        self.connection.hold_request(self.stream, bytes);
    }

    fn take_progress(&mut self) -> bool {
        self.connection.take_progress(self.stream)
    }

    fn can_send_large(&mut self, bytes: usize) -> bool {
        if !self.connection.can_send_large(self.stream) {
            return false;
        }
        let is_claimed = self.claim(bytes);
        if !is_claimed {
            // It is told when it may.
            self.connection.can_send_large(self.stream);
        }
        is_claimed
    }

    fn room_for_answer(&mut self, bytes: usize) -> bool {
        if bytes <= service::limits::LARGE_ANSWER_BYTES {
            return true;
        }
        let is_there = self.connection.has_large_capacity() && self.claim(bytes);
        if is_there {
            self.connection.reserve_send(self.stream, bytes);
        } else {
            self.effects.puts_back = true;
        }
        is_there
    }

    fn message_bytes(&self) -> usize {
        match self.connection.has_large_capacity() {
            true => usize::MAX,
            false => limits::SMALL_HOLDING_BYTES,
        }
    }

    fn read_when_large(&mut self) {
        self.effects.read_waits = true;
    }

    fn wake_at_ns(&mut self, at_ns: u64) {
        self.effects.wake_at_ns = Some(at_ns);
    }

    fn subscribe(&mut self, topic: Topic) {
        let Topic::Health = topic;
        self.effects.subscribed = true;
    }

    fn hold(&mut self) {
        self.connection.hold(self.stream, true);
    }

    fn limit_window(&mut self, bytes: u32) {
        self.connection
            .limit_window(self.stream, bytes, self.output);
    }

    fn take_parts(&mut self) {
        self.connection.take_parts(self.stream);
    }

    fn want_whole(&mut self) {
        self.effects.wants_whole = true;
    }

    fn caller(&self) -> Caller {
        *self.caller
    }

    fn resume(&mut self) {
        self.connection.hold(self.stream, false);
        self.effects.resumed = true;
    }

    fn now_ns(&self) -> u64 {
        self.clock.read_ns()
    }

    fn now_ms(&self) -> u64 {
        self.clock.store_ms()
    }

    fn wall_us(&self) -> u64 {
        self.clock.wall_us()
    }

    fn add_initial_metadata(&mut self, name: &[u8], value: &[u8]) {
        self.connection.add_header(self.stream, name, value);
    }

    fn add_trailing_metadata(&mut self, name: &[u8], value: &[u8]) {
        self.connection.add_trailer(self.stream, name, value);
    }

    fn compress(&mut self, wanted: bool) {
        self.connection.set_compress(self.stream, wanted);
    }

    fn message_was_compressed(&self) -> bool {
        self.connection.message_was_compressed()
    }
}

impl Step<'_> {
    #[cold]
    fn log_failure(&self, code: Code, message: &str) {
        self.settings.log_failure(&FailedCall {
            method: Some(self.method),
            path: self.method.label(),
            code,
            message,
            peer: self.peer,
        });
    }
}

/// A status in the words of the protocol.
pub(crate) fn wire_status(status: Status) -> wire::grpc::Status {
    wire::grpc::Status::new(wire::grpc::Code::from_u8(status.code as u8), status.message)
}
