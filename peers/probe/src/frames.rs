//! The little of HTTP/2 (RFC 9113), HPACK (RFC 7541) and protobuf that a generator of unary gRPC
//! calls needs.

/// Bytes of a frame header (RFC 9113 section 4.1).
pub const FRAME_HEADER_BYTES: usize = 9;

/// The largest frame a peer may send us: the protocol's default, which we leave in place.
pub const FRAME_PAYLOAD_BYTES_MAX: usize = 16_384;

/// What a new connection or stream may send before the peer says more (RFC 9113 section 6.9.2).
pub const WINDOW_BYTES_DEFAULT: i64 = 65_535;

/// Frame types (RFC 9113 section 6).
pub mod frame_type {
    #![allow(missing_docs, reason = "the names are those of the RFC")]
    pub const DATA: u8 = 0x0;
    pub const HEADERS: u8 = 0x1;
    pub const RST_STREAM: u8 = 0x3;
    pub const SETTINGS: u8 = 0x4;
    pub const PING: u8 = 0x6;
    pub const GOAWAY: u8 = 0x7;
    pub const WINDOW_UPDATE: u8 = 0x8;
    pub const CONTINUATION: u8 = 0x9;
}

/// Flags of frames (RFC 9113 section 6).
pub mod flag {
    #![allow(missing_docs, reason = "the names are those of the RFC")]
    pub const ACK: u8 = 0x1;
    pub const END_STREAM: u8 = 0x1;
    pub const END_HEADERS: u8 = 0x4;
    pub const PADDED: u8 = 0x8;
}

/// Settings we look at (RFC 9113 section 6.5.2).
pub mod setting {
    #![allow(missing_docs, reason = "the names are those of the RFC")]
    pub const MAX_CONCURRENT_STREAMS: u16 = 0x3;
    pub const INITIAL_WINDOW_SIZE: u16 = 0x4;
}

/// The head of a frame.
#[derive(Clone, Copy)]
pub struct FrameHeader {
    /// Bytes that follow the head.
    pub length: usize,
    /// One of `frame_type`.
    pub kind: u8,
    /// Bits of `flag`.
    pub flags: u8,
    /// 0 for the connection itself.
    pub stream: u32,
}

impl FrameHeader {
    /// Reads the head at the front of `bytes`, which holds at least nine bytes.
    pub fn read(bytes: &[u8]) -> FrameHeader {
        FrameHeader {
            length: usize::from(bytes[0]) << 16
                | usize::from(bytes[1]) << 8
                | usize::from(bytes[2]),
            kind: bytes[3],
            flags: bytes[4],
            stream: u32::from_be_bytes([bytes[5], bytes[6], bytes[7], bytes[8]]) & 0x7fff_ffff,
        }
    }

    /// The nine bytes of the head.
    pub fn bytes(self) -> [u8; FRAME_HEADER_BYTES] {
        let [_, high, middle, low] = (self.length as u32).to_be_bytes();
        let stream = self.stream.to_be_bytes();
        [
            high, middle, low, self.kind, self.flags, stream[0], stream[1], stream[2], stream[3],
        ]
    }

    /// Appends the head to `out`.
    pub fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes());
    }
}

/// Appends the client's side of the greeting: preface, SETTINGS that open the stream windows wide,
/// and a WINDOW_UPDATE that opens the connection's. The generator takes everything at once, so
/// windows would only be in the way.
pub fn write_greeting(out: &mut Vec<u8>) {
    out.extend_from_slice(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    FrameHeader {
        length: 6,
        kind: frame_type::SETTINGS,
        flags: 0,
        stream: 0,
    }
    .write(out);
    out.extend_from_slice(&setting::INITIAL_WINDOW_SIZE.to_be_bytes());
    out.extend_from_slice(&0x7fff_ffff_u32.to_be_bytes());
    write_window_update(out, 0x7fff_ffff - WINDOW_BYTES_DEFAULT as u32);
}

/// Appends a WINDOW_UPDATE of the connection.
pub fn write_window_update(out: &mut Vec<u8>, increment_bytes: u32) {
    FrameHeader {
        length: 4,
        kind: frame_type::WINDOW_UPDATE,
        flags: 0,
        stream: 0,
    }
    .write(out);
    out.extend_from_slice(&increment_bytes.to_be_bytes());
}

/// Appends an integer with a prefix of `prefix_bits` (RFC 7541 section 5.1) to a first byte that
/// has `pattern` above it.
pub fn write_hpack_integer(out: &mut Vec<u8>, pattern: u8, prefix_bits: u32, mut value: usize) {
    let prefix_max = (1usize << prefix_bits) - 1;
    if value < prefix_max {
        out.push(pattern | value as u8);
        return;
    }
    out.push(pattern | prefix_max as u8);
    value -= prefix_max;
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a string literal without Huffman coding (RFC 7541 section 5.2).
pub fn write_hpack_string(out: &mut Vec<u8>, value: &[u8]) {
    write_hpack_integer(out, 0, 7, value.len());
    out.extend_from_slice(value);
}

/// Appends a field that the peer shall remember (RFC 7541 section 6.2.1), its name spelled out.
pub fn write_hpack_remembered(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.push(0x40);
    write_hpack_string(out, name.as_bytes());
    write_hpack_string(out, value);
}

/// Appends a field of the static or dynamic table (RFC 7541 section 6.1).
pub fn write_hpack_indexed(out: &mut Vec<u8>, index: usize) {
    write_hpack_integer(out, 0x80, 7, index);
}

/// Appends a field that is not remembered, its name taken from a table (RFC 7541 section 6.2.2).
pub fn write_hpack_unremembered(out: &mut Vec<u8>, name_index: usize, value: &[u8]) {
    write_hpack_integer(out, 0x00, 4, name_index);
    write_hpack_string(out, value);
}

/// Appends a field that is not remembered, its name spelled out (RFC 7541 section 6.2.2).
pub fn write_hpack_unremembered_literal(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.push(0x00);
    write_hpack_string(out, name.as_bytes());
    write_hpack_string(out, value);
}

/// Appends a protobuf varint.
pub fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a protobuf field of bytes. `number` is below 16.
pub fn write_bytes_field(out: &mut Vec<u8>, number: u8, value: &[u8]) {
    out.push(number << 3 | 2);
    write_varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_those_of_the_rfc() {
        // RFC 7541 appendix C.1.
        let mut out = Vec::new();
        write_hpack_integer(&mut out, 0, 5, 10);
        write_hpack_integer(&mut out, 0, 5, 1337);
        write_hpack_integer(&mut out, 0, 8, 42);
        assert_eq!(out, [0x0a, 0x1f, 0x9a, 0x0a, 0x2a]);
    }

    #[test]
    fn frame_headers_come_back_as_written() {
        let mut out = Vec::new();
        FrameHeader {
            length: 0x01_02_03,
            kind: 7,
            flags: 5,
            stream: 0x0102_0304,
        }
        .write(&mut out);
        let read = FrameHeader::read(&out);
        assert_eq!(out.len(), FRAME_HEADER_BYTES);
        assert_eq!(
            (read.length, read.kind, read.flags, read.stream),
            (0x01_02_03, 7, 5, 0x0102_0304)
        );
    }
}
