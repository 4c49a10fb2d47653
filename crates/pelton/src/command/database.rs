//! `pelton database create|list|drop`

use api::admin::{
    CreateDatabaseRequest, DatabaseDescription, DatabaseKind, DatabaseStatistics,
    DropDatabaseRequest, DurabilityMode, ListDatabasesRequest, RemoteOrder, RemotePromise,
};
use api::rpc::admin::{CreateDatabase, DropDatabase, ListDatabases};
use serde_json::{Map, Value};

use super::{Caller, say_miss, unreadable};
use crate::arguments::{
    CreateDatabaseArguments, DropDatabaseArguments, ListDatabasesArguments, NewKindArgument,
    OrderArgument, PromiseArgument,
};
use crate::durability::DurabilityArgument;
use crate::exit::{Exit, Failure};
use crate::output::{Output, bytes, in_columns, object};
use crate::size::{Span, people};

/// Creates a database.
pub fn create_database(arguments: &CreateDatabaseArguments) -> Result<Exit, Failure> {
    let (durability, interval_ms) = match arguments.durability {
        DurabilityArgument::Synced => (DurabilityMode::Synced, 0),
        DurabilityArgument::Interval(span) => (DurabilityMode::Interval, span.ms as u32),
        DurabilityArgument::Written => (DurabilityMode::Written, 0),
        DurabilityArgument::Volatile => (DurabilityMode::Volatile, 0),
    };
    let database = DatabaseDescription {
        name: &arguments.name,
        kind: match arguments.kind {
            None => DatabaseKind::Unspecified.number(),
            Some(NewKindArgument::Memory) => DatabaseKind::Memory.number(),
            Some(NewKindArgument::Disk) => DatabaseKind::Disk.number(),
            Some(NewKindArgument::Remote) => DatabaseKind::Remote.number(),
        },
        durability: durability.number(),
        interval_ms,
        quota_bytes: arguments.quota.map_or(0, |size| size.0),
        max_value_bytes: arguments.max_value.map_or(0, |size| size.0),
        promise: match arguments.promise {
            None => RemotePromise::Unspecified.number(),
            Some(PromiseArgument::Linearizable) => RemotePromise::Linearizable.number(),
            Some(PromiseArgument::Quorum) => RemotePromise::Quorum.number(),
        },
        order: match arguments.order {
            None => RemoteOrder::Unspecified.number(),
            Some(OrderArgument::Hash) => RemoteOrder::Hash.number(),
            Some(OrderArgument::Merged) => RemoteOrder::Merged.number(),
        },
        buckets: arguments.buckets.unwrap_or(0).into(),
    };
    let database = Some(database);
    let request = CreateDatabaseRequest { database };
    let reply = Caller::connect(&arguments.connection)?.call::<CreateDatabase>(&request)?;
    let answer = reply.message();
    let described = answer.database.unwrap_or_default();
    check(&described)?;
    let mut output = Output::new(arguments.connection.output);
    if output.is_json() {
        let mut fields = object([("created", answer.created.into())]);
        insert_description(&mut fields, &described);
        output.object(fields)?;
    } else if answer.created {
        output.line(&format!("created: {}", describe(&described)))?;
    }
    output.end()?;
    if answer.created {
        return Ok(Exit::Done);
    }
    let which = match arguments.name.as_str() {
        "" => "the default database, whose name is empty,".to_owned(),
        name => format!("the database `{name}`"),
    };
    say_miss(
        arguments.connection.output,
        &format!(
            "{which} is there already, nothing was changed: {}",
            describe(&described)
        ),
    );
    Ok(Exit::Miss)
}

/// Lists all databases.
pub fn list_databases(arguments: &ListDatabasesArguments) -> Result<Exit, Failure> {
    let mut caller = Caller::connect(&arguments.connection)?;
    let reply = caller.call::<ListDatabases>(&ListDatabasesRequest {})?;
    let databases = reply.message().databases;
    let databases: Vec<DatabaseStatistics<'_>> = databases.iter().flatten().collect();
    for database in databases.iter().filter_map(|one| one.database.as_ref()) {
        check(database)?;
    }
    let mut output = Output::new(arguments.connection.output);
    if output.is_json() {
        for database in &databases {
            output.object(fields(database))?;
        }
    } else {
        for line in table(&databases) {
            output.line(&line)?;
        }
    }
    output.end()?;
    Ok(Exit::Done)
}

fn fields(database: &DatabaseStatistics<'_>) -> Map<String, Value> {
    let mut fields = Map::new();
    insert_description(&mut fields, &database.database.unwrap_or_default());
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
    fields
}

/// The columns of `pelton database list`, and whether they are numbers, which stand at the right.
const COLUMNS: [(&str, bool); 10] = [
    ("NAME", false),
    ("KIND", false),
    ("DURABILITY", false),
    ("ENTRIES", true),
    ("CONTENT", true),
    ("MEMORY", true),
    ("DISK", true),
    ("BLOBS", true),
    ("QUOTA", true),
    ("SEQUENCE", true),
];

fn table(databases: &[DatabaseStatistics<'_>]) -> Vec<String> {
    let mut rows = vec![COLUMNS.map(|(name, _)| name.to_owned())];
    rows.extend(databases.iter().map(cells));
    in_columns(rows, COLUMNS.map(|(_, is_number)| is_number))
}

fn cells(statistics: &DatabaseStatistics<'_>) -> [String; COLUMNS.len()] {
    let database = &statistics.database.unwrap_or_default();
    let name = match database.name {
        "" => "(default)",
        name => name,
    };
    // What a database on disk holds is an estimate, and its content is what its files take. Of what
    // a storage engine has, often nothing is known.
    let (entries, content) = match statistics.entries {
        0 if is_remote(database) => ("-".into(), "-".into()),
        entries if is_in_memory(database) => {
            (entries.to_string(), people(statistics.content_bytes))
        }
        entries => (format!("~{entries}"), "-".into()),
    };
    let (memory, sequence) = match is_remote(database) {
        true => ("-".into(), "-".into()),
        false => (
            people(statistics.memory_bytes),
            statistics.sequence.to_string(),
        ),
    };
    let blobs = match statistics.blobs {
        0 => "-".into(),
        blobs => format!("{blobs} ({})", people(statistics.blob_bytes)),
    };
    let bytes = |bytes| match bytes {
        0 => "-".into(),
        bytes => people(bytes),
    };
    [
        name.into(),
        kind(database).into(),
        durability(database).to_string(),
        entries,
        content,
        memory,
        bytes(statistics.disk_bytes),
        blobs,
        bytes(database.quota_bytes),
        sequence,
    ]
}

/// Removes a database.
pub fn drop_database(arguments: &DropDatabaseArguments) -> Result<Exit, Failure> {
    let request = DropDatabaseRequest {
        name: &arguments.name,
        confirm_name: if arguments.with_content {
            &arguments.name
        } else {
            ""
        },
    };
    let reply = Caller::connect(&arguments.connection)?.call::<DropDatabase>(&request);
    let reply = reply.map_err(|failure| not_empty(&arguments.name, failure))?;
    let dropped = reply.message().dropped;
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
    let hint = match is_meant_as_default(name) {
        true => {
            "; the default database has the empty name, and is always there: `pelton delete --all` \
             empties it"
        }
        false => "",
    };
    say_miss(
        arguments.connection.output,
        &format!("nothing dropped: there is no database `{name}`{hint}"),
    );
    Ok(Exit::Miss)
}

/// Whether a name that no database has is what `pelton database list` calls the default one.
pub(super) fn is_meant_as_default(name: &str) -> bool {
    matches!(name, "default" | "(default)")
}

/// What stands in the server's refusal before what a database has in it.
const NOT_EMPTY: &str = "the database holds ";

/// The refusal to drop a database with content, in the words of the command line.
fn not_empty(name: &str, failure: Failure) -> Failure {
    match failure {
        Failure::Call(mut failure) if failure.what.contains(NOT_EMPTY) => {
            let told = failure.what.split(NOT_EMPTY).nth(1).unwrap_or_default();
            let content = told.split([',', ';']).next().unwrap_or_default();
            failure.what = format!("the database `{name}` holds {content}, and was not dropped");
            failure.hint = "--with-content drops it with all that is in it".into();
            Failure::Call(failure)
        }
        Failure::Call(mut failure) if name.is_empty() => {
            failure.hint = "`pelton delete --all` deletes its keys".into();
            Failure::Call(failure)
        }
        failure => failure,
    }
}

/// Refuses what a later server may say of a database.
fn check(database: &DatabaseDescription<'_>) -> Result<(), Failure> {
    if DatabaseKind::from_number(database.kind).is_none() {
        return Err(unreadable("a database is of a kind that is not known"));
    }
    if DurabilityMode::from_number(database.durability).is_none() {
        return Err(unreadable("a database has a durability that is not known"));
    }
    Ok(())
}

fn is_in_memory(database: &DatabaseDescription<'_>) -> bool {
    !is_remote(database) && database.kind != DatabaseKind::Disk.number()
}

/// Whether a storage engine has it.
pub(super) fn is_remote(database: &DatabaseDescription<'_>) -> bool {
    database.kind == DatabaseKind::Remote.number()
}

fn kind(database: &DatabaseDescription<'_>) -> &'static str {
    match DatabaseKind::from_number(database.kind) {
        Some(DatabaseKind::Disk) => "disk",
        Some(DatabaseKind::Remote) => "remote",
        _ => "memory",
    }
}

fn promise(database: &DatabaseDescription<'_>) -> &'static str {
    match RemotePromise::from_number(database.promise) {
        Some(RemotePromise::Quorum) => "quorum",
        _ => "linearizable",
    }
}

fn order(database: &DatabaseDescription<'_>) -> &'static str {
    match RemoteOrder::from_number(database.order) {
        Some(RemoteOrder::Merged) => "merged",
        _ => "hash",
    }
}

fn durability(database: &DatabaseDescription<'_>) -> DurabilityArgument {
    match DurabilityMode::from_number(database.durability) {
        None | Some(DurabilityMode::Unspecified | DurabilityMode::Synced) => {
            DurabilityArgument::Synced
        }
        Some(DurabilityMode::Interval) => DurabilityArgument::Interval(Span {
            ms: database.interval_ms.into(),
        }),
        Some(DurabilityMode::Written) => DurabilityArgument::Written,
        Some(DurabilityMode::Volatile) => DurabilityArgument::Volatile,
    }
}

/// `memory, volatile, at most 1000000 bytes, values up to 4000000`, or `remote, quorum, order hash,
/// 1024 buckets, values up to 4000000`
pub(super) fn describe(database: &DatabaseDescription<'_>) -> String {
    let mut text = match is_remote(database) {
        false => format!("{}, {}", kind(database), durability(database)),
        true => format!(
            "{}, {}, order {}, {} buckets",
            kind(database),
            promise(database),
            order(database),
            database.buckets
        ),
    };
    if database.quota_bytes > 0 {
        text.push_str(&format!(", at most {}", bytes(database.quota_bytes)));
    }
    if database.max_value_bytes > 0 {
        text.push_str(&format!(
            ", values up to {}",
            bytes(database.max_value_bytes)
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
    if is_remote(database) {
        fields.extend(object([
            ("promise", promise(database).into()),
            ("order", order(database).into()),
            ("buckets", database.buckets.into()),
        ]));
    }
}
