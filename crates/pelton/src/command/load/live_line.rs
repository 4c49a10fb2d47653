//! How far a load has come, on standard error.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lab::LoadProgress;

use crate::output::note;

/// What goes on.
#[derive(Clone, Copy)]
pub(super) enum LiveWork {
    Loading,
    /// Every key is stored once, so many in a call.
    Filling {
        records: u64,
        keys: u64,
    },
}

/// When storing the keys is first told of where standard error is no terminal, and how often then.
const TELL_AFTER_NS: u64 = 2_000_000_000;
const TELL_EVERY_NS: u64 = 10_000_000_000;

/// How far the run has come, on standard error. Where that is no terminal only what lasts before
/// the load is told of, in a line now and then.
pub(super) struct LiveLine {
    work: LiveWork,
    bar: Option<ProgressBar>,
    next_ns: u64,
}

impl LiveLine {
    /// A line that shows nothing yet.
    pub(super) fn new(work: LiveWork) -> LiveLine {
        let next_ns = TELL_AFTER_NS;
        if !std::io::stderr().is_terminal() {
            return LiveLine {
                work,
                bar: None,
                next_ns,
            };
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{wide_msg}").expect("the template is valid");
        bar.set_style(style);
        LiveLine {
            work,
            bar: Some(bar),
            next_ns,
        }
    }

    /// Shows how far the run is.
    pub(super) fn show(&mut self, progress: &LoadProgress) {
        if let Some(bar) = &self.bar {
            let seconds = progress.elapsed_ns as f64 / 1e9;
            bar.set_message(format!("{seconds:6.1} s, {}", self.words(progress)));
        } else if self.is_told(progress) && progress.elapsed_ns >= self.next_ns {
            self.next_ns = progress.elapsed_ns + TELL_EVERY_NS;
            note(format_args!("pelton load: {}", self.words(progress)));
        }
    }

    /// Whether it is told without a terminal.
    fn is_told(&self, progress: &LoadProgress) -> bool {
        progress.is_connecting || matches!(self.work, LiveWork::Filling { .. })
    }

    fn words(&self, progress: &LoadProgress) -> String {
        if progress.is_connecting {
            return "connecting".into();
        }
        match self.work {
            LiveWork::Filling { records, keys } => {
                let stored = progress.ended.saturating_mul(records).min(keys);
                let percent = stored.saturating_mul(100) / keys.max(1);
                format!("storing the keys: {stored} of {keys} ({percent} %)")
            }
            LiveWork::Loading => loading(progress),
        }
    }
}

/// How a load goes: what matters most first, as a narrow terminal cuts the rest.
fn loading(progress: &LoadProgress) -> String {
    let left = progress.left_ns.map_or_else(String::new, |left_ns| {
        format!(", {} left", seconds_up(left_ns))
    });
    if !progress.is_measuring {
        return format!("warming up{left}");
    }
    let seconds = progress.measured_ns as f64 / 1e9;
    let rate = match seconds > 0.0 {
        true => progress.ended as f64 / seconds,
        false => 0.0,
    };
    let latency = |name: &str, ns: Option<u64>| {
        ns.map_or_else(String::new, |ns| format!(", {name} {}", latency(ns)))
    };
    format!(
        "measuring{left}: {rate:.0} calls/s{}{}, {} failed",
        latency("p50", progress.p50_ns),
        latency("p99", progress.p99_ns),
        progress.failed
    )
}

/// A time in whole seconds that is not over before it is.
fn seconds_up(ns: u64) -> String {
    format!("{} s", ns.div_ceil(1_000_000_000))
}

/// A latency with three digits.
fn latency(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000_000 => (ns as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    let places = match value {
        ..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    };
    format!("{value:.places$} {unit}")
}

impl Drop for LiveLine {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storing_the_keys_shows_how_many_there_are() {
        let line = LiveLine {
            work: LiveWork::Filling {
                records: 100,
                keys: 1_050,
            },
            bar: None,
            next_ns: TELL_AFTER_NS,
        };
        let words = |ended| {
            line.words(&LoadProgress {
                ended,
                ..LoadProgress::default()
            })
        };
        assert_eq!(words(5), "storing the keys: 500 of 1050 (47 %)");
        assert_eq!(words(11), "storing the keys: 1050 of 1050 (100 %)");
    }

    #[test]
    fn a_load_shows_what_it_has_measured_so_far() {
        let warming = LoadProgress {
            left_ns: Some(2_500_000_000),
            ended: 7,
            ..LoadProgress::default()
        };
        assert_eq!(loading(&warming), "warming up, 3 s left");
        let measuring = LoadProgress {
            is_measuring: true,
            left_ns: Some(1_000_000_000),
            measured_ns: 500_000_000,
            ended: 61_728,
            failed: 2,
            p50_ns: Some(184_320),
            p99_ns: Some(2_450_000),
            ..LoadProgress::default()
        };
        assert_eq!(
            loading(&measuring),
            "measuring, 1 s left: 123456 calls/s, p50 184 µs, p99 2.45 ms, 2 failed"
        );
        let nothing = LoadProgress {
            is_measuring: true,
            ..LoadProgress::default()
        };
        assert_eq!(loading(&nothing), "measuring: 0 calls/s, 0 failed");
    }

    #[test]
    fn latencies_have_three_digits() {
        for (ns, text) in [
            (950, "0.95 µs"),
            (99_960, "100.0 µs"),
            (45_600, "45.6 µs"),
            (999_999, "1000 µs"),
            (12_345_678, "12.3 ms"),
            (2_000_000_000, "2.00 s"),
        ] {
            assert_eq!(latency(ns), text);
        }
    }
}
