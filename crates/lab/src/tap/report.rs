//! What a tap has seen, for people and for programs.

use hdrhistogram::Histogram;
use net::Address;
use serde_json::{Map, Value, json};

use super::call::CallEnd;
use super::limits::MAX_TAPPED_CONNECTIONS;
use super::summary::{ConnectionSummary, TapSummary};
use super::tcp_of_side::TcpOfSide;
use super::time_use::TimeUse;
use super::timeline;
use super::verdict::{TapVerdict, judge, mean_ns, percent, time};
use crate::machine::{LoadMachine, OnMachine};

/// Methods and ends that the text names.
const SHOWN_ROWS: usize = 12;

/// What a tap has seen, and what it means.
#[derive(Clone, Debug)]
pub struct TapReport {
    listen: Address,
    target: Address,
    summary: TapSummary,
    verdict: TapVerdict,
    machine: Option<LoadMachine>,
}

impl OnMachine for TapReport {
    fn set_machine(&mut self, machine: LoadMachine) {
        self.machine = Some(machine);
    }
}

impl TapReport {
    /// Judges what was seen between the two addresses.
    pub fn new(listen: Address, target: Address, summary: TapSummary) -> TapReport {
        TapReport {
            verdict: judge(&summary),
            listen,
            target,
            summary,
            machine: None,
        }
    }

    /// What was seen.
    pub fn summary(&self) -> &TapSummary {
        &self.summary
    }

    /// What it means.
    pub fn verdict(&self) -> &TapVerdict {
        &self.verdict
    }

    /// Lines for people; the first one is the verdict.
    pub fn text(&self) -> String {
        let mut lines = vec![self.verdict.sentence.clone()];
        for (word, texts) in [
            ("for", &self.verdict.evidence_for),
            ("against", &self.verdict.evidence_against),
        ] {
            lines.extend(texts.iter().map(|text| format!("  {word}: {text}")));
        }
        lines.extend(self.machine.iter().flat_map(LoadMachine::lines));
        lines.push(self.heading());
        if self.summary.figures().times.total_ns() > 0 {
            lines.extend(self.time_rows());
        }
        if self.summary.totals.ended > 0 {
            lines.extend(self.phase_rows());
            lines.push(self.bursts());
            lines.extend(self.connection_rows());
            lines.extend(self.method_rows());
        }
        lines.extend(self.failures());
        lines.push(self.own_costs());
        lines.join("\n")
    }

    fn heading(&self) -> String {
        let summary = &self.summary;
        let connections = summary.connections.len() as u64 + summary.others.connections;
        let plural = if connections == 1 { "" } else { "s" };
        let seconds = summary.wall_ns as f64 / 1e9;
        let conditions = &summary.conditions;
        let mut made = Vec::new();
        if conditions.delay_ns > 0 {
            made.push(format!(
                "{} of delay a round trip",
                time(conditions.delay_ns)
            ));
        }
        if let Some(bytes) = conditions.bandwidth {
            made.push(format!("{bytes} bytes/s in each direction"));
        }
        if let Some(packets) = conditions.packets_per_second {
            made.push(format!("{packets} packets/s in each direction (a model)"));
        }
        if let Some(limit) = conditions.stream_limit {
            made.push(format!("at most {limit} streams on a connection"));
        }
        let made = match made.is_empty() {
            true => String::new(),
            false => format!("; with {}", made.join(", ")),
        };
        format!(
            "{} to {}: {seconds:.1} s, {connections} connection{plural}, {} calls begun, {} ended, \
             {:.0}/s{made}",
            self.listen,
            self.target,
            summary.totals.begun,
            summary.totals.ended,
            summary.totals.ended as f64 / seconds.max(1e-9),
        )
    }

    /// What the time of connections went to.
    fn time_rows(&self) -> Vec<String> {
        let times = self.summary.figures().times;
        let mut rows = vec![format!(
            "{:<58} {:>6} {:>8} {:>9} {:>9} {:>9}",
            "time of connections", "share", "gaps", "median", "p99", "longest"
        )];
        for time_use in TimeUse::ALL {
            if times.ns(time_use) == 0 {
                continue;
            }
            let share = percent(times.share(&[time_use]));
            let gaps = self.summary.totals.gaps(time_use);
            let gaps = match gaps.filter(|gaps| !gaps.is_empty()) {
                Some(gaps) => format!(
                    "{:>8} {:>9} {:>9} {:>9}",
                    gaps.len(),
                    time(gaps.value_at_quantile(0.5)),
                    time(gaps.value_at_quantile(0.99)),
                    time(gaps.max())
                ),
                None => format!("{:>8}", 0),
            };
            rows.push(format!("{:<58} {share:>6} {gaps}", time_use.words()));
        }
        rows
    }

    /// What calls went through.
    fn phase_rows(&self) -> Vec<String> {
        let totals = &self.summary.totals;
        let mut rows = vec![format!(
            "{:<42} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "of a call", "mean", "median", "p90", "p99", "longest"
        )];
        for (name, times) in [
            ("request, first to last byte", &totals.request_ns),
            (
                "whole request to first byte of the answer",
                &totals.server_ns,
            ),
            ("answer, first to last byte", &totals.response_ns),
            ("all of it", &totals.call_ns),
        ] {
            rows.push(format!(
                "{name:<42} {:>9} {:>9} {:>9} {:>9} {:>9}",
                time(mean_ns(times)),
                time(times.value_at_quantile(0.5)),
                time(times.value_at_quantile(0.9)),
                time(times.value_at_quantile(0.99)),
                time(times.max())
            ));
        }
        rows
    }

    fn bursts(&self) -> String {
        let totals = &self.summary.totals;
        match totals.burst_calls.is_empty() {
            true => "bursts: calls came without a gap of 50 µs in between".to_owned(),
            false => format!(
                "bursts: {} between gaps of 50 µs and more, with {} calls (median; most {}) in {}",
                totals.burst_calls.len(),
                totals.burst_calls.value_at_quantile(0.5),
                totals.burst_calls.max(),
                time(totals.burst_ns.value_at_quantile(0.5))
            ),
        }
    }

    fn connection_rows(&self) -> Vec<String> {
        let mut rows = vec![format!(
            "{:<10} {:>10} {:>9} {:>6} {:>7} {:>9} {:>11} {:>11} {:>10}",
            "connection",
            "calls",
            "open",
            "most",
            "limit",
            "at limit",
            "to server",
            "to client",
            "calls/read"
        )];
        let connections = &self.summary.connections;
        for connection in connections.iter().take(SHOWN_ROWS) {
            rows.push(connection_row(&connection.index.to_string(), connection));
        }
        let left = connections.iter().skip(SHOWN_ROWS);
        let mut others = self.summary.others.clone();
        left.for_each(|connection| others.add(connection));
        if others.figures.calls > 0 {
            rows.push(connection_row(
                &format!("{} others", others.connections),
                &others,
            ));
        } else if others.connections > 0 {
            rows.push(format!("{} connections without a call", others.connections));
        }
        rows
    }

    fn method_rows(&self) -> Vec<String> {
        let mut methods: Vec<_> = self.summary.totals.methods.iter().collect();
        methods.sort_by_key(|method| std::cmp::Reverse(method.calls));
        let rows = methods.iter().take(SHOWN_ROWS).map(|method| {
            format!(
                "{}: {} calls, {} failed, server {} (median), {} (p99)",
                method.name,
                method.calls,
                method.failed,
                time(method.server_ns.value_at_quantile(0.5)),
                time(method.server_ns.value_at_quantile(0.99))
            )
        });
        let mut rows: Vec<String> = rows.collect();
        if methods.len() > SHOWN_ROWS {
            rows.push(format!("and {} other methods", methods.len() - SHOWN_ROWS));
        }
        rows
    }

    fn failures(&self) -> Vec<String> {
        let mut ends: Vec<(String, u64)> = Vec::new();
        for (end, &count) in &self.summary.totals.ends {
            match end {
                Some(end) if end.is_success() => {}
                Some(end) => ends.push((end.words(), count)),
                None => ends.push(("other ends".to_owned(), count)),
            }
        }
        ends.sort_by(|one, two| two.1.cmp(&one.1).then_with(|| one.0.cmp(&two.0)));
        let mut rows: Vec<String> = ends
            .iter()
            .take(SHOWN_ROWS)
            .map(|(end, count)| format!("failed with {end}: {count} calls"))
            .collect();
        let mut failed: Vec<_> = self.summary.failed.iter().collect();
        failed.sort();
        if self.summary.was_full {
            rows.push(format!(
                "{MAX_TAPPED_CONNECTIONS} connections were open at a time, as many as the tap \
                 relays: further ones waited"
            ));
        }
        rows.extend(failed.iter().map(|(reason, count)| {
            format!("connections that ended with an error: {count} ({reason})")
        }));
        rows
    }

    fn own_costs(&self) -> String {
        let summary = &self.summary;
        let calls = summary.totals.ended.max(1);
        let forward_ns = &summary.forward_ns;
        format!(
            "the tap itself: {} of CPU a call, its thread busy for {} of the time; from a read to \
             its write {} (median), {} (p99)",
            time(summary.own_cpu_ns / calls),
            percent(summary.own_cpu_ns as f64 / summary.wall_ns.max(1) as f64),
            time(forward_ns.value_at_quantile(0.5)),
            time(forward_ns.value_at_quantile(0.99))
        )
    }

    /// The same for programs.
    pub fn fields(&self) -> Map<String, Value> {
        let summary = &self.summary;
        let totals = &summary.totals;
        let figures = summary.figures();
        let mut fields = Map::new();
        let mut put = |name: &str, value: Value| {
            fields.insert(name.to_owned(), value);
        };
        put("verdict", json!(self.verdict.bottleneck.name()));
        put("sentence", json!(self.verdict.sentence));
        put("evidence_for", json!(self.verdict.evidence_for));
        put("evidence_against", json!(self.verdict.evidence_against));
        put(
            "machine",
            json!(self.machine.as_ref().map(LoadMachine::fields)),
        );
        put("listen", json!(self.listen.to_string()));
        put("target", json!(self.target.to_string()));
        put("seconds", json!(summary.wall_ns as f64 / 1e9));
        put("calls_begun", json!(totals.begun));
        put("calls_ended", json!(totals.ended));
        put("calls_not_followed", json!(totals.unwatched));
        put("mean_open", json!(figures.mean_open()));
        put("most_open", json!(figures.most_open));
        put("connect_us", json!(us(summary.connect_ns)));
        put("time", Value::Array(self.time_fields()));
        put("phases", Value::Array(self.phase_fields()));
        put(
            "bursts",
            json!({
                "count": totals.burst_calls.len(),
                "calls_median": totals.burst_calls.value_at_quantile(0.5),
                "time": quantiles_us(&totals.burst_ns),
            }),
        );
        put("connections", Value::Array(self.connection_fields()));
        put("methods", Value::Array(self.method_fields()));
        put("ends", Value::Array(self.end_fields()));
        let failed = summary.failed.iter();
        let failed = failed.map(|(reason, count)| json!({"reason": reason, "connections": count}));
        put("failed_connections", Value::Array(failed.collect()));
        put(
            "tap",
            json!({
                "cpu_us_per_call": us(summary.own_cpu_ns) / totals.ended.max(1) as f64,
                "busy": summary.own_cpu_ns as f64 / summary.wall_ns.max(1) as f64,
                "forward": quantiles_us(&summary.forward_ns),
            }),
        );
        fields
    }

    fn time_fields(&self) -> Vec<Value> {
        let times = self.summary.figures().times;
        let row = |time_use| {
            json!({
                "use": TimeUse::name(time_use),
                "seconds": times.ns(time_use) as f64 / 1e9,
                "share": times.share(&[time_use]),
                "gaps": self.summary.totals.gaps(time_use).map(quantiles_us),
            })
        };
        TimeUse::ALL.into_iter().map(row).collect()
    }

    fn phase_fields(&self) -> Vec<Value> {
        let totals = &self.summary.totals;
        let phases = [
            ("request", &totals.request_ns),
            ("server", &totals.server_ns),
            ("response", &totals.response_ns),
            ("all", &totals.call_ns),
        ];
        let row = |(phase, times)| json!({"phase": phase, "times": quantiles_us(times)});
        phases.into_iter().map(row).collect()
    }

    fn connection_fields(&self) -> Vec<Value> {
        let rows = self.summary.connections.iter().map(|connection| {
            let figures = &connection.figures;
            json!({
                "connection": connection.index,
                "calls": figures.calls,
                "mean_open": figures.mean_open(),
                "most_open": figures.most_open,
                "limit": figures.limit,
                "at_limit_share": at_limit_share(connection),
                "bytes_to_server": connection.bytes_to_server,
                "bytes_to_client": connection.bytes_to_client,
                "reads_from_client": connection.reads_from_client,
                "reads_from_server": connection.reads_from_server,
                "client_tcp": connection.client_tcp.map(tcp_fields),
                "server_tcp": connection.server_tcp.map(tcp_fields),
                "unreadable": connection.unreadable.map(|reason| reason.to_string()),
            })
        });
        rows.collect()
    }

    fn method_fields(&self) -> Vec<Value> {
        let rows = self.summary.totals.methods.iter().map(|method| {
            json!({
                "method": method.name,
                "calls": method.calls,
                "failed": method.failed,
                "server": quantiles_us(&method.server_ns),
                "request_bytes": method.request_bytes,
                "response_bytes": method.response_bytes,
            })
        });
        rows.collect()
    }

    fn end_fields(&self) -> Vec<Value> {
        let ends = self.summary.totals.ends.iter();
        let row = |(end, calls): (&Option<CallEnd>, &u64)| {
            let name = end.map_or_else(|| "other".to_owned(), CallEnd::words);
            json!({"end": name, "calls": calls})
        };
        ends.map(row).collect()
    }

    /// A picture of the last calls on each connection, as SVG.
    pub fn timeline_svg(&self) -> String {
        timeline::svg(&self.summary)
    }

    /// The report with its picture as one page of HTML that needs nothing else.
    pub fn timeline_html(&self) -> String {
        timeline::html(&self.verdict.sentence, &self.text(), &self.summary)
    }
}

fn connection_row(name: &str, connection: &ConnectionSummary) -> String {
    let figures = &connection.figures;
    let limit = figures
        .limit
        .map_or_else(|| "none".to_owned(), |limit| limit.to_string());
    let calls_per_read = figures.calls as f64 / connection.reads_from_client.max(1) as f64;
    format!(
        "{name:<10} {:>10} {:>9.1} {:>6} {limit:>7} {:>9} {:>11} {:>11} {calls_per_read:>10.2}",
        figures.calls,
        figures.mean_open(),
        figures.most_open,
        percent(at_limit_share(connection)),
        connection.bytes_to_server,
        connection.bytes_to_client,
    )
}

fn at_limit_share(connection: &ConnectionSummary) -> f64 {
    let total_ns = connection.figures.times.total_ns().max(1);
    connection.figures.at_limit_ns as f64 / total_ns as f64
}

fn tcp_fields(tcp: TcpOfSide) -> Value {
    json!({
        "segments_out": tcp.segments_out,
        "segments_in": tcp.segments_in,
        "retransmits": tcp.retransmits,
        "round_trip_us": tcp.round_trip_us,
    })
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

fn quantiles_us(times: &Histogram<u64>) -> Value {
    json!({
        "count": times.len(),
        "mean_us": times.mean() / 1e3,
        "p50_us": us(times.value_at_quantile(0.5)),
        "p90_us": us(times.value_at_quantile(0.9)),
        "p99_us": us(times.value_at_quantile(0.99)),
        "max_us": us(times.max()),
    })
}
