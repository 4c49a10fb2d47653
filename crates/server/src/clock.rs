//! Time as the server sees it. The driver gives each tick its time; this room reads no clock of its
//! own, but asks the source that it was started with where long work has to be cut into slices.

use std::sync::{Arc, Mutex, PoisonError};

use store::Store;

use crate::Log;

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

/// Time that goes on where the machine's clock is set back, or was ahead when the data was written,
/// or is behind that of the leader, whose time comes over with its log.
///
/// The store's time never goes back: it would stand still until the clock has caught up, and
/// nothing would expire for as long. So it goes on by the monotonic clock, a little slower, until
/// the clock of the machine has caught up.
pub(crate) struct SteadyTime {
    source: Arc<dyn TimeSource>,
    /// Whose time it goes on from.
    store: Store,
    log: Arc<dyn Log>,
    shown: Mutex<ShownTime>,
}

/// The last time that was shown.
struct ShownTime {
    wall_ns: u64,
    monotonic_ns: u64,
    /// When it was told that the clock is behind; `None`: never.
    told_ns: Option<u64>,
}

const NS_PER_MS: u64 = 1_000_000;

/// By this part of itself time goes slower while it is ahead: little enough for a time to live,
/// much enough to be right again some day.
const SLOWER_BY: u64 = 16;

/// From so much on it is told that the clock is behind, in milliseconds: smaller steps are the
/// daily work of NTP.
const TOLD_FROM_MS: u64 = 1_000;

/// How often at most, in monotonic nanoseconds: beside a leader whose clock is ahead it begins anew
/// with each group that comes.
const TOLD_EVERY_NS: u64 = 3_600 * 1_000_000_000;

impl SteadyTime {
    /// Time that is never behind that of a store.
    pub fn new(source: Arc<dyn TimeSource>, store: Store, log: Arc<dyn Log>) -> SteadyTime {
        let shown = ShownTime {
            wall_ns: store.clock_ms(0).saturating_mul(NS_PER_MS),
            monotonic_ns: source.monotonic_ns(),
            told_ns: None,
        };
        SteadyTime {
            source,
            store,
            log,
            shown: Mutex::new(shown),
        }
    }
}

impl TimeSource for SteadyTime {
    fn monotonic_ns(&self) -> u64 {
        self.source.monotonic_ns()
    }

    fn wall_ms(&self) -> u64 {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let (now_ns, clock_ms) = (self.source.monotonic_ns(), self.source.wall_ms());
        let elapsed_ns = now_ns.saturating_sub(shown.monotonic_ns);
        let steady_ns = (shown.wall_ns).saturating_add(elapsed_ns - elapsed_ns / SLOWER_BY);
        let known_ms = self.store.clock_ms(0).max(clock_ms);
        shown.wall_ns = steady_ns.max(known_ms.saturating_mul(NS_PER_MS));
        shown.monotonic_ns = now_ns.max(shown.monotonic_ns);
        let wall_ms = shown.wall_ns / NS_PER_MS;
        let behind_ms = wall_ms.saturating_sub(clock_ms);
        let is_old = |told_ns: u64| now_ns.saturating_sub(told_ns) >= TOLD_EVERY_NS;
        let is_to_be_told = behind_ms >= TOLD_FROM_MS && shown.told_ns.is_none_or(is_old);
        if is_to_be_told {
            shown.told_ns = Some(now_ns);
        }
        drop(shown);
        if is_to_be_told {
            self.log.storage(&format!(
                "the clock of this machine is {behind_ms} ms behind the time of the data: it was \
                 set back, or it was ahead before, or that of a leader is ahead. \
                 The server's time goes on from there, a {SLOWER_BY}th slower, until the clock \
                 has caught up; what is \
                 written meanwhile bears times that are ahead"
            ));
        }
        wall_ms
    }

    fn wall_us(&self) -> u64 {
        self.source.wall_us()
    }
}

/// The time of a loop.
pub(crate) struct LoopClock {
    source: Arc<dyn TimeSource>,
    store: Store,
    tick_ns: u64,
    wall_ms: u64,
    wall_read_at_ns: u64,
}

/// How long a reading of the wall clock is good for. Time to live counts in milliseconds, so one
/// reading a millisecond is enough, and a tick costs no call.
const WALL_CLOCK_REREAD_NS: u64 = 500_000;

impl LoopClock {
    pub fn new(source: Arc<dyn TimeSource>, store: Store) -> LoopClock {
        let (tick_ns, wall_ms) = (source.monotonic_ns(), store.clock_ms(source.wall_ms()));
        LoopClock {
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

impl store::Clock for LoopClock {
    fn now_ns(&mut self) -> u64 {
        self.read_ns()
    }

    fn now_ms(&mut self) -> u64 {
        self.wall_ms
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use store::snapshot::SnapshotReport;
    use store::{Clock as _, StoreConfig};

    use super::*;

    /// Both clocks of a machine, in milliseconds.
    #[derive(Default)]
    struct Machine {
        monotonic_ms: AtomicU64,
        wall_ms: AtomicU64,
    }

    impl Machine {
        fn pass(&self, ms: u64) {
            self.monotonic_ms.fetch_add(ms, Ordering::Relaxed);
            self.wall_ms.fetch_add(ms, Ordering::Relaxed);
        }
    }

    impl TimeSource for Machine {
        fn monotonic_ns(&self) -> u64 {
            self.monotonic_ms.load(Ordering::Relaxed) * NS_PER_MS
        }

        fn wall_ms(&self) -> u64 {
            self.wall_ms.load(Ordering::Relaxed)
        }

        fn wall_us(&self) -> u64 {
            self.wall_ms() * 1_000 + 7
        }
    }

    #[derive(Default)]
    struct Said(AtomicU64);

    impl Log for Said {
        fn refused_greeting(&self, _: &'static str, _: &net::PeerAddress) {}
        fn connection_error(&self, _: &'static str, _: &net::PeerAddress) {}
        fn storage(&self, what: &str) {
            assert!(what.contains("behind the time of the data"), "{what}");
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        fn storage_recovered(&self, _: &str) {}
        fn snapshot(&self, _: &SnapshotReport) {}
        fn no_thread(&self, _: &str, _: &std::io::Error) {}
    }

    const HOUR_MS: u64 = 3_600_000;
    const START_MS: u64 = 500_000 * HOUR_MS;

    /// A store that was used until `store_ms`.
    fn store_until(store_ms: u64) -> Store {
        let store = Store::in_memory(StoreConfig::new(1)).expect("the limits make sense");
        store.clock_ms(store_ms);
        store
    }

    /// A machine and the time that is made of its clocks, for a store.
    fn steady(store: Store) -> (Arc<Machine>, Arc<Said>, SteadyTime) {
        let (machine, said) = (Arc::new(Machine::default()), Arc::new(Said::default()));
        machine.wall_ms.store(START_MS, Ordering::Relaxed);
        let source = Arc::clone(&machine) as Arc<dyn TimeSource>;
        let log = Arc::clone(&said) as Arc<dyn Log>;
        (machine, said, SteadyTime::new(source, store, log))
    }

    #[test]
    fn time_goes_on_when_the_clock_is_set_back_and_is_right_again_some_day() {
        let (machine, said, time) = steady(store_until(0));
        for round in 1..=2 {
            let right_ms = machine.wall_ms();
            assert_eq!(time.wall_ms(), right_ms);
            // An hour ahead, for a moment.
            machine.wall_ms.fetch_add(HOUR_MS, Ordering::Relaxed);
            assert_eq!(time.wall_ms(), right_ms + HOUR_MS);
            machine.wall_ms.fetch_sub(HOUR_MS, Ordering::Relaxed);
            assert_eq!(time.wall_ms(), right_ms + HOUR_MS);
            for _ in 0..4_000 {
                // Less than a millisecond of delay in each.
                machine.pass(1);
                time.wall_ms();
            }
            let ahead_ms = time.wall_ms() - machine.wall_ms();
            assert_eq!(ahead_ms, HOUR_MS - 4_000 / SLOWER_BY);
            let right_us = machine.wall_ms() * 1_000 + 7;
            assert_eq!(
                time.wall_us(),
                right_us,
                "what callers are told is not ahead"
            );
            assert_eq!(said.0.load(Ordering::Relaxed), round, "told once each time");
            machine.pass(SLOWER_BY * HOUR_MS);
            assert_eq!(time.wall_ms(), machine.wall_ms());
            machine.pass(5);
            assert_eq!(time.wall_ms(), machine.wall_ms());
        }
    }

    #[test]
    fn time_begins_where_the_data_ends() {
        let (machine, said, time) = steady(store_until(START_MS + HOUR_MS));
        assert_eq!(time.wall_ms(), START_MS + HOUR_MS);
        machine.pass(16_000);
        assert_eq!(time.wall_ms(), START_MS + HOUR_MS + 15_000);
        assert_eq!(said.0.load(Ordering::Relaxed), 1);
        let (machine, said, time) = steady(store_until(START_MS + TOLD_FROM_MS - 1));
        machine.pass(1);
        time.wall_ms();
        assert_eq!(said.0.load(Ordering::Relaxed), 0, "a small step");
    }

    /// Else nothing would expire on a replica whose leader is lost, before the clock here has
    /// caught up.
    #[test]
    fn time_goes_on_from_that_of_a_leader_which_is_ahead() {
        let store = store_until(0);
        let (machine, said, time) = steady(store.clone());
        assert_eq!(time.wall_ms(), START_MS);
        for round in 1..=3 {
            // A group has come.
            let leader_ms = machine.wall_ms() + 10 * 365 * 24 * HOUR_MS;
            store.clock_ms(leader_ms);
            assert_eq!(time.wall_ms(), leader_ms);
            machine.pass(16_000);
            assert_eq!(time.wall_ms(), leader_ms + 15_000);
            assert_eq!(store.clock_ms(time.wall_ms()), leader_ms + 15_000);
            assert_eq!(
                said.0.load(Ordering::Relaxed),
                1,
                "not with each group: {round}"
            );
        }
        machine.pass(HOUR_MS);
        time.wall_ms();
        assert_eq!(said.0.load(Ordering::Relaxed), 2, "now and then");
    }

    #[derive(Default)]
    struct Source {
        ns: AtomicU64,
        ms: AtomicU64,
    }

    impl TimeSource for Source {
        fn monotonic_ns(&self) -> u64 {
            self.ns.load(Ordering::Relaxed)
        }

        fn wall_ms(&self) -> u64 {
            self.ms.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn the_wall_clock_is_read_again_when_its_reading_is_half_a_millisecond_old() {
        let source = Arc::new(Source::default());
        let mut now_ns = 7;
        source.ns.store(now_ns, Ordering::Relaxed);
        source.ms.store(1_000, Ordering::Relaxed);
        let store = Store::in_memory(StoreConfig::new(1)).expect("the limits make sense");
        let mut clock = LoopClock::new(source.clone(), store);
        let mut known_ms = 1_000;
        for _ in 0..3 {
            source.ms.fetch_add(5, Ordering::Relaxed);
            for (step_ns, is_read) in [(0, false), (499_999, false), (1, true)] {
                now_ns += step_ns;
                clock.set_ns(now_ns);
                known_ms += if is_read { 5 } else { 0 };
                assert_eq!((clock.tick_ns(), clock.store_ms()), (now_ns, known_ms));
                assert_eq!(clock.now_ms(), known_ms, "the committer's time is the same");
            }
        }
        // The store's time does not go back with the wall clock.
        source.ms.store(1, Ordering::Relaxed);
        clock.set_ns(now_ns + 1_000_000);
        assert_eq!(clock.store_ms(), known_ms);
        assert_eq!(clock.wall_us(), 1_000, "what callers are told does");
    }

    #[test]
    fn the_time_of_the_tick_stands_still_and_what_is_read_anew_does_not() {
        let source = Arc::new(Source::default());
        let store = Store::in_memory(StoreConfig::new(1)).expect("the limits make sense");
        let mut clock = LoopClock::new(source.clone(), store);
        clock.set_ns(100);
        for now_ns in [100, 250, 400] {
            source.ns.store(now_ns, Ordering::Relaxed);
            assert_eq!((clock.tick_ns(), clock.read_ns()), (100, now_ns));
            assert_eq!(clock.now_ns(), now_ns, "the committer reads it anew");
        }
    }
}
