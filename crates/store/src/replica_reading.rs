//! What is read for servers that follow this one: groups of the log, and files of a copy.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use wal::disk::Disk;

use crate::blob::{self, NamedContent, ReceivedContent};
use crate::feed::{GroupReading, LogFollower, LogReadError, WatchError};
use crate::log::FollowedGroup;
use crate::store::Store;

/// Something that a thread reads which may wait for the device, a piece at a time.
#[derive(Debug)]
pub enum ReplicaReading {
    /// Groups of the log.
    Groups(GroupReading),
    /// A file.
    File(FileReading),
}

/// A piece of what is read.
#[derive(Debug)]
pub enum ReplicaPiece {
    /// Groups, in their order.
    Groups(Vec<FollowedGroup>),
    /// Bytes of a file, where the last piece ended; fewer than were asked for at its end.
    File(Bytes),
}

/// A file that is read from its beginning to its end. It is not open between two pieces.
#[derive(Debug)]
pub struct FileReading {
    disk: Arc<dyn Disk>,
    name: String,
    offset: u64,
}

impl FileReading {
    /// Begins a file in a folder.
    pub fn new(disk: Arc<dyn Disk>, name: String) -> FileReading {
        FileReading {
            disk,
            name,
            offset: 0,
        }
    }

    fn run(&mut self, bytes: usize) -> io::Result<Bytes> {
        let file = self.disk.open(&self.name)?;
        let mut piece = vec![0; bytes];
        let count = file.read_up_to(&mut piece, self.offset)?;
        piece.truncate(count);
        // It counts by its length.
        piece.shrink_to_fit();
        self.offset += count as u64;
        Ok(piece.into())
    }
}

impl ReplicaReading {
    /// Reads the next piece, of about so many `bytes`. What is read takes at most `claimed_bytes`
    /// of memory.
    ///
    /// # Errors
    /// What the next piece needs, if that is more, or why nothing can be read.
    pub fn run(
        &mut self,
        bytes: usize,
        claimed_bytes: usize,
    ) -> Result<ReplicaPiece, LogReadError> {
        match self {
            ReplicaReading::Groups(groups) => {
                groups.run(bytes, claimed_bytes).map(ReplicaPiece::Groups)
            }
            ReplicaReading::File(file) => {
                let read = file.run(bytes.min(claimed_bytes));
                let read = read.map_err(|error| match error.kind() {
                    io::ErrorKind::NotFound => WatchError::Gone,
                    _ => WatchError::Unreadable(format!("{}: {error}", file.name)),
                });
                Ok(ReplicaPiece::File(read?))
            }
        }
    }
}

impl ReplicaPiece {
    /// Returns what it takes of memory, in bytes.
    pub fn held_bytes(&self) -> usize {
        match self {
            ReplicaPiece::Groups(groups) => groups.iter().map(|group| group.body.len()).sum(),
            ReplicaPiece::File(bytes) => bytes.len(),
        }
    }
}

impl Store {
    /// Begins to follow the log of this store; `None`: there is none.
    pub fn follow_log(&self) -> Option<LogFollower> {
        self.log_tail().map(LogFollower::new)
    }

    /// Returns how many follow the log of this store.
    pub fn followers(&self) -> usize {
        self.log_tail().map_or(0, |tail| tail.followers())
    }

    /// Returns up to which sequence the log is on the device, as whoever follows it may know; 0:
    /// there is no log.
    pub fn followable_sequence(&self) -> u64 {
        self.log_tail().map_or(0, |tail| tail.durable_sequence())
    }

    pub(crate) fn has_followers(&self) -> bool {
        self.followers() > 0
    }

    /// More of the log is on the device: wakes those who follow it.
    pub(crate) fn note_durable(&self) {
        self.feeds().note_change();
        self.feeds().announce();
    }

    /// Whether the content of a blob is here.
    ///
    /// # Errors
    /// If the device does not say.
    pub fn has_content(&self, number: u64) -> io::Result<bool> {
        let Some(blobs) = self.blobs() else {
            return Ok(false);
        };
        match blobs.folder().open(&blob::file_name(number)) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Begins to take the file with the content of a blob from another server.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn receive_content(&self, content: &NamedContent) -> io::Result<ReceivedContent> {
        let blobs = self.blobs();
        let blobs = blobs.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        ReceivedContent::begin(blobs.folder(), content)
    }

    /// Removes what an earlier run has left of such files.
    ///
    /// # Errors
    /// If some cannot be removed.
    pub fn discard_received(&self) -> io::Result<()> {
        self.blobs()
            .map_or(Ok(()), |blobs| blob::discard_received(&**blobs.folder()))
    }

    /// Begins to read the file with the content of a blob; `None`: there are no blobs.
    pub fn read_content(&self, number: u64) -> Option<ReplicaReading> {
        let disk = Arc::clone(self.blobs()?.folder());
        let name = blob::file_name(number);
        Some(ReplicaReading::File(FileReading::new(disk, name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_on_and_no_more_of_it_than_there_is_memory_for() {
        let disk = testkit::simulated_disk(1);
        let content: Vec<u8> = (0..10_000_u32).map(|at| (at % 251) as u8).collect();
        let file = disk.create("content").expect("nothing fails");
        file.write_all_at(&content, 0).expect("nothing fails");
        let disk: Arc<dyn Disk> = Arc::new(disk);
        for (bytes, claimed_bytes) in [(1_000, 1_000), (4_096, 700), (700, 4_096)] {
            let file = FileReading::new(Arc::clone(&disk), "content".into());
            let (mut reading, mut read) = (ReplicaReading::File(file), Vec::new());
            loop {
                let piece = reading.run(bytes, claimed_bytes).expect("nothing fails");
                let ReplicaPiece::File(piece) = &piece else {
                    panic!("{piece:?}");
                };
                assert!(piece.len() <= bytes.min(claimed_bytes));
                match piece.is_empty() {
                    true => break,
                    false => read.extend_from_slice(piece),
                }
            }
            assert!(read == content);
        }
        let file = FileReading::new(disk, "nothing".into());
        let read = ReplicaReading::File(file).run(1_000, 1_000);
        assert!(matches!(read, Err(LogReadError::Failed(WatchError::Gone))));
    }
}
