//! The table and the CSV lines of the YDB project's ping benchmark.

use serde_json::{Value, json};

use super::{per, quantile_us, seconds};
use crate::run::LoadOutcome;

/// Names of the columns, and of those of the CSV lines.
const COLUMNS: [(&str, &str); 7] = [
    ("Inflight", "inflight"),
    ("Throughput (req/s)", "throughput"),
    ("P50 (us)", "p50"),
    ("P90 (us)", "p90"),
    ("P99 (us)", "p99"),
    ("P99.9 (us)", "p99_9"),
    ("P100 (us)", "p100"),
];

const QUANTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 1.0];

/// The same for the figures of each worker.
const WORKER_COLUMNS: [(&str, &str); 2] = [
    ("Worker ID", "worker"),
    ("Throughput (req/s)", "throughput"),
];

/// Runs with one number of pings in flight each.
#[derive(Clone, Debug, Default)]
pub struct PingTable {
    rows: Vec<Row>,
    /// Of the last run: answers a second of each ping in flight, which the original calls a worker.
    workers: Vec<f64>,
}

#[derive(Clone, Debug)]
struct Row {
    in_flight: usize,
    /// Answers a second.
    throughput: f64,
    /// Whole microseconds, as the original's clock gives them.
    quantiles_us: [u64; 5],
}

impl PingTable {
    /// Adds a run.
    pub fn add(&mut self, in_flight: usize, outcome: &LoadOutcome) {
        let tally = &outcome.tally;
        let per_s = |ended: u64| per(ended as f64 * 1e9, outcome.elapsed_ns).unwrap_or(0.0);
        // A worker that nothing came back to has a row too.
        let by_place = tally.ended_by_place.iter().copied();
        let by_place = by_place.chain(std::iter::repeat(0)).take(in_flight);
        self.workers = by_place.map(per_s).collect();
        self.rows.push(Row {
            in_flight,
            throughput: per_s(tally.ended_in_window),
            quantiles_us: QUANTILES
                .map(|quantile| quantile_us(&tally.latency_ns, quantile).unwrap_or(0.0) as u64),
        });
    }

    /// The summary table.
    pub fn text(&self) -> String {
        table(&COLUMNS, self.rows.iter().map(Row::cells))
    }

    /// A line of names, and one of figures for each run.
    pub fn csv(&self) -> String {
        comma_separated(&COLUMNS, self.rows.iter().map(Row::cells))
    }

    /// The table of the workers of the last run.
    pub fn workers_text(&self) -> String {
        table(&WORKER_COLUMNS, self.worker_cells())
    }

    /// The same as lines of CSV.
    pub fn workers_csv(&self) -> String {
        comma_separated(&WORKER_COLUMNS, self.worker_cells())
    }

    /// One object for each worker of the last run.
    pub fn workers(&self) -> impl Iterator<Item = Value> + '_ {
        let workers = self.workers.iter().enumerate();
        workers.map(|(worker, per_s)| json!({ "worker": worker, "calls_per_s": per_s }))
    }

    fn worker_cells(&self) -> impl Iterator<Item = [String; 2]> + '_ {
        let workers = self.workers.iter().enumerate();
        workers.map(|(worker, per_s)| [worker.to_string(), format!("{per_s:.2}")])
    }

    /// One object for each run.
    pub fn rows(&self) -> impl Iterator<Item = Value> + '_ {
        self.rows.iter().map(|row| {
            let [p50, p90, p99, p999, p100] = row.quantiles_us;
            json!({
                "in_flight": row.in_flight,
                "calls_per_s": row.throughput,
                "p50_us": p50,
                "p90_us": p90,
                "p99_us": p99,
                "p999_us": p999,
                "max_us": p100,
            })
        })
    }

    /// What the original prints of each run while it goes on.
    pub fn last_run(&self, connections: usize, outcome: &LoadOutcome) -> String {
        let Some(row) = self.rows.last() else {
            return String::new();
        };
        let [p50, p90, p99, p999, p100] = row.quantiles_us;
        format!(
            "in flight {}, connections {connections}: {} requests in {:.3} s, {:.2} req/s, \
             p50 {p50} us, p90 {p90} us, p99 {p99} us, p99.9 {p999} us, p100 {p100} us",
            row.in_flight,
            outcome.tally.ended_in_window,
            seconds(outcome.elapsed_ns),
            row.throughput,
        )
    }
}

/// Columns between bars, a rule of dashes below their names.
fn table<const COUNT: usize>(
    columns: &[(&str, &str); COUNT],
    rows: impl Iterator<Item = [String; COUNT]>,
) -> String {
    let names = columns.map(|(name, _)| name);
    let head = names.join(" | ");
    let mut lines = vec![head.clone(), "-".repeat(head.len())];
    for row in rows {
        let cells = row.iter().zip(names);
        let cells: Vec<String> = cells
            .map(|(cell, name)| format!("{cell:>width$}", width = name.len()))
            .collect();
        lines.push(cells.join(" | "));
    }
    lines.join("\n")
}

fn comma_separated<const COUNT: usize>(
    columns: &[(&str, &str); COUNT],
    rows: impl Iterator<Item = [String; COUNT]>,
) -> String {
    let mut lines = vec![columns.map(|(_, name)| name).join(",")];
    lines.extend(rows.map(|row| row.join(",")));
    lines.join("\n")
}

impl Row {
    fn cells(&self) -> [String; 7] {
        let [p50, p90, p99, p999, p100] = self.quantiles_us.map(|us| us.to_string());
        let throughput = format!("{:.2}", self.throughput);
        [
            self.in_flight.to_string(),
            throughput,
            p50,
            p90,
            p99,
            p999,
            p100,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::outcome;
    use super::*;

    #[test]
    fn table_and_lines_have_the_columns_of_the_original() {
        let table = PingTable {
            rows: vec![Row {
                in_flight: 32,
                throughput: 1234.5,
                quantiles_us: [10, 20, 30, 40, 50],
            }],
            workers: vec![1000.25, 234.25],
        };
        let text = table.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "Inflight | Throughput (req/s) | P50 (us) | P90 (us) | P99 (us) | P99.9 (us) | P100 \
             (us)"
        );
        assert!(lines[1].chars().all(|one| one == '-') && lines[1].len() == lines[0].len());
        let cells: Vec<&str> = lines[2].split(" | ").map(str::trim).collect();
        assert_eq!(cells, ["32", "1234.50", "10", "20", "30", "40", "50"]);
        assert_eq!(
            table.csv(),
            "inflight,throughput,p50,p90,p99,p99_9,p100\n32,1234.50,10,20,30,40,50"
        );
        let workers = table.workers_text();
        let lines: Vec<&str> = workers.lines().collect();
        assert_eq!(lines[0], "Worker ID | Throughput (req/s)");
        assert_eq!(lines[1], "-".repeat(lines[0].len()));
        assert_eq!(lines[2], "        0 |            1000.25");
        assert_eq!(lines.len(), 4);
        assert_eq!(
            table.workers_csv(),
            "worker,throughput\n0,1000.25\n1,234.25"
        );
    }

    /// Two seconds with three in flight, of which one was answered nothing; a latency of each size
    /// up to 1 ms.
    #[test]
    fn figures_follow_from_the_run() {
        let mut table = PingTable::default();
        let mut outcome = outcome();
        outcome.elapsed_ns = 2_000_000_000;
        outcome.tally.ended_in_window = 501;
        outcome.tally.ended_by_place = vec![500, 1];
        assert_eq!(table.last_run(2, &outcome), "", "there was none");
        table.add(1, &outcome);
        table.add(3, &outcome);
        let row = "501 requests in 2.000 s, 250.50 req/s, p50 500 us, p90 900 us, p99 990 us, \
                   p99.9 999 us, p100 1000 us";
        assert_eq!(
            table.last_run(2, &outcome),
            format!("in flight 3, connections 2: {row}")
        );
        let rows: Vec<Value> = table.rows().collect();
        assert_eq!(rows.len(), 2);
        assert_eq!(
            rows[1],
            json!({
                "in_flight": 3,
                "calls_per_s": 250.5,
                "p50_us": 500,
                "p90_us": 900,
                "p99_us": 990,
                "p999_us": 999,
                "max_us": 1_000,
            })
        );
        let workers: Vec<Value> = table.workers().collect();
        let expected = [250.0, 0.5, 0.0];
        let expected = expected.iter().enumerate();
        let expected: Vec<Value> = expected
            .map(|(worker, per_s)| json!({ "worker": worker, "calls_per_s": per_s }))
            .collect();
        assert_eq!(workers, expected, "of the last run");
        assert_eq!(table.text().lines().count(), 4);
        assert_eq!(table.csv().lines().count(), 3);
    }

    #[test]
    fn a_run_that_was_over_at_once_has_no_throughput() {
        let mut table = PingTable::default();
        let mut outcome = outcome();
        outcome.elapsed_ns = 0;
        outcome.tally.latency_ns.clear();
        table.add(1, &outcome);
        let row = table.rows().next().expect("it is there");
        assert_eq!(
            (&row["calls_per_s"], &row["p50_us"]),
            (&json!(0.0), &json!(0))
        );
    }
}
