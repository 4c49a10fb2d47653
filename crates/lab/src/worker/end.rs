//! How calls end, and how they are counted.

use client::{Ending, Happened};

use super::calls::CallInFlight;
use super::lines::{self, PIPE_TAG};
use super::streams::STREAM_TAG;
use super::{ConnectionMode, LoadWorker};
use crate::failure::FailureKind;
use crate::measure;
use crate::transport::Transport;
use crate::verdict::Verdict;
use crate::workload::Workload;

/// Tags of calls with several messages. That of a Pipe has any bits beside its own.
const LONG_TAGS: u64 = PIPE_TAG | STREAM_TAG;

impl<W: Workload, T: Transport> LoadWorker<W, T> {
    /// Takes in what happened.
    pub fn happened(&mut self, happened: &Happened<'_>, now_ns: u64) {
        match happened {
            Happened::Connected { channel } => self.lines.connected(*channel),
            Happened::Disconnected { channel, error } => self.disconnected(*channel, error, now_ns),
            Happened::Message { tag, bytes } if tag & LONG_TAGS != 0 => match tag & PIPE_TAG != 0 {
                true => self.pipe_answered(lines::pipe_of(*tag), bytes, now_ns),
                false => self.stream_message(tag & !STREAM_TAG, now_ns),
            },
            Happened::Message { tag, bytes } => {
                if let Some(call) = self.calls.get_mut(*tag) {
                    let verdict = self.workload.judge(call.kind, call.ticket, bytes);
                    call.verdict = Some(verdict);
                    if verdict == Verdict::NoEffect && self.refusal.is_none() {
                        self.refusal = self.workload.refusal(call.kind, bytes);
                    }
                }
            }
            Happened::Writable { tag } => {
                if tag & LONG_TAGS == STREAM_TAG {
                    self.streams.may_send(tag & !STREAM_TAG);
                }
            }
            Happened::Ended { tag, ending, .. } if tag & LONG_TAGS != 0 => {
                match tag & PIPE_TAG != 0 {
                    true => self.pipe_ended(lines::pipe_of(*tag), ending, now_ns),
                    false => self.stream_ended(tag & !STREAM_TAG, ending, now_ns),
                }
            }
            Happened::Ended { tag, ending, .. } => {
                if let Some(call) = self.calls.remove(*tag) {
                    let is_refused = matches!(ending, Ending::NotBegun);
                    if is_refused && self.waits_after_refusal(&call, now_ns) {
                        return;
                    }
                    let outcome = measure::count_as(ending, call.verdict);
                    self.leave_line(call.line, (!is_refused).then_some(now_ns));
                    self.count_place_of(&call, *tag, now_ns);
                    let refusal = match outcome {
                        Err(FailureKind::NoEffect) => self.refusal.take(),
                        _ => None,
                    };
                    self.end_call(&call, outcome, now_ns, || {
                        let of_answer =
                            call.verdict.and(measure::describe_answer(outcome, refusal));
                        let is_ok = matches!(ending, Ending::Status { status, messages: 1 }
                            if status.is_ok());
                        of_answer
                            .filter(|_| is_ok)
                            .unwrap_or_else(|| measure::describe(ending))
                    });
                }
            }
        }
    }

    /// A server that refuses a call because of others would refuse it again now: it waits, as
    /// clients of gRPC have it wait. One that refuses whatever comes has it fail.
    fn waits_after_refusal(&mut self, call: &CallInFlight, now_ns: u64) -> bool {
        let is_short = self.plan.mode == ConnectionMode::Short;
        if is_short || !self.lines[call.line].refused(now_ns) {
            return false;
        }
        // It is noted there how many the server allows.
        self.lines.offer(call.line);
        self.lines.mend(call.line);
        self.tally.refused += 1;
        self.take_back(call);
        true
    }

    /// Counts the end of a call at its place: one call on each connection has the connection as its
    /// place, others the tag, which is used again.
    #[inline]
    pub(super) fn count_place_of(&mut self, call: &CallInFlight, tag: u64, now_ns: u64) {
        let place = match self.plan.in_flight {
            1 => call.line,
            _ => tag as usize,
        };
        self.count_place(place, now_ns);
    }

    fn count_place(&mut self, place: usize, now_ns: u64) {
        if self.window.contains(now_ns) {
            self.tally.end_at(place);
        }
    }

    pub(super) fn leave_line(&mut self, line: usize, ended_ns: Option<u64>) {
        self.lines[line].leave(ended_ns);
        if self.plan.mode == ConnectionMode::Short || self.lines[line].is_retiring {
            self.lines.retire(line);
        } else {
            self.lines.offer(line);
        }
    }

    pub(super) fn end_call(
        &mut self,
        call: &CallInFlight,
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
        self.has_succeeded |= outcome.is_ok();
        self.tally.last_end_ns = now_ns;
        if self.has_parts {
            self.count_part(call, outcome.is_ok(), now_ns);
        }
        if self.window.contains(call.intended_ns) {
            match outcome {
                Ok(is_miss) => {
                    self.tally.misses_by_kind[call.kind] += u64::from(is_miss);
                    self.tally
                        .succeed(call.intended_ns, call.sent_ns, now_ns, is_miss);
                    if let Some(shared) = &self.shared_latencies {
                        shared.record(now_ns - call.intended_ns);
                    }
                }
                Err(kind) => self.tally.fail(kind, 1, text),
            }
        }
    }

    /// Counts the end of a call in the part of the window in which it was to begin, and in that in
    /// which it ended.
    fn count_part(&mut self, call: &CallInFlight, is_success: bool, now_ns: u64) {
        let count = self.tally.parts.len();
        if let Some(part) = self.window.part(now_ns, count)
            && let Some(part) = self.tally.parts.get_mut(part)
        {
            part.ended += 1;
        }
        if let Some(part) = self.window.part(call.intended_ns, count)
            && let Some(part) = self.tally.parts.get_mut(part)
            && is_success
        {
            part.latency_ns.saturating_record(now_ns - call.intended_ns);
            part.uncorrected_ns.saturating_record(now_ns - call.sent_ns);
        }
    }

    /// A Pipe answers its messages in the order sent.
    fn pipe_answered(&mut self, (line, number): (usize, usize), bytes: &[u8], now_ns: u64) {
        let Some(tag) = self.lines[line].pipes[number].waiting.pop_front() else {
            return;
        };
        if let Some(call) = self.calls.remove(tag) {
            let verdict = self.workload.judge(call.kind, call.ticket, bytes);
            let outcome = measure::count_verdict(verdict);
            let refusal = match verdict {
                Verdict::NoEffect => self.workload.refusal(call.kind, bytes),
                _ => None,
            };
            self.lines[line].give_back(number, self.has_pipe_for_each);
            self.leave_line(line, Some(now_ns));
            let place = match self.has_pipe_for_each {
                true => line * self.plan.in_flight + number,
                false => tag as usize,
            };
            self.count_place(place, now_ns);
            self.end_call(&call, outcome, now_ns, || {
                measure::describe_answer(outcome, refusal).unwrap_or_default()
            });
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
                self.leave_line(line, Some(now_ns));
                self.end_call(&call, Err(kind), now_ns, || measure::describe(ending));
            }
        }
    }
}
