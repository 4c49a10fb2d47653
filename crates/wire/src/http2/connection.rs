//! The connection as a value: its state, and the calls that belong to no single concern.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;

use super::bandwidth::Bandwidth;
use super::capacity::Capacity;
use super::config::{Config, Role};
use super::error::{CloseReason, ConnectionError};
use super::event::Event;
use super::flow::{ReceiveWindow, SendWindow};
use super::frame::{self, FrameHeader, HEADER_BYTES, PREFACE};
use super::guard::Guard;
use super::headers::{Head, HeadInfo};
use super::late_streams::LateStreams;
use super::memo::Memo;
use super::ok_trailers::OkTrailers;
use super::pool::Pool;
use super::receive_headers::PendingBlock;
use super::request_memo::RequestMemo;
use super::settings::{self, DEFAULT_WINDOW, PeerSettings};
use super::streams::{StreamKey, Streams};
use super::timers::Timers;
use super::turns::Turns;
use super::unpack::Unpacks;
use crate::grpc::Status;
use crate::hpack::{Decoder, Encoder, Fields};
use crate::limits;

/// How far the connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Server: the client's preface has not arrived.
    Preface,
    /// The peer's first frame, which must be SETTINGS, has not arrived.
    FirstSettings,
    Open,
    /// There is a close reason; what comes is not looked at.
    Closed,
}

/// How far a graceful end has come. RFC 9113 section 6.8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Draining {
    No,
    /// GOAWAY with 2^31-1 and a PING have been sent; requests are still taken.
    Announced,
    /// The final GOAWAY has been sent, with this last stream.
    Final(u32),
}

/// Where the head of the last request or response lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadAt {
    Fields,
    Memo(usize),
}

/// Where the last message lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MessageAt {
    Nowhere,
    Input(Range<usize>),
    Gathered(u32),
    /// In `unpacked`: decompressed, or copied out of a backlog.
    Unpacked,
}

/// A DATA frame that lies in the input and has not been taken to its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct DataFrame {
    pub(super) stream: StreamKey,
    /// Payload without padding that is still to be taken.
    pub(super) remaining: usize,
    /// Padding behind it.
    pub(super) padding: usize,
    pub(super) end: bool,
    /// The frame's length, for the budget of small frames.
    pub(super) length: u32,
    /// It brought a message to its end.
    pub(super) was_useful: bool,
}

/// A message that was taken out of its connection.
#[derive(Debug)]
pub enum TakenMessage {
    /// It lies in the input.
    Input(Range<usize>),
    /// It was gathered or decompressed.
    Owned(Vec<u8>),
    /// It was gathered or decompressed, and is large: parts of it may be kept.
    Shared(Bytes),
}

impl TakenMessage {
    /// The bytes. `input` is the same slice that `poll_event` was given.
    #[inline]
    pub fn bytes<'a>(&'a self, input: &'a [u8]) -> &'a [u8] {
        match self {
            TakenMessage::Input(range) => &input[range.clone()],
            TakenMessage::Owned(bytes) => bytes,
            TakenMessage::Shared(bytes) => bytes,
        }
    }

    /// The bytes of a large message, parts of which may be kept.
    #[inline]
    pub fn shared(&self) -> Option<&Bytes> {
        match self {
            TakenMessage::Shared(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// What was gathered: to be shared if whoever keeps it keeps little memory beside it.
    fn owned(bytes: Vec<u8>) -> TakenMessage {
        let spare = bytes.capacity() - bytes.len();
        let is_kept_whole = spare <= bytes.len() / limits::SHARED_MESSAGE_SPARE_PART;
        match bytes.len() >= limits::SHARED_MESSAGE_BYTES && is_kept_whole {
            true => TakenMessage::Shared(Bytes::from(bytes)),
            false => TakenMessage::Owned(bytes),
        }
    }
}

/// One HTTP/2 connection, in either role.
///
/// Bytes and the time go in, [`Event`]s and bytes come out. docs/internals/http2.md has the order
/// of calls.
#[derive(Debug)]
pub struct Connection {
    pub(super) config: Config,
    pub(super) now_ns: u64,
    pub(super) phase: Phase,
    pub(super) draining: Draining,
    pub(super) close_reason: Option<CloseReason>,
    pub(super) events: VecDeque<Event>,
    pub(super) guard: Guard,
    pub(super) timers: Timers,
    pub(super) pool: Pool,

    // Receiving.
    pub(super) decoder: Decoder,
    pub(super) memo: Memo,
    /// Client.
    pub(super) ok_trailers: OkTrailers,
    pub(super) fields: Fields,
    pub(super) info: HeadInfo,
    pub(super) route: Option<u32>,
    pub(super) head_at: HeadAt,
    pub(super) block: PendingBlock,
    pub(super) data: Option<DataFrame>,
    pub(super) message_at: MessageAt,
    pub(super) unpacked: Vec<u8>,
    pub(super) was_compressed: bool,
    pub(super) receive_window: ReceiveWindow,
    pub(super) bandwidth: Bandwidth,
    /// What is consumed is not given back for now.
    pub(super) windows_shut: bool,
    /// The initial stream window that the peer is known to keep to.
    pub(super) our_initial_window: u32,
    pub(super) settings_acked: bool,
    /// Bytes of unfinished messages and backlogs.
    pub(super) gathered_bytes: usize,
    /// What the layer above lets them be for now.
    pub(super) gather_bound: usize,
    /// Which of the large messages may come.
    pub(super) turns: Turns,
    /// Compressed messages that take more than one step.
    pub(super) unpacks: Unpacks,
    /// Streams that have been resumed and may have a backlog.
    pub(super) resumed: VecDeque<StreamKey>,
    /// Client: how the last finished call ended.
    pub(super) status: Status,

    // Streams.
    pub(super) streams: Streams,
    /// The highest stream that the peer has opened.
    pub(super) highest_peer_id: u32,
    /// The next stream that we open.
    pub(super) next_id: u32,
    /// Client: the last stream that the peer's GOAWAY lets live.
    pub(super) peer_goaway: Option<u32>,
    /// Server: streams that we ended before the peer did.
    pub(super) late: LateStreams,

    // Sending.
    pub(super) peer: PeerSettings,
    pub(super) encoder: Encoder,
    pub(super) request_memo: RequestMemo,
    pub(super) send_window: SendWindow,
    /// Streams whose windows the layer above has limited, since they bring much.
    pub(super) bulk_streams: u32,
    /// Streams with something to send and a window for it, in the order of their turns.
    pub(super) ready: VecDeque<StreamKey>,
    /// Body bytes that wait on all streams.
    pub(super) unsent_bytes: usize,
    /// Bytes of bodies that have waited and gone out, ever.
    pub(super) sent_bytes: u64,
    /// What may be produced for the peer, and who waits to produce it.
    pub(super) capacity: Capacity,
    /// Acknowledgements that wait: of SETTINGS, or of a PING.
    pub(super) pending_acks: VecDeque<Option<[u8; 8]>>,
}

/// Bytes that the pool of a connection may keep while no stream brings much.
fn usual_pool_bytes(role: Role) -> usize {
    match role {
        Role::Server => limits::POOLED_BYTES,
        Role::Client => limits::CLIENT_POOLED_BYTES,
    }
}

impl Connection {
    /// A connection on which nothing has been sent. `now_ns` counts from any origin, and never goes
    /// back.
    pub fn new(config: &Config, now_ns: u64) -> Connection {
        let phase = if config.role == Role::Server {
            Phase::Preface
        } else {
            Phase::FirstSettings
        };
        Connection {
            config: *config,
            now_ns,
            phase,
            draining: Draining::No,
            close_reason: None,
            events: VecDeque::new(),
            guard: Guard::new(config, now_ns),
            timers: Timers::new(config, now_ns),
            pool: Pool::new(usual_pool_bytes(config.role)),
            bulk_streams: 0,
            decoder: Decoder::new(limits::MAX_DECODER_TABLE_BYTES),
            memo: Memo::default(),
            ok_trailers: OkTrailers::default(),
            fields: Fields::new(),
            info: HeadInfo::EMPTY,
            route: None,
            head_at: HeadAt::Fields,
            block: PendingBlock::default(),
            data: None,
            message_at: MessageAt::Nowhere,
            unpacked: Vec::new(),
            was_compressed: false,
            receive_window: ReceiveWindow::new(DEFAULT_WINDOW),
            bandwidth: Bandwidth::default(),
            windows_shut: false,
            our_initial_window: DEFAULT_WINDOW,
            settings_acked: false,
            gathered_bytes: 0,
            gather_bound: usize::MAX,
            turns: Turns::default(),
            unpacks: Unpacks::default(),
            resumed: VecDeque::new(),
            status: Status::OK,
            streams: Streams::default(),
            highest_peer_id: 0,
            next_id: 1,
            peer_goaway: None,
            late: LateStreams::default(),
            peer: PeerSettings::default(),
            encoder: Encoder::new(),
            request_memo: RequestMemo::default(),
            send_window: SendWindow::new(DEFAULT_WINDOW),
            ready: VecDeque::new(),
            unsent_bytes: 0,
            sent_bytes: 0,
            capacity: Capacity::default(),
            pending_acks: VecDeque::new(),
        }
    }

    /// Appends what is sent first: a client's preface, SETTINGS, and the connection's window. To be
    /// called once.
    pub fn start(&mut self, out: &mut Vec<u8>) {
        if self.config.role == Role::Client {
            out.extend_from_slice(PREFACE);
        }
        settings::write_ours(&self.config, out);
        let window = self
            .config
            .connection_window
            .unwrap_or(limits::CONNECTION_WINDOW_BYTES);
        // "The connection flow-control window can only be changed using WINDOW_UPDATE frames" (RFC
        // 9113 section 6.9.2), so that it is never smaller than the default.
        self.receive_window.grow_to(window.min(frame::MAX_31_BIT));
        if let Some(increment) = self.receive_window.announce_all() {
            frame::write_window_update(out, 0, increment);
        }
    }

    /// Looks at the input for the next event.
    ///
    /// To be called with the same `input`, and `consumed` at 0 at first, until it answers `None`;
    /// then the first `consumed` bytes are to be dropped. A frame that has not arrived whole is
    /// left in the input, which must therefore be able to hold [`limits::MAX_FRAME_BYTES`] and a
    /// header. Answers and acknowledgements that need no decision are appended to `out`.
    pub fn poll_event(
        &mut self,
        input: &[u8],
        consumed: &mut usize,
        out: &mut Vec<u8>,
        now_ns: u64,
    ) -> Option<Event> {
        debug_assert!(now_ns >= self.now_ns, "time never goes back");
        self.now_ns = now_ns;
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let event = if self.data.is_some() {
                self.continue_data(input, consumed, out)
            } else if !self.resumed.is_empty() {
                self.continue_backlog(out)
            } else {
                match self.next_frame(input, consumed) {
                    Ok(Some(header)) => {
                        let start = *consumed + HEADER_BYTES;
                        *consumed = start + header.length as usize;
                        self.on_frame(header, input, start, consumed, out)
                    }
                    Ok(None) => {
                        self.grant_turns(out);
                        if self.resume_deferred() || self.resume_put_back() {
                            continue;
                        }
                        if !self.unpacks.may_step() {
                            return self.events.pop_front().or_else(|| self.next_writable());
                        }
                        self.unpack_some(out)
                    }
                    Err(error) => Err(error),
                }
            };
            match event {
                Ok(Some(event)) => return Some(event),
                Ok(None) => {}
                Err(error) => self.fail(error, out),
            }
        }
    }

    /// The header of the next frame, if the whole frame is in the input.
    #[inline]
    fn next_frame(
        &mut self,
        input: &[u8],
        consumed: &mut usize,
    ) -> Result<Option<FrameHeader>, ConnectionError> {
        match self.phase {
            Phase::Open | Phase::FirstSettings => {}
            Phase::Closed => {
                *consumed = input.len();
                return Ok(None);
            }
            Phase::Preface => {
                if !self.take_preface(input, consumed)? {
                    return Ok(None);
                }
            }
        }
        let rest = &input[*consumed..];
        let Some(bytes) = rest.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let header = FrameHeader::parse(bytes);
        if header.length as usize > limits::MAX_FRAME_BYTES {
            return Err(ConnectionError::frame_size(
                "a frame is longer than SETTINGS_MAX_FRAME_SIZE",
            ));
        }
        if rest.len() < HEADER_BYTES + header.length as usize {
            return Ok(None);
        }
        self.timers.received(self.now_ns);
        Ok(Some(header))
    }

    /// Takes the client's preface. A first byte that is wrong is as good as all of them.
    fn take_preface(
        &mut self,
        input: &[u8],
        consumed: &mut usize,
    ) -> Result<bool, ConnectionError> {
        let rest = &input[*consumed..];
        let seen = rest.len().min(PREFACE.len());
        if rest[..seen] != PREFACE[..seen] {
            return Err(ConnectionError::protocol(
                "the connection does not begin with the preface of HTTP/2",
            ));
        }
        if seen < PREFACE.len() {
            return Ok(false);
        }
        *consumed += PREFACE.len();
        self.phase = Phase::FirstSettings;
        self.timers.preface_arrived(self.now_ns);
        Ok(true)
    }

    /// The head of the last Request or Response event; for Finished, its trailers. Valid until the
    /// next `poll_event`.
    #[inline]
    pub fn head(&self) -> Head<'_> {
        match self.head_at {
            HeadAt::Fields => Head {
                info: &self.info,
                fields: &self.fields,
            },
            HeadAt::Memo(at) => {
                let entry = self.memo.entry(at);
                Head {
                    info: &entry.info,
                    fields: &entry.fields,
                }
            }
        }
    }

    /// What [`Connection::set_head_route`] noted for a head that was byte by byte the same as the
    /// last one.
    #[inline]
    pub fn head_route(&self) -> Option<u32> {
        match self.head_at {
            HeadAt::Fields => self.route,
            HeadAt::Memo(at) => self.memo.entry(at).route,
        }
    }

    /// Notes where the last head leads, so that the layer above need not find it again when the
    /// same block comes.
    pub fn set_head_route(&mut self, route: u32) {
        match self.head_at {
            HeadAt::Fields => self.route = Some(route),
            HeadAt::Memo(at) => self.memo.entry_mut(at).route = Some(route),
        }
    }

    /// The bytes of the last Message or Body event. `input` is the same slice that `poll_event` was
    /// given. Valid until the next `poll_event` and the stream's last call.
    #[inline]
    pub fn message<'a>(&'a self, input: &'a [u8]) -> &'a [u8] {
        match &self.message_at {
            MessageAt::Nowhere => &[],
            MessageAt::Input(range) => &input[range.clone()],
            MessageAt::Gathered(slot) => self.streams[*slot].inbound.deframer.gathered(),
            MessageAt::Unpacked => &self.unpacked,
        }
    }

    /// Takes the bytes of the last Message or Body event out of the connection, so that they can be
    /// read while the connection is used. To be given back.
    #[inline]
    pub fn take_message(&mut self) -> TakenMessage {
        match std::mem::replace(&mut self.message_at, MessageAt::Nowhere) {
            MessageAt::Nowhere => TakenMessage::Owned(Vec::new()),
            MessageAt::Input(range) => TakenMessage::Input(range),
            MessageAt::Gathered(slot) => {
                TakenMessage::owned(self.streams[slot].inbound.deframer.take_buffer())
            }
            MessageAt::Unpacked => TakenMessage::owned(std::mem::take(&mut self.unpacked)),
        }
    }

    /// Takes back what [`Connection::take_message`] gave: its buffer is used again.
    #[inline]
    pub fn give_back(&mut self, message: TakenMessage) {
        match message {
            TakenMessage::Input(_) => {}
            TakenMessage::Owned(buffer) => self.pool.give(buffer),
            // Without a copy, where nobody keeps any of it.
            TakenMessage::Shared(bytes) if bytes.is_unique() => self.pool.give(bytes.into()),
            TakenMessage::Shared(_) => {}
        }
    }

    /// Whether the last message came compressed.
    pub fn message_was_compressed(&self) -> bool {
        self.was_compressed
    }

    /// Returns what the last message became when it was decompressed on being found, in bytes; 0 if
    /// it was not.
    #[inline]
    pub fn unpacked_bytes(&self) -> usize {
        match self.message_at {
            MessageAt::Unpacked if self.was_compressed => self.unpacked.len(),
            _ => 0,
        }
    }

    /// Client: how the call of the last Finished event ended. Trailing metadata stand in
    /// [`Connection::head`].
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// Names the call of a stream in the words of the layer above.
    #[inline]
    pub fn set_token(&mut self, stream: StreamKey, token: u32) {
        if self.streams.contains(stream) {
            self.streams[stream.slot].token = token;
        }
    }

    /// What [`Connection::set_token`] was given; 0 if nothing, or if the stream is gone.
    #[inline]
    pub fn token(&self, stream: StreamKey) -> u32 {
        self.streams.get(stream).map_or(0, |stream| stream.token)
    }

    /// Set once the connection has ended: the output is to be written and the socket closed. The
    /// streams that it took with it come out of `poll_event` as Cancelled.
    pub fn close_reason(&self) -> Option<&CloseReason> {
        self.close_reason.as_ref()
    }

    /// Whether [`Connection::transmit`] could send something, if the output has room.
    #[inline]
    pub fn wants_transmit(&self) -> bool {
        !self.pending_acks.is_empty()
            || (!self.ready.is_empty() && self.send_window.available() > 0)
    }

    /// Whether `poll_event` has something to say without further input.
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty() || !self.resumed.is_empty() || self.has_capacity_event()
    }

    /// Streams that are open or whose work still runs.
    pub fn running(&self) -> usize {
        self.streams.len()
    }

    /// Returns the bytes of memory that the connection keeps, or has set aside, for its streams:
    /// unfinished messages, backlogs, what waits to be sent and is not shared with others, what is
    /// reserved for it, metadata of answers, and the buffers that it keeps for streams which bring
    /// much, and what the messages whose turn it is still lack. Shared bodies are charged where
    /// they are shared ([`SharedBytes`]).
    ///
    /// [`SharedBytes`]: super::SharedBytes
    pub fn buffered_bytes(&self) -> usize {
        self.gathered_bytes + self.unsent_bytes - self.capacity.shared_bytes
            + self.capacity.reserved_bytes
            + self.capacity.ready_bytes
            + self.capacity.kept_bytes
            + self.capacity.extra_bytes
            + self.pool.extra_bytes()
            + self.turns.active_bytes()
            + self.unpacks.bytes()
    }

    /// Bytes of memory that the connection holds, nearly: what the allocator adds is not counted.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Connection>()
            + self.streams.memory_bytes()
            + self.memo.memory_bytes()
            + self.ok_trailers.memory_bytes()
            + self.fields.memory_bytes()
            + self.decoder.memory_bytes()
            + self.encoder.memory_bytes()
            + self.pool.memory_bytes()
            + self.gathered_bytes
            + self.unsent_bytes
            + self.block.bytes.capacity()
            + self.unpacked.capacity()
            + self.events.capacity() * size_of::<Event>()
            + (self.ready.capacity() + self.resumed.capacity()) * size_of::<StreamKey>()
            + self.pending_acks.capacity() * size_of::<Option<[u8; 8]>>()
            + self.request_memo.memory_bytes()
            + self.turns.memory_bytes()
            + self.unpacks.memory_bytes()
            + self.late.memory_bytes()
            + self.capacity.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::{FieldLimits, Indexing};
    use crate::http2::RequestHead;
    use crate::http2::streams::{Kind, Stream};

    #[test]
    fn a_fresh_connection_and_a_stream_are_small() {
        let connection = Connection::new(&Config::server(), 0);
        assert!(
            connection.memory_bytes() <= 2 << 10,
            "{}",
            connection.memory_bytes()
        );
        assert!(size_of::<Stream>() <= 384, "{}", size_of::<Stream>());
    }

    /// Whatever part of a connection allocates, the sum grows by as much; and again when the part
    /// grows once more.
    #[test]
    fn what_the_parts_hold_is_counted_to_the_byte() {
        type Step = fn(&mut Connection, usize);
        let parts: [(&str, Step); 17] = [
            ("streams", |connection, round| {
                for id in (1..).step_by(2).skip(round * 100).take(100) {
                    connection.streams.insert(id, Kind::Grpc, 1, 1);
                }
                let slots = round as u32 * 50..;
                slots
                    .take(50)
                    .for_each(|slot| connection.streams.remove(slot));
            }),
            ("heads", |connection, round| {
                let mut fields = Fields::new();
                let (name, value) = ([b'n'; 100], [b'v'; 500]);
                let pushed = fields.push(&name, &value, &FieldLimits::default());
                pushed.expect("within the limits");
                let block = [round as u8; 200];
                connection
                    .memo
                    .learn(&block, 1, &mut fields, HeadInfo::EMPTY);
            }),
            ("trailers", |connection, round| {
                connection.ok_trailers.learn(&vec![7; 100 << round], 1);
            }),
            ("fields", |connection, _| {
                for _ in 0..10 {
                    let (fields, limits) = (&mut connection.fields, FieldLimits::default());
                    (fields.push(b"name", &[b'v'; 200], &limits)).expect("within the limits");
                }
            }),
            ("decoder", |connection, round| {
                let mut block = Vec::with_capacity(4_096);
                for value in 0..5_u8 {
                    let value = [b'0' + 5 * round as u8 + value; 150];
                    Encoder::new().field(b"x", &value, Indexing::Incremental, &mut block);
                }
                let (limits, mut fields) = (FieldLimits::default(), Fields::new());
                (connection.decoder.decode(&block, &limits, &mut fields)).expect("a valid block");
            }),
            ("encoder", |connection, round| {
                let mut block = Vec::with_capacity(4_096);
                for value in 0..5_u8 {
                    let value = [b'0' + 5 * round as u8 + value; 150];
                    (connection.encoder).field(b"x", &value, Indexing::Incremental, &mut block);
                }
            }),
            ("pool", |connection, round| {
                for _ in 0..4 {
                    connection.pool.give(Vec::with_capacity(1_000 << round));
                }
            }),
            ("block", |connection, round| {
                connection.block.bytes.reserve_exact(300 << round)
            }),
            ("decompressed", |connection, round| {
                connection.unpacked.reserve_exact(500 << round)
            }),
            ("events", |connection, round| {
                connection.events.reserve(70 << round)
            }),
            ("ready", |connection, round| {
                connection.ready.reserve(90 << round)
            }),
            ("resumed", |connection, round| {
                connection.resumed.reserve(110 << round)
            }),
            ("acknowledgements", |connection, round| {
                connection.pending_acks.reserve(130 << round)
            }),
            ("request heads", |connection, _| {
                for path in ["/a", "/b", "/long.er"] {
                    let head = RequestHead::call("localhost", path);
                    connection.request_memo.remember(&head, 1, &[7; 100]);
                }
            }),
            ("turns", |connection, round| {
                connection.turns.reserve(170 << round)
            }),
            ("packed messages", |connection, round| {
                connection.unpacks.reserve(20 << round)
            }),
            ("capacity", |connection, round| {
                connection.capacity.reserve(190 << round)
            }),
        ];
        let mut connection = Connection::new(&Config::server(), 0);
        assert_eq!(connection.memory_bytes(), size_of::<Connection>());
        for round in 0..2 {
            for (part, step) in parts {
                let before = connection.memory_bytes();
                let allocated =
                    allocation_counter::measure(|| step(&mut connection, round)).bytes_current;
                let counted = connection.memory_bytes() as i64 - before as i64;
                assert!(allocated > 0, "{part}, round {round}: nothing is measured");
                assert_eq!(counted, allocated, "{part}, round {round}");
            }
        }
        // Bodies count with their bytes, whatever room their buffers have beside.
        let before = connection.memory_bytes();
        (connection.gathered_bytes, connection.unsent_bytes) = (1_000, 3_000);
        assert_eq!(connection.memory_bytes(), before + 4_000);
        connection.late.insert(1);
        let late_bytes = connection.late.memory_bytes();
        assert_eq!(connection.memory_bytes(), before + 4_000 + late_bytes);
    }
}
