//! The user's own client, started with the tap's address in its arguments.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::{Child, Command, ExitStatus, Stdio};

use net::Address;

use crate::exit::Failure;

/// What stands for the address in the arguments.
const PLACE: &[u8] = b"{target}";

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
        let mut words = words.iter().map(|word| with_address(word, address));
        let program = words.next().unwrap_or_default();
        let name = program.to_string_lossy().into_owned();
        let started = Command::new(&program)
            .args(words)
            .stdin(Stdio::null())
            .stdout(io::stderr())
            .spawn();
        match started {
            Ok(child) => Ok(ClientCommand {
                child,
                name,
                ended: None,
            }),
            Err(error) => Err(Failure::Failed(format!(
                "the command {name} cannot be started: {error}"
            ))),
        }
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended.is_some()
    }

    /// Ends it if it runs; returns a note about how it ended, if that is worth one.
    pub(super) fn end(mut self) -> Option<String> {
        if !self.has_ended() {
            // Fails only if it has ended meanwhile.
            let _ = self.child.kill();
            let _ = self.child.wait();
            return Some(format!("the command {} was ended", self.name));
        }
        match self.ended {
            Some(status) if !status.success() => {
                Some(format!("the command {} ended with {status}", self.name))
            }
            _ => None,
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
