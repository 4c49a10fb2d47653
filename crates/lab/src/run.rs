//! A run: threads that each turn a worker, and one that keeps the time.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use client::{Local, LocalCounters, LocalOptions, TcpFigures};
use net::{make_waits_precise, monotonic_ns, pin_thread};

use crate::limits;
use crate::load_plan::{Length, LoadPlan};
use crate::measure::{Tally, Window};
use crate::pacing::{Pace, time_left};
use crate::process;
use crate::run_intervals::{LoadInterval, RunIntervals};
use crate::run_watch::{LoadProgress, RunShared, RunWatch, SHOW_EVERY, Timeline};
use crate::stalls::{self, Stalls};
use crate::worker::{ConnectionMode, LoadRunError, LoadWorker, WorkerPlan};
use crate::workload::Workload;

/// What came out.
#[derive(Clone, Debug)]
pub struct LoadOutcome {
    /// What was counted, by all threads together.
    pub tally: Tally,
    /// How long was measured.
    pub elapsed_ns: u64,
    /// CPU time of this process while it measured.
    pub own_cpu_ns: u64,
    /// CPU time of the server meanwhile.
    pub server_cpu_ns: Option<u64>,
    /// The share of the time that the busiest thread was on a CPU, in percent; `None`: it was
    /// measured for less than [`limits::BUSY_MEASURED_LEAST`].
    pub busiest_percent: Option<f64>,
    /// When the measured time began, by the clock of [`Tally::kept_up_until_ns`].
    pub from_ns: u64,
    /// Open loop: how late the machine wakes a thread that only looks at the clock.
    pub stalls: Option<Stalls>,
    /// What all connections did, warm-up included.
    pub counters: LocalCounters,
    /// What the kernel counted meanwhile; `None` where it does not say, and where connections came
    /// and went.
    pub tcp: Option<TcpFigures>,
    /// How it went over time: intervals of the measured time that follow each other.
    pub intervals: Vec<LoadInterval>,
    /// The user ended it early.
    pub was_stopped: bool,
}

/// What one thread brings home.
struct ThreadResult {
    tally: Tally,
    counters: LocalCounters,
    tcp: Option<TcpFigures>,
    busy_percent: Option<f64>,
}

/// Runs a plan to its end. `make` makes the workload of a thread; `show` is called several times a
/// second, and ends the run early with `false`.
///
/// # Errors
/// If there is no connection, or no call can be made at all.
pub fn run<W: Workload>(
    plan: &LoadPlan,
    make: impl Fn(usize) -> W + Sync,
    show: &mut dyn FnMut(&LoadProgress) -> bool,
) -> Result<LoadOutcome, LoadRunError> {
    let shared = RunShared::new(plan.threads);
    thread::scope(|scope| {
        let (ready, readies) = channel();
        let mut threads = Vec::new();
        let mut starts = Vec::new();
        for index in 0..plan.threads {
            let (start, started) = channel();
            starts.push(start);
            let (ready, shared, make) = (ready.clone(), &shared, &make);
            let spawned = thread::Builder::new().spawn_scoped(scope, move || {
                let outcome = run_thread(plan, index, make, &ready, &started, shared);
                if outcome.is_err() {
                    shared.stop.store(true, Relaxed);
                }
                outcome
            });
            // The threads that were started end when `starts` goes.
            let no_thread = |error| LoadRunError::System(format!("cannot start a thread: {error}"));
            threads.push(spawned.map_err(no_thread)?);
        }
        drop(ready);
        if !await_connections(plan, &readies, &shared, show) {
            drop(starts);
            return Err(first_own_error(threads));
        }
        let timeline = timeline(plan);
        let is_paced = plan.worker.pace != Pace::Closed;
        let watching = is_paced.then_some(()).and_then(|()| {
            let (cpu, shared) = (plan.pin.first().copied(), &shared);
            let watch = move || stalls::watch(timeline.window, cpu, &shared.is_over);
            thread::Builder::new().spawn_scoped(scope, watch).ok()
        });
        for start in &starts {
            // A thread that has gone says why when it is joined.
            let _ = start.send(timeline);
        }
        let conducted = conduct(plan, timeline, threads, &shared, show);
        shared.is_over.store(true, Relaxed);
        let stalls = watching.and_then(|thread| thread.join().ok());
        let mut outcome = conducted?;
        if let Some(stalls) = &stalls {
            // What the measurement costs is not what a call costs.
            outcome.own_cpu_ns = outcome.own_cpu_ns.saturating_sub(stalls.cpu_ns);
        }
        outcome.stalls = stalls;
        Ok(outcome)
    })
}

/// Waits until all threads have their connections. Returns false if one has failed, or the user
/// wants no more.
fn await_connections(
    plan: &LoadPlan,
    readies: &Receiver<()>,
    shared: &RunShared,
    show: &mut dyn FnMut(&LoadProgress) -> bool,
) -> bool {
    let begun_ns = monotonic_ns();
    let mut ready = 0;
    while ready < plan.threads && !shared.stop.load(Relaxed) {
        match readies.recv_timeout(SHOW_EVERY) {
            Ok(()) => ready += 1,
            Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => {
                let progress = LoadProgress {
                    elapsed_ns: monotonic_ns().saturating_sub(begun_ns),
                    is_connecting: true,
                    ..LoadProgress::default()
                };
                if !show(&progress) {
                    shared.stop.store(true, Relaxed);
                }
            }
        }
    }
    ready == plan.threads
}

/// Returns the error of the first thread that did not end only because of another one.
fn first_own_error(
    threads: Vec<ScopedJoinHandle<'_, Result<ThreadResult, LoadRunError>>>,
) -> LoadRunError {
    let errors = threads.into_iter().filter_map(|thread| join(thread).err());
    let errors: Vec<LoadRunError> = errors.collect();
    let own = |error: &LoadRunError| !matches!(error, LoadRunError::Stopped);
    errors
        .into_iter()
        .find(own)
        .unwrap_or(LoadRunError::Stopped)
}

fn join(
    thread: ScopedJoinHandle<'_, Result<ThreadResult, LoadRunError>>,
) -> Result<ThreadResult, LoadRunError> {
    let joined = thread.join();
    joined.unwrap_or_else(|_| {
        Err(LoadRunError::System(
            "a thread of the generator has panicked".into(),
        ))
    })
}

fn timeline(plan: &LoadPlan) -> Timeline {
    /// Time for the threads to hear of it.
    const HEAD_START_NS: u64 = 5_000_000;
    let begin_ns = monotonic_ns() + HEAD_START_NS;
    let from_ns = begin_ns + plan.warm_up.as_nanos() as u64;
    let until_ns = match plan.length {
        Length::Duration(duration) => from_ns.saturating_add(duration.as_nanos() as u64),
        Length::Calls(_) => u64::MAX,
    };
    Timeline {
        begin_ns,
        window: Window { from_ns, until_ns },
    }
}

/// CPU times at one moment.
#[derive(Clone, Copy)]
struct Meter {
    own_ns: u64,
    server_ns: Option<u64>,
}

impl Meter {
    fn read(server: Option<u32>) -> Meter {
        Meter {
            own_ns: process::own_cpu_ns(),
            // A server that ends in the midst leaves no count, but the rest is worth showing.
            server_ns: server.and_then(|process| process::process_cpu_ns(process).ok()),
        }
    }
}

/// Keeps the time while the threads work, reads the meters at both ends, and adds up.
fn conduct(
    plan: &LoadPlan,
    timeline: Timeline,
    threads: Vec<ScopedJoinHandle<'_, Result<ThreadResult, LoadRunError>>>,
    shared: &RunShared,
    show: &mut dyn FnMut(&LoadProgress) -> bool,
) -> Result<LoadOutcome, LoadRunError> {
    let Window { from_ns, until_ns } = timeline.window;
    let mut watch = RunWatch {
        plan,
        timeline,
        shared,
        is_measuring: false,
        intervals: RunIntervals::default(),
        was_stopped: false,
    };
    watch.wait_until(from_ns, &threads, show);
    let before = Meter::read(plan.server_process);
    watch.is_measuring = true;
    watch.wait_until(until_ns, &threads, show);
    let after = Meter::read(plan.server_process);
    let after_ns = monotonic_ns();
    let mut whole = ThreadResult {
        tally: Tally::default(),
        counters: LocalCounters::default(),
        tcp: Some(TcpFigures::default()),
        busy_percent: None,
    };
    for thread in threads {
        whole.add(&join(thread)?);
    }
    let end_ns = match plan.length {
        Length::Calls(_) => whole.tally.last_end_ns.max(from_ns),
        Length::Duration(_) => until_ns.min(after_ns),
    };
    let elapsed_ns = end_ns.saturating_sub(from_ns);
    let rest = match plan.length {
        Length::Calls(_) => shared.look(elapsed_ns),
        // What ends behind its time is in no interval of it.
        Length::Duration(_) => watch.intervals.last().clone(),
    };
    Ok(LoadOutcome {
        intervals: watch.intervals.finish(&rest, elapsed_ns),
        elapsed_ns,
        from_ns,
        own_cpu_ns: after.own_ns - before.own_ns,
        server_cpu_ns: after
            .server_ns
            .zip(before.server_ns)
            .map(|(after_ns, before_ns)| after_ns.saturating_sub(before_ns)),
        busiest_percent: whole.busy_percent,
        stalls: None,
        counters: whole.counters,
        tcp: whole.tcp.filter(|_| whole.tally.reconnects == 0),
        tally: whole.tally,
        was_stopped: watch.was_stopped || shared.stop.load(Relaxed),
    })
}

impl ThreadResult {
    fn add(&mut self, other: &ThreadResult) {
        self.tally.add(&other.tally);
        let both = [self.busy_percent, other.busy_percent];
        self.busy_percent = both.into_iter().flatten().reduce(f64::max);
        self.tcp = self.tcp.zip(other.tcp).map(|(one, two)| sum_of(one, two));
        let (sum, counters) = (&mut self.counters, &other.counters);
        sum.begun += counters.begun;
        sum.ended += counters.ended;
        sum.reads += counters.reads;
        sum.writes += counters.writes;
        sum.waits += counters.waits;
        sum.bytes_in += counters.bytes_in;
        sum.bytes_out += counters.bytes_out;
        sum.dials += counters.dials;
        sum.socket_wait_ns += counters.socket_wait_ns;
        sum.window_wait_ns += counters.window_wait_ns;
    }
}

/// One thread's share of something that is divided as evenly as it can be.
fn share(total: u64, index: usize, count: usize) -> u64 {
    let (index, count) = (index as u64, count as u64);
    total / count + u64::from(index < total % count)
}

/// What one thread turns.
struct Turning<W: Workload> {
    worker: LoadWorker<W, Local>,
    local: Local,
}

fn run_thread<W: Workload>(
    plan: &LoadPlan,
    index: usize,
    make: &(impl Fn(usize) -> W + Sync),
    ready: &Sender<()>,
    started: &Receiver<Timeline>,
    shared: &RunShared,
) -> Result<ThreadResult, LoadRunError> {
    if !plan.pin.is_empty() {
        let cpu = plan.pin[index % plan.pin.len()];
        let refused =
            |error| LoadRunError::System(format!("cannot pin a thread to CPU {cpu}: {error}"));
        pin_thread(cpu).map_err(refused)?;
    }
    make_waits_precise();
    let mut turning = Turning::new(plan, index, make)?;
    // A connection that hears nothing says so itself, a little earlier.
    let timeout = plan.connect_timeout + limits::LONGEST_WAIT * 2;
    let give_up_ns = monotonic_ns().saturating_add(timeout.as_nanos() as u64);
    while !turning.worker.is_connected()? {
        if shared.stop.load(Relaxed) {
            return Err(LoadRunError::Stopped);
        }
        if monotonic_ns() >= give_up_ns {
            return Err(turning.connect_timed_out(plan, index));
        }
        turning.turn(Some(limits::LONGEST_WAIT.as_nanos() as u64))?;
    }
    let _ = ready.send(());
    let timeline = turning.await_start(started)?;
    if let Some(latencies) = shared.latencies.get(index) {
        turning.worker.share_latencies(Arc::clone(latencies));
    }
    turning.load(plan, timeline, shared)
}

impl<W: Workload> Turning<W> {
    fn new(
        plan: &LoadPlan,
        index: usize,
        make: &(impl Fn(usize) -> W + Sync),
    ) -> Result<Turning<W>, LoadRunError> {
        let worker_plan = WorkerPlan {
            thread: (index, plan.threads),
            connections: share(plan.connections as u64, index, plan.threads) as usize,
            calls: match plan.length {
                Length::Calls(calls) => Some(share(calls, index, plan.threads)),
                Length::Duration(_) => None,
            },
            ..plan.worker.clone()
        };
        let mut options = LocalOptions {
            connect_timeout_ns: plan.connect_timeout.as_nanos() as u64,
            authority: plan.authority.clone(),
            tls: plan.tls.clone(),
            framed: plan.framed,
            accepts_gzip: plan.accepts_gzip,
            ..LocalOptions::default()
        };
        // So a connection whose call is given up is closed, as others do: its response would come
        // while the next call runs.
        if plan.framed.is_some() && plan.worker.mode != ConnectionMode::Multiplexed {
            options.max_calls_per_channel = 1;
        }
        let connect = |error: client::ConnectError| LoadRunError::Connect(error.to_string());
        let mut local = Local::new(&plan.address, options).map_err(connect)?;
        let mut worker = LoadWorker::new(worker_plan, make(index));
        worker.connect(&mut local, monotonic_ns());
        Ok(Turning { worker, local })
    }

    /// Returns the error for connections that were not all open in time.
    fn connect_timed_out(&self, plan: &LoadPlan, index: usize) -> LoadRunError {
        let open = self.worker.open_connections();
        if open == 0 {
            let address = plan.address.clone();
            return LoadRunError::Connect(client::ConnectError::TimedOut { address }.to_string());
        }
        LoadRunError::Connect(format!(
            "cannot connect to {}: {open} of {} connections of this thread were open after {:.1} \
             s, the --timeout",
            plan.address,
            share(plan.connections as u64, index, plan.threads),
            plan.connect_timeout.as_secs_f64()
        ))
    }

    /// Keeps the connections alive until the run begins.
    fn await_start(&mut self, started: &Receiver<Timeline>) -> Result<Timeline, LoadRunError> {
        loop {
            match started.recv_timeout(Duration::from_millis(1)) {
                Ok(timeline) => return Ok(timeline),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(LoadRunError::Stopped);
                }
                Err(RecvTimeoutError::Timeout) => self.turn(Some(0))?,
            }
        }
    }

    /// One turn; waits at most `most_ns`.
    fn turn(&mut self, most_ns: Option<u64>) -> Result<(), LoadRunError> {
        let now_ns = monotonic_ns();
        self.worker.turn(&mut self.local, now_ns)?;
        self.local.flush(now_ns);
        let due_ns = self.worker.next_due_ns();
        let left_ns = due_ns.map(|due_ns| due_ns.saturating_sub(monotonic_ns()));
        let wait_ns = [left_ns, most_ns].into_iter().flatten().min();
        let waited = self.local.wait(wait_ns, now_ns);
        waited
            .map_err(|error| LoadRunError::System(format!("cannot wait for sockets: {error}")))?;
        // One reading of the clock for all that came together: it is the moment at which we could
        // have looked.
        let now_ns = monotonic_ns();
        let worker = &mut self.worker;
        self.local
            .receive(now_ns, &mut |happened| worker.happened(&happened, now_ns));
        worker.received(now_ns);
        Ok(())
    }

    /// From the beginning of the load to the end of its last call.
    fn load(
        mut self,
        plan: &LoadPlan,
        timeline: Timeline,
        shared: &RunShared,
    ) -> Result<ThreadResult, LoadRunError> {
        let window = timeline.window;
        let counted_before = self.local.counters(monotonic_ns());
        let tcp_before = self.tcp();
        // Until then nothing is due.
        while let Some(left) = time_left(timeline.begin_ns, monotonic_ns()) {
            thread::sleep(left);
        }
        self.worker.begin(timeline.begin_ns, window);
        let mut shown = (0, 0);
        let mut busy = Busy::default();
        let most_ns = Some(limits::LONGEST_WAIT.as_nanos() as u64);
        loop {
            self.turn(most_ns)?;
            let now_ns = monotonic_ns();
            busy.look(window, now_ns);
            let progress = self.worker.progress();
            shared.ended.fetch_add(progress.0 - shown.0, Relaxed);
            shared.failed.fetch_add(progress.1 - shown.1, Relaxed);
            shown = progress;
            if plan.stop_on_failure && progress.1 > 0 {
                shared.stop.store(true, Relaxed);
            }
            if shared.stop.load(Relaxed) {
                self.worker.stop(now_ns);
            }
            if self.worker.is_finished(now_ns) {
                busy.end(now_ns);
                break;
            }
        }
        let counters = difference(&self.local.counters(monotonic_ns()), &counted_before);
        let tcp = self.tcp().zip(tcp_before);
        Ok(ThreadResult {
            counters,
            tcp: tcp.map(|(after, before)| TcpFigures {
                segments_out: after.segments_out.saturating_sub(before.segments_out),
                segments_in: after.segments_in.saturating_sub(before.segments_in),
                retransmits: after.retransmits.saturating_sub(before.retransmits),
            }),
            busy_percent: busy.percent(),
            tally: self.worker.finish(monotonic_ns()),
        })
    }

    /// What the kernel has counted for all connections together.
    fn tcp(&mut self) -> Option<TcpFigures> {
        let channels: Vec<_> = self.worker.channels().collect();
        if channels.is_empty() {
            return None;
        }
        let mut sum = TcpFigures::default();
        for channel in channels {
            sum = sum_of(sum, self.local.tcp_figures(channel)?);
        }
        Some(sum)
    }
}

fn sum_of(one: TcpFigures, two: TcpFigures) -> TcpFigures {
    TcpFigures {
        segments_out: one.segments_out + two.segments_out,
        segments_in: one.segments_in + two.segments_in,
        retransmits: one.retransmits + two.retransmits,
    }
}

fn difference(after: &LocalCounters, before: &LocalCounters) -> LocalCounters {
    LocalCounters {
        begun: after.begun - before.begun,
        ended: after.ended - before.ended,
        reads: after.reads - before.reads,
        writes: after.writes - before.writes,
        waits: after.waits - before.waits,
        bytes_in: after.bytes_in - before.bytes_in,
        bytes_out: after.bytes_out - before.bytes_out,
        dials: after.dials - before.dials,
        socket_wait_ns: after.socket_wait_ns - before.socket_wait_ns,
        window_wait_ns: after.window_wait_ns - before.window_wait_ns,
    }
}

/// The share of the measured time that this thread was on a CPU.
#[derive(Default)]
struct Busy {
    first: Option<(u64, u64)>,
    last: Option<(u64, u64)>,
}

impl Busy {
    #[inline]
    fn look(&mut self, window: Window, now_ns: u64) {
        if self.first.is_none() && now_ns >= window.from_ns {
            self.first = Some((now_ns, process::thread_cpu_ns()));
        }
        if self.last.is_none() && now_ns >= window.until_ns {
            self.end(now_ns);
        }
    }

    fn end(&mut self, now_ns: u64) {
        self.last
            .get_or_insert_with(|| (now_ns, process::thread_cpu_ns()));
    }

    fn percent(&self) -> Option<f64> {
        let (first, last) = (self.first?, self.last?);
        let measured_ns = last.0.saturating_sub(first.0);
        let is_enough = measured_ns >= limits::BUSY_MEASURED_LEAST.as_nanos() as u64;
        is_enough.then(|| (last.1 - first.1) as f64 * 100.0 / measured_ns as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        for (total, count) in [(10, 3), (3, 3), (1, 1), (7, 2)] {
            let shares: Vec<u64> = (0..count).map(|index| share(total, index, count)).collect();
            assert_eq!(shares.iter().sum::<u64>(), total);
            let (least, most) = (shares.iter().min(), shares.iter().max());
            assert!(most.unwrap_or(&0) - least.unwrap_or(&0) <= 1, "{shares:?}");
        }
    }
    fn counters(of: impl Fn(u64) -> u64) -> LocalCounters {
        LocalCounters {
            begun: of(1),
            ended: of(2),
            reads: of(3),
            writes: of(4),
            waits: of(5),
            bytes_in: of(6),
            bytes_out: of(7),
            dials: of(8),
            socket_wait_ns: of(9),
            window_wait_ns: of(10),
        }
    }

    fn tcp(of: impl Fn(u64) -> u64) -> Option<TcpFigures> {
        Some(TcpFigures {
            segments_out: of(1),
            segments_in: of(2),
            retransmits: of(3),
        })
    }

    #[test]
    fn what_was_counted_before_is_taken_off() {
        let (before, after) = (counters(|field| field), counters(|field| field * 11));
        assert_eq!(difference(&after, &before), counters(|field| field * 10));
    }

    #[test]
    fn threads_are_added_up() {
        let part = |factor: u64, busy_percent| ThreadResult {
            tally: Tally {
                succeeded: factor,
                ..Tally::default()
            },
            counters: counters(|field| field * factor),
            tcp: tcp(|field| field * factor),
            busy_percent,
        };
        let mut whole = part(1, Some(10.0));
        whole.add(&part(10, Some(30.0)));
        whole.add(&part(100, None));
        assert_eq!(whole.tally.succeeded, 111);
        assert_eq!(whole.counters, counters(|field| field * 111));
        assert_eq!(whole.tcp, tcp(|field| field * 111));
        assert_eq!(whole.busy_percent, Some(30.0), "that of the busiest");
        // A sum without one of its parts is none.
        let mut without = part(1, None);
        without.tcp = None;
        whole.add(&without);
        assert_eq!(whole.tcp, None);
    }

    #[test]
    fn busy_is_the_share_of_the_window_on_a_cpu() {
        let busy = |first, last| Busy { first, last }.percent();
        const LEAST_NS: u64 = 100_000_000;
        let first = Some((100, 30));
        let quarter = Some((100 + LEAST_NS, 30 + LEAST_NS / 4));
        assert_eq!(busy(first, quarter), Some(25.0));
        let early = Some((99 + LEAST_NS, 30 + LEAST_NS / 4));
        assert_eq!(busy(first, early), None, "too little time has passed");
        assert_eq!(busy(first, first), None);
        assert_eq!(busy(first, None), None);
        assert_eq!(busy(None, quarter), None);
    }

    /// Looks before and behind the window change nothing: the first one in it and the first one
    /// behind it count.
    #[test]
    fn busy_looks_at_both_ends_of_the_window() {
        let window = Window {
            from_ns: 100,
            until_ns: 200,
        };
        let mut busy = Busy::default();
        let mut look = |now_ns| {
            busy.look(window, now_ns);
            (
                busy.first.map(|(at_ns, _)| at_ns),
                busy.last.map(|(at_ns, _)| at_ns),
            )
        };
        assert_eq!(look(99), (None, None));
        assert_eq!(look(100), (Some(100), None));
        assert_eq!(look(199), (Some(100), None));
        assert_eq!(look(200), (Some(100), Some(200)));
        assert_eq!(look(300), (Some(100), Some(200)));
        busy.end(400);
        assert_eq!(busy.last.map(|(at_ns, _)| at_ns), Some(200));
    }
}
