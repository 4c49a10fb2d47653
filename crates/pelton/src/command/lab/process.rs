//! Processes that commands of the lab start.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::parent_process::ends_with_this_process;

/// A command of this program, whose file is `program`, without what the user has set for this one
/// in `PELTON_…` variables and in a profile. What it prints can be read.
pub(super) fn without_settings(program: impl AsRef<OsStr>) -> Command {
    let mut command = piped(Command::new(program));
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("PELTON_") {
            command.env_remove(name);
        }
    }
    command.env("PELTON_CLIENT_CONFIG", "/dev/null");
    command
}

/// A relay to a server: `pelton lab tap`, in a process of its own, so that its CPU time is not that
/// of whoever measures. What it prints is for programs, and it ends with this one.
pub(super) fn relay(program: impl AsRef<OsStr>, target: &str) -> Command {
    let mut command = without_settings(program);
    ends_with_this_process(&mut command);
    command.args(["lab", "tap", "--output", "json", "--target", target]);
    command
}

/// The same command, which gets no input, and what it prints can be read.
pub(super) fn piped(mut command: Command) -> Command {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
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

/// Starts a program on one CPU alone: it has the CPUs of the thread that starts it.
///
/// # Errors
/// If it cannot be started, or not there.
pub(super) fn spawn_on(mut command: Command, cpu: usize) -> io::Result<Child> {
    let spawning = thread::Builder::new().spawn(move || {
        net::pin_thread(cpu)?;
        command.spawn()
    })?;
    let spawned = spawning.join();
    spawned.unwrap_or_else(|_| Err(io::Error::other("the thread that starts it has ended")))
}
