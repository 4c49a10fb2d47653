//! One run of a client, with a server, and perhaps a relay, of its own.

use std::fs;
use std::io;
use std::process::Command;
use std::time::{Duration, Instant};

use lab::process_cpu_ns;
use lab::scenario::{MeasuredRun, PlannedClient, PlannedRun, ScenarioPlan};
use serde_json::{Map, Value};
use thiserror::Error;

use super::super::started::{Printed, Started};
use super::launch::Launcher;
use crate::interrupt::Interrupt;

/// How much longer than planned a client may take: so many times as long where a run has so much
/// to do and not so much time, and a while more for its start and end.
const SLOW_MACHINE: u32 = 3;
const CLIENT_EXTRA: Duration = Duration::from_secs(30);

/// The share of calls that may fail in a run that counts.
const FAILING_SHARE: f64 = 0.01;

/// What a client says that cannot even begin, as it lacks its library.
const NO_MODULE: &str = "ModuleNotFoundError";

/// Why a run was not made.
#[derive(Debug, Error)]
pub(super) enum RunFailure {
    #[error("{0}")]
    NoClient(String),
    #[error("{what} could not be started: {why}")]
    NotStarted { what: &'static str, why: String },
    #[error("the client printed no result: {0}")]
    NoResult(String),
    #[error("the client took longer than {} s", .0.as_secs())]
    TooLong(Duration),
    #[error("{failures:.0} of {calls:.0} calls failed: {first}")]
    CallsFailed {
        failures: f64,
        calls: f64,
        first: String,
    },
    #[error("it was interrupted")]
    Interrupted,
}

/// Makes one run.
///
/// # Errors
/// If it shows nothing that could be taken for a measurement.
pub(super) fn measure(
    plan: &ScenarioPlan,
    run: &PlannedRun,
    launcher: &Launcher,
    interrupt: &Interrupt,
) -> Result<MeasuredRun, RunFailure> {
    let planned = plan.server(run.server).ok_or(RunFailure::NotStarted {
        what: "the server",
        why: format!("the plan has none named {}", run.server),
    })?;
    let (server, address) = listening("the server", launcher.server(planned))?;
    let relay = match &run.relay {
        None => None,
        Some(arguments) => Some(listening("the relay", launcher.relay(&address, arguments))?),
    };
    let target = relay.as_ref().map_or(&address, |(_, address)| address);
    let mut client = start_client(run, launcher, target, server.process_id())?;

    let client_id = client.process_id();
    let server_before_ns = process_cpu_ns(server.process_id()).ok();
    let begin = Instant::now();
    let mut taken = Taken::default();
    let timeout = run.duration * SLOW_MACHINE + CLIENT_EXTRA;
    let has_ended = client.await_end(timeout, &mut || {
        taken.look_at(client_id);
        !interrupt.is_set()
    });
    let elapsed = begin.elapsed();
    let server_after_ns = process_cpu_ns(server.process_id()).ok();
    match has_ended {
        true => {}
        false if interrupt.is_set() => return Err(RunFailure::Interrupted),
        false => return Err(RunFailure::TooLong(timeout)),
    }
    let printed = client
        .end()
        .map_err(|error| RunFailure::NoResult(error.to_string()))?;
    Ok(MeasuredRun {
        name: run.name.clone(),
        figures: figures(&run.client, &printed)?,
        client_peak_bytes: taken.peak_bytes,
        client_cpu_ns: taken.cpu_ns,
        server_cpu_ns: server_after_ns
            .zip(server_before_ns)
            .map(|(after_ns, before_ns)| after_ns.saturating_sub(before_ns)),
        elapsed_ns: elapsed.as_nanos() as u64,
        relay: relay.and_then(|(relay, _)| relay_figures(relay)),
    })
}

/// Starts a program that listens; returns it with its address.
fn listening(what: &'static str, command: Command) -> Result<(Started, String), RunFailure> {
    Started::listening(command).map_err(|why| RunFailure::NotStarted { what, why })
}

fn start_client(
    run: &PlannedRun,
    launcher: &Launcher,
    target: &str,
    server_pid: u32,
) -> Result<Started, RunFailure> {
    let command = launcher.client(&run.client, target, server_pid);
    let program = command.get_program().to_string_lossy().into_owned();
    let why = |error: io::Error| format!("{program}: {error}");
    Started::start(command, run.client_cpu).map_err(|error| match how_to_get(&run.client) {
        Some(remedy) if error.kind() == io::ErrorKind::NotFound => {
            RunFailure::NoClient(no_client(remedy, &why(error)))
        }
        _ => RunFailure::NotStarted {
            what: "the client",
            why: why(error),
        },
    })
}

/// Returns of a client that may not be there what it is, and how to get it.
fn how_to_get(client: &PlannedClient) -> Option<(&'static str, &'static str)> {
    match client {
        PlannedClient::Pelton(_) => None,
        PlannedClient::Grpc(_) => Some((
            "client of gRPC",
            "take --python with one that has grpcio (`python3 -m venv DIR && DIR/bin/pip install \
             grpcio`, then DIR/bin/python), or --grpc-client with one of peers/",
        )),
        PlannedClient::Grpcio(_) => Some((
            "grpcio",
            "take --python with one that has it (`python3 -m venv DIR && DIR/bin/pip install \
             grpcio`, then DIR/bin/python)",
        )),
        PlannedClient::PeltonGrpc(_) => Some((
            "pelton_grpc",
            "take --python with one that has its wheel, which script/wheel builds and DIR/bin/pip \
             installs",
        )),
    }
}

/// What to do where a client is not there.
fn no_client((what, remedy): (&str, &str), why: &str) -> String {
    format!("there is no {what} ({why}): {remedy}")
}

/// The line of JSON that a client has printed.
fn figures(client: &PlannedClient, printed: &Printed) -> Result<Map<String, Value>, RunFailure> {
    if let (true, Some(remedy)) = (
        printed.last_error.starts_with(NO_MODULE),
        how_to_get(client),
    ) {
        let why = no_client(remedy, &printed.last_error);
        return Err(RunFailure::NoClient(why));
    }
    let line = printed.stdout.lines().next_back().unwrap_or_default();
    let parsed = serde_json::from_str::<Map<String, Value>>(line);
    let figures = parsed.map_err(|_| {
        RunFailure::NoResult(match printed.last_error.as_str() {
            "" => format!("it ended with {}", printed.status),
            error => error.to_owned(),
        })
    })?;
    let number = |name: &str| figures.get(name).and_then(Value::as_f64).unwrap_or(0.0);
    let (calls, failures) = (number("calls"), number("failures"));
    if calls == 0.0 || failures > calls * FAILING_SHARE {
        let first = figures.get("first_failure").and_then(Value::as_str);
        return Err(RunFailure::CallsFailed {
            failures,
            calls,
            first: first.unwrap_or("none ended").to_owned(),
        });
    }
    Ok(figures)
}

/// What a relay says when it is ended.
fn relay_figures(relay: Started) -> Option<Map<String, Value>> {
    let printed = relay.end().ok()?;
    serde_json::from_str(&printed.stdout).ok()
}

/// What a process has taken so far.
#[derive(Debug, Default)]
struct Taken {
    peak_bytes: Option<u64>,
    cpu_ns: Option<u64>,
}

impl Taken {
    /// Looks again. One that has ended meanwhile leaves what was seen before.
    fn look_at(&mut self, process_id: u32) {
        let status = fs::read_to_string(format!("/proc/{process_id}/status"));
        let peak = status.ok().and_then(|status| peak_bytes(&status));
        self.peak_bytes = self.peak_bytes.max(peak);
        self.cpu_ns = self.cpu_ns.max(process_cpu_ns(process_id).ok());
    }
}

/// The most memory that a process has had resident, by `/proc/PID/status`.
fn peak_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn printed(stdout: &str, last_error: &str) -> Printed {
        Printed {
            status: ExitStatus::from_raw(0x100),
            stdout: stdout.into(),
            last_error: last_error.into(),
        }
    }

    #[test]
    fn a_line_of_figures_is_a_result() {
        let line = "{\"calls\": 1000, \"failures\": 3, \"calls_per_s\": 7.5}\n";
        let client = PlannedClient::Pelton(Vec::new());
        let figures = figures(&client, &printed(line, "")).expect("figures");
        assert_eq!(figures["calls_per_s"], 7.5);
    }

    #[test]
    fn what_is_no_result_says_why() {
        for (stdout, last_error, expected) in [
            ("", "", "it ended with exit status: 1"),
            ("no JSON", "boom", "the client printed no result: boom"),
            (
                "{\"calls\": 100, \"failures\": 2, \"first_failure\": \"UNAVAILABLE\"}",
                "",
                "2 of 100 calls failed: UNAVAILABLE",
            ),
            ("{\"calls\": 0}", "", "0 of 0 calls failed: none ended"),
            (
                "",
                "ModuleNotFoundError: No module named 'grpc'",
                "there is no client of gRPC (ModuleNotFoundError: No module named 'grpc'): take",
            ),
        ] {
            let client = PlannedClient::Grpc(Vec::new());
            let error = figures(&client, &printed(stdout, last_error)).expect_err(expected);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn a_client_that_is_not_there_says_how_to_get_it() {
        let printed = printed("", "ModuleNotFoundError: No module named 'pelton_grpc'");
        let client = PlannedClient::PeltonGrpc(Vec::new());
        let error = figures(&client, &printed).expect_err("it is not there");
        let text = error.to_string();
        assert!(
            text.starts_with("there is no pelton_grpc (Module"),
            "{text}"
        );
        assert!(text.contains("script/wheel"), "{text}");
    }

    #[test]
    fn the_peak_is_read_in_bytes() {
        let status = "Name:\tx\nVmPeak:\t  99 kB\nVmHWM:\t    12 kB\nVmRSS:\t 5 kB\n";
        assert_eq!(peak_bytes(status), Some(12 << 10));
        assert_eq!(peak_bytes("Name:\tx\n"), None);
        assert_eq!(peak_bytes("VmHWM:\t99999999999999999999 kB"), None);
    }

    #[test]
    fn a_process_that_has_gone_keeps_its_figures() {
        let mut taken = Taken::default();
        taken.look_at(std::process::id());
        let peak = taken.peak_bytes.expect("this process has memory");
        taken.look_at(u32::MAX);
        assert!(taken.peak_bytes >= Some(peak) && taken.cpu_ns.is_some());
    }
}
