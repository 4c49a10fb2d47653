//! Whether the engine can serve: a row is read at a quorum again and again.

use std::sync::Arc;

use parking_lot::Mutex;
use store::remote::RemoteHealth;
use tokio::time::{sleep, timeout};

use crate::engine::Engine;
use crate::failure::{EngineFailure, FailureCause};
use crate::limits;

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

    /// Notes the end of a read of health.
    fn note(&self, result: Result<(), &EngineFailure>) {
        let mut state = self.state.lock();
        let Err(failure) = result else {
            state.failed = 0;
            state.shown = RemoteHealth::Serving;
            return;
        };
        if failure.cause == FailureCause::Overloaded {
            // Too much to do is no outage.
            return;
        }
        state.failed = state.failed.saturating_add(1);
        if state.failed >= limits::FAILED_PROBES {
            let reason = Arc::from(failure.to_string().as_str());
            state.shown = match failure.cause {
                FailureCause::Refused => RemoteHealth::WrongSchema(reason),
                _ => RemoteHealth::NoQuorum(reason),
            };
        }
    }
}

/// Reads a row at a quorum again and again, each time of another partition and by way of another
/// node first. The server writes to the log what has changed.
pub(crate) async fn keep_health(engine: Arc<Engine>, health: Arc<EngineHealth>) {
    let mut turn = 0_u32;
    loop {
        let nodes = engine.candidates();
        let probes = in_turn(&nodes, turn).map(|node| engine.probe(node, turn));
        let probe = first_success(probes).await;
        health.note(probe.as_ref().map(|_| ()));
        turn = turn.wrapping_add(1);
        sleep(limits::PROBE_INTERVAL).await;
    }
}

/// Returns the nodes that are asked in a turn, one after the other.
fn in_turn<N>(nodes: &[N], turn: u32) -> impl Iterator<Item = &N> {
    let first = usize::try_from(turn).unwrap_or(0) % nodes.len().max(1);
    let most = usize::try_from(limits::PROBE_NODES).unwrap_or(1);
    let (before, from) = nodes.split_at_checked(first).unwrap_or((&[], nodes));
    from.iter().chain(before).take(most)
}

/// Waits for probes one after the other, each for its part of the time, until one succeeds.
async fn first_success(
    probes: impl Iterator<Item = impl Future<Output = Result<(), EngineFailure>>>,
) -> Result<(), EngineFailure> {
    let mut failure = EngineFailure::unsent(FailureCause::Unreachable, "the cluster has no node");
    for probe in probes {
        let part = limits::PROBE_TIMEOUT / limits::PROBE_NODES;
        failure = match timeout(part, probe).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(failure)) => failure,
            Err(_) => EngineFailure::timed_out(),
        };
    }
    Err(failure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paused_time::run;

    #[test]
    fn some_failures_in_a_row_and_one_success_change_it() {
        let health = EngineHealth::serving();
        let failure = EngineFailure::unsent(FailureCause::NoQuorum, "two of three are down");
        for _ in 0..2 {
            for _ in 1..limits::FAILED_PROBES {
                health.note(Err(&failure));
                assert_eq!(health.get(), RemoteHealth::Serving);
            }
            health.note(Err(&failure));
            let RemoteHealth::NoQuorum(why) = health.get() else {
                panic!("{:?}", health.get());
            };
            assert!(why.contains("two of three"), "{why}");
            health.note(Ok(()));
            assert_eq!(health.get(), RemoteHealth::Serving);
        }
    }

    #[test]
    fn failures_that_are_not_in_a_row_change_nothing() {
        let health = EngineHealth::serving();
        let failure = EngineFailure::unsent(FailureCause::TimedOut, "");
        for _ in 0..10 {
            health.note(Err(&failure));
            health.note(Ok(()));
            assert_eq!(health.get(), RemoteHealth::Serving);
        }
    }

    #[test]
    fn too_much_to_do_is_no_outage_and_a_refusal_is_another_schema() {
        let health = EngineHealth::serving();
        let busy = EngineFailure::unsent(FailureCause::Overloaded, "");
        (0..10).for_each(|_| health.note(Err(&busy)));
        assert_eq!(health.get(), RemoteHealth::Serving);
        let refused = EngineFailure::unsent(FailureCause::Refused, "no such table");
        (0..10).for_each(|_| health.note(Err(&refused)));
        assert!(matches!(health.get(), RemoteHealth::WrongSchema(_)));
    }

    async fn probe(is_frozen: bool) -> Result<(), EngineFailure> {
        match is_frozen {
            true => std::future::pending().await,
            false => Ok(()),
        }
    }

    #[test]
    fn a_frozen_node_does_not_hide_the_quorum_of_the_others() {
        run(async {
            let nodes = [0, 1, 2];
            for turn in (0..6).chain([u32::MAX]) {
                let probes = in_turn(&nodes, turn).map(|&node| probe(node == 0));
                assert_eq!(first_success(probes).await, Ok(()));
            }
            let begin = tokio::time::Instant::now();
            let end = first_success(in_turn(&nodes, 1).map(|_| probe(true))).await;
            assert_eq!(end.unwrap_err().cause, FailureCause::TimedOut);
            assert!(begin.elapsed() <= limits::PROBE_TIMEOUT + limits::PROBE_INTERVAL);
            let none = first_success(in_turn(&nodes[..0], 1).map(|_| probe(true))).await;
            assert_eq!(none.unwrap_err().cause, FailureCause::Unreachable);
        });
    }
}
