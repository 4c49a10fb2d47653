//! Decides whether it costs a client that its threads move from CPU to CPU: by a run in which it
//! has one CPU alone.

use super::cause::Cause;
use super::client_runs::is_usable;
use super::diagnosis::{Diagnosis, percent, rate, times};
use super::evidence::{ClientEvidence, ClientRun, ProcessUse};

/// Moves a second of all threads from which on they may cost something: a move costs some tens of
/// microseconds at most, so fewer cost less than a hundredth of the time.
const MOVES_LEAST: f64 = 200.0;

/// CPUs that a client uses at most that one CPU may be enough for.
const ONE_CPU: f64 = 1.15;

/// CPUs that it uses at least: what does nothing is not held up by a CPU.
const WORKING: f64 = 0.25;

/// How many times as much the client must bring on one CPU.
const GAIN: f64 = 1.3;

/// How many times as much CPU its calls must take without that.
const CPU_GAIN: f64 = 1.15;

/// Whether a run with one CPU alone is worth while.
pub(super) fn is_worth_trying(plain: &ClientRun) -> bool {
    let has_several_cpus = plain.machine.is_some_and(|machine| machine.cpus > 1);
    let moves = |process: &ProcessUse| {
        (WORKING..=ONE_CPU).contains(&process.cpus)
            && process
                .migrations_per_s
                .is_some_and(|moves| moves >= MOVES_LEAST)
    };
    has_several_cpus && plain.client.as_ref().is_some_and(moves)
}

/// CPU time of a call in the client, in seconds.
fn cpu_of_call(run: &ClientRun) -> Option<f64> {
    let cpus = run.client.as_ref()?.cpus;
    (run.rate > 0.0 && cpus > 0.0).then_some(cpus / run.rate)
}

/// Adds what the run on one CPU has shown. `it`: what is known without it.
pub(super) fn with_pinned_run(evidence: &ClientEvidence, it: Diagnosis) -> Diagnosis {
    let (Some(pinned), Some(again)) = (&evidence.pinned, &evidence.again) else {
        return it;
    };
    let plain = &evidence.plain;
    let best = plain.rate.max(again.rate).max(1e-9);
    let gain = pinned.rate / best;
    let moves = (plain.client.as_ref()).and_then(|process| process.migrations_per_s);
    let shown = format!(
        "on one CPU alone {}, {} of the better of two runs without; there its threads moved {:.0} \
         times each second",
        rate(pinned.rate),
        percent(gain),
        moves.unwrap_or_default()
    );
    let per_call = |run| cpu_of_call(run).unwrap_or_default();
    let cpu_before = per_call(plain).min(per_call(again));
    let cpu_gain = cpu_before / per_call(pinned).max(1e-12);
    let is_known = is_usable(pinned) && cpu_of_call(pinned).is_some();
    if !is_known || gain < GAIN {
        return it.supported(shown);
    }
    if cpu_gain < CPU_GAIN {
        return it.supported(shown).doubted(
            "it is faster on one CPU, though its calls take as much CPU there: why is not known"
                .into(),
        );
    }
    let text = format!(
        "the client does {} as much on one CPU as on all of them, where its threads move from CPU \
         to CPU",
        times(gain)
    );
    let named = Diagnosis::named(Cause::WanderingThreads, text)
        .supported(shown)
        .supported(format!(
            "its calls take {} as much CPU where it may move",
            times(cpu_gain)
        ))
        .changed(
            "bind the client to one CPU (taskset -c N), or its threads to one each".into(),
            Some(cpu_gain),
            Some(gain),
        );
    // What takes most of its CPU comes before what that CPU is moved between.
    match it.causes().first() {
        Some(Cause::Compression) => it.joined(named),
        _ => named.joined(it),
    }
}

#[cfg(test)]
mod tests;
