//! A sweep for people and for programs.

use serde_json::{Map, Value, json};

use super::axis::{SweepAxis, SweepParameter};
use super::figures::{Measure, RunFigures, Spread};
use super::knee::{Knee, KneePoint, knee, most_power};
use super::limits;
use super::results::SweepResults;
use super::schedule::SweepTimes;
use crate::machine::{CpuShares, LoadMachine};

/// What was to be done, and where.
#[derive(Clone, Debug)]
pub struct SweepSetting {
    /// The server.
    pub target: String,
    /// The machine as it was before.
    pub machine: LoadMachine,
    /// What its CPUs did during the sweep.
    pub during: Option<CpuShares>,
    /// How often and how long each cell was to be measured.
    pub times: SweepTimes,
    /// The seed of the order.
    pub seed: u64,
    /// Why it ended before all runs were made.
    pub ended_early: Option<String>,
}

/// A sweep and what it means.
#[derive(Clone, Debug)]
pub struct SweepReport {
    pub(super) setting: SweepSetting,
    pub(super) results: SweepResults,
}

/// The knee along one parameter, at one value of the other one.
#[derive(Clone, Debug)]
pub(super) struct KneeRow<'a> {
    axis: &'a SweepAxis,
    /// The value of the other parameter.
    at: Option<(SweepParameter, &'a str)>,
    knee: Knee,
    /// The best throughput, and where.
    best: Option<(usize, f64)>,
    most_power: Option<usize>,
    /// Whether the generator was the limit where the most load was.
    is_of_generator: bool,
}

/// The columns of figures, behind those of parameters and of throughput.
const COLUMNS: [Measure; 5] = [
    Measure::P50,
    Measure::P99,
    Measure::P999,
    Measure::ServerCpu,
    Measure::OwnCpu,
];

impl SweepReport {
    /// The report of these runs.
    pub fn new(setting: SweepSetting, results: SweepResults) -> SweepReport {
        SweepReport { setting, results }
    }

    /// The text for people.
    pub fn text(&self) -> String {
        let mut lines = self.preface();
        let (head, rows) = self.table();
        let rows: Vec<Vec<String>> = [head].into_iter().chain(rows).collect();
        lines.extend(right_aligned(&rows));
        lines.extend(self.findings());
        lines.join("\n")
    }

    /// What is to be known before the figures.
    pub(super) fn preface(&self) -> Vec<String> {
        let mut lines = self.setting.machine.lines();
        if let Some(during) = self.setting.during {
            lines.push(format!(
                "during the sweep: {:.0} % of the CPUs were busy, {:.1} % stolen by the host",
                during.busy_percent, during.steal_percent
            ));
        }
        if let Some(reason) = &self.setting.ended_early {
            lines.push(format!("ENDED EARLY: {reason}"));
        }
        lines.push(self.what_was_done());
        lines
    }

    fn what_was_done(&self) -> String {
        let times = self.setting.times;
        let axes = self.results.axes();
        let what = match self.what() {
            "" => String::new(),
            what => format!("{what} "),
        };
        let plural = if times.runs == 1 { "" } else { "s" };
        format!(
            "{what}on {}: {} cells of {}, {} run{plural} each of {} s after {} s of warm-up, in \
             random order (--order-seed {}); {} of {} runs were made",
            self.setting.target,
            axes.cells(),
            axes.names(),
            times.runs,
            times.measured.as_secs_f64(),
            times.warm_up.as_secs_f64(),
            self.setting.seed,
            self.results.runs().len(),
            axes.cells() * times.runs
        )
    }

    /// What was called, if that is the same in all cells.
    fn what(&self) -> &str {
        let mut all = self
            .results
            .runs()
            .iter()
            .map(|run| run.figures.text("what"));
        match all.next() {
            Some(first) if all.all(|what| what == first) => first,
            _ => "",
        }
    }

    /// The head and the rows of the table: those of cells with runs.
    pub(super) fn table(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let (axes, throughput) = (self.results.axes(), self.results.throughput());
        let shown = self.shown_columns();
        let names = axes.axes().iter().map(|axis| axis.parameter.name());
        let titles = shown.iter().map(|measure| measure.title());
        let head = names
            .chain([throughput.title(), "spread"])
            .chain(titles)
            .chain(["runs", "void", "failed"]);
        let head = head.map(str::to_owned).collect();
        let row = |cell: usize| {
            let figures = self.results.cell(cell);
            let values = axes.values(cell).into_iter();
            let mut row: Vec<String> = values.map(|(_, value)| value.to_owned()).collect();
            let done = figures.spread(throughput);
            row.push(done.map_or("–".into(), |done| format!("{:.0}", done.median)));
            row.push(done.map_or("–".into(), |done| format!("{:.1} %", done.percent())));
            for measure in &shown {
                let median = figures.spread(*measure).map(|spread| spread.median);
                row.push(median.map_or("–".into(), |median| {
                    let places = if median >= 100.0 { 0 } else { 2 };
                    format!("{median:.places$}")
                }));
            }
            row.extend([
                figures.runs().to_string(),
                figures.void_runs().to_string(),
                figures.failures().to_string(),
            ]);
            (figures.runs() > 0).then_some(row)
        };
        (head, (0..axes.cells()).filter_map(row).collect())
    }

    /// What was measured at all.
    fn shown_columns(&self) -> Vec<Measure> {
        let is_measured = |measure: &Measure| {
            let mut runs = self.results.runs().iter();
            runs.any(|run| run.figures.get(*measure).is_some())
        };
        COLUMNS.into_iter().filter(is_measured).collect()
    }

    /// What follows from the figures, a line for each.
    pub(super) fn findings(&self) -> Vec<String> {
        let throughput = self.results.throughput().title();
        let rows = self.knees();
        let mut lines: Vec<String> = rows.iter().map(|row| row.text(throughput)).collect();
        lines.extend(self.unsteady());
        let void: Vec<&RunFigures> = (self.results.runs().iter())
            .map(|run| &run.figures)
            .filter(|run| run.is_void())
            .collect();
        if let Some(first) = void.first() {
            lines.push(format!(
                "void: {} of {} runs say more about the generator than about the server; the \
                 first: {}",
                void.len(),
                self.results.runs().len(),
                first.text("void_reasons")
            ));
        }
        let failed = self.results.runs().iter();
        let mut failed = failed.filter(|run| run.figures.failures() > 0);
        if let Some(first) = failed.next() {
            lines.push(format!(
                "failed: calls failed in {} runs, which count only where all runs of a cell are \
                 such; the first: {}",
                failed.count() + 1,
                first.figures.text("first_failure")
            ));
        }
        lines
    }

    /// Says so if the runs of a cell are so far apart that little follows from their medians.
    fn unsteady(&self) -> Option<String> {
        let measure = self.results.throughput();
        let axes = self.results.axes();
        let spread = |cell: usize| Some((cell, self.results.cell(cell).spread(measure)?.percent()));
        let spreads = (0..axes.cells()).filter_map(spread);
        let (cell, percent) = spreads.max_by(|one, two| one.1.total_cmp(&two.1))?;
        (percent > limits::UNSTEADY_PERCENT as f64).then(|| {
            format!(
                "unsteady: runs of one cell are up to {percent:.0} % apart (at {}), so that little \
                 follows from their medians: make more and longer runs, where less else runs",
                axes.label(cell)
            )
        })
    }

    /// The knees along the first parameter that is a load, a row for each value of the other one.
    pub(super) fn knees<'a>(&'a self) -> Vec<KneeRow<'a>> {
        let axes = self.results.axes().axes();
        let along = axes.iter().position(|axis| axis.parameter.is_load());
        let Some((along, axis)) = along.and_then(|along| Some((along, axes.get(along)?))) else {
            return Vec::new();
        };
        let other = axes.iter().enumerate().find(|(number, _)| *number != along);
        let Some((_, other)) = other else {
            let points = self.points(axis, &|value| vec![value]);
            return vec![KneeRow::new(axis, None, &points)];
        };
        let row = |(place, at): (usize, &'a String)| {
            let cell = |value| match along {
                0 => vec![value, place],
                _ => vec![place, value],
            };
            let points = self.points(axis, &cell);
            KneeRow::new(axis, Some((other.parameter, at.as_str())), &points)
        };
        other.values.iter().enumerate().map(row).collect()
    }

    /// The loads along a parameter that were measured, and whether each was void.
    fn points(
        &self,
        axis: &SweepAxis,
        cell: &dyn Fn(usize) -> Vec<usize>,
    ) -> Vec<(KneePoint, bool)> {
        let measure = self.results.throughput();
        let point = |value: usize| {
            let figures = self.results.cell(self.results.axes().cell_at(&cell(value)));
            let mean = figures.spread(Measure::Mean);
            let point = KneePoint {
                value,
                throughput: figures.spread(measure)?,
                mean_us: mean.map(|mean| mean.median),
            };
            Some((point, figures.void_runs() > 0))
        };
        (0..axis.values.len()).filter_map(point).collect()
    }

    /// A row of names, and one of figures for each cell with runs (RFC 4180).
    pub fn csv(&self) -> String {
        let axes = self.results.axes();
        let names = axes
            .axes()
            .iter()
            .map(|axis| axis.parameter.name().to_owned());
        let measures = Measure::ALL.iter().flat_map(|measure| {
            ["median", "least", "most"].map(|which| format!("{}_{which}", measure.field()))
        });
        let counts = ["runs", "void_runs", "failures"].map(str::to_owned);
        let head: Vec<String> = names.chain(measures).chain(counts).collect();
        let mut out = head.join(",") + "\n";
        for cell in 0..axes.cells() {
            let figures = self.results.cell(cell);
            if figures.runs() == 0 {
                continue;
            }
            let values = axes.values(cell).into_iter();
            let mut row: Vec<String> = values.map(|(_, value)| value.to_owned()).collect();
            for measure in Measure::ALL {
                let spread = figures.spread(measure);
                let cells = spread.map(|spread| [spread.median, spread.least, spread.most]);
                row.extend(match cells {
                    Some(cells) => cells.map(|cell| cell.to_string()),
                    None => [const { String::new() }; 3],
                });
            }
            row.extend([
                figures.runs().to_string(),
                figures.void_runs().to_string(),
                figures.failures().to_string(),
            ]);
            out += &(row.join(",") + "\n");
        }
        out
    }

    /// All figures under their names. What was not measured is null.
    pub fn fields(&self) -> Map<String, Value> {
        let setting = &self.setting;
        let axes = self.results.axes();
        let cells = (0..axes.cells()).map(|cell| self.cell_fields(cell));
        let knees = self.knees();
        let percent = |value: fn(&CpuShares) -> f64| {
            let value = setting.during.as_ref().map(value);
            value.map(|value| (value * 100.0).round() / 100.0)
        };
        let fields = json!({
            "target": setting.target,
            "what": self.what(),
            "machine": setting.machine.fields(),
            "busy_percent": percent(|during| during.busy_percent),
            "steal_percent": percent(|during| during.steal_percent),
            "runs_of_a_cell": setting.times.runs,
            "runs_planned": axes.cells() * setting.times.runs,
            "runs_made": self.results.runs().len(),
            "ended_early": setting.ended_early,
            "warm_up_ms": setting.times.warm_up.as_millis() as u64,
            "measured_ms": setting.times.measured.as_millis() as u64,
            "order_seed": setting.seed.to_string(),
            "throughput": self.results.throughput().field(),
            "cells": cells.collect::<Vec<Value>>(),
            "knees": knees.iter().map(KneeRow::fields).collect::<Vec<Value>>(),
        });
        match fields {
            Value::Object(fields) => fields,
            _ => Map::new(),
        }
    }

    fn cell_fields(&self, cell: usize) -> Value {
        let figures = self.results.cell(cell);
        let values = self.results.axes().values(cell).into_iter();
        let parameters =
            values.map(|(parameter, value)| json!({"name": parameter.name(), "value": value}));
        let mut fields = json!({
            "parameters": parameters.collect::<Vec<Value>>(),
            "runs": figures.runs(),
            "void_runs": figures.void_runs(),
            "failures": figures.failures(),
        });
        for measure in Measure::ALL {
            let spread = figures.spread(measure);
            let field = |spread: Spread| {
                let Spread {
                    median,
                    least,
                    most,
                } = spread;
                json!({"median": median, "least": least, "most": most})
            };
            if let Some(fields) = fields.as_object_mut() {
                let value = spread.map_or(Value::Null, field);
                fields.insert(measure.field().to_owned(), value);
            }
        }
        fields
    }
}

impl<'a> KneeRow<'a> {
    fn new(
        axis: &'a SweepAxis,
        at: Option<(SweepParameter, &'a str)>,
        points: &[(KneePoint, bool)],
    ) -> KneeRow<'a> {
        let loads: Vec<KneePoint> = points.iter().map(|(point, _)| *point).collect();
        let best = loads
            .iter()
            .map(|point| (point.value, point.throughput.median));
        KneeRow {
            axis,
            at,
            knee: knee(&loads),
            best: best.max_by(|one, two| one.1.total_cmp(&two.1)),
            most_power: most_power(&loads),
            is_of_generator: points.last().is_some_and(|(_, is_void)| *is_void),
        }
    }

    fn value(&self, number: usize) -> &'a str {
        self.axis.values.get(number).map_or("", String::as_str)
    }

    fn text(&self, throughput: &str) -> String {
        let name = self.axis.parameter.name();
        let at = match self.at {
            Some((parameter, value)) => format!(" at {}={value}", parameter.name()),
            None => String::new(),
        };
        let (best_at, best) = self.best.unwrap_or((0, 0.0));
        let mut text = match self.knee {
            Knee::TooFew => format!(
                "knee{at}: not looked for, as that takes {} values of {name} with results",
                limits::KNEE_VALUES_LEAST
            ),
            Knee::Beyond {
                growth_percent,
                low,
            } => {
                let low = low.map_or_else(String::new, |low| {
                    format!(
                        "; as the runs differ it may lie from {} on",
                        self.value(low)
                    )
                });
                format!(
                    "knee{at}: none within what was swept: {throughput} still grows, {} from the \
                     last value but one of {name} to {}{low}",
                    growth_words(growth_percent),
                    self.value(best_at)
                )
            }
            Knee::At {
                value,
                low,
                high,
                is_least,
            } => {
                let below = if is_least { " or below" } else { "" };
                let range = match high {
                    Some(high) if (low, high) == (value, value) => String::new(),
                    Some(high) => format!(
                        "; as the runs differ it may lie from {} to {}",
                        self.value(low),
                        self.value(high)
                    ),
                    None => format!(
                        "; as the runs differ it may lie from {} on, or beyond what was swept",
                        self.value(low)
                    ),
                };
                format!(
                    "knee{at}: {name}={}{below}, the least with {} % of the best {throughput} \
                     ({best:.0} at {}){range}",
                    self.value(value),
                    limits::KNEE_PERCENT,
                    self.value(best_at)
                )
            }
        };
        if let (Some(power), false) = (self.most_power, self.knee == Knee::TooFew) {
            text += &format!(
                "; throughput divided by latency is largest at {name}={}",
                self.value(power)
            );
        }
        if self.is_of_generator {
            text += "; the generator was the limit at the largest value, so this is its knee";
        }
        text
    }

    fn fields(&self) -> Value {
        let (found, value, low, high, growth) = match self.knee {
            Knee::TooFew => ("too few values", None, None, None, None),
            Knee::Beyond {
                growth_percent,
                low,
            } => ("beyond", None, low, None, Some(growth_percent)),
            Knee::At {
                value,
                low,
                high,
                is_least,
            } => {
                let found = if is_least { "at or below" } else { "at" };
                (found, Some(value), Some(low), high, None)
            }
        };
        let text = |number: Option<usize>| number.map(|number| self.value(number));
        json!({
            "along": self.axis.parameter.name(),
            "other": self.at.map(|(parameter, _)| parameter.name()),
            "other_value": self.at.map(|(_, value)| value),
            "found": found,
            "value": text(value),
            "low": text(low),
            "high": text(high),
            "growth_percent": growth.map(|growth| (growth * 10.0).round() / 10.0),
            "most_power": text(self.most_power),
            "is_of_generator": self.is_of_generator,
        })
    }
}

/// By how much throughput grew, which is without end where it was 0.
fn growth_words(percent: f64) -> String {
    match percent.is_finite() {
        true => format!("by {percent:.0} %"),
        false => "without end".to_owned(),
    }
}

/// Lines with the cells of each row below each other, at the right.
pub(crate) fn right_aligned(rows: &[Vec<String>]) -> Vec<String> {
    let length = |cell: &String| cell.chars().count();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(length).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        let cells = cells.map(|(cell, &width)| format!("{cell:>width$}"));
        cells.collect::<Vec<_>>().join("  ")
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests;
