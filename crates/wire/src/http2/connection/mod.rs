//! The connection as a value: what its parts are, and the calls that belong to no single concern.
//!
//! The parts keep their fields to themselves. Here they are put together: each file of this folder
//! is a concern that takes more than one part, such as a DATA frame, which goes through the windows
//! to a stream and becomes an event.

mod client;
mod consumption;
mod data;
mod deadlines;
mod decompression;
mod ending;
mod frames;
mod headers;
mod message_turns;
mod send;
mod send_capacity;
mod send_plain;
mod server;
mod transmit;

use std::collections::VecDeque;

use super::capacity::Capacity;
use super::config::{Config, Role};
use super::error::{CloseReason, ConnectionError};
use super::event::Event;
use super::frame::{FrameHeader, HEADER_BYTES, PREFACE};
use super::guard::Guard;
use super::head_reader::HeadReader;
use super::head_writer::HeadWriter;
use super::headers::Head;
use super::last_message::{LastMessage, TakenMessage};
use super::late_streams::LateStreams;
use super::lifecycle::Lifecycle;
use super::pool::BufferPool;
use super::receive_windows::ReceiveWindows;
use super::room::WindowRoom;
use super::send_queue::SendQueue;
use super::settings::{self, PeerSettings};
use super::stream::Stream;
use super::stream_key::StreamKey;
use super::streams::Streams;
use super::timers::ConnectionTimers;
use super::turns::ConnectionTurns;
use super::unfinished::UnfinishedBytes;
use super::unpack::Unpacks;
use crate::grpc::Status;
use crate::limits;
use data::DataFrame;

pub use data::PUSHBACK_TRAILER;
pub use send::{ChargeShared, SentPart};

/// What became of a frame: an event, nothing, or the end of the connection.
type Handled = Result<Option<Event>, ConnectionError>;

/// One HTTP/2 connection, in either role.
///
/// Bytes and the time go in, [`Event`]s and bytes come out. docs/internals/http2.md has the order
/// of calls.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    now_ns: u64,
    life: Lifecycle,
    guard: Guard,
    timers: ConnectionTimers,
    pool: BufferPool,
    streams: Streams,
    /// Server: streams that we ended before the peer did.
    late: LateStreams,
    /// What is to be reported next.
    events: VecDeque<Event>,
    peer: PeerSettings,

    // Receiving.
    heads: HeadReader,
    windows: ReceiveWindows,
    /// The DATA frame that lies in the input and has not been taken to its end.
    data: Option<DataFrame>,
    message: LastMessage,
    unfinished: UnfinishedBytes,
    /// Which of the large messages may come.
    turns: ConnectionTurns,
    /// Compressed messages that take more than one step.
    unpacks: Unpacks,
    /// Streams that have been resumed and may have a backlog.
    resumed: VecDeque<StreamKey>,
    /// Client: how the last finished call ended.
    status: Status,

    // Sending.
    writer: HeadWriter,
    queue: SendQueue,
    /// What may be produced for the peer, and which streams wait to produce it.
    capacity: Capacity,
    /// What is promised of the send window, and which streams wait for some.
    room: WindowRoom,
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
        Connection {
            config: *config,
            now_ns,
            life: Lifecycle::new(config.role),
            guard: Guard::new(config, now_ns),
            timers: ConnectionTimers::new(config, now_ns),
            pool: BufferPool::new(usual_pool_bytes(config.role)),
            streams: Streams::default(),
            late: LateStreams::default(),
            events: VecDeque::new(),
            peer: PeerSettings::default(),
            heads: HeadReader::new(config),
            windows: ReceiveWindows::new(config),
            data: None,
            message: LastMessage::new(),
            unfinished: UnfinishedBytes::new(config.role == Role::Server),
            turns: ConnectionTurns::new(config.max_gathered_bytes / limits::TURNS_SHARE),
            unpacks: Unpacks::default(),
            resumed: VecDeque::new(),
            status: Status::OK,
            writer: HeadWriter::new(config),
            queue: SendQueue::new(config),
            capacity: Capacity::new(config),
            room: WindowRoom::new(config),
        }
    }

    /// Appends what is sent first: a client's preface, SETTINGS, and the connection's window. To be
    /// called once.
    pub fn start(&mut self, out: &mut Vec<u8>) {
        if self.life.is_client() {
            out.extend_from_slice(PREFACE);
        }
        settings::write_ours(&self.config, out);
        self.windows.start(&self.config, out);
    }

    /// Looks at the input for the next event.
    ///
    /// To be called with the same `input`, and `consumed` at 0 at first, until it returns `None`;
    /// then the first `consumed` bytes are to be dropped. A frame that has not arrived whole is
    /// left in the input, which must therefore be able to hold [`limits::MAX_FRAME_BYTES`] and a
    /// header. Responses and acknowledgements that need no decision are appended to `out`.
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
                        if self.resume_one() {
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
        if self.life.is_closed() {
            *consumed = input.len();
            return Ok(None);
        }
        if self.life.awaits_preface() && !self.take_preface(input, consumed)? {
            return Ok(None);
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

    fn take_preface(
        &mut self,
        input: &[u8],
        consumed: &mut usize,
    ) -> Result<bool, ConnectionError> {
        let is_whole = self.life.take_preface(&input[*consumed..])?;
        if is_whole {
            *consumed += PREFACE.len();
            self.timers.preface_arrived(self.now_ns);
        }
        Ok(is_whole)
    }

    /// The head of the last Request or Response event; for Finished, its trailers. Valid until the
    /// next `poll_event`.
    #[inline]
    pub fn head(&self) -> Head<'_> {
        self.heads.head()
    }

    /// What [`Connection::set_head_route`] noted for a head that was byte by byte the same as the
    /// last one.
    #[inline]
    pub fn head_route(&self) -> Option<u64> {
        self.heads.route()
    }

    /// Notes where the last head leads, so that the layer above need not find it again when the
    /// same block comes.
    pub fn set_head_route(&mut self, route: u64) {
        self.heads.set_route(route);
    }

    /// The bytes of the last Message or Body event. `input` is the same slice that `poll_event` was
    /// given. Valid until the next `poll_event` and the stream's last call.
    #[inline]
    pub fn message<'a>(&'a self, input: &'a [u8]) -> &'a [u8] {
        self.message.bytes(input, &self.streams)
    }

    /// Takes the bytes of the last Message or Body event out of the connection, so that they can be
    /// read while the connection is used. To be given back.
    #[inline]
    pub fn take_message(&mut self) -> TakenMessage {
        self.message.take(&mut self.streams)
    }

    /// Takes back what [`Connection::take_message`] gave: its buffer is used again.
    #[inline]
    pub fn give_back(&mut self, message: TakenMessage) {
        message.give_back(&mut self.pool);
    }

    /// Whether the last message came compressed.
    pub fn message_was_compressed(&self) -> bool {
        self.message.was_compressed()
    }

    /// Returns what it took to decompress the last message, in bytes: what it became, and more if
    /// it consists of small blocks ([`limits::DEFLATE_BLOCK_WORK_BYTES`]). 0 if it was not
    /// compressed.
    #[inline]
    pub fn unpacked_bytes(&self) -> usize {
        self.message.unpack_work_bytes()
    }

    /// Client: how the call of the last Finished event ended; for one that was cancelled for a
    /// violation, the text is the rule. Trailing metadata stand in [`Connection::head`].
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// Names the call of a stream in the words of the layer above.
    #[inline]
    pub fn set_token(&mut self, stream: StreamKey, token: u32) {
        if self.streams.contains(stream) {
            self.streams[stream.slot].set_token(token);
        }
    }

    /// What [`Connection::set_token`] was given; 0 if nothing, or if the stream is gone.
    #[inline]
    pub fn token(&self, stream: StreamKey) -> u32 {
        self.streams.get(stream).map_or(0, Stream::token)
    }

    /// Set once the connection has ended: the output is to be written and the socket closed. The
    /// streams that it took with it come out of `poll_event` as Cancelled.
    pub fn close_reason(&self) -> Option<&CloseReason> {
        self.life.close_reason()
    }

    /// Whether [`Connection::transmit`] could send something, if the output has room.
    #[inline]
    pub fn wants_transmit(&self) -> bool {
        self.queue.wants_transmit()
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
        self.incoming_bytes() + self.capacity.charged_bytes()
    }

    /// Returns the bytes that the connection holds for its peer, or waits for from it: as
    /// [`buffered_bytes`](Self::buffered_bytes), but with shared bodies in full, and without what
    /// is only set aside.
    pub fn held_bytes(&self) -> usize {
        self.incoming_bytes() + self.capacity.held_bytes()
    }

    /// Returns the bytes that are kept, or expected, of what the peer sends.
    fn incoming_bytes(&self) -> usize {
        self.unfinished.bytes()
            + self.pool.extra_bytes()
            + self.turns.active_bytes()
            + self.unpacks.bytes()
    }

    /// Bytes of memory that the connection holds, nearly: what the allocator adds is not counted.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Connection>()
            + self.streams.memory_bytes()
            + self.heads.memory_bytes()
            + self.writer.memory_bytes()
            + self.pool.memory_bytes()
            + self.unfinished.bytes()
            + self.capacity.unsent_bytes()
            + self.capacity.out_bytes()
            + self.message.memory_bytes()
            + self.events.capacity() * size_of::<Event>()
            + self.resumed.capacity() * size_of::<StreamKey>()
            + self.queue.memory_bytes()
            + self.turns.memory_bytes()
            + self.unpacks.memory_bytes()
            + self.late.memory_bytes()
            + self.capacity.memory_bytes()
            + self.room.memory_bytes()
    }

    /// Lets the backlog of a stream be taken; false if it is about to be.
    fn resume(&mut self, stream: StreamKey) -> bool {
        let is_new = !self.resumed.contains(&stream);
        if is_new {
            self.resumed.push_back(stream);
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::{Encoder, Indexing};
    use crate::http2::RequestHead;
    use crate::http2::headers::BodyKind;

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

    type Step = fn(&mut Connection, usize);

    /// What lets a part of a connection grow, and grow once more.
    const STEPS: [(&str, Step); 11] = [
        ("streams", |connection, round| {
            for id in (1..).step_by(2).skip(round * 100).take(100) {
                connection.streams.insert(id, BodyKind::Grpc, 1, 1);
            }
            let slots = round as u32 * 50..;
            slots
                .take(50)
                .for_each(|slot| connection.streams.remove(slot));
        }),
        ("heads that come in", |connection, round| {
            let mut block = Vec::with_capacity(4_096);
            for value in 0..5_u8 {
                let value = [b'0' + 5 * round as u8 + value; 150];
                Encoder::new().field(b"x", &value, Indexing::Incremental, &mut block);
            }
            connection.heads.decode(&block).expect("a valid block");
        }),
        ("heads that go out", |connection, round| {
            let path = format!("/{}", "long".repeat(50 << round));
            for id in [1, 3] {
                let head = RequestHead::call("localhost", &path);
                connection.writer.write_request(id, &head, &mut Vec::new());
            }
        }),
        ("pool", |connection, round| {
            for _ in 0..4 {
                connection.pool.give(Vec::with_capacity(1_000 << round));
            }
        }),
        ("last message", |connection, round| {
            connection.message.reserve(500 << round)
        }),
        ("events", |connection, round| {
            connection.events.reserve(70 << round)
        }),
        ("resumed", |connection, round| {
            connection.resumed.reserve(110 << round)
        }),
        ("queue", |connection, round| {
            connection.queue.reserve(90 << round, 130 << round)
        }),
        ("turns", |connection, round| {
            connection.turns.reserve(170 << round)
        }),
        ("packed messages", |connection, round| {
            connection.unpacks.reserve(20 << round)
        }),
        ("capacity", |connection, round| {
            connection.capacity.reserve_queues(190 << round);
            connection.room.reserve_queue(195 << round);
        }),
    ];

    /// Whatever part of a connection allocates, the sum grows by as much; and again when the part
    /// grows once more.
    #[test]
    fn what_the_parts_hold_is_counted_to_the_byte() {
        let mut connection = Connection::new(&Config::server(), 0);
        assert_eq!(connection.memory_bytes(), size_of::<Connection>());
        for round in 0..2 {
            for (part, step) in STEPS {
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
        connection.unfinished.add(1_000, &mut connection.timers, 0);
        connection.capacity.add_unsent(3_000);
        assert_eq!(connection.memory_bytes(), before + 4_000);
        connection.late.insert(1);
        let late_bytes = connection.late.memory_bytes();
        assert_eq!(connection.memory_bytes(), before + 4_000 + late_bytes);
    }
}
