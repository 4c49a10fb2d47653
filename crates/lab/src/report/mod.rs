//! What a run has shown: as text for people, as CSV and JSON for programs.

mod kvstore;
mod little;
mod messages;
mod page;
mod ping;
mod rate_parts;
mod rows;
mod text;
mod void;

pub use kvstore::KvstoreReport;
pub use ping::PingTable;
pub(crate) use rows::{latency_head, row as latency_row};

use client::FramedProtocol;
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use crate::load_plan::LoadPlan;
use crate::machine::{LoadMachine, OnMachine};
use crate::pacing::Pace;
use crate::requirement::{RequiredFigures, Requirement, RequirementResult};
use crate::run::LoadOutcome;

/// The quantiles that are shown: their names and values.
const QUANTILES: [(&str, f64); 5] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p999", 0.999),
    ("p9999", 0.9999),
];

/// A run and what it means.
#[derive(Clone, Debug)]
pub struct Report {
    /// What was called, in words.
    what: String,
    plan: LoadPlan,
    outcome: LoadOutcome,
    records_per_call: u64,
    void: Vec<String>,
    noise: Option<String>,
    behind: Option<void::Behind>,
    required: Vec<RequirementResult>,
    machine: Option<LoadMachine>,
}

impl OnMachine for Report {
    fn set_machine(&mut self, machine: LoadMachine) {
        self.machine = Some(machine);
    }
}

impl Report {
    /// `what`: what was called, in words.
    pub fn new(
        what: String,
        plan: &LoadPlan,
        outcome: LoadOutcome,
        records_per_call: u64,
    ) -> Report {
        Report {
            void: void::reasons(plan, &outcome),
            noise: void::noise(plan, &outcome),
            behind: void::Behind::of(plan, &outcome),
            what,
            plan: plan.clone(),
            outcome,
            records_per_call,
            required: Vec::new(),
            machine: None,
        }
    }

    /// The same with what is required of the run.
    pub fn requiring(self, requirements: &[Requirement]) -> Report {
        let figures = RequiredFigures {
            latency_ns: &self.outcome.tally.latency_ns,
            calls_per_s: self.calls_per_s(),
            errors: self.errors(),
            error_share: self.error_share(),
        };
        let required = requirements.iter().map(|one| one.check(&figures)).collect();
        Report { required, ..self }
    }

    /// Whether the run has reached all that was required; `None`: nothing was.
    pub fn meets_requirements(&self) -> Option<bool> {
        let are_met = self.required.iter().all(RequirementResult::is_met);
        (!self.required.is_empty()).then_some(are_met)
    }

    /// Why the result must not be believed; empty: it may.
    pub fn void_reasons(&self) -> &[String] {
        &self.void
    }

    /// Whether the calls of an open loop ended more slowly than its rate asks for.
    pub fn is_behind(&self) -> bool {
        self.behind.is_some()
    }

    /// Whether a call failed.
    pub fn has_failures(&self) -> bool {
        self.errors() > 0
    }

    /// Calls that failed, did not end, or were never sent.
    fn errors(&self) -> u64 {
        let tally = &self.outcome.tally;
        let unfinished = tally.unfinished + tally.unfinished_before;
        tally.failures() + unfinished + tally.never_sent
    }

    /// Their share of all calls; `None`: there was no call.
    fn error_share(&self) -> Option<f64> {
        let errors = self.errors();
        per(errors as f64, errors + self.outcome.tally.succeeded)
    }

    /// What was counted.
    pub fn outcome(&self) -> &LoadOutcome {
        &self.outcome
    }

    /// The text for people. If the result is void, its first line says so.
    pub fn text(&self) -> String {
        text::text(self)
    }

    /// All figures under their names. Times are in microseconds. What was not measured is null.
    pub fn fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        self.add_load(&mut fields);
        self.add_calls(&mut fields);
        add_latencies(&mut fields, "", &self.outcome.tally.latency_ns);
        if self.is_open_loop() {
            add_latencies(
                &mut fields,
                "uncorrected_",
                &self.outcome.tally.uncorrected_ns,
            );
            add_latencies(&mut fields, "lag_", &self.outcome.tally.lag_ns);
            let none = crate::measure::histogram();
            let stalls = self.outcome.stalls.as_ref();
            let stalls = stalls.map_or(&none, |stalls| &stalls.late_ns);
            add_latencies(&mut fields, "stall_", stalls);
        }
        if let Some(streams) = &self.outcome.tally.streams {
            messages::add(self, streams, &mut fields);
        }
        fields.extend(object([("rate_parts", rate_parts::value(self))]));
        self.add_costs(&mut fields);
        little::add(self, &mut fields);
        self.add_requirements(&mut fields);
        if let Some(machine) = &self.machine {
            fields.extend(object([("machine", machine.fields().into())]));
        }
        fields
    }

    /// A line of names and a line of figures (RFC 4180), each with its line end.
    pub fn csv(&self) -> String {
        csv_lines(&self.fields())
    }

    /// [`Report::text`] without the lines that say why the result is void, and the machine.
    fn text_of_load(&self) -> String {
        text::text_of_load(self)
    }

    fn machine_lines(&self) -> impl Iterator<Item = String> + '_ {
        self.machine.iter().flat_map(LoadMachine::lines)
    }

    pub(crate) fn is_open_loop(&self) -> bool {
        self.plan.worker.pace != Pace::Closed
    }

    /// Calls that ended, whether they succeeded or failed, each second of the measured time.
    fn calls_per_s(&self) -> f64 {
        self.per_s(self.outcome.tally.ended_in_window)
    }

    /// Records of calls that succeeded, each second of the measured time: of a call that failed
    /// nobody knows how many of them had an effect.
    fn records_per_s(&self) -> f64 {
        let tally = &self.outcome.tally;
        let calls = tally.ended_in_window.saturating_sub(tally.failures());
        self.per_s(calls) * self.records_per_call as f64
    }

    /// So many in the measured time, each second of it.
    fn per_s(&self, count: u64) -> f64 {
        per(count as f64 * 1e9, self.outcome.elapsed_ns).unwrap_or(0.0)
    }

    fn own_us(&self) -> Option<f64> {
        per(
            self.outcome.own_cpu_ns as f64 / 1e3,
            self.outcome.tally.ended_in_window,
        )
    }

    fn server_us(&self) -> Option<f64> {
        let server_ns = self.outcome.server_cpu_ns?;
        per(server_ns as f64 / 1e3, self.outcome.tally.ended_in_window)
    }

    /// Calls that were under way on average: the sum of their times by the measured time (Little's
    /// law). Those that failed or never ended are not known by their times.
    fn mean_in_flight(&self) -> Option<f64> {
        per(
            call_ns(&self.outcome.tally.uncorrected_ns),
            self.outcome.elapsed_ns,
        )
    }

    /// How long calls have waited between when they were due and when they were sent, summed up:
    /// for a free place, and for the generator.
    fn unsent_wait_s(&self) -> f64 {
        let tally = &self.outcome.tally;
        let wait_ns = call_ns(&tally.latency_ns) - call_ns(&tally.uncorrected_ns);
        wait_ns.max(0.0) / 1e9
    }

    fn calls_per_system_call(&self) -> Option<f64> {
        let counters = &self.outcome.counters;
        let system_calls = counters.reads + counters.writes + counters.waits;
        per(
            counters.ended.max(self.outcome.tally.succeeded) as f64,
            system_calls,
        )
    }

    fn add_load(&self, fields: &mut Map<String, Value>) {
        let worker = &self.plan.worker;
        let (rate, arrivals) = match worker.pace {
            Pace::Closed => (Value::Null, Value::Null),
            Pace::Open { arrivals, .. } | Pace::Varying { arrivals, .. } => (
                worker.pace.mean_rate().into(),
                format!("{arrivals:?}").to_lowercase().into(),
            ),
        };
        let reached = match self.is_open_loop() {
            true => self.behind.is_none().into(),
            false => Value::Null,
        };
        let open = if self.is_open_loop() {
            "open"
        } else {
            "closed"
        };
        fields.extend(object([
            ("void", (!self.void.is_empty()).into()),
            ("void_reasons", self.void.join("; ").into()),
            ("noise", json!(self.noise)),
            ("address", self.plan.address.to_string().into()),
            ("protocol", protocol_name(&self.plan).into()),
            ("what", self.what.as_str().into()),
            ("mode", format!("{:?}", worker.mode).to_lowercase().into()),
            ("loop", open.into()),
            ("rate", rate),
            ("rate_profile", rate_parts::profile(&worker.pace)),
            ("rate_reached", reached),
            (
                "behind_since_s",
                (self.behind.as_ref()).map_or(Value::Null, |behind| rounded(behind.since_s)),
            ),
            ("arrivals", arrivals),
            ("threads", self.plan.threads.into()),
            ("connections", self.plan.connections.into()),
            ("in_flight", worker.in_flight.into()),
            ("seed", worker.seed.into()),
            ("elapsed_s", seconds(self.outcome.elapsed_ns).into()),
            ("stopped_early", self.outcome.was_stopped.into()),
        ]));
    }

    fn add_calls(&self, fields: &mut Map<String, Value>) {
        let tally = &self.outcome.tally;
        let failed: Vec<String> = tally
            .failed
            .iter()
            .map(|(kind, times)| format!("{kind}: {times}"))
            .collect();
        fields.extend(object([
            ("calls", (tally.succeeded + tally.failures()).into()),
            ("calls_per_s", rounded(self.calls_per_s())),
            ("records_per_s", rounded(self.records_per_s())),
            ("succeeded", tally.succeeded.into()),
            ("misses", tally.misses.into()),
            ("failures", tally.failures().into()),
            ("failures_by_kind", failed.join("; ").into()),
            ("first_failure", json!(tally.first_failure)),
            ("unfinished", tally.unfinished.into()),
            ("begun_in_warm_up", tally.begun_before.into()),
            ("unfinished_of_warm_up", tally.unfinished_before.into()),
            (
                "oldest_unfinished_us",
                (tally.oldest_unfinished_ns / 1_000).into(),
            ),
            ("due", tally.due.into()),
            ("waited_for_a_place", tally.waited.into()),
            ("never_sent", tally.never_sent.into()),
            ("refused", tally.refused.into()),
            ("reconnects", tally.reconnects.into()),
        ]));
    }

    fn add_requirements(&self, fields: &mut Map<String, Value>) {
        let results: Vec<String> = self.required.iter().map(ToString::to_string).collect();
        let results = match results.is_empty() {
            true => Value::Null,
            false => results.join("; ").into(),
        };
        fields.extend(object([
            ("requirements", results),
            ("requirements_met", json!(self.meets_requirements())),
        ]));
    }

    fn add_costs(&self, fields: &mut Map<String, Value>) {
        let counters = &self.outcome.counters;
        let tcp = self.outcome.tcp;
        let per_call = |count: Option<u64>| {
            let each = count.and_then(|count| per(count as f64, self.outcome.tally.ended));
            each.map_or(Value::Null, rounded)
        };
        let optional = |value: Option<f64>| value.map_or(Value::Null, rounded);
        fields.extend(object([
            ("own_us", optional(self.own_us())),
            ("server_us", optional(self.server_us())),
            (
                "busiest_thread_percent",
                optional(self.outcome.busiest_percent),
            ),
            (
                "calls_per_system_call",
                optional(self.calls_per_system_call()),
            ),
            ("mean_in_flight", optional(self.mean_in_flight())),
            ("unsent_wait_s", rounded(self.unsent_wait_s())),
            ("socket_wait_s", rounded(seconds(counters.socket_wait_ns))),
            ("window_wait_s", rounded(seconds(counters.window_wait_ns))),
            ("connections_dialed", counters.dials.into()),
            ("bytes_out", counters.bytes_out.into()),
            ("bytes_in", counters.bytes_in.into()),
            ("bytes_out_per_call", per_call(Some(counters.bytes_out))),
            ("bytes_in_per_call", per_call(Some(counters.bytes_in))),
            (
                "segments_out_per_call",
                per_call(tcp.map(|tcp| tcp.segments_out)),
            ),
            (
                "segments_in_per_call",
                per_call(tcp.map(|tcp| tcp.segments_in)),
            ),
            (
                "retransmits",
                tcp.map_or(Value::Null, |tcp| tcp.retransmits.into()),
            ),
        ]));
    }
}

/// What a plan's calls are made over.
fn protocol_name(plan: &LoadPlan) -> &'static str {
    match plan.framed {
        None => "grpc",
        Some(FramedProtocol::BaiduStd) => "baidu_std",
        Some(FramedProtocol::Srpc) => "srpc",
    }
}

/// Rows of a latency: its quantiles, its mean and its maximum.
fn add_latencies(fields: &mut Map<String, Value>, prefix: &str, histogram: &Histogram<u64>) {
    for (name, quantile) in QUANTILES {
        let value = quantile_us(histogram, quantile);
        fields.insert(
            format!("{prefix}{name}_us"),
            value.map_or(Value::Null, rounded),
        );
    }
    let has_any = !histogram.is_empty();
    let mean = has_any.then(|| histogram.mean() / 1e3);
    let max = has_any.then(|| histogram.max() as f64 / 1e3);
    fields.insert(
        format!("{prefix}mean_us"),
        mean.map_or(Value::Null, rounded),
    );
    fields.insert(format!("{prefix}max_us"), max.map_or(Value::Null, rounded));
}

/// The same for a histogram that stands alone, with its name and how many values it has.
pub(crate) fn latency_fields(name: &str, histogram: &Histogram<u64>) -> Map<String, Value> {
    let mut fields = object([
        ("histogram", name.into()),
        ("values", histogram.len().into()),
    ]);
    add_latencies(&mut fields, "", histogram);
    fields
}

/// The sum of what was recorded, as precisely as a histogram knows it.
fn call_ns(histogram: &Histogram<u64>) -> f64 {
    histogram.mean() * histogram.len() as f64
}

/// `None` if nothing was recorded.
fn quantile_us(histogram: &Histogram<u64>, quantile: f64) -> Option<f64> {
    (!histogram.is_empty()).then(|| histogram.value_at_quantile(quantile) as f64 / 1e3)
}

/// A share, `None` if there is nothing to share it among.
fn per(amount: f64, count: u64) -> Option<f64> {
    (count > 0).then(|| amount / count as f64)
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// To a thousandth: more digits would be noise.
fn rounded(value: f64) -> Value {
    ((value * 1e3).round() / 1e3).into()
}

fn object<const COUNT: usize>(fields: [(&str, Value); COUNT]) -> Map<String, Value> {
    fields
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// A line of names and a line of figures.
fn csv_lines(fields: &Map<String, Value>) -> String {
    let names: Vec<String> = fields.keys().map(|name| csv_cell(name)).collect();
    let values: Vec<String> = fields
        .values()
        .map(|value| match value {
            Value::Null => String::new(),
            Value::String(text) => csv_cell(text),
            other => csv_cell(&other.to_string()),
        })
        .collect();
    format!("{}\n{}\n", names.join(","), values.join(","))
}

fn csv_cell(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
pub(crate) mod tests;
