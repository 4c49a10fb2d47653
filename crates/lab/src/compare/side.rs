//! One side of a comparison: saved results, by cells.

use serde_json::{Map, Value};

use crate::sweep::{RunFigures, SavedError, SavedSweep, limits};
use crate::terminal_text::without_controls;

/// Saved results.
#[derive(Clone, Debug)]
pub struct ComparedSide {
    /// What the user calls it.
    pub name: String,
    pub(super) cells: Vec<ComparedCell>,
    /// Runs that are void, and left out.
    pub(super) void_runs: usize,
    /// Runs of cells that have more of them than are compared, and left out.
    pub(super) further_runs: usize,
    /// Calls that failed in all runs.
    pub(super) failures: u64,
    /// When its first and its last run began, in milliseconds since 1970, if that is known.
    pub(super) times_ms: Option<(u64, u64)>,
    /// The machine, if it is known.
    pub(super) machine: Option<Map<String, Value>>,
}

/// The runs of one cell.
#[derive(Clone, Debug)]
pub(super) struct ComparedCell {
    pub(super) label: String,
    pub(super) runs: Vec<RunFigures>,
}

/// Why a text has no results.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SideError {
    /// There is nothing in it.
    #[error("it has no results")]
    Empty,
    /// A line is no result.
    #[error(
        "line {0} is no result: each is one of `pelton load --output json`, or the file is one \
         that `pelton lab sweep --save` wrote"
    )]
    NoResult(usize),
    /// There are more shapes of loads than a comparison takes.
    #[error("it has results of more than {} different loads", limits::MAX_CELLS)]
    TooManyCells,
    /// It is a sweep that cannot be read.
    #[error("{0}")]
    Sweep(#[from] SavedError),
}

impl ComparedSide {
    /// Reads what `pelton lab sweep --save` or several `pelton load --output json` have written.
    ///
    /// # Errors
    /// If it is neither.
    pub fn read(name: String, file: &[u8]) -> Result<ComparedSide, SideError> {
        let mut side = ComparedSide {
            name,
            cells: Vec::new(),
            void_runs: 0,
            further_runs: 0,
            failures: 0,
            times_ms: None,
            machine: None,
        };
        match SavedSweep::read(file) {
            Ok(saved) => side.add_sweep(saved)?,
            Err(SavedError::NotASweep) => side.add_loads(file)?,
            Err(error) => return Err(error.into()),
        }
        match side.cells.is_empty() && side.void_runs == 0 {
            true => Err(SideError::Empty),
            false => Ok(side),
        }
    }

    fn add_sweep(&mut self, mut saved: SavedSweep) -> Result<(), SideError> {
        // Runs were made in random order.
        saved.runs.sort_by_key(|run| (run.cell, run.run));
        let times = saved.runs.iter().map(|run| run.at_ms);
        self.times_ms = times.clone().min().zip(times.max());
        for run in saved.runs {
            self.add(&saved.header.axes.label(run.cell), run.figures)?;
        }
        self.machine = Some(saved.header.machine);
        Ok(())
    }

    fn add_loads(&mut self, file: &[u8]) -> Result<(), SideError> {
        let lines = file.split(|byte| *byte == b'\n').enumerate();
        for (number, line) in lines.filter(|(_, line)| !line.trim_ascii().is_empty()) {
            let wrong = SideError::NoResult(number + 1);
            let Ok(Value::Object(fields)) = serde_json::from_slice(line) else {
                return Err(wrong);
            };
            let figures = RunFigures::new(fields).ok_or(wrong)?;
            self.add(&label_of_load(&figures), figures)?;
        }
        Ok(())
    }

    fn add(&mut self, label: &str, figures: RunFigures) -> Result<(), SideError> {
        self.failures = self.failures.saturating_add(figures.failures());
        if figures.is_void() {
            self.void_runs += 1;
            return Ok(());
        }
        let label = without_controls(label);
        let cell = match self.cells.iter().position(|cell| cell.label == label) {
            Some(at) => self.cells.get_mut(at),
            None if self.cells.len() >= limits::MAX_CELLS => return Err(SideError::TooManyCells),
            None => {
                let runs = Vec::new();
                self.cells.push(ComparedCell { label, runs });
                self.cells.last_mut()
            }
        };
        match cell.filter(|cell| cell.runs.len() < limits::MAX_COMPARED_RUNS) {
            Some(cell) => cell.runs.push(figures),
            None => self.further_runs += 1,
        }
        Ok(())
    }

    /// Runs that are compared.
    pub(super) fn runs(&self) -> usize {
        self.cells.iter().map(|cell| cell.runs.len()).sum()
    }

    /// The runs of a cell.
    pub(super) fn cell(&self, label: &str) -> Option<&ComparedCell> {
        self.cells.iter().find(|cell| cell.label == label)
    }
}

/// What a result of `pelton load` is a result of: its shape.
fn label_of_load(figures: &RunFigures) -> String {
    let fields = ["mode", "connections", "in_flight", "threads", "rate"];
    let words = fields
        .iter()
        .filter_map(|name| match figures.fields().get(*name)? {
            Value::Null => None,
            Value::String(text) => Some(format!("{}={text}", name.replace('_', "-"))),
            other => Some(format!("{}={other}", name.replace('_', "-"))),
        });
    let what = [figures.text("what").to_owned()].into_iter();
    let words: Vec<String> = what.filter(|what| !what.is_empty()).chain(words).collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(in_flight: u64, is_void: bool) -> String {
        format!(
            "{{\"calls_per_s\":10.0,\"succeeded\":5,\"what\":\"get=100\",\"mode\":\"multiplexed\",\
             \"in_flight\":{in_flight},\"rate\":null,\"void\":{is_void}}}\n"
        )
    }

    #[test]
    fn results_of_loads_are_grouped_by_their_shape() {
        let text = load(1, false) + &load(2, false) + "\n" + &load(1, false) + &load(1, true);
        let side = ComparedSide::read("a".into(), text.as_bytes()).expect("results");
        let cells: Vec<(&str, usize)> = side
            .cells
            .iter()
            .map(|cell| (cell.label.as_str(), cell.runs.len()))
            .collect();
        assert_eq!(
            cells,
            [
                ("get=100, mode=multiplexed, in-flight=1", 2),
                ("get=100, mode=multiplexed, in-flight=2", 1)
            ]
        );
        assert_eq!((side.runs(), side.void_runs), (3, 1));
        assert_eq!(side.times_ms, None);
    }

    #[test]
    fn other_files_are_refused_with_the_line() {
        let read = |text: &str| ComparedSide::read("a".into(), text.as_bytes()).map(|_| ());
        assert_eq!(read(""), Err(SideError::Empty));
        assert_eq!(read("\n"), Err(SideError::Empty));
        assert_eq!(read("{}\n"), Err(SideError::NoResult(1)));
        let text = load(1, false) + "in_flight calls/s\n";
        assert_eq!(read(&text), Err(SideError::NoResult(2)));
        let newer = Err(SideError::Sweep(SavedError::OtherVersion(9)));
        assert_eq!(read("{\"pelton_sweep\":9}\n"), newer);
    }

    #[test]
    fn runs_of_a_cell_are_bounded() {
        let text = load(1, false).repeat(limits::MAX_COMPARED_RUNS + 5);
        let side = ComparedSide::read("a".into(), text.as_bytes()).expect("results");
        assert_eq!(side.runs(), limits::MAX_COMPARED_RUNS);
        assert_eq!(side.further_runs, 5, "that is said");
    }

    #[test]
    fn a_file_of_ever_other_loads_is_refused() {
        let lines = |count: u64| (0..count).map(|number| load(number, false));
        let most = limits::MAX_CELLS as u64;
        let text: String = lines(most).collect();
        let side = ComparedSide::read("a".into(), text.as_bytes()).expect("results");
        assert_eq!(side.cells.len(), limits::MAX_CELLS);
        let text: String = lines(most + 1).collect();
        let refused = ComparedSide::read("a".into(), text.as_bytes()).map(|_| ());
        assert_eq!(refused, Err(SideError::TooManyCells));
    }

    /// What a terminal would take for a command.
    #[test]
    fn names_in_a_file_are_shown_without_control_characters() {
        let text = load(1, false).replace("get=100", "\\u001b[2J");
        let side = ComparedSide::read("a".into(), text.as_bytes()).expect("results");
        assert!(
            side.cells[0].label.starts_with("?[2J, "),
            "{:?}",
            side.cells
        );
    }
}
