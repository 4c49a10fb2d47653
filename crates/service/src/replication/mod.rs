//! `pelton.v1.Replication`: what servers call that follow this one.
//!
//! A call keeps what is next, and reads on when its peer can take it: what is read is charged to
//! its connection until it is sent.

mod acknowledge;
mod copy;
mod files;
mod follow;
#[cfg(test)]
mod tests;

use protobuf::DecodeError;
use store::remote::Lack;
use store::{LogReadError, ReplicaId, ReplicaPiece, ReplicaReading, Store};

use crate::actions::{Administration, CallClock, ResponseMemory, Responses, SendRoom, Wakeups};
use crate::call::{CallHead, CallSteps, PlanReads, Shared};
use crate::following::Following;
use crate::limits::REPLICA_ADDRESS_BYTES_MAX;
use crate::method::Method;
use crate::status::{self, Code, Status};
use crate::task::TaskNews;
use acknowledge::AcknowledgeCall;
use copy::CopyCall;
use files::ContentCall;
use follow::FollowCall;

/// A call of `pelton.v1.Replication`.
pub enum ReplicationCall {
    /// Its request has not come.
    Waiting(Method),
    /// It takes a copy.
    Copy(Box<CopyCall>),
    /// It follows the log.
    Follow(Box<FollowCall>),
    /// It says what its caller holds.
    Acknowledge(Box<AcknowledgeCall>),
    /// It reads the content of a blob.
    Content(Box<ContentCall>),
}

impl ReplicationCall {
    /// Begins a call of `method`.
    pub fn started(
        method: Method,
        _head: &CallHead<'_>,
        _shared: &Shared,
        _actions: &mut impl Sized,
    ) -> ReplicationCall {
        ReplicationCall::Waiting(method)
    }
}

impl PlanReads for ReplicationCall {}

impl<A> CallSteps<A> for ReplicationCall
where
    A: Administration + Responses + SendRoom + ResponseMemory + Wakeups + CallClock,
{
    fn message(&mut self, bytes: &[u8], last: bool, shared: &Shared, actions: &mut A) {
        if let ReplicationCall::Acknowledge(call) = self {
            return call.next(bytes, last, shared, actions);
        }
        let ReplicationCall::Waiting(method) = *self else {
            return actions.finish(Status::invalid_argument("a second request"));
        };
        let begun = match method {
            Method::ReplicationCopy => CopyCall::begin(bytes, actions).map(ReplicationCall::Copy),
            Method::ReplicationFollow => {
                FollowCall::begin(bytes, shared, actions).map(ReplicationCall::Follow)
            }
            Method::ReplicationAcknowledge => {
                AcknowledgeCall::begin(bytes, shared, actions).map(ReplicationCall::Acknowledge)
            }
            Method::ReplicationReadContent => {
                ContentCall::begin(bytes, shared, actions).map(ReplicationCall::Content)
            }
            method => Err(Status::unimplemented(method.path())),
        };
        match begun {
            Ok(call) => *self = call,
            Err(status) => return actions.finish(status),
        }
        match self {
            // Whoever says nothing more does not count any more.
            ReplicationCall::Acknowledge(_) if last => actions.finish(Status::OK),
            _ => self.go_on(shared, actions),
        }
    }

    fn half_closed(&mut self, _shared: &Shared, actions: &mut A) {
        match *self {
            ReplicationCall::Waiting(method) => {
                actions.finish(status::no_request(method.path()));
            }
            ReplicationCall::Acknowledge(_) => actions.finish(Status::OK),
            _ => {}
        }
    }

    fn task(&mut self, news: &TaskNews<'_>, shared: &Shared, actions: &mut A) {
        if let ReplicationCall::Copy(call) = self {
            call.task(news, shared, actions);
        }
    }

    fn replica_read(
        &mut self,
        reading: ReplicaReading,
        read: Result<ReplicaPiece, LogReadError>,
        shared: &Shared,
        actions: &mut A,
    ) {
        match (self, reading) {
            (ReplicationCall::Follow(call), ReplicaReading::Groups(reading)) => {
                call.read(reading, read, shared, actions);
            }
            (ReplicationCall::Copy(call), reading) => call.read(reading, read, shared, actions),
            (ReplicationCall::Content(call), reading) => call.read(reading, read, actions),
            _ => debug_assert!(false, "a call gets what it has asked for"),
        }
    }

    fn writable(&mut self, shared: &Shared, actions: &mut A) {
        self.go_on(shared, actions);
    }

    fn woken(&mut self, shared: &Shared, actions: &mut A) {
        self.go_on(shared, actions);
    }
}

impl ReplicationCall {
    fn go_on(
        &mut self,
        shared: &Shared,
        actions: &mut (impl Responses + SendRoom + ResponseMemory + Wakeups + CallClock),
    ) {
        match self {
            ReplicationCall::Waiting(_) => {}
            ReplicationCall::Copy(call) => call.go_on(shared, actions),
            ReplicationCall::Follow(call) => call.go_on(shared, actions),
            ReplicationCall::Acknowledge(call) => call.go_on(shared, actions),
            ReplicationCall::Content(call) => call.go_on(actions),
        }
    }
}

/// Returns the replicas through which what this server sends comes, itself first if it is one.
fn replica_ids(shared: &Shared) -> Vec<ReplicaId> {
    let following = shared.following.as_deref();
    following.map_or_else(Vec::new, Following::replica_ids)
}

/// Takes notice of the epoch that a caller of this history has confirmed. Returns whether it is
/// higher than that of this server, which takes no more writes then, if it did.
fn is_superseded((history_id, epoch): (&[u8], u64), leader: &str, shared: &Shared) -> bool {
    let store = &shared.store;
    if epoch <= store.epoch() || history_id != api::history_id_bytes(store.history_id()) {
        return false;
    }
    // A replica takes none, and its leader hears of the epoch from whoever calls that.
    if shared.following.is_none() {
        let is_plain = leader.len() <= REPLICA_ADDRESS_BYTES_MAX;
        store.note_epoch(epoch, if is_plain { leader } else { "" });
    }
    true
}

#[cold]
fn superseded(epoch: u64, shared: &Shared) -> Status {
    Status::new(
        Code::FailedPrecondition,
        format!(
            "this server is in epoch {}, and its caller has confirmed epoch {epoch}: follow the \
             leader of that",
            shared.store.epoch()
        ),
    )
}

/// The status where a replica has less than who follows it: that comes from their leader. What the
/// caller has may have been acknowledged, and a copy of what is here would not have it.
#[cold]
fn is_behind(sequence: u64, present: u64) -> Status {
    Status::new(
        Code::Unavailable,
        format!(
            "this server is a replica itself, and has everything up to sequence {present}, while \
             its caller has sequence {sequence}: it goes on when that has come here; to go on at \
             once, follow the leader"
        ),
    )
}

#[cold]
fn malformed(method: Method, error: &DecodeError) -> Status {
    Status::invalid_argument(format!("{}: {error}", method.path()))
}

/// A server without a log has nothing that could be followed.
#[cold]
fn keeps_nothing(store: &Store) -> Status {
    if store.is_remote() {
        return Status::unimplemented(Lack::Replicas.to_string());
    }
    Status::new(
        Code::FailedPrecondition,
        "this server keeps nothing (--durability volatile without --data): there is nothing to \
         follow",
    )
}
