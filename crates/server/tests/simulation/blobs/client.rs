//! A client with one connection at a time, and one call at a time on it.

use std::cell::RefCell;
use std::rc::Rc;

use net::{Closed, ConnectionId, Connections, Handler, Io, Peer};
use wire::{
    CloseReason, Config, Connection, ErrorCode, Event, RequestHead, SharedBytes, StreamKey,
};

use super::calls::{Asked, Call};
use super::plain::{Answer, Request};
use super::sending::{Next, Unfinished};
use super::world::World;

/// Chunks that are sent before the others have their turn.
const CHUNKS_PER_TURN: usize = 3;

pub struct Client {
    number: usize,
    world: Rc<RefCell<World>>,
    socket: Option<Socket>,
    unfinished: Option<Unfinished>,
}

struct Socket {
    id: ConnectionId,
    life: usize,
    connection: Connection,
    call: Option<(StreamKey, Call)>,
    /// It has more to send.
    is_sending: bool,
}

impl Client {
    pub fn new(number: usize, world: Rc<RefCell<World>>) -> Client {
        Client {
            number,
            world,
            socket: None,
            unfinished: None,
        }
    }

    pub fn is_connected(&self) -> bool {
        self.socket.is_some()
    }

    fn receive(&mut self, io: &mut Io, now_ns: u64) {
        let world = &mut self.world.borrow_mut();
        let Some(socket) = &mut self.socket else {
            return;
        };
        let mut consumed = 0;
        loop {
            let event = socket.connection.poll_event(
                io.input.bytes(),
                &mut consumed,
                &mut io.output,
                now_ns,
            );
            match event {
                None => break,
                Some(Event::Response { .. }) => {
                    let call = socket.call.as_mut().filter(|(_, call)| call.is_plain);
                    if let Some((_, call)) = call {
                        call.plain = Some(Answer::new(socket.connection.head()));
                    }
                }
                Some(Event::Message { stream, .. } | Event::Body { stream, .. }) => {
                    let message = socket.connection.message(io.input.bytes()).to_vec();
                    if let Some((_, call)) = &mut socket.call {
                        call.answers.push(message);
                    }
                    socket.connection.release(stream, &mut io.output);
                }
                Some(Event::Finished { stream }) => {
                    let status = socket.connection.status().clone();
                    socket.connection.forget(stream);
                    let (_, call) = socket.call.take().expect("a call ends once");
                    world.open -= 1;
                    self.unfinished = call
                        .ended(world, &status, socket.id)
                        .or(self.unfinished.take());
                }
                Some(Event::Cancelled { stream, .. }) => {
                    socket.connection.forget(stream);
                    self.unfinished = socket.lose(world).or(self.unfinished.take());
                }
                Some(_) => {}
            }
        }
        io.input.consume(consumed);
        if io.end_of_input() {
            socket.connection.peer_closed();
            io.close_when_written();
        }
        socket.connection.transmit(&mut io.output, now_ns);
        if let Some(CloseReason::Error { code, why }) = socket.connection.close_reason() {
            panic!("a peer broke the protocol: {why} ({code:?})");
        }
    }

    fn act(&mut self, io: &mut Io, now_ns: u64) {
        if io.is_closing() {
            return;
        }
        let world = Rc::clone(&self.world);
        let world = &mut world.borrow_mut();
        let Some(socket) = &mut self.socket else {
            return;
        };
        if socket.call.is_none() && world.left > 0 && !world.is_holding {
            let asked = world.choose(self.number, &mut self.unfinished);
            socket.begin(asked, world, io);
        }
        if socket.is_sending {
            let unfinished = socket.send(world, io);
            self.unfinished = unfinished.or(self.unfinished.take());
        }
        socket.connection.transmit(&mut io.output, now_ns);
    }
}

impl Socket {
    fn begin(&mut self, asked: Asked, world: &mut World, io: &mut Io) {
        world.open += 1;
        let plain = Request::of(&asked);
        let call = Call {
            is_plain: plain.is_some(),
            plain: None,
            life: self.life,
            begun: world.model.now(),
            losses: world.losses(),
            answers: Vec::new(),
            asked,
        };
        let head = match &plain {
            Some(request) => request.head(),
            None => RequestHead::call("simulation", call.asked.path()),
        };
        let Ok(stream) = self.connection.open(&mut io.output, &head) else {
            // The server goes.
            world.open -= 1;
            let _ = call.lost(world);
            return io.close_now();
        };
        let first = if call.is_plain {
            Vec::new()
        } else {
            call.asked.first()
        };
        let encode = |out: &mut Vec<u8>| out.extend_from_slice(&first);
        self.is_sending = matches!(call.asked, Asked::Upload(_));
        match self.is_sending {
            true if call.is_plain => {}
            false if call.is_plain => self.connection.close_send(stream, &mut io.output),
            true => self.connection.send_message(stream, &mut io.output, encode),
            false => (self.connection).send_last_message(stream, &mut io.output, encode),
        }
        self.call = Some((stream, call));
    }

    /// Sends some chunks of an upload. Returns what is left of one that was broken off.
    fn send(&mut self, world: &mut World, io: &mut Io) -> Option<Unfinished> {
        for _ in 0..CHUNKS_PER_TURN {
            let Some((stream, call)) = &mut self.call else {
                self.is_sending = false;
                return None;
            };
            let Asked::Upload(sending) = &mut call.asked else {
                return None;
            };
            if !self.connection.can_send(*stream) || io.output_is_full() {
                return None;
            }
            match sending.next(world) {
                Next::Message(body) if call.is_plain => {
                    let body = SharedBytes::from(bytes::Bytes::from(body));
                    (self.connection).send_body(*stream, &mut io.output, body);
                }
                Next::Last(_) if call.is_plain => {
                    self.connection.close_send(*stream, &mut io.output);
                    self.is_sending = false;
                }
                Next::Message(message) => {
                    let encode = |out: &mut Vec<u8>| out.extend_from_slice(&message);
                    (self.connection).send_message(*stream, &mut io.output, encode);
                }
                Next::Last(message) => {
                    let encode = |out: &mut Vec<u8>| out.extend_from_slice(&message);
                    (self.connection).send_last_message(*stream, &mut io.output, encode);
                    self.is_sending = false;
                }
                Next::Break => return self.break_off(world, io),
            }
        }
        None
    }

    /// Gives an upload up, politely or not.
    fn break_off(&mut self, world: &mut World, io: &mut Io) -> Option<Unfinished> {
        self.is_sending = false;
        if world.random.below(3) == 0 {
            io.close_now();
            return None;
        }
        let stream = self.call.as_ref().map(|(stream, _)| *stream)?;
        (self.connection).reset(stream, &mut io.output, ErrorCode::Cancel);
        let mut unfinished = self.lose(world)?;
        (unfinished.reset_on, unfinished.was_asked) = (Some(self.id), false);
        Some(unfinished)
    }

    fn lose(&mut self, world: &mut World) -> Option<Unfinished> {
        self.is_sending = false;
        let (_, call) = self.call.take()?;
        world.open -= 1;
        call.lost(world).map(|unfinished| Unfinished {
            reset_on: None,
            ..unfinished
        })
    }
}

impl Handler for Client {
    fn opened(&mut self, id: ConnectionId, _: &Peer, io: &mut Io, now_ns: u64) {
        let mut connection = Connection::new(&Config::client(), now_ns);
        connection.start(&mut io.output);
        self.socket = Some(Socket {
            id,
            life: self.world.borrow().model.life,
            connection,
            call: None,
            is_sending: false,
        });
    }

    fn received(&mut self, id: ConnectionId, io: &mut Io, now_ns: u64) {
        if self.socket.as_ref().is_some_and(|socket| socket.id == id) {
            self.receive(io, now_ns);
        }
    }

    fn writable(&mut self, id: ConnectionId, io: &mut Io, now_ns: u64) {
        self.received(id, io, now_ns);
    }

    fn closed(&mut self, id: ConnectionId, _: Closed, _: u64) {
        if let Some(mut socket) = self.socket.take_if(|socket| socket.id == id) {
            let unfinished = socket.lose(&mut self.world.borrow_mut());
            self.unfinished = unfinished.or(self.unfinished.take());
        }
    }

    fn tick(&mut self, connections: &mut dyn Connections, now_ns: u64) {
        let id = self.socket.as_ref().map(|socket| socket.id);
        if let Some(io) = id.and_then(|id| connections.io(id)) {
            self.act(io, now_ns);
        }
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        self.socket.as_ref()?.connection.next_deadline_ns()
    }

    fn stop(&mut self, _: &mut dyn Connections, _: u64) {}

    fn is_drained(&self) -> bool {
        true
    }
}
