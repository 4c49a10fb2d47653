//! Iterate: an iterator over the records of a database.
//!
//! Its position is a key: it is at the first record whose key is not below that. So what others
//! store, remove or clear in between needs no word to it, and it holds nothing. In a database whose
//! keys are in the order of their hashes it is at a key, or behind one.

use std::ops::{Bound, ControlFlow};

use api::tkrzw::{IterateOperation, IterateRequest, IterateResponse};
use protobuf::writer;
use store::tree::{NotFetched, ReadPlan};
use store::{
    CommitOutcome, Condition, DatabaseId, Decision, Direction, Entry, Mode, OperationStatus, Range,
    ReadView, Value,
};

use super::TkrzwActions;
use super::decode::decode;
use super::idle::IdleTimer;
use super::position::{IteratorPosition, behind};
use super::result::RequestResult;
use super::single::{delete, put};
use super::target::target;
use super::walk::{Walk, WalkEnd};
use crate::actions::{
    CallClock, DatabaseAccess, RequestFlow, ResponseMemory, Responses, SendRoom, Wakeups,
};
use crate::call::Shared;
use crate::keyvalue;
use crate::limits::HELD_KEY_BYTES;
use crate::method::Method;
use crate::rights::Right;
use crate::status::Status;

use IterateOperation as Op;

/// An iterator.
pub(super) struct Iterate {
    method: Method,
    idle: IdleTimer,
    /// The index of its database; `None`: there was no message.
    dbm_index: Option<i32>,
    database: DatabaseId,
    /// The keys of its database are in the order of their hashes.
    is_by_hash: bool,
    /// Where it is; `None`: at no record.
    position: Option<IteratorPosition>,
    /// The request that is carried out.
    request: Option<Box<Iteration>>,
    is_half_closed: bool,
    is_held: bool,
}

/// A request that is carried out.
struct Iteration {
    operation: IterateOperation,
    /// With which a record is looked for.
    walk: Walk,
    /// Of Set; of Jump the key that is looked for.
    given: Vec<u8>,
    omit_key: bool,
    omit_value: bool,
    /// The record that is written.
    current: Vec<u8>,
    /// A view was asked for and has not come yet.
    is_asked: bool,
}

/// What is done with a request.
enum Begun {
    /// It was carried out.
    Done(RequestResult),
    /// A record is looked for.
    Seek(Box<Iteration>),
}

impl Iterate {
    pub(super) fn new(method: Method, idle: IdleTimer) -> Iterate {
        Iterate {
            method,
            idle,
            dbm_index: None,
            database: DatabaseId::DEFAULT,
            is_by_hash: false,
            position: None,
            request: None,
            is_half_closed: false,
            is_held: false,
        }
    }

    pub(super) fn message(
        &mut self,
        bytes: &[u8],
        last: bool,
        shared: &Shared,
        actions: &mut impl TkrzwActions,
    ) {
        self.is_half_closed = last;
        self.idle.note();
        match self.begin(bytes, shared, actions) {
            Err(status) => actions.finish(status),
            Ok(Begun::Done(result)) => {
                actions.message(|out| result.encode(out));
                self.rest(actions);
            }
            Ok(Begun::Seek(mut iteration)) => {
                iteration.ask(actions);
                self.request = Some(iteration);
                self.hold(true, actions);
            }
        }
    }

    pub(super) fn half_closed(
        &mut self,
        actions: &mut (impl Responses + SendRoom + ResponseMemory + RequestFlow),
    ) {
        self.is_half_closed = true;
        if self.request.is_none() {
            self.rest(actions);
        }
    }

    /// Ends if nothing has come for long.
    pub(super) fn woken(&mut self, actions: &mut (impl Responses + Wakeups + CallClock)) {
        self.idle.woken(actions);
    }

    /// The response was sent: another request may come.
    fn rest(&mut self, actions: &mut (impl Responses + SendRoom + ResponseMemory + RequestFlow)) {
        self.request = None;
        let held_bytes = self.position.as_ref().map_or(0, IteratorPosition::len);
        if held_bytes >= HELD_KEY_BYTES {
            actions.hold_ready(held_bytes);
        }
        if self.is_half_closed {
            return actions.finish(Status::OK);
        }
        let is_full = !actions.can_send();
        self.hold(is_full, actions);
    }

    fn hold(&mut self, is_held: bool, actions: &mut impl RequestFlow) {
        if std::mem::replace(&mut self.is_held, is_held) == is_held {
            return;
        }
        match is_held {
            true => actions.hold(),
            false => actions.resume(),
        }
    }

    fn begin(
        &mut self,
        bytes: &[u8],
        shared: &Shared,
        actions: &mut impl TkrzwActions,
    ) -> Result<Begun, Status> {
        let request: IterateRequest<'_> = decode(self.method, bytes)?;
        let operation = IterateOperation::from_number(request.operation);
        let operation = operation.ok_or_else(unknown_operation)?;
        let writes = matches!(operation, Op::Set | Op::Remove);
        let right = if writes { Right::Write } else { Right::Read };
        let target = target(request.dbm_index, right, shared, actions)?;
        if self.dbm_index.replace(request.dbm_index) != Some(request.dbm_index) {
            self.position = None;
            (self.database, self.is_by_hash) = (target.id, target.is_by_hash);
        }
        if writes && shared.settings.tkrzw.is_read_only {
            return Ok(Begun::Done(RequestResult::READ_ONLY));
        }
        let is_ordered = target.is_ordered();
        if !is_ordered && needs_order(operation) {
            return Ok(Begun::Done(RequestResult::UNORDERED));
        }
        self.set_out(operation, &request, is_ordered)
    }

    /// Moves where no record has to be looked for, else says which.
    fn set_out(
        &mut self,
        operation: IterateOperation,
        request: &IterateRequest<'_>,
        is_ordered: bool,
    ) -> Result<Begun, Status> {
        let key = request.key;
        if matches!(operation, Op::Jump | Op::JumpLower | Op::JumpUpper) {
            keyvalue::check_key(key)?;
        }
        let below = |bound| Range {
            start: Bound::Unbounded,
            end: bound,
        };
        let range = match operation {
            Op::None => return Ok(Begun::Done(RequestResult::SUCCESS)),
            Op::First => return Ok(self.go(Vec::new())),
            Op::Jump if is_ordered => return Ok(self.go(key.to_vec())),
            Op::JumpUpper if request.jump_inclusive => return Ok(self.go(key.to_vec())),
            Op::JumpUpper => return Ok(self.go(behind(key))),
            Op::Last => Range::ALL,
            Op::Jump => Range {
                start: Bound::Included(key),
                end: Bound::Included(key),
            },
            Op::JumpLower if request.jump_inclusive => below(Bound::Included(key)),
            Op::JumpLower => below(Bound::Excluded(key)),
            Op::Next | Op::Previous | Op::Get | Op::Set | Op::Remove | Op::Step => {
                match &self.position {
                    None => return Ok(Begun::Done(RequestResult::NOT_FOUND)),
                    Some(position) => position.range(),
                }
            }
        };
        let direction = match operation {
            Op::Last | Op::JumpLower => Direction::Backward,
            // Previous looks at its record first.
            Op::None | Op::First | Op::Jump | Op::JumpUpper | Op::Next | Op::Previous => {
                Direction::Forward
            }
            Op::Get | Op::Set | Op::Remove | Op::Step => Direction::Forward,
        };
        let position = self.position.as_ref().filter(|_| operation != Op::Jump);
        let passed = position.and_then(IteratorPosition::passed);
        let walk = Walk::new(self.database, &range, direction).of_entries(1);
        let walk = walk.by_hash(self.is_by_hash).behind(passed);
        Ok(Begun::Seek(Box::new(Iteration {
            operation,
            walk: walk_for(operation, walk),
            given: request.value.to_vec(),
            omit_key: request.omit_key,
            omit_value: request.omit_value,
            current: Vec::new(),
            is_asked: false,
        })))
    }

    fn go(&mut self, position: Vec<u8>) -> Begun {
        self.position = Some(IteratorPosition::From(position));
        Begun::Done(RequestResult::SUCCESS)
    }

    pub(super) fn plan_reads(&self, plan: &mut ReadPlan) {
        if let Some(iteration) = &self.request {
            iteration.walk.plan_reads(plan);
        }
    }

    /// There is room to send.
    pub(super) fn go_on(&mut self, actions: &mut impl TkrzwActions) {
        match &mut self.request {
            Some(iteration) => iteration.ask(actions),
            None => self.rest(actions),
        }
    }

    /// Looks for a record, and goes on with what is found.
    pub(super) fn read(
        &mut self,
        view: &ReadView<'_>,
        _shared: &Shared,
        actions: &mut impl TkrzwActions,
    ) -> Result<(), NotFetched> {
        let Some(iteration) = &mut self.request else {
            debug_assert!(false, "nothing was to be read");
            return Ok(());
        };
        iteration.is_asked = false;
        if !actions.can_send() {
            // `writable` follows.
            return Ok(());
        }
        let (mut found, walk) = (None, iteration.walk.clone());
        let end = iteration.walk.step(view, actions.now_ms(), &mut |entry| {
            found = Some(*entry);
            ControlFlow::Continue(())
        })?;
        if found.is_none() && end == WalkEnd::Paused {
            iteration.ask(actions);
            return Ok(());
        }
        if let Some(Entry { value, .. }) = &found
            && matches!(iteration.operation, Op::Get | Op::Step)
            && value.len() > actions.message_bytes()
            && !actions.can_send_large(0)
        {
            // Looked for once more when there is memory for it: `writable` follows.
            iteration.walk = walk;
            return Ok(());
        }
        self.arrive(found, actions);
        Ok(())
    }

    fn arrive(&mut self, found: Option<Entry<'_>>, actions: &mut impl TkrzwActions) {
        let Some(iteration) = &mut self.request else {
            return;
        };
        let Some(entry) = found else {
            if let Some(IteratorPosition::At(key)) = &mut self.position
                && iteration.operation != Op::Jump
            {
                // Its record is gone: the next one is looked for.
                let key = std::mem::take(key);
                iteration.look_behind(self.database, &key, actions);
                self.position = Some(IteratorPosition::Behind(key));
                return;
            }
            return self.miss(actions);
        };
        match iteration.operation {
            Op::Get => iteration.send(&entry, actions),
            Op::Step => {
                iteration.send(&entry, actions);
                self.position = Some(IteratorPosition::behind(entry.key, self.is_by_hash));
            }
            Op::Next => {
                let position = IteratorPosition::behind(entry.key, self.is_by_hash);
                return self.end_at(position, actions);
            }
            Op::Previous => {
                // There is a record: now the one before it is looked for, as with JumpLower.
                let range = Range {
                    start: Bound::Unbounded,
                    end: Bound::Excluded(entry.key),
                };
                let walk = Walk::new(self.database, &range, Direction::Backward);
                iteration.walk = walk.of_entries(1).keys_only();
                iteration.operation = Op::JumpLower;
                return iteration.ask(actions);
            }
            Op::Set | Op::Remove => {
                iteration.current = entry.key.to_vec();
                return iteration.write(self.method, self.database, actions);
            }
            Op::None | Op::First | Op::Last | Op::Jump | Op::JumpLower | Op::JumpUpper => {
                let position = IteratorPosition::at(entry.key.to_vec(), self.is_by_hash);
                return self.end_at(position, actions);
            }
        }
        self.rest(actions);
    }

    /// There is no such record.
    fn miss(&mut self, actions: &mut impl TkrzwActions) {
        let operation = self.request.as_ref().map(|iteration| iteration.operation);
        let result = match operation {
            // Steps off the end, and jumps to where there is none.
            Some(Op::Last | Op::JumpLower) => RequestResult::SUCCESS,
            _ => RequestResult::NOT_FOUND,
        };
        if !matches!(operation, Some(Op::Get)) {
            self.position = None;
        }
        actions.message(|out| result.encode(out));
        self.rest(actions);
    }

    fn end_at(&mut self, position: IteratorPosition, actions: &mut impl TkrzwActions) {
        self.position = Some(position);
        actions.message(|out| RequestResult::SUCCESS.encode(out));
        self.rest(actions);
    }

    /// Goes on with what became of a write.
    pub(super) fn committed(
        &mut self,
        outcome: &CommitOutcome<'_>,
        actions: &mut impl TkrzwActions,
    ) {
        if let Decision::Refused(refusal) = outcome.decision {
            return actions.finish(keyvalue::refusal(refusal));
        }
        let Some(iteration) = &mut self.request else {
            return debug_assert!(false, "nothing was submitted");
        };
        let is_done = (outcome.first()).is_some_and(|one| one.status == OperationStatus::Done);
        if !is_done {
            // It was removed in between: the next one is looked for.
            return iteration.ask(actions);
        }
        let current = std::mem::take(&mut iteration.current);
        let position = match iteration.operation == Op::Remove {
            true => IteratorPosition::behind(&current, self.is_by_hash),
            false => IteratorPosition::at(current, self.is_by_hash),
        };
        self.end_at(position, actions);
    }
}

impl Iteration {
    /// Looks for the first record behind a key of a database by hash.
    fn look_behind(&mut self, database: DatabaseId, key: &[u8], actions: &mut impl DatabaseAccess) {
        let walk = Walk::new(database, &Range::ALL, Direction::Forward).of_entries(1);
        let walk = walk.by_hash(true).behind(Some(key));
        self.walk = walk_for(self.operation, walk);
        self.ask(actions);
    }

    fn ask(&mut self, actions: &mut impl DatabaseAccess) {
        if !std::mem::replace(&mut self.is_asked, true) {
            self.walk.ask(actions);
        }
    }

    fn write(
        &mut self,
        method: Method,
        database: DatabaseId,
        actions: &mut (impl DatabaseAccess + Responses),
    ) {
        let key = &self.current[..];
        let mut commit = actions.write(database, Mode::Independent);
        let pushed = commit.push(&match self.operation == Op::Set {
            true => put(key, &self.given, Condition::Present),
            false => delete(key, Condition::Present),
        });
        match pushed {
            Ok(()) => commit.submit(),
            Err(error) => {
                drop(commit);
                actions.finish(keyvalue::push_error(method, error));
            }
        }
    }

    fn send(&self, entry: &Entry<'_>, actions: &mut impl Responses) {
        let key = if self.omit_key { &[][..] } else { entry.key };
        let head = |out: &mut Vec<u8>| {
            RequestResult::SUCCESS.encode(out);
            writer::bytes(out, IterateResponse::NUMBERS.key, key);
        };
        let number = IterateResponse::NUMBERS.value;
        match entry.value {
            _ if self.omit_value => actions.message(head),
            Value::Shared(body) => {
                let with_head = |out: &mut Vec<u8>| {
                    head(out);
                    writer::bytes_head(out, number, body.len());
                };
                actions.message_shared(with_head, body, 0..body.len());
            }
            Value::Inline(value) => actions.message(|out| {
                head(out);
                writer::bytes(out, number, value);
            }),
        }
    }
}

/// Returns a walk that brings what an operation takes of a record: only some take its value.
fn walk_for(operation: IterateOperation, walk: Walk) -> Walk {
    match operation {
        Op::Get | Op::Step => walk,
        _ => walk.keys_only(),
    }
}

fn needs_order(operation: IterateOperation) -> bool {
    matches!(
        operation,
        Op::Last | Op::JumpLower | Op::JumpUpper | Op::Previous
    )
}

#[cold]
fn unknown_operation() -> Status {
    Status::invalid_argument("unknown operation")
}
