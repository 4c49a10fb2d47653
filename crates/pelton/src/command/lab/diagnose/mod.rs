//! `pelton lab diagnose`

mod agent_watch;
mod by_client;
mod by_load;
mod safety;

use std::net::TcpStream;

use lab::agent::RemoteWatch;
use lab::diagnose::SystemFolders;
use lab::machine::OnMachine;
use net::Address;

use super::print_report;
use super::this_machine::is_on_this_machine;
use crate::arguments::{DiagnoseArguments, first_given};
use crate::command::load::check_process;
use crate::command::load_machine::load_machine;
use crate::command::page_file::PageFile;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::output::note;

/// How the server is watched.
struct WatchedServer<'a> {
    /// Its processes on this machine; empty: not known.
    processes: &'a [u32],
    /// An agent on its machine, which watches instead.
    agent: Option<&'a RemoteWatch>,
}

/// Makes the experiments, and prints what they come to. `is_token_named`: --token-file stands on
/// the command line.
pub(super) fn diagnose(
    arguments: &DiagnoseArguments,
    is_token_named: bool,
) -> Result<Exit, Failure> {
    check_client_flags(arguments, is_token_named)?;
    let folders = SystemFolders::default();
    let processes = server_processes(arguments, &folders)?;
    let agent = agent_watch::agent_watch(arguments)?;
    let server = WatchedServer {
        processes: &processes,
        agent: agent.as_ref(),
    };
    let interrupt = Interrupt::listen();
    let page = PageFile::check("--html", arguments.html.as_deref())?;
    let machine = load_machine(&arguments.target);
    let report = match &arguments.client {
        Some(command) => by_client::diagnose(arguments, command, &server, &interrupt)?,
        None => {
            let caller = by_load::CallerIdentity { is_token_named };
            by_load::diagnose(arguments, &caller, &server, &interrupt)?
        }
    };
    let report = report.on_machine(machine);
    page.write_and_print(
        || report.html(),
        || print_report(arguments.output, &report.text(), || report.fields()),
    )?;
    Ok(match report.has_evidence() {
        _ if interrupt.is_set() => Exit::of_signal(),
        true => Exit::Done,
        false => Exit::Miss,
    })
}

/// Refuses flags that say who calls, where the user's own command does.
fn check_client_flags(arguments: &DiagnoseArguments, is_token_named: bool) -> Result<(), Failure> {
    let flags = [
        ("--token-file", is_token_named),
        (
            "--token-without-tls",
            arguments.credentials.token_without_tls,
        ),
    ];
    let is_client = arguments.client.is_some();
    match first_given(flags).filter(|_| is_client) {
        None => Ok(()),
        Some(flag) => Err(Failure::Usage(format!(
            "{flag} does not go with --client: the command sends its own token"
        ))),
    }
}

/// The server's processes, as they were named, or by the port on which they listen.
fn server_processes(
    arguments: &DiagnoseArguments,
    folders: &SystemFolders,
) -> Result<Vec<u32>, Failure> {
    if arguments.agent.is_some() {
        return Ok(Vec::new());
    }
    if let Some(process) = arguments.server_pid {
        check_process(process)?;
        return Ok(vec![process]);
    }
    let Address::Tcp { port, .. } = &arguments.target else {
        note("pelton lab diagnose: --server-pid says which process serves a UNIX socket");
        return Ok(Vec::new());
    };
    if !is_on_this_machine(&arguments.target) {
        return Ok(Vec::new());
    }
    let found = folders.listeners(*port);
    // A server that is not there is told of by whoever calls it.
    if found.is_empty() && TcpStream::connect(arguments.target.to_string()).is_ok() {
        note(format_args!(
            "pelton lab diagnose: the process that listens on port {port} cannot be seen; \
             --server-pid names it, and a user may see it who is the server's, or root"
        ));
    }
    Ok(found)
}
