//! Decides what keeps a server from giving more to a client: fewer open calls bring as much.

use super::agent_presence::needs_server;
use super::cause::Cause;
use super::client_runs::{PILED_UP, calls_open, is_usable, plain_rates};
use super::compression::{server_compression, with_compression};
use super::diagnosis::{
    Diagnosis, ProcessLimit, of_process, percent, process_limit, process_words, times,
};
use super::evidence::{ClientEvidence, ClientRun, ProcessUse};
use super::way_verdict::{AtATime, LOOKS_LIKE_FULL_WAY};
use crate::tap::time;

/// What is left of the time that the server takes for a call, where half of the open calls only
/// wait in a queue: with half as many open it is half of it (Little's law), and the same where
/// nothing waits.
const QUEUED: f64 = 0.75;

/// How many calls a server may work on at a time, up to which it is one.
const ONE_AT_A_TIME: f64 = 1.35;

/// The same, from which on there are several.
const SEVERAL_AT_A_TIME: f64 = 1.7;

/// The server answers as many with half as many open.
pub(super) fn no_more_to_give(evidence: &ClientEvidence) -> Diagnosis {
    let plain = &evidence.plain;
    if let Some(found) = without_queue(evidence) {
        return found.supported(calls_open(plain));
    }
    let it = saturated_server(evidence).supported(calls_open(plain));
    if plain.most_open < PILED_UP {
        return it;
    }
    let fewer = evidence
        .halved
        .as_ref()
        .and_then(|run| run.stream_limit_made);
    let text = format!(
        "{} calls are open at a server that answers as many with {} of them: they pile up, and \
         only wait",
        plain.most_open,
        fewer.unwrap_or_default()
    );
    it.joined(Diagnosis::named(Cause::ClientQueue, text))
}

/// Calls take as long with half as many open, so that none waited for others: a client with a pace
/// of its own brings as much then, too. `None`: they waited.
fn without_queue(evidence: &ClientEvidence) -> Option<Diagnosis> {
    let halved = evidence.halved.as_ref()?;
    let plain = [Some(&evidence.plain), evidence.again.as_ref()];
    let plain_ns = plain.into_iter().flatten().map(|run| run.server_mean_ns);
    let plain_ns = plain_ns.min()?;
    let left = halved.server_mean_ns as f64 / plain_ns.max(1) as f64;
    if left < QUEUED {
        return None;
    }
    let text = format!(
        "with half as many calls open the server takes {} of the time for each, so that next to \
         nothing waits in it: the client sends no more, or something before the server holds its \
         calls up",
        percent(left)
    );
    Some(Diagnosis::undecided(text, "a client that sends more"))
}

fn saturated_server(evidence: &ClientEvidence) -> Diagnosis {
    let plain = &evidence.plain;
    let Some(process) = &plain.server else {
        return Diagnosis::undecided(
            "the server has no more to give, and what keeps it from that cannot be seen from here"
                .into(),
            needs_server(evidence.agent.as_ref()),
        );
    };
    let causes = (Cause::ServerThread, Cause::ServerCpu);
    match process_limit(process, plain.server_machine.as_ref(), causes) {
        ProcessLimit::Known(cause) => {
            let it = of_process(cause, "server", process, plain.server_machine.as_ref());
            with_compression(it, &server_compression(plain), process)
        }
        ProcessLimit::Waiting => waiting(evidence, process),
        ProcessLimit::Unclear => {
            let it = Diagnosis::undecided(
                format!(
                    "the server has no more to give; {}",
                    process_words("it", process)
                ),
                "a profile of the server under this load",
            );
            with_compression(it, &server_compression(plain), process)
        }
    }
}

/// What so many calls at a time come to.
fn kind(calls: f64) -> AtATime {
    match calls {
        ..ONE_AT_A_TIME => AtATime::One,
        ..SEVERAL_AT_A_TIME => AtATime::Unclear,
        _ => AtATime::Several,
    }
}

/// A server that waits for something that is neither CPU nor disk.
fn waiting(evidence: &ClientEvidence, process: &ProcessUse) -> Diagnosis {
    let plain = &evidence.plain;
    let undecided = |need: &str| {
        let text = "the server has no more to give, and waits for something else than its CPU";
        Diagnosis::undecided(text.into(), need).supported(process_words("server", process))
    };
    let Some(single) = &evidence.single else {
        return undecided("a run with one call open at a time, which was not made");
    };
    if !is_usable(single) {
        // A stream that stays open takes the only place, and a server may have died meanwhile.
        return undecided(
            "a client whose calls go with one open at a time, or a longer --client-time",
        );
    }
    if plain.connections_at_a_time > 1 {
        return undecided("a client with one connection, to count how many calls it works on");
    }
    let (least, most) = plain_rates(evidence);
    let rate = (least + most) / 2.0;
    // By throughput, and by what a call takes that is alone (Little's law, whose time is the mean):
    // a client and a tap also take time.
    let by_rates = rate / single.rate.max(1e-9);
    let by_time = |ns: u64| (rate * ns as f64 / 1e9).min(by_rates);
    let calls = by_time(single.server_mean_ns);
    let at_a_time = kind(calls);
    if at_a_time != kind(by_time(single.server_ns)) {
        return undecided("a client whose calls are of one kind: these take very different times");
    }
    let alone = Some(single).filter(|_| at_a_time == AtATime::One);
    if least_bytes_per_s(evidence, alone) > at_a_time.full_way_bytes_per_s() {
        return undecided(
            "the same client with smaller messages: a way that is full looks the same",
        );
    }
    match at_a_time {
        AtATime::One => serial(plain),
        AtATime::Several => pool(calls),
        AtATime::Unclear => return undecided("a longer run on a quieter machine"),
    }
    .supported(process_words("server", process))
    .doubted(LOOKS_LIKE_FULL_WAY.into())
}

/// The least that went each second in runs with this throughput: a way that is full is so in each
/// of them, and requests that pile up are sent long before they are answered.
fn least_bytes_per_s(evidence: &ClientEvidence, alone: Option<&ClientRun>) -> f64 {
    let others = [evidence.halved.as_ref(), evidence.again.as_ref(), alone];
    let runs = others.into_iter().flatten().chain([&evidence.plain]);
    runs.map(|run| run.bytes_per_s.0.max(run.bytes_per_s.1))
        .fold(f64::INFINITY, f64::min)
}

fn serial(plain: &ClientRun) -> Diagnosis {
    let text = format!(
        "it works on one call after the other, {} each, and its CPUs are idle meanwhile: a lock, \
         or one thing behind it that all calls wait for",
        time((1e9 / plain.rate.max(1e-9)) as u64)
    );
    let change = "let calls wait side by side: a narrower lock";
    Diagnosis::named(Cause::ServerSerial, text).changed(change.into(), None, None)
}

fn pool(calls: f64) -> Diagnosis {
    let text = format!(
        "it answers {} as many calls as with one at a time, however many more are open: a pool of \
         threads or of connections to what is behind it",
        times(calls)
    );
    let change = "make that pool larger";
    Diagnosis::named(Cause::ServerPool, text).changed(change.into(), None, None)
}
