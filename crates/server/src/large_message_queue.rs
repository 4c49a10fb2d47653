//! Which connection may receive its next large message: what `wire` calls its turn. Messages are
//! accounted for before they come. Where memory is short, the connections of a loop get theirs in
//! the order in which they asked, and one message of the server always may come.

use std::collections::VecDeque;

use net::ConnectionId;

use crate::account::Account;
use crate::connection::RpcState;

/// Connections of a loop that have no memory for their next large message, in the order in which
/// they asked.
#[derive(Debug, Default)]
pub(crate) struct LargeMessageQueue(VecDeque<LacksMemory>);

/// A connection that waits for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LacksMemory {
    id: ConnectionId,
    /// What it lacks.
    pub bytes: usize,
    /// The message is there, to be decompressed.
    is_compressed: bool,
    /// Since when it waits, in nanoseconds.
    pub since_ns: u64,
    /// Its windows are shut, since it or its address holds too much: whatever memory there is, it
    /// gets none, and keeps nobody from it. It may go beyond the limit.
    is_shut: bool,
}

impl LargeMessageQueue {
    /// Whether no other connection has asked before that may go beyond the limit now.
    fn is_first(&self, id: ConnectionId, account: &Account) -> bool {
        self.first(account).is_none_or(|first| first.id == id)
    }

    /// The first connection that may go beyond the limit.
    fn first(&self, account: &Account) -> Option<LacksMemory> {
        let may_come = |waiting: &&LacksMemory| account.may_hold_more(waiting.is_compressed);
        self.0.iter().find(may_come).copied()
    }

    /// The first connection that memory would help: not one that lacks more than there ever is,
    /// which can only go beyond the limit.
    fn next(&self, account: &Account) -> Option<LacksMemory> {
        self.next_of_at_most(account.most_for_messages())
    }

    /// The first of those that lack so little that they have memory of their own.
    fn next_short(&self, account: &Account) -> Option<LacksMemory> {
        self.next_of_at_most(account.short_message_bytes())
    }

    fn next_of_at_most(&self, most: usize) -> Option<LacksMemory> {
        let is_helped = |waiting: &&LacksMemory| !waiting.is_shut && waiting.bytes <= most;
        self.0.iter().find(is_helped).copied()
    }

    /// Returns how it waits now: one that is known keeps its place and its time.
    fn insert(&mut self, waiting: LacksMemory) -> LacksMemory {
        match self.0.iter_mut().find(|other| other.id == waiting.id) {
            Some(known) => {
                let since_ns = known.since_ns;
                *known = LacksMemory {
                    since_ns,
                    ..waiting
                };
                *known
            }
            None => {
                self.0.push_back(waiting);
                waiting
            }
        }
    }

    fn remove(&mut self, id: ConnectionId) {
        self.0.retain(|other| other.id != id);
    }
}

/// What the connections of a loop ask the queue, each for itself.
impl LargeMessageQueue {
    /// Lets a connection receive large messages as far as there is memory, if no other has asked
    /// before.
    pub fn allow(&self, rpc: &mut RpcState, account: &Account) {
        let allowance = match rpc.connection.has_capacity() {
            true => self.allowance(rpc.link.id, account),
            false => 0,
        };
        rpc.connection.set_turn_allowance(allowance);
    }

    /// Returns what the next large message of a connection may take, in bytes.
    fn allowance(&self, id: ConnectionId, account: &Account) -> usize {
        let is_own = |next: Option<LacksMemory>| next.is_none_or(|next| next.id == id);
        let long = is_own(self.next(account)).then(|| account.left_for_messages());
        let short = is_own(self.next_short(account)).then(|| account.left_for_short_messages());
        long.max(short).unwrap_or(0)
    }

    /// Has a connection wait for memory if its next large message has none, and goes on. Returns
    /// how it waits, if it does, and is to be visited again.
    pub fn settle(
        &mut self,
        rpc: &mut RpcState,
        output: &mut Vec<u8>,
        account: &Account,
        now_ns: u64,
    ) -> Option<LacksMemory> {
        let connection = &mut rpc.connection;
        if rpc.overdraws && !connection.has_turn() {
            rpc.overdraws = false;
            account.end_overdraft();
        }
        // What came for calls that may produce nothing would lie there.
        let may_go_on = connection.has_capacity();
        if may_go_on {
            connection.probe_turn(output);
        }
        if may_go_on && connection.waits_for_turn() && self.is_first(rpc.link.id, account) {
            rpc.overdraws = account.try_overdraft(connection.is_next_compressed());
            if rpc.overdraws {
                connection.force_turn(output);
            }
            if rpc.overdraws && !connection.has_turn() {
                rpc.overdraws = false;
                account.end_overdraft();
            }
        }
        if may_go_on && connection.waits_for_turn() {
            rpc.waits_for_turn = true;
            return Some(self.insert(LacksMemory {
                id: rpc.link.id,
                bytes: connection.next_turn_bytes(),
                is_compressed: connection.is_next_compressed(),
                since_ns: now_ns,
                is_shut: connection.windows_are_shut(),
            }));
        }
        if std::mem::take(&mut rpc.waits_for_turn) {
            self.remove(rpc.link.id);
        }
        None
    }

    /// The connection is gone.
    pub fn leave(&mut self, rpc: &mut RpcState, account: &Account) {
        if std::mem::take(&mut rpc.overdraws) {
            account.end_overdraft();
        }
        if std::mem::take(&mut rpc.waits_for_turn) {
            self.remove(rpc.link.id);
        }
    }

    /// Returns the connections to be visited: the first if it may go beyond the limit, and the next
    /// ones if there is memory for them by now.
    pub fn to_visit(&self, account: &Account) -> impl Iterator<Item = ConnectionId> + use<> {
        let first = self.first(account);
        let first = first.filter(|first| account.may_overdraw(first.is_compressed));
        let left = account.left_for_messages();
        let next = self.next(account).filter(|next| next.bytes <= left);
        let left = account.left_for_short_messages();
        let short = (self.next_short(account)).filter(|short| short.bytes <= left);
        let visited = [first, next, short].into_iter().flatten();
        visited.map(|waiting| waiting.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits;
    use crate::pair::Pair;

    fn id(slot: u32) -> ConnectionId {
        ConnectionId {
            slot,
            generation: 0,
        }
    }

    fn waiting(slot: u32, bytes: usize, is_shut: bool) -> LacksMemory {
        LacksMemory {
            id: id(slot),
            bytes,
            is_compressed: false,
            since_ns: 0,
            is_shut,
        }
    }

    #[test]
    fn connections_keep_their_place_when_they_lack_something_else() {
        let mut queue = LargeMessageQueue::default();
        let account = &Account::new(1_000);
        assert!(queue.is_first(id(5), account), "nobody waits");
        for (slot, bytes) in [(0, 10), (1, 20), (2, 30), (1, 25), (0, 15)] {
            queue.insert(waiting(slot, bytes, false));
        }
        let all = [(0, 15), (1, 25), (2, 30)];
        assert_eq!(
            queue.0,
            all.map(|(slot, bytes)| waiting(slot, bytes, false))
        );
        assert!(queue.is_first(id(0), account) && !queue.is_first(id(1), account));
        // One that gets no memory keeps its place, and nobody from theirs.
        queue.insert(waiting(0, 15, true));
        assert_eq!(queue.next(account), Some(waiting(1, 25, false)));
        assert!(queue.is_first(id(0), account) && !queue.is_first(id(1), account));
        queue.insert(waiting(0, 15, false));
        assert_eq!(queue.next(account), Some(waiting(0, 15, false)));
        queue.remove(id(1));
        queue.remove(id(0));
        assert_eq!(queue.0, [waiting(2, 30, false)]);
        assert!(queue.is_first(id(2), account) && !queue.is_first(id(0), account));
    }

    /// While compressed messages may not come, and for those that lack more than there ever is.
    #[test]
    fn messages_that_nothing_helps_keep_no_others_from_it() {
        let account = &Account::new(1_000_000);
        let wake: crate::SharedWaker = std::sync::Arc::new(|| {});
        let mut others = account.open(&net::PeerAddress::Simulated(1), &wake);
        let mut queue = LargeMessageQueue::default();
        queue.insert(LacksMemory {
            is_compressed: true,
            ..waiting(0, 750_001, false)
        });
        queue.insert(waiting(1, 750_000, false));
        queue.insert(waiting(2, 10, false));
        for _ in 0..2 {
            for (bytes, first) in [(1_125_000, 0), (1_125_001, 1)] {
                let held = crate::account::HeldBytes {
                    charged_bytes: bytes,
                    all_bytes: bytes,
                    ..Default::default()
                };
                others.change(held, 0);
                assert!(queue.is_first(id(first), account) && !queue.is_first(id(2), account));
                assert_eq!(queue.to_visit(account).next(), Some(id(first)));
                assert_eq!(queue.next(account), Some(waiting(1, 750_000, false)));
            }
        }
    }

    /// While the largest messages have all that they may have, and wait.
    #[test]
    fn short_messages_pass_those_for_which_there_is_no_memory() {
        let account = Account::new(1 << 20);
        let wake: crate::SharedWaker = std::sync::Arc::new(|| {});
        let mut others = account.open(&net::PeerAddress::Simulated(1), &wake);
        let most = account.most_for_messages();
        let short = account.short_message_bytes();
        let left = account.limit_bytes() / limits::SMALL_CALLS_SHARE / 2;
        assert!(short < left);
        let mut hold = |bytes| {
            let held = crate::account::HeldBytes {
                charged_bytes: bytes,
                all_bytes: bytes,
                ..Default::default()
            };
            others.change(held, 0);
        };
        let visited = |queue: &LargeMessageQueue| -> Vec<_> {
            let ids = queue.to_visit(&account);
            ids.map(|id| id.slot).collect()
        };
        assert!(account.try_overdraft(false));
        for _ in 0..2 {
            let mut queue = LargeMessageQueue::default();
            queue.insert(waiting(8, most, false));
            queue.insert(waiting(9, short, false));
            hold(most);
            assert_eq!(account.left_for_messages(), 0);
            assert_eq!(account.left_for_short_messages(), short);
            assert_eq!(visited(&queue), [9]);
            hold(most + left - short);
            assert_eq!(visited(&queue), [9]);
            hold(most + left - short + 1);
            assert_eq!(account.left_for_short_messages(), short - 1);
            assert_eq!(visited(&queue), [0; 0]);
            // Another one that is as short waits behind it; one that is larger has no such way.
            hold(most);
            let allowed = |queue: &LargeMessageQueue| queue.allowance(id(1), &account);
            assert_eq!(allowed(&queue), 0);
            queue.remove(id(9));
            assert_eq!(allowed(&queue), short);
            queue.insert(waiting(9, short + 1, false));
            assert_eq!(allowed(&queue), short);
            assert_eq!(visited(&queue), [0; 0]);
            queue.remove(id(8));
            queue.remove(id(9));
            hold(0);
            assert_eq!(allowed(&queue), most);
        }
    }

    /// Otherwise as many would be received beyond the limit as there are connections.
    #[test]
    fn nobody_else_goes_beyond_the_limit_until_the_message_has_come() {
        let mut pair = Pair::open();
        let account = std::sync::Arc::clone(pair.handler.account());
        let _others = pair.fill_account();
        for _ in 0..2 {
            assert!(account.may_overdraw(false));
            let call = pair.call("/pelton.v1.KeyValue/Get", &[0xff; 1 << 20]);
            // What the first window lets through, then a little more, and then its turn begins.
            pair.turn();
            assert!(account.may_overdraw(false));
            pair.turn();
            assert!(!account.may_overdraw(false));
            if pair.client.wants_transmit() {
                pair.client.transmit(&mut pair.sent, pair.now_ns);
            }
            let sent = std::mem::take(&mut pair.sent);
            let (some, rest) = sent.split_at(30_000);
            for piece in some.chunks(10_000) {
                pair.receive(piece);
                assert!(!account.may_overdraw(false));
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
        assert!(account.may_overdraw(false));
    }

    /// Thousands that stand still would have a turn each before one that goes on.
    #[test]
    fn a_message_that_stands_still_has_no_place_in_the_queue_and_one_that_goes_on_has() {
        let mut pair = Pair::open();
        let account = std::sync::Arc::clone(pair.handler.account());
        let others = pair.fill_account();
        let before = account.charged_bytes();
        for _ in 0..2 {
            assert!(account.try_overdraft(false));
            let call = pair.call("/pelton.v1.KeyValue/Get", &[0xff; 1 << 20]);
            pair.turn();
            let probe = wire::limits::PROBE_BYTES as usize;
            let expected = pair.handler.rpc().connection.expected_bytes();
            assert_eq!(expected, probe, "it is asked for a little");
            let kept = std::mem::take(&mut pair.sent);
            for _ in 0..5 {
                assert_eq!(pair.handler.large_message_queue().0, []);
                pair.now_ns += 150_000_000;
                pair.tick_without_input();
            }
            assert_eq!(pair.handler.rpc().connection.expected_bytes(), 0);
            pair.sent = kept;
            pair.turn();
            pair.turn();
            assert_eq!(pair.handler.large_message_queue().0.len(), 1);
            account.end_overdraft();
            let mut events = Vec::new();
            for _ in 0..30 {
                pair.now_ns += 5_000_000;
                events.extend(pair.turn());
            }
            let end = wire::Event::Finished { stream: call };
            assert!(events.contains(&end) && pair.handler.large_message_queue().0.is_empty());
            pair.client.forget(call);
            assert!(account.may_overdraw(false));
        }
        assert_eq!(account.charged_bytes(), before);
        drop(others);
        pair.close();
        assert_eq!(account.charged_bytes(), 0);
    }

    /// It would lie in the backlog, and the next one beside it.
    #[test]
    fn no_message_comes_beyond_the_limit_for_calls_that_may_produce_nothing() {
        let mut pair = Pair::open();
        let account = std::sync::Arc::clone(pair.handler.account());
        let others = pair.fill_account();
        let head = wire::RequestHead::call("test", "/pelton.v1.KeyValue/Pipe");
        let open = pair.client.open(&mut pair.sent, &head);
        open.expect("a stream is free");
        pair.turn();
        let pipe = pair.handler.first_stream();
        for _ in 0..2 {
            let reserve = |pair: &mut Pair, bytes| {
                let connection = &mut pair.handler.rpc().connection;
                connection.reserve_send(pipe, bytes);
            };
            reserve(&mut pair, 2 * crate::limits::SMALL_HOLDING_BYTES);
            let call = pair.call("/pelton.v1.KeyValue/Get", &[0xff; 1 << 20]);
            let mut events = Vec::new();
            for _ in 0..10 {
                pair.now_ns += 150_000_000;
                events.extend(pair.turn());
                assert!(account.may_overdraw(false));
                assert_eq!(pair.handler.large_message_queue().0, []);
            }
            assert_eq!(events, []);
            reserve(&mut pair, 0);
            for _ in 0..100 {
                pair.now_ns += 150_000_000;
                events.extend(pair.turn());
            }
            let end = wire::Event::Finished { stream: call };
            assert!(events.contains(&end), "it goes on by itself");
            pair.client.forget(call);
        }
        drop(others);
        pair.close();
        assert_eq!(account.charged_bytes(), 0);
    }

    /// Of an address that holds most of an account of which half is used: a visit in each tick
    /// would bring nothing, and others would wait for it.
    #[test]
    fn a_connection_whose_windows_are_shut_is_not_visited_for_memory() {
        let mut pair = Pair::open();
        let account = std::sync::Arc::clone(pair.handler.account());
        let wake: crate::SharedWaker = std::sync::Arc::new(|| {});
        let mut others = account.open(&net::PeerAddress::Simulated(1), &wake);
        let bytes = account.limit_bytes() / 2 + account.limit_bytes() / 20;
        for _ in 0..2 {
            let much = crate::account::HeldBytes {
                charged_bytes: bytes,
                all_bytes: bytes,
                ..Default::default()
            };
            others.change(much, pair.now_ns);
            assert!(account.try_overdraft(false));
            let call = pair.call("/pelton.v1.KeyValue/Get", &[0xff; 1 << 20]);
            let mut events = Vec::new();
            for _ in 0..5 {
                events.extend(pair.turn());
            }
            assert!(pair.handler.windows_are_shut());
            let next = pair.handler.large_message_queue().next(&account);
            assert_eq!(next, None, "memory helps nobody");
            for _ in 0..10 {
                pair.tick_without_input();
                assert!(!pair.io.is_unfinished(), "no time has passed");
            }
            account.end_overdraft();
            others.change(crate::account::HeldBytes::default(), pair.now_ns);
            for _ in 0..200 {
                pair.now_ns += 5_000_000;
                events.extend(pair.turn());
            }
            let end = wire::Event::Finished { stream: call };
            assert!(events.contains(&end), "it goes on by itself");
            pair.client.forget(call);
        }
    }

    /// A visit for nothing would come again in each tick.
    #[test]
    fn the_next_connection_is_visited_when_there_is_memory_for_it_or_it_may_go_beyond() {
        let pair = Pair::open();
        let account = std::sync::Arc::clone(pair.handler.account());
        let left = account.left_for_messages();
        for (bytes, is_shut, may_overdraw, is_visited) in [
            (left, false, false, true),
            (left + 1, false, false, false),
            (left + 1, false, true, true),
            (left, false, true, true),
            (left, true, false, false),
            (left, true, true, true),
        ] {
            assert!(may_overdraw || account.try_overdraft(false));
            let mut queue = LargeMessageQueue::default();
            assert_eq!(queue.to_visit(&account).next(), None, "nobody waits");
            queue.insert(waiting(0, bytes, is_shut));
            let visited = queue.to_visit(&account).next();
            assert_eq!(
                visited.is_some(),
                is_visited,
                "{bytes} {is_shut} {may_overdraw}"
            );
            account.end_overdraft();
        }
    }
}
