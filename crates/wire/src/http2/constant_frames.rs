//! The frames of a usual response, which are the same bytes on every connection at any time.

use super::frame::{HEADER_BYTES, flag, kind};
use crate::grpc::PREFIX_BYTES;

/// `:status: 200` and `content-type: application/grpc`, by the static table and a literal that is
/// not indexed, so that it is the same bytes on every connection at any time.
const HEAD_BLOCK: &[u8; 20] = b"\x88\x0f\x10\x10application/grpc";

/// `grpc-status: 0`.
const OK_BLOCK: &[u8; 15] = b"\x00\x0bgrpc-status\x010";

const HEAD_FRAME_BYTES: usize = HEADER_BYTES + HEAD_BLOCK.len();
const OK_FRAME_BYTES: usize = HEADER_BYTES + OK_BLOCK.len();
/// Bytes before a message that is all of its DATA frame.
pub(crate) const DATA_PREFIX_BYTES: usize = HEADER_BYTES + PREFIX_BYTES;

/// The constant head, and room for what stands before a message.
const ANSWER_FRAME: [u8; HEAD_FRAME_BYTES + DATA_PREFIX_BYTES] =
    constant_frame(HEAD_BLOCK, flag::END_HEADERS);

/// HEADERS with the constant head, for stream 0.
const HEAD_FRAME: [u8; HEAD_FRAME_BYTES] = constant_frame(HEAD_BLOCK, flag::END_HEADERS);
/// HEADERS with the constant trailers, for stream 0.
const OK_FRAME: [u8; OK_FRAME_BYTES] =
    constant_frame(OK_BLOCK, flag::END_HEADERS | flag::END_STREAM);

const fn constant_frame<const FRAME: usize>(block: &[u8], flags: u8) -> [u8; FRAME] {
    assert!(FRAME >= HEADER_BYTES + block.len());
    let mut frame = [0; FRAME];
    frame[2] = block.len() as u8;
    frame[3] = kind::HEADERS;
    frame[4] = flags;
    let mut at = 0;
    while at < block.len() {
        frame[HEADER_BYTES + at] = block[at];
        at += 1;
    }
    frame
}

/// Writes the identifier into the frame that begins at `at`.
#[inline]
fn set_stream(out: &mut [u8], at: usize, id: u32) {
    out[at + 5..at + HEADER_BYTES].copy_from_slice(&id.to_be_bytes());
}

/// Begins the response to a unary call: the constant head, and room for what stands before the
/// message in its DATA frame. Returns where that frame begins.
#[inline]
pub(crate) fn begin_response(out: &mut Vec<u8>, id: u32) -> usize {
    let start = out.len();
    out.extend_from_slice(&ANSWER_FRAME);
    set_stream(out, start, id);
    start + HEAD_FRAME_BYTES
}

/// Writes the constant head.
#[inline]
pub(crate) fn write_head(out: &mut Vec<u8>, id: u32) {
    let start = out.len();
    out.extend_from_slice(&HEAD_FRAME);
    set_stream(out, start, id);
}

/// Writes the constant trailers.
#[inline]
pub(crate) fn write_ok_trailers(out: &mut Vec<u8>, id: u32) {
    let start = out.len();
    out.extend_from_slice(&OK_FRAME);
    set_stream(out, start, id);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::{Decoder, FieldLimits, Fields};
    use crate::http2::frame::FrameHeader;

    /// The stream, the flags and the fields of a frame with a header block.
    fn read(frame: &[u8]) -> (u32, u8, Vec<(String, String)>) {
        let (header, block) = frame.split_first_chunk().expect("a header");
        let header = FrameHeader::parse(header);
        let mut fields = Fields::new();
        let mut decoder = Decoder::new(4_096);
        let block = &block[..header.length as usize];
        (decoder.decode(block, &FieldLimits::default(), &mut fields)).expect("a valid block");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let fields = fields.iter().map(|(name, value)| (text(name), text(value)));
        assert_eq!(header.kind, kind::HEADERS);
        (header.stream, header.flags, fields.collect())
    }

    fn field(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn constant_frames_are_valid_header_blocks() {
        let head = vec![
            field(":status", "200"),
            field("content-type", "application/grpc"),
        ];
        let mut out = Vec::new();
        write_head(&mut out, 5);
        assert_eq!(read(&out), (5, flag::END_HEADERS, head.clone()));
        out.clear();
        let data = begin_response(&mut out, 7);
        assert_eq!(read(&out), (7, flag::END_HEADERS, head));
        assert_eq!(out.len(), data + DATA_PREFIX_BYTES);
        out.clear();
        write_ok_trailers(&mut out, 9);
        let flags = flag::END_HEADERS | flag::END_STREAM;
        assert_eq!(read(&out), (9, flags, vec![field("grpc-status", "0")]));
    }
}
