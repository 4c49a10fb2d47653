//! Pipe: step by step, as the layer above is in no hurry here to run the committer.

mod anything;
mod bounds;
mod order;

use store::{Condition, Operation};

use super::*;
use api::keyvalue::*;
use testkit::keyvalue::*;

/// An open Pipe and the layer above it.
struct Open<'a> {
    call: ServiceCall,
    shared: &'a Shared,
    committer: &'a mut VolatileCommitter,
    outcomes: &'a mut Outcomes,
    room: Room<'a>,
}

impl Bench {
    fn open(&mut self) -> Open<'_> {
        let mut room = Room {
            room: self.room,
            now_ms: self.now_ms,
            now_ns: 1,
            identity: self.identity.clone(),
            ..Room::new(&mut self.batch)
        };
        let head = CallHead {
            deadline_ns: u64::MAX,
            metadata: &NoMetadata,
        };
        let call = ServiceCall::started(Method::Pipe, &head, &self.shared, &mut room);
        Open {
            call,
            shared: &self.shared,
            committer: &mut self.committer,
            outcomes: &mut self.outcomes,
            room,
        }
    }
}

impl Open<'_> {
    fn send(&mut self, message: &[u8]) {
        self.send_as(message, false);
    }

    fn send_as(&mut self, message: &[u8], last: bool) {
        assert_eq!(self.room.status, None, "the call is over");
        assert!(!self.room.is_held, "a held call gets no message");
        let (call, room) = (&mut self.call, &mut self.room);
        room.bring(call, message, last, self.shared);
    }

    fn half_close(&mut self) {
        assert_eq!(self.room.status, None, "the call is over");
        self.call.half_closed(self.shared, &mut self.room);
    }

    fn commit(&mut self) {
        let mut clock = Now(self.room.now_ms);
        drop(
            self.committer
                .run(self.room.batch, &mut clock, self.outcomes),
        );
        for outcome in self.outcomes.iter() {
            if self.room.status.is_none() {
                self.call.committed(&outcome, self.shared, &mut self.room);
            }
        }
    }

    fn make_room(&mut self) {
        self.room.room = usize::MAX;
        self.call.writable(self.shared, &mut self.room);
    }

    fn wake(&mut self) {
        let at_ns = self.room.wake_at_ns.take().expect("a timer is set");
        assert!(at_ns > self.room.now_ns);
        self.room.now_ns = at_ns;
        self.call.woken(self.shared, &mut self.room);
    }

    fn take(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.room.messages)
    }

    /// What the answers since the last time say of how much is done.
    fn take_done(&mut self) -> Vec<u64> {
        self.take()
            .iter()
            .map(|message| decode(message).done)
            .collect()
    }

    fn status(&self) -> &Status {
        self.room.status.as_ref().expect("the call is over")
    }
}

fn decode(message: &[u8]) -> PipeResponse<'_> {
    PipeResponse::decode(message).expect("it is a message")
}

fn batch_of<'a>(response: &PipeResponse<'a>) -> BatchResponse<'a> {
    response.batch.expect("it is about a batch")
}

fn message(answers: PipeAnswers, mode: Mode, operations: &[Operation<'_>]) -> Vec<u8> {
    let mut message = Vec::new();
    encode_pipe(&mut message, "", answers, mode, 0, operations);
    message
}

fn all(operations: &[Operation<'_>]) -> Vec<u8> {
    message(PipeAnswers::All, Mode::Atomic, operations)
}

fn failures_only(operations: &[Operation<'_>]) -> Vec<u8> {
    message(PipeAnswers::FailuresOnly, Mode::Independent, operations)
}

fn failing(key: &[u8]) -> Operation<'_> {
    Operation::Delete {
        key,
        condition: Condition::ValueIs(b"something else"),
        want_previous: false,
    }
}
