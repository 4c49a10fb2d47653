//! One streaming call of a shared pool, between its caller and who works for it.

use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::thread;

use net::OutgoingWaker;
use wire::grpc::{Code, Metadata, Status};

use super::call::SharedCallStart;
use super::message_queue::MessageQueue;
use super::protocol::{CallFollower, CallPhase};
use super::sync::lock;
use super::turn::{DriverTurn, TurnWaiter};
use crate::error::CallError;
use crate::limits;
use crate::pool::{PoolCall, PoolCallKey, PoolEngine, SendError};

/// What a message may take of the server's window beside its bytes: its prefix, the frame of gzip,
/// padding. More than it takes only lets the server send on earlier.
const MESSAGE_BYTES: usize = 64;

/// What a stream has in flight, how it ended, and who waits for it.
#[derive(Debug)]
pub(super) struct SharedStream {
    pub(super) state: Mutex<StreamState>,
    /// Who waits for messages, or for the end.
    pub(super) receiving: Arc<StreamSide>,
    /// Who waits until a message is taken.
    pub(super) sending: Arc<StreamSide>,
}

/// One side of a stream, for which one thread or task can wait.
#[derive(Debug)]
pub(super) struct StreamSide {
    pub(super) phase: CallPhase,
    /// Changed only while the state of the stream is locked.
    waiter: Mutex<Option<TurnWaiter>>,
}

#[derive(Debug, Default)]
pub(super) struct StreamState {
    pub(super) start: SharedCallStart,
    /// While it is in the engine: its tag and its name.
    pub(super) key: Option<(u32, PoolCallKey)>,
    /// Messages that the engine has not taken.
    outgoing: MessageQueue,
    /// Messages that are sent from here on are compressed.
    pub(super) compresses: bool,
    /// The caller sends no more.
    pub(super) is_finished: bool,
    /// The engine knows that.
    is_finish_sent: bool,
    /// [`Submission::Send`](super::submission::Submission::Send) is on its way.
    is_submitted: bool,
    incoming: MessageQueue,
    /// Bytes that came since the server was last allowed to send on.
    unreleased: usize,
    pub(super) head: Option<Metadata>,
    pub(super) end: Option<Result<Status, CallError>>,
    /// Who waits for the end, whatever is received.
    pub(super) end_waker: Option<Waker>,
    /// Who waits for the initial metadata, whatever is received.
    pub(super) head_waker: Option<Waker>,
    /// A future has waited for it: the pool's thread drives it.
    pub(super) has_futures: bool,
}

/// What became of a message that was to be sent.
pub(super) enum Sent {
    /// It is to be submitted.
    Submit,
    /// The submission of an earlier one stands for it.
    Joined,
}

/// What there is to receive.
pub(super) enum Received {
    /// A message. Whether it came compressed, and whether the server may send on.
    Message {
        compressed: bool,
        releases: bool,
    },
    /// The server has ended the call with OK.
    End,
    Nothing,
}

impl StreamSide {
    fn new() -> Arc<StreamSide> {
        Arc::new(StreamSide {
            phase: CallPhase::new(),
            waiter: Mutex::new(None),
        })
    }

    /// With the state locked: this thread is about to wait.
    pub(super) fn begin_waiting(&self) {
        self.phase.reset();
        *lock(&self.waiter) = Some(TurnWaiter::Thread(thread::current()));
    }

    /// With the state locked: a task waits.
    pub(super) fn set_waker(&self, waker: &Waker) {
        match &mut *lock(&self.waiter) {
            Some(TurnWaiter::Task(former)) => former.clone_from(waker),
            other => *other = Some(TurnWaiter::Task(waker.clone())),
        }
    }

    /// With the state locked: what is waited for has happened.
    fn notify(&self, waker: &OutgoingWaker, turn: &mut DriverTurn<'_>) {
        let mut waiter = lock(&self.waiter);
        if waiter.is_some() {
            turn.complete(&self.phase, waiter.take(), waker);
        }
    }
}

impl CallFollower for StreamSide {
    fn phase(&self) -> &CallPhase {
        &self.phase
    }

    fn unpark(&self) {
        if let Some(TurnWaiter::Thread(thread)) = &*lock(&self.waiter) {
            thread.unpark();
        }
    }
}

impl SharedStream {
    pub(super) fn new(call: &PoolCall<'_>, now_ns: u64) -> SharedStream {
        let mut state = StreamState::default();
        let held = PoolCall {
            holds_messages: true,
            ..*call
        };
        state.start.set(&held, now_ns);
        state.compresses = call.compress;
        SharedStream {
            state: Mutex::new(state),
            receiving: StreamSide::new(),
            sending: StreamSide::new(),
        }
    }

    /// Hands over to the engine what waits to be sent, as far as it is taken.
    pub(super) fn pump(
        &self,
        engine: &mut PoolEngine,
        waker: &OutgoingWaker,
        turn: &mut DriverTurn<'_>,
    ) {
        let mut state = lock(&self.state);
        state.is_submitted = false;
        let Some((_, key)) = state.key else {
            return;
        };
        state.send_all(engine, key);
        if state.outgoing.bytes() <= limits::SHARED_STREAM_SEND_BYTES / 2 {
            self.sending.notify(waker, turn);
        }
    }

    pub(super) fn receive(
        &self,
        message: &[u8],
        compressed: bool,
        waker: &OutgoingWaker,
        turn: &mut DriverTurn<'_>,
    ) {
        let mut state = lock(&self.state);
        state.incoming.push(message, compressed);
        state.unreleased += message.len() + MESSAGE_BYTES;
        self.receiving.notify(waker, turn);
    }

    /// Stores the initial metadata of the answer, for which the receiving side may wait.
    pub(super) fn receive_head(
        &self,
        metadata: &Metadata,
        waker: &OutgoingWaker,
        turn: &mut DriverTurn<'_>,
    ) {
        let mut state = lock(&self.state);
        state.head = Some(metadata.clone());
        self.receiving.notify(waker, turn);
        turn.woken
            .extend(state.head_waker.take().map(TurnWaiter::Task));
    }

    /// Stores how the call ended, and wakes both sides.
    pub(super) fn end(
        &self,
        result: Result<Status, CallError>,
        waker: &OutgoingWaker,
        turn: &mut DriverTurn<'_>,
    ) {
        let mut state = lock(&self.state);
        state.key = None;
        state.end.get_or_insert(result);
        state.outgoing.clear();
        self.receiving.notify(waker, turn);
        self.sending.notify(waker, turn);
        for waiter in [state.end_waker.take(), state.head_waker.take()] {
            turn.woken.extend(waiter.map(TurnWaiter::Task));
        }
    }
}

impl StreamState {
    fn send_all(&mut self, engine: &mut PoolEngine, key: PoolCallKey) {
        while let Some((message, compress)) = self.outgoing.front() {
            let last = self.is_finished && self.outgoing.len() == 1;
            engine.set_compress(key, compress);
            match engine.send(key, last, |out| out.extend_from_slice(message)) {
                Ok(()) => {
                    self.is_finish_sent |= last;
                    self.outgoing.pop();
                }
                // `Writable` follows.
                Err(SendError::NotWritable) => return,
                // The end follows.
                Err(SendError::Ended | SendError::TooLarge { .. }) => self.outgoing.clear(),
            }
        }
        if self.is_finished && !self.is_finish_sent {
            self.is_finish_sent = true;
            engine.close_send(key);
        }
    }

    /// Takes a message to send, if there is room.
    pub(super) fn send(&mut self, message: &[u8]) -> Result<Sent, SendError> {
        if self.is_finished || self.end.is_some() {
            return Err(SendError::Ended);
        }
        if self.outgoing.bytes() >= limits::SHARED_STREAM_SEND_BYTES {
            return Err(SendError::NotWritable);
        }
        self.outgoing.push(message, self.compresses);
        Ok(self.submission())
    }

    /// The caller sends no more.
    pub(super) fn finish(&mut self) -> Sent {
        self.is_finished = true;
        self.submission()
    }

    fn submission(&mut self) -> Sent {
        match std::mem::replace(&mut self.is_submitted, true) {
            true => Sent::Joined,
            false => Sent::Submit,
        }
    }

    /// Returns the initial metadata, or `None` as long as they may come. They are empty when it is
    /// certain that there are none, and an error if the call has failed without any.
    pub(super) fn initial_metadata(&self) -> Option<Result<Metadata, CallError>> {
        match (&self.head, &self.end) {
            (Some(head), _) => Some(Ok(head.clone())),
            (None, Some(Err(error))) => Some(Err(error.clone())),
            (None, Some(Ok(_))) => Some(Ok(Metadata::new())),
            (None, None) => (!self.start.wants_head()).then(|| Ok(Metadata::new())),
        }
    }

    /// Takes what there is, a message in the place of what is in `into`.
    pub(super) fn receive(&mut self, into: &mut Vec<u8>) -> Result<Received, CallError> {
        if let Some(compressed) = self.incoming.pop_into(into) {
            let releases = self.end.is_none()
                && self.unreleased >= limits::SHARED_STREAM_RELEASE_BYTES
                && self.incoming.bytes() <= limits::SHARED_STREAM_RECEIVE_BYTES;
            if releases {
                self.unreleased = 0;
            }
            return Ok(Received::Message {
                compressed,
                releases,
            });
        }
        match &self.end {
            None => Ok(Received::Nothing),
            Some(Ok(_)) => Ok(Received::End),
            Some(Err(error)) => Err(error.clone()),
        }
    }
}

/// How a call ends for a caller that gives it up and asks nevertheless.
pub(super) fn cancelled() -> CallError {
    CallError::Status(Status::new(
        Code::Cancelled,
        "the caller has cancelled the call",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Most messages of a bound that could have no bytes at all.
    const MOST: usize = limits::SHARED_STREAM_RECEIVE_BYTES;

    #[test]
    fn empty_messages_to_send_are_bounded() {
        let mut state = StreamState::default();
        let taken = (0..MOST).take_while(|_| state.send(b"").is_ok()).count();
        assert!((1..MOST).contains(&taken), "{taken} empty messages");
        assert!(matches!(state.send(b""), Err(SendError::NotWritable)));
        state.outgoing.pop();
        assert!(state.send(b"").is_ok());
    }

    /// They take of the server's window, so it has to be told when they are consumed; and as long
    /// as too many wait, it is not.
    #[test]
    fn empty_messages_count_for_what_is_received_and_held() {
        let outgoing = net::Outgoing::new().expect("there is an epoll set");
        let waker = outgoing.poller().expect("there is one").waker();
        let mut turn = DriverTurn {
            own: None,
            woken: Vec::new(),
        };
        let stream = SharedStream::new(&PoolCall::default(), 0);
        let mut into = Vec::new();
        for _ in 0..2 {
            for _ in 0..MOST {
                stream.receive(b"", false, &waker, &mut turn);
            }
            let mut state = lock(&stream.state);
            let mut releases = Vec::new();
            for taken in 0..MOST {
                match state.receive(&mut into) {
                    Ok(Received::Message { releases: true, .. }) => releases.push(taken),
                    Ok(Received::Message { .. }) => {}
                    _ => panic!("there is a message"),
                }
            }
            // Once, when few enough were left.
            assert_eq!(releases.len(), 1, "{releases:?}");
            assert!((1..MOST - 1).contains(&releases[0]), "{releases:?}");
            assert!(matches!(state.receive(&mut into), Ok(Received::Nothing)));
        }
    }
}
