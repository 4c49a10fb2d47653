//! `pelton database create|list|drop`

use serde_json::{Map, Value};
use service::Method;
use service::admin::messages::{
    CreateDatabaseResponse, DatabaseDescription, DatabaseKind, DatabaseStatistics,
    DropDatabaseRequest, DurabilityMode, decode_databases, decode_dropped, encode_create_database,
};

use super::{Caller, say_miss, unreadable};
use crate::arguments::{
    CreateDatabaseArguments, DropDatabaseArguments, KindArgument, ListDatabasesArguments,
};
use crate::durability::Durability;
use crate::exit::{Exit, Failure};
use crate::output::{Output, object};
use crate::size::Span;

/// Creates a database.
pub fn create_database(arguments: &CreateDatabaseArguments) -> Result<Exit, Failure> {
    let (durability, interval_ms) = match arguments.durability {
        Durability::Synced => (DurabilityMode::Synced, 0),
        Durability::Interval(span) => (DurabilityMode::Interval, span.ms as u32),
        Durability::Written => (DurabilityMode::Written, 0),
        Durability::Volatile => (DurabilityMode::Volatile, 0),
    };
    let database = DatabaseDescription {
        name: &arguments.name,
        kind: match arguments.kind {
            KindArgument::Memory => DatabaseKind::Memory,
            KindArgument::Disk => DatabaseKind::Disk,
        },
        durability,
        interval_ms,
        quota_bytes: arguments.quota.map_or(0, |size| size.0),
        max_value_bytes: arguments.max_value.map_or(0, |size| size.0),
    };
    let mut request = Vec::new();
    encode_create_database(&database, &mut request);
    let answer =
        Caller::connect(&arguments.connection)?.unary(Method::AdminCreateDatabase, &request)?;
    let answer = CreateDatabaseResponse::decode(&answer).map_err(unreadable)?;
    let mut output = Output::new(arguments.connection.output);
    if output.is_json() {
        let mut fields = object([("created", answer.created.into())]);
        insert_description(&mut fields, &answer.database);
        output.object(fields)?;
    } else if answer.created {
        output.line(&format!("created: {}", describe(&answer.database)))?;
    }
    output.end()?;
    if answer.created {
        return Ok(Exit::Done);
    }
    say_miss(
        arguments.connection.output,
        &format!(
            "the database `{}` is there already, nothing was changed: {}",
            arguments.name,
            describe(&answer.database)
        ),
    );
    Ok(Exit::Miss)
}

/// Lists all databases.
pub fn list_databases(arguments: &ListDatabasesArguments) -> Result<Exit, Failure> {
    let answer = Caller::connect(&arguments.connection)?.unary(Method::AdminListDatabases, b"")?;
    let mut output = Output::new(arguments.connection.output);
    for database in decode_databases(&answer) {
        print(&mut output, &database.map_err(unreadable)?)?;
    }
    output.end()?;
    Ok(Exit::Done)
}

fn print(output: &mut Output, database: &DatabaseStatistics<'_>) -> Result<(), Failure> {
    if output.is_json() {
        let mut fields = Map::new();
        insert_description(&mut fields, &database.database);
        for (name, value) in [
            ("entries", database.entries),
            ("content_bytes", database.content_bytes),
            ("memory_bytes", database.memory_bytes),
            ("disk_bytes", database.disk_bytes),
            ("sequence", database.sequence),
            ("blobs", database.blobs),
            ("blob_bytes", database.blob_bytes),
            ("unfinished_uploads", database.unfinished_uploads),
        ] {
            fields.insert(name.into(), value.into());
        }
        return output.object(fields);
    }
    let name = match database.database.name {
        "" => "(default)",
        name => name,
    };
    let size = match database.database.kind {
        DatabaseKind::Memory => format!(
            "{} entries\t{} bytes",
            database.entries, database.content_bytes
        ),
        DatabaseKind::Disk => format!(
            "about {} entries\t{} bytes of disk",
            database.entries, database.disk_bytes
        ),
    };
    output.line(&format!(
        "{name}\t{}\t{size}\t{} bytes of memory\tsequence {}",
        describe(&database.database),
        database.memory_bytes,
        database.sequence
    ))
}

/// Removes a database.
pub fn drop_database(arguments: &DropDatabaseArguments) -> Result<Exit, Failure> {
    let mut request = Vec::new();
    DropDatabaseRequest {
        name: &arguments.name,
        confirm_name: if arguments.with_content {
            &arguments.name
        } else {
            ""
        },
    }
    .encode(&mut request);
    let answer = Caller::connect(&arguments.connection)?
        .unary(Method::AdminDropDatabase, &request)
        .map_err(|failure| match &failure {
            Failure::Failed(message) if message.contains("confirm_name") => {
                failure.with("--with-content removes it with all its entries")
            }
            _ => failure,
        })?;
    let dropped = decode_dropped(&answer).map_err(unreadable)?;
    let mut output = Output::new(arguments.connection.output);
    if output.is_json() {
        output.object(object([("dropped", dropped.into())]))?;
    } else if dropped {
        output.line("dropped")?;
    }
    output.end()?;
    if dropped {
        return Ok(Exit::Done);
    }
    let name = &arguments.name;
    say_miss(
        arguments.connection.output,
        &format!("nothing dropped: there is no database `{name}`"),
    );
    Ok(Exit::Miss)
}

fn kind(database: &DatabaseDescription<'_>) -> &'static str {
    match database.kind {
        DatabaseKind::Memory => "memory",
        DatabaseKind::Disk => "disk",
    }
}

fn durability(database: &DatabaseDescription<'_>) -> Durability {
    match database.durability {
        DurabilityMode::Synced => Durability::Synced,
        DurabilityMode::Interval => Durability::Interval(Span {
            ms: database.interval_ms.into(),
        }),
        DurabilityMode::Written => Durability::Written,
        DurabilityMode::Volatile => Durability::Volatile,
    }
}

/// `memory, volatile, at most 1000000 bytes, values up to 4000000`
fn describe(database: &DatabaseDescription<'_>) -> String {
    let mut text = format!("{}, {}", kind(database), durability(database));
    if database.quota_bytes > 0 {
        text.push_str(&format!(", at most {} bytes", database.quota_bytes));
    }
    if database.max_value_bytes > 0 {
        text.push_str(&format!(
            ", values up to {} bytes",
            database.max_value_bytes
        ));
    }
    text
}

fn insert_description(fields: &mut Map<String, Value>, database: &DatabaseDescription<'_>) {
    fields.extend(object([
        ("name", database.name.into()),
        ("kind", kind(database).into()),
        ("durability", durability(database).to_string().into()),
        ("quota_bytes", database.quota_bytes.into()),
        ("max_value_bytes", database.max_value_bytes.into()),
    ]));
}
