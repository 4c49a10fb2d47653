//! Bounds of sweeps and of comparisons.

use std::time::Duration;

/// Cells of one sweep, all combinations of values: above, one run of each takes an hour and more.
pub const MAX_CELLS: usize = 1_024;

/// Parameters of one sweep: what a picture can show.
pub const MAX_AXES: usize = 2;

/// Values of one parameter: far above what a curve needs, below what a slip of the finger costs.
pub const MAX_AXIS_VALUES: usize = 64;

/// Runs of one cell.
pub const MAX_RUNS: usize = 100;

/// Runs of one cell where nobody says how many: the fewest with a median and a spread.
pub const DEFAULT_RUNS: usize = 3;

/// Runs of one cell that a long budget is spent on; what is left makes them longer.
pub const BUDGET_RUNS: usize = 10;

/// How long a sweep takes where nobody says.
pub const BUDGET: Duration = Duration::from_secs(60);

/// The shortest time that a budget measures in one run: below it a run says little.
pub const MEASURED_LEAST: Duration = Duration::from_millis(300);

/// The time of one run from which on a budget is rather spent on more runs.
pub const MEASURED_GOOD: Duration = Duration::from_secs(2);

/// The longest time that a budget measures in one run.
pub const MEASURED_MOST: Duration = Duration::from_secs(10);

/// The shortest and the longest warm-up that a budget gives a run.
pub const WARM_UP: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];

/// What a run takes beside its warm-up and the measured time, as a budget reckons: connecting,
/// making and filling the database.
pub const RUN_OVERHEAD: Duration = Duration::from_millis(400);

/// Runs of one cell with `--full`.
pub const FULL_RUNS: usize = 5;

/// Share of the best throughput, in percent, that the knee reaches: what is beyond it costs latency
/// and brings less than a run differs from the next one.
pub const KNEE_PERCENT: u64 = 95;

/// How far runs of one cell may be apart, in percent of their median, without a word about it: as
/// far as a knee of [`KNEE_PERCENT`] can be seen at all.
pub const UNSTEADY_PERCENT: u64 = 20;

/// Values of a parameter from which on a knee is looked for.
pub const KNEE_VALUES_LEAST: usize = 3;

/// Bytes of a file with saved results: 1 000 cells of 100 runs are a quarter of it. Stops a file
/// that is something else from filling the memory.
pub const MAX_SAVED_BYTES: u64 = 1 << 30;

/// Runs of one cell that a comparison takes from each side; the exact distribution of more takes
/// long, and tells the same.
pub const MAX_COMPARED_RUNS: usize = 30;

/// Probability, in percent, that a comparison of two equal results says that something differs.
pub const FALSE_POSITIVE_PERCENT: u64 = 5;

/// The least difference, in percent, that a comparison reports: smaller ones have causes such as
/// the placement of code in memory, which no change of a program explains.
pub const LEAST_EFFECT_PERCENT: u64 = 2;

/// Values that the sum of ranks over all cells may have for its exact distribution to be
/// calculated; above, it is as good as normal.
pub const EXACT_SUMS_MOST: usize = 10_000;
