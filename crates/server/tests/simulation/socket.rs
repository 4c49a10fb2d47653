//! One connection of a client, with many calls.

use std::collections::BTreeMap;

use net::{ConnectionId, Io};
use wire::{
    CancelCause, CloseReason, Config, Connection, ErrorCode, Event, RequestHead, StreamKey,
    StreamOpenError,
};

use super::call::Call;
use super::databases;
use super::history::{Asked, Outcome, Record};
use super::messages;
use super::reading_pause::ReadingPause;
use super::world::{Begun, Manners, World};

const MILLISECOND_NS: u64 = 1_000_000;

pub struct Socket {
    pub id: ConnectionId,
    /// To which life of the server it leads.
    life: usize,
    connection: Connection,
    calls: BTreeMap<u32, Call>,
    /// How many calls are in flight at most.
    in_flight: usize,
    pause: ReadingPause,
    /// The server takes no more calls.
    is_leaving: bool,
}

impl Socket {
    pub fn new(id: ConnectionId, world: &mut World, out: &mut Vec<u8>, now_ns: u64) -> Socket {
        let mut config = Config::client();
        if world.random.below(2) == 0 {
            config.stream_window = Some(2_000 + world.random.below(70_000) as u32);
            config.connection_window = Some(65_535 + world.random.below(100_000) as u32);
        }
        let mut connection = Connection::new(&config, now_ns);
        connection.start(out);
        Socket {
            id,
            life: world.life,
            connection,
            calls: BTreeMap::new(),
            in_flight: 1 + world.random.below(if world.has_log { 12 } else { 40 }) as usize,
            pause: ReadingPause::default(),
            is_leaving: false,
        }
    }

    pub fn receive(&mut self, world: &mut World, io: &mut Io, now_ns: u64) {
        let mut consumed = 0;
        self.poll(world, io, &mut consumed, now_ns);
        io.input.consume(consumed);
        if io.end_of_input() {
            self.connection.peer_closed();
            self.poll(world, io, &mut 0, now_ns);
        }
        self.connection.transmit(&mut io.output, now_ns);
        match self.connection.close_reason() {
            Some(CloseReason::Error { code, why }) => {
                panic!("a peer broke the protocol: {why} ({code:?})")
            }
            Some(_) => io.close_when_written(),
            None => {}
        }
    }

    fn poll(&mut self, world: &mut World, io: &mut Io, consumed: &mut usize, now_ns: u64) {
        loop {
            let event =
                self.connection
                    .poll_event(io.input.bytes(), consumed, &mut io.output, now_ns);
            match event {
                None => return,
                Some(Event::Message { stream, .. }) => self.message(world, io, stream),
                Some(Event::Finished { stream }) => {
                    let status = self.connection.status().clone();
                    self.connection.forget(stream);
                    self.take(stream).finish(world, &status);
                }
                Some(Event::Cancelled { stream, cause }) => {
                    self.connection.forget(stream);
                    self.cancelled(world, stream, cause);
                }
                Some(
                    Event::Response { .. } | Event::Writable { .. } | Event::HalfClosed { .. },
                ) => {}
                Some(
                    event @ (Event::Request { .. }
                    | Event::Part { .. }
                    | Event::Body { .. }
                    | Event::Refused),
                ) => {
                    panic!("{event:?} at a client")
                }
            }
        }
    }

    fn message(&mut self, world: &mut World, io: &mut Io, stream: StreamKey) {
        let message = self.connection.message(io.input.bytes()).to_vec();
        let call = self
            .calls
            .get_mut(&stream.id)
            .expect("an answer to a call that has not ended");
        call.receive(world, message);
        if call.received == call.leave_after {
            return self.cancel(world, io, stream.id);
        }
        self.connection.release(stream, &mut io.output);
    }

    fn take(&mut self, stream: StreamKey) -> Call {
        self.calls.remove(&stream.id).expect("a call ends once")
    }

    fn cancelled(&mut self, world: &mut World, stream: StreamKey, cause: CancelCause) {
        let call = self.take(stream);
        match cause {
            CancelCause::Refused => call.end(world, &Outcome::Refused),
            CancelCause::ConnectionClosed => {
                world.counts.lost += 1;
                call.end(world, &Outcome::Unknown);
            }
            cause => panic!("{:?} was cancelled: {cause:?}", call.asked(world)),
        }
    }

    /// Gives a call up.
    fn cancel(&mut self, world: &mut World, io: &mut Io, stream: u32) {
        let call = self.calls.remove(&stream).expect("it is under way");
        self.connection
            .reset(call.stream, &mut io.output, ErrorCode::Cancel);
        world.counts.cancelled += 1;
        call.end(world, &Outcome::Unknown);
    }

    /// The connection is gone.
    pub fn lose(self, world: &mut World) {
        for call in self.calls.into_values() {
            world.counts.lost += 1;
            call.end(world, &Outcome::Unknown);
        }
    }

    pub fn next_deadline_ns(&self) -> Option<u64> {
        let pause_ns = self.pause.next_deadline_ns();
        let deadlines = [self.connection.next_deadline_ns(), pause_ns];
        deadlines.into_iter().flatten().min()
    }

    /// What a client does by itself.
    pub fn act(&mut self, world: &mut World, io: &mut Io, now_ns: u64) {
        if self
            .connection
            .next_deadline_ns()
            .is_some_and(|at_ns| at_ns <= now_ns)
        {
            self.connection.deadline_passed(&mut io.output, now_ns);
            self.receive(world, io, now_ns);
        }
        self.pause.end_if_due(io, now_ns);
        if io.is_closing() {
            return;
        }
        if world.script.is_empty() {
            self.misbehave(world, io, now_ns);
        }
        if self.calls.len() <= self.in_flight / 2 {
            while self.calls.len() < self.in_flight && !self.is_leaving && !io.output_is_full() {
                if !self.begin(world, io) {
                    break;
                }
            }
        }
        if world.left == 0 && !world.stopping {
            self.leave_watched(world, io);
        }
        self.connection.transmit(&mut io.output, now_ns);
    }

    /// Nobody writes any more: those who watch would hear nothing.
    fn leave_watched(&mut self, world: &mut World, io: &mut Io) {
        let watching = self
            .calls
            .iter()
            .filter(|(_, call)| matches!(call.asked(world), Asked::Changes { .. }));
        let watching: Vec<u32> = watching.map(|(stream, _)| *stream).collect();
        for stream in watching {
            self.cancel(world, io, stream);
        }
    }

    /// Does not read for a while, changes its mind, or goes without a word.
    fn misbehave(&mut self, world: &mut World, io: &mut Io, now_ns: u64) {
        if world.left == 0 {
            return;
        }
        self.pause.begin_by_chance(world, io, now_ns);
        if world.random.chance(10_000) && !self.calls.is_empty() {
            let which = world.random.below(self.calls.len() as u64) as usize;
            let stream = *self.calls.keys().nth(which).expect("there are so many");
            let may_cancel = !self.calls[&stream].is_commit(world);
            if world.manners == Manners::Rude || may_cancel {
                self.cancel(world, io, stream);
            }
        }
        if world.manners == Manners::Rude && !world.stopping && world.random.chance(6_000) {
            io.close_now();
        }
    }

    /// Begins a call; false: there is none, or none can begin.
    fn begin(&mut self, world: &mut World, io: &mut Io) -> bool {
        let Some(begun) = world.begin(self.life) else {
            return false;
        };
        let (first, path) = match &begun {
            Begun::One(by) => (*by, messages::path(&world.history[*by as usize].asked)),
            Begun::Pipe { batches, .. } => (batches[0], messages::PIPE),
        };
        let Record {
            asked, database, ..
        } = &world.history[first as usize];
        let (asked, database) = (asked.clone(), databases::name(*database));
        let is_commit = asked.is_commit() || matches!(begun, Begun::Pipe { .. });
        let timeout_ns = timeout_ns(world, &asked, is_commit);
        let head = RequestHead {
            timeout_ns,
            ..RequestHead::call("simulation", path)
        };
        let stream = match self.connection.open(&mut io.output, &head) {
            Ok(stream) => stream,
            Err(error) => {
                match error {
                    StreamOpenError::TooManyStreams => self.in_flight = self.calls.len().max(1),
                    _ => self.is_leaving = true,
                }
                let nowhere = Call::new(StreamKey { slot: 0, id: 0 }, begun);
                nowhere.end(world, &Outcome::Refused);
                return false;
            }
        };
        match &begun {
            Begun::One(by) => self.send(&asked, &database, *by, stream, io),
            Begun::Pipe { batches, quiet } => {
                self.send_pipe(world, batches, *quiet, &database, stream, io)
            }
        }
        let mut call = Call::new(stream, begun);
        match asked {
            Asked::Watch if !world.stopping => call.leave_after = 1,
            Asked::Changes { .. } if !world.stopping => {
                call.leave_after = 1 + world.random.below(8) as usize;
            }
            // Scans are sometimes given up after their first page.
            Asked::Scan { .. } if world.random.below(10) == 0 && !world.stopping => {
                call.leave_after = 1;
            }
            Asked::Echo { delay_ms, .. } => {
                let delay_ns = u64::from(delay_ms) * MILLISECOND_NS;
                call.must_expire = timeout_ns.is_some_and(|timeout_ns| timeout_ns < delay_ns);
            }
            _ => {}
        }
        self.calls.insert(stream.id, call);
        true
    }

    fn send(&mut self, asked: &Asked, database: &str, by: u64, stream: StreamKey, io: &mut Io) {
        let encode = |out: &mut Vec<u8>| messages::encode(asked, database, by, out);
        match asked {
            Asked::Silent => {}
            Asked::EchoStream { messages, ends, .. } => {
                for _ in 0..*messages {
                    self.connection.send_message(stream, &mut io.output, encode);
                }
                if *ends {
                    self.connection.close_send(stream, &mut io.output);
                }
            }
            _ => self
                .connection
                .send_last_message(stream, &mut io.output, encode),
        }
    }

    fn send_pipe(
        &mut self,
        world: &World,
        batches: &[u64],
        quiet: bool,
        database: &str,
        stream: StreamKey,
        io: &mut Io,
    ) {
        for by in batches {
            let asked = &world.history[*by as usize].asked;
            let encode =
                |out: &mut Vec<u8>| messages::encode_piped(asked, database, quiet, *by, out);
            self.connection.send_message(stream, &mut io.output, encode);
        }
        self.connection.close_send(stream, &mut io.output);
    }
}

/// A deadline for some calls: far away, or such that it may pass before, while or after the call is
/// served.
fn timeout_ns(world: &mut World, asked: &Asked, is_commit: bool) -> Option<u64> {
    let short = world.manners == Manners::Rude || !is_commit;
    let is_delayed = matches!(asked, Asked::Echo { delay_ms: 1.., .. });
    match world.random.below(if is_delayed { 4 } else { 40 }) {
        0 if short && !world.stopping => Some(1 + world.random.below(8 * MILLISECOND_NS)),
        1..5 => Some(3_600_000 * MILLISECOND_NS + world.random.below(MILLISECOND_NS)),
        _ => None,
    }
}
