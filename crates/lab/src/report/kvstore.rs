//! What a run of the key-value example's client has shown, beside what can be reached at all.

use serde_json::{Map, Value};
use service::settings::simulate::Delays;

use super::{Report, csv_lines, object, per, rounded};
use crate::workload::{KVSTORE_KINDS, KeyUse};

/// Kinds of calls, in their order.
const NAMES: [&str; 4] = ["create", "retrieve", "update", "delete"];

/// As many times the ceiling is no chance: the delays that it follows from are not those of the
/// server.
const BEYOND_CEILING: f64 = 1.1;

/// A run of the key-value example's client.
#[derive(Clone, Debug)]
pub struct KvstoreReport {
    report: Report,
    keys: KeyUse,
    in_flight: usize,
    /// The first version of the client, one call at a time, does not count its Creates.
    leaves_creates_out: bool,
    delays: Delays,
}

/// Calls a second that a server with these delays can answer.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ceiling {
    /// What one operation takes, in milliseconds.
    mean_ms: f64,
    /// Operations at a time.
    at_a_time: usize,
    per_s: f64,
}

impl Ceiling {
    /// `counts`: how many operations of each kind. `None` if nothing is delayed.
    fn new(counts: [u64; 4], delays: Delays, in_flight: usize) -> Option<Ceiling> {
        let [creates, retrieves, updates, deletes] = counts;
        let writes = creates + updates + deletes;
        let all_ms = retrieves * delays.read_ms + writes * delays.write_ms;
        let mean_ms = per(all_ms as f64, retrieves + writes)?;
        let at_a_time = if delays.serial { 1 } else { in_flight };
        (mean_ms > 0.0).then(|| Ceiling {
            mean_ms,
            at_a_time,
            per_s: at_a_time as f64 * 1e3 / mean_ms,
        })
    }
}

impl KvstoreReport {
    /// `in_flight`: calls at a time. `delays`: those that the server was given.
    pub fn new(
        report: Report,
        keys: KeyUse,
        in_flight: usize,
        leaves_creates_out: bool,
        delays: Delays,
    ) -> KvstoreReport {
        KvstoreReport {
            report,
            keys,
            in_flight,
            leaves_creates_out,
            delays,
        }
    }

    /// The figures that are not about this service.
    pub fn report(&self) -> &Report {
        &self.report
    }

    fn counts(&self) -> [u64; 4] {
        let by_kind = &self.report.outcome().tally.ended_by_kind;
        std::array::from_fn(|kind| by_kind[kind])
    }

    fn races(&self) -> (u64, u64) {
        let [already_exists, retrieves, updates, ..] = self.report.outcome().tally.misses_by_kind;
        (retrieves + updates, already_exists)
    }

    /// Calls as the article's client counts them.
    fn counted(&self) -> u64 {
        let [creates, others @ ..] = self.counts();
        let others: u64 = others.iter().sum();
        match self.leaves_creates_out {
            true => others,
            false => others + creates,
        }
    }

    /// Calls a second: none where none succeeded, however fast they failed.
    fn per_s(&self, calls: u64) -> f64 {
        if self.report.outcome().tally.succeeded == 0 {
            return 0.0;
        }
        per(calls as f64 * 1e9, self.report.outcome().elapsed_ns).unwrap_or(0.0)
    }

    /// What can be reached with equal shares, and with the operations as they came.
    fn ceilings(&self) -> Option<(Ceiling, Ceiling)> {
        let equal = Ceiling::new([1; 4], self.delays, self.in_flight)?;
        let as_came = Ceiling::new(self.counts(), self.delays, self.in_flight);
        Some((equal, as_came.unwrap_or(equal)))
    }

    /// The share of all calls that the article's client counts: with equal shares, and as they
    /// came.
    fn counted_shares(&self) -> (f64, f64) {
        let all: u64 = self.counts().iter().sum();
        match self.leaves_creates_out {
            true => (0.75, per(self.counted() as f64, all).unwrap_or(0.75)),
            false => (1.0, 1.0),
        }
    }

    /// The text for people.
    pub fn text(&self) -> String {
        let mut lines: Vec<String> = self.void_lines();
        lines.extend(self.report.machine_lines());
        lines.extend(self.lines_of_article());
        lines.push(self.report.text_of_load());
        lines.join("\n")
    }

    /// One file that needs nothing else, with charts.
    pub fn html(&self) -> String {
        self.report.html_with(&self.lines_of_article())
    }

    fn lines_of_article(&self) -> Vec<String> {
        let all = self.counts().iter().sum();
        let (counted_per_s, all_per_s) = (self.per_s(self.counted()), self.per_s(all));
        let note = match self.leaves_creates_out {
            true => "as the article's first client counts: without Creates",
            false => "as the article's client counts",
        };
        let mut lines = vec![
            format!("Did {counted_per_s:.3} RPCs/s ({note})"),
            format!("all operations: {all_per_s:.3} RPCs/s"),
        ];
        lines.extend(self.ceiling_lines());
        let by_kind = NAMES.iter().zip(self.counts());
        let by_kind: Vec<String> = by_kind
            .map(|(name, calls)| format!("{calls} {name}"))
            .collect();
        lines.push(format!("operations: {}", by_kind.join(", ")));
        if self.keys == KeyUse::Shared {
            let (not_found, already_exists) = self.races();
            lines.push(format!(
                "expected races: {not_found} NOT_FOUND, {already_exists} ALREADY_EXISTS"
            ));
        }
        lines
    }

    fn void_lines(&self) -> Vec<String> {
        let void = |reason: &String| format!("VOID: {reason}");
        self.report.void_reasons().iter().map(void).collect()
    }

    fn ceiling_lines(&self) -> Vec<String> {
        let Some((equal, as_came)) = self.ceilings() else {
            return vec!["no ceiling: nothing is delayed".into()];
        };
        let (share, share_as_came) = self.counted_shares();
        let mut lines = vec![format!(
            "at most: {} at a time, {:.2} ms each: {:.2} RPCs/s; as the operations came: {:.2} ms \
             each, {:.2} RPCs/s",
            equal.at_a_time, equal.mean_ms, equal.per_s, as_came.mean_ms, as_came.per_s
        )];
        if self.per_s(self.counts().iter().sum()) > as_came.per_s * BEYOND_CEILING {
            lines.push(
                "more than that came: the server has other delays; tell them with --simulate"
                    .into(),
            );
        }
        if self.leaves_creates_out {
            lines.push(format!(
                "of which the article's client counts at most {:.2}; as the operations came: {:.2}",
                equal.per_s * share,
                as_came.per_s * share_as_came
            ));
        }
        lines
    }

    /// All figures under their names.
    pub fn fields(&self) -> Map<String, Value> {
        let (not_found, already_exists) = self.races();
        let all = self.counts().iter().sum();
        let ceilings = self.ceilings();
        let (share, _) = self.counted_shares();
        let ceiling = |of: fn(&(Ceiling, Ceiling)) -> f64, share: f64| {
            ceilings.map_or(Value::Null, |ceilings| rounded(of(&ceilings) * share))
        };
        let mut fields = self.report.fields();
        fields.extend(object([
            ("article_calls_per_s", rounded(self.per_s(self.counted()))),
            ("all_calls_per_s", rounded(self.per_s(all))),
            ("ceiling_per_s", ceiling(|(equal, _)| equal.per_s, 1.0)),
            (
                "ceiling_article_per_s",
                ceiling(|(equal, _)| equal.per_s, share),
            ),
            (
                "ceiling_as_came_per_s",
                ceiling(|(_, as_came)| as_came.per_s, 1.0),
            ),
            ("races_not_found", not_found.into()),
            ("races_already_exists", already_exists.into()),
        ]));
        for (name, calls) in NAMES.iter().zip(self.counts()) {
            fields.insert(format!("{name}_calls"), calls.into());
        }
        fields
    }

    /// A line of names and a line of figures.
    pub fn csv(&self) -> String {
        csv_lines(&self.fields())
    }
}

const _: () = assert!(KVSTORE_KINDS.len() == NAMES.len(), "each kind has a name");

#[cfg(test)]
mod tests {
    use super::super::tests::{outcome, report};
    use super::*;
    use crate::pacing::Pace;
    use crate::run::LoadOutcome;

    const DELAYS: Delays = Delays {
        read_ms: 10,
        write_ms: 50,
        serial: false,
    };

    fn ceiling(counts: [u64; 4], delays: Delays, in_flight: usize) -> (f64, f64) {
        let ceiling = Ceiling::new(counts, delays, in_flight).expect("something is delayed");
        (ceiling.mean_ms, ceiling.per_s)
    }

    #[test]
    fn ceilings_follow_from_delays_mix_and_calls_in_flight() {
        assert_eq!(ceiling([1; 4], DELAYS, 100), (40.0, 2_500.0));
        assert_eq!(ceiling([1; 4], DELAYS, 1), (40.0, 25.0));
        let serial = Delays {
            serial: true,
            ..DELAYS
        };
        assert_eq!(ceiling([1; 4], serial, 100), (40.0, 25.0));
        assert_eq!(ceiling([0, 3, 0, 1], DELAYS, 2), (20.0, 100.0));
        assert_eq!(Ceiling::new([0; 4], DELAYS, 1), None);
        let nothing = Delays {
            read_ms: 0,
            write_ms: 0,
            serial: true,
        };
        assert_eq!(Ceiling::new([1; 4], nothing, 1), None);
    }

    const FIRST: &str = "as the article's first client counts: without Creates";

    /// A hundred calls in two seconds, of each kind another number.
    fn hundred() -> LoadOutcome {
        let mut outcome = outcome();
        outcome.elapsed_ns = 2_000_000_000;
        outcome.tally.ended_in_window = 100;
        outcome.tally.ended_by_kind = [10, 20, 30, 40, 0, 0, 0, 0];
        outcome.tally.misses_by_kind = [1, 2, 4, 0, 0, 0, 0, 0];
        outcome
    }

    fn kvstore(outcome: LoadOutcome, leaves_creates_out: bool, delays: Delays) -> KvstoreReport {
        let report = report(Pace::Closed, outcome);
        KvstoreReport::new(report, KeyUse::Shared, 4, leaves_creates_out, delays)
    }

    #[test]
    fn the_first_client_counts_without_creates() {
        let report = kvstore(hundred(), true, DELAYS);
        let text = report.text();
        let rest = report.report().text();
        let expected = [
            &format!("Did 45.000 RPCs/s ({FIRST})"),
            "all operations: 50.000 RPCs/s",
            "at most: 4 at a time, 40.00 ms each: 100.00 RPCs/s; as the operations came: 42.00 ms \
             each, 95.24 RPCs/s",
            "of which the article's client counts at most 75.00; as the operations came: 85.71",
            "operations: 10 create, 20 retrieve, 30 update, 40 delete",
            "expected races: 6 NOT_FOUND, 1 ALREADY_EXISTS",
            &rest,
        ];
        assert_eq!(text, expected.join("\n"));
        let fields = report.fields();
        for (name, value) in [
            ("article_calls_per_s", 45.0),
            ("all_calls_per_s", 50.0),
            ("ceiling_per_s", 100.0),
            ("ceiling_article_per_s", 75.0),
            ("ceiling_as_came_per_s", 95.238),
        ] {
            assert_eq!(fields[name], value, "{name}");
        }
        for (name, value) in [
            ("races_not_found", 6),
            ("races_already_exists", 1),
            ("create_calls", 10),
            ("retrieve_calls", 20),
            ("update_calls", 30),
            ("delete_calls", 40),
        ] {
            assert_eq!(fields[name], value, "{name}");
        }
        assert_eq!(fields["elapsed_s"], 2.0, "the others are there too");
        let csv = report.csv();
        let lines: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(lines, [fields.len(); 2]);
    }

    #[test]
    fn the_later_client_counts_all() {
        let report = kvstore(hundred(), false, DELAYS);
        let text = report.text();
        assert!(
            text.starts_with("Did 50.000 RPCs/s (as the article's client counts)\n"),
            "{text}"
        );
        assert!(!text.contains("of which"), "{text}");
        assert_eq!(report.fields()["article_calls_per_s"], 50.0);
        assert_eq!(report.fields()["ceiling_article_per_s"], 100.0);
        // With keys of their own there are no races to expect.
        let owned = KvstoreReport {
            keys: KeyUse::Owned,
            ..report
        };
        assert!(!owned.text().contains("races"), "{}", owned.text());
    }

    /// A tenth more than can be is measured inaccurately; more than that has another reason.
    #[test]
    fn more_than_the_ceiling_is_told() {
        let delays = Delays {
            read_ms: 1,
            write_ms: 1,
            serial: true,
        };
        for (calls, is_told) in [(1_100, false), (1_101, true)] {
            let mut outcome = hundred();
            outcome.elapsed_ns = 1_000_000_000;
            outcome.tally.ended_by_kind = [calls, 0, 0, 0, 0, 0, 0, 0];
            let text = kvstore(outcome, false, delays).text();
            assert_eq!(text.contains("more than that came"), is_told, "{text}");
        }
    }

    /// A server that refuses everything at once is not fast.
    #[test]
    fn a_run_without_success_has_no_speed() {
        let mut outcome = hundred();
        outcome.elapsed_ns = 1_000_000;
        outcome.tally.succeeded = 0;
        let report = kvstore(outcome, false, DELAYS);
        let text = report.text();
        assert!(text.starts_with("Did 0.000 RPCs/s "), "{text}");
        assert!(!text.contains("more than that came"), "{text}");
        assert_eq!(report.fields()["article_calls_per_s"], 0.0);
        assert_eq!(report.fields()["all_calls_per_s"], 0.0);
    }

    #[test]
    fn there_is_no_ceiling_without_delays() {
        let nothing = Delays {
            read_ms: 0,
            write_ms: 0,
            serial: false,
        };
        let report = kvstore(hundred(), true, nothing);
        assert!(
            report.text().contains("no ceiling: nothing is delayed"),
            "{}",
            report.text()
        );
        assert_eq!(report.fields()["ceiling_per_s"], Value::Null);
    }

    /// Nothing came back: what can be reached is that of equal shares.
    #[test]
    fn a_run_without_calls_has_its_ceiling() {
        let mut outcome = hundred();
        outcome.tally.ended_by_kind = [0; 8];
        let report = kvstore(outcome, true, DELAYS);
        let text = report.text();
        assert!(
            text.starts_with(&format!("Did 0.000 RPCs/s ({FIRST})\n")),
            "{text}"
        );
        assert!(
            text.contains("at most 75.00; as the operations came: 75.00"),
            "{text}"
        );
        assert_eq!(report.fields()["ceiling_as_came_per_s"], 100.0);
    }

    #[test]
    fn void_results_say_so_before_all_else() {
        let mut outcome = hundred();
        outcome.busiest_percent = Some(99.0);
        let report = kvstore(outcome, false, DELAYS);
        let text = report.text();
        assert!(
            text.starts_with("VOID: the generator is the limit"),
            "{text}"
        );
        assert_eq!(text.matches("VOID").count(), 1, "{text}");
    }
}
