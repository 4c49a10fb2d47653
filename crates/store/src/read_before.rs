//! What was read from the device for the commits of a batch, before they are decided: the one who
//! decides reads nothing.

use std::ops::ControlFlow;
use std::sync::Arc;

use hashbrown::HashTable;

use crate::database_id::DatabaseId;
use crate::limits;
use crate::operations::Operations;
use crate::outcome::Refusal;
use crate::read_room::{HeldReadRoom, ReadRoom};
use crate::record::{CommitRecord, Whole};
use crate::store::Store;
use crate::tree::limits::LARGE_BLOCK_BYTES;
use crate::tree::{Generation, OwnedValue, Ticket, TreeError, TreeIndex, TreeView};

/// How far reading ahead has come ([`WriteBatch::read_ahead`](crate::WriteBatch::read_ahead)).
#[derive(Debug)]
pub struct ReadAhead {
    /// For how many of the commits there was room, from the first one on. What the others must know
    /// is to be read later: [`WriteBatch::split_off`](crate::WriteBatch::split_off).
    pub commits: usize,
    /// The first read that failed. The commits that needed it are refused.
    pub failure: Option<TreeError>,
}

/// What was found under a key.
#[derive(Debug)]
pub(crate) enum Found {
    /// Nothing.
    Absent,
    /// An entry, be it expired or not.
    Entry(OwnedValue),
    /// It was not read, for this reason: commits that need it are refused.
    Not(Refusal),
}

/// What was read for the commits of a batch, with the tickets that keep what came later in memory.
#[derive(Debug, Default)]
pub(crate) struct ReadBefore {
    table: HashTable<Looked>,
    /// Databases that were looked at as a whole.
    wholes: Vec<LookedWhole>,
    tickets: Vec<Ticket>,
    held: HeldReadRoom,
    /// The first commit found no room for something large the last time: it is read again when it
    /// may exceed it, so that this is not in vain.
    lacked_room: bool,
}

/// The tree in which something was looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TreeOrigin {
    generation: Generation,
    lineage: Generation,
}

impl TreeOrigin {
    fn of(tree: &TreeIndex) -> TreeOrigin {
        TreeOrigin {
            generation: tree.generation(),
            lineage: tree.lineage(),
        }
    }

    /// Whether what was found here is gone in a tree, by a clear; `None`: that tree has another
    /// origin.
    fn is_cleared_in(&self, tree: &TreeIndex) -> Option<bool> {
        (self.lineage == tree.lineage()).then_some(self.generation != tree.generation())
    }
}

/// A key that was looked up.
#[derive(Debug)]
struct Looked {
    hash: u64,
    database: DatabaseId,
    /// An operation in the batch that has the key.
    operation: usize,
    origin: TreeOrigin,
    found: Found,
}

/// Whether there was anything in a database.
#[derive(Clone, Copy, Debug)]
struct LookedWhole {
    database: DatabaseId,
    origin: TreeOrigin,
    sequence: u64,
    is_empty: bool,
}

impl ReadBefore {
    pub(crate) fn clear(&mut self) {
        self.table.clear();
        self.wholes.clear();
        self.tickets.clear();
        self.held = HeldReadRoom::default();
    }

    /// The same for a batch of other commits: that the first one found no room says nothing of
    /// them.
    pub(crate) fn begin_anew(&mut self) {
        self.clear();
        self.lacked_room = false;
    }

    /// Commits were given up: the first one may need no room any more.
    pub(crate) fn forget_lack(&mut self) {
        self.lacked_room = false;
    }

    /// Forgets what was read for operations from the given one on.
    fn forget_from(&mut self, operation: usize) {
        let held = &mut self.held;
        self.table.retain(|looked| {
            let stays = looked.operation < operation;
            if let (false, Found::Entry(value)) = (stays, &looked.found) {
                held.give_back(value.len());
            }
            stays
        });
    }

    /// Takes over what was read for a batch that comes behind `operations` operations.
    pub(crate) fn append(&mut self, other: &mut ReadBefore, operations: usize) {
        for mut looked in other.table.drain() {
            looked.operation += operations;
            self.table
                .insert_unique(looked.hash, looked, |looked| looked.hash);
        }
        self.wholes.append(&mut other.wholes);
        self.tickets.append(&mut other.tickets);
        self.held.append(&mut other.held);
    }

    /// What was found under a key; `None`: nobody has looked, or in a tree that is not
    /// where the database is any more. What came later than that is in memory.
    pub(crate) fn find(
        &self,
        operations: &Operations,
        tree: &TreeIndex,
        key: &[u8],
        hash: u64,
    ) -> Option<&Found> {
        let looked = self.looked(operations, tree.generation().database, key, hash)?;
        let is_cleared = looked.origin.is_cleared_in(tree)?;
        Some(if is_cleared {
            &Found::Absent
        } else {
            &looked.found
        })
    }

    /// Whether a tree was empty, and has not been changed since; `None`: nobody has looked.
    pub(crate) fn is_empty(&self, tree: &TreeIndex, last_change: u64) -> Option<bool> {
        let database = tree.generation().database;
        let of_it = |looked: &&LookedWhole| looked.database == database;
        let looked = self.wholes.iter().rfind(of_it)?;
        let was_empty = looked.origin.is_cleared_in(tree)? || looked.is_empty;
        Some(was_empty && last_change <= looked.sequence)
    }

    fn looked(
        &self,
        operations: &Operations,
        database: DatabaseId,
        key: &[u8],
        hash: u64,
    ) -> Option<&Looked> {
        self.table.find(hash, |looked| {
            looked.hash == hash
                && looked.database == database
                && operations.key(operations.get(looked.operation)) == key
        })
    }

    /// Reads what the commits of a batch need to know, as far as there is room.
    pub(crate) fn read_all(
        &mut self,
        store: &Store,
        operations: &Operations,
        commits: &[CommitRecord],
    ) -> ReadAhead {
        let mut done = ReadAhead {
            commits: commits.len(),
            failure: None,
        };
        if self.lacked_room && !self.held.try_overdraw(store.read_room()) {
            done.commits = 0;
            return done;
        }
        let mut lacks_large = false;
        for database in databases_of(commits) {
            // Behind a commit for which there is no room, nothing more is read.
            let commits = &commits[..done.commits];
            let read = self.read(store, operations, database, commits);
            if let Some(unread) = read.unread {
                (done.commits, lacks_large) = (unread, read.lacks_large);
            }
            done.failure = done.failure.or(read.failure);
        }
        if let Some(unread) = commits.get(done.commits) {
            self.forget_from(unread.first);
        }
        self.lacked_room = done.commits == 0 && lacks_large;
        done
    }

    /// Reads what the commits of a batch need to know of one database, as far as there is room.
    fn read(
        &mut self,
        store: &Store,
        operations: &Operations,
        database: DatabaseId,
        commits: &[CommitRecord],
    ) -> DatabaseRead {
        let Some(tree) = store.tree(database) else {
            return DatabaseRead::default();
        };
        let (view, ticket) = tree.view_for_commit();
        let mut reading = DatabaseReading {
            before: self,
            room: store.read_room(),
            operations,
            view: &view,
            origin: TreeOrigin::of(&tree),
            database,
            done: DatabaseRead::default(),
        };
        let has_no_room = |commit: &CommitRecord| {
            commit.database == database && reading.commit(commit).is_break()
        };
        let unread = commits.iter().position(has_no_room);
        let done = DatabaseRead {
            unread,
            ..reading.done
        };
        self.tickets.push(ticket);
        done
    }
}

/// How far the reads for commits on one database have come.
#[derive(Debug, Default)]
struct DatabaseRead {
    /// The first commit for which there was no room.
    unread: Option<usize>,
    /// What it lacked room for is large.
    lacks_large: bool,
    /// The first read that failed.
    failure: Option<TreeError>,
}

/// The databases of commits, that of the first commit first: so that it is the first to find room.
fn databases_of(commits: &[CommitRecord]) -> impl Iterator<Item = DatabaseId> {
    let places = commits.iter().enumerate();
    let mut databases: Vec<_> = places.map(|(at, commit)| (commit.database, at)).collect();
    databases.sort_unstable();
    databases.dedup_by_key(|&mut (database, _)| database);
    databases.sort_unstable_by_key(|&(_, at)| at);
    databases.into_iter().map(|(database, _)| database)
}

/// The reads for commits on one database.
struct DatabaseReading<'a> {
    before: &'a mut ReadBefore,
    room: &'a Arc<ReadRoom>,
    operations: &'a Operations,
    view: &'a TreeView,
    origin: TreeOrigin,
    database: DatabaseId,
    done: DatabaseRead,
}

impl DatabaseReading<'_> {
    /// Reads for a commit; breaks off where there is no room for what it must know.
    fn commit(&mut self, commit: &CommitRecord) -> ControlFlow<()> {
        if commit.is_abandoned {
            // It is refused.
            return ControlFlow::Continue(());
        }
        if commit.whole == Some(Whole::DropEmpty) {
            self.whole();
            return ControlFlow::Continue(());
        }
        let room = self.room;
        let mut bytes_left = limits::READ_BEFORE_BYTES;
        for place in commit.operations() {
            let operation = self.operations.get(place);
            let (key, hash) = (self.operations.key(operation), operation.hash);
            let known = |before: &ReadBefore| {
                let looked = before.looked(self.operations, self.database, key, hash);
                looked.is_some()
            };
            if !operation.needs_state() || known(self.before) {
                continue;
            }
            // What the read takes is there before its value is known.
            let read_bytes = self.view.read_bytes(key);
            if !self.take(read_bytes) {
                return ControlFlow::Break(());
            }
            let found = self.found(key, bytes_left);
            let bytes = match &found {
                Found::Entry(value) => value.len(),
                Found::Absent | Found::Not(_) => 0,
            };
            if !self.before.held.exchange(room, read_bytes, bytes) {
                self.done.lacks_large = bytes >= LARGE_BLOCK_BYTES;
                return ControlFlow::Break(());
            }
            bytes_left = bytes_left.saturating_sub(bytes);
            let looked = Looked {
                hash,
                database: self.database,
                operation: place,
                origin: self.origin,
                found,
            };
            self.before
                .table
                .insert_unique(hash, looked, |looked| looked.hash);
        }
        self.before.held.end_commit();
        ControlFlow::Continue(())
    }

    /// Takes the room that a read takes before it begins; returns whether there is some.
    fn take(&mut self, read_bytes: usize) -> bool {
        let held = &mut self.before.held;
        let is_there = held.may_take(self.room, read_bytes)
            && (read_bytes == 0 || held.take(self.room, read_bytes));
        self.done.lacks_large = !is_there && read_bytes > 0;
        is_there
    }

    /// Reads what is under a key for a commit that may still know so many bytes.
    fn found(&mut self, key: &[u8], bytes_left: usize) -> Found {
        match self.view.find_owned(key) {
            Ok(None) => Found::Absent,
            // One is always read, be it as large as it may.
            Ok(Some(value))
                if value.len() > bytes_left && bytes_left < limits::READ_BEFORE_BYTES =>
            {
                Found::Not(Refusal::ReadsTooMuch {
                    limit_bytes: limits::READ_BEFORE_BYTES,
                })
            }
            Ok(Some(value)) => Found::Entry(value.detached()),
            Err(error) => {
                let refusal = match error.is_of_damage() {
                    true => Refusal::Damaged,
                    false => Refusal::NotRead,
                };
                self.done.failure.get_or_insert(error);
                Found::Not(refusal)
            }
        }
    }

    fn whole(&mut self) {
        let is_empty = self.view.is_empty().unwrap_or_else(|error| {
            self.done.failure.get_or_insert(error);
            false
        });
        self.before.wholes.push(LookedWhole {
            database: self.database,
            origin: self.origin,
            sequence: self.view.sequence(),
            is_empty,
        });
    }
}
