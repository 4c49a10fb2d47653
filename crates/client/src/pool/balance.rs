//! How many connections a pool has: when one is opened, and when one is closed.

use super::PoolEngine;
use super::connection::{PoolConnection, PoolStage};
use super::endpoint::EndpointHealth;
use super::event::PoolAction;
use super::options::{PoolMode, PoolSize};
use super::waiting::WaitCause;
use crate::limits;

impl PoolEngine {
    /// Opens the connections that are missing, and those that are of use beyond them.
    pub(super) fn balance(&mut self, now_ns: u64) {
        self.needs_balance = false;
        if self.close_ns.is_some() {
            return self.close_unused(now_ns);
        }
        for endpoint in 0..self.endpoints.len() {
            while self.endpoints[endpoint].connections < self.kept_connections()
                && self.may_dial(endpoint, now_ns)
            {
                self.dial(endpoint, now_ns);
            }
            let state = &self.endpoints[endpoint];
            if state.next_dial_ns > now_ns && state.connections < self.options.size.max() {
                self.next_timers_ns = self.next_timers_ns.min(state.next_dial_ns);
            }
        }
        for _ in 0..self.missing_connections(now_ns) {
            let Some(endpoint) = self.endpoint_to_grow(now_ns) else {
                break;
            };
            self.dial(endpoint, now_ns);
        }
        self.has_saturated = false;
    }

    /// Connections to each address that exist whether they are of use or not.
    fn kept_connections(&self) -> usize {
        match self.options.mode {
            PoolMode::Multiplexed | PoolMode::Exclusive => self.options.size.min(),
            PoolMode::Short => 0,
        }
    }

    /// Returns whether no connection is made before a call waits for it: then calls have to wait
    /// where an address has failed and may be back, or nobody would ever find out.
    pub(super) fn is_dialed_for_calls(&self) -> bool {
        self.kept_connections() == 0
    }

    /// How many further connections the calls that wait could use.
    fn missing_connections(&self, now_ns: u64) -> usize {
        let queued = self.waiting.queued();
        let lacks_room = queued > 0 && self.has_permit();
        if !lacks_room && !self.has_saturated {
            return 0;
        }
        let connections = self.connections.iter();
        let expected = connections
            .filter(|connection| self.expects_room(connection, now_ns))
            .count();
        match self.options.mode {
            PoolMode::Multiplexed => usize::from(expected == 0),
            PoolMode::Exclusive | PoolMode::Short if lacks_room => {
                let permits = self.options.max_in_flight - self.in_flight;
                let unused = self.loads.iter().filter(|&&load| load != u32::MAX).count();
                queued.min(permits).saturating_sub(expected + unused)
            }
            PoolMode::Exclusive | PoolMode::Short => 0,
        }
    }

    /// Returns whether a connection will soon take calls, as far as anybody knows: it is being
    /// made, or its address is being asked whether it serves, and that does not last for long.
    fn expects_room(&self, connection: &PoolConnection, now_ns: u64) -> bool {
        let state = &self.endpoints[connection.endpoint];
        let is_pending = match connection.stage {
            PoolStage::Dialing | PoolStage::Greeting => state.last_failure.is_none(),
            PoolStage::Open => state.health == EndpointHealth::Unknown,
            PoolStage::Vacant | PoolStage::Draining => false,
        };
        is_pending && !connection.is_overdue(now_ns)
    }

    /// Returns whether a further connection to an address would get no further than those there
    /// are: one is being made for too long, waits for the address to serve, or takes no call
    /// though it has none.
    fn is_growth_vain(&self, endpoint: usize, now_ns: u64) -> bool {
        let is_unknown = self.endpoints[endpoint].health == EndpointHealth::Unknown;
        let mut connections = self.connections.iter().zip(&self.loads);
        connections.any(|(connection, &load)| {
            connection.endpoint == endpoint
                && match connection.stage {
                    PoolStage::Dialing | PoolStage::Greeting => connection.is_overdue(now_ns),
                    PoolStage::Open => is_unknown || load == u32::MAX && connection.is_unused(),
                    PoolStage::Vacant | PoolStage::Draining => false,
                }
        })
    }

    /// Returns the address that gets the next connection: that with the fewest.
    fn endpoint_to_grow(&self, now_ns: u64) -> Option<usize> {
        (0..self.endpoints.len())
            .filter(|&endpoint| {
                let state = &self.endpoints[endpoint];
                state.connections < self.options.size.max()
                    && state.health != EndpointHealth::Unhealthy
                    && self.may_dial(endpoint, now_ns)
                    && !self.is_growth_vain(endpoint, now_ns)
            })
            .min_by_key(|&endpoint| self.endpoints[endpoint].connections)
    }

    fn may_dial(&self, endpoint: usize, now_ns: u64) -> bool {
        let state = &self.endpoints[endpoint];
        now_ns >= state.next_dial_ns
            // After a failure one attempt is enough to see whether it is over.
            && (state.last_failure.is_none() || state.dialing == 0)
            && state.draining <= self.max_draining()
    }

    /// Connections to one address that may drain before none is opened in their place.
    pub(super) fn max_draining(&self) -> usize {
        self.options.size.max().max(limits::POOL_DRAINING)
    }

    fn dial(&mut self, endpoint: usize, now_ns: u64) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.connections.push(PoolConnection::default());
            self.loads.push(u32::MAX);
            // Bounded by the addresses and the connections to each.
            self.connections.len() as u32 - 1
        });
        let config = self.config();
        let timeout_ns = u64::try_from(self.options.connect_timeout.as_nanos());
        let is_for_calls = self.is_dialed_for_calls();
        let give_up_ns = now_ns.saturating_add(timeout_ns.unwrap_or(u64::MAX));
        let connection = &mut self.connections[slot as usize];
        connection.occupy(endpoint, &config, now_ns, give_up_ns);
        let key = connection.key(slot);
        let state = &mut self.endpoints[endpoint];
        state.connections += 1;
        state.dialing += 1;
        if is_for_calls {
            // Those that wait for it are not to end with the failure before.
            state.last_failure = None;
        }
        self.counters.dials += 1;
        self.next_timers_ns = self.next_timers_ns.min(give_up_ns);
        self.actions.push_back(PoolAction::Dial {
            connection: key,
            endpoint,
        });
    }

    /// The server has said what it allows.
    pub(super) fn open_connection(&mut self, slot: u32, now_ns: u64) {
        let connection = &mut self.connections[slot as usize];
        connection.stage = PoolStage::Open;
        connection.opened_ns = now_ns;
        let state = &mut self.endpoints[connection.endpoint];
        state.dialing -= 1;
        state.opened();
        self.counters.opened += 1;
        self.check_health_now(slot, now_ns);
        self.needs_balance = true;
    }

    /// Lets no more calls begin on a connection; another takes its place.
    pub(super) fn drain_connection(&mut self, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        let state = &mut self.endpoints[connection.endpoint];
        match connection.stage {
            PoolStage::Greeting => state.dialing -= 1,
            PoolStage::Open => {}
            PoolStage::Vacant | PoolStage::Dialing | PoolStage::Draining => return,
        }
        connection.stage = PoolStage::Draining;
        state.connections -= 1;
        state.draining += 1;
        let endpoint = connection.endpoint;
        self.stop_health_check(slot);
        self.forget_unwatched_health(endpoint);
        self.needs_balance = true;
        self.retire_if_over(slot);
        self.refresh(slot);
    }

    /// Closes a connection that has no calls and gets no more.
    pub(super) fn retire_if_over(&mut self, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        if connection.in_flight > 0 {
            return;
        }
        let is_over = match connection.stage {
            PoolStage::Draining => true,
            PoolStage::Open => self.options.mode == PoolMode::Short && connection.begun > 0,
            PoolStage::Vacant | PoolStage::Dialing | PoolStage::Greeting => false,
        };
        if is_over {
            let key = connection.key(slot);
            self.retired.push(key);
        }
    }

    /// Closes the connections that have been retired.
    pub(super) fn close_retired(&mut self, now_ns: u64) {
        while let Some(key) = self.retired.pop() {
            if let Some(connection) = self.connection(key)
                && connection.in_flight == 0
            {
                let unsent = connection.core.as_mut().map(|core| core.output());
                let unsent = unsent.map(std::mem::take).unwrap_or_default();
                self.close_connection(key.slot, unsent, now_ns);
            }
        }
    }

    /// Frees the slot of a connection, and has its socket closed.
    pub(super) fn close_connection(&mut self, slot: u32, unsent: Vec<u8>, now_ns: u64) {
        self.stop_health_check(slot);
        let connection = &mut self.connections[slot as usize];
        debug_assert_eq!(connection.in_flight, 0, "its calls have ended");
        let state = &mut self.endpoints[connection.endpoint];
        let was_open = matches!(connection.stage, PoolStage::Open | PoolStage::Draining);
        match connection.stage {
            PoolStage::Vacant => return,
            PoolStage::Dialing | PoolStage::Greeting => {
                state.connections -= 1;
                state.dialing -= 1;
            }
            PoolStage::Open => state.connections -= 1,
            PoolStage::Draining => state.draining -= 1,
        }
        let (key, endpoint) = (connection.key(slot), connection.endpoint);
        self.past_traffic.add(&connection.traffic.until(now_ns));
        connection.vacate();
        self.forget_unwatched_health(endpoint);
        self.loads[slot as usize] = u32::MAX;
        self.free.push(slot);
        self.needs_balance = true;
        self.actions.push_back(PoolAction::Close {
            connection: key,
            unsent,
            was_open,
        });
    }

    /// Closes all connections without calls: the pool was closed.
    fn close_unused(&mut self, now_ns: u64) {
        for slot in 0..self.connections.len() as u32 {
            let connection = &self.connections[slot as usize];
            if connection.stage != PoolStage::Vacant && connection.in_flight == 0 {
                let key = connection.key(slot);
                self.retired.push(key);
            }
        }
        self.close_retired(now_ns);
        self.needs_balance = false;
    }

    /// Does what is due in seconds.
    pub(super) fn pass_timers(&mut self, now_ns: u64) {
        let grain_ns = limits::POOL_TIMER_GRAIN.as_nanos() as u64;
        let mut next_ns = u64::MAX;
        for slot in 0..self.connections.len() as u32 {
            next_ns = next_ns.min(self.pass_connection_timers(slot, now_ns));
        }
        let tick_ns = now_ns + 10 * grain_ns;
        self.next_timers_ns = next_ns.min(tick_ns).max(now_ns + grain_ns);
        self.look_at_busy_times(now_ns);
        self.check_healths(now_ns);
        self.shrink(now_ns);
        self.needs_balance = true;
        let has_calls = self.in_flight > 0 || self.waiting.len() > 0 || self.has_begun;
        // Health checks have times of their own.
        self.is_idle = !has_calls && self.options.health.is_none() && self.close_ns.is_none();
        self.has_begun = false;
        if self.is_idle {
            self.next_timers_ns = next_ns.min(self.idle_due_ns()).max(now_ns + grain_ns);
        }
    }

    /// Returns when something is due for a pool without calls, beside its connections' own timers.
    fn idle_due_ns(&self) -> u64 {
        match self.has_spare_connections() {
            true => self.peak_since_ns.saturating_add(self.idle_timeout_ns()),
            false => u64::MAX,
        }
    }

    /// Returns whether there are connections that are closed when they are of no use.
    fn has_spare_connections(&self) -> bool {
        let connections = self.connections.len() - self.free.len();
        !self.is_size_fixed() && connections > self.kept_in_all()
    }

    /// A call begins in a pool that has slept: its timers go on.
    pub(super) fn wake_timers(&mut self, now_ns: u64) {
        let tick_ns = 10 * limits::POOL_TIMER_GRAIN.as_nanos() as u64;
        self.is_idle = false;
        self.next_timers_ns = self.next_timers_ns.min(now_ns + tick_ns);
        self.busy_since_ns = now_ns;
        // A call now and then does not put off the closing of connections that it does not need.
        if !self.has_spare_connections() {
            self.peak_since_ns = now_ns;
        }
    }

    /// Does what is due for a connection, and returns when something is next.
    fn pass_connection_timers(&mut self, slot: u32, now_ns: u64) -> u64 {
        let connection = &mut self.connections[slot as usize];
        let key = connection.key(slot);
        let is_connecting = matches!(connection.stage, PoolStage::Dialing | PoolStage::Greeting);
        if is_connecting && connection.give_up_ns <= now_ns {
            let what = match connection.stage {
                PoolStage::Dialing => "it could not be connected to in time",
                _ => "it did not begin with HTTP/2 in time; is the address right?",
            };
            self.lost.push((key, what.into()));
            return u64::MAX;
        }
        let give_up_ns = if is_connecting {
            connection.give_up_ns
        } else {
            u64::MAX
        };
        let has_socket = connection.has_socket();
        let Some(core) = connection.core.as_mut().filter(|_| has_socket) else {
            return give_up_ns;
        };
        if core.next_deadline_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            core.deadline_passed(now_ns);
            self.mark_eventful(slot);
            return now_ns;
        }
        core.next_deadline_ns().unwrap_or(u64::MAX).min(give_up_ns)
    }

    /// Finds out whether the work for one connection saturates a core.
    fn look_at_busy_times(&mut self, now_ns: u64) {
        let window_ns = now_ns.saturating_sub(self.busy_since_ns);
        if window_ns < limits::POOL_BUSY_WINDOW.as_nanos() as u64 {
            return;
        }
        self.busy_since_ns = now_ns;
        for connection in &mut self.connections {
            let busy_ns = std::mem::take(&mut connection.busy_ns);
            let percent = busy_ns.saturating_mul(100) / window_ns;
            self.peak_busy_percent = self.peak_busy_percent.max(percent);
            self.has_saturated |=
                connection.stage == PoolStage::Open && percent >= limits::POOL_BUSY_PERCENT;
        }
    }

    /// Closes a connection that has not been needed for a while, of those beyond the smallest
    /// number.
    fn shrink(&mut self, now_ns: u64) {
        if self.is_size_fixed() {
            return;
        }
        if now_ns.saturating_sub(self.peak_since_ns) < self.idle_timeout_ns() {
            return;
        }
        let peak = std::mem::replace(&mut self.peak_in_flight, self.in_flight);
        let busy_percent = std::mem::take(&mut self.peak_busy_percent);
        self.peak_since_ns = now_ns;
        if busy_percent >= limits::POOL_BUSY_PERCENT / 2 || self.waiting.queued() > 0 {
            return;
        }
        let mut room: usize = (0..self.connections.len())
            .map(|slot| self.capacity(slot))
            .sum();
        for endpoint in 0..self.endpoints.len() {
            while self.endpoints[endpoint].connections > self.kept_connections() {
                let Some(slot) = self.least_used(endpoint) else {
                    break;
                };
                room = room.saturating_sub(self.capacity(slot));
                // Half of the room is to stay free: what comes and goes needs no new connection.
                if room < 2 * peak && self.connections[slot].in_flight + peak > 0 {
                    return;
                }
                self.drain_connection(slot as u32);
            }
        }
    }

    /// Returns whether no connection is ever closed for being of no use.
    fn is_size_fixed(&self) -> bool {
        let is_fixed = matches!(self.options.size, PoolSize::Fixed(_));
        is_fixed && self.options.mode != PoolMode::Short
    }

    fn idle_timeout_ns(&self) -> u64 {
        u64::try_from(self.options.idle_timeout.as_nanos()).unwrap_or(u64::MAX)
    }

    /// How many connections exist whether they are of use or not.
    fn kept_in_all(&self) -> usize {
        self.kept_connections() * self.endpoints.len()
    }

    /// How many calls a connection takes in all.
    fn capacity(&self, slot: usize) -> usize {
        let connection = &self.connections[slot];
        match self.options.mode {
            _ if connection.stage != PoolStage::Open => 0,
            PoolMode::Multiplexed => {
                let max_calls = self.options.max_calls_per_connection;
                connection.room(max_calls) + connection.in_flight
            }
            PoolMode::Exclusive | PoolMode::Short => 1,
        }
    }

    fn least_used(&self, endpoint: usize) -> Option<usize> {
        (0..self.connections.len())
            .filter(|&slot| {
                let connection = &self.connections[slot];
                connection.stage == PoolStage::Open && connection.endpoint == endpoint
            })
            .min_by_key(|&slot| self.connections[slot].in_flight)
    }

    /// Finds out why calls wait.
    pub(super) fn note_waiting(&mut self, now_ns: u64) {
        if self.waiting.queued() > 0 {
            self.waiting.count_time(now_ns);
            let cause: WaitCause = self.wait_cause();
            self.waiting.set_cause(cause);
        }
    }
}
