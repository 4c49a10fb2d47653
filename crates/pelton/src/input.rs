//! Where the input of a command comes from: a file, or standard input.

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::exit::Failure;
use crate::interrupt;

/// Bytes read in one go. What lies in one buffer is sent as one group at most, so it is of the size
/// that suits a Pipe.
pub const BUFFER_BYTES: usize = 256 << 10;

/// The longest line that is read. The largest value that a server can store takes less than this as
/// base64; without a bound, an input without line ends would fill the memory.
pub const LINE_BYTES_MAX: usize = 2 << 30;

/// A readable input, and its name for messages.
pub struct NamedInput {
    pub source: Box<dyn Read + Send>,
    pub name: String,
    /// Set for a regular file, which can be read twice and whose size is known.
    pub file_bytes: Option<u64>,
}

/// Opens the input of a command: `file`, or standard input if that is `-` or missing.
pub fn open(file: Option<&Path>) -> Result<NamedInput, Failure> {
    match file {
        Some(path) if path != Path::new("-") => open_file(path),
        None if io::stdin().is_terminal() => Err(Failure::Usage(
            "there is no input: name a file, or pipe it in (`-` reads from the terminal)".into(),
        )),
        _ => Ok(NamedInput {
            source: Box::new(Interruptible(io::stdin())),
            name: "standard input".into(),
            file_bytes: None,
        }),
    }
}

fn open_file(path: &Path) -> Result<NamedInput, Failure> {
    let name = path.display().to_string();
    // A named pipe that nobody writes to yet is waited for where a signal is looked for, and not
    // here.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = file.map_err(|error| unreadable(&name, &error))?;
    let about = file.metadata().map_err(|error| unreadable(&name, &error))?;
    if about.is_dir() {
        return Err(Failure::Failed(format!(
            "cannot read {name}: it is a folder"
        )));
    }
    Ok(NamedInput {
        source: Box::new(Interruptible(file)),
        name,
        file_bytes: about.is_file().then_some(about.len()),
    })
}

/// How long standard input is waited for before a signal is looked for.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// An input without a buffer, whose reads fail with [`Signalled`] when a signal was noted: else a
/// command that waits for a silent pipe or a terminal could not end.
pub struct Interruptible<F>(pub F);

/// A signal has come while an input was read.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
struct Signalled;

impl<F: AsFd> Interruptible<F> {
    /// Reads what comes soon.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if nothing has come, for those who have something else to look
    /// at.
    pub fn glance(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let input = self.0.as_fd();
        if interrupt::is_noted() {
            return Err(io::Error::other(Signalled));
        }
        let mut polled = [PollFd::new(&input, PollFlags::IN)];
        match poll(&mut polled, Some(&LOOK)) {
            Ok(0) | Err(Errno::INTR) => return Err(io::ErrorKind::WouldBlock.into()),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        match rustix::io::read(input, buffer) {
            Err(Errno::INTR | Errno::AGAIN) => Err(io::ErrorKind::WouldBlock.into()),
            read => Ok(read?),
        }
    }
}

impl<F: AsFd> Read for Interruptible<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.glance(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }
}

/// The failure to read from an input.
pub fn unreadable(name: &str, error: &io::Error) -> Failure {
    if error.get_ref().is_some_and(|inner| inner.is::<Signalled>()) {
        return Failure::Interrupted("interrupted".into());
    }
    Failure::Failed(format!("cannot read {name}: {error}"))
}

/// The refusal of an input without a single byte, which is what a failed command before a pipe
/// gives. `instead` says how to write that nothing is meant.
pub fn empty(name: &str, instead: &str) -> Failure {
    Failure::Usage(format!(
        "{name} is empty: did the command or file that it comes from fail? {instead}"
    ))
}

/// How to write that nothing is meant where an input is read line by line.
const EMPTY_LINE: &str = "An input of one blank line does nothing and is no failure";

/// An input line by line.
pub struct InputLines<R> {
    reader: BufReader<R>,
    name: String,
    line: Vec<u8>,
    number: u64,
}

impl<R: Read> InputLines<R> {
    pub fn new(source: R, name: &str) -> InputLines<R> {
        InputLines::buffered(BufReader::with_capacity(BUFFER_BYTES, source), name)
    }

    pub fn buffered(reader: BufReader<R>, name: &str) -> InputLines<R> {
        InputLines {
            reader,
            name: name.into(),
            line: Vec::new(),
            number: 0,
        }
    }

    /// The next line that is not blank, with its number (from 1); `None` at the end. An input
    /// without a byte is refused.
    pub fn next_line(&mut self) -> Result<Option<(u64, &[u8])>, Failure> {
        loop {
            self.line.clear();
            self.number += 1;
            let count = (&mut self.reader)
                .take(LINE_BYTES_MAX as u64 + 1)
                .read_until(b'\n', &mut self.line)
                .map_err(|error| unreadable(&self.name, &error))?;
            if count == 0 && self.number == 1 {
                return Err(empty(&self.name, EMPTY_LINE));
            }
            if count == 0 {
                return Ok(None);
            }
            if count > LINE_BYTES_MAX {
                return Err(Failure::Failed(format!(
                    "{}, line {}: it has more than {LINE_BYTES_MAX} bytes",
                    self.name, self.number
                )));
            }
            if !self.line.trim_ascii().is_empty() {
                return Ok(Some((self.number, self.line.trim_ascii())));
            }
        }
    }

    /// Whether the next line may have to be waited for.
    pub fn may_wait(&self) -> bool {
        !self.reader.buffer().contains(&b'\n')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_count_but_are_passed_over() {
        let mut lines = InputLines::new(&b"\n one \r\n\n \t\ntwo"[..], "test");
        let mut next = || {
            let line = lines.next_line().expect("it is readable");
            line.map(|(number, line)| (number, line.to_vec()))
        };
        assert_eq!(next(), Some((2, b"one".to_vec())));
        assert_eq!(next(), Some((5, b"two".to_vec())));
        assert_eq!(next(), None);
    }

    #[test]
    fn an_input_without_a_byte_is_no_list_of_no_lines() {
        let mut empty = InputLines::new(&b""[..], "test");
        let refused = empty.next_line();
        assert!(matches!(refused, Err(Failure::Usage(_))), "{refused:?}");
        let mut blank = InputLines::new(&b"\n"[..], "test");
        let nothing = blank.next_line();
        assert!(matches!(nothing, Ok(None)), "{nothing:?}");
    }
}
