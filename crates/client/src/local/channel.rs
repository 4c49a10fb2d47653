//! One connection of a `Local`.

use net::ConnectionId;
use net::tls::TlsPipe;

use super::carrier::Carrier;
use super::happened::ChannelKey;
use crate::dialing::DialAttempt;
use crate::pool::ConnectionTraffic;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// There is none.
    Vacant,
    /// The socket is connecting.
    Dialing,
    /// The server has not said yet what it allows.
    Greeting,
    /// Calls may begin.
    Open,
}

/// A place for a connection.
#[derive(Debug)]
pub(super) struct LocalChannel {
    pub(super) stage: Stage,
    pub(super) generation: u32,
    pub(super) carrier: Option<Carrier>,
    pub(super) socket: Option<ConnectionId>,
    /// Between the two, once the socket stands.
    pub(super) tls: Option<TlsPipe>,
    pub(super) attempt: DialAttempt,
    /// While dialing or greeting.
    pub(super) give_up_ns: u64,
    /// Stands in the list of those with output.
    pub(super) is_dirty: bool,
    /// The last write was short: nothing is written until the socket takes bytes again.
    pub(super) is_blocked: bool,
    /// How long it waits for what.
    pub(super) waits: ConnectionTraffic,
    pub(super) has_received: bool,
}

impl LocalChannel {
    pub(super) fn vacant() -> LocalChannel {
        LocalChannel {
            stage: Stage::Vacant,
            generation: 0,
            carrier: None,
            socket: None,
            tls: None,
            attempt: DialAttempt::default(),
            give_up_ns: 0,
            is_dirty: false,
            is_blocked: false,
            waits: ConnectionTraffic::default(),
            has_received: false,
        }
    }

    pub(super) fn occupy(&mut self, carrier: Carrier, give_up_ns: u64) {
        debug_assert_eq!(self.stage, Stage::Vacant);
        *self = LocalChannel {
            stage: Stage::Dialing,
            carrier: Some(carrier),
            give_up_ns,
            // It may still stand in the list under its former name, which only costs a look.
            is_dirty: self.is_dirty,
            generation: self.generation,
            ..LocalChannel::vacant()
        };
    }

    /// Frees the place. Its name is never given again.
    pub(super) fn vacate(&mut self) {
        *self = LocalChannel {
            is_dirty: self.is_dirty,
            generation: self.generation.wrapping_add(1),
            ..LocalChannel::vacant()
        };
    }

    pub(super) fn key(&self, slot: u32) -> ChannelKey {
        ChannelKey {
            slot,
            generation: self.generation,
        }
    }

    pub(super) fn is(&self, key: ChannelKey) -> bool {
        self.stage != Stage::Vacant && self.generation == key.generation
    }
}
