//! Runs the real binary: a server on a free port, and commands against it.

#![allow(dead_code, reason = "each test file uses its part")]

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take before a test gives up on it.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// The mask of the signals that a process catches, in proc(5).
pub fn caught_signals(process_id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process_id}/status"));
    let status = status.expect("the process is there");
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigCgt:"))
        .expect("the kernel says it");
    u64::from_str_radix(mask.trim(), 16).expect("it is a mask")
}

/// The binary, without settings from the environment of whoever runs the tests.
pub fn pelton() -> Command {
    pelton_at(Path::new(env!("CARGO_BIN_EXE_pelton")))
}

/// The same for a copy of the binary that lies elsewhere, or a shell that runs it.
pub fn pelton_at(binary: &Path) -> Command {
    let mut command = Command::new(binary);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PELTON_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// A place for files of a test, removed with the value.
pub struct Folder(pub PathBuf);

impl Folder {
    /// Makes it. Tests that may run at the same time use different names.
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("pelton-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("the folder is made");
        Folder(path)
    }

    /// For the data of a server.
    pub fn data(&self) -> PathBuf {
        self.0.join("data")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a command answered.
#[derive(Debug)]
pub struct Answer {
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Answer {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("standard output is text")
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(self.text()).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    fn from(output: Output) -> Answer {
        Answer {
            code: output
                .status
                .code()
                .expect("ended by itself, not by a signal"),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Answer {
    Answer::from(command.output().expect("the binary runs"))
}

/// Runs a command that says little to its end, and does not wait for ever for one that should have
/// refused to run.
pub fn run_with_timeout(command: &mut Command) -> Answer {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().expect("the binary runs");
    let until = Instant::now() + TIMEOUT;
    while process.try_wait().expect("the child is ours").is_none() {
        if Instant::now() >= until {
            process.kill().expect("the child is ours");
        }
        thread::sleep(Duration::from_millis(5));
    }
    Answer::from(process.wait_with_output().expect("it has ended"))
}

/// A running server. Ended with the value.
pub struct Server {
    process: Child,
    rest: BufReader<ChildStdout>,
    /// What it printed until it listened everywhere.
    pub greeting: Vec<String>,
    pub addresses: Vec<String>,
}

impl Server {
    /// Starts a server on a free port.
    pub fn start() -> Server {
        Server::with(&["--listen", "127.0.0.1:0"])
    }

    /// Starts a server with these flags, that keeps nothing.
    pub fn with(flags: &[&str]) -> Server {
        let mut command = pelton();
        command
            .args(["serve", "--threads", "1", "--durability", "volatile"])
            .args(flags);
        Server::spawn(&mut command)
    }

    /// Starts a server with a data folder, and these flags.
    pub fn durable(folder: &Path, flags: &[&str]) -> Server {
        let mut command = pelton();
        command
            .args([
                "serve",
                "--threads",
                "1",
                "--listen",
                "127.0.0.1:0",
                "--data",
            ])
            .arg(folder)
            .args(flags);
        Server::spawn(&mut command)
    }

    /// Ends it as a crash does.
    pub fn kill(mut self) {
        self.process.kill().expect("the child is ours");
        self.process.wait().expect("the child is ours");
    }

    /// Waits until a server that was just started says where it listens.
    pub fn spawn(command: &mut Command) -> Server {
        let mut process = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut rest = BufReader::new(process.stdout.take().expect("piped"));
        let (mut greeting, mut addresses) = (Vec::new(), Vec::new());
        // The line about the store is the last one of the greeting.
        while !greeting
            .last()
            .is_some_and(|line: &String| line.starts_with("storing"))
        {
            let mut line = String::new();
            let count = rest.read_line(&mut line).expect("the pipe is readable");
            assert!(
                count > 0,
                "the server ended before it listened: {greeting:?}"
            );
            if let Some(after) = line.strip_prefix("listening on ") {
                addresses.push(
                    after
                        .split_whitespace()
                        .next()
                        .expect("an address")
                        .to_owned(),
                );
            }
            greeting.push(line.trim_end().to_owned());
        }
        Server {
            process,
            rest,
            greeting,
            addresses,
        }
    }

    /// A command against this server.
    pub fn command<I: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = I>) -> Command {
        let mut command = pelton();
        command
            .args(arguments)
            .env("PELTON_ADDRESS", &self.addresses[0]);
        command
    }

    /// Runs a command against this server.
    pub fn run<const COUNT: usize>(&self, arguments: [&str; COUNT]) -> Answer {
        run(&mut self.command(arguments))
    }

    /// Runs a command with this on standard input.
    pub fn run_with_input(&self, arguments: &[&str], input: &[u8]) -> Answer {
        let mut command = self.command(arguments);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = command.spawn().expect("the binary runs");
        let mut stdin = process.stdin.take().expect("piped");
        // Whoever answers while it reads must not wait for us to listen. What is not read to its
        // end is no failure.
        thread::scope(|scope| {
            scope.spawn(move || stdin.write_all(input));
            Answer::from(process.wait_with_output().expect("it ends"))
        })
    }

    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Sends a signal by name, and waits for the end: the exit code, and what was printed
    /// meanwhile.
    pub fn stop(mut self, signal: &str) -> (i32, String) {
        let id = self.process.id().to_string();
        let killed = Command::new("kill")
            .args(["-s", signal, &id])
            .status()
            .expect("kill is there");
        assert!(killed.success());
        let code = self.wait();
        let mut printed = String::new();
        self.rest
            .read_to_string(&mut printed)
            .expect("the pipe is readable");
        (code, printed)
    }

    fn wait(&mut self) -> i32 {
        let until = Instant::now() + TIMEOUT;
        while Instant::now() < until {
            if let Some(status) = self.process.try_wait().expect("the child is ours") {
                return status.code().expect("ended by itself, not by a signal");
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("the server did not end within {TIMEOUT:?}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub struct Temporary(PathBuf);

impl Temporary {
    pub fn new(name: &str, bytes: &[u8]) -> Temporary {
        let path = std::env::temp_dir().join(format!("pelton-test-{name}-{}", std::process::id()));
        std::fs::write(&path, bytes).expect("the folder is ours");
        Temporary(path)
    }

    pub fn name(&self) -> &str {
        self.0.to_str().expect("it is text")
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
