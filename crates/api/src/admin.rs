//! `pelton.v1.Admin`: `proto/pelton/v1/admin.proto`.

crate::method::methods! {
    /// Creates a database.
    CREATE_DATABASE Unary "pelton.v1.Admin/CreateDatabase";
    /// Lists all databases in the order of their names.
    LIST_DATABASES Unary "pelton.v1.Admin/ListDatabases";
    /// Removes a database with all that is in it. FAILED_PRECONDITION for the default database.
    DROP_DATABASE Unary "pelton.v1.Admin/DropDatabase";
    /// Makes a database one of another kind, with everything that is in it: keys, values, versions
    /// and expiries stay as they are. Reads go on meanwhile; writes to this database are refused
    /// with UNAVAILABLE until it is done. Reports progress; the last message has `complete`. All
    /// or nothing: if it fails, the call is cancelled or the server dies, the database is what it
    /// was; what a message with `complete` says survives a power loss. One conversion, backup or
    /// snapshot runs at a time: UNAVAILABLE for another one. FAILED_PRECONDITION for a VOLATILE
    /// database, for a server that keeps nothing, and for one that has a key too long for DISK (65
    /// 535 bytes). RESOURCE_EXHAUSTED if the memory or the disk has no room for it.
    CONVERT_DATABASE ServerStreaming "pelton.v1.Admin/ConvertDatabase";
    /// What the server holds and has done.
    STATISTICS Unary "pelton.v1.Admin/Statistics";
    /// Writes a copy of all databases as they were at one commit, while writes go on, into a new
    /// folder under --backup-root of the server. Reports progress until it is complete; the last
    /// message has `complete`. Of a VOLATILE database only its description is in the copy. One
    /// backup or snapshot runs at a time: UNAVAILABLE for another one. FAILED_PRECONDITION without
    /// --backup-root, or if the server keeps nothing. RESOURCE_EXHAUSTED if there is no room.
    /// Where it fails, or the call is cancelled, the folder is removed. `pelton restore` makes a
    /// data folder of it.
    BACKUP ServerStreaming "pelton.v1.Admin/Backup";
    /// Writes a snapshot of all databases with a log into the data folder now, so that the log
    /// before it is not needed any more: a start reads less, and the log gives its room back. The
    /// server does so by itself as the log grows. Answers when it is on the device. UNAVAILABLE
    /// while another snapshot or a backup runs, FAILED_PRECONDITION if the server keeps nothing.
    SNAPSHOT Unary "pelton.v1.Admin/Snapshot";
    /// Makes a token, with which a caller proves who it is: in the metadata `authorization`, as
    /// `Bearer pelton_…`. The response is the only place where it is shown; the server keeps a
    /// keyed hash. What the response says survives a power loss, unless the server keeps nothing.
    /// This and the three below need the right `admin` on the whole server, and change tokens one
    /// after the other: ABORTED if others were quicker again and again, and nothing was done.
    /// FAILED_PRECONDITION while a data folder has no room to note its secret.
    CREATE_TOKEN Unary "pelton.v1.Admin/CreateToken";
    /// Lists all tokens in the order of their names, also those that have expired.
    LIST_TOKENS Unary "pelton.v1.Admin/ListTokens";
    /// Takes a token back. Calls that come with it are refused from then on, and those that run
    /// end with UNAUTHENTICATED within a second. NOT_FOUND if there is none of this name.
    REVOKE_TOKEN Unary "pelton.v1.Admin/RevokeToken";
    /// Makes another token for the same name and rights. NOT_FOUND if there is none of this name,
    /// FAILED_PRECONDITION if it is proved by a binding.
    ROTATE_TOKEN Unary "pelton.v1.Admin/RotateToken";
    /// Makes a role, a named set of rights that tokens can have (`role:NAME` among their rights),
    /// or gives one other rights. Those who have it may do from then on what it says: calls that
    /// run of those who may do less than before end with UNAUTHENTICATED within a second. This and
    /// the two below need the right `admin` on the whole server. FAILED_PRECONDITION if nobody
    /// would have that right any more.
    SET_ROLE Unary "pelton.v1.Admin/SetRole";
    /// Lists all roles in the order of their names.
    LIST_ROLES Unary "pelton.v1.Admin/ListRoles";
    /// Removes a role. NOT_FOUND if there is none of this name, FAILED_PRECONDITION if somebody has
    /// it.
    DROP_ROLE Unary "pelton.v1.Admin/DropRole";
    /// Has a replica confirm a new epoch, for which another replica is a candidate: from then on it
    /// acknowledges nothing to a leader of an older one, and tells it of the new one.
    /// FAILED_PRECONDITION if the server is no replica, or of another history. ABORTED if it is
    /// asked for something else just now: try again.
    CONFIRM_EPOCH Unary "pelton.v1.Admin/ConfirmEpoch";
    /// Has a replica take the place of its leader in a new epoch: the server starts anew, and takes
    /// writes. Without `force` only if nothing that was acknowledged can be missing, and the old
    /// leader can acknowledge nothing more; else nothing is done, and `problem` says why.
    /// FAILED_PRECONDITION if the server is no replica. ABORTED as for ConfirmEpoch.
    PROMOTE Unary "pelton.v1.Admin/Promote";
    /// Has a leader count replicas no more that are lost for good: it ends when enough of those
    /// that count hold that. What was acknowledged is at others of them. A replica that comes back
    /// counts again. FAILED_PRECONDITION if the server is a replica, requires no replicas, or one
    /// of those named is connected; NOT_FOUND if one of them does not count.
    FORGET_REPLICAS Unary "pelton.v1.Admin/ForgetReplicas";
}

impl ConvertProgress {
    /// The response where the database is of that kind already.
    pub const NOTHING_DONE: ConvertProgress = ConvertProgress {
        copied_entries: 0,
        total_entries: 0,
        complete: true,
        converted: false,
        sequence: 0,
    };
}

protobuf::enumeration! {
    /// The enum `DatabaseKind`.
    pub enum DatabaseKind = "pelton.v1.DatabaseKind" {
        /// The same as MEMORY.
        Unspecified = 0,
        /// All entries are in memory; a log and snapshots make them durable.
        Memory = 1,
        /// Entries are on disk, with a cache in memory.
        Disk = 2,
        /// Entries are on a storage engine of several machines, on a server that was started for
        /// one: there it is the only kind, and UNSPECIFIED means it.
        Remote = 3,
    }

    /// What a REMOTE database promises. Fixed for its life.
    pub enum RemotePromise = "pelton.v1.RemotePromise" {
        /// The same as LINEARIZABLE.
        Unspecified = 0,
        /// Each request on one bucket takes effect at one moment between its start and its answer.
        /// Conditions, versions, previous values, Append and Increment work.
        Linearizable = 1,
        /// Puts and Deletes without a condition reach a quorum of the nodes, and the one with the
        /// later clock stays. What depends on what is stored is refused with FAILED_PRECONDITION.
        Quorum = 2,
    }

    /// In which order Scan returns the keys of a REMOTE database. Fixed for its life.
    pub enum RemoteOrder = "pelton.v1.RemoteOrder" {
        /// The same as HASH.
        Unspecified = 0,
        /// By the bucket of the key, and by the key within it: each key once, in the same order
        /// each time.
        Hash = 1,
        /// By the key.
        Merged = 2,
    }

    /// The enum `DurabilityMode`.
    pub enum DurabilityMode = "pelton.v1.DurabilityMode" {
        /// The same as SYNCED.
        Unspecified = 0,
        /// A write is answered when it is on the device: it survives a power loss.
        Synced = 1,
        /// Written at once and on the device within interval_ms: survives a kill; a power loss may
        /// take the last interval.
        Interval = 2,
        /// Written at once, and on the device when the system likes: survives a kill, not a power
        /// loss.
        Written = 3,
        /// In memory only: gone when the server stops.
        Volatile = 4,
    }
}

protobuf::message! {
    /// What a database is and may hold.
    pub struct DatabaseDescription<'a> = "pelton.v1.DatabaseDescription" in "database." {
        /// 1 to 200 bytes of letters, digits, "-", "_" and ".", not beginning with "."; empty for
        /// the default database. None can be created with the name "default": it would be taken
        /// for that one.
        1 name: string,
        /// The field `kind`.
        2 kind: enumeration,
        /// The field `durability`.
        3 durability: enumeration,
        /// With INTERVAL: 1 to 60 000.
        4 interval_ms: uint32,
        /// What the database may take, of memory (MEMORY) or disk (DISK), as DatabaseStatistics
        /// counts it; 0 = only the server's own limit. RESOURCE_EXHAUSTED for writes that would
        /// exceed it.
        5 quota_bytes: uint64,
        /// Largest value; 0 = the server's limit, which is also the highest that may be named.
        6 max_value_bytes: uint64,
        /// REMOTE: what it promises.
        7 promise: enumeration,
        /// REMOTE: the order of its keys.
        8 order: enumeration,
        /// REMOTE: in how many parts its keys are divided by their hashes; 0 = 1024 with HASH, 16
        /// with MERGED. At most 16384 with HASH, 64 with MERGED. ATOMIC batches and Transact change
        /// one at a time, and writes to one contend.
        9 buckets: uint32,
    }

    /// The message `CreateDatabaseRequest`.
    pub struct CreateDatabaseRequest<'a> = "pelton.v1.CreateDatabaseRequest" {
        /// INVALID_ARGUMENT for a wrong name or a combination that does not exist (DISK with
        /// VOLATILE, a promise without REMOTE). UNIMPLEMENTED or FAILED_PRECONDITION for a
        /// durability or kind that this server cannot give. RESOURCE_EXHAUSTED if there are too
        /// many databases (by default 1 000).
        1 database: message DatabaseDescription<'a>,
    }

    /// The message `CreateDatabaseResponse`.
    pub struct CreateDatabaseResponse<'a> = "pelton.v1.CreateDatabaseResponse" {
        /// False: there is one of this name already; it has not changed.
        1 created: bool,
        /// The database as it is now.
        2 database: message DatabaseDescription<'a>,
    }

    /// The message `ListDatabasesRequest`.
    pub struct ListDatabasesRequest = "pelton.v1.ListDatabasesRequest" {}

    /// The message `ListDatabasesResponse`.
    pub struct ListDatabasesResponse<'a> = "pelton.v1.ListDatabasesResponse" {
        /// The field `databases`.
        1 databases: repeated message DatabaseStatistics<'a>,
    }

    /// The message `DropDatabaseRequest`.
    pub struct DropDatabaseRequest<'a> = "pelton.v1.DropDatabaseRequest" {
        /// The field `name`.
        1 name: string,
        /// Must be the name again if the database is not empty, and may be it else:
        /// INVALID_ARGUMENT otherwise.
        2 confirm_name: string,
    }

    /// The message `DropDatabaseResponse`.
    pub struct DropDatabaseResponse = "pelton.v1.DropDatabaseResponse" {
        /// False: there was none of this name.
        1 dropped: bool,
    }

    /// The message `ConvertDatabaseRequest`.
    pub struct ConvertDatabaseRequest<'a> = "pelton.v1.ConvertDatabaseRequest" {
        /// Empty for the default database. NOT_FOUND if there is none of this name.
        1 name: string,
        /// What it becomes. INVALID_ARGUMENT if it is not given.
        2 kind: enumeration,
    }

    /// The message `ConvertProgress`.
    pub struct ConvertProgress = "pelton.v1.ConvertProgress" {
        /// The field `copied_entries`.
        1 copied_entries: uint64,
        /// As far as it can be told; 0 while it cannot.
        2 total_entries: uint64,
        /// The database is of this kind now, and durably so.
        3 complete: bool,
        /// With `complete`: false if it was of this kind before, so that nothing was done.
        4 converted: bool,
        /// With `converted`: the commit that did it.
        5 sequence: uint64,
    }

    /// The message `DatabaseStatistics`.
    pub struct DatabaseStatistics<'a> = "pelton.v1.DatabaseStatistics" {
        /// The field `database`.
        1 database: message DatabaseDescription<'a>,
        /// Keys, including those that have expired and are not swept yet. For DISK an estimate,
        /// mostly too high: what was overwritten counts until it is merged.
        2 entries: uint64,
        /// Bytes of their keys and values. 0 for DISK: they are not counted.
        3 content_bytes: uint64,
        /// Memory that they take. For DISK: writes that are not in files yet; the cache is one for
        /// all.
        4 memory_bytes: uint64,
        /// Disk that they take. 0 for MEMORY: the log is one for all databases, and
        /// StatisticsResponse.log says what it takes.
        5 disk_bytes: uint64,
        /// The last visible commit.
        6 sequence: uint64,
        /// Blobs that are complete.
        7 blobs: uint64,
        /// Bytes of content, with unfinished uploads and with what was replaced or deleted and is
        /// not removed yet: what counts for blob_quota_bytes.
        8 blob_bytes: uint64,
        /// Uploads of blobs that are not complete, whether somebody is connected to them or not.
        9 unfinished_uploads: uint64,
    }

    /// The message `StatisticsRequest`.
    pub struct StatisticsRequest = "pelton.v1.StatisticsRequest" {}

    /// The message `StatisticsResponse`.
    pub struct StatisticsResponse<'a> = "pelton.v1.StatisticsResponse" {
        /// Name and version of the server: "pelton 0.1.0".
        1 server: string,
        /// The field `uptime_ms`.
        2 uptime_ms: uint64,
        /// The field `databases`.
        3 databases: repeated message DatabaseStatistics<'a>,
        /// The field `open_connections`.
        4 open_connections: uint64,
        /// The field `running_calls`.
        5 running_calls: uint64,
        /// Calls since the start, by method ("pelton.v1.KeyValue/Get") and status.
        6 methods: repeated message MethodStatistics<'a>,
        /// Of all databases together, as counted for --memory-limit.
        7 memory_bytes: uint64,
        /// --memory-limit.
        8 memory_limit_bytes: uint64,
        /// Names the history that all sequences belong to, as in ResumePoint.
        9 history_id: bytes,
        /// Absent from a server without a data folder.
        10 log: message LogStatistics,
        /// Requests that are not complete, and answers that are not sent, of all connections
        /// together. Beyond the limit, which follows from --memory-limit, windows stay shut and
        /// calls are refused with UNAVAILABLE.
        11 buffered_bytes: uint64,
        /// The field `buffered_limit_bytes`.
        12 buffered_limit_bytes: uint64,
        /// --blob-quota: blob_bytes that each database may have; 0 = as the disk has room, or a
        /// server without a data folder.
        13 blob_quota_bytes: uint64,
        /// Of a replica: how it follows its leader. Absent from a server of its own.
        14 replica: message ReplicaStatistics<'a>,
        /// Servers that follow this one.
        15 followers: uint64,
        /// --replicas-acked, and what followers hold. Absent where none are required and none say
        /// so.
        16 acknowledged: message AcknowledgedStatistics<'a>,
        /// The epoch of the history: 1, and one more for each replica that was promoted. 0 = a
        /// server without a data folder.
        17 epoch: uint64,
        /// A higher epoch of which the server has heard, so that it takes no writes; 0 = none.
        18 higher_epoch: uint64,
        /// The address of the leader of that epoch, if that is known.
        19 new_leader: string,
    }

    /// What followers hold on their devices.
    pub struct AcknowledgedStatistics<'a> = "pelton.v1.StatisticsResponse.Acknowledged" {
        /// So many must hold a commit before it is visible; 0 = none.
        1 required: uint32,
        /// So many hold everything up to this sequence.
        2 sequence: uint64,
        /// Too few hold what was written: writes are refused with UNAVAILABLE, and right after a
        /// start reads too.
        3 late: bool,
        /// The field `followers`.
        4 followers: repeated message FollowerStatistics<'a>,
        /// Replicas that count and are not connected: each of 16 bytes.
        5 absent: repeated bytes,
    }

    /// A follower that is connected.
    pub struct FollowerStatistics<'a> = "pelton.v1.StatisticsResponse.Follower" {
        /// Names it for as long as its folder lives. 16 bytes.
        1 replica_id: bytes,
        /// It has everything up to this sequence on its device.
        2 sequence: uint64,
    }

    /// How a replica follows its leader.
    pub struct ReplicaStatistics<'a> = "pelton.v1.StatisticsResponse.Replica" {
        /// The address of the leader.
        1 leader: string,
        /// There is a stream of the log of the leader.
        2 connected: bool,
        /// Everything up to this sequence is on the device here, and visible.
        3 sequence: uint64,
        /// The same of the leader, as it said last.
        4 leader_sequence: uint64,
        /// For how long the replica has not had everything that the leader has; 0 = it has.
        /// Without a connection it is not known what the leader has, and this grows.
        5 lag_ms: uint64,
        /// Why it does not follow now; empty: it does.
        6 problem: string,
        /// It is not for the leader that it does not follow: its own log, disk or memory has no
        /// place for what comes.
        7 blocked: bool,
    }

    /// The log of all durable databases.
    pub struct LogStatistics = "pelton.v1.StatisticsResponse.Log" in "log." {
        /// On the device: segments that hold something. The next one, made ready ahead, and spares
        /// are not counted.
        1 segment_bytes: uint64,
        /// The field `segments`.
        2 segments: uint64,
        /// The last sequence in the log.
        3 written_sequence: uint64,
        /// The last sequence that is on the device, and survives a power loss.
        4 durable_sequence: uint64,
        /// Since the start: writes, records in them, syncs.
        5 groups: uint64,
        /// The field `records`.
        6 records: uint64,
        /// The field `syncs`.
        7 syncs: uint64,
        /// The disk is full: writes that grow a database are refused with RESOURCE_EXHAUSTED until
        /// there is room.
        8 full: bool,
        /// A write or sync failed: writes to durable databases are refused with
        /// FAILED_PRECONDITION until a restart.
        9 failed: bool,
    }

    /// The message `StatisticsResponse.MethodStatistics`.
    pub struct MethodStatistics<'a> = "pelton.v1.StatisticsResponse.MethodStatistics" {
        /// The field `method`.
        1 method: string,
        /// A gRPC status code.
        2 code: uint32,
        /// The field `calls`.
        3 calls: uint64,
    }

    /// The message `BackupRequest`.
    pub struct BackupRequest<'a> = "pelton.v1.BackupRequest" {
        /// The new folder under --backup-root: 1 to 128 bytes of letters, digits, "-", "_" and
        /// ".", not beginning with ".". ALREADY_EXISTS if there is one.
        1 name: string,
    }

    /// The message `BackupProgress`.
    pub struct BackupProgress<'a> = "pelton.v1.BackupProgress" {
        /// The field `written_bytes`.
        1 written_bytes: uint64,
        /// As far as it can be told; 0 while it cannot.
        2 total_bytes: uint64,
        /// The commit that the backup shows: it has every commit of a database with a log up to
        /// this one, and none after it. 0 until it is known.
        3 sequence: uint64,
        /// The backup is complete and on the device.
        4 complete: bool,
        /// With `complete`: databases that are in it with their content.
        5 databases: uint64,
        /// With `complete`: VOLATILE databases, of which only the descriptions are in it.
        6 volatile_databases: uint64,
        /// With `complete`: the folder, on the machine of the server.
        7 path: string,
    }

    /// The message `SnapshotRequest`.
    pub struct SnapshotRequest = "pelton.v1.SnapshotRequest" {}

    /// The message `SnapshotResponse`.
    pub struct SnapshotResponse = "pelton.v1.SnapshotResponse" {
        /// The log up to this commit is not needed any more.
        1 sequence: uint64,
        /// Entries in the snapshot.
        2 entries: uint64,
        /// Bytes of its file.
        3 bytes: uint64,
    }

    /// What is known of a token. Not the token itself.
    pub struct TokenDescription<'a> = "pelton.v1.TokenDescription" {
        /// 1 to 64 bytes of letters, digits, "-", "_" and ".", not beginning with ".".
        1 name: string,
        /// What its holder may do, each as in CreateTokenRequest.
        2 rights: repeated string,
        /// Milliseconds since 1970.
        3 created_at_ms: uint64,
        /// Milliseconds since 1970; 0 = never.
        4 expires_at_ms: uint64,
        /// It has expired, or the secret of the data folder was lost: no call gets in with it, and
        /// its name stays taken until it is revoked.
        5 expired: bool,
        /// It was rotated, and until this time, in milliseconds since 1970, the token before is
        /// good as well; 0 = it is not.
        6 previous_expires_at_ms: uint64,
        /// Not proved by a token, but by what the caller's side of the connection shows, as in
        /// CreateTokenRequest; empty: a token.
        7 binding: string,
        /// No caller can show what this is bound to where the server listens now: it asks for no
        /// certificates of clients, or listens on no UNIX socket.
        8 unprovable: bool,
    }

    /// The message `CreateTokenRequest`.
    pub struct CreateTokenRequest<'a> = "pelton.v1.CreateTokenRequest" [request] {
        /// As in TokenDescription. ALREADY_EXISTS if there is a token of this name, also one that
        /// has expired. RESOURCE_EXHAUSTED if there are too many (1 000).
        1 name: string,
        /// 1 to 64: `read`, `write` or `admin`, each of which includes those before it, on the
        /// whole server; on a database with its blobs (`read:orders`; `read:default` for the one
        /// without a name); or on the blobs of a database whose names begin so
        /// (`write:orders/images/`). Or `service:NAME` for all that a drop-in service does:
        /// `kvstore`, `gupload`, `ydb-ping`, `brpc-echo`, `srpc-benchmark`, `tkrzw`. Or `role:NAME`
        /// for what a role grants, which must be there. Together at most 3 072 bytes.
        /// INVALID_ARGUMENT says what is wrong with one.
        2 rights: repeated string,
        /// Milliseconds from now, at most 10 years; 0 = never.
        3 expires_after_ms: uint64,
        /// What proves the identity in place of a token, of which there is none then. A subject
        /// alternative name in the certificate of a client: `san:dns:NAME`, `san:uri:URI` (as of
        /// SPIFFE) or `san:email:ADDRESS`; hosts without regard to case, all else byte by byte, no
        /// wildcards. The SHA-256 of such a certificate: `sha256:` and 64 hexadecimal digits, with
        /// or without colons. The user of a process at the other end of a UNIX socket: `uid:1000`.
        /// ALREADY_EXISTS if another one is bound to the same.
        4 binding: string,
    }

    /// The message `CreateTokenResponse`.
    pub struct CreateTokenResponse<'a> = "pelton.v1.CreateTokenResponse" {
        /// `pelton_` and 43 letters, digits, "-" and "_". Nobody can ask for it again. Empty if a
        /// binding was asked for.
        1 token: secret,
        /// The field `description`.
        2 description: message TokenDescription<'a>,
    }

    /// The message `ListTokensRequest`.
    pub struct ListTokensRequest = "pelton.v1.ListTokensRequest" {}

    /// The message `ListTokensResponse`.
    pub struct ListTokensResponse<'a> = "pelton.v1.ListTokensResponse" {
        /// The field `tokens`.
        1 tokens: repeated message TokenDescription<'a>,
    }

    /// The message `RevokeTokenRequest`.
    pub struct RevokeTokenRequest<'a> = "pelton.v1.RevokeTokenRequest" {
        /// The field `name`.
        1 name: string,
        /// Must be the name again if this is the last token with the right `admin` on the whole
        /// server, or the last of these that does not expire, and callers without a token do not
        /// have that right either: FAILED_PRECONDITION otherwise. Nobody could make or revoke
        /// tokens any more.
        2 confirm_name: string,
    }

    /// The message `RevokeTokenResponse`.
    pub struct RevokeTokenResponse = "pelton.v1.RevokeTokenResponse" {}

    /// The message `RotateTokenRequest`.
    pub struct RotateTokenRequest<'a> = "pelton.v1.RotateTokenRequest" {
        /// The field `name`.
        1 name: string,
        /// Milliseconds for which the token before is good as well, so that its holders can change
        /// over; at most 30 days. 0 = it is revoked at once, unless it is the caller's own: that
        /// one is good for another hour, since the response may never reach the caller. If there
        /// are two, the caller's own is the one before, else the newer one; see revoke_kept.
        2 keep_for_ms: uint64,
        /// Milliseconds from now, as in CreateTokenRequest; 0 = when it would have expired before.
        /// INVALID_ARGUMENT if it has expired and this is 0.
        3 expires_after_ms: uint64,
        /// The caller's own token too is revoked at once if keep_for_ms is 0, and so is one that an
        /// earlier rotation keeps.
        4 revoke_own: bool,
        /// Must be the name again if the last token with the right `admin` on the whole server that
        /// does not expire is to expire, and callers without a token do not have that right:
        /// FAILED_PRECONDITION otherwise. Nobody could make or revoke tokens any more when it has
        /// expired.
        5 confirm_name: string,
        /// Revokes the token that an earlier rotation keeps until a time that has not come, unless
        /// it is the caller's own. Without this such a rotation is refused: FAILED_PRECONDITION.
        6 revoke_kept: bool,
    }

    /// The message `RotateTokenResponse`.
    pub struct RotateTokenResponse<'a> = "pelton.v1.RotateTokenResponse" {
        /// As in CreateTokenResponse.
        1 token: secret,
        /// The field `description`.
        2 description: message TokenDescription<'a>,
    }

    /// What is known of a role.
    pub struct RoleDescription<'a> = "pelton.v1.RoleDescription" {
        /// As the name of a token.
        1 name: string,
        /// What it grants, each as in CreateTokenRequest, but no roles.
        2 rights: repeated string,
        /// Milliseconds since 1970.
        3 created_at_ms: uint64,
        /// How many tokens have it.
        4 tokens: uint32,
    }

    /// The message `SetRoleRequest`.
    pub struct SetRoleRequest<'a> = "pelton.v1.SetRoleRequest" [request] {
        /// As in RoleDescription. RESOURCE_EXHAUSTED if there are too many (100), or if the rights
        /// of all tokens, with those of their roles, become too many (12 MiB of text).
        1 name: string,
        /// 1 to 64 rights, as in RoleDescription.
        2 rights: repeated string,
    }

    /// The message `SetRoleResponse`.
    pub struct SetRoleResponse = "pelton.v1.SetRoleResponse" {
        /// There was none of this name.
        1 created: bool,
    }

    /// The message `ListRolesRequest`.
    pub struct ListRolesRequest = "pelton.v1.ListRolesRequest" {}

    /// The message `ListRolesResponse`.
    pub struct ListRolesResponse<'a> = "pelton.v1.ListRolesResponse" {
        /// The field `roles`.
        1 roles: repeated message RoleDescription<'a>,
    }

    /// The message `DropRoleRequest`.
    pub struct DropRoleRequest<'a> = "pelton.v1.DropRoleRequest" {
        /// The field `name`.
        1 name: string,
    }

    /// The message `DropRoleResponse`.
    pub struct DropRoleResponse = "pelton.v1.DropRoleResponse" {}

    /// The message `ConfirmEpochRequest`.
    pub struct ConfirmEpochRequest<'a> = "pelton.v1.ConfirmEpochRequest" {
        /// The history of the candidate, as in ResumePoint.
        1 history_id: bytes,
        /// The new epoch.
        2 epoch: uint64,
        /// Names the candidate. 16 bytes.
        3 candidate_id: bytes,
        /// Where clients reach the candidate: what the old leader tells them.
        4 address: string,
    }

    /// The message `ConfirmEpochResponse`.
    pub struct ConfirmEpochResponse<'a> = "pelton.v1.ConfirmEpochResponse" {
        /// Names the replica. 16 bytes.
        1 replica_id: bytes,
        /// The epoch that it has confirmed: a higher one than was asked for, or for another
        /// candidate, if it has promised that before.
        2 epoch: uint64,
        /// For which candidate. 16 bytes.
        3 candidate_id: bytes,
        /// Its log ends in this epoch,.
        4 log_epoch: uint64,
        /// With this sequence.
        5 sequence: uint64,
    }

    /// The message `PromoteRequest`.
    pub struct PromoteRequest<'a> = "pelton.v1.PromoteRequest" {
        /// Promote it although writes may be lost that the old leader has answered. A new history
        /// begins.
        1 force: bool,
        /// Where clients reach the replica: what the old leader tells them.
        2 address: string,
        /// The new epoch is this one at least: for a replica that has confirmed a higher one.
        3 least_epoch: uint64,
        /// What other replicas have confirmed, for the epoch that an earlier response has named.
        4 confirmations: repeated message ConfirmEpochResponse<'a>,
    }

    /// The message `PromoteResponse`.
    pub struct PromoteResponse<'a> = "pelton.v1.PromoteResponse" {
        /// It takes the place of its leader.
        1 promoted: bool,
        /// The new epoch, or that for which the replica is a candidate.
        2 epoch: uint64,
        /// Names the replica. 16 bytes.
        3 replica_id: bytes,
        /// Its history, as in ResumePoint, before a new one begins.
        4 history_id: bytes,
        /// It has everything up to this sequence.
        5 sequence: uint64,
        /// The same of the leader, as far as the replica has heard.
        6 leader_sequence: uint64,
        /// Why it was not promoted, or what `force` has passed over.
        7 problem: string,
        /// Others must confirm: with their confirmations it may be promoted.
        8 needs_confirmations: bool,
    }

    /// The message `ForgetReplicasRequest`.
    pub struct ForgetReplicasRequest<'a> = "pelton.v1.ForgetReplicasRequest" {
        /// Names them, each with 16 bytes; none: all that count and are not connected.
        1 replica_ids: repeated bytes,
    }

    /// The message `ForgetReplicasResponse`.
    pub struct ForgetReplicasResponse<'a> = "pelton.v1.ForgetReplicasResponse" {
        /// Those that count no more.
        1 replica_ids: repeated bytes,
        /// So many count.
        2 left: uint32,
    }
}

#[cfg(test)]
mod tests {
    use protobuf::Secret;

    use super::*;

    #[test]
    fn a_response_with_a_token_shows_nothing_of_it() {
        let token = Secret::new("pelton_0123456789");
        let description = Some(TokenDescription {
            name: "ci",
            ..TokenDescription::default()
        });
        let created = CreateTokenResponse { token, description };
        let rotated = RotateTokenResponse { token, description };
        for shown in [format!("{created:?}"), format!("{rotated:#?}")] {
            assert!(
                shown.contains("ci") && shown.contains("Secret(…)"),
                "{shown}"
            );
            assert!(!shown.contains("0123"), "{shown}");
        }
        let mut bytes = Vec::new();
        created.encode(&mut bytes);
        assert_eq!(bytes.len(), created.encoded_len());
        let read = CreateTokenResponse::decode(&bytes).expect("it is a message");
        assert_eq!((read, read.token.reveal()), (created, "pelton_0123456789"));
        let none = RotateTokenResponse::default();
        assert_eq!(none.encoded_len(), 0);
    }
}
