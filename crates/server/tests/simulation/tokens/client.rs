//! A client with one connection at a time, and one call at a time on it, each with another token.

use std::cell::RefCell;
use std::rc::Rc;

use net::{Closed, ConnectionId, Connections, Handler, Io, Peer};
use wire::grpc::Metadata;
use wire::{CloseReason, Config, Connection, Event, RequestHead, StreamKey};

use super::super::time::wall_ms;
use super::bindings;
use super::calls::{Asked, batch};
use super::model::Span;
use super::world::World;

/// A Pipe ends by itself once in so many batches.
const CLOSE_ONCE_IN: u64 = 40;
/// Batches of a Pipe that are not answered yet.
const BATCHES_MAX: usize = 3;

pub struct Client {
    number: usize,
    world: Rc<RefCell<World>>,
    socket: Option<Socket>,
}

struct Socket {
    id: ConnectionId,
    /// To which life of the server it leads.
    life: u64,
    connection: Connection,
    call: Option<(StreamKey, Asked)>,
    /// Of a unary call.
    answer: Vec<u8>,
    /// The client has ended its Pipe.
    is_closed: bool,
}

impl Client {
    pub fn new(number: usize, world: Rc<RefCell<World>>) -> Client {
        Client {
            number,
            world,
            socket: None,
        }
    }

    /// The user as whom it connects; `None`: those who administrate have what their listener gives.
    pub fn user(&self) -> Option<u32> {
        bindings::user_of(self.number).map(bindings::number_of)
    }

    pub fn is_connected(&self) -> bool {
        self.socket.is_some()
    }

    /// The token of a Pipe that is open, and when that began.
    pub fn open_pipe(&self) -> Option<(usize, Span)> {
        match &self.socket.as_ref()?.call {
            Some((_, Asked::Pipe { token, span, .. })) => Some((*token, *span)),
            _ => None,
        }
    }

    fn receive(&mut self, io: &mut Io, now_ns: u64) {
        let world = &mut self.world.borrow_mut();
        world.model.set_now(wall_ms(now_ns));
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
                Some(Event::Message { stream, .. }) => {
                    let message = socket.connection.message(io.input.bytes()).to_vec();
                    socket.message(world, message);
                    socket.connection.release(stream, &mut io.output);
                }
                Some(Event::Finished { stream }) => {
                    let status = socket.connection.status().clone();
                    socket.connection.forget(stream);
                    let (_, asked) = socket.call.take().expect("a call ends once");
                    (world.open, world.ended) = (world.open - 1, world.ended + 1);
                    world.answer_life = socket.life;
                    asked.ended(world, &std::mem::take(&mut socket.answer), &status);
                }
                Some(Event::Cancelled { stream, .. }) => {
                    socket.connection.forget(stream);
                    socket.lose(world);
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
        let world = &mut self.world.borrow_mut();
        world.model.set_now(wall_ms(now_ns));
        let Some(socket) = &mut self.socket else {
            return;
        };
        match socket.call {
            None if world.left > 0 && !world.is_holding => {
                world.left -= 1;
                if let Some(asked) = world.choose(self.number) {
                    socket.begin(asked, world, io);
                }
            }
            None => {}
            Some(_) => socket.go_on(world, io),
        }
        socket.connection.transmit(&mut io.output, now_ns);
    }
}

impl Socket {
    fn begin(&mut self, asked: Asked, world: &mut World, io: &mut Io) {
        world.open += 1;
        let mut metadata = Metadata::new();
        if let Some(token) = asked.token() {
            let header = world.model.tokens[token].header.clone();
            metadata
                .push_ascii("authorization", header)
                .expect("it can be sent");
        }
        let head = RequestHead {
            metadata: Some(&metadata),
            ..RequestHead::call("simulation", asked.path())
        };
        let Ok(stream) = self.connection.open(&mut io.output, &head) else {
            // The server goes.
            (world.open, world.ended) = (world.open - 1, world.ended + 1);
            asked.lost(world);
            return io.close_now();
        };
        let first = asked.first(world);
        let encode = |out: &mut Vec<u8>| out.extend_from_slice(&first);
        self.is_closed = !matches!(asked, Asked::Pipe { .. });
        match self.is_closed {
            true => (self.connection).send_last_message(stream, &mut io.output, encode),
            false => (self.connection).send_message(stream, &mut io.output, encode),
        }
        self.call = Some((stream, asked));
    }

    /// Sends another batch of a Pipe, or ends it.
    fn go_on(&mut self, world: &mut World, io: &mut Io) {
        let Some((
            stream,
            Asked::Pipe {
                token, sent, done, ..
            },
        )) = &mut self.call
        else {
            return;
        };
        let stream = *stream;
        if self.is_closed || !self.connection.can_send(stream) {
            return;
        }
        if world.left == 0 || world.is_holding || world.random.below(CLOSE_ONCE_IN) == 0 {
            self.connection.close_send(stream, &mut io.output);
            self.is_closed = true;
            return;
        }
        if sent.len() - *done < BATCHES_MAX {
            let write = world.model.begin_write(*token);
            sent.push(write);
            let message = batch(write);
            let encode = |out: &mut Vec<u8>| out.extend_from_slice(&message);
            self.connection.send_message(stream, &mut io.output, encode);
        }
    }

    fn message(&mut self, world: &mut World, message: Vec<u8>) {
        let Some((_, asked)) = &mut self.call else {
            return;
        };
        if !asked.message(world, &message) {
            self.answer = message;
        }
    }

    fn lose(&mut self, world: &mut World) {
        if let Some((_, asked)) = self.call.take() {
            (world.open, world.ended) = (world.open - 1, world.ended + 1);
            asked.lost(world);
        }
    }
}

impl Handler for Client {
    fn opened(&mut self, id: ConnectionId, _: &Peer, io: &mut Io, now_ns: u64) {
        let mut connection = Connection::new(&Config::client(), now_ns);
        connection.start(&mut io.output);
        self.socket = Some(Socket {
            id,
            life: self.world.borrow().counts.lives,
            connection,
            call: None,
            answer: Vec::new(),
            is_closed: true,
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
            socket.lose(&mut self.world.borrow_mut());
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
