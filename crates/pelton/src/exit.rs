//! How the program ends.

use std::fmt;
use std::io;
use std::process::ExitCode;

use crate::settings::SettingsError;

/// The exit codes, as the help and docs/cli.md list them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// A miss: no such key, an unmet condition, a server that is not ready.
    Miss = 1,
    /// A flag, a variable or the configuration file is wrong.
    Usage = 2,
    /// It could not be done: not reached, refused, unreadable, unwritable.
    Failed = 3,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Why a command ends early. The message says what happened, to what, and what to do.
#[derive(Debug)]
pub enum Failure {
    /// The user has to write something else: [`Exit::Usage`].
    Usage(String),
    /// It could not be done: [`Exit::Failed`].
    Failed(String),
    /// Whoever reads our output has gone: the end of a pipe such as `pelton scan | head`, and no failure.
    BrokenPipe,
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Failure {
        Failure::Usage(error.to_string())
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

    /// The same failure with more to know about it.
    pub fn with(self, more: &str) -> Failure {
        match self {
            Failure::Usage(message) => Failure::Usage(format!("{message}; {more}")),
            Failure::Failed(message) => Failure::Failed(format!("{message}; {more}")),
            Failure::BrokenPipe => Failure::BrokenPipe,
        }
    }

    /// The same failure, with what it was about in front.
    pub fn about(self, what: &str) -> Failure {
        match self {
            Failure::Usage(message) => Failure::Usage(format!("{what}: {message}")),
            Failure::Failed(message) => Failure::Failed(format!("{what}: {message}")),
            Failure::BrokenPipe => Failure::BrokenPipe,
        }
    }

    /// What the program ends with.
    pub fn exit(&self) -> Exit {
        match self {
            Failure::Usage(_) => Exit::Usage,
            Failure::Failed(_) => Exit::Failed,
            Failure::BrokenPipe => Exit::Done,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(message) | Failure::Failed(message) => f.write_str(message),
            Failure::BrokenPipe => f.write_str("nobody reads the output any more"),
        }
    }
}
