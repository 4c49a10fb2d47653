//! `pelton load gupload`

use std::time::Duration;

use client::ChannelOptions;
use lab::{UploadFailure, UploadPlan, UploadReport, UploadRunError, UploadWay, run_uploads};

use super::plan::{NO_DEADLINE, foreign_credentials};
use super::print;
use crate::arguments::GuploadLoadArguments;
use crate::command::call_failure;
use crate::command::tls::{client_tls, connect_failure};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;

/// What is called, in messages about it.
const GRPC_METHOD: &str = "messaging.GuploadService/Upload";
const HTTP_REQUEST: &str = "POST /upload";

/// Uploads a file in chunks, again and again. `is_token_named`: --token-file stands on the command
/// line.
pub fn load_gupload(
    arguments: &GuploadLoadArguments,
    is_token_named: bool,
) -> Result<Exit, Failure> {
    let plan = plan(arguments, is_token_named)?;
    let interrupt = Interrupt::listen();
    let outcome = run_uploads(&plan, &mut || !interrupt.is_set());
    let outcome = outcome.map_err(|error| failure(&plan, error))?;
    let nothing = || Failure::Failed(format!("no upload to {} has succeeded", plan.address));
    let report = UploadReport::new(plan.clone(), outcome).ok_or_else(nothing)?;
    print(&report, arguments.target.format)?;
    Ok(match (report.was_stopped(), report.has_failure()) {
        (true, _) => Exit::of_signal(),
        (false, true) => Exit::Miss,
        (false, false) => Exit::Done,
    })
}

fn plan(arguments: &GuploadLoadArguments, is_token_named: bool) -> Result<UploadPlan, Failure> {
    let target = &arguments.target;
    if arguments.deadline.ms == 0 {
        return Err(Failure::Usage(NO_DEADLINE.into()));
    }
    let named = ("load gupload", is_token_named);
    let credentials =
        foreign_credentials(&target.address, &target.tls, &target.credentials, named)?;
    Ok(UploadPlan {
        address: target.address.clone(),
        channel: ChannelOptions {
            connect_timeout: Duration::from_millis(target.timeout.ms),
            tls: client_tls(&target.tls)?,
            credentials,
            ..ChannelOptions::default()
        },
        way: match (arguments.http2, arguments.compress) {
            (true, _) => UploadWay::Http2,
            (false, true) => UploadWay::GrpcGzip,
            (false, false) => UploadWay::Grpc,
        },
        file_bytes: arguments.size,
        chunk_bytes: arguments.chunk_size,
        warm_up: arguments.warm_up,
        uploads: arguments.uploads,
        deadline: Duration::from_millis(arguments.deadline.ms),
        server_process: arguments.server_pid,
    })
}

/// Why no upload was measured, and what helps.
fn failure(plan: &UploadPlan, error: UploadRunError) -> Failure {
    let called = match plan.way {
        UploadWay::Grpc | UploadWay::GrpcGzip => GRPC_METHOD,
        UploadWay::Http2 => HTTP_REQUEST,
    };
    match error {
        UploadRunError::Connect(error) => connect_failure(&plan.address, &error),
        UploadRunError::NoProcess { .. } => Failure::Failed(format!(
            "{error}; --server-pid is the process of a server on this machine"
        )),
        UploadRunError::Upload(UploadFailure::Call(error)) => {
            call_failure(&plan.address.to_string(), called, &error)
        }
        UploadRunError::Upload(UploadFailure::Interrupted) => Failure::Interrupted(format!(
            "interrupted: no upload to {} had ended that is measured",
            plan.address
        )),
        UploadRunError::Upload(error) => {
            Failure::Failed(format!("{called} on {}: {error}", plan.address))
        }
    }
}
