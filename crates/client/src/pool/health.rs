//! Whether addresses serve, by `grpc.health.v1.Health`
//! (<https://github.com/grpc/grpc/blob/master/doc/health-checking.md>).

use api::health::{HealthCheckRequest, HealthCheckResponse, ServingStatus};
use wire::grpc::Code;

use super::PoolEngine;
use super::backoff::pause_ns;
use super::connection::{PoolConnection, PoolStage};
use super::endpoint::EndpointHealth;
use crate::core::{CallEventKind, CallRequest};
use crate::credentials::Credentials;
use crate::limits;

const CHECK: &str = "/grpc.health.v1.Health/Check";
const WATCH: &str = "/grpc.health.v1.Health/Watch";

impl PoolEngine {
    /// A connection is new: what is known of its address is asked for over it, if over no other.
    pub(super) fn check_health_now(&mut self, slot: u32, now_ns: u64) {
        let endpoint = self.connections[slot as usize].endpoint;
        let state = &mut self.endpoints[endpoint];
        if state.next_check_ns == u64::MAX {
            state.next_check_ns = now_ns;
        }
        self.check_endpoint(endpoint, now_ns);
    }

    /// Asks the addresses whose turn it is, and gives up what was not answered.
    pub(super) fn check_healths(&mut self, now_ns: u64) {
        for endpoint in 0..self.endpoints.len() {
            if self.endpoints[endpoint].check_give_up_ns <= now_ns {
                if let Some(slot) = self.checker(endpoint) {
                    self.stop_health_check(slot);
                }
                self.check_failed(endpoint, now_ns);
            }
            self.check_endpoint(endpoint, now_ns);
        }
    }

    /// Returns the connection over which an address is being asked.
    fn checker(&self, endpoint: usize) -> Option<u32> {
        let is_checker = |slot: &u32| {
            let connection = &self.connections[*slot as usize];
            connection.endpoint == endpoint && connection.health_stream.is_some()
        };
        (0..self.connections.len() as u32).find(is_checker)
    }

    fn check_endpoint(&mut self, endpoint: usize, now_ns: u64) {
        let Some(check) = &self.options.health else {
            return;
        };
        if self.endpoints[endpoint].next_check_ns > now_ns || self.checker(endpoint).is_some() {
            return;
        }
        let may_ask = |slot: &u32| {
            let connection = &self.connections[*slot as usize];
            connection.endpoint == endpoint
                && connection.stage == PoolStage::Open
                && connection.room(usize::MAX) > 0
        };
        let Some(slot) = (0..self.connections.len() as u32).find(may_ask) else {
            return;
        };
        let state = &mut self.endpoints[endpoint];
        let timeout_ns = limits::POOL_HEALTH_TIMEOUT.as_nanos() as u64;
        let connection = &mut self.connections[slot as usize];
        let Some(core) = connection.core.as_mut() else {
            return;
        };
        let opened = core.open(&CallRequest {
            path: if check.interval.is_some() {
                CHECK
            } else {
                WATCH
            },
            authority: &state.endpoint.authority,
            timeout_ns: check.interval.map(|_| timeout_ns),
            metadata: self.options.credentials.as_ref().map(Credentials::metadata),
            gzip: false,
            accepts_gzip: true,
        });
        if let Ok(stream) = opened {
            core.send_with(stream, true, |out| {
                let service = &check.service;
                HealthCheckRequest { service }.encode(out);
            });
            connection.health_stream = Some(stream);
            state.check_give_up_ns = now_ns.saturating_add(timeout_ns);
            self.touch(slot);
            self.refresh(slot);
        }
    }

    /// Gives up asking over a connection; another is asked.
    pub(super) fn stop_health_check(&mut self, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        if let Some(stream) = connection.health_stream.take() {
            let state = &mut self.endpoints[connection.endpoint];
            state.check_give_up_ns = u64::MAX;
            if let Some(core) = connection.core.as_mut() {
                core.cancel(stream);
            }
            self.touch(slot);
        }
    }

    /// An address that does not serve and over which nobody can ask any more may serve by now: a
    /// connection has to be made to find out, and none is made to an address known not to serve.
    pub(super) fn forget_unwatched_health(&mut self, endpoint: usize) {
        let is_open = |connection: &PoolConnection| {
            connection.endpoint == endpoint && connection.stage == PoolStage::Open
        };
        let state = &mut self.endpoints[endpoint];
        if state.health == EndpointHealth::Unhealthy && !self.connections.iter().any(is_open) {
            state.health = EndpointHealth::Unknown;
            state.next_check_ns = 0;
            self.needs_balance = true;
        }
    }

    /// Something happened to the stream of a health check.
    pub(super) fn note_health(&mut self, slot: u32, kind: CallEventKind, now_ns: u64) {
        let connection = &mut self.connections[slot as usize];
        let endpoint = connection.endpoint;
        match kind {
            CallEventKind::Message => {
                let (Some(core), Some(stream)) =
                    (connection.core.as_mut(), connection.health_stream)
                else {
                    return;
                };
                let is_serving = is_serving(core.message());
                core.release(stream);
                let state = &mut self.endpoints[endpoint];
                if state.has_too_many_check_messages(now_ns) {
                    // An address that keeps its callers at work serves none of them well.
                    self.stop_health_check(slot);
                    self.check_failed(endpoint, now_ns);
                    return;
                }
                state.check_give_up_ns = u64::MAX;
                state.check_failures = 0;
                self.set_health(endpoint, is_serving);
            }
            CallEventKind::Head { .. } | CallEventKind::Writable => {}
            ended => {
                connection.health_stream = None;
                self.endpoints[endpoint].check_give_up_ns = u64::MAX;
                self.note_check_end(endpoint, &ended, now_ns);
                self.refresh(slot);
            }
        }
    }

    fn note_check_end(&mut self, endpoint: usize, end: &CallEventKind, now_ns: u64) {
        let interval = self
            .options
            .health
            .as_ref()
            .and_then(|check| check.interval);
        match end {
            CallEventKind::Ended(status) if status.code() == Code::Unimplemented => {
                // Not asked again before there is another connection.
                self.endpoints[endpoint].next_check_ns = u64::MAX;
                self.set_health(endpoint, true);
            }
            CallEventKind::Ended(status) if status.is_ok() => {
                let first_ns = limits::POOL_FIRST_BACKOFF.as_nanos() as u64;
                let pause_ns = interval.map_or(first_ns, |interval| {
                    u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX)
                });
                self.endpoints[endpoint].next_check_ns = now_ns.saturating_add(pause_ns);
            }
            // Its connection ends, or refused it: that says nothing of the server.
            CallEventKind::Lost { .. } | CallEventKind::NotBegun => {
                let first_ns = limits::POOL_FIRST_BACKOFF.as_nanos() as u64;
                self.endpoints[endpoint].next_check_ns = now_ns.saturating_add(first_ns);
            }
            _ => self.check_failed(endpoint, now_ns),
        }
    }

    fn check_failed(&mut self, endpoint: usize, now_ns: u64) {
        let state = &mut self.endpoints[endpoint];
        state.check_failures = state.check_failures.saturating_add(1);
        state.check_give_up_ns = u64::MAX;
        let pause_ns = self.jitter.vary(pause_ns(state.check_failures));
        state.next_check_ns = now_ns.saturating_add(pause_ns);
        self.set_health(endpoint, false);
    }

    fn set_health(&mut self, endpoint: usize, is_healthy: bool) {
        let health = match is_healthy {
            true => EndpointHealth::Healthy,
            false => EndpointHealth::Unhealthy,
        };
        if std::mem::replace(&mut self.endpoints[endpoint].health, health) != health {
            for slot in 0..self.connections.len() as u32 {
                self.refresh(slot);
            }
            self.needs_balance = true;
        }
    }
}

/// Returns whether a `HealthCheckResponse` says SERVING.
fn is_serving(message: &[u8]) -> bool {
    HealthCheckResponse::decode(message)
        .is_ok_and(|response| response.status == ServingStatus::Serving as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_serving_is_serving() {
        // The last value of a field counts, and fields that are not known are passed over.
        for serving in [&[8, 1][..], &[8, 2, 8, 1], &[16, 5, 8, 1], &[8, 0x81, 0]] {
            assert!(is_serving(serving), "{serving:?}");
        }
        for other in [
            &[][..],
            &[8, 0],
            &[8, 2],
            &[8, 3],
            &[8],
            &[1, 8],
            &[8, 1, 8, 2],
        ] {
            assert!(!is_serving(other), "{other:?}");
        }
    }
}
