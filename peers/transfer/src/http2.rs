//! The little of HTTP/2 (RFC 9113) that it takes to send a file: one request on one connection, a
//! PUT or a call of gRPC. Each write of the client is a DATA frame, or several if it is longer than
//! a frame may be. Frames are gathered before they go to the socket, so that small writes cost the
//! server more than the client.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// Bytes of a frame header (RFC 9113 section 4.1).
const FRAME_HEADER_BYTES: usize = 9;
/// Frame types (RFC 9113 section 6).
const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const RST_STREAM: u8 = 0x3;
const SETTINGS: u8 = 0x4;
const PING: u8 = 0x6;
const GOAWAY: u8 = 0x7;
const WINDOW_UPDATE: u8 = 0x8;
/// Flags (RFC 9113 section 6).
const ACK: u8 = 0x1;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
/// Settings (RFC 9113 section 6.5.2).
const INITIAL_WINDOW_SIZE: u16 = 0x4;

/// What stream and connection may send before the peer says more (RFC 9113 section 6.9.2).
const WINDOW_BYTES: i64 = 65_535;
/// The longest frame that every peer takes (RFC 9113 section 4.2).
const PAYLOAD_BYTES: usize = 16_384;
/// Bytes that go to the socket at a time.
const GATHERED_BYTES: usize = 128 * 1024;
/// Bytes read from the file at a time.
const READ_BYTES: usize = 1 << 20;
const STREAM: u32 = 1;

/// What a file is sent as.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The body of a PUT.
    Put,
    /// Messages of gRPC whose field 1 is what was written: a chunk of gupload.
    Chunks,
}

/// The trailers of a call that went well, in the form without compression that is the shortest.
const STATUS_OK: &[u8] = b"grpc-status\x010";

/// What the peer has said so far.
#[derive(Default)]
struct Said {
    connection_window: i64,
    stream_window: i64,
    initial_window: i64,
    /// The answer is there.
    is_answered: bool,
    /// Why there will be none.
    failure: Option<String>,
}

#[derive(Default)]
struct Shared {
    said: Mutex<Said>,
    news: Condvar,
}

/// Sends a file, and waits for the answer.
pub fn put(
    address: &str,
    path: &str,
    file: &Path,
    write_bytes: usize,
    form: Form,
) -> io::Result<()> {
    let mut file = File::open(file)?;
    let socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    let shared = Arc::new(Shared {
        said: Mutex::new(Said {
            connection_window: WINDOW_BYTES,
            stream_window: WINDOW_BYTES,
            initial_window: WINDOW_BYTES,
            ..Said::default()
        }),
        news: Condvar::new(),
    });
    let mut sender = Sender {
        socket: Arc::new(Mutex::new(socket.try_clone()?)),
        out: Vec::with_capacity(2 * GATHERED_BYTES),
        allowed: 0,
        form,
        message: Vec::new(),
        shared: Arc::clone(&shared),
    };
    sender.greet(address, path);
    sender.flush()?;
    let to_answer = Arc::clone(&sender.socket);
    let listener = thread::spawn(move || listen(socket, &to_answer, &shared, form));
    sender.body(&mut file, write_bytes)?;
    sender.wait_for_answer()?;
    drop(listener);
    Ok(())
}

struct Sender {
    socket: Arc<Mutex<TcpStream>>,
    out: Vec<u8>,
    /// Bytes that the windows allow, taken out of them.
    allowed: usize,
    form: Form,
    /// The last message of gRPC.
    message: Vec<u8>,
    shared: Arc<Shared>,
}

impl Sender {
    fn greet(&mut self, address: &str, path: &str) {
        self.out
            .extend_from_slice(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        write_frame_header(&mut self.out, 0, SETTINGS, 0, 0);
        let mut block = Vec::new();
        // RFC 7541: `:method` with a value of its own (name 2, not remembered), `:scheme: http`
        // (6), `:path` (4), `:authority` (1).
        let method: &[u8] = match self.form {
            Form::Put => b"PUT",
            Form::Chunks => b"POST",
        };
        write_field(&mut block, 2, method);
        block.push(0x80 | 6);
        write_field(&mut block, 4, path.as_bytes());
        write_field(&mut block, 1, address.as_bytes());
        if self.form == Form::Chunks {
            // `content-type` is name 31, which takes a second byte; `te` has no number.
            block.extend_from_slice(&[0x0f, 31 - 15, 16]);
            block.extend_from_slice(b"application/grpc");
            block.extend_from_slice(b"\x00\x02te\x08trailers");
        }
        write_frame_header(&mut self.out, block.len(), HEADERS, END_HEADERS, STREAM);
        self.out.extend_from_slice(&block);
    }

    fn body(&mut self, file: &mut File, write_bytes: usize) -> io::Result<()> {
        // Whole writes, so that none is cut where the file is read on.
        let mut buffer = vec![0; READ_BYTES.next_multiple_of(write_bytes)];
        loop {
            let mut filled = 0;
            while filled < buffer.len() {
                match file.read(&mut buffer[filled..])? {
                    0 => break,
                    count => filled += count,
                }
            }
            for write in buffer[..filled].chunks(write_bytes) {
                match self.form {
                    Form::Put => self.write(write)?,
                    Form::Chunks => {
                        let mut message = std::mem::take(&mut self.message);
                        encode_chunk(&mut message, write);
                        self.write(&message)?;
                        self.message = message;
                    }
                }
            }
            if filled < buffer.len() {
                write_frame_header(&mut self.out, 0, DATA, END_STREAM, STREAM);
                return self.flush();
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        bytes
            .chunks(PAYLOAD_BYTES)
            .try_for_each(|payload| self.data(payload))
    }

    fn data(&mut self, payload: &[u8]) -> io::Result<()> {
        if self.allowed < payload.len() {
            self.wait_for_window(payload.len())?;
        }
        self.allowed -= payload.len();
        write_frame_header(&mut self.out, payload.len(), DATA, 0, STREAM);
        self.out.extend_from_slice(payload);
        match self.out.len() < GATHERED_BYTES {
            true => Ok(()),
            false => self.flush(),
        }
    }

    /// Takes what the windows have, at least so many bytes.
    fn wait_for_window(&mut self, bytes: usize) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let mut said = shared.said.lock().expect("nobody panics with it");
        loop {
            if let Some(failure) = said.failure.take() {
                return Err(io::Error::other(failure));
            }
            let most = said.connection_window.min(said.stream_window);
            if most + self.allowed as i64 >= bytes as i64 {
                said.connection_window -= most;
                said.stream_window -= most;
                self.allowed = (self.allowed as i64 + most) as usize;
                return Ok(());
            }
            if self.out.is_empty() {
                said = shared.news.wait(said).expect("nobody panics with it");
            } else {
                drop(said);
                self.flush()?;
                said = shared.said.lock().expect("nobody panics with it");
            }
        }
    }

    fn wait_for_answer(&self) -> io::Result<()> {
        let mut said = self.shared.said.lock().expect("nobody panics with it");
        while !said.is_answered {
            if let Some(failure) = said.failure.take() {
                return Err(io::Error::other(failure));
            }
            said = self.shared.news.wait(said).expect("nobody panics with it");
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut socket = self.socket.lock().expect("nobody panics with it");
        socket.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }
}

/// Reads what the peer says until the answer has come.
fn listen(socket: TcpStream, answers: &Mutex<TcpStream>, shared: &Shared, form: Form) {
    let mut input = io::BufReader::with_capacity(64 * 1024, socket);
    loop {
        let heard = hear(&mut input, answers, shared, form);
        let mut said = shared.said.lock().expect("nobody panics with it");
        if let Err(error) = heard {
            said.failure = Some(error.to_string());
        }
        let is_over = said.is_answered || said.failure.is_some();
        drop(said);
        shared.news.notify_all();
        if is_over {
            return;
        }
    }
}

/// Takes one frame.
fn hear(
    input: &mut impl Read,
    answers: &Mutex<TcpStream>,
    shared: &Shared,
    form: Form,
) -> io::Result<()> {
    let mut head = [0; FRAME_HEADER_BYTES];
    input.read_exact(&mut head)?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    let (kind, flags) = (head[3], head[4]);
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff;
    let mut payload = vec![0; length];
    input.read_exact(&mut payload)?;
    let mut said = shared.said.lock().expect("nobody panics with it");
    let word = |at: usize| {
        let bytes = payload.get(at..at + 4).ok_or(io::ErrorKind::InvalidData)?;
        Ok::<_, io::Error>(u32::from_be_bytes(bytes.try_into().expect("four bytes")))
    };
    match kind {
        WINDOW_UPDATE if stream == 0 => said.connection_window += i64::from(word(0)?),
        WINDOW_UPDATE => said.stream_window += i64::from(word(0)?),
        SETTINGS if flags & ACK == 0 => {
            for at in (0..length).step_by(6) {
                let value = i64::from(word(at + 2)?);
                if payload[at..at + 2] == INITIAL_WINDOW_SIZE.to_be_bytes() {
                    said.stream_window += value - said.initial_window;
                    said.initial_window = value;
                }
            }
            drop(said);
            reply(answers, SETTINGS, &[])?;
        }
        PING if flags & ACK == 0 => {
            drop(said);
            reply(answers, PING, &payload)?;
        }
        HEADERS if is_refusal(&payload, flags, form) => {
            return Err(io::Error::other(format!(
                "the server refused it: {:?}",
                String::from_utf8_lossy(&payload)
            )));
        }
        HEADERS | DATA if flags & END_STREAM != 0 => said.is_answered = true,
        RST_STREAM | GOAWAY => {
            return Err(io::Error::other(format!(
                "the server ended it: {payload:?}"
            )));
        }
        _ => {}
    }
    Ok(())
}

/// Whether a header block says that it went wrong: a PUT whose `:status` is neither 200 nor 204
/// (RFC 7541, static table 8 and 9) nor another that begins with a 2 (section 6.2.2, name 8; as
/// text, or in Huffman's code), or trailers of gRPC without the status OK.
fn is_refusal(block: &[u8], flags: u8, form: Form) -> bool {
    match form {
        Form::Put => !matches!(
            block,
            [0x88 | 0x89, ..] | [0x08, 3, b'2', ..] | [0x08, 0x82, 0x10..=0x17, ..]
        ),
        Form::Chunks if flags & END_STREAM == 0 => false,
        Form::Chunks => !block.windows(STATUS_OK.len()).any(|part| part == STATUS_OK),
    }
}

/// A message of gRPC: not compressed, its length, field 1 with these bytes.
fn encode_chunk(message: &mut Vec<u8>, content: &[u8]) {
    let mut head = vec![0x0a];
    let mut rest = content.len();
    while rest >= 0x80 {
        head.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    head.push(rest as u8);
    message.clear();
    message.push(0);
    message.extend_from_slice(&((head.len() + content.len()) as u32).to_be_bytes());
    message.extend_from_slice(&head);
    message.extend_from_slice(content);
}

fn reply(answers: &Mutex<TcpStream>, kind: u8, payload: &[u8]) -> io::Result<()> {
    let mut frame = Vec::new();
    write_frame_header(&mut frame, payload.len(), kind, ACK, 0);
    frame.extend_from_slice(payload);
    let mut socket = answers.lock().expect("nobody panics with it");
    socket.write_all(&frame)
}

fn write_frame_header(out: &mut Vec<u8>, length: usize, kind: u8, flags: u8, stream: u32) {
    let length = (length as u32).to_be_bytes();
    out.extend_from_slice(&length[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
}

/// A field that is not remembered, its name from the static table (RFC 7541 section 6.2.2), its
/// value not compressed.
fn write_field(block: &mut Vec<u8>, name: u8, value: &[u8]) {
    assert!(value.len() < 127, "one byte says how long a value is");
    block.extend_from_slice(&[name, value.len() as u8]);
    block.extend_from_slice(value);
}
