//! `pelton.v1.Blob`.

mod download;
mod upload;
mod upload_future;

pub use download::{Download, DownloadError};
pub use upload::{UploadError, UploadOutcome};
pub use upload_future::UploadWriter;

use api::blob::{
    BlobDescription, DeleteBlobRequest, DiscardUploadsRequest, DownloadRequest, ListRequest,
    ListUploadsRequest, StatRequest, UploadBegin, UploadDescription, UploadPart, UploadRequest,
};
use api::rpc::blob as rpc;

use super::{Call, OpenStream, PagedMethod, Pages, Reply, TypedMethod};
use crate::error::CallError;

/// The blobs of a database.
#[derive(Debug)]
pub struct Blobs<'c, C> {
    over: &'c mut C,
    database: &'c str,
}

impl<'c, C> Blobs<'c, C> {
    /// Returns the blobs of the default database.
    pub fn new(over: &'c mut C) -> Blobs<'c, C> {
        Blobs::of(over, "")
    }

    /// Returns the blobs of the database `database`.
    pub fn of(over: &'c mut C, database: &'c str) -> Blobs<'c, C> {
        Blobs { over, database }
    }

    /// Stores a blob.
    pub fn upload<'a>(&'a mut self, name: &'a str) -> Call<'a, rpc::Upload, &'a mut C> {
        let begin = UploadBegin {
            database: self.database,
            name,
            ..UploadBegin::default()
        };
        let part = Some(UploadPart::Begin(begin));
        Call::new(self.over, UploadRequest { part })
    }

    /// Reads a blob.
    pub fn download<'a>(&'a mut self, name: &'a str) -> Call<'a, rpc::Download, &'a mut C> {
        let request = DownloadRequest {
            database: self.database,
            name,
            ..DownloadRequest::default()
        };
        Call::new(self.over, request)
    }

    /// Describes a blob, or, if the call says so, an upload that is not complete.
    pub fn stat<'a>(&'a mut self, name: &'a str) -> Call<'a, rpc::Stat, &'a mut C> {
        let request = StatRequest {
            database: self.database,
            name,
            ..StatRequest::default()
        };
        Call::new(self.over, request)
    }

    /// Describes blobs in the order of their names: all of the database, unless the call says
    /// which.
    pub fn list(&mut self) -> Call<'_, rpc::List, &mut C> {
        let request = ListRequest {
            database: self.database,
            ..ListRequest::default()
        };
        Call::new(self.over, request)
    }

    /// Removes a blob. Downloads of it that have begun go on.
    pub fn delete<'a>(&'a mut self, name: &'a str) -> Call<'a, rpc::Delete, &'a mut C> {
        let request = DeleteBlobRequest {
            database: self.database,
            name,
            ..DeleteBlobRequest::default()
        };
        Call::new(self.over, request)
    }

    /// Lists the uploads that are not complete.
    pub fn list_uploads(&mut self) -> Call<'_, rpc::ListUploads, &mut C> {
        let database = self.database;
        Call::new(self.over, ListUploadsRequest { database })
    }

    /// Discards the uploads of a name that are not complete: those with this id; empty: those
    /// without one. The outcome is how many there were.
    pub fn discard_uploads<'a>(
        &'a mut self,
        name: &'a str,
        upload_id: &'a [u8],
    ) -> Call<'a, rpc::DiscardUploads, &'a mut C> {
        let request = DiscardUploadsRequest {
            database: self.database,
            name,
            upload_id,
        };
        Call::new(self.over, request)
    }
}

/// What is known of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBlob {
    /// Its name.
    pub name: String,
    /// Bytes of its content.
    pub size_bytes: u64,
    /// CRC32C of its content.
    pub crc32c: u32,
    /// SHA-256 of its content, if the uploader gave it.
    pub sha256: Option<[u8; 32]>,
    /// As the uploader gave it.
    pub content_type: String,
    /// Names this content, and grows with each upload to the name; never 0.
    pub version: u64,
    /// When it was stored, in milliseconds since 1970.
    pub created_at_ms: u64,
}

impl StoredBlob {
    fn of(blob: &BlobDescription<'_>) -> StoredBlob {
        StoredBlob {
            name: blob.name.to_owned(),
            size_bytes: blob.size_bytes,
            crc32c: blob.crc32c,
            sha256: blob.sha256.try_into().ok(),
            content_type: blob.content_type.to_owned(),
            version: blob.version,
            created_at_ms: blob.created_at_ms,
        }
    }
}

impl<'a, O> Call<'a, rpc::Stat, O> {
    /// Asks for this upload in the place of the blob.
    pub fn upload_id(mut self, upload_id: &'a [u8]) -> Self {
        self.request.upload_id = upload_id;
        self
    }
}

/// What a stat has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlobStat {
    /// There is no such blob, or no such upload.
    Missing,
    /// The blob.
    Blob(StoredBlob),
    /// The upload that was asked for is not complete, and goes on behind so many bytes.
    Unfinished {
        /// Bytes that are stored.
        stored_bytes: u64,
    },
}

impl TypedMethod for rpc::Stat {
    type Outcome = BlobStat;

    fn outcome(reply: Reply<rpc::Stat>) -> BlobStat {
        let stat = reply.message();
        match &stat.blob {
            _ if !stat.found => BlobStat::Missing,
            Some(blob) => BlobStat::Blob(StoredBlob::of(blob)),
            None => BlobStat::Unfinished {
                stored_bytes: stat.stored_bytes,
            },
        }
    }
}

impl<O> Call<'_, rpc::Delete, O> {
    /// Only if the blob has this version.
    pub fn if_version(mut self, version: u64) -> Self {
        self.request.if_version = Some(version);
        self
    }
}

/// What became of removing a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeletedBlob {
    /// False: there was no such blob, or it has another version.
    pub deleted: bool,
    /// The version that was found; 0: there was none.
    pub version: u64,
}

impl TypedMethod for rpc::Delete {
    type Outcome = DeletedBlob;

    fn outcome(reply: Reply<rpc::Delete>) -> DeletedBlob {
        let delete = reply.message();
        DeletedBlob {
            deleted: delete.deleted,
            version: delete.version,
        }
    }
}

/// An upload that is not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedUpload {
    /// The blob that it may become.
    pub name: String,
    /// As its caller chose it; empty: it cannot be resumed.
    pub upload_id: Vec<u8>,
    /// Bytes that are stored.
    pub stored_bytes: u64,
    /// When something of it came last, in milliseconds since 1970.
    pub touched_at_ms: u64,
    /// A call goes on with it.
    pub is_open: bool,
    /// Where its last call came from; empty: not known.
    pub peer: String,
}

impl UnfinishedUpload {
    fn of(upload: &UploadDescription<'_>) -> UnfinishedUpload {
        UnfinishedUpload {
            name: upload.name.to_owned(),
            upload_id: upload.upload_id.to_vec(),
            stored_bytes: upload.stored_bytes,
            touched_at_ms: upload.touched_at_ms,
            is_open: upload.open,
            peer: upload.peer.to_owned(),
        }
    }
}

impl TypedMethod for rpc::ListUploads {
    type Outcome = Vec<UnfinishedUpload>;

    fn outcome(reply: Reply<rpc::ListUploads>) -> Vec<UnfinishedUpload> {
        // They were decoded when the response came.
        let uploads = reply.message().uploads;
        let uploads = uploads.iter().flatten();
        uploads
            .map(|upload| UnfinishedUpload::of(&upload))
            .collect()
    }
}

impl TypedMethod for rpc::DiscardUploads {
    type Outcome = u64;

    fn outcome(reply: Reply<rpc::DiscardUploads>) -> u64 {
        reply.message().discarded
    }
}

impl<'a, O> Call<'a, rpc::List, O> {
    /// Only blobs whose names begin so.
    pub fn prefix(mut self, prefix: &'a str) -> Self {
        self.request.prefix = prefix;
        self
    }

    /// Goes on after this name.
    pub fn start_after(mut self, name: &'a str) -> Self {
        self.request.start_after = name;
        self
    }

    /// Ends after so many; 0: no limit.
    pub fn limit(mut self, blobs: u64) -> Self {
        self.request.limit = blobs;
        self
    }
}

impl<'a, C: OpenStream> Call<'a, rpc::List, &'a mut C> {
    /// Begins the list. Its time is that of the whole list.
    ///
    /// # Errors
    /// If the call cannot begin.
    pub fn send(self) -> Result<Pages<rpc::List, C::Source<'a>>, CallError> {
        let (over, request, options) = self.into_parts();
        over.open_stream(&request, &options).map(Pages::new)
    }
}

impl PagedMethod for rpc::List {
    type Page = Vec<StoredBlob>;

    fn page(reply: &Reply<rpc::List>) -> (Vec<StoredBlob>, bool) {
        let page = reply.message();
        // They were decoded when the page came.
        let blobs = page.blobs.iter().flatten();
        let blobs = blobs.map(|blob| StoredBlob::of(&blob)).collect();
        (blobs, page.last)
    }
}
