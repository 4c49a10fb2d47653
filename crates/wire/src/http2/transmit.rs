//! What waits to be sent, and how it goes out: stream after stream, a frame each, while windows and
//! the output allow.

use super::connection::Connection;
use super::event::Event;
use super::frame::{self, flag, kind};
use super::outbound::End;
use super::streams::StreamKey;
use crate::limits;

impl Connection {
    /// Moves what waits to `out`, while windows and the output's bound allow. To be called when the
    /// driver has taken from a full output; `poll_event` may have events afterwards.
    pub fn transmit(&mut self, out: &mut Vec<u8>, now_ns: u64) {
        self.now_ns = now_ns;
        self.pump(out);
    }

    /// Lets the streams that are ready send in turns, one frame each, so that a large body holds up
    /// no other.
    ///
    /// Acknowledgements go before them: a peer counts on the windows of its SETTINGS from our
    /// acknowledgement on, and takes what comes before it and needs them as a breach of flow
    /// control.
    pub(super) fn pump(&mut self, out: &mut Vec<u8>) {
        self.send_pending_acks(out);
        let before = self.unsent_bytes;
        while out.len() < self.config.output_bound_bytes && self.send_window.available() > 0 {
            let Some(key) = self.ready.pop_front() else {
                break;
            };
            debug_assert!(
                self.streams.contains(key),
                "a stream that goes leaves the list"
            );
            self.streams[key.slot].in_ready = false;
            self.send_frame(key, out);
        }
        self.timers
            .sent(self.unsent_bytes, before - self.unsent_bytes, self.now_ns);
    }

    /// Sends one DATA frame of a stream, and its end if nothing is left.
    fn send_frame(&mut self, key: StreamKey, out: &mut Vec<u8>) {
        let stream = &mut self.streams[key.slot];
        let waiting = stream.outbound.bytes();
        let count = waiting
            .min(stream.send_window.available())
            .min(self.send_window.available())
            .min(limits::MAX_SENT_DATA_BYTES);
        if count == 0 {
            return;
        }
        let is_end = count == waiting && stream.outbound.end == End::Bare;
        frame::write_header(
            out,
            count,
            kind::DATA,
            if is_end { flag::END_STREAM } else { 0 },
            key.id,
        );
        self.capacity.shared_bytes -= stream.outbound.take(count, out, &mut self.pool);
        stream.send_window.take(count);
        self.send_window.take(count);
        self.unsent_bytes -= count;
        self.sent_bytes += count as u64;
        self.guard.data_sent();
        if count < waiting {
            if stream.send_window.available() > 0 {
                self.make_ready(key.slot);
            }
        } else {
            self.send_end(key.slot, out);
        }
        self.report_writable(key);
    }

    /// The body is out: sends what ends the stream, if it is known.
    pub(super) fn send_end(&mut self, slot: u32, out: &mut Vec<u8>) {
        let stream = &mut self.streams[slot];
        debug_assert_eq!(stream.outbound.bytes(), 0);
        let id = stream.id;
        match std::mem::take(&mut stream.outbound.end) {
            End::Open => return,
            End::Bare => {}
            End::OkTrailers => self.write_ok_trailers(id, out),
            End::Trailers(block) => {
                self.write_block(id, &block, true, out);
                self.pool.give(block);
            }
        }
        self.streams[slot].send_closed = true;
        self.close_if_over(slot, Some(out));
    }

    /// Puts a stream that has something to send at the end of the list of turns.
    pub(super) fn make_ready(&mut self, slot: u32) {
        let stream = &mut self.streams[slot];
        if !stream.in_ready {
            stream.in_ready = true;
            self.ready.push_back(StreamKey {
                slot,
                id: stream.id,
            });
        }
    }

    fn report_writable(&mut self, key: StreamKey) {
        let bound = self.config.stream_unsent_bytes;
        if let Some(stream) = self.streams.get(key)
            && stream.owes_writable
            && !stream.work_done
            && stream.outbound.bytes() <= bound / 2
        {
            self.streams[key.slot].owes_writable = false;
            self.streams[key.slot].has_progress = true;
            self.events.push_back(Event::Writable { stream: key });
        }
    }
}
