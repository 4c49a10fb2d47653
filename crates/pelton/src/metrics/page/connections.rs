//! Connections: their sockets and their TLS.

use net::LoopCounters;
use net::tls::ServerTls;
use service::figures::Totals;

use crate::metrics::exposition::FamilyKind::{Counter, Gauge};
use crate::metrics::exposition::MetricsPage;

/// Takes one figure of a loop.
type LoopFigure = fn(&LoopCounters) -> u64;

/// What all loops have counted: name, meaning and figure.
const LOOP_COUNTERS: [(&str, &str, LoopFigure); 12] = [
    (
        "pelton_connections_opened_total",
        "Connections taken in, with those to be refused.",
        |one| one.opened,
    ),
    (
        "pelton_connections_closed_total",
        "Connections closed.",
        |one| one.closed,
    ),
    (
        "pelton_connections_refused_total",
        "Connections that were one too many.",
        |one| one.refused,
    ),
    (
        "pelton_connections_refused_by_address_total",
        "Connections that were one too many from their address.",
        |one| one.refused_by_address,
    ),
    (
        "pelton_connections_stalled_total",
        "Connections closed since their peer took no answer for too long.",
        |one| one.stalled,
    ),
    (
        "pelton_received_bytes_total",
        "Bytes received from all connections.",
        |one| one.bytes_in,
    ),
    (
        "pelton_sent_bytes_total",
        "Bytes sent to all connections.",
        |one| one.bytes_out,
    ),
    (
        "pelton_socket_reads_total",
        "System calls that receive.",
        |one| one.reads,
    ),
    (
        "pelton_socket_writes_total",
        "System calls that send.",
        |one| one.writes,
    ),
    (
        "pelton_short_writes_total",
        "System calls that could not send all: the peer is slower than this side.",
        |one| one.short_writes,
    ),
    (
        "pelton_chokes_total",
        "Times that so much output waited for a peer that nothing more was read from it.",
        |one| one.chokes,
    ),
    ("pelton_loop_turns_total", "Turns of all loops.", |one| {
        one.ticks
    }),
];

/// Writes what the sockets have done.
pub(super) fn write_sockets(page: &mut MetricsPage, totals: &Totals, loops: &[LoopCounters]) {
    let sum = |of: LoopFigure| loops.iter().map(of).sum::<u64>();
    page.single(
        "pelton_connections",
        Gauge,
        "Connections that are open now.",
        totals.open_connections,
    );
    page.single(
        "pelton_loops",
        Gauge,
        "Event loops, or threads for connections and their door, that run now.",
        sum(|one| one.threads),
    );
    for (name, help, of) in LOOP_COUNTERS {
        page.single(name, Counter, help, sum(of));
    }
    page.single(
        "pelton_connections_evicted_total",
        Counter,
        "Connections closed since pelton_buffered_bytes was above its limit, and they held most \
         and did not move.",
        totals.evicted_connections,
    );
    page.family(
        "pelton_socket_buffers",
        Gauge,
        "Buffers for input and output of connections, in use and kept for the next.",
    );
    let buffers: [(_, LoopFigure); 3] = [
        ("input", |one| one.input_buffers_lent),
        ("output", |one| one.output_buffers_lent),
        ("free", |one| one.buffers_pooled),
    ];
    for (state, of) in buffers {
        page.sample(&[("state", state)], sum(of));
    }
}

/// Writes the certificate, and the handshakes with it.
pub(super) fn write_tls(page: &mut MetricsPage, tls: &ServerTls, loops: &[LoopCounters]) {
    let sum = |of: LoopFigure| loops.iter().map(of).sum::<u64>();
    page.single(
        "pelton_tls_certificate_not_after_seconds",
        Gauge,
        "When the certificate in use runs out, in seconds since 1970.",
        tls.validity().not_after_s,
    );
    page.single(
        "pelton_tls_handshakes_total",
        Counter,
        "TLS handshakes done.",
        sum(|one| one.handshakes),
    );
    page.single(
        "pelton_tls_resumed_total",
        Counter,
        "Those of them that resumed a session.",
        sum(|one| one.resumed),
    );
    page.family(
        "pelton_tls_failures_total",
        Counter,
        "Connections with TLS that failed, most in their handshake, by reason.",
    );
    let reasons: [(_, LoopFigure); 9] = [
        ("not_tls", |one| one.failed_not_tls),
        ("client_certificate", |one| one.failed_certificate),
        ("incompatible", |one| one.failed_incompatible),
        ("refused_by_client", |one| one.failed_refused_by_peer),
        ("broken", |one| one.failed_broken),
        ("ended", |one| one.failed_ended),
        ("timed_out", |one| one.failed_timed_out),
        ("too_large", |one| one.failed_too_large),
        ("crowded_out", |one| one.failed_crowded_out),
    ];
    for (reason, of) in reasons {
        page.sample(&[("reason", reason)], sum(of));
    }
}
