//! What runs of a client say by themselves, for all that is judged by them.

use super::diagnosis::rate;
use super::evidence::{ClientEvidence, ClientRun};
use super::limits::STOP_ERRORS_PERCENT;

/// Calls of a run by which a client can be judged.
pub(super) const JUDGED_CALLS: u64 = 40;

/// Calls that are open on a connection from which on they pile up.
pub(super) const PILED_UP: usize = 256;

/// Says how many calls were open.
pub(super) fn calls_open(plain: &ClientRun) -> String {
    format!(
        "{}: {:.1} calls were open on average, {} at most, on {}",
        rate(plain.rate),
        plain.mean_open,
        plain.most_open,
        match plain.connections {
            1 => "one connection".to_owned(),
            several => format!("each of {several} connections"),
        }
    )
}

/// Whether a run shows what its conditions do: enough calls ended, and next to none of them failed.
pub(super) fn is_usable(run: &ClientRun) -> bool {
    run.problem.is_none()
        && run.ended >= JUDGED_CALLS
        && run.failed * 100 < run.ended * STOP_ERRORS_PERCENT
}

/// The throughput of the client as it is, in the two runs: the lower and the higher one.
pub(super) fn plain_rates(evidence: &ClientEvidence) -> (f64, f64) {
    let plain = evidence.plain.rate;
    let again = evidence.again.as_ref().map_or(plain, |again| again.rate);
    (plain.min(again).max(1e-9), plain.max(again).max(1e-9))
}

/// How long it takes until as many calls have ended as are open: a call with its time in a queue.
pub(super) fn cycle_ns(plain: &ClientRun) -> f64 {
    let open = (plain.mean_open * plain.connections_at_a_time as f64).max(1.0);
    open * 1e9 / plain.rate.max(1e-9)
}
