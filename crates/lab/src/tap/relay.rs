//! The tap's turn: sockets that are ready, and bytes that have arrived.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

use hdrhistogram::Histogram;
use net::tls::ServerTls;
use net::{Address, TcpDiagnosis, monotonic_ns};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, listen, sockopt};

use super::conditions::{Conditions, SharedLink};
use super::direction::{BothWays, TapDirection};
use super::limits::{
    MAX_TAPPED_CONNECTIONS, REPORTED_CONNECTIONS, TAP_BACKLOG, TAP_DIAL_MS, TAP_QUEUES_BYTES,
    TAP_READ_BYTES, TAP_TURN_MS,
};
use super::relay_socket::{Broken, RelaySocket};
use super::relayed::{RelayTurn, RelayedConnection};
use super::summary::{ConnectionSummary, TapSummary};
use super::target::{ReachedTarget, TapError, TapTarget};
use super::totals::{TapTotals, times};
use super::watch::ConnectionWatch;
use crate::process::thread_cpu_ns;

/// Where the tap listens, and what it leads to.
#[derive(Clone, Debug)]
pub struct TapPlan {
    /// Where clients connect to.
    pub listen: Address,
    /// TLS that clients are to speak.
    pub listen_tls: Option<ServerTls>,
    /// Whom their connections are forwarded to.
    pub target: TapTarget,
    /// What is done to what is forwarded.
    pub conditions: Conditions,
}

/// What an event is about: the listener, or one side of a connection.
const LISTENER: u64 = u64::MAX;

/// A relay that is ready to take connections.
#[derive(Debug)]
pub struct Tap {
    plan: TapPlan,
    target: ReachedTarget,
    listener: OwnedFd,
    address: Address,
    /// Removed when the tap goes.
    socket_file: Option<PathBuf>,
    set: OwnedFd,
}

impl Tap {
    /// Looks whether the server accepts a connection, and listens.
    ///
    /// # Errors
    /// If it does not, or the address to listen on cannot be had.
    pub fn bind(plan: TapPlan) -> Result<Tap, TapError> {
        let target = ReachedTarget::reach(&plan.target.address)?;
        let failed = |error| TapError::Listen {
            address: plan.listen.clone(),
            error,
        };
        let (listener, address, socket_file) = listen_on(&plan.listen).map_err(failed)?;
        let system = |error: Errno| TapError::System(error.into());
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?;
        let data = epoll::EventData::new_u64(LISTENER);
        epoll::add(&set, &listener, data, epoll::EventFlags::IN).map_err(system)?;
        Ok(Tap {
            plan,
            target,
            listener,
            address,
            socket_file,
            set,
        })
    }

    /// Where it really listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Relays until `is_over` says so, which is asked at least every [`TAP_TURN_MS`], with what has
    /// been seen so far.
    ///
    /// # Errors
    /// If the kernel has no more events for the process.
    pub fn run(&self, is_over: &mut dyn FnMut(&TapTotals) -> bool) -> io::Result<TapSummary> {
        net::make_waits_precise();
        let mut relay = Relay::new(self);
        while !is_over(&relay.totals) {
            relay.turn()?;
        }
        Ok(relay.end())
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        if let Some(path) = &self.socket_file {
            // Somebody may have removed it.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn listen_on(address: &Address) -> io::Result<(OwnedFd, Address, Option<PathBuf>)> {
    match address {
        Address::Tcp { host, port } => {
            let addresses: Vec<SocketAddr> = (host.as_str(), *port).to_socket_addrs()?.collect();
            let listener = TcpListener::bind(addresses.as_slice())?;
            listener.set_nonblocking(true)?;
            let bound = listener.local_addr()?;
            let listener = OwnedFd::from(listener);
            listen(&listener, TAP_BACKLOG)?;
            let address = Address::Tcp {
                host: host.clone(),
                port: bound.port(),
            };
            Ok((listener, address, None))
        }
        Address::Unix(path) => {
            let listener = UnixListener::bind(path)?;
            listener.set_nonblocking(true)?;
            Ok((listener.into(), address.clone(), Some(path.clone())))
        }
    }
}

/// The connections of a run.
struct Relay<'a> {
    tap: &'a Tap,
    connections: HashMap<u32, RelayedConnection>,
    /// The interest that the kernel knows of each side.
    interests: HashMap<(u32, TapDirection), epoll::EventFlags>,
    next_index: u32,
    /// What the kernel reported last.
    events: Vec<epoll::Event>,
    is_accepting: bool,
    was_full: bool,
    /// Bytes that wait in all connections.
    queued_bytes: usize,
    totals: TapTotals,
    links: BothWays<SharedLink>,
    forward_ns: Histogram<u64>,
    scratch: Box<[u8; TAP_READ_BYTES]>,
    summaries: Vec<ConnectionSummary>,
    others: ConnectionSummary,
    failed: HashMap<String, u64>,
    diagnosis: Option<TcpDiagnosis>,
    begin_ns: u64,
    begin_cpu_ns: u64,
}

impl<'a> Relay<'a> {
    fn new(tap: &'a Tap) -> Relay<'a> {
        let link = || SharedLink::new(&tap.plan.conditions);
        Relay {
            tap,
            connections: HashMap::new(),
            interests: HashMap::new(),
            next_index: 0,
            events: Vec::with_capacity(MAX_TAPPED_CONNECTIONS),
            is_accepting: true,
            was_full: false,
            queued_bytes: 0,
            totals: TapTotals::default(),
            links: BothWays {
                to_server: link(),
                to_client: link(),
            },
            forward_ns: times(),
            scratch: Box::new([0; TAP_READ_BYTES]),
            summaries: Vec::new(),
            others: ConnectionSummary::default(),
            failed: HashMap::new(),
            diagnosis: TcpDiagnosis::open().ok(),
            begin_ns: monotonic_ns(),
            begin_cpu_ns: thread_cpu_ns(),
        }
    }

    /// Waits for what comes next, and does it.
    fn turn(&mut self) -> io::Result<()> {
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        self.wait(&mut events)?;
        for event in &events {
            let token = event.data.u64();
            let flags = event.flags;
            match token {
                LISTENER => self.accept(),
                _ => self.serve(token, flags),
            }
        }
        if events.is_empty() && self.connections.len() < MAX_TAPPED_CONNECTIONS {
            // What was missing when a connection could not be accepted may be there again.
            self.watch_listener(true);
        }
        self.events = events;
        self.release_arrived();
        Ok(())
    }

    fn wait(&self, space: &mut Vec<epoll::Event>) -> io::Result<()> {
        let now_ns = monotonic_ns();
        let longest_ns = TAP_TURN_MS * 1_000_000;
        let next_ns = match self.tap.plan.conditions.are_none() {
            true => None,
            false => {
                let connections = self.connections.values();
                connections
                    .filter_map(|one| one.next_arrival_ns(now_ns))
                    .min()
            }
        };
        let wait_ns = next_ns.map_or(longest_ns, |next_ns| (next_ns - now_ns).min(longest_ns));
        let mut timeout = Timespec::try_from(Duration::from_nanos(wait_ns)).unwrap_or_default();
        if wait_ns < longest_ns {
            // epoll's own timeout counts milliseconds on older kernels.
            let mut sets = [PollFd::new(&self.tap.set, PollFlags::IN)];
            match poll(&mut sets, Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => timeout = Timespec::default(),
                Err(error) => return Err(error.into()),
            }
        }
        let space = rustix::buffer::spare_capacity(space);
        match epoll::wait(&self.tap.set, space, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn accept(&mut self) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        match accept_with(&self.tap.listener, flags) {
            Ok(client) => {
                if let Err(broken) = self.relay(client) {
                    self.count_failure(&broken);
                }
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
            Err(error) => {
                self.count_failure(&Broken::Socket(error));
                self.watch_listener(false);
            }
        }
        if self.connections.len() >= MAX_TAPPED_CONNECTIONS {
            self.was_full = true;
            self.watch_listener(false);
        }
    }

    /// Begins to relay a connection that was accepted.
    fn relay(&mut self, client: OwnedFd) -> Result<(), Broken> {
        let plan = &self.tap.plan;
        if matches!(plan.listen, Address::Tcp { .. }) {
            sockopt::set_tcp_nodelay(&client, true)?;
        }
        let accept = |tls: &ServerTls| tls.accept_pipe();
        let client_tls = plan.listen_tls.as_ref().map(accept).transpose()?;
        let target = &plan.target;
        let connect = target.tls.as_ref().map(|tls| tls.connect(&target.address));
        let server_tls = connect.transpose()?;
        let (server, is_connected) = self.tap.target.dial()?;
        let index = self.next_index;
        let connection = RelayedConnection::new(
            RelaySocket::new(client, client_tls, true),
            RelaySocket::new(server, server_tls, is_connected),
            plan.conditions.stream_limit,
            ConnectionWatch::new(index as usize),
            monotonic_ns() + TAP_DIAL_MS * 1_000_000,
        );
        for direction in TapDirection::BOTH {
            let data = epoll::EventData::new_u64(token(index, direction));
            let sender = connection.sender(direction).descriptor();
            let flags = epoll::EventFlags::empty();
            epoll::add(&self.tap.set, sender, data, flags)?;
            self.interests.insert((index, direction), flags);
        }
        self.next_index += 1;
        self.connections.insert(index, connection);
        self.renew_interests(index);
        Ok(())
    }

    /// One side of a connection is ready.
    fn serve(&mut self, token: u64, flags: epoll::EventFlags) {
        let (index, direction) = side(token);
        let Some(mut connection) = self.take(index) else {
            return;
        };
        let set = &self.tap.set;
        let mut turn = self.shared();
        let mut served = Ok(());
        if flags.contains(epoll::EventFlags::ERR) {
            served = connection.sender(direction).error();
        }
        if served.is_ok() && flags.contains(epoll::EventFlags::OUT) {
            served = connection.write(direction.opposite(), &mut turn);
        }
        let is_readable = epoll::EventFlags::IN | epoll::EventFlags::HUP;
        if served.is_ok() && flags.intersects(is_readable) {
            if connection.wants_read(direction) {
                served = connection.read(direction, &mut turn);
            } else if flags.contains(epoll::EventFlags::HUP) {
                // Both ways are over on this side, which the kernel would repeat for ever.
                let _ = epoll::delete(set, connection.sender(direction).descriptor());
            }
        }
        self.put_back(index, connection, served);
    }

    /// Keeps a connection that has had its turn, or ends it.
    fn put_back(
        &mut self,
        index: u32,
        mut connection: RelayedConnection,
        served: Result<(), Broken>,
    ) {
        let now_ns = monotonic_ns();
        if let Err(broken) = served {
            // Whoever has nothing open may go without reading the rest.
            if !broken.is_peer_gone() || connection.watch().has_open_calls() {
                self.count_failure(&broken);
            }
            self.close(connection, now_ns);
        } else if connection.is_over(now_ns) {
            self.close(connection, now_ns);
        } else {
            self.queued_bytes += connection.waiting_bytes();
            self.connections.insert(index, connection);
            self.renew_interests(index);
        }
    }

    /// Forwards what has arrived by now, and gives up on servers that do not accept.
    fn release_arrived(&mut self) {
        let now_ns = monotonic_ns();
        let is_late = |one: &RelayedConnection| {
            !one.sender(TapDirection::ToClient).is_connected() && one.dial_until_ns <= now_ns
        };
        let has_conditions = !self.tap.plan.conditions.are_none();
        let due: Vec<u32> = self
            .connections
            .iter()
            .filter(|(_, one)| has_conditions && one.has_arrived(now_ns) || is_late(one))
            .map(|(&index, _)| index)
            .collect();
        for index in due {
            let Some(mut connection) = self.take(index) else {
                continue;
            };
            let mut turn = self.shared();
            let served = match is_late(&connection) {
                true => Err(Broken::Socket(Errno::TIMEDOUT)),
                false => TapDirection::BOTH
                    .into_iter()
                    .try_for_each(|way| connection.pump(way, &mut turn, now_ns)),
            };
            self.put_back(index, connection, served);
        }
    }

    /// Tells the kernel what to report of both sides.
    fn renew_interests(&mut self, index: u32) {
        let Some(connection) = self.connections.get(&index) else {
            return;
        };
        let now_ns = monotonic_ns();
        let has_room = self.queued_bytes < TAP_QUEUES_BYTES || connection.waiting_bytes() == 0;
        for direction in TapDirection::BOTH {
            let mut flags = epoll::EventFlags::empty();
            flags.set(
                epoll::EventFlags::IN,
                has_room && connection.wants_read(direction),
            );
            let wants_write = connection.wants_write(direction.opposite(), now_ns);
            flags.set(epoll::EventFlags::OUT, wants_write);
            if self.interests.get(&(index, direction)) == Some(&flags) {
                continue;
            }
            let data = epoll::EventData::new_u64(token(index, direction));
            let sender = connection.sender(direction).descriptor();
            if epoll::modify(&self.tap.set, sender, data, flags).is_ok() {
                self.interests.insert((index, direction), flags);
            }
        }
    }

    /// What a connection that has its turn shares with the others.
    fn shared(&mut self) -> RelayTurn<'_> {
        RelayTurn {
            totals: &mut self.totals,
            links: &mut self.links,
            forward_ns: &mut self.forward_ns,
            scratch: &mut self.scratch,
            diagnosis: &mut self.diagnosis,
        }
    }

    /// Takes a connection out for its turn.
    fn take(&mut self, index: u32) -> Option<RelayedConnection> {
        let connection = self.connections.remove(&index)?;
        self.queued_bytes = self.queued_bytes.saturating_sub(connection.waiting_bytes());
        Some(connection)
    }

    fn watch_listener(&mut self, is_accepting: bool) {
        if self.is_accepting == is_accepting {
            return;
        }
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, is_accepting);
        let data = epoll::EventData::new_u64(LISTENER);
        if epoll::modify(&self.tap.set, &self.tap.listener, data, flags).is_ok() {
            self.is_accepting = is_accepting;
        }
    }

    fn count_failure(&mut self, broken: &Broken) {
        let reason = broken.to_string();
        let is_known =
            self.failed.contains_key(&reason) || self.failed.len() < REPORTED_CONNECTIONS;
        let reason = if is_known {
            reason
        } else {
            "others".to_owned()
        };
        *self.failed.entry(reason).or_default() += 1;
    }

    fn close(&mut self, mut connection: RelayedConnection, now_ns: u64) {
        connection.watch().close(&mut self.totals, now_ns);
        let summary = self.summarise(&mut connection);
        for direction in TapDirection::BOTH {
            self.interests.remove(&(summary.index as u32, direction));
        }
        self.keep(summary);
        self.watch_listener(true);
    }

    fn keep(&mut self, summary: ConnectionSummary) {
        // Those without a call say nothing: health checks of ports, and who only looked.
        match self.summaries.len() < REPORTED_CONNECTIONS && summary.figures.calls > 0 {
            true => self.summaries.push(summary),
            false => self.others.add(&summary),
        }
    }

    fn summarise(&mut self, connection: &mut RelayedConnection) -> ConnectionSummary {
        let (bytes, reads) = connection.traffic();
        let tcp = connection.tcp(self.diagnosis.as_mut());
        let watch = connection.watch();
        ConnectionSummary {
            index: watch.index(),
            connections: 1,
            figures: *watch.figures(),
            unreadable: watch.unreadable(),
            bytes_to_server: bytes.to_server,
            bytes_to_client: bytes.to_client,
            reads_from_client: reads.to_server,
            reads_from_server: reads.to_client,
            client_tcp: tcp.to_server,
            server_tcp: tcp.to_client,
        }
    }

    fn end(mut self) -> TapSummary {
        let now_ns = monotonic_ns();
        let mut open: Vec<_> = self.connections.drain().collect();
        open.sort_unstable_by_key(|(index, _)| *index);
        for (_, mut connection) in open {
            connection.watch().settle(&mut self.totals, now_ns);
            let summary = self.summarise(&mut connection);
            self.keep(summary);
        }
        self.summaries.sort_by_key(|summary| summary.index);
        TapSummary {
            totals: self.totals,
            connections: self.summaries,
            others: self.others,
            failed: self.failed,
            conditions: self.tap.plan.conditions,
            connect_ns: self.tap.target.connect_ns,
            is_target_local: self.tap.target.is_local(),
            was_full: self.was_full,
            wall_ns: now_ns.saturating_sub(self.begin_ns),
            own_cpu_ns: thread_cpu_ns().saturating_sub(self.begin_cpu_ns),
            forward_ns: self.forward_ns,
        }
    }
}

/// The number by which an event names one side: that which sends in this direction.
fn token(index: u32, direction: TapDirection) -> u64 {
    u64::from(index) << 1 | u64::from(direction == TapDirection::ToClient)
}

fn side(token: u64) -> (u32, TapDirection) {
    let direction = match token & 1 {
        0 => TapDirection::ToServer,
        _ => TapDirection::ToClient,
    };
    ((token >> 1) as u32, direction)
}
