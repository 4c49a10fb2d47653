//! Frames of HTTP/2, baidu_std and SRPC, and messages of gRPC as bytes, for peers that are scripts.

use wire::ErrorCode;
use wire::framed::FramedProtocol;
use wire::hpack::{Encoder, Indexing};
use wire::http2::frame::{self, FrameHeader, HEADER_BYTES, flag, kind};

/// A frame that came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its type.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// The stream; 0: the connection.
    pub stream: u32,
    /// What is behind its header, with padding.
    pub payload: Vec<u8>,
}

impl Frame {
    /// Whether it is the last one of its sender on the stream.
    pub fn ends_stream(&self) -> bool {
        matches!(self.kind, kind::DATA | kind::HEADERS) && self.flags & flag::END_STREAM != 0
    }

    /// Returns the error code of RST_STREAM or GOAWAY.
    pub fn code(&self) -> ErrorCode {
        let at = if self.kind == kind::GOAWAY { 4 } else { 0 };
        ErrorCode::from_wire(number(&self.payload[at..]))
    }
}

/// Returns the first four bytes as a number.
pub fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(*bytes.first_chunk().expect("four bytes"))
}

/// Cuts bytes into frames; they must be whole.
pub fn frames_of(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let header = FrameHeader::parse(bytes.first_chunk().expect("a whole header"));
        let end = HEADER_BYTES + header.length as usize;
        frames.push(Frame {
            kind: header.kind,
            flags: header.flags,
            stream: header.stream,
            payload: bytes[HEADER_BYTES..end].to_vec(),
        });
        bytes = &bytes[end..];
    }
    frames
}

/// Returns a frame of any type.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::write_header(&mut bytes, payload.len(), kind, flags, stream);
    bytes.extend_from_slice(payload);
    bytes
}

/// Returns a frame of baidu_std or SRPC.
pub fn framed(protocol: FramedProtocol, meta: &[u8], body: &[u8]) -> Vec<u8> {
    let number = |bytes: usize| (bytes as u32).to_be_bytes();
    let lengths = match protocol {
        FramedProtocol::BaiduStd => [number(meta.len() + body.len()), number(meta.len())],
        FramedProtocol::Srpc => [number(meta.len()), number(body.len())],
    };
    let mut bytes = protocol.magic().to_vec();
    bytes.extend_from_slice(lengths.as_flattened());
    bytes.resize(protocol.header_bytes(), 0);
    bytes.extend_from_slice(meta);
    bytes.extend_from_slice(body);
    bytes
}

/// Returns a DATA frame.
pub fn data(stream: u32, payload: &[u8], end: bool) -> Vec<u8> {
    frame(
        kind::DATA,
        if end { flag::END_STREAM } else { 0 },
        stream,
        payload,
    )
}

/// Returns a WINDOW_UPDATE frame.
pub fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

/// Returns a RST_STREAM frame.
pub fn rst(stream: u32, code: ErrorCode) -> Vec<u8> {
    frame(kind::RST_STREAM, 0, stream, &(code as u32).to_be_bytes())
}

/// Returns a SETTINGS frame.
pub fn settings(entries: &[(u16, u32)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::write_settings(&mut bytes, entries);
    bytes
}

/// Returns a gRPC message with its prefix.
pub fn message(bytes: &[u8]) -> Vec<u8> {
    prefixed(0, bytes)
}

/// Returns a gRPC message with its prefix and this flag for compression.
pub fn prefixed(flag: u8, bytes: &[u8]) -> Vec<u8> {
    [&[flag][..], &(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

/// The head of a call.
pub const CALL: [(&str, &str); 6] = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/test.Service/Method"),
    (":authority", "localhost"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
];

/// The head of a request that is no call.
pub const GET: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "http"),
    (":path", "/"),
    (":authority", "localhost"),
];

/// Returns a header block without the dynamic table.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let (mut encoder, mut out) = (Encoder::new(), Vec::new());
    for (name, value) in fields {
        encoder.field(
            name.as_bytes(),
            value.as_bytes(),
            Indexing::Without,
            &mut out,
        );
    }
    out
}

/// Returns a HEADERS frame with a whole header block.
pub fn headers(stream: u32, fields: &[(&str, &str)], end: bool) -> Vec<u8> {
    let flags = if end {
        flag::END_HEADERS | flag::END_STREAM
    } else {
        flag::END_HEADERS
    };
    frame(kind::HEADERS, flags, stream, &block(fields))
}

/// Returns the beginning of a call.
pub fn call(stream: u32) -> Vec<u8> {
    headers(stream, &CALL, false)
}

/// Returns a whole unary call.
pub fn unary(stream: u32, bytes: &[u8]) -> Vec<u8> {
    [call(stream), data(stream, &message(bytes), true)].concat()
}
