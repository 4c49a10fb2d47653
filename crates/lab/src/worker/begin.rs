//! How calls begin: which are due, on which connection there is room, and how they are sent.

use client::{CallError, CallStart, NotBegun};

use super::calls::CallInFlight;
use super::lines;
use super::{ConnectionMode, LoadRunError, LoadWorker};
use crate::failure::FailureKind;
use crate::limits;
use crate::transport::Transport;
use crate::workload::Workload;

impl<W: Workload, T: Transport> LoadWorker<W, T> {
    /// Open loop: what has come due goes into the backlog.
    pub(super) fn take_up_due(&mut self, now_ns: u64) {
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
    pub(super) fn begin_calls(&mut self, transport: &mut T, now_ns: u64) {
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
    pub(super) fn look_behind(&mut self, now_ns: u64) {
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
        if found.is_full() {
            let allowed = found.in_flight.saturating_add(transport.room(channel));
            // Where nothing was announced, what it took says what it takes.
            let allowed = match allowed <= self.plan.in_flight {
                true => allowed,
                false => found.in_flight,
            };
            self.tally.server_allows = self.tally.server_allows.min(allowed as u64);
            return false;
        }
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
        let call = CallInFlight {
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
        if self.has_streams {
            return self.send_on_line(call, transport, now_ns);
        }
        self.send_call(call, transport, now_ns)
    }

    /// Sends a call on its line's connection.
    pub(super) fn send_call(&mut self, call: CallInFlight, transport: &mut T, now_ns: u64) -> bool {
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
    pub(super) fn refuse(&mut self, call: &CallInFlight, error: CallError, now_ns: u64) {
        match error {
            CallError::BadRequest { reason } => self.fatal = Some(LoadRunError::BadRequest(reason)),
            CallError::MetadataTooLarge => {
                let reason = "the metadata are larger than the server accepts";
                self.fatal = Some(LoadRunError::BadRequest(reason.into()));
            }
            CallError::NotBegun(why) if self.plan.mode != ConnectionMode::Short => {
                // Not the call's fault: a connection that closes, or has had all the calls it can
                // name. It is made anew, and the call is taken up again.
                if matches!(why, NotBegun::Closing { .. }) {
                    self.lines.retire(call.line);
                }
                self.take_back(call);
            }
            other => {
                self.lines.retire(call.line);
                self.end_call(call, Err(FailureKind::NotBegun), now_ns, || {
                    other.to_string()
                });
            }
        }
    }

    /// A call that the server has not begun with is as if it had never been sent: it waits for its
    /// turn again.
    pub(super) fn take_back(&mut self, call: &CallInFlight) {
        self.measured -= u64::from(self.window.contains(call.intended_ns));
        let _ = (self.workload).ended(call.kind, call.ticket, Err(FailureKind::NotBegun));
        if self.schedule.is_some() {
            self.backlog.push_front(call.intended_ns);
        }
    }

    /// Sends a message into a Pipe of its line, which is opened if there is none.
    pub(super) fn send_into_pipe(
        &mut self,
        call: CallInFlight,
        transport: &mut T,
        now_ns: u64,
    ) -> bool {
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
}
