//! A node with clients: some connections, many calls on each.

use std::cell::RefCell;
use std::rc::Rc;

use net::{Closed, ConnectionId, Connections, Handler, Io, Peer};

use super::framed_socket::FramedSocket;
use super::socket::Socket;
use super::world::World;

/// The handler of a node with clients.
pub struct Client {
    world: Rc<RefCell<World>>,
    sockets: Vec<Option<AnySocket>>,
}

/// A connection, by what it speaks.
enum AnySocket {
    Http2(Box<Socket>),
    Framed(Box<FramedSocket>),
}

impl AnySocket {
    /// The first one of a node speaks HTTP/2: scripts have calls of every kind.
    fn new(id: ConnectionId, world: &mut World, io: &mut Io, now_ns: u64) -> AnySocket {
        match id.slot > 0 && world.random.below(4) == 0 {
            true => AnySocket::Framed(Box::new(FramedSocket::new(id, world))),
            false => AnySocket::Http2(Box::new(Socket::new(id, world, &mut io.output, now_ns))),
        }
    }

    fn id(&self) -> ConnectionId {
        match self {
            AnySocket::Http2(socket) => socket.id,
            AnySocket::Framed(socket) => socket.id,
        }
    }

    fn receive(&mut self, world: &mut World, io: &mut Io, now_ns: u64) {
        match self {
            AnySocket::Http2(socket) => socket.receive(world, io, now_ns),
            AnySocket::Framed(socket) => socket.receive(world, io),
        }
    }

    fn act(&mut self, world: &mut World, io: &mut Io, now_ns: u64) {
        match self {
            AnySocket::Http2(socket) => socket.act(world, io, now_ns),
            AnySocket::Framed(socket) => socket.act(world, io, now_ns),
        }
    }

    fn lose(self, world: &mut World) {
        match self {
            AnySocket::Http2(socket) => socket.lose(world),
            AnySocket::Framed(socket) => socket.lose(world),
        }
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        match self {
            AnySocket::Http2(socket) => socket.next_deadline_ns(),
            AnySocket::Framed(socket) => socket.next_deadline_ns(),
        }
    }
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

    fn socket(&mut self, id: ConnectionId) -> Option<&mut AnySocket> {
        self.sockets
            .get_mut(id.slot as usize)?
            .as_mut()
            .filter(|socket| socket.id() == id)
    }
}

impl Handler for Client {
    fn opened(&mut self, id: ConnectionId, _: &Peer, io: &mut Io, now_ns: u64) {
        let mut world = self.world.borrow_mut();
        world.now_ns = now_ns;
        world.counts.connections += 1;
        let socket = AnySocket::new(id, &mut world, io, now_ns);
        let slot = id.slot as usize;
        if slot >= self.sockets.len() {
            self.sockets.resize_with(slot + 1, || None);
        }
        self.sockets[slot] = Some(socket);
    }

    fn received(&mut self, id: ConnectionId, io: &mut Io, now_ns: u64) {
        let world = Rc::clone(&self.world);
        if let Some(socket) = self.socket(id) {
            let world = &mut world.borrow_mut();
            world.now_ns = now_ns;
            socket.receive(world, io, now_ns);
        }
    }

    fn writable(&mut self, id: ConnectionId, io: &mut Io, now_ns: u64) {
        self.received(id, io, now_ns);
    }

    fn closed(&mut self, id: ConnectionId, _: Closed, now_ns: u64) {
        let slot = self.sockets[id.slot as usize].take_if(|socket| socket.id() == id);
        let mut world = self.world.borrow_mut();
        world.now_ns = now_ns;
        if let Some(socket) = slot {
            socket.lose(&mut world);
        }
    }

    fn tick(&mut self, connections: &mut dyn Connections, now_ns: u64) {
        let mut world = self.world.borrow_mut();
        world.now_ns = now_ns;
        for socket in self.sockets.iter_mut().flatten() {
            if let Some(io) = connections.io(socket.id()) {
                socket.act(&mut world, io, now_ns);
            }
        }
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        let sockets = self.sockets.iter().flatten();
        sockets.filter_map(AnySocket::next_deadline_ns).min()
    }

    fn stop(&mut self, _: &mut dyn Connections, _: u64) {}

    fn is_drained(&self) -> bool {
        true
    }
}
