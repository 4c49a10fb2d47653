//! KeyValue over a real store, with a room above that is as small as can be.

mod anything;
mod batches;
mod fetched;
mod pipes;
mod ranges;
mod rights;
mod single;
mod statuses;
mod transacts;
mod watch;

pub(crate) use fetched::on_disk;

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use store::{
    ChangeNews, Clock, Commit, DatabaseConfig, DatabaseId, DatabaseLimits, Decision, LogReading,
    Mode, Outcomes, ReadView, ReplicaReading, Store, StoreConfig, VolatileCommitter, WriteBatch,
};

use crate::actions::{
    Administration, BlobAccess, CallClock, DatabaseAccess, Permissions, PlainResponse, RequestFlow,
    ResponseHeaders, ResponseMemory, Responses, SendRoom, Topic, Wakeups,
};
use crate::call::{CallHead, CallSteps, Metadata, PlanReads, ServerInfo, Shared};
use crate::fake::{caller, draw_token};
use crate::figures::Figures;
use crate::identities::{Identities, Identity, Proof, TokenKey};
use crate::limits::LARGE_ANSWER_BYTES;
use crate::message_parts::{MessagePart, MessageParts};
use crate::method::Method;
use crate::services::ServiceCall;
use crate::serving::Registry;
use crate::shares::CallerId;
use crate::status::{Code, Status};
use crate::task::{Task, TaskRefusal};
use crate::waiting::WaitingCalls;

/// Longest value in the database `small`.
const SMALL_VALUE_BYTES: usize = 100;

/// Names the history of the bench.
const HISTORY_ID: u64 = 0xfedc_ba98_7654_3210;

/// Ticks after which a call that has not ended surely never will.
const TICKS_MAX: usize = 10_000;

struct Now(u64);

impl Clock for Now {
    fn now_ns(&mut self) -> u64 {
        0
    }

    fn now_ms(&mut self) -> u64 {
        self.0
    }
}

struct NoMetadata;

impl Metadata for NoMetadata {
    fn first(&self, _name: &[u8]) -> Option<&[u8]> {
        None
    }
}

/// A server of one connection.
pub(crate) struct Bench {
    pub(crate) shared: Shared,
    batch: WriteBatch,
    committer: VolatileCommitter,
    outcomes: Outcomes,
    pub(crate) now_ms: u64,
    /// Messages that a call may send before it must wait a tick.
    room: usize,
    memory: Memory,
    /// What it holds, on disk, if reads are to come from there.
    copy: Option<fetched::Copy>,
    /// Who calls; `None`: somebody who was revoked.
    pub(crate) identity: Option<Identity>,
}

/// The memory for answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Memory {
    /// What a message should have at most.
    message_bytes: usize,
    /// How often a call is told that there is none for a large message.
    refusals: usize,
}

/// There is always enough.
const PLENTY: Memory = Memory {
    message_bytes: usize::MAX,
    refusals: 0,
};

/// A message with as many values in its answer as it says, of at most [`SMALL_VALUE_BYTES`] each,
/// takes memory for them before anything is done; one without takes none.
#[track_caller]
fn takes_memory_for_values(method: Method, message: &[u8], values_bytes: usize) {
    let mut bench = Bench::new();
    bench.steps(method, |call, shared, room| {
        room.has_room = false;
        call.message(message, true, shared, room);
        assert_eq!(std::mem::take(&mut room.puts_back), values_bytes > 0);
        assert_eq!(room.asked_bytes, values_bytes);
        if values_bytes > 0 {
            assert!(room.batch.is_empty(), "nothing is done yet");
            room.has_room = true;
            call.message(message, true, shared, room);
        }
        assert!(!room.batch.is_empty(), "it is with the committer");
    });
}

/// Creates or drops a database, by a commit of its own.
pub(crate) fn change(store: &Store, add: impl FnOnce(&mut WriteBatch)) {
    let (mut batch, mut outcomes) = (store.write_batch(), Outcomes::new());
    add(&mut batch);
    drop(
        store
            .committer()
            .run(&mut batch, &mut Now(1), &mut outcomes),
    );
    assert_eq!(outcomes.get(0).decision, Decision::Applied);
}

/// How a call ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) messages: Vec<Vec<u8>>,
    pub(crate) status: Status,
    /// Ticks in which the call was waited for.
    ticks: usize,
    /// How long it waited for timers.
    pub(crate) waited_ns: u64,
    /// What it said that it holds, each time.
    held: Vec<usize>,
    /// How often it asked whether it may begin.
    begins: usize,
    /// For how much memory it asked before it sent something large, each time.
    claims: Vec<usize>,
    /// What was set aside for its next message, each time that this changed.
    reserved: Vec<usize>,
    /// How often it asked for its view once more, when there is memory.
    reads_again: usize,
    /// Bytes that it shared with the database instead of copying them.
    shared_bytes: usize,
}

impl Ended {
    /// The one message of a call that went well.
    pub(crate) fn answer(&self) -> &[u8] {
        assert_eq!(self.status, Status::OK);
        assert_eq!(self.messages.len(), 1);
        &self.messages[0]
    }

    /// How often it asked for its view once more, and how many bytes it shared with the database.
    pub(crate) fn shares(&self) -> (usize, usize) {
        (self.reads_again, self.shared_bytes)
    }

    /// What was set aside for its next message, each time that this changed.
    pub(crate) fn reserved(&self) -> &[usize] {
        &self.reserved
    }

    /// For how much memory it asked before it sent something large, each time.
    pub(crate) fn claims(&self) -> &[usize] {
        &self.claims
    }

    /// Ticks in which it was waited for.
    pub(crate) fn took_ticks(&self) -> usize {
        self.ticks
    }

    /// The words of a call that ended with `code` and no message.
    pub(crate) fn refusal(&self, code: Code) -> &str {
        assert_eq!(self.status.code(), code, "{}", self.status.message());
        assert!(self.messages.is_empty());
        self.status.message()
    }
}

impl Bench {
    /// A server with the default database, and `small` with small limits.
    pub(crate) fn new() -> Bench {
        let config = StoreConfig {
            history_id: HISTORY_ID,
            ..StoreConfig::new(7)
        };
        let store = Store::in_memory(config).expect("the default database is valid");
        let limits = DatabaseLimits {
            commit_operations: 5,
            commit_bytes: 1_000,
            ..DatabaseLimits::for_values(SMALL_VALUE_BYTES)
        };
        let config = DatabaseConfig {
            limits,
            ..DatabaseConfig::default()
        };
        change(&store, |batch| batch.create_database(0, "small", &config));
        Bench {
            batch: store.write_batch(),
            committer: store.committer(),
            outcomes: Outcomes::new(),
            now_ms: 1_000_000,
            room: usize::MAX,
            memory: PLENTY,
            copy: None,
            identity: Some(caller(&["admin"])),
            shared: Shared {
                store,
                server: ServerInfo {
                    name: "bench",
                    version: "0",
                },
                health: Registry::new([], true),
                identities: Identities::new(TokenKey::new(&[1; 32]), Vec::new()),
                draw_token: draw_token(),
                waiting: WaitingCalls::default(),
                figures: Figures::new(0),
                answer_bytes_max: crate::limits::ANSWER_BYTES_MAX,
                settings: Default::default(),
                following: None,
            },
        }
    }

    /// Lets memory be short, so that messages should have so many bytes at most.
    pub(crate) fn limit_messages(&mut self, message_bytes: usize) {
        self.memory.message_bytes = message_bytes;
    }

    /// Has the next calls told so many times that there is no memory for a large message.
    pub(crate) fn refuse_memory(&mut self, refusals: usize) {
        self.memory.refusals = refusals;
    }

    /// Makes a call with one request, and serves it to its end.
    pub(crate) fn call(&mut self, method: Method, request: &[u8]) -> Ended {
        self.steps(method, |call, shared, room| {
            room.bring(call, request, true, shared)
        })
    }

    /// Makes a call, lets `begin` bring the first steps to it, and serves it to its end.
    pub(crate) fn steps(
        &mut self,
        method: Method,
        begin: impl FnOnce(&mut ServiceCall, &Shared, &mut Room<'_>),
    ) -> Ended {
        let Bench {
            shared,
            batch,
            committer,
            outcomes,
            copy,
            ..
        } = self;
        let mut room = Room {
            room: self.room,
            now_ms: self.now_ms,
            memory: self.memory,
            identity: self.identity.clone(),
            ..Room::new(batch)
        };
        let head = CallHead {
            deadline_ns: u64::MAX,
            metadata: &NoMetadata,
        };
        let mut call = ServiceCall::started(method, &head, shared, &mut room);
        if room.status.is_none() {
            begin(&mut call, shared, &mut room);
        }
        let mut ticks = 0;
        while room.status.is_none() {
            ticks += 1;
            assert!(ticks < TICKS_MAX, "the call does not end");
            if !room.is_held
                && let Some(message) = room.messages_to_come.pop_front()
            {
                let last = room.messages_to_come.is_empty();
                room.bring(&mut call, &message, last, shared);
            } else if let Some((database, kept)) = room.take_read(shared) {
                fetched::read(&mut call, (database, &kept), shared, &mut room, copy);
                if std::mem::take(&mut room.waits_to_read) {
                    assert!(room.status.is_none() && room.read.is_none());
                    room.memory = PLENTY;
                    room.read = Some((database, kept));
                }
            } else if std::mem::take(&mut room.wants_step) {
                call.woken(shared, &mut room);
            } else if !room.batch.is_empty() {
                room.let_others_write(&shared.store);
                drop(committer.run(room.batch, &mut Now(room.now_ms), outcomes));
                let mut decided: Vec<_> = outcomes.iter().collect();
                if room.default_is_last {
                    decided.sort_by_key(|outcome| outcome.database == DatabaseId::DEFAULT);
                }
                for outcome in decided {
                    call.committed(&outcome, shared, &mut room);
                }
            } else if let Some(at_ns) = room.wake_at_ns.take() {
                room.now_ns = at_ns.max(room.now_ns);
                room.let_others_write(&shared.store);
                call.woken(shared, &mut room);
            } else {
                let was_refused = std::mem::take(&mut room.was_refused);
                assert!(room.room == 0 || was_refused, "the call waits for nothing");
                room.room = self.room;
                call.writable(shared, &mut room);
            }
        }
        room.ended(ticks)
    }
}

/// What the layer above does for one call.
pub(crate) struct Room<'a> {
    batch: &'a mut WriteBatch,
    read: Option<(DatabaseId, Vec<u8>)>,
    /// The hash that came with it.
    read_hash: u64,
    messages: Vec<Vec<u8>>,
    status: Option<Status>,
    room: usize,
    now_ms: u64,
    now_ns: u64,
    is_held: bool,
    /// Whether there is memory for large answers.
    has_room: bool,
    /// The message is to come once more.
    puts_back: bool,
    wake_at_ns: Option<u64>,
    wants_step: bool,
    /// What is set aside for the next message.
    reserved_bytes: usize,
    /// The same, each time that it changed.
    reserved: Vec<usize>,
    /// For how much it was asked last, before a message was taken up.
    asked_bytes: usize,
    memory: Memory,
    /// There was no memory for a large message.
    was_refused: bool,
    /// The view is to come once more when there is memory.
    waits_to_read: bool,
    held: Vec<usize>,
    begins: usize,
    claims: Vec<usize>,
    reads_again: usize,
    shared_bytes: usize,
    identity: Option<Identity>,
    /// What the caller sends whenever it is not held.
    messages_to_come: VecDeque<Vec<u8>>,
    /// Outcomes of the default database come behind those of others, as if it alone had a log.
    pub(crate) default_is_last: bool,
    /// What others write before the next commit is decided, or before the call is woken.
    others: VecDeque<Box<AddWrites>>,
}

/// Adds writes to a batch.
type AddWrites = dyn FnOnce(&mut WriteBatch);

impl<'a> Room<'a> {
    /// What came of the call, which has its status.
    fn ended(self, ticks: usize) -> Ended {
        assert!(
            self.batch.is_empty(),
            "a write was submitted and not waited for"
        );
        Ended {
            messages: self.messages,
            status: self.status.expect("the loop has ended"),
            ticks,
            waited_ns: self.now_ns,
            held: self.held,
            begins: self.begins,
            claims: self.claims,
            reserved: self.reserved,
            reads_again: self.reads_again,
            shared_bytes: self.shared_bytes,
        }
    }

    fn new(batch: &'a mut WriteBatch) -> Room<'a> {
        Room {
            batch,
            read: None,
            read_hash: 0,
            messages: Vec::new(),
            status: None,
            room: usize::MAX,
            now_ms: 0,
            now_ns: 0,
            is_held: false,
            has_room: true,
            puts_back: false,
            wake_at_ns: None,
            wants_step: false,
            reserved_bytes: 0,
            reserved: Vec::new(),
            asked_bytes: 0,
            memory: PLENTY,
            was_refused: false,
            waits_to_read: false,
            held: Vec::new(),
            begins: 0,
            claims: Vec::new(),
            reads_again: 0,
            shared_bytes: 0,
            identity: None,
            messages_to_come: VecDeque::new(),
            default_is_last: false,
            others: VecDeque::new(),
        }
    }

    fn take_read(&mut self, shared: &Shared) -> Option<(DatabaseId, Vec<u8>)> {
        let read = self.read.take();
        if let Some((_, key)) = &read {
            let hash = shared.store.hasher().hash(key);
            assert!(
                key.is_empty() || hash == self.read_hash,
                "a key has its hash"
            );
        }
        read
    }

    /// Has others write before the next commit is decided, or before the call is woken; each time
    /// one of them.
    pub(crate) fn others_write(&mut self, add: impl FnOnce(&mut WriteBatch) + 'static) {
        self.others.push_back(Box::new(add));
    }

    fn let_others_write(&mut self, store: &Store) {
        if let Some(add) = self.others.pop_front() {
            change(store, add);
        }
    }

    /// Has the caller send these messages, each when it may, and then end its side.
    pub(crate) fn send_in_turn(&mut self, messages: impl IntoIterator<Item = Vec<u8>>) {
        self.messages_to_come.extend(messages);
    }

    /// Whether something was submitted that is not decided yet.
    pub(crate) fn has_writes(&self) -> bool {
        !self.batch.is_empty()
    }

    /// Brings a message while there is no memory for its answer, and, if it is put back, once more
    /// when there is. What was put back has done nothing.
    pub(crate) fn bring(
        &mut self,
        call: &mut ServiceCall,
        message: &[u8],
        last: bool,
        shared: &Shared,
    ) {
        let before = (self.batch.len(), self.batch.bytes(), self.messages.len());
        self.has_room = false;
        call.message(message, last, shared, self);
        self.has_room = true;
        if std::mem::take(&mut self.puts_back) {
            let after = (self.batch.len(), self.batch.bytes(), self.messages.len());
            assert_eq!((after, self.read.is_none()), (before, true));
            assert!(self.status.is_none() && !self.is_held);
            call.message(message, last, shared, self);
            assert!(!self.puts_back, "there is memory now");
        }
    }

    fn end(&mut self, status: Status) {
        assert_eq!(self.status, None, "a call ends once");
        self.status = Some(status);
    }
}

impl Permissions for Room<'_> {
    fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    fn proof(&self) -> Option<&Proof> {
        None
    }
}

impl DatabaseAccess for Room<'_> {
    fn read(&mut self, database: DatabaseId, key: &[u8], hash: u64) {
        assert!(self.read.is_none(), "one read at a time");
        self.read_hash = hash;
        self.read = Some((database, key.to_vec()));
    }

    fn read_long(&mut self, database: DatabaseId) {
        self.read(database, &[], 0);
    }

    fn read_when_large(&mut self) {
        self.reads_again += 1;
        self.waits_to_read = true;
    }

    fn write(&mut self, database: DatabaseId, mode: Mode) -> Commit<'_> {
        self.batch.begin(0, database, mode)
    }
}

impl Responses for Room<'_> {
    fn message(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        assert_eq!(self.status, None, "no message after the end");
        // Messages are appended to an output that holds others already.
        let mut out = b"earlier".to_vec();
        encode(&mut out);
        self.messages.push(out.split_off(7));
        self.reserve(0);
        self.room = self.room.saturating_sub(1);
    }

    fn message_shared(
        &mut self,
        head: impl FnOnce(&mut Vec<u8>),
        body: &Bytes,
        range: Range<usize>,
    ) {
        self.shared_bytes += range.len();
        self.message(|out| {
            head(out);
            out.extend_from_slice(&body[range]);
        });
    }

    fn respond(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        self.message(encode);
        self.end(Status::OK);
    }

    fn respond_shared(&mut self, head: impl FnOnce(&mut Vec<u8>), body: &Bytes) {
        self.message_shared(head, body, 0..body.len());
        self.end(Status::OK);
    }

    fn respond_parts(&mut self, parts: MessageParts) {
        let mut shared_bytes = 0;
        self.message(|out| {
            for part in parts.parts() {
                match part {
                    MessagePart::Own(bytes) => out.extend_from_slice(bytes),
                    MessagePart::Shared(value) => {
                        shared_bytes += value.len();
                        out.extend_from_slice(value);
                    }
                }
            }
        });
        self.shared_bytes += shared_bytes;
        self.end(Status::OK);
    }

    fn finish(&mut self, status: Status) {
        self.end(status);
    }
}

impl SendRoom for Room<'_> {
    fn can_send(&mut self) -> bool {
        self.room > 0
    }

    fn can_begin(&mut self) -> bool {
        self.begins += 1;
        self.can_send()
    }

    fn send_room(&mut self) -> usize {
        usize::MAX
    }

    fn window_room(&self) -> usize {
        usize::MAX
    }

    fn promise_room(&mut self, _bytes: usize) {}

    fn take_progress(&mut self) -> bool {
        false
    }
}

impl ResponseMemory for Room<'_> {
    fn room_for_answer(&mut self, bytes: usize) -> bool {
        self.asked_bytes = bytes;
        self.puts_back |= !self.has_room;
        if self.has_room && bytes > LARGE_ANSWER_BYTES {
            self.reserve(bytes);
        }
        self.has_room
    }

    fn can_send_large(&mut self, bytes: usize) -> bool {
        self.claims.push(bytes);
        if self.memory.refusals > 0 {
            self.memory.refusals -= 1;
            self.was_refused = true;
            return false;
        }
        self.can_send()
    }

    fn message_bytes(&self) -> usize {
        self.memory.message_bytes
    }

    fn reserve(&mut self, bytes: usize) {
        if self.reserved_bytes != bytes {
            self.reserved.push(bytes);
        }
        self.reserved_bytes = bytes;
    }

    fn hold_ready(&mut self, bytes: usize) {
        self.held.push(bytes);
    }

    fn hold_request(&mut self, bytes: usize) {
        self.held.push(bytes);
    }
}

impl RequestFlow for Room<'_> {
    fn hold(&mut self) {
        self.is_held = true;
    }

    fn resume(&mut self) {
        self.is_held = false;
    }

    fn limit_window(&mut self, _bytes: u32) {}

    fn take_parts(&mut self) {}

    fn want_whole(&mut self) {}

    fn message_was_compressed(&self) -> bool {
        false
    }
}

impl Wakeups for Room<'_> {
    fn wake_at_ns(&mut self, at_ns: u64) {
        self.wake_at_ns = Some(at_ns);
    }

    fn subscribe(&mut self, _topic: Topic) {
        unreachable!("nothing here waits for a topic");
    }

    /// Those who are woken so have tests of their own: here only their timers expire.
    fn watch(&mut self, _news: ChangeNews) {}

    fn read_log(&mut self, _reading: LogReading, _bytes: usize) {
        unreachable!("those who watch have tests of their own");
    }

    fn read_replica(&mut self, _reading: ReplicaReading, _bytes: usize) {
        unreachable!("those who follow have tests of their own");
    }

    fn step_later(&mut self) {
        self.wants_step = true;
    }

    fn caller(&self) -> CallerId {
        CallerId::default()
    }
}

/// For calls of any service; those here ask for none of it.
impl Administration for Room<'_> {
    fn set_audited(&mut self, _: &str, _: &str) {
        unreachable!("nothing is administrated here");
    }

    fn create_database(&mut self, _: &str, _: &DatabaseConfig) {
        unreachable!("no database is made here");
    }

    fn drop_database(&mut self, _: DatabaseId) {
        unreachable!("no database is dropped here");
    }

    fn drop_empty_database(&mut self, _: DatabaseId) {
        unreachable!("no database is dropped here");
    }

    fn start_task(&mut self, _: Task) -> Result<(), TaskRefusal> {
        unreachable!("nothing here takes long");
    }
}

impl BlobAccess for Room<'_> {
    fn blob(&mut self, _: store::blob::Work) {
        unreachable!("nothing here is a blob");
    }

    fn describe_blob(&mut self, _: &str, _: Box<store::blob::Sealed>, _: store::Condition<'_>) {
        unreachable!("nothing here is a blob");
    }
}

impl ResponseHeaders for Room<'_> {
    fn add_initial_metadata(&mut self, _: &[u8], _: &[u8]) {
        unreachable!("nothing here sends metadata");
    }

    fn add_trailing_metadata(&mut self, _: &[u8], _: &[u8]) {
        unreachable!("nothing here sends metadata");
    }

    fn compress(&mut self, _: bool) {
        unreachable!("nothing here is compressed");
    }
}

impl PlainResponse for Room<'_> {
    fn plain(&mut self, _: u16, _: &[(&str, &str)], _: &[u8], _: Code) {
        unreachable!("nothing here is a plain request");
    }

    fn plain_head(&mut self, _: u16, _: &[(&str, &str)]) {
        unreachable!("nothing here is a plain request");
    }

    fn plain_body(&mut self, _: &Bytes, _: Range<usize>) {
        unreachable!("nothing here is a plain request");
    }

    fn plain_end(&mut self, _: Code) {
        unreachable!("nothing here is a plain request");
    }
}

impl CallClock for Room<'_> {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn now_ms(&self) -> u64 {
        self.now_ms
    }

    fn wall_us(&self) -> u64 {
        self.now_ms * 1_000
    }
}
