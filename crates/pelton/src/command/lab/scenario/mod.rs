//! `pelton lab scenario`

mod csv_files;
mod launch;
mod one_run;

use lab::machine::OnMachine;
use lab::scenario::{Measurements, PlannedClient, Scenario, ScenarioPlan, ScenarioReport};
use net::Address;

use super::print_report;
use crate::arguments::{ScenarioArguments, ScenarioName, first_given};
use crate::command::load_machine::load_machine;
use crate::command::page_file::PageFile;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::output::note;
use csv_files::CsvFiles;
use launch::Launcher;
use one_run::{RunFailure, measure};

/// Where the servers of a scenario listen.
const LOOPBACK: &str = "127.0.0.1";

/// The Python of a client, where nothing else is asked for.
const PYTHON: &str = "python3";

/// Refuses programs of clients that no run of a scenario is of.
fn check_clients(arguments: &ScenarioArguments, plan: &ScenarioPlan) -> Result<(), Failure> {
    let has = |is_of: fn(&PlannedClient) -> bool| plan.runs.iter().any(|run| is_of(&run.client));
    let has_python = has(|client| !matches!(client, PlannedClient::Pelton(_)));
    let has_grpc = has(|client| matches!(client, PlannedClient::Grpc(_)));
    let refused = [
        ("--python", arguments.python.is_some() && !has_python),
        (
            "--grpc-client",
            arguments.grpc_client.is_some() && !has_grpc,
        ),
    ];
    match first_given(refused) {
        None => Ok(()),
        Some(flag) => Err(Failure::Usage(format!(
            "{flag}: this scenario has no run of such a client"
        ))),
    }
}

/// Runs a published experiment again, and prints what became of its claims.
pub fn scenario(arguments: &ScenarioArguments) -> Result<Exit, Failure> {
    let scenario = match arguments.name {
        ScenarioName::Channels => Scenario::Channels,
        ScenarioName::InFlight => Scenario::InFlight,
        ScenarioName::ConnectionModes => Scenario::ConnectionModes,
        ScenarioName::ServerModes => Scenario::ServerModes,
        ScenarioName::ChunkSize => Scenario::ChunkSize,
    };
    let csv_files = arguments.csv.as_deref();
    let csv_files = csv_files.map(|path| CsvFiles::check(path, scenario));
    let csv_files = csv_files.transpose()?;
    let page = PageFile::check("--html", arguments.html.as_deref())?;
    let scale = arguments.scale();
    let mut plan = scenario.plan(scale);
    if let Some(rounds) = arguments.rounds {
        plan.rounds = rounds;
    }
    let seed = arguments.seed.unwrap_or_else(crate::randomness::random);
    check_clients(arguments, &plan)?;
    let python = arguments.python.clone().unwrap_or_else(|| PYTHON.into());
    let launcher = Launcher::new(python, arguments.grpc_client.clone())?;
    let interrupt = Interrupt::listen();
    note(format_args!(
        "pelton lab scenario: {} runs, some {} s; Ctrl-C shows what there is until then",
        plan.runs.len() * plan.rounds,
        plan.duration().as_secs()
    ));
    let machine = load_machine(&Address::Tcp {
        host: LOOPBACK.into(),
        port: 0,
    });
    let measured = measure_all(&plan, seed, &launcher, &interrupt);
    let report = ScenarioReport::new((scenario, scale), plan, seed, measured).on_machine(machine);
    page.write_and_print(
        || report.html(),
        || print_report(arguments.output, &report.text(), || report.fields()),
    )?;
    if let Some(files) = csv_files {
        files.write(&report)?;
    }
    if !report.has_runs() {
        let text = "nothing was measured: the lines `not run` say why";
        return Err(match interrupt.is_set() {
            true => Failure::Interrupted("nothing was measured".into()),
            false => Failure::Failed(text.into()),
        });
    }
    Ok(match interrupt.is_set() {
        true => Exit::of_signal(),
        false => Exit::Done,
    })
}

/// Makes all runs of all rounds, one after the other.
fn measure_all(
    plan: &ScenarioPlan,
    seed: u64,
    launcher: &Launcher,
    interrupt: &Interrupt,
) -> Measurements {
    let mut measured = Measurements::default();
    let mut missing = MissingClients::default();
    let order = plan.in_random_order(seed);
    for (index, run) in order.iter().enumerate() {
        if interrupt.is_set() {
            measured.add_missing(&run.name, "it was interrupted");
            continue;
        }
        if index > 0 && index % plan.runs.len() == 0 {
            note(format_args!(
                "pelton lab scenario: {index} of {} runs are made",
                order.len()
            ));
        }
        if let Some(why) = missing.of(&run.client) {
            measured.add_missing(&run.name, why);
            continue;
        }
        match measure(plan, run, launcher, interrupt) {
            Ok(one) => measured.add(one),
            Err(failure) => {
                let why = failure.to_string();
                measured.add_missing(&run.name, &why);
                if matches!(failure, RunFailure::NoClient(_)) {
                    missing.note(&run.client, why);
                }
            }
        }
    }
    measured
}

/// Why clients are not there, which is found out once for each kind.
#[derive(Default)]
struct MissingClients {
    grpc: Option<String>,
    grpcio: Option<String>,
    pelton_grpc: Option<String>,
}

impl MissingClients {
    fn of(&self, client: &PlannedClient) -> Option<&str> {
        match client {
            PlannedClient::Pelton(_) => None,
            PlannedClient::Grpc(_) => self.grpc.as_deref(),
            PlannedClient::Grpcio(_) => self.grpcio.as_deref(),
            PlannedClient::PeltonGrpc(_) => self.pelton_grpc.as_deref(),
        }
    }

    fn note(&mut self, client: &PlannedClient, why: String) {
        match client {
            PlannedClient::Pelton(_) => {}
            PlannedClient::Grpc(_) => self.grpc = Some(why),
            PlannedClient::Grpcio(_) => self.grpcio = Some(why),
            PlannedClient::PeltonGrpc(_) => self.pelton_grpc = Some(why),
        }
    }
}
