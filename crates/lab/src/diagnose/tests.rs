//! Tables of evidence, and what they come to: each cause, some of them together, and none.

use std::time::Duration;

use super::agent_presence::{AgentLoss, AgentLossCause, AgentPresence};
use super::cause::Cause;
use super::client_verdict::judge_client;
use super::diagnosis::{Conclusion, Diagnosis};
use super::evidence::{
    ClientEvidence, ClientRun, EarlyEnd, LoadCeiling, LoadEvidence, LoadPoint, MachineUse,
    ProcessUse, ThreadUse,
};
use super::load_verdict::judge_load;

pub(super) const CEILING: LoadCeiling = LoadCeiling {
    rate: 10_000.0,
    in_flight: 256,
    time_ns: 120_000_000_000,
};

/// A server that waits.
pub(super) fn idle() -> ProcessUse {
    using(0.05, 0.02)
}

pub(super) fn using(cpus: f64, busiest: f64) -> ProcessUse {
    ProcessUse {
        cpus,
        busiest: Some(ThreadUse {
            name: "worker".into(),
            busy: busiest,
            waited: 0.0,
        }),
        waited_for_cpus: 0.0,
        in_sync: Some(0.0),
        quota_cpus: None,
        throttled: None,
        migrations_per_s: None,
    }
}

pub(super) const MACHINE: MachineUse = MachineUse {
    cpus: 4,
    steal: 0.0,
    idle: 0.6,
};

/// Experiments on one connection with 1, 2, 4 … calls in flight.
pub(super) fn points(rates: &[f64]) -> Vec<LoadPoint> {
    let point = |(step, &rate): (usize, &f64)| {
        let in_flight = 1 << step;
        let mean_ns = (in_flight as f64 * 1e9 / rate) as u64;
        LoadPoint {
            connections: 1,
            in_flight,
            padding_bytes: 0,
            accepts_gzip: true,
            records_per_call: 1,
            rate,
            mean_ns,
            p50_ns: mean_ns,
            p99_ns: mean_ns,
            succeeded: rate as u64,
            failed: 0,
            bytes_per_s: (rate * 40.0, rate * 35.0),
            segments_per_s: Some((rate, rate)),
            generator_busy: Some(0.1),
            window_wait: 0.0,
            stream_limit: None,
            server: Some(idle()),
            machine: Some(MACHINE),
        }
    };
    rates.iter().enumerate().map(point).collect()
}

/// With the last experiment spread over several connections, `gain` times as good.
pub(super) fn load(rates: &[f64], gain: f64) -> LoadEvidence {
    let one = points(rates);
    let last = one.last().expect("there is one").clone();
    LoadEvidence {
        ceiling: CEILING,
        spread: Some(LoadPoint {
            connections: last.in_flight.min(8),
            rate: last.rate * gain,
            ..last.clone()
        }),
        again: Some(last),
        alone: None,
        larger: None,
        uncompressed: None,
        still_compressed: None,
        batched: None,
        one,
        round_trip_ns: None,
        agent: None,
        early_end: None,
    }
}

pub(super) fn with(mut evidence: LoadEvidence, change: impl Fn(&mut LoadPoint)) -> LoadEvidence {
    evidence.one.iter_mut().for_each(&change);
    evidence.spread.iter_mut().for_each(change);
    evidence
}

fn with_server(evidence: LoadEvidence, server: &ProcessUse) -> LoadEvidence {
    with(evidence, |point| point.server = Some(server.clone()))
}

pub(super) fn assert_causes(diagnosis: &Diagnosis, causes: &[Cause]) {
    assert_eq!(diagnosis.causes(), causes, "{diagnosis:#?}");
    assert!(!diagnosis.evidence_for.is_empty(), "{diagnosis:#?}");
    let words = causes.first().map(|cause| cause.words());
    assert!(words.is_some_and(|words| diagnosis.sentence.starts_with(words)));
}

pub(super) fn assert_undecided(diagnosis: &Diagnosis, part: &str) {
    assert_eq!(
        diagnosis.conclusion,
        Conclusion::Undecided,
        "{diagnosis:#?}"
    );
    assert!(diagnosis.sentence.starts_with("undecided: "));
    assert!(!diagnosis.needs.is_empty(), "it says what it needs");
    let all = format!("{} {}", diagnosis.sentence, diagnosis.needs.join(" "));
    assert!(all.contains(part), "{all}");
}

pub(super) const SERIAL: &[f64] = &[200.0, 199.0, 201.0];
pub(super) const POOL: &[f64] = &[66.0, 131.0, 262.0, 263.0, 262.0];

#[test]
fn a_server_that_works_on_one_call_at_a_time_is_named() {
    let found = judge_load(&load(SERIAL, 1.0));
    assert_causes(&found, &[Cause::ServerSerial]);
    assert!(found.sentence.contains("5.0 ms") || found.sentence.contains("4.98 ms"));
}

/// The first experiment was held up by something else.
#[test]
fn a_noisy_begin_does_not_make_a_pool_of_a_lock() {
    let mut evidence = load(&[30.0, 60.0, 61.0, 58.0], 1.0);
    (evidence.one[0].mean_ns, evidence.one[0].p50_ns) = (33_550_000, 33_000_000);
    let quiet = LoadPoint {
        rate: 58.0,
        mean_ns: 16_400_000,
        p50_ns: 16_000_000,
        ..evidence.one[0].clone()
    };
    evidence.alone = Some(quiet);
    assert_causes(&judge_load(&evidence), &[Cause::ServerSerial]);
}

#[test]
fn a_server_that_works_on_a_few_calls_at_a_time_is_named() {
    let found = judge_load(&load(POOL, 1.0));
    assert_causes(&found, &[Cause::ServerPool]);
    assert!(found.sentence.contains("about 4 calls"), "{found:#?}");
}

#[test]
fn a_way_that_may_be_full_is_not_taken_for_a_lock() {
    // Of 300 kB/s, and of 64 kbit/s with its acknowledgements.
    for bytes_per_s in [300_000.0, 40_960.0, 8_200.0] {
        let evidence = with(load(SERIAL, 1.0), |point| point.bytes_per_s.1 = bytes_per_s);
        assert_undecided(&judge_load(&evidence), "smaller messages");
    }
    // One that is full and long would have several calls under way; so slow a one is not known.
    let evidence = with(load(POOL, 1.0), |point| point.bytes_per_s.1 = 40_960.0);
    let found = judge_load(&evidence);
    assert_causes(&found, &[Cause::ServerPool]);
    assert!(found.evidence_against[0].contains("looks the same"));
    let evidence = with(load(POOL, 1.0), |point| point.bytes_per_s.1 = 300_000.0);
    assert_undecided(&judge_load(&evidence), "smaller messages");
}

/// A pool of two, of whose calls one half takes 1 ms and the other one 10 ms: Little's law is about
/// the mean.
#[test]
fn calls_of_two_kinds_do_not_make_a_lock_of_a_pool() {
    let mut evidence = load(&[181.0, 363.0, 363.0, 363.0], 1.0);
    for point in &mut evidence.one {
        point.p50_ns = 1_000_000 * point.in_flight as u64;
    }
    assert_undecided(&judge_load(&evidence), "very different times");
    evidence.one[0].p50_ns = 5_400_000;
    assert_causes(&judge_load(&evidence), &[Cause::ServerPool]);
}

/// What more calls bring does not come one after the other, whatever a call takes that is alone.
#[test]
fn a_server_that_answers_more_with_more_calls_does_not_work_on_one_at_a_time() {
    let mut evidence = load(&[120.0, 200.0, 200.0, 201.0], 1.0);
    (evidence.one[0].mean_ns, evidence.one[0].p50_ns) = (5_000_000, 5_000_000);
    assert_undecided(&judge_load(&evidence), "what its threads wait for");
}

#[test]
fn several_connections_that_bring_far_less_do_not_name_the_server() {
    // Nobody has counted packets.
    let evidence = with(load(SERIAL, 0.3), |point| point.segments_per_s = None);
    assert_undecided(&judge_load(&evidence), "far less");
    assert_causes(&judge_load(&load(SERIAL, 0.7)), &[Cause::ServerSerial]);
    // What its CPUs do is known all the same.
    let evidence = with_server(load(SERIAL, 0.3), &using(3.7, 0.95));
    assert_causes(&judge_load(&evidence), &[Cause::ServerCpu]);
}

#[test]
fn a_server_that_cannot_be_seen_is_not_judged() {
    let evidence = with(load(SERIAL, 1.0), |point| point.server = None);
    assert_undecided(&judge_load(&evidence), "--server-pid");
    let unknown = ProcessUse {
        in_sync: None,
        ..idle()
    };
    let found = judge_load(&with_server(load(SERIAL, 1.0), &unknown));
    assert!(
        found
            .evidence_for
            .iter()
            .any(|text| text.contains("is not known"))
    );
}

/// It is said that it was lost, and what is there is not proposed.
#[test]
fn an_agent_that_was_lost_is_part_of_what_is_said() {
    let agent = |cause: Option<AgentLossCause>| {
        Some(AgentPresence {
            address: "192.0.2.1:1988".into(),
            loss: cause.map(|cause| AgentLoss {
                after: Duration::from_millis(2_600),
                cause,
            }),
        })
    };
    let stopped = || AgentLossCause::Stopped("nothing came for 3 s".into());
    let unseen = |agent| {
        let mut evidence = with(load(SERIAL, 1.0), |point| point.server = None);
        evidence.agent = agent;
        judge_load(&evidence)
    };
    let unseen_client = |agent| {
        let mut evidence = with_plain(client(1.0, 0.9, 1.0), |run| run.server = None);
        evidence.agent = agent;
        judge_client(&evidence)
    };
    for found in [
        unseen(agent(Some(stopped()))),
        unseen_client(agent(Some(stopped()))),
    ] {
        assert_undecided(&found, "why the agent at 192.0.2.1:1988 was lost");
        let said = found.evidence_against.join("\n");
        let expected = "the agent at 192.0.2.1:1988 stopped answering at second 2 of the run: \
                        nothing came for 3 s; ";
        assert!(said.contains(expected), "{said}");
        let needs = found.needs.join("\n");
        assert!(!needs.contains("pelton lab agent"), "{needs}");
    }
    assert_undecided(&unseen(None), "pelton lab agent");
    assert_undecided(&unseen_client(None), "pelton lab agent");
    // What was seen before it was lost counts.
    let mut evidence = load(SERIAL, 1.0);
    evidence.agent = agent(Some(AgentLossCause::Impossible(
        "process.cpus is NaN".into(),
    )));
    let found = judge_load(&evidence);
    assert_causes(&found, &[Cause::ServerSerial]);
    let said = found.evidence_against.join("\n");
    assert!(said.contains("answers impossible figures: process.cpus is NaN"));
    evidence.agent = agent(None);
    let said = judge_load(&evidence).evidence_against.join("\n");
    assert!(!said.contains("agent"), "{said}");
    // And where nothing was measured.
    evidence.agent = agent(Some(stopped()));
    evidence.one.clear();
    let found = judge_load(&evidence);
    assert_eq!(
        found.evidence_against.len(),
        1,
        "it is said once: {found:#?}"
    );
}

#[test]
fn cpu_of_the_server_is_told_from_one_busy_thread() {
    for (server, cause) in [
        (using(3.7, 0.95), Cause::ServerCpu),
        (using(1.1, 0.97), Cause::ServerThread),
        // Threads that take turns.
        (using(0.97, 0.3), Cause::ServerCpu),
    ] {
        assert_causes(
            &judge_load(&with_server(load(SERIAL, 1.0), &server)),
            &[cause],
        );
    }
    // Others use the rest of the machine.
    let full = MachineUse {
        cpus: 2,
        idle: 0.0,
        ..MACHINE
    };
    for (server, cause) in [
        (using(1.02, 0.98), Cause::ServerThread),
        (using(1.2, 0.5), Cause::ServerCpu),
    ] {
        let evidence = with_server(load(SERIAL, 1.0), &server);
        let evidence = with(evidence, |point| point.machine = Some(full));
        assert_causes(&judge_load(&evidence), &[cause]);
    }
    // Threads that take turns, of which the next one waits for a CPU; more of them could run.
    for (waited_for_cpus, causes) in [(0.4, &[Cause::ServerCpu][..]), (0.5, &[])] {
        let turns = ProcessUse {
            waited_for_cpus,
            ..using(1.02, 0.2)
        };
        let found = judge_load(&with_server(load(SERIAL, 1.0), &turns));
        assert_eq!(found.causes(), causes, "{found:#?}");
    }
    // Neither busy nor idle.
    let found = judge_load(&with_server(load(SERIAL, 1.0), &using(0.7, 0.4)));
    assert_undecided(&found, "profile");
    // Almost one CPU, and nobody who waits for a turn.
    for (cpus, waited_for_cpus, causes) in [
        (0.9, 0.0, &[][..]),
        (0.8, 0.15, &[]),
        (0.8, 0.25, &[Cause::ServerCpu]),
    ] {
        let almost = ProcessUse {
            waited_for_cpus,
            ..using(cpus, 0.3)
        };
        let found = judge_load(&with_server(load(SERIAL, 1.0), &almost));
        assert_eq!(found.causes(), causes, "{found:#?}");
    }
    // Others keep it from its CPU.
    let mut starved = using(0.6, 0.6);
    starved.waited_for_cpus = 0.35;
    starved.busiest.iter_mut().for_each(|it| it.waited = 0.35);
    assert_causes(
        &judge_load(&with_server(load(SERIAL, 1.0), &starved)),
        &[Cause::ServerThread],
    );
}

/// A pool whose threads use one CPU by chance, on a machine with many.
#[test]
fn a_pool_that_uses_one_cpu_is_not_taken_for_threads_that_take_turns() {
    let many = MachineUse {
        cpus: 16,
        idle: 0.9,
        ..MACHINE
    };
    let of_pool = |rates: &[f64], server: &ProcessUse| {
        let evidence = with_server(load(rates, 1.0), server);
        judge_load(&with(evidence, |point| point.machine = Some(many)))
    };
    let eight = &[33.0, 66.0, 132.0, 264.0, 265.0, 264.0];
    assert_undecided(&of_pool(eight, &using(0.97, 0.3)), "profile");
    let almost = ProcessUse {
        waited_for_cpus: 0.2,
        ..using(0.9, 0.3)
    };
    assert_undecided(&of_pool(eight, &almost), "profile");
    // Two at a time, of which most is CPU: one waits for the turn of the other.
    let turns = of_pool(&[100.0, 195.0, 196.0, 195.0], &using(1.0, 0.3));
    assert_causes(&turns, &[Cause::ServerCpu]);
    assert_causes(&of_pool(eight, &using(15.0, 0.9)), &[Cause::ServerCpu]);
}

#[test]
fn syncs_are_named_where_they_limit_and_where_they_are_waited_for() {
    let syncing = ProcessUse {
        in_sync: Some(0.9),
        ..idle()
    };
    let found = judge_load(&with_server(load(SERIAL, 1.0), &syncing));
    assert_causes(&found, &[Cause::DiskSync]);
    // Calls that share a sync: throughput grows, and a call that is alone waits for the disk.
    let found = judge_load(&with_server(
        load(&[900.0, 1_800.0, 8_700.0], 1.0),
        &syncing,
    ));
    assert_causes(&found, &[Cause::DiskSync]);
    let change = found.change.expect("more in flight");
    assert!(change.measured.is_some_and(|gain| gain > 9.0), "{change:?}");
    // Others have the CPUs: what it waits for beside them is not known.
    let starved = ProcessUse {
        waited_for_cpus: 0.9,
        ..idle()
    };
    let found = judge_load(&with_server(load(SERIAL, 1.0), &starved));
    assert_undecided(&found, "without a CPU");
    // Some of the time: not clear.
    let some = ProcessUse {
        in_sync: Some(0.28),
        ..idle()
    };
    let found = judge_load(&with_server(load(SERIAL, 1.0), &some));
    assert_undecided(&found, "profile");
    // It works as much as threads do that take turns, and syncs meanwhile.
    for in_sync in [0.9, 0.28] {
        let both = ProcessUse {
            in_sync: Some(in_sync),
            ..using(1.0, 0.3)
        };
        let found = judge_load(&with_server(load(SERIAL, 1.0), &both));
        assert_undecided(&found, "profile");
    }
}

#[test]
fn quota_and_steal_are_named_before_the_cpu_that_they_take() {
    let throttled = ProcessUse {
        quota_cpus: Some(0.5),
        throttled: Some(0.8),
        ..using(0.5, 0.5)
    };
    let found = judge_load(&with_server(load(SERIAL, 1.0), &throttled));
    assert_causes(&found, &[Cause::Quota]);
    let stolen = MachineUse {
        steal: 0.3,
        ..MACHINE
    };
    let evidence = with_server(load(SERIAL, 1.0), &using(0.9, 0.9));
    let found = judge_load(&with(evidence, |point| point.machine = Some(stolen)));
    assert_causes(&found, &[Cause::Steal]);
    // It takes nothing from a server that does not want it.
    let found = judge_load(&with(load(SERIAL, 1.0), |point| {
        point.machine = Some(stolen)
    }));
    assert_causes(&found, &[Cause::ServerSerial]);
}

#[test]
fn one_connection_is_told_from_a_limit_on_streams_and_from_windows() {
    let found = judge_load(&load(POOL, 3.8));
    assert_causes(&found, &[Cause::OneConnection]);
    let change = found.change.expect("more connections");
    assert_eq!(
        (change.predicted, change.measured.map(f64::round)),
        (Some(8.0), Some(4.0))
    );
    let evidence = with(load(POOL, 3.8), |point| point.stream_limit = Some(4));
    let found = judge_load(&evidence);
    assert_causes(&found, &[Cause::StreamLimit]);
    assert_eq!(found.change.and_then(|change| change.predicted), Some(4.0));
    // A way that is full, which several connections use better.
    let evidence = with(load(POOL, 1.9), |point| point.bytes_per_s.0 = 100_000.0);
    assert_undecided(&judge_load(&evidence), "smaller messages");
    let thread = using(1.0, 0.97);
    assert_causes(
        &judge_load(&with_server(evidence, &thread)),
        &[Cause::OneConnection, Cause::ServerThread],
    );
    // Each connection brings as much as the first: the way has room for them.
    let evidence = with(load(POOL, 7.0), |point| point.bytes_per_s.0 = 100_000.0);
    assert_causes(&judge_load(&evidence), &[Cause::OneConnection]);
    // Throughput stops to grow far below the limit.
    let evidence = with(load(POOL, 3.8), |point| point.stream_limit = Some(8));
    assert_causes(&judge_load(&evidence), &[Cause::OneConnection]);
    let evidence = with(load(POOL, 3.8), |point| point.window_wait = 0.8);
    let found = judge_load(&evidence);
    assert_causes(&found, &[Cause::Window]);
    assert!(found.evidence_against[0].contains("does not read on"));
    // It does not read on, as its thread has no time.
    let found = judge_load(&with_server(evidence.clone(), &using(1.0, 0.97)));
    assert_causes(&found, &[Cause::ServerThread, Cause::Window]);
    let found = judge_load(&with_server(evidence, &using(0.7, 0.4)));
    assert_undecided(&found, "does not read on");
    // More connections bring nothing: it does not read on, or its window is small.
    let evidence = with(load(POOL, 1.0), |point| point.window_wait = 0.8);
    assert_undecided(&judge_load(&evidence), "window");
    // A limit that is reached, and does not matter.
    let evidence = with(load(SERIAL, 1.0), |point| point.stream_limit = Some(2));
    assert_causes(&judge_load(&evidence), &[Cause::ServerSerial]);
}

#[test]
fn what_comes_behind_a_limit_is_named_beside_it() {
    let found = judge_load(&load(POOL, 3.8));
    assert!(
        found.evidence_against[0].contains("another one"),
        "{found:#?}"
    );
    let mut evidence = load(POOL, 3.8);
    evidence
        .spread
        .iter_mut()
        .for_each(|point| point.server = Some(using(3.9, 0.9)));
    assert_causes(
        &judge_load(&evidence),
        &[Cause::OneConnection, Cause::ServerCpu],
    );
    // As much as predicted: nothing else is in the way.
    evidence
        .spread
        .iter_mut()
        .for_each(|point| point.rate *= 1.9);
    assert_causes(&judge_load(&evidence), &[Cause::OneConnection]);
}

#[test]
fn a_gain_that_may_be_chance_decides_nothing() {
    assert_undecided(&judge_load(&load(POOL, 1.22)), "quieter machine");
    // The same experiment once more was as good as several connections.
    let mut evidence = load(POOL, 1.4);
    evidence
        .again
        .iter_mut()
        .for_each(|again| again.rate *= 1.4);
    let found = judge_load(&evidence);
    assert_causes(&found, &[Cause::ServerPool]);
    assert!(
        found
            .evidence_against
            .iter()
            .any(|text| text.contains("not quiet"))
    );
    let mut evidence = load(POOL, 1.0);
    evidence.spread = None;
    assert_undecided(&judge_load(&evidence), "several connections");
}

#[test]
fn a_service_with_more_to_give_is_healthy() {
    for rates in [&[5_000.0, 9_000.0][..], &[9_900.0][..]] {
        let found = judge_load(&load(rates, 1.0));
        assert_eq!(found.conclusion, Conclusion::NoLimit, "{found:#?}");
    }
    let growing: Vec<f64> = (0..9).map(|step| 30.0 * f64::from(1 << step)).collect();
    let found = judge_load(&load(&growing, 1.0));
    assert_eq!(found.conclusion, Conclusion::NoLimit, "{found:#?}");
    let change = found.change.expect("more in flight");
    assert_eq!(
        (change.predicted, change.measured),
        (Some(256.0), Some(256.0))
    );
}

#[test]
fn a_long_way_is_named_where_it_is_most_of_a_call() {
    let growing: Vec<f64> = (0..9).map(|step| 30.0 * f64::from(1 << step)).collect();
    let mut evidence = load(&growing, 1.0);
    evidence.round_trip_ns = Some(30_000_000);
    assert_causes(&judge_load(&evidence), &[Cause::Way]);
    evidence.round_trip_ns = Some(9_000_000);
    assert_eq!(judge_load(&evidence).conclusion, Conclusion::NoLimit);
}

#[test]
fn the_generator_itself_can_be_the_limit() {
    let evidence = with(load(SERIAL, 1.0), |point| point.generator_busy = Some(0.96));
    let found = judge_load(&evidence);
    assert_eq!(found.causes(), [Cause::Generator]);
    assert!(!found.needs.is_empty());
    // It had time left with one connection, and none with several, which bring no more.
    for gain in [1.0, 1.2] {
        let mut evidence = load(POOL, gain);
        evidence
            .spread
            .iter_mut()
            .for_each(|point| point.generator_busy = Some(0.95));
        let found = judge_load(&evidence);
        assert_eq!(found.causes(), [Cause::Generator], "{found:#?}");
    }
    // They bring more, and less than they could.
    let mut evidence = load(POOL, 1.5);
    evidence
        .spread
        .iter_mut()
        .for_each(|point| point.generator_busy = Some(0.95));
    let found = judge_load(&evidence);
    assert_eq!(found.causes(), [Cause::OneConnection, Cause::Generator]);
}

/// A first run that something else held up does not make a limit on streams of a connection that
/// carries one call at a time.
#[test]
fn the_knee_is_that_of_the_quieter_runs() {
    let mut evidence = load(&[90.0, 125.0, 126.0, 124.0], 6.0);
    evidence = with(evidence, |point| point.stream_limit = Some(2));
    assert_causes(&judge_load(&evidence), &[Cause::StreamLimit]);
    evidence.alone = Some(LoadPoint {
        rate: 125.0,
        ..evidence.one[0].clone()
    });
    assert_causes(&judge_load(&evidence), &[Cause::OneConnection]);
}

#[test]
fn failures_and_early_ends_are_part_of_what_is_said() {
    let mut evidence = load(&[100.0, 190.0], 1.0);
    evidence.spread = None;
    evidence.early_end = Some(EarlyEnd::Failures("UNAVAILABLE: full".into()));
    let found = judge_load(&evidence);
    assert_undecided(&found, "still grew");
    assert!(found.needs[0].contains("calls that succeed"), "{found:#?}");
    assert!(found.evidence_against[0].contains("UNAVAILABLE: full"));
    evidence.one.clear();
    assert_undecided(&judge_load(&evidence), "UNAVAILABLE: full");
    evidence.early_end = Some(EarlyEnd::User);
    assert_undecided(&judge_load(&evidence), "before anything was measured");
    let failing = with(load(SERIAL, 1.0), |point| point.failed = 40);
    let found = judge_load(&failing);
    assert!(
        found
            .evidence_against
            .iter()
            .any(|text| text.contains("calls failed"))
    );
}

// --- the user's own client

/// Eight calls of 15 ms on one connection.
pub(super) fn run(rate: f64) -> ClientRun {
    ClientRun {
        stream_limit_made: None,
        delay_ns: 0,
        rate,
        ended: 1_000,
        failed: 0,
        connections: 1,
        connections_at_a_time: 1,
        mean_open: 7.9,
        most_open: 8,
        limit: Some(100),
        at_limit: 0.0,
        client_share: 0.05,
        server_share: 0.95,
        server_window_share: 0.0,
        client_window_share: 0.0,
        server_ns: 15_000_000,
        server_mean_ns: 15_000_000,
        call_ns: 15_100_000,
        bytes_per_s: (7_000.0, 5_000.0),
        tap_busy: 0.1,
        round_trip_ns: None,
        compressed_requests: None,
        compressed_responses: None,
        client: Some(using(0.2, 0.1)),
        server: Some(idle()),
        machine: Some(MACHINE),
        server_machine: Some(MACHINE),
        problem: None,
    }
}

/// The same, which takes as long for each as it does with so many open (Little's law).
fn with_open(mut run: ClientRun, open: f64) -> ClientRun {
    let server_ns = (open * 1e9 / run.rate) as u64;
    (run.server_ns, run.server_mean_ns) = (server_ns, server_ns);
    run
}

/// With what is left with half as many open, with one open, and with a longer way.
pub(super) fn client(halved: f64, single: f64, delayed: f64) -> ClientEvidence {
    let plain = run(530.0);
    let limited = |left: f64, limit| {
        let run = ClientRun {
            stream_limit_made: Some(limit),
            rate: plain.rate * left,
            ..plain.clone()
        };
        Some(with_open(run, f64::from(limit)))
    };
    ClientEvidence {
        halved: limited(halved, 4),
        single: limited(single, 1),
        delayed: Some(ClientRun {
            delay_ns: 7_500_000,
            rate: plain.rate * delayed,
            ..plain.clone()
        }),
        pinned: None,
        again: Some(plain.clone()),
        plain,
        agent: None,
        early_end: None,
    }
}

/// With a change of each run.
fn with_each(mut evidence: ClientEvidence, change: impl Fn(&mut ClientRun)) -> ClientEvidence {
    change(&mut evidence.plain);
    let others = [
        &mut evidence.halved,
        &mut evidence.single,
        &mut evidence.delayed,
        &mut evidence.again,
    ];
    others.into_iter().flatten().for_each(change);
    evidence
}

fn with_plain(mut evidence: ClientEvidence, change: impl Fn(&mut ClientRun)) -> ClientEvidence {
    change(&mut evidence.plain);
    evidence
}

#[test]
fn a_client_that_keeps_few_calls_open_is_named() {
    assert_causes(
        &judge_client(&client(0.5, 0.125, 0.5)),
        &[Cause::ClientInFlight],
    );
    // The other runs contradict each other.
    assert_undecided(&judge_client(&client(0.5, 0.125, 1.0)), "quieter");
    assert_undecided(&judge_client(&client(1.0, 1.0, 0.5)), "quieter");
    assert_undecided(&judge_client(&client(0.78, 0.5, 0.9)), "quieter");
    // The same run once more was another one.
    let mut evidence = client(0.5, 0.125, 0.5);
    let again = |evidence: &mut ClientEvidence, left: f64| {
        let rate = evidence.plain.rate * left;
        evidence.again.iter_mut().for_each(|run| run.rate = rate);
    };
    again(&mut evidence, 0.6);
    assert_undecided(&judge_client(&evidence), "quieter");
    // What is less than either of them is less all the same.
    again(&mut evidence, 0.8);
    assert_causes(&judge_client(&evidence), &[Cause::ClientInFlight]);
    let mut evidence = client(0.5, 0.125, 0.5);
    evidence
        .halved
        .iter_mut()
        .for_each(|halved| halved.ended = 39);
    assert_undecided(&judge_client(&evidence), "quieter");
    // A way that is longer than the queue says nothing.
    let mut evidence = client(0.5, 0.125, 1.0);
    evidence
        .delayed
        .iter_mut()
        .for_each(|delayed| delayed.delay_ns = 15_000_000);
    let found = judge_client(&evidence);
    assert_causes(&found, &[Cause::ClientInFlight]);
    assert!(found.evidence_against[1].contains("pace of its own"));
    // Calls come and go, which they do not where each begins with another one's end.
    evidence.plain.mean_open = 6.0;
    assert_undecided(&judge_client(&evidence), "pace of its own");
    let mut evidence = client(1.0, 1.0, 1.0);
    evidence.halved = None;
    assert_undecided(&judge_client(&evidence), "was not made");
}

#[test]
fn a_limit_on_streams_is_named_if_it_costs_anything() {
    let reached = |run: &mut ClientRun| (run.limit, run.at_limit) = (Some(8), 0.9);
    let found = judge_client(&with_plain(client(0.5, 0.125, 0.5), reached));
    assert_causes(&found, &[Cause::StreamLimit]);
    let found = judge_client(&with_plain(client(1.0, 1.0, 1.0), reached));
    assert_causes(&found, &[Cause::ServerSerial]);
}

/// Python's client reaches it for a third of the time, since others of its threads are late.
#[test]
fn a_limit_on_streams_that_is_reached_at_times_is_not_the_clients() {
    let at_times = |run: &mut ClientRun| (run.limit, run.at_limit) = (Some(8), 0.3);
    let mut evidence = with_plain(client(0.5, 0.125, 0.5), at_times);
    assert_undecided(&judge_client(&evidence), "higher limit");
    for is_delayed in [true, false] {
        let mut evidence = evidence.clone();
        let run = match is_delayed {
            true => &mut evidence.delayed,
            false => &mut evidence.again,
        };
        run.iter_mut().for_each(|run| run.at_limit = 0.96);
        let found = judge_client(&evidence);
        assert_causes(&found, &[Cause::StreamLimit]);
        assert!(found.sentence.contains("96 %"), "{found:#?}");
    }
    // The limit that the tap makes is no limit of the server's.
    evidence
        .halved
        .iter_mut()
        .for_each(|run| run.at_limit = 0.96);
    assert_undecided(&judge_client(&evidence), "higher limit");
    // Calls that never came up to it are held back by the client, also where a longer way has more
    // of them open.
    evidence.plain.limit = Some(9);
    evidence
        .delayed
        .iter_mut()
        .for_each(|run| run.at_limit = 0.96);
    assert_causes(&judge_client(&evidence), &[Cause::ClientInFlight]);
}

#[test]
fn a_server_behind_a_client_is_judged_by_what_it_does() {
    assert_causes(
        &judge_client(&client(1.0, 0.98, 1.0)),
        &[Cause::ServerSerial],
    );
    assert_causes(&judge_client(&client(1.0, 0.5, 1.0)), &[Cause::ServerPool]);
    assert_undecided(&judge_client(&client(1.0, 0.65, 1.0)), "longer run");
    let found = judge_client(&client(1.0, 0.98, 1.0));
    assert!(found.evidence_against[0].contains("looks the same"));
    for (server, cause) in [
        (using(3.8, 0.9), Cause::ServerCpu),
        (using(1.0, 0.96), Cause::ServerThread),
        (
            ProcessUse {
                in_sync: Some(0.8),
                ..idle()
            },
            Cause::DiskSync,
        ),
    ] {
        let seen = |run: &mut ClientRun| run.server = Some(server.clone());
        let found = judge_client(&with_plain(client(1.0, 0.98, 1.0), seen));
        assert_causes(&found, &[cause]);
    }
    let unseen = |run: &mut ClientRun| run.server = None;
    let found = judge_client(&with_plain(client(1.0, 0.98, 1.0), unseen));
    assert_undecided(&found, "--server-pid");
    // A way of 40 KiB/s, and one whose 400 packets/s are counted, with 100 bytes in each.
    for bytes_per_s in [1e6, 40_960.0, 40_000.0] {
        let full = |run: &mut ClientRun| run.bytes_per_s.0 = bytes_per_s;
        let found = judge_client(&with_each(client(1.0, 0.98, 1.0), full));
        assert_undecided(&found, "smaller");
    }
    // Requests that pile up are sent at once, and answered one after the other.
    let much = |run: &mut ClientRun| run.bytes_per_s.0 = 30_000.0;
    let found = judge_client(&with_plain(client(1.0, 0.98, 1.0), much));
    assert_causes(&found, &[Cause::ServerSerial]);
    let full = |run: &mut ClientRun| run.bytes_per_s.0 = 40_960.0;
    let found = judge_client(&with_each(client(1.0, 0.5, 1.0), full));
    assert_causes(&found, &[Cause::ServerPool]);
    let several = |run: &mut ClientRun| {
        (run.connections, run.connections_at_a_time) = (4, 4);
    };
    let mut evidence = with_plain(client(1.0, 0.98, 1.0), several);
    evidence.delayed = None;
    assert_undecided(&judge_client(&evidence), "one connection");
}

/// A stream that stays open takes the only place that a limit of one leaves, and a server may die.
#[test]
fn a_run_that_was_made_and_shows_nothing_names_no_cause() {
    let nothing = |run: &mut ClientRun| {
        (run.ended, run.rate) = (0, 0.0);
        (run.server_ns, run.server_mean_ns) = (0, 0);
    };
    let failing = |run: &mut ClientRun| (run.ended, run.failed) = (1_000, 10);
    let unseen = |run: &mut ClientRun| run.problem = Some("no call succeeded: x".into());
    let changes: [&dyn Fn(&mut ClientRun); 3] = [&nothing, &failing, &unseen];
    for change in changes {
        let mut evidence = client(1.0, 0.5, 1.0);
        evidence.single.iter_mut().for_each(change);
        assert_undecided(&judge_client(&evidence), "with one open at a time");
        for which in 0..3 {
            let mut evidence = client(1.0, 0.98, 1.0);
            let runs = [
                &mut evidence.halved,
                &mut evidence.delayed,
                &mut evidence.again,
            ];
            let run = runs.into_iter().nth(which);
            run.into_iter().flatten().for_each(change);
            assert_undecided(&judge_client(&evidence), "whose calls succeed");
        }
    }
    let few = |run: &mut ClientRun| (run.ended, run.failed) = (1_000, 9);
    let found = judge_client(&with_each(client(1.0, 0.5, 1.0), few));
    assert_causes(&found, &[Cause::ServerPool]);
}

/// 500 calls a second at random, or 120, at a server that sleeps for 10 ms and has room for more:
/// whatever is changed, they come as they did.
#[test]
fn a_client_with_a_pace_of_its_own_does_not_name_the_server() {
    for (rate, single) in [(500.0, 100.0), (120.0, 100.0)] {
        let ten_ms = |run: &mut ClientRun| {
            run.rate = rate;
            (run.server_ns, run.server_mean_ns) = (10_000_000, 10_000_000);
            (run.mean_open, run.most_open) = (rate / 100.0, 14);
        };
        let mut evidence = with_each(client(1.0, 1.0, 1.0), ten_ms);
        evidence.single.iter_mut().for_each(|run| run.rate = single);
        assert_undecided(&judge_client(&evidence), "sends more");
        // Nor by a run that something else held up.
        evidence.plain.server_mean_ns = 20_000_000;
        assert_undecided(&judge_client(&evidence), "sends more");
    }
}

/// A pool of four, most of whose calls take 0.1 ms, and the others 10 ms.
#[test]
fn calls_of_two_kinds_do_not_make_a_lock_of_a_pool_behind_a_client() {
    let mut evidence = client(1.0, 0.25, 1.0);
    evidence
        .single
        .iter_mut()
        .for_each(|run| run.server_ns = 100_000);
    assert_undecided(&judge_client(&evidence), "very different times");
}

#[test]
fn what_is_predicted_was_measured() {
    let predicted = |evidence: &ClientEvidence| {
        let found = judge_client(evidence);
        let change = found.change.expect("it proposes something");
        change.predicted.map(|gain| (gain * 10.0).round() / 10.0)
    };
    let mut evidence = client(0.6, 0.125, 0.6);
    assert_eq!(predicted(&evidence), Some(1.7));
    (evidence.plain.limit, evidence.plain.at_limit) = (Some(8), 0.9);
    assert_eq!(predicted(&evidence), Some(1.7));
    // Nobody knows what so many more bring than were tried.
    evidence.plain.most_open = 300;
    evidence.plain.limit = Some(300);
    assert_eq!(predicted(&evidence), None);
    let mut far = client(0.5, 0.125, 0.5);
    far.plain.round_trip_ns = Some(12_000_000);
    let found = judge_client(&far);
    assert_causes(&found, &[Cause::Way]);
    assert_eq!(predicted(&far), None);
}

#[test]
fn a_run_that_could_not_be_made_is_part_of_what_is_said() {
    let mut evidence = client(1.0, 0.98, 1.0);
    (evidence.single, evidence.again) = (None, None);
    evidence.early_end = Some(EarlyEnd::NoRun("cannot connect to x".into()));
    let found = judge_client(&evidence);
    assert_undecided(&found, "which was not made");
    let said = found.evidence_against.join("\n");
    assert!(said.contains("run of the client could not be made"));
    assert!(said.contains("cannot connect to x") && !said.contains("load"));
}

#[test]
fn two_causes_at_once_are_both_named() {
    let piled = |run: &mut ClientRun| (run.most_open, run.limit) = (4_000, None);
    let mut evidence = with_plain(client(1.0, 0.98, 1.0), piled);
    evidence.delayed = None;
    let found = judge_client(&evidence);
    assert_causes(&found, &[Cause::ServerSerial, Cause::ClientQueue]);
    assert!(
        found.sentence.contains("; and queue in the client"),
        "{}",
        found.sentence
    );
}

#[test]
fn a_client_that_leaves_the_server_without_work_is_judged_by_what_it_does() {
    let leaves = |client: ProcessUse, most_open: usize| {
        move |run: &mut ClientRun| {
            (run.client_share, run.server_share) = (0.8, 0.2);
            (run.mean_open, run.most_open) = (0.2, most_open);
            run.client = Some(client.clone());
        }
    };
    for (process, most_open, cause) in [
        (using(1.0, 0.97), 8, Cause::ClientThread),
        (using(3.9, 0.99), 8, Cause::ClientCpu),
        (using(0.95, 0.2), 8, Cause::ClientCpu),
        (using(0.05, 0.03), 8, Cause::ClientPace),
        (using(0.05, 0.03), 1, Cause::ClientPace),
        (using(0.6, 0.55), 1, Cause::ClientInFlight),
        (
            ProcessUse {
                quota_cpus: Some(0.2),
                throttled: Some(0.9),
                ..using(0.2, 0.2)
            },
            8,
            Cause::Quota,
        ),
    ] {
        let evidence = with_plain(client(1.0, 1.0, 1.0), leaves(process, most_open));
        assert_causes(&judge_client(&evidence), &[cause]);
    }
    // One that gets no CPU may pause, or work if it had one.
    let starved = ProcessUse {
        waited_for_cpus: 0.5,
        ..using(0.03, 0.02)
    };
    let starved = with_plain(client(1.0, 1.0, 1.0), leaves(starved, 1));
    assert_undecided(&judge_client(&starved), "profile");
    let unclear = with_plain(client(1.0, 1.0, 1.0), leaves(using(0.7, 0.5), 8));
    assert_undecided(&judge_client(&unclear), "profile");
}

#[test]
fn one_call_at_a_time_hides_what_a_server_can_do() {
    let one = |run: &mut ClientRun| (run.mean_open, run.most_open) = (1.0, 1);
    assert_undecided(
        &judge_client(&with_plain(client(1.0, 1.0, 1.0), one)),
        "--method",
    );
    let busy = |run: &mut ClientRun| {
        (run.mean_open, run.most_open) = (1.0, 1);
        run.server = Some(using(0.95, 0.95));
    };
    let found = judge_client(&with_plain(client(1.0, 1.0, 1.0), busy));
    assert_causes(&found, &[Cause::ServerThread]);
    assert!(found.evidence_against[0].contains("only one call"));
    let far = |run: &mut ClientRun| {
        (run.mean_open, run.most_open) = (1.0, 1);
        run.round_trip_ns = Some(12_000_000);
    };
    let found = judge_client(&with_plain(client(1.0, 1.0, 1.0), far));
    assert_causes(&found, &[Cause::Way]);
    // Both take turns: the server is idle for half of the time.
    let turns = |client: ProcessUse| {
        move |run: &mut ClientRun| {
            (run.mean_open, run.most_open) = (0.5, 1);
            (run.client_share, run.server_share) = (0.48, 0.5);
            run.client = Some(client.clone());
        }
    };
    let starved = ProcessUse {
        waited_for_cpus: 0.4,
        ..using(0.1, 0.1)
    };
    for (process, causes) in [
        (using(0.45, 0.4), &[Cause::ClientInFlight][..]),
        // It pauses for as long as a call takes.
        (using(0.2, 0.1), &[Cause::ClientPace]),
        (starved, &[]),
    ] {
        let found = judge_client(&with_plain(client(1.0, 1.0, 1.0), turns(process)));
        assert_eq!(found.causes(), causes, "{found:#?}");
    }
    let both = |run: &mut ClientRun| (run.client_share, run.server_share) = (0.48, 0.5);
    assert_undecided(
        &judge_client(&with_plain(client(1.0, 1.0, 1.0), both)),
        "no side",
    );
}

#[test]
fn a_run_that_shows_nothing_decides_nothing() {
    let few = |run: &mut ClientRun| run.ended = 39;
    assert_undecided(
        &judge_client(&with_plain(client(0.5, 0.1, 0.5), few)),
        "too few",
    );
    let busy = |run: &mut ClientRun| run.tap_busy = 0.9;
    assert_undecided(
        &judge_client(&with_plain(client(0.5, 0.1, 0.5), busy)),
        "the tap itself",
    );
    let failed = |run: &mut ClientRun| run.problem = Some("no call succeeded: x".into());
    let found = judge_client(&with_plain(client(0.5, 0.1, 0.5), failed));
    assert_undecided(&found, "no call succeeded: x");
}

/// A receiver that has no time to read gives no window.
#[test]
fn a_window_is_named_if_its_receiver_has_time_to_give_one() {
    let waits = |(server, client): (f64, f64), process: Option<ProcessUse>| {
        let windows = move |run: &mut ClientRun| {
            (run.server_window_share, run.client_window_share) = (server, client);
            match server > client {
                true => run.server.clone_from(&process),
                false => run.client.clone_from(&process),
            }
        };
        judge_client(&with_plain(self::client(0.5, 0.1, 0.5), windows))
    };
    for (shares, thread) in [
        ((0.7, 0.0), Cause::ServerThread),
        ((0.0, 0.8), Cause::ClientThread),
        ((0.1, 0.45), Cause::ClientThread),
    ] {
        assert_causes(&waits(shares, Some(idle())), &[Cause::Window]);
        let busy = waits(shares, Some(using(1.0, 0.98)));
        assert_causes(&busy, &[thread, Cause::Window]);
        let unclear = waits(shares, Some(using(0.7, 0.4)));
        assert_undecided(&unclear, "a profile of the");
        assert_undecided(&waits(shares, None), "does not read on");
    }
}
