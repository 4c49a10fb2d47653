//! Cuts one direction of an HTTP/2 connection into frames, however the bytes come. RFC 9113
//! section 4.1.

use wire::http2::frame::{FrameHeader, HEADER_BYTES, PREFACE, kind};

use super::limits::WATCHED_FRAME_BYTES;

/// What a direction brought.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SeenFrame<'a> {
    /// A whole frame of another type than DATA, with its payload.
    Whole(FrameHeader, &'a [u8]),
    /// The header of a DATA frame. Its payload follows in pieces.
    DataBegins(FrameHeader),
    /// A piece of that payload.
    DataBytes(FrameHeader, &'a [u8]),
    /// The last byte of that payload.
    DataEnds(FrameHeader),
}

/// Why a direction cannot be followed any further. Its bytes are forwarded all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It begins as TLS does.
    #[error("it speaks TLS; --listen-tls-cert, --listen-tls-key and --tls let the tap read it")]
    Tls,
    /// It begins as HTTP/1.1 does.
    #[error("it speaks HTTP/1.1, and not HTTP/2")]
    Http1,
    /// It does not begin as HTTP/2 and baidu_std do.
    #[error("neither HTTP/2 without TLS nor baidu_std")]
    UnknownProtocol,
    /// A frame that would have to be kept is longer than [`WATCHED_FRAME_BYTES`].
    #[error("a frame that is too long to be looked at")]
    FrameTooLong,
    /// A header block, or what belongs to it, is not valid.
    #[error("a header block that cannot be decoded")]
    HeaderBlock,
    /// The metadata of a frame of baidu_std is not valid.
    #[error("a frame of baidu_std that cannot be decoded")]
    FramedMeta,
}

/// Cuts bytes into frames.
#[derive(Debug)]
pub(super) struct FrameSplitter {
    /// Bytes of the client's preface that have yet to come.
    preface_left: usize,
    /// What came of the next frame's header.
    header: Vec<u8>,
    /// The frame whose payload is on its way, and how much of that is missing.
    current: Option<(FrameHeader, usize)>,
    /// What came of a payload that is to be looked at.
    payload: Vec<u8>,
}

impl FrameSplitter {
    /// Reads what a client sends: the preface, then frames.
    pub(super) fn of_client() -> FrameSplitter {
        FrameSplitter {
            preface_left: PREFACE.len(),
            ..FrameSplitter::of_server()
        }
    }

    /// Reads what a server sends.
    pub(super) fn of_server() -> FrameSplitter {
        FrameSplitter {
            preface_left: 0,
            header: Vec::with_capacity(HEADER_BYTES),
            current: None,
            payload: Vec::new(),
        }
    }

    /// Takes the next bytes; what they complete goes to `sink`, in order.
    ///
    /// # Errors
    /// If they cannot be followed; then, and for ever after, nothing more is to be pushed.
    pub(super) fn push(
        &mut self,
        mut bytes: &[u8],
        sink: &mut dyn FnMut(SeenFrame<'_>) -> Result<(), Unreadable>,
    ) -> Result<(), Unreadable> {
        self.take_preface(&mut bytes)?;
        while !bytes.is_empty() {
            match self.current {
                None => self.take_header(&mut bytes, sink)?,
                Some((header, left)) => self.take_payload(&mut bytes, header, left, sink)?,
            }
        }
        Ok(())
    }

    fn take_preface(&mut self, bytes: &mut &[u8]) -> Result<(), Unreadable> {
        let (came, rest) = bytes.split_at(self.preface_left.min(bytes.len()));
        let expected = PREFACE.get(PREFACE.len() - self.preface_left..);
        if !expected.is_some_and(|expected| expected.starts_with(came)) {
            return Err(unknown(came));
        }
        self.preface_left -= came.len();
        *bytes = rest;
        Ok(())
    }

    fn take_header(
        &mut self,
        bytes: &mut &[u8],
        sink: &mut dyn FnMut(SeenFrame<'_>) -> Result<(), Unreadable>,
    ) -> Result<(), Unreadable> {
        let missing = HEADER_BYTES - self.header.len();
        let (came, rest) = bytes.split_at(missing.min(bytes.len()));
        self.header.extend_from_slice(came);
        *bytes = rest;
        let Some(whole) = self.header.first_chunk::<HEADER_BYTES>() else {
            return Ok(());
        };
        let header = FrameHeader::parse(whole);
        self.header.clear();
        if header.kind == kind::DATA {
            sink(SeenFrame::DataBegins(header))?;
        } else if header.length as usize > WATCHED_FRAME_BYTES {
            return Err(Unreadable::FrameTooLong);
        }
        match header.length {
            0 => self.finish(header, sink),
            length => {
                self.current = Some((header, length as usize));
                Ok(())
            }
        }
    }

    fn take_payload(
        &mut self,
        bytes: &mut &[u8],
        header: FrameHeader,
        left: usize,
        sink: &mut dyn FnMut(SeenFrame<'_>) -> Result<(), Unreadable>,
    ) -> Result<(), Unreadable> {
        let (came, rest) = bytes.split_at(left.min(bytes.len()));
        *bytes = rest;
        match header.kind {
            kind::DATA => sink(SeenFrame::DataBytes(header, came))?,
            _ => self.payload.extend_from_slice(came),
        }
        if came.len() < left {
            self.current = Some((header, left - came.len()));
            return Ok(());
        }
        self.current = None;
        self.finish(header, sink)
    }

    fn finish(
        &mut self,
        header: FrameHeader,
        sink: &mut dyn FnMut(SeenFrame<'_>) -> Result<(), Unreadable>,
    ) -> Result<(), Unreadable> {
        if header.kind == kind::DATA {
            return sink(SeenFrame::DataEnds(header));
        }
        let done = sink(SeenFrame::Whole(header, &self.payload));
        self.payload.clear();
        done
    }
}

/// What begins with these bytes, where they are not HTTP/2.
fn unknown(first: &[u8]) -> Unreadable {
    const METHODS: [&[u8]; 6] = [b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE"];
    match first {
        // A record of a handshake, of any version of TLS.
        [0x16, 0x03, ..] => Unreadable::Tls,
        _ if METHODS.iter().any(|method| first.starts_with(method)) => Unreadable::Http1,
        _ => Unreadable::UnknownProtocol,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::http2::frame::{flag, write_header, write_ping};

    fn cut(splitter: &mut FrameSplitter, bytes: &[u8], piece: usize) -> Vec<String> {
        let (mut seen, mut data) = (Vec::new(), Vec::new());
        for part in bytes.chunks(piece) {
            let mut sink = |frame: SeenFrame<'_>| {
                match frame {
                    SeenFrame::DataBytes(_, bytes) => data.extend_from_slice(bytes),
                    frame => seen.push(format!("{frame:?}")),
                }
                Ok(())
            };
            splitter.push(part, &mut sink).expect("it can be followed");
        }
        assert_eq!(data, [7; 300]);
        seen
    }

    fn some_frames() -> Vec<u8> {
        let mut out = PREFACE.to_vec();
        write_header(&mut out, 0, kind::SETTINGS, 0, 0);
        write_header(&mut out, 3, kind::HEADERS, flag::END_HEADERS, 1);
        out.extend_from_slice(&[0x82, 0x86, 0x84]);
        write_header(&mut out, 300, kind::DATA, flag::END_STREAM, 1);
        out.extend_from_slice(&[7; 300]);
        write_header(&mut out, 0, kind::DATA, flag::END_STREAM, 3);
        write_ping(&mut out, 0, *b"12345678");
        out
    }

    #[test]
    fn frames_are_the_same_however_the_bytes_come() {
        let bytes = some_frames();
        let whole = cut(&mut FrameSplitter::of_client(), &bytes, bytes.len());
        assert_eq!(whole.len(), 7, "{whole:?}");
        for piece in 1..40 {
            assert_eq!(
                cut(&mut FrameSplitter::of_client(), &bytes, piece),
                whole,
                "{piece}"
            );
        }
    }

    #[test]
    fn what_does_not_begin_as_http2_is_not_followed() {
        let mut splitter = FrameSplitter::of_client();
        let mut sink = |_: SeenFrame<'_>| Ok(());
        assert_eq!(splitter.push(b"PRI * ", &mut sink), Ok(()));
        assert_eq!(
            splitter.push(b"HTTP/1.1\r\n", &mut sink),
            Err(Unreadable::UnknownProtocol)
        );
    }

    #[test]
    fn a_frame_that_would_have_to_be_kept_has_a_bound_and_data_has_none() {
        let mut sink = |_: SeenFrame<'_>| Ok(());
        let mut long = Vec::new();
        write_header(&mut long, WATCHED_FRAME_BYTES + 1, kind::DATA, 0, 1);
        let mut splitter = FrameSplitter::of_server();
        assert_eq!(splitter.push(&long, &mut sink), Ok(()));
        assert!(splitter.payload.is_empty());
        let mut long = Vec::new();
        write_header(&mut long, WATCHED_FRAME_BYTES + 1, kind::HEADERS, 0, 1);
        assert_eq!(
            FrameSplitter::of_server().push(&long, &mut sink),
            Err(Unreadable::FrameTooLong)
        );
    }
}
