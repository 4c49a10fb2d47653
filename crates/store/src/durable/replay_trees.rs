//! The trees of the databases on disk while the log is replayed.

use std::collections::{BTreeMap, BTreeSet};

use crate::catalogue::DatabaseId;
use crate::log::{Record, RecordKind};
use crate::tree::{Fate, Generation, Held, TreeError, TreeIndex, TreeWriter, Trees};

/// The trees that were found, and which of them the snapshot and the log speak of.
///
/// What the log says of a generation may be older than what is on the device: a database that was cleared or dropped later
/// has lost its folder. So a tree that is not there is an error only if it is still of use at the end.
pub(super) struct ReplayTrees<'a> {
    trees: Option<&'a Trees>,
    found: BTreeMap<Generation, Result<TreeWriter, TreeError>>,
    current: BTreeMap<DatabaseId, Current>,
    /// Of databases that were brought into memory: the log has nothing of what came out of these.
    retained: Vec<Retained>,
    /// Databases whose content cannot be read.
    lost: BTreeMap<DatabaseId, TreeError>,
    /// What the snapshot or the log names.
    named: BTreeSet<Generation>,
    /// The snapshot has the whole catalogue as it was at this sequence.
    base_sequence: u64,
    /// What the engine removes from their folders.
    held: BTreeMap<Generation, Held>,
}

/// A tree that a database in memory was made from, of use until a snapshot has what was in it.
#[derive(Debug)]
pub(super) struct Retained {
    /// The commit that did it.
    pub(super) sequence: u64,
    pub(super) tree: TreeIndex,
}

struct Current {
    generation: Generation,
    tree: State,
    /// Commits up to this one must not be put into it.
    skip_through: u64,
    /// The last one that was.
    last: u64,
}

enum State {
    /// It may have no folder yet.
    Open(TreeWriter),
    /// It is empty, and has no folder yet.
    Unmade,
    Lost(TreeError),
}

/// The trees after a replay.
#[derive(Debug, Default)]
pub(super) struct ReplayedTrees {
    pub(super) writers: BTreeMap<DatabaseId, TreeWriter>,
    pub(super) retained: Vec<Retained>,
    /// Folders that nothing names, which were set aside.
    pub(super) set_aside: u64,
}

impl<'a> ReplayTrees<'a> {
    /// Opens all trees that there are: what they have tells how the log must be.
    pub(super) fn open(trees: Option<&'a Trees>) -> Result<ReplayTrees<'a>, TreeError> {
        let (mut found, mut held) = (BTreeMap::new(), BTreeMap::new());
        if let Some(trees) = trees {
            for generation in trees.generations()? {
                let opened = trees.open_held(generation).map(|(writer, files)| {
                    held.insert(generation, files);
                    writer
                });
                found.insert(generation, opened);
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
        })
    }

    /// There is a snapshot: what began before this sequence, and is not in its catalogue, is of no use.
    pub(super) fn has_snapshot(&mut self, base_sequence: u64) {
        self.base_sequence = base_sequence;
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

    /// The same for a tree that the snapshot knows, which had a list of tables with at least this number.
    pub(super) fn expect_list(&mut self, id: DatabaseId, generation: Generation, least: u64) {
        if let Some(Ok(writer)) = self.found.get(&generation)
            && let Err(error) = writer.index().check_list(least)
        {
            self.found.insert(generation, Err(error));
        }
        self.begin(id, generation, false);
    }

    /// A database on disk begins anew, empty.
    pub(super) fn begin_empty(&mut self, id: DatabaseId, generation: Generation) {
        self.begin(id, generation, true);
    }

    /// The log has the commit that begins a tree which the snapshot knows, and so everything that was ever in it: if it is
    /// missing, it was not made yet.
    pub(super) fn begins_in_log(&mut self, generation: Generation) {
        let has_later = self.has_later(generation);
        let Some(current) = self.current.get_mut(&generation.database) else {
            return;
        };
        let is_missing = matches!(current.tree, State::Lost(TreeError::Missing { .. }));
        if current.generation == generation && is_missing && !has_later {
            current.tree = State::Unmade;
        }
    }

    fn begin(&mut self, id: DatabaseId, generation: Generation, may_be_unmade: bool) {
        self.forget(id);
        self.named.insert(generation);
        let mut skip_through = generation.sequence;
        let tree = match self.found.remove(&generation) {
            Some(Ok(writer)) => {
                skip_through = writer.index().persisted_sequence();
                State::Open(writer)
            }
            Some(Err(error)) => State::Lost(error),
            None if may_be_unmade && !self.has_later(generation) => State::Unmade,
            None => State::Lost(self.missing(generation)),
        };
        let current = Current {
            generation,
            tree,
            skip_through,
            last: 0,
        };
        self.current.insert(id, current);
    }

    /// Whether there is a later generation of the same database, for which an older one was removed.
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
        if matches!(current.tree, State::Unmade)
            && let Some(trees) = self.trees
        {
            // Its folder is made when it is certain that the server starts.
            current.tree = State::Open(trees.begin(current.generation, None));
        }
        let State::Open(writer) = &mut current.tree else {
            return;
        };
        current.last = record.sequence;
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
            State::Unmade => None,
            State::Open(ref mut writer) => {
                let last = current.last.max(writer.index().sequence());
                writer.end_commit(last);
                let tree = writer.index().clone();
                self.retained.push(Retained {
                    sequence,
                    tree: tree.clone(),
                });
                Some(tree)
            }
            State::Lost(error) => {
                self.lost.insert(id, error);
                None
            }
        }
    }

    /// The content of a database cannot be read.
    pub(super) fn lose(&mut self, id: DatabaseId, error: TreeError) {
        self.lost.insert(id, error);
    }

    /// Why what is left of the databases on disk cannot be used, if so.
    pub(super) fn take_problem(&mut self) -> Option<(DatabaseId, TreeError)> {
        if let Some(lost) = self.lost.pop_first() {
            return Some(lost);
        }
        let is_lost = |current: &Current| matches!(current.tree, State::Lost(_));
        let (&id, _) = (self.current.iter()).find(|(_, current)| is_lost(current))?;
        match self.current.remove(&id)?.tree {
            State::Lost(error) => Some((id, error)),
            _ => unreachable!("it was just looked at"),
        }
    }

    /// Makes what is not made, removes what is over, and sets aside what nothing names. Call it when the log that was replayed
    /// is durable.
    pub(super) fn finish(mut self, now_ms: u64) -> Result<ReplayedTrees, TreeError> {
        let Some(trees) = self.trees else {
            return Ok(ReplayedTrees::default());
        };
        // What is not of use is closed before it is removed.
        self.found.clear();
        let mut replayed = ReplayedTrees {
            writers: BTreeMap::new(),
            retained: self.retained,
            set_aside: 0,
        };
        for (id, current) in self.current {
            let mut writer = match current.tree {
                State::Open(writer) => writer,
                State::Unmade => trees.begin(current.generation, None),
                State::Lost(error) => return Err(error),
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
            _ if generation.sequence <= self.base_sequence => Fate::Ended,
            _ => Fate::Unknown,
        };
        for (generation, held) in self.held {
            match fate(generation) {
                // Whoever wants it back gets all of it.
                Fate::Unknown => drop(held),
                _ => held.release(),
            }
        }
        replayed.set_aside = trees.clear_away(&fate, now_ms)?;
        Ok(replayed)
    }
}
