//! Ctrl-C while something long is under way.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use net::limits::SAME_SIGNAL_MS;
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::{flag, low_level::pipe};

use crate::arguments::OutputFormat;
use crate::exit::{Exit, Failure};

/// Set by the first signal, once there is somebody who looks.
static NOTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on a file that would grow beyond the limit of the process is an error of its write, as
/// a full disk is, and not the end of the program without a word.
pub fn ignore_file_size_signal() {
    // Without it the program is as it was.
    let _ = flag::register(SIGXFSZ, Arc::default());
}

/// Whether the user wants us to stop.
#[derive(Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on the first SIGINT or SIGTERM is only noted, so that the command can say how far
    /// it came; a further one ends the program at once, if it was not sent together with the first.
    pub fn listen() -> Interrupt {
        let noted = Arc::clone(NOTED.get_or_init(Arc::default));
        let is_impatient = Arc::default();
        // Two at once are told as SIGTERM: whoever sends that knows what he asks for.
        flag::register(SIGTERM, Exit::terminated_flag()).expect("this signal may be handled");
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds the flag not set.
            flag::register_conditional_default(signal, Arc::clone(&is_impatient))
                .and_then(|_| flag::register(signal, Arc::clone(&noted)))
                .expect("these signals may be handled");
        }
        if set_after_first_signal(&is_impatient).is_err() {
            // Without a thread the next one ends the program, however soon it comes.
            for signal in [SIGINT, SIGTERM] {
                flag::register(signal, Arc::clone(&is_impatient))
                    .expect("these signals may be handled");
            }
        }
        Interrupt(noted)
    }

    /// Whether a signal has come.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Whether a signal has come since [`Interrupt::listen`]; without that it ends the program by
/// itself.
pub fn is_noted() -> bool {
    (NOTED.get()).is_some_and(|noted| noted.load(Ordering::Relaxed))
}

/// From now on the first SIGINT or SIGTERM ends the program at once, with `message`: for commands
/// that change nothing and may be in the middle of a call.
pub fn end_at_signal(
    format: OutputFormat,
    message: impl Fn() -> String + Send + 'static,
) -> io::Result<()> {
    let (mut signals, signal_end) = UnixStream::pair()?;
    flag::register(SIGTERM, Exit::terminated_flag())?;
    let thread = thread::Builder::new().name("pelton-interrupt".into());
    thread.spawn(move || {
        if signals.read_exact(&mut [0]).is_ok() {
            let failure = Failure::Interrupted(message());
            failure.report(format);
            std::process::exit(i32::from(failure.exit() as u8));
        }
    })?;
    for signal in [SIGINT, SIGTERM] {
        pipe::register(signal, signal_end.try_clone()?)?;
    }
    Ok(())
}

/// Starts a thread that sets `flag` once further signals are not the first one, sent again:
/// `timeout` sends it to the process and to its group. The thread ends with the process.
fn set_after_first_signal(flag: &Arc<AtomicBool>) -> io::Result<()> {
    let (mut signals, signal_end) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM] {
        pipe::register(signal, signal_end.try_clone()?)?;
    }
    let flag = Arc::clone(flag);
    let thread = thread::Builder::new().name("pelton-interrupt".into());
    thread.spawn(move || {
        if signals.read_exact(&mut [0]).is_ok() {
            thread::sleep(Duration::from_millis(SAME_SIGNAL_MS));
        }
        flag.store(true, Ordering::Relaxed);
    })?;
    Ok(())
}
