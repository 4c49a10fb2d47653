//! What a call may ask of the layer above, by what it is for: one trait each, so that a signature
//! names what a function uses. The steps that follow are those of `CallSteps`.
//!
//! All are implemented by one type, and generic where they are used, so that nothing is called
//! through a pointer on the way of a request. Once a call has called [`Responses::respond`],
//! [`Responses::finish`] or [`PlainResponse::plain_end`], or one of their kind, it is over.

use std::ops::Range;

use bytes::Bytes;
use store::blob::{Sealed, Work};
use store::{
    ChangeNews, Commit, Condition, DatabaseConfig, DatabaseId, LogReading, Mode, ReplicaReading,
};

use crate::identities::{Identity, Proof};
use crate::message_parts::MessageParts;
use crate::shares::CallerId;
use crate::status::{Code, Status};
use crate::task::{Task, TaskRefusal};

#[cfg(doc)]
use {crate::serving::Registry, store::Store};

/// Everything that a call may ask for: what the layer above implements.
pub trait Actions:
    DatabaseAccess
    + Permissions
    + Administration
    + BlobAccess
    + Responses
    + ResponseHeaders
    + PlainResponse
    + SendRoom
    + ResponseMemory
    + RequestFlow
    + Wakeups
    + CallClock
{
}

impl<A> Actions for A where
    A: DatabaseAccess
        + Permissions
        + Administration
        + BlobAccess
        + Responses
        + ResponseHeaders
        + PlainResponse
        + SendRoom
        + ResponseMemory
        + RequestFlow
        + Wakeups
        + CallClock
{
}

/// Whose call it is.
pub trait Permissions {
    /// Returns who calls, and what they may do; `None` if they were revoked or have expired, and
    /// the call is about to be ended.
    fn identity(&self) -> Option<&Identity>;

    /// Returns what proves that, a token or a binding; `None` if the rights are those of a
    /// listener, or there is no [`Permissions::identity`].
    fn proof(&self) -> Option<&Proof>;
}

/// Reads and writes of databases.
pub trait DatabaseAccess {
    /// Asks for `CallSteps::read` with a view of `database`: later in this tick, or, if it is on
    /// disk, when what the call asks for (`PlanReads::plan_reads`) was fetched. `key` is copied and
    /// comes back with it. `hash` is that of the key ([`Store::hasher`](store::Store::hasher)), by
    /// which what is in memory is brought into the caches of the CPU; the call keeps it for its
    /// look-up. If the database is gone by then, the layer above ends the call with
    /// [`database_gone`](crate::keyvalue::database_gone).
    fn read(&mut self, database: DatabaseId, key: &[u8], hash: u64);

    /// The same for a read that may take long: it is served after the others, as time allows, and
    /// in the next tick if it is asked for from within `CallSteps::read`.
    fn read_long(&mut self, database: DatabaseId);

    /// Within the `CallSteps::read` of a short read: asks for it once more, when a large answer
    /// may be sent.
    fn read_when_large(&mut self);

    /// Begins a write; once it is submitted, `CallSteps::committed` follows. A call may have
    /// several under way: they take effect, and their outcomes come, in the order submitted.
    fn write(&mut self, database: DatabaseId, mode: Mode) -> Commit<'_>;
}

/// What changes databases as a whole, and tasks that take long.
pub trait Administration {
    /// Has a database made; `CallSteps::committed` follows, and its outcome names it.
    fn create_database(&mut self, name: &str, config: &DatabaseConfig);

    /// Has a database dropped; `CallSteps::committed` follows.
    fn drop_database(&mut self, database: DatabaseId);

    /// The same, if it is empty when that is decided.
    fn drop_empty_database(&mut self, database: DatabaseId);

    /// Notes for the audit trail what the call is about, in the words of its request: a name, and
    /// what else is worth a line.
    fn set_audited(&mut self, subject: &str, detail: &str);

    /// Has a long task done on the worker pool; `CallSteps::task` follows until it is over. Ended
    /// with the call, it leaves nothing behind. A call has at most one.
    fn start_task(&mut self, task: Task) -> Result<(), TaskRefusal>;
}

/// Work on the files of blobs, and their descriptions.
pub trait BlobAccess {
    /// Has something done that waits for the disk, on the worker pool; `CallSteps::blob` follows.
    /// One at a time.
    fn blob(&mut self, work: Work);

    /// Has an upload that is complete described under a name; `CallSteps::committed` follows.
    /// What it replaces is removed, whatever becomes of the call.
    fn describe_blob(&mut self, name: &str, sealed: Box<Sealed>, condition: Condition<'_>);
}

/// The messages of a gRPC response, and the status that ends it.
pub trait Responses {
    /// Has what came with the request beside its message go with the response: the attachment of
    /// baidu_std. Over other protocols there is none.
    fn echo_attachment(&mut self) {}

    /// Sends one message of a stream of answers.
    fn message(&mut self, encode: impl FnOnce(&mut Vec<u8>));

    /// [`Responses::message`] with a message that is `head` followed by what of `body` is in
    /// `range`; it is not copied before it goes out.
    fn message_shared(
        &mut self,
        head: impl FnOnce(&mut Vec<u8>),
        body: &Bytes,
        range: Range<usize>,
    );

    /// Sends the only message of this call and status OK: the answer of a unary call.
    fn respond(&mut self, encode: impl FnOnce(&mut Vec<u8>));

    /// [`Responses::respond`] with a message that is `head` followed by `body`; a large `body` is
    /// not copied before it goes out.
    fn respond_shared(&mut self, head: impl FnOnce(&mut Vec<u8>), body: &Bytes);

    /// [`Responses::respond`] with a message of several parts, of which large ones are not copied
    /// before they go out.
    fn respond_parts(&mut self, parts: MessageParts);

    /// Ends the call. A plain request is answered with the status of HTTP that fits; if its answer
    /// has begun, it is cut off.
    fn finish(&mut self, status: Status);
}

/// Metadata beside the messages of a gRPC response, and their compression.
pub trait ResponseHeaders {
    /// Adds a header to those that go before the first message. After the first message it has no
    /// effect. `value` is as on the wire: base64 for names that end in `-bin`.
    fn add_initial_metadata(&mut self, name: &[u8], value: &[u8]);

    /// Adds a header to those that go with the status. `value` is as on the wire.
    fn add_trailing_metadata(&mut self, name: &[u8], value: &[u8]);

    /// Whether the messages that follow are compressed, if the caller accepts that. At first they
    /// are not.
    fn compress(&mut self, wanted: bool);
}

/// The response to a plain HTTP request.
pub trait PlainResponse {
    /// Answers a plain request as a whole, and ends it. `code` is what it is counted as.
    fn plain(&mut self, status: u16, headers: &[(&str, &str)], body: &[u8], code: Code);

    /// Begins the answer to a plain request. [`PlainResponse::plain_body`] and
    /// [`PlainResponse::plain_end`] follow.
    fn plain_head(&mut self, status: u16, headers: &[(&str, &str)]);

    /// A piece of the body: what of `piece` is in `range`. It is not copied before it goes out.
    fn plain_body(&mut self, piece: &Bytes, range: Range<usize>);

    /// The end of it, and of the call. `code` is what it is counted as.
    fn plain_end(&mut self, code: Code);
}

/// The room that the windows of the peer and the connection's buffer leave for sending.
pub trait SendRoom {
    /// Whether a further message may be sent now. If not, the call waits for
    /// `CallSteps::writable`.
    fn can_send(&mut self) -> bool;

    /// [`SendRoom::can_send`] for a call that does not [hold](ResponseMemory::hold_ready) anything
    /// yet and will when it has sent something: while memory is short, those of its connection come
    /// first that do.
    fn can_begin(&mut self) -> bool;

    /// Returns how many bytes the peer's windows would let out at once, which may be sent also
    /// where [`SendRoom::can_send`] says no. If none, `CallSteps::writable` follows when there
    /// are some.
    fn send_room(&mut self) -> usize;

    /// Returns how many bytes the peer's windows would let out behind what waits, whether they may
    /// be sent or not.
    fn window_room(&self) -> usize;

    /// Has so many bytes of the connection's window kept for what this call will send next, until
    /// it sends or ends: what is being fetched from a disk for it.
    fn promise_room(&mut self, bytes: usize);

    /// Returns whether the peer has taken some of what waited for it, or opened its window, since
    /// this was last asked.
    fn take_progress(&mut self) -> bool;
}

/// Memory for responses, and what a call keeps of it.
///
/// What is reserved or held is given back when the call sends or ends.
pub trait ResponseMemory {
    /// Within `CallSteps::message`, before anything is done for the message: takes memory for the
    /// answer, of `bytes` at most, which is set aside until the call sends or ends. False: there is
    /// none now, and the same message comes once more when there may be. A small answer needs none.
    fn room_for_answer(&mut self, bytes: usize) -> bool;

    /// [`SendRoom::can_send`] for a message that may have more bytes than
    /// [`ResponseMemory::message_bytes`]. With true, `bytes` of the memory for answers are taken
    /// until this step is over, and nobody else gets them: what the message copies, at most.
    fn can_send_large(&mut self, bytes: usize) -> bool;

    /// Returns how many bytes a message should have at most: not many while memory for answers is
    /// short.
    fn message_bytes(&self) -> usize;

    /// Sets bytes aside for what this call will send next, before they exist. They are given back
    /// when it sends or ends.
    fn reserve(&mut self, bytes: usize);

    /// Has so many bytes that this call holds ready counted as held by its connection, until it
    /// sends or ends.
    fn hold_ready(&mut self, bytes: usize);

    /// Has so many bytes that this call keeps of its request counted as held by its connection,
    /// until it sends or ends.
    fn hold_request(&mut self, bytes: usize);
}

/// How and when the messages of the caller arrive.
pub trait RequestFlow {
    /// Asks that no further message of the caller be brought until [`RequestFlow::resume`]; the
    /// window of its stream stays shut meanwhile, so the caller is slowed down instead of buffered.
    fn hold(&mut self);

    /// Takes [`RequestFlow::hold`] back.
    fn resume(&mut self);

    /// Bounds what the window of the caller's stream may grow to, and so what waits while the call
    /// is held.
    fn limit_window(&mut self, bytes: u32);

    /// From now on the caller's messages come in parts as they arrive (`CallSteps::part`), unless
    /// one is there as a whole or is compressed: for calls that store what large ones bring, and
    /// need not see all of it at once.
    fn take_parts(&mut self);

    /// Within the `CallSteps::part` that begins a message: that it come as a whole instead. The
    /// part is forgotten.
    fn want_whole(&mut self);

    /// Whether the message now in `CallSteps::message` was compressed on the wire.
    fn message_was_compressed(&self) -> bool;
}

/// Later steps of a call, and whom they keep waiting.
pub trait Wakeups {
    /// Asks for `CallSteps::woken` at `at_ns` on the clock of [`CallClock::now_ns`]. A later
    /// request replaces an earlier.
    fn wake_at_ns(&mut self, at_ns: u64);

    /// Asks for `CallSteps::woken` at every change of `topic`, until the call ends.
    fn subscribe(&mut self, topic: Topic);

    /// Asks for `CallSteps::woken` whenever a database that the call watches has changed, and at
    /// every change of [`Topic::Health`], until the call ends.
    fn watch(&mut self, news: ChangeNews);

    /// Has commits of about so many bytes read from the log, beside the loop;
    /// `CallSteps::log_read` follows.
    fn read_log(&mut self, reading: LogReading, bytes: usize);

    /// Has a piece of about so many bytes read for a server that follows this one, beside the loop;
    /// `CallSteps::replica_read` follows.
    fn read_replica(&mut self, reading: ReplicaReading, bytes: usize);

    /// Asks for `CallSteps::woken` within the time that a tick has for long work: for a step that
    /// takes long and cannot be cut.
    fn step_later(&mut self);

    /// Returns whose call this is: what is scarce is shared out by callers.
    fn caller(&self) -> CallerId;
}

/// The clocks that a call may read.
pub trait CallClock {
    /// Monotonic time in nanoseconds, any origin, read anew: for cutting long work into slices.
    fn now_ns(&self) -> u64;

    /// The store's clock ([`Store::clock_ms`]) as of this tick, in milliseconds since 1970.
    fn now_ms(&self) -> u64;

    /// The wall clock, read anew, in microseconds since 1970. It may be set back.
    fn wall_us(&self) -> u64;
}

/// Something that changes while calls wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Topic {
    /// The serving status of some service ([`Registry`]).
    Health,
}
