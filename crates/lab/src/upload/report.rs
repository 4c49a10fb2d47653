//! What uploads have shown, for people and for programs.

use serde_json::{Map, Value, json};

use super::run::{UploadPlan, UploadRunOutcome};
use super::transfer::UploadTimes;
use crate::sweep::Spread;

const MIB: f64 = 1_048_576.0;
const GIB: f64 = 1_073_741_824.0;

/// What uploads have shown.
#[derive(Clone, Debug)]
pub struct UploadReport {
    plan: UploadPlan,
    outcome: UploadRunOutcome,
    sent_ns: Spread,
    answered_ns: Spread,
}

impl UploadReport {
    /// `None`: no upload has succeeded.
    pub fn new(plan: UploadPlan, outcome: UploadRunOutcome) -> Option<UploadReport> {
        let of = |time: fn(&UploadTimes) -> u64| {
            Spread::of(outcome.uploads.iter().map(|times| time(times) as f64))
        };
        Some(UploadReport {
            sent_ns: of(|times| times.sent_ns)?,
            answered_ns: of(|times| times.answered_ns)?,
            plan,
            outcome,
        })
    }

    /// Lines for people.
    pub fn text(&self) -> String {
        let plan = &self.plan;
        let tls = if plan.channel.tls.is_some() {
            " and TLS"
        } else {
            ""
        };
        let mut lines = vec![format!(
            "gupload on {}: {} over {}{tls}, {:.1} MiB in chunks of {} bytes, {} before that",
            plan.address,
            counted(self.outcome.uploads.len()),
            plan.way.words(),
            plan.file_bytes as f64 / MIB,
            plan.chunk_bytes,
            counted(plan.warm_up),
        )];
        if let Some(failure) = &self.outcome.failure {
            lines.push(format!("a further upload failed: {failure}"));
        }
        lines.push(format!("to the last send: {}", times(&self.sent_ns)));
        lines.push(format!("to the answer:    {}", times(&self.answered_ns)));
        lines.push(format!(
            "throughput: {:.1} MB/s to the answer",
            self.mb_per_s()
        ));
        let own = self.cpu(Some(self.outcome.own_cpu_ns));
        let server = self.cpu(self.outcome.server_cpu_ns);
        for (name, cpu) in [("client", own), ("server", server)] {
            if let Some((percent, s_per_gib)) = cpu {
                lines.push(format!(
                    "CPU of the {name}: {percent:.0} % of one, {s_per_gib:.3} s for each GiB"
                ));
            }
        }
        lines.join("\n")
    }

    /// A line of names, and one of figures.
    pub fn csv(&self) -> String {
        let fields = self.fields();
        let is_single = |value: &Value| !value.is_array();
        let single = fields.iter().filter(|(_, value)| is_single(value));
        let (names, figures): (Vec<&str>, Vec<String>) = single
            .map(|(name, value)| (name.as_str(), cell(value)))
            .unzip();
        format!("{}\n{}", names.join(","), figures.join(","))
    }

    /// All of it under names.
    pub fn fields(&self) -> Map<String, Value> {
        let (plan, outcome) = (&self.plan, &self.outcome);
        let all = |time: fn(&UploadTimes) -> u64| -> Value {
            outcome.uploads.iter().map(time).map(Value::from).collect()
        };
        let own = self.cpu(Some(outcome.own_cpu_ns));
        let server = self.cpu(outcome.server_cpu_ns);
        let failure = outcome.failure.as_ref();
        let fields = json!({
            "way": plan.way.name(),
            "tls": plan.channel.tls.is_some(),
            "file_bytes": plan.file_bytes,
            "chunk_bytes": plan.chunk_bytes,
            "calls": outcome.uploads.len(),
            "failures": u8::from(failure.is_some()),
            "first_failure": failure.map(ToString::to_string),
            "sent_ns": all(|times| times.sent_ns),
            "answered_ns": all(|times| times.answered_ns),
            "sent_ms": self.sent_ns.median / 1e6,
            "answered_ms": self.answered_ns.median / 1e6,
            "mb_per_s": self.mb_per_s(),
            "own_cpu_percent": own.map(|(percent, _)| percent),
            "own_s_per_gib": own.map(|(_, s_per_gib)| s_per_gib),
            "server_cpu_percent": server.map(|(percent, _)| percent),
            "server_s_per_gib": server.map(|(_, s_per_gib)| s_per_gib),
        });
        match fields {
            Value::Object(fields) => fields,
            _ => Map::new(),
        }
    }

    /// Whether an upload has failed.
    pub fn has_failure(&self) -> bool {
        self.outcome.failure.is_some()
    }

    /// Whether it was interrupted.
    pub fn was_stopped(&self) -> bool {
        self.outcome.was_stopped
    }

    fn mb_per_s(&self) -> f64 {
        self.plan.file_bytes as f64 * 1e3 / self.answered_ns.median.max(1.0)
    }

    /// CPU time of a process as a share of one CPU, in percent, and in seconds for each GiB.
    fn cpu(&self, cpu_ns: Option<u64>) -> Option<(f64, f64)> {
        let cpu_ns = cpu_ns? as f64;
        let times = self.outcome.uploads.iter();
        let elapsed_ns: u64 = times.map(|times| times.answered_ns).sum();
        let gib = (self.plan.file_bytes * self.outcome.uploads.len()) as f64 / GIB;
        Some((
            cpu_ns * 100.0 / (elapsed_ns as f64).max(1.0),
            cpu_ns / 1e9 / gib,
        ))
    }
}

fn counted(uploads: usize) -> String {
    match uploads {
        1 => "1 upload".into(),
        uploads => format!("{uploads} uploads"),
    }
}

fn times(spread: &Spread) -> String {
    format!(
        "median {:.3} ms ({:.3}–{:.3})",
        spread.median / 1e6,
        spread.least / 1e6,
        spread.most / 1e6
    )
}

/// A cell of CSV: empty where there is no figure; texts without what would end the cell.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.replace([',', '"', '\n', '\r'], " "),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use client::ChannelOptions;

    use super::super::transfer::{UploadFailure, UploadWay};
    use super::*;

    fn report(failure: Option<UploadFailure>) -> UploadReport {
        let plan = UploadPlan {
            address: "127.0.0.1:1978".parse().expect("an address"),
            channel: ChannelOptions::default(),
            way: UploadWay::GrpcGzip,
            file_bytes: 16 << 20,
            chunk_bytes: 1_024,
            warm_up: 1,
            uploads: 3,
            deadline: Duration::from_secs(1),
            server_process: Some(1),
        };
        let uploads = [10, 30, 20].map(|ms| UploadTimes {
            sent_ns: ms * 900_000,
            answered_ns: ms * 1_000_000,
        });
        let outcome = UploadRunOutcome {
            uploads: uploads.to_vec(),
            failure,
            was_stopped: false,
            own_cpu_ns: 30_000_000,
            server_cpu_ns: Some(54_000_000),
        };
        UploadReport::new(plan, outcome).expect("three uploads")
    }

    #[test]
    fn the_text_has_both_clocks_and_the_cpu_of_both() {
        let text = report(None).text();
        let expected = [
            "gupload on 127.0.0.1:1978: 3 uploads over gRPC with gzip, 16.0 MiB in chunks of 1024 \
             bytes, 1 upload before that",
            "to the last send: median 18.000 ms (9.000–27.000)",
            "to the answer:    median 20.000 ms (10.000–30.000)",
            "throughput: 838.9 MB/s to the answer",
            "CPU of the client: 50 % of one, 0.640 s for each GiB",
            "CPU of the server: 90 % of one, 1.152 s for each GiB",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
        let failed = report(Some(UploadFailure::AnsweredEarly));
        assert!(failed.has_failure());
        let text = failed.text();
        let line = "\na further upload failed: the server answered before";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn programs_get_every_upload_and_the_medians() {
        let fields = report(None).fields();
        assert_eq!(
            fields["answered_ns"],
            json!([10_000_000, 30_000_000, 20_000_000])
        );
        assert_eq!(fields["sent_ns"][1], 27_000_000);
        assert_eq!(
            (&fields["calls"], &fields["failures"]),
            (&json!(3), &json!(0))
        );
        assert_eq!(fields["answered_ms"], 20.0);
        assert_eq!(fields["first_failure"], Value::Null);
        let failed = report(Some(UploadFailure::NoSuccess("a, \"b\"".into())));
        assert_eq!(failed.fields()["failures"], 1);
        let csv = failed.csv();
        let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].len(), lines[1].len());
        assert!(!csv.contains("answered_ns"), "{csv}");
    }

    #[test]
    fn without_an_upload_there_is_no_report() {
        let plan = report(None).plan;
        assert!(UploadReport::new(plan, UploadRunOutcome::default()).is_none());
    }
}
