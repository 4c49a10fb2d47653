//! One thread's calls: which begin when, on which connection, and how they are counted.
//!
//! A worker is a value without socket, thread and clock. It is told the time and what happened; it
//! begins calls on a [`Transport`]. So a test can put it before a server that stalls for an exactly
//! known time.

mod calls;
mod heads;
mod lines;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::VecDeque;
use std::ops::Range;

use client::{CallError, CallStart, Ending, Happened, NotBegun};

use crate::failure::FailureKind;
use crate::limits;
use crate::measure::{self, Tally, Window};
use crate::pacing::{Pace, Schedule};
use crate::random::Random;
use crate::transport::Transport;
use crate::verdict::Verdict;
use crate::workload::Workload;
use calls::{Call, Calls};
use heads::Heads;
pub use heads::{MetadataField, MetadataValue};
use lines::{Lines, PIPE_TAG};

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
    /// So many measured calls and no more; `None`: as many as fit into the window.
    pub calls: Option<u64>,
    /// Begins the random numbers.
    pub seed: u64,
}

/// Why a run cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
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
    is_large: bool,
    has_pipe_for_each: bool,
    heads: Heads,
    lines: Lines<T::Stream>,
    /// Those that were never dialed.
    to_dial: Range<usize>,
    calls: Calls,
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
    has_begun: bool,
    /// Whether the window has passed.
    is_past_end: bool,
    /// Whether calls begin.
    is_running: bool,
    /// Measured calls begun.
    measured: u64,
    tally: Tally,
    fatal: Option<RunError>,
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
        LoadWorker {
            paths,
            is_pipe: workload.is_pipe(),
            is_large: workload.is_large(),
            has_pipe_for_each: workload.has_pipe_for_each(),
            heads: Heads::new(&plan.metadata, Random::new(random.next())),
            lines: Lines::new(
                plan.connections,
                if workload.has_pipe_for_each() {
                    plan.in_flight
                } else {
                    1
                },
            ),
            to_dial: 0..0,
            calls: Calls::default(),
            schedule: None,
            take_up_ns: 0,
            turn_bytes: 0,
            is_cut: false,
            rate: 0.0,
            look_ns: 0,
            backlog: VecDeque::new(),
            window: never,
            has_begun: false,
            is_past_end: false,
            is_running: false,
            measured: 0,
            tally: Tally::default(),
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
    pub fn is_connected(&mut self) -> Result<bool, RunError> {
        match self.fatal.take() {
            Some(error) => Err(error),
            None => Ok(self.plan.mode == ConnectionMode::Short || self.lines.all_open()),
        }
    }

    /// From `begin_ns` on calls begin; those in the window are measured.
    pub fn begin(&mut self, begin_ns: u64, window: Window) {
        self.window = window;
        self.has_begun = true;
        self.is_running = true;
        if let Pace::Open { rate, arrivals } = self.plan.pace {
            let random = Random::of_thread(self.plan.seed, self.plan.thread.0);
            let thread = self.plan.thread;
            self.schedule = Some(Schedule::new(rate, arrivals, begin_ns, thread, random));
            self.rate = rate / thread.1 as f64;
            self.look_ns = window.from_ns;
            self.tally.kept_up_until_ns = window.from_ns;
        }
        self.lines.offer_all();
    }

    /// Begins what is due. To be called before each wait.
    ///
    /// # Errors
    /// If no call can be made at all.
    pub fn turn(&mut self, transport: &mut T, now_ns: u64) -> Result<(), RunError> {
        self.dial_more(transport, now_ns);
        self.mend_lines(transport, now_ns);
        self.is_past_end = now_ns >= self.window.until_ns;
        if self.is_running && self.is_over(now_ns) {
            self.give_up_backlog(now_ns);
        }
        (self.turn_bytes, self.is_cut) = (0, false);
        if self.is_running {
            self.take_up_due(now_ns);
            self.begin_calls(transport, now_ns);
            self.look_behind(now_ns);
        }
        self.fatal.take().map_or(Ok(()), Err)
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
        !self.is_running && (is_empty || now_ns >= last_ns.saturating_add(drain_ns))
    }

    /// When [`LoadWorker::turn`] has something to do by time alone.
    pub fn next_due_ns(&self) -> Option<u64> {
        if self.is_cut && self.is_running {
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
        [scheduled_ns, self.lines.next_mend_ns(), end_ns]
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

    /// Open loop: what has come due goes into the backlog.
    fn take_up_due(&mut self, now_ns: u64) {
        let Some(schedule) = &mut self.schedule else {
            return;
        };
        if now_ns < self.take_up_ns {
            return;
        }
        self.take_up_ns = now_ns + schedule.together_ns();
        for _ in 0..limits::DUE_PER_TURN {
            let due_ns = schedule.next_ns();
            if due_ns > now_ns || due_ns >= self.window.until_ns {
                break;
            }
            schedule.advance();
            let is_measured = self.window.contains(due_ns);
            if is_measured {
                self.tally.due += 1;
                self.tally.lag_ns.saturating_record(now_ns - due_ns);
            }
            if self.backlog.len() < limits::MAX_BACKLOG {
                self.backlog.push_back(due_ns);
            } else if is_measured {
                self.tally.never_sent += 1;
            }
        }
    }

    /// Begins calls on the lines that have room.
    fn begin_calls(&mut self, transport: &mut T, now_ns: u64) {
        let is_open_loop = self.schedule.is_some();
        // In equal parts, so that no connection has the small ones only.
        let connections = self.backlog.len().div_ceil(limits::CALLS_TOGETHER).max(1);
        let together_max = self.backlog.len().div_ceil(connections);
        while let Some(line) = self.lines.next_offered() {
            if is_open_loop && self.backlog.is_empty() {
                self.lines.offer_first(line);
                break;
            }
            if self.turn_bytes >= limits::REQUEST_BYTES_PER_TURN {
                self.is_cut = true;
                self.lines.offer_first(line);
                break;
            }
            // A closed loop fills a connection in one go; an open one goes round, with a few at a
            // time.
            let (mut began, mut together) = (true, 0);
            while began && self.may_begin(line, transport) {
                let intended_ns = if is_open_loop {
                    self.backlog.pop_front()
                } else {
                    Some(now_ns)
                };
                let Some(intended_ns) = intended_ns else {
                    break;
                };
                began = self.begin_call(line, intended_ns, transport, now_ns);
                together += 1;
                if is_open_loop && together == together_max {
                    break;
                }
                if self.turn_bytes >= limits::REQUEST_BYTES_PER_TURN {
                    break;
                }
            }
            let has_more = is_open_loop || self.turn_bytes >= limits::REQUEST_BYTES_PER_TURN;
            if has_more && began && self.may_begin(line, transport) {
                self.lines.offer(line);
            }
        }
        // What found no place although it was taken up in this turn has to wait.
        if is_open_loop && !self.backlog.is_empty() {
            self.count_waiting(now_ns);
        }
    }

    /// Open loop: notes now and then that the calls that end keep up with those that come due.
    fn look_behind(&mut self, now_ns: u64) {
        if self.schedule.is_none() || now_ns < self.look_ns || !self.window.contains(now_ns) {
            return;
        }
        self.look_ns = now_ns + limits::LOOK_BEHIND.as_nanos() as u64;
        if self.tally.keeps_up(self.rate) {
            self.tally.kept_up_until_ns = now_ns;
        }
    }

    /// Counts each call once that waits for a place: those that came due since the last turn.
    fn count_waiting(&mut self, now_ns: u64) {
        let before_ns = self.lines.waiting_counted_ns;
        self.tally.waited += self
            .backlog
            .iter()
            .rev()
            .take_while(|&&due_ns| due_ns > before_ns)
            .filter(|&&due_ns| self.window.contains(due_ns))
            .count() as u64;
        self.lines.waiting_counted_ns = now_ns;
    }

    /// Whether a call may begin on a line now.
    fn may_begin(&mut self, line: usize, transport: &T) -> bool {
        if self.has_all() {
            return false;
        }
        let found = &self.lines[line];
        if self.plan.mode == ConnectionMode::Short {
            return found.channel.is_none() && found.redial_ns.is_none();
        }
        if !found.is_open || found.is_retiring || found.in_flight >= self.plan.in_flight {
            return false;
        }
        let Some(channel) = found.channel else {
            return false;
        };
        if self.is_pipe && found.next_pipe_is_open(self.has_pipe_for_each) {
            return true;
        }
        let has_room = transport.room(channel) > 0;
        if !has_room {
            let allowed = found.in_flight as u64;
            self.tally.server_allows = self.tally.server_allows.min(allowed);
        }
        has_room
    }

    /// Begins one call. False: this line takes none for now.
    fn begin_call(
        &mut self,
        line: usize,
        intended_ns: u64,
        transport: &mut T,
        now_ns: u64,
    ) -> bool {
        let kind = self.workload.choose();
        let call = Call {
            intended_ns,
            sent_ns: now_ns,
            kind,
            ticket: self.workload.ticket(),
            line,
            verdict: None,
        };
        self.measured += u64::from(self.window.contains(intended_ns));
        if self.plan.mode == ConnectionMode::Short {
            self.lines[line].waiting_call = Some(call);
            self.dial(line, transport, now_ns);
            return true;
        }
        if self.is_pipe {
            return self.send_into_pipe(call, transport, now_ns);
        }
        self.send_call(call, transport, now_ns)
    }

    /// Sends a call on its line's connection.
    fn send_call(&mut self, call: Call, transport: &mut T, now_ns: u64) -> bool {
        let line = call.line;
        let Some(channel) = self.lines[line].channel else {
            self.end_call(&call, Err(FailureKind::ConnectionLost), now_ns, String::new);
            return false;
        };
        let start = CallStart {
            path: &self.paths[call.kind],
            timeout_ns: self.plan.deadline_ns,
            metadata: self.heads.next(),
        };
        let tag = self.calls.insert(call);
        let (workload, turn_bytes) = (&mut self.workload, &mut self.turn_bytes);
        let began = match self.is_large {
            false => transport.begin(channel, tag, &start, now_ns, |out| {
                let before = out.len();
                workload.encode(out);
                *turn_bytes += out.len() - before;
            }),
            true => {
                let encode = |out: &mut Vec<u8>| workload.encode_shared(out);
                transport.begin_shared(channel, tag, &start, now_ns, encode)
            }
        };
        match began {
            Ok(()) => {
                self.lines[line].in_flight += 1;
                true
            }
            Err(error) => {
                self.calls.remove(tag);
                self.refuse(&call, error, now_ns);
                false
            }
        }
    }

    /// A call did not begin.
    fn refuse(&mut self, call: &Call, error: CallError, now_ns: u64) {
        match error {
            CallError::BadRequest { reason } => self.fatal = Some(RunError::BadRequest(reason)),
            CallError::NotBegun(why) if self.plan.mode != ConnectionMode::Short => {
                // Not the call's fault: a connection that closes, or has had all the calls it can
                // name. It is made anew, and the call is taken up again.
                if matches!(why, NotBegun::Closing { .. }) {
                    self.lines.retire(call.line);
                }
                self.measured -= u64::from(self.window.contains(call.intended_ns));
                let _ = (self.workload).ended(call.kind, call.ticket, Err(FailureKind::NotBegun));
                if self.schedule.is_some() {
                    self.backlog.push_front(call.intended_ns);
                }
            }
            other => {
                self.lines.retire(call.line);
                self.end_call(call, Err(FailureKind::NotBegun), now_ns, || {
                    other.to_string()
                });
            }
        }
    }

    /// Sends a message into a Pipe of its line, which is opened if there is none.
    fn send_into_pipe(&mut self, call: Call, transport: &mut T, now_ns: u64) -> bool {
        let line = call.line;
        let number = self.lines[line].free_pipe(self.has_pipe_for_each);
        if self.lines[line].pipes[number].stream.is_none() {
            let Some(channel) = self.lines[line].channel else {
                self.lines[line].give_back(number, self.has_pipe_for_each);
                return false;
            };
            let start = CallStart {
                path: &self.paths[0],
                timeout_ns: None,
                metadata: self.heads.next(),
            };
            let tag = lines::pipe_tag(line, number);
            match transport.begin_stream(channel, tag, &start, now_ns) {
                Ok(stream) => self.lines[line].pipes[number].stream = Some(stream),
                Err(error) => {
                    self.lines[line].give_back(number, self.has_pipe_for_each);
                    self.refuse(&call, error, now_ns);
                    return false;
                }
            }
        }
        let found = &mut self.lines[line];
        let pipe = &mut found.pipes[number];
        if let Some(stream) = pipe.stream {
            pipe.waiting.push_back(self.calls.insert(call));
            found.in_flight += 1;
            let (workload, turn_bytes) = (&mut self.workload, &mut self.turn_bytes);
            match self.is_large {
                false => transport.send(stream, |out| {
                    let before = out.len();
                    workload.encode(out);
                    *turn_bytes += out.len() - before;
                }),
                true => transport.send_shared(stream, |out| workload.encode_shared(out)),
            }
        }
        true
    }

    /// Takes in what happened.
    pub fn happened(&mut self, happened: &Happened<'_>, now_ns: u64) {
        match happened {
            Happened::Connected { channel } => self.lines.connected(*channel),
            Happened::Disconnected { channel, error } => self.disconnected(*channel, error, now_ns),
            Happened::Message { tag, bytes } if tag & PIPE_TAG != 0 => {
                self.pipe_answered(lines::pipe_of(*tag), bytes, now_ns);
            }
            Happened::Message { tag, bytes } => {
                if let Some(call) = self.calls.get_mut(*tag) {
                    call.verdict = Some(self.workload.judge(call.kind, call.ticket, bytes));
                }
            }
            Happened::Writable { .. } => {}
            Happened::Ended { tag, ending, .. } if tag & PIPE_TAG != 0 => {
                self.pipe_ended(lines::pipe_of(*tag), ending, now_ns);
            }
            Happened::Ended { tag, ending, .. } => {
                if let Some(call) = self.calls.remove(*tag) {
                    let outcome = measure::count_as(ending, call.verdict);
                    self.leave_line(call.line);
                    // One call on each connection: the connection is its place. Otherwise the tag,
                    // which is used again.
                    let place = match self.plan.in_flight {
                        1 => call.line,
                        _ => *tag as usize,
                    };
                    self.count_place(place, now_ns);
                    self.end_call(&call, outcome, now_ns, || measure::describe(ending));
                }
            }
        }
    }

    fn count_place(&mut self, place: usize, now_ns: u64) {
        if self.window.contains(now_ns) {
            self.tally.end_at(place);
        }
    }

    fn leave_line(&mut self, line: usize) {
        self.lines[line].in_flight -= 1;
        if self.plan.mode == ConnectionMode::Short || self.lines[line].is_retiring {
            self.lines.retire(line);
        } else {
            self.lines.offer(line);
        }
    }

    fn end_call(
        &mut self,
        call: &Call,
        outcome: Result<bool, FailureKind>,
        now_ns: u64,
        text: impl FnOnce() -> String,
    ) {
        let outcome = self.workload.ended(call.kind, call.ticket, outcome);
        let is_in_window = u64::from(self.window.contains(now_ns));
        self.tally.ended_in_window += is_in_window;
        self.tally.ended_by_kind[call.kind] += is_in_window;
        if call.intended_ns < self.window.from_ns {
            self.tally.begun_before += is_in_window;
        }
        self.tally.ended += 1;
        self.tally.last_end_ns = now_ns;
        if self.window.contains(call.intended_ns) {
            match outcome {
                Ok(is_miss) => {
                    self.tally.misses_by_kind[call.kind] += u64::from(is_miss);
                    self.tally
                        .succeed(call.intended_ns, call.sent_ns, now_ns, is_miss);
                }
                Err(kind) => self.tally.fail(kind, 1, text),
            }
        }
    }

    /// A Pipe answers its messages in the order sent.
    fn pipe_answered(&mut self, (line, number): (usize, usize), bytes: &[u8], now_ns: u64) {
        let Some(tag) = self.lines[line].pipes[number].waiting.pop_front() else {
            return;
        };
        if let Some(call) = self.calls.remove(tag) {
            let outcome = match self.workload.judge(call.kind, call.ticket, bytes) {
                Verdict::Good => Ok(false),
                Verdict::Miss => Ok(true),
                Verdict::NoEffect => Err(FailureKind::NoEffect),
                Verdict::Wrong => Err(FailureKind::WrongValue),
                Verdict::Unreadable => Err(FailureKind::BadAnswer),
            };
            self.lines[line].give_back(number, self.has_pipe_for_each);
            self.leave_line(line);
            let place = match self.has_pipe_for_each {
                true => line * self.plan.in_flight + number,
                false => tag as usize,
            };
            self.count_place(place, now_ns);
            self.end_call(&call, outcome, now_ns, || "a batch had no effect".into());
        }
    }

    fn pipe_ended(&mut self, (line, number): (usize, usize), ending: &Ending<'_>, now_ns: u64) {
        let kind = match measure::count_as(ending, None) {
            Err(kind) => kind,
            Ok(_) => FailureKind::BadAnswer,
        };
        self.lines[line].pipes[number].stream = None;
        while let Some(tag) = self.lines[line].pipes[number].waiting.pop_front() {
            if let Some(call) = self.calls.remove(tag) {
                self.lines[line].give_back(number, self.has_pipe_for_each);
                self.leave_line(line);
                self.end_call(&call, Err(kind), now_ns, || measure::describe(ending));
            }
        }
    }
}
