//! The TLS handshakes of a loop that are under way: whose turn it is, and who is closed when there
//! are too many.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::mem;

use crate::handler::ConnectionId;
use crate::limits::{HANDSHAKE_ANSWER_MS, HANDSHAKE_MS, HANDSHAKES_ASKED, HANDSHAKES_PER_LOOP};
use crate::peer_address::{AddressKey, PeerAddress};
use crate::unfinished::HandshakePlace;

const NS_PER_MS: u64 = 1_000_000;

/// All handshakes of a loop, by the addresses that they come from.
///
/// A peer has sent nothing that this side could answer (*silent*), waits for this side's first
/// flight (*due*), or is waited for after it (*asked*). A flight costs a signature, and its peer
/// may have recorded what asked for it; so of those there are only as many as can be given the time
/// of a round trip to answer.
#[derive(Default)]
pub(super) struct Handshakes {
    under_way: HashMap<ConnectionId, RunningHandshake>,
    sources: BTreeMap<TurnSource, SourceHandshakes>,
    /// Sources with a handshake in `due`, each once, in the order of their turns.
    turns: VecDeque<TurnSource>,
    /// Bytes have come from peers that were asked: they have shown that they take part, and what is
    /// left to compute is little.
    answered: VecDeque<ConnectionId>,
    /// The last turn was of one of them.
    was_answered: bool,
    /// How many wait for their turn.
    due: usize,
    /// How many have been sent a flight.
    asked: usize,
    /// No first flight is sent before, since as many as may be were asked.
    paused_until_ns: Option<u64>,
    /// By the time at which they must be done; with some that are.
    deadlines: VecDeque<(u64, ConnectionId)>,
}

/// Peers that share their turns. `None`: those without an address.
type TurnSource = Option<AddressKey>;

struct RunningHandshake {
    source: TurnSource,
    /// Since when the peer is waited for: from the beginning, or from this side's flight on. Bytes
    /// that bring the handshake no further do not count.
    since_ns: u64,
    /// Whether this side has sent a flight.
    is_asked: bool,
    /// Whether bytes have come, so that this side is waited for.
    is_due: bool,
    /// Its place among those of all loops.
    place: Option<HandshakePlace>,
}

#[derive(Default)]
struct SourceHandshakes {
    count: usize,
    /// Silent peers, by the beginning of the wait.
    silent: BTreeSet<(u64, ConnectionId)>,
    /// Peers that were asked and have not answered, by the beginning of the wait.
    asked: BTreeSet<(u64, ConnectionId)>,
    /// Peers that wait for the first flight, in the order in which their bytes came.
    due: VecDeque<ConnectionId>,
}

/// What a loop does next for its handshakes.
pub(super) enum HandshakeTurn {
    /// Takes what this peer has sent.
    Serve(ConnectionId),
    /// Closes this one, which did not answer in time, to have room for another.
    CrowdOut(ConnectionId),
}

impl Handshakes {
    /// Adds a handshake, whose peer is waited for from now on. Returns the one to be closed
    /// for it, if there are too many.
    pub(super) fn begin(
        &mut self,
        id: ConnectionId,
        peer: &PeerAddress,
        place: Option<HandshakePlace>,
        now_ns: u64,
    ) -> Option<ConnectionId> {
        let source = source_of(peer);
        let handshake = RunningHandshake {
            source,
            since_ns: now_ns,
            is_asked: false,
            is_due: false,
            place,
        };
        handshake.note_due();
        self.under_way.insert(id, handshake);
        self.expect_end(id, now_ns);
        let of_source = self.sources.entry(source).or_default();
        of_source.count += 1;
        of_source.silent.insert((now_ns, id));
        if self.under_way.len() - self.asked > HANDSHAKES_PER_LOOP {
            let all = self.sources.values();
            let largest = all.max_by_key(|one| one.silent.len() + one.due.len());
            return largest.and_then(SourceHandshakes::least_worth_unasked);
        }
        None
    }

    fn expect_end(&mut self, id: ConnectionId, now_ns: u64) {
        let until_ns = now_ns.saturating_add(HANDSHAKE_MS * NS_PER_MS);
        self.deadlines.push_back((until_ns, id));
        if self.deadlines.len() > 4 * (HANDSHAKES_PER_LOOP + HANDSHAKES_ASKED) {
            // Those that are done have become most of the list: one that is not stands there once
            // for its beginning, and once for each flight.
            let under_way = &self.under_way;
            (self.deadlines).retain(|(_, id)| under_way.contains_key(id));
        }
    }

    /// Bytes have come: the handshake gets a turn.
    pub(super) fn bytes_came(&mut self, id: ConnectionId) {
        let Some(handshake) = self.under_way.get_mut(&id) else {
            return;
        };
        if mem::replace(&mut handshake.is_due, true) {
            return;
        }
        handshake.note_due();
        self.due += 1;
        let Some(of_source) = self.sources.get_mut(&handshake.source) else {
            return;
        };
        of_source
            .waiting(handshake)
            .remove(&(handshake.since_ns, id));
        // One that was ended for another costs nothing, and does not wait for those that do.
        if handshake.is_asked || handshake.is_crowded_out() {
            self.answered.push_back(id);
            return;
        }
        if of_source.due.is_empty() {
            self.turns.push_back(handshake.source);
        }
        of_source.due.push_back(id);
    }

    /// Whether there is something to do without anything being reported.
    pub(super) fn has_turn(&self) -> bool {
        let may_ask = self.paused_until_ns.is_none() && !self.turns.is_empty();
        may_ask || !self.answered.is_empty()
    }

    /// Returns what is next: for a peer that has answered, else for the sources in turn, and by
    /// turns where there are both, so that peers who bring a byte now and then hold up no newcomer.
    pub(super) fn next_turn(&mut self, now_ns: u64) -> Option<HandshakeTurn> {
        self.paused_until_ns = None;
        if mem::take(&mut self.was_answered)
            && let Some(turn) = self.next_newcomer(now_ns)
        {
            return Some(turn);
        }
        let Some(id) = self.answered.pop_front() else {
            return self.next_newcomer(now_ns);
        };
        self.was_answered = true;
        Some(self.serve(id))
    }

    /// Returns what is next for those that wait for the first flight.
    fn next_newcomer(&mut self, now_ns: u64) -> Option<HandshakeTurn> {
        if self.turns.is_empty() {
            return None;
        }
        if self.asked >= HANDSHAKES_ASKED {
            return self.make_room(now_ns).map(HandshakeTurn::CrowdOut);
        }
        let id = self.next_of_sources()?;
        Some(self.serve(id))
    }

    /// This peer is waited for again until more has come.
    fn serve(&mut self, id: ConnectionId) -> HandshakeTurn {
        if let Some(handshake) = self.under_way.get_mut(&id) {
            handshake.is_due = false;
            handshake.note_due();
            self.due -= 1;
            if let Some(of_source) = self.sources.get_mut(&handshake.source) {
                of_source
                    .waiting(handshake)
                    .insert((handshake.since_ns, id));
            }
        }
        HandshakeTurn::Serve(id)
    }

    fn next_of_sources(&mut self) -> Option<ConnectionId> {
        let source = self.turns.pop_front()?;
        let of_source = self.sources.get_mut(&source)?;
        let id = of_source.due.pop_front();
        if !of_source.due.is_empty() {
            self.turns.push_back(source);
        }
        id
    }

    /// Returns the peer to close so that another can be asked: of the source with most the one that
    /// has been waited for longest, if it had its time. Else no flight is sent until then.
    fn make_room(&mut self, now_ns: u64) -> Option<ConnectionId> {
        let largest = self.sources.values().max_by_key(|one| one.asked.len())?;
        // Nobody is waited for: all have answered, and have their turn first.
        let &(since_ns, id) = largest.asked.first()?;
        let until_ns = since_ns.saturating_add(HANDSHAKE_ANSWER_MS * NS_PER_MS);
        if until_ns <= now_ns {
            return Some(id);
        }
        self.paused_until_ns = Some(until_ns);
        None
    }

    /// This side has sent a flight: the peer has its time from now on.
    pub(super) fn flight_sent(&mut self, id: ConnectionId, now_ns: u64) {
        let Some(handshake) = self.under_way.get_mut(&id) else {
            return;
        };
        let Some(of_source) = self.sources.get_mut(&handshake.source) else {
            return;
        };
        of_source
            .waiting(handshake)
            .remove(&(handshake.since_ns, id));
        self.asked += usize::from(!handshake.is_asked);
        handshake.since_ns = now_ns;
        handshake.is_asked = true;
        of_source.asked.insert((now_ns, id));
        self.expect_end(id, now_ns);
    }

    /// A handshake is no longer under way.
    pub(super) fn end(&mut self, id: ConnectionId) {
        let Some(handshake) = self.under_way.remove(&id) else {
            return;
        };
        if let Some(place) = &handshake.place {
            place.finish();
        }
        if self.under_way.is_empty() {
            self.deadlines.clear();
        }
        if handshake.is_asked {
            self.asked -= 1;
            self.paused_until_ns = None;
        }
        let source = handshake.source;
        let Some(of_source) = self.sources.get_mut(&source) else {
            return;
        };
        of_source.count -= 1;
        of_source
            .waiting(&handshake)
            .remove(&(handshake.since_ns, id));
        if handshake.is_due {
            self.due -= 1;
            self.answered.retain(|&other| other != id);
            of_source.due.retain(|&other| other != id);
            if of_source.due.is_empty() {
                self.turns.retain(|&other| other != source);
            }
        }
        if of_source.count == 0 {
            self.sources.remove(&source);
        }
    }

    /// Whether this one was ended for another, of whichever loop.
    pub(super) fn is_crowded_out(&self, id: ConnectionId) -> bool {
        self.under_way
            .get(&id)
            .is_some_and(RunningHandshake::is_crowded_out)
    }

    /// How many wait for their turn.
    pub(super) fn due(&self) -> usize {
        self.due
    }

    /// When the next handshake must be done, or may go on.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        let done_ns = self.deadlines.front().map(|&(at_ns, _)| at_ns);
        done_ns.into_iter().chain(self.paused_until_ns).min()
    }

    /// Takes a handshake whose time is over. One that waits for this side's first flight gets its
    /// time anew, since the delay is not its peer's; from a flight on the time is the peer's,
    /// however many bytes it brings that bring the handshake no further.
    pub(super) fn next_overdue(&mut self, now_ns: u64) -> Option<ConnectionId> {
        let whole_ns = HANDSHAKE_MS * NS_PER_MS;
        while let Some(&(at_ns, id)) = self.deadlines.front()
            && at_ns <= now_ns
        {
            self.deadlines.pop_front();
            match self.under_way.get(&id) {
                // It stands in the list again for its last flight.
                Some(one) if one.is_asked && now_ns - one.since_ns < whole_ns => {}
                Some(one) if one.is_due && !one.is_asked => self.expect_end(id, now_ns),
                Some(_) => return Some(id),
                None => {}
            }
        }
        None
    }
}

impl RunningHandshake {
    /// Those who look for one to end see whether the peer is waited for.
    fn note_due(&self) {
        if let Some(place) = &self.place {
            place.set_waits_for_peer(!self.is_due);
        }
    }

    fn is_crowded_out(&self) -> bool {
        let place = self.place.as_ref();
        place.is_some_and(HandshakePlace::is_crowded_out)
    }
}

impl SourceHandshakes {
    /// Returns the peers that are waited for as that of `handshake` is.
    fn waiting(&mut self, handshake: &RunningHandshake) -> &mut BTreeSet<(u64, ConnectionId)> {
        match handshake.is_asked {
            true => &mut self.asked,
            false => &mut self.silent,
        }
    }

    /// Returns whom of those that were not asked to close: the peer that has been silent for
    /// longest, else the last that came.
    fn least_worth_unasked(&self) -> Option<ConnectionId> {
        let oldest = self.silent.first().map(|&(_, id)| id);
        oldest.or_else(|| self.due.back().copied())
    }
}

fn source_of(peer: &PeerAddress) -> TurnSource {
    match peer {
        PeerAddress::Tcp(address) => Some(AddressKey::of(address.ip())),
        PeerAddress::Unix | PeerAddress::Simulated(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::unfinished::UnfinishedHandshakes;

    fn peer(text: &str) -> PeerAddress {
        PeerAddress::Tcp(text.parse().expect("an address"))
    }

    fn id(slot: usize) -> ConnectionId {
        ConnectionId {
            slot: u32::try_from(slot).expect("few"),
            generation: 0,
        }
    }

    /// Whose turn it is; `Err`: who is closed.
    fn turn(handshakes: &mut Handshakes, now_ns: u64) -> Option<Result<u32, u32>> {
        match handshakes.next_turn(now_ns)? {
            HandshakeTurn::Serve(id) => Some(Ok(id.slot)),
            HandshakeTurn::CrowdOut(id) => Some(Err(id.slot)),
        }
    }

    fn assert_empty(handshakes: &Handshakes) {
        assert!(handshakes.under_way.is_empty() && handshakes.sources.is_empty());
        assert!(handshakes.turns.is_empty() && handshakes.answered.is_empty());
        assert_eq!((handshakes.due, handshakes.asked), (0, 0));
        assert_eq!(
            (handshakes.deadline_ns(), handshakes.has_turn()),
            (None, false)
        );
    }

    #[test]
    fn addresses_take_turns_and_who_has_answered_goes_first() {
        let mut handshakes = Handshakes::default();
        for _ in 0..2 {
            for slot in 0..6 {
                let from = if slot < 5 {
                    "192.0.2.1:9"
                } else {
                    "192.0.2.2:9"
                };
                assert_eq!(handshakes.begin(id(slot), &peer(from), None, 0), None);
                handshakes.bytes_came(id(slot));
                handshakes.bytes_came(id(slot));
            }
            assert_eq!(handshakes.due(), 6);
            for expected in [0, 5, 1] {
                assert_eq!(turn(&mut handshakes, 0), Some(Ok(expected)));
                handshakes.flight_sent(id(expected as usize), 0);
            }
            handshakes.bytes_came(id(5));
            handshakes.end(id(3));
            let order: Vec<_> = std::iter::from_fn(|| turn(&mut handshakes, 0)).collect();
            assert_eq!(order, [Ok(5), Ok(2), Ok(4)]);
            assert!(!handshakes.has_turn());
            (0..6).for_each(|slot| handshakes.end(id(slot)));
            assert_empty(&handshakes);
        }
    }

    #[test]
    fn peers_that_bring_a_byte_now_and_then_hold_up_no_newcomer() {
        let mut handshakes = Handshakes::default();
        for _ in 0..2 {
            for slot in 0..4 {
                handshakes.begin(id(slot), &peer("192.0.2.1:9"), None, 0);
                handshakes.bytes_came(id(slot));
            }
            for slot in 0..2 {
                assert_eq!(turn(&mut handshakes, 0), Some(Ok(slot)));
                handshakes.flight_sent(id(slot as usize), 0);
            }
            let mut order = Vec::new();
            for _ in 0..5 {
                handshakes.bytes_came(id(0));
                handshakes.bytes_came(id(1));
                order.extend(turn(&mut handshakes, 0));
            }
            assert_eq!(order, [0, 2, 1, 3, 0].map(Ok));
            // They do not last any longer for it.
            let whole_ns = HANDSHAKE_MS * NS_PER_MS;
            handshakes.bytes_came(id(0));
            assert_eq!(handshakes.next_overdue(whole_ns - 1), None);
            let overdue: Vec<_> =
                std::iter::from_fn(|| handshakes.next_overdue(whole_ns)).collect();
            assert_eq!(overdue[..2], [id(0), id(1)]);
            (0..4).for_each(|slot| handshakes.end(id(slot)));
            handshakes.was_answered = false;
            assert_empty(&handshakes);
        }
    }

    #[test]
    fn the_address_with_most_loses_its_oldest_silent_peer() {
        let mut handshakes = Handshakes::default();
        let first = PeerAddress::Unix;
        for _ in 0..2 {
            assert_eq!(handshakes.begin(id(0), &peer("192.0.2.1:9"), None, 0), None);
            for slot in 1..HANDSHAKES_PER_LOOP {
                assert_eq!(handshakes.begin(id(slot), &first, None, 1), None);
            }
            let more = HANDSHAKES_PER_LOOP;
            assert_eq!(
                handshakes.begin(id(more), &peer("192.0.2.3:9"), None, 2),
                Some(id(1))
            );
            (0..=more).for_each(|slot| handshakes.end(id(slot)));
            assert_empty(&handshakes);
        }
    }

    /// Has as many peers asked as can be at a time, the first of them a moment before the others.
    fn ask_as_many_as_can_be(handshakes: &mut Handshakes, begin_ns: u64) {
        for slot in 0..HANDSHAKES_ASKED {
            handshakes.begin(id(slot), &PeerAddress::Unix, None, begin_ns);
            handshakes.bytes_came(id(slot));
            assert_eq!(turn(handshakes, begin_ns), Some(Ok(slot as u32)));
            handshakes.flight_sent(id(slot), begin_ns + u64::from(slot > 0));
        }
    }

    #[test]
    fn no_more_peers_are_asked_than_can_have_the_time_to_answer() {
        let mut handshakes = Handshakes::default();
        let answer_ns = HANDSHAKE_ANSWER_MS * NS_PER_MS;
        for begin_ns in [5, 5 + 9 * answer_ns] {
            ask_as_many_as_can_be(&mut handshakes, begin_ns);
            let late = HANDSHAKES_ASKED;
            handshakes.begin(id(late), &PeerAddress::Unix, None, begin_ns);
            handshakes.bytes_came(id(late));
            assert!(handshakes.has_turn());
            assert_eq!(turn(&mut handshakes, begin_ns + 1), None);
            // It sleeps until then; an answer goes on meanwhile.
            assert!(!handshakes.has_turn());
            assert_eq!(handshakes.deadline_ns(), Some(begin_ns + answer_ns));
            handshakes.bytes_came(id(7));
            assert_eq!(turn(&mut handshakes, begin_ns + 2), Some(Ok(7)));
            assert_eq!(turn(&mut handshakes, begin_ns + answer_ns - 1), None);
            assert_eq!(turn(&mut handshakes, begin_ns + answer_ns), Some(Err(0)));
            handshakes.end(id(0));
            assert_eq!(
                turn(&mut handshakes, begin_ns + answer_ns),
                Some(Ok(late as u32))
            );
            // One that ends makes room at once.
            handshakes.flight_sent(id(late), begin_ns + answer_ns);
            handshakes.begin(id(0), &PeerAddress::Unix, None, begin_ns);
            handshakes.bytes_came(id(0));
            assert_eq!(turn(&mut handshakes, begin_ns + answer_ns), None);
            assert!(!handshakes.has_turn());
            handshakes.end(id(7));
            assert!(
                handshakes.has_turn(),
                "without waiting for the time of another"
            );
            assert_eq!(handshakes.paused_until_ns, None);
            assert_eq!(turn(&mut handshakes, begin_ns + answer_ns), Some(Ok(0)));
            (0..=late).for_each(|slot| handshakes.end(id(slot)));
            assert_empty(&handshakes);
        }
    }

    /// What an asked peer sends is looked at, and does not give it more time to answer.
    #[test]
    fn bytes_that_bring_a_handshake_no_further_do_not_renew_its_time() {
        let mut handshakes = Handshakes::default();
        let answer_ns = HANDSHAKE_ANSWER_MS * NS_PER_MS;
        for begin_ns in [5, 5 + 9 * answer_ns] {
            ask_as_many_as_can_be(&mut handshakes, begin_ns);
            let late = HANDSHAKES_ASKED;
            for step_ns in [answer_ns / 3, answer_ns / 2, answer_ns - 1] {
                handshakes.bytes_came(id(0));
                assert_eq!(turn(&mut handshakes, begin_ns + step_ns), Some(Ok(0)));
            }
            handshakes.begin(id(late), &PeerAddress::Unix, None, begin_ns);
            handshakes.bytes_came(id(late));
            assert_eq!(turn(&mut handshakes, begin_ns + answer_ns), Some(Err(0)));
            (0..=late).for_each(|slot| handshakes.end(id(slot)));
            assert_empty(&handshakes);
        }
    }

    /// A connection that stays keeps the list from being emptied: without a look at it, it would
    /// have an entry for each handshake of [`HANDSHAKE_MS`].
    #[test]
    fn handshakes_that_are_done_do_not_stay_among_the_deadlines() {
        let mut handshakes = Handshakes::default();
        let most = 4 * (HANDSHAKES_PER_LOOP + HANDSHAKES_ASKED);
        for flights in [0, 1] {
            handshakes.begin(id(0), &PeerAddress::Unix, None, 0);
            for other in (1..=2 * most).map(id) {
                handshakes.begin(other, &PeerAddress::Unix, None, 1);
                (0..flights).for_each(|_| handshakes.flight_sent(other, 1));
                handshakes.end(other);
                assert!(handshakes.deadlines.len() <= most);
            }
            // The one that stays is still among them.
            assert_eq!(
                handshakes.next_overdue(HANDSHAKE_MS * NS_PER_MS),
                Some(id(0))
            );
            handshakes.end(id(0));
            assert_empty(&handshakes);
        }
    }

    /// Both flights of a handshake, of which a second one follows HelloRetryRequest, give the peer
    /// its time anew, and it is still one peer that was asked.
    #[test]
    fn a_second_flight_renews_the_time_and_counts_no_second_peer() {
        let mut handshakes = Handshakes::default();
        let whole_ns = HANDSHAKE_MS * NS_PER_MS;
        for begin_ns in [0, 5 * whole_ns] {
            handshakes.begin(id(0), &PeerAddress::Unix, None, begin_ns);
            for flight_ns in [begin_ns + 1, begin_ns + whole_ns / 2] {
                handshakes.bytes_came(id(0));
                assert_eq!(turn(&mut handshakes, flight_ns), Some(Ok(0)));
                handshakes.flight_sent(id(0), flight_ns);
                assert_eq!(handshakes.asked, 1);
            }
            let until_ns = begin_ns + whole_ns / 2 + whole_ns;
            assert_eq!(handshakes.next_overdue(until_ns - 1), None);
            assert_eq!(handshakes.next_overdue(until_ns), Some(id(0)));
            handshakes.end(id(0));
            assert_empty(&handshakes);
        }
    }

    /// It would be crowded out again, in the place of one that costs something.
    #[test]
    fn a_handshake_that_is_over_has_no_place_among_those_of_its_address() {
        let all = UnfinishedHandshakes::default();
        let from = peer("192.0.2.1:9");
        let mut handshakes = Handshakes::default();
        for is_crowded_out in [true, false] {
            let (near, _far) = UnixStream::pair().expect("there are descriptors");
            let near = OwnedFd::from(near);
            let place = all
                .begin(&near, &from, None)
                .expect("there are descriptors");
            assert_eq!(handshakes.begin(id(0), &from, Some(place.clone()), 0), None);
            if is_crowded_out {
                assert!(all.end_oldest_of(&from));
                assert!(place.is_crowded_out() && handshakes.is_crowded_out(id(0)));
            }
            // It leaves with the handshake, though a copy of its place is still there.
            handshakes.end(id(0));
            assert!(!all.end_oldest_of(&from) && !all.end_oldest());
            assert_empty(&handshakes);
            drop(place);
        }
    }

    #[test]
    fn who_waits_for_this_side_is_not_late() {
        let mut handshakes = Handshakes::default();
        let whole_ns = HANDSHAKE_MS * NS_PER_MS;
        for begin_ns in [0, 5 * whole_ns] {
            handshakes.begin(id(0), &PeerAddress::Unix, None, begin_ns);
            handshakes.begin(id(1), &PeerAddress::Unix, None, begin_ns);
            handshakes.bytes_came(id(0));
            assert_eq!(handshakes.next_overdue(begin_ns + whole_ns - 1), None);
            assert_eq!(handshakes.next_overdue(begin_ns + whole_ns), Some(id(1)));
            assert_eq!(handshakes.next_overdue(begin_ns + whole_ns), None);
            assert_eq!(turn(&mut handshakes, begin_ns + whole_ns), Some(Ok(0)));
            assert_eq!(
                handshakes.next_overdue(begin_ns + 2 * whole_ns),
                Some(id(0))
            );
            handshakes.end(id(0));
            handshakes.end(id(1));
            assert_empty(&handshakes);
        }
    }
}
