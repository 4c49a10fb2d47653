//! One thread's loop: wait in the kernel, take what was handed over, accept, tick.

use std::io;
use std::sync::Arc;

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::addresses::{Addresses, Admitted};
use crate::config::LoopConfig;
use crate::core::LoopCore;
use crate::epoll::{Epoll, EpollToken};
use crate::handler::{Handler, Peer};
use crate::limits::{
    ACCEPT_BACKOFF_MS, ACCEPTS_PER_BUSY_TICK, ACCEPTS_PER_TICK, ADDRESS_NOTICE_MS,
    HANDSHAKES_DUE_PAUSE_MS, HANDSHAKES_PER_ADDRESS, MAX_WAIT_NS,
};
use crate::listener::Listener;
use crate::notice::{Notice, Notices};
use crate::peer_address::PeerAddress;
use crate::socket::peer_user;
use crate::spread::{LoopShared, Placement};
use crate::unfinished::UnfinishedHandshakes;

/// A deadline further away than this is not worth reading the clock again for.
const FAR_DEADLINE_NS: u64 = 1_000_000_000;

/// Monotonic nanoseconds, the same for all threads.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// What a loop waits for, made before its thread: a limit on descriptors refuses the start, and
/// does not end a server that serves.
pub(crate) struct LoopSockets {
    pub(crate) epoll: Epoll,
    /// Only the first loop accepts.
    pub(crate) acceptor: Option<Acceptor>,
}

pub(crate) struct EventLoop {
    index: usize,
    core: LoopCore<Epoll>,
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
        sockets: LoopSockets,
        handler: Box<dyn Handler>,
    ) -> io::Result<EventLoop> {
        let LoopSockets { epoll, acceptor } = sockets;
        epoll.add_wake(shared.waker())?;
        if let Some(acceptor) = &acceptor {
            acceptor.register(&epoll)?;
        }
        let counters = shared.counters().clone();
        let core = LoopCore::new(
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
        self.shared.counters().threads.set(1);
        while !self.core.has_ended() {
            self.wait(now_ns)?;
            now_ns = monotonic_ns();
            if self.shared.waker().awake() {
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
        let busy = self.core.has_work() || !self.shared.waker().may_sleep();
        let timeout_ns = if busy {
            Some(0)
        } else {
            self.time_to_deadline_ns(last_tick_ns)
        };
        if timeout_ns != Some(0) {
            self.shared.counters().waits.add(1);
        }
        self.core.port_mut().wait(timeout_ns)
    }

    /// Reads the clock only if the length of the last tick would make a difference.
    fn time_to_deadline_ns(&self, last_tick_ns: u64) -> Option<u64> {
        let retry_ns = self.acceptor.as_ref().and_then(Acceptor::next_retry_ns);
        let deadline_ns = [self.core.next_deadline_ns(), retry_ns]
            .into_iter()
            .flatten()
            .min()?;
        let far = deadline_ns.saturating_sub(last_tick_ns) > FAR_DEADLINE_NS;
        let now_ns = if far { last_tick_ns } else { monotonic_ns() };
        Some(deadline_ns.saturating_sub(now_ns).min(MAX_WAIT_NS))
    }

    /// Takes what other threads left: new sockets, and requests to stop.
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
                self.shared.counters().closed.add(1);
            } else {
                self.core.open(socket, &peer, now_ns);
            }
        }
    }

    fn dispatch_events(&mut self) {
        for index in 0..self.core.port().event_count() {
            match self.core.port().event(index) {
                (EpollToken::Connection(id), readiness) => self.core.ready(id, readiness),
                (EpollToken::Listener(listener), _) => {
                    if let Some(acceptor) = &mut self.acceptor {
                        acceptor.ready(listener);
                    }
                }
                (EpollToken::Wake, _) => {} // the waker's state has it
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
        acceptor.go_on(self.core.port(), now_ns);
        acceptor.hold_back_handshakes(self.core.port(), now_ns);
        for _ in 0..acceptor.accepts() {
            let Some((socket, peer)) = acceptor.accept(self.core.port(), now_ns) else {
                break;
            };
            if let Some((socket, peer)) = acceptor.placement.place(socket, peer, now_ns) {
                self.core.open(socket, &peer, now_ns);
            }
        }
        let dropped = std::mem::take(&mut acceptor.dropped);
        self.shared.counters().refused_by_address.add(dropped);
    }
}

/// The listeners, and where their connections go.
pub(crate) struct Acceptor {
    listeners: Vec<Listener>,
    placement: Box<dyn Placement>,
    max_connections: u64,
    max_refusals: u64,
    addresses: Addresses,
    unfinished: UnfinishedHandshakes,
    max_connections_per_address: usize,
    /// Before then the log says nothing of addresses with too many connections.
    address_notice_ns: u64,
    /// Connections closed at once, since there were far too many from their address; not counted
    /// yet.
    dropped: u64,
    /// Listeners that were reported to have connections waiting.
    ready: Vec<u32>,
    /// The listeners with TLS.
    secure: Vec<u32>,
    /// After a failure: no listener is looked at until then.
    retry_ns: Option<u64>,
    /// With too many handshakes: those with TLS are not looked at until then.
    secure_retry_ns: Option<u64>,
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
        let secure = (0..)
            .zip(&config.listen)
            .filter_map(|(index, listen)| listen.tls.as_ref().map(|_| index));
        Acceptor {
            listeners,
            placement,
            secure: secure.collect(),
            max_connections: config.max_connections as u64,
            max_refusals: config.max_refusals() as u64,
            addresses: Addresses::new(config.max_connections_per_address, config.limit_loopback),
            unfinished: UnfinishedHandshakes::default(),
            max_connections_per_address: config.max_connections_per_address,
            address_notice_ns: 0,
            dropped: 0,
            ready: Vec::new(),
            retry_ns: None,
            secure_retry_ns: None,
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
        let is_over = |retry_ns| now_ns >= retry_ns;
        match self.retry_ns {
            Some(retry_ns) => is_over(retry_ns),
            None => !self.ready.is_empty() || self.secure_retry_ns.is_some_and(is_over),
        }
    }

    /// When listeners that pause are looked at again.
    fn next_retry_ns(&self) -> Option<u64> {
        self.retry_ns.or(self.secure_retry_ns)
    }

    /// Looks again at listeners whose pause is over. The pause after a failure is, if there is
    /// work.
    fn go_on(&mut self, epoll: &Epoll, now_ns: u64) {
        if self.retry_ns.take().is_some() {
            self.watch_all(epoll, true);
        }
        if (self.secure_retry_ns.take_if(|retry_ns| now_ns >= *retry_ns)).is_some() {
            self.watch_secure(epoll, true);
        }
    }

    /// How many connections are taken in this tick.
    fn accepts(&self) -> usize {
        match self.placement.is_behind() {
            true => ACCEPTS_PER_BUSY_TICK,
            false => ACCEPTS_PER_TICK,
        }
    }

    /// While many TLS handshakes wait for their turn, more of them wait in the kernel. Listeners
    /// without TLS go on.
    fn hold_back_handshakes(&mut self, epoll: &Epoll, now_ns: u64) {
        let has_none = self.secure.is_empty() || self.secure_retry_ns.is_some();
        if has_none || !self.placement.is_behind_with_handshakes() {
            return;
        }
        self.secure_retry_ns = Some(now_ns + HANDSHAKES_DUE_PAUSE_MS * 1_000_000);
        self.ready
            .retain(|listener| !self.secure.contains(listener));
        self.watch_secure(epoll, false);
    }

    fn watch_secure(&self, epoll: &Epoll, on: bool) {
        for &index in &self.secure {
            epoll.watch_listener(&self.listeners[index as usize], index, on);
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
                    if let Some(mut peer) = self.admit(address, listener as usize, now_ns) {
                        peer.user = peer_user(&socket, &peer.address);
                        if let Err(error) = self.note_handshake(&socket, &mut peer) {
                            self.unfinished.end_oldest();
                            self.pause(epoll, listener, error, now_ns);
                            return None;
                        }
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

    /// A connection with TLS is one of those whose handshakes are not finished.
    fn note_handshake(&self, socket: &OwnedFd, peer: &mut Peer) -> Result<(), Errno> {
        if self.has_tls(peer.listener) {
            peer.handshake =
                Some((self.unfinished).begin(socket, &peer.address, peer.place.clone())?);
        }
        Ok(())
    }

    fn has_tls(&self, listener: usize) -> bool {
        (self.secure.iter()).any(|&index| index as usize == listener)
    }

    /// Ends handshakes that are not finished where one more connection would be one too many, so
    /// that they shut nobody out. Returns whether the connection finds room as far as their own
    /// bounds go.
    fn make_room(&self, address: &PeerAddress, is_secure: bool) -> bool {
        if is_secure {
            let is_bounded = self.addresses.bounds(address);
            if is_bounded
                && self.unfinished.of(address) >= HANDSHAKES_PER_ADDRESS
                && !self.unfinished.end_oldest_of(address)
            {
                return false;
            }
            if self.unfinished.len() >= self.placement.max_handshakes()
                && !self.unfinished.end_oldest()
            {
                return false;
            }
        }
        if self.addresses.is_full(address) {
            self.unfinished.end_oldest_of(address);
        }
        true
    }

    /// The peer of a new connection, and whether it is to be refused; `None`: it is closed at once.
    fn admit(&mut self, address: PeerAddress, listener: usize, now_ns: u64) -> Option<Peer> {
        if !self.make_room(&address, self.has_tls(listener)) {
            self.dropped += 1;
            return None;
        }
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
            handshake: None,
            tls: None,
            user: None,
        })
    }

    /// Whether one more connection is above the limit; `None`: so far that it is not even refused
    /// politely.
    fn over_limit(&mut self) -> Option<bool> {
        let open = self.placement.open(self.max_connections);
        // The one that ends makes room as soon as its loop has looked.
        let over = open >= self.max_connections && !self.unfinished.end_oldest();
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
        // They pause with all others, and go on with them.
        self.secure_retry_ns = None;
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::limits::REFUSALS_PER_ADDRESS;

    /// Says that so many connections are open; at `u64::MAX` loops are behind, too.
    struct OpenCount(Arc<Mutex<u64>>);

    impl Placement for OpenCount {
        fn open(&mut self, _: u64) -> u64 {
            *self.0.lock().expect("no panic")
        }

        fn is_behind(&self) -> bool {
            *self.0.lock().expect("no panic") == u64::MAX
        }

        fn is_behind_with_handshakes(&self) -> bool {
            *self.0.lock().expect("no panic") == u64::MAX
        }

        fn max_handshakes(&self) -> usize {
            usize::MAX
        }

        fn place(&mut self, socket: OwnedFd, peer: Peer, _: u64) -> Option<(OwnedFd, Peer)> {
            Some((socket, peer))
        }
    }

    /// Keeps notices, as text.
    #[derive(Default)]
    struct Kept(Mutex<Vec<String>>);

    impl Notices for Kept {
        fn notice(&self, notice: &Notice) {
            self.0.lock().expect("no panic").push(notice.to_string());
        }
    }

    struct Rig {
        acceptor: Acceptor,
        open: Arc<Mutex<u64>>,
        notices: Arc<Kept>,
    }

    impl Rig {
        fn new(config: LoopConfig) -> Rig {
            let open = Arc::default();
            let notices = Arc::new(Kept::default());
            let config = LoopConfig {
                notices: notices.clone(),
                ..config
            };
            let placement = Box::new(OpenCount(Arc::clone(&open)));
            Rig {
                acceptor: Acceptor::new(Vec::new(), placement, &config),
                open,
                notices,
            }
        }

        /// Whether one more connection from there is refused; `None`: it is closed at once.
        fn admit(&mut self, from: &str, open: u64, now_ns: u64) -> Option<Peer> {
            *self.open.lock().expect("no panic") = open;
            let address = PeerAddress::Tcp(from.parse().expect("an address"));
            self.acceptor.admit(address, 3, now_ns)
        }

        fn notices(&self) -> usize {
            std::mem::take(&mut *self.notices.0.lock().expect("no panic")).len()
        }
    }

    #[test]
    fn connections_are_refused_from_the_limit_on_and_closed_from_the_limit_of_refusals_on() {
        let config = LoopConfig {
            max_connections: 100,
            max_connections_per_address: 0,
            ..LoopConfig::default()
        };
        let refusals = config.max_refusals() as u64;
        let mut rig = Rig::new(config);
        for _ in 0..2 {
            let mut over = |open| {
                let peer = rig.admit("192.0.2.1:9", open, 0);
                (peer.map(|peer| peer.over_limit), rig.notices())
            };
            assert_eq!(over(99), (Some(false), 0));
            assert_eq!(over(100), (Some(true), 1), "said once");
            assert_eq!(over(101), (Some(true), 0));
            assert_eq!(over(100 + refusals - 1), (Some(true), 0));
            assert_eq!(over(100 + refusals), (None, 0));
            assert_eq!(over(99), (Some(false), 0));
        }
    }

    #[test]
    fn refusals_by_address_are_reported_once_in_their_time() {
        let mut rig = Rig::new(LoopConfig {
            max_connections_per_address: 2,
            ..LoopConfig::default()
        });
        let period_ns = ADDRESS_NOTICE_MS * 1_000_000;
        let mut peers = Vec::new();
        for _ in 0..2 {
            let peer = rig.admit("192.0.2.1:9", 0, 0).expect("it may stay");
            assert!(!peer.over_limit && !peer.is_over_address_limit());
            assert_eq!((peer.listener, rig.notices()), (3, 0));
            peers.push(peer);
        }
        for number in 0..REFUSALS_PER_ADDRESS {
            let peer = rig.admit("192.0.2.1:9", 0, 5).expect("it is refused");
            assert!(peer.over_limit && peer.is_over_address_limit());
            assert_eq!(rig.notices(), usize::from(number == 0));
            peers.push(peer);
        }
        for (now_ns, notices, dropped) in [
            (5 + period_ns - 1, 0, 1),
            (5 + period_ns, 1, 2),
            (5 + 2 * period_ns - 1, 0, 3),
            (5 + 2 * period_ns, 1, 4),
        ] {
            assert_eq!(rig.admit("192.0.2.1:9", 0, now_ns), None, "closed at once");
            assert_eq!((rig.notices(), rig.acceptor.dropped), (notices, dropped));
        }
        // Others are not concerned, and the address itself no more when all have gone.
        assert!(
            rig.admit("192.0.2.2:9", 0, 0)
                .is_some_and(|peer| !peer.over_limit)
        );
        peers.clear();
        assert!(
            rig.admit("192.0.2.1:9", 0, 0)
                .is_some_and(|peer| !peer.over_limit)
        );
        assert_eq!(rig.notices(), 0);
    }

    #[test]
    fn a_failure_to_accept_is_reported_once_and_so_is_its_end() {
        let mut rig = Rig::new(LoopConfig::default());
        let address = "127.0.0.1:0".parse().expect("valid");
        let listener = Listener::bind(&address, &LoopConfig::default());
        rig.acceptor.listeners = vec![listener.expect("a free port")];
        let epoll = Epoll::new().expect("epoll");
        rig.acceptor.register(&epoll).expect("they are sockets");
        for begin_ns in [0, 7] {
            for again in [0, 1, 2] {
                rig.acceptor.ready(0);
                rig.acceptor
                    .pause(&epoll, 0, Errno::MFILE, begin_ns + again);
                assert_eq!(rig.notices(), usize::from(again == 0));
                let retry_ns = begin_ns + again + ACCEPT_BACKOFF_MS * 1_000_000;
                assert_eq!(rig.acceptor.retry_ns, Some(retry_ns));
                assert!(rig.acceptor.ready.is_empty());
                rig.acceptor.go_on(&epoll, retry_ns);
                assert_eq!(rig.acceptor.retry_ns, None);
            }
            for again in [0, 1, 2] {
                rig.acceptor.say_accepting(0);
                assert_eq!(rig.notices(), usize::from(again == 0));
            }
        }
    }

    #[test]
    fn a_listener_is_looked_at_when_it_is_ready_and_not_before_a_pause_is_over() {
        let mut rig = Rig::new(LoopConfig::default());
        let acceptor = &mut rig.acceptor;
        assert!(!acceptor.has_work(0));
        for _ in 0..2 {
            acceptor.ready(7);
            acceptor.ready(4);
            acceptor.ready(7);
        }
        assert_eq!(acceptor.ready, [7, 4]);
        assert!(acceptor.has_work(0));
        acceptor.retry_ns = Some(50);
        assert!(!acceptor.has_work(49) && acceptor.has_work(50));
    }

    #[test]
    fn listeners_with_tls_pause_while_many_handshakes_wait_and_others_go_on() {
        let mut rig = Rig::new(LoopConfig::default());
        let address = "127.0.0.1:0".parse().expect("valid");
        for _ in 0..2 {
            let listener = Listener::bind(&address, &LoopConfig::default());
            rig.acceptor.listeners.push(listener.expect("a free port"));
        }
        rig.acceptor.secure = vec![1];
        let epoll = Epoll::new().expect("epoll");
        rig.acceptor.register(&epoll).expect("they are sockets");
        let pause_ns = HANDSHAKES_DUE_PAUSE_MS * 1_000_000;
        for now_ns in [5, 5 + 10 * pause_ns] {
            *rig.open.lock().expect("no panic") = 0;
            rig.acceptor.ready(0);
            rig.acceptor.ready(1);
            rig.acceptor.hold_back_handshakes(&epoll, now_ns);
            assert_eq!(rig.acceptor.ready, [0, 1]);
            assert_eq!(rig.acceptor.accepts(), ACCEPTS_PER_TICK);
            *rig.open.lock().expect("no panic") = u64::MAX;
            rig.acceptor.hold_back_handshakes(&epoll, now_ns);
            assert_eq!(rig.acceptor.ready, [0]);
            assert_eq!(rig.acceptor.accepts(), ACCEPTS_PER_BUSY_TICK);
            assert!(
                rig.acceptor.has_work(now_ns),
                "a listener without TLS is ready"
            );
            // It is looked at meanwhile, which neither ends nor lengthens the pause.
            rig.acceptor.go_on(&epoll, now_ns + pause_ns - 1);
            rig.acceptor
                .hold_back_handshakes(&epoll, now_ns + pause_ns - 1);
            rig.acceptor.ready.clear();
            assert!(!rig.acceptor.has_work(now_ns + pause_ns - 1));
            assert!(rig.acceptor.has_work(now_ns + pause_ns));
            assert_eq!(rig.acceptor.next_retry_ns(), Some(now_ns + pause_ns));
            rig.acceptor.go_on(&epoll, now_ns + pause_ns);
            assert_eq!(rig.acceptor.next_retry_ns(), None);
        }
    }

    /// Their own pause is over before that, and must not wake the loop again and again.
    #[test]
    fn listeners_with_tls_that_pause_go_on_with_all_others_after_a_failure() {
        let mut rig = Rig::new(LoopConfig::default());
        let address = "127.0.0.1:0".parse().expect("valid");
        let listener = Listener::bind(&address, &LoopConfig::default());
        rig.acceptor.listeners = vec![listener.expect("a free port")];
        rig.acceptor.secure = vec![0];
        let epoll = Epoll::new().expect("epoll");
        rig.acceptor.register(&epoll).expect("they are sockets");
        *rig.open.lock().expect("no panic") = u64::MAX;
        for now_ns in [5, 5 + 10 * ACCEPT_BACKOFF_MS * 1_000_000] {
            rig.acceptor.hold_back_handshakes(&epoll, now_ns);
            rig.acceptor.pause(&epoll, 0, Errno::MFILE, now_ns);
            let retry_ns = now_ns + ACCEPT_BACKOFF_MS * 1_000_000;
            assert_eq!(rig.acceptor.next_retry_ns(), Some(retry_ns));
            assert!(!rig.acceptor.has_work(retry_ns - 1));
            assert!(rig.acceptor.has_work(retry_ns));
            rig.acceptor.go_on(&epoll, retry_ns);
            assert_eq!(rig.acceptor.next_retry_ns(), None);
        }
    }
}
