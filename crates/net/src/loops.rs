//! Event loops, or threads for connections, with their listeners: bound, run and stopped.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGINT, SIGQUIT, SIGTERM};

use crate::Address;
use crate::config::{Driver, LoopConfig};
use crate::epoll::Epoll;
use crate::event_loop::{Acceptor, LoopSockets};
use crate::handler::Handler;
use crate::limits::{HANDSHAKES_ASKED, HANDSHAKES_OF_THREADS, HANDSHAKES_PER_LOOP, MAX_THREADS};
use crate::listener::{BindError, Listener};
use crate::notice::Notice;
use crate::pool::{Door, ThreadPool};
use crate::reports::Reports;
use crate::run::{LoopStart, RunEnd, RunError};
use crate::spread::{ConnectionSpread, CountersReader, LoopList, Placement};
use crate::supervisor::{Crew, Supervisor};

/// Event loops with their listeners bound, ready to run.
pub struct Loops {
    config: LoopConfig,
    listeners: Vec<Listener>,
    addresses: Vec<Address>,
    list: LoopList,
    /// One for each loop.
    epolls: Vec<Epoll>,
    /// Where signals, stop handles and threads report.
    control: UnixStream,
    reports: Arc<Reports>,
    signals: Option<SignalHandlers>,
    /// Asked to stop twice.
    impatient: Arc<AtomicBool>,
}

/// Stops running loops from any thread.
#[derive(Clone, Debug)]
pub struct StopHandle(Arc<Reports>);

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
            Driver::Blocking => 1,
        };
        let list = LoopList::new(loops).map_err(BindError::System)?;
        let epolls = (0..loops)
            .map(|_| Epoll::new())
            .collect::<io::Result<Vec<_>>>()
            .map_err(BindError::System)?;
        let (reports, control) = Reports::new().map_err(BindError::System)?;
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
            list,
            epolls,
            control,
            reports,
            signals: None,
            impatient: Arc::default(),
        })
    }

    /// From now on the signals stop the loops, if the configuration says so, also before they
    /// [run](Loops::run), which does it else. Whoever announces that it serves should call this
    /// before: else a signal in the instant between kills the process.
    pub fn handle_signals(&mut self) -> io::Result<()> {
        if self.config.handle_signals && self.signals.is_none() {
            self.signals = Some(SignalHandlers::install(&self.reports, &self.impatient)?);
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
        CountersReader::new(self.list.clone())
    }

    /// Runs one loop on each thread until they are stopped, by a signal or a [`StopHandle`]. With
    /// [`Driver::Blocking`] threads for connections begin and end meanwhile.
    ///
    /// `make` makes each loop's handler, on the loop's own thread. The calling thread waits. The
    /// first request to stop drains, the second ends at once; a third signal ends the process,
    /// whatever a handler is caught in. After the run the signals are ignored: the process is
    /// about to end by itself.
    pub fn run<M>(mut self, make: M) -> Result<RunEnd, RunError>
    where
        M: Fn(&LoopStart) -> Box<dyn Handler> + Sync,
    {
        self.handle_signals().map_err(RunError::Signals)?;
        let Loops {
            config,
            listeners,
            list,
            epolls,
            control,
            reports,
            impatient,
            signals: _signals,
            ..
        } = self;
        let pool = match config.driver {
            Driver::EventLoops => None,
            Driver::Blocking => {
                let pool = ThreadPool::new(list.clone(), reports.clone(), &config);
                Some(Arc::new(pool))
            }
        };
        let first_loops = list.all();
        let placement: Box<dyn Placement> = match &pool {
            None => Box::new(ConnectionSpread::new(first_loops.clone())),
            Some(pool) => Box::new(Door::new(pool.clone())),
        };
        let mut acceptor = Some(Acceptor::new(listeners, placement, &config));
        let crew = Crew::new(&config, &list, &reports, pool.as_ref(), &make);
        std::thread::scope(|scope| {
            let mut supervisor = Supervisor::new(scope, &crew, &impatient);
            for (index, epoll) in epolls.into_iter().enumerate() {
                let acceptor = acceptor.take();
                supervisor.start_loop(index, LoopSockets { epoll, acceptor });
            }
            supervisor.run(&control)
        })
    }
}

impl StopHandle {
    /// Asks all loops to drain and end; asked again, to end at once. Returns without waiting.
    pub fn stop(&self) {
        self.0.stop();
    }
}

/// The handlers of SIGTERM, SIGINT and SIGQUIT, as long as it lives.
struct SignalHandlers(Vec<signal_hook::SigId>);

impl SignalHandlers {
    /// Each signal writes one byte. Once `impatient` is set, the next ends the process: a handler
    /// that hangs cannot be stopped otherwise.
    fn install(reports: &Reports, impatient: &Arc<AtomicBool>) -> io::Result<SignalHandlers> {
        let mut signals = SignalHandlers(Vec::new());
        for signal in [SIGTERM, SIGINT, SIGQUIT] {
            let (exit_code, flag) = (128 + signal, impatient.clone());
            signals
                .0
                .push(signal_hook::flag::register_conditional_shutdown(
                    signal, exit_code, flag,
                )?);
            let report = reports.stream()?;
            signals
                .0
                .push(signal_hook::low_level::pipe::register(signal, report)?);
        }
        Ok(signals)
    }
}

impl Drop for SignalHandlers {
    fn drop(&mut self) {
        for id in self.0.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

/// Descriptors for handshakes that are not finished, beside those of their connections.
fn of_handshakes(config: &LoopConfig) -> usize {
    let most = match config.driver {
        _ if config.listen.iter().all(|listen| listen.tls.is_none()) => 0,
        Driver::EventLoops => (HANDSHAKES_PER_LOOP + HANDSHAKES_ASKED) * config.threads,
        Driver::Blocking => HANDSHAKES_OF_THREADS,
    };
    most.min(config.max_connections)
}

/// Raises the soft limit on file descriptors, often 1024, as far as the connections need and the
/// hard limit allows.
fn allow_descriptors(config: &LoopConfig) {
    /// Beside connections: listeners, epoll and eventfd of each loop, files of the rest.
    const OTHER_DESCRIPTORS: u64 = 4096;
    let of_loops = match config.driver {
        Driver::EventLoops => 2 * config.threads,
        // An eventfd of each thread.
        Driver::Blocking => config.max_connections,
    };
    let needed = (config.max_connections + config.max_refusals() + of_loops) as u64;
    let needed = needed + OTHER_DESCRIPTORS + of_handshakes(config) as u64;
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
