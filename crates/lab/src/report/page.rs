//! A run as a page: what it came to, charts, and its lines.

use hdrhistogram::Histogram;

use super::{Report, per, quantile_us, seconds, text};
use crate::page::{ChartSeries, Page, lines_with_caption, short};
use crate::run_intervals::LoadInterval;

/// Percentiles across the chart of latencies: the last is the longest call.
const PERCENTILES: [(&str, f64); 9] = [
    ("25", 0.25),
    ("50", 0.5),
    ("75", 0.75),
    ("90", 0.9),
    ("95", 0.95),
    ("99", 0.99),
    ("99.9", 0.999),
    ("99.99", 0.9999),
    ("100", 1.0),
];

/// Classes of latencies whose calls are counted, each as many times as long as the one before.
const CLASSES: usize = 30;

/// A figure of an interval; `None`: it has none.
type IntervalFigure = fn(&LoadInterval) -> Option<f64>;

impl Report {
    /// One file that needs nothing else.
    pub fn html(&self) -> String {
        self.html_with(&[])
    }

    /// The same with lines of another report about the run.
    pub(super) fn html_with(&self, lines: &[String]) -> String {
        let mut page = Page::new(&text::load(self));
        for line in text::warnings(self) {
            page.lead(&line);
        }
        page.lead(&self.summary());
        for line in text::requirements(self) {
            page.lead(&line);
        }
        for line in self.machine_lines() {
            page.paragraph(&line);
        }
        for line in lines {
            page.paragraph(line);
        }
        page.charts(&self.charts());
        let (head, rows) = self.outcomes();
        page.table(&head, &rows);
        let lines: Vec<String> = self.text_of_load().lines().map(str::to_owned).collect();
        page.lines(&lines);
        page.html()
    }

    fn summary(&self) -> String {
        let tally = &self.outcome.tally;
        let latency = |quantile| {
            let us = quantile_us(&tally.latency_ns, quantile);
            us.map_or_else(|| "–".into(), |us| format!("{} µs", short(us)))
        };
        format!(
            "{:.0} calls/s; p50 {}, p99 {}; {} of {} calls failed or did not end",
            self.calls_per_s(),
            latency(0.5),
            latency(0.99),
            self.errors(),
            self.errors() + tally.succeeded
        )
    }

    /// How calls ended: a row for each way.
    fn outcomes(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let tally = &self.outcome.tally;
        let all = self.errors() + tally.succeeded;
        let row = |(what, count): (String, u64)| {
            let share = per(count as f64 * 100.0, all);
            let share = share.map_or_else(|| "–".into(), |percent| format!("{percent:.3} %"));
            vec![what, count.to_string(), share]
        };
        let failed = tally.failed.iter();
        let failed = failed.map(|(kind, count)| (format!("failed: {kind}"), *count));
        let unfinished = tally.unfinished + tally.unfinished_before;
        let lost = [("unfinished", unfinished), ("never sent", tally.never_sent)];
        let lost = lost.into_iter().filter(|(_, count)| *count > 0);
        let lost = lost.map(|(what, count)| (what.to_owned(), count));
        let succeeded = std::iter::once(("succeeded".to_owned(), tally.succeeded));
        let rows = succeeded.chain(failed).chain(lost).map(row).collect();
        let head = ["calls", "number", "of all"].map(str::to_owned).to_vec();
        (head, rows)
    }

    fn charts(&self) -> Vec<(String, String)> {
        let charts = [
            self.percentiles(),
            self.classes(),
            self.throughput(),
            self.latencies_over_time(),
            self.failures_over_time(),
        ];
        charts.into_iter().flatten().collect()
    }

    fn percentiles(&self) -> Option<(String, String)> {
        let tally = &self.outcome.tally;
        let labels = PERCENTILES.map(|(label, _)| label.to_owned());
        let of = |name: &str, histogram: &Histogram<u64>| {
            let values = PERCENTILES.map(|(_, quantile)| quantile_us(histogram, quantile));
            ChartSeries::of_single(name, values)
        };
        let all = match self.is_open_loop() {
            false => vec![of("latency", &tally.latency_ns)],
            true => vec![
                of("corrected", &tally.latency_ns),
                of("uncorrected", &tally.uncorrected_ns),
                of("own lag", &tally.lag_ns),
            ],
        };
        lines_with_caption(
            "latency in µs by percentile",
            (&labels, "percentile"),
            &all,
            true,
        )
    }

    fn classes(&self) -> Option<(String, String)> {
        let (labels, counts) = classes_of(&self.outcome.tally.latency_ns);
        let counts = counts.into_iter().map(|count| Some(count as f64));
        let counts = ChartSeries::of_single("calls", counts);
        let across = (labels.as_slice(), "latency in µs, from");
        lines_with_caption("calls by latency", across, &[counts], false)
    }

    /// A chart over the measured time.
    fn over_time(
        &self,
        title: &str,
        figures: &[(&str, IntervalFigure)],
        is_log: bool,
    ) -> Option<(String, String)> {
        let intervals = &self.outcome.intervals;
        let digits = if self.outcome.elapsed_ns < 10_000_000_000 {
            2
        } else {
            1
        };
        let end = |interval: &LoadInterval| format!("{:.digits$}", seconds(interval.until_ns));
        let labels: Vec<String> = intervals.iter().map(end).collect();
        let all: Vec<ChartSeries> = (figures.iter())
            .map(|(name, figure)| ChartSeries::of_single(name, intervals.iter().map(figure)))
            .collect();
        let across = (labels.as_slice(), "seconds of the measured time, until");
        lines_with_caption(title, across, &all, is_log)
    }

    fn throughput(&self) -> Option<(String, String)> {
        let figures: [(&str, IntervalFigure); 1] = [("calls/s", |interval| {
            let length_ns = interval.until_ns.saturating_sub(interval.from_ns);
            per(interval.ended as f64 * 1e9, length_ns)
        })];
        self.over_time("calls each second", &figures, false)
    }

    fn latencies_over_time(&self) -> Option<(String, String)> {
        let figures: [(&str, IntervalFigure); 3] = [
            ("p50", |interval| us(interval.p50_ns)),
            ("p99", |interval| us(interval.p99_ns)),
            ("longest", |interval| us(interval.most_ns)),
        ];
        self.over_time("latency in µs over time", &figures, true)
    }

    fn failures_over_time(&self) -> Option<(String, String)> {
        let mut intervals = self.outcome.intervals.iter();
        intervals.find(|interval| interval.failed > 0)?;
        let figures: [(&str, IntervalFigure); 1] =
            [("failed", |interval| Some(interval.failed as f64))];
        self.over_time("calls that failed, over time", &figures, false)
    }
}

fn us(ns: Option<u64>) -> Option<f64> {
    ns.map(|ns| ns as f64 / 1e3)
}

/// Calls by their latencies: where each class begins, in microseconds, and how many lie in it.
fn classes_of(histogram: &Histogram<u64>) -> (Vec<String>, Vec<u64>) {
    if histogram.is_empty() {
        return (Vec::new(), Vec::new());
    }
    let least = histogram.min().max(1) as f64;
    let factor = (histogram.max() as f64 / least)
        .max(1.0)
        .powf(1.0 / CLASSES as f64);
    let are_alike = histogram.equivalent(histogram.min(), histogram.max());
    let classes = if are_alike { 1 } else { CLASSES };
    let mut counts = vec![0; classes];
    for recorded in histogram.iter_recorded() {
        let times = recorded.value_iterated_to() as f64 / least;
        let class = (times.ln() / factor.ln()).max(0.0) as usize;
        if let Some(count) = counts.get_mut(class.min(classes - 1)) {
            *count += recorded.count_since_last_iteration();
        }
    }
    let from_us = |class: usize| short(least * factor.powi(class as i32) / 1e3);
    ((0..classes).map(from_us).collect(), counts)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{outcome, plan, report};
    use super::*;
    use crate::failure::FailureKind;
    use crate::machine::{KernelFiles, LoadMachine, OnMachine, TargetPlace};
    use crate::pacing::{Arrivals, Pace};

    #[test]
    fn a_page_has_charts_of_latencies_and_of_the_time() {
        let machine = LoadMachine::read(&KernelFiles, &TargetPlace::Unix, None);
        let html = report(Pace::Closed, outcome()).on_machine(machine).html();
        assert_eq!(html.matches("<svg").count(), 4, "{html}");
        assert!(html.contains("<p class=\"lead\">1000 calls/s; p50 500 µs, p99 990 µs; 0 of"));
        assert!(
            html.contains("<p>machine: ") && html.contains("calls: 1000 succeeded"),
            "{html}"
        );
        assert!(
            html.contains("<td>succeeded</td><td>1000</td><td>100.000 %</td>"),
            "{html}"
        );
        // Four quarters of the second, and its three lines.
        assert!(html.contains("longest 1.00: 1000"), "{html}");
        assert!(!html.contains("VOID"));
    }

    #[test]
    fn failures_have_rows_and_a_chart() {
        let mut failing = outcome();
        failing
            .tally
            .fail(FailureKind::Status(14), 250, || "<full>".into());
        failing.tally.unfinished = 50;
        failing.intervals[1].failed = 250;
        let html = report(Pace::Closed, failing).html();
        assert_eq!(html.matches("<svg").count(), 5, "{html}");
        assert!(html.contains("<td>250</td><td>19.231 %</td>"), "{html}");
        assert!(html.contains("<td>unfinished</td><td>50</td>"), "{html}");
        assert!(html.contains("&lt;full&gt;") && !html.contains("<full>"));
    }

    #[test]
    fn an_open_loop_has_a_line_for_each_latency_and_its_warnings_first() {
        let pace = Pace::Open {
            rate: 1_000.0,
            arrivals: Arrivals::Fixed,
        };
        let mut void = outcome();
        void.tally.due = 500;
        void.busiest_percent = Some(99.0);
        let html = report(pace, void).html();
        for name in ["corrected", "uncorrected", "own lag"] {
            assert!(html.contains(&format!(">{name}</text>")), "{name}: {html}");
        }
        let lead = html.find("class=\"lead\"").expect("there is one");
        assert!(html[lead..].starts_with("class=\"lead\">VOID: "), "{html}");
    }

    #[test]
    fn a_run_without_a_call_has_no_chart() {
        let mut nothing = outcome();
        nothing.tally = crate::measure::Tally::default();
        nothing.intervals = Vec::new();
        let html = Report::new("x".into(), &plan(Pace::Closed), nothing, 1).html();
        assert_eq!(html.matches("<svg").count(), 0, "{html}");
        assert!(html.contains("p50 –"));
    }

    #[test]
    fn each_call_is_in_one_class() {
        let mut histogram = crate::measure::histogram();
        assert_eq!(classes_of(&histogram), (vec![], vec![]));
        histogram.record_n(5_000, 7).expect("in range");
        assert_eq!(classes_of(&histogram).1, [7]);
        histogram.record_n(5_000_000, 11).expect("in range");
        histogram.record_n(70_000, 13).expect("in range");
        let (labels, counts) = classes_of(&histogram);
        assert_eq!((labels.len(), counts.len()), (CLASSES, CLASSES));
        assert_eq!((counts[0], counts[CLASSES - 1]), (7, 11));
        assert_eq!(counts.iter().sum::<u64>(), 31);
        assert_eq!(labels[0], "5");
    }
}
