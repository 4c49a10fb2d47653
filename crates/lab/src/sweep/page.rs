//! A sweep as a page with charts.

use super::axis::SweepAxis;
use super::figures::{Measure, Spread};
use super::report::SweepReport;
use crate::page::{ChartPoint, ChartSeries, HeatMap, LineChart, Page, PointChart};

/// The percentiles that are drawn where there is room for all.
const PERCENTILES: [Measure; 4] = [Measure::P50, Measure::P90, Measure::P99, Measure::P999];

impl SweepReport {
    /// One file that needs nothing else: charts, the table, and the machine.
    pub fn html(&self) -> String {
        let axes = self.results.axes();
        let title = format!("{} swept on {}", axes.names(), self.setting.target);
        let mut page = Page::new(&title);
        for line in self.preface() {
            page.paragraph(&line);
        }
        for finding in self.findings() {
            page.lead(&finding);
        }
        page.charts(&self.charts());
        let (head, rows) = self.table();
        page.table(&head, &rows);
        page.html()
    }

    fn charts(&self) -> Vec<(String, String)> {
        match self.results.axes().axes() {
            [across] => self.charts_of_one(across),
            [across, other] => self.charts_of_two(across, other),
            _ => Vec::new(),
        }
    }

    fn charts_of_one(&self, across: &SweepAxis) -> Vec<(String, String)> {
        let throughput = self.results.throughput();
        let own = |measure: Measure| self.series(measure.title(), measure, across, None);
        let mut charts = vec![
            self.lines(throughput.title(), across, &[own(throughput)], false),
            self.lines("latency in µs", across, &PERCENTILES.map(own), true),
            self.throughput_by_latency(across, &[(across.parameter.name().to_owned(), None)]),
        ];
        let cpu = [Measure::ServerCpu, Measure::OwnCpu].map(own);
        let is_measured = |series: &ChartSeries| series.points.iter().any(Option::is_some);
        let cpu: Vec<ChartSeries> = cpu.into_iter().filter(is_measured).collect();
        if !cpu.is_empty() {
            charts.push(self.lines("CPU time of a call in µs", across, &cpu, false));
        }
        charts
    }

    fn charts_of_two(&self, across: &SweepAxis, other: &SweepAxis) -> Vec<(String, String)> {
        let throughput = self.results.throughput();
        let names: Vec<(String, Option<usize>)> = (other.values.iter().enumerate())
            .map(|(place, value)| (format!("{}={value}", other.parameter.name()), Some(place)))
            .collect();
        let all = |measure: Measure| -> Vec<ChartSeries> {
            let series = names.iter();
            let series = series.map(|(name, place)| self.series(name, measure, across, *place));
            series.collect()
        };
        vec![
            self.fields_of(throughput, across, other),
            self.fields_of(Measure::P99, across, other),
            self.lines(throughput.title(), across, &all(throughput), false),
            self.lines("99th percentile in µs", across, &all(Measure::P99), true),
            self.throughput_by_latency(across, &names),
        ]
    }

    /// The cell of two numbers of values.
    fn spread(&self, measure: Measure, value: usize, other: Option<usize>) -> Option<Spread> {
        let places: Vec<usize> = [Some(value), other].into_iter().flatten().collect();
        let cell = self.results.axes().cell_at(&places);
        self.results.cell(cell).spread(measure)
    }

    fn series(
        &self,
        name: &str,
        measure: Measure,
        across: &SweepAxis,
        other: Option<usize>,
    ) -> ChartSeries {
        let point = |value: usize| {
            let spread = self.spread(measure, value, other)?;
            Some(ChartPoint {
                value: spread.median,
                range: (spread.least, spread.most),
                middle_half: None,
            })
        };
        ChartSeries {
            name: name.to_owned(),
            points: (0..across.values.len()).map(point).collect(),
        }
    }

    fn lines(
        &self,
        what: &str,
        across: &SweepAxis,
        series: &[ChartSeries],
        is_log: bool,
    ) -> (String, String) {
        let name = across.parameter.name();
        let title = format!("{what} by {name}: medians, and the range of the runs");
        let svg = LineChart {
            title: &title,
            labels: &across.values,
            below: name,
            series,
            is_log,
        }
        .svg();
        (title, svg)
    }

    fn throughput_by_latency(
        &self,
        across: &SweepAxis,
        names: &[(String, Option<usize>)],
    ) -> (String, String) {
        let throughput = self.results.throughput();
        let series: Vec<_> = names
            .iter()
            .map(|(name, other)| {
                let point = |(value, label): (usize, &String)| {
                    let right = self.spread(throughput, value, *other)?.median;
                    let up = self.spread(Measure::P99, value, *other)?.median;
                    Some((right, up, label.clone()))
                };
                let points = across.values.iter().enumerate().filter_map(point);
                (name.clone(), points.collect::<Vec<_>>())
            })
            .collect();
        let title = format!(
            "99th percentile in µs by {}, for each {}",
            throughput.title(),
            across.parameter.name()
        );
        let svg = PointChart {
            title: &title,
            below: throughput.title(),
            series: &series,
        }
        .svg();
        (title, svg)
    }

    fn fields_of(
        &self,
        measure: Measure,
        across: &SweepAxis,
        other: &SweepAxis,
    ) -> (String, String) {
        let row = |place: usize| -> Vec<Option<f64>> {
            let values = 0..across.values.len();
            let median = |value| Some(self.spread(measure, value, Some(place))?.median);
            values.map(median).collect()
        };
        let values: Vec<Vec<Option<f64>>> = (0..other.values.len()).map(row).collect();
        let svg = HeatMap {
            title: measure.title(),
            across: (across.parameter.name(), &across.values),
            upward: (other.parameter.name(), &other.values),
            values: &values,
        }
        .svg();
        (format!("{}, medians", measure.title()), svg)
    }
}
