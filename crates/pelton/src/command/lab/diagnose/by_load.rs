//! A diagnosis by our own generator.

use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use client::{Channel, ChannelOptions, Credentials};
use lab::agent::RemoteWatch;
use lab::diagnose::{
    DiagnosisReport, LoadCeiling, LoadDiagnosis, LoadEvidence, LoadPoint, LoadSubject, MakeBatches,
    ServerWatch, SystemFolders, WatchSwitch, judge_load, limits,
};
use lab::{
    Distribution, Length, LoadPlan, LoadRunError, MethodError, MethodKind, MethodName, PeltonLoad,
    PeltonShape, PeltonWorkload, SameRequest, ValueSizes, WorkerPlan, Workload,
};
use net::Address;

use super::super::this_machine::is_on_this_machine;
use super::{WatchedServer, safety};
use crate::arguments::{ConnectionArguments, DiagnoseArguments, OutputFormat, ProfileArguments};
use crate::command::CONNECT_HINT;
use crate::command::load::own_database::OwnDatabase;
use crate::command::load::read_named;
use crate::command::tls::{client_tls, connect_failure};
use crate::credentials::{credentials, is_token_in_environment};
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::output::note;

/// Keys of the database that is made for a diagnosis: few enough that storing them is no load.
const KEYS: u64 = 10_000;

/// Records of one Batch while they are stored.
const FILL_RECORDS: usize = 100;

/// Operations of one Batch, where several in a message are compared with one.
const BATCH_RECORDS: usize = 10;

/// Connections by which the way to a server is measured: the shortest counts.
const ROUND_TRIPS: usize = 3;

/// What to look at when there is no connection.
const NOT_REACHED_HINT: &str = "is the server running? --target says where it listens";

/// Who calls.
pub(super) struct CallerIdentity {
    /// A token was named on the command line, so that it may go to any server.
    pub(super) is_token_named: bool,
}

/// Makes the experiments, and decides.
pub(super) fn diagnose(
    arguments: &DiagnoseArguments,
    caller: &CallerIdentity,
    server: &WatchedServer<'_>,
    interrupt: &Interrupt,
) -> Result<DiagnosisReport, Failure> {
    safety::check_target(arguments)?;
    let plan = plan(arguments, caller)?;
    let subject = LoadSubject {
        ceiling: LoadCeiling {
            rate: arguments.max_rate as f64,
            in_flight: arguments.max_in_flight,
            time_ns: arguments.max_time.ms.saturating_mul(1_000_000),
        },
        server_processes: server.processes.to_vec(),
        round_trip_ns: round_trip_ns(&arguments.target, plan.connect_timeout),
        plan,
    };
    let (what, evidence) = match (&arguments.method, &arguments.data) {
        (Some(method), Some(data)) => {
            let (method, request) = encode(arguments, &subject.plan, method, data)?;
            safety::note_ceiling(arguments);
            let workload = SameRequest::new(method.path(), request);
            let make = || workload.clone();
            let evidence = experiments((&subject, server.agent), make, None, interrupt)?;
            (method.to_string(), evidence)
        }
        _ => {
            let evidence = load_own_database(arguments, (&subject, server.agent), interrupt)?;
            (format!("{}, {KEYS} keys", arguments.mix), evidence)
        }
    };
    let text = format!(
        "{what} at {}, at most {} calls/s with {} in flight",
        arguments.target, arguments.max_rate, arguments.max_in_flight
    );
    let diagnosis = judge_load(&evidence);
    Ok(DiagnosisReport::of_load(text, diagnosis, evidence))
}

fn experiments<W: Workload>(
    (subject, agent): (&LoadSubject, Option<&RemoteWatch>),
    make: impl Fn() -> W + Sync,
    batches: Option<MakeBatches<'_>>,
    interrupt: &Interrupt,
) -> Result<LoadEvidence, Failure> {
    let folders = SystemFolders::default();
    let is_stopped = || interrupt.is_set();
    let mut show = |point: &LoadPoint| {
        note(format_args!(
            "pelton lab diagnose: {} in flight on {}: {:.0} calls/s",
            point.in_flight,
            match point.connections {
                1 => "one connection".to_owned(),
                several => format!("{several} connections"),
            },
            point.rate
        ));
    };
    let watch =
        agent.map(|agent| move |switch: &WatchSwitch, most_ns: u64| agent.watch(switch, most_ns));
    let watch = watch.as_ref().map(|watch| watch as ServerWatch<'_>);
    let experiments = LoadDiagnosis::new(subject, &folders, &is_stopped)
        .watched_by(watch)
        .with_batches(batches);
    let evidence = experiments.run(make, &mut show);
    let evidence = evidence.map(|evidence| LoadEvidence {
        agent: agent.map(RemoteWatch::presence),
        ..evidence
    });
    evidence.map_err(|error| match error {
        LoadRunError::Connect(text) => Failure::Failed(format!("{text}; {NOT_REACHED_HINT}")),
        LoadRunError::BadRequest(_) => Failure::Usage(error.to_string()),
        LoadRunError::Stopped => {
            Failure::Interrupted("interrupted before any call was made".into())
        }
        LoadRunError::System(_) => Failure::Failed(error.to_string()),
    })
}

/// Loads a database that is made for it, and removes it however that ends.
fn load_own_database(
    arguments: &DiagnoseArguments,
    (subject, agent): (&LoadSubject, Option<&RemoteWatch>),
    interrupt: &Interrupt,
) -> Result<LoadEvidence, Failure> {
    let own = OwnDatabase::create_over(ConnectionArguments {
        address: arguments.target.clone(),
        timeout: arguments.timeout,
        output: OutputFormat::Text,
        tls: arguments.tls.clone(),
        credentials: arguments.credentials.clone(),
        profile: ProfileArguments::default(),
    });
    let own = own.map_err(with_hint)?;
    safety::note_ceiling(arguments);
    let load = PeltonLoad {
        mix: arguments.mix.clone(),
        shape: PeltonShape::Single,
        database: own.name().to_owned(),
        keys: KEYS,
        key_bytes: 16,
        distribution: Distribution::Uniform,
        values: ValueSizes::Fixed(32),
    };
    let evidence = fill(&load, subject, interrupt).and_then(|()| {
        let make = || PeltonWorkload::new(&load, 1, 0, 1);
        let batches = PeltonLoad {
            shape: PeltonShape::Batch(BATCH_RECORDS),
            ..load.clone()
        };
        let make_batches = || PeltonWorkload::new(&batches, 1, 0, 1);
        experiments((subject, agent), make, Some(&make_batches), interrupt)
    });
    let removed = own.remove();
    match (evidence, removed) {
        (Err(failure), Err(left)) => Err(failure.with(&left.to_string())),
        (Ok(evidence), Err(failure)) => {
            note(format_args!("pelton: {failure}"));
            Ok(evidence)
        }
        (evidence, Ok(())) => evidence,
    }
}

/// Stores every key once, if any are to be read.
fn fill(load: &PeltonLoad, subject: &LoadSubject, interrupt: &Interrupt) -> Result<(), Failure> {
    if !load.mix.has_reads() {
        return Ok(());
    }
    let fill = load.fill(FILL_RECORDS);
    let mut plan = subject.plan.clone();
    plan.length = Length::Calls(KEYS.div_ceil(FILL_RECORDS as u64));
    // A server that hangs must not hold up the diagnosis.
    plan.worker.deadline_ns = Some(limits::DIAGNOSE_DEADLINE.as_nanos() as u64);
    plan.stop_on_failure = true;
    let make = |_| PeltonWorkload::new(&fill, 0, 0, 1);
    let outcome = lab::run(&plan, make, &mut |_| !interrupt.is_set());
    let outcome = outcome.map_err(|error| Failure::Failed(error.to_string()))?;
    match outcome.tally.first_failure {
        None => Ok(()),
        Some(reason) => Err(Failure::Failed(format!(
            "cannot store keys on {}: {reason}",
            plan.address
        ))),
    }
}

/// A plan of calls in a closed loop, one at a time, which experiments change.
fn plan(arguments: &DiagnoseArguments, caller: &CallerIdentity) -> Result<LoadPlan, Failure> {
    let connect_timeout = Duration::from_millis(arguments.timeout.ms);
    Ok(LoadPlan {
        tls: client_tls(&arguments.tls)?,
        worker: WorkerPlan {
            credentials: identity(arguments, caller)?,
            ..WorkerPlan::closed(1)
        },
        ..LoadPlan::to(arguments.target.clone(), connect_timeout, Length::Calls(1))
    })
}

/// What proves who calls: to the service of somebody else only what was named for it.
fn identity(
    arguments: &DiagnoseArguments,
    caller: &CallerIdentity,
) -> Result<Option<Credentials>, Failure> {
    if arguments.method.is_some() && !caller.is_token_named {
        if is_token_in_environment() {
            note(
                "pelton: the token of the environment is not sent with --method; --token-file \
                 FILE sends one",
            );
        }
        return Ok(None);
    }
    let credentials = credentials(&arguments.credentials)?;
    if let Some(credentials) = &credentials {
        let checked = credentials.check(&arguments.target, arguments.tls.is_wanted());
        checked.map_err(|error| connect_failure(&arguments.target, &error))?;
    }
    Ok(credentials)
}

/// The method with the package of its service, and the bytes of its request, if it may be called
/// again and again.
fn encode(
    arguments: &DiagnoseArguments,
    plan: &LoadPlan,
    method: &MethodName,
    json: &str,
) -> Result<(MethodName, Vec<u8>), Failure> {
    let target = &arguments.target;
    let in_words = |error: MethodError| match error {
        MethodError::NoReflection(reason) => Failure::Failed(format!(
            "{target}: the server does not say what its methods are ({reason}); give \
             --descriptor-set FILE"
        )),
        MethodError::BadDescriptors(_) => Failure::Failed(format!("{target}: {error}")),
        error => Failure::Usage(error.to_string()),
    };
    let descriptors = match &arguments.descriptor_set {
        Some(file) => read_named("--descriptor-set", file, lab::limits::MAX_DESCRIPTOR_BYTES)?,
        None => {
            let timeout = plan.connect_timeout;
            let options = ChannelOptions {
                connect_timeout: timeout,
                tls: plan.tls.clone(),
                credentials: plan.worker.credentials.clone(),
                ..ChannelOptions::default()
            };
            let channel = Channel::connect(target, &options);
            let mut channel =
                channel.map_err(|error| with_hint(connect_failure(target, &error)))?;
            lab::descriptors_of(&mut channel, method.service(), timeout).map_err(in_words)?
        }
    };
    let described = method.described_in(&descriptors).map_err(in_words)?;
    let method = described.name().clone();
    if described.kind() != MethodKind::Unary {
        return Err(Failure::Usage(format!(
            "{method} is a streaming method: name a unary one"
        )));
    }
    let request = described.request(json).map_err(in_words)?;
    let Some(bytes) = request.bytes() else {
        return Err(Failure::Usage(
            "--data: each call has the same request here; take the placeholders out".into(),
        ));
    };
    safety::check_method(arguments, &method, &descriptors)?;
    Ok((method, bytes.to_vec()))
}

/// The same failure; where it says which flag names the server, with the flag of this command.
fn with_hint(failure: Failure) -> Failure {
    match failure {
        Failure::Call(mut call) if call.hint == CONNECT_HINT => {
            NOT_REACHED_HINT.clone_into(&mut call.hint);
            Failure::Call(call)
        }
        other => other,
    }
}

/// How long a connection to a server of another machine takes, which is one way there and back.
fn round_trip_ns(target: &Address, timeout: Duration) -> Option<u64> {
    let Address::Tcp { host, port } = target else {
        return None;
    };
    if is_on_this_machine(target) {
        return None;
    }
    let address = (host.as_str(), *port).to_socket_addrs().ok()?.next()?;
    let connect = |_| {
        let begin = Instant::now();
        let connected = TcpStream::connect_timeout(&address, timeout);
        connected.ok().map(|_| begin.elapsed().as_nanos() as u64)
    };
    (0..ROUND_TRIPS).map_while(connect).min()
}
