//! What an agent on the server's machine sees, for a diagnosis here.

use std::thread;
use std::time::Instant;

use api::agent::{self, AgentWatchRequest};
use client::{CallError, CallOptions, Channel, ChannelOptions, Code, ConnectError};
use net::Address;
use thiserror::Error;

use super::activity_watch::read_report;
use super::limits::{AGENT_DIAGNOSIS_INTERVAL_MS, AGENT_REPORT_BYTES, AGENT_SILENCE};
use crate::diagnose::limits::LOOK_EVERY;
use crate::diagnose::{WatchSwitch, WatchedUse};
use crate::terminal_text::without_controls;

/// Why an agent does not watch.
#[derive(Debug, Error)]
pub enum RemoteWatchError {
    /// There is no connection to it.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// It says why it does not.
    #[error("the agent refuses: {reason}")]
    Refused {
        /// The status that it gave.
        code: Code,
        /// What it said.
        reason: String,
    },
    /// Something else listens there, or the connection broke.
    #[error("what listens there does not report as an agent does: {reason}")]
    NoReport {
        /// What is known of it.
        reason: String,
    },
}

/// An agent on the server's machine that reports.
#[derive(Debug)]
pub struct RemoteWatch {
    address: Address,
    options: ChannelOptions,
}

impl RemoteWatch {
    /// Connects to an agent, and waits for its first report.
    ///
    /// # Errors
    /// If there is no agent, or it does not see the server.
    pub fn new(
        address: Address,
        mut options: ChannelOptions,
    ) -> Result<RemoteWatch, RemoteWatchError> {
        options.max_message_bytes = AGENT_REPORT_BYTES;
        let watch = RemoteWatch { address, options };
        let mut first = None;
        watch.read_reports(&mut |seen, _| {
            first = Some(seen);
            false
        })?;
        match first.and_then(|seen| seen.process) {
            Some(_) => Ok(watch),
            None => Err(RemoteWatchError::NoReport {
                reason: "its report has nothing of a process".into(),
            }),
        }
    }

    /// Watches from the switch's begin to its end, and no longer than `most_ns`. Of an agent that
    /// does not report nothing is known.
    pub fn watch(&self, switch: &WatchSwitch, most_ns: u64) -> WatchedUse {
        while !switch.has_begun() {
            if switch.is_over() {
                return WatchedUse::default();
            }
            thread::sleep(LOOK_EVERY);
        }
        let interval_ns = u64::from(AGENT_DIAGNOSIS_INTERVAL_MS) * 1_000_000;
        let mut last = WatchedUse::default();
        let read = self.read_reports(&mut |seen, elapsed_ns| {
            // A report that came after the end is also about what was after it.
            if switch.is_over() && last.process.is_some() {
                return false;
            }
            last = seen;
            let is_last = elapsed_ns.saturating_add(interval_ns / 2) > most_ns;
            !is_last && !switch.is_over()
        });
        match read {
            Ok(()) => last,
            Err(_) => WatchedUse::default(),
        }
    }

    /// Has `take` see each report, with the time that it is about, until that returns false.
    fn read_reports(
        &self,
        take: &mut dyn FnMut(WatchedUse, u64) -> bool,
    ) -> Result<(), RemoteWatchError> {
        let mut channel = Channel::connect(&self.address, &self.options)?;
        let mut request = Vec::new();
        AgentWatchRequest {
            interval_ms: AGENT_DIAGNOSIS_INTERVAL_MS,
            cumulative: true,
        }
        .encode(&mut request);
        let path = format!("/{}", agent::WATCH.path);
        let reports = channel.server_streaming(&path, &request, &CallOptions::default());
        let mut reports = reports.map_err(failure)?;
        loop {
            reports.set_deadline(Some(Instant::now() + AGENT_SILENCE));
            let Some(message) = reports.next_message().map_err(failure)? else {
                return Ok(());
            };
            let Some((elapsed_ns, seen)) = read_report(&message) else {
                return Err(RemoteWatchError::NoReport {
                    reason: "its message is no report".into(),
                });
            };
            if !take(seen, elapsed_ns) {
                return Ok(());
            }
        }
    }
}

fn failure(error: CallError) -> RemoteWatchError {
    match error {
        CallError::Status(status) => RemoteWatchError::Refused {
            code: status.code(),
            reason: without_controls(status.message()),
        },
        CallError::DeadlineExceeded => RemoteWatchError::NoReport {
            reason: format!("nothing came for {} s", AGENT_SILENCE.as_secs()),
        },
        other => RemoteWatchError::NoReport {
            reason: without_controls(&other.to_string()),
        },
    }
}
