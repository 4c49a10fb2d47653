//! Operations that are one commit each, as calls of their own and in a stream.

use api::tkrzw::{
    AppendRequest, CompareExchangeRequest, CompareExchangeResponse, GetRequest, GetResponse,
    IncrementRequest, IncrementResponse, RemoveRequest, SetRequest,
};
use api::tkrzw_before;
use protobuf::writer;
use store::tree::NotFetched;
use store::{
    Commit, CommitOutcome, Condition, Decision, Expiry, Mode, Operation, OperationOutcome,
    OperationStatus, PushError, ReadView, Value,
};

use super::decode::decode;
use super::result::{RequestResult, ResultCode};
use super::target::target;
use super::{Package, TkrzwActions, TkrzwStep};
use crate::actions::{CallClock, DatabaseAccess, ResponseMemory, Responses};
use crate::call::Shared;
use crate::keyvalue;
use crate::method::Method;
use crate::rights::Right;
use crate::status::Status;

/// The increment that only reads.
const NO_INCREMENT: i64 = i64::MIN;

/// A request that becomes one commit.
#[derive(Clone, Copy, Debug)]
pub(super) enum SingleRequest<'a> {
    Get(GetRequest<'a>),
    Set(SetRequest<'a>),
    Remove(RemoveRequest<'a>),
    Append(AppendRequest<'a>),
    CompareExchange(CompareExchangeRequest<'a>, Package),
    Increment(IncrementRequest<'a>),
}

/// What must be known of a request that is with the committer, to respond to it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pending {
    Get,
    Set,
    Remove,
    Append,
    CompareExchange { package: Package },
    Increment,
    ReadNumber { initial: i64 },
}

/// What the response to a request says.
#[derive(Clone, Copy, Debug)]
pub(super) struct SingleAnswer<'a> {
    pub(super) result: RequestResult,
    value: Option<Value<'a>>,
    number: i64,
    found: bool,
}

/// Takes up a call with such a request but a Get.
#[inline]
pub(super) fn begin(
    method: Method,
    bytes: &[u8],
    shared: &Shared,
    actions: &mut impl TkrzwActions,
) -> Result<Option<TkrzwStep>, Status> {
    use Method as M;
    let request = match method {
        M::TkrzwSet | M::TkrzwBeforeSet => SingleRequest::Set(decode(method, bytes)?),
        M::TkrzwRemove | M::TkrzwBeforeRemove => SingleRequest::Remove(decode(method, bytes)?),
        M::TkrzwAppend | M::TkrzwBeforeAppend => SingleRequest::Append(decode(method, bytes)?),
        M::TkrzwIncrement | M::TkrzwBeforeIncrement => {
            SingleRequest::Increment(decode(method, bytes)?)
        }
        M::TkrzwBeforeCompareExchange => {
            SingleRequest::CompareExchange(present_fields(&decode(method, bytes)?), Package::Before)
        }
        _ => return Err(Status::unimplemented(method.path())),
    };
    let target = target(request.dbm_index(), Right::Write, shared, actions)?;
    if shared.settings.tkrzw.is_read_only && request.may_write() {
        actions.respond(|out| RequestResult::READ_ONLY.encode(out));
        return Ok(None);
    }
    let mut commit = actions.write(target.id, Mode::Independent);
    let pushed = request.push(&mut commit);
    let pending = pushed.map_err(|error| keyvalue::push_error(method, error))?;
    commit.submit();
    Ok(Some(TkrzwStep::Write(pending)))
}

/// Returns a request of the older package with the fields of the present one.
pub(super) fn present_fields<'a>(
    before: &tkrzw_before::CompareExchangeRequest<'a>,
) -> CompareExchangeRequest<'a> {
    CompareExchangeRequest {
        dbm_index: before.dbm_index,
        key: before.key,
        expected_existence: before.expected_existence,
        expected_value: before.expected_value,
        desired_existence: before.desired_existence,
        desired_value: before.desired_value,
        ..CompareExchangeRequest::default()
    }
}

/// Returns what a record must be that is expected so.
pub(super) fn expected(exists: bool, any_value: bool, value: &[u8]) -> Condition<'_> {
    match (exists, any_value) {
        (false, _) => Condition::Absent,
        (true, true) => Condition::Present,
        (true, false) => Condition::ValueIs(value),
    }
}

/// Returns an operation that stores a record.
pub(super) fn put<'a>(key: &'a [u8], value: &'a [u8], condition: Condition<'a>) -> Operation<'a> {
    Operation::Put {
        key,
        value,
        condition,
        expiry: Expiry::None,
        want_previous: false,
    }
}

/// Returns an operation that removes a record.
pub(super) fn delete<'a>(key: &'a [u8], condition: Condition<'a>) -> Operation<'a> {
    Operation::Delete {
        key,
        condition,
        want_previous: false,
    }
}

/// Pushes what appends to a record.
///
/// Of the two operations exactly one can take effect, as whatever the first does, the second finds
/// it done: so the delimiter depends on the record as it is when this is decided.
pub(super) fn push_append(
    (key, value): (&[u8], &[u8]),
    delimiter: &[u8],
    commit: &mut Commit<'_>,
) -> Result<(), PushError> {
    if delimiter.is_empty() {
        let condition = Condition::None;
        return commit.push(&Operation::Append {
            key,
            value,
            condition,
        });
    }
    let added = [delimiter, value].concat();
    commit.push(&Operation::Append {
        key,
        value: &added,
        condition: Condition::Present,
    })?;
    commit.push(&put(key, value, Condition::Absent))
}

/// Returns how many operations [`push_append`] pushes.
pub(super) fn append_operations(delimiter: &[u8]) -> usize {
    if delimiter.is_empty() { 1 } else { 2 }
}

/// The status of an append that would make a value too large.
#[cold]
pub(super) fn grown_too_large() -> Status {
    Status::resource_exhausted(
        "field value: with what is appended the value would be larger than allowed (--max-value \
         of the server)",
    )
}

impl<'a> SingleRequest<'a> {
    pub(super) fn dbm_index(&self) -> i32 {
        match self {
            SingleRequest::Get(request) => request.dbm_index,
            SingleRequest::Set(request) => request.dbm_index,
            SingleRequest::Remove(request) => request.dbm_index,
            SingleRequest::Append(request) => request.dbm_index,
            SingleRequest::CompareExchange(request, _) => request.dbm_index,
            SingleRequest::Increment(request) => request.dbm_index,
        }
    }

    /// Returns whether it may change something.
    pub(super) fn may_write(&self) -> bool {
        match self {
            SingleRequest::Get(_) => false,
            SingleRequest::Increment(request) => request.increment != NO_INCREMENT,
            SingleRequest::CompareExchange(request, _) => !request.desire_no_update,
            SingleRequest::Set(_) | SingleRequest::Remove(_) | SingleRequest::Append(_) => true,
        }
    }

    /// Returns whether the response has a value of a record.
    pub(super) fn wants_value(&self) -> bool {
        match self {
            SingleRequest::Get(request) => !request.omit_value,
            SingleRequest::CompareExchange(request, _) => request.get_actual,
            SingleRequest::Set(_)
            | SingleRequest::Remove(_)
            | SingleRequest::Append(_)
            | SingleRequest::Increment(_) => false,
        }
    }

    /// Pushes its operations into a commit of its own.
    ///
    /// # Errors
    /// If one of them does not fit.
    #[inline]
    pub(super) fn push(&self, commit: &mut Commit<'_>) -> Result<Pending, PushError> {
        match *self {
            SingleRequest::Get(GetRequest {
                key, omit_value, ..
            }) => {
                // Without a value, nothing is copied.
                commit.push(&match omit_value {
                    true => Operation::Compare {
                        key,
                        condition: Condition::None,
                    },
                    false => Operation::Get { key },
                })?;
                Ok(Pending::Get)
            }
            SingleRequest::Set(SetRequest {
                key,
                value,
                overwrite,
                ..
            }) => {
                let condition = match overwrite {
                    true => Condition::None,
                    false => Condition::Absent,
                };
                commit.push(&put(key, value, condition))?;
                Ok(Pending::Set)
            }
            SingleRequest::Remove(RemoveRequest { key, .. }) => {
                commit.push(&delete(key, Condition::Present))?;
                Ok(Pending::Remove)
            }
            SingleRequest::Append(AppendRequest {
                key, value, delim, ..
            }) => {
                push_append((key, value), delim, commit)?;
                Ok(Pending::Append)
            }
            SingleRequest::CompareExchange(request, package) => {
                push_exchange(&request, commit)?;
                Ok(Pending::CompareExchange { package })
            }
            SingleRequest::Increment(request) => push_increment(&request, commit),
        }
    }
}

fn push_exchange(
    request: &CompareExchangeRequest<'_>,
    commit: &mut Commit<'_>,
) -> Result<(), PushError> {
    let (key, want_previous) = (request.key, request.get_actual);
    let condition = expected(
        request.expected_existence,
        request.expect_any_value,
        request.expected_value,
    );
    if request.desire_no_update {
        commit.push(&Operation::Compare { key, condition })?;
        return match want_previous {
            true => commit.push(&Operation::Get { key }),
            false => Ok(()),
        };
    }
    commit.push(&match request.desired_existence {
        true => Operation::Put {
            key,
            value: request.desired_value,
            condition,
            expiry: Expiry::None,
            want_previous,
        },
        false => Operation::Delete {
            key,
            condition,
            want_previous,
        },
    })
}

fn push_increment(
    request: &IncrementRequest<'_>,
    commit: &mut Commit<'_>,
) -> Result<Pending, PushError> {
    let &IncrementRequest {
        key,
        increment,
        initial,
        ..
    } = request;
    if increment == NO_INCREMENT {
        commit.push(&Operation::Get { key })?;
        return Ok(Pending::ReadNumber { initial });
    }
    commit.push(&Operation::WrappingIncrement {
        key,
        delta: increment,
        initial,
    })?;
    Ok(Pending::Increment)
}

impl Pending {
    /// Responds with what became of the commit.
    #[inline]
    pub(super) fn respond(
        self,
        method: Method,
        outcome: &CommitOutcome<'_>,
        actions: &mut impl Responses,
    ) {
        debug_assert!(!matches!(self, Pending::Get), "{}", method.path());
        match self.answer(outcome) {
            Ok(answer) => self.respond_with(&answer, actions),
            Err(status) => actions.finish(status),
        }
    }

    /// Responds, without copying a large value.
    pub(super) fn respond_with(self, answer: &SingleAnswer<'_>, actions: &mut impl Responses) {
        match answer.value {
            Some(Value::Shared(body)) => {
                let head = |out: &mut Vec<u8>| {
                    self.encode(&answer.without_value(), out);
                    writer::bytes_head(out, GetResponse::NUMBERS.value, body.len());
                };
                actions.respond_shared(head, body);
            }
            _ => actions.respond(|out| self.encode(answer, out)),
        }
    }

    /// Returns what the response says.
    ///
    /// # Errors
    /// The status of a commit that was refused.
    #[inline]
    pub(super) fn answer<'a>(
        self,
        outcome: &CommitOutcome<'a>,
    ) -> Result<SingleAnswer<'a>, Status> {
        if let Decision::Refused(refusal) = outcome.decision {
            return Err(keyvalue::refusal(refusal));
        }
        let first = outcome
            .first()
            .expect("a commit that was not refused has an outcome of each operation");
        let (mut result, mut value, mut number) = (RequestResult::SUCCESS, None, 0);
        let met = first.status == OperationStatus::Done;
        match self {
            Pending::Get if !first.existed() => result = RequestResult::NOT_FOUND,
            Pending::Get => value = first.value,
            Pending::Set if !met => result = RequestResult::DUPLICATION,
            Pending::Remove if !met => result = RequestResult::NOT_FOUND,
            Pending::Append if has_grown_too_large(outcome) => return Err(grown_too_large()),
            Pending::Set | Pending::Remove | Pending::Append => {}
            Pending::CompareExchange { .. } => {
                value = outcome.operations().last().and_then(|last| last.value);
                if !met {
                    result = RequestResult::INFEASIBLE;
                }
            }
            Pending::Increment => number = first.counter,
            Pending::ReadNumber { initial } => number = number_of(&first, initial),
        }
        Ok(SingleAnswer {
            result,
            value,
            number,
            found: first.existed(),
        })
    }

    /// Appends the response.
    #[inline]
    pub(super) fn encode(self, answer: &SingleAnswer<'_>, out: &mut Vec<u8>) {
        answer.result.encode(out);
        let value = answer.value.as_ref().map_or(&[][..], |value| value.bytes());
        match self {
            Pending::Set | Pending::Remove | Pending::Append => {}
            Pending::Get => writer::bytes(out, GetResponse::NUMBERS.value, value),
            Pending::CompareExchange {
                package: Package::Before,
            } => {}
            Pending::CompareExchange { .. } => {
                writer::bool(out, CompareExchangeResponse::NUMBERS.found, answer.found);
                writer::bytes(out, CompareExchangeResponse::NUMBERS.actual, value);
            }
            Pending::Increment | Pending::ReadNumber { .. } => {
                let response = IncrementResponse {
                    current: answer.number,
                    ..IncrementResponse::default()
                };
                response.encode(out);
            }
        }
    }

    /// Returns the number of the response in a stream of them.
    pub(super) fn stream_field(self) -> u32 {
        match self {
            Pending::Get => 2,
            Pending::Set => 3,
            Pending::Remove => 4,
            Pending::Append => 5,
            Pending::CompareExchange { .. } => 6,
            Pending::Increment | Pending::ReadNumber { .. } => 7,
        }
    }
}

impl<'a> SingleAnswer<'a> {
    /// Nothing may be written.
    pub(super) const READ_ONLY: SingleAnswer<'static> = SingleAnswer {
        result: RequestResult::READ_ONLY,
        value: None,
        number: 0,
        found: false,
    };

    /// Returns the value of a record in it.
    pub(super) fn value(&self) -> Option<Value<'a>> {
        self.value
    }

    /// Returns the same without a value.
    pub(super) fn without_value(&self) -> SingleAnswer<'a> {
        SingleAnswer {
            value: None,
            ..*self
        }
    }

    /// Returns whether the condition of a CompareExchange was not met.
    pub(super) fn is_infeasible(&self) -> bool {
        self.result.code == ResultCode::Infeasible
    }
}

fn has_grown_too_large(outcome: &CommitOutcome<'_>) -> bool {
    (outcome.operations()).any(|one| one.status == OperationStatus::TooLarge)
}

fn number_of(read: &OperationOutcome<'_>, initial: i64) -> i64 {
    (read.value).map_or(initial, |value| store::leading_number(value.bytes()))
}

/// A Get that waits for a view.
#[derive(Clone, Copy, Debug)]
pub(super) struct GetOne {
    hash: u64,
    omit_value: bool,
}

impl GetOne {
    /// Takes up a request.
    #[inline]
    pub(super) fn begin(
        method: Method,
        bytes: &[u8],
        shared: &Shared,
        actions: &mut impl TkrzwActions,
    ) -> Result<Option<TkrzwStep>, Status> {
        let request: GetRequest<'_> = decode(method, bytes)?;
        let target = target(request.dbm_index, Right::Read, shared, actions)?;
        keyvalue::check_key(request.key)?;
        let hash = shared.store.hasher().hash(request.key);
        actions.read(target.id, request.key, hash);
        Ok(Some(TkrzwStep::Get(GetOne {
            hash,
            omit_value: request.omit_value,
        })))
    }

    /// Responds.
    #[inline]
    pub(super) fn read(
        self,
        view: &ReadView<'_>,
        key: &[u8],
        actions: &mut (impl DatabaseAccess + Responses + ResponseMemory + CallClock),
    ) -> Result<(), NotFetched> {
        let entry = view.get(key, self.hash, actions.now_ms())?;
        let result = match entry {
            Some(_) => RequestResult::SUCCESS,
            None => RequestResult::NOT_FOUND,
        };
        view.touch(self.hash);
        let value = entry.map(|entry| entry.value).filter(|_| !self.omit_value);
        if value.is_some_and(|value| value.len() > actions.message_bytes()) {
            actions.read_when_large();
            return Ok(());
        }
        let answer = SingleAnswer {
            result,
            value,
            number: 0,
            found: entry.is_some(),
        };
        Pending::Get.respond_with(&answer, actions);
        Ok(())
    }
}
