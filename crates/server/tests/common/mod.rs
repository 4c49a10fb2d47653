//! A server's handler without a driver, and a client for it that speaks real HTTP/2.

// Each test uses what it needs of this.
#![allow(dead_code)]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use net::{Closed, ConnectionId, Connections, Handler, Io, LoopConfig, Peer, PeerAddress};
use server::{ServerConfig, SilentLog, Simulated, Storage, TimeSource};
use service::identities::{Token, UsableBindings};
use service::rights::Rights;
use service::{ServerInfo, Shared};
use store::FolderSecret;
use wire::grpc::Status;
use wire::{CancelCause, Connection, ErrorCode, Event, RequestHead, StreamKey};

pub const MILLISECOND_NS: u64 = 1_000_000;

/// Time that goes on when the test says so.
#[derive(Default)]
struct ManualTime(AtomicU64);

impl TimeSource for ManualTime {
    fn monotonic_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn wall_ms(&self) -> u64 {
        1_700_000_000_000 + self.monotonic_ns() / MILLISECOND_NS
    }
}

/// The connections of the one loop.
#[derive(Default)]
struct Table(Vec<Option<Io>>);

impl Connections for Table {
    fn io(&mut self, id: ConnectionId) -> Option<&mut Io> {
        self.0.get_mut(id.slot as usize)?.as_mut()
    }
}

/// What can be chosen of a server under test.
pub struct Options {
    pub memory_limit_bytes: u64,
    pub max_streams: u32,
    /// How long a stop may take.
    pub drain_ms: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            memory_limit_bytes: 1 << 30,
            max_streams: 4_096,
            drain_ms: net::limits::DRAIN_MS,
        }
    }
}

/// One loop's server, driven by hand.
pub struct Host {
    handler: Box<dyn Handler>,
    pub shared: Arc<Shared>,
    table: Table,
    time: Arc<ManualTime>,
    pub now_ns: u64,
}

impl Host {
    pub fn new(options: &Options) -> Host {
        let time = Arc::new(ManualTime::default());
        let config = ServerConfig {
            loops: LoopConfig {
                drain_ms: options.drain_ms,
                ..LoopConfig::default()
            },
            server: ServerInfo {
                name: "pelton",
                version: "0.0.0",
            },
            memory_limit_bytes: options.memory_limit_bytes,
            max_value_bytes: 100_000,
            max_streams: options.max_streams,
            stream_window: None,
            connection_window: None,
            services: Default::default(),
            secret: FolderSecret::new([1; 32]),
            draw_token: Box::new(|| Some(Token::new([1; 32]))),
            first_admin: None,
            bindings: UsableBindings::ALL,
            hash_seed: 1,
            time: time.clone(),
            log: Arc::new(SilentLog),
            storage: Storage::Volatile { history_id: 7 },
            blobs: Default::default(),
            backup_root: None,
            following: None,
            data: None,
            time_calls: true,
            slow_calls: None,
            spans: None,
            anonymous: vec![Rights::everything()],
        };
        let simulated = server::simulated(config, Box::new(|| {}));
        let Simulated {
            handler, shared, ..
        } = simulated.expect("the limits fit together");
        Host {
            handler: Box::new(handler),
            shared,
            table: Table::default(),
            time,
            now_ns: 0,
        }
    }

    pub fn connect(&mut self, over_limit: bool) -> ConnectionId {
        let id = ConnectionId {
            slot: self.table.0.len() as u32,
            generation: 0,
        };
        let peer = Peer {
            address: PeerAddress::Simulated(0),
            listener: 0,
            outgoing: false,
            over_limit,
            place: None,
            handshake: None,
            tls: None,
            user: None,
        };
        let mut io = Io::new();
        self.handler.opened(id, &peer, &mut io, self.now_ns);
        self.table.0.push(Some(io));
        id
    }

    /// Bytes arrive. They wait for [`Host::serve`].
    pub fn push(&mut self, id: ConnectionId, bytes: &[u8]) {
        let io = self.table.io(id).expect("it is open");
        if io.input.is_empty() {
            io.input = net::Input::default();
        }
        io.input.push(bytes);
    }

    /// The handler's part of one tick: it receives what has arrived on a connection, and serves the
    /// batch.
    pub fn serve(&mut self, id: ConnectionId) {
        let io = self.table.io(id).expect("it is open");
        io.set_unfinished(false);
        self.handler.received(id, io, self.now_ns);
        self.handler.tick(&mut self.table, self.now_ns);
    }

    /// What the connection sends. The buffer stays as large as it is. A connection that is to be
    /// closed is closed then.
    pub fn take_output(&mut self, id: ConnectionId) -> Vec<u8> {
        let Some(io) = self.table.io(id) else {
            return Vec::new();
        };
        let bytes = io.output.clone();
        io.output.clear();
        if io.is_closing() {
            self.table.0[id.slot as usize] = None;
            self.handler.closed(id, Closed::ByHandler, self.now_ns);
        }
        bytes
    }

    pub fn is_open(&self, id: ConnectionId) -> bool {
        self.table.0[id.slot as usize].is_some()
    }

    /// Whether another tick is to follow for this connection.
    fn has_work(&mut self, id: ConnectionId) -> bool {
        let is_due = self
            .next_deadline_ns()
            .is_some_and(|at_ns| at_ns <= self.now_ns);
        is_due || self.table.io(id).is_some_and(|io| io.is_unfinished())
    }

    pub fn is_closing(&mut self, id: ConnectionId) -> bool {
        self.table.io(id).is_none_or(|io| io.is_closing())
    }

    /// The peer is gone.
    pub fn close(&mut self, id: ConnectionId) {
        if self.table.0[id.slot as usize].take().is_some() {
            self.handler.closed(id, Closed::ByPeer, self.now_ns);
        }
    }

    /// Time goes on, with a tick whenever the handler asked for one.
    pub fn advance_ms(&mut self, milliseconds: u64) {
        let until_ns = self.now_ns + milliseconds * MILLISECOND_NS;
        while let Some(at_ns) = self
            .handler
            .next_deadline_ns()
            .filter(|at_ns| *at_ns <= until_ns)
        {
            // A tick that changes nothing would come again and again: each takes a microsecond.
            self.set_time(at_ns.max(self.now_ns + 1_000));
            self.handler.tick(&mut self.table, self.now_ns);
        }
        self.set_time(until_ns.max(self.now_ns));
    }

    fn set_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.time.0.store(now_ns, Ordering::Relaxed);
    }

    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.handler.next_deadline_ns()
    }

    pub fn stop(&mut self) {
        self.handler.stop(&mut self.table, self.now_ns);
    }

    pub fn is_drained(&self) -> bool {
        self.handler.is_drained()
    }
}

/// How a call stands.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    pub http_status: u16,
    pub messages: Vec<Vec<u8>>,
    /// How it ended.
    pub status: Option<Status>,
    pub cancelled: Option<CancelCause>,
    /// How often it ended.
    pub ends: usize,
}

impl Heard {
    /// The code of the status that it ended with.
    pub fn code(&self) -> wire::grpc::Code {
        self.status
            .as_ref()
            .unwrap_or_else(|| panic!("it has no status: {self:?}"))
            .code()
    }

    /// The wait in milliseconds that the server asks for before a retry.
    pub fn pushback_ms(&self) -> Option<u64> {
        let metadata = self.status.as_ref()?.metadata()?;
        let value = metadata.get("grpc-retry-pushback-ms")?;
        std::str::from_utf8(value).ok()?.parse().ok()
    }
}

/// A client of a [`Host`].
pub struct Caller {
    pub id: ConnectionId,
    pub connection: Connection,
    pub out: Vec<u8>,
    pub heard: HashMap<u32, Heard>,
}

impl Caller {
    /// Connects, and waits until both sides know each other's settings.
    pub fn new(host: &mut Host) -> Caller {
        let mut caller = Caller::silent(host, false);
        caller.exchange(host);
        caller
    }

    /// Connects and sends nothing yet.
    pub fn silent(host: &mut Host, over_limit: bool) -> Caller {
        let id = host.connect(over_limit);
        let mut connection = Connection::new(&wire::Config::client(), host.now_ns);
        let mut out = Vec::new();
        connection.start(&mut out);
        Caller {
            id,
            connection,
            out,
            heard: HashMap::new(),
        }
    }

    /// Begins a gRPC call whose message follows.
    pub fn open(&mut self, path: &str) -> StreamKey {
        self.open_head(&RequestHead::call("test", path))
    }

    pub fn open_head(&mut self, head: &RequestHead<'_>) -> StreamKey {
        let stream = self
            .connection
            .open(&mut self.out, head)
            .expect("it can be opened");
        self.heard.insert(stream.id, Heard::default());
        stream
    }

    /// Begins a gRPC call with its only message.
    pub fn call(&mut self, path: &str, message: &[u8]) -> StreamKey {
        self.call_head(&RequestHead::call("test", path), message)
    }

    pub fn call_head(&mut self, head: &RequestHead<'_>, message: &[u8]) -> StreamKey {
        let stream = self.open_head(head);
        let encode = |out: &mut Vec<u8>| out.extend_from_slice(message);
        self.connection
            .send_last_message(stream, &mut self.out, encode);
        stream
    }

    /// A plain request without a body.
    pub fn plain(&mut self, method: &str, path: &str) -> StreamKey {
        let head = RequestHead {
            method,
            ..RequestHead::get("test", path)
        };
        let stream = self.open_head(&head);
        self.connection.close_send(stream, &mut self.out);
        stream
    }

    /// Gives a call up.
    pub fn cancel(&mut self, stream: StreamKey) {
        self.connection
            .reset(stream, &mut self.out, ErrorCode::Cancel);
    }

    /// Bytes go to and fro until both sides have nothing to say. A side that has ended closes the
    /// connection.
    pub fn exchange(&mut self, host: &mut Host) {
        while host.is_open(self.id) {
            let has_received = self.exchange_once(host);
            if self.out.is_empty() && !has_received && !host.has_work(self.id) {
                return;
            }
        }
    }

    /// What this side has to say goes out, and what the other one answers comes in. Returns whether
    /// that was anything.
    pub fn exchange_once(&mut self, host: &mut Host) -> bool {
        let sent = std::mem::take(&mut self.out);
        host.push(self.id, &sent);
        host.serve(self.id);
        let received = host.take_output(self.id);
        self.receive(&received, host.now_ns);
        if self.connection.close_reason().is_some() {
            host.close(self.id);
        }
        !received.is_empty()
    }

    pub fn receive(&mut self, bytes: &[u8], now_ns: u64) {
        let mut consumed = 0;
        while let Some(event) =
            self.connection
                .poll_event(bytes, &mut consumed, &mut self.out, now_ns)
        {
            self.event(event, bytes);
        }
        assert_eq!(consumed, bytes.len(), "a server sends whole frames here");
        self.connection.transmit(&mut self.out, now_ns);
    }

    fn event(&mut self, event: Event, bytes: &[u8]) {
        match event {
            Event::Response { stream, .. } => {
                self.hear(stream).http_status = self.connection.head().http_status();
            }
            Event::Message { stream, .. } | Event::Body { stream, .. } => {
                let message = self.connection.message(bytes).to_vec();
                self.hear(stream).messages.push(message);
                self.connection.release(stream, &mut self.out);
            }
            Event::Finished { stream } => {
                let status = self.connection.status().clone();
                let http_status = self.connection.head().http_status();
                let heard = self.hear(stream);
                heard.status = Some(status);
                heard.ends += 1;
                if heard.http_status == 0 {
                    heard.http_status = http_status;
                }
                self.connection.forget(stream);
            }
            Event::Cancelled { stream, cause } => {
                let heard = self.hear(stream);
                heard.cancelled = Some(cause);
                heard.ends += 1;
                self.connection.forget(stream);
            }
            Event::Writable { .. } => {}
            other => panic!("{other:?} at a client"),
        }
    }

    fn hear(&mut self, stream: StreamKey) -> &mut Heard {
        self.heard.get_mut(&stream.id).expect("a call of ours")
    }

    /// What was heard of a call.
    pub fn heard(&self, stream: StreamKey) -> &Heard {
        &self.heard[&stream.id]
    }
}
