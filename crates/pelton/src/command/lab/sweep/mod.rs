//! `pelton lab sweep`

mod relay;
mod save;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::{ArgMatches, FromArgMatches};
use lab::LoadPlan;
use lab::machine::{CpuTimes, KernelFiles, LoadMachine};
use lab::sweep::{
    AxesError, RunFigures, SweepAxes, SweepHeader, SweepParameter, SweepReport, SweepResults,
    SweepRun, SweepSetting, SweepTimes, TimesWanted, limits, order,
};
use net::Address;

use self::relay::SweepRelay;
use self::save::SaveFile;
use crate::arguments::{
    LoadArguments, LoadProtocol, SweepArguments, SweptLoad, flags_of_sweep, is_on_command_line,
};
use crate::command::load;
use crate::command::load_machine::{load_machine, shares_since};
use crate::command::page_file::PageFile;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::output::note;
use crate::size::Span;

/// How many times the budget a sweep may take until it is ended.
const BUDGET_EXCESS: f64 = 1.25;

/// Runs a load over all values of one or two parameters, and prints what it shows.
pub fn sweep(arguments: &SweepArguments, matches: &ArgMatches) -> Result<Exit, Failure> {
    let mut cells = SweptCells::new(arguments, matches)?;
    let page = PageFile::check("--html", arguments.html.as_deref())?;
    let wanted = cells.header(arguments, matches)?;
    let (mut file, header, runs) = match &arguments.save {
        Some(path) => save::open(path, arguments.resume, wanted)?,
        None => (None, wanted, Vec::new()),
    };
    let interrupt = Interrupt::listen();
    let before = CpuTimes::read(&KernelFiles);
    let mut results = SweepResults::new(header.axes.clone(), runs);
    let ended_early = cells.run_all(&header, &mut results, file.as_mut(), &interrupt)?;
    let has_failures = results.runs().iter().any(|run| run.figures.failures() > 0);
    let is_broken = matches!(ended_early, Some(EarlySweepEnd::Broken(_)));
    let setting = SweepSetting {
        target: header.target,
        machine: cells.machine,
        during: shares_since(before),
        times: header.times,
        seed: header.seed,
        ended_early: ended_early.map(EarlySweepEnd::text),
    };
    let report = SweepReport::new(setting, results);
    page.write_and_print(
        || report.html(),
        || load::print(&report, arguments.load.0.format),
    )?;
    Ok(match is_broken || has_failures {
        _ if interrupt.is_set() => Exit::of_signal(),
        true => Exit::Miss,
        false => Exit::Done,
    })
}

/// Why a sweep ended before its last run.
enum EarlySweepEnd {
    /// Its time was over.
    Budget(String),
    /// The user ended it, or no further run could be made.
    Broken(String),
}

impl EarlySweepEnd {
    fn text(self) -> String {
        match self {
            EarlySweepEnd::Budget(text) | EarlySweepEnd::Broken(text) => text,
        }
    }
}

/// The cells of a sweep, and the load that takes the values of each in turn.
struct SweptCells {
    axes: SweepAxes,
    load: SweptLoad,
    /// `--token-file` stands on the command line.
    is_token_named: bool,
    machine: LoadMachine,
    /// What must not be exceeded by much; `None`: whatever it takes.
    budget: Option<Duration>,
}

impl SweptCells {
    /// Checks that a load can be made in every cell, before any is.
    fn new(arguments: &SweepArguments, matches: &ArgMatches) -> Result<SweptCells, Failure> {
        let usage = |error: AxesError| Failure::Usage(error.to_string());
        let axes = SweepAxes::new(arguments.over.clone()).map_err(usage)?;
        if axes.cells() > limits::MAX_CELLS {
            return Err(Failure::Usage(format!(
                "--over makes {} cells: {} at most; take fewer values",
                axes.cells(),
                limits::MAX_CELLS
            )));
        }
        check_flags(&arguments.load.0, &axes, matches)?;
        let mut cells = SweptCells {
            load: load_of(matches)?,
            is_token_named: is_on_command_line(matches, "token_file"),
            machine: load_machine(&arguments.load.0.address),
            budget: (!arguments.full && arguments.runs.is_none())
                .then_some(Duration::from_millis(arguments.budget.ms)),
            axes,
        };
        for cell in 0..cells.axes.cells() {
            let checked = cells.plan(cell);
            let at = format!("that is so at {}", cells.axes.label(cell));
            checked.map_err(|failure| failure.with(&at))?;
        }
        Ok(cells)
    }

    /// What is swept, by the command line.
    fn header(
        &self,
        arguments: &SweepArguments,
        matches: &ArgMatches,
    ) -> Result<SweepHeader, Failure> {
        let load = &arguments.load.0;
        let given = |id: &str, span: Span| {
            let is_given = is_on_command_line(matches, id);
            is_given.then(|| Duration::from_millis(span.ms))
        };
        let budget = Duration::from_millis(arguments.budget.ms);
        let wanted = TimesWanted {
            cells: self.axes.cells(),
            runs: arguments.runs,
            warm_up: given("warm_up", load.warm_up),
            measured: given("duration", load.duration),
            budget: (!arguments.full).then_some(budget),
        };
        let times = SweepTimes::choose(&wanted);
        let total = times.total(wanted.cells * times.runs);
        if !arguments.full && total > budget {
            note(format_args!(
                "pelton lab sweep: takes about {} s, longer than --budget: fewer values, fewer \
                 --runs or a shorter --duration make it shorter",
                total.as_secs()
            ));
        }
        Ok(SweepHeader {
            flags: flags_of_sweep(matches),
            target: load.address.to_string(),
            axes: self.axes.clone(),
            times,
            seed: arguments
                .order_seed
                .unwrap_or_else(crate::randomness::random),
            machine: self.machine.fields(),
        })
    }

    /// Gives the load the values of a cell. Returns those of the relay.
    fn set(&mut self, cell: usize) -> Result<Vec<(SweepParameter, String)>, Failure> {
        let mut of_relay = Vec::new();
        for (parameter, value) in self.axes.values(cell) {
            self.load.set(parameter, value).map_err(Failure::Usage)?;
            if parameter.is_of_relay() {
                of_relay.push((parameter, value.to_owned()));
            }
        }
        Ok(of_relay)
    }

    fn plan(&mut self, cell: usize) -> Result<LoadPlan, Failure> {
        self.set(cell)?;
        load::checked_plan(&self.load.0, self.is_token_named)
    }

    /// Makes all runs that have not been made. Returns why it ended before the last, if it did.
    fn run_all(
        &mut self,
        header: &SweepHeader,
        results: &mut SweepResults,
        mut file: Option<&mut SaveFile>,
        interrupt: &Interrupt,
    ) -> Result<Option<EarlySweepEnd>, Failure> {
        let begin = Instant::now();
        let made_before = results.runs().len();
        let cells = self.axes.cells();
        self.load.0.warm_up = span(header.times.warm_up);
        self.load.0.duration = span(header.times.measured);
        let order = order(self.axes.cells(), header.times.runs, header.seed);
        let all = order.len();
        for (number, (cell, run)) in order.into_iter().enumerate() {
            if results.has(cell, run) {
                continue;
            }
            let made = results.runs().len();
            if interrupt.is_set() {
                return ended(results, interrupted(made, all));
            }
            let made_now = made - made_before;
            let begins_round = number.is_multiple_of(cells);
            if begins_round
                && let Some(text) = self.is_spent(begin.elapsed(), made_now, run, header.times)
            {
                return Ok(Some(EarlySweepEnd::Budget(text)));
            }
            let left = header.times.total(all.saturating_sub(made)).as_secs();
            let label = self.axes.label(cell);
            note(format_args!(
                "pelton lab sweep: run {} of {all}: {label}; about {left} s left",
                made + 1
            ));
            let at_ms = now_ms();
            let figures = match self.run(cell, interrupt) {
                Ok(Some(figures)) => figures,
                Ok(None) | Err(Failure::Interrupted(_)) => {
                    return ended(results, interrupted(made, all));
                }
                Err(failure) => return ended(results, failure.with(&format!("it was at {label}"))),
            };
            let run = SweepRun {
                cell,
                run,
                at_ms,
                figures,
            };
            let line = run.line(&self.axes);
            results.push(run);
            let saved = file.as_mut().map_or(Ok(()), |file| file.append(&line));
            if let Err(failure) = saved {
                return ended(results, failure);
            }
        }
        Ok(None)
    }

    /// Whether the budget has no room for the round that begins: runs may take longer than was
    /// reckoned with, as each has a database to fill. The first round is always made, and so is one
    /// where a sweep is gone on with.
    fn is_spent(
        &self,
        elapsed: Duration,
        made: usize,
        run: usize,
        times: SweepTimes,
    ) -> Option<String> {
        let (budget, cells) = (self.budget?, self.axes.cells());
        if run == 0 || made == 0 {
            return None;
        }
        let each = elapsed.as_secs_f64() / made as f64;
        let with_next_s = elapsed.as_secs_f64() + each * cells as f64;
        (with_next_s > budget.as_secs_f64() * BUDGET_EXCESS).then(|| {
            format!(
                "the budget has no room for more than {run} of {} rounds, as a run takes \
                 {each:.1} s with all that it needs; with --save, --resume and a larger --budget \
                 the others are made",
                times.runs
            )
        })
    }

    /// Makes one run. `None`: the user did not let it come to its end.
    fn run(&mut self, cell: usize, interrupt: &Interrupt) -> Result<Option<RunFigures>, Failure> {
        let conditions = self.set(cell)?;
        let target = self.load.0.address.clone();
        let relay = match conditions.is_empty() {
            true => None,
            false => Some(SweepRelay::start(&target, &conditions)?),
        };
        let had_authority = self.load.0.authority.is_some();
        if let Some(relay) = &relay {
            self.load.0.address = relay.address().clone();
            let is_named = matches!(target, Address::Tcp { .. });
            if is_named && !had_authority && self.load.0.protocol == LoadProtocol::Grpc {
                self.load.0.authority = Some(target.to_string());
            }
        }
        let plan = load::checked_plan(&self.load.0, self.is_token_named);
        let report = plan.and_then(|plan| load::measure(&self.load.0, &plan, interrupt));
        self.load.0.address = target;
        if !had_authority {
            self.load.0.authority = None;
        }
        drop(relay);
        let report = report?;
        let outcome = report.outcome();
        if outcome.was_stopped {
            return Ok(None);
        }
        // Without failures none began: the machine is busy, and the server need not be gone.
        if outcome.tally.succeeded == 0 && report.has_failures() {
            let why = outcome.tally.first_failure.as_deref();
            return Err(Failure::Failed(format!(
                "no call to {} succeeded: {}",
                self.load.0.address,
                why.unwrap_or("those that were sent have not ended")
            )));
        }
        let figures = RunFigures::new(report.fields());
        figures.map(Some).ok_or_else(|| {
            Failure::Failed("internal error: the result of a run has no calls_per_s".into())
        })
    }
}

/// A sweep that ends before its last run is a report of those that were made, if there are any.
fn ended(results: &SweepResults, failure: Failure) -> Result<Option<EarlySweepEnd>, Failure> {
    match results.runs().is_empty() {
        true => Err(failure),
        false => Ok(Some(EarlySweepEnd::Broken(failure.to_string()))),
    }
}

fn interrupted(made: usize, all: usize) -> Failure {
    Failure::Interrupted(format!("interrupted after {made} of {all} runs"))
}

fn load_of(matches: &ArgMatches) -> Result<SweptLoad, Failure> {
    let mut chosen = matches;
    while let Some((_, inner)) = chosen.subcommand() {
        chosen = inner;
    }
    SweptLoad::from_arg_matches(chosen).map_err(|error| Failure::Usage(error.to_string()))
}

/// Checks that flags do not contradict the sweep.
fn check_flags(
    load: &LoadArguments,
    axes: &SweepAxes,
    matches: &ArgMatches,
) -> Result<(), Failure> {
    let usage = |text: String| Err(Failure::Usage(text));
    if load.calls.is_some() {
        return usage(
            "--calls does not go with a sweep, whose runs are of equal length: take --duration, or \
             --budget"
                .into(),
        );
    }
    check_once_only(load)?;
    for axis in axes.axes() {
        let name = axis.parameter.name();
        if is_on_command_line(matches, &name.replace('-', "_")) {
            return usage(format!(
                "--{name} is swept, and given: leave out one of the two"
            ));
        }
        if axis.parameter.is_of_relay() && load.tls.is_wanted() {
            return usage(format!(
                "--over {name} does not go with TLS: the server's certificate does not name the \
                 relay. `pelton lab tap` can end TLS, and be the target of a sweep"
            ));
        }
        let is_grpc = load.protocol == LoadProtocol::Grpc;
        if axis.parameter == SweepParameter::StreamLimit && !is_grpc {
            return usage("--over stream-limit goes only with --protocol grpc".into());
        }
    }
    Ok(())
}

/// Refuses what is for one run: standard input can be read once, and files and conditions of a load
/// would be those of the last run.
fn check_once_only(load: &LoadArguments) -> Result<(), Failure> {
    let usage = |text: &str| Err(Failure::Usage(text.into()));
    let is_stdin = |file: &Option<PathBuf>| file.as_deref() == Some(Path::new("-"));
    if is_stdin(&load.data_file)
        || is_stdin(&load.request_file)
        || load.data.as_deref() == Some("@-")
    {
        return usage(
            "standard input can be read once, and a sweep has several runs: take a file for the \
             request",
        );
    }
    if load.histogram.is_some() {
        return usage(
            "--histogram does not go with a sweep, which has several runs: --save keeps them",
        );
    }
    if !load.require.is_empty() {
        return usage(
            "--require does not go with a sweep, which has several runs: check what --output json \
             or `pelton lab compare` prints",
        );
    }
    Ok(())
}

fn now_ms() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    since_1970.unwrap_or_default().as_millis() as u64
}

fn span(time: Duration) -> Span {
    Span {
        ms: time.as_millis() as u64,
    }
}
