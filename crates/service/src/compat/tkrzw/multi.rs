//! Requests of several records, and Clear.
//!
//! Records are written in the order of keys, of several with one key the first. A request of more
//! than a commit may have becomes several commits: the original does not carry such requests out as
//! one step either. CompareExchangeMulti always is one commit.

use std::collections::HashSet;

use api::tkrzw::{
    AppendMultiRequest, BytesPair, ClearRequest, CompareExchangeMultiRequest, GetMultiRequest,
    GetMultiResponse, RecordState, RemoveMultiRequest, SetMultiRequest,
};
use protobuf::writer;
use store::tree::{NotFetched, ReadPlan};
use store::{
    CommitOutcome, Condition, DatabaseId, DatabaseLimits, Decision, Entry, IndexView, List, Mode,
    Operation, OperationStatus, PushError, ReadView, Value,
};

use super::decode::{decode, not_a_request};
use super::result::RequestResult;
use super::single::{append_operations, delete, expected, grown_too_large, push_append, put};
use super::target::target;
use super::{Package, TkrzwActions, TkrzwStep};
use crate::actions::{CallClock, DatabaseAccess, ResponseMemory, Responses, SendRoom};
use crate::call::Shared;
use crate::keyvalue;
use crate::limits::{ANSWER_BYTES_MAX, LARGE_ANSWER_BYTES};
use crate::message_parts::MessageParts;
use crate::method::Method;
use crate::rights::Right;
use crate::status::Status;

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
    /// Commits that have no outcome yet.
    commits: usize,
    /// What came of those before.
    result: RequestResult,
}

/// A key and its value.
type RecordPair<'a> = (&'a [u8], &'a [u8]);

/// Records to be written.
struct Records<'a> {
    pairs: Vec<RecordPair<'a>>,
    kind: MultiKind,
    /// Of Set.
    overwrite: bool,
    /// Of Append.
    delimiter: &'a [u8],
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
                let records = Records {
                    pairs: pairs(method, request.records.iter())?,
                    kind: MultiKind::Set,
                    overwrite: request.overwrite,
                    delimiter: &[],
                };
                begin_records(method, request.dbm_index, &records, shared, actions)
            }
            M::TkrzwAppendMulti | M::TkrzwBeforeAppendMulti => {
                let request: AppendMultiRequest<'_> = decode(method, bytes)?;
                let records = Records {
                    pairs: pairs(method, request.records.iter())?,
                    kind: MultiKind::Append,
                    overwrite: true,
                    delimiter: request.delim,
                };
                begin_records(method, request.dbm_index, &records, shared, actions)
            }
            M::TkrzwRemoveMulti | M::TkrzwBeforeRemoveMulti => {
                let request: RemoveMultiRequest<'_> = decode(method, bytes)?;
                let keys = sorted_keys(method, request.keys.iter())?;
                let records = Records {
                    pairs: keys.into_iter().map(|key| (key, &[][..])).collect(),
                    kind: MultiKind::Remove,
                    overwrite: true,
                    delimiter: &[],
                };
                begin_records(method, request.dbm_index, &records, shared, actions)
            }
            M::TkrzwClear | M::TkrzwBeforeClear => {
                let request: ClearRequest = decode(method, bytes)?;
                begin_clear(method, &request, shared, actions)
            }
            _ => begin_exchange(method, bytes, shared, actions),
        }
    }

    fn step(kind: MultiKind, commits: usize) -> TkrzwStep {
        TkrzwStep::MultiWrite(Box::new(MultiWrite {
            kind,
            commits,
            result: RequestResult::SUCCESS,
        }))
    }

    /// Responds when there is an outcome of the last commit.
    pub(super) fn committed(&mut self, outcome: &CommitOutcome<'_>, actions: &mut impl Responses) {
        if let Decision::Refused(refusal) = outcome.decision {
            return actions.finish(keyvalue::refusal(refusal));
        }
        match self.result_of(outcome) {
            Ok(result) if result.is_success() => {}
            Ok(result) => self.result = result,
            Err(status) => return actions.finish(status),
        }
        self.commits -= 1;
        if self.commits == 0 {
            let result = self.result;
            actions.respond(|out| result.encode(out));
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
            _ => RequestResult::SUCCESS,
        })
    }
}

/// Returns the records in the order of keys, of several with one key the first.
fn pairs<'a>(
    method: Method,
    given: impl Iterator<Item = Result<BytesPair<'a>, protobuf::DecodeError>>,
) -> Result<Vec<RecordPair<'a>>, Status> {
    let pair = |given: Result<BytesPair<'a>, _>| given.map(|pair| (pair.first, pair.second));
    let pairs: Result<Vec<_>, _> = given.map(pair).collect();
    let mut pairs = pairs.map_err(|error| not_a_request(method, error))?;
    // Stable, so that the first of several stays the first.
    pairs.sort_by_key(|&(key, _)| key);
    pairs.dedup_by_key(|&mut (key, _)| key);
    Ok(pairs)
}

/// Returns keys in order, each once.
fn sorted_keys<'a>(
    method: Method,
    given: impl Iterator<Item = Result<&'a [u8], protobuf::DecodeError>>,
) -> Result<Vec<&'a [u8]>, Status> {
    let keys: Result<Vec<_>, _> = given.collect();
    let mut keys = keys.map_err(|error| not_a_request(method, error))?;
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}

impl Records<'_> {
    /// Returns how many operations a record takes.
    fn operations(&self) -> usize {
        match self.kind {
            MultiKind::Append => append_operations(self.delimiter),
            _ => 1,
        }
    }

    /// Returns how many bytes a record takes in a commit.
    fn bytes(&self, (key, value): RecordPair<'_>) -> usize {
        (key.len() + value.len()) * self.operations() + self.delimiter.len()
    }

    /// Returns how many of some records fit into a commit: at least one.
    fn fitting(&self, rest: &[RecordPair<'_>], limits: &DatabaseLimits) -> usize {
        let mut bytes = 0;
        let fits = |&pair: &RecordPair<'_>| {
            bytes += self.bytes(pair);
            bytes <= limits.commit_bytes
        };
        let most = limits.commit_operations / self.operations();
        let fitting = rest.iter().take(most).copied().take_while(fits).count();
        fitting.max(1)
    }

    fn push(&self, (key, value): RecordPair<'_>, commit: &mut store::Commit<'_>) -> Pushed {
        match self.kind {
            MultiKind::Append => push_append((key, value), self.delimiter, commit),
            MultiKind::Remove => commit.push(&delete(key, Condition::Present)),
            _ if self.overwrite => commit.push(&put(key, value, Condition::None)),
            _ => commit.push(&put(key, value, Condition::Absent)),
        }
    }
}

type Pushed = Result<(), PushError>;

fn begin_records(
    method: Method,
    dbm_index: i32,
    records: &Records<'_>,
    shared: &Shared,
    actions: &mut impl TkrzwActions,
) -> Result<Option<TkrzwStep>, Status> {
    let id = target(dbm_index, Right::Write, shared, actions)?.id;
    if let Some(result) = settled(shared, records.pairs.is_empty()) {
        actions.respond(|out| result.encode(out));
        return Ok(None);
    }
    let limits = shared.store.limits(id).unwrap_or_default();
    let mut rest = &records.pairs[..];
    // Looked at before anything is done: afterwards it would be done in part.
    check(method, records, id, &limits, actions)?;
    let mut commits = 0;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(records.fitting(rest, &limits));
        let mut commit = actions.write(id, Mode::Independent);
        for &pair in now {
            let pushed = records.push(pair, &mut commit);
            pushed.map_err(|error| keyvalue::push_error(method, error))?;
        }
        commit.submit();
        (rest, commits) = (later, commits + 1);
    }
    Ok(Some(MultiWrite::step(records.kind, commits)))
}

/// Refuses what no commit can take, with the words that a commit has for it.
fn check(
    method: Method,
    records: &Records<'_>,
    id: DatabaseId,
    limits: &DatabaseLimits,
    actions: &mut impl DatabaseAccess,
) -> Result<(), Status> {
    let added = records.delimiter.len();
    let is_large = |&&(key, value): &&RecordPair<'_>| {
        key.len() > limits.key_bytes
            || value.len() + added > limits.value_bytes
            || records.bytes((key, value)) > limits.commit_bytes
    };
    let Some(&pair) = records.pairs.iter().find(is_large) else {
        return Ok(());
    };
    let mut commit = actions.write(id, Mode::Independent);
    let pushed = records.push(pair, &mut commit);
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
    Ok(Some(MultiWrite::step(MultiKind::Clear, 1)))
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
    commit.list(List::Then);
    for state in request.desired.iter() {
        let state = state.map_err(|error| not_a_request(method, error))?;
        let pushed = match state.existence {
            true => commit.push(&put(state.key, state.value, Condition::None)),
            false => commit.push(&delete(state.key, Condition::None)),
        };
        pushed.map_err(|error| keyvalue::push_error(method, error))?;
    }
    commit.submit();
    Ok(Some(MultiWrite::step(MultiKind::CompareExchange, 1)))
}

/// A GetMulti that waits for a view.
pub(super) struct GetMulti {
    method: Method,
    /// Decoded again when it is served: cheaper than a list of keys.
    request: Box<[u8]>,
    database: DatabaseId,
    /// What the values may take that are fetched for it, of a database on disk.
    expected_bytes: usize,
}

impl GetMulti {
    /// Takes up a request.
    pub(super) fn begin(
        method: Method,
        bytes: &[u8],
        shared: &Shared,
        actions: &mut impl TkrzwActions,
    ) -> Result<Option<TkrzwStep>, Status> {
        let request: GetMultiRequest<'_> = decode(method, bytes)?;
        let database = target(request.dbm_index, Right::Read, shared, actions)?.id;
        let keys = sorted_keys(method, request.keys.iter())?;
        keys.iter().try_for_each(|key| keyvalue::check_key(key))?;
        let is_on_disk = matches!(shared.store.index_view(database), IndexView::Disk(_));
        let limits = shared.store.limits(database).unwrap_or_default();
        let expected_bytes = match is_on_disk {
            true => (keys.len().saturating_mul(limits.value_bytes)).min(answer_bytes(shared)),
            false => 0,
        };
        if !actions.room_for_answer(bytes.len() + expected_bytes) {
            return Ok(None);
        }
        let call = GetMulti {
            method,
            request: bytes.into(),
            database,
            expected_bytes,
        };
        call.ask(actions);
        Ok(Some(TkrzwStep::GetMulti(Box::new(call))))
    }

    /// Asks for its view.
    pub(super) fn ask(&self, actions: &mut (impl DatabaseAccess + ResponseMemory)) {
        actions.reserve(self.request.len() + self.expected_bytes);
        actions.read_long(self.database);
    }

    pub(super) fn plan_reads(&self, plan: &mut ReadPlan) {
        let keys = self.keys().unwrap_or_default();
        plan.keys(usize::MAX, keys.into_iter());
    }

    fn keys(&self) -> Result<Vec<&[u8]>, Status> {
        let request: GetMultiRequest<'_> = decode(self.method, &self.request)?;
        sorted_keys(self.method, request.keys.iter())
    }

    /// Responds from one view.
    pub(super) fn read(
        &mut self,
        shown: &ReadView<'_>,
        shared: &Shared,
        actions: &mut (impl Responses + SendRoom + ResponseMemory + CallClock),
    ) -> Result<(), NotFetched> {
        let mut is_claimed = self.expected_bytes > 0;
        if !is_claimed && !actions.can_send() {
            // `writable` follows.
            return Ok(());
        }
        let keys = match self.keys() {
            Ok(keys) => keys,
            Err(status) => {
                actions.finish(status);
                return Ok(());
            }
        };
        let (now_ms, hasher) = (actions.now_ms(), shared.store.hasher());
        let (mut answer, mut result) = (MessageParts::default(), RequestResult::SUCCESS);
        // What it shares with the database, each value once.
        let (mut shared_values, mut shared_bytes) = (HashSet::new(), 0);
        for &key in &keys {
            let Some(entry) = shown.get(key, hasher.hash(key), now_ms)? else {
                result = RequestResult::NOT_FOUND;
                continue;
            };
            if let Value::Shared(value) = entry.value
                && shared_values.insert(value.as_ptr())
            {
                shared_bytes += value.len();
            }
            let most = answer_bytes(shared);
            // Looked at before the value is copied.
            if answer.len() + entry.value.len() > ANSWER_BYTES_MAX as usize
                || answer.own.len() + shared_bytes > most
            {
                actions.finish(answer_too_large(most));
                return Ok(());
            }
            append_record(&mut answer, key, &entry);
            if !is_claimed && answer.own.len() > LARGE_ANSWER_BYTES {
                is_claimed = actions.can_send_large(self.most_copied_bytes(keys.len(), most));
                if !is_claimed {
                    // Made anew when there is memory for it.
                    return Ok(());
                }
            }
        }
        result.encode(&mut answer.own);
        actions.respond_parts(answer);
        Ok(())
    }

    /// What its response may copy: larger values are shared.
    fn most_copied_bytes(&self, keys: usize, most: usize) -> usize {
        let values = keys.saturating_mul(store::limits::SHARED_VALUE_BYTES + PAIR_BYTES);
        values.saturating_add(self.request.len()).min(most)
    }
}

/// At most this many bytes are what a record takes in a response beside its key and its value.
const PAIR_BYTES: usize = 18;

/// What a response may have at most, in bytes.
pub(super) fn answer_bytes(shared: &Shared) -> usize {
    usize::try_from(shared.answer_bytes_max).unwrap_or(usize::MAX)
}

/// The status of a request whose response would be too large.
#[cold]
pub(super) fn answer_too_large(most: usize) -> Status {
    Status::resource_exhausted(format!(
        "the response would have more than {most} bytes; nothing was done. Ask for less at once, \
         or give the server more memory (--memory-limit)"
    ))
}

/// Appends a record. A large value is shared: to copy it would be a long step.
fn append_record(answer: &mut MessageParts, key: &[u8], entry: &Entry<'_>) {
    let (records, value) = (GetMultiResponse::NUMBERS.records, entry.value);
    let pair = |value| BytesPair {
        first: key,
        second: value,
    };
    match value {
        Value::Shared(value) if !value.is_empty() => {
            let head = pair(&[]);
            let number = BytesPair::NUMBERS.second;
            let bytes = head.encoded_len() + writer::bytes_len(number, value.len());
            writer::bytes_head(&mut answer.own, records, bytes);
            head.encode(&mut answer.own);
            writer::bytes_head(&mut answer.own, number, value.len());
            answer.share(value);
        }
        value => {
            let bytes = value.bytes();
            writer::message(&mut answer.own, records, |out| pair(bytes).encode(out));
        }
    }
}
