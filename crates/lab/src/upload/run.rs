//! Uploads, one after the other.

use std::io;
use std::time::Duration;

use client::{Address, Channel, ChannelOptions, ConnectError};
use thiserror::Error;

use super::content::content;
use super::transfer::{UploadFailure, UploadTimes, UploadWay, upload};
use crate::process::{own_cpu_ns, process_cpu_ns};

/// What is uploaded, and how.
#[derive(Clone, Debug)]
pub struct UploadPlan {
    /// The server.
    pub address: Address,
    /// How the connection is to be.
    pub channel: ChannelOptions,
    /// How an upload goes.
    pub way: UploadWay,
    /// Bytes of the file.
    pub file_bytes: usize,
    /// Bytes of a chunk, but for the last one.
    pub chunk_bytes: usize,
    /// Uploads before those that are measured.
    pub warm_up: usize,
    /// Uploads that are measured.
    pub uploads: usize,
    /// How long each may take.
    pub deadline: Duration,
    /// The server's process, if its CPU time is to be measured.
    pub server_process: Option<u32>,
}

/// What was measured.
#[derive(Clone, Debug, Default)]
pub struct UploadRunOutcome {
    /// The uploads that have succeeded.
    pub uploads: Vec<UploadTimes>,
    /// Why a further one failed, which ended the run.
    pub failure: Option<UploadFailure>,
    /// It was interrupted before the last one.
    pub was_stopped: bool,
    /// CPU time of this process meanwhile, in nanoseconds.
    pub own_cpu_ns: u64,
    /// That of the server.
    pub server_cpu_ns: Option<u64>,
}

/// Why nothing was measured.
#[derive(Debug, Error)]
pub enum UploadRunError {
    /// There is no connection.
    #[error("{0}")]
    Connect(#[from] ConnectError),
    /// The server's process cannot be looked at.
    #[error("cannot read the CPU time of process {process}: {error}")]
    NoProcess {
        /// Which.
        process: u32,
        /// Why.
        error: io::Error,
    },
    /// The first upload has failed.
    #[error("{0}")]
    Upload(UploadFailure),
}

/// Uploads as planned, until one fails or `go_on` returns `false`.
///
/// # Errors
/// If no upload could be measured.
pub fn run_uploads(
    plan: &UploadPlan,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<UploadRunOutcome, UploadRunError> {
    let server_ns = || match plan.server_process {
        None => Ok(None),
        Some(process) => process_cpu_ns(process)
            .map(Some)
            .map_err(|error| UploadRunError::NoProcess { process, error }),
    };
    server_ns()?;
    let content = content(plan.file_bytes);
    let mut channel = Channel::connect(&plan.address, &plan.channel)?;
    let mut once = || {
        let chunks = (&content[..], plan.chunk_bytes);
        upload(&mut channel, plan.way, chunks, plan.deadline, go_on)
    };
    for _ in 0..plan.warm_up {
        once().map_err(UploadRunError::Upload)?;
    }
    let (server_before_ns, own_before_ns) = (server_ns()?, own_cpu_ns());
    let mut outcome = UploadRunOutcome::default();
    for _ in 0..plan.uploads {
        match once() {
            Ok(times) => outcome.uploads.push(times),
            Err(failure) if outcome.uploads.is_empty() => {
                return Err(UploadRunError::Upload(failure));
            }
            Err(UploadFailure::Interrupted) => {
                outcome.was_stopped = true;
                break;
            }
            Err(failure) => {
                outcome.failure = Some(failure);
                break;
            }
        }
    }
    outcome.own_cpu_ns = own_cpu_ns().saturating_sub(own_before_ns);
    // A server that has gone meanwhile has no figure.
    let server_after_ns = server_ns().ok().flatten();
    let both = server_after_ns.zip(server_before_ns);
    outcome.server_cpu_ns = both.map(|(after, before)| after.saturating_sub(before));
    Ok(outcome)
}
