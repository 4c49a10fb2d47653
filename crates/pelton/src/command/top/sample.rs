//! The figures of a server at one moment.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use api::admin::{DatabaseStatistics, LogStatistics, StatisticsResponse};

use super::super::database::{describe, is_remote};
use crate::encoding::escape;

/// Calls of a method since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MethodCalls {
    pub(super) all: u64,
    /// Those with another status than OK.
    pub(super) failed: u64,
}

/// A database.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DatabaseSample {
    pub(super) name: String,
    /// Kind, durability and limits.
    pub(super) kind: String,
    pub(super) is_remote: bool,
    pub(super) entries: u64,
    pub(super) memory_bytes: u64,
    pub(super) disk_bytes: u64,
    pub(super) blobs: u64,
    pub(super) blob_bytes: u64,
    pub(super) unfinished_uploads: u64,
    pub(super) sequence: u64,
}

/// Of a replica.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ReplicaSample {
    pub(super) leader: String,
    pub(super) is_connected: bool,
    pub(super) lag_ms: u64,
    pub(super) behind: u64,
    pub(super) problem: String,
}

/// The figures of a server at one moment.
#[derive(Clone, Debug)]
pub(super) struct TopSample {
    pub(super) at: Instant,
    pub(super) round_trip: Duration,
    pub(super) server: String,
    pub(super) uptime_ms: u64,
    pub(super) open_connections: u64,
    pub(super) running_calls: u64,
    pub(super) memory: (u64, u64),
    pub(super) buffered: (u64, u64),
    pub(super) methods: BTreeMap<String, MethodCalls>,
    pub(super) databases: Vec<DatabaseSample>,
    pub(super) log: Option<LogStatistics>,
    pub(super) replica: Option<ReplicaSample>,
    pub(super) followers: u64,
}

impl TopSample {
    /// What a server has just said.
    pub(super) fn new(
        figures: &StatisticsResponse<'_>,
        at: Instant,
        round_trip: Duration,
    ) -> TopSample {
        let mut methods: BTreeMap<String, MethodCalls> = BTreeMap::new();
        for one in figures.methods.iter().flatten() {
            let calls = methods.entry(escape(one.method.as_bytes())).or_default();
            let failed = if one.code == 0 { 0 } else { one.calls };
            calls.all = calls.all.saturating_add(one.calls);
            calls.failed = calls.failed.saturating_add(failed);
        }
        TopSample {
            at,
            round_trip,
            server: escape(figures.server.as_bytes()),
            uptime_ms: figures.uptime_ms,
            open_connections: figures.open_connections,
            running_calls: figures.running_calls,
            memory: (figures.memory_bytes, figures.memory_limit_bytes),
            buffered: (figures.buffered_bytes, figures.buffered_limit_bytes),
            methods,
            databases: figures.databases.iter().flatten().map(database).collect(),
            log: figures.log,
            replica: figures.replica.as_ref().map(|replica| ReplicaSample {
                leader: escape(replica.leader.as_bytes()),
                is_connected: replica.connected,
                lag_ms: replica.lag_ms,
                behind: replica.leader_sequence.saturating_sub(replica.sequence),
                problem: escape(replica.problem.as_bytes()),
            }),
            followers: figures.followers,
        }
    }
}

fn database(one: DatabaseStatistics<'_>) -> DatabaseSample {
    let described = one.database.as_ref();
    DatabaseSample {
        name: described.map_or_else(String::new, |database| escape(database.name.as_bytes())),
        kind: described.map_or_else(String::new, describe),
        is_remote: described.is_some_and(is_remote),
        entries: one.entries,
        memory_bytes: one.memory_bytes,
        disk_bytes: one.disk_bytes,
        blobs: one.blobs,
        blob_bytes: one.blob_bytes,
        unfinished_uploads: one.unfinished_uploads,
        sequence: one.sequence,
    }
}
