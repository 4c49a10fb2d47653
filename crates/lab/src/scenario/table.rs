//! The columns of a scenario's table.

use super::measurements::{MeasuredRun, Measurements};
use crate::sweep::Spread;

/// Width of a median that has a range behind it, and of that.
const MEDIAN_WIDTH: usize = 10;
const RANGE_WIDTH: usize = 21;

/// A column: the median over all rounds.
pub(super) struct Column {
    title: &'static str,
    width: usize,
    /// The smallest and the largest stand behind the median.
    has_range: bool,
    /// What a round has; several figures where it does the same several times.
    figures: fn(&MeasuredRun) -> Vec<f64>,
}

impl Column {
    pub(super) const fn new(
        title: &'static str,
        width: usize,
        figures: fn(&MeasuredRun) -> Vec<f64>,
    ) -> Column {
        Column {
            title,
            width,
            has_range: false,
            figures,
        }
    }

    pub(super) const fn with_range(
        title: &'static str,
        figures: fn(&MeasuredRun) -> Vec<f64>,
    ) -> Column {
        Column {
            has_range: true,
            ..Column::new(title, MEDIAN_WIDTH, figures)
        }
    }

    /// What it has.
    pub(super) fn title(&self) -> &'static str {
        self.title
    }

    /// The median of a run, the smallest and the largest; `None`: there is no figure.
    pub(super) fn spread(&self, measured: &Measurements, run: &str) -> Option<Spread> {
        Spread::of(measured.values(run, self.figures))
    }

    /// The first line of the column.
    pub(super) fn head(&self) -> String {
        let range = match self.has_range {
            true => format!(" {:>RANGE_WIDTH$}", ""),
            false => String::new(),
        };
        format!(" {:>width$}{range}", self.title, width = self.width)
    }

    /// The cell of a run; `None`: there is no figure.
    pub(super) fn cell(&self, measured: &Measurements, run: &str) -> Option<String> {
        let spread = self.spread(measured, run)?;
        let range = match self.has_range {
            true => {
                let range = format!("({}–{})", number(spread.least), number(spread.most));
                format!(" {range:>RANGE_WIDTH$}")
            }
            false => String::new(),
        };
        let median = number(spread.median);
        Some(format!(" {median:>width$}{range}", width = self.width))
    }

    /// The same without a figure.
    pub(super) fn empty_cell(&self) -> String {
        let width = match self.has_range {
            true => self.width + 1 + RANGE_WIDTH,
            false => self.width,
        };
        format!(" {:>width$}", "–")
    }
}

/// A figure that the client printed.
pub(super) fn figure(run: &MeasuredRun, name: &str) -> Vec<f64> {
    run.figure(name).into_iter().collect()
}

/// Columns of scenarios that make calls. The first decides whether a run has a row.
pub(super) const CALLS: &[Column] = &[
    Column::with_range("calls/s", |run| run.calls_per_s().into_iter().collect()),
    Column::new("p50 µs", 9, |run| figure(run, "p50_us")),
    Column::new("p99 µs", 9, |run| figure(run, "p99_us")),
    Column::new("server µs", 10, |run| {
        run.cpu_us()
            .map(|(server_us, _)| server_us)
            .into_iter()
            .collect()
    }),
    Column::new("client µs", 10, |run| {
        run.cpu_us()
            .map(|(_, client_us)| client_us)
            .into_iter()
            .collect()
    }),
    Column::new("MiB", 8, |run| {
        let peak = run.client_peak_bytes;
        peak.map(|bytes| bytes as f64 / f64::from(1 << 20))
            .into_iter()
            .collect()
    }),
];

/// Three digits that mean something.
pub(super) fn number(figure: f64) -> String {
    match figure {
        figure if figure >= 100.0 => format!("{figure:.0}"),
        figure if figure >= 10.0 => format!("{figure:.1}"),
        figure => format!("{figure:.2}"),
    }
}
