use std::fmt::Write as _;

use super::*;
use crate::random::Random;

/// Runs as they are on a machine that others use too: each differs by some percent, the machine
/// drifts, one in ten is disturbed, and the 99th percentile differs by more.
struct NoisyMachine {
    random: Random,
    /// Standard deviation of a run, in percent.
    percent: f64,
    run: usize,
}

impl NoisyMachine {
    fn new(seed: u64, percent: f64) -> NoisyMachine {
        NoisyMachine {
            random: Random::new(seed),
            percent,
            run: 0,
        }
    }

    /// As good as normal, with deviation 1: the sum of twelve equally distributed numbers.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.random.unit()).sum::<f64>() - 6.0
    }

    /// A run of a program that takes `factor` times as long, at so many in flight.
    fn run(&mut self, factor: f64, in_flight: usize) -> String {
        self.run += 1;
        let drift = (self.run as f64 / 9.0).sin() * self.percent / 200.0;
        let mut slow = factor * (1.0 + drift + self.normal() * self.percent / 100.0);
        if self.random.below(10) == 0 {
            slow *= 1.05 + 0.2 * self.random.unit();
        }
        let own = 1.0 + self.normal() * self.percent / 100.0;
        let tail = 1.0 + self.normal() * self.percent / 25.0;
        format!(
            "{{\"calls_per_s\":{},\"succeeded\":1000,\"in_flight\":{in_flight},\"p50_us\":{},\
             \"p99_us\":{},\"server_us\":{},\"own_us\":{}}}\n",
            100_000.0 / slow,
            160.0 * slow,
            400.0 * slow * tail.max(0.2),
            1.5 * slow,
            0.6 * own,
        )
    }

    /// Interleaved runs of two programs, the second of which takes `factor` times as long.
    fn pair(&mut self, factor: f64, runs: usize, cells: usize) -> Comparison {
        let (mut one, mut other) = (String::new(), String::new());
        for _ in 0..runs {
            for cell in 1..=cells {
                write!(one, "{}", self.run(1.0, cell)).expect("a String");
                write!(other, "{}", self.run(factor, cell)).expect("a String");
            }
        }
        let read = |text: &str| ComparedSide::read("a".into(), text.as_bytes()).expect("results");
        Comparison::new(read(&one), read(&other)).expect("the same cells")
    }
}

fn is_flagged(comparison: &Comparison) -> bool {
    let mut all = comparison.differences().iter();
    all.any(|one| matches!(one.judged, Judged::Better | Judged::Worse))
}

/// Of 40 pairs of equal programs, so many that are said to differ.
fn false_positives(seed: u64, percent: f64, runs: usize, cells: usize) -> usize {
    let mut machine = NoisyMachine::new(seed, percent);
    (0..40)
        .filter(|_| is_flagged(&machine.pair(1.0, runs, cells)))
        .count()
}

#[test]
fn of_40_equal_pairs_at_most_2_are_said_to_differ() {
    for (seed, percent, runs, cells) in [
        (1, 2.0, 15, 1),
        (2, 5.0, 8, 1),
        (3, 2.5, 3, 8),
        (4, 2.5, 5, 4),
        (5, 10.0, 10, 1),
    ] {
        let found = false_positives(seed, percent, runs, cells);
        assert!(
            found <= 2,
            "{found} of 40 with {runs} runs of {cells} cells, {percent} %"
        );
    }
}

/// So many runs find it: fifteen of each side where there is one cell, three where there are eight.
#[test]
fn a_slowdown_of_7_percent_is_found_in_9_pairs_of_10() {
    for (seed, runs, cells) in [(11, 15, 1), (12, 3, 8)] {
        let mut machine = NoisyMachine::new(seed, 2.0);
        let pairs = (0..40).map(|_| machine.pair(1.07, runs, cells));
        let found = pairs.filter(Comparison::is_worse).count();
        assert!(
            found >= 36,
            "{found} of 40 with {runs} runs of {cells} cells"
        );
    }
}

#[test]
fn what_became_faster_is_better() {
    let comparison = NoisyMachine::new(21, 1.0).pair(0.8, 8, 1);
    assert!(!comparison.is_worse());
    let better: Vec<Measure> = comparison
        .judged(Judged::Better)
        .map(|one| one.measure)
        .collect();
    assert!(
        better.contains(&Measure::Calls) && better.contains(&Measure::P50),
        "{better:?}"
    );
    assert!(
        !better.contains(&Measure::OwnCpu),
        "it is the same: {better:?}"
    );
}

#[test]
fn too_few_runs_are_said() {
    let mut machine = NoisyMachine::new(31, 1.0);
    let comparison = machine.pair(2.0, 3, 1);
    assert!(comparison.is_undecided() && !comparison.is_worse());
    assert_eq!(comparison.runs_needed, 5);
    let enough = machine.pair(2.0, 5, 1);
    assert!(!enough.is_undecided() && enough.is_worse());
    let all = machine.pair(2.0, 3, 4);
    assert!(all.is_worse() && !all.is_undecided());
    let worse: Vec<Option<usize>> = all.judged(Judged::Worse).map(|one| one.cell).collect();
    assert!(
        worse.iter().all(Option::is_none),
        "of one cell nothing can be said: {worse:?}"
    );
}

#[test]
fn small_differences_do_not_matter_however_certain() {
    let comparison = NoisyMachine::new(41, 0.01).pair(1.01, 4, 1);
    assert!(!is_flagged(&comparison), "{:?}", comparison.differences());
}

#[test]
fn a_share_is_only_for_questions_that_can_be_answered() {
    let of = |least_p: f64| Difference {
        measure: Measure::Calls,
        cell: None,
        spreads: None,
        change_percent: 50.0,
        p: least_p,
        judged: Judged::Noise,
        least_p,
        way: Ordering::Greater,
    };
    assert_eq!(level(&[of(0.1), of(0.1)]), 0.05);
    assert_eq!(level(&[of(0.001), of(0.1), of(0.1)]), 0.05);
    assert_eq!(level(&[of(0.001), of(0.001), of(0.1)]), 0.025);
    // 0.02 is possible at a half of it, and not at the third that three shares leave.
    assert_eq!(level(&[of(0.001), of(0.001), of(0.02)]), 0.05 / 3.0);
}

#[test]
fn results_without_a_common_cell_are_not_compared() {
    let mut machine = NoisyMachine::new(51, 1.0);
    let (one, other) = (machine.run(1.0, 1), machine.run(1.0, 2));
    let read = |text: &str| ComparedSide::read("a".into(), text.as_bytes()).expect("results");
    assert!(Comparison::new(read(&one), read(&other)).is_none());
}

/// Runs of cells, each as much apart as runs of one program are.
fn of_cells(cells: &[(f64, f64)]) -> Comparison {
    let side = |pick: fn(&(f64, f64)) -> f64| {
        let mut text = String::new();
        for (number, cell) in cells.iter().enumerate() {
            for run in 0..6 {
                let calls = pick(cell) * (1.0 + f64::from(run) / 1e4);
                writeln!(
                    text,
                    "{{\"calls_per_s\":{calls},\"succeeded\":1,\"in_flight\":{number}}}"
                )
                .expect("a String");
            }
        }
        ComparedSide::read("a".into(), text.as_bytes()).expect("results")
    };
    Comparison::new(side(|cell| cell.0), side(|cell| cell.1)).expect("the same cells")
}

/// Nine cells are a little better, and one a lot worse: over all cells neither is so.
#[test]
fn ranks_and_medians_that_contradict_each_other_decide_nothing_of_all_cells() {
    let mut cells = vec![(1_000.0, 1_010.0); 9];
    cells.push((1_000.0, 100.0));
    let comparison = of_cells(&cells);
    let all = comparison.differences().first().expect("of all cells");
    assert_eq!((all.cell, all.judged), (None, Judged::Noise), "{all:?}");
    assert!(all.p <= comparison.level && all.change_percent < -10.0);
    let worse: Vec<Option<usize>> = comparison
        .judged(Judged::Worse)
        .map(|one| one.cell)
        .collect();
    assert_eq!(worse, [Some(9)]);
}

#[test]
fn a_side_that_did_nothing_at_all_differs() {
    let from_nothing = of_cells(&[(0.0, 1_000.0)]);
    let better: Vec<f64> = from_nothing
        .judged(Judged::Better)
        .map(|one| one.change_percent)
        .collect();
    assert_eq!(better, [f64::INFINITY], "{:?}", from_nothing.differences());
    assert!(of_cells(&[(1_000.0, 0.0)]).is_worse());
    assert!(!is_flagged(&of_cells(&[(0.0, 0.0)])));
    // One of many cells does not make all of it nothing.
    let mut cells = vec![(1_000.0, 1_100.0); 9];
    cells.push((1_000.0, 0.0));
    let comparison = of_cells(&cells);
    let all = comparison.differences().first().expect("of all cells");
    assert!(
        all.change_percent > -60.0 && all.change_percent.is_finite(),
        "{all:?}"
    );
}
