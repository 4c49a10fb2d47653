//! The sockets of a local pool.

use std::io;

use net::tls::{ClientTls, TlsPipe};
use net::{ConnectionId, Outgoing, OutgoingEndpoint, SocketReadResult, SocketWriteResult};

use crate::dialing::{DialAttempt, DialTarget, SocketOwners};
use crate::line::{closed_in_handshake, in_words};
use crate::pool::{PoolConnectionKey, PoolEngine};
use crate::sealed::{SocketEnd, open, seal};
use crate::socket::connect_reason;

/// What a connection of the pool has in the system.
#[derive(Debug)]
struct LocalConnection {
    key: PoolConnectionKey,
    /// The number of its address.
    target: usize,
    socket: Option<ConnectionId>,
    tls: Option<TlsPipe>,
    is_dialing: bool,
    attempt: DialAttempt,
}

/// The sockets of a pool, and one place to wait for all of them.
pub(super) struct LocalConnections {
    pub(super) targets: Vec<DialTarget>,
    tls: Option<ClientTls>,
    pub(super) sockets: Outgoing,
    /// By the slot of the connection.
    connections: Vec<Option<LocalConnection>>,
    owners: SocketOwners,
    buffer: Box<[u8]>,
    /// An endpoint could not be connected to.
    has_failures: bool,
}

impl LocalConnections {
    pub(super) fn new(
        targets: Vec<DialTarget>,
        tls: Option<ClientTls>,
        read_bytes: usize,
    ) -> io::Result<LocalConnections> {
        Ok(LocalConnections {
            targets,
            tls,
            sockets: Outgoing::new()?,
            connections: Vec::new(),
            owners: SocketOwners::default(),
            buffer: vec![0; read_bytes].into_boxed_slice(),
            has_failures: false,
        })
    }

    pub(super) fn socket(&self, key: PoolConnectionKey) -> Option<ConnectionId> {
        let connection = self.connections.get(key.slot as usize)?.as_ref()?;
        connection.socket.filter(|_| connection.key == key)
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
        if self.connections.len() <= slot {
            self.connections.resize_with(slot + 1, || None);
        }
        self.connections[slot] = Some(LocalConnection {
            key,
            target,
            socket: None,
            tls: None,
            is_dialing: true,
            attempt: self.targets[target].attempt(),
        });
        self.dial_next(slot, None, engine, now_ns);
    }

    /// Tries the endpoints that are left; after the last the connection has failed.
    fn dial_next(
        &mut self,
        slot: usize,
        failure: Option<io::Error>,
        engine: &mut PoolEngine,
        now_ns: u64,
    ) {
        let Some(connection) = self.connections[slot].as_mut() else {
            return;
        };
        let target = &self.targets[connection.target];
        match target.dial(&mut connection.attempt, &mut self.sockets, failure) {
            Ok(id) => {
                connection.socket = Some(id);
                self.owners.set(id, slot as u32);
            }
            Err(error) => {
                engine.disconnected(connection.key, &connect_reason(&error), now_ns);
                self.connections[slot] = None;
            }
        }
    }

    /// The name of a target stands for these endpoints now. Connections to others take no further
    /// calls, and attempts to connect to others begin anew.
    pub(super) fn set_endpoints(
        &mut self,
        target: usize,
        endpoints: Vec<OutgoingEndpoint>,
        engine: &mut PoolEngine,
        now_ns: u64,
    ) {
        let Some(found) = self.targets.get_mut(target) else {
            return;
        };
        let former = found.replace(endpoints);
        engine.endpoint_found(target, former.is_some(), now_ns);
        let former = former.unwrap_or_default();
        if former.is_empty() {
            return;
        }
        for slot in 0..self.connections.len() {
            self.follow(slot, target, &former, engine, now_ns);
        }
    }

    /// Sees to it that a connection leads to an endpoint for which its target still stands.
    fn follow(
        &mut self,
        slot: usize,
        target: usize,
        former: &[OutgoingEndpoint],
        engine: &mut PoolEngine,
        now_ns: u64,
    ) {
        let found = self.connections[slot].as_mut();
        let Some(connection) = found.filter(|connection| connection.target == target) else {
            return;
        };
        match self.targets[target].moved(connection.attempt, former) {
            Some(attempt) => connection.attempt = attempt,
            None if connection.is_dialing => {
                if let Some(socket) = connection.socket.take() {
                    self.sockets.close(socket);
                }
                connection.attempt = self.targets[target].attempt();
                self.dial_next(slot, None, engine, now_ns);
            }
            None => engine.drain(connection.key),
        }
    }

    /// Returns whether an endpoint could not be connected to since this was last asked.
    pub(super) fn take_failures(&mut self) -> bool {
        std::mem::take(&mut self.has_failures)
    }

    /// Writes the output of a connection once.
    pub(super) fn write(&mut self, key: PoolConnectionKey, engine: &mut PoolEngine, now_ns: u64) {
        let Some(connection) = self
            .connections
            .get_mut(key.slot as usize)
            .and_then(Option::as_mut)
        else {
            return;
        };
        let Some(socket) = connection.socket.filter(|_| connection.key == key) else {
            return;
        };
        let output = engine.output(key);
        let (taken, is_all, is_broken) = match &mut connection.tls {
            None => match self.sockets.write(socket, output) {
                SocketWriteResult::Bytes(count) => (count, count == output.len(), false),
                SocketWriteResult::Broken => (output.len(), true, true),
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

    /// Closes a connection, after what the socket takes at once of what is unsent. `was_open`:
    /// calls could begin on it.
    pub(super) fn close(&mut self, key: PoolConnectionKey, unsent: &[u8], was_open: bool) {
        let Some(connection) = self
            .connections
            .get_mut(key.slot as usize)
            .and_then(|connection| connection.take_if(|connection| connection.key == key))
        else {
            return;
        };
        if !was_open {
            self.targets[connection.target].failed(connection.attempt);
        }
        let Some(socket) = connection.socket else {
            return;
        };
        match connection.tls {
            _ if connection.is_dialing => {}
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
            let slot = self.owners.get(ready.id) as usize;
            let found = self.connections.get_mut(slot).and_then(Option::as_mut);
            let Some(connection) = found.filter(|connection| connection.socket == Some(ready.id))
            else {
                continue;
            };
            if connection.is_dialing {
                if !self.dialed(slot, ready.id, engine, now_ns) {
                    continue;
                }
            } else if ready.writable {
                let key = connection.key;
                let has_sent = match connection.tls.as_mut() {
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
        let Some(connection) = self.connections[slot].as_mut() else {
            return false;
        };
        if let Err(error) = outcome {
            connection.socket = None;
            self.has_failures = true;
            self.dial_next(slot, Some(error), engine, now_ns);
            return false;
        }
        connection.is_dialing = false;
        let target = &mut self.targets[connection.target];
        target.accepted(&mut connection.attempt);
        match self.tls.as_ref().map(|tls| tls.connect(&target.address)) {
            None => engine.connected(connection.key, now_ns),
            Some(Ok(mut pipe)) => {
                write_sealed(&mut self.sockets, id, &mut pipe);
                connection.tls = Some(pipe);
            }
            Some(Err(failure)) => {
                engine.disconnected(connection.key, &in_words(failure).to_string(), now_ns);
                return false;
            }
        }
        true
    }

    fn read(&mut self, slot: usize, id: ConnectionId, engine: &mut PoolEngine, now_ns: u64) {
        let Some(connection) = self.connections[slot].as_mut() else {
            return;
        };
        let key = connection.key;
        let was_handshaking = connection.tls.as_ref().is_some_and(TlsPipe::is_handshaking);
        let end = match self.sockets.read(id, &mut self.buffer) {
            SocketReadResult::Bytes(count) => {
                let bytes = &self.buffer[..count];
                match &mut connection.tls {
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
            SocketReadResult::Nothing => None,
            SocketReadResult::End | SocketReadResult::Broken if was_handshaking => {
                Some(SocketEnd::Tls(closed_in_handshake()))
            }
            SocketReadResult::End => Some(SocketEnd::Said("the server closed it")),
            SocketReadResult::Broken => Some(SocketEnd::Said("the server reset it")),
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
) -> Result<(), SocketEnd> {
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
        SocketWriteResult::Bytes(count) => {
            pipe.sent(count);
            (pipe.output().is_empty(), false)
        }
        SocketWriteResult::Broken => (false, true),
    }
}
