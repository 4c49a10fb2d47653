//! Decides what limits a client and its server, by what the tap saw between them under several
//! conditions. A value in, a value out.

use super::agent_presence::needs_server;
use super::cause::Cause;
use super::client_runs::{JUDGED_CALLS, calls_open, cycle_ns, is_usable, plain_rates};
use super::compression::{client_compression, with_compression};
use super::diagnosis::{
    Diagnosis, ProcessLimit, of_process, percent, process_limit, process_words, rate,
};
use super::evidence::{ClientEvidence, ClientRun, MachineUse, ProcessUse};
use super::saturated_server::no_more_to_give;
use super::wandering::with_pinned_run;
use crate::tap::{LONG_WAY_NS, MARGIN, NAMED_SHARE, TAP_BUSY, TAP_RATHER_BUSY, WAY_SHARE, time};

/// What is left of the throughput under another condition, if it depends on that.
const LESS: f64 = 0.7;

/// The same if it does not.
const SAME: f64 = 0.87;

/// The part of a call and its queue that an added way may be.
const DELAY_SHARE: f64 = 0.75;

/// How far from its prediction a throughput may be.
const NEAR: f64 = 0.15;

/// What mean and most open calls are apart at most where a client begins each call when another one
/// has ended: it keeps as many open as it may.
const KEPT_OPEN: f64 = 0.8;

/// Decides.
pub fn judge_client(evidence: &ClientEvidence) -> Diagnosis {
    decide(evidence).watched_by(evidence.agent.as_ref())
}

fn decide(evidence: &ClientEvidence) -> Diagnosis {
    let plain = &evidence.plain;
    if let Some(problem) = &plain.problem {
        return Diagnosis::undecided(problem.clone(), "calls that succeed")
            .ended_early(evidence.early_end.as_ref());
    }
    let decided = if plain.ended < JUDGED_CALLS {
        Diagnosis::undecided(
            format!(
                "{} calls came through the tap, too few to judge",
                plain.ended
            ),
            "a client that makes more calls, or a longer --client-time",
        )
    } else if plain.tap_busy >= TAP_BUSY {
        Diagnosis::undecided(
            format!(
                "the tap itself was busy for {} of the time, and both sides waited for it",
                percent(plain.tap_busy)
            ),
            "a client that makes fewer calls a second",
        )
    } else if plain.window_share() >= NAMED_SHARE {
        windows(evidence)
    } else if is_client_named(plain) {
        with_pinned_run(evidence, client(plain))
    } else if is_named(plain.server_share, plain.client_share) {
        server(evidence)
    } else {
        both(plain)
    };
    doubts(plain, decided).ended_early(evidence.early_end.as_ref())
}

/// Whether calls wait for the server, so that runs under other conditions tell more.
pub(super) fn is_waited_for(plain: &ClientRun) -> bool {
    plain.problem.is_none()
        && plain.ended >= JUDGED_CALLS
        && plain.tap_busy < TAP_BUSY
        && is_named(plain.server_share, plain.client_share)
}

/// Whether the client leaves the server without work, so that a run on one CPU may tell more.
pub(super) fn is_client_named(plain: &ClientRun) -> bool {
    let is_seen = plain.problem.is_none() && plain.ended >= JUDGED_CALLS;
    let is_other = plain.tap_busy >= TAP_BUSY || plain.window_share() >= NAMED_SHARE;
    is_seen && !is_other && is_named(plain.client_share, plain.server_share)
}

fn is_named(share: f64, other: f64) -> bool {
    share >= NAMED_SHARE && share >= other * MARGIN
}

/// Bytes waited for a window: for its size, or for a receiver that does not read on and so gives
/// none, which its process shows.
fn windows(evidence: &ClientEvidence) -> Diagnosis {
    let plain = &evidence.plain;
    let share = plain.window_share();
    let text = format!(
        "for {} of the time bytes waited for a flow-control window",
        percent(share)
    );
    let receiver = match plain.server_window_share >= plain.client_window_share {
        true => WindowReceiver {
            who: "server",
            process: plain.server.as_ref(),
            machine: plain.server_machine.as_ref(),
            causes: (Cause::ServerThread, Cause::ServerCpu),
            need: needs_server(evidence.agent.as_ref()),
        },
        false => WindowReceiver {
            who: "client",
            process: plain.client.as_ref(),
            machine: plain.machine.as_ref(),
            causes: (Cause::ClientThread, Cause::ClientCpu),
            need: "what the client's process does: let this command start it".into(),
        },
    };
    receiver.judge(text)
}

/// Whoever gives a window that was used up.
struct WindowReceiver<'a> {
    who: &'static str,
    process: Option<&'a ProcessUse>,
    machine: Option<&'a MachineUse>,
    causes: (Cause, Cause),
    /// What would have to be known where its process is not seen.
    need: String,
}

impl WindowReceiver<'_> {
    /// `text`: how long bytes waited.
    fn judge(self, text: String) -> Diagnosis {
        let unknown = |need: String| {
            let text = format!(
                "{text} of the {}: it is small, or its receiver does not read on",
                self.who
            );
            Diagnosis::undecided(text, need)
        };
        let Some(process) = self.process else {
            return unknown(self.need.clone());
        };
        match process_limit(process, self.machine, self.causes) {
            ProcessLimit::Known(cause) => of_process(cause, self.who, process, self.machine)
                .joined(Diagnosis::named(Cause::Window, text)),
            ProcessLimit::Unclear => unknown(format!("a profile of the {}", self.who))
                .supported(process_words(self.who, process)),
            ProcessLimit::Waiting => Diagnosis::named(Cause::Window, text)
                .supported(process_words(self.who, process))
                .doubted("a receiver that does not read on gives no window either".into())
                .changed(
                    "let the receiver give larger windows, or spread calls over more connections"
                        .into(),
                    None,
                    None,
                ),
        }
    }
}

/// What was seen of who could have moved.
fn moved(plain: &ClientRun) -> String {
    format!(
        "for {} of the time the client was the one to move, for {} the server",
        percent(plain.client_share),
        percent(plain.server_share)
    )
}

/// The client leaves the server without work.
fn client(plain: &ClientRun) -> Diagnosis {
    let Some(process) = &plain.client else {
        let need = "what the client's process does: let this command start it";
        return Diagnosis::undecided(moved(plain), need).supported(calls_open(plain));
    };
    let causes = (Cause::ClientThread, Cause::ClientCpu);
    let it = match process_limit(process, plain.machine.as_ref(), causes) {
        ProcessLimit::Known(cause) => {
            let it = of_process(cause, "client", process, plain.machine.as_ref());
            let text = match cause {
                Cause::ClientThread => "divide the work of that thread among several",
                Cause::ClientCpu => "less CPU a call in the client, or several processes of it",
                Cause::Quota => "raise the quota of the client's control group",
                _ => "take away what the client waits for",
            };
            let it = it.changed(text.into(), None, None);
            with_compression(it, &client_compression(plain), process)
        }
        _ if plain.most_open <= 1 && has_no_pause(plain, process) => one_at_a_time(plain),
        ProcessLimit::Unclear => {
            let it = Diagnosis::undecided(moved(plain), "a profile of the client");
            let it = with_compression(it, &client_compression(plain), process);
            return it
                .supported(process_words("client", process))
                .supported(calls_open(plain));
        }
        ProcessLimit::Waiting => pace(plain),
    };
    it.supported(moved(plain))
        .supported(calls_open(plain))
        .supported(process_words("client", process))
}

/// Whether the client works for most of the time that passes between its calls.
fn has_no_pause(plain: &ClientRun, process: &ProcessUse) -> bool {
    process.cpus >= plain.client_share * NAMED_SHARE
}

fn one_at_a_time(plain: &ClientRun) -> Diagnosis {
    let gain = 1.0 / plain.server_share.max(0.05);
    let text = format!(
        "the client makes one call after the other, and the server has nothing to do for {} of the \
         time",
        percent(1.0 - plain.server_share)
    );
    Diagnosis::named(Cause::ClientInFlight, text).changed(
        "keep several calls in flight, from several threads or without waiting for each".into(),
        Some(gain),
        None,
    )
}

fn pace(plain: &ClientRun) -> Diagnosis {
    let text = format!(
        "for {} of the time the client neither sent nor used its CPU: it sends no more",
        percent(plain.client_share)
    );
    Diagnosis::named(Cause::ClientPace, text)
        .doubted(
            "a client that has no more to send looks the same: this is a limit only if it wants \
             more"
                .into(),
        )
        .changed(
            "look for a pause, a lock or a limit of its own in the client".into(),
            Some(1.0 / plain.server_share.max(0.05)),
            None,
        )
}

/// Both sides are waited for.
fn both(plain: &ClientRun) -> Diagnosis {
    if plain.most_open <= 1 && plain.server_share < NAMED_SHARE * MARGIN {
        let it = one_with_pauses(plain).supported(moved(plain));
        return it.supported(calls_open(plain));
    }
    let it = Diagnosis::undecided(
        format!("no side is clearly waited for: {}", moved(plain)),
        "a client with more, and one with fewer calls in flight",
    );
    let it = match &plain.client {
        Some(process) if plain.client_share >= NAMED_SHARE => {
            with_compression(it, &client_compression(plain), process)
        }
        _ => it,
    };
    it.supported(calls_open(plain))
}

/// The client makes one call after the other, and may pause in between.
fn one_with_pauses(plain: &ClientRun) -> Diagnosis {
    let pauses = |process: &&ProcessUse| !has_no_pause(plain, process);
    let Some(process) = plain.client.as_ref().filter(pauses) else {
        return one_at_a_time(plain);
    };
    let causes = (Cause::ClientThread, Cause::ClientCpu);
    let it = match process_limit(process, plain.machine.as_ref(), causes) {
        ProcessLimit::Waiting => pace(plain),
        _ => Diagnosis::undecided(
            "the client makes one call after the other, and whether it pauses in between or works \
             is not known"
                .into(),
            "a profile of the client",
        ),
    };
    it.supported(process_words("client", process))
}

/// How throughput follows the calls that may be open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Follows {
    /// Fewer calls bring less.
    Calls,
    /// Fewer calls bring as much: the server has no more to give.
    Nothing,
    /// Neither is clear, or contradicts itself.
    Unclear,
    /// Not tried.
    Unknown,
}

fn follows(evidence: &ClientEvidence) -> Follows {
    let Some(halved) = &evidence.halved else {
        return Follows::Unknown;
    };
    let made = [&evidence.halved, &evidence.delayed, &evidence.again];
    if !made.into_iter().flatten().all(is_usable) {
        return Follows::Unclear;
    }
    let (least, most) = plain_rates(evidence);
    let delayed = evidence.delayed.as_ref().map_or(0.0, |run| run.rate);
    let way = delay_prediction(evidence).filter(|predicted| *predicted < LESS);
    if halved.rate < least * LESS {
        // Calls that are not queued notice a longer way.
        return match way.is_some() && delayed > most * SAME {
            true => Follows::Unclear,
            false => Follows::Calls,
        };
    }
    // Calls that wait in a queue do not.
    let is_noticed = way.is_some_and(|predicted| delayed < least * (predicted + NEAR));
    match halved.rate >= most * SAME && !is_noticed {
        true => Follows::Nothing,
        false => Follows::Unclear,
    }
}

/// The part of the throughput that a longer way would leave if each call took so much longer.
fn delay_prediction(evidence: &ClientEvidence) -> Option<f64> {
    let (plain, delayed) = (&evidence.plain, evidence.delayed.as_ref()?);
    let (cycle_ns, delay_ns) = (cycle_ns(plain), delayed.delay_ns as f64);
    // A way that is as long as a queue would empty it.
    (delay_ns <= cycle_ns * DELAY_SHARE).then_some(cycle_ns / (cycle_ns + delay_ns))
}

/// Calls wait for the server.
fn server(evidence: &ClientEvidence) -> Diagnosis {
    let plain = &evidence.plain;
    let it = if plain.most_open <= 1 {
        alone(plain)
    } else {
        match follows(evidence) {
            Follows::Calls => more_calls(evidence),
            Follows::Nothing => no_more_to_give(evidence),
            Follows::Unknown => Diagnosis::undecided(
                format!("calls wait for the server; {}", calls_open(plain)),
                "a run with fewer calls open, which was not made",
            ),
            Follows::Unclear => Diagnosis::undecided(
                format!("calls wait for the server; {}", calls_open(plain)),
                "a client whose calls succeed, for a longer time, on a quieter machine",
            ),
        }
    };
    conditions(evidence, it.supported(moved(plain)))
}

/// What the other runs showed.
fn conditions(evidence: &ClientEvidence, mut it: Diagnosis) -> Diagnosis {
    let plain = evidence.plain.rate.max(1e-9);
    for run in [&evidence.halved, &evidence.single].into_iter().flatten() {
        it = it.supported(format!(
            "with at most {} calls open on a connection {}, {} of that without",
            run.stream_limit_made.unwrap_or_default(),
            rate(run.rate),
            percent(run.rate / plain)
        ));
    }
    if let Some(again) = &evidence.again {
        it = it.supported(format!("as it is once more {}", rate(again.rate)));
    }
    if let (Some(run), Some(predicted)) = (&evidence.delayed, delay_prediction(evidence)) {
        it = it.supported(format!(
            "with {} more of a way {}, {} of that without; {} if each call takes so much longer",
            time(run.delay_ns),
            rate(run.rate),
            percent(run.rate / plain),
            percent(predicted)
        ));
    }
    it
}

/// One call is open at a time, and waits for the server.
fn alone(plain: &ClientRun) -> Diagnosis {
    let is_way =
        |way_ns: u64| way_ns >= LONG_WAY_NS.max((plain.server_ns as f64 * WAY_SHARE) as u64);
    if let Some(way_ns) = plain.round_trip_ns.filter(|way_ns| is_way(*way_ns)) {
        return way(plain, way_ns);
    }
    let at_a_time = "only one call is open at a time: what it waits for is seen, not whether the \
                     server could work on several";
    let known = plain.server.as_ref().and_then(|process| {
        let causes = (Cause::ServerThread, Cause::ServerCpu);
        match process_limit(process, plain.server_machine.as_ref(), causes) {
            ProcessLimit::Known(cause) => Some(of_process(
                cause,
                "server",
                process,
                plain.server_machine.as_ref(),
            )),
            _ => None,
        }
    });
    if let Some(known) = known {
        return known.doubted(at_a_time.into()).supported(calls_open(plain));
    }
    let text = format!(
        "the client makes one call at a time, and each waits {} for the server: it is that, or a \
         slow server",
        time(plain.server_ns)
    );
    Diagnosis::undecided(
        text,
        "a client with several calls in flight; or this command without --client, with --method \
         and --data",
    )
    .supported(calls_open(plain))
}

fn way(plain: &ClientRun, way_ns: u64) -> Diagnosis {
    let text = format!(
        "the way to the server and back takes {} of the {} that a call waits",
        time(way_ns),
        time(plain.server_ns)
    );
    let text_of_change = "keep more calls in flight: they share the way";
    Diagnosis::named(Cause::Way, text)
        .supported(calls_open(plain))
        .changed(text_of_change.into(), None, None)
}

/// The limit on streams, if calls come up to it: named if they do for most of a run without a limit
/// of the tap's. With a longer way a call is open for a greater part of the time, and what holds
/// calls back is seen more clearly.
fn stream_limit(evidence: &ClientEvidence) -> Option<Diagnosis> {
    let plain = &evidence.plain;
    let limit = plain
        .limit
        .filter(|&limit| plain.most_open >= limit as usize)?;
    let runs = [
        ("", Some(plain)),
        (" of the same run once more", evidence.again.as_ref()),
        (" of the run with a longer way", evidence.delayed.as_ref()),
    ];
    let is_at_limit = |run: &&ClientRun| run.at_limit >= NAMED_SHARE;
    let found = runs
        .into_iter()
        .find_map(|(which, run)| run.filter(is_at_limit).map(|run| (which, run.at_limit)));
    let (which, at_limit) = found.unwrap_or(("", plain.at_limit));
    let text = format!(
        "for {} of the time{which} as many calls were open as the server allows on a connection \
         ({limit}), and with fewer it answers fewer",
        percent(at_limit)
    );
    let it = match found {
        Some(_) => Diagnosis::named(Cause::StreamLimit, text).changed(
            "open more connections, or raise the server's limit on concurrent streams".into(),
            doubling_gain(evidence),
            None,
        ),
        None => Diagnosis::undecided(text, "a run with a higher limit on the server's streams"),
    };
    Some(it.supported(calls_open(plain)))
}

/// The server answers more if more calls are open.
fn more_calls(evidence: &ClientEvidence) -> Diagnosis {
    let plain = &evidence.plain;
    if let Some(found) = stream_limit(evidence) {
        return found;
    }
    // A pace of the client's own has calls come and go: with half as many open it cannot be kept.
    let is_delay_known = delay_prediction(evidence).is_some();
    if !is_delay_known && plain.mean_open < plain.most_open as f64 * KEPT_OPEN {
        let text = format!(
            "with fewer calls open fewer are answered, and {} are not kept open: the client may \
             have a pace of its own; {}",
            plain.most_open,
            calls_open(plain)
        );
        let need = "a client that begins each call when another one has ended";
        return Diagnosis::undecided(text, need);
    }
    let is_way =
        |way_ns: &u64| *way_ns >= LONG_WAY_NS.max((plain.server_ns as f64 * WAY_SHARE) as u64);
    if let Some(way_ns) = plain.round_trip_ns.filter(is_way) {
        return way(plain, way_ns);
    }
    let text = format!(
        "the client keeps {:.1} calls open, and the server answers as many more as there are more \
         of them; its limit on streams is not what holds them back",
        plain.mean_open * plain.connections_at_a_time as f64
    );
    let it = Diagnosis::named(Cause::ClientInFlight, text)
        .supported(calls_open(plain))
        .doubted("a way whose packets are counted, and shared by calls, looks the same".into());
    let it = match is_delay_known {
        true => it,
        false => it.doubted(
            "a client that sends at a pace of its own looks the same: no longer way was tried"
                .into(),
        ),
    };
    it.changed(
        "raise the client's own limit: its threads, its semaphore or its pool".into(),
        doubling_gain(evidence),
        None,
    )
}

/// How many times as much twice as many open calls bring, by what half of them bring.
fn doubling_gain(evidence: &ClientEvidence) -> Option<f64> {
    let halved = evidence.halved.as_ref().filter(|run| run.rate > 0.0)?;
    let is_half = halved.stream_limit_made.is_some_and(|limit| {
        let most = evidence.plain.most_open as f64;
        (most / f64::from(limit) - 2.0).abs() <= 0.5
    });
    is_half.then_some(evidence.plain.rate / halved.rate)
}

/// What speaks against any decision.
fn doubts(plain: &ClientRun, it: Diagnosis) -> Diagnosis {
    let it = match plain.failed * 100 >= plain.ended.max(1) {
        true => it.doubted(format!("{} of {} calls failed", plain.failed, plain.ended)),
        false => it,
    };
    match plain.tap_busy >= TAP_RATHER_BUSY {
        true => it.doubted(format!(
            "the tap's own thread was busy for {} of the time: it holds both sides up",
            percent(plain.tap_busy)
        )),
        false => it,
    }
}
