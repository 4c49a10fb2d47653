//! What the engine keeps.

use std::collections::BTreeMap;

use store::remote::{
    RemoteAfter, RemoteAnswer, RemoteCatalogue, RemoteChangeError, RemoteCommit, RemoteDatabase,
    RemoteEntry, RemoteError, RemoteOrder, RemotePageEnd, RemotePromise, RemoteRead,
    RemoteReadRequest, RemoteRow, RemoteShape, WhatChanges,
};
use store::{CreateError, DatabaseConfig, DatabaseId, Direction, DropError, Range};

/// All databases.
pub(super) struct DoubleData {
    databases: BTreeMap<DatabaseId, DoubleDatabase>,
    generation: u64,
    next_number: u32,
    last_version: u64,
    pub(super) now_ms: u64,
}

struct DoubleDatabase {
    name: String,
    config: DatabaseConfig,
    entries: BTreeMap<Vec<u8>, RemoteEntry>,
    /// Versions of removals, by their keys.
    removed: BTreeMap<Vec<u8>, u64>,
}

impl DoubleDatabase {
    fn version_of(&self, key: &[u8]) -> Option<u64> {
        self.entries.get(key).map(|entry| entry.version)
    }
}

/// What a commit writes.
pub(super) struct DoubleWrite {
    database: DatabaseId,
    version: u64,
    /// The later version stays: that is all that a quorum promises.
    is_ordered_by_version: bool,
    /// Keys with the versions that they must have.
    conditions: Vec<(Vec<u8>, Option<u64>)>,
    effects: Vec<(Vec<u8>, Option<RemoteEntry>)>,
}

impl DoubleWrite {
    /// That of a commit which was decided from `found`.
    pub(super) fn new(
        commit: &RemoteCommit,
        version: u64,
        found: &[Option<RemoteEntry>],
    ) -> DoubleWrite {
        let is_quorum = commit.shape().promise == RemotePromise::Quorum;
        let keys = commit.keys().zip(found);
        let conditions = keys.filter(|(key, _)| key.is_read && !is_quorum);
        let effects = commit.effects().map(|effect| {
            let entry = match effect.after {
                RemoteAfter::Absent => None,
                RemoteAfter::Present { value, expires_ms } => Some(RemoteEntry {
                    value: value.to_vec().into(),
                    version,
                    expires_ms,
                }),
            };
            (effect.key.to_vec(), entry)
        });
        let version_of = |found: &Option<RemoteEntry>| found.as_ref().map(|entry| entry.version);
        DoubleWrite {
            database: commit.database(),
            version,
            is_ordered_by_version: is_quorum,
            conditions: conditions
                .map(|(key, found)| (key.key.to_vec(), version_of(found)))
                .collect(),
            effects: effects.collect(),
        }
    }
}

/// A page in the making.
struct PageRules<'a> {
    shape: RemoteShape,
    range: Range<'a>,
    passed: Option<&'a [u8]>,
    direction: Direction,
    keys_only: bool,
    entries: u64,
    bytes: usize,
}

impl DoubleData {
    pub(super) fn new(default_database: DatabaseConfig) -> DoubleData {
        let mut data = DoubleData {
            databases: BTreeMap::new(),
            generation: 0,
            next_number: 0,
            last_version: 0,
            now_ms: 1_000,
        };
        data.insert("", default_database);
        data
    }

    fn insert(&mut self, name: &str, config: DatabaseConfig) -> DatabaseId {
        let id = DatabaseId::of_number(self.next_number).expect("few databases are made");
        self.next_number += 1;
        self.generation += 1;
        let database = DoubleDatabase {
            name: name.into(),
            config,
            entries: BTreeMap::new(),
            removed: BTreeMap::new(),
        };
        self.databases.insert(id, database);
        id
    }

    pub(super) fn create(
        &mut self,
        name: &str,
        config: DatabaseConfig,
    ) -> Result<DatabaseId, CreateError> {
        if self.databases.values().any(|one| one.name == name) {
            return Err(CreateError::Exists);
        }
        Ok(self.insert(name, config))
    }

    pub(super) fn catalogue(&self) -> RemoteCatalogue {
        let databases = self.databases.iter().map(|(&id, one)| RemoteDatabase {
            id,
            name: one.name.clone(),
            config: one.config,
            entries: Some(one.entries.len() as u64),
            disk_bytes: None,
        });
        RemoteCatalogue {
            generation: self.generation,
            databases: databases.collect(),
        }
    }

    pub(super) fn change(&mut self, what: &WhatChanges) -> Result<DatabaseId, RemoteChangeError> {
        match what {
            WhatChanges::Create { name, config } => Ok(self.create(name, *config)?),
            &WhatChanges::Drop { id, only_empty } => {
                let database = self.databases.get(&id).ok_or(DropError::Unknown)?;
                let entries = self.live(database).count() as u64;
                if only_empty && entries > 0 {
                    let used = store::blob::BlobUse::default();
                    return Err(DropError::not_empty(entries, used).into());
                }
                self.databases.remove(&id);
                self.generation += 1;
                Ok(id)
            }
        }
    }

    pub(super) fn next_version(&mut self) -> u64 {
        self.last_version += 1;
        self.last_version
    }

    fn database(&self, id: DatabaseId) -> Result<&DoubleDatabase, RemoteError> {
        self.databases.get(&id).ok_or(RemoteError::UnknownDatabase)
    }

    pub(super) fn entries(&self, id: DatabaseId) -> Vec<(Vec<u8>, RemoteEntry)> {
        let Ok(database) = self.database(id) else {
            return Vec::new();
        };
        let entries = database.entries.iter();
        entries
            .map(|(key, entry)| (key.clone(), entry.clone()))
            .collect()
    }

    pub(super) fn find(
        &self,
        id: DatabaseId,
        key: &[u8],
    ) -> Result<Option<RemoteEntry>, RemoteError> {
        Ok(self.database(id)?.entries.get(key).cloned())
    }

    pub(super) fn put(&mut self, id: DatabaseId, key: &[u8], value: &[u8]) {
        let version = self.next_version();
        let database = self.databases.get_mut(&id).expect("the test has made it");
        let entry = RemoteEntry {
            value: value.to_vec().into(),
            version,
            expires_ms: 0,
        };
        database.entries.insert(key.to_vec(), entry);
    }

    /// Carries out a write, if its conditions hold. Of two writes of a quorum database the one with
    /// the larger version stays, whichever comes last.
    pub(super) fn write(&mut self, write: &DoubleWrite) -> Result<bool, RemoteError> {
        let database = self.databases.get_mut(&write.database);
        let database = database.ok_or(RemoteError::UnknownDatabase)?;
        let mut conditions = write.conditions.iter();
        if !conditions.all(|(key, version)| database.version_of(key) == *version) {
            return Ok(false);
        }
        for (key, entry) in &write.effects {
            let removed = database.removed.get(key).copied();
            let last = database.version_of(key).max(removed).unwrap_or(0);
            if write.is_ordered_by_version && last > write.version {
                continue;
            }
            match entry {
                Some(entry) => {
                    database.entries.insert(key.clone(), entry.clone());
                }
                None => {
                    database.entries.remove(key);
                    database.removed.insert(key.clone(), write.version);
                }
            }
        }
        Ok(true)
    }

    pub(super) fn read(&self, read: &RemoteRead) -> Result<RemoteAnswer, RemoteError> {
        let database = self.database(read.database())?;
        match read.request() {
            RemoteReadRequest::Keys { keys, .. } => {
                let found = keys.iter().map(|&key| database.entries.get(key).cloned());
                Ok(RemoteAnswer::Keys(found.collect()))
            }
            RemoteReadRequest::Page {
                range,
                passed,
                direction,
                keys_only,
                entries,
                bytes,
            } => Ok(self.page(
                database,
                &PageRules {
                    shape: read.shape(),
                    range,
                    passed,
                    direction,
                    keys_only,
                    entries,
                    bytes,
                },
            )),
            RemoteReadRequest::Count { range, .. } => {
                let live = self.live(database);
                let count = live.filter(|(key, _)| range.contains(key)).count() as u64;
                Ok(RemoteAnswer::Count {
                    count,
                    is_estimate: false,
                })
            }
        }
    }

    fn live<'a>(
        &self,
        database: &'a DoubleDatabase,
    ) -> impl Iterator<Item = (&'a Vec<u8>, &'a RemoteEntry)> + use<'a> {
        let now_ms = self.now_ms;
        let is_live = move |entry: &RemoteEntry| entry.expires_ms == 0 || now_ms < entry.expires_ms;
        let entries = database.entries.iter();
        entries.filter(move |(_, entry)| is_live(entry))
    }

    fn page(&self, database: &DoubleDatabase, rules: &PageRules<'_>) -> RemoteAnswer {
        let place_of = |key: &[u8]| match rules.shape.order {
            RemoteOrder::Hash => (rules.shape.bucket_of(key), key.to_vec()),
            RemoteOrder::Merged => (0, key.to_vec()),
        };
        let in_range = self
            .live(database)
            .filter(|(key, _)| rules.range.contains(key));
        let mut places: Vec<_> = in_range
            .map(|(key, entry)| (place_of(key), entry))
            .collect();
        places.sort_by(|one, other| one.0.cmp(&other.0));
        if rules.direction == Direction::Backward {
            places.reverse();
        }
        if let Some(passed) = rules.passed.map(place_of) {
            places.retain(|(place, _)| match rules.direction {
                Direction::Forward => *place > passed,
                Direction::Backward => *place < passed,
            });
        }
        let (mut rows, mut bytes) = (Vec::new(), 0);
        for ((_, key), entry) in places {
            let mut entry = entry.clone();
            if rules.keys_only {
                entry.value = Vec::new().into();
            }
            bytes += key.len() + entry.value.len();
            let is_full = rows.len() as u64 >= rules.entries || bytes > rules.bytes;
            if is_full && let Some(RemoteRow { key, .. }) = rows.last() {
                let end = RemotePageEnd::Passed(key.clone());
                return RemoteAnswer::Page(rows, end);
            }
            rows.push(RemoteRow { key, entry });
        }
        RemoteAnswer::Page(rows, RemotePageEnd::Complete)
    }
}
