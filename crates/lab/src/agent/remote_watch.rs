//! What an agent on the server's machine sees, for a diagnosis here.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use api::agent::{self, AgentWatchRequest};
use client::{CallError, CallOptions, Channel, ChannelOptions, Code, ConnectError};
use net::Address;
use thiserror::Error;

use super::limits::{
    AGENT_DIAGNOSIS_INTERVAL_MS, AGENT_REASON_CHARACTERS, AGENT_REPORT_BYTES, AGENT_SILENCE,
    AGENT_TOLERANCE,
};
use super::report_figures::{ReportReadError, read_report};
use crate::diagnose::limits::LOOK_EVERY;
use crate::diagnose::{AgentLoss, AgentLossCause, AgentPresence, WatchSwitch, WatchedUse};
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
    /// It reports what cannot be.
    #[error("it answers impossible figures: {figure}")]
    Impossible {
        /// Which, and what stands there.
        figure: String,
    },
    /// It reports nothing, or no more.
    #[error("nothing came for {} s", AGENT_SILENCE.as_secs())]
    Silent,
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
    begin: Instant,
    /// How it was lost, if it was: it is not asked again then.
    loss: Mutex<Option<AgentLoss>>,
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
        let mut watch = RemoteWatch {
            address,
            options,
            begin: Instant::now(),
            loss: Mutex::new(None),
        };
        let mut first = None;
        watch.read_reports(&mut |seen, _| {
            first = Some(seen);
            false
        })?;
        match first.and_then(|seen| seen.process) {
            Some(_) => {
                // It is near enough: an experiment does not wait for long if it is gone.
                let timeout = watch.options.connect_timeout.min(AGENT_SILENCE);
                watch.options.connect_timeout = timeout;
                Ok(watch)
            }
            None => Err(RemoteWatchError::NoReport {
                reason: "its report has nothing of a process".into(),
            }),
        }
    }

    /// Returns which agent it is, and how it was lost if it was.
    pub fn presence(&self) -> AgentPresence {
        AgentPresence {
            address: self.address.to_string(),
            loss: self.loss(),
        }
    }

    fn loss(&self) -> Option<AgentLoss> {
        // Nothing can panic while it is locked.
        self.loss.lock().ok().and_then(|loss| loss.clone())
    }

    /// The first loss stays: what comes after it follows from it.
    fn note_loss(&self, error: &RemoteWatchError) {
        let waited = match error {
            RemoteWatchError::Silent => AGENT_SILENCE,
            _ => Duration::ZERO,
        };
        let found = AgentLoss {
            after: self.begin.elapsed().saturating_sub(waited),
            cause: loss_cause(error),
        };
        if let Ok(mut loss) = self.loss.lock() {
            loss.get_or_insert(found);
        }
    }

    /// Watches from the switch's begin to its end, and no longer than `most_ns`. Of an agent that
    /// is lost meanwhile the last report counts, and nothing is known if there was none;
    /// [`RemoteWatch::presence`] has the reason then.
    pub fn watch(&self, switch: &WatchSwitch, most_ns: u64) -> WatchedUse {
        if self.loss().is_some() {
            return WatchedUse::default();
        }
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
        if let Err(error) = &read {
            self.note_loss(error);
        }
        match read {
            // Of what is no agent nothing is believed.
            Err(RemoteWatchError::Impossible { .. }) => WatchedUse::default(),
            _ => last,
        }
    }

    /// Has `take` see each report, with the time that it is about, until that returns false.
    fn read_reports(
        &self,
        take: &mut dyn FnMut(WatchedUse, u64) -> bool,
    ) -> Result<(), RemoteWatchError> {
        let mut channel = Channel::connect(&self.address, &self.options)?;
        let begin = Instant::now();
        let mut request = Vec::new();
        AgentWatchRequest {
            interval_ms: AGENT_DIAGNOSIS_INTERVAL_MS,
            cumulative: true,
        }
        .encode(&mut request);
        let path = format!("/{}", agent::WATCH.path);
        let reports = channel.server_streaming(&path, &request, &CallOptions::default());
        let mut reports = reports.map_err(failure)?;
        let mut last_ns = 0;
        loop {
            reports.set_deadline(Some(Instant::now() + AGENT_SILENCE));
            let Some(message) = reports.next_message().map_err(failure)? else {
                return Err(RemoteWatchError::NoReport {
                    reason: "it ended the call".into(),
                });
            };
            let (elapsed_ns, seen) = read_report(&message).map_err(not_read)?;
            check_time(elapsed_ns, last_ns, begin.elapsed())?;
            last_ns = elapsed_ns;
            if !take(seen, elapsed_ns) {
                return Ok(());
            }
        }
    }
}

/// Refuses a report about more time than has passed since the call began, or about less than the
/// one before.
fn check_time(
    elapsed_ns: u64,
    last_ns: u64,
    since_begin: Duration,
) -> Result<(), RemoteWatchError> {
    let most_ns = since_begin.as_nanos() as f64 * (1.0 + AGENT_TOLERANCE);
    if elapsed_ns >= last_ns && elapsed_ns as f64 <= most_ns {
        return Ok(());
    }
    let figure = format!(
        "elapsed_ns is {elapsed_ns}, {} ns after the call began and after a report of {last_ns}",
        since_begin.as_nanos()
    );
    Err(RemoteWatchError::Impossible { figure })
}

fn loss_cause(error: &RemoteWatchError) -> AgentLossCause {
    match error {
        RemoteWatchError::Impossible { figure } => AgentLossCause::Impossible(figure.clone()),
        RemoteWatchError::Refused { reason, .. } => {
            AgentLossCause::Stopped(format!("it said: {reason}"))
        }
        RemoteWatchError::NoReport { reason } => AgentLossCause::Stopped(reason.clone()),
        RemoteWatchError::Connect(_) | RemoteWatchError::Silent => {
            AgentLossCause::Stopped(error.to_string())
        }
    }
}

/// What an agent says, as far as it is worth reading.
fn said(text: &str) -> String {
    let text: String = text.chars().take(AGENT_REASON_CHARACTERS).collect();
    without_controls(&text)
}

fn not_read(error: ReportReadError) -> RemoteWatchError {
    match error {
        ReportReadError::NoReport => RemoteWatchError::NoReport {
            reason: error.to_string(),
        },
        ReportReadError::Impossible { .. } => RemoteWatchError::Impossible {
            figure: error.to_string(),
        },
    }
}

fn failure(error: CallError) -> RemoteWatchError {
    match error {
        CallError::Status(status) => RemoteWatchError::Refused {
            code: status.code(),
            reason: said(status.message()),
        },
        CallError::DeadlineExceeded => RemoteWatchError::Silent,
        other => RemoteWatchError::NoReport {
            reason: said(&other.to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_neither_runs_back_nor_ahead() {
        let second = Duration::from_secs(1);
        for (elapsed_ns, last_ns, is_possible) in [
            (100, 0, true),
            (100, 100, true),
            (1_050_000_000, 100, true),
            (1_200_000_000, 100, false),
            (u64::MAX, 0, false),
            (99, 100, false),
        ] {
            let checked = check_time(elapsed_ns, last_ns, second);
            assert_eq!(checked.is_ok(), is_possible, "{elapsed_ns} {last_ns}");
        }
    }

    /// What a broken or a malicious agent says goes to a terminal.
    #[test]
    fn what_an_agent_says_is_short_and_plain() {
        let long = "\u{1b}[31m".repeat(AGENT_REASON_CHARACTERS);
        let text = said(&long);
        assert_eq!(text.chars().count(), AGENT_REASON_CHARACTERS);
        assert!(!text.contains('\u{1b}'));
    }

    #[test]
    fn the_first_loss_stays() {
        let watch = RemoteWatch {
            address: Address::Tcp {
                host: "192.0.2.1".into(),
                port: 1_988,
            },
            options: ChannelOptions::default(),
            begin: Instant::now(),
            loss: Mutex::new(None),
        };
        assert_eq!(watch.presence().loss, None);
        watch.note_loss(&RemoteWatchError::Refused {
            code: Code::Unavailable,
            reason: "the agent ends".into(),
        });
        watch.note_loss(&RemoteWatchError::Silent);
        let loss = watch.presence().loss.expect("it was lost");
        let cause = AgentLossCause::Stopped("it said: the agent ends".into());
        assert_eq!(loss.cause, cause);
        // It is not asked again: nobody is at that address.
        let switch = WatchSwitch::default();
        switch.begin();
        assert_eq!(watch.watch(&switch, u64::MAX), WatchedUse::default());
    }
}
