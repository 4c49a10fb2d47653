//! `pelton.v1.Replication`: `proto/pelton/v1/replication.proto`.

crate::method::methods! {
    /// Makes a copy of everything as it is at one commit, in a folder in the data folder, and
    /// sends its files; the folder is removed when the call ends. Of a VOLATILE database only its
    /// description is in the copy. Before the first file come messages with `written_bytes` alone,
    /// while the copy is made. One copy, backup, snapshot or conversion is made at a time: another
    /// one waits, as for Admin.Backup. FAILED_PRECONDITION if the server keeps nothing.
    /// RESOURCE_EXHAUSTED if there is no room on the disk.
    COPY ServerStreaming "pelton.v1.Replication/Copy";
    /// Sends the log behind a sequence, group by group, as soon as each is on the device, and does
    /// not end by itself. OUT_OF_RANGE if what comes behind it is not kept any more,
    /// FAILED_PRECONDITION if it belongs to another history or an epoch that was left, or is not
    /// there yet: then a copy is needed, and a message without a group comes before the status.
    /// INVALID_ARGUMENT for a format of records that this server does not write.
    FOLLOW ServerStreaming "pelton.v1.Replication/Follow";
    /// Takes up to which sequence the caller holds the log on its device, and says what this
    /// server makes of it: a commit becomes visible when --replicas-acked followers hold it. The
    /// caller counts as long as the call goes on, and once, whatever its calls: of several with
    /// one replica_id the latest counts. FAILED_PRECONDITION if it has another history, or more
    /// than this server. RESOURCE_EXHAUSTED if as many as may follow are there.
    ACKNOWLEDGE Bidirectional "pelton.v1.Replication/Acknowledge";
    /// Sends the file with the content of a blob. NOT_FOUND if it is not there any more: then a
    /// later group of the log removes or replaces the blob.
    READ_CONTENT ServerStreaming "pelton.v1.Replication/ReadContent";
}

/// The format of records that is written: that of the log.
pub const RECORD_FORMAT: u32 = 2;

protobuf::message! {
    /// The message `CopyRequest`.
    pub struct CopyRequest = "pelton.v1.CopyRequest" {}

    /// The message `CopyResponse`.
    pub struct CopyResponse<'a> = "pelton.v1.CopyResponse" {
        /// While the copy is made: bytes that are written, and that there will be as far as it can
        /// be told.
        1 written_bytes: uint64,
        /// The field `total_bytes`.
        2 total_bytes: uint64,
        /// In the first message with a file: which history it is of, as in ResumePoint.
        3 history_id: bytes,
        /// In the first message with a file: the copy has every commit up to this one, and none
        /// after it.
        4 sequence: uint64,
        /// In the first message with a file: the secret under which tokens are hashed.
        5 secret: bytes,
        /// A file begins: its name in the copy, with "blobs/" before it for the content of a blob.
        6 file: string,
        /// With `file`: its size.
        7 size_bytes: uint64,
        /// The next bytes of the file.
        8 data: bytes,
        /// That was all of it.
        9 complete: bool,
        /// With `written_bytes` and with `file`: as in FollowResponse.
        12 replica_ids: repeated bytes,
        /// In the first message with a file: the epoch of the server. Who has confirmed a higher
        /// one of this history takes no copy: it may have what the server has not.
        13 epoch: uint64,
    }

    /// The message `FollowRequest`.
    pub struct FollowRequest<'a> = "pelton.v1.FollowRequest" {
        /// The history of what the caller has, as in ResumePoint.
        1 history_id: bytes,
        /// The caller has everything up to this sequence.
        2 sequence: uint64,
        /// The format of records that the caller reads: 2.
        3 format: uint32,
        /// The highest epoch that the caller has confirmed, or has in its log. A server of a lower
        /// one takes no more writes.
        8 epoch: uint64,
        /// The epoch in which the log of the caller ends.
        9 log_epoch: uint64,
        /// Where the leader of `epoch` is, if the caller knows that.
        10 leader: string,
    }

    /// A group, a part of one, or nothing new: then only where the server stands, as the first
    /// message and every second afterwards.
    pub struct FollowResponse<'a> = "pelton.v1.FollowResponse" {
        /// The history of the server, as in ResumePoint.
        1 history_id: bytes,
        /// Up to here the log of the server is on the device.
        2 durable_sequence: uint64,
        /// The clock of the server, in milliseconds since 1970.
        3 wall_ms: uint64,
        /// The field `group`.
        4 group: message LogGroup<'a>,
        /// In messages without a group: the replicas through which it comes, the server itself
        /// first if it is one, then whom that follows, as far as it knows. Who finds itself among
        /// them must not go on.
        8 replica_ids: repeated bytes,
        /// The epoch of the server.
        9 epoch: uint64,
    }

    /// What one write to the log had, or a part of it: parts come one behind the other, until
    /// `body_bytes` are there.
    pub struct LogGroup<'a> = "pelton.v1.LogGroup" {
        /// The sequences that it covers, right behind those of the one before.
        1 first_sequence: uint64,
        /// The field `last_sequence`.
        2 last_sequence: uint64,
        /// When it was written, in milliseconds since 1970.
        3 wall_ms: uint64,
        /// Number of its records.
        4 records: uint32,
        /// Bytes of all its records.
        5 body_bytes: uint64,
        /// CRC32C of all its records.
        6 crc32c: uint32,
        /// The next of these bytes, in the format of the log.
        7 data: bytes,
    }

    /// The message `AcknowledgeRequest`.
    pub struct AcknowledgeRequest<'a> = "pelton.v1.AcknowledgeRequest" {
        /// In the first message: the history of what the caller has, as in ResumePoint.
        1 history_id: bytes,
        /// In the first message: names the caller for as long as its folder lives. 16 bytes.
        2 replica_id: bytes,
        /// The caller has everything up to this sequence on its device.
        3 sequence: uint64,
        /// In the first message: as in FollowRequest.
        8 epoch: uint64,
        /// In the first message: the epoch in which the log of the caller ends.
        9 log_epoch: uint64,
    }

    /// What the server makes of a request. Where several have come meanwhile, there may be one for
    /// them.
    pub struct AcknowledgeResponse = "pelton.v1.AcknowledgeResponse" {
        /// So many followers must hold a commit before it is visible; 0 = none.
        1 required: uint32,
        /// So many hold everything up to this sequence.
        2 acknowledged_sequence: uint64,
    }

    /// The message `ReadContentRequest`.
    pub struct ReadContentRequest = "pelton.v1.ReadContentRequest" {
        /// The number of the content, as the description of its blob in the log has it.
        1 number: uint64,
    }

    /// The message `ReadContentResponse`.
    pub struct ReadContentResponse<'a> = "pelton.v1.ReadContentResponse" {
        /// The field `data`.
        1 data: bytes,
    }
}
