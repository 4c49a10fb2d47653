//! Which connection may receive its next large message: what `wire` calls its turn. Messages are
//! accounted for before they come. Where memory is short, the connections of a loop get theirs in
//! the order in which they asked, and one message of the server always may come.

use std::collections::VecDeque;

use drive::{ConnectionId, Io};

use crate::connection::{Channel, Protocol};
use crate::core::Core;
use crate::limits;

/// Connections of a loop that have no memory for their next large message, and what each lacks.
#[derive(Debug, Default)]
pub(crate) struct TurnQueue(VecDeque<(ConnectionId, usize)>);

impl TurnQueue {
    fn is_next(&self, id: ConnectionId) -> bool {
        self.0.front().is_none_or(|&(first, _)| first == id)
    }

    fn insert(&mut self, id: ConnectionId, bytes: usize) {
        match self.0.iter_mut().find(|(other, _)| *other == id) {
            Some((_, known)) => *known = bytes,
            None => self.0.push_back((id, bytes)),
        }
    }

    fn remove(&mut self, id: ConnectionId) {
        self.0.retain(|&(other, _)| other != id);
    }
}

impl Core {
    /// Lets a connection receive large messages as far as there is memory, if no other has asked
    /// before.
    pub(crate) fn allow_turns(&self, channel: &mut Channel) {
        let Protocol::Http2(connection) = &mut channel.protocol else {
            return;
        };
        let allowance = if self.turn_queue.is_next(channel.id) {
            self.admission.account.left_for_messages()
        } else {
            0
        };
        connection.set_turn_allowance(allowance);
    }

    /// Has a connection wait for memory if its next large message has none.
    pub(crate) fn settle_turns(&mut self, channel: &mut Channel, io: &mut Io, now_ns: u64) {
        let Protocol::Http2(connection) = &mut channel.protocol else {
            return;
        };
        if channel.overdraws && !connection.has_turn() {
            channel.overdraws = false;
            self.admission.account.end_overdraft();
        }
        if connection.waits_for_turn() && self.turn_queue.is_next(channel.id) {
            channel.overdraws = self.admission.account.try_overdraft();
            if channel.overdraws {
                connection.force_turn(&mut io.output);
            }
            if channel.overdraws && !connection.has_turn() {
                channel.overdraws = false;
                self.admission.account.end_overdraft();
            }
        }
        if connection.waits_for_turn() {
            channel.waits_for_turn = true;
            self.turn_queue
                .insert(channel.id, connection.next_turn_bytes());
            self.arm(channel, now_ns + limits::TURN_RETRY_MS * 1_000_000);
        } else if std::mem::take(&mut channel.waits_for_turn) {
            self.turn_queue.remove(channel.id);
        }
    }

    /// The connection is gone.
    pub(crate) fn leave_turns(&mut self, channel: &mut Channel) {
        if std::mem::take(&mut channel.overdraws) {
            self.admission.account.end_overdraft();
        }
        if std::mem::take(&mut channel.waits_for_turn) {
            self.turn_queue.remove(channel.id);
        }
    }

    /// Has the connection visited that is next, if there is memory for it by now.
    pub(crate) fn resume_turns(&mut self) {
        let account = &self.admission.account;
        if let Some(&(id, bytes)) = self.turn_queue.0.front()
            && (bytes <= account.left_for_messages() || account.may_overdraw())
        {
            self.revisit.push(id);
        }
    }
}
