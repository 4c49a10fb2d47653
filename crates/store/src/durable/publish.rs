//! Publishes a group: applies its effects to the indexes, so that readers see them.

use super::pending::{PendingChange, PendingCommit, PendingGroup, PublishAfter};
use super::trees::TreeWriters;
use crate::apply::{Applier, KeyChange, Slice};
use crate::catalogue::{Database, State};
use crate::clock::Clock;
use crate::database::{DatabaseConfig, Kind};
use crate::feed::{Feed, Recording};
use crate::garbage::Garbage;
use crate::index::Index;
use crate::limits;
use crate::store::Store;
use crate::tree::{Generation, InMemory};

/// Applies what is decided and safe in the log.
#[derive(Debug)]
pub(super) struct Publisher {
    store: Store,
    applier: Applier,
}

impl Publisher {
    pub(super) fn new(store: &Store) -> Publisher {
        Publisher {
            store: store.clone(),
            applier: Applier::new(store),
        }
    }

    /// What is to be freed by somebody who may pause.
    pub(super) fn garbage(&mut self) -> &mut Garbage {
        self.applier.garbage()
    }

    /// Publishes the commits of a group that follow a rule, in their order.
    pub(super) fn publish(
        &mut self,
        group: &PendingGroup,
        rule: PublishAfter,
        trees: &mut TreeWriters,
        clock: &mut dyn Clock,
    ) {
        let alike = |one: &PendingCommit, other: &PendingCommit| {
            one.database == other.database
                && one.rule == other.rule
                && !one.is_of_catalogue()
                && !other.is_of_catalogue()
        };
        for run in group.commits().chunk_by(alike) {
            let first = &run[0];
            if first.rule != rule {
                continue;
            }
            match &first.what {
                PendingChange::Create { name, config } => {
                    self.create(first, name, config, trees);
                }
                PendingChange::Drop => {
                    trees.remove(first.database);
                    let dropped = self.store.remove_database(first.database);
                    let content = dropped.expect("it was checked, and nobody else drops");
                    self.applier.garbage().append(content);
                }
                // It is published by the one who has the content.
                PendingChange::Convert => {}
                PendingChange::Keys(_) | PendingChange::Clear => {
                    let database = self.store.find(first.database);
                    let database = database.expect("a drop ends its group, and nobody else drops");
                    match database.config.kind {
                        Kind::Memory => self.publish_run(&database, run, group, clock),
                        Kind::Disk => self.publish_tree(&database, run, group, trees),
                        Kind::Remote(_) => {
                            debug_assert!(false, "a store with a log has its databases here");
                        }
                    }
                }
            }
            self.applier.free_old_values();
        }
        self.store.announce_changes();
    }

    fn create(
        &self,
        commit: &PendingCommit,
        name: &str,
        config: &DatabaseConfig,
        trees: &mut TreeWriters,
    ) {
        let id = commit.database;
        if config.kind == Kind::Memory {
            return (self.store).insert_database(id, name, *config, None, commit.sequence);
        }
        let generation = Generation {
            database: id,
            sequence: commit.sequence,
        };
        let folder = self.store.trees().expect("it was checked");
        let writer = folder.begin(generation, None);
        let tree = Some(writer.index().clone());
        (self.store).insert_database(id, name, *config, tree, commit.sequence);
        // Behind that: those who keep the trees may have to name the database at once.
        trees.insert(id, writer);
    }

    /// Publishes commits of one database on disk.
    fn publish_tree(
        &mut self,
        database: &Database,
        commits: &[PendingCommit],
        group: &PendingGroup,
        trees: &mut TreeWriters,
    ) {
        let id = commits[0].database;
        for commit in commits {
            match &commit.what {
                PendingChange::Keys(places) => {
                    let writer = trees.get_mut(id).expect("each database on disk has a tree");
                    // Nobody begins to watch in between.
                    let _state = database.state.read();
                    let feed = database.open_feed();
                    let mut recording =
                        Recording::begin(feed, commit.sequence, || group.written_ms());
                    for place in places.clone() {
                        let (key, entry) = (group.key(place), group.entry(place));
                        let known =
                            (recording.wants_previous()).then(|| writer.find_in_memory(key));
                        let previous = match &known {
                            Some(InMemory::Entry(value)) => Some(value.entry(key)),
                            _ => None,
                        };
                        let is_expiry = group.is_expiry(place);
                        recording.change(key, entry.as_ref(), is_expiry, previous);
                        match entry {
                            Some(entry) => writer.put(&entry),
                            None => writer.remove(commit.sequence, key),
                        }
                    }
                    writer.end_commit(commit.sequence);
                    recording.end();
                }
                PendingChange::Clear => self.clear_tree(database, commit, group, trees),
                _ => unreachable!("these are published by themselves"),
            }
        }
        trees.book(id);
    }

    /// Puts an empty tree in the place of one that is cleared. Its folder is made by those who keep
    /// the trees: a sync would wait for that here.
    fn clear_tree(
        &mut self,
        database: &Database,
        commit: &PendingCommit,
        group: &PendingGroup,
        trees: &mut TreeWriters,
    ) {
        let generation = Generation {
            database: commit.database,
            sequence: commit.sequence,
        };
        let folder = self.store.trees().expect("it has a tree");
        let older = database.tree().expect("nobody else drops");
        let writer = folder.begin(generation, Some(&older));
        let mut state = database.state.write();
        state.index = Index::Tree(writer.index().clone());
        let feed = database.open_feed();
        let mut recording = Recording::begin(feed, commit.sequence, || group.written_ms());
        recording.clear();
        recording.end();
        drop(state);
        trees.insert(commit.database, writer);
        self.applier.garbage().add_tree(older);
    }

    /// Publishes commits of one database, in slices.
    fn publish_run(
        &mut self,
        database: &Database,
        commits: &[PendingCommit],
        group: &PendingGroup,
        clock: &mut dyn Clock,
    ) {
        let mut state = database.state.write();
        let mut slice = Slice::begin(clock);
        let mut warm_until = 0;
        for commit in commits {
            let feed = database.open_feed();
            let work = 1 + self.apply(&mut state, feed, commit, group, &mut warm_until);
            (self.applier).end_slice(&mut slice, work, &mut state, clock);
        }
    }

    /// Applies one commit; returns how many keys it changed.
    fn apply(
        &mut self,
        state: &mut State,
        feed: Option<&Feed>,
        commit: &PendingCommit,
        group: &PendingGroup,
        warm_until: &mut usize,
    ) -> usize {
        let mut recording = Recording::begin(feed, commit.sequence, || group.written_ms());
        let changed = match &commit.what {
            PendingChange::Keys(places) => {
                if places.end > *warm_until {
                    *warm_until = (places.end).max(places.start + limits::WARM_OPERATIONS);
                    state
                        .index
                        .memory()
                        .warm(group.hashes(places.start..*warm_until));
                }
                let index = state.index.memory_mut();
                for place in places.clone() {
                    let entry = group.entry(place);
                    let change = KeyChange {
                        hash: group.hash(place),
                        key: group.key(place),
                        entry: entry.as_ref(),
                        is_expiry: group.is_expiry(place),
                    };
                    (self.applier).change(index, &change, &mut recording);
                }
                places.len()
            }
            PendingChange::Clear => {
                (self.applier).clear(state.index.memory_mut(), &mut recording);
                0
            }
            PendingChange::Create { .. } | PendingChange::Drop | PendingChange::Convert => {
                unreachable!("these are published by themselves")
            }
        };
        (self.applier).end_commit(state, commit.growth_bytes, commit.sequence);
        recording.end();
        changed
    }
}
