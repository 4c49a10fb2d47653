//! What a failure of the engine is for a caller.

use store::remote::RemoteError;

use crate::failure::{EngineFailure, FailureCause};
use crate::limits;

/// There is too much under way: nothing was done.
pub(crate) const BUSY: RemoteError = RemoteError::Busy {
    retry_ms: limits::RETRY_MS,
};

/// Returns what a failed read is for its caller: nothing was done in any case.
pub(crate) fn error_of_read(failure: &EngineFailure) -> RemoteError {
    match failure.cause {
        FailureCause::NoQuorum | FailureCause::Unreachable | FailureCause::Failed => {
            RemoteError::NoQuorum
        }
        FailureCause::TimedOut => RemoteError::TimedOut,
        FailureCause::Overloaded => BUSY,
        FailureCause::Refused => RemoteError::Refused,
    }
}

/// Returns what a failed write is for its caller.
pub(crate) fn error_of_write(failure: &EngineFailure) -> RemoteError {
    match failure.may_have_happened {
        true => RemoteError::OutcomeUnknown,
        false => error_of_read(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_may_have_happened_is_unknown_whatever_its_cause() {
        for cause in FailureCause::ALL {
            let mut failure = EngineFailure::unsent(cause, "");
            assert!(error_of_write(&failure).is_of_nothing_done(), "{cause:?}");
            failure.may_have_happened = true;
            assert_eq!(error_of_write(&failure), RemoteError::OutcomeUnknown);
            assert!(error_of_read(&failure).is_of_nothing_done());
        }
    }
}
