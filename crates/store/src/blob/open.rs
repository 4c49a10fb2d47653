//! A start: what is in the folder, and what the descriptions say.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use wal::disk::Disk;

use super::FOLDER;
use super::blobs::{BlobConfig, BlobStore, BlobsState};
use super::description::{Description, split_key};
use super::layout::{DurableMark, HEAD_BYTES, UploadOwner, file_name, number_of};
use super::limits;
use super::stream::UploadKey;
use super::unfinished::IncompleteUpload;
use crate::aside::SetAside;
use crate::database_id::DatabaseId;

/// What a start has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundBlobs {
    /// Blobs with content.
    pub blobs: u64,
    /// Uploads that can be resumed.
    pub unfinished: u64,
    /// Contents of blobs that were replaced or deleted, which the last run had no time to remove,
    /// or whose removal a loss of power took back: they were removed.
    pub removed: u64,
    /// Files that nothing names, which were set aside.
    pub set_aside: u64,
    /// Files and folders that had been set aside long ago, which were removed.
    pub expired: u64,
    /// Blobs whose content is missing: that cannot happen unless somebody else was in the folder.
    pub missing: u64,
    /// The names of some of them.
    pub missing_names: Vec<String>,
}

/// What the log tells of contents that have no description any more.
#[derive(Clone, Debug, Default)]
pub(crate) struct RemovedContents {
    /// Their sizes and checksums, by number. The number of a content that is gone may be used again
    /// in a later run.
    contents: HashMap<u64, HashSet<(u64, u32)>>,
}

impl RemovedContents {
    /// A description is replaced or removed.
    pub(crate) fn note(&mut self, description: &[u8]) {
        if let Some(description) = Description::decode(description) {
            let Description {
                number,
                size_bytes,
                crc32c,
                ..
            } = description;
            let contents = self.contents.entry(number).or_default();
            contents.insert((size_bytes, crc32c));
        }
    }

    /// Whether the file of this number had a description that the log has replaced or removed.
    fn has(&self, number: u64, sealed: &DurableMark) -> bool {
        let contents = self.contents.get(&number);
        contents.is_some_and(|all| all.contains(&(sealed.offset, sealed.crc32c)))
    }
}

/// The first half of a start: the folder was looked through, and nothing changed in it.
#[derive(Default)]
pub(crate) struct BlobOpening {
    state: BlobsState,
    /// Those whose file was not seen, by number.
    described: HashMap<u64, (DatabaseId, String)>,
    /// Contents whose description the log has replaced or removed.
    removed: Vec<u64>,
    /// Files that nothing names.
    orphans: Vec<u64>,
    /// Those of them that were blobs, and of which the log does not tell why they are none any
    /// more.
    unexplained: u64,
    found: FoundBlobs,
}

impl BlobOpening {
    /// Notes an entry of the index of blobs.
    pub(crate) fn note_description(&mut self, key: &[u8], description: &[u8]) {
        if let (Some((database, name)), Some(description)) =
            (split_key(key), Description::decode(description))
        {
            let number = description.number;
            self.described.insert(number, (database, name.to_owned()));
            let used = self.state.used.entry(database).or_default();
            used.blobs += 1;
            used.bytes += description.size_bytes;
            self.state.next_number = self.state.next_number.max(number + 1);
        }
    }

    /// Looks through the folder of contents after all descriptions were noted, at `wall_ms`.
    pub(crate) fn read_folder(
        &mut self,
        disk: &dyn Disk,
        removed: &RemovedContents,
        wall_ms: u64,
    ) -> io::Result<()> {
        for name in disk.list()? {
            if let Some(number) = number_of(&name) {
                self.note_file(disk, number, removed, wall_ms)?;
            }
        }
        Ok(())
    }

    /// How many contents of blobs would be set aside, if these are more than a crash can leave.
    pub(crate) fn lost_contents(&self) -> Option<u64> {
        (self.unexplained > limits::ORPHANS).then_some(self.unexplained)
    }

    /// Brings the marks of uploads to the device that the last run may have left in the cache of
    /// the operating system: what their senders are told of from now on must not be taken back by a
    /// loss of power.
    pub(crate) fn sync_uploads(&self, disk: &dyn Disk) -> io::Result<()> {
        for number in self.state.unfinished.keys() {
            disk.open(&file_name(*number))?.sync()?;
        }
        match self.state.unfinished.is_empty() {
            true => Ok(()),
            false => disk.sync_folder(),
        }
    }

    /// The second half: removes what the log has removed, and sets aside what nothing names. To be
    /// called when the log is durable up to its end.
    pub(crate) fn open(
        self,
        disk: Arc<dyn Disk>,
        aside: SetAside,
        config: BlobConfig,
        now_ms: u64,
    ) -> io::Result<(Arc<BlobStore>, FoundBlobs)> {
        let BlobOpening {
            state,
            described,
            removed,
            orphans,
            mut found,
            ..
        } = self;
        // What cannot be removed now is found again.
        let gone = removed
            .into_iter()
            .filter(|&number| disk.remove(&file_name(number)).is_ok());
        found.removed = gone.count() as u64;
        let names: Vec<_> = orphans.into_iter().map(file_name).collect();
        found.set_aside = aside.take(FOLDER, &names, now_ms)?;
        // What cannot be looked through now is tried again while the server runs.
        found.expired = aside.expire(now_ms).unwrap_or(0);
        found.missing = described.len() as u64;
        let names = described.into_values().map(|(_, name)| name);
        found.missing_names = names.take(limits::MISSING_TOLD).collect();
        found.unfinished = state.uploads.len() as u64;
        Ok((BlobStore::new(disk, aside, config, state), found))
    }

    fn note_file(
        &mut self,
        disk: &dyn Disk,
        number: u64,
        removed: &RemovedContents,
        wall_ms: u64,
    ) -> io::Result<()> {
        self.state.next_number = self.state.next_number.max(number + 1);
        if self.described.remove(&number).is_some() {
            self.found.blobs += 1;
            return Ok(());
        }
        let head = read_head(disk, number).map_err(|error| {
            let words = format!("{}: {error}", file_name(number));
            io::Error::new(error.kind(), words)
        });
        match head? {
            ContentHead::Resumable(key, mark) => self.add_upload(number, key, &mark),
            ContentHead::Sealed(mark) if removed.has(number, &mark) => self.removed.push(number),
            ContentHead::Sealed(mark) => {
                let is_explained = mark.touched_ms.saturating_add(limits::DESCRIBING_MS) >= wall_ms;
                self.unexplained += u64::from(!is_explained);
                self.orphans.push(number);
            }
            ContentHead::Other => self.orphans.push(number),
        }
        Ok(())
    }

    fn add_upload(&mut self, number: u64, key: UploadKey, mark: &DurableMark) {
        let database = key.database;
        let used = self.state.used.entry(database).or_default();
        used.bytes += mark.offset;
        used.unfinished += 1;
        let upload = IncompleteUpload::found(number, &key, mark.offset, mark.touched_ms);
        self.state.unfinished.insert(number, Arc::clone(&upload));
        // Files come in the order of their numbers: the later one is that of the upload that was
        // begun anew.
        if let Some(before) = self.state.uploads.insert(key, upload) {
            self.state.unfinished.remove(&before.number);
            self.state.unbook(database, before.stored_bytes());
            self.state
                .take_back(database, 1, |used| &mut used.unfinished);
            self.orphans.push(before.number);
        }
    }
}

/// What the first page of a file without a description says.
enum ContentHead {
    /// It is an upload that has come so far, and can be gone on with.
    Resumable(UploadKey, DurableMark),
    /// It is the whole content of a blob.
    Sealed(DurableMark),
    /// It is an upload that cannot be gone on with, or the page is not whole.
    Other,
}

fn read_head(disk: &dyn Disk, number: u64) -> io::Result<ContentHead> {
    let mut page = vec![0; HEAD_BYTES as usize];
    disk.open(&file_name(number))?.read_up_to(&mut page, 0)?;
    let identity = UploadOwner::decode(&page).filter(|identity| identity.number == number);
    let (Some(identity), Some(mark)) = (identity, DurableMark::newest_in(&page)) else {
        return Ok(ContentHead::Other);
    };
    if mark.is_sealed {
        return Ok(ContentHead::Sealed(mark));
    }
    if identity.upload_id.is_empty() {
        return Ok(ContentHead::Other);
    }
    let key = UploadKey {
        database: DatabaseId(identity.database),
        name: identity.name.into(),
        upload_id: identity.upload_id.into(),
    };
    Ok(ContentHead::Resumable(key, mark))
}
