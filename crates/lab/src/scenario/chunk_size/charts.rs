//! What uploads took, by the size of their chunks: all ways in one chart, and one for each way with
//! a box for each size.

use super::{LINES, SHIFTS, UploadLine, named, ns_per_byte, quartiles};
use crate::page::{ChartPoint, ChartSeries, LineChart};
use crate::scenario::Measurements;
use crate::sweep::Spread;

/// A nanosecond for each byte is a millisecond for each MB.
const UNIT: &str = "ms for each MB";

pub(in crate::scenario) fn charts(measured: &Measurements) -> Vec<(String, String)> {
    let is_measured = |shift: &u32| {
        let mut runs = LINES.iter().map(|line| named(*line, *shift));
        runs.any(|run| measured.runs().iter().any(|one| one.name == run))
    };
    let shifts: Vec<u32> = SHIFTS.filter(is_measured).collect();
    if shifts.is_empty() {
        return Vec::new();
    }
    let all: Vec<ChartSeries> = LINES
        .iter()
        .map(|line| series(measured, *line, &shifts, false))
        .collect();
    let title = format!("{UNIT} to the answer, by the size of chunks: medians, and the range");
    let mut charts = vec![chart(title, &shifts, &all)];
    for line in LINES {
        let title = format!("{}: {UNIT}, the range and the middle half", line.name);
        let boxes = series(measured, line, &shifts, true);
        charts.push(chart(title, &shifts, &[boxes]));
    }
    charts
}

fn series(
    measured: &Measurements,
    line: UploadLine,
    shifts: &[u32],
    has_boxes: bool,
) -> ChartSeries {
    let point = |shift: &u32| {
        let values = ns_per_byte(measured, (line, *shift), "answered_ns").ok()?;
        let middle_half = quartiles(&values).filter(|_| has_boxes);
        let spread = Spread::of(values)?;
        Some(ChartPoint {
            value: spread.median,
            range: (spread.least, spread.most),
            middle_half,
        })
    };
    ChartSeries {
        name: line.name.into(),
        points: shifts.iter().map(point).collect(),
    }
}

fn chart(title: String, shifts: &[u32], series: &[ChartSeries]) -> (String, String) {
    let labels: Vec<String> = shifts.iter().map(|shift| format!("2^{shift}")).collect();
    let chart = LineChart {
        title: &title,
        labels: &labels,
        below: "bytes of a chunk",
        series,
        is_log: true,
    };
    let svg = chart.svg();
    (title, svg)
}
