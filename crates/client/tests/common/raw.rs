//! A server frame by frame, which does what no honest server does.

#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use client::{Address, Channel, ChannelOptions};
use testkit::frames;
use wire::http2::frame::{self, FrameHeader, HEADER_BYTES, PREFACE, flag, kind};

pub use testkit::frames::Frame;
pub use wire::ErrorCode;

/// The settings that these tests send, by their identifiers.
pub const MAX_CONCURRENT_STREAMS: u16 = 3;
pub const INITIAL_WINDOW_SIZE: u16 = 4;

/// The windows of HTTP/2 before anything else is said.
pub const FIRST_WINDOW: usize = 65_535;

/// One connection, from the server's side.
pub struct Raw {
    socket: TcpStream,
    pub out: Vec<u8>,
    /// Frames that came while another was waited for.
    pub seen: Vec<Frame>,
}

/// Runs `script` for each connection in turn, and `scripts.len()` connections in all.
pub fn serve_raw(scripts: Vec<Script>) -> (Address, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    let server = thread::spawn(move || {
        for script in scripts {
            let mut raw = Raw::accept(&listener);
            script(&mut raw);
            raw.flush();
            raw.wait_for_end();
        }
    });
    (address.parse().expect("an address"), server)
}

pub fn connect(address: &Address) -> Channel {
    Channel::connect(address, &ChannelOptions::default()).expect("the server listens")
}

impl Raw {
    fn accept(listener: &TcpListener) -> Raw {
        let (mut socket, _) = listener.accept().expect("the client connects");
        socket.set_nodelay(true).expect("connected");
        let timeout = Some(Duration::from_secs(20));
        socket.set_read_timeout(timeout).expect("valid");
        let mut preface = [0; PREFACE.len()];
        socket.read_exact(&mut preface).expect("the client greets");
        assert_eq!(&preface, PREFACE);
        Raw {
            socket,
            out: Vec::new(),
            seen: Vec::new(),
        }
    }

    pub fn settings(&mut self, entries: &[(u16, u32)]) {
        frame::write_settings(&mut self.out, entries);
    }

    /// The head of a good answer.
    pub fn headers(&mut self, stream: u32) {
        self.block(stream, &HEAD, false);
    }

    pub fn trailers(&mut self, stream: u32) {
        self.block(stream, &[("grpc-status", "0")], true);
    }

    pub fn block(&mut self, stream: u32, fields: &[(&str, &str)], end: bool) {
        self.out.extend(frames::headers(stream, fields, end));
    }

    /// One whole message in as few frames as it takes, each with so much padding; none: without the
    /// field for it.
    pub fn message(&mut self, stream: u32, bytes: &[u8], padding: Option<u8>, piece: usize) {
        for piece in frames::message(bytes).chunks(piece) {
            match padding {
                None => self.frame(kind::DATA, 0, stream, piece),
                Some(padding) => {
                    let mut payload = vec![padding];
                    payload.extend_from_slice(piece);
                    payload.extend(std::iter::repeat_n(0, padding.into()));
                    self.frame(kind::DATA, flag::PADDED, stream, &payload);
                }
            }
        }
    }

    pub fn answer(&mut self, stream: u32, bytes: &[u8]) {
        self.headers(stream);
        self.message(stream, bytes, None, 16_384);
        self.trailers(stream);
    }

    pub fn reset(&mut self, stream: u32, code: ErrorCode) {
        frame::write_rst_stream(&mut self.out, stream, code);
    }

    pub fn goaway(&mut self, last_stream: u32, code: ErrorCode) {
        self.goaway_with(last_stream, code, "");
    }

    pub fn goaway_with(&mut self, last_stream: u32, code: ErrorCode, text: &str) {
        frame::write_goaway(&mut self.out, last_stream, code, text);
    }

    pub fn ping(&mut self, opaque: [u8; 8]) {
        frame::write_ping(&mut self.out, 0, opaque);
    }

    pub fn open_window(&mut self, stream: u32, bytes: u32) {
        frame::write_window_update(&mut self.out, stream, bytes);
    }

    pub fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        frame::write_header(&mut self.out, payload.len(), kind, flags, stream);
        self.out.extend_from_slice(payload);
    }

    pub fn flush(&mut self) {
        // A client that has had enough may be gone.
        let _ = self.socket.write_all(&self.out);
        self.out.clear();
    }

    /// The next frame of the client, after what waits was sent; `None`: it has closed. Settings are
    /// acknowledged.
    pub fn next(&mut self) -> Option<Frame> {
        self.flush();
        let mut head = [0; HEADER_BYTES];
        self.socket.read_exact(&mut head).ok()?;
        let header = FrameHeader::parse(&head);
        let mut payload = vec![0; header.length as usize];
        self.socket.read_exact(&mut payload).ok()?;
        if header.kind == kind::SETTINGS && header.flags & flag::ACK == 0 {
            frame::write_settings_ack(&mut self.out);
        }
        Some(Frame {
            kind: header.kind,
            flags: header.flags,
            stream: header.stream,
            payload,
        })
    }

    /// Reads until a frame is as wanted; those before it are kept in `seen`.
    pub fn wait_for(&mut self, what: &str, is_it: impl Fn(&Frame) -> bool) -> Frame {
        loop {
            let frame = self.next();
            let frame = frame.unwrap_or_else(|| panic!("the client closed before {what}"));
            if is_it(&frame) {
                return frame;
            }
            self.seen.push(frame);
        }
    }

    /// Says nothing in the settings, and returns the stream of the first request.
    pub fn begin(&mut self) -> u32 {
        self.settings(&[]);
        self.request()
    }

    /// The stream of the next request that is complete.
    pub fn request(&mut self) -> u32 {
        self.wait_for("a request", Frame::ends_stream).stream
    }

    fn wait_for_end(&mut self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
        while let Some(frame) = self.next() {
            self.seen.push(frame);
        }
    }
}

/// What a server does on one connection.
pub type Script = fn(&mut Raw);

/// Servers that end a call with RST_STREAM and no status, each with the messages that came before:
/// behind the head, in the midst of a message, and behind one.
pub const RESETS_WITHOUT_A_STATUS: [(Script, usize); 3] = [
    (
        |raw| {
            let stream = raw.begin();
            raw.headers(stream);
            raw.reset(stream, ErrorCode::NoError);
        },
        0,
    ),
    (
        |raw| {
            let stream = raw.begin();
            raw.headers(stream);
            let half = &frames::message(&[7; 1_000])[..500];
            raw.frame(kind::DATA, 0, stream, half);
            raw.reset(stream, ErrorCode::NoError);
        },
        0,
    ),
    (
        |raw| {
            let stream = raw.begin();
            raw.headers(stream);
            raw.message(stream, b"whole", None, 16_384);
            raw.reset(stream, ErrorCode::NoError);
        },
        1,
    ),
];

const HEAD: [(&str, &str); 2] = [(":status", "200"), ("content-type", "application/grpc")];
