//! The user's own client, started with the tap's address in its arguments.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use net::Address;
use rustix::process::Signal;

use super::process::{signal_group, spawn_on};
use crate::exit::Failure;

/// What stands for the address in the arguments.
const PLACE: &[u8] = b"{target}";

/// How long a client may take to end that was asked to: enough to write a report of its own.
const GRACE: Duration = Duration::from_secs(2);

/// A client that runs.
#[derive(Debug)]
pub(super) struct ClientCommand {
    child: Child,
    name: String,
    ended: Option<ExitStatus>,
}

impl ClientCommand {
    /// Starts it; what it prints goes to standard error, where it does not mix with a report.
    pub(super) fn start(words: &[OsString], address: &Address) -> Result<ClientCommand, Failure> {
        ClientCommand::start_on(words, address, None)
    }

    /// The same, on one CPU alone if that is given.
    pub(super) fn start_on(
        words: &[OsString],
        address: &Address,
        cpu: Option<usize>,
    ) -> Result<ClientCommand, Failure> {
        let mut words = words.iter().map(|word| with_address(word, address));
        let program = words.next().unwrap_or_default();
        let name = program.to_string_lossy().into_owned();
        let mut command = Command::new(&program);
        command
            .args(words)
            .stdin(Stdio::null())
            .stdout(io::stderr())
            // With what it starts itself it is ended as a whole.
            .process_group(0);
        let started = match cpu {
            None => command.spawn(),
            Some(cpu) => spawn_on(command, cpu),
        };
        match started {
            Ok(child) => Ok(ClientCommand {
                child,
                name,
                ended: None,
            }),
            Err(error) => Err(Failure::Failed(format!(
                "the command {name} cannot be started: {error}{}",
                match name.contains(' ') {
                    true => "; give it and its arguments as words of their own, without quotes",
                    false => "",
                }
            ))),
        }
    }

    /// Its process group.
    pub(super) fn group(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended.is_some()
    }

    /// Ends it if it runs: with SIGTERM, and after [`GRACE`] with SIGKILL. Returns a note about how
    /// it ended, if that is worth one, and whether it failed by itself.
    pub(super) fn end(mut self) -> (Option<String>, bool) {
        if !self.has_ended() {
            signal_group(self.child.id(), Signal::TERM);
            let until = Instant::now() + GRACE;
            while !self.has_ended() && Instant::now() < until {
                thread::sleep(Duration::from_millis(10));
            }
            if !self.has_ended() {
                signal_group(self.child.id(), Signal::KILL);
                let _ = self.child.wait();
            }
            return (Some(format!("the command {} was ended", self.name)), false);
        }
        match self.ended {
            Some(status) if !status.success() => {
                let text = format!("the command {} ended with {status}", self.name);
                (Some(text), true)
            }
            _ => (None, false),
        }
    }
}

/// The word with the address in its place.
fn with_address(word: &OsStr, address: &Address) -> OsString {
    let address = address.to_string();
    let mut out = Vec::new();
    let mut rest = word.as_bytes();
    while let Some(at) = rest.windows(PLACE.len()).position(|part| part == PLACE) {
        let (before, after) = rest.split_at(at);
        out.extend_from_slice(before);
        out.extend_from_slice(address.as_bytes());
        rest = after.get(PLACE.len()..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_takes_its_place_wherever_it_stands() {
        let address = "127.0.0.1:7".parse().expect("an address");
        for (word, expected) in [
            ("{target}", "127.0.0.1:7"),
            ("--address={target}", "--address=127.0.0.1:7"),
            ("{target},{target}x", "127.0.0.1:7,127.0.0.1:7x"),
            ("{targe}", "{targe}"),
            ("", ""),
        ] {
            assert_eq!(
                with_address(OsStr::new(word), &address),
                *expected,
                "{word}"
            );
        }
    }
}
