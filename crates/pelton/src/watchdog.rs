//! Signs of life for the service manager, as long as all loops of the server turn.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, thread};

use server::Pulse;

use crate::limits::SIGNS_OF_LIFE_PER_SPAN;
use crate::notify::Notifier;

/// The thread that gives them. Ended with the value.
pub struct Watchdog {
    /// Nothing is ever sent; dropped, it ends the thread.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Starts it; `None`: nobody wants signs of life.
pub fn start(notifier: &Arc<Notifier>, pulse: Pulse) -> io::Result<Option<Watchdog>> {
    let Some(span) = notifier.watchdog() else {
        return Ok(None);
    };
    let (end, ended) = channel();
    let notifier = Arc::clone(notifier);
    let thread = thread::Builder::new().name("pelton-watchdog".into());
    let thread = thread.spawn(move || {
        let wait = |span: Duration| ended.recv_timeout(span) == Err(RecvTimeoutError::Timeout);
        run(&notifier, &pulse, span / SIGNS_OF_LIFE_PER_SPAN, wait)
    })?;
    Ok(Some(Watchdog {
        end: Some(end),
        thread: Some(thread),
    }))
}

/// `wait` answers whether to go on.
fn run(notifier: &Notifier, pulse: &Pulse, span: Duration, wait: impl Fn(Duration) -> bool) {
    loop {
        let asked = pulse.ask();
        if !wait(span) {
            return;
        }
        if pulse.is_answered(&asked) {
            notifier.alive();
        } else {
            tracing::warn!(
                "an event loop has not turned for {span:?}; without a sign of life the service \
                 manager will restart the server"
            );
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
