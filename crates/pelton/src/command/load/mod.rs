//! `pelton load`

mod database;
mod echo;
mod gupload;
mod histogram_file;
mod live_line;
mod method;
pub(super) mod own_database;
mod plan;
mod run;
mod services;
mod tkrzw;

use client::FramedStatus;
use lab::machine::OnMachine;
use lab::sweep::SweepReport;
use lab::{FailureKind, KvstoreReport, LoadPlan, Report, Requirement, UploadReport};
use net::Address;
use serde_json::{Map, Value};

use crate::arguments::{LoadArguments, LoadFormat, LoadService, OutputFormat};
use crate::command::load_machine::load_machine;
use crate::command::page_file::PageFile;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::output::Output;
use database::load_database;
use echo::load_echo;
use histogram_file::HistogramFile;
use method::load_method;

pub(super) use method::read_named;

/// Loads a server and prints what was measured. `is_token_named`: --token-file stands on the
/// command line.
pub fn load(arguments: &LoadArguments, is_token_named: bool) -> Result<Exit, Failure> {
    match &arguments.service {
        Some(LoadService::Kvstore(arguments)) => services::load_kvstore(arguments, is_token_named),
        Some(LoadService::Ping(arguments)) => services::load_ping(arguments, is_token_named),
        Some(LoadService::Gupload(arguments)) => gupload::load_gupload(arguments, is_token_named),
        Some(LoadService::Tkrzw(arguments)) => tkrzw::load_tkrzw(arguments, is_token_named),
        None => load_server(arguments, is_token_named),
    }
}

/// Loads a Pelton server, or any method of another one, and prints what was measured.
fn load_server(arguments: &LoadArguments, is_token_named: bool) -> Result<Exit, Failure> {
    let plan = checked_plan(arguments, is_token_named)?;
    let histogram = arguments.histogram.as_deref();
    let histogram = histogram.map(HistogramFile::open).transpose()?;
    let page = PageFile::check("--html", arguments.html.as_deref())?;
    let interrupt = Interrupt::listen();
    let machine = load_machine(&arguments.address);
    let report = measure(arguments, &plan, &interrupt)?;
    let report = report.requiring(&arguments.require).on_machine(machine);
    // However the one goes, the others are tried: nobody may read what is printed.
    let written = histogram.map_or(Ok(()), |histogram| histogram.write(&report));
    page.write_and_print(|| report.html(), || print(&report, arguments.format))?;
    written?;
    let is_about_errors = arguments.require.iter().any(Requirement::is_about_errors);
    let exit = verdict_with(&report, &arguments.address, &interrupt, is_about_errors)?;
    Ok(match report.meets_requirements() {
        Some(false) if exit == Exit::Done => Exit::Miss,
        _ => exit,
    })
}

/// Returns the plan of a load, of which all is known to be right that can be known before.
pub(super) fn checked_plan(
    arguments: &LoadArguments,
    is_token_named: bool,
) -> Result<LoadPlan, Failure> {
    let plan = plan::plan(arguments, is_token_named)?;
    arguments.server_pid.map_or(Ok(()), check_process)?;
    Ok(plan)
}

/// Fails if this is no process of which the CPU time can be measured.
pub(super) fn check_process(process: u32) -> Result<(), Failure> {
    let read = lab::process_cpu_ns(process).map_err(|error| {
        Failure::Failed(format!(
            "cannot read the CPU time of process {process}: {error}; --server-pid is the process \
             of a server on this machine"
        ))
    });
    read.map(drop)
}

/// Makes one load.
pub(super) fn measure(
    arguments: &LoadArguments,
    plan: &LoadPlan,
    interrupt: &Interrupt,
) -> Result<Report, Failure> {
    match (&arguments.method, arguments.echo) {
        (Some(method), _) => load_method(arguments, method, plan, interrupt),
        (None, Some(bytes)) => load_echo(bytes, plan, interrupt),
        (None, None) => load_database(arguments, plan, interrupt),
    }
}

/// How a load ends that has been printed.
pub(super) fn verdict(
    report: &Report,
    address: &Address,
    interrupt: &Interrupt,
) -> Result<Exit, Failure> {
    verdict_with(report, address, interrupt, false)
}

/// How a load ends that has been printed. `may_fail`: a requirement says how many calls may fail,
/// so that one alone is no miss.
fn verdict_with(
    report: &Report,
    address: &Address,
    interrupt: &Interrupt,
    may_fail: bool,
) -> Result<Exit, Failure> {
    let outcome = report.outcome();
    let is_interrupted = outcome.was_stopped && interrupt.is_set();
    if outcome.tally.succeeded == 0 {
        let why = match report.has_failures() {
            true if has_refusal_without_reason(report) => NO_REASON_OF_SRPC,
            true => "the result says why",
            false if outcome.tally.is_server_gone => "the server is gone",
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
    let is_good = report.void_reasons().is_empty()
        && (may_fail || !report.has_failures())
        && !report.is_behind();
    Ok(if is_good { Exit::Done } else { Exit::Miss })
}

/// What may be behind the status of SRPC that stands for nearly everything.
const NO_REASON_OF_SRPC: &str = "SRPC has no place for a reason. SYSTEM_ERROR (100) of a Pelton \
                                 server may mean that a token or its right is missing: \
                                 --token-file FILE sends one, and `pelton serve --listen \
                                 ADDRESS+anonymous=service:srpc-benchmark` serves the benchmark of \
                                 SRPC to callers without one";

/// Whether a call was refused with that status.
fn has_refusal_without_reason(report: &Report) -> bool {
    let system_error = FailureKind::FramedError(FramedStatus::srpc(100));
    let mut kinds = report.outcome().tally.failed.iter();
    kinds.any(|(kind, _)| *kind == system_error)
}

/// Prints lines of a result.
pub(super) fn print_lines(text: &str) -> Result<(), Failure> {
    let mut output = Output::new(OutputFormat::Text);
    output.line(text)?;
    output.end()
}

/// A result that can be printed in each form.
pub(super) trait LoadResult {
    fn text(&self) -> String;
    fn csv(&self) -> String;
    fn fields(&self) -> Map<String, Value>;
}

macro_rules! load_results {
    ($($report:ident)*) => {$(
        impl LoadResult for $report {
            fn text(&self) -> String {
                $report::text(self)
            }

            fn csv(&self) -> String {
                $report::csv(self)
            }

            fn fields(&self) -> Map<String, Value> {
                $report::fields(self)
            }
        }
    )*};
}

load_results! { Report KvstoreReport UploadReport SweepReport }

/// Prints a result in the form that is wanted.
pub(super) fn print(result: &impl LoadResult, format: LoadFormat) -> Result<(), Failure> {
    let mut output = Output::new(OutputFormat::Text);
    match format {
        LoadFormat::Text => output.line(&result.text())?,
        LoadFormat::Csv => output.line(result.csv().trim_end())?,
        LoadFormat::Json => output.object(result.fields())?,
    }
    output.end()
}
