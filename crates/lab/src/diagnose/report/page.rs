//! The report as a page: what was decided, charts of the experiments, and their rows.

use super::{
    ClientEvidence, ClientRun, DiagnosisReport, LoadEvidence, LoadMachine, LoadPoint,
    ReportedEvidence, client_rows, client_runs, conditions_of, load_rows,
};
use crate::page::{ChartSeries, Page, PointChart, lines_with_caption};

impl DiagnosisReport {
    /// One file that needs nothing else.
    pub fn html(&self) -> String {
        let it = &self.diagnosis;
        let mut page = Page::new(&it.sentence);
        if let Some(change) = &it.change {
            page.lead(&format!("change: {}", change.text));
        }
        for (word, texts) in [
            ("for", &it.evidence_for),
            ("against", &it.evidence_against),
            ("needs", &it.needs),
        ] {
            for text in texts {
                page.paragraph(&format!("{word}: {text}"));
            }
        }
        for line in self.machine.iter().flat_map(LoadMachine::lines) {
            page.paragraph(&line);
        }
        page.paragraph(&self.subject);
        let (charts, rows) = match &self.evidence {
            ReportedEvidence::Load(load) => (load_charts(load), load_rows(load)),
            ReportedEvidence::Client(client) => (client_charts(client), client_rows(client)),
        };
        page.charts(&charts);
        page.lines(&rows);
        page.html()
    }
}

fn series<'a, T: 'a>(
    name: &str,
    of: impl IntoIterator<Item = &'a T>,
    figure: impl Fn(&T) -> Option<f64>,
) -> ChartSeries {
    ChartSeries::of_single(name, of.into_iter().map(figure))
}

/// Of the experiments on one connection, which have ever more calls in flight.
fn load_charts(load: &LoadEvidence) -> Vec<(String, String)> {
    let one = &load.one;
    let labels: Vec<String> = one
        .iter()
        .map(|point| point.in_flight.to_string())
        .collect();
    let across = (labels.as_slice(), "calls in flight on one connection");
    let us = |ns: u64| Some(ns as f64 / 1e3);
    let rate = [series("calls each second", one, |point: &LoadPoint| {
        Some(point.rate)
    })];
    let latencies = [
        series("p50", one, |point: &LoadPoint| us(point.p50_ns)),
        series("p99", one, |point: &LoadPoint| us(point.p99_ns)),
    ];
    let cpus = [
        series("server", one, |point: &LoadPoint| {
            point.server.as_ref().map(|server| server.cpus)
        }),
        series("generator's thread", one, |point: &LoadPoint| {
            point.generator_busy
        }),
    ];
    let pairs = one.iter().zip(&labels);
    let pairs = pairs.map(|(point, label)| (point.rate, point.p99_ns as f64 / 1e3, label.clone()));
    let title = "99th percentile in µs over calls each second, by calls in flight";
    let against = PointChart {
        title,
        below: "calls each second",
        series: &[("in flight".to_owned(), pairs.collect())],
    };
    let charts = [
        lines_with_caption("calls each second", across, &rate, false),
        lines_with_caption("latency in µs", across, &latencies, true),
        (!one.is_empty()).then(|| (title.to_owned(), against.svg())),
        lines_with_caption("CPUs in use", across, &cpus, false),
    ];
    charts.into_iter().flatten().collect()
}

fn client_charts(client: &ClientEvidence) -> Vec<(String, String)> {
    let runs: Vec<&ClientRun> = client_runs(client).collect();
    let numbered = |(index, run): (usize, &&ClientRun)| match runs.len() {
        ..4 => conditions_of(client, run),
        _ => format!("run {}", index + 1),
    };
    let labels: Vec<String> = runs.iter().enumerate().map(numbered).collect();
    let across = (
        labels.as_slice(),
        "runs of the client, in the order of the rows below",
    );
    let of = |name: &str, figure: fn(&ClientRun) -> f64| {
        series(name, runs.iter().copied(), |run| Some(figure(run)))
    };
    let charts = [
        lines_with_caption(
            "calls each second",
            across,
            &[of("calls each second", |run| run.rate)],
            false,
        ),
        lines_with_caption(
            "part of the time in which a side was the one to move",
            across,
            &[
                of("client", |run| run.client_share),
                of("server", |run| run.server_share),
            ],
            false,
        ),
    ];
    charts.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::client_verdict::judge_client;
    use super::super::super::load_verdict::judge_load;
    use super::super::super::tests::{SERIAL, client, load};
    use super::*;

    #[test]
    fn experiments_are_drawn_over_calls_in_flight() {
        let evidence = load(SERIAL, 1.0);
        let experiments = evidence.one.len();
        let report = DiagnosisReport::of_load("<calls>".into(), judge_load(&evidence), evidence);
        let html = report.html();
        assert_eq!(html.matches("<svg").count(), 4, "{html}");
        assert!(html.contains("&lt;calls&gt;") && html.contains("<h1>one call at a time"));
        // Three lines of circles, and the two that stand in keys.
        assert_eq!(html.matches("<circle").count(), 4 * experiments + 2);
        assert!(html.contains("connections in flight"), "the rows: {html}");
    }

    #[test]
    fn what_was_not_seen_has_no_chart() {
        let mut evidence = load(SERIAL, 1.0);
        for point in &mut evidence.one {
            (point.server, point.generator_busy) = (None, None);
        }
        let report = DiagnosisReport::of_load("a".into(), judge_load(&evidence), evidence);
        assert_eq!(report.html().matches("<svg").count(), 3);
    }

    #[test]
    fn without_an_experiment_there_is_no_chart() {
        let mut evidence = load(SERIAL, 1.0);
        evidence.one.clear();
        let report = DiagnosisReport::of_load("a".into(), judge_load(&evidence), evidence);
        assert_eq!(report.html().matches("<svg").count(), 0);
    }

    #[test]
    fn runs_of_a_client_are_drawn_in_their_order() {
        let evidence = client(1.0, 0.98, 1.0);
        let report = DiagnosisReport::of_client("a".into(), judge_client(&evidence), evidence);
        let html = report.html();
        assert_eq!(html.matches("<svg").count(), 2, "{html}");
        assert!(html.contains(">run 5</text>") && html.contains("at most 4 open"));
    }
}
