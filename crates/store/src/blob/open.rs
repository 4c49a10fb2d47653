//! A start: what is in the folder, and what the descriptions say.

use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::blobs::{BlobConfig, Blobs, State, UploadKey};
use super::description::{Description, split_key};
use super::layout::{HEAD_BYTES, Identity, Mark, file_name, number_of};
use super::limits;
use super::upload::Unfinished;
use crate::catalogue::DatabaseId;
use crate::disk::Disk;
use crate::range::{Direction, Range};
use crate::store::Store;

/// What a start has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Blobs with content.
    pub blobs: u64,
    /// Uploads that can be resumed.
    pub unfinished: u64,
    /// Files that nobody needed, which were removed.
    pub removed: u64,
    /// Blobs whose content is missing: that cannot happen unless somebody else was in the folder.
    pub missing: u64,
    /// The names of some of them.
    pub missing_names: Vec<String>,
}

impl Blobs {
    /// Opens the folder of contents of a store whose log was read.
    pub(crate) fn open(
        store: &Store,
        disk: Arc<dyn Disk>,
        config: BlobConfig,
    ) -> io::Result<(Arc<Blobs>, Found)> {
        let mut opening = Opening::default();
        opening.read_descriptions(store);
        for name in disk.list()? {
            if let Some(number) = number_of(&name) {
                opening.note_file(&*disk, number)?;
            }
        }
        let Opening {
            state,
            described,
            mut found,
            ..
        } = opening;
        found.missing = described.len() as u64;
        let names = described.into_values().map(|(_, name)| name);
        found.missing_names = names.take(limits::MISSING_TOLD).collect();
        found.unfinished = state.uploads.len() as u64;
        Ok((Blobs::new(disk, config, state), found))
    }
}

#[derive(Default)]
struct Opening {
    state: State,
    /// Those whose file was not seen, by number.
    described: HashMap<u64, (DatabaseId, String)>,
    found: Found,
}

impl Opening {
    fn read_descriptions(&mut self, store: &Store) {
        let view = store.view(DatabaseId::BLOBS);
        let view = view.expect("a store with a log has this index");
        let _ = view.scan(&Range::ALL, Direction::Forward, 0, u32::MAX, &mut |entry| {
            let description = Description::decode(entry.value.bytes());
            if let (Some((database, name)), Some(description)) = (split_key(entry.key), description)
            {
                let number = description.number;
                self.described.insert(number, (database, name.to_owned()));
                let used = self.state.used.entry(database).or_default();
                used.blobs += 1;
                used.bytes += description.size_bytes;
                self.state.next_number = self.state.next_number.max(number + 1);
            }
            ControlFlow::Continue(())
        });
    }

    fn note_file(&mut self, disk: &dyn Disk, number: u64) -> io::Result<()> {
        self.state.next_number = self.state.next_number.max(number + 1);
        if self.described.remove(&number).is_some() {
            self.found.blobs += 1;
            return Ok(());
        }
        match resumable(disk, number)? {
            Some((key, mark)) => self.add_upload(disk, number, key, &mark),
            None => self.remove(disk, number),
        }
        Ok(())
    }

    fn add_upload(&mut self, disk: &dyn Disk, number: u64, key: UploadKey, mark: &Mark) {
        let database = key.database;
        let used = self.state.used.entry(database).or_default();
        used.bytes += mark.offset;
        used.unfinished += 1;
        let upload = Unfinished::found(number, key.clone(), mark.offset, mark.touched_ms);
        // Files come in the order of their numbers: the later one is that of the upload that was begun anew.
        if let Some(before) = self.state.uploads.insert(key, upload) {
            self.state.unbook(database, before.stored_bytes());
            self.state
                .take_back(database, 1, |used| &mut used.unfinished);
            self.remove(disk, before.number);
        }
    }

    /// If it cannot be removed, it is found again at the next start.
    fn remove(&mut self, disk: &dyn Disk, number: u64) {
        self.found.removed += u64::from(disk.remove(&file_name(number)).is_ok());
    }
}

/// Whose upload a file is, and how far it has come, if it can be gone on with.
fn resumable(disk: &dyn Disk, number: u64) -> io::Result<Option<(UploadKey, Mark)>> {
    let mut page = vec![0; HEAD_BYTES as usize];
    disk.open(&file_name(number))?.read_up_to(&mut page, 0)?;
    let Some(identity) = Identity::decode(&page) else {
        return Ok(None);
    };
    let mark = Mark::newest_in(&page).filter(|mark| !mark.is_sealed);
    let key = UploadKey {
        database: DatabaseId(identity.database),
        name: identity.name.into(),
        upload_id: identity.upload_id.into(),
    };
    let is_resumable = identity.number == number && !key.upload_id.is_empty();
    Ok(mark.filter(|_| is_resumable).map(|mark| (key, mark)))
}
