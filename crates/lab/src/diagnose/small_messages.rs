//! Decides whether a busy server spends its CPU on messages and not on what is in them: by the same
//! operations, several in one message.

use super::cause::Cause;
use super::diagnosis::{Diagnosis, ProcessLimit, process_limit, rate, times};
use super::evidence::{LoadEvidence, LoadPoint};
use super::ladder::best;
use super::limits::STOP_ERRORS_PERCENT;

/// How many times as many operations messages with several of them must bring.
const GAIN: f64 = 2.0;

/// How many times as much CPU an operation must take without.
const CPU_GAIN: f64 = 2.0;

/// What limits a server that lacks CPU.
pub(super) const CPU_CAUSES: [Cause; 2] = [Cause::ServerCpu, Cause::ServerThread];

/// Whether a server has no CPU left, so that calls that take less of it can tell something.
pub(super) fn lacks_cpu(evidence: &LoadEvidence) -> bool {
    let is_busy = |point: &LoadPoint| {
        let causes = (Cause::ServerThread, Cause::ServerCpu);
        point.server.as_ref().is_some_and(|process| {
            let limit = process_limit(process, point.machine.as_ref(), causes);
            matches!(limit, ProcessLimit::Known(cause) if CPU_CAUSES.contains(&cause))
        })
    };
    let one = &evidence.one;
    // The verdict is about the last one, what is compared with is the best one.
    evidence.spread.is_some() && best(one).into_iter().chain(one.last()).any(is_busy)
}

/// CPU time of an operation in the server, in seconds.
pub(super) fn cpu_of_operation(point: &LoadPoint) -> Option<f64> {
    let cpus = point.server.as_ref()?.cpus;
    let operations = operations(point);
    (operations > 0.0 && cpus > 0.0).then_some(cpus / operations)
}

/// Operations each second.
fn operations(point: &LoadPoint) -> f64 {
    point.rate * point.records_per_call as f64
}

/// Adds what messages with several operations have shown. `it`: what is known without it.
pub(super) fn with_batches(evidence: &LoadEvidence, it: Diagnosis) -> Diagnosis {
    let (Some(batched), Some(first)) = (&evidence.batched, best(&evidence.one)) else {
        return it;
    };
    let is_cpu = it
        .causes()
        .first()
        .is_some_and(|cause| CPU_CAUSES.contains(cause));
    if !is_cpu || batched.failed_share() * 100.0 >= STOP_ERRORS_PERCENT as f64 {
        return it;
    }
    let again = evidence.again.as_ref().map_or(0.0, operations);
    let gain = operations(batched) / operations(first).max(again).max(1e-9);
    let cpu_gain = (cpu_of_operation(first).zip(cpu_of_operation(batched)))
        .map_or(0.0, |(single, batched)| single / batched);
    let shown = format!(
        "with {} operations in one message {} of them are done, {} as many, with {} less CPU each",
        batched.records_per_call,
        rate(operations(batched)),
        times(gain),
        times(cpu_gain)
    );
    if gain < GAIN || cpu_gain < CPU_GAIN {
        return it.supported(shown);
    }
    let text = "the server spends its CPU on messages, and little of it on what is in them";
    let named = Diagnosis::named(Cause::SmallMessages, text.into())
        .supported(shown)
        .changed(
            format!(
                "put several operations into one message, as the {} of a Batch here",
                batched.records_per_call
            ),
            Some(cpu_gain),
            Some(gain),
        );
    named.joined(it)
}

#[cfg(test)]
mod tests {
    use super::super::evidence::ProcessUse;
    use super::super::load_verdict::judge_load;
    use super::super::tests::{SERIAL, assert_causes, load, using, with};
    use super::*;

    /// A server with so much CPU in use, and ten operations in a message: so many times the
    /// operations, with so many CPUs.
    fn batched(server: &ProcessUse, gain: f64, cpus: f64) -> LoadEvidence {
        let mut evidence = with(load(SERIAL, 1.0), |point| {
            point.server = Some(server.clone());
        });
        let best = best(&evidence.one).expect("there is one").clone();
        evidence.batched = Some(LoadPoint {
            records_per_call: 10,
            rate: best.rate * gain / 10.0,
            server: Some(using(cpus, cpus / 2.0)),
            ..best
        });
        evidence
    }

    #[test]
    fn operations_that_cost_less_together_are_named_with_the_cpu_that_they_save() {
        let found = judge_load(&batched(&using(3.7, 0.95), 6.0, 3.7));
        assert_causes(&found, &[Cause::SmallMessages, Cause::ServerCpu]);
        let change = found.change.expect("a batch");
        let rounded = |gain: Option<f64>| gain.map(f64::round);
        assert_eq!(
            (rounded(change.predicted), rounded(change.measured)),
            (Some(6.0), Some(6.0))
        );
        let found = judge_load(&batched(&using(1.1, 0.97), 3.0, 1.1));
        assert_causes(&found, &[Cause::SmallMessages, Cause::ServerThread]);
    }

    #[test]
    fn operations_that_cost_as_much_together_leave_the_cause_what_it_was() {
        for (gain, cpus) in [(1.0, 3.7), (1.6, 3.7), (2.5, 8.0), (0.5, 1.0)] {
            let found = judge_load(&batched(&using(3.7, 0.95), gain, cpus));
            assert_causes(&found, &[Cause::ServerCpu]);
            let is_said = |text: &String| text.contains("10 operations in one message");
            assert!(found.evidence_for.iter().any(is_said), "{found:#?}");
        }
        // A lock, a disk or a hypervisor gains by fewer calls too.
        let found = judge_load(&batched(&using(0.05, 0.02), 9.0, 0.05));
        assert_causes(&found, &[Cause::ServerSerial]);
        let syncing = ProcessUse {
            in_sync: Some(0.9),
            ..using(0.05, 0.02)
        };
        assert_causes(
            &judge_load(&batched(&syncing, 9.0, 0.05)),
            &[Cause::DiskSync],
        );
        // They failed.
        let mut failed = batched(&using(3.7, 0.95), 6.0, 3.7);
        failed
            .batched
            .iter_mut()
            .for_each(|point| point.failed = 90);
        assert_causes(&judge_load(&failed), &[Cause::ServerCpu]);
    }

    #[test]
    fn they_are_tried_only_at_a_server_without_cpu_left() {
        let of = |server: ProcessUse| lacks_cpu(&batched(&server, 1.0, 1.0));
        assert!(of(using(3.7, 0.95)));
        assert!(of(using(1.1, 0.97)));
        assert!(!of(using(0.05, 0.02)));
        let unseen = with(load(SERIAL, 1.0), |point| point.server = None);
        assert!(!lacks_cpu(&unseen));
    }
}
