//! Decides what limits a service, by what our own generator has measured. A value in, a value out.

use super::agent_presence::needs_server;
use super::cause::Cause;
use super::compression::with_uncompressed;
use super::diagnosis::{
    Conclusion, Diagnosis, ProcessLimit, of_process, percent, process_limit, process_words, rate,
    times,
};
use super::evidence::{EarlyEnd, LoadEvidence, LoadPoint, ProcessUse};
use super::ladder::{KNEE_SHARE, LoadShape, best, shape};
use super::limits::STOP_ERRORS_PERCENT;
use super::small_messages::with_batches;
use super::way_verdict::{WayByBytes, bandwidth, packets, way_by_bytes};
use crate::tap::{LONG_WAY_NS, WAY_SHARE, time};

/// How many times as much several connections must bring, for one to be the limit.
const CONNECTION_GAIN: f64 = 1.3;

/// The part of the predicted gain from which on it is as predicted.
const AS_PREDICTED: f64 = 0.7;

/// How many times as much is no more than chance.
const NO_GAIN: f64 = 1.15;

/// The part of the time for which the generator may be busy.
const GENERATOR_BUSY: f64 = 0.9;

/// The part of the time in which windows are used up, from which on they are named.
const WINDOW_SHARE: f64 = 0.5;

/// Calls that a server works on at a time, up to which it is one.
const ONE_AT_A_TIME: f64 = 1.5;

/// The same, from which on there are several.
const SEVERAL_AT_A_TIME: f64 = 1.8;

/// Bytes a second above which a way may be full: below, it would not carry a telephone call.
const FULL_WAY_BYTES_PER_S: f64 = 65_536.0;

/// The part of as many times the throughput as there are connections, from which on the way
/// that they share is not full.
const EACH_IN_FULL: f64 = 0.75;

/// The part of the looks at which a call that is alone waits for a disk.
const ALONE_IN_SYNC: f64 = 0.5;

/// Decides.
pub fn judge_load(evidence: &LoadEvidence) -> Diagnosis {
    decide(evidence).watched_by(evidence.agent.as_ref())
}

fn decide(evidence: &LoadEvidence) -> Diagnosis {
    let (Some(first), Some(top)) = (evidence.one.first(), evidence.one.last()) else {
        return nothing_measured(evidence);
    };
    if evidence.one.iter().all(|point| point.succeeded == 0) {
        return nothing_measured(evidence);
    }
    let of_packets = packets(evidence);
    let decided = match (shape(&evidence.one, &evidence.ceiling), of_packets) {
        _ if best(&evidence.one).is_some_and(is_generator_busy) => {
            generator(best(&evidence.one).unwrap_or(top))
        }
        (_, Some(found)) => found,
        (LoadShape::Saturated { knee }, None) => {
            saturated(evidence, top, quiet_knee(evidence, knee))
        }
        (LoadShape::Capped, None) => unlimited(evidence, first, "--max-rate"),
        (LoadShape::Growing, None) => unlimited(evidence, first, "--max-in-flight"),
        (LoadShape::Unknown, None) => unknown(evidence, top),
    };
    let decided = with_uncompressed(evidence, with_batches(evidence, decided));
    doubts(evidence, decided).ended_early(evidence.early_end.as_ref())
}

/// The experiments ended before throughput had stopped to grow.
fn unknown(evidence: &LoadEvidence, top: &LoadPoint) -> Diagnosis {
    let text = format!(
        "up to {} in flight throughput still grew, to {}",
        calls(top.in_flight),
        rate(top.rate)
    );
    let need = match evidence.early_end {
        Some(EarlyEnd::Failures(_)) => "calls that succeed with that load",
        _ => "more load, which the experiments were not allowed to make",
    };
    Diagnosis::undecided(text, need)
}

fn nothing_measured(evidence: &LoadEvidence) -> Diagnosis {
    let text = match &evidence.early_end {
        Some(EarlyEnd::Failures(first)) => format!("calls failed: {first}"),
        Some(EarlyEnd::User) => "it was ended before anything was measured".to_owned(),
        _ => "no call ended in the time that was given".to_owned(),
    };
    Diagnosis::undecided(text, "calls that succeed")
}

fn is_generator_busy(point: &LoadPoint) -> bool {
    point
        .generator_busy
        .is_some_and(|busy| busy >= GENERATOR_BUSY)
}

/// The fewest calls in flight on one connection that bring what it can: in the first run of these
/// experiments or in the repeated ones, as something else may have held the first up.
fn quiet_knee(evidence: &LoadEvidence, knee: usize) -> usize {
    let enough = best_of_one(evidence) * KNEE_SHARE;
    let repeated = [&evidence.again, &evidence.alone].into_iter().flatten();
    let reached = repeated.filter(|point| point.rate >= enough);
    reached.map(|point| point.in_flight).fold(knee, usize::min)
}

/// `point`: the experiment that the generator held down.
fn generator(point: &LoadPoint) -> Diagnosis {
    let busy = point.generator_busy;
    let text = format!(
        "the thread that makes the load was on its CPU for {} of the time: the service may have \
         more to give",
        percent(busy.unwrap_or_default())
    );
    let mut it = Diagnosis::named(Cause::Generator, text);
    it.needs
        .push("a machine for the load that has more CPU than this one".to_owned());
    it
}

/// More calls in flight on one connection bring no more.
fn saturated(evidence: &LoadEvidence, top: &LoadPoint, knee: usize) -> Diagnosis {
    let one = best_of_one(evidence);
    let from_here = format!(
        "from {} in flight on one connection on, throughput stays at {}",
        calls(knee),
        rate(one)
    );
    if top.in_flight < 2 {
        return Diagnosis::undecided(from_here, "more than one call in flight");
    }
    let Some(spread) = &evidence.spread else {
        let need = "the same load over several connections, which was not tried";
        return Diagnosis::undecided(from_here, need);
    };
    let gain = spread.rate / one.max(1e-9);
    let found = if gain >= CONNECTION_GAIN {
        let it = connection(evidence, (top, spread), (gain, one, knee));
        beyond(it, spread, gain)
    } else if is_generator_busy(spread) {
        // What several connections could bring, the generator does not.
        return generator(spread);
    } else if gain > NO_GAIN {
        let text = format!(
            "{from_here}, and over {} connections it is {}: too little to tell a connection from a \
             server",
            spread.connections,
            times(gain)
        );
        return Diagnosis::undecided(text, "a quieter machine, or more time");
    } else if top.window_wait >= WINDOW_SHARE {
        let text = format!(
            "{from_here}; requests waited for the server's window for {} of the time, also over \
             several connections: its window, or that it does not read on",
            percent(top.window_wait)
        );
        return Diagnosis::undecided(text, "smaller requests, which need no window");
    } else {
        server(evidence, top, knee)
    };
    let found = found.supported(from_here);
    match gain >= CONNECTION_GAIN {
        true => found,
        false => found.supported(format!(
            "{} connections with as many calls in flight bring {}",
            spread.connections,
            times(gain)
        )),
    }
}

/// The best that one connection reached, in either of two runs.
fn best_of_one(evidence: &LoadEvidence) -> f64 {
    let first = best(&evidence.one).map_or(0.0, |point| point.rate);
    let again = evidence.again.as_ref().map_or(0.0, |point| point.rate);
    first.max(again)
}

/// Several connections bring more than one.
fn connection(
    evidence: &LoadEvidence,
    (top, spread): (&LoadPoint, &LoadPoint),
    (gain, one, knee): (f64, f64, usize),
) -> Diagnosis {
    let connections = spread.connections as f64;
    let over = format!(
        "over {} connections {} are answered, {} as many",
        spread.connections,
        rate(spread.rate),
        times(gain)
    );
    let change = |text: &str, predicted: f64, it: Diagnosis| {
        it.supported(over.clone())
            .changed(text.to_owned(), Some(predicted), Some(gain))
    };
    // Where throughput stops to grow far below the limit, it is not the limit that stops it.
    if let Some(limit) = top.stream_limit.filter(|limit| knee as u64 * 2 > *limit) {
        let text = format!(
            "the server lets {limit} calls be open on a connection, and the others wait in the \
             client"
        );
        let total = spread.in_flight.min(spread.connections * limit as usize);
        let predicted = total as f64 / limit.max(1) as f64;
        let it = Diagnosis::named(Cause::StreamLimit, text);
        let text = "open more connections, or raise the server's limit on concurrent streams";
        return change(text, predicted, it);
    }
    if top.window_wait >= WINDOW_SHARE {
        let text = format!(
            "requests waited for the server's flow-control window for {} of the time",
            percent(top.window_wait)
        );
        let it = Diagnosis::named(Cause::Window, text);
        let text = "let the server give larger windows, or open more connections";
        return change(text, connections, it);
    }
    if let Some(bytes_per_s) = shared_way(evidence, (top, spread), gain) {
        let text = format!(
            "one connection carries {}, several {}, with {:.0} KiB/s: one connection, or a way \
             that is full and that several use better",
            rate(one),
            rate(spread.rate),
            bytes_per_s / 1_024.0
        );
        return Diagnosis::undecided(text, "the same load with smaller messages");
    }
    let text = format!(
        "one connection carries {}, whatever is in flight on it",
        rate(one)
    );
    let mut it = Diagnosis::named(Cause::OneConnection, text);
    if let Some(process) = &top.server {
        it = it.supported(process_words("server, with one connection", process));
    }
    change(
        "open more connections, and spread calls over them",
        connections,
        it,
    )
}

/// Returns the bytes each second of a way that may be full, and that several connections use better
/// than one.
fn shared_way(
    evidence: &LoadEvidence,
    (top, spread): (&LoadPoint, &LoadPoint),
    gain: f64,
) -> Option<f64> {
    let is_busy = |process: &ProcessUse| {
        let causes = (Cause::ServerThread, Cause::ServerCpu);
        let limit = process_limit(process, top.machine.as_ref(), causes);
        limit == ProcessLimit::Known(Cause::ServerThread)
    };
    let bytes_per_s = match way_by_bytes(evidence) {
        // Of that way only answers are left.
        WayByBytes::HasRoom { .. } => spread.bytes_per_s.1,
        _ => spread.bytes_per_s_max(),
    };
    // What each further connection brings in full was not taken from the others.
    let in_full = spread.connections.min(spread.in_flight) as f64 * EACH_IN_FULL;
    let may_be_full = bytes_per_s > FULL_WAY_BYTES_PER_S && gain < in_full;
    (may_be_full && !top.server.as_ref().is_some_and(is_busy)).then_some(bytes_per_s)
}

/// Names what the next limit is, where several connections bring less than one limit less should.
fn beyond(it: Diagnosis, spread: &LoadPoint, gain: f64) -> Diagnosis {
    let predicted = it.change.as_ref().and_then(|change| change.predicted);
    if gain >= predicted.unwrap_or(gain) * AS_PREDICTED {
        return it;
    }
    if is_generator_busy(spread) {
        return it.joined(generator(spread));
    }
    let machine = spread.machine.as_ref();
    let causes = (Cause::ServerThread, Cause::ServerCpu);
    let limit =
        (spread.server.as_ref()).map(|process| (process, process_limit(process, machine, causes)));
    match limit {
        Some((process, ProcessLimit::Known(cause))) => {
            it.joined(of_process(cause, "server", process, machine))
        }
        _ => it.doubted(
            "several connections brought less than predicted: behind this limit is another one"
                .into(),
        ),
    }
}

/// Neither more calls nor more connections bring more: the server, or what is behind it.
fn server(evidence: &LoadEvidence, top: &LoadPoint, knee: usize) -> Diagnosis {
    let Some(process) = &top.server else {
        return Diagnosis::undecided(
            format!(
                "the server has no more to give than {}, and whether its CPU, its disk, a lock or \
                 the network keeps it from that cannot be seen from here",
                rate(best_of_one(evidence))
            ),
            needs_server(evidence.agent.as_ref()),
        );
    };
    let causes = (Cause::ServerThread, Cause::ServerCpu);
    match process_limit(process, top.machine.as_ref(), causes) {
        ProcessLimit::Known(cause) => {
            let it = of_process(cause, "server", process, top.machine.as_ref());
            with_change_of_server(it, cause, process, top)
        }
        ProcessLimit::Waiting => waiting(evidence, process, knee),
        ProcessLimit::Unclear => Diagnosis::undecided(
            format!(
                "the server has no more to give than {}, with {}",
                rate(best_of_one(evidence)),
                process_words("the server", process)
            ),
            "a profile of the server under this load",
        ),
    }
}

fn with_change_of_server(
    it: Diagnosis,
    cause: Cause,
    process: &ProcessUse,
    top: &LoadPoint,
) -> Diagnosis {
    let per_call_ns = (process.cpus * 1e9 / top.rate.max(1e-9)) as u64;
    let it = it.supported(format!("{} of CPU a call", time(per_call_ns)));
    match cause {
        Cause::Quota => it.changed(
            "raise the quota of its control group, or ask for less CPU a call".into(),
            None,
            None,
        ),
        Cause::Steal => it.changed(
            "take a machine whose CPUs are not shared with others".into(),
            None,
            None,
        ),
        Cause::DiskSync => it.changed(
            "let several calls share a sync (group commit, larger batches), or take a disk that \
             syncs faster"
                .into(),
            None,
            None,
        ),
        Cause::ServerThread => {
            let cpus = top.machine.map(|machine| machine.cpus as f64);
            it.changed(
                "divide the work of that thread, or make it less".into(),
                cpus.map(|cpus| cpus / process.cpus.max(1.0)),
                None,
            )
        }
        _ => it.changed(
            "less CPU a call, or more CPUs: half as much CPU a call brings twice as many".into(),
            Some(2.0),
            None,
        ),
    }
}

/// A server that waits for something that is neither CPU nor disk.
fn waiting(evidence: &LoadEvidence, process: &ProcessUse, knee: usize) -> Diagnosis {
    let most = best(&evidence.one);
    let (Some(first), Some(most)) = (evidence.one.first(), most) else {
        return nothing_measured(evidence);
    };
    // The median of the quieter run: what a call takes that something else held up is not counted.
    let alone = [&evidence.again, &evidence.alone].into_iter().flatten();
    let alone = alone.filter(|point| point.in_flight == 1);
    let alone_ns = alone.map(|point| point.p50_ns).fold(first.p50_ns, u64::min);
    let at_a_time = best_of_one(evidence) * alone_ns as f64 / 1e9;
    let alone = format!(
        "a call that is alone takes {}, so {:.1} calls are worked on at a time",
        time(alone_ns),
        at_a_time
    );
    if let Some(found) = full_way(evidence, most) {
        return found.supported(alone);
    }
    let cpu_of_call_ns = process.cpus * 1e9 / most.rate.max(1e-9);
    let cpus = most.machine.map_or(1.0, |machine| machine.cpus as f64);
    // With all calls side by side CPU would be the next limit.
    let predicted = (cpus * 1e9 / cpu_of_call_ns.max(1.0)) / most.rate.max(1e-9);
    let predicted = Some(predicted.min(evidence.ceiling.in_flight as f64)).filter(|it| *it > 1.0);
    if at_a_time < ONE_AT_A_TIME && knee <= 2 {
        let text = format!(
            "the server works on one call after the other, {} each, and its CPUs are idle \
             meanwhile: a lock, or one thing behind it that all calls wait for",
            time((1e9 / best_of_one(evidence).max(1e-9)) as u64)
        );
        return Diagnosis::named(Cause::ServerSerial, text)
            .supported(alone)
            .supported(process_words("server", process))
            .changed(
                "let calls wait side by side: a narrower lock, or more of what they wait for"
                    .into(),
                predicted,
                None,
            );
    }
    let knee_f = knee as f64;
    if at_a_time >= SEVERAL_AT_A_TIME && (knee_f / 2.5..=knee_f * 2.5).contains(&at_a_time) {
        let text = format!(
            "the server works on about {at_a_time:.0} calls at a time, and its CPUs are idle \
             meanwhile: a pool of threads or of connections to what is behind it"
        );
        return Diagnosis::named(Cause::ServerPool, text)
            .supported(alone)
            .supported(process_words("server", process))
            .changed("make that pool larger".into(), predicted, None);
    }
    Diagnosis::undecided(
        format!("the server waits, but not for CPU and not for a disk; {alone}"),
        "what its threads wait for: a profile of the server",
    )
    .supported(process_words("server", process))
}

/// The way is full, or may be; `None`: it has room.
fn full_way(evidence: &LoadEvidence, most: &LoadPoint) -> Option<Diagnosis> {
    let (bytes_per_s, room) = match way_by_bytes(evidence) {
        WayByBytes::Full { size, left } => return Some(bandwidth(evidence, size, left)),
        WayByBytes::Unclear { size, left } => {
            let text = format!(
                "the server waits, but not for CPU; with requests {} as large {} of the calls are \
                 answered, which fits neither a lock in it nor a way that is full",
                times(size),
                percent(left)
            );
            let need = "a quieter machine, or the same load with smaller messages";
            return Some(Diagnosis::undecided(text, need));
        }
        WayByBytes::HasRoom { size } => (most.bytes_per_s.1, Some(size)),
        WayByBytes::Unknown => (most.bytes_per_s_max(), None),
    };
    if bytes_per_s <= FULL_WAY_BYTES_PER_S {
        return None;
    }
    let text = format!(
        "the server waits, but not for CPU; {:.0} KiB/s go over the connection, so that a lock in \
         it and a way that is full look the same",
        bytes_per_s / 1_024.0
    );
    let it = Diagnosis::undecided(text, "the same load with smaller messages");
    Some(match room {
        None => it,
        Some(size) => it.supported(format!(
            "with requests {} as large as many calls are answered: it is not their way that is \
             full, but that of the answers may be",
            times(size)
        )),
    })
}

/// Throughput grows as far as it was allowed to, by this flag.
fn unlimited(evidence: &LoadEvidence, first: &LoadPoint, flag: &str) -> Diagnosis {
    let most = best(&evidence.one).unwrap_or(first);
    let gain = most.rate / first.rate.max(1e-9);
    let grown = format!(
        "with {} in flight on one connection {} are answered, with one {}",
        calls(most.in_flight),
        rate(most.rate),
        rate(first.rate)
    );
    let is_in_sync = |process: &ProcessUse| process.in_sync.is_some_and(|it| it >= ALONE_IN_SYNC);
    let is_way = |round_trip_ns: &u64| {
        *round_trip_ns >= LONG_WAY_NS.max((first.mean_ns as f64 * WAY_SHARE) as u64)
    };
    let it = if let Some(process) = first.server.as_ref().filter(|one| is_in_sync(one)) {
        let text = format!(
            "a call that is alone takes {}, and for {} of the time the server waits for a sync of \
             a file; more calls in flight share it",
            time(first.mean_ns),
            percent(process.in_sync.unwrap_or_default())
        );
        Diagnosis::named(Cause::DiskSync, text).supported(process_words("server", process))
    } else if let Some(round_trip_ns) = evidence.round_trip_ns.filter(is_way) {
        let text = format!(
            "a call that is alone takes {}, and the way to the server and back {} of it; more \
             calls in flight share it",
            time(first.mean_ns),
            time(round_trip_ns)
        );
        Diagnosis::named(Cause::Way, text)
    } else {
        Diagnosis::no_limit(format!(
            "{} are answered with {} in flight on one connection, as many as {flag} allows; a call \
             that is alone takes {}",
            rate(most.rate),
            calls(most.in_flight),
            time(first.mean_ns)
        ))
    };
    let mut it = match evidence.one.len() {
        1 => it,
        _ => it.supported(grown),
    };
    if let (Conclusion::NoLimit, Some(process)) = (&it.conclusion, &first.server) {
        it = it.supported(process_words("server, with one call in flight", process));
    }
    if gain < NO_GAIN {
        return it;
    }
    it.changed(
        "if you need more throughput, keep more calls in flight".into(),
        Some(most.in_flight as f64 / first.in_flight.max(1) as f64),
        Some(gain),
    )
}

/// `1 call`, `2 calls`.
fn calls(number: usize) -> String {
    match number {
        1 => "1 call".to_owned(),
        number => format!("{number} calls"),
    }
}

/// What speaks against any decision.
fn doubts(evidence: &LoadEvidence, mut it: Diagnosis) -> Diagnosis {
    let first = best(&evidence.one).map_or(0.0, |point| point.rate);
    if let Some(again) = &evidence.again {
        let apart = (again.rate / first.max(1e-9)).ln().abs();
        if apart > NO_GAIN.ln() {
            it = it.doubted(format!(
                "the same experiment brought {} and {}: the machine or the service is not quiet",
                rate(first),
                rate(again.rate)
            ));
        }
    }
    let points = evidence.one.iter().chain(&evidence.spread);
    let most_failed = points.map(LoadPoint::failed_share).fold(0.0, f64::max);
    if most_failed * 100.0 >= STOP_ERRORS_PERCENT as f64 {
        it = it.doubted(format!("{:.1} % of the calls failed", most_failed * 100.0));
    }
    it
}
