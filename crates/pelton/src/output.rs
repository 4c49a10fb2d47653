//! What a command prints on standard output.

use std::fmt;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::retry_on_intr;
use serde_json::{Map, Value};
use service::redact::without_tokens;

use crate::arguments::OutputFormat;
use crate::exit::Failure;
use crate::limits::STDOUT_WAIT_MS;

/// Writes a line to standard error, without the tokens that somebody has taken for a name: what
/// stands there ends in logs and in terminals of others; and without control characters, as it may
/// be a text of a server. That nobody can read it, as behind a
/// closed pipe or on a full device, changes nothing of what the command does: `eprintln!` would end
/// the program there.
pub fn note(text: impl fmt::Display) {
    let text = as_text(&without_tokens(&text.to_string()));
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// A text of which a terminal takes nothing for a command but ends of lines.
fn as_text(text: &str) -> String {
    let is_harmful = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    text.replace(is_harmful, "\u{fffd}")
}

/// Waits until standard output takes up to [`PIPE_BYTES`] at once.
pub fn wait_for_room(ms: u64) -> io::Result<()> {
    let stdout = io::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::OUT)];
    let timeout = Timespec::try_from(Duration::from_millis(ms)).unwrap_or_default();
    // A signal that comes meanwhile is for whoever handles it.
    let ready = retry_on_intr(|| rustix::event::poll(&mut polled, Some(&timeout)))?;
    let told = polled[0].revents();
    match ready {
        0 => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "it is full, and nobody reads it",
        )),
        _ if told.intersects(PollFlags::ERR | PollFlags::NVAL) => Err(io::Error::new(
            io::ErrorKind::BrokenPipe,
            "nobody reads it any more",
        )),
        _ => Ok(()),
    }
}

/// Returns whether standard output is a pipe or a socket whose other side has gone.
pub fn is_reader_gone() -> bool {
    let stdout = io::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    let ready = retry_on_intr(|| rustix::event::poll(&mut polled, Some(&Timespec::default())));
    ready.is_ok() && polled[0].revents().contains(PollFlags::ERR)
}

/// What a pipe takes at once if it takes anything: PIPE_BUF of Linux.
const PIPE_BYTES: usize = 4096;

/// Prints a text of a server, which goes on without somebody who reads that.
pub fn print_patiently(text: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    for piece in text.chunks(PIPE_BYTES) {
        wait_for_room(STDOUT_WAIT_MS)?;
        stdout.write_all(piece).and_then(|()| stdout.flush())?;
    }
    Ok(())
}

/// How many of what: `1 entry`, `2 entries`.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    }
}

/// `1 entry`, `2 entries`.
pub fn entries(count: u64) -> String {
    counted(count, "entry", "entries")
}

/// What a snapshot holds of databases in memory, and of blobs the descriptions.
pub fn entries_and_blobs(count: u64) -> String {
    counted(count, "entry or blob", "entries and blobs")
}

/// `1 database`, `2 databases`.
pub fn databases(count: u64) -> String {
    counted(count, "database", "databases")
}

/// `1 byte`, `2 bytes`.
pub fn bytes(count: u64) -> String {
    counted(count, "byte", "bytes")
}

/// Standard output, buffered. Everything printed must go through one of these, and end with
/// [`Output::end`].
pub struct Output {
    format: OutputFormat,
    writer: BufWriter<StdoutLock<'static>>,
    /// What cannot be printed any more is dropped, instead of ending the command.
    is_optional: bool,
    is_gone: bool,
    /// What has been done all the same if it cannot be printed.
    done: Option<&'static str>,
}

impl Output {
    /// Locks standard output.
    pub fn new(format: OutputFormat) -> Output {
        Output {
            format,
            writer: BufWriter::new(io::stdout().lock()),
            is_optional: false,
            is_gone: false,
            done: None,
        }
    }

    /// What a failure to print says has been done all the same, so that nobody does it a second
    /// time.
    pub fn after(mut self, done: Option<&'static str>) -> Output {
        self.done = done;
        self
    }

    /// For commands whose work is worth finishing when nobody reads what they print.
    pub fn optional(mut self) -> Output {
        self.is_optional = true;
        self
    }

    /// Whether JSON is wanted.
    pub fn is_json(&self) -> bool {
        self.format == OutputFormat::Json
    }

    /// Prints a line.
    pub fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.write(|writer| writeln!(writer, "{text}"))
    }

    /// Prints bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.write(|writer| writer.write_all(bytes))
    }

    fn write(
        &mut self,
        write: impl FnOnce(&mut BufWriter<StdoutLock<'static>>) -> io::Result<()>,
    ) -> Result<(), Failure> {
        if self.is_gone {
            return Ok(());
        }
        let written = write(&mut self.writer).map_err(Failure::output);
        let written = written.map_err(|failure| match self.done {
            Some(done) => failure.with(done),
            None => failure,
        });
        match written {
            Err(Failure::BrokenPipe) if self.is_optional => {
                self.is_gone = true;
                Ok(())
            }
            written => written,
        }
    }

    /// Prints bytes as they are; on a terminal the line is ended, so that the prompt stands on its
    /// own.
    pub fn raw(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.write(|writer| writer.write_all(bytes))?;
        if io::stdout().is_terminal() && !bytes.ends_with(b"\n") {
            self.line("")?;
        }
        Ok(())
    }

    /// Refuses bytes that would put a terminal into disorder, or make it do what they say. `what`:
    /// what they are; `instead`: how to see them all the same.
    pub fn check_terminal(bytes: &[u8], what: &str, instead: &str) -> Result<(), Failure> {
        if !io::stdout().is_terminal() || is_harmless(bytes) {
            return Ok(());
        }
        Err(Failure::Usage(format!(
            "{what} is no text, and was not printed: it could put this terminal into disorder; \
             {instead}"
        )))
    }

    /// Prints an object as one line of JSON.
    pub fn object(&mut self, object: Map<String, Value>) -> Result<(), Failure> {
        self.line(&Value::Object(object).to_string())
    }

    /// Prints an object if JSON is wanted, else a line.
    pub fn either(
        &mut self,
        text: &str,
        object: impl FnOnce() -> Map<String, Value>,
    ) -> Result<(), Failure> {
        if self.is_json() {
            self.object(object())
        } else {
            self.line(text)
        }
    }

    /// Writes out what is buffered, for whoever waits for it.
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.write(|writer| writer.flush())
    }

    /// Writes out what is buffered.
    pub fn end(mut self) -> Result<(), Failure> {
        self.flush()
    }
}

/// Whether a terminal shows bytes as text: UTF-8 without control characters, but for those of
/// lines.
fn is_harmless(bytes: &[u8]) -> bool {
    let is_usual = |one: char| !one.is_control() || matches!(one, '\n' | '\r' | '\t');
    match std::str::from_utf8(bytes) {
        Ok(text) => text.chars().all(is_usual),
        // The last character may go on in the next piece.
        Err(error) if error.error_len().is_none() => is_harmless(&bytes[..error.valid_up_to()]),
        Err(_) => false,
    }
}

#[cfg(test)]
#[test]
fn what_a_server_says_is_no_command_of_a_terminal() {
    assert_eq!(
        as_text("INTERNAL: \u{1b}[2Jno\r\n\tmore\u{9b}"),
        "INTERNAL: \u{fffd}[2Jno\u{fffd}\n\tmore\u{fffd}"
    );
}

#[cfg(test)]
#[test]
fn what_harms_a_terminal_is_known() {
    for text in ["", "hello\n", "a\tb\r\n", "Grüße, 世界 🦀"] {
        assert!(is_harmless(text.as_bytes()), "{text}");
    }
    for bytes in [
        &b"\0"[..],
        b"\x1b[2J",
        b"\xff\xfe",
        b"bell \x07",
        "\u{9b}".as_bytes(),
    ] {
        assert!(!is_harmless(bytes), "{bytes:?}");
    }
}

/// Lines with the cells of each row below each other. Cells of columns that are numbers stand at
/// the right.
pub fn in_columns<const COLUMNS: usize>(
    rows: Vec<[String; COLUMNS]>,
    are_numbers: [bool; COLUMNS],
) -> Vec<String> {
    let widths: [usize; COLUMNS] = std::array::from_fn(|column| {
        let lengths = rows.iter().map(|row| row[column].chars().count());
        lengths.max().unwrap_or(0)
    });
    let line = |row: [String; COLUMNS]| {
        let cells = row.into_iter().zip(are_numbers).zip(widths);
        let cells = cells.map(|((cell, is_number), width)| match is_number {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.into_iter().map(line).collect()
}

/// An object with these fields.
pub fn object<const COUNT: usize>(fields: [(&str, Value); COUNT]) -> Map<String, Value> {
    fields
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}
