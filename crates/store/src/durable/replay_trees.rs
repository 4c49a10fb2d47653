//! The trees of the databases on disk while the log is replayed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use super::database_name::Named;
use super::retained::RetainedTree;
use crate::database_id::DatabaseId;
use crate::log::{Record, RecordKind};
use crate::tree::{Anew, Fate, Generation, HeldTreeFiles, TreeError, TreeIndex, TreeWriter, Trees};

/// The trees that were found, and which of them the snapshot and the log name.
///
/// What the log says of a generation may be older than what is on the device: a database that was
/// cleared or dropped later has lost its folder. So a tree that is not there is an error only if it
/// is still of use at the end.
pub(super) struct ReplayTrees<'a> {
    trees: Option<&'a Trees>,
    found: BTreeMap<Generation, Result<TreeWriter, TreeError>>,
    current: BTreeMap<DatabaseId, Current>,
    /// Of databases that were brought into memory: the log has nothing of what came out of these.
    retained: Vec<RetainedTree>,
    /// Databases whose content cannot be read.
    lost: BTreeMap<DatabaseId, TreeError>,
    /// What the snapshot or the log names.
    named: BTreeSet<Generation>,
    /// The snapshot has the whole catalogue as it was at this sequence.
    base_sequence: u64,
    /// What the engine removes from their folders.
    held: BTreeMap<Generation, HeldTreeFiles>,
    /// What is damaged is given up.
    accept_loss: bool,
    /// Damaged trees in whose place an empty one was begun.
    given_up: BTreeMap<Generation, GivenUp>,
}

/// A tree that is damaged, and in whose place its database goes on with what the log still has of
/// it.
#[derive(Debug)]
struct GivenUp {
    error: TreeError,
    /// The log has everything that was ever in it.
    is_in_log: bool,
    /// Changes of keys that the log has of it.
    changes: u64,
    /// What came up to this commit is not put into the tree that was begun.
    empty_through: u64,
}

/// A database on disk that was damaged, and that was begun anew since the start was told to accept
/// a loss.
#[derive(Debug)]
pub struct LostTree {
    /// Its name; empty: the default one.
    pub name: String,
    /// What was wrong with it.
    pub error: TreeError,
    /// Where its folder was moved; `None`: there was none.
    pub moved_to: Option<PathBuf>,
    /// The log had everything that was ever in it: nothing is lost.
    pub is_in_log: bool,
    /// Changes of keys that the log still had of it.
    pub changes: u64,
}

struct Current {
    generation: Generation,
    tree: TreeState,
    /// Commits up to this one must not be put into it.
    skip_through: u64,
    /// The last one that was.
    last: u64,
}

enum TreeState {
    /// It may have no folder yet.
    Open(TreeWriter),
    /// It is empty, and has no folder yet.
    Unmade,
    Lost(TreeError),
}

impl fmt::Display for LostTree {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, error) = (Named(&self.name), &self.error);
        write!(
            formatter,
            "{name} was damaged and has begun anew, as --accept-loss says: {error}; "
        )?;
        if let Some(path) = &self.moved_to {
            let path = path.display();
            write!(formatter, "its folder is now {path}, until you remove it; ")?;
        }
        let changes = self.changes;
        match self.is_in_log {
            true => write!(
                formatter,
                "nothing of it is lost: the log had all of its {changes} changes"
            ),
            false => write!(
                formatter,
                "what was in it is lost, but for {changes} changes that the log still had"
            ),
        }
    }
}

/// The trees after a replay.
#[derive(Debug, Default)]
pub(super) struct ReplayedTrees {
    pub(super) writers: BTreeMap<DatabaseId, TreeWriter>,
    pub(super) retained: Vec<RetainedTree>,
    /// Folders that nothing names, which were set aside.
    pub(super) set_aside: u64,
    /// Tables that no list of tables named, which were removed.
    pub(super) strays: Vec<PathBuf>,
    /// Databases that were begun anew. Their names are to be filled in.
    pub(super) lost: Vec<(DatabaseId, LostTree)>,
}

/// Reads once more what the system could not: one failure of a device is not yet a loss.
fn read_twice<T>(read: impl Fn() -> Result<T, TreeError>) -> Result<T, TreeError> {
    match read() {
        Err(error) if !error.is_of_damage() => read(),
        other => other,
    }
}

impl<'a> ReplayTrees<'a> {
    /// Opens all trees that there are: what they have tells how the log must be.
    pub(super) fn open(
        trees: Option<&'a Trees>,
        accept_loss: bool,
    ) -> Result<ReplayTrees<'a>, TreeError> {
        let (mut found, mut held) = (BTreeMap::new(), BTreeMap::new());
        if let Some(trees) = trees {
            for generation in trees.generations()? {
                let opened = read_twice(|| trees.open_held(generation));
                let writer = opened.map(|(writer, files)| {
                    held.insert(generation, files);
                    writer
                });
                found.insert(generation, writer);
            }
        }
        Ok(ReplayTrees {
            trees,
            found,
            current: BTreeMap::new(),
            retained: Vec::new(),
            lost: BTreeMap::new(),
            named: BTreeSet::new(),
            base_sequence: 0,
            held,
            accept_loss,
            given_up: BTreeMap::new(),
        })
    }

    /// There is a snapshot: what began before this sequence, and is not in its catalogue, is of no
    /// use.
    pub(super) fn has_snapshot(&mut self, base_sequence: u64) {
        self.base_sequence = base_sequence;
    }

    /// The identity of the data folder according to its trees: to most of them, should they differ.
    pub(super) fn noted_owner(&self) -> Option<u64> {
        let mut counts = BTreeMap::<u64, usize>::new();
        let current = self
            .current
            .values()
            .filter_map(|current| match &current.tree {
                TreeState::Open(writer) => Some(writer.index()),
                _ => None,
            });
        let retained = self.retained.iter().map(|retained| &retained.tree);
        for owner in current.chain(retained).filter_map(TreeIndex::noted_owner) {
            *counts.entry(owner).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|&(_, count)| count);
        most.map(|(owner, _)| owner)
    }

    /// The highest sequence of a commit that is in any tree.
    pub(super) fn highest_sequence(&self) -> u64 {
        let found = self.found.values().flatten();
        let current = self.current.values().map(|current| current.skip_through);
        let found = found.map(|writer| writer.index().persisted_sequence());
        found.chain(current).max().unwrap_or(0)
    }

    /// The highest sequence of a commit in the trees that are of use: it was durable in the log.
    pub(super) fn durable_sequence(&self) -> u64 {
        let current = self.current.values().map(|current| current.skip_through);
        current.max().unwrap_or(0)
    }

    /// Whether a database is on disk.
    pub(super) fn has(&self, id: DatabaseId) -> bool {
        self.current.contains_key(&id)
    }

    /// A database is on disk from now on, with a tree that was filled before.
    pub(super) fn expect(&mut self, id: DatabaseId, generation: Generation) {
        self.begin(id, generation, false);
    }

    /// The same for a tree that the snapshot knows, which had a list of tables with at least this
    /// number.
    pub(super) fn expect_list(&mut self, id: DatabaseId, generation: Generation, least: u64) {
        if let Some(Ok(writer)) = self.found.get(&generation)
            && let Err(error) = writer.index().check_list(least, self.base_sequence)
        {
            self.found.insert(generation, Err(error));
        }
        self.begin(id, generation, false);
    }

    /// A database on disk begins anew, empty.
    pub(super) fn begin_empty(&mut self, id: DatabaseId, generation: Generation) {
        self.begin(id, generation, true);
    }

    /// The log has the commit that begins a tree which the snapshot knows, and so everything that
    /// was ever in it: if it is missing, it was not made yet.
    pub(super) fn begins_in_log(&mut self, generation: Generation) {
        let has_later = self.has_later(generation);
        if let Some(given_up) = self.given_up.get_mut(&generation)
            && !has_later
        {
            given_up.is_in_log = true;
            if matches!(given_up.error, TreeError::Missing { .. }) {
                self.given_up.remove(&generation);
            }
            return;
        }
        let Some(current) = self.current.get_mut(&generation.database) else {
            return;
        };
        let is_missing = matches!(current.tree, TreeState::Lost(TreeError::Missing { .. }));
        if current.generation == generation && is_missing && !has_later {
            current.tree = TreeState::Unmade;
        }
    }

    fn begin(&mut self, id: DatabaseId, generation: Generation, may_be_unmade: bool) {
        self.forget(id);
        self.named.insert(generation);
        let mut skip_through = generation.sequence;
        let tree = match self.found.remove(&generation) {
            Some(Ok(writer)) => {
                let index = writer.index();
                skip_through = index.persisted_sequence().max(index.empty_through());
                TreeState::Open(writer)
            }
            Some(Err(error)) => self.give_up(generation, error, may_be_unmade),
            None if may_be_unmade && !self.has_later(generation) => TreeState::Unmade,
            None => {
                let error = self.missing(generation);
                self.give_up(generation, error, may_be_unmade)
            }
        };
        let current = Current {
            generation,
            tree,
            skip_through,
            last: 0,
        };
        self.current.insert(id, current);
    }

    /// What takes the place of a tree that cannot be used: nothing, or an empty one if a loss is
    /// accepted.
    fn give_up(&mut self, generation: Generation, error: TreeError, is_in_log: bool) -> TreeState {
        let Some(trees) = self.trees.filter(|_| self.gives_up(&error)) else {
            return TreeState::Lost(error);
        };
        let given_up = GivenUp {
            error,
            is_in_log,
            changes: 0,
            empty_through: 0,
        };
        self.given_up.insert(generation, given_up);
        // Its folder is made when it is certain that the server starts.
        TreeState::Open(trees.begin(generation, None))
    }

    fn gives_up(&self, error: &TreeError) -> bool {
        self.accept_loss && error.can_be_given_up()
    }

    /// Whether there is a later generation of the same database, for which an older one was
    /// removed.
    fn has_later(&self, generation: Generation) -> bool {
        let later = generation.sequence + 1..=u64::MAX;
        let generation = |sequence| Generation {
            sequence,
            ..generation
        };
        let range = generation(*later.start())..=generation(*later.end());
        self.found.range(range).next().is_some()
    }

    fn missing(&self, generation: Generation) -> TreeError {
        match self.trees {
            Some(trees) => trees.missing(generation),
            None => unreachable!("a store without trees has no databases on disk"),
        }
    }

    /// A database is no more, or in memory.
    pub(super) fn forget(&mut self, id: DatabaseId) {
        self.current.remove(&id);
        self.lost.remove(&id);
        self.retained
            .retain(|retained| retained.tree.generation().database != id);
    }

    /// Applies a change of keys to a database on disk, unless it has it.
    pub(super) fn change(&mut self, record: &Record<'_>) {
        let Some(current) = self.current.get_mut(&record.database) else {
            return;
        };
        if record.sequence <= current.skip_through {
            return;
        }
        if matches!(current.tree, TreeState::Unmade)
            && let Some(trees) = self.trees
        {
            // Its folder is made when it is certain that the server starts.
            current.tree = TreeState::Open(trees.begin(current.generation, None));
        }
        let TreeState::Open(writer) = &mut current.tree else {
            return;
        };
        current.last = record.sequence;
        if let Some(given_up) = self.given_up.get_mut(&current.generation) {
            given_up.changes += 1;
        }
        match record.entry() {
            Some(entry) => writer.put(&entry),
            None => {
                debug_assert!(matches!(
                    record.kind,
                    RecordKind::Delete | RecordKind::Expire
                ));
                writer.remove(record.sequence, record.key);
            }
        }
    }

    /// A database comes into memory: gives the tree with what is in it.
    pub(super) fn take(&mut self, id: DatabaseId, sequence: u64) -> Option<TreeIndex> {
        let mut current = self.current.remove(&id)?;
        self.forget(id);
        match current.tree {
            TreeState::Unmade => None,
            TreeState::Open(ref mut writer) => {
                let last = current.last.max(writer.index().sequence());
                writer.end_commit(last);
                let tree = writer.index().clone();
                self.retained.push(RetainedTree {
                    sequence,
                    tree: tree.clone(),
                });
                Some(tree)
            }
            TreeState::Lost(error) => {
                self.lost.insert(id, error);
                None
            }
        }
    }

    /// The content of a database that came into memory cannot be read. Returns whether it is given
    /// up as a whole, so that the database is to begin anew, empty.
    pub(super) fn lose(&mut self, id: DatabaseId, error: TreeError) -> bool {
        let is_of = |retained: &&mut RetainedTree| retained.tree.generation().database == id;
        let gives_up = self.gives_up(&error);
        match (self.trees, self.retained.iter_mut().find(is_of)) {
            (Some(trees), Some(retained)) if gives_up => {
                let generation = retained.tree.generation();
                retained.tree = trees.begin(generation, None).index().clone();
                let empty_through = retained.sequence;
                let given_up = GivenUp {
                    error,
                    is_in_log: false,
                    changes: 0,
                    empty_through,
                };
                self.given_up.insert(generation, given_up);
            }
            _ => {
                self.lost.insert(id, error);
            }
        }
        gives_up
    }

    /// Why what is left of the databases on disk cannot be used, if so: all that cannot be.
    pub(super) fn take_problems(&mut self) -> Vec<(DatabaseId, TreeError)> {
        let mut problems: Vec<_> = std::mem::take(&mut self.lost).into_iter().collect();
        for (id, current) in std::mem::take(&mut self.current) {
            match current.tree {
                TreeState::Lost(error) => problems.push((id, error)),
                _ => {
                    self.current.insert(id, current);
                }
            }
        }
        problems
    }

    /// Makes what is not made, removes what is over, and sets aside what nothing names and what is
    /// given up. Call it when the log that was replayed is durable, up to `last_sequence`.
    pub(super) fn finish(
        mut self,
        now_ms: u64,
        last_sequence: u64,
    ) -> Result<ReplayedTrees, TreeError> {
        let Some(trees) = self.trees else {
            return Ok(ReplayedTrees::default());
        };
        // What is not of use is closed before it is removed.
        self.found.clear();
        let lost = self.set_aside_given_up(trees, now_ms, last_sequence)?;
        let mut replayed = ReplayedTrees {
            writers: BTreeMap::new(),
            retained: self.retained,
            set_aside: 0,
            strays: Vec::new(),
            lost,
        };
        for (id, current) in self.current {
            let mut writer = match current.tree {
                TreeState::Open(writer) => writer,
                TreeState::Unmade => trees.begin(current.generation, None),
                TreeState::Lost(error) => return Err(error),
            };
            writer.index().make()?;
            writer.index().note_tables();
            writer.end_commit(current.last.max(writer.index().sequence()));
            replayed.writers.insert(id, writer);
        }
        let writers = replayed.writers.values().map(TreeWriter::index);
        let retained = replayed.retained.iter().map(|retained| &retained.tree);
        let kept: Vec<_> = writers.chain(retained).map(TreeIndex::generation).collect();
        let fate = |generation: Generation| match generation {
            _ if kept.contains(&generation) => Fate::Needed,
            _ if self.named.contains(&generation) => Fate::Ended,
            _ if generation.sequence <= self.base_sequence => Fate::Unnamed,
            _ => Fate::Unknown,
        };
        for (generation, held) in self.held {
            match fate(generation) {
                // Whoever wants it back gets all of it.
                Fate::Unnamed | Fate::Unknown => drop(held),
                Fate::Needed => replayed.strays.extend(held.release()),
                Fate::Ended => drop(held.release()),
            }
        }
        replayed.set_aside = trees.clear_away(&fate, now_ms)?;
        Ok(replayed)
    }

    /// Moves the folders of trees that are given up out of the way, and makes those that were begun
    /// in their place. A crash between the two leaves a database whose folder is missing, which the
    /// next start can give up as well.
    fn set_aside_given_up(
        &mut self,
        trees: &Trees,
        now_ms: u64,
        last_sequence: u64,
    ) -> Result<Vec<(DatabaseId, LostTree)>, TreeError> {
        let mut lost = Vec::new();
        let current = self
            .current
            .values()
            .filter_map(|current| match &current.tree {
                TreeState::Open(writer) => Some(writer.index()),
                _ => None,
            });
        let retained = self.retained.iter().map(|retained| &retained.tree);
        for index in current.chain(retained) {
            let generation = index.generation();
            let Some(given_up) = self.given_up.remove(&generation) else {
                continue;
            };
            // All of it is back in its folder before that is moved.
            self.held.remove(&generation);
            let moved_to = trees.give_up(generation, now_ms)?;
            index.make_anew(Anew {
                behind: last_sequence,
                empty_through: given_up.empty_through,
            })?;
            let tree = LostTree {
                name: String::new(),
                error: given_up.error,
                moved_to,
                is_in_log: given_up.is_in_log,
                changes: given_up.changes,
            };
            lost.push((generation.database, tree));
        }
        Ok(lost)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io;

    use super::*;

    #[test]
    fn what_could_not_be_read_is_read_once_more_and_damage_is_not() {
        let io_error = || TreeError::Io {
            folder: "folder".into(),
            source: io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error()),
        };
        let damage = || TreeError::Damaged {
            folder: "folder".into(),
            what: "it was cut".into(),
        };
        let failures: [(&dyn Fn() -> TreeError, usize, usize, bool); 5] = [
            (&io_error, 0, 1, true),
            (&io_error, 1, 2, true),
            (&io_error, 2, 2, false),
            (&damage, 1, 1, false),
            (&damage, 2, 1, false),
        ];
        for (failure, failing, reads, is_read) in failures {
            let read = Cell::new(0);
            let found = read_twice(|| {
                read.set(read.get() + 1);
                match read.get() > failing {
                    true => Ok(()),
                    false => Err(failure()),
                }
            });
            assert_eq!((read.get(), found.is_ok()), (reads, is_read));
        }
    }
}
