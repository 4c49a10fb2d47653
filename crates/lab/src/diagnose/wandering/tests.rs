//! Tables of evidence: a client whose threads move, and what looks like it.

use super::super::client_verdict::judge_client;
use super::super::evidence::CompressionUse;
use super::super::tests::{assert_causes, assert_undecided, client, using};
use super::*;

/// A client that leaves the server without work; `cpus` and `busiest`: what it uses.
fn leaving(cpus: f64, busiest: f64) -> ClientEvidence {
    let mut evidence = client(1.0, 1.0, 1.0);
    let change = |run: &mut ClientRun| {
        (run.client_share, run.server_share) = (0.8, 0.2);
        (run.mean_open, run.most_open) = (0.2, 8);
        run.client = Some(ProcessUse {
            migrations_per_s: Some(3_000.0),
            ..using(cpus, busiest)
        });
    };
    change(&mut evidence.plain);
    evidence.again.iter_mut().for_each(change);
    evidence
}

/// The same with a run on one CPU, which does `gain` times as much with `cpus`.
fn pinned(mut evidence: ClientEvidence, gain: f64, cpus: f64) -> ClientEvidence {
    let mut run = evidence.plain.clone();
    run.rate *= gain;
    run.client = Some(using(cpus, cpus));
    evidence.pinned = Some(run);
    evidence
}

#[test]
fn a_client_that_is_faster_and_cheaper_on_one_cpu_is_named_with_what_limits_it_there() {
    let found = judge_client(&pinned(leaving(1.0, 0.6), 1.6, 1.0));
    assert_causes(&found, &[Cause::WanderingThreads, Cause::ClientCpu]);
    let change = found.change.expect("one CPU");
    let rounded = |gain: Option<f64>| gain.map(|gain| (gain * 10.0).round());
    assert_eq!(
        (rounded(change.predicted), rounded(change.measured)),
        (Some(16.0), Some(16.0))
    );
    // One that waits in between.
    let found = judge_client(&pinned(leaving(0.3, 0.2), 1.5, 0.3));
    assert_causes(&found, &[Cause::WanderingThreads, Cause::ClientPace]);
    // What is not decided without it is, with it.
    let found = judge_client(&pinned(leaving(0.7, 0.5), 1.5, 0.7));
    assert_causes(&found, &[Cause::WanderingThreads]);
}

#[test]
fn one_cpu_that_brings_nothing_leaves_the_cause_what_it_was() {
    for (gain, cpus) in [(1.0, 1.0), (1.2, 1.0), (0.5, 0.6)] {
        let found = judge_client(&pinned(leaving(1.0, 0.97), gain, cpus));
        assert_causes(&found, &[Cause::ClientThread]);
        let is_said = |text: &String| text.contains("on one CPU alone");
        assert!(found.evidence_for.iter().any(is_said), "{found:#?}");
    }
    let found = judge_client(&pinned(leaving(0.7, 0.5), 1.1, 0.7));
    assert_undecided(&found, "profile");
    // The second run without was as good.
    let mut evidence = pinned(leaving(1.0, 0.97), 1.6, 1.0);
    evidence.again.iter_mut().for_each(|run| run.rate *= 1.5);
    assert_causes(&judge_client(&evidence), &[Cause::ClientThread]);
    // It was not made.
    let mut evidence = pinned(leaving(1.0, 0.97), 1.6, 1.0);
    evidence.again = None;
    assert_causes(&judge_client(&evidence), &[Cause::ClientThread]);
}

#[test]
fn a_gain_that_saves_no_cpu_is_not_named() {
    let found = judge_client(&pinned(leaving(0.3, 0.2), 1.6, 0.48));
    assert_causes(&found, &[Cause::ClientPace]);
    let is_said = |text: &String| text.contains("why is not known");
    assert!(found.evidence_against.iter().any(is_said), "{found:#?}");
}

/// Nobody was waited for in it: a run on one CPU is not looked at.
#[test]
fn a_server_that_is_waited_for_is_judged_without_it() {
    let mut evidence = pinned(client(1.0, 0.98, 1.0), 1.6, 0.2);
    evidence.again = Some(evidence.plain.clone());
    assert_causes(&judge_client(&evidence), &[Cause::ServerSerial]);
}

/// Threads that compress move between CPUs, too.
#[test]
fn what_takes_most_of_the_cpu_comes_before_the_moves() {
    let compressing = CompressionUse {
        messages_per_s: 500.0,
        ratio: 8.0,
        compress_cpus: 0.6,
        decompress_cpus: 0.0,
    };
    for (busiest, causes) in [
        (
            0.96,
            &[
                Cause::Compression,
                Cause::ClientThread,
                Cause::WanderingThreads,
            ][..],
        ),
        // What limits the client is not known, but that is.
        (0.3, &[Cause::Compression, Cause::WanderingThreads][..]),
    ] {
        let cpus = if busiest > 0.9 { 1.0 } else { 0.7 };
        let mut evidence = pinned(leaving(cpus, busiest), 1.6, cpus);
        evidence.plain.compressed_requests = Some(compressing);
        assert_causes(&judge_client(&evidence), causes);
    }
}
