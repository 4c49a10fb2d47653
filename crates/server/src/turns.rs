//! Which connection may receive its next large message: what `wire` calls its turn. Messages are
//! accounted for before they come. Where memory is short, the connections of a loop get theirs in
//! the order in which they asked, and one message of the server always may come.

use std::collections::VecDeque;

use net::{ConnectionId, Io};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair::Pair;

    fn id(slot: u32) -> ConnectionId {
        ConnectionId {
            slot,
            generation: 0,
        }
    }

    #[test]
    fn connections_keep_their_place_when_they_lack_something_else() {
        let mut queue = TurnQueue::default();
        assert!(queue.is_next(id(5)), "nobody waits");
        for (slot, bytes) in [(0, 10), (1, 20), (2, 30), (1, 25), (0, 15)] {
            queue.insert(id(slot), bytes);
        }
        assert_eq!(queue.0, [(id(0), 15), (id(1), 25), (id(2), 30)]);
        assert!(queue.is_next(id(0)) && !queue.is_next(id(1)));
        queue.remove(id(1));
        queue.remove(id(0));
        assert_eq!(queue.0, [(id(2), 30)]);
        assert!(queue.is_next(id(2)) && !queue.is_next(id(0)));
    }

    /// Otherwise as many would be received beyond the limit as there are connections.
    #[test]
    fn nobody_else_goes_beyond_the_limit_until_the_message_has_come() {
        let mut pair = Pair::open();
        let account = std::sync::Arc::clone(pair.worker.account());
        let _others = pair.fill_account();
        for _ in 0..2 {
            assert!(account.may_overdraw());
            let call = pair.call("/pelton.v1.KeyValue/Get", &[0xff; 1 << 20]);
            // What the first window lets through, and then its turn begins.
            pair.turn();
            assert!(!account.may_overdraw());
            if pair.client.wants_transmit() {
                pair.client.transmit(&mut pair.sent, pair.now_ns);
            }
            let sent = std::mem::take(&mut pair.sent);
            let (some, rest) = sent.split_at(30_000);
            for piece in some.chunks(10_000) {
                pair.receive(piece);
                assert!(!account.may_overdraw());
            }
            pair.sent.extend_from_slice(rest);
            let mut events = Vec::new();
            for _ in 0..30 {
                events.extend(pair.turn());
            }
            let end = wire::Event::Finished { stream: call };
            assert!(events.contains(&end));
            pair.client.forget(call);
        }
        assert!(account.may_overdraw());
    }

    /// A visit for nothing would come again in each tick.
    #[test]
    fn the_next_connection_is_visited_when_there_is_memory_for_it_or_it_may_go_beyond() {
        let mut pair = Pair::open();
        let account = std::sync::Arc::clone(pair.worker.account());
        let left = account.left_for_messages();
        for (bytes, may_overdraw, is_visited) in [
            (left, false, true),
            (left + 1, false, false),
            (left + 1, true, true),
            (left, true, true),
        ] {
            assert!(may_overdraw || account.try_overdraft());
            let core = &mut pair.worker.core;
            core.turn_queue.insert(id(0), bytes);
            core.resume_turns();
            let visited = std::mem::take(&mut core.revisit);
            assert_eq!(!visited.is_empty(), is_visited, "{bytes} {may_overdraw}");
            core.turn_queue.remove(id(0));
            account.end_overdraft();
        }
    }
}
