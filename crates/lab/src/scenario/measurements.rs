//! What the runs of a scenario have shown.

use serde_json::{Map, Value};

use crate::sweep::Spread;

/// One run of a client.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MeasuredRun {
    /// Which of the plan.
    pub name: String,
    /// The figures that the client printed, under the names of `pelton load --output json`.
    pub figures: Map<String, Value>,
    /// The most memory that the client had, in bytes.
    pub client_peak_bytes: Option<u64>,
    /// CPU time of the client's whole process, in nanoseconds.
    pub client_cpu_ns: Option<u64>,
    /// CPU time of the server meanwhile.
    pub server_cpu_ns: Option<u64>,
    /// How long the client ran.
    pub elapsed_ns: u64,
    /// Where there was a relay: the figures that it printed, as of `pelton lab tap --output json`.
    pub relay: Option<Map<String, Value>>,
}

/// What was measured, and what could not be.
#[derive(Clone, Debug, Default)]
pub struct Measurements {
    runs: Vec<MeasuredRun>,
    missing: Vec<(String, String)>,
}

impl Measurements {
    /// Adds what a run has shown.
    pub fn add(&mut self, run: MeasuredRun) {
        self.runs.push(run);
    }

    /// Notes that a run could not be made, and why.
    pub fn add_missing(&mut self, name: &str, why: &str) {
        if !self.missing.iter().any(|(missing, _)| missing == name) {
            self.missing.push((name.to_owned(), why.to_owned()));
        }
    }

    /// What could not be made, and why.
    pub fn missing(&self) -> impl Iterator<Item = (&str, &str)> {
        let missing = self.missing.iter();
        missing.map(|(name, why)| (name.as_str(), why.as_str()))
    }

    /// Why a run is not there.
    pub(super) fn why_missing(&self, name: &str) -> Option<&str> {
        let mut missing = self.missing();
        missing
            .find(|(missing, _)| *missing == name)
            .map(|(_, why)| why)
    }

    /// All runs, in the order in which they were made.
    pub fn runs(&self) -> &[MeasuredRun] {
        &self.runs
    }

    /// The median over the rounds of a figure of a run; `None` where no round has it.
    pub fn median(&self, name: &str, figure: impl Fn(&MeasuredRun) -> Option<f64>) -> Option<f64> {
        self.spread(name, figure).map(|spread| spread.median)
    }

    /// The median, the smallest and the largest over the rounds.
    pub fn spread(
        &self,
        name: &str,
        figure: impl Fn(&MeasuredRun) -> Option<f64>,
    ) -> Option<Spread> {
        Spread::of(self.values(name, |run| figure(run).into_iter().collect()))
    }

    /// The figures of all rounds of a run, of which each may have several.
    pub(super) fn values(
        &self,
        name: &str,
        figures: impl Fn(&MeasuredRun) -> Vec<f64>,
    ) -> Vec<f64> {
        let runs = self.runs.iter().filter(|run| run.name == name);
        runs.flat_map(figures).collect()
    }
}

impl MeasuredRun {
    /// A figure that the client printed.
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.figures.get(name).and_then(Value::as_f64)
    }

    /// Calls a second, as the client counted them.
    pub(super) fn calls_per_s(&self) -> Option<f64> {
        self.figure("calls_per_s")
    }

    /// CPU time of the server, and of the client, for each call, in microseconds.
    pub(super) fn cpu_us(&self) -> Option<(f64, f64)> {
        let calls = self.figure("calls").filter(|calls| *calls > 0.0)?;
        let each = |ns: u64| ns as f64 / 1e3 / calls;
        Some((each(self.server_cpu_ns?), each(self.client_cpu_ns?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_without_a_figure_are_left_out() {
        let mut measured = Measurements::default();
        for rate in [Some(5.0), None, Some(7.0)] {
            let mut run = MeasuredRun {
                name: "a".into(),
                ..MeasuredRun::default()
            };
            run.figures.insert("calls_per_s".into(), rate.into());
            measured.add(run);
        }
        let rate = |run: &MeasuredRun| run.figure("calls_per_s");
        assert_eq!(measured.median("a", rate), Some(6.0));
        let spread = measured.spread("a", rate).expect("two rounds");
        assert_eq!((spread.least, spread.most), (5.0, 7.0));
        assert_eq!(measured.median("b", rate), None);
        assert_eq!(measured.spread("b", rate), None);
    }

    #[test]
    fn a_run_is_missing_once_with_its_first_reason() {
        let mut measured = Measurements::default();
        measured.add_missing("a", "first");
        measured.add_missing("a", "second");
        assert_eq!(measured.missing().collect::<Vec<_>>(), [("a", "first")]);
        assert_eq!(measured.why_missing("a"), Some("first"));
        assert_eq!(measured.why_missing("b"), None);
    }
}
