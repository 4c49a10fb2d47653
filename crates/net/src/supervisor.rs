//! Starts the threads of loops, and waits for their ends.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use crate::blocking::ConnectionThread;
use crate::config::LoopConfig;
use crate::event_loop::{Acceptor, EventLoop, monotonic_ns};
use crate::handler::Handler;
use crate::limits::SAME_SIGNAL_MS;
use crate::loops::{CountersReader, Ended, LoopStart, RunError};
use crate::notice::Notice;
use crate::pool::ThreadPool;
use crate::spread::LoopList;
use crate::thread::pin_thread;

/// What stands in a report, one byte each. signal-hook writes an X.
const BY_SIGNAL: u8 = b'X';
const BY_HANDLE: u8 = b'S';
/// There is something in the list.
const LISTED: u8 = b'L';

/// Where signals, stop handles and threads report to the supervisor.
#[derive(Debug)]
pub(crate) struct Reports {
    stream: UnixStream,
    listed: Mutex<Listed>,
}

/// What threads have reported.
#[derive(Debug, Default)]
struct Listed {
    /// Slots whose thread is to be started.
    start: Vec<usize>,
    /// Loops whose thread is about to end.
    ended: Vec<usize>,
}

impl Reports {
    /// Reports, and where they are read.
    pub(crate) fn new() -> io::Result<(Arc<Reports>, UnixStream)> {
        let (control, stream) = UnixStream::pair()?;
        let listed = Mutex::default();
        Ok((Arc::new(Reports { stream, listed }), control))
    }

    /// A further writer, for signals.
    pub(crate) fn stream(&self) -> io::Result<UnixStream> {
        self.stream.try_clone()
    }

    /// Somebody asks all loops to stop.
    pub(crate) fn stop(&self) {
        self.write(BY_HANDLE);
    }

    /// The thread of a slot is to be started.
    pub(crate) fn start(&self, slot: usize) {
        self.list(|listed| listed.start.push(slot));
    }

    fn ended(&self, index: usize) {
        self.list(|listed| listed.ended.push(index));
    }

    /// One byte for all that gathers until it is read, so that nobody waits for room.
    fn list(&self, add: impl FnOnce(&mut Listed)) {
        let mut listed = self.lock();
        let was_empty = listed.start.is_empty() && listed.ended.is_empty();
        add(&mut listed);
        drop(listed);
        if was_empty {
            self.write(LISTED);
        }
    }

    fn take(&self) -> Listed {
        std::mem::take(&mut *self.lock())
    }

    fn write(&self, byte: u8) {
        // Fails only when nobody listens any more: then there is nothing left to stop.
        let _ = (&self.stream).write_all(&[byte]);
    }

    fn lock(&self) -> MutexGuard<'_, Listed> {
        // Nothing under this lock can panic half-way.
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports the end of a thread, however it ends.
struct ReportEnd<'a> {
    reports: &'a Reports,
    index: usize,
}

impl Drop for ReportEnd<'_> {
    fn drop(&mut self) {
        self.reports.ended(self.index);
    }
}

/// How a thread ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadEnd {
    /// It had no connection for a while.
    Idle,
    /// It was stopped.
    Stopped {
        /// Before the deadline.
        in_time: bool,
    },
}

/// What all threads are started with.
pub(crate) struct Crew<'a, M> {
    pub(crate) config: &'a LoopConfig,
    pub(crate) loops: &'a LoopList,
    pub(crate) counters: &'a CountersReader,
    pub(crate) reports: &'a Reports,
    /// The threads of the blocking driver.
    pub(crate) pool: Option<&'a Arc<ThreadPool>>,
    /// Makes handlers.
    pub(crate) make: &'a M,
}

impl<M> Crew<'_, M>
where
    M: Fn(&LoopStart) -> Box<dyn Handler> + Sync,
{
    /// On the thread of a loop.
    fn run(&self, start: &LoopStart, acceptor: Option<Acceptor>) -> io::Result<ThreadEnd> {
        // Dropped last, also when the handler panics.
        let _end = ReportEnd {
            reports: self.reports,
            index: start.index,
        };
        pin(start.index, self.config);
        let handler = (self.make)(start);
        let shared = self.loops.get(start.index);
        match self.pool {
            Some(pool) if start.one_connection => {
                let pool = Arc::clone(pool);
                ConnectionThread::new(start.index, self.config, shared, pool, handler).run()
            }
            _ => {
                let event_loop =
                    EventLoop::new(start.index, self.config, shared, acceptor, handler)?;
                let in_time = event_loop.run()?;
                Ok(ThreadEnd::Stopped { in_time })
            }
        }
    }
}

/// Starts threads, passes on the wish to stop, and sees how the threads end.
pub(crate) struct Supervisor<'scope, 'env, M> {
    scope: &'scope Scope<'scope, 'env>,
    crew: &'env Crew<'env, M>,
    /// By the number of the loop.
    threads: Vec<Option<ScopedJoinHandle<'scope, io::Result<ThreadEnd>>>>,
    running: usize,
    stops: u8,
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
            first_signal_ns: None,
            is_impatient,
            has_drained: true,
            outcome: Ok(()),
        }
    }

    /// Starts a loop that is there from the beginning.
    pub(crate) fn start_loop(&mut self, index: usize, acceptor: Option<Acceptor>) {
        if let Err(error) = self.spawn(index, false, acceptor) {
            self.fail(RunError::Thread(error));
        }
    }

    fn start_connection_thread(&mut self, slot: usize) {
        if let (Err(error), Some(pool)) = (self.spawn(slot, true, None), self.crew.pool) {
            pool.not_started(slot, error, monotonic_ns());
        }
    }

    fn spawn(
        &mut self,
        index: usize,
        one_connection: bool,
        acceptor: Option<Acceptor>,
    ) -> io::Result<()> {
        let crew = self.crew;
        let start = LoopStart {
            index,
            is_door: crew.pool.is_some() && !one_connection,
            one_connection,
            waker: crew.loops.get(index),
            counters: crew.counters.clone(),
            now_ns: monotonic_ns(),
        };
        let mut thread = Builder::new().name(format!("loop-{index}"));
        if one_connection {
            thread = thread.stack_size(crew.config.thread_stack_bytes);
        }
        let thread = thread.spawn_scoped(self.scope, move || crew.run(&start, acceptor))?;
        if index >= self.threads.len() {
            self.threads.resize_with(index + 1, || None);
        }
        self.threads[index] = Some(thread);
        self.running += 1;
        Ok(())
    }

    /// Waits until all threads have ended.
    pub(crate) fn run(mut self, mut control: &UnixStream) -> Result<Ended, RunError> {
        while self.running > 0 {
            let mut byte = [0];
            match control.read(&mut byte) {
                Ok(1..) => self.report(byte[0]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Cannot be while this side holds the other end; if it were, wait for the threads.
                Ok(0) | Err(_) => break,
            }
        }
        (0..self.threads.len()).for_each(|index| self.join(index));
        let hurried = self.is_impatient.load(Ordering::Relaxed);
        let drained = self.has_drained && !hurried;
        self.outcome.map(|()| Ended { drained, hurried })
    }

    fn report(&mut self, byte: u8) {
        if byte == BY_SIGNAL && self.is_same_signal() {
            return;
        }
        if byte != LISTED {
            return self.stop_asked(byte == BY_SIGNAL);
        }
        let listed = self.crew.reports.take();
        for slot in listed.start {
            self.start_connection_thread(slot);
        }
        for index in listed.ended {
            self.join(index);
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
