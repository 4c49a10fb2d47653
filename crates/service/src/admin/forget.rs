//! ForgetReplicas: replicas that are lost for good count no more. The committer does it, by commits
//! that those who count must hold; the call looks for the end of it.

use api::admin::{ForgetReplicasRequest, ForgetReplicasResponse};
use store::{ReplicaId, Store};

use super::invalid;
use crate::actions::{CallClock, Responses, Wakeups};
use crate::call::Shared;
use crate::limits::ORDER_LOOK_MS;
use crate::method::Method;
use crate::status::{Code, Status};

/// A call that waits until replicas count no more.
pub(super) struct ForgetCall {
    store: Store,
    lost: Vec<ReplicaId>,
}

impl Drop for ForgetCall {
    fn drop(&mut self) {
        self.store.keep_replicas(&self.lost);
    }
}

impl ForgetCall {
    pub(super) fn begin(
        bytes: &[u8],
        shared: &Shared,
        actions: &mut (impl Wakeups + CallClock),
    ) -> Result<ForgetCall, Status> {
        let store = &shared.store;
        if store.acknowledged().required == 0 {
            return Err(Status::new(
                Code::FailedPrecondition,
                "this server counts no replicas (it has no --replicas-acked): there is nothing to \
                 forget",
            ));
        }
        let lost = match named(bytes)? {
            named if named.is_empty() => store.acknowledged().absent,
            named => check(named, store)?,
        };
        let here = store.forget_replicas(&lost);
        if let Some(one) = here.first() {
            return Err(Status::new(
                Code::FailedPrecondition,
                format!(
                    "the replica {} is connected, and would count again at once: stop it first",
                    hex(one)
                ),
            ));
        }
        look_later(actions);
        Ok(ForgetCall {
            store: store.clone(),
            lost,
        })
    }

    /// Looks whether they count no more.
    pub(super) fn look(&self, actions: &mut (impl Responses + Wakeups + CallClock)) {
        let set = self.store.replica_set();
        if set.members().any(|member| self.lost.contains(member)) {
            return look_later(actions);
        }
        let ids: Vec<&[u8]> = self.lost.iter().map(|id| &id[..]).collect();
        let message = ForgetReplicasResponse {
            replica_ids: (&ids[..]).into(),
            left: u32::try_from(set.members().len()).unwrap_or(u32::MAX),
        };
        actions.respond(|out| message.encode(out));
    }
}

fn look_later(actions: &mut (impl Wakeups + CallClock)) {
    actions.wake_at_ns(actions.now_ns() + ORDER_LOOK_MS * 1_000_000);
}

fn named(bytes: &[u8]) -> Result<Vec<ReplicaId>, Status> {
    let method = Method::AdminForgetReplicas;
    let request = ForgetReplicasRequest::decode(bytes).map_err(|error| invalid(method, error))?;
    let mut named = Vec::new();
    for id in request.replica_ids.iter() {
        let id = id.map_err(|error| invalid(method, error))?;
        if named.len() >= store::limits::REPLICA_SET_MAX {
            return Err(Status::invalid_argument("too many replicas"));
        }
        named.push(ReplicaId::try_from(id).map_err(|_| {
            Status::invalid_argument(format!(
                "field replica_ids: one of them has {} bytes, and each must have {}",
                id.len(),
                store::REPLICA_ID_BYTES
            ))
        })?);
    }
    Ok(named)
}

fn check(named: Vec<ReplicaId>, store: &Store) -> Result<Vec<ReplicaId>, Status> {
    let set = store.replica_set();
    let is_unknown = |id: &&ReplicaId| !set.members().any(|member| member == *id);
    match named.iter().find(is_unknown) {
        None => Ok(named),
        Some(id) => Err(Status::new(
            Code::NotFound,
            format!(
                "the replica {} is none of those that count: `pelton status` names them",
                hex(id)
            ),
        )),
    }
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}
