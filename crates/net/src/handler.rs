//! The one trait between a driver and what it drives.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use crate::addresses::AddressPlace;
use crate::io::Io;
use crate::peer_address::PeerAddress;
use crate::tls::Agreed;
use crate::unfinished::HandshakePlace;

/// Names one connection of one loop. Never reused: the slot is, the pair is not (until 2^32
/// connections have come and gone in one slot).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId {
    /// Place in the loop's table: small, dense, reused. Good as an index.
    pub slot: u32,
    /// Counts the connections that had this slot before.
    pub generation: u32,
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot, self.generation)
    }
}

/// What is known of the other side when a connection opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Where the peer is.
    pub address: PeerAddress,
    /// Which of the configured listeners accepted it (index into `LoopConfig::listen`); 0 in a
    /// simulation.
    pub listener: usize,
    /// This side opened the connection. Only in simulations so far.
    pub outgoing: bool,
    /// The server has more than `max_connections`, or more than `max_connections_per_address` from
    /// there: tell the peer so in its protocol, and call [`Io::close_when_written`].
    pub over_limit: bool,
    /// Its place in the count of connections from its address; `None` if it is not counted.
    pub place: Option<AddressPlace>,
    /// Its place among the TLS handshakes that are not finished; `None`: it is plain, or there is
    /// no bound of them.
    pub handshake: Option<HandshakePlace>,
    /// What was agreed on with TLS; `None`: the connection is plain.
    pub tls: Option<Agreed>,
    /// The user of the process at the other end of a UNIX socket when it connected.
    pub user: Option<u32>,
}

impl Peer {
    /// Whether `over_limit` is set since there are too many connections from its address.
    pub fn is_over_address_limit(&self) -> bool {
        self.place.as_ref().is_some_and(AddressPlace::is_over)
    }
}

/// Why a connection is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Closed {
    /// The handler asked for it, and all output was given to the kernel (`close_when_written`)
    /// or thrown away (`close_now`).
    ByHandler,
    /// The peer is gone: it reset the connection, or closed it before taking the output.
    ByPeer,
    /// The peer took no byte of waiting output for
    /// [`LoopConfig::write_stall_ms`](crate::LoopConfig::write_stall_ms).
    Stalled,
    /// The loop stops.
    Stopped,
}

/// What a driver drives: a protocol server, a client, a test.
///
/// All calls come from one thread. None may block. Between `opened` and `closed` an id is valid;
/// `closed` is called exactly once for each `opened`.
///
/// `now_ns` is monotonic and the same for all calls of one tick.
pub trait Handler {
    /// A connection was accepted. Output may be written at once.
    fn opened(&mut self, id: ConnectionId, peer: &Peer, io: &mut Io, now_ns: u64);

    /// There are new bytes in `io.input`, or `io` was set unfinished in an earlier tick, or the
    /// peer ended its side ([`Io::end_of_input`]).
    ///
    /// What is not consumed stays and is seen again, followed by more. A handler that cannot go
    /// on with [`limits::INPUT_MAX_BYTES`](crate::limits::INPUT_MAX_BYTES) before it is not given
    /// more until it has consumed some.
    ///
    /// After the end of input the connection is half open: output still goes out. The handler
    /// must call [`Io::close_when_written`] sooner or later.
    fn received(&mut self, id: ConnectionId, io: &mut Io, now_ns: u64);

    /// The output had risen above
    /// [`limits::OUTPUT_LOW_WATER_BYTES`](crate::limits::OUTPUT_LOW_WATER_BYTES) and has fallen to
    /// it or below: who held output back can go on now. Also called when all of it could be
    /// written at once (then in the next tick).
    fn writable(&mut self, id: ConnectionId, io: &mut Io, now_ns: u64);

    /// The connection is gone. Unconsumed input and unwritten output are lost.
    fn closed(&mut self, id: ConnectionId, why: Closed, now_ns: u64);

    /// All ready connections were walked: serve what has gathered. Called once in every tick,
    /// also in one that a [`Waker`] or the deadline caused.
    fn tick(&mut self, connections: &mut dyn Connections, now_ns: u64);

    /// `tick` is called when this time has passed (and, as always, may be called before).
    fn next_deadline_ns(&self) -> Option<u64>;

    /// Whether something runs that another thread may have to say something about, or that goes on
    /// without bytes from the peer. While it is false, a [`Waker`] is not used in a hurry: a driver
    /// of one connection may then wait for bytes only, and sees a wake-up some time later
    /// ([`limits::RECEIVE_WAIT_MS`](crate::limits::RECEIVE_WAIT_MS)).
    fn awaits_wake(&self) -> bool {
        true
    }

    /// Whether the handler may be dropped: it has no connection, and nothing that another thread
    /// still has to say something about. A driver of one connection ends threads that are idle for
    /// long.
    fn is_idle(&self) -> bool {
        !self.awaits_wake()
    }

    /// Nothing was to be done for a while, and nothing is: memory that is kept for the next time
    /// may be given back.
    fn rest(&mut self) {}

    /// Begin to drain: tell the peers, take no new work, finish what runs.
    fn stop(&mut self, connections: &mut dyn Connections, now_ns: u64);

    /// After `stop`: whether nothing is running any more, so that connections may be closed when
    /// their output is written.
    fn is_drained(&self) -> bool;
}

/// The open connections of a loop, as `tick` and `stop` may touch them.
pub trait Connections {
    /// The connection's bytes, or nothing if it is gone. What is changed here takes effect when
    /// the tick ends.
    fn io(&mut self, id: ConnectionId) -> Option<&mut Io>;
}

/// Another thread asks a loop for a tick.
pub trait Waker: Send + Sync {
    /// A tick begins after this call. Cheap while the loop is busy: wake-ups fall together.
    fn wake(&self);
}

/// Lets a test keep a hand on a handler that a driver owns.
impl<H: Handler + ?Sized> Handler for Rc<RefCell<H>> {
    fn opened(&mut self, id: ConnectionId, peer: &Peer, io: &mut Io, now_ns: u64) {
        self.borrow_mut().opened(id, peer, io, now_ns);
    }
    fn received(&mut self, id: ConnectionId, io: &mut Io, now_ns: u64) {
        self.borrow_mut().received(id, io, now_ns);
    }
    fn writable(&mut self, id: ConnectionId, io: &mut Io, now_ns: u64) {
        self.borrow_mut().writable(id, io, now_ns);
    }
    fn closed(&mut self, id: ConnectionId, why: Closed, now_ns: u64) {
        self.borrow_mut().closed(id, why, now_ns);
    }
    fn tick(&mut self, connections: &mut dyn Connections, now_ns: u64) {
        self.borrow_mut().tick(connections, now_ns);
    }
    fn next_deadline_ns(&self) -> Option<u64> {
        self.borrow().next_deadline_ns()
    }
    fn awaits_wake(&self) -> bool {
        self.borrow().awaits_wake()
    }
    fn is_idle(&self) -> bool {
        self.borrow().is_idle()
    }
    fn rest(&mut self) {
        self.borrow_mut().rest();
    }
    fn stop(&mut self, connections: &mut dyn Connections, now_ns: u64) {
        self.borrow_mut().stop(connections, now_ns);
    }
    fn is_drained(&self) -> bool {
        self.borrow().is_drained()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The calls that every handler must have, doing nothing.
    macro_rules! required_calls {
        () => {
            fn opened(&mut self, _: ConnectionId, _: &Peer, _: &mut Io, _: u64) {}
            fn received(&mut self, _: ConnectionId, _: &mut Io, _: u64) {}
            fn writable(&mut self, _: ConnectionId, _: &mut Io, _: u64) {}
            fn closed(&mut self, _: ConnectionId, _: Closed, _: u64) {}
            fn tick(&mut self, _: &mut dyn Connections, _: u64) {}
            fn next_deadline_ns(&self) -> Option<u64> {
                None
            }
            fn stop(&mut self, _: &mut dyn Connections, _: u64) {}
            fn is_drained(&self) -> bool {
                true
            }
        };
    }

    struct Least;

    impl Handler for Least {
        required_calls!();
    }

    /// Awaits a wake-up, or not, independently of whether it is idle; counts its rests.
    #[derive(Default)]
    struct Outspoken {
        awaits_wake: bool,
        is_idle: bool,
        rests: usize,
    }

    impl Handler for Outspoken {
        required_calls!();
        fn awaits_wake(&self) -> bool {
            self.awaits_wake
        }
        fn is_idle(&self) -> bool {
            self.is_idle
        }
        fn rest(&mut self) {
            self.rests += 1;
        }
    }

    /// Only another thread may know what it waits for: it is woken at once, and its thread stays.
    #[test]
    fn a_handler_awaits_wakes_and_is_not_idle_unless_it_says_so() {
        assert!(Least.awaits_wake());
        assert!(!Least.is_idle());
        let shared = Rc::new(RefCell::new(Least));
        assert!(shared.awaits_wake());
        assert!(!shared.is_idle());
    }

    #[test]
    fn a_shared_handler_passes_on_what_it_is_asked() {
        let mut shared = Rc::new(RefCell::new(Outspoken::default()));
        for (awaits_wake, is_idle) in [(false, false), (true, false), (false, true), (true, true)] {
            shared.borrow_mut().awaits_wake = awaits_wake;
            shared.borrow_mut().is_idle = is_idle;
            assert_eq!(
                (shared.awaits_wake(), shared.is_idle()),
                (awaits_wake, is_idle)
            );
            shared.rest();
        }
        assert_eq!(shared.borrow().rests, 4);
    }
}
