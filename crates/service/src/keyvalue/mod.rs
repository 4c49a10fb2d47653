//! `pelton.v1.KeyValue`: what its methods mean, in terms of store operations.
//!
//! Single operations live in this file, as they are the hot ones; [`batch`], [`transact`],
//! [`pipe`], [`range`] and [`watch`] have the longer ones. `proto/pelton/v1/kv.proto` is the
//! promise that this module keeps.

mod answer;
mod batch;
pub mod messages;
mod pipe;
mod range;
pub(crate) mod refuse;
#[cfg(test)]
pub(crate) mod tests;
mod transact;
mod watch;

use api::keyvalue::{GetResponse, OperationKind};
use store::tree::{NotFetched, ReadPlan};
use store::{
    CommitOutcome, DatabaseId, Decision, LogReadError, LogReading, Mode, NextCommits, ReadView,
    Value,
};

use crate::actions::{
    CallClock, DatabaseAccess, Permissions, RequestFlow, ResponseMemory, Responses, SendRoom,
    Wakeups,
};
use crate::call::{CallHead, CallSteps, PlanReads, Shared};
use crate::method::Method;
use crate::rights::Right;
use crate::status::{self, Status};
use batch::{BatchCall, ReadBatch};
use messages::{Request, decode_get};
use pipe::OpenPipe;
use range::{RangeCount, Scan};
pub(crate) use refuse::{
    awaits_replicas, check_key, find_database_of_blobs, find_database_of_drop_in, invalid,
    not_fetched, push_error, refusal,
};
pub use refuse::{database_gone, no_reader, not_read, not_read_elsewhere, reads_wait};
use transact::Transact;
use watch::Watch;

/// A call of `pelton.v1.KeyValue`.
pub struct KeyValueCall(KeyValueState);

/// How far a call has come.
enum KeyValueState {
    /// The request has not arrived yet.
    Expecting(Method),
    /// A Get waits for the tick's view; its key is kept by the layer above.
    Get { hash: u64 },
    /// A single write is with the committer.
    Write(PushedOperation),
    /// A batch of reads waits for the tick's view.
    ReadBatch(Box<ReadBatch>),
    /// A batch with a write is with the committer.
    WriteBatch(Box<BatchCall>),
    /// A transaction is with the committer.
    Transact(Box<Transact>),
    /// Batches come and go.
    Pipe(Box<OpenPipe>),
    /// A scan waits for a view, or for room to send.
    Scan(Box<Scan>),
    /// A count waits for a view.
    Count(Box<RangeCount>),
    /// A caller is told of changes.
    Watch(Box<Watch>),
}

/// What must be known of an operation that is with the committer, to put its outcome into words.
#[derive(Clone, Copy, Debug)]
struct PushedOperation {
    kind: OperationKind,
    /// Of the value in the request.
    value_bytes: u32,
    /// Whether its result carries a value.
    wants_value: bool,
}

impl PushedOperation {
    fn new(kind: OperationKind, operation: &store::Operation<'_>) -> PushedOperation {
        let (value_bytes, wants_value) = match operation {
            store::Operation::Append { value, .. } => (value.len(), false),
            store::Operation::Get { .. } => (0, true),
            store::Operation::Put { want_previous, .. }
            | store::Operation::Delete { want_previous, .. } => (0, *want_previous),
            _ => (0, false),
        };
        PushedOperation {
            kind,
            wants_value,
            value_bytes: u32::try_from(value_bytes).unwrap_or(u32::MAX),
        }
    }
}

impl KeyValueCall {
    /// Begins a call of `method`.
    pub fn started(
        method: Method,
        _head: &CallHead<'_>,
        _shared: &Shared,
        _actions: &mut impl Sized,
    ) -> KeyValueCall {
        KeyValueCall(match method {
            Method::Pipe => KeyValueState::Pipe(Box::default()),
            method => KeyValueState::Expecting(method),
        })
    }
}

impl PlanReads for KeyValueCall {
    fn plan_reads(&self, kept: &[u8], plan: &mut ReadPlan) {
        match &self.0 {
            KeyValueState::Get { .. } => plan.key(kept),
            KeyValueState::ReadBatch(batch) => batch.plan_reads(plan),
            KeyValueState::Scan(scan) => scan.plan_reads(plan),
            KeyValueState::Count(count) => count.plan_reads(plan),
            _ => debug_assert!(false, "nothing was to be read"),
        }
    }

    fn reads_in_order(&self) -> bool {
        match &self.0 {
            KeyValueState::Scan(_) => true,
            KeyValueState::Count(count) => count.reads_in_order(),
            _ => false,
        }
    }
}

impl<A> CallSteps<A> for KeyValueCall
where
    A: DatabaseAccess
        + Permissions
        + Responses
        + SendRoom
        + ResponseMemory
        + RequestFlow
        + Wakeups
        + CallClock,
{
    #[inline]
    fn message(&mut self, bytes: &[u8], last: bool, shared: &Shared, actions: &mut A) {
        let method = match &mut self.0 {
            KeyValueState::Expecting(method) => *method,
            KeyValueState::Pipe(pipe) => return pipe.message(bytes, last, shared, actions),
            _ => return actions.finish(status::second_request("this method")),
        };
        match KeyValueState::begin(method, bytes, shared, actions) {
            Ok(step) => self.0 = step,
            Err(status) => return actions.finish(status),
        }
        if let KeyValueState::Watch(watch) = &mut self.0 {
            watch.go_on(shared, actions);
        }
    }

    fn half_closed(&mut self, _shared: &Shared, actions: &mut A) {
        match &mut self.0 {
            KeyValueState::Expecting(method) => actions.finish(status::no_request(method.path())),
            KeyValueState::Pipe(pipe) => pipe.half_closed(actions),
            _ => {}
        }
    }

    #[inline]
    fn read(&mut self, view: &ReadView<'_>, kept: &[u8], shared: &Shared, actions: &mut A) {
        let read = match &mut self.0 {
            KeyValueState::Get { hash } => answer_get(view, kept, *hash, actions),
            KeyValueState::ReadBatch(batch) => batch.read(view, shared, actions),
            KeyValueState::Scan(scan) => scan.read(view, actions),
            KeyValueState::Count(count) => count.read(view, actions),
            _ => return debug_assert!(false, "nothing was to be read"),
        };
        if let Err(NotFetched) = read {
            debug_assert!(false, "a call plans all that it looks at");
            actions.finish(refuse::not_fetched());
        }
    }

    #[inline]
    fn committed(&mut self, outcome: &CommitOutcome<'_>, shared: &Shared, actions: &mut A) {
        match &mut self.0 {
            KeyValueState::Write(pushed) => answer_write(*pushed, outcome, shared, actions),
            KeyValueState::WriteBatch(batch) => batch.committed(outcome, shared, actions),
            KeyValueState::Transact(transact) => transact.committed(outcome, shared, actions),
            KeyValueState::Pipe(pipe) => pipe.committed(outcome, shared, actions),
            _ => debug_assert!(false, "nothing was submitted"),
        }
    }

    fn writable(&mut self, shared: &Shared, actions: &mut A) {
        match &mut self.0 {
            KeyValueState::Scan(scan) => scan.go_on(actions),
            KeyValueState::ReadBatch(batch) => batch.ask(actions),
            KeyValueState::Pipe(pipe) => pipe.writable(actions),
            KeyValueState::Watch(watch) => watch.go_on(shared, actions),
            _ => {}
        }
    }

    fn log_read(
        &mut self,
        reading: LogReading,
        read: Result<NextCommits, LogReadError>,
        shared: &Shared,
        actions: &mut A,
    ) {
        match &mut self.0 {
            KeyValueState::Watch(watch) => watch.log_read(reading, read, shared, actions),
            _ => debug_assert!(false, "nothing was to be read from the log"),
        }
    }

    fn woken(&mut self, shared: &Shared, actions: &mut A) {
        match &mut self.0 {
            KeyValueState::Pipe(pipe) => pipe.woken(actions),
            KeyValueState::Watch(watch) => watch.go_on(shared, actions),
            _ => {}
        }
    }
}

impl KeyValueState {
    /// Takes up the request: what is wrong with it is said now, before anything is done.
    #[inline]
    fn begin(
        method: Method,
        bytes: &[u8],
        shared: &Shared,
        actions: &mut (impl DatabaseAccess + Permissions + ResponseMemory + Wakeups),
    ) -> Result<KeyValueState, Status> {
        match method {
            Method::Get => begin_get(bytes, shared, actions),
            Method::Put => begin_write(method, OperationKind::Put, bytes, shared, actions),
            Method::Delete => begin_write(method, OperationKind::Delete, bytes, shared, actions),
            Method::Append => begin_write(method, OperationKind::Append, bytes, shared, actions),
            Method::Increment => {
                begin_write(method, OperationKind::Increment, bytes, shared, actions)
            }
            Method::Batch => batch::begin(bytes, shared, actions),
            Method::Transact => {
                let transact = Transact::begin(bytes, shared, actions)?;
                Ok(transact.map_or(KeyValueState::Expecting(method), |begun| {
                    KeyValueState::Transact(Box::new(begun))
                }))
            }
            Method::Scan => Ok(KeyValueState::Scan(Scan::begin(bytes, shared, actions)?)),
            Method::Count => Ok(KeyValueState::Count(RangeCount::begin(
                bytes, shared, actions,
            )?)),
            Method::Watch => Ok(KeyValueState::Watch(Watch::begin(bytes, shared, actions)?)),
            _ => Err(Status::unimplemented(method.path())),
        }
    }
}

#[inline]
fn begin_get(
    bytes: &[u8],
    shared: &Shared,
    actions: &mut (impl DatabaseAccess + Permissions),
) -> Result<KeyValueState, Status> {
    let (database, key) =
        decode_get(bytes).map_err(|invalid| refuse::invalid(Method::Get, invalid))?;
    let database = refuse::find_database(Right::Read, database, shared, actions)?;
    refuse::check_key(key)?;
    let hash = shared.store.hasher().hash(key);
    actions.read(database, key, hash);
    Ok(KeyValueState::Get { hash })
}

#[inline]
fn answer_get(
    view: &ReadView<'_>,
    key: &[u8],
    hash: u64,
    actions: &mut (impl DatabaseAccess + Responses + ResponseMemory + CallClock),
) -> Result<(), NotFetched> {
    let Some(entry) = view.get(key, hash, actions.now_ms())? else {
        actions.respond(|out| GetResponse::default().encode(out));
        return Ok(());
    };
    let value = entry.value.bytes();
    if value.len() > actions.message_bytes() {
        actions.read_when_large();
        return Ok(());
    }
    let response = GetResponse {
        found: true,
        value,
        version: entry.version,
        expires_at_ms: entry.expires_ms,
    };
    match entry.value {
        Value::Inline(_) => actions.respond(|out| response.encode(out)),
        Value::Shared(body) => {
            let bytes = value.len();
            actions.respond_shared(|out| answer::encode_get_head(&response, bytes, out), body)
        }
    }
    Ok(())
}

#[inline]
fn begin_write(
    method: Method,
    kind: OperationKind,
    bytes: &[u8],
    shared: &Shared,
    actions: &mut (impl DatabaseAccess + Permissions + ResponseMemory),
) -> Result<KeyValueState, Status> {
    let request =
        Request::decode(kind, bytes).map_err(|invalid| refuse::invalid(method, invalid))?;
    let database = refuse::find_database(Right::Write, request.database, shared, actions)?;
    let pushed = PushedOperation::new(kind, &request.operation);
    if pushed.wants_value && !actions.room_for_answer(value_bytes_at_most(database, shared)) {
        return Ok(KeyValueState::Expecting(method));
    }
    // A lone operation that fails has an outcome to answer with: nothing needs to be undone for it.
    let mut commit = actions.write(database, Mode::Independent);
    commit
        .push(&request.operation)
        .map_err(|error| refuse::push_error(method, error))?;
    commit.submit();
    Ok(KeyValueState::Write(pushed))
}

/// Returns how large a value of a database may be, in bytes.
fn value_bytes_at_most(database: DatabaseId, shared: &Shared) -> usize {
    (shared.store.limits(database).unwrap_or_default()).value_bytes
}

#[inline]
fn answer_write(
    pushed: PushedOperation,
    outcome: &CommitOutcome<'_>,
    shared: &Shared,
    actions: &mut impl Responses,
) {
    let operation = match outcome.decision {
        Decision::Refused(refusal) => return actions.finish(refuse::refusal(refusal)),
        _ => outcome
            .first()
            .expect("a commit of one operation that was not refused has one outcome"),
    };
    match answer::failure(pushed, &operation, outcome.database, shared) {
        Some(status) => actions.finish(status),
        None => actions.respond(|out| {
            let response = answer::result(pushed.kind, &operation, outcome.sequence);
            answer::encode_alone(&response, out);
        }),
    }
}
