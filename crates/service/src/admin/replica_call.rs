//! Calls about replicas, which wait until what they ask for is done.

use super::forget::ForgetCall;
use super::promotion::PromotionCall;
use crate::actions::{CallClock, Responses, Wakeups};
use crate::call::Shared;
use crate::method::Method;
use crate::status::Status;

/// A call about replicas whose request is there.
pub(super) enum ReplicaCall {
    /// A replica is to do something.
    Promotion(PromotionCall),
    /// Replicas are to count no more.
    Forget(ForgetCall),
}

impl ReplicaCall {
    /// Begins a call of `method`.
    pub(super) fn begin(
        method: Method,
        bytes: &[u8],
        shared: &Shared,
        actions: &mut (impl Wakeups + CallClock),
    ) -> Result<ReplicaCall, Status> {
        match method {
            Method::AdminForgetReplicas => {
                ForgetCall::begin(bytes, shared, actions).map(ReplicaCall::Forget)
            }
            method => {
                PromotionCall::begin(method, bytes, shared, actions).map(ReplicaCall::Promotion)
            }
        }
    }

    /// Looks whether it is done, and answers then.
    pub(super) fn look(&self, actions: &mut (impl Responses + Wakeups + CallClock)) {
        match self {
            ReplicaCall::Promotion(call) => call.look(actions),
            ReplicaCall::Forget(call) => call.look(actions),
        }
    }
}
