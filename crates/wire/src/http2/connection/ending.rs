//! The ways in which streams and connections end.

use super::{Connection, Handled};
use crate::grpc::Status;
use crate::http2::error::{CancelCause, CloseReason, ConnectionError, ErrorCode};
use crate::http2::event::Event;
use crate::http2::frame;
use crate::http2::guard::GlitchCharge;
use crate::http2::stream::Dead;
use crate::http2::stream_key::StreamKey;
use crate::http2::timers::NS_PER_MS;
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

    /// Drops what waits to be sent on a stream whose call runs, so that the status that is to end
    /// it needs no window. What of a message has gone out stays a part of one.
    pub fn drop_unsent(&mut self, stream: StreamKey) {
        if self.streams.is_alive(stream) && !self.streams[stream.slot].is_work_done() {
            self.drop_outbound(stream.slot);
        }
    }

    /// Ends a stream at once whose call has ended and on which something waits still: that is
    /// dropped, and `status` takes the place of that of the call. It needs no window (RFC 9113
    /// section 6.9); the body of a plain response is cut off by RST_STREAM.
    pub fn cut_off(&mut self, stream: StreamKey, out: &mut Vec<u8>, status: &Status) {
        if !self.has_unsent(stream) || !self.streams[stream.slot].is_work_done() {
            return;
        }
        if !self.streams[stream.slot].is_grpc() {
            return self.reset(stream, out, ErrorCode::Cancel);
        }
        self.drop_outbound(stream.slot);
        self.write_status(stream.slot, status, out);
        self.close_if_over(stream.slot, Some(out));
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
        if !(stream.is_send_closed() && stream.is_receive_closed()) {
            let id = stream.id();
            frame::write_rst_stream(out, id, code);
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
        cause: CancelCause,
        out: &mut Vec<u8>,
    ) -> Handled {
        debug_assert_eq!(cause.told(), Some(status.code()));
        self.stop_call(slot, status, cause, out);
        if matches!(
            cause,
            CancelCause::MessageTooLarge | CancelCause::TooMuchUnfinished | CancelCause::NoMemory
        ) {
            return Ok(None);
        }
        self.charge(GlitchCharge::Reset).map(|()| None)
    }

    /// Ends a call with a status, before the layer above has done so.
    pub(super) fn stop_call(
        &mut self,
        slot: u32,
        status: &Status,
        cause: CancelCause,
        out: &mut Vec<u8>,
    ) {
        if self.life.is_client() {
            self.reset_stream(slot, ErrorCode::Cancel, out);
        } else {
            self.drop_outbound(slot);
            if !self.streams[slot].is_send_closed() {
                self.write_status(slot, status, out);
            }
            self.reset_stream(slot, ErrorCode::NoError, out);
        }
        self.report_death(slot, cause);
    }

    /// Nothing is received or sent on this stream any more.
    pub(super) fn silence(&mut self, slot: u32, dead: Dead) {
        self.drop_outbound(slot);
        self.drop_inbound(slot);
        self.unpacks.remove_of(slot, &mut self.streams);
        self.end_turn(slot);
        self.streams.kill(slot, dead);
    }

    /// Tells the layer above, if it is still at work, or else lets the stream go.
    pub(super) fn report_death(&mut self, slot: u32, cause: CancelCause) {
        if self.streams[slot].is_work_done() {
            self.remove_stream(slot);
        } else {
            let stream = self.streams.key(slot);
            self.events.push_back(Event::Cancelled { stream, cause });
        }
    }

    /// The layer above has made its last call.
    pub(super) fn end_work(&mut self, slot: u32) {
        self.streams[slot].end_work();
        self.close_if_over(slot, None);
    }

    /// Lets a stream go on which both the layer above and our sending side have done. A peer that
    /// has not ended its side is told to: "the server MAY request that the client abort
    /// transmission of a request without error by sending a RST_STREAM with an error code of
    /// NO_ERROR" (RFC 9113 section 8.1). A plain one is told a little later.
    #[inline]
    pub(super) fn close_if_over(&mut self, slot: u32, out: Option<&mut Vec<u8>>) {
        let stream = &self.streams[slot];
        if !stream.is_send_closed() || !stream.is_work_done() {
            return;
        }
        if !stream.is_receive_closed() {
            let (id, is_plain) = (stream.id(), !stream.is_grpc());
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
        !self.life.is_client() && self.late.linger(id, due_ns)
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
        self.unpacks.remove_of(slot, &mut self.streams);
        self.end_turn(slot);
        self.release_reserved(slot);
        let stream = &mut self.streams[slot];
        if let Some(extra) = stream.take_extra() {
            self.capacity.remove_extra(extra.bytes());
        }
        debug_assert!(stream.outbound.is_empty(), "all has been sent, or dropped");
        let was_bulk = stream.is_bulk();
        self.streams.remove(slot);
        if was_bulk && !self.streams.has_bulk() {
            self.pool.bound_as_usual();
        }
        self.close_if_drained();
    }

    /// Forgets what has been received and not handed up.
    #[inline]
    fn drop_inbound(&mut self, slot: u32) {
        let inbound = &mut self.streams[slot].inbound;
        if !inbound.is_empty() {
            let unfinished = inbound.clear(&mut self.pool);
            self.ungather(unfinished);
            self.message.forget_gathered(slot);
        }
    }

    /// Forgets what waits to be sent.
    pub(super) fn drop_outbound(&mut self, slot: u32) {
        let stream = &mut self.streams[slot];
        let dropped = stream.outbound.bytes();
        self.capacity.count_out(stream.outbound.sent_bytes(), 0);
        let shared = stream.outbound.clear(&mut self.pool);
        self.queue.leave(stream);
        self.capacity.count_dropped(dropped, shared);
        self.release_reserved(slot);
        if dropped > 0 {
            // The rest is owed as before; if there is none, nothing is.
            (self.timers).sent(self.capacity.unsent_bytes(), 0, self.now_ns);
        }
    }

    /// A rule was broken: GOAWAY, and the connection is over. RFC 9113 section 5.4.1.
    pub(super) fn fail(&mut self, error: ConnectionError, out: &mut Vec<u8>) {
        if !self.life.is_closed() {
            let last = self.life.highest_peer_id();
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
        self.close(CloseReason::PeerGone);
    }

    fn close(&mut self, reason: CloseReason) {
        if !self.life.close(reason) {
            return;
        }
        self.data = None;
        self.resumed.clear();
        self.capacity.forget_waiting();
        self.room.forget_waiting();
        self.queue.forget(&mut self.streams);
        self.turns.forget(&mut self.streams);
        self.unpacks.forget(&mut self.streams);
        let keys: Vec<_> = self.streams.keys().collect();
        for key in keys {
            if !self.streams[key.slot].is_dead() {
                self.silence(key.slot, Dead::ByPeer);
                self.report_death(key.slot, CancelCause::ConnectionClosed);
            }
        }
    }

    /// Begins a graceful end. A server goes on taking requests until those that are on their way
    /// have arrived: GOAWAY with the highest identifier, a PING, and when that is answered GOAWAY
    /// with the last stream that it takes (RFC 9113 section 6.8). When the last stream has ended,
    /// there is a close reason.
    pub fn drain(&mut self, out: &mut Vec<u8>, now_ns: u64) {
        self.now_ns = now_ns;
        if !self.life.begin_drain() {
            return;
        }
        if self.life.is_client() {
            frame::write_goaway(out, 0, ErrorCode::NoError, "");
            self.close_if_drained();
            return;
        }
        frame::write_goaway(out, frame::MAX_31_BIT, ErrorCode::NoError, "");
        frame::write_ping(out, 0, self.timers.begin_drain(now_ns));
    }

    /// Requests that were on their way have arrived: names the last one.
    pub(super) fn finish_draining(&mut self, out: &mut Vec<u8>) {
        if let Some(last) = self.life.finish_drain() {
            self.timers.end_drain();
            frame::write_goaway(out, last, ErrorCode::NoError, "");
            self.close_if_drained();
        }
    }

    /// Ends the connection if nothing keeps it.
    #[inline]
    pub(super) fn close_if_drained(&mut self) {
        if self.life.ends_with_last_stream() && self.streams.len() == 0 {
            self.close(CloseReason::Drained);
        }
    }
}
