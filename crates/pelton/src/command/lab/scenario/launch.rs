//! What is started: this program as server, relay and client, and clients of others.

use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use lab::scenario::{PlannedClient, PlannedServer};

use super::super::process::{self, piped, without_settings};
use crate::exit::Failure;
use crate::parent_process::ends_with_this_process;

/// A client of grpcio or `pelton_grpc` that anybody with Python can run.
const PYTHON_CLIENT: &str = include_str!("python_client.py");

/// What stands in a plan for the folder of its servers, and for the process of a run's server.
const FOLDER: &str = "{folder}";
const SERVER_PID: &str = "{server_pid}";

/// A folder that is removed when this goes.
struct OwnFolder(PathBuf);

impl OwnFolder {
    /// Makes a new one, which nobody else may look into: nobody else can have made it before.
    fn new() -> io::Result<OwnFolder> {
        let name = format!("pelton-scenario-{:016x}", crate::randomness::random());
        let path = env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(OwnFolder(path))
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        // What is left of it is in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Knows how each program is started.
pub(super) struct Launcher {
    own: PathBuf,
    python: PathBuf,
    grpc_client: Option<PathBuf>,
    folder: OwnFolder,
}

impl Launcher {
    /// `python`: one that has grpcio, `pelton_grpc`, or both; `grpc_client`: a client with the
    /// flags of those in `peers/`, to be taken in the place of grpcio.
    ///
    /// # Errors
    /// If this program cannot be found, the client is no program, or no folder can be made: before
    /// anything is run.
    pub(super) fn new(python: PathBuf, grpc_client: Option<PathBuf>) -> Result<Launcher, Failure> {
        if let Some(client) = &grpc_client {
            check_program(client)?;
        }
        let own = env::current_exe().map_err(|error| {
            Failure::Failed(format!("cannot find the file of this program: {error}"))
        })?;
        let folder = OwnFolder::new().map_err(|error| {
            Failure::Failed(format!(
                "cannot make a folder in {}: {error}; the variable TMPDIR names another place",
                env::temp_dir().display()
            ))
        })?;
        Ok(Launcher {
            own,
            python,
            grpc_client,
            folder,
        })
    }

    /// `pelton serve` at a free port of this machine, which ends with this process.
    pub(super) fn server(&self, planned: &PlannedServer) -> Command {
        let mut command = self.pelton();
        ends_with_this_process(&mut command);
        command
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(self.filled(&planned.arguments, None));
        command
    }

    /// Arguments of a plan with what is known only now.
    fn filled(&self, arguments: &[String], server_pid: Option<u32>) -> Vec<String> {
        let folder = self.folder.0.to_string_lossy();
        let pid = server_pid.map(|pid| pid.to_string()).unwrap_or_default();
        let arguments = arguments.iter();
        arguments
            .map(|argument| argument.replace(FOLDER, &folder).replace(SERVER_PID, &pid))
            .collect()
    }

    /// `pelton lab tap` before a server.
    pub(super) fn relay(&self, target: &str, arguments: &[String]) -> Command {
        let mut command = process::relay(&self.own, target);
        command.args(arguments);
        command
    }

    /// A client of a server, to be reached at `target`.
    pub(super) fn client(&self, planned: &PlannedClient, target: &str, server_pid: u32) -> Command {
        match planned {
            PlannedClient::Pelton(arguments) => {
                let mut command = self.pelton();
                command
                    .arg("load")
                    .args(self.filled(arguments, Some(server_pid)))
                    .args(["--address", target, "--output", "json"]);
                command
            }
            PlannedClient::Grpc(arguments) => {
                let mut command = self.grpc();
                command.args(arguments).args(["--address", target]);
                command
            }
            PlannedClient::Grpcio(arguments) => {
                let mut command = self.python();
                command.args(arguments).args(["--address", target]);
                command
            }
            PlannedClient::PeltonGrpc(arguments) => {
                let mut command = self.python();
                command.args(["--module", "pelton_grpc"]).args(arguments);
                command.args(["--address", target]);
                command
            }
        }
    }

    fn grpc(&self) -> Command {
        match &self.grpc_client {
            None => self.python(),
            Some(program) => piped(Command::new(program)),
        }
    }

    fn python(&self) -> Command {
        let mut command = piped(Command::new(&self.python));
        command.args(["-c", PYTHON_CLIENT]);
        command
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_filled_in_and_its_folder_goes_with_the_launcher() {
        let launcher = Launcher::new("python3".into(), None).expect("this program is there");
        let words = ["--a={folder}/b", "{server_pid}", r#"{"key": "{{utf8}}x"}"#];
        let words = words.map(str::to_owned);
        let folder = launcher.folder.0.clone();
        let filled = launcher.filled(&words, Some(77));
        let first = format!("--a={}/b", folder.display());
        assert_eq!(filled, [first.as_str(), "77", words[2].as_str()]);
        fs::write(folder.join("file"), "x").expect("it is there");
        drop(launcher);
        assert!(!folder.exists());
    }
}
