//! Processes that commands of the lab start.

use std::env;
use std::ffi::OsStr;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process_group};

/// A command of this program, whose file is `program`, without what the user has set for this one
/// in `PELTON_…` variables.
pub(super) fn without_settings(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("PELTON_") {
            command.env_remove(name);
        }
    }
    command
}

/// Sends a signal to a process that leads a group of its own, and to what it has started.
pub(super) fn signal_group(leader: u32, signal: Signal) {
    let group = i32::try_from(leader).ok().and_then(Pid::from_raw);
    if let Some(group) = group {
        // Fails only if all of it has ended meanwhile.
        let _ = kill_process_group(group, signal);
    }
}
