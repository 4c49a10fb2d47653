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
            LiveWork::Loading => {
                let phase = if progress.is_measuring {
                    "measuring"
                } else {
                    "warming up"
                };
                let (ended, failed) = (progress.ended, progress.failed);
                format!("{phase}: {ended} calls ended, {failed} failed")
            }
        }
    }
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
}
