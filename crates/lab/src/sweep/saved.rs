//! A sweep in a file: a line of JSON that says what is swept, and a line for each run.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::axis::{SweepAxes, SweepAxis, SweepParameter};
use super::figures::RunFigures;
use super::limits;
use super::results::SweepRun;
use super::schedule::SweepTimes;

/// The version of the form.
const VERSION: u64 = 1;

/// What is swept, and how: the first line.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepHeader {
    /// The flags of the load, and those of the sweep that decide what is measured.
    pub flags: Vec<String>,
    /// The server.
    pub target: String,
    /// The parameters.
    pub axes: SweepAxes,
    /// How often and how long.
    pub times: SweepTimes,
    /// The seed of the order.
    pub seed: u64,
    /// The machine as it was at the beginning.
    pub machine: Map<String, Value>,
}

/// A file of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedSweep {
    /// What is swept.
    pub header: SweepHeader,
    /// The runs that were finished.
    pub runs: Vec<SweepRun>,
    /// Bytes of whole lines: what is behind them was torn when something ended the sweep.
    pub whole_bytes: usize,
}

/// Why a text is no sweep.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SavedError {
    /// The first line is none of a sweep.
    #[error("its first line is none of a sweep that was saved")]
    NotASweep,
    /// It comes from a program that knows more.
    #[error("it has version {0} of the form, and this program knows {known}", known = VERSION)]
    OtherVersion(u64),
    /// A line in the midst cannot be read.
    #[error("line {line} is damaged: {reason}")]
    Damaged {
        /// Its number, from 1.
        line: usize,
        /// What is wrong.
        reason: &'static str,
    },
}

impl SweepHeader {
    /// Its line, with the line end.
    pub fn line(&self) -> String {
        let axes = self.axes.axes().iter();
        let axes =
            axes.map(|axis| json!({"parameter": axis.parameter.name(), "values": axis.values}));
        let header = json!({
            "pelton_sweep": VERSION,
            "flags": self.flags,
            "target": self.target,
            "over": axes.collect::<Vec<Value>>(),
            "runs": self.times.runs,
            "warm_up_ms": self.times.warm_up.as_millis() as u64,
            "measured_ms": self.times.measured.as_millis() as u64,
            "order_seed": self.seed.to_string(),
            "machine": self.machine,
        });
        format!("{header}\n")
    }

    fn parse(line: &str) -> Result<SweepHeader, SavedError> {
        let header: Value = serde_json::from_str(line).map_err(|_| SavedError::NotASweep)?;
        let version = header.get("pelton_sweep").and_then(Value::as_u64);
        match version.ok_or(SavedError::NotASweep)? {
            VERSION => {}
            other => return Err(SavedError::OtherVersion(other)),
        }
        SweepHeader::of(&header).ok_or(SavedError::Damaged {
            line: 1,
            reason: "a field is missing or makes no sense",
        })
    }

    fn of(header: &Value) -> Option<SweepHeader> {
        let number = |name: &str| header.get(name).and_then(Value::as_u64);
        let axes = header.get("over")?.as_array()?.iter().map(axis_of);
        let axes = SweepAxes::new(axes.collect::<Option<_>>()?).ok()?;
        let runs = usize::try_from(number("runs")?).ok()?;
        let is_bounded = (1..=limits::MAX_CELLS).contains(&axes.cells())
            && (1..=limits::MAX_RUNS).contains(&runs);
        is_bounded.then_some(())?;
        Some(SweepHeader {
            flags: texts(header.get("flags")?)?,
            target: header.get("target")?.as_str()?.to_owned(),
            axes,
            times: SweepTimes {
                runs,
                warm_up: Duration::from_millis(number("warm_up_ms")?),
                measured: Duration::from_millis(number("measured_ms")?),
            },
            seed: header.get("order_seed")?.as_str()?.parse().ok()?,
            machine: header.get("machine")?.as_object()?.clone(),
        })
    }
}

fn axis_of(value: &Value) -> Option<SweepAxis> {
    let values = texts(value.get("values")?)?;
    let is_bounded = (1..=limits::MAX_AXIS_VALUES).contains(&values.len());
    is_bounded.then_some(SweepAxis {
        parameter: SweepParameter::of_name(value.get("parameter")?.as_str()?)?,
        values,
    })
}

fn texts(value: &Value) -> Option<Vec<String>> {
    let texts = value.as_array()?.iter();
    texts.map(|text| text.as_str().map(str::to_owned)).collect()
}

impl SweepRun {
    /// Its line, with the line end.
    pub fn line(&self, axes: &SweepAxes) -> String {
        let values = axes.values(self.cell).into_iter();
        let values: Vec<&str> = values.map(|(_, value)| value).collect();
        let line = json!({
            "cell": values,
            "run": self.run,
            "at_ms": self.at_ms,
            "result": self.figures.fields(),
        });
        format!("{line}\n")
    }

    fn parse(line: &str, axes: &SweepAxes) -> Result<SweepRun, &'static str> {
        let mut line: Value = serde_json::from_str(line).map_err(|_| "it is no JSON")?;
        let result = line.get_mut("result").map(Value::take);
        let figures = match result {
            Some(Value::Object(fields)) => RunFigures::new(fields),
            _ => None,
        };
        let values = line.get("cell").and_then(texts);
        let number = |name: &str| line.get(name).and_then(Value::as_u64);
        Ok(SweepRun {
            cell: values
                .and_then(|values| axes.cell_of(&values))
                .ok_or("its cell is none of this sweep")?,
            run: number("run")
                .and_then(|run| usize::try_from(run).ok())
                .ok_or("it has no number of a run")?,
            at_ms: number("at_ms").ok_or("it has no time")?,
            figures: figures.ok_or("it has no result of a load")?,
        })
    }
}

impl SavedSweep {
    /// Reads a file. A last line without its end was torn, and is left out.
    ///
    /// # Errors
    /// If it is none of a sweep, or a line before the last is damaged.
    pub fn read(file: &[u8]) -> Result<SavedSweep, SavedError> {
        let end = file.iter().rposition(|byte| *byte == b'\n');
        let whole_bytes = end.map_or(0, |end| end + 1);
        let whole = file.get(..whole_bytes).unwrap_or_default();
        // Each line has its end, so that behind the last one there is nothing.
        let mut lines = whole.split_inclusive(|byte| *byte == b'\n').map(line_of);
        let first = lines.next().flatten().ok_or(SavedError::NotASweep)?;
        let header = SweepHeader::parse(first)?;
        let (mut runs, mut known) = (Vec::new(), HashSet::new());
        for (number, line) in lines.enumerate() {
            let damaged = |reason| SavedError::Damaged {
                line: number + 2,
                reason,
            };
            let line = line.ok_or_else(|| damaged("it is no text"))?;
            let run = SweepRun::parse(line, &header.axes).map_err(damaged)?;
            if run.run >= header.times.runs {
                return Err(damaged("the sweep has no run of that number"));
            }
            if !known.insert((run.cell, run.run)) {
                return Err(damaged("its run is there twice"));
            }
            runs.push(run);
        }
        Ok(SavedSweep {
            header,
            runs,
            whole_bytes,
        })
    }
}

/// The text of a line; `None`: it is none.
fn line_of(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> SweepHeader {
        let axis = SweepAxis {
            parameter: SweepParameter::InFlight,
            values: vec!["1".into(), "2".into()],
        };
        SweepHeader {
            flags: vec!["--keys 100".into()],
            target: "127.0.0.1:1978".into(),
            axes: SweepAxes::new(vec![axis]).expect("one"),
            times: SweepTimes {
                runs: 3,
                warm_up: Duration::from_millis(100),
                measured: Duration::from_millis(500),
            },
            seed: u64::MAX,
            machine: Map::new(),
        }
    }

    fn run(cell: usize, run: usize) -> SweepRun {
        let fields = json!({"calls_per_s": 10.5, "succeeded": 3});
        let Value::Object(fields) = fields else {
            panic!("an object");
        };
        SweepRun {
            cell,
            run,
            at_ms: 1_000,
            figures: RunFigures::new(fields).expect("a result"),
        }
    }

    #[test]
    fn what_was_saved_is_read() {
        let header = header();
        let runs = vec![run(1, 0), run(0, 0)];
        let lines: Vec<String> = runs.iter().map(|run| run.line(&header.axes)).collect();
        let text = header.line() + &lines.concat();
        let saved = SavedSweep::read(text.as_bytes()).expect("it is whole");
        assert_eq!((&saved.header, &saved.runs), (&header, &runs));
        assert_eq!(saved.whole_bytes, text.len());
    }

    /// A character is a byte that was damaged: the torn line begins where it begins in the file.
    #[test]
    fn a_damaged_byte_is_refused_and_a_torn_character_moves_nothing() {
        let header = header();
        let head = header.line().into_bytes();
        let line = run(0, 0).line(&header.axes).into_bytes();
        let torn = [&head[..], &line, b"{\"cell\":[\"\xc3"].concat();
        let saved = SavedSweep::read(&torn).expect("the rest is whole");
        assert_eq!(saved.whole_bytes, head.len() + line.len());
        let mut damaged = [&head[..], &line].concat();
        damaged[head.len() + 10] = 0xff;
        let error = SavedSweep::read(&damaged).expect_err("it is damaged");
        assert!(
            error.to_string().starts_with("line 2 is damaged"),
            "{error}"
        );
    }

    /// More runs than the sweep has would be counted as made.
    #[test]
    fn runs_that_the_sweep_does_not_have_are_refused() {
        let header = header();
        for (runs, expected) in [
            (vec![run(0, 3)], "line 2 is damaged: the sweep has no run"),
            (
                vec![run(0, 0), run(1, 0), run(0, 0)],
                "line 4 is damaged: its run is there twice",
            ),
        ] {
            let lines: Vec<String> = runs.iter().map(|run| run.line(&header.axes)).collect();
            let text = header.line() + &lines.concat();
            let error = SavedSweep::read(text.as_bytes()).expect_err(expected);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    /// Wherever the last line is torn.
    #[test]
    fn a_torn_last_line_is_left_out() {
        let header = header();
        let whole = header.line() + &run(0, 0).line(&header.axes);
        let last = run(1, 0).line(&header.axes);
        for end in 0..last.len() {
            let text = format!("{whole}{}", &last[..end]);
            let saved = SavedSweep::read(text.as_bytes()).expect("the rest is whole");
            assert_eq!(saved.runs, [run(0, 0)]);
            assert_eq!(saved.whole_bytes, whole.len());
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        let head = header().line();
        for (text, expected) in [
            (String::new(), "none of a sweep"),
            ("{}\n".into(), "none of a sweep"),
            ("key value\n".into(), "none of a sweep"),
            (head.trim_end().to_owned(), "none of a sweep"),
            (head.replace("sweep\":1", "sweep\":2"), "version 2"),
            (head.replace("\"runs\":3", "\"runs\":0"), "line 1"),
            (head.replace("in-flight", "speed"), "line 1"),
            (
                format!("{head}{{\n{}", run(0, 0).line(&header().axes)),
                "line 2",
            ),
            (
                format!("{head}{}", run(0, 0).line(&header().axes)).replace("[\"1\"]", "[\"9\"]"),
                "line 2 is damaged: its cell",
            ),
        ] {
            let error = SavedSweep::read(text.as_bytes())
                .expect_err(&text)
                .to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
