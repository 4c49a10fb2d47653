//! baidu_std and SRPC: unary calls in frames of their own over one TCP connection, without flow
//! control and without streams.
//!
//! [`baidu_std`] and [`srpc`] have the layout of frames and their metadata for both roles, and
//! [`codes`] what their error codes are as statuses. [`FramedServerConnection`] is the state
//! machine of a server: it has the interface of [`crate::Connection`], as far as that has a meaning
//! here, so that the layer above serves calls of either in the same way. [`FramedClientConnection`]
//! is that of a client. docs/internals/framed.md describes both.

pub mod baidu_std;
pub mod checksum;
mod client;
pub mod codes;
mod connection;
mod snappy;
pub mod srpc;
mod status;
mod unpack;

pub use client::{
    BeginError, FramedCallEnd, FramedCallEvent, FramedCallHead, FramedClientConnection,
};
pub use connection::FramedServerConnection;
pub use status::{FramedStatus, StatusMeaning};

/// Which of the two a connection carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FramedProtocol {
    /// What brpc speaks: calls are pipelined by their correlation ids.
    BaiduStd,
    /// What SRPC speaks: one call at a time.
    Srpc,
}

impl FramedProtocol {
    /// Returns what each frame begins with.
    pub const fn magic(self) -> &'static [u8; 4] {
        match self {
            FramedProtocol::BaiduStd => b"PRPC",
            FramedProtocol::Srpc => b"SRPC",
        }
    }

    /// Returns the bytes of a frame's header.
    pub const fn header_bytes(self) -> usize {
        match self {
            FramedProtocol::BaiduStd => baidu_std::HEADER_BYTES,
            FramedProtocol::Srpc => srpc::HEADER_BYTES,
        }
    }

    /// Reads a header.
    ///
    /// # Errors
    /// If it does not begin with the magic bytes, or its lengths contradict each other.
    pub fn read_header(self, header: &[u8]) -> Result<FramedHeader, BadHeader> {
        let is_whole = header.len() >= self.header_bytes();
        if !is_whole || !header.starts_with(self.magic()) {
            return Err(BadHeader::Magic);
        }
        let number = |at: usize| {
            let bytes = header.get(at..at + 4).and_then(|four| four.try_into().ok());
            u32::from_be_bytes(bytes.unwrap_or_default()) as usize
        };
        let (first, second) = (number(4), number(8));
        match self {
            FramedProtocol::BaiduStd => Ok(FramedHeader {
                meta_bytes: second,
                body_bytes: first.checked_sub(second).ok_or(BadHeader::MetaSize)?,
            }),
            FramedProtocol::Srpc => Ok(FramedHeader {
                meta_bytes: first,
                body_bytes: second,
            }),
        }
    }

    /// Writes a header to where it has room: so many bytes as [`FramedProtocol::header_bytes`]
    /// says, of which those that are always 0 are already. Lengths beyond 4 GiB are cut.
    #[inline]
    pub(crate) fn fill_header(self, header: FramedHeader, out: &mut [u8]) {
        let FramedHeader {
            meta_bytes,
            body_bytes,
        } = header;
        let (first, second) = match self {
            FramedProtocol::BaiduStd => (meta_bytes + body_bytes, meta_bytes),
            FramedProtocol::Srpc => (meta_bytes, body_bytes),
        };
        out[..4].copy_from_slice(self.magic());
        out[4..8].copy_from_slice(&(first as u32).to_be_bytes());
        out[8..12].copy_from_slice(&(second as u32).to_be_bytes());
    }
}

/// What the header of a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FramedHeader {
    /// Bytes of the metadata, which follow at once.
    pub meta_bytes: usize,
    /// Bytes behind them: the message, and the attachment if there is one.
    pub body_bytes: usize,
}

/// Why a header is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHeader {
    /// It does not begin with the magic bytes.
    #[error("a frame does not begin with the magic bytes of its protocol")]
    Magic,
    /// The metadata are longer than the frame.
    #[error("the metadata of a frame are longer than the frame")]
    MetaSize,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a frame.
    pub(super) fn frame(protocol: FramedProtocol, meta: &[u8], body: &[u8]) -> Vec<u8> {
        let header = FramedHeader {
            meta_bytes: meta.len(),
            body_bytes: body.len(),
        };
        [&header_of(protocol, header)[..], meta, body].concat()
    }

    /// Returns the bytes of a header.
    pub(super) fn header_of(protocol: FramedProtocol, header: FramedHeader) -> Vec<u8> {
        let mut out = vec![0; protocol.header_bytes()];
        protocol.fill_header(header, &mut out);
        out
    }

    /// Bytes from hexadecimal digits; spaces are for the reader.
    pub(super) fn hex(digits: &str) -> Vec<u8> {
        let digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| {
            let pair = std::str::from_utf8(pair).expect("digits");
            u8::from_str_radix(pair, 16).expect("digits")
        };
        digits.chunks(2).map(byte).collect()
    }

    #[test]
    fn headers_come_back_as_they_were_written() {
        for protocol in [FramedProtocol::BaiduStd, FramedProtocol::Srpc] {
            for (meta_bytes, body_bytes) in [(0, 0), (1, 2), (300, 70_000), (0x1234_5678, 9)] {
                let header = FramedHeader {
                    meta_bytes,
                    body_bytes,
                };
                let mut out = header_of(protocol, header);
                assert_eq!(protocol.read_header(&out), Ok(header));
                out[3] ^= 1;
                assert_eq!(protocol.read_header(&out), Err(BadHeader::Magic));
            }
        }
    }

    #[test]
    fn metadata_that_are_longer_than_the_frame_are_no_header() {
        let header = b"PRPC\0\0\0\x05\0\0\0\x06";
        let read = FramedProtocol::BaiduStd.read_header(header);
        assert_eq!(read, Err(BadHeader::MetaSize));
    }
}
