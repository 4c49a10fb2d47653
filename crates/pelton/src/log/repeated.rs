//! Leaves out lines that say the same thing again and again: what somebody outside can cause a
//! thousand times a second must not fill the disk, nor hide the rest.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tracing::callsite::Identifier;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use super::{AUDIT_TARGET, SLOW_CALL_TARGET};
use crate::limits::{
    LOG_DETAIL_LINES_PER_PERIOD, LOG_DETAIL_PERIOD_MS, LOG_LINES_PER_PERIOD, LOG_PERIOD_MS,
};

/// How much one place may log.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    lines: u64,
    period_ms: u64,
}

impl Allowance {
    const USUAL: Allowance = Allowance {
        lines: LOG_LINES_PER_PERIOD,
        period_ms: LOG_PERIOD_MS,
    };

    const DETAIL: Allowance = Allowance {
        lines: LOG_DETAIL_LINES_PER_PERIOD,
        period_ms: LOG_DETAIL_PERIOD_MS,
    };

    fn of(level: Level) -> Allowance {
        // Levels that say less are greater.
        match level > Level::INFO {
            true => Allowance::DETAIL,
            false => Allowance::USUAL,
        }
    }
}

/// A filter that lets through so many lines of one place in the program in each period: few of
/// those that are always logged, and many a second of those at level debug and trace.
pub struct RepeatedLines {
    begin: Instant,
    /// There are as many as places in the program that log.
    places: Mutex<HashMap<Identifier, LineCount>>,
}

/// What was said by one place.
#[derive(Debug, Default, PartialEq, Eq)]
struct LineCount {
    period_ms: u64,
    lines: u64,
    left_out: u64,
}

/// What becomes of a line.
#[derive(Debug, PartialEq, Eq)]
enum LineVerdict {
    /// It is said; so many were left out since the last one that was.
    Say {
        left_out: u64,
    },
    /// It is said, and is the last of this period.
    SayLast,
    LeaveOut,
}

impl Default for RepeatedLines {
    fn default() -> RepeatedLines {
        RepeatedLines {
            begin: Instant::now(),
            places: Mutex::default(),
        }
    }
}

impl RepeatedLines {
    fn judge(&self, place: Identifier, allowance: Allowance) -> LineVerdict {
        let now_ms = u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        // Counts are sound whoever panicked.
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.entry(place).or_default().judge(now_ms, allowance)
    }
}

impl LineCount {
    fn judge(&mut self, now_ms: u64, allowance: Allowance) -> LineVerdict {
        let mut left_out = 0;
        if now_ms.saturating_sub(self.period_ms) >= allowance.period_ms {
            left_out = self.left_out;
            *self = LineCount {
                period_ms: now_ms,
                ..LineCount::default()
            };
        }
        self.lines += 1;
        if self.lines < allowance.lines {
            LineVerdict::Say { left_out }
        } else if self.lines == allowance.lines {
            LineVerdict::SayLast
        } else {
            self.left_out += 1;
            LineVerdict::LeaveOut
        }
    }
}

impl<S: Subscriber> Layer<S> for RepeatedLines {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if [OWN_TARGET, AUDIT_TARGET, SLOW_CALL_TARGET].contains(&metadata.target()) {
            return true;
        }
        let allowance = Allowance::of(*metadata.level());
        // What is said about it goes the same way, and comes here again: the lock is free by then.
        match self.judge(metadata.callsite(), allowance) {
            LineVerdict::Say { left_out: 0 } => true,
            LineVerdict::Say { left_out } => {
                tracing::warn!(target: OWN_TARGET, "{left_out} lines such as the next one were \
                                                    left out");
                true
            }
            LineVerdict::SayLast => {
                let Allowance { lines, period_ms } = allowance;
                let seconds = period_ms / 1_000;
                tracing::warn!(
                    target: OWN_TARGET,
                    "the next line came {lines} times within {seconds} s: more such lines are left \
                     out until these are over"
                );
                true
            }
            LineVerdict::LeaveOut => false,
        }
    }
}

/// By which lines about lines are known: they are rare by themselves.
const OWN_TARGET: &str = "pelton::log::repeated";

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::Arc;

    use tracing_subscriber::fmt;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn a_place_may_say_so_much_in_each_period() {
        let judge = |place: &mut LineCount, now_ms| place.judge(now_ms, Allowance::USUAL);
        let mut place = LineCount::default();
        for _ in 1..LOG_LINES_PER_PERIOD {
            assert_eq!(judge(&mut place, 5), LineVerdict::Say { left_out: 0 });
        }
        assert_eq!(judge(&mut place, 6), LineVerdict::SayLast);
        for _ in 0..3 {
            assert_eq!(judge(&mut place, LOG_PERIOD_MS - 1), LineVerdict::LeaveOut);
        }
        assert_eq!(
            judge(&mut place, LOG_PERIOD_MS),
            LineVerdict::Say { left_out: 3 }
        );
        assert_eq!(
            judge(&mut place, LOG_PERIOD_MS),
            LineVerdict::Say { left_out: 0 }
        );
        let much_later = 10 * LOG_PERIOD_MS;
        assert_eq!(
            judge(&mut place, much_later),
            LineVerdict::Say { left_out: 0 }
        );
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("nobody panics").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Two periods: what a fixed clock allows is exact.
    #[test]
    fn details_are_held_back_by_their_own_bound() {
        let (mut place, bound) = (LineCount::default(), LOG_DETAIL_LINES_PER_PERIOD);
        for period in 0..2 {
            let now_ms = 7 + period * LOG_DETAIL_PERIOD_MS;
            let said = (0..3 * bound)
                .map(|_| place.judge(now_ms, Allowance::of(Level::TRACE)))
                .filter(|verdict| *verdict != LineVerdict::LeaveOut);
            assert_eq!(said.count() as u64, bound);
        }
        assert_eq!(Allowance::of(Level::INFO).lines, LOG_LINES_PER_PERIOD);
    }

    /// From one thread in well under a period: the numbers are exact unless the test is stopped in
    /// its midst for so long.
    #[test]
    fn other_places_and_lower_levels_are_not_held_back() {
        let lines = Lines::default();
        let writer = lines.clone();
        let layer = fmt::layer()
            .with_ansi(false)
            .with_writer(move || writer.clone());
        let subscriber = tracing_subscriber::registry()
            .with(RepeatedLines::default())
            .with(layer);
        tracing::subscriber::with_default(subscriber, || {
            for number in 0..100 {
                tracing::warn!("noisy {number}");
                tracing::debug!("detail {number}");
            }
            tracing::error!("once");
        });
        let text = String::from_utf8(lines.0.lock().expect("nobody panics").clone()).expect("text");
        let count = |what: &str| text.lines().filter(|line| line.contains(what)).count() as u64;
        assert_eq!(count("noisy"), LOG_LINES_PER_PERIOD, "{text}");
        assert_eq!((count("detail"), count("once")), (100, 1));
    }
}
