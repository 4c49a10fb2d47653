//! Signals that ask a server to stop while it starts.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::{flag, low_level, low_level::pipe};

use crate::exit::Exit;
use crate::interrupt::is_hangup_ignored;

/// As long as it lives, SIGTERM, SIGINT and SIGQUIT end the program at once, with [`Exit::Done`]:
/// nothing was served, and what a start writes may be cut off anywhere, as by a crash. SIGHUP, by
/// default the end of a process, is noted for the server.
pub struct StartSignals {
    ids: Vec<SigId>,
    came: Arc<AtomicBool>,
    hung_up: HangupNoted,
}

/// Whether SIGHUP has come since the program began.
#[derive(Clone, Debug, Default)]
pub struct HangupNoted(Arc<AtomicBool>);

impl HangupNoted {
    /// Returns whether it has, since this was asked last.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::SeqCst)
    }
}

impl StartSignals {
    /// Begins to listen to the signals. Until then they end the program by themselves, which is a
    /// failure to whoever started it: this comes first.
    pub fn listen() -> io::Result<StartSignals> {
        let (mut reports, end) = UnixStream::pair()?;
        let mut signals = StartSignals {
            ids: Vec::new(),
            came: Arc::default(),
            hung_up: HangupNoted::default(),
        };
        if !is_hangup_ignored() {
            // For good: the server adds what it does then.
            flag::register(SIGHUP, Arc::clone(&signals.hung_up.0))?;
        }
        for signal in [SIGTERM, SIGINT, SIGQUIT] {
            let noted = flag::register(signal, Arc::clone(&signals.came))?;
            signals.ids.push(noted);
            signals.ids.push(pipe::register(signal, end.try_clone()?)?);
        }
        drop(end);
        ignore_user_signals()?;
        let thread = thread::Builder::new().name("pelton-signals".into());
        thread.spawn(move || {
            // With the last handler the other end goes, and nothing is read.
            if reports.read_exact(&mut [0]).is_ok() {
                end_program();
            }
        })?;
        Ok(signals)
    }

    /// The server has taken the signals over. One that came before ends the program even now, but
    /// for SIGHUP, which is returned.
    pub fn pass_on(self) -> HangupNoted {
        let (came, hung_up) = (Arc::clone(&self.came), self.hung_up.clone());
        // No handler runs any more when these are gone.
        drop(self);
        if came.load(Ordering::SeqCst) {
            end_program();
        }
        hung_up
    }
}

impl Drop for StartSignals {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            low_level::unregister(id);
        }
    }
}

/// Has SIGUSR1 and SIGUSR2 do nothing from now on: what rotates logs sends them to servers that
/// open their log anew, and by default they end a process as a crash does.
fn ignore_user_signals() -> io::Result<()> {
    for signal in [SIGUSR1, SIGUSR2] {
        flag::register(signal, Arc::default())?;
    }
    Ok(())
}

fn end_program() -> ! {
    tracing::info!("signal received while starting: stopped, and nothing was served");
    std::process::exit(Exit::Done as i32)
}
