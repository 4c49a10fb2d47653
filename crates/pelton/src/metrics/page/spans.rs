//! Spans that are exported.

use client::spans::SpanQueue;

use crate::metrics::exposition::FamilyKind::{Counter, Gauge};
use crate::metrics::exposition::MetricsPage;

/// Writes what became of the spans of a server that exports them.
pub(super) fn write(page: &mut MetricsPage, spans: &SpanQueue) {
    let counts = spans.counts();
    page.single(
        "pelton_spans_sent_total",
        Counter,
        "Spans that the OTLP collector has taken.",
        counts.sent,
    );
    page.family(
        "pelton_spans_dropped_total",
        Counter,
        "Spans that were dropped, by reason: the queue was full, the export has failed, or the \
         collector has refused them.",
    );
    for (reason, spans) in [
        ("queue_full", counts.queue_full),
        ("export_failed", counts.export_failed),
        ("rejected", counts.rejected),
    ] {
        page.sample(&[("reason", reason)], spans);
    }
    page.single(
        "pelton_spans_queued",
        Gauge,
        "Spans that wait to be exported, or are under way.",
        spans.unsent(),
    );
}
