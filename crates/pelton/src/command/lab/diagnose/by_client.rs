//! A diagnosis by the user's own client, which runs behind the tap.

use std::ffi::OsString;
use std::thread;
use std::time::{Duration, Instant};

use lab::agent::RemoteWatch;
use lab::diagnose::{
    ClientEvidence, ClientRun, DiagnosisReport, EarlyEnd, RunConditions, SystemFolders,
    WatchSwitch, WatchedProcesses, client_run, judge_client, left_calls_time, watch_processes,
};
use lab::tap::{Tap, TapPlan, TapTarget, TapTotals};
use lab::thread_cpu_ns;
use net::Address;

use super::super::client_command::ClientCommand;
use super::super::tap::not_begun;
use super::WatchedServer;
use crate::arguments::DiagnoseArguments;
use crate::command::tls::client_tls;
use crate::cpus;
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::output::note;

/// After the client's end: how long its last connections may take to close.
const LAST_CLOSES: Duration = Duration::from_millis(200);

/// A pause that is so long needs a word.
const TOLD_WAIT: Duration = Duration::from_secs(1);

/// How often such a pause looks whether the user wants no more.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Runs the client under each condition that is needed, and decides.
pub(super) fn diagnose(
    arguments: &DiagnoseArguments,
    command: &str,
    server: &WatchedServer<'_>,
    interrupt: &Interrupt,
) -> Result<DiagnosisReport, Failure> {
    let begin = Instant::now();
    let most = Duration::from_millis(arguments.max_time.ms);
    let one = Duration::from_millis(arguments.client_time.ms);
    let mut evidence: Option<ClientEvidence> = None;
    let mut left = None;
    while let Some(conditions) = RunConditions::next(evidence.as_ref()) {
        if let Some(evidence) = &mut evidence
            && begin.elapsed() + left.unwrap_or_default() + one > most
        {
            evidence.early_end = Some(EarlyEnd::Time);
            break;
        }
        if let (Some(left), Some(evidence)) = (left, &mut evidence) {
            wait_for_left_calls(left, interrupt);
            if interrupt.is_set() {
                evidence.early_end = Some(EarlyEnd::User);
                break;
            }
        }
        note(format_args!(
            "pelton lab diagnose: runs the client {}",
            words(conditions)
        ));
        let made = run(arguments, command, conditions, server, interrupt);
        let (run, was_ended) = match (made, &mut evidence) {
            (Ok(made), _) => made,
            // What was measured before is worth more than why there is no more.
            (Err(Failure::Failed(why)), Some(evidence)) => {
                evidence.early_end = Some(EarlyEnd::NoRun(why));
                break;
            }
            (Err(failure), _) => return Err(failure),
        };
        left = was_ended.then(|| left_calls_time(&run)).flatten();
        match &mut evidence {
            None => evidence = Some(ClientEvidence::new(run)),
            Some(_) if interrupt.is_set() => {}
            Some(evidence) => evidence.add(conditions, run),
        }
        if let Some(evidence) = &mut evidence
            && interrupt.is_set()
        {
            evidence.early_end = Some(EarlyEnd::User);
        }
    }
    let Some(mut evidence) = evidence else {
        return Err(Failure::Failed("the client was not run".into()));
    };
    evidence.agent = server.agent.map(RemoteWatch::presence);
    let text = format!("{command}, behind a tap before {}", arguments.target);
    let diagnosis = judge_client(&evidence);
    Ok(DiagnosisReport::of_client(text, diagnosis, evidence))
}

/// Gives the server time for the calls of the client that was ended.
fn wait_for_left_calls(left: Duration, interrupt: &Interrupt) {
    if left >= TOLD_WAIT {
        note(format_args!(
            "pelton lab diagnose: waits {:.0} s for the server, which may still work on the calls \
             that this client has left",
            left.as_secs_f64()
        ));
    }
    let begin = Instant::now();
    while begin.elapsed() < left && !interrupt.is_set() {
        thread::sleep(LOOK_EVERY.min(left));
    }
}

fn words(conditions: RunConditions) -> String {
    match conditions {
        RunConditions::Plain => "as it is".to_owned(),
        RunConditions::Again => "as it is, once more".to_owned(),
        RunConditions::Halved(limit) => {
            format!("with at most {limit} calls open on a connection")
        }
        RunConditions::Single => "with one call open at a time on a connection".to_owned(),
        RunConditions::Pinned => "on one CPU".to_owned(),
        RunConditions::Delayed(delay_ns) => {
            format!("with {:.1} ms more of a way", delay_ns as f64 / 1e6)
        }
    }
}

/// One run of the client, and whether it had to be ended.
fn run(
    arguments: &DiagnoseArguments,
    command: &str,
    conditions: RunConditions,
    server: &WatchedServer<'_>,
    interrupt: &Interrupt,
) -> Result<(ClientRun, bool), Failure> {
    let tap = tap(arguments, conditions)?;
    let shell = ["sh", "-c", command].map(OsString::from);
    let cpu = match conditions {
        RunConditions::Pinned => cpus::last_usable(),
        _ => None,
    };
    let mut client = ClientCommand::start_on(&shell, tap.address(), cpu)?;
    let watched = [
        WatchedProcesses::Group(client.group()),
        WatchedProcesses::Each(server.processes.to_vec()),
    ];
    let (folders, switch) = (SystemFolders::default(), WatchSwitch::default());
    let mut end = ClientEnd {
        begin: Instant::now(),
        most: Duration::from_millis(arguments.client_time.ms),
        ended: None,
    };
    let (summary, seen) = thread::scope(|scope| {
        let watch = || watch_processes(&folders, &watched, &switch, u64::MAX);
        let watching = thread::Builder::new().spawn_scoped(scope, watch).ok();
        let agent_watching = server.agent.and_then(|agent| {
            let switch = &switch;
            let watch = move || agent.watch(switch, u64::MAX);
            thread::Builder::new().spawn_scoped(scope, watch).ok()
        });
        let summary = tap.run(&mut |totals| {
            if totals.begun > 0 {
                switch.begin();
            }
            let is_over = end.has_come(&mut client, totals, interrupt);
            if end.ended.is_some() || is_over {
                switch.end();
            }
            is_over
        });
        switch.end();
        let seen = watching.and_then(|thread| thread.join().ok());
        let mut seen = seen.unwrap_or_default();
        let by_agent = agent_watching.and_then(|thread| thread.join().ok());
        if let (Some(by_agent), Some(server)) = (by_agent, seen.get_mut(1)) {
            *server = by_agent;
        }
        (summary, seen)
    });
    let (text, _) = client.end();
    if let Some(text) = text {
        note(format_args!("pelton lab diagnose: {text}"));
    }
    let summary =
        summary.map_err(|error| Failure::Failed(format!("the relay had to end: {error}")))?;
    let mut seen = seen.into_iter();
    let (client, server) = (seen.next(), seen.next());
    let (client, server) = (client.unwrap_or_default(), server.unwrap_or_default());
    let run = client_run(&summary, client, server, &thread_cpu_ns);
    Ok((run, end.ended.is_none()))
}

/// The tap between the client and the server.
fn tap(arguments: &DiagnoseArguments, conditions: RunConditions) -> Result<Tap, Failure> {
    Tap::bind(TapPlan {
        listen: Address::Tcp {
            host: "127.0.0.1".into(),
            port: 0,
        },
        listen_tls: None,
        target: TapTarget {
            address: arguments.target.clone(),
            tls: client_tls(&arguments.tls)?,
        },
        conditions: conditions.of_tap(),
    })
    .map_err(not_begun)
}

/// When a run is over.
struct ClientEnd {
    begin: Instant,
    most: Duration,
    ended: Option<Instant>,
}

impl ClientEnd {
    fn has_come(
        &mut self,
        client: &mut ClientCommand,
        totals: &TapTotals,
        interrupt: &Interrupt,
    ) -> bool {
        if client.has_ended() {
            let ended = *self.ended.get_or_insert_with(Instant::now);
            return totals.begun == totals.ended || ended.elapsed() >= LAST_CLOSES;
        }
        interrupt.is_set() || self.begin.elapsed() >= self.most
    }
}
