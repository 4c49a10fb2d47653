//! The ways in which streams and connections end.

use super::connection::{Connection, Draining, MessageAt, Phase};
use super::error::{Cause, CloseReason, ConnectionError, ErrorCode};
use super::event::Event;
use super::frame;
use super::guard::Charge;
use super::streams::{Dead, Kind, StreamKey};
use super::timers::NS_PER_MS;
use crate::grpc::{Deframer, Status};
use crate::limits;

impl Connection {
    /// Ends a stream at once with RST_STREAM. It is the last call for this stream.
    pub fn reset(&mut self, stream: StreamKey, out: &mut Vec<u8>, code: ErrorCode) {
        if !self.streams.contains(stream) {
            return;
        }
        if !self.streams[stream.slot].is_dead() {
            self.reset_stream(stream.slot, code, out);
        }
        self.end_work(stream.slot);
    }

    /// The layer above has done with a stream that was cancelled or has finished. It is the last
    /// call for this stream.
    pub fn forget(&mut self, stream: StreamKey) {
        if let Some(found) = self.streams.get(stream) {
            debug_assert!(
                found.is_dead(),
                "a stream that lives is ended with finish or reset"
            );
            if found.is_dead() {
                self.end_work(stream.slot);
            }
        }
    }

    /// Sends RST_STREAM and lets nothing more happen on the stream.
    pub(super) fn reset_stream(&mut self, slot: u32, code: ErrorCode, out: &mut Vec<u8>) {
        let stream = &self.streams[slot];
        if !(stream.send_closed && stream.receive_closed) {
            frame::write_rst_stream(out, stream.id, code);
            let id = stream.id;
            self.remember_reset(id);
        }
        self.silence(slot, Dead::ByUs);
    }

    /// A call ends because of what the peer sent: the peer is told the status, the layer above the
    /// cause. What is refused for a limit costs nothing, as with calls that the layer above
    /// refuses: an honest client may meet a limit with each of its calls, and the work of a call
    /// that has ended counts as running until it is over.
    pub(super) fn end_call(
        &mut self,
        slot: u32,
        status: &Status,
        cause: Cause,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        debug_assert_eq!(cause.told(), Some(status.code()));
        self.stop_call(slot, status, cause, out);
        if matches!(
            cause,
            Cause::MessageTooLarge | Cause::TooMuchUnfinished | Cause::NoMemory
        ) {
            return Ok(None);
        }
        self.charge(Charge::Reset).map(|()| None)
    }

    /// Ends a call with a status, before the layer above has done so.
    pub(super) fn stop_call(
        &mut self,
        slot: u32,
        status: &Status,
        cause: Cause,
        out: &mut Vec<u8>,
    ) {
        if self.is_client() {
            self.reset_stream(slot, ErrorCode::Cancel, out);
        } else {
            self.drop_outbound(slot);
            if !self.streams[slot].send_closed {
                self.write_status(slot, status, out);
                self.streams[slot].send_closed = true;
            }
            self.reset_stream(slot, ErrorCode::NoError, out);
        }
        self.report_death(slot, cause);
    }

    /// Nothing is received or sent on this stream any more.
    pub(super) fn silence(&mut self, slot: u32, dead: Dead) {
        self.drop_outbound(slot);
        self.drop_inbound(slot);
        self.drop_unpacking(slot);
        self.end_turn(slot);
        self.streams.kill(slot, dead);
        let stream = &mut self.streams[slot];
        stream.receive_closed = true;
        stream.send_closed = true;
        stream.owes_writable = false;
        stream.awaits_room = false;
    }

    /// Tells the layer above, if it is still at work, or else lets the stream go.
    pub(super) fn report_death(&mut self, slot: u32, cause: Cause) {
        let stream = &self.streams[slot];
        if stream.work_done {
            self.remove_stream(slot);
        } else {
            let stream = StreamKey {
                slot,
                id: stream.id,
            };
            self.events.push_back(Event::Cancelled { stream, cause });
        }
    }

    /// The layer above has made its last call.
    pub(super) fn end_work(&mut self, slot: u32) {
        self.streams[slot].work_done = true;
        self.close_if_over(slot, None);
    }

    /// Lets a stream go on which both the layer above and our sending side have done. A peer that
    /// has not ended its side is told to: "the server MAY request that the client abort
    /// transmission of a request without error by sending a RST_STREAM with an error code of
    /// NO_ERROR" (RFC 9113 section 8.1). A plain one is told a little later.
    #[inline]
    pub(super) fn close_if_over(&mut self, slot: u32, out: Option<&mut Vec<u8>>) {
        let stream = &self.streams[slot];
        if !stream.send_closed || !stream.work_done {
            return;
        }
        if !stream.receive_closed {
            let (id, is_plain) = (stream.id, stream.kind == Kind::Plain);
            if let Some(out) = out
                && !(is_plain && self.linger(id))
            {
                frame::write_rst_stream(out, id, ErrorCode::NoError);
            }
            self.remember_reset(id);
        }
        self.remove_stream(slot);
    }

    /// Whether the peer is told later. See [`limits::LINGER_MS`].
    #[cold]
    fn linger(&mut self, id: u32) -> bool {
        let due_ns = self.now_ns + limits::LINGER_MS * NS_PER_MS;
        !self.is_client() && self.late.linger(id, due_ns)
    }

    /// The peers of some plain requests have sent on, perhaps, after they were answered.
    pub(super) fn end_lingering(&mut self, out: &mut Vec<u8>) {
        while let Some(id) = self.late.take_lingered(self.now_ns) {
            frame::write_rst_stream(out, id, ErrorCode::NoError);
        }
    }

    /// Frees the stream's place.
    pub(super) fn remove_stream(&mut self, slot: u32) {
        self.drop_inbound(slot);
        self.drop_unpacking(slot);
        self.end_turn(slot);
        self.release_reserved(slot);
        if let Some(extra) = self.streams[slot].extra.take() {
            self.capacity.extra_bytes -= extra.bytes();
        }
        debug_assert!(
            self.streams[slot].outbound.is_empty(),
            "all has been sent, or dropped"
        );
        if self.streams[slot].is_bulk() {
            self.bulk_streams -= 1;
            if self.bulk_streams == 0 {
                self.pool.bound_as_usual();
            }
        }
        self.streams.remove(slot);
        self.close_if_drained();
    }

    /// Forgets what has been received and not handed up.
    #[inline]
    fn drop_inbound(&mut self, slot: u32) {
        let inbound = &mut self.streams[slot].inbound;
        if inbound.is_empty() {
            return;
        }
        let counted = std::mem::take(&mut inbound.counted);
        self.ungather(counted);
        if self.message_at == MessageAt::Gathered(slot) {
            self.message_at = MessageAt::Nowhere;
        }
        let inbound = &mut self.streams[slot].inbound;
        self.pool.give(inbound.deframer.take_buffer());
        self.pool.give(std::mem::take(&mut inbound.backlog));
        inbound.deframer = Deframer::new();
        inbound.backlog_at = 0;
        inbound.again_bytes = 0;
        inbound.end_waits = false;
    }

    /// Forgets what waits to be sent.
    pub(super) fn drop_outbound(&mut self, slot: u32) {
        let stream = &mut self.streams[slot];
        let dropped = stream.outbound.bytes();
        self.capacity.shared_bytes -= stream.outbound.clear(&mut self.pool);
        self.release_reserved(slot);
        if dropped > 0 {
            self.unsent_bytes -= dropped;
            // The rest is owed as before; if there is none, nothing is.
            self.timers.sent(self.unsent_bytes, 0, self.now_ns);
        }
        let stream = &mut self.streams[slot];
        if std::mem::take(&mut stream.in_ready) {
            let id = stream.id;
            self.ready.retain(|key| key.id != id);
        }
    }

    /// A rule was broken: GOAWAY, and the connection is over. RFC 9113 section 5.4.1.
    pub(super) fn fail(&mut self, error: ConnectionError, out: &mut Vec<u8>) {
        if self.close_reason.is_none() {
            let last = if self.is_client() {
                0
            } else {
                self.highest_peer_id
            };
            frame::write_goaway(out, last, error.code, error.why);
            self.close(CloseReason::Error {
                code: error.code,
                why: error.why,
            });
        }
    }

    /// Ends the connection with ENHANCE_YOUR_CALM, since the layer above cannot go on holding what
    /// its peer makes it hold.
    pub fn abort(&mut self, why: &'static str, out: &mut Vec<u8>) {
        self.fail(ConnectionError::calm(why), out);
    }

    /// The transport has ended. `poll_event` then tells of each stream that it took with it.
    pub fn peer_closed(&mut self) {
        if self.close_reason.is_none() {
            self.close(CloseReason::PeerGone);
        }
    }

    fn close(&mut self, reason: CloseReason) {
        self.close_reason = Some(reason);
        self.phase = Phase::Closed;
        self.data = None;
        self.resumed.clear();
        self.capacity.forget_waiting();
        self.pending_acks.clear();
        // At once: taking each stream out of the list of turns would be work for the square of
        // their number.
        for key in std::mem::take(&mut self.ready) {
            self.streams[key.slot].in_ready = false;
        }
        self.forget_turns();
        self.forget_unpacking();
        let keys: Vec<_> = self.streams.keys().collect();
        for key in keys {
            if !self.streams[key.slot].is_dead() {
                self.silence(key.slot, Dead::ByPeer);
                self.report_death(key.slot, Cause::ConnectionClosed);
            }
        }
    }

    /// Begins a graceful end. A server goes on taking requests until those that are on their way
    /// have arrived: GOAWAY with the highest identifier, a PING, and when that is answered GOAWAY
    /// with the last stream that it takes (RFC 9113 section 6.8). When the last stream has ended,
    /// there is a close reason.
    pub fn drain(&mut self, out: &mut Vec<u8>, now_ns: u64) {
        self.now_ns = now_ns;
        if self.phase == Phase::Closed || self.draining != Draining::No {
            return;
        }
        if self.is_client() {
            frame::write_goaway(out, 0, ErrorCode::NoError, "");
            self.draining = Draining::Final(0);
            self.close_if_drained();
            return;
        }
        self.draining = Draining::Announced;
        frame::write_goaway(out, frame::MAX_31_BIT, ErrorCode::NoError, "");
        frame::write_ping(out, 0, self.timers.begin_drain(now_ns));
    }

    /// Requests that were on their way have arrived: names the last one.
    pub(super) fn finish_draining(&mut self, out: &mut Vec<u8>) {
        if self.draining == Draining::Announced {
            self.timers.end_drain();
            self.draining = Draining::Final(self.highest_peer_id);
            frame::write_goaway(out, self.highest_peer_id, ErrorCode::NoError, "");
            self.close_if_drained();
        }
    }

    /// Ends the connection if nothing keeps it.
    #[inline]
    pub(super) fn close_if_drained(&mut self) {
        let is_ending = matches!(self.draining, Draining::Final(_)) || self.peer_goaway.is_some();
        if is_ending && self.streams.len() == 0 && self.close_reason.is_none() {
            self.close(CloseReason::Drained);
        }
    }
}
