//! Starts the threads of loops, and waits for their ends.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use crate::blocking::{ConnectionThread, ThreadEnd};
use crate::config::LoopConfig;
use crate::event_loop::{EventLoop, LoopSockets, monotonic_ns};
use crate::handler::Handler;
use crate::limits::SAME_SIGNAL_MS;
use crate::notice::Notice;
use crate::pool::ThreadPool;
use crate::reports::{LoopReport, ReportEnd, Reports};
use crate::run::{LoopStart, RunEnd, RunError};
use crate::spread::{CountersReader, LoopList};
use crate::thread::pin_thread;

/// What all threads are started with.
pub(crate) struct Crew<'a, M> {
    config: &'a LoopConfig,
    loops: &'a LoopList,
    reports: &'a Reports,
    /// The threads of the blocking driver.
    pool: Option<&'a Arc<ThreadPool>>,
    /// Makes handlers.
    make: &'a M,
}

impl<'a, M> Crew<'a, M> {
    pub(crate) fn new(
        config: &'a LoopConfig,
        loops: &'a LoopList,
        reports: &'a Reports,
        pool: Option<&'a Arc<ThreadPool>>,
        make: &'a M,
    ) -> Crew<'a, M> {
        Crew {
            config,
            loops,
            reports,
            pool,
            make,
        }
    }
}

impl<M> Crew<'_, M>
where
    M: Fn(&LoopStart) -> Box<dyn Handler> + Sync,
{
    /// On the thread of a loop.
    fn run(&self, start: &LoopStart, sockets: Option<LoopSockets>) -> io::Result<ThreadEnd> {
        // Dropped last, also when the handler panics.
        let _end = ReportEnd::new(self.reports, start.index);
        pin(start.index, self.config);
        let handler = (self.make)(start);
        let shared = self.loops.get(start.index);
        match (sockets, self.pool) {
            (Some(sockets), _) => {
                let event_loop =
                    EventLoop::new(start.index, self.config, shared, sockets, handler)?;
                let in_time = event_loop.run()?;
                Ok(ThreadEnd::Stopped { in_time })
            }
            (None, Some(pool)) => {
                let pool = Arc::clone(pool);
                ConnectionThread::new(start.index, self.config, shared, pool, handler).run()
            }
            (None, None) => Ok(ThreadEnd::Stopped { in_time: true }),
        }
    }
}

/// Starts threads, passes on requests to stop, and sees how the threads end.
pub(crate) struct Supervisor<'scope, 'env, M> {
    scope: &'scope Scope<'scope, 'env>,
    crew: &'env Crew<'env, M>,
    /// By the number of the loop.
    threads: Vec<Option<ScopedJoinHandle<'scope, io::Result<ThreadEnd>>>>,
    running: usize,
    stops: u8,
    /// When the first request to stop came, on the monotonic clock.
    asked_ns: Option<u64>,
    /// When the first signal was read, on the monotonic clock.
    first_signal_ns: Option<u64>,
    /// Asked to stop twice.
    is_impatient: &'env AtomicBool,
    has_drained: bool,
    outcome: Result<(), RunError>,
}

impl<'scope, 'env, M> Supervisor<'scope, 'env, M>
where
    M: Fn(&LoopStart) -> Box<dyn Handler> + Sync,
{
    pub(crate) fn new(
        scope: &'scope Scope<'scope, 'env>,
        crew: &'env Crew<'env, M>,
        is_impatient: &'env AtomicBool,
    ) -> Self {
        Supervisor {
            scope,
            crew,
            threads: Vec::new(),
            running: 0,
            stops: 0,
            asked_ns: None,
            first_signal_ns: None,
            is_impatient,
            has_drained: true,
            outcome: Ok(()),
        }
    }

    /// Starts a loop that is there from the beginning.
    pub(crate) fn start_loop(&mut self, index: usize, sockets: LoopSockets) {
        if let Err(error) = self.spawn(index, Some(sockets)) {
            self.fail(RunError::Thread(error));
        }
    }

    fn start_connection_thread(&mut self, slot: usize) {
        if let (Err(error), Some(pool)) = (self.spawn(slot, None), self.crew.pool) {
            pool.not_started(slot, error, monotonic_ns());
        }
    }

    /// Starts the thread of a loop with these sockets, or of one connection.
    fn spawn(&mut self, index: usize, sockets: Option<LoopSockets>) -> io::Result<()> {
        let crew = self.crew;
        let one_connection = sockets.is_none();
        let start = LoopStart {
            index,
            is_door: crew.pool.is_some() && !one_connection,
            one_connection,
            waker: crew.loops.get(index),
            counters: CountersReader::new(crew.loops.clone()),
            now_ns: monotonic_ns(),
        };
        let mut thread = Builder::new().name(format!("loop-{index}"));
        if one_connection {
            thread = thread.stack_size(crew.config.thread_stack_bytes);
        }
        let thread = thread.spawn_scoped(self.scope, move || crew.run(&start, sockets))?;
        if index >= self.threads.len() {
            self.threads.resize_with(index + 1, || None);
        }
        self.threads[index] = Some(thread);
        self.running += 1;
        Ok(())
    }

    /// Waits until all threads have ended.
    pub(crate) fn run(mut self, control: &UnixStream) -> Result<RunEnd, RunError> {
        while self.running > 0 {
            let Some(report) = self.crew.reports.next(control) else {
                break; // what is left to do is to wait for the threads
            };
            self.take(report);
        }
        (0..self.threads.len()).for_each(|index| self.join(index));
        let hurried = self.is_impatient.load(Ordering::Relaxed);
        let drained = self.has_drained && !hurried;
        let asked_ns = self.asked_ns;
        self.outcome.map(|()| RunEnd {
            drained,
            hurried,
            asked_ns,
        })
    }

    fn take(&mut self, report: LoopReport) {
        match report {
            LoopReport::Signal if self.is_same_signal() => {}
            LoopReport::Signal => self.stop_asked(true),
            LoopReport::Handle => self.stop_asked(false),
            LoopReport::Threads(listed) => {
                listed
                    .to_start()
                    .for_each(|slot| self.start_connection_thread(slot));
                listed.ended().for_each(|index| self.join(index));
            }
        }
    }

    /// Whether a signal was sent together with the first one.
    fn is_same_signal(&mut self) -> bool {
        let now_ns = monotonic_ns();
        match self.first_signal_ns {
            Some(first_ns) => is_one_signal(first_ns, now_ns),
            None => {
                self.first_signal_ns = Some(now_ns);
                false
            }
        }
    }

    fn stop_asked(&mut self, by_signal: bool) {
        let notices = &self.crew.config.notices;
        if self.stops == 0 {
            self.asked_ns = Some(monotonic_ns());
            notices.notice(&Notice::Stopping { by_signal });
        } else if self.stops == 1 {
            // Before it is said: whoever reads it may send the signal that ends the process.
            self.is_impatient.store(true, Ordering::Relaxed);
            notices.notice(&Notice::StoppingNow);
        }
        self.ask_all_to_stop();
    }

    fn ask_all_to_stop(&mut self) {
        self.stops = self.stops.saturating_add(1);
        match self.crew.pool {
            Some(pool) => pool.ask_to_stop(),
            None => self.crew.loops.ask_to_stop(),
        }
    }

    /// A thread is about to end.
    fn join(&mut self, index: usize) {
        let Some(thread) = self.threads.get_mut(index).and_then(Option::take) else {
            return;
        };
        self.running -= 1;
        match thread.join() {
            Ok(Ok(ThreadEnd::Idle)) => {
                if let Some(pool) = self.crew.pool {
                    pool.ended(index);
                }
            }
            Ok(Ok(ThreadEnd::Stopped { in_time })) => self.has_drained &= in_time,
            Ok(Err(error)) => self.fail(RunError::Loop { index, error }),
            Err(_) => self.fail(RunError::Panicked { index }),
        }
    }

    /// The others must not go on half-served.
    fn fail(&mut self, error: RunError) {
        if self.outcome.is_ok() {
            self.outcome = Err(error);
        }
        if self.stops == 0 {
            self.ask_all_to_stop();
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

/// Whether two signals were sent together: to the process and to its group.
fn is_one_signal(first_ns: u64, now_ns: u64) -> bool {
    now_ns.saturating_sub(first_ns) < SAME_SIGNAL_MS * 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_come_together_are_one() {
        let first_ns = 5_000_000_000;
        let together_ns = SAME_SIGNAL_MS * 1_000_000;
        for (after_ns, is_one) in [
            (0, true),
            (1_000_001, true),
            (together_ns - 1, true),
            (together_ns, false),
            (together_ns + 1, false),
        ] {
            let now_ns = first_ns + after_ns;
            assert_eq!(is_one_signal(first_ns, now_ns), is_one, "{after_ns} ns");
        }
    }
}
