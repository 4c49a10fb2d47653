//! What the driver calls, in the order of a tick.

use net::{Closed, ConnectionId, Connections, Handler, Io, Peer};
use service::identities::Unauthenticated;
use store::{DatabaseId, Decision, Outcomes};

use super::LoopState;
use super::trust::TrustWalk;
use crate::admission::ShedFor;
use crate::call_id::CallId;
use crate::connection::{ConnectionState, Link, RpcState};
use crate::limits;
use crate::timers::Timer;

/// A [`Handler`] that serves calls. Owns its connections and calls; shares store and health with
/// the other loops.
pub(crate) struct LoopHandler {
    /// The connections, by their slots.
    pub(super) slots: Vec<Option<ConnectionState>>,
    pub(super) state: LoopState,
    pub(super) trust_walk: TrustWalk,
}

impl LoopHandler {
    pub fn new(state: LoopState) -> LoopHandler {
        LoopHandler {
            slots: Vec::new(),
            state,
            trust_walk: TrustWalk::default(),
        }
    }

    /// Returns the slot of a connection, if that is still in it.
    fn slot(
        slots: &mut [Option<ConnectionState>],
        id: ConnectionId,
    ) -> Option<&mut Option<ConnectionState>> {
        let slot = slots.get_mut(id.slot as usize)?;
        let is_there = slot.as_ref().is_some_and(|state| state.link().id == id);
        is_there.then_some(slot)
    }

    /// Returns a connection if it is still there and carries calls.
    #[inline]
    pub(super) fn rpc_of(
        slots: &mut [Option<ConnectionState>],
        id: ConnectionId,
    ) -> Option<&mut RpcState> {
        let rpc = slots.get_mut(id.slot as usize)?.as_mut()?.rpc()?;
        (rpc.link.id == id).then_some(rpc)
    }

    /// What the timers that are due ask for. Those that this tick has no time for are due in the
    /// next.
    fn expire_timers(&mut self, connections: &mut dyn Connections, now_ns: u64) {
        for _ in 0..limits::TIMERS_PER_TICK {
            let Some((at_ns, timer)) = self.state.timers.pop_due(now_ns) else {
                break;
            };
            match timer {
                Timer::Connection { slot, generation } => {
                    let id = ConnectionId { slot, generation };
                    self.expire_connection(connections, id, at_ns, now_ns);
                }
                Timer::Deadline(call) => {
                    self.with_call(connections, call, LoopState::deadline_passed)
                }
                Timer::Wake(call) if self.state.calls.take_due_wake(call, now_ns) => {
                    self.with_call(connections, call, LoopState::wake)
                }
                Timer::Wake(_) => {}
            }
        }
    }

    /// A timer of a connection that was set again since is not that of the connection any more: if
    /// it expired, it would be set once more, and the timers of a connection would never become
    /// fewer.
    fn expire_connection(
        &mut self,
        connections: &mut dyn Connections,
        id: ConnectionId,
        at_ns: u64,
        now_ns: u64,
    ) {
        let is_due = |state: &mut ConnectionState| state.link().armed_ns == at_ns;
        if let Some(slot) = Self::slot(&mut self.slots, id)
            && let Some(io) = connections.io(id)
            && let Some(state) = slot.take_if(is_due)
        {
            *slot = Some(self.state.connection_timer(state, io, now_ns));
        }
    }

    /// Afterwards there are at most two timers for a call and one for a connection, so that the
    /// next sweep is far.
    fn sweep_timers(&mut self) {
        let LoopState {
            timers,
            calls,
            connections,
            ..
        } = &mut self.state;
        let owners = 2 * calls.len() + *connections;
        if timers.len() <= 2 * owners + limits::DEAD_TIMERS {
            return;
        }
        let slots = &self.slots;
        timers.retain(|at_ns, timer| match timer {
            Timer::Deadline(id) => calls.is_running(id),
            Timer::Wake(id) => calls.wake_at_ns(id) == Some(at_ns),
            Timer::Connection { slot, generation } => {
                let id = ConnectionId { slot, generation };
                let state = slots.get(slot as usize).and_then(Option::as_ref);
                let is_its_own = |link: &Link| link.id == id && link.armed_ns == at_ns;
                state.is_some_and(|state| is_its_own(state.link()))
            }
        });
    }

    /// Runs `act` on a call with the connection it belongs to, if both are still there.
    pub(super) fn with_call(
        &mut self,
        connections: &mut dyn Connections,
        call: CallId,
        act: impl FnOnce(&mut LoopState, &mut RpcState, &mut Io, CallId),
    ) {
        let Some(id) = self.state.calls.connection(call) else {
            return;
        };
        let Some(rpc) = Self::rpc_of(&mut self.slots, id) else {
            return;
        };
        let Some(io) = connections.io(id) else { return };
        rpc.refresh_pause();
        act(&mut self.state, rpc, io, call);
        self.state.after_step(rpc, io);
        if rpc.connection.close_reason().is_some() {
            // It drained, and this was its last call: nothing else need happen to it.
            io.close_when_written();
        }
    }

    /// Hands the writes of this tick to the committer and the outcomes to their calls.
    fn serve_writes(&mut self, connections: &mut dyn Connections) {
        self.state.sweep();
        let mut outcomes = self.state.writes.take_outcomes();
        if self.state.commit_or_submit(&mut outcomes) {
            self.answer_writes(connections, &outcomes);
        }
        self.state.pass_on_abandoned();
        while self.state.writes.take_mail(&mut outcomes) {
            self.answer_writes(connections, &outcomes);
        }
        self.state.writes.give_outcomes(outcomes);
        self.state.load_late_identities();
    }

    pub(super) fn answer_writes(&mut self, connections: &mut dyn Connections, outcomes: &Outcomes) {
        for outcome in outcomes.iter() {
            if outcome.database == DatabaseId::BLOBS {
                self.state.context.blobs.settle(&outcome);
            }
            if outcome.database == DatabaseId::IDENTITIES && outcome.decision == Decision::Applied {
                self.state.load_identities();
            }
            let call = CallId::from_tag(outcome.tag);
            self.with_call(connections, call, |state, rpc, io, call| {
                state.committed(rpc, io, call, &outcome)
            });
        }
    }

    /// Brings calls the news of their tasks.
    fn tell_of_tasks(&mut self, connections: &mut dyn Connections) {
        let now_ns = self.state.context.clock.tick_ns();
        for (call, news) in self.state.context.tasks.take_news(now_ns) {
            self.with_call(connections, call, |state, rpc, io, call| {
                state.task_news(rpc, io, call, &news)
            });
        }
    }

    /// Brings calls the news of their blobs.
    fn tell_of_blobs(&mut self, connections: &mut dyn Connections) {
        for (call, news) in self.state.context.blobs.take_news() {
            self.with_call(connections, call, |state, rpc, io, call| {
                state.blob_news(rpc, io, call, news)
            });
        }
    }

    /// Ends the calls of those who were revoked, or have expired.
    fn end_orphans(&mut self, connections: &mut dyn Connections) {
        if !self.state.take_other_identities() {
            return;
        }
        if self.state.calls.has_unsent() {
            self.cut_off_unsent(connections);
        }
        for call in self.state.orphans() {
            self.with_call(connections, call, LoopState::end_orphan);
        }
        self.trust_walk.begin_for(&self.state.context.identities);
    }

    /// The same of those whose calls have ended, and whose answers wait.
    fn cut_off_unsent(&mut self, connections: &mut dyn Connections) {
        let states = self.slots.iter_mut().flatten();
        let have_some = |rpc: &&mut RpcState| !rpc.unsent_answers.is_empty();
        for rpc in states.filter_map(ConnectionState::rpc).filter(have_some) {
            if let Some(io) = connections.io(rpc.link.id) {
                rpc.refresh_pause();
                let LoopState { calls, context, .. } = &mut self.state;
                calls.cut_off_unsent(context, rpc, &mut io.output);
                self.state.after_step(rpc, io);
            }
        }
    }

    /// Ends connections whose certificate is of an authority that was taken away, as many as there
    /// is time for in a tick: their calls, and then themselves.
    #[inline]
    fn end_distrusted(&mut self, connections: &mut dyn Connections, now_ns: u64) {
        if let Some(from) = self.trust_walk.take_next() {
            self.walk_distrusted(connections, from, now_ns);
        }
    }

    #[cold]
    fn walk_distrusted(&mut self, connections: &mut dyn Connections, from: usize, now_ns: u64) {
        let now_ms = self.state.context.clock.store_ms();
        let mut checks = 0;
        for slot in from..self.slots.len() {
            let Some(state) = self.slots[slot].as_mut() else {
                continue;
            };
            let Some(identity) = state.link_mut().identity.unchecked() else {
                continue;
            };
            if checks == limits::CERTIFICATE_CHECKS_PER_TICK {
                self.trust_walk.begin_at(slot);
                return;
            }
            checks += 1;
            if !identity.is_trusted(now_ms) {
                let id = state.link().id;
                self.end_calls_of(connections, id);
                self.drain_slot(connections, slot, now_ns);
            }
        }
    }

    /// Ends the calls of a connection whose certificate is not trusted any more, and cuts off the
    /// answers of those that have ended.
    fn end_calls_of(&mut self, connections: &mut dyn Connections, id: ConnectionId) {
        const WHY: Unauthenticated = Unauthenticated::CertificateNotTrusted;
        let calls = &self.state.calls;
        let is_of_it = |call: &CallId| calls.connection(*call) == Some(id);
        let of_it: Vec<CallId> = calls.ids().filter(is_of_it).collect();
        for call in of_it {
            self.with_call(connections, call, |state, rpc, io, call| {
                state.end_unauthenticated(rpc, io, call, WHY);
            });
        }
        let rpc = LoopHandler::rpc_of(&mut self.slots, id);
        if let (Some(rpc), Some(io)) = (rpc, connections.io(id)) {
            rpc.refresh_pause();
            for answer in rpc.unsent_answers.all(&rpc.connection) {
                (rpc.connection).cut_off(answer.stream, &mut io.output, &WHY.status());
            }
            self.state.calls.forget_unsent(rpc);
            self.state.after_step(rpc, io);
        }
    }

    fn wake_subscribers(&mut self, connections: &mut dyn Connections) {
        for call in self.state.subscribers_to_wake() {
            self.with_call(connections, call, LoopState::wake);
        }
        let LoopState {
            context,
            shared,
            waker,
            ..
        } = &mut self.state;
        if context.watchers.look(&shared.store, waker) {
            self.wake_watchers(connections);
        }
    }

    /// Wakes those who watch databases that have changed, as time allows.
    fn wake_watchers(&mut self, connections: &mut dyn Connections) {
        let until_ns = self.state.context.clock.read_ns() + limits::WATCHERS_PER_TICK_US * 1_000;
        while let Some(call) = self.state.watcher_to_wake() {
            self.with_call(connections, call, LoopState::wake);
            if self.state.context.clock.read_ns() >= until_ns {
                return;
            }
        }
    }

    /// Takes no new calls on the connection of a slot, if there is one.
    fn drain_slot(&mut self, connections: &mut dyn Connections, slot: usize, now_ns: u64) {
        if let Some(state) = self.slots[slot].as_mut()
            && let Some(io) = connections.io(state.link().id)
        {
            self.state.drain_connection(state, io, now_ns);
        }
    }

    /// While draining: ends the calls that only wait for their peer, and cuts off what is sent to
    /// peers that take nothing.
    fn cancel_idle_calls(&mut self, connections: &mut dyn Connections, now_ns: u64) {
        if !self.state.is_look_due(now_ns) {
            return;
        }
        let (slots, state) = (&mut self.slots, &mut self.state);
        let mut is_stalled = |slot: &Option<ConnectionState>| {
            (slot.as_ref()).is_some_and(|connection| state.is_stalled(connection, now_ns))
        };
        // Before the first is ended: what that sets free is no sign of any peer.
        let stalled: Vec<bool> = slots.iter().map(&mut is_stalled).collect();
        let calls: Vec<CallId> = self.state.calls.ids().collect();
        for call in calls {
            let id = self.state.calls.connection(call);
            let is_stalled = id.is_some_and(|id| stalled.get(id.slot as usize) == Some(&true));
            self.with_call(connections, call, |state, rpc, io, call| {
                state.end_for_stop(rpc, io, call, is_stalled);
            });
        }
        let slots = self.slots.iter_mut().zip(stalled);
        for state in slots.filter_map(|(slot, is_stalled)| slot.as_mut().filter(|_| is_stalled)) {
            if let Some(io) = connections.io(state.link().id) {
                self.state.cut_off_stalled(state, io);
            }
        }
    }
}

impl Handler for LoopHandler {
    fn opened(&mut self, id: ConnectionId, peer: &Peer, _io: &mut Io, now_ns: u64) {
        let slot = id.slot as usize;
        if slot >= self.slots.len() {
            self.slots.resize_with(slot + 1, || None);
        }
        let account = &self.state.context.admission.account;
        let holding = account.open(&peer.address, &self.state.waker);
        let mut link = Link::new(id, peer, holding, now_ns);
        self.state.connection_opened(&mut link, now_ns);
        if let Some(reason) = link.refused {
            let is_of_address = reason == ShedFor::AddressConnections;
            let account = &self.state.context.admission.account;
            account.make_room(is_of_address.then_some(&peer.address), now_ns);
        }
        if link.identity.unchecked().is_some() {
            // An authority was taken away during its handshake.
            self.trust_walk.begin_at(slot);
        }
        self.slots[slot] = Some(ConnectionState::Undecided(Box::new(link)));
    }

    fn received(&mut self, id: ConnectionId, io: &mut Io, now_ns: u64) {
        self.state.set_time(now_ns);
        let Some(slot) = Self::slot(&mut self.slots, id) else {
            return;
        };
        let is_undecided = matches!(slot, Some(ConnectionState::Undecided(_)));
        if is_undecided && !self.state.decide(slot, io, now_ns) {
            return;
        }
        if let Some(state) = slot {
            if let Some(rpc) = state.rpc() {
                rpc.received_ns = now_ns;
            }
            self.state.visit(state, io, now_ns);
        }
    }

    fn writable(&mut self, id: ConnectionId, io: &mut Io, now_ns: u64) {
        self.state.set_time(now_ns);
        if let Some(Some(state)) = Self::slot(&mut self.slots, id) {
            self.state.visit(state, io, now_ns);
        }
    }

    fn closed(&mut self, id: ConnectionId, why: Closed, now_ns: u64) {
        self.state.set_time(now_ns);
        if let Some(slot) = Self::slot(&mut self.slots, id)
            && let Some(state) = slot.take()
        {
            self.state.connection_closed(state, why);
            let calls = &self.state.calls;
            let caller = |tag| calls.connection(CallId::from_tag(tag));
            self.state.readers.forget(id, &caller);
            // A thread with a single connection has no tick after its end.
            self.state.show_figures();
        }
    }

    fn tick(&mut self, connections: &mut dyn Connections, now_ns: u64) {
        self.state.set_time(now_ns);
        self.end_orphans(connections);
        self.end_distrusted(connections, now_ns);
        self.serve_reads(connections);
        self.serve_long_reads(connections);
        self.handle_reader_results(connections);
        if self.state.writes.remote().is_some() {
            self.state.look_at_engine();
            self.handle_remote_answers(connections);
        }
        self.tell_of_blobs(connections);
        self.state.read_ahead_again();
        self.serve_writes(connections);
        self.tell_of_tasks(connections);
        self.wake_subscribers(connections);
        self.expire_timers(connections, now_ns);
        self.read_log();
        self.cancel_idle_calls(connections, now_ns);
        self.state.end_tick();
        self.sweep_timers();
        self.state.resume_held_back();
        self.state.visit_condemned(&mut self.slots);
        for id in self.state.take_revisit() {
            if let Some(io) = connections.io(id) {
                io.set_unfinished(true);
            }
        }
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        match self.trust_walk.is_under_way() {
            true => Some(self.state.context.clock.tick_ns()),
            false => self.state.next_deadline_ns(),
        }
    }

    fn awaits_wake(&self) -> bool {
        self.state.awaits_end_of_identity()
    }

    fn is_idle(&self) -> bool {
        self.state.is_idle()
    }

    fn rest(&mut self) {
        self.state.rest();
    }

    fn stop(&mut self, connections: &mut dyn Connections, now_ns: u64) {
        self.state.set_time(now_ns);
        self.state.begin_drain(now_ns);
        self.wake_subscribers(connections);
        for slot in 0..self.slots.len() {
            self.drain_slot(connections, slot, now_ns);
        }
    }

    /// A connection that is closed too early loses the requests that are on their way to it.
    fn is_drained(&self) -> bool {
        let mut states = self.slots.iter().flatten();
        self.state.calls.len() == 0
            && if self.state.idle_time_is_over() {
                !states.any(|state| self.state.is_sending(state))
            } else {
                states.all(ConnectionState::is_drained)
            }
    }
}

#[cfg(test)]
mod tests {
    use net::Handler;
    use wire::grpc::Code;
    use wire::limits::GLITCH_BURST;
    use wire::{ErrorCode, Event, RequestHead};

    use super::LoopHandler;
    use crate::call_id::CallId;
    use crate::limits;
    use crate::pair::Pair;
    use crate::timers::Timer;

    /// A header block that is begun and ended later makes the connection's timer expire earlier,
    /// again and again.
    #[test]
    fn a_connection_has_one_timer_in_the_long_run() {
        const END_HEADERS: u8 = 4;
        let mut pair = Pair::open();
        for _ in 0..100 {
            let stream = pair.call("/pelton.v1.Echo/Unary", b"");
            let mut headers = std::mem::take(&mut pair.sent);
            let length = 9 + usize::from(u16::from_be_bytes([headers[1], headers[2]]));
            let data = headers.split_off(length);
            headers[4] &= !END_HEADERS;
            pair.sent = headers;
            pair.turn();
            let id = stream.id.to_be_bytes();
            let continuation = [&[0, 0, 0, 9, END_HEADERS][..], &id].concat();
            pair.sent.extend([continuation, data].concat());
            pair.turn();
            pair.now_ns += 15_000_000_000;
            pair.turn();
            pair.turn();
        }
        assert!(!pair.io.is_closing());
        assert!(pair.handler.timers() <= 5, "{}", pair.handler.timers());
    }

    #[test]
    fn a_timer_is_set_anew_only_for_an_earlier_time() {
        let mut pair = Pair::open();
        let before = pair.handler.timers();
        for (at_ns, timers) in [(90, 1), (90, 1), (91, 1), (89, 2), (89, 2), (90, 2)] {
            let LoopHandler { slots, state, .. } = &mut pair.handler;
            let open = slots[0].as_mut().expect("it is open");
            state.arm(open.link_mut(), at_ns);
            assert_eq!(pair.handler.timers() - before, timers, "{at_ns}");
        }
    }

    /// A call that has asked for another time since is not woken by the timer of before.
    #[test]
    fn a_call_is_woken_at_the_time_that_it_asked_for_last() {
        let mut pair = Pair::open();
        let head = RequestHead::call("test", "/pelton.v1.Echo/Stream");
        let Pair { client, sent, .. } = &mut pair;
        let stream = client.open(sent, &head).expect("a stream is free");
        for _ in 0..2 {
            let due_ns = pair.now_ns + 10_000_000;
            // EchoRequest with a delay of 10 ms.
            let delay = |out: &mut Vec<u8>| out.extend_from_slice(&[0x18, 10]);
            pair.client.send_message(stream, &mut pair.sent, delay);
            pair.turn();
            let id = pair.handler.state.calls.ids().next().expect("it runs");
            let wake_at_ns = |pair: &Pair| {
                let calls = &pair.handler.state.calls;
                calls.wake_at_ns(id).expect("it runs")
            };
            pair.handler.state.timers.set(due_ns - 1, Timer::Wake(id));
            for (now_ns, wake_ns, messages) in [(due_ns - 1, due_ns, 0), (due_ns, u64::MAX, 1)] {
                pair.now_ns = now_ns;
                pair.turn();
                assert_eq!(wake_at_ns(&pair), wake_ns);
                assert_eq!(pair.messages.drain(..).count(), messages);
            }
        }
    }

    /// What is awaited expires after the sweep as before it; of timers that were set again, only
    /// the last is.
    #[test]
    fn dead_timers_are_swept_when_they_outnumber_what_may_be_awaited() {
        let mut pair = Pair::open();
        // EchoRequest with a delay of 20 s, and of as long with a deadline before.
        let slow = [0x18, 0xa0, 0x9c, 0x01];
        let waiting = pair.call("/pelton.v1.Echo/Unary", &slow);
        let head = RequestHead {
            timeout_ns: Some(15_000_000_000),
            ..RequestHead::call("test", "/pelton.v1.Echo/Unary")
        };
        let late = pair.client.open(&mut pair.sent, &head);
        let late = late.expect("a stream is free");
        let append = |out: &mut Vec<u8>| out.extend_from_slice(&slow);
        (pair.client).send_last_message(late, &mut pair.sent, append);
        pair.turn();
        let ids: Vec<_> = pair.handler.state.calls.ids().collect();
        assert_eq!(ids.len(), 2);
        let far_ns = 60_000_000_000;
        let gone = CallId {
            index: ids[0].index,
            generation: ids[0].generation + 1,
        };
        let open = pair.handler.rpc().link.id;
        let other = net::ConnectionId {
            generation: open.generation + 1,
            ..open
        };
        let dead = [
            Timer::Deadline(gone),
            Timer::Wake(gone),
            Timer::Wake(ids[0]),
            Timer::connection(open),
            Timer::connection(other),
        ];
        let most = 2 * (2 * ids.len() + 1) + limits::DEAD_TIMERS;
        let mut dead = dead.iter().cycle();
        for (timers, left) in [(most, most), (most + 1, 4)] {
            while pair.handler.timers() < timers {
                let timer = *dead.next().expect("it has no end");
                pair.handler.state.timers.set(far_ns, timer);
            }
            pair.turn();
            // Two wakes, a deadline, and the timer of the connection.
            assert_eq!(pair.handler.timers(), left);
        }
        for (now_ns, ended, code) in [
            (15_000_000_000, late, Code::DeadlineExceeded),
            (20_000_000_000, waiting, Code::Ok),
        ] {
            pair.now_ns = now_ns - 1;
            assert!(!pair.turn().contains(&Event::Finished { stream: ended }));
            pair.now_ns = now_ns;
            let end = [pair.turn(), pair.turn()].concat();
            assert!(end.contains(&Event::Finished { stream: ended }));
            assert_eq!(pair.client.status().code(), code);
            pair.client.forget(ended);
        }
    }

    /// Each leaves the timer for its first bytes behind.
    #[test]
    fn connections_that_come_and_go_leave_few_timers() {
        let mut pair = Pair::accepted(false);
        for _ in 0..3 * limits::DEAD_TIMERS {
            pair.close();
            pair.accept(false);
            pair.now_ns += 1;
            pair.turn();
        }
        assert!(pair.handler.timers() <= limits::DEAD_TIMERS + 2);
    }

    /// The peer's window is shut, and it falls silent: what waits for it was put there after its
    /// last word.
    #[test]
    fn what_waits_for_a_silent_peer_is_counted() {
        let mut pair = Pair::open();
        let before = pair.handler.account().charged_bytes();
        // EchoRequest: answer_bytes 1 000 000, after a delay of 10 ms.
        pair.call("/pelton.v1.Echo/Unary", &[0x10, 0xc0, 0x84, 0x3d, 0x18, 10]);
        pair.turn();
        pair.now_ns += 10_000_000;
        pair.sent.clear();
        pair.turn();
        let waiting = pair.handler.account().charged_bytes() - before;
        assert!(waiting > 900_000, "{waiting}");
        pair.close();
        assert_eq!(pair.handler.account().charged_bytes(), 0);
    }

    /// The clients of an overloaded server are told to try again: doing so must not cost them the
    /// connection.
    #[test]
    fn calls_that_are_shed_again_and_again_keep_their_connection() {
        let mut pair = Pair::open();
        let _overfull = pair.overfill();
        for _ in 0..3 * GLITCH_BURST {
            let stream = pair.call("/pelton.v1.Echo/Unary", b"");
            let events = pair.turn();
            assert_eq!(events, [Event::Finished { stream }]);
            assert_eq!(pair.client.status().code(), Code::Unavailable);
            pair.client.forget(stream);
        }
        assert!(!pair.io.is_closing());
    }

    #[test]
    fn a_connection_that_has_ended_is_not_shown() {
        let mut pair = Pair::alone();
        // EchoRequest with a delay of 10 ms.
        pair.call("/pelton.v1.Echo/Unary", &[0x18, 10]);
        pair.turn();
        let shown = |pair: &Pair| {
            let totals = pair.handler.shared().figures.totals();
            (totals.open_connections, totals.running_calls)
        };
        assert_eq!(shown(&pair), (1, 1));
        pair.close();
        assert_eq!(shown(&pair), (0, 0), "without a tick");
    }

    /// No room for what peers send: they may not send on, until there is room again.
    #[test]
    fn windows_stay_shut_while_the_memory_for_buffers_is_used_up() {
        let mut pair = Pair::open();
        let overfull = pair.overfill();
        pair.call("/pelton.v1.Echo/Unary", b"");
        pair.turn();
        assert!(pair.handler.windows_are_shut());
        drop(overfull);
        pair.now_ns += limits::WINDOWS_SHUT_MS * 1_000_000;
        pair.turn();
        assert!(!pair.handler.windows_are_shut());
    }

    /// A stop while the peer takes a large answer, piece by piece; and while it does not.
    #[test]
    fn a_stop_waits_for_an_answer_that_is_being_taken() {
        for takes in [true, false] {
            let mut pair = Pair::open();
            // EchoRequest: answer_bytes 1 000 000.
            pair.call("/pelton.v1.Echo/Unary", &[0x10, 0xc0, 0x84, 0x3d]);
            pair.turn();
            pair.stop();
            let (mut code, mut turns) = (None, 0);
            while !pair.handler.is_drained() {
                turns += 1;
                assert!(turns < 50, "the drain has an end");
                pair.now_ns += 200_000_000;
                if !takes {
                    pair.sent.clear();
                }
                let events = pair.turn();
                let is_end = |event: &Event| matches!(event, Event::Finished { .. });
                if events.iter().any(is_end) {
                    code = Some(pair.client.status().code());
                }
            }
            let end = match takes {
                true => Code::Ok,
                false => Code::Unavailable,
            };
            assert_eq!(code, Some(end));
            assert!(
                turns > 4 || !takes,
                "more pieces than the drain has time for: {turns}"
            );
        }
    }

    /// What a client sends ahead is looked at when the answer before it is written.
    #[test]
    fn a_loop_with_one_connection_takes_one_request_at_a_time() {
        let mut pair = Pair::alone();
        let streams = [(); 3].map(|()| pair.call("/pelton.v1.KeyValue/Get", b""));
        for (answered, stream) in streams.into_iter().enumerate() {
            assert_eq!(pair.turn().last(), Some(&Event::Finished { stream }));
            assert!(pair.io.output.is_empty(), "no second answer");
            assert_eq!(pair.io.is_unfinished(), answered < 2);
            pair.client.forget(stream);
        }
        assert!(!pair.handler.awaits_wake(), "nothing runs");
    }

    /// Those whose head is all of them, too: requests without a body.
    #[test]
    fn a_loop_with_one_connection_takes_one_request_without_a_body_at_a_time() {
        let mut pair = Pair::alone();
        for _ in 0..2 {
            let streams = [(); 3].map(|()| pair.get("/"));
            for (answered, stream) in streams.into_iter().enumerate() {
                assert_eq!(pair.turn().last(), Some(&Event::Finished { stream }));
                assert!(pair.io.output.is_empty(), "no second answer");
                assert_eq!(pair.io.is_unfinished(), answered < 2);
                pair.client.forget(stream);
            }
            assert_eq!(pair.client.head().http_status(), 200);
            assert!(pair.io.input.is_empty());
        }
    }

    /// The protocol's deadline passes at its time, and not a tick later.
    #[test]
    fn a_deadline_of_the_protocol_passes_at_its_time() {
        for (is_due, early_ns) in [(false, 1), (true, 0)] {
            let mut pair = Pair::open();
            // A header block that is begun and never ended.
            let mut head = Vec::new();
            wire::http2::frame::write_header(&mut head, 1, 1, 0, 1);
            head.push(0x82);
            pair.receive(&head);
            let connection = &pair.handler.rpc().connection;
            let due_ns = connection.next_deadline_ns().expect("it is awaited");
            pair.now_ns = due_ns - early_ns;
            pair.tick_without_input();
            assert_eq!(pair.io.is_closing(), is_due, "{due_ns} less {early_ns}");
        }
    }

    /// A client that takes back long reads at once makes no work by them.
    #[test]
    fn a_loop_with_one_connection_does_not_begin_long_reads_that_were_taken_back() {
        let mut pair = Pair::alone();
        for _ in 0..2 {
            for _ in 0..3 {
                let stream = pair.call("/pelton.v1.KeyValue/Count", b"");
                let Pair { client, sent, .. } = &mut pair;
                client.reset(stream, sent, ErrorCode::Cancel);
            }
            pair.turn();
            let totals = pair.handler.shared().figures.totals();
            assert_eq!(totals.running_calls, 0);
            assert!(!pair.io.is_unfinished() && pair.io.input.is_empty());
        }
        let stream = pair.call("/pelton.v1.KeyValue/Count", b"");
        assert_eq!(pair.turn().last(), Some(&Event::Finished { stream }));
    }

    /// A call that is answered later holds up neither what its client sends nor what it asks
    /// meanwhile.
    #[test]
    fn a_loop_with_one_connection_reads_on_while_a_call_waits() {
        let mut pair = Pair::alone();
        // EchoRequest with a delay of 10 ms.
        let slow = pair.call("/pelton.v1.Echo/Unary", &[0x18, 10]);
        let quick = pair.call("/pelton.v1.KeyValue/Get", b"");
        assert_eq!(pair.turn(), []);
        assert!(pair.handler.awaits_wake());
        assert!(pair.io.is_unfinished());
        let is_end = |event: Option<&Event>, of| event == Some(&Event::Finished { stream: of });
        assert!(is_end(pair.turn().last(), quick));
        pair.now_ns += 10_000_000;
        assert!(is_end(pair.turn().last(), slow));
        assert!(!pair.handler.awaits_wake());
    }

    /// The turn of a message lapses while others have filled the account: the next message does not
    /// begin by what was left when its connection was walked the last time.
    #[test]
    fn a_turn_begins_by_what_is_left_now() {
        let mut pair = Pair::open();
        for size in [1_200_000_u32, 8_000_000] {
            let head = wire::RequestHead::call("test", "/pelton.v1.Echo/Unary");
            let opened = pair.client.open(&mut pair.sent, &head);
            let mut piece = vec![0; 16_000];
            piece[1..5].copy_from_slice(&size.to_be_bytes());
            let id = opened.expect("a stream").id;
            wire::http2::frame::write_header(&mut pair.sent, piece.len(), 0, 0, id);
            pair.sent.extend_from_slice(&piece);
        }
        pair.turn();
        pair.turn();
        let account = std::sync::Arc::clone(pair.handler.account());
        let before = account.charged_bytes();
        assert!(
            (1_100_000..1_500_000).contains(&before),
            "one has its turn: {before}"
        );
        let wake: crate::SharedWaker = std::sync::Arc::new(|| {});
        let mut others = account.open(&net::PeerAddress::Simulated(9), &wake);
        let bytes = account.limit_bytes();
        let held = crate::account::HeldBytes::unsent(bytes);
        others.change(held, pair.now_ns);
        assert!(account.try_overdraft(false));
        assert_eq!(account.left_for_messages(), 0);
        pair.sent.clear();
        pair.now_ns += 150_000_000;
        pair.tick_without_input();
        let after = account.charged_bytes() - bytes;
        assert!(after <= before, "{after} after {before}");
    }
}
