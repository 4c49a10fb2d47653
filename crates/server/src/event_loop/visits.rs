//! Visits to a connection: its events one after the other, and what each visit ends with.

use net::{ConnectionId, Io};
use wire::{Event, Pause};

use super::{LoopRole, LoopState};
use crate::account::HeldBytes;
use crate::connection::{ConnectionState, Link, RpcState};
use crate::limits;
use crate::rpc_connection::RpcConnection;
use crate::timers::Timer;
use crate::unpack_queue;

impl LoopState {
    /// Visits a connection, whatever it speaks.
    pub(super) fn visit(&mut self, state: &mut ConnectionState, io: &mut Io, now_ns: u64) {
        match state {
            ConnectionState::Rpc(rpc) => self.walk(rpc, io, now_ns),
            ConnectionState::Undecided(_) | ConnectionState::Over(_) => super::consume_all(io),
        }
    }

    /// Takes events from a connection until its input is used up or its turn is over.
    pub(super) fn walk(&mut self, rpc: &mut RpcState, io: &mut Io, now_ns: u64) {
        rpc.refresh_pause();
        let admission = &self.context.admission;
        rpc.connection.set_gather_bound(admission.gather_bound());
        self.large_message_queue.allow(rpc, &admission.account);
        self.unpack_queue.allow(rpc);
        let mut consumed = 0;
        let mut events_left = limits::EVENTS_PER_TURN;
        let long_before = self.context.batch.long_len();
        let is_held_back = loop {
            if self.holds_back(&mut rpc.link, now_ns) {
                break true;
            }
            let output_before = io.output.len();
            let (input, output) = (io.input.bytes(), &mut io.output);
            let next = (rpc.connection).poll_event(input, &mut consumed, output, now_ns);
            let Some(event) = next else {
                break false;
            };
            events_left = events_left.saturating_sub(1 + extra_cost(&rpc.connection));
            self.event(rpc, io, event);
            let made_bytes = io.output.len().saturating_sub(output_before);
            let unknown_events = std::mem::take(&mut self.unknown_events);
            events_left =
                events_left.saturating_sub(made_bytes / limits::EVENT_COST_BYTES + unknown_events);
            self.note_growth(rpc, io);
            if events_left == 0 || io.output_is_full() {
                io.set_unfinished(true);
                break false;
            }
            // What is long is not begun before the rest is looked at: the caller may have taken it
            // back.
            let begins_long_work = self.context.batch.long_len() > long_before;
            let is_next = ends_a_request(event) && !begins_long_work;
            if self.role == LoopRole::OneConnection && is_next {
                // If the connection has events, it is visited again for them.
                io.set_unfinished(consumed < io.input.len());
                break false;
            }
        };
        io.input.consume(consumed);
        io.set_turn_cost((limits::EVENTS_PER_TURN - events_left) * limits::EVENT_COST_BYTES);
        self.unpack_queue.note(rpc);
        self.after_walk(rpc, io, is_held_back, now_ns);
    }

    /// Whether nothing more is taken from a peer until the committer has taken some of what waits
    /// for it. It is visited again then, and not before: there is nothing to do for it.
    #[inline]
    fn holds_back(&mut self, link: &mut Link, now_ns: u64) -> bool {
        if link.replicates {
            // What waits may wait for what this peer has to say.
            return false;
        }
        let (waiting_bytes, bound_bytes) = self.waiting_writes();
        let share_bytes = bound_bytes / limits::WAITING_WRITES_IDENTITY_SHARE;
        let are_many = waiting_bytes > bound_bytes;
        let holds_back = are_many
            || (waiting_bytes > share_bytes && link.holding.identity_bytes() > share_bytes);
        if holds_back {
            match are_many {
                true => self.held_back.insert(link.id),
                false => self.held_back_by_share.insert(link.id),
            };
            // If all of them were given up, the committer has nobody to wake.
            self.look_again(link, limits::HELD_BACK_RETRY_MS, now_ns);
        }
        holds_back
    }

    /// Has the connections visited of which nothing was taken, if less waits for the committer by
    /// now.
    pub(super) fn resume_held_back(&mut self) {
        if self.held_back.is_empty() && self.held_back_by_share.is_empty() {
            return;
        }
        let (waiting_bytes, bound_bytes) = self.waiting_writes();
        if waiting_bytes <= bound_bytes {
            self.revisit.extend(std::mem::take(&mut self.held_back));
        }
        if waiting_bytes <= bound_bytes / limits::WAITING_WRITES_IDENTITY_SHARE {
            let held_back = std::mem::take(&mut self.held_back_by_share);
            self.revisit.extend(held_back);
        }
    }

    /// Returns whether nothing is taken from a connection until less waits for the committer.
    pub(super) fn is_held_back(&self, id: ConnectionId) -> bool {
        self.held_back.contains(&id) || self.held_back_by_share.contains(&id)
    }

    /// Returns how much waits for the committer, in bytes, and beyond how much nothing more is
    /// taken from any peer: a bound beside the account, which counts only for calls that live. It
    /// is one for all loops, of which there may be thousands, but for a little that each may have.
    #[inline]
    fn waiting_writes(&self) -> (usize, usize) {
        let bound_bytes = self.context.admission.waiting_write_bytes;
        let own_bytes = self.context.batch.write_bytes() + self.writes.waiting_bytes();
        let waiting_bytes = match own_bytes > limits::WAITING_WRITES_IN_ANY_CASE_BYTES {
            true => own_bytes.max(self.writes.waiting_bytes_of_all()),
            false => own_bytes,
        };
        (waiting_bytes, bound_bytes)
    }

    /// Charges at once what calls have produced if it is more than a little, so that those that
    /// follow see it.
    #[inline]
    pub(super) fn note_growth(&self, rpc: &mut RpcState, io: &Io) {
        let charged_bytes = rpc.link.holding.unsent_bytes();
        if rpc.connection.unsent_bytes() > charged_bytes + limits::SMALL_HOLDING_BYTES {
            self.charge(rpc, io);
        }
    }

    /// What every visit to a connection ends with: waiting output, the end if it has come,
    /// counting, the next timer.
    pub(super) fn after_walk(
        &mut self,
        rpc: &mut RpcState,
        io: &mut Io,
        is_held_back: bool,
        now_ns: u64,
    ) {
        let connection = &mut rpc.connection;
        if connection.wants_transmit() {
            connection.transmit(&mut io.output, now_ns);
        }
        let is_all_taken = !io.is_unfinished() && !is_held_back;
        if connection.close_reason().is_some() || (io.end_of_input() && is_all_taken) {
            io.close_when_written();
        }
        self.guard_account(rpc, io, now_ns);
        self.after_step(rpc, io);
        self.resume_reads(rpc);
        let account = &self.context.admission.account;
        let waits = self
            .large_message_queue
            .settle(rpc, &mut io.output, account, now_ns);
        if let Some(waits) = waits {
            if now_ns >= waits.since_ns + limits::STARVED_MS * 1_000_000 {
                rpc.link.holding.relieve_starved(waits.bytes, now_ns);
            }
            self.look_again(&mut rpc.link, limits::TURN_RETRY_MS, now_ns);
        }
        // Behind it, as it may have found memory for a message.
        self.unpack_queue.settle(rpc);
        if rpc.connection.is_framed() {
            self.after_walk_of_framed(rpc, io, now_ns);
        }
        if let Some(at_ns) = rpc.connection.next_deadline_ns() {
            self.arm(&mut rpc.link, at_ns);
        }
        rpc.link.holding.end_visit();
        self.log_error(rpc);
    }

    /// What a visit to a connection of baidu_std or SRPC also ends with.
    fn after_walk_of_framed(&mut self, rpc: &mut RpcState, io: &mut Io, now_ns: u64) {
        let Some(framed) = rpc.connection.as_framed() else {
            return;
        };
        if framed.has_events() {
            // What came of the message lies in the input, which may be full.
            self.revisit.push(rpc.link.id);
        }
        if !Self::note_idle(rpc, io, now_ns) {
            return;
        }
        if io.output.is_empty() {
            // Without lingering, which would keep the place. What the peer sends in this moment is
            // lost, and was not looked at.
            io.close_now();
        } else {
            // Somebody reads the last response, however slowly: it is not over.
            rpc.link.holding.note_idle(None, now_ns);
            Self::note_idle(rpc, io, now_ns);
        }
    }

    /// Notes since when a connection of baidu_std or SRPC is idle, if it is. Returns whether it has
    /// to go, to make room for another.
    fn note_idle(rpc: &mut RpcState, io: &Io, now_ns: u64) -> bool {
        let Some(framed) = rpc.connection.as_framed() else {
            return false;
        };
        let is_idle = framed.is_idle() && io.input.is_empty();
        let calls = is_idle.then(|| framed.begun_calls());
        rpc.link.holding.note_idle(calls, now_ns)
    }

    /// Charges what a connection holds now, and holds back what is produced for its peer
    /// accordingly. Who found no memory for a large message waits until it tries again.
    fn charge(&self, rpc: &mut RpcState, io: &Io) -> Pause {
        let now_ns = self.context.clock.tick_ns();
        let holding = &mut rpc.link.holding;
        holding.change(held(&rpc.connection, io), now_ns);
        let pause = holding.pause();
        rpc.connection.set_pause(match pause {
            Pause::No if rpc.has_failed_claim() => Pause::Large,
            pause => pause,
        });
        pause
    }

    /// Lets nothing be produced for a peer, and keeps its windows shut, while the account lets it
    /// hold no more; ends it to relieve the account.
    fn guard_account(&mut self, rpc: &mut RpcState, io: &mut Io, now_ns: u64) {
        let pause = self.charge(rpc, io);
        if rpc.starves(pause != Pause::No, now_ns) {
            rpc.link.holding.relieve_starved(1, now_ns);
        }
        let (connection, link) = (&mut rpc.connection, &mut rpc.link);
        connection.set_windows_shut(pause != Pause::No, &mut io.output);
        if pause != Pause::No {
            link.holding.relieve(now_ns);
            // What is held may shrink elsewhere, while this peer can do nothing but wait.
            self.look_again(link, limits::WINDOWS_SHUT_MS, now_ns);
        }
        if rpc.link.holding.evict_if_condemned() {
            const WHY: &str = "it held most of what all peers may hold, and did not move";
            rpc.connection.abort(WHY, &mut io.output);
            io.close_now();
        }
    }

    /// Has the connections visited that are to be ended to relieve the account, if some were
    /// condemned since this was last called: those that wait for nothing have no other visit.
    pub(super) fn visit_condemned(&mut self, slots: &mut [Option<ConnectionState>]) {
        let verdicts = self.context.admission.account.verdicts();
        if std::mem::replace(&mut self.verdicts_seen, verdicts) == verdicts {
            return;
        }
        for link in slots.iter_mut().flatten().map(ConnectionState::link_mut) {
            link.holding.show_if_hidden();
            if link.holding.is_condemned() || link.holding.makes_room() {
                self.revisit.push(link.id);
            }
        }
    }

    /// Takes up reads that have waited for send capacity.
    fn resume_reads(&mut self, rpc: &mut RpcState) {
        if !rpc.deferred_reads.may_go_on(&rpc.connection) {
            return;
        }
        let id = rpc.link.id;
        for (database, call, kept) in rpc.deferred_reads.take() {
            if self.calls.is_running(call) {
                let hash = self.shared.store.hasher().hash(&kept);
                let read = (database, call, hash);
                self.context.batch.add_read(id, read, &kept);
            }
        }
        if !rpc.deferred_reads.is_empty() {
            self.revisit.push(id);
        }
    }

    /// What every step of a call ends with, also outside of a walk: counting what is buffered now,
    /// and another visit if the step has moved something on that another call waits for.
    #[inline]
    pub(super) fn after_step(&mut self, rpc: &mut RpcState, io: &Io) {
        let pause = self.charge(rpc, io);
        self.calls.settle_unsent(rpc);
        if !rpc.unsent_slow.is_empty() {
            self.calls.settle_slow(&self.context, rpc, false);
        }
        // What was taken is charged now.
        let claimed_bytes = rpc.take_claimed_bytes();
        if claimed_bytes > 0 {
            self.context.admission.account.end_claim(claimed_bytes);
        }
        // What the step has set free may be what a read waits for, and its peer need not say
        // anything more.
        let reads_may_go_on = rpc.deferred_reads.may_go_on(&rpc.connection);
        if rpc.connection.has_events() || reads_may_go_on {
            self.revisit.push(rpc.link.id);
        }
        let now_ns = self.context.clock.tick_ns();
        if rpc.connection.is_framed() {
            // A response that comes between visits leaves it idle as well.
            Self::note_idle(rpc, io, now_ns);
        }
        if rpc.take_failed_claim() {
            self.look_again(&mut rpc.link, limits::CLAIM_RETRY_MS, now_ns);
        }
        if pause != Pause::No {
            self.look_again(&mut rpc.link, limits::WINDOWS_SHUT_MS, now_ns);
        }
    }

    /// Has a connection visited again that waits for what others give back: so many milliseconds
    /// from now, or later where many wait.
    fn look_again(&mut self, link: &mut Link, retry_ms: u64, now_ns: u64) {
        let at_ns = link.holding.next_look_ns(retry_ms, now_ns);
        self.arm(link, at_ns);
    }

    /// Sets the connection's timer, unless one expires before.
    pub(super) fn arm(&mut self, link: &mut Link, at_ns: u64) {
        if at_ns < link.armed_ns {
            link.armed_ns = at_ns;
            self.timers.set(at_ns, Timer::connection(link.id));
        }
    }

    /// Takes out the connections that are to be visited in the next turn of the loop.
    pub(super) fn take_revisit(&mut self) -> Vec<ConnectionId> {
        std::mem::take(&mut self.revisit)
    }
}

/// Whether a caller has said all: what its call does now is done, and answered, before anything
/// else is looked at.
fn ends_a_request(event: Event) -> bool {
    match event {
        Event::Request { end, .. } => end,
        Event::Message { last, .. } | Event::Part { last, .. } => last,
        Event::HalfClosed { .. } | Event::Refused => true,
        _ => false,
    }
}

/// What an event costs more than others, in events.
#[inline]
fn extra_cost(connection: &RpcConnection) -> usize {
    match connection.message_was_compressed() {
        true => unpack_queue::cost_in_events(connection.unpacked_bytes()),
        false => 0,
    }
}

/// What a connection holds, with the output that the driver has yet to write.
#[inline]
pub(crate) fn held(connection: &RpcConnection, io: &Io) -> HeldBytes {
    let output_bytes = large_output_bytes(io);
    let memory = connection.memory();
    let calls_bytes = calls_bytes(memory.running);
    let all_bytes = memory.held_bytes + output_bytes + calls_bytes;
    HeldBytes {
        charged_bytes: memory.buffered_bytes + output_bytes + calls_bytes,
        all_bytes,
        expected_bytes: memory.expected_bytes,
        unsent_bytes: memory.unsent_bytes + output_bytes,
        sent_bytes: memory.sent_bytes,
        // Of nobody who holds so little that it stays is it asked.
        waits_for_memory: all_bytes >= limits::RELIEVED_FROM_BYTES
            && (connection.has_put_back() || connection.has_proven_waiting())
            && connection.queued_bytes() + output_bytes < limits::SMALL_HOLDING_BYTES,
    }
}

/// What so many open streams and their calls take, beside what they have sent and will be sent.
#[inline]
fn calls_bytes(streams: usize) -> usize {
    streams.saturating_sub(limits::CALLS_IN_ANY_CASE) * limits::CALL_BYTES
}

/// The output that waits for the socket, if it is more than what is usually written at once. The
/// driver calls `Handler::writable` when it has become less, so that it is not counted for longer.
#[inline]
pub(crate) fn large_output_bytes(io: &Io) -> usize {
    let bytes = io.output.len();
    if bytes > net::limits::OUTPUT_LOW_WATER_BYTES {
        bytes
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_loop::LoopHandler;
    use crate::pair::Pair;

    const CONNECTIONS: u32 = 3;

    fn id(slot: u32) -> ConnectionId {
        ConnectionId {
            slot,
            generation: 0,
        }
    }

    fn ids() -> Vec<ConnectionId> {
        (0..CONNECTIONS).map(id).collect()
    }

    /// An event loop with several connections.
    fn with_connections() -> Pair {
        let mut pair = Pair::accepted(false);
        for slot in 1..CONNECTIONS {
            let peer = net::Peer {
                address: net::PeerAddress::Simulated(1),
                listener: 0,
                outgoing: false,
                over_limit: false,
                place: None,
                handshake: None,
                tls: None,
                user: None,
            };
            net::Handler::opened(&mut pair.handler, id(slot), &peer, &mut Io::new(), 0);
        }
        pair
    }

    #[test]
    fn all_connections_that_were_held_back_go_on() {
        let mut pair = with_connections();
        let state = &mut pair.handler.state;
        for _ in 0..2 {
            state.held_back.extend(ids());
            state.resume_held_back();
            assert_eq!(state.take_revisit(), ids());
            assert!(state.held_back.is_empty());
            state.resume_held_back();
            assert!(state.take_revisit().is_empty(), "each goes on once");
        }
    }

    /// Several are condemned between two looks: their count has changed once for the loop.
    #[test]
    fn all_condemned_connections_are_visited() {
        let mut pair = with_connections();
        let account = std::sync::Arc::clone(pair.handler.account());
        let bytes = account.limit_bytes() / 2;
        let mut now_ns = 1;
        for _ in 0..2 {
            let LoopHandler { slots, state, .. } = &mut pair.handler;
            for bytes in [0, bytes] {
                let held = HeldBytes {
                    charged_bytes: bytes,
                    all_bytes: bytes,
                    ..HeldBytes::default()
                };
                let links = slots.iter_mut().flatten().map(ConnectionState::link_mut);
                links.for_each(|link| link.holding.change(held, now_ns));
            }
            assert!(account.is_full());
            state.visit_condemned(slots);
            assert!(state.take_revisit().is_empty(), "all have just moved");
            now_ns += limits::STALLED_MS * 1_000_000;
            let wake: crate::SharedWaker = std::sync::Arc::new(|| {});
            let other = account.open(&net::PeerAddress::Simulated(2), &wake);
            for _ in 0..CONNECTIONS {
                other.relieve(now_ns);
                now_ns += limits::RELIEVE_MS * 1_000_000;
            }
            state.visit_condemned(slots);
            assert_eq!(state.take_revisit(), ids());
            state.visit_condemned(slots);
            assert!(state.take_revisit().is_empty(), "each is visited once");
        }
    }
}
