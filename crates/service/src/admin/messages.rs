//! The messages of `pelton.v1.Admin`, both ways. `proto/pelton/v1/admin.proto` says what the fields mean; here stand only
//! their numbers.

mod backup;
mod convert;

pub use backup::{BackupProgress, SnapshotResponse, decode_backup, encode_backup};
pub use convert::{ConvertDatabaseRequest, ConvertProgress};

use crate::keyvalue::messages::{
    Invalid, decode_fields, decode_history_id, decode_parts, encode_history_id, part, repeated,
};
use protobuf::writer;

/// Where the index of a database lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the file")]
pub enum DatabaseKind {
    #[default]
    Memory = 1,
    Disk = 2,
}

/// When a write counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the file")]
pub enum DurabilityMode {
    #[default]
    Synced = 1,
    Interval = 2,
    Written = 3,
    Volatile = 4,
}

/// What a database is and may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatabaseDescription<'a> {
    /// Empty for the default one.
    pub name: &'a str,
    /// Where its index lives.
    pub kind: DatabaseKind,
    /// When its writes count as done.
    pub durability: DurabilityMode,
    /// With [`DurabilityMode::Interval`].
    pub interval_ms: u32,
    /// 0: only the server's own limit.
    pub quota_bytes: u64,
    /// 0: the server's limit.
    pub max_value_bytes: u64,
}

impl<'a> DatabaseDescription<'a> {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        writer::bytes(out, 1, self.name.as_bytes());
        writer::uint64(out, 2, self.kind as u64);
        writer::uint64(out, 3, self.durability as u64);
        writer::uint64(out, 4, u64::from(self.interval_ms));
        writer::uint64(out, 5, self.quota_bytes);
        writer::uint64(out, 6, self.max_value_bytes);
    }

    fn decode(message: &'a [u8]) -> Result<DatabaseDescription<'a>, Invalid> {
        let mut database = DatabaseDescription::default();
        let (mut kind, mut durability) = (0, 0);
        let names = &[
            "",
            "database.name",
            "database.kind",
            "database.durability",
            "database.interval_ms",
            "database.quota_bytes",
            "database.max_value_bytes",
        ];
        decode_fields(message, names, |number, value| {
            match number {
                1 => database.name = value.string()?,
                2 => kind = value.int32()?,
                3 => durability = value.int32()?,
                4 => database.interval_ms = value.uint32()?,
                5 => database.quota_bytes = value.varint()?,
                6 => database.max_value_bytes = value.varint()?,
                _ => {}
            }
            Ok(())
        })?;
        database.kind = decode_kind(kind)?;
        database.durability = decode_durability(durability)?;
        Ok(database)
    }
}

fn decode_kind(number: i32) -> Result<DatabaseKind, Invalid> {
    match number {
        0 | 1 => Ok(DatabaseKind::Memory),
        2 => Ok(DatabaseKind::Disk),
        _ => Err(Invalid::rule(
            "database.kind",
            "is not a DatabaseKind that this version knows",
        )),
    }
}

fn decode_durability(number: i32) -> Result<DurabilityMode, Invalid> {
    match number {
        0 | 1 => Ok(DurabilityMode::Synced),
        2 => Ok(DurabilityMode::Interval),
        3 => Ok(DurabilityMode::Written),
        4 => Ok(DurabilityMode::Volatile),
        _ => Err(Invalid::rule(
            "database.durability",
            "is not a DurabilityMode that this version knows",
        )),
    }
}

/// Decodes a `CreateDatabaseRequest` into the database that it describes.
pub fn decode_create_database(message: &[u8]) -> Result<DatabaseDescription<'_>, Invalid> {
    let mut database = &[][..];
    decode_fields(message, &["", "database"], |number, value| {
        if number == 1 {
            database = value.bytes()?;
        }
        Ok(())
    })?;
    DatabaseDescription::decode(database)
}

/// Appends a `CreateDatabaseRequest`.
pub fn encode_create_database(database: &DatabaseDescription<'_>, out: &mut Vec<u8>) {
    writer::message(out, 1, |out| database.encode(out));
}

/// The answer to CreateDatabase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreateDatabaseResponse<'a> {
    /// False: there is one of this name already.
    pub created: bool,
    /// The database as it is now.
    pub database: DatabaseDescription<'a>,
}

impl<'a> CreateDatabaseResponse<'a> {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        writer::bool(out, 1, self.created);
        writer::message(out, 2, |out| self.database.encode(out));
    }

    /// Decodes the message.
    pub fn decode(message: &'a [u8]) -> Result<CreateDatabaseResponse<'a>, Invalid> {
        let (mut created, mut database) = (false, &[][..]);
        decode_fields(message, &["", "created", "database"], |number, value| {
            match number {
                1 => created = value.bool()?,
                2 => database = value.bytes()?,
                _ => {}
            }
            Ok(())
        })?;
        let database = DatabaseDescription::decode(database)?;
        Ok(CreateDatabaseResponse { created, database })
    }
}

/// A request to remove a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropDatabaseRequest<'a> {
    /// Its name.
    pub name: &'a str,
    /// The name again, if the database is not empty.
    pub confirm_name: &'a str,
}

impl<'a> DropDatabaseRequest<'a> {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        writer::bytes(out, 1, self.name.as_bytes());
        writer::bytes(out, 2, self.confirm_name.as_bytes());
    }

    /// Decodes the message.
    pub fn decode(message: &'a [u8]) -> Result<DropDatabaseRequest<'a>, Invalid> {
        let mut request = DropDatabaseRequest::default();
        decode_fields(message, &["", "name", "confirm_name"], |number, value| {
            match number {
                1 => request.name = value.string()?,
                2 => request.confirm_name = value.string()?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(request)
    }
}

/// Decodes a `DropDatabaseResponse`: whether there was such a database.
pub fn decode_dropped(message: &[u8]) -> Result<bool, Invalid> {
    let mut dropped = false;
    decode_fields(message, &["", "dropped"], |number, value| {
        if number == 1 {
            dropped = value.bool()?;
        }
        Ok(())
    })?;
    Ok(dropped)
}

/// Appends a `DropDatabaseResponse`.
pub fn encode_dropped(dropped: bool, out: &mut Vec<u8>) {
    writer::bool(out, 1, dropped);
}

/// Checks an empty request: `ListDatabasesRequest`, `StatisticsRequest`. What it may say to a later version is let go.
pub fn decode_nothing(message: &[u8]) -> Result<(), Invalid> {
    decode_fields(message, &[], |_, _| Ok(()))
}

/// A database and its figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatabaseStatistics<'a> {
    /// What it is.
    pub database: DatabaseDescription<'a>,
    /// Keys, with those that have expired and are not swept yet.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub content_bytes: u64,
    /// Memory that they take.
    pub memory_bytes: u64,
    /// Disk that they take.
    pub disk_bytes: u64,
    /// The last visible commit.
    pub sequence: u64,
    /// Blobs that are complete.
    pub blobs: u64,
    /// Bytes of content, also of what is unfinished or not removed yet.
    pub blob_bytes: u64,
    /// Uploads that are not complete.
    pub unfinished_uploads: u64,
}

impl<'a> DatabaseStatistics<'a> {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        writer::message(out, 1, |out| self.database.encode(out));
        writer::uint64(out, 2, self.entries);
        writer::uint64(out, 3, self.content_bytes);
        writer::uint64(out, 4, self.memory_bytes);
        writer::uint64(out, 5, self.disk_bytes);
        writer::uint64(out, 6, self.sequence);
        writer::uint64(out, 7, self.blobs);
        writer::uint64(out, 8, self.blob_bytes);
        writer::uint64(out, 9, self.unfinished_uploads);
    }

    fn decode(message: &'a [u8]) -> Result<DatabaseStatistics<'a>, Invalid> {
        let mut statistics = DatabaseStatistics::default();
        let mut database = &[][..];
        let names = &[
            "",
            "database",
            "entries",
            "content_bytes",
            "memory_bytes",
            "disk_bytes",
            "sequence",
            "blobs",
            "blob_bytes",
            "unfinished_uploads",
        ];
        decode_fields(message, names, |number, value| {
            match number {
                1 => database = value.bytes()?,
                2 => statistics.entries = value.varint()?,
                3 => statistics.content_bytes = value.varint()?,
                4 => statistics.memory_bytes = value.varint()?,
                5 => statistics.disk_bytes = value.varint()?,
                6 => statistics.sequence = value.varint()?,
                7 => statistics.blobs = value.varint()?,
                8 => statistics.blob_bytes = value.varint()?,
                9 => statistics.unfinished_uploads = value.varint()?,
                _ => {}
            }
            Ok(())
        })?;
        statistics.database = DatabaseDescription::decode(database)?;
        Ok(statistics)
    }
}

/// Decodes a `ListDatabasesResponse`, in the order of the names.
pub fn decode_databases(
    message: &[u8],
) -> impl Iterator<Item = Result<DatabaseStatistics<'_>, Invalid>> {
    repeated(message, 1, "databases").map(|database| database.and_then(DatabaseStatistics::decode))
}

/// Appends one database to a `ListDatabasesResponse`.
pub fn encode_database(database: &DatabaseStatistics<'_>, out: &mut Vec<u8>) {
    writer::message(out, 1, |out| database.encode(out));
}

/// Calls of one method that ended with one status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MethodStatistics<'a> {
    /// `package.Service/Method`
    pub method: &'a str,
    /// A gRPC status code.
    pub code: u32,
    /// How many.
    pub calls: u64,
}

impl<'a> MethodStatistics<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        writer::bytes(out, 1, self.method.as_bytes());
        writer::uint64(out, 2, u64::from(self.code));
        writer::uint64(out, 3, self.calls);
    }

    fn decode(message: &'a [u8]) -> Result<MethodStatistics<'a>, Invalid> {
        let mut statistics = MethodStatistics::default();
        decode_fields(
            message,
            &["", "method", "code", "calls"],
            |number, value| {
                match number {
                    1 => statistics.method = value.string()?,
                    2 => statistics.code = value.uint32()?,
                    3 => statistics.calls = value.varint()?,
                    _ => {}
                }
                Ok(())
            },
        )?;
        Ok(statistics)
    }
}

/// What the log takes, and what was done with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogMessage {
    /// Bytes of the segments that hold something.
    pub segment_bytes: u64,
    /// How many they are.
    pub segments: u64,
    /// The last sequence in the log.
    pub written_sequence: u64,
    /// The last one that is on the device.
    pub durable_sequence: u64,
    /// Groups written since the start.
    pub groups: u64,
    /// Records in them.
    pub records: u64,
    /// Syncs since the start.
    pub syncs: u64,
    /// Writes that need room are refused.
    pub full: bool,
    /// All writes are refused.
    pub failed: bool,
}

impl LogMessage {
    fn encode(&self, out: &mut Vec<u8>) {
        writer::uint64(out, 1, self.segment_bytes);
        writer::uint64(out, 2, self.segments);
        writer::uint64(out, 3, self.written_sequence);
        writer::uint64(out, 4, self.durable_sequence);
        writer::uint64(out, 5, self.groups);
        writer::uint64(out, 6, self.records);
        writer::uint64(out, 7, self.syncs);
        writer::bool(out, 8, self.full);
        writer::bool(out, 9, self.failed);
    }

    fn decode(message: &[u8]) -> Result<LogMessage, Invalid> {
        const NAMES: &[&str] = &[
            "",
            "log.segment_bytes",
            "log.segments",
            "log.written_sequence",
            "log.durable_sequence",
            "log.groups",
            "log.records",
            "log.syncs",
            "log.full",
            "log.failed",
        ];
        let mut log = LogMessage::default();
        decode_fields(message, NAMES, |number, value| {
            match number {
                1 => log.segment_bytes = value.varint()?,
                2 => log.segments = value.varint()?,
                3 => log.written_sequence = value.varint()?,
                4 => log.durable_sequence = value.varint()?,
                5 => log.groups = value.varint()?,
                6 => log.records = value.varint()?,
                7 => log.syncs = value.varint()?,
                8 => log.full = value.bool()?,
                9 => log.failed = value.bool()?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(log)
    }
}

/// What a server holds and has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatisticsResponse<'a> {
    /// Name and version of the server.
    pub server: &'a str,
    /// For how long it has run.
    pub uptime_ms: u64,
    /// Its databases, in the order of their names.
    pub databases: Vec<DatabaseStatistics<'a>>,
    /// Connections now.
    pub open_connections: u64,
    /// Calls now.
    pub running_calls: u64,
    /// Calls since the start.
    pub methods: Vec<MethodStatistics<'a>>,
    /// Memory of all databases.
    pub memory_bytes: u64,
    /// The bound on it.
    pub memory_limit_bytes: u64,
    /// Names the history that all sequences belong to.
    pub history_id: u64,
    /// The log, if there is one.
    pub log: Option<LogMessage>,
    /// Bytes buffered for the peers of all connections.
    pub buffered_bytes: u64,
    /// The bound on them.
    pub buffered_limit_bytes: u64,
    /// What the blobs of each database may have; 0: as the disk has room.
    pub blob_quota_bytes: u64,
}

impl<'a> StatisticsResponse<'a> {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        writer::bytes(out, 1, self.server.as_bytes());
        writer::uint64(out, 2, self.uptime_ms);
        for database in &self.databases {
            writer::message(out, 3, |out| database.encode(out));
        }
        writer::uint64(out, 4, self.open_connections);
        writer::uint64(out, 5, self.running_calls);
        for method in &self.methods {
            writer::message(out, 6, |out| method.encode(out));
        }
        writer::uint64(out, 7, self.memory_bytes);
        writer::uint64(out, 8, self.memory_limit_bytes);
        encode_history_id(out, 9, self.history_id);
        if let Some(log) = &self.log {
            writer::message(out, 10, |out| log.encode(out));
        }
        writer::uint64(out, 11, self.buffered_bytes);
        writer::uint64(out, 12, self.buffered_limit_bytes);
        writer::uint64(out, 13, self.blob_quota_bytes);
    }

    /// Decodes the message.
    pub fn decode(message: &'a [u8]) -> Result<StatisticsResponse<'a>, Invalid> {
        const NAMES: &[&str] = &[
            "",
            "server",
            "uptime_ms",
            "databases",
            "open_connections",
            "running_calls",
            "methods",
            "memory_bytes",
            "memory_limit_bytes",
            "history_id",
            "log",
            "buffered_bytes",
            "buffered_limit_bytes",
            "blob_quota_bytes",
        ];
        let mut response = StatisticsResponse::default();
        decode_fields(message, NAMES, |number, value| {
            match number {
                1 => response.server = value.string()?,
                2 => response.uptime_ms = value.varint()?,
                4 => response.open_connections = value.varint()?,
                5 => response.running_calls = value.varint()?,
                7 => response.memory_bytes = value.varint()?,
                8 => response.memory_limit_bytes = value.varint()?,
                9 => response.history_id = decode_history_id(value)?,
                11 => response.buffered_bytes = value.varint()?,
                12 => response.buffered_limit_bytes = value.varint()?,
                13 => response.blob_quota_bytes = value.varint()?,
                _ => {}
            }
            Ok(())
        })?;
        decode_parts(message, NAMES, |number, value| {
            match number {
                3 => {
                    let database = DatabaseStatistics::decode(part(value, NAMES[3])?)?;
                    response.databases.push(database);
                }
                6 => {
                    let method = MethodStatistics::decode(part(value, NAMES[6])?)?;
                    response.methods.push(method);
                }
                10 => response.log = Some(LogMessage::decode(part(value, NAMES[10])?)?),
                _ => {}
            }
            Ok(())
        })?;
        Ok(response)
    }
}
