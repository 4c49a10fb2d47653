//! How far something long has come, on standard error. Nothing is shown where that is no terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often what has no known end shows that it is alive.
const SPINNER_INTERVAL: Duration = Duration::from_millis(200);

/// Columns from which a bar fits beside what is said of it.
const BAR_COLUMNS: u16 = 72;

/// How a line with a known end looks; in a narrow terminal it has room for a share only.
fn style(figures: &str, columns: u16) -> ProgressStyle {
    let template = match columns >= BAR_COLUMNS {
        true => format!("{{msg}} [{{wide_bar}}] {figures}, {{eta}} left"),
        false => "{msg} {percent}%, {eta} left".into(),
    };
    let style = ProgressStyle::with_template(&template).expect("the template is valid");
    style.progress_chars("=> ")
}

/// The columns of the terminal, as they are now; of what is none, enough.
fn columns() -> u16 {
    rustix::termios::tcgetwinsize(std::io::stderr()).map_or(u16::MAX, |size| size.ws_col)
}

/// A line on the terminal, removed with the value. It has no colours, with NO_COLOR or without.
pub struct ProgressLine(ProgressBar);

impl ProgressLine {
    /// Counts entries, up to `total` if that is known.
    pub fn entries(what: &'static str, total: Option<u64>) -> ProgressLine {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
        bar.set_style(match total {
            Some(_) => style("{human_pos}/{human_len} entries", columns()),
            None => ProgressStyle::with_template("{msg} {spinner} {human_pos} entries")
                .expect("the template is valid"),
        });
        bar.set_message(what);
        if total.is_none() && !bar.is_hidden() {
            bar.enable_steady_tick(SPINNER_INTERVAL);
        }
        ProgressLine(bar)
    }

    /// Counts bytes, up to what [`set_of`](ProgressLine::set_of) says.
    pub fn bytes(what: &'static str) -> ProgressLine {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(style("{binary_bytes}/{binary_total_bytes}", columns()));
        bar.set_message(what);
        ProgressLine(bar)
    }

    /// Counts entries, up to what [`set_of`](ProgressLine::set_of) says.
    pub fn entries_of(what: &'static str) -> ProgressLine {
        ProgressLine::entries(what, Some(0))
    }

    /// Bytes on their way, with their rate and the time left, up to `total`; `None`: nobody knows
    /// how many.
    pub fn transfer(what: &'static str, total: Option<u64>) -> ProgressLine {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
        let figures = "{binary_bytes}/{binary_total_bytes}, {binary_bytes_per_sec}";
        bar.set_style(match total {
            Some(_) => style(figures, columns()),
            None => ProgressStyle::with_template("{msg} {binary_bytes}, {binary_bytes_per_sec}")
                .expect("the template is valid"),
        });
        bar.set_message(what);
        ProgressLine(bar)
    }

    /// There are so many more than was known.
    pub fn expect(&self, more: u64) {
        self.0.set_length(self.0.length().unwrap_or(0) + more);
    }

    /// Shows only that something goes on.
    pub fn waiting(what: &'static str) -> ProgressLine {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{msg} {spinner} {elapsed}");
        bar.set_style(style.expect("the template is valid"));
        bar.set_message(what);
        if !bar.is_hidden() {
            bar.enable_steady_tick(SPINNER_INTERVAL);
        }
        ProgressLine(bar)
    }

    /// Whether anybody sees it.
    pub fn is_wanted() -> bool {
        !ProgressDrawTarget::stderr().is_hidden()
    }

    /// So many entries are done.
    pub fn set(&self, entries: u64) {
        self.0.set_position(entries);
    }
}

impl ProgressLine {
    /// So many of so many are done; 0: it is not known how many there are.
    pub fn set_of(&self, done: u64, total: u64) {
        if total > 0 {
            self.0.set_length(total);
        }
        self.0.set_position(done);
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
