//! What a stream says that uploads a blob.

use super::error::UploadError;
use super::peer::UploadPeer;
use crate::database_id::DatabaseId;

/// How a stream of an upload begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begin {
    /// The database.
    pub database: DatabaseId,
    /// The name, which has been [checked](super::check_name).
    pub name: Box<str>,
    /// Names the upload; empty: it cannot be resumed.
    pub upload_id: Box<[u8]>,
    /// From where it goes on; 0: it begins anew.
    pub offset: u64,
    /// What all of it will have, if that is known.
    pub size_bytes: Option<u64>,
    /// For the description.
    pub content_type: Box<str>,
    /// When it is, in milliseconds since 1970.
    pub now_ms: u64,
}

/// What the end of an upload says of the whole content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContentEnd {
    /// Its CRC32C.
    pub crc32c: Option<u32>,
    /// Its SHA-256.
    pub sha256: Option<[u8; 32]>,
}

/// A stream that uploads.
pub trait Owner: Send + Sync {
    /// The upload is lost to the stream: nothing that it sends is stored any more.
    fn lost(&self, why: UploadError);

    /// From where the stream comes.
    fn peer(&self) -> UploadPeer {
        UploadPeer::Unknown
    }
}

/// A chunk among the bytes of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// How many of the bytes.
    pub bytes: usize,
    /// The checksum that the whole chunk was sent with.
    pub crc32c: Option<u32>,
    /// More of the chunk follows: the first of the chunks that come next goes on with it. Only the
    /// last may be open.
    pub is_open: bool,
}

/// Names an upload that can be resumed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct UploadKey {
    pub(super) database: DatabaseId,
    pub(super) name: Box<str>,
    pub(super) upload_id: Box<[u8]>,
}

impl Begin {
    /// Names the upload, if it can be resumed.
    pub(super) fn key(&self) -> Option<UploadKey> {
        (!self.upload_id.is_empty()).then(|| UploadKey {
            database: self.database,
            name: self.name.clone(),
            upload_id: self.upload_id.clone(),
        })
    }

    /// Returns how many bytes are to come, as far as that is known.
    pub(super) fn rest_bytes(&self) -> u64 {
        self.size_bytes.unwrap_or(0).saturating_sub(self.offset)
    }
}
