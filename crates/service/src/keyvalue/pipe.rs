//! Pipe: a stream of batches, each a commit of its own, answered in the order sent.
//!
//! Several commits of one Pipe are under way at a time; the committer takes those of one loop in
//! the order in which they were submitted, and their outcomes come back in that order. A batch that
//! is refused before it gets there waits in the same line, so that its answer keeps its place. A
//! batch without a write is a commit too: it must see the batches before it.

use std::collections::VecDeque;

use api::keyvalue::{Failure, OperationKind, PipeAnswers, PipeRequest, PipeResponse};
use protobuf::writer;
use store::{CommitOutcome, DatabaseId, Decision, Mode, OperationStatus, Refusal};

use super::batch::{
    Filled, answer_bound, check_operations, encode_applied, encode_outcome, encode_result,
    point_after, push_all, refused, submit_with_room, values_bytes, with_result,
};
use super::messages::{concerns_only_its_batch, decode_pipe, operations, pipe_answers};
use super::{PushedOperation, refuse};
use crate::actions::{
    CallClock, DatabaseAccess, Permissions, RequestFlow, ResponseMemory, Responses, SendRoom,
    Wakeups,
};
use crate::call::Shared;
use crate::limits::{
    FAILURE_BYTES, LARGE_ANSWER_BYTES, PIPE_ACKNOWLEDGE_BATCHES, PIPE_ACKNOWLEDGE_MS,
    PIPE_ANSWER_BYTES, PIPE_BATCHES, PIPE_FRAME_BYTES, PIPE_INDEX_BYTES, PIPE_REQUEST_BYTES,
};
use crate::method::Method;
use crate::rights::Right;
use crate::status::Status;

const METHOD: Method = Method::Pipe;

/// An open Pipe.
#[derive(Default)]
pub(super) struct OpenPipe {
    /// What the first message said of the whole Pipe.
    target: Option<PipeTarget>,
    /// What came and is not answered, in the order sent.
    waiting: VecDeque<WaitingBatch>,
    /// Of the batches among these that are with the committer.
    request_bytes: usize,
    answer_bytes: u64,
    /// Batches that are done.
    done: u64,
    /// How many the caller knows to be done.
    reported: u64,
    /// The caller sends nothing more.
    is_half_closed: bool,
    /// The caller broke the rules: nothing more is taken.
    is_broken: bool,
    is_held: bool,
    has_timer: bool,
}

struct PipeTarget {
    database: DatabaseId,
    name: Box<str>,
    failures_only: bool,
}

/// One message of the caller.
enum WaitingBatch {
    /// Is with the committer.
    Batch(Batch),
    /// Its batch was refused.
    Refused(Status),
    /// Asks up to where all is done.
    Question,
    /// Ends the call.
    Broken(Status),
}

struct Batch {
    pushed: Box<[PushedOperation]>,
    mode: Mode,
    max_answer_bytes: u64,
    request_bytes: usize,
    /// What the answer could come to.
    answer_bytes: u64,
}

impl OpenPipe {
    pub(super) fn message(
        &mut self,
        bytes: &[u8],
        last: bool,
        shared: &Shared,
        actions: &mut (
                 impl DatabaseAccess
                 + Permissions
                 + Responses
                 + SendRoom
                 + ResponseMemory
                 + RequestFlow
                 + Wakeups
                 + CallClock
             ),
    ) {
        if !self.is_broken {
            let Some(message) = self.take(bytes, shared, actions) else {
                return;
            };
            self.waiting.push_back(message);
        }
        self.is_half_closed = last;
        self.go_on(actions);
    }

    pub(super) fn half_closed(
        &mut self,
        actions: &mut (impl Responses + SendRoom + RequestFlow + Wakeups + CallClock),
    ) {
        self.is_half_closed = true;
        self.go_on(actions);
    }

    pub(super) fn committed<A>(
        &mut self,
        outcome: &CommitOutcome<'_>,
        shared: &Shared,
        actions: &mut A,
    ) where
        A: Responses + SendRoom + ResponseMemory + RequestFlow + Wakeups + CallClock,
    {
        if outcome.decision == Decision::Refused(Refusal::UnknownDatabase) {
            // Nothing that follows can succeed, and such a refusal may overtake what is still on
            // its way to the device.
            self.acknowledge(actions);
            return actions.finish(refuse::database_gone());
        }
        let Some(WaitingBatch::Batch(batch)) = self.waiting.pop_front() else {
            return debug_assert!(false, "all before a batch with the committer was answered");
        };
        self.request_bytes -= batch.request_bytes;
        self.answer_bytes -= batch.answer_bytes;
        self.answer(&batch, outcome, shared, actions);
        self.reserve(actions);
        self.go_on(actions);
    }

    pub(super) fn writable(
        &mut self,
        actions: &mut (impl Responses + SendRoom + RequestFlow + Wakeups + CallClock),
    ) {
        self.acknowledge(actions);
        self.go_on(actions);
    }

    pub(super) fn woken(&mut self, actions: &mut (impl Responses + SendRoom)) {
        self.has_timer = false;
        // Without room the acknowledgement goes out with `writable`.
        if actions.can_send() {
            self.acknowledge(actions);
        }
    }

    fn failures_only(&self) -> bool {
        self.target
            .as_ref()
            .is_some_and(|target| target.failures_only)
    }

    // --- what comes in

    /// What a message asks for. Submits its batch if it has one that can be. `None`: the message
    /// comes once more, when there is memory for the values in the answer.
    fn take(
        &mut self,
        bytes: &[u8],
        shared: &Shared,
        actions: &mut (impl DatabaseAccess + Permissions + ResponseMemory),
    ) -> Option<WaitingBatch> {
        let (request, mode) = match decode_pipe(bytes) {
            Ok(decoded) => decoded,
            Err(invalid) => {
                let status = refuse::invalid(METHOD, invalid);
                let goes_on = self.target.is_some() && concerns_only_its_batch(&invalid);
                return Some(match goes_on {
                    true => WaitingBatch::Refused(status),
                    false => self.broken(status),
                });
            }
        };
        if let Err(status) = self.aim(&request, shared, actions) {
            return Some(self.broken(status));
        }
        if request.operations.is_empty() {
            return Some(WaitingBatch::Question);
        }
        match self.submit((&request, mode), bytes.len(), shared, actions) {
            Ok(batch) => batch.map(WaitingBatch::Batch),
            Err(status) => Some(WaitingBatch::Refused(status)),
        }
    }

    fn broken(&mut self, status: Status) -> WaitingBatch {
        self.is_broken = true;
        WaitingBatch::Broken(status)
    }

    /// Takes from the first message what holds for the whole Pipe, and checks that the others do
    /// not contradict.
    fn aim(
        &mut self,
        request: &PipeRequest<'_>,
        shared: &Shared,
        actions: &impl Permissions,
    ) -> Result<(), Status> {
        if let Some(target) = &self.target {
            let fits = request.database.is_empty() || *request.database == *target.name;
            return if fits {
                Ok(())
            } else {
                Err(refuse::other_database(METHOD))
            };
        }
        let answers = pipe_answers(request.answers);
        let answers = answers.map_err(|invalid| refuse::invalid(METHOD, invalid))?;
        self.target = Some(PipeTarget {
            database: refuse::find_database(Right::Read, request.database, shared, actions)?,
            name: request.database.into(),
            failures_only: answers == PipeAnswers::FailuresOnly,
        });
        Ok(())
    }

    fn submit(
        &mut self,
        (request, mode): (&PipeRequest<'_>, Mode),
        request_bytes: usize,
        shared: &Shared,
        actions: &mut (impl DatabaseAccess + Permissions + ResponseMemory),
    ) -> Result<Option<Batch>, Status> {
        let target = self.target.as_ref().expect("the first message has set it");
        check_operations(&target.name, request.operations.encoded(), shared, actions)?;
        let limits = shared.store.limits(target.database).unwrap_or_default();
        let max_answer_bytes = answer_bound(METHOD, request.max_answer_bytes, shared)?;
        let (given, allowed) = (request.operations.len(), limits.commit_operations);
        if given > allowed {
            return Err(refuse::too_many_operations(METHOD, given, allowed));
        }
        let place = (target.database, mode);
        let submitted = submit_with_room(place, actions, |commit| {
            let mut pushed = Vec::with_capacity(given);
            let mut answer = AnswerBound::new(target.failures_only, limits.value_bytes);
            let list = (METHOD, "operations");
            push_all(list, operations(&request.operations), commit, |one| {
                answer.add(one);
                pushed.push(one);
            })?;
            Ok(Filled {
                values_bytes: values_bytes(&pushed, target.database, max_answer_bytes, shared),
                results_bytes: max_answer_bytes.saturating_sub(answer.beside_results_bytes),
                kept: (pushed, answer.bytes().min(max_answer_bytes)),
            })
        })?;
        let Some((pushed, answer_bytes)) = submitted else {
            return Ok(None);
        };
        self.request_bytes += request_bytes;
        self.answer_bytes += answer_bytes;
        self.reserve(actions);
        Ok(Some(Batch {
            pushed: pushed.into(),
            mode,
            max_answer_bytes,
            request_bytes,
            answer_bytes,
        }))
    }

    /// Has room for the answers to all batches under way set aside, if that is more than a little:
    /// each message that is sent gives back what was set aside.
    fn reserve(&self, actions: &mut impl ResponseMemory) {
        if self.answer_bytes > LARGE_ANSWER_BYTES as u64 {
            actions.reserve(usize::try_from(self.answer_bytes).unwrap_or(usize::MAX));
        }
    }

    // --- what goes out

    /// Answers all that waits for nothing, ends the call if that was all, and holds the caller if
    /// too much is under way.
    fn go_on(
        &mut self,
        actions: &mut (impl Responses + SendRoom + RequestFlow + Wakeups + CallClock),
    ) {
        while let Some(next) = self.waiting.pop_front() {
            match next {
                WaitingBatch::Batch(_) => {
                    self.waiting.push_front(next);
                    break;
                }
                WaitingBatch::Refused(status) => self.answer_refused(&status, actions),
                WaitingBatch::Question => self.send_done(actions),
                WaitingBatch::Broken(status) => {
                    self.acknowledge(actions);
                    return actions.finish(status);
                }
            }
        }
        if self.is_half_closed && self.waiting.is_empty() {
            self.acknowledge(actions);
            return actions.finish(Status::OK);
        }
        self.acknowledge_in_time(actions);
        self.hold_or_resume(actions);
    }

    fn answer(
        &mut self,
        batch: &Batch,
        outcome: &CommitOutcome<'_>,
        shared: &Shared,
        actions: &mut impl Responses,
    ) {
        if let Decision::Refused(refusal) = outcome.decision {
            let status = refused(METHOD, refusal, batch.max_answer_bytes);
            return self.answer_refused(&status, actions);
        }
        self.done += 1;
        let done = self.done;
        if self.failures_only() && outcome.decision == Decision::Applied {
            let failed = |status| status != OperationStatus::Done;
            let all_well =
                batch.mode == Mode::Atomic || !outcome.operations().any(|one| failed(one.status));
            if all_well {
                return;
            }
            actions.message(|out| encode_failures(out, done, &batch.pushed, outcome, shared));
        } else {
            actions.message(|out| {
                encode_batch(out, done, |out| {
                    encode_outcome(out, &batch.pushed, outcome, shared)
                });
            });
        }
        self.reported = done;
    }

    fn answer_refused(&mut self, status: &Status, actions: &mut impl Responses) {
        self.done += 1;
        let failure = Failure {
            code: status.code() as u32,
            message: status.message(),
        };
        let response = PipeResponse {
            done: self.done,
            batch_number: self.done,
            failure: Some(failure),
            ..PipeResponse::default()
        };
        actions.message(|out| response.encode(out));
        self.reported = self.done;
    }

    fn send_done(&mut self, actions: &mut impl Responses) {
        let response = PipeResponse {
            done: self.done,
            ..PipeResponse::default()
        };
        actions.message(|out| response.encode(out));
        self.reported = self.done;
    }

    /// Says up to where all is done, if the caller does not know yet.
    fn acknowledge(&mut self, actions: &mut impl Responses) {
        if self.done > self.reported {
            self.send_done(actions);
        }
    }

    fn acknowledge_in_time(
        &mut self,
        actions: &mut (impl Responses + SendRoom + Wakeups + CallClock),
    ) {
        let unreported = self.done - self.reported;
        if unreported >= PIPE_ACKNOWLEDGE_BATCHES && actions.can_send() {
            self.send_done(actions);
        } else if unreported > 0 && !self.has_timer {
            self.has_timer = true;
            actions.wake_at_ns(actions.now_ns() + PIPE_ACKNOWLEDGE_MS * 1_000_000);
        }
    }

    fn hold_or_resume(&mut self, actions: &mut (impl SendRoom + RequestFlow)) {
        let is_full = self.is_broken
            || self.waiting.len() >= PIPE_BATCHES
            || self.request_bytes >= PIPE_REQUEST_BYTES
            || self.answer_bytes >= PIPE_ANSWER_BYTES
            || !actions.can_send();
        if is_full == self.is_held {
            return;
        }
        self.is_held = is_full;
        if is_full {
            actions.hold();
        } else {
            actions.resume();
        }
    }
}

/// Appends the answer to the batch `done`, which is the last that is done; `encode_outcome` appends
/// the inside of its outcome.
fn encode_batch(out: &mut Vec<u8>, done: u64, encode_outcome: impl FnOnce(&mut Vec<u8>)) {
    PipeResponse {
        done,
        batch_number: done,
        ..PipeResponse::default()
    }
    .encode(out);
    writer::message(out, PipeResponse::NUMBERS.batch, encode_outcome);
}

/// Appends the answer to an independent batch with only those results that failed.
fn encode_failures(
    out: &mut Vec<u8>,
    done: u64,
    pushed: &[PushedOperation],
    outcome: &CommitOutcome<'_>,
    shared: &Shared,
) {
    let failed = || {
        (0..)
            .zip(pushed.iter().zip(outcome.operations()))
            .filter(|(_, (_, one))| one.status != OperationStatus::Done)
    };
    encode_batch(out, done, |out| {
        encode_applied(out, point_after(outcome, shared));
        for (_, (&pushed, one)) in failed() {
            with_result(pushed, &one, outcome, shared, |result| {
                encode_result(out, result)
            });
        }
    });
    let indexes: Vec<u32> = failed().map(|(index, _)| index).collect();
    PipeResponse {
        result_indexes: indexes[..].into(),
        ..PipeResponse::default()
    }
    .encode(out);
}

/// Adds up what the answer to a batch could come to.
struct AnswerBound {
    failures_only: bool,
    value_bytes: u64,
    results_bytes: u64,
    /// What is not counted by the committer, which counts results.
    beside_results_bytes: u64,
}

impl AnswerBound {
    fn new(failures_only: bool, value_bytes: usize) -> AnswerBound {
        AnswerBound {
            failures_only,
            value_bytes: value_bytes as u64,
            results_bytes: 0,
            beside_results_bytes: PIPE_FRAME_BYTES,
        }
    }

    fn add(&mut self, one: PushedOperation) {
        self.results_bytes += store::limits::ANSWER_BYTES_PER_OPERATION as u64;
        // A Get does not fail, so that its value is left out where only failures are answered.
        if one.wants_value && !(self.failures_only && one.kind == OperationKind::Get) {
            self.results_bytes += self.value_bytes;
        }
        if one.kind == OperationKind::Append {
            // The one operation whose result may be a failure in words.
            self.beside_results_bytes += FAILURE_BYTES;
        }
        if self.failures_only {
            self.beside_results_bytes += PIPE_INDEX_BYTES;
        }
    }

    fn bytes(&self) -> u64 {
        self.results_bytes + self.beside_results_bytes
    }
}
