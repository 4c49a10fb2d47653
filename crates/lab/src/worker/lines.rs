//! The connections of a worker, made again when they are lost.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use client::{ChannelKey, ConnectError, TakenAtOnce};

use super::calls::CallInFlight;
use super::{ConnectionMode, LoadRunError, LoadWorker};
use crate::failure::FailureKind;
use crate::limits;
use crate::transport::Transport;
use crate::workload::Workload;

/// Marks the tag of a Pipe; the rest is its line and its number there.
pub(super) const PIPE_TAG: u64 = 1 << 63;

/// The tag of a Pipe of a line.
pub(super) fn pipe_tag(line: usize, number: usize) -> u64 {
    debug_assert!(
        line < 1 << 31 && number < 1 << 32,
        "both are bounded far below"
    );
    PIPE_TAG | (line as u64) << 32 | number as u64
}

/// Line and number of the Pipe of a tag.
pub(super) fn pipe_of(tag: u64) -> (usize, usize) {
    (
        ((tag & !PIPE_TAG) >> 32) as usize,
        (tag & 0xffff_ffff) as usize,
    )
}

/// A long call whose messages are answered in order.
#[derive(Debug)]
pub(super) struct AnsweredStream<S> {
    /// `None`: it is not open.
    pub(super) stream: Option<S>,
    /// Messages that wait for their answer, in their order.
    pub(super) waiting: VecDeque<u64>,
}

/// A place for a connection, and what runs on it.
#[derive(Debug)]
pub(super) struct Line<S> {
    pub(super) channel: Option<ChannelKey>,
    /// Set by [`Lines::set_open`], which counts.
    pub(super) is_open: bool,
    pub(super) in_flight: usize,
    taken_at_once: TakenAtOnce,
    /// No call begins before.
    pause_until_ns: Option<u64>,
    /// No call begins on it any more; it is closed, and made again, when the last one has ended.
    pub(super) is_retiring: bool,
    /// When it is to be made again.
    pub(super) redial_ns: Option<u64>,
    /// Short: the call that waits for the connection.
    pub(super) waiting_call: Option<CallInFlight>,
    /// One, or one for each call in flight.
    pub(super) pipes: Vec<AnsweredStream<S>>,
    /// Those with no call, if each has one call.
    idle_pipes: Vec<u32>,
    is_offered: bool,
    is_to_mend: bool,
}

impl<S> Line<S> {
    /// A call has ended; `None`: it was refused.
    pub(super) fn leave(&mut self, ended_ns: Option<u64>) {
        self.in_flight -= 1;
        if let Some(ended_ns) = ended_ns {
            self.taken_at_once.ended(ended_ns);
        }
    }

    /// The server has refused a call. Returns whether it has to wait for others, because of which
    /// that was.
    pub(super) fn refused(&mut self, now_ns: u64) -> bool {
        let pause_ns = self.taken_at_once.refused(self.in_flight - 1, now_ns);
        let Some(pause_ns) = pause_ns.filter(|_| !self.is_retiring) else {
            return false;
        };
        self.in_flight -= 1;
        if pause_ns > 0 {
            self.pause_until_ns = Some(now_ns + pause_ns);
        }
        true
    }

    /// Whether the server would refuse another call now.
    pub(super) fn is_full(&self) -> bool {
        self.taken_at_once.room(self.in_flight) == 0 || self.pause_until_ns.is_some()
    }

    fn new(pipes: usize) -> Line<S> {
        let pipe = |_| AnsweredStream {
            stream: None,
            waiting: VecDeque::new(),
        };
        Line {
            channel: None,
            is_open: false,
            in_flight: 0,
            taken_at_once: TakenAtOnce::default(),
            pause_until_ns: None,
            is_retiring: false,
            redial_ns: None,
            waiting_call: None,
            pipes: (0..pipes).map(pipe).collect(),
            idle_pipes: (0..pipes as u32).rev().collect(),
            is_offered: false,
            is_to_mend: false,
        }
    }

    /// When it can be looked after, if it is to be: `None` as long as calls run on it.
    fn mend_ns(&self) -> Option<u64> {
        let is_at_once = self.is_retiring && self.in_flight == 0;
        let at_once_ns = is_at_once.then_some(0);
        self.redial_ns.or(self.pause_until_ns).or(at_once_ns)
    }

    /// The Pipe for the next call, of which there are fewer than may be in flight.
    pub(super) fn free_pipe(&mut self, is_for_each: bool) -> usize {
        match is_for_each {
            false => 0,
            true => self.idle_pipes.pop().map_or(0, |number| number as usize),
        }
    }

    /// A call has left its Pipe.
    pub(super) fn give_back(&mut self, number: usize, is_for_each: bool) {
        if is_for_each {
            self.idle_pipes.push(number as u32);
        }
    }

    /// Whether the next call needs no new Pipe.
    pub(super) fn next_pipe_is_open(&self, is_for_each: bool) -> bool {
        let next = match is_for_each {
            false => Some(0),
            true => self.idle_pipes.last().map(|&number| number as usize),
        };
        next.is_some_and(|number| self.pipes[number].stream.is_some())
    }
}

/// All lines.
#[derive(Debug)]
pub(super) struct Lines<S> {
    all: Vec<Line<S>>,
    /// How many connections stand.
    open: usize,
    /// Since when none stands although one was wanted.
    none_open_since_ns: Option<u64>,
    /// Those on which calls may perhaps begin, each once.
    offered: VecDeque<usize>,
    /// Those whose connection is to be looked after, each once.
    to_mend: Vec<usize>,
    /// Which line has the connection in this slot.
    by_slot: Vec<usize>,
    /// Up to when waiting calls have been counted.
    pub(super) waiting_counted_ns: u64,
}

impl<S> Index<usize> for Lines<S> {
    type Output = Line<S>;

    fn index(&self, line: usize) -> &Line<S> {
        &self.all[line]
    }
}

impl<S> IndexMut<usize> for Lines<S> {
    fn index_mut(&mut self, line: usize) -> &mut Line<S> {
        &mut self.all[line]
    }
}

impl<S> Lines<S> {
    pub(super) fn new(count: usize, pipes: usize) -> Lines<S> {
        Lines {
            all: (0..count).map(|_| Line::new(pipes)).collect(),
            open: 0,
            none_open_since_ns: None,
            offered: VecDeque::new(),
            to_mend: Vec::new(),
            by_slot: Vec::new(),
            waiting_counted_ns: 0,
        }
    }

    /// How many connections stand.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    fn set_open(&mut self, line: usize, is_open: bool) {
        match (
            std::mem::replace(&mut self.all[line].is_open, is_open),
            is_open,
        ) {
            (false, true) => self.open += 1,
            (true, false) => self.open -= 1,
            _ => {}
        }
    }

    /// When no connection has stood for [`limits::SERVER_GONE`]; `None`: one stands, or none was
    /// wanted since.
    pub(super) fn gone_ns(&self) -> Option<u64> {
        let since_ns = self.none_open_since_ns?;
        Some(since_ns.saturating_add(limits::SERVER_GONE.as_nanos() as u64))
    }

    /// Whether all connections stand.
    pub(super) fn all_open(&self) -> bool {
        self.open == self.all.len()
    }

    pub(super) fn channels(&self) -> impl Iterator<Item = ChannelKey> + '_ {
        self.all.iter().filter_map(|line| line.channel)
    }

    pub(super) fn waiting_calls(&self) -> impl Iterator<Item = &CallInFlight> {
        self.all
            .iter()
            .filter_map(|line| line.waiting_call.as_ref())
    }

    pub(super) fn has_waiting_call(&self) -> bool {
        self.waiting_calls().next().is_some()
    }

    pub(super) fn offer_all(&mut self) {
        (0..self.all.len()).for_each(|line| self.offer(line));
    }

    /// A line may have room for a call.
    #[inline]
    pub(super) fn offer(&mut self, line: usize) {
        if !std::mem::replace(&mut self.all[line].is_offered, true) {
            self.offered.push_back(line);
        }
    }

    /// The same, before all others.
    pub(super) fn offer_first(&mut self, line: usize) {
        if !std::mem::replace(&mut self.all[line].is_offered, true) {
            self.offered.push_front(line);
        }
    }

    #[inline]
    pub(super) fn next_offered(&mut self) -> Option<usize> {
        let line = self.offered.pop_front()?;
        self.all[line].is_offered = false;
        Some(line)
    }

    /// No further call on this connection.
    pub(super) fn retire(&mut self, line: usize) {
        self.all[line].is_retiring = true;
        self.mend(line);
    }

    pub(super) fn mend(&mut self, line: usize) {
        if !std::mem::replace(&mut self.all[line].is_to_mend, true) {
            self.to_mend.push(line);
        }
    }

    fn bind(&mut self, line: usize, channel: ChannelKey) {
        let slot = channel.slot as usize;
        if self.by_slot.len() <= slot {
            self.by_slot.resize(slot + 1, usize::MAX);
        }
        self.by_slot[slot] = line;
        self.all[line].channel = Some(channel);
    }

    fn of(&self, channel: ChannelKey) -> Option<usize> {
        let line = *self.by_slot.get(channel.slot as usize)?;
        (self.all.get(line)?.channel == Some(channel)).then_some(line)
    }

    pub(super) fn connected(&mut self, channel: ChannelKey) {
        if let Some(line) = self.of(channel) {
            self.set_open(line, true);
            self.none_open_since_ns = None;
            self.offer(line);
            if self.all[line].waiting_call.is_some() {
                self.mend(line);
            }
        }
    }

    /// When a line is to be looked after by time alone; 0: at once.
    pub(super) fn next_mend_ns(&self) -> Option<u64> {
        // Empty nearly always.
        let to_mend = self.to_mend.iter().map(|&line| &self.all[line]);
        to_mend.filter_map(Line::mend_ns).min()
    }
}

impl<W: Workload, T: Transport> LoadWorker<W, T> {
    /// Begins to connect a line.
    pub(super) fn dial(&mut self, line: usize, transport: &mut T, now_ns: u64) {
        self.lines.set_open(line, false);
        let found = &mut self.lines[line];
        found.redial_ns = None;
        found.taken_at_once = TakenAtOnce::default();
        found.pause_until_ns = None;
        found.is_retiring = false;
        match transport.open_channel(now_ns) {
            Ok(channel) => self.lines.bind(line, channel),
            Err(error) => self.not_connected(line, &error, now_ns),
        }
    }

    /// Looks after connections: closes those that have had their calls, makes lost ones again,
    /// sends what waited for one.
    pub(super) fn mend_lines(&mut self, transport: &mut T, now_ns: u64) {
        if self.lines.to_mend.is_empty() {
            return;
        }
        for line in std::mem::take(&mut self.lines.to_mend) {
            self.lines[line].is_to_mend = false;
            self.mend_line(line, transport, now_ns);
        }
    }

    fn mend_line(&mut self, line: usize, transport: &mut T, now_ns: u64) {
        let found = &mut self.lines[line];
        if let Some(pause_until_ns) = found.pause_until_ns {
            if pause_until_ns > now_ns {
                return self.lines.mend(line);
            }
            found.pause_until_ns = None;
            self.lines.offer(line);
        }
        let found = &mut self.lines[line];
        if let Some(redial_ns) = found.redial_ns {
            if redial_ns > now_ns {
                self.lines.mend(line);
            } else if self.plan.mode == ConnectionMode::Short {
                found.redial_ns = None;
                self.lines.offer(line);
            } else if self.is_running {
                self.tally.reconnects += 1;
                self.dial(line, transport, now_ns);
            }
            return;
        }
        if found.is_open
            && let Some(call) = found.waiting_call.take()
        {
            self.send_on_line(call, transport, now_ns);
            return;
        }
        if found.is_retiring && found.in_flight == 0 {
            found.is_retiring = false;
            if let Some(channel) = found.channel.take() {
                transport.close_channel(channel);
            }
            self.lines.set_open(line, false);
            if self.plan.mode == ConnectionMode::Short {
                self.lines.offer(line);
            } else {
                self.tally.reconnects += 1;
                self.dial(line, transport, now_ns);
            }
        }
    }

    /// A connection has ended, or could not be made. Its calls have ended before.
    pub(super) fn disconnected(&mut self, channel: ChannelKey, error: &ConnectError, now_ns: u64) {
        if let Some(line) = self.lines.of(channel) {
            self.not_connected(line, error, now_ns);
        }
    }

    fn not_connected(&mut self, line: usize, error: &ConnectError, now_ns: u64) {
        self.lines.set_open(line, false);
        if self.lines.open == 0 {
            self.lines.none_open_since_ns.get_or_insert(now_ns);
        }
        let found = &mut self.lines[line];
        debug_assert_eq!(found.in_flight, 0, "calls end before their connection");
        found.channel = None;
        found.is_retiring = false;
        for pipe in &mut found.pipes {
            debug_assert!(pipe.waiting.is_empty(), "calls end before their connection");
            pipe.stream = None;
        }
        // Over protocols without a greeting that is seen by the response to the first call only.
        let is_foreign = matches!(error, ConnectError::OtherProtocol { .. });
        if !self.has_begun || is_foreign && !self.has_succeeded {
            let standing = self.lines.open();
            let text = match standing {
                1.. if !is_foreign => {
                    format!("{error}, after {standing} connections of this thread were open")
                }
                _ => error.to_string(),
            };
            self.fatal.get_or_insert(LoadRunError::Connect(text));
            return;
        }
        found.redial_ns = Some(now_ns + limits::RECONNECT_PAUSE.as_nanos() as u64);
        let waiting = found.waiting_call.take();
        self.lines.mend(line);
        match waiting {
            Some(call) => self.end_call(&call, Err(FailureKind::NotConnected), now_ns, || {
                error.to_string()
            }),
            None => {
                self.tally
                    .first_failure
                    .get_or_insert_with(|| error.to_string());
            }
        }
    }
}
