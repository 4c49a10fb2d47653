//! All frames but DATA and header blocks. RFC 9113 section 6.

use super::{Connection, Handled};
use crate::http2::error::{CancelCause, ConnectionError, ErrorCode};
use crate::http2::event::Event;
use crate::http2::frame::{self, FrameHeader, flag, kind};
use crate::http2::guard::GlitchCharge;
use crate::http2::stream::Dead;
use crate::http2::stream_key::StreamKey;

impl Connection {
    /// One whole frame, whose payload begins at `start` in the input.
    #[inline]
    pub(super) fn on_frame(
        &mut self,
        header: FrameHeader,
        input: &[u8],
        start: usize,
        consumed: &mut usize,
        out: &mut Vec<u8>,
    ) -> Handled {
        if let Some(stream) = self.heads.pending_stream()
            && (header.kind != kind::CONTINUATION || header.stream != stream)
        {
            // "A HEADERS frame without the END_HEADERS flag set MUST be followed by a CONTINUATION
            // frame for the same stream" (RFC 9113 section 6.2).
            return Err(ConnectionError::protocol(
                "a frame stands inside a header block",
            ));
        }
        self.life.check_first_frame(header)?;
        let payload = &input[start..start + header.length as usize];
        if header.stream == 0 {
            return self
                .on_connection_frame(header, payload, out)
                .map(|()| None);
        }
        match header.kind {
            kind::HEADERS => self.on_headers(header, payload, out),
            kind::DATA => self.on_data(header, input, start, consumed, out),
            kind::CONTINUATION => self.on_continuation(header, payload, out),
            kind::PRIORITY => self.on_priority(header, payload, out).map(|()| None),
            kind::RST_STREAM => self.on_rst_stream(header, payload).map(|()| None),
            kind::WINDOW_UPDATE => self.on_window_update(header, payload, out).map(|()| None),
            kind::SETTINGS | kind::PING | kind::GOAWAY => Err(header.misplaced()),
            kind::PUSH_PROMISE => Err(pushed()),
            _ => self.on_unknown_frame().map(|()| None),
        }
    }

    /// A frame on stream 0, which is about the connection.
    fn on_connection_frame(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ConnectionError> {
        match header.kind {
            kind::SETTINGS => self.on_settings(header, payload, out),
            kind::PING => self.on_ping(header, payload, out),
            kind::GOAWAY => self.on_goaway(payload),
            kind::WINDOW_UPDATE => self.on_window_update(header, payload, out),
            kind::DATA | kind::HEADERS | kind::PRIORITY | kind::RST_STREAM | kind::CONTINUATION => {
                Err(header.misplaced())
            }
            kind::PUSH_PROMISE => Err(pushed()),
            _ => self.on_unknown_frame(),
        }
    }

    /// "Implementations MUST ignore and discard frames of unknown types" (RFC 9113 section 5.5).
    fn on_unknown_frame(&mut self) -> Result<(), ConnectionError> {
        self.charge(GlitchCharge::Glitch)
    }

    /// PRIORITY: checked and dropped. RFC 9113 section 6.3.
    fn on_priority(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ConnectionError> {
        if payload.len() != 5 {
            // A stream error in the RFC; an honest peer gains nothing from that, and another would
            // get resets to order.
            return Err(ConnectionError::frame_size(
                "the length of PRIORITY is not 5",
            ));
        }
        if frame::read_u32(payload) & frame::MAX_31_BIT != header.stream {
            return self.charge(GlitchCharge::Glitch);
        }
        // RFC 7540 section 5.3.1: a stream error of type PROTOCOL_ERROR. "RST_STREAM frames MUST
        // NOT be sent for a stream in the idle state" (RFC 9113 section 6.4), and on a closed
        // stream only PRIORITY may be sent (section 5.1).
        let found = self.streams.find(header.stream);
        match found.filter(|&slot| !self.streams[slot].is_dead()) {
            Some(slot) => {
                const WHY: &str = "a stream depends on itself";
                self.violation(slot, ErrorCode::ProtocolError, WHY, out)
                    .map(|_| ())
            }
            None if self.life.is_idle(header.stream) => Err(ConnectionError::protocol(
                "a stream that was never opened depends on itself",
            )),
            None => self.charge(GlitchCharge::Reset),
        }
    }

    /// RST_STREAM. RFC 9113 section 6.4.
    fn on_rst_stream(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<(), ConnectionError> {
        if payload.len() != 4 {
            return Err(ConnectionError::frame_size(
                "the length of RST_STREAM is not 4",
            ));
        }
        if self.streams.find(header.stream).is_none() && self.life.is_idle(header.stream) {
            return Err(ConnectionError::protocol(
                "RST_STREAM on a stream that was never opened",
            ));
        }
        let code = ErrorCode::from_wire(frame::read_u32(payload));
        let found = self
            .streams
            .find(header.stream)
            .filter(|&slot| !self.streams[slot].is_dead());
        let Some(slot) = found else {
            // It crossed ours: the usual end of a call that we finished early. Nothing follows it,
            // so that it is free once.
            if self.late.remove(header.stream) {
                return Ok(());
            }
            // A server that answers before the request has ended resets the stream (RFC 9113
            // section 8.1).
            if self.life.is_client() {
                return self.charge(GlitchCharge::BesideCall);
            }
            return self.charge(GlitchCharge::Glitch);
        };
        let cause = match code {
            ErrorCode::RefusedStream if self.life.is_client() => self.refusal_of(slot),
            _ => CancelCause::Reset(code),
        };
        self.silence(slot, Dead::ByPeer);
        self.report_death(slot, cause);
        self.charge(GlitchCharge::Reset)
    }

    /// SETTINGS. RFC 9113 section 6.5.
    fn on_settings(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ConnectionError> {
        if header.has(flag::ACK) {
            if !payload.is_empty() {
                return Err(ConnectionError::frame_size(
                    "the acknowledgement of SETTINGS has a payload",
                ));
            }
            self.on_settings_ack(out);
            return self.charge(GlitchCharge::Control);
        }
        self.charge(GlitchCharge::Control)?;
        let before = self.peer;
        self.peer.apply(payload, self.config.role)?;
        if self.peer.header_table_bytes() != before.header_table_bytes() {
            self.writer
                .set_peer_table_bytes(self.peer.header_table_bytes());
        }
        self.writer
            .set_max_list_bytes(self.peer.max_header_list_bytes());
        self.change_send_windows(
            i64::from(self.peer.initial_window()) - i64::from(before.initial_window()),
        )?;
        self.queue.acknowledge(None, out)?;
        self.pump(out);
        Ok(())
    }

    /// Our SETTINGS hold from here on.
    fn on_settings_ack(&mut self, out: &mut Vec<u8>) {
        if (self.windows).acknowledge(&self.config, &mut self.streams, out) {
            self.timers.settings_acknowledged();
        }
    }

    /// The initial window has changed, and with it the windows of all streams. RFC 9113 section
    /// 6.9.2.
    fn change_send_windows(&mut self, by: i64) -> Result<(), ConnectionError> {
        if by == 0 {
            return Ok(());
        }
        self.charge(GlitchCharge::Windows(self.streams.places()))?;
        for (slot, stream) in self.streams.iter_mut() {
            if !stream.send_window.change(by) {
                return Err(ConnectionError::flow_control(
                    "SETTINGS_INITIAL_WINDOW_SIZE makes a window too large",
                ));
            }
            if stream.send_window.available() == 0 {
                continue;
            }
            if stream.outbound.bytes() > 0 {
                self.queue.make_ready(slot, stream);
            }
            if !stream.is_work_done() && stream.claims.stop_awaiting_room() {
                let id = stream.id();
                let stream = StreamKey { slot, id };
                self.events.push_back(Event::Writable { stream });
            }
        }
        Ok(())
    }

    /// PING. RFC 9113 section 6.7.
    fn on_ping(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ConnectionError> {
        let Ok(opaque) = <[u8; 8]>::try_from(payload) else {
            return Err(ConnectionError::frame_size("the length of PING is not 8"));
        };
        self.charge(GlitchCharge::Control)?;
        if !header.has(flag::ACK) {
            return self.queue.acknowledge(Some(opaque), out);
        }
        self.windows.ping_acknowledged(opaque);
        if self.timers.is_drain_ping(opaque) {
            self.finish_draining(out);
        }
        Ok(())
    }

    /// GOAWAY. RFC 9113 section 6.8.
    fn on_goaway(&mut self, payload: &[u8]) -> Result<(), ConnectionError> {
        if payload.len() < 8 {
            return Err(ConnectionError::frame_size("GOAWAY is shorter than 8"));
        }
        self.charge(GlitchCharge::Control)?;
        let last = frame::read_u32(payload) & frame::MAX_31_BIT;
        if !self.life.is_client() {
            // We open no streams; the client goes when it has its answers.
            return Ok(());
        }
        self.life.peer_goes(last)?;
        let code = ErrorCode::from_wire(frame::read_u32(&payload[4..]));
        self.life.peer_complains(code, &payload[8..]);
        let refused: Vec<_> = self.streams.keys().filter(|key| key.id > last).collect();
        for key in refused {
            if !self.streams[key.slot].is_dead() {
                let cause = self.refusal_of(key.slot);
                self.silence(key.slot, Dead::ByPeer);
                self.report_death(key.slot, cause);
            }
        }
        self.close_if_drained();
        Ok(())
    }

    /// Returns what it means that the server refuses a stream: a server that has begun to answer
    /// contradicts itself, and may have done what was asked.
    fn refusal_of(&self, slot: u32) -> CancelCause {
        match self.streams[slot].is_response_begun() {
            true => CancelCause::RefusedLate,
            false => CancelCause::Refused,
        }
    }

    /// WINDOW_UPDATE. RFC 9113 section 6.9.
    fn on_window_update(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ConnectionError> {
        if payload.len() != 4 {
            return Err(ConnectionError::frame_size(
                "the length of WINDOW_UPDATE is not 4",
            ));
        }
        self.charge(GlitchCharge::WindowUpdate)?;
        let increment = frame::read_u32(payload) & frame::MAX_31_BIT;
        // On a stream it is a stream error in the RFC, and one of the means of MadeYouReset
        // (CVE-2025-8671). An honest peer never sends it, so that the connection ends.
        if increment == 0 {
            return Err(ConnectionError::protocol(
                "WINDOW_UPDATE with an increment of 0",
            ));
        }
        if header.stream != 0 {
            return self.open_stream_window(header.stream, increment, out);
        }
        self.queue.open_window(increment)?;
        self.pump(out);
        Ok(())
    }

    fn open_stream_window(
        &mut self,
        id: u32,
        increment: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), ConnectionError> {
        let Some(slot) = self.streams.find(id) else {
            // One for a stream that is closed was on its way when it ended.
            return if self.life.is_idle(id) {
                Err(ConnectionError::protocol(
                    "WINDOW_UPDATE on a stream that was never opened",
                ))
            } else {
                Ok(())
            };
        };
        let stream = &mut self.streams[slot];
        if stream.is_dead() {
            return Ok(());
        }
        if !stream.send_window.change(i64::from(increment)) {
            // RFC 9113 section 6.9.1.
            const WHY: &str = "WINDOW_UPDATE makes the window of a stream too large";
            return self
                .violation(slot, ErrorCode::FlowControlError, WHY, out)
                .map(|_| ());
        }
        stream.set_progress();
        if stream.outbound.bytes() > 0 {
            self.queue.make_ready(slot, stream);
            self.pump(out);
        }
        self.report_room(slot);
        Ok(())
    }

    /// Takes from the budgets of the peer. A server may end the streams of a client as it likes:
    /// there are as many as the client opens.
    #[inline]
    pub(super) fn charge(&mut self, charge: GlitchCharge) -> Result<(), ConnectionError> {
        if charge == GlitchCharge::Reset && self.life.is_client() {
            return Ok(());
        }
        self.guard.charge(charge, self.now_ns)
    }

    /// Whether we ended the stream before the peer did, so that frames may still be on their way. A
    /// client, which may give up any number of calls at once, does not ask which of its old streams
    /// it was.
    pub(super) fn was_reset(&self, id: u32) -> bool {
        if self.life.is_client() {
            return !self.life.is_idle(id);
        }
        let is_beyond_goaway = self.life.is_beyond_goaway(id);
        self.late.contains(id) || (is_beyond_goaway && !self.life.is_idle(id))
    }

    /// See [`Connection::was_reset`].
    pub(super) fn remember_reset(&mut self, id: u32) {
        if !self.life.is_client() {
            self.late.insert(id);
        }
    }
}

/// PUSH_PROMISE: no client of ours allows it, and a server takes none (RFC 9113 section 8.4).
fn pushed() -> ConnectionError {
    ConnectionError::protocol("PUSH_PROMISE, which is never allowed here")
}
