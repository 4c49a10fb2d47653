//! Tables of evidence: ways that are full of bytes or packets, and what looks like them.

use super::super::diagnosis::Conclusion;
use super::super::evidence::ProcessUse;
use super::super::load_verdict::judge_load;
use super::super::tests::{
    POOL, SERIAL, assert_causes, assert_undecided, load, points, using, with,
};
use super::*;

/// The best experiment with requests three times as large, of whose calls `left` are left.
fn larger(mut evidence: LoadEvidence, left: f64) -> LoadEvidence {
    let again = evidence.again.as_ref().expect("there is one");
    let rate = again.rate * left;
    evidence.larger = Some(LoadPoint {
        padding_bytes: 120,
        rate,
        bytes_per_s: (again.bytes_per_s.0 * 3.0 * left, again.bytes_per_s.1 * left),
        ..again.clone()
    });
    evidence
}

#[test]
fn a_way_whose_bytes_stay_the_same_is_full() {
    for rates in [SERIAL, POOL] {
        let found = judge_load(&larger(load(rates, 1.0), 1.0 / 3.0));
        assert_causes(&found, &[Cause::Bandwidth]);
        let change = found.change.expect("fewer bytes");
        let rounded = |gain: Option<f64>| gain.map(f64::round);
        assert_eq!(
            (rounded(change.predicted), rounded(change.measured)),
            (Some(3.0), Some(3.0))
        );
    }
    // Also where much goes over it.
    let much = with(load(SERIAL, 1.0), |point| point.bytes_per_s.0 = 300_000.0);
    let found = judge_load(&larger(with_again(much), 0.35));
    assert_causes(&found, &[Cause::Bandwidth]);
}

/// The repeated experiment has the bytes of the first ones.
fn with_again(mut evidence: LoadEvidence) -> LoadEvidence {
    evidence.again = evidence.one.last().cloned();
    evidence
}

#[test]
fn a_way_with_room_is_not_taken_for_a_lock_and_lets_a_lock_be_named() {
    let found = judge_load(&larger(load(SERIAL, 1.0), 1.0));
    assert_causes(&found, &[Cause::ServerSerial]);
    let found = judge_load(&larger(load(POOL, 1.0), 0.95));
    assert_causes(&found, &[Cause::ServerPool]);
    // So much goes over it that without larger requests nothing was known.
    let much = with(load(SERIAL, 1.0), |point| point.bytes_per_s.0 = 300_000.0);
    assert_undecided(&judge_load(&with_again(much.clone())), "smaller messages");
    let found = judge_load(&larger(with_again(much), 1.0));
    assert_causes(&found, &[Cause::ServerSerial]);
    // Of the way of answers nothing is known by it.
    let answers = with(load(SERIAL, 1.0), |point| point.bytes_per_s.1 = 300_000.0);
    let found = judge_load(&larger(with_again(answers), 1.0));
    assert_undecided(&found, "smaller messages");
    assert!(
        found
            .evidence_for
            .iter()
            .any(|text| text.contains("answers"))
    );
}

#[test]
fn calls_that_neither_stay_nor_follow_their_bytes_decide_nothing() {
    for left in [0.5, 0.75, 0.8] {
        let found = judge_load(&larger(load(SERIAL, 1.0), left));
        assert_undecided(&found, "quieter");
    }
    // They waited for a window, for the generator, or for the server's CPU.
    let changes: [&dyn Fn(&mut LoadPoint); 3] = [
        &|point| point.window_wait = 0.7,
        &|point| point.generator_busy = Some(0.95),
        &|point| point.server = Some(using(1.0, 0.97)),
    ];
    for change in changes {
        let mut evidence = larger(load(SERIAL, 1.0), 1.0 / 3.0);
        evidence.larger.iter_mut().for_each(change);
        assert_undecided(&judge_load(&evidence), "quieter");
    }
    // The server refuses them: as if they had not been tried.
    let mut refused = larger(load(SERIAL, 1.0), 1.0 / 3.0);
    refused
        .larger
        .iter_mut()
        .for_each(|point| point.failed = 50);
    assert_causes(&judge_load(&refused), &[Cause::ServerSerial]);
    // The two runs that it is compared with differ.
    let mut evidence = larger(load(SERIAL, 1.0), 1.0 / 3.0);
    let change = |point: &mut LoadPoint| {
        (point.rate, point.bytes_per_s.0) = (point.rate * 0.6, point.bytes_per_s.0 * 0.6);
    };
    evidence.again.iter_mut().for_each(change);
    assert!(judge_load(&evidence).causes().is_empty());
}

/// What is known of the server's process comes first.
#[test]
fn a_busy_server_or_a_sync_is_not_taken_for_a_full_way() {
    let syncing = ProcessUse {
        in_sync: Some(0.9),
        ..using(0.05, 0.02)
    };
    for (server, cause) in [
        (using(3.8, 0.9), Cause::ServerCpu),
        (using(1.0, 0.97), Cause::ServerThread),
        (syncing, Cause::DiskSync),
    ] {
        let seen = with(load(SERIAL, 1.0), |point| {
            point.server = Some(server.clone())
        });
        let found = judge_load(&larger(with_again(seen), 1.0 / 3.0));
        assert_causes(&found, &[cause]);
    }
}

#[test]
fn one_connection_is_told_from_a_full_way_that_several_use_better() {
    let much = with(load(POOL, 1.9), |point| point.bytes_per_s.0 = 100_000.0);
    assert_undecided(&judge_load(&with_again(much.clone())), "smaller messages");
    let found = judge_load(&larger(with_again(much.clone()), 0.97));
    assert_causes(&found, &[Cause::OneConnection]);
    let found = judge_load(&larger(with_again(much), 1.0 / 3.0));
    assert_undecided(&found, "smaller messages");
}

/// Up to 64 calls in flight, and the last experiment over eight connections: `left` of its calls
/// are left, in `packets` times as many packets.
fn spread(rates: &[f64], left: f64, packets: f64) -> LoadEvidence {
    let mut evidence = load(rates, left);
    let flat = |point: &mut LoadPoint| point.segments_per_s = Some((500.0, 500.0));
    evidence.one.iter_mut().for_each(flat);
    evidence.again.iter_mut().for_each(flat);
    let of_spread = |point: &mut LoadPoint| {
        point.segments_per_s = Some((500.0 * packets, 500.0 * packets));
    };
    evidence.spread.iter_mut().for_each(of_spread);
    evidence
}

const GROWING: &[f64] = &[250.0, 500.0, 990.0, 1_950.0, 3_900.0, 7_500.0, 9_000.0];

#[test]
fn packets_that_stay_the_same_while_calls_do_not_are_counted() {
    let found = judge_load(&spread(GROWING, 0.3, 1.05));
    assert_causes(&found, &[Cause::PacketsPerSecond]);
    let change = found.change.expect("fewer connections");
    assert_eq!(
        change.measured.map(|gain| (gain * 10.0).round()),
        Some(33.0)
    );
    assert_eq!(
        change.predicted.map(|gain| (gain * 10.0).round()),
        Some(35.0)
    );
    // Where throughput has stopped to grow too.
    let flat = [250.0, 500.0, 990.0, 1_000.0, 1_010.0];
    assert_causes(
        &judge_load(&spread(&flat, 0.4, 1.0)),
        &[Cause::PacketsPerSecond],
    );
}

#[test]
fn what_else_several_connections_make_slower_is_not_taken_for_packets() {
    let no_limit = |evidence: &LoadEvidence| {
        let found = judge_load(evidence);
        assert_eq!(found.conclusion, Conclusion::NoLimit, "{found:#?}");
    };
    // As many calls, in more packets: there are enough.
    no_limit(&spread(GROWING, 1.0, 5.0));
    // Fewer calls in fewer packets, in more of them, and a little fewer.
    no_limit(&spread(GROWING, 0.3, 0.4));
    no_limit(&spread(GROWING, 0.3, 2.0));
    no_limit(&spread(GROWING, 0.8, 1.0));
    // The kernel does not count them.
    let unknown = with(spread(GROWING, 0.3, 1.0), |point| {
        point.segments_per_s = None
    });
    no_limit(&unknown);
    // Something else holds them up.
    let changes: [&dyn Fn(&mut LoadPoint); 4] = [
        &|point| point.server = Some(using(1.5, 0.9)),
        &|point| point.server = None,
        &|point| point.generator_busy = Some(0.8),
        &|point| point.window_wait = 0.6,
    ];
    for change in changes {
        let mut evidence = spread(GROWING, 0.3, 1.0);
        evidence.spread.iter_mut().for_each(change);
        no_limit(&evidence);
    }
}

#[test]
fn more_is_tried_only_where_it_can_tell_anything() {
    let mut evidence = load(SERIAL, 1.0);
    assert!(is_larger_worth_trying(&evidence));
    evidence.spread = None;
    assert!(!is_larger_worth_trying(&evidence));
    let busy = with(load(SERIAL, 1.0), |point| {
        point.server = Some(using(1.0, 0.97))
    });
    assert!(!is_larger_worth_trying(&busy));
    let unseen = with(load(SERIAL, 1.0), |point| point.server = None);
    assert!(!is_larger_worth_trying(&unseen));
    let growing = LoadEvidence {
        one: points(GROWING),
        spread: None,
        ..load(SERIAL, 1.0)
    };
    assert!(is_spread_worth_trying(&growing));
    // A fast service gets what is allowed with few calls in flight.
    let fast = LoadEvidence {
        one: points(&[5_000.0, 9_000.0]),
        ..growing.clone()
    };
    assert!(!is_spread_worth_trying(&fast));
    assert!(!is_spread_worth_trying(&with(growing, |point| point
        .server =
        None)));
}
