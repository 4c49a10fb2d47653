//! What stands in a snapshot beside its entries: the first page, the catalogue, the closing page.

use std::collections::{BTreeMap, BTreeSet};

use super::page::{FORMAT_VERSION, FORMAT_VERSION_1, u32_at, u64_at};
use crate::database::{DatabaseConfig, Kind};
use crate::database_id::DatabaseId;
use crate::limits;
use crate::store::DatabaseInfo;
use crate::tree::Generation;

/// What a snapshot is of.
#[derive(Clone, Debug)]
pub struct SnapshotHeader {
    /// The public half of the id of the log that goes with it.
    pub history_id: u64,
    /// The base: everything up to this sequence is in it.
    pub sequence: u64,
    /// Up to this sequence, at or before the base, the log is of no use: the snapshot has what is
    /// in memory, and trees have what is on disk.
    pub replay_sequence: u64,
    /// The log's clock at that moment, in milliseconds since 1970.
    pub wall_ms: u64,
    /// The number that the next database gets. Numbers are not used again.
    pub next_database: u32,
    /// The databases that there were after the commit of that sequence, volatile ones too, in the
    /// order of their numbers.
    pub databases: Vec<DatabaseInfo>,
    /// The number of the list of tables that each tree had, at least, at that moment. The log is
    /// shortened on the strength of what these tables hold.
    pub tree_lists: BTreeMap<Generation, u64>,
}

/// What the closing page says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotTotals {
    /// Entries of all databases.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub content_bytes: u64,
    /// The log was durable up to this sequence, at or past everything that is in the snapshot.
    pub last_sequence: u64,
}

const FIRST_BYTES: usize = 32;

/// With the sequence from which the log is replayed, where that is not the base.
const LONG_FIRST_BYTES: usize = FIRST_BYTES + 8;
const CLOSING_BYTES: usize = 32;

/// Number and length of the name. Behind them the configuration, for a database on disk the commit
/// that its tree begins with and (from format 2 on) the number of its list of tables, and the name.
const DATABASE_BYTES: usize = 4 + 2;

impl SnapshotHeader {
    /// The oldest version of the format that can say this.
    pub(super) fn format_version(&self) -> u16 {
        let is_on_disk = |database: &DatabaseInfo| database.tree.is_some();
        match self.databases.iter().any(is_on_disk) {
            true => FORMAT_VERSION,
            false => FORMAT_VERSION_1,
        }
    }

    pub(super) fn encode_first(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.history_id.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.wall_ms.to_le_bytes());
        out.extend_from_slice(&self.next_database.to_le_bytes());
        let databases =
            u32::try_from(self.databases.len()).expect("there are few thousands at most");
        out.extend_from_slice(&databases.to_le_bytes());
        if self.replay_sequence != self.sequence {
            out.extend_from_slice(&self.replay_sequence.to_le_bytes());
        }
    }

    pub(super) fn encode_catalogue(&self, out: &mut Vec<u8>) {
        for database in &self.databases {
            let name_len = u16::try_from(database.name.len()).expect("names are short");
            out.extend_from_slice(&database.id.0.to_le_bytes());
            out.extend_from_slice(&name_len.to_le_bytes());
            out.extend_from_slice(&database.config.encode());
            if let Some(generation) = database.tree {
                let list = self.tree_lists.get(&generation).copied();
                out.extend_from_slice(&generation.sequence.to_le_bytes());
                out.extend_from_slice(&list.unwrap_or(0).to_le_bytes());
            }
            out.extend_from_slice(database.name.as_bytes());
        }
    }

    /// Reads the first page; returns how many databases the catalogue has, which is still to come.
    pub(super) fn decode_first(body: &[u8]) -> Option<(SnapshotHeader, usize)> {
        let sequence = || u64_at(body, 8);
        let replay_sequence = match body.len() {
            FIRST_BYTES => sequence(),
            LONG_FIRST_BYTES => u64_at(body, FIRST_BYTES),
            _ => return None,
        };
        if replay_sequence > sequence() {
            return None;
        }
        let header = SnapshotHeader {
            history_id: u64_at(body, 0),
            sequence: sequence(),
            replay_sequence,
            wall_ms: u64_at(body, 16),
            next_database: u32_at(body, 24),
            databases: Vec::new(),
            tree_lists: BTreeMap::new(),
        };
        let databases = u32_at(body, 28) as usize;
        let databases_max = limits::DATABASES + DatabaseId::HIDDEN.len();
        let is_plausible = (1..=databases_max).contains(&databases);
        is_plausible.then_some((header, databases))
    }

    /// Reads the catalogue; `None`: it makes no sense.
    pub(super) fn decode_catalogue(
        &mut self,
        version: u16,
        mut body: &[u8],
        databases: usize,
    ) -> Option<()> {
        for _ in 0..databases {
            let (head, rest) = body.split_at_checked(DATABASE_BYTES)?;
            let name_len = usize::from(u16::from_le_bytes([head[4], head[5]]));
            let (config, mut rest) = rest.split_at_checked(DatabaseConfig::ENCODED_BYTES)?;
            let (id, config) = (
                DatabaseId(u32_at(head, 0)),
                DatabaseConfig::decode_logged(config)?,
            );
            let mut tree = None;
            if config.kind == Kind::Disk {
                let (sequence, behind) = rest.split_at_checked(8)?;
                rest = behind;
                let generation = Generation {
                    database: id,
                    sequence: u64_at(sequence, 0),
                };
                if version >= FORMAT_VERSION {
                    let (list, behind) = rest.split_at_checked(8)?;
                    rest = behind;
                    self.tree_lists.insert(generation, u64_at(list, 0));
                }
                tree = Some(generation);
            }
            let (name, rest) = rest.split_at_checked(name_len)?;
            body = rest;
            self.databases.push(DatabaseInfo {
                id,
                name: std::str::from_utf8(name).ok()?.to_owned(),
                config,
                tree,
            });
        }
        let ids = self.databases.iter().map(|database| database.id);
        let names: BTreeSet<&str> = self.databases.iter().map(|one| &*one.name).collect();
        let is_whole = body.is_empty()
            && ids.is_sorted_by(|one, next| one < next)
            && self.databases.first()?.id == DatabaseId::DEFAULT
            && (self.databases.iter().rev())
                .find(|database| !database.id.is_hidden())
                .is_some_and(|last| last.id.0 < self.next_database)
            && names.len() == databases;
        is_whole.then_some(())
    }
}

impl SnapshotTotals {
    pub(super) fn encode(&self, base_sequence: u64, out: &mut Vec<u8>) {
        for number in [
            base_sequence,
            self.entries,
            self.content_bytes,
            self.last_sequence,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// Reads the closing page; gives the base sequence too.
    pub(super) fn decode(body: &[u8]) -> Option<(u64, SnapshotTotals)> {
        (body.len() == CLOSING_BYTES).then(|| {
            let totals = SnapshotTotals {
                entries: u64_at(body, 8),
                content_bytes: u64_at(body, 16),
                last_sequence: u64_at(body, 24),
            };
            (u64_at(body, 0), totals)
        })
    }
}
