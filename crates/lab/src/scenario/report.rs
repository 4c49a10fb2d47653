//! What a scenario has shown, for people and for programs.

mod page;

use serde_json::{Map, Value, json};

use super::Scenario;
use super::claim::Claim;
use super::measurements::{MeasuredRun, Measurements};
use super::plan::{PublishedCount, ScenarioPlan, ScenarioScale};
use super::table::{Column, number};
use crate::machine::{LoadMachine, OnMachine};

/// What a scenario has shown, and what that says of the publication.
#[derive(Clone, Debug)]
pub struct ScenarioReport {
    scenario: Scenario,
    scale: ScenarioScale,
    plan: ScenarioPlan,
    seed: u64,
    measured: Measurements,
    claims: Vec<Claim>,
    machine: Option<LoadMachine>,
}

impl OnMachine for ScenarioReport {
    fn set_machine(&mut self, machine: LoadMachine) {
        self.machine = Some(machine);
    }
}

impl ScenarioReport {
    /// Judges what was measured by a plan, whose runs came in the order that `seed` drew.
    pub fn new(
        (scenario, scale): (Scenario, ScenarioScale),
        plan: ScenarioPlan,
        seed: u64,
        measured: Measurements,
    ) -> ScenarioReport {
        ScenarioReport {
            claims: scenario.judge(&measured),
            scenario,
            scale,
            plan,
            seed,
            measured,
            machine: None,
        }
    }

    /// The claims, each with what became of it.
    pub fn claims(&self) -> &[Claim] {
        &self.claims
    }

    /// Whether anything was measured at all.
    pub fn has_runs(&self) -> bool {
        !self.measured.runs().is_empty()
    }

    /// Lines for people.
    pub fn text(&self) -> String {
        let mut lines = vec![
            format!("{}: {}", self.scenario.name(), self.summary()),
            format!("  published: {}", self.scenario.publication()),
            format!("  {}", self.way_of_measuring()),
        ];
        let machine = self.machine.iter().flat_map(LoadMachine::lines);
        lines.extend(machine.map(|line| format!("  {line}")));
        if self.scale == ScenarioScale::Quick {
            lines.push("  QUICK: runs are too short for figures that mean anything".into());
        }
        lines.extend(self.table());
        for claim in &self.claims {
            lines.push(String::new());
            lines.push(format!("claim: {}", claim.text));
            lines.push(format!("  looked for: {}", claim.criterion));
            if !claim.figures.is_empty() {
                lines.push(format!("  found: {}", claim.figures));
            }
            lines.push(format!("  => {}", claim.verdict.words()));
        }
        let missing: Vec<(&str, &str)> = self.measured.missing().collect();
        if !missing.is_empty() {
            lines.push(String::new());
        }
        for (name, why) in missing {
            lines.push(format!("not run: {name}: {why}"));
        }
        lines.join("\n")
    }

    fn way_of_measuring(&self) -> String {
        format!(
            "here: {}, in a random order (seed {}); medians, with the smallest and the largest",
            rounds(self.plan.rounds),
            self.seed
        )
    }

    fn summary(&self) -> String {
        let of = |name| {
            let claims = self.claims.iter();
            claims.filter(|claim| claim.verdict.name() == name).count()
        };
        format!(
            "of {} claims {} reproduced, {} not, {} cannot be seen here",
            self.claims.len(),
            of("reproduced"),
            of("not-reproduced"),
            of("cannot-be-seen"),
        )
    }

    fn table(&self) -> Vec<String> {
        let width = self.plan.runs.iter().map(|run| run.name.chars().count());
        let width = width.max().unwrap_or(0);
        let has_published = self.plan.runs.iter().any(|run| run.published.is_some());
        let mut runs = self.plan.runs.iter();
        let counts_else = runs.any(|run| run.counted != PublishedCount::Calls);
        let published = |ours: &str, text: &str| match (has_published, counts_else) {
            (true, true) => format!(" {ours:>11}  {text}"),
            (true, false) => format!("  {text}"),
            (false, _) => String::new(),
        };
        let columns = self.scenario.columns();
        let heads: String = columns.iter().map(Column::head).collect();
        let mut lines = vec![format!(
            "{:<width$}{heads}{}",
            "run",
            published("so counted", "published")
        )];
        for run in &self.plan.runs {
            let cell = |column: &Column| column.cell(&self.measured, &run.name);
            if columns.first().and_then(cell).is_none() {
                continue;
            }
            let cells = columns.iter();
            let cells: String = cells
                .map(|column| cell(column).unwrap_or_else(|| column.empty_cell()))
                .collect();
            let so_counted = self.measured.median(&run.name, |it| run.counted.per_s(it));
            let so_counted = so_counted.map_or_else(|| "–".into(), number);
            let published = published(&so_counted, run.published.unwrap_or(""));
            let row = format!("{:<width$}{cells}{published}", run.name);
            lines.push(row.trim_end().to_owned());
        }
        lines
    }

    /// For a scenario that has such files: for each kind of run its name, and the lines that the
    /// original of the experiment prints.
    pub fn csv(&self) -> Option<Vec<(&'static str, String)>> {
        self.scenario.csv(&self.measured)
    }

    /// All of it under names.
    pub fn fields(&self) -> Map<String, Value> {
        let claims = self.claims.iter().map(|claim| {
            json!({
                "claim": claim.text,
                "criterion": claim.criterion,
                "verdict": claim.verdict.name(),
                "words": claim.verdict.words(),
                "figures": claim.figures,
            })
        });
        let missing = self.measured.missing();
        let missing = missing.map(|(run, why)| json!({"run": run, "why": why}));
        let mut fields = Map::new();
        let mut put = |name: &str, value: Value| fields.insert(name.into(), value);
        put("scenario", json!(self.scenario.name()));
        put("publication", json!(self.scenario.publication()));
        put(
            "machine",
            json!(self.machine.as_ref().map(LoadMachine::fields)),
        );
        put("quick", json!(self.scale == ScenarioScale::Quick));
        put("rounds", json!(self.plan.rounds));
        put("seed", json!(self.seed));
        put("claims", claims.collect());
        put(
            "runs",
            self.measured.runs().iter().map(run_fields).collect(),
        );
        put("not_run", missing.collect());
        fields
    }
}

fn rounds(count: usize) -> String {
    match count {
        1 => "each run once".into(),
        2 => "each run twice".into(),
        count => format!("each run {count} times"),
    }
}

fn run_fields(run: &MeasuredRun) -> Value {
    json!({
        "run": run.name,
        "seconds": run.elapsed_ns as f64 / 1e9,
        "client_cpu_s": run.client_cpu_ns.map(|ns| ns as f64 / 1e9),
        "server_cpu_s": run.server_cpu_ns.map(|ns| ns as f64 / 1e9),
        "client_peak_bytes": run.client_peak_bytes,
        "client_figures": run.figures,
        "relay_figures": run.relay,
    })
}

#[cfg(test)]
mod tests {
    use super::super::claim::tests::add;
    use super::*;

    fn report(scale: ScenarioScale) -> ScenarioReport {
        let scenario = Scenario::ConnectionModes;
        let mut measured = Measurements::default();
        for rate in [40_000.0, 44_000.0, 42_000.0] {
            let figures = [("calls_per_s", rate), ("p50_us", 12.34), ("p99_us", 5.678)];
            add(&mut measured, "single × 256", &figures);
        }
        add(&mut measured, "pooled × 256", &[("calls_per_s", 20_000.0)]);
        measured.add_missing("srpc × 64", "it was interrupted");
        ScenarioReport::new((scenario, scale), scenario.plan(scale), 7, measured)
    }

    #[test]
    fn the_page_has_all_claims_and_numbers_what_is_drawn() {
        let html = report(ScenarioScale::Short).html();
        assert!(
            html.contains("<h1>connection-modes: of 10 claims 1 reproduced, "),
            "{html}"
        );
        assert_eq!(html.matches("looked for: ").count(), 10);
        assert_eq!(html.matches("<svg").count(), 3, "{html}");
        assert!(html.contains("  1  single × 256 ") && html.contains("  2  pooled × 256 "));
        assert!(
            html.contains("calls/s 1: 42k (runs from 40k to 44k)"),
            "{html}"
        );
        assert!(html.contains("not run: srpc × 64: it was interrupted"));
        assert!(!html.contains("QUICK"));
        assert!(report(ScenarioScale::Quick).html().contains("QUICK"));
    }

    #[test]
    fn the_text_has_the_rows_and_all_claims() {
        let text = report(ScenarioScale::Short).text();
        assert!(
            text.starts_with("connection-modes: of 10 claims 1 reproduced, "),
            "{text}"
        );
        assert!(
            text.contains("42000         (40000–44000)      12.3      5.68"),
            "{text}"
        );
        assert!(
            text.contains("42000 against 20000 calls/s: × 2.10\n  => reproduced"),
            "{text}"
        );
        assert!(
            text.contains("not run: srpc × 64: it was interrupted"),
            "{text}"
        );
        assert_eq!(text.matches("\nclaim: ").count(), 10);
        assert!(
            text.contains("each run 3 times, in a random order (seed 7)"),
            "{text}"
        );
        assert!(!text.contains("QUICK"), "{text}");
        assert!(report(ScenarioScale::Quick).text().contains("\n  QUICK: "));
        assert!(
            !text.contains("srpc × 256 "),
            "a run that was not made has no row: {text}"
        );
    }

    /// A table beside a published one counts what that one counts.
    #[test]
    fn a_batch_is_shown_as_its_records() {
        let (scenario, scale) = (Scenario::ServerModes, ScenarioScale::Short);
        let mut measured = Measurements::default();
        add(
            &mut measured,
            "Set batch 100, Sy × 4",
            &[("calls_per_s", 9_000.0)],
        );
        let stream = [
            ("calls_per_s", 300.0),
            ("messages_received_per_s", 15_000.0),
        ];
        add(&mut measured, "Set stream, Sy × 1", &stream);
        let plan = scenario.plan(scale);
        let text = ScenarioReport::new((scenario, scale), plan, 7, measured).text();
        assert!(text.contains(" so counted  published\n"), "{text}");
        assert!(text.contains(" 900000  1258652\n"), "{text}");
        assert!(text.contains(" 15000  22259\n"), "{text}");
    }

    #[test]
    fn programs_get_every_run_and_every_claim() {
        let fields = report(ScenarioScale::Quick).fields();
        assert_eq!(fields["runs"].as_array().map(Vec::len), Some(4));
        assert_eq!(fields["claims"].as_array().map(Vec::len), Some(10));
        assert_eq!(fields["not_run"][0]["run"], "srpc × 64");
        assert_eq!(fields["runs"][0]["client_figures"]["calls_per_s"], 40_000.0);
        assert_eq!(fields["claims"][0]["verdict"], "reproduced");
    }
}
