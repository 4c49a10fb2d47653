//! Batch: several operations in one request.

use std::collections::HashSet;

use api::keyvalue::{BatchRequest, BatchResponse, Failure, GetResponse, OperationKind, ResultBody};
use protobuf::{Reader, writer};
use store::limits::ANSWER_BYTES_PER_OPERATION as RESULT_BYTES;
use store::tree::{NotFetched, ReadPlan};
use store::{
    Commit, CommitOutcome, DatabaseId, Decision, Entry, IndexView, Mode, Operation,
    OperationOutcome, ReadView, Refusal, Value,
};

use super::messages::{HistoryPoint, Invalid, decode_batch, decode_operation, operations};
use super::{KeyValueState, PushedOperation, answer, refuse, value_bytes_at_most};
use crate::actions::{CallClock, DatabaseAccess, Permissions, ResponseMemory, Responses, SendRoom};
use crate::call::Shared;
use crate::limits::{
    ANSWER_BYTES, ANSWER_BYTES_MAX, ANSWER_FRAME_BYTES, FAILURE_BYTES, LARGE_ANSWER_BYTES,
};
use crate::message_parts::MessageParts;
use crate::method::Method;
use crate::permission;
use crate::rights::Right;
use crate::status::Status;

/// A batch of reads that waits for a view.
pub(super) struct ReadBatch {
    /// The request, decoded again when it is served: cheaper than a list of keys.
    request: Box<[u8]>,
    database: DatabaseId,
    /// What the values may take that are fetched for it, of a database on disk.
    expected_bytes: usize,
    max_answer_bytes: u64,
}

/// A batch with a write that is with the committer.
pub(super) struct BatchCall {
    pushed: Box<[PushedOperation]>,
    max_answer_bytes: u64,
}

/// Takes up a request.
pub(super) fn begin(
    bytes: &[u8],
    shared: &Shared,
    actions: &mut (impl DatabaseAccess + Permissions + ResponseMemory),
) -> Result<KeyValueState, Status> {
    let decoded = decode_batch(bytes);
    let (request, mode) = decoded.map_err(|invalid| refuse::invalid(Method::Batch, invalid))?;
    let database = refuse::find_database(Right::Read, request.database, shared, actions)?;
    let named_bytes = named_bound(Method::Batch, request.max_answer_bytes)?;
    let allowed_bytes = named_bytes.min(shared.answer_bytes_max);
    let allowed = shared
        .store
        .limits(database)
        .unwrap_or_default()
        .commit_operations;
    if request.operations.len() > allowed {
        return Err(refuse::too_many_operations(
            Method::Batch,
            request.operations.len(),
            allowed,
        ));
    }
    if !has_only_reads(&request)? {
        permission::check_database(Right::Write, request.database, actions)?;
        if let Some(refusal) = shared.write_refusal() {
            return Err(refusal);
        }
        let place = (database, mode);
        let begun = begin_writes(&request, place, allowed_bytes, shared, actions)?;
        return Ok(match begun {
            Some(batch) => KeyValueState::WriteBatch(Box::new(batch)),
            None => KeyValueState::Expecting(Method::Batch),
        });
    }
    let is_fetched = matches!(
        shared.store.index_view(database),
        IndexView::Disk(_) | IndexView::Remote(_)
    );
    let (max_answer_bytes, expected_bytes) = match is_fetched {
        true => {
            let bytes = bytes_to_fetch(&request, database, allowed_bytes, shared);
            (allowed_bytes, bytes)
        }
        // Large values are shared with the database, and count once: it is seen as they are
        // gathered.
        false => (named_bytes, 0),
    };
    if !actions.room_for_answer(bytes.len() + expected_bytes) {
        return Ok(KeyValueState::Expecting(Method::Batch));
    }
    let batch = ReadBatch {
        request: bytes.into(),
        database,
        expected_bytes,
        max_answer_bytes,
    };
    batch.ask(actions);
    Ok(KeyValueState::ReadBatch(Box::new(batch)))
}

/// The bound on the answer to a request that asks for this one, 0 if it names none: what the server
/// allows of it.
pub(super) fn answer_bound(method: Method, given: u64, shared: &Shared) -> Result<u64, Status> {
    let named = named_bound(method, given)?;
    Ok(named.min(shared.answer_bytes_max))
}

/// The bound that a request names, 0 if it names none.
fn named_bound(method: Method, given: u64) -> Result<u64, Status> {
    match given {
        0 => Ok(ANSWER_BYTES),
        given if given > ANSWER_BYTES_MAX => Err(refuse::answer_bound_too_large(method, given)),
        given => Ok(given),
    }
}

/// Hands a batch with a write to the committer; `None`: its request comes once more, when there is
/// memory for the values in the answer.
fn begin_writes(
    request: &BatchRequest<'_>,
    place: (DatabaseId, Mode),
    max_answer_bytes: u64,
    shared: &Shared,
    actions: &mut (impl DatabaseAccess + ResponseMemory),
) -> Result<Option<BatchCall>, Status> {
    let submitted = submit_with_room(place, actions, |commit| {
        let mut answer_bytes_left = max_answer_bytes.saturating_sub(ANSWER_FRAME_BYTES);
        let mut pushed = Vec::with_capacity(request.operations.len());
        let list = (Method::Batch, "operations");
        push_all(list, operations(&request.operations), commit, |one| {
            pushed.push(one);
            if one.kind == OperationKind::Append {
                // The one operation whose result may be a failure in words.
                answer_bytes_left = answer_bytes_left.saturating_sub(FAILURE_BYTES);
            }
        })?;
        Ok(Filled {
            values_bytes: values_bytes(&pushed, place.0, max_answer_bytes, shared),
            results_bytes: answer_bytes_left,
            kept: pushed,
        })
    })?;
    Ok(submitted.map(|pushed| BatchCall {
        pushed: pushed.into(),
        max_answer_bytes,
    }))
}

/// A commit that was filled.
pub(super) struct Filled<Kept> {
    /// What the values in the answer come to at most, in bytes.
    pub values_bytes: usize,
    /// What all results may come to.
    pub results_bytes: u64,
    /// What must be known of the operations.
    pub kept: Kept,
}

/// Has `fill` push into a commit on a database, and submits it; `None`: the request comes once
/// more, when there is memory for the values in its answer.
pub(super) fn submit_with_room<Kept>(
    (database, mode): (DatabaseId, Mode),
    actions: &mut (impl DatabaseAccess + ResponseMemory),
    fill: impl Fn(&mut Commit<'_>) -> Result<Filled<Kept>, Status>,
) -> Result<Option<Kept>, Status> {
    let mut has_room = false;
    loop {
        let mut commit = actions.write(database, mode);
        let filled = fill(&mut commit)?;
        if has_room || filled.values_bytes == 0 {
            commit.limit_answer(usize::try_from(filled.results_bytes).unwrap_or(usize::MAX));
            commit.submit();
            return Ok(Some(filled.kept));
        }
        // Given up: only now it is known that room is needed, and most commits need none.
        drop(commit);
        if !actions.room_for_answer(filled.values_bytes) {
            return Ok(None);
        }
        has_room = true;
    }
}

/// Returns what the values in the answer to these operations come to at most, in bytes.
pub(super) fn values_bytes(
    pushed: &[PushedOperation],
    database: DatabaseId,
    max_answer_bytes: u64,
    shared: &Shared,
) -> usize {
    let count = pushed.iter().filter(|one| one.wants_value).count();
    if count == 0 {
        return 0;
    }
    (count.saturating_mul(value_bytes_at_most(database, shared)))
        .min(usize::try_from(max_answer_bytes).unwrap_or(usize::MAX))
}

/// Pushes operations into a commit and hands what must be known of each to `keep`. `list` is where
/// they stand: the method, and the field.
pub(super) fn push_all<'a>(
    list: (Method, &str),
    operations: impl Iterator<Item = Result<(OperationKind, Operation<'a>), Invalid>>,
    commit: &mut Commit<'_>,
    mut keep: impl FnMut(PushedOperation),
) -> Result<(), Status> {
    let (method, field) = list;
    for (index, operation) in operations.enumerate() {
        let (kind, operation) = operation
            .map_err(|invalid| refuse::invalid_operation(method, field, index, invalid))?;
        commit
            .push(&operation)
            .map_err(|error| refuse::push_error(method, error))?;
        keep(PushedOperation::new(kind, &operation));
    }
    Ok(())
}

/// Refuses operations, in their encoded form, to those who may not read, and those who may not
/// write if one of them writes. A replica refuses these to all.
pub(super) fn check_operations<'a>(
    database: &str,
    mut operations: impl Iterator<Item = &'a [u8]>,
    shared: &Shared,
    actions: &impl Permissions,
) -> Result<(), Status> {
    let holds = permission::holds(Right::Write, database, actions);
    if holds && !shared.refuses_writes() {
        return Ok(());
    }
    let writes = operations.any(may_write);
    if !holds {
        let needed = match writes {
            true => Right::Write,
            false => Right::Read,
        };
        permission::check_database(needed, database, actions)?;
    }
    match shared.write_refusal() {
        Some(refusal) if writes => Err(refusal),
        _ => Ok(()),
    }
}

/// Returns whether all operations are Gets of keys that there can be.
///
/// # Errors
///
/// All are Gets, and one of them is broken: what is wrong beside a write, the commit finds.
fn has_only_reads(request: &BatchRequest<'_>) -> Result<bool, Status> {
    let mut first_wrong = None;
    for (index, operation) in request.operations.encoded().enumerate() {
        if may_write(operation) {
            return Ok(false);
        }
        if first_wrong.is_none() {
            first_wrong = check_read(index, operation).err();
        }
    }
    first_wrong.map_or(Ok(true), Err)
}

fn check_read(index: usize, operation: &[u8]) -> Result<(), Status> {
    let list = "operations";
    match decode_operation(operation) {
        Ok((_, Operation::Get { key })) => refuse::check_key(key),
        Ok(_) => unreachable!("what is not a Get may write"),
        Err(invalid) => Err(refuse::invalid_operation(
            Method::Batch,
            list,
            index,
            invalid,
        )),
    }
}

/// Returns whether the message `Operation` may be anything but a Get. To be wrong for a strange or
/// broken one does no harm: the committer serves Gets too, and what is broken is refused either
/// way.
#[inline]
fn may_write(operation: &[u8]) -> bool {
    let mut reader = Reader::new(operation);
    let first = reader.next_field();
    let get = OperationKind::Get as u32;
    !(matches!(first, Ok(Some((number, _))) if number == get) && reader.is_at_end())
}

impl ReadBatch {
    /// Says which keys will be looked at: no further ones when their values come to more than the
    /// answer may have.
    pub(super) fn plan_reads(&self, plan: &mut ReadPlan) {
        let bytes = usize::try_from(self.max_answer_bytes).unwrap_or(usize::MAX);
        plan.keys(bytes, keys_of(&self.decoded()));
    }

    fn decoded(&self) -> BatchRequest<'_> {
        let (request, _) = decode_batch(&self.request).expect("it was decoded before");
        request
    }

    /// Answers all reads from one view.
    pub(super) fn read(
        &self,
        view: &ReadView<'_>,
        shared: &Shared,
        actions: &mut (impl Responses + SendRoom + ResponseMemory + CallClock),
    ) -> Result<(), NotFetched> {
        let mut is_claimed = self.expected_bytes > 0;
        if !is_claimed && !actions.can_send() {
            // Other calls of the same connection have used its room up meanwhile: `writable`
            // follows.
            return Ok(());
        }
        let now_ms = actions.now_ms();
        let mut answer = MessageParts::default();
        // What it shares with the database, each value once: the peer may be long in taking it, and
        // it may be overwritten.
        let (mut shared_values, mut shared_bytes) = (HashSet::new(), 0);
        encode_applied(&mut answer.own, point_of(view));
        for key in keys_of(&self.decoded()) {
            let entry = view.get(key, shared.store.hasher().hash(key), now_ms)?;
            let value_bytes = entry.as_ref().map_or(0, |entry| entry.value.len());
            // Looked at before the value is copied, so that no more than the bound is ever in
            // memory.
            let bytes = answer.len() + value_bytes + store::limits::ANSWER_BYTES_PER_OPERATION;
            if bytes as u64 > self.max_answer_bytes {
                let status = refuse::answer_too_large(Method::Batch, self.max_answer_bytes);
                actions.finish(status);
                return Ok(());
            }
            if let Some(Value::Shared(value)) = entry.as_ref().map(|entry| entry.value)
                && shared_values.insert(value.as_ptr())
            {
                shared_bytes += value.len();
            }
            append_get(&mut answer, entry);
            if (answer.own.len() + shared_bytes) as u64 > shared.answer_bytes_max {
                let status = refuse::answer_too_large(Method::Batch, shared.answer_bytes_max);
                actions.finish(status);
                return Ok(());
            }
            if !is_claimed && answer.own.len() > LARGE_ANSWER_BYTES {
                is_claimed = actions.can_send_large(self.most_copied_bytes(shared));
                if !is_claimed {
                    // Made anew when there is memory for it: kept, it would be what there is none
                    // for.
                    return Ok(());
                }
            }
        }
        actions.respond_parts(answer);
        Ok(())
    }

    /// What its answer may copy: larger values are shared.
    fn most_copied_bytes(&self, shared: &Shared) -> usize {
        let each = store::limits::SHARED_VALUE_BYTES + store::limits::ANSWER_BYTES_PER_OPERATION;
        let most = self.decoded().operations.len().saturating_mul(each);
        let bound = self.max_answer_bytes.min(shared.answer_bytes_max);
        most.min(usize::try_from(bound).unwrap_or(usize::MAX))
    }

    /// Asks for its view.
    pub(super) fn ask(&self, actions: &mut (impl DatabaseAccess + ResponseMemory)) {
        actions.reserve(self.request.len() + self.expected_bytes);
        actions.read_long(self.database);
    }
}

/// What the values of a batch of reads may take that are fetched from a database on disk.
fn bytes_to_fetch(
    request: &BatchRequest<'_>,
    database: DatabaseId,
    max_answer_bytes: u64,
    shared: &Shared,
) -> usize {
    let limits = shared.store.limits(database).unwrap_or_default();
    let most = (request.operations.len()).saturating_mul(limits.value_bytes);
    most.min(usize::try_from(max_answer_bytes).unwrap_or(usize::MAX))
}

/// Appends the result of a Get. A large value is shared: to copy it would be a long step.
fn append_get(answer: &mut MessageParts, entry: Option<Entry<'_>>) {
    let Some(entry) = entry else {
        let absent = ResultBody::Get(GetResponse::default());
        return encode_result(&mut answer.own, &absent);
    };
    let response = GetResponse {
        found: true,
        value: entry.value.bytes(),
        version: entry.version,
        expires_at_ms: entry.expires_ms,
    };
    match entry.value {
        Value::Shared(value) if !value.is_empty() => {
            encode_get_result_head(&mut answer.own, &response, value.len());
            answer.share(value);
        }
        _ => encode_result(&mut answer.own, &ResultBody::Get(response)),
    }
}

/// Appends the result of a Get without the `value_bytes` bytes of its value, which must follow.
fn encode_get_result_head(out: &mut Vec<u8>, response: &GetResponse<'_>, value_bytes: usize) {
    let mut head = Vec::new();
    answer::encode_get_head(response, value_bytes, &mut head);
    let get_bytes = head.len() + value_bytes;
    let result_bytes = writer::bytes_len(ResultBody::NUMBERS.get, get_bytes);
    writer::bytes_head(out, BatchResponse::NUMBERS.results, result_bytes);
    writer::bytes_head(out, ResultBody::NUMBERS.get, get_bytes);
    out.extend_from_slice(&head);
}

fn keys_of<'a>(request: &BatchRequest<'a>) -> impl Iterator<Item = &'a [u8]> {
    operations(&request.operations).map(|operation| match operation {
        Ok((_, Operation::Get { key })) => key,
        _ => unreachable!("has_only_reads let only Gets pass"),
    })
}

impl BatchCall {
    /// Answers with what became of the commit.
    pub(super) fn committed(
        &self,
        outcome: &CommitOutcome<'_>,
        shared: &Shared,
        actions: &mut impl Responses,
    ) {
        if let Decision::Refused(refusal) = outcome.decision {
            return actions.finish(refused(Method::Batch, refusal, self.max_answer_bytes));
        }
        actions.respond(|out| encode_outcome(out, &self.pushed, outcome, shared));
    }
}

/// The status of a request whose commit was refused.
pub(super) fn refused(method: Method, refusal: Refusal, max_answer_bytes: u64) -> Status {
    match refusal {
        Refusal::AnswerTooLarge { .. } => refuse::answer_too_large(method, max_answer_bytes),
        refusal => refuse::refusal(refusal),
    }
}

/// The view that a read was answered from.
pub(super) fn point_of(view: &ReadView<'_>) -> HistoryPoint {
    HistoryPoint::new(view.history_id(), view.sequence())
}

/// The commit that a write was decided in.
pub(super) fn point_after(outcome: &CommitOutcome<'_>, shared: &Shared) -> HistoryPoint {
    HistoryPoint::new(shared.store.history_id(), outcome.sequence)
}

/// Appends what a batch that took effect is answered with, up to its results.
pub(super) fn encode_applied(out: &mut Vec<u8>, point: HistoryPoint) {
    BatchResponse {
        applied: true,
        sequence: point.sequence(),
        history_id: point.history_id(),
        ..BatchResponse::default()
    }
    .encode(out);
}

/// Appends one result of a batch.
#[inline]
pub(super) fn encode_result(out: &mut Vec<u8>, result: &ResultBody<'_>) {
    let results = BatchResponse::NUMBERS.results;
    writer::message(out, results, |out| result.encode(out));
}

/// Appends the inside of the `BatchResponse` for a commit that was not refused; `pushed` are the
/// operations of which it has outcomes, or of which one has failed.
pub(super) fn encode_outcome(
    out: &mut Vec<u8>,
    pushed: &[PushedOperation],
    outcome: &CommitOutcome<'_>,
    shared: &Shared,
) {
    if let Decision::Failed { index, .. } = outcome.decision {
        let operation = outcome
            .first()
            .expect("a failed commit has the outcome of what failed");
        return with_result(pushed[index], &operation, outcome, shared, |result| {
            let point = point_after(outcome, shared);
            BatchResponse {
                sequence: point.sequence(),
                // It fits: the operations of a commit are far fewer than 2^32.
                failed_operation: index as u32,
                failed_result: Some((*result).into()),
                history_id: point.history_id(),
                ..BatchResponse::default()
            }
            .encode(out);
        });
    }
    // At once: grown step by step, a large answer would lie in memory twice.
    let values = (outcome.operations()).filter_map(|one| one.value.map(|value| value.len()));
    out.reserve_exact(values.sum::<usize>() + pushed.len() * RESULT_BYTES);
    encode_applied(out, point_after(outcome, shared));
    debug_assert_eq!(outcome.operations().len(), pushed.len());
    for (&pushed, operation) in pushed.iter().zip(outcome.operations()) {
        with_result(pushed, &operation, outcome, shared, |result| {
            encode_result(out, result)
        });
    }
}

/// Calls `use_it` with the result of one operation, which may be a failure in words.
#[inline]
pub(super) fn with_result(
    pushed: PushedOperation,
    operation: &OperationOutcome<'_>,
    outcome: &CommitOutcome<'_>,
    shared: &Shared,
    use_it: impl FnOnce(&ResultBody<'_>),
) {
    match answer::failure(pushed, operation, outcome.database, shared) {
        None => use_it(&answer::result(pushed.kind, operation, outcome.sequence)),
        Some(status) => {
            let failure = Failure {
                code: status.code() as u32,
                message: status.message(),
            };
            use_it(&ResultBody::Failure(failure));
        }
    }
}
