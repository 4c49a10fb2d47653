//! One thread's calls: which begin when, on which connection, and how they are counted.
//!
//! A worker is a value without socket, thread and clock. It is told the time and what happened; it
//! begins calls on a [`Transport`]. So a test can put it before a server that stalls for an exactly
//! known time.

mod begin;
mod calls;
mod end;
mod heads;
mod lines;
#[cfg(test)]
mod stream_tests;
mod streams;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use client::Credentials;

use crate::latency_counts::SharedLatencies;
use crate::limits;
use crate::measure::{PartTally, StreamTally, Tally, Window};
use crate::pacing::{Pace, Schedule};
use crate::random::Random;
use crate::transport::Transport;
use crate::workload::Workload;
use calls::Calls;
use heads::Heads;
pub use heads::{MetadataField, MetadataValue};
use lines::Lines;
use streams::WorkerStreams;

/// How connections are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionMode {
    /// Several calls at a time on each.
    Multiplexed,
    /// One call at a time on each.
    Exclusive,
    /// A new one for each call.
    Short,
}

/// What one worker does.
#[derive(Clone, Debug)]
pub struct WorkerPlan {
    /// Its number, and how many there are.
    pub thread: (usize, usize),
    /// Its connections, at least one.
    pub connections: usize,
    /// Calls at a time on each.
    pub in_flight: usize,
    /// How they are used.
    pub mode: ConnectionMode,
    /// What makes calls begin.
    pub pace: Pace,
    /// How long each call may take.
    pub deadline_ns: Option<u64>,
    /// What goes with each call.
    pub metadata: Vec<MetadataField>,
    /// What proves who calls, which goes with each call as well.
    pub credentials: Option<Credentials>,
    /// So many measured calls and no more; `None`: as many as fit into the window.
    pub calls: Option<u64>,
    /// Begins the random numbers.
    pub seed: u64,
}

impl WorkerPlan {
    /// So many calls at a time on connections that stay, in a closed loop, with nothing beside the
    /// request.
    pub fn closed(in_flight: usize) -> WorkerPlan {
        WorkerPlan {
            thread: (0, 1),
            connections: 0,
            in_flight,
            mode: ConnectionMode::Multiplexed,
            pace: Pace::Closed,
            deadline_ns: None,
            metadata: Vec::new(),
            credentials: None,
            calls: None,
            seed: 1,
        }
    }

    /// Returns how long no call may end, while some are under way, until a run of a number of calls
    /// ends: calls that may take longer have their deadline.
    pub(crate) fn stall_ns(&self) -> u64 {
        let limit_ns = limits::SERVER_STALLED.as_nanos() as u64;
        self.deadline_ns
            .map_or(limit_ns, |deadline_ns| deadline_ns.max(limit_ns))
    }
}

/// Why a run cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum LoadRunError {
    /// There is no connection.
    #[error("{0}")]
    Connect(String),
    /// The request cannot be sent at all.
    #[error("the call cannot be made: {0}")]
    BadRequest(String),
    /// The system refuses something.
    #[error("{0}")]
    System(String),
    /// The user ended it before the load began, or another thread has failed, which says why.
    #[error("stopped before the load began")]
    Stopped,
}

/// One thread's calls.
pub struct LoadWorker<W, T: Transport> {
    plan: WorkerPlan,
    workload: W,
    paths: Vec<String>,
    is_pipe: bool,
    /// Whether calls are not unary: messages of a Pipe, or of streaming methods.
    has_streams: bool,
    is_large: bool,
    has_pipe_for_each: bool,
    heads: Heads,
    lines: Lines<T::Stream>,
    streams: WorkerStreams<T::Stream>,
    /// Those that were never dialed.
    to_dial: Range<usize>,
    calls: Calls,
    /// Calls under way, and since when they are so many.
    level: (usize, u64),
    schedule: Option<Schedule>,
    /// Before it nothing is taken up of the schedule, so that more comes together.
    take_up_ns: u64,
    /// Bytes of requests that were put together in this turn.
    turn_bytes: usize,
    /// Whether they were so many that calls that could begin wait for the next turn.
    is_cut: bool,
    /// Calls a second of this worker in an open loop.
    rate: f64,
    /// When it is next looked whether the calls that end keep up with those that come due.
    look_ns: u64,
    /// Moments that have come and whose calls wait for a free place.
    backlog: VecDeque<u64>,
    window: Window,
    /// Whether parts of the window are measured by themselves.
    has_parts: bool,
    has_begun: bool,
    /// Whether the window has passed.
    is_past_end: bool,
    /// Whether calls begin.
    is_running: bool,
    /// Measured calls begun.
    measured: u64,
    /// Whether a call has succeeded, at any time.
    has_succeeded: bool,
    tally: Tally,
    /// What the first answer said that took no effect, and whose call has not ended.
    refusal: Option<String>,
    /// Where latencies are also counted for others, while the run goes on.
    shared_latencies: Option<Arc<SharedLatencies>>,
    fatal: Option<LoadRunError>,
}

impl<W: Workload, T: Transport> LoadWorker<W, T> {
    /// A worker that has not begun.
    pub fn new(plan: WorkerPlan, workload: W) -> LoadWorker<W, T> {
        let never = Window {
            from_ns: u64::MAX,
            until_ns: u64::MAX,
        };
        let mut random = Random::of_thread(plan.seed, plan.thread.0);
        let paths = workload.paths();
        assert!(paths.len() <= limits::MAX_KINDS, "each kind is counted");
        let streaming = workload.streaming();
        LoadWorker {
            paths,
            is_pipe: workload.is_pipe(),
            has_streams: workload.is_pipe() || streaming.is_some(),
            is_large: workload.is_large(),
            has_pipe_for_each: workload.has_pipe_for_each(),
            heads: Heads::new(
                &plan.metadata,
                plan.credentials.as_ref(),
                Random::new(random.next()),
            ),
            lines: Lines::new(
                plan.connections,
                if workload.has_pipe_for_each() {
                    plan.in_flight
                } else {
                    1
                },
            ),
            streams: WorkerStreams::new(streaming),
            to_dial: 0..0,
            calls: Calls::default(),
            level: (0, 0),
            schedule: None,
            take_up_ns: 0,
            turn_bytes: 0,
            is_cut: false,
            rate: 0.0,
            look_ns: 0,
            backlog: VecDeque::new(),
            window: never,
            has_parts: false,
            has_begun: false,
            is_past_end: false,
            is_running: false,
            measured: 0,
            has_succeeded: false,
            tally: Tally {
                streams: streaming.map(|_| Box::new(StreamTally::default())),
                ..Tally::default()
            },
            refusal: None,
            shared_latencies: None,
            fatal: None,
            plan,
            workload,
        }
    }

    /// Begins to open the connections, the further ones with each turn; nothing in
    /// [`ConnectionMode::Short`], where calls do.
    pub fn connect(&mut self, transport: &mut T, now_ns: u64) {
        if self.plan.mode != ConnectionMode::Short {
            self.to_dial = 0..self.plan.connections;
            self.dial_more(transport, now_ns);
        }
    }

    /// Begins to open as many further connections as may be under way.
    fn dial_more(&mut self, transport: &mut T, now_ns: u64) {
        if self.to_dial.is_empty() {
            return;
        }
        let connecting = self.to_dial.start.saturating_sub(self.lines.open());
        for _ in connecting..limits::DIALS_AT_ONCE {
            match self.to_dial.next() {
                Some(line) if self.fatal.is_none() => self.dial(line, transport, now_ns),
                _ => return,
            }
        }
    }

    /// Returns the number of open connections.
    pub fn open_connections(&self) -> usize {
        self.lines.open()
    }

    /// Whether all connections stand.
    ///
    /// # Errors
    /// If one cannot be made.
    pub fn is_connected(&mut self) -> Result<bool, LoadRunError> {
        match self.fatal.take() {
            Some(error) => Err(error),
            None => Ok(self.plan.mode == ConnectionMode::Short || self.lines.all_open()),
        }
    }

    /// Latencies are also counted there, where others read them. No other worker may count there.
    pub fn share_latencies(&mut self, shared: Arc<SharedLatencies>) {
        self.shared_latencies = Some(shared);
    }

    /// From `begin_ns` on calls begin; those in the window are measured.
    pub fn begin(&mut self, begin_ns: u64, window: Window) {
        self.window = window;
        self.has_begun = true;
        self.is_running = true;
        self.schedule = self.schedule_from(begin_ns);
        if let Some(rate) = self.plan.pace.peak_rate() {
            self.rate = rate / self.plan.thread.1 as f64;
            self.look_ns = window.from_ns;
            self.tally.kept_up_until_ns = window.from_ns;
        }
        if let Pace::Varying { profile, .. } = self.plan.pace {
            self.tally.parts = vec![PartTally::default(); profile.parts().len()];
        }
        self.has_parts = !self.tally.parts.is_empty();
        self.lines.offer_all();
    }

    /// When calls are due; `None`: it is no open loop.
    fn schedule_from(&self, begin_ns: u64) -> Option<Schedule> {
        let thread = self.plan.thread;
        let random = Random::of_thread(self.plan.seed, thread.0);
        let window = (self.window.from_ns, self.window.until_ns);
        match &self.plan.pace {
            Pace::Closed => None,
            Pace::Open { rate, arrivals } => {
                Some(Schedule::new(*rate, *arrivals, begin_ns, thread, random))
            }
            Pace::Varying { profile, arrivals } => {
                let times = (begin_ns, window);
                Some(Schedule::varying(profile, *arrivals, times, thread, random))
            }
        }
    }

    /// Begins what is due. To be called before each wait.
    ///
    /// # Errors
    /// If no call can be made at all.
    pub fn turn(&mut self, transport: &mut T, now_ns: u64) -> Result<(), LoadRunError> {
        self.measure_level(now_ns);
        self.dial_more(transport, now_ns);
        self.mend_lines(transport, now_ns);
        self.is_past_end = now_ns >= self.window.until_ns;
        if self.is_running && self.is_over(now_ns) {
            self.give_up_backlog(now_ns);
        }
        if self.is_running && self.gone_ns().is_some_and(|at_ns| now_ns >= at_ns) {
            self.tally.is_server_gone = true;
            self.stop(now_ns);
        }
        if self.is_running && self.is_stalled(now_ns) {
            self.tally.is_server_stalled = true;
            self.stop(now_ns);
        }
        (self.turn_bytes, self.is_cut) = (0, false);
        if self.streams.has_work() {
            self.turn_streams(transport, now_ns);
        }
        if self.is_running {
            self.take_up_due(now_ns);
            self.begin_calls(transport, now_ns);
            self.look_behind(now_ns);
        }
        self.level.0 = self.calls.len();
        self.fatal.take().map_or(Ok(()), Err)
    }

    /// Takes note that all that came by `now_ns` has been [taken in](LoadWorker::happened).
    #[inline]
    pub fn received(&mut self, now_ns: u64) {
        self.measure_level(now_ns);
        self.level.0 = self.calls.len();
    }

    /// Adds the calls that were under way until now, for as long as they were so many.
    #[inline]
    fn measure_level(&mut self, now_ns: u64) {
        let (level, since_ns) = self.level;
        let from_ns = since_ns.max(self.window.from_ns);
        let until_ns = now_ns.min(self.window.until_ns);
        let lasted_ns = until_ns.saturating_sub(from_ns);
        self.tally.in_flight_ns += level as f64 * lasted_ns as f64;
        self.level.1 = now_ns;
    }

    /// When the run ends because its server is gone. One that has its time ends by that.
    fn gone_ns(&self) -> Option<u64> {
        self.plan.calls.and_then(|_| self.lines.gone_ns())
    }

    /// Whether calls are under way and none has ended for so long that the run ends. One that has
    /// its time ends by that.
    fn is_stalled(&self, now_ns: u64) -> bool {
        let limit_ns = self.plan.stall_ns();
        let last_ns = self.tally.last_end_ns.max(self.streams.last_message_ns);
        if self.plan.calls.is_none() || now_ns < last_ns.saturating_add(limit_ns) {
            return false;
        }
        // An open loop may have had nothing to wait for since the last one ended.
        let under_way = self.calls.iter().chain(self.lines.waiting_calls());
        let oldest_ns = under_way.map(|call| call.sent_ns).min();
        oldest_ns.is_some_and(|sent_ns| now_ns >= sent_ns.saturating_add(limit_ns))
    }

    /// No further call begins, whatever is still due.
    pub fn stop(&mut self, now_ns: u64) {
        self.window.until_ns = self.window.until_ns.min(now_ns);
        self.give_up_backlog(now_ns);
    }

    /// The end of sending. What was due and found no place counts as unfinished, unless enough has
    /// been sent.
    fn give_up_backlog(&mut self, now_ns: u64) {
        self.is_running = false;
        let has_all = self.has_all();
        let window = self.window;
        for due_ns in self.backlog.drain(..) {
            if due_ns < window.from_ns {
                self.tally.leave_unfinished_before(due_ns, now_ns);
            } else if !has_all && window.contains(due_ns) {
                self.tally.leave_unfinished(due_ns, now_ns);
            }
        }
    }

    fn has_all(&self) -> bool {
        self.plan.calls.is_some_and(|calls| self.measured >= calls)
    }

    /// Whether no further call begins.
    fn is_over(&self, now_ns: u64) -> bool {
        let until_ns = self.window.until_ns;
        let drain_ns = limits::DRAIN.as_nanos() as u64;
        // What came due before the end is taken up behind it too, if the generator was late.
        let schedule = self.schedule.as_ref();
        let is_all_taken_up = schedule.is_none_or(|schedule| schedule.next_ns() >= until_ns);
        let is_all_sent = is_all_taken_up && self.backlog.is_empty();
        self.has_all()
            || (now_ns >= until_ns && is_all_sent)
            || now_ns >= until_ns.saturating_add(drain_ns)
    }

    /// Whether nothing more is to be waited for.
    pub fn is_finished(&self, now_ns: u64) -> bool {
        let drain_ns = limits::DRAIN.as_nanos() as u64;
        let last_ns = match self.plan.calls {
            Some(_) => self.calls.last_sent_ns(),
            None => self.window.until_ns,
        };
        let is_empty = self.calls.is_empty() && !self.lines.has_waiting_call();
        // The next turn returns the error, with which nothing that was counted is of use.
        self.fatal.is_none()
            && !self.is_running
            && (is_empty || now_ns >= last_ns.saturating_add(drain_ns))
    }

    /// When [`LoadWorker::turn`] has something to do by time alone.
    pub fn next_due_ns(&self) -> Option<u64> {
        if self.is_cut && self.is_running || self.streams.has_work() {
            return Some(0);
        }
        let until_ns = self.window.until_ns;
        let scheduled_ns = self.schedule.as_ref().map(Schedule::next_ns);
        let scheduled_ns = scheduled_ns.filter(|&at_ns| self.is_running && at_ns < until_ns);
        let scheduled_ns = scheduled_ns.map(|at_ns| at_ns.max(self.take_up_ns));
        // Behind its end a run goes on only for what is due and found no place yet.
        let drain_ns = if self.is_past_end {
            limits::DRAIN.as_nanos() as u64
        } else {
            0
        };
        let end_ns = until_ns.saturating_add(drain_ns);
        let end_ns = (self.is_running && until_ns != u64::MAX).then_some(end_ns);
        let gone_ns = self.gone_ns().filter(|_| self.is_running);
        [scheduled_ns, self.lines.next_mend_ns(), end_ns, gone_ns]
            .into_iter()
            .flatten()
            .min()
    }

    /// Calls that have ended, for a line that shows progress: succeeded and failed.
    pub fn progress(&self) -> (u64, u64) {
        (self.tally.ended_in_window, self.tally.failures())
    }

    /// The connections that stand.
    pub fn channels(&self) -> impl Iterator<Item = client::ChannelKey> + '_ {
        self.lines.channels()
    }

    /// The end: what was counted.
    pub fn finish(mut self, now_ns: u64) -> Tally {
        for call in self.calls.iter().chain(self.lines.waiting_calls()) {
            if call.intended_ns < self.window.from_ns {
                self.tally.leave_unfinished_before(call.intended_ns, now_ns);
            } else if self.window.contains(call.intended_ns) {
                self.tally.leave_unfinished(call.intended_ns, now_ns);
            }
        }
        self.tally
    }
}
