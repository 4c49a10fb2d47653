//! What the runs of a sweep have shown, by cells.

use std::collections::HashSet;

use super::axis::SweepAxes;
use super::figures::{Measure, RunFigures, Spread};

/// One run of one cell.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepRun {
    /// The cell.
    pub cell: usize,
    /// Which of its runs, from 0.
    pub run: usize,
    /// When it began, in milliseconds since 1970.
    pub at_ms: u64,
    /// What came out.
    pub figures: RunFigures,
}

/// All runs so far.
#[derive(Clone, Debug)]
pub struct SweepResults {
    axes: SweepAxes,
    runs: Vec<SweepRun>,
    /// Cells and runs.
    made: HashSet<(usize, usize)>,
}

impl SweepResults {
    /// Those of runs that were made before, or of none.
    pub fn new(axes: SweepAxes, runs: Vec<SweepRun>) -> SweepResults {
        SweepResults {
            axes,
            made: runs.iter().map(|run| (run.cell, run.run)).collect(),
            runs,
        }
    }

    /// Adds a run.
    pub fn push(&mut self, run: SweepRun) {
        self.made.insert((run.cell, run.run));
        self.runs.push(run);
    }

    /// The parameters.
    pub fn axes(&self) -> &SweepAxes {
        &self.axes
    }

    /// All runs, in the order in which they were made.
    pub fn runs(&self) -> &[SweepRun] {
        &self.runs
    }

    /// Whether this run has been made.
    pub fn has(&self, cell: usize, run: usize) -> bool {
        self.made.contains(&(cell, run))
    }

    /// One cell.
    pub fn cell(&self, cell: usize) -> SweepCell<'_> {
        let runs = self.runs.iter().filter(|run| run.cell == cell);
        SweepCell(runs.map(|run| &run.figures).collect())
    }

    /// What throughput is: records where their number in a call is swept.
    pub fn throughput(&self) -> Measure {
        let is_batch =
            |axis: &super::axis::SweepAxis| axis.parameter == super::axis::SweepParameter::Batch;
        match self.axes.axes().iter().any(is_batch) {
            true => Measure::Records,
            false => Measure::Calls,
        }
    }
}

/// The runs of one cell.
#[derive(Clone, Debug)]
pub struct SweepCell<'a>(Vec<&'a RunFigures>);

impl SweepCell<'_> {
    /// How many there are.
    pub fn runs(&self) -> usize {
        self.0.len()
    }

    /// How many are void.
    pub fn void_runs(&self) -> usize {
        self.0.iter().filter(|run| run.is_void()).count()
    }

    /// Calls that failed in all of them.
    pub fn failures(&self) -> u64 {
        self.0.iter().map(|run| run.failures()).sum()
    }

    /// The median of a measure: of runs without failures, if there are any.
    pub fn spread(&self, measure: Measure) -> Option<Spread> {
        let is_sound = |run: &&&RunFigures| run.failures() == 0;
        let has_sound = self.0.iter().any(|run| run.failures() == 0);
        let runs = self.0.iter().filter(|run| !has_sound || is_sound(run));
        Spread::of(runs.filter_map(|run| run.get(measure)))
    }
}
