//! CompareExchange as a call of its own, which may wait for its record and tell others of it.

use api::tkrzw::CompareExchangeRequest;
use store::{CommitOutcome, DatabaseId, Mode};

use super::decode::decode;
use super::result::RequestResult;
use super::single::{Pending, SingleRequest};
use super::target::target;
use super::wait::{self, Waiter};
use super::{Package, TkrzwActions, TkrzwStep};
use crate::actions::{CallClock, DatabaseAccess, ResponseMemory, Responses, Wakeups};
use crate::call::Shared;
use crate::keyvalue;
use crate::limits::LARGE_ANSWER_BYTES;
use crate::method::Method;
use crate::rights::Right;
use crate::status::Status;
use crate::tkrzw_state::WaitTopic;

const METHOD: Method = Method::TkrzwCompareExchange;

/// A CompareExchange that waits or tells.
pub(super) struct WaitingExchange {
    /// Decoded again for each try.
    request: Box<[u8]>,
    database: DatabaseId,
    pending: Pending,
    waiter: Option<Waiter>,
    /// What the value in its response may take, which is set aside for each try; 0 if that is
    /// little.
    answer_bytes: usize,
    /// It was woken, and there was no memory for another try.
    awaits_memory: bool,
}

impl WaitingExchange {
    /// Takes up a request.
    pub(super) fn begin(
        bytes: &[u8],
        shared: &Shared,
        actions: &mut impl TkrzwActions,
    ) -> Result<Option<TkrzwStep>, Status> {
        let request: CompareExchangeRequest<'_> = decode(METHOD, bytes)?;
        let target = target(request.dbm_index, Right::Write, shared, actions)?;
        let single = SingleRequest::CompareExchange(request, Package::Present);
        if shared.settings.tkrzw.is_read_only && single.may_write() {
            actions.respond(|out| RequestResult::READ_ONLY.encode(out));
            return Ok(None);
        }
        let limits = shared.store.limits(target.id).unwrap_or_default();
        let answer_bytes = match request.get_actual && limits.value_bytes > LARGE_ANSWER_BYTES {
            true => limits.value_bytes,
            false => 0,
        };
        if answer_bytes > 0 && !actions.room_for_answer(answer_bytes) {
            return Ok(None);
        }
        let topic = WaitTopic::Record(target.id, request.key.into());
        let waiter = Waiter::enter(topic, request.retry_wait, shared, actions)?;
        let pending = submit(&request, target.id, actions)?;
        if waiter.is_none() && !request.notify {
            return Ok(Some(TkrzwStep::Write(pending)));
        }
        actions.hold_request(bytes.len());
        Ok(Some(TkrzwStep::Exchange(Box::new(WaitingExchange {
            request: bytes.into(),
            database: target.id,
            pending,
            waiter,
            answer_bytes,
            awaits_memory: false,
        }))))
    }

    /// Responds, or waits for another try.
    pub(super) fn committed(
        &mut self,
        outcome: &CommitOutcome<'_>,
        shared: &Shared,
        actions: &mut (impl Responses + ResponseMemory + Wakeups + CallClock),
    ) {
        let answer = match self.pending.answer(outcome) {
            Ok(answer) => answer,
            Err(status) => return actions.finish(status),
        };
        if let Some(waiter) = self.waiter.as_mut().filter(|_| answer.is_infeasible()) {
            match waiter.sleep(shared, actions) {
                // Else it would keep memory from others for as long as it waits.
                Ok(true) => return actions.reserve(0),
                Ok(false) => {}
                Err(status) => return actions.finish(status),
            }
        }
        self.waiter = None;
        if answer.result.is_success() {
            self.tell(shared);
        }
        self.pending.respond_with(&answer, actions);
    }

    /// Tells those who wait for the record, if it was asked for.
    fn tell(&self, shared: &Shared) {
        let Ok(request) = self.request() else { return };
        if request.notify {
            let topic = WaitTopic::Record(self.database, request.key.into());
            shared.settings.tkrzw.state.waiting.wake_all(&topic);
        }
    }

    /// Tries again, if the call waits for that.
    pub(super) fn woken(
        &mut self,
        shared: &Shared,
        actions: &mut (impl DatabaseAccess + Responses + ResponseMemory + Wakeups + CallClock),
    ) {
        let is_asleep = self.waiter.as_mut().is_some_and(Waiter::wake);
        if !is_asleep && !self.awaits_memory {
            return;
        }
        if shared.health.is_stopping() {
            return actions.finish(wait::stopping());
        }
        self.retry(actions);
    }

    /// Tries again with the memory that there may be now.
    pub(super) fn writable(
        &mut self,
        actions: &mut (impl DatabaseAccess + Responses + ResponseMemory),
    ) {
        if self.awaits_memory {
            self.retry(actions);
        }
    }

    fn retry(&mut self, actions: &mut (impl DatabaseAccess + Responses + ResponseMemory)) {
        self.awaits_memory = self.answer_bytes > 0 && !actions.can_send_large(self.answer_bytes);
        if self.awaits_memory {
            // `writable` follows.
            return;
        }
        actions.reserve(self.answer_bytes);
        let submitted = match self.request() {
            Ok(request) => submit(&request, self.database, actions),
            Err(status) => Err(status),
        };
        match submitted {
            Ok(pending) => self.pending = pending,
            Err(status) => actions.finish(status),
        }
    }

    fn request(&self) -> Result<CompareExchangeRequest<'_>, Status> {
        decode(METHOD, &self.request)
    }
}

fn submit(
    request: &CompareExchangeRequest<'_>,
    database: DatabaseId,
    actions: &mut impl DatabaseAccess,
) -> Result<Pending, Status> {
    let mut commit = actions.write(database, Mode::Independent);
    let pushed = SingleRequest::CompareExchange(*request, Package::Present).push(&mut commit);
    let pending = pushed.map_err(|error| keyvalue::push_error(METHOD, error))?;
    commit.submit();
    Ok(pending)
}
