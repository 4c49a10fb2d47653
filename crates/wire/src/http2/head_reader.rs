//! Header blocks that come in: gathered from their frames, decoded, and what they mean. RFC 9113
//! sections 4.3, 6.10 and 8.

use std::fmt;

use super::config::{Config, Role};
use super::error::{ConnectionError, ErrorCode};
use super::headers::{self, Head, HeadInfo, Malformed};
use super::memo::Memo;
use super::ok_trailers::OkTrailers;
use super::stream::LateStatus;
use crate::grpc::{Code, Metadata, Status, status};
use crate::hpack::{Decoder, FieldLimits, Fields, KnownName};
use crate::limits;

/// What a header block belongs to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BlockInfo {
    /// The stream.
    pub(crate) stream: u32,
    /// END_STREAM is set.
    pub(crate) end_stream: bool,
    /// Its priority fields name the stream itself.
    pub(crate) depends_on_itself: bool,
}

/// A header block whose END_HEADERS has not arrived.
#[derive(Default)]
struct PendingBlock {
    /// For stream 0: there is none.
    info: BlockInfo,
    frames: u32,
    bytes: Vec<u8>,
}

/// Where the last head lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeadAt {
    Fields,
    Memo(usize),
}

/// The receiving end of a connection's headers.
pub(crate) struct HeadReader {
    role: Role,
    short_ways: bool,
    decoder: Decoder,
    memo: Memo,
    /// Client.
    ok_trailers: OkTrailers,
    fields: Fields,
    info: HeadInfo,
    route: Option<u64>,
    head_at: HeadAt,
    block: PendingBlock,
}

/// Without the blocks that are remembered or not complete, which may have secrets.
impl fmt::Debug for HeadReader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("HeadReader");
        shown.field("role", &self.role).field("info", &self.info);
        shown
            .field("decoder", &self.decoder)
            .finish_non_exhaustive()
    }
}

impl HeadReader {
    /// Returns a reader of the heads of requests, on a server, or of responses.
    pub(crate) fn new(config: &Config) -> HeadReader {
        HeadReader {
            role: config.role,
            short_ways: config.short_ways,
            decoder: Decoder::new(limits::MAX_DECODER_TABLE_BYTES),
            memo: Memo::default(),
            ok_trailers: OkTrailers::default(),
            fields: Fields::new(),
            info: HeadInfo::EMPTY,
            route: None,
            head_at: HeadAt::Fields,
            block: PendingBlock::default(),
        }
    }

    /// Returns the stream whose header block has begun and not ended.
    #[inline]
    pub(crate) fn pending_stream(&self) -> Option<u32> {
        match self.block.info.stream {
            0 => None,
            stream => Some(stream),
        }
    }

    /// Begins a block that does not end with its first frame.
    pub(crate) fn begin_block(
        &mut self,
        info: BlockInfo,
        fragment: &[u8],
    ) -> Result<(), ConnectionError> {
        self.block.info = info;
        self.block.frames = 0;
        self.block.bytes.clear();
        self.extend_block(fragment)
    }

    /// Adds a CONTINUATION frame to the block that has begun.
    pub(crate) fn continue_block(&mut self, fragment: &[u8]) -> Result<(), ConnectionError> {
        if self.pending_stream().is_none() {
            return Err(ConnectionError::protocol(
                "CONTINUATION without a header block that has begun",
            ));
        }
        self.block.frames += 1;
        if self.block.frames > limits::MAX_CONTINUATION_FRAMES {
            return Err(ConnectionError::calm("too many CONTINUATION frames"));
        }
        self.extend_block(fragment)
    }

    fn extend_block(&mut self, fragment: &[u8]) -> Result<(), ConnectionError> {
        if self.block.bytes.len() + fragment.len() > limits::MAX_COMPRESSED_BLOCK_BYTES {
            return Err(ConnectionError::calm("a header block is too large"));
        }
        self.block.bytes.extend_from_slice(fragment);
        Ok(())
    }

    /// Takes out the block, which is whole.
    pub(crate) fn end_block(&mut self) -> (BlockInfo, Vec<u8>) {
        let block = std::mem::take(&mut self.block);
        (block.info, block.bytes)
    }

    /// Decodes a head, or finds it in the memo.
    #[inline]
    pub(crate) fn read_head(
        &mut self,
        block: &[u8],
    ) -> Result<Result<(), Malformed>, ConnectionError> {
        let changes = self.decoder.changes();
        if self.short_ways
            && let Some(at) = self.memo.find(block, changes)
        {
            self.head_at = HeadAt::Memo(at);
            return Ok(Ok(()));
        }
        self.decode(block)?;
        let info = match self.role {
            Role::Server => HeadInfo::of_request(&self.fields),
            Role::Client => HeadInfo::of_response(&self.fields),
        };
        match info {
            Ok(info) => self.info = info,
            Err(malformed) => return Ok(Err(malformed)),
        }
        if self.short_ways
            && self.decoder.changes() == changes
            && let Some(at) = self.memo.learn(block, changes, &mut self.fields, self.info)
        {
            self.head_at = HeadAt::Memo(at);
        }
        Ok(Ok(()))
    }

    /// Decodes trailers. RFC 9113 section 8.1.
    pub(crate) fn read_trailers(
        &mut self,
        block: &[u8],
    ) -> Result<Result<(), Malformed>, ConnectionError> {
        self.decode(block)?;
        self.info = HeadInfo::EMPTY;
        Ok(headers::check_trailers(&self.fields, self.role))
    }

    /// Client: decodes the trailers of a response, and returns the status of its call. Those that
    /// say OK and nothing else are known by their bytes.
    pub(crate) fn read_status_trailers(
        &mut self,
        block: &[u8],
        end_stream: bool,
    ) -> Result<Result<LateStatus, Malformed>, ConnectionError> {
        let changes = self.decoder.changes();
        if self.short_ways && end_stream && self.ok_trailers.are(block, changes) {
            return Ok(Ok(LateStatus::Ok));
        }
        if let Err(malformed) = self.read_trailers(block)? {
            return Ok(Err(malformed));
        }
        if !end_stream {
            return Ok(Err(Malformed("trailers without END_STREAM")));
        }
        let status = self.status();
        if !status.is_bare_ok() {
            return Ok(Ok(LateStatus::Other(Box::new(status))));
        }
        if self.decoder.changes() == changes {
            self.ok_trailers.learn(block, changes);
        }
        Ok(Ok(LateStatus::Ok))
    }

    /// Decodes a block into the fields, as the table depends on it, and no more. An error ends the
    /// connection: the two sides no longer agree about the table.
    pub(crate) fn decode(&mut self, block: &[u8]) -> Result<(), ConnectionError> {
        self.head_at = HeadAt::Fields;
        self.route = None;
        self.decoder
            .decode(block, &field_limits_of(self.role), &mut self.fields)
            .map_err(|error| {
                if error.is_limit() {
                    ConnectionError::calm(
                        "a header block has too many fields, or they are too large",
                    )
                } else {
                    ConnectionError {
                        code: ErrorCode::CompressionError,
                        why: "a header block cannot be decoded",
                    }
                }
            })
    }

    /// Returns the last head, or the last trailers.
    #[inline]
    pub(crate) fn head(&self) -> Head<'_> {
        match self.head_at {
            HeadAt::Fields => Head {
                info: &self.info,
                fields: &self.fields,
            },
            HeadAt::Memo(at) => self.memo.head(at),
        }
    }

    /// Returns what was noted for the last head.
    #[inline]
    pub(crate) fn route(&self) -> Option<u64> {
        match self.head_at {
            HeadAt::Fields => self.route,
            HeadAt::Memo(at) => self.memo.route(at),
        }
    }

    /// Notes where the last head leads, for whenever the same block comes.
    pub(crate) fn set_route(&mut self, route: u64) {
        match self.head_at {
            HeadAt::Fields => self.route = Some(route),
            HeadAt::Memo(at) => self.memo.set_route(at, route),
        }
    }

    /// Reads the status from the last fields. gRPC over HTTP/2, "Trailers".
    pub(crate) fn status(&self) -> Status {
        let (mut code, mut message, mut metadata) = (None, String::new(), Metadata::new());
        for field in self.head().fields.fields() {
            match field.known {
                KnownName::GrpcStatus => code = Some(Code::parse(field.value)),
                KnownName::GrpcMessage => message = status::decode_message(field.value),
                KnownName::Other | KnownName::Authorization | KnownName::GrpcStatusDetailsBin => {
                    // What is no metadata cannot be handed on, and is no reason to lose the status.
                    let value = headers::without_outer_space(field.value);
                    let _ = metadata.push_received(field.name, value);
                }
                _ => {}
            }
        }
        let status = match code {
            Some(Code::Ok) if message.is_empty() => Status::OK,
            Some(code) => Status::new(code, message),
            None => Status::new(Code::Unknown, "the answer has no grpc-status"),
        };
        status.with_metadata(metadata)
    }

    /// Forgets the last head and the memo, and gives their memory back.
    pub(crate) fn trim(&mut self) {
        self.memo = Memo::default();
        self.head_at = HeadAt::Fields;
        self.info = HeadInfo::EMPTY;
        self.fields.release_memory();
    }

    /// Returns the bytes of memory that it holds.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memo.memory_bytes()
            + self.ok_trailers.memory_bytes()
            + self.fields.memory_bytes()
            + self.decoder.memory_bytes()
            + self.block.bytes.capacity()
    }
}

/// What a header block that comes to this role may contain. It is not kept: every idle connection
/// would hold it.
fn field_limits_of(role: Role) -> FieldLimits {
    FieldLimits {
        max_fields: match role {
            Role::Server => limits::MAX_FIELDS,
            Role::Client => limits::MAX_RESPONSE_FIELDS,
        },
        ..FieldLimits::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::{Encoder, Indexing};

    fn block(fields: &[(&str, &str)], indexing: Indexing, encoder: &mut Encoder) -> Vec<u8> {
        let mut block = Vec::new();
        for (name, value) in fields {
            encoder.field(name.as_bytes(), value.as_bytes(), indexing, &mut block);
        }
        block
    }

    const REQUEST: [(&str, &str); 4] = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/a.B/C"),
        ("content-type", "application/grpc"),
    ];

    #[test]
    fn a_route_is_remembered_with_the_block_and_not_beyond_it() {
        let mut reader = HeadReader::new(&Config::server());
        let plain = block(&REQUEST, Indexing::Without, &mut Encoder::new());
        for expected in [None, Some(7)] {
            assert_eq!(reader.read_head(&plain), Ok(Ok(())));
            assert_eq!(
                (reader.head().path(), reader.route()),
                (&b"/a.B/C"[..], expected)
            );
            reader.set_route(7);
        }
        let other = block(&REQUEST[..3], Indexing::Without, &mut Encoder::new());
        assert_eq!(reader.read_head(&other), Ok(Ok(())));
        assert_eq!((reader.head().is_grpc(), reader.route()), (false, None));
        reader.trim();
        assert_eq!(reader.read_head(&plain), Ok(Ok(())));
        assert_eq!(reader.route(), None, "the memo was given back");
    }

    #[test]
    fn a_block_that_changes_the_table_is_never_known() {
        let mut reader = HeadReader::new(&Config::server());
        let mut encoder = Encoder::new();
        for _ in 0..2 {
            let head = block(&REQUEST, Indexing::Incremental, &mut encoder);
            assert_eq!(reader.read_head(&head), Ok(Ok(())));
            assert_eq!(reader.head().path(), b"/a.B/C");
        }
        let malformed = block(&REQUEST[1..], Indexing::Without, &mut encoder);
        assert!(reader.read_head(&malformed).is_ok_and(|read| read.is_err()));
    }

    #[test]
    fn a_block_is_gathered_from_its_frames_within_bounds() {
        let mut reader = HeadReader::new(&Config::server());
        let info = BlockInfo {
            stream: 3,
            end_stream: true,
            depends_on_itself: false,
        };
        assert!(reader.continue_block(b"").is_err(), "none has begun");
        for _ in 0..2 {
            reader.begin_block(info, b"ab").expect("it is small");
            assert_eq!(reader.pending_stream(), Some(3));
            reader.continue_block(b"c").expect("it is small");
            assert_eq!(reader.end_block(), (info, b"abc".to_vec()));
            assert_eq!(reader.pending_stream(), None);
        }
        reader.begin_block(info, b"").expect("it is small");
        let allowed = (0..).take_while(|_| reader.continue_block(b"").is_ok());
        assert_eq!(allowed.count() as u32, limits::MAX_CONTINUATION_FRAMES);
        let largest = vec![0; limits::MAX_COMPRESSED_BLOCK_BYTES];
        assert_eq!(reader.begin_block(info, &largest), Ok(()));
        let larger = reader.continue_block(b"x").map_err(|error| error.code);
        assert_eq!(larger, Err(ErrorCode::EnhanceYourCalm));
    }

    #[test]
    fn trailers_are_read_as_the_status_of_their_call() {
        let mut reader = HeadReader::new(&Config::client());
        let read = |reader: &mut HeadReader, fields: &[(&str, &str)], end_stream| {
            let trailers = block(fields, Indexing::Without, &mut Encoder::new());
            let read = reader.read_status_trailers(&trailers, end_stream);
            match read.expect("it can be decoded") {
                Err(_) => None,
                Ok(LateStatus::Other(status)) => Some(*status),
                Ok(_) => Some(Status::OK),
            }
        };
        let ok = [("grpc-status", "0")];
        for _ in 0..2 {
            assert_eq!(read(&mut reader, &ok, true), Some(Status::OK));
            assert_eq!(read(&mut reader, &ok, false), None, "END_STREAM is missing");
        }
        let failed = [("grpc-status", "5"), ("grpc-message", "no%20key")];
        let expected = Status::new(Code::NotFound, "no key");
        assert_eq!(read(&mut reader, &failed, true), Some(expected));
        assert_eq!(read(&mut reader, &[(":status", "200")], true), None);
    }

    /// Whatever part of it allocates, the sum grows by as much; and again when the part grows once
    /// more.
    #[test]
    fn what_the_parts_hold_is_counted_to_the_byte() {
        type Step = fn(&mut HeadReader, usize);
        let parts: [(&str, Step); 5] = [
            ("memo", |reader, round| {
                let mut fields = Fields::new();
                let (name, value) = ([b'n'; 100], [b'v'; 500]);
                let pushed = fields.push(&name, &value, &FieldLimits::default());
                pushed.expect("within the limits");
                let block = [round as u8; 200];
                reader.memo.learn(&block, 1, &mut fields, HeadInfo::EMPTY);
            }),
            ("trailers", |reader, round| {
                reader.ok_trailers.learn(&vec![7; 100 << round], 1);
            }),
            ("fields", |reader, _| {
                for _ in 0..10 {
                    let (fields, limits) = (&mut reader.fields, FieldLimits::default());
                    (fields.push(b"name", &[b'v'; 200], &limits)).expect("within the limits");
                }
            }),
            ("decoder", |reader, round| {
                let mut block = Vec::with_capacity(4_096);
                for value in 0..5_u8 {
                    let value = [b'0' + 5 * round as u8 + value; 150];
                    Encoder::new().field(b"x", &value, Indexing::Incremental, &mut block);
                }
                let (limits, mut fields) = (FieldLimits::default(), Fields::new());
                (reader.decoder.decode(&block, &limits, &mut fields)).expect("a valid block");
            }),
            ("block", |reader, round| {
                reader.block.bytes.reserve_exact(300 << round)
            }),
        ];
        let mut reader = HeadReader::new(&Config::server());
        for round in 0..2 {
            for (part, step) in parts {
                let before = reader.memory_bytes();
                let allocated =
                    allocation_counter::measure(|| step(&mut reader, round)).bytes_current;
                let counted = reader.memory_bytes() as i64 - before as i64;
                assert!(allocated > 0, "{part}, round {round}: nothing is measured");
                assert_eq!(counted, allocated, "{part}, round {round}");
            }
        }
    }
}
