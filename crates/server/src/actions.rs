//! What a call may ask of the server, carried out on the connection and in the tick's batch.

use std::sync::Arc;

use drive::ConnectionId;
use service::{Actions, Code, Status, Task, TaskRefusal, Topic};
use store::{Commit, DatabaseConfig, DatabaseId, Mode};
use wire::{Connection, StreamKey};

use crate::admission;
use crate::batch::TickBatch;
use crate::calls::CallId;
use crate::clock::Clock;
use crate::tasks::{LoopTasks, TaskHandle};

/// What became of a call in one step; the caller of the step acts on it afterwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effects {
    /// The call answered, or ended with a status: it is over.
    pub over: Option<Code>,
    /// It takes messages again: what waited comes out of the connection as events.
    pub resumed: bool,
    /// Commits that it began.
    pub commits: u32,
    /// It asked to be woken at this time.
    pub wake_at_ns: Option<u64>,
    /// It asked to be woken when the health of a service changes.
    pub subscribed: bool,
}

/// One step of one call.
pub(crate) struct Step<'a> {
    pub id: CallId,
    pub channel: ConnectionId,
    pub stream: StreamKey,
    pub connection: &'a mut Connection,
    pub output: &'a mut Vec<u8>,
    pub batch: &'a mut TickBatch,
    pub clock: &'a Clock,
    pub tasks: &'a LoopTasks,
    /// The task of the call.
    pub task: &'a mut Option<TaskHandle>,
    pub effects: Effects,
}

impl Actions for Step<'_> {
    #[inline]
    fn read(&mut self, database: DatabaseId, keep: &[u8]) {
        self.batch.add_read(database, self.channel, self.id, keep);
    }

    fn read_long(&mut self, database: DatabaseId) {
        self.batch.add_long_read(database, self.id);
    }

    fn write(&mut self, database: DatabaseId, mode: Mode) -> Commit<'_> {
        self.effects.commits += 1;
        self.batch.writes.begin(self.id.tag(), database, mode)
    }

    fn create_database(&mut self, name: &str, config: &DatabaseConfig) {
        self.effects.commits += 1;
        let tag = self.id.tag();
        self.batch.writes.create_database(tag, name, config);
    }

    fn drop_database(&mut self, database: DatabaseId) {
        self.effects.commits += 1;
        self.batch.writes.drop_database(self.id.tag(), database);
    }

    fn drop_empty_database(&mut self, database: DatabaseId) {
        self.effects.commits += 1;
        (self.batch.writes).drop_empty_database(self.id.tag(), database);
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

    fn respond_shared(&mut self, head: impl FnOnce(&mut Vec<u8>), body: &Arc<[u8]>) {
        self.message_shared(head, body);
        self.finish(Status::OK);
    }

    fn message(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        self.connection
            .send_message(self.stream, self.output, encode);
    }

    fn message_shared(&mut self, head: impl FnOnce(&mut Vec<u8>), body: &Arc<[u8]>) {
        self.connection
            .send_shared(self.stream, self.output, head, Arc::clone(body));
    }

    fn finish(&mut self, status: Status) {
        debug_assert!(self.effects.over.is_none(), "a call ends once");
        self.effects.over = Some(status.code);
        if status.code == Code::Unavailable {
            admission::add_pushback(self.connection, self.stream);
        }
        self.connection
            .finish(self.stream, self.output, &wire_status(status));
    }

    fn can_send(&self) -> bool {
        self.connection.can_send(self.stream)
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

/// A status in the words of the protocol.
pub(crate) fn wire_status(status: Status) -> wire::grpc::Status {
    wire::grpc::Status::new(wire::grpc::Code::from_u8(status.code as u8), status.message)
}
