//! Which databases on disk a data folder must have, by its snapshot and its log, and whether their
//! trees are whole. For a folder of which no server has the lock; changes nothing.

use std::collections::BTreeMap;
use std::path::Path;

use super::conversion::Converted;
use super::database_name::Named;
use crate::database::{DatabaseConfig, Kind};
use crate::database_id::DatabaseId;
use crate::log::{Record, RecordKind};
use crate::snapshot::SnapshotHeader;
use crate::tree::{Generation, TreeError, TreeReport, verify_tree};

/// The trees that databases are in, when the log was read up to some place.
#[derive(Debug, Default)]
pub struct NamedTrees {
    /// The snapshot has everything up to here.
    base_sequence: u64,
    names: BTreeMap<DatabaseId, String>,
    trees: BTreeMap<DatabaseId, NamedTree>,
}

#[derive(Clone, Copy, Debug)]
struct NamedTree {
    generation: Generation,
    /// Its list of tables has at least this number.
    least_list: u64,
    /// The log has all that was ever in it: a crash may have come before its folder was made.
    is_in_log: bool,
    /// The database is in memory, and was made from this tree since the snapshot.
    is_retained: bool,
}

/// What a look at the tree of one database has shown.
#[derive(Debug)]
pub struct TreeVerdict {
    /// The database, in words.
    pub database: String,
    /// Its name; empty: that of the default one.
    pub name: String,
    /// What is there, or what is wrong; `None`: it has no folder yet, and needs none.
    pub found: Result<Option<TreeReport>, TreeError>,
}

impl NamedTrees {
    /// As the newest snapshot says, if there is one.
    pub fn of_snapshot(header: Option<&SnapshotHeader>) -> NamedTrees {
        let mut named = NamedTrees::default();
        let Some(header) = header else {
            return named;
        };
        named.base_sequence = header.sequence;
        for database in &header.databases {
            let name = database.name.to_string();
            named.names.insert(database.id, name);
            if let Some(generation) = database.tree {
                let least = header.tree_lists.get(&generation).copied();
                named.begin(generation, least.unwrap_or(0), false);
            }
        }
        named
    }

    fn begin(&mut self, generation: Generation, least_list: u64, is_in_log: bool) {
        let tree = NamedTree {
            generation,
            least_list,
            is_in_log,
            is_retained: false,
        };
        self.trees.insert(generation.database, tree);
    }

    /// Takes notice of a record of the log: all of them, in their order.
    pub fn record(&mut self, record: &Record<'_>) {
        let id = record.database;
        let generation = Generation {
            database: id,
            sequence: record.sequence,
        };
        if record.sequence <= self.base_sequence {
            if let Some(tree) = self.trees.get_mut(&id) {
                tree.is_in_log |= tree.generation == generation;
            }
            return;
        }
        match record.kind {
            RecordKind::DatabaseCreated => {
                let name = String::from_utf8_lossy(record.key);
                self.names.insert(id, name.into_owned());
                let config = DatabaseConfig::decode_logged(record.value);
                if config.is_some_and(|config| config.kind == Kind::Disk) {
                    self.begin(generation, 0, true);
                }
            }
            RecordKind::DatabaseConverted => self.convert(record),
            RecordKind::DatabaseDropped => {
                self.names.remove(&id);
                self.trees.remove(&id);
            }
            RecordKind::Clear => match self.trees.remove(&id) {
                Some(tree) if !tree.is_retained => self.begin(generation, 0, true),
                _ => {}
            },
            _ => {}
        }
    }

    fn convert(&mut self, record: &Record<'_>) {
        let Some(converted) = Converted::decode(record.value) else {
            return;
        };
        let id = record.database;
        match converted.config.kind {
            Kind::Disk => {
                let sequence = converted.tree_sequence.unwrap_or(record.sequence);
                let generation = Generation {
                    database: id,
                    sequence,
                };
                self.begin(generation, 0, false);
            }
            Kind::Memory | Kind::Remote(_) => {
                if let Some(tree) = self.trees.get_mut(&id) {
                    tree.is_retained = true;
                }
            }
        }
    }

    /// Reads the trees of all databases, in the folder of trees, with all checksums. `owner` is the
    /// identity of the data folder; 0: it has none.
    pub fn verify(&self, trees: &Path, owner: u64) -> Vec<TreeVerdict> {
        let verdict = |tree: &NamedTree| {
            let folder = trees.join(tree.generation.to_string());
            let origin = (tree.generation, owner);
            let found = match verify_tree(&folder, origin, tree.least_list, self.base_sequence) {
                Err(TreeError::Missing { .. }) if tree.is_in_log => Ok(None),
                found => found.map(Some),
            };
            let name = self.names.get(&tree.generation.database);
            let name = name.map_or("", String::as_str);
            TreeVerdict {
                database: Named(name).to_string(),
                name: name.to_owned(),
                found,
            }
        };
        self.trees.values().map(verdict).collect()
    }
}
