//! A relay that makes the conditions of a cell: `pelton lab tap`, in a process of its own, so that
//! its CPU time is not the generator's.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};

use lab::sweep::SweepParameter;
use net::Address;

use super::super::process::without_settings;
use crate::exit::Failure;

/// A relay outlives a sweep that is killed by no more than this.
const LONGEST: &str = "6h";

/// A relay that runs. It ends when this goes.
#[derive(Debug)]
pub(super) struct Relay {
    child: Child,
    address: Address,
}

impl Relay {
    /// Starts one that leads to the target.
    pub(super) fn start(
        target: &Address,
        conditions: &[(SweepParameter, String)],
    ) -> Result<Relay, Failure> {
        let failed = |why: &str| {
            Failure::Failed(format!("the relay that --over needs did not start: {why}"))
        };
        let program = std::env::current_exe().map_err(|error| failed(&error.to_string()))?;
        let mut command = without_settings(program);
        command.args([
            "lab",
            "tap",
            "--listen",
            "127.0.0.1:0",
            "--duration",
            LONGEST,
        ]);
        command.args(["--target", &target.to_string()]);
        for (parameter, value) in conditions {
            command.args([&format!("--{}", parameter.name()), value]);
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // Ctrl-C is for the sweep, which still has to take away what it made on the server.
            .process_group(0)
            .spawn();
        let mut child = child.map_err(|error| failed(&error.to_string()))?;
        let mut line = String::new();
        if let Some(stderr) = child.stderr.take() {
            // What cannot be read has no address in it.
            let _ = BufReader::new(stderr).read_line(&mut line);
        }
        // From here on whatever happens ends it.
        let mut relay = Relay {
            child,
            address: target.clone(),
        };
        relay.address = address_in(&line).ok_or_else(|| failed(line.trim()))?;
        Ok(relay)
    }

    /// Where it listens.
    pub(super) fn address(&self) -> &Address {
        &self.address
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // Fails only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address in `pelton lab tap: listening on ADDRESS, forwarding to …`.
fn address_in(line: &str) -> Option<Address> {
    let (_, behind) = line.split_once("listening on ")?;
    behind.split(',').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_stands_in_the_line_of_the_tap() {
        let line = "pelton lab tap: listening on 127.0.0.1:4711, forwarding to unix:/tmp/x\n";
        assert_eq!(address_in(line), "127.0.0.1:4711".parse().ok());
        for other in ["", "pelton: cannot connect", "listening on nothing"] {
            assert_eq!(address_in(other), None, "{other}");
        }
    }
}
