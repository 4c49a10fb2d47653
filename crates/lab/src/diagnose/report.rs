//! A diagnosis for people and for programs.

mod page;

use serde_json::{Map, Value, json};

use super::agent_presence::AgentPresence;
use super::diagnosis::{Conclusion, Diagnosis, percent, process_words, rate, times};
use super::evidence::{
    ClientEvidence, ClientRun, CompressionUse, LoadEvidence, LoadPoint, ProcessUse,
};
use crate::machine::{LoadMachine, OnMachine};
use crate::tap::time;

/// What was measured.
#[derive(Clone, Debug)]
enum ReportedEvidence {
    Load(Box<LoadEvidence>),
    Client(Box<ClientEvidence>),
}

/// A diagnosis with what was measured for it.
#[derive(Clone, Debug)]
pub struct DiagnosisReport {
    subject: String,
    machine: Option<LoadMachine>,
    diagnosis: Diagnosis,
    evidence: ReportedEvidence,
}

impl OnMachine for DiagnosisReport {
    fn set_machine(&mut self, machine: LoadMachine) {
        self.machine = Some(machine);
    }
}

impl DiagnosisReport {
    /// By our own generator. `subject`: what was called, and where.
    pub fn of_load(
        subject: String,
        diagnosis: Diagnosis,
        evidence: LoadEvidence,
    ) -> DiagnosisReport {
        DiagnosisReport {
            subject,
            machine: None,
            diagnosis,
            evidence: ReportedEvidence::Load(Box::new(evidence)),
        }
    }

    /// By the user's client.
    pub fn of_client(
        subject: String,
        diagnosis: Diagnosis,
        evidence: ClientEvidence,
    ) -> DiagnosisReport {
        DiagnosisReport {
            subject,
            machine: None,
            diagnosis,
            evidence: ReportedEvidence::Client(Box::new(evidence)),
        }
    }

    /// What was decided.
    pub fn diagnosis(&self) -> &Diagnosis {
        &self.diagnosis
    }

    /// Whether anything was measured at all.
    pub fn has_evidence(&self) -> bool {
        match &self.evidence {
            ReportedEvidence::Load(load) => load.one.iter().any(|point| point.succeeded > 0),
            ReportedEvidence::Client(client) => client.plain.problem.is_none(),
        }
    }

    /// Lines for people; the first one is the sentence.
    pub fn text(&self) -> String {
        let it = &self.diagnosis;
        let mut lines = vec![it.sentence.clone()];
        for (word, texts) in [
            ("for", &it.evidence_for),
            ("against", &it.evidence_against),
            ("needs", &it.needs),
        ] {
            lines.extend(texts.iter().map(|text| format!("  {word}: {text}")));
        }
        if let Some(change) = &it.change {
            let gain = |ratio: Option<f64>, word: &str| {
                ratio.map_or_else(String::new, |ratio| format!("; {word} {}", times(ratio)))
            };
            lines.push(format!(
                "  change: {}{}{}",
                change.text,
                gain(change.predicted, "predicted"),
                gain(change.measured, "measured")
            ));
        }
        lines.extend(self.machine.iter().flat_map(LoadMachine::lines));
        lines.push(self.subject.clone());
        match &self.evidence {
            ReportedEvidence::Load(load) => lines.extend(load_rows(load)),
            ReportedEvidence::Client(client) => lines.extend(client_rows(client)),
        }
        lines.join("\n")
    }

    /// The same for programs.
    pub fn fields(&self) -> Map<String, Value> {
        let it = &self.diagnosis;
        let verdict = match it.conclusion {
            Conclusion::Named(_) => "named",
            Conclusion::NoLimit => "no limit found",
            Conclusion::Undecided => "undecided",
        };
        let causes: Vec<&str> = it.causes().iter().map(|cause| cause.name()).collect();
        let change = it.change.as_ref().map(|change| {
            json!({
                "text": change.text,
                "predicted_gain": change.predicted,
                "measured_gain": change.measured,
            })
        });
        let mut fields = Map::new();
        let mut put = |name: &str, value: Value| {
            fields.insert(name.to_owned(), value);
        };
        put("verdict", json!(verdict));
        put("causes", json!(causes));
        put("sentence", json!(it.sentence));
        put("evidence_for", json!(it.evidence_for));
        put("evidence_against", json!(it.evidence_against));
        put("needs", json!(it.needs));
        put("change", json!(change));
        put(
            "machine",
            json!(self.machine.as_ref().map(LoadMachine::fields)),
        );
        put("subject", json!(self.subject));
        match &self.evidence {
            ReportedEvidence::Load(load) => {
                put("agent", agent_fields(load.agent.as_ref()));
                put("experiments", load_points(load).map(point_fields).collect());
            }
            ReportedEvidence::Client(client) => {
                put("agent", agent_fields(client.agent.as_ref()));
                let fields = |run| run_fields(client, run);
                put("runs", client_runs(client).map(fields).collect());
            }
        }
        fields
    }
}

fn agent_fields(agent: Option<&AgentPresence>) -> Value {
    let fields = |agent: &AgentPresence| {
        let loss = agent.loss.as_ref();
        json!({
            "address": agent.address,
            "lost_after_s": loss.map(|loss| loss.after.as_secs_f64()),
        })
    };
    json!(agent.map(fields))
}

fn load_points(load: &LoadEvidence) -> impl Iterator<Item = &LoadPoint> {
    let compared = [
        &load.spread,
        &load.again,
        &load.alone,
        &load.larger,
        &load.uncompressed,
        &load.batched,
    ];
    load.one.iter().chain(compared.into_iter().flatten())
}

fn load_rows(load: &LoadEvidence) -> Vec<String> {
    let mut rows = vec![format!(
        "{:>11} {:>9} {:>10} {:>9} {:>9} {:>9} {:>7} {:>8} {:>8}",
        "connections", "in flight", "calls", "mean", "p50", "p99", "failed", "server", "in sync"
    )];
    for point in load_points(load) {
        let server = point.server.as_ref();
        let unknown = || "-".to_owned();
        let different = match (point.padding_bytes, point.records_per_call) {
            (0, 0..=1) if !point.accepts_gzip => "  nothing compressed".to_owned(),
            (0, 0..=1) => String::new(),
            (0, operations) => format!("  {operations} operations in each"),
            (bytes, _) => format!("  requests {bytes} B larger"),
        };
        rows.push(format!(
            "{:>11} {:>9} {:>10} {:>9} {:>9} {:>9} {:>7} {:>8} {:>8}{different}",
            point.connections,
            point.in_flight,
            rate(point.rate),
            time(point.mean_ns),
            time(point.p50_ns),
            time(point.p99_ns),
            point.failed,
            server.map_or_else(unknown, |one| format!("{:.2} CPU", one.cpus)),
            server
                .and_then(|one| one.in_sync)
                .map_or_else(unknown, percent),
        ));
    }
    rows
}

fn client_runs(client: &ClientEvidence) -> impl Iterator<Item = &ClientRun> {
    let others = [
        &client.halved,
        &client.delayed,
        &client.pinned,
        &client.again,
        &client.single,
    ];
    [&client.plain]
        .into_iter()
        .chain(others.into_iter().flatten())
}

fn is_pinned(client: &ClientEvidence, run: &ClientRun) -> bool {
    let pinned = client.pinned.as_ref();
    pinned.is_some_and(|pinned| std::ptr::eq(pinned, run))
}

fn conditions_of(client: &ClientEvidence, run: &ClientRun) -> String {
    match (run.stream_limit_made, run.delay_ns) {
        (Some(limit), _) => format!("at most {limit} open"),
        (None, 0) if is_pinned(client, run) => "on one CPU".to_owned(),
        (None, 0) => "as it is".to_owned(),
        (None, delay_ns) => format!("{} of delay", time(delay_ns)),
    }
}

fn client_rows(client: &ClientEvidence) -> Vec<String> {
    let mut rows = vec![format!(
        "{:<24} {:>10} {:>8} {:>6} {:>9} {:>9} {:>7} {:>7}",
        "client's run", "calls", "open", "most", "server", "call", "client", "server"
    )];
    rows.extend(client_runs(client).map(|run| {
        let conditions = conditions_of(client, run);
        format!(
            "{conditions:<24} {:>10} {:>8.1} {:>6} {:>9} {:>9} {:>7} {:>7}",
            rate(run.rate),
            run.mean_open,
            run.most_open,
            time(run.server_ns),
            time(run.call_ns),
            percent(run.client_share),
            percent(run.server_share)
        )
    }));
    let processes = [
        ("client", &client.plain.client),
        ("server", &client.plain.server),
    ];
    let words = |(who, process): (&str, &Option<ProcessUse>)| {
        process.as_ref().map(|process| process_words(who, process))
    };
    rows.extend(processes.into_iter().filter_map(words));
    rows
}

fn point_fields(point: &LoadPoint) -> Value {
    json!({
        "connections": point.connections,
        "in_flight": point.in_flight,
        "padding_bytes": point.padding_bytes,
        "accepts_gzip": point.accepts_gzip,
        "records_per_call": point.records_per_call,
        "calls_per_s": point.rate,
        "bytes_sent_per_s": point.bytes_per_s.0,
        "bytes_received_per_s": point.bytes_per_s.1,
        "segments_sent_per_s": point.segments_per_s.map(|(sent, _)| sent),
        "segments_received_per_s": point.segments_per_s.map(|(_, received)| received),
        "mean_us": point.mean_ns as f64 / 1e3,
        "p50_us": point.p50_ns as f64 / 1e3,
        "p99_us": point.p99_ns as f64 / 1e3,
        "succeeded": point.succeeded,
        "failed": point.failed,
        "generator_busy": point.generator_busy,
        "window_wait": point.window_wait,
        "stream_limit": point.stream_limit,
        "server": point.server.as_ref().map(process_fields),
        "steal": point.machine.map(|machine| machine.steal),
        "idle": point.machine.map(|machine| machine.idle),
    })
}

fn run_fields(client: &ClientEvidence, run: &ClientRun) -> Value {
    json!({
        "on_one_cpu": is_pinned(client, run),
        "stream_limit_made": run.stream_limit_made,
        "delay_us": run.delay_ns as f64 / 1e3,
        "calls_per_s": run.rate,
        "calls_ended": run.ended,
        "calls_failed": run.failed,
        "connections": run.connections,
        "mean_open": run.mean_open,
        "most_open": run.most_open,
        "limit": run.limit,
        "at_limit_share": run.at_limit,
        "client_share": run.client_share,
        "server_share": run.server_share,
        "window_share": run.window_share(),
        "server_window_share": run.server_window_share,
        "client_window_share": run.client_window_share,
        "server_p50_us": run.server_ns as f64 / 1e3,
        "server_mean_us": run.server_mean_ns as f64 / 1e3,
        "call_p50_us": run.call_ns as f64 / 1e3,
        "tap_busy": run.tap_busy,
        "compressed_requests": run.compressed_requests.as_ref().map(compression_fields),
        "compressed_responses": run.compressed_responses.as_ref().map(compression_fields),
        "client": run.client.as_ref().map(process_fields),
        "server": run.server.as_ref().map(process_fields),
        "steal": run.machine.map(|machine| machine.steal),
        "idle": run.machine.map(|machine| machine.idle),
    })
}

fn compression_fields(compression: &CompressionUse) -> Value {
    json!({
        "messages_per_s": compression.messages_per_s,
        "ratio": compression.ratio,
        "compress_cpus": compression.compress_cpus,
        "decompress_cpus": compression.decompress_cpus,
    })
}

fn process_fields(process: &ProcessUse) -> Value {
    let busiest = process.busiest.as_ref();
    json!({
        "cpus": process.cpus,
        "waited_for_cpus": process.waited_for_cpus,
        "busiest_thread": busiest.map(|thread| thread.name.clone()),
        "busiest_thread_busy": busiest.map(|thread| thread.busy),
        "in_sync": process.in_sync,
        "quota_cpus": process.quota_cpus,
        "throttled": process.throttled,
        "migrations_per_s": process.migrations_per_s,
    })
}
