//! A call as a state machine: what comes in ([`State`]) and what it asks for ([`Actions`]).
//!
//! The layer above makes a [`Call`](crate::Call) when a request head has arrived, feeds it what the
//! caller sends, and carries out what the call asks for. A call keeps no borrowed bytes between two
//! steps and never blocks. Once it has called [`Actions::respond`] or [`Actions::finish`] it is
//! over: the layer above drops it and brings it nothing more.

use std::ops::Range;

use bytes::Bytes;
use store::blob::{News, Sealed, Work};
use store::tree::ReadPlan;
use store::{Commit, CommitOutcome, Condition, DatabaseConfig, DatabaseId, Mode, ReadView, Store};

use crate::figures::Figures;
use crate::serving::Registry;
use crate::settings::ServiceSettings;
use crate::shares::Caller;
use crate::status::{Code, Status};
use crate::task::{Task, TaskNews, TaskRefusal};
use crate::waiting::WaitingCalls;

/// A message in parts: bytes of its own, and between them values that others hold too.
#[derive(Debug, Default)]
pub struct MessageParts {
    /// All bytes of its own, in order.
    pub own: Vec<u8>,
    /// What stands between them: behind so many of them, and the value.
    shared: Vec<(usize, Bytes)>,
    shared_bytes: usize,
}

/// One of the [`MessageParts`].
#[derive(Clone, Copy, Debug)]
pub enum MessagePart<'a> {
    /// Bytes of its own.
    Own(&'a [u8]),
    /// A value that others hold too.
    Shared(&'a Bytes),
}

impl MessageParts {
    /// Appends a value without copying it.
    pub fn share(&mut self, value: &Bytes) {
        self.shared_bytes += value.len();
        self.shared.push((self.own.len(), value.clone()));
    }

    /// Returns the bytes of the whole message.
    pub fn len(&self) -> usize {
        self.own.len() + self.shared_bytes
    }

    /// Returns whether there is nothing yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the parts in order.
    pub fn parts(&self) -> impl Iterator<Item = MessagePart<'_>> + Clone {
        let starts = std::iter::once(0).chain(self.shared.iter().map(|(at, _)| *at));
        let own = starts
            .zip(self.ends())
            .map(|(start, end)| &self.own[start..end]);
        let values = self.shared.iter().map(|(_, value)| Some(value));
        own.zip(values.chain(std::iter::once(None)))
            .flat_map(|(own, value)| {
                let own = (!own.is_empty()).then_some(MessagePart::Own(own));
                own.into_iter().chain(value.map(MessagePart::Shared))
            })
    }

    fn ends(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        (self.shared.iter().map(|(at, _)| *at)).chain(std::iter::once(self.own.len()))
    }
}

/// What a call may ask of the layer above. Generic, so that nothing is called through a pointer on
/// the way of a request.
pub trait Actions {
    /// Asks for [`State::read`] with a view of `database`: later in this tick, or, if it is on
    /// disk, when what the call [asks for](State::wish) was fetched. `keep`, usually a key, is
    /// copied and comes back with it. If the database is gone by then, the layer above ends the
    /// call with [`database_gone`](crate::keyvalue::database_gone).
    fn read(&mut self, database: DatabaseId, keep: &[u8]);

    /// The same for a read that may take long: it is served after the others, as time allows, and
    /// in the next tick if it is asked for from within [`State::read`].
    fn read_long(&mut self, database: DatabaseId);

    /// Begins a write; once it is submitted, [`State::committed`] follows. A call may have several
    /// under way: they take effect, and their outcomes come, in the order submitted.
    fn write(&mut self, database: DatabaseId, mode: Mode) -> Commit<'_>;

    /// Has a database made; [`State::committed`] follows, and its outcome names it.
    fn create_database(&mut self, name: &str, config: &DatabaseConfig);

    /// Has a database dropped; [`State::committed`] follows.
    fn drop_database(&mut self, database: DatabaseId);

    /// The same, if it is empty when that is decided.
    fn drop_empty_database(&mut self, database: DatabaseId);

    /// Has something done that waits for the disk, beside the loops; [`State::blob`] follows. One
    /// at a time.
    fn blob(&mut self, work: Work);

    /// Has an upload that is complete described under a name; [`State::committed`] follows. What it
    /// replaces is removed, whatever becomes of the call.
    fn describe_blob(&mut self, name: &str, sealed: Box<Sealed>, condition: Condition<'_>);

    /// Has a long task done beside the loops; [`State::task`] follows until it is over. Ended with
    /// the call, it leaves nothing behind. A call has at most one.
    fn start_task(&mut self, task: Task) -> Result<(), TaskRefusal>;

    /// Sends the only message of this call and status OK: the answer of a unary call.
    fn respond(&mut self, encode: impl FnOnce(&mut Vec<u8>));

    /// [`Actions::respond`] with a message that is `head` followed by `body`; a large `body` is not
    /// copied before it goes out.
    fn respond_shared(&mut self, head: impl FnOnce(&mut Vec<u8>), body: &Bytes);

    /// [`Actions::respond`] with a message of several parts, of which large ones are not copied
    /// before they go out.
    fn respond_parts(&mut self, parts: MessageParts);

    /// Sets bytes aside for what this call will send next, before they exist. They are given back
    /// when it sends or ends.
    fn reserve(&mut self, bytes: usize);

    /// Asks for [`State::woken`] within the time that a tick has for long work: for a step that
    /// takes long and cannot be cut.
    fn step_later(&mut self);

    /// Sends one message of a stream of answers.
    fn message(&mut self, encode: impl FnOnce(&mut Vec<u8>));

    /// [`Actions::message`] with a message that is `head` followed by what of `body` is in `range`;
    /// it is not copied before it goes out.
    fn message_shared(
        &mut self,
        head: impl FnOnce(&mut Vec<u8>),
        body: &Bytes,
        range: Range<usize>,
    );

    /// Answers a plain request as a whole, and ends it. `code` is what it is counted as.
    fn plain(&mut self, status: u16, headers: &[(&str, &str)], body: &[u8], code: Code);

    /// Begins the answer to a plain request. [`Actions::plain_body`] and [`Actions::plain_end`]
    /// follow.
    fn plain_head(&mut self, status: u16, headers: &[(&str, &str)]);

    /// A piece of the body: what of `piece` is in `range`. It is not copied before it goes out.
    fn plain_body(&mut self, piece: &Bytes, range: Range<usize>);

    /// The end of it, and of the call. `code` is what it is counted as.
    fn plain_end(&mut self, code: Code);

    /// Ends the call. A plain request is answered with the status of HTTP that fits; if its answer
    /// has begun, it is cut off.
    fn finish(&mut self, status: Status);

    /// Whether a further message may be sent now. If not, the call waits for [`State::writable`].
    fn can_send(&mut self) -> bool;

    /// [`Actions::can_send`] for a call that does not [hold](Actions::hold_ready) anything yet and
    /// will when it has sent something: while memory is short, those of its connection come first
    /// that do.
    fn can_begin(&mut self) -> bool;

    /// Returns how many bytes the peer's windows would let out at once, which may be sent also
    /// where [`Actions::can_send`] says no. If none, [`State::writable`] follows when there are
    /// some.
    fn send_room(&mut self) -> usize;

    /// Returns how many bytes the peer's windows would let out behind what waits, whether they may
    /// be sent or not.
    fn window_room(&self) -> usize;

    /// Has so many bytes of the connection's window kept for what this call will send next, until
    /// it sends or ends: what is being fetched from a disk for it.
    fn promise_room(&mut self, bytes: usize);

    /// Has so many bytes that this call holds ready counted as held by its connection, until it
    /// sends or ends.
    fn hold_ready(&mut self, bytes: usize);

    /// Has so many bytes that this call keeps of its request counted as held by its connection,
    /// until it sends or ends.
    fn hold_request(&mut self, bytes: usize);

    /// Returns whether the peer has taken some of what waited for it, or opened its window, since
    /// this was last asked.
    fn take_progress(&mut self) -> bool;

    /// [`Actions::can_send`] for a message that may have more bytes than
    /// [`Actions::message_bytes`]. With true, `bytes` of the memory for answers are taken until
    /// this step is over, and nobody else gets them: what the message copies, at most.
    fn can_send_large(&mut self, bytes: usize) -> bool;

    /// Within [`State::message`], before anything is done for the message: takes memory for the
    /// answer, of `bytes` at most, which is set aside until the call sends or ends. False: there is
    /// none now, and the same message comes once more when there may be. A small answer needs none.
    fn room_for_answer(&mut self, bytes: usize) -> bool;

    /// Returns how many bytes a message should have at most: not many while memory for answers is
    /// short.
    fn message_bytes(&self) -> usize;

    /// Within the [`State::read`] of a short read: asks for it once more, when a large answer may
    /// be sent.
    fn read_when_large(&mut self);

    /// Asks for [`State::woken`] at `at_ns` on the clock of [`Actions::now_ns`]. A later request
    /// replaces an earlier.
    fn wake_at_ns(&mut self, at_ns: u64);

    /// Asks for [`State::woken`] at every change of `topic`, until the call ends.
    fn subscribe(&mut self, topic: Topic);

    /// Asks that no further message of the caller be brought until [`Actions::resume`]; the window
    /// of its stream stays shut meanwhile, so the caller is slowed down instead of buffered.
    fn hold(&mut self);

    /// Bounds what the window of the caller's stream may grow to, and so what waits while the call
    /// is held.
    fn limit_window(&mut self, bytes: u32);

    /// From now on the caller's messages come in parts as they arrive ([`State::part`]), unless one
    /// is there as a whole or is compressed: for calls that store what large ones bring, and need
    /// not see all of it at once.
    fn take_parts(&mut self);

    /// Within the [`State::part`] that begins a message: that it come as a whole instead. The part
    /// is forgotten.
    fn want_whole(&mut self);

    /// Whose call this is: what is scarce is shared out by callers.
    fn caller(&self) -> Caller;

    /// Takes [`Actions::hold`] back.
    fn resume(&mut self);

    /// Monotonic time in nanoseconds, any origin, read anew: for cutting long work into slices.
    fn now_ns(&self) -> u64;

    /// The store's clock ([`Store::clock_ms`]) as of this tick, in milliseconds since 1970.
    fn now_ms(&self) -> u64;

    /// The wall clock, read anew, in microseconds since 1970. It may be set back.
    fn wall_us(&self) -> u64;

    /// Adds a header to those that go before the first message. After the first message it has no
    /// effect. `value` is as on the wire: base64 for names that end in `-bin`.
    fn add_initial_metadata(&mut self, name: &[u8], value: &[u8]);

    /// Adds a header to those that go with the status. `value` is as on the wire.
    fn add_trailing_metadata(&mut self, name: &[u8], value: &[u8]);

    /// Whether the messages that follow are compressed, if the caller accepts that. At first they
    /// are not.
    fn compress(&mut self, wanted: bool);

    /// Whether the message now in [`State::message`] was compressed on the wire.
    fn message_was_compressed(&self) -> bool;
}

/// Something that changes while calls wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Topic {
    /// The serving status of some service ([`Registry`]).
    Health,
}

/// What is known when a call begins.
#[derive(Clone, Copy)]
pub struct CallHead<'a> {
    /// When the caller gives up, on the clock of [`Actions::now_ns`]; `u64::MAX` if it did not say.
    /// The layer above ends the call then; it is here for those who want to plan.
    pub deadline_ns: u64,
    /// From where the call comes.
    pub peer: PeerKind,
    /// The metadata that came with the request.
    pub metadata: &'a dyn Metadata,
}

/// From where a call comes, as far as it matters for what it may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerKind {
    /// A UNIX socket of this machine.
    Unix,
    /// A loopback address of this machine.
    Loopback,
    /// Anywhere else.
    Remote,
}

/// The metadata of a request. Asking costs a walk over the headers; nothing is paid by those who do
/// not ask.
pub trait Metadata {
    /// Value of the first header `name` (lower case), as on the wire: base64 if `name` ends in
    /// `-bin`.
    fn first(&self, name: &[u8]) -> Option<&[u8]>;
}

/// What all calls of one server share. Immutable, apart from what guards itself.
pub struct Shared {
    /// The databases.
    pub store: Store,
    /// Name and version of the server, as greetings and statistics say it.
    pub server: ServerInfo,
    /// Which services are ready.
    pub health: Registry,
    /// The places for calls that wait for something that may never come.
    pub waiting: WaitingCalls,
    /// What it has done so far.
    pub figures: Figures,
    /// What the answer to a batch may have at most, whatever its caller can receive, in bytes: see
    /// [`ANSWER_BYTES_MAX`](crate::limits::ANSWER_BYTES_MAX).
    pub answer_bytes_max: u64,
    /// How the services are to be.
    pub settings: ServiceSettings,
}

/// Who this server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// The name of the program.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
}

/// The steps of a call. Those that a kind of call never sees have nothing to do.
pub trait State {
    /// One whole message of the caller. `last`: with it the caller has ended its side;
    /// [`State::half_closed`] does not follow.
    fn message(&mut self, bytes: &[u8], last: bool, shared: &Shared, actions: &mut impl Actions);

    /// Some of a message of a call that takes parts ([`Actions::take_parts`]): `left` bytes of it
    /// are still to come. `last`: as for [`State::message`].
    fn part(
        &mut self,
        _bytes: &[u8],
        _left: usize,
        _last: bool,
        _shared: &Shared,
        actions: &mut impl Actions,
    ) {
        debug_assert!(false, "a call gets parts only if it takes them");
        actions.want_whole();
    }

    /// The caller ended its side without a further message.
    fn half_closed(&mut self, shared: &Shared, actions: &mut impl Actions);

    /// What [`State::read`] will look at, said beforehand: asked only of calls whose database is on
    /// disk. `kept` is what was to be kept.
    fn wish(&self, _kept: &[u8], _wishes: &mut ReadPlan) {}

    /// What [`Actions::read`] or [`Actions::read_long`] asked for. `kept` is what was to be kept.
    fn read(
        &mut self,
        _shown: &ReadView<'_>,
        _kept: &[u8],
        _shared: &Shared,
        _actions: &mut impl Actions,
    ) {
    }

    /// What became of the submitted write.
    fn committed(
        &mut self,
        _outcome: &CommitOutcome<'_>,
        _shared: &Shared,
        _actions: &mut impl Actions,
    ) {
    }

    /// News of the task that [`Actions::start_task`] began. Some of the progress may be left out.
    fn task(&mut self, _news: &TaskNews<'_>, _shared: &Shared, _actions: &mut impl Actions) {}

    /// What [`Actions::blob`] asked for is done, or another stream has taken an upload over.
    fn blob(&mut self, _news: News, _shared: &Shared, _actions: &mut impl Actions) {}

    /// After [`Actions::can_send`] said no: now it says yes. Or there was no
    /// [`Actions::send_room`], and there may be some.
    fn writable(&mut self, _shared: &Shared, _actions: &mut impl Actions) {}

    /// The time of [`Actions::wake_at_ns`] has come, or a subscribed topic has changed.
    fn woken(&mut self, _shared: &Shared, _actions: &mut impl Actions) {}

    /// The call is dead: the caller cancelled it, its deadline has passed, or its connection is
    /// gone. Nothing can be sent any more, and no further step follows.
    fn cancelled(&mut self, _shared: &Shared) {}
}

#[cfg(test)]
#[test]
fn messages_in_parts_come_in_their_order() {
    let seen = |message: &MessageParts| -> Vec<(bool, Vec<u8>)> {
        let owned = |part| match part {
            MessagePart::Own(bytes) => (true, bytes.to_vec()),
            MessagePart::Shared(value) => (false, value.to_vec()),
        };
        message.parts().map(owned).collect()
    };
    let mut message = MessageParts::default();
    assert!(message.is_empty() && seen(&message).is_empty());
    // Two values with nothing between them, and nothing before the first.
    message.share(&b"a".as_slice().into());
    message.share(&b"bc".as_slice().into());
    message.own.extend_from_slice(b"def");
    message.share(&b"g".as_slice().into());
    message.own.push(b'h');
    assert_eq!((message.len(), message.is_empty()), (8, false));
    let expected = [
        (false, b"a".to_vec()),
        (false, b"bc".to_vec()),
        (true, b"def".to_vec()),
        (false, b"g".to_vec()),
        (true, b"h".to_vec()),
    ];
    assert_eq!(seen(&message), expected);
}
