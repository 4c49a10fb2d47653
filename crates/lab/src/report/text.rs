//! The text for people.

use std::fmt::Write as _;

use super::rows::{latency_head, row};
use super::{Report, little, messages, rate_parts, seconds};
use crate::pacing::{Arrivals, Pace};
use crate::worker::ConnectionMode;

pub(super) fn text(report: &Report) -> String {
    let mut lines = warnings(report);
    lines.extend(report.machine_lines());
    lines.push(text_of_load(report));
    lines.join("\n")
}

/// What must be known before anything else is read.
pub(super) fn warnings(report: &Report) -> Vec<String> {
    let mut lines: Vec<String> = (report.void.iter())
        .map(|reason| format!("VOID: {reason}"))
        .collect();
    if let Some(behind) = &report.behind {
        lines.push(format!("BEHIND: {behind}"));
    }
    if let Some(noise) = &report.noise {
        lines.push(format!("NOISY: {noise}"));
    }
    lines
}

pub(super) fn text_of_load(report: &Report) -> String {
    let mut lines = vec![load(report)];
    lines.extend(calls(report));
    lines.extend(latencies(report));
    lines.extend(rate_parts::lines(report));
    lines.extend(costs(report));
    lines.extend(little::line(report));
    lines.extend(requirements(report));
    lines.join("\n")
}

/// What was required, and whether it was reached.
pub(super) fn requirements(report: &Report) -> impl Iterator<Item = String> + '_ {
    let results = report.required.iter();
    results.map(|result| format!("required: {result}"))
}

/// What was called, where, and how.
pub(super) fn load(report: &Report) -> String {
    let worker = &report.plan.worker;
    let (connections, in_flight) = (report.plan.connections, worker.in_flight);
    let shape = match worker.mode {
        ConnectionMode::Multiplexed if connections == 1 => {
            format!("1 connection × {in_flight} in flight")
        }
        ConnectionMode::Multiplexed => format!("{connections} connections × {in_flight} in flight"),
        ConnectionMode::Exclusive if connections == 1 => "1 connection, one call at a time".into(),
        ConnectionMode::Exclusive => {
            format!("{connections} connections, one call at a time on each")
        }
        ConnectionMode::Short => format!("{connections} at a time, each on a new connection"),
    };
    let arrive = |arrivals| match arrivals {
        Arrivals::Fixed => "at equal distances",
        Arrivals::Poisson => "as a Poisson process",
    };
    let pace = match worker.pace {
        Pace::Closed => "closed loop".into(),
        Pace::Open { rate, arrivals } => {
            format!("open loop, {rate} calls/s {}", arrive(arrivals))
        }
        Pace::Varying { profile, arrivals } => {
            format!("open loop, {profile} calls/s {}", arrive(arrivals))
        }
    };
    let threads = report.plan.threads;
    let plural = if threads == 1 { "" } else { "s" };
    let early = if report.outcome.was_stopped {
        ", stopped early"
    } else {
        ""
    };
    let over = match report.plan.framed {
        None => String::new(),
        Some(_) => format!(" over {}", super::protocol_name(&report.plan)),
    };
    format!(
        "{} on {}{over}: {shape}, {pace}, {threads} thread{plural}, {:.3} s{early}",
        report.what,
        report.plan.address,
        seconds(report.outcome.elapsed_ns)
    )
}

fn calls(report: &Report) -> Vec<String> {
    let tally = &report.outcome.tally;
    let mut line = format!(
        "calls: {} succeeded, {} failed, {:.0}/s",
        tally.succeeded,
        tally.failures(),
        report.calls_per_s()
    );
    if report.records_per_call > 1 {
        let records = report.records_per_s();
        write!(line, ", {records:.0} records/s").expect("a String takes what is written");
    }
    if tally.misses > 0 {
        write!(line, ", {} misses", tally.misses).expect("a String takes what is written");
    }
    let mut lines = vec![line];
    for (kind, times) in &tally.failed {
        lines.push(format!("  failed: {times} × {kind}"));
    }
    if let Some(text) = &tally.first_failure {
        lines.push(format!("  the first said: {text}"));
    }
    if tally.unfinished + tally.unfinished_before > 0 {
        let before = match tally.unfinished_before {
            0 => String::new(),
            count => format!(", and {count} that began in the warm-up"),
        };
        lines.push(format!(
            "  unfinished: {}{before}, the oldest for {:.3} s; they are not among the latencies",
            tally.unfinished,
            seconds(tally.oldest_unfinished_ns)
        ));
    }
    if tally.begun_before > 0 {
        lines.push(format!(
            "  begun in the warm-up: {} that ended while it was measured; they count in calls/s, \
             and are not among the latencies",
            tally.begun_before
        ));
    }
    lines.extend(notes(report));
    if let Some(streams) = &tally.streams {
        lines.push(messages::line(report, streams));
    }
    lines
}

/// What to know when reading the rest.
fn notes(report: &Report) -> Vec<String> {
    let tally = &report.outcome.tally;
    let mut notes = Vec::new();
    if tally.waited > 0 {
        notes.push(format!(
            "  {} calls waited for a free place, which is part of their latency: more \
             --connections or --in-flight give more places",
            tally.waited
        ));
    }
    if tally.server_allows != u64::MAX {
        notes.push(format!(
            "  {} calls at once on a connection, fewer than --in-flight: the server allows no \
             more, or larger messages than can wait on one",
            tally.server_allows
        ));
    }
    if tally.refused > 0 {
        notes.push(format!(
            "  {} calls were refused by the server before it began with them, and made again when \
             another one on their connection had ended: keep --in-flight below its limit",
            tally.refused
        ));
    }
    if tally.reconnects > 0 {
        notes.push(format!("  connections made again: {}", tally.reconnects));
    }
    notes
}

fn latencies(report: &Report) -> Vec<String> {
    let tally = &report.outcome.tally;
    let mut lines = vec![latency_head()];
    if report.is_open_loop() {
        lines.push(row("corrected", &tally.latency_ns));
        lines.push(row("uncorrected", &tally.uncorrected_ns));
        lines.push(row("own lag", &tally.lag_ns));
        if let Some(stalls) = &report.outcome.stalls {
            lines.push(row("machine", &stalls.late_ns));
        }
    } else {
        lines.push(row("", &tally.latency_ns));
    }
    if let Some(streams) = &tally.streams {
        lines.extend(messages::rows(streams));
    }
    lines
}

fn costs(report: &Report) -> Vec<String> {
    let outcome = &report.outcome;
    let cell = |value: Option<f64>| value.map_or_else(|| "–".into(), |value| format!("{value:.3}"));
    // Only where it was measured.
    let server = report
        .server_us()
        .map_or_else(String::new, |us| format!("server {us:.3} µs, "));
    let busy = outcome.busiest_percent.map_or_else(String::new, |percent| {
        format!(" (its busiest thread was busy for {percent:.0} % of the time)")
    });
    let mut lines = vec![format!(
        "CPU per call: {server}generator {} µs{busy}",
        cell(report.own_us())
    )];
    let mut line = format!(
        "calls per system call: {}",
        cell(report.calls_per_system_call())
    );
    if let Some(tcp) = outcome.tcp {
        let each = |count: u64| cell(super::per(count as f64, outcome.tally.ended));
        write!(
            line,
            "; TCP segments per call: {} out, {} in; retransmits: {}",
            each(tcp.segments_out),
            each(tcp.segments_in),
            tcp.retransmits
        )
        .expect("a String takes what is written");
    }
    lines.push(line);
    lines.push(waits(report));
    lines
}

/// What was under way, and what waited for what.
fn waits(report: &Report) -> String {
    let counters = &report.outcome.counters;
    let in_flight = report
        .mean_in_flight()
        .map_or_else(|| "–".into(), |mean| format!("{mean:.1}"));
    let mut line = format!("in flight: {in_flight} on average; waited: ");
    if report.is_open_loop() {
        let unsent_s = report.unsent_wait_s();
        write!(line, "calls {unsent_s:.3} s to be sent, ").expect("a String takes what is written");
    }
    write!(
        line,
        "connections {:.3} s for their sockets, {:.3} s for the server's windows; {} dialed",
        seconds(counters.socket_wait_ns),
        seconds(counters.window_wait_ns),
        counters.dials
    )
    .expect("a String takes what is written");
    line
}
