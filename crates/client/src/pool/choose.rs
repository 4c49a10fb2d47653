//! Which connection of a pool a call takes.

use super::PoolEngine;
use super::connection::PoolStage;
use super::endpoint::EndpointHealth;
use super::options::{Balancing, PoolMode};

/// What a connection that cannot send now counts for, in calls: others are taken first, so that a
/// large upload delays no small call that can go elsewhere.
const BLOCKED_LOAD: u32 = 1 << 24;

impl PoolEngine {
    /// Returns the connection that the next call takes; `None`: none has room.
    pub(super) fn choose(&mut self) -> Option<u32> {
        let slot = match self.options.balancing {
            Balancing::LeastLoaded => self.least_loaded(None),
            Balancing::RoundRobin => self.of_next_endpoint(),
        }?;
        self.turn = slot + 1;
        Some(slot as u32)
    }

    fn of_next_endpoint(&mut self) -> Option<usize> {
        let count = self.endpoints.len();
        for step in 0..count {
            let endpoint = (self.endpoint_turn + step) % count;
            if let Some(slot) = self.least_loaded(Some(endpoint)) {
                self.endpoint_turn = (endpoint + 1) % count;
                return Some(slot);
            }
        }
        None
    }

    /// Returns the least loaded connection, to one endpoint or to any; equals take turns.
    fn least_loaded(&self, endpoint: Option<usize>) -> Option<usize> {
        let turn = self.turn.min(self.loads.len());
        let (before, behind) = self.loads.split_at(turn);
        let in_turn = (turn..).zip(behind).chain((0..).zip(before));
        let mut best: Option<(usize, u32)> = None;
        for (slot, &load) in in_turn {
            if load < best.map_or(u32::MAX, |(_, least)| least)
                && endpoint.is_none_or(|wanted| self.connections[slot].endpoint == wanted)
            {
                best = Some((slot, load));
            }
        }
        best.map(|(slot, _)| slot)
    }

    /// Computes anew how loaded a connection is.
    pub(super) fn refresh(&mut self, slot: u32) {
        let connection = &self.connections[slot as usize];
        let is_usable = connection.stage == PoolStage::Open
            && self.endpoints[connection.endpoint].health == EndpointHealth::Healthy
            && connection.room(self.max_calls(connection.begun)) > 0;
        let load = if !is_usable {
            u32::MAX
        } else {
            let blocked = match connection.is_blocked || connection.is_shut {
                true => BLOCKED_LOAD,
                false => 0,
            };
            (connection.in_flight as u32).saturating_add(blocked)
        };
        self.loads[slot as usize] = load;
    }

    /// How many calls may be in flight on a connection on which so many have begun.
    pub(super) fn max_calls(&self, begun: u64) -> usize {
        match self.options.mode {
            PoolMode::Multiplexed => self.options.max_calls_per_connection,
            PoolMode::Exclusive => 1,
            PoolMode::Short => usize::from(begun == 0),
        }
    }

    /// Returns whether a connection is open to an address that is known to serve.
    pub(super) fn has_serving_connection(&self) -> bool {
        let mut connections = self.connections.iter();
        connections.any(|connection| {
            connection.stage == PoolStage::Open
                && self.endpoints[connection.endpoint].health == EndpointHealth::Healthy
        })
    }

    /// Returns why no call can begin, if each address has failed, or does not serve.
    pub(super) fn unreachable(&self, now_ns: u64) -> Option<String> {
        let is_of_use = |slot: usize| {
            let connection = &self.connections[slot];
            connection.stage == PoolStage::Open
                && self.endpoints[connection.endpoint].health != EndpointHealth::Unhealthy
        };
        if (0..self.connections.len()).any(is_of_use) {
            return None;
        }
        let mut reason = None;
        for state in &self.endpoints {
            if self.is_dialed_for_calls() && state.may_be_tried(now_ns) {
                return None;
            }
            let failure = match (&state.last_failure, state.health) {
                (Some(failure), _) => failure.clone(),
                (None, EndpointHealth::Unhealthy) => {
                    format!("{} is not serving", state.endpoint.name)
                }
                _ => return None,
            };
            reason.get_or_insert(failure);
        }
        Some(reason.unwrap_or_else(|| "the pool has no address".into()))
    }
}
