//! The messages of `pelton.v1.Admin`.

use service::admin::messages::*;
use service::keyvalue::messages::ResumePoint;

use super::responses::history_id;
use super::*;

fn description<'a>(random: &mut Random, name: &'a str) -> DatabaseDescription<'a> {
    use DurabilityMode as D;
    DatabaseDescription {
        name,
        kind: [DatabaseKind::Memory, DatabaseKind::Disk][random.below(2) as usize],
        durability: [D::Synced, D::Interval, D::Written, D::Volatile][random.below(4) as usize],
        interval_ms: random.next() as u32,
        quota_bytes: random.number(),
        max_value_bytes: random.number(),
    }
}

fn description_value(database: &DatabaseDescription<'_>) -> Option<Value> {
    Some(Value::Message(message(
        "DatabaseDescription",
        [
            ("name", text(database.name)),
            ("kind", Some(Value::EnumNumber(database.kind as i32))),
            (
                "durability",
                Some(Value::EnumNumber(database.durability as i32)),
            ),
            ("interval_ms", Some(Value::U32(database.interval_ms))),
            ("quota_bytes", number(database.quota_bytes)),
            ("max_value_bytes", number(database.max_value_bytes)),
        ],
    )))
}

fn statistics<'a>(random: &mut Random, name: &'a str) -> DatabaseStatistics<'a> {
    DatabaseStatistics {
        database: description(random, name),
        entries: random.number(),
        content_bytes: random.number(),
        memory_bytes: random.number(),
        disk_bytes: random.number(),
        sequence: random.number(),
        blobs: random.number(),
        blob_bytes: random.number(),
        unfinished_uploads: random.number(),
    }
}

fn statistics_value(statistics: &DatabaseStatistics<'_>) -> Value {
    Value::Message(message(
        "DatabaseStatistics",
        [
            ("database", description_value(&statistics.database)),
            ("entries", number(statistics.entries)),
            ("content_bytes", number(statistics.content_bytes)),
            ("memory_bytes", number(statistics.memory_bytes)),
            ("disk_bytes", number(statistics.disk_bytes)),
            ("sequence", number(statistics.sequence)),
            ("blobs", number(statistics.blobs)),
            ("blob_bytes", number(statistics.blob_bytes)),
            ("unfinished_uploads", number(statistics.unfinished_uploads)),
        ],
    ))
}

#[test]
fn databases_are_created_and_dropped() {
    for seed in 0..ROUNDS {
        let mut random = Random::new(seed);
        let name = ["", "cache", "ä"][random.below(3) as usize];
        let database = description(&mut random, name);
        let expected = message(
            "CreateDatabaseRequest",
            [("database", description_value(&database))],
        );
        let ours = encoded(|out| encode_create_database(&database, out));
        assert_same("CreateDatabaseRequest", &ours, &expected);
        let theirs = expected.encode_to_vec();
        assert_eq!(decode_create_database(&theirs), Ok(database));

        let created = random.flag();
        let response = CreateDatabaseResponse { created, database };
        let expected = message(
            "CreateDatabaseResponse",
            [
                ("created", Some(Value::Bool(created))),
                ("database", description_value(&database)),
            ],
        );
        let ours = encoded(|out| response.encode(out));
        assert_same("CreateDatabaseResponse", &ours, &expected);
        let theirs = expected.encode_to_vec();
        assert_eq!(CreateDatabaseResponse::decode(&theirs), Ok(response));

        let (name, confirm_name) = (database.name, ["", "cache"][random.below(2) as usize]);
        let request = DropDatabaseRequest { name, confirm_name };
        let expected = message(
            "DropDatabaseRequest",
            [("name", text(name)), ("confirm_name", text(confirm_name))],
        );
        let ours = encoded(|out| request.encode(out));
        assert_same("DropDatabaseRequest", &ours, &expected);
        let theirs = expected.encode_to_vec();
        assert_eq!(DropDatabaseRequest::decode(&theirs), Ok(request));

        let expected = message(
            "DropDatabaseResponse",
            [("dropped", Some(Value::Bool(created)))],
        );
        let ours = encoded(|out| encode_dropped(created, out));
        assert_same("DropDatabaseResponse", &ours, &expected);
        assert_eq!(decode_dropped(&expected.encode_to_vec()), Ok(created));
    }
}

fn log_value(log: &LogMessage) -> Value {
    Value::Message(message(
        "StatisticsResponse.Log",
        [
            ("segment_bytes", number(log.segment_bytes)),
            ("segments", number(log.segments)),
            ("written_sequence", number(log.written_sequence)),
            ("durable_sequence", number(log.durable_sequence)),
            ("groups", number(log.groups)),
            ("records", number(log.records)),
            ("syncs", number(log.syncs)),
            ("full", Some(Value::Bool(log.full))),
            ("failed", Some(Value::Bool(log.failed))),
        ],
    ))
}

#[test]
fn databases_are_listed_and_counted() {
    for seed in 0..ROUNDS / 4 {
        let mut random = Random::new(seed);
        let databases: Vec<_> = (0..random.below(5))
            .map(|place| statistics(&mut random, ["", "cache"][place as usize % 2]))
            .collect();
        let values = || {
            Some(Value::List(
                databases.iter().map(statistics_value).collect(),
            ))
        };
        let expected = message("ListDatabasesResponse", [("databases", values())]);
        let ours = encoded(|out| {
            for database in &databases {
                encode_database(database, out);
            }
        });
        assert_same("ListDatabasesResponse", &ours, &expected);
        let theirs = expected.encode_to_vec();
        let decoded: Result<Vec<_>, _> = decode_databases(&theirs).collect();
        assert_eq!(decoded.as_ref(), Ok(&databases));

        let methods: Vec<_> = (0..random.below(4))
            .map(|_| MethodStatistics {
                method: "pelton.v1.KeyValue/Get",
                code: random.next() as u32,
                calls: random.number(),
            })
            .collect();
        let method_value = |one: &MethodStatistics<'_>| {
            Value::Message(message(
                "StatisticsResponse.MethodStatistics",
                [
                    ("method", text(one.method)),
                    ("code", Some(Value::U32(one.code))),
                    ("calls", number(one.calls)),
                ],
            ))
        };
        let response = StatisticsResponse {
            server: "pelton 1.0",
            uptime_ms: random.number(),
            databases: databases.clone(),
            open_connections: random.number(),
            running_calls: random.number(),
            methods: methods.clone(),
            memory_bytes: random.number(),
            memory_limit_bytes: random.number(),
            history_id: random.number(),
            log: random.flag().then(|| LogMessage {
                segment_bytes: random.number(),
                segments: random.number(),
                written_sequence: random.number(),
                durable_sequence: random.number(),
                groups: random.number(),
                records: random.number(),
                syncs: random.number(),
                full: random.flag(),
                failed: random.flag(),
            }),
            buffered_bytes: random.number(),
            buffered_limit_bytes: random.number(),
            blob_quota_bytes: random.number(),
        };
        let point = ResumePoint {
            history_id: response.history_id,
            sequence: 0,
        };
        let expected = message(
            "StatisticsResponse",
            [
                ("server", text(response.server)),
                ("uptime_ms", number(response.uptime_ms)),
                ("databases", values()),
                ("open_connections", number(response.open_connections)),
                ("running_calls", number(response.running_calls)),
                (
                    "methods",
                    Some(Value::List(methods.iter().map(method_value).collect())),
                ),
                ("memory_bytes", number(response.memory_bytes)),
                ("memory_limit_bytes", number(response.memory_limit_bytes)),
                ("history_id", history_id(point)),
                ("log", response.log.as_ref().map(log_value)),
                ("buffered_bytes", number(response.buffered_bytes)),
                (
                    "buffered_limit_bytes",
                    number(response.buffered_limit_bytes),
                ),
                ("blob_quota_bytes", number(response.blob_quota_bytes)),
            ],
        );
        let ours = encoded(|out| response.encode(out));
        assert_same("StatisticsResponse", &ours, &expected);
        let theirs = expected.encode_to_vec();
        assert_eq!(StatisticsResponse::decode(&theirs), Ok(response));
    }
}

#[test]
fn enums_that_this_version_does_not_know_are_refused() {
    for (field, name) in [(2, "database.kind"), (3, "database.durability")] {
        let mut request = Vec::new();
        protobuf::writer::message(&mut request, 1, |out| {
            protobuf::writer::uint64(out, field, 9)
        });
        let invalid = decode_create_database(&request).expect_err("it is not known");
        assert_eq!(invalid.field, name);
    }
}

#[test]
fn backups_and_snapshots_are_told_of() {
    for seed in 0..ROUNDS {
        let mut random = Random::new(seed);
        let name = ["", "monday", "ä"][random.below(3) as usize];
        let expected = message("BackupRequest", [("name", text(name))]);
        let ours = encoded(|out| encode_backup(name, out));
        assert_same("BackupRequest", &ours, &expected);
        assert_eq!(decode_backup(&expected.encode_to_vec()), Ok(name));

        let progress = BackupProgress {
            written_bytes: random.number(),
            total_bytes: random.number(),
            sequence: random.number(),
            complete: random.flag(),
            databases: random.number(),
            volatile_databases: random.number(),
            path: name,
        };
        let expected = message(
            "BackupProgress",
            [
                ("written_bytes", number(progress.written_bytes)),
                ("total_bytes", number(progress.total_bytes)),
                ("sequence", number(progress.sequence)),
                ("complete", Some(Value::Bool(progress.complete))),
                ("databases", number(progress.databases)),
                ("volatile_databases", number(progress.volatile_databases)),
                ("path", text(progress.path)),
            ],
        );
        let ours = encoded(|out| progress.encode(out));
        assert_same("BackupProgress", &ours, &expected);
        let theirs = expected.encode_to_vec();
        assert_eq!(BackupProgress::decode(&theirs), Ok(progress));

        let made = SnapshotResponse {
            sequence: random.number(),
            entries: random.number(),
            bytes: random.number(),
        };
        let expected = message(
            "SnapshotResponse",
            [
                ("sequence", number(made.sequence)),
                ("entries", number(made.entries)),
                ("bytes", number(made.bytes)),
            ],
        );
        let ours = encoded(|out| made.encode(out));
        assert_same("SnapshotResponse", &ours, &expected);
        assert_eq!(
            SnapshotResponse::decode(&expected.encode_to_vec()),
            Ok(made)
        );
    }
}

#[test]
fn conversions_are_told_of() {
    for seed in 0..ROUNDS {
        let mut random = Random::new(seed);
        let request = ConvertDatabaseRequest {
            name: ["", "monday", "ä"][random.below(3) as usize],
            kind: [DatabaseKind::Memory, DatabaseKind::Disk][random.below(2) as usize],
        };
        let expected = message(
            "ConvertDatabaseRequest",
            [
                ("name", text(request.name)),
                ("kind", Some(Value::EnumNumber(request.kind as i32))),
            ],
        );
        let ours = encoded(|out| request.encode(out));
        assert_same("ConvertDatabaseRequest", &ours, &expected);
        let theirs = expected.encode_to_vec();
        assert_eq!(ConvertDatabaseRequest::decode(&theirs), Ok(request));

        let progress = ConvertProgress {
            copied_entries: random.number(),
            total_entries: random.number(),
            complete: random.flag(),
            converted: random.flag(),
            sequence: random.number(),
        };
        let expected = message(
            "ConvertProgress",
            [
                ("copied_entries", number(progress.copied_entries)),
                ("total_entries", number(progress.total_entries)),
                ("complete", Some(Value::Bool(progress.complete))),
                ("converted", Some(Value::Bool(progress.converted))),
                ("sequence", number(progress.sequence)),
            ],
        );
        let ours = encoded(|out| progress.encode(out));
        assert_same("ConvertProgress", &ours, &expected);
        let theirs = expected.encode_to_vec();
        assert_eq!(ConvertProgress::decode(&theirs), Ok(progress));
    }
}
