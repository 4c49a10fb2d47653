//! What is shown of a server: two samples, and what happened between them.

use serde_json::{Map, Value, json};

use super::sample::{DatabaseSample, MethodCalls, TopSample};
use crate::output::counted;
use crate::size::Size;

/// Two samples of a server.
pub(super) struct TopView<'a> {
    address: &'a str,
    before: &'a TopSample,
    now: &'a TopSample,
}

/// A method, with what happened to it between the samples.
struct MethodRow<'a> {
    name: &'a str,
    per_s: f64,
    failed_per_s: f64,
    all: u64,
}

impl<'a> TopView<'a> {
    /// `before` comes before `now`.
    pub(super) fn new(address: &'a str, before: &'a TopSample, now: &'a TopSample) -> TopView<'a> {
        TopView {
            address,
            before,
            now,
        }
    }

    pub(super) fn address(&self) -> &str {
        self.address
    }

    /// How long it was between the samples.
    pub(super) fn seconds(&self) -> f64 {
        self.now
            .at
            .saturating_duration_since(self.before.at)
            .as_secs_f64()
    }

    pub(super) fn round_trip_us(&self) -> f64 {
        self.now.round_trip.as_nanos() as f64 / 1e3
    }

    /// A count for each second; zero where the server has begun anew.
    fn per_s(&self, before: u64, now: u64) -> f64 {
        let seconds = self.seconds();
        match seconds > 0.0 {
            true => now.saturating_sub(before) as f64 / seconds,
            false => 0.0,
        }
    }

    /// The busiest method first.
    fn method_rows(&self) -> Vec<MethodRow<'_>> {
        let mut rows: Vec<MethodRow<'_>> = Vec::new();
        for (name, calls) in &self.now.methods {
            let none = MethodCalls::default();
            let before = self.before.methods.get(name).unwrap_or(&none);
            rows.push(MethodRow {
                name,
                per_s: self.per_s(before.all, calls.all),
                failed_per_s: self.per_s(before.failed, calls.failed),
                all: calls.all,
            });
        }
        rows.sort_by(|a, b| b.per_s.total_cmp(&a.per_s).then(b.all.cmp(&a.all)));
        rows
    }

    /// Lines for so many rows and columns.
    pub(super) fn lines(&self, rows: usize, columns: usize) -> Vec<String> {
        let mut lines = self.head();
        let methods = self.method_rows();
        let databases = &self.now.databases;
        // Two headings, and an empty line before each; at least one row of either.
        let room = rows.saturating_sub(lines.len() + 4);
        let for_methods = methods
            .len()
            .min(room - databases.len().min(room / 2))
            .max(1);
        // A line says how many are left out.
        let for_databases = databases
            .len()
            .min(room.saturating_sub(for_methods + 1).max(1));
        lines.push(String::new());
        lines.push(format!(
            "{:>11} {:>10} {:>14}  METHOD",
            "CALLS/S", "ERRORS/S", "CALLS"
        ));
        lines.extend(methods.iter().take(for_methods).map(method_line));
        lines.push(String::new());
        lines.push(format!(
            "{:>12} {:>10} {:>10} {:>12} {:>22}  DATABASE",
            "ENTRIES", "MEMORY", "DISK", "COMMITS/S", "BLOBS"
        ));
        let shown = databases.iter().take(for_databases);
        lines.extend(shown.map(|database| self.database_line(database)));
        if databases.len() > for_databases {
            lines.push(format!("and {} more", databases.len() - for_databases));
        }
        for line in &mut lines {
            if line.chars().count() > columns {
                *line = line
                    .chars()
                    .take(columns.saturating_sub(1))
                    .chain(['…'])
                    .collect();
            }
        }
        lines.truncate(rows);
        lines
    }

    fn head(&self) -> Vec<String> {
        let now = self.now;
        let rows = self.method_rows();
        let all: f64 = rows.iter().map(|row| row.per_s).sum();
        let failed: f64 = rows.iter().map(|row| row.failed_per_s).sum();
        let mut lines = vec![
            format!(
                "{} at {}: up {}; round trip {:.0} µs",
                now.server,
                self.address,
                up(now.uptime_ms),
                self.round_trip_us()
            ),
            format!(
                "calls: {}/s, {}/s with an error, {} running; {}",
                rate(all),
                rate(failed),
                now.running_calls,
                counted(now.open_connections, "connection", "connections")
            ),
            format!(
                "memory: {} of {}; buffers: {} of {}",
                Size::rounded(now.memory.0),
                Size::rounded(now.memory.1),
                Size::rounded(now.buffered.0),
                Size::rounded(now.buffered.1)
            ),
        ];
        lines.extend(self.log_line());
        lines.extend(self.replica_line());
        if now.followers > 0 {
            let followers = counted(now.followers, "server follows", "servers follow");
            lines.push(format!("replicas: {followers} this one"));
        }
        lines
    }

    fn log_line(&self) -> Option<String> {
        let log = self.now.log.as_ref()?;
        let none = log;
        let before = self.before.log.as_ref().unwrap_or(none);
        let trouble = match (log.failed, log.full) {
            (true, _) => "; FAILED: writes are refused until a restart",
            (false, true) => "; NO ROOM: writes that grow are refused",
            (false, false) => "",
        };
        Some(format!(
            "log: {} records/s, {} syncs/s; {} in {}; {} not on the device yet{trouble}",
            rate(self.per_s(before.records, log.records)),
            rate(self.per_s(before.syncs, log.syncs)),
            Size::rounded(log.segment_bytes),
            counted(log.segments, "segment", "segments"),
            counted(
                log.written_sequence.saturating_sub(log.durable_sequence),
                "sequence",
                "sequences"
            ),
        ))
    }

    fn replica_line(&self) -> Option<String> {
        let replica = self.now.replica.as_ref()?;
        Some(match replica.is_connected {
            true => format!(
                "replica of {}: {} and {} ms behind",
                replica.leader,
                counted(replica.behind, "sequence", "sequences"),
                replica.lag_ms
            ),
            false => format!(
                "replica of {}: NOT CONNECTED for {} ms: {}",
                replica.leader, replica.lag_ms, replica.problem
            ),
        })
    }

    fn commits_per_s(&self, database: &DatabaseSample) -> f64 {
        let before = self.before.databases.iter();
        let mut before = before.filter(|before| before.name == database.name);
        let sequence = before
            .next()
            .map_or(database.sequence, |before| before.sequence);
        self.per_s(sequence, database.sequence)
    }

    fn database_line(&self, database: &DatabaseSample) -> String {
        let blobs = match (database.blobs, database.unfinished_uploads) {
            (0, 0) => String::new(),
            (blobs, 0) => format!("{blobs} ({})", Size::rounded(database.blob_bytes)),
            (blobs, uploads) => format!("{blobs} + {uploads} begun"),
        };
        // Of what a storage engine has, often nothing is known.
        let known = |text: String| match database.is_remote {
            true => "-".to_owned(),
            false => text,
        };
        format!(
            "{:>12} {:>10} {:>10} {:>12} {blobs:>22}  {} ({})",
            known(database.entries.to_string()),
            known(Size::rounded(database.memory_bytes)),
            known(Size::rounded(database.disk_bytes)),
            known(rate(self.commits_per_s(database))),
            match database.name.as_str() {
                "" => "(default)",
                name => name,
            },
            database.kind
        )
    }

    /// The same for programs.
    pub(super) fn fields(&self) -> Map<String, Value> {
        let now = self.now;
        let methods = self.method_rows().into_iter().map(|row| {
            json!({
                "method": row.name,
                "calls_per_s": row.per_s,
                "errors_per_s": row.failed_per_s,
                "calls": row.all,
            })
        });
        let databases = now.databases.iter().map(|database| {
            json!({
                "database": database.name,
                "entries": database.entries,
                "memory_bytes": database.memory_bytes,
                "disk_bytes": database.disk_bytes,
                "sequences_per_s": self.commits_per_s(database),
                "blobs": database.blobs,
                "blob_bytes": database.blob_bytes,
                "unfinished_uploads": database.unfinished_uploads,
            })
        });
        let log = now.log.as_ref().map(|log| {
            let before = self.before.log.as_ref().unwrap_or(log);
            json!({
                "records_per_s": self.per_s(before.records, log.records),
                "groups_per_s": self.per_s(before.groups, log.groups),
                "syncs_per_s": self.per_s(before.syncs, log.syncs),
                "segment_bytes": log.segment_bytes,
            })
        });
        let fields = json!({
            "uptime_ms": now.uptime_ms,
            "open_connections": now.open_connections,
            "running_calls": now.running_calls,
            "memory_bytes": now.memory.0,
            "buffered_bytes": now.buffered.0,
            "methods": methods.collect::<Vec<_>>(),
            "databases": databases.collect::<Vec<_>>(),
            "log": log,
            "lag_ms": now.replica.as_ref().map(|replica| replica.lag_ms),
            "followers": now.followers,
        });
        match fields {
            Value::Object(fields) => fields,
            _ => Map::new(),
        }
    }
}

fn method_line(row: &MethodRow<'_>) -> String {
    format!(
        "{:>11} {:>10} {:>14}  {}",
        rate(row.per_s),
        rate(row.failed_per_s),
        row.all,
        row.name
    )
}

/// Three digits or so.
fn rate(per_s: f64) -> String {
    match per_s {
        0.0 => "0".into(),
        per_s if per_s < 9.95 => format!("{per_s:.1}"),
        per_s => format!("{per_s:.0}"),
    }
}

/// In the two largest units that there are.
fn up(ms: u64) -> String {
    let seconds = ms / 1_000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::{Duration, Instant};

    use api::admin::LogStatistics;

    use super::super::sample::ReplicaSample;
    use super::*;

    fn sample(at: Instant, gets: u64, failed: u64) -> TopSample {
        let calls = MethodCalls { all: gets, failed };
        let database = DatabaseSample {
            name: String::new(),
            kind: "memory, synced".into(),
            is_remote: false,
            entries: 7,
            memory_bytes: 2 << 20,
            disk_bytes: 0,
            blobs: 0,
            blob_bytes: 0,
            unfinished_uploads: 0,
            sequence: gets,
        };
        TopSample {
            at,
            round_trip: Duration::from_micros(120),
            server: "pelton 1".into(),
            uptime_ms: 3_723_000,
            open_connections: 1,
            running_calls: 2,
            memory: (2 << 20, 1 << 30),
            buffered: (0, 1 << 28),
            methods: BTreeMap::from([
                ("a/Quiet".to_owned(), MethodCalls { all: 99, failed: 0 }),
                ("b/Get".to_owned(), calls),
            ]),
            databases: vec![database],
            log: Some(LogStatistics {
                records: gets * 2,
                segments: 1,
                ..LogStatistics::default()
            }),
            replica: None,
            followers: 0,
        }
    }

    fn two_seconds_apart(gets: [u64; 2], failed: [u64; 2]) -> (TopSample, TopSample) {
        let begin = Instant::now();
        let later = begin + Duration::from_secs(2);
        (
            sample(begin, gets[0], failed[0]),
            sample(later, gets[1], failed[1]),
        )
    }

    #[test]
    fn rates_are_of_what_happened_in_between() {
        let (before, now) = two_seconds_apart([1_000, 3_000], [0, 8]);
        let lines = TopView::new("host:1", &before, &now).lines(40, 200);
        assert_eq!(
            lines[0],
            "pelton 1 at host:1: up 1 h 2 min; round trip 120 µs"
        );
        assert_eq!(
            lines[1],
            "calls: 1000/s, 4.0/s with an error, 2 running; 1 connection"
        );
        assert!(
            lines[3].starts_with("log: 2000 records/s, 0 syncs/s; "),
            "{}",
            lines[3]
        );
        let methods: Vec<&String> = lines.iter().filter(|line| line.contains('/')).collect();
        let busiest = methods.iter().position(|line| line.ends_with("b/Get"));
        let quiet = methods.iter().position(|line| line.ends_with("a/Quiet"));
        assert!(busiest < quiet, "the busiest comes first: {lines:#?}");
        let database = lines.last().expect("a database");
        assert!(database.contains(" 1000 "), "{database}");
        assert!(
            database.ends_with("  (default) (memory, synced)"),
            "{database}"
        );
    }

    #[test]
    fn a_server_that_has_begun_anew_did_nothing_yet() {
        let (before, now) = two_seconds_apart([1_000, 10], [5, 0]);
        let fields = TopView::new("host:1", &before, &now).fields();
        assert_eq!(fields["methods"][1]["calls_per_s"], 0.0);
        assert_eq!(fields["log"]["records_per_s"], 0.0);
        assert_eq!(fields["databases"][0]["sequences_per_s"], 0.0);
    }

    #[test]
    fn no_line_is_wider_and_no_picture_higher_than_the_terminal() {
        let (before, mut now) = two_seconds_apart([1_000, 3_000], [0, 8]);
        let database = now.databases[0].clone();
        now.databases = (0..30)
            .map(|number| DatabaseSample {
                name: format!("{number:03}{}", "ü".repeat(90)),
                ..database.clone()
            })
            .collect();
        for rows in [1, 5, 10, 24, 50] {
            for columns in [1, 20, 80, 120] {
                let lines = TopView::new("host:1", &before, &now).lines(rows, columns);
                assert!(lines.len() <= rows, "{rows} × {columns}: {lines:#?}");
                for line in &lines {
                    assert!(
                        line.chars().count() <= columns,
                        "{rows} × {columns}: {line}"
                    );
                }
            }
        }
        let lines = TopView::new("host:1", &before, &now).lines(24, 80);
        assert!(lines.iter().any(|line| line == "and 17 more"), "{lines:#?}");
        assert!(
            lines.iter().any(|line| line.ends_with("b/Get")),
            "{lines:#?}"
        );
    }

    #[test]
    fn trouble_stands_out() {
        let (before, mut now) = two_seconds_apart([0, 0], [0, 0]);
        now.log.as_mut().expect("a log").failed = true;
        now.followers = 2;
        now.replica = Some(ReplicaSample {
            leader: "other:1".into(),
            is_connected: false,
            lag_ms: 1_500,
            behind: 3,
            problem: "refused".into(),
        });
        let text = TopView::new("host:1", &before, &now)
            .lines(40, 200)
            .join("\n");
        assert!(
            text.contains("; FAILED: writes are refused until a restart"),
            "{text}"
        );
        assert!(
            text.contains("replica of other:1: NOT CONNECTED for 1500 ms: refused"),
            "{text}"
        );
        assert!(
            text.contains("replicas: 2 servers follow this one"),
            "{text}"
        );
    }

    #[test]
    fn times_are_in_two_units() {
        for (ms, expected) in [
            (999, "0 s"),
            (59_000, "59 s"),
            (61_000, "1 min 1 s"),
            (3_723_000, "1 h 2 min"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(up(ms), expected);
        }
    }
}
