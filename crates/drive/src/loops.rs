//! Starts loops on their threads, and stops them.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGINT, SIGQUIT, SIGTERM};

use crate::Address;
use crate::blocking::ConnectionThread;
use crate::config::{Driver, LoopConfig};
use crate::counters::LoopCounters;
use crate::event_loop::{Acceptor, EventLoop, monotonic_ns};
use crate::handler::{Handler, Waker};
use crate::limits::MAX_THREADS;
use crate::listener::{BindError, Listener};
use crate::notice::Notice;
use crate::pool::{Door, Pool};
use crate::spread::{LoopShared, Placement, Spread};
use crate::thread::pin_thread;
use crate::wake::Alarm;

/// Event loops with their listeners bound, ready to run.
pub struct Loops {
    config: LoopConfig,
    listeners: Vec<Listener>,
    addresses: Vec<Address>,
    shared: Vec<Arc<LoopShared>>,
    /// Where signals, stop handles and ending loops report.
    control: UnixStream,
    reports: Arc<UnixStream>,
    signals: Option<Signals>,
    /// Asked to stop twice.
    impatient: Arc<AtomicBool>,
}

/// What a handler's maker is told about the loop that the handler is for.
pub struct LoopStart {
    /// Which loop, from 0.
    pub index: usize,
    /// How many loops there are. With [`Driver::Blocking`] one more than threads for connections: the first only
    /// accepts, and refuses.
    pub loops: usize,
    /// The handler serves one connection at a time, and should take one request at a time: [`Driver::Blocking`].
    pub one_connection: bool,
    /// Wakes this loop, from any thread.
    pub waker: Arc<dyn Waker>,
    /// The counters of all loops.
    pub counters: CountersReader,
    /// The time on the clock of all loops.
    pub now_ns: u64,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Every handler had drained before the deadline, and nobody asked to stop at once.
    pub drained: bool,
    /// Somebody asked to stop a second time, so that nobody was waited for any more.
    pub hurried: bool,
}

/// Why loops could not run, or not to the end.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError {
    /// No handler for the signals could be installed.
    Signals(io::Error),
    /// A thread could not be started.
    Thread(io::Error),
    /// A loop failed in the kernel; the others were stopped.
    Loop {
        /// Which loop.
        index: usize,
        /// What the kernel says.
        error: io::Error,
    },
    /// A handler panicked; the other loops were stopped.
    Panicked {
        /// Which loop.
        index: usize,
    },
}

/// Stops running loops from any thread.
#[derive(Clone, Debug)]
pub struct StopHandle(Arc<UnixStream>);

/// Reads what the loops count, from any thread.
#[derive(Clone, Debug)]
pub struct CountersReader(Arc<[Arc<LoopShared>]>);

/// What stands in a report, one byte each. signal-hook writes an X.
const BY_SIGNAL: u8 = b'X';
const BY_HANDLE: u8 = b'S';
const LOOP_ENDED: u8 = b'E';

impl Loops {
    /// Binds all listeners.
    pub fn bind(config: LoopConfig) -> Result<Loops, BindError> {
        if config.listen.is_empty() {
            return Err(BindError::NoAddress);
        }
        if !(1..=MAX_THREADS).contains(&config.threads) {
            return Err(BindError::Threads(config.threads));
        }
        allow_descriptors(&config);
        let loops = match config.driver {
            Driver::EventLoops => config.threads,
            Driver::Blocking => 1 + config.threads,
        };
        let shared = (0..loops)
            .map(|_| Alarm::new().map(LoopShared::new).map(Arc::new))
            .collect::<Result<Vec<_>, _>>()
            .map_err(BindError::System)?;
        let (control, reports) = UnixStream::pair().map_err(BindError::System)?;
        let listeners = config
            .listen
            .iter()
            .map(|listen| Listener::bind(&listen.address, &config))
            .collect::<Result<Vec<_>, _>>()?;
        let addresses = listeners
            .iter()
            .map(|listener| listener.address().clone())
            .collect();
        Ok(Loops {
            config,
            listeners,
            addresses,
            shared,
            control,
            reports: Arc::new(reports),
            signals: None,
            impatient: Arc::default(),
        })
    }

    /// From now on the signals stop the loops, if the configuration says so, also before they [run](Loops::run), which
    /// does it else. Whoever announces that it serves should call this before: else a signal in the instant
    /// between kills the process.
    pub fn handle_signals(&mut self) -> io::Result<()> {
        if self.config.handle_signals && self.signals.is_none() {
            self.signals = Some(Signals::install(&self.reports, &self.impatient)?);
        }
        Ok(())
    }

    /// Where the listeners really listen, in the order of the configuration: with the port that
    /// the system chose, and numbers for names.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// A handle to stop the loops.
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle(self.reports.clone())
    }

    /// A reader of the loops' counters.
    pub fn counters(&self) -> CountersReader {
        CountersReader(self.shared.clone().into())
    }

    /// Runs one loop on each thread until they are stopped, by a signal or a [`StopHandle`].
    ///
    /// `make` makes each loop's handler, on the loop's own thread. The calling thread waits. The
    /// first request to stop drains, the second ends at once; a third signal ends the process,
    /// whatever a handler is caught in. After the run the signals are ignored: the process is
    /// about to end by itself.
    pub fn run<M>(mut self, make: M) -> Result<Ended, RunError>
    where
        M: Fn(&LoopStart) -> Box<dyn Handler> + Sync,
    {
        self.handle_signals().map_err(RunError::Signals)?;
        let counters = self.counters();
        let Loops {
            config,
            listeners,
            shared,
            control,
            reports,
            impatient,
            signals: _signals,
            ..
        } = self;
        let pool = match config.driver {
            Driver::EventLoops => None,
            Driver::Blocking => Some(Arc::new(Pool::new(shared.clone(), config.notices.clone()))),
        };
        let placement: Box<dyn Placement> = match &pool {
            None => Box::new(Spread::new(shared.clone())),
            Some(pool) => Box::new(Door::new(pool.clone())),
        };
        let mut acceptor = Some(Acceptor::new(listeners, placement, &config));
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..shared.len())
                .map(|index| {
                    let place = Place {
                        start: LoopStart {
                            index,
                            loops: shared.len(),
                            one_connection: pool.is_some() && index > 0,
                            waker: shared[index].clone(),
                            counters: counters.clone(),
                            now_ns: monotonic_ns(),
                        },
                        config: &config,
                        shared: shared[index].clone(),
                        acceptor: acceptor.take(),
                        pool: pool.clone(),
                        end: ReportEnd(&reports),
                    };
                    let thread = std::thread::Builder::new().name(format!("loop-{index}"));
                    thread.spawn_scoped(scope, || place.run(&make))
                })
                .collect();
            // A thread that could not be started has dropped its place, and so reported its end.
            supervise(&config, &shared, &control, threads.len(), &impatient);
            sum_up(threads, impatient.load(Ordering::Relaxed))
        })
    }
}

/// What one thread needs to be a loop.
struct Place<'a> {
    start: LoopStart,
    config: &'a LoopConfig,
    shared: Arc<LoopShared>,
    acceptor: Option<Acceptor>,
    /// From where the thread gets its connections, if it has one at a time.
    pool: Option<Arc<Pool>>,
    end: ReportEnd<'a>,
}

impl Place<'_> {
    fn run(self, make: &dyn Fn(&LoopStart) -> Box<dyn Handler>) -> io::Result<bool> {
        let Place {
            start,
            config,
            shared,
            acceptor,
            pool,
            end,
        } = self;
        let _end = end; // dropped last, also when the handler panics
        pin(start.index, config);
        let handler = make(&start);
        match pool {
            Some(pool) if start.one_connection => {
                ConnectionThread::new(start.index, config, shared, pool, handler).run()
            }
            _ => EventLoop::new(start.index, config, shared, acceptor, handler)?.run(),
        }
    }
}

impl StopHandle {
    /// Asks all loops to drain and end; asked again, to end at once. Returns without waiting.
    pub fn stop(&self) {
        report(&self.0, BY_HANDLE);
    }
}

impl CountersReader {
    /// One snapshot for each loop, in order.
    pub fn read(&self) -> Vec<LoopCounters> {
        self.0.iter().map(|shared| shared.counters.read()).collect()
    }
}

/// Waits for reports until all loops have ended; passes on the wish to stop.
fn supervise(
    config: &LoopConfig,
    shared: &[Arc<LoopShared>],
    mut control: &UnixStream,
    mut running: usize,
    impatient: &AtomicBool,
) {
    let mut stops = 0_u8;
    while running > 0 {
        let mut byte = [0];
        match control.read(&mut byte) {
            Ok(1..) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // Cannot be while this side holds the other end; if it were, wait for the threads.
            Ok(0) | Err(_) => return,
        }
        if byte[0] == LOOP_ENDED {
            running -= 1;
            if stops > 0 {
                continue;
            }
            // A loop ends unasked only by failing: the others must not go on half-served.
        } else if stops == 0 {
            config.notices.notice(&Notice::Stopping {
                by_signal: byte[0] == BY_SIGNAL,
            });
        } else if stops == 1 {
            // Before it is said: whoever reads it may send the signal that ends the process.
            impatient.store(true, Ordering::Relaxed);
            config.notices.notice(&Notice::StoppingNow);
        }
        stops = stops.saturating_add(1);
        shared.iter().for_each(|one| one.ask_to_stop());
    }
}

fn sum_up(
    threads: Vec<io::Result<ScopedJoinHandle<'_, io::Result<bool>>>>,
    impatient: bool,
) -> Result<Ended, RunError> {
    let mut drained = !impatient;
    let mut outcome = Ok(());
    for (index, thread) in threads.into_iter().enumerate() {
        let result = match thread.map(ScopedJoinHandle::join) {
            Ok(Ok(Ok(in_time))) => {
                drained &= in_time;
                Ok(())
            }
            Ok(Ok(Err(error))) => Err(RunError::Loop { index, error }),
            Ok(Err(_)) => Err(RunError::Panicked { index }),
            Err(error) => Err(RunError::Thread(error)),
        };
        outcome = outcome.and(result);
    }
    outcome.map(|()| Ended {
        drained,
        hurried: impatient,
    })
}

/// Reports the end of a thread, however it ends.
struct ReportEnd<'a>(&'a UnixStream);

impl Drop for ReportEnd<'_> {
    fn drop(&mut self) {
        report(self.0, LOOP_ENDED);
    }
}

fn report(mut reports: &UnixStream, byte: u8) {
    // Fails only when nobody listens any more: then there is nothing left to stop.
    let _ = reports.write_all(&[byte]);
}

/// The handlers of SIGTERM, SIGINT and SIGQUIT, as long as it lives.
struct Signals(Vec<signal_hook::SigId>);

impl Signals {
    /// Each signal writes one byte. Once `impatient` is set, the next ends the process: a handler
    /// that hangs cannot be stopped otherwise.
    fn install(reports: &UnixStream, impatient: &Arc<AtomicBool>) -> io::Result<Signals> {
        let mut signals = Signals(Vec::new());
        for signal in [SIGTERM, SIGINT, SIGQUIT] {
            let (exit_code, flag) = (128 + signal, impatient.clone());
            signals
                .0
                .push(signal_hook::flag::register_conditional_shutdown(
                    signal, exit_code, flag,
                )?);
            let report = reports.try_clone()?;
            signals
                .0
                .push(signal_hook::low_level::pipe::register(signal, report)?);
        }
        Ok(signals)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.0.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

fn pin(index: usize, config: &LoopConfig) {
    if config.pin.is_empty() {
        return;
    }
    let cpu = config.pin[index % config.pin.len()];
    if let Err(error) = pin_thread(cpu) {
        config.notices.notice(&Notice::PinFailed { cpu, error });
    }
}

/// Raises the soft limit on file descriptors, often 1024, as far as the connections need and the
/// hard limit allows.
fn allow_descriptors(config: &LoopConfig) {
    /// Beside connections: listeners, epoll and eventfd of each loop, files of the rest.
    const OTHER_DESCRIPTORS: u64 = 4096;
    let needed = (config.max_connections + config.max_refusals() + 2 * config.threads) as u64;
    let needed = needed + OTHER_DESCRIPTORS;
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current.filter(|&current| current < needed) else {
        return;
    };
    let allowed = limit
        .maximum
        .map_or(needed, |maximum| maximum.min(needed))
        .max(current);
    let raised = Rlimit {
        current: Some(allowed),
        maximum: limit.maximum,
    };
    let allowed = setrlimit(Resource::Nofile, raised).map_or(current, |()| allowed);
    if allowed < needed {
        config
            .notices
            .notice(&Notice::FewDescriptors { allowed, needed });
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Signals(error) => write!(f, "cannot handle signals: {error}"),
            RunError::Thread(error) => write!(f, "cannot start a thread: {error}"),
            RunError::Loop { index, error } => write!(f, "event loop {index} failed: {error}"),
            RunError::Panicked { index } => write!(f, "event loop {index} panicked"),
        }
    }
}

impl std::error::Error for RunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RunError::Signals(error) | RunError::Thread(error) => Some(error),
            RunError::Loop { error, .. } => Some(error),
            RunError::Panicked { .. } => None,
        }
    }
}
