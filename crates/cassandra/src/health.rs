//! Whether the engine can serve: a row is read at a quorum again and again.

use std::sync::Arc;

use parking_lot::Mutex;
use store::remote::RemoteHealth;
use tokio::time::{Instant, sleep};

use crate::engine::{Engine, Repeatable};
use crate::failure::EngineFailure;
use crate::limits;
use crate::statements::StatementName;

/// What was seen last.
#[derive(Debug)]
pub(crate) struct EngineHealth {
    state: Mutex<HealthState>,
}

#[derive(Debug)]
struct HealthState {
    shown: RemoteHealth,
    failed: u32,
}

impl EngineHealth {
    /// After a start that has read the catalogue.
    pub(crate) fn serving() -> EngineHealth {
        EngineHealth {
            state: Mutex::new(HealthState {
                shown: RemoteHealth::Serving,
                failed: 0,
            }),
        }
    }

    pub(crate) fn get(&self) -> RemoteHealth {
        self.state.lock().shown.clone()
    }

    /// Notes the end of a read of health. Returns what to write to the log: what has changed.
    fn note(&self, result: Result<(), &EngineFailure>) -> Option<String> {
        let mut state = self.state.lock();
        let Err(failure) = result else {
            state.failed = 0;
            let was_serving = state.shown == RemoteHealth::Serving;
            state.shown = RemoteHealth::Serving;
            return (!was_serving).then(|| "the storage engine answers again".to_owned());
        };
        state.failed = state.failed.saturating_add(1);
        if state.failed < limits::FAILED_PROBES {
            return None;
        }
        let reason = failure.to_string();
        let was_serving = state.shown == RemoteHealth::Serving;
        state.shown = RemoteHealth::NoQuorum(Arc::from(reason.as_str()));
        was_serving.then(|| format!("the storage engine does not answer: {reason}"))
    }
}

/// Reads a row at a quorum again and again, each time of another partition.
pub(crate) async fn keep_health(engine: Arc<Engine>, health: Arc<EngineHealth>) {
    let mut turn = 0;
    loop {
        turn = turn % limits::PROBE_PARTITIONS + 1;
        let deadline = Instant::now() + limits::PROBE_TIMEOUT;
        let partition = turn.cast_signed();
        let how = (None, Repeatable::Yes);
        let probe = engine
            .execute(StatementName::Probe, &(partition,), how, deadline)
            .await;
        if let Some(message) = health.note(probe.as_ref().map(|_| ())) {
            engine.log().note(&message);
        }
        sleep(limits::PROBE_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::FailureCause;

    #[test]
    fn some_failures_in_a_row_and_one_success_change_it() {
        let health = EngineHealth::serving();
        let failure = EngineFailure::unsent(FailureCause::NoQuorum, "two of three are down");
        for _ in 0..2 {
            for _ in 1..limits::FAILED_PROBES {
                assert_eq!(health.note(Err(&failure)), None);
                assert_eq!(health.get(), RemoteHealth::Serving);
            }
            assert!(health.note(Err(&failure)).unwrap().contains("two of three"));
            assert!(matches!(health.get(), RemoteHealth::NoQuorum(_)));
            assert_eq!(health.note(Err(&failure)), None);
            assert!(health.note(Ok(())).is_some());
            assert_eq!(health.get(), RemoteHealth::Serving);
            assert_eq!(health.note(Ok(())), None);
        }
    }

    #[test]
    fn failures_that_are_not_in_a_row_change_nothing() {
        let health = EngineHealth::serving();
        let failure = EngineFailure::unsent(FailureCause::TimedOut, "");
        for _ in 0..10 {
            assert_eq!(health.note(Err(&failure)), None);
            assert_eq!(health.note(Ok(())), None);
        }
    }
}
