//! The messages of `pelton.v1.Blob`, both ways. `proto/pelton/v1/blob.proto` says what the fields mean; here stand only their
//! numbers.

pub use super::upload_messages::*;
use crate::keyvalue::messages::{Invalid, decode_fields, decode_parts, part};
use protobuf::{Reader, writer};

/// What is known of a blob.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the file")]
pub struct BlobDescription<'a> {
    pub name: &'a str,
    pub size_bytes: u64,
    pub crc32c: u32,
    pub sha256: &'a [u8],
    pub content_type: &'a str,
    pub version: u64,
    pub created_at_ms: u64,
}

impl<'a> BlobDescription<'a> {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        writer::bytes(out, 1, self.name.as_bytes());
        writer::uint64(out, 2, self.size_bytes);
        writer::fixed32(out, 3, self.crc32c);
        writer::bytes(out, 4, self.sha256);
        writer::bytes(out, 5, self.content_type.as_bytes());
        writer::uint64(out, 6, self.version);
        writer::uint64(out, 7, self.created_at_ms);
    }

    /// Decodes the message.
    pub fn decode(message: &'a [u8]) -> Result<BlobDescription<'a>, Invalid> {
        let mut blob = BlobDescription::default();
        let names = &[
            "",
            "name",
            "size_bytes",
            "crc32c",
            "sha256",
            "content_type",
            "version",
            "created_at_ms",
        ];
        decode_fields(message, names, |number, value| {
            match number {
                1 => blob.name = value.string()?,
                2 => blob.size_bytes = value.varint()?,
                3 => blob.crc32c = value.fixed32()?,
                4 => blob.sha256 = value.bytes()?,
                5 => blob.content_type = value.string()?,
                6 => blob.version = value.varint()?,
                7 => blob.created_at_ms = value.varint()?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(blob)
    }
}

/// One message of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadRequest<'a> {
    /// The first one.
    Begin(UploadBegin<'a>),
    /// One in between.
    Chunk(UploadChunk<'a>),
    /// The last one.
    End(UploadEnd<'a>),
}

/// What an upload will be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the file")]
pub struct UploadBegin<'a> {
    pub database: &'a str,
    pub name: &'a str,
    pub upload_id: &'a [u8],
    pub offset: u64,
    pub size_bytes: Option<u64>,
    pub content_type: &'a str,
    pub if_version: Option<u64>,
}

/// Some of the content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the file")]
pub struct UploadChunk<'a> {
    pub data: &'a [u8],
    pub crc32c: Option<u32>,
}

/// What the whole content is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the file")]
pub struct UploadEnd<'a> {
    pub crc32c: Option<u32>,
    pub sha256: &'a [u8],
}

impl<'a> UploadRequest<'a> {
    /// Decodes the message; `None`: there is no part in it.
    pub fn decode(message: &'a [u8]) -> Result<Option<UploadRequest<'a>>, Invalid> {
        let mut request = None;
        decode_parts(message, &["", "begin", "chunk", "end"], |number, value| {
            match number {
                1 => {
                    let begin = UploadBegin::decode(part(value, "begin")?)?;
                    request = Some(UploadRequest::Begin(begin));
                }
                2 => {
                    let chunk = UploadChunk::decode(part(value, "chunk")?)?;
                    request = Some(UploadRequest::Chunk(chunk));
                }
                3 => {
                    let end = UploadEnd::decode(part(value, "end")?)?;
                    request = Some(UploadRequest::End(end));
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(request)
    }

    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            UploadRequest::Begin(begin) => writer::message(out, 1, |out| begin.encode(out)),
            UploadRequest::Chunk(chunk) => {
                writer::bytes_head(out, 2, chunk.encoded_len());
                chunk.encode(out);
            }
            UploadRequest::End(end) => writer::message(out, 3, |out| {
                if let Some(crc32c) = end.crc32c {
                    writer::fixed32_always(out, 1, crc32c);
                }
                writer::bytes(out, 2, end.sha256);
            }),
        }
    }
}

impl<'a> UploadBegin<'a> {
    fn decode(message: &'a [u8]) -> Result<UploadBegin<'a>, Invalid> {
        let mut begin = UploadBegin::default();
        let mut refused = None;
        let names = &[
            "",
            "begin.database",
            "begin.name",
            "begin.upload_id",
            "begin.offset",
            "begin.size_bytes",
            "begin.content_type",
            "begin.if_version",
        ];
        decode_fields(message, names, |number, value| {
            match number {
                1 => begin.database = value.string()?,
                2 => begin.name = value.string()?,
                3 => begin.upload_id = value.bytes()?,
                4 => begin.offset = value.varint()?,
                5 => begin.size_bytes = Some(value.varint()?),
                6 => begin.content_type = value.string()?,
                7 => begin.if_version = Some(value.varint()?),
                _ => refused = Invalid::not_served(number).or(refused),
            }
            Ok(())
        })?;
        refused.map_or(Ok(begin), Err)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        writer::bytes(out, 1, self.database.as_bytes());
        writer::bytes(out, 2, self.name.as_bytes());
        writer::bytes(out, 3, self.upload_id);
        writer::uint64(out, 4, self.offset);
        if let Some(size_bytes) = self.size_bytes {
            writer::uint64_always(out, 5, size_bytes);
        }
        writer::bytes(out, 6, self.content_type.as_bytes());
        if let Some(version) = self.if_version {
            writer::uint64_always(out, 7, version);
        }
    }
}

impl<'a> UploadChunk<'a> {
    /// Its fields, by number.
    pub(super) const NAMES: &'static [&'static str] = &["", "chunk.data", "chunk.crc32c"];

    pub(super) fn decode(message: &'a [u8]) -> Result<UploadChunk<'a>, Invalid> {
        let mut chunk = UploadChunk::default();
        decode_fields(message, UploadChunk::NAMES, |number, value| {
            match number {
                1 => chunk.data = value.bytes()?,
                2 => chunk.crc32c = Some(value.fixed32()?),
                _ => {}
            }
            Ok(())
        })?;
        Ok(chunk)
    }

    fn encoded_len(&self) -> usize {
        let data = match self.data.len() {
            0 => 0,
            bytes => writer::bytes_len(1, bytes),
        };
        data + self.crc32c.map_or(0, |_| 5)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        writer::bytes(out, 1, self.data);
        if let Some(crc32c) = self.crc32c {
            writer::fixed32_always(out, 2, crc32c);
        }
    }
}

impl<'a> UploadEnd<'a> {
    fn decode(message: &'a [u8]) -> Result<UploadEnd<'a>, Invalid> {
        let mut end = UploadEnd::default();
        decode_fields(
            message,
            &["", "end.crc32c", "end.sha256"],
            |number, value| {
                match number {
                    1 => end.crc32c = Some(value.fixed32()?),
                    2 => end.sha256 = value.bytes()?,
                    _ => {}
                }
                Ok(())
            },
        )?;
        Ok(end)
    }
}

/// The answer to an upload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the file")]
pub struct UploadResponse<'a> {
    pub applied: bool,
    pub blob: Option<BlobDescription<'a>>,
}

impl<'a> UploadResponse<'a> {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        writer::bool(out, 1, self.applied);
        if let Some(blob) = self.blob {
            writer::message(out, 2, |out| blob.encode(out));
        }
    }

    /// Decodes the message.
    pub fn decode(message: &'a [u8]) -> Result<UploadResponse<'a>, Invalid> {
        let mut response = UploadResponse::default();
        decode_parts(message, &["", "applied", "blob"], |number, value| {
            match number {
                1 => response.applied = value.bool().unwrap_or(false),
                2 => response.blob = Some(BlobDescription::decode(part(value, "blob")?)?),
                _ => {}
            }
            Ok(())
        })?;
        Ok(response)
    }
}

/// What is to be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the file")]
pub struct DownloadRequest<'a> {
    pub database: &'a str,
    pub name: &'a str,
    pub offset: u64,
    pub length_bytes: u64,
    pub chunk_bytes: u32,
    pub if_version: Option<u64>,
}

impl<'a> DownloadRequest<'a> {
    /// Decodes the message.
    pub fn decode(message: &'a [u8]) -> Result<DownloadRequest<'a>, Invalid> {
        let mut request = DownloadRequest::default();
        let names = &[
            "",
            "database",
            "name",
            "offset",
            "length_bytes",
            "chunk_bytes",
            "if_version",
        ];
        decode_fields(message, names, |number, value| {
            match number {
                1 => request.database = value.string()?,
                2 => request.name = value.string()?,
                3 => request.offset = value.varint()?,
                4 => request.length_bytes = value.varint()?,
                5 => request.chunk_bytes = value.uint32()?,
                6 => request.if_version = Some(value.varint()?),
                _ => {}
            }
            Ok(())
        })?;
        Ok(request)
    }

    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        writer::bytes(out, 1, self.database.as_bytes());
        writer::bytes(out, 2, self.name.as_bytes());
        writer::uint64(out, 3, self.offset);
        writer::uint64(out, 4, self.length_bytes);
        writer::uint64(out, 5, u64::from(self.chunk_bytes));
        if let Some(version) = self.if_version {
            writer::uint64_always(out, 6, version);
        }
    }
}

/// Some of a content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the file")]
pub struct DownloadResponse<'a> {
    pub blob: Option<BlobDescription<'a>>,
    pub data: &'a [u8],
    pub crc32c: Option<u32>,
}

impl<'a> DownloadResponse<'a> {
    /// Appends all of the message but `data_bytes` bytes of data, which follow it.
    pub fn encode_head(&self, out: &mut Vec<u8>, data_bytes: usize) {
        if let Some(blob) = self.blob {
            writer::message(out, 1, |out| blob.encode(out));
        }
        if let Some(crc32c) = self.crc32c {
            writer::fixed32_always(out, 3, crc32c);
        }
        if data_bytes > 0 {
            writer::bytes_head(out, 2, data_bytes);
        }
    }

    /// Decodes the message.
    pub fn decode(message: &'a [u8]) -> Result<DownloadResponse<'a>, Invalid> {
        let mut response = DownloadResponse::default();
        let mut reader = Reader::new(message);
        let names = &["", "blob", "data", "crc32c"];
        let malformed = |error| Invalid::malformed(error, names);
        while let Some((number, value)) = reader.next_field().map_err(malformed)? {
            match number {
                1 => response.blob = Some(BlobDescription::decode(part(value, "blob")?)?),
                2 => response.data = part(value, "data")?,
                3 => response.crc32c = value.fixed32().ok(),
                _ => {}
            }
        }
        Ok(response)
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the file")]
pub struct StatRequest<'a> {
    pub database: &'a str,
    pub name: &'a str,
    pub upload_id: &'a [u8],
}

impl<'a> StatRequest<'a> {
    /// Decodes the message.
    pub fn decode(message: &'a [u8]) -> Result<StatRequest<'a>, Invalid> {
        let mut request = StatRequest::default();
        let names = &["", "database", "name", "upload_id"];
        decode_fields(message, names, |number, value| {
            match number {
                1 => request.database = value.string()?,
                2 => request.name = value.string()?,
                3 => request.upload_id = value.bytes()?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(request)
    }

    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        writer::bytes(out, 1, self.database.as_bytes());
        writer::bytes(out, 2, self.name.as_bytes());
        writer::bytes(out, 3, self.upload_id);
    }
}

/// What is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the file")]
pub struct StatResponse<'a> {
    pub found: bool,
    pub blob: Option<BlobDescription<'a>>,
    pub stored_bytes: u64,
}

impl<'a> StatResponse<'a> {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        writer::bool(out, 1, self.found);
        if let Some(blob) = self.blob {
            writer::message(out, 2, |out| blob.encode(out));
        }
        writer::uint64(out, 3, self.stored_bytes);
    }

    /// Decodes the message.
    pub fn decode(message: &'a [u8]) -> Result<StatResponse<'a>, Invalid> {
        let mut response = StatResponse::default();
        decode_parts(
            message,
            &["", "found", "blob", "stored_bytes"],
            |number, value| {
                match number {
                    1 => response.found = value.bool().unwrap_or(false),
                    2 => response.blob = Some(BlobDescription::decode(part(value, "blob")?)?),
                    3 => response.stored_bytes = value.varint().unwrap_or(0),
                    _ => {}
                }
                Ok(())
            },
        )?;
        Ok(response)
    }
}

/// Which blobs to list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the file")]
pub struct ListRequest<'a> {
    pub database: &'a str,
    pub prefix: &'a str,
    pub start_after: &'a str,
    pub limit: u64,
}

impl<'a> ListRequest<'a> {
    /// Decodes the message.
    pub fn decode(message: &'a [u8]) -> Result<ListRequest<'a>, Invalid> {
        let mut request = ListRequest::default();
        let names = &["", "database", "prefix", "start_after", "limit"];
        decode_fields(message, names, |number, value| {
            match number {
                1 => request.database = value.string()?,
                2 => request.prefix = value.string()?,
                3 => request.start_after = value.string()?,
                4 => request.limit = value.varint()?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(request)
    }

    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        writer::bytes(out, 1, self.database.as_bytes());
        writer::bytes(out, 2, self.prefix.as_bytes());
        writer::bytes(out, 3, self.start_after.as_bytes());
        writer::uint64(out, 4, self.limit);
    }
}

/// Visits the blobs of a `ListResponse`; returns whether it says that the list is complete.
pub fn decode_list<'a>(
    message: &'a [u8],
    mut visit: impl FnMut(BlobDescription<'a>),
) -> Result<bool, Invalid> {
    let mut last = false;
    decode_parts(message, &["", "blobs", "last"], |number, value| {
        match number {
            1 => visit(BlobDescription::decode(part(value, "blobs")?)?),
            2 => last = value.bool().unwrap_or(false),
            _ => {}
        }
        Ok(())
    })?;
    Ok(last)
}

/// What is to be deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the file")]
pub struct DeleteBlobRequest<'a> {
    pub database: &'a str,
    pub name: &'a str,
    pub if_version: Option<u64>,
}

impl<'a> DeleteBlobRequest<'a> {
    /// Decodes the message.
    pub fn decode(message: &'a [u8]) -> Result<DeleteBlobRequest<'a>, Invalid> {
        let mut request = DeleteBlobRequest::default();
        let mut refused = None;
        let names = &["", "database", "name", "if_version"];
        decode_fields(message, names, |number, value| {
            match number {
                1 => request.database = value.string()?,
                2 => request.name = value.string()?,
                3 => request.if_version = Some(value.varint()?),
                _ => refused = Invalid::not_served(number).or(refused),
            }
            Ok(())
        })?;
        refused.map_or(Ok(request), Err)
    }

    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        writer::bytes(out, 1, self.database.as_bytes());
        writer::bytes(out, 2, self.name.as_bytes());
        if let Some(version) = self.if_version {
            writer::uint64_always(out, 3, version);
        }
    }
}

/// What was deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the file")]
pub struct DeleteBlobResponse {
    pub deleted: bool,
    pub version: u64,
}

impl DeleteBlobResponse {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        writer::bool(out, 1, self.deleted);
        writer::uint64(out, 2, self.version);
    }

    /// Decodes the message.
    pub fn decode(message: &[u8]) -> Result<DeleteBlobResponse, Invalid> {
        let mut response = DeleteBlobResponse::default();
        decode_fields(message, &["", "deleted", "version"], |number, value| {
            match number {
                1 => response.deleted = value.bool()?,
                2 => response.version = value.varint()?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(response)
    }
}
