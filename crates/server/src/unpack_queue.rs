//! Which connection goes on with a large compressed message: one of a loop after the other, a step
//! each, so that many of them make a loop slower and do not stop it.

use std::collections::VecDeque;

use net::ConnectionId;

use crate::connection::RpcState;
use crate::limits;

/// Connections of a loop that have a compressed message under way. Bounded by the connections.
#[derive(Debug, Default)]
pub(crate) struct UnpackQueue {
    waiting: VecDeque<ConnectionId>,
    /// One of them has gone on in this tick.
    has_stepped: bool,
}

impl UnpackQueue {
    fn is_next(&self, id: ConnectionId) -> bool {
        self.waiting.front().is_none_or(|&first| first == id)
    }

    /// Puts a connection at the end, wherever it stood.
    fn put_last(&mut self, id: ConnectionId) {
        self.remove(id);
        self.waiting.push_back(id);
    }

    fn remove(&mut self, id: ConnectionId) {
        if self.waiting.front() == Some(&id) {
            self.waiting.pop_front();
        } else {
            self.waiting.retain(|&other| other != id);
        }
    }

    #[inline]
    fn may_step(&self, id: ConnectionId) -> bool {
        !self.has_stepped && self.is_next(id)
    }

    /// Allows a connection one step, if it is its turn and the tick has one left.
    #[inline]
    pub fn allow(&self, rpc: &mut RpcState) {
        let may_step = self.may_step(rpc.link.id);
        rpc.connection.set_unpack_allowance(match may_step {
            true => wire::limits::UNPACK_STEP_BYTES,
            false => 0,
        });
    }

    /// Notes whether the connection has used what [`UnpackQueue::allow`] allowed: then others come
    /// before it.
    #[inline]
    pub fn note(&mut self, rpc: &RpcState) {
        let (id, step) = (rpc.link.id, wire::limits::UNPACK_STEP_BYTES);
        if rpc.connection.unpack_allowance() < step && self.may_step(id) {
            self.has_stepped = true;
            if rpc.unpacks {
                self.put_last(id);
            }
        }
    }

    /// Has a connection wait for its next step if it has a message under way.
    #[inline]
    pub fn settle(&mut self, rpc: &mut RpcState) {
        if rpc.connection.waits_to_unpack() != rpc.unpacks {
            rpc.unpacks = !rpc.unpacks;
            match rpc.unpacks {
                true => self.put_last(rpc.link.id),
                false => self.remove(rpc.link.id),
            }
        }
    }

    /// The connection is gone.
    pub fn leave(&mut self, rpc: &mut RpcState) {
        if std::mem::take(&mut rpc.unpacks) {
            self.remove(rpc.link.id);
        }
    }

    /// Ends a tick, so that there is a step again. Returns the connection to be visited for it.
    pub fn end_tick(&mut self) -> Option<ConnectionId> {
        self.has_stepped = false;
        self.waiting.front().copied()
    }

    /// Returns how many wait.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }
}

/// How many events of other connections a message costs that was decompressed when it was found.
#[inline]
pub(crate) fn cost_in_events(unpacked_bytes: usize) -> usize {
    unpacked_bytes / limits::UNPACKED_BYTES_PER_EVENT
}

#[cfg(test)]
mod tests {
    use wire::{Event, RequestHead, StreamKey};

    use super::*;
    use crate::account::HeldBytes;
    use crate::pair::Pair;

    const LARGE: usize = 1 << 20;

    /// Begins a call of Echo with a message that is compressed.
    fn call_compressed(pair: &mut Pair, bytes: usize) -> StreamKey {
        let head = RequestHead {
            gzip: true,
            ..RequestHead::call("test", "/pelton.v1.Echo/Unary")
        };
        let opened = pair.client.open(&mut pair.sent, &head);
        let stream = opened.expect("a stream is free");
        pair.client.set_compress(stream, true);
        let message = vec![7; bytes];
        let append = |out: &mut Vec<u8>| out.extend_from_slice(&message);
        pair.client
            .send_last_message(stream, &mut pair.sent, append);
        pair.client.transmit(&mut pair.sent, pair.now_ns);
        stream
    }

    fn ends(pair: &mut Pair) -> usize {
        let events = pair.turn();
        let ends = events
            .iter()
            .filter(|event| matches!(event, Event::Finished { .. }));
        ends.count()
    }

    #[test]
    fn a_large_message_takes_a_step_of_each_tick() {
        let mut pair = Pair::open();
        for _ in 0..2 {
            call_compressed(&mut pair, LARGE);
            let mut ticks = 0;
            while ends(&mut pair) == 0 {
                ticks += 1;
                assert!(ticks < 30, "it does not end");
                // Whoever comes meanwhile is served at once.
                if ticks == 3 {
                    pair.call("/pelton.v1.Echo/Unary", b"");
                    assert_eq!(ends(&mut pair), 1);
                }
            }
            assert!(
                ticks >= LARGE / wire::limits::UNPACK_STEP_BYTES - 2,
                "{ticks} ticks"
            );
            assert_eq!(pair.handler.unpack_queue().len(), 0);
        }
    }

    /// The account is used up, and comes to be free; messages wait for it and all of them end.
    #[test]
    fn messages_wait_for_memory_and_none_is_forgotten() {
        let mut pair = Pair::open();
        let account = std::sync::Arc::clone(pair.handler.account());
        let wake: crate::SharedWaker = std::sync::Arc::new(|| {});
        for round in 0..3 {
            let mut others = account.open(&net::PeerAddress::Simulated(9), &wake);
            let bytes = account.limit_bytes();
            let held = HeldBytes {
                charged_bytes: bytes,
                all_bytes: bytes,
                unsent_bytes: bytes,
                ..HeldBytes::default()
            };
            others.change(held, pair.now_ns);
            // Somebody else receives a message beyond the limit: nothing is forced.
            assert!(account.try_overdraft(true));
            for _ in 0..3 {
                call_compressed(&mut pair, LARGE);
            }
            for _ in 0..40 {
                pair.now_ns += 10_000_000;
                assert_eq!(ends(&mut pair), 0, "there is no memory");
            }
            match round {
                0 => others.change(HeldBytes::default(), pair.now_ns),
                1 => drop(others),
                // One at a time is forced.
                _ => account.end_overdraft(),
            }
            let mut ended = 0;
            for _ in 0..200 {
                pair.now_ns += 10_000_000;
                ended += ends(&mut pair);
            }
            assert_eq!(ended, 3, "round {round}");
            if round < 2 {
                account.end_overdraft();
            }
            assert_eq!(pair.handler.unpack_queue().len(), 0);
        }
        pair.turn();
        assert_eq!(account.charged_bytes(), 0);
        assert!(account.try_overdraft(true), "it was given back");
    }

    #[test]
    fn who_leaves_is_forgotten() {
        let mut pair = Pair::open();
        call_compressed(&mut pair, LARGE);
        pair.turn();
        assert_eq!(pair.handler.unpack_queue().len(), 1);
        pair.close();
        assert_eq!(pair.handler.unpack_queue().len(), 0);
        assert_eq!(pair.handler.account().charged_bytes(), 0);
    }

    /// One that has used its step comes behind the others; one that was not allowed any keeps its
    /// place.
    #[test]
    fn a_connection_that_has_used_its_step_comes_last() {
        const STEP: usize = wire::limits::UNPACK_STEP_BYTES;
        let mut pair = Pair::open();
        let rpc = pair.handler.rpc();
        rpc.unpacks = true;
        let own = rpc.link.id;
        let other = ConnectionId { slot: 9, ..own };
        for (order, has_stepped, left, comes_last) in [
            ([own, other], false, STEP, false),
            ([own, other], false, STEP - 1, true),
            ([own, other], false, 0, true),
            ([own, other], true, 0, false),
            ([other, own], false, 0, false),
        ] {
            let mut queue = UnpackQueue {
                waiting: order.into(),
                has_stepped,
            };
            rpc.connection.set_unpack_allowance(left);
            queue.note(rpc);
            assert_eq!(queue.has_stepped, has_stepped || comes_last, "{left}");
            let expected = if comes_last { [other, own] } else { order };
            assert_eq!(queue.waiting, expected, "{left}");
        }
        rpc.unpacks = false;
    }

    #[test]
    fn connections_have_their_steps_in_turn() {
        let id = |slot| ConnectionId {
            slot,
            generation: 0,
        };
        let mut queue = UnpackQueue::default();
        assert!(queue.is_next(id(5)), "nobody waits");
        for slot in 0..3 {
            queue.put_last(id(slot));
        }
        assert!(queue.is_next(id(0)) && !queue.is_next(id(1)));
        queue.put_last(id(0));
        assert!(queue.is_next(id(1)));
        queue.remove(id(2));
        queue.put_last(id(1));
        assert!(queue.is_next(id(0)));
        queue.remove(id(0));
        assert!(queue.is_next(id(1)) && !queue.is_next(id(2)));
    }
}
