//! For tests of calls that neither read nor write entries: a room above that writes down what a
//! call asks for, and has databases made and dropped by the committer. Work on blobs, reads of
//! their descriptions and changes of them are left to the test.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
use store::blob::{BlobNews, Sealed, Work};
use store::{
    ChangeNews, Clock, Commit, CommitOutcome, Condition, DatabaseConfig, DatabaseId, FolderSecret,
    LogReadError, LogReading, Mode, NextCommits, Outcomes, ReadView, ReplicaPiece, ReplicaReading,
    Store, StoreConfig, WriteBatch,
};

use crate::actions::{
    Administration, BlobAccess, CallClock, DatabaseAccess, Permissions, PlainResponse, RequestFlow,
    ResponseHeaders, ResponseMemory, Responses, SendRoom, Topic, Wakeups,
};
use crate::call::{CallHead, CallSteps, Metadata, ServerInfo, Shared};
use crate::figures::Figures;
use crate::identities::{
    DrawToken, Identities, Identity, IssuedToken, NEVER_MS, Proof, Token, TokenHash, TokenKey,
};
use crate::message_parts::{MessagePart, MessageParts};
use crate::method::{Method, served};
use crate::rights::{Grant, Rights};
use crate::services::ServiceCall;
use crate::serving::Registry;
use crate::settings::ServiceSettings;
use crate::shares::CallerId;
use crate::status::{Code, Status};
use crate::task::{Task, TaskNews, TaskRefusal};
use crate::waiting::WaitingCalls;

/// A server that serves everything.
pub(crate) fn shared() -> Shared {
    let config = StoreConfig {
        secret: FolderSecret::new([1; 32]),
        ..StoreConfig::new(1)
    };
    Shared {
        store: Store::in_memory(config).expect("the default configuration is sound"),
        server: ServerInfo {
            name: "pelton",
            version: "0.0.0",
        },
        health: Registry::new(served(true), true),
        identities: Identities::new(TokenKey::new(&[1; 32]), vec![Rights::everything()]),
        draw_token: draw_token(),
        waiting: WaitingCalls::default(),
        figures: Figures::new(0),
        answer_bytes_max: crate::limits::ANSWER_BYTES_MAX,
        settings: ServiceSettings {
            interop: true,
            ..ServiceSettings::default()
        },
        following: None,
    }
}

/// Tokens that are other ones each time.
pub(crate) fn draw_token() -> Box<DrawToken> {
    let drawn = AtomicU8::new(0);
    Box::new(move || Some(Token::new([drawn.fetch_add(1, Ordering::Relaxed) + 1; 32])))
}

/// Somebody with a token who has these rights.
pub(crate) fn caller(rights: &[&str]) -> Identity {
    let grants = rights.iter().map(|right| right.parse().expect("a right"));
    let rights = Rights::new(grants.collect::<Vec<Grant>>());
    let issued = IssuedToken {
        hash: TokenHash::from_bytes([1; 32]),
        expires_ms: NEVER_MS,
    };
    Identity::new("ci", rights, NEVER_MS, vec![issued]).expect("a sound identity")
}

/// What went out, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The only message, and status OK.
    Response(Vec<u8>),
    /// One message of several.
    Message(Vec<u8>),
    /// One message of several, to be compressed.
    Compressed(Vec<u8>),
    /// The whole answer to a plain request.
    Plain {
        status: u16,
        headers: Vec<(String, String)>,
        body: Vec<u8>,
    },
    /// The beginning of the answer to a plain request.
    PlainHead {
        status: u16,
        headers: Vec<(String, String)>,
    },
    /// A piece of its body.
    PlainBody(Vec<u8>),
    /// Its end.
    PlainEnd,
    /// The end.
    Status(Status),
}

/// Headers, as names and values on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Headers(pub Vec<(Vec<u8>, Vec<u8>)>);

impl Metadata for Headers {
    fn first(&self, name: &[u8]) -> Option<&[u8]> {
        let found = self.0.iter().find(|(known, _)| known == name)?;
        Some(&found.1)
    }
}

/// What a call asked for, and what it is told.
pub(crate) struct Recorder {
    pub identity: Option<Identity>,
    /// `None`: a listener's.
    pub proof: Option<Proof>,
    pub sent: Vec<Sent>,
    pub is_over: bool,
    pub can_send: bool,
    /// Messages that may be sent before it is asked again.
    pub sends_left: usize,
    pub wake_at_ns: Option<u64>,
    pub subscribed: Option<Topic>,
    pub watched: Option<ChangeNews>,
    /// What is to be read from the log, and how many bytes of it.
    pub log_reading: Option<(LogReading, usize)>,
    /// What is to be read for a server that follows.
    pub replica_reading: Option<(ReplicaReading, usize)>,
    pub is_held: bool,
    pub echoes_attachment: bool,
    pub now_ns: u64,
    pub now_ms: u64,
    pub initial: Headers,
    pub trailing: Headers,
    pub is_compressing: bool,
    pub message_was_compressed: bool,
    /// Changes of the catalogue that were asked for and not carried out yet.
    pub changes: WriteBatch,
    /// Entries of databases that were dropped.
    pub dropped_entries: usize,
    pub task: Option<Task>,
    pub refuse_task: Option<TaskRefusal>,
    /// Work on blobs that was asked for and is not done yet.
    pub work: Option<Work>,
    /// The key that was kept, if descriptions of blobs are to be read.
    pub wanted_read: Option<Vec<u8>>,
    /// What is to be described by the commit in `changes`.
    pub sealed: Option<Box<Sealed>>,
    pub window_bytes: Option<u32>,
    pub takes_parts: bool,
    /// The most bytes of content that were to be written at a time.
    pub most_work_bytes: usize,
    /// The message whose first part it was brought is to come as a whole.
    pub wants_whole: bool,
    pub reserved_bytes: usize,
    /// Whether there is memory for answers.
    pub has_room: bool,
    /// Whether there is memory for large messages, where messages may be sent at all.
    pub has_large_room: bool,
    /// For how much it was asked last.
    pub asked_bytes: usize,
    /// The message is to come once more.
    pub puts_back: bool,
    /// What the peer's windows leave, and what it is promised of that and holds ready.
    pub room: usize,
    pub promised_bytes: usize,
    pub ready_bytes: usize,
    pub kept_bytes: usize,
    pub has_progress: bool,
    /// What a message should have at most.
    pub message_bytes: usize,
    /// A step was asked for and not taken yet.
    pub wants_step: bool,
}

impl Permissions for Recorder {
    fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    fn proof(&self) -> Option<&Proof> {
        self.identity.as_ref().and(self.proof.as_ref())
    }
}

impl DatabaseAccess for Recorder {
    fn read(&mut self, database: DatabaseId, key: &[u8], _hash: u64) {
        let is_hidden = [DatabaseId::BLOBS, DatabaseId::IDENTITIES].contains(&database);
        assert!(is_hidden, "no entries are read here");
        assert!(self.wanted_read.is_none(), "one read at a time");
        self.wanted_read = Some(key.to_vec());
    }

    fn read_long(&mut self, database: DatabaseId) {
        self.read(database, &[], 0);
    }

    fn read_when_large(&mut self) {
        unreachable!("a large answer may always be sent here");
    }

    fn write(&mut self, database: DatabaseId, mode: Mode) -> Commit<'_> {
        let is_hidden = [DatabaseId::BLOBS, DatabaseId::IDENTITIES].contains(&database);
        assert!(is_hidden, "no entries are written here");
        self.changes.begin(0, database, mode)
    }
}

impl Administration for Recorder {
    fn set_audited(&mut self, _: &str, _: &str) {}

    fn create_database(&mut self, name: &str, config: &DatabaseConfig) {
        self.changes.create_database(0, name, config);
    }

    fn drop_database(&mut self, database: DatabaseId) {
        self.changes.drop_database(0, database);
    }

    fn drop_empty_database(&mut self, database: DatabaseId) {
        self.changes.drop_empty_database(0, database);
    }

    fn start_task(&mut self, task: Task) -> Result<(), TaskRefusal> {
        match self.refuse_task {
            Some(refusal) => Err(refusal),
            None => {
                assert!(self.task.is_none(), "a call has one task");
                self.task = Some(task);
                Ok(())
            }
        }
    }
}

impl BlobAccess for Recorder {
    fn blob(&mut self, work: Work) {
        assert!(self.work.is_none(), "one piece of work at a time");
        if let Work::Write { bytes, .. } = &work {
            self.most_work_bytes = self.most_work_bytes.max(bytes.len());
        }
        self.work = Some(work);
    }

    fn describe_blob(&mut self, name: &str, mut sealed: Box<Sealed>, condition: Condition<'_>) {
        let mut commit = (self.changes).begin(0, DatabaseId::BLOBS, Mode::Independent);
        let pushed = sealed.with_operation(name, condition, |operation| commit.push(operation));
        assert_eq!(pushed, Ok(()), "it fits");
        commit.submit();
        self.sealed = Some(sealed);
    }
}

impl Responses for Recorder {
    fn echo_attachment(&mut self) {
        self.echoes_attachment = true;
    }

    fn message(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        assert!(!self.is_over, "nothing follows the end");
        let mut bytes = Vec::new();
        encode(&mut bytes);
        self.sends_left = self.sends_left.saturating_sub(1);
        self.sent.push(match self.is_compressing {
            true => Sent::Compressed(bytes),
            false => Sent::Message(bytes),
        });
    }

    fn message_shared(
        &mut self,
        head: impl FnOnce(&mut Vec<u8>),
        body: &Bytes,
        range: Range<usize>,
    ) {
        self.room = self.room.saturating_sub(range.len());
        self.message(|out| {
            head(out);
            out.extend_from_slice(&body[range]);
        });
    }

    fn respond(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        assert!(!self.is_over, "a call ends once");
        let mut bytes = Vec::new();
        encode(&mut bytes);
        self.sent.push(Sent::Response(bytes));
        self.is_over = true;
    }

    fn respond_shared(&mut self, head: impl FnOnce(&mut Vec<u8>), body: &Bytes) {
        self.respond(|out| {
            head(out);
            out.extend_from_slice(body);
        });
    }

    fn respond_parts(&mut self, parts: MessageParts) {
        let mut message = Vec::new();
        for part in parts.parts() {
            message.extend_from_slice(match part {
                MessagePart::Own(bytes) => bytes,
                MessagePart::Shared(value) => value,
            });
        }
        assert_eq!(message.len(), parts.len());
        self.respond(|out| out.extend_from_slice(&message));
    }

    fn finish(&mut self, status: Status) {
        assert!(!self.is_over, "a call ends once");
        self.sent.push(Sent::Status(status));
        self.is_over = true;
    }
}

impl ResponseHeaders for Recorder {
    fn add_initial_metadata(&mut self, name: &[u8], value: &[u8]) {
        assert!(self.sent.is_empty(), "too late for initial metadata");
        self.initial.0.push((name.to_vec(), value.to_vec()));
    }

    fn add_trailing_metadata(&mut self, name: &[u8], value: &[u8]) {
        self.trailing.0.push((name.to_vec(), value.to_vec()));
    }

    fn compress(&mut self, wanted: bool) {
        self.is_compressing = wanted;
    }
}

impl PlainResponse for Recorder {
    fn plain(&mut self, status: u16, headers: &[(&str, &str)], body: &[u8], _: Code) {
        assert!(!self.is_over, "a call ends once");
        self.sent.push(Sent::Plain {
            status,
            headers: owned(headers),
            body: body.to_vec(),
        });
        self.is_over = true;
    }

    fn plain_head(&mut self, status: u16, headers: &[(&str, &str)]) {
        assert!(!self.is_over, "nothing follows the end");
        self.sent.push(Sent::PlainHead {
            status,
            headers: owned(headers),
        });
    }

    fn plain_body(&mut self, piece: &Bytes, range: Range<usize>) {
        assert!(!self.is_over, "nothing follows the end");
        self.room = self.room.saturating_sub(range.len());
        self.sent.push(Sent::PlainBody(piece[range].to_vec()));
    }

    fn plain_end(&mut self, _: Code) {
        assert!(!self.is_over, "a call ends once");
        self.sent.push(Sent::PlainEnd);
        self.is_over = true;
    }
}

impl SendRoom for Recorder {
    fn can_send(&mut self) -> bool {
        self.can_send && self.sends_left > 0
    }

    fn can_begin(&mut self) -> bool {
        self.can_send()
    }

    fn send_room(&mut self) -> usize {
        self.room
    }

    fn window_room(&self) -> usize {
        self.room
    }

    fn promise_room(&mut self, bytes: usize) {
        self.promised_bytes = bytes;
    }

    fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.has_progress)
    }
}

impl ResponseMemory for Recorder {
    fn room_for_answer(&mut self, bytes: usize) -> bool {
        self.asked_bytes = bytes;
        self.puts_back |= !self.has_room;
        self.has_room
    }

    fn can_send_large(&mut self, _bytes: usize) -> bool {
        self.can_send() && self.has_large_room
    }

    fn message_bytes(&self) -> usize {
        self.message_bytes
    }

    fn reserve(&mut self, bytes: usize) {
        self.reserved_bytes = bytes;
    }

    fn hold_ready(&mut self, bytes: usize) {
        self.ready_bytes = bytes;
    }

    fn hold_request(&mut self, bytes: usize) {
        self.kept_bytes = bytes;
    }
}

impl RequestFlow for Recorder {
    fn hold(&mut self) {
        self.is_held = true;
    }

    fn resume(&mut self) {
        self.is_held = false;
    }

    fn limit_window(&mut self, bytes: u32) {
        self.window_bytes = Some(bytes);
    }

    fn take_parts(&mut self) {
        self.takes_parts = true;
    }

    fn want_whole(&mut self) {
        self.wants_whole = true;
    }

    fn message_was_compressed(&self) -> bool {
        self.message_was_compressed
    }
}

impl Wakeups for Recorder {
    fn wake_at_ns(&mut self, at_ns: u64) {
        self.wake_at_ns = Some(at_ns);
    }

    fn subscribe(&mut self, topic: Topic) {
        self.subscribed = Some(topic);
    }

    fn watch(&mut self, news: ChangeNews) {
        self.watched = Some(news);
    }

    fn read_log(&mut self, reading: LogReading, bytes: usize) {
        assert!(self.log_reading.is_none(), "one after the other");
        self.log_reading = Some((reading, bytes));
    }

    fn read_replica(&mut self, reading: ReplicaReading, bytes: usize) {
        assert!(self.replica_reading.is_none(), "one after the other");
        self.replica_reading = Some((reading, bytes));
    }

    fn step_later(&mut self) {
        self.wants_step = true;
    }

    fn caller(&self) -> CallerId {
        CallerId::default()
    }
}

impl CallClock for Recorder {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn now_ms(&self) -> u64 {
        self.now_ms
    }

    fn wall_us(&self) -> u64 {
        self.now_ms * 1_000 + self.now_ns / 1_000 % 1_000
    }
}

fn owned(headers: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
    headers.iter().map(owned).collect()
}

/// Time in which nothing passes.
struct Standing;

impl Clock for Standing {
    fn now_ns(&mut self) -> u64 {
        0
    }

    fn now_ms(&mut self) -> u64 {
        1_000
    }
}

/// One call and the layer above it.
pub(crate) struct Fake {
    call: ServiceCall,
    pub actions: Recorder,
}

impl Fake {
    pub(crate) fn new(method: Method, shared: &Shared) -> Fake {
        Fake::with_metadata(method, &Headers::default(), shared)
    }

    pub(crate) fn with_metadata(method: Method, metadata: &Headers, shared: &Shared) -> Fake {
        Fake::started(method, Some(caller(&["admin"])), metadata, shared)
    }

    /// A call of somebody who has these rights, or of nobody any more.
    pub(crate) fn of(rights: Option<&[&str]>, method: Method, shared: &Shared) -> Fake {
        Fake::with(rights, method, &Headers::default(), shared)
    }

    /// The same with metadata.
    pub(crate) fn with(
        rights: Option<&[&str]>,
        method: Method,
        metadata: &Headers,
        shared: &Shared,
    ) -> Fake {
        Fake::started(method, rights.map(caller), metadata, shared)
    }

    fn started(
        method: Method,
        identity: Option<Identity>,
        metadata: &Headers,
        shared: &Shared,
    ) -> Fake {
        let mut actions = Recorder {
            identity,
            proof: None,
            sent: Vec::new(),
            is_over: false,
            can_send: true,
            sends_left: usize::MAX,
            wake_at_ns: None,
            has_room: true,
            has_large_room: true,
            asked_bytes: 0,
            puts_back: false,
            subscribed: None,
            watched: None,
            log_reading: None,
            replica_reading: None,
            is_held: false,
            echoes_attachment: false,
            now_ns: 1_000,
            now_ms: 1_700_000_000_000,
            initial: Headers::default(),
            trailing: Headers::default(),
            is_compressing: false,
            message_was_compressed: false,
            changes: shared.store.write_batch(),
            dropped_entries: 0,
            task: None,
            refuse_task: None,
            work: None,
            wanted_read: None,
            sealed: None,
            window_bytes: None,
            takes_parts: false,
            most_work_bytes: 0,
            wants_whole: false,
            reserved_bytes: 0,
            room: usize::MAX,
            promised_bytes: 0,
            ready_bytes: 0,
            kept_bytes: 0,
            has_progress: false,
            message_bytes: usize::MAX,
            wants_step: false,
        };
        let head = CallHead {
            deadline_ns: u64::MAX,
            metadata,
        };
        let call = ServiceCall::started(method, &head, shared, &mut actions);
        Fake { call, actions }
    }

    pub(crate) fn message(&mut self, bytes: &[u8], last: bool, shared: &Shared) {
        self.check_alive();
        assert!(!self.actions.is_held, "a held call gets no message");
        self.call.message(bytes, last, shared, &mut self.actions);
        self.take_step(shared);
    }

    /// Brings a part of a message; returns false where the message is to come as a whole.
    pub(crate) fn part(
        &mut self,
        bytes: &[u8],
        is_first: bool,
        left: usize,
        shared: &Shared,
    ) -> bool {
        self.check_alive();
        assert!(
            self.actions.takes_parts,
            "it gets parts only if it takes them"
        );
        assert!(!self.actions.is_held, "a held call gets no part");
        self.call
            .part(bytes, left, false, shared, &mut self.actions);
        let wants_whole = std::mem::take(&mut self.actions.wants_whole);
        assert!(!wants_whole || is_first, "only at the first part");
        !wants_whole
    }

    /// Takes the step that was asked for, if one was.
    fn take_step(&mut self, shared: &Shared) {
        if std::mem::take(&mut self.actions.wants_step) {
            self.woken(shared);
        }
    }

    /// Lets the committer carry out the changes of the catalogue, as at the end of a tick.
    pub(crate) fn commit(&mut self, shared: &Shared) {
        let mut outcomes = Outcomes::new();
        let changes = &mut self.actions.changes;
        let garbage = shared
            .store
            .committer()
            .run(changes, &mut Standing, &mut outcomes);
        self.actions.dropped_entries += garbage.entries();
        for outcome in outcomes.iter() {
            self.check_alive();
            self.call.committed(&outcome, shared, &mut self.actions);
        }
    }

    pub(crate) fn committed(&mut self, outcome: &CommitOutcome<'_>, shared: &Shared) {
        self.check_alive();
        self.call.committed(outcome, shared, &mut self.actions);
    }

    /// What the call has asked to read.
    pub(crate) fn read(&mut self, view: &ReadView<'_>, kept: &[u8], shared: &Shared) {
        self.check_alive();
        self.call.read(view, kept, shared, &mut self.actions);
    }

    /// What was asked for is done.
    pub(crate) fn blob(&mut self, news: BlobNews, shared: &Shared) {
        self.check_alive();
        self.call.blob(news, shared, &mut self.actions);
    }

    pub(crate) fn half_closed(&mut self, shared: &Shared) {
        self.check_alive();
        self.call.half_closed(shared, &mut self.actions);
    }

    pub(crate) fn writable(&mut self, shared: &Shared) {
        self.check_alive();
        self.call.writable(shared, &mut self.actions);
        self.take_step(shared);
    }

    pub(crate) fn task(&mut self, news: &TaskNews<'_>, shared: &Shared) {
        self.check_alive();
        self.call.task(news, shared, &mut self.actions);
    }

    /// What the call has asked to be read from the log.
    pub(crate) fn log_read(
        &mut self,
        reading: LogReading,
        read: Result<NextCommits, LogReadError>,
        shared: &Shared,
    ) {
        self.check_alive();
        self.call.log_read(reading, read, shared, &mut self.actions);
        self.take_step(shared);
    }

    /// Reads what the call has asked to be read for a server that follows. Returns whether it has.
    pub(crate) fn read_replica(&mut self, shared: &Shared) -> bool {
        self.read_replica_with(shared, |reading, bytes| reading.run(bytes, usize::MAX))
    }

    /// The same where something else comes of it.
    pub(crate) fn read_replica_with(
        &mut self,
        shared: &Shared,
        read: impl FnOnce(&mut ReplicaReading, usize) -> Result<ReplicaPiece, LogReadError>,
    ) -> bool {
        self.check_alive();
        let Some((mut reading, bytes)) = self.actions.replica_reading.take() else {
            return false;
        };
        let read = read(&mut reading, bytes);
        (self.call).replica_read(reading, read, shared, &mut self.actions);
        self.take_step(shared);
        true
    }

    pub(crate) fn woken(&mut self, shared: &Shared) {
        self.check_alive();
        self.call.woken(shared, &mut self.actions);
    }

    /// Lets the time of the timer come.
    pub(crate) fn wake_in_time(&mut self, shared: &Shared) {
        let at_ns = self
            .actions
            .wake_at_ns
            .take()
            .expect("the call has set its timer");
        assert!(at_ns > self.actions.now_ns, "a timer lies in the future");
        self.actions.now_ns = at_ns;
        self.woken(shared);
    }

    /// What has gone out since the last time.
    pub(crate) fn take_sent(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.actions.sent)
    }

    /// The status that ended the call, if that is all that has gone out.
    pub(crate) fn take_status(&mut self) -> Option<Status> {
        match self.take_sent().as_mut_slice() {
            [Sent::Status(status)] => Some(status.clone()),
            _ => None,
        }
    }

    fn check_alive(&self) {
        assert!(!self.actions.is_over, "a call that is over is left alone");
    }
}
