//! Latencies as rows of text.

use std::fmt::Write as _;

use hdrhistogram::Histogram;

use super::{QUANTILES, quantile_us};

/// Width of a column of figures.
const WIDTH: usize = 10;

/// The names of the columns of [`row`].
pub(crate) fn latency_head() -> String {
    let mut head = format!("{:<13}", "latency (µs)");
    for name in ["mean", "p50", "p90", "p99", "p99.9", "p99.99", "max"] {
        write!(head, "{name:>WIDTH$}").expect("a String takes what is written");
    }
    head
}

/// A row of a latency, in microseconds.
pub(crate) fn row(name: &str, histogram: &Histogram<u64>) -> String {
    let mut line = format!("{name:<13}");
    let quantiles = QUANTILES.map(|(_, quantile)| quantile_us(histogram, quantile));
    let mean = (!histogram.is_empty()).then(|| histogram.mean() / 1e3);
    let max = quantile_us(histogram, 1.0);
    for value in [mean].into_iter().chain(quantiles).chain([max]) {
        let cell = value.map_or_else(|| "–".into(), |value| format!("{value:.1}"));
        // From ten seconds on a figure is wider than its column.
        write!(line, " {cell:>width$}", width = WIDTH - 1).expect("a String takes what is written");
    }
    line
}
