//! How the program ends.

use std::fmt;
use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use client::Code;

use crate::settings::SettingsError;

/// Set when the signal that was noted first was SIGTERM, and not SIGINT.
static IS_TERMINATED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// The same of SIGHUP.
static IS_HUNG_UP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// The exit codes, as the help and docs/cli.md list them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// A miss: what the command is about is not there, a condition is not met, a server is not
    /// ready, or the machine has a problem.
    Miss = 1,
    /// A flag, a variable or the configuration file is wrong.
    Usage = 2,
    /// It could not be done: not reached, refused, unreadable, unwritable.
    Failed = 3,
    /// Ended by SIGHUP: its terminal has gone.
    HungUp = 129,
    /// Ended by SIGINT (Ctrl-C), as shells say it of programs that do not note the signal: 128 and
    /// its number.
    Interrupted = 130,
    /// Ended by SIGTERM.
    Terminated = 143,
}

impl Exit {
    /// Returns how a command ends that the user did not let come to its end.
    pub fn of_signal() -> Exit {
        let is_set = |flag: &OnceLock<Arc<AtomicBool>>| {
            (flag.get()).is_some_and(|flag| flag.load(Ordering::Relaxed))
        };
        match (is_set(&IS_TERMINATED), is_set(&IS_HUNG_UP)) {
            (true, _) => Exit::Terminated,
            (false, true) => Exit::HungUp,
            (false, false) => Exit::Interrupted,
        }
    }

    /// Returns the flag that says to [`Exit::of_signal`] that the signal was SIGHUP.
    pub fn hung_up_flag() -> Arc<AtomicBool> {
        Arc::clone(IS_HUNG_UP.get_or_init(Arc::default))
    }

    /// Returns the flag that says to [`Exit::of_signal`] that the signal was SIGTERM.
    pub fn terminated_flag() -> Arc<AtomicBool> {
        Arc::clone(IS_TERMINATED.get_or_init(Arc::default))
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Why a command ends early. The message says what happened, to what, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The user has to write something else: [`Exit::Usage`].
    #[error("{0}")]
    Usage(String),
    /// It could not be done: [`Exit::Failed`].
    #[error("{0}")]
    Failed(String),
    /// The user has had enough of it: [`Exit::Interrupted`], or [`Exit::Terminated`].
    #[error("{0}")]
    Interrupted(String),
    /// A server was not reached, or did not do what was asked: [`Exit::Failed`], or [`Exit::Miss`].
    #[error(fmt = call_failure)]
    Call(Box<CallFailure>),
    /// Whoever reads our output has gone: the end of a pipe such as `pelton scan | head`, and no
    /// failure.
    #[error("nobody reads the output any more")]
    BrokenPipe,
}

/// What became of a call to a server.
#[derive(Debug)]
pub struct CallFailure {
    /// What happened, to what.
    pub what: String,
    /// The address of the server.
    pub address: String,
    /// The status that the server gave; `None`: it gave none.
    pub status: Option<Code>,
    /// What to do; empty: the message says it.
    pub hint: String,
    /// The server says of the field `name` that there is nothing of this name.
    pub names_nothing: bool,
    /// What the command is about is not there: [`Exit::Miss`].
    pub is_miss: bool,
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Failure {
        match error {
            // As of any other file.
            SettingsError::Unreadable { .. } => Failure::Failed(error.to_string()),
            error => Failure::Usage(error.to_string()),
        }
    }
}

impl From<CallFailure> for Failure {
    fn from(failure: CallFailure) -> Failure {
        Failure::Call(Box::new(failure))
    }
}

impl Failure {
    /// The failure to write to standard output.
    pub fn output(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
            _ => Failure::Failed(format!("cannot write to standard output: {error}")),
        }
    }

    /// The failure to listen to signals.
    pub fn signals(error: io::Error) -> Failure {
        Failure::Failed(format!("cannot listen to signals: {error}"))
    }

    /// The same failure with more to know about it.
    pub fn with(self, more: &str) -> Failure {
        match self {
            Failure::Usage(message) => Failure::Usage(format!("{message}; {more}")),
            Failure::Failed(message) => Failure::Failed(format!("{message}; {more}")),
            Failure::Interrupted(message) => Failure::Interrupted(format!("{message}; {more}")),
            Failure::Call(mut failure) => {
                if !failure.hint.is_empty() {
                    failure.hint.push_str("; ");
                }
                failure.hint.push_str(more);
                Failure::Call(failure)
            }
            Failure::BrokenPipe => Failure::BrokenPipe,
        }
    }

    /// The same failure, with what it was about in front.
    pub fn about(self, what: &str) -> Failure {
        match self {
            Failure::Usage(message) => Failure::Usage(format!("{what}: {message}")),
            Failure::Failed(message) => Failure::Failed(format!("{what}: {message}")),
            Failure::Interrupted(message) => Failure::Interrupted(format!("{what}: {message}")),
            Failure::Call(mut failure) => {
                failure.what = format!("{what}: {}", failure.what);
                Failure::Call(failure)
            }
            Failure::BrokenPipe => Failure::BrokenPipe,
        }
    }

    /// The same failure; a miss if the server says that there is nothing of the name that the
    /// command was given: then `what` says so.
    pub fn or_miss(self, what: &str) -> Failure {
        match self {
            Failure::Call(mut failure) => {
                failure.is_miss = failure.status == Some(Code::NotFound) && failure.names_nothing;
                if failure.is_miss {
                    what.clone_into(&mut failure.what);
                }
                Failure::Call(failure)
            }
            other => other,
        }
    }

    /// Whether the server may become ready later: it was not reached, or says itself that it is
    /// not.
    pub fn may_pass(&self) -> bool {
        match self {
            Failure::Call(failure) => failure
                .status
                .is_none_or(|code| matches!(code, Code::Unavailable | Code::DeadlineExceeded)),
            Failure::Failed(_) => true,
            Failure::Usage(_) | Failure::Interrupted(_) | Failure::BrokenPipe => false,
        }
    }

    /// Whether nobody knows if the server has done what was asked.
    pub fn is_unknown(&self) -> bool {
        use Code::{Cancelled, DeadlineExceeded, Internal, Unavailable, Unknown};
        let open = [Cancelled, DeadlineExceeded, Internal, Unavailable, Unknown];
        let is_open = |code| open.contains(&code);
        matches!(self, Failure::Call(failure) if failure.status.is_none_or(is_open))
    }

    /// Whether the server says that what the call was about is not there, so that nothing was done.
    pub fn is_about_nothing(&self) -> bool {
        matches!(self, Failure::Call(failure) if failure.status == Some(Code::NotFound))
    }

    /// What the program ends with.
    pub fn exit(&self) -> Exit {
        match self {
            Failure::Usage(_) => Exit::Usage,
            Failure::Call(failure) if failure.is_miss => Exit::Miss,
            Failure::Failed(_) | Failure::Call(_) => Exit::Failed,
            Failure::Interrupted(_) => Exit::of_signal(),
            Failure::BrokenPipe => Exit::Done,
        }
    }
}

/// What happened, and what to do.
fn call_failure(failure: &CallFailure, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match &failure.hint[..] {
        "" => f.write_str(&failure.what),
        hint => write!(f, "{}; {hint}", failure.what),
    }
}
