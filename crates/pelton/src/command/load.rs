//! `pelton load`

use std::borrow::Cow;
use std::io::{IsTerminal, Read};
use std::path::Path;
use std::time::Duration;

use client::{Channel, ChannelOptions};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lab::{
    Arrivals, ConnectionMode, Length, LoadOutcome, LoadPlan, LoadProgress, MethodError, MethodName,
    Pace, PeltonLoad, PeltonShape, PeltonWorkload, Report, RunError, SameRequest, WorkerPlan,
    limits,
};
use net::Address;

use super::CONNECT_HINT;
use super::load_database::{OwnDatabase, check_existence, check_memory};
use super::tls::{client_tls, connect_failure};
use crate::arguments::{LoadArguments, LoadArrivals, LoadFormat, LoadMode, OutputFormat};
use crate::exit::{CallFailure, Exit, Failure};
use crate::interrupt::Interrupt;
use crate::output::{Output, note};

/// Records of one Batch while every key is stored once: few enough that a batch of usual values
/// stays far below what a server takes.
const FILL_RECORDS: usize = 100;

/// Bytes of values that such a batch has at most.
const FILL_BYTES: usize = 1 << 20;

/// Places for calls on a connection, without and with --rate.
const CLOSED_IN_FLIGHT: usize = 16;
const OPEN_IN_FLIGHT: usize = 1_000;

/// Loads a Pelton server, or any method of another one, and prints what was measured.
pub(super) fn load_server(arguments: &LoadArguments) -> Result<Exit, Failure> {
    let plan = plan(arguments)?;
    if let Some(process) = arguments.server_pid {
        lab::process_cpu_ns(process).map_err(|error| {
            Failure::Failed(format!(
                "cannot read the CPU time of process {process}: {error}; --server-pid is the \
                 process of a server on this machine"
            ))
        })?;
    }
    let interrupt = Interrupt::listen();
    let report = match &arguments.method {
        Some(method) => load_method(arguments, method, &plan, &interrupt)?,
        None => load_database(arguments, &plan, &interrupt)?,
    };
    print(&report, arguments.format)?;
    verdict(&report, &arguments.address, &interrupt)
}

/// How a load ends that has been printed.
pub(super) fn verdict(
    report: &Report,
    address: &Address,
    interrupt: &Interrupt,
) -> Result<Exit, Failure> {
    let outcome = report.outcome();
    let is_interrupted = outcome.was_stopped && interrupt.is_set();
    if outcome.tally.succeeded == 0 {
        let why = match report.has_failures() {
            true => "the result says why",
            false if is_interrupted => {
                return Err(Failure::Interrupted(format!(
                    "no call to {address} succeeded: it was interrupted before any ended that was \
                     measured; a shorter --warm-up measures earlier"
                )));
            }
            false => {
                "none ended within the time that was measured; a longer --duration measures more"
            }
        };
        return Err(Failure::Failed(format!(
            "no call to {address} succeeded: {why}"
        )));
    }
    if is_interrupted {
        return Ok(Exit::of_signal());
    }
    let is_good = report.void_reasons().is_empty() && !report.has_failures() && !report.is_behind();
    Ok(if is_good { Exit::Done } else { Exit::Miss })
}

fn plan(arguments: &LoadArguments) -> Result<LoadPlan, Failure> {
    let mode = match arguments.mode {
        LoadMode::Multiplexed => ConnectionMode::Multiplexed,
        LoadMode::Exclusive => ConnectionMode::Exclusive,
        LoadMode::Short => ConnectionMode::Short,
    };
    check(arguments, mode)?;
    let pace = match arguments.rate {
        None => Pace::Closed,
        Some(rate) => Pace::Open {
            rate,
            arrivals: match arguments.arrivals {
                LoadArrivals::Fixed => Arrivals::Fixed,
                LoadArrivals::Poisson => Arrivals::Poisson,
            },
        },
    };
    let usual = if pace == Pace::Closed {
        CLOSED_IN_FLIGHT
    } else {
        OPEN_IN_FLIGHT
    };
    let in_flight = match mode {
        ConnectionMode::Multiplexed => arguments.in_flight.unwrap_or(usual),
        ConnectionMode::Exclusive | ConnectionMode::Short => 1,
    };
    Ok(LoadPlan {
        address: arguments.address.clone(),
        connect_timeout: Duration::from_millis(arguments.timeout.ms),
        tls: client_tls(&arguments.tls)?,
        authority: arguments.authority.clone(),
        threads: arguments.threads,
        pin: arguments
            .pin
            .as_ref()
            .map_or_else(Vec::new, |cpus| cpus.0.clone()),
        connections: arguments.connections,
        worker: WorkerPlan {
            thread: (0, 1),
            connections: 0,
            in_flight,
            mode,
            pace,
            deadline_ns: arguments
                .deadline
                .map(|span| span.ms.saturating_mul(1_000_000)),
            metadata: arguments.metadata.clone(),
            calls: None,
            seed: arguments.seed,
        },
        warm_up: Duration::from_millis(arguments.warm_up.ms),
        length: match arguments.calls {
            Some(calls) => Length::Calls(calls),
            None => Length::Duration(Duration::from_millis(arguments.duration.ms)),
        },
        stop_on_failure: false,
        server_process: arguments.server_pid,
    })
}

/// What clap cannot see: flags that contradict each other by their values.
fn check(arguments: &LoadArguments, mode: ConnectionMode) -> Result<(), Failure> {
    let usage = |text: String| Err(Failure::Usage(text));
    if arguments.threads > arguments.connections {
        return usage(format!(
            "--threads {} is more than --connections {}: each thread needs a connection of its own",
            arguments.threads, arguments.connections
        ));
    }
    if mode != ConnectionMode::Multiplexed
        && arguments.in_flight.is_some_and(|in_flight| in_flight > 1)
    {
        return usage(
            "--in-flight above 1 goes only with --mode multiplexed; take more --connections".into(),
        );
    }
    if mode == ConnectionMode::Short && arguments.pipe {
        return usage(
            "--pipe needs connections that last; take --mode multiplexed or exclusive".into(),
        );
    }
    if arguments.calls.is_none() && arguments.duration.ms == 0 {
        return usage("--duration 0 measures nothing; write 10s or so".into());
    }
    Ok(())
}

/// Loads the database that was named, or else one that is made for this run and removed after it,
/// however it ends.
fn load_database(
    arguments: &LoadArguments,
    plan: &LoadPlan,
    interrupt: &Interrupt,
) -> Result<Report, Failure> {
    let load = pelton_load(arguments)?;
    // The default database is always there.
    if let Some(database) = arguments
        .database
        .as_deref()
        .filter(|name| !name.is_empty())
    {
        check_existence(arguments, database)?;
    }
    if will_fill(arguments, &load) {
        check_memory(arguments, arguments.database.as_deref())?;
    }
    if arguments.database.is_some() {
        return load_pelton(arguments, &load, plan, interrupt);
    }
    let own = OwnDatabase::create(arguments)?;
    let load = PeltonLoad {
        database: own.name().to_owned(),
        ..load
    };
    let report = load_pelton(arguments, &load, plan, interrupt);
    let removed = own.remove();
    // What was measured is worth more than a word about what is left behind.
    if let (Ok(_), Err(failure)) = (&report, &removed) {
        note(format_args!("pelton: {failure}"));
    }
    match (report, removed) {
        (Err(failure), Err(left)) => Err(failure.with(&left.to_string())),
        (Err(failure), Ok(())) => Err(failure.with("the database that was made for it is removed")),
        (report, _) => report,
    }
}

fn pelton_load(arguments: &LoadArguments) -> Result<PeltonLoad, Failure> {
    let operations = arguments.batch.unwrap_or(1);
    let shape = match (arguments.pipe, arguments.batch) {
        (true, _) => PeltonShape::Pipe(operations),
        (false, Some(_)) => PeltonShape::Batch(operations),
        (false, None) => PeltonShape::Single,
    };
    let load = PeltonLoad {
        mix: arguments.mix.clone(),
        shape,
        database: arguments.database.clone().unwrap_or_default(),
        keys: arguments.keys,
        key_bytes: usize::from(arguments.key_size),
        distribution: arguments.distribution,
        values: arguments.value_size,
    };
    match load.problem() {
        Some(problem) => Err(Failure::Usage(problem)),
        None => Ok(load),
    }
}

fn load_pelton(
    arguments: &LoadArguments,
    load: &PeltonLoad,
    plan: &LoadPlan,
    interrupt: &Interrupt,
) -> Result<Report, Failure> {
    if will_fill(arguments, load) {
        fill(load, plan, interrupt)?;
    }
    let make = |thread| PeltonWorkload::new(load, arguments.seed, thread, plan.threads);
    let outcome = run(plan, make, interrupt)?;
    let operations = arguments.batch.unwrap_or(1);
    let sent = match load.shape {
        PeltonShape::Single => String::new(),
        PeltonShape::Batch(count) => format!(" in batches of {count}"),
        PeltonShape::Pipe(count) => format!(" in a Pipe, {count} a message"),
    };
    let what = format!("{}{sent}, {} keys", load.mix, load.keys);
    Ok(Report::new(what, plan, outcome, operations as u64))
}

/// Whether every key is stored before: in a database that was just made nothing but misses would be
/// read.
fn will_fill(arguments: &LoadArguments, load: &PeltonLoad) -> bool {
    arguments.fill || (arguments.database.is_none() && load.mix.has_gets())
}

/// Stores every key once.
fn fill(load: &PeltonLoad, plan: &LoadPlan, interrupt: &Interrupt) -> Result<(), Failure> {
    let records = (FILL_BYTES / load.values.max_bytes().max(1)).clamp(1, FILL_RECORDS);
    let fill = load.fill(records);
    let mut filling = plan.clone();
    filling.worker.mode = ConnectionMode::Multiplexed;
    filling.worker.in_flight = CLOSED_IN_FLIGHT;
    filling.worker.pace = Pace::Closed;
    filling.worker.deadline_ns = None;
    filling.warm_up = Duration::ZERO;
    // Each thread comes by every key of its share; what does not divide evenly is stored twice.
    let per_thread = load.keys.div_ceil((plan.threads * records) as u64);
    filling.length = Length::Calls(per_thread * plan.threads as u64);
    let make = |thread| PeltonWorkload::new(&fill, 0, thread, plan.threads);
    let line = LiveLine::new(LiveWork::Filling {
        records: records as u64,
        keys: load.keys,
    });
    let outcome = run_shown(&filling, make, interrupt, line)?;
    let failures = outcome.tally.failures() + outcome.tally.unfinished;
    if outcome.was_stopped {
        return Err(Failure::Interrupted(
            "interrupted before every key was stored".into(),
        ));
    }
    if failures > 0 {
        let reason = outcome
            .tally
            .first_failure
            .unwrap_or_else(|| "no answer in time".into());
        return Err(Failure::Failed(format!(
            "cannot store the keys on {}: {failures} batches failed, the first: {reason}",
            plan.address
        )));
    }
    Ok(())
}

fn load_method(
    arguments: &LoadArguments,
    method: &MethodName,
    plan: &LoadPlan,
    interrupt: &Interrupt,
) -> Result<Report, Failure> {
    let request = match (&arguments.data, &arguments.data_file) {
        (Some(data), _) => encode(arguments, plan, method, &json(data)?)?,
        (None, Some(file)) => read(file, limits::MAX_REQUEST_BYTES)?,
        (None, None) => {
            return Err(Failure::Usage(
                "--method needs --data or --data-file".into(),
            ));
        }
    };
    let workload = SameRequest::new(method.path(), request);
    let outcome = run(plan, |_| workload.clone(), interrupt)?;
    Ok(Report::new(method.to_string(), plan, outcome, 1))
}

/// The JSON of `--data`, which stands there or, after an `@`, in a file. No JSON begins so.
fn json(data: &str) -> Result<Cow<'_, str>, Failure> {
    let Some(file) = data.strip_prefix('@') else {
        return Ok(data.into());
    };
    if file.is_empty() {
        return Err(Failure::Usage(
            "--data @ names no file; write --data @FILE, or --data @- for standard input".into(),
        ));
    }
    let bytes = read(Path::new(file), limits::MAX_REQUEST_BYTES)?;
    let text = String::from_utf8(bytes).map_err(|_| {
        Failure::Usage(format!(
            "{file} is no JSON: it is not UTF-8; --data-file takes the bytes of a message"
        ))
    })?;
    // Editors of some systems begin a file with a mark of its encoding, which JSON does not have.
    Ok(text.trim_start_matches('\u{feff}').to_owned().into())
}

/// The bytes of a JSON request, by a file of descriptors or the server's own.
fn encode(
    arguments: &LoadArguments,
    plan: &LoadPlan,
    method: &MethodName,
    json: &str,
) -> Result<Vec<u8>, Failure> {
    let in_words = |error: MethodError| match error {
        error @ MethodError::NoReflection(_) => {
            Failure::Failed(format!("{}: {error}", arguments.address))
        }
        error => {
            let text = error.to_string();
            let hint = match text.contains("base64") {
                true => " A field of the type bytes is written as base64 in JSON.",
                false => "",
            };
            Failure::Usage(format!("{text}{hint}"))
        }
    };
    let descriptors = match &arguments.descriptor_set {
        Some(file) => read(file, limits::MAX_DESCRIPTOR_BYTES)?,
        None => {
            let timeout = Duration::from_millis(arguments.timeout.ms);
            let options = ChannelOptions {
                connect_timeout: timeout,
                tls: plan.tls.clone(),
                ..ChannelOptions::default()
            };
            let mut channel = Channel::connect(&arguments.address, &options)
                .map_err(|error| connect_failure(&arguments.address, &error))?;
            lab::descriptors_of(&mut channel, method.service(), timeout).map_err(in_words)?
        }
    };
    method.encode(&descriptors, json).map_err(in_words)
}

fn read(file: &Path, most_bytes: usize) -> Result<Vec<u8>, Failure> {
    let input = crate::input::open(Some(file))?;
    let (name, mut bytes) = (input.name, Vec::new());
    let mut source = input.source.take(most_bytes as u64 + 1);
    let read = source.read_to_end(&mut bytes);
    read.map_err(|error| crate::input::unreadable(&name, &error))?;
    if bytes.len() > most_bytes {
        return Err(Failure::Failed(format!(
            "{name} has more than {most_bytes} bytes, which is all that can be used"
        )));
    }
    Ok(bytes)
}

/// Runs a plan, with a line on standard error that says how far it is.
pub(super) fn run<W: lab::Workload>(
    plan: &LoadPlan,
    make: impl Fn(usize) -> W + Sync,
    interrupt: &Interrupt,
) -> Result<LoadOutcome, Failure> {
    run_shown(plan, make, interrupt, LiveLine::new(LiveWork::Loading))
}

fn run_shown<W: lab::Workload>(
    plan: &LoadPlan,
    make: impl Fn(usize) -> W + Sync,
    interrupt: &Interrupt,
    mut line: LiveLine,
) -> Result<LoadOutcome, Failure> {
    let outcome = lab::run(plan, make, &mut |progress| {
        line.show(progress);
        !interrupt.is_set()
    });
    outcome.map_err(|error| match error {
        RunError::Connect(text) => not_connected(plan, text),
        RunError::BadRequest(_) => Failure::Usage(error.to_string()),
        RunError::System(_) => Failure::Failed(error.to_string()),
        RunError::Stopped => Failure::Interrupted(format!(
            "interrupted while it connected to {}: no call was made",
            plan.address
        )),
    })
}

/// Why not all connections stand, and what helps.
fn not_connected(plan: &LoadPlan, what: String) -> Failure {
    let is_full = [
        "connections of this thread were open",
        "as many connections as it takes",
    ];
    let hint = match is_full.iter().any(|part| what.contains(part)) {
        true => format!(
            "{} were asked for: take fewer --connections, or a larger --max-connections of the \
             server",
            plan.connections
        ),
        // A server that is full and has no time says nothing, or not in time.
        false if plan.connections > 1 && may_be_full(&what) => format!(
            "{CONNECT_HINT}; {} connections were asked for: a server that has fewer places \
             (--max-connections) does this too",
            plan.connections
        ),
        false => CONNECT_HINT.into(),
    };
    let failure = CallFailure {
        what,
        address: plan.address.to_string(),
        status: None,
        hint,
        names_nothing: false,
        is_miss: false,
    };
    failure.into()
}

/// Whether a server that has no place for a connection may look like this.
fn may_be_full(what: &str) -> bool {
    let ends = [
        "the server closed it",
        "the server reset it",
        "no answer in time",
    ];
    ends.iter().any(|end| what.contains(end))
}

/// Prints lines of a result.
pub(super) fn print_lines(text: &str) -> Result<(), Failure> {
    let mut output = Output::new(OutputFormat::Text);
    output.line(text)?;
    output.end()
}

fn print(report: &Report, format: LoadFormat) -> Result<(), Failure> {
    let mut output = Output::new(OutputFormat::Text);
    match format {
        LoadFormat::Text => output.line(&report.text())?,
        LoadFormat::Csv => output.line(report.csv().trim_end())?,
        LoadFormat::Json => output.object(report.fields())?,
    }
    output.end()
}

/// What goes on.
#[derive(Clone, Copy)]
enum LiveWork {
    Loading,
    /// Every key is stored once, so many in a call.
    Filling {
        records: u64,
        keys: u64,
    },
}

/// When storing the keys is first told of where standard error is no terminal, and how often then.
const TELL_AFTER_NS: u64 = 2_000_000_000;
const TELL_EVERY_NS: u64 = 10_000_000_000;

/// How far the run has come, on standard error. Where that is no terminal only what lasts before
/// the load is told of, in a line now and then.
struct LiveLine {
    work: LiveWork,
    bar: Option<ProgressBar>,
    next_ns: u64,
}

impl LiveLine {
    fn new(work: LiveWork) -> LiveLine {
        let next_ns = TELL_AFTER_NS;
        if !std::io::stderr().is_terminal() {
            return LiveLine {
                work,
                bar: None,
                next_ns,
            };
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{wide_msg}").expect("the template is valid");
        bar.set_style(style);
        LiveLine {
            work,
            bar: Some(bar),
            next_ns,
        }
    }

    fn show(&mut self, progress: &LoadProgress) {
        if let Some(bar) = &self.bar {
            let seconds = progress.elapsed_ns as f64 / 1e9;
            bar.set_message(format!("{seconds:6.1} s, {}", self.words(progress)));
        } else if self.is_told(progress) && progress.elapsed_ns >= self.next_ns {
            self.next_ns = progress.elapsed_ns + TELL_EVERY_NS;
            note(format_args!("pelton load: {}", self.words(progress)));
        }
    }

    /// Whether it is told without a terminal.
    fn is_told(&self, progress: &LoadProgress) -> bool {
        progress.is_connecting || matches!(self.work, LiveWork::Filling { .. })
    }

    fn words(&self, progress: &LoadProgress) -> String {
        if progress.is_connecting {
            return "connecting".into();
        }
        match self.work {
            LiveWork::Filling { records, keys } => {
                let stored = progress.ended.saturating_mul(records).min(keys);
                let percent = stored.saturating_mul(100) / keys.max(1);
                format!("storing the keys: {stored} of {keys} ({percent} %)")
            }
            LiveWork::Loading => {
                let phase = if progress.is_measuring {
                    "measuring"
                } else {
                    "warming up"
                };
                let (ended, failed) = (progress.ended, progress.failed);
                format!("{phase}: {ended} calls ended, {failed} failed")
            }
        }
    }
}

impl Drop for LiveLine {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storing_the_keys_shows_how_many_there_are() {
        let line = LiveLine {
            work: LiveWork::Filling {
                records: 100,
                keys: 1_050,
            },
            bar: None,
            next_ns: TELL_AFTER_NS,
        };
        let words = |ended| {
            line.words(&LoadProgress {
                ended,
                ..LoadProgress::default()
            })
        };
        assert_eq!(words(5), "storing the keys: 500 of 1050 (47 %)");
        assert_eq!(words(11), "storing the keys: 1050 of 1050 (100 %)");
    }
}
