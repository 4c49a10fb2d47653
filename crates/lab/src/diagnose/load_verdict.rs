//! Decides what limits a service, by what our own generator has measured. A value in, a value out.

use super::agent_presence::needs_server;
use super::cause::Cause;
use super::compression::with_uncompressed;
use super::diagnosis::{
    Conclusion, Diagnosis, ProcessLimit, is_named_by_turns, nothing_measured, of_process, percent,
    process_limit, process_words, rate, times,
};
use super::evidence::{EarlyEnd, LoadEvidence, LoadPoint, ProcessUse};
use super::ladder::{KNEE_SHARE, LoadShape, best, best_of_one, shape};
use super::limits::STOP_ERRORS_PERCENT;
use super::small_messages::with_batches;
use super::waiting_server::{is_pool_of_idle_threads, waiting};
use super::way_verdict::{WayByBytes, packets, way_by_bytes};
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

/// What several connections bring at most, of what one does, where what they have to share and one
/// connection has for itself holds them up.
const FAR_LESS: f64 = 0.65;

/// Bytes a second above which a way may be full that one connection alone does not fill: some
/// packets for each round trip of a tenth of a second.
const SHARED_WAY_BYTES_PER_S: f64 = 65_536.0;

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
    } else if gain < FAR_LESS && !matches!(server_limit(top), Some((_, ProcessLimit::Known(_)))) {
        let text = format!(
            "{from_here}, and over {} connections it is far less, {} of that: something that calls \
             on one connection share holds them up, such as packets",
            spread.connections,
            percent(gain)
        );
        return Diagnosis::undecided(text, "a quieter machine, or a profile of the server");
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
        let it = window(top, text);
        let text = "let the server give larger windows, or open more connections";
        return match it.causes().is_empty() {
            true => it.supported(over),
            false => change(text, connections, it),
        };
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

/// A window that was used up, unless its receiver does not read on for another cause. `text`: how
/// long requests waited for it.
fn window(top: &LoadPoint, text: String) -> Diagnosis {
    let machine = top.machine.as_ref();
    let doubt = "a server that does not read on gives no window either";
    match server_limit(top) {
        Some((process, ProcessLimit::Known(cause))) => {
            of_process(cause, "server", process, machine)
                .joined(Diagnosis::named(Cause::Window, text))
        }
        Some((process, ProcessLimit::Unclear)) => Diagnosis::undecided(
            format!("{text}: it is small, or the server does not read on"),
            "a profile of the server under this load",
        )
        .supported(process_words("server", process)),
        Some((process, ProcessLimit::Waiting)) => Diagnosis::named(Cause::Window, text)
            .supported(process_words("server", process))
            .doubted(doubt.into()),
        None => Diagnosis::named(Cause::Window, text).doubted(doubt.into()),
    }
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
    let may_be_full = bytes_per_s > SHARED_WAY_BYTES_PER_S && gain < in_full;
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
    match server_limit(spread) {
        Some((process, ProcessLimit::Known(cause))) => {
            let machine = spread.machine.as_ref();
            it.joined(of_process(cause, "server", process, machine))
        }
        _ => it.doubted(
            "several connections brought less than predicted: behind this limit is another one"
                .into(),
        ),
    }
}

/// What limits the server's process, by its figures; `None`: it is not seen.
fn server_limit(top: &LoadPoint) -> Option<(&ProcessUse, ProcessLimit)> {
    let process = top.server.as_ref()?;
    let causes = (Cause::ServerThread, Cause::ServerCpu);
    Some((
        process,
        process_limit(process, top.machine.as_ref(), causes),
    ))
}

/// Neither more calls nor more connections bring more: the server, or what is behind it.
fn server(evidence: &LoadEvidence, top: &LoadPoint, knee: usize) -> Diagnosis {
    let Some((process, limit)) = server_limit(top) else {
        return Diagnosis::undecided(
            format!(
                "the server has no more to give than {}, and whether its CPU, its disk, a lock or \
                 the network keeps it from that cannot be seen from here",
                rate(best_of_one(evidence))
            ),
            needs_server(evidence.agent.as_ref()),
        );
    };
    match limit {
        ProcessLimit::Known(Cause::ServerCpu)
            if is_named_by_turns(process, top.machine.as_ref())
                && is_pool_of_idle_threads(evidence, process, knee) =>
        {
            let text = "the server uses about one CPU, as threads do that take turns, and works on \
                        as many calls at a time as a pool does whose calls wait for something else";
            Diagnosis::undecided(text.into(), "a profile of the server under this load")
                .supported(process_words("server", process))
        }
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
