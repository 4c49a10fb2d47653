//! The sockets of a local pool.

use std::io;

use net::tls::{ClientTls, TlsPipe};
use net::{Address, ConnectionId, Endpoint, Outgoing, Read, Written};

use crate::error::ConnectError;
use crate::line::{closed_in_handshake, in_words};
use crate::pool::{PoolConnectionKey, PoolEngine};
use crate::sealed::{End, open, seal};

/// An address, and what its name stands for.
#[derive(Debug)]
pub(super) struct LocalTarget {
    pub(super) address: Address,
    endpoints: Vec<Endpoint>,
    /// The endpoint that stood last: the next connection tries it first.
    preferred: usize,
}

impl LocalTarget {
    pub(super) fn resolve(address: &Address) -> Result<LocalTarget, ConnectError> {
        let unknown = |error| ConnectError::UnknownHost {
            address: address.clone(),
            error,
        };
        Ok(LocalTarget {
            address: address.clone(),
            endpoints: Endpoint::resolve(address).map_err(unknown)?,
            preferred: 0,
        })
    }
}

/// What a connection of the pool has in the system.
#[derive(Debug)]
struct Wire {
    key: PoolConnectionKey,
    /// The number of its address.
    target: usize,
    socket: Option<ConnectionId>,
    tls: Option<TlsPipe>,
    is_dialing: bool,
    /// The endpoint of its address that is being tried, or stands.
    endpoint: usize,
    /// Endpoints that are still to be tried.
    tries_left: usize,
}

/// The sockets of a pool, and one place to wait for all of them.
pub(super) struct Wires {
    pub(super) targets: Vec<LocalTarget>,
    tls: Option<ClientTls>,
    pub(super) sockets: Outgoing,
    /// By the slot of the connection.
    wires: Vec<Option<Wire>>,
    /// By the slot of the socket: the slot of its connection.
    by_socket: Vec<u32>,
    buffer: Box<[u8]>,
}

impl Wires {
    pub(super) fn new(
        targets: Vec<LocalTarget>,
        tls: Option<ClientTls>,
        read_bytes: usize,
    ) -> io::Result<Wires> {
        Ok(Wires {
            targets,
            tls,
            sockets: Outgoing::new()?,
            wires: Vec::new(),
            by_socket: Vec::new(),
            buffer: vec![0; read_bytes].into_boxed_slice(),
        })
    }

    pub(super) fn socket(&self, key: PoolConnectionKey) -> Option<ConnectionId> {
        let wire = self.wires.get(key.slot as usize)?.as_ref()?;
        wire.socket.filter(|_| wire.key == key)
    }

    /// Begins to connect.
    pub(super) fn dial(
        &mut self,
        key: PoolConnectionKey,
        target: usize,
        engine: &mut PoolEngine,
        now_ns: u64,
    ) {
        let slot = key.slot as usize;
        if self.wires.len() <= slot {
            self.wires.resize_with(slot + 1, || None);
        }
        let found = &self.targets[target];
        self.wires[slot] = Some(Wire {
            key,
            target,
            socket: None,
            tls: None,
            is_dialing: true,
            endpoint: found.preferred,
            tries_left: found.endpoints.len(),
        });
        self.dial_next(slot, None, engine, now_ns);
    }

    /// Tries the endpoints that are left; after the last the connection has failed.
    fn dial_next(
        &mut self,
        slot: usize,
        mut failure: Option<io::Error>,
        engine: &mut PoolEngine,
        now_ns: u64,
    ) {
        let Some(wire) = self.wires[slot].as_mut() else {
            return;
        };
        let endpoints = &self.targets[wire.target].endpoints;
        while wire.tries_left > 0 {
            if failure.is_some() {
                wire.endpoint = (wire.endpoint + 1) % endpoints.len();
            }
            wire.tries_left -= 1;
            match self.sockets.dial(&endpoints[wire.endpoint]) {
                Ok(id) => {
                    wire.socket = Some(id);
                    let socket_slot = id.slot as usize;
                    if self.by_socket.len() <= socket_slot {
                        self.by_socket.resize(socket_slot + 1, u32::MAX);
                    }
                    self.by_socket[socket_slot] = slot as u32;
                    return;
                }
                Err(error) => failure = Some(error),
            }
        }
        let reason = failure.map_or_else(|| "it has no address".into(), in_plain_words);
        engine.disconnected(wire.key, &reason, now_ns);
        self.wires[slot] = None;
    }

    /// Writes the output of a connection once.
    pub(super) fn write(&mut self, key: PoolConnectionKey, engine: &mut PoolEngine, now_ns: u64) {
        let Some(wire) = self
            .wires
            .get_mut(key.slot as usize)
            .and_then(Option::as_mut)
        else {
            return;
        };
        let Some(socket) = wire.socket.filter(|_| wire.key == key) else {
            return;
        };
        let output = engine.output(key);
        let (taken, is_all, is_broken) = match &mut wire.tls {
            None => match self.sockets.write(socket, output) {
                Written::Bytes(count) => (count, count == output.len(), false),
                Written::Broken => (output.len(), true, true),
            },
            Some(pipe) => {
                let taken = if seal(output, pipe) { output.len() } else { 0 };
                let (is_all, is_broken) = write_sealed(&mut self.sockets, socket, pipe);
                (taken, is_all, is_broken)
            }
        };
        // Of a socket that is broken the read that follows reports why, and what the server said
        // before.
        engine.written(key, taken, !is_all && !is_broken, now_ns);
    }

    /// Closes a connection, after what the socket takes at once of what is unsent.
    pub(super) fn close(&mut self, key: PoolConnectionKey, unsent: &[u8]) {
        let Some(wire) = self
            .wires
            .get_mut(key.slot as usize)
            .and_then(|wire| wire.take_if(|wire| wire.key == key))
        else {
            return;
        };
        let Some(socket) = wire.socket else {
            return;
        };
        match wire.tls {
            _ if wire.is_dialing => {}
            None if unsent.is_empty() => {}
            None => {
                self.sockets.write(socket, unsent);
            }
            Some(mut pipe) => {
                seal(unsent, &mut pipe);
                pipe.close();
                write_sealed(&mut self.sockets, socket, &mut pipe);
            }
        }
        self.sockets.close(socket);
    }

    /// Takes what the sockets that are ready have.
    pub(super) fn receive(&mut self, engine: &mut PoolEngine, now_ns: u64) {
        while let Some(ready) = self.sockets.next_ready() {
            let slot = self.by_socket[ready.id.slot as usize] as usize;
            let found = self.wires.get_mut(slot).and_then(Option::as_mut);
            let Some(wire) = found.filter(|wire| wire.socket == Some(ready.id)) else {
                continue;
            };
            if wire.is_dialing {
                if !self.dialed(slot, ready.id, engine, now_ns) {
                    continue;
                }
            } else if ready.writable {
                let key = wire.key;
                let has_sent = match wire.tls.as_mut() {
                    Some(pipe) => write_sealed(&mut self.sockets, ready.id, pipe).0,
                    None => true,
                };
                if has_sent {
                    engine.writable(key, now_ns);
                }
            }
            if ready.readable {
                self.read(slot, ready.id, engine, now_ns);
            }
        }
    }

    /// A socket that was dialed reports. Returns whether it stands.
    fn dialed(
        &mut self,
        slot: usize,
        id: ConnectionId,
        engine: &mut PoolEngine,
        now_ns: u64,
    ) -> bool {
        let outcome = self.sockets.finish_dialing(id);
        let Some(wire) = self.wires[slot].as_mut() else {
            return false;
        };
        if let Err(error) = outcome {
            wire.socket = None;
            self.dial_next(slot, Some(error), engine, now_ns);
            return false;
        }
        wire.is_dialing = false;
        let target = &mut self.targets[wire.target];
        target.preferred = wire.endpoint;
        match self.tls.as_ref().map(|tls| tls.connect(&target.address)) {
            None => engine.connected(wire.key, now_ns),
            Some(Ok(mut pipe)) => {
                write_sealed(&mut self.sockets, id, &mut pipe);
                wire.tls = Some(pipe);
            }
            Some(Err(failure)) => {
                engine.disconnected(wire.key, &in_words(failure).to_string(), now_ns);
                return false;
            }
        }
        true
    }

    fn read(&mut self, slot: usize, id: ConnectionId, engine: &mut PoolEngine, now_ns: u64) {
        let Some(wire) = self.wires[slot].as_mut() else {
            return;
        };
        let key = wire.key;
        let was_handshaking = wire.tls.as_ref().is_some_and(TlsPipe::is_handshaking);
        let end = match self.sockets.read(id, &mut self.buffer) {
            Read::Bytes(count) => {
                let bytes = &self.buffer[..count];
                match &mut wire.tls {
                    None => {
                        engine.received(key, bytes, now_ns);
                        None
                    }
                    Some(pipe) => {
                        let opened = open_sealed(bytes, pipe, engine, key, now_ns);
                        write_sealed(&mut self.sockets, id, pipe);
                        opened.err()
                    }
                }
            }
            Read::Nothing => None,
            Read::End | Read::Broken if was_handshaking => Some(End::Tls(closed_in_handshake())),
            Read::End => Some(End::Said("the server closed it")),
            Read::Broken => Some(End::Said("the server reset it")),
        };
        if let Some(end) = end {
            engine.disconnected(key, &end.to_string(), now_ns);
        }
    }
}

/// Opens what came, and reports the end of the handshake before the first plaintext.
fn open_sealed(
    bytes: &[u8],
    pipe: &mut TlsPipe,
    engine: &mut PoolEngine,
    key: PoolConnectionKey,
    now_ns: u64,
) -> Result<(), End> {
    let was_handshaking = pipe.is_handshaking();
    let mut early = Vec::new();
    let opened = open(bytes, pipe, &mut |plain| match was_handshaking {
        true => early.extend_from_slice(plain),
        false => engine.received(key, plain, now_ns),
    });
    if was_handshaking && !pipe.is_handshaking() && opened.is_ok() {
        engine.connected(key, now_ns);
        if !early.is_empty() {
            engine.received(key, &early, now_ns);
        }
    }
    opened
}

/// Writes what was sealed once. Returns whether nothing is left, and whether the socket is broken.
fn write_sealed(sockets: &mut Outgoing, socket: ConnectionId, pipe: &mut TlsPipe) -> (bool, bool) {
    if pipe.output().is_empty() {
        return (true, false);
    }
    match sockets.write(socket, pipe.output()) {
        Written::Bytes(count) => {
            pipe.sent(count);
            (pipe.output().is_empty(), false)
        }
        Written::Broken => (false, true),
    }
}

/// What a failure to connect means, without the address.
fn in_plain_words(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => "nobody listens there".into(),
        io::ErrorKind::TimedOut => "no answer in time".into(),
        _ => error.to_string(),
    }
}
