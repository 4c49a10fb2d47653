//! What is taken of the result of a run, and the median of several.

use serde_json::{Map, Value};

/// What a run is judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Measure {
    /// Calls that succeeded in a second.
    Calls,
    /// Records of these calls.
    Records,
    /// The mean latency.
    Mean,
    /// The median of latencies.
    P50,
    /// The 90th percentile.
    P90,
    /// The 99th percentile.
    P99,
    /// The 99.9th percentile.
    P999,
    /// CPU time of the server for a call.
    ServerCpu,
    /// CPU time of the generator for a call.
    OwnCpu,
}

impl Measure {
    /// All of them.
    pub const ALL: [Measure; 9] = [
        Measure::Calls,
        Measure::Records,
        Measure::Mean,
        Measure::P50,
        Measure::P90,
        Measure::P99,
        Measure::P999,
        Measure::ServerCpu,
        Measure::OwnCpu,
    ];

    /// The field of a result that has it.
    pub fn field(self) -> &'static str {
        match self {
            Measure::Calls => "calls_per_s",
            Measure::Records => "records_per_s",
            Measure::Mean => "mean_us",
            Measure::P50 => "p50_us",
            Measure::P90 => "p90_us",
            Measure::P99 => "p99_us",
            Measure::P999 => "p999_us",
            Measure::ServerCpu => "server_us",
            Measure::OwnCpu => "own_us",
        }
    }

    /// Its name, with its unit.
    pub fn title(self) -> &'static str {
        match self {
            Measure::Calls => "calls/s",
            Measure::Records => "records/s",
            Measure::Mean => "mean µs",
            Measure::P50 => "p50 µs",
            Measure::P90 => "p90 µs",
            Measure::P99 => "p99 µs",
            Measure::P999 => "p99.9 µs",
            Measure::ServerCpu => "server CPU µs",
            Measure::OwnCpu => "own CPU µs",
        }
    }

    /// Whether more of it is better.
    pub fn is_more_better(self) -> bool {
        matches!(self, Measure::Calls | Measure::Records)
    }
}

/// The result of a run: the fields of [`crate::Report::fields`].
#[derive(Clone, Debug, PartialEq)]
pub struct RunFigures(Map<String, Value>);

impl RunFigures {
    /// `None`: these are not the fields of a result.
    pub fn new(fields: Map<String, Value>) -> Option<RunFigures> {
        let is_result = fields.get("calls_per_s").is_some_and(Value::is_number)
            && fields.get("succeeded").is_some_and(Value::is_number);
        is_result.then_some(RunFigures(fields))
    }

    /// All fields.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.0
    }

    /// What was measured; `None`: it was not.
    pub fn get(&self, measure: Measure) -> Option<f64> {
        self.0.get(measure.field()).and_then(Value::as_f64)
    }

    /// A field that is a text; empty: there is none.
    pub fn text(&self, field: &str) -> &str {
        self.0.get(field).and_then(Value::as_str).unwrap_or("")
    }

    /// Whether the result must not be believed.
    pub fn is_void(&self) -> bool {
        self.0.get("void") == Some(&Value::Bool(true))
    }

    /// Calls that succeeded.
    pub fn succeeded(&self) -> u64 {
        self.count("succeeded")
    }

    /// Calls that failed, or did not end.
    pub fn failures(&self) -> u64 {
        let fields = [
            "failures",
            "unfinished",
            "unfinished_of_warm_up",
            "never_sent",
        ];
        fields.iter().map(|field| self.count(field)).sum()
    }

    fn count(&self, field: &str) -> u64 {
        self.0.get(field).and_then(Value::as_u64).unwrap_or(0)
    }
}

/// The middle of several runs, and how far they are apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The smallest.
    pub least: f64,
    /// The largest.
    pub most: f64,
}

impl Spread {
    /// `None`: there is no value.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_unstable_by(f64::total_cmp);
        let middle = values.len() / 2;
        let upper = *values.get(middle)?;
        let median = match values.len() % 2 {
            1 => upper,
            _ => (values.get(middle.checked_sub(1)?)? + upper) / 2.0,
        };
        Some(Spread {
            median,
            least: *values.first()?,
            most: *values.last()?,
        })
    }

    /// How far the runs are apart, in percent of the median; 0 where that is 0.
    pub fn percent(&self) -> f64 {
        match self.median {
            0.0 => 0.0,
            median => (self.most - self.least) * 100.0 / median,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_lies_in_the_middle() {
        assert_eq!(Spread::of([]), None);
        let of = |values: &[f64]| Spread::of(values.iter().copied()).expect("values");
        assert_eq!((of(&[5.0]).median, of(&[5.0]).percent()), (5.0, 0.0));
        assert_eq!(of(&[3.0, 1.0, 2.0]).median, 2.0);
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(of(&[9.0, 1.0, 3.0, 5.0]).median, 4.0);
        let spread = of(&[90.0, 100.0, 120.0]);
        assert_eq!((spread.least, spread.most), (90.0, 120.0));
        assert_eq!(spread.percent(), 30.0);
        assert_eq!(of(&[0.0]).percent(), 0.0);
    }

    #[test]
    fn a_result_is_known_by_its_fields() {
        let fields = |text: &str| match serde_json::from_str(text) {
            Ok(Value::Object(fields)) => fields,
            other => panic!("{other:?}"),
        };
        assert_eq!(RunFigures::new(fields(r#"{"calls":1}"#)), None);
        let text = r#"{"calls_per_s":10.5,"succeeded":7,"failures":1,"unfinished":2,"void":true,
            "server_us":null,"what":"x"}"#;
        let figures = RunFigures::new(fields(text)).expect("a result");
        assert_eq!(figures.get(Measure::Calls), Some(10.5));
        assert_eq!(figures.get(Measure::ServerCpu), None);
        assert_eq!((figures.succeeded(), figures.failures()), (7, 3));
        assert!(figures.is_void());
        assert_eq!((figures.text("what"), figures.text("nothing")), ("x", ""));
    }
}
