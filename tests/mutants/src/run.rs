//! Runs test programs, with a mutant or without, and says what came of it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::clock::Clock;
use crate::compile::TestProgram;

/// A mutant may fill memory or a disk without an end: what one process may take. Address space is
/// more than the memory that is used.
const LIMITS: &str = "ulimit -c 0; ulimit -v 12582912; ulimit -f 8388608; exec \"$0\" \"$@\"";

/// How often a process that prints nothing is looked at.
const POLL: Duration = Duration::from_millis(20);

/// A test program that passed without a mutant.
#[derive(Clone, Debug)]
pub struct Baseline {
    pub program: TestProgram,
    pub duration: Duration,
    /// The mutants whose places it reaches.
    pub reached: BTreeSet<usize>,
    /// Tests that fail without any mutant, which are left out.
    pub skipped: Vec<String>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Passed,
    /// These tests failed; none if the process ended otherwise.
    Failed(Vec<String>),
    TimedOut,
}

/// One run of a test program.
pub struct Run<'a> {
    pub program: &'a TestProgram,
    /// A folder for temporary files, removed afterwards.
    pub folder: PathBuf,
    pub variable: Option<(&'static str, String)>,
    pub arguments: Vec<String>,
    /// Of the time in which the program could run.
    pub timeout: Duration,
    /// Ends at the first test that fails.
    pub stop_at_failure: bool,
}

impl Run<'_> {
    /// Runs the program; returns how it ended, and the time in which it could run.
    pub fn run(&self) -> Result<(Outcome, Duration), String> {
        let named = |error| format!("{}: {error}", self.program.executable.display());
        fs::create_dir_all(&self.folder).map_err(named)?;
        let mut command = Command::new("sh");
        command
            .args(["-c", LIMITS])
            .arg(&self.program.executable)
            .args(&self.arguments)
            .current_dir(&self.program.manifest_folder)
            .env("CARGO_MANIFEST_DIR", &self.program.manifest_folder)
            .env("TMPDIR", &self.folder)
            .env_remove("MUTANT")
            .env_remove("MUTANT_REACHED")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0);
        if let Some((name, value)) = &self.variable {
            command.env(name, value);
        }
        let mut child = command.spawn().map_err(named)?;
        let outcome = self.watch(&mut child);
        // Whatever the tests have started.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        let _ = child.wait();
        let _ = fs::remove_dir_all(&self.folder);
        Ok(outcome)
    }

    fn watch(&self, child: &mut Child) -> (Outcome, Duration) {
        let (sender, lines) = mpsc::channel();
        if let Some(output) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                    if sender
                        .send(String::from_utf8_lossy(&line).into_owned())
                        .is_err()
                    {
                        return;
                    }
                }
            });
        }
        let mut clock = Clock::new(child.id());
        let mut failed = Vec::new();
        let mut exited = None;
        loop {
            match lines.recv_timeout(POLL) {
                Ok(line) => failed.extend(failed_test(&line)),
                // What the tests have started may hold the pipe open: the exit counts.
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected)
                    if exited.is_some() =>
                {
                    break;
                }
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(POLL),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.stop_at_failure && !failed.is_empty() {
                return (Outcome::Failed(failed), clock.elapsed());
            }
            if exited.is_none() {
                exited = child.try_wait().ok().flatten();
            }
            if clock.elapsed() > self.timeout {
                return (Outcome::TimedOut, clock.elapsed());
            }
        }
        let outcome = match exited {
            Some(status) if status.success() && failed.is_empty() => Outcome::Passed,
            _ => Outcome::Failed(failed),
        };
        (outcome, clock.elapsed())
    }
}

/// Returns the test that a line of the test harness reports as failed.
fn failed_test(line: &str) -> Option<String> {
    let name = line
        .strip_prefix("test ")?
        .trim_end()
        .strip_suffix(" ... FAILED")?;
    Some(name.trim_end_matches(" - should panic").to_owned())
}

/// Runs a program without a mutant, and notes what it reaches. A test that fails, twice at most, is
/// left out from then on.
pub fn baseline(
    program: &TestProgram,
    folder: &Path,
    timeout: Duration,
) -> Result<Baseline, String> {
    let reached = folder.join("reached");
    let mut skipped: Vec<String> = Vec::new();
    for _ in 0..3 {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let _ = fs::remove_file(&reached);
        let (outcome, duration) = Run {
            program,
            folder: folder.join("temporary"),
            variable: Some(("MUTANT_REACHED", reached.to_string_lossy().into_owned())),
            arguments: skip_arguments(&skipped),
            timeout,
            stop_at_failure: false,
        }
        .run()?;
        match outcome {
            Outcome::Passed => {
                let text = fs::read_to_string(&reached).unwrap_or_default();
                let reached = text.lines().filter_map(|line| line.parse().ok()).collect();
                let program = program.clone();
                return Ok(Baseline {
                    program,
                    duration,
                    reached,
                    skipped,
                });
            }
            Outcome::Failed(tests) if !tests.is_empty() => skipped.extend(tests),
            other => {
                return Err(format!(
                    "{} fails without a mutant: {other:?}",
                    program.name
                ));
            }
        }
    }
    Err(format!(
        "{} fails without a mutant, again and again: {skipped:?}",
        program.name
    ))
}

/// Returns the arguments that leave tests out.
pub fn skip_arguments(skipped: &[String]) -> Vec<String> {
    if skipped.is_empty() {
        return Vec::new();
    }
    let names = skipped
        .iter()
        .flat_map(|test| ["--skip".to_owned(), test.clone()]);
    std::iter::once("--exact".to_owned()).chain(names).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_read_from_the_harness() {
        assert_eq!(failed_test("test a::b ... FAILED"), Some("a::b".to_owned()));
        assert_eq!(
            failed_test("test a - should panic ... FAILED"),
            Some("a".to_owned())
        );
        assert_eq!(failed_test("test a::b ... ok"), None);
        assert_eq!(failed_test("a::b ... FAILED"), None);
    }

    fn shell(script: &str, timeout: Duration) -> Outcome {
        let program = TestProgram {
            package: "none".to_owned(),
            name: "shell".to_owned(),
            executable: PathBuf::from("/bin/sh"),
            manifest_folder: PathBuf::from("/"),
        };
        let folder = std::env::temp_dir().join(format!("mutants-run-{}", std::process::id()));
        let folder = folder.join(format!("{:x}", script.len()));
        Run {
            program: &program,
            folder,
            variable: Some(("MUTANT", "3".to_owned())),
            arguments: vec!["-c".to_owned(), script.to_owned()],
            timeout,
            stop_at_failure: true,
        }
        .run()
        .unwrap()
        .0
    }

    #[test]
    fn a_run_passes_fails_or_times_out() {
        let long = Duration::from_secs(60);
        assert_eq!(shell("test \"$MUTANT\" = 3", long), Outcome::Passed);
        assert_eq!(shell("exit 101", long), Outcome::Failed(Vec::new()));
        assert_eq!(
            shell("echo 'test a ... FAILED'; sleep 1000", long),
            Outcome::Failed(vec!["a".to_owned()])
        );
        assert_eq!(
            shell("sleep 1000 & wait", Duration::from_millis(200)),
            Outcome::TimedOut
        );
        // A child that was left behind holds the pipe, and is not waited for.
        assert_eq!(shell("sleep 1000 & exit 0", long), Outcome::Passed);
    }
}
