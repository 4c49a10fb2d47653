//! `pelton.v1.Blob`: `proto/pelton/v1/blob.proto`.

crate::method::methods! {
    /// Stores a blob. The first message says what it will be, chunks follow, the last message ends
    /// it. An upload that was interrupted goes on where it stopped: ask Stat for the upload's
    /// stored bytes, and begin again with the same upload_id and that offset. It is forgotten 24
    /// hours (by default) after its last chunk.
    UPLOAD ClientStreaming "pelton.v1.Blob/Upload";
    /// Reads a blob or a part of it. It stays the same blob to the end, even if it is replaced
    /// meanwhile.
    DOWNLOAD ServerStreaming "pelton.v1.Blob/Download";
    /// Describes a blob, or an upload that is not complete.
    STAT Unary "pelton.v1.Blob/Stat";
    /// Describes the blobs whose names begin with a prefix, in the order of their names.
    LIST ServerStreaming "pelton.v1.Blob/List";
    /// Removes a blob. Downloads of it that have begun go on.
    DELETE Unary "pelton.v1.Blob/Delete";
    /// Lists the uploads of a database that are not complete, in the order of their names. A
    /// database has at most 1 000: when there are as many, the oldest one that no call goes on
    /// with, of the address with most, makes room for the next.
    LIST_UPLOADS Unary "pelton.v1.Blob/ListUploads";
    /// Discards uploads that are not complete, and what is stored of them. A call that goes on
    /// with one ends with ABORTED. One whose content is being completed stays.
    DISCARD_UPLOADS Unary "pelton.v1.Blob/DiscardUploads";
}

protobuf::oneof! {
    /// One of the fields of `part`.
    pub enum UploadPart<'a> {
        /// The first message.
        1 Begin(begin): message UploadBegin<'a>,
        /// All messages between.
        2 Chunk(chunk): message UploadChunk<'a>,
        /// The last message. Without it the upload stays incomplete and can be resumed.
        3 End(end): message UploadEnd<'a>,
    }
}

protobuf::message! {
    /// What is known of a blob.
    pub struct BlobDescription<'a> = "pelton.v1.BlobDescription" {
        /// The field `name`.
        1 name: string,
        /// The field `size_bytes`.
        2 size_bytes: uint64,
        /// CRC32C of the whole content.
        3 crc32c: fixed32,
        /// SHA-256 of the whole content, 32 bytes, if the uploader gave it.
        4 sha256: bytes,
        /// As the uploader gave it.
        5 content_type: string,
        /// The sequence of the commit that made this content visible.
        6 version: uint64,
        /// The field `created_at_ms`.
        7 created_at_ms: uint64,
    }

    /// The message `UploadRequest`.
    pub struct UploadRequest<'a> = "pelton.v1.UploadRequest" {} oneofs {
        /// The oneof `part`.
        part: UploadPart<'a>,
    }

    /// The message `UploadBegin`.
    pub struct UploadBegin<'a> = "pelton.v1.UploadBegin" in "begin." {
        /// The field `database`.
        1 database: string,
        /// The field `name`.
        2 name: string,
        /// Chosen by the caller to be able to resume: up to 64 bytes, unlike any other. Empty:
        /// this upload is never resumed.
        3 upload_id: bytes,
        /// From where this stream goes on: the stored_bytes that Stat reported, or 0. OUT_OF_RANGE
        /// if it is anything else.
        4 offset: uint64,
        /// Size of the whole content if it is known: refused early if it exceeds a quota, and
        /// checked at the end.
        5 size_bytes: optional uint64,
        /// The field `content_type`.
        6 content_type: string,
        /// Make the blob visible only if the name has this version; 0 = only if it is new.
        7 if_version: optional uint64,
    } reserved {
        unserved: 12..=15
    }

    /// The message `UploadChunk`.
    pub struct UploadChunk<'a> = "pelton.v1.UploadChunk" in "chunk." [length_first] {
        /// At most 4 194 304 bytes (4 MiB), which always fit into a request of this server: its
        /// limit on requests is above that. RESOURCE_EXHAUSTED for more. 64 KiB to 1 MiB are good
        /// sizes.
        1 data: bytes,
        /// CRC32C of data: damage on the way is noticed at once. Not checked if left out.
        2 crc32c: optional fixed32,
    }

    /// The message `UploadEnd`.
    pub struct UploadEnd<'a> = "pelton.v1.UploadEnd" in "end." {
        /// Of the whole content, across all streams of the upload. Not checked if left out.
        1 crc32c: optional fixed32,
        /// SHA-256 of the whole content, 32 bytes. Not checked if empty.
        2 sha256: bytes,
    }

    /// The message `UploadResponse`.
    pub struct UploadResponse<'a> = "pelton.v1.UploadResponse" {
        /// False: if_version was not met; the content was thrown away.
        1 applied: bool,
        /// The blob as it is stored now; durable as its database promises.
        2 blob: message BlobDescription<'a>,
    }

    /// The message `DownloadRequest`.
    pub struct DownloadRequest<'a> = "pelton.v1.DownloadRequest" {
        /// The field `database`.
        1 database: string,
        /// The field `name`.
        2 name: string,
        /// The first byte. OUT_OF_RANGE if it is behind the end.
        3 offset: uint64,
        /// How many bytes at most; 0 = to the end.
        4 length_bytes: uint64,
        /// Bytes of data in one message at most, 0 = the server chooses; messages are shorter at
        /// first, and where windows or memory are small. At most 4 194 304 (4 MiB):
        /// INVALID_ARGUMENT above. The default limit of gRPC clients is 4 MiB for the whole
        /// message, so that one who asks for more than 4 000 000 must raise it.
        5 chunk_bytes: uint32,
        /// For resuming a download: if the blob has another version by now, the call ends with
        /// ABORTED before any data, and the download must begin anew. INVALID_ARGUMENT if 0: a
        /// download of nothing.
        6 if_version: optional uint64,
    }

    /// The message `DownloadResponse`.
    pub struct DownloadResponse<'a> = "pelton.v1.DownloadResponse" {
        /// Only in the first message.
        1 blob: message BlobDescription<'a>,
        /// CRC32C of data.
        3 crc32c: optional fixed32,
        /// The field `data`.
        2 data: bytes,
    }

    /// The message `StatRequest`.
    pub struct StatRequest<'a> = "pelton.v1.StatRequest" {
        /// The field `database`.
        1 database: string,
        /// The field `name`.
        2 name: string,
        /// Ask for this upload instead of the finished blob.
        3 upload_id: bytes,
    }

    /// The message `StatResponse`.
    pub struct StatResponse<'a> = "pelton.v1.StatResponse" {
        /// False: there is no such blob, or no such upload.
        1 found: bool,
        /// The blob.
        2 blob: message BlobDescription<'a>,
        /// The upload: bytes that are stored, and from where it can go on.
        3 stored_bytes: uint64,
    }

    /// The message `ListRequest`.
    pub struct ListRequest<'a> = "pelton.v1.ListRequest" {
        /// The field `database`.
        1 database: string,
        /// Names that begin with it; empty = all.
        2 prefix: string,
        /// Go on after this name.
        3 start_after: string,
        /// 0 = no limit.
        4 limit: uint64,
    }

    /// The message `ListResponse`.
    pub struct ListResponse<'a> = "pelton.v1.ListResponse" {
        /// The field `blobs`.
        1 blobs: repeated message BlobDescription<'a>,
        /// The list is complete.
        2 last: bool,
    }

    /// The message `DeleteBlobRequest`.
    pub struct DeleteBlobRequest<'a> = "pelton.v1.DeleteBlobRequest" {
        /// The field `database`.
        1 database: string,
        /// The field `name`.
        2 name: string,
        /// Delete only if the blob has this version. INVALID_ARGUMENT if 0.
        3 if_version: optional uint64,
    } reserved {
        unserved: 12..=15
    }

    /// The message `DeleteBlobResponse`.
    pub struct DeleteBlobResponse = "pelton.v1.DeleteBlobResponse" {
        /// False: there was no such blob, or it has another version.
        1 deleted: bool,
        /// The version that was found; 0 = there was none.
        2 version: uint64,
    }

    /// The message `ListUploadsRequest`.
    pub struct ListUploadsRequest<'a> = "pelton.v1.ListUploadsRequest" {
        /// The field `database`.
        1 database: string,
    }

    /// An upload that is not complete.
    pub struct UploadDescription<'a> = "pelton.v1.UploadDescription" {
        /// The blob that it may become.
        1 name: string,
        /// As the caller chose it; empty: it cannot be resumed.
        2 upload_id: bytes,
        /// The field `stored_bytes`.
        3 stored_bytes: uint64,
        /// When something of it came last, or a call began to go on with it.
        4 touched_at_ms: uint64,
        /// A call goes on with it.
        5 open: bool,
        /// The address that its last call came from (of IPv6 the network of 64 bits), or "unix".
        /// Empty: not known, as after a restart of the server.
        6 peer: string,
    }

    /// The message `ListUploadsResponse`.
    pub struct ListUploadsResponse<'a> = "pelton.v1.ListUploadsResponse" {
        /// The field `uploads`.
        1 uploads: repeated message UploadDescription<'a>,
    }

    /// The message `DiscardUploadsRequest`.
    pub struct DiscardUploadsRequest<'a> = "pelton.v1.DiscardUploadsRequest" {
        /// The field `database`.
        1 database: string,
        /// The field `name`.
        2 name: string,
        /// Those with this id. Empty: those without one.
        3 upload_id: bytes,
    }

    /// The message `DiscardUploadsResponse`.
    pub struct DiscardUploadsResponse = "pelton.v1.DiscardUploadsResponse" {
        /// How many there were.
        1 discarded: uint64,
    }
}
