//! `io.grpc.KeyValueService`, the key-value example of the gRPC project: keys that are created,
//! changed and deleted.
//!
//! A call is an operation of the store, on the database that the server was told. Failures of the
//! original have no text, as clients may compare them; those that only this server can have say
//! what is wrong.

use store::tree::ReadPlan;
use store::{
    CommitOutcome, Condition, DatabaseId, Decision, Expiry, Mode, Operation, OperationStatus,
    PushError, ReadView, Refusal, Value,
};

use crate::actions::{CallClock, DatabaseAccess, Permissions, ResponseMemory, Responses, Wakeups};
use crate::call::{CallHead, CallSteps, PlanReads, Shared};
use crate::keyvalue;
use crate::method::Method;
use crate::rights::{DropIn, Right};
use crate::settings::simulate::SimulatedTurn;
use crate::status::{self, Code, Status};
use api::kvstore::{
    CreateRequest, DeleteRequest, RetrieveRequest, RetrieveResponse, UpdateRequest,
};
use protobuf::{DecodeError, writer};

/// A call of the service.
pub struct KvstoreCall {
    method: Method,
    step: KvstoreStep,
}

/// How far a call has come.
enum KvstoreStep {
    /// The request has not arrived yet.
    Expecting,
    /// The request waits for its simulated work to be done.
    Delayed(Box<SimulatedTurn>),
    /// A Retrieve waits for the tick's view; its key is kept by the layer above.
    Reading { hash: u64 },
    /// A write is with the committer.
    Writing,
}

impl KvstoreCall {
    /// Begins a call of `method`.
    pub fn started(
        method: Method,
        _head: &CallHead<'_>,
        _shared: &Shared,
        _actions: &mut impl Sized,
    ) -> KvstoreCall {
        KvstoreCall {
            method,
            step: KvstoreStep::Expecting,
        }
    }

    fn is_read(&self) -> bool {
        self.method == Method::KvstoreRetrieve
    }

    /// Takes up the request: what is wrong with it is said now, whatever is simulated.
    fn take_up(
        &mut self,
        bytes: &[u8],
        shared: &Shared,
        actions: &mut (impl DatabaseAccess + Permissions + ResponseMemory + Wakeups + CallClock),
    ) -> Result<(), Status> {
        let Some(simulator) = &shared.settings.kvstore.simulator else {
            return self.begin(bytes, shared, actions);
        };
        let (key, _) = decode(bytes, self.method)?;
        keyvalue::check_key(key)?;
        let (caller, now_ns) = (actions.caller(), actions.now_ns());
        let turn = simulator.enter(bytes, self.is_read(), &shared.waiting, caller, now_ns)?;
        actions.hold_request(bytes.len());
        actions.wake_at_ns(turn.due_ns);
        self.step = KvstoreStep::Delayed(Box::new(turn));
        Ok(())
    }

    /// Begins the operation.
    fn begin(
        &mut self,
        bytes: &[u8],
        shared: &Shared,
        actions: &mut (impl DatabaseAccess + Permissions),
    ) -> Result<(), Status> {
        let (key, value) = decode(bytes, self.method)?;
        let database = self.database(shared, actions)?;
        if self.is_read() {
            keyvalue::check_key(key)?;
            let hash = shared.store.hasher().hash(key);
            actions.read(database, key, hash);
            self.step = KvstoreStep::Reading { hash };
            return Ok(());
        }
        let put = |condition| Operation::Put {
            key,
            value,
            condition,
            expiry: Expiry::None,
            want_previous: false,
        };
        let operation = match self.method {
            Method::KvstoreCreate => put(Condition::Absent),
            Method::KvstoreUpdate => put(Condition::Present),
            _ => Operation::Delete {
                key,
                condition: Condition::None,
                want_previous: false,
            },
        };
        let mut commit = actions.write(database, Mode::Independent);
        let pushed = commit.push(&operation);
        pushed.map_err(|error| not_pushed(self.method, error))?;
        commit.submit();
        self.step = KvstoreStep::Writing;
        Ok(())
    }

    /// Returns the database of the service. NOT_FOUND would report the key, so one that is missing
    /// has another status.
    fn database(&self, shared: &Shared, actions: &impl Permissions) -> Result<DatabaseId, Status> {
        let right = match self.is_read() {
            true => Right::Read,
            false => Right::Write,
        };
        let name = &*shared.settings.kvstore.database;
        let as_drop_in = (DropIn::Kvstore, right);
        let found = keyvalue::find_database_of_drop_in(as_drop_in, name, shared, actions);
        found.map_err(|status| match status.code() {
            Code::NotFound => no_database(name),
            _ => status,
        })
    }
}

impl PlanReads for KvstoreCall {
    fn plan_reads(&self, kept: &[u8], plan: &mut ReadPlan) {
        plan.key(kept);
    }
}

impl<A> CallSteps<A> for KvstoreCall
where
    A: DatabaseAccess + Permissions + Responses + ResponseMemory + Wakeups + CallClock,
{
    fn message(&mut self, bytes: &[u8], _last: bool, shared: &Shared, actions: &mut A) {
        let taken_up = match self.step {
            KvstoreStep::Expecting => self.take_up(bytes, shared, actions),
            _ => Err(status::second_request(self.method.path())),
        };
        if let Err(status) = taken_up {
            actions.finish(status);
        }
    }

    fn half_closed(&mut self, _shared: &Shared, actions: &mut A) {
        if let KvstoreStep::Expecting = self.step {
            actions.finish(status::no_request(self.method.path()));
        }
    }

    fn woken(&mut self, shared: &Shared, actions: &mut A) {
        let KvstoreStep::Delayed(turn) = &self.step else {
            return;
        };
        if actions.now_ns() < turn.due_ns {
            return;
        }
        let KvstoreStep::Delayed(turn) = std::mem::replace(&mut self.step, KvstoreStep::Expecting)
        else {
            unreachable!("it was just looked at");
        };
        actions.hold_request(0);
        if let Err(status) = self.begin(turn.request.bytes(), shared, actions) {
            actions.finish(status);
        }
    }

    fn read(&mut self, view: &ReadView<'_>, kept: &[u8], _shared: &Shared, actions: &mut A) {
        let KvstoreStep::Reading { hash } = self.step else {
            return debug_assert!(false, "nothing was to be read");
        };
        let Ok(entry) = view.get(kept, hash, actions.now_ms()) else {
            debug_assert!(false, "a call plan all that it looks at");
            return actions.finish(keyvalue::not_fetched());
        };
        match entry.map(|entry| entry.value) {
            None => actions.finish(without_words(Code::NotFound)),
            Some(Value::Inline(value)) => {
                actions.respond(|out| RetrieveResponse { value }.encode(out));
            }
            Some(Value::Shared(body)) if body.len() > actions.message_bytes() => {
                actions.read_when_large();
            }
            Some(Value::Shared(body)) => {
                let number = RetrieveResponse::NUMBERS.value;
                actions.respond_shared(|out| writer::bytes_head(out, number, body.len()), body)
            }
        }
    }

    fn committed(&mut self, outcome: &CommitOutcome<'_>, _shared: &Shared, actions: &mut A) {
        if let Decision::Refused(refusal) = outcome.decision {
            return actions.finish(refused(refusal));
        }
        let operation = outcome
            .first()
            .expect("a commit of one operation that was not refused has one outcome");
        match (operation.status, self.method) {
            (OperationStatus::ConditionFailed, Method::KvstoreCreate) => {
                actions.finish(without_words(Code::AlreadyExists))
            }
            (OperationStatus::ConditionFailed, _) => actions.finish(without_words(Code::NotFound)),
            // Every response but that of Retrieve is empty.
            _ => actions.respond(|_| {}),
        }
    }
}

/// Key and value of a request; a request without a value has an empty one.
fn decode(bytes: &[u8], method: Method) -> Result<(&[u8], &[u8]), Status> {
    let decoded = match method {
        Method::KvstoreCreate => {
            CreateRequest::decode(bytes).map(|request| (request.key, request.value))
        }
        Method::KvstoreUpdate => {
            UpdateRequest::decode(bytes).map(|request| (request.key, request.value))
        }
        Method::KvstoreRetrieve => {
            RetrieveRequest::decode(bytes).map(|request| (request.key, &[][..]))
        }
        _ => DeleteRequest::decode(bytes).map(|request| (request.key, &[][..])),
    };
    decoded.map_err(|error| not_a_request(method, error))
}

fn without_words(code: Code) -> Status {
    Status::new(code, "")
}

#[cold]
fn not_a_request(method: Method, error: DecodeError) -> Status {
    Status::invalid_argument(format!("{}: {error}", method.path()))
}

#[cold]
fn not_pushed(method: Method, error: PushError) -> Status {
    keyvalue::push_error(method, error)
}

#[cold]
fn no_database(name: &str) -> Status {
    Status::new(
        Code::FailedPrecondition,
        format!(
            "there is no database {name:?}, in which --kvstore-database keeps these keys; make it \
             with \
             pelton database create"
        ),
    )
}

#[cold]
fn refused(refusal: Refusal) -> Status {
    match refusal {
        Refusal::UnknownDatabase => Status::new(
            Code::FailedPrecondition,
            "the database was dropped while the call waited",
        ),
        other => keyvalue::refusal(other),
    }
}
