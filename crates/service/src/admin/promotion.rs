//! ConfirmEpoch and Promote: what an operator wants of a replica. The thread that follows does it,
//! between two groups; the call looks for the answer.

use std::sync::Arc;

use api::admin::{ConfirmEpochRequest, ConfirmEpochResponse, PromoteRequest, PromoteResponse};
use store::{EpochPlace, ReplicaId};

use super::invalid;
use crate::actions::{CallClock, Responses, Wakeups};
use crate::call::Shared;
use crate::following::Following;
use crate::limits::{ORDER_LOOK_MS, REPLICA_ADDRESS_BYTES_MAX};
use crate::method::Method;
use crate::replica_orders::{
    EpochConfirmation, EpochProposal, OrderReport, PromotionOrder, PromotionReport, ReplicaOrder,
};
use crate::status::{Code, Status};

/// A call whose order is under way.
pub(super) struct PromotionCall {
    following: Arc<Following>,
    ticket: u64,
}

impl Drop for PromotionCall {
    fn drop(&mut self) {
        self.following.orders().withdraw(self.ticket);
    }
}

impl PromotionCall {
    /// Begins a call of `method`.
    pub(super) fn begin(
        method: Method,
        bytes: &[u8],
        shared: &Shared,
        actions: &mut (impl Wakeups + CallClock),
    ) -> Result<PromotionCall, Status> {
        let order = match method {
            Method::AdminConfirmEpoch => confirm_order(bytes)?,
            _ => promote_order(bytes)?,
        };
        let following = shared
            .following
            .as_ref()
            .ok_or_else(|| no_replica(shared))?;
        let ticket = following.orders().submit(order)?;
        look_later(actions);
        Ok(PromotionCall {
            following: Arc::clone(following),
            ticket,
        })
    }

    /// Looks for the answer, and sends it.
    pub(super) fn look(&self, actions: &mut (impl Responses + Wakeups + CallClock)) {
        match self.following.orders().take_answer(self.ticket) {
            None => look_later(actions),
            Some(Err(status)) => actions.finish(status),
            Some(Ok(OrderReport::Confirmed(confirmed))) => {
                let message = ConfirmEpochResponse {
                    replica_id: &confirmed.replica,
                    epoch: confirmed.epoch,
                    candidate_id: &confirmed.candidate,
                    log_epoch: confirmed.place.epoch,
                    sequence: confirmed.place.sequence,
                };
                actions.respond(|out| message.encode(out));
            }
            Some(Ok(OrderReport::Promotion(report))) => send_report(&report, actions),
        }
    }
}

fn look_later(actions: &mut (impl Wakeups + CallClock)) {
    actions.wake_at_ns(actions.now_ns() + ORDER_LOOK_MS * 1_000_000);
}

fn send_report(report: &PromotionReport, actions: &mut impl Responses) {
    let history_id = api::history_id_bytes(report.history_id);
    let message = PromoteResponse {
        promoted: report.promoted,
        epoch: report.epoch,
        replica_id: &report.replica,
        history_id: &history_id,
        sequence: report.sequence,
        leader_sequence: report.leader_sequence,
        problem: &report.problem,
        needs_confirmations: report.needs_confirmations,
    };
    actions.respond(|out| message.encode(out));
}

fn confirm_order(bytes: &[u8]) -> Result<ReplicaOrder, Status> {
    let method = Method::AdminConfirmEpoch;
    let request = ConfirmEpochRequest::decode(bytes).map_err(|error| invalid(method, error))?;
    Ok(ReplicaOrder::Confirm(EpochProposal {
        history_id: api::history_id(request.history_id),
        epoch: request.epoch,
        candidate: id("candidate_id", request.candidate_id)?,
        address: address(request.address)?,
    }))
}

fn promote_order(bytes: &[u8]) -> Result<ReplicaOrder, Status> {
    let method = Method::AdminPromote;
    let request = PromoteRequest::decode(bytes).map_err(|error| invalid(method, error))?;
    let mut confirmations = Vec::new();
    for one in request.confirmations.iter() {
        let one = one.map_err(|error| invalid(method, error))?;
        if confirmations.len() >= store::limits::REPLICA_SET_MAX {
            return Err(Status::invalid_argument("too many confirmations"));
        }
        confirmations.push(EpochConfirmation {
            replica: id("confirmations.replica_id", one.replica_id)?,
            epoch: one.epoch,
            candidate: id("confirmations.candidate_id", one.candidate_id)?,
            place: EpochPlace {
                epoch: one.log_epoch,
                sequence: one.sequence,
            },
        });
    }
    Ok(ReplicaOrder::Promote(PromotionOrder {
        force: request.force,
        address: address(request.address)?,
        least_epoch: request.least_epoch,
        confirmations,
    }))
}

fn id(field: &str, bytes: &[u8]) -> Result<ReplicaId, Status> {
    bytes.try_into().map_err(|_| {
        Status::invalid_argument(format!(
            "field {field}: it has {} bytes, and must have {}",
            bytes.len(),
            store::REPLICA_ID_BYTES
        ))
    })
}

/// It goes into a file and into statuses.
fn address(address: &str) -> Result<String, Status> {
    let is_plain = |byte: u8| byte.is_ascii_graphic();
    match address.len() <= REPLICA_ADDRESS_BYTES_MAX && address.bytes().all(is_plain) {
        true => Ok(address.to_owned()),
        false => Err(Status::invalid_argument(format!(
            "field address: it must have at most {REPLICA_ADDRESS_BYTES_MAX} bytes, all of them \
             visible ASCII"
        ))),
    }
}

#[cold]
fn no_replica(shared: &Shared) -> Status {
    Status::new(
        Code::FailedPrecondition,
        format!(
            "this server is no replica (it takes writes itself, in epoch {}): name a replica",
            shared.store.epoch()
        ),
    )
}
