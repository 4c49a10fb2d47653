//! The server's side of a connection that carries baidu_std or SRPC.
//!
//! `receive` walks frames and makes calls of them, `head` what the layer above sees of a request,
//! `body` gathers and decompresses messages, `send` makes responses, which wait in
//! `response_queue`, `streams` has the calls.

mod body;
mod claims;
mod head;
mod known_meta;
mod last_message;
mod receive;
mod response_queue;
mod send;
mod streams;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use super::FramedProtocol;
use crate::http2::guard::Guard;
use crate::http2::pool::BufferPool;
use crate::http2::{
    CancelCause, CloseReason, Config, ErrorCode, Event, Head, Pause, StreamKey, TakenMessage,
};
use crate::limits;
use body::IncomingRequest;
use head::FramedHead;
use known_meta::KnownMeta;
use last_message::FramedLastMessage;
use response_queue::ResponseQueue;
use streams::{FramedSendNeed, FramedStreams};

const NS_PER_MS: u64 = 1_000_000;

/// One connection of a server that carries baidu_std or SRPC.
///
/// Bytes and the time go in, [`Event`]s and bytes come out, as with [`crate::Connection`], whose
/// names this type has for all that both have. A request is an [`Event::Request`] and then one
/// [`Event::Message`]; a response is one frame, whatever makes it up. As there is no flow control,
/// a request whose turn has not come is left in the input, and the driver reads no further.
#[derive(Debug)]
pub struct FramedServerConnection {
    protocol: FramedProtocol,
    config: Config,
    now_ns: u64,
    closed: Option<CloseReason>,
    /// No further calls are taken; the connection ends when this is over and none runs.
    drain_due_ns: Option<u64>,
    is_drain_over: bool,
    guard: Guard,
    pool: BufferPool,
    streams: FramedStreams,
    events: VecDeque<Event>,

    // Receiving.
    head: FramedHead,
    /// Of the request that the head is of, if nothing but that goes with it.
    known_meta: KnownMeta,
    incoming: IncomingRequest,
    message: FramedLastMessage,
    /// The call that runs alone, if one does.
    alone: Option<StreamKey>,
    /// Why the request that lies in the input is not taken.
    held: HoldReason,
    /// When the rest of a frame has to be there.
    rest_due_ns: Option<u64>,
    put_back: VecDeque<PutBack>,
    turn_allowance: usize,
    unpack_allowance: usize,
    are_windows_shut: bool,
    /// A message has got its turn, and what came of it lies in the input.
    has_forced_turn: bool,

    // Sending.
    queue: ResponseQueue,
    pause: Pause,
    /// A call may be owed a Writable event.
    has_waiting: bool,
}

/// Why a request is left in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HoldReason {
    /// It is not.
    No,
    /// There is no capacity for another call, or one runs that has to run alone.
    UntilCapacity,
    /// It has no correlation id, and others run.
    UntilAlone,
}

/// A message that comes once more as soon as large ones may be produced.
#[derive(Debug)]
struct PutBack {
    stream: StreamKey,
    message: Vec<u8>,
}

impl FramedServerConnection {
    /// Returns a connection on which nothing has come. `now_ns` counts from any origin, and never
    /// goes back.
    pub fn new(protocol: FramedProtocol, config: &Config, now_ns: u64) -> FramedServerConnection {
        FramedServerConnection {
            protocol,
            config: *config,
            now_ns,
            closed: None,
            drain_due_ns: None,
            is_drain_over: false,
            guard: Guard::new(config, now_ns),
            pool: BufferPool::new(limits::POOLED_BYTES),
            streams: FramedStreams::default(),
            events: VecDeque::new(),
            head: FramedHead::new(),
            known_meta: KnownMeta::default(),
            incoming: IncomingRequest::Between,
            message: FramedLastMessage::default(),
            alone: None,
            held: HoldReason::No,
            rest_due_ns: None,
            put_back: VecDeque::new(),
            turn_allowance: usize::MAX,
            unpack_allowance: usize::MAX,
            are_windows_shut: false,
            has_forced_turn: false,
            queue: ResponseQueue::default(),
            pause: Pause::No,
            has_waiting: false,
        }
    }

    /// Returns which protocol it carries.
    pub fn protocol(&self) -> FramedProtocol {
        self.protocol
    }

    /// Looks at the input for the next event.
    ///
    /// To be called with the same `input`, and `consumed` at 0 at first, until it returns `None`;
    /// then the first `consumed` bytes are to be dropped. What is left is looked at again with what
    /// follows; the input must be able to hold [`limits::MAX_FRAME_BYTES`]. Responses to what is no
    /// call are appended to `out`.
    pub fn poll_event(
        &mut self,
        input: &[u8],
        consumed: &mut usize,
        out: &mut Vec<u8>,
        now_ns: u64,
    ) -> Option<Event> {
        self.now_ns = now_ns;
        self.has_forced_turn = false;
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            if self.closed.is_some() {
                *consumed = input.len();
                return None;
            }
            if let Some(event) = self.next_put_back() {
                return Some(event);
            }
            match self.receive(input, consumed, out) {
                InputStep::Event(event) => return Some(event),
                InputStep::Again => {}
                InputStep::Wait => match self.events.pop_front() {
                    Some(event) => return Some(event),
                    None => return self.next_writable(),
                },
            }
        }
    }

    /// Returns the head of the last Request event.
    #[inline]
    pub fn head(&self) -> Head<'_> {
        self.head.head()
    }

    /// Returns what [`FramedServerConnection::set_head_route`] noted for a head that was the same
    /// as the last one.
    #[inline]
    pub fn head_route(&self) -> Option<u64> {
        self.head.route()
    }

    /// Notes where the last head leads.
    pub fn set_head_route(&mut self, route: u64) {
        self.head.set_route(route);
    }

    /// Takes the bytes of the last Message event out of the connection, without the attachment. To
    /// be given back.
    #[inline]
    pub fn take_message(&mut self) -> TakenMessage {
        self.message.take()
    }

    /// Takes back what [`FramedServerConnection::take_message`] gave.
    #[inline]
    pub fn give_back(&mut self, message: TakenMessage) {
        message.give_back(&mut self.pool);
    }

    /// Has the last message come once more as soon as large messages may be produced. Instead of
    /// [`FramedServerConnection::give_back`].
    #[cold]
    pub fn put_back(&mut self, stream: StreamKey, message: TakenMessage, input: &[u8]) {
        if self.streams.running_mut(stream).is_some() {
            let message = message.bytes(input).to_vec();
            self.put_back.push_back(PutBack { stream, message });
        }
        self.give_back(message);
    }

    fn next_put_back(&mut self) -> Option<Event> {
        while self.has_large_capacity() {
            let PutBack { stream, message } = self.put_back.pop_front()?;
            if self.streams.running_mut(stream).is_some() {
                self.message.set(message);
                return Some(Event::Message { stream, last: true });
            }
        }
        None
    }

    /// Returns whether the last message came compressed.
    #[inline]
    pub fn message_was_compressed(&self) -> bool {
        self.message.was_compressed
    }

    /// Returns what the last message became when it was decompressed on being found, in bytes.
    #[inline]
    pub fn unpacked_bytes(&self) -> usize {
        self.message.unpacked_bytes
    }

    /// Names the call of a stream in the words of the layer above.
    #[inline]
    pub fn set_token(&mut self, stream: StreamKey, token: u32) {
        if let Some(found) = self.streams.get_mut(stream) {
            found.token = token;
        }
    }

    /// Returns what [`FramedServerConnection::set_token`] was given; 0 if nothing, or if the stream
    /// is gone.
    #[inline]
    pub fn token(&self, stream: StreamKey) -> u32 {
        self.streams.get(stream).map_or(0, |found| found.token)
    }

    /// Returns why the connection has ended, once it has: the output is to be written and the
    /// socket closed.
    #[inline]
    pub fn close_reason(&self) -> Option<&CloseReason> {
        self.closed.as_ref()
    }

    /// Returns whether `poll_event` has something to say without further input.
    pub fn has_events(&self) -> bool {
        let is_taken_now = match self.held {
            HoldReason::No => false,
            HoldReason::UntilCapacity => self.may_begin(),
            HoldReason::UntilAlone => self.streams.working() == 0 && self.may_begin(),
        };
        !self.events.is_empty()
            || (is_taken_now && self.closed.is_none())
            || self.has_forced_turn
            || (!self.put_back.is_empty() && self.has_large_capacity())
            || (self.has_waiting && self.has_capacity())
    }

    /// Returns whether no call runs, none has a response that waits, and nothing of a frame has
    /// come. Refusals of requests that never became calls may wait.
    pub fn is_idle(&self) -> bool {
        matches!(self.incoming, IncomingRequest::Between) && self.streams.len() == 0
    }

    /// Returns how many calls have begun, ever, modulo 2^32.
    pub fn begun_calls(&self) -> u32 {
        self.streams.last_id()
    }

    /// Returns how many calls run, or have responses that wait.
    #[inline]
    pub fn running(&self) -> usize {
        self.streams.len()
    }

    /// The layer above has done with a stream that was cancelled. It is the last call for this
    /// stream.
    pub fn forget(&mut self, stream: StreamKey) {
        self.streams.end_work(stream);
        self.close_if_drained();
    }

    /// Begins a graceful end: calls that begin are refused by the layer above, and some time later,
    /// when none runs, there is a close reason.
    pub fn drain(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        if self.drain_due_ns.is_none() {
            self.drain_due_ns = Some(now_ns + limits::FRAMED_DRAIN_MS * NS_PER_MS);
        }
    }

    fn is_draining(&self) -> bool {
        self.drain_due_ns.is_some()
    }

    /// Ends the connection, since the layer above cannot go on holding what its peer makes it hold.
    pub fn abort(&mut self, why: &'static str) {
        self.fail(ErrorCode::EnhanceYourCalm, why);
    }

    /// The transport has ended. `poll_event` then tells of each call that it took with it.
    pub fn peer_closed(&mut self) {
        self.close(CloseReason::PeerGone);
    }

    /// The peer broke a rule. The protocols have nothing to say so with.
    #[cold]
    fn fail(&mut self, code: ErrorCode, why: &'static str) {
        self.close(CloseReason::Error { code, why });
    }

    fn close(&mut self, reason: CloseReason) {
        if self.closed.is_some() {
            return;
        }
        self.closed = Some(reason);
        self.incoming = IncomingRequest::Between;
        self.put_back.clear();
        self.drop_queue();
        for key in self.streams.keys() {
            if let Some(stream) = self.streams.running_mut(key) {
                stream.is_dead = true;
                self.events.push_back(Event::Cancelled {
                    stream: key,
                    cause: CancelCause::ConnectionClosed,
                });
            }
        }
    }

    fn close_if_drained(&mut self) {
        if self.is_drain_over && self.streams.len() == 0 && self.queue.is_empty() {
            self.close(CloseReason::Drained);
        }
    }

    /// Returns when [`FramedServerConnection::deadline_passed`] is to be called, if nothing happens
    /// before.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        if self.closed.is_some() {
            return None;
        }
        let drain_due_ns = self.drain_due_ns.filter(|_| !self.is_drain_over);
        let due = [drain_due_ns, self.rest_due_ns, self.lapses_at_ns()];
        due.into_iter().flatten().min()
    }

    /// Does what is due by now. Calling it early does nothing.
    pub fn deadline_passed(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.lapse_turn();
        if self.rest_due_ns.is_some_and(|due_ns| due_ns <= now_ns) {
            const WHY: &str = "the rest of a frame did not arrive in time";
            self.fail(ErrorCode::EnhanceYourCalm, WHY);
        }
        if self.drain_due_ns.is_some_and(|due_ns| due_ns <= now_ns) {
            self.is_drain_over = true;
            self.close_if_drained();
        }
    }

    /// Returns the bytes of memory that the connection holds, nearly.
    pub fn memory_bytes(&self) -> usize {
        let put_back = self.put_back.iter();
        size_of::<FramedServerConnection>()
            + self.streams.memory_bytes()
            + self.head.memory_bytes()
            + self.known_meta.memory_bytes()
            + self.pool.memory_bytes()
            + self.message.memory_bytes()
            + self.incoming.bytes()
            + self.queue.unsent_bytes()
            + self.queue.beside_bytes()
            + self.queue.out_bytes()
            + put_back.map(|one| one.message.capacity()).sum::<usize>()
            + self.events.capacity() * size_of::<Event>()
            + self.queue.memory_bytes()
    }
}

/// What became of some input.
enum InputStep {
    Event(Event),
    /// Something was taken, and there may be more.
    Again,
    /// Nothing is to be done before more comes, or a call goes on.
    Wait,
}
