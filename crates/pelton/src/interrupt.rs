//! Ctrl-C and other signals that end a command.

use std::fs;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use net::limits::SAME_SIGNAL_MS;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::{flag, low_level::pipe};

use crate::arguments::OutputFormat;
use crate::exit::{Exit, Failure};

/// What the first signal does: whoever comes first, the command or the signal, decides it for good.
enum FirstSignal {
    /// It is noted here, and the command looks.
    IsNoted(Arc<AtomicBool>),
    /// It ends the program, and has come.
    Ends,
}

static FIRST_SIGNAL: OnceLock<FirstSignal> = OnceLock::new();

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
    /// From now on the first SIGINT, SIGTERM or SIGHUP is only noted, so that the command can say
    /// how far it came, and take away what it has made for itself; a further one ends the program
    /// at once, if it was not sent together with the first.
    pub fn listen() -> Interrupt {
        let noted = match FIRST_SIGNAL.get_or_init(|| FirstSignal::IsNoted(Arc::default())) {
            FirstSignal::IsNoted(noted) => Arc::clone(noted),
            // The command must not begin what nobody will finish.
            FirstSignal::Ends => wait_for_end(),
        };
        let is_impatient = Arc::default();
        // Two at once are told as SIGTERM: whoever sends that knows what he asks for.
        flag::register(SIGTERM, Exit::terminated_flag()).expect("this signal may be handled");
        let mut noted_signals = vec![SIGINT, SIGTERM];
        if !is_hangup_ignored() {
            flag::register(SIGHUP, Exit::hung_up_flag()).expect("this signal may be handled");
            noted_signals.push(SIGHUP);
        }
        for &signal in &noted_signals {
            // In this order: the first signal finds the flag not set.
            flag::register_conditional_default(signal, Arc::clone(&is_impatient))
                .and_then(|_| flag::register(signal, Arc::clone(&noted)))
                .expect("these signals may be handled");
        }
        if set_after_first_signal(&noted_signals, &is_impatient).is_err() {
            // Without a thread the next one ends the program, however soon it comes.
            for &signal in &noted_signals {
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

/// Another thread ends the program.
fn wait_for_end() -> ! {
    loop {
        thread::park();
    }
}

/// Whether SIGHUP was ignored when the program began: whoever began it wants it to outlive its
/// terminal, as `nohup` does. To be asked before anything handles that signal.
pub fn is_hangup_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = (status.lines()).find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (SIGHUP - 1)) != 0)
}

/// Whether a signal has come since [`Interrupt::listen`]; without that it ends the program by
/// itself.
pub fn is_noted() -> bool {
    matches!(FIRST_SIGNAL.get(), Some(FirstSignal::IsNoted(noted)) if noted.load(Ordering::Relaxed))
}

/// What is said when a signal ends the program.
type InterruptMessage = Box<dyn Fn() -> String + Send>;

/// Set by commands that know more than that they were interrupted.
static MESSAGE: Mutex<Option<InterruptMessage>> = Mutex::new(None);

/// From now on the first SIGINT or SIGTERM ends the program at once, with a message, until a
/// command notes signals by itself ([`Interrupt::listen`]). Where the system gives no thread they
/// end it without one.
pub fn end_at_signal(format: OutputFormat) {
    let Ok((mut signals, signal_end)) = UnixStream::pair() else {
        return;
    };
    let thread = thread::Builder::new().name("pelton-interrupt".into());
    let spawned = thread.spawn(move || {
        if signals.read_exact(&mut [0]).is_err() {
            return;
        }
        // It may have come just before the command began to note them.
        if let FirstSignal::IsNoted(noted) = FIRST_SIGNAL.get_or_init(|| FirstSignal::Ends) {
            noted.store(true, Ordering::Relaxed);
            return;
        }
        let message = MESSAGE.lock().unwrap_or_else(PoisonError::into_inner);
        let text = (message.as_ref()).map_or_else(of_calls, |message| message());
        let failure = Failure::Interrupted(text);
        failure.report(format);
        std::process::exit(i32::from(failure.exit() as u8));
    });
    if spawned.is_err() {
        return;
    }
    let _ = flag::register(SIGTERM, Exit::terminated_flag());
    for signal in [SIGINT, SIGTERM] {
        if let Ok(end) = signal_end.try_clone() {
            let _ = pipe::register(signal, end);
        }
    }
}

/// From now on a signal that ends the program at once does so with `message`: for commands that
/// change nothing and may be in the middle of a call.
pub fn say_at_signal(message: impl Fn() -> String + Send + 'static) {
    let mut current = MESSAGE.lock().unwrap_or_else(PoisonError::into_inner);
    *current = Some(Box::new(message));
}

/// What has become of the calls of a command, for the message of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum InterruptStage {
    /// None has begun.
    Idle = 0,
    /// One that only reads was sent.
    Reading = 1,
    /// One that changes something was sent.
    Writing = 2,
    /// The last one has ended with a response.
    Ended = 3,
}

/// The [`InterruptStage`].
static STAGE: AtomicU8 = AtomicU8::new(InterruptStage::Idle as u8);

/// Notes what becomes of the calls of a command.
pub fn note_calls(stage: InterruptStage) {
    STAGE.store(stage as u8, Ordering::Relaxed);
}

/// What a signal ends, of a command that says nothing by itself.
fn of_calls() -> String {
    let more = match STAGE.load(Ordering::Relaxed) {
        stage if stage == InterruptStage::Writing as u8 => {
            "; the server may have done it all the same"
        }
        stage if stage == InterruptStage::Ended as u8 => "; the server had responded by then",
        _ => "",
    };
    format!("interrupted{more}")
}

/// Starts a thread that sets `flag` once further signals are not the first one, sent again:
/// `timeout` sends it to the process and to its group. The thread ends with the process.
fn set_after_first_signal(noted: &[i32], flag: &Arc<AtomicBool>) -> io::Result<()> {
    let (mut signals, signal_end) = UnixStream::pair()?;
    for &signal in noted {
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
