//! One connection of a pool.

use wire::StreamKey;

use super::event::PoolConnectionKey;
use super::traffic::ConnectionTraffic;
use crate::core::Core;
use crate::limits;
use crate::taken_at_once::TakenAtOnce;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolStage {
    /// The slot is free.
    #[default]
    Vacant,
    /// The driver connects.
    Dialing,
    /// The server has not said yet what it allows.
    Greeting,
    /// Calls may begin.
    Open,
    /// No calls begin; those that run go on.
    Draining,
}

/// A connection, or a free slot for one.
#[derive(Debug, Default)]
pub(super) struct PoolConnection {
    pub(super) stage: PoolStage,
    pub(super) generation: u32,
    pub(super) core: Option<Core>,
    /// The number of its endpoint.
    pub(super) endpoint: usize,
    /// When it was begun.
    pub(super) dialed_ns: u64,
    /// While dialing or greeting.
    pub(super) give_up_ns: u64,
    /// When it became open.
    pub(super) opened_ns: u64,
    /// When something last came.
    pub(super) received_ns: u64,
    /// A call has succeeded on it.
    pub(super) has_succeeded: bool,
    pub(super) in_flight: usize,
    taken_at_once: TakenAtOnce,
    /// It has refused the only call on it, and takes none for a moment.
    pub(super) is_paused: bool,
    /// Calls that have begun on it.
    pub(super) begun: u64,
    /// The stream of its health check.
    pub(super) health_stream: Option<StreamKey>,
    /// Stands in the list of those with output.
    pub(super) is_dirty: bool,
    /// Stands in the list of those with events.
    pub(super) is_eventful: bool,
    /// The last write was short: nothing is written until the socket takes bytes again.
    pub(super) is_blocked: bool,
    /// Something waits for the server's flow-control windows.
    pub(super) is_shut: bool,
    pub(super) has_received: bool,
    pub(super) traffic: ConnectionTraffic,
    /// The driver's work for it in the current window.
    pub(super) busy_ns: u64,
}

impl PoolConnection {
    pub(super) fn occupy(
        &mut self,
        endpoint: usize,
        config: &wire::Config,
        now_ns: u64,
        give_up_ns: u64,
    ) {
        debug_assert_eq!(self.stage, PoolStage::Vacant);
        *self = PoolConnection {
            stage: PoolStage::Dialing,
            core: Some(Core::new(config, now_ns)),
            endpoint,
            dialed_ns: now_ns,
            give_up_ns,
            generation: self.generation,
            // It may still stand in the lists under its former name, which only costs a look.
            is_dirty: self.is_dirty,
            is_eventful: self.is_eventful,
            ..PoolConnection::default()
        };
    }

    /// Frees the slot. Its name is never given again.
    pub(super) fn vacate(&mut self) {
        *self = PoolConnection {
            generation: self.generation.wrapping_add(1),
            is_dirty: self.is_dirty,
            is_eventful: self.is_eventful,
            ..PoolConnection::default()
        };
    }

    pub(super) fn key(&self, slot: u32) -> PoolConnectionKey {
        PoolConnectionKey {
            slot,
            generation: self.generation,
        }
    }

    pub(super) fn is(&self, key: PoolConnectionKey) -> bool {
        self.stage != PoolStage::Vacant && self.generation == key.generation
    }

    /// Returns whether its end is no sign that its server is not to be called again at once.
    pub(super) fn is_proven(&self, now_ns: u64) -> bool {
        let life_ns = now_ns.saturating_sub(self.opened_ns);
        self.has_succeeded || life_ns >= limits::POOL_PROVEN_LIFE.as_nanos() as u64
    }

    /// Returns whether it was begun so long ago that nobody counts on it any more.
    pub(super) fn is_overdue(&self, now_ns: u64) -> bool {
        let age_ns = now_ns.saturating_sub(self.dialed_ns);
        age_ns >= limits::POOL_SILENCE.as_nanos() as u64
    }

    /// Notes that a call on it, which is still counted, has ended. Returns whether it was `refused`
    /// because of others, and then how long it waits: it is as if it had never been sent.
    pub(super) fn note_end(&mut self, refused: bool, now_ns: u64) -> Option<u64> {
        let beside = self.in_flight.saturating_sub(1);
        match refused {
            true => self.taken_at_once.refused(beside, now_ns),
            false => {
                self.taken_at_once.ended(now_ns);
                None
            }
        }
    }

    /// Returns how often a call may be refused because of others and count as not sent.
    pub(super) fn free_refusals(&self) -> u32 {
        match self.taken_at_once.has_ended() {
            true => limits::POOL_FREE_REFUSALS,
            false => limits::POOL_FIRST_FREE_REFUSALS,
        }
    }

    /// Returns whether it has no stream, that of a health check included.
    pub(super) fn is_unused(&self) -> bool {
        self.in_flight == 0 && self.health_stream.is_none()
    }

    /// Bytes can be written: the socket stands.
    pub(super) fn has_socket(&self) -> bool {
        !matches!(self.stage, PoolStage::Vacant | PoolStage::Dialing)
    }

    /// Returns how many further calls may begin on it now.
    pub(super) fn room(&self, max_calls: usize) -> usize {
        match (&self.core, self.stage) {
            (Some(core), PoolStage::Open) if !self.is_paused => core
                .calls_left()
                .min(max_calls.saturating_sub(self.in_flight))
                .min(self.taken_at_once.room(self.in_flight)),
            _ => 0,
        }
    }
}
