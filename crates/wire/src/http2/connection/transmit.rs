//! How what waits goes out: stream after stream, a frame each, while windows and the output allow.

use super::Connection;
use crate::http2::event::Event;
use crate::http2::outbound::OutboundEnd;
use crate::http2::send_queue::FrameSent;
use crate::http2::stream_key::StreamKey;

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
        self.queue.send_acks(out);
        let before = self.capacity.unsent_bytes();
        while let Some(key) = self.queue.next(&mut self.streams, out) {
            self.send_frame(key, out);
        }
        let waiting = self.capacity.unsent_bytes();
        self.timers.sent(waiting, before - waiting, self.now_ns);
    }

    /// Sends one DATA frame of a stream, and its end if nothing is left.
    fn send_frame(&mut self, key: StreamKey, out: &mut Vec<u8>) {
        let sent = self.queue.send_frame(
            key.slot,
            &mut self.streams[key.slot],
            &mut self.capacity,
            &mut self.pool,
            out,
        );
        if sent == FrameSent::Nothing {
            return;
        }
        self.guard.data_sent();
        if sent == FrameSent::All {
            self.send_end(key.slot, out);
        }
        self.report_writable(key);
    }

    /// The body is out: sends what ends the stream, if it is known.
    pub(super) fn send_end(&mut self, slot: u32, out: &mut Vec<u8>) {
        let stream = &mut self.streams[slot];
        debug_assert_eq!(stream.outbound.bytes(), 0);
        let id = stream.id();
        match stream.outbound.take_end() {
            OutboundEnd::Open => return,
            OutboundEnd::Bare => {}
            OutboundEnd::OkTrailers => self.writer.write_ok_trailers(id, &mut self.pool, out),
            OutboundEnd::Trailers(block) => {
                self.writer.write_block(id, &block, true, out);
                self.pool.give(block);
            }
        }
        self.streams[slot].close_send();
        self.close_if_over(slot, Some(out));
    }

    fn report_writable(&mut self, stream: StreamKey) {
        let share_bytes = self.config.stream_unsent_bytes;
        if self.streams.contains(stream) && self.streams[stream.slot].take_writable(share_bytes) {
            self.events.push_back(Event::Writable { stream });
        }
    }
}
