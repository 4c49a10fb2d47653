//! A pool, servers and the network between them, in one thread and in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use client::{
    CallError, PoolAction, PoolCallKey, PoolConnectionKey, PoolEndpoint, PoolEngine, PoolEvent,
    PoolOptions,
};
use testkit::Random;

use crate::server::{Due, Server, ServerBehavior, ServerContext, ServerCounts, chance};

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MS;

/// What the network does. Chances are once in so many writes of the client; 0: never.
#[derive(Clone, Debug, Default)]
pub struct FaultRates {
    /// The connection is cut, and what was on its way is lost.
    pub cut: u64,
    /// Nothing arrives any more in either direction, without a word.
    pub half_open: u64,
    /// The socket takes only a part, and the rest later.
    pub block: u64,
    /// Per connection: nobody listens.
    pub refuse_dial: u64,
    /// Per connection: nothing comes back.
    pub lose_dial: u64,
    /// How long a byte travels.
    pub latency_ns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct FaultCounts {
    pub cut: u64,
    pub half_open: u64,
    pub block: u64,
    pub refused_dials: u64,
    pub lost_dials: u64,
}

struct Link {
    key: PoolConnectionKey,
    endpoint: usize,
    server: Option<Server>,
    is_half_open: bool,
    is_open: bool,
}

enum SimulatedEvent {
    Dialed,
    DialRefused,
    ToServer(Vec<u8>),
    ToClient(Vec<u8>),
    EndOfServer,
    Answer(Due),
    Writable,
    Cut,
}

/// What was reported of a call.
#[derive(Debug)]
pub enum Reported {
    Head,
    Message(Vec<u8>),
    Writable,
    Ended(Result<(), CallError>),
}

pub struct SimulatedPool {
    pub engine: PoolEngine,
    pub now_ns: u64,
    pub behavior: Vec<ServerBehavior>,
    pub fault_rates: FaultRates,
    pub random: Random,
    pub server_counts: ServerCounts,
    pub fault_counts: FaultCounts,
    /// By tag: how often a server has looked at a request.
    pub done: Vec<u8>,
    /// What was reported since this was last taken.
    pub reported: Vec<(u64, PoolCallKey, Reported)>,
    /// Writes, and calls to them.
    pub writes: u64,
    links: Vec<Option<Link>>,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    bodies: std::collections::HashMap<u64, (PoolConnectionKey, SimulatedEvent)>,
    next_event: u64,
    /// Sockets have reported something since the last poll.
    has_reports: bool,
    pub closed: u64,
}

impl SimulatedPool {
    pub fn new(options: PoolOptions, behavior: Vec<ServerBehavior>, seed: u64) -> SimulatedPool {
        let endpoints = (0..behavior.len()).map(|number| PoolEndpoint {
            name: format!("server-{number}"),
            authority: format!("server-{number}:1"),
        });
        SimulatedPool {
            engine: PoolEngine::new(endpoints.collect(), options, seed, 0),
            now_ns: 0,
            behavior,
            fault_rates: FaultRates::default(),
            random: Random::new(seed),
            server_counts: ServerCounts::default(),
            fault_counts: FaultCounts::default(),
            done: Vec::new(),
            reported: Vec::new(),
            writes: 0,
            links: Vec::new(),
            events: BinaryHeap::new(),
            bodies: std::collections::HashMap::new(),
            next_event: 0,
            has_reports: false,
            closed: 0,
        }
    }

    /// Does all that can be done now, and polls when the drivers of sockets would: when sockets
    /// have reported something, when the pool has something to do, and when something is due.
    pub fn turn(&mut self) {
        loop {
            self.act();
            self.flush();
            let due_ns = self.engine.next_deadline_ns();
            let is_due = due_ns.is_some_and(|at_ns| at_ns <= self.now_ns);
            let has_reports = std::mem::take(&mut self.has_reports);
            if !(has_reports || is_due || self.engine.is_busy()) {
                return;
            }
            self.poll();
        }
    }

    fn poll(&mut self) {
        let reported = &mut self.reported;
        self.engine.poll(self.now_ns, &mut |event| {
            let (call, tag, what) = match event {
                PoolEvent::Head { call, tag, .. } => (call, tag, Reported::Head),
                PoolEvent::Message {
                    call, tag, bytes, ..
                } => (call, tag, Reported::Message(bytes.to_vec())),
                PoolEvent::Writable { call, tag } => (call, tag, Reported::Writable),
                PoolEvent::Ended {
                    call, tag, result, ..
                } => (call, tag, Reported::Ended(result.map(|_| ()))),
            };
            reported.push((tag, call, what));
        });
    }

    /// Goes on to what happens next, and does what can be done then. Returns whether there was
    /// anything before `until_ns`.
    pub fn step(&mut self, until_ns: u64) -> bool {
        let event_ns = self.events.peek().map(|Reverse((at_ns, _))| *at_ns);
        let due_ns = self.engine.next_deadline_ns();
        let next_ns = [event_ns, due_ns].into_iter().flatten().min();
        let Some(next_ns) = next_ns.filter(|&at_ns| at_ns <= until_ns) else {
            self.now_ns = until_ns;
            self.turn();
            return false;
        };
        self.now_ns = self.now_ns.max(next_ns);
        while let Some(&Reverse((at_ns, number))) = self.events.peek()
            && at_ns <= self.now_ns
        {
            self.events.pop();
            if let Some((key, event)) = self.bodies.remove(&number) {
                self.apply(key, event);
            }
        }
        self.turn();
        true
    }

    pub fn run_for(&mut self, time_ns: u64) {
        let until_ns = self.now_ns + time_ns;
        self.turn();
        while self.step(until_ns) {}
    }

    pub fn take_reported(&mut self) -> Vec<(u64, PoolCallKey, Reported)> {
        std::mem::take(&mut self.reported)
    }

    /// Connections whose sockets stand.
    pub fn open_links(&self) -> usize {
        self.links
            .iter()
            .flatten()
            .filter(|link| link.is_open)
            .count()
    }

    /// Cuts all connections.
    pub fn cut_all(&mut self) {
        let keys: Vec<_> = self.links.iter().flatten().map(|link| link.key).collect();
        for key in keys {
            self.apply(key, SimulatedEvent::Cut);
        }
    }

    /// Cuts the connections to one endpoint.
    pub fn cut(&mut self, endpoint: usize) {
        let links = self.links.iter().flatten();
        let keys: Vec<_> = links
            .filter(|link| link.endpoint == endpoint)
            .map(|link| link.key)
            .collect();
        for key in keys {
            self.apply(key, SimulatedEvent::Cut);
        }
    }

    /// The names of the connections whose sockets stand.
    pub fn open_keys(&self) -> Vec<PoolConnectionKey> {
        let links = self.links.iter().flatten();
        links
            .filter(|link| link.is_open)
            .map(|link| link.key)
            .collect()
    }

    /// Lets the servers of an endpoint say whether they serve.
    pub fn set_serving(&mut self, endpoint: usize, is_serving: bool) {
        self.behavior[endpoint].is_serving = Some(is_serving);
        self.for_servers_of(endpoint, |server, _| server.set_serving(is_serving));
    }

    /// Lets the servers of an endpoint begin a graceful end.
    pub fn drain(&mut self, endpoint: usize) {
        self.for_servers_of(endpoint, |server, now_ns| server.drain(now_ns));
    }

    /// Does something with the servers of an endpoint, whose answers follow.
    fn for_servers_of(&mut self, endpoint: usize, act: impl Fn(&mut Server, u64)) {
        for slot in 0..self.links.len() {
            let link = self.links[slot].as_mut();
            if let Some(link) = link.filter(|link| link.endpoint == endpoint) {
                let key = link.key;
                if let Some(server) = link.server.as_mut() {
                    act(server, self.now_ns);
                }
                self.answer_later(key);
            }
        }
    }

    fn later(&mut self, after_ns: u64, key: PoolConnectionKey, event: SimulatedEvent) {
        self.next_event += 1;
        let at_ns = self.now_ns + after_ns;
        self.events.push(Reverse((at_ns, self.next_event)));
        self.bodies.insert(self.next_event, (key, event));
    }

    fn link(&mut self, key: PoolConnectionKey) -> Option<&mut Link> {
        let link = self.links.get_mut(key.slot as usize)?.as_mut()?;
        (link.key == key).then_some(link)
    }

    fn act(&mut self) -> usize {
        let mut count = 0;
        while let Some(action) = self.engine.next_action() {
            count += 1;
            match action {
                PoolAction::Dial {
                    connection,
                    endpoint,
                } => self.dial(connection, endpoint),
                PoolAction::Close {
                    connection, unsent, ..
                } => {
                    self.closed += 1;
                    if self
                        .link(connection)
                        .is_some_and(|link| link.server.is_some())
                    {
                        self.apply(connection, SimulatedEvent::ToServer(unsent));
                    }
                    if self.link(connection).is_some() {
                        self.links[connection.slot as usize] = None;
                    }
                }
            }
        }
        count
    }

    fn dial(&mut self, key: PoolConnectionKey, endpoint: usize) {
        let slot = key.slot as usize;
        if self.links.len() <= slot {
            self.links.resize_with(slot + 1, || None);
        }
        assert!(self.links[slot].is_none(), "the slot is free");
        self.links[slot] = Some(Link {
            key,
            endpoint,
            server: None,
            is_half_open: false,
            is_open: false,
        });
        let latency_ns = self.fault_rates.latency_ns;
        if chance(&mut self.random, self.fault_rates.refuse_dial) {
            self.fault_counts.refused_dials += 1;
            self.later(latency_ns, key, SimulatedEvent::DialRefused);
        } else if chance(&mut self.random, self.fault_rates.lose_dial) {
            self.fault_counts.lost_dials += 1;
        } else {
            self.later(latency_ns, key, SimulatedEvent::Dialed);
        }
    }

    fn flush(&mut self) {
        while let Some(key) = self.engine.next_output(self.now_ns) {
            let mut bytes = self.engine.output(key).to_vec();
            assert!(!bytes.is_empty());
            self.writes += 1;
            let is_blocked = bytes.len() > 1 && chance(&mut self.random, self.fault_rates.block);
            if is_blocked {
                self.fault_counts.block += 1;
                bytes.truncate(self.random.below(bytes.len()));
                let pause_ns = self.random.below(20 * MS);
                self.later(pause_ns, key, SimulatedEvent::Writable);
            }
            self.engine
                .written(key, bytes.len(), is_blocked, self.now_ns);
            let latency_ns = self.fault_rates.latency_ns;
            if chance(&mut self.random, self.fault_rates.cut) {
                self.fault_counts.cut += 1;
                self.later(self.fault_rates.latency_ns / 2, key, SimulatedEvent::Cut);
            }
            let is_lost = chance(&mut self.random, self.fault_rates.half_open);
            let Some(link) = self.link(key) else {
                continue;
            };
            if is_lost && !link.is_half_open {
                link.is_half_open = true;
                self.fault_counts.half_open += 1;
            }
            self.later(latency_ns, key, SimulatedEvent::ToServer(bytes));
        }
    }

    fn apply(&mut self, key: PoolConnectionKey, event: SimulatedEvent) {
        let now_ns = self.now_ns;
        self.has_reports = true;
        let Some(link) = self.link(key) else {
            return;
        };
        let is_half_open = link.is_half_open;
        match event {
            SimulatedEvent::Dialed => {
                link.is_open = true;
                let behavior = &self.behavior[self.links[key.slot as usize]
                    .as_ref()
                    .map_or(0, |link| link.endpoint)];
                let server = (!behavior.is_mute).then(|| Server::new(behavior, now_ns));
                if let Some(link) = self.link(key) {
                    link.server = server;
                }
                self.engine.connected(key, now_ns);
                self.answer_later(key);
            }
            SimulatedEvent::DialRefused => {
                self.engine
                    .disconnected(key, "nobody listens there", now_ns)
            }
            SimulatedEvent::Cut => self.engine.disconnected(key, "it was reset", now_ns),
            SimulatedEvent::Writable => self.engine.writable(key, now_ns),
            SimulatedEvent::ToClient(bytes) if !is_half_open => {
                self.engine.received(key, &bytes, now_ns)
            }
            SimulatedEvent::EndOfServer if !is_half_open => {
                self.engine
                    .disconnected(key, "the server closed it", now_ns);
            }
            SimulatedEvent::ToServer(bytes) if !is_half_open => self.serve(key, &bytes),
            SimulatedEvent::Answer(due) => {
                if let Some(server) = link.server.as_mut() {
                    server.answer(&due, now_ns);
                    self.answer_later(key);
                }
            }
            SimulatedEvent::ToClient(_)
            | SimulatedEvent::ToServer(_)
            | SimulatedEvent::EndOfServer => {}
        }
    }

    fn serve(&mut self, key: PoolConnectionKey, bytes: &[u8]) {
        let Some(Some(link)) = self.links.get_mut(key.slot as usize) else {
            return;
        };
        let Some(server) = link.server.as_mut() else {
            return;
        };
        let mut around = ServerContext {
            behavior: &self.behavior[link.endpoint],
            server_counts: &mut self.server_counts,
            random: &mut self.random,
            now_ns: self.now_ns,
            done: Vec::new(),
            due: Vec::new(),
        };
        server.receive(bytes, &mut around);
        let (done, due) = (around.done, around.due);
        for payload in done {
            if let Some(tag) = tag_of(&payload)
                && let Some(count) = self.done.get_mut(tag as usize)
            {
                *count = count.saturating_add(1);
            }
        }
        for (at_ns, answer) in due {
            self.later(at_ns - self.now_ns, key, SimulatedEvent::Answer(answer));
        }
        self.answer_later(key);
    }

    /// Sends what a server has to say, in one piece or in several.
    fn answer_later(&mut self, key: PoolConnectionKey) {
        let now_ns = self.now_ns;
        let latency_ns = self.fault_rates.latency_ns;
        let Some(server) = self.link(key).and_then(|link| link.server.as_mut()) else {
            return;
        };
        let mut bytes = std::mem::take(&mut server.output);
        loop {
            server.transmit(now_ns);
            if server.output.is_empty() {
                break;
            }
            bytes.append(&mut server.output);
        }
        let is_over = server.is_over();
        if bytes.len() > 1 && self.random.once_in(8) {
            let at = 1 + self.random.below(bytes.len() - 1);
            let rest = bytes.split_off(at);
            self.later(latency_ns, key, SimulatedEvent::ToClient(bytes));
            bytes = rest;
        }
        if !bytes.is_empty() {
            self.later(latency_ns, key, SimulatedEvent::ToClient(bytes));
        }
        if is_over {
            self.later(latency_ns, key, SimulatedEvent::EndOfServer);
        }
    }
}

/// The tag of a call, which its payloads begin with.
pub fn tag_of(payload: &[u8]) -> Option<u64> {
    payload
        .first_chunk()
        .map(|bytes| u64::from_le_bytes(*bytes))
}
