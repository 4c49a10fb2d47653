//! Processes of this program that end with the one that has started them, even if that is killed
//! and can do nothing about it.

use std::env;
use std::process::{self, Command};

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::exit::Exit;

/// Says whom a process ends with. It is no setting, and does not begin as settings do.
const VARIABLE: &str = "STARTED_BY_PELTON_PROCESS";

/// Has a command of this program end with this process. The thread that starts it must be one that
/// lives as long: the kernel takes its end for that of the process.
pub fn ends_with_this_process(command: &mut Command) {
    command.env(VARIABLE, process::id().to_string());
}

/// From now on this process is sent SIGTERM when the one ends that has started it, if that wants it
/// so. To be called before anything is begun.
pub fn end_with_parent() {
    let Some(parent) = env::var_os(VARIABLE) else {
        return;
    };
    let parent = parent.to_str().and_then(|id| id.parse().ok());
    let Some(parent) = parent.and_then(Pid::from_raw) else {
        return;
    };
    // Where the kernel has none, it goes on as others do.
    let _ = set_parent_process_death_signal(Some(Signal::TERM));
    // It may have ended before.
    if getppid() != Some(parent) {
        process::exit(Exit::Terminated as i32);
    }
}
