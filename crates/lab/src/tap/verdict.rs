//! Says in one sentence where the time goes, with what speaks for it and what against.

use std::fmt;

use hdrhistogram::Histogram;

use super::call::CallEnd;
use super::summary::TapSummary;
use super::time_use::TimeUse;
use super::totals::OpenClass;

/// The part of the time from which on a cause is named. Also for `diagnose`, which judges by what
/// the tap saw under several conditions, as the next ones.
pub(crate) const NAMED_SHARE: f64 = 0.5;

/// How many times as large as the next one it must be: two sides that take turns are no bottleneck
/// of either.
pub(crate) const MARGIN: f64 = 1.5;

/// The part of the server's time that the way must take to be named instead.
pub(crate) const WAY_SHARE: f64 = 0.5;

/// A way that is shorter is that of one machine, or of one rack, and not worth a word.
pub(crate) const LONG_WAY_NS: u64 = 200_000;

/// Calls of a class of open calls by which its rate can be compared with another's. Not the number
/// by which a client can be judged as a whole, which `diagnose` has.
const JUDGED_CALLS_OF_CLASS: u64 = 48;

/// How many times as many calls are answered a second with twice as many open, where the server
/// has more to give.
const REAL_GROWTH: f64 = 1.5;

/// The same where it has not. Below lies what no server does: calls that begin and end together
/// were counted, and nothing can be said.
const NO_GROWTH: std::ops::RangeInclusive<f64> = 0.8..=1.25;

/// The part of the time for which the tap's thread may be busy: above, it is the bottleneck itself.
pub(crate) const TAP_BUSY: f64 = 0.85;

/// From here on it is worth a word.
pub(crate) const TAP_RATHER_BUSY: f64 = 0.7;

/// Where the time goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bottleneck {
    /// The client leaves the server without work.
    Client,
    /// The limit on streams, or the windows.
    Connection,
    /// The server has work.
    Server,
    /// The way between the tap and the server.
    Network,
    /// No part is large enough.
    Undecided,
    /// There was no call.
    NothingSeen,
}

impl Bottleneck {
    /// The name, also in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Bottleneck::Client => "client",
            Bottleneck::Connection => "connection",
            Bottleneck::Server => "server",
            Bottleneck::Network => "network",
            Bottleneck::Undecided => "undecided",
            Bottleneck::NothingSeen => "nothing seen",
        }
    }
}

/// What a tap says in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapVerdict {
    /// Where the time goes.
    pub bottleneck: Bottleneck,
    /// The same in a sentence, with its figure.
    pub sentence: String,
    /// What speaks for it.
    pub evidence_for: Vec<String>,
    /// What speaks against it, or is not known.
    pub evidence_against: Vec<String>,
}

/// Time of connections in which the client could have moved.
const CLIENT: &[TimeUse] = &[
    TimeUse::NoCall,
    TimeUse::ClientSilent,
    TimeUse::ClientInRequest,
    TimeUse::ClientNotReading,
];
const SERVER: &[TimeUse] = &[TimeUse::Server, TimeUse::ServerNotReading];
const LIMIT: &[TimeUse] = &[TimeUse::ServerAtLimit];
const SHAPED: &[TimeUse] = &[TimeUse::Shaped];
const WINDOWS: &[TimeUse] = &[TimeUse::ServerWindow, TimeUse::ClientWindow];

/// Judges what was seen.
pub fn judge(summary: &TapSummary) -> TapVerdict {
    let succeeded: u64 = (summary.totals.ends.iter())
        .filter(|(end, _)| end.is_some_and(CallEnd::is_success))
        .map(|(_, calls)| calls)
        .sum();
    let is_waited_for = summary.totals.begun > summary.totals.ended;
    if succeeded == 0 && (summary.totals.ended > 0 || !is_waited_for) {
        return nothing_seen(summary);
    }
    if busy_share(summary) >= TAP_BUSY {
        return tap_is_the_limit(summary);
    }
    let times = summary.figures().times;
    let shares = [CLIENT, SERVER, LIMIT, WINDOWS].map(|uses| times.share(uses));
    let [client, server, limit, windows] = shares;
    let shaped = times.share(SHAPED);
    let mut parts = [client, server + limit, windows, shaped];
    parts.sort_by(|one, two| two.total_cmp(one));
    let [_, second, ..] = parts;
    let is_named = |share: f64| share >= NAMED_SHARE && share >= second * MARGIN;
    let mut verdict = if is_named(client) {
        client_verdict(summary, client)
    } else if is_named(windows) {
        window_verdict(summary, windows)
    } else if is_named(shaped) {
        shaped_verdict(summary, shaped)
    } else if !is_named(server + limit) {
        undecided(shares)
    } else if way_ns(summary) >= way_threshold_ns(summary) {
        way_verdict(summary, server + limit)
    } else if limit >= server {
        limit_verdict(summary, server + limit)
    } else {
        server_verdict(summary, server + limit)
    };
    doubts(summary, &mut verdict);
    verdict
}

fn verdict(bottleneck: Bottleneck, sentence: String) -> TapVerdict {
    TapVerdict {
        bottleneck,
        sentence: format!("{}: {sentence}", bottleneck.name()),
        evidence_for: Vec::new(),
        evidence_against: Vec::new(),
    }
}

fn nothing_seen(summary: &TapSummary) -> TapVerdict {
    let mut connections = summary.connections.iter().chain([&summary.others]);
    let unreadable = connections.find_map(|connection| connection.unreadable);
    let failed = summary.failed.iter().max_by_key(|(_, count)| **count);
    let ends = summary.totals.ends.iter().max_by_key(|(_, calls)| **calls);
    let sentence = match (failed, unreadable, ends) {
        (Some((reason, _)), _, _) => format!("no call succeeded: {reason}"),
        (None, Some(reason), _) => {
            format!("a connection was forwarded, but could not be followed: {reason}")
        }
        (None, None, Some((end, calls))) => format!(
            "none of {} calls succeeded: {calls} of them ended with {}",
            summary.totals.ended,
            end.map_or_else(|| "something else".to_owned(), CallEnd::words)
        ),
        (None, None, None) => "no call came through the tap; has the client its address?".into(),
    };
    verdict(Bottleneck::NothingSeen, sentence)
}

fn client_verdict(summary: &TapSummary, share: f64) -> TapVerdict {
    let times = summary.figures().times;
    let (idle, silent) = (
        times.share(&[TimeUse::NoCall]),
        times.share(&[TimeUse::ClientSilent]),
    );
    let mut it = verdict(
        Bottleneck::Client,
        format!(
            "for {} of the time of its connections the client was the one to move, and the server \
             had nothing to do for it",
            percent(share)
        ),
    );
    for (part, time_use) in [(idle, TimeUse::NoCall), (silent, TimeUse::ClientSilent)] {
        if part >= 0.1 {
            it.evidence_for.push(format!(
                "{}: {}{}",
                time_use.words(),
                percent(part),
                gaps(summary, time_use)
            ));
        }
    }
    it.evidence_for.push(format!(
        "the server answers within {} (median), {} (p99)",
        time(summary.totals.server_ns.value_at_quantile(0.5)),
        time(summary.totals.server_ns.value_at_quantile(0.99))
    ));
    it.evidence_for.push(format!(
        "{:.1} calls are open on average, {} at most",
        summary.figures().mean_open(),
        summary.figures().most_open
    ));
    let busy = summary.connections.len() as u64 + summary.others.connections;
    if busy == 1 && silent >= 0.1 {
        it.evidence_for.push(
            "one connection carries all calls: several of them, each with a sender of its own, \
             may use the time"
                .to_owned(),
        );
    }
    if idle >= 0.3 {
        it.evidence_against.push(
            "a client that has no more to send looks the same: this is its pace, and a bottleneck \
             only if it wants more"
                .to_owned(),
        );
    }
    it
}

fn window_verdict(summary: &TapSummary, share: f64) -> TapVerdict {
    let times = summary.figures().times;
    let server = times.share(&[TimeUse::ServerWindow]);
    let client = times.share(&[TimeUse::ClientWindow]);
    let (whose, what) = match server >= client {
        true => ("server", "requests"),
        false => ("client", "responses"),
    };
    let mut it = verdict(
        Bottleneck::Connection,
        format!(
            "for {} of the time {what} waited for the {whose}'s flow-control window",
            percent(share)
        ),
    );
    it.evidence_for.push(format!(
        "server's window used up: {}, client's: {}",
        percent(server),
        percent(client)
    ));
    it.evidence_against.push(format!(
        "a {whose} that does not read on gives no window either: a larger one helps only if it \
         keeps up"
    ));
    it
}

fn limit_verdict(summary: &TapSummary, share: f64) -> TapVerdict {
    let limit = summary.figures().limit.unwrap_or_default();
    let reached = format!(
        "for {} of the time as many calls were open as the server allows on a connection ({limit})",
        percent(share)
    );
    match growth_of_throughput(&summary.totals.by_open) {
        Some(growth) if growth.is_none() => server_verdict(summary, share),
        Some(growth) if growth.is_real() => {
            let mut it = verdict(Bottleneck::Connection, reached);
            it.evidence_for
                .push(format!("{growth}: the server has more to give"));
            it
        }
        _ => {
            let mut it = verdict(
                Bottleneck::Undecided,
                format!("{reached}; it is that limit, or a server that has no more to give"),
            );
            it.evidence_against.push(
                "a run with a lower --stream-limit tells: if as many calls are answered a second, \
                 it is the server; if fewer, the limit"
                    .to_owned(),
            );
            it
        }
    }
}

fn server_verdict(summary: &TapSummary, share: f64) -> TapVerdict {
    let mut it = verdict(
        Bottleneck::Server,
        format!(
            "for {} of the time the server had whole requests and was the one to move",
            percent(share)
        ),
    );
    it.evidence_for.extend(time_of_server(summary));
    match growth_of_throughput(&summary.totals.by_open) {
        Some(growth) if growth.is_none() => it
            .evidence_for
            .push(format!("{growth}: it has no more to give")),
        Some(growth) if growth.is_real() => it.evidence_against.push(format!(
            "{growth}: more calls at a time would bring more throughput"
        )),
        _ if summary.figures().most_open <= 1 => it.evidence_against.push(
            "one call is open at a time: what a call takes is seen, not what the server can do"
                .to_owned(),
        ),
        _ => it.evidence_against.push(
            "whether more calls at a time would bring more throughput is not known: about the \
             same number was always open. Runs with fewer and with more in flight tell"
                .to_owned(),
        ),
    }
    it
}

/// How long the server takes, where it answers whole requests.
fn time_of_server(summary: &TapSummary) -> Option<String> {
    let server_ns = &summary.totals.server_ns;
    let median_ns = server_ns.value_at_quantile(0.5);
    let text = || {
        format!(
            "from a whole request to the first byte of its answer: {} (median), {} (p99)",
            time(median_ns),
            time(server_ns.value_at_quantile(0.99))
        )
    };
    (median_ns > 0).then(text)
}

/// The tap itself kept bytes back, as it was told to.
fn shaped_verdict(summary: &TapSummary, share: f64) -> TapVerdict {
    let mut it = verdict(
        Bottleneck::Network,
        format!(
            "for {} of the time bytes waited for --bandwidth or --packets-per-second",
            percent(share)
        ),
    );
    it.evidence_for.extend(time_of_server(summary));
    it
}

fn way_verdict(summary: &TapSummary, share: f64) -> TapVerdict {
    let mut it = verdict(
        Bottleneck::Network,
        format!(
            "for {} of the time an answer was waited for, and most of that is the way to the \
             server: {} there and back",
            percent(share),
            time(way_ns(summary))
        ),
    );
    it.evidence_for.extend(time_of_server(summary));
    if summary.conditions.delay_ns > 0 {
        let delay = time(summary.conditions.delay_ns);
        it.evidence_for.push(format!("{delay} of it are --delay"));
    }
    it.evidence_against.push(
        "more calls at a time fill a long way: if the client can, it is the client's choice"
            .to_owned(),
    );
    it
}

/// For how much of the time the tap's thread was busy.
fn busy_share(summary: &TapSummary) -> f64 {
    summary.own_cpu_ns as f64 / summary.wall_ns.max(1) as f64
}

fn tap_is_the_limit(summary: &TapSummary) -> TapVerdict {
    let text = format!(
        "the tap itself was busy for {} of the time, and both sides waited for it; a load of fewer \
         calls a second can be judged",
        percent(busy_share(summary))
    );
    verdict(Bottleneck::Undecided, text)
}

fn undecided([client, server, limit, windows]: [f64; 4]) -> TapVerdict {
    let text = format!(
        "no side is clearly the one to move: for {} of the time the client was, for {} the \
         server, for {} the server at the limit on streams, and for {} windows were used up",
        percent(client),
        percent(server),
        percent(limit),
        percent(windows)
    );
    let mut it = verdict(Bottleneck::Undecided, text);
    it.evidence_against
        .push("a run with fewer, and one with more calls at a time would tell".to_owned());
    it
}

/// What speaks against any verdict.
fn doubts(summary: &TapSummary, it: &mut TapVerdict) {
    if busy_share(summary) >= TAP_RATHER_BUSY {
        it.evidence_against.push(format!(
            "the tap's own thread was busy for {} of the time: it holds both sides up",
            percent(busy_share(summary))
        ));
    }
    let failed: u64 = summary
        .totals
        .methods
        .iter()
        .map(|method| method.failed)
        .sum();
    if failed > 0 {
        it.evidence_against.push(format!(
            "{failed} of {} calls did not succeed",
            summary.totals.ended
        ));
    }
    if summary.totals.unwatched > 0 {
        let calls = summary.totals.unwatched;
        it.evidence_against.push(format!(
            "{calls} calls were not followed: too many were open"
        ));
    }
    let connections = summary.connections.iter().chain([&summary.others]);
    let mut unreadable = connections.filter(|connection| connection.unreadable.is_some());
    if let Some(reason) = unreadable
        .next_back()
        .and_then(|connection| connection.unreadable)
    {
        it.evidence_against.push(format!(
            "a connection could not be followed to its end: {reason}"
        ));
    }
}

/// The way to the server and back: the shortest that TCP measured, or the acceptance of a
/// connection, and what the tap adds. On one machine both measure who was waiting for a CPU.
fn way_ns(summary: &TapSummary) -> u64 {
    let rounds = summary.connections.iter().filter_map(|one| one.server_tcp);
    let measured = rounds.map(|tcp| tcp.round_trip_us * 1_000).min();
    let way_ns = match summary.is_target_local {
        true => 0,
        false => measured.unwrap_or(u64::MAX).min(summary.connect_ns),
    };
    way_ns + summary.conditions.delay_ns
}

/// From which length on the way is most of what is waited for. A stream in both directions has no
/// time from its request to its answer, and gaps in their place.
fn way_threshold_ns(summary: &TapSummary) -> u64 {
    let gaps = summary.totals.gaps(TimeUse::Server);
    let gaps_ns = gaps.map_or(0, |gaps| gaps.value_at_quantile(0.5));
    let server_ns = summary.totals.server_ns.value_at_quantile(0.5).max(gaps_ns);
    LONG_WAY_NS.max((server_ns as f64 * WAY_SHARE) as u64)
}

/// By how much more is answered a second with twice as many calls open.
struct ThroughputGrowth {
    ratio: f64,
    low: (u64, f64),
    high: (u64, f64),
}

impl ThroughputGrowth {
    /// More calls bring more.
    fn is_real(&self) -> bool {
        self.ratio >= REAL_GROWTH
    }

    /// More calls only wait longer.
    fn is_none(&self) -> bool {
        NO_GROWTH.contains(&self.ratio)
    }
}

impl fmt::Display for ThroughputGrowth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((few, few_rate), (many, many_rate)) = (self.low, self.high);
        write!(
            f,
            "with twice as many calls open {:.2} times as many are answered a second \
             ({few_rate:.0}/s on a connection with {few} open, {many_rate:.0}/s with {many})",
            self.ratio
        )
    }
}

/// Compares the highest class that has answers enough with the lowest.
fn growth_of_throughput(classes: &[OpenClass]) -> Option<ThroughputGrowth> {
    let judged = classes.iter().enumerate();
    let mut judged =
        judged.filter(|(_, class)| class.answers >= JUDGED_CALLS_OF_CLASS && class.ns > 0);
    let (low, lowest) = judged.next()?;
    let (high, highest) = judged.next_back()?;
    let rate = |class: &OpenClass| class.answers as f64 * 1e9 / class.ns as f64;
    let per_doubling = (rate(highest) / rate(lowest)).powf(1.0 / (high - low) as f64);
    Some(ThroughputGrowth {
        ratio: per_doubling,
        low: (1 << low, rate(lowest)),
        high: (1 << high, rate(highest)),
    })
}

/// How long gaps of a use were, in words that continue a line.
fn gaps(summary: &TapSummary, time_use: TimeUse) -> String {
    let gaps = summary.totals.gaps(time_use);
    match gaps.filter(|gaps| !gaps.is_empty()) {
        Some(gaps) => format!(
            " ({} gaps, median {}, p99 {})",
            gaps.len(),
            time(gaps.value_at_quantile(0.5)),
            time(gaps.value_at_quantile(0.99))
        ),
        None => String::new(),
    }
}

/// A share in words.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// A time in words, with a unit that suits it.
pub(crate) fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..10_000 => format!("{:.1} µs", ns as f64 / 1e3),
        10_000..1_000_000 => format!("{:.0} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// The mean of a histogram, in nanoseconds.
pub(super) fn mean_ns(histogram: &Histogram<u64>) -> u64 {
    histogram.mean() as u64
}
