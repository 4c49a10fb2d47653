//! The contents of blobs in a backup: those that the descriptions in it name, no others, each
//! checked as it is copied.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use wal::disk::Disk;

use crate::blob::{self, CheckError, ContentWalk, Description};
use crate::database_id::DatabaseId;
use crate::log::{Record, RecordKind};
use crate::range::{Direction, Range, ScanEnd};
use crate::snapshot::limits::SLICE_ROWS;
use crate::store::Store;
use crate::value::Entry;

/// Descriptions of blobs, as far as they are known: keys and values of the hidden index.
#[derive(Debug, Default)]
pub(super) struct Described(BTreeMap<Box<[u8]>, Box<[u8]>>);

/// A content that a description names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needed {
    pub(super) number: u64,
    pub(super) size_bytes: u64,
    crc32c: u32,
}

impl Described {
    /// Those that are visible, page by page: whoever describes a blob meanwhile waits for a page at
    /// most. What changes while this goes on is partly among them, and must come from the log.
    pub(super) fn in_store(store: &Store) -> Described {
        Described::in_pages(store, SLICE_ROWS)
    }

    fn in_pages(store: &Store, rows: u32) -> Described {
        let mut described = Described::default();
        let mut behind: Option<Box<[u8]>> = None;
        while let Some(view) = store.view(DatabaseId::BLOBS) {
            let range = match &behind {
                None => Range::ALL,
                Some(key) => Range::ALL.beyond(key, Direction::Forward),
            };
            let end = view.scan(&range, Direction::Forward, 0, rows, &mut |entry| {
                described.note_entry(entry);
                ControlFlow::Continue(())
            });
            let ScanEnd::BudgetSpent(key) = end else {
                break;
            };
            behind = Some(key.into());
        }
        described
    }

    /// An entry of the hidden index.
    pub(super) fn note_entry(&mut self, entry: &Entry<'_>) {
        let value = entry.value.bytes().into();
        self.0.insert(entry.key.into(), value);
    }

    /// A record of the log.
    pub(super) fn note_record(&mut self, record: &Record<'_>) {
        if record.database != DatabaseId::BLOBS {
            return;
        }
        match record.entry() {
            Some(entry) => self.note_entry(&entry),
            None if record.kind == RecordKind::Delete => {
                self.0.remove(record.key);
            }
            None => {}
        }
    }

    /// The name of the blob with a content.
    pub(super) fn name_of(&self, number: u64) -> Option<String> {
        let is_it = |value: &[u8]| {
            Description::decode(value).is_some_and(|description| description.number == number)
        };
        let (key, _) = self.0.iter().find(|(_, value)| is_it(value))?;
        let (_, name) = blob::split_key(key)?;
        Some(name.to_owned())
    }

    /// The contents that they name. `None`: one of them makes no sense.
    pub(super) fn needed(&self) -> Option<Vec<Needed>> {
        let needed = |value: &[u8]| {
            let description = Description::decode(value)?;
            Some(Needed {
                number: description.number,
                size_bytes: description.size_bytes,
                crc32c: description.crc32c,
            })
        };
        self.0.values().map(|value| needed(value)).collect()
    }
}

/// What is wrong with the content of a blob.
#[derive(Debug)]
pub(super) struct ContentError {
    /// Its file.
    pub(super) file: String,
    /// Its number; `None`: it is about the folder.
    pub(super) number: Option<u64>,
    pub(super) what: CheckError,
}

/// Contents on their way from one folder to another, or only to be checked.
#[derive(Debug)]
pub(super) struct BackupContents {
    source: Arc<dyn Disk>,
    /// The source is a backup, whose files have only what they must have.
    is_of_backup: bool,
    target: Option<Arc<dyn Disk>>,
    waiting: std::vec::IntoIter<Needed>,
    walk: Option<(Needed, ContentWalk)>,
    done_bytes: u64,
    /// The names of files that were begun.
    begun: Vec<String>,
}

impl BackupContents {
    /// Without a target they are only checked.
    pub(super) fn new(
        source: Arc<dyn Disk>,
        target: Option<Arc<dyn Disk>>,
        needed: Vec<Needed>,
    ) -> BackupContents {
        BackupContents {
            source,
            is_of_backup: false,
            target,
            waiting: needed.into_iter(),
            walk: None,
            done_bytes: 0,
            begun: Vec::new(),
        }
    }

    /// The same from a backup: what was added to a file there is found too.
    pub(super) fn of_backup(
        source: Arc<dyn Disk>,
        target: Option<Arc<dyn Disk>>,
        needed: Vec<Needed>,
    ) -> BackupContents {
        BackupContents {
            is_of_backup: true,
            ..BackupContents::new(source, target, needed)
        }
    }

    /// Bytes of content that are done.
    pub(super) fn done_bytes(&self) -> u64 {
        self.done_bytes
    }

    /// Does a little; returns whether that was all.
    pub(super) fn step(&mut self) -> Result<bool, ContentError> {
        let Some((needed, walk)) = &mut self.walk else {
            return self.next();
        };
        match walk.step() {
            Ok(Some(bytes)) => {
                self.done_bytes += bytes;
                Ok(false)
            }
            Ok(None) => {
                self.walk = None;
                Ok(false)
            }
            Err(what) => {
                let number = needed.number;
                Err(self.error(number, what))
            }
        }
    }

    fn next(&mut self) -> Result<bool, ContentError> {
        let Some(needed) = self.waiting.next() else {
            return self.sync();
        };
        let name = blob::file_name(needed.number);
        let opened = self.source.open(&name);
        let walk = opened.map_err(CheckError::Device).and_then(|source| {
            if self.is_of_backup {
                blob::check_form(&*source, needed.number, needed.size_bytes, needed.crc32c)?;
            }
            let target = match &self.target {
                None => None,
                Some(target) => {
                    self.begun.push(name.clone());
                    Some(target.create(&name)?)
                }
            };
            ContentWalk::new(
                source,
                target,
                needed.number,
                needed.size_bytes,
                needed.crc32c,
            )
        });
        match walk {
            Ok(walk) => {
                self.walk = Some((needed, walk));
                Ok(false)
            }
            Err(what) => Err(self.error(needed.number, what)),
        }
    }

    fn sync(&self) -> Result<bool, ContentError> {
        let Some(target) = &self.target else {
            return Ok(true);
        };
        let synced = target.sync_folder();
        synced.map(|()| true).map_err(|error| ContentError {
            file: target.describe(""),
            number: None,
            what: CheckError::Device(error),
        })
    }

    fn error(&self, number: u64, what: CheckError) -> ContentError {
        ContentError {
            file: self.source.describe(&blob::file_name(number)),
            number: Some(number),
            what,
        }
    }

    /// Removes what was copied.
    pub(super) fn discard(&self) {
        if let Some(target) = &self.target {
            for name in &self.begun {
                let _ = target.remove(name);
            }
        }
    }
}

/// Whether a folder of contents has those that are needed and no other files. Names the first that
/// should not be there.
pub(super) fn find_foreign(folder: &dyn Disk, needed: &[Needed]) -> io::Result<Option<String>> {
    let numbers: BTreeSet<u64> = needed.iter().map(|needed| needed.number).collect();
    let is_needed =
        |name: &String| blob::number_of(name).is_some_and(|number| numbers.contains(&number));
    let names = folder.list()?;
    let foreign = names.into_iter().find(|name| !is_needed(name));
    Ok(foreign.map(|name| folder.describe(&name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreConfig;
    use crate::value::Value;
    use wal::{LogConfig, LogId};

    #[test]
    fn descriptions_are_gathered_page_by_page() {
        let id = LogId {
            history: 1,
            secret: 2,
        };
        let disk = Arc::new(testkit::simulated_disk(1));
        let opened = Store::open(StoreConfig::new(1), disk, &LogConfig::new(id, 1));
        let store = opened.expect("the disk is empty").store;
        for count in [0, 1, 9, 10, 11] {
            {
                let database = store.find(DatabaseId::BLOBS).expect("there is a log");
                let mut state = database.state.write();
                let key = [count];
                let entry = Entry {
                    key: &key,
                    value: Value::Inline(b"described"),
                    version: 1,
                    expires_ms: 0,
                };
                let hash = store.hasher().hash(&key);
                state.index.memory_mut().put(hash, &entry);
            }
            let whole = Described::in_pages(&store, u32::MAX).0;
            for rows in [1, 2, 3] {
                let paged = Described::in_pages(&store, rows);
                assert_eq!(paged.0, whole, "pages of {rows}");
                assert_eq!(paged.0, Described::in_pages(&store, rows).0, "again");
            }
        }
        assert_eq!(Described::in_store(&store).0.len(), 5);
    }
}
