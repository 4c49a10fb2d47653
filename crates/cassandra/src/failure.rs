//! What a failed request means: whether it may have been carried out, whether another node may be
//! asked, and what the caller hears.

use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::frame::types::Consistency;

/// Whether a request may be carried out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeatable {
    /// It is a read, or a write with a timestamp of its own: twice is as good as once.
    Yes,
    /// It is a conditional write: only if it is known that it was not carried out.
    No,
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause}: {message}")]
pub struct EngineFailure {
    /// Why.
    pub cause: FailureCause,
    /// Whether a write may have been carried out, or may still be.
    pub may_have_happened: bool,
    /// What the driver or the node said.
    pub message: String,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FailureCause {
    /// Too few replicas are alive, as a node sees it.
    #[error("no quorum of the nodes that hold the key is there")]
    NoQuorum,
    /// Nothing came in time.
    #[error("the nodes have not answered in time")]
    TimedOut,
    /// A node, or this gateway, has too much to do.
    #[error("the nodes have too much to do")]
    Overloaded,
    /// There is no connection to a node that could do it.
    #[error("no node can be reached")]
    Unreachable,
    /// It failed at a node, which says why. Another one may do it.
    #[error("a node has failed at the request")]
    Failed,
    /// It failed at a node in a way that repeating does not mend.
    #[error("the nodes refuse the request")]
    Refused,
}

impl FailureCause {
    /// All of them.
    pub const ALL: [FailureCause; 6] = [
        FailureCause::NoQuorum,
        FailureCause::TimedOut,
        FailureCause::Overloaded,
        FailureCause::Unreachable,
        FailureCause::Failed,
        FailureCause::Refused,
    ];
}

impl EngineFailure {
    /// Returns the failure of a request that was never sent.
    pub fn unsent(cause: FailureCause, message: impl Into<String>) -> EngineFailure {
        EngineFailure {
            cause,
            may_have_happened: false,
            message: message.into(),
        }
    }

    /// Returns the failure of a request to which no answer came before its time was over.
    pub fn timed_out() -> EngineFailure {
        EngineFailure {
            cause: FailureCause::TimedOut,
            may_have_happened: true,
            message: "its deadline has passed".to_owned(),
        }
    }

    /// Whether a request that may be repeated should be tried at another node.
    pub fn is_worth_another_node(&self) -> bool {
        !matches!(self.cause, FailureCause::Refused)
    }
}

/// Classifies an error of the driver.
///
/// What is not known to have been refused before any node did anything may have happened: to report
/// a write as failed that took effect is the one error that is not allowed.
pub(crate) fn classify(error: &ExecutionError, repeatable: Repeatable) -> EngineFailure {
    let (cause, may_have_happened) = match error {
        ExecutionError::BadQuery(_) | ExecutionError::PrepareError(_) => {
            (FailureCause::Refused, false)
        }
        ExecutionError::EmptyPlan | ExecutionError::ConnectionPoolError(_) => {
            (FailureCause::Unreachable, false)
        }
        ExecutionError::RequestTimeout(_) => (FailureCause::TimedOut, true),
        ExecutionError::LastAttemptError(error) => classify_attempt(error, repeatable),
        _ => (FailureCause::Failed, true),
    };
    EngineFailure {
        cause,
        may_have_happened,
        message: error.to_string(),
    }
}

fn classify_attempt(error: &RequestAttemptError, repeatable: Repeatable) -> (FailureCause, bool) {
    match error {
        RequestAttemptError::SerializationError(_)
        | RequestAttemptError::CqlRequestSerialization(_)
        | RequestAttemptError::RepreparedIdChanged { .. }
        | RequestAttemptError::RepreparedIdMissingInBatch => (FailureCause::Refused, false),
        // All 32 768 numbers of a connection are in use.
        RequestAttemptError::UnableToAllocStreamId => (FailureCause::Overloaded, false),
        RequestAttemptError::BrokenConnectionError(_) => (FailureCause::Unreachable, true),
        RequestAttemptError::DbError(error, _) => classify_answer(error, repeatable),
        // An answer that cannot be read.
        _ => (FailureCause::Failed, true),
    }
}

/// Classifies what a node has answered.
fn classify_answer(error: &DbError, repeatable: Repeatable) -> (FailureCause, bool) {
    match error {
        // Found out before anything is sent to a replica. A conditional write is counted twice: at
        // SERIAL at the beginning of each of its rounds, none of which ends with a proposal whose
        // end is open; and, with the first variant of Paxos, at the consistency of its commit,
        // when its proposal is accepted: it is decided then, and takes effect.
        DbError::Unavailable { consistency, .. } => {
            let is_of_round = matches!(consistency, Consistency::Serial | Consistency::LocalSerial);
            let may_be_decided = repeatable == Repeatable::No && !is_of_round;
            (FailureCause::NoQuorum, may_be_decided)
        }
        DbError::IsBootstrapping => (FailureCause::Unreachable, false),
        // By a replica: others may have it.
        DbError::RateLimitReached {
            rejected_by_coordinator,
            ..
        } => (FailureCause::Overloaded, !rejected_by_coordinator),
        // Also raised after some replicas were sent the write, when hints pile up for others.
        DbError::Overloaded => (FailureCause::Overloaded, true),
        DbError::ReadTimeout { .. } | DbError::WriteTimeout { .. } => {
            (FailureCause::TimedOut, true)
        }
        // Replicas have failed, others may have it. Of a read often for too many tombstones, which
        // the words of the node say.
        DbError::ReadFailure { .. } | DbError::WriteFailure { .. } => (FailureCause::Failed, true),
        DbError::SyntaxError
        | DbError::Invalid
        | DbError::AlreadyExists { .. }
        | DbError::Unauthorized
        | DbError::AuthenticationError
        | DbError::ConfigError
        | DbError::ProtocolError
        | DbError::Unprepared { .. } => (FailureCause::Refused, false),
        // What the node itself calls a failure, and what this version does not know.
        _ => (FailureCause::Failed, true),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use scylla::errors::{OperationType, WriteType};

    use super::*;

    fn answered(error: DbError) -> EngineFailure {
        answered_to(error, Repeatable::Yes)
    }

    fn answered_to(error: DbError, repeatable: Repeatable) -> EngineFailure {
        let attempt = RequestAttemptError::DbError(error, String::new());
        classify(&ExecutionError::LastAttemptError(attempt), repeatable)
    }

    #[test]
    fn a_write_that_timed_out_may_have_happened() {
        for write_type in [WriteType::Cas, WriteType::Simple, WriteType::UnloggedBatch] {
            let failure = answered(DbError::WriteTimeout {
                consistency: Consistency::Serial,
                received: 1,
                required: 2,
                write_type,
            });
            assert_eq!(failure.cause, FailureCause::TimedOut);
            assert!(failure.may_have_happened);
        }
        let timeout = ExecutionError::RequestTimeout(Duration::from_secs(1));
        assert!(classify(&timeout, Repeatable::No).may_have_happened);
        assert!(EngineFailure::timed_out().may_have_happened);
    }

    fn unavailable(consistency: Consistency, repeatable: Repeatable) -> EngineFailure {
        let error = DbError::Unavailable {
            consistency,
            required: 2,
            alive: 1,
        };
        answered_to(error, repeatable)
    }

    #[test]
    fn a_write_without_enough_replicas_was_not_done() {
        for (consistency, repeatable) in [
            (Consistency::Quorum, Repeatable::Yes),
            (Consistency::Serial, Repeatable::No),
            (Consistency::LocalSerial, Repeatable::No),
        ] {
            let failure = unavailable(consistency, repeatable);
            assert_eq!(failure.cause, FailureCause::NoQuorum);
            assert!(!failure.may_have_happened, "{consistency}");
            assert!(failure.is_worth_another_node());
        }
    }

    #[test]
    fn a_conditional_write_without_enough_replicas_for_its_commit_may_be_decided() {
        for consistency in [Consistency::Quorum, Consistency::LocalQuorum] {
            let failure = unavailable(consistency, Repeatable::No);
            assert_eq!(failure.cause, FailureCause::NoQuorum);
            assert!(failure.may_have_happened, "{consistency}");
        }
    }

    #[test]
    fn what_is_not_known_may_have_happened() {
        for error in [
            DbError::Overloaded,
            DbError::ServerError,
            DbError::TruncateError,
            DbError::Other(0x7777),
        ] {
            let failure = answered(error.clone());
            assert!(failure.may_have_happened, "{error:?}");
            assert!(failure.is_worth_another_node(), "{error:?}");
        }
        let parse = ExecutionError::LastAttemptError(RequestAttemptError::NonfinishedPagingState);
        assert!(classify(&parse, Repeatable::Yes).may_have_happened);
    }

    #[test]
    fn what_a_replica_has_limited_may_have_happened_at_others() {
        for rejected_by_coordinator in [false, true] {
            let failure = answered(DbError::RateLimitReached {
                op_type: OperationType::Write,
                rejected_by_coordinator,
            });
            assert_eq!(failure.cause, FailureCause::Overloaded);
            assert_eq!(failure.may_have_happened, !rejected_by_coordinator);
        }
    }

    #[test]
    fn what_was_never_sent_has_not_happened() {
        assert!(!classify(&ExecutionError::EmptyPlan, Repeatable::No).may_have_happened);
        let attempt = RequestAttemptError::UnableToAllocStreamId;
        let error = ExecutionError::LastAttemptError(attempt);
        assert!(!classify(&error, Repeatable::No).may_have_happened);
        assert!(!EngineFailure::unsent(FailureCause::Overloaded, "").may_have_happened);
    }

    #[test]
    fn a_wrong_request_is_not_tried_elsewhere() {
        for error in [
            DbError::Invalid,
            DbError::SyntaxError,
            DbError::Unauthorized,
        ] {
            let failure = answered(error);
            assert!(!failure.is_worth_another_node());
            assert!(!failure.may_have_happened);
        }
    }
}
