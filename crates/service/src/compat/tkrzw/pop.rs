//! PopFirst: removes the first record and returns it, or waits for one.
//!
//! The committer cannot tell which record is the first, as it does not read the device. So a call
//! looks for it in a view, claims it among the calls of its kind, and removes it on the condition
//! that nobody else has changed it.

use std::ops::ControlFlow;

use api::tkrzw::{PopFirstRequest, PopFirstResponse};
use protobuf::writer;
use store::tree::{NotFetched, ReadPlan};
use store::{
    CommitOutcome, Condition, DatabaseId, Decision, Direction, Mode, Operation, OperationStatus,
    Range, ReadView, Value,
};

use super::decode::decode;
use super::result::RequestResult;
use super::target::target;
use super::wait::{self, Waiter};
use super::walk::{Walk, WalkEnd};
use super::{TkrzwActions, TkrzwStep};
use crate::actions::{CallClock, DatabaseAccess, Responses, Wakeups};
use crate::call::Shared;
use crate::keyvalue;
use crate::limits::{TKRZW_CLAIM_RETRY_MS, TKRZW_TRIES};
use crate::method::Method;
use crate::rights::Right;
use crate::status::{Code, Status};
use crate::tkrzw_state::{KeyClaim, WaitTopic};

const METHOD: Method = Method::TkrzwPopFirst;

/// A PopFirst.
pub(super) struct Pop {
    database: DatabaseId,
    omit_key: bool,
    omit_value: bool,
    waiter: Option<Waiter>,
    walk: Walk,
    /// All that the walk has passed was claimed by others.
    has_skipped: bool,
    /// The walk begins anew when the timer expires.
    is_pausing: bool,
    claim: Option<KeyClaim>,
    tries: u32,
}

/// The record that was found.
struct FoundRecord {
    claim: KeyClaim,
    version: u64,
}

fn first_of(database: DatabaseId, is_by_hash: bool) -> Walk {
    let walk = Walk::new(database, &Range::ALL, Direction::Forward);
    walk.by_hash(is_by_hash).keys_only()
}

impl Pop {
    /// Takes up a request.
    pub(super) fn begin(
        bytes: &[u8],
        shared: &Shared,
        actions: &mut impl TkrzwActions,
    ) -> Result<Option<TkrzwStep>, Status> {
        let request: PopFirstRequest = decode(METHOD, bytes)?;
        let target = target(request.dbm_index, Right::Write, shared, actions)?;
        if shared.settings.tkrzw.is_read_only {
            actions.respond(|out| RequestResult::READ_ONLY.encode(out));
            return Ok(None);
        }
        let topic = WaitTopic::Queue(target.id);
        let waiter = Waiter::enter(topic, request.retry_wait, shared, actions)?;
        let walk = first_of(target.id, target.is_by_hash);
        walk.ask(actions);
        Ok(Some(TkrzwStep::Pop(Box::new(Pop {
            database: target.id,
            omit_key: request.omit_key,
            omit_value: request.omit_value,
            waiter,
            walk,
            has_skipped: false,
            is_pausing: false,
            claim: None,
            tries: 0,
        }))))
    }

    pub(super) fn plan_reads(&self, plan: &mut ReadPlan) {
        self.walk.plan_reads(plan);
    }

    /// Looks for the first record that nobody has claimed.
    pub(super) fn read(
        &mut self,
        view: &ReadView<'_>,
        shared: &Shared,
        actions: &mut (impl DatabaseAccess + Responses + Wakeups + CallClock),
    ) -> Result<(), NotFetched> {
        let claims = &shared.settings.tkrzw.state.claims;
        let (database, mut found, mut has_skipped) = (self.database, None, false);
        let end = self
            .walk
            .step(
                view,
                actions.now_ms(),
                &mut |entry| match claims.claim(database, entry.key) {
                    None => {
                        has_skipped = true;
                        ControlFlow::Continue(())
                    }
                    Some(claim) => {
                        let version = entry.version;
                        found = Some(FoundRecord { claim, version });
                        ControlFlow::Break(())
                    }
                },
            )?;
        self.has_skipped |= has_skipped;
        match (found, end) {
            (Some(found), _) => self.remove(found, actions),
            (None, WalkEnd::Complete) if self.has_skipped => self.pause(actions),
            (None, WalkEnd::Complete) => self.miss(shared, actions),
            (None, _) => self.walk.ask(actions),
        }
        Ok(())
    }

    fn remove(&mut self, found: FoundRecord, actions: &mut (impl DatabaseAccess + Responses)) {
        let mut commit = actions.write(self.database, Mode::Independent);
        let pushed = commit.push(&Operation::Delete {
            key: found.claim.key(),
            condition: Condition::VersionIs(found.version),
            want_previous: !self.omit_value,
        });
        match pushed {
            Ok(()) => commit.submit(),
            Err(error) => {
                drop(commit);
                return actions.finish(keyvalue::push_error(METHOD, error));
            }
        }
        self.claim = Some(found.claim);
    }

    /// Others are removing all that there is, and it is not known yet whether they do.
    fn pause(&mut self, actions: &mut (impl Wakeups + CallClock)) {
        self.is_pausing = true;
        actions.wake_at_ns(actions.now_ns() + TKRZW_CLAIM_RETRY_MS * 1_000_000);
    }

    /// There is no record.
    fn miss(&mut self, shared: &Shared, actions: &mut (impl Responses + Wakeups + CallClock)) {
        let slept = self
            .waiter
            .as_mut()
            .map_or(Ok(false), |waiter| waiter.sleep(shared, actions));
        match slept {
            Ok(true) => {}
            Ok(false) => actions.respond(|out| RequestResult::NOT_FOUND.encode(out)),
            Err(status) => actions.finish(status),
        }
    }

    fn look_again(&mut self, actions: &mut impl DatabaseAccess) {
        self.walk = first_of(self.database, self.walk.is_by_hash);
        (self.has_skipped, self.is_pausing) = (false, false);
        self.walk.ask(actions);
    }

    /// Looks again, if the call waits for that.
    pub(super) fn woken(
        &mut self,
        shared: &Shared,
        actions: &mut (impl DatabaseAccess + Responses),
    ) {
        let is_asleep = self.waiter.as_mut().is_some_and(Waiter::wake);
        if !is_asleep && !self.is_pausing {
            return;
        }
        match is_asleep && shared.health.is_stopping() {
            true => actions.finish(wait::stopping()),
            false => self.look_again(actions),
        }
    }

    /// Responds with the record that was removed.
    pub(super) fn committed(
        &mut self,
        outcome: &CommitOutcome<'_>,
        actions: &mut (impl DatabaseAccess + Responses),
    ) {
        let Some(claim) = self.claim.take() else {
            return debug_assert!(false, "nothing was submitted");
        };
        if let Decision::Refused(refusal) = outcome.decision {
            return actions.finish(keyvalue::refusal(refusal));
        }
        let Some(removed) = outcome.first() else {
            return debug_assert!(false, "the commit has one operation");
        };
        if removed.status != OperationStatus::Done {
            self.tries += 1;
            return match self.tries < TKRZW_TRIES {
                true => self.look_again(actions),
                false => actions.finish(too_many_tries()),
            };
        }
        self.waiter = None;
        let key = if self.omit_key { &[][..] } else { claim.key() };
        let head = |out: &mut Vec<u8>| {
            RequestResult::SUCCESS.encode(out);
            writer::bytes(out, PopFirstResponse::NUMBERS.key, key);
        };
        let number = PopFirstResponse::NUMBERS.value;
        match removed.value {
            Some(Value::Shared(body)) => actions.respond_shared(
                |out| {
                    head(out);
                    writer::bytes_head(out, number, body.len());
                },
                body,
            ),
            value => actions.respond(|out| {
                head(out);
                writer::bytes(
                    out,
                    number,
                    value.as_ref().map_or(&[], |value| value.bytes()),
                );
            }),
        }
    }
}

/// The status of a call that others have always been ahead of.
#[cold]
pub(super) fn too_many_tries() -> Status {
    let words =
        "others changed the record each time that it was tried; nothing was done, try again";
    Status::new(Code::Aborted, words)
}
