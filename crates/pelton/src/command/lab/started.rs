//! A program that a command of the lab has started.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::process::{signal_group, spawn_on};
use crate::limits::{SCENARIO_LINE_CHARACTERS, SCENARIO_OUTPUT_BYTES};

/// How long a program may take to end that was asked to.
const GRACE: Duration = Duration::from_secs(5);

/// How often it is looked whether one has ended, and what it takes.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How long a server or a relay may take until it listens.
const LISTENS_WITHIN: Duration = Duration::from_secs(20);

/// What a program has printed.
pub(super) struct Printed {
    pub(super) status: ExitStatus,
    pub(super) stdout: String,
    pub(super) last_error: String,
}

/// A line that a program has printed.
struct PrintedLine {
    is_error: bool,
    text: String,
}

/// A program that runs. It is ended when this goes.
pub(super) struct Started {
    child: Child,
    lines: Receiver<PrintedLine>,
    stdout: String,
    last_error: String,
}

impl Started {
    /// Starts it, on one CPU alone if that is given.
    ///
    /// # Errors
    /// If it cannot be started, or not there.
    pub(super) fn start(mut command: Command, cpu: Option<usize>) -> io::Result<Started> {
        // With what it starts itself it is ended as a whole.
        command.process_group(0);
        let mut child = match cpu {
            None => command.spawn()?,
            Some(cpu) => spawn_on(command, cpu)?,
        };
        let (tell, lines) = channel();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        // From here on it is ended if anything fails.
        let started = Started {
            child,
            lines,
            stdout: String::new(),
            last_error: String::new(),
        };
        if let Some(stderr) = stderr {
            read_lines(stderr, true, tell.clone())?;
        }
        if let Some(stdout) = stdout {
            read_lines(stdout, false, tell)?;
        }
        Ok(started)
    }

    /// Starts one that listens, and says on standard error where; returns it with its address.
    ///
    /// # Errors
    /// If it does not: why.
    pub(super) fn listening(command: Command) -> Result<(Started, String), String> {
        let mut started = Started::start(command, None).map_err(|error| error.to_string())?;
        match started.await_word("listening on ", LISTENS_WITHIN) {
            Some(address) => Ok((started, address)),
            None => Err(match started.last_error.as_str() {
                "" => "it does not listen".into(),
                line => line.to_owned(),
            }),
        }
    }

    pub(super) fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line that has `mark`, and returns the word behind that.
    pub(super) fn await_word(&mut self, mark: &str, timeout: Duration) -> Option<String> {
        let until = Instant::now() + timeout;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).ok()?;
            let word = line.text.split_once(mark).and_then(|(_, rest)| {
                let word = rest.split_whitespace().next()?;
                Some(word.trim_end_matches(',').to_owned())
            });
            self.keep(line);
            if word.is_some() {
                return word;
            }
        }
    }

    fn keep(&mut self, line: PrintedLine) {
        match line.is_error {
            true if line.text.trim().is_empty() => {}
            true => self.last_error = line.text,
            false => {
                self.stdout.push_str(&line.text);
                self.stdout.push('\n');
            }
        }
    }

    /// Waits for its end for so long at most, and tells of each look at it; `look` ends it with
    /// `false`. Returns whether it has ended by itself.
    pub(super) fn await_end(&mut self, timeout: Duration, look: &mut dyn FnMut() -> bool) -> bool {
        let until = Instant::now() + timeout;
        while Instant::now() < until {
            if !look() {
                return false;
            }
            match self.child.try_wait() {
                Ok(None) => thread::sleep(LOOK_EVERY),
                Ok(Some(_)) => return true,
                Err(_) => return false,
            }
        }
        false
    }

    /// Ends it if it still runs, and returns what it has printed.
    pub(super) fn end(mut self) -> io::Result<Printed> {
        self.stop();
        let status = self.child.wait()?;
        // Both threads end with their pipes, unless a program that it has started lives on.
        while let Ok(line) = self.lines.recv_timeout(GRACE) {
            self.keep(line);
        }
        Ok(Printed {
            status,
            stdout: std::mem::take(&mut self.stdout),
            last_error: std::mem::take(&mut self.last_error),
        })
    }

    /// Ends it at once, with all that it has started: nothing that it could still say is wanted.
    pub(super) fn kill(self) {
        signal_group(self.child.id(), Signal::KILL);
    }

    fn stop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        signal_group(self.child.id(), Signal::TERM);
        if !self.await_end(GRACE, &mut || true) {
            signal_group(self.child.id(), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Reads lines in a thread of its own, which ends with the pipe, or when nobody wants them.
fn read_lines(
    pipe: impl Read + Send + 'static,
    is_error: bool,
    tell: Sender<PrintedLine>,
) -> io::Result<()> {
    let read = move || {
        let mut lines = BufReader::new(pipe.take(SCENARIO_OUTPUT_BYTES)).lines();
        while let Some(Ok(mut text)) = lines.next() {
            if is_error {
                text = text.chars().take(SCENARIO_LINE_CHARACTERS).collect();
            }
            if tell.send(PrintedLine { is_error, text }).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().spawn(read).map(drop)
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    fn shell(script: &str) -> Started {
        let mut command = Command::new("sh");
        command
            .args(["-c", script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Started::start(command, None).expect("a shell")
    }

    const TIMEOUT: Duration = Duration::from_secs(20);

    #[test]
    fn what_it_prints_comes_back() {
        let script =
            "echo first >&2; echo 'is on 1.2.3.4:5, to x' >&2; echo out; echo end >&2; exit 3";
        let mut started = shell(script);
        assert_eq!(
            started.await_word(" on ", TIMEOUT).as_deref(),
            Some("1.2.3.4:5")
        );
        assert_eq!(started.await_word(" on ", TIMEOUT), None);
        assert!(started.await_end(TIMEOUT, &mut || true));
        let printed = started.end().expect("its end");
        assert_eq!(printed.status.code(), Some(3));
        assert_eq!(printed.stdout, "out\n");
        assert_eq!(printed.last_error, "end");
    }

    #[test]
    fn one_that_does_not_end_is_ended_with_all_it_has_started() {
        let mut started = shell("sleep 600 & echo $! >&2; echo 'pid' >&2; wait");
        let child = started.await_word("", TIMEOUT).expect("a process id");
        assert!(!started.await_end(Duration::from_millis(50), &mut || true));
        drop(started);
        let gone = || !std::path::Path::new(&format!("/proc/{child}/stat")).exists();
        let until = Instant::now() + TIMEOUT;
        while !gone() && Instant::now() < until {
            thread::sleep(LOOK_EVERY);
        }
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
    }

    #[test]
    fn whoever_looks_can_end_the_wait() {
        let mut started = shell("sleep 600");
        let mut looks = 0;
        let has_ended = started.await_end(TIMEOUT, &mut || {
            looks += 1;
            looks < 3
        });
        assert!(!has_ended);
        assert_eq!(looks, 3);
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error() {
        assert!(Started::start(Command::new("true"), Some(1_000_000)).is_err());
    }
}
