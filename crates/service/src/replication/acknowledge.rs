//! Acknowledge: what a follower holds on its device.

use api::replication::{AcknowledgeRequest, AcknowledgeResponse};
use store::{EpochPlace, FIRST_EPOCH, FollowerSession, ReplicaId};

use super::{is_behind, is_superseded, malformed, superseded};
use crate::actions::{CallClock, Responses, SendRoom, Wakeups};
use crate::call::Shared;
use crate::limits::{FOLLOW_HEARTBEAT_MS, FOLLOWERS_MAX};
use crate::method::Method;
use crate::status::{Code, Status};
use crate::waiting::WaitingPlace;

/// What a call is told whose caller has begun another one, or somebody with a copy of its folder.
const DISPLACED: &str = "another connection has come with the id of this replica: of a folder and \
    its copy only one can follow, so remove pelton-replica-id in one of them while it is stopped";

/// A call that says what its caller holds.
pub struct AcknowledgeCall {
    session: FollowerSession,
    /// Something was said since the last response.
    owes_response: bool,
    /// When it is woken next, whatever happens.
    timer_ns: u64,
    /// Held as long as the call lives.
    _place: WaitingPlace,
}

impl AcknowledgeCall {
    pub(super) fn begin(
        bytes: &[u8],
        shared: &Shared,
        actions: &mut impl Wakeups,
    ) -> Result<Box<AcknowledgeCall>, Status> {
        let request = decode(bytes)?;
        let store = &shared.store;
        if is_superseded((request.history_id, request.epoch), "", shared) {
            return Err(superseded(request.epoch, shared));
        }
        if request.history_id != api::history_id_bytes(store.history_id()) {
            return Err(Status::new(
                Code::FailedPrecondition,
                "this server has another history: a new copy is needed",
            ));
        }
        let replica_id: ReplicaId = request.replica_id.try_into().map_err(|_| {
            Status::invalid_argument(format!(
                "AcknowledgeRequest.replica_id has {} bytes, and must have {}",
                request.replica_id.len(),
                store::REPLICA_ID_BYTES
            ))
        })?;
        check(&request, shared)?;
        let place = EpochPlace {
            epoch: request.log_epoch.max(FIRST_EPOCH),
            sequence: request.sequence,
        };
        let checked = store.replica_set().check_place(place);
        checked.map_err(|error| Status::new(Code::FailedPrecondition, error.to_string()))?;
        let state = store.acknowledged();
        let others = state.followers.iter().filter(|(id, _)| *id != replica_id);
        if others.count() >= FOLLOWERS_MAX {
            return Err(Status::resource_exhausted(format!(
                "{FOLLOWERS_MAX} others follow this server, and no more are allowed: follow one of \
                 them"
            )));
        }
        let place = shared.waiting.enter(actions.caller())?;
        Ok(Box::new(AcknowledgeCall {
            session: store.begin_follower_session(replica_id, request.sequence),
            owes_response: true,
            timer_ns: 0,
            _place: place,
        }))
    }

    /// Takes a further message.
    pub(super) fn next(
        &mut self,
        bytes: &[u8],
        last: bool,
        shared: &Shared,
        actions: &mut (impl Responses + SendRoom + Wakeups + CallClock),
    ) {
        let request = decode(bytes).and_then(|request| {
            check(&request, shared)?;
            Ok(request)
        });
        match request {
            Ok(_) if last => actions.finish(Status::OK),
            Ok(request) => {
                self.session.acknowledge(request.sequence);
                self.owes_response = true;
                self.go_on(shared, actions);
            }
            Err(status) => actions.finish(status),
        }
    }

    /// Responds to what was said, as far as there is room for it: one response is enough for all
    /// that has come meanwhile.
    pub(super) fn go_on(
        &mut self,
        shared: &Shared,
        actions: &mut (impl Responses + SendRoom + Wakeups + CallClock),
    ) {
        if shared.health.is_stopping() {
            return actions.finish(Status::new(Code::Unavailable, "the server is stopping"));
        }
        if !self.session.counts() {
            // Were it left open, and the other one ended, its caller would wait to be counted.
            return actions.finish(Status::new(Code::Aborted, DISPLACED));
        }
        // At times it looks whether the server stops, or it does not count any more.
        let now_ns = actions.now_ns();
        if self.timer_ns <= now_ns {
            self.timer_ns = now_ns + FOLLOW_HEARTBEAT_MS * 1_000_000;
            actions.wake_at_ns(self.timer_ns);
        }
        if !self.owes_response || !actions.can_send() {
            return;
        }
        self.owes_response = false;
        let state = shared.store.acknowledged();
        let response = AcknowledgeResponse {
            required: u32::try_from(state.required).unwrap_or(u32::MAX),
            acknowledged_sequence: state.sequence,
        };
        actions.message(|out| response.encode(out));
    }
}

fn decode(bytes: &[u8]) -> Result<AcknowledgeRequest<'_>, Status> {
    let request = AcknowledgeRequest::decode(bytes);
    request.map_err(|error| malformed(Method::ReplicationAcknowledge, &error))
}

/// Refuses what nobody can hold.
fn check(request: &AcknowledgeRequest<'_>, shared: &Shared) -> Result<(), Status> {
    let present = shared.store.followable_sequence();
    match request.sequence <= present {
        true => Ok(()),
        false if shared.following.is_some() => Err(is_behind(request.sequence, present)),
        false => Err(Status::new(
            Code::FailedPrecondition,
            format!(
                "sequence {} is not in the log of this server, which is on the device up to \
                 {present}: a new copy is needed",
                request.sequence
            ),
        )),
    }
}
