//! The end of a loop's work: peers are told, what runs ends with a status.

use drive::Io;

use crate::admission;
use crate::calls::CallId;
use crate::connection::{Channel, Protocol};
use crate::core::Core;
use crate::limits;

/// A loop that drains.
pub(crate) struct Drain {
    /// Calls that still run then are ended.
    patience_until_ns: u64,
}

impl Core {
    /// From now on nothing new begins.
    pub(crate) fn begin_drain(&mut self, now_ns: u64) {
        let patience_ms = limits::DRAIN_PATIENCE_MS.min(self.settings.drain_ms / 2);
        self.drain = Some(Drain {
            patience_until_ns: now_ns + patience_ms * 1_000_000,
        });
        self.shared.health.stop();
    }

    pub(crate) fn drain_connection(&mut self, channel: &mut Channel, io: &mut Io, now_ns: u64) {
        match &mut channel.protocol {
            Protocol::Http2(connection) => connection.drain(&mut io.output, now_ns),
            Protocol::Undecided | Protocol::Over => io.close_when_written(),
        }
    }

    /// The calls that outstayed the patience of a drain. Empty while nothing drains.
    pub(crate) fn overstayed(&self, now_ns: u64) -> Vec<CallId> {
        match &self.drain {
            Some(drain) if now_ns >= drain.patience_until_ns => self.calls.ids().collect(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn drain_deadline_ns(&self) -> Option<u64> {
        let drain = self.drain.as_ref()?;
        (self.calls.len() > 0).then_some(drain.patience_until_ns)
    }

    pub(crate) fn end_for_stop(&mut self, channel: &mut Channel, io: &mut Io, id: CallId) {
        self.end(channel, io, id, admission::stopping());
    }
}
