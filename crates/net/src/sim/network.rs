//! Nodes, and whose turn it is.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::fabric::{Fabric, FabricPort};
use super::faults::{FaultCounts, Faults};
use super::timing::Timing;
use crate::Address;
use crate::core::{LoopCore, Security};
use crate::counters::{CounterCells, LoopCounters};
use crate::handler::{Handler, Peer};
use crate::peer_address::PeerAddress;
use crate::tls::{ClientTls, ServerTls};

/// A node of a simulated network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(u32);

/// Nodes joined by links, in virtual time that begins at 0.
pub struct Network {
    fabric: Rc<RefCell<Fabric>>,
    timing: Timing,
    nodes: Vec<Node>,
    trace: u64,
}

struct Node {
    core: LoopCore<FabricPort>,
    counters: Arc<CounterCells>,
    /// No tick before this: the last one lasts, or the node pauses.
    free_ns: u64,
    /// Something may be ready: the next tick is due as soon as the node is free.
    due: bool,
}

impl Network {
    /// An empty network. The same seed and the same calls give the same run.
    pub fn new(seed: u64, faults: Faults) -> Network {
        Network::with_timing(seed, faults, Timing::default())
    }

    /// The same, whose nodes keep these times.
    pub fn with_timing(seed: u64, faults: Faults, timing: Timing) -> Network {
        let fabric = Rc::new(RefCell::new(Fabric::new(seed, faults)));
        Network {
            fabric,
            timing: Timing {
                tick_ns: timing.tick_ns.max(1),
                ..timing
            },
            nodes: Vec::new(),
            trace: 0,
        }
    }

    /// Adds a loop with its handler. To keep a hand on the handler, box a clone of an
    /// `Rc<RefCell<_>>`.
    pub fn add_node(&mut self, handler: Box<dyn Handler>) -> NodeId {
        self.add(handler, Security::none())
    }

    /// The same, with TLS for the connections that the node accepts, and for those that it opens
    /// (to this address, as certificates name it). The handshakes draw random numbers of their own:
    /// such runs are not the same twice.
    pub fn add_secure_node(
        &mut self,
        handler: Box<dyn Handler>,
        accept: Option<ServerTls>,
        connect: Option<(ClientTls, Address)>,
    ) -> NodeId {
        self.add(handler, Security::simulated(accept, connect))
    }

    fn add(&mut self, handler: Box<dyn Handler>, security: Security) -> NodeId {
        let node = self.make_node(handler, security);
        self.nodes.push(node);
        NodeId(u32::try_from(self.nodes.len() - 1).expect("nodes are few"))
    }

    /// Opens a connection: both handlers see `opened` now, `from` with `Peer::outgoing`. If `to`
    /// stops, `from` sees the end of input at once.
    pub fn connect(&mut self, from: NodeId, to: NodeId) {
        self.connect_as(from, to, None);
    }

    /// The same; `to` sees that this user has opened it, as over a UNIX socket.
    pub fn connect_as(&mut self, from: NodeId, to: NodeId, user: Option<u32>) {
        let (near, far) = self.fabric.borrow_mut().link(from.0, to.0);
        for (node, end, other, outgoing) in [(from, near, to, true), (to, far, from, false)] {
            let now_ns = self.now_ns();
            let node = &mut self.nodes[node.0 as usize];
            if node.core.is_stopping() {
                self.fabric.borrow_mut().close(end);
                continue;
            }
            let address = PeerAddress::Simulated(other.0);
            let peer = Peer {
                address,
                listener: 0,
                outgoing,
                over_limit: false,
                place: None,
                handshake: None,
                tls: None,
                user: user.filter(|_| !outgoing),
            };
            node.core.open(end, &peer, now_ns);
            node.due = true;
        }
    }

    /// Asks a node for a tick, as a [`Waker`](crate::Waker) does.
    pub fn wake(&mut self, node: NodeId) {
        self.nodes[node.0 as usize].due = true;
    }

    /// Begins to drain a node, as a signal does.
    pub fn stop(&mut self, node: NodeId) {
        let now_ns = self.now_ns();
        let node = &mut self.nodes[node.0 as usize];
        node.core.stop(now_ns);
        node.due = true;
    }

    /// Closes all connections of a node, as a second signal does.
    pub fn stop_now(&mut self, node: NodeId) {
        let now_ns = self.now_ns();
        self.nodes[node.0 as usize].core.stop_now(now_ns);
    }

    /// Whether a stopped node has come to its end.
    pub fn has_ended(&self, node: NodeId) -> bool {
        self.nodes[node.0 as usize].core.has_ended()
    }

    /// Kills a node: its connections are reset, its handler is dropped without a word and
    /// replaced.
    pub fn restart(&mut self, node: NodeId, handler: Box<dyn Handler>) {
        self.fabric.borrow_mut().cut_all(node.0);
        let fresh = self.make_node(handler, Security::none());
        self.nodes[node.0 as usize] = fresh;
    }

    /// Other faults from now on. Links keep the buffers that they have.
    pub fn set_faults(&mut self, faults: Faults) {
        self.fabric.borrow_mut().set_faults(faults);
    }

    /// The virtual time.
    pub fn now_ns(&self) -> u64 {
        self.fabric.borrow().now_ns()
    }

    /// What went wrong so far.
    pub fn fault_counts(&self) -> FaultCounts {
        self.fabric.borrow().counts()
    }

    /// What a node's loop counted since it was added or restarted.
    pub fn counters(&self, node: NodeId) -> LoopCounters {
        self.nodes[node.0 as usize].counters.read()
    }

    /// A digest of all that has happened, in order. Equal traces: equal runs.
    pub fn trace(&self) -> u64 {
        self.trace
    }

    /// Lets the next thing happen: something arrives, or a node ticks. False: nothing will ever
    /// happen by itself.
    pub fn step(&mut self) -> bool {
        let event_ns = self.fabric.borrow().next_event_ns();
        let next = (0..self.nodes.len()).filter_map(|index| Some((self.tick_ns(index)?, index)));
        match (event_ns, next.min()) {
            (None, None) => return false,
            (Some(event_ns), tick) if tick.is_none_or(|(tick_ns, _)| event_ns <= tick_ns) => {
                let described = self.fabric.borrow_mut().happen();
                self.record(described.expect("there is a next event"));
            }
            (_, Some((tick_ns, index))) => self.tick(index, tick_ns),
            (Some(_), None) => unreachable!("an event without a tick is taken above"),
        }
        self.pass_on_pokes();
        true
    }

    /// Runs for so long in virtual time. Handlers' deadlines pass as they come.
    pub fn run_for(&mut self, duration_ns: u64) {
        let until_ns = self.now_ns().saturating_add(duration_ns);
        while self.next_ns().is_some_and(|next_ns| next_ns <= until_ns) {
            self.step();
        }
        self.fabric.borrow_mut().pass_to(until_ns);
    }

    /// Runs until `done`, for at most `max_steps` steps. The answer is whether it was done.
    pub fn run_until(&mut self, max_steps: u64, mut done: impl FnMut(&Network) -> bool) -> bool {
        for _ in 0..max_steps {
            if done(self) {
                return true;
            }
            if !self.step() {
                break;
            }
        }
        done(self)
    }

    fn make_node(&self, handler: Box<dyn Handler>, security: Security) -> Node {
        let counters = Arc::new(CounterCells::default());
        let port = FabricPort::new(self.fabric.clone());
        let core = LoopCore::new(
            port,
            handler,
            counters.clone(),
            security,
            self.timing.write_stall_ms,
            self.timing.drain_ms,
        );
        Node {
            core,
            counters,
            free_ns: self.now_ns(),
            due: true,
        }
    }

    fn next_ns(&self) -> Option<u64> {
        let ticks = (0..self.nodes.len()).filter_map(|index| self.tick_ns(index));
        ticks.chain(self.fabric.borrow().next_event_ns()).min()
    }

    /// When a node ticks next, if nothing happens before.
    fn tick_ns(&self, index: usize) -> Option<u64> {
        let node = &self.nodes[index];
        if node.core.has_ended() {
            return None;
        }
        let earliest_ns = node.free_ns.max(self.now_ns());
        if node.due {
            Some(earliest_ns)
        } else {
            node.core
                .next_deadline_ns()
                .map(|at_ns| at_ns.max(earliest_ns))
        }
    }

    fn tick(&mut self, index: usize, now_ns: u64) {
        let ready = {
            let mut fabric = self.fabric.borrow_mut();
            fabric.pass_to(now_ns);
            let mut ready = fabric.readiness(index as u32);
            fabric.shuffle(&mut ready);
            ready
        };
        self.record([now_ns, index as u64, 4, ready.len() as u64]);
        let node = &mut self.nodes[index];
        for (id, readiness) in ready {
            node.core.ready(id, readiness);
        }
        node.core.tick(now_ns);
        let mut fabric = self.fabric.borrow_mut();
        node.free_ns = now_ns + self.timing.tick_ns + fabric.pause_ns();
        node.due = node.core.has_work() || !fabric.readiness(index as u32).is_empty();
    }

    fn pass_on_pokes(&mut self) {
        let poked = self.fabric.borrow_mut().take_poked();
        for node in poked {
            self.nodes[node as usize].due = true;
        }
    }

    /// Mixes what happened into the digest; the order matters.
    fn record(&mut self, what: [u64; 4]) {
        for word in what {
            self.trace = (self.trace ^ word)
                .wrapping_mul(0x0000_0100_0000_01b3)
                .rotate_left(5);
        }
    }
}
