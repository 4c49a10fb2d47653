//! What tells the tables of a tree from others of the same name.
//!
//! The engine (3.1.10) names its tables by numbers that begin anew in each tree, and believes
//! whatever whole table it finds under a number. So the file `known-tables` keeps of each table its
//! size and an identity, and whose tree it is; a start compares. A table that is in the engine's
//! list and not noted here, since the process ended between the two, is read as a whole and
//! compared with the checksum in that list; so are all tables where this file is damaged. A tree
//! without it is taken as it is: an earlier version, or a restore, has left it so.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use lsm_tree::{AbstractTree, Table, Tree};
use xxhash_rust::xxh3::Xxh3Default;

use super::error::TreeError;
use super::generation::Generation;
use super::limits;

/// The file, within the folder of a tree.
pub(super) const NAME: &str = "known-tables";

/// What takes its place; a start removes it as it does the temporary files of the engine.
const TEMPORARY: &str = ".tmp-known-tables";

const HEADING: &str = "The tables of a database of pelton. Change nothing in this file.";
const FORMAT: &str = "format 1";

/// One table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KnownTable {
    /// Of all its bytes, according to the engine's list.
    checksum: u128,
    bytes: u64,
    /// Of what it says of itself: among that the nanosecond in which it was made.
    identity: u128,
}

/// Whose tables they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) generation: Generation,
    /// The identity of the data folder; 0: it has none yet.
    pub(super) owner: u64,
}

impl Origin {
    fn goes_with(&self, other: &Origin) -> bool {
        let has_one_owner = self.owner == other.owner || self.owner == 0 || other.owner == 0;
        self.generation == other.generation && has_one_owner
    }
}

/// The tables of a tree, by their numbers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KnownTables {
    /// Whose tables they are.
    origin: Origin,
    tables: BTreeMap<u64, KnownTable>,
}

impl KnownTables {
    /// Of a tree of which nothing is noted.
    pub(super) fn none(origin: Origin) -> KnownTables {
        KnownTables {
            origin,
            tables: BTreeMap::new(),
        }
    }

    /// The identity of the data folder, if it was known when they were noted.
    pub(super) fn owner(&self) -> Option<u64> {
        (self.origin.owner != 0).then_some(self.origin.owner)
    }

    /// Compares the tables of a tree that was opened with what was noted of them. Changes nothing.
    pub(super) fn check(
        folder: &Path,
        origin: Origin,
        tree: &Tree,
    ) -> Result<KnownTables, TreeError> {
        let none = KnownTables::none(origin);
        let known = match fs::read(folder.join(NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(none),
            Err(error) => return Err(TreeError::io(&folder.join(NAME), error)),
            Ok(bytes) => KnownTables::decode(&bytes).unwrap_or(none),
        };
        if !known.origin.goes_with(&origin) {
            return Err(of_another(folder));
        }
        for table in tree.current_version().iter_tables() {
            let path = path_of(folder, table.id());
            let is_right = known.is_right(table, &path);
            if !is_right.map_err(|error| TreeError::io(&path, error))? {
                return Err(TreeError::damaged(
                    folder,
                    format!(
                        "`{}` is not the table that was written there: it was changed, or another \
                         file was put in its place",
                        path.strip_prefix(folder).unwrap_or(&path).display()
                    ),
                ));
            }
        }
        Ok(known)
    }

    fn is_right(&self, table: &Table, path: &Path) -> io::Result<bool> {
        let checksum = table.checksum().into_u128();
        match self.tables.get(&table.id()) {
            Some(noted) if noted.checksum == checksum => {
                Ok(noted.bytes == bytes_of(path)? && noted.identity == identity_of(table))
            }
            _ => Ok(checksum_of(path)? == checksum),
        }
    }

    /// Notes the tables that a tree has now. What fails is noted by the next one; until then a
    /// start reads what is missing here.
    pub(super) fn note(&mut self, folder: &Path, origin: Origin, tree: &Tree) -> io::Result<()> {
        let mut now = KnownTables::none(origin);
        for table in tree.current_version().iter_tables() {
            let checksum = table.checksum().into_u128();
            let noted = (self.tables.get(&table.id())).filter(|noted| noted.checksum == checksum);
            let table_now = match noted {
                Some(noted) => *noted,
                None => KnownTable {
                    checksum,
                    bytes: bytes_of(&path_of(folder, table.id()))?,
                    identity: identity_of(table),
                },
            };
            now.tables.insert(table.id(), table_now);
        }
        // A tree that never had a table has no such file.
        if now == *self || (self.tables.is_empty() && now.tables.is_empty()) {
            return Ok(());
        }
        now.write(folder)?;
        *self = now;
        Ok(())
    }

    fn write(&self, folder: &Path) -> io::Result<()> {
        let text = self.encode();
        let temporary = folder.join(TEMPORARY);
        let mut file = File::create(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        // Not more: the file before will do too.
        fs::rename(&temporary, folder.join(NAME))
    }

    fn encode(&self) -> String {
        let Origin { generation, owner } = self.origin;
        let mut text = format!("{HEADING}\n{FORMAT}\n");
        let _ = writeln!(text, "of {generation} {owner:016x}");
        for (id, table) in &self.tables {
            let KnownTable {
                checksum,
                bytes,
                identity,
            } = table;
            let _ = writeln!(text, "{id} {checksum:032x} {bytes} {identity:032x}");
        }
        let sum = xxhash_rust::xxh3::xxh3_128(text.as_bytes());
        let _ = writeln!(text, "end {sum:032x}");
        text
    }

    /// `None`: it is damaged.
    fn decode(bytes: &[u8]) -> Option<KnownTables> {
        let text = std::str::from_utf8(bytes).ok()?;
        let end = text.strip_suffix('\n')?.rfind('\n')? + 1;
        let (content, sum) = text.split_at(end);
        let sum = hexadecimal(sum.strip_suffix('\n')?.strip_prefix("end ")?)?;
        if xxhash_rust::xxh3::xxh3_128(content.as_bytes()) != sum {
            return None;
        }
        let mut lines = content.lines();
        if lines.next()? != HEADING || lines.next()? != FORMAT {
            return None;
        }
        let (generation, owner) = lines.next()?.strip_prefix("of ")?.split_once(' ')?;
        let mut known = KnownTables::none(Origin {
            generation: Generation::parse(generation)?,
            owner: u64::try_from(hexadecimal(owner)?).ok()?,
        });
        for line in lines {
            let mut words = line.split(' ');
            let id = u64::from_str(words.next()?).ok()?;
            let table = KnownTable {
                checksum: hexadecimal(words.next()?)?,
                bytes: u64::from_str(words.next()?).ok()?,
                identity: hexadecimal(words.next()?)?,
            };
            known.tables.insert(id, table);
        }
        Some(known)
    }
}

/// Whether the folder of a tree says of itself that it is this one. Without tables it says nothing.
pub(super) fn is_noted(folder: &Path, origin: Origin) -> bool {
    let noted = fs::read(folder.join(NAME)).ok();
    let noted = noted.and_then(|bytes| KnownTables::decode(&bytes));
    noted.is_some_and(|noted| noted.origin.goes_with(&origin))
}

fn of_another(folder: &Path) -> TreeError {
    TreeError::damaged(
        folder,
        "it is another tree, or that of another data folder, and was put in the place of this one",
    )
}

/// Fails if the folder of a tree says of itself that it is another one. Reads nothing else.
pub(super) fn check_origin(folder: &Path, origin: Origin) -> Result<(), TreeError> {
    let noted = match fs::read(folder.join(NAME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(TreeError::io(&folder.join(NAME), error)),
        Ok(bytes) => KnownTables::decode(&bytes),
    };
    match noted {
        Some(noted) if !noted.origin.goes_with(&origin) => Err(of_another(folder)),
        _ => Ok(()),
    }
}

fn hexadecimal(text: &str) -> Option<u128> {
    u128::from_str_radix(text, 16).ok()
}

pub(super) fn path_of(folder: &Path, id: u64) -> PathBuf {
    folder.join("tables").join(id.to_string())
}

pub(super) fn bytes_of(path: &Path) -> io::Result<u64> {
    fs::metadata(path).map(|found| found.len())
}

/// A checksum of what a table says of itself, which the engine has read and checked when it opened
/// it.
fn identity_of(table: &Table) -> u128 {
    let meta = &table.metadata;
    let mut hasher = Xxh3Default::new();
    let numbers = [
        meta.id,
        meta.file_size,
        meta.item_count,
        meta.tombstone_count,
        meta.data_block_count,
        meta.index_block_count,
        table.get_highest_seqno(),
        meta.key_range.min().len() as u64,
    ];
    for number in numbers {
        hasher.update(&number.to_le_bytes());
    }
    hasher.update(&(*meta.created_at).to_le_bytes());
    hasher.update(meta.key_range.min());
    hasher.update(meta.key_range.max());
    hasher.digest128()
}

/// The checksum of a whole file.
pub(super) fn checksum_of(path: &Path) -> io::Result<u128> {
    let mut file = File::open(path)?;
    let mut piece = vec![0; limits::CHECK_BYTES];
    let mut hasher = Xxh3Default::new();
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(hasher.digest128()),
            Ok(count) => hasher.update(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database_id::DatabaseId;

    const ORIGIN: Origin = Origin {
        generation: Generation {
            database: DatabaseId(3),
            sequence: 17,
        },
        owner: 0x1234_5678_9abc_def0,
    };

    #[test]
    fn known_tables_are_read_as_they_were_written_and_in_no_other_form() {
        let table = KnownTable {
            checksum: u128::MAX,
            bytes: 4_096,
            identity: 7,
        };
        let known = KnownTables {
            origin: ORIGIN,
            tables: BTreeMap::from([(0, table), (u64::MAX, KnownTable { bytes: 1, ..table })]),
        };
        let text = known.encode().into_bytes();
        assert_eq!(KnownTables::decode(&text), Some(known));
        for at in 0..text.len() {
            assert_eq!(KnownTables::decode(&text[..at]), None, "{at}");
            let mut changed = text.clone();
            changed[at] ^= 1;
            assert_eq!(KnownTables::decode(&changed), None, "{at}");
        }
    }

    #[test]
    fn trees_of_other_databases_and_folders_are_told_apart() {
        let earlier = Origin { owner: 0, ..ORIGIN };
        let of_other_folder = Origin { owner: 1, ..ORIGIN };
        let generation = Generation {
            sequence: 18,
            ..ORIGIN.generation
        };
        let of_other_database = Origin {
            generation,
            ..ORIGIN
        };
        assert!(ORIGIN.goes_with(&ORIGIN));
        assert!(ORIGIN.goes_with(&earlier) && earlier.goes_with(&ORIGIN));
        assert!(!ORIGIN.goes_with(&of_other_folder));
        assert!(!ORIGIN.goes_with(&of_other_database));
    }
}
