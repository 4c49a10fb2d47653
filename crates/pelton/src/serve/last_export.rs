//! The export of the last spans when a server ends, and what cuts it short.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::spans::limits::{SPAN_STOP_LEAST, SPAN_STOP_TIMEOUT};
use net::RunEnd;
use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGQUIT, SIGTERM};
use signal_hook::{flag, low_level};

use crate::otlp::ServerSpans;

/// Exports the spans that are left when calls have ended. `drain` is what the server has for its
/// whole end, and `now_ns` the time on the clock of `ended`.
pub fn export_last_spans(
    spans: &ServerSpans,
    ended: Option<&RunEnd>,
    (drain, now_ns): (Duration, u64),
) {
    // Without it a signal is ignored, as the end is near by itself.
    let further = FurtherSignal::listen().ok();
    let is_hurried = ended.is_some_and(|ended| ended.hurried);
    let asked_ns = ended.and_then(|ended| ended.asked_ns);
    let since = Duration::from_nanos(now_ns.saturating_sub(asked_ns.unwrap_or(now_ns)));
    spans.stop(export_time(drain, since), || {
        is_hurried || further.as_ref().is_some_and(FurtherSignal::has_come)
    });
}

/// Returns how long the export may take if the end began so long ago.
fn export_time(drain: Duration, since: Duration) -> Duration {
    let left = drain.saturating_sub(since);
    left.clamp(SPAN_STOP_LEAST, SPAN_STOP_TIMEOUT)
}

/// Notes signals that ask for the end, as long as it lives.
struct FurtherSignal {
    has_come: Arc<AtomicBool>,
    ids: Vec<SigId>,
}

impl FurtherSignal {
    fn listen() -> io::Result<FurtherSignal> {
        let mut further = FurtherSignal {
            has_come: Arc::default(),
            ids: Vec::new(),
        };
        for signal in [SIGTERM, SIGINT, SIGQUIT] {
            let id = flag::register(signal, Arc::clone(&further.has_come))?;
            further.ids.push(id);
        }
        Ok(further)
    }

    fn has_come(&self) -> bool {
        self.has_come.load(Ordering::Relaxed)
    }
}

impl Drop for FurtherSignal {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            low_level::unregister(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_export_takes_what_draining_has_left() {
        let ms = Duration::from_millis;
        for (drain, since, expected) in [
            (30_000, 10, 3_000),
            (2_000, 500, 1_500),
            (2_000, 1_900, 250),
            (2_000, 60_000, 250),
            (0, 0, 250),
        ] {
            assert_eq!(
                export_time(ms(drain), ms(since)),
                ms(expected),
                "{drain} {since}"
            );
        }
    }
}
