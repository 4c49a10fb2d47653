//! A store whose databases are on an engine elsewhere, and the requests of its loops.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::backend::RemoteBackend;
use super::catalogue::{RemoteCatalogue, RemoteChange, RemoteDatabase, WhatChanges};
use super::commit::RemoteCommit;
use super::gather::{CommitEnd, Gather, GatherEnd};
use super::life::{AbandonFlag, RequestLife};
use super::parts::{self, Part};
use super::read::RemoteRead;
use super::room::{BUSY, RemoteRoom, RoomShare};
use super::sink::{RemoteDone, RemoteFetched, RemoteSink};
use crate::batch::WriteBatch;
use crate::database::{CreateError, DatabaseConfig};
use crate::database_id::DatabaseId;
use crate::outcome::{Decision, Outcomes, Refusal};
use crate::record::{CommitRecord, Whole};
use crate::remote_kind::{RemoteIndex, RemoteShape, limits};
use crate::store::{Store, StoreConfig};
use crate::tree::ReadPlan;

/// A store whose databases are on an engine elsewhere, with the way there.
#[derive(Debug)]
pub struct RemoteStore {
    store: Store,
    backend: Arc<dyn RemoteBackend>,
    room: Arc<RemoteRoom>,
    timeout: Duration,
    /// That of the catalogue that was taken over last.
    generation: Mutex<u64>,
}

/// Why a store of databases on an engine elsewhere was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteOpenError {
    /// The engine has no default database.
    #[error(
        "the keyspace of the storage engine has no default database; make it with `pelton store \
         init`"
    )]
    NoDefaultDatabase,
    /// Its default database cannot be one.
    #[error("the default database in the storage engine cannot be used: {0}")]
    Default(CreateError),
}

impl RemoteStore {
    /// A store with the databases that the backend knows. The default database of `config` is that
    /// of the engine; `timeout` is what the engine has for a request.
    ///
    /// # Errors
    /// If the engine has no default database that this version can use.
    pub fn open(
        config: StoreConfig,
        backend: Arc<dyn RemoteBackend>,
        timeout: Duration,
    ) -> Result<Arc<RemoteStore>, RemoteOpenError> {
        let catalogue = backend.catalogue();
        let default = catalogue
            .databases
            .iter()
            .find(|one| one.id == DatabaseId::DEFAULT);
        let default = default.ok_or(RemoteOpenError::NoDefaultDatabase)?;
        let index = index_of(default).ok_or(RemoteOpenError::Default(CreateError::OnlyRemote))?;
        let store = Store::remote(config, index, default.config);
        let remote = RemoteStore {
            store: store.map_err(RemoteOpenError::Default)?,
            backend,
            room: RemoteRoom::new(config.memory_bytes),
            timeout,
            generation: Mutex::new(u64::MAX),
        };
        remote.take_over(&catalogue);
        Ok(Arc::new(remote))
    }

    /// Returns the store: a handle.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the way to the engine.
    pub fn backend(&self) -> &Arc<dyn RemoteBackend> {
        &self.backend
    }

    /// Returns what is under way.
    pub fn room(&self) -> &Arc<RemoteRoom> {
        &self.room
    }

    /// Takes over which databases the engine has, as the backend has last seen it.
    pub fn refresh(&self) {
        self.take_over(&self.backend.catalogue());
    }

    fn take_over(&self, catalogue: &RemoteCatalogue) {
        let generation = self.generation.lock();
        let mut generation = generation.unwrap_or_else(PoisonError::into_inner);
        let is_new = *generation != catalogue.generation;
        for database in &catalogue.databases {
            // Of another version: then it is not there for this one.
            if let Some(index) = index_of(database)
                && database.config.check_remote().is_ok()
            {
                (self.store).put_remote(database.id, &database.name, database.config, index);
            }
        }
        if is_new {
            let is_there = |id| catalogue.databases.iter().any(|database| database.id == id);
            self.store.keep_remote(is_there);
            *generation = catalogue.generation;
        }
    }

    fn config(&self, id: DatabaseId) -> Option<(DatabaseConfig, RemoteShape)> {
        let config = self.store.config(id)?;
        config.kind.remote().map(|shape| (config, shape))
    }
}

fn index_of(database: &RemoteDatabase) -> Option<RemoteIndex> {
    let shape = database.config.kind.remote()?;
    Some(RemoteIndex {
        shape,
        entries: database.entries,
        disk_bytes: database.disk_bytes,
    })
}

/// The requests of one loop.
///
/// Commits of one call (by their tags) are carried out one after the other, in the order in which
/// they came; those of different calls side by side.
pub struct RemoteLoop {
    remote: Arc<RemoteStore>,
    sink: Arc<dyn RemoteSink>,
    /// By their tags: calls that have a commit under way, with what waits behind it.
    calls: HashMap<u64, CommitsOfCall>,
    /// By their tags: calls that have a read under way.
    reads: HashMap<u64, AbandonFlag>,
    /// Bytes of commits that are under way or wait.
    bytes: usize,
}

/// What a call has under way.
#[derive(Default)]
struct CommitsOfCall {
    /// The one that is under way changes which databases there are.
    is_change: bool,
    /// Bytes of the one that is under way.
    bytes: usize,
    waiting: VecDeque<ReadyCommit>,
    /// Shows the one that is under way that the call has ended.
    is_abandoned: AbandonFlag,
}

/// A commit that can be handed over.
struct ReadyCommit {
    record: CommitRecord,
    work: Result<CommitWork, Refusal>,
}

/// What is to be handed over, with its share of the room.
enum CommitWork {
    Parts {
        parts: Vec<Part>,
        config: DatabaseConfig,
        shape: RemoteShape,
        share: RoomShare,
    },
    Change(WhatChanges, RoomShare),
}

impl RemoteLoop {
    /// Requests whose answers go to `sink`.
    pub fn new(remote: Arc<RemoteStore>, sink: Arc<dyn RemoteSink>) -> RemoteLoop {
        RemoteLoop {
            remote,
            sink,
            calls: HashMap::new(),
            reads: HashMap::new(),
            bytes: 0,
        }
    }

    /// Returns the store.
    pub fn remote(&self) -> &Arc<RemoteStore> {
        &self.remote
    }

    /// Returns how many bytes of commits are under way or wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether no commit is under way.
    pub fn is_idle(&self) -> bool {
        self.calls.is_empty()
    }

    /// Carries out all commits of a batch, which is empty afterwards. Their outcomes come to the
    /// sink, each by itself, also of those that are refused at once.
    pub fn submit(&mut self, batch: &mut WriteBatch) {
        if batch.logged_len() == 0 {
            return;
        }
        for commit in batch.logged() {
            let ready = self.make_ready(batch, commit);
            self.bytes += commit.bytes;
            match self.calls.get_mut(&commit.tag) {
                Some(call) => call.waiting.push_back(ready),
                None => self.begin(ready),
            }
        }
        batch.keep_logged(&mut Vec::new(), batch.logged_len());
        if batch.is_empty() {
            batch.clear();
        }
    }

    /// The outcomes of a commit have come: hands over what waits behind it.
    pub fn arrived(&mut self, outcomes: &Outcomes) {
        for outcome in outcomes.iter() {
            let Some(mut call) = self.calls.remove(&outcome.tag) else {
                debug_assert!(false, "an outcome is that of a commit under way");
                continue;
            };
            self.bytes -= call.bytes;
            if call.is_change {
                // Before the call hears of it.
                self.remote.refresh();
            }
            if let Some(ready) = call.waiting.pop_front() {
                let waiting = call.waiting;
                self.begin(ready);
                if let Some(call) = self.calls.get_mut(&outcome.tag) {
                    call.waiting = waiting;
                }
            }
        }
    }

    /// A call has ended, by its deadline or otherwise. Its commits are dropped, as far as they were
    /// not handed over, and have no outcome; what is under way for it does not go on further than
    /// it must.
    pub fn abandon(&mut self, tag: u64) {
        if let Some(read) = self.reads.remove(&tag) {
            read.set();
        }
        if let Some(call) = self.calls.get_mut(&tag) {
            call.is_abandoned.set();
            let waiting = call.waiting.drain(..);
            self.bytes -= waiting.map(|ready| ready.record.bytes).sum::<usize>();
        }
    }

    /// Reads for the calls of a plan, which are taken out of it. What was read comes to the sink,
    /// for each call by itself.
    pub fn fetch(&mut self, database: DatabaseId, shape: RemoteShape, plan: &mut ReadPlan) {
        let plan = Arc::new(std::mem::take(plan));
        for call in 0..plan.len() {
            let (key_bytes, expected_bytes) = plan.expected_bytes(call, limits::READ_BYTES);
            let Some(share) = self.remote.room.take(key_bytes + expected_bytes) else {
                self.remote.room.count_failed(BUSY);
                let fetched = RemoteFetched::new(&plan, call, Err(BUSY), None);
                self.sink.put(RemoteDone::Read(fetched));
                continue;
            };
            let is_abandoned = AbandonFlag::default();
            if let Some(tag) = plan.tags().nth(call) {
                self.reads.insert(tag, is_abandoned.clone());
            }
            let read = RemoteRead::new(
                (database, shape),
                RequestLife::new(self.remote.timeout, is_abandoned),
                (Arc::clone(&plan), call),
                (Arc::clone(&self.sink), share, expected_bytes),
            );
            self.remote.backend.read(read);
        }
    }

    /// What was read for some calls has come.
    pub fn read_arrived(&mut self, read: &RemoteFetched) {
        for call in read.fetched().calls() {
            self.reads.remove(&call.tag());
        }
    }

    fn make_ready(&self, batch: &WriteBatch, commit: &CommitRecord) -> ReadyCommit {
        let work = match commit.is_of_catalogue() {
            true => self.change(batch, commit),
            false => self.parts(batch, commit),
        };
        ReadyCommit {
            record: *commit,
            work,
        }
    }

    fn change(&self, batch: &WriteBatch, commit: &CommitRecord) -> Result<CommitWork, Refusal> {
        let what = match commit.whole {
            Some(Whole::Create) => {
                let created = batch.database_to_create(commit);
                let (name, config) = created.map_err(Refusal::NotCreated)?;
                config.check_remote().map_err(Refusal::NotCreated)?;
                let checked = self.remote.store.check_name(name);
                checked.map_err(Refusal::NotCreated)?;
                WhatChanges::Create {
                    name: name.to_owned(),
                    config,
                }
            }
            whole => {
                let id = commit.database;
                self.remote
                    .store
                    .check_drop(id)
                    .map_err(Refusal::NotDropped)?;
                WhatChanges::Drop {
                    id,
                    only_empty: whole == Some(Whole::DropEmpty),
                }
            }
        };
        let share = self.remote.room.take(commit.bytes).ok_or(BUSY)?;
        Ok(CommitWork::Change(what, share))
    }

    fn parts(&self, batch: &WriteBatch, commit: &CommitRecord) -> Result<CommitWork, Refusal> {
        let config = self.remote.config(commit.database);
        let (config, shape) = config.ok_or(Refusal::UnknownDatabase)?;
        // The operations have a record each, and what an engine reads for them.
        let operations = commit.operations().len();
        let bytes = (commit.bytes)
            .saturating_mul(limits::COMMIT_COPIES)
            .saturating_add(operations.saturating_mul(limits::READ_BYTES));
        let share = self.remote.room.take(bytes).ok_or(BUSY)?;
        let parts = parts::divide(batch, commit, shape).map_err(Refusal::Lacks)?;
        Ok(CommitWork::Parts {
            parts,
            config,
            shape,
            share,
        })
    }

    /// Hands a commit over. Its call has no other under way. The time that it has begins now, also
    /// that of parts which wait for others.
    fn begin(&mut self, ready: ReadyCommit) {
        let ReadyCommit { record, work } = ready;
        let call = CommitsOfCall {
            is_change: record.is_of_catalogue(),
            bytes: record.bytes,
            ..CommitsOfCall::default()
        };
        let is_abandoned = call.is_abandoned.clone();
        self.calls.insert(record.tag, call);
        match work {
            Err(refusal) => {
                let mut outcomes = Outcomes::new();
                outcomes.refuse(&record, refusal);
                self.remote.room.count_outcomes(&outcomes);
                self.sink.put(RemoteDone::Commit(outcomes));
            }
            Ok(CommitWork::Change(what, share)) => {
                let to = (Arc::clone(&self.sink), share);
                let change = RemoteChange::new(what, record, self.remote.timeout, to);
                self.remote.backend.change(change);
            }
            Ok(CommitWork::Parts {
                parts,
                config,
                shape,
                share,
            }) => {
                let sink = Arc::clone(&self.sink);
                let end = CommitEnd { sink, share };
                let life = RequestLife::new(self.remote.timeout, is_abandoned);
                self.begin_parts(record, parts, (config, shape), (end, life));
            }
        }
    }

    fn begin_parts(
        &self,
        record: CommitRecord,
        mut parts: Vec<Part>,
        (config, shape): (DatabaseConfig, RemoteShape),
        (end, life): (CommitEnd, RequestLife),
    ) {
        let of = (record.database, shape, config.limits);
        let room = &self.remote.room;
        let backend = &self.remote.backend;
        if parts.len() <= 1 {
            let Some(part) = parts.pop() else {
                // It has no operations.
                let mut outcomes = Outcomes::new();
                let mark = outcomes.mark();
                let applied = Decision::Applied.into();
                outcomes.finish(&mark, &record, 1, applied);
                return end.end(outcomes);
            };
            return backend.commit(RemoteCommit::new(of, life, part, (Box::new(end), room)));
        }
        let places = parts.iter().map(Part::places);
        let gather = Gather::new(Arc::clone(backend), record, places, (end, life.clone()));
        let commits = parts.into_iter().enumerate().map(|(number, part)| {
            let end = GatherEnd {
                gather: Arc::clone(&gather),
                number,
            };
            RemoteCommit::new(of, life.clone(), part, (Box::new(end), room))
        });
        gather.begin(commits.collect());
    }
}

impl fmt::Debug for RemoteLoop {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RemoteLoop")
            .field("calls", &self.calls.len())
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}
