//! Decides what a server works on at a time that waits for something that is neither CPU nor disk,
//! by what our own generator has measured.

use super::cause::Cause;
use super::diagnosis::{Diagnosis, nothing_measured, percent, process_words, times};
use super::evidence::{LoadEvidence, LoadPoint, ProcessUse};
use super::ladder::{best, best_of_one};
use super::way_verdict::{AtATime, LOOKS_LIKE_FULL_WAY, WayByBytes, bandwidth, way_by_bytes};
use crate::tap::time;

/// Calls that a server works on at a time, up to which it is one. It is also how many times as much
/// as one call in flight more of them bring at most.
const ONE_AT_A_TIME: f64 = 1.5;

/// The same, from which on there are several.
const SEVERAL_AT_A_TIME: f64 = 1.8;

/// How many times the knee the calls are that are worked on at a time, or the other way round, at
/// most.
const NEAR_KNEE: f64 = 2.5;

/// The part of the time of a call that is CPU, at most, where a pool holds calls up.
const CPU_OF_POOL: f64 = 0.5;

/// The runs with one call in flight: the quieter one counts, as what a call takes that something
/// else held up is not the server's.
struct AloneCalls {
    mean_ns: u64,
    median_ns: u64,
    rate: f64,
}

fn alone_calls(evidence: &LoadEvidence) -> Option<AloneCalls> {
    let repeated = [&evidence.again, &evidence.alone].into_iter().flatten();
    let points = || {
        let first = evidence.one.first();
        let all = first.into_iter().chain(repeated.clone());
        all.filter(|point| point.in_flight == 1)
    };
    Some(AloneCalls {
        mean_ns: points().map(|point| point.mean_ns).min()?,
        median_ns: points().map(|point| point.p50_ns).min()?,
        rate: points().map(|point| point.rate).fold(0.0, f64::max),
    })
}

/// Returns how many calls are worked on at a time where each takes so long (Little's law).
fn at_a_time(evidence: &LoadEvidence, alone_ns: u64) -> f64 {
    best_of_one(evidence) * alone_ns as f64 / 1e9
}

/// What so many calls at a time come to, by the fewest calls in flight that bring as much.
fn kind(evidence: &LoadEvidence, alone: &AloneCalls, alone_ns: u64, knee: usize) -> AtATime {
    let calls = at_a_time(evidence, alone_ns);
    let knee_f = knee as f64;
    let is_near = (knee_f / NEAR_KNEE..=knee_f * NEAR_KNEE).contains(&calls);
    // What more calls bring is not by one call after the other.
    let is_flat = best_of_one(evidence) < alone.rate * ONE_AT_A_TIME;
    match calls {
        ..ONE_AT_A_TIME if knee <= 2 && is_flat => AtATime::One,
        SEVERAL_AT_A_TIME.. if is_near => AtATime::Several,
        _ => AtATime::Unclear,
    }
}

/// Whether a server has the shape of a pool, whose calls wait for most of their time. Where most of
/// a call is CPU, it is that which holds others up.
pub(super) fn is_pool_of_idle_threads(
    evidence: &LoadEvidence,
    process: &ProcessUse,
    knee: usize,
) -> bool {
    alone_calls(evidence).is_some_and(|alone| {
        let is_pool = kind(evidence, &alone, alone.mean_ns, knee) == AtATime::Several;
        is_pool && process.cpus < at_a_time(evidence, alone.mean_ns) * CPU_OF_POOL
    })
}

/// A server that waits for something that is neither CPU nor disk.
pub(super) fn waiting(evidence: &LoadEvidence, process: &ProcessUse, knee: usize) -> Diagnosis {
    let (Some(alone), Some(most)) = (alone_calls(evidence), best(&evidence.one)) else {
        return nothing_measured(evidence);
    };
    let calls = at_a_time(evidence, alone.mean_ns);
    let words = format!(
        "a call that is alone takes {}, so {calls:.1} calls are worked on at a time",
        time(alone.mean_ns)
    );
    let by_mean = kind(evidence, &alone, alone.mean_ns, knee);
    if let Some(found) = full_way(evidence, most, by_mean) {
        return found.supported(words);
    }
    if by_mean != kind(evidence, &alone, alone.median_ns, knee) {
        let text = format!(
            "the server waits, but not for CPU and not for a disk; {words}, and by the median of \
             {} it is another number: calls take very different times",
            time(alone.median_ns)
        );
        let need = "calls of one kind, which take about the same time";
        return Diagnosis::undecided(text, need).supported(process_words("server", process));
    }
    let predicted = predicted_gain(evidence, process, most);
    let it = match by_mean {
        AtATime::One => serial(evidence, predicted),
        AtATime::Several => pool(calls, predicted),
        AtATime::Unclear => {
            return Diagnosis::undecided(
                format!("the server waits, but not for CPU and not for a disk; {words}"),
                "what its threads wait for: a profile of the server",
            )
            .supported(process_words("server", process));
        }
    };
    it.supported(words)
        .supported(process_words("server", process))
        .doubted(LOOKS_LIKE_FULL_WAY.into())
}

/// With all calls side by side CPU would be the next limit.
fn predicted_gain(evidence: &LoadEvidence, process: &ProcessUse, most: &LoadPoint) -> Option<f64> {
    let cpu_of_call_ns = process.cpus * 1e9 / most.rate.max(1e-9);
    let cpus = most.machine.map_or(1.0, |machine| machine.cpus as f64);
    let predicted = (cpus * 1e9 / cpu_of_call_ns.max(1.0)) / most.rate.max(1e-9);
    Some(predicted.min(evidence.ceiling.in_flight as f64)).filter(|it| *it > 1.0)
}

fn serial(evidence: &LoadEvidence, predicted: Option<f64>) -> Diagnosis {
    let text = format!(
        "the server works on one call after the other, {} each, and its CPUs are idle meanwhile: a \
         lock, or one thing behind it that all calls wait for",
        time((1e9 / best_of_one(evidence).max(1e-9)) as u64)
    );
    let change = "let calls wait side by side: a narrower lock, or more of what they wait for";
    Diagnosis::named(Cause::ServerSerial, text).changed(change.into(), predicted, None)
}

fn pool(calls: f64, predicted: Option<f64>) -> Diagnosis {
    let text = format!(
        "the server works on about {calls:.0} calls at a time, and its CPUs are idle meanwhile: a \
         pool of threads or of connections to what is behind it"
    );
    let change = "make that pool larger";
    Diagnosis::named(Cause::ServerPool, text).changed(change.into(), predicted, None)
}

/// The way is full, or may be; `None`: it has room.
fn full_way(evidence: &LoadEvidence, most: &LoadPoint, at_a_time: AtATime) -> Option<Diagnosis> {
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
    if bytes_per_s <= at_a_time.full_way_bytes_per_s() {
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
