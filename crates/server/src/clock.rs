//! Time as the server sees it. The driver gives each tick its time; this room reads no clock of its own, but asks the
//! source that it was started with where long work has to be cut into slices.

use std::sync::Arc;

use store::Store;

/// Where time comes from: the machine, or a simulation.
pub trait TimeSource: Send + Sync {
    /// Monotonic nanoseconds, with the origin of the driver's `now_ns`.
    fn monotonic_ns(&self) -> u64;

    /// Milliseconds since 1970.
    fn wall_ms(&self) -> u64;

    /// Microseconds since 1970, as exactly as it is known.
    fn wall_us(&self) -> u64 {
        self.wall_ms() * 1_000
    }
}

/// The time of a loop.
pub(crate) struct Clock {
    source: Arc<dyn TimeSource>,
    store: Store,
    tick_ns: u64,
    wall_ms: u64,
    wall_read_at_ns: u64,
}

/// How long a reading of the wall clock is good for. Time to live counts in milliseconds, so one reading a
/// millisecond is enough, and a tick costs no call.
const WALL_CLOCK_REREAD_NS: u64 = 500_000;

impl Clock {
    pub fn new(source: Arc<dyn TimeSource>, store: Store) -> Clock {
        let (tick_ns, wall_ms) = (source.monotonic_ns(), store.clock_ms(source.wall_ms()));
        Clock {
            source,
            store,
            tick_ns,
            wall_ms,
            wall_read_at_ns: tick_ns,
        }
    }

    /// The driver's time for what follows.
    pub fn set_ns(&mut self, now_ns: u64) {
        self.tick_ns = now_ns;
        if now_ns.saturating_sub(self.wall_read_at_ns) >= WALL_CLOCK_REREAD_NS {
            // The wall clock may be set back; the store's time never goes back.
            self.wall_ms = self.store.clock_ms(self.source.wall_ms());
            self.wall_read_at_ns = now_ns;
        }
    }

    /// Time of the tick.
    pub fn tick_ns(&self) -> u64 {
        self.tick_ns
    }

    /// Time now, read anew.
    pub fn read_ns(&self) -> u64 {
        self.source.monotonic_ns()
    }

    /// The wall clock now, read anew, in microseconds since 1970.
    pub fn wall_us(&self) -> u64 {
        self.source.wall_us()
    }

    /// The store's time as of this tick, in milliseconds since 1970.
    pub fn store_ms(&self) -> u64 {
        self.wall_ms
    }
}

impl store::Clock for Clock {
    fn now_ns(&mut self) -> u64 {
        self.read_ns()
    }

    fn now_ms(&mut self) -> u64 {
        self.wall_ms
    }
}
