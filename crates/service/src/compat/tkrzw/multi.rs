//! Requests of several records, and Clear.
//!
//! Records are written in the order of keys, of several with one key the first. A large request is
//! carried out in slices, each a commit: the original does not carry such requests out as one step
//! either, and others would wait for all of it. CompareExchangeMulti always is one commit.

use api::tkrzw::{
    AppendMultiRequest, BytesPair, ClearRequest, CompareExchangeMultiRequest, RecordState,
    RemoveMultiRequest, SetMultiRequest,
};
use store::{
    CommitOutcome, Condition, DatabaseId, DatabaseLimits, Decision, Mode, Operation,
    OperationStatus, PushError, TransactList,
};

use super::decode::{decode, not_a_request};
use super::result::RequestResult;
use super::single::{append_operations, delete, expected, grown_too_large, push_append, put};
use super::sorted::{RECORD_OVERHEAD_BYTES, RecordPair, SortedRecords};
use super::target::target;
use super::{Package, TkrzwActions, TkrzwStep};
use crate::actions::{CallClock, DatabaseAccess, Responses, Wakeups};
use crate::call::Shared;
use crate::keyvalue;
use crate::limits::{TKRZW_SLICE_BYTES, TKRZW_SLICE_OPERATIONS, TKRZW_SLICE_RETRY_MS};
use crate::method::Method;
use crate::rights::Right;
use crate::status::Status;
use crate::tkrzw_state::SlicePlace;

/// What writes of several records do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MultiKind {
    Set,
    Remove,
    Append,
    CompareExchange,
    Clear,
}

/// Writes of several records that are with the committer.
pub(super) struct MultiWrite {
    kind: MultiKind,
    /// What came of those before.
    result: RequestResult,
    /// What is not yet with the committer.
    rest: Option<Box<Slices>>,
}

/// The records of a large request that are still to be written.
struct Slices {
    method: Method,
    database: DatabaseId,
    writing: Writing<Box<[u8]>>,
    records: SortedRecords,
    is_sorted: bool,
    /// What a slice may have.
    bounds: SliceBounds,
    /// Held while a slice is with the committer.
    place: Option<SlicePlace>,
}

/// How much of a request is written at a time.
#[derive(Clone, Copy, Debug)]
struct SliceBounds {
    operations: usize,
    bytes: usize,
}

/// How records are written; `D` holds the delimiter.
struct Writing<D> {
    kind: MultiKind,
    /// Of Set.
    overwrite: bool,
    /// Of Append.
    delimiter: D,
}

/// Records to be written, as the request has them.
struct GivenRecords<'a> {
    pairs: Vec<RecordPair<'a>>,
    writing: Writing<&'a [u8]>,
}

impl MultiWrite {
    /// Takes up a request.
    pub(super) fn begin(
        method: Method,
        bytes: &[u8],
        shared: &Shared,
        actions: &mut impl TkrzwActions,
    ) -> Result<Option<TkrzwStep>, Status> {
        use Method as M;
        match method {
            M::TkrzwSetMulti | M::TkrzwBeforeSetMulti => {
                let request: SetMultiRequest<'_> = decode(method, bytes)?;
                let records = GivenRecords {
                    pairs: pairs(method, request.records.iter())?,
                    writing: Writing {
                        kind: MultiKind::Set,
                        overwrite: request.overwrite,
                        delimiter: &[],
                    },
                };
                let index = request.dbm_index;
                begin_records((method, bytes), index, records, shared, actions)
            }
            M::TkrzwAppendMulti | M::TkrzwBeforeAppendMulti => {
                let request: AppendMultiRequest<'_> = decode(method, bytes)?;
                let records = GivenRecords {
                    pairs: pairs(method, request.records.iter())?,
                    writing: Writing {
                        kind: MultiKind::Append,
                        overwrite: true,
                        delimiter: request.delim,
                    },
                };
                let index = request.dbm_index;
                begin_records((method, bytes), index, records, shared, actions)
            }
            M::TkrzwRemoveMulti | M::TkrzwBeforeRemoveMulti => {
                let request: RemoveMultiRequest<'_> = decode(method, bytes)?;
                let records = GivenRecords {
                    pairs: keys(method, request.keys.iter())?,
                    writing: Writing {
                        kind: MultiKind::Remove,
                        overwrite: true,
                        delimiter: &[],
                    },
                };
                let index = request.dbm_index;
                begin_records((method, bytes), index, records, shared, actions)
            }
            M::TkrzwClear | M::TkrzwBeforeClear => {
                let request: ClearRequest = decode(method, bytes)?;
                begin_clear(method, &request, shared, actions)
            }
            M::TkrzwCompareExchangeMulti | M::TkrzwBeforeCompareExchangeMulti => {
                begin_exchange(method, bytes, shared, actions)
            }
            _ => Err(Status::unimplemented(method.path())),
        }
    }

    fn step(kind: MultiKind, rest: Option<Box<Slices>>) -> TkrzwStep {
        TkrzwStep::MultiWrite(Box::new(MultiWrite {
            kind,
            result: RequestResult::SUCCESS,
            rest,
        }))
    }

    /// Responds when there is an outcome of the last commit.
    pub(super) fn committed(
        &mut self,
        outcome: &CommitOutcome<'_>,
        actions: &mut (impl Responses + Wakeups),
    ) {
        if let Decision::Refused(refusal) = outcome.decision {
            return actions.finish(keyvalue::refusal(refusal));
        }
        match self.result_of(outcome) {
            Ok(result) if result.is_success() => {}
            Ok(result) => self.result = result,
            Err(status) => return actions.finish(status),
        }
        if let Some(rest) = &mut self.rest {
            rest.place = None;
            if rest.records.peek().is_some() {
                return actions.step_later();
            }
        }
        let result = self.result;
        actions.respond(|out| result.encode(out));
    }

    /// Goes on with the next slice.
    pub(super) fn woken(
        &mut self,
        shared: &Shared,
        actions: &mut (impl DatabaseAccess + Responses + Wakeups + CallClock),
    ) {
        let Some(rest) = self.rest.as_mut().filter(|rest| rest.place.is_none()) else {
            return;
        };
        if !rest.is_sorted {
            rest.is_sorted = rest.records.sort_run();
            return actions.step_later();
        }
        rest.place = shared.settings.tkrzw.state.slices.take();
        if rest.place.is_none() {
            return actions.wake_at_ns(actions.now_ns() + TKRZW_SLICE_RETRY_MS * 1_000_000);
        }
        if let Err(error) = rest.submit(actions) {
            actions.finish(keyvalue::push_error(rest.method, error));
        }
    }

    fn result_of(&self, outcome: &CommitOutcome<'_>) -> Result<RequestResult, Status> {
        let mut operations = outcome.operations();
        let is = |status| move |one: store::OperationOutcome<'_>| one.status == status;
        Ok(match self.kind {
            MultiKind::Set if operations.any(is(OperationStatus::ConditionFailed)) => {
                RequestResult::DUPLICATION
            }
            MultiKind::Remove if operations.any(is(OperationStatus::ConditionFailed)) => {
                RequestResult::NOT_FOUND
            }
            MultiKind::Append if operations.any(is(OperationStatus::TooLarge)) => {
                return Err(grown_too_large());
            }
            MultiKind::CompareExchange
                if outcome.unmet_compare.is_some() || outcome.decision != Decision::Applied =>
            {
                RequestResult::INFEASIBLE
            }
            MultiKind::Set
            | MultiKind::Remove
            | MultiKind::Append
            | MultiKind::CompareExchange
            | MultiKind::Clear => RequestResult::SUCCESS,
        })
    }
}

impl Slices {
    /// Hands the next slice to the committer.
    fn submit(&mut self, actions: &mut impl DatabaseAccess) -> Pushed {
        let mut commit = actions.write(self.database, Mode::Independent);
        let (mut operations, mut bytes) = (0, 0);
        while let Some(pair) = self.records.peek() {
            operations += self.writing.operations();
            bytes += self.writing.bytes(pair);
            let is_first = operations == self.writing.operations();
            if !is_first && (operations > self.bounds.operations || bytes > self.bounds.bytes) {
                break;
            }
            self.writing.push(pair, &mut commit)?;
            self.records.pass();
        }
        commit.submit();
        Ok(())
    }
}

/// Returns the records as they come.
fn pairs<'a>(
    method: Method,
    given: impl Iterator<Item = Result<BytesPair<'a>, protobuf::DecodeError>>,
) -> Result<Vec<RecordPair<'a>>, Status> {
    let pair = |given: Result<BytesPair<'a>, _>| given.map(|pair| (pair.first, pair.second));
    let pairs: Result<Vec<_>, _> = given.map(pair).collect();
    pairs.map_err(|error| not_a_request(method, error))
}

/// The same of keys, which have empty values.
fn keys<'a>(
    method: Method,
    given: impl Iterator<Item = Result<&'a [u8], protobuf::DecodeError>>,
) -> Result<Vec<RecordPair<'a>>, Status> {
    let pairs: Result<Vec<_>, _> = given.map(|key| key.map(|key| (key, &[][..]))).collect();
    pairs.map_err(|error| not_a_request(method, error))
}

impl<D: AsRef<[u8]>> Writing<D> {
    /// Returns how many operations a record takes.
    fn operations(&self) -> usize {
        match self.kind {
            MultiKind::Append => append_operations(self.delimiter.as_ref()),
            MultiKind::Set | MultiKind::Remove | MultiKind::CompareExchange | MultiKind::Clear => 1,
        }
    }

    /// Returns how many bytes a record takes in a commit.
    fn bytes(&self, (key, value): RecordPair<'_>) -> usize {
        (key.len() + value.len()) * self.operations() + self.delimiter.as_ref().len()
    }

    fn push(&self, (key, value): RecordPair<'_>, commit: &mut store::Commit<'_>) -> Pushed {
        match self.kind {
            MultiKind::Append => push_append((key, value), self.delimiter.as_ref(), commit),
            MultiKind::Remove => commit.push(&delete(key, Condition::Present)),
            MultiKind::Set | MultiKind::CompareExchange | MultiKind::Clear => {
                let condition = match self.overwrite {
                    true => Condition::None,
                    false => Condition::Absent,
                };
                commit.push(&put(key, value, condition))
            }
        }
    }
}

impl GivenRecords<'_> {
    /// Returns whether all of them fit into a slice.
    fn fit(&self, bounds: SliceBounds) -> bool {
        let operations = self.pairs.len().saturating_mul(self.writing.operations());
        let bytes = self.pairs.iter().map(|&pair| self.writing.bytes(pair));
        operations <= bounds.operations && bytes.sum::<usize>() <= bounds.bytes
    }
}

type Pushed = Result<(), PushError>;

fn begin_records(
    (method, bytes): (Method, &[u8]),
    dbm_index: i32,
    mut records: GivenRecords<'_>,
    shared: &Shared,
    actions: &mut impl TkrzwActions,
) -> Result<Option<TkrzwStep>, Status> {
    let id = target(dbm_index, Right::Write, shared, actions)?.id;
    if let Some(result) = settled(shared, records.pairs.is_empty()) {
        actions.respond(|out| result.encode(out));
        return Ok(None);
    }
    let limits = shared.store.limits(id).unwrap_or_default();
    // Looked at before anything is done: afterwards it would be done in part.
    check(method, &records, id, &limits, actions)?;
    let bounds = SliceBounds {
        operations: limits.commit_operations.min(TKRZW_SLICE_OPERATIONS),
        bytes: limits.commit_bytes.min(TKRZW_SLICE_BYTES),
    };
    let kind = records.writing.kind;
    if !records.fit(bounds) && records.pairs.len() > 1 {
        actions.hold_request(bytes.len() + records.pairs.len() * RECORD_OVERHEAD_BYTES);
        actions.step_later();
        let slices = Slices {
            method,
            database: id,
            records: SortedRecords::new(bytes, &records.pairs),
            writing: Writing {
                kind,
                overwrite: records.writing.overwrite,
                delimiter: records.writing.delimiter.into(),
            },
            is_sorted: false,
            bounds,
            place: None,
        };
        return Ok(Some(MultiWrite::step(kind, Some(Box::new(slices)))));
    }
    // Stable, so that the first of several stays the first.
    records.pairs.sort_by_key(|&(key, _)| key);
    records.pairs.dedup_by_key(|&mut (key, _)| key);
    let mut commit = actions.write(id, Mode::Independent);
    for &pair in &records.pairs {
        let pushed = records.writing.push(pair, &mut commit);
        pushed.map_err(|error| keyvalue::push_error(method, error))?;
    }
    commit.submit();
    Ok(Some(MultiWrite::step(kind, None)))
}

/// Refuses what no commit can take, with the words that a commit has for it.
fn check(
    method: Method,
    records: &GivenRecords<'_>,
    id: DatabaseId,
    limits: &DatabaseLimits,
    actions: &mut impl DatabaseAccess,
) -> Result<(), Status> {
    let added = records.writing.delimiter.len();
    let is_large = |&&(key, value): &&RecordPair<'_>| {
        key.len() > limits.key_bytes
            || value.len() + added > limits.value_bytes
            || records.writing.bytes((key, value)) > limits.commit_bytes
    };
    let Some(&pair) = records.pairs.iter().find(is_large) else {
        return Ok(());
    };
    let mut commit = actions.write(id, Mode::Independent);
    let pushed = records.writing.push(pair, &mut commit);
    pushed.map_err(|error| keyvalue::push_error(method, error))
}

/// Returns what comes of a write of several records without a commit.
fn settled(shared: &Shared, is_empty: bool) -> Option<RequestResult> {
    match shared.settings.tkrzw.is_read_only {
        true => Some(RequestResult::READ_ONLY),
        false => is_empty.then_some(RequestResult::SUCCESS),
    }
}

fn begin_clear(
    method: Method,
    request: &ClearRequest,
    shared: &Shared,
    actions: &mut impl TkrzwActions,
) -> Result<Option<TkrzwStep>, Status> {
    let id = target(request.dbm_index, Right::Write, shared, actions)?.id;
    if let Some(result) = settled(shared, false) {
        actions.respond(|out| result.encode(out));
        return Ok(None);
    }
    let mut commit = actions.write(id, Mode::Independent);
    let pushed = commit.push(&Operation::Clear);
    pushed.map_err(|error| keyvalue::push_error(method, error))?;
    commit.submit();
    Ok(Some(MultiWrite::step(MultiKind::Clear, None)))
}

fn begin_exchange(
    method: Method,
    bytes: &[u8],
    shared: &Shared,
    actions: &mut impl TkrzwActions,
) -> Result<Option<TkrzwStep>, Status> {
    let request: CompareExchangeMultiRequest<'_> = decode(method, bytes)?;
    let id = target(request.dbm_index, Right::Write, shared, actions)?.id;
    let is_empty = request.expected.is_empty() && request.desired.is_empty();
    if let Some(result) = settled(shared, is_empty) {
        actions.respond(|out| result.encode(out));
        return Ok(None);
    }
    let knows_any_value = Package::of(method) == Package::Present;
    let mut commit = actions.write(id, Mode::Transact);
    for state in request.expected.iter() {
        let RecordState {
            existence,
            key,
            value,
            any_value,
        } = state.map_err(|error| not_a_request(method, error))?;
        let condition = expected(existence, any_value && knows_any_value, value);
        let pushed = commit.push(&Operation::Compare { key, condition });
        pushed.map_err(|error| keyvalue::push_error(method, error))?;
    }
    commit.list(TransactList::Then);
    for state in request.desired.iter() {
        let state = state.map_err(|error| not_a_request(method, error))?;
        let pushed = match state.existence {
            true => commit.push(&put(state.key, state.value, Condition::None)),
            false => commit.push(&delete(state.key, Condition::None)),
        };
        pushed.map_err(|error| keyvalue::push_error(method, error))?;
    }
    commit.submit();
    Ok(Some(MultiWrite::step(MultiKind::CompareExchange, None)))
}
