//! How the program ends.

use std::fmt;
use std::io;
use std::process::ExitCode;

use client::Code;
use serde_json::{Map, Value};

use crate::arguments::OutputFormat;
use crate::interrupt;
use crate::output::{note, object};
use crate::settings::SettingsError;

/// The exit codes, as the help and docs/cli.md list them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// A miss: what the command is about is not there, a condition is not met, or a server is not
    /// ready.
    Miss = 1,
    /// A flag, a variable or the configuration file is wrong.
    Usage = 2,
    /// It could not be done: not reached, refused, unreadable, unwritable.
    Failed = 3,
    /// Ended by SIGINT (Ctrl-C), as shells say it of programs that do not note the signal: 128 and
    /// its number.
    Interrupted = 130,
    /// Ended by SIGTERM.
    Terminated = 143,
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
    /// The user has had enough of it: [`Exit::Interrupted`], or [`Exit::Terminated`].
    Interrupted(String),
    /// A server was not reached, or did not do what was asked: [`Exit::Failed`], or [`Exit::Miss`].
    Call(Box<CallFailure>),
    /// Whoever reads our output has gone: the end of a pipe such as `pelton scan | head`, and no
    /// failure.
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
            Failure::Interrupted(_) => interrupt::exit(),
            Failure::BrokenPipe => Exit::Done,
        }
    }

    /// Tells it on standard error.
    pub fn report(&self, format: OutputFormat) {
        match format {
            OutputFormat::Text => note(format_args!("pelton: {self}")),
            OutputFormat::Json => note(Value::Object(self.fields())),
        }
    }

    /// The failure as an object, for `--output json`.
    pub fn fields(&self) -> Map<String, Value> {
        let exit_code = self.exit() as u8;
        let Failure::Call(failure) = self else {
            return object([
                ("error", self.to_string().into()),
                ("exit_code", exit_code.into()),
            ]);
        };
        let mut fields = object([
            ("error", failure.what.as_str().into()),
            ("address", failure.address.as_str().into()),
        ]);
        if let Some(code) = failure.status {
            fields.insert("status".into(), code.name().into());
        }
        if !failure.hint.is_empty() {
            fields.insert("hint".into(), failure.hint.as_str().into());
        }
        fields.insert("exit_code".into(), exit_code.into());
        fields
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(message) | Failure::Failed(message) | Failure::Interrupted(message) => {
                f.write_str(message)
            }
            Failure::Call(failure) if failure.hint.is_empty() => f.write_str(&failure.what),
            Failure::Call(failure) => write!(f, "{}; {}", failure.what, failure.hint),
            Failure::BrokenPipe => f.write_str("nobody reads the output any more"),
        }
    }
}

/// Tells something on standard error that is no failure.
pub fn warn(text: &str, format: OutputFormat) {
    match format {
        OutputFormat::Text => note(format_args!("pelton: {text}")),
        OutputFormat::Json => note(Value::Object(object([("warning", text.into())]))),
    }
}

/// What is wrong with a command line, as an object for `--output json`.
pub fn usage_fields(error: &clap::Error) -> Map<String, Value> {
    let text = error.render().to_string();
    let mut paragraphs = text.split("\n\n").map(str::trim);
    let first = paragraphs.next().unwrap_or_default();
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut fields = object([("error", words(first.trim_start_matches("error: ")).into())]);
    let rest: Vec<String> = paragraphs.map(words).collect();
    let after = |word: &str| rest.iter().find_map(|one| one.strip_prefix(word));
    let hint = match (after("tip: "), after("Usage: ")) {
        (Some(tip), _) => tip.replace(" tip: ", "; "),
        (None, Some(usage)) => format!("write `{usage}`"),
        (None, None) => "--help shows what can be written".into(),
    };
    fields.insert("hint".into(), hint.into());
    fields.insert("exit_code".into(), (Exit::Usage as u8).into());
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(hint: &str) -> Failure {
        let failure = CallFailure {
            what: "Get on a:1: NOT_FOUND: no".into(),
            address: "a:1".into(),
            status: Some(Code::NotFound),
            hint: hint.into(),
            names_nothing: true,
            is_miss: false,
        };
        failure.into()
    }

    #[test]
    fn what_was_interrupted_ends_as_a_shell_says_it() {
        let failure = Failure::Interrupted("interrupted".into())
            .with("2 done")
            .about("copy");
        assert_eq!(failure.to_string(), "copy: interrupted; 2 done");
        assert_eq!(failure.exit(), Exit::Interrupted);
        assert_eq!(failure.fields()["exit_code"], 130);
    }

    #[test]
    fn the_hint_of_wrong_usage_is_what_to_write() {
        let hint = |line: &str| {
            let error = crate::arguments::command()
                .try_get_matches_from(line.split_whitespace())
                .expect_err(line);
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let fields = usage_fields(&crate::arguments::with_tip(error, &words));
            fields["hint"].as_str().expect("text").to_owned()
        };
        let tip = "flags go behind the command: `pelton get --output json a`";
        assert_eq!(hint("pelton --output json get a"), tip);
        assert_eq!(hint("pelton nonsense"), "write `pelton <COMMAND>`");
        let general = "--help shows what can be written";
        assert_eq!(hint("pelton scan --limit 0"), general);
        assert_eq!(
            hint("pelton sttaus"),
            "a similar subcommand exists: 'status'"
        );
    }

    #[test]
    fn failures_say_the_same_as_text_and_as_an_object() {
        let failure = call("look").with("again").about("file");
        let text = "file: Get on a:1: NOT_FOUND: no; look; again";
        assert_eq!(failure.to_string(), text);
        let expected = object([
            ("error", "file: Get on a:1: NOT_FOUND: no".into()),
            ("address", "a:1".into()),
            ("status", "NOT_FOUND".into()),
            ("hint", "look; again".into()),
            ("exit_code", 3.into()),
        ]);
        assert_eq!(failure.fields(), expected);
        assert_eq!(call("").to_string(), "Get on a:1: NOT_FOUND: no");
        assert_eq!(call("").fields().get("hint"), None);
        assert_eq!(
            call("").exit(),
            Exit::Failed,
            "it may be the database that is missing"
        );
        let miss = call("").or_miss("there is no x");
        assert_eq!(miss.exit(), Exit::Miss);
        assert_eq!(miss.to_string(), "there is no x");
        let usage = Failure::Usage("write x".into()).fields();
        let expected = object([("error", "write x".into()), ("exit_code", 2.into())]);
        assert_eq!(usage, expected);
    }
}
