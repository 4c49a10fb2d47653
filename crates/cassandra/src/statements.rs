//! The texts of CQL, each prepared once, when it is first needed.

use std::collections::HashMap;

use parking_lot::RwLock;
use scylla::client::session::Session;
use scylla::errors::{ExecutionError, PrepareError};
use scylla::frame::types::{Consistency, SerialConsistency};
use scylla::statement::prepared::PreparedStatement;
use store::Direction;

use crate::failure::{EngineFailure, Repeatable, classify};
use crate::partition::EntryTable;
use crate::schema;

/// What a statement does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum StatementName {
    /// Reads all databases, serially.
    ReadCatalogue,
    /// Writes the first row of the catalogue, if it has none.
    BeginCatalogue,
    /// Takes the next number of a database, if it is the one that was read.
    TakeDatabaseId,
    /// Adds a database, if its name is free.
    AddDatabase,
    /// Takes a database out, if it is the one that was read.
    RemoveDatabase,
    /// Reads a partition of the catalogue at QUORUM: whether one answers.
    Probe,
    /// Reads entries by their keys.
    ReadKeys(EntryTable),
    /// Reads what is known of entries without their values.
    ReadHeads(EntryTable, HeadBounds),
    /// Stores an entry of a linearizable database, under a condition.
    Put(VersionCondition),
    /// Removes an entry of a linearizable database, under a condition.
    Delete(VersionCondition),
    /// Changes nothing in a row of a linearizable database, under a condition: for keys that a
    /// commit has only read.
    Guard,
    /// Stores an entry of a quorum database.
    PutQuorum,
    /// Removes an entry of a quorum database.
    DeleteQuorum,
    /// Removes all rows of a bucket, of a database that was dropped.
    RemoveBucket(EntryTable),
}

/// On what a write of a linearizable database depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum VersionCondition {
    /// The row has the version that was read, or still none.
    Same,
    /// Nothing: the row has not the version -1, which none ever has. A write without any condition
    /// would not be ordered with those that have one.
    Any,
}

/// The ends and the direction of a range within a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HeadBounds {
    pub(crate) start: BoundKind,
    pub(crate) end: BoundKind,
    pub(crate) is_backward: bool,
}

/// An end of a range, without its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum BoundKind {
    Unbounded,
    Included,
    Excluded,
}

impl BoundKind {
    pub(crate) fn of(bound: std::ops::Bound<&[u8]>) -> BoundKind {
        match bound {
            std::ops::Bound::Unbounded => BoundKind::Unbounded,
            std::ops::Bound::Included(_) => BoundKind::Included,
            std::ops::Bound::Excluded(_) => BoundKind::Excluded,
        }
    }
}

impl HeadBounds {
    pub(crate) fn of(range: &store::Range<'_>, direction: Direction) -> HeadBounds {
        HeadBounds {
            start: BoundKind::of(range.start),
            end: BoundKind::of(range.end),
            is_backward: direction == Direction::Backward,
        }
    }

    fn text(self) -> String {
        let part = |kind: BoundKind, included: &str, excluded: &str| match kind {
            BoundKind::Unbounded => String::new(),
            BoundKind::Included => format!(" AND key {included} ?"),
            BoundKind::Excluded => format!(" AND key {excluded} ?"),
        };
        let order = match self.is_backward {
            true => " ORDER BY key DESC",
            false => "",
        };
        let (start, end) = (part(self.start, ">=", ">"), part(self.end, "<=", "<"));
        format!("{start}{end}{order}")
    }
}

/// All names, to be prepared at a start: preparing waits for every node, also for one that is
/// frozen later.
pub(crate) fn all_names() -> Vec<StatementName> {
    let mut names = vec![
        StatementName::ReadCatalogue,
        StatementName::TakeDatabaseId,
        StatementName::AddDatabase,
        StatementName::RemoveDatabase,
        StatementName::Probe,
        StatementName::Guard,
        StatementName::PutQuorum,
        StatementName::DeleteQuorum,
    ];
    for condition in [VersionCondition::Same, VersionCondition::Any] {
        names.extend([
            StatementName::Put(condition),
            StatementName::Delete(condition),
        ]);
    }
    for table in [EntryTable::Linearizable, EntryTable::Quorum] {
        names.extend([
            StatementName::ReadKeys(table),
            StatementName::RemoveBucket(table),
        ]);
        let bounds = all_bounds().map(|bounds| StatementName::ReadHeads(table, bounds));
        names.extend(bounds);
    }
    names
}

fn all_bounds() -> impl Iterator<Item = HeadBounds> {
    const KINDS: [BoundKind; 3] = [
        BoundKind::Unbounded,
        BoundKind::Included,
        BoundKind::Excluded,
    ];
    let ends = KINDS
        .into_iter()
        .flat_map(|start| KINDS.map(|end| (start, end)));
    ends.flat_map(|(start, end)| {
        [false, true].map(|is_backward| HeadBounds {
            start,
            end,
            is_backward,
        })
    })
}

const PARTITION: &str = "database = ? AND bucket = ?";

impl StatementName {
    /// Returns its text.
    fn text(self, keyspace: &str) -> String {
        let catalogue = format!("{keyspace}.{}", schema::CATALOGUE.name);
        let entries = |table: EntryTable| format!("{keyspace}.{}", table.name());
        let linearizable = entries(EntryTable::Linearizable);
        let quorum = entries(EntryTable::Quorum);
        match self {
            StatementName::ReadCatalogue => format!(
                "SELECT name, id, made, config, next_id, schema_version FROM {catalogue} \
                 WHERE part = 0"
            ),
            StatementName::BeginCatalogue => format!(
                "INSERT INTO {catalogue} \
                 (part, name, schema_version, next_id, id, made, config, shape) \
                 VALUES (0, '', ?, ?, ?, ?, ?, ?) IF NOT EXISTS"
            ),
            StatementName::TakeDatabaseId => {
                format!("UPDATE {catalogue} SET next_id = ? WHERE part = 0 IF next_id = ?")
            }
            StatementName::AddDatabase => format!(
                "INSERT INTO {catalogue} (part, name, id, made, config, shape) \
                 VALUES (0, ?, ?, ?, ?, ?) IF NOT EXISTS"
            ),
            StatementName::RemoveDatabase => {
                format!("DELETE FROM {catalogue} WHERE part = 0 AND name = ? IF id = ?")
            }
            StatementName::Probe => {
                format!("SELECT name FROM {catalogue} WHERE part = ? LIMIT 1")
            }
            StatementName::ReadKeys(table) => format!(
                "SELECT key, {} FROM {} WHERE {PARTITION} AND key IN ?",
                entry_columns(table),
                entries(table)
            ),
            StatementName::ReadHeads(table, bounds) => format!(
                "SELECT key, {} FROM {} WHERE {PARTITION}{} LIMIT ?",
                head_columns(table),
                entries(table),
                bounds.text()
            ),
            StatementName::Put(condition) => format!(
                "UPDATE {linearizable} USING TTL ? SET value = ?, version = ?, expires_ms = ?, \
                 bytes = ? WHERE {PARTITION} AND key = ? IF {}",
                condition.text()
            ),
            StatementName::Delete(condition) => format!(
                "DELETE FROM {linearizable} WHERE {PARTITION} AND key = ? IF {}",
                condition.text()
            ),
            StatementName::Guard => format!(
                "DELETE guard FROM {linearizable} WHERE {PARTITION} AND key = ? IF version = ?"
            ),
            StatementName::PutQuorum => format!(
                "INSERT INTO {quorum} (database, bucket, key, head, entry) \
                 VALUES (?, ?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?"
            ),
            StatementName::DeleteQuorum => {
                format!("DELETE FROM {quorum} USING TIMESTAMP ? WHERE {PARTITION} AND key = ?")
            }
            StatementName::RemoveBucket(table) => {
                format!("DELETE FROM {} WHERE {PARTITION}", entries(table))
            }
        }
    }

    /// At which consistency it is carried out.
    fn consistency(self) -> Consistency {
        match self {
            StatementName::ReadCatalogue
            | StatementName::ReadKeys(EntryTable::Linearizable)
            | StatementName::ReadHeads(EntryTable::Linearizable, _) => Consistency::Serial,
            _ => Consistency::Quorum,
        }
    }
}

impl VersionCondition {
    fn text(self) -> &'static str {
        match self {
            VersionCondition::Same => "version = ?",
            VersionCondition::Any => "version != -1",
        }
    }
}

fn head_columns(table: EntryTable) -> &'static str {
    match table {
        EntryTable::Linearizable => "version, expires_ms, bytes",
        EntryTable::Quorum => "head",
    }
}

fn entry_columns(table: EntryTable) -> &'static str {
    match table {
        EntryTable::Linearizable => "value, version, expires_ms",
        EntryTable::Quorum => "head, entry",
    }
}

/// The statements that are prepared. At most one for each name.
#[derive(Debug)]
pub(crate) struct Statements {
    keyspace: String,
    prepared: RwLock<HashMap<StatementName, PreparedStatement>>,
}

impl Statements {
    pub(crate) fn new(keyspace: &str) -> Statements {
        Statements {
            keyspace: keyspace.to_owned(),
            prepared: RwLock::default(),
        }
    }

    /// Returns a statement, and prepares it if it is needed for the first time.
    pub(crate) async fn get(
        &self,
        session: &Session,
        name: StatementName,
    ) -> Result<PreparedStatement, EngineFailure> {
        let known = self.prepared.read().get(&name).cloned();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let prepared = session.prepare(name.text(&self.keyspace)).await;
        let mut statement = prepared.map_err(unprepared)?;
        statement.set_consistency(name.consistency());
        statement.set_serial_consistency(Some(SerialConsistency::Serial));
        self.prepared.write().insert(name, statement.clone());
        Ok(statement)
    }
}

/// Nothing was done, and it is not that the statement is wrong if no node could be asked.
fn unprepared(error: PrepareError) -> EngineFailure {
    let error = match error {
        PrepareError::ConnectionPoolError(error) => ExecutionError::ConnectionPoolError(error),
        PrepareError::AllAttemptsFailed { first_attempt } => {
            ExecutionError::LastAttemptError(first_attempt)
        }
        other => ExecutionError::PrepareError(other),
    };
    EngineFailure {
        may_have_happened: false,
        ..classify(&error, Repeatable::Yes)
    }
}

#[cfg(test)]
mod tests {
    use store::Range;

    use super::*;

    fn heads(range: Range<'_>, direction: Direction) -> String {
        let bounds = HeadBounds::of(&range, direction);
        StatementName::ReadHeads(EntryTable::Quorum, bounds).text("shop")
    }

    #[test]
    fn a_range_of_keys_becomes_conditions_on_the_clustering_column() {
        assert_eq!(
            heads(Range::ALL, Direction::Forward),
            "SELECT key, head FROM shop.quorum WHERE database = ? AND bucket = ? LIMIT ?"
        );
        assert_eq!(
            heads(Range::new(b"a", Some(b"b")), Direction::Backward),
            "SELECT key, head FROM shop.quorum WHERE database = ? AND bucket = ? \
             AND key >= ? AND key < ? ORDER BY key DESC LIMIT ?"
        );
        let beyond = Range::ALL.beyond(b"a", Direction::Forward);
        assert!(heads(beyond, Direction::Forward).contains(" AND key > ? LIMIT"));
    }

    #[test]
    fn every_write_of_a_linearizable_database_has_a_condition() {
        for condition in [VersionCondition::Same, VersionCondition::Any] {
            for name in [
                StatementName::Put(condition),
                StatementName::Delete(condition),
            ] {
                assert!(name.text("shop").contains(" IF version "), "{name:?}");
            }
        }
        assert!(
            StatementName::Guard
                .text("shop")
                .contains(" IF version = ?")
        );
    }

    #[test]
    fn no_write_of_a_quorum_database_has_one_and_each_has_its_timestamp() {
        for name in [StatementName::PutQuorum, StatementName::DeleteQuorum] {
            let text = name.text("shop");
            assert!(
                !text.contains(" IF ") && text.contains("TIMESTAMP ?"),
                "{text}"
            );
        }
    }

    #[test]
    fn no_two_statements_are_the_same() {
        let mut texts: Vec<String> = all_names().iter().map(|name| name.text("shop")).collect();
        let count = texts.len();
        texts.sort();
        texts.dedup();
        assert_eq!((count, texts.len()), (8 + 4 + 2 * (2 + 18), count));
    }

    #[test]
    fn linearizable_databases_are_read_serially() {
        let of = |table| StatementName::ReadKeys(table).consistency();
        assert_eq!(of(EntryTable::Linearizable), Consistency::Serial);
        assert_eq!(of(EntryTable::Quorum), Consistency::Quorum);
        assert_eq!(StatementName::PutQuorum.consistency(), Consistency::Quorum);
    }
}
