//! CompareExchange as a call of its own, which may wait for its record and tell others of it.

use api::tkrzw::CompareExchangeRequest;
use store::{CommitOutcome, DatabaseId, Mode};

use super::decode::decode;
use super::result::RequestResult;
use super::single::{Pending, SingleRequest};
use super::target::target;
use super::wait::{self, Waiter};
use super::{Package, TkrzwActions, TkrzwStep};
use crate::actions::{CallClock, DatabaseAccess, Responses, Wakeups};
use crate::call::Shared;
use crate::keyvalue;
use crate::method::Method;
use crate::rights::Right;
use crate::status::Status;
use crate::tkrzw_state::WaitTopic;

const METHOD: Method = Method::TkrzwCompareExchange;

/// A CompareExchange that waits or tells.
pub(super) struct Exchange {
    /// Decoded again for each try.
    request: Box<[u8]>,
    database: DatabaseId,
    pending: Pending,
    waiter: Option<Waiter>,
}

impl Exchange {
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
        let value_bytes = shared
            .store
            .limits(target.id)
            .unwrap_or_default()
            .value_bytes;
        // Whoever waits would keep it from others for as long as it waits.
        let takes_memory = request.get_actual && request.retry_wait <= 0.0;
        if takes_memory && !actions.room_for_answer(value_bytes) {
            return Ok(None);
        }
        let topic = WaitTopic::Record(target.id, request.key.into());
        let waiter = Waiter::enter(topic, request.retry_wait, shared, actions)?;
        let pending = submit(&request, target.id, actions)?;
        if waiter.is_none() && !request.notify {
            return Ok(Some(TkrzwStep::Write(pending)));
        }
        actions.hold_request(bytes.len());
        Ok(Some(TkrzwStep::Exchange(Box::new(Exchange {
            request: bytes.into(),
            database: target.id,
            pending,
            waiter,
        }))))
    }

    /// Responds, or waits for another try.
    pub(super) fn committed(
        &mut self,
        outcome: &CommitOutcome<'_>,
        shared: &Shared,
        actions: &mut (impl Responses + Wakeups + CallClock),
    ) {
        let answer = match self.pending.answer(outcome) {
            Ok(answer) => answer,
            Err(status) => return actions.finish(status),
        };
        if let Some(waiter) = self.waiter.as_mut().filter(|_| answer.is_infeasible()) {
            match waiter.sleep(shared, actions) {
                Ok(true) => return,
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

    /// Tries again.
    pub(super) fn woken(
        &mut self,
        shared: &Shared,
        actions: &mut (impl DatabaseAccess + Responses + Wakeups + CallClock),
    ) {
        let is_asleep = self.waiter.as_mut().is_some_and(Waiter::wake);
        if !is_asleep {
            return;
        }
        if shared.health.is_stopping() {
            return actions.finish(wait::stopping());
        }
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
