//! What waits to be sent on a connection, and in which order it goes out: stream after stream, a
//! frame each, while windows and the output allow.

use std::collections::VecDeque;

use super::capacity::Capacity;
use super::config::Config;
use super::error::ConnectionError;
use super::flow::SendWindow;
use super::frame::{self, DEFAULT_WINDOW, FrameHeader, HEADER_BYTES, flag, kind};
use super::pool::BufferPool;
use super::stream::Stream;
use super::stream_key::StreamKey;
use super::streams::Streams;
use crate::limits;

/// How much went out of what waited on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameSent {
    /// Nothing: a window is shut.
    Nothing,
    /// A frame, and more waits.
    Some,
    /// All of it.
    All,
}

/// The order in which streams send, the connection's send window, and the acknowledgements that
/// wait for the output.
#[derive(Debug)]
pub(crate) struct SendQueue {
    window: SendWindow,
    /// Streams with something to send and a window for it, in the order of their turns.
    ready: VecDeque<StreamKey>,
    /// Acknowledgements that wait: of SETTINGS (`None`), or of a PING.
    pending_acks: VecDeque<Option<[u8; 8]>>,
    /// Size of the output at which the rest is kept back.
    output_bound_bytes: usize,
}

impl SendQueue {
    /// Returns the queue of a connection on which nothing has been sent.
    pub(crate) fn new(config: &Config) -> SendQueue {
        SendQueue {
            window: SendWindow::new(DEFAULT_WINDOW),
            ready: VecDeque::new(),
            pending_acks: VecDeque::new(),
            output_bound_bytes: config.output_bound_bytes,
        }
    }

    /// Returns the bytes that the connection's window lets out.
    #[inline]
    pub(crate) fn window_bytes(&self) -> usize {
        self.window.available()
    }

    /// Opens the connection's window. RFC 9113 section 6.9.1.
    pub(crate) fn open_window(&mut self, increment: u32) -> Result<(), ConnectionError> {
        match self.window.change(i64::from(increment)) {
            true => Ok(()),
            false => Err(ConnectionError::flow_control(
                "the window of the connection is above 2^31-1",
            )),
        }
    }

    /// Returns whether something waits that the windows of its stream let out.
    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns whether something could be sent, if the output has room.
    #[inline]
    pub(crate) fn wants_transmit(&self) -> bool {
        !self.pending_acks.is_empty() || (self.has_ready() && self.window.available() > 0)
    }

    /// Returns whether what is sent on a stream may be written straight into the output.
    #[inline]
    pub(crate) fn may_write_at_once(&self, stream: &Stream, out: &[u8]) -> bool {
        self.ready.is_empty()
            && self.pending_acks.is_empty()
            && out.len() < self.output_bound_bytes
            && stream.outbound.bytes() == 0
    }

    /// Takes a DATA frame that was written straight into the output, from `start` on, out of the
    /// windows, and fills its header in. False: it does not fit.
    #[inline]
    pub(crate) fn complete_frame(
        &mut self,
        stream: &mut Stream,
        start: usize,
        out: &mut [u8],
    ) -> bool {
        let length = out.len() - start - HEADER_BYTES;
        let fits = length <= limits::MAX_SENT_DATA_BYTES
            && length <= stream.send_window.available()
            && length <= self.window.available();
        if fits {
            let header = FrameHeader {
                length: length as u32,
                kind: kind::DATA,
                flags: 0,
                stream: stream.id(),
            };
            out[start..start + HEADER_BYTES].copy_from_slice(&header.to_bytes());
            stream.send_window.take(length);
            self.window.take(length);
        }
        fits
    }

    /// Puts a stream that has something to send at the end of the list of turns.
    pub(crate) fn make_ready(&mut self, slot: u32, stream: &mut Stream) {
        if stream.enter_ready() {
            let id = stream.id();
            self.ready.push_back(StreamKey { slot, id });
        }
    }

    /// Takes a stream that has nothing to send any more out of the list.
    pub(crate) fn leave(&mut self, stream: &mut Stream) {
        if stream.leave_ready() {
            let id = stream.id();
            self.ready.retain(|key| key.id != id);
        }
    }

    /// Takes out the stream whose turn it is to send, if the connection's window and the output let
    /// it.
    pub(crate) fn next(&mut self, streams: &mut Streams, out: &[u8]) -> Option<StreamKey> {
        if out.len() >= self.output_bound_bytes || self.window.available() == 0 {
            return None;
        }
        let key = self.ready.pop_front()?;
        debug_assert!(streams.contains(key), "a stream that goes leaves the list");
        streams[key.slot].leave_ready();
        Some(key)
    }

    /// Sends one DATA frame of a stream that was taken out. If more waits that its window lets out,
    /// it is the last in the list again.
    pub(crate) fn send_frame(
        &mut self,
        slot: u32,
        stream: &mut Stream,
        capacity: &mut Capacity,
        pool: &mut BufferPool,
        out: &mut Vec<u8>,
    ) -> FrameSent {
        let waiting = stream.outbound.bytes();
        let count = waiting
            .min(stream.send_window.available())
            .min(self.window.available())
            .min(limits::MAX_SENT_DATA_BYTES);
        if count == 0 {
            return FrameSent::Nothing;
        }
        let is_end = count == waiting && stream.outbound.ends_bare();
        let flags = if is_end { flag::END_STREAM } else { 0 };
        frame::write_header(out, count, kind::DATA, flags, stream.id());
        let out_before = stream.outbound.sent_bytes();
        let shared = stream.outbound.take(count, out, pool);
        capacity.count_sent(count, shared);
        capacity.count_out(out_before, stream.outbound.sent_bytes());
        stream.send_window.take(count);
        self.window.take(count);
        if count == waiting {
            return FrameSent::All;
        }
        if stream.send_window.available() > 0 {
            self.make_ready(slot, stream);
        }
        FrameSent::Some
    }

    /// Acknowledges SETTINGS (`None`) or a PING: at once, or when the output is no longer full.
    pub(crate) fn acknowledge(
        &mut self,
        ping: Option<[u8; 8]>,
        out: &mut Vec<u8>,
    ) -> Result<(), ConnectionError> {
        if self.pending_acks.is_empty() && out.len() < self.output_bound_bytes {
            write_ack(ping, out);
            return Ok(());
        }
        if self.pending_acks.len() >= limits::MAX_PENDING_ACKS {
            return Err(ConnectionError::calm(
                "too many acknowledgements wait, and the output is not read",
            ));
        }
        self.pending_acks.push_back(ping);
        Ok(())
    }

    /// Sends acknowledgements that had to wait, as long as the output is not full.
    #[inline]
    pub(crate) fn send_acks(&mut self, out: &mut Vec<u8>) {
        while out.len() < self.output_bound_bytes {
            let Some(ack) = self.pending_acks.pop_front() else {
                return;
            };
            write_ack(ack, out);
        }
    }

    /// Forgets all that waits at once, as the connection is over: taking each stream out of the
    /// list of turns would be work for the square of their number.
    pub(crate) fn forget(&mut self, streams: &mut Streams) {
        self.pending_acks.clear();
        for key in std::mem::take(&mut self.ready) {
            streams[key.slot].leave_ready();
        }
    }

    /// Gives memory back that is not used.
    pub(crate) fn trim(&mut self) {
        self.ready.shrink_to_fit();
    }

    /// Returns the bytes of memory that the lists hold.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.ready.capacity() * size_of::<StreamKey>()
            + self.pending_acks.capacity() * size_of::<Option<[u8; 8]>>()
    }

    #[cfg(test)]
    pub(crate) fn reserve(&mut self, keys: usize, acks: usize) {
        self.ready.reserve(keys);
        self.pending_acks.reserve(acks);
    }
}

fn write_ack(ping: Option<[u8; 8]>, out: &mut Vec<u8>) {
    match ping {
        Some(opaque) => frame::write_ping(out, flag::ACK, opaque),
        None => frame::write_settings_ack(out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::error::ErrorCode;
    use crate::http2::headers::BodyKind;

    /// A queue, and streams on each of which so many bytes wait.
    struct Setup {
        queue: SendQueue,
        streams: Streams,
        capacity: Capacity,
        pool: BufferPool,
        keys: Vec<StreamKey>,
    }

    impl Setup {
        fn new(waiting: &[usize], send_window: u32) -> Setup {
            let config = Config {
                output_bound_bytes: 1 << 20,
                ..Config::server()
            };
            let mut setup = Setup {
                queue: SendQueue::new(&config),
                streams: Streams::default(),
                capacity: Capacity::new(&config),
                pool: BufferPool::default(),
                keys: Vec::new(),
            };
            for (at, &bytes) in waiting.iter().enumerate() {
                let id = 2 * at as u32 + 1;
                let slot = setup.streams.insert(id, BodyKind::Grpc, send_window, 10);
                setup.keys.push(StreamKey { slot, id });
                setup.queue_bytes(at, bytes);
            }
            setup
        }

        fn queue_bytes(&mut self, at: usize, bytes: usize) {
            let slot = self.keys[at].slot;
            let stream = &mut self.streams[slot];
            let write = |out: &mut Vec<u8>| out.resize(out.len() + bytes, 7);
            let added = stream.outbound.write(&mut self.pool, write);
            self.capacity.add_unsent(added);
            self.queue.make_ready(slot, stream);
        }

        /// Sends the next frame: the identifier of its stream, its length, and what was sent.
        fn send(&mut self, out: &mut Vec<u8>) -> Option<(u32, usize, FrameSent)> {
            let key = self.queue.next(&mut self.streams, out)?;
            let (stream, before) = (&mut self.streams[key.slot], out.len());
            let (capacity, pool) = (&mut self.capacity, &mut self.pool);
            let sent = self.queue.send_frame(key.slot, stream, capacity, pool, out);
            let length = (out.len() - before).saturating_sub(HEADER_BYTES);
            Some((key.id, length, sent))
        }
    }

    #[test]
    fn streams_take_turns_a_frame_each() {
        let max = limits::MAX_SENT_DATA_BYTES;
        let mut setup = Setup::new(&[max + 10, 20], 1 << 20);
        for _ in 0..2 {
            let mut out = Vec::new();
            assert_eq!(setup.send(&mut out), Some((1, max, FrameSent::Some)));
            assert_eq!(setup.send(&mut out), Some((3, 20, FrameSent::All)));
            assert_eq!(setup.send(&mut out), Some((1, 10, FrameSent::All)));
            assert_eq!(setup.send(&mut out), None);
            assert_eq!(
                (setup.capacity.unsent_bytes(), setup.queue.has_ready()),
                (0, false)
            );
            setup.queue_bytes(0, max + 10);
            setup.queue_bytes(1, 20);
        }
    }

    #[test]
    fn nothing_goes_out_beyond_the_windows_and_the_output() {
        let mut setup = Setup::new(&[100, 100], 60);
        let mut out = Vec::new();
        assert_eq!(setup.send(&mut out), Some((1, 60, FrameSent::Some)));
        assert_eq!(setup.send(&mut out), Some((3, 60, FrameSent::Some)));
        assert_eq!(setup.send(&mut out), None, "their windows are used up");
        let mut full = vec![0; 1 << 20];
        setup.queue_bytes(0, 1);
        assert_eq!(setup.send(&mut full), None, "the output is full");
        assert!(setup.queue.wants_transmit());
        assert_eq!(setup.send(&mut out), Some((1, 0, FrameSent::Nothing)));
        assert_eq!(setup.queue.window_bytes(), DEFAULT_WINDOW as usize - 120);
        setup.queue.open_window(100).expect("it is small");
        assert_eq!(setup.queue.window_bytes(), DEFAULT_WINDOW as usize - 20);
        let beyond = setup.queue.open_window(frame::MAX_31_BIT);
        let code = beyond.map_err(|error| error.code);
        assert_eq!(code, Err(ErrorCode::FlowControlError));
    }

    #[test]
    fn acknowledgements_wait_for_the_output_up_to_a_bound() {
        let mut queue = Setup::new(&[], 10).queue;
        let mut full = vec![0; 1 << 20];
        for _ in 0..2 {
            for _ in 0..limits::MAX_PENDING_ACKS {
                queue
                    .acknowledge(Some([7; 8]), &mut full)
                    .expect("it waits");
            }
            let refused = queue.acknowledge(None, &mut full);
            let code = refused.map_err(|error| error.code);
            assert_eq!(code, Err(ErrorCode::EnhanceYourCalm));
            let mut out = Vec::new();
            queue.send_acks(&mut out);
            assert_eq!(out.len(), limits::MAX_PENDING_ACKS * (HEADER_BYTES + 8));
            assert!(!queue.wants_transmit());
            queue.acknowledge(None, &mut out).expect("at once");
            assert!(out.ends_with(&[0, 0, 0, kind::SETTINGS, flag::ACK, 0, 0, 0, 0]));
        }
    }

    #[test]
    fn a_stream_that_ends_leaves_the_list_once() {
        let mut setup = Setup::new(&[10, 10, 10], 100);
        let slot = setup.keys[1].slot;
        for _ in 0..2 {
            setup.queue.leave(&mut setup.streams[slot]);
        }
        let mut out = Vec::new();
        assert_eq!(setup.send(&mut out), Some((1, 10, FrameSent::All)));
        assert_eq!(setup.send(&mut out), Some((5, 10, FrameSent::All)));
        assert_eq!(setup.send(&mut out), None);
    }
}
