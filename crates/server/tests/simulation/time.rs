//! Virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use net::{Closed, ConnectionId, Connections, Handler, Io, Peer};
use server::TimeSource;

/// Virtual time, as the driver last said it. It goes on when the server dies.
#[derive(Default)]
pub struct VirtualTime {
    now_ns: AtomicU64,
    readings: AtomicU64,
}

/// What work takes between two readings of the clock within a tick, so that slices of time end.
const READING_NS: u64 = 20_000;

/// The wall clock at the beginning.
const BEGIN_MS: u64 = 1_700_000_000_000;

/// The wall clock at a virtual time.
pub fn wall_ms(now_ns: u64) -> u64 {
    BEGIN_MS + now_ns / 1_000_000
}

impl VirtualTime {
    /// It is this late.
    pub fn set(&self, now_ns: u64) {
        self.now_ns.store(now_ns, Ordering::Relaxed);
        self.readings.store(0, Ordering::Relaxed);
    }
}

impl TimeSource for VirtualTime {
    fn monotonic_ns(&self) -> u64 {
        let readings = self.readings.fetch_add(1, Ordering::Relaxed);
        self.now_ns.load(Ordering::Relaxed) + readings * READING_NS
    }

    fn wall_ms(&self) -> u64 {
        wall_ms(self.now_ns.load(Ordering::Relaxed))
    }
}

/// The clock of the committer, which has no ticks.
pub struct CommitterClock(pub Arc<VirtualTime>);

impl store::Clock for CommitterClock {
    fn now_ns(&mut self) -> u64 {
        self.0.monotonic_ns()
    }

    fn now_ms(&mut self) -> u64 {
        self.0.wall_ms()
    }
}

/// A server whose clock follows the driver's.
pub struct Timed<H> {
    pub handler: H,
    pub time: Arc<VirtualTime>,
}

impl<H> Timed<H> {
    fn at(&mut self, now_ns: u64) -> &mut H {
        self.time.set(now_ns);
        &mut self.handler
    }
}

impl<H: Handler> Handler for Timed<H> {
    fn opened(&mut self, id: ConnectionId, peer: &Peer, io: &mut Io, now_ns: u64) {
        self.at(now_ns).opened(id, peer, io, now_ns);
    }
    fn received(&mut self, id: ConnectionId, io: &mut Io, now_ns: u64) {
        self.at(now_ns).received(id, io, now_ns);
    }
    fn writable(&mut self, id: ConnectionId, io: &mut Io, now_ns: u64) {
        self.at(now_ns).writable(id, io, now_ns);
    }
    fn closed(&mut self, id: ConnectionId, why: Closed, now_ns: u64) {
        self.at(now_ns).closed(id, why, now_ns);
    }
    fn tick(&mut self, connections: &mut dyn Connections, now_ns: u64) {
        self.at(now_ns).tick(connections, now_ns);
    }
    fn next_deadline_ns(&self) -> Option<u64> {
        self.handler.next_deadline_ns()
    }
    fn stop(&mut self, connections: &mut dyn Connections, now_ns: u64) {
        self.at(now_ns).stop(connections, now_ns);
    }
    fn is_drained(&self) -> bool {
        self.handler.is_drained()
    }
}
