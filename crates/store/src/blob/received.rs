//! Contents of blobs that come from another server.

use std::io;
use std::sync::Arc;

use wal::disk::{Disk, DiskFile};

use super::check_error::CheckError;
use super::description::Description;
use super::layout::file_name;
use super::limits;
use super::walk::ContentWalk;
use crate::database_id::DatabaseId;
use crate::log::{FollowedGroup, RecordKind};

/// Behind the name of a content that is not whole.
const UNFINISHED: &str = ".received";

/// A content that a description in the log names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedContent {
    /// Its number, which names its file.
    pub number: u64,
    size_bytes: u64,
    crc32c: u32,
}

impl NamedContent {
    /// Returns those that a group names; none if it makes no sense.
    pub fn all_in(group: &FollowedGroup) -> Vec<NamedContent> {
        let records = group.read().unwrap_or_default();
        let set = records.iter().filter(|record| {
            record.database == DatabaseId::BLOBS && record.kind == RecordKind::Set
        });
        let described = set.filter_map(|record| Description::decode(record.value));
        let named = described.map(|description| NamedContent {
            number: description.number,
            size_bytes: description.size_bytes,
            crc32c: description.crc32c,
        });
        named.collect()
    }
}

/// A content on its way. It has its name when it is whole, was checked, and is on the device.
#[derive(Debug)]
pub struct ReceivedContent {
    disk: Arc<dyn Disk>,
    file: Arc<dyn DiskFile>,
    content: NamedContent,
    written_bytes: u64,
    unsynced_bytes: u64,
}

impl ReceivedContent {
    pub(crate) fn begin(
        disk: &Arc<dyn Disk>,
        content: &NamedContent,
    ) -> io::Result<ReceivedContent> {
        let name = unfinished_name(content.number);
        // What is left of an earlier attempt.
        let _ = disk.remove(&name);
        Ok(ReceivedContent {
            disk: Arc::clone(disk),
            file: disk.create(&name)?,
            content: *content,
            written_bytes: 0,
            unsynced_bytes: 0,
        })
    }

    /// Adds the next bytes of the file.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.written_bytes)?;
        self.written_bytes += bytes.len() as u64;
        self.unsynced_bytes += bytes.len() as u64;
        if self.unsynced_bytes >= limits::SYNC_BYTES {
            self.unsynced_bytes = 0;
            self.file.sync()?;
        }
        Ok(())
    }

    /// Checks the file, and gives it its name.
    ///
    /// # Errors
    /// If it is not that content, or cannot be brought to the device.
    pub fn finish(self) -> io::Result<()> {
        let NamedContent {
            number,
            size_bytes,
            crc32c,
        } = self.content;
        self.file.sync()?;
        let walked = ContentWalk::new(Arc::clone(&self.file), None, number, size_bytes, crc32c);
        let walked = walked.and_then(|mut walk| {
            while walk.step()?.is_some() {}
            Ok(())
        });
        walked.map_err(|error| match error {
            CheckError::Damaged => {
                let what = format!("the content {number} of a blob has changed on its way");
                io::Error::new(io::ErrorKind::InvalidData, what)
            }
            CheckError::Device(error) => error,
        })?;
        self.disk
            .rename(&unfinished_name(number), &file_name(number))?;
        self.disk.sync_folder()
    }
}

/// Removes what earlier runs have left of contents that were not whole.
pub(crate) fn discard_received(disk: &dyn Disk) -> io::Result<()> {
    for name in disk.list()? {
        if name.ends_with(UNFINISHED) {
            disk.remove(&name)?;
        }
    }
    Ok(())
}

fn unfinished_name(number: u64) -> String {
    format!("{}{UNFINISHED}", file_name(number))
}
