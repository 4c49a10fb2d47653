//! Whether two groups of runs differ by more than chance: the exact test of Wilcoxon, Mann and
//! Whitney, and over several cells that of van Elteren with equal weights.
//!
//! Runs of both sides are ranked together. If nothing differs, each way to divide them into groups
//! of these sizes is equally probable, so the distribution of the sum of one side's ranks is known
//! exactly, also with ties, whatever the distribution of the runs is. Sums of several cells are
//! added up; their distribution is the convolution.

use std::cmp::Ordering;

use crate::sweep::limits::EXACT_SUMS_MOST;

/// The ranks of one cell.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RankedCell {
    /// How far the sum of the second side's ranks is above the smallest possible one. Ranks count
    /// twice, so that the mean rank of ties is a whole number.
    observed: usize,
    /// The probability of each such sum, if nothing differs.
    probabilities: Vec<f64>,
}

/// How probable a sum is that lies as far from the expected one, if nothing differs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Probability {
    /// Of what was observed.
    pub(super) p: f64,
    /// Of the most extreme sum that there is: no less can be reached with so few runs.
    pub(super) least: f64,
    /// Whether the ranks of the second side are the higher ones, or the lower ones.
    pub(super) way: Ordering,
}

impl RankedCell {
    /// The ranks of two sides; `None`: one has no runs.
    pub(super) fn new(one: &[f64], other: &[f64]) -> Option<RankedCell> {
        if one.is_empty() || other.is_empty() {
            return None;
        }
        let all: Vec<f64> = one.iter().chain(other).copied().collect();
        let ranks = doubled_ranks(&all);
        let observed: usize = ranks.iter().skip(one.len()).sum();
        let counts = counts_of_sums(&ranks, other.len());
        let first = counts.iter().position(|count| *count > 0.0)?;
        let last = counts.iter().rposition(|count| *count > 0.0)?;
        let whole: f64 = counts.iter().sum();
        let probabilities = counts.get(first..=last)?.iter();
        Some(RankedCell {
            observed: observed.checked_sub(first)?,
            probabilities: probabilities.map(|count| count / whole).collect(),
        })
    }

    /// Mean and variance of the sum.
    fn moments(&self) -> (f64, f64) {
        let sums = || self.probabilities.iter().enumerate();
        let mean: f64 = sums().map(|(sum, p)| sum as f64 * p).sum();
        let variance = sums().map(|(sum, p)| (sum as f64 - mean).powi(2) * p);
        (mean, variance.sum())
    }
}

/// Ranks from 2 on; equal values share the mean of theirs.
fn doubled_ranks(values: &[f64]) -> Vec<usize> {
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count();
        let equal = values.iter().filter(|other| *other == value).count();
        2 * below + equal + 1
    };
    values.iter().map(rank).collect()
}

/// In how many ways so many of the ranks have each sum.
fn counts_of_sums(ranks: &[usize], chosen: usize) -> Vec<f64> {
    let most: usize = ranks.iter().sum();
    let mut ways = vec![vec![0.0; most + 1]; chosen + 1];
    if let Some(none) = ways.first_mut().and_then(|none| none.first_mut()) {
        *none = 1.0;
    }
    for &rank in ranks {
        // From the largest group down, so that each rank is taken once.
        for size in (1..=chosen).rev() {
            let (smaller, larger) = ways.split_at_mut(size);
            let (Some(from), Some(to)) = (smaller.last(), larger.first_mut()) else {
                continue;
            };
            for (to, from) in to.iter_mut().skip(rank).zip(from) {
                *to += from;
            }
        }
    }
    ways.pop().unwrap_or_default()
}

/// The probability of the ranks of all these cells together.
pub(super) fn probability(cells: &[RankedCell]) -> Probability {
    let lengths = cells.iter().map(|cell| cell.probabilities.len());
    let observed: usize = cells.iter().map(|cell| cell.observed).sum();
    if lengths.sum::<usize>() > EXACT_SUMS_MOST {
        return nearly_normal(cells, observed);
    }
    let start = vec![1.0];
    let sums = cells
        .iter()
        .fold(start, |sums, cell| convolution(&sums, &cell.probabilities));
    let mean: f64 = sums.iter().enumerate().map(|(sum, p)| sum as f64 * p).sum();
    let beyond = |distance: f64| {
        // Sums as far away are there on both sides; rounding must not lose one.
        let is_beyond = |sum: usize| (sum as f64 - mean).abs() >= distance - 1e-6;
        let sums = sums.iter().enumerate().filter(|(sum, _)| is_beyond(*sum));
        sums.map(|(_, p)| p).sum::<f64>().min(1.0)
    };
    let last = sums.len().saturating_sub(1) as f64;
    Probability {
        p: beyond((observed as f64 - mean).abs()),
        least: beyond(mean.max(last - mean)),
        way: (observed as f64).total_cmp(&mean),
    }
}

fn convolution(one: &[f64], other: &[f64]) -> Vec<f64> {
    let mut out = vec![0.0; (one.len() + other.len()).saturating_sub(1)];
    for (shift, p) in one.iter().enumerate() {
        for (out, q) in out.iter_mut().skip(shift).zip(other) {
            *out += p * q;
        }
    }
    out
}

/// Of many cells, whose sum is as good as normal.
fn nearly_normal(cells: &[RankedCell], observed: usize) -> Probability {
    let moments = cells.iter().map(RankedCell::moments);
    let (mean, variance) = moments.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let beyond = |distance: f64| match variance > 0.0 {
        true => two_tails(distance / variance.sqrt()),
        false => 1.0,
    };
    let last: usize = cells
        .iter()
        .map(|cell| cell.probabilities.len().saturating_sub(1))
        .sum();
    Probability {
        p: beyond((observed as f64 - mean).abs()),
        least: beyond(mean.max(last as f64 - mean)),
        way: (observed as f64).total_cmp(&mean),
    }
}

/// The probability that a normal variable is so many standard deviations away or further, to seven
/// digits (Abramowitz and Stegun, 7.1.26, whose error is below 1.5e-7).
fn two_tails(deviations: f64) -> f64 {
    let x = deviations.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let factors = [
        1.061_405_429,
        -1.453_152_027,
        1.421_413_741,
        -0.284_496_736,
        0.254_829_592,
    ];
    let polynomial = factors
        .into_iter()
        .fold(0.0, |sum, factor| sum * t + factor)
        * t;
    polynomial * (-x * x).exp()
}

/// How many runs of each side can show a difference in so many cells together at this level:
/// the most extreme of all divisions, and its mirror image, are as rare as that.
pub(super) fn runs_needed(cells: usize, level: f64) -> usize {
    let mut divisions = 1.0_f64;
    for runs in 1..=crate::sweep::limits::MAX_COMPARED_RUNS {
        let count = runs as f64;
        // The central binomial coefficient from the one before it.
        divisions *= 2.0 * (2.0 * count - 1.0) / count;
        if 2.0 / divisions.powf(cells.max(1) as f64) <= level {
            return runs;
        }
    }
    crate::sweep::limits::MAX_COMPARED_RUNS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(one: &[f64], other: &[f64]) -> Probability {
        probability(&[RankedCell::new(one, other).expect("both have runs")])
    }

    fn is_near(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-9
    }

    /// Against a count of all divisions.
    #[test]
    fn the_distribution_is_that_of_all_divisions() {
        let groups: [(&[f64], &[f64]); 4] = [
            (&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]),
            (&[1.0, 5.0, 3.0], &[4.0, 2.0, 6.0, 7.0]),
            (&[1.0, 1.0, 2.0], &[1.0, 2.0, 2.0]),
            (&[1.0], &[2.0, 3.0]),
        ];
        for (one, other) in groups {
            let all: Vec<f64> = one.iter().chain(other).copied().collect();
            let ranks = doubled_ranks(&all);
            let sums: Vec<usize> = (0..1_u32 << all.len())
                .filter(|set| set.count_ones() as usize == other.len())
                .map(|set| {
                    let is_in = |at: &usize| set & (1 << at) != 0;
                    (0..all.len()).filter(is_in).map(|at| ranks[at]).sum()
                })
                .collect();
            let mean = sums.iter().sum::<usize>() as f64 / sums.len() as f64;
            let observed: usize = ranks[one.len()..].iter().sum();
            let far = (observed as f64 - mean).abs() - 1e-9;
            let beyond = sums.iter().filter(|sum| (**sum as f64 - mean).abs() >= far);
            let expected = beyond.count() as f64 / sums.len() as f64;
            let found = of(one, other).p;
            assert!(
                is_near(found, expected),
                "{one:?} {other:?}: {found} {expected}"
            );
        }
    }

    #[test]
    fn the_least_probability_follows_from_the_number_of_runs() {
        let apart = of(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]);
        assert!(
            is_near(apart.p, 0.1) && is_near(apart.least, 0.1),
            "{apart:?}"
        );
        assert_eq!(apart.way, Ordering::Greater);
        let back = of(&[4.0, 5.0, 6.0], &[1.0, 2.0, 3.0]);
        assert_eq!(back.way, Ordering::Less);
        let mixed = of(&[1.0, 3.0, 5.0], &[2.0, 4.0, 6.0]);
        assert!(mixed.p > 0.5 && is_near(mixed.least, 0.1), "{mixed:?}");
        let same = of(&[7.0, 7.0], &[7.0, 7.0]);
        assert!(is_near(same.p, 1.0) && is_near(same.least, 1.0), "{same:?}");
        assert!(RankedCell::new(&[], &[1.0]).is_none());
        for (cells, level, runs) in [
            (1, 0.1, 3),
            (1, 0.05, 4),
            (1, 0.01, 5),
            (8, 0.01, 1),
            (8, 0.005, 2),
        ] {
            assert_eq!(runs_needed(cells, level), runs, "{cells} cells at {level}");
        }
    }

    /// Two cells in which all that can differs: 2 of 20 · 20 divisions.
    #[test]
    fn cells_are_added_up() {
        let apart = RankedCell::new(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]).expect("runs");
        let found = probability(&[apart.clone(), apart.clone()]);
        assert!(is_near(found.p, 2.0 / 400.0), "{found:?}");
        let other = RankedCell::new(&[4.0, 5.0, 6.0], &[1.0, 2.0, 3.0]).expect("runs");
        let found = probability(&[apart, other]);
        assert!(is_near(found.p, 1.0), "opposite ones: {found:?}");
    }

    #[test]
    fn many_cells_are_nearly_normal() {
        let (low, high) = ([1.0, 3.0, 4.0], [2.0, 5.0, 6.0]);
        let up = RankedCell::new(&low, &high).expect("runs");
        let down = RankedCell::new(&high, &low).expect("runs");
        let cells = [vec![up; 20], vec![down; 12]].concat();
        let exact = probability(&cells);
        let observed = cells.iter().map(|cell| cell.observed).sum();
        let normal = nearly_normal(&cells, observed);
        let is_near = (exact.p / normal.p - 1.0).abs() < 0.15;
        assert!(exact.p < 0.2 && is_near, "{exact:?} {normal:?}");
        for (deviations, p) in [(0.0, 1.0), (1.0, 0.317_310_5), (1.96, 0.049_995_8)] {
            assert!((two_tails(deviations) - p).abs() < 1e-6, "{deviations}");
        }
    }
}
