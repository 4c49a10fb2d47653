//! The windows of what the peer sends: that of the connection, and how those of streams are opened.
//! RFC 9113 sections 5.2 and 6.9.

use super::bandwidth::Bandwidth;
use super::config::Config;
use super::error::ConnectionError;
use super::flow::ReceiveWindow;
use super::frame::{self, DEFAULT_WINDOW, MAX_31_BIT};
use super::settings;
use super::stream::Stream;
use super::streams::Streams;
use crate::limits;

/// The receive windows of a connection.
#[derive(Debug)]
pub(crate) struct ReceiveWindows {
    connection: ReceiveWindow,
    bandwidth: Bandwidth,
    /// What is consumed is not given back for now.
    are_shut: bool,
    /// The initial stream window that the peer is known to keep to.
    initial: u32,
    /// The peer has acknowledged our SETTINGS.
    is_acknowledged: bool,
    is_connection_fixed: bool,
    are_streams_fixed: bool,
}

impl ReceiveWindows {
    /// Returns the windows of a connection on which nothing has been sent.
    pub(crate) fn new(config: &Config) -> ReceiveWindows {
        ReceiveWindows {
            connection: ReceiveWindow::new(DEFAULT_WINDOW),
            bandwidth: Bandwidth::default(),
            are_shut: false,
            initial: DEFAULT_WINDOW,
            is_acknowledged: false,
            is_connection_fixed: config.connection_window.is_some(),
            are_streams_fixed: config.stream_window.is_some(),
        }
    }

    /// Opens the window of the connection as far as it is to be at first.
    pub(crate) fn start(&mut self, config: &Config, out: &mut Vec<u8>) {
        let window = config
            .connection_window
            .unwrap_or(limits::CONNECTION_WINDOW_BYTES);
        // "The connection flow-control window can only be changed using WINDOW_UPDATE frames" (RFC
        // 9113 section 6.9.2), so that it is never smaller than the default.
        self.connection.grow_to(window.min(MAX_31_BIT));
        if let Some(increment) = self.connection.announce_all() {
            frame::write_window_update(out, 0, increment);
        }
    }

    /// Takes a DATA frame out of the connection's window, which is given back on receipt: what
    /// waits is bounded by the windows of its stream.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        length: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), ConnectionError> {
        if !self.connection.take(length) {
            return Err(ConnectionError::flow_control(
                "DATA beyond the window of the connection",
            ));
        }
        self.bandwidth.received(length);
        self.connection.give(length);
        if let Some(increment) = self.connection.announce() {
            frame::write_window_update(out, 0, increment);
        }
        Ok(())
    }

    /// Returns the size of the connection's window.
    pub(crate) fn connection_bytes(&self) -> usize {
        self.connection.size() as usize
    }

    /// Returns the window with which a stream begins.
    #[inline]
    pub(crate) fn initial(&self) -> u32 {
        self.initial
    }

    /// Returns whether the peer has acknowledged our SETTINGS.
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.is_acknowledged
    }

    /// Our SETTINGS hold from here on, also for what the peer sends on the streams that exist.
    /// Returns whether they did not before.
    pub(crate) fn acknowledge(
        &mut self,
        config: &Config,
        streams: &mut Streams,
        out: &mut Vec<u8>,
    ) -> bool {
        if self.is_acknowledged {
            return false;
        }
        self.is_acknowledged = true;
        let (from, to) = (self.initial, settings::our_initial_window(config));
        if from != to {
            self.initial = to;
            for (_, stream) in streams.iter_mut() {
                stream.receive_window.resize_initial(from, to);
                // What was too little to be announced may be much for a smaller window, and the
                // peer may wait for it.
                if !stream.is_receive_closed()
                    && let Some(increment) = stream.receive_window.announce()
                {
                    frame::write_window_update(out, stream.id(), increment);
                }
            }
        }
        true
    }

    /// A PING was acknowledged, perhaps that of a measurement.
    pub(crate) fn ping_acknowledged(&mut self, opaque: [u8; 8]) {
        self.bandwidth.acknowledged(opaque);
    }

    /// Returns whether what is consumed is not given back for now.
    #[inline]
    pub(crate) fn are_shut(&self) -> bool {
        self.are_shut
    }

    /// Keeps the windows of all streams shut, whatever is consumed.
    pub(crate) fn shut(&mut self) {
        self.are_shut = true;
    }

    /// Gives back what was consumed while the windows were shut. Messages that wait for their turn
    /// wait on.
    pub(crate) fn reopen(&mut self, streams: &mut Streams, out: &mut Vec<u8>) {
        self.are_shut = false;
        for (_, stream) in streams.iter_mut() {
            if !stream.is_receive_closed()
                && !stream.is_dead()
                && !stream.turn.is_waiting()
                && let Some(increment) = stream.receive_window.announce()
            {
                frame::write_window_update(out, stream.id(), increment);
            }
        }
    }

    /// Bounds the window of a stream that brings much. Some of it is open at once. One that is
    /// larger by now shrinks to it with what comes.
    pub(crate) fn limit(&mut self, stream: &mut Stream, bytes: u32, out: &mut Vec<u8>) {
        if self.are_streams_fixed {
            return;
        }
        let window = &mut stream.receive_window;
        window.shrink_to(bytes.max(limits::STREAM_WINDOW_BYTES));
        window.grow_to(bytes.min(limits::BULK_WINDOW_BYTES));
        if !stream.is_receive_closed()
            && !stream.is_dead()
            && !self.are_shut
            && let Some(increment) = stream.receive_window.announce()
        {
            frame::write_window_update(out, stream.id(), increment);
        }
    }

    /// Gives bytes back to a stream's window, and lets the window grow if the stream receives much.
    #[inline]
    pub(crate) fn give_back(&mut self, stream: &mut Stream, bytes: u32, out: &mut Vec<u8>) {
        if stream.is_receive_closed() || stream.is_dead() {
            return;
        }
        stream.receive_window.give(bytes);
        if self.are_shut {
            return;
        }
        let Some(increment) = stream.receive_window.announce() else {
            return;
        };
        frame::write_window_update(out, stream.id(), increment);
        self.grow(stream, out);
    }

    /// Begins to measure what is in flight, and lets the connection's window grow with it, unless
    /// windows are fixed.
    pub(crate) fn measure(&mut self, out: &mut Vec<u8>) {
        if self.are_streams_fixed && self.is_connection_fixed {
            return;
        }
        if let Some(opaque) = self.bandwidth.begin() {
            frame::write_ping(out, 0, opaque);
        }
        if !self.is_connection_fixed {
            self.connection.grow_to(self.bandwidth.connection_window());
        }
    }

    /// A stream has used half of its window: it receives much. Measures what is in flight, and lets
    /// the windows that are not fixed grow with it.
    fn grow(&mut self, stream: &mut Stream, out: &mut Vec<u8>) {
        self.measure(out);
        if self.are_streams_fixed {
            return;
        }
        let limit = stream.window_limit();
        stream
            .receive_window
            .grow_to(self.bandwidth.stream_window().min(limit));
        if let Some(increment) = stream.receive_window.announce() {
            frame::write_window_update(out, stream.id(), increment);
        }
    }

    /// Opens the window of a stream whose turn it is for what its message lacks, or for a good part
    /// of it.
    pub(crate) fn open_for_turn(&self, stream: &mut Stream, out: &mut Vec<u8>) {
        if stream.is_receive_closed() || stream.is_dead() {
            return;
        }
        let increment = if self.are_streams_fixed {
            stream.receive_window.announce()
        } else {
            let step = limits::MAX_STREAM_WINDOW_BYTES
                .min(stream.window_limit().max(limits::STREAM_WINDOW_BYTES));
            let wanted = stream.turn.reserved_bytes().min(step);
            let available = stream.receive_window.available();
            if available >= wanted || available > step / 2 {
                return;
            }
            stream.receive_window.open_to(wanted)
        };
        if let Some(increment) = increment {
            frame::write_window_update(out, stream.id(), increment);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::error::ErrorCode;
    use crate::http2::frame::{FrameHeader, HEADER_BYTES, kind};
    use crate::http2::headers::BodyKind;

    /// Windows of which those of streams begin with so many bytes, and a stream.
    fn windows(stream_window: Option<u32>) -> (ReceiveWindows, Streams, u32) {
        let config = Config {
            stream_window,
            ..Config::server()
        };
        let mut windows = ReceiveWindows::new(&config);
        let mut streams = Streams::default();
        assert!(windows.acknowledge(&config, &mut streams, &mut Vec::new()));
        let slot = streams.insert(1, BodyKind::Grpc, 10, windows.initial());
        (windows, streams, slot)
    }

    /// The streams and increments of the WINDOW_UPDATE frames.
    fn updates(mut out: &[u8]) -> Vec<(u32, u32)> {
        let mut updates = Vec::new();
        while let Some((header, rest)) = out.split_first_chunk::<HEADER_BYTES>() {
            let header = FrameHeader::parse(header);
            let (payload, after) = rest.split_at(header.length as usize);
            if header.kind == kind::WINDOW_UPDATE {
                updates.push((header.stream, frame::read_u32(payload)));
            }
            out = after;
        }
        updates
    }

    #[test]
    fn the_window_of_the_connection_is_given_back_on_receipt() {
        let (mut windows, _, _) = windows(None);
        let mut out = Vec::new();
        for _ in 0..2 {
            windows.receive(30_000, &mut out).expect("within it");
            assert_eq!(updates(&out), []);
            windows.receive(2_768, &mut out).expect("within it");
            assert_eq!(updates(&out), [(0, 32_768)]);
            out.clear();
        }
        let beyond = windows.receive(DEFAULT_WINDOW + 1, &mut out);
        let code = beyond.map_err(|error| error.code);
        assert_eq!(code, Err(ErrorCode::FlowControlError));
    }

    #[test]
    fn what_is_consumed_while_windows_are_shut_is_given_back_afterwards() {
        let (mut windows, mut streams, slot) = windows(Some(1_000));
        let mut out = Vec::new();
        for _ in 0..2 {
            assert!(streams[slot].receive_window.take(800));
            windows.shut();
            windows.give_back(&mut streams[slot], 800, &mut out);
            assert_eq!(updates(&out), []);
            windows.reopen(&mut streams, &mut out);
            assert_eq!(updates(&out), [(1, 800)]);
            out.clear();
        }
    }

    #[test]
    fn a_window_is_opened_for_the_message_whose_turn_it_is() {
        let (windows, mut streams, slot) = windows(None);
        let stream = &mut streams[slot];
        let mut out = Vec::new();
        stream.turn.begin(200_000, 0);
        windows.open_for_turn(stream, &mut out);
        assert_eq!(updates(&out), [(1, 200_000 - windows.initial())]);
        windows.open_for_turn(stream, &mut out);
        assert_eq!(updates(&out).len(), 1, "it is open for all of it");
        // A fixed window is only given back.
        let (windows, mut streams, slot) = self::windows(Some(1_000));
        let stream = &mut streams[slot];
        out.clear();
        stream.turn.begin(200_000, 0);
        assert!(stream.receive_window.take(600));
        stream.receive_window.give(600);
        windows.open_for_turn(stream, &mut out);
        assert_eq!(updates(&out), [(1, 600)]);
    }
}
