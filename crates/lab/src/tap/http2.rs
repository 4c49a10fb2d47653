//! Follows an HTTP/2 connection from outside: its calls, its windows and the server's limit.

use std::collections::HashMap;

use client::Code;
use wire::hpack::{Decoder, FieldLimits, Fields};
use wire::http2::frame::{DEFAULT_WINDOW, FrameHeader, flag, kind, read_settings, setting};
use wire::limits::MAX_WATCHED_TABLE_BYTES;

use super::call::CallEnd;
use super::compressed::MessageReader;
use super::direction::{BothWays, TapDirection};
use super::frames::{FrameSplitter, SeenFrame, Unreadable};
use super::ledger::ConnectionLedger;
use super::limits::{WATCHED_BLOCK_BYTES, WATCHED_CALLS};
use super::time_use::RelayHold;
use super::totals::TapTotals;

/// What one direction of the connection is in the midst of.
#[derive(Debug)]
struct Http2Flow {
    splitter: FrameSplitter,
    decoder: Decoder,
    /// A header block that is not whole, and the frame that began it.
    block: Vec<u8>,
    begun_by: Option<FrameHeader>,
    /// What the sender may still send on the whole connection.
    window: i64,
    /// The window with which streams begin, as the receiver has asked for.
    initial_window: i64,
    /// Streams on which something is to be sent.
    sending_streams: usize,
    /// Those of them that have no window.
    shut_streams: usize,
}

impl Http2Flow {
    fn new(splitter: FrameSplitter) -> Http2Flow {
        Http2Flow {
            splitter,
            decoder: Decoder::new(MAX_WATCHED_TABLE_BYTES),
            block: Vec::new(),
            begun_by: None,
            window: i64::from(DEFAULT_WINDOW),
            initial_window: i64::from(DEFAULT_WINDOW),
            sending_streams: 0,
            shut_streams: 0,
        }
    }

    /// Whether the sender has something to send and no window for it.
    fn is_held(&self) -> bool {
        self.shut_streams > 0 || self.window <= 0 && self.sending_streams > 0
    }
}

/// A stream that is under way.
#[derive(Debug)]
struct TappedStream {
    windows: BothWays<i64>,
    is_sending: BothWays<bool>,
    /// The status of the response's first header block.
    http_status: Option<u16>,
    /// What finds messages where the head names an encoding of theirs.
    readers: BothWays<Option<MessageReader>>,
}

impl TappedStream {
    fn is_shut(&self, direction: TapDirection) -> bool {
        *self.is_sending.get(direction) && *self.windows.get(direction) <= 0
    }
}

/// A connection that is followed.
#[derive(Debug)]
pub(super) struct Http2Watch {
    ways: BothWays<Http2Flow>,
    streams: HashMap<u32, TappedStream>,
    fields: Fields,
}

/// Where what was seen is noted, and when it was seen.
pub(super) struct Noting<'a> {
    pub(super) ledger: &'a mut ConnectionLedger,
    pub(super) totals: &'a mut TapTotals,
    pub(super) now_ns: u64,
}

impl Http2Watch {
    pub(super) fn new() -> Http2Watch {
        Http2Watch {
            ways: BothWays {
                to_server: Http2Flow::new(FrameSplitter::of_client()),
                to_client: Http2Flow::new(FrameSplitter::of_server()),
            },
            streams: HashMap::new(),
            fields: Fields::new(),
        }
    }

    /// Takes the next bytes of a direction.
    ///
    /// # Errors
    /// If they cannot be followed; nothing more is to be pushed then.
    pub(super) fn push(
        &mut self,
        direction: TapDirection,
        bytes: &[u8],
        noting: &mut Noting<'_>,
    ) -> Result<(), Unreadable> {
        let way = self.ways.get_mut(direction);
        let mut splitter = std::mem::replace(&mut way.splitter, FrameSplitter::of_server());
        let pushed = splitter.push(bytes, &mut |frame| self.take(direction, frame, noting));
        self.ways.get_mut(direction).splitter = splitter;
        pushed
    }

    fn take(
        &mut self,
        direction: TapDirection,
        frame: SeenFrame<'_>,
        noting: &mut Noting<'_>,
    ) -> Result<(), Unreadable> {
        match frame {
            SeenFrame::DataBegins(header) => self.data_begins(direction, header, noting),
            SeenFrame::DataBytes(header, bytes) => {
                self.read_messages(direction, header, bytes, noting);
            }
            SeenFrame::DataEnds(header) if header.has(flag::END_STREAM) => {
                self.sending_ends(direction, header.stream, None, noting);
            }
            SeenFrame::DataEnds(_) => {}
            SeenFrame::Whole(header, payload) => match header.kind {
                kind::HEADERS => self.headers(direction, header, payload, noting)?,
                kind::CONTINUATION => self.continuation(direction, header, payload, noting)?,
                kind::SETTINGS if !header.has(flag::ACK) => {
                    self.settings(direction, payload, noting);
                }
                kind::WINDOW_UPDATE => self.window_update(direction, header, payload, noting),
                kind::RST_STREAM => self.reset(direction, header, payload, noting),
                // A push would change the table of the sender's header blocks.
                kind::PUSH_PROMISE => return Err(Unreadable::HeaderBlock),
                _ => {}
            },
        }
        Ok(())
    }

    fn data_begins(
        &mut self,
        direction: TapDirection,
        header: FrameHeader,
        noting: &mut Noting<'_>,
    ) {
        let length = i64::from(header.length);
        let (key, bytes) = (u64::from(header.stream), u64::from(header.length));
        let ledger = &mut *noting.ledger;
        ledger.body(noting.totals, direction, key, bytes, noting.now_ns);
        self.ways.get_mut(direction).window -= length;
        self.change(header.stream, |stream| {
            *stream.windows.get_mut(direction) -= length;
        });
        self.note_holds(noting);
    }

    /// Looks for messages where they may be compressed.
    fn read_messages(
        &mut self,
        direction: TapDirection,
        header: FrameHeader,
        bytes: &[u8],
        noting: &mut Noting<'_>,
    ) {
        let Some(stream) = self.streams.get_mut(&header.stream) else {
            return;
        };
        let reader = stream.readers.get_mut(direction);
        if header.has(flag::PADDED) {
            // Nobody pads messages of gRPC: these are not looked at.
            *reader = None;
        }
        if let Some(reader) = reader {
            reader.push(bytes, noting.totals.compressed.get_mut(direction));
        }
    }

    /// Has messages looked at where the head that has just come says how they are compressed.
    fn note_encoding(&mut self, direction: TapDirection, id: u32) {
        let encoding = self.fields.value_of(b"grpc-encoding");
        if encoding.is_some_and(|encoding| matches!(encoding, b"gzip" | b"deflate"))
            && let Some(stream) = self.streams.get_mut(&id)
        {
            stream
                .readers
                .get_mut(direction)
                .get_or_insert_with(MessageReader::default);
        }
    }

    fn headers(
        &mut self,
        direction: TapDirection,
        header: FrameHeader,
        payload: &[u8],
        noting: &mut Noting<'_>,
    ) -> Result<(), Unreadable> {
        let fragment = without_padding(header, payload).ok_or(Unreadable::HeaderBlock)?;
        let way = self.ways.get_mut(direction);
        way.block.clear();
        way.block.extend_from_slice(fragment);
        way.begun_by = Some(header);
        self.fragment_ends(direction, (header, header), noting)
    }

    fn continuation(
        &mut self,
        direction: TapDirection,
        header: FrameHeader,
        payload: &[u8],
        noting: &mut Noting<'_>,
    ) -> Result<(), Unreadable> {
        let way = self.ways.get_mut(direction);
        let begun_by = way.begun_by.filter(|first| first.stream == header.stream);
        let first = begun_by.ok_or(Unreadable::HeaderBlock)?;
        if way.block.len() + payload.len() > WATCHED_BLOCK_BYTES {
            return Err(Unreadable::FrameTooLong);
        }
        way.block.extend_from_slice(payload);
        self.fragment_ends(direction, (first, header), noting)
    }

    /// A part of a header block is there: of the frame that began it, and of the last one.
    fn fragment_ends(
        &mut self,
        direction: TapDirection,
        (first, last): (FrameHeader, FrameHeader),
        noting: &mut Noting<'_>,
    ) -> Result<(), Unreadable> {
        match last.has(flag::END_HEADERS) {
            true => self.block_ends(direction, first, noting),
            false => Ok(()),
        }
    }

    /// A header block is whole; `header` is the frame that began it.
    fn block_ends(
        &mut self,
        direction: TapDirection,
        header: FrameHeader,
        noting: &mut Noting<'_>,
    ) -> Result<(), Unreadable> {
        let way = self.ways.get_mut(direction);
        way.begun_by = None;
        let limits = FieldLimits {
            max_fields: WATCHED_BLOCK_BYTES / 32,
            max_list_bytes: WATCHED_BLOCK_BYTES,
        };
        let decoded = way.decoder.decode(&way.block, &limits, &mut self.fields);
        decoded.map_err(|_| Unreadable::HeaderBlock)?;
        match direction {
            TapDirection::ToServer => self.request_head(header, noting),
            TapDirection::ToClient => self.response_head(header, noting),
        }
        Ok(())
    }

    fn request_head(&mut self, header: FrameHeader, noting: &mut Noting<'_>) {
        let key = u64::from(header.stream);
        // Trailers of a request begin nothing.
        if !self.streams.contains_key(&header.stream) {
            let path = self.fields.value_of(b":path").unwrap_or(b"(no :path)");
            let (ledger, totals) = (&mut *noting.ledger, &mut *noting.totals);
            ledger.begin(totals, key, path, noting.now_ns);
            self.adopt(header.stream);
            self.note_encoding(TapDirection::ToServer, header.stream);
        }
        if header.has(flag::END_STREAM) {
            self.sending_ends(TapDirection::ToServer, header.stream, None, noting);
        }
        self.note_holds(noting);
    }

    /// Follows one more stream, if there are not too many.
    fn adopt(&mut self, id: u32) {
        if self.streams.len() >= WATCHED_CALLS {
            return;
        }
        let stream = TappedStream {
            windows: BothWays {
                to_server: self.ways.to_server.initial_window,
                to_client: self.ways.to_client.initial_window,
            },
            is_sending: BothWays {
                to_server: true,
                to_client: true,
            },
            http_status: None,
            readers: BothWays::default(),
        };
        count(&mut self.ways, &stream);
        self.streams.insert(id, stream);
    }

    fn response_head(&mut self, header: FrameHeader, noting: &mut Noting<'_>) {
        let key = u64::from(header.stream);
        let (ledger, totals) = (&mut *noting.ledger, &mut *noting.totals);
        ledger.response_begins(totals, key, noting.now_ns);
        let status = self.fields.value_of(b":status").and_then(number);
        if let (Some(status), Some(stream)) = (status, self.streams.get_mut(&header.stream)) {
            stream.http_status = Some(status);
        }
        self.note_encoding(TapDirection::ToClient, header.stream);
        if header.has(flag::END_STREAM) {
            let grpc = self.fields.value_of(b"grpc-status").map(Code::parse);
            self.sending_ends(TapDirection::ToClient, header.stream, grpc, noting);
        }
    }

    /// Whoever sends in this direction has ended its side of a stream.
    fn sending_ends(
        &mut self,
        direction: TapDirection,
        id: u32,
        grpc: Option<Code>,
        noting: &mut Noting<'_>,
    ) {
        let key = u64::from(id);
        let (ledger, totals) = (&mut *noting.ledger, &mut *noting.totals);
        match direction {
            TapDirection::ToServer => {
                ledger.request_ends(totals, key, noting.now_ns);
                self.change(id, |stream| stream.is_sending.to_server = false);
                self.note_holds(noting);
            }
            TapDirection::ToClient => {
                let status = self.streams.get(&id).and_then(|stream| stream.http_status);
                let end = match (grpc, status) {
                    (Some(code), _) => CallEnd::Grpc(code),
                    (None, status) => CallEnd::Http(status.unwrap_or_default()),
                };
                ledger.end(totals, direction, key, end, noting.now_ns);
                self.forget(id, noting);
            }
        }
    }

    fn reset(
        &mut self,
        direction: TapDirection,
        header: FrameHeader,
        payload: &[u8],
        noting: &mut Noting<'_>,
    ) {
        let code = payload
            .first_chunk()
            .map_or(0, |code| u32::from_be_bytes(*code));
        let end = CallEnd::Reset(direction, code);
        let (ledger, totals) = (&mut *noting.ledger, &mut *noting.totals);
        let key = u64::from(header.stream);
        ledger.end(totals, direction, key, end, noting.now_ns);
        self.forget(header.stream, noting);
    }

    fn forget(&mut self, id: u32, noting: &mut Noting<'_>) {
        if let Some(stream) = self.streams.remove(&id) {
            discount(&mut self.ways, &stream);
        }
        self.note_holds(noting);
    }

    /// Whoever sends in this direction says how the other side may send.
    fn settings(&mut self, direction: TapDirection, payload: &[u8], noting: &mut Noting<'_>) {
        // The last one counts. It goes over all streams, and a frame has room for ten thousand.
        let mut window = None;
        for (identifier, value) in read_settings(payload) {
            match identifier {
                setting::MAX_CONCURRENT_STREAMS if direction == TapDirection::ToClient => {
                    noting.ledger.set_limit(value);
                }
                setting::INITIAL_WINDOW_SIZE => window = Some(value),
                _ => {}
            }
        }
        if let Some(window) = window {
            self.set_initial_window(direction.opposite(), window);
        }
        self.note_holds(noting);
    }

    /// Changes the windows of open streams too. RFC 9113 section 6.9.2.
    fn set_initial_window(&mut self, sender: TapDirection, value: u32) {
        let way = self.ways.get_mut(sender);
        let change = i64::from(value) - way.initial_window;
        way.initial_window = i64::from(value);
        for stream in self.streams.values_mut() {
            discount(&mut self.ways, stream);
            *stream.windows.get_mut(sender) += change;
            count(&mut self.ways, stream);
        }
    }

    /// Whoever sends in this direction lets the other side send more.
    fn window_update(
        &mut self,
        direction: TapDirection,
        header: FrameHeader,
        payload: &[u8],
        noting: &mut Noting<'_>,
    ) {
        let bytes = payload
            .first_chunk()
            .map_or(0, |bytes| u32::from_be_bytes(*bytes));
        let sender = direction.opposite();
        match header.stream {
            0 => self.ways.get_mut(sender).window += i64::from(bytes),
            id => self.change(id, |stream| {
                *stream.windows.get_mut(sender) += i64::from(bytes);
            }),
        }
        self.note_holds(noting);
    }

    /// Changes a stream, and what it counts for.
    fn change(&mut self, id: u32, change: impl FnOnce(&mut TappedStream)) {
        if let Some(stream) = self.streams.get_mut(&id) {
            discount(&mut self.ways, stream);
            change(stream);
            count(&mut self.ways, stream);
        }
    }

    /// Notes whether a sender has something to send and no window for it.
    fn note_holds(&mut self, noting: &mut Noting<'_>) {
        for sender in TapDirection::BOTH {
            let is_held = self.ways.get(sender).is_held();
            let hold = RelayHold::Window(sender);
            noting.ledger.set_hold(hold, is_held, noting.now_ns);
        }
    }
}

/// Counts a stream in both directions.
fn count(ways: &mut BothWays<Http2Flow>, stream: &TappedStream) {
    for direction in TapDirection::BOTH {
        let way = ways.get_mut(direction);
        way.sending_streams += usize::from(*stream.is_sending.get(direction));
        way.shut_streams += usize::from(stream.is_shut(direction));
    }
}

/// Takes back what [`count`] has counted.
fn discount(ways: &mut BothWays<Http2Flow>, stream: &TappedStream) {
    for direction in TapDirection::BOTH {
        let way = ways.get_mut(direction);
        way.sending_streams -= usize::from(*stream.is_sending.get(direction));
        way.shut_streams -= usize::from(stream.is_shut(direction));
    }
}

/// The fragment of a header block in a HEADERS frame. RFC 9113 section 6.2.
fn without_padding(header: FrameHeader, payload: &[u8]) -> Option<&[u8]> {
    let (padding, rest) = match header.has(flag::PADDED) {
        true => payload
            .split_first()
            .map(|(&length, rest)| (usize::from(length), rest))?,
        false => (0, payload),
    };
    let from = if header.has(flag::PRIORITY) { 5 } else { 0 };
    rest.get(from..rest.len().checked_sub(padding)?)
}

fn number(digits: &[u8]) -> Option<u16> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}
