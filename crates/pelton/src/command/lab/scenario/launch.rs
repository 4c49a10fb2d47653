//! What is started: this program as server, relay and client, and clients of others.

use std::env;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use lab::scenario::{PlannedClient, PlannedServer};

use super::super::process::{self, piped, without_settings};
use crate::exit::Failure;
use crate::parent_process::ends_with_this_process;

/// A client of gRPC that anybody with Python can run.
const GRPCIO_CLIENT: &str = include_str!("grpcio_client.py");

/// Knows how each program is started.
pub(super) struct Launcher {
    own: PathBuf,
    python: PathBuf,
    grpc_client: Option<PathBuf>,
}

impl Launcher {
    /// `python`: one that has grpcio; `grpc_client`: a client with the flags of those in `peers/`,
    /// to be taken instead.
    ///
    /// # Errors
    /// If this program cannot be found, or the client is no program: before anything is run.
    pub(super) fn new(python: PathBuf, grpc_client: Option<PathBuf>) -> Result<Launcher, Failure> {
        if let Some(client) = &grpc_client {
            check_program(client)?;
        }
        let own = env::current_exe().map_err(|error| {
            Failure::Failed(format!("cannot find the file of this program: {error}"))
        })?;
        Ok(Launcher {
            own,
            python,
            grpc_client,
        })
    }

    /// `pelton serve` at a free port of this machine, which ends with this process.
    pub(super) fn server(&self, planned: &PlannedServer) -> Command {
        let mut command = self.pelton();
        ends_with_this_process(&mut command);
        command
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(&planned.arguments);
        command
    }

    /// `pelton lab tap` before a server.
    pub(super) fn relay(&self, target: &str, arguments: &[String]) -> Command {
        let mut command = process::relay(&self.own, target);
        command.args(arguments);
        command
    }

    /// A client, and what it is called where it fails.
    pub(super) fn client(&self, planned: &PlannedClient, target: &str) -> Command {
        match planned {
            PlannedClient::Pelton(arguments) => {
                let mut command = self.pelton();
                command
                    .arg("load")
                    .args(arguments)
                    .args(["--address", target, "--output", "json"]);
                command
            }
            PlannedClient::Grpc(arguments) => {
                let mut command = self.grpc();
                command.args(arguments).args(["--address", target]);
                command
            }
        }
    }

    fn grpc(&self) -> Command {
        let Some(program) = &self.grpc_client else {
            let mut command = piped(Command::new(&self.python));
            command.args(["-c", GRPCIO_CLIENT]);
            return command;
        };
        piped(Command::new(program))
    }

    /// This program, without what the user has set for it: a scenario is the same everywhere.
    fn pelton(&self) -> Command {
        without_settings(&self.own)
    }
}

fn check_program(client: &Path) -> Result<(), Failure> {
    let usage = |why: &str| {
        let text = format!("--grpc-client {}: {why}", client.display());
        Err(Failure::Usage(text))
    };
    match client.metadata() {
        Ok(found) if !found.is_file() => usage("this is no file; give the program itself"),
        Ok(found) if found.permissions().mode() & 0o111 == 0 => {
            usage("it may not be run; make it executable with chmod +x")
        }
        Ok(_) => Ok(()),
        // Without a folder, it may stand in one of PATH.
        Err(_) if client.components().count() == 1 => Ok(()),
        Err(error) => usage(&error.to_string()),
    }
}
