//! A comparison for people, for programs, and as a page.

use serde_json::{Map, Value, json};

use super::judge::{Comparison, Difference, Judged};
use super::side::ComparedSide;
use crate::page::{ChartPoint, ChartSeries, LineChart, Page, short};
use crate::sweep::{Measure, Spread, limits, right_aligned};

/// Cells up to which each has its rows in the text; of more only those that differ.
const SHOWN_CELLS: usize = 8;

/// Letters of the longest name of a cell that stands below a chart; longer ones have numbers.
const SHORT_LABEL: usize = 12;

/// Fields of a machine that should be the same.
const MACHINE_FIELDS: [&str; 5] = ["processor", "cpus_allowed", "quota_cpus", "way", "kernel"];

impl Comparison {
    /// The verdict in one line.
    pub fn sentence(&self) -> String {
        let told = |judged: Judged| {
            let all: Vec<String> = self.judged(judged).map(|one| self.told(one)).collect();
            all.join("; ")
        };
        let (worse, better) = (told(Judged::Worse), told(Judged::Better));
        match (worse.is_empty(), better.is_empty()) {
            (false, true) => format!("worse: {worse}"),
            (false, false) => format!("worse: {worse}. Better: {better}"),
            (true, false) => format!("better: {better}"),
            (true, true) if self.is_undecided() => format!(
                "undecided: with so few runs chance could make any difference; {} runs of each \
                 side that are not void are the fewest that can show one, and 15 find one of 7 % \
                 where runs of one side have a standard deviation of 2 %",
                self.runs_needed
            ),
            (true, true) => "no difference beyond the noise".into(),
        }
    }

    /// A difference in words.
    fn told(&self, difference: &Difference) -> String {
        let change = difference.change_percent;
        let way = match change {
            f64::INFINITY => "instead of 0".to_owned(),
            change if change < 0.0 => format!("{:.1} % lower", change.abs()),
            change => format!("{change:.1} % higher"),
        };
        format!(
            "{} {way}{}",
            difference.measure.title(),
            match (difference.cell, self.cells.len()) {
                (None, cells) => format!(" over all {cells} cells"),
                (Some(_), 1) => String::new(),
                (Some(_), _) => format!(" at {}", self.label(difference)),
            }
        )
    }

    fn label(&self, difference: &Difference) -> &str {
        let label = difference.cell.and_then(|cell| self.cells.get(cell));
        label.map_or("all cells", String::as_str)
    }

    /// The text for people: the verdict first.
    pub fn text(&self) -> String {
        let mut lines = vec![self.sentence()];
        for (letter, side) in ["A", "B"].iter().zip(&self.sides) {
            lines.push(format!("{letter}: {}", described(side)));
        }
        let (head, rows) = self.table(self.cells.len() <= SHOWN_CELLS);
        let rows: Vec<Vec<String>> = [head].into_iter().chain(rows).collect();
        lines.extend(right_aligned(&rows));
        lines.push(self.rule());
        lines.extend(self.notes());
        lines.join("\n")
    }

    /// How it is decided.
    fn rule(&self) -> String {
        format!(
            "a difference counts if it is at least {} % and its p is at most {:.4}: so two equal \
             results are said to differ in {} of 100 comparisons at most",
            limits::LEAST_EFFECT_PERCENT,
            self.level,
            limits::FALSE_POSITIVE_PERCENT
        )
    }

    fn table(&self, is_whole: bool) -> (Vec<String>, Vec<Vec<String>>) {
        let head = [
            "cell", "measure", "A", "spread", "B", "spread", "change", "p", "verdict",
        ];
        let is_shown = |one: &&Difference| {
            is_whole || one.cell.is_none() || matches!(one.judged, Judged::Better | Judged::Worse)
        };
        let row = |one: &Difference| {
            let side = |spread: Option<Spread>| match spread {
                Some(spread) => [short(spread.median), format!("{:.1} %", spread.percent())],
                None => ["–".into(), "–".into()],
            };
            let [before, before_spread] = side(one.spreads.map(|[before, _]| before));
            let [after, after_spread] = side(one.spreads.map(|[_, after]| after));
            vec![
                self.label(one).to_owned(),
                one.measure.title().to_owned(),
                before,
                before_spread,
                after,
                after_spread,
                match one.change_percent {
                    f64::INFINITY => "from 0".to_owned(),
                    percent => format!("{percent:+.1} %"),
                },
                format!("{:.4}", one.p),
                one.judged.word().to_owned(),
            ]
        };
        let rows = self.differences.iter().filter(is_shown).map(row);
        (head.map(str::to_owned).to_vec(), rows.collect())
    }

    /// What to know before it is believed.
    pub fn notes(&self) -> Vec<String> {
        let [one, other] = &self.sides;
        let mut notes = Vec::new();
        if let (Some(one), Some(other)) = (one.times_ms, other.times_ms)
            && (one.1 < other.0 || other.1 < one.0)
        {
            notes.push(
                "note: one side was measured after the other, so what changed on the machine \
                 meanwhile counts as a difference: make runs of both in turns"
                    .to_owned(),
            );
        }
        if let (Some(one), Some(other)) = (&one.machine, &other.machine) {
            let differing = MACHINE_FIELDS
                .iter()
                .filter(|name| one.get(**name) != other.get(**name));
            let differing: Vec<&str> = differing.copied().collect();
            if !differing.is_empty() {
                notes.push(format!(
                    "note: the machines differ ({}), which may be the whole difference",
                    differing.join(", ")
                ));
            }
        }
        if other.failures != one.failures {
            notes.push(format!(
                "note: {} calls failed in A, and {} in B: look at them first",
                one.failures, other.failures
            ));
        }
        for (letter, side, rest) in [("A", one, other), ("B", other, one)] {
            let only = side
                .cells
                .iter()
                .filter(|cell| rest.cell(&cell.label).is_none());
            let only = only.count();
            if only > 0 {
                notes.push(format!(
                    "note: cells only in {letter}, which are not compared: {only}"
                ));
            }
            if side.further_runs > 0 {
                notes.push(format!(
                    "note: the first {} runs of each cell are compared, and {} further ones of \
                     {letter} are not",
                    limits::MAX_COMPARED_RUNS,
                    side.further_runs
                ));
            }
        }
        notes
    }

    /// All figures under their names.
    pub fn fields(&self) -> Map<String, Value> {
        let verdict = match (self.is_worse(), self.judged(Judged::Better).next()) {
            (true, _) => "worse",
            (false, Some(_)) => "better",
            (false, None) if self.is_undecided() => "undecided",
            (false, None) => "no difference",
        };
        let sides = self.sides.iter().map(|side| {
            json!({
                "name": side.name,
                "cells": side.cells.len(),
                "runs": side.runs(),
                "void_runs": side.void_runs,
                "failures": side.failures,
            })
        });
        let differences = self.differences.iter().map(|one| {
            let median = |side: usize| {
                let spread = one.spreads.and_then(|spreads| spreads.get(side).copied());
                spread.map(|spread| spread.median)
            };
            json!({
                "cell": one.cell.map(|_| self.label(one)),
                "measure": one.measure.field(),
                "a_median": median(0),
                "b_median": median(1),
                "change_percent": (one.change_percent * 100.0).round() / 100.0,
                "p": one.p,
                "judged": one.judged.word(),
            })
        });
        let fields = json!({
            "verdict": verdict,
            "sentence": self.sentence(),
            "level": self.level,
            "least_effect_percent": limits::LEAST_EFFECT_PERCENT,
            "runs_needed": self.runs_needed,
            "sides": sides.collect::<Vec<Value>>(),
            "differences": differences.collect::<Vec<Value>>(),
            "notes": self.notes(),
        });
        match fields {
            Value::Object(fields) => fields,
            _ => Map::new(),
        }
    }

    /// One file that needs nothing else: the verdict, a chart of each measure, the table.
    pub fn html(&self) -> String {
        let [one, other] = &self.sides;
        let mut page = Page::new(&format!("{} (A) and {} (B)", one.name, other.name));
        page.lead(&self.sentence());
        for note in self.notes() {
            page.paragraph(&note);
        }
        let mut measures: Vec<Measure> = self.differences.iter().map(|one| one.measure).collect();
        measures.dedup();
        let charts = measures.into_iter().map(|measure| self.chart(measure));
        page.charts(&charts.collect::<Vec<_>>());
        let (head, rows) = self.table(true);
        page.table(&head, &rows);
        for (letter, side) in ["A", "B"].iter().zip(&self.sides) {
            page.paragraph(&format!("{letter}: {}", described(side)));
        }
        page.paragraph(&self.rule());
        page.html()
    }

    fn chart(&self, measure: Measure) -> (String, String) {
        let of_cells = || {
            let all = self.differences.iter();
            all.filter(move |one| one.measure == measure && one.cell.is_some())
        };
        let labels: Vec<String> = of_cells().map(|one| self.label(one).to_owned()).collect();
        let is_short = labels
            .iter()
            .all(|label| label.chars().count() <= SHORT_LABEL);
        let (labels, below) = match is_short {
            true => (labels, "cells"),
            false => {
                let numbers = (1..=labels.len()).map(|number| number.to_string());
                (numbers.collect(), "cells, in the order of the table")
            }
        };
        let series = [("A", 0), ("B", 1)].map(|(name, side): (&str, usize)| {
            let point = |one: &Difference| {
                let spread = one.spreads?.get(side).copied()?;
                Some(ChartPoint {
                    value: spread.median,
                    range: (spread.least, spread.most),
                    middle_half: None,
                })
            };
            ChartSeries {
                name: name.to_owned(),
                points: of_cells().map(point).collect(),
            }
        });
        let title = format!("{}: medians, and the range of the runs", measure.title());
        let svg = LineChart {
            title: &title,
            labels: &labels,
            below,
            series: &series,
            is_log: !measure.is_more_better(),
        }
        .svg();
        (title, svg)
    }
}

/// A side in words.
fn described(side: &ComparedSide) -> String {
    let void = match side.void_runs {
        0 => String::new(),
        count => format!(", {count} void ones left out"),
    };
    let cells = match side.cells.len() {
        1 => "1 cell".to_owned(),
        count => format!("{count} cells"),
    };
    let failed = match side.failures {
        0 => "no call failed".to_owned(),
        1 => "1 call failed".to_owned(),
        count => format!("{count} calls failed"),
    };
    format!(
        "{}: {} runs of {cells}{void}, {failed}",
        side.name,
        side.runs()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs with these calls a second, at so many in flight.
    fn side(name: &str, runs: &[(usize, f64)], is_void: bool) -> ComparedSide {
        let run = |(in_flight, calls): &(usize, f64)| {
            format!(
                "{{\"calls_per_s\":{calls},\"succeeded\":9,\"in_flight\":{in_flight},\
                 \"void\":{is_void}}}\n"
            )
        };
        let text: String = runs.iter().map(run).collect();
        ComparedSide::read(name.into(), text.as_bytes()).expect("results")
    }

    fn runs(cell: usize, factor: f64) -> Vec<(usize, f64)> {
        (0..6)
            .map(|run| (cell, factor * (1_000.0 + f64::from(run))))
            .collect()
    }

    fn compared(factor: f64) -> Comparison {
        let one = side("<old>", &runs(1, 1.0), false);
        let other = side("new", &runs(1, factor), false);
        Comparison::new(one, other).expect("a cell")
    }

    #[test]
    fn the_first_line_is_the_verdict() {
        let first = |factor: f64| {
            let text = compared(factor).text();
            text.lines().next().map(str::to_owned).expect("a line")
        };
        assert_eq!(first(0.9), "worse: calls/s 10.0 % lower");
        assert_eq!(first(1.25), "better: calls/s 25.0 % higher");
        assert_eq!(first(1.0), "no difference beyond the noise");
    }

    #[test]
    fn sides_cells_and_notes_are_told() {
        let mut one = side(
            "a",
            &[runs(1, 1.0), runs(2, 1.0), runs(3, 1.0)].concat(),
            false,
        );
        let mut other = side("b", &[runs(1, 0.5), runs(2, 0.5)].concat(), false);
        (one.times_ms, other.times_ms) = (Some((0, 5)), Some((6, 9)));
        one.machine = Some(Map::new());
        other.machine = Some(Map::from_iter([("way".to_owned(), json!("far"))]));
        other.failures = 3;
        let text = Comparison::new(one, other).expect("cells").text();
        for expected in [
            "worse: calls/s 50.0 % lower over all 2 cells; calls/s 50.0 % lower at in-flight=1",
            "A: a: 18 runs of 3 cells, no call failed",
            "make runs of both in turns",
            "the machines differ (way)",
            "0 calls failed in A, and 3 in B",
            "cells only in A, which are not compared: 1",
        ] {
            assert!(text.contains(expected), "{expected:?} in\n{text}");
        }
    }

    #[test]
    fn what_is_without_end_is_said_in_words() {
        let one = side("a", &runs(1, 0.0), false);
        let other = side("b", &[runs(1, 1.0), vec![(1, 5.0); 30]].concat(), false);
        let comparison = Comparison::new(one, other).expect("a cell");
        let text = comparison.text();
        assert!(text.starts_with("better: calls/s instead of 0\n"), "{text}");
        assert!(text.contains("from 0") && !text.contains("inf"), "{text}");
        assert!(text.contains("and 6 further ones of B are not"), "{text}");
        assert!(!comparison.html().contains("inf"));
        assert!(comparison.fields()["differences"][0]["change_percent"].is_null());
    }

    #[test]
    fn void_runs_are_left_out_and_said() {
        let one = side("a", &runs(1, 1.0), false);
        let void = side("b", &runs(1, 1.0), true);
        assert_eq!(
            described(&void),
            "b: 0 runs of 0 cells, 6 void ones left out, no call failed"
        );
        assert!(Comparison::new(one, void).is_none());
    }

    #[test]
    fn fields_and_page_have_the_same() {
        let comparison = compared(0.9);
        let fields = comparison.fields();
        assert_eq!(fields["verdict"], "worse");
        assert_eq!(fields["differences"][0]["change_percent"], -10.0);
        assert_eq!(fields["sides"][0]["runs"], 6);
        let page = comparison.html();
        assert!(page.contains("&lt;old&gt;") && !page.contains("<old>"));
        assert_eq!(page.matches("<svg").count(), 1);
        assert!(!page.contains("://"));
    }
}
