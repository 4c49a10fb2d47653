//! Which differences are beyond the noise.
//!
//! For each measure each cell is a question, and all cells together are another one. All of them
//! together may say *differs* of two equal results with a probability of
//! [`limits::FALSE_POSITIVE_PERCENT`] at most, so each has a smaller share of it (Bonferroni). A
//! question that so few runs cannot answer with yes, whatever they show, needs no share (Tarone,
//! "A modified Bonferroni method for discrete data", 1990): three runs of eight cells say nothing
//! of one cell, and a lot of all.

use std::cmp::Ordering;

use super::ranks::{Probability, RankedCell, probability, runs_needed};
use super::side::ComparedSide;
use crate::sweep::{Measure, RunFigures, Spread, limits};

/// What is compared.
const MEASURES: [Measure; 5] = [
    Measure::Calls,
    Measure::P50,
    Measure::P99,
    Measure::ServerCpu,
    Measure::OwnCpu,
];

/// How many times as much, or as little, a cell counts as at most in the mean of all: one in which
/// one side does nothing at all is not all that there is.
const MOST_TIMES: f64 = 1e3;

/// What a difference is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// Not more than the runs of one side differ, or too small to matter.
    Noise,
    /// Too few runs: whatever they show, it could be chance.
    TooFewRuns,
    /// The second side is better.
    Better,
    /// The second side is worse.
    Worse,
}

impl Judged {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Judged::Noise => "noise",
            Judged::TooFewRuns => "too few runs",
            Judged::Better => "better",
            Judged::Worse => "worse",
        }
    }
}

/// One measure of both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// What was measured.
    pub measure: Measure,
    /// In which of the cells of the comparison; `None`: in all together.
    pub cell: Option<usize>,
    /// The runs of both sides; `None`: all cells together.
    pub spreads: Option<[Spread; 2]>,
    /// By how much the second side is higher, in percent of the first, which is without end where
    /// the first has nothing; of all cells the geometric mean, for which -100 % and what is without
    /// end count as much as a thousandth and a thousand times.
    pub change_percent: f64,
    /// How probable such ranks are if nothing differs.
    pub p: f64,
    /// What follows.
    pub judged: Judged,
    least_p: f64,
    /// Whether the ranks of the second side are the higher ones, or the lower ones.
    way: Ordering,
}

/// Two saved results, compared.
#[derive(Clone, Debug)]
pub struct Comparison {
    pub(super) sides: [ComparedSide; 2],
    pub(super) cells: Vec<String>,
    pub(super) differences: Vec<Difference>,
    /// What the probability of a difference must not exceed.
    pub(super) level: f64,
    /// Runs of each side that are enough to say something.
    pub(super) runs_needed: usize,
}

impl Comparison {
    /// Compares the cells that both sides have. `None`: there are none.
    pub fn new(one: ComparedSide, other: ComparedSide) -> Option<Comparison> {
        let common = one
            .cells
            .iter()
            .filter(|cell| other.cell(&cell.label).is_some());
        let cells: Vec<String> = common.map(|cell| cell.label.clone()).collect();
        if cells.is_empty() {
            return None;
        }
        let sides = [one, other];
        let mut differences = Vec::new();
        let mut measures = 0;
        for measure in MEASURES {
            let found = of_measure(&sides, &cells, measure);
            measures += usize::from(!found.is_empty());
            differences.extend(found);
        }
        let level = level(&differences);
        for difference in &mut differences {
            difference.judge(level);
        }
        let alone = limits::FALSE_POSITIVE_PERCENT as f64 / 100.0 / measures.max(1) as f64;
        Some(Comparison {
            runs_needed: runs_needed(cells.len(), alone),
            sides,
            cells,
            differences,
            level,
        })
    }

    /// All that was compared.
    pub fn differences(&self) -> &[Difference] {
        &self.differences
    }

    /// Those that were judged so.
    pub fn judged(&self, judged: Judged) -> impl Iterator<Item = &Difference> {
        let all = self.differences.iter();
        all.filter(move |difference| difference.judged == judged)
    }

    /// Whether anything became worse.
    pub fn is_worse(&self) -> bool {
        self.judged(Judged::Worse).next().is_some()
    }

    /// Whether there were too few runs for all of it.
    pub fn is_undecided(&self) -> bool {
        let mut all = self.differences.iter();
        all.all(|difference| difference.judged == Judged::TooFewRuns)
    }
}

/// One measure in each cell that has it on both sides, and in all of them together.
fn of_measure(sides: &[ComparedSide; 2], cells: &[String], measure: Measure) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut ranked = Vec::new();
    for (number, label) in cells.iter().enumerate() {
        let [Some(one), Some(other)] = [0, 1].map(|side: usize| {
            let cell = sides.get(side)?.cell(label)?;
            let values = cell
                .runs
                .iter()
                .filter_map(|run: &RunFigures| run.get(measure));
            Some(values.collect::<Vec<f64>>())
        }) else {
            continue;
        };
        let spreads = [
            Spread::of(one.iter().copied()),
            Spread::of(other.iter().copied()),
        ];
        let ([Some(before), Some(after)], Some(ranks)) = (spreads, RankedCell::new(&one, &other))
        else {
            continue;
        };
        let Probability { p, least, way } = probability(std::slice::from_ref(&ranks));
        ranked.push(ranks);
        found.push(Difference {
            measure,
            cell: Some(number),
            spreads: Some([before, after]),
            change_percent: change(before.median, after.median),
            p,
            judged: Judged::Noise,
            least_p: least,
            way,
        });
    }
    if found.len() > 1 {
        let logarithm = |one: &Difference| {
            let ratio = 1.0 + one.change_percent / 100.0;
            ratio.clamp(1.0 / MOST_TIMES, MOST_TIMES).ln()
        };
        let mean = found.iter().map(logarithm).sum::<f64>() / found.len() as f64;
        let Probability { p, least, way } = probability(&ranked);
        found.insert(
            0,
            Difference {
                measure,
                cell: None,
                spreads: None,
                change_percent: (mean.exp() - 1.0) * 100.0,
                p,
                judged: Judged::Noise,
                least_p: least,
                way,
            },
        );
    }
    found
}

fn change(before: f64, after: f64) -> f64 {
    match (before > 0.0, after > 0.0) {
        (true, _) => (after / before - 1.0) * 100.0,
        (false, true) => f64::INFINITY,
        (false, false) => 0.0,
    }
}

/// Tarone's level: each of the questions that can be answered with yes at it has an equal share.
fn level(differences: &[Difference]) -> f64 {
    let all = limits::FALSE_POSITIVE_PERCENT as f64 / 100.0;
    let shares = 1..=differences.len().max(1);
    let level_of = |shares: usize| all / shares as f64;
    let is_enough = |shares: &usize| {
        let level = level_of(*shares);
        let can_be_met = differences.iter().filter(|one| one.least_p <= level);
        can_be_met.count() <= *shares
    };
    let mut levels = shares.filter(is_enough).map(level_of);
    levels.next().unwrap_or(all)
}

impl Difference {
    fn judge(&mut self, level: f64) {
        let is_large = self.change_percent.abs() >= limits::LEAST_EFFECT_PERCENT as f64;
        let is_higher = self.change_percent > 0.0;
        // Ranks count in how many cells runs differ, medians by how much: a few cells that differ a
        // lot may say the opposite of all the others.
        let way = if is_higher {
            Ordering::Greater
        } else {
            Ordering::Less
        };
        let is_certain = self.p <= level && self.way == way;
        let is_better = is_higher == self.measure.is_more_better();
        self.judged = match (is_certain && is_large, is_better) {
            _ if self.least_p > level => Judged::TooFewRuns,
            (false, _) => Judged::Noise,
            (true, true) => Judged::Better,
            (true, false) => Judged::Worse,
        };
    }
}

#[cfg(test)]
mod tests;
