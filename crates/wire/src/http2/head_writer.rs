//! Header blocks that go out: requests, responses and trailers. RFC 9113 sections 4.3 and 8; gRPC
//! over HTTP/2.

use super::config::Config;
use super::constant_frames;
use super::extra_fields::encode_field;
use super::frame::{FrameHeader, HEADER_BYTES, flag, kind};
use super::pool::BufferPool;
use super::request::RequestHead;
use super::request_memo::RequestMemo;
use super::stream::Stream;
use crate::grpc::{self, Code, Encoding, Metadata, Status, TimeoutValue, status};
use crate::hpack::{Encoder, Indexing};
use crate::limits;

/// The sending end of a connection's headers.
#[derive(Debug)]
pub(crate) struct HeadWriter {
    short_ways: bool,
    encoder: Encoder,
    /// Client.
    requests: RequestMemo,
    /// What the peer takes as a list of fields.
    max_list_bytes: usize,
}

impl HeadWriter {
    /// Returns a writer for a peer whose SETTINGS have not come.
    pub(crate) fn new(config: &Config) -> HeadWriter {
        HeadWriter {
            short_ways: config.short_ways,
            encoder: Encoder::new(),
            requests: RequestMemo::default(),
            max_list_bytes: u32::MAX as usize,
        }
    }

    /// Sets the size of the table that the peer allows.
    pub(crate) fn set_peer_table_bytes(&mut self, bytes: u32) {
        self.encoder.set_peer_table_bytes(bytes);
    }

    /// Sets what the peer takes as a list of fields.
    pub(crate) fn set_max_list_bytes(&mut self, bytes: u32) {
        self.max_list_bytes = bytes as usize;
    }

    /// Returns whether header blocks may be constant bytes.
    #[inline]
    pub(crate) fn has_constant_blocks(&self) -> bool {
        self.short_ways && !self.encoder.has_size_update()
    }

    /// Writes a header block as one HEADERS frame, behind the size updates that are due.
    pub(crate) fn write_block(&mut self, id: u32, block: &[u8], end: bool, out: &mut Vec<u8>) {
        let flags = if end {
            flag::END_HEADERS | flag::END_STREAM
        } else {
            flag::END_HEADERS
        };
        let start = begin_frame(out);
        self.encoder.begin_block(out);
        out.extend_from_slice(block);
        end_frame(start, flags, id, out);
    }

    /// Writes the head of a response to a gRPC call.
    pub(crate) fn write_head(&mut self, stream: &Stream, pool: &mut BufferPool, out: &mut Vec<u8>) {
        if self.has_constant_blocks() && !stream.names_gzip() && stream.extra().is_none() {
            return constant_frames::write_head(out, stream.id());
        }
        let mut block = pool.take();
        encode_head(stream, &mut block);
        self.write_block(stream.id(), &block, false, out);
        pool.give(block);
    }

    /// Writes the trailers of a response, or head and trailers in one if no head has been sent
    /// (gRPC over HTTP/2, "Trailers-Only").
    pub(crate) fn write_status(
        &mut self,
        stream: &Stream,
        status: &Status,
        pool: &mut BufferPool,
        out: &mut Vec<u8>,
    ) {
        if stream.is_head_sent() && stream.extra().is_none() && status.is_bare_ok() {
            return self.write_ok_trailers(stream.id(), pool, out);
        }
        let mut block = pool.take();
        if !stream.is_head_sent() {
            encode_head(stream, &mut block);
        }
        self.encode_status(stream, status, pool, &mut block);
        self.write_block(stream.id(), &block, true, out);
        pool.give(block);
    }

    /// Writes trailers that say OK and nothing else.
    pub(crate) fn write_ok_trailers(&mut self, id: u32, pool: &mut BufferPool, out: &mut Vec<u8>) {
        if self.has_constant_blocks() {
            return constant_frames::write_ok_trailers(out, id);
        }
        let mut block = pool.take();
        encode_field(b"grpc-status", b"0", &mut block);
        self.write_block(id, &block, true, out);
        pool.give(block);
    }

    /// Writes all of the response to a call of which the layer above does not hear.
    pub(crate) fn write_rejection(
        &mut self,
        id: u32,
        status: &Status,
        pool: &mut BufferPool,
        out: &mut Vec<u8>,
    ) {
        let mut block = pool.take();
        encode_field(b":status", b"200", &mut block);
        encode_field(b"content-type", b"application/grpc", &mut block);
        self.encode_status_fields(status, pool, &mut block);
        self.write_block(id, &block, true, out);
        pool.give(block);
    }

    /// Encodes the trailers of a response.
    pub(crate) fn encode_status(
        &self,
        stream: &Stream,
        status: &Status,
        pool: &mut BufferPool,
        block: &mut Vec<u8>,
    ) {
        self.encode_status_fields(status, pool, block);
        if let Some(extra) = stream.extra() {
            let fits = block.len() + extra.trailers().len() <= limits::MAX_SENT_BLOCK_BYTES;
            block.extend_from_slice(if fits { extra.trailers() } else { &[] });
        }
    }

    fn encode_status_fields(&self, status: &Status, pool: &mut BufferPool, block: &mut Vec<u8>) {
        encode_field(b"grpc-status", status.code().digits().as_bytes(), block);
        if self.max_list_bytes < 2 * limits::MAX_STATUS_MESSAGE_BYTES {
            // Little more than the code is sure to be taken.
            return;
        }
        if !status.message().is_empty() {
            let mut message = pool.take();
            status::encode_message(status.message(), &mut message);
            encode_field(b"grpc-message", &message, block);
            pool.give(message);
        }
        if status.code() == Code::Unimplemented {
            encode_field(
                b"grpc-accept-encoding",
                Encoding::ACCEPTED.as_bytes(),
                block,
            );
        }
        for (name, value) in status.metadata().into_iter().flat_map(Metadata::iter) {
            self.encode_metadata(name, value, pool, block);
        }
    }

    /// Metadata that would make the block too large for one frame, or for the peer, are left out.
    fn encode_metadata(
        &self,
        name: &str,
        value: &[u8],
        pool: &mut BufferPool,
        block: &mut Vec<u8>,
    ) {
        let max = limits::MAX_SENT_BLOCK_BYTES.min(self.max_list_bytes / 2);
        if block.len() + name.len() + value.len() * 4 / 3 + 16 > max {
            return;
        }
        if grpc::metadata::is_binary_key(name.as_bytes()) {
            let mut text = pool.take();
            grpc::metadata::encode_binary(value, &mut text);
            encode_field(name.as_bytes(), &text, block);
            pool.give(text);
        } else {
            encode_field(name.as_bytes(), value, block);
        }
    }

    /// Returns whether the head of a request fits into one frame, and the peer takes it.
    pub(crate) fn fits_request(&self, head: &RequestHead<'_>) -> bool {
        head.list_bytes() <= limits::MAX_SENT_BLOCK_BYTES.min(self.max_list_bytes)
    }

    /// Writes the HEADERS of a request.
    pub(crate) fn write_request(&mut self, id: u32, head: &RequestHead<'_>, out: &mut Vec<u8>) {
        let start = begin_frame(out);
        let changes = self.encoder.changes();
        match self.requests.find(head, changes) {
            // A size update has changed the table, so that nothing is found before it has been
            // sent.
            Some(block) if !self.encoder.has_size_update() => out.extend_from_slice(block),
            _ => {
                let block_start = out.len();
                let is_plain = !self.encoder.has_size_update();
                self.write_usual_fields(head, out);
                if is_plain && self.encoder.changes() == changes {
                    self.requests.remember(head, changes, &out[block_start..]);
                }
            }
        }
        let encoder = &mut self.encoder;
        if let Some(timeout_ns) = head.timeout_ns {
            encoder.field(
                b"grpc-timeout",
                TimeoutValue::new(timeout_ns).as_bytes(),
                Indexing::Without,
                out,
            );
        }
        for (name, value) in head.metadata.into_iter().flat_map(Metadata::iter) {
            write_metadata(encoder, name, value, out);
        }
        end_frame(start, flag::END_HEADERS, id, out);
    }

    /// What most requests of a connection repeat, which enters the table.
    fn write_usual_fields(&mut self, head: &RequestHead<'_>, out: &mut Vec<u8>) {
        let encoder = &mut self.encoder;
        encoder.begin_block(out);
        let mut add = |name: &str, value: &str, indexing| {
            encoder.field(name.as_bytes(), value.as_bytes(), indexing, out);
        };
        add(":method", head.method, Indexing::Without);
        add(":scheme", head.scheme, Indexing::Without);
        add(":path", head.path, Indexing::Incremental);
        // ":authority MUST NOT include the deprecated userinfo subcomponent" (RFC 9113 section
        // 8.3.1).
        let host = head.authority.rsplit('@').next().unwrap_or_default();
        add(":authority", host, Indexing::Incremental);
        if head.is_grpc {
            add("te", "trailers", Indexing::Incremental);
            add("content-type", "application/grpc", Indexing::Incremental);
            if head.gzip {
                add(
                    "grpc-encoding",
                    Encoding::Gzip.name(),
                    Indexing::Incremental,
                );
            }
            let accepted = match head.accepts_gzip {
                true => Encoding::ACCEPTED,
                false => Encoding::Identity.name(),
            };
            add("grpc-accept-encoding", accepted, Indexing::Incremental);
        }
        if !head.user_agent.is_empty() {
            add("user-agent", head.user_agent, Indexing::Incremental);
        }
    }

    /// Returns the bytes of memory that it holds.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.encoder.memory_bytes() + self.requests.memory_bytes()
    }
}

/// Leaves room for the header of a frame, and returns where the frame begins.
fn begin_frame(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    start
}

/// Fills in the header of a HEADERS frame that goes from `start` to the end.
fn end_frame(start: usize, flags: u8, id: u32, out: &mut [u8]) {
    let length = out.len() - start - HEADER_BYTES;
    debug_assert!(
        length <= limits::MAX_FRAME_BYTES,
        "what is added to a block is bounded"
    );
    let header = FrameHeader {
        length: length as u32,
        kind: kind::HEADERS,
        flags,
        stream: id,
    };
    out[start..start + HEADER_BYTES].copy_from_slice(&header.to_bytes());
}

/// Encodes the head of a response to a gRPC call.
fn encode_head(stream: &Stream, block: &mut Vec<u8>) {
    encode_field(b":status", b"200", block);
    encode_field(b"content-type", b"application/grpc", block);
    if stream.names_gzip() {
        encode_field(b"grpc-encoding", Encoding::Gzip.name().as_bytes(), block);
    }
    if let Some(extra) = stream.extra() {
        block.extend_from_slice(extra.head());
    }
}

fn write_metadata(encoder: &mut Encoder, name: &str, value: &[u8], out: &mut Vec<u8>) {
    // Short secrets must not be guessed by what a table does to the length of a block (RFC 7541
    // section 7.1.3).
    let indexing = if name == grpc::metadata::AUTHORIZATION {
        Indexing::Never
    } else {
        Indexing::Without
    };
    if grpc::metadata::is_binary_key(name.as_bytes()) {
        let mut text = Vec::with_capacity(value.len() * 4 / 3 + 4);
        grpc::metadata::encode_binary(value, &mut text);
        encoder.field(name.as_bytes(), &text, indexing, out);
    } else {
        encoder.field(name.as_bytes(), value, indexing, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::config::Config;
    use crate::http2::head_reader::HeadReader;
    use crate::http2::headers::BodyKind;
    use crate::http2::stream::LateStatus;

    /// The block of the only frame, and the flags and stream of its header.
    fn block(out: &[u8]) -> (&[u8], u8, u32) {
        let (header, block) = out.split_first_chunk().expect("a frame");
        let header = FrameHeader::parse(header);
        assert_eq!(header.length as usize, block.len());
        (block, header.flags, header.stream)
    }

    fn stream(id: u32) -> Stream {
        let mut stream = Stream::new();
        stream.begin(id, BodyKind::Grpc, 10, 10);
        stream
    }

    fn read_status(out: &[u8]) -> Status {
        let (block, flags, _) = block(out);
        assert_eq!(flags, flag::END_HEADERS | flag::END_STREAM);
        let mut reader = HeadReader::new(&Config::client());
        match reader
            .read_status_trailers(block, true)
            .expect("it can be decoded")
        {
            Ok(LateStatus::Other(status)) => *status,
            Ok(_) => Status::OK,
            Err(malformed) => panic!("{malformed:?}"),
        }
    }

    #[test]
    fn the_short_way_means_the_same_as_the_long_one() {
        let mut written = Vec::new();
        for short_ways in [true, false] {
            let config = Config {
                short_ways,
                ..Config::server()
            };
            let (mut writer, mut pool) = (HeadWriter::new(&config), BufferPool::default());
            let (mut head, mut trailers) = (Vec::new(), Vec::new());
            let mut stream = stream(5);
            writer.write_head(&stream, &mut pool, &mut head);
            stream.set_head_sent();
            writer.write_status(&stream, &Status::OK, &mut pool, &mut trailers);
            assert_eq!(read_status(&trailers), Status::OK);
            let mut reader = HeadReader::new(&Config::client());
            reader
                .read_head(block(&head).0)
                .expect("decoded")
                .expect("well-formed");
            let fields: Vec<_> = reader.head().fields().collect();
            let fields: Vec<_> = fields
                .iter()
                .map(|(a, b)| (a.to_vec(), b.to_vec()))
                .collect();
            written.push((fields, block(&head).1, block(&head).2));
        }
        assert_eq!(written[0], written[1]);
    }

    #[test]
    fn a_status_is_shortened_for_a_peer_that_takes_little() {
        let (mut writer, mut pool) = (HeadWriter::new(&Config::server()), BufferPool::default());
        let mut stream = stream(7);
        stream.set_head_sent();
        let status = Status::new(Code::NotFound, "no such key");
        let small = 2 * limits::MAX_STATUS_MESSAGE_BYTES as u32 - 1;
        for (max_list_bytes, expected) in [
            (u32::MAX, status.clone()),
            (small + 1, status.clone()),
            (small, Status::new(Code::NotFound, "")),
        ] {
            let mut out = Vec::new();
            writer.set_max_list_bytes(max_list_bytes);
            writer.write_status(&stream, &status, &mut pool, &mut out);
            assert_eq!(read_status(&out), expected);
        }
    }

    #[test]
    fn a_request_that_repeats_is_the_same_bytes() {
        let mut writer = HeadWriter::new(&Config::client());
        let mut reader = HeadReader::new(&Config::server());
        let mut blocks = Vec::new();
        for id in [1, 3, 5, 7] {
            let mut head = RequestHead::call("localhost", "/a.B/C");
            head.timeout_ns = (id == 7).then_some(1_000_000_000);
            assert!(writer.fits_request(&head));
            let mut out = Vec::new();
            writer.write_request(id, &head, &mut out);
            let (bytes, flags, stream) = block(&out);
            assert_eq!((flags, stream), (flag::END_HEADERS, id));
            reader
                .read_head(bytes)
                .expect("decoded")
                .expect("well-formed");
            assert_eq!(reader.head().path(), b"/a.B/C");
            assert_eq!(reader.head().timeout_ns(), head.timeout_ns);
            blocks.push(bytes.to_vec());
        }
        assert!(blocks[0].len() > blocks[1].len(), "it fills the table");
        assert_eq!(blocks[1], blocks[2]);
        assert!(
            blocks[3].starts_with(&blocks[2]),
            "a deadline stands behind"
        );
        writer.set_max_list_bytes(100);
        assert!(!writer.fits_request(&RequestHead::call("localhost", "/a.B/C")));
    }
}
