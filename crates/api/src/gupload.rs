//! `messaging.GuploadService`: `proto/compat/gupload.proto`.

crate::method::methods! {
    /// Takes the content of one file in chunks, and answers when all of it has come, and is on the
    /// device if it is kept.
    UPLOAD ClientStreaming "messaging.GuploadService/Upload";
}

protobuf::enumeration! {
    /// The enum `UploadStatusCode`.
    pub enum UploadStatusCode = "messaging.UploadStatusCode" {
        /// Not set.
        Unknown = 0,
        /// The value `Ok`.
        Ok = 1,
        /// Never sent: an upload that fails ends with a status of gRPC, as with the original.
        Failed = 2,
    }
}

protobuf::message! {
    /// The message `Chunk`.
    pub struct Chunk<'a> = "messaging.Chunk" {
        /// At most 4 MiB. Chunks without content, and uploads without chunks, are legal.
        1 content: bytes,
    }

    /// The message `UploadStatus`.
    pub struct UploadStatus<'a> = "messaging.UploadStatus" {
        /// For people: says under which name the content is kept.
        1 message: string,
        /// The field `Code`.
        2 code: enumeration,
    }
}
