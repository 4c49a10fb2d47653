//! What a load does, by its flags.

use std::sync::Once;
use std::time::Duration;

use client::{Credentials, FramedProtocol};
use lab::{Arrivals, ConnectionMode, Length, LoadPlan, MetadataField, Pace, WorkerPlan};
use net::Address;

use crate::arguments::{
    CpuList, CredentialArguments, LoadArguments, LoadArrivals, LoadMode, LoadProtocol, LoadRate,
    TlsArguments,
};
use crate::command::tls::{client_tls, connect_failure};
use crate::cpus;
use crate::credentials::{credentials, is_token_in_environment};
use crate::exit::Failure;
use crate::output::note;

/// Places for calls on a connection, without and with --rate.
pub(super) const CLOSED_IN_FLIGHT: usize = 16;
const OPEN_IN_FLIGHT: usize = 1_000;

/// What is said of a deadline that no call can keep.
pub(super) const NO_DEADLINE: &str =
    "--deadline 0s leaves no time for any call; write 1s or so, or leave it out";

/// What proves who calls where the service may be anybody's, who is not to have the token of the
/// environment: only one that --token-file names. `what` brings that service in.
pub(super) fn foreign_credentials(
    address: &Address,
    tls: &TlsArguments,
    arguments: &CredentialArguments,
    (what, is_token_named): (&str, bool),
) -> Result<Option<Credentials>, Failure> {
    if is_token_named {
        return load_credentials(address, tls, arguments);
    }
    // Said once, however many loads follow each other.
    static NOTED: Once = Once::new();
    if is_token_in_environment() {
        NOTED.call_once(|| note(format_args!(
            "pelton: the token of the environment is not sent with {what}; --token-file FILE sends \
             one"
        )));
    }
    Ok(None)
}

/// What proves who calls, if it may be sent there.
fn load_credentials(
    address: &Address,
    tls: &TlsArguments,
    arguments: &CredentialArguments,
) -> Result<Option<Credentials>, Failure> {
    let credentials = credentials(arguments)?;
    if let Some(credentials) = &credentials {
        let checked = credentials.check(address, tls.is_wanted());
        checked.map_err(|error| connect_failure(address, &error))?;
    }
    Ok(credentials)
}

/// What proves who calls. With `--method` and `--echo` that may be a service of anybody.
fn plan_credentials(
    arguments: &LoadArguments,
    is_token_named: bool,
) -> Result<Option<Credentials>, Failure> {
    let (address, tls) = (&arguments.address, &arguments.tls);
    let foreign = [
        (arguments.method.is_some(), "--method"),
        (arguments.echo.is_some(), "--echo"),
    ];
    let credentials = match foreign.iter().find(|(is_given, _)| *is_given) {
        Some((_, what)) => {
            let named = (*what, is_token_named);
            foreign_credentials(address, tls, &arguments.credentials, named)?
        }
        None => load_credentials(address, tls, &arguments.credentials)?,
    };
    let is_own = |field: &MetadataField| field.name == "authorization";
    if credentials.is_some() && arguments.metadata.iter().any(is_own) {
        return Err(Failure::Usage(
            "--metadata authorization= and a token (--token-file, PELTON_TOKEN_FILE or \
             PELTON_TOKEN) would both be sent: leave one of them out"
                .into(),
        ));
    }
    Ok(credentials)
}

/// Returns the plan of a run. `is_token_named`: --token-file stands on the command line.
///
/// # Errors
/// If flags contradict each other.
pub(super) fn plan(arguments: &LoadArguments, is_token_named: bool) -> Result<LoadPlan, Failure> {
    let mode = mode(arguments)?;
    check(arguments, mode)?;
    check_protocol(arguments)?;
    check_pin(arguments.pin.as_ref())?;
    let arrivals = match arguments.arrivals {
        LoadArrivals::Fixed => Arrivals::Fixed,
        LoadArrivals::Poisson => Arrivals::Poisson,
    };
    let pace = match arguments.rate {
        None => Pace::Closed,
        Some(LoadRate::Constant(rate)) => Pace::Open { rate, arrivals },
        Some(LoadRate::Varying(profile)) => Pace::Varying { profile, arrivals },
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
    let length = match arguments.calls {
        Some(calls) => Length::Calls(calls),
        None => Length::Duration(Duration::from_millis(arguments.duration.ms)),
    };
    let connect_timeout = Duration::from_millis(arguments.timeout.ms);
    let deadline = arguments.deadline;
    Ok(LoadPlan {
        framed: framed(arguments.protocol),
        tls: client_tls(&arguments.tls)?,
        authority: arguments.authority.clone(),
        threads: arguments.threads,
        pin: arguments
            .pin
            .as_ref()
            .map_or_else(Vec::new, |cpus| cpus.0.clone()),
        connections: arguments.connections,
        worker: WorkerPlan {
            mode,
            pace,
            deadline_ns: deadline.map(|span| span.ms.saturating_mul(1_000_000)),
            metadata: arguments.metadata.clone(),
            credentials: plan_credentials(arguments, is_token_named)?,
            seed: arguments.seed,
            ..WorkerPlan::closed(in_flight)
        },
        warm_up: Duration::from_millis(arguments.warm_up.ms),
        server_process: arguments.server_pid,
        ..LoadPlan::to(arguments.address.clone(), connect_timeout, length)
    })
}

/// Returns how connections are used.
fn mode(arguments: &LoadArguments) -> Result<ConnectionMode, Failure> {
    let is_srpc = arguments.protocol == LoadProtocol::Srpc;
    let is_multiplexed = matches!(
        arguments.mode,
        Some(LoadMode::Multiplexed | LoadMode::Single)
    ) || arguments.in_flight.is_some_and(|in_flight| in_flight > 1);
    match arguments.mode {
        _ if is_srpc && is_multiplexed => Err(Failure::Usage(
            "a connection of --protocol srpc carries one call at a time: take --mode exclusive, \
             the default, or short, no --in-flight above 1, and as many --connections as there \
             are to be calls at a time"
                .into(),
        )),
        None if is_srpc => Ok(ConnectionMode::Exclusive),
        None | Some(LoadMode::Multiplexed | LoadMode::Single) => Ok(ConnectionMode::Multiplexed),
        Some(LoadMode::Exclusive | LoadMode::Pooled) => Ok(ConnectionMode::Exclusive),
        Some(LoadMode::Short) => Ok(ConnectionMode::Short),
    }
}

/// Returns what calls are made over, if it is not gRPC.
fn framed(protocol: LoadProtocol) -> Option<FramedProtocol> {
    match protocol {
        LoadProtocol::Grpc => None,
        LoadProtocol::BaiduStd => Some(FramedProtocol::BaiduStd),
        LoadProtocol::Srpc => Some(FramedProtocol::Srpc),
    }
}

/// Checks that the protocol has what the other flags ask for.
fn check_protocol(arguments: &LoadArguments) -> Result<(), Failure> {
    let only_grpc = [
        (arguments.pipe, "--pipe"),
        (arguments.authority.is_some(), "--authority"),
    ];
    match only_grpc.iter().find(|(is_given, _)| *is_given) {
        Some((_, flag)) if arguments.protocol != LoadProtocol::Grpc => Err(Failure::Usage(
            format!("{flag} goes only with --protocol grpc"),
        )),
        _ => Ok(()),
    }
}

/// Checks that the CPUs of `--pin` may be used, before anything is made on a server.
pub(super) fn check_pin(pin: Option<&CpuList>) -> Result<(), Failure> {
    let checked = pin.map_or(Ok(()), cpus::check);
    checked.map_err(|wrong| Failure::Usage(format!("--pin names {wrong}")))
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
    if arguments.deadline.is_some_and(|deadline| deadline.ms == 0) {
        return usage(NO_DEADLINE.into());
    }
    if let (Some(LoadRate::Varying(profile)), Some(calls)) = (arguments.rate, arguments.calls) {
        return usage(format!(
            "--rate {profile} changes over the measured time, and --calls {calls} has none; take \
             --duration"
        ));
    }
    if arguments.calls.is_none() && arguments.duration.ms == 0 {
        return usage("--duration 0 measures nothing; write 10s or so".into());
    }
    Ok(())
}
