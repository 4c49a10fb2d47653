//! What a pool knows of an address.

use super::backoff::{Jitter, pause_ns};
use super::event::PoolEndpoint;
use crate::limits;

/// Whether an address serves, as far as its health check says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointHealth {
    /// It serves, or is not asked.
    Healthy,
    /// It has not said yet.
    Unknown,
    /// It does not serve.
    Unhealthy,
}

#[derive(Debug)]
pub(super) struct EndpointState {
    pub(super) endpoint: PoolEndpoint,
    pub(super) health: EndpointHealth,
    /// Connections, whatever their stage but for those that drain.
    pub(super) connections: usize,
    /// Those that drain.
    pub(super) draining: usize,
    /// Of the others, those that are not open yet.
    pub(super) dialing: usize,
    /// Failures since a connection last stood for a while.
    pub(super) failures: u32,
    /// No attempt before.
    pub(super) next_dial_ns: u64,
    /// Why the last attempt failed, if the last one did.
    pub(super) last_failure: Option<String>,
    /// Connections that have been open.
    pub(super) opened: u64,
    /// When its health is asked for the next time.
    pub(super) next_check_ns: u64,
    /// When a check that is not answered has failed; `u64::MAX`: none runs.
    pub(super) check_give_up_ns: u64,
    /// Messages of the check that runs, and since when they are counted.
    pub(super) check_messages: u32,
    pub(super) check_counted_ns: u64,
    /// Failures of the health check in a row.
    pub(super) check_failures: u32,
}

impl EndpointState {
    pub(super) fn new(endpoint: PoolEndpoint, has_check: bool) -> EndpointState {
        EndpointState {
            endpoint,
            health: match has_check {
                true => EndpointHealth::Unknown,
                false => EndpointHealth::Healthy,
            },
            connections: 0,
            draining: 0,
            dialing: 0,
            failures: 0,
            next_dial_ns: 0,
            last_failure: None,
            opened: 0,
            next_check_ns: 0,
            check_give_up_ns: u64::MAX,
            check_messages: 0,
            check_counted_ns: 0,
            check_failures: 0,
        }
    }

    /// Notes that a connection could not be made, or ended soon after. The pause grows only with
    /// what was begun behind the one before: connections that were begun together, and fail
    /// together, are one failure.
    pub(super) fn failed(&mut self, reason: String, jitter: &mut Jitter, now_ns: u64) {
        if now_ns >= self.next_dial_ns {
            self.failures = self.failures.saturating_add(1);
            self.next_dial_ns = now_ns.saturating_add(jitter.vary(pause_ns(self.failures)));
        }
        self.last_failure = Some(reason);
    }

    /// Notes a message of the check that runs. Returns whether there are more than a server has to
    /// send: one for each change, of which there are some each second at most.
    pub(super) fn has_too_many_check_messages(&mut self, now_ns: u64) -> bool {
        let window_ns = limits::POOL_HEALTH_WINDOW.as_nanos() as u64;
        if now_ns.saturating_sub(self.check_counted_ns) >= window_ns {
            (self.check_messages, self.check_counted_ns) = (0, now_ns);
        }
        self.check_messages += 1;
        self.check_messages > limits::POOL_HEALTH_MESSAGES
    }

    /// Returns whether it may be back: its pause is over, and nobody has tried since.
    pub(super) fn may_be_tried(&self, now_ns: u64) -> bool {
        self.dialing == 0 && now_ns >= self.next_dial_ns && self.health != EndpointHealth::Unhealthy
    }

    /// Notes that a connection is open.
    pub(super) fn opened(&mut self) {
        self.last_failure = None;
        self.opened += 1;
    }

    /// Notes that a connection that was open has ended. `is_proven`: it was of use.
    pub(super) fn ended(
        &mut self,
        reason: &str,
        is_proven: bool,
        jitter: &mut Jitter,
        now_ns: u64,
    ) {
        if is_proven {
            self.failures = 0;
            self.next_dial_ns = now_ns;
        } else {
            self.failed(reason.into(), jitter, now_ns);
        }
    }
}
