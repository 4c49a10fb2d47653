//! Links between nodes: bytes under way, bytes arrived, and what goes wrong with them.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use super::faults::{FaultCounts, Faults};
use super::random::SplitMix;
use crate::handler::ConnectionId;
use crate::port::{BrokenSocket, Interest, Port, Readiness, TransferError};

/// One end of a link. The two ends of one link differ in the lowest bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EndId(u64);

impl EndId {
    fn peer(self) -> EndId {
        EndId(self.0 ^ 1)
    }
}

/// What one end knows.
#[derive(Debug)]
struct FabricEnd {
    node: u32,
    /// Registered under this id, with this interest.
    watched: Option<(ConnectionId, Interest)>,
    /// Arrived and unread.
    arrived: VecDeque<u8>,
    /// Sent by the peer, not arrived.
    under_way: usize,
    /// Bound on both together.
    buffer_bytes: usize,
    /// The peer ended its output, and all of it has arrived.
    peer_ended: bool,
    /// This side ended its output.
    ended: bool,
    /// The connection is reset.
    broken: bool,
    /// This side is gone.
    closed: bool,
    /// The link was cut: what is sent from here on vanishes.
    vanishing: bool,
    /// When the last of what this side sent arrives: nothing sent later arrives before.
    last_arrival_ns: u64,
}

/// Something that happens to an end at its time.
#[derive(Debug)]
enum FabricEvent {
    Bytes { bytes: Vec<u8>, number: u64 },
    EndOfInput,
    Reset,
}

/// All links, the faults, the time.
pub(super) struct Fabric {
    now_ns: u64,
    random: SplitMix,
    faults: Faults,
    counts: FaultCounts,
    ends: BTreeMap<EndId, FabricEnd>,
    /// By time, then by the order in which they were caused.
    events: BTreeMap<(u64, u64), (EndId, FabricEvent)>,
    /// Nodes for which something may have become ready.
    poked: Vec<u32>,
    next_end: u64,
    next_number: u64,
    latest_arrived: u64,
}

impl Fabric {
    pub(super) fn new(seed: u64, faults: Faults) -> Fabric {
        Fabric {
            now_ns: 0,
            random: SplitMix::new(seed),
            faults,
            counts: FaultCounts::default(),
            ends: BTreeMap::new(),
            events: BTreeMap::new(),
            poked: Vec::new(),
            next_end: 0,
            next_number: 0,
            latest_arrived: 0,
        }
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Time goes on, and never back.
    pub(super) fn pass_to(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
    }

    pub(super) fn counts(&self) -> FaultCounts {
        self.counts
    }

    /// Other faults from now on.
    pub(super) fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// Puts what is ready at once into an order of its own: the kernel promises none.
    pub(super) fn shuffle<T>(&mut self, ready: &mut [T]) {
        for last in (1..ready.len()).rev() {
            ready.swap(last, self.random.below(last as u64 + 1) as usize);
        }
    }

    /// Returns how long a node pauses before its next tick.
    pub(super) fn pause_ns(&mut self) -> u64 {
        if !self.random.chance(self.faults.pause_per_million) {
            return 0;
        }
        self.counts.pauses += 1;
        self.random.between(0, self.faults.pause_max_ns)
    }

    /// Makes a link; the answer is the end of each node.
    pub(super) fn link(&mut self, from: u32, to: u32) -> (EndId, EndId) {
        let (first, second) = (EndId(self.next_end), EndId(self.next_end + 1));
        self.next_end += 2;
        for (id, node) in [(first, from), (second, to)] {
            let (least, most) = (self.faults.buffer_min_bytes, self.faults.buffer_max_bytes);
            let buffer_bytes = self.random.between(least.max(1), most.max(1)) as usize;
            self.ends.insert(id, FabricEnd::new(node, buffer_bytes));
        }
        (first, second)
    }

    pub(super) fn next_event_ns(&self) -> Option<u64> {
        self.events.first_key_value().map(|(&(at_ns, _), _)| at_ns)
    }

    /// Lets the next event happen. The answer describes it, for the trace.
    pub(super) fn happen(&mut self) -> Option<[u64; 4]> {
        let ((at_ns, _), (id, event)) = self.events.pop_first()?;
        self.pass_to(at_ns);
        let described = match &event {
            FabricEvent::Bytes { bytes, .. } => [at_ns, id.0, 1, bytes.len() as u64],
            FabricEvent::EndOfInput => [at_ns, id.0, 2, 0],
            FabricEvent::Reset => [at_ns, id.0, 3, 0],
        };
        match event {
            FabricEvent::Bytes { bytes, number } => self.arrive(id, &bytes, number),
            FabricEvent::EndOfInput => self.change(id, |end| end.peer_ended = true),
            FabricEvent::Reset => {
                self.change(id, |end| end.broken = true);
                self.change(id.peer(), |end| end.broken = true);
            }
        }
        Some(described)
    }

    /// What is ready on a node's connections.
    pub(super) fn readiness(&self, node: u32) -> Vec<(ConnectionId, Readiness)> {
        let own = self
            .ends
            .iter()
            .filter(|(_, end)| end.node == node && !end.closed);
        own.filter_map(|(&id, end)| {
            let (connection, interest) = end.watched?;
            let readable = !end.arrived.is_empty() || end.peer_ended || end.broken;
            let readiness = Readiness {
                readable: interest.read && readable || end.broken,
                writable: interest.write && (self.room(id) > 0 || end.broken),
                hung_up: end.broken,
            };
            (readiness != Readiness::default()).then_some((connection, readiness))
        })
        .collect()
    }

    pub(super) fn take_poked(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.poked)
    }

    /// Resets every connection of a node, as if its machine had vanished.
    pub(super) fn cut_all(&mut self, node: u32) {
        let own = self
            .ends
            .iter()
            .filter(|(_, end)| end.node == node && !end.closed);
        let own: Vec<EndId> = own.map(|(&id, _)| id).collect();
        for id in own {
            self.counts.cuts += 1;
            self.schedule_in_order(id, FabricEvent::Reset);
            self.change(id, |end| {
                (end.broken, end.closed, end.vanishing, end.watched) = (true, true, true, None);
            });
        }
    }

    pub(super) fn close(&mut self, id: EndId) {
        let Some(end) = self.ends.get_mut(&id) else {
            return;
        };
        end.closed = true;
        let unread = !end.arrived.is_empty() || end.under_way > 0;
        let (ended, broken) = (end.ended, end.broken);
        if !broken && unread {
            self.counts.resets += 1;
            self.schedule_in_order(id, FabricEvent::Reset);
        } else if !broken && !ended {
            self.schedule_in_order(id, FabricEvent::EndOfInput);
        }
        if self.ends.get(&id.peer()).is_none_or(|peer| peer.closed) {
            self.ends.remove(&id);
            self.ends.remove(&id.peer());
        }
    }

    fn arrive(&mut self, id: EndId, bytes: &[u8], number: u64) {
        self.counts.reorderings += u64::from(number < self.latest_arrived);
        self.latest_arrived = self.latest_arrived.max(number);
        self.counts.bytes += bytes.len() as u64;
        let Some(end) = self.ends.get_mut(&id) else {
            return;
        };
        end.under_way -= bytes.len();
        if end.closed && !end.broken {
            // RFC 9293 section 3.10.7.1: data for a closed connection is answered by a reset.
            end.broken = true;
            self.counts.resets += 1;
            self.schedule_in_order(id, FabricEvent::Reset);
        } else if !end.broken {
            end.arrived.extend(bytes);
            self.poke(id);
        }
    }

    fn change(&mut self, id: EndId, change: impl FnOnce(&mut FabricEnd)) {
        if let Some(end) = self.ends.get_mut(&id) {
            change(end);
            self.poke(id);
        }
    }

    fn poke(&mut self, id: EndId) {
        if let Some(end) = self.ends.get(&id) {
            self.poked.push(end.node);
        }
    }

    /// How much `id` may send now.
    fn room(&self, id: EndId) -> usize {
        match self.ends.get(&id.peer()) {
            // A peer that is gone takes all, and answers with a reset.
            Some(peer) if !peer.closed => peer
                .buffer_bytes
                .saturating_sub(peer.arrived.len() + peer.under_way),
            _ => usize::MAX,
        }
    }

    /// Something from `id` reaches its peer, after all that `id` sent before.
    fn schedule_in_order(&mut self, id: EndId, event: FabricEvent) {
        let (least, most) = (self.faults.latency_min_ns, self.faults.latency_max_ns);
        let mut delay_ns = self.random.between(least, most.max(least));
        if self.random.chance(self.faults.stall_per_million) {
            delay_ns += self.random.between(0, self.faults.stall_max_ns);
            self.counts.stalls += 1;
        }
        let Some(end) = self.ends.get_mut(&id) else {
            return;
        };
        if end.vanishing {
            return;
        }
        end.last_arrival_ns = end.last_arrival_ns.max(self.now_ns + delay_ns);
        self.next_number += 1;
        self.events
            .insert((end.last_arrival_ns, self.next_number), (id.peer(), event));
    }

    /// Sends bytes that there is room for, in pieces; the link may be cut in any of them.
    fn send_pieces(&mut self, id: EndId, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let mut length = bytes.len();
            if length > 1 && self.random.chance(self.faults.split_per_million) {
                length = self.random.between(1, length as u64 - 1) as usize;
                self.counts.splits += 1;
            }
            let cut = self.random.chance(self.faults.cut_per_million);
            if cut {
                length = self.random.below(length as u64) as usize;
            }
            self.send_piece(id, &bytes[..length]);
            bytes = &bytes[length..];
            if cut {
                self.counts.cuts += 1;
                self.schedule_in_order(id, FabricEvent::Reset);
                self.change(id, |end| end.vanishing = true);
                return;
            }
        }
    }

    fn send_piece(&mut self, id: EndId, bytes: &[u8]) {
        if bytes.is_empty() || self.ends.get(&id).is_none_or(|end| end.vanishing) {
            return;
        }
        if let Some(peer) = self.ends.get_mut(&id.peer()) {
            peer.under_way += bytes.len();
        }
        let number = self.next_number + 1;
        self.schedule_in_order(
            id,
            FabricEvent::Bytes {
                bytes: bytes.to_vec(),
                number,
            },
        );
    }

    fn receive(&mut self, id: EndId, into: &mut [u8]) -> Result<usize, TransferError> {
        let end = self.ends.get_mut(&id).ok_or(TransferError::Broken)?;
        let mut count = into.len().min(end.arrived.len());
        if count == 0 {
            return match (end.broken, end.peer_ended) {
                (true, _) => Err(TransferError::Broken),
                (false, true) => Ok(0),
                (false, false) => Err(TransferError::NotReady),
            };
        }
        if count > 1 && self.random.chance(self.faults.split_per_million) {
            count = self.random.between(1, count as u64 - 1) as usize;
            self.counts.short_reads += 1;
        }
        for (place, byte) in into.iter_mut().zip(end.arrived.drain(..count)) {
            *place = byte;
        }
        self.poke(id.peer());
        Ok(count)
    }

    fn send(&mut self, id: EndId, bytes: &[u8]) -> Result<usize, TransferError> {
        let end = self.ends.get(&id).ok_or(TransferError::Broken)?;
        if end.broken || end.ended {
            return Err(TransferError::Broken);
        }
        let mut count = bytes.len().min(self.room(id));
        self.counts.full_buffers += u64::from(count < bytes.len());
        if count == 0 {
            return Err(TransferError::NotReady);
        }
        if count > 1 && self.random.chance(self.faults.split_per_million) {
            count = self.random.between(1, count as u64 - 1) as usize;
            self.counts.short_writes += 1;
        }
        self.send_pieces(id, &bytes[..count]);
        Ok(count)
    }
}

impl FabricEnd {
    fn new(node: u32, buffer_bytes: usize) -> FabricEnd {
        FabricEnd {
            node,
            watched: None,
            arrived: VecDeque::new(),
            under_way: 0,
            buffer_bytes,
            peer_ended: false,
            ended: false,
            broken: false,
            closed: false,
            vanishing: false,
            last_arrival_ns: 0,
        }
    }
}

/// A node's view of the fabric.
#[derive(Clone)]
pub(super) struct FabricPort(Rc<RefCell<Fabric>>);

impl FabricPort {
    pub(super) fn new(fabric: Rc<RefCell<Fabric>>) -> FabricPort {
        FabricPort(fabric)
    }
}

impl Port for FabricPort {
    type Socket = EndId;

    fn register(
        &mut self,
        socket: &EndId,
        id: ConnectionId,
        interest: Interest,
    ) -> Result<(), BrokenSocket> {
        self.watch(socket, id, interest);
        Ok(())
    }

    fn watch(&mut self, socket: &EndId, id: ConnectionId, interest: Interest) {
        self.0
            .borrow_mut()
            .change(*socket, |end| end.watched = Some((id, interest)));
    }

    fn receive(&mut self, socket: &EndId, into: &mut [u8]) -> Result<usize, TransferError> {
        self.0.borrow_mut().receive(*socket, into)
    }

    fn send(&mut self, socket: &EndId, bytes: &[u8]) -> Result<usize, TransferError> {
        self.0.borrow_mut().send(*socket, bytes)
    }

    fn end_output(&mut self, socket: &EndId) {
        let mut fabric = self.0.borrow_mut();
        fabric.change(*socket, |end| end.ended = true);
        fabric.schedule_in_order(*socket, FabricEvent::EndOfInput);
    }

    fn close(&mut self, socket: EndId) {
        self.0.borrow_mut().close(socket);
    }
}
