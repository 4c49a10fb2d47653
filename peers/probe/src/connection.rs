//! One HTTP/2 connection that sends unary calls and takes their answers.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use crate::frames::*;
use crate::head::{HeadWriter, Variation};
use crate::workload::Workload;

/// Input that is taken with one read: room for the answers of all calls in flight if they are
/// small, between two bounds. The smaller has room for any one frame, the larger is what a socket's
/// buffer holds.
const INPUT_BYTES_PER_CALL: usize = 512;
const INPUT_BYTES_MIN: usize = 32 * 1024;
const INPUT_BYTES_MAX: usize = 256 * 1024;

/// The connection's receive window is topped up when this much has come: a rare event, well before
/// it closes.
const CREDIT_AFTER_BYTES: u32 = 1 << 28;

/// Room for calls that are slower than others, as a multiple of those in flight; see
/// `Connection::send_calls`.
const CALL_SLOTS_PER_CALL: usize = 16;

/// What became of one call.
pub struct Done {
    /// When it was sent.
    pub sent_ns: u64,
    /// Bytes of its answer's message, `None` if it failed.
    pub answer_bytes: Option<usize>,
}

/// A call in flight.
#[derive(Clone, Copy, Default)]
struct Call {
    /// 0 = the slot is free.
    stream: u32,
    sent_ns: u64,
    /// Bytes of DATA that have come, with the five of gRPC's own head.
    data_bytes: usize,
    accepted: bool,
}

/// Why the run cannot go on.
pub type Failure = String;

/// A connection with the calls it has in flight.
pub struct Connection {
    socket: TcpStream,
    head: HeadWriter,
    /// What is sent and not yet written.
    out: Vec<u8>,
    written: usize,
    input: Box<[u8]>,
    filled: usize,
    next_stream: u32,
    calls: Vec<Call>,
    /// Calls sent and not ended.
    pub in_flight: usize,
    message: Vec<u8>,
    message_ready: bool,
    send_window_bytes: i64,
    stream_window_bytes: i64,
    streams_max: usize,
    uncredited_bytes: u32,
    /// Whether the peer's SETTINGS have come.
    pub settled: bool,
    /// Whether the socket was full when it was last written to.
    pub blocked: bool,
}

impl Connection {
    /// Connects and greets.
    pub fn open(
        address: &str,
        path: &str,
        variation: Variation,
        in_flight: usize,
        seed: u64,
    ) -> Result<Connection, Failure> {
        let explain = |error: std::io::Error| format!("connecting to {address}: {error}");
        let socket = TcpStream::connect(address).map_err(explain)?;
        socket.set_nodelay(true).map_err(explain)?;
        socket.set_nonblocking(true).map_err(explain)?;
        let mut out = Vec::new();
        write_greeting(&mut out);
        Ok(Connection {
            socket,
            head: HeadWriter::new(path, address, variation, seed),
            out,
            written: 0,
            input: vec![
                0;
                (in_flight * INPUT_BYTES_PER_CALL).clamp(INPUT_BYTES_MIN, INPUT_BYTES_MAX)
            ]
            .into_boxed_slice(),
            filled: 0,
            next_stream: 1,
            calls: vec![Call::default(); (in_flight * CALL_SLOTS_PER_CALL).next_power_of_two()],
            in_flight: 0,
            message: Vec::new(),
            message_ready: false,
            send_window_bytes: WINDOW_BYTES_DEFAULT,
            stream_window_bytes: WINDOW_BYTES_DEFAULT,
            streams_max: usize::MAX,
            uncredited_bytes: 0,
            settled: false,
            blocked: false,
        })
    }

    /// The socket, for waiting on it.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Streams that the peer allows at once.
    pub fn streams_max(&self) -> usize {
        self.streams_max
    }

    fn slot(&self, stream: u32) -> usize {
        (stream >> 1) as usize & (self.calls.len() - 1)
    }

    /// Sends calls until `in_flight` are on their way, or the peer's window is used up.
    pub fn send_calls(
        &mut self,
        in_flight: usize,
        workload: &mut Workload,
        now_ns: u64,
    ) -> Result<(), Failure> {
        while self.in_flight < in_flight {
            // The slot of the next stream is taken if one call has been overtaken by very many:
            // wait for it.
            let slot = self.slot(self.next_stream);
            if self.calls[slot].stream != 0 {
                break;
            }
            if !self.message_ready {
                self.prepare_message(workload)?;
            }
            if self.message.len() as i64 > self.send_window_bytes {
                break;
            }
            self.calls[slot] = Call {
                stream: self.next_stream,
                sent_ns: now_ns,
                ..Call::default()
            };
            self.write_call();
            self.in_flight += 1;
            self.next_stream += 2;
            if self.next_stream > 0x7fff_ffff {
                return Err(
                    "a connection has used up its stream numbers: run for less long".into(),
                );
            }
        }
        Ok(())
    }

    /// Encodes the next message with gRPC's head of five bytes.
    fn prepare_message(&mut self, workload: &mut Workload) -> Result<(), Failure> {
        self.message.clear();
        self.message.extend_from_slice(&[0; 5]);
        workload.write_message(&mut self.message);
        let length = (self.message.len() - 5) as u32;
        self.message[1..5].copy_from_slice(&length.to_be_bytes());
        if self.message.len() as i64 > self.stream_window_bytes {
            return Err(format!(
                "a request of {length} bytes does not fit the peer's stream window: send fewer \
                 records"
            ));
        }
        self.message_ready = true;
        Ok(())
    }

    fn write_call(&mut self) {
        let stream = self.next_stream;
        let head_at = self.out.len();
        self.out.extend_from_slice(&[0; FRAME_HEADER_BYTES]);
        self.head.write(&mut self.out);
        let length = self.out.len() - head_at - FRAME_HEADER_BYTES;
        let header = FrameHeader {
            length,
            kind: frame_type::HEADERS,
            flags: flag::END_HEADERS,
            stream,
        };
        self.out[head_at..head_at + FRAME_HEADER_BYTES].copy_from_slice(&header.bytes());

        let mut pieces = self.message.chunks(FRAME_PAYLOAD_BYTES_MAX).peekable();
        while let Some(piece) = pieces.next() {
            let flags = if pieces.peek().is_none() {
                flag::END_STREAM
            } else {
                0
            };
            FrameHeader {
                length: piece.len(),
                kind: frame_type::DATA,
                flags,
                stream,
            }
            .write(&mut self.out);
            self.out.extend_from_slice(piece);
        }
        self.send_window_bytes -= self.message.len() as i64;
        self.message_ready = false;
    }

    /// Writes what the socket takes. True: something is left.
    pub fn flush(&mut self) -> Result<bool, Failure> {
        while self.written < self.out.len() {
            match self.socket.write(&self.out[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(format!("writing: {error}")),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(false)
    }

    /// Reads once and handles all whole frames; each call that ended is told to `done`.
    pub fn receive(
        &mut self,
        workload: &Workload,
        done: &mut impl FnMut(Done),
    ) -> Result<(), Failure> {
        match self.socket.read(&mut self.input[self.filled..]) {
            Ok(0) => return Err("the server closed the connection".into()),
            Ok(count) => self.filled += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(format!("reading: {error}")),
        }
        let input = std::mem::take(&mut self.input);
        let result = self.take_frames(&input[..self.filled], workload, done);
        self.input = input;
        let consumed = result?;
        self.input.copy_within(consumed..self.filled, 0);
        self.filled -= consumed;
        Ok(())
    }

    fn take_frames(
        &mut self,
        input: &[u8],
        workload: &Workload,
        done: &mut impl FnMut(Done),
    ) -> Result<usize, Failure> {
        let mut at = 0;
        while input.len() - at >= FRAME_HEADER_BYTES {
            let header = FrameHeader::read(&input[at..]);
            if header.length > FRAME_PAYLOAD_BYTES_MAX {
                return Err(format!(
                    "the server sent a frame of {} bytes",
                    header.length
                ));
            }
            let end = at + FRAME_HEADER_BYTES + header.length;
            if end > input.len() {
                break;
            }
            self.take_frame(header, &input[at + FRAME_HEADER_BYTES..end], workload, done)?;
            at = end;
        }
        Ok(at)
    }

    fn take_frame(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        workload: &Workload,
        done: &mut impl FnMut(Done),
    ) -> Result<(), Failure> {
        match header.kind {
            frame_type::DATA => {
                if header.flags & flag::PADDED != 0 {
                    return Err(
                        "the server pads its DATA, which this generator does not undo".into(),
                    );
                }
                self.take_data(header.stream, payload, workload);
                self.credit(header.length as u32);
                if header.flags & flag::END_STREAM != 0 {
                    // gRPC ends with trailers: an end here is a failed call.
                    self.end_call(header.stream, false, done)?;
                }
            }
            frame_type::HEADERS if header.flags & flag::END_STREAM != 0 => {
                self.end_call(header.stream, true, done)?
            }
            frame_type::HEADERS | frame_type::CONTINUATION => {}
            frame_type::RST_STREAM => self.end_call(header.stream, false, done)?,
            frame_type::SETTINGS if header.flags & flag::ACK == 0 => self.take_settings(payload),
            frame_type::PING if header.flags & flag::ACK == 0 => {
                FrameHeader {
                    length: payload.len(),
                    kind: frame_type::PING,
                    flags: flag::ACK,
                    stream: 0,
                }
                .write(&mut self.out);
                self.out.extend_from_slice(payload);
            }
            frame_type::GOAWAY => {
                return Err(format!(
                    "the server sent GOAWAY: {}",
                    String::from_utf8_lossy(&payload[8.min(payload.len())..])
                ));
            }
            frame_type::WINDOW_UPDATE if header.stream == 0 && payload.len() == 4 => {
                let increment =
                    u32::from_be_bytes([payload[0], payload[1], payload[2], payload[3]]);
                self.send_window_bytes += i64::from(increment & 0x7fff_ffff);
            }
            _ => {}
        }
        Ok(())
    }

    fn take_data(&mut self, stream: u32, payload: &[u8], workload: &Workload) {
        let slot = self.slot(stream);
        let call = &mut self.calls[slot];
        if call.stream != stream {
            return;
        }
        // Messages are small: the first frame has all of an answer, or (a large batch) all that is
        // looked at.
        if call.data_bytes == 0 && payload.len() >= 5 {
            call.accepted = workload.accepts(&payload[5..]);
        }
        call.data_bytes += payload.len();
    }

    fn end_call(
        &mut self,
        stream: u32,
        with_trailers: bool,
        done: &mut impl FnMut(Done),
    ) -> Result<(), Failure> {
        let slot = self.slot(stream);
        let call = std::mem::take(&mut self.calls[slot]);
        if call.stream != stream {
            return Err(format!(
                "the server ended stream {stream}, which is not in flight"
            ));
        }
        self.in_flight -= 1;
        // A unary call that fails has trailers but no message, so the trailers need not be decoded.
        let succeeded = with_trailers && call.accepted && call.data_bytes >= 5;
        done(Done {
            sent_ns: call.sent_ns,
            answer_bytes: succeeded.then(|| call.data_bytes - 5),
        });
        Ok(())
    }

    fn take_settings(&mut self, payload: &[u8]) {
        for entry in payload.chunks_exact(6) {
            let value = u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]]);
            match u16::from_be_bytes([entry[0], entry[1]]) {
                setting::MAX_CONCURRENT_STREAMS => self.streams_max = value as usize,
                setting::INITIAL_WINDOW_SIZE => self.stream_window_bytes = i64::from(value),
                _ => {}
            }
        }
        FrameHeader {
            length: 0,
            kind: frame_type::SETTINGS,
            flags: flag::ACK,
            stream: 0,
        }
        .write(&mut self.out);
        self.settled = true;
    }

    fn credit(&mut self, bytes: u32) {
        self.uncredited_bytes += bytes;
        if self.uncredited_bytes >= CREDIT_AFTER_BYTES {
            write_window_update(&mut self.out, self.uncredited_bytes);
            self.uncredited_bytes = 0;
        }
    }
}
