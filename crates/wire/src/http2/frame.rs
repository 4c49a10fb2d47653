//! The layout of frames. RFC 9113 sections 4.1 and 6.

use super::error::{ConnectionError, ErrorCode};

/// What a client sends first. RFC 9113 section 3.4.
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 9;

/// The largest window, and the largest stream identifier. RFC 9113 sections 5.1.1 and 6.9.1.
pub const MAX_31_BIT: u32 = 0x7fff_ffff;

/// The windows of both sides before any SETTINGS. RFC 9113 section 6.9.2.
pub const DEFAULT_WINDOW: u32 = 65_535;

/// Parameters of SETTINGS. RFC 9113 section 6.5.2.
pub mod setting {
    /// Bytes of the table with which the peer may encode header blocks.
    pub const HEADER_TABLE_SIZE: u16 = 0x1;
    /// Whether the peer may push.
    pub const ENABLE_PUSH: u16 = 0x2;
    /// Streams that the peer may have open at a time.
    pub const MAX_CONCURRENT_STREAMS: u16 = 0x3;
    /// The window with which the peer's streams begin.
    pub const INITIAL_WINDOW_SIZE: u16 = 0x4;
    /// Bytes of a frame's payload that the peer may send.
    pub const MAX_FRAME_SIZE: u16 = 0x5;
    /// Bytes of header fields that the peer may send in one block, without compression.
    pub const MAX_HEADER_LIST_SIZE: u16 = 0x6;
}

/// Frame types. RFC 9113 section 6.
pub mod kind {
    /// A part of the body of a message (section 6.1).
    pub const DATA: u8 = 0x0;
    /// The beginning of a header block (section 6.2).
    pub const HEADERS: u8 = 0x1;
    /// The deprecated priority of a stream (section 6.3).
    pub const PRIORITY: u8 = 0x2;
    /// The immediate end of a stream (section 6.4).
    pub const RST_STREAM: u8 = 0x3;
    /// Parameters of the connection, or the acknowledgement of those (section 6.5).
    pub const SETTINGS: u8 = 0x4;
    /// The announcement of a stream that a server opens (section 6.6).
    pub const PUSH_PROMISE: u8 = 0x5;
    /// A measurement of the round trip, or the response to one (section 6.7).
    pub const PING: u8 = 0x6;
    /// The end of a connection (section 6.8).
    pub const GOAWAY: u8 = 0x7;
    /// More window for the sender of DATA (section 6.9).
    pub const WINDOW_UPDATE: u8 = 0x8;
    /// More of a header block (section 6.10).
    pub const CONTINUATION: u8 = 0x9;
}

/// Frame flags. RFC 9113 section 6.
pub mod flag {
    /// SETTINGS and PING: it acknowledges one of the peer.
    pub const ACK: u8 = 0x1;
    /// DATA and HEADERS: the last frame of its sender on the stream.
    pub const END_STREAM: u8 = 0x1;
    /// HEADERS and CONTINUATION: the last frame of the header block.
    pub const END_HEADERS: u8 = 0x4;
    /// DATA and HEADERS: the payload begins with the length of the padding at its end.
    pub const PADDED: u8 = 0x8;
    /// HEADERS: five bytes of priority stand before the header block.
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

    /// Returns why a frame about a stream names none, or one about the connection names one. RFC
    /// 9113 sections 6.1 to 6.10.
    #[cold]
    pub(crate) fn misplaced(self) -> ConnectionError {
        ConnectionError::protocol(match self.kind {
            kind::DATA => "DATA on stream 0",
            kind::HEADERS => "HEADERS on stream 0",
            kind::PRIORITY => "PRIORITY on stream 0",
            kind::RST_STREAM => "RST_STREAM on stream 0",
            kind::CONTINUATION => "CONTINUATION on stream 0",
            kind::SETTINGS => "SETTINGS on a stream",
            kind::PING => "PING on a stream",
            _ => "GOAWAY on a stream",
        })
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

/// Bytes of one parameter of SETTINGS. RFC 9113 section 6.5.1.
pub const SETTING_BYTES: usize = 6;

/// The parameters in the payload of SETTINGS, in the order in which they stand; bytes at the end
/// that are no whole one are left out.
pub fn read_settings(payload: &[u8]) -> impl Iterator<Item = (u16, u32)> + '_ {
    let (entries, _) = payload.as_chunks::<SETTING_BYTES>();
    entries
        .iter()
        .map(|&[i, j, a, b, c, d]| (u16::from_be_bytes([i, j]), u32::from_be_bytes([a, b, c, d])))
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
    fn settings_are_read_as_they_were_written() {
        let entries = [(setting::MAX_CONCURRENT_STREAMS, 7), (0xffff, u32::MAX)];
        let mut frame = Vec::new();
        write_settings(&mut frame, &entries);
        frame.push(1);
        let read: Vec<_> = read_settings(&frame[HEADER_BYTES..]).collect();
        assert_eq!(read, entries);
    }

    #[test]
    fn the_reserved_bit_is_ignored() {
        assert_eq!(
            FrameHeader::parse(&[0, 0, 0, 0, 0, 0x80, 0, 0, 1]).stream,
            1
        );
    }
}
