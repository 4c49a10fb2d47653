//! What a load does, by its flags.

use std::time::Duration;

use client::Credentials;
use lab::{Arrivals, ConnectionMode, Length, LoadPlan, Pace, WorkerPlan};
use net::Address;

use crate::arguments::{
    CpuList, CredentialArguments, LoadArguments, LoadArrivals, LoadMode, TlsArguments,
};
use crate::command::tls::{client_tls, connect_failure};
use crate::cpus;
use crate::credentials::credentials;
use crate::exit::Failure;

/// Places for calls on a connection, without and with --rate.
pub(super) const CLOSED_IN_FLIGHT: usize = 16;
const OPEN_IN_FLIGHT: usize = 1_000;

/// What proves who calls, if it may be sent there.
pub(super) fn load_credentials(
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

/// Returns the plan of a run.
///
/// # Errors
/// If flags contradict each other.
pub(super) fn plan(arguments: &LoadArguments) -> Result<LoadPlan, Failure> {
    let mode = match arguments.mode {
        LoadMode::Multiplexed => ConnectionMode::Multiplexed,
        LoadMode::Exclusive => ConnectionMode::Exclusive,
        LoadMode::Short => ConnectionMode::Short,
    };
    check(arguments, mode)?;
    check_pin(arguments.pin.as_ref())?;
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
            credentials: load_credentials(
                &arguments.address,
                &arguments.tls,
                &arguments.credentials,
            )?,
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
    if arguments.calls.is_none() && arguments.duration.ms == 0 {
        return usage("--duration 0 measures nothing; write 10s or so".into());
    }
    Ok(())
}
