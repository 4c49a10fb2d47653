//! A node with clients: some connections, many calls on each.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use drive::{Closed, ConnectionId, Connections, Handler, Io, Peer};
use wire::grpc::{Code, Status};
use wire::{
    Cause, CloseReason, Config, Connection, ErrorCode, Event, OpenError, RequestHead, StreamKey,
};

use super::history::{Asked, Outcome};
use super::messages;
use super::world::{Manners, World};

const MILLISECOND_NS: u64 = 1_000_000;

/// One call under way.
struct Call {
    stream: StreamKey,
    by: u64,
    answers: Vec<Vec<u8>>,
    /// It is to be cancelled after so many answers.
    leave_after: usize,
    /// No answer can come before: its deadline is shorter than the delay that it asks for.
    must_expire: bool,
}

struct Socket {
    id: ConnectionId,
    connection: Connection,
    calls: BTreeMap<u32, Call>,
    /// How many calls are in flight at most.
    in_flight: usize,
    paused_until_ns: Option<u64>,
    /// The server takes no more calls.
    is_leaving: bool,
}

/// The handler of a node with clients.
pub struct Client {
    world: Rc<RefCell<World>>,
    sockets: Vec<Option<Socket>>,
}

impl Client {
    pub fn new(world: Rc<RefCell<World>>) -> Client {
        Client {
            world,
            sockets: Vec::new(),
        }
    }

    /// Open connections.
    pub fn connections(&self) -> usize {
        self.sockets.iter().flatten().count()
    }

    fn socket(&mut self, id: ConnectionId) -> Option<&mut Socket> {
        self.sockets
            .get_mut(id.slot as usize)?
            .as_mut()
            .filter(|socket| socket.id == id)
    }
}

impl Handler for Client {
    fn opened(&mut self, id: ConnectionId, _: &Peer, io: &mut Io, now_ns: u64) {
        let mut world = self.world.borrow_mut();
        world.counts.connections += 1;
        let mut config = Config::client();
        if world.random.below(2) == 0 {
            config.stream_window = Some(2_000 + world.random.below(70_000) as u32);
            config.connection_window = Some(65_535 + world.random.below(100_000) as u32);
        }
        let mut connection = Connection::new(&config, now_ns);
        connection.start(&mut io.output);
        let in_flight = 1 + world.random.below(40) as usize;
        let socket = Socket {
            id,
            connection,
            calls: BTreeMap::new(),
            in_flight,
            paused_until_ns: None,
            is_leaving: false,
        };
        let slot = id.slot as usize;
        if slot >= self.sockets.len() {
            self.sockets.resize_with(slot + 1, || None);
        }
        self.sockets[slot] = Some(socket);
    }

    fn received(&mut self, id: ConnectionId, io: &mut Io, now_ns: u64) {
        let world = Rc::clone(&self.world);
        if let Some(socket) = self.socket(id) {
            socket.receive(&mut world.borrow_mut(), io, now_ns);
        }
    }

    fn writable(&mut self, id: ConnectionId, io: &mut Io, now_ns: u64) {
        self.received(id, io, now_ns);
    }

    fn closed(&mut self, id: ConnectionId, _: Closed, _: u64) {
        let slot = self.sockets[id.slot as usize].take_if(|socket| socket.id == id);
        let mut world = self.world.borrow_mut();
        for call in slot
            .into_iter()
            .flat_map(|socket| socket.calls.into_values())
        {
            world.counts.lost += 1;
            world.end(call.by, Outcome::Unknown);
        }
    }

    fn tick(&mut self, connections: &mut dyn Connections, now_ns: u64) {
        let mut world = self.world.borrow_mut();
        for socket in self.sockets.iter_mut().flatten() {
            if let Some(io) = connections.io(socket.id) {
                socket.act(&mut world, io, now_ns);
            }
        }
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        let of = |socket: &Socket| {
            [socket.connection.next_deadline_ns(), socket.paused_until_ns]
                .into_iter()
                .flatten()
                .min()
        };
        self.sockets.iter().flatten().filter_map(of).min()
    }

    fn stop(&mut self, _: &mut dyn Connections, _: u64) {}

    fn is_drained(&self) -> bool {
        true
    }
}

impl Socket {
    fn receive(&mut self, world: &mut World, io: &mut Io, now_ns: u64) {
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
                    self.finished(world, stream, &status);
                }
                Some(Event::Cancelled { stream, cause }) => {
                    self.connection.forget(stream);
                    self.cancelled(world, stream, cause);
                }
                Some(
                    Event::Response { .. } | Event::Writable { .. } | Event::HalfClosed { .. },
                ) => {}
                Some(event @ (Event::Request { .. } | Event::Body { .. })) => {
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
        call.answers.push(message);
        if call.answers.len() == call.leave_after {
            return self.cancel(world, io, stream.id);
        }
        self.connection.release(stream, &mut io.output);
    }

    fn take(&mut self, stream: StreamKey) -> Call {
        self.calls.remove(&stream.id).expect("a call ends once")
    }

    fn finished(&mut self, world: &mut World, stream: StreamKey, status: &Status) {
        let call = self.take(stream);
        let asked = world.history[call.by as usize].asked.clone();
        let outcome = match (status.code(), &asked) {
            (Code::Ok, _) => {
                assert!(
                    !call.must_expire,
                    "{asked:?} was answered after its deadline"
                );
                Outcome::Answered(messages::decode(
                    &asked,
                    call.by,
                    &call.answers,
                    &mut world.logs,
                ))
            }
            (Code::Unavailable, _) => Outcome::Refused,
            (Code::Unimplemented, Asked::Nowhere) => Outcome::Refused,
            (Code::DeadlineExceeded, _) => {
                world.counts.deadlines += 1;
                Outcome::Unknown
            }
            _ => panic!("{asked:?} ended with {status:?}"),
        };
        world.end(call.by, outcome);
    }

    fn cancelled(&mut self, world: &mut World, stream: StreamKey, cause: Cause) {
        let call = self.take(stream);
        let outcome = match cause {
            Cause::Refused => Outcome::Refused,
            Cause::ConnectionClosed => {
                world.counts.lost += 1;
                Outcome::Unknown
            }
            cause => panic!(
                "{:?} was cancelled: {cause:?}",
                world.history[call.by as usize].asked
            ),
        };
        world.end(call.by, outcome);
    }

    /// Gives a call up.
    fn cancel(&mut self, world: &mut World, io: &mut Io, stream: u32) {
        let call = self.calls.remove(&stream).expect("it is under way");
        self.connection
            .reset(call.stream, &mut io.output, ErrorCode::Cancel);
        world.counts.cancelled += 1;
        world.end(call.by, Outcome::Unknown);
    }

    /// What a client does by itself.
    fn act(&mut self, world: &mut World, io: &mut Io, now_ns: u64) {
        if self
            .connection
            .next_deadline_ns()
            .is_some_and(|at_ns| at_ns <= now_ns)
        {
            self.connection.deadline_passed(&mut io.output, now_ns);
            self.receive(world, io, now_ns);
        }
        if self.paused_until_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.paused_until_ns = None;
            io.pause_reading(false);
        }
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
        self.connection.transmit(&mut io.output, now_ns);
    }

    /// Does not read for a while, changes its mind, or goes without a word.
    fn misbehave(&mut self, world: &mut World, io: &mut Io, now_ns: u64) {
        if world.left == 0 {
            return;
        }
        if world.random.chance(6_000) && self.paused_until_ns.is_none() {
            world.counts.pauses += 1;
            io.pause_reading(true);
            self.paused_until_ns = Some(now_ns + world.random.between(1, 300) * MILLISECOND_NS);
        }
        if world.random.chance(10_000) && !self.calls.is_empty() {
            let which = world.random.below(self.calls.len() as u64) as usize;
            let stream = *self.calls.keys().nth(which).expect("there are so many");
            let by = self.calls[&stream].by;
            if world.manners == Manners::Rude || !world.history[by as usize].asked.is_write() {
                self.cancel(world, io, stream);
            }
        }
        if world.manners == Manners::Rude && !world.stopping && world.random.chance(6_000) {
            io.close_now();
        }
    }

    /// Begins a call; false: there is none, or none can begin.
    fn begin(&mut self, world: &mut World, io: &mut Io) -> bool {
        let Some(by) = world.begin() else {
            return false;
        };
        let asked = world.history[by as usize].asked.clone();
        let timeout_ns = timeout_ns(world, &asked);
        let head = RequestHead {
            timeout_ns,
            ..RequestHead::call("simulation", messages::path(&asked))
        };
        let stream = match self.connection.open(&mut io.output, &head) {
            Ok(stream) => stream,
            Err(error) => {
                match error {
                    OpenError::TooManyStreams => self.in_flight = self.calls.len().max(1),
                    _ => self.is_leaving = true,
                }
                world.not_sent(by);
                return false;
            }
        };
        self.send(&asked, by, stream, io);
        let (leave_after, must_expire) = match asked {
            Asked::Watch => (1, false),
            // Scans are sometimes given up after their first page.
            Asked::Scan { .. } if world.random.below(10) == 0 => (1, false),
            Asked::Echo { delay_ms, .. } => {
                let delay_ns = u64::from(delay_ms) * MILLISECOND_NS;
                (
                    usize::MAX,
                    timeout_ns.is_some_and(|timeout_ns| timeout_ns < delay_ns),
                )
            }
            _ => (usize::MAX, false),
        };
        let leave_after = if world.stopping {
            usize::MAX
        } else {
            leave_after
        };
        let call = Call {
            stream,
            by,
            answers: Vec::new(),
            leave_after,
            must_expire,
        };
        self.calls.insert(stream.id, call);
        true
    }

    fn send(&mut self, asked: &Asked, by: u64, stream: StreamKey, io: &mut Io) {
        let encode = |out: &mut Vec<u8>| messages::encode(asked, by, out);
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
}

/// A deadline for some calls: far away, or such that it may pass before, while or after the call is served.
fn timeout_ns(world: &mut World, asked: &Asked) -> Option<u64> {
    let short = world.manners == Manners::Rude || !asked.is_write();
    let is_delayed = matches!(asked, Asked::Echo { delay_ms: 1.., .. });
    match world.random.below(if is_delayed { 4 } else { 40 }) {
        0 if short && !world.stopping => Some(1 + world.random.below(8 * MILLISECOND_NS)),
        1..5 => Some(3_600_000 * MILLISECOND_NS + world.random.below(MILLISECOND_NS)),
        _ => None,
    }
}
