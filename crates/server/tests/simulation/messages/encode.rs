//! Requests as bytes.

use api::admin::{CreateDatabaseRequest, DatabaseDescription, DropDatabaseRequest, DurabilityMode};
use api::keyvalue::{
    CountRequest, Direction, KeyRange, Keys, PipeAnswers, PipeRequest, ResumePoint, ScanRequest,
    WatchRequest,
};
use protobuf::writer;
use store::{Condition, Durability, Expiry, Mode, Operation};
use testkit::keyvalue::{OperationRequest, encode_batch, encode_transact};

use crate::databases;
use crate::history::{Asked, If};
use crate::keys::{self, Key};

/// The path of a Pipe.
pub const PIPE: &str = "/pelton.v1.KeyValue/Pipe";

/// The path of the method.
pub fn path(asked: &Asked) -> &'static str {
    match asked {
        Asked::Get(_) | Asked::Silent => "/pelton.v1.KeyValue/Get",
        Asked::Put { .. } => "/pelton.v1.KeyValue/Put",
        Asked::Delete { .. } => "/pelton.v1.KeyValue/Delete",
        Asked::Append(_) => "/pelton.v1.KeyValue/Append",
        Asked::Increment(_) => "/pelton.v1.KeyValue/Increment",
        Asked::WriteGroup { .. } | Asked::WriteMany(_) | Asked::ReadMany(_) => {
            "/pelton.v1.KeyValue/Batch"
        }
        Asked::Transact { .. } => "/pelton.v1.KeyValue/Transact",
        Asked::Scan { .. } => "/pelton.v1.KeyValue/Scan",
        Asked::Count(_) => "/pelton.v1.KeyValue/Count",
        Asked::Changes { .. } => "/pelton.v1.KeyValue/Watch",
        Asked::Create => "/pelton.v1.Admin/CreateDatabase",
        Asked::Drop => "/pelton.v1.Admin/DropDatabase",
        Asked::List => "/pelton.v1.Admin/ListDatabases",
        Asked::Echo { .. } => "/pelton.v1.Echo/Unary",
        Asked::EchoStream { .. } => "/pelton.v1.Echo/Stream",
        Asked::Check => "/grpc.health.v1.Health/Check",
        Asked::Watch => "/grpc.health.v1.Health/Watch",
        Asked::Nowhere => "/pelton.v1.KeyValue/NoSuchMethod",
    }
}

fn condition(condition: If) -> Condition<'static> {
    match condition {
        If::Always => Condition::None,
        If::Absent => Condition::Absent,
        If::Present => Condition::Present,
        If::Version(version) => Condition::VersionIs(version),
    }
}

fn put<'a>(key: &'a [u8], value: &'a [u8], when: If) -> Operation<'a> {
    Operation::Put {
        key,
        value,
        condition: condition(when),
        expiry: Expiry::None,
        want_previous: false,
    }
}

/// Appends the message with which call number `by` asks.
pub fn encode(asked: &Asked, database: &str, by: u64, out: &mut Vec<u8>) {
    let single = |operation: Operation<'_>, out: &mut Vec<u8>| {
        OperationRequest {
            database,
            operation,
        }
        .encode(out);
    };
    match asked {
        Asked::Get(key) => single(
            Operation::Get {
                key: &keys::bytes_of(*key),
            },
            out,
        ),
        Asked::Put {
            key,
            bytes,
            condition: when,
            previous,
            expiry,
        } => {
            let (key, value) = (
                &keys::bytes_of(*key)[..],
                &keys::value(by, *key, *bytes)[..],
            );
            single(
                Operation::Put {
                    key,
                    value,
                    condition: condition(*when),
                    expiry: *expiry,
                    want_previous: *previous,
                },
                out,
            );
        }
        Asked::Delete {
            key,
            condition: when,
            previous,
        } => {
            let (key, condition) = (&keys::bytes_of(*key)[..], condition(*when));
            single(
                Operation::Delete {
                    key,
                    condition,
                    want_previous: *previous,
                },
                out,
            );
        }
        Asked::Append(key) => {
            let (key, value) = (&keys::bytes_of(*key)[..], &by.to_be_bytes()[..]);
            single(
                Operation::Append {
                    key,
                    value,
                    condition: Condition::None,
                },
                out,
            );
        }
        Asked::Increment(key) => {
            let (delta, condition) = (keys::step(*key), Condition::None);
            let key = &keys::bytes_of(*key);
            single(
                Operation::Increment {
                    key,
                    delta,
                    initial: 0,
                    condition,
                },
                out,
            );
        }
        Asked::WriteGroup { first, if_version } => {
            let when = |key: Key| match *if_version {
                Some(version) if key == *first => If::Version(version),
                _ => If::Always,
            };
            let keys: Vec<Key> = (*first..first + keys::GROUP_KEYS).collect();
            batch_of_puts(&keys, database, by, Mode::Atomic, when, out);
        }
        Asked::Transact { first, version } => transact(*first, *version, database, by, out),
        Asked::WriteMany(keys) => {
            batch_of_puts(keys, database, by, Mode::Independent, |_| If::Always, out);
        }
        Asked::ReadMany(keys) => {
            let keys: Vec<_> = keys.iter().map(|key| keys::bytes_of(*key)).collect();
            let gets: Vec<_> = keys.iter().map(|key| Operation::Get { key }).collect();
            encode_batch(out, database, Mode::Atomic, 0, &gets);
        }
        Asked::Scan {
            keys: range,
            by_prefix,
            backward,
            keys_only,
            limit,
        } => {
            let (bounds, prefix) = bounds(range);
            let direction = match *backward {
                true => Direction::Backward,
                false => Direction::Forward,
            };
            ScanRequest {
                database,
                direction: direction.number(),
                keys_only: *keys_only,
                limit: *limit,
                keys: Some(match *by_prefix {
                    true => Keys::Prefix(&prefix),
                    false => Keys::Range(KeyRange {
                        start: &bounds.0,
                        end: &bounds.1,
                    }),
                }),
                ..ScanRequest::default()
            }
            .encode(out);
        }
        Asked::Count(range) => {
            let (bounds, _) = bounds(range);
            let range = KeyRange {
                start: &bounds.0,
                end: &bounds.1,
            };
            CountRequest {
                database,
                keys: Some(Keys::Range(range)),
                ..CountRequest::default()
            }
            .encode(out);
        }
        Asked::Changes { behind } => WatchRequest {
            database,
            resume: behind.map(|sequence| ResumePoint {
                history_id: &[],
                sequence,
            }),
            ..WatchRequest::default()
        }
        .encode(out),
        Asked::Create => CreateDatabaseRequest {
            database: Some(describe(database)),
        }
        .encode(out),
        Asked::Drop => DropDatabaseRequest {
            name: database,
            confirm_name: database,
        }
        .encode(out),
        Asked::List => {}
        Asked::Echo { bytes, delay_ms } => {
            writer::bytes(out, 1, &keys::value(by, 0, *bytes));
            writer::uint64(out, 3, u64::from(*delay_ms));
        }
        Asked::EchoStream { bytes, .. } => writer::bytes(out, 1, &keys::value(by, 0, *bytes)),
        Asked::Check | Asked::Watch => writer::bytes(out, 1, b"pelton.v1.KeyValue"),
        Asked::Nowhere | Asked::Silent => {}
    }
}

type KeyBytes = [u8; 6];

fn bounds(range: &std::ops::Range<Key>) -> ((KeyBytes, KeyBytes), [u8; 2]) {
    (
        (keys::bytes_of(range.start), keys::bytes_of(range.end)),
        keys::prefix(range),
    )
}

fn batch_of_puts(
    keys: &[Key],
    database: &str,
    by: u64,
    mode: Mode,
    when: impl Fn(Key) -> If,
    out: &mut Vec<u8>,
) {
    // Of different lengths, so that groups have some blocks.
    let length = 24 + by as usize % 8 * 30;
    let bytes = keys.iter().map(|&key| {
        let value = keys::value(by, key, length);
        (keys::bytes_of(key), value, when(key))
    });
    let bytes: Vec<_> = bytes.collect();
    let puts: Vec<_> = bytes
        .iter()
        .map(|(key, value, when)| put(key, value, *when))
        .collect();
    encode_batch(out, database, mode, 0, &puts);
}

fn transact(first: Key, version: u64, database: &str, by: u64, out: &mut Vec<u8>) {
    let group = first..first + keys::GROUP_KEYS;
    let keys: Vec<_> = group.clone().map(keys::bytes_of).collect();
    let values: Vec<_> = group.map(|key| keys::value(by, key, 24)).collect();
    let condition = Condition::VersionIs(version);
    let compares = [&keys[0], &keys[keys.len() - 1]].map(|key| (&key[..], condition));
    let puts: Vec<_> = keys
        .iter()
        .zip(&values)
        .map(|(key, value)| put(key, value, If::Always))
        .collect();
    let gets: Vec<_> = keys.iter().map(|key| Operation::Get { key }).collect();
    encode_transact(out, database, 0, &compares, &puts, &gets);
}

/// Appends a batch of a Pipe.
pub fn encode_piped(asked: &Asked, database: &str, quiet: bool, by: u64, out: &mut Vec<u8>) {
    encode(asked, database, by, out);
    let answers = if quiet {
        PipeAnswers::FailuresOnly
    } else {
        PipeAnswers::All
    };
    PipeRequest {
        answers: answers.number(),
        ..PipeRequest::default()
    }
    .encode(out);
}

fn describe(name: &str) -> DatabaseDescription<'_> {
    let (durability, interval_ms) = match databases::durability(databases::of_name(name)) {
        Durability::Synced => (DurabilityMode::Synced, 0),
        Durability::Interval { ms } => (DurabilityMode::Interval, ms),
        Durability::Written => (DurabilityMode::Written, 0),
        Durability::Volatile => (DurabilityMode::Volatile, 0),
    };
    DatabaseDescription {
        name,
        durability: durability.number(),
        interval_ms: interval_ms as u32,
        ..DatabaseDescription::default()
    }
}
