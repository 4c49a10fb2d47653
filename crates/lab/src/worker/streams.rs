//! Calls of streaming methods: their messages, and when each is sent.

use std::collections::VecDeque;

use client::{CallStart, Ending};

use super::LoadWorker;
use super::calls::CallInFlight;
use crate::failure::FailureKind;
use crate::limits;
use crate::measure;
use crate::stream_plan::StreamPlan;
use crate::transport::Transport;
use crate::workload::Workload;

/// Marks the tag of a streaming call; the rest is the tag of its [`CallInFlight`].
pub(super) const STREAM_TAG: u64 = 1 << 62;

/// What is known of a streaming call beside what any call has.
#[derive(Debug)]
struct StreamProgress<S> {
    stream: S,
    sent: u64,
    received: u64,
    /// Bidirectional: when the requests were sent that wait for their response.
    waiting: VecDeque<u64>,
    /// When the last response came.
    last_ns: u64,
}

/// The streaming calls of a worker.
#[derive(Debug)]
pub(super) struct WorkerStreams<S> {
    pub(super) plan: Option<StreamPlan>,
    /// By the tags of their calls.
    progress: Vec<Option<StreamProgress<S>>>,
    /// Calls that may have room for a request.
    to_send: Vec<u64>,
    /// Calls that have had all the responses that they were to have.
    to_cancel: Vec<S>,
    /// When a response came last.
    pub(super) last_message_ns: u64,
}

impl<S: Copy> WorkerStreams<S> {
    pub(super) fn new(plan: Option<StreamPlan>) -> WorkerStreams<S> {
        WorkerStreams {
            plan,
            progress: Vec::new(),
            to_send: Vec::new(),
            to_cancel: Vec::new(),
            last_message_ns: 0,
        }
    }

    /// Whether a turn has something to do for them.
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        !self.to_send.is_empty() || !self.to_cancel.is_empty()
    }

    /// A call may have room for a request.
    pub(super) fn may_send(&mut self, tag: u64) {
        self.to_send.push(tag);
    }

    fn begin(&mut self, tag: u64, stream: S) {
        let place = tag as usize;
        if self.progress.len() <= place {
            self.progress.resize_with(place + 1, || None);
        }
        if let Some(progress) = self.progress.get_mut(place) {
            *progress = Some(StreamProgress {
                stream,
                sent: 0,
                received: 0,
                waiting: VecDeque::new(),
                last_ns: 0,
            });
        }
    }

    fn get_mut(&mut self, tag: u64) -> Option<&mut StreamProgress<S>> {
        self.progress.get_mut(tag as usize)?.as_mut()
    }

    fn end(&mut self, tag: u64) -> Option<StreamProgress<S>> {
        self.progress.get_mut(tag as usize)?.take()
    }

    /// Returns the stream of a call that has a request to send now, and how many it has sent.
    fn next_to_send(&self, tag: u64, plan: StreamPlan) -> Option<(S, u64)> {
        let found = self.progress.get(tag as usize)?.as_ref()?;
        let has_room = found.sent < plan.requests() && found.waiting.len() < plan.window();
        has_room.then_some((found.stream, found.sent))
    }

    /// A call has sent a request.
    fn count_sent(&mut self, tag: u64, plan: StreamPlan, now_ns: u64) {
        if let Some(found) = self.get_mut(tag) {
            found.sent += 1;
            if let StreamPlan::Bidirectional { .. } = plan {
                found.waiting.push_back(now_ns);
            }
        }
    }
}

impl<W: Workload, T: Transport> LoadWorker<W, T> {
    /// Sends a call on the connection of its line, in the way of its method.
    pub(super) fn send_on_line(
        &mut self,
        call: CallInFlight,
        transport: &mut T,
        now_ns: u64,
    ) -> bool {
        match self.streams.plan {
            Some(plan) => self.begin_streaming(call, plan, transport, now_ns),
            None if self.is_pipe => self.send_into_pipe(call, transport, now_ns),
            None => self.send_call(call, transport, now_ns),
        }
    }

    /// Begins a streaming call, whose first request was chosen.
    fn begin_streaming(
        &mut self,
        call: CallInFlight,
        plan: StreamPlan,
        transport: &mut T,
        now_ns: u64,
    ) -> bool {
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
        match transport.begin_stream(channel, STREAM_TAG | tag, &start, now_ns) {
            Ok(stream) => {
                self.lines[line].in_flight += 1;
                self.streams.begin(tag, stream);
                self.send_messages(tag, plan, true, transport, now_ns);
                true
            }
            Err(error) => {
                self.calls.remove(tag);
                self.refuse(&call, error, now_ns);
                false
            }
        }
    }

    /// Cancels calls that have had their responses, and sends requests of those that may have room.
    pub(super) fn turn_streams(&mut self, transport: &mut T, now_ns: u64) {
        for stream in self.streams.to_cancel.drain(..) {
            transport.cancel(stream);
        }
        let Some(plan) = self.streams.plan else {
            return;
        };
        for tag in std::mem::take(&mut self.streams.to_send) {
            self.send_messages(tag, plan, false, transport, now_ns);
        }
    }

    /// Sends requests of a call until it has room for no more. `is_chosen`: the workload has chosen
    /// the next one.
    fn send_messages(
        &mut self,
        tag: u64,
        plan: StreamPlan,
        mut is_chosen: bool,
        transport: &mut T,
        now_ns: u64,
    ) {
        let mut left = limits::MESSAGES_PER_TURN;
        while let Some((stream, sent)) = self.streams.next_to_send(tag, plan) {
            // The event that there is room again brings it back.
            if sent > 0 && !transport.can_send(stream) {
                return;
            }
            if left == 0 || self.turn_bytes >= limits::REQUEST_BYTES_PER_TURN {
                self.streams.may_send(tag);
                return;
            }
            left -= 1;
            if !std::mem::take(&mut is_chosen) {
                self.workload.choose();
            }
            let (workload, turn_bytes) = (&mut self.workload, &mut self.turn_bytes);
            let encode = |out: &mut Vec<u8>| {
                let before = out.len();
                workload.encode(out);
                *turn_bytes += out.len() - before;
            };
            match sent + 1 == plan.requests() {
                true => transport.send_last(stream, encode),
                false => transport.send(stream, encode),
            }
            self.streams.count_sent(tag, plan, now_ns);
            if self.window.contains(now_ns)
                && let Some(tally) = &mut self.tally.streams
            {
                tally.sent += 1;
            }
        }
    }

    /// A response of a streaming call has come.
    pub(super) fn stream_message(&mut self, tag: u64, now_ns: u64) {
        let (Some(call), Some(plan)) = (self.calls.get_mut(tag).copied(), self.streams.plan) else {
            return;
        };
        self.streams.last_message_ns = now_ns;
        let is_measured = self.window.contains(now_ns);
        let Some(found) = self.streams.get_mut(tag) else {
            return;
        };
        found.received += 1;
        let before_ns = std::mem::replace(&mut found.last_ns, now_ns);
        let (received, stream) = (found.received, found.stream);
        let sent_ns = found.waiting.pop_front();
        let tally = self.tally.streams.as_mut().filter(|_| is_measured);
        if let Some(tally) = tally {
            tally.received += 1;
            match (plan, sent_ns) {
                (StreamPlan::Server { .. }, _) if received == 1 => {
                    tally.first_ns.saturating_record(now_ns - call.intended_ns);
                }
                (StreamPlan::Server { .. }, _) => {
                    tally.gap_ns.saturating_record(now_ns - before_ns);
                }
                (StreamPlan::Bidirectional { .. }, Some(sent_ns)) => {
                    tally.response_ns.saturating_record(now_ns - sent_ns);
                }
                _ => {}
            }
        }
        match plan {
            StreamPlan::Server { responses } if responses == Some(received) => {
                self.streams.to_cancel.push(stream);
                self.end_stream(tag, Ok(false), now_ns, String::new);
            }
            StreamPlan::Bidirectional { .. } => self.streams.may_send(tag),
            _ => {}
        }
    }

    /// The server, the connection or the deadline has ended a streaming call.
    pub(super) fn stream_ended(&mut self, tag: u64, ending: &Ending<'_>, now_ns: u64) {
        let sent = self.streams.get_mut(tag).map_or(0, |found| found.sent);
        let Some(plan) = self.streams.plan else {
            return;
        };
        let outcome = match ending {
            Ending::Status { status, messages } if status.is_ok() => match plan {
                StreamPlan::Client { .. } if *messages != 1 => Err(FailureKind::BadAnswer),
                StreamPlan::Unanswered { .. } if *messages != 0 => Err(FailureKind::BadAnswer),
                _ if sent < plan.requests() => Err(FailureKind::EndedEarly),
                _ => Ok(false),
            },
            _ => measure::count_as(ending, None),
        };
        self.end_stream(tag, outcome, now_ns, || match outcome {
            Err(FailureKind::EndedEarly) => format!(
                "the server ended the call with OK after {sent} of {} messages",
                plan.requests()
            ),
            _ => measure::describe(ending),
        });
    }

    fn end_stream(
        &mut self,
        tag: u64,
        outcome: Result<bool, FailureKind>,
        now_ns: u64,
        text: impl FnOnce() -> String,
    ) {
        self.streams.end(tag);
        if let Some(call) = self.calls.remove(tag) {
            self.leave_line(call.line, Some(now_ns));
            self.count_place_of(&call, tag, now_ns);
            self.end_call(&call, outcome, now_ns, text);
        }
    }
}
