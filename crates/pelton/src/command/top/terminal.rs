//! A terminal that shows one picture after the other, and is then as it was.

use std::io::{self, Write};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios};

use super::view::TopView;

/// A second screen, without a cursor, whose lines are cut where they are too long (xterm; every
/// terminal of these days): letters of two columns make them longer than they seem.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
/// To the end of the line, and of the screen.
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// `_POSIX_VDISABLE` of Linux: no key has this meaning.
const NO_KEY: u8 = 0;

/// Where the terminal does not say.
const USUAL: (usize, usize) = (24, 80);

/// The terminal, in a mode in which a key needs no Enter. It is as it was when this goes.
pub(super) struct Terminal {
    keys_before: Option<Termios>,
}

impl Terminal {
    pub(super) fn open() -> Terminal {
        write(ENTER);
        Terminal {
            keys_before: read_keys_at_once(),
        }
    }

    /// Shows a picture in the place of the one before.
    pub(super) fn draw(&mut self, view: &TopView<'_>) {
        let (rows, columns) = size();
        let mut text = String::from(HOME);
        // The last row has what to press.
        for line in view.lines(rows.saturating_sub(1), columns) {
            text.push_str(&line);
            text.push_str(CLEAR_LINE);
            text.push('\n');
        }
        text.push_str(CLEAR_BELOW);
        let hint = match self.keys_before.is_some() {
            true => "q ends",
            false => "Ctrl-C ends",
        };
        text.push_str(hint);
        write(&text);
    }

    /// Waits for so long at most. Returns whether `q` was pressed.
    pub(super) fn is_quit_within(&mut self, time: Duration) -> bool {
        if self.keys_before.is_none() {
            std::thread::sleep(time);
            return false;
        }
        let stdin = io::stdin();
        let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
        let timeout = Timespec::try_from(time).unwrap_or_default();
        // A signal that comes meanwhile is for whoever handles it.
        if !rustix::event::poll(&mut polled, Some(&timeout)).is_ok_and(|ready| ready > 0) {
            return false;
        }
        let mut keys = [0; 64];
        match rustix::io::read(&stdin, &mut keys) {
            // The terminal has gone.
            Ok(0) => true,
            Ok(count) => keys
                .iter()
                .take(count)
                .any(|key| matches!(key, b'q' | b'Q')),
            Err(Errno::INTR | Errno::AGAIN) => false,
            // The terminal has gone, and would be ready for ever.
            Err(_) => true,
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(before) = &self.keys_before {
            // A terminal that has gone needs nothing.
            let _ = rustix::termios::tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
        write(LEAVE);
    }
}

/// Has keys read at once and not shown. Returns how it was; `None` where standard input is no
/// terminal.
fn read_keys_at_once() -> Option<Termios> {
    let stdin = io::stdin();
    let before = rustix::termios::tcgetattr(&stdin).ok()?;
    let mut now = before.clone();
    // Ctrl-C stays a signal.
    now.local_modes
        .remove(LocalModes::ICANON | LocalModes::ECHO);
    now.special_codes[SpecialCodeIndex::VMIN] = 0;
    now.special_codes[SpecialCodeIndex::VTIME] = 0;
    // Stopped by Ctrl-Z it would leave its screen and its modes to the shell.
    now.special_codes[SpecialCodeIndex::VSUSP] = NO_KEY;
    rustix::termios::tcsetattr(&stdin, OptionalActions::Now, &now).ok()?;
    Some(before)
}

/// Rows and columns.
fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => {
            (usize::from(size.ws_row), usize::from(size.ws_col))
        }
        _ => USUAL,
    }
}

/// A terminal that takes nothing any more is noticed by the signal that comes with its end.
fn write(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
}
