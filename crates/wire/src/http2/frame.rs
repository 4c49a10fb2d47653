//! The layout of frames. RFC 9113 sections 4.1 and 6.

use super::error::ErrorCode;

/// What a client sends first. RFC 9113 section 3.4.
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 9;

/// The largest window, and the largest stream identifier. RFC 9113 sections 5.1.1 and 6.9.1.
pub const MAX_31_BIT: u32 = 0x7fff_ffff;

/// Frame types.
pub mod kind {
    #![allow(missing_docs, reason = "the names are those of the RFC")]
    pub const DATA: u8 = 0x0;
    pub const HEADERS: u8 = 0x1;
    pub const PRIORITY: u8 = 0x2;
    pub const RST_STREAM: u8 = 0x3;
    pub const SETTINGS: u8 = 0x4;
    pub const PUSH_PROMISE: u8 = 0x5;
    pub const PING: u8 = 0x6;
    pub const GOAWAY: u8 = 0x7;
    pub const WINDOW_UPDATE: u8 = 0x8;
    pub const CONTINUATION: u8 = 0x9;
}

/// Frame flags.
pub mod flag {
    #![allow(missing_docs, reason = "the names are those of the RFC")]
    pub const ACK: u8 = 0x1;
    pub const END_STREAM: u8 = 0x1;
    pub const END_HEADERS: u8 = 0x4;
    pub const PADDED: u8 = 0x8;
    pub const PRIORITY: u8 = 0x20;
}

/// A frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of the payload.
    pub length: u32,
    /// See [`kind`].
    pub kind: u8,
    /// See [`flag`].
    pub flags: u8,
    /// The stream, 0 for the connection.
    pub stream: u32,
}

impl FrameHeader {
    /// Reads a header; the reserved bit is ignored.
    #[inline]
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> FrameHeader {
        let [a, b, c, kind, flags, s0, s1, s2, s3] = *bytes;
        FrameHeader {
            length: u32::from_be_bytes([0, a, b, c]),
            kind,
            flags,
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & MAX_31_BIT,
        }
    }

    /// The nine bytes.
    #[inline]
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        debug_assert!(self.length < 1 << 24);
        let [_, a, b, c] = self.length.to_be_bytes();
        let [s0, s1, s2, s3] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, s0, s1, s2, s3]
    }

    /// Whether all bits of `flags` are set.
    #[inline]
    pub fn has(self, flags: u8) -> bool {
        self.flags & flags == flags
    }
}

/// Appends a frame's header.
#[inline]
pub fn write_header(out: &mut Vec<u8>, length: usize, kind: u8, flags: u8, stream: u32) {
    out.extend_from_slice(
        &FrameHeader {
            length: length as u32,
            kind,
            flags,
            stream,
        }
        .to_bytes(),
    );
}

/// Appends RST_STREAM.
pub fn write_rst_stream(out: &mut Vec<u8>, stream: u32, code: ErrorCode) {
    write_header(out, 4, kind::RST_STREAM, 0, stream);
    out.extend_from_slice(&(code as u32).to_be_bytes());
}

/// Appends PING.
pub fn write_ping(out: &mut Vec<u8>, flags: u8, opaque: [u8; 8]) {
    write_header(out, 8, kind::PING, flags, 0);
    out.extend_from_slice(&opaque);
}

/// Appends WINDOW_UPDATE.
pub fn write_window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    debug_assert!((1..=MAX_31_BIT).contains(&increment));
    write_header(out, 4, kind::WINDOW_UPDATE, 0, stream);
    out.extend_from_slice(&increment.to_be_bytes());
}

/// Appends GOAWAY.
pub fn write_goaway(out: &mut Vec<u8>, last_stream: u32, code: ErrorCode, debug: &str) {
    write_header(out, 8 + debug.len(), kind::GOAWAY, 0, 0);
    out.extend_from_slice(&last_stream.to_be_bytes());
    out.extend_from_slice(&(code as u32).to_be_bytes());
    out.extend_from_slice(debug.as_bytes());
}

/// Appends SETTINGS with these entries.
pub fn write_settings(out: &mut Vec<u8>, entries: &[(u16, u32)]) {
    write_header(out, entries.len() * 6, kind::SETTINGS, 0, 0);
    for (identifier, value) in entries {
        out.extend_from_slice(&identifier.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Appends the acknowledgement of SETTINGS.
pub fn write_settings_ack(out: &mut Vec<u8>) {
    write_header(out, 0, kind::SETTINGS, flag::ACK, 0);
}

/// Reads a big-endian 32-bit number at the beginning of `bytes`, which the caller has measured.
#[inline]
pub(crate) fn read_u32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(
        *bytes
            .first_chunk()
            .expect("the caller has checked the frame's length"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_the_round_trip() {
        let header = FrameHeader {
            length: 0x12_3456,
            kind: 0xab,
            flags: 0xcd,
            stream: 0x7fff_fffe,
        };
        assert_eq!(
            header.to_bytes(),
            [0x12, 0x34, 0x56, 0xab, 0xcd, 0x7f, 0xff, 0xff, 0xfe]
        );
        assert_eq!(FrameHeader::parse(&header.to_bytes()), header);
    }

    #[test]
    fn the_reserved_bit_is_ignored() {
        assert_eq!(
            FrameHeader::parse(&[0, 0, 0, 0, 0, 0x80, 0, 0, 1]).stream,
            1
        );
    }
}
