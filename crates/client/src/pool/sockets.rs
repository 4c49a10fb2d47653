//! What the driver of a pool reports of sockets, and what it takes for them.

use super::PoolEngine;
use super::connection::PoolStage;
use super::event::{PoolAction, PoolConnectionKey, PoolEvent};
use crate::channel::foreign_greeting;

impl PoolEngine {
    /// Returns what the driver has to do next.
    pub fn next_action(&mut self) -> Option<PoolAction> {
        self.actions.pop_front()
    }

    /// A connection that was dialed stands, TLS included.
    pub fn connected(&mut self, connection: PoolConnectionKey, _now_ns: u64) {
        if let Some(found) = self.connection(connection)
            && found.stage == PoolStage::Dialing
        {
            found.stage = PoolStage::Greeting;
            self.touch(connection.slot);
        }
    }

    /// A connection could not be made, or has ended; `reason` is for people.
    pub fn disconnected(&mut self, connection: PoolConnectionKey, reason: &str, _now_ns: u64) {
        if self.connection(connection).is_some() {
            self.lost.push((connection, reason.into()));
        }
    }

    /// Takes bytes that came, without TLS. What they mean is reported by the next poll.
    pub fn received(&mut self, connection: PoolConnectionKey, bytes: &[u8], now_ns: u64) {
        let Some(found) = self
            .connection(connection)
            .filter(|found| found.has_socket())
        else {
            return;
        };
        found.traffic.bytes_in += bytes.len() as u64;
        found.traffic.reads += 1;
        found.received_ns = now_ns;
        let is_first = !std::mem::replace(&mut found.has_received, true);
        if let Some(reason) = foreign_greeting(bytes).filter(|_| is_first) {
            self.lost.push((connection, reason.into()));
            return;
        }
        if let Some(core) = found.core.as_mut() {
            core.received(bytes);
            self.mark_eventful(connection.slot);
        }
    }

    /// Returns the next connection that has something to write and whose socket takes it. Each is
    /// returned once in a turn, which ends with `None`: what it has to write beyond one write
    /// follows in the next turn, so that what came in between is read and what is due is done.
    pub fn next_output(&mut self, now_ns: u64) -> Option<PoolConnectionKey> {
        if !std::mem::replace(&mut self.is_flushing, true) {
            std::mem::swap(&mut self.dirty, &mut self.flushing);
        }
        while let Some(slot) = self.flushing.pop() {
            let connection = &mut self.connections[slot as usize];
            connection.is_dirty = false;
            if !connection.has_socket() || connection.is_blocked {
                continue;
            }
            let key = connection.key(slot);
            let Some(core) = connection.core.as_mut() else {
                continue;
            };
            if core.wants_transmit() {
                core.transmit(now_ns);
            }
            let (has_events, is_empty) = (core.has_events(), core.output().is_empty());
            let was_shut = !is_empty && std::mem::take(&mut connection.is_shut);
            if was_shut {
                connection.traffic.set_shut(false, now_ns);
                self.refresh(slot);
            }
            if has_events {
                // A call can take more, though the server said nothing.
                self.mark_eventful(slot);
            }
            if !is_empty {
                return Some(key);
            }
            self.note_shut(slot, now_ns);
        }
        self.is_flushing = false;
        None
    }

    /// Returns whether the next turn of [`PoolEngine::next_output`] may have something to write.
    pub fn has_output(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Returns whether something is under way that goes on only when sockets report: connections
    /// that are being made, calls that wait for one, and bytes that wait for a socket or a window.
    /// Looks at each connection.
    pub fn has_unsent(&self) -> bool {
        let mut connections = self.connections.iter();
        self.waiting.queued() > 0
            || connections.any(|connection| {
                matches!(connection.stage, PoolStage::Dialing | PoolStage::Greeting)
                    || connection.is_dirty
                    || connection.is_blocked
                    || connection.is_shut
            })
    }

    /// Returns what is to be written for a connection that [`PoolEngine::next_output`] returned,
    /// without TLS. What was taken is reported by [`PoolEngine::written`], and stays in front until
    /// then.
    pub fn output(&mut self, connection: PoolConnectionKey) -> &[u8] {
        let found = self.connections.get_mut(connection.slot as usize);
        let core = found
            .filter(|found| found.is(connection))
            .and_then(|found| found.core.as_mut());
        match core {
            Some(core) => core.output(),
            None => &[],
        }
    }

    /// The first `count` bytes of the output were taken. `is_blocked`: the socket takes no more
    /// until [`PoolEngine::writable`] is called.
    pub fn written(
        &mut self,
        connection: PoolConnectionKey,
        count: usize,
        is_blocked: bool,
        now_ns: u64,
    ) {
        let slot = connection.slot;
        let Some(found) = self.connection(connection) else {
            return;
        };
        found.traffic.bytes_out += count as u64;
        found.traffic.writes += 1;
        found.is_blocked = is_blocked;
        found.traffic.set_blocked(is_blocked, now_ns);
        let Some(core) = found.core.as_mut() else {
            return;
        };
        let output = core.output();
        let count = count.min(output.len());
        output.drain(..count);
        let is_empty = output.is_empty();
        if is_empty {
            output.shrink_to(crate::limits::LOCAL_KEPT_OUTPUT_BYTES);
        }
        // What did not fit under the bound of the output follows in the next turn.
        let has_more = !is_empty || core.wants_transmit();
        if is_blocked {
            self.refresh(slot);
        } else if has_more {
            self.touch(slot);
        } else {
            self.note_shut(slot, now_ns);
        }
    }

    /// The socket of a connection takes bytes again.
    pub fn writable(&mut self, connection: PoolConnectionKey, now_ns: u64) {
        if let Some(found) = self.connection(connection)
            && found.is_blocked
        {
            found.is_blocked = false;
            found.traffic.set_blocked(false, now_ns);
            self.touch(connection.slot);
            self.refresh(connection.slot);
        }
    }

    /// The driver has worked so long for a connection since it last said so.
    pub fn note_busy(&mut self, connection: PoolConnectionKey, busy_ns: u64) {
        if let Some(found) = self.connection(connection) {
            found.busy_ns = found.busy_ns.saturating_add(busy_ns);
            self.has_begun = true;
            if std::mem::take(&mut self.is_idle) {
                self.next_timers_ns = 0;
            }
        }
    }

    /// Notes whether what a connection has to send waits for the server's windows.
    fn note_shut(&mut self, slot: u32, now_ns: u64) {
        let connection = &mut self.connections[slot as usize];
        let is_shut = connection
            .core
            .as_ref()
            .is_some_and(|core| core.has_unsent());
        if connection.is_shut != is_shut {
            connection.is_shut = is_shut;
            connection.traffic.set_shut(is_shut, now_ns);
            self.refresh(slot);
        }
    }

    /// Ends the connections that have come to their ends.
    pub(super) fn end_lost(&mut self, now_ns: u64, on: &mut impl FnMut(PoolEvent<'_>)) {
        while let Some((key, reason)) = self.lost.pop() {
            let Some(found) = self.connection(key) else {
                continue;
            };
            let (stage, endpoint) = (found.stage, found.endpoint);
            let is_proven = found.is_proven(now_ns);
            let Some(core) = found.core.as_mut() else {
                continue;
            };
            // The protocol's last word may say why to the server too.
            let unsent = match stage {
                PoolStage::Dialing => Vec::new(),
                _ => std::mem::take(core.output()),
            };
            core.disconnected();
            // A server that said why it goes knows more than the socket.
            let reason = core.server_reason().unwrap_or(reason);
            self.has_failures = true;
            self.report_events(key.slot, Some(&reason), now_ns, on);
            let state = &mut self.endpoints[endpoint];
            match stage {
                PoolStage::Open | PoolStage::Draining => {
                    state.ended(&reason, is_proven, &mut self.jitter, now_ns);
                }
                PoolStage::Dialing | PoolStage::Greeting | PoolStage::Vacant => {
                    self.counters.failed_dials += 1;
                    let reason = format!("{}: {reason}", state.endpoint.name);
                    state.failed(reason, &mut self.jitter, now_ns);
                }
            }
            if self.connection(key).is_some() {
                self.close_connection(key.slot, unsent, now_ns);
            }
        }
    }
}
