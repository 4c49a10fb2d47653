//! An event loop and one client that exchange bytes by hand, without driver, sockets and clocks:
//! for unit tests.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use net::{Closed, ConnectionId, Connections, Handler, Io, LoopConfig, Peer, PeerAddress};
use service::identities::{DrawToken, Token, UsableBindings};
use service::rights::Rights;
use service::{Code, Method, ServerInfo};
use store::FolderSecret;
use store::durable::Mailbox;
use store::remote::RemoteBackend;
use wire::grpc::{Metadata, TRACEPARENT};
use wire::{Connection, Event, RequestHead, StreamKey};

use crate::account::Account;
use crate::audit_record::AuditRecord;
use crate::deferred_drop::DeferredDrop;
use crate::event_loop::{LoopHandler, LoopRole};
use crate::readers::Readers;
use crate::settings::{Detail, FailedCall, Log};
use crate::slow_call_record::{SlowCall, SlowCallRule};
use crate::spans::SpanRule;
use crate::tasks::{Jobs, Tasks};
use crate::{ServerConfig, ServerParts, Storage, TimeSource, account_bytes, storage};

const ID: ConnectionId = ConnectionId {
    slot: 0,
    generation: 0,
};

/// Both sides of one connection.
pub(crate) struct Pair {
    pub handler: LoopHandler,
    pub tasks: Arc<Tasks>,
    pub io: Io,
    pub client: Connection,
    /// What the client sends next.
    pub sent: Vec<u8>,
    /// All messages and pieces of bodies that have come, for the test to take out.
    pub messages: Vec<(StreamKey, Vec<u8>)>,
    pub now_ns: u64,
    /// What came into the log.
    pub said: Said,
    /// Lines of the audit trail.
    pub audited: Said,
    log: Arc<Keep>,
    clock: Arc<Now>,
}

/// The lines of a log.
pub(crate) type Said = Arc<Mutex<Vec<String>>>;

/// A log that keeps its lines.
pub(crate) struct Keep {
    pub said: Said,
    pub audited: Said,
    detail: Mutex<Detail>,
}

impl Keep {
    fn say(&self, line: impl Into<String>) {
        self.said.lock().expect("one thread").push(line.into());
    }
}

impl Default for Keep {
    fn default() -> Keep {
        Keep {
            said: Said::default(),
            audited: Said::default(),
            detail: Mutex::new(Detail::Usual),
        }
    }
}

impl Log for Keep {
    fn refused_greeting(&self, what: &'static str, _: &PeerAddress) {
        self.say(what);
    }

    fn connection_error(&self, why: &'static str, _: &PeerAddress) {
        self.say(why);
    }

    fn audit(&self, record: &AuditRecord<'_>) {
        let AuditRecord {
            event,
            method,
            subject,
            detail,
            code,
            suppressed,
            ..
        } = record;
        let (event, who) = (event.name(), record.caller.name());
        let method = method
            .rsplit_once('/')
            .map_or(*method, |(_, method)| method);
        let words = [event, method, subject, detail, who, code.name()];
        let mut line = words.join("|");
        if *suppressed > 0 {
            line += &format!("|{suppressed}");
        }
        self.audited.lock().expect("one thread").push(line);
    }

    fn storage(&self, what: &str) {
        self.say(what);
    }

    fn storage_recovered(&self, what: &str) {
        self.say(what);
    }

    fn snapshot(&self, _: &store::snapshot::SnapshotReport) {}

    fn no_thread(&self, what: &str, _: &std::io::Error) {
        self.say(format!("no thread for {what}"));
    }

    fn detail(&self) -> Detail {
        *self.detail.lock().expect("one thread")
    }

    fn connection_opened(&self, _: &PeerAddress) {
        self.say("opened");
    }

    fn connection_closed(&self, _: &PeerAddress, why: &str, open_ns: u64) {
        self.say(format!("closed after {open_ns} ns: {why}"));
    }

    fn call_failed(&self, call: &FailedCall<'_>) {
        let FailedCall {
            path,
            code,
            message,
            ..
        } = call;
        self.say(format!("{path} failed, {code:?}: {message}"));
    }

    fn slow_call(&self, call: &SlowCall<'_>) {
        let SlowCall {
            method,
            code,
            took_ns,
            suppressed,
            ..
        } = call;
        let (database, key) = (call.database, call.key_prefix);
        self.say(format!(
            "{method:?} of {database:?} {key:?} by {} was slow, {took_ns} ns: {code:?}, \
             {suppressed}{}",
            call.caller.name(),
            call.traced
                .map_or(String::new(), |traced| format!(", of {}", traced.value()))
        ));
    }

    fn call_ended(&self, method: Method, code: Code, took_ns: u64, _: &PeerAddress) {
        self.say(format!("{method:?} ended after {took_ns} ns: {code:?}"));
    }
}

#[derive(Default)]
struct Now {
    ns: AtomicU64,
    /// How much it goes on by each time that it is read.
    step_ns: AtomicU64,
}

impl TimeSource for Now {
    fn monotonic_ns(&self) -> u64 {
        let step_ns = self.step_ns.load(Ordering::Relaxed);
        self.ns.fetch_add(step_ns, Ordering::Relaxed)
    }

    fn wall_ms(&self) -> u64 {
        1_000_000 + self.ns.load(Ordering::Relaxed) / 1_000_000
    }
}

struct Only<'a>(&'a mut Io);

impl Connections for Only<'_> {
    fn io(&mut self, id: ConnectionId) -> Option<&mut Io> {
        (id == ID).then_some(&mut *self.0)
    }
}

impl Pair {
    /// A connection that has just been accepted.
    pub fn accepted(over_limit: bool) -> Pair {
        let mut pair = Pair::with_role(None, LoopRole::Connections);
        pair.accept(over_limit);
        pair
    }

    /// A connection that is ready for calls, with an event loop that has no other.
    pub fn alone() -> Pair {
        let mut pair = Pair::with_role(None, LoopRole::OneConnection);
        pair.accept(false);
        pair.greet();
        pair
    }

    /// The loop beside those with one connection each, which has none.
    pub fn door() -> Pair {
        Pair::with_role(None, LoopRole::Door)
    }

    /// A server whose tasks are these, and no connection yet.
    pub fn with_jobs(jobs: Box<dyn Jobs>) -> Pair {
        Pair::with_role(Some(jobs), LoopRole::Connections)
    }

    /// A connection to a server for the public tests of gRPC, ready for calls.
    pub fn interop() -> Pair {
        let change = |config: &mut ServerConfig| config.services.interop = true;
        let mut pair = Pair::with_config(None, LoopRole::Connections, change);
        pair.accept(false);
        pair.greet();
        pair
    }

    /// A connection to a server with a slow-call log, ready for calls.
    pub fn with_slow_calls(rule: SlowCallRule) -> Pair {
        let change = |config: &mut ServerConfig| config.slow_calls = Some(rule);
        let mut pair = Pair::with_config(None, LoopRole::Connections, change);
        pair.accept(false);
        pair.greet();
        pair
    }

    /// A connection to a server that traces calls, ready for calls.
    pub fn with_spans(rule: SpanRule) -> Pair {
        let change = |config: &mut ServerConfig| config.spans = Some(rule);
        let mut pair = Pair::with_config(None, LoopRole::Connections, change);
        pair.accept(false);
        pair.greet();
        pair
    }

    /// A connection, ready for calls, of those who may do this without a token.
    pub fn of(anonymous: Rights) -> Pair {
        Pair::of_peer(anonymous, None, None)
    }

    /// The same, of a peer that has agreed on this with TLS, or of this user.
    pub fn of_peer(anonymous: Rights, tls: Option<net::tls::Agreed>, user: Option<u32>) -> Pair {
        let change = |config: &mut ServerConfig| config.anonymous = vec![anonymous];
        let mut pair = Pair::with_config(None, LoopRole::Connections, change);
        pair.accept_peer(false, tls, user);
        pair.greet();
        pair
    }

    /// A connection to a server whose databases are on an engine elsewhere, ready for calls.
    pub fn elsewhere(backend: Arc<dyn RemoteBackend>) -> Pair {
        let change = |config: &mut ServerConfig| {
            let timeout = Duration::from_secs(10);
            config.storage = Storage::Remote { backend, timeout };
        };
        let mut pair = Pair::with_config(None, LoopRole::Connections, change);
        pair.accept(false);
        pair.greet();
        pair
    }

    fn with_role(jobs: Option<Box<dyn Jobs>>, role: LoopRole) -> Pair {
        Pair::with_config(jobs, role, |_| ())
    }

    fn with_config(
        jobs: Option<Box<dyn Jobs>>,
        role: LoopRole,
        change: impl FnOnce(&mut ServerConfig),
    ) -> Pair {
        let (log, clock) = (Arc::new(Keep::default()), Arc::new(Now::default()));
        let mut config = config(Arc::clone(&log) as _, Arc::clone(&clock) as _);
        change(&mut config);
        let opening = storage::open(&config).expect("the limits make sense");
        let readers = Readers::Inline(opening.store.clone());
        let account = Account::new(account_bytes(&config));
        let stores = (opening.store, None, opening.remote);
        let mut parts = ServerParts::new(config, account, DeferredDrop::Inline, readers, stores);
        if let Some(jobs) = jobs {
            let time = Arc::clone(&clock) as Arc<dyn TimeSource>;
            parts.tasks = Tasks::new(jobs, time, Arc::clone(&log) as _);
        }
        let handler = parts.loop_handler(Box::new(|| {}), role);
        Pair::new(&parts, handler, log, clock)
    }

    /// Whatever is done between two readings of the clock takes so long from now on.
    pub fn take_time(&mut self, step_ns: u64) {
        self.clock.step_ns.store(step_ns, Ordering::Relaxed);
    }

    /// How much comes into the log from now on.
    pub fn log_detail(&mut self, detail: Detail) {
        *self.log.detail.lock().expect("one thread") = detail;
    }

    /// An event loop over a store that was opened elsewhere, with these readers. `waker` is called
    /// when it should tick.
    pub fn over(
        store: store::Store,
        readers: Readers,
        mailbox: Mailbox,
        waker: Arc<dyn Fn() + Send + Sync>,
    ) -> Pair {
        let (log, clock) = (Arc::new(Keep::default()), Arc::new(Now::default()));
        let config = config(Arc::clone(&log) as _, Arc::clone(&clock) as _);
        let account = Account::new(account_bytes(&config));
        let stores = (store, None, None);
        let parts = ServerParts::new(config, account, DeferredDrop::Inline, readers, stores);
        let handler = parts.loop_handler_with(Some(mailbox), waker, LoopRole::Connections);
        let mut pair = Pair::new(&parts, handler, log, clock);
        pair.accept(false);
        pair.greet();
        pair
    }

    fn new(parts: &ServerParts, handler: LoopHandler, log: Arc<Keep>, clock: Arc<Now>) -> Pair {
        Pair {
            tasks: Arc::clone(&parts.tasks),
            handler,
            io: Io::new(),
            client: Connection::new(&wire::Config::client(), 0),
            sent: Vec::new(),
            messages: Vec::new(),
            now_ns: 0,
            said: Arc::clone(&log.said),
            audited: Arc::clone(&log.audited),
            log,
            clock,
        }
    }

    /// A connection takes the place of the one before.
    pub fn accept(&mut self, over_limit: bool) {
        self.accept_peer(over_limit, None, None);
    }

    /// The same over TLS, with this in ALPN.
    pub fn accept_over_tls(&mut self, application: Option<&[u8]>) {
        let agreed = net::tls::Agreed {
            application: application.map(<[u8]>::to_vec),
            resumed: false,
            certificate: None,
        };
        self.accept_peer(false, Some(agreed), None);
    }

    fn accept_peer(&mut self, over_limit: bool, tls: Option<net::tls::Agreed>, user: Option<u32>) {
        let peer = Peer {
            address: PeerAddress::Simulated(1),
            listener: 0,
            outgoing: false,
            over_limit,
            place: None,
            handshake: None,
            tls,
            user,
        };
        self.handler.opened(ID, &peer, &mut self.io, self.now_ns);
    }

    /// A connection that is ready for calls.
    pub fn open() -> Pair {
        let mut pair = Pair::accepted(false);
        pair.greet();
        pair
    }

    /// The client's preface and what follows from it.
    pub fn greet(&mut self) {
        self.client.start(&mut self.sent);
        for _ in 0..2 {
            self.turn();
        }
    }

    /// The client begins a call and sends one message, its last.
    pub fn call(&mut self, path: &str, message: &[u8]) -> StreamKey {
        let head = RequestHead::call("test", path);
        let stream = self
            .client
            .open(&mut self.sent, &head)
            .expect("a stream is free");
        self.client
            .send_last_message(stream, &mut self.sent, |out| out.extend_from_slice(message));
        stream
    }

    /// The client begins a call with a token, or whatever it says it is, and sends one message, its
    /// last or not.
    pub fn call_with(
        &mut self,
        (path, authorization): (&str, Option<&str>),
        message: &[u8],
        last: bool,
    ) -> StreamKey {
        let field = authorization.map(|value| ("authorization", value));
        self.call_with_fields(path, field.as_slice(), message, last)
    }

    /// The client calls a unary method, or one with one request, with this `traceparent`.
    pub fn call_traced(&mut self, path: &str, message: &[u8], value: Option<&str>) -> StreamKey {
        let field = value.map(|value| (TRACEPARENT, value));
        self.call_with_fields(path, field.as_slice(), message, true)
    }

    /// The same with any fields.
    pub fn call_with_fields(
        &mut self,
        path: &str,
        fields: &[(&'static str, &str)],
        message: &[u8],
        last: bool,
    ) -> StreamKey {
        let mut metadata = Metadata::new();
        for &(name, value) in fields {
            let pushed = metadata.push_ascii(name, value);
            pushed.expect("it may stand in a header");
        }
        let head = RequestHead {
            metadata: Some(&metadata),
            ..RequestHead::call("test", path)
        };
        let Pair { client, sent, .. } = self;
        let stream = client.open(sent, &head).expect("a stream is free");
        let encode = |out: &mut Vec<u8>| out.extend_from_slice(message);
        match last {
            true => client.send_last_message(stream, sent, encode),
            false => client.send_message(stream, sent, encode),
        };
        stream
    }

    /// The client sends a plain request whose head ends it.
    pub fn get(&mut self, path: &str) -> StreamKey {
        let (head, mut frame) = (RequestHead::get("test", path), Vec::new());
        let stream = (self.client.open(&mut frame, &head)).expect("a stream is free");
        assert_eq!(frame[3], wire::http2::frame::kind::HEADERS);
        frame[4] |= wire::http2::frame::flag::END_STREAM;
        self.sent.extend(frame);
        // The client would say it in a frame that follows.
        self.client.close_send(stream, &mut Vec::new());
        stream
    }

    /// The server takes what was sent and ticks, the client takes what that brought.
    pub fn turn(&mut self) -> Vec<Event> {
        self.serve();
        self.take()
    }

    /// The server takes what was sent and ticks.
    pub fn serve(&mut self) {
        self.clock.ns.store(self.now_ns, Ordering::Relaxed);
        if self.client.wants_transmit() {
            self.client.transmit(&mut self.sent, self.now_ns);
        }
        let sent = std::mem::take(&mut self.sent);
        self.receive(&sent);
        self.handler.tick(&mut Only(&mut self.io), self.now_ns);
    }

    /// As [`Pair::turn`], but nothing has come from the client, which would be a reason to look at
    /// its connection.
    pub fn turn_of_loop(&mut self) -> Vec<Event> {
        self.clock.ns.store(self.now_ns, Ordering::Relaxed);
        self.handler.tick(&mut Only(&mut self.io), self.now_ns);
        self.take()
    }

    /// What a loop does that is woken without input: a tick, and a visit to the connection if it
    /// asks for one.
    pub fn tick_without_input(&mut self) {
        self.clock.ns.store(self.now_ns, Ordering::Relaxed);
        if self.io.is_unfinished() {
            self.receive(&[]);
        }
        self.handler.tick(&mut Only(&mut self.io), self.now_ns);
    }

    /// The server takes these bytes.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.io.input.push(bytes);
        self.io.set_unfinished(false);
        self.handler.received(ID, &mut self.io, self.now_ns);
    }

    /// The client takes what the server has written.
    pub fn take(&mut self) -> Vec<Event> {
        self.take_with(|_, _| ())
    }

    /// The same, and `see` sees the client as of each event.
    pub fn take_with(&mut self, mut see: impl FnMut(&Connection, Event)) -> Vec<Event> {
        let (input, mut consumed) = (std::mem::take(&mut self.io.output), 0);
        let mut events = Vec::new();
        while let Some(event) =
            self.client
                .poll_event(&input, &mut consumed, &mut self.sent, self.now_ns)
        {
            events.push(event);
            see(&self.client, event);
            if let Event::Message { stream, .. } | Event::Body { stream, .. } = event {
                let message = self.client.message(&input).to_vec();
                self.messages.push((stream, message));
                self.client.release(stream, &mut self.sent);
            }
            if matches!(event, Event::Finished { .. }) {
                break;
            }
        }
        self.io.output.extend_from_slice(&input[consumed..]);
        events
    }

    /// The account of the server is used up by others as long as what is returned lives, and the
    /// client has begun messages that it does not end.
    pub fn overfill(&mut self) -> crate::account::Holding {
        for _ in 0..2 {
            let head = RequestHead::call("test", "/pelton.v1.Echo/Unary");
            let opened = self.client.open(&mut self.sent, &head);
            let id = opened.expect("a stream is free").id;
            let mut message = vec![0; 48_000];
            message[1..5].copy_from_slice(&48_100_u32.to_be_bytes());
            for piece in message.chunks(16_000) {
                wire::http2::frame::write_header(&mut self.sent, piece.len(), 0, 0, id);
                self.sent.extend_from_slice(piece);
            }
        }
        self.turn();
        self.fill_account()
    }

    /// The account of the server is used up by others, with the reserve, as long as what is
    /// returned lives.
    pub fn fill_account(&self) -> crate::account::Holding {
        let account = self.handler.account();
        let wake: crate::SharedWaker = Arc::new(|| {});
        let mut others = account.open(&PeerAddress::Simulated(9), &wake);
        let bytes =
            account.limit_bytes() + account.limit_bytes() / crate::limits::RESERVE_SHARE + 1;
        let held = crate::account::HeldBytes::unsent(bytes);
        others.change(held, self.now_ns);
        others
    }

    /// The connection is gone.
    pub fn close(&mut self) {
        self.handler.closed(ID, Closed::ByPeer, self.now_ns);
    }

    /// The server is asked to stop.
    pub fn stop(&mut self) {
        self.handler.stop(&mut Only(&mut self.io), self.now_ns);
    }
}

/// Tokens that are other ones each time.
fn draw_token() -> Box<DrawToken> {
    let drawn = AtomicU8::new(0);
    Box::new(move || Some(Token::new([drawn.fetch_add(1, Ordering::Relaxed) + 1; 32])))
}

/// A server that keeps nothing, with little memory.
pub(crate) fn config(log: Arc<dyn Log>, time: Arc<dyn TimeSource>) -> ServerConfig {
    ServerConfig {
        loops: LoopConfig::default(),
        server: ServerInfo {
            name: "test",
            version: "0",
        },
        memory_limit_bytes: 64 << 20,
        max_value_bytes: 4_000_000,
        max_streams: 100,
        stream_window: None,
        connection_window: None,
        services: Default::default(),
        secret: FolderSecret::new([1; 32]),
        draw_token: draw_token(),
        first_admin: None,
        bindings: UsableBindings::ALL,
        hash_seed: 1,
        time,
        log,
        storage: Storage::Volatile { history_id: 7 },
        blobs: Default::default(),
        backup_root: None,
        following: None,
        data: None,
        time_calls: true,
        slow_calls: None,
        spans: None,
        anonymous: vec![Rights::everything()],
    }
}
