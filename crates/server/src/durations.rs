//! How long calls take, counted with one reading of the clock for each tick.

use service::{LoopFigures, Method};

use crate::clock::LoopClock;
use crate::limits;

/// The calls that have ended in this tick. What they took runs from the time of the tick in which
/// they began to the end of the one in which they were answered: both are the same for many, which
/// are counted together.
#[derive(Default)]
pub(crate) struct EndedCalls {
    alike: Vec<Alike>,
}

/// Calls of one method that began in one tick.
struct Alike {
    method: Method,
    begin_ns: u64,
    calls: u64,
}

impl EndedCalls {
    /// A call has ended. Its answer is written when the tick is over.
    #[inline]
    pub fn add(&mut self, method: Method, begin_ns: u64, clock: &LoopClock, figures: &LoopFigures) {
        if let Some(last) = self.alike.last_mut()
            && last.method == method
            && last.begin_ns == begin_ns
        {
            last.calls += 1;
            return;
        }
        if self.alike.len() >= limits::ENDED_CALLS_KEPT {
            self.count(clock, figures);
        }
        self.alike.push(Alike {
            method,
            begin_ns,
            calls: 1,
        });
    }

    /// Counts them, as of now.
    #[inline]
    pub fn count(&mut self, clock: &LoopClock, figures: &LoopFigures) {
        if self.alike.is_empty() {
            return;
        }
        let now_ns = clock.read_ns();
        for alike in self.alike.drain(..) {
            let took_ns = now_ns.saturating_sub(alike.begin_ns);
            figures.took(alike.method, took_ns, alike.calls);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use service::{Figures, RefusedFor};
    use store::{Store, StoreConfig};

    use super::*;
    use crate::clock::TimeSource;
    use crate::pair::Pair;

    /// Calls and microseconds of a method.
    fn took(pair: &Pair, method: Method) -> (u64, u64) {
        let totals = pair.handler.shared().figures.totals();
        let of_method = totals.took.iter().find(|(one, _)| *one == method);
        of_method.map_or((0, 0), |(_, took)| (took.count(), took.sum_ns / 1_000))
    }

    #[test]
    fn a_call_takes_from_its_first_tick_to_its_last() {
        let mut pair = Pair::open();
        for _ in 0..3 {
            pair.call("/pelton.v1.KeyValue/Get", b"");
        }
        // EchoRequest with a delay of 10 ms.
        pair.call("/pelton.v1.Echo/Unary", &[0x18, 10]);
        pair.turn();
        assert_eq!(took(&pair, Method::Get), (3, 0), "the clock stands still");
        assert_eq!(took(&pair, Method::EchoUnary), (0, 0), "it runs");
        pair.now_ns += 12_000_000;
        pair.turn();
        assert_eq!(took(&pair, Method::EchoUnary), (1, 12_000));
    }

    #[test]
    fn calls_that_began_at_different_times_are_told_apart() {
        let mut pair = Pair::open();
        let slow = [0x18, 50];
        for _ in 0..4 {
            pair.call("/pelton.v1.Echo/Unary", &slow);
            pair.turn();
            pair.now_ns += 1_000_000;
        }
        pair.now_ns += 50_000_000;
        pair.turn();
        assert_eq!(
            took(&pair, Method::EchoUnary),
            (4, 54_000 + 53_000 + 52_000 + 51_000)
        );
    }

    #[test]
    fn calls_that_are_cancelled_are_counted() {
        let mut pair = Pair::open();
        pair.call("/pelton.v1.Echo/Unary", &[0x18, 50]);
        pair.turn();
        pair.close();
        pair.turn();
        assert_eq!(took(&pair, Method::EchoUnary).0, 1);
    }

    /// Reads of the clock.
    #[derive(Default)]
    struct Counting(AtomicU64);

    impl TimeSource for Counting {
        fn monotonic_ns(&self) -> u64 {
            self.0.fetch_add(1, Ordering::Relaxed)
        }

        fn wall_ms(&self) -> u64 {
            0
        }
    }

    #[test]
    fn more_kinds_than_are_kept_are_all_counted() {
        let source = Arc::new(Counting::default());
        let store = Store::in_memory(StoreConfig::new(1)).expect("the limits make sense");
        let clock = LoopClock::new(source.clone(), store);
        let reads_before = source.0.load(Ordering::Relaxed);
        let (all, mut ended) = (Figures::new(0), EndedCalls::default());
        let figures = all.add_loop();
        let kinds = 2 * limits::ENDED_CALLS_KEPT as u64 + 1;
        for number in 0..3 * kinds {
            ended.add(Method::Get, number / 3, &clock, &figures);
        }
        ended.count(&clock, &figures);
        ended.count(&clock, &figures);
        assert_eq!(all.totals().took[0].1.count(), 3 * kinds);
        assert_eq!(source.0.load(Ordering::Relaxed) - reads_before, 3);
    }

    #[test]
    fn refused_calls_are_counted_by_reason() {
        let refused = |pair: &Pair| {
            let refused = pair.handler.shared().figures.totals().refused;
            let told: Vec<_> = refused
                .into_iter()
                .filter(|(calls, _)| *calls > 0)
                .collect();
            told
        };
        let mut pair = Pair::open();
        pair.call("/no.such/Method", b"");
        pair.turn();
        assert_eq!(refused(&pair), [(1, RefusedFor::UnknownMethod)]);
        let mut pair = Pair::open();
        let _overfull = pair.overfill();
        for _ in 0..2 {
            pair.call("/pelton.v1.Echo/Unary", b"");
        }
        pair.turn();
        assert_eq!(refused(&pair), [(2, RefusedFor::Buffers)]);
        let mut pair = Pair::open();
        pair.stop();
        pair.call("/pelton.v1.Echo/Unary", b"");
        pair.turn();
        assert_eq!(refused(&pair), [(1, RefusedFor::Stopping)]);
    }
}
