//! One thread's loop: wait in the kernel, take what was handed over, accept, tick.

use std::io;
use std::sync::Arc;

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::addresses::{Addresses, Admitted};
use crate::config::LoopConfig;
use crate::core::Core;
use crate::epoll::{Epoll, Token};
use crate::handler::{Handler, Peer};
use crate::limits::{ACCEPT_BACKOFF_MS, ACCEPTS_PER_TICK, ADDRESS_NOTICE_MS};
use crate::listener::Listener;
use crate::notice::{Notice, Notices};
use crate::peer_address::PeerAddress;
use crate::spread::{LoopShared, Placement};

/// A deadline further away than this is not worth reading the clock again for.
const FAR_DEADLINE_NS: u64 = 1_000_000_000;

/// The longest wait: older kernels count a wait in milliseconds of 31 bits.
pub(crate) const MAX_WAIT_NS: u64 = 3_600_000_000_000;

/// Monotonic nanoseconds, the same for all threads.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

pub(crate) struct EventLoop {
    index: usize,
    core: Core<Epoll>,
    shared: Arc<LoopShared>,
    /// Only the first loop accepts.
    acceptor: Option<Acceptor>,
    arrivals: Vec<(OwnedFd, Peer)>,
    notices: Arc<dyn Notices>,
}

impl EventLoop {
    pub(crate) fn new(
        index: usize,
        config: &LoopConfig,
        shared: Arc<LoopShared>,
        acceptor: Option<Acceptor>,
        handler: Box<dyn Handler>,
    ) -> io::Result<EventLoop> {
        let epoll = Epoll::new()?;
        epoll.add_wake(&shared.alarm)?;
        if let Some(acceptor) = &acceptor {
            acceptor.register(&epoll)?;
        }
        let counters = shared.counters.clone();
        let core = Core::new(
            epoll,
            handler,
            counters,
            config.security(),
            config.write_stall_ms,
            config.drain_ms,
        );
        let notices = config.notices.clone();
        Ok(EventLoop {
            index,
            core,
            shared,
            acceptor,
            arrivals: Vec::new(),
            notices,
        })
    }

    /// Runs until the loop is stopped. The answer is whether it drained in time.
    pub(crate) fn run(mut self) -> io::Result<bool> {
        let mut now_ns = monotonic_ns();
        self.shared.counters.threads.set(1);
        while !self.core.has_ended() {
            self.wait(now_ns)?;
            now_ns = monotonic_ns();
            if self.shared.alarm.awake() {
                self.collect(now_ns);
            }
            self.dispatch_events();
            self.accept(now_ns);
            self.core.tick(now_ns);
        }
        let Some(connections) = self.core.cut_off() else {
            return Ok(true);
        };
        self.notices.notice(&Notice::DrainDeadlinePassed {
            loop_index: self.index,
            connections,
        });
        Ok(false)
    }

    fn wait(&mut self, last_tick_ns: u64) -> io::Result<()> {
        let busy = self.core.has_work() || !self.shared.alarm.may_sleep();
        let timeout_ns = if busy {
            Some(0)
        } else {
            self.time_to_deadline_ns(last_tick_ns)
        };
        if timeout_ns != Some(0) {
            self.shared.counters.waits.add(1);
        }
        self.core.port.wait(timeout_ns)
    }

    /// Reads the clock only if the length of the last tick would make a difference.
    fn time_to_deadline_ns(&self, last_tick_ns: u64) -> Option<u64> {
        let retry_ns = self
            .acceptor
            .as_ref()
            .and_then(|acceptor| acceptor.retry_ns);
        let deadline_ns = [self.core.next_deadline_ns(), retry_ns]
            .into_iter()
            .flatten()
            .min()?;
        let far = deadline_ns.saturating_sub(last_tick_ns) > FAR_DEADLINE_NS;
        let now_ns = if far { last_tick_ns } else { monotonic_ns() };
        Some(deadline_ns.saturating_sub(now_ns).min(MAX_WAIT_NS))
    }

    /// Takes what other threads left: new sockets, and the wish to stop.
    fn collect(&mut self, now_ns: u64) {
        let stops = self.shared.collect(&mut self.arrivals);
        if stops > 0 && !self.core.is_stopping() {
            self.acceptor = None; // closes the listeners
            self.core.stop(now_ns);
        }
        if stops > 1 && !self.core.has_ended() {
            self.core.stop_now(now_ns);
        }
        for (socket, peer) in self.arrivals.drain(..) {
            if self.core.is_stopping() {
                drop(socket); // nothing was answered: the peer may safely try elsewhere
                self.shared.counters.closed.add(1);
            } else {
                self.core.open(socket, &peer, now_ns);
            }
        }
    }

    fn dispatch_events(&mut self) {
        for index in 0..self.core.port.event_count() {
            match self.core.port.event(index) {
                (Token::Connection(id), readiness) => self.core.ready(id, readiness),
                (Token::Listener(listener), _) => {
                    if let Some(acceptor) = &mut self.acceptor {
                        acceptor.ready(listener);
                    }
                }
                (Token::Wake, _) => {} // the alarm's state says it all
            }
        }
    }

    fn accept(&mut self, now_ns: u64) {
        let Some(acceptor) = &mut self.acceptor else {
            return;
        };
        if !acceptor.has_work(now_ns) {
            return;
        }
        acceptor.go_on(&self.core.port);
        for _ in 0..ACCEPTS_PER_TICK {
            let Some((socket, peer)) = acceptor.accept(&self.core.port, now_ns) else {
                break;
            };
            if let Some((socket, peer)) = acceptor.placement.place(socket, peer, now_ns) {
                self.core.open(socket, &peer, now_ns);
            }
        }
        let dropped = std::mem::take(&mut acceptor.dropped);
        self.shared.counters.refused_by_address.add(dropped);
    }
}

/// The listeners, and where their connections go.
pub(crate) struct Acceptor {
    listeners: Vec<Listener>,
    placement: Box<dyn Placement>,
    max_connections: u64,
    max_refusals: u64,
    addresses: Addresses,
    max_connections_per_address: usize,
    /// Before then the log says nothing of addresses with too many connections.
    address_notice_ns: u64,
    /// Connections closed at once, since there were far too many from their address; not counted
    /// yet.
    dropped: u64,
    /// Listeners that were reported to have connections waiting.
    ready: Vec<u32>,
    /// After a failure: listeners are not looked at before.
    retry_ns: Option<u64>,
    failing: bool,
    at_limit: bool,
    notices: Arc<dyn Notices>,
}

impl Acceptor {
    pub(crate) fn new(
        listeners: Vec<Listener>,
        placement: Box<dyn Placement>,
        config: &LoopConfig,
    ) -> Acceptor {
        Acceptor {
            listeners,
            placement,
            max_connections: config.max_connections as u64,
            max_refusals: config.max_refusals() as u64,
            addresses: Addresses::new(config.max_connections_per_address, config.limit_loopback),
            max_connections_per_address: config.max_connections_per_address,
            address_notice_ns: 0,
            dropped: 0,
            ready: Vec::new(),
            retry_ns: None,
            failing: false,
            at_limit: false,
            notices: config.notices.clone(),
        }
    }

    fn register(&self, epoll: &Epoll) -> io::Result<()> {
        (0..)
            .zip(&self.listeners)
            .try_for_each(|(index, listener)| epoll.add_listener(listener, index))
    }

    fn ready(&mut self, listener: u32) {
        if !self.ready.contains(&listener) {
            self.ready.push(listener);
        }
    }

    fn has_work(&self, now_ns: u64) -> bool {
        match self.retry_ns {
            Some(retry_ns) => now_ns >= retry_ns,
            None => !self.ready.is_empty(),
        }
    }

    /// The pause after a failure is over.
    fn go_on(&mut self, epoll: &Epoll) {
        if self.retry_ns.take().is_some() {
            self.watch_all(epoll, true);
        }
    }

    /// The next connection of any listener that has one, within the limit.
    fn accept(&mut self, epoll: &Epoll, now_ns: u64) -> Option<(OwnedFd, Peer)> {
        // Each round takes a socket from a queue of the kernel or ends; bounded like the caller.
        for _ in 0..ACCEPTS_PER_TICK {
            let listener = *self.ready.first()?;
            match self.listeners[listener as usize].accept() {
                Ok((socket, address)) => {
                    self.say_accepting(listener);
                    self.ready.rotate_left(1); // listeners take turns
                    if let Some(peer) = self.admit(address, listener as usize, now_ns) {
                        return Some((socket, peer));
                    }
                }
                Err(Errno::AGAIN) => {
                    self.ready.remove(0);
                }
                // That one connection broke before it was taken: accept(2), "Error handling".
                Err(Errno::INTR | Errno::CONNABORTED | Errno::PROTO | Errno::PERM) => {}
                Err(error) if is_network_error(error) => {}
                Err(error) => {
                    self.pause(epoll, listener, error, now_ns);
                    return None;
                }
            }
        }
        None
    }

    /// The peer of a new connection, and whether it is to be refused; `None`: it is closed at once.
    fn admit(&mut self, address: PeerAddress, listener: usize, now_ns: u64) -> Option<Peer> {
        let over_limit = self.over_limit()?;
        let admitted = self.addresses.admit(&address);
        if !matches!(admitted, Admitted::Yes(_)) && now_ns >= self.address_notice_ns {
            self.address_notice_ns = now_ns + ADDRESS_NOTICE_MS * 1_000_000;
            self.notices.notice(&Notice::AddressLimit {
                peer: address,
                max_connections: self.max_connections_per_address,
            });
        }
        let (over_limit, place) = match admitted {
            Admitted::Yes(place) => (over_limit, place),
            Admitted::Refuse(place) => (true, Some(place)),
            Admitted::Drop => {
                self.dropped += 1;
                return None;
            }
        };
        Some(Peer {
            address,
            listener,
            outgoing: false,
            over_limit,
            place,
            tls: None,
        })
    }

    /// Whether one more connection is above the limit; `None`: so far that it is not even refused
    /// politely.
    fn over_limit(&mut self) -> Option<bool> {
        let open = self.placement.open(self.max_connections);
        let over = open >= self.max_connections;
        if over && !self.at_limit {
            let max_connections = self.max_connections as usize;
            self.notices
                .notice(&Notice::ConnectionLimit { max_connections });
        }
        self.at_limit = over;
        (open < self.max_connections.saturating_add(self.max_refusals)).then_some(over)
    }

    /// Out of descriptors or memory: the listeners would be reported again and again.
    fn pause(&mut self, epoll: &Epoll, listener: u32, error: Errno, now_ns: u64) {
        self.retry_ns = Some(now_ns + ACCEPT_BACKOFF_MS * 1_000_000);
        self.ready.clear();
        self.watch_all(epoll, false);
        if !std::mem::replace(&mut self.failing, true) {
            let address = self.listeners[listener as usize].address().clone();
            self.notices.notice(&Notice::AcceptFailing {
                address,
                error: error.into(),
            });
        }
    }

    fn say_accepting(&mut self, listener: u32) {
        if std::mem::replace(&mut self.failing, false) {
            let address = self.listeners[listener as usize].address().clone();
            self.notices.notice(&Notice::AcceptWorks { address });
        }
    }

    fn watch_all(&self, epoll: &Epoll, on: bool) {
        for (index, listener) in (0..).zip(&self.listeners) {
            epoll.watch_listener(listener, index, on);
        }
    }
}

/// Errors of the new connection's network, which accept(2) reports in the listener's place.
fn is_network_error(error: Errno) -> bool {
    matches!(
        error,
        Errno::NETDOWN
            | Errno::NETUNREACH
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH
            | Errno::NOPROTOOPT
            | Errno::OPNOTSUPP
            | Errno::NONET
    )
}
