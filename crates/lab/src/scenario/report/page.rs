//! The report as a page: claims, charts, and the table.

use super::{LoadMachine, ScenarioReport};
use crate::page::{ChartPoint, ChartSeries, LineChart, Page};
use crate::scenario::ScenarioScale;
use crate::scenario::table::Column;

/// Columns of the table that have a chart: throughput and the latencies.
const CHARTED_COLUMNS: usize = 3;

impl ScenarioReport {
    /// One file that needs nothing else.
    pub fn html(&self) -> String {
        let mut page = Page::new(&format!("{}: {}", self.scenario.name(), self.summary()));
        page.paragraph(&format!("published: {}", self.scenario.publication()));
        page.paragraph(&self.way_of_measuring());
        for line in self.machine.iter().flat_map(LoadMachine::lines) {
            page.paragraph(&line);
        }
        if self.scale == ScenarioScale::Quick {
            page.lead("QUICK: runs are too short for figures that mean anything");
        }
        for claim in &self.claims {
            page.lead(&format!("{}: {}", claim.verdict.words(), claim.text));
            page.paragraph(&format!("looked for: {}", claim.criterion));
            if !claim.figures.is_empty() {
                page.paragraph(&format!("found: {}", claim.figures));
            }
        }
        let charts = self.scenario.charts(&self.measured);
        page.charts(&charts.unwrap_or_else(|| self.charts_of_columns()));
        page.lines(&self.numbered_table());
        for (name, why) in self.measured.missing() {
            page.paragraph(&format!("not run: {name}: {why}"));
        }
        page.html()
    }

    /// The runs that have a row, in its order.
    fn rows(&self) -> Vec<&str> {
        let first = self.scenario.columns().first();
        let runs = self.plan.runs.iter().map(|run| run.name.as_str());
        runs.filter(|run| first.is_some_and(|one| one.spread(&self.measured, run).is_some()))
            .collect()
    }

    /// The table, with the numbers that stand below the charts.
    fn numbered_table(&self) -> Vec<String> {
        let lines = self.table().into_iter().enumerate();
        let numbered = lines.map(|(number, line)| match number {
            0 => format!("     {line}"),
            number => format!("{number:>3}  {line}"),
        });
        numbered.collect()
    }

    fn charts_of_columns(&self) -> Vec<(String, String)> {
        let rows = self.rows();
        let labels: Vec<String> = (1..=rows.len()).map(|number| number.to_string()).collect();
        let columns = self.scenario.columns().iter().take(CHARTED_COLUMNS);
        let chart = |column: &Column| {
            let title = format!("{}: medians, and the range of the rounds", column.title());
            let point = |run: &&str| {
                column.spread(&self.measured, run).map(|spread| ChartPoint {
                    value: spread.median,
                    range: (spread.least, spread.most),
                    middle_half: None,
                })
            };
            let series = [ChartSeries {
                name: column.title().into(),
                points: rows.iter().map(point).collect(),
            }];
            let chart = LineChart {
                title: &title,
                labels: &labels,
                below: "runs, by their numbers in the table",
                series: &series,
                is_log: true,
            };
            let svg = chart.svg();
            (title, svg)
        };
        columns.map(chart).collect()
    }
}
